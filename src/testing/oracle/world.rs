//! The oracle of a run on the simulated kernel: it sees what the host is told and what happens in
//! the world, and panics at the first contradiction.

use super::History;
use crate::kernel::Kernel;
use crate::kernel::sim::Sim;
use crate::kernel::sim::cgroup::CgroupId;
use crate::kernel::sim::pipe::{HostEnd, Pipe, PipeId};
use crate::kernel::sim::process::{Descriptor, HOST};
use crate::reactor::{Event, Generation, Reactor};
use crate::report::{EndedBy, Verdict};
use crate::types::{Ns, Stream};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::time::Duration;

/// A transition of the state diagram of a generation, as the host sees it.
pub type Edge = (&'static str, &'static str);

/// How much of the truth the kernel tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Clarity {
    /// Everything can be observed.
    Clear,
    /// Scans of processes may be incomplete.
    IncompleteScans,
    /// The end of a leader may be held back after its notice as well, and calls may fail.
    Faulty,
}

/// When the host and the kernel act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Calls take no time: nothing can happen between two calls of one turn.
    Instant,
    /// Calls take a little time, no notice is late, and nobody interferes.
    Prompt,
    /// Notices may be late, and the machine may stand still.
    Irregular,
}

/// What is known of a run before it begins.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// What reproduces the run. Every failure shows it.
    pub run: String,
    /// How much of the truth the kernel tells.
    pub clarity: Clarity,
    /// When the host and the kernel act.
    pub pace: Pace,
    /// The idle bound and the limit of every command's drain, if all have the same.
    pub drain_bounds: Option<[Duration; 2]>,
}

/// What is known of a generation when it is started.
#[derive(Clone, Debug, Default)]
pub struct Started {
    /// What its leader does.
    pub script: String,
    /// What the leader exits with if it ends by itself.
    pub exit_code: Option<i32>,
}

/// A generation, from both sides.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) script: String,
    pub(super) pid: u32,
    pub(super) birth: u64,
    pub(super) pipes: [Option<PipeId>; 2],
    /// The cookie in its environment.
    pub(super) cookie: Option<u64>,
    pub(super) cgroup: Option<CgroupId>,
    pub(super) history: History,
    pub(super) state: &'static str,
    pub(super) exit_code: Option<i32>,
    /// When the leader ended, if nobody had stopped it.
    pub(super) end: LeaderEnd,
    /// Bytes that the leader wrote to stdout, if the test counts them.
    pub(super) leader_wrote: u64,
    /// The turn in which the exit was told, and whether every pipe had ended when it began.
    exited: Option<(u64, PipeState)>,
    /// The pipes at the beginning of the turn.
    pipes_before: PipeState,
    verdict: Option<(u64, Verdict)>,
}

/// How a leader ended, as far as the test says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaderEnd {
    NotKnown,
    ByItself,
}

/// Whether anybody may still write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PipeState {
    Held,
    Ended,
}

/// Watches a run on the simulated kernel.
#[derive(Debug)]
pub struct WorldOracle {
    pub(super) conditions: Conditions,
    turn: u64,
    pub(super) all: BTreeMap<Generation, Watched>,
    walked: BTreeSet<Edge>,
}

impl WorldOracle {
    /// An oracle of a run in which nothing was started yet.
    pub fn new(conditions: Conditions) -> WorldOracle {
        WorldOracle {
            conditions,
            turn: 0,
            all: BTreeMap::new(),
            walked: BTreeSet::new(),
        }
    }

    /// A fault has been planted that makes the kernel tell less of the truth.
    pub fn lower_clarity(&mut self, clarity: Clarity) {
        self.conditions.clarity = self.conditions.clarity.max(clarity);
    }

    /// A generation has just been started.
    pub fn started(
        &mut self,
        reactor: &mut Reactor<Sim>,
        generation: Generation,
        started: Started,
    ) {
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
        let watched = Watched {
            script: started.script,
            pid,
            birth: process.birth,
            pipes: [pipe(1), pipe(2)],
            cookie: process.cookie,
            cgroup: process.cgroup,
            history: History::default(),
            state: "Spawning",
            exit_code: started.exit_code,
            end: LeaderEnd::NotKnown,
            leader_wrote: 0,
            exited: None,
            pipes_before: PipeState::Held,
            verdict: None,
        };
        assert!(
            self.all.insert(generation, watched).is_none(),
            "a key was used twice: {}",
            self.conditions.run
        );
    }

