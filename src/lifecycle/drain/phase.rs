//! The states of the drain and every transition between them.

use crate::report::EndedBy;

/// Where a generation is in its drain.
///
/// ```text
/// Spawning ---> Running ---exit---> FirstRead ---read---> Exited <---bytes were found---.
///    |                                  |                    |                          |
///    v                                  |                    '---a bound passed---> LastRead
/// Failing ---> Failed                   |                                               |
///                                       |  every captured stream has ended              |
///                                       '---> Drained        a stream is still open     |
///                                                            DrainTimedOut <------------'
/// ```
///
/// Every transition there is (`tests/simulated/model.rs` takes each of them, and finds no other):
///
/// ```text
/// Spawning --Started--> Running
/// Spawning --StartFailed--> Failing
/// Spawning --the stop failed--> Unfinished
/// Failing --Exit--> Failed
/// Failing --the stop failed--> Unfinished
/// Running --Exit, a stream is open--> FirstRead
/// Running --Exit, no stream is open--> Drained
/// Running --the stop failed--> Unfinished
/// Running --Detach--> Detached
/// FirstRead --last Ended--> Drained
/// FirstRead --ReadDone, bounds that are not zero--> Exited
/// FirstRead --ReadDone, a bound of zero or a stop that is over--> LastRead
/// FirstRead --Detach--> Detached
/// Exited --last Ended--> Drained
/// Exited --a bound is due or a stop is over--> LastRead
/// Exited --Detach--> Detached
/// LastRead --ReadDone, for the idle bound, and bytes were found--> Exited
/// LastRead --last Ended--> Drained
/// LastRead --ReadDone--> DrainTimedOut
/// LastRead --Detach--> Detached
/// Drained --Detach--> Detached
/// DrainTimedOut --Detach--> Detached
/// Unfinished --Exit after all, a stream is open--> FirstRead
/// Unfinished --Exit after all, no stream is open--> Drained
/// Unfinished --Exit after all, it could not be started--> Failed
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::lifecycle) enum Phase {
    /// The process exists. Whether it executes its program is not known yet.
    Spawning,
    /// The spawn has failed. The end of the process has not been seen yet.
    Failing,
    /// The program runs.
    Running,
    /// The leader has ended, and what is in its pipes is being read. `cut`: a stop was over before
    /// this read was done.
    FirstRead { cut: bool },
    /// The leader has ended, and the two bounds run.
    Exited,
    /// A bound has passed, and the pipes are read once more. `got_bytes`: this read has brought
    /// some.
    LastRead { reason: ReadReason, got_bytes: bool },
    /// Verdict: every captured stream has ended.
    Drained,
    /// Verdict: a stream was still open when a bound passed or a stop was over.
    DrainTimedOut { by: EndedBy },
    /// The spawn has failed, and the process is gone.
    Failed,
    /// The stop could not end the leader. What it had written is read before that is told.
    Unfinished,
    /// The host has taken the process over.
    Detached,
}

/// Why a last read is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::lifecycle) enum ReadReason {
    /// The idle bound has passed. If the read brings bytes, the streams were not idle.
    Idle,
    /// The limit has passed.
    Limit,
    /// Both have passed. If the read brings no bytes, the idle bound is named.
    IdleAndLimit,
    /// A stop is over.
    Stop,
    /// The idle bound has passed, and a stop was over during the read. One more read follows.
    IdleThenStop,
}

impl Phase {
    /// The name in the diagram, for the model test.
    #[cfg(any(test, feature = "__internals"))]
    pub(in crate::lifecycle) const fn name(self) -> &'static str {
        match self {
            Self::Spawning => "Spawning",
            Self::Failing => "Failing",
            Self::Running => "Running",
            Self::FirstRead { .. } => "FirstRead",
            Self::Exited => "Exited",
            Self::LastRead { .. } => "LastRead",
            Self::Drained => "Drained",
            Self::DrainTimedOut { .. } => "DrainTimedOut",
            Self::Failed => "Failed",
            Self::Unfinished => "Unfinished",
            Self::Detached => "Detached",
        }
    }
}
