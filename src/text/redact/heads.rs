//! The search for places where a secret may begin: one table for all shapes and all registered
//! literals.
//!
//! Each of them begins with four known bytes, its head. A small table says for three bytes of text
//! whether they may be the first or the last three of a head. Looking at every second place is
//! enough: a head covers at least one of them whole. Where the table says yes, the four bytes are
//! looked up exactly.
//!
//! ```text
//!  text     . . t o k e n = . .
//!  looked at    ^   ^               "tok" at an even place, or "oke" at an odd one
//! ```

/// Bytes of a head.
pub(crate) const HEAD: usize = 4;
/// Bytes of a window.
const WINDOW: usize = 3;
/// Places that are looked at before the result is tested: the processor works on all at once.
const STEP: usize = 16;
/// Entries of the window table, as a power of two. Thousands of heads leave most of them empty.
const WINDOW_BITS: u32 = 16;

/// What is known of a window: it is the first three bytes of a head, the last three, or both.
const FIRST: u8 = 1;
const LAST: u8 = 2;

/// What may begin with a head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owners {
    /// One bit for each shape.
    pub(crate) shapes: u64,
    /// The node of the literals' automaton, 0 for none.
    pub(crate) literal: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    head: u32,
    owners: Owners,
}

/// The table of all beginnings.
pub(crate) struct Heads {
    /// By the hash of the window: [`FIRST`], [`LAST`].
    windows: Box<[u8; 1 << WINDOW_BITS]>,
    /// Open addressing by the hash of the head; a slot without owners is free.
    slots: Vec<Slot>,
}

const fn hash(bytes: u32) -> u32 {
    bytes.wrapping_mul(0x9e37_79b1)
}

/// The entry of a window in the table. The fourth byte does not matter.
const fn place(window: [u8; 4]) -> usize {
    (hash(u32::from_le_bytes(window) << 8) >> (u32::BITS - WINDOW_BITS)) as usize
}

impl Heads {
    pub(crate) fn new(all: &[([u8; HEAD], Owners)]) -> Heads {
        let slots = (4 * all.len()).next_power_of_two().max(2);
        let mut heads = Heads {
            windows: Box::new([0; 1 << WINDOW_BITS]),
            slots: vec![Slot::default(); slots],
        };
        for (head, owners) in all {
            let [one, two, three, four] = *head;
            heads.windows[place([one, two, three, 0])] |= FIRST;
            heads.windows[place([two, three, four, 0])] |= LAST;
            let head = u32::from_le_bytes(*head);
            let slot = heads.slot(head);
            let slot = &mut heads.slots[slot];
            slot.head = head;
            slot.owners.shapes |= owners.shapes;
            slot.owners.literal = slot.owners.literal.max(owners.literal);
        }
        heads
    }

    /// The slot of a head, or the free one that it would take.
    fn slot(&self, head: u32) -> usize {
        let mask = self.slots.len() - 1;
        // The high bits of the product are the good ones.
        let mut at = (hash(head) >> (u32::BITS - self.slots.len().ilog2())) as usize;
        while let Some(slot) = self.slots.get(at) {
            if slot.head == head || slot.owners == Owners::default() {
                break;
            }
            at = (at + 1) & mask;
        }
        at
    }

    /// The owners of the head that stands at `at`.
    fn at(&self, text: &[u8], at: usize) -> Option<Owners> {
        let head = u32::from_le_bytes(*text.get(at..)?.first_chunk()?);
        let slot = self.slots.get(self.slot(head))?;
        (slot.head == head && slot.owners != Owners::default()).then_some(slot.owners)
    }

    /// The first head at or after `from`: where it begins, and what may begin with it.
    pub(crate) fn next(&self, text: &[u8], from: usize) -> Option<(usize, Owners)> {
        let mut rest = text.get(from..).unwrap_or_default();
        while let Some(bytes) = rest.first_chunk::<{ STEP + 2 }>() {
            let mut known = [0; STEP / 2];
            for (n, known) in known.iter_mut().enumerate() {
                let at = 2 * n;
                *known = self.known([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
            }
            if known != [0; STEP / 2] {
                let at = text.len() - rest.len();
                for (n, known) in known.into_iter().enumerate() {
                    let found = self.look(text, from, at + 2 * n, known);
                    if found.is_some() {
                        return found;
                    }
                }
            }
            rest = rest.get(STEP..).unwrap_or_default();
        }
        let at = text.len() - rest.len();
        for (n, window) in rest.windows(WINDOW).enumerate().step_by(2) {
            let known = self.known([window[0], window[1], window[2], 0]);
            let found = self.look(text, from, at + n, known);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// What is known of a window. The fourth byte does not matter.
    fn known(&self, window: [u8; 4]) -> u8 {
        self.windows[place(window)]
    }

    /// The head of which the window at `at` is a part, if it does not begin before `from`.
    #[inline(always)]
    fn look(&self, text: &[u8], from: usize, at: usize, known: u8) -> Option<(usize, Owners)> {
        if known == 0 {
            return None;
        }
        if known & LAST != 0
            && at > from
            && let Some(owners) = self.at(text, at - 1)
        {
            return Some((at - 1, owners));
        }
        if known & FIRST != 0 {
            return self.at(text, at).map(|owners| (at, owners));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::Rng;

    #[test]
    fn every_head_is_found_wherever_it_stands_and_nothing_else() {
        for seed in 1..300_u64 {
            let mut rng = Rng::new(seed);
            let mut byte = || b"abcd"[rng.index(4)];
            let heads: Vec<[u8; HEAD]> = (0..1 + seed as usize % 7)
                .map(|_| std::array::from_fn(|_| byte()))
                .collect();
            let text: Vec<u8> = (0..seed as usize % 90).map(|_| byte()).collect();
            let all: Vec<_> = (0..)
                .zip(&heads)
                .map(|(n, head)| {
                    let owners = Owners {
                        shapes: 1 << n,
                        literal: 0,
                    };
                    (*head, owners)
                })
                .collect();
            let search = Heads::new(&all);
            let (mut from, mut found) = (0, Vec::new());
            while let Some((at, owners)) = search.next(&text, from) {
                found.push((at, owners.shapes));
                from = at + 1;
            }
            let stands = |at: usize| {
                let shapes = (0..)
                    .zip(&heads)
                    .filter(|(_, head)| text[at..].starts_with(*head))
                    .fold(0_u64, |shapes, (n, _)| shapes | 1 << n);
                (shapes != 0).then_some((at, shapes))
            };
            let expected: Vec<_> = (0..text.len()).filter_map(stands).collect();
            assert_eq!(found, expected, "{text:?}");
        }
    }
}
