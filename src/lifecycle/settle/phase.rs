//! The states of settling and every transition between them.

use crate::report::SettledAs;

/// How far settling has come.
///
/// Every transition there is:
///
/// ```text
/// LeaderAlive --LeaderEnded--> Probing
/// LeaderAlive --LeaderEnded or the stop failed, detection is disabled--> Disabled
/// LeaderAlive --SpawnFailed or the stop failed--> Over
/// Probing --GroupEmpty or the stop failed--> Over
/// Probing --GroupAlive, a stop is in progress--> Ending
/// Probing --GroupAlive--> Grace
/// Probing --GroupAlive, the grace has passed--> Listing
/// Grace --GroupEmpty or Detach--> Over
/// Grace --Due(BackgroundGrace)--> Listing
/// Grace --StopBegan--> Ending
/// Listing --GroupEmpty, Detach, or listed and only reported--> Over
/// Listing --listed--> Waiting
/// Listing --listed and the wait is zero, or StopBegan--> Ending
/// Waiting --GroupEmpty, Detach, or Due(BackgroundWait) and kept--> Over
/// Waiting --Due(BackgroundWait) or StopBegan--> Ending
/// Ending --GroupEmpty or the stop failed--> Over
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::lifecycle) enum Phase {
    /// The leader has not ended.
    LeaderAlive,
    /// Detection is disabled.
    Disabled,
    /// The leader has ended, and the group is being asked. `stopped`: a stop has begun since the
    /// exit.
    Probing { stopped: bool },
    /// Somebody is left. It may be ordinary teardown.
    Grace,
    /// What is left is background work, and is being listed.
    Listing,
    /// Background work is waited for.
    Waiting,
    /// What is left is being stopped.
    Ending { cause: EndingCause },
    /// It is decided what became of background work.
    Over(SettledAs),
}

/// Why what is left is being stopped: it decides how its end is reported (SPEC 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::lifecycle) enum EndingCause {
    /// A stop that began while the leader ran. Members that end by its first signal are ordinary
    /// teardown.
    StopBeforeExit,
    /// A stop that began after the exit, before the members counted as background work. It cuts
    /// off work that could have gone on.
    StopInGrace,
    /// The members had counted as background work when the stop began.
    BackgroundWork,
}

impl Phase {
    /// The name in the diagram, for the model test.
    #[cfg(any(test, feature = "__internals"))]
    pub(in crate::lifecycle) const fn name(self) -> &'static str {
        match self {
            Self::LeaderAlive => "LeaderAlive",
            Self::Disabled => "Disabled",
            Self::Probing { .. } => "Probing",
            Self::Grace => "Grace",
            Self::Listing => "Listing",
            Self::Waiting => "Waiting",
            Self::Ending { .. } => "Ending",
            Self::Over(_) => "Over",
        }
    }
}
