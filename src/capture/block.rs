//! Blocks of captured bytes, and the pool that recycles them.

use crate::limits::{BLOCK, BLOCK_SIZES};

/// A block of 4, 16 or 64 KiB: zeroed once when it comes from the allocator, recycled as it is from then on.
#[derive(Debug)]
pub struct Block(Box<[u8]>);

impl Block {
    /// A new one of this class (an index of [`BLOCK_SIZES`]).
    fn new(class: usize) -> Block {
        Block(vec![0; BLOCK_SIZES[class]].into_boxed_slice())
    }

    /// How many bytes it can hold.
    pub fn capacity(&self) -> usize {
        self.0.len()
    }

    /// All of it, as it is.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// All of it, to be filled.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }

    fn class(&self) -> usize {
        BLOCK_SIZES.iter().position(|size| *size == self.0.len()).unwrap_or(BLOCK_SIZES.len() - 1)
    }
}

/// Free blocks, by size. Keeps at most its bound of bytes; the rest goes back to the allocator.
#[derive(Debug)]
pub struct Pool {
    free: [Vec<Block>; BLOCK_SIZES.len()],
    bytes: usize,
    bound: usize,
}

impl Pool {
    /// An empty pool that keeps at most `bound` bytes of free blocks.
    pub fn new(bound: usize) -> Pool {
        Pool { free: BLOCK_SIZES.map(|size| Vec::with_capacity((bound / size).min(4096))), bytes: 0, bound }
    }

    /// A block that holds at least `size` bytes (at most [`BLOCK`]).
    pub fn take(&mut self, size: usize) -> Block {
        let class = BLOCK_SIZES.iter().position(|s| *s >= size.min(BLOCK)).unwrap_or(BLOCK_SIZES.len() - 1);
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
        let list = &mut self.free[block.class()];
        // `len < capacity`: the list itself never grows in a turn.
        if self.bytes + block.capacity() <= self.bound && list.len() < list.capacity() {
            self.bytes += block.capacity();
            list.push(block);
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
