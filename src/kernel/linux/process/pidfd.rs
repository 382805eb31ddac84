//! Process descriptors and the status of a child: pidfd_open(2), pidfd_send_signal(2), waitid(2),
//! PIDFD_GET_INFO.
#![expect(
    unsafe_code,
    reason = "system calls that rustix has only without usage, group flag or exit information"
)]

use crate::kernel::linux::last_errno::last_errno;
use crate::types::{CollectMode, Errno, Exit, ExitInfo, ResourceUsage, Signal, StatusSource};
use rustix::event::{PollFd, PollFlags};
use rustix::process::{WaitId, WaitIdOptions};
use rustix::time::Timespec;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// A child of this process. The pidfd is preferred to the process id, which may be another child's
/// after somebody else has reaped this one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChildRef<'fd> {
    /// The process id.
    pub pid: u32,
    /// The pidfd, where there is one.
    pub pidfd: Option<BorrowedFd<'fd>>,
}

/// The answer of [`wait_child`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitResult {
    /// The child has not ended.
    Running,
    /// The child has ended. The number is its peak memory in KiB, which [`own_peak_of`] checks.
    Ended(ExitInfo, u64),
    /// Not a child of this process, or not any more (ECHILD).
    NotChild,
    /// waitid(2) was refused, and wait4(2) too if it could be used.
    Failed(Errno),
}

/// Asks whether this child has ended, without sleeping. [`CollectMode::Reap`] reaps it;
/// [`CollectMode::KeepZombie`] leaves the zombie (WNOWAIT).
///
/// Where waitid(2) is refused (a seccomp filter), wait4(2) is asked to reap. It cannot leave a
/// zombie.
pub(crate) fn wait_child(child: ChildRef<'_>, mode: CollectMode) -> WaitResult {
    let leave = match mode {
        CollectMode::Reap => 0,
        CollectMode::KeepZombie => libc::WNOWAIT,
    };
    let flags = libc::WEXITED | libc::WNOHANG | leave;
    if let Some(pidfd) = child.pidfd {
        match waitid(libc::P_PIDFD, pidfd.as_raw_fd().unsigned_abs(), flags) {
            // Linux 5.3 has pidfds, but not P_PIDFD (5.4). A pidfd of ours is never invalid
            // otherwise.
            WaitResult::Failed(e) if e.raw() == libc::EINVAL => {}
            WaitResult::Failed(_) if mode == CollectMode::Reap => {}
            answer => return answer,
        }
    }
    match waitid(libc::P_PID, child.pid, flags) {
        WaitResult::Failed(_) if mode == CollectMode::Reap => wait4(child.pid),
        answer => answer,
    }
}

/// Whether the process has ended, reaped or not, by its pidfd alone: that is readable then.
pub(crate) fn has_ended(pidfd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(pidfd, PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Reaps a process that has ended, if it is a child of this process.
pub(crate) fn reap(pidfd: BorrowedFd<'_>) {
    // ECHILD: somebody else's child.
    let _ = waitid(
        libc::P_PIDFD,
        pidfd.as_raw_fd().unsigned_abs(),
        libc::WEXITED | libc::WNOHANG,
    );
}

/// The process id of any child that has ended and was not reaped. The zombie is left.
pub(crate) fn any_zombie() -> Option<u32> {
    // SAFETY: an all-zero siginfo is a valid one; waitid leaves it so when nobody has ended.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: the kernel writes at most one siginfo, which lives here.
    let result = unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, flags) };
    if result != 0 {
        return None;
    }
    // SAFETY: waitid has filled in (or left zero) the fields of SIGCHLD.
    u32::try_from(unsafe { info.si_pid() })
        .ok()
        .filter(|pid| *pid > 0)
}

/// Whether this process has a child, running or not yet reaped.
pub(crate) fn has_children() -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !rustix::process::waitid(WaitId::All, look).is_err_and(|e| e == rustix::io::Errno::CHILD)
}

