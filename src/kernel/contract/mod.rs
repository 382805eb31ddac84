//! The kernel contract: what the reactor may ask of a kernel, and what each answer promises.
//!
//! > **A notice says that something may be done. Doing it is a call that has ended when it returns.
//! > Only a spawn and a watch outlive their call, and a watch owns no memory.**
//!
//! Descriptors live in the kernel object, in a table by slot; the reactor knows tokens only. A
//! notice is a hint, and the calls give the facts. A stale token, whose sequence differs from that
//! in the table, has no effect. `tests/kernels/contract.rs` has a test for each promise and runs it
//! on every kernel.

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

/// Seals the trait: other crates cannot implement the contract.
pub(crate) mod sealed {
    /// Implemented by the kernels of this crate only.
    pub trait Sealed {}
}

/// A read. It owns its blocks during the call: the reactor moves them in and takes them back.
#[derive(Debug)]
pub struct ReadOp {
    /// The stream to read.
    pub stream: Token,
    /// The stream's last block and the number of bytes in it. It is filled first.
    pub room: Option<(Block, u32)>,
    /// An empty block, filled second.
    pub spare: Block,
    /// The result. [`ReadResult::Stale`] before the call.
    pub result: ReadResult,
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadResult {
    /// `n` bytes were read, into `room` first and then into `spare`.
    Data {
        /// The number of bytes, at least 1.
        n: usize,
        /// More bytes may be there, and no notice will come for them: read again. When false, the
        /// next byte, end of file or error makes a notice.
        more_available: bool,
    },
    /// Nothing was there. The next byte, end of file or error makes a notice.
    Empty,
    /// End of file: every write end is closed.
    End,
    /// The read failed. Never with EAGAIN or EINTR.
    Failed(Errno),
    /// The token is stale, or the stream is closed.
    Stale,
}

/// Reads that are done in one call, at most [`limits::BATCH`].
pub type Batch = ArrayVec<ReadOp, { limits::BATCH }>;

/// How long a wait may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// It does not sleep.
    Peek,
    /// Until this time at the latest.
    At(Ns),
    /// Until something happens.
    Forever,
    /// Until the outcome of this spawn is known, or until the given time. Other events are left to
    /// the next wait.
    Outcome(Token, Option<Ns>),
}

/// A child that exists and leads its own process group. [`Kernel::outcome`] tells whether it has
/// executed its program.
#[derive(Debug)]
pub struct Spawned<Raw> {
    /// Its pid, which is also the number of its group.
    pub pid: u32,
    /// The write end of a raw stdin, for the host.
    pub stdin: Option<Raw>,
    /// The read end of a raw stdout, for the host.
    pub stdout: Option<Raw>,
    /// The read end of a raw stderr, for the host.
    pub stderr: Option<Raw>,
    /// Capacities of the captured streams' pipes in bytes, where the command asks for one. Smaller
    /// than asked for if the kernel refuses.
    pub capacities: [Option<u32>; 2],
    /// The wall clock at the clone.
    pub started_at: SystemTime,
}

/// Whether a child has executed its program.
#[derive(Clone, Debug)]
pub enum SpawnOutcome {
    /// exec has succeeded, or the child was killed before it, which its exit status tells.
    Started,
    /// A step before exec, or exec itself, has failed. The child has ended or is about to: an
    /// `Exit` notice follows, and it is collected as any other.
    Failed(SpawnError),
    /// Not known yet.
    NotYet,
}

/// Why the loop cannot wait any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitError {
    /// The poll set has failed.
    Failed(Errno),
    /// This process is a forked copy of the one that made the loop.
    Forked,
}

/// The result of a write to a stdin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrote {
    /// This many bytes were written, at least one.
    Took(usize),
    /// The pipe is full. A `Writable` notice follows.
    Full,
    /// No read end is open (EPIPE). No signal was raised.
    NoReader,
    /// The write failed with another error.
    Failed(Errno),
}

