//! How many children are started and closed in a second, and how long the caller stands still for a
//! start.
//!
//! ```text
//! cargo bench -p lastwords-benches --bench spawn                     # some minutes
//! cargo bench -p lastwords-benches --bench spawn -- --small          # about ten seconds: does it run?
//! cargo bench -p lastwords-benches --bench spawn -- --only small --children sh --rounds 20 --n 200 --json spawn.json
//! strace -f -o calls target/release/deps/spawn-* --strace-one 110
//! ```
//!
//! A child says nothing; it is closed when both pipes are at their end and its status is collected.
//! Every peer is measured in every round, one after the other, each round beginning with another
//! one. What is printed is the median over the rounds of each round's figure, and a ratio is the
//! median of the ratios within the rounds. `--host-mib N` is the memory that the second host has
//! touched. The third has many descriptors, and has made children while it came by them
//! (`--sudden`: none, since there were few).

#[expect(dead_code, reason = "shared with benches that measure other things")]
mod common;
#[path = "spawn/peers.rs"]
mod peers;
#[path = "spawn/raw.rs"]
mod raw;
/// The instruction that makes a system call, and a clone whose child does not return: as the
/// library has them.
#[expect(
    dead_code,
    unused_imports,
    reason = "clone(2) is not measured, and its tests are not run here"
)]
#[path = "../src/kernel/linux/spawn/syscall.rs"]
mod syscall;
/// What `syscall` needs of the library.
mod types {
    pub(crate) use lastwords::Errno;
}

use clap::Parser;
use common::child::{program, unmake};
use common::figures::{Column, Figure, Measure, Round, Table, Unit, times};
use common::options::{Choice, Options};
use common::results::{Bound, Results};
use common::{Fail, cpu, now, raise_descriptor_limit};
use peers::{Line, Peer, Starter};
use std::fs::File;
use std::hint::black_box;
use std::time::Duration;

/// Descriptors of the host that has many, if its limit allows.
const DESCRIPTORS: usize = 18_000;
/// Left free below the limit.
const SPARE: usize = 400;
/// A host's descriptors while it grows: its table has 512 places then.
const GROWN: usize = 300;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Host {
    /// As it is
    Small,
    /// With much memory that it has touched
    Memory,
    /// With many open descriptors
    Descriptors,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Program {
    /// `/bin/sh -c :`
    Sh,
    /// The freestanding one
    Tiny,
}

impl Program {
    fn line(self) -> Result<Line, Fail> {
        Ok(match self {
            Program::Sh => ["/bin/sh", "-c", ":"].map(Into::into).to_vec(),
            Program::Tiny => vec![program()?.into(), "end".into(), "0".into()],
        })
    }
}

/// Children started and closed in a second, and how long the caller stands still for a start.
///
/// The situations are hosts. Every peer is measured in every round, next to the others.
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    options: Options<Host, Peer>,
    /// What is started [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    children: Vec<Program>,
    /// How many children at a time
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_values_t = [1, 8])]
    in_flight: Vec<usize>,
    /// Memory that the host with much of it has touched [default: 4096, small: 64]
    #[arg(long, value_name = "MIB")]
    host_mib: Option<usize>,
    /// The host with many descriptors has made no children since it had few
    #[arg(long)]
    sudden: bool,
    /// Starts and closes so many by the first peer, and does nothing else: to be looked at with
    /// strace
    #[arg(long, value_name = "N")]
    strace_one: Option<usize>,
}

impl Args {
    fn rounds(&self) -> usize {
        self.options.rounds(2, 10)
    }

    fn count(&self) -> usize {
        self.options.n(16, 120)
    }

    fn programs(&self) -> Vec<Program> {
        if self.children.is_empty() {
            vec![Program::Sh, Program::Tiny]
        } else {
            self.children.clone()
        }
    }
}

/// How long a start takes.
const STILL: Measure = Measure::new("still", Unit::Nanoseconds);
/// From the first start to the last close, by the number of children.
const WALL: Measure = Measure::new("wall_per_child", Unit::Nanoseconds);
/// The host's CPU time, the same way.
const CPU: Measure = Measure::new("cpu_per_child", Unit::Nanoseconds);

const fn still(percent: f64) -> Figure {
    Figure::Percentile(STILL, percent)
}

/// Starts and closes so many, so many at a time.
fn round(starter: &mut dyn Starter, count: usize, flight: usize) -> Result<Round, Fail> {
    let mut still = Vec::with_capacity(count);
    let (cpu_before, before, mut live) = (cpu(), now(), 0);
    while still.len() < count || live > 0 {
        while live < flight && still.len() < count {
            let began = now();
            starter.start()?;
            still.push(now() - began);
            live += 1;
        }
        live -= starter.settle()?;
    }
    let (wall, cpu) = (now() - before, cpu() - cpu_before);
    Ok(Round::new()
        .samples(STILL, still)?
        .share(WALL, wall, count as u64)
        .share(CPU, cpu, count as u64))
}

fn columns() -> Vec<Column<Peer>> {
    // A rate is the inverse of the time.
    let rate = |head: &str, to: Peer| {
        Column::new(head, move |table: &Table<Peer>, peer| {
            times(table.ratio(&to, peer, Figure::Number(WALL)))
        })
    };
    let per_second = |table: &Table<Peer>, peer: &Peer| {
        table
            .median(peer, Figure::Number(WALL))
            .map_or_else(|| "-".into(), |ns| format!("{:.0}", 1e9 / ns))
    };
    vec![
        Column::median("stands still p50", still(50.0)),
        Column::median("p99", still(99.0)),
        Column::new("children/s", per_second),
        Column::median("host CPU each", Figure::Number(CPU)),
        rate("rate : raw", Peer::RawClone3),
        rate(": std", Peer::Std),
        rate(": tokio-ct", Peer::TokioCt),
        Column::ratio("CPU : raw", Peer::RawClone3, Figure::Number(CPU)),
    ]
}

