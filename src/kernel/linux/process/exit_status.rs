//! Has the leader ended, and how?

use super::pidfd;
use super::pidfd::{Waited, wait_child};
use crate::kernel::Collected;
use crate::kernel::linux::poll::Poller;
use crate::kernel::linux::table::{ExitWatch, Leader, Row};
use crate::types::{ExitInfo, Keep, ResourceUsage};
use std::os::fd::AsFd;

/// Boxes of rows that were let go, for the next exits.
pub(crate) type Spare = Vec<Box<ExitInfo>>;

/// Asks, and notes the answer in the row, in one of the boxes that are spare. Once it has ended the
/// answer is always the same.
pub(crate) fn collect(
    row: &mut Row,
    keep: Keep,
    poller: &mut Poller,
    spare: &mut Spare,
) -> Collected {
    let reap = keep == Keep::No;
    match row.leader {
        Leader::Running => {}
        Leader::Kept => {
            if reap {
                // Whatever the answer: the zombie was ours, or has been stolen meanwhile.
                let _ = wait_child(row.name(), true);
                row.leader = Leader::Gone;
            }
            return told(row);
        }
        Leader::Gone => return told(row),
    }
    match wait_child(row.name(), reap) {
        Waited::NotYet => {
            not_yet(row, poller);
            return Collected::NotYet;
        }
        Waited::Ended(info, peak) => {
            let usage = info.usage.map(|u| ResourceUsage {
                max_rss_kib: pidfd::peak(peak, row.host_peak),
                ..u
            });
            row.exit = Some(boxed(
                ExitInfo {
                    exit: info.exit,
                    usage,
                },
                spare,
            ));
            row.leader = if reap { Leader::Gone } else { Leader::Kept };
        }
        Waited::NotOurs => {
            let exit = row
                .pidfd
                .as_ref()
                .and_then(|fd| pidfd::exit_from_info(fd.as_fd()));
            row.exit = exit.map(|exit| boxed(ExitInfo { exit, usage: None }, spare));
            row.leader = Leader::Gone;
        }
        // A filter that has come since the loop was built. It is over when its number is nobody's.
        Waited::Refused(_) => {
            if pidfd::group_of(row.pid).is_some() {
                not_yet(row, poller);
                return Collected::NotYet;
            }
            row.leader = Leader::Gone;
        }
    }
    // After the question: reaping it makes its pidfd ready once more, which is nobody's news.
    row.unwatch_exit(poller);
    told(row)
}

/// In a box of a row that was let go, if there is one.
fn boxed(info: ExitInfo, spare: &mut Spare) -> Box<ExitInfo> {
    let mut place = spare.pop().unwrap_or_else(|| Box::new(info));
    *place = info;
    place
}

fn told(row: &Row) -> Collected {
    row.exit
        .as_deref()
        .copied()
        .map_or(Collected::Lost, Collected::Ended)
}

/// A spurious notice: the pidfd stays in the poll set, and who is asked by number is asked again.
fn not_yet(row: &mut Row, poller: &mut Poller) {
    match (row.watch, &row.pidfd) {
        (ExitWatch::Told, _) => row.watch = ExitWatch::Asked,
        (ExitWatch::Pidfd, Some(pidfd)) => poller.owe_changes(pidfd.as_fd()),
        (ExitWatch::Pidfd | ExitWatch::Asked | ExitWatch::Over, _) => {}
    }
}
