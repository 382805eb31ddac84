//! Background work: what outlives its leader is given a grace, waited for, and ended, kept or
//! reported.

use super::group::Group;
use super::member_list::List;
use super::routing::SettleMessage;
use super::step::{Fact, Message, Step, StopResult};
use super::stop::Stop;
use super::{Notification, Timer};
use crate::report::{SettledAs, StopReason};
use crate::types::{BackgroundPolicy, Bound, Member, Ns, StopPolicy, Wait, limits};

/// Where settling is.
///
/// Every change there is:
///
/// ```text
/// Before --LeaderEnded--> Asked
/// Before --LeaderEnded or the ladder gave up, detection is off--> Off
/// Before --SpawnFailed or the ladder gave up--> Over
/// Asked --GroupEmpty or the ladder gave up--> Over
/// Asked --GroupAlive, a stop is in progress--> Ending
/// Asked --GroupAlive--> Grace
/// Asked --GroupAlive, the grace has passed--> Listing
/// Grace --GroupEmpty or Detach--> Over
/// Grace --Due(BackgroundGrace)--> Listing
/// Grace --StopBegan--> Ending
/// Listing --GroupEmpty, Detach, or listed and only reported--> Over
/// Listing --listed--> Waiting
/// Listing --listed and the wait is zero, or StopBegan--> Ending
/// Waiting --GroupEmpty, Detach, or Due(BackgroundWait) and kept--> Over
/// Waiting --Due(BackgroundWait) or StopBegan--> Ending
/// Ending --GroupEmpty or the ladder gave up--> Over
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// The leader has not ended.
    Before,
    /// Nobody looks.
    Off,
    /// Whether anything is left is being asked.
    Asked,
    /// Something is; it may be ordinary teardown.
    Grace,
    /// It is background work, and is being listed.
    Listing,
    /// It is waited for.
    Waiting,
    /// It is being ended. `counted`: it had counted as background work before.
    Ending { counted: bool },
    /// Decided.
    Over(SettledAs),
}

/// The settling of one generation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Settle {
    phase: Phase,
    over_at: Ns,
    /// Who counts as background work: as of the last list before it was decided, or ended.
    named: List,
}

impl Settle {
    /// The leader has not ended.
    pub(super) fn new() -> Settle {
        Settle {
            phase: Phase::Before,
            over_at: Ns::ZERO,
            named: List::new(),
        }
    }

    /// Takes in one word. `group` and `stop` are looked at; `exit_at` is when the exit was seen.
    pub(super) fn on_message(
        &mut self,
        step: &mut Step<'_>,
        message: Message<'_>,
        group: &Group,
        stop: &Stop,
        exit_at: Ns,
    ) {
        let Some(message) = SettleMessage::of(message) else {
            return;
        };
        match self.phase {
            Phase::Before => self.before(step, message),
            Phase::Off => Self::off(step, message),
            Phase::Asked => self.asked(step, message, stop, exit_at),
            Phase::Grace => self.grace(step, message),
            Phase::Listing => self.listing(step, message, group),
            Phase::Waiting => self.waiting(step, message, group),
            Phase::Ending { counted } => self.ending(step, message, group, stop, counted),
            Phase::Over(_) => Self::after(step, message),
        }
    }

    // ---- the table, a column each

    fn before(&mut self, step: &mut Step<'_>, message: SettleMessage) {
        match message {
            SettleMessage::LeaderEnded if step.policy.background.disabled => self.switch_off(step),
            SettleMessage::LeaderEnded => self.phase = Phase::Asked,
            SettleMessage::SpawnFailed => self.over(step, SettledAs::None),
            // The leader itself stays: there will be no exit to settle after.
            SettleMessage::StopEnded(
                StopResult::Stuck | StopResult::Denied | StopResult::NoWay,
            ) if step.policy.background.disabled => self.switch_off(step),
            SettleMessage::StopEnded(
                StopResult::Stuck | StopResult::Denied | StopResult::NoWay,
            ) => self.over(step, SettledAs::Stuck),
            SettleMessage::StopEnded(StopResult::Gone) | SettleMessage::StopBegan => {}
            SettleMessage::GroupAlive
            | SettleMessage::GroupEmpty
            | SettleMessage::GraceDue
            | SettleMessage::WaitDue => step.contract_violation("the leader has not ended"),
        }
    }

    fn off(step: &mut Step<'_>, message: SettleMessage) {
        match message {
            SettleMessage::GroupAlive
            | SettleMessage::GroupEmpty
            | SettleMessage::StopBegan
            | SettleMessage::StopEnded(_)
            | SettleMessage::SpawnFailed => {}
            // A leader that was given up has ended after all.
            SettleMessage::LeaderEnded => {}
            SettleMessage::GraceDue | SettleMessage::WaitDue => {
                step.contract_violation("nobody looks")
            }
        }
    }

