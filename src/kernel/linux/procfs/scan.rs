//! One look through /proc, in slices: the living members of groups, and the holders of pipes.
//!
//! One look serves everybody who waits for one: a look at 45,000 descriptors takes 90 ms. Members
//! are found by asking each process for its group (one call, no file) and reading the stat of those
//! that belong; holders by comparing the links below /proc/PID/fd, members of the groups in
//! question first.

mod emptiness;
mod holders;

use super::{Proc, Stat, is_gone};
use crate::kernel::linux::containment::Contained;
use crate::kernel::linux::process::pidfd;
use crate::kernel::linux::process::pidfd::group_of;
use crate::kernel::linux::table::{Leader, Reader, Table};
use crate::kernel::linux::{Orphans, clock};
use crate::kernel::{Found, Scan, ScanStep};
use crate::types::{Errno, Member, Stream, Token, limits};
use arrayvec::ArrayVec;
use emptiness::Dead;
use holders::OpenFds;
use rustix::fs::{OFlags, RawDir, SeekFrom, seek};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

/// What steps cost, in microseconds of an ordinary machine, and what a slice may cost per process
/// of its budget. So a process with thousands of descriptors is looked at in several slices.
const PER_PROCESS: usize = 3;
const ASK_GROUP: usize = 3;
const READ_STAT: usize = 8;
const READ_ENVIRON: usize = 12;
const OPEN_FDS: usize = 16;
const LOOK_AT_FD: usize = 3;

/// A pipe or (true) a socket, and its inode.
type Held = (bool, u64);

/// A group whose members, or pipes whose holders, are looked for.
#[derive(Debug)]
struct Target {
    token: Token,
    /// The leader's number, and the group's.
    pid: u32,
    session: u32,
    /// A leader that is not seen to end counts as a member; a number that was reaped means
    /// somebody else.
    leader: Leader,
    wants_members: bool,
    /// When the leader began, if it has a cookie: an older process is not its descendant.
    since: Option<u64>,
    /// Who was a member before, sorted: one that has left the group, and thrown its environment
    /// away, still is.
    known: Vec<(u32, u64)>,
    /// Processes of the group's number that are no living members: zombies, or a stranger's.
    others: usize,
    /// The open streams' pipes or (true) sockets, by inode.
    pipes: [Option<Held>; 2],
    /// Somebody who may have its cookie could not be looked at.
    is_doubtful: bool,
    /// How many were found.
    members: usize,
    holders: usize,
}

impl Target {
    /// One more member. `false` if there are too many.
    fn note(&mut self, member: Member, found: &mut Vec<Found>) -> bool {
        if self.members >= limits::MEMBERS {
            return false;
        }
        self.members += 1;
        found.push(Found::Member(self.token, member));
        true
    }
}

/// What a look goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    /// All processes: groups are asked; whoever belongs is looked at.
    Groups,
    /// All the others' descriptors.
    Others,
}

/// What a look has neither been refused nor missed so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Complete {
    members: bool,
    holders: bool,
}

impl Complete {
    const NOTHING: Complete = Complete {
        members: false,
        holders: false,
    };

    const fn done(self) -> ScanStep {
        ScanStep::Done {
            members: self.members,
            holders: self.holders,
        }
    }
}

/// A look under way.
#[derive(Debug)]
struct Look {
    id: u64,
    pass: Pass,
    targets: Vec<Target>,
    /// (group, target), sorted.
    groups: Vec<(u32, usize)>,
    /// (process, target) of those who are in a cgroup, sorted.
    cgroups: Vec<(u32, usize)>,
    /// The earliest beginning of a leader with a cookie, if there is one.
    cookies_since: Option<u64>,
    /// (what is held, target, stream), sorted.
    inodes: Vec<(Held, usize, Stream)>,
    /// Looked at in the first pass.
    done: Vec<u32>,
    /// Read from the directory and not looked at yet, the next one last.
    queue: Vec<u32>,
    fds: Option<OpenFds>,
    /// Zombies of the groups.
    dead: Vec<Dead>,
    listed_all: bool,
    complete: Complete,
    now: std::time::Duration,
}

