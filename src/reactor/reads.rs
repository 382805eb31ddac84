//! Bytes: the list of streams that may have some, and the reading out of those that have exited.

use super::Reactor;
use super::outbox::Item;
use super::slot::{Place, Sweep};
use crate::capture::Block;
use crate::kernel::{Batch, Kernel, ReadOp, ReadResult};
use crate::lifecycle::Input;
use crate::report::StreamEnd;
use crate::types::{Stream, Token, TokenKind, TurnError, limits};

impl<K: Kernel> Reactor<K> {
    /// Puts a stream on the list of those that may have bytes.
    pub(super) fn heat(&mut self, key: usize, stream: Stream) {
        let entry = &mut self.table[key];
        let token = entry.token(TokenKind::Output(stream));
        if !entry.lifecycle.is_open(stream) {
            return;
        }
        let Some(channel) = entry.heard(stream, &mut self.boxes) else {
            return;
        };
        match channel.place {
            Place::Listed => {}
            Place::Off | Place::Waiting if channel.held.is_full() => channel.place = Place::Waiting,
            Place::Off | Place::Waiting => {
                channel.place = Place::Listed;
                self.ready.push_back(token);
            }
        }
    }

    /// Reads the streams on the list, taking turns, with a look at the poll set after each batch:
    /// an exit never waits for more. When there is something to tell that was not there before
    /// (`tellings`), the host does not wait for the rest of the reads either.
    pub(super) fn read_running(&mut self, tellings: u64) -> Result<(), TurnError> {
        let mut left = self.settings.reads_per_turn;
        while left > 0 && !self.ready.is_empty() {
            let mut batch = Batch::new();
            while batch.len() < self.batch().min(left) {
                let Some(token) = self.ready.pop_front() else {
                    break;
                };
                if let Some(op) = self.take_listed(token) {
                    batch.push(op);
                }
            }
            left -= batch.len();
            self.perform(&mut batch, false);
            if !self.ready.is_empty() {
                self.glance()?;
            }
            if self.tellings != tellings {
                break;
            }
        }
        Ok(())
    }

    fn take_listed(&mut self, token: Token) -> Option<ReadOp> {
        let key = self.find(token)?;
        let TokenKind::Output(stream) = token.kind() else {
            return None;
        };
        let entry = &mut self.table[key];
        let open = entry.lifecycle.is_open(stream);
        let channel = entry.channel_mut(stream)?;
        if channel.place != Place::Listed {
            return None;
        }
        channel.place = Place::Off;
        if !open {
            return None;
        }
        if channel.held.is_full() {
            channel.place = Place::Waiting;
            return None;
        }
        Some(self.op(key, stream, token))
    }

    fn op(&mut self, key: usize, stream: Stream, token: Token) -> ReadOp {
        let room = self.table[key]
            .channel_mut(stream)
            .and_then(|c| c.captured.room());
        let spare = self
            .spares
            .pop()
            .unwrap_or_else(|| self.pool.take(limits::BLOCK));
        ReadOp {
            stream: token,
            room,
            spare,
            result: ReadResult::Stale,
        }
    }

    /// Reads, then gives what came to the generations. In a sweep nothing goes back on the list:
    /// the sweep reads on.
    fn perform(&mut self, batch: &mut Batch, sweeping: bool) {
        if batch.is_empty() {
            return;
        }
        self.stats.reads += batch.len() as u64;
        self.kernel.read(batch);
        self.now = self.kernel.now();
        for op in batch.drain(..) {
            self.took(op, sweeping);
        }
    }

