//! Blocks of captured bytes, and the pool that recycles them.

use crate::types::Ns;
use crate::types::limits::{BLOCK, BLOCK_SIZES};
use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;

/// Blocks of a stream that has little, and of one that has much: 34 blocks hold 2 MiB with two of
/// them partly used.
const LIST_ROOM: [usize; 2] = [4, 64];
/// Free lists of blocks that a pool keeps, of each kind: half a MiB and a MiB.
const LISTS: [usize; 2] = [4096, 512];

/// Where a block begins: at the beginning of a line of the cache. The kernel copies to there an
/// eighth faster than to the 16th byte of it, which is where allocators put large blocks (bench
/// `throughput`).
const ALIGN: usize = 64;

/// A block of 4, 16 or 64 KiB: zeroed once when it comes from the allocator, recycled as it is from
/// then on. The default holds nothing and stands for a block that is elsewhere.
#[derive(Default)]
pub struct Block(Box<[u8]>);

/// The size only.
impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Block").field(&self.capacity()).finish()
    }
}

/// A block with bytes of a stream in it.
#[derive(Debug)]
pub(super) struct Filled {
    pub(super) block: Block,
    /// How many, from the beginning of the block.
    pub(super) len: u32,
    /// When the newest of them were read.
    pub(super) at: Ns,
}

/// The blocks of one stream, oldest first. No memory while it is empty and new.
#[derive(Debug)]
pub(super) struct List(VecDeque<Filled>);

impl List {
    pub(super) const fn new() -> List {
        List(VecDeque::new())
    }

    /// Adds a block. A list that is full changes places with a larger one from the pool.
    pub(super) fn push(&mut self, pool: &mut Pool, filled: Filled) {
        if self.0.len() == self.0.capacity() {
            let mut larger = pool.take_list(self.0.capacity() + 1);
            larger.append(&mut self.0);
            pool.put_list(std::mem::replace(&mut self.0, larger));
        }
        self.0.push_back(filled);
    }

    /// Gives the memory of an empty list back.
    pub(super) fn give(&mut self, pool: &mut Pool) {
        if self.0.is_empty() {
            pool.put_list(std::mem::take(&mut self.0));
        }
    }

    pub(super) fn pop_front(&mut self) -> Option<Filled> {
        self.0.pop_front()
    }

    pub(super) fn front(&self) -> Option<&Filled> {
        self.0.front()
    }

    pub(super) fn back_mut(&mut self) -> Option<&mut Filled> {
        self.0.back_mut()
    }

    pub(super) fn get(&self, place: usize) -> Option<&Filled> {
        self.0.get(place)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Filled> {
        self.0.iter()
    }
}

impl Block {
    /// A new one of this class (an index of [`BLOCK_SIZES`]).
    fn new(class: usize) -> Block {
        Block(vec![0; BLOCK_SIZES[class] + ALIGN - 1].into_boxed_slice())
    }

    /// How many bytes it can hold.
    pub fn capacity(&self) -> usize {
        self.0.len().saturating_sub(ALIGN - 1)
    }

    /// Where in the allocation it is.
    fn place(&self) -> Range<usize> {
        let begin = self.0.as_ptr().align_offset(ALIGN).min(ALIGN - 1);
        begin..begin + self.capacity()
    }

    /// All of it, as it is.
    pub fn bytes(&self) -> &[u8] {
        // Empty where the block is elsewhere.
        self.0.get(self.place()).unwrap_or_default()
    }

    /// All of it, to be filled.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let place = self.place();
        self.0.get_mut(place).unwrap_or_default()
    }

    fn class(&self) -> usize {
        BLOCK_SIZES
            .iter()
            .position(|size| *size == self.capacity())
            .unwrap_or(BLOCK_SIZES.len() - 1)
    }
}

/// Free blocks, by size. Keeps at most its bound of bytes; the rest goes back to the allocator.
#[derive(Debug)]
pub struct Pool {
    free: [Vec<Block>; BLOCK_SIZES.len()],
    lists: [Vec<VecDeque<Filled>>; LIST_ROOM.len()],
    bytes: usize,
    bound: usize,
}

impl Pool {
    /// An empty pool that keeps at most `bound` bytes of free blocks.
    pub fn new(bound: usize) -> Pool {
        Pool {
            free: BLOCK_SIZES.map(|size| Vec::with_capacity((bound / size).min(4096))),
            lists: LISTS.map(Vec::with_capacity),
            bytes: 0,
            bound,
        }
    }

    /// A block that holds at least `size` bytes (at most [`BLOCK`]).
    pub fn take(&mut self, size: usize) -> Block {
        let class = BLOCK_SIZES
            .iter()
            .position(|s| *s >= size.min(BLOCK))
            .unwrap_or(BLOCK_SIZES.len() - 1);
        match self.free[class].pop() {
            Some(block) => {
                self.bytes -= block.capacity();
                block
            }
            None => Block::new(class),
        }
    }

    /// Takes a block back.
    pub fn put(&mut self, block: Block) {
        if block.capacity() == 0 {
            return;
        }
        let list = &mut self.free[block.class()];
        // `len < capacity`: the list itself never grows in a turn.
        if self.bytes + block.capacity() <= self.bound && list.len() < list.capacity() {
            self.bytes += block.capacity();
            list.push(block);
        }
    }

    /// An empty list with room for at least so many blocks.
    fn take_list(&mut self, room: usize) -> VecDeque<Filled> {
        let class = usize::from(room > LIST_ROOM[0]);
        match self.lists[class].pop() {
            Some(list) if list.capacity() >= room => list,
            // Too small: there is only one class above the first, and a bound of many MiB needs
            // more. It is let go.
            Some(_) | None => {
                VecDeque::with_capacity(room.next_power_of_two().max(LIST_ROOM[class]))
            }
        }
    }

    /// Takes the memory of an empty list back.
    fn put_list(&mut self, list: VecDeque<Filled>) {
        let free = &mut self.lists[usize::from(list.capacity() > LIST_ROOM[0])];
        if list.capacity() > 0 && free.len() < free.capacity() {
            free.push(list);
        }
    }

    /// Bytes of free blocks.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_begins_with_a_line_of_the_cache_and_has_its_whole_size() {
        let mut pool = Pool::new(0);
        for size in BLOCK_SIZES {
            let mut block = pool.take(size);
            assert_eq!(
                (
                    block.capacity(),
                    block.bytes().len(),
                    block.bytes_mut().len()
                ),
                (size, size, size)
            );
            assert_eq!(block.bytes().as_ptr() as usize % ALIGN, 0);
        }
        let elsewhere = Block::default();
        assert_eq!((elsewhere.capacity(), elsewhere.bytes()), (0, &[][..]));
    }

    #[test]
    fn a_pool_recycles_up_to_its_bound() {
        let mut pool = Pool::new(BLOCK + BLOCK_SIZES[0]);
        let (big, more, small) = (pool.take(BLOCK), pool.take(BLOCK), pool.take(1));
        assert_eq!((big.capacity(), small.capacity()), (BLOCK, BLOCK_SIZES[0]));
        pool.put(big);
        pool.put(more);
        pool.put(small);
        assert_eq!(pool.bytes(), BLOCK + BLOCK_SIZES[0]);
        drop(pool.take(BLOCK));
        assert_eq!(pool.bytes(), BLOCK_SIZES[0]);
    }
}
