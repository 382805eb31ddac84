//! Signals to a whole generation, members outside its process group included, and the question
//! whether anybody is left of it.

use super::ContainmentState;
use crate::kernel::linux::process::identity::open_verified;
use crate::kernel::linux::process::pidfd::SignalScope;
use crate::kernel::linux::process::{group, pidfd};
use crate::kernel::linux::procfs::Proc;
use crate::kernel::linux::table::Row;
use crate::types::{Capabilities, Probe, Signal, Signalled};
use std::os::fd::AsFd;

/// Which of the members outside the group get a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recipients {
    /// All that are known.
    All,
    /// Those that have not got the last signal yet.
    Unsignalled,
}

/// Signals the group, then the members outside it that are known.
pub(crate) fn signal(
    row: &mut Row,
    signal: Signal,
    capabilities: &Capabilities,
    proc: Option<&Proc>,
) -> Signalled {
    if let Some(ContainmentState::Cookie(cookie)) = row.containment.as_deref_mut() {
        cookie.signalled.clear();
    }
    let group = group::signal(row, signal, capabilities, proc);
    let outside = match row.containment.as_deref() {
        None => return group,
        Some(ContainmentState::Cookie(_)) => {
            signal_known(row, signal, capabilities, proc, Recipients::All)
        }
        Some(ContainmentState::Cgroup(cgroup)) => cgroup.signal_outside(row.pid, signal),
    };
    group.and(outside)
}

/// Signals the known members outside the group that have not got the last signal yet. SIGCONT does
/// not count as one: it accompanies another signal.
pub(crate) fn signal_outside(
    row: &mut Row,
    signal: Signal,
    capabilities: &Capabilities,
    proc: Option<&Proc>,
) -> Signalled {
    match row.containment.as_deref() {
        Some(ContainmentState::Cookie(_)) => {
            signal_known(row, signal, capabilities, proc, Recipients::Unsignalled)
        }
        Some(ContainmentState::Cgroup(_)) | None => Signalled::Empty,
    }
}

/// Signals the members that a scan has found and that are outside the group, one by one, each
/// through a descriptor that was opened before its identity was checked.
fn signal_known(
    row: &mut Row,
    signal: Signal,
    capabilities: &Capabilities,
    proc: Option<&Proc>,
    recipients: Recipients,
) -> Signalled {
    let (Some(proc), true) = (proc, capabilities.pidfd_open && capabilities.pidfd_signal) else {
        return Signalled::Empty;
    };
    let Some(ContainmentState::Cookie(cookie)) = row.containment.as_deref_mut() else {
        return Signalled::Empty;
    };
    let mut result = Signalled::Empty;
    for member in &row.known {
        let is_repeated = recipients == Recipients::Unsignalled
            && signal != Signal::CONT
            && cookie.signalled.contains(member);
        let is_in_group = member.pid == row.pid || pidfd::group_of(member.pid) == Some(row.pid);
        if is_repeated || is_in_group {
            continue;
        }
        let Ok((fd, _)) = open_verified(proc, member.pid, Some(member.start)) else {
            continue;
        };
        match pidfd::send(fd.as_fd(), Some(signal), SignalScope::Process).map_err(|e| e.raw()) {
            Ok(()) => result = Signalled::Sent,
            Err(libc::EPERM) if result != Signalled::Sent => result = Signalled::Denied,
            Err(_) => continue,
        }
        if signal != Signal::CONT {
            cookie.signalled.push(*member);
        }
    }
    result
}

/// Whether anybody is left, in the group or outside.
pub(crate) fn probe(row: &Row, capabilities: &Capabilities) -> Probe {
    let group = group::probe(row, capabilities);
    match (row.containment.as_deref(), group) {
        (None, _) | (_, Probe::Alive) => group,
        // Only a scan finds members by their cookie.
        (Some(ContainmentState::Cookie(_)), Probe::Empty | Probe::Unknown) => Probe::Unknown,
        (Some(ContainmentState::Cgroup(cgroup)), Probe::Empty | Probe::Unknown) => {
            match cgroup.is_populated() {
                Some(true) => Probe::Alive,
                Some(false) => group,
                None => Probe::Unknown,
            }
        }
    }
}
