//! What the loop keeps of one generation, and the table of all of them.

use super::channel::{Channel, Delivery, StreamSlot};
use super::event::Generation;
use super::last_words::RenderedWords;
use super::memory::{BoxPool, Memory};
use super::stdin::FedStdin;
use crate::capture::Captured;
use crate::command::shared::SharedCommand;
use crate::lifecycle::{Lifecycle, Timer};
use crate::report::{DrainReport, Settled, StopReason, StreamReport};
use crate::types::{Ns, ResourceUsage, SpawnError, Stream, Survivor, Token, TokenKind};
use crate::wheel::TimerId;
use slab::Slab;
use std::num::NonZero;
use std::ops::{Index, IndexMut};
use std::sync::Arc;
use std::time::SystemTime;

/// All generations that are not removed yet, by the slot of their token.
pub(super) struct Table {
    entries: Slab<Entry>,
    /// Tells the keys of this loop from those of another one, and from those in a forked copy.
    tag: u32,
    last_sequence: u32,
}

impl Table {
    pub(super) fn new(tag: u32) -> Table {
        Table {
            entries: Slab::new(),
            tag,
            last_sequence: 0,
        }
    }

    pub(super) fn tag(&self) -> u32 {
        self.tag
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Where this generation stands, if it was not removed: its slot may be another one's by now.
    pub(super) fn lookup(&self, token: Token) -> Option<usize> {
        let key = token.slot().0 as usize;
        let entry = self.entries.get(key)?;
        (entry.generation.sequence == token.sequence()).then_some(key)
    }

    /// The key of the generation that is inserted next; `None` when every slot is taken.
    pub(super) fn next_generation(&mut self) -> Option<Generation> {
        let slot = u32::try_from(self.entries.vacant_key()).ok()?;
        if slot >= Token::SLOTS {
            return None;
        }
        self.last_sequence = self.last_sequence.wrapping_add(1).max(1);
        Some(Generation {
            sequence: self.last_sequence,
            slot,
            tag: self.tag,
        })
    }

    pub(super) fn reserve(&mut self, additional: usize) {
        self.entries.reserve(additional);
    }

    pub(super) fn insert(&mut self, entry: Entry) -> usize {
        self.entries.insert(entry)
    }

    pub(super) fn remove(&mut self, key: usize) -> Entry {
        self.entries.remove(key)
    }

    /// The keys of all that are not closed, in the order of their start.
    pub(super) fn open_generations(&self) -> Vec<Generation> {
        let mut all: Vec<_> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.closed().is_none())
            .map(|(_, entry)| entry.generation)
            .collect();
        all.sort_unstable();
        all
    }

    pub(super) fn entries_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.entries.iter_mut().map(|(_, entry)| entry)
    }
}

impl Index<usize> for Table {
    type Output = Entry;

    fn index(&self, key: usize) -> &Entry {
        &self.entries[key]
    }
}

impl IndexMut<usize> for Table {
    fn index_mut(&mut self, key: usize) -> &mut Entry {
        &mut self.entries[key]
    }
}

/// One generation. What only an ended one needs is in [`ExitState`].
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) generation: Generation,
    pub(super) lifecycle: Lifecycle,
    /// What it shares with the other runs of its command.
    pub(super) command: Arc<SharedCommand>,
    pub(super) birth: SpawnFacts,
    pub(super) streams: [StreamSlot; 2],
    pub(super) stdin: Option<Box<FedStdin>>,
    pub(super) read_out: ReadOut,
    /// How many members are watched.
    pub(super) watched: u8,
    /// Why the program could not be executed.
    pub(super) error: Option<SpawnError>,
    pub(super) exit_state: Option<Box<ExitState>>,
    pub(super) closed_event: ClosedEvent,
}

