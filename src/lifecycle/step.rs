//! What the four machines share while one input is worked on: the time, what is to be done, and
//! what they tell each other.

use super::{Effect, Effects, Input, Notification, Timer};
use crate::report::StopReason;
use crate::types::{Ns, Policy, StopPolicy};
use arrayvec::ArrayVec;

/// How a ladder ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum StopResult {
    /// The group is empty.
    Gone,
    /// Somebody survived SIGKILL.
    Stuck,
    /// Everybody who is left refused it (EPERM).
    Denied,
    /// There was no way that is certain to reach ours alone.
    NoWay,
}

/// What one machine tells the others. Facts of one input go round until there is none.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fact {
    /// The exit was seen.
    LeaderEnded,
    /// The spawn has failed, and its process is gone: everything is over.
    SpawnFailed,
    /// Somebody is left in the group.
    GroupAlive,
    /// Nobody is left in the group. Certain.
    GroupEmpty,
    /// Somebody needs to know whether anybody is left, though detection is off.
    ProbeWanted,
    /// Somebody needs to know who is left, as of now.
    ListWanted,
    /// Background work has outlived its wait.
    Stop(StopPolicy, StopReason),
    /// The ladder has begun.
    StopBegan,
    /// The ladder is over.
    StopEnded(StopResult),
}

/// What goes round: the input, then the facts.
#[derive(Clone, Copy, Debug)]
pub(super) enum Message<'a> {
    /// From outside.
    Input(Input<'a>),
    /// From one of the machines.
    Fact(Fact),
}

/// The facts of one input, in the order in which they came up.
pub(super) type Facts = ArrayVec<Fact, 16>;

/// Which timers are armed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Armed(u8);

impl Armed {
    /// Is it?
    pub(super) const fn has(self, timer: Timer) -> bool {
        self.0 & (1 << timer as u8) != 0
    }

    /// Takes it out; whether it was in.
    pub(super) fn take(&mut self, timer: Timer) -> bool {
        let was = self.has(timer);
        self.0 &= !(1 << timer as u8);
        was
    }

    fn put(&mut self, timer: Timer) {
        self.0 |= 1 << timer as u8;
    }
}

/// One input being worked on.
pub(super) struct Step<'a> {
    /// When.
    pub(super) now: Ns,
    /// What the host chose.
    pub(super) policy: &'a Policy,
    /// What is to be done, so far.
    pub(super) effects: &'a mut Effects,
    /// What came up, so far.
    pub(super) facts: &'a mut Facts,
    /// Which timers are armed.
    pub(super) armed: &'a mut Armed,
    /// How often something came that cannot come.
    pub(super) contract_violations: &'a mut u32,
}

impl Step<'_> {
    /// Has something done.
    pub(super) fn effect(&mut self, effect: Effect) {
        if self.effects.try_push(effect).is_err() {
            self.contract_violation("more effects than one input can have");
        }
    }

    /// Tells the host.
    pub(super) fn notify(&mut self, notification: Notification) {
        self.effect(Effect::Notify(notification));
    }

    /// Tells the other machines.
    pub(super) fn fact(&mut self, fact: Fact) {
        if self.facts.try_push(fact).is_err() {
            self.contract_violation("more facts than one input can bring up");
        }
    }

    /// Arms a timer, or arms it anew.
    pub(super) fn arm(&mut self, timer: Timer, at: Ns) {
        self.armed.put(timer);
        self.effect(Effect::ArmTimer(timer, at));
    }

    /// Cancels a timer if it is armed.
    pub(super) fn cancel(&mut self, timer: Timer) {
        if self.armed.take(timer) {
            self.effect(Effect::CancelTimer(timer));
        }
    }

    /// An `x` of the tables: a caller has broken the contract. It is counted, and changes nothing.
    pub(super) fn contract_violation(&mut self, what: &str) {
        *self.contract_violations = self.contract_violations.saturating_add(1);
        debug_assert!(false, "cannot come by contract: {what}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_timer_has_a_place_of_its_own() {
        let mut armed = Armed::default();
        for timer in Timer::ALL {
            assert!(!armed.has(timer));
            armed.put(timer);
            assert!(armed.has(timer));
        }
        for timer in Timer::ALL {
            assert!(armed.take(timer));
            assert!(!armed.take(timer));
        }
        assert_eq!(armed, Armed::default());
    }
}
