//! The kernel contract: what the reactor may ask of a kernel, and what each answer promises.
//!
//! > **A notice says that something may be done. Doing it is a call that has ended when it returns.
//! > Nothing but a spawn
//! > and a watch outlives its call, and a watch owns no memory.**
//!
//! Descriptors live in the kernel object, in a table keyed by slot; the reactor knows tokens only.
//! Notices are hints, the facts come from the calls. A stale token (its sequence is not the one in
//! the table) does nothing anywhere. `tests/contract.rs` has a test per promise and runs it on
//! every kernel.

mod notice;

pub use notice::{Notice, Notices};

use crate::capture::Block;
use crate::command::plan::Plan;
use crate::types::{
    Capabilities, CollectMode, Errno, ExitInfo, Holder, Member, Ns, Probe, Release, Signal,
    Signalled, SpawnError, Token, limits,
};
use arrayvec::ArrayVec;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// Keeps the trait closed: its contract is not one that can be kept from outside.
pub(crate) mod sealed {
    /// Only the kernels of this crate have it.
    pub trait Sealed {}
}

/// One read. It owns its blocks for the call; the reactor moves them in and takes them back.
#[derive(Debug)]
pub struct ReadOp {
    /// Which stream.
    pub stream: Token,
    /// The stream's last block and how full it is: filled first.
    pub room: Option<(Block, u32)>,
    /// An empty block: filled second.
    pub spare: Block,
    /// [`ReadResult::Stale`] before, anything else after.
    pub result: ReadResult,
}

/// What a read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadResult {
    /// `n` bytes: room first, then spare.
    Data {
        /// How many, at least 1.
        n: usize,
        /// More may be there, and no notice is owed. When false, the next byte, end of file or error
        /// makes a notice.
        more_available: bool,
    },
    /// Nothing there; a notice is owed.
    Empty,
    /// Every write end is closed.
    End,
    /// Never EAGAIN or EINTR.
    Failed(Errno),
    /// The token is stale or closed.
    Stale,
}

/// Reads that are done in one call.
pub type Batch = ArrayVec<ReadOp, { limits::BATCH }>;

/// How long a wait may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Not at all.
    Peek,
    /// Until this time at the latest.
    At(Ns),
    /// For as long as nothing happens.
    Forever,
    /// Until the outcome of this spawn is known (or this time): looks at nothing else and takes no
    /// notices.
    Outcome(Token, Option<Ns>),
}

/// A child that exists, and leads a group of its own. Whether it executes its program is told by
/// [`Kernel::outcome`].
#[derive(Debug)]
pub struct Spawned<Raw> {
    /// Its process id, and its group's.
    pub pid: u32,
    /// The write end of a stdin that the host wants to own.
    pub stdin: Option<Raw>,
    /// The read end of a stdout that the host wants to own.
    pub stdout: Option<Raw>,
    /// The read end of a stderr that the host wants to own.
    pub stderr: Option<Raw>,
    /// Capacities of the captured streams' pipes in bytes, where one was asked for: what was had.
    pub capacities: [Option<u32>; 2],
    /// The wall clock at the clone.
    pub started_at: SystemTime,
}

/// How a spawn went.
#[derive(Clone, Debug)]
pub enum SpawnOutcome {
    /// exec has succeeded (or the child was killed before it: its exit says the rest).
    Started,
    /// A step failed. The child has ended or is about to: an `Exit` notice follows, and it is
    /// collected like any other.
    Failed(SpawnError),
    /// Not known yet.
    NotYet,
}

/// A wait that cannot be done any more: the loop's own end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitError {
    /// The poll set failed.
    Failed(Errno),
    /// This process is a forked copy of the one that made the loop.
    Forked,
}

/// What a write to a stdin came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrote {
    /// So many bytes went in, at least one.
    Took(usize),
    /// Nothing fits; a `Writable` notice is owed.
    Full,
    /// Nobody will read it (EPIPE). No signal was raised.
    NoReader,
    /// Anything else.
    Failed(Errno),
}

