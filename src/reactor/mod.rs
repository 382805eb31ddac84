//! The event loop: it joins the state machines and the kernel, and decides nothing itself.
//!
//! ```text
//!  turn:  wait (the only place that sleeps)
//!         outcomes, exits       an exited child is read out at once, its verdict comes in the same turn
//!         bytes of the others   a bounded number of reads, the poll set looked at in between
//!         stdins, one slice of a /proc scan
//!         timers                only after a wait that left no notice behind
//! ```
//!
//! | file | what it does |
//! | --- | --- |
//! | `turn.rs` | one turn, and when the next is due |
//! | `inputs.rs` | facts become inputs of the machines; the work loop |
//! | `effects.rs` | effects of the machines become kernel calls |
//! | `reads.rs`, `stdin.rs`, `scan_schedule.rs` | what takes several calls: reads, writes, scans |
//! | `outbox.rs`, `event.rs` | what waits for the host, and what it is shown |
//! | `reporting.rs`, `last_words.rs`, `line_filter.rs` | what an event or the report says |
//! | `start.rs`, `control.rs`, `shutdown.rs`, `builder.rs` | what the host calls |
//! | `entry.rs`, `channel.rs`, `memory.rs` | what is kept of a generation and of a stream |

mod builder;
mod channel;
mod control;
mod effects;
mod entry;
mod event;
mod inputs;
mod last_words;
mod line_filter;
mod memory;
mod outbox;
mod reads;
mod reporting;
mod scan_schedule;
mod shutdown;
mod start;
mod stdin;
mod turn;

pub use builder::Builder;
pub use control::{Detached, Stopping};
pub use event::{Event, Generation};
pub use last_words::LastWords;
pub use shutdown::{Finished, Leftovers};
pub use turn::Turn;

use crate::kernel::linux::Linux;
use crate::kernel::{Kernel, Notices};
use crate::text::Projection;
use crate::types::{BuildError, Capabilities, limits};
use control::HostEnds;
use entry::Table;
use inputs::Work;
use memory::Memory;
use outbox::Outbox;
use reads::IoQueue;
use scan_schedule::ScanSchedule;
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;
use turn::Clock;

/// Pending work that there is room for from the start. More of it makes the queue grow, once.
const PENDING: usize = 64;

/// What a loop was built with, apart from its kernel.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// How safe text is made.
    projection: Projection,
    /// The descriptor carries the deadline.
    fold_deadline: bool,
    /// How long a drop may take.
    drop_bound: Duration,
    /// Bytes of free blocks that are kept.
    pool_bytes: usize,
    /// Reads of running generations in one turn, at most.
    reads_per_turn: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            projection: Projection::default(),
            fold_deadline: false,
            drop_bound: limits::DROP_BOUND,
            pool_bytes: limits::POOL_BYTES,
            reads_per_turn: limits::TURN_READS,
        }
    }
}

/// Counters since the loop was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Generations that are not closed yet, at this moment.
    pub live: u64,
    /// Generations started, those that could not execute their program included.
    pub started: u64,
    /// Turns, those inside [`Reactor::wait_event`] and [`Reactor::run`] included.
    pub turns: u64,
    /// Reads of captured streams, those that brought nothing included.
    pub reads: u64,
    /// Bytes read from captured streams.
    pub bytes: u64,
    /// Notices and timers that came for a generation that was gone.
    pub stale: u64,
}

