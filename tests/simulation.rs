//! Random worlds on the simulated kernel: children that fork, hold pipes, ignore signals, hang and escape; hosts that stop, stall and
//! let their output wait; a kernel whose notices are late, spurious and merged. What must hold in every one of them is checked in
//! `Watch`. A failure names its seed: `one_world(SEED)` plays it again.

use lastwords::error::{Errno, Step};
use lastwords::kernel::sim::clock::Rng;
use lastwords::kernel::sim::log::Happened;
use lastwords::kernel::sim::pipe::PipeId;
use lastwords::kernel::sim::process::Descriptor;
use lastwords::kernel::sim::{Fault, Reaper, Sim, SimOptions, Unruly};
use lastwords::kernel::{Kernel, MemberWatch};
use lastwords::time::Ns;
use lastwords::words::ExitSource;
use lastwords::{
    BackgroundPolicy, Bound, Capture, Command, DrainPolicy, EndedBy, Event, Generation, Line, Outcome, Reactor, Report, SettledAs,
    StopPolicy, Stream, StreamEnd, Wait,
};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// What goes wrong in one call.
const FAULTS: [Fault; 5] = [
    Fault::SpuriousExit,
    Fault::Interrupted,
    Fault::ShortRead(1),
    Fault::Watch(Errno::from_raw(libc::EMFILE)),
    Fault::Read(Stream::Stdout, Errno::from_raw(libc::EIO)),
];

/// What a turn may take in a calm world: the slices of a look, the tick of the wheel.
const TURN: Duration = Duration::from_millis(5);

/// Worlds in one run of the test; `LASTWORDS_WORLDS=1000000` for more of them, by hand and with `--release`.
const WORLDS: u64 = 1_000;

/// One of these.
fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.below(of.len() as u64) as usize]
}

fn chance(rng: &mut Rng, percent: u64) -> bool {
    rng.below(100) < percent
}

/// Acts of a process; how deep it may still fork.
fn acts(rng: &mut Rng, depth: u32, out: &mut String) {
    for _ in 0..rng.below(5) {
        let stream = pick(rng, &["stdout", "stderr"]);
        match rng.below(if depth > 0 { 15 } else { 11 }) {
            0..3 => write!(out, "write {stream} {}", pick(rng, &[1, 80, 4096, 70_000, 200_000])),
            3..6 => write!(out, "sleep {}ms", pick(rng, &[0, 1, 5, 90, 800, 2_500, 7_000])),
            6 => write!(out, "close {stream}"),
            7 => write!(out, "ignore {}", pick(rng, &["TERM", "PIPE", "HUP"])),
            8 => write!(out, "on TERM {{ echo stderr \"asked\"; sleep {}ms; exit 9 }}", pick(rng, &[0, 50, 3_000])),
            9 => write!(out, "spin {}ms", pick(rng, &[1, 40])),
            10 => write!(out, "{}", pick(rng, &["stop", "kill SELF SEGV", "exit 4", "outlive 700ms", "unkillable", "user 7", "wait"])),
            11..13 => block(rng, depth, "", out),
            13 => block(rng, depth, "setsid; ", out),
            _ => write!(out, "fork {{ repeat 200 {{ sleep {}ms; echo {stream} \"tick\" }} }}", pick(rng, &[3, 30, 400])),
        }
        .expect("a string takes everything");
        out.push_str("; ");
    }
}

fn block(rng: &mut Rng, depth: u32, first: &str, out: &mut String) -> std::fmt::Result {
    write!(out, "fork {{ {first}")?;
    acts(rng, depth - 1, out);
    out.push('}');
    Ok(())
}

fn bound(rng: &mut Rng) -> Bound {
    match rng.below(5) {
        0 => Bound::Never,
        1 => Bound::After(Duration::ZERO),
        _ => Bound::After(Duration::from_millis(pick(rng, &[1, 50, 400, 2_000, 5_000]))),
    }
}

