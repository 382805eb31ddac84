//! The table of settling: what each message does in each state.

use super::phase::EndingCause;
use super::{Phase, Settle};
use crate::lifecycle::context::Context;
use crate::lifecycle::group::Group;
use crate::lifecycle::message::{Message, StopResult};
use crate::lifecycle::routing::SettleMessage;
use crate::lifecycle::stop::Stop;
use crate::report::SettledAs;
use crate::types::Ns;

impl Settle {
    /// Takes in one message. `exit_at` is when the leader's exit was seen.
    pub(in crate::lifecycle) fn on_message(
        &mut self,
        cx: &mut Context<'_>,
        message: Message<'_>,
        group: &Group,
        stop: &Stop,
        exit_at: Ns,
    ) {
        let Some(message) = SettleMessage::route(message) else {
            return;
        };
        match self.phase {
            Phase::LeaderAlive => self.leader_alive(cx, message),
            Phase::Disabled => Self::disabled(cx, message),
            Phase::Probing { stopped } => self.probing(cx, message, stop, exit_at, stopped),
            Phase::Grace => self.grace(cx, message, group),
            Phase::Listing => self.listing(cx, message, group),
            Phase::Waiting => self.waiting(cx, message, group),
            Phase::Ending { cause } => self.ending(cx, message, group, stop, cause),
            Phase::Over(_) => Self::over(cx, message),
        }
    }

    fn leader_alive(&mut self, cx: &mut Context<'_>, message: SettleMessage) {
        match message {
            SettleMessage::LeaderEnded if cx.policy.background.disabled => self.disable(cx),
            SettleMessage::LeaderEnded => self.phase = Phase::Probing { stopped: false },
            SettleMessage::SpawnFailed => self.finish(cx, SettledAs::None),
            // The leader itself stays, so there will be no exit to settle after.
            SettleMessage::StopEnded(
                StopResult::Stuck | StopResult::Denied | StopResult::NoWay,
            ) if cx.policy.background.disabled => self.disable(cx),
            SettleMessage::StopEnded(
                StopResult::Stuck | StopResult::Denied | StopResult::NoWay,
            ) => self.finish(cx, SettledAs::Stuck),
            SettleMessage::StopEnded(StopResult::Gone) | SettleMessage::StopBegan => {}
            SettleMessage::GroupAlive
            | SettleMessage::GroupEmpty
            | SettleMessage::GraceDue
            | SettleMessage::WaitDue => cx.contract_violation("the leader has not ended"),
        }
    }

    fn disabled(cx: &mut Context<'_>, message: SettleMessage) {
        match message {
            SettleMessage::GroupAlive
            | SettleMessage::GroupEmpty
            | SettleMessage::StopBegan
            | SettleMessage::StopEnded(_)
            | SettleMessage::SpawnFailed => {}
            // The leader of a stop that had failed has ended after all.
            SettleMessage::LeaderEnded => {}
            SettleMessage::GraceDue | SettleMessage::WaitDue => {
                cx.contract_violation("detection is disabled")
            }
        }
    }

    fn probing(
        &mut self,
        cx: &mut Context<'_>,
        message: SettleMessage,
        stop: &Stop,
        exit_at: Ns,
        stopped: bool,
    ) {
        match message {
            // The members that needed SIGKILL died of it together with the leader.
            SettleMessage::GroupEmpty if stop.has_killed() && !stop.needed_kill().is_empty() => {
                self.finish(cx, SettledAs::Terminated)
            }
            SettleMessage::GroupEmpty => self.finish(cx, SettledAs::None),
            SettleMessage::GroupAlive => match stop.result() {
                Some(StopResult::Stuck | StopResult::Denied | StopResult::NoWay) => {
                    self.finish(cx, SettledAs::Stuck)
                }
                Some(StopResult::Gone) | None if stop.is_in_progress() => {
                    self.phase = Phase::Ending {
                        cause: if stopped {
                            EndingCause::StopInGrace
                        } else {
                            EndingCause::StopBeforeExit
                        },
                    }
                }
                Some(StopResult::Gone) | None => self.begin_grace(cx, exit_at),
            },
            SettleMessage::StopEnded(
                StopResult::Stuck | StopResult::Denied | StopResult::NoWay,
            ) => self.finish(cx, SettledAs::Stuck),
            // The answer of the probe decides whether there was anybody to stop.
            SettleMessage::StopBegan => self.phase = Phase::Probing { stopped: true },
            SettleMessage::StopEnded(StopResult::Gone) | SettleMessage::SpawnFailed => {}
            SettleMessage::LeaderEnded | SettleMessage::GraceDue | SettleMessage::WaitDue => {
                cx.contract_violation("only a probe is waited for")
            }
        }
    }

