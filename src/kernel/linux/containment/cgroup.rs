//! The cgroup of one generation (cgroup v2): created below a directory that the host may write,
//! listed, killed as a whole, and removed.
//!
//! The files that are used, after the kernel's documentation (admin-guide/cgroup-v2):
//! `cgroup.events` says `populated 0` when no living process is left in the cgroup and below it,
//! and signals a change by POLLPRI (at most about every 10 ms; a plain read is always current);
//! `cgroup.procs` lists the processes, zombies excepted; `cgroup.kill` (Linux 5.14) sends SIGKILL
//! to every process in the cgroup and below it.

use crate::command::{CgroupOptions, NO_CGROUP2, cgroup_refused as refused};
use crate::kernel::linux::process::pidfd;
use crate::kernel::linux::process::pidfd::SignalScope;
use crate::types::{Errno, Signal, Signalled, SpawnError, SpawnStep};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawDir, fstatfs, mkdirat, openat, unlinkat};
use rustix::io::{pread, read, write};
use std::ffi::{CStr, CString, OsStr};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// CGROUP2_SUPER_MAGIC (statfs(2)).
const CGROUP2: u64 = 0x6367_7270;
const DIR: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);
/// Levels of cgroups made by the command below its own that are listed and removed.
const MAX_DEPTH: usize = 16;

/// The cgroup of one generation.
#[derive(Debug)]
pub(crate) struct Cgroup {
    parent: OwnedFd,
    name: CString,
    path: PathBuf,
    dir: OwnedFd,
    /// `cgroup.procs`, open for writing: a child that clone3(2) could not place into the cgroup
    /// enters it by writing here.
    procs: OwnedFd,
    events: OwnedFd,
}

impl Cgroup {
    /// Creates a cgroup of this name.
    ///
    /// # Errors
    ///
    /// [`SpawnStep::Cgroup`] with the path, the errno, and what has to be changed.
    pub(crate) fn create(options: &CgroupOptions, name: &str) -> Result<Cgroup, SpawnError> {
        let at = match &options.parent {
            Some(path) => path.clone(),
            None => own_directory()?,
        };
        let parent = openat(CWD, &at, DIR, Mode::empty()).map_err(|e| refused(&at, e.into()))?;
        let is_cgroup2 = fstatfs(&parent)
            .is_ok_and(|stat| u64::try_from(stat.f_type).is_ok_and(|kind| kind == CGROUP2));
        if !is_cgroup2 {
            let error = SpawnError::new(SpawnStep::Cgroup, Errno::from_raw(libc::EINVAL)).at(&at);
            return Err(error.because(NO_CGROUP2));
        }
        let path = at.join(name);
        let name = CString::new(name)
            .map_err(|_| SpawnError::new(SpawnStep::Cgroup, Errno::from_raw(libc::EINVAL)))?;
        mkdirat(&parent, &name, Mode::from_raw_mode(0o755)).map_err(|e| refused(&at, e.into()))?;
        let opened = open_all(&parent, &name);
        match opened {
            Ok([dir, procs, events]) => Ok(Cgroup {
                parent,
                name,
                path,
                dir,
                procs,
                events,
            }),
            Err(e) => {
                let _ = unlinkat(&parent, &name, AtFlags::REMOVEDIR);
                Err(refused(&path, e))
            }
        }
    }

