//! One look through /proc, in slices: the living members of groups, and the holders of pipes.
//!
//! One look serves everybody who waits for one: a look at 45,000 descriptors takes 90 ms. Members are found by asking each
//! process for its group (one call, no file) and reading the stat of those that belong; holders by comparing the links below
//! /proc/PID/fd, members of the groups in question first.

use super::pidfd::group_of;
use super::procfs::{Path, Proc, Stat, is_gone};
use super::table::{Leader, Table};
use super::{clock, pidfd};
use crate::error::Errno;
use crate::kernel::{Found, Scan, ScanStep};
use crate::limits;
use crate::token::Token;
use crate::words::{Holder, Stream};
use rustix::fs::{AtFlags, Mode, OFlags, RawDir, SeekFrom, openat, readlinkat_raw, seek, statat};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What steps cost, in microseconds of an ordinary machine, and what a slice may cost per process of its budget. So a process
/// with thousands of descriptors is looked at in several slices.
const PER_PROCESS: usize = 3;
const ASK_GROUP: usize = 3;
const OPEN_FDS: usize = 16;
const LOOK_AT_FD: usize = 3;

/// A group whose members, or pipes whose holders, are looked for.
#[derive(Debug)]
struct Target {
    token: Token,
    /// The leader's number, and the group's.
    pid: u32,
    session: u32,
    /// A leader that is not seen to end counts as a member; a number that was reaped means somebody else.
    leader: Leader,
    wants_members: bool,
    /// Inodes of the open streams' pipes.
    pipes: [Option<u64>; 2],
    /// How many were found.
    members: usize,
    holders: usize,
}

/// A process whose descriptors are being looked at.
#[derive(Debug)]
struct OpenFds {
    pid: u32,
    dir: OwnedFd,
    seen_any: bool,
    /// Its main thread's list was empty, and this is another thread's.
    is_threads: bool,
    /// Target and streams found so far.
    hits: Vec<(usize, [bool; 2])>,
}

/// What a look goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    /// All processes: groups are asked; whoever belongs is looked at.
    Groups,
    /// All the others' descriptors.
    Others,
}

/// A look under way.
#[derive(Debug)]
struct Look {
    id: u64,
    pass: Pass,
    targets: Vec<Target>,
    /// (group, target), sorted.
    groups: Vec<(u32, usize)>,
    /// (inode, target, stream), sorted.
    inodes: Vec<(u64, usize, Stream)>,
    /// Looked at in the first pass.
    done: Vec<u32>,
    /// Read from the directory and not looked at yet, the next one last.
    queue: Vec<u32>,
    fds: Option<OpenFds>,
    listed_all: bool,
    complete: bool,
    now: std::time::Duration,
}

/// Looks through /proc. Keeps the place between two slices.
#[derive(Debug)]
pub(crate) struct Scanner {
    proc: Result<Proc, Errno>,
    look: Option<Look>,
    buffer: Box<[MaybeUninit<u8>]>,
}

impl Scanner {
    /// Opens /proc. Without one every look is empty and not complete.
    pub(crate) fn new() -> Scanner {
        Scanner { proc: Proc::open(), look: None, buffer: vec![MaybeUninit::uninit(); 4096].into_boxed_slice() }
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

    /// One slice.
    pub(crate) fn slice(&mut self, scan: &mut Scan, table: &Table) -> ScanStep {
        let Ok(proc) = &self.proc else {
            self.look = None;
            return ScanStep::Done { complete: false };
        };
        let mut look = match self.look.take() {
            Some(look) if look.id == scan.id => look,
            _ => match Look::new(scan, table, proc) {
                Some(look) => look,
                None => return ScanStep::Done { complete: false },
            },
        };
        let mut left = scan.budget.max(1) * PER_PROCESS;
        loop {
            match look.step(proc, &mut self.buffer, &mut scan.found) {
                Some(cost) if cost < left => left -= cost,
                Some(_) => {
                    self.look = Some(look);
                    return ScanStep::More;
                }
                None => return ScanStep::Done { complete: look.complete },
            }
        }
    }
}

impl Look {
    fn new(scan: &Scan, table: &Table, proc: &Proc) -> Option<Look> {
        seek(proc.dir(), SeekFrom::Start(0)).ok()?;
        let mut targets: Vec<Target> = Vec::with_capacity(scan.members.len() + scan.holders.len());
        let wanted = scan.members.iter().map(|t| (t, true)).chain(scan.holders.iter().map(|t| (t, false)));
        for (token, wants_members) in wanted {
            // Stale: nobody waits for it.
            let Some(row) = table.get(*token) else { continue };
            let mut pipes = [None; 2];
            if !wants_members {
                for stream in Stream::ALL {
                    let reader = row.readers.get(stream.index()).and_then(Option::as_ref);
                    pipes[stream.index()] = reader.and_then(|r| rustix::fs::fstat(&r.fd).ok()).map(|s| s.st_ino);
                }
            }
            targets.push(Target {
                token: *token,
                pid: row.pid,
                session: row.session,
                leader: row.leader,
                wants_members,
                pipes,
                members: 0,
                holders: 0,
            });
        }
        let mut groups: Vec<(u32, usize)> = targets.iter().enumerate().map(|(n, t)| (t.pid, n)).collect();
        groups.sort_unstable();
        let each = |(n, t): (usize, &Target)| Stream::ALL.map(|s| t.pipes[s.index()].map(|inode| (inode, n, s)));
        let mut inodes: Vec<(u64, usize, Stream)> = targets.iter().enumerate().flat_map(each).flatten().collect();
        inodes.sort_unstable();
        Some(Look {
            id: scan.id,
            pass: Pass::Groups,
            targets,
            groups,
            inodes,
            done: Vec::new(),
            queue: Vec::with_capacity(256),
            fds: None,
            listed_all: false,
            complete: !proc.hides(),
            now: clock::since_boot(),
        })
    }

