//! The table of a stop: what each message does in each state.

use super::{Delivered, Phase, Stop, grace_of};
use crate::lifecycle::context::Context;
use crate::lifecycle::group::Group;
use crate::lifecycle::message::{Fact, Message, StopResult};
use crate::lifecycle::routing::StopMessage;
use crate::lifecycle::vocabulary::Effect;
use crate::report::StopReason;
use crate::types::{Bound, Ns, Signal, Signalled};
use std::time::Duration;

impl Stop {
    /// Takes in one message. `group` says whether anybody is left, and who.
    pub(in crate::lifecycle) fn on_message(
        &mut self,
        cx: &mut Context<'_>,
        message: Message<'_>,
        group: &Group,
    ) {
        let Some(message) = StopMessage::route(message) else {
            return;
        };
        match self.phase {
            Phase::Idle => self.idle(cx, message, group),
            Phase::ListingMembers { grace } => self.listing_members(cx, message, group, grace),
            Phase::Terminating { kill_at, resend } => {
                self.terminating(cx, message, group, (kill_at, resend))
            }
            Phase::ListingSurvivors => self.listing_survivors(cx, message, group),
            Phase::Killing => self.killing(cx, message, group),
            Phase::ListingStuck(result) => self.listing_stuck(cx, message, group, result),
            Phase::Over(_) => self.over(cx, message),
        }
    }

    fn idle(&mut self, cx: &mut Context<'_>, message: StopMessage, group: &Group) {
        match message {
            StopMessage::Stop(policy, reason) => self.begin(cx, &policy, reason, group),
            StopMessage::RunLimit => {
                let policy = cx.policy.stop;
                self.begin(cx, &policy, StopReason::Timeout, group);
            }
            StopMessage::Kill(reason) => {
                let policy = cx.policy.stop.grace(Bound::After(Duration::ZERO));
                self.begin(cx, &policy, reason, group);
            }
            StopMessage::Abandon => self.begin_abandoned(cx, group),
            StopMessage::GroupEmpty | StopMessage::Members | StopMessage::SpawnFailed => {}
            StopMessage::GraceDue | StopMessage::StuckDue | StopMessage::Signalled(_) => {
                cx.contract_violation("no stop has begun")
            }
        }
    }

    fn listing_members(
        &mut self,
        cx: &mut Context<'_>,
        message: StopMessage,
        group: &Group,
        grace: Bound,
    ) {
        match message {
            StopMessage::Members | StopMessage::GraceDue => {
                if !group.is_empty() {
                    self.send(cx, grace);
                }
            }
            StopMessage::Stop(policy, _) => self.shorten_unsent(&policy, grace),
            StopMessage::RunLimit => {
                let policy = cx.policy.stop;
                self.shorten_unsent(&policy, grace);
            }
            StopMessage::Kill(_) => {
                self.phase = Phase::ListingMembers {
                    grace: Bound::After(Duration::ZERO),
                }
            }
            StopMessage::Abandon => self.send(cx, Bound::After(Duration::ZERO)),
            StopMessage::GroupEmpty => self.finish(cx, StopResult::Gone),
            StopMessage::SpawnFailed => self.finish_silently(cx, StopResult::Gone),
            StopMessage::Signalled(_) | StopMessage::StuckDue => {
                cx.contract_violation("no signal was sent")
            }
        }
    }

    fn terminating(
        &mut self,
        cx: &mut Context<'_>,
        message: StopMessage,
        group: &Group,
        (kill_at, resend): (Option<Ns>, bool),
    ) {
        match message {
            StopMessage::Stop(policy, _) => self.shorten(cx, &policy, (kill_at, resend)),
            StopMessage::RunLimit => {
                let policy = cx.policy.stop;
                self.shorten(cx, &policy, (kill_at, resend));
            }
            StopMessage::Kill(_) | StopMessage::Abandon => self.send_kill(cx),
            StopMessage::GraceDue => self.list_survivors(cx),
            StopMessage::GroupEmpty => self.finish(cx, StopResult::Gone),
            StopMessage::Members => {
                // Members that were forked after the signal wait for SIGKILL. Members that there
                // was no safe way to are reachable now that they are listed.
                if resend && !group.is_empty() {
                    self.phase = Phase::Terminating {
                        kill_at,
                        resend: false,
                    };
                    self.send_first_signal(cx);
                } else if let (true, false, Some(begun)) =
                    (self.has_containment, group.is_empty(), self.begun)
                {
                    cx.effect(Effect::SignalEscapees(begun.signal));
                    cx.effect(Effect::SignalEscapees(Signal::CONT));
                }
            }
            StopMessage::Signalled(Signalled::Sent) => {
                self.delivered = self.delivered.max(Delivered::Signal)
            }
            StopMessage::Signalled(Signalled::NoWay) => {
                if group.is_unlisted() {
                    self.phase = Phase::Terminating {
                        kill_at,
                        resend: true,
                    };
                    cx.fact(Fact::ListWanted);
                } else {
                    self.finish(cx, StopResult::NoWay);
                }
            }
            // SIGKILL will be refused, too, and then those who stay are listed.
            StopMessage::Signalled(Signalled::Empty | Signalled::Denied) => {}
            StopMessage::SpawnFailed => self.finish_silently(cx, StopResult::Gone),
            StopMessage::StuckDue => cx.contract_violation("SIGKILL was not sent"),
        }
    }

