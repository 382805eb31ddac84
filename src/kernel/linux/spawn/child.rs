//! What the child does between clone and exec.
//!
//! It runs in the host's memory, beside the host's threads. So it does not allocate, lock or panic,
//! and it uses nothing of the C library or of thread-local storage: only [`super::syscall::call`]
//! on data that was prepared before the clone. All signals are blocked until just before exec. A
//! step that fails leaves its name and errno in [`Shared`] and ends the child.

#![expect(unsafe_code, reason = "raw system calls between clone and exec")]

use super::child_call::sys;
use super::child_signals::{ALL, dispositions, ignored};
use super::fd_remap::{FdMove, FdRemap};
use super::gate::Gate;
use super::prepare::{CStringArray, Prepared};
use super::stack::{HEAD, Shared};
use super::syscall::SyscallResult;
use crate::types::Errno;
use std::ffi::{CStr, c_char, c_int, c_long};
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The steps that can fail, as [`Shared::stage`] names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Stage {
    /// Leading a process group of its own (setpgid(2)).
    Group = 1,
    /// ioctl(TIOCSPGRP): becoming the foreground of the terminal.
    Terminal,
    /// Closing the descriptors that are not passed on.
    Close,
    /// Putting descriptors at their numbers; `item` is the number in the child.
    Place,
    /// Changing the working directory (chdir(2)).
    Chdir,
    /// prlimit64(2); `item` is the place in the list of limits.
    ResourceLimit,
    /// setgroups(2), setresgid(2), setresuid(2).
    User,
    /// Asking for the parent-death signal (PR_SET_PDEATHSIG).
    Death,
    /// None of the paths to try exists.
    Find,
    /// execve(2); `item` is the place in the list of paths.
    Exec,
    /// Writing to cgroup.procs.
    Cgroup,
}

impl Stage {
    /// Every stage, in the order of the numbers.
    pub(super) const ALL: [Stage; 11] = [
        Stage::Group,
        Stage::Terminal,
        Stage::Close,
        Stage::Place,
        Stage::Chdir,
        Stage::ResourceLimit,
        Stage::User,
        Stage::Death,
        Stage::Find,
        Stage::Exec,
        Stage::Cgroup,
    ];
}

/// What the child does with the host's descriptors from 3 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OtherFds {
    /// Leaves them as they are.
    Keep,
    /// Closes them as soon as the streams are in place. Exec would close them too, but may take a
    /// while, and until then a copy of another child's pipe end keeps that pipe open.
    Close,
    /// Makes them close-on-exec.
    SetCloexec,
    /// Makes them close-on-exec one by one, without close_range(2).
    SetCloexecEach,
}

/// What the child needs. The host owns it until the child has left the memory.
#[derive(Debug)]
pub(super) struct ChildArgs {
    /// The prepared plan.
    pub prepared: Arc<Prepared>,
    /// Where each descriptor goes.
    pub remap: FdRemap,
    /// The kernel has reset signals that had a handler; ignored ones remain.
    pub cleared: bool,
    /// The host's /proc/self/status, or -1.
    pub proc_status: RawFd,
    /// The child shares the host's table, and makes a table of its own of the numbers below this
    /// one.
    pub unshare: Option<RawFd>,
    /// The host's pid, if the child must notice that the host has ended; else 0.
    pub host: u32,
    /// What to do with the host's other descriptors.
    pub other_fds: OtherFds,
    /// Write end of the pipe for the outcome, where the memory is not shared; else -1.
    pub status: RawFd,
    /// The environment, where it is not the plan's alone. `prepared` keeps the strings of the
    /// plan.
    pub env: Option<CStringArray>,
    /// The `cgroup.procs` file of the cgroup to enter, or -1. Also -1 if the child was made in the
    /// cgroup.
    pub cgroup: RawFd,
    /// Holds the child back, in tests.
    pub gate: Gate,
    /// The words that are shared with the host, at the end of the stack.
    pub shared: NonNull<Shared>,
}

// SAFETY: `shared` points into the mapping that is kept together with this value, to atomics only.
unsafe impl Send for ChildArgs {}

/// The first step that failed.
struct StepFailure {
    stage: Stage,
    errno: Errno,
    item: u32,
}

type StepResult = Result<(), StepFailure>;