    /// One step, and its cost; `None` when the look is over.
    fn step(&mut self, proc: &Proc, buffer: &mut [MaybeUninit<u8>], found: &mut Vec<Found>) -> Option<usize> {
        if let Some(fds) = self.fds.take() {
            return Some(self.look_at_fds(proc, fds, buffer, found));
        }
        if let Some(pid) = self.queue.pop() {
            return Some(self.look_at_process(proc, pid, found));
        }
        if !self.listed_all {
            return Some(self.list_more(proc, buffer));
        }
        if self.pass == Pass::Others || self.inodes.is_empty() || seek(proc.dir(), SeekFrom::Start(0)).is_err() {
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
                Some(Err(_)) => (self.complete, self.listed_all) = (false, true),
                Some(Ok(entry)) => self.queue.extend(number(entry.file_name())),
            }
            if self.listed_all || entries.is_buffer_empty() {
                break;
            }
        }
        self.queue.reverse();
        PER_PROCESS
    }

    fn look_at_process(&mut self, proc: &Proc, pid: u32, found: &mut Vec<Found>) -> usize {
        match self.pass {
            Pass::Groups => {
                let Some(group) = group_of(pid) else { return ASK_GROUP };
                let begin = self.groups.partition_point(|(g, _)| *g < group);
                let mut belongs = false;
                let mut at = begin;
                while let Some((_, target)) = self.groups.get(at).copied().filter(|(g, _)| *g == group) {
                    belongs = true;
                    self.note_member(proc, pid, target, found);
                    at += 1;
                }
                if belongs && !self.inodes.is_empty() {
                    self.done.push(pid);
                    return ASK_GROUP + self.open_fds(proc, pid);
                }
                ASK_GROUP
            }
            Pass::Others if self.done.binary_search(&pid).is_ok() => 1,
            Pass::Others => self.open_fds(proc, pid),
        }
    }

    /// It is in the group by number: is it a living member of it?
    fn note_member(&mut self, proc: &Proc, pid: u32, target: usize, found: &mut Vec<Found>) {
        let Some(target) = self.targets.get_mut(target).filter(|t| t.wants_members) else { return };
        if pid == target.pid && target.leader != Leader::Running {
            return;
        }
        let stat = match proc.stat(pid) {
            Ok(stat) => stat,
            Err(e) => {
                self.complete &= is_gone(e);
                return;
            }
        };
        if !is_of(&stat, target.pid, target.session, target.leader) || !stat.is_alive() {
            return;
        }
        if target.members >= limits::MEMBERS {
            self.complete = false;
            return;
        }
        target.members += 1;
        found.push(Found::Member(target.token, stat.member(pid, self.now, proc.ticks())));
    }

    fn open_fds(&mut self, proc: &Proc, pid: u32) -> usize {
        // The host's own ends are no news, and leaders are told apart from holders.
        let is_leader = |t: &Target| t.pid == pid && t.leader != Leader::Gone && !t.wants_members;
        if pid == std::process::id() || self.targets.iter().all(is_leader) {
            return 1;
        }
        match openat(proc.dir(), Path::new(format_args!("{pid}/fd")).as_c_str(), DIR, Mode::empty()) {
            Ok(dir) => self.fds = Some(OpenFds { pid, dir, seen_any: false, is_threads: false, hits: Vec::new() }),
            Err(e) if is_gone(e.into()) => {}
            // Refused: another user's. A thread of the kernel has none to refuse.
            Err(_) => self.complete = self.complete && proc.stat(pid).is_ok_and(|stat| stat.is_kernel_thread()),
        }
        OPEN_FDS
    }

    /// One getdents of a process's descriptors.
    fn look_at_fds(&mut self, proc: &Proc, mut fds: OpenFds, buffer: &mut [MaybeUninit<u8>], found: &mut Vec<Found>) -> usize {
        let mut cost = 1;
        let mut is_over = false;
        let most = buffer.len().min(1024);
        let mut entries = RawDir::new(fds.dir.as_fd(), buffer.get_mut(..most).unwrap_or_default());
        loop {
            match entries.next() {
                None => is_over = true,
                Some(Err(rustix::io::Errno::INTR)) => {}
                Some(Err(e)) => {
                    self.complete &= is_gone(e.into());
                    is_over = true;
                }
                Some(Ok(entry)) if number(entry.file_name()).is_some() => {
                    fds.seen_any = true;
                    cost += LOOK_AT_FD;
                    look_at_fd(&self.inodes, fds.dir.as_fd(), entry.file_name(), &mut fds.hits);
                }
                // `.` and `..`
                Some(Ok(_)) => {}
            }
            if is_over || entries.is_buffer_empty() {
                break;
            }
        }
        if !is_over {
            self.fds = Some(fds);
        } else if fds.seen_any || fds.is_threads {
            self.note_holder(proc, &fds, found);
        } else {
            cost += OPEN_FDS;
            self.fds = open_threads_fds(proc, fds.pid);
        }
        cost
    }

