//! When a scan that has found no member proves that there is none.
//!
//! A scan takes time, and processes that fork and exit in turn can stay ahead of it. So an empty
//! list is not believed while the kernel says that the group has members, unless those members are
//! known to be dead.

use super::state::{EscapeeSearch, MemberSearch, ScanState, Target, ZombieMember};
use crate::kernel::linux::containment::ContainmentState;
use crate::kernel::linux::process::group::is_empty_by_number;
use crate::kernel::linux::process::leader::LeaderState;
use crate::kernel::linux::process::pidfd;
use crate::kernel::linux::table::{Row, Table};

impl ScanState {
    /// Whether every target without a member found has certainly none. `previous` are the zombies
    /// that the scan before this one has met.
    pub(super) fn is_empty_certain(
        &self,
        table: &Table,
        escapees: &EscapeeSearch,
        previous: &[ZombieMember],
    ) -> bool {
        self.targets.iter().all(|target| {
            let Some((search, row)) = target.members().zip(table.get(target.token)) else {
                return true;
            };
            if search.found > 0 {
                return true;
            }
            match row.containment.as_deref() {
                // `cgroup.events` does not count zombies.
                Some(ContainmentState::Cgroup(cgroup)) => cgroup.is_populated() == Some(false),
                Some(ContainmentState::Cookie(_)) => {
                    self.is_group_empty(target, search, row, previous)
                        && has_no_orphans(target, table, escapees)
                }
                None => self.is_group_empty(target, search, row, previous),
            }
        })
    }

    /// Whether the group has no living member: its number is not in use, or only by zombies that
    /// were zombies in the previous scan. A zombie that is new may have left a child that this scan
    /// has missed.
    fn is_group_empty(
        &self,
        target: &Target,
        search: &MemberSearch,
        row: &Row,
        previous: &[ZombieMember],
    ) -> bool {
        if row.leader == LeaderState::Running || is_empty_by_number(target.pid) {
            return true;
        }
        if search.others == 0 {
            // The number is in use by the leader's own zombie alone.
            return row.leader == LeaderState::Zombie;
        }
        self.zombies
            .iter()
            .filter(|zombie| zombie.token == target.token)
            .all(|zombie| previous.contains(zombie))
    }
}

/// Whether the generation has certainly no orphan without a cookie. A generation that owns all
/// orphans has none if this process has no child. That cannot be asked while a leader is not
/// reaped.
fn has_no_orphans(target: &Target, table: &Table, escapees: &EscapeeSearch) -> bool {
    !escapees.owns_orphans(target.token)
        || table.iter().any(|row| row.leader != LeaderState::Reaped)
        || !pidfd::has_children()
}