/// The answer to [`Kernel::collect`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collected {
    /// A spurious notice; the watch stays armed.
    NotYet,
    /// It has ended.
    Ended(ExitInfo),
    /// Somebody else reaped it, and the kernel keeps no status.
    Lost,
}

/// One look through /proc (or `cgroup.procs`) that serves every generation that waits for one. The
/// kernel object keeps the place in the middle; a new `id` begins a new look.
#[derive(Debug, Default)]
pub struct Scan {
    /// Which look this is.
    pub id: u64,
    /// Generations whose living members are wanted.
    pub members: Vec<Token>,
    /// Generations whose pipes' holders are wanted (streams that are still open).
    pub holders: Vec<Token>,
    /// Processes to look at in one slice, at most.
    pub budget: usize,
    /// What this slice found. Emptied by the caller.
    pub found: Vec<Found>,
    /// Generations of which members may have been missed, though not of the others: somebody's
    /// environment could not be read just now. Emptied by the caller.
    pub doubtful: Vec<Token>,
}

/// Something that a scan found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A living member of this generation's group (a zombie with one thread is not).
    Member(Token, Member),
    /// A holder of an open captured stream of this generation, the leader excepted. Once per
    /// process.
    Holder(Token, Holder),
}

/// The answer to [`Kernel::scan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanStep {
    /// Ask again for the next slice.
    More,
    /// One pass over all processes has ended.
    Done {
        /// No member can have been refused or missed, but of those generations that are
        /// [`Scan::doubtful`].
        members: bool,
        /// No holder can have been refused or missed.
        holders: bool,
    },
}

/// What [`Kernel::release`] hands over.
#[derive(Debug)]
pub struct Released<Raw> {
    /// The leader's process id.
    pub pid: u32,
    /// Its pidfd, where there is one.
    pub pidfd: Option<Raw>,
    /// The write end of stdin, if it was still open.
    pub stdin: Option<Raw>,
    /// The read end of stdout, if it was still open.
    pub stdout: Option<Raw>,
    /// The read end of stderr, if it was still open.
    pub stderr: Option<Raw>,
}

impl<Raw> Default for Released<Raw> {
    fn default() -> Self {
        Released {
            pid: 0,
            pidfd: None,
            stdin: None,
            stdout: None,
            stderr: None,
        }
    }
}

/// What becomes of descendants whose parent has ended (PR_SET_CHILD_SUBREAPER).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Orphans {
    /// They are process 1's, or some other subreaper's.
    #[default]
    Leave,
    /// This process inherits them; those that are found to be members are reaped when they end.
    Inherit,
    /// The same, and all children of the process are the loop's: every orphan is reaped. One without
    /// a cookie is a member of a generation contained by a cookie only if its parent was seen to be
    /// one, or if the process had no child when the generation was started.
    Adopt,
}

/// Wakes a loop that sleeps.
pub trait Wake {
    /// From any thread, any number of times: at least one [`Notice::Woken`] follows.
    fn wake(&self);
}

/// The questions a reactor may ask. Sealed: the kernels are `Linux` and, with the feature `sim`,
/// `Sim`.
///
/// No policy, no state machine, no time limit of its own, no log line above DEBUG.
pub trait Kernel: sealed::Sealed {
    /// What a host gets for a stream it wants to own: `OwnedFd` on Linux.
    type Raw;
    /// Wakes this kernel's wait.
    type Waker: Wake + Clone + Send + Sync + 'static;

    /// What it can do.
    fn capabilities(&self) -> &Capabilities;

    /// Monotonic time since the kernel object was made.
    fn now(&mut self) -> Ns;

    /// The instant at which [`Kernel::now`] was zero.
    fn origin(&self) -> Instant;

    /// A number that tells this kernel object from others of the process: keys of another loop are
    /// found out by it. Another number in a forked copy of the process.
    fn tag(&self) -> u32;

    /// When the kernel object itself wants a wait to end, whatever the reactor waits for: the
    /// SIGCHLD way's look of its own, a look at spawns that are under way.
    fn deadline(&self) -> Option<Ns>;