/// What is known from the spawn on.
#[derive(Debug)]
pub(super) struct SpawnFacts {
    /// The leader's process id, and its group's.
    pub(super) pid: u32,
    /// When it was spawned, on the loop's clock.
    pub(super) at: Ns,
    /// The same by the wall clock.
    pub(super) started_at: SystemTime,
    /// Capacities in bytes that the pipes of stdout and stderr have, where one was asked for.
    pub(super) capacities: [Option<NonZero<u32>>; 2],
}

/// Whether the open streams of a generation are being read out: read until each is empty, has
/// ended, or has given as much as its pipe can hold.
///
/// While this is not `Idle`, exactly one `Work::ReadOut` of the generation is pending, or waits
/// for the next turn's budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadOut {
    /// No read-out is under way.
    Idle,
    /// Bytes came after the exit; nobody waits for the end of the read-out.
    Unrequested,
    /// The machines have asked, and are told when it is done.
    Requested,
}

/// Where the last event of a generation stands, once it is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClosedEvent {
    /// In the outbox, if it is due.
    InOrder,
    /// Taken out of the outbox until nothing withholds it any more. The timer gives up output that
    /// the host has paused.
    Postponed(Option<TimerId>),
}

/// What there is of a generation from its leader's end (or its first timer) on. Events lend from
/// here.
#[derive(Debug, Default)]
pub(super) struct ExitState {
    /// When the exit was seen.
    pub(super) exited: Option<Ns>,
    pub(super) usage: Option<ResourceUsage>,
    /// When `Closed` was queued.
    pub(super) closed: Option<Ns>,
    /// Offset in the stream of the last words at which the late ones begin.
    pub(super) late_words_from: Option<u64>,
    pub(super) words: RenderedWords,
    timers: [Option<TimerId>; Timer::ALL.len()],
    pub(super) drain: Option<DrainReport>,
    /// The host has taken the verdict: late bytes may follow.
    pub(super) is_verdict_taken: bool,
    pub(super) survivors: Vec<Survivor>,
    pub(super) settled: Option<Settled>,
}

impl Entry {
    pub(super) fn token(&self, kind: TokenKind) -> Token {
        self.generation.token().with(kind)
    }

    /// The channel of a captured stream, made now if it is not there yet.
    pub(super) fn activate(&mut self, stream: Stream, boxes: &mut BoxPool) -> Option<&mut Channel> {
        let slot = &mut self.streams[stream.index()];
        if let StreamSlot::Unallocated = slot {
            let late_from = self.lifecycle.is_late().then_some(0);
            *slot = StreamSlot::Active(boxes.channel(Channel {
                late_from,
                ..Channel::new(&self.command, stream)
            }));
        }
        self.channel_mut(stream)
    }

    pub(super) fn channel(&self, stream: Stream) -> Option<&Channel> {
        match &self.streams[stream.index()] {
            StreamSlot::Active(channel) => Some(channel),
            StreamSlot::Absent | StreamSlot::Unallocated => None,
        }
    }

    pub(super) fn channel_mut(&mut self, stream: Stream) -> Option<&mut Channel> {
        match &mut self.streams[stream.index()] {
            StreamSlot::Active(channel) => Some(channel),
            StreamSlot::Absent | StreamSlot::Unallocated => None,
        }
    }

    pub(super) fn channels(&self) -> impl Iterator<Item = &Channel> {
        Stream::ALL
            .into_iter()
            .filter_map(|stream| self.channel(stream))
    }

    pub(super) fn channels_mut(&mut self) -> impl Iterator<Item = &mut Channel> {
        self.streams.iter_mut().filter_map(|slot| match slot {
            StreamSlot::Active(channel) => Some(&mut **channel),
            StreamSlot::Absent | StreamSlot::Unallocated => None,
        })
    }

    /// What is kept of a captured stream.
    pub(super) fn captured(&self, stream: Stream) -> Option<&Captured> {
        const NOTHING: &Captured = &Captured::NOTHING;
        match &self.streams[stream.index()] {
            StreamSlot::Active(channel) => Some(&channel.captured),
            StreamSlot::Unallocated => Some(NOTHING),
            StreamSlot::Absent => None,
        }
    }

