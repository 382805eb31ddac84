//! The table of the group: what each message does in each state.

use super::{Group, Phase};
use crate::lifecycle::context::Context;
use crate::lifecycle::message::{Fact, Message};
use crate::lifecycle::routing::GroupMessage;
use crate::lifecycle::vocabulary::{Effect, Timer};
use crate::types::{Probe, limits};

impl Group {
    /// Takes in one message.
    pub(in crate::lifecycle) fn on_message(
        &mut self,
        cx: &mut Context<'_>,
        message: Message<'_>,
        stop_in_progress: bool,
    ) {
        let Some(message) = GroupMessage::route(message) else {
            return;
        };
        match self.phase {
            Phase::LeaderAlive => self.leader_alive(cx, message, stop_in_progress),
            Phase::LeaderAliveListing => self.leader_alive_listing(cx, message),
            Phase::Probing { watched } => self.probing(cx, message, watched),
            Phase::Listing => self.listing(cx, message),
            Phase::Watching { watched } => self.watching(cx, message, watched),
            Phase::Empty => self.empty(cx, message),
            Phase::NotAsked => self.not_asked(cx, message),
        }
    }

    fn leader_alive(
        &mut self,
        cx: &mut Context<'_>,
        message: GroupMessage<'_>,
        stop_in_progress: bool,
    ) {
        match message {
            GroupMessage::LeaderEnded => {
                if !cx.policy.background.disabled || stop_in_progress {
                    self.probe(cx, 0);
                } else {
                    self.phase = Phase::NotAsked;
                }
            }
            GroupMessage::SpawnFailed => self.phase = Phase::Empty,
            GroupMessage::ListWanted => {
                self.phase = Phase::LeaderAliveListing;
                cx.effect(Effect::ListMembers);
            }
            GroupMessage::ProbeWanted
            | GroupMessage::NobodySignalled
            | GroupMessage::CgroupChanged => {}
            GroupMessage::Probed(_)
            | GroupMessage::Members(..)
            | GroupMessage::MemberGone
            | GroupMessage::WatchFailed
            | GroupMessage::PollDue => {
                cx.contract_violation("an answer about a group whose leader has not ended");
            }
        }
    }

    fn leader_alive_listing(&mut self, cx: &mut Context<'_>, message: GroupMessage<'_>) {
        match message {
            GroupMessage::Members(list, _) => {
                self.record_list(list);
                self.phase = Phase::LeaderAlive;
            }
            // The list that is under way will say who is left.
            GroupMessage::LeaderEnded => self.phase = Phase::Listing,
            GroupMessage::SpawnFailed => self.phase = Phase::Empty,
            GroupMessage::ListWanted
            | GroupMessage::ProbeWanted
            | GroupMessage::NobodySignalled
            | GroupMessage::CgroupChanged => {}
            GroupMessage::Probed(_)
            | GroupMessage::MemberGone
            | GroupMessage::WatchFailed
            | GroupMessage::PollDue => {
                cx.contract_violation("an answer about a group whose leader has not ended");
            }
        }
    }

    fn probing(&mut self, cx: &mut Context<'_>, message: GroupMessage<'_>, watched: u16) {
        match message {
            GroupMessage::Probed(Probe::Empty) => self.found_empty(cx),
            GroupMessage::Probed(Probe::Unknown) if self.last_list_was_hidden => {
                self.phase = Phase::Watching { watched: 0 };
                self.poll_later(cx);
            }
            GroupMessage::Probed(answer @ (Probe::Alive | Probe::Unknown)) => {
                if watched > 0 {
                    // A watched member that was not seen to end is alive.
                    self.phase = Phase::Watching { watched };
                } else {
                    self.list(cx);
                    if answer == Probe::Alive {
                        cx.fact(Fact::GroupAlive);
                    }
                }
            }
            GroupMessage::MemberGone => {
                self.phase = Phase::Probing {
                    watched: watched.saturating_sub(1),
                }
            }
            // A new list has to follow, even if members are watched.
            GroupMessage::WatchFailed | GroupMessage::ListWanted => {
                self.last_list_was_hidden = false;
                self.phase = Phase::Probing { watched: 0 };
            }
            GroupMessage::ProbeWanted
            | GroupMessage::NobodySignalled
            | GroupMessage::CgroupChanged
            | GroupMessage::SpawnFailed => {}
            GroupMessage::LeaderEnded | GroupMessage::Members(..) | GroupMessage::PollDue => {
                cx.contract_violation("a probe is under way, not a list or a poll")
            }
        }
    }