    fn took(&mut self, op: ReadOp, sweeping: bool) {
        let (token, result) = (op.stream, op.result);
        let TokenKind::Output(stream) = token.kind() else {
            return;
        };
        let Some(key) = self.find(token) else { return };
        self.store(key, stream, op);
        let input = match result {
            ReadResult::Data { n, more_available } => {
                self.stats.bytes += n as u64;
                self.count_sweep(key, stream, n as u64, more_available, sweeping);
                Input::Bytes(stream, n as u64)
            }
            ReadResult::Empty | ReadResult::Stale => {
                self.count_sweep(key, stream, u64::MAX, false, sweeping);
                return;
            }
            ReadResult::End => Input::Ended(stream, StreamEnd::Eof),
            ReadResult::Failed(errno) => {
                if let Some(channel) = self.table[key].channel_mut(stream) {
                    channel.error = Some(errno);
                }
                Input::Ended(stream, StreamEnd::Error)
            }
        };
        if sweeping {
            self.apply(key, input);
        } else {
            self.feed_input(key, input);
        }
        self.offer(key, stream);
    }

    /// Puts the bytes where they belong and the spare block back in its place.
    fn store(&mut self, key: usize, stream: Stream, op: ReadOp) {
        let now = self.now;
        let ReadOp {
            room,
            spare,
            result,
            ..
        } = op;
        let room = match result {
            ReadResult::Data { .. } if self.table[key].owes_words(stream) => {
                self.settle_before(key, stream, room)
            }
            ReadResult::Data { .. }
            | ReadResult::Empty
            | ReadResult::End
            | ReadResult::Failed(_)
            | ReadResult::Stale => room,
        };
        let Some(channel) = self.table[key].channel_mut(stream) else {
            return;
        };
        if let (Some(watch), ReadResult::Data { n, .. }) = (&mut channel.watch, result) {
            // Before anything of it is kept: little may be.
            let (begun, left) = room.as_ref().map_or((&[][..], n), |(block, full)| {
                let bytes = block.bytes().get(*full as usize..).unwrap_or_default();
                bytes
                    .split_at_checked(n)
                    .map_or((bytes, n - bytes.len().min(n)), |(new, _)| (new, 0))
            });
            watch.push(begun, &mut self.panic);
            watch.push(
                spare.bytes().get(..left).unwrap_or_default(),
                &mut self.panic,
            );
        }
        let spare = match result {
            ReadResult::Data { n, .. } => {
                channel.captured.store(&mut self.pool, room, spare, n, now)
            }
            ReadResult::Empty | ReadResult::End | ReadResult::Failed(_) | ReadResult::Stale => {
                channel.captured.give_back(room);
                spare
            }
        };
        if let Err(full) = self.spares.try_push(spare) {
            self.pool.put(full.element());
        }
    }

    /// Late bytes have come, into the room of a block with last words in it: these become text
    /// first.
    fn settle_before(
        &mut self,
        key: usize,
        stream: Stream,
        room: Option<(Block, u32)>,
    ) -> Option<(Block, u32)> {
        let entry = &mut self.table[key];
        if let Some(channel) = entry.channel_mut(stream) {
            channel.captured.give_back(room);
        }
        entry.settle_words(stream);
        entry
            .channel_mut(stream)
            .and_then(|channel| channel.captured.room())
    }

    /// What a read means for the list and for the sweep: more may be there, or the sweep of this
    /// stream is over.
    fn count_sweep(
        &mut self,
        key: usize,
        stream: Stream,
        n: u64,
        more_available: bool,
        sweeping: bool,
    ) {
        if !sweeping {
            if more_available {
                self.heat(key, stream);
            }
            return;
        }
        self.sweep_budget = self
            .sweep_budget
            .saturating_sub(if n == u64::MAX { 0 } else { n });
        let Some(channel) = self.table[key].channel_mut(stream) else {
            return;
        };
        channel.sweep_left = channel.sweep_left.saturating_sub(n);
        // The bound was reached with bytes left: no notice is owed, so the list must have it.
        if channel.sweep_left == 0 && n != u64::MAX {
            self.heat(key, stream);
        }
    }

