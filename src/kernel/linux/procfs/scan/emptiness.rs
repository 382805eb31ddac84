//! When a look that has found nobody may be believed.
//!
//! A look takes a while, and a list is a snapshot: processes that fork and exit in turn are passed
//! by. So an empty list is not the whole truth as long as the kernel says that somebody is there,
//! unless that somebody is known to be dead.

use super::{Look, Orphans, Outside, Target};
use crate::kernel::linux::containment::Contained;
use crate::kernel::linux::process::group::is_empty_by_number;
use crate::kernel::linux::table::{Leader, Row, Table};
use crate::types::Token;
use rustix::process::{WaitId, WaitIdOptions, waitid};

/// A zombie of a group: whose, its number, and its start time.
pub(crate) type Dead = (Token, u32, u64);

impl Look {
    /// Whether those of whom nobody was found have nobody.
    pub(crate) fn is_sure_of_nobody(
        &self,
        table: &Table,
        outside: &Outside,
        before: &[Dead],
    ) -> bool {
        let empty = self
            .targets
            .iter()
            .filter(|target| target.wants_members && target.members == 0);
        empty
            .filter_map(|target| Some((target, table.get(target.token)?)))
            .all(|(target, row)| {
                match row.contained.as_deref() {
                    // It counts no zombies, and knows at once.
                    Some(Contained::Cgroup(cgroup)) => cgroup.is_populated() == Some(false),
                    Some(Contained::Cookie(_)) => {
                        self.group_is_empty(target, row, before) && has_no_orphans(table, outside)
                    }
                    None => self.group_is_empty(target, row, before),
                }
            })
    }

    /// The group's number is in use by nobody, or by zombies that were zombies a look ago, too: one
    /// that has died meanwhile may have left a child behind that this look has passed by.
    fn group_is_empty(&self, target: &Target, row: &Row, before: &[Dead]) -> bool {
        if row.leader == Leader::Running || is_empty_by_number(target.pid) {
            return true;
        }
        // A kept leader is a zombie of that number itself.
        if target.others == 0 {
            return row.leader == Leader::Kept;
        }
        self.dead
            .iter()
            .filter(|dead| dead.0 == target.token)
            .all(|dead| before.contains(dead))
    }
}

/// Where everything that is inherited belongs to the one generation there is: this process has no
/// child.
fn has_no_orphans(table: &Table, outside: &Outside) -> bool {
    if outside.orphans != Orphans::Adopt || table.iter().any(|row| row.leader != Leader::Gone) {
        return true;
    }
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::All, look).is_err()
}
