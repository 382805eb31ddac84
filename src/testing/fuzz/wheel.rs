//! The timer wheel against a sorted list.

use super::Bytes;
use crate::types::Ns;
use crate::types::limits::TICK_BITS;
use crate::wheel::{TimerId, Wheel};
use std::collections::BTreeMap;

/// By name: the wheel's name for it, and the tick at which it is due. What had passed when it was
/// armed is due at once.
type Armed = BTreeMap<u64, (TimerId, u64)>;

/// Arms, cancels (what is armed and what is not any more), and lets time pass: nothing early,
/// nothing more than a tick late, in the order of ticks, each once, and the next deadline never
/// behind the earliest.
pub fn wheel(input: &[u8]) {
    let mut from = Bytes(input);
    let mut wheel = Wheel::new();
    let mut armed = Armed::new();
    let mut gone: Vec<TimerId> = Vec::new();
    // `here`: the tick that the wheel was last brought up to.
    let (mut now, mut here, mut name) = (0_u64, 0_u64, 0_u64);
    while !from.is_over() {
        match from.below(4) {
            0 | 1 => {
                let far = from.byte() % 64;
                let at = now
                    .saturating_add(from.number() >> far)
                    .saturating_sub(u64::from(from.byte()) << TICK_BITS);
                let due = tick_of(at).max(here);
                armed.insert(name, (wheel.arm(Ns(at), name), due));
                name += 1;
            }
            2 => {
                let place = usize::from(from.byte());
                let some = armed
                    .iter()
                    .nth(place % armed.len().max(1))
                    .map(|(name, (id, _))| (*name, *id));
                if let Some((name, id)) = some {
                    armed.remove(&name);
                    assert_eq!(
                        wheel.cancel(id),
                        Some(name),
                        "an armed timer is taken out once"
                    );
                    gone.push(id);
                }
                if let Some(id) = gone.get(place % gone.len().max(1)) {
                    assert_eq!(
                        wheel.cancel(*id),
                        None,
                        "a name that is used up does nothing"
                    );
                }
            }
            _ => {
                let far = from.byte() % 64;
                now = now.saturating_add(from.number() >> far);
                here = now >> TICK_BITS;
                expire(&mut wheel, Ns(now), &mut armed, &mut gone);
            }
        }
        check(&wheel, &armed);
    }
}

fn tick_of(at: u64) -> u64 {
    at.div_ceil(1 << TICK_BITS)
}

fn expire(wheel: &mut Wheel<u64>, now: Ns, armed: &mut Armed, gone: &mut Vec<TimerId>) {
    let here = now.0 >> TICK_BITS;
    let mut last = 0;
    while let Some(name) = wheel.expire(now) {
        let Some((id, due)) = armed.remove(&name) else {
            panic!("{name} has expired twice, or was cancelled")
        };
        assert!(due <= here, "early");
        assert!(last <= due, "out of order");
        last = due;
        gone.push(id);
    }
    assert!(
        armed.values().all(|(_, due)| *due > here),
        "more than a tick late"
    );
    let next = wheel.next_deadline();
    assert!(
        next.is_none_or(|at| at > now || now == Ns::MAX),
        "a sleep that ends before it begins: {next:?} at {now:?}"
    );
}

fn check(wheel: &Wheel<u64>, armed: &Armed) {
    assert_eq!(
        (wheel.len(), wheel.is_empty()),
        (armed.len(), armed.is_empty())
    );
    let earliest = armed.values().map(|(_, due)| *due).min();
    let next = wheel.next_deadline();
    assert_eq!(next.is_some(), earliest.is_some());
    if let (Some(next), Some(earliest)) = (next, earliest) {
        assert!(
            next == Ns::MAX || next.0 >> TICK_BITS <= earliest,
            "a sleep that is too long"
        );
    }
}
