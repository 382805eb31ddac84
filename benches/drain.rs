//! How long after a child's last act everything about it is known: both pipes at their end, and the
//! status.
//!
//! ```text
//! cargo bench -p lastwords-benches --bench drain                     # about ten minutes
//! cargo bench -p lastwords-benches --bench drain -- --small          # about ten seconds: does it run?
//! cargo bench -p lastwords-benches --bench drain -- --only noisy --peers lastwords,raw-prio --rounds 20 --n 40 --json noisy.json --plots .
//! ```
//!
//! Every peer is measured in every round, one after the other, each round beginning with another
//! one. Percentiles are a round's; what is printed is their median over the rounds, and a ratio is
//! the median of the ratios within the rounds.

#[expect(dead_code, reason = "shared with benches that measure other things")]
mod common;

use clap::Parser;
use common::child::{Role, unmake};
use common::figures::{Column, Figure, Measure, Round, Table, Unit};
use common::options::{Choice, Options};
use common::peers::{Done, Hosts, Peer, Work};
use common::results::{Bound, Results};
use common::{Fail, cpu, now, raise_descriptor_limit};

/// A situation in which the latency is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Scenario {
    /// A child that says nothing
    Quiet,
    /// A child that has written 64 MiB to stderr
    Bulk,
    /// A quiet child among many that write at full speed
    Noisy,
    /// A child that leaves a process behind which holds both its pipes
    Leak,
}

impl Scenario {
    /// Rounds, and what is done in each.
    fn size(self, small: bool) -> (usize, Work) {
        let work = |role, count, noisy| Work { role, count, noisy };
        match (self, small) {
            (Scenario::Quiet, false) => (20, work(Role::Quiet, 200, 0)),
            (Scenario::Quiet, true) => (2, work(Role::Quiet, 50, 0)),
            (Scenario::Bulk, false) => (20, work(Role::Bulk(64), 10, 0)),
            (Scenario::Bulk, true) => (1, work(Role::Bulk(64), 2, 0)),
            (Scenario::Noisy, false) => (10, work(Role::Quiet, 50, 200)),
            (Scenario::Noisy, true) => (1, work(Role::Quiet, 3, 40)),
            (Scenario::Leak, false) => (3, work(Role::Leaver(2000), 1, 0)),
            (Scenario::Leak, true) => (1, work(Role::Leaver(400), 1, 0)),
        }
    }

    fn title(self, rounds: usize, work: &Work) -> String {
        let (_, number) = work.role.line();
        let what = match self {
            Scenario::Quiet => "quiet child".to_owned(),
            Scenario::Noisy => format!("quiet child among {} noisy ones", work.noisy),
            Scenario::Bulk => format!("after {number} MiB of stderr"),
            Scenario::Leak => format!("a process left behind holds the pipes for {number} ms"),
        };
        format!(
            "{}: {what} ({rounds} rounds of {})",
            self.name(),
            work.count
        )
    }
}

/// From a child's last act to the verdict on it.
///
/// Every peer is measured in every round, next to the others.
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    options: Options<Scenario, Peer>,
    /// Children that make noise, in the situation that has some
    #[arg(long, value_name = "N")]
    noisy: Option<usize>,
    /// Also those in other languages whose toolchains are there: Go, Node, Python, libuv
    #[arg(long)]
    foreign: bool,
}

/// From the last act to the verdict.
const LATENCY: Measure = Measure::new("latency", Unit::Nanoseconds);
/// From the last act to the status.
const STATUS: Measure = Measure::new("status", Unit::Nanoseconds);
/// CPU time of the host per measured child, starting it included.
const CPU_PER_CHILD: Measure = Measure::new("cpu_per_child", Unit::Nanoseconds);
/// CPU time of the host per byte read.
const CPU_PER_BYTE: Measure = Measure::new("cpu_per_byte", Unit::NanosecondsPerByte);
/// Bytes read in a nanosecond.
const RATE: Measure = Measure::new("rate", Unit::BytesPerNanosecond);
/// The largest resident memory of a peer in a process of its own.
const RESIDENT: Measure = Measure::new("resident", Unit::Bytes);

const fn latency(percent: f64) -> Figure {
    Figure::Percentile(LATENCY, percent)
}

fn main() -> Result<(), Fail> {
    let done = run(&Args::parse());
    unmake()?;
    done
}

fn run(args: &Args) -> Result<(), Fail> {
    raise_descriptor_limit()?;
    let mut results = Results::new("drain", &args.options)?;
    let mut hosts = Hosts::new();
    let peers = hosts.present(
        args.options
            .peers(|peer| peer.by_default() || args.foreign && peer.is_foreign()),
    );
    if peers.is_empty() {
        return Err("nobody is left to be measured".into());
    }
    for scenario in args.options.situations() {
        let table = measure(scenario, args, &peers, &mut hosts)?;
        results.table(
            &table,
            &columns(scenario),
            &[Peer::RawEpoll, Peer::RawPrio, Peer::TokioCt],
        );
        results.plot(&table, LATENCY)?;
        targets(scenario, &table, &mut results);
    }
    results.write()
}

