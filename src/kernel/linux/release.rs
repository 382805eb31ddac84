//! Letting go: of a generation that is over, and of descriptors that are of no use any more.

use super::poll::Poller;
use super::process::leader::LeaderState;
use super::process::orphans;
use super::table::{Birth, Row};
use super::{Linux, Orphans};
use crate::kernel::Released;
use crate::types::Release;
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
        let mut released = Released {
            pid: row.pid,
            ..Released::default()
        };
        match how {
            Release::HandOver => {
                self.reap_later(&row);
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
                    self.lingering.add_pipe(reader.fd, &mut self.poller);
                }
            }
            Release::Close => {}
        }
        self.reap_later(&row);
        row.unwatch_all(&mut self.poller);
        self.leave_cgroup(&mut row);
        if row.leader != LeaderState::Reaped {
            // Reaped at once if it has ended, or else when it does: nobody else will.
            self.lingering
                .add_child(row.pid, row.pidfd.take(), &mut self.poller);
        } else if let Some(pidfd) = row.pidfd.take() {
            self.put_aside(Aside::Unwatched(pidfd));
        }
        released.pidfd = None;
        released
    }

    /// Members that go on after their generation are reaped when they end, if this process has
    /// inherited them.
    fn reap_later(&mut self, row: &Row) {
        if let (Orphans::Inherit, Some(proc)) = (self.orphans, self.scanner.proc()) {
            orphans::reap_later(row, &mut self.lingering, proc, &mut self.poller);
        }
    }

    /// Removes the cgroup now, or when it is empty.
    fn leave_cgroup(&mut self, row: &mut Row) {
        if let Some(cgroup) = row
            .containment
            .take()
            .and_then(|containment| containment.into_cgroup())
        {
            self.lingering.add_cgroup(cgroup, &mut self.poller);
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
