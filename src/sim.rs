//! A simulated kernel for hosts that test their own use of the loop: no process, no descriptor, a
//! clock that jumps.
//!
//! A [`Reactor`] on a [`Sim`] is the same loop with the same rules; only the kernel beneath it is a
//! world in memory. What the children do is a [`Script`] in the command's first argument (the table
//! of acts is in [`script`]); what may come one way or another follows from [`SimOptions::seed`];
//! and hours pass in microseconds, since a turn that has nothing to do jumps to the next thing that
//! happens.
//!
//! # How a host tests itself
//!
//! 1. Make the part of the host that drives the loop generic over the kernel: `fn drive<K:
//!    Kernel>(reactor: &mut Reactor<K>)`.
//! 2. Give it scripts that are as bad as children can be: they write after the leader's end (`fork
//!    { sleep 3s; echo stdout "late" }`), hold the pipe for ever (`fork { sleep forever }; exit
//!    0`), are deaf (`ignore TERM`), escape (`setsid`), cannot be killed (`unkillable`), or end
//!    while they are being stopped.
//! 3. Run it for some thousand seeds with [`FaultRates::storm`]: notices come late, for nothing and in
//!    another order, reads are short, calls are interrupted. A failure names its seed, and the same
//!    seed is the same run.
//! 4. Make calls go wrong: [`faults::all`] lists every fault that a call can meet,
//!    [`Sim::inject_at`] plants one, and [`Sim::faults_met`] counts those that were met, so that a
//!    test can say that none was left out.
//! 5. Look at the end, by [`Reactor::simulation`](crate::Reactor::simulation): [`Sim::violations`]
//!    is empty unless the loop itself was wrong, [`Sim::generations`] is 0, and what the host
//!    believes of each run is what [`Sim::log`] says has happened.
//!
//! ```
//! use lastwords::sim::{Sim, SimOptions, FaultRates};
//! use lastwords::{Command, Event, Kernel, Outcome, Reactor, Report, TurnError};
//!
//! // The host: it restarts a job that has failed, once.
//! fn drive<K: Kernel>(reactor: &mut Reactor<K>, job: &Command) -> Result<Vec<Report>, TurnError> {
//!     let mut reports = Vec::new();
//!     let mut current = reactor.start(job).ok();
//!     while let Some(event) = reactor.wait_event(None)? {
//!         let Event::Closed { generation, report, .. } = event else { continue };
//!         assert_eq!(Some(generation), current, "an event of a run that is not the current one");
//!         let failed = report.outcome == Some(Outcome::Failed);
//!         reports.push(*report);
//!         current = if failed && reports.len() == 1 { reactor.start(job).ok() } else { None };
//!     }
//!     Ok(reports)
//! }
//!
//! let mut job = Command::new("job");
//! job.arg("fork { sleep 3s; echo stderr \"too late\" }; echo stderr \"no such table\"; exit 1");
//! for seed in 0..50 {
//!     let mut options = SimOptions::seeded(seed);
//!     // Not EMFILE at a start: this host takes a refused one as it is, and there would be fewer than two reports.
//!     options.fault_rates = FaultRates { no_watch: 0, ..FaultRates::storm() };
//!     let mut reactor = Reactor::simulated(options);
//!     let reports = drive(&mut reactor, &job)?;
//!     assert_eq!(reports.len(), 2, "seed {seed}");
//!     assert!(reports.iter().all(|report| report.stderr_tail == ["no such table"]), "seed {seed}");
//!     assert!(reactor.simulation().violations().is_empty(), "seed {seed}");
//! }
//! # Ok::<(), TurnError>(())
//! ```
//!
//! With a fuzzer the bytes of an input take the place of the seed: they choose the script, the
//! faults, and what the host does between two turns.
//!
//! # What leaves the process group
//!
//! All of [`Containment`](crate::Containment) is there. A cookie is inherited by forks and lost in
//! `exec clean "name" { ... }`; a cgroup (below `/sys/fs/cgroup`, the default parent) is left by
//! nobody, tells of its end at most every 10 ms, and is refused as a real one is by `spawn cgroup
//! EACCES`. [`SimOptions::orphans`] makes the host a subreaper.
//!
//! ```
//! use lastwords::sim::{Sim, SimOptions};
//! use lastwords::{BackgroundPolicy, CgroupOptions, Command, Containment, Event, Reactor, SettledAs, Wait};
//! use std::time::Duration;
//!
//! let mut job = Command::new("job");
//! job.arg("fork { setsid; exec clean \"daemon\" { ignore TERM; close stdout; close stderr; sleep forever } }; sleep 10ms; exit 0")
//!     .background(BackgroundPolicy::settle().wait(Wait::For(Duration::from_secs(60))));
//! let mut settle = |containment: Containment, fault: Option<&str>| {
//!     job.containment(containment);
//!     let mut reactor = Reactor::simulated(SimOptions::default());
//!     if let Some(fault) = fault {
//!         reactor.sim().inject_text(fault).expect("a fault as it is written");
//!     }
//!     if let Err(error) = reactor.start(&job) {
//!         return Err(error.to_string());
//!     }
//!     let mut settled = None;
//!     while let Some(event) = reactor.wait_event(None).expect("a turn") {
//!         if let Event::Settled { settled: told, .. } = event {
//!             settled = Some(told.state);
//!         }
//!     }
//!     assert_eq!(reactor.simulation().world().cgroups().count(), 0);
//!     Ok(settled)
//! };
//! let cgroup = || Containment::Cgroup(CgroupOptions::default());
//! // A daemon that has left its group and thrown its environment away: the group is empty, the cookie is lost, the cgroup is not.
//! assert_eq!(settle(Containment::Group, None), Ok(Some(SettledAs::None)));
//! assert_eq!(settle(Containment::Cookie, None), Ok(Some(SettledAs::None)));
//! assert_eq!(settle(cgroup(), None), Ok(Some(SettledAs::Terminated)));
//! // And on a machine that has not delegated one.
//! let refused = settle(cgroup(), Some("spawn cgroup EACCES"));
//! assert!(refused.is_err_and(|told| told.contains("Delegate=yes")));
//! ```
//!
//! # A run that fails
//!
//! A seed and the scripts are all that a run depends on. A thread that panics with a [`Sim`] in its
//! hands prints both, the faults that were met, and the event log ([`Sim::story`] has the same text
//! at any time). Faults can stand in the script itself, so that a few lines are the whole run:
//! `fault read stdout EIO; echo stdout "lost"; exit 0` (the table is in [`fault`]).
//!
//! The world can be changed behind the host's back as well: [`Sim::advance`] is a machine that
//! stood still, and [`World::end`], [`World::put`], [`World::freeze`] and [`World::steal`] are what
//! processes, and others who reap them, may do at any moment.
//!
//! # What it is not
//!
//! A model: nothing of a file system, of terminals, of credentials beyond `user`, and no memory.
//! What it promises of the kernel is what the real kernel objects promise; the project's own tests
//! run the same questions on both.

