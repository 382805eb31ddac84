//! A plain reference of what a host may be told: it watches a run on the simulated kernel from both
//! sides, and panics at the first thing that breaks an invariant.

use crate::capture::Captured;
use crate::kernel::sim::Sim;
use crate::kernel::sim::log::Happened;
use crate::kernel::sim::pipe::{HostEnd, PipeId};
use crate::kernel::sim::process::{Descriptor, HOST, Process};
use crate::reactor::{Event, Generation, Reactor};
use crate::report::{EndedBy, Report, SettledAs, StreamEnd, Verdict};
use crate::types::{Outcome, Stream};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// From a state to a state, as the host sees them.
pub type Edge = (&'static str, &'static str);

/// Whom a generation's containment can see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sight {
    /// Its group.
    Group,
    /// All who descend from its leader.
    Family,
}

/// One generation.
#[derive(Debug)]
struct Seen {
    pid: u32,
    birth: u64,
    pipes: [Option<PipeId>; 2],
    sight: Sight,
    /// What it exits with by itself, and whether it did so before anybody could have stopped it.
    code: i32,
    by_itself: bool,
    state: &'static str,
    /// Bytes that the leader wrote before its end.
    leader_wrote: u64,
    /// The turn in which the exit was told, and whether every pipe had ended when that began.
    exited: Option<(u64, bool)>,
    /// Every pipe had ended when the turn began.
    ended: bool,
    verdict: Option<(u64, Verdict)>,
    waits: u32,
    settled: Option<SettledAs>,
}

/// Everything that is seen.
#[derive(Debug)]
pub struct Watch {
    told: String,
    bounds: [Duration; 2],
    turn: u64,
    all: BTreeMap<Generation, Seen>,
    walked: BTreeSet<Edge>,
}

impl Watch {
    /// Nothing yet. `told` is what a failure says of the run; `bounds` are the idle bound and the
    /// limit of every command.
    pub fn new(told: String, bounds: [Duration; 2]) -> Watch {
        Watch {
            told,
            bounds,
            turn: 0,
            all: BTreeMap::new(),
            walked: BTreeSet::new(),
        }
    }

    /// A generation was started just now; `code` is what it exits with when it ends by itself.
    pub fn started(&mut self, reactor: &mut Reactor<Sim>, generation: Generation, code: i32) {
        let pid = reactor.pid(generation).expect("it has just been started");
        let process = reactor
            .sim()
            .world()
            .process(pid)
            .expect("it has not been reaped");
        let pipe = |number: usize| match process.fds[number] {
            Descriptor::Pipe(id) => Some(id),
            Descriptor::Null | Descriptor::Closed => None,
        };
        let seen = Seen {
            pid,
            birth: process.birth,
            pipes: [pipe(1), pipe(2)],
            sight: if process.cookie.is_some() || process.cgroup.is_some() {
                Sight::Family
            } else {
                Sight::Group
            },
            code,
            by_itself: false,
            state: "Spawning",
            leader_wrote: 0,
            exited: None,
            ended: false,
            verdict: None,
            waits: 0,
            settled: None,
        };
        assert!(
            self.all.insert(generation, seen).is_none(),
            "a key twice: {}",
            self.told
        );
    }

    /// Its leader has written so many bytes more.
    pub fn wrote(&mut self, generation: Generation, n: usize) {
        self.seen(generation).leader_wrote += n as u64;
    }

    /// Its leader has ended by itself, before anybody has stopped it.
    pub fn ended_by_itself(&mut self, generation: Generation) {
        self.seen(generation).by_itself = true;
    }

    /// The host has let it go.
    pub fn let_go(&mut self, generation: Generation) {
        self.walk(generation, "Gone");
    }

    /// Whether the host has let it go.
    pub fn is_let_go(&self, generation: Generation) -> bool {
        self.all[&generation].state == "Gone"
    }

    fn seen(&mut self, generation: Generation) -> &mut Seen {
        self.all
            .get_mut(&generation)
            .unwrap_or_else(|| panic!("{generation} is nobody: {}", self.told))
    }

    fn walk(&mut self, generation: Generation, to: &'static str) {
        let seen = self.seen(generation);
        let edge = (seen.state, to);
        seen.state = to;
        self.walked.insert(edge);
    }

    /// Everything that the host is told now.
    pub fn events(&mut self, reactor: &mut Reactor<Sim>) {
        loop {
            let Some(closed) = reactor.next_event().map(|event| self.event(&event)) else {
                return;
            };
            if let Some((generation, report)) = closed {
                let kept = Stream::ALL.map(|stream| reactor.take(generation, stream));
                self.closed(reactor.sim(), generation, &report, &kept);
            }
        }
    }

