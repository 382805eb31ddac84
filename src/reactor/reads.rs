//! Bytes: the list of streams that may have some, and the reading out of generations that have
//! exited.
//!
//! ```text
//!  a notice, more was there ---> mark_readable ---> readable (list) ---> read_ready, bounded a turn --+
//!                                                                                                     v
//!  an exit ---> begin_read_out ---> Work::ReadOut ---> read_out_once, until empty ---> kernel.read --> complete_read
//! ```
//!
//! A stream that is being read out is read by its read-out alone.

use super::Reactor;
use super::channel::{Backlog, Delivery, Listing};
use super::entry::ReadOut;
use super::inputs::Work;
use super::outbox::Item;
use crate::capture::Block;
use crate::kernel::{Batch, Kernel, ReadOp, ReadResult};
use crate::report::StreamEnd;
use crate::types::{Stream, Token, TokenKind, TurnError, limits};
use std::collections::VecDeque;

/// What is to be read and written.
pub(super) struct IoQueue {
    /// Streams that may have bytes, each at most once.
    pub(super) readable: VecDeque<Token>,
    /// Generations whose read-out waits for the next turn's budget.
    pub(super) read_outs: VecDeque<Token>,
    /// Bytes that read-outs may still read in this turn.
    pub(super) read_out_budget: u64,
    /// Fed stdins that may have something to write and room for it, each at most once.
    pub(super) writable: VecDeque<Token>,
}

impl IoQueue {
    pub(super) fn new() -> IoQueue {
        IoQueue {
            readable: VecDeque::new(),
            read_outs: VecDeque::new(),
            read_out_budget: limits::LAST_READ_BYTES,
            writable: VecDeque::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.readable.is_empty() && self.read_outs.is_empty() && self.writable.is_empty()
    }

    /// Room for `generations` generations, so that no turn has to allocate it.
    pub(super) fn reserve(&mut self, generations: usize) {
        let lists = [
            (&mut self.readable, 2 * generations),
            (&mut self.read_outs, generations),
            (&mut self.writable, generations),
        ];
        for (list, wanted) in lists {
            list.reserve(wanted.saturating_sub(list.len()));
        }
    }
}

/// The list of streams that may have bytes.
impl<K: Kernel> Reactor<K> {
    /// Puts a stream on the list, unless its backlog is full.
    pub(super) fn mark_readable(&mut self, key: usize, stream: Stream) {
        let entry = &mut self.table[key];
        let token = entry.token(TokenKind::Output(stream));
        if !entry.lifecycle.is_open(stream) {
            return;
        }
        let Some(channel) = entry.activate(stream, &mut self.memory.boxes) else {
            return;
        };
        match (channel.listing, channel.backlog) {
            (Listing::Listed, _) => {}
            (Listing::Unlisted | Listing::Withheld, Backlog::Full) => {
                channel.listing = Listing::Withheld;
            }
            (Listing::Unlisted | Listing::Withheld, Backlog::BelowMark) => {
                channel.listing = Listing::Listed;
                self.io.readable.push_back(token);
            }
        }
    }

    /// Reads the streams on the list in turn, at most `reads_per_turn` reads. The poll set is
    /// looked at after each batch, so that an exit never waits for more than one. `events`: how
    /// many life-cycle events were queued when the turn began; if there is a new one, the host does
    /// not wait for the rest of the reads.
    pub(super) fn read_ready(&mut self, events: u64) -> Result<(), TurnError> {
        let mut left = self.settings.reads_per_turn;
        while left > 0 && !self.io.readable.is_empty() {
            let mut batch = Batch::new();
            while batch.len() < self.reads_per_batch().min(left) {
                let Some(token) = self.io.readable.pop_front() else {
                    break;
                };
                if let Some(op) = self.take_listed(token) {
                    batch.push(op);
                }
            }
            left -= batch.len();
            self.read_batch(&mut batch);
            self.run_pending();
            if !self.io.readable.is_empty() {
                self.poll_nonblocking()?;
            }
            if self.outbox.lifecycle_events != events {
                break;
            }
        }
        Ok(())
    }

    /// Reads between two looks at the poll set: one where each read is a system call, more where
    /// one system call does several.
    fn reads_per_batch(&self) -> usize {
        let wanted = self.kernel.capabilities().reads_per_batch;
        wanted.clamp(1, limits::BATCH)
    }