    /// Takes what is kept of a captured stream. A second call finds the stream absent.
    pub(super) fn take_captured(&mut self, stream: Stream) -> Option<Captured> {
        match std::mem::replace(&mut self.streams[stream.index()], StreamSlot::Absent) {
            StreamSlot::Active(channel) => Some(channel.captured),
            StreamSlot::Unallocated => Some(Captured::NOTHING),
            StreamSlot::Absent => None,
        }
    }

    pub(super) fn exit_state_mut(&mut self, boxes: &mut BoxPool) -> &mut ExitState {
        self.exit_state.get_or_insert_with(|| boxes.exit_state())
    }

    pub(super) fn exited(&self) -> Option<Ns> {
        self.exit_state.as_ref()?.exited
    }

    pub(super) fn closed(&self) -> Option<Ns> {
        self.exit_state.as_ref()?.closed
    }

    pub(super) fn is_verdict_taken(&self) -> bool {
        self.exit_state
            .as_ref()
            .is_some_and(|state| state.is_verdict_taken)
    }

    pub(super) fn put_timer(&mut self, timer: Timer, id: TimerId, boxes: &mut BoxPool) {
        if let Some(place) = self.exit_state_mut(boxes).timers.get_mut(timer as usize) {
            *place = Some(id);
        }
    }

    pub(super) fn take_timer(&mut self, timer: Timer) -> Option<TimerId> {
        self.exit_state
            .as_mut()?
            .timers
            .get_mut(timer as usize)?
            .take()
    }

    /// `Closed` has to wait for output that the host has not taken. Paused output withholds it only
    /// while nobody has stopped the run.
    pub(super) fn withholds_closed(&self) -> bool {
        self.channels().any(|channel| {
            channel.captured.undelivered() > 0
                && match channel.delivery {
                    Delivery::Flowing => true,
                    Delivery::PausedByHost => !self.is_stopped(),
                    Delivery::Abandoned => false,
                }
        })
    }

    /// The host, its shutdown or the run limit has stopped the run.
    fn is_stopped(&self) -> bool {
        let stop = self.lifecycle.stop_report();
        stop.is_some_and(|stop| stop.reason != StopReason::Background)
    }

    /// When output that the host has paused is given up: the drain's limit holds for it too. `None`
    /// if there is no limit.
    pub(super) fn paused_output_limit(&self) -> Option<Ns> {
        let limit = self.command.config.policy().drain.limit.duration()?;
        Some(self.exited().unwrap_or_default().after(Ns::from(limit)))
    }

    /// Gives up the output that the host has paused.
    pub(super) fn abandon_paused(&mut self) {
        for channel in self.channels_mut() {
            if channel.delivery == Delivery::PausedByHost {
                channel.delivery = Delivery::Abandoned;
            }
        }
    }

    pub(super) fn stream_report(&self, stream: Stream) -> Option<StreamReport> {
        let captured = self.captured(stream)?;
        Some(StreamReport {
            bytes: captured.total(),
            dropped: captured.dropped(),
            late: self.lifecycle.late_bytes(stream),
            end: self.lifecycle.stream_end(stream),
            error: self.channel(stream).and_then(|channel| channel.error),
            capacity: self.birth.capacities[stream.index()].map(NonZero::get),
        })
    }

    /// Gives every block and box back.
    pub(super) fn free(mut self, memory: &mut Memory) {
        for slot in &mut self.streams {
            if let StreamSlot::Active(mut channel) = std::mem::replace(slot, StreamSlot::Absent) {
                channel.captured.free(&mut memory.pool);
                memory.boxes.put_channel(channel);
            }
        }
        if let Some(state) = self.exit_state {
            memory.boxes.put_exit_state(state);
        }
    }
}

/// An idle child costs at most half a KiB, and the kernel's table and the wheel need the rest.
const _: () = assert!(size_of::<Entry>() <= 376);