fn at(stage: Stage, item: u32) -> impl FnOnce(Errno) -> StepFailure {
    move |errno| StepFailure { stage, errno, item }
}

/// Runs in the child. Returns its exit status, if it could not execute its program.
pub(super) extern "C" fn run(child_args: *const ChildArgs) -> c_int {
    // SAFETY: the host keeps the value unchanged until this child has left the memory.
    let child_args = unsafe { &*child_args };
    // SAFETY: as above. The words are atomics, and only the child writes `head`.
    let shared = unsafe { child_args.shared.as_ref() };
    let mut status = child_args.status;
    // `steps` returns only after a failure.
    if let Err(failure) = steps(child_args, shared, &mut status) {
        shared.item.store(failure.item, Ordering::Relaxed);
        shared.errno.store(failure.errno.raw(), Ordering::Relaxed);
        shared.stage.store(failure.stage as u32, Ordering::Release);
    }
    if status >= 0 {
        let _ = write(status, shared);
    }
    // As shells do. The host does not take it for the program's status.
    127
}

fn steps(child_args: &ChildArgs, shared: &Shared, status: &mut RawFd) -> StepResult {
    let plan = &*child_args.prepared;
    child_args.gate.wait();
    dispositions(
        if child_args.cleared {
            ignored(child_args.proc_status)
        } else {
            ALL
        },
        plan.ignore,
    );
    sys(libc::SYS_setpgid, [0; 5]).map_err(at(Stage::Group, 0))?;
    if child_args.cgroup >= 0 {
        let own = b"0";
        sys(
            libc::SYS_write,
            [
                child_args.cgroup as usize,
                own.as_ptr() as usize,
                own.len(),
                0,
                0,
            ],
        )
        .map_err(at(Stage::Cgroup, 0))?;
    }
    if let Some(first) = child_args.unshare {
        let small = sys(
            libc::SYS_close_range,
            [
                first as usize,
                u32::MAX as usize,
                libc::CLOSE_RANGE_UNSHARE as usize,
                0,
                0,
            ],
        );
        // A filter may refuse this flag alone. Then the whole table is copied.
        small
            .or_else(|_| sys(libc::SYS_unshare, [libc::CLONE_FILES as usize, 0, 0, 0, 0]))
            .map_err(at(Stage::Close, 0))?;
        shared.own_table.store(1, Ordering::Release);
    }
    if *status >= 0 {
        *status = dup_away(*status, &child_args.remap).map_err(at(Stage::Place, 0))?;
    }
    if matches!(
        child_args.other_fds,
        OtherFds::SetCloexec | OtherFds::SetCloexecEach
    ) {
        mark_all(child_args.other_fds).map_err(at(Stage::Close, 0))?;
    }
    place(&child_args.remap)?;
    if child_args.other_fds == OtherFds::Close {
        close_all()
            .or_else(|_| mark_all(OtherFds::SetCloexec))
            .map_err(at(Stage::Close, 0))?;
    }
    if plan.foreground {
        take_foreground().map_err(at(Stage::Terminal, 0))?;
    }
    if let Some(dir) = &plan.dir {
        sys(libc::SYS_chdir, [dir.as_ptr() as usize, 0, 0, 0, 0]).map_err(at(Stage::Chdir, 0))?;
    }
    if let Some(mask) = plan.umask {
        let _ = sys(libc::SYS_umask, [mask as usize, 0, 0, 0, 0]);
    }
    for (place, limit) in (0..).zip(&plan.limits) {
        let values = limit.values.as_ptr() as usize;
        sys(
            libc::SYS_prlimit64,
            [0, limit.resource as usize, values, 0, 0],
        )
        .map_err(at(Stage::ResourceLimit, place))?;
    }
    user(plan)?;
    if let Some(signal) = plan.death {
        // After the change of user, which would clear it. If the host has ended before this call,
        // nobody waits for this child.
        sys(
            libc::SYS_prctl,
            [
                libc::PR_SET_PDEATHSIG as usize,
                signal.as_raw() as usize,
                0,
                0,
                0,
            ],
        )
        .map_err(at(Stage::Death, 0))?;
        if sys(libc::SYS_getppid, [0; 5]) != Ok(child_args.host as usize) {
            return Err(StepFailure {
                stage: Stage::Death,
                errno: Errno::from_raw(libc::ESRCH),
                item: 0,
            });
        }
    }
    let mask = std::ptr::from_ref(&plan.block) as usize;
    let _ = sys(
        libc::SYS_rt_sigprocmask,
        [libc::SIG_SETMASK as usize, mask, 0, size_of::<u64>(), 0],
    );
    Err(execute(
        plan,
        child_args.env.as_ref().unwrap_or(&plan.env),
        shared,
    ))
}

