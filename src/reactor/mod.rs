//! The loop: one turn at a time, it joins the rules and the kernel and decides nothing itself.
//!
//! ```text
//!  turn:  wait (the only place that sleeps)
//!         outcomes, exits       an exited child is read out at once, its verdict comes in the same turn
//!         bytes of the others   a bounded number, the poll set looked at between reads: exits never queue behind bytes
//!         stdins, one slice of a /proc scan
//!         timers                only after a wait that left no notice behind
//! ```
//!
//! A kernel fact becomes an input, and an effect a kernel call, in one place each: `inputs.rs` and
//! `effects.rs`.

mod builder;
mod control;
mod effects;
mod event;
mod inputs;
mod last_words;
mod line_filter;
mod outbox;
mod reads;
mod reporting;
mod scan_schedule;
mod shutdown;
mod slot;
mod start;
mod stdin;
mod turn;

pub use builder::Builder;
pub use control::Detached;
pub use event::{Event, Generation, Stopping, Turn};
pub use last_words::LastWords;
pub use shutdown::{Finished, Leftovers};

use crate::capture::{Block, Pool};
use crate::kernel::linux::Linux;
use crate::kernel::{Kernel, Notices, Released};
use crate::lifecycle::Timer;
use crate::text::Projection;
use crate::types::{BuildError, Capabilities, Ns, Token, limits};
use crate::wheel::Wheel;
use arrayvec::ArrayVec;
use effects::Answer;
use line_filter::Panic;
use outbox::Item;
use scan_schedule::Errand;
use slab::Slab;
use slot::{Boxes, Entry};
use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

/// What a loop was built with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How safe text is made.
    pub projection: Projection,
    /// The deadline is folded into the descriptor.
    pub fold_deadline: bool,
    /// How long a drop may take.
    pub drop_bound: Duration,
    /// Bytes of free blocks that are kept.
    pub pool_bytes: usize,
    /// Reads of running generations in one turn.
    pub reads_per_turn: usize,
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
    /// Generations that are not closed yet.
    pub live: u64,
    /// Generations started.
    pub started: u64,
    /// Turns done.
    pub turns: u64,
    /// Reads done.
    pub reads: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Notices and timers that were about a generation that is no more, or about something of it
    /// that is over.
    pub stale: u64,
}

/// A single-threaded loop that owns the pipes and the exit notice of every child it starts.
///
/// It is a value: no global state, no thread, and no signal handler unless the SIGCHLD way is in
/// use. Drive it with [`Reactor::turn`] and [`Reactor::next_event`], or with
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
/// Dropping it kills and reaps what it still owns, within [`Builder::drop_bound`];
/// [`Reactor::shutdown`] is the way to end well. In a forked copy of the host every call is
/// refused, and dropping it closes descriptors only.
pub struct Reactor<K: Kernel = Linux> {
    kernel: K,
    settings: Settings,
    tag: u32,
    sequence: u32,
    now: Ns,
    table: Slab<Entry>,
    live: usize,
    wheel: Wheel<(Token, Timer)>,
    pool: Pool,
    boxes: Boxes,
    spares: ArrayVec<Block, { limits::BATCH }>,
    projection: Projection,
    notices: Notices,
    ready: VecDeque<Token>,
    sweeps: VecDeque<Token>,
    sweep_budget: u64,
    writers: VecDeque<Token>,
    answers: VecDeque<Answer>,
    errand: Errand,
    queue: VecDeque<Item>,
    popped: Option<Token>,
    /// Life-cycle events queued so far.
    tellings: u64,
    released: Option<Released<K::Raw>>,
    raw: RawEnds<K::Raw>,
    alarm: Option<Ns>,
    /// The host's line function has panicked; the round is finished first.
    panic: Option<Panic>,
    stats: Stats,
}

/// Ends of pipes that the host has not taken yet, by generation.
type RawEnds<R> = std::collections::BTreeMap<u64, [Option<R>; 3]>;

const _: fn() = || {
    fn send<T: Send>() {}
    send::<Reactor<Linux>>();
};

impl Reactor {
    /// A loop with the defaults of [`Builder`].
    pub fn new() -> Result<Reactor, BuildError> {
        Builder::default().build()
    }

    /// Says how it is to be built.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl<K: Kernel> Reactor<K> {
    /// A loop on this kernel: for the simulated one, and for tests.
    pub fn with_kernel(mut kernel: K, settings: Settings) -> Reactor<K> {
        let now = kernel.now();
        let mut pool = Pool::new(settings.pool_bytes);
        let spares = (0..limits::BATCH)
            .map(|_| pool.take(limits::BLOCK))
            .collect();
        Reactor {
            tag: kernel.tag(),
            kernel,
            sequence: 0,
            now,
            table: Slab::new(),
            live: 0,
            wheel: Wheel::new(),
            pool,
            boxes: Boxes::default(),
            spares,
            projection: settings.projection.clone(),
            notices: Notices::new(),
            ready: VecDeque::new(),
            sweeps: VecDeque::new(),
            sweep_budget: limits::LAST_READ_BYTES,
            writers: VecDeque::new(),
            answers: VecDeque::with_capacity(16),
            errand: Errand::default(),
            queue: VecDeque::new(),
            popped: None,
            tellings: 0,
            released: None,
            raw: RawEnds::new(),
            alarm: None,
            panic: None,
            stats: Stats::default(),
            settings,
        }
    }

    /// What the kernel can do here, and why what was chosen was chosen.
    pub fn capabilities(&self) -> &Capabilities {
        self.kernel.capabilities()
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        Stats {
            live: self.live as u64,
            ..self.stats
        }
    }

    /// The kernel under the loop, to look at (for tests on the simulated one).
    #[doc(hidden)]
    pub fn kernel(&self) -> &K {
        &self.kernel
    }

    /// The kernel under the loop (for tests on the simulated one).
    #[doc(hidden)]
    pub fn kernel_mut(&mut self) -> &mut K {
        &mut self.kernel
    }

    /// There is a generation that is not closed yet, or whose last event has not been asked for.
    pub fn is_busy(&self) -> bool {
        self.table.len() > usize::from(self.popped.is_some())
    }

    /// Where this generation lives in the table, if it still does.
    fn find(&self, token: Token) -> Option<usize> {
        let key = token.slot().0 as usize;
        let entry = self.table.get(key)?;
        (entry.generation.sequence == token.sequence()).then_some(key)
    }

    /// The same for a key of the host's, which may be another loop's.
    fn own(&self, generation: Generation) -> Option<usize> {
        if generation.tag != self.tag || self.is_copy() {
            return None;
        }
        self.find(generation.token())
    }

    /// This process is a forked copy of the one that made the loop: nothing here is ours.
    fn is_copy(&self) -> bool {
        self.kernel.tag() != self.tag
    }

    /// Reads between two looks at the poll set.
    fn batch(&self) -> usize {
        self.kernel
            .capabilities()
            .reads_per_batch
            .clamp(1, limits::BATCH)
    }

    fn instant(&self, at: Ns) -> Instant {
        let origin = self.kernel.origin();
        origin.checked_add(at.to_duration()).unwrap_or(origin)
    }

    /// Takes out the generation whose last event the host has seen.
    fn reclaim(&mut self) {
        if let Some(key) = self.popped.take().and_then(|token| self.find(token)) {
            self.remove(key);
        }
    }

    fn remove(&mut self, key: usize) {
        let entry = self.table.remove(key);
        self.raw.remove(&entry.generation.token().bits());
        entry.free(&mut self.pool, &mut self.boxes);
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
