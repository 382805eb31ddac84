//! Hierarchical timer wheel: arm and cancel in constant time, never early, at most one tick late.
//!
//! A tick is 2^20 ns ([`TICK_BITS`](crate::types::limits::TICK_BITS)); a deadline is rounded up to
//! the next one. There are six levels of 64 lists. A timer stands on the level of the highest group
//! of six bits in which its tick differs from the current one, in the list that this group of bits
//! names. So everything on a level is due before anything on the next, the lists of a level are due
//! in their order, and a list of a higher level is spread over the lower ones when the current tick
//! reaches its beginning. What lies beyond the six levels (2.3 years) waits on the top level and is
//! looked at whenever its list comes up.
//!
//! Nodes are 24 bytes (with an 8-byte payload) in one slab, linked by index. Nothing is allocated
//! once the slab holds the high-water mark.

use crate::types::Ns;
use crate::types::limits::TICK_BITS;

const LEVELS: usize = 6;
const GROUP_BITS: u32 = 6;
const SLOTS: usize = 1 << GROUP_BITS;
const TOP: usize = LEVELS - 1;
/// The list of timers whose tick has come.
const DUE: u32 = (LEVELS * SLOTS) as u32;
const LISTS: usize = LEVELS * SLOTS + 1;
/// The index that means no node.
const NIL: u32 = u32::MAX;
/// In `prev`: the node is the first of the list whose number is in the other bits.
const FIRST: u32 = 1 << 31;
/// Bits of a node's key that tell two timers with the same node and tick apart. The others hold the
/// tick.
const CHECK_BITS: u32 = 19;
const CHECK: u64 = (1 << CHECK_BITS) - 1;
/// Later than every tick.
const NEVER: u64 = u64::MAX;
/// The tick of a node that is free.
const FREE: u64 = u64::MAX >> CHECK_BITS;

const _: () = assert!(
    TICK_BITS > CHECK_BITS,
    "the highest tick is 2^(64 - TICK_BITS) and must stay below FREE"
);

/// Names one armed timer. Once that has expired or was cancelled, the name does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimerId {
    node: u32,
    /// The lower half of its key: the check, and a part of the tick.
    key: u32,
}

#[derive(Clone, Copy, Debug)]
struct Node<T> {
    next: u32,
    prev: u32,
    /// Tick and check, in two halves so that a small payload makes a small node.
    key: [u32; 2],
    what: T,
}

const fn split(key: u64) -> [u32; 2] {
    [key as u32, (key >> 32) as u32]
}

const fn join(key: [u32; 2]) -> u64 {
    key[0] as u64 | ((key[1] as u64) << 32)
}

/// The first tick that is not before `at`.
const fn tick_at_or_after(at: Ns) -> u64 {
    (at.0 >> TICK_BITS) + (at.0 & ((1 << TICK_BITS) - 1) != 0) as u64
}

/// When a tick begins. The tick of [`Ns::MAX`] is beyond what fits; no clock reaches it.
const fn begin_of(tick: u64) -> Ns {
    if tick >> (64 - TICK_BITS) == 0 {
        Ns(tick << TICK_BITS)
    } else {
        Ns::MAX
    }
}

/// Timers that carry a `T` each.
#[derive(Debug)]
pub struct Wheel<T> {
    nodes: Vec<Node<T>>,
    free: u32,
    armed: usize,
    /// Every timer whose tick is at or before this one is in the due list.
    current: u64,
    occupied: [u64; LEVELS],
    heads: [u32; LISTS],
    /// For each list: no timer in it has an earlier tick. Exact as long as none was cancelled;
    /// [`NEVER`] if it is empty.
    earliest: [u64; LEVELS * SLOTS],
}

impl<T: Copy> Default for Wheel<T> {
    fn default() -> Self {
        Wheel::new()
    }
}