    fn listing(&mut self, cx: &mut Context<'_>, message: GroupMessage<'_>) {
        match message {
            GroupMessage::Members([], true) => self.found_empty(cx),
            GroupMessage::Members(list, _) => {
                self.record_list(list);
                self.last_list_was_hidden = list.is_empty();
                self.phase = Phase::Watching {
                    watched: u16::try_from(list.len().min(limits::WATCHED)).unwrap_or(0),
                };
                if list.is_empty() {
                    // The members are hidden from us, or came and went. There is nobody to watch.
                    self.poll_later(cx);
                } else {
                    self.has_watches = true;
                    cx.effect(Effect::WatchMembers);
                }
                cx.fact(Fact::GroupAlive);
            }
            // Watching the members of this list will tell which of them have ended.
            GroupMessage::MemberGone | GroupMessage::CgroupChanged | GroupMessage::WatchFailed => {}
            GroupMessage::ProbeWanted
            | GroupMessage::ListWanted
            | GroupMessage::NobodySignalled
            | GroupMessage::SpawnFailed => {}
            GroupMessage::LeaderEnded | GroupMessage::Probed(_) | GroupMessage::PollDue => {
                cx.contract_violation("a list is under way, not a probe or a poll")
            }
        }
    }

    fn watching(&mut self, cx: &mut Context<'_>, message: GroupMessage<'_>, watched: u16) {
        match message {
            GroupMessage::MemberGone => self.probe(cx, watched.saturating_sub(1)),
            // The cgroup itself knows whether it is empty.
            GroupMessage::CgroupChanged => self.probe(cx, watched),
            GroupMessage::NobodySignalled => self.probe(cx, 0),
            GroupMessage::PollDue => {
                self.last_list_was_hidden = false;
                self.probe(cx, 0);
            }
            GroupMessage::WatchFailed => self.poll_later(cx),
            GroupMessage::ListWanted => {
                cx.cancel(Timer::GroupPoll);
                self.list(cx);
            }
            GroupMessage::ProbeWanted | GroupMessage::SpawnFailed => {}
            GroupMessage::LeaderEnded | GroupMessage::Probed(_) | GroupMessage::Members(..) => {
                cx.contract_violation("neither a probe nor a list is under way")
            }
        }
    }

    fn empty(&mut self, cx: &mut Context<'_>, message: GroupMessage<'_>) {
        match message {
            GroupMessage::MemberGone | GroupMessage::CgroupChanged | GroupMessage::WatchFailed => {}
            GroupMessage::ProbeWanted
            | GroupMessage::ListWanted
            | GroupMessage::NobodySignalled
            | GroupMessage::SpawnFailed => {}
            GroupMessage::LeaderEnded
            | GroupMessage::Probed(_)
            | GroupMessage::Members(..)
            | GroupMessage::PollDue => cx.contract_violation("the group is empty"),
        }
    }

    fn not_asked(&mut self, cx: &mut Context<'_>, message: GroupMessage<'_>) {
        match message {
            GroupMessage::ProbeWanted | GroupMessage::ListWanted => self.probe(cx, 0),
            GroupMessage::NobodySignalled
            | GroupMessage::CgroupChanged
            | GroupMessage::SpawnFailed => {}
            GroupMessage::LeaderEnded
            | GroupMessage::Probed(_)
            | GroupMessage::Members(..)
            | GroupMessage::MemberGone
            | GroupMessage::WatchFailed
            | GroupMessage::PollDue => cx.contract_violation("the group was not asked about"),
        }
    }
}
