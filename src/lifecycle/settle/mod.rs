//! Settling: what outlives its leader is given a grace, waited for, and ended, kept or reported.

mod phase;
mod table;

use super::context::Context;
use super::group::Group;
use super::member_list::MemberList;
use super::message::Fact;
use super::vocabulary::{Notification, Timer};
use crate::report::{SettledAs, StopReason};
use crate::types::{Bound, Member, Ns, StopPolicy, Wait, limits};
use phase::EndingCause;
pub(super) use phase::Phase;

/// The settling of one generation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Settle {
    phase: Phase,
    over_at: Ns,
    /// The background work, as of the last list before it was decided or ended.
    listed: MemberList,
}

impl Settle {
    pub(super) fn new() -> Settle {
        Settle {
            phase: Phase::LeaderAlive,
            over_at: Ns::ZERO,
            listed: MemberList::new(),
        }
    }

    // ---- actions of the table

    fn begin_grace(&mut self, cx: &mut Context<'_>, exit_at: Ns) {
        let grace = cx.policy.background.grace;
        let until = exit_at.after(grace.unwrap_or(limits::BACKGROUND_GRACE).into());
        if until <= cx.now {
            self.begin_listing(cx);
        } else {
            self.phase = Phase::Grace;
            cx.arm(Timer::BackgroundGrace, until);
        }
    }

    /// The list has to be as of now: members have come and gone since the exit.
    fn begin_listing(&mut self, cx: &mut Context<'_>) {
        self.phase = Phase::Listing;
        cx.fact(Fact::ListWanted);
    }

    fn record_list(&mut self, group: &Group) {
        self.listed.replace(group.members());
    }

    /// The list is there: report it, or begin to wait.
    fn decide(&mut self, cx: &mut Context<'_>) {
        match cx
            .policy
            .background
            .wait
            .unwrap_or(Wait::For(limits::BACKGROUND_WAIT))
        {
            Wait::ReportOnly => self.finish(cx, SettledAs::Reported),
            Wait::For(wait) => {
                self.phase = Phase::Waiting;
                cx.notify(Notification::BackgroundWait);
                if wait.is_zero() {
                    self.end_wait(cx);
                } else {
                    cx.arm(Timer::BackgroundWait, cx.now.after(wait.into()));
                }
            }
        }
    }

    fn end_wait(&mut self, cx: &mut Context<'_>) {
        if cx.policy.background.keep_orphans {
            self.finish(cx, SettledAs::Kept);
            return;
        }
        self.begin_ending(cx, EndingCause::BackgroundWork);
        let grace = cx
            .policy
            .background
            .terminate_grace
            .unwrap_or(limits::TERMINATE_GRACE);
        let policy = StopPolicy {
            grace: Bound::After(grace),
            stuck_after: cx.policy.stop.stuck_after,
            ..StopPolicy::default()
        };
        cx.fact(Fact::Stop(policy, StopReason::Background));
    }

    fn begin_ending(&mut self, cx: &mut Context<'_>, cause: EndingCause) {
        self.cancel_timers(cx);
        self.phase = Phase::Ending { cause };
    }

    fn finish(&mut self, cx: &mut Context<'_>, outcome: SettledAs) {
        self.cancel_timers(cx);
        self.phase = Phase::Over(outcome);
        self.over_at = cx.now;
    }

    fn disable(&mut self, cx: &mut Context<'_>) {
        self.phase = Phase::Disabled;
        self.over_at = cx.now;
    }

    fn cancel_timers(&mut self, cx: &mut Context<'_>) {
        cx.cancel(Timer::BackgroundGrace);
        cx.cancel(Timer::BackgroundWait);
    }

    /// The host takes over whatever is left.
    pub(super) fn detach(&mut self, cx: &mut Context<'_>) {
        if self.outcome().is_none() {
            self.finish(cx, SettledAs::Kept);
        }
    }

    // ---- queries

    #[cfg(any(test, feature = "__internals"))]
    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    /// What became of background work. `None` until it is decided.
    pub(super) fn outcome(&self) -> Option<SettledAs> {
        match self.phase {
            Phase::Over(outcome) => Some(outcome),
            Phase::Disabled => Some(SettledAs::Disabled),
            Phase::LeaderAlive
            | Phase::Probing { .. }
            | Phase::Grace
            | Phase::Listing
            | Phase::Waiting
            | Phase::Ending { .. } => None,
        }
    }

    /// Work was left running on purpose.
    pub(super) fn left_work_running(&self) -> bool {
        match self.outcome() {
            Some(SettledAs::Kept | SettledAs::Reported) => true,
            Some(
                SettledAs::None
                | SettledAs::Finished
                | SettledAs::Terminated
                | SettledAs::Stuck
                | SettledAs::Disabled,
            )
            | None => false,
        }
    }

    /// The background work, as of the last list.
    pub(super) fn listed(&self) -> &[Member] {
        self.listed.as_slice()
    }

    pub(super) fn over_at(&self) -> Ns {
        self.over_at
    }
}

#[cfg(test)]
mod tests;