/// A stop with an end: one without would wait for ever for whoever ignores its signal.
fn stop_policy(rng: &mut Rng) -> StopPolicy {
    let grace = Duration::from_millis(pick(rng, &[0, 1, 300, 2_000]));
    StopPolicy::default().grace(grace).stuck_after(Duration::from_millis(1_500))
}

fn background(rng: &mut Rng) -> BackgroundPolicy {
    let millis = |rng: &mut Rng| Duration::from_millis(pick(rng, &[0, 10, 500, 2_000]));
    match rng.below(4) {
        0 => BackgroundPolicy::disabled(),
        1 => BackgroundPolicy::report_only().grace(millis(rng)),
        _ => {
            let wait = Wait::For(millis(rng));
            BackgroundPolicy::default().grace(millis(rng)).wait(wait).terminate_grace(millis(rng)).keep_orphans(chance(rng, 25))
        }
    }
}

fn command(rng: &mut Rng) -> (String, Command) {
    let mut script = String::new();
    acts(rng, 3, &mut script);
    let mut command = Command::new("sim");
    command
        .arg(&script)
        .drain(DrainPolicy::default().idle(bound(rng)).limit(bound(rng)))
        .stop(stop_policy(rng))
        .background(background(rng))
        // The end of everything, since bounds may be infinite.
        .run_limit(Duration::from_millis(pick(rng, &[1, 300, 4_000, 20_000])));
    if matches!(rng.below(3), 0) {
        command.stdout(Capture::default().deliver(true).ahead(4096).keep(8192));
    }
    (script, command)
}

fn options(rng: &mut Rng, seed: u64) -> SimOptions {
    let mut options = SimOptions::seeded(seed);
    options.group_signal = chance(rng, 50);
    options.exit_info = chance(rng, 50);
    options.pipe = pick(rng, &[4096, 65_536]);
    if chance(rng, 50) {
        // Nothing can happen between two calls of a turn.
        options.call_cost = Ns::ZERO;
    }
    if chance(rng, 30) {
        options.exit_source = ExitSource::Sigchld;
        options.sigchld_lost = chance(rng, 30);
    }
    if chance(rng, 20) {
        options.members = MemberWatch::ByLooking;
    }
    if chance(rng, 15) {
        options.reaper = Reaper::Thief;
    }
    if chance(rng, 20) {
        // Numbers come round soon.
        options.pid_max = 2000;
    }
    if chance(rng, 60) {
        options.unruly = Unruly { not_yet: pick(rng, &[0, 0, 100]), incomplete: pick(rng, &[0, 0, 50]), ..Unruly::storm() };
    }
    options
}

/// A kernel and a machine as they should be.
fn calm(rng: &mut Rng, seed: u64) -> SimOptions {
    let mut options = SimOptions::seeded(seed);
    options.group_signal = chance(rng, 50);
    options.pipe = pick(rng, &[4096, 65_536]);
    if chance(rng, 30) {
        options.exit_source = ExitSource::Sigchld;
    }
    options
}

/// One generation, as its host sees it.
#[derive(Debug)]
struct Seen {
    script: String,
    pid: u32,
    birth: u64,
    pipes: [Option<PipeId>; 2],
    /// The last event of its life.
    place: u8,
    drained: Option<EndedBy>,
    offsets: [u64; 2],
}

/// What is seen of a world, and what must hold in it.
struct Watch {
    seed: u64,
    /// Ends of leaders are kept back sometimes, though they are announced; looks are not complete.
    is_blurred: bool,
    /// Nothing is late, nobody interferes.
    is_calm: bool,
    /// Calls take no time.
    is_instant: bool,
    all: BTreeMap<Generation, Seen>,
    story: String,
}