    /// The leader has written so many bytes more to stdout.
    pub fn leader_wrote(&mut self, generation: Generation, n: usize) {
        self.watched(generation).leader_wrote += n as u64;
    }

    /// The leader has ended by itself, before anybody has stopped it.
    pub fn ended_by_itself(&mut self, generation: Generation) {
        self.watched(generation).end = LeaderEnd::ByItself;
    }

    /// The host has detached the generation: it is told nothing more of it.
    pub fn detached(&mut self, generation: Generation) {
        self.walk(generation, "Gone");
    }

    /// Whether the host has detached the generation.
    pub fn is_detached(&self, generation: Generation) -> bool {
        self.all[&generation].state == "Gone"
    }

    /// What the host was told of a generation.
    pub fn history(&self, generation: Generation) -> &History {
        &self.all[&generation].history
    }

    /// All generations, in the order of their keys.
    pub fn generations(&self) -> impl Iterator<Item = Generation> {
        self.all.keys().copied()
    }

    /// The process id of a generation's leader.
    pub fn leader(&self, generation: Generation) -> u32 {
        self.all[&generation].pid
    }

    fn watched(&mut self, generation: Generation) -> &mut Watched {
        match self.all.get_mut(&generation) {
            Some(watched) => watched,
            None => panic!("{generation} was never started: {}", self.conditions.run),
        }
    }

    fn walk(&mut self, generation: Generation, to: &'static str) {
        let watched = self.watched(generation);
        let edge = (watched.state, to);
        watched.state = to;
        self.walked.insert(edge);
    }

    /// Fails, with everything that is known of a generation.
    #[track_caller]
    pub(super) fn fail(&self, watched: &Watched, what: &str, detail: &dyn Debug) -> ! {
        panic!(
            "{what}: {detail:?}\nrun: {}\ngeneration: {watched:#?}",
            self.conditions.run
        )
    }

    // ------------------------------------------------------------------ events

    /// Takes every event that waits.
    pub fn take_events(&mut self, reactor: &mut Reactor<Sim>) {
        self.take_some_events(reactor, u64::MAX, |_, _| ());
    }

