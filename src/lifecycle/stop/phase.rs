//! The states of a stop and every transition between them.

use crate::lifecycle::message::StopResult;
use crate::types::{Bound, Ns};

/// How far a stop has come.
///
/// Every transition there is:
///
/// ```text
/// Idle --Stop, the group is empty--> Over
/// Idle --Stop--> Terminating
/// Idle --Kill, or a grace of zero--> Killing
/// Idle --Stop or Kill, the members are being listed--> ListingMembers
/// ListingMembers --Members or Due(StopGrace)--> Terminating
/// ListingMembers --Members or Due(StopGrace), a grace of zero--> Killing
/// ListingMembers --Abandon--> Killing
/// ListingMembers --GroupEmpty--> Over
/// Terminating --Kill, or a grace of zero--> Killing
/// Terminating --Due(StopGrace)--> ListingSurvivors
/// ListingSurvivors --Members, Kill or Due(StopGrace)--> Killing
/// ListingSurvivors --GroupEmpty--> Over
/// Terminating --GroupEmpty or NoWay--> Over
/// Killing --Due(StuckAfter) or Denied--> ListingStuck
/// Killing --GroupEmpty or NoWay--> Over
/// ListingStuck --Members--> Over
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::lifecycle) enum Phase {
    /// No stop was asked for.
    Idle,
    /// The leader had ended, and nobody is listed yet. The report is to say whom the stop has ended,
    /// so the first signal follows the list.
    ListingMembers { grace: Bound },
    /// The first signal was sent. `kill_at`: the end of the grace, if it has one. `resend`: there
    /// was no safe way to send it, and it is sent again once the members are listed.
    Terminating { kill_at: Option<Ns>, resend: bool },
    /// The grace is over. Those who are left are being listed, and SIGKILL follows at once.
    ListingSurvivors,
    /// SIGKILL was sent.
    Killing,
    /// SIGKILL has not ended the group. Those who stay are being listed.
    ListingStuck(StopResult),
    /// Nothing more is done.
    Over(StopResult),
}

impl Phase {
    /// The name in the diagram, for the model test.
    #[cfg(any(test, feature = "__internals"))]
    pub(in crate::lifecycle) const fn name(self) -> &'static str {
        match self {
            Self::Idle => "Idle",
            Self::ListingMembers { .. } => "ListingMembers",
            Self::Terminating { .. } => "Terminating",
            Self::ListingSurvivors => "ListingSurvivors",
            Self::Killing => "Killing",
            Self::ListingStuck(_) => "ListingStuck",
            Self::Over(_) => "Over",
        }
    }
}
