//! The ladder: a signal to the whole group, a grace, SIGKILL to the whole group, and what is left
//! is stuck.
//!
//! Escalation goes by the group being empty, not by the leader being gone. Nothing is sent here.

use super::group::Group;
use super::member_list::List;
use super::routing::StopMessage;
use super::step::{Fact, Message, Step, StopResult};
use super::{Effect, Timer};
use crate::report::{StopReason, StopReport};
use crate::types::{Bound, Member, Ns, Signal, Signalled, StopPolicy, limits};

/// Where the ladder is.
///
/// Every change there is:
///
/// ```text
/// Idle --Stop, the group is empty--> Over
/// Idle --Stop--> Terminating
/// Idle --Kill, or a grace of zero--> Killing
/// Terminating --Kill or a grace of zero--> Killing
/// Terminating --Due(StopGrace)--> Counting
/// Counting --Members, Kill or Due(StopGrace)--> Killing
/// Counting --GroupEmpty--> Over
/// Terminating --GroupEmpty or NoWay--> Over
/// Killing --Due(StuckAfter) or Denied--> Naming
/// Killing --GroupEmpty or NoWay--> Over
/// Naming --Members--> Over
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// Nobody has asked.
    Idle,
    /// The first signal is sent. `kill_at`: when the grace ends, if it does. `owed`: it had no way,
    /// and is sent again once it is known who is left.
    Terminating { kill_at: Option<Ns>, owed: bool },
    /// The grace is over: who is left is being listed, and needs SIGKILL, which follows at once.
    Counting,
    /// SIGKILL is sent.
    Killing,
    /// It was of no use: who stays is being listed.
    Naming(StopResult),
    /// Nothing more is done.
    Over(StopResult),
}

/// How far a signal got that somebody was there to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Reached {
    Nobody,
    Signalled,
    Killed,
}

/// Why and with what a ladder was begun: what the report says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Begun {
    reason: StopReason,
    signal: Signal,
    escalated: bool,
}

/// The stop of one generation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stop {
    phase: Phase,
    begun: Option<Begun>,
    stuck_after: Ns,
    reached: Reached,
    /// Who was alive when the grace was over, the leader excepted.
    needed_kill: List,
    /// Members can be outside the group, and a look is needed to find them.
    looks_outside: bool,
}

impl Stop {
    /// Nobody has asked.
    pub(super) fn new() -> Stop {
        Stop {
            phase: Phase::Idle,
            begun: None,
            stuck_after: Ns::MAX,
            reached: Reached::Nobody,
            needed_kill: List::new(),
            looks_outside: false,
        }
    }

    /// Says that members can be outside the group, where a signal to the group alone does not reach
    /// them.
    pub(super) fn look_outside(&mut self) {
        self.looks_outside = true;
    }

    /// Takes in one word. `group` is looked at for whether anybody is left, and known.
    pub(super) fn on_message(&mut self, step: &mut Step<'_>, message: Message<'_>, group: &Group) {
        let Some(message) = StopMessage::of(message) else {
            return;
        };
        match self.phase {
            Phase::Idle => self.idle(step, message, group),
            Phase::Terminating { kill_at, owed } => {
                self.terminating(step, message, group, (kill_at, owed))
            }
            Phase::Counting => self.counting(step, message, group),
            Phase::Killing => self.killing(step, message, group),
            Phase::Naming(result) => self.naming(step, message, group, result),
            Phase::Over(_) => self.after(step, message),
        }
    }

    // ---- the table, a column each