impl Watch {
    fn started(&mut self, reactor: &mut Reactor<Sim>, generation: Generation, script: String) {
        let pid = reactor.pid(generation).expect("it has just been started");
        let process = reactor.kernel_mut().world().process(pid).expect("it has not been reaped");
        let pipe = |number: usize| match process.fds[number] {
            Descriptor::Pipe(id) => Some(id),
            Descriptor::Null | Descriptor::Closed => None,
        };
        let seen = Seen { script, pid, birth: process.birth, pipes: [pipe(1), pipe(2)], place: 0, drained: None, offsets: [0; 2] };
        self.all.insert(generation, seen);
    }

    fn event(&mut self, now: Ns, event: &Event<'_>) -> Option<(Generation, Report)> {
        let (seed, generation) = (self.seed, event.generation());
        let seen = self.all.get_mut(&generation).unwrap_or_else(|| panic!("seed {seed}: an event of nobody: {event:?}"));
        let place = match event {
            Event::Output { stream, bytes, offset, lost, .. } => {
                let expected = &mut seen.offsets[stream.index()];
                assert_eq!((*offset, *lost), (*expected, 0), "seed {seed}: {seen:?}");
                *expected += bytes.len() as u64;
                None
            }
            Event::Started { .. } | Event::SpawnFailed { .. } => Some(1),
            Event::Exited { .. } => Some(2),
            Event::Drained { drain, .. } => {
                seen.drained = drain.ended_by;
                Some(3)
            }
            Event::BackgroundWait { .. } => None,
            Event::Settled { .. } => Some(4),
            Event::Closed { .. } => Some(5),
            _ => None,
        };
        if let Some(place) = place {
            assert!(seen.place < place, "seed {seed}: {event:?} after {seen:?}");
            seen.place = place;
        }
        let told = match event {
            // Its time is the host's clock at the beginning of the loop, and more.
            Event::Output { stream, bytes, late, .. } => writeln!(self.story, "{} {generation} {stream} {} {late}", now.0, bytes.len()),
            _ => writeln!(self.story, "{} {event:?}", now.0),
        };
        told.expect("a string takes everything");
        match event {
            Event::Closed { report, .. } => Some((generation, (**report).clone())),
            _ => None,
        }
    }

    fn closed(&self, sim: &Sim, generation: Generation, report: &Report) {
        let seed = self.seed;
        let seen = &self.all[&generation];
        let told = format!("seed {seed}: {seen:?}\n{report:#?}");
        for (stream, pipe) in [&report.stdout, &report.stderr].into_iter().zip(seen.pipes) {
            let (Some(stream), Some(pipe)) = (stream, pipe) else { continue };
            let (mut wrote, mut read) = (0, 0);
            for entry in sim.log() {
                match entry.what {
                    Happened::Wrote(_, id, n) if id == pipe => wrote += n as u64,
                    Happened::Read(id, n) if id == pipe => read += n as u64,
                    _ => {}
                }
            }
            assert_eq!(stream.bytes, read, "bytes that nobody counted: {told}");
            if stream.end == Some(StreamEnd::Eof) {
                assert_eq!(read, wrote, "bytes that nobody read: {told}");
            }
        }
        let background = report.background.as_ref().map(|b| b.state);
        if let Some(SettledAs::None | SettledAs::Finished | SettledAs::Terminated) = background {
            let ours = |p: &&lastwords::kernel::sim::process::Process| p.pgid == seen.pid && p.family == seen.birth && !p.is_zombie();
            let left: Vec<u32> = sim.world().processes().filter(ours).map(|p| p.pid).collect();
            assert!(left.is_empty(), "{left:?} are left: {told}");
        }
        let alone = !seen.script.contains("fork");
        if alone && seen.place == 5 && report.exit.is_some() {
            assert_eq!(seen.drained, Some(EndedBy::Eof), "a leak that is none: {told}");
            // Who cannot be told of a leader's end (a tracer), or that nobody is left, has to call it stuck.
            // Another user's process makes every look that it is in incomplete.
            let users = self.all.values().any(|other| other.script.contains("user"));
            let cannot = users || self.is_blurred;
            let stuck = cannot && background == Some(SettledAs::Stuck);
            assert!(stuck || matches!(background, Some(SettledAs::None | SettledAs::Disabled)), "{told}");
        }
        if self.is_calm {
            self.in_time(sim, seen, report, &told);
        }
        let signalled = sim.log().iter().any(|e| matches!(e.what, Happened::Signalled(pid, _) if pid == seen.pid));
        if !signalled && !self.is_blurred && self.is_instant && !seen.script.contains("user") {
            assert!(!matches!(report.outcome, Some(Outcome::Stopped | Outcome::TimedOut)), "stopped without a signal: {told}");
        }
    }
}

