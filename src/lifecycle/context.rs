//! What the four machines share while one input is worked on: the time, the policy, the effects
//! and facts so far, and which timers are armed.

use super::message::{Fact, Facts};
use super::vocabulary::{Effect, Effects, Notification, Timer};
use crate::types::{Ns, Policy};

/// The set of timers that are armed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ArmedTimers(u8);

impl ArmedTimers {
    pub(super) const fn contains(self, timer: Timer) -> bool {
        self.0 & (1 << timer as u8) != 0
    }

    /// Removes a timer. False if it was not armed.
    pub(super) fn remove(&mut self, timer: Timer) -> bool {
        let was_armed = self.contains(timer);
        self.0 &= !(1 << timer as u8);
        was_armed
    }

    fn insert(&mut self, timer: Timer) {
        self.0 |= 1 << timer as u8;
    }
}

/// The work on one input.
pub(super) struct Context<'a> {
    /// When the input was taken in.
    pub(super) now: Ns,
    pub(super) policy: &'a Policy,
    pub(super) effects: &'a mut Effects,
    pub(super) facts: &'a mut Facts,
    pub(super) armed: &'a mut ArmedTimers,
    pub(super) contract_violations: &'a mut u32,
}

impl Context<'_> {
    /// Adds an effect.
    pub(super) fn effect(&mut self, effect: Effect) {
        if self.effects.try_push(effect).is_err() {
            self.contract_violation("more effects than one input can have");
        }
    }

    /// Adds a notification to the host.
    pub(super) fn notify(&mut self, notification: Notification) {
        self.effect(Effect::Notify(notification));
    }

    /// States a fact to all machines, the one that states it included.
    pub(super) fn fact(&mut self, fact: Fact) {
        if self.facts.try_push(fact).is_err() {
            self.contract_violation("more facts than one input can bring up");
        }
    }

    /// Arms a timer, or moves one that is armed.
    pub(super) fn arm(&mut self, timer: Timer, at: Ns) {
        self.armed.insert(timer);
        self.effect(Effect::ArmTimer(timer, at));
    }

    /// Cancels a timer if it is armed.
    pub(super) fn cancel(&mut self, timer: Timer) {
        if self.armed.remove(timer) {
            self.effect(Effect::CancelTimer(timer));
        }
    }

    /// Counts an input that the contract excludes in this state. It changes nothing else. With
    /// debug assertions it panics.
    pub(super) fn contract_violation(&mut self, what: &str) {
        *self.contract_violations = self.contract_violations.saturating_add(1);
        debug_assert!(false, "contract violation: {what}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_timer_has_a_bit_of_its_own() {
        let mut armed = ArmedTimers::default();
        for timer in Timer::ALL {
            assert!(!armed.contains(timer));
            armed.insert(timer);
            assert!(armed.contains(timer));
        }
        for timer in Timer::ALL {
            assert!(armed.remove(timer));
            assert!(!armed.remove(timer));
        }
        assert_eq!(armed, ArmedTimers::default());
    }
}