    fn asked(&mut self, step: &mut Step<'_>, message: SettleMessage, stop: &Stop, exit_at: Ns) {
        match message {
            // Those who needed the stop's SIGKILL died of it together with the leader.
            SettleMessage::GroupEmpty if stop.has_killed() && !stop.needed_kill().is_empty() => {
                self.over(step, SettledAs::Terminated)
            }
            SettleMessage::GroupEmpty => self.over(step, SettledAs::None),
            SettleMessage::GroupAlive => match stop.ended() {
                Some(StopResult::Stuck | StopResult::Denied | StopResult::NoWay) => {
                    self.over(step, SettledAs::Stuck)
                }
                Some(StopResult::Gone) | None if stop.is_in_progress() => {
                    self.phase = Phase::Ending { counted: false }
                }
                Some(StopResult::Gone) | None => self.begin_grace(step, exit_at),
            },
            SettleMessage::StopEnded(
                StopResult::Stuck | StopResult::Denied | StopResult::NoWay,
            ) => self.over(step, SettledAs::Stuck),
            // A stop that began: the answer that is under way decides.
            SettleMessage::StopEnded(StopResult::Gone)
            | SettleMessage::StopBegan
            | SettleMessage::SpawnFailed => {}
            SettleMessage::LeaderEnded | SettleMessage::GraceDue | SettleMessage::WaitDue => {
                step.contract_violation("the group was only asked about")
            }
        }
    }

    fn grace(&mut self, step: &mut Step<'_>, message: SettleMessage) {
        match message {
            SettleMessage::GroupEmpty => self.over(step, SettledAs::None),
            SettleMessage::GraceDue => self.list(step),
            SettleMessage::StopBegan => self.end(step, false),
            SettleMessage::GroupAlive | SettleMessage::SpawnFailed => {}
            SettleMessage::LeaderEnded | SettleMessage::WaitDue | SettleMessage::StopEnded(_) => {
                step.contract_violation("it is only given its grace")
            }
        }
    }

    fn listing(&mut self, step: &mut Step<'_>, message: SettleMessage, group: &Group) {
        match message {
            SettleMessage::GroupEmpty => self.over(step, SettledAs::None),
            // From the list: the scan for it is under way since listing began.
            SettleMessage::GroupAlive => {
                self.name(group);
                self.listed(step);
            }
            SettleMessage::StopBegan => self.end(step, true),
            SettleMessage::SpawnFailed => {}
            SettleMessage::LeaderEnded
            | SettleMessage::GraceDue
            | SettleMessage::WaitDue
            | SettleMessage::StopEnded(_) => step.contract_violation("it is only being listed"),
        }
    }

    fn waiting(&mut self, step: &mut Step<'_>, message: SettleMessage, group: &Group) {
        match message {
            SettleMessage::GroupEmpty => self.over(step, SettledAs::Finished),
            SettleMessage::WaitDue => self.wait_over(step),
            SettleMessage::StopBegan => self.end(step, true),
            // It has forked meanwhile.
            SettleMessage::GroupAlive if !group.is_unlisted() => self.name(group),
            SettleMessage::GroupAlive | SettleMessage::SpawnFailed => {}
            SettleMessage::LeaderEnded | SettleMessage::GraceDue | SettleMessage::StopEnded(_) => {
                step.contract_violation("it is only waited for")
            }
        }
    }

    fn ending(
        &mut self,
        step: &mut Step<'_>,
        message: SettleMessage,
        group: &Group,
        stop: &Stop,
        counted: bool,
    ) {
        match message {
            SettleMessage::GroupEmpty => {
                // What dies of the ladder before it counts as background work is ordinary teardown,
                // unless it needs SIGKILL. Who died of the leader's own SIGKILL,
                // with it, was a zombie when it was asked who is left: nobody was ended after the
                // leader.
                let outcome = match (counted, stop.has_killed(), stop.has_signalled()) {
                    (false, true, _)
                        if stop.needed_kill().is_empty() && group.others().next().is_none() =>
                    {
                        SettledAs::None
                    }
                    (_, true, _) | (true, _, true) => SettledAs::Terminated,
                    (true, false, false) => SettledAs::Finished,
                    (false, false, _) => SettledAs::None,
                };
                self.over(step, outcome);
            }
            SettleMessage::StopEnded(
                StopResult::Stuck | StopResult::Denied | StopResult::NoWay,
            ) => self.over(step, SettledAs::Stuck),
            SettleMessage::StopEnded(StopResult::Gone)
            | SettleMessage::GroupAlive
            | SettleMessage::StopBegan
            | SettleMessage::SpawnFailed => {}
            SettleMessage::LeaderEnded | SettleMessage::GraceDue | SettleMessage::WaitDue => {
                step.contract_violation("it is being ended")
            }
        }
    }

