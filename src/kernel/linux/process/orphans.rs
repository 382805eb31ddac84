//! Reaping of orphans: processes whose parent has ended and that this process has inherited as a
//! child subreaper (PR_SET_CHILD_SUBREAPER) or as process 1.

use super::leader::LeaderState;
use super::pidfd;
use super::pidfd::{ChildRef, wait_child};
use crate::kernel::linux::lingering::Lingering;
use crate::kernel::linux::poll::Poller;
use crate::kernel::linux::procfs::Proc;
use crate::kernel::linux::table::{Row, Table};
use crate::types::CollectMode;

/// Zombies that one call of [`reap_zombies`] reaps at most. The rest stays for the next call.
const ZOMBIES_PER_CALL: usize = 4096;

/// Reaps every zombie child of this process that is no generation's leader.
///
/// waitid(2) gives zombies one by one and always the same one first. If that is a leader, which is
/// collected in its own time, the zombies behind it are looked for in /proc.
pub(crate) fn reap_zombies(table: &Table, lingering: &Lingering, proc: Option<&Proc>) {
    for _ in 0..ZOMBIES_PER_CALL {
        let Some(pid) = pidfd::any_zombie() else {
            return;
        };
        if is_leader(table, lingering, pid) {
            break;
        }
        reap_by_pid(pid);
    }
    let Some(proc) = proc else { return };
    proc.for_each_pid(|pid| {
        let is_zombie_child = || {
            proc.stat(pid)
                .is_ok_and(|stat| stat.parent == std::process::id() && !stat.is_alive())
        };
        if !is_leader(table, lingering, pid) && is_zombie_child() {
            reap_by_pid(pid);
        }
    });
}

/// Arranges for the known members of a released generation to be reaped when they end, as far as
/// they are children of this process by now.
pub(crate) fn reap_later(row: &Row, lingering: &mut Lingering, proc: &Proc, poller: &mut Poller) {
    for member in &row.known {
        let Ok(fd) = pidfd::open(member.pid) else {
            continue;
        };
        let is_child = proc
            .stat(member.pid)
            .is_ok_and(|stat| stat.start == member.start && stat.parent == std::process::id());
        if is_child && member.pid != row.pid {
            lingering.add_child(member.pid, Some(fd), poller);
        }
    }
}

/// Reaps a zombie child. While it is a zombie nobody else can have its process id.
fn reap_by_pid(pid: u32) {
    let _ = wait_child(ChildRef { pid, pidfd: None }, CollectMode::Reap);
}

/// Whether this process is a leader that has not been collected yet.
fn is_leader(table: &Table, lingering: &Lingering, pid: u32) -> bool {
    table
        .iter()
        .any(|row| row.pid == pid && row.leader != LeaderState::Reaped)
        || lingering.has_child(pid)
}