/// The answer to [`Kernel::collect`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collected {
    /// It has not ended: the notice was spurious, and the next one will come.
    NotYet,
    /// It has ended.
    Ended(ExitInfo),
    /// It has ended, somebody else has reaped it, and the kernel keeps no status.
    Lost,
}

/// A scan of /proc (or `cgroup.procs`) on behalf of every generation that waits for one. The kernel
/// object keeps the position between slices; a new `id` begins a new scan.
#[derive(Debug, Default)]
pub struct Scan {
    /// Identifies the scan.
    pub id: u64,
    /// Generations whose living members are asked for.
    pub members: Vec<Token>,
    /// Generations for which the holders of open captured streams are asked for.
    pub holders: Vec<Token>,
    /// Processes that one slice examines, at most.
    pub budget: usize,
    /// The results of this slice. The caller empties it.
    pub found: Vec<Found>,
    /// Generations of which members may have been missed, though not of the others: somebody's
    /// environment could not be read just now. Emptied by the caller.
    pub doubtful: Vec<Token>,
}

/// A result of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A living member of this generation's group (a zombie with one thread is not).
    Member(Token, Member),
    /// A process other than the leader that holds an open captured stream of this generation. Once
    /// per process.
    Holder(Token, Holder),
}

/// The answer to [`Kernel::scan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanStep {
    /// There are more slices.
    More,
    /// A pass over all processes has ended.
    Done {
        /// No member can have been hidden or missed, except of the generations in
        /// [`Scan::doubtful`].
        members: bool,
        /// No holder can have been hidden or missed.
        holders: bool,
    },
}

/// What [`Kernel::release`] hands over to the host.
#[derive(Debug)]
pub struct Released<Raw> {
    /// The leader's pid.
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

/// What becomes of orphaned descendants (PR_SET_CHILD_SUBREAPER).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Orphans {
    /// Process 1 or another subreaper inherits them.
    #[default]
    Leave,
    /// This process inherits them. Those that are found to be members are reaped when they end.
    Inherit,
    /// The same, and all children of the process are the loop's: every orphan is reaped. One
    /// without a cookie is a member of a generation contained by a cookie only if its parent
    /// was seen to be one, or if the process had no child when the generation was started.
    Adopt,
}

/// Wakes a sleeping loop.
pub trait Wake {
    /// Makes at least one [`Notice::Woken`] follow. May be called from any thread, any number of
    /// times.
    fn wake(&self);
}

/// What a reactor may ask. Sealed: the kernels are `Linux` and, with the feature `sim`, `Sim`.
///
/// A kernel has no policy, no state machine and no time limit of its own, and logs nothing above
/// DEBUG.
pub trait Kernel: sealed::Sealed {
    /// A descriptor that the host gets: `OwnedFd` on Linux.
    type Raw;
    /// The handle that wakes a wait of this kernel.
    type Waker: Wake + Clone + Send + Sync + 'static;

    /// What this kernel can do in this process. Found out once, when the kernel object is made.
    fn capabilities(&self) -> &Capabilities;

    /// The monotonic time since the kernel object was made.
    fn now(&mut self) -> Ns;

    /// The moment at which [`Kernel::now`] was zero.
    fn origin(&self) -> Instant;

    /// A number that differs between kernel objects of a process, so that keys of another loop are
    /// recognised. 0 in a forked copy of the process, where every other call is refused.
    fn tag(&self) -> u32;

    /// When a wait must end at the latest for the kernel object's own sake: to check pending
    /// spawns, to ask children for which SIGCHLD may have been lost, or at once (a time in the
    /// past) if a change of the poll set could not be submitted.
    fn deadline(&self) -> Option<Ns>;

    /// Starts a child. Returns when the process exists, before it has executed its program.
    ///
    /// `Ok` promises that the child leads its own group already (parent and child both call
    /// setpgid), that every pipe end has an owner, that everything is watched, and that exactly one
    /// outcome will become known. The host's copies of the child's ends are closed once the child
    /// has them. After `Err` nothing is left: no process, descriptor, watch, stack or table entry.
    ///
    /// `generation` is a token of kind `TokenKind::Spawn`.
    fn spawn(
        &mut self,
        plan: &Arc<Plan>,
        generation: Token,
    ) -> Result<Spawned<Self::Raw>, SpawnError>;

