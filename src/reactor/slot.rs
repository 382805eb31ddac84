//! What the loop keeps of one generation.

use super::event::Generation;
use super::last_words::Words;
use super::line_filter::Watch;
use crate::capture::{Captured, Pool};
use crate::command::shared::Run;
use crate::lifecycle::{Lifecycle, Timer};
use crate::report::{DrainReport, Settled, StdinEnd, StdinReport, StreamReport};
use crate::types::{
    Errno, Ns, ResourceUsage, SpawnError, Stream, Survivor, Token, TokenKind, limits,
};
use crate::wheel::TimerId;
use std::collections::VecDeque;
use std::num::NonZero;
use std::sync::Arc;
use std::time::SystemTime;

/// A stream of a generation.
#[derive(Debug)]
pub(super) enum Slot {
    /// It is not captured, or was taken.
    Absent,
    /// It is captured, and nothing was heard of it yet: an idle child costs no more than this.
    Quiet,
    /// Something was.
    Made(Box<Channel>),
}

/// One captured stream.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) captured: Captured,
    /// Its place on the ready list: at most one.
    pub(super) place: Place,
    pub(super) held: Held,
    /// What a sweep may still read of it.
    pub(super) sweep_left: u64,
    /// The most that its pipe can hold.
    pub(super) capacity: u64,
    /// Bytes from here on came after the verdict.
    pub(super) late_from: Option<u64>,
    /// An output item of it stands in the queue of events.
    pub(super) offered: bool,
    /// The host's line function, if it has one for this stream.
    pub(super) watch: Option<Box<Watch>>,
    pub(super) error: Option<Errno>,
}

impl Channel {
    fn new(run: &Run, stream: Stream) -> Channel {
        let capture = run.captures[stream.index()];
        Channel {
            captured: Captured::new(
                capture.max_bytes,
                capture.deliver,
                capture.high_water_mark.max(1),
                capture.lossy,
            ),
            place: Place::Off,
            held: Held::No,
            sweep_left: 0,
            capacity: pipe_capacity(capture.pipe),
            late_from: None,
            offered: false,
            watch: Watch::of(run, stream),
            error: None,
        }
    }
}

/// Whether a stream stands on the list of those that may have bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It is not on the list; the next byte makes a notice.
    Off,
    /// It is on the list.
    Listed,
    /// It has bytes, and is not read, since the host holds it back. Delivering puts it on the list.
    Waiting,
}

/// Whether the host holds a stream back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// It is read.
    No,
    /// `high_water_mark` undelivered bytes: not read, the idle clock stands.
    Full,
    /// The host asked for it: not delivered, and read only up to `high_water_mark`.
    ByHost,
    /// Both.
    ByHostAndFull,
}

impl Held {
    pub(super) const fn is_full(self) -> bool {
        matches!(self, Held::Full | Held::ByHostAndFull)
    }

    pub(super) const fn by_host(self) -> bool {
        matches!(self, Held::ByHost | Held::ByHostAndFull)
    }

    pub(super) const fn with_full(self, full: bool) -> Held {
        match (self.by_host(), full) {
            (false, false) => Held::No,
            (false, true) => Held::Full,
            (true, false) => Held::ByHost,
            (true, true) => Held::ByHostAndFull,
        }
    }

    pub(super) const fn with_host(self, host: bool) -> Held {
        match (host, self.is_full()) {
            (false, false) => Held::No,
            (false, true) => Held::Full,
            (true, false) => Held::ByHost,
            (true, true) => Held::ByHostAndFull,
        }
    }
}

/// The stdin that the loop writes.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) queue: VecDeque<Arc<[u8]>>,
    /// Bytes of the first piece that have been written.
    pub(super) begun: usize,
    pub(super) written: u64,
    /// No more will be given: close it when the queue is empty.
    pub(super) last: bool,
    pub(super) end: Option<StdinEnd>,
    pub(super) error: Option<Errno>,
}

impl Feed {
    pub(super) fn unwritten(&self) -> u64 {
        self.queue
            .iter()
            .map(|piece| piece.len() as u64)
            .sum::<u64>()
            .saturating_sub(self.begun as u64)
    }

    fn report(&self) -> StdinReport {
        let unwritten = self.unwritten();
        let end = self.end.unwrap_or(if unwritten == 0 {
            StdinEnd::Written
        } else {
            StdinEnd::Unwritten
        });
        StdinReport {
            bytes: self.written,
            unwritten,
            end,
            error: self.error,
        }
    }
}