/// Looks through /proc. Keeps the place between two slices.
#[derive(Debug)]
pub(crate) struct Scanner {
    proc: Result<Proc, Errno>,
    look: Option<Look>,
    buffer: Box<[MaybeUninit<u8>]>,
    outside: Outside,
    /// Zombies that this process has inherited, and whose members they were: number and start
    /// time.
    zombies: Vec<(u32, u64)>,
    /// Zombies of groups that the look before this one has met.
    dead: Vec<Dead>,
}

/// How those outside the groups are found.
#[derive(Debug)]
struct Outside {
    /// What the names of cookies begin with.
    prefix: Vec<u8>,
    orphans: Orphans,
}

impl Scanner {
    /// Opens /proc. Without one every look is empty and not complete.
    pub(crate) fn new(prefix: &[u8], orphans: Orphans) -> Scanner {
        let outside = Outside {
            prefix: prefix.to_vec(),
            orphans,
        };
        let buffer = vec![MaybeUninit::uninit(); 4096].into_boxed_slice();
        Scanner {
            proc: Proc::open(),
            look: None,
            buffer,
            outside,
            zombies: Vec::new(),
            dead: Vec::new(),
        }
    }

    /// As in a place without /proc.
    #[cfg(test)]
    pub(crate) fn lose_proc(&mut self) {
        self.proc = Err(Errno::from_raw(libc::ENOENT));
    }

    /// /proc, if it is of any use.
    pub(crate) fn proc(&self) -> Option<&Proc> {
        self.proc.as_ref().ok()
    }

    /// Reaps inherited zombies that were found: each through a descriptor that was opened before it
    /// was asked who it is.
    pub(crate) fn reap(&mut self) {
        let Ok(proc) = &self.proc else { return };
        for (pid, start) in self.zombies.drain(..) {
            if let Ok(fd) = pidfd::open(pid)
                && proc
                    .stat(pid)
                    .is_ok_and(|stat| stat.start == start && !stat.is_alive())
            {
                pidfd::reap(fd.as_fd());
            }
        }
    }

    /// One slice.
    pub(crate) fn slice(&mut self, scan: &mut Scan, table: &Table) -> ScanStep {
        let Ok(proc) = &self.proc else {
            self.look = None;
            return Complete::NOTHING.done();
        };
        let mut look = match self.look.take() {
            Some(look) if look.id == scan.id => look,
            _ => match Look::new(scan, table, proc) {
                Some(look) => look,
                None => return Complete::NOTHING.done(),
            },
        };
        let mut left = scan.budget.max(1) * PER_PROCESS;
        loop {
            let from = From {
                proc,
                table,
                outside: &self.outside,
                zombies: &mut self.zombies,
            };
            match look.step(from, &mut self.buffer, &mut scan.found) {
                Some(cost) if cost < left => left -= cost,
                Some(_) => {
                    self.look = Some(look);
                    return ScanStep::More;
                }
                None => {
                    let sure = look.is_sure_of_nobody(table, &self.outside, &self.dead);
                    self.dead = look.dead;
                    scan.doubtful.extend(
                        look.targets
                            .iter()
                            .filter(|target| target.is_doubtful)
                            .map(|target| target.token),
                    );
                    return Complete {
                        members: look.complete.members && sure,
                        ..look.complete
                    }
                    .done();
                }
            }
        }
    }
}

/// What one step looks at.
struct From<'a> {
    proc: &'a Proc,
    table: &'a Table,
    outside: &'a Outside,
    zombies: &'a mut Vec<(u32, u64)>,
}