    fn listing_survivors(&mut self, cx: &mut Context<'_>, message: StopMessage, group: &Group) {
        match message {
            StopMessage::Members | StopMessage::GraceDue => {
                if !group.is_empty() {
                    self.needed_kill
                        .extend(group.members_without_leader().cloned());
                    self.send_kill(cx);
                }
            }
            StopMessage::Kill(_) | StopMessage::Abandon => self.send_kill(cx),
            StopMessage::Stop(policy, _) if grace_of(&policy).is_zero() => self.send_kill(cx),
            StopMessage::GroupEmpty => self.finish(cx, StopResult::Gone),
            StopMessage::SpawnFailed => self.finish_silently(cx, StopResult::Gone),
            StopMessage::Signalled(Signalled::Sent) => {
                self.delivered = self.delivered.max(Delivered::Signal)
            }
            StopMessage::Stop(..)
            | StopMessage::RunLimit
            | StopMessage::Signalled(Signalled::Empty | Signalled::Denied | Signalled::NoWay) => {}
            StopMessage::StuckDue => cx.contract_violation("SIGKILL was not sent"),
        }
    }

    fn killing(&mut self, cx: &mut Context<'_>, message: StopMessage, group: &Group) {
        match message {
            StopMessage::StuckDue => self.list_stuck(cx, StopResult::Stuck),
            StopMessage::GroupEmpty => self.finish(cx, StopResult::Gone),
            StopMessage::Members => {
                // For members that were forked meanwhile, or could not be reached before.
                if !group.is_empty() {
                    cx.effect(Effect::SignalGroup(Signal::KILL));
                }
            }
            StopMessage::Signalled(Signalled::Sent) => self.delivered = Delivered::Kill,
            StopMessage::Signalled(Signalled::Denied) => self.list_stuck(cx, StopResult::Denied),
            StopMessage::Signalled(Signalled::NoWay) => {
                if group.is_unlisted() {
                    cx.fact(Fact::ListWanted);
                } else {
                    self.finish(cx, StopResult::NoWay);
                }
            }
            StopMessage::SpawnFailed => self.finish_silently(cx, StopResult::Gone),
            StopMessage::Signalled(Signalled::Empty)
            | StopMessage::Stop(..)
            | StopMessage::RunLimit
            | StopMessage::Kill(_)
            | StopMessage::Abandon => {}
            StopMessage::GraceDue => cx.contract_violation("the grace is over"),
        }
    }

    fn listing_stuck(
        &mut self,
        cx: &mut Context<'_>,
        message: StopMessage,
        group: &Group,
        result: StopResult,
    ) {
        match message {
            StopMessage::Members => {
                if !group.is_empty() {
                    // For members that were forked since the last SIGKILL.
                    cx.effect(Effect::SignalGroup(Signal::KILL));
                    self.finish(cx, result);
                }
            }
            StopMessage::GroupEmpty => self.finish(cx, StopResult::Gone),
            StopMessage::SpawnFailed => self.finish_silently(cx, StopResult::Gone),
            StopMessage::Signalled(_)
            | StopMessage::Stop(..)
            | StopMessage::RunLimit
            | StopMessage::Kill(_)
            | StopMessage::Abandon => {}
            StopMessage::GraceDue | StopMessage::StuckDue => {
                cx.contract_violation("only a list is waited for")
            }
        }
    }

    fn over(&mut self, cx: &mut Context<'_>, message: StopMessage) {
        match message {
            StopMessage::Stop(..)
            | StopMessage::RunLimit
            | StopMessage::Kill(_)
            | StopMessage::Abandon
            | StopMessage::GroupEmpty
            | StopMessage::Members => {}
            // Answers to SIGCONT and to the last SIGKILL change nothing any more.
            StopMessage::Signalled(_) | StopMessage::SpawnFailed => {}
            StopMessage::GraceDue | StopMessage::StuckDue => {
                cx.contract_violation("the stop is over")
            }
        }
    }
}