fn measure(
    scenario: Scenario,
    args: &Args,
    peers: &[Peer],
    hosts: &mut Hosts,
) -> Result<Table<Peer>, Fail> {
    let (rounds, mut work) = scenario.size(args.options.small);
    let rounds = args.options.rounds.unwrap_or(rounds);
    work.count = args.options.n.unwrap_or(work.count);
    if scenario == Scenario::Noisy {
        work.noisy = args.noisy.unwrap_or(work.noisy);
    }
    let mut table = Table::new(scenario.name(), scenario.title(rounds, &work), peers);
    for round in 0..rounds {
        for place in 0..peers.len() {
            let peer = peers[(place + round) % peers.len()];
            let (cpu_before, before) = (cpu(), now());
            let done = hosts
                .round(peer, &work)
                .map_err(|error| format!("{peer} in {}: {error}", scenario.name()))?;
            table.push(&peer, counted(&done, cpu() - cpu_before, now() - before)?);
        }
    }
    Ok(table)
}

/// What a round came to, with the CPU and the wall time that it took.
fn counted(done: &Done, cpu: u64, wall: u64) -> Result<Round, Fail> {
    let (cpu, wall) = done.own.map_or((cpu, wall), |own| (own.cpu, own.wall));
    let round = done.own.map_or_else(Round::new, |own| {
        Round::new().share(RESIDENT, own.resident, 1)
    });
    Ok(round
        .samples(LATENCY, done.samples.iter().map(|sample| sample.verdict))?
        .samples(STATUS, done.samples.iter().map(|sample| sample.status))?
        .share(CPU_PER_CHILD, cpu, done.samples.len() as u64)
        .share(CPU_PER_BYTE, cpu, done.bytes)
        .share(RATE, done.bytes, wall))
}

fn columns(scenario: Scenario) -> Vec<Column<Peer>> {
    let mut columns = vec![
        Column::median("p50", latency(50.0)),
        Column::quartiles("quartiles of p50", latency(50.0)),
        Column::median("p90", latency(90.0)),
        Column::median("p99", latency(99.0)),
        Column::worst("max", LATENCY),
        Column::count("n", LATENCY),
        Column::ratio("p50 : raw-epoll", Peer::RawEpoll, latency(50.0)),
        Column::ratio(": raw-prio", Peer::RawPrio, latency(50.0)),
        Column::ratio(": tokio-ct", Peer::TokioCt, latency(50.0)),
        Column::median("status p50", Figure::Percentile(STATUS, 50.0)),
    ];
    match scenario {
        Scenario::Quiet | Scenario::Leak => columns.push(Column::median(
            "CPU per child",
            Figure::Number(CPU_PER_CHILD),
        )),
        Scenario::Bulk | Scenario::Noisy => {
            columns.push(Column::median("CPU", Figure::Number(CPU_PER_BYTE)));
            columns.push(Column::median("rate", Figure::Number(RATE)));
        }
    }
    columns
}

/// What is aimed at, and whether it was reached in this run.
fn targets(scenario: Scenario, table: &Table<Peer>, results: &mut Results) {
    let ratio = |to, percent| table.ratio(&Peer::Lastwords, &to, latency(percent));
    let best_raw = |percent| {
        ratio(Peer::RawEpoll, percent)
            .into_iter()
            .chain(ratio(Peer::RawPrio, percent))
            .max_by(f64::total_cmp)
    };
    match scenario {
        Scenario::Quiet => {
            results.target(
                "L1, p50 to raw-epoll",
                ratio(Peer::RawEpoll, 50.0),
                Bound::AtMost(1.10),
            );
            results.target(
                "L1, p90 to raw-epoll",
                ratio(Peer::RawEpoll, 90.0),
                Bound::AtMost(1.3),
            );
            results.target(
                "L1, p50 to tokio-ct",
                ratio(Peer::TokioCt, 50.0),
                Bound::AtMost(1.0),
            );
        }
        Scenario::Bulk => {
            let p50 = |peer: &Peer| table.median(peer, latency(50.0));
            let others = table.peers().filter(|peer| {
                !matches!(peer, Peer::Lastwords | Peer::LastwordsUring | Peer::Spin)
            });
            let best = others.filter_map(p50).min_by(f64::total_cmp);
            let lower = table.over_rounds(&Peer::Lastwords, latency(50.0), 0.25);
            results.target(
                "L2, p50 to raw-prio",
                ratio(Peer::RawPrio, 50.0),
                Bound::AtMost(1.15),
            );
            let found = lower.zip(best).map(|(a, b)| a / b);
            results.target(
                "L2, lower quartile of p50 to the best peer",
                found,
                Bound::AtMost(1.0),
            );
        }
        Scenario::Noisy => {
            results.target(
                "L3, p50 to tokio-ct",
                ratio(Peer::TokioCt, 50.0),
                Bound::AtMost(0.02),
            );
            results.target(
                "L3, p99 to tokio-ct",
                ratio(Peer::TokioCt, 99.0),
                Bound::AtMost(0.02),
            );
            results.target(
                "L3, p50 to the better raw loop",
                best_raw(50.0),
                Bound::AtMost(1.5),
            );
        }
        Scenario::Leak => {}
    }
}
