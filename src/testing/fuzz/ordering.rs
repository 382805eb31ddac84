//! The loop on the simulated kernel, under operations of the host and of the world in any order.

use super::Bytes;
use crate::command::{Capture, CgroupOptions, Command, Containment};
use crate::kernel::sim::{Call, Fault, Sim, SimEnd, SimOptions, faults};
use crate::reactor::{Generation, Reactor, Stopping};
use crate::report::SettledAs;
use crate::testing::oracle::{Clarity, Conditions, Pace, Started, WorldOracle};
use crate::types::{
    BackgroundPolicy, DrainPolicy, Exit, ExitSource, MemberWatch, Ns, Signal, StatusSource,
    StopPolicy, Stream, Wait,
};
use std::time::Duration;

/// Who may be started. What a leader does not do by itself the operations do.
const SCRIPTS: [&str; 7] = [
    "on USR1 { close stdout; close stderr }; sleep forever",
    "on USR1 { close stdout }; fork { on USR1 { close stdout; close stderr }; sleep forever }; sleep forever",
    "on USR1 { close stderr }; fork { ignore TERM; on USR1 { exit 1 }; sleep forever }; fork { sleep forever }; sleep forever",
    "on USR1 { echo stdout \"asked\" }; fork { setsid; on USR1 { close stdout }; sleep forever }; sleep forever",
    "on USR1 { close stdout }; fork { close stdout; close stderr; sleep forever }; sleep forever",
    "on USR1 { stop }; fork { on USR1 { repeat 5 { sleep 30ms; echo stderr \"tick\" } }; sleep forever }; sleep forever",
    "on USR1 { close stdout }; unkillable; sleep forever",
];

/// Generations in one run, and operations.
const MOST: usize = 5;
const OPERATIONS: usize = 80;
const TURNS: u32 = 2_000;
/// What a leader exits with if it ends by itself.
const EXIT_CODE: i32 = 7;
const MILLIS: [u64; 8] = [0, 1, 30, 100, 201, 310, 1_002, 5_003];

/// What the host does between turns.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Start,
    Turn,
    Pass,
    Stop,
    Kill,
    Detach,
    Put,
    End,
    Usr1,
    Fault,
    Steal,
    Look,
}

const ALL: [Operation; 12] = [
    Operation::Start,
    Operation::Turn,
    Operation::Pass,
    Operation::Stop,
    Operation::Kill,
    Operation::Detach,
    Operation::Put,
    Operation::End,
    Operation::Usr1,
    Operation::Fault,
    Operation::Steal,
    Operation::Look,
];

struct One {
    generation: Generation,
    /// It withstands signals: a stop may have begun long before its end.
    is_deaf: bool,
    leader: u32,
    birth: u64,
}

struct Run<'a> {
    from: Bytes<'a>,
    reactor: Reactor<Sim>,
    oracle: WorldOracle,
    bounds: [Duration; 2],
    all: Vec<One>,
    ends: Vec<SimEnd>,
}

/// Faults in which nobody ends, nothing is lost, and nothing that has happened is held back: what
/// the oracle asserts holds in spite of them.
fn is_harmless(fault: Fault) -> bool {
    match fault {
        Fault::SlowExec(_)
        | Fault::Stalled(_)
        | Fault::Interrupted
        | Fault::ReadLater(_)
        | Fault::ShortRead(_) => true,
        Fault::SpuriousExit
        | Fault::SpuriousReadable(_)
        | Fault::SpuriousWritable
        | Fault::SpuriousMember => true,
        Fault::SpuriousCgroup | Fault::SpuriousOutcome | Fault::SpuriousWake => true,
        Fault::WriteLater
        | Fault::ShortWrite(_)
        | Fault::Incomplete
        | Fault::Scan(_)
        | Fault::Refused(_) => true,
        Fault::Watch(errno) => errno.raw() != libc::ESRCH,
        // A leader that has ended is not seen to before its outcome is.
        Fault::OutcomeLater => false,
        Fault::Spawn(..)
        | Fault::Wait(_)
        | Fault::Late(_)
        | Fault::Merged(_)
        | Fault::Read(..)
        | Fault::Write(_) => false,
        Fault::NoReader
        | Fault::NotYet(_)
        | Fault::Stolen
        | Fault::Denied
        | Fault::NoWay
        | Fault::Gone => false,
    }
}

