//! What is kept of a stream: its newest bytes, to the byte, in blocks that are recycled.
//!
//! A read fills the room that is left in the last block, then a spare that is hot in the cache.
//! What reached the spare is copied into a block of its size while little has come (or while little
//! is to be kept), so that a child that wrote a line costs 4 KiB; else the spare is adopted as the
//! stream's next block and nothing is copied. Eviction moves an offset; blocks that are used up go
//! back to the pool.

use super::block::{Block, Filled, List, Pool};
use crate::types::Ns;
use crate::types::limits::{BLOCK, BLOCK_SIZES};
use std::{fmt, io};

/// Whether the host takes the bytes as they arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delivery {
    /// It does not.
    No,
    /// It does, and none may be lost on the way.
    All,
    /// It does, and what it does not take in time is dropped beyond `ahead` bytes.
    Lossy,
}

/// The kept bytes of one captured stream: the newest, at most as many as the host allows.
///
/// It owns its blocks. Offsets count the bytes of the stream since the child started, so the first
/// kept byte has the offset [`dropped`](Captured::dropped) and the next one to come has the offset
/// [`total`](Captured::total).
///
/// # Bounds
///
/// Every byte that came is either kept or counted as dropped. Not more than the bound is kept, with
/// one exception: bytes that the host wants delivered and has not taken yet are never dropped (or,
/// if it asked for that, only beyond `ahead` of them), so that while delivery is on the larger of
/// the bound and the undelivered bytes is kept.
pub struct Captured {
    blocks: List,
    /// Offset of the first byte of the first block.
    front: u64,
    /// Offset of the first byte that is kept.
    first: u64,
    /// Offset of the next byte to come.
    end: u64,
    /// Offset of the next byte to be delivered.
    cursor: u64,
    /// Offset of the next byte for `io::Read`.
    reader: u64,
    keep: u64,
    ahead: u64,
    delivery: Delivery,
}

/// Bytes for delivery: all of one block that were not delivered yet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The bytes, at least one.
    pub bytes: &'a [u8],
    /// Offset of the first of them in the stream.
    pub offset: u64,
    /// How many bytes right before them were dropped undelivered (lossy delivery only).
    pub lost: u64,
    /// When the newest of the block's bytes were read.
    pub at: Ns,
}

/// Lengths only: what a child wrote is for those who ask for it by name.
impl fmt::Debug for Piece<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Piece {
            bytes,
            offset,
            lost,
            at,
        } = self;
        f.debug_struct("Piece")
            .field("len", &bytes.len())
            .field("offset", offset)
            .field("lost", lost)
            .field("at", at)
            .finish()
    }
}

impl Captured {
    /// Nothing yet, and no memory. `keep` is the bound in bytes; with `deliver` the bytes are
    /// wanted through [`Captured::next_piece`], at most `ahead` of them waiting (then the
    /// stream is full, or with `lossy` drops the oldest).
    #[doc(hidden)]
    pub fn new(keep: u64, deliver: bool, ahead: u64, lossy: bool) -> Captured {
        let delivery = match (deliver, lossy) {
            (false, _) => Delivery::No,
            (true, false) => Delivery::All,
            (true, true) => Delivery::Lossy,
        };
        Captured {
            blocks: List::new(),
            front: 0,
            first: 0,
            end: 0,
            cursor: 0,
            reader: 0,
            keep,
            ahead,
            delivery,
        }
    }

    /// Of a stream of which nothing came.
    pub(crate) const NOTHING: Captured = Captured {
        blocks: List::new(),
        front: 0,
        first: 0,
        end: 0,
        cursor: 0,
        reader: 0,
        keep: 0,
        ahead: 0,
        delivery: Delivery::No,
    };

    // ------------------------------------------------------------------------------------------------------- reading

    /// Moves the last block out if it has room left: the block, and how full it is. It comes back
    /// with [`Captured::store`] or [`Captured::give_back`]; until then the kept bytes have a
    /// hole.
    #[doc(hidden)]
    pub fn room(&mut self) -> Option<(Block, u32)> {
        let last = self.blocks.back_mut()?;
        if (last.len as usize) < last.block.capacity() {
            Some((std::mem::take(&mut last.block), last.len))
        } else {
            None
        }
    }

    /// The read brought nothing: the block that was moved out goes back.
    #[doc(hidden)]
    pub fn give_back(&mut self, room: Option<(Block, u32)>) {
        if let (Some((block, _)), Some(last)) = (room, self.blocks.back_mut()) {
            last.block = block;
        }
    }

