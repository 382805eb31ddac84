//! Descriptors that are closed after the host has been told what it waits for. Nobody but the
//! host's own descriptor table can tell the difference: they are pipes that were read to end of
//! file, and pidfds of processes that were reaped.

use super::poll::Poller;
use std::os::fd::{AsFd, OwnedFd};

/// Descriptors whose close is deferred, at most; further ones are closed at once.
const MAX_DEFERRED: usize = 64;

/// A descriptor that is not needed any more.
#[derive(Debug)]
pub(super) enum DeferredClose {
    /// It is still in the poll set.
    Watched(OwnedFd),
    /// It has been taken out of the poll set.
    Unwatched(OwnedFd),
}

impl DeferredClose {
    fn close(self, poller: &mut Poller) {
        match self {
            DeferredClose::Watched(fd) => poller.remove(fd.as_fd()),
            DeferredClose::Unwatched(fd) => drop(fd),
        }
    }
}

/// The descriptors that wait to be closed.
#[derive(Debug)]
pub(super) struct DeferredCloses(Vec<DeferredClose>);

impl DeferredCloses {
    pub(super) fn new() -> DeferredCloses {
        DeferredCloses(Vec::with_capacity(MAX_DEFERRED))
    }

    /// Closes the descriptor later, or at once if too many wait already.
    pub(super) fn push(&mut self, descriptor: DeferredClose, poller: &mut Poller) {
        if self.0.len() < MAX_DEFERRED {
            self.0.push(descriptor);
        } else {
            descriptor.close(poller);
        }
    }

    /// Closes all of them.
    pub(super) fn close_all(&mut self, poller: &mut Poller) {
        for descriptor in self.0.drain(..) {
            descriptor.close(poller);
        }
    }
}
