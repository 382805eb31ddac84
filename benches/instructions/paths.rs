//! The hot paths, each done so many times. What a run costs besides cancels out: two runs of
//! different lengths are compared.

use crate::common::Fail;
use crate::common::child::Role;
use lastwords::__internals::capture::Pool;
use lastwords::__internals::types::limits::{BLOCK, KEEP, POOL_BYTES, TAIL_LINES};
use lastwords::__internals::wheel::{TimerId, Wheel};
use lastwords::sim::{Ns, SimOptions};
use lastwords::{Captured, Command, Event, Kernel, Projection, Reactor, Stdin};
use std::hint::black_box;
use std::time::Duration;

/// A path that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Path {
    /// A timer is cancelled and armed again, among 1,000
    Rearm,
    /// The same among 200,000
    RearmMany,
    /// The next deadline is asked for, among 1,000 timers
    NextDeadline,
    /// One read of 64 KiB and its share of the turn, a stream alone
    Read,
    /// The same with 16 streams
    ReadAmong16,
    /// A child ends, is drained and reported, on the simulated kernel (whose own work is counted
    /// too)
    Exit,
    /// The last 50 lines are asked for, of 2 MiB
    Tail,
    /// 64 KiB of clean lines through the projection
    Clean,
    /// 64 KiB of coloured lines with a secret on each
    Coloured,
    /// A command is put together and made ready for the child: arguments, environment, paths
    Prepare,
}

/// By then 16 children have filled their pipes.
const REFILLED: Duration = Duration::from_millis(1);

impl Path {
    /// How often it is done in the shorter run, and in the longer one.
    pub(crate) const fn counts(self) -> [u64; 2] {
        match self {
            Path::Rearm | Path::RearmMany | Path::NextDeadline => [10_000, 50_000],
            // MiB of each child. The shorter run has filled what is kept of each stream: no block
            // is new in the rest.
            Path::Read => [4, 20],
            Path::ReadAmong16 => [4, 6],
            Path::Exit => [100, 300],
            Path::Tail | Path::Clean | Path::Coloured => [5, 25],
            Path::Prepare => [50, 250],
        }
    }

    /// Does it; says how often it was done.
    pub(crate) fn play(self, count: u64) -> Result<u64, Fail> {
        match self {
            Path::Rearm => rearm(1_000, count),
            Path::RearmMany => rearm(200_000, count),
            Path::NextDeadline => next_deadline(count),
            Path::Read => return read(1, count),
            Path::ReadAmong16 => return read(16, count),
            Path::Exit => exit(count)?,
            Path::Tail => tail(count),
            Path::Clean => project(&Projection::default(), &clean(), count),
            Path::Coloured => project(&Projection::default(), &coloured(), count),
            Path::Prepare => prepare(count)?,
        }
        Ok(count)
    }
}

/// Deadlines up to a minute ahead, the same in every run.
fn deadlines() -> impl FnMut() -> Ns {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        Ns((1 << 20) + state % 60_000_000_000)
    }
}

fn filled(timers: u64) -> (Wheel<u64>, Vec<TimerId>) {
    let mut at = deadlines();
    let mut wheel = Wheel::new();
    let ids = (0..timers).map(|name| wheel.arm(at(), name)).collect();
    (wheel, ids)
}

fn rearm(timers: u64, count: u64) {
    let (mut wheel, mut ids) = filled(timers);
    let mut at = deadlines();
    // Made beforehand, and as many in each run: only the re-arming differs.
    let times: Vec<Ns> = (0..1_000).map(|_| at()).collect();
    for _ in 0..count / 1_000 {
        for (id, at) in ids.iter_mut().zip(&times) {
            wheel.cancel(*id);
            *id = wheel.arm(*at, 1);
        }
    }
    black_box(wheel);
}

fn next_deadline(count: u64) {
    let (wheel, _) = filled(1_000);
    for _ in 0..count {
        black_box(black_box(&wheel).next_deadline());
    }
}

/// Each stream is read once in a turn, and each turn is waited with until the pipes are full again:
/// so every read is the same.
fn read(children: usize, mib: u64) -> Result<u64, Fail> {
    let mut reactor = Reactor::builder()
        .pool_bytes(64 << 20)
        .reads_per_turn(children)
        .build()?;
    let mut command = Role::Bulk(mib).own_command()?;
    command.stdin(Stdin::Null);
    for _ in 0..children {
        reactor.start(&command)?;
    }
    while reactor.is_busy() {
        std::thread::sleep(REFILLED);
        let _more = reactor.turn(None)?;
        while let Some(event) = reactor.next_event() {
            if let Event::SpawnFailed { error, .. } = event {
                return Err(error.into());
            }
        }
    }
    Ok(reactor.stats().reads)
}

fn exit(count: u64) -> Result<(), Fail> {
    let mut reactor = Reactor::simulated(SimOptions::seeded(1));
    let mut command = Command::new("job");
    command.arg("echo stderr \"no such table\"; exit 3");
    for _ in 0..count {
        reactor.start(&command)?;
        to_the_end(&mut reactor)?;
    }
    Ok(())
}

fn to_the_end<K: Kernel>(reactor: &mut Reactor<K>) -> Result<(), Fail> {
    while let Some(event) = reactor.wait_event(None)? {
        match event {
            Event::SpawnFailed { error, .. } => return Err(error.into()),
            event => drop(black_box(event)),
        }
    }
    Ok(())
}

/// A block of lines of 80 bytes, as programs write them.
fn clean() -> String {
    let line = |n: usize| {
        format!(
            "{:<79}\n",
            format!(
                "2026-11-05T12:00:{:02} INFO request {n} finished in 0.84s, worker ok",
                n % 60
            )
        )
    };
    (0..BLOCK / 80).map(line).collect()
}

fn coloured() -> String {
    let line = |n: usize| {
        format!(
            "{:<78}\n",
            format!(
                "\x1b[32mINFO\x1b[0m request {n} with password=hunter2{n:06} \x1b[1mfinished\x1b[0m"
            )
        )
    };
    (0..BLOCK / 80).map(line).collect()
}

fn project(projection: &Projection, text: &str, count: u64) {
    let mut lines = projection.lines();
    let mut bytes = 0;
    for _ in 0..count {
        lines.push(text.as_bytes(), &mut |line: &str| bytes += line.len());
    }
    black_box(bytes);
}

fn tail(count: u64) {
    let (mut pool, text, projection) = (Pool::new(POOL_BYTES), clean(), Projection::default());
    let mut captured = Captured::new(KEEP, false, 0, false);
    for _ in 0..KEEP / BLOCK as u64 {
        let mut block = pool.take(BLOCK);
        block.bytes_mut()[..text.len()].copy_from_slice(text.as_bytes());
        let spare = captured.store(&mut pool, None, block, text.len(), Ns::ZERO);
        pool.put(spare);
    }
    for _ in 0..count {
        black_box(projection.last_lines(&captured, 0, u64::MAX, TAIL_LINES));
    }
}

fn prepare(count: u64) -> Result<(), Fail> {
    for _ in 0..count {
        let mut command = Command::new("/usr/bin/env");
        command
            .args(["--ignore-environment", "sh", "-c", "exit 0"])
            .env_clear();
        for name in ["HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "USER"] {
            command.env(name, "a value of some thirty characters");
        }
        if !lastwords::__internals::testing::fuzz::prepares(black_box(&command)) {
            return Err("the command is refused".into());
        }
    }
    Ok(())
}