/// Makes the child's group the foreground of its controlling terminal: of /dev/tty, or of the first
/// of its streams that is the terminal where /dev is missing.
fn take_foreground() -> Result<(), Errno> {
    let group = sys(libc::SYS_getpid, [0; 5])? as c_int;
    // SIGTTOU is blocked, so a group in the background may do this.
    let set = |terminal: RawFd| {
        let group = std::ptr::from_ref(&group) as usize;
        let request = libc::TIOCSPGRP as usize;
        sys(libc::SYS_ioctl, [terminal as usize, request, group, 0, 0])
    };
    let flags = (libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC) as usize;
    match open(c"/dev/tty", flags) {
        Ok(terminal) => {
            let answer = set(terminal);
            let _ = sys(libc::SYS_close, [terminal as usize, 0, 0, 0, 0]);
            answer
        }
        Err(_) => set(0).or_else(|errno| set(1).or_else(|_| set(2)).map_err(|_| errno)),
    }
    .map(|_| ())
}

/// Makes a close-on-exec copy of `fd` at a number that is no target.
fn dup_away(fd: RawFd, remap: &FdRemap) -> Result<RawFd, Errno> {
    let mut least: RawFd = 3;
    loop {
        let copy = sys(
            libc::SYS_fcntl,
            [
                fd as usize,
                libc::F_DUPFD_CLOEXEC as usize,
                least as usize,
                0,
                0,
            ],
        )? as RawFd;
        if !remap.is_target(copy) {
            return Ok(copy);
        }
        // This copy stays open until its number is used as a target.
        least = copy.wrapping_add(1);
    }
}

/// Closes every descriptor from 3 on.
fn close_all() -> Result<(), Errno> {
    sys(libc::SYS_close_range, [3, u32::MAX as usize, 0, 0, 0]).map(|_| ())
}

/// Makes every descriptor from 3 on close-on-exec. Those that are passed are put in place
/// afterwards, which clears the flag.
fn mark_all(how: OtherFds) -> Result<(), Errno> {
    if how == OtherFds::SetCloexec {
        let flags = libc::CLOSE_RANGE_CLOEXEC as usize;
        // ENOSYS before Linux 5.9 or with a filter, EINVAL before Linux 5.11.
        if sys(libc::SYS_close_range, [3, u32::MAX as usize, flags, 0, 0]).is_ok() {
            return Ok(());
        }
    }
    mark_listed().or_else(|_| mark_counted())
}

/// Uses the list of open descriptors in /proc.
fn mark_listed() -> Result<(), Errno> {
    let flags = (libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC) as usize;
    let dir = open(c"/proc/self/fd", flags)?;
    let mut buffer = Entries([MaybeUninit::uninit(); Entries::LEN]);
    loop {
        let len = sys(
            libc::SYS_getdents64,
            [
                dir as usize,
                std::ptr::from_mut(&mut buffer) as usize,
                Entries::LEN,
                0,
                0,
            ],
        )?;
        if len == 0 {
            let _ = sys(libc::SYS_close, [dir as usize, 0, 0, 0, 0]);
            return Ok(());
        }
        let mut offset = 0;
        while offset < len {
            let (fd, size) = buffer.at(offset);
            if let Some(fd) = fd.filter(|fd| *fd >= 3) {
                mark(fd)?;
            }
            offset = offset.wrapping_add(size);
        }
    }
}

/// Tries every number below the limit of open files, where there is no /proc. Misses descriptors
/// that were opened under a higher limit.
fn mark_counted() -> Result<(), Errno> {
    let mut limit = [0_u64; 2];
    sys(
        libc::SYS_prlimit64,
        [
            0,
            libc::RLIMIT_NOFILE as usize,
            0,
            std::ptr::from_mut(&mut limit) as usize,
            0,
        ],
    )?;
    let [soft, _] = limit;
    // The default of /proc/sys/fs/nr_open.
    for fd in 3..soft.min(1 << 20) as RawFd {
        if let Err(errno) = mark(fd)
            && errno.raw() != libc::EBADF
        {
            return Err(errno);
        }
    }
    Ok(())
}

