//! Cgroups of the simulated world: one of a generation's own, whose members cannot leave it, and
//! that tells when it empties.

use super::log::{Happened, Violation};
use super::signals::Reached;
use super::world::World;
use crate::kernel::Notice;
use crate::types::{Ns, Signal, Token};

/// `cgroup.events` tells of a change at most so often (CGROUP_FILE_NOTIFY_MIN_INTV,
/// kernel/cgroup/cgroup.c): what changes in between is told together.
pub const NOTIFY_PAUSE: Ns = Ns::from_millis(10);

/// Where the simulated cgroup2 file system is mounted. A parent that is not below it is none.
pub const MOUNT: &str = "/sys/fs/cgroup";

/// A cgroup's number. Never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CgroupId(pub u64);

/// A cgroup of a generation's own.
#[derive(Clone, Debug)]
pub struct Cgroup {
    path: String,
    /// Who is told of changes.
    watch: Option<Token>,
    /// When a change was, or will be, told last.
    told_at: Option<Ns>,
    /// Its generation is over: it goes when it is empty.
    is_left: bool,
}

impl Cgroup {
    /// Where it is.
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl World {
    pub(super) fn make_cgroup(&mut self, path: String, watch: Token) -> CgroupId {
        self.next_cgroup += 1;
        let id = CgroupId(self.next_cgroup);
        self.cgroups.insert(
            id,
            Cgroup {
                path,
                watch: Some(watch),
                told_at: None,
                is_left: false,
            },
        );
        self.note(Happened::CgroupMade(id));
        id
    }

    /// Whether anybody in it is alive: a zombie does not count.
    pub(super) fn is_populated(&self, id: CgroupId) -> bool {
        self.processes
            .values()
            .any(|p| p.cgroup == Some(id) && !p.is_zombie())
    }

    /// `populated` is another: told at once, or together with what else changes until it may be
    /// told again.
    pub(super) fn cgroup_changed(&mut self, id: CgroupId) {
        let is_over = !self.is_populated(id);
        let now = self.now;
        let Some(cgroup) = self.cgroups.get_mut(&id) else {
            return;
        };
        if cgroup.is_left && is_over {
            self.remove_cgroup(id);
            return;
        }
        let at = cgroup
            .told_at
            .map_or(now, |told| told.after(NOTIFY_PAUSE).max(now));
        if let (Some(token), false) = (cgroup.watch, cgroup.told_at.is_some_and(|told| told > now))
        {
            cgroup.told_at = Some(at);
            self.edges.push((at, Notice::CgroupChanged(token)));
        }
    }

    /// `cgroup.kill`: everybody in it, whatever user he has become.
    pub(super) fn kill_cgroup(&mut self, id: CgroupId, family: u64) -> Reached {
        let inside: Vec<(u32, u64)> = self
            .processes
            .values()
            .filter(|p| p.cgroup == Some(id) && !p.is_zombie())
            .map(|p| (p.pid, p.family))
            .collect();
        let mut reached = Reached::Nobody;
        for (pid, of) in inside {
            if of == family {
                self.deliver(pid, Signal::KILL);
                reached = Reached::Somebody;
            } else {
                self.violations.push(Violation::Stranger {
                    pid,
                    signal: Signal::KILL,
                });
            }
        }
        reached
    }

    /// Its generation is over: it is removed at once, or when it is empty.
    pub(super) fn leave_cgroup(&mut self, id: CgroupId) {
        if self.is_populated(id) {
            if let Some(cgroup) = self.cgroups.get_mut(&id) {
                (cgroup.watch, cgroup.is_left) = (None, true);
            }
        } else {
            self.remove_cgroup(id);
        }
    }

    fn remove_cgroup(&mut self, id: CgroupId) {
        if self.cgroups.remove(&id).is_some() {
            self.note(Happened::CgroupRemoved(id));
        }
    }
}