    /// The read brought `n` bytes at the time `at`: the room was filled first, then the spare.
    /// Returns the block to use as the next spare. Allocates nothing once the pool holds the
    /// high-water mark.
    #[doc(hidden)]
    pub fn store(
        &mut self,
        pool: &mut Pool,
        room: Option<(Block, u32)>,
        spare: Block,
        n: usize,
        at: Ns,
    ) -> Block {
        let left = room.as_ref().map_or(0, |(block, full)| {
            block.capacity().saturating_sub(*full as usize)
        });
        let (into_room, into_spare) = (n.min(left), n.saturating_sub(left).min(spare.capacity()));
        if let (Some((block, full)), Some(last)) = (room, self.blocks.back_mut()) {
            *last = Filled {
                block,
                len: full + into_room as u32,
                at,
            };
        }
        let before = self.end;
        self.end += (into_room + into_spare) as u64;
        self.evict();
        self.trim(pool);
        // Of what is in the spare, some may be beyond the bound already.
        let begin = self.end - into_spare as u64;
        let wanted = into_spare - self.first.saturating_sub(begin) as usize;
        if wanted == 0 {
            return spare;
        }
        if self.blocks.is_empty() {
            self.front = self.end - wanted as u64;
        }
        let small =
            before < BLOCK as u64 || (self.keep < BLOCK as u64 && self.delivery == Delivery::No);
        if !small && wanted == into_spare {
            self.blocks.push(
                pool,
                Filled {
                    block: spare,
                    len: into_spare as u32,
                    at,
                },
            );
            return pool.take(BLOCK);
        }
        let mut block = pool.take(self.size_for(wanted));
        let source = spare
            .bytes()
            .get(into_spare - wanted..into_spare)
            .unwrap_or_default();
        if let Some(to) = block.bytes_mut().get_mut(..source.len()) {
            to.copy_from_slice(source);
        }
        self.blocks.push(
            pool,
            Filled {
                block,
                len: wanted as u32,
                at,
            },
        );
        spare
    }

    /// How large a block for `wanted` more bytes should be: the largest with which the blocks have
    /// at most four times the size of what is kept, and large enough.
    fn size_for(&self, wanted: usize) -> usize {
        let have: usize = self
            .blocks
            .iter()
            .map(|filled| filled.block.capacity())
            .sum();
        let held = usize::try_from(self.len()).unwrap_or(usize::MAX);
        let fits = BLOCK_SIZES
            .iter()
            .rev()
            .copied()
            .find(|size| have + size <= held.saturating_mul(4));
        fits.unwrap_or(0).max(wanted)
    }

    /// Moves the beginning of what is kept up to the bound.
    fn evict(&mut self) {
        let bound = self.end.saturating_sub(self.keep);
        let undelivered = match self.delivery {
            Delivery::No => self.end,
            Delivery::All => self.cursor,
            Delivery::Lossy => self.cursor.max(self.end.saturating_sub(self.ahead)),
        };
        self.first = self.first.max(bound.min(undelivered));
    }

    /// Gives blocks that are used up back to the pool. Delivery frees bytes without having a pool
    /// at hand: this is for afterwards (storing does it too).
    #[doc(hidden)]
    pub fn trim(&mut self, pool: &mut Pool) {
        while let Some(used) = self.blocks.front().map(|filled| u64::from(filled.len)) {
            if self.front + used > self.first {
                return;
            }
            self.front += used;
            if let Some(filled) = self.blocks.pop_front() {
                pool.put(filled.block);
            }
        }
    }

    /// Gives everything back to the pool. What was kept counts as dropped from then on.
    #[doc(hidden)]
    pub fn free(&mut self, pool: &mut Pool) {
        (self.first, self.cursor) = (self.end, self.end);
        self.trim(pool);
        self.blocks.give(pool);
    }

    // ------------------------------------------------------------------------------------------------------ delivery

