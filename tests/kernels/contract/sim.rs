//! The simulated kernel under test.

use super::rig::{Failure, NO_GROUP_SIGNAL, Rig, SIGCHLD, STORM};
use crate::support;
use lastwords::__internals::command::plan::Plan;
use lastwords::sim::{Fault, FaultRates, Ns, Script, Sim, SimOptions, Violation};
use lastwords::{CgroupOptions, Errno, ExitSource, Signal, SpawnStep};
use std::time::Duration;

/// The simulated kernel.
pub(crate) struct SimRig<const KIND: u8 = 0>(Sim);

impl<const KIND: u8> Rig for SimRig<KIND> {
    type K = Sim;
    const LATE: bool = KIND & STORM != 0;
    const IS_REAL: bool = false;
    const IS_INTERRUPTED: bool = KIND & STORM != 0;

    fn new() -> Self {
        let mut options = SimOptions::seeded(u64::from(KIND));
        options.group_signal = KIND & NO_GROUP_SIGNAL == 0;
        if KIND & SIGCHLD != 0 {
            options.exit_source = ExitSource::Sigchld;
        }
        if KIND & STORM != 0 {
            options.fault_rates = FaultRates {
                no_watch: 0,
                incomplete: 0,
                ..FaultRates::storm()
            };
        }
        SimRig(Sim::new(options))
    }

    fn kernel(&mut self) -> &mut Sim {
        &mut self.0
    }

    fn pass(&mut self, time: Duration) {
        self.0.advance(Ns::from(time));
    }

    fn is_readable(&mut self) -> bool {
        self.0.is_readable()
    }

    fn is_alive(&mut self, pid: u32) -> bool {
        self.0.world().process(pid).is_some_and(|p| !p.is_zombie())
    }

    fn kill(&mut self, pid: u32, signal: Signal) {
        self.0.world_mut().kill(pid, signal);
    }

    fn steal(&mut self, pid: u32) {
        self.0.world_mut().steal(pid);
    }

    fn stranger(&mut self, pid: u32) -> Option<u32> {
        let script = Script::parse("sleep 20s").expect("a script");
        self.0.world_mut().stranger(Some(pid), &script)
    }

    fn spurious_exit(&mut self) {
        self.0.inject(Fault::SpuriousExit);
    }

    fn failures(&mut self) -> Vec<Failure<Self>> {
        fn fails(rig: &mut Sim, step: SpawnStep, errno: i32) {
            rig.inject(Fault::Spawn(step, Errno::from_raw(errno)));
        }
        let plan = || support::plan("exit 0");
        vec![
            (
                "no pipe",
                |r| fails(&mut r.0, SpawnStep::Pipe, libc::EMFILE),
                plan(),
            ),
            (
                "no place in the poll set",
                |r| fails(&mut r.0, SpawnStep::Register, libc::ENOSPC),
                plan(),
            ),
            (
                "no process",
                |r| fails(&mut r.0, SpawnStep::Clone, libc::EAGAIN),
                plan(),
            ),
            (
                "not found",
                |r| fails(&mut r.0, SpawnStep::Find, libc::ENOENT),
                plan(),
            ),
            (
                "no directory",
                |r| fails(&mut r.0, SpawnStep::Chdir, libc::ENOENT),
                plan(),
            ),
            (
                "not executable",
                |r| fails(&mut r.0, SpawnStep::Exec, libc::EACCES),
                plan(),
            ),
            ("no program", |_| {}, Plan::new("".into())),
        ]
    }

    fn count(&mut self) -> String {
        let world = self.0.world();
        let pids: Vec<u32> = world.processes().map(|p| p.pid).collect();
        format!(
            "{} generations, processes {pids:?}, {} pipes",
            self.0.generations(),
            world.pipes().count()
        )
    }

    fn named(&mut self, comm: &str) -> Vec<u32> {
        self.0
            .world()
            .processes()
            .filter(|p| p.comm == comm && !p.is_zombie())
            .map(|p| p.pid)
            .collect()
    }

    fn cgroup_parent(&mut self) -> Option<CgroupOptions> {
        Some(CgroupOptions::default())
    }

    fn cgroups(&mut self) -> usize {
        self.0.world().cgroups().count()
    }

    fn die_of_sigpipe() {}

    fn end(self) {
        // The host of these tests sleeps over exits on purpose, as no reactor does.
        let slept = |v: &&Violation| matches!(v, Violation::SleptOverExit(_));
        let others: Vec<&Violation> = self.0.violations().iter().filter(|v| !slept(v)).collect();
        assert!(others.is_empty(), "{others:?}");
    }
}