    fn after(step: &mut Step<'_>, message: SettleMessage) {
        match message {
            SettleMessage::GroupAlive
            | SettleMessage::GroupEmpty
            | SettleMessage::StopBegan
            | SettleMessage::StopEnded(_)
            | SettleMessage::SpawnFailed => {}
            // A leader that was given up has ended after all.
            SettleMessage::LeaderEnded => {}
            SettleMessage::GraceDue | SettleMessage::WaitDue => {
                step.contract_violation("it is settled")
            }
        }
    }

    // ---- what the cells do

    fn begin_grace(&mut self, step: &mut Step<'_>, exit_at: Ns) {
        let until = exit_at.after(grace(&step.policy.background));
        if until <= step.now {
            self.list(step);
        } else {
            self.phase = Phase::Grace;
            step.arm(Timer::BackgroundGrace, until);
        }
    }

    /// From now on it counts; and who it is, is asked as of now: some have gone since the exit,
    /// some have come.
    fn list(&mut self, step: &mut Step<'_>) {
        self.phase = Phase::Listing;
        step.fact(Fact::ListWanted);
    }

    fn name(&mut self, group: &Group) {
        self.named.replace(group.members());
    }

    fn listed(&mut self, step: &mut Step<'_>) {
        match step
            .policy
            .background
            .wait
            .unwrap_or(Wait::For(limits::BACKGROUND_WAIT))
        {
            Wait::ReportOnly => self.over(step, SettledAs::Reported),
            Wait::For(wait) => {
                self.phase = Phase::Waiting;
                step.notify(Notification::BackgroundWait);
                if wait.is_zero() {
                    self.wait_over(step);
                } else {
                    step.arm(Timer::BackgroundWait, step.now.after(wait.into()));
                }
            }
        }
    }

    fn wait_over(&mut self, step: &mut Step<'_>) {
        if step.policy.background.keep_orphans {
            self.over(step, SettledAs::Kept);
        } else {
            self.end(step, true);
            let grace = step
                .policy
                .background
                .terminate_grace
                .unwrap_or(limits::TERMINATE_GRACE);
            let policy = StopPolicy {
                grace: Bound::After(grace),
                stuck_after: step.policy.stop.stuck_after,
                ..StopPolicy::default()
            };
            step.fact(Fact::Stop(policy, StopReason::Background));
        }
    }

    fn end(&mut self, step: &mut Step<'_>, counted: bool) {
        step.cancel(Timer::BackgroundGrace);
        step.cancel(Timer::BackgroundWait);
        self.phase = Phase::Ending { counted };
    }

    fn over(&mut self, step: &mut Step<'_>, outcome: SettledAs) {
        step.cancel(Timer::BackgroundGrace);
        step.cancel(Timer::BackgroundWait);
        self.phase = Phase::Over(outcome);
        self.over_at = step.now;
    }

    fn switch_off(&mut self, step: &mut Step<'_>) {
        self.phase = Phase::Off;
        self.over_at = step.now;
    }

    /// The host lets the generation go, and what is left of it.
    pub(super) fn let_go(&mut self, step: &mut Step<'_>) {
        if self.outcome().is_none() {
            self.over(step, SettledAs::Kept);
        }
    }

    // ---- what is asked of it

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    /// What was decided.
    pub(super) fn outcome(&self) -> Option<SettledAs> {
        match self.phase {
            Phase::Over(outcome) => Some(outcome),
            Phase::Off => Some(SettledAs::Disabled),
            Phase::Before
            | Phase::Asked
            | Phase::Grace
            | Phase::Listing
            | Phase::Waiting
            | Phase::Ending { .. } => None,
        }
    }

    /// Work was left running on purpose.
    pub(super) fn left_running(&self) -> bool {
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

    /// Who counts, or has counted, as background work.
    pub(super) fn named(&self) -> &[Member] {
        self.named.as_slice()
    }

    /// When it was decided.
    pub(super) fn over_at(&self) -> Ns {
        self.over_at
    }
}

fn grace(policy: &BackgroundPolicy) -> Ns {
    policy.grace.unwrap_or(limits::BACKGROUND_GRACE).into()
}

#[cfg(test)]
mod tests;