    /// The next undelivered bytes, all of one block, and none from the offset `before` on if the
    /// first is before it; they count as delivered from then on. `None` if there are none, or
    /// if delivery is off.
    #[doc(hidden)]
    pub fn next_piece(&mut self, before: u64) -> Option<Piece<'_>> {
        if self.delivery == Delivery::No || self.undelivered() == 0 {
            return None;
        }
        let offset = self.cursor.max(self.first);
        let lost = offset - self.cursor;
        // Nearly always in the last block or the one before.
        let mut begin = self.front
            + self
                .blocks
                .iter()
                .map(|filled| u64::from(filled.len))
                .sum::<u64>();
        let mut place = self.blocks.len();
        while begin > offset {
            place = place.checked_sub(1)?;
            begin -= u64::from(self.blocks.get(place)?.len);
        }
        let end = begin + u64::from(self.blocks.get(place)?.len);
        self.cursor = if offset < before {
            end.min(before)
        } else {
            end
        };
        let to = (self.cursor - begin) as usize;
        self.evict();
        let filled = self.blocks.get(place)?;
        let bytes = filled.block.bytes().get((offset - begin) as usize..to)?;
        Some(Piece {
            bytes,
            offset,
            lost,
            at: filled.at,
        })
    }

    /// Nobody will take what is undelivered: delivery is off from now on.
    #[doc(hidden)]
    pub fn stop_delivery(&mut self) {
        self.delivery = Delivery::No;
        // What was held for the host alone is beyond the bound now.
        self.evict();
    }

    /// Bytes that wait for delivery; 0 if delivery is off. What was lost is not among them.
    #[doc(hidden)]
    pub fn undelivered(&self) -> u64 {
        if self.delivery == Delivery::No {
            0
        } else {
            self.end - self.cursor.max(self.first)
        }
    }

    /// More is kept than the bound allows, for the host to take: what it takes is kept no longer.
    #[doc(hidden)]
    pub fn is_over_bound(&self) -> bool {
        self.len() > self.keep
    }

    /// As many bytes as may wait for delivery do: the stream is not to be read. Never with lossy
    /// delivery.
    #[doc(hidden)]
    pub fn is_full_ahead(&self) -> bool {
        self.delivery == Delivery::All && self.undelivered() >= self.ahead
    }

    // --------------------------------------------------------------------------------------------------------- facts

    /// Bytes that came.
    pub fn total(&self) -> u64 {
        self.end
    }

    /// Bytes that came and are not kept (any more): the offset of the first that is.
    pub fn dropped(&self) -> u64 {
        self.first
    }

    /// Bytes that are kept.
    pub fn len(&self) -> u64 {
        self.end - self.first
    }

    /// Nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.end == self.first
    }

    /// The kept bytes, oldest first, in pieces.
    pub fn slices(&self) -> Slices<'_> {
        self.slices_from(self.first, self.end)
    }

    /// The newest bytes, those that no [`Event::Output`](crate::Event::Output) has delivered: empty
    /// unless the stream was paused until the end of its generation. Nothing if delivery is off.
    pub fn undelivered_slices(&self) -> Slices<'_> {
        self.slices_from(self.end - self.undelivered(), self.end)
    }

    /// The kept bytes whose offset in the stream is at least `offset` and below `to`, oldest first,
    /// in pieces.
    pub fn slices_from(&self, offset: u64, to: u64) -> Slices<'_> {
        let stored = self
            .blocks
            .iter()
            .map(|filled| u64::from(filled.len))
            .sum::<u64>();
        Slices {
            blocks: &self.blocks,
            places: 0..self.blocks.len(),
            begin: self.front,
            end: self.front + stored,
            from: offset.max(self.first),
            to: to.min(self.end),
        }
    }

    /// A copy of all kept bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(usize::try_from(self.len()).unwrap_or_default());
        self.slices().for_each(|bytes| all.extend_from_slice(bytes));
        all
    }

    /// All kept bytes as text, raw but for what is not UTF-8: that becomes U+FFFD. A character
    /// whose beginning was dropped is left out. Nothing is taken out and nothing is redacted;
    /// for text to show to people there are the last words.
    pub fn to_string_lossy(&self) -> String {
        let all = self.to_vec();
        let cut = if self.first == 0 {
            0
        } else {
            all.iter()
                .take(3)
                .take_while(|byte| **byte & 0xc0 == 0x80)
                .count()
        };
        String::from_utf8_lossy(all.get(cut..).unwrap_or_default()).into_owned()
    }
}

/// Pieces of kept bytes, oldest first ([`Captured::slices`]).
#[derive(Clone)]
pub struct Slices<'a> {
    blocks: &'a List,
    places: std::ops::Range<usize>,
    /// Offsets of the first byte of the first of `places`, and of the byte after the last.
    begin: u64,
    end: u64,
    from: u64,
    to: u64,
}

impl<'a> Slices<'a> {
    /// The wanted part of a block whose bytes begin at `begin`.
    fn part(&self, filled: &'a Filled, begin: u64) -> Option<&'a [u8]> {
        let from = self.from.saturating_sub(begin) as usize;
        let to = u64::from(filled.len).min(self.to.saturating_sub(begin)) as usize;
        filled
            .block
            .bytes()
            .get(from..to)
            .filter(|bytes| !bytes.is_empty())
    }
}

impl<'a> Iterator for Slices<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            let filled = self.blocks.get(self.places.next()?)?;
            let begin = self.begin;
            self.begin += u64::from(filled.len);
            if let Some(bytes) = self.part(filled, begin) {
                return Some(bytes);
            }
        }
    }
}

impl DoubleEndedIterator for Slices<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        loop {
            let filled = self.blocks.get(self.places.next_back()?)?;
            self.end -= u64::from(filled.len);
            if let Some(bytes) = self.part(filled, self.end) {
                return Some(bytes);
            }
        }
    }
}

/// Lengths only.
impl fmt::Debug for Slices<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.clone().map(<[u8]>::len))
            .finish()
    }
}

/// Gives the kept bytes in order, each once; they stay where they are.
impl io::Read for Captured {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        for bytes in self.slices_from(self.reader, self.end) {
            let left = buffer.get_mut(done..).unwrap_or_default();
            let n = bytes.len().min(left.len());
            if n == 0 {
                break;
            }
            left[..n].copy_from_slice(&bytes[..n]);
            done += n;
        }
        self.reader = self.reader.max(self.first) + done as u64;
        Ok(done)
    }
}

/// Lengths only: what a child wrote is for those who ask for it by name.
impl fmt::Debug for Captured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Captured")
            .field("len", &self.len())
            .field("dropped", &self.dropped())
            .field("total", &self.total())
            .field("undelivered", &self.undelivered())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
