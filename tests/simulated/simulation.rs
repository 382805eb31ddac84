//! Random worlds on the simulated kernel: children that fork, hold pipes, ignore signals, hang and
//! escape; hosts that stop, stall and let their output wait; a kernel whose notices are late,
//! spurious and merged. What must hold in every one of them is checked by `WorldOracle`. A failure
//! names its seed: `one_world(SEED)` plays it again.

mod faults;
mod scripts;

use faults::{Met, Plan};
use lastwords::__internals::kernel::Orphans;
use lastwords::__internals::testing::oracle::{Clarity, Conditions, Pace, Started, WorldOracle};
use lastwords::sim::{Ns, Rng, Sim};
use lastwords::{Command, Event, Generation, Line, Reactor, Signal};
use scripts::{calm, chance, command, options, stop_policy};
use std::fmt::Write;
use std::time::Duration;

/// Worlds in one run of the test; `LASTWORDS_WORLDS=1000000` for more of them, by hand and with
/// `--release`.
const WORLDS: u64 = 3_000;

/// Plays a world to its end; what happened, in words.
fn one_world(seed: u64) -> String {
    one_world_with(seed, |_| ()).0
}

/// The same, with every command changed before it is started; and the faults that were met.
fn one_world_with(seed: u64, change: impl Fn(&mut Command)) -> (String, Met) {
    let mut rng = Rng::new(seed ^ 0x05ee_d000);
    let is_calm = chance(&mut rng, 30);
    let options = if is_calm {
        calm(&mut rng, seed)
    } else {
        options(&mut rng, seed)
    };
    let mut plan = if is_calm {
        Plan::default()
    } else {
        Plan::new(&mut rng)
    };
    let mut reactor = Reactor::simulated(options);
    let is_faulty =
        options.fault_rates.not_yet > 0 || options.fault_rates.incomplete > 0 || plan.is_any();
    let mut oracle = WorldOracle::new(Conditions {
        run: format!("seed {seed}"),
        clarity: if is_faulty {
            Clarity::Faulty
        } else {
            Clarity::Clear
        },
        pace: match options.call_cost {
            Ns::ZERO => Pace::Instant,
            _ if is_calm => Pace::Prompt,
            _ => Pace::Irregular,
        },
        drain_bounds: None,
    });
    let mut transcript = String::new();
    // Where all orphans belong to the loop, they belong to its one command.
    let mut to_start = if options.orphans == Orphans::Adopt {
        1
    } else {
        1 + rng.below(6)
    };
    let lazy = !is_calm && chance(&mut rng, 30);
    let mut turns = 0;
    while to_start > 0 || reactor.is_busy() {
        turns += 1;
        assert!(turns < 200_000, "seed {seed}: no end\n{}", transcript);
        plan.inject(&mut rng, reactor.sim());
        if to_start > 0 && chance(&mut rng, 50) {
            to_start -= 1;
            let (script, mut command) = command(&mut rng, plan.wants());
            change(&mut command);
            match reactor.start(&command) {
                Ok(generation) => {
                    let started = Started {
                        script,
                        exit_code: None,
                    };
                    oracle.started(&mut reactor, generation, started);
                }
                Err(error) => {
                    assert!(plan.refuses_spawns(), "seed {seed}: {script:?}: {error}");
                    continue;
                }
            }
        }
        if !is_calm {
            interfere(&mut rng, &mut reactor, &oracle);
        }
        if plan.signals_leaders() && chance(&mut rng, 10) {
            let first = oracle.generations().next();
            first.map(|one| reactor.signal_leader(one, Signal::CONT));
        }
        let timeout = rng.pick(&[Some(Duration::ZERO), Some(Duration::from_millis(20)), None]);
        // Nothing to wait for: only a host that has something to start has not come to the end.
        let timeout = if to_start > 0 {
            timeout.or(Some(Duration::ZERO))
        } else {
            timeout
        };
        if let Err(error) = reactor.turn(timeout) {
            assert!(
                faults::was_ended(&plan, &mut reactor),
                "seed {seed}: {error}\n{}",
                transcript
            );
            return (transcript, reactor.sim().faults_met().clone());
        }
        let most = if lazy { rng.below(3) } else { u64::MAX };
        oracle.take_some_events(&mut reactor, most, |now, event| {
            write_event(&mut transcript, now, event);
        });
    }
    oracle.check_all_closed(&mut reactor);
    (transcript, reactor.sim().faults_met().clone())
}

/// One line of a transcript. Of output, without the time at which it was read: that is told from
/// the host's own clock.
fn write_event(transcript: &mut String, now: Ns, event: &Event<'_>) {
    let written = match event {
        Event::Output {
            generation,
            stream,
            bytes,
            late,
            ..
        } => writeln!(
            transcript,
            "{} {generation} {stream} {} {late}",
            now.0,
            bytes.len()
        ),
        _ => writeln!(transcript, "{} {event:?}", now.0),
    };
    written.expect("a string takes everything");
}

/// What hosts and machines do in between.
fn interfere(rng: &mut Rng, reactor: &mut Reactor<Sim>, oracle: &WorldOracle) {
    if !chance(rng, 5) {
        return;
    }
    let generations: Vec<Generation> = oracle.generations().collect();
    if generations.is_empty() {
        return;
    }
    let one = rng.pick(&generations);
    match rng.below(10) {
        0 => {
            let _ = reactor.stop(one, Some(stop_policy(rng)));
        }
        1 => {
            let _ = reactor.kill(one);
        }
        2 => reactor.stop_all(None),
        3 => {
            let _ = reactor.signal(one, rng.pick(&[Signal::HUP, Signal::CONT]));
        }
        8 => {
            let _ = reactor.signal_leader(one, rng.pick(&[Signal::USR1, Signal::CONT]));
        }
        4 => {
            let pid = oracle.leader(one);
            reactor.sim().world_mut().steal(pid);
        }
        // A loaded machine.
        _ => faults::stall(rng, reactor.sim()),
    }
}

#[test]
fn what_must_hold_holds_in_every_world() {
    let worlds = std::env::var("LASTWORDS_WORLDS")
        .ok()
        .map_or(WORLDS, |n| n.parse().expect("LASTWORDS_WORLDS is a number"));
    let mut met = Met::new();
    for seed in 0..worlds {
        faults::add(&mut met, &one_world_with(seed, |_| ()).1);
    }
    let missing = faults::table(&met);
    println!("{worlds} worlds, {} faults met", met.values().sum::<u64>());
    assert!(
        worlds < WORLDS || missing.is_empty(),
        "never met: {missing:?}"
    );
}

/// SPEC 5.4: the last words as they arrive, and those made when they are asked for, are the same.
#[test]
fn a_line_function_that_keeps_everything_changes_no_world() {
    let with = |seed, what: Line| {
        one_world_with(seed, |command| {
            let what = what.clone();
            command.line_function(move |_| what.clone());
        })
        .0
    };
    let mut with_words = 0;
    for seed in 0..WORLDS / 12 {
        let without = one_world(seed);
        assert_eq!(with(seed, Line::Keep), without, "seed {seed}");
        with_words += u64::from(with(seed, Line::Drop) != without);
    }
    assert!(
        with_words > WORLDS / 120,
        "there are last words in {with_words} worlds"
    );
}

#[test]
fn the_same_seed_is_the_same_world() {
    let mut told = 0;
    for seed in 0..60 {
        let story = one_world(seed);
        told += u64::from(!story.is_empty());
        assert_eq!(story, one_world(seed), "seed {seed}");
    }
    assert!(
        told > 50,
        "{told} worlds in which anything could be started"
    );
}