    fn take_listed(&mut self, token: Token) -> Option<ReadOp> {
        let key = self.table.lookup(token)?;
        let TokenKind::Output(stream) = token.kind() else {
            return None;
        };
        let entry = &mut self.table[key];
        let is_open = entry.lifecycle.is_open(stream);
        let channel = entry.channel_mut(stream)?;
        if channel.listing != Listing::Listed {
            return None;
        }
        channel.listing = Listing::Unlisted;
        if !is_open || channel.is_being_read_out() {
            return None;
        }
        if channel.backlog == Backlog::Full {
            channel.listing = Listing::Withheld;
            return None;
        }
        Some(self.read_op(key, stream))
    }
}

/// Reading out streams of generations that have exited.
impl<K: Kernel> Reactor<K> {
    /// Begins to read every open stream of a generation until it is empty or has ended, full
    /// backlogs included.
    pub(super) fn begin_read_out(&mut self, key: usize) {
        let entry = &mut self.table[key];
        for stream in Stream::ALL {
            let is_open = entry.lifecycle.is_open(stream);
            if let Some(channel) = entry.activate(stream, &mut self.memory.boxes) {
                channel.read_out_left = if is_open { channel.capacity } else { 0 };
            }
        }
        self.queue_read_out(key, ReadOut::Requested);
    }

    /// Begins to read one stream out that has bytes after the exit, unless its backlog is full.
    /// Nobody waits for the answer.
    pub(super) fn begin_stream_read_out(&mut self, key: usize, stream: Stream) {
        let entry = &mut self.table[key];
        let is_open = entry.lifecycle.is_open(stream);
        let Some(channel) = entry.activate(stream, &mut self.memory.boxes) else {
            return;
        };
        if !is_open {
            return;
        }
        if channel.backlog == Backlog::Full {
            channel.listing = Listing::Withheld;
            return;
        }
        channel.read_out_left = channel.capacity;
        self.queue_read_out(key, ReadOut::Unrequested);
    }

    /// Makes the read-out pending, if none is under way; one that was requested stays so.
    fn queue_read_out(&mut self, key: usize, wanted: ReadOut) {
        let entry = &mut self.table[key];
        if entry.read_out == ReadOut::Idle {
            entry.read_out = wanted;
            let work = Work::ReadOut(entry.generation.token());
            self.pending.push_front(work);
        } else if wanted == ReadOut::Requested {
            entry.read_out = wanted;
        }
    }

    /// One read of each stream that the read-out has not finished. Without budget it waits for the
    /// next turn.
    pub(super) fn read_out_once(&mut self, token: Token) {
        let Some(key) = self.table.lookup(token) else {
            return;
        };
        if self.io.read_out_budget == 0 {
            self.io.read_outs.push_back(token);
            return;
        }
        let mut batch = Batch::new();
        for stream in Stream::ALL {
            let entry = &self.table[key];
            let is_unfinished = entry
                .channel(stream)
                .is_some_and(|channel| channel.is_being_read_out());
            if is_unfinished && entry.lifecycle.is_open(stream) {
                batch.push(self.read_op(key, stream));
            }
        }
        if batch.is_empty() {
            self.read_out_done(key);
        } else {
            self.pending.push_front(Work::ReadOut(token));
            self.read_batch(&mut batch);
        }
    }

    /// Goes on with the read-outs that the budget of an earlier turn did not suffice for.
    pub(super) fn resume_read_outs(&mut self) {
        for _ in 0..self.io.read_outs.len() {
            if self.io.read_out_budget == 0 {
                return;
            }
            let Some(token) = self.io.read_outs.pop_front() else {
                return;
            };
            self.pending.push_front(Work::ReadOut(token));
            self.run_pending();
        }
    }
}

/// One batch of reads.
impl<K: Kernel> Reactor<K> {
    fn read_op(&mut self, key: usize, stream: Stream) -> ReadOp {
        let entry = &mut self.table[key];
        let token = entry.token(TokenKind::Output(stream));
        let room = entry
            .channel_mut(stream)
            .and_then(|channel| channel.captured.room());
        ReadOp {
            stream: token,
            room,
            spare: self.memory.take_spare(),
            result: ReadResult::Stale,
        }
    }

    /// Reads, and gives what came to the generations.
    fn read_batch(&mut self, batch: &mut Batch) {
        if batch.is_empty() {
            return;
        }
        self.stats.reads += batch.len() as u64;
        self.kernel.read(batch);
        self.clock.now = self.kernel.now();
        for op in batch.drain(..) {
            self.complete_read(op);
        }
    }

    fn complete_read(&mut self, op: ReadOp) {
        let (token, result) = (op.stream, op.result);
        let TokenKind::Output(stream) = token.kind() else {
            return;
        };
        let Some(key) = self.table.lookup(token) else {
            return;
        };
        self.store(key, stream, op);
        match result {
            ReadResult::Data { n, more_available } => {
                self.stats.bytes += n as u64;
                self.count_read(key, stream, n as u64, more_available);
                self.bytes_read(key, stream, n as u64);
                self.offer(key, stream);
            }
            ReadResult::Empty | ReadResult::Stale => {
                if let Some(channel) = self.table[key].channel_mut(stream) {
                    channel.read_out_left = 0;
                }
            }
            ReadResult::End => self.stream_ended(key, stream, StreamEnd::Eof),
            ReadResult::Failed(errno) => {
                if let Some(channel) = self.table[key].channel_mut(stream) {
                    channel.error = Some(errno);
                }
                self.stream_ended(key, stream, StreamEnd::Error);
            }
        }
    }

