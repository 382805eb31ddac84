//! Releasing a generation that is over for the reactor.

use super::deferred_close::DeferredClose;
use super::inner::Inner;
use super::process::leader::LeaderState;
use super::process::orphans;
use super::table::{Row, SpawnState};
use crate::kernel::{Orphans, Released};
use crate::types::Release;
use std::os::fd::OwnedFd;

impl Inner {
    /// Ends a row that has been taken out of the table.
    pub(super) fn let_go(&mut self, mut row: Row, how: Release) -> Released<OwnedFd> {
        if let SpawnState::Pending(pending) = row.spawn {
            self.spawner.recycle(*pending);
            row.spawn = SpawnState::Started;
        }
        if how == Release::Linger {
            for reader in row.readers.iter_mut().filter_map(Option::take) {
                self.lingering.add_pipe(reader.fd, &mut self.poller);
            }
        }
        if let (Orphans::Inherit, Some(proc)) = (self.orphans, self.scanner.proc()) {
            orphans::reap_later(&row, &mut self.lingering, proc, &mut self.poller);
        }
        row.unwatch_all(&mut self.poller);
        let cgroup = row
            .containment
            .take()
            .and_then(|containment| containment.into_cgroup());
        if let Some(cgroup) = cgroup {
            // It is removed now, or, if somebody is still in it, when that process has ended.
            self.lingering.add_cgroup(cgroup, &mut self.poller);
        }
        if how == Release::HandOver {
            let [stdout, stderr] = row.readers.map(|reader| reader.map(|r| r.fd));
            return Released {
                pid: row.pid,
                pidfd: row.pidfd,
                stdin: row.stdin,
                stdout,
                stderr,
            };
        }
        if row.leader != LeaderState::Reaped {
            // Nobody else would reap it.
            self.lingering
                .add_child(row.pid, row.pidfd.take(), &mut self.poller);
        } else if let Some(pidfd) = row.pidfd.take() {
            self.deferred_closes
                .push(DeferredClose::Unwatched(pidfd), &mut self.poller);
        }
        Released {
            pid: row.pid,
            ..Released::default()
        }
    }
}
