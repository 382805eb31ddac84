//! The search for processes that hold a captured stream open.

use super::cost;
use super::fd_list::{FdList, FdStep};
use super::state::{ScanState, Search, Target};
use crate::kernel::Found;
use crate::kernel::linux::process::leader::LeaderState;
use crate::kernel::linux::procfs::{Proc, is_gone};
use crate::types::{Holder, Stream, limits};
use std::mem::MaybeUninit;

impl ScanState {
    /// Begins to examine the descriptors of a process; returns the cost. The host's own ends are not
    /// of interest, and neither are those of a leader that has not been reaped.
    pub(super) fn open_fds(&mut self, proc: &Proc, pid: u32) -> usize {
        let is_leader = |target: &Target| {
            matches!(target.search, Search::Holders(_)) && is_unreaped_leader(target, pid)
        };
        if pid == std::process::id() || self.targets.iter().all(is_leader) {
            return cost::SKIP;
        }
        match FdList::open(proc, pid) {
            Ok(fds) => self.fds = Some(fds),
            Err(e) if is_gone(e) => {}
            // Another user's process. A kernel thread refuses too, but has no descriptors.
            Err(_) => {
                self.complete.holders = self.complete.holders
                    && proc.stat(pid).is_ok_and(|stat| stat.is_kernel_thread());
            }
        }
        cost::OPEN_FD_LIST
    }

    /// Examines some of the descriptors of a process; returns the cost.
    pub(super) fn examine_fds(
        &mut self,
        proc: &Proc,
        fds: FdList,
        buffer: &mut [MaybeUninit<u8>],
        found: &mut Vec<Found>,
    ) -> usize {
        let pid = fds.pid;
        let (step, examined) = fds.step(&self.index.streams, buffer);
        let cost = cost::LIST + examined * cost::READ_FD_LINK;
        match step {
            FdStep::More(fds) => self.fds = Some(fds),
            FdStep::Done(fds, result) => {
                self.complete.holders &= result.map_or_else(is_gone, |()| true);
                self.add_holder(proc, &fds, found);
            }
            FdStep::Empty => {
                self.fds = FdList::open_other_thread(proc, pid);
                return cost + cost::OPEN_FD_LIST;
            }
        }
        cost
    }

    /// Adds the process to the holders of each stream that it can write to.
    fn add_holder(&mut self, proc: &Proc, fds: &FdList, found: &mut Vec<Found>) {
        let mut comm = None;
        for (target, streams) in &fds.hits {
            let Some(target) = self.targets.get_mut(*target) else {
                continue;
            };
            if is_unreaped_leader(target, fds.pid) {
                continue;
            }
            let Search::Holders(search) = &mut target.search else {
                continue;
            };
            if search.found >= limits::HOLDERS {
                self.complete.holders = false;
                continue;
            }
            search.found += 1;
            // A process that has ended meanwhile holds nothing any more.
            let Some(comm) =
                comm.get_or_insert_with(|| proc.stat(fds.pid).ok().map(|stat| stat.comm))
            else {
                continue;
            };
            let held = Stream::ALL
                .into_iter()
                .filter(|s| streams[s.index()])
                .collect();
            found.push(Found::Holder(
                target.token,
                Holder::new(fds.pid, comm.clone(), held),
            ));
        }
    }
}

fn is_unreaped_leader(target: &Target, pid: u32) -> bool {
    target.pid == pid && target.leader != LeaderState::Reaped
}
