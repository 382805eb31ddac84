//! The Linux kernel: epoll (through mio) or io_uring, pidfds or SIGCHLD, and /proc.
//!
//! Unsafe code is allowed below this module only (and in the C interface), each block with its
//! reason.
//!
//! [`Linux`] is the outside: it refuses every call in a forked copy of the process, passes the call
//! on to [`Inner`], and then submits what the call has changed in the poll set.
//!
//! | module | what it does |
//! | --- | --- |
//! | `capabilities` | finds out what this kernel, in this process, can do |
//! | `clock` | the only code that reads a clock |
//! | `fork_guard` | recognises a forked copy of the process |
//! | `inner` | the state of the kernel object, and the short calls of the contract |
//! | `table` | slot to row: descriptors and state of each generation |
//! | `poll` | the poll set: epoll or io_uring, the waker, the deadline timer |
//! | `wait` | turns readiness into notices, in the order of the contract |
//! | `spawn_child`, `spawn` | makes a child, and learns whether it executed its program |
//! | `stdio` | the pipes of a child's streams: setup, reading, writing |
//! | `process` | exit statuses, signals, process groups, SIGCHLD |
//! | `procfs` | reads /proc: group members and pipe holders |
//! | `containment` | finds processes outside the group: cookies and cgroups |
//! | `release`, `deferred_close`, `lingering` | what happens to descriptors after a generation has ended |

mod capabilities;
pub(crate) mod clock;
mod containment;
mod deferred_close;
mod fork_guard;
mod inner;
mod jobs;
mod last_errno;
mod lingering;
mod options;
mod poll;
mod process;
mod procfs;
mod release;
pub(crate) mod spawn;
mod spawn_child;
mod stdio;
mod table;
#[cfg(test)]
mod tests;
mod wait;

pub use super::Orphans;
pub use options::LinuxOptions;
pub use poll::LinuxWaker;
pub use process::{abort_guard, signal_state, terminal};

use super::{
    Batch, Collected, Kernel, Notices, ReadResult, Released, Scan, ScanStep, SpawnOutcome, Spawned,
    Until, WaitError, Wrote, sealed,
};
use crate::command::plan::Plan;
use crate::types::{
    Backend, BuildError, Capabilities, CollectMode, Errno, Member, Ns, Probe, Release, Signal,
    Signalled, SpawnError, SpawnStep, Token,
};
use fork_guard::ForkGuard;
use inner::Inner;
use poll::Poller;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Instant;

/// The Linux kernel. It has one poll set, whose descriptor stays the same for its whole life, no
/// thread, and no signal handler unless exits are learnt by SIGCHLD.
///
/// In a forked copy of the process every call is refused, and dropping it closes descriptors only.
#[derive(Debug)]
pub struct Linux {
    guard: ForkGuard,
    inner: Inner,
}

impl Linux {
    /// Finds out what the kernel can do, and makes an empty poll set.
    ///
    /// # Errors
    ///
    /// Descriptors or memory are short, or the options insist on pidfds and there are none.
    pub fn new(options: LinuxOptions) -> Result<Linux, BuildError> {
        let chosen = Poller::choose(options.backend, inner::READY);
        Linux::with(
            options,
            chosen.map_err(|e| BuildError::new("make the poll set", Some(Errno::from(&e))))?,
        )
    }

    fn with(options: LinuxOptions, poller: (Poller, Backend, String)) -> Result<Linux, BuildError> {
        let guard = ForkGuard::new().map_err(|e| BuildError::new("mark the process", Some(e)))?;
        Ok(Linux {
            guard,
            inner: Inner::new(options, poller)?,
        })
    }

    /// Passes a call on, unless this is a forked copy of the process: then the answer is
    /// `refused`. Afterwards the poll set is brought up to date, since the host may sleep on its
    /// descriptor next.
    fn guarded<T>(&mut self, refused: T, call: impl FnOnce(&mut Inner) -> T) -> T {
        if self.guard.is_copy() {
            return refused;
        }
        let answer = call(&mut self.inner);
        self.inner.poller.submit();
        answer
    }
}

impl AsFd for Linux {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.poller.as_fd()
    }
}

impl AsRawFd for Linux {
    fn as_raw_fd(&self) -> RawFd {
        self.inner.poller.as_raw_fd()
    }
}

