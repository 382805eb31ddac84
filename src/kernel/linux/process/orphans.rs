//! Children that this process has inherited: reaped, so that no zombie is left of them.

use super::pidfd::{ChildName, wait_child};
use super::{group, pidfd};
use crate::kernel::linux::lingering::Lingering;
use crate::kernel::linux::table::{Leader, Row, Table};
use crate::kernel::linux::{Linux, Orphans};

/// Zombies that one call reaps; the others are taken by the next.
const MOST: usize = 4096;

impl Linux {
    /// Where all children belong to the loop: reaps those that are no generation's leader.
    /// waitid(2) shows the zombies one by one, and always the same first; if that is a leader,
    /// which is collected in its own time, the others are looked for in /proc.
    pub(crate) fn reap_strangers(&mut self) {
        if self.orphans != Orphans::Adopt {
            return;
        }
        for _ in 0..MOST {
            let Some(pid) = pidfd::any_zombie() else {
                return;
            };
            if is_ours(&self.table, &self.lingering, pid) {
                break;
            }
            // A child of ours that is a zombie: nobody else can have its number.
            let _ = wait_child(ChildName { pid, pidfd: None }, true);
        }
        let Some(proc) = self.scanner.proc() else {
            return;
        };
        group::every_process(proc, |pid| {
            let is_zombie = || {
                proc.stat(pid)
                    .is_ok_and(|stat| stat.parent == std::process::id() && !stat.is_alive())
            };
            if !is_ours(&self.table, &self.lingering, pid) && is_zombie() {
                let _ = wait_child(ChildName { pid, pidfd: None }, true);
            }
        });
    }

    /// Members that go on after their generation are reaped when they end, if this process has
    /// inherited them.
    pub(crate) fn leave_to_reap(&mut self, row: &Row) {
        if self.orphans != Orphans::Inherit {
            return;
        }
        for (pid, start) in &row.known {
            let Some(proc) = self.scanner.proc() else {
                return;
            };
            let Ok(fd) = pidfd::open(*pid) else { continue };
            let is_child = proc
                .stat(*pid)
                .is_ok_and(|stat| stat.start == *start && stat.parent == std::process::id());
            if is_child && *pid != row.pid {
                self.lingering.leader(*pid, Some(fd), &mut self.poller);
            }
        }
    }
}

/// It is a leader that has not been collected.
fn is_ours(table: &Table, lingering: &Lingering, pid: u32) -> bool {
    table
        .iter()
        .any(|row| row.pid == pid && row.leader != Leader::Gone)
        || lingering.has_leader(pid)
}
