//! A simulated kernel with a virtual clock: no descriptors, no processes, the same contract.
//!
//! [`Sim`] is made from [`SimOptions`], whose seed decides everything that may come one way or
//! another. Children do what the script says (see [`script`]) that stands in the variable
//! `LASTWORDS_PLAY` of their plan, or else in its first argument: the program can be called
//! anything. A test steers the world through [`Sim::world_mut`] and [`Sim::inject`], and asks
//! [`Sim::violations`] at its end.
//!
//! * Time passes only in calls: every call costs [`SimOptions::call_cost`], every act of a process
//!   costs [`SimOptions::act_cost`], and a [`Kernel::wait`] that finds nothing due jumps to the
//!   earlier of its own end and the next event of the world. Nothing due, no event ahead and
//!   [`Until::Forever`] is `WaitError::Failed(EDEADLK)`: it would sleep for ever. (A thread that
//!   wakes the loop meanwhile cannot be waited for: wake first.)
//! * What contains a generation is there as in Linux: a cookie in the environment, a cgroup of its
//!   own ([`cgroup`]), and orphans that the host inherits or adopts ([`SimOptions::orphans`]).
//! * A thread that panics with a [`Sim`] in its hands prints the seed, the scripts, the faults and
//!   the event log ([`Sim::story`]).
//! * A success of exec wakes nobody, as in Linux: it is told by the next wait, or by the next look
//!   of a long one ([`crate::types::limits::SPAWN_POLL`]).
//! * Notices are edges: told once when something has changed, merged if it changes again before
//!   they are given.

pub mod cgroup;
mod containment;
pub mod fault;
pub mod faults;
mod group;
pub mod log;
mod notice;
mod parse;
pub mod pipe;
pub mod process;
pub mod random;
mod repro;
mod run;
pub mod script;
mod signals;
mod streams;
mod table;
mod test_control;
#[cfg(test)]
mod tests;
pub mod world;

pub use fault::{Call, Fault, FaultRates};
pub use log::Violation;
pub use script::Script;
pub use world::{Reaper, World};

use super::{
    Batch, Collected, Kernel, Notices, Orphans, Released, Scan, ScanStep, SpawnOutcome, Spawned,
    Until, WaitError, Wake, Wrote, sealed,
};
use crate::command::plan::Plan;
use crate::types::{
    Backend, Capabilities, CollectMode, Errno, ExitSource, Member, MemberWatch, Ns, Probe, Release,
    Signal, Signalled, Slot, SpawnError, SpawnStep, Token,
};
use fault::{Faults, Kind, Planned};
use pipe::PipeId;
use random::Rng;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// How the simulated kernel and its world are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SimOptions {
    /// Everything that may come one way or another follows from it.
    pub seed: u64,
    /// Whether the group is signalled through the leader's pidfd (Linux 6.9).
    pub group_signal: bool,
    /// How the end of a leader is learnt. By SIGCHLD, ends that come together are one notice of
    /// the kernel, and all children are asked.
    pub exit_source: ExitSource,
    /// SIGCHLD never arrives (somebody has replaced the handler): only the look of every second
    /// finds ends.
    pub sigchld_lost: bool,
    /// Whether a pidfd still knows the status when somebody else has reaped the child (Linux
    /// 6.15).
    pub exit_info: bool,
    /// How the end of a member is learnt. By looking, `watch` is refused and members cannot be
    /// signalled one by one.
    pub members: MemberWatch,
    /// Who reaps the host's children.
    pub reaper: Reaper,
    /// Who is given those whose parent has ended.
    pub orphans: Orphans,
    /// The time that each call of the host takes.
    pub call_cost: Ns,
    /// Bytes that the host's `read` moves in a microsecond; 0 for no time at all.
    pub read_rate: u32,
    /// The time that each act of a process takes, at least 1 ns.
    pub act_cost: Ns,
    /// The time from the birth of a child to the end of its exec.
    pub exec_time: Ns,
    /// Bytes that a pipe holds, if nothing else is asked for.
    pub pipe: u32,
    /// The highest process number; then they begin again.
    pub pid_max: u32,
    /// Tells keys of this kernel from those of another.
    pub tag: u32,
    /// Keep the log, and print it with all that reproduces the run when a thread panics with the
    /// kernel in its hands.
    pub log: bool,
    /// What goes wrong by the seed.
    pub fault_rates: FaultRates,
}