    fn note_holder(&mut self, proc: &Proc, fds: &OpenFds, found: &mut Vec<Found>) {
        let mut comm = None;
        for (target, streams) in &fds.hits {
            let Some(target) = self.targets.get_mut(*target) else { continue };
            if target.pid == fds.pid && target.leader != Leader::Gone {
                continue;
            }
            if target.holders >= limits::HOLDERS {
                self.complete = false;
                continue;
            }
            target.holders += 1;
            // A holder that ended meanwhile holds nothing any more.
            let Some(comm) = comm.get_or_insert_with(|| proc.stat(fds.pid).ok().map(|stat| stat.comm)) else { continue };
            let held = Stream::ALL.into_iter().filter(|s| streams[s.index()]).collect();
            found.push(Found::Holder(target.token, Holder::new(fds.pid, comm.clone(), held)));
        }
    }
}

const DIR: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Group and session are the leader's, and, once that was reaped, nobody else has its number: a stranger with that number would
/// lead a group of that number, whose members are not ours.
pub(crate) fn is_of(stat: &Stat, group: u32, session: u32, leader: Leader) -> bool {
    stat.group == group && stat.session == session && (leader != Leader::Gone || group_of(group).is_none())
}

/// The main thread of a process may have ended while others go on with the descriptors: then it shows none.
fn open_threads_fds(proc: &Proc, pid: u32) -> Option<OpenFds> {
    if !proc.stat(pid).is_ok_and(|stat| stat.state == 'Z' && stat.is_alive()) {
        return None;
    }
    let tasks = openat(proc.dir(), Path::new(format_args!("{pid}/task")).as_c_str(), DIR, Mode::empty()).ok()?;
    let mut buffer = [MaybeUninit::uninit(); 512];
    let mut entries = RawDir::new(tasks.as_fd(), &mut buffer);
    let other = loop {
        match entries.next()?.ok().and_then(|entry| number(entry.file_name())) {
            Some(tid) if tid != pid => break tid,
            _ => {}
        }
    };
    let dir = openat(proc.dir(), Path::new(format_args!("{pid}/task/{other}/fd")).as_c_str(), DIR, Mode::empty()).ok()?;
    Some(OpenFds { pid, dir, seen_any: false, is_threads: true, hits: Vec::new() })
}

/// Is this descriptor the write end of a pipe that is looked for?
fn look_at_fd(inodes: &[(u64, usize, Stream)], dir: BorrowedFd<'_>, name: &CStr, hits: &mut Vec<(usize, [bool; 2])>) {
    let mut buffer = [MaybeUninit::uninit(); 40];
    let Ok((link, _)) = readlinkat_raw(dir, name, &mut buffer) else { return };
    let Some(inode) = pipe_inode(link) else { return };
    let begin = inodes.partition_point(|(i, ..)| *i < inode);
    for (_, target, stream) in inodes.iter().skip(begin).take_while(|(i, ..)| *i == inode) {
        // The mode of the link says how it is open (proc_pid_fd(5)): a read end keeps nobody waiting.
        if !statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|s| s.st_mode & 0o200 != 0) {
            return;
        }
        match hits.iter_mut().find(|(t, _)| t == target) {
            Some((_, streams)) => streams[stream.index()] = true,
            None => {
                let mut streams = [false; 2];
                streams[stream.index()] = true;
                hits.push((*target, streams));
            }
        }
    }
}

fn pipe_inode(link: &[u8]) -> Option<u64> {
    let inode = link.strip_prefix(b"pipe:[")?.strip_suffix(b"]")?;
    std::str::from_utf8(inode).ok()?.parse().ok()
}

fn number(name: &CStr) -> Option<u32> {
    name.to_str().ok().filter(|n| n.starts_with(|c: char| c.is_ascii_digit()))?.parse().ok()
}

/// Is this still the member that was found, and one of the group? Its descriptor was opened before the question, so the answer
/// holds for whom the descriptor means. Without a start time whoever has the number now is meant.
pub(crate) fn open_verified(proc: &Proc, pid: u32, start: Option<u64>) -> Result<(OwnedFd, Stat), Errno> {
    let fd = pidfd::open(pid)?;
    let stat = proc.stat(pid).map_err(|e| if is_gone(e) { Errno::from_raw(libc::ESRCH) } else { e })?;
    if start.is_none_or(|start| start == stat.start) && stat.is_alive() { Ok((fd, stat)) } else { Err(Errno::from_raw(libc::ESRCH)) }
}