    fn event(&mut self, event: &Event<'_>) -> Option<(Generation, Report)> {
        let generation = event.generation();
        let (told, turn, [idle, limit]) = (self.told.clone(), self.turn, self.bounds);
        let seen = self.seen(generation);
        assert!(
            !matches!(seen.state, "Gone" | "Closed"),
            "{event:?} after the end: {told}"
        );
        match event {
            Event::Started { pid, .. } => {
                assert_eq!(*pid, seen.pid, "{told}");
                self.walk(generation, "Running");
            }
            Event::SpawnFailed { .. } => self.walk(generation, "Failed"),
            Event::Exited { .. } => {
                assert_eq!(seen.exited, None, "{told}");
                seen.exited = Some((turn, seen.ended));
                self.walk(generation, "Exited");
            }
            Event::Drained { drain, .. } => {
                assert_eq!(seen.verdict, None, "two verdicts: {told}");
                seen.verdict = Some((turn, drain.verdict));
                let fits = match drain.ended_by {
                    Some(EndedBy::Eof) => {
                        drain.verdict == Verdict::Drained && drain.open.is_empty()
                    }
                    Some(EndedBy::Idle) => drain.waited >= idle && !drain.open.is_empty(),
                    Some(EndedBy::Limit) => drain.waited >= limit && !drain.open.is_empty(),
                    Some(EndedBy::Stop | EndedBy::Deadline) => !drain.open.is_empty(),
                    None => drain.verdict == Verdict::Unfinished,
                };
                assert!(fits, "{drain:?}: {told}");
                assert!(
                    seen.exited.is_some() || drain.verdict == Verdict::Unfinished,
                    "a verdict before the exit: {told}"
                );
                let to = match drain.verdict {
                    Verdict::Drained => "Drained",
                    Verdict::DrainTimedOut => "DrainTimedOut",
                    Verdict::Unfinished => "Unfinished",
                };
                self.walk(generation, to);
            }
            Event::BackgroundWait { survivors, .. } => {
                seen.waits += 1;
                assert!(
                    seen.waits == 1 && !survivors.is_empty() && seen.settled.is_none(),
                    "{event:?}: {told}"
                );
            }
            Event::Settled { settled, .. } => {
                seen.settled = Some(settled.state);
                if seen.exited.is_none() {
                    self.walk(generation, "Unfinished");
                }
                self.walk(generation, "Settled");
            }
            Event::Closed { report, .. } => {
                self.walk(generation, "Closed");
                return Some((generation, (**report).clone()));
            }
            Event::Output { bytes, late, .. } => assert!(
                !bytes.is_empty() && (!late || seen.verdict.is_some()),
                "{event:?}: {told}"
            ),
        }
        None
    }

    /// A turn begins. What calls between the turns have brought is told first: a stop asks the
    /// leader, and may be what sees its exit.
    pub fn before(&mut self, reactor: &mut Reactor<Sim>) {
        self.events(reactor);
        let sim = reactor.sim();
        let ended = |pipe: &PipeId| {
            sim.world()
                .pipes()
                .find(|(id, _)| id == pipe)
                .is_none_or(|(_, pipe)| pipe.no_writer())
        };
        for seen in self.all.values_mut() {
            seen.ended = seen.pipes.iter().flatten().all(ended);
        }
    }

    /// What must hold after every turn.
    pub fn turn(&mut self, reactor: &mut Reactor<Sim>) {
        let (turn, told) = (self.turn, self.told.clone());
        self.turn += 1;
        let sim = reactor.sim();
        for seen in self
            .all
            .values_mut()
            .filter(|s| !matches!(s.state, "Gone" | "Closed"))
        {
            if let Some((at, true)) = seen.exited
                && at == turn
            {
                assert_eq!(
                    seen.verdict,
                    Some((turn, Verdict::Drained)),
                    "end of file was there at the exit: {seen:?} {told}"
                );
            }
            // Who may still write has a reader, up to the settling.
            for id in seen
                .pipes
                .iter()
                .flatten()
                .filter(|_| seen.settled.is_none() && seen.state != "Failed")
            {
                let open = sim
                    .world()
                    .pipes()
                    .find(|(other, _)| other == id)
                    .is_none_or(|(_, p)| p.no_writer() || matches!(p.host, HostEnd::Open(_)));
                assert!(
                    open,
                    "a read end that was closed too early: {seen:?} {told}"
                );
            }
        }
    }

