//! One order, played from the beginning to the end.

use lastwords::__internals::testing::oracle::{
    Clarity, Conditions, Edge, Pace, Started, WorldOracle,
};
use lastwords::sim::{Fault, Ns, Script, Sim, SimEnd, SimOptions};
use lastwords::{
    BackgroundPolicy, Command, Containment, DrainPolicy, Errno, Exit, ExitSource, Generation,
    Reactor, SettledAs, Signal, SpawnStep, StatusSource, StopPolicy, Stopping, Stream, Verdict,
    Wait,
};
use std::collections::BTreeSet;
use std::time::Duration;

const IDLE: Duration = Duration::from_millis(200);
const LIMIT: Duration = Duration::from_secs(1);
const GRACE: Duration = Duration::from_millis(300);
const STUCK: Duration = Duration::from_millis(500);
const BACKGROUND_GRACE: Duration = Duration::from_millis(100);
const WAIT: Duration = Duration::from_millis(700);
const RUN_LIMIT: Duration = Duration::from_secs(5);
const SLOW_EXEC: Duration = Duration::from_millis(50);
/// A timer is at most a tick late.
const TICK: Duration = Duration::from_millis(2);
/// Turns that end everything, and more.
const TURNS: u32 = 400;

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    /// The leader writes.
    Bytes,
    /// The other one writes.
    OtherBytes,
    /// The leader closes its pipes.
    Eof,
    /// The leader ends by itself.
    Exit,
    /// The other one ends by itself.
    OtherEnds,
    /// The spawn's outcome comes to be.
    Exec,
    /// So much time passes that the bound is reached: the idle bound, and so on.
    Idle,
    Limit,
    Grace,
    BackgroundGrace,
    Wait,
    RunLimit,
    Stuck,
    /// The host stops it.
    Stop,
    Kill,
    /// The host lets it go.
    Detach,
    /// The host starts another.
    Restart,
    /// Notices for nothing, and calls for a generation that is closed.
    Stray,
    /// Somebody else reaps the leader.
    Steal,
    /// An unkillable leader can be killed again.
    Thaw,
}

/// How the leader is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leader {
    Sleeps,
    /// Its exec takes its time.
    IsSlow,
    CannotStart,
    IsUnkillable,
}

/// Who else there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Other {
    Nobody,
    Holds,
    HoldsAndIsDeaf,
    /// In the group, without the pipes.
    WorksInTheBackground,
    /// In a session of its own, with the pipes.
    Escapes,
    /// The same, and it ignores SIGTERM.
    EscapesAndIsDeaf,
    /// In a session of its own, without the pipes.
    EscapesAndWorks,
}

/// Who there is and what happens.
pub(crate) struct Cast {
    pub(crate) leader: Leader,
    pub(crate) other: Other,
    pub(crate) moves: Vec<Move>,
    /// The first of two cannot come after the second.
    pub(crate) rules: Vec<(Move, Move)>,
    /// What sees whoever has left the group.
    pub(crate) contain: Containment,
}

impl Cast {
    pub(crate) fn new(leader: Leader, other: Other, moves: &[Move]) -> Cast {
        Cast {
            leader,
            other,
            moves: moves.to_vec(),
            rules: Vec::new(),
            contain: Containment::Group,
        }
    }

    pub(crate) fn rules(mut self, rules: &[(Move, Move)]) -> Cast {
        self.rules = rules.to_vec();
        self
    }

    pub(crate) fn contained(mut self, contain: Containment) -> Cast {
        self.contain = contain;
        self
    }

    fn script(&self) -> String {
        let other = match self.other {
            Other::Nobody => "",
            Other::Holds => "fork { sleep forever }; ",
            Other::HoldsAndIsDeaf => "fork { ignore TERM; sleep forever }; ",
            Other::WorksInTheBackground => "fork { close stdout; close stderr; sleep forever }; ",
            Other::Escapes => "fork { setsid; sleep forever }; ",
            Other::EscapesAndIsDeaf => "fork { setsid; ignore TERM; sleep forever }; ",
            Other::EscapesAndWorks => {
                "fork { setsid; close stdout; close stderr; sleep forever }; "
            }
        };
        let rest = if self.leader == Leader::IsUnkillable {
            "unkillable; "
        } else {
            ""
        };
        format!("on USR1 {{ close stdout; close stderr }}; {other}{rest}sleep forever")
    }
}

fn policies(command: &mut Command) {
    let background = BackgroundPolicy::settle()
        .grace(BACKGROUND_GRACE)
        .wait(Wait::For(WAIT))
        .terminate_grace(GRACE);
    command
        .drain(DrainPolicy::default().idle(IDLE).limit(LIMIT))
        .stop(StopPolicy::default().grace(GRACE).stuck_after(STUCK))
        .background(background)
        .run_limit(RUN_LIMIT);
}

