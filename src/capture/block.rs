//! Fixed-size buffers for captured bytes, and the pool that recycles them.

use crate::types::Ns;
use crate::types::limits::{BLOCK, BLOCK_SIZES};
use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;

/// Capacities of a stream's list of blocks: small for a stream that wrote little, large for one
/// that wrote much. The default bound of 2 MiB needs at most 34 blocks: 32 full ones of 64 KiB, and
/// a partly used one at either end.
const LIST_ROOM: [usize; 2] = [4, 64];
/// How many empty lists of each capacity a pool keeps for reuse.
const LISTS: [usize; 2] = [4096, 512];

/// Alignment of a block's first byte: one cache line. Large allocations usually start 16 bytes into
/// a cache line, and `read` copies into such a buffer about an eighth slower (bench `throughput`).
const ALIGN: usize = 64;

/// A buffer of one of the [`BLOCK_SIZES`]. It is zeroed when it is allocated; a recycled block
/// keeps the bytes of its last use. The default value has no memory: it is the placeholder for a
/// block that has been lent to a read.
#[derive(Default)]
pub struct Block(Box<[u8]>);

/// Shows the capacity and none of the bytes.
impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Block").field(&self.capacity()).finish()
    }
}

/// A block that holds bytes of a stream.
#[derive(Debug)]
pub(super) struct Filled {
    pub(super) block: Block,
    /// Number of bytes in use, from the beginning of the block.
    pub(super) len: u32,
    /// Time of the read that brought the newest of these bytes.
    pub(super) at: Ns,
}

/// The blocks of one stream, oldest first. A new list allocates nothing.
#[derive(Debug)]
pub(super) struct List(VecDeque<Filled>);

impl List {
    pub(super) const fn new() -> List {
        List(VecDeque::new())
    }

    /// Appends a block. A full list is replaced by a larger one from the pool.
    pub(super) fn push(&mut self, pool: &mut Pool, filled: Filled) {
        if self.0.len() == self.0.capacity() {
            let mut larger = pool.take_list(self.0.capacity() + 1);
            larger.append(&mut self.0);
            pool.put_list(std::mem::replace(&mut self.0, larger));
        }
        self.0.push_back(filled);
    }

    /// Returns the memory of an empty list to the pool.
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
    /// Allocates a block of the size `BLOCK_SIZES[class]`.
    fn new(class: usize) -> Block {
        Block(vec![0; BLOCK_SIZES[class] + ALIGN - 1].into_boxed_slice())
    }

    /// The number of bytes the block can hold; 0 for the placeholder.
    pub fn capacity(&self) -> usize {
        self.0.len().saturating_sub(ALIGN - 1)
    }

    /// The aligned part of the allocation.
    fn place(&self) -> Range<usize> {
        let begin = self.0.as_ptr().align_offset(ALIGN).min(ALIGN - 1);
        begin..begin + self.capacity()
    }

    /// The whole block, including bytes that are not in use.
    pub fn bytes(&self) -> &[u8] {
        // The placeholder has no allocation to slice.
        self.0.get(self.place()).unwrap_or_default()
    }

    /// The whole block, for a read to fill.
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

/// Free blocks by size. The pool keeps free blocks up to a bound in bytes and releases the rest to
/// the allocator.
#[derive(Debug)]
pub struct Pool {
    free: [Vec<Block>; BLOCK_SIZES.len()],
    lists: [Vec<VecDeque<Filled>>; LIST_ROOM.len()],
    bytes: usize,
    bound: usize,
}

impl Pool {
    /// Creates an empty pool that keeps at most `bound` bytes of free blocks.
    pub fn new(bound: usize) -> Pool {
        Pool {
            free: BLOCK_SIZES.map(|size| Vec::with_capacity((bound / size).min(4096))),
            lists: LISTS.map(Vec::with_capacity),
            bytes: 0,
            bound,
        }
    }

    /// Takes a block that holds at least `size` bytes, or [`BLOCK`] bytes if `size` is larger.
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

    /// Returns a block to the pool.
    pub fn put(&mut self, block: Block) {
        if block.capacity() == 0 {
            return;
        }
        let list = &mut self.free[block.class()];
        // Comparing with the capacity keeps the free list from growing, which would allocate.
        if self.bytes + block.capacity() <= self.bound && list.len() < list.capacity() {
            self.bytes += block.capacity();
            list.push(block);
        }
    }

    /// Takes an empty list with a capacity of at least `room` blocks.
    fn take_list(&mut self, room: usize) -> VecDeque<Filled> {
        let class = usize::from(room > LIST_ROOM[0]);
        match self.lists[class].pop() {
            Some(list) if list.capacity() >= room => list,
            // A bound of many MiB needs lists beyond the larger class: the small one is freed.
            Some(_) | None => {
                VecDeque::with_capacity(room.next_power_of_two().max(LIST_ROOM[class]))
            }
        }
    }

    /// Returns the memory of an empty list.
    fn put_list(&mut self, list: VecDeque<Filled>) {
        let free = &mut self.lists[usize::from(list.capacity() > LIST_ROOM[0])];
        if list.capacity() > 0 && free.len() < free.capacity() {
            free.push(list);
        }
    }

    /// The total size of the free blocks, in bytes.
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
