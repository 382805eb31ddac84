//! The stop: a signal to the whole group, a grace, SIGKILL to the whole group. What survives that
//! is stuck.
//!
//! A stop is over when the group is empty. The leader's end decides nothing here.

mod phase;
mod table;

use super::context::Context;
use super::group::Group;
use super::member_list::MemberList;
use super::message::{Fact, StopResult};
use super::vocabulary::{Effect, Timer};
use crate::report::{StopReason, StopReport};
use crate::types::{Bound, Member, Ns, Signal, StopPolicy, limits};
pub(super) use phase::Phase;
use std::time::Duration;

/// The strongest signal that reached somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Delivered {
    Nothing,
    Signal,
    Kill,
}

/// Why and how a stop was begun, for the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Begun {
    reason: StopReason,
    signal: Signal,
    /// SIGKILL was sent, whoever asked for it (SPEC 3.7).
    escalated: bool,
}

/// The stop of one generation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stop {
    phase: Phase,
    begun: Option<Begun>,
    stuck_after: Ns,
    delivered: Delivered,
    /// The members, without the leader, that were alive when the grace was over.
    needed_kill: MemberList,
    /// A containment can see members outside the process group. They have to be listed before
    /// they can be signalled.
    has_containment: bool,
}

impl Stop {
    pub(super) fn new() -> Stop {
        Stop {
            phase: Phase::Idle,
            begun: None,
            stuck_after: Ns::MAX,
            delivered: Delivered::Nothing,
            needed_kill: MemberList::new(),
            has_containment: false,
        }
    }

    /// Has members outside the process group listed and signalled, too.
    pub(super) fn signal_escapees(&mut self) {
        self.has_containment = true;
    }

    // ---- actions of the table