impl Look {
    fn new(scan: &Scan, table: &Table, proc: &Proc) -> Option<Look> {
        seek(proc.dir(), SeekFrom::Start(0)).ok()?;
        let mut targets: Vec<Target> = Vec::with_capacity(scan.members.len() + scan.holders.len());
        let (mut cgroups, mut complete) = (
            Vec::new(),
            Complete {
                members: !proc.hides(),
                holders: !proc.hides(),
            },
        );
        let wanted = scan
            .members
            .iter()
            .map(|t| (t, true))
            .chain(scan.holders.iter().map(|t| (t, false)));
        for (token, wants_members) in wanted {
            // Stale: nobody waits for it.
            let Some(row) = table.get(*token) else {
                continue;
            };
            let mut pipes = [None; 2];
            if !wants_members {
                for stream in Stream::ALL {
                    let reader = row.readers.get(stream.index()).and_then(Option::as_ref);
                    pipes[stream.index()] = reader.and_then(Reader::held);
                }
            }
            let (mut since, mut known) = (None, Vec::new());
            match row.contained.as_deref().filter(|_| wants_members) {
                Some(Contained::Cookie(cookie)) => {
                    since = Some(cookie.since);
                    known.clone_from(&row.known);
                    known.sort_unstable();
                }
                Some(Contained::Cgroup(cgroup)) => {
                    let mut pids = Vec::new();
                    complete.members &= cgroup.members(&mut pids);
                    cgroups.extend(pids.into_iter().map(|pid| (pid, targets.len())));
                }
                None => {}
            }
            targets.push(Target {
                token: *token,
                pid: row.pid,
                session: row.session,
                leader: row.leader,
                wants_members,
                since,
                known,
                others: 0,
                pipes,
                is_doubtful: false,
                members: 0,
                holders: 0,
            });
        }
        let mut groups: Vec<(u32, usize)> = targets
            .iter()
            .enumerate()
            .map(|(n, t)| (t.pid, n))
            .collect();
        groups.sort_unstable();
        let each = |(n, t): (usize, &Target)| {
            Stream::ALL.map(|s| t.pipes[s.index()].map(|inode| (inode, n, s)))
        };
        let mut inodes: Vec<(Held, usize, Stream)> = targets
            .iter()
            .enumerate()
            .flat_map(each)
            .flatten()
            .collect();
        inodes.sort_unstable();
        cgroups.sort_unstable();
        Some(Look {
            id: scan.id,
            cgroups,
            cookies_since: targets.iter().filter_map(|t| t.since).min(),
            pass: Pass::Groups,
            targets,
            groups,
            inodes,
            done: Vec::new(),
            queue: Vec::with_capacity(256),
            fds: None,
            dead: Vec::new(),
            listed_all: false,
            complete,
            now: clock::since_boot(),
        })
    }

    /// One step, and its cost; `None` when the look is over.
    fn step(
        &mut self,
        from: From<'_>,
        buffer: &mut [MaybeUninit<u8>],
        found: &mut Vec<Found>,
    ) -> Option<usize> {
        let proc = from.proc;
        if let Some(fds) = self.fds.take() {
            return Some(self.look_at_fds(proc, fds, buffer, found));
        }
        if let Some(pid) = self.queue.pop() {
            return Some(self.look_at_process(from, pid, found));
        }
        if !self.listed_all {
            return Some(self.list_more(proc, buffer));
        }
        if self.pass == Pass::Others
            || self.inodes.is_empty()
            || seek(proc.dir(), SeekFrom::Start(0)).is_err()
        {
            return None;
        }
        self.pass = Pass::Others;
        self.listed_all = false;
        self.done.sort_unstable();
        Some(1)
    }

