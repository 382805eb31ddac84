//! The poll set, on epoll or on io_uring. The code above asks the same of both.

pub(crate) mod deadline_timer;
mod epoll;
mod event;
pub(crate) mod uring;
mod waker;

pub(crate) use event::{Interest, Key, Ready};
pub use waker::LinuxWaker;

use crate::types::{Backend, BackendChoice, Errno, Ns, Token, limits};
use epoll::Epoll;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use uring::Uring;
use waker::WakerFd;

/// A poll set. Its descriptor stays the same for its whole life.
#[derive(Debug)]
pub(crate) enum Poller {
    /// Edge-triggered: every change is reported once, without rearming.
    Epoll(Epoll),
    /// One-shot: a watch reports once, and must be armed again. Boxed because it is much larger.
    Uring(Box<Uring>),
}

impl Poller {
    /// The poll set that is asked for, or else epoll, with the reason for the choice. One wait
    /// reports at most `capacity` events.
    pub(crate) fn choose(
        choice: BackendChoice,
        capacity: usize,
    ) -> io::Result<(Poller, Backend, String)> {
        let why = match choice {
            BackendChoice::Auto => "epoll is the default".into(),
            BackendChoice::Epoll => "epoll was asked for".into(),
            BackendChoice::Uring => match uring::open(uring::COMPLETIONS) {
                Ok(ring) => {
                    return Ok((
                        Poller::Uring(Box::new(ring)),
                        Backend::Uring,
                        "io_uring was asked for".into(),
                    ));
                }
                Err(refusal) => refusal.to_string(),
            },
        };
        Ok((Poller::Epoll(Epoll::new(capacity)?), Backend::Epoll, why))
    }

    /// How many reads are worth doing before the poll set is asked again: one with epoll, where
    /// each read is a system call of its own; a whole batch with io_uring, which does a batch in
    /// one system call.
    pub(crate) fn reads_per_batch(&self) -> usize {
        match self {
            Poller::Epoll(_) => 1,
            Poller::Uring(_) => limits::BATCH,
        }
    }

    /// Watches a descriptor from now on. Its present state is reported too.
    pub(crate) fn add(
        &mut self,
        fd: BorrowedFd<'_>,
        key: Key,
        interest: Interest,
    ) -> Result<(), Errno> {
        match self {
            Poller::Epoll(epoll) => epoll.add(fd, key, interest),
            Poller::Uring(ring) => ring.add(fd, key, interest),
        }
    }

    /// Watches a descriptor for reading under another key. Its present state is reported again.
    pub(crate) fn reregister(&mut self, fd: BorrowedFd<'_>, key: Key) -> Result<(), Errno> {
        match self {
            Poller::Epoll(epoll) => epoll.reregister(fd, key),
            Poller::Uring(ring) => {
                ring.remove(fd);
                ring.add(fd, key, Interest::Read)
            }
        }
    }

    /// Asks for the next event of a descriptor, after an event of it was dealt with. Does nothing
    /// on epoll, where the next change makes an edge.
    pub(crate) fn rearm(&mut self, fd: BorrowedFd<'_>) {
        match self {
            Poller::Epoll(_) => {}
            Poller::Uring(ring) => ring.rearm(fd),
        }
    }

    /// As [`Poller::rearm`], for a descriptor that stays ready while the event that is waited for
    /// has not come: a leader that has ended and that its tracer has not released yet.
    pub(crate) fn rearm_multishot(&mut self, fd: BorrowedFd<'_>) {
        match self {
            Poller::Epoll(_) => {}
            Poller::Uring(ring) => ring.rearm_multishot(fd),
        }
    }

    /// Ends a watch. Must be called for every descriptor that is closed, since closing it does not
    /// end the watch: a child that has not called exec yet holds a copy of the descriptor, and a
    /// poll of io_uring holds the open file itself. On io_uring the watch ends with the next
    /// [`Poller::submit`].
    pub(crate) fn remove(&mut self, fd: BorrowedFd<'_>) {
        match self {
            Poller::Epoll(epoll) => epoll.remove(fd),
            Poller::Uring(ring) => ring.remove(fd),
        }
    }

    /// Ends every watch.
    pub(crate) fn remove_all(&mut self) {
        match self {
            // Closing the last descriptor of an epoll ends its watches.
            Poller::Epoll(_) => {}
            Poller::Uring(ring) => ring.remove_all(),
        }
    }

    /// Passes queued changes to the kernel. [`crate::kernel::linux::Linux`] does this at the end of
    /// every call, since the host may sleep on the descriptor next.
    pub(crate) fn submit(&mut self) {
        match self {
            Poller::Epoll(_) => {}
            Poller::Uring(ring) => ring.submit(),
        }
    }

    /// Changes could not be passed to the kernel yet, and wait for the next call.
    pub(crate) fn has_unsubmitted(&self) -> bool {
        match self {
            Poller::Epoll(_) => false,
            Poller::Uring(ring) => ring.has_unsubmitted(),
        }
    }

    /// Sleeps until something is ready, at most for `timeout`: zero does not sleep, `None` is no
    /// limit, and epoll rounds up to a millisecond. Replaces the contents of `ready` with the
    /// events, as many as its capacity holds, without allocating. `false` if a signal interrupted
    /// the wait.
    pub(crate) fn wait(
        &mut self,
        timeout: Option<Ns>,
        ready: &mut Vec<Ready>,
    ) -> Result<bool, Errno> {
        ready.clear();
        match self {
            Poller::Epoll(epoll) => epoll.wait(timeout, ready),
            Poller::Uring(ring) => ring.wait(timeout, ready),
        }
    }

    /// Whether the last wait may have left events behind.
    pub(crate) fn was_full(&self) -> bool {
        match self {
            Poller::Epoll(epoll) => epoll.was_full(),
            Poller::Uring(ring) => ring.has_more(),
        }
    }

    /// A waker for this poll set. Called once.
    pub(crate) fn waker(&mut self, token: Token) -> io::Result<LinuxWaker> {
        match self {
            Poller::Epoll(epoll) => Ok(LinuxWaker(WakerFd::Mio(Arc::new(epoll.waker(token)?)))),
            Poller::Uring(ring) => {
                let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
                ring.add(fd.as_fd(), Key::Token(token), Interest::Read)?;
                Ok(LinuxWaker(WakerFd::Eventfd(Arc::new(fd))))
            }
        }
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Poller::Epoll(epoll) => epoll.as_fd(),
            Poller::Uring(ring) => ring.as_fd(),
        }
    }
}

impl AsRawFd for Poller {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
