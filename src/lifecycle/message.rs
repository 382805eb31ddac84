//! What goes round between the four machines while one input is worked on.

use super::vocabulary::Input;
use crate::report::StopReason;
use crate::types::StopPolicy;
use arrayvec::ArrayVec;

/// How a stop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum StopResult {
    /// The group is empty.
    Gone,
    /// Somebody survived SIGKILL.
    Stuck,
    /// Everybody who is left refused SIGKILL (EPERM).
    Denied,
    /// No signal could be sent that was certain to reach this group alone.
    NoWay,
}

/// What one machine states to the others. The facts of one input go round until there are no new
/// ones.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fact {
    /// The leader's exit was seen.
    LeaderEnded,
    /// The spawn has failed and its process is gone. Nothing is left to stop or to settle.
    SpawnFailed,
    /// Somebody is left in the group.
    GroupAlive,
    /// Nobody is left in the group. This is certain.
    GroupEmpty,
    /// A stop needs to know whether anybody is left, even if detection is disabled.
    ProbeWanted,
    /// A machine needs a new list of the members.
    ListWanted,
    /// Background work has outlived its wait and is to be stopped.
    Stop(StopPolicy, StopReason),
    /// A stop has begun.
    StopBegan,
    /// A stop is over.
    StopEnded(StopResult),
}

/// What a machine receives: first the input, then the facts that it brought up.
#[derive(Clone, Copy, Debug)]
pub(super) enum Message<'a> {
    Input(Input<'a>),
    Fact(Fact),
}

/// The facts of one input, in the order in which they came up.
pub(super) type Facts = ArrayVec<Fact, 16>;