impl Watch {
    /// In a calm world nothing is told later than it is so, but for the turn it takes: what ends a drain or a wait is noticed.
    fn in_time(&self, sim: &Sim, seen: &Seen, report: &Report, told: &str) {
        let times = |wanted: &dyn Fn(&Happened) -> bool| sim.log().iter().filter(|e| wanted(&e.what)).map(|e| e.at).collect::<Vec<Ns>>();
        let exits = times(&|what| matches!(what, Happened::Ended(pid, ..) if *pid == seen.pid));
        let Some(exit) = exits.first() else { return };
        let last_of = |times: Vec<Ns>| times.last().map_or(Ns::ZERO, |last| last.since(*exit)).to_duration() + TURN;
        if let (Some(drain), Some(EndedBy::Eof)) = (&report.drain, seen.drained) {
            let hung_up = times(&|what| matches!(what, Happened::HungUp(id) if seen.pipes.contains(&Some(*id))));
            assert!(drain.waited <= last_of(hung_up), "an end of file that was not noticed: {told}");
        }
        if let Some(settled) = report.background.as_ref().filter(|b| matches!(b.state, SettledAs::None | SettledAs::Finished)) {
            let members = times(&|what| matches!(what, Happened::Ended(_, pgid, _) if *pgid == seen.pid));
            assert!(settled.waited <= last_of(members), "an end of a member that was not noticed: {told}");
        }
    }
}

/// Plays a world to its end; what happened, in words.
fn one_world(seed: u64) -> String {
    one_world_with(seed, |_| ())
}

/// The same, with every command changed before it is started.
fn one_world_with(seed: u64, change: impl Fn(&mut Command)) -> String {
    let mut rng = Rng::new(seed ^ 0x05ee_d000);
    let is_calm = chance(&mut rng, 30);
    let options = if is_calm { calm(&mut rng, seed) } else { options(&mut rng, seed) };
    let mut reactor = Reactor::with_kernel(Sim::new(options), Default::default());
    let mut watch = Watch {
        seed,
        is_calm,
        is_instant: options.call_cost == Ns::ZERO,
        is_blurred: options.unruly.not_yet > 0 || options.unruly.incomplete > 0,
        all: BTreeMap::new(),
        story: String::new(),
    };
    let mut to_start = 1 + rng.below(6);
    let lazy = !is_calm && chance(&mut rng, 30);
    let mut turns = 0;
    while to_start > 0 || reactor.is_busy() {
        turns += 1;
        assert!(turns < 200_000, "seed {seed}: no end\n{}", watch.story);
        if to_start > 0 && chance(&mut rng, 50) {
            to_start -= 1;
            let (script, mut command) = command(&mut rng);
            change(&mut command);
            let fault = if is_calm { None } else { spawn_fault(&mut rng) };
            if let Some(fault) = fault {
                reactor.kernel_mut().inject(fault);
            }
            let generation = match reactor.start(&command) {
                Ok(generation) => generation,
                Err(error) => {
                    assert!(matches!(fault, Some(Fault::Spawn(Step::Clone, _))), "seed {seed}: {script:?}: {error}");
                    continue;
                }
            };
            watch.started(&mut reactor, generation, script);
        }
        if !is_calm {
            interfere(&mut rng, &mut reactor, &watch);
        }
        let timeout = pick(&mut rng, &[Some(Duration::ZERO), Some(Duration::from_millis(20)), None]);
        // Nothing to wait for: only a host that has something to start has not come to the end.
        let timeout = if to_start > 0 { timeout.or(Some(Duration::ZERO)) } else { timeout };
        let _turn = reactor.turn(timeout).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}", watch.story));
        let mut left = if lazy { rng.below(3) } else { u64::MAX };
        let mut closed = Vec::new();
        while left > 0 {
            left -= 1;
            let now = reactor.kernel_mut().now();
            let Some(event) = reactor.next_event() else { break };
            closed.extend(watch.event(now, &event));
        }
        for (generation, report) in closed {
            watch.closed(reactor.kernel_mut(), generation, &report);
        }
    }
    let unfinished: Vec<&Seen> = watch.all.values().filter(|s| s.place != 5).collect();
    assert!(unfinished.is_empty(), "seed {seed}: {unfinished:?}");
    assert_eq!(reactor.kernel_mut().violations(), [], "seed {seed}\n{}", watch.story);
    assert_eq!(reactor.kernel_mut().generations(), 0, "seed {seed}");
    watch.story
}

