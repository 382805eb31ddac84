//! The states of the group and every transition between them.

/// What is known of the group. At most one probe and one list are under way.
///
/// Every transition there is:
///
/// ```text
/// LeaderAlive --ListWanted--> LeaderAliveListing
/// LeaderAliveListing --Members--> LeaderAlive
/// LeaderAliveListing --LeaderEnded--> Listing
/// LeaderAlive --LeaderEnded, detection is on or a stop is in progress--> Probing
/// LeaderAlive --LeaderEnded, neither--> NotAsked
/// LeaderAlive --SpawnFailed--> Empty
/// LeaderAliveListing --SpawnFailed--> Empty
/// Probing --Probed(Empty)--> Empty
/// Probing --Probed, no member is watched--> Listing
/// Probing --Probed, a member is watched--> Watching
/// Listing --Members(none, complete)--> Empty
/// Listing --Members--> Watching
/// Watching --MemberGone, CgroupChanged, Due(GroupPoll) or a signal that met nobody--> Probing
/// Watching --ListWanted--> Listing
/// NotAsked --ProbeWanted or ListWanted--> Probing
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::lifecycle) enum Phase {
    /// The leader has not ended. Its exit notice is the watch on the group.
    LeaderAlive,
    /// The leader has not ended, and a stop wants to know who withstands it.
    LeaderAliveListing,
    /// A probe is under way. `watched`: members that are watched and were not seen to end.
    Probing { watched: u16 },
    /// A list is under way.
    Listing,
    /// The group was not empty. `watched`: members that are watched and were not seen to end.
    Watching { watched: u16 },
    /// Nobody is left. This is certain.
    Empty,
    /// The leader has ended, detection is disabled, and no stop has asked.
    NotAsked,
}

impl Phase {
    /// The name in the diagram, for the model test.
    #[cfg(any(test, feature = "__internals"))]
    pub(in crate::lifecycle) const fn name(self) -> &'static str {
        match self {
            Self::LeaderAlive => "LeaderAlive",
            Self::LeaderAliveListing => "LeaderAliveListing",
            Self::Probing { .. } => "Probing",
            Self::Listing => "Listing",
            Self::Watching { .. } => "Watching",
            Self::Empty => "Empty",
            Self::NotAsked => "NotAsked",
        }
    }
}