    /// Offers new bytes to the host, and holds the child back when too many were not taken.
    fn offer(&mut self, key: usize, stream: Stream) {
        let entry = &mut self.table[key];
        let token = entry.token(TokenKind::Output(stream));
        let Some(channel) = entry.channel_mut(stream) else {
            return;
        };
        if channel.captured.undelivered() == 0 {
            return;
        }
        if !channel.offered && !channel.held.by_host() {
            channel.offered = true;
            self.queue.push_back(Item::Output(token));
        }
        if channel.captured.is_full_ahead() && !channel.held.is_full() {
            channel.held = channel.held.with_full(true);
            self.apply(key, Input::Paused(stream));
        }
    }

    /// The host has taken bytes: if there is room again, the stream is read again.
    pub(super) fn delivered(&mut self, key: usize, stream: Stream) {
        let Some(channel) = self.table[key].channel_mut(stream) else {
            return;
        };
        if !channel.held.is_full() || channel.captured.is_full_ahead() {
            return;
        }
        channel.held = channel.held.with_full(false);
        let waiting = channel.place == Place::Waiting;
        self.feed_input(key, Input::Resumed(stream));
        if waiting {
            self.heat(key, stream);
        }
    }

    /// Begins to read every open stream of a generation until it is empty or has ended; a pause
    /// does not count.
    pub(super) fn sweep_all(&mut self, key: usize) {
        let entry = &mut self.table[key];
        entry.sweep = Sweep::Owed;
        for stream in Stream::ALL {
            let open = entry.lifecycle.is_open(stream);
            if let Some(channel) = entry.heard(stream, &mut self.boxes) {
                channel.sweep_left = if open { channel.capacity } else { 0 };
            }
        }
    }

    /// The same for one stream that has just said that it has bytes; nobody waits for the answer.
    pub(super) fn sweep_stream(&mut self, key: usize, stream: Stream) {
        let entry = &mut self.table[key];
        let open = entry.lifecycle.is_open(stream);
        let Some(channel) = entry.heard(stream, &mut self.boxes) else {
            return;
        };
        if !open {
            return;
        }
        if channel.held.is_full() {
            channel.place = Place::Waiting;
            return;
        }
        channel.sweep_left = channel.capacity;
        if entry.sweep == Sweep::None {
            entry.sweep = Sweep::Loose;
        }
        self.follow(key);
    }

    /// One read of each stream that a sweep has not finished; when all are, the machine is told.
    pub(super) fn sweep_step(&mut self, key: usize) {
        let mut batch = Batch::new();
        for stream in Stream::ALL {
            let entry = &self.table[key];
            let wanted = entry.lifecycle.is_open(stream)
                && entry.channel(stream).is_some_and(|c| c.sweep_left > 0);
            if wanted {
                let token = entry.token(TokenKind::Output(stream));
                batch.push(self.op(key, stream, token));
            }
        }
        if !batch.is_empty() {
            self.perform(&mut batch, true);
            return;
        }
        let over = std::mem::replace(&mut self.table[key].sweep, Sweep::None);
        match over {
            Sweep::Owed => self.apply(key, Input::ReadDone),
            Sweep::Loose | Sweep::None => {}
        }
    }

    /// A sweep that this turn's budget did not suffice for goes on in the next one.
    pub(super) fn queue_sweep(&mut self, key: usize) {
        let Some(entry) = self.table.get_mut(key) else {
            return;
        };
        if entry.sweep != Sweep::None && !entry.sweep_queued {
            entry.sweep_queued = true;
            self.sweeps.push_back(entry.generation.token());
        }
    }

    pub(super) fn resume_sweeps(&mut self) {
        for _ in 0..self.sweeps.len() {
            if self.sweep_budget == 0 {
                return;
            }
            let Some(token) = self.sweeps.pop_front() else {
                return;
            };
            if let Some(key) = self.find(token) {
                self.table[key].sweep_queued = false;
                self.follow(key);
            }
        }
    }
}
