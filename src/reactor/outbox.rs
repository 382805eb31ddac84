//! What waits for the host: life-cycle events, whose places are reserved at the spawn, and streams
//! with undelivered bytes.

use super::channel::{Channel, Delivery};
use super::entry::{ClosedEvent, Entry};
use super::line_filter::DeferredPanic;
use super::turn::{Alarm, turn_error};
use super::{Event, Generation, LastWords, Reactor};
use crate::kernel::{Kernel, WaitError};
use crate::lifecycle::Notification;
use crate::types::{Exit, Ns, Stream, Token, TokenKind, TurnError, limits};
use std::collections::VecDeque;
use std::time::Duration;

/// Places in the queue for one generation: its life-cycle events, and an item for each stream.
const PLACES: usize = limits::EVENTS + Stream::ALL.len();

/// The queue of events, and what the host has done with it.
#[derive(Default)]
pub(super) struct Outbox {
    pub(super) queue: VecDeque<Item>,
    /// The generation whose `Closed` the host is looking at: the next call removes it.
    pub(super) closing: Option<Token>,
    /// Life-cycle events queued since the loop was built.
    pub(super) lifecycle_events: u64,
    /// A panic of the host's own code, which goes on when the round is over.
    pub(super) panic: Option<DeferredPanic>,
}

/// One place in the queue.
#[derive(Clone, Copy, Debug)]
pub(super) enum Item {
    /// A life-cycle event.
    Lifecycle(Token, Notification),
    /// A stream with undelivered bytes: stands here once, until all are taken.
    Output(Token),
}

impl Item {
    const fn token(self) -> Token {
        match self {
            Item::Lifecycle(token, _) | Item::Output(token) => token,
        }
    }
}

impl Outbox {
    /// Room for the events of `generations` generations, so that no turn has to allocate it.
    pub(super) fn reserve(&mut self, generations: usize) {
        let wanted = generations * PLACES;
        self.queue.reserve(wanted.saturating_sub(self.queue.len()));
    }

    /// Takes out everything of one generation.
    pub(super) fn forget(&mut self, generation: Token) {
        self.queue
            .retain(|item| item.token().with(TokenKind::Spawn) != generation);
    }

    /// Takes the first item. When none is left the queue begins at its beginning again, so that no
    /// more of its memory is used than the most items that ever waited.
    fn pop(&mut self) {
        self.queue.pop_front();
        if self.queue.is_empty() {
            self.queue.clear();
        }
    }
}

