//! Wakes a wait from another thread, by an eventfd in the poll set.

use crate::kernel::Wake;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Wakes a wait of [`crate::kernel::linux::Linux`], the one under way or the next one.
#[derive(Clone, Debug)]
pub struct LinuxWaker(pub(super) WakerFd);

#[derive(Clone, Debug)]
pub(super) enum WakerFd {
    /// With epoll: mio's own, whose every wake makes a new edge.
    Mio(Arc<mio::Waker>),
    /// With io_uring: an eventfd(2), readable until it is read.
    Eventfd(Arc<OwnedFd>),
}

impl LinuxWaker {
    /// Acknowledges the wake-ups so far, so that the next one makes a new notice. Returns the
    /// descriptor that must be armed again, if there is one.
    pub(crate) fn acknowledge(&self) -> Option<BorrowedFd<'_>> {
        match &self.0 {
            WakerFd::Mio(_) => None,
            WakerFd::Eventfd(fd) => {
                // EAGAIN: it was read before.
                let _ = rustix::io::read(fd, &mut [0; 8]);
                Some(fd.as_fd())
            }
        }
    }
}

impl Wake for LinuxWaker {
    fn wake(&self) {
        // The only error is EAGAIN for a full eventfd, which is readable already.
        match &self.0 {
            WakerFd::Mio(waker) => drop(waker.wake()),
            WakerFd::Eventfd(fd) => drop(rustix::io::write(fd, &1_u64.to_ne_bytes())),
        }
    }
}
