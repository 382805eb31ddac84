//! Which inputs and facts concern which machine: four alphabets, and four total translations into
//! them.
//!
//! A new input is a compile error here; once it is in an alphabet, it is one in every state of that
//! machine.

use super::step::{End, Fact, Word};
use super::{Input, Timer};
use crate::report::{StopReason, StreamEnd};
use crate::types::{ExitInfo, Holder, Member, Probe, Signalled, StopPolicy, Stream};

/// What the drain listens to.
#[derive(Clone, Copy)]
pub(super) enum DrainWord<'a> {
    Started,
    StartFailed,
    Bytes(Stream, u64),
    Ended(Stream, StreamEnd),
    Swept,
    Exit(ExitInfo),
    IdleDue,
    LimitDue,
    GroupEmpty,
    LadderOver(End),
    Holders(&'a [Holder], bool),
    Paused(Stream),
    Resumed(Stream),
}

/// What the group listens to.
#[derive(Clone, Copy)]
pub(super) enum GroupWord<'a> {
    LeaderEnded,
    SpawnFailed,
    Probed(Probe),
    Members(&'a [Member], bool),
    MemberGone,
    CgroupChanged,
    WatchFailed,
    LookDue,
    Want,
    List,
    NobodySignalled,
}

/// What the ladder listens to.
#[derive(Clone, Copy)]
pub(super) enum StopWord {
    Stop(StopPolicy, StopReason),
    RunLimit,
    Kill(StopReason),
    GraceDue,
    StuckDue,
    GroupEmpty,
    Members,
    Signalled(Signalled),
    SpawnFailed,
}

/// What settling listens to.
#[derive(Clone, Copy)]
pub(super) enum SettleWord {
    LeaderEnded,
    SpawnFailed,
    GroupAlive,
    GroupEmpty,
    GraceDue,
    WaitDue,
    StopBegan,
    LadderOver(End),
}