/// How far the reading out of a generation is that was asked for by its machine, or by a notice
/// after the exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sweep {
    /// Nothing is asked for.
    None,
    /// Read what is there; nobody waits for the answer.
    Loose,
    /// Read what is there, then tell the machine.
    Owed,
}

/// What there is of a generation since its leader's end or its first timer, and what is told of the
/// verdict and of settling: made once, lent by the events.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) exited: Option<Ns>,
    pub(super) usage: Option<ResourceUsage>,
    pub(super) closed: Option<Ns>,
    /// Where in the stream of the last words the late ones begin.
    pub(super) mark: Option<u64>,
    pub(super) words: Words,
    pub(super) timers: Timers,
    pub(super) drain: Option<DrainReport>,
    /// The host has taken the verdict: late bytes may follow.
    pub(super) is_verdict_taken: bool,
    pub(super) survivors: Vec<Survivor>,
    pub(super) settled: Option<Settled>,
}

/// The timers of a generation that are armed, by number.
pub(super) type Timers = [Option<TimerId>; Timer::ALL.len()];

/// One generation. What an idle one does not need is not here.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) generation: Generation,
    pub(super) lifecycle: Lifecycle,
    pub(super) pid: u32,
    /// What it shares with the other runs of its command.
    pub(super) run: Arc<Run>,
    pub(super) born: Ns,
    pub(super) started_at: SystemTime,
    pub(super) streams: [Slot; 2],
    pub(super) feed: Option<Box<Feed>>,
    /// Capacities of the streams' pipes that were had, where one was asked for.
    pub(super) capacities: [Option<NonZero<u32>>; 2],
    pub(super) sweep: Sweep,
    /// It waits for the next turn's budget.
    pub(super) sweep_queued: bool,
    pub(super) watched: u8,
    pub(super) error: Option<SpawnError>,
    pub(super) told: Option<Box<Told>>,
    /// `Closed` waits until the host has taken what is undelivered.
    pub(super) last_event_waits: bool,
}

impl Entry {
    pub(super) fn token(&self, kind: TokenKind) -> Token {
        self.generation.token().with(kind)
    }

    /// A captured stream of which something was heard.
    pub(super) fn channel(&self, stream: Stream) -> Option<&Channel> {
        match &self.streams[stream.index()] {
            Slot::Made(channel) => Some(channel),
            Slot::Absent | Slot::Quiet => None,
        }
    }

    /// A captured stream, of which something is heard now at the latest.
    pub(super) fn heard(&mut self, stream: Stream, boxes: &mut Boxes) -> Option<&mut Channel> {
        let slot = &mut self.streams[stream.index()];
        if let Slot::Quiet = slot {
            let late_from = self.lifecycle.is_late().then_some(0);
            *slot = Slot::Made(boxes.channel(Channel {
                late_from,
                ..Channel::new(&self.run, stream)
            }));
        }
        self.channel_mut(stream)
    }

    /// A captured stream of which something was heard, to be changed.
    pub(super) fn channel_mut(&mut self, stream: Stream) -> Option<&mut Channel> {
        match &mut self.streams[stream.index()] {
            Slot::Made(channel) => Some(channel),
            Slot::Absent | Slot::Quiet => None,
        }
    }

    /// The captured streams of which something was heard.
    pub(super) fn channels(&self) -> impl Iterator<Item = &Channel> {
        Stream::ALL
            .into_iter()
            .filter_map(|stream| self.channel(stream))
    }

    /// The same, to be changed.
    pub(super) fn channels_mut(&mut self) -> impl Iterator<Item = &mut Channel> {
        self.streams.iter_mut().filter_map(|slot| match slot {
            Slot::Made(channel) => Some(&mut **channel),
            Slot::Absent | Slot::Quiet => None,
        })
    }

    /// What is kept of a captured stream.
    pub(super) fn kept(&self, stream: Stream) -> Option<&Captured> {
        const NOTHING: &Captured = &Captured::NOTHING;
        match &self.streams[stream.index()] {
            Slot::Made(channel) => Some(&channel.captured),
            Slot::Quiet => Some(NOTHING),
            Slot::Absent => None,
        }
    }

