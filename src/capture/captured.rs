//! The kept bytes of one captured stream: the newest ones, bounded to the byte.
//!
//! A read is a `readv` of two buffers: the free room of the stream's last block, then a spare block
//! that all streams of the loop share. While a stream has brought fewer than 64 KiB (or keeps fewer
//! and delivers nothing), bytes that reached the spare are copied into a block of a fitting size,
//! so a child that wrote one line costs 1 KiB. Later the spare itself becomes the stream's next
//! block, and nothing is copied. Eviction advances an offset; blocks before that offset return to
//! the pool.

use super::block::{Block, Filled, List, Pool};
use crate::types::Ns;
use crate::types::limits::{BLOCK, BLOCK_SIZES};
use std::{fmt, io};

/// Whether the host takes the bytes as they arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delivery {
    /// Delivery is off.
    No,
    /// Every byte is delivered: undelivered bytes are kept beyond the bound.
    All,
    /// Of the undelivered bytes only the newest `ahead` are kept; the loss is reported.
    Lossy,
}

/// The raw bytes kept of one captured stream: its newest ones, up to the bound of
/// [`Capture::max_bytes`](crate::Capture::max_bytes) (default 2 MiB).
///
/// Offsets count the bytes of the stream from the start of the child. The oldest kept byte has the
/// offset [`dropped`](Captured::dropped); the next byte to arrive will have the offset
/// [`total`](Captured::total). The bytes are not contiguous in memory: [`slices`](Captured::slices)
/// borrows them piece by piece, [`to_vec`](Captured::to_vec) copies them, and `io::Read` yields
/// each byte once without removing it.
///
/// Nothing is sanitized or redacted here. [`Projection::last_lines`](crate::Projection::last_lines)
/// turns the end of a stream into text that is safe to show.
///
/// # Bounds
///
/// Each byte that arrived is either kept or counted as dropped. The bound is exceeded only while
/// the host has asked for delivery: undelivered bytes are kept even beyond it, or up to
/// `ahead` of them if the host allowed loss.
///
/// ```
/// use lastwords::Command;
/// let finished = lastwords::run(&Command::shell("printf 'one\\ntwo\\n'"))?;
/// let kept = finished.stdout.expect("stdout is captured by default");
/// assert_eq!((kept.total(), kept.dropped()), (8, 0));
/// assert_eq!(kept.slices().map(<[u8]>::len).sum::<usize>(), 8);
/// assert_eq!(kept.to_string_lossy(), "one\ntwo\n");
/// # Ok::<(), lastwords::RunError>(())
/// ```
pub struct Captured {
    blocks: List,
    /// Offset of the first byte of the oldest block.
    front: u64,
    /// Offset of the oldest kept byte; at or after `front`.
    first: u64,
    /// Offset of the next byte to arrive.
    end: u64,
    /// Offset of the next byte to be delivered.
    cursor: u64,
    /// Offset of the next byte that `io::Read` yields.
    reader: u64,
    keep: u64,
    ahead: u64,
    delivery: Delivery,
}

/// Bytes for delivery: the undelivered bytes of one block.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The bytes; never empty.
    pub bytes: &'a [u8],
    /// Offset of the first byte in the stream.
    pub offset: u64,
    /// Number of bytes directly before this piece that were dropped undelivered; always 0 unless
    /// delivery is lossy.
    pub lost: u64,
    /// Time of the read that brought the block's newest byte.
    pub at: Ns,
}