    fn idle(&mut self, step: &mut Step<'_>, message: StopMessage, group: &Group) {
        match message {
            StopMessage::Stop(policy, reason) => self.begin(step, &policy, reason, group),
            StopMessage::RunLimit => {
                let policy = step.policy.stop;
                self.begin(step, &policy, StopReason::Timeout, group);
            }
            StopMessage::Kill(reason) => {
                let policy = step
                    .policy
                    .stop
                    .grace(Bound::After(std::time::Duration::ZERO));
                self.begin(step, &policy, reason, group);
            }
            StopMessage::GroupEmpty | StopMessage::Members | StopMessage::SpawnFailed => {}
            StopMessage::GraceDue | StopMessage::StuckDue | StopMessage::Signalled(_) => {
                step.contract_violation("no ladder has begun")
            }
        }
    }

    fn terminating(
        &mut self,
        step: &mut Step<'_>,
        message: StopMessage,
        group: &Group,
        (kill_at, owed): (Option<Ns>, bool),
    ) {
        match message {
            StopMessage::Stop(policy, _) => self.shorten(step, &policy, (kill_at, owed)),
            StopMessage::RunLimit => {
                let policy = step.policy.stop;
                self.shorten(step, &policy, (kill_at, owed));
            }
            StopMessage::Kill(_) => self.kill(step),
            StopMessage::GraceDue => self.count(step),
            StopMessage::GroupEmpty => self.over(step, StopResult::Gone),
            StopMessage::Members => {
                // Who was forked after the signal waits for SIGKILL, but one that had no way yet
                // has one now.
                if owed && !group.is_empty() {
                    self.phase = Phase::Terminating {
                        kill_at,
                        owed: false,
                    };
                    self.send_first(step);
                } else if let (true, false, Some(begun)) =
                    (self.looks_outside, group.is_empty(), self.begun)
                {
                    step.effect(Effect::SignalEscapees(begun.signal));
                    step.effect(Effect::SignalEscapees(Signal::CONT));
                }
            }
            StopMessage::Signalled(Signalled::Sent) => {
                self.reached = self.reached.max(Reached::Signalled)
            }
            StopMessage::Signalled(Signalled::NoWay) => {
                if group.is_unlisted() {
                    self.phase = Phase::Terminating {
                        kill_at,
                        owed: true,
                    };
                    step.fact(Fact::ListWanted);
                } else {
                    self.over(step, StopResult::NoWay);
                }
            }
            // Refused: SIGKILL will be refused too, and then it is named who stays.
            StopMessage::Signalled(Signalled::Empty | Signalled::Denied) => {}
            StopMessage::SpawnFailed => self.end(step, StopResult::Gone),
            StopMessage::StuckDue => step.contract_violation("SIGKILL was not sent"),
        }
    }

    fn counting(&mut self, step: &mut Step<'_>, message: StopMessage, group: &Group) {
        match message {
            StopMessage::Members | StopMessage::GraceDue => {
                if !group.is_empty() {
                    self.needed_kill.extend(group.others().cloned());
                    self.kill(step);
                }
            }
            StopMessage::Kill(_) => self.kill(step),
            StopMessage::Stop(policy, _) if policy.grace.is_zero() => self.kill(step),
            StopMessage::GroupEmpty => self.over(step, StopResult::Gone),
            StopMessage::SpawnFailed => self.end(step, StopResult::Gone),
            StopMessage::Signalled(Signalled::Sent) => {
                self.reached = self.reached.max(Reached::Signalled)
            }
            StopMessage::Stop(..)
            | StopMessage::RunLimit
            | StopMessage::Signalled(Signalled::Empty | Signalled::Denied | Signalled::NoWay) => {}
            StopMessage::StuckDue => step.contract_violation("SIGKILL was not sent"),
        }
    }

