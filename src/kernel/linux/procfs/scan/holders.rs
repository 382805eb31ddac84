//! Who holds a pipe: the links below /proc/PID/fd, compared with the pipes that are looked for.

use super::{DIR, Held, LOOK_AT_FD, Look, OPEN_FDS, Target, number};
use crate::kernel::Found;
use crate::kernel::linux::procfs::{Path, Proc, is_gone};
use crate::kernel::linux::table::Leader;
use crate::types::{Holder, Stream, limits};
use rustix::fs::{AtFlags, Mode, RawDir, openat, readlinkat_raw, statat};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A process whose descriptors are being looked at.
#[derive(Debug)]
pub(crate) struct OpenFds {
    pid: u32,
    dir: OwnedFd,
    seen_any: bool,
    /// Its main thread's list was empty, and this is another thread's.
    is_threads: bool,
    /// Target and streams found so far.
    hits: Vec<(usize, [bool; 2])>,
}

impl Look {
    pub(crate) fn open_fds(&mut self, proc: &Proc, pid: u32) -> usize {
        // The host's own ends are no news, and leaders are told apart from holders.
        let is_leader = |t: &Target| t.pid == pid && t.leader != Leader::Gone && !t.wants_members;
        if pid == std::process::id() || self.targets.iter().all(is_leader) {
            return 1;
        }
        match openat(
            proc.dir(),
            Path::new(format_args!("{pid}/fd")).as_c_str(),
            DIR,
            Mode::empty(),
        ) {
            Ok(dir) => {
                self.fds = Some(OpenFds {
                    pid,
                    dir,
                    seen_any: false,
                    is_threads: false,
                    hits: Vec::new(),
                })
            }
            Err(e) if is_gone(e.into()) => {}
            // Refused: another user's. A thread of the kernel has none to refuse.
            Err(_) => {
                self.complete.holders = self.complete.holders
                    && proc.stat(pid).is_ok_and(|stat| stat.is_kernel_thread())
            }
        }
        OPEN_FDS
    }

    /// One getdents of a process's descriptors.
    pub(crate) fn look_at_fds(
        &mut self,
        proc: &Proc,
        mut fds: OpenFds,
        buffer: &mut [MaybeUninit<u8>],
        found: &mut Vec<Found>,
    ) -> usize {
        let mut cost = 1;
        let mut is_over = false;
        let most = buffer.len().min(1024);
        let mut entries = RawDir::new(fds.dir.as_fd(), buffer.get_mut(..most).unwrap_or_default());
        loop {
            match entries.next() {
                None => is_over = true,
                Some(Err(rustix::io::Errno::INTR)) => {}
                Some(Err(e)) => {
                    self.complete.holders &= is_gone(e.into());
                    is_over = true;
                }
                Some(Ok(entry)) if number(entry.file_name()).is_some() => {
                    fds.seen_any = true;
                    cost += LOOK_AT_FD;
                    look_at_fd(
                        &self.inodes,
                        fds.dir.as_fd(),
                        entry.file_name(),
                        &mut fds.hits,
                    );
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
            let Some(target) = self.targets.get_mut(*target) else {
                continue;
            };
            if target.pid == fds.pid && target.leader != Leader::Gone {
                continue;
            }
            if target.holders >= limits::HOLDERS {
                self.complete.holders = false;
                continue;
            }
            target.holders += 1;
            // A holder that ended meanwhile holds nothing any more.
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

/// The main thread of a process may have ended while others go on with the descriptors: then it
/// shows none.
fn open_threads_fds(proc: &Proc, pid: u32) -> Option<OpenFds> {
    if !proc
        .stat(pid)
        .is_ok_and(|stat| stat.state == 'Z' && stat.is_alive())
    {
        return None;
    }
    let tasks = openat(
        proc.dir(),
        Path::new(format_args!("{pid}/task")).as_c_str(),
        DIR,
        Mode::empty(),
    )
    .ok()?;
    let mut buffer = [MaybeUninit::uninit(); 512];
    let mut entries = RawDir::new(tasks.as_fd(), &mut buffer);
    let other = loop {
        match entries
            .next()?
            .ok()
            .and_then(|entry| number(entry.file_name()))
        {
            Some(tid) if tid != pid => break tid,
            _ => {}
        }
    };
    let dir = openat(
        proc.dir(),
        Path::new(format_args!("{pid}/task/{other}/fd")).as_c_str(),
        DIR,
        Mode::empty(),
    )
    .ok()?;
    Some(OpenFds {
        pid,
        dir,
        seen_any: false,
        is_threads: true,
        hits: Vec::new(),
    })
}

/// Is this descriptor the write end of a pipe, or the socket, that is looked for?
fn look_at_fd(
    inodes: &[(Held, usize, Stream)],
    dir: BorrowedFd<'_>,
    name: &CStr,
    hits: &mut Vec<(usize, [bool; 2])>,
) {
    let mut buffer = [MaybeUninit::uninit(); 40];
    let Ok((link, _)) = readlinkat_raw(dir, name, &mut buffer) else {
        return;
    };
    let Some(held) = held(link) else { return };
    let begin = inodes.partition_point(|(i, ..)| *i < held);
    for (_, target, stream) in inodes.iter().skip(begin).take_while(|(i, ..)| *i == held) {
        // The mode of the link says how it is open (proc_pid_fd(5)): a read end keeps nobody
        // waiting. A socket is open for both.
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

fn held(link: &[u8]) -> Option<Held> {
    let (is_socket, rest) = match link.strip_prefix(b"pipe:[") {
        Some(rest) => (false, rest),
        None => (true, link.strip_prefix(b"socket:[")?),
    };
    let inode = std::str::from_utf8(rest.strip_suffix(b"]")?)
        .ok()?
        .parse()
        .ok()?;
    Some((is_socket, inode))
}
