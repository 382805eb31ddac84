//! The life of a generation: four small machines, pure.
//!
//! ```text
//!               Input (one at a time)                       Effects (carried out in order, before the next input;
//!                    |                                                their answers are inputs)
//!                    v
//!  Lifecycle::handle(now, input) --> drain --> group --> stop --> settle --> close?      facts go round until there is none
//! ```
//!
//! The drain is `generation.rs` (the table) and `drain.rs` (what its cells do), with `streams.rs`;
//! then `group.rs`, `stop.rs`, `settle.rs`. `routing.rs` says which input concerns which machine,
//! `step.rs` is what they share, `machines.rs` joins them, and `accessors.rs` answers for them.
//!
//! Time is an argument. No clock, descriptor, environment or static is read here.

#![deny(clippy::wildcard_enum_match_arm)]

mod accessors;
mod drain;
mod generation;
mod group;
mod machines;
mod member_list;
mod names;
mod routing;
mod settle;
mod step;
mod stop;
mod streams;

#[cfg(test)]
mod test_harness;

pub use accessors::{State, StopStage};
pub use machines::{Lifecycle, SharedConfig};

use crate::report::{StopReason, StreamEnd};
use crate::types::{
    ExitInfo, Holder, Member, Ns, Probe, Release, Signal, Signalled, StopPolicy, Stream,
};
use arrayvec::ArrayVec;

/// What can happen to a generation.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// exec has succeeded. Exactly one of this and the next, before any other input from the
    /// kernel.
    Started,
    /// The spawn has failed.
    StartFailed,
    /// So many bytes (more than zero) were read and stored.
    Bytes(Stream, u64),
    /// A stream has ended; once per stream. `Closed` when the host asked for it.
    Ended(Stream, StreamEnd),
    /// Answer to [`Effect::ReadAvailable`]: every open stream was read until it was empty, had ended, or
    /// its pipe's capacity was read.
    ReadDone,
    /// The leader has ended.
    Exit(ExitInfo),
    /// Answer to [`Effect::ProbeGroup`].
    Probed(Probe),
    /// Answer to [`Effect::ListMembers`]: who of the group is alive; whether two passes in a row agreed.
    Members(&'a [Member], bool),
    /// A watched member has ended.
    MemberGone,
    /// A member could not be watched.
    WatchFailed,
    /// The cgroup's events have changed.
    CgroupChanged,
    /// Answer to [`Effect::SignalGroup`].
    Signalled(Signalled),
    /// Answer to [`Effect::FindHolders`]: who, and whether the list is complete.
    Holders(&'a [Holder], bool),
    /// The host holds back this stream's bytes: it is not read, and the idle clock stands.
    Paused(Stream),
    /// It is read again.
    Resumed(Stream),
    /// stdin has been closed (or there never was one to feed: then this does not come).
    StdinClosed,
    /// Somebody wants it stopped. The leader was collected first.
    Stop(StopPolicy, StopReason),
    /// The same, with SIGKILL at once.
    Kill(StopReason),
    /// The host lets it go. Only if [`Lifecycle::can_detach`] says so.
    Detach,
    /// The loop is being dropped.
    Abandon,
    /// A timer has come due.
    Due(Timer),
}

/// The timers of a generation. Each is armed only by the state that owns it, and gone when that
/// state is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Timer {
    /// The run has taken too long.
    RunLimit,
    /// No byte for too long after the exit.
    DrainIdle,
    /// Too long after the exit.
    DrainLimit,
    /// The grace between the stop's signal and SIGKILL is over.
    StopGrace,
    /// SIGKILL has had no effect for too long.
    StuckAfter,
    /// A survivor counts as background work from now on.
    BackgroundGrace,
    /// Background work has been waited for long enough.
    BackgroundWait,
    /// Time to look again at members that cannot be watched.
    GroupPoll,
}

impl Timer {
    /// All of them, in the order of their numbers.
    pub const ALL: [Timer; 8] = [
        Timer::RunLimit,
        Timer::DrainIdle,
        Timer::DrainLimit,
        Timer::StopGrace,
        Timer::StuckAfter,
        Timer::BackgroundGrace,
        Timer::BackgroundWait,
        Timer::GroupPoll,
    ];
}

/// What the host is told, in the order in which it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Notification {
    /// exec has succeeded.
    Started,
    /// The spawn has failed, and its process is gone.
    SpawnFailed,
    /// The leader has ended.
    Exited,
    /// The verdict, of either kind; a timed-out drain's holders are known. With `warn` the WARN
    /// line is due, once.
    Drained {
        /// Bounds idle and limit only.
        warn: bool,
    },
    /// Background work is waited for.
    BackgroundWait,
    /// Background work is settled.
    Settled,
    /// Nothing is left; the report is final.
    Closed,
}

/// What is to be done, in order, before the next input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Read every open stream until it is empty or ended; answer `Bytes`, `Ended`, then `Swept`.
    /// May take several turns.
    ReadAvailable,
    /// What stderr has brought so far are the last words; what comes from now on is late.
    MarkLastWords,
    /// Ask the kernel whether anything is left; answer `Probed`.
    ProbeGroup,
    /// Look for the members; answer `Members` in a later turn.
    ListMembers,
    /// Watch the members (`Lifecycle::members`), at most `limits::WATCHED`, all older watches replaced;
    /// answer `WatchFailed` once if one or more could not be watched, `MemberGone` for each
    /// that had ended already.
    WatchMembers,
    /// No member is watched any more.
    UnwatchMembers,
    /// Look for the holders of the open streams; answer `Holders` in a later turn, within
    /// `limits::HOLDER_TIME`.
    FindHolders,
    /// Close this stream's read end.
    CloseStream(Stream),
    /// Close stdin, whatever is still to be written.
    CloseStdin,
    /// Send it to the whole group; answer `Signalled`.
    SignalGroup(Signal),
    /// Send it to those members outside the group who were found since the last `Signal`; answer
    /// `Signalled` if it reached somebody or was refused.
    SignalEscapees(Signal),
    /// Arm (or re-arm) a timer.
    ArmTimer(Timer, Ns),
    /// Cancel a timer; it need not be armed.
    CancelTimer(Timer),
    /// Reap the leader that was kept as a zombie.
    ReapLeader,
    /// Give back what the kernel object still has.
    Release(Release),
    /// Tell the host.
    Notify(Notification),
}

/// What one input led to.
pub type Effects = ArrayVec<Effect, 32>;
