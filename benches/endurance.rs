//! A thousand children that write to stderr at full speed, for ten minutes: does memory stay flat,
//! is any turn too long, and is every byte accounted for?
//!
//! ```text
//! cargo bench -p lastwords-benches --bench endurance                                    # ten minutes on each backend
//! cargo bench -p lastwords-benches --bench endurance -- --small                         # two seconds with forty children
//! cargo bench -p lastwords-benches --bench endurance -- --seconds 60 --peers epoll --keep 65536
//! ```
//!
//! Each child lives for one to sixty seconds, and another one takes its place. Before it ends it
//! tells, on stdout, how many bytes went into its stderr; the report must say the same number. It
//! is an error of the run if one does not.

#[expect(dead_code, reason = "shared with benches that measure other things")]
mod common;

use clap::Parser;
use common::child::{Role, unmake};
use common::figures::{Column, Figure, Measure, Round, Table, Unit, quantile_of};
use common::options::{Choice, Options};
use common::peers::has_uring;
use common::proc::resident;
use common::results::{Bound, Results};
use common::{Fail, cpu, now, raise_descriptor_limit, thread_cpu};
use hdrhistogram::Histogram;
use lastwords::{
    BackendChoice, Capture, Event, Outcome, Output, Reactor, Report, Stdin, Stream, Verdict,
};
use std::time::Duration;

/// The one situation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Situation {
    /// Many children that write at full speed
    Noisy,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Peer {
    /// lastwords on epoll
    Epoll,
    /// lastwords on io_uring
    Uring,
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}

/// Ten minutes of a thousand noisy children.
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    options: Options<Situation, Peer>,
    /// How long, on each backend
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
    /// Bytes kept of each child's stderr
    #[arg(long, value_name = "BYTES", default_value_t = 2 << 20)]
    keep: u64,
}

/// CPU time of the thread in one turn.
const TURN: Measure = Measure::new("turn", Unit::Nanoseconds);
/// From a child's last act to the verdict on it.
const LATENCY: Measure = Measure::new("latency", Unit::Nanoseconds);
/// Children that have ended, each with the right number of bytes.
const CHILDREN: Measure = Measure::new("children", Unit::Count);
const BYTES: Measure = Measure::new("bytes", Unit::Bytes);
const RATE: Measure = Measure::new("rate", Unit::BytesPerNanosecond);
const CPU_PER_BYTE: Measure = Measure::new("cpu_per_byte", Unit::NanosecondsPerByte);
/// Resident memory of this process, when everything had its size, and at the end.
const MEMORY_EARLY: Measure = Measure::new("memory_early", Unit::Bytes);
const MEMORY_LATE: Measure = Measure::new("memory_late", Unit::Bytes);

const NANOSECONDS: u64 = 1_000_000_000;
const MILLISECONDS: u64 = 1_000_000;

fn main() -> Result<(), Fail> {
    let done = run(&Args::parse());
    unmake()?;
    done
}

fn run(args: &Args) -> Result<(), Fail> {
    raise_descriptor_limit()?;
    let seconds = args.seconds.unwrap_or(args.options.size(2, 600));
    let children = args.options.n(40, 1000);
    let title = format!(
        "{children} noisy children for {seconds} s, {} bytes of each kept",
        args.keep
    );
    let peers = args
        .options
        .peers(|peer| peer == Peer::Epoll || has_uring());
    let mut results = Results::new("endurance", &args.options)?;
    let mut table = Table::new("noisy", title, &peers);
    for _ in 0..args.options.rounds(1, 1) {
        for peer in &peers {
            let round = Endurance::new(*peer, children, args.keep)?
                .run(seconds)
                .map_err(|error| format!("{peer}: {error}"))?;
            table.push(peer, round);
        }
    }
    results.table(&table, &columns(), &[Peer::Epoll]);
    results.plot(&table, TURN)?;
    results.plot(&table, LATENCY)?;
    for peer in &peers {
        let p999 = table
            .median(peer, Figure::Percentile(TURN, 99.9))
            .map(|ns| ns / 1e6);
        results.target(
            format!("L8, {peer}, p99.9 of a turn in ms"),
            p999,
            Bound::AtMost(1.0),
        );
        let memory = |of| table.median(peer, Figure::Number(of));
        let growth = memory(MEMORY_LATE)
            .zip(memory(MEMORY_EARLY))
            .map(|(late, early)| late / early);
        results.target(
            format!("{peer}, memory of the last fifth to the second"),
            growth,
            Bound::AtMost(1.05),
        );
    }
    results.write()
}

fn columns() -> Vec<Column<Peer>> {
    let turn = |percent| Figure::Percentile(TURN, percent);
    vec![
        Column::median("children", Figure::Number(CHILDREN)),
        Column::median("bytes", Figure::Number(BYTES)),
        Column::median("rate", Figure::Number(RATE)),
        Column::median("CPU", Figure::Number(CPU_PER_BYTE)),
        Column::median("turn p50", turn(50.0)),
        Column::median("p99", turn(99.0)),
        Column::median("p99.9", turn(99.9)),
        Column::worst("longest", TURN),
        Column::count("turns", TURN),
        Column::median("verdict p50", Figure::Percentile(LATENCY, 50.0)),
        Column::median("p99", Figure::Percentile(LATENCY, 99.0)),
        Column::median("memory, second fifth", Figure::Number(MEMORY_EARLY)),
        Column::median("last fifth", Figure::Number(MEMORY_LATE)),
    ]
}