    /// One getdents of /proc.
    fn list_more(&mut self, proc: &Proc, buffer: &mut [MaybeUninit<u8>]) -> usize {
        let mut entries = RawDir::new(proc.dir(), buffer);
        loop {
            match entries.next() {
                None => self.listed_all = true,
                Some(Err(rustix::io::Errno::INTR)) => {}
                Some(Err(_)) => (self.complete, self.listed_all) = (Complete::NOTHING, true),
                Some(Ok(entry)) => self.queue.extend(number(entry.file_name())),
            }
            if self.listed_all || entries.is_buffer_empty() {
                break;
            }
        }
        self.queue.reverse();
        PER_PROCESS
    }

    fn look_at_process(&mut self, mut from: From<'_>, pid: u32, found: &mut Vec<Found>) -> usize {
        let proc = from.proc;
        match self.pass {
            Pass::Groups => {
                let Some(group) = group_of(pid) else {
                    return ASK_GROUP;
                };
                let begin = self.groups.partition_point(|(g, _)| *g < group);
                let (mut belongs, mut cost) = (false, ASK_GROUP);
                let mut at = begin;
                while let Some((_, target)) =
                    self.groups.get(at).copied().filter(|(g, _)| *g == group)
                {
                    belongs = true;
                    self.note_member(&mut from, pid, target, found);
                    at += 1;
                }
                let begin = self.cgroups.partition_point(|(p, _)| *p < pid);
                let in_cgroups: ArrayVec<usize, 4> = self
                    .cgroups
                    .iter()
                    .skip(begin)
                    .take_while(|(p, _)| *p == pid)
                    .map(|t| t.1)
                    .take(4)
                    .collect();
                for target in in_cgroups {
                    belongs = true;
                    self.note_outside(proc, pid, target, found);
                }
                if self.cookies_since.is_some() {
                    cost += self.look_for_cookie(from, pid, found);
                }
                if belongs && !self.inodes.is_empty() {
                    self.done.push(pid);
                    cost += self.open_fds(proc, pid);
                }
                cost
            }
            Pass::Others if self.done.binary_search(&pid).is_ok() => 1,
            Pass::Others => self.open_fds(proc, pid),
        }
    }

    /// It is in the group by number: is it a living member of it?
    fn note_member(
        &mut self,
        from: &mut From<'_>,
        pid: u32,
        target: usize,
        found: &mut Vec<Found>,
    ) {
        let proc = from.proc;
        let Some(target) = self.targets.get_mut(target).filter(|t| t.wants_members) else {
            return;
        };
        if pid == target.pid && target.leader != Leader::Running {
            // After the reaping it is somebody else's number: nobody of ours is left in a group
            // that it belongs to.
            target.others += usize::from(target.leader == Leader::Gone);
            return;
        }
        let stat = match proc.stat(pid) {
            Ok(stat) => stat,
            Err(e) => {
                self.complete.members &= is_gone(e);
                return;
            }
        };
        if !is_of(&stat, target.pid, target.session, target.leader) {
            target.others += 1;
            return;
        }
        if stat.is_alive() {
            self.complete.members &= target.note(stat.member(pid, self.now, proc.ticks()), found);
            return;
        }
        target.others += 1;
        self.dead.push((target.token, pid, stat.start));
        if from.outside.orphans != Orphans::Leave
            && stat.parent == std::process::id()
            && pid != target.pid
        {
            from.zombies.push((pid, stat.start));
        }
    }

    /// It is a member whatever its group is.
    fn note_outside(&mut self, proc: &Proc, pid: u32, target: usize, found: &mut Vec<Found>) {
        let Some(target) = self.targets.get_mut(target) else {
            return;
        };
        if pid == target.pid && target.leader != Leader::Running {
            return;
        }
        match proc.stat(pid) {
            Ok(stat) if stat.group == target.pid || !stat.is_alive() => {}
            Ok(stat) => {
                self.complete.members &=
                    target.note(stat.member(pid, self.now, proc.ticks()), found)
            }
            Err(e) => self.complete.members &= is_gone(e),
        }
    }

