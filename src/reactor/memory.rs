//! Memory that is used again: blocks for reads, and the boxes of generations that are over.

use super::channel::Channel;
use super::entry::ExitState;
use crate::capture::{Block, Pool};
use crate::types::limits;
use arrayvec::ArrayVec;

/// Everything that a turn would otherwise have to allocate. Once the loop is warmed up, a turn
/// allocates nothing.
pub(super) struct Memory {
    pub(super) pool: Pool,
    /// Empty blocks of [`limits::BLOCK`] bytes, one for each read of a batch.
    spares: ArrayVec<Block, { limits::BATCH }>,
    pub(super) boxes: BoxPool,
}

impl Memory {
    /// `pool_bytes`: how many bytes of free blocks are kept.
    pub(super) fn new(pool_bytes: usize) -> Memory {
        let mut pool = Pool::new(pool_bytes);
        let spares = (0..limits::BATCH)
            .map(|_| pool.take(limits::BLOCK))
            .collect();
        Memory {
            pool,
            spares,
            boxes: BoxPool::default(),
        }
    }

    /// An empty block for a read.
    pub(super) fn take_spare(&mut self) -> Block {
        self.spares
            .pop()
            .unwrap_or_else(|| self.pool.take(limits::BLOCK))
    }

    pub(super) fn put_spare(&mut self, spare: Block) {
        if let Err(full) = self.spares.try_push(spare) {
            self.pool.put(full.element());
        }
    }
}

/// Boxes of generations that are over, at most [`limits::SPARE_BOXES`] of each kind.
#[derive(Debug, Default)]
pub(super) struct BoxPool {
    channels: FreeList<Channel>,
    exit_states: FreeList<ExitState>,
}

impl BoxPool {
    pub(super) fn channel(&mut self, channel: Channel) -> Box<Channel> {
        match self.channels.0.pop() {
            Some(mut free) => {
                *free = channel;
                free
            }
            None => Box::new(channel),
        }
    }

    pub(super) fn exit_state(&mut self) -> Box<ExitState> {
        self.exit_states.0.pop().unwrap_or_default()
    }

    /// Takes a box whose blocks are freed. The host's line function is dropped here: it ends with
    /// its generation.
    pub(super) fn put_channel(&mut self, mut channel: Box<Channel>) {
        channel.filter = None;
        self.channels.put(channel);
    }

    pub(super) fn put_exit_state(&mut self, mut state: Box<ExitState>) {
        *state = ExitState::default();
        self.exit_states.put(state);
    }
}

#[derive(Debug)]
struct FreeList<T>(Vec<Box<T>>);

impl<T> Default for FreeList<T> {
    fn default() -> Self {
        FreeList(Vec::with_capacity(limits::SPARE_BOXES))
    }
}

impl<T> FreeList<T> {
    fn put(&mut self, free: Box<T>) {
        if self.0.len() < limits::SPARE_BOXES {
            self.0.push(free);
        }
    }
}