impl Default for SimOptions {
    fn default() -> SimOptions {
        SimOptions {
            seed: 0,
            group_signal: true,
            exit_source: ExitSource::Pidfd,
            sigchld_lost: false,
            exit_info: true,
            members: MemberWatch::Pidfd,
            reaper: Reaper::Host,
            orphans: Orphans::Leave,
            call_cost: Ns(500),
            read_rate: 4096,
            act_cost: Ns(1_000),
            exec_time: Ns(20_000),
            pipe: 64 << 10,
            pid_max: 4_194_304,
            tag: 1,
            log: true,
            fault_rates: FaultRates::default(),
        }
    }
}

impl SimOptions {
    /// The default with this seed.
    pub fn seeded(seed: u64) -> SimOptions {
        SimOptions {
            seed,
            ..SimOptions::default()
        }
    }
}

/// What a host gets instead of a descriptor. Dropping it closes nothing: [`Sim::raw_close`] does.
#[derive(Debug, PartialEq, Eq)]
pub enum SimEnd {
    /// The host's end of a pipe.
    Pipe(PipeId),
    /// A process: its number, and which process it is whatever its number.
    Process(u32, u64),
}

/// Wakes a [`Sim`]: sets a flag that its next wait finds.
#[derive(Clone, Debug)]
pub struct SimWaker {
    flag: Arc<AtomicBool>,
}

impl Wake for SimWaker {
    fn wake(&self) {
        self.flag.store(true, Ordering::Release);
    }
}

/// The simulated kernel object.
#[derive(Debug)]
pub struct Sim {
    options: SimOptions,
    capabilities: Capabilities,
    rng: Rng,
    world: World,
    table: table::Table,
    faults: Faults,
    started: Vec<repro::Started>,
    /// Notices that were not given yet, and when they may be.
    pending: Vec<(Ns, super::Notice)>,
    waker: SimWaker,
    alarm_at: Option<Ns>,
    /// What a host's deadlines are told from. The only thing here that is not of the world.
    origin: Instant,
    /// SIGCHLD mode: when all children are asked next.
    sweep_at: Option<Ns>,
    /// When a sleep looks at the spawns under way, and the pause to the look after that.
    look_at: Ns,
    look_pause: Ns,
    /// Batches read so far.
    batches: u64,
    /// The most batches that were read while an announced exit waited.
    worst_wait: u64,
    /// The look that is under way.
    scan: group::Look,
    /// The leader that every orphan of the host descends from: the host had no child when it was
    /// started, and no other leader was started since. By [`process::Process::birth`].
    orphan_owner: Option<u64>,
    /// What comes about before this is told together then.
    merge_until: Ns,
}

impl Sim {
    /// A new world with nobody in it but the host.
    pub fn new(options: SimOptions) -> Sim {
        let act_cost = options.act_cost.max(Ns(1));
        let pid_max = options.pid_max.max(2000);
        let rules = world::Rules {
            act_cost,
            pid_max,
            reaper: options.reaper,
            orphans: options.orphans,
            log: options.log,
        };
        let pidfds = options.members == MemberWatch::Pidfd;
        let mut capabilities = Capabilities::bare(Backend::Sim, options.exit_source);
        "simulated".clone_into(&mut capabilities.backend_why);
        "as the options say".clone_into(&mut capabilities.exit_why);
        capabilities.clone3 = true;
        capabilities.pidfd_from_clone = pidfds || options.exit_source == ExitSource::Pidfd;
        capabilities.pidfd_open = pidfds;
        capabilities.pidfd_signal = pidfds || options.group_signal;
        capabilities.group_signal = options.group_signal;
        capabilities.exit_info = options.exit_info && options.exit_source == ExitSource::Pidfd;
        capabilities.close_range = true;
        capabilities.nosignal_write = true;
        capabilities.members = options.members;
        Sim {
            options,
            capabilities,
            rng: Rng::new(options.seed),
            world: World::new(rules),
            table: table::Table::default(),
            faults: Faults::default(),
            started: Vec::new(),
            pending: Vec::new(),
            waker: SimWaker {
                flag: Arc::new(AtomicBool::new(false)),
            },
            alarm_at: None,
            origin: Instant::now(),
            sweep_at: None,
            look_at: Ns::ZERO,
            look_pause: Ns::ZERO,
            batches: 0,
            worst_wait: 0,
            scan: group::Look::default(),
            orphan_owner: None,
            merge_until: Ns::ZERO,
        }
    }