impl<T: Copy> Wheel<T> {
    /// An empty wheel at time zero, without a slab yet.
    pub fn new() -> Self {
        Wheel::with_capacity(0)
    }

    /// An empty wheel that can hold `n` timers before it allocates.
    pub fn with_capacity(n: usize) -> Self {
        Wheel {
            nodes: Vec::with_capacity(n),
            free: NIL,
            armed: 0,
            current: 0,
            occupied: [0; LEVELS],
            heads: [NIL; LISTS],
            earliest: [NEVER; LEVELS * SLOTS],
        }
    }

    /// How many timers are armed.
    #[cfg(any(test, feature = "__internals"))]
    pub fn len(&self) -> usize {
        self.armed
    }

    /// No timer is armed.
    #[cfg(any(test, feature = "__internals"))]
    pub fn is_empty(&self) -> bool {
        self.armed == 0
    }

    /// Arms a timer: [`Wheel::expire`] gives `what` back at the first tick that is not before `at`.
    /// A time that has passed is due at once. Constant time; allocates only if there have never
    /// been so many timers before. At most 2^31 timers.
    pub fn arm(&mut self, at: Ns, what: T) -> TimerId {
        if self.free as usize >= self.nodes.len() {
            self.grow(what);
        }
        let tick = tick_at_or_after(at);
        let list = self.list_of(tick);
        let node = self.free;
        let next = std::mem::replace(&mut self.heads[list], node);
        let slot = &mut self.nodes[node as usize];
        self.free = slot.next;
        // The check of a free node was moved on when it was freed.
        let key = split((tick << CHECK_BITS) | (join(slot.key) & CHECK));
        *slot = Node {
            next,
            prev: list as u32 | FIRST,
            key,
            what,
        };
        self.armed += 1;
        if let Some(next) = self.nodes.get_mut(next as usize) {
            next.prev = node;
        }
        TimerId { node, key: key[0] }
    }

    /// One more free node: there have never been so many timers.
    #[cold]
    fn grow(&mut self, what: T) {
        self.free = self.nodes.len() as u32;
        self.nodes.push(Node {
            next: NIL,
            prev: NIL,
            key: split(FREE << CHECK_BITS),
            what,
        });
    }

    /// Takes an armed timer out; `None` if it has expired or was cancelled before. Constant time.
    pub fn cancel(&mut self, id: TimerId) -> Option<T> {
        let node = *self.nodes.get(id.node as usize)?;
        if node.key[0] != id.key {
            return None;
        }
        self.unlink(node);
        self.release(id.node);
        Some(node.what)
    }

    /// A time at which [`Wheel::expire`] may have something to do: never later than the earliest
    /// deadline's tick, and later than `now` once `expire(now)` has given `None`. Exact for the
    /// next 2^30 ticks (13 days) unless timers that were to come earlier were cancelled: then a
    /// sleep may end too early, once. `None` if nothing is armed.
    pub fn next_deadline(&self) -> Option<Ns> {
        if self.heads[DUE as usize] != NIL {
            return Some(begin_of(self.current));
        }
        let level = self.occupied.iter().position(|lists| *lists != 0)?;
        let (slot, begin) = self.first_list(level);
        // The top level's lists hold what is parked as well, and that is not in order.
        Some(begin_of(if level == TOP {
            begin
        } else {
            self.earliest[level * SLOTS + slot]
        }))
    }

    /// Takes one timer out that is due at `now`, in the order of ticks; `None` if there is none
    /// (any more). `now` must not go back; a call with an earlier time than before gives
    /// `None`.
    pub fn expire(&mut self, now: Ns) -> Option<T> {
        let target = now.0 >> TICK_BITS;
        if target < self.current {
            return None;
        }
        while self.heads[DUE as usize] == NIL {
            let Some(level) = self.occupied.iter().position(|lists| *lists != 0) else {
                self.current = target;
                return None;
            };
            let (slot, begin) = self.first_list(level);
            if begin > target {
                self.current = target;
                return None;
            }
            self.current = begin;
            self.spread(level, slot);
        }
        let due = self.heads[DUE as usize];
        let node = *self.nodes.get(due as usize)?;
        self.unlink(node);
        self.release(due);
        Some(node.what)
    }