fn waitid(kind: libc::idtype_t, id: u32, flags: i32) -> WaitResult {
    // SAFETY: an all-zero siginfo is a valid one; waitid leaves it so when nobody has ended.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: plain numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: the kernel writes at most one siginfo and one rusage, both of which live here.
        let result = unsafe {
            libc::syscall(
                libc::SYS_waitid,
                kind,
                id,
                &raw mut info,
                flags,
                &raw mut usage,
            )
        };
        if result == 0 {
            break;
        }
        match last_errno() {
            libc::EINTR => {}
            libc::ECHILD => return WaitResult::NotChild,
            errno => return WaitResult::Failed(Errno::from_raw(errno)),
        }
    }
    // SAFETY: waitid has filled in (or left zero) the fields of SIGCHLD.
    if unsafe { info.si_pid() } == 0 {
        return WaitResult::Running;
    }
    // SAFETY: as above.
    let status = unsafe { info.si_status() };
    let exit = match (info.si_code, Signal::from_raw(status)) {
        (libc::CLD_EXITED, _) => Exit::with_code(status & 0xff, StatusSource::Waitid),
        (libc::CLD_KILLED, Some(signal)) => Exit::by_signal(signal, false, StatusSource::Waitid),
        (libc::CLD_DUMPED, Some(signal)) => Exit::by_signal(signal, true, StatusSource::Waitid),
        // Only WEXITED was asked for; a stop or a continuation is not an exit.
        _ => return WaitResult::Running,
    };
    ended(exit, usage)
}

fn ended(exit: Exit, usage: libc::rusage) -> WaitResult {
    let usage_of = ResourceUsage::new(duration(usage.ru_utime), duration(usage.ru_stime), None);
    WaitResult::Ended(
        ExitInfo {
            exit,
            usage: Some(usage_of),
        },
        u64::try_from(usage.ru_maxrss).unwrap_or(0),
    )
}

fn wait4(pid: u32) -> WaitResult {
    let Ok(pid) = libc::pid_t::try_from(pid) else {
        return WaitResult::NotChild;
    };
    let mut status = 0;
    // SAFETY: plain numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes at most one status and one rusage, both of which live here.
    let result = unsafe { libc::wait4(pid, &raw mut status, libc::WNOHANG, &raw mut usage) };
    match result {
        0 => WaitResult::Running,
        -1 => match last_errno() {
            libc::ECHILD => WaitResult::NotChild,
            errno => WaitResult::Failed(Errno::from_raw(errno)),
        },
        _ => ended(Exit::from_wait_status(status, StatusSource::Waitid), usage),
    }
}

fn duration(time: libc::timeval) -> Duration {
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_usec)
            .unwrap_or(0)
            .saturating_mul(1000),
    )
}

/// Peak memory of this process in KiB (getrusage(2)); 0 if the call fails. RUSAGE_THREAD has the
/// same peak as RUSAGE_SELF and does not add up the times of all threads.
pub(crate) fn own_peak() -> u64 {
    // SAFETY: plain numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one rusage, which lives here.
    if unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) } == 0 {
        u64::try_from(usage.ru_maxrss).unwrap_or(0)
    } else {
        0
    }
}

/// The child's own peak memory in KiB. `None` if the value may be the host's: at exec the kernel
/// folds the peak of the address space that the child was spawned in into the child's.
pub(crate) fn own_peak_of(child: u64, host_at_spawn: u64) -> Option<u64> {
    (child > host_at_spawn).then_some(child)
}

/// The exit status that a pidfd keeps after somebody else has reaped the child (PIDFD_INFO_EXIT,
/// Linux 6.15). `None` on older kernels.
pub(crate) fn exit_from_info(pidfd: BorrowedFd<'_>) -> Option<Exit> {
    // Reaping takes the child off the list of children first and publishes the status a moment
    // later.
    const TRIES: usize = 64;
    // The other thread may have lost its processor in between.
    const LAST_WAIT: Timespec = Timespec {
        tv_sec: 0,
        tv_nsec: 5_000_000,
    };
    for left in (0..TRIES).rev() {
        let info = info(pidfd, u64::from(libc::PIDFD_INFO_EXIT)).ok()?;
        if info.mask & u64::from(libc::PIDFD_INFO_EXIT) != 0 {
            return Some(Exit::from_wait_status(
                info.exit_code,
                StatusSource::PidfdInfo,
            ));
        }
        if left == 1 {
            // Nothing is asked for, so only the hang-up that follows the reaping ends the wait.
            let mut fds = [PollFd::from_borrowed_fd(pidfd, PollFlags::empty())];
            let _ = rustix::event::poll(&mut fds, Some(&LAST_WAIT));
        }
        rustix::thread::sched_yield();
    }
    None
}