    fn tick(&mut self) {
        let end = self.world.now.after(self.options.call_cost);
        self.world.run_until(end);
    }

    // ------------------------------------------------------------------ for tests

    /// Moves the clock while the host does nothing (a loaded machine, a suspended host).
    pub fn advance(&mut self, by: Ns) {
        let end = self.world.now.after(by);
        self.world.run_until(end);
    }

    /// The simulated processes, groups and pipes.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The world, to be changed behind the host's back.
    pub fn world_mut(&mut self) -> &mut World {
        &mut self.world
    }

    /// The next call that this fits goes wrong.
    pub fn inject(&mut self, fault: Fault) {
        self.inject_at(fault.call(), fault);
    }

    /// The next so many calls that this fits go wrong; `None` for all of them. With a slot, only
    /// that generation's.
    pub fn inject_many(&mut self, fault: Fault, only: Option<Slot>, times: Option<u32>) {
        self.faults.add(Planned {
            call: fault.call(),
            fault,
            only,
            times,
        });
    }

    /// The next such call goes wrong: where a fault fits several calls, or EINTR another than
    /// `wait`.
    pub fn inject_at(&mut self, call: Call, fault: Fault) {
        self.faults.add(Planned {
            call,
            fault,
            only: None,
            times: Some(1),
        });
    }

    /// The same by its text (the table on top of [`fault`]); the error says what was expected.
    ///
    /// ```
    /// use lastwords::sim::{Sim, SimOptions};
    /// let mut sim = Sim::new(SimOptions::default());
    /// assert_eq!(sim.inject_text("read stdout EIO"), Ok(()));
    /// assert!(sim.inject_text("read the paper").is_err());
    /// ```
    pub fn inject_text(&mut self, text: &str) -> Result<(), String> {
        faults::parse(text).map(|(call, fault)| self.inject_at(call, fault))
    }

    /// How many faults of each kind were met, those that came by the seed included.
    pub fn faults_met(&self) -> &BTreeMap<Kind, u64> {
        self.faults.met()
    }

    /// Nothing that was injected goes wrong any more.
    pub fn clear_faults(&mut self) {
        self.faults.clear();
    }

    /// Other chances from now on.
    pub fn set_unruly(&mut self, fault_rates: FaultRates) {
        self.options.fault_rates = fault_rates;
    }

    /// What a kernel must never be made to do, and was. Every test ends with this being empty.
    pub fn violations(&self) -> &[Violation] {
        &self.world.violations
    }

    /// What has happened.
    pub fn log(&self) -> &[log::Entry] {
        &self.world.log
    }

    /// Calls and notices whose token was out of date.
    pub fn stale(&self) -> u64 {
        self.table.stale
    }

    /// Generations in the table.
    pub fn generations(&self) -> usize {
        self.table.len()
    }

    /// The most batches that were read between the notice of an exit and its `collect`.
    pub fn worst_wait(&self) -> u64 {
        self.worst_wait
    }

    /// What a descriptor would say: a notice is waiting, or the alarm is due.
    pub fn is_readable(&mut self) -> bool {
        self.readable()
    }

    /// What [`Kernel::alarm`] was told last.
    pub fn alarm_at(&self) -> Option<Ns> {
        self.alarm_at
    }
}

