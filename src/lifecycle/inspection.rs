//! What the tests ask a [`Lifecycle`] about its machines.

use super::dispatch::Lifecycle;
use super::vocabulary::Timer;
use super::{drain, group, settle, stop};

impl Lifecycle {
    /// The current state owns this timer. A timer that is armed without this is a fault.
    pub fn wants_timer(&self, timer: Timer) -> bool {
        !self.is_closed()
            && match timer {
                Timer::RunLimit => true,
                Timer::DrainIdle => self.drain.phase() == drain::Phase::Exited,
                Timer::DrainLimit => matches!(
                    self.drain.phase(),
                    drain::Phase::Exited | drain::Phase::LastRead { .. }
                ),
                Timer::StopGrace => matches!(
                    self.stop.phase(),
                    stop::Phase::ListingMembers { .. }
                        | stop::Phase::Terminating { .. }
                        | stop::Phase::ListingSurvivors
                ),
                Timer::StuckAfter => self.stop.phase() == stop::Phase::Killing,
                Timer::BackgroundGrace => self.settle.phase() == settle::Phase::Grace,
                Timer::BackgroundWait => self.settle.phase() == settle::Phase::Waiting,
                Timer::GroupPoll => matches!(self.group.phase(), group::Phase::Watching { .. }),
            }
    }

    /// How many inputs came that the contract excludes. They changed nothing.
    pub fn contract_violations(&self) -> u32 {
        self.contract_violations
    }

    /// The states of drain, group, stop and settle, as their diagrams name them. For tests.
    pub fn phases(&self) -> [&'static str; 4] {
        [
            self.drain.phase().name(),
            self.group.phase().name(),
            self.stop.phase().name(),
            self.settle.phase().name(),
        ]
    }
}