/// A run on one backend.
struct Endurance {
    reactor: Reactor,
    children: usize,
    keep: u64,
    started: u64,
    ended: u64,
    turns: Histogram<u64>,
    latencies: Histogram<u64>,
    /// Resident bytes, once a second.
    memory: Vec<u64>,
}

impl Endurance {
    fn new(peer: Peer, children: usize, keep: u64) -> Result<Endurance, Fail> {
        let backend = if peer == Peer::Epoll {
            BackendChoice::Epoll
        } else {
            BackendChoice::Uring
        };
        let reactor = Reactor::builder().backend(backend).build()?;
        let (turns, latencies) = (Histogram::new(3)?, Histogram::new(3)?);
        Ok(Endurance {
            reactor,
            children,
            keep,
            started: 0,
            ended: 0,
            turns,
            latencies,
            memory: Vec::new(),
        })
    }

    fn run(mut self, seconds: u64) -> Result<Round, Fail> {
        let (cpu_before, begun) = (cpu(), now());
        let end = begun + seconds * NANOSECONDS;
        let mut sampled = begun;
        while now() < end || self.reactor.is_busy() {
            self.fill_up(end)?;
            let before = thread_cpu();
            let _ = self.reactor.turn(Some(Duration::from_millis(100)))?;
            self.turns.record(thread_cpu() - before)?;
            self.take_events()?;
            if now() >= sampled + NANOSECONDS && now() < end {
                sampled = now();
                self.memory.push(resident()?);
            }
        }
        let (spent, wall, bytes) = (
            cpu() - cpu_before,
            now() - begun,
            self.reactor.stats().bytes,
        );
        let fifth = self.memory.len() / 5;
        let early = typical(self.memory.get(fifth..2 * fifth));
        let late = typical(self.memory.get(4 * fifth..));
        let mut round = Round::new()
            .recorded(TURN, self.turns)
            .recorded(LATENCY, self.latencies)
            .share(CHILDREN, self.ended, 1)
            .share(BYTES, bytes, 1)
            .share(RATE, bytes, wall)
            .share(CPU_PER_BYTE, spent, bytes);
        if let (Some(early), Some(late)) = (early, late) {
            round = round.number(MEMORY_EARLY, early).number(MEMORY_LATE, late);
        }
        Ok(round)
    }

    /// One turn's worth of new children, each for one to sixty seconds, and none beyond the end.
    fn fill_up(&mut self, end: u64) -> Result<(), Fail> {
        let left = end.saturating_sub(now()) / MILLISECONDS;
        if left == 0 || self.started - self.ended >= self.children as u64 {
            return Ok(());
        }
        // Any two neighbours are far apart, and all lengths come up.
        let lifecycle = (1000 + self.started * 7919 % 59_000).min(left);
        let mut command = Role::Counted(lifecycle).own_command()?;
        command
            .stdin(Stdin::Null)
            .stderr(Output::Capture(Capture::default().max_bytes(self.keep)));
        self.reactor.start(&command)?;
        self.started += 1;
        Ok(())
    }

    fn take_events(&mut self) -> Result<(), Fail> {
        let mut closed = None;
        while let Some(event) = self.reactor.next_event() {
            match event {
                Event::SpawnFailed { error, .. } => return Err(error.into()),
                Event::Closed {
                    generation, report, ..
                } => closed = Some((generation, report, now())),
                _ => {}
            }
            if let Some((generation, report, at)) = closed.take() {
                let said = self
                    .reactor
                    .kept(generation, Stream::Stdout)
                    .map(|kept| kept.to_vec())
                    .unwrap_or_default();
                self.latencies
                    .record(at.saturating_sub(account(&report, &said)?))?;
                self.ended += 1;
            }
        }
        Ok(())
    }
}

/// Is everything told as it was? The time of the child's last act.
fn account(report: &Report, said: &[u8]) -> Result<u64, Fail> {
    let wrong = |what: String| Fail::from(format!("child {:?}: {what}", report.pid));
    let word = |at: usize| Some(u64::from_ne_bytes(said.get(at..at + 8)?.try_into().ok()?));
    let verdict = report.drain.as_ref().map(|drain| drain.verdict);
    if report.outcome != Some(Outcome::Succeeded) || verdict != Some(Verdict::Drained) {
        return Err(wrong(format!("{:?}, {verdict:?}", report.outcome)));
    }
    let (Some(written), Some(stamp)) = (word(0), word(8)) else {
        return Err(wrong(format!("it said {said:?}")));
    };
    match report.stderr {
        Some(stderr) if stderr.bytes == written && stderr.late == 0 => Ok(stamp),
        other => Err(wrong(format!("{written} bytes written, but {other:?}"))),
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown with four digits")]
fn typical(samples: Option<&[u64]>) -> Option<f64> {
    quantile_of(samples?.iter().map(|bytes| *bytes as f64).collect(), 0.5)
}