impl sealed::Sealed for Sim {}

impl Kernel for Sim {
    type Raw = SimEnd;
    type Waker = SimWaker;

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn now(&mut self) -> Ns {
        self.world.now
    }

    fn origin(&self) -> Instant {
        self.origin
    }

    fn tag(&self) -> u32 {
        self.options.tag
    }

    fn deadline(&self) -> Option<Ns> {
        // Nothing wakes a wait for the success of an exec, as in Linux: it is looked for.
        let spawning = self.table.iter().any(|(_, entry)| !entry.outcome_told);
        let look = spawning.then(|| {
            self.world
                .now
                .after(Ns::from(crate::types::limits::SPAWN_POLL[0]))
        });
        [look, self.sweep_at].into_iter().flatten().min()
    }

    fn spawn(
        &mut self,
        plan: &Arc<Plan>,
        generation: Token,
    ) -> Result<Spawned<SimEnd>, SpawnError> {
        self.do_spawn(plan, generation)
    }

    fn outcome(&mut self, generation: Token) -> SpawnOutcome {
        self.tick();
        let is_known = self
            .table
            .look(generation)
            .is_some_and(|e| self.world.outcomes.contains_key(&e.leader.birth));
        // With its end announced there is no later.
        let later = is_known
            && self.leader_lives(generation)
            && self
                .take_fault(Call::Outcome, Some(generation), |_| true)
                .is_some();
        let Some(entry) = self.table.get(generation) else {
            return SpawnOutcome::NotYet;
        };
        match self.world.outcomes.get(&entry.leader.birth) {
            None => SpawnOutcome::NotYet,
            Some(_) if later => {
                entry.outcome_told = false;
                SpawnOutcome::NotYet
            }
            Some(outcome) => {
                entry.outcome_told = true;
                match outcome {
                    Ok(()) => SpawnOutcome::Started,
                    Err(error) => SpawnOutcome::Failed(error.clone()),
                }
            }
        }
    }

    fn wait(&mut self, until: Until, out: &mut Notices) -> Result<(), WaitError> {
        self.do_wait(until, out)
    }

    fn read(&mut self, batch: &mut Batch) {
        self.do_read(batch);
    }

    fn write(&mut self, stdin: Token, bytes: &[u8]) -> Wrote {
        self.do_write(stdin, bytes)
    }

    fn close(&mut self, what: Token) {
        self.do_close(what);
    }

    fn collect(&mut self, generation: Token, mode: CollectMode) -> Collected {
        self.do_collect(generation, mode)
    }

    fn signal(&mut self, generation: Token, signal: Signal) -> Signalled {
        self.do_signal(generation, signal)
    }

    fn signal_outside(&mut self, generation: Token, signal: Signal) -> Signalled {
        self.do_signal_outside(generation, signal)
    }

    fn signal_leader(&mut self, generation: Token, signal: Signal) -> Signalled {
        self.do_signal_leader(generation, signal)
    }

    fn probe(&mut self, generation: Token) -> Probe {
        self.do_probe(generation)
    }

    fn scan(&mut self, scan: &mut Scan) -> ScanStep {
        self.do_scan(scan)
    }

    fn watch(&mut self, member: &Member, token: Token) -> Result<(), Errno> {
        self.do_watch(member, token)
    }

    fn release(&mut self, generation: Token, how: Release) -> Released<SimEnd> {
        self.do_release(generation, how)
    }

    fn sleep_until(&mut self, until: Ns) {
        self.world.run_until(until);
    }

    fn alarm(&mut self, at: Option<Ns>) {
        self.alarm_at = at;
    }

    fn waker(&self) -> SimWaker {
        self.waker.clone()
    }
}

/// Steps of a spawn that fail in the host: the call itself is an error, and there is no child.
fn fails_in_host(step: SpawnStep) -> bool {
    matches!(
        step,
        SpawnStep::Command
            | SpawnStep::Find
            | SpawnStep::Pipe
            | SpawnStep::Register
            | SpawnStep::Clone
    )
}
