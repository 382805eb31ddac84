//! What the options of a host are worth that change how bytes come: the capacity of a pipe, a
//! socket instead of a pipe, and how much is read in a turn.
//!
//! ```text
//! cargo bench -p lastwords-benches --bench options                   # some minutes
//! cargo bench -p lastwords-benches --bench options -- --small        # some seconds: does it run?
//! cargo bench -p lastwords-benches --bench options -- --only one-large,latency --peers pipe,socket --rounds 20 --plots .
//! ```
//!
//! Those who are measured are the library itself, once with each option. The children are dd(1),
//! which writes zeros to its stdout; of each stream the newest 2 MiB are kept. For the latency it
//! is a child that ends with its first word, the time at which it was said.

#[expect(dead_code, reason = "shared with benches that measure other things")]
mod common;

use clap::{Parser, ValueEnum};
use common::child::{Role, unmake};
use common::figures::{Column, Figure, Measure, Round, Table, Unit};
use common::options::{Choice, Options};
use common::results::Results;
use common::{Fail, cpu, now, raise_descriptor_limit};
use lastwords::{Builder, Capture, Command, Event, Outcome, Output, Reactor, Stream, Transport};
use std::fmt;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scene {
    /// One child, 64 KiB in a write
    OneLarge,
    /// One child, 4 KiB in a write
    OneSmall,
    /// 16 children, 64 KiB in a write
    SixteenLarge,
    /// 16 children, 4 KiB in a write
    SixteenSmall,
    /// From a quiet child's last act to its verdict
    Latency,
}

/// With which option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Way {
    /// As it is by default
    Pipe,
    /// A pipe of 256 KiB
    Pipe256k,
    /// A pipe of 1 MiB
    Pipe1m,
    /// A socket
    Socket,
    /// Eight reads in a turn
    Reads8,
    /// 256 reads in a turn
    Reads256,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

impl Way {
    fn capture(self) -> Capture {
        match self {
            Way::Pipe | Way::Reads8 | Way::Reads256 => Capture::default(),
            Way::Pipe256k => Capture::default().pipe(Some(256 << 10)),
            Way::Pipe1m => Capture::default().pipe(Some(1 << 20)),
            Way::Socket => Capture::default().transport(Transport::Socket),
        }
    }

    fn builder(self) -> Builder {
        let mut builder = Reactor::builder();
        match self {
            Way::Pipe | Way::Pipe256k | Way::Pipe1m | Way::Socket => {}
            Way::Reads8 => {
                builder.reads_per_turn(8);
            }
            Way::Reads256 => {
                builder.reads_per_turn(256);
            }
        }
        builder
    }
}

/// Options of a host, one by one.
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    options: Options<Scene, Way>,
}

const RATE: Measure = Measure::new("throughput", Unit::BytesPerNanosecond);
const CPU: Measure = Measure::new("cpu_per_byte", Unit::NanosecondsPerByte);
const LATENCY: Measure = Measure::new("latency", Unit::Nanoseconds);
/// Of the first child's stdout, where one was asked for.
const CAPACITY: Measure = Measure::new("capacity", Unit::Bytes);

fn main() -> Result<(), Fail> {
    let args = Args::parse();
    raise_descriptor_limit()?;
    let done = run(&args);
    unmake()?;
    done
}

fn run(args: &Args) -> Result<(), Fail> {
    let ways = args.options.peers(|_| true);
    let rounds = args.options.rounds(2, 11);
    let mut results = Results::new("options", &args.options)?;
    for scene in args.options.situations() {
        let n = match scene {
            Scene::Latency => args.options.n(20, 300),
            Scene::OneLarge | Scene::OneSmall | Scene::SixteenLarge | Scene::SixteenSmall => {
                args.options.n(32, 1024)
            }
        };
        let mut table = Table::new(scene.name(), title(scene, rounds, n), &ways);
        let mut reactors = ways
            .iter()
            .map(|way| Ok(way.builder().build()?))
            .collect::<Result<Vec<Reactor>, Fail>>()?;
        for number in 0..rounds {
            for place in 0..ways.len() {
                let at = (place + number) % ways.len();
                table.push(&ways[at], round(&mut reactors[at], ways[at], scene, n)?);
            }
        }
        results.table(&table, &columns(scene), &[Way::Pipe]);
        // Of the other scenes there is one number a round, and no distribution.
        if scene == Scene::Latency {
            results.plot(&table, LATENCY)?;
        }
    }
    results.write()
}