    fn begin(
        &mut self,
        cx: &mut Context<'_>,
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
            // There is nobody to signal, but this ends a drain whose pipe an escapee holds.
            self.finish(cx, StopResult::Gone);
            return;
        }
        self.stuck_after = policy.stuck_after.into();
        if group.is_unlisted() && group.members_without_leader().next().is_none() {
            let grace = grace_of(policy);
            self.phase = Phase::ListingMembers { grace };
            let at = cx.now.after(limits::SURVIVOR_LIST_TIME.into());
            cx.arm(Timer::StopGrace, at);
        } else {
            self.send(cx, grace_of(policy));
        }
        if self.has_containment {
            cx.fact(Fact::ListWanted);
        }
        cx.fact(Fact::ProbeWanted);
        cx.fact(Fact::StopBegan);
    }

    /// The same without a list first: nobody will be there to wait for it.
    fn begin_abandoned(&mut self, cx: &mut Context<'_>, group: &Group) {
        let policy = cx.policy.stop.grace(Bound::After(Duration::ZERO));
        self.begin(cx, &policy, StopReason::Shutdown, group);
        if let Phase::ListingMembers { grace } = self.phase {
            self.send(cx, grace);
        }
    }

    /// Sends the stop's first signal, which is SIGKILL if there is no grace.
    fn send(&mut self, cx: &mut Context<'_>, grace: Bound) {
        if grace.is_zero() {
            if let Some(begun) = &mut self.begun {
                begun.signal = Signal::KILL;
            }
            self.send_kill(cx);
            return;
        }
        let kill_at = grace.duration().map(|grace| cx.now.after(grace.into()));
        self.phase = Phase::Terminating {
            kill_at,
            resend: false,
        };
        self.send_first_signal(cx);
        match kill_at {
            Some(at) => cx.arm(Timer::StopGrace, at),
            None => cx.cancel(Timer::StopGrace),
        }
    }

    /// Takes in a later stop while the members are being listed.
    fn shorten_unsent(&mut self, policy: &StopPolicy, grace: Bound) {
        self.stuck_after = self.stuck_after.min(policy.stuck_after.into());
        let grace = match (grace.duration(), grace_of(policy).duration()) {
            (Some(one), Some(other)) => Bound::After(one.min(other)),
            (Some(one), None) | (None, Some(one)) => Bound::After(one),
            (None, None) => Bound::Never,
        };
        self.phase = Phase::ListingMembers { grace };
    }

    /// Takes in a later stop, which can only shorten the grace.
    fn shorten(
        &mut self,
        cx: &mut Context<'_>,
        policy: &StopPolicy,
        (kill_at, resend): (Option<Ns>, bool),
    ) {
        self.stuck_after = self.stuck_after.min(policy.stuck_after.into());
        if grace_of(policy).is_zero() {
            self.send_kill(cx);
        } else if let Some(grace) = policy.grace.duration() {
            let at = cx.now.after(grace.into());
            if kill_at.is_none_or(|kill_at| at < kill_at) {
                self.phase = Phase::Terminating {
                    kill_at: Some(at),
                    resend,
                };
                cx.arm(Timer::StopGrace, at);
            }
        }
    }

    /// Sends the first signal, and SIGCONT, without which a stopped group (SIGSTOP) would not act
    /// on it.
    fn send_first_signal(&mut self, cx: &mut Context<'_>) {
        if let Some(begun) = self.begun {
            cx.effect(Effect::SignalGroup(begun.signal));
            cx.effect(Effect::SignalGroup(Signal::CONT));
        }
    }

    /// Has those listed who outlived the grace. SIGKILL does not wait for the list for longer than
    /// [`limits::SURVIVOR_LIST_TIME`].
    fn list_survivors(&mut self, cx: &mut Context<'_>) {
        self.phase = Phase::ListingSurvivors;
        cx.fact(Fact::ListWanted);
        let at = cx.now.after(limits::SURVIVOR_LIST_TIME.into());
        cx.arm(Timer::StopGrace, at);
    }

    fn send_kill(&mut self, cx: &mut Context<'_>) {
        cx.cancel(Timer::StopGrace);
        self.phase = Phase::Killing;
        if let Some(begun) = &mut self.begun {
            begun.escalated = true;
        }
        cx.effect(Effect::SignalGroup(Signal::KILL));
        cx.arm(Timer::StuckAfter, cx.now.after(self.stuck_after));
    }

    fn list_stuck(&mut self, cx: &mut Context<'_>, result: StopResult) {
        cx.cancel(Timer::StuckAfter);
        self.phase = Phase::ListingStuck(result);
        cx.fact(Fact::ListWanted);
    }

    fn finish(&mut self, cx: &mut Context<'_>, result: StopResult) {
        self.finish_silently(cx, result);
        cx.fact(Fact::StopEnded(result));
    }

    /// Finishes without a fact: after a failed spawn no machine waits for it.
    fn finish_silently(&mut self, cx: &mut Context<'_>, result: StopResult) {
        cx.cancel(Timer::StopGrace);
        cx.cancel(Timer::StuckAfter);
        self.phase = Phase::Over(result);
    }

    // ---- queries

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    pub(super) fn is_idle(&self) -> bool {
        self.phase == Phase::Idle
    }

    /// A stop was begun and is not over.
    pub(super) fn is_in_progress(&self) -> bool {
        match self.phase {
            Phase::ListingMembers { .. }
            | Phase::Terminating { .. }
            | Phase::ListingSurvivors
            | Phase::Killing
            | Phase::ListingStuck(_) => true,
            Phase::Idle | Phase::Over(_) => false,
        }
    }

    pub(super) fn result(&self) -> Option<StopResult> {
        match self.phase {
            Phase::Over(result) => Some(result),
            Phase::Idle
            | Phase::ListingMembers { .. }
            | Phase::Terminating { .. }
            | Phase::ListingSurvivors
            | Phase::Killing
            | Phase::ListingStuck(_) => None,
        }
    }

    /// The reason of the first stop that was asked for.
    pub(super) fn reason(&self) -> Option<StopReason> {
        self.begun.map(|begun| begun.reason)
    }

    /// A signal of this stop reached somebody.
    pub(super) fn has_signalled(&self) -> bool {
        self.delivered >= Delivered::Signal
    }

    /// SIGKILL reached somebody.
    pub(super) fn has_killed(&self) -> bool {
        self.delivered == Delivered::Kill
    }

    /// The members, without the leader, that outlived the grace.
    pub(super) fn needed_kill(&self) -> &[Member] {
        self.needed_kill.as_slice()
    }

    pub(super) fn report(&self, group: &Group) -> Option<StopReport> {
        let begun = self.begun?;
        let result = self.result();
        let stuck = match result {
            Some(StopResult::Stuck | StopResult::Denied | StopResult::NoWay) => group
                .members()
                .iter()
                .map(|member| member.who.clone())
                .collect(),
            Some(StopResult::Gone) | None => Vec::new(),
        };
        Some(StopReport {
            reason: begun.reason,
            signal: begun.signal,
            escalated: begun.escalated,
            stuck,
            denied: result == Some(StopResult::Denied),
        })
    }
}

/// The grace of a stop. SIGKILL as the first signal leaves no time for one.
fn grace_of(policy: &StopPolicy) -> Bound {
    if policy.signal == Signal::KILL {
        Bound::After(Duration::ZERO)
    } else {
        policy.grace
    }
}

#[cfg(test)]
mod tests;