impl Drop for Linux {
    /// Ends every watch first, so that the descriptors closed by the drop are closed for the other
    /// ends of the pipes too. A forked copy must not do that: the poll set is the host's.
    fn drop(&mut self) {
        self.guarded((), |inner| inner.poller.remove_all());
    }
}

impl sealed::Sealed for Linux {}

impl Kernel for Linux {
    type Raw = OwnedFd;
    type Waker = LinuxWaker;

    fn capabilities(&self) -> &Capabilities {
        &self.inner.capabilities
    }

    fn now(&mut self) -> Ns {
        self.inner.clock.now()
    }

    fn origin(&self) -> Instant {
        self.inner.clock.origin()
    }

    fn tag(&self) -> u32 {
        if self.guard.is_copy() {
            0
        } else {
            self.inner.clock.tag()
        }
    }

    fn deadline(&self) -> Option<Ns> {
        self.inner.internal_deadline()
    }

    fn spawn(
        &mut self,
        plan: &Arc<Plan>,
        generation: Token,
    ) -> Result<Spawned<OwnedFd>, SpawnError> {
        if self.guard.is_copy() {
            let refused = SpawnError::new(SpawnStep::Clone, Errno::from_raw(libc::EPERM));
            return Err(
                refused.because("this process is a forked copy of the one that made the loop")
            );
        }
        let spawned = self.inner.spawn_child(plan, generation);
        self.inner.poller.submit();
        spawned
    }

    fn outcome(&mut self, generation: Token) -> SpawnOutcome {
        self.guarded(SpawnOutcome::NotYet, |inner| {
            inner.spawn_outcome(generation)
        })
    }

    fn wait(&mut self, until: Until, out: &mut Notices) -> Result<(), WaitError> {
        out.clear();
        self.guarded(Err(WaitError::Forked), |inner| inner.wait(until, out))
    }

    fn read(&mut self, batch: &mut Batch) {
        for op in batch.iter_mut() {
            op.result = ReadResult::Stale;
        }
        // A forked copy would take the bytes away from the host.
        self.guarded((), |inner| inner.read(batch));
    }

    fn write(&mut self, stdin: Token, bytes: &[u8]) -> Wrote {
        let refused = Wrote::Failed(Errno::from_raw(libc::EBADF));
        self.guarded(refused, |inner| inner.write(stdin, bytes))
    }

    fn close(&mut self, what: Token) {
        self.guarded((), |inner| inner.close(what));
    }

    fn collect(&mut self, generation: Token, mode: CollectMode) -> Collected {
        self.guarded(Collected::NotYet, |inner| inner.collect(generation, mode))
    }

    fn signal(&mut self, generation: Token, signal: Signal) -> Signalled {
        self.guarded(Signalled::NoWay, |inner| inner.signal(generation, signal))
    }

    fn signal_outside(&mut self, generation: Token, signal: Signal) -> Signalled {
        self.guarded(Signalled::NoWay, |inner| {
            inner.signal_outside(generation, signal)
        })
    }

    fn signal_leader(&mut self, generation: Token, signal: Signal) -> Signalled {
        self.guarded(Signalled::NoWay, |inner| {
            inner.signal_leader(generation, signal)
        })
    }

    fn probe(&mut self, generation: Token) -> Probe {
        self.guarded(Probe::Unknown, |inner| inner.probe(generation))
    }

    fn scan(&mut self, scan: &mut Scan) -> ScanStep {
        let refused = ScanStep::Done {
            members: false,
            holders: false,
        };
        self.guarded(refused, |inner| inner.scan(scan))
    }

    fn watch(&mut self, member: &Member, token: Token) -> Result<(), Errno> {
        let refused = Err(Errno::from_raw(libc::ENOSYS));
        self.guarded(refused, |inner| inner.watch(member, token))
    }

    fn release(&mut self, generation: Token, how: Release) -> Released<OwnedFd> {
        self.guarded(Released::default(), |inner| inner.release(generation, how))
    }

    fn close_deferred(&mut self) {
        self.guarded((), Inner::close_deferred);
    }

    fn sleep_until(&mut self, until: Ns) {
        let now = self.now();
        std::thread::sleep(until.since(now).to_duration());
    }

    fn alarm(&mut self, at: Option<Ns>) {
        self.guarded((), |inner| inner.set_alarm(at));
    }

    fn waker(&self) -> LinuxWaker {
        self.inner.waker.clone()
    }
}

const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Linux>();
};
