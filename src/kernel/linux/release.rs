//! Letting go: of a generation that is over, and of descriptors that are of no use any more.

use super::Linux;
use super::poll::Poller;
use super::table::{Birth, Leader, Row};
use crate::kernel::Released;
use crate::types::{Release, limits};
use std::os::fd::{AsFd, OwnedFd};

/// Descriptors that are put aside; more are closed at once.
pub(crate) const ASIDE: usize = 64;

/// A descriptor that is of no use any more.
#[derive(Debug)]
pub(crate) enum Aside {
    /// In the poll set.
    Watched(OwnedFd),
    /// Taken out of it.
    Unwatched(OwnedFd),
}

impl Aside {
    fn close(self, poller: &mut Poller) {
        match self {
            Aside::Watched(fd) => poller.remove(fd.as_fd()),
            Aside::Unwatched(fd) => drop(fd),
        }
    }
}

impl Linux {
    /// Closes it later, after the host has been told what it waits for: a pipe at its end, the
    /// pidfd of one that was reaped.
    pub(crate) fn put_aside(&mut self, aside: Aside) {
        if self.aside.len() < ASIDE {
            self.aside.push(aside);
        } else {
            aside.close(&mut self.poller);
            self.poller.settle();
        }
    }

    /// Lets a row go. In a forked copy its descriptors are closed, and that is all: the poll set is
    /// the host's.
    pub(crate) fn let_go(&mut self, mut row: Row, how: Release) -> Released<OwnedFd> {
        if self.mark.is_copy() {
            return Released::default();
        }
        if let Birth::UnderWay(pending) = row.birth {
            self.spawner.recycle(*pending);
            row.birth = Birth::Started;
        }
        if let Some(exit) = row
            .exit
            .take()
            .filter(|_| self.spare.len() < limits::SPARE_BOXES)
        {
            self.spare.push(exit);
        }
        let mut released = Released {
            pid: row.pid,
            ..Released::default()
        };
        match how {
            Release::HandOver => {
                self.leave_to_reap(&row);
                row.unwatch_all(&mut self.poller);
                self.leave_cgroup(&mut row);
                let [stdout, stderr] = row.readers.map(|reader| reader.map(|r| r.fd));
                return Released {
                    pidfd: row.pidfd,
                    stdin: row.stdin,
                    stdout,
                    stderr,
                    ..released
                };
            }
            Release::Linger => {
                for reader in row.readers.iter_mut().filter_map(Option::take) {
                    self.lingering.pipe(reader.fd, &mut self.poller);
                }
            }
            Release::Close => {}
        }
        self.leave_to_reap(&row);
        row.unwatch_all(&mut self.poller);
        self.leave_cgroup(&mut row);
        if row.leader != Leader::Gone {
            // Reaped at once if it has ended, or else when it does: nobody else will.
            self.lingering
                .leader(row.pid, row.pidfd.take(), &mut self.poller);
        } else if let Some(pidfd) = row.pidfd.take() {
            self.put_aside(Aside::Unwatched(pidfd));
        }
        released.pidfd = None;
        released
    }

    /// It goes now, or, with somebody in it whose work goes on, when that ends.
    fn leave_cgroup(&mut self, row: &mut Row) {
        if let Some(cgroup) = row
            .contained
            .take()
            .and_then(|contained| contained.into_cgroup())
        {
            self.lingering.cgroup(cgroup, &mut self.poller);
        }
    }

    /// [`crate::kernel::Kernel::tidy`].
    pub(crate) fn close_aside(&mut self) {
        if self.aside.is_empty() || self.mark.is_copy() {
            return;
        }
        for aside in self.aside.drain(..) {
            aside.close(&mut self.poller);
        }
        self.poller.settle();
    }
}
