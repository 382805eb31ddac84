//! The search for living members: by process group, by cgroup and by cookie.

use super::cost;
use super::state::{Context, ScanState, Search, Target};
use crate::kernel::linux::process::identity::{ProcessIdentity, is_group_member};
use crate::kernel::linux::process::leader::LeaderState;
use crate::kernel::linux::process::pidfd::group_of;
use crate::kernel::linux::procfs::{Proc, Stat, is_gone, is_shortage};
use crate::kernel::{Found, Orphans};
use arrayvec::ArrayVec;

/// Targets that one process can belong to by its cgroup: itself and those it is nested in.
const CGROUPS_PER_PROCESS: usize = 4;

impl ScanState {
    /// Asks one process which targets it belongs to; returns the cost.
    pub(super) fn visit_process(
        &mut self,
        mut context: Context<'_>,
        pid: u32,
        found: &mut Vec<Found>,
    ) -> usize {
        let Some(group) = group_of(pid) else {
            return cost::GET_GROUP;
        };
        let proc = context.proc;
        let (mut belongs, mut cost) = (false, cost::GET_GROUP);
        let mut at = self.index.groups.partition_point(|(g, _)| *g < group);
        while let Some((_, target)) = self.index.groups.get(at).filter(|(g, _)| *g == group) {
            belongs = true;
            self.check_group_member(&mut context, pid, *target, found);
            at += 1;
        }
        let begin = self.index.cgroup_pids.partition_point(|(p, _)| *p < pid);
        let by_cgroup: ArrayVec<usize, CGROUPS_PER_PROCESS> = self
            .index
            .cgroup_pids
            .iter()
            .skip(begin)
            .take_while(|(p, _)| *p == pid)
            .map(|(_, target)| *target)
            .take(CGROUPS_PER_PROCESS)
            .collect();
        for target in by_cgroup {
            belongs = true;
            self.check_cgroup_member(proc, pid, target, found);
        }
        if self.index.cookies_since.is_some() {
            cost += self.check_cookie(context, pid, found);
        }
        if belongs && !self.index.streams.is_empty() {
            self.queue.examined.push(pid);
            cost += self.open_fds(proc, pid);
        }
        cost
    }

    /// Checks a process whose group has the target's number.
    fn check_group_member(
        &mut self,
        context: &mut Context<'_>,
        pid: u32,
        index: usize,
        found: &mut Vec<Found>,
    ) {
        let Some(target) = self.targets.get_mut(index) else {
            return;
        };
        let is_ended_leader = target.is_ended_leader(pid);
        let Search::Members(search) = &mut target.search else {
            return;
        };
        if is_ended_leader {
            // After the reaping another process has the number, and leads another group.
            search.others += usize::from(target.leader == LeaderState::Reaped);
            return;
        }
        let stat = match context.proc.stat(pid) {
            Ok(stat) => stat,
            Err(e) => {
                self.complete.members &= is_gone(e);
                return;
            }
        };
        if !is_group_member(&stat, target.pid, target.session, target.leader) {
            search.others += 1;
            return;
        }
        if stat.is_alive() {
            let member = stat.into_member(pid, self.now, context.proc.ticks());
            self.add_member(index, member, found);
            return;
        }
        search.others += 1;
        let process = ProcessIdentity {
            pid,
            start: stat.start,
        };
        self.zombies.push(super::ZombieMember {
            token: target.token,
            process,
        });
        if context.escapees.orphans != Orphans::Leave
            && stat.parent == std::process::id()
            && pid != target.pid
        {
            context.inherited_zombies.push(process);
        }
    }

    /// Checks a process that is in the target's cgroup, and so belongs to it whatever its group is.
    fn check_cgroup_member(&mut self, proc: &Proc, pid: u32, index: usize, found: &mut Vec<Found>) {
        let Some(target) = self.targets.get(index) else {
            return;
        };
        if target.is_ended_leader(pid) {
            return;
        }
        match proc.stat(pid) {
            // Members of the group are found by the group.
            Ok(stat) if stat.group == target.pid || !stat.is_alive() => {}
            Ok(stat) => {
                let member = stat.into_member(pid, self.now, proc.ticks());
                self.add_member(index, member, found);
            }
            Err(e) => self.complete.members &= is_gone(e),
        }
    }

