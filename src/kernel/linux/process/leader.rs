//! The states of a generation's leader, the process that was spawned.

/// How far the leader's life is known to have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaderState {
    /// No exit was seen. The process id stays reserved, unless somebody else reaps the child.
    Running,
    /// Ended but not reaped: the zombie keeps the process id reserved.
    Zombie,
    /// Ended and reaped, by this loop or by somebody else. The process id may belong to another
    /// process by now.
    Reaped,
}

/// How the leader's exit is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitWatch {
    /// The leader's pidfd is in the poll set.
    Pidfd,
    /// The leader is asked by process id after each SIGCHLD.
    Sigchld,
    /// The same, and an exit notice was given. The leader is not asked again until the reactor has
    /// collected it.
    SigchldNotified,
    /// The exit is known, or nobody waits for it.
    Off,
}