    fn killing(&mut self, step: &mut Step<'_>, message: StopMessage, group: &Group) {
        match message {
            StopMessage::StuckDue => self.name(step, StopResult::Stuck),
            StopMessage::GroupEmpty => self.over(step, StopResult::Gone),
            StopMessage::Members => {
                // Once more for those who were forked, or had no way, meanwhile.
                if !group.is_empty() {
                    step.effect(Effect::SignalGroup(Signal::KILL));
                }
            }
            StopMessage::Signalled(Signalled::Sent) => self.reached = Reached::Killed,
            StopMessage::Signalled(Signalled::Denied) => self.name(step, StopResult::Denied),
            StopMessage::Signalled(Signalled::NoWay) => {
                if group.is_unlisted() {
                    step.fact(Fact::ListWanted);
                } else {
                    self.over(step, StopResult::NoWay);
                }
            }
            StopMessage::SpawnFailed => self.end(step, StopResult::Gone),
            StopMessage::Signalled(Signalled::Empty)
            | StopMessage::Stop(..)
            | StopMessage::RunLimit
            | StopMessage::Kill(_) => {}
            StopMessage::GraceDue => step.contract_violation("the grace is over"),
        }
    }

    fn naming(
        &mut self,
        step: &mut Step<'_>,
        message: StopMessage,
        group: &Group,
        result: StopResult,
    ) {
        match message {
            StopMessage::Members => {
                if !group.is_empty() {
                    // For those who were forked since the last one.
                    step.effect(Effect::SignalGroup(Signal::KILL));
                    self.over(step, result);
                }
            }
            StopMessage::GroupEmpty => self.over(step, StopResult::Gone),
            StopMessage::SpawnFailed => self.end(step, StopResult::Gone),
            StopMessage::Signalled(_)
            | StopMessage::Stop(..)
            | StopMessage::RunLimit
            | StopMessage::Kill(_) => {}
            StopMessage::GraceDue | StopMessage::StuckDue => {
                step.contract_violation("nothing is waited for but the list")
            }
        }
    }

    fn after(&mut self, step: &mut Step<'_>, message: StopMessage) {
        match message {
            StopMessage::Stop(..)
            | StopMessage::RunLimit
            | StopMessage::Kill(_)
            | StopMessage::GroupEmpty
            | StopMessage::Members => {}
            // Answers to SIGCONT and to the last SIGKILL, which change nothing any more.
            StopMessage::Signalled(_) | StopMessage::SpawnFailed => {}
            StopMessage::GraceDue | StopMessage::StuckDue => {
                step.contract_violation("the ladder is over")
            }
        }
    }

    // ---- what the cells do

    fn begin(
        &mut self,
        step: &mut Step<'_>,
        policy: &StopPolicy,
        reason: StopReason,
        group: &Group,
    ) {
        self.begun = Some(Begun {
            reason,
            signal: policy.signal,
            escalated: false,
        });
        if group.is_empty() {
            // Nobody to signal, but a drain that an escapee holds ends now.
            self.over(step, StopResult::Gone);
            return;
        }
        self.stuck_after = policy.stuck_after.into();
        if policy.grace.is_zero() {
            self.begun = Some(Begun {
                reason,
                signal: Signal::KILL,
                escalated: true,
            });
            self.kill(step);
        } else {
            let kill_at = policy
                .grace
                .duration()
                .map(|grace| step.now.after(grace.into()));
            self.phase = Phase::Terminating {
                kill_at,
                owed: false,
            };
            self.send_first(step);
            if let Some(at) = kill_at {
                step.arm(Timer::StopGrace, at);
            }
        }
        if self.looks_outside {
            // The group has got it; the others get it when they are found.
            step.fact(Fact::ListWanted);
        }
        step.fact(Fact::ProbeWanted);
        step.fact(Fact::StopBegan);
    }

    /// A later stop can only bring the end nearer.
    fn shorten(
        &mut self,
        step: &mut Step<'_>,
        policy: &StopPolicy,
        (kill_at, owed): (Option<Ns>, bool),
    ) {
        self.stuck_after = self.stuck_after.min(policy.stuck_after.into());
        if policy.grace.is_zero() {
            self.kill(step);
        } else if let Some(grace) = policy.grace.duration() {
            let at = step.now.after(grace.into());
            if kill_at.is_none_or(|kill_at| at < kill_at) {
                self.phase = Phase::Terminating {
                    kill_at: Some(at),
                    owed,
                };
                step.arm(Timer::StopGrace, at);
            }
        }
    }

