//! The open descriptors of one process, as the links below /proc/PID/fd show them.

use crate::kernel::linux::procfs::{Inode, Path, Proc, parse_number};
use crate::types::{Errno, Stream};
use rustix::fs::{AtFlags, Mode, OFlags, RawDir, openat, readlinkat_raw, statat};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Bytes of one getdents(2) call, so that a process with thousands of descriptors takes several
/// steps.
const LISTING_BYTES: usize = 1024;
const DIR: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// A stream whose holders are looked for: its pipe or socket, the target's index, and which stream
/// it is. Sorted by inode in a list of them.
pub(super) type WantedStream = (Inode, usize, Stream);

/// A stream that a process can write to: index of the target, and by [`Stream::index`].
pub(super) type Hit = (usize, [bool; 2]);

/// A process whose descriptors are being examined.
#[derive(Debug)]
pub(super) struct FdList {
    pub(super) pid: u32,
    dir: OwnedFd,
    shown: Shown,
    /// The wanted streams that were found.
    hits: Vec<Hit>,
}

/// What the listing has shown so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    /// No descriptor yet, in the list of the main thread.
    Nothing,
    /// At least one descriptor.
    Some,
    /// The main thread's list was empty, and this is the list of another thread.
    OtherThread,
}

/// The result of one step of a listing.
#[derive(Debug)]
pub(super) enum FdStep {
    /// The listing goes on.
    More(FdList),
    /// The listing has ended. An error other than ESRCH and ENOENT means that descriptors were
    /// missed.
    Done(FdList, Result<(), Errno>),
    /// The process shows no descriptor. Its main thread may have ended while others go on.
    Empty,
}

impl FdList {
    /// Opens the list of a process.
    ///
    /// # Errors
    ///
    /// The errno of open(2): ENOENT or ESRCH for a process that has ended, EACCES for another
    /// user's.
    pub(super) fn open(proc: &Proc, pid: u32) -> Result<FdList, Errno> {
        let path = Path::new(format_args!("{pid}/fd"));
        Ok(FdList {
            pid,
            dir: openat(proc.dir(), path.as_c_str(), DIR, Mode::empty())?,
            shown: Shown::Nothing,
            hits: Vec::new(),
        })
    }

    /// Opens the list of another thread of a process whose main thread has ended: the main thread's
    /// list is empty then. `None` if the process has no other thread.
    ///
    /// # Errors
    ///
    /// The errno of open(2) or getdents(2).
    pub(super) fn open_other_thread(proc: &Proc, pid: u32) -> Result<Option<FdList>, Errno> {
        let stat = proc.stat(pid)?;
        if stat.state != 'Z' || !stat.is_alive() {
            return Ok(None);
        }
        let path = Path::new(format_args!("{pid}/task"));
        let tasks = openat(proc.dir(), path.as_c_str(), DIR, Mode::empty())?;
        let mut buffer = [MaybeUninit::uninit(); 512];
        let mut entries = RawDir::new(tasks.as_fd(), &mut buffer);
        let other = loop {
            let Some(entry) = entries.next() else {
                return Ok(None);
            };
            match parse_number(entry?.file_name()) {
                Some(tid) if tid != pid => break tid,
                _ => {}
            }
        };
        let path = Path::new(format_args!("{pid}/task/{other}/fd"));
        Ok(Some(FdList {
            pid,
            dir: openat(proc.dir(), path.as_c_str(), DIR, Mode::empty())?,
            shown: Shown::OtherThread,
            hits: Vec::new(),
        }))
    }

    /// The wanted streams that were found. Closes the listing.
    pub(super) fn into_hits(self) -> Vec<Hit> {
        self.hits
    }

    /// Examines the descriptors of one getdents(2) call. Also returns how many there were.
    pub(super) fn step(
        mut self,
        wanted: &[WantedStream],
        buffer: &mut [MaybeUninit<u8>],
    ) -> (FdStep, usize) {
        let mut examined = 0;
        let most = buffer.len().min(LISTING_BYTES);
        let mut entries = RawDir::new(self.dir.as_fd(), buffer.get_mut(..most).unwrap_or_default());
        let end = loop {
            match entries.next() {
                None => break Some(Ok(())),
                Some(Err(rustix::io::Errno::INTR)) => {}
                Some(Err(e)) => break Some(Err(e.into())),
                Some(Ok(entry)) if parse_number(entry.file_name()).is_some() => {
                    if self.shown == Shown::Nothing {
                        self.shown = Shown::Some;
                    }
                    examined += 1;
                    examine_fd(wanted, self.dir.as_fd(), entry.file_name(), &mut self.hits);
                }
                // `.` and `..`
                Some(Ok(_)) => {}
            }
            if entries.is_buffer_empty() {
                break None;
            }
        };
        let step = match (end, self.shown) {
            (None, _) => FdStep::More(self),
            (Some(Ok(())), Shown::Nothing) => FdStep::Empty,
            (Some(result), _) => FdStep::Done(self, result),
        };
        (step, examined)
    }
}

/// Adds the wanted streams that this descriptor can write to.
fn examine_fd(wanted: &[WantedStream], dir: BorrowedFd<'_>, name: &CStr, hits: &mut Vec<Hit>) {
    let mut buffer = [MaybeUninit::uninit(); 40];
    let Ok((link, _)) = readlinkat_raw(dir, name, &mut buffer) else {
        return;
    };
    let Some(inode) = Inode::parse(link) else {
        return;
    };
    let begin = wanted.partition_point(|(i, ..)| *i < inode);
    for (_, target, stream) in wanted.iter().skip(begin).take_while(|(i, ..)| *i == inode) {
        // The link's mode is the descriptor's (proc_pid_fd(5)). A read end holds nothing up; a
        // socket is open for both.
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