    /// The first list of a level that is not empty, and the tick at which it begins.
    fn first_list(&self, level: usize) -> (usize, u64) {
        let shift = GROUP_BITS * level as u32;
        let here = (self.current >> shift) as u32 % SLOTS as u32;
        let above = (self.current >> shift) & !(SLOTS as u64 - 1);
        if level < TOP {
            // All of a level's lists come after the current one.
            let slot = self.occupied[level].trailing_zeros();
            return (slot as usize % SLOTS, (above | u64::from(slot)) << shift);
        }
        // The top level goes round: the current list is the last.
        let ahead = self.occupied[level]
            .rotate_right((here + 1) % SLOTS as u32)
            .trailing_zeros()
            + 1;
        let position = (self.current >> shift) + u64::from(ahead);
        ((position % SLOTS as u64) as usize, position << shift)
    }

    /// The list of a tick, which is about to have a timer of it.
    fn list_of(&mut self, tick: u64) -> usize {
        if tick <= self.current {
            return DUE as usize;
        }
        let highest = 63 - (tick ^ self.current).leading_zeros();
        let level = ((highest / GROUP_BITS) as usize).min(TOP);
        let slot = (tick >> (GROUP_BITS as usize * level)) as usize % SLOTS;
        let list = level * SLOTS + slot;
        self.occupied[level] |= 1_u64 << slot;
        self.earliest[list] = self.earliest[list].min(tick);
        list
    }

    /// Links a node at the beginning of a list.
    fn push(&mut self, node: u32, list: usize) {
        let next = std::mem::replace(&mut self.heads[list], node);
        if let Some(next) = self.nodes.get_mut(next as usize) {
            next.prev = node;
        }
        let node = &mut self.nodes[node as usize];
        (node.next, node.prev) = (next, list as u32 | FIRST);
    }

    /// Takes a node out of its list; the node itself is left as it is.
    fn unlink(&mut self, node: Node<T>) {
        if let Some(next) = self.nodes.get_mut(node.next as usize) {
            next.prev = node.prev;
        }
        if node.prev & FIRST == 0 {
            self.nodes[node.prev as usize].next = node.next;
            return;
        }
        let list = node.prev & !FIRST;
        self.heads[list as usize] = node.next;
        if node.next == NIL && list != DUE {
            self.vacate(list as usize);
        }
    }

    /// A list has no timers any more.
    fn vacate(&mut self, list: usize) {
        self.occupied[list / SLOTS] &= !(1 << (list % SLOTS));
        self.earliest[list] = NEVER;
    }

    /// Puts a node on the free list and moves its check on, so that old names of it do nothing.
    fn release(&mut self, node: u32) {
        let slot = &mut self.nodes[node as usize];
        slot.key = split((FREE << CHECK_BITS) | (join(slot.key).wrapping_add(1) & CHECK));
        slot.next = self.free;
        self.free = node;
        self.armed -= 1;
    }

