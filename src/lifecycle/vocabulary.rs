//! Inputs, effects, timers and notifications: the whole interface between the machines and the
//! reactor.

use crate::report::{StopReason, StreamEnd};
use crate::types::{
    ExitInfo, Holder, Member, Ns, Probe, Release, Signal, Signalled, StopPolicy, Stream,
};
use arrayvec::ArrayVec;

/// What can happen to a generation.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// exec has succeeded. Either this or [`Input::StartFailed`] comes exactly once, before any
    /// other input from the kernel.
    Started,
    /// The spawn has failed.
    StartFailed,
    /// A read stored this many bytes. Never zero.
    Bytes(Stream, u64),
    /// A stream has ended. Comes once per stream. [`StreamEnd::Closed`] when the host asked for it.
    Ended(Stream, StreamEnd),
    /// Answer to [`Effect::ReadAvailable`]: every open stream was read until it was empty or had
    /// ended, or until its pipe's capacity was read.
    ReadDone,
    /// The leader has ended and was collected.
    Exit(ExitInfo),
    /// Answer to [`Effect::ProbeGroup`].
    Probed(Probe),
    /// Answer to [`Effect::ListMembers`]: the members that are alive, and whether the list is
    /// complete (two passes over /proc in a row agreed).
    Members(&'a [Member], bool),
    /// A watched member has ended.
    MemberGone,
    /// A member could not be watched.
    WatchFailed,
    /// The generation's `cgroup.events` file has changed.
    CgroupChanged,
    /// Answer to [`Effect::SignalGroup`] and [`Effect::SignalEscapees`].
    Signalled(Signalled),
    /// Answer to [`Effect::FindHolders`]: the holders, and whether the list is complete.
    Holders(&'a [Holder], bool),
    /// The host holds back this stream's bytes. It is not read, and the idle clock stands.
    Paused(Stream),
    /// The host takes this stream's bytes again.
    Resumed(Stream),
    /// stdin has been closed. Does not come for a stdin that the loop does not write.
    StdinClosed,
    /// A stop was asked for. The reactor tries to collect the leader first, so that a leader that
    /// was already dead keeps its own outcome.
    Stop(StopPolicy, StopReason),
    /// A stop that begins with SIGKILL was asked for.
    Kill(StopReason),
    /// The host takes the process over. Only if
    /// [`Lifecycle::can_detach`](super::Lifecycle::can_detach) allows it.
    Detach,
    /// The loop is being dropped.
    Abandon,
    /// A timer is due.
    Due(Timer),
}

/// The timers of a generation. Each is armed only in the state that owns it, and is cancelled when
/// that state is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Timer {
    /// The limit on the whole run, from the spawn.
    RunLimit,
    /// The drain's idle bound.
    DrainIdle,
    /// The drain's limit.
    DrainLimit,
    /// The grace between the stop's signal and SIGKILL. Afterwards, the time that the list of
    /// those who need SIGKILL may take.
    StopGrace,
    /// The time that SIGKILL has to end the group.
    StuckAfter,
    /// The time that a survivor may live before it counts as background work.
    BackgroundGrace,
    /// The time that background work is waited for.
    BackgroundWait,
    /// The next look at members that cannot be watched.
    GroupPoll,
}

impl Timer {
    /// All timers, in the order of their numbers.
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

/// What the host is notified of, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Notification {
    /// exec has succeeded.
    Started,
    /// The spawn has failed, and its process is gone.
    SpawnFailed,
    /// The leader has ended.
    Exited,
    /// The verdict of the drain. A drain that timed out has its holders by now.
    Drained {
        /// A warning is to be logged: the drain timed out by its idle bound or its limit.
        warn: bool,
    },
    /// Waiting for background work begins.
    BackgroundWait,
    /// Background work is settled.
    Settled,
    /// Nothing of the generation is left, and the report is final.
    Closed,
}

/// What the reactor has to do, in order, before it hands in the next input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Read every open stream until it is empty or has ended. Answered by `Bytes` and `Ended`, and
    /// at last by `ReadDone`. May take several turns.
    ReadAvailable,
    /// What stderr has brought so far are the last words. What it brings from now on is late.
    MarkLastWords,
    /// Ask the kernel whether anybody is left in the group. Answered by `Probed`.
    ProbeGroup,
    /// List the members of the group. Answered by `Members`, in a later turn.
    ListMembers,
    /// Watch the listed members ([`Lifecycle::members`](super::Lifecycle::members)), at most
    /// `limits::WATCHED` of them, in place of all that were watched before. Answered by one
    /// `WatchFailed` if any could not be watched, and by a `MemberGone` for each that had ended.
    WatchMembers,
    /// Stop watching members.
    UnwatchMembers,
    /// Look for the processes that hold the open streams. Answered by `Holders`, in a later turn.
    FindHolders,
    /// Close this stream's read end.
    CloseStream(Stream),
    /// Close stdin, whatever has not been written.
    CloseStdin,
    /// Signal the whole group. Answered by `Signalled`.
    SignalGroup(Signal),
    /// Signal the members outside the process group that were found since the last
    /// `SignalGroup`. Answered by `Signalled` if there were any.
    SignalEscapees(Signal),
    /// Arm a timer, or move it.
    ArmTimer(Timer, Ns),
    /// Cancel a timer. It need not be armed.
    CancelTimer(Timer),
    /// Reap the leader that was kept as a zombie.
    ReapLeader,
    /// Give up what the kernel object still has of the generation.
    Release(Release),
    /// Notify the host.
    Notify(Notification),
}

/// The effects of one input.
pub type Effects = ArrayVec<Effect, 32>;