    /// Whether the child has executed its program. The outcome is reported before the exit and
    /// before any byte of the same generation.
    fn outcome(&mut self, generation: Token) -> SpawnOutcome;

    /// Sleeps until something may be done, until `until`, or until a signal interrupts it. Clears
    /// `out` and fills it in the order of `Notice::rank`.
    ///
    /// Returns at the time of `At` or later when nothing happens, at most 1 ms and the scheduling
    /// delay late. An interrupted wait is `Ok`. Notices that do not fit are given by the next wait,
    /// and `out.more` says so.
    ///
    /// # Errors
    ///
    /// The poll set has failed, or this is a forked copy of the process.
    fn wait(&mut self, until: Until, out: &mut Notices) -> Result<(), WaitError>;

    /// Sleeps until this time without the poll set: for the end of a loop whose poll set has failed.
    fn sleep_until(&mut self, until: Ns);

    /// Reads each stream of the batch once, without blocking, at most as much as the blocks have
    /// room for. An interrupted read is repeated.
    ///
    /// After the leader was collected as ended, the next reads return every byte that it wrote, and
    /// end of file if nobody else holds the pipe.
    fn read(&mut self, batch: &mut Batch);

    /// Writes to a fed stdin without blocking. EPIPE raises no signal in the host.
    fn write(&mut self, stdin: Token, bytes: &[u8]) -> Wrote;

    /// Closes a stream, or ends the watch of a member or of the exit. Idempotent. When it returns,
    /// a closed read end is closed for the writer too (EPIPE).
    fn close(&mut self, what: Token);

    /// Asks whether the leader has ended. Asks about this child only, by pidfd or pid.
    fn collect(&mut self, generation: Token, mode: CollectMode) -> Collected;

    /// Signals the whole group, in ways that reach nobody else: through the leader's pidfd with the
    /// group flag (Linux 6.9); by the group's number while the leader is not reaped; through the
    /// pidfds of verified members.
    fn signal(&mut self, generation: Token, signal: Signal) -> Signalled;

    /// Signals members outside the group that a scan has found and that [`Kernel::signal`] has not
    /// reached. Only a cookie finds such members.
    fn signal_outside(&mut self, generation: Token, signal: Signal) -> Signalled {
        let _ = (generation, signal);
        Signalled::Empty
    }

    /// Signals the leader alone, if it has not been reaped.
    fn signal_leader(&mut self, generation: Token, signal: Signal) -> Signalled;

    /// Asks whether anybody is left in the group; one system call.
    fn probe(&mut self, generation: Token) -> Probe;

    /// Does one slice of a scan, and puts the results into `scan.found`.
    fn scan(&mut self, scan: &mut Scan) -> ScanStep;

    /// Watches a member: a `Notice::MemberGone` with `token` comes when it ends. `token` is of
    /// kind `TokenKind::Member`.
    ///
    /// # Errors
    ///
    /// ESRCH if the member has ended already; EMFILE and ENFILE for want of descriptors; ENOSYS
    /// without pidfd_open(2) (Linux 5.3) or /proc.
    fn watch(&mut self, member: &Member, token: Token) -> Result<(), Errno>;

    /// Releases a generation that is over for the reactor.
    fn release(&mut self, generation: Token, how: Release) -> Released<Self::Raw>;

    /// Closes descriptors whose close was deferred: pipes at end of file, and pidfds of reaped
    /// leaders. [`Kernel::wait`] and [`Kernel::spawn`] do this too.
    fn close_deferred(&mut self) {}

    /// Makes the loop's descriptor readable at `at`, for hosts that watch only the descriptor.
    /// `None` cancels it.
    fn alarm(&mut self, at: Option<Ns>);

    /// A handle that wakes a wait of this kernel from any thread.
    fn waker(&self) -> Self::Waker;
}