/// What is aimed at, and whether it was reached in this run.
fn targets(
    program: Program,
    host: Host,
    flight: usize,
    table: &Table<Peer>,
    results: &mut Results,
) {
    let us = |percent| {
        table
            .median(&Peer::Lastwords, still(percent))
            .map(|ns| ns / 1e3)
    };
    let rate = |to| table.ratio(&to, &Peer::Lastwords, Figure::Number(WALL));
    if program == Program::Sh && flight == 1 {
        results.target(
            "L6, stands still for sh, p50 in µs",
            us(50.0),
            Bound::AtMost(25.0),
        );
    }
    results.target(
        "L6, rate to the raw loop",
        rate(Peer::RawClone3),
        Bound::AtLeast(0.85),
    );
    let cpu = table.ratio(&Peer::Lastwords, &Peer::RawClone3, Figure::Number(CPU));
    results.target("L6, CPU to the raw loop", cpu, Bound::AtMost(1.15));
    if host == Host::Small && program == Program::Tiny {
        match flight {
            1 => results.target(
                "L6, rate to std, one at a time",
                rate(Peer::Std),
                Bound::AtLeast(1.25),
            ),
            8 => results.target(
                "L6, rate to std, 8 in flight",
                rate(Peer::Std),
                Bound::AtLeast(2.0),
            ),
            _ => {}
        }
    }
}

/// A peer with its loop, ready.
type Ready = (Peer, Box<dyn Starter>);

fn measure(
    mut table: Table<Peer>,
    ready: &mut [Ready],
    args: &Args,
    flight: usize,
) -> Result<Table<Peer>, Fail> {
    let peers = ready.len();
    for number in 0..args.rounds() {
        for place in 0..peers {
            let (peer, starter) = &mut ready[(place + number) % peers];
            let done = round(starter.as_mut(), args.count(), flight)
                .map_err(|error| format!("{peer}: {error}"))?;
            table.push(peer, done);
        }
    }
    Ok(table)
}

/// What makes a host large; dropped, it is small again.
#[derive(Default)]
struct Ballast {
    memory: Vec<u8>,
    descriptors: Vec<File>,
}

impl Ballast {
    fn open(&mut self, count: usize) -> Result<(), Fail> {
        while self.descriptors.len() < count {
            let next = match self.descriptors.first() {
                Some(file) => file.try_clone()?,
                None => File::open("/dev/null")?,
            };
            self.descriptors.push(next);
        }
        Ok(())
    }

    fn new(host: Host, ready: &mut [Ready], args: &Args) -> Result<(Ballast, String), Fail> {
        let mut ballast = Ballast::default();
        let title = match host {
            Host::Small => "a small host".to_owned(),
            Host::Memory => {
                let mib = args.host_mib.unwrap_or(args.options.size(64, 4096));
                ballast.memory = black_box(vec![1; mib << 20]);
                format!("a host with {mib} MiB of touched memory")
            }
            Host::Descriptors => {
                let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
                let limit = limit
                    .and_then(|limit| usize::try_from(limit).ok())
                    .unwrap_or(usize::MAX);
                let count = DESCRIPTORS.min(limit.saturating_sub(SPARE));
                if !args.sudden {
                    ballast.open(GROWN.min(count))?;
                    // The size of the table is looked up from time to time only.
                    std::thread::sleep(Duration::from_millis(30));
                    for (_, starter) in ready.iter_mut() {
                        round(starter.as_mut(), 1, 1)?;
                    }
                }
                ballast.open(count)?;
                std::thread::sleep(Duration::from_millis(30));
                format!("a host with {count} open descriptors")
            }
        };
        Ok((ballast, title))
    }
}

fn main() -> Result<(), Fail> {
    let args = Args::parse();
    raise_descriptor_limit()?;
    if let Some(count) = args.strace_one {
        let peers = args.options.peers(|_| true);
        let peer = peers.first().ok_or("no peer")?;
        round(peer.starter(&Program::Sh.line()?)?.as_mut(), count, 1)?;
        return Ok(());
    }
    let done = run(&args);
    unmake()?;
    done
}

fn run(args: &Args) -> Result<(), Fail> {
    let peers = args.options.peers(|_| true);
    let mut results = Results::new("spawn", &args.options)?;
    for program in args.programs() {
        let line = program.line()?;
        let ready: Result<Vec<Ready>, Fail> = peers
            .iter()
            .map(|peer| Ok((*peer, peer.starter(&line)?)))
            .collect();
        let mut ready = ready?;
        for host in args.options.situations() {
            let (ballast, what) = Ballast::new(host, &mut ready, args)?;
            for flight in &args.in_flight {
                let (program_name, rounds, count) = (program.name(), args.rounds(), args.count());
                let title = format!(
                    "{program_name} in {what}, {flight} in flight ({rounds} rounds of {count})"
                );
                let table = Table::new(
                    format!("{program_name}-{}-{flight}", host.name()),
                    title,
                    &peers,
                );
                let table = measure(table, &mut ready, args, *flight)?;
                results.table(
                    &table,
                    &columns(),
                    &[Peer::RawClone3, Peer::Std, Peer::TokioCt],
                );
                results.plot(&table, STILL)?;
                targets(program, host, *flight, &table, &mut results);
            }
            black_box(&ballast.memory);
        }
    }
    results.write()
}