/// Plays what the bytes say, then lets everything come to its end.
pub fn ordering(input: &[u8]) {
    let mut from = Bytes(input);
    let kind = from.byte();
    let mut options = SimOptions::seeded(u64::from(kind));
    (options.call_cost, options.read_rate) = (Ns::ZERO, 0);
    options.group_signal = kind & 1 == 0;
    if kind & 2 != 0 {
        options.exit_source = ExitSource::Sigchld;
    }
    if kind & 12 == 12 {
        options.members = MemberWatch::Polling;
    }
    let millis = |byte: u8| Duration::from_millis(MILLIS[usize::from(byte) % MILLIS.len()]);
    let bounds = [millis(from.byte()), millis(from.byte())];
    let reactor = Reactor::simulated(options);
    let oracle = WorldOracle::new(Conditions {
        run: format!("kind {kind}, bounds {bounds:?}"),
        clarity: Clarity::Clear,
        pace: Pace::Instant,
        drain_bounds: Some(bounds),
    });
    let mut run = Run {
        from,
        reactor,
        oracle,
        bounds,
        all: Vec::new(),
        ends: Vec::new(),
    };
    run.start();
    for _ in 0..OPERATIONS {
        if run.from.is_over() {
            break;
        }
        let operation = ALL[usize::from(run.from.below(ALL.len() as u16))];
        run.operate(operation);
    }
    run.end();
}