    /// The directory, for CLONE_INTO_CGROUP (Linux 5.7).
    pub(crate) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// `cgroup.procs`, for a child that enters the cgroup itself.
    pub(crate) fn procs(&self) -> BorrowedFd<'_> {
        self.procs.as_fd()
    }

    /// `cgroup.events`, for the poll set.
    pub(crate) fn events(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    /// The error for a child that could not be placed into the cgroup.
    pub(crate) fn placement_error(&self, errno: Errno) -> SpawnError {
        refused(&self.path, errno)
    }

    /// Whether a process is alive in the cgroup or below; `None` if the file cannot be read. The
    /// next change makes a notice.
    pub(crate) fn is_populated(&self) -> Option<bool> {
        let mut text = [0; 256];
        let n = pread(&self.events, &mut text, 0).ok()?;
        let mut lines = text.get(..n)?.split(|b| *b == b'\n');
        lines
            .find_map(|line| line.strip_prefix(b"populated "))
            .map(|value| value != b"0")
    }

    /// Adds the ids of the processes in the cgroup and below, sorted. Returns `false` if a part
    /// could not be read.
    pub(crate) fn members(&self, into: &mut Vec<u32>) -> bool {
        let complete = list(self.dir.as_fd(), into, MAX_DEPTH);
        into.sort_unstable();
        into.dedup();
        complete
    }

    /// Sends SIGKILL to every process in the cgroup and below. ENOENT before Linux 5.14.
    fn kill(&self) -> Result<(), Errno> {
        let file = openat(
            &self.dir,
            c"cgroup.kill",
            OFlags::WRONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        write(&file, b"1")?;
        Ok(())
    }

    /// Signals the members outside this process group, which has had the signal already. Each is
    /// signalled through a descriptor that was opened before the list was read that it is in.
    pub(crate) fn signal_outside(&self, group: u32, signal: Signal) -> Signalled {
        if self.is_populated() == Some(false) {
            return Signalled::Empty;
        }
        if signal == Signal::KILL && self.kill().is_ok() {
            return Signalled::Sent;
        }
        let mut before = Vec::new();
        self.members(&mut before);
        before.retain(|pid| *pid != group && pidfd::group_of(*pid) != Some(group));
        if before.is_empty() {
            return Signalled::Empty;
        }
        let opened: Vec<(u32, OwnedFd)> = before
            .into_iter()
            .filter_map(|pid| Some((pid, pidfd::open(pid).ok()?)))
            .collect();
        let mut after = Vec::new();
        self.members(&mut after);
        let mut result = Signalled::Empty;
        for (_, fd) in opened
            .iter()
            .filter(|(pid, _)| after.binary_search(pid).is_ok())
        {
            match pidfd::send(fd.as_fd(), Some(signal), SignalScope::Process).map_err(|e| e.raw()) {
                Ok(()) => result = Signalled::Sent,
                Err(libc::EPERM) if result != Signalled::Sent => result = Signalled::Denied,
                Err(_) => {}
            }
        }
        result
    }

    /// Removes the cgroup and those below it. A cgroup with a process in it stays.
    pub(crate) fn remove(&self) {
        remove_below(self.dir.as_fd(), MAX_DEPTH);
        if let Err(errno) = unlinkat(&self.parent, &self.name, AtFlags::REMOVEDIR) {
            tracing::debug!(path = %self.path.display(), %errno, "could not remove a cgroup");
        }
    }
}

fn open_all(parent: &OwnedFd, name: &CStr) -> Result<[OwnedFd; 3], Errno> {
    let dir = openat(parent, name, DIR, Mode::empty())?;
    let procs = openat(
        &dir,
        c"cgroup.procs",
        OFlags::RDWR | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let events = openat(
        &dir,
        c"cgroup.events",
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    Ok([dir, procs, events])
}

/// The directory of the cgroup that this process is in.
fn own_directory() -> Result<PathBuf, SpawnError> {
    let none = |note: &str| {
        SpawnError::new(SpawnStep::Cgroup, Errno::from_raw(libc::ENODEV)).because(note)
    };
    let own = std::fs::read("/proc/self/cgroup")
        .map_err(|e| SpawnError::new(SpawnStep::Cgroup, Errno::from(&e)).at("/proc/self/cgroup"))?;
    let mounts = std::fs::read("/proc/self/mountinfo");
    let mounts = mounts.map_err(|e| {
        SpawnError::new(SpawnStep::Cgroup, Errno::from(&e)).at("/proc/self/mountinfo")
    })?;
    let own = own
        .split(|b| *b == b'\n')
        .find_map(|line| line.strip_prefix(b"0::"));
    let own = own.ok_or_else(|| none("this kernel, or this place, has no cgroup v2"))?;
    if own.starts_with(b"/..") {
        return Err(none(
            "this process is in a cgroup outside its cgroup namespace: name a directory",
        ));
    }
    let mut mounted = mounts
        .split(|b| *b == b'\n')
        .filter_map(cgroup2_mount)
        .peekable();
    if mounted.peek().is_none() {
        return Err(none(
            "no cgroup2 file system is mounted (mount -t cgroup2 none /sys/fs/cgroup)",
        ));
    }
    let found = mounted.find_map(|(root, point)| below(own, &root, &point));
    found.ok_or_else(|| {
        none("the cgroup of this process is not below what is mounted: name a directory")
    })
}

/// Root and mount point of a mountinfo line (proc_pid_mountinfo(5)), if it mounts cgroup2.
fn cgroup2_mount(line: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (fields, kind) = line.split_at(line.windows(3).position(|w| w == b" - ")?);
    kind.strip_prefix(b" - cgroup2 ")?;
    let mut fields = fields.split(|b| *b == b' ').skip(3);
    Some((unescape(fields.next()?), unescape(fields.next()?)))
}

/// Replaces the octal escapes of mountinfo: `\040` is a space.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let code = after
            .get(..3)
            .filter(|_| byte == b'\\')
            .and_then(|c| u8::from_str_radix(std::str::from_utf8(c).ok()?, 8).ok());
        plain.push(code.unwrap_or(byte));
        rest = if code.is_some() {
            after.get(3..).unwrap_or_default()
        } else {
            after
        };
    }
    plain
}

/// The path of cgroup `own` where the subtree `root` is mounted at `point`; `None` if it is not
/// below `root`.
fn below(own: &[u8], root: &[u8], point: &[u8]) -> Option<PathBuf> {
    let rest = if root == b"/" {
        own
    } else {
        own.strip_prefix(root)
            .filter(|rest| rest.is_empty() || rest.starts_with(b"/"))?
    };
    let rest = rest.strip_prefix(b"/").unwrap_or(rest);
    let point = Path::new(OsStr::from_bytes(point));
    Some(if rest.is_empty() {
        point.to_path_buf()
    } else {
        point.join(OsStr::from_bytes(rest))
    })
}

/// Lists the processes of a cgroup and of those below, at most `depth` levels down.
fn list(dir: BorrowedFd<'_>, into: &mut Vec<u32>, depth: usize) -> bool {
    let mut complete = list_here(dir, into).is_ok();
    each_below(
        dir,
        &mut |dir, name| match openat(dir, name, DIR, Mode::empty()) {
            Ok(child) if depth > 0 => complete &= list(child.as_fd(), into, depth - 1),
            Ok(_) => complete = false,
            // Removed meanwhile.
            Err(rustix::io::Errno::NOENT) => {}
            Err(_) => complete = false,
        },
    );
    complete
}

fn list_here(dir: BorrowedFd<'_>, into: &mut Vec<u32>) -> Result<(), Errno> {
    let file = openat(
        dir,
        c"cgroup.procs",
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let mut buffer = [0; 4096];
    // The number that the end of the buffer may have cut in two.
    let mut number: Option<u32> = None;
    loop {
        match read(&file, &mut buffer) {
            Ok(0) => return Ok(()),
            Ok(n) => {
                for byte in buffer.iter().take(n) {
                    match byte {
                        b'0'..=b'9' => {
                            number = Some(
                                number
                                    .unwrap_or(0)
                                    .wrapping_mul(10)
                                    .wrapping_add(u32::from(byte - b'0')),
                            )
                        }
                        // 0 stands for a process of another PID namespace.
                        _ => into.extend(number.take().filter(|pid| *pid > 0)),
                    }
                }
            }
            Err(rustix::io::Errno::INTR) => {}
            // ENODEV: the cgroup was removed. EOPNOTSUPP: a threaded cgroup, whose processes are
            // listed by its parent.
            Err(rustix::io::Errno::NODEV | rustix::io::Errno::OPNOTSUPP) => return Ok(()),
            Err(e) => return Err(e.into()),
        }
    }
}

fn remove_below(dir: BorrowedFd<'_>, depth: usize) {
    each_below(dir, &mut |dir, name| {
        if let Ok(child) = openat(dir, name, DIR, Mode::empty())
            && depth > 0
        {
            remove_below(child.as_fd(), depth - 1);
        }
        let _ = unlinkat(dir, name, AtFlags::REMOVEDIR);
    });
}

/// Calls `each` with the name of every cgroup in a directory.
fn each_below(dir: BorrowedFd<'_>, each: &mut dyn FnMut(BorrowedFd<'_>, &CStr)) {
    let Ok(listing) = openat(dir, c".", DIR, Mode::empty()) else {
        return;
    };
    let mut buffer = [MaybeUninit::uninit(); 2048];
    let mut entries = RawDir::new(&listing, &mut buffer);
    while let Some(entry) = entries.next() {
        match entry {
            Ok(entry)
                if entry.file_type() == rustix::fs::FileType::Directory
                    && !entry.file_name().to_bytes().starts_with(b".") =>
            {
                each(dir, entry.file_name());
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_cgroup_is_found_below_any_mount_point() {
        let line =
            b"31 25 0:26 / /sys/fs/a\\040b rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate";
        assert_eq!(
            cgroup2_mount(line),
            Some((b"/".to_vec(), b"/sys/fs/a b".to_vec()))
        );
        assert_eq!(
            cgroup2_mount(b"31 25 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu"),
            None
        );
        assert_eq!(cgroup2_mount(b""), None);
        assert_eq!(below(b"/", b"/", b"/c"), Some(PathBuf::from("/c")));
        assert_eq!(
            below(b"/user/x", b"/", b"/c"),
            Some(PathBuf::from("/c/user/x"))
        );
        assert_eq!(
            below(b"/user/x", b"/user", b"/c"),
            Some(PathBuf::from("/c/x"))
        );
        assert_eq!(below(b"/user", b"/user", b"/c"), Some(PathBuf::from("/c")));
        assert_eq!(below(b"/username", b"/user", b"/c"), None);
    }

    #[test]
    fn errors_say_what_is_missing() {
        let refused = |parent: &str| {
            Cgroup::create(&CgroupOptions::default().parent(parent), "x").expect_err("refused")
        };
        let error = refused("/nonexistent");
        assert_eq!(
            (error.step(), error.raw_os_error()),
            (SpawnStep::Cgroup, libc::ENOENT)
        );
        let error = refused("/tmp");
        assert!(
            error
                .to_string()
                .contains("no directory of a cgroup2 file system"),
            "{error}"
        );
        for (errno, word) in [
            (libc::EACCES, "Delegate=yes"),
            (libc::EROFS, "read-only"),
            (libc::EBUSY, "controllers"),
        ] {
            let error = super::refused(Path::new("/c"), Errno::from_raw(errno));
            assert!(error.to_string().contains(word), "{error}");
        }
    }
}