    /// Whoever is looked for by a cookie, and began before this one, may have missed it.
    fn doubt(&mut self, start: u64) {
        for target in self
            .targets
            .iter_mut()
            .filter(|target| target.since.is_some_and(|since| since <= start))
        {
            target.is_doubtful = true;
        }
    }

    /// Does it have the cookie of somebody it is looked for by? Costs a read of its environment,
    /// unless it is older than all of them.
    fn look_for_cookie(&mut self, from: From<'_>, pid: u32, found: &mut Vec<Found>) -> usize {
        let From {
            proc,
            table,
            outside,
            zombies,
        } = from;
        if pid == std::process::id() {
            return 0;
        }
        let stat = match proc.stat(pid) {
            Ok(stat) => stat,
            Err(e) => {
                self.complete.members &= is_gone(e);
                return READ_STAT;
            }
        };
        if self.cookies_since.is_none_or(|since| stat.start < since) || stat.is_kernel_thread() {
            return READ_STAT;
        }
        let is_childs = stat.parent == std::process::id()
            && !table
                .iter()
                .any(|row| row.pid == pid && row.leader != Leader::Gone);
        let one = (pid, stat.start);
        let was =
            |target: &Target| target.since.is_some() && target.known.binary_search(&one).is_ok();
        let known = self.targets.iter().position(was);
        if !stat.is_alive() {
            if known.is_some() && is_childs && outside.orphans != Orphans::Leave {
                zombies.push(one);
            }
            return READ_STAT;
        }
        let by_cookie = match known {
            Some(_) => known,
            // It would have to wait for the lock that the process may sleep with.
            None if stat.state == 'D' => {
                self.doubt(stat.start);
                None
            }
            None => match proc.variable_after(pid, &outside.prefix) {
                Ok(id) => self
                    .targets
                    .iter()
                    .position(|t| t.since.is_some() && Some(t.token.sequence()) == id),
                // Gone, or not for us to read.
                Err(_) => None,
            },
        };
        let adopted = || {
            self.targets
                .iter()
                .position(|t| t.since.is_some_and(|since| since <= stat.start))
        };
        let target = by_cookie.or_else(|| {
            if outside.orphans == Orphans::Adopt && is_childs {
                adopted()
            } else {
                None
            }
        });
        if let Some(target) = target.and_then(|target| self.targets.get_mut(target))
            && !(pid == target.pid && target.leader != Leader::Running)
            // Those were noted already.
            && !is_of(&stat, target.pid, target.session, target.leader)
        {
            self.complete.members &= target.note(stat.member(pid, self.now, proc.ticks()), found);
        }
        READ_STAT + READ_ENVIRON
    }
}

const DIR: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// Group and session are the leader's, and, once that was reaped, nobody else has its number: a
/// stranger with that number would lead a group of that number, whose members are not ours.
pub(crate) fn is_of(stat: &Stat, group: u32, session: u32, leader: Leader) -> bool {
    stat.group == group
        && stat.session == session
        && (leader != Leader::Gone || group_of(group).is_none())
}

fn number(name: &CStr) -> Option<u32> {
    name.to_str()
        .ok()
        .filter(|n| n.starts_with(|c: char| c.is_ascii_digit()))?
        .parse()
        .ok()
}

/// Is this still the member that was found, and one of the group? Its descriptor was opened before
/// the question, so the answer holds for whom the descriptor means. Without a start time whoever
/// has the number now is meant.
pub(crate) fn open_verified(
    proc: &Proc,
    pid: u32,
    start: Option<u64>,
) -> Result<(OwnedFd, Stat), Errno> {
    let fd = pidfd::open(pid)?;
    let stat = proc.stat(pid).map_err(|e| {
        if is_gone(e) {
            Errno::from_raw(libc::ESRCH)
        } else {
            e
        }
    })?;
    if start.is_none_or(|start| start == stat.start) && stat.is_alive() {
        Ok((fd, stat))
    } else {
        Err(Errno::from_raw(libc::ESRCH))
    }
}
