//! What a host asks of the Linux kernel object.

use crate::kernel::Orphans;
use crate::types::{BackendChoice, ExitSourceChoice, GroupSignal};

/// What a host asks of the Linux kernel object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinuxOptions {
    /// Which poll set to use.
    pub backend: BackendChoice,
    /// How exits are learnt.
    pub exit_source: ExitSourceChoice,
    /// Whether groups are signalled through pidfds.
    pub group_signal: GroupSignal,
    /// Makes the descriptor readable at the deadline of [`crate::kernel::Kernel::alarm`] too, by a
    /// timerfd in the poll set.
    pub fold_deadline: bool,
    /// Suspends the caller of a spawn until exec, as vfork(2) does. Needed under valgrind.
    pub vfork: bool,
    /// What becomes of orphaned descendants.
    pub orphans: Orphans,
}