    /// Takes at most `most` events that wait. `also` sees each of them, and the time.
    pub fn take_some_events(
        &mut self,
        reactor: &mut Reactor<Sim>,
        most: u64,
        mut also: impl FnMut(Ns, &Event<'_>),
    ) {
        for _ in 0..most {
            let now = reactor.sim().now();
            let Some(event) = reactor.next_event() else {
                return;
            };
            also(now, &event);
            let generation = event.generation();
            self.event(event);
            if self.all[&generation].history.report.is_some() {
                self.watched(generation).history.kept =
                    Stream::ALL.map(|stream| reactor.take(generation, stream));
                self.check_closed(reactor.sim(), generation);
            }
        }
    }

    fn event(&mut self, event: Event<'_>) {
        let (generation, turn) = (event.generation(), self.turn);
        let bounds = self.conditions.drain_bounds;
        let watched = self.watched(generation);
        if matches!(watched.state, "Gone" | "Closed") {
            let watched = &self.all[&generation];
            self.fail(watched, "an event after the end", &event);
        }
        let mut to = None;
        match &event {
            Event::Started { pid, .. } => {
                assert_eq!(*pid, watched.pid, "the process id in {event:?}");
                to = Some("Running");
            }
            Event::SpawnFailed { .. } => to = Some("Failed"),
            Event::Exited { .. } => {
                watched.exited = Some((turn, watched.pipes_before));
                to = Some("Exited");
            }
            Event::Drained { drain, .. } => {
                watched.verdict = Some((turn, drain.verdict));
                let waited = |place: usize| bounds.is_none_or(|all| drain.waited >= all[place]);
                let is_right = match drain.ended_by {
                    Some(EndedBy::Idle) => waited(0),
                    Some(EndedBy::Limit) => waited(1),
                    Some(EndedBy::Eof | EndedBy::Stop | EndedBy::Deadline) => true,
                    None => drain.verdict == Verdict::Unfinished,
                };
                let is_after_exit =
                    watched.exited.is_some() || drain.verdict == Verdict::Unfinished;
                if !is_right || !is_after_exit {
                    let watched = &self.all[&generation];
                    self.fail(watched, "a verdict that is wrong or too early", drain);
                }
                to = Some(match drain.verdict {
                    Verdict::Drained => "Drained",
                    Verdict::DrainTimedOut => "DrainTimedOut",
                    Verdict::Unfinished => "Unfinished",
                });
            }
            Event::Settled { .. } => {
                if watched.exited.is_none() {
                    self.walk(generation, "Unfinished");
                }
                to = Some("Settled");
            }
            Event::Closed { .. } => to = Some("Closed"),
            Event::BackgroundWait { .. } | Event::Output { .. } => {}
        }
        if let Some(to) = to {
            self.walk(generation, to);
        }
        self.watched(generation).history.record(event, turn);
    }

    // ------------------------------------------------------------------ turns

    /// To be called before each turn. Takes the events that calls between the turns have brought: a
    /// stop asks the kernel for the leader, and may see its exit.
    pub fn before_turn(&mut self, reactor: &mut Reactor<Sim>) {
        self.take_events(reactor);
        let world = reactor.sim().world();
        let has_ended = |id: &PipeId| world.pipe(*id).is_none_or(Pipe::no_writer);
        for watched in self.all.values_mut() {
            watched.pipes_before = if watched.pipes.iter().flatten().all(has_ended) {
                PipeState::Ended
            } else {
                PipeState::Held
            };
        }
    }

    /// To be called after each turn, once its events are taken. Only where calls take no time.
    pub fn after_turn(&mut self, reactor: &mut Reactor<Sim>) {
        let turn = self.turn;
        self.turn += 1;
        let world = reactor.sim().world();
        let open = |w: &&Watched| !matches!(w.state, "Gone" | "Closed");
        for watched in self.all.values().filter(open) {
            if watched.exited == Some((turn, PipeState::Ended))
                && watched.verdict != Some((turn, Verdict::Drained))
            {
                self.fail(
                    watched,
                    "end of file was there at the exit",
                    &watched.verdict,
                );
            }
            if watched.history.settled().is_some() || watched.state == "Failed" {
                continue;
            }
            // Whoever may still write has a reader until the settling.
            for id in watched.pipes.iter().flatten() {
                let has_reader = world
                    .pipe(*id)
                    .is_none_or(|pipe| pipe.no_writer() || matches!(pipe.host, HostEnd::Open(_)));
                if !has_reader {
                    self.fail(watched, "a read end was closed too early", id);
                }
            }
        }
    }

    /// The end of a run in which every process has ended: nothing may be left of anything. Returns
    /// the edges of the state diagram that were walked.
    pub fn finish(self, reactor: &mut Reactor<Sim>) -> BTreeSet<Edge> {
        let run = &self.conditions.run;
        self.check_all_closed(reactor);
        assert_eq!(reactor.next_deadline(), None, "a timer is armed: {run}");
        let detached = |pid: u32| {
            self.all
                .values()
                .any(|watched| watched.state == "Gone" && watched.pid == pid)
        };
        let world = reactor.sim().world();
        assert_eq!(world.cgroups().count(), 0, "cgroups are left: {run}");
        let children: Vec<u32> = world
            .processes()
            .filter(|p| p.ppid == HOST && !detached(p.pid))
            .map(|p| p.pid)
            .collect();
        assert!(children.is_empty(), "{children:?} were not reaped: {run}");
        let open: Vec<PipeId> = world
            .pipes()
            .filter(|(_, pipe)| pipe.host != HostEnd::Closed)
            .map(|(id, _)| id)
            .collect();
        assert!(open.is_empty(), "{open:?} are open: {run}");
        self.walked
    }

    /// The end of a run: every generation is closed or detached, the loop has nothing left to do,
    /// and the kernel was never misused.
    pub fn check_all_closed(&self, reactor: &mut Reactor<Sim>) {
        let run = &self.conditions.run;
        for watched in self.all.values() {
            if !matches!(watched.state, "Closed" | "Gone") {
                self.fail(watched, "not closed at the end", &watched.state);
            }
        }
        assert!(!reactor.has_events() && !reactor.is_busy(), "{run}");
        let sim = reactor.sim();
        assert_eq!(sim.violations(), [], "{run}");
        assert_eq!(sim.generations(), 0, "{run}");
        let empty: Vec<&str> = sim
            .world()
            .cgroups()
            .filter(|(_, populated)| !populated)
            .map(|(path, _)| path)
            .collect();
        assert!(empty.is_empty(), "{empty:?} are empty and left: {run}");
    }
}