    fn grace(&mut self, cx: &mut Context<'_>, message: SettleMessage, group: &Group) {
        match message {
            SettleMessage::GroupEmpty => self.finish(cx, SettledAs::None),
            SettleMessage::GraceDue => self.begin_listing(cx),
            SettleMessage::StopBegan => {
                self.record_list(group);
                self.begin_ending(cx, EndingCause::StopInGrace);
            }
            SettleMessage::GroupAlive | SettleMessage::SpawnFailed => {}
            SettleMessage::LeaderEnded | SettleMessage::WaitDue | SettleMessage::StopEnded(_) => {
                cx.contract_violation("only the grace is waited for")
            }
        }
    }

    fn listing(&mut self, cx: &mut Context<'_>, message: SettleMessage, group: &Group) {
        match message {
            SettleMessage::GroupEmpty => self.finish(cx, SettledAs::None),
            // The list that was asked for is there.
            SettleMessage::GroupAlive => {
                self.record_list(group);
                self.decide(cx);
            }
            SettleMessage::StopBegan => {
                self.record_list(group);
                self.begin_ending(cx, EndingCause::BackgroundWork);
            }
            SettleMessage::SpawnFailed => {}
            SettleMessage::LeaderEnded
            | SettleMessage::GraceDue
            | SettleMessage::WaitDue
            | SettleMessage::StopEnded(_) => cx.contract_violation("only the list is waited for"),
        }
    }

    fn waiting(&mut self, cx: &mut Context<'_>, message: SettleMessage, group: &Group) {
        match message {
            SettleMessage::GroupEmpty => self.finish(cx, SettledAs::Finished),
            SettleMessage::WaitDue => self.end_wait(cx),
            SettleMessage::StopBegan => self.begin_ending(cx, EndingCause::BackgroundWork),
            // There is a newer list: members have forked.
            SettleMessage::GroupAlive if !group.is_unlisted() => self.record_list(group),
            SettleMessage::GroupAlive | SettleMessage::SpawnFailed => {}
            SettleMessage::LeaderEnded | SettleMessage::GraceDue | SettleMessage::StopEnded(_) => {
                cx.contract_violation("only the end of the work is waited for")
            }
        }
    }

    fn ending(
        &mut self,
        cx: &mut Context<'_>,
        message: SettleMessage,
        group: &Group,
        stop: &Stop,
        cause: EndingCause,
    ) {
        match message {
            SettleMessage::GroupEmpty => self.finish(cx, ended_as(cause, group, stop)),
            SettleMessage::StopEnded(
                StopResult::Stuck | StopResult::Denied | StopResult::NoWay,
            ) => self.finish(cx, SettledAs::Stuck),
            // The first list since the stop began says whom it ends.
            SettleMessage::GroupAlive
                if cause == EndingCause::StopInGrace && self.listed.as_slice().is_empty() =>
            {
                self.record_list(group)
            }
            SettleMessage::StopEnded(StopResult::Gone)
            | SettleMessage::GroupAlive
            | SettleMessage::StopBegan
            | SettleMessage::SpawnFailed => {}
            SettleMessage::LeaderEnded | SettleMessage::GraceDue | SettleMessage::WaitDue => {
                cx.contract_violation("only the end of the stop is waited for")
            }
        }
    }

    fn over(cx: &mut Context<'_>, message: SettleMessage) {
        match message {
            SettleMessage::GroupAlive
            | SettleMessage::GroupEmpty
            | SettleMessage::StopBegan
            | SettleMessage::StopEnded(_)
            | SettleMessage::SpawnFailed => {}
            // The leader of a stop that had failed has ended after all.
            SettleMessage::LeaderEnded => {}
            SettleMessage::GraceDue | SettleMessage::WaitDue => {
                cx.contract_violation("background work is settled")
            }
        }
    }
}

/// What is reported once a stopped group is empty. `Terminated` only if a signal met somebody.
fn ended_as(cause: EndingCause, group: &Group, stop: &Stop) -> SettledAs {
    match cause {
        // Members that died of the same SIGKILL as the leader were zombies when the group was
        // asked: nobody was ended after the leader.
        EndingCause::StopBeforeExit
            if stop.has_killed()
                && (!stop.needed_kill().is_empty()
                    || group.members_without_leader().next().is_some()) =>
        {
            SettledAs::Terminated
        }
        EndingCause::StopBeforeExit => SettledAs::None,
        EndingCause::StopInGrace | EndingCause::BackgroundWork if stop.has_signalled() => {
            SettledAs::Terminated
        }
        EndingCause::StopInGrace => SettledAs::None,
        EndingCause::BackgroundWork => SettledAs::Finished,
    }
}