    /// Stores the bytes, and puts the spare block back in its place.
    fn store(&mut self, key: usize, stream: Stream, op: ReadOp) {
        let ReadOp {
            room,
            spare,
            result,
            ..
        } = op;
        let ReadResult::Data { n, .. } = result else {
            if let Some(channel) = self.table[key].channel_mut(stream) {
                channel.captured.give_back(room);
            }
            self.memory.put_spare(spare);
            return;
        };
        let room = if self.table[key].has_unrendered_words(stream) {
            self.render_words_first(key, stream, room)
        } else {
            room
        };
        let Some(channel) = self.table[key].channel_mut(stream) else {
            return;
        };
        if let Some(filter) = &mut channel.filter {
            // Before anything of it is kept: the bound of the capture may be small.
            let (in_room, in_spare) = new_bytes(&room, &spare, n);
            filter.push(in_room, &mut self.outbox.panic);
            filter.push(in_spare, &mut self.outbox.panic);
        }
        let spare = channel
            .captured
            .store(&mut self.memory.pool, room, spare, n, self.clock.now);
        self.memory.put_spare(spare);
    }

    /// Late bytes were read into the room of a block with last words in it. These become text
    /// first, since storing may drop their bytes.
    fn render_words_first(
        &mut self,
        key: usize,
        stream: Stream,
        room: Option<(Block, u32)>,
    ) -> Option<(Block, u32)> {
        let entry = &mut self.table[key];
        if let Some(channel) = entry.channel_mut(stream) {
            channel.captured.give_back(room);
        }
        entry.render_last_words(stream);
        entry
            .channel_mut(stream)
            .and_then(|channel| channel.captured.room())
    }

    /// Counts a read against the read-out of its stream, or lists the stream again.
    fn count_read(&mut self, key: usize, stream: Stream, n: u64, more_available: bool) {
        let Some(channel) = self.table[key].channel_mut(stream) else {
            return;
        };
        let is_listed_again = if channel.is_being_read_out() {
            self.io.read_out_budget = self.io.read_out_budget.saturating_sub(n);
            channel.read_out_left = channel.read_out_left.saturating_sub(n);
            // The bound was reached with bytes left: no notice is owed.
            !channel.is_being_read_out()
        } else {
            more_available
        };
        if is_listed_again {
            self.mark_readable(key, stream);
        }
    }

    /// Offers new bytes to the host, and stops reading when too many were not taken.
    fn offer(&mut self, key: usize, stream: Stream) {
        let entry = &mut self.table[key];
        let token = entry.token(TokenKind::Output(stream));
        let Some(channel) = entry.channel_mut(stream) else {
            return;
        };
        if channel.captured.undelivered() == 0 {
            return;
        }
        if !channel.is_offered && channel.delivery == Delivery::Flowing {
            channel.is_offered = true;
            self.outbox.queue.push_back(Item::Output(token));
        }
        if channel.captured.is_full_ahead() && channel.backlog == Backlog::BelowMark {
            channel.backlog = Backlog::Full;
            self.backlog_filled(key, stream);
        }
    }

    /// The host has taken bytes: a stream whose backlog was full is read again if it is not any
    /// more.
    pub(super) fn output_taken(&mut self, key: usize, stream: Stream) {
        let Some(channel) = self.table[key].channel_mut(stream) else {
            return;
        };
        if channel.backlog == Backlog::BelowMark || channel.captured.is_full_ahead() {
            return;
        }
        channel.backlog = Backlog::BelowMark;
        let is_withheld = channel.listing == Listing::Withheld;
        self.backlog_drained(key, stream);
        if is_withheld {
            self.mark_readable(key, stream);
        }
    }
}

/// The `n` bytes that a read has brought: those in the room, then those in the spare.
fn new_bytes<'a>(
    room: &'a Option<(Block, u32)>,
    spare: &'a Block,
    n: usize,
) -> (&'a [u8], &'a [u8]) {
    let free = room.as_ref().map_or(&[][..], |(block, full)| {
        block.bytes().get(*full as usize..).unwrap_or_default()
    });
    let in_room = free.get(..n).unwrap_or(free);
    let in_spare = spare.bytes().get(..n - in_room.len()).unwrap_or_default();
    (in_room, in_spare)
}
