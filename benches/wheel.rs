//! The timer wheel beside what one would take from the standard library: a heap with lazy deletion,
//! and a sorted map.
//!
//! ```text
//! cargo bench -p lastwords-benches --bench wheel                     # about two minutes
//! cargo bench -p lastwords-benches --bench wheel -- --small          # does it run?
//! cargo bench -p lastwords-benches --bench wheel -- --n 1000000 --rounds 30 --json wheel.json
//! ```
//!
//! Every peer does the same with the same deadlines: it arms so many timers, takes one out and arms
//! it again for another time, tells the next deadline, and lets all of them expire. The peers are
//! taken in turn in each round; times are CPU times, and those of one timer. What is told of a
//! ratio is the median of the ratios within the rounds.

#[expect(dead_code, reason = "shared with benches that measure other things")]
mod common;
#[path = "wheel/peers.rs"]
mod peers;

use clap::{Parser, ValueEnum};
use common::figures::{Column, Figure, Measure, Round, Table, Unit};
use common::options::{Choice, Options};
use common::results::{Bound, Results};
use common::{Fail, thread_cpu};
use lastwords::sim::Rng;
use peers::{Heap, Map, Timers, Wheeled};
use std::hint::black_box;

/// What is done with the timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Act {
    /// Armed for the first time
    Arm,
    /// Cancelled and armed again, in the order in which they were armed
    InTurn,
    /// The same in random order
    AtRandom,
    /// The next deadline is asked for, 64 times after each re-arming
    Next,
    /// All expire
    Expire,
}

impl Act {
    const ALL: [Act; 5] = [Act::Arm, Act::InTurn, Act::AtRandom, Act::Next, Act::Expire];

    const fn measure(self) -> Measure {
        let name = match self {
            Act::Arm => "arm",
            Act::InTurn => "cancel_and_arm_in_turn",
            Act::AtRandom => "cancel_and_arm_at_random",
            Act::Next => "next_deadline",
            Act::Expire => "expire",
        };
        Measure::new(name, Unit::Nanoseconds)
    }
}

/// Armed, and expired: a whole life.
const LIFE: Measure = Measure::new("arm_and_expire", Unit::Nanoseconds);

/// Who keeps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Peer {
    /// The wheel
    Wheel,
    /// std's BinaryHeap with lazy deletion
    Heap,
    /// std's BTreeMap
    Map,
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}

/// The timer wheel, a heap and a sorted map.
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    options: Options<Act, Peer>,
}

/// Deadlines lie between one tick and a minute ahead: as a supervisor's do, but for run limits.
const AHEAD: u64 = 60_000_000_000;
const TICK: u64 = 1 << 20;

/// A random deadline.
fn ahead(rng: &mut Rng) -> u64 {
    TICK + rng.below(AHEAD)
}

fn main() -> Result<(), Fail> {
    let args = Args::parse();
    let options = &args.options;
    let peers = options.peers(|_| true);
    let mut results = Results::new("wheel", options)?;
    let rounds = options.rounds(1, 15);
    let sizes = match options.n {
        Some(size) => vec![size],
        None => options.size(vec![1_000, 20_000], vec![1_000, 20_000, 100_000, 1_000_000]),
    };
    let mut lines = Vec::new();
    for size in sizes {
        let mut table = Table::new(
            format!("timers-{size}"),
            format!("{size} timers ({rounds} rounds)"),
            &peers,
        );
        for round in 0..rounds {
            for place in 0..peers.len() {
                let peer = peers[(place + round) % peers.len()];
                let seed = 0x9e37_79b9_7f4a_7c15 ^ (round as u64 + 1);
                table.push(
                    &peer,
                    match peer {
                        Peer::Wheel => measure::<Wheeled>(size, seed),
                        Peer::Heap => measure::<Heap>(size, seed),
                        Peer::Map => measure::<Map>(size, seed),
                    },
                );
            }
        }
        results.table(&table, &columns(), &[Peer::Heap, Peer::Map]);
        targets(size, &table, &mut results);
        #[expect(clippy::cast_precision_loss, reason = "a size")]
        lines.extend(peers.iter().map(|peer| {
            (
                *peer,
                size as f64,
                table.median(peer, Figure::Number(Act::AtRandom.measure())),
            )
        }));
    }
    let line = |peer: &Peer| {
        let points = lines
            .iter()
            .filter(|(of, ..)| of == peer)
            .filter_map(|(_, size, time)| Some((*size, (*time)?)));
        (peer.to_string(), points.collect())
    };
    let all: Vec<_> = peers.iter().map(line).collect();
    results.plot_sizes(
        "at-random",
        "cancel and arm at random, over the number of timers",
        &all,
        Unit::Nanoseconds,
    )?;
    results.write()
}

