//! What a spawn, an exit and a turn cost the host beside 10 children, and beside thousands.
//!
//! ```text
//! cargo bench -p lastwords-benches --bench scale                     # some minutes
//! cargo bench -p lastwords-benches --bench scale -- --small          # some seconds: does it run?
//! cargo bench -p lastwords-benches --bench scale -- --sizes 1000,6000 --peers lastwords --rounds 30 --json scale.json
//! ```
//!
//! Each peer has two processes at a time, one with the smallest number of idle children and one
//! with more, which take turns: a ratio is the median of the ratios within the rounds. What is told
//! is CPU time of the host, its system calls included:
//!
//! * a spawn: from the first start of a burst until all run, by their number (`--in-flight` of them
//!   on their way to exec at a time);
//! * an exit: all of a burst end at once; until every one is closed, by their number;
//! * a turn: one child writes a line each millisecond; the time until all are read, by their
//!   number.

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
use std::fmt;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Cost {
    Spawn,
    Exit,
    Turn,
}

impl Cost {
    const fn measure(self) -> Measure {
        match self {
            Cost::Spawn => Measure::new("cpu_per_spawn", Unit::Nanoseconds),
            Cost::Exit => Measure::new("cpu_per_exit", Unit::Nanoseconds),
            Cost::Turn => Measure::new("cpu_per_turn", Unit::Nanoseconds),
        }
    }
}

/// CPU time of the host for a spawn, an exit and a turn, beside few children and beside many.
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    options: Options<Cost, Kind>,
    /// Numbers of idle children, beside the smallest [default: 100,1000,6000; small: 100,400]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    sizes: Vec<usize>,
    /// The smallest number
    #[arg(long, value_name = "N", default_value_t = 10)]
    base: usize,
    /// How many children of a burst may be between clone and exec at a time, where starting does
    /// not wait for that
    #[arg(long, value_name = "N", default_value_t = 8)]
    in_flight: usize,
    #[command(flatten)]
    apart: Apart,
}

impl Args {
    fn sizes(&self) -> Vec<usize> {
        let mut sizes = self.sizes.clone();
        if sizes.is_empty() {
            sizes = self.options.size(vec![100, 400], vec![100, 1000, 6000]);
        }
        let most = room();
        if sizes.iter().any(|size| *size > most) {
            println!("* the descriptors allow {most} children at most");
        }
        sizes.iter_mut().for_each(|size| *size = most.min(*size));
        sizes
    }
}

/// A row: how many children there are beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Beside {
    peer: Kind,
    size: usize,
}

impl fmt::Display for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} beside {}", self.peer, self.size)
    }
}

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
    // Threads share nothing that could grow, and 12,000 of them are no peer.
    let peers = args
        .options
        .peers(|peer| peer != Kind::StdThreads && peer.is_present());
    let (costs, sizes) = (args.options.situations(), args.sizes());
    let mut results = Results::new("scale", &args.options)?;
    let mut lines = Vec::new();
    for size in &sizes {
        let title = format!(
            "{size} idle children, and {} ({} rounds)",
            args.base,
            args.options.rounds(2, 15)
        );
        let mut table = Table::new(size.to_string(), title, &[]);
        for peer in &peers {
            let began = now();
            measure(*peer, *size, args, &costs, &mut table)?;
            told(&format!("{peer} beside {size}"), began);
        }
        results.table(&table, &columns(&costs, args.base), &[]);
        for peer in &peers {
            let (few, many) = (
                Beside {
                    peer: *peer,
                    size: args.base,
                },
                Beside {
                    peer: *peer,
                    size: *size,
                },
            );
            for cost in &costs {
                let figure = Figure::Number(cost.measure());
                lines.push((
                    *peer,
                    *cost,
                    *size,
                    table.median(&few, figure),
                    table.median(&many, figure),
                ));
                // Only the largest size is aimed at.
                if *peer == Kind::Lastwords && sizes.last() == Some(size) {
                    let what = format!(
                        "L10, {} beside {size} to that beside {}",
                        cost.name(),
                        args.base
                    );
                    results.target(what, table.ratio(&many, &few, figure), Bound::AtMost(1.5));
                }
            }
        }
    }
    for cost in costs {
        let of = |peer: &Kind| {
            lines
                .iter()
                .filter(|(of, which, ..)| of == peer && *which == cost)
                .collect::<Vec<_>>()
        };
        let line = |peer: &Kind| {
            let rows = of(peer);
            #[expect(clippy::cast_precision_loss, reason = "a number of children")]
            let many = rows
                .iter()
                .filter_map(|(_, _, size, _, many)| Some((*size as f64, (*many)?)));
            #[expect(clippy::cast_precision_loss, reason = "a number of children")]
            let few = rows
                .first()
                .and_then(|(_, _, _, few, _)| Some((args.base as f64, (*few)?)));
            (peer.to_string(), few.into_iter().chain(many).collect())
        };
        let drawn: Vec<_> = peers.iter().map(line).collect();
        results.plot_sizes(
            &cost.name(),
            &format!("CPU of a {} beside so many children", cost.name()),
            &drawn,
            Unit::Nanoseconds,
        )?;
    }
    results.write()
}

/// The rounds of one peer beside few and beside many.
fn measure(
    peer: Kind,
    size: usize,
    args: &Args,
    costs: &[Cost],
    table: &mut Table<Beside>,
) -> Result<(), Fail> {
    let mut beside = Vec::new();
    for size in [args.base, size] {
        let mut process = Process::new(peer)?;
        process.ask(Order::Grow {
            count: size,
            wrote: false,
        })?;
        beside.push((Beside { peer, size }, process));
    }
    for number in 0..=args.options.rounds(2, 15) {
        for place in 0..2 {
            let (row, process) = &mut beside[(place + number) % 2];
            let round = round(process, args, costs)?;
            // The first one warms the caches.
            if number > 0 {
                table.push(row, round);
            }
        }
    }
    for (_, process) in beside {
        process.end()?;
    }
    Ok(())
}

fn round(process: &mut Process, args: &Args, costs: &[Cost]) -> Result<Round, Fail> {
    let mut round = Round::new();
    if costs.contains(&Cost::Spawn) || costs.contains(&Cost::Exit) {
        let count = args.options.n(16, 64);
        let found = process.ask(Order::Burst {
            count,
            flight: args.in_flight,
        })?;
        round = round
            .share(Cost::Spawn.measure(), found.cpu, count as u64)
            .share(Cost::Exit.measure(), found.exits, count as u64);
    }
    if costs.contains(&Cost::Turn) {
        let lines = args.options.size(30, 200);
        let found = process.ask(Order::Ticks { lines })?;
        round = round.share(Cost::Turn.measure(), found.cpu, lines);
    }
    Ok(round)
}

fn columns(costs: &[Cost], base: usize) -> Vec<Column<Beside>> {
    let columns = |cost: &Cost| {
        let figure = Figure::Number(cost.measure());
        let times = move |table: &Table<Beside>, row: &Beside| {
            let ratio = table.ratio(
                row,
                &Beside {
                    peer: row.peer,
                    size: base,
                },
                figure,
            );
            ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.3}"))
        };
        [
            Column::median(format!("CPU of a {}", cost.name()), figure),
            Column::new(format!(": beside {base}"), times),
        ]
    };
    costs.iter().flat_map(columns).collect()
}