    /// A group that is stopped (SIGSTOP) takes the signal only when it goes on.
    fn send_first(&mut self, step: &mut Step<'_>) {
        if let Some(begun) = self.begun {
            step.effect(Effect::SignalGroup(begun.signal));
            step.effect(Effect::SignalGroup(Signal::CONT));
        }
    }

    /// The grace is over. A list that takes too long is not waited for.
    fn count(&mut self, step: &mut Step<'_>) {
        self.phase = Phase::Counting;
        step.fact(Fact::ListWanted);
        step.arm(
            Timer::StopGrace,
            step.now.after(limits::SURVIVOR_LIST_TIME.into()),
        );
    }

    fn kill(&mut self, step: &mut Step<'_>) {
        step.cancel(Timer::StopGrace);
        self.phase = Phase::Killing;
        if let Some(begun) = &mut self.begun {
            begun.escalated = true;
        }
        step.effect(Effect::SignalGroup(Signal::KILL));
        step.arm(Timer::StuckAfter, step.now.after(self.stuck_after));
    }

    fn name(&mut self, step: &mut Step<'_>, result: StopResult) {
        step.cancel(Timer::StuckAfter);
        self.phase = Phase::Naming(result);
        step.fact(Fact::ListWanted);
    }

    fn end(&mut self, step: &mut Step<'_>, result: StopResult) {
        step.cancel(Timer::StopGrace);
        step.cancel(Timer::StuckAfter);
        self.phase = Phase::Over(result);
    }

    fn over(&mut self, step: &mut Step<'_>, result: StopResult) {
        self.end(step, result);
        step.fact(Fact::StopEnded(result));
    }

    // ---- what is asked of it

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    /// Nobody has asked.
    pub(super) fn is_idle(&self) -> bool {
        self.phase == Phase::Idle
    }

    /// Begun, and not over.
    pub(super) fn is_in_progress(&self) -> bool {
        match self.phase {
            Phase::Terminating { .. } | Phase::Counting | Phase::Killing | Phase::Naming(_) => true,
            Phase::Idle | Phase::Over(_) => false,
        }
    }

    /// How it ended.
    pub(super) fn ended(&self) -> Option<StopResult> {
        match self.phase {
            Phase::Over(result) => Some(result),
            Phase::Idle
            | Phase::Terminating { .. }
            | Phase::Counting
            | Phase::Killing
            | Phase::Naming(_) => None,
        }
    }

    /// Why it was begun: the first reason there was.
    pub(super) fn reason(&self) -> Option<StopReason> {
        self.begun.map(|begun| begun.reason)
    }

    /// A signal of it was sent while somebody was there to receive it.
    pub(super) fn has_signalled(&self) -> bool {
        self.reached >= Reached::Signalled
    }

    /// SIGKILL was, too.
    pub(super) fn has_killed(&self) -> bool {
        self.reached == Reached::Killed
    }

    /// Who had to be killed though the leader was asked in time: alive when the grace was over, the
    /// leader excepted.
    pub(super) fn needed_kill(&self) -> &[Member] {
        self.needed_kill.as_slice()
    }

    pub(super) fn report(&self, group: &Group) -> Option<StopReport> {
        let begun = self.begun?;
        let end = self.ended();
        let stuck = match end {
            Some(StopResult::Stuck | StopResult::Denied | StopResult::NoWay) => group
                .members()
                .iter()
                .map(|member| member.who.clone())
                .collect(),
            Some(StopResult::Gone) | None => Vec::new(),
        };
        let denied = end == Some(StopResult::Denied);
        Some(StopReport {
            reason: begun.reason,
            signal: begun.signal,
            escalated: begun.escalated,
            stuck,
            denied,
        })
    }
}

#[cfg(test)]
mod tests;
