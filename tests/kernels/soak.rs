//! Hostile children, many, on the real kernel: what could leak is counted before and after.
//!
//! A few hundred by default; `LASTWORDS_SOAK=100000` by hand. The host adopts orphans, so that
//! nobody can hide from the count.

use crate::support::Census;
use lastwords::__internals::testing::isolation::alone;
use lastwords::sim::Rng;
use lastwords::{
    BackgroundPolicy, Command, DrainPolicy, Event, ExitSourceChoice, Generation, GroupSignal,
    Reactor, Report, StopPolicy, Wait,
};
use rustix::process::{Pid, WaitId, WaitIdOptions, set_child_subreaper, waitid};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Children of each kind of loop, if nothing else is said.
const CHILDREN: u64 = 150;
/// How many live at a time.
const AT_A_TIME: usize = 12;
/// Descriptors that a loop keeps for the spawns that were under way at a time: three for each.
const SPAWN_SLOTS: usize = 3 * 8;
/// Resident memory may grow by so much after the first quarter, whatever the number of children.
const MEMORY_KIB: u64 = 8 << 10;
const LONG: Duration = Duration::from_secs(60);

const SCRIPTS: &[&str] = &[
    "exit 0",
    "echo stderr \"last words\"; kill SELF SEGV",
    "fork { sleep 30ms; write stdout 1000 }; exit 1",
    "write stdout 300000; write stderr 300000; exit 2",
    "ignore TERM; sleep forever",
    "fork { ignore TERM; sleep forever }; exit 0",
    "fork { close stdout; close stderr; sleep forever }; exit 0",
    "fork { fork { fork { sleep 40ms }; exit 0 }; exit 1 }; exit 3",
    "stop; exit 4",
    "fork { setsid; sleep 100ms }; exit 0",
    "fork { setsid; repeat 20 { sleep 5ms; echo stdout \"escaped\" } }; exit 0",
    "close stdout; close stderr; sleep 20ms; exit 5",
    "repeat 6 { fork { sleep 10ms } }; exit 0",
    "outlive 50ms",
    "on TERM { echo stderr \"bye\"; exit 9 }; sleep forever",
    "fork { kill PARENT KILL; sleep 10ms }; sleep forever",
    "fork { repeat 100 { sleep 10ms; write stderr 5000 } }; exit 6",
    "kill GROUP KILL",
];

/// What the host is in the middle of.
struct Soak {
    reactor: Reactor,
    rng: Rng,
    leaders: BTreeSet<u32>,
    live: BTreeMap<Generation, (&'static str, Option<u32>)>,
    closed: u64,
}

fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

impl Soak {
    fn start(&mut self) {
        let script = SCRIPTS[self.rng.below(SCRIPTS.len() as u64) as usize];
        let (program, name, value) = crate::support::play(script);
        let mut command = if self.rng.below(20) == 0 {
            Command::new("/nonexistent/program")
        } else {
            Command::new(program)
        };
        let bound = |rng: &mut Rng| millis([0, 10, 60, 300][rng.below(4) as usize]);
        let rng = &mut self.rng;
        let background = BackgroundPolicy::settle()
            .grace(bound(rng))
            .wait(Wait::For(bound(rng)))
            .terminate_grace(bound(rng));
        command
            .env(name, value)
            .drain(DrainPolicy::default().idle(bound(rng)).limit(millis(300)))
            .stop(StopPolicy::default().grace(bound(rng)))
            .background(background)
            .run_limit(millis(2_000));
        if rng.below(4) == 0 {
            command.stdin(vec![b'x'; 100_000]);
        }
        let generation = self.reactor.start(&command).expect("there is room");
        // Also one whose program cannot be executed, and which the report says nothing of.
        let pid = self.reactor.pid(generation);
        self.leaders.extend(pid);
        self.live.insert(generation, (script, pid));
    }

    fn interfere(&mut self) {
        let place = self.rng.below(self.live.len() as u64) as usize;
        let Some(generation) = self.live.keys().nth(place).copied() else {
            return;
        };
        match self.rng.below(8) {
            0 => {
                let _ = self.reactor.stop(generation, None);
            }
            1 => {
                let _ = self.reactor.kill(generation);
            }
            _ => {}
        }
    }