/// The run, and who is in it.
pub(crate) struct Run<'a> {
    pub(crate) reactor: Reactor<Sim>,
    pub(crate) oracle: WorldOracle,
    cast: &'a Cast,
    first: Generation,
    old: Generation,
    leader: u32,
    other: Option<u32>,
    ends: Vec<SimEnd>,
    told: String,
}

/// Plays one order; the edges that were walked. `joined`: bit N puts happening N into the turn of
/// the next one. `old`: a kernel without the group flag and without pidfds to wait on.
pub(crate) fn play(cast: &Cast, order: &[Move], joined: u32, old: bool) -> BTreeSet<Edge> {
    let mut run = Run::begin(
        cast,
        old,
        format!("{order:?}, joined {joined:#b}, old kernel: {old}"),
    );
    for (place, happening) in order.iter().enumerate() {
        run.happen(*happening);
        if joined & (1 << place) == 0 {
            run.turns();
        }
    }
    run.end()
}

impl<'a> Run<'a> {
    fn begin(cast: &'a Cast, old: bool, told: String) -> Run<'a> {
        let mut options = SimOptions::seeded(1);
        // Nothing can happen between two calls of a turn: a turn sees one moment.
        (options.call_cost, options.read_rate) = (Ns::ZERO, 0);
        options.group_signal = !old;
        if old {
            options.exit_source = ExitSource::Sigchld;
        }
        let mut reactor = Reactor::simulated(options);
        let mut oracle = WorldOracle::new(Conditions {
            run: told.clone(),
            clarity: Clarity::Clear,
            pace: Pace::Instant,
            drain_bounds: Some([IDLE, LIMIT]),
        });
        let old = start(&mut reactor, &mut oracle, "exit 0", 0, Containment::Group);
        while reactor.is_busy() {
            let _turn = reactor.turn(None).expect("a turn");
            oracle.take_events(&mut reactor);
        }
        match cast.leader {
            Leader::IsSlow => reactor.sim().inject(Fault::SlowExec(Ns::from(SLOW_EXEC))),
            Leader::CannotStart => {
                reactor.sim().inject(Fault::SlowExec(Ns::from(SLOW_EXEC)));
                reactor
                    .sim()
                    .inject(Fault::Spawn(SpawnStep::Exec, Errno::from_raw(libc::ENOENT)));
            }
            Leader::Sleeps | Leader::IsUnkillable => {}
        }
        let first = start(
            &mut reactor,
            &mut oracle,
            &cast.script(),
            3,
            cast.contain.clone(),
        );
        let leader = reactor.pid(first).expect("it has been started");
        let mut run = Run {
            reactor,
            oracle,
            cast,
            first,
            old,
            leader,
            other: None,
            ends: Vec::new(),
            told,
        };
        if matches!(cast.leader, Leader::Sleeps | Leader::IsUnkillable) {
            run.pass(Duration::from_millis(1));
            run.turns();
        }
        let world = run.reactor.sim().world();
        run.other = world.processes().find(|p| p.ppid == leader).map(|p| p.pid);
        assert_eq!(
            run.other.is_some(),
            cast.other != Other::Nobody,
            "{}",
            run.told
        );
        run
    }

    fn pass(&mut self, time: Duration) {
        self.reactor.sim().advance(Ns::from(time));
    }

    fn happen(&mut self, happening: Move) {
        let other = self.other.unwrap_or(0);
        let sim = self.reactor.sim();
        match happening {
            Move::Bytes => {
                let n = sim
                    .world_mut()
                    .put(self.leader, Stream::Stdout, b"of the leader\n");
                self.oracle.leader_wrote(self.first, n);
            }
            Move::OtherBytes => {
                sim.world_mut()
                    .put(other, Stream::Stderr, b"of the other\n");
            }
            Move::Eof => {
                sim.world_mut().kill(self.leader, Signal::USR1);
                self.pass(Duration::from_micros(10));
            }
            Move::Exit => {
                if sim.world_mut().end(self.leader, code(3)) {
                    self.oracle.ended_by_itself(self.first);
                }
            }
            Move::OtherEnds => {
                sim.world_mut().end(other, code(0));
            }
            Move::Exec => self.pass(SLOW_EXEC + TICK),
            Move::Idle => self.pass(IDLE + TICK),
            Move::Limit => self.pass(LIMIT + TICK),
            Move::Grace => self.pass(GRACE + TICK),
            Move::BackgroundGrace => self.pass(BACKGROUND_GRACE + TICK),
            Move::Wait => self.pass(WAIT + TICK),
            Move::RunLimit => self.pass(RUN_LIMIT + TICK),
            Move::Stuck => self.pass(STUCK + TICK),
            Move::Stop => {
                let _ = self.reactor.stop(self.first, None);
            }
            Move::Kill => {
                let _ = self.reactor.kill(self.first);
            }
            Move::Detach => self.let_go(),
            Move::Restart => {
                start(
                    &mut self.reactor,
                    &mut self.oracle,
                    "print stdout \"two\\n\"; exit 0",
                    0,
                    Containment::Group,
                );
            }
            Move::Stray => self.stray(),
            Move::Steal => sim.world_mut().steal(self.leader),
            Move::Thaw => sim.world_mut().thaw(self.leader),
        }
    }

    fn let_go(&mut self) {
        // What was told up to here is asked for: after it nothing may come.
        self.oracle.take_events(&mut self.reactor);
        let Ok(detached) = self.reactor.detach(self.first) else {
            return;
        };
        assert_eq!(detached.pid, self.leader, "{}", self.told);
        self.ends.extend(
            [
                detached.pidfd,
                detached.stdin,
                detached.stdout,
                detached.stderr,
            ]
            .into_iter()
            .flatten(),
        );
        self.oracle.detached(self.first);
    }

    fn stray(&mut self) {
        for fault in [
            Fault::SpuriousExit,
            Fault::SpuriousReadable(Stream::Stdout),
            Fault::SpuriousReadable(Stream::Stderr),
        ] {
            self.reactor.sim().inject(fault);
        }
        assert_eq!(self.reactor.stop(self.old, None), Stopping::Gone);
        assert_eq!(self.reactor.kill(self.old), Stopping::Gone);
        assert!(self.reactor.detach(self.old).is_err());
        assert!(!self.reactor.close_output(self.old, Stream::Stdout));
        assert_eq!(self.reactor.pid(self.old), None);
    }

    /// The host does what there is to be done now.
    fn turns(&mut self) {
        for _ in 0..TURNS {
            self.oracle.before_turn(&mut self.reactor);
            let turn = self.reactor.turn(Some(Duration::ZERO)).expect("a turn");
            self.oracle.take_events(&mut self.reactor);
            self.oracle.after_turn(&mut self.reactor);
            if !turn.more {
                return;
            }
        }
        panic!("no end of the work in one moment: {}", self.told);
    }

    fn end(mut self) -> BTreeSet<Edge> {
        self.turns();
        let mut turns = 0;
        while self.reactor.is_busy() {
            turns += 1;
            assert!(turns < TURNS, "no end: {}", self.told);
            self.oracle.before_turn(&mut self.reactor);
            let _turn = self
                .reactor
                .turn(None)
                .unwrap_or_else(|e| panic!("{e}: {}", self.told));
            self.oracle.take_events(&mut self.reactor);
            self.oracle.after_turn(&mut self.reactor);
        }
        // An unkillable one can be killed in the end, and is reaped though nobody asks for it.
        self.reactor.sim().world_mut().thaw(self.leader);
        self.pass(Duration::from_secs(3));
        self.turns();
        let unseen = self.cast.other == Other::Escapes && self.cast.contain == Containment::Group;
        let escaped = unseen || self.oracle.is_detached(self.first);
        if escaped {
            for pid in [Some(self.leader), self.other].into_iter().flatten() {
                self.reactor.sim().world_mut().kill(pid, Signal::KILL);
            }
        }
        for end in std::mem::take(&mut self.ends) {
            self.reactor.sim().raw_close(end);
        }
        self.turns();
        self.check_settled();
        self.oracle.finish(&mut self.reactor)
    }

    /// Whoever only exits is drained and leaves nobody, whatever happens to the others.
    fn check_settled(&self) {
        for generation in self.oracle.generations() {
            let history = self.oracle.history(generation);
            let settled = history.settled().map(|settled| settled.state);
            let by_policy = [SettledAs::Reported, SettledAs::Kept, SettledAs::Disabled];
            assert!(
                settled.is_none_or(|state| !by_policy.contains(&state)),
                "{history:?}: {}",
                self.told
            );
            if generation != self.first {
                let verdict = history.drain().map(|drain| drain.verdict);
                assert_eq!(
                    (verdict, settled),
                    (Some(Verdict::Drained), Some(SettledAs::None)),
                    "{history:?}: {}",
                    self.told
                );
            }
        }
    }
}

/// Starts a script; `code` is what it exits with when it ends by itself.
fn start(
    reactor: &mut Reactor<Sim>,
    oracle: &mut WorldOracle,
    script: &str,
    code: i32,
    contain: Containment,
) -> Generation {
    assert!(Script::parse(script).is_ok(), "{script}");
    let mut command = Command::new("sim");
    command.arg(script).containment(contain);
    policies(&mut command);
    let generation = reactor.start(&command).expect("the simulation starts it");
    let started = Started {
        script: script.to_owned(),
        exit_code: Some(code),
    };
    oracle.started(reactor, generation, started);
    generation
}

fn code(code: i32) -> Exit {
    Exit::with_code(code, StatusSource::Waitid)
}
