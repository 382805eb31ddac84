//! How a loop on Linux is built.

use super::{Reactor, Settings};
use crate::kernel::linux::{Linux, LinuxOptions, Orphans};
use crate::text::Projection;
use crate::types::{BackendChoice, BuildError, ExitSourceChoice, GroupSignal, limits};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

/// How a [`Reactor`] is to be built. Every setting has a default; [`Reactor::new`] uses them all.
///
/// ```
/// use lastwords::{ExitSourceChoice, Reactor};
/// use std::time::Duration;
///
/// let mut builder = Reactor::builder();
/// builder.exit_source(ExitSourceChoice::Sigchld).drop_bound(Duration::from_millis(20));
/// let reactor = builder.build()?;
/// println!("{}", reactor.capabilities().exit_why);
/// # Ok::<(), lastwords::BuildError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Builder {
    linux: LinuxOptions,
    settings: Settings,
}

impl Builder {
    /// Which poll set is used. Default: epoll; io_uring only where it is asked for.
    /// [`Reactor::capabilities`] says what was chosen and why.
    pub fn backend(&mut self, backend: BackendChoice) -> &mut Builder {
        self.linux.backend = backend;
        self
    }

    /// How exits are learnt. Default: by pidfd where the kernel offers them, else by SIGCHLD.
    pub fn exit_source(&mut self, source: ExitSourceChoice) -> &mut Builder {
        self.linux.exit_source = source;
        self
    }

    /// Whether groups are signalled through the leader's pidfd. Default: where the kernel can
    /// (Linux 6.9). Other choices are for tests of what older kernels need.
    pub fn group_signal(&mut self, choice: GroupSignal) -> &mut Builder {
        self.linux.group_signal = choice;
        self
    }

    /// Makes the descriptor of the loop readable at its deadline too (timerfd_create(2), one more
    /// descriptor), so that a foreign event loop can watch the descriptor alone and never has to
    /// ask for [`Reactor::next_deadline`]. Default: off.
    pub fn fold_deadline(&mut self, fold: bool) -> &mut Builder {
        self.linux.fold_deadline = fold;
        self.settings.fold_deadline = fold;
        self
    }

    /// Spawns with CLONE_VFORK (clone(2)): the calling thread stands still until exec. Needed under
    /// valgrind. Default: off.
    pub fn vfork(&mut self, vfork: bool) -> &mut Builder {
        self.linux.vfork = vfork;
        self
    }

    /// Makes this process the parent of its descendants whose own parent has ended
    /// (PR_SET_CHILD_SUBREAPER, prctl(2)), instead of process 1. What the loop finds to be a
    /// member of a generation is reaped when it ends; anything else that the host inherits is the
    /// host's to reap. It is never switched on unasked, and not switched off again. Default: off.
    pub fn subreaper(&mut self, on: bool) -> &mut Builder {
        self.linux.orphans = if on { Orphans::Inherit } else { Orphans::Leave };
        self
    }

    /// Like [`Builder::subreaper`], for a program that has no children but the loop's, such as the
    /// first process of a container: every orphan that it inherits is reaped.
    ///
    /// An orphan without a cookie counts as a member of a command that is contained by one
    /// ([`Containment::Cookie`](crate::Containment::Cookie)) only if its parent was seen to be a
    /// member, or if it can have no other origin: the process had no child when that command was
    /// started, and no other command was started since. Children that the process had before, and
    /// their orphans, are neither waited for nor signalled.
    ///
    /// **A host that waits for children of its own, or has a second loop, must not ask for this**:
    /// the loop reaps whatever child ends. Default: off.
    pub fn adopt_orphans(&mut self, on: bool) -> &mut Builder {
        self.linux.orphans = if on { Orphans::Adopt } else { Orphans::Leave };
        self
    }

    /// How long dropping the loop may take to kill and reap what it owns; 0 sends SIGKILL and does
    /// not wait. Default: 100 ms.
    pub fn drop_bound(&mut self, bound: Duration) -> &mut Builder {
        self.settings.drop_bound = bound;
        self
    }

    /// Bytes of free blocks that are kept for later reads. Default: 8 MiB.
    pub fn pool_bytes(&mut self, bytes: usize) -> &mut Builder {
        self.settings.pool_bytes = bytes;
        self
    }

    /// How many reads of running children one turn does at most: from 1 to 1024, anything beyond is
    /// taken for the nearer bound. Each read takes at most about 64 KiB. Exits do not wait for
    /// them: the poll set is looked at after each read (epoll), or after each batch of eight
    /// (io_uring). More reads make turns longer and fewer. Default: 16, so at most 1 MiB.
    pub fn reads_per_turn(&mut self, reads: usize) -> &mut Builder {
        self.settings.reads_per_turn = reads.clamp(1, limits::TURN_READS_MOST);
        self
    }

    /// How safe text is made of every child's stderr and command line: which secrets are taken out.
    /// Default: [`Projection::default`]. A command can have its own
    /// ([`Command::projection`](crate::Command::projection)).
    pub fn projection(&mut self, projection: Projection) -> &mut Builder {
        self.settings.projection = projection;
        self
    }

    /// Builds the loop: a poll set, and what else the choices need. Nothing of the host is changed,
    /// unless SIGCHLD is the exit source: then a handler is installed beside the host's own.
    ///
    /// # Errors
    ///
    /// Too few descriptors or too little memory, or what was asked for explicitly is not to be had
    /// here (io_uring, pidfds).
    pub fn build(&self) -> Result<Reactor, BuildError> {
        Ok(Reactor::with_kernel(
            Linux::new(self.linux)?,
            self.settings.clone(),
        ))
    }
}

/// The one descriptor of the loop, the same for its whole life. It is readable when a turn has
/// something to do.
impl AsFd for Reactor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.kernel.as_fd()
    }
}

impl AsRawFd for Reactor {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