impl<K: Kernel> Reactor<K> {
    /// Takes the next event, if one is waiting. It borrows from the loop: bytes, reports of the
    /// drain and survivors are shown where they are kept.
    ///
    /// Nothing is read and nothing waits in this call: events come from [`Reactor::turn`] and from
    /// the calls that act on a generation ([`Reactor::start`], [`Reactor::stop`], ...). After
    /// [`Event::Closed`] the generation is gone with the next call of this, of `turn`, or of
    /// `start`. In a forked copy of the host it is always `None`.
    pub fn next_event(&mut self) -> Option<Event<'_>> {
        if self.is_copy() {
            return None;
        }
        self.remove_closed();
        self.skip_stale_items();
        match *self.outbox.queue.front()? {
            Item::Output(token) => {
                let key = self.table.lookup(token)?;
                self.lend_output(key, token)
            }
            Item::Lifecycle(token, notification) => {
                self.outbox.pop();
                let key = self.table.lookup(token)?;
                Some(self.lend_event(key, notification))
            }
        }
    }

    /// Turns until there is an event, and takes it.
    ///
    /// `None` has two meanings: `timeout` has passed; or nothing is left that an event could come
    /// from, which [`Reactor::is_busy`] tells apart (it is then false). With a `timeout` of `None`
    /// only the second is possible, so `while let Some(event) = reactor.wait_event(None)?` runs
    /// until everything is closed. A generation whose output the host has paused can keep it
    /// waiting: then give a timeout, or resume the output first.
    ///
    /// A signal that the host handles does not end the call: it goes on waiting. A host that wants
    /// to react to one turns with [`Reactor::turn`], which returns.
    ///
    /// # Errors
    ///
    /// As [`Reactor::turn`].
    pub fn wait_event(
        &mut self,
        timeout: Option<Duration>,
    ) -> Result<Option<Event<'_>>, TurnError> {
        if self.is_copy() {
            return Err(turn_error(WaitError::Forked));
        }
        self.remove_closed();
        self.skip_stale_items();
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

    /// Whether [`Reactor::next_event`] would give one now.
    pub fn has_events(&self) -> bool {
        self.outbox.queue.iter().any(|item| match *item {
            Item::Lifecycle(token, notification) => self.table.lookup(token).is_some_and(|key| {
                notification != Notification::Closed || !self.table[key].withholds_closed()
            }),
            Item::Output(token) => self
                .table
                .lookup(token)
                .is_some_and(|key| self.is_deliverable(key, token)),
        })
    }

    /// The stream has bytes that may be delivered now: the host has not paused it, and late bytes
    /// come after the verdict, which may wait for the list of holders.
    fn is_deliverable(&self, key: usize, token: Token) -> bool {
        let TokenKind::Output(stream) = token.kind() else {
            return false;
        };
        let entry = &self.table[key];
        let is_due = |c: &Channel| {
            let next = c.captured.total() - c.captured.undelivered();
            entry.is_verdict_taken() || c.late_from.is_none_or(|from| next < from)
        };
        entry.channel(stream).is_some_and(|c| {
            c.delivery == Delivery::Flowing && c.captured.undelivered() > 0 && is_due(c)
        })
    }

    /// Takes items off the front of the queue that say nothing any more: streams that were taken to
    /// the end or are paused, and generations that are gone. A `Closed` whose bytes were not all
    /// taken is postponed.
    pub(super) fn skip_stale_items(&mut self) {
        while let Some(item) = self.outbox.queue.front().copied() {
            let Some(key) = self.table.lookup(item.token()) else {
                self.outbox.pop();
                continue;
            };
            match item {
                Item::Output(token) => {
                    let TokenKind::Output(stream) = token.kind() else {
                        return;
                    };
                    self.output_taken(key, stream);
                    if self.is_deliverable(key, token) {
                        return;
                    }
                    self.outbox.pop();
                    if let Some(channel) = self.table[key].channel_mut(stream) {
                        channel.is_offered = false;
                        channel.captured.trim(&mut self.memory.pool);
                    }
                    self.requeue_closed(key);
                }
                Item::Lifecycle(_, Notification::Closed) if self.table[key].withholds_closed() => {
                    self.outbox.pop();
                    self.table[key].closed_event = ClosedEvent::Postponed(None);
                    self.arm_paused_output_limit(key);
                }
                Item::Lifecycle(..) => return,
            }
        }
    }

    /// A postponed `Closed` is queued again once nothing withholds it.
    pub(super) fn requeue_closed(&mut self, key: usize) {
        let entry = &mut self.table[key];
        let ClosedEvent::Postponed(timer) = entry.closed_event else {
            return;
        };
        if entry.withholds_closed() {
            return;
        }
        entry.closed_event = ClosedEvent::InOrder;
        if let Some(timer) = timer {
            self.clock.timers.cancel(timer);
        }
        let closed = Item::Lifecycle(entry.generation.token(), Notification::Closed);
        self.outbox.queue.push_back(closed);
    }

    /// Bounds how long paused output withholds a postponed `Closed`.
    fn arm_paused_output_limit(&mut self, key: usize) {
        let entry = &mut self.table[key];
        let is_paused = |channel: &Channel| channel.delivery == Delivery::PausedByHost;
        if entry.closed_event != ClosedEvent::Postponed(None) || !entry.channels().any(is_paused) {
            return;
        }
        if let Some(at) = entry.paused_output_limit() {
            let alarm = (entry.generation.token(), Alarm::PausedOutput);
            entry.closed_event = ClosedEvent::Postponed(Some(self.clock.timers.arm(at, alarm)));
        }
    }

    /// The drain's limit has passed with output paused.
    pub(super) fn paused_output_due(&mut self, token: Token) {
        if let Some(key) = self.table.lookup(token) {
            if let ClosedEvent::Postponed(timer) = &mut self.table[key].closed_event {
                *timer = None;
            }
            self.give_up_paused_output(key);
        }
    }

    /// Paused output withholds `Closed` no longer.
    pub(super) fn give_up_paused_output(&mut self, key: usize) {
        self.table[key].abandon_paused();
        self.requeue_closed(key);
    }

    /// The verdict is taken: late bytes that have waited for it are offered.
    fn offer_late_output(&mut self, key: usize) {
        let entry = &mut self.table[key];
        entry
            .exit_state_mut(&mut self.memory.boxes)
            .is_verdict_taken = true;
        for stream in Stream::ALL {
            let token = entry.token(TokenKind::Output(stream));
            if let Some(channel) = entry.channel_mut(stream)
                && !channel.is_offered
                && channel.captured.undelivered() > 0
            {
                channel.is_offered = true;
                self.outbox.queue.push_back(Item::Output(token));
            }
        }
    }

    fn lend_output(&mut self, key: usize, token: Token) -> Option<Event<'_>> {
        let TokenKind::Output(stream) = token.kind() else {
            return None;
        };
        let origin = self.kernel.origin();
        let entry = &mut self.table[key];
        let generation = entry.generation;
        if entry.channel(stream)?.captured.is_over_bound() {
            // Bytes that are kept only until the host has taken them may be last words.
            entry.render_last_words(stream);
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

    fn lend_event(&mut self, key: usize, notification: Notification) -> Event<'_> {
        match notification {
            Notification::Drained { .. } => self.offer_late_output(key),
            Notification::Closed => {
                self.kernel.close_deferred();
                let report = Box::new(self.report(key));
                let generation = self.table[key].generation;
                self.outbox.closing = Some(generation.token());
                return Event::Closed { generation, report };
            }
            Notification::Started
            | Notification::SpawnFailed
            | Notification::Exited
            | Notification::BackgroundWait
            | Notification::Settled => {}
        }
        event_of(&self.table[key], notification)
    }

    /// Holds back the bytes of one captured stream: from now on there is no [`Event::Output`] of
    /// it. It is still read until [`Capture::high_water_mark`](crate::Capture::high_water_mark)
    /// bytes are undelivered; then it is not read any more, the child blocks in its next write, and
    /// the idle clock of the drain stands.
    ///
    /// [`Event::Closed`] of the generation is withheld while there are undelivered bytes, the other
    /// life-cycle events come as usual. It is withheld until [`Reactor::resume_output`] and the
    /// bytes are taken, but no longer than the drain's limit after the exit
    /// ([`DrainPolicy::limit`](crate::DrainPolicy::limit), 5 s by default), and not at all once the
    /// run is stopped or killed or the stream is closed. What was not delivered by then can be
    /// taken ([`Reactor::take`]). Returns `false` if the stream is not captured, or the generation
    /// is gone.
    pub fn pause_output(&mut self, generation: Generation, stream: Stream) -> bool {
        self.set_delivery(generation, stream, Delivery::PausedByHost)
    }

    /// Ends [`Reactor::pause_output`]: what was held back is delivered before anything that has
    /// happened since. Events may be waiting after this call, and the stream is read again from the
    /// next turn on: take events and ask for [`Reactor::next_deadline`] again before sleeping in a
    /// loop of your own. Returns `false` as `pause_output` does.
    pub fn resume_output(&mut self, generation: Generation, stream: Stream) -> bool {
        self.set_delivery(generation, stream, Delivery::Flowing)
    }

    fn set_delivery(&mut self, generation: Generation, stream: Stream, to: Delivery) -> bool {
        let Some(key) = self.lookup_key(generation) else {
            return false;
        };
        let Some(channel) = self.table[key].activate(stream, &mut self.memory.boxes) else {
            return false;
        };
        channel.delivery = to;
        if to == Delivery::Flowing && !channel.is_offered && channel.captured.undelivered() > 0 {
            channel.is_offered = true;
            let token = generation.token().with(TokenKind::Output(stream));
            self.outbox.queue.push_front(Item::Output(token));
        }
        self.arm_paused_output_limit(key);
        self.update_deadline_fd();
        true
    }
}

fn event_of(entry: &Entry, notification: Notification) -> Event<'_> {
    let generation = entry.generation;
    let exit = entry.lifecycle.exit().unwrap_or(Exit::unknown());
    match notification {
        Notification::Started => Event::Started {
            generation,
            pid: entry.birth.pid,
        },
        Notification::SpawnFailed => Event::SpawnFailed {
            generation,
            error: entry.spawn_error(),
        },
        Notification::Exited => Event::Exited { generation, exit },
        Notification::Drained { .. } => Event::Drained {
            generation,
            exit,
            drain: entry.notified_drain(),
            last_words: LastWords::of(entry),
        },
        Notification::BackgroundWait => Event::BackgroundWait {
            generation,
            survivors: entry.notified_survivors(),
        },
        Notification::Settled | Notification::Closed => Event::Settled {
            generation,
            settled: entry.notified_settled(),
        },
    }
}