    /// Checks whether a process belongs to a target by its cookie, or as an orphan of the
    /// generation that owns them; returns the cost. A process that is older than every leader
    /// with a cookie is not read further.
    fn check_cookie(&mut self, context: Context<'_>, pid: u32, found: &mut Vec<Found>) -> usize {
        let Context {
            proc,
            table,
            escapees,
            inherited_zombies,
        } = context;
        if pid == std::process::id() {
            return 0;
        }
        let stat = match proc.stat(pid) {
            Ok(stat) => stat,
            Err(e) => {
                // Another user's process that hidepid hides cannot show a cookie either.
                self.complete.members &= !is_shortage(e);
                return cost::READ_STAT;
            }
        };
        let is_older = |since: u64| stat.start < since;
        if self.index.cookies_since.is_none_or(is_older) || stat.is_kernel_thread() {
            return cost::READ_STAT;
        }
        let is_orphan = stat.parent == std::process::id()
            && !table
                .iter()
                .any(|row| row.pid == pid && row.leader != LeaderState::Reaped);
        let identity = ProcessIdentity {
            pid,
            start: stat.start,
        };
        let known = self.find_target(|target| {
            target
                .members()
                .is_some_and(|search| search.known.binary_search(&identity).is_ok())
        });
        if !stat.is_alive() {
            if known.is_some() && is_orphan && escapees.orphans != Orphans::Leave {
                inherited_zombies.push(identity);
            }
            return cost::READ_STAT;
        }
        let mut target =
            known.or_else(|| self.find_by_cookie(proc, pid, &stat, &escapees.cookie_prefix));
        if target.is_none() && is_orphan {
            target = self.find_target(|target| {
                escapees.owns_orphans(target.token) && target.seeks_cookie_since(stat.start)
            });
        }
        match target.and_then(|index| Some((index, self.targets.get(index)?))) {
            None => self.descent.others.push((stat.parent, identity)),
            Some((_, target))
                if target.is_ended_leader(pid)
                    // Members of the group were found by the group already.
                    || is_group_member(&stat, target.pid, target.session, target.leader) => {}
            Some((index, _)) => {
                let member = stat.into_member(pid, self.now, proc.ticks());
                self.add_member(index, member, found);
            }
        }
        cost::READ_STAT + cost::READ_ENVIRON
    }

    /// Adds the children of one member to its target, whatever their environment; returns the cost.
    /// `None` when no member is left whose children were not looked for.
    pub(super) fn visit_children(&mut self, proc: &Proc, found: &mut Vec<Found>) -> Option<usize> {
        let (parent, index) = self.descent.parents.pop()?;
        let others = &self.descent.others;
        let begin = others.partition_point(|(ppid, _)| *ppid < parent.pid);
        let children: Vec<ProcessIdentity> = others
            .iter()
            .skip(begin)
            .take_while(|(ppid, _)| *ppid == parent.pid)
            .map(|(_, child)| *child)
            .collect();
        for child in &children {
            // The child is read before the parent: if the parent's process id still means the same
            // process then, it did when the child named it as its parent.
            let is_child = |stat: &Stat| stat.start == child.start && stat.parent == parent.pid;
            let read = proc
                .stat(child.pid)
                .and_then(|stat| Ok((stat, proc.stat(parent.pid)?)));
            let (stat, parent_stat) = match read {
                Ok(both) => both,
                Err(e) => {
                    self.complete.members &= is_gone(e);
                    continue;
                }
            };
            let is_parent = is_child(&stat) && parent_stat.start == parent.start;
            let is_in_group = self.targets.get(index).is_none_or(|target| {
                is_group_member(&stat, target.pid, target.session, target.leader)
            });
            if is_parent && stat.is_alive() && !is_in_group {
                let member = stat.into_member(child.pid, self.now, proc.ticks());
                self.add_member(index, member, found);
            }
        }
        Some(cost::SKIP + children.len() * 2 * cost::READ_STAT)
    }

    /// The target whose cookie is in the environment of this process.
    fn find_by_cookie(
        &mut self,
        proc: &Proc,
        pid: u32,
        stat: &Stat,
        cookie_prefix: &[u8],
    ) -> Option<usize> {
        if stat.state == 'D' {
            // Reading its environment would wait for the lock that it may sleep with.
            for target in &mut self.targets {
                let may_have_cookie = target.seeks_cookie_since(stat.start);
                if let Search::Members(search) = &mut target.search {
                    search.is_doubtful |= may_have_cookie;
                }
            }
            return None;
        }
        let sequence = match proc.find_variable(pid, cookie_prefix) {
            Ok(sequence) => sequence?,
            // Any other error: the process has ended, or is another user's.
            Err(e) => {
                self.complete.members &= !is_shortage(e);
                return None;
            }
        };
        self.find_target(|target| target.has_cookie() && target.token.sequence() == sequence)
    }

    fn find_target(&self, is_wanted: impl Fn(&Target) -> bool) -> Option<usize> {
        self.targets.iter().position(is_wanted)
    }
}