fn spawn_fault(rng: &mut Rng) -> Option<Fault> {
    match rng.below(20) {
        0 | 1 => Some(Fault::SlowExec(Ns::from_millis(rng.below(3_000)))),
        2 => Some(Fault::Spawn(Step::Exec, Errno::from_raw(libc::ENOENT))),
        3 => Some(Fault::Spawn(Step::Clone, Errno::from_raw(libc::EAGAIN))),
        _ => None,
    }
}

/// What hosts and machines do in between.
fn interfere(rng: &mut Rng, reactor: &mut Reactor<Sim>, watch: &Watch) {
    if !chance(rng, 5) {
        return;
    }
    let generations: Vec<Generation> = watch.all.keys().copied().collect();
    if generations.is_empty() {
        return;
    }
    let one = pick(rng, &generations);
    match rng.below(8) {
        0 => {
            let _ = reactor.stop(one, Some(stop_policy(rng)));
        }
        1 => {
            let _ = reactor.kill(one);
        }
        2 => reactor.stop_all(None),
        3 => reactor.kernel_mut().inject(pick(rng, &FAULTS)),
        4 => {
            let pid = watch.all[&one].pid;
            reactor.kernel_mut().world_mut().steal(pid);
        }
        // A loaded machine.
        _ => reactor.kernel_mut().advance(Ns::from_millis(pick(rng, &[1, 100, 6_000]))),
    }
}

#[test]
fn what_must_hold_holds_in_every_world() {
    let worlds = std::env::var("LASTWORDS_WORLDS").ok().map_or(WORLDS, |n| n.parse().expect("LASTWORDS_WORLDS is a number"));
    for seed in 0..worlds {
        one_world(seed);
    }
}

/// spec 5.4: the last words as they arrive, and those made when they are asked for, are the same.
#[test]
fn a_line_function_that_keeps_everything_changes_no_world() {
    let with = |seed, what: Line| {
        one_world_with(seed, |command| {
            let what = what.clone();
            command.line_function(move |_| what.clone());
        })
    };
    let mut with_words = 0;
    for seed in 0..WORLDS / 4 {
        let without = one_world(seed);
        assert_eq!(with(seed, Line::Keep), without, "seed {seed}");
        with_words += u64::from(with(seed, Line::Drop) != without);
    }
    assert!(with_words > WORLDS / 40, "there are last words in {with_words} worlds");
}

#[test]
fn the_same_seed_is_the_same_world() {
    for seed in [1, 17, 42, 99] {
        let story = one_world(seed);
        assert!(!story.is_empty());
        assert_eq!(story, one_world(seed), "seed {seed}");
    }
}
