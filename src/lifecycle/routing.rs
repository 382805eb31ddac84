//! Which inputs and facts concern which machine: a message type for each, and a total translation
//! into it.
//!
//! A new input does not compile until it is routed here, and then not until every state of the
//! machines that receive it handles it.

use super::message::{Fact, Message, StopResult};
use super::vocabulary::{Input, Timer};
use crate::report::{StopReason, StreamEnd};
use crate::types::{ExitInfo, Holder, Member, Probe, Signalled, StopPolicy, Stream};

/// The messages of the drain.
#[derive(Clone, Copy)]
pub(super) enum DrainMessage<'a> {
    Started,
    StartFailed,
    Bytes(Stream, u64),
    Ended(Stream, StreamEnd),
    ReadDone,
    Exit(ExitInfo),
    IdleDue,
    LimitDue,
    GroupEmpty,
    StopEnded(StopResult),
    Holders(&'a [Holder], bool),
    Paused(Stream),
    Resumed(Stream),
}

/// The messages of the group.
#[derive(Clone, Copy)]
pub(super) enum GroupMessage<'a> {
    LeaderEnded,
    SpawnFailed,
    Probed(Probe),
    Members(&'a [Member], bool),
    MemberGone,
    CgroupChanged,
    WatchFailed,
    PollDue,
    ProbeWanted,
    ListWanted,
    NobodySignalled,
}

/// The messages of the stop.
#[derive(Clone, Copy)]
pub(super) enum StopMessage {
    Stop(StopPolicy, StopReason),
    RunLimit,
    Kill(StopReason),
    Abandon,
    GraceDue,
    StuckDue,
    GroupEmpty,
    Members,
    Signalled(Signalled),
    SpawnFailed,
}

/// The messages of settling.
#[derive(Clone, Copy)]
pub(super) enum SettleMessage {
    LeaderEnded,
    SpawnFailed,
    GroupAlive,
    GroupEmpty,
    GraceDue,
    WaitDue,
    StopBegan,
    StopEnded(StopResult),
}