    fn turn(&mut self) {
        let mut closed = Vec::new();
        let begun = Instant::now();
        let event = self.reactor.wait_event(Some(LONG)).expect("a turn");
        assert!(
            event.is_some() || begun.elapsed() < LONG,
            "nothing happens any more"
        );
        if let Some(Event::Closed {
            generation, report, ..
        }) = event
        {
            closed.push((generation, *report));
        }
        for (generation, report) in closed {
            let (script, pid) = self.live.remove(&generation).expect("closed once");
            self.closed += 1;
            check(script, &report);
            // Its number may be somebody else's from now on.
            self.leaders.remove(&pid.unwrap_or(0));
        }
    }
}

fn check(script: &str, report: &Report) {
    assert!(
        report.error.is_some() || report.exit.is_some(),
        "{script}: {report:#?}"
    );
    if let (Some(code), None, None) = (
        report.exit.and_then(|exit| exit.code),
        &report.stop,
        &report.error,
    ) {
        let expected: i32 = script
            .rsplit("exit ")
            .next()
            .and_then(|n| n.parse().ok())
            .unwrap_or(0);
        assert_eq!(code, expected, "{script}: {report:#?}");
    }
}

/// Adopted children that have ended are reaped; how many are alive. None of them may be a leader:
/// those are the loop's.
fn adopted(leaders: &BTreeSet<u32>) -> usize {
    let mut alive = 0;
    for pid in Census::take().children {
        if leaders.contains(&pid) {
            continue;
        }
        let number = i32::try_from(pid)
            .ok()
            .and_then(Pid::from_raw)
            .expect("a process number");
        match waitid(
            WaitId::Pid(number),
            WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
        ) {
            Ok(Some(_)) | Err(_) => {}
            Ok(None) => alive += 1,
        }
    }
    alive
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc/self/status");
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .expect("VmRSS");
    line.split_whitespace()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .expect("a number")
}

/// Takes out the descriptors that the spawner keeps for its next spawns.
fn take_spawn_slots(census: &mut Census) -> Vec<u32> {
    let is_slot = |target: &String| target.starts_with("/proc/") && target.ends_with("/status");
    let all = &census.descriptors;
    let slots: Vec<u32> = all
        .iter()
        .filter(|(_, t)| is_slot(t))
        .map(|(n, _)| *n)
        .collect();
    census.descriptors.retain(|_, target| !is_slot(target));
    slots
}

fn soak(test: &str, exit_source: ExitSourceChoice, group_signal: GroupSignal) {
    alone(test, module_path!(), || {
        let children = std::env::var("LASTWORDS_SOAK")
            .ok()
            .map_or(CHILDREN, |n| n.parse().expect("LASTWORDS_SOAK is a number"));
        set_child_subreaper(Some(rustix::process::getpid())).expect("orphans come to us");
        // What a process has for good once there has been a loop (the SIGCHLD handler's pipe) is no
        // leak.
        drop(
            Reactor::builder()
                .exit_source(exit_source)
                .build()
                .expect("a loop"),
        );
        let before = Census::take();
        let reactor = Reactor::builder()
            .exit_source(exit_source)
            .group_signal(group_signal)
            .build()
            .expect("a loop");
        let mut soak = Soak {
            reactor,
            rng: Rng::new(children),
            leaders: BTreeSet::new(),
            live: BTreeMap::new(),
            closed: 0,
        };
        // What a loop keeps for good once it has started something (/dev/null) is no leak either.
        let first = soak
            .reactor
            .run(&Command::shell("exit 0"))
            .expect("a shell");
        assert!(first.report.exit.is_some_and(|exit| exit.success()));
        let mut with_loop = Census::take();
        // A stack and its guard for each spawn that was under way at a time: kept for the next
        // ones.
        with_loop.mappings += 2 * AT_A_TIME;
        let (mut started, mut warm, begun) = (0, None, Instant::now());
        while started < children || !soak.live.is_empty() {
            while started < children && soak.live.len() < AT_A_TIME {
                soak.start();
                started += 1;
            }
            soak.interfere();
            soak.turn();
            if soak.closed == children / 4 && warm.is_none() {
                warm = Some(resident_kib());
            }
            if soak.closed.is_multiple_of(64) {
                adopted(&soak.leaders);
            }
        }
        assert_eq!((soak.closed, soak.reactor.stats().live), (children, 0));
        // Who has escaped the group lives on for a while, and is told so nowhere: containment by
        // group sees no more.
        while adopted(&soak.leaders) > 0 {
            assert!(
                begun.elapsed() < LONG + millis(children * 100),
                "somebody is alive: {:?}",
                Census::take().children
            );
            let _turn = soak.reactor.turn(Some(millis(20))).expect("a turn");
        }
        let _turn = soak.reactor.turn(Some(Duration::ZERO)).expect("a turn");
        let slots = take_spawn_slots(&mut with_loop).len();
        let mut at_the_end = Census::take();
        let slots_at_the_end = take_spawn_slots(&mut at_the_end).len();
        assert!(slots_at_the_end <= slots + SPAWN_SLOTS, "{at_the_end:?}");
        with_loop.assert_like(&at_the_end);
        let grown = resident_kib().saturating_sub(warm.unwrap_or_else(resident_kib));
        assert!(grown < MEMORY_KIB, "memory has grown by {grown} KiB");
        drop(soak.reactor);
        before.assert_same();
        println!(
            "{children} children in {:?}, {grown} KiB more than after the first quarter",
            begun.elapsed()
        );
    });
}

#[test]
fn hostile_children_leave_nothing() {
    soak(
        "hostile_children_leave_nothing",
        ExitSourceChoice::Auto,
        GroupSignal::Auto,
    );
}

#[test]
fn hostile_children_leave_nothing_on_an_old_kernel() {
    soak(
        "hostile_children_leave_nothing_on_an_old_kernel",
        ExitSourceChoice::Pidfd,
        GroupSignal::Off,
    );
}

#[test]
fn hostile_children_leave_nothing_by_sigchld() {
    soak(
        "hostile_children_leave_nothing_by_sigchld",
        ExitSourceChoice::Sigchld,
        GroupSignal::Auto,
    );
}
