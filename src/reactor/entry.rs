//! What the loop keeps of one generation.

use super::event::Generation;
use super::watch::Watch;
use crate::capture::{Captured, Pool, Projection};
use crate::error::{Errno, SpawnError};
use crate::kernel::plan::Plan;
use crate::lifecycle::policy::StopPolicy;
use crate::lifecycle::report::{DrainReport, Settled, StdinEnd, StdinReport, StreamReport};
use crate::lifecycle::{Life, Timer};
use crate::limits;
use crate::time::Ns;
use crate::token::{Token, What};
use crate::wheel::TimerId;
use crate::words::{Stream, Survivor};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::SystemTime;

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
    /// `ahead` undelivered bytes: not read, the idle clock stands.
    Full,
    /// The host asked for it: not delivered, and read only up to `ahead`.
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
        self.queue.iter().map(|piece| piece.len() as u64).sum::<u64>().saturating_sub(self.begun as u64)
    }

    fn report(&self) -> StdinReport {
        let unwritten = self.unwritten();
        let end = self.end.unwrap_or(if unwritten == 0 { StdinEnd::Written } else { StdinEnd::Unwritten });
        StdinReport { bytes: self.written, unwritten, end, error: self.error }
    }
}

/// How far the reading out of a generation is that was asked for by its machine, or by a notice after the exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sweep {
    /// Nothing is asked for.
    None,
    /// Read what is there; nobody waits for the answer.
    Loose,
    /// Read what is there, then tell the machine.
    Owed,
}

/// What is told of the verdict and of settling: made once, lent by the events.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) drain: Option<DrainReport>,
    pub(super) last_words: Option<Vec<String>>,
    pub(super) late_words: Vec<String>,
    pub(super) survivors: Vec<Survivor>,
    pub(super) settled: Option<Settled>,
}

/// One generation.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) generation: Generation,
    pub(super) life: Life,
    /// How it is stopped when nothing else is said.
    pub(super) stop: StopPolicy,
    pub(super) pid: u32,
    pub(super) plan: Arc<Plan>,
    /// The only way out for text of its streams and its command line.
    pub(super) projection: Projection,
    pub(super) born: Ns,
    pub(super) started_at: SystemTime,
    pub(super) exited: Option<Ns>,
    pub(super) closed: Option<Ns>,
    pub(super) streams: [Option<Box<Channel>>; 2],
    pub(super) words_from: Stream,
    pub(super) tail_lines: [u32; 2],
    pub(super) feed: Option<Box<Feed>>,
    pub(super) timers: [Option<TimerId>; Timer::ALL.len()],
    pub(super) sweep: Sweep,
    /// It waits for the next turn's budget.
    pub(super) sweep_queued: bool,
    /// Where in the stream of the last words the late ones begin.
    pub(super) mark: Option<u64>,
    pub(super) watched: u8,
    pub(super) error: Option<SpawnError>,
    pub(super) told: Box<Told>,
    /// `Closed` waits until the host has taken what is undelivered.
    pub(super) last_event_waits: bool,
}

impl Entry {
    pub(super) fn token(&self, what: What) -> Token {
        self.generation.token().with(what)
    }

    pub(super) fn channel(&self, stream: Stream) -> Option<&Channel> {
        self.streams[stream.index()].as_deref()
    }

    pub(super) fn channel_mut(&mut self, stream: Stream) -> Option<&mut Channel> {
        self.streams[stream.index()].as_deref_mut()
    }

    pub(super) fn undelivered(&self) -> bool {
        self.streams.iter().flatten().any(|c| c.captured.undelivered() > 0)
    }

    pub(super) fn stream_report(&self, stream: Stream) -> Option<StreamReport> {
        let channel = self.channel(stream)?;
        Some(StreamReport {
            bytes: channel.captured.total(),
            dropped: channel.captured.dropped(),
            late: self.life.late_bytes(stream),
            end: self.life.stream_end(stream),
            error: channel.error,
        })
    }

    pub(super) fn stdin_report(&self) -> Option<StdinReport> {
        self.feed.as_deref().map(Feed::report)
    }

    /// Gives every block back.
    pub(super) fn free(&mut self, pool: &mut Pool) {
        for channel in self.streams.iter_mut().flatten() {
            channel.captured.free(pool);
        }
    }
}

/// The most that a pipe of this requested capacity can hold: the kernel rounds up to a power of two of pages, and gives an
/// unprivileged user at most /proc/sys/fs/pipe-max-size, 1 MiB (pipe(7)).
pub(super) fn pipe_capacity(asked: Option<u32>) -> u64 {
    asked.map_or(64 << 10, |bytes| u64::from(bytes).next_power_of_two()).max(limits::PIPE_MAX)
}
