//! What children cost that do nothing: resident memory of the host, its threads, its wake-ups.
//!
//! ```text
//! cargo bench -p lastwords-benches --bench idle                      # about eight minutes
//! cargo bench -p lastwords-benches --bench idle -- --small           # some seconds: does it run?
//! cargo bench -p lastwords-benches --bench idle -- --only wrote --peers lastwords,raw-epoll --sizes 500,1000,2000 --json idle.json
//! ```
//!
//! Every peer has a process of its own, a new one in each round, in which nothing else has been
//! done before. The memory of a child is the slope from the smallest size to the largest, resident
//! memory at both: the loop itself is not in it, nor the text of the command, which all children
//! share. A wake-up is a sleep of any thread that ends within a second in which nothing happens.

#[expect(dead_code, reason = "shared with benches that measure other things")]
mod common;

use clap::Parser;
use common::apart::{Apart, Order, Process, room, told};
use common::child::unmake;
use common::crowd::Kind;
use common::figures::{Column, Figure, Measure, Round, Table, Unit};
use common::options::{Choice, Options};
use common::results::{Bound, Results};
use common::{Fail, now};

/// What the children have done before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Scenario {
    /// Children that write nothing
    Silent,
    /// Written a line to stdout, and one to stderr
    Wrote,
}

/// Children that do nothing: memory, threads and wake-ups of the host.
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    options: Options<Scenario, Kind>,
    /// Numbers of children, rising [default: 1000,2000,4000; small: 50,100,200]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    sizes: Vec<usize>,
    #[command(flatten)]
    apart: Apart,
}

impl Args {
    fn sizes(&self) -> Result<Vec<usize>, Fail> {
        let mut sizes = self.sizes.clone();
        if sizes.is_empty() {
            sizes = self
                .options
                .size(vec![50, 100, 200], vec![1000, 2000, 4000]);
        }
        sizes.retain(|size| *size <= room());
        if sizes.len() < 2 || !sizes.is_sorted_by(|a, b| a < b) {
            return Err(format!(
                "two sizes are needed at least, rising, of no more than {} (the descriptors)",
                room()
            )
            .into());
        }
        Ok(sizes)
    }
}

/// Resident memory of one more child.
const CHILD: Measure = Measure::new("bytes_per_child", Unit::Bytes);
/// Resident memory with the middle number of children.
const RESIDENT: Measure = Measure::new("resident", Unit::Bytes);
/// Resident memory before the first child.
const EMPTY: Measure = Measure::new("resident_without_children", Unit::Bytes);
const THREADS: Measure = Measure::new("threads", Unit::Count);
const WAKE_UPS: Measure = Measure::new("wake_ups", Unit::Count);
/// CPU time in the second in which nothing happens.
const CPU: Measure = Measure::new("cpu_per_second", Unit::Nanoseconds);

fn main() -> Result<(), Fail> {
    let args = Args::parse();
    if args.apart.serve()? {
        return Ok(());
    }
    let done = run(&args);
    unmake()?;
    done
}

fn run(args: &Args) -> Result<(), Fail> {
    let peers = args.options.peers(Kind::is_present);
    let (sizes, rounds) = (args.sizes()?, args.options.rounds(1, 3));
    let middle = sizes[sizes.len() / 2];
    let mut results = Results::new("idle", &args.options)?;
    let mut silent = None;
    for scenario in args.options.situations() {
        let what = match scenario {
            Scenario::Silent => "have written nothing",
            Scenario::Wrote => "have written a line to both streams",
        };
        let title = format!(
            "{}: {sizes:?} children that {what} ({rounds} rounds)",
            scenario.name()
        );
        let mut table = Table::new(scenario.name(), title, &peers);
        for number in 0..rounds {
            for place in 0..peers.len() {
                let (peer, began) = (peers[(place + number) % peers.len()], now());
                table.push(
                    &peer,
                    round(peer, scenario, &sizes, args.options.size(200, 1000))?,
                );
                told(&format!("{peer}, {}", scenario.name()), began);
            }
        }
        let columns = [
            Column::median("bytes per child", Figure::Number(CHILD)),
            Column::median(format!("resident with {middle}"), Figure::Number(RESIDENT)),
            Column::median("resident with none", Figure::Number(EMPTY)),
            Column::median("threads", Figure::Number(THREADS)),
            Column::median("wake-ups", Figure::Number(WAKE_UPS)),
            Column::median("CPU in a second", Figure::Number(CPU)),
            Column::ratio("bytes : raw-epoll", Kind::RawEpoll, Figure::Number(CHILD)),
        ];
        results.table(&table, &columns, &[Kind::RawEpoll, Kind::TokioCt]);
        targets(scenario, &table, silent, &mut results);
        if scenario == Scenario::Silent {
            silent = table.median(&Kind::Lastwords, Figure::Number(CHILD));
        }
    }
    results.write()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "far more digits than a measurement has"
)]
fn round(peer: Kind, scenario: Scenario, sizes: &[usize], ms: u64) -> Result<Round, Fail> {
    let mut process = Process::new(peer)?;
    // Whatever is made by the first children only.
    process.ask(Order::Burst {
        count: 20,
        flight: 8,
    })?;
    let empty = process.ask(Order::Look { ms: 1 })?;
    let mut found = Vec::new();
    let mut there = 0;
    for size in sizes {
        process.ask(Order::Grow {
            count: size - there,
            wrote: scenario == Scenario::Wrote,
        })?;
        there = *size;
        found.push(process.ask(Order::Look { ms })?);
    }
    process.end()?;
    let middle = found[sizes.len() / 2];
    let (first, last) = (
        found[0].resident as f64,
        found[sizes.len() - 1].resident as f64,
    );
    let slope = (last - first) / (there - sizes[0]) as f64;
    Ok(Round::new()
        .number(CHILD, slope)
        .share(RESIDENT, middle.resident, 1)
        .share(EMPTY, empty.resident, 1)
        .share(THREADS, middle.threads, 1)
        .share(WAKE_UPS, middle.sleeps, 1)
        // Of the second that a full run looks for.
        .share(CPU, middle.cpu * 1000, ms))
}

/// What is aimed at, and whether it was reached in this run. `silent` is what the one of that name
/// has found before.
fn targets(scenario: Scenario, table: &Table<Kind>, silent: Option<f64>, results: &mut Results) {
    let median = |measure| table.median(&Kind::Lastwords, Figure::Number(measure));
    match scenario {
        Scenario::Silent => results.target(
            "L7, bytes per idle child",
            median(CHILD),
            Bound::AtMost(512.0),
        ),
        Scenario::Wrote => {
            let more = median(CHILD)
                .zip(silent)
                .map(|(wrote, silent)| (wrote - silent) / 2.0);
            results.target(
                "L7, bytes per stream with a line",
                more,
                Bound::AtMost(4096.0),
            );
        }
    }
    results.target("L7, threads", median(THREADS), Bound::AtMost(1.0));
    results.target("L7, wake-ups", median(WAKE_UPS), Bound::AtMost(0.0));
}