/// A single-threaded event loop that owns the pipes and the exit notice of every child it starts.
///
/// It is a value: no global state, no thread, and no signal handler unless exits are learnt by
/// SIGCHLD. Drive it with [`Reactor::turn`] and [`Reactor::next_event`], or with
/// [`Reactor::wait_event`], which turns until there is an event.
///
/// ```
/// use lastwords::{Command, Event, Outcome, Reactor};
///
/// let mut reactor = Reactor::new()?;
/// let job = reactor.spawn(&Command::shell("echo oops >&2; exit 3"))?;
/// while let Some(event) = reactor.wait_event(None)? {
///     if let Event::Closed { generation, report, .. } = event {
///         assert_eq!(generation, job);
///         assert_eq!(report.outcome, Some(Outcome::Failed));
///         assert_eq!(report.stderr_tail, ["oops"]);
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Inside another event loop
///
/// Watch the descriptor ([`AsFd`](std::os::fd::AsFd)) for reading, and sleep no longer than
/// [`Reactor::next_deadline`]; when either says so, call `turn` with a timeout of zero until
/// [`Turn::more`] is false, and take the events. Every other call that changes something (`start`,
/// `stop`, `feed`, `resume_output`, ...) can leave events and a nearer deadline behind: take the
/// events and ask for the deadline again after it.
///
/// # Threads
///
/// A loop is `Send`: it can be moved to another thread. It is not `Sync`, because `next_event`
/// lends from it and every useful call takes `&mut self`; a `Mutex<Reactor>` is `Sync` and works.
///
/// # The end
///
/// Dropping the loop kills and reaps what it still owns, within [`Builder::drop_bound`];
/// [`Reactor::shutdown`] is the way to end well. In a forked copy of the host every call is
/// refused, and dropping it closes descriptors only.
pub struct Reactor<K: Kernel = Linux> {
    kernel: K,
    settings: Settings,
    table: Table,
    clock: Clock,
    memory: Memory,
    notices: Notices,
    pending: VecDeque<Work>,
    io: IoQueue,
    scans: ScanSchedule,
    outbox: Outbox,
    host_ends: HostEnds<K::Raw>,
    stats: Stats,
}

const _: fn() = || {
    fn send<T: Send>() {}
    send::<Reactor<Linux>>();
};

impl Reactor {
    /// A loop with the defaults of [`Builder`].
    ///
    /// # Errors
    ///
    /// As [`Builder::build`].
    pub fn new() -> Result<Reactor, BuildError> {
        Builder::default().build()
    }

    /// The settings of a loop, to be changed and built.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl<K: Kernel> Reactor<K> {
    pub(crate) fn with_kernel(mut kernel: K, settings: Settings) -> Reactor<K> {
        let now = kernel.now();
        Reactor {
            table: Table::new(kernel.tag()),
            clock: Clock::new(now),
            memory: Memory::new(settings.pool_bytes),
            notices: Notices::new(),
            pending: VecDeque::with_capacity(PENDING),
            io: IoQueue::new(),
            scans: ScanSchedule::default(),
            outbox: Outbox::default(),
            host_ends: HostEnds::new(),
            stats: Stats::default(),
            kernel,
            settings,
        }
    }

    /// What the kernel can do here, and why what was chosen was chosen.
    pub fn capabilities(&self) -> &Capabilities {
        self.kernel.capabilities()
    }

    /// Counters since the loop was built.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn kernel(&self) -> &K {
        &self.kernel
    }

    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn kernel_mut(&mut self) -> &mut K {
        &mut self.kernel
    }

    /// Whether some generation is not closed yet, or its `Closed` was not taken yet.
    pub fn is_busy(&self) -> bool {
        self.table.len() > usize::from(self.outbox.closing.is_some())
    }

    /// Where a generation of the host's stands in the table. Its key may be another loop's.
    fn lookup_key(&self, generation: Generation) -> Option<usize> {
        if generation.tag != self.table.tag() || self.is_copy() {
            return None;
        }
        self.table.lookup(generation.token())
    }

    /// This process is a forked copy of the one that made the loop: nothing here is its own.
    fn is_copy(&self) -> bool {
        self.kernel.tag() != self.table.tag()
    }

    /// Removes the generation whose `Closed` the host has seen.
    fn remove_closed(&mut self) {
        let closing = self.outbox.closing.take();
        if let Some(key) = closing.and_then(|token| self.table.lookup(token)) {
            self.remove(key);
        }
    }

    fn remove(&mut self, key: usize) {
        let entry = self.table.remove(key);
        self.host_ends.forget(entry.generation);
        entry.free(&mut self.memory);
    }
}

impl<K: Kernel> fmt::Debug for Reactor<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reactor")
            .field("capabilities", self.kernel.capabilities())
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