fn mark(fd: RawFd) -> Result<(), Errno> {
    sys(
        libc::SYS_fcntl,
        [
            fd as usize,
            libc::F_SETFD as usize,
            libc::FD_CLOEXEC as usize,
            0,
            0,
        ],
    )
    .map(|_| ())
}

/// A buffer for getdents64(2), aligned as its entries are.
#[repr(C, align(8))]
struct Entries([MaybeUninit<u8>; Entries::LEN]);

impl Entries {
    const LEN: usize = 1024;
    /// Offset of d_reclen, behind d_ino and d_off.
    const RECLEN: usize = 16;
    const NAME: usize = 19;

    /// The number that names the entry at `offset`, and the size of the entry.
    fn at(&self, offset: usize) -> (Option<RawFd>, usize) {
        let entry = self.0.as_ptr().wrapping_add(offset).cast::<u8>();
        // SAFETY: the kernel has filled whole, 8-byte aligned entries up to the length that bounds
        // `offset`.
        let size = unsafe { entry.wrapping_add(Self::RECLEN).cast::<u16>().read() };
        // SAFETY: as above. The name ends with a NUL inside the entry.
        let name = unsafe { CStr::from_ptr(entry.wrapping_add(Self::NAME).cast::<c_char>()) };
        let mut number: RawFd = 0;
        for byte in name.to_bytes() {
            if !byte.is_ascii_digit() {
                // `.` and `..`.
                return (None, size as usize);
            }
            number = number
                .wrapping_mul(10)
                .wrapping_add(RawFd::from(byte.wrapping_sub(b'0')));
        }
        (Some(number), size as usize)
    }
}

/// Puts descriptors at their numbers, open across exec.
fn place(remap: &FdRemap) -> StepResult {
    for m in remap.list.iter().filter(|m| m.lift) {
        let lifted = dup_away(m.from, remap).map_err(at(Stage::Place, m.to as u32))?;
        m.lifted.store(lifted, Ordering::Relaxed);
    }
    for m in &remap.list {
        put(m).map_err(at(Stage::Place, m.to as u32))?;
    }
    Ok(())
}

fn put(m: &FdMove) -> SyscallResult {
    if m.from == m.to {
        // dup3(a, a) is EINVAL. The number is right, but exec would close it.
        return sys(
            libc::SYS_fcntl,
            [m.to as usize, libc::F_SETFD as usize, 0, 0, 0],
        );
    }
    let from = if m.lift {
        m.lifted.load(Ordering::Relaxed)
    } else {
        m.from
    };
    sys(libc::SYS_dup3, [from as usize, m.to as usize, 0, 0, 0])
}

fn user(plan: &Prepared) -> StepResult {
    if plan.changes_user() {
        drop_groups(plan).map_err(at(Stage::User, libc::SYS_setgroups as u32))?;
    }
    if let Some(gid) = plan.user.gid {
        let gid = gid as usize;
        sys(libc::SYS_setresgid, [gid, gid, gid, 0, 0])
            .map_err(at(Stage::User, libc::SYS_setresgid as u32))?;
    }
    if let Some(uid) = plan.user.uid {
        let uid = uid as usize;
        sys(libc::SYS_setresuid, [uid, uid, uid, 0, 0])
            .map_err(at(Stage::User, libc::SYS_setresuid as u32))?;
    }
    Ok(())
}

/// Drops the supplementary groups. Without the privilege for that (EPERM) the child may still take
/// its present user and group, or have no such groups.
fn drop_groups(plan: &Prepared) -> Result<(), Errno> {
    let refused = match sys(libc::SYS_setgroups, [0; 5]) {
        Ok(_) => return Ok(()),
        Err(errno) => errno,
    };
    let is_own = |wanted: Option<u32>, calls: [c_long; 2]| {
        wanted.is_none_or(|id| {
            calls
                .into_iter()
                .all(|call| sys(call, [0; 5]) == Ok(id as usize))
        })
    };
    let keeps_user = is_own(plan.user.uid, [libc::SYS_getuid, libc::SYS_geteuid])
        && is_own(plan.user.gid, [libc::SYS_getgid, libc::SYS_getegid]);
    if refused.raw() == libc::EPERM && (keeps_user || sys(libc::SYS_getgroups, [0; 5]) == Ok(0)) {
        return Ok(());
    }
    Err(refused)
}