pub use crate::kernel::Orphans;
pub use crate::kernel::sim::cgroup::{Cgroup, CgroupId};
pub use crate::kernel::sim::fault::{Call, Kind};
pub use crate::kernel::sim::log::{Entry, Happened};
pub use crate::kernel::sim::pipe::{Pipe, PipeId};
pub use crate::kernel::sim::process::Process;
pub use crate::kernel::sim::random::Rng;
pub use crate::kernel::sim::{
    Fault, FaultRates, Reaper, Script, Sim, SimEnd, SimOptions, SimWaker, Violation, World, fault,
    faults, script,
};
pub use crate::types::Ns;

use crate::reactor::Reactor;

impl Reactor<Sim> {
    /// A loop on a simulated kernel.
    pub fn simulated(options: SimOptions) -> Reactor<Sim> {
        Reactor::with_kernel(Sim::new(options), Default::default())
    }

    /// The simulated kernel under the loop, to look at: [`Sim::violations`], [`Sim::generations`],
    /// [`Sim::log`], [`Sim::world`].
    pub fn simulation(&self) -> &Sim {
        self.kernel()
    }

    /// The simulated kernel under the loop, to change it behind the loop's back.
    pub fn sim(&mut self) -> &mut Sim {
        self.kernel_mut()
    }
}
