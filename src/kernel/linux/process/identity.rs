//! What identifies a process beyond its process id, which the kernel reuses.

use super::leader::LeaderState;
use super::pidfd;
use crate::kernel::linux::procfs::{Proc, Stat, is_gone};
use crate::types::Errno;
use std::os::fd::OwnedFd;

/// A process id and the start time of the process that had it. Both together name one process for
/// as long as the system runs, give or take a clock tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ProcessIdentity {
    /// The process id.
    pub pid: u32,
    /// Start time in clock ticks since boot ([`Stat::start`]).
    pub start: u64,
}

/// Opens a pidfd of a living process and checks afterwards that the process is the one meant.
///
/// The descriptor is opened first, so the check holds for the process that the descriptor names.
/// With `start` the process must have that start time; without, any process with this id will do.
///
/// # Errors
///
/// ESRCH: the process has ended, or another process has its id. Otherwise the errno of
/// pidfd_open(2) or of reading /proc.
pub(crate) fn open_verified(
    proc: &Proc,
    pid: u32,
    start: Option<u64>,
) -> Result<(OwnedFd, Stat), Errno> {
    let gone = Errno::from_raw(libc::ESRCH);
    let fd = pidfd::open(pid)?;
    let stat = proc
        .stat(pid)
        .map_err(|e| if is_gone(e) { gone } else { e })?;
    if start.is_none_or(|start| start == stat.start) && stat.is_alive() {
        Ok((fd, stat))
    } else {
        Err(gone)
    }
}

/// Whether a process is in the group that a leader has led.
///
/// Group and session must be the leader's. Once the leader was reaped, no living process may have
/// the group's number as its process id: that process would lead another group of the same number.
pub(crate) fn is_group_member(stat: &Stat, group: u32, session: u32, leader: LeaderState) -> bool {
    stat.group == group
        && stat.session == session
        && (leader != LeaderState::Reaped || pidfd::group_of(group).is_none())
}
