//! What waits for the host: life-cycle events, whose places are reserved at the spawn, and streams
//! with undelivered bytes.

use super::slot::{Channel, Entry};
use super::{Event, LastWords, Reactor};
use crate::kernel::Kernel;
use crate::lifecycle::Notification;
use crate::types::{Exit, Ns, Stream, Token, TokenKind, TurnError};
use std::time::Duration;

/// One place in the queue.
#[derive(Clone, Copy, Debug)]
pub(super) enum Item {
    /// Something to tell of a generation.
    Tell(Token, Notification),
    /// A stream with undelivered bytes: stands here once, until all are taken.
    Output(Token),
}

impl Item {
    pub(super) const fn token(self) -> Token {
        match self {
            Item::Tell(token, _) | Item::Output(token) => token,
        }
    }
}

impl<K: Kernel> Reactor<K> {
    /// The next event, if one is waiting. It lends: what it shows is where it was read to.
    ///
    /// After `Closed` the generation is gone with the next call of this, of [`Reactor::turn`] or of
    /// anything that starts one.
    pub fn next_event(&mut self) -> Option<Event<'_>> {
        if self.is_copy() {
            return None;
        }
        self.reclaim();
        self.settle_front();
        match *self.queue.front()? {
            Item::Output(token) => {
                let key = self.find(token)?;
                self.lend_output(key, token)
            }
            Item::Tell(token, notification) => {
                self.pop_item();
                let key = self.find(token)?;
                if let Notification::Drained { .. } = notification {
                    self.release_late_bytes(key);
                }
                Some(self.lend(key, notification))
            }
        }
    }

    /// Turns until there is an event; `None` when `timeout` has passed, or when there is nothing
    /// left that one could come from.
    ///
    /// # Errors
    ///
    /// As [`Reactor::turn`].
    pub fn wait_event(
        &mut self,
        timeout: Option<Duration>,
    ) -> Result<Option<Event<'_>>, TurnError> {
        if self.is_copy() {
            return Err(TurnError::new(
                "wait for an event in a forked copy of the host",
                None,
            ));
        }
        self.reclaim();
        self.settle_front();
        let until = timeout.map(|t| self.kernel.now().after(Ns::from(t)));
        while !self.has_events() && self.is_busy() {
            let left = until.map(|at| at.since(self.kernel.now()).to_duration());
            let turn = self.turn(left)?;
            if !turn.events && left.is_some_and(|left| left.is_zero()) {
                break;
            }
        }
        Ok(self.next_event())
    }

    /// Takes the first item. One that leaves none behind lets the next ones begin at the beginning
    /// again: so no more of the queue's memory is used than the most items that ever waited.
    fn pop_item(&mut self) {
        self.queue.pop_front();
        if self.queue.is_empty() {
            self.queue.clear();
        }
    }

    /// An event is waiting.
    pub fn has_events(&self) -> bool {
        self.queue.iter().any(|item| match *item {
            Item::Tell(token, notification) => self.find(token).is_some_and(|key| {
                notification != Notification::Closed || !self.table[key].undelivered()
            }),
            Item::Output(token) => self
                .find(token)
                .is_some_and(|key| self.may_lend(key, token)),
        })
    }

    fn may_lend(&self, key: usize, token: Token) -> bool {
        let TokenKind::Output(stream) = token.kind() else {
            return false;
        };
        let entry = &self.table[key];
        let is_early = |c: &Channel| {
            // Late bytes come after the verdict, which waits for the list of holders.
            let next = c.captured.total() - c.captured.undelivered();
            entry.is_verdict_taken() || c.late_from.is_none_or(|from| next < from)
        };
        entry
            .channel(stream)
            .is_some_and(|c| !c.held.by_host() && c.captured.undelivered() > 0 && is_early(c))
    }

    /// Takes what has nothing to say any more from the front of the queue: streams that were taken
    /// to the end or are held back, and whatever is of a generation that is no more. A `Closed`
    /// whose bytes were not all taken steps aside.
    pub(super) fn settle_front(&mut self) {
        while let Some(item) = self.queue.front().copied() {
            let Some(key) = self.find(item.token()) else {
                self.pop_item();
                continue;
            };
            match item {
                Item::Output(token) => {
                    let TokenKind::Output(stream) = token.kind() else {
                        return;
                    };
                    self.delivered(key, stream);
                    if self.may_lend(key, token) {
                        return;
                    }
                    self.pop_item();
                    if let Some(channel) = self.table[key].channel_mut(stream) {
                        channel.offered = false;
                        channel.captured.trim(&mut self.pool);
                    }
                    self.release_last_event(key);
                }
                Item::Tell(_, Notification::Closed) if self.table[key].undelivered() => {
                    self.pop_item();
                    self.table[key].last_event_waits = true;
                }
                Item::Tell(..) => return,
            }
        }
    }

    /// The verdict is taken: late bytes that have waited for it are offered.
    fn release_late_bytes(&mut self, key: usize) {
        let entry = &mut self.table[key];
        entry.told_mut(&mut self.boxes).is_verdict_taken = true;
        for stream in Stream::ALL {
            let token = entry.token(TokenKind::Output(stream));
            if let Some(channel) = entry.channel_mut(stream)
                && !channel.offered
                && channel.captured.undelivered() > 0
            {
                channel.offered = true;
                self.queue.push_back(Item::Output(token));
            }
        }
    }

    /// `Closed` had stepped aside for bytes that are taken now.
    fn release_last_event(&mut self, key: usize) {
        let entry = &mut self.table[key];
        if entry.last_event_waits && !entry.undelivered() {
            entry.last_event_waits = false;
            let token = entry.generation.token();
            self.queue
                .push_back(Item::Tell(token, Notification::Closed));
        }
    }

    fn lend_output(&mut self, key: usize, token: Token) -> Option<Event<'_>> {
        let TokenKind::Output(stream) = token.kind() else {
            return None;
        };
        let origin = self.kernel.origin();
        let entry = self.table.get_mut(key)?;
        let generation = entry.generation;
        if entry.channel(stream)?.captured.is_over_bound() {
            // Bytes that were kept for the host alone go when it has them.
            entry.settle_words(stream);
        }
        let channel = entry.channel_mut(stream)?;
        let late_from = channel.late_from;
        // A piece ends where the late bytes begin.
        let piece = channel.captured.next_piece(late_from.unwrap_or(u64::MAX))?;
        Some(Event::Output {
            generation,
            stream,
            bytes: piece.bytes,
            offset: piece.offset,
            lost: piece.lost,
            at: origin.checked_add(piece.at.to_duration()).unwrap_or(origin),
            late: late_from.is_some_and(|from| piece.offset >= from),
        })
    }

    fn lend(&mut self, key: usize, notification: Notification) -> Event<'_> {
        if notification == Notification::Closed {
            self.kernel.close_deferred();
            let report = Box::new(self.report(key));
            let generation = self.table[key].generation;
            self.popped = Some(generation.token());
            return Event::Closed { generation, report };
        }
        let entry = &self.table[key];
        event_of(entry, notification)
    }

    /// The host holds this stream back: no [`Event::Output`] of it, and once `high_water_mark` bytes are
    /// undelivered it is not read, so that the child is held back too. The idle clock of the
    /// drain stands meanwhile. False if there is no such stream any more.
    pub fn pause_output(&mut self, generation: super::Generation, stream: Stream) -> bool {
        self.hold(generation, stream, true)
    }

    /// Ends [`Reactor::pause_output`].
    pub fn resume_output(&mut self, generation: super::Generation, stream: Stream) -> bool {
        self.hold(generation, stream, false)
    }

    fn hold(&mut self, generation: super::Generation, stream: Stream, hold: bool) -> bool {
        let Some(key) = self.own(generation) else {
            return false;
        };
        let token = generation.token().with(TokenKind::Output(stream));
        let Some(channel) = self.table[key].heard(stream, &mut self.boxes) else {
            return false;
        };
        channel.held = channel.held.with_host(hold);
        if !hold && !channel.offered && channel.captured.undelivered() > 0 {
            channel.offered = true;
            // What was held back comes before what has happened since.
            self.queue.push_front(Item::Output(token));
        }
        true
    }
}

fn event_of(entry: &Entry, notification: Notification) -> Event<'_> {
    let generation = entry.generation;
    let exit = entry.lifecycle.exit().unwrap_or(Exit::unknown());
    match notification {
        Notification::Started => Event::Started {
            generation,
            pid: entry.pid,
        },
        Notification::SpawnFailed => Event::SpawnFailed {
            generation,
            error: entry.spawn_error(),
        },
        Notification::Exited => Event::Exited { generation, exit },
        Notification::Drained { .. } => Event::Drained {
            generation,
            exit,
            drain: entry.drain_told(),
            last_words: LastWords::of(entry),
        },
        Notification::BackgroundWait => Event::BackgroundWait {
            generation,
            survivors: entry.survivors_told(),
        },
        Notification::Settled | Notification::Closed => Event::Settled {
            generation,
            settled: entry.settled_told(),
        },
    }
}