impl<'a> DrainWord<'a> {
    pub(super) fn of(word: Word<'a>) -> Option<DrainWord<'a>> {
        Some(match word {
            Word::Input(Input::Started) => DrainWord::Started,
            Word::Input(Input::StartFailed) => DrainWord::StartFailed,
            Word::Input(Input::Bytes(stream, n)) => DrainWord::Bytes(stream, n),
            Word::Input(Input::Ended(stream, end)) => DrainWord::Ended(stream, end),
            Word::Input(Input::Swept) => DrainWord::Swept,
            Word::Input(Input::Exit(info)) => DrainWord::Exit(info),
            Word::Input(Input::Holders(list, complete)) => DrainWord::Holders(list, complete),
            Word::Input(Input::Paused(stream)) => DrainWord::Paused(stream),
            Word::Input(Input::Resumed(stream)) => DrainWord::Resumed(stream),
            Word::Input(Input::Due(Timer::DrainIdle)) => DrainWord::IdleDue,
            Word::Input(Input::Due(Timer::DrainLimit)) => DrainWord::LimitDue,
            Word::Fact(Fact::GroupEmpty) => DrainWord::GroupEmpty,
            Word::Fact(Fact::LadderOver(end)) => DrainWord::LadderOver(end),
            Word::Input(Input::Due(
                Timer::RunLimit
                | Timer::StopGrace
                | Timer::StuckAfter
                | Timer::BackgroundGrace
                | Timer::BackgroundWait
                | Timer::GroupLook,
            ))
            | Word::Input(
                Input::Probed(_)
                | Input::Members(..)
                | Input::MemberGone
                | Input::WatchFailed
                | Input::CgroupChanged,
            )
            | Word::Input(
                Input::Signalled(_)
                | Input::StdinClosed
                | Input::Stop(..)
                | Input::Kill(_)
                | Input::Detach
                | Input::Abandon,
            )
            | Word::Fact(
                Fact::LeaderEnded | Fact::SpawnFailed | Fact::GroupAlive | Fact::Want | Fact::List,
            )
            | Word::Fact(Fact::Stop(..) | Fact::StopBegan) => return None,
        })
    }
}

impl<'a> GroupWord<'a> {
    pub(super) fn of(word: Word<'a>) -> Option<GroupWord<'a>> {
        Some(match word {
            Word::Input(Input::Probed(probe)) => GroupWord::Probed(probe),
            Word::Input(Input::Members(list, complete)) => GroupWord::Members(list, complete),
            Word::Input(Input::MemberGone) => GroupWord::MemberGone,
            Word::Input(Input::CgroupChanged) => GroupWord::CgroupChanged,
            Word::Input(Input::WatchFailed) => GroupWord::WatchFailed,
            Word::Input(Input::Due(Timer::GroupLook)) => GroupWord::LookDue,
            Word::Input(Input::Signalled(Signalled::Empty)) => GroupWord::NobodySignalled,
            Word::Fact(Fact::LeaderEnded) => GroupWord::LeaderEnded,
            Word::Fact(Fact::SpawnFailed) => GroupWord::SpawnFailed,
            Word::Fact(Fact::Want) => GroupWord::Want,
            Word::Fact(Fact::List) => GroupWord::List,
            Word::Input(Input::Due(
                Timer::RunLimit
                | Timer::DrainIdle
                | Timer::DrainLimit
                | Timer::StopGrace
                | Timer::StuckAfter
                | Timer::BackgroundGrace
                | Timer::BackgroundWait,
            ))
            | Word::Input(Input::Signalled(
                Signalled::Sent | Signalled::Denied | Signalled::NoWay,
            ))
            | Word::Input(
                Input::Started
                | Input::StartFailed
                | Input::Bytes(..)
                | Input::Ended(..)
                | Input::Swept
                | Input::Exit(_),
            )
            | Word::Input(
                Input::Holders(..) | Input::Paused(_) | Input::Resumed(_) | Input::StdinClosed,
            )
            | Word::Input(Input::Stop(..) | Input::Kill(_) | Input::Detach | Input::Abandon)
            | Word::Fact(
                Fact::GroupAlive
                | Fact::GroupEmpty
                | Fact::Stop(..)
                | Fact::StopBegan
                | Fact::LadderOver(_),
            ) => return None,
        })
    }
}

impl StopWord {
    pub(super) fn of(word: Word<'_>) -> Option<StopWord> {
        Some(match word {
            Word::Input(Input::Stop(policy, reason)) | Word::Fact(Fact::Stop(policy, reason)) => {
                StopWord::Stop(policy, reason)
            }
            Word::Input(Input::Kill(reason)) => StopWord::Kill(reason),
            Word::Input(Input::Abandon) => StopWord::Kill(StopReason::Shutdown),
            Word::Input(Input::Due(Timer::RunLimit)) => StopWord::RunLimit,
            Word::Input(Input::Due(Timer::StopGrace)) => StopWord::GraceDue,
            Word::Input(Input::Due(Timer::StuckAfter)) => StopWord::StuckDue,
            Word::Input(Input::Members(..)) => StopWord::Members,
            Word::Input(Input::Signalled(answer)) => StopWord::Signalled(answer),
            Word::Fact(Fact::GroupEmpty) => StopWord::GroupEmpty,
            Word::Fact(Fact::SpawnFailed) => StopWord::SpawnFailed,
            Word::Input(Input::Due(
                Timer::DrainIdle
                | Timer::DrainLimit
                | Timer::BackgroundGrace
                | Timer::BackgroundWait
                | Timer::GroupLook,
            ))
            | Word::Input(
                Input::Started
                | Input::StartFailed
                | Input::Bytes(..)
                | Input::Ended(..)
                | Input::Swept
                | Input::Exit(_),
            )
            | Word::Input(
                Input::Probed(_) | Input::MemberGone | Input::WatchFailed | Input::CgroupChanged,
            )
            | Word::Input(
                Input::Holders(..)
                | Input::Paused(_)
                | Input::Resumed(_)
                | Input::StdinClosed
                | Input::Detach,
            )
            | Word::Fact(
                Fact::LeaderEnded
                | Fact::GroupAlive
                | Fact::Want
                | Fact::List
                | Fact::StopBegan
                | Fact::LadderOver(_),
            ) => {
                return None;
            }
        })
    }
}

impl SettleWord {
    pub(super) fn of(word: Word<'_>) -> Option<SettleWord> {
        Some(match word {
            Word::Input(Input::Due(Timer::BackgroundGrace)) => SettleWord::GraceDue,
            Word::Input(Input::Due(Timer::BackgroundWait)) => SettleWord::WaitDue,
            Word::Fact(Fact::LeaderEnded) => SettleWord::LeaderEnded,
            Word::Fact(Fact::SpawnFailed) => SettleWord::SpawnFailed,
            Word::Fact(Fact::GroupAlive) => SettleWord::GroupAlive,
            Word::Fact(Fact::GroupEmpty) => SettleWord::GroupEmpty,
            Word::Fact(Fact::StopBegan) => SettleWord::StopBegan,
            Word::Fact(Fact::LadderOver(end)) => SettleWord::LadderOver(end),
            Word::Input(Input::Due(
                Timer::RunLimit
                | Timer::DrainIdle
                | Timer::DrainLimit
                | Timer::StopGrace
                | Timer::StuckAfter
                | Timer::GroupLook,
            ))
            | Word::Input(
                Input::Started
                | Input::StartFailed
                | Input::Bytes(..)
                | Input::Ended(..)
                | Input::Swept
                | Input::Exit(_),
            )
            | Word::Input(
                Input::Probed(_)
                | Input::Members(..)
                | Input::MemberGone
                | Input::WatchFailed
                | Input::CgroupChanged,
            )
            | Word::Input(
                Input::Holders(..) | Input::Paused(_) | Input::Resumed(_) | Input::StdinClosed,
            )
            | Word::Input(
                Input::Signalled(_)
                | Input::Stop(..)
                | Input::Kill(_)
                | Input::Detach
                | Input::Abandon,
            )
            | Word::Fact(Fact::Want | Fact::List | Fact::Stop(..)) => return None,
        })
    }
}
