//! The search for processes that hold a captured stream open.

use super::cost;
use super::fd_list::{FdList, FdStep, Hit};
use super::state::{ScanState, Search, Target};
use crate::kernel::Found;
use crate::kernel::linux::process::leader::LeaderState;
use crate::kernel::linux::procfs::{Proc, is_gone};
use crate::types::{Holder, Stream, limits};
use std::mem::MaybeUninit;

impl ScanState {
    /// Begins to examine the descriptors of a process; returns the cost. The host's own ends are
    /// not of interest, and neither are those of a leader that has not been reaped.
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
                // Closed before the process is read further: it may be the last descriptor that
                // the host may have.
                let hits = fds.into_hits();
                self.add_holder(proc, pid, &hits, found);
            }
            FdStep::Empty => {
                match FdList::open_other_thread(proc, pid) {
                    Ok(fds) => self.fds = fds,
                    Err(e) => self.complete.holders &= is_gone(e),
                }
                return cost + cost::OPEN_FD_LIST;
            }
        }
        cost
    }

    /// Adds the process to the holders of each stream that it can write to.
    fn add_holder(&mut self, proc: &Proc, pid: u32, hits: &[Hit], found: &mut Vec<Found>) {
        if hits.is_empty() {
            return;
        }
        let comm = match proc.stat(pid) {
            Ok(stat) => stat.comm,
            Err(e) => {
                // A process that has ended meanwhile holds nothing any more.
                self.complete.holders &= is_gone(e);
                return;
            }
        };
        for (target, streams) in hits {
            let Some(target) = self.targets.get_mut(*target) else {
                continue;
            };
            if is_unreaped_leader(target, pid) {
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
            let held = Stream::ALL
                .into_iter()
                .filter(|s| streams[s.index()])
                .collect();
            found.push(Found::Holder(
                target.token,
                Holder::new(pid, comm.clone(), held),
            ));
        }
    }
}

fn is_unreaped_leader(target: &Target, pid: u32) -> bool {
    target.pid == pid && target.leader != LeaderState::Reaped
}