    fn closed(
        &self,
        sim: &Sim,
        generation: Generation,
        report: &Report,
        kept: &[Option<Captured>; 2],
    ) {
        let seen = &self.all[&generation];
        let told = format!("{}\n{seen:?}\n{report:#?}", self.told);
        for (place, stream) in [&report.stdout, &report.stderr].into_iter().enumerate() {
            let (Some(stream), Some(pipe)) = (stream, seen.pipes[place]) else {
                continue;
            };
            let sum = |read: bool| -> u64 {
                let of = |what: &Happened| match what {
                    Happened::Wrote(_, id, n) if !read && *id == pipe => *n as u64,
                    Happened::Read(id, n) if read && *id == pipe => *n as u64,
                    _ => 0,
                };
                sim.log().iter().map(|entry| of(&entry.what)).sum()
            };
            assert_eq!(stream.bytes, sum(true), "bytes read and counted: {told}");
            if stream.end == Some(StreamEnd::Eof) {
                assert_eq!(
                    stream.bytes,
                    sum(false),
                    "end of file, and bytes that nobody read: {told}"
                );
            }
            assert_eq!(
                stream.end.is_some(),
                report.error.is_none() || stream.end.is_some(),
                "{told}"
            );
            if let Some(kept) = &kept[place] {
                assert_eq!(
                    kept.len() + kept.dropped(),
                    stream.bytes,
                    "kept and dropped: {told}"
                );
            }
        }
        if let (Some(stdout), Some(_)) = (report.stdout, report.exit) {
            assert!(
                stdout.bytes - stdout.late >= seen.leader_wrote,
                "the leader's bytes came before the verdict: {told}"
            );
        }
        self.outcome(seen, report, &told);
        let ours = |p: &&Process| {
            (seen.sight == Sight::Family || p.pgid == seen.pid)
                && p.family == seen.birth
                && !p.is_zombie()
        };
        let left: Vec<u32> = sim
            .world()
            .processes()
            .filter(ours)
            .map(|p| p.pid)
            .collect();
        let signalled = sim
            .log()
            .iter()
            .any(|entry| matches!(entry.what, Happened::Signalled(pid, _) if pid >= seen.pid));
        match report.background.as_ref().map(|b| b.state) {
            Some(SettledAs::None | SettledAs::Finished) => {
                assert!(left.is_empty(), "{left:?} are left: {told}")
            }
            Some(SettledAs::Terminated) => {
                assert!(left.is_empty() && signalled, "{left:?} are left: {told}")
            }
            Some(SettledAs::Reported | SettledAs::Kept | SettledAs::Disabled) => {
                panic!("not by this policy: {told}")
            }
            Some(SettledAs::Stuck) | None => {}
        }
    }

    fn outcome(&self, seen: &Seen, report: &Report, told: &str) {
        if report.error.is_some() {
            assert!(
                report.exit.is_none() && report.outcome.is_none() && seen.verdict.is_none(),
                "{told}"
            );
            return;
        }
        let stolen = report
            .exit
            .is_some_and(|exit| exit.code.is_none() && exit.signal.is_none());
        if seen.by_itself && !stolen {
            assert_eq!(
                report.exit.and_then(|exit| exit.code),
                Some(seen.code),
                "{told}"
            );
            // Who was dead already was not stopped. (An end in the same moment as the bound is its
            // own end too.)
            let expected = if seen.code == 0 {
                Outcome::Succeeded
            } else {
                Outcome::Failed
            };
            let resisted = report
                .stop
                .as_ref()
                .is_some_and(|_| report.outcome == Some(Outcome::Stopped));
            assert!(report.outcome == Some(expected) && !resisted, "{told}");
        }
        if report.exit.is_some() {
            assert!(seen.verdict.is_some(), "no verdict: {told}");
        }
    }

    /// Nothing is left of anything. The edges that were walked.
    pub fn end(self, reactor: &mut Reactor<Sim>) -> BTreeSet<Edge> {
        let told = &self.told;
        for seen in self.all.values() {
            assert!(matches!(seen.state, "Closed" | "Gone"), "{seen:?}: {told}");
        }
        let let_go: Vec<u32> = self
            .all
            .values()
            .filter(|s| s.state == "Gone")
            .map(|s| s.pid)
            .collect();
        assert_eq!(reactor.next_deadline(), None, "a timer is armed: {told}");
        assert!(!reactor.has_events() && !reactor.is_busy(), "{told}");
        let sim = reactor.sim();
        assert_eq!(sim.violations(), [], "{told}");
        assert_eq!(sim.generations(), 0, "{told}");
        assert_eq!(sim.world().cgroups().count(), 0, "cgroups are left: {told}");
        let children: Vec<u32> = sim
            .world()
            .processes()
            .filter(|p| p.ppid == HOST && !let_go.contains(&p.pid))
            .map(|p| p.pid)
            .collect();
        assert!(children.is_empty(), "{children:?} were not reaped: {told}");
        let open: Vec<PipeId> = sim
            .world()
            .pipes()
            .filter(|(_, p)| p.host != HostEnd::Closed)
            .map(|(id, _)| id)
            .collect();
        assert!(open.is_empty(), "{open:?} are open: {told}");
        let two = self.all.values().filter(|s| s.code == 0);
        for seen in two {
            assert!(
                matches!(seen.verdict, Some((_, Verdict::Drained)))
                    && seen.settled == Some(SettledAs::None),
                "{seen:?}: {told}"
            );
        }
        self.walked
    }
}
