//! Who keeps the timers.

use lastwords::__internals::wheel::{TimerId, Wheel};
use lastwords::sim::Ns;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// What a loop asks of its timers. Times in nanoseconds; each timer carries a word.
pub(crate) trait Timers {
    /// Names an armed timer.
    type Id: Copy;

    fn with_capacity(count: usize) -> Self;
    fn arm(&mut self, at: u64, word: u64) -> Self::Id;
    fn cancel(&mut self, id: Self::Id);
    /// When the next one is due, or before.
    fn next(&mut self) -> Option<u64>;
    fn expire(&mut self, now: u64) -> Option<u64>;
}

/// The wheel of the library.
pub(crate) struct Wheeled(Wheel<u64>);

impl Timers for Wheeled {
    type Id = TimerId;

    fn with_capacity(count: usize) -> Self {
        Wheeled(Wheel::with_capacity(count))
    }

    fn arm(&mut self, at: u64, word: u64) -> TimerId {
        self.0.arm(Ns(at), word)
    }

    fn cancel(&mut self, id: TimerId) {
        self.0.cancel(id);
    }

    fn next(&mut self) -> Option<u64> {
        self.0.next_deadline().map(|at| at.0)
    }

    fn expire(&mut self, now: u64) -> Option<u64> {
        self.0.expire(Ns(now))
    }
}

/// A binary heap. What is cancelled stays in it, is known by its sequence, and is thrown out when
/// it comes up, or all at once when there is more of it than of what is armed.
pub(crate) struct Heap {
    heap: BinaryHeap<Reverse<(u64, Name)>>,
    /// By place: how often it was given away and taken back, and the word of the timer that has
    /// it.
    places: Vec<(u32, u64)>,
    free: Vec<u32>,
}

/// A place, and what its count is while the timer is armed.
type Name = (u32, u32);

fn is_armed(places: &[(u32, u64)], (place, count): Name) -> bool {
    places
        .get(place as usize)
        .is_some_and(|(is, _)| *is == count)
}

impl Heap {
    fn release(&mut self, (place, _): Name) -> u64 {
        let (count, word) = &mut self.places[place as usize];
        *count += 1;
        self.free.push(place);
        *word
    }
}

impl Timers for Heap {
    type Id = Name;

    fn with_capacity(count: usize) -> Self {
        Heap {
            heap: BinaryHeap::with_capacity(2 * count),
            places: Vec::with_capacity(count),
            free: Vec::with_capacity(count),
        }
    }

    fn arm(&mut self, at: u64, word: u64) -> Name {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, 0));
            u32::try_from(self.places.len() - 1).expect("few enough")
        });
        let (count, carried) = &mut self.places[place as usize];
        *carried = word;
        let name = (place, *count);
        self.heap.push(Reverse((at, name)));
        name
    }

    fn cancel(&mut self, name: Name) {
        if !is_armed(&self.places, name) {
            return;
        }
        self.release(name);
        if self.heap.len() > 2 * (self.places.len() - self.free.len()) + 64 {
            let places = &self.places;
            self.heap
                .retain(|Reverse((_, name))| is_armed(places, *name));
        }
    }

    fn next(&mut self) -> Option<u64> {
        while let Some(Reverse((at, name))) = self.heap.peek() {
            if is_armed(&self.places, *name) {
                return Some(*at);
            }
            self.heap.pop();
        }
        None
    }

    fn expire(&mut self, now: u64) -> Option<u64> {
        if self.next()? > now {
            return None;
        }
        let Reverse((_, name)) = self.heap.pop()?;
        Some(self.release(name))
    }
}

/// A sorted map, by time and sequence.
pub(crate) struct Map {
    map: BTreeMap<(u64, u64), u64>,
    sequence: u64,
}

impl Timers for Map {
    type Id = (u64, u64);

    fn with_capacity(_: usize) -> Self {
        Map {
            map: BTreeMap::new(),
            sequence: 0,
        }
    }

    fn arm(&mut self, at: u64, word: u64) -> (u64, u64) {
        self.sequence += 1;
        self.map.insert((at, self.sequence), word);
        (at, self.sequence)
    }

    fn cancel(&mut self, id: (u64, u64)) {
        self.map.remove(&id);
    }

    fn next(&mut self) -> Option<u64> {
        self.map.first_key_value().map(|((at, _), _)| *at)
    }

    fn expire(&mut self, now: u64) -> Option<u64> {
        let first = self.map.first_entry()?;
        if first.key().0 > now {
            None
        } else {
            Some(first.remove())
        }
    }
}