    /// Starts a child. Returns once the process exists, not once it has executed its program.
    ///
    /// Either `Ok`: the child leads a group of its own already (parent and child both call
    /// setpgid), every pipe end has an owner, everything is watched, and exactly one `Outcome`
    /// becomes known. Or `Err`, and nothing is left: no process, descriptor, watch, stack or
    /// table entry. `generation` is its token with [`TokenKind::Spawn`](crate::types::TokenKind::Spawn).
    fn spawn(
        &mut self,
        plan: &Arc<Plan>,
        generation: Token,
    ) -> Result<Spawned<Self::Raw>, SpawnError>;

    /// How the spawn went. The kernel gives `Outcome` before `Exit` and before any byte of the same
    /// generation.
    fn outcome(&mut self, generation: Token) -> SpawnOutcome;

    /// Sleeps until something may be done, `until` has come, or a signal interrupts. Fills `out`
    /// (cleared first), in the order of [`Notice::rank`].
    ///
    /// Peek never sleeps. At(t) returns at t or later when nothing happens, at most 1 ms and
    /// scheduling late. EINTR is `Ok` with nothing. Notices that did not fit are given by the
    /// next wait (`out.more`).
    fn wait(&mut self, until: Until, out: &mut Notices) -> Result<(), WaitError>;

    /// Reads each stream of the batch once, without blocking, at most the room given. EINTR is
    /// retried.
    ///
    /// After the leader was collected as ended, every byte it wrote, and the end of file if nobody
    /// else holds the pipe, is there for the next read.
    fn read(&mut self, batch: &mut Batch);

    /// Writes to a fed stdin without blocking. EPIPE never becomes a signal in the host.
    fn write(&mut self, stdin: Token, bytes: &[u8]) -> Wrote;

    /// Ends a stream, a member watch or the exit watch: watch first, then descriptor. Idempotent.
    /// When it returns, a closed read end is closed for the writer too (EPIPE).
    fn close(&mut self, what: Token);

    /// Asks whether the leader has ended. Only this child is asked for, by pidfd or pid.
    fn collect(&mut self, generation: Token, mode: CollectMode) -> Collected;

    /// Signals the whole group, through ways that are certain to reach nobody else: the leader's
    /// pidfd with the group flag; the group's number while the leader is not reaped; the pidfds
    /// of verified members.
    fn signal(&mut self, generation: Token, signal: Signal) -> Signalled;

    /// Signals those members outside the group who were found by a scan and have not been reached
    /// by [`Kernel::signal`]: where the containment sees them (a cookie). Nobody else has any.
    fn signal_outside(&mut self, generation: Token, signal: Signal) -> Signalled {
        let _ = (generation, signal);
        Signalled::Empty
    }

    /// Signals the leader alone, if it has not been reaped.
    fn signal_leader(&mut self, generation: Token, signal: Signal) -> Signalled;

    /// Is anything left in the group? One call.
    fn probe(&mut self, generation: Token) -> Probe;

    /// One slice of a scan, at most `scan.budget` processes. What it found is in `scan.found`.
    fn scan(&mut self, scan: &mut Scan) -> ScanStep;

    /// From now on a [`Notice::MemberGone`] with `token` comes when this member ends. `token` is
    /// the generation's with [`TokenKind::Member`](crate::types::TokenKind::Member). EMFILE and a missing
    /// pidfd_open are answers; ESRCH means that it has ended already.
    fn watch(&mut self, member: &Member, token: Token) -> Result<(), Errno>;

    /// The generation is over for the reactor.
    fn release(&mut self, generation: Token, how: Release) -> Released<Self::Raw>;

    /// Closes what was put aside: pipes at their end and the pidfds of the reaped, which nobody but
    /// the host's own table of descriptors can tell from closed ones. [`Kernel::wait`] does it,
    /// too.
    fn close_deferred(&mut self) {}

    /// For foreign loops that watch the descriptor alone: makes it readable at `at`.
    fn alarm(&mut self, at: Option<Ns>);

    /// Wakes a wait from any thread.
    fn waker(&self) -> Self::Waker;
}