/// PIDFD_GET_INFO (Linux 6.13) with the fields that `mask` asks for.
pub(crate) fn info(pidfd: BorrowedFd<'_>, mask: u64) -> Result<libc::pidfd_info, Errno> {
    // SAFETY: plain numbers.
    let mut info: libc::pidfd_info = unsafe { std::mem::zeroed() };
    info.mask = mask;
    // SAFETY: the size of the structure is part of the request's number; the kernel writes no more
    // than that.
    let result = unsafe { libc::ioctl(pidfd.as_raw_fd(), libc::PIDFD_GET_INFO, &raw mut info) };
    if result == 0 {
        Ok(info)
    } else {
        Err(Errno::from_raw(last_errno()))
    }
}

/// Opens a pidfd of the process that has this id now (pidfd_open(2), Linux 5.3).
pub(crate) fn open(pid: u32) -> Result<OwnedFd, Errno> {
    let pid = pid_of(pid).ok_or(Errno::from_raw(libc::ESRCH))?;
    Ok(rustix::process::pidfd_open(
        pid,
        rustix::process::PidfdFlags::empty(),
    )?)
}

/// Converts a process id for rustix. `None` for 0 and for values that no process can have.
pub(crate) fn pid_of(pid: u32) -> Option<rustix::process::Pid> {
    i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
}

/// Who gets a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignalScope {
    /// The signal goes to the process alone.
    Process,
    /// The process group that the process leads or has led. Through a pidfd this needs
    /// PIDFD_SIGNAL_PROCESS_GROUP (Linux 6.9).
    Group,
}

/// pidfd_send_signal(2). Without a signal nothing is sent, and ESRCH says that nobody is left.
pub(crate) fn send(
    pidfd: BorrowedFd<'_>,
    signal: Option<Signal>,
    scope: SignalScope,
) -> Result<(), Errno> {
    let number = signal.map_or(0, Signal::as_raw);
    let flags = match scope {
        SignalScope::Process => 0,
        SignalScope::Group => libc::PIDFD_SIGNAL_PROCESS_GROUP,
    };
    let no_info = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: no siginfo is passed; nothing of ours is read or written.
    let result = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            number,
            no_info,
            flags,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(Errno::from_raw(last_errno()))
    }
}

/// kill(2), by process id. The caller must know that the id is reserved: the process is a child of
/// this one that nobody has reaped.
///
/// # Errors
///
/// EINVAL for 0, for 1 (as a group: every process), and for ids that no process can have. Otherwise
/// the errno of kill(2).
pub(crate) fn kill(pid: u32, scope: SignalScope, signal: Signal) -> Result<(), Errno> {
    let pid = i32::try_from(pid)
        .ok()
        .filter(|pid| *pid > 1)
        .ok_or(Errno::from_raw(libc::EINVAL))?;
    let target = match scope {
        SignalScope::Process => pid,
        SignalScope::Group => -pid,
    };
    // SAFETY: no memory is involved.
    let result = unsafe { libc::kill(target, signal.as_raw()) };
    if result == 0 {
        Ok(())
    } else {
        Err(Errno::from_raw(last_errno()))
    }
}

/// The process group of a process, or of this process for 0 (getpgid(2)). `None` when there is no
/// such process. The group is 0 for kernel threads and for groups of another PID namespace.
pub(crate) fn group_of(pid: u32) -> Option<u32> {
    // rustix::process::getpgid assumes that no group is 0.
    // SAFETY: no memory is involved.
    let group = unsafe { libc::getpgid(i32::try_from(pid).ok()?) };
    u32::try_from(group).ok()
}