    /// Spreads a list whose beginning is the current tick. Those of the lowest level are all due.
    fn spread(&mut self, level: usize, slot: usize) {
        let list = level * SLOTS + slot;
        self.vacate(list);
        let mut node = std::mem::replace(&mut self.heads[list], NIL);
        if level == 0 {
            // `expire` gets here with an empty due list only.
            if let Some(first) = self.nodes.get_mut(node as usize) {
                first.prev = DUE | FIRST;
            }
            self.heads[DUE as usize] = node;
            return;
        }
        while let Some(this) = self.nodes.get(node as usize) {
            let (next, tick) = (this.next, join(this.key) >> CHECK_BITS);
            let list = self.list_of(tick);
            self.push(node, list);
            node = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::Rng;
    use std::collections::BTreeMap;

    const TICK: u64 = 1 << TICK_BITS;

    fn drain(wheel: &mut Wheel<u64>, now: Ns) -> Vec<u64> {
        std::iter::from_fn(|| wheel.expire(now)).collect()
    }

    #[test]
    fn a_node_with_a_token_is_24_bytes() {
        assert_eq!(size_of::<Node<u64>>(), 24);
        assert_eq!(size_of::<TimerId>(), 8);
    }

    /// Random operations against a sorted map: nothing early, nothing more than a tick late,
    /// everything in order of ticks, and the next deadline never behind the earliest timer.
    #[test]
    fn the_wheel_agrees_with_a_sorted_map() {
        for seed in 1..=40 {
            let mut rng = Rng::new(seed);
            let mut wheel = Wheel::new();
            let mut live: BTreeMap<u64, (TimerId, u64)> = BTreeMap::new();
            let (mut now, mut name) = (rng.below(1 << 50), 0_u64);
            for _ in 0..3000 {
                match rng.below(10) {
                    0..=4 => {
                        let spread = 1 << rng.below(62);
                        let at = now
                            .saturating_sub(TICK * 3)
                            .saturating_add(rng.below(spread));
                        live.insert(name, (wheel.arm(Ns(at), name), at));
                        name += 1;
                    }
                    5..=6 => {
                        if let Some((&some, &(id, _))) = live.range(rng.below(name + 1)..).next() {
                            live.remove(&some);
                            assert_eq!(wheel.cancel(id), Some(some));
                            assert_eq!(wheel.cancel(id), None);
                        }
                    }
                    _ => {
                        let spread = 1 << rng.below(58);
                        let before = now;
                        now = now.saturating_add(rng.below(spread));
                        check_expiry(&mut wheel, &mut live, before, now);
                    }
                }
                assert_eq!(wheel.len(), live.len());
                let earliest = live.values().map(|(_, at)| *at).min();
                assert_eq!(wheel.next_deadline().is_some(), earliest.is_some());
                if let (Some(next), Some(earliest)) = (wheel.next_deadline(), earliest) {
                    assert!(
                        next <= begin_of(tick_at_or_after(Ns(earliest.max(now)))),
                        "{next:?} {earliest} {now}"
                    );
                }
            }
        }
    }

    fn check_expiry(
        wheel: &mut Wheel<u64>,
        live: &mut BTreeMap<u64, (TimerId, u64)>,
        before: u64,
        now: u64,
    ) {
        // What had passed when it was armed is due in any order.
        let mut last = before >> TICK_BITS;
        for expired in drain(wheel, Ns(now)) {
            let (_, at) = live.remove(&expired).expect("armed");
            assert!(at <= now, "early by {}", at - now);
            let tick = tick_at_or_after(Ns(at)).max(before >> TICK_BITS);
            assert!(tick >= last, "out of order");
            last = tick;
        }
        assert!(
            live.values()
                .all(|(_, at)| tick_at_or_after(Ns(*at)) > now >> TICK_BITS),
            "late"
        );
        assert!(wheel.next_deadline().is_none_or(|next| next > Ns(now)));
    }

    #[test]
    fn timers_come_in_the_order_of_their_ticks() {
        let mut wheel = Wheel::new();
        let mut rng = Rng::new(7);
        let mut ticks: Vec<u64> = (0..5000).map(|_| 1 + rng.below(1 << 20)).collect();
        for tick in &ticks {
            wheel.arm(Ns(tick * TICK), *tick);
        }
        ticks.sort_unstable();
        assert_eq!(drain(&mut wheel, Ns(TICK << 20)), ticks);
        assert!(wheel.is_empty());
    }

    #[test]
    fn a_timer_is_not_early_by_a_nanosecond_and_sleeping_until_the_deadline_is_enough() {
        for at in [
            1,
            TICK - 1,
            TICK,
            TICK + 1,
            64 * TICK,
            64 * TICK + 1,
            4096 * TICK + 77,
            5_000_000_000,
        ] {
            let mut wheel = Wheel::new();
            wheel.arm(Ns(at), at);
            let due = wheel.next_deadline().expect("armed");
            assert!(due >= Ns(at) && due.0 < at + TICK);
            assert_eq!(wheel.expire(Ns(due.0 - 1)), None);
            assert_eq!(wheel.next_deadline(), Some(due));
            assert_eq!(wheel.expire(due), Some(at));
            assert_eq!((wheel.expire(due), wheel.next_deadline()), (None, None));
        }
    }

    #[test]
    fn a_time_that_has_passed_is_due_at_once() {
        let mut wheel = Wheel::new();
        assert_eq!(wheel.expire(Ns(100 * TICK)), None);
        wheel.arm(Ns(3), 1);
        assert!(wheel.next_deadline().is_some_and(|at| at <= Ns(100 * TICK)));
        assert_eq!(wheel.expire(Ns(99 * TICK)), None, "time does not go back");
        assert_eq!(wheel.expire(Ns(100 * TICK)), Some(1));
    }

    #[test]
    fn far_deadlines_wait_their_years() {
        const YEAR: u64 = 365 * 86_400 * 1_000_000_000;
        let mut wheel = Wheel::new();
        for years in [1, 2, 3, 10, 100, 500] {
            wheel.arm(Ns(years * YEAR), years);
        }
        wheel.arm(Ns::MAX, u64::MAX);
        let mut came = Vec::new();
        let mut wakes = 0;
        while wheel.len() > 1 {
            let at = wheel.next_deadline().expect("armed");
            for years in drain(&mut wheel, at) {
                assert!(at.0 >= years * YEAR && at.0 < years * YEAR + TICK);
                came.push(years);
            }
            wakes += 1;
        }
        assert_eq!(came, [1, 2, 3, 10, 100, 500]);
        assert!(wakes < 16_000, "{wakes} wake-ups in 500 years");
        assert_eq!(
            wheel.expire(Ns(u64::MAX - 1)),
            None,
            "the end of time has not come"
        );
    }

    #[test]
    fn an_old_name_does_nothing_to_the_timer_that_follows_it() {
        let mut wheel = Wheel::new();
        let first = wheel.arm(Ns(TICK), 1);
        assert_eq!(wheel.cancel(first), Some(1));
        let second = wheel.arm(Ns(TICK), 2);
        assert_ne!(first, second);
        assert_eq!(wheel.cancel(first), None);
        assert_eq!(wheel.expire(Ns(TICK)), Some(2));
        assert_eq!(wheel.cancel(second), None);
        assert_eq!(wheel.len(), 0);
    }

    #[test]
    fn a_cancelled_timer_wakes_at_most_once_too_early() {
        let mut wheel = Wheel::new();
        let early = wheel.arm(Ns(5000 * TICK), 1);
        wheel.arm(Ns(5100 * TICK), 2);
        wheel.cancel(early);
        let at = wheel.next_deadline().expect("armed");
        assert_eq!(wheel.expire(at), None);
        assert_eq!(wheel.next_deadline(), Some(Ns(5100 * TICK)));
    }

    #[test]
    fn no_slab_grows_after_warm_up() {
        let mut wheel = Wheel::with_capacity(100);
        let room = wheel.nodes.capacity();
        let mut rng = Rng::new(3);
        for round in 0..1000_u64 {
            let ids: Vec<TimerId> = (0..100)
                .map(|n| wheel.arm(Ns(round * TICK + rng.below(1 << 40)), n))
                .collect();
            ids.into_iter()
                .for_each(|id| assert!(wheel.cancel(id).is_some()));
        }
        assert_eq!(wheel.nodes.capacity(), room);
    }
}