fn title(scene: Scene, rounds: usize, n: usize) -> String {
    match scene {
        Scene::OneLarge => format!("one child, 64 KiB in a write ({rounds} rounds of {n} MiB)"),
        Scene::OneSmall => format!("one child, 4 KiB in a write ({rounds} rounds of {n} MiB)"),
        Scene::SixteenLarge => {
            format!("16 children, 64 KiB in a write ({rounds} rounds of {n} MiB)")
        }
        Scene::SixteenSmall => {
            format!("16 children, 4 KiB in a write ({rounds} rounds of {n} MiB)")
        }
        Scene::Latency => {
            format!("from a quiet child's last act to its verdict ({rounds} rounds of {n})")
        }
    }
}

fn columns(scene: Scene) -> Vec<Column<Way>> {
    if scene == Scene::Latency {
        let at = |percent| Figure::Percentile(LATENCY, percent);
        return vec![
            Column::median("p50", at(50.0)),
            Column::quartiles("its quartiles", at(50.0)),
            Column::median("p99", at(99.0)),
            Column::ratio("p50 : pipe", Way::Pipe, at(50.0)),
        ];
    }
    vec![
        Column::median("throughput", Figure::Number(RATE)),
        Column::quartiles("its quartiles", Figure::Number(RATE)),
        Column::median("host CPU", Figure::Number(CPU)),
        Column::ratio("throughput : pipe", Way::Pipe, Figure::Number(RATE)),
        Column::ratio("CPU : pipe", Way::Pipe, Figure::Number(CPU)),
        Column::median("capacity had", Figure::Number(CAPACITY)),
    ]
}

fn round(reactor: &mut Reactor, way: Way, scene: Scene, n: usize) -> Result<Round, Fail> {
    match scene {
        Scene::OneLarge => bytes(reactor, way, 1, 64, n),
        Scene::OneSmall => bytes(reactor, way, 1, 4, n),
        Scene::SixteenLarge => bytes(reactor, way, 16, 64, n),
        Scene::SixteenSmall => bytes(reactor, way, 16, 4, n),
        Scene::Latency => latency(reactor, way, n),
    }
}

/// So many MiB in all, of so many children.
fn bytes(
    reactor: &mut Reactor,
    way: Way,
    children: usize,
    kib: usize,
    mib: usize,
) -> Result<Round, Fail> {
    let writes = (mib << 10) / kib / children;
    let wanted = (writes * kib) << 10;
    let mut command = Command::new("dd");
    command
        .arg("if=/dev/zero")
        .arg(format!("bs={kib}k"))
        .arg(format!("count={writes}"))
        .arg("status=none");
    command.stdout(way.capture()).stderr(Output::Null);
    let (before, began) = (cpu(), now());
    for _ in 0..children {
        reactor.start(&command)?;
    }
    let mut capacity = None;
    while let Some(event) = reactor.wait_event(None)? {
        if let Event::Closed { report, .. } = event {
            let stdout = report.stdout.ok_or("not captured")?;
            if report.outcome != Some(Outcome::Succeeded) || stdout.bytes != wanted as u64 {
                return Err(format!(
                    "{:?} after {} of {wanted} bytes",
                    report.outcome, stdout.bytes
                )
                .into());
            }
            capacity = stdout.capacity;
        }
    }
    let total = (wanted * children) as u64;
    let round = Round::new()
        .share(RATE, total, now() - began)
        .share(CPU, cpu() - before, total);
    Ok(match capacity {
        Some(capacity) => round.number(CAPACITY, f64::from(capacity)),
        None => round,
    })
}

/// So many, one after the other.
fn latency(reactor: &mut Reactor, way: Way, count: usize) -> Result<Round, Fail> {
    let mut command = Role::Quiet.own_command()?;
    command.stdout(way.capture()).stderr(way.capture());
    let mut samples = Vec::with_capacity(count);
    for _ in 0..count {
        let generation = reactor.start(&command)?;
        let mut at = None;
        while let Some(event) = reactor.wait_event(None)? {
            match event {
                Event::Drained { .. } => at = Some(now()),
                Event::Closed { .. } => {
                    let said = reactor
                        .take(generation, Stream::Stdout)
                        .ok_or("not captured")?
                        .to_vec();
                    let said = u64::from_ne_bytes(
                        said.try_into().map_err(|_| "it has said something else")?,
                    );
                    samples.push(at.ok_or("closed without a verdict")?.saturating_sub(said));
                }
                _ => {}
            }
        }
    }
    Round::new().samples(LATENCY, samples)
}
