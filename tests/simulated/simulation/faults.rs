//! Faults in random worlds: every one that a call of the contract can meet is met, and counted.

use super::scripts::chance;
use lastwords::__internals::kernel::sim::faults;
use lastwords::sim::{Call, Fault, Kind, Ns, Rng, Sim};
use lastwords::{CgroupOptions, Containment, Reactor, SpawnStep};
use std::collections::BTreeMap;

/// How often each was met.
pub(crate) type Met = BTreeMap<Kind, u64>;

/// What goes wrong in a world, beside what its kernel's temper brings.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    waiting: Vec<(Call, Fault)>,
    /// A fault that ends the loop is among them.
    is_fatal: bool,
    spawns: usize,
    /// The fault that this call had.
    own: Option<(Call, Fault)>,
}

impl Plan {
    /// Of every other world that is not calm. Each has a fault of its own, which comes more often
    /// than the others; only as that one comes one that ends the loop.
    pub(crate) fn new(rng: &mut Rng) -> Plan {
        if chance(rng, 40) {
            return Plan::default();
        }
        let all = faults::all();
        let own = rng.pick(&all);
        let is_fatal = matches!(own.1, Fault::Wait(_));
        let list: Vec<(Call, Fault)> = all
            .into_iter()
            .filter(|(_, fault)| !matches!(fault, Fault::Wait(_)))
            .collect();
        let mut waiting: Vec<(Call, Fault)> =
            (0..10 + rng.below(15)).map(|_| rng.pick(&list)).collect();
        waiting.extend([own; 4]);
        let spawns = waiting
            .iter()
            .filter(|(call, _)| *call == Call::Spawn)
            .count();
        Plan {
            waiting,
            is_fatal,
            spawns,
            own: Some(own),
        }
    }

    /// Something will go wrong, or has.
    pub(crate) fn is_any(&self) -> bool {
        self.spawns > 0 || self.is_fatal || !self.waiting.is_empty()
    }

    /// A turn is about to begin: perhaps one more waits for its call.
    pub(crate) fn inject(&mut self, rng: &mut Rng, sim: &mut Sim) {
        if chance(rng, 30)
            && let Some((call, fault)) = self.waiting.pop()
        {
            sim.inject_at(call, fault);
        }
    }

    /// What a command has to be for this world's own fault to be met: its script and its
    /// containment.
    pub(crate) fn wants(&self) -> (Option<&'static str>, Option<Containment>) {
        match self.own {
            Some((Call::SignalOutside, _)) => (
                Some("fork { setsid; sleep 7s }; sleep 7s"),
                Some(Containment::Cookie),
            ),
            Some((_, Fault::Spawn(SpawnStep::Cgroup, _))) => {
                (None, Some(Containment::Cgroup(CgroupOptions::default())))
            }
            Some((_, Fault::Spawn(SpawnStep::Cookie, _))) => (None, Some(Containment::Cookie)),
            _ => (None, None),
        }
    }

    /// The host has to signal leaders for it.
    pub(crate) fn signals_leaders(&self) -> bool {
        matches!(self.own, Some((Call::SignalLeader, _)))
    }

    /// Whether a spawn may have been refused by one of them.
    pub(crate) fn refuses_spawns(&self) -> bool {
        self.spawns > 0
    }

    /// Whether the loop may come to its end by one of them.
    pub(crate) fn ends_the_loop(&self) -> bool {
        self.is_fatal
    }
}

/// Whose loop has come to its own end: what is left is killed when it is dropped, and nobody waits.
pub(crate) fn was_ended(plan: &Plan, reactor: &mut Reactor<Sim>) -> bool {
    let fatal =
        |kind: &Kind| kind.call == Call::Wait && ["EBADF", "ENOMEM", "EINVAL"].contains(&kind.what);
    plan.ends_the_loop() && reactor.sim().faults_met().keys().any(fatal)
}

/// Adds what one world has met.
pub(crate) fn add(all: &mut Met, one: &Met) {
    for (kind, times) in one {
        *all.entry(*kind).or_default() += times;
    }
}

/// The table, and what of the list is missing in it.
pub(crate) fn table(all: &Met) -> Vec<Kind> {
    let mut list: Vec<Kind> = faults::all()
        .into_iter()
        .map(|(call, fault)| faults::kind(call, fault))
        .collect();
    list.sort();
    list.dedup();
    println!("faults met, of {} kinds:", list.len());
    for kind in &list {
        println!("{:>9}  {kind}", all.get(kind).copied().unwrap_or_default());
    }
    list.into_iter()
        .filter(|kind| !all.contains_key(kind))
        .collect()
}

/// A machine that stood still is no call's fault, and is counted nowhere.
pub(crate) fn stall(rng: &mut Rng, sim: &mut Sim) {
    sim.advance(Ns::from_millis(rng.pick(&[1, 100, 6_000])));
}