impl<'a> DrainMessage<'a> {
    pub(super) fn route(message: Message<'a>) -> Option<DrainMessage<'a>> {
        Some(match message {
            Message::Input(Input::Started) => DrainMessage::Started,
            Message::Input(Input::StartFailed) => DrainMessage::StartFailed,
            Message::Input(Input::Bytes(stream, n)) => DrainMessage::Bytes(stream, n),
            Message::Input(Input::Ended(stream, end)) => DrainMessage::Ended(stream, end),
            Message::Input(Input::ReadDone) => DrainMessage::ReadDone,
            Message::Input(Input::Exit(info)) => DrainMessage::Exit(info),
            Message::Input(Input::Holders(list, complete)) => DrainMessage::Holders(list, complete),
            Message::Input(Input::Paused(stream)) => DrainMessage::Paused(stream),
            Message::Input(Input::Resumed(stream)) => DrainMessage::Resumed(stream),
            Message::Input(Input::Due(Timer::DrainIdle)) => DrainMessage::IdleDue,
            Message::Input(Input::Due(Timer::DrainLimit)) => DrainMessage::LimitDue,
            Message::Fact(Fact::GroupEmpty) => DrainMessage::GroupEmpty,
            Message::Fact(Fact::StopEnded(end)) => DrainMessage::StopEnded(end),
            Message::Input(Input::Due(
                Timer::RunLimit
                | Timer::StopGrace
                | Timer::StuckAfter
                | Timer::BackgroundGrace
                | Timer::BackgroundWait
                | Timer::GroupPoll,
            ))
            | Message::Input(
                Input::Probed(_)
                | Input::Members(..)
                | Input::MemberGone
                | Input::WatchFailed
                | Input::CgroupChanged,
            )
            | Message::Input(
                Input::Signalled(_)
                | Input::StdinClosed
                | Input::Stop(..)
                | Input::Kill(_)
                | Input::Detach
                | Input::Abandon,
            )
            | Message::Fact(
                Fact::LeaderEnded
                | Fact::SpawnFailed
                | Fact::GroupAlive
                | Fact::ProbeWanted
                | Fact::ListWanted,
            )
            | Message::Fact(Fact::Stop(..) | Fact::StopBegan) => return None,
        })
    }
}

impl<'a> GroupMessage<'a> {
    pub(super) fn route(message: Message<'a>) -> Option<GroupMessage<'a>> {
        Some(match message {
            Message::Input(Input::Probed(probe)) => GroupMessage::Probed(probe),
            Message::Input(Input::Members(list, complete)) => GroupMessage::Members(list, complete),
            Message::Input(Input::MemberGone) => GroupMessage::MemberGone,
            Message::Input(Input::CgroupChanged) => GroupMessage::CgroupChanged,
            Message::Input(Input::WatchFailed) => GroupMessage::WatchFailed,
            Message::Input(Input::Due(Timer::GroupPoll)) => GroupMessage::PollDue,
            Message::Input(Input::Signalled(Signalled::Empty)) => GroupMessage::NobodySignalled,
            Message::Fact(Fact::LeaderEnded) => GroupMessage::LeaderEnded,
            Message::Fact(Fact::SpawnFailed) => GroupMessage::SpawnFailed,
            Message::Fact(Fact::ProbeWanted) => GroupMessage::ProbeWanted,
            Message::Fact(Fact::ListWanted) => GroupMessage::ListWanted,
            Message::Input(Input::Due(
                Timer::RunLimit
                | Timer::DrainIdle
                | Timer::DrainLimit
                | Timer::StopGrace
                | Timer::StuckAfter
                | Timer::BackgroundGrace
                | Timer::BackgroundWait,
            ))
            | Message::Input(Input::Signalled(
                Signalled::Sent | Signalled::Denied | Signalled::NoWay,
            ))
            | Message::Input(
                Input::Started
                | Input::StartFailed
                | Input::Bytes(..)
                | Input::Ended(..)
                | Input::ReadDone
                | Input::Exit(_),
            )
            | Message::Input(
                Input::Holders(..) | Input::Paused(_) | Input::Resumed(_) | Input::StdinClosed,
            )
            | Message::Input(Input::Stop(..) | Input::Kill(_) | Input::Detach | Input::Abandon)
            | Message::Fact(
                Fact::GroupAlive
                | Fact::GroupEmpty
                | Fact::Stop(..)
                | Fact::StopBegan
                | Fact::StopEnded(_),
            ) => return None,
        })
    }
}

impl StopMessage {
    pub(super) fn route(message: Message<'_>) -> Option<StopMessage> {
        Some(match message {
            Message::Input(Input::Stop(policy, reason))
            | Message::Fact(Fact::Stop(policy, reason)) => StopMessage::Stop(policy, reason),
            Message::Input(Input::Kill(reason)) => StopMessage::Kill(reason),
            Message::Input(Input::Abandon) => StopMessage::Abandon,
            Message::Input(Input::Due(Timer::RunLimit)) => StopMessage::RunLimit,
            Message::Input(Input::Due(Timer::StopGrace)) => StopMessage::GraceDue,
            Message::Input(Input::Due(Timer::StuckAfter)) => StopMessage::StuckDue,
            Message::Input(Input::Members(..)) => StopMessage::Members,
            Message::Input(Input::Signalled(answer)) => StopMessage::Signalled(answer),
            Message::Fact(Fact::GroupEmpty) => StopMessage::GroupEmpty,
            Message::Fact(Fact::SpawnFailed) => StopMessage::SpawnFailed,
            Message::Input(Input::Due(
                Timer::DrainIdle
                | Timer::DrainLimit
                | Timer::BackgroundGrace
                | Timer::BackgroundWait
                | Timer::GroupPoll,
            ))
            | Message::Input(
                Input::Started
                | Input::StartFailed
                | Input::Bytes(..)
                | Input::Ended(..)
                | Input::ReadDone
                | Input::Exit(_),
            )
            | Message::Input(
                Input::Probed(_) | Input::MemberGone | Input::WatchFailed | Input::CgroupChanged,
            )
            | Message::Input(
                Input::Holders(..)
                | Input::Paused(_)
                | Input::Resumed(_)
                | Input::StdinClosed
                | Input::Detach,
            )
            | Message::Fact(
                Fact::LeaderEnded
                | Fact::GroupAlive
                | Fact::ProbeWanted
                | Fact::ListWanted
                | Fact::StopBegan
                | Fact::StopEnded(_),
            ) => {
                return None;
            }
        })
    }
}

impl SettleMessage {
    pub(super) fn route(message: Message<'_>) -> Option<SettleMessage> {
        Some(match message {
            Message::Input(Input::Due(Timer::BackgroundGrace)) => SettleMessage::GraceDue,
            Message::Input(Input::Due(Timer::BackgroundWait)) => SettleMessage::WaitDue,
            Message::Fact(Fact::LeaderEnded) => SettleMessage::LeaderEnded,
            Message::Fact(Fact::SpawnFailed) => SettleMessage::SpawnFailed,
            Message::Fact(Fact::GroupAlive) => SettleMessage::GroupAlive,
            Message::Fact(Fact::GroupEmpty) => SettleMessage::GroupEmpty,
            Message::Fact(Fact::StopBegan) => SettleMessage::StopBegan,
            Message::Fact(Fact::StopEnded(end)) => SettleMessage::StopEnded(end),
            Message::Input(Input::Due(
                Timer::RunLimit
                | Timer::DrainIdle
                | Timer::DrainLimit
                | Timer::StopGrace
                | Timer::StuckAfter
                | Timer::GroupPoll,
            ))
            | Message::Input(
                Input::Started
                | Input::StartFailed
                | Input::Bytes(..)
                | Input::Ended(..)
                | Input::ReadDone
                | Input::Exit(_),
            )
            | Message::Input(
                Input::Probed(_)
                | Input::Members(..)
                | Input::MemberGone
                | Input::WatchFailed
                | Input::CgroupChanged,
            )
            | Message::Input(
                Input::Holders(..) | Input::Paused(_) | Input::Resumed(_) | Input::StdinClosed,
            )
            | Message::Input(
                Input::Signalled(_)
                | Input::Stop(..)
                | Input::Kill(_)
                | Input::Detach
                | Input::Abandon,
            )
            | Message::Fact(Fact::ProbeWanted | Fact::ListWanted | Fact::Stop(..)) => return None,
        })
    }
}