/// All acts of one peer.
fn measure<T: Timers>(size: usize, seed: u64) -> Round {
    let mut rng = Rng::new(seed);
    let first: Vec<u64> = (0..size).map(|_| ahead(&mut rng)).collect();
    // As many as take a measurable time.
    let ahead: Vec<u64> = (0..size.clamp(20_000, 200_000))
        .map(|_| ahead(&mut rng))
        .collect();
    let mut timers = T::with_capacity(size);
    let mut ids = Vec::with_capacity(size);
    let arm = timed(size, || {
        ids.extend(first.iter().map(|at| timers.arm(*at, 0)))
    });
    let in_turn = timed(ahead.len(), || rearm(&mut timers, &mut ids, &ahead));
    rng.shuffle(&mut ids);
    let at_random = timed(ahead.len(), || rearm(&mut timers, &mut ids, &ahead));
    let few = &ahead[..ahead.len() / ASKED];
    let next = timed(few.len() * ASKED, || next(&mut timers, &mut ids, few));
    let expire = timed(size, || expire(&mut timers));
    let times = [arm, in_turn, at_random, next, expire];
    let round = Act::ALL
        .into_iter()
        .zip(times)
        .fold(Round::new(), |round, (act, time)| {
            round.number(act.measure(), time)
        });
    round.number(LIFE, arm + expire)
}

/// CPU time of each.
fn timed(count: usize, act: impl FnOnce()) -> f64 {
    let before = thread_cpu();
    act();
    common::figures::share(thread_cpu() - before, count as u64)
}

fn rearm<T: Timers>(timers: &mut T, ids: &mut [T::Id], ahead: &[u64]) {
    let mut place = 0;
    for at in ahead {
        timers.cancel(ids[place]);
        ids[place] = timers.arm(*at, 0);
        place = if place + 1 == ids.len() { 0 } else { place + 1 };
    }
}

const ASKED: usize = 64;

fn next<T: Timers>(timers: &mut T, ids: &mut [T::Id], ahead: &[u64]) {
    for (place, at) in ahead.iter().enumerate() {
        let place = place % ids.len();
        timers.cancel(ids[place]);
        ids[place] = timers.arm(*at, 0);
        for _ in 0..ASKED {
            black_box(black_box(&mut *timers).next());
        }
    }
}

/// As a loop does: it sleeps until the next deadline (a tick at least), then takes what is due.
fn expire<T: Timers>(timers: &mut T) {
    let mut now = 0;
    while let Some(next) = timers.next() {
        now = next.max(now).next_multiple_of(TICK);
        while let Some(word) = timers.expire(now) {
            black_box(word);
        }
    }
}

fn columns() -> Vec<Column<Peer>> {
    let each = Act::ALL.map(|act| {
        Column::median(
            act.measure().name.replace('_', " "),
            Figure::Number(act.measure()),
        )
    });
    let mut columns: Vec<_> = each.into();
    columns.push(Column::ratio(
        "at random : heap",
        Peer::Heap,
        Figure::Number(Act::AtRandom.measure()),
    ));
    columns.push(Column::ratio(
        ": map",
        Peer::Map,
        Figure::Number(Act::AtRandom.measure()),
    ));
    columns.push(Column::ratio(
        "arm and expire : heap",
        Peer::Heap,
        Figure::Number(LIFE),
    ));
    columns.push(Column::ratio(": map", Peer::Map, Figure::Number(LIFE)));
    columns
}

/// What is aimed at, and whether it was reached in this run.
fn targets(size: usize, table: &Table<Peer>, results: &mut Results) {
    let acts = [Act::InTurn.measure(), Act::AtRandom.measure(), LIFE];
    for of in acts {
        let ratio = |to| table.ratio(&Peer::Wheel, &to, Figure::Number(of));
        if size <= 20_000 {
            results.target(
                format!("L9, {} to the heap", of.name),
                ratio(Peer::Heap),
                Bound::AtMost(1.0),
            );
        }
        results.target(
            format!("L9, {} to BTreeMap", of.name),
            ratio(Peer::Map),
            Bound::AtMost(1.0),
        );
    }
    if size >= 1_000_000 {
        for act in [Act::InTurn, Act::AtRandom] {
            let found = table.median(&Peer::Wheel, Figure::Number(act.measure()));
            results.target(
                format!("L9, {} in ns", act.measure().name),
                found,
                Bound::AtMost(50.0),
            );
        }
    }
}