/// Tries the paths as execvp(3) does: a missing file is passed over, and a file that may not be
/// executed is remembered.
fn execute(plan: &Prepared, env: &CStringArray, shared: &Shared) -> StepFailure {
    let mut denied = None;
    for (place, path) in (0..).zip(&plan.candidates) {
        let errno = match sys(
            libc::SYS_execve,
            [
                path.as_ptr() as usize,
                plan.args.as_ptr() as usize,
                env.as_ptr() as usize,
                0,
                0,
            ],
        ) {
            Err(errno) => errno,
            // execve(2) does not return when it succeeds.
            Ok(_) => Errno::from_raw(libc::EIO),
        };
        if !plan.searched {
            record_file(path, shared);
            return StepFailure {
                stage: Stage::Exec,
                errno,
                item: place,
            };
        }
        match errno.raw() {
            // A name that is too long in every directory was refused before the clone.
            libc::ENOENT
            | libc::ENOTDIR
            | libc::ESTALE
            | libc::ENODEV
            | libc::ETIMEDOUT
            | libc::ENAMETOOLONG
            | libc::ELOOP => {}
            libc::EACCES => {
                denied.get_or_insert((place, path));
            }
            _ => {
                record_file(path, shared);
                return StepFailure {
                    stage: Stage::Exec,
                    errno,
                    item: place,
                };
            }
        }
    }
    if let Some((item, path)) = denied {
        record_file(path, shared);
        return StepFailure {
            stage: Stage::Exec,
            errno: Errno::from_raw(libc::EACCES),
            item,
        };
    }
    // The file exists, so ENOENT means that its interpreter is missing.
    for (item, path) in (0..).zip(&plan.candidates) {
        if record_file(path, shared) {
            return StepFailure {
                stage: Stage::Exec,
                errno: Errno::from_raw(libc::ENOENT),
                item,
            };
        }
    }
    StepFailure {
        stage: Stage::Find,
        errno: Errno::from_raw(libc::ENOENT),
        item: 0,
    }
}

/// Records the type and the first bytes of the file. The child does this and not the host, whose
/// loop must not wait for a file system, and with the child's working directory and rights. True if
/// the file exists.
fn record_file(path: &CStr, shared: &Shared) -> bool {
    let mut seen = MaybeUninit::<libc::statx>::uninit();
    let fields = (libc::STATX_TYPE | libc::STATX_MODE) as usize;
    let to = std::ptr::from_mut(&mut seen) as usize;
    if sys(
        libc::SYS_statx,
        [
            libc::AT_FDCWD as usize,
            path.as_ptr() as usize,
            0,
            fields,
            to,
        ],
    )
    .is_err()
    {
        return false;
    }
    // SAFETY: statx(2) has succeeded and has filled the structure.
    let mode = u32::from(unsafe { seen.assume_init_ref() }.stx_mode);
    shared.mode.store(mode, Ordering::Relaxed);
    if mode & libc::S_IFMT == libc::S_IFREG
        && let Ok(fd) = open(
            path,
            (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY) as usize,
        )
    {
        if let Ok(len) = sys(
            libc::SYS_read,
            [fd as usize, shared.head.get() as usize, HEAD, 0, 0],
        ) {
            shared.head_len.store(len as u32, Ordering::Release);
        }
        let _ = sys(libc::SYS_close, [fd as usize, 0, 0, 0, 0]);
    }
    true
}

fn open(path: &CStr, flags: usize) -> Result<RawFd, Errno> {
    Ok(sys(
        libc::SYS_openat,
        [libc::AT_FDCWD as usize, path.as_ptr() as usize, flags, 0, 0],
    )? as RawFd)
}

/// Writes all shared words at once. They are fewer than PIPE_BUF bytes, so they arrive whole. If
/// nobody reads any more, the exit status tells of the SIGPIPE.
fn write(fd: RawFd, shared: &Shared) -> SyscallResult {
    const _: () = assert!(size_of::<Shared>() <= libc::PIPE_BUF);
    sys(
        libc::SYS_write,
        [
            fd as usize,
            std::ptr::from_ref(shared) as usize,
            size_of::<Shared>(),
            0,
            0,
        ],
    )
}