impl Run<'_> {
    fn operate(&mut self, operation: Operation) {
        let at = usize::from(self.from.byte()) % self.all.len();
        let One {
            generation,
            leader,
            is_deaf,
            ..
        } = self.all[at];
        match operation {
            Operation::Start => self.start(),
            Operation::Turn => self.turns(),
            Operation::Pass => {
                let millis = MILLIS[usize::from(self.from.byte()) % MILLIS.len()];
                self.reactor.sim().advance(Ns::from_millis(millis));
            }
            Operation::Stop => {
                let policy = match self.from.below(3) {
                    0 => None,
                    1 => Some(StopPolicy::default().grace(Duration::ZERO)),
                    _ => Some(
                        StopPolicy::default()
                            .grace(Duration::from_millis(30))
                            .signal(Signal::INT),
                    ),
                };
                let _ = self.reactor.stop(generation, policy);
            }
            Operation::Kill => {
                let _ = self.reactor.kill(generation);
            }
            Operation::Detach => self.let_go(generation),
            Operation::Put => self.put(at),
            Operation::End => {
                let (pid, is_leader) = self.somebody(at);
                let exit = Exit::with_code(EXIT_CODE, StatusSource::Waitid);
                if self.reactor.sim().world_mut().end(pid, exit) && is_leader && !is_deaf {
                    self.oracle.ended_by_itself(generation);
                }
            }
            Operation::Usr1 => {
                let (pid, _) = self.somebody(at);
                self.reactor.sim().world_mut().kill(pid, Signal::USR1);
            }
            Operation::Fault => {
                let list: Vec<(Call, Fault)> = faults::all()
                    .into_iter()
                    .filter(|(_, fault)| is_harmless(*fault))
                    .collect();
                let (call, fault) = list[usize::from(self.from.below(list.len() as u16))];
                self.reactor.sim().inject_at(call, fault);
                if matches!(call, Call::Scan | Call::Probe | Call::Watch) {
                    self.oracle.lower_clarity(Clarity::IncompleteScans);
                }
            }
            Operation::Steal => self.reactor.sim().world_mut().steal(leader),
            Operation::Look => self.look(generation),
        }
    }

    fn start(&mut self) {
        if self.all.len() == MOST {
            return;
        }
        let [idle, limit] = self.bounds;
        let background = BackgroundPolicy::settle()
            .grace(Duration::from_millis(100))
            .wait(Wait::For(Duration::from_millis(700)));
        let script = SCRIPTS[usize::from(self.from.below(SCRIPTS.len() as u16))];
        let mut command = Command::new("sim");
        command
            .arg(script)
            .drain(DrainPolicy::default().idle(idle).limit(limit))
            .stop(
                StopPolicy::default()
                    .grace(Duration::from_millis(300))
                    .stuck_after(Duration::from_millis(500)),
            )
            .background(background.terminate_grace(Duration::from_millis(30)))
            .run_limit(Duration::from_secs(20));
        let how = self.from.byte();
        match how >> 1 & 3 {
            2 => command.containment(Containment::Cookie),
            3 => command.containment(Containment::Cgroup(CgroupOptions::default())),
            _ => &mut command,
        };
        if how & 1 == 1 {
            command.stdout(
                Capture::default()
                    .deliver(true)
                    .high_water_mark(4096)
                    .max_bytes(100),
            );
        }
        let generation = self.reactor.start(&command).expect("nothing is refused");
        let started = Started {
            script: script.to_owned(),
            exit_code: Some(EXIT_CODE),
        };
        self.oracle.started(&mut self.reactor, generation, started);
        let leader = self
            .reactor
            .pid(generation)
            .expect("it has just been started");
        let birth = self
            .reactor
            .sim()
            .world()
            .process(leader)
            .map_or(0, |p| p.birth);
        self.all.push(One {
            generation,
            is_deaf: script.contains("unkillable"),
            leader,
            birth,
        });
    }

    /// Somebody of a generation's family, and whether it is the leader.
    fn somebody(&mut self, at: usize) -> (u32, bool) {
        let One { leader, birth, .. } = self.all[at];
        let place = usize::from(self.from.byte());
        let family: Vec<u32> = self
            .reactor
            .sim()
            .world()
            .processes()
            .filter(|p| p.family == birth)
            .map(|p| p.pid)
            .collect();
        let pid = family
            .get(place % family.len().max(1))
            .copied()
            .unwrap_or(0);
        (pid, pid == leader)
    }

    fn put(&mut self, at: usize) {
        let (pid, is_leader) = self.somebody(at);
        let stream = if self.from.byte() & 1 == 0 {
            Stream::Stdout
        } else {
            Stream::Stderr
        };
        let bytes = vec![b'x'; usize::from(self.from.byte()) * 9 + 1];
        let n = self.reactor.sim().world_mut().put(pid, stream, &bytes);
        if is_leader && stream == Stream::Stdout {
            self.oracle.leader_wrote(self.all[at].generation, n);
        }
    }

    fn let_go(&mut self, generation: Generation) {
        // What was told up to here is asked for: after it nothing may come.
        self.oracle.take_events(&mut self.reactor);
        let Ok(detached) = self.reactor.detach(generation) else {
            return;
        };
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
        self.oracle.detached(generation);
    }

    fn look(&mut self, generation: Generation) {
        let live = self.reactor.stats().live;
        assert!(live <= self.all.len() as u64);
        if self.reactor.pid(generation).is_none() {
            assert_eq!(self.reactor.stop(generation, None), Stopping::Gone);
            assert!(self.reactor.kept(generation, Stream::Stdout).is_none());
        }
        let _ = self.reactor.next_deadline();
    }

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
        panic!("no end of the work of one moment");
    }

    fn end(mut self) {
        self.turns();
        let mut turns = 0;
        while self.reactor.is_busy() {
            turns += 1;
            assert!(turns < TURNS, "no end");
            self.oracle.before_turn(&mut self.reactor);
            let _turn = self.reactor.turn(None).expect("nobody waits for nothing");
            self.oracle.take_events(&mut self.reactor);
            self.oracle.after_turn(&mut self.reactor);
        }
        let sim = self.reactor.sim();
        for One { leader, .. } in &self.all {
            sim.world_mut().thaw(*leader);
        }
        let pids: Vec<u32> = sim
            .world()
            .processes()
            .filter(|p| self.all.iter().any(|one| one.birth == p.family))
            .map(|p| p.pid)
            .collect();
        for pid in pids {
            sim.world_mut().kill(pid, Signal::KILL);
        }
        for end in std::mem::take(&mut self.ends) {
            sim.raw_close(end);
        }
        sim.advance(Ns::from_millis(3_000));
        self.turns();
        for generation in self.oracle.generations() {
            let settled = self.oracle.history(generation).settled();
            let unknown = [SettledAs::Reported, SettledAs::Kept, SettledAs::Disabled];
            assert!(settled.is_none_or(|settled| !unknown.contains(&settled.state)));
        }
        self.oracle.finish(&mut self.reactor);
    }
}