/// Shows lengths and no bytes: `Debug` output may reach a log, and raw output must not.
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
    /// Creates an empty stream; allocates nothing. `keep` is the bound in bytes. With `deliver`,
    /// [`Captured::next_piece`] yields the bytes; at `ahead` undelivered bytes the stream counts as
    /// full ([`Captured::is_full_ahead`]) or, with `lossy`, drops the oldest of them.
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

    /// A stream that brought nothing.
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

    // Reading.

    /// Lends the last block to a read if it has free room: the block, and the number of bytes in
    /// use. The caller must return it through [`Captured::store`] or [`Captured::give_back`]; until
    /// then the kept bytes have a hole.
    #[doc(hidden)]
    pub fn room(&mut self) -> Option<(Block, u32)> {
        let last = self.blocks.back_mut()?;
        if (last.len as usize) < last.block.capacity() {
            Some((std::mem::take(&mut last.block), last.len))
        } else {
            None
        }
    }

    /// Returns a lent block after a read that brought nothing.
    #[doc(hidden)]
    pub fn give_back(&mut self, room: Option<(Block, u32)>) {
        if let (Some((block, _)), Some(last)) = (room, self.blocks.back_mut()) {
            last.block = block;
        }
    }

    /// Stores the `n` bytes of a read at the time `at`, which filled the lent block first and then
    /// the spare. Returns the block to use as the next spare. Allocates only when the pool has no
    /// block of the wanted size.
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
        // With a small bound, the oldest bytes in the spare may be evicted already.
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

    /// The size of a block for `wanted` more bytes: the largest one that keeps the total size of
    /// the blocks within four times the kept bytes, but at least `wanted`.
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

    /// Drops the oldest bytes beyond the bound, except those that delivery still needs.
    fn evict(&mut self) {
        let bound = self.end.saturating_sub(self.keep);
        let undelivered = match self.delivery {
            Delivery::No => self.end,
            Delivery::All => self.cursor,
            Delivery::Lossy => self.cursor.max(self.end.saturating_sub(self.ahead)),
        };
        self.first = self.first.max(bound.min(undelivered));
    }

    /// Returns blocks without kept bytes to the pool. [`Captured::store`] does this too; a caller
    /// needs it after delivery, which evicts bytes without having the pool.
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

    /// Drops all kept bytes and returns the blocks to the pool.
    #[doc(hidden)]
    pub fn free(&mut self, pool: &mut Pool) {
        (self.first, self.cursor) = (self.end, self.end);
        self.trim(pool);
        self.blocks.give(pool);
    }

    // Delivery.

    /// Delivers the next bytes: those of one block that are undelivered. A piece that begins before
    /// the offset `before` also ends there, so that no piece mixes late bytes with earlier ones.
    /// `None` if nothing is undelivered or delivery is off.
    #[doc(hidden)]
    pub fn next_piece(&mut self, before: u64) -> Option<Piece<'_>> {
        if self.delivery == Delivery::No || self.undelivered() == 0 {
            return None;
        }
        let offset = self.cursor.max(self.first);
        let lost = offset - self.cursor;
        // Searched backwards: the cursor is nearly always in one of the last two blocks.
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

    /// Turns delivery off. Undelivered bytes stay kept only within the bound.
    #[doc(hidden)]
    pub fn stop_delivery(&mut self) {
        self.delivery = Delivery::No;
        // Bytes kept for delivery alone exceed the bound now.
        self.evict();
    }

    /// The number of bytes that wait for delivery; 0 if delivery is off. Lost bytes don't count.
    #[doc(hidden)]
    pub fn undelivered(&self) -> u64 {
        if self.delivery == Delivery::No {
            0
        } else {
            self.end - self.cursor.max(self.first)
        }
    }

    /// Whether undelivered bytes exceed the bound, so that delivering them evicts them.
    #[doc(hidden)]
    pub fn is_over_bound(&self) -> bool {
        self.len() > self.keep
    }

    /// Whether `ahead` bytes or more wait for delivery: the caller must not read the stream. Always
    /// false for lossy delivery.
    #[doc(hidden)]
    pub fn is_full_ahead(&self) -> bool {
        self.delivery == Delivery::All && self.undelivered() >= self.ahead
    }

    // Facts.

    /// The number of bytes that the stream has brought.
    pub fn total(&self) -> u64 {
        self.end
    }

    /// The number of bytes that are not kept; equally, the offset of the oldest kept byte.
    pub fn dropped(&self) -> u64 {
        self.first
    }

    /// The number of kept bytes.
    pub fn len(&self) -> u64 {
        self.end - self.first
    }

    /// Whether no byte is kept.
    pub fn is_empty(&self) -> bool {
        self.end == self.first
    }

    /// Borrows the kept bytes, oldest first, as one slice per block.
    pub fn slices(&self) -> Slices<'_> {
        self.slices_from(self.first, self.end)
    }

    /// The newest bytes, those that no [`Event::Output`](crate::Event::Output) has delivered: empty
    /// unless the stream was paused until the end of its generation. Nothing if delivery is off.
    pub fn undelivered_slices(&self) -> Slices<'_> {
        self.slices_from(self.end - self.undelivered(), self.end)
    }

    /// Borrows the kept bytes with offsets from `offset` to below `to`, oldest first, as one slice
    /// per block. Offsets beyond what is kept are clamped.
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

    /// Copies all kept bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(usize::try_from(self.len()).unwrap_or_default());
        self.slices().for_each(|bytes| all.extend_from_slice(bytes));
        all
    }

    /// Copies all kept bytes as text, with invalid UTF-8 as U+FFFD. The rest of a character whose
    /// first byte was dropped is left out. Control characters and secrets stay: use
    /// [`Projection`](crate::Projection) for text that is shown to people.
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

/// An iterator over the kept bytes of a stream, one slice per block, oldest first; made by
/// [`Captured::slices`] and [`Captured::slices_from`]. No slice is empty. Iterating from the back
/// yields the newest slice first.
#[derive(Clone)]
pub struct Slices<'a> {
    blocks: &'a List,
    places: std::ops::Range<usize>,
    /// Stream offsets at which the blocks of `places` begin and end.
    begin: u64,
    end: u64,
    from: u64,
    to: u64,
}

impl<'a> Slices<'a> {
    /// The requested part of a block whose first byte has the offset `begin`.
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

/// Shows the lengths of the slices.
impl fmt::Debug for Slices<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.clone().map(<[u8]>::len))
            .finish()
    }
}

/// Reads each kept byte once, in order. The bytes stay kept; bytes that are evicted before they are
/// read are skipped.
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

/// Shows lengths and no bytes: `Debug` output may reach a log, and raw output must not.
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