/// The session of this process, which its children inherit (getsid(2)). 0 for a session of another
/// PID namespace.
pub(crate) fn own_session() -> u32 {
    // SAFETY: no memory is involved.
    u32::try_from(unsafe { libc::getsid(0) }).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::process::{Child, Command, Stdio};

    fn start(script: &str) -> (Child, OwnedFd) {
        let child = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("sh");
        let pidfd = open(child.id()).expect("pidfd");
        (child, pidfd)
    }

    fn child_ref<'a>(child: &Child, pidfd: &'a OwnedFd) -> ChildRef<'a> {
        ChildRef {
            pid: child.id(),
            pidfd: Some(pidfd.as_fd()),
        }
    }

    fn sleep_until_readable(pidfd: &OwnedFd) {
        let mut fds = [rustix::event::PollFd::new(
            pidfd,
            rustix::event::PollFlags::IN,
        )];
        let limit = rustix::time::Timespec {
            tv_sec: 20,
            tv_nsec: 0,
        };
        assert_eq!(rustix::event::poll(&mut fds, Some(&limit)), Ok(1));
    }

    #[test]
    fn a_zombie_stays_until_it_is_reaped() {
        let (mut child, pidfd) = start("read x; exit 7");
        assert_eq!(
            wait_child(child_ref(&child, &pidfd), CollectMode::KeepZombie),
            WaitResult::Running
        );
        assert_eq!(
            wait_child(
                ChildRef {
                    pid: child.id(),
                    pidfd: None
                },
                CollectMode::Reap
            ),
            WaitResult::Running
        );
        drop(child.stdin.take());
        sleep_until_readable(&pidfd);
        for keep in [
            CollectMode::KeepZombie,
            CollectMode::KeepZombie,
            CollectMode::Reap,
        ] {
            let WaitResult::Ended(info, _) = wait_child(child_ref(&child, &pidfd), keep) else {
                panic!("the child has ended")
            };
            assert_eq!(info.exit, Exit::with_code(7, StatusSource::Waitid));
            assert!(info.usage.is_some());
        }
        assert_eq!(
            wait_child(child_ref(&child, &pidfd), CollectMode::Reap),
            WaitResult::NotChild
        );
    }

    #[test]
    fn signals_and_codes_are_told_apart() {
        let (mut child, pidfd) = start("kill -KILL $$");
        sleep_until_readable(&pidfd);
        let WaitResult::Ended(info, _) =
            wait_child(child_ref(&child, &pidfd), CollectMode::KeepZombie)
        else {
            panic!("the child has ended")
        };
        assert_eq!(
            info.exit,
            Exit::by_signal(Signal::KILL, false, StatusSource::Waitid)
        );
        assert!(child.wait().is_ok());
    }

    #[test]
    fn a_stopped_child_has_not_ended() {
        let (mut child, pidfd) = start("read x");
        send(pidfd.as_fd(), Some(Signal::STOP), SignalScope::Process).expect("stop");
        assert_eq!(
            wait_child(child_ref(&child, &pidfd), CollectMode::Reap),
            WaitResult::Running
        );
        send(pidfd.as_fd(), Some(Signal::KILL), SignalScope::Process).expect("kill");
        assert!(child.wait().is_ok());
        assert_eq!(
            send(pidfd.as_fd(), None, SignalScope::Process),
            Err(Errno::from_raw(libc::ESRCH))
        );
    }

    #[test]
    fn the_pidfd_keeps_the_status_that_somebody_else_has_taken() {
        let (mut child, pidfd) = start("exit 9");
        let can_tell = info(pidfd.as_fd(), u64::from(libc::PIDFD_INFO_EXIT)).is_ok();
        assert_eq!(child.wait().expect("wait").code(), Some(9));
        assert_eq!(
            wait_child(child_ref(&child, &pidfd), CollectMode::Reap),
            WaitResult::NotChild
        );
        let told = exit_from_info(pidfd.as_fd());
        // Kernels before 6.15 have no answer; no kernel has a wrong one.
        assert!(
            told == Some(Exit::with_code(9, StatusSource::PidfdInfo))
                || (!can_tell && told.is_none()),
            "{told:?}"
        );
    }

    #[test]
    fn a_peak_below_the_hosts_is_not_the_childs_own() {
        assert!(own_peak() > 0);
        assert_eq!(
            (own_peak_of(100, 100), own_peak_of(101, 100)),
            (None, Some(101))
        );
    }

    #[test]
    fn no_process_has_the_id_zero() {
        assert_eq!(open(0).map(|_| ()), Err(Errno::from_raw(libc::ESRCH)));
        assert!(pid_of(u32::MAX).is_none());
        assert_eq!(group_of(0), group_of(std::process::id()));
        assert_eq!(group_of(u32::MAX), None);
        for pid in [0, 1, u32::MAX] {
            // A signal that would do no harm if it went through.
            assert_eq!(
                kill(pid, SignalScope::Group, Signal::CONT),
                Err(Errno::from_raw(libc::EINVAL))
            );
        }
    }
}
