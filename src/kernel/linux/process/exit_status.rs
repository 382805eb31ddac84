//! Whether the leader has ended, and how.

use super::leader::{ExitWatch, LeaderState};
use super::pidfd;
use super::pidfd::{WaitResult, wait_child};
use crate::kernel::Collected;
use crate::kernel::linux::poll::Poller;
use crate::kernel::linux::table::Row;
use crate::types::{CollectMode, ExitInfo, ResourceUsage};
use std::os::fd::AsFd;

/// Asks whether the leader has ended, and keeps the answer in the row: after the first
/// [`Collected::Ended`] or [`Collected::Lost`] every call gives the same.
pub(crate) fn collect(row: &mut Row, mode: CollectMode, poller: &mut Poller) -> Collected {
    match row.leader {
        LeaderState::Running => {}
        LeaderState::Zombie => {
            if mode == CollectMode::Reap {
                // The answer does not matter: either the zombie was ours, or it has been reaped by
                // somebody else meanwhile.
                let _ = wait_child(row.child_ref(), CollectMode::Reap);
                row.leader = LeaderState::Reaped;
            }
            return known_exit(row);
        }
        LeaderState::Reaped => return known_exit(row),
    }
    let mut result = wait_child(row.child_ref(), mode);
    let mut reaps = mode == CollectMode::Reap;
    if !reaps && matches!(result, WaitResult::Failed(_)) {
        // No way is left to see the end and keep the zombie.
        result = wait_child(row.child_ref(), CollectMode::Reap);
        reaps = true;
    }
    match result {
        WaitResult::Running => {
            rearm_watch(row, poller);
            return Collected::NotYet;
        }
        WaitResult::Ended(info, peak) => {
            let usage = info.usage.map(|u| ResourceUsage {
                max_rss_kib: pidfd::own_peak_of(peak, row.host_peak),
                ..u
            });
            row.exit = Some(ExitInfo {
                exit: info.exit,
                usage,
            });
            row.leader = if reaps {
                LeaderState::Reaped
            } else {
                LeaderState::Zombie
            };
        }
        WaitResult::NotChild => {
            let exit = row
                .pidfd
                .as_ref()
                .and_then(|fd| pidfd::exit_from_info(fd.as_fd()));
            row.exit = exit.map(|exit| ExitInfo { exit, usage: None });
            row.leader = LeaderState::Reaped;
        }
        // Every wait is refused. The pidfd still tells the end; without one the child has ended when
        // no process has its id. The status stays unknown.
        WaitResult::Failed(_) => {
            let has_ended = match &row.pidfd {
                Some(pidfd) => pidfd::has_ended(pidfd.as_fd()),
                None => pidfd::group_of(row.pid).is_none(),
            };
            if !has_ended {
                rearm_watch(row, poller);
                return Collected::NotYet;
            }
            row.leader = LeaderState::Reaped;
        }
    }
    // Last, since reaping a process makes its pidfd ready once more.
    row.unwatch_exit(poller);
    known_exit(row)
}

fn known_exit(row: &Row) -> Collected {
    row.exit.map_or(Collected::Lost, Collected::Ended)
}

/// After a spurious notice: the next exit makes a notice again.
fn rearm_watch(row: &mut Row, poller: &mut Poller) {
    match (row.watch, &row.pidfd) {
        (ExitWatch::SigchldNotified, _) => row.watch = ExitWatch::Sigchld,
        (ExitWatch::Pidfd, Some(pidfd)) => poller.rearm_multishot(pidfd.as_fd()),
        (ExitWatch::Pidfd | ExitWatch::Sigchld | ExitWatch::Off, _) => {}
    }
}
