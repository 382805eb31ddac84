//! What differs between the kernels under test: how one is made, and how a test reaches behind its
//! back.

use lastwords::__internals::command::plan::Plan;
use lastwords::__internals::testing::isolation::alone;
use lastwords::{CgroupOptions, Kernel, Signal};
use std::time::Duration;

/// Runs a promise; on a real kernel in a process of its own. A child that another thread starts
/// holds copies of all pipes until its exec: end of file and EPIPE would come late through no fault
/// of the kernel's.
pub(crate) fn run<R: Rig>(test: &str, module: &str, promise: fn()) {
    if R::IS_REAL {
        alone(test, module, promise)
    } else {
        promise()
    }
}

/// A kernel, and the world it is in.
pub(crate) trait Rig: Sized {
    /// The kernel under test.
    type K: Kernel;
    /// It has real processes.
    const IS_REAL: bool;
    /// A wait may end early with nothing.
    const IS_INTERRUPTED: bool;
    /// Notices may come late (never lost).
    const LATE: bool;

    /// A new one.
    fn new() -> Self;
    /// The kernel under test.
    fn kernel(&mut self) -> &mut Self::K;
    /// Lets time pass without a call of the kernel.
    fn pass(&mut self, time: Duration);
    /// Whether the kernel's descriptor is readable.
    fn is_readable(&mut self) -> bool;
    /// Whether there is a process with this number that has not ended.
    fn is_alive(&mut self, pid: u32) -> bool;
    /// Sends a signal from outside.
    fn kill(&mut self, pid: u32, signal: Signal);
    /// Reaps a child of the host that has ended.
    fn steal(&mut self, pid: u32);
    /// A process with this number that leads a group of its own and is nobody's business. `None`
    /// where that cannot be had.
    fn stranger(&mut self, pid: u32) -> Option<u32>;
    /// The next wait is given an exit notice for nothing, where that can be had.
    fn spurious_exit(&mut self);
    /// Spawns that fail, each after what it needs has been prepared.
    fn failures(&mut self) -> Vec<Failure<Self>>;
    /// What could leak, in words that can be compared.
    fn count(&mut self) -> String;
    /// Processes with this command name.
    fn named(&mut self, comm: &str) -> Vec<u32>;
    /// Where cgroups can be made; `None` if that cannot be had here.
    fn cgroup_parent(&mut self) -> Option<CgroupOptions>;
    /// How many cgroups are there.
    fn cgroups(&mut self) -> usize;
    /// The host dies of SIGPIPE from now on, as a program in C does.
    fn die_of_sigpipe();
    /// The end of the test: what must never have happened has not.
    fn end(self);
}

/// A spawn that fails: what is prepared, then the plan.
pub(crate) type Failure<R> = (&'static str, fn(&mut R), Plan);

/// The group is not signalled through the leader's pidfd.
pub(crate) const NO_GROUP_SIGNAL: u8 = 1;
/// Exits are learnt by SIGCHLD.
pub(crate) const SIGCHLD: u8 = 2;
/// Everything that may go wrong without anybody being to blame does so, often.
pub(crate) const STORM: u8 = 4;
/// io_uring is the poll set.
pub(crate) const URING: u8 = 8;