    /// Takes what is kept of a captured stream; once.
    pub(super) fn take(&mut self, stream: Stream) -> Option<Captured> {
        match std::mem::replace(&mut self.streams[stream.index()], Slot::Absent) {
            Slot::Made(channel) => Some(channel.captured),
            Slot::Quiet => Some(Captured::NOTHING),
            Slot::Absent => None,
        }
    }

    pub(super) fn told_mut(&mut self, boxes: &mut Boxes) -> &mut Told {
        self.told.get_or_insert_with(|| boxes.told())
    }

    pub(super) fn exited(&self) -> Option<Ns> {
        self.told.as_ref()?.exited
    }

    pub(super) fn mark(&self) -> Option<u64> {
        self.told.as_ref()?.mark
    }

    pub(super) fn closed(&self) -> Option<Ns> {
        self.told.as_ref()?.closed
    }

    /// The host has taken the verdict.
    pub(super) fn is_verdict_taken(&self) -> bool {
        self.told.as_ref().is_some_and(|told| told.is_verdict_taken)
    }

    pub(super) fn put_timer(&mut self, timer: Timer, id: TimerId, boxes: &mut Boxes) {
        if let Some(place) = self.told_mut(boxes).timers.get_mut(timer as usize) {
            *place = Some(id);
        }
    }

    pub(super) fn take_timer(&mut self, timer: Timer) -> Option<TimerId> {
        self.told.as_mut()?.timers.get_mut(timer as usize)?.take()
    }

    pub(super) fn undelivered(&self) -> bool {
        self.channels().any(|c| c.captured.undelivered() > 0)
    }

    pub(super) fn stream_report(&self, stream: Stream) -> Option<StreamReport> {
        let kept = self.kept(stream)?;
        Some(StreamReport {
            bytes: kept.total(),
            dropped: kept.dropped(),
            late: self.lifecycle.late_bytes(stream),
            end: self.lifecycle.stream_end(stream),
            error: self.channel(stream).and_then(|channel| channel.error),
            capacity: self.capacities[stream.index()].map(NonZero::get),
        })
    }

    pub(super) fn stdin_report(&self) -> Option<StdinReport> {
        self.feed.as_deref().map(Feed::report)
    }

    /// Gives back every block and box.
    pub(super) fn free(mut self, pool: &mut Pool, boxes: &mut Boxes) {
        for slot in &mut self.streams {
            if let Slot::Made(mut channel) = std::mem::replace(slot, Slot::Absent) {
                channel.captured.free(pool);
                // What is the host's own ends with its generation.
                channel.watch = None;
                boxes.channels.put(channel);
            }
        }
        if let Some(mut told) = self.told {
            *told = Told::default();
            boxes.told.put(told);
        }
    }
}

/// Boxes of generations that are over, for those to come: so a turn allocates none once the loop is
/// warmed up.
#[derive(Debug, Default)]
pub(super) struct Boxes {
    channels: Spare<Channel>,
    told: Spare<Told>,
}

impl Boxes {
    fn channel(&mut self, channel: Channel) -> Box<Channel> {
        match self.channels.0.pop() {
            Some(mut spare) => {
                *spare = channel;
                spare
            }
            None => Box::new(channel),
        }
    }

    fn told(&mut self) -> Box<Told> {
        self.told.0.pop().unwrap_or_default()
    }
}

#[derive(Debug)]
struct Spare<T>(Vec<Box<T>>);

impl<T> Default for Spare<T> {
    fn default() -> Self {
        Spare(Vec::with_capacity(limits::SPARE_BOXES))
    }
}

impl<T> Spare<T> {
    fn put(&mut self, spare: Box<T>) {
        if self.0.len() < limits::SPARE_BOXES {
            self.0.push(spare);
        }
    }
}

/// The most that a pipe of this requested capacity can hold: the kernel rounds up to a power of two
/// of pages, and gives an unprivileged user at most /proc/sys/fs/pipe-max-size, 1 MiB (pipe(7)).
fn pipe_capacity(asked: Option<u32>) -> u64 {
    asked
        .map_or(64 << 10, |bytes| u64::from(bytes).next_power_of_two())
        .max(limits::PIPE_MAX)
}

/// With the rest of what is kept of it, an idle child is to cost at most half a KiB.
const _: () = assert!(size_of::<Entry>() <= 376);
