//! Process descriptors, and the status of a child: pidfd_open(2), pidfd_send_signal(2), waitid(2),
//! PIDFD_GET_INFO.
#![expect(
    unsafe_code,
    reason = "system calls that rustix has only without usage, group flag or exit information"
)]

use crate::types::{Errno, Exit, ExitInfo, ResourceUsage, Signal, StatusSource};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// A child of ours, by the surest name there is: after somebody else has reaped it, its number may
/// be another child's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChildName<'fd> {
    /// Its number.
    pub pid: u32,
    /// Its descriptor, where there is one.
    pub pidfd: Option<BorrowedFd<'fd>>,
}

/// The answer to [`wait_child`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// It has not ended.
    NotYet,
    /// It has ended. The second is its peak memory in KiB, of which [`peak`] says whether it is its
    /// own.
    Ended(ExitInfo, u64),
    /// It is no child of ours (any more): ECHILD.
    NotOurs,
    /// The question itself was refused.
    Refused(Errno),
}

/// Asks whether this child has ended, without sleeping. `reap` ends the zombie; else it is looked
/// at only.
pub(crate) fn wait_child(child: ChildName<'_>, reap: bool) -> Waited {
    let flags = libc::WEXITED | libc::WNOHANG | if reap { 0 } else { libc::WNOWAIT };
    if let Some(pidfd) = child.pidfd {
        match waitid(libc::P_PIDFD, pidfd.as_raw_fd().unsigned_abs(), flags) {
            // Linux 5.3 has pidfds that waitid does not know; a pidfd of ours is never invalid
            // otherwise.
            Waited::Refused(e) if e.raw() == libc::EINVAL => {}
            answer => return answer,
        }
    }
    waitid(libc::P_PID, child.pid, flags)
}

/// Reaps a process that has ended, if it is a child of ours (one that this process has inherited).
pub(crate) fn reap(pidfd: BorrowedFd<'_>) {
    // ECHILD: somebody else's.
    let _ = waitid(
        libc::P_PIDFD,
        pidfd.as_raw_fd().unsigned_abs(),
        libc::WEXITED | libc::WNOHANG,
    );
}

/// A child that has ended and was not reaped, whichever; it is looked at only.
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

fn waitid(kind: libc::idtype_t, id: u32, flags: i32) -> Waited {
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
            libc::ECHILD => return Waited::NotOurs,
            errno => return Waited::Refused(Errno::from_raw(errno)),
        }
    }
    // SAFETY: waitid has filled in (or left zero) the fields of SIGCHLD.
    if unsafe { info.si_pid() } == 0 {
        return Waited::NotYet;
    }
    // SAFETY: as above.
    let status = unsafe { info.si_status() };
    let exit = match (info.si_code, Signal::from_raw(status)) {
        (libc::CLD_EXITED, _) => Exit::with_code(status & 0xff, StatusSource::Waitid),
        (libc::CLD_KILLED, Some(signal)) => Exit::by_signal(signal, false, StatusSource::Waitid),
        (libc::CLD_DUMPED, Some(signal)) => Exit::by_signal(signal, true, StatusSource::Waitid),
        // WEXITED alone was asked for; a stop or a continuation is not an end.
        _ => return Waited::NotYet,
    };
    let usage_of = ResourceUsage::new(duration(usage.ru_utime), duration(usage.ru_stime), None);
    Waited::Ended(
        ExitInfo {
            exit,
            usage: Some(usage_of),
        },
        u64::try_from(usage.ru_maxrss).unwrap_or(0),
    )
}

fn duration(time: libc::timeval) -> Duration {
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_usec)
            .unwrap_or(0)
            .saturating_mul(1000),
    )
}

/// This process's own peak memory in KiB (getrusage(2)). Asked of the thread, whose answer has the
/// same peak (it is the memory's) and does not add up the times of all threads.
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

/// A child's peak, if it is its own: the kernel folds the spawner's peak into the child's at exec.
pub(crate) fn peak(childs: u64, hosts_at_spawn: u64) -> Option<u64> {
    (childs > hosts_at_spawn).then_some(childs)
}

/// The status that a pidfd keeps after somebody else has reaped the child (PIDFD_INFO_EXIT, Linux
/// 6.15).
pub(crate) fn exit_from_info(pidfd: BorrowedFd<'_>) -> Option<Exit> {
    // The one who reaps it takes it off our list first and leaves the status a moment later.
    const TRIES: usize = 64;
    for _ in 0..TRIES {
        let info = info(pidfd, u64::from(libc::PIDFD_INFO_EXIT)).ok()?;
        if info.mask & u64::from(libc::PIDFD_INFO_EXIT) != 0 {
            return Some(Exit::from_wait_status(
                info.exit_code,
                StatusSource::PidfdInfo,
            ));
        }
        rustix::thread::sched_yield();
    }
    None
}

/// PIDFD_GET_INFO, asking for what `mask` says.
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

/// A descriptor of this process (pidfd_open(2), Linux 5.3).
pub(crate) fn open(pid: u32) -> Result<OwnedFd, Errno> {
    let pid = pid_of(pid).ok_or(Errno::from_raw(libc::ESRCH))?;
    Ok(rustix::process::pidfd_open(
        pid,
        rustix::process::PidfdFlags::empty(),
    )?)
}

/// A number as rustix has it; `None` for 0 and what no process can have.
pub(crate) fn pid_of(pid: u32) -> Option<rustix::process::Pid> {
    i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
}

/// Whom a signal through a pidfd is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    /// The process.
    Process,
    /// The group that it leads, or has led (PIDFD_SIGNAL_PROCESS_GROUP, Linux 6.9).
    Group,
}

/// pidfd_send_signal(2). Without a signal it only asks: ESRCH when there is nobody.
pub(crate) fn send(pidfd: BorrowedFd<'_>, signal: Option<Signal>, to: To) -> Result<(), Errno> {
    let number = signal.map_or(0, Signal::as_raw);
    let flags = match to {
        To::Process => 0,
        To::Group => libc::PIDFD_SIGNAL_PROCESS_GROUP,
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

/// kill(2), by number. Only for a number that is pinned: the caller knows that its leader is not
/// reaped.
pub(crate) fn kill(pid: u32, to: To, signal: Signal) -> Result<(), Errno> {
    // 0 and 1 (everybody, as a group) are nobody's to signal.
    let pid = i32::try_from(pid)
        .ok()
        .filter(|pid| *pid > 1)
        .ok_or(Errno::from_raw(libc::EINVAL))?;
    let target = match to {
        To::Process => pid,
        To::Group => -pid,
    };
    // SAFETY: no memory is involved.
    let result = unsafe { libc::kill(target, signal.as_raw()) };
    if result == 0 {
        Ok(())
    } else {
        Err(Errno::from_raw(last_errno()))
    }
}

/// The group of a process (0: this one), in one call; `None` when it is gone. 0 for a thread of the
/// kernel, and for a group whose number has no meaning in this pid namespace.
pub(crate) fn group_of(pid: u32) -> Option<u32> {
    // Not rustix's: it takes for granted that no group is 0.
    // SAFETY: no memory is involved.
    let group = unsafe { libc::getpgid(i32::try_from(pid).ok()?) };
    u32::try_from(group).ok()
}

/// The session of this process, into which its children are born; 0 if its number has no meaning in
/// this pid namespace.
pub(crate) fn own_session() -> u32 {
    // SAFETY: no memory is involved.
    u32::try_from(unsafe { libc::getsid(0) }).unwrap_or(0)
}

fn last_errno() -> i32 {
    std::io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
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

    fn name<'a>(child: &Child, pidfd: &'a OwnedFd) -> ChildName<'a> {
        ChildName {
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
    fn a_look_keeps_the_zombie_and_a_reap_does_not() {
        let (mut child, pidfd) = start("read x; exit 7");
        assert_eq!(wait_child(name(&child, &pidfd), false), Waited::NotYet);
        assert_eq!(
            wait_child(
                ChildName {
                    pid: child.id(),
                    pidfd: None
                },
                true
            ),
            Waited::NotYet
        );
        drop(child.stdin.take());
        sleep_until_readable(&pidfd);
        for reap in [false, false, true] {
            let Waited::Ended(info, _) = wait_child(name(&child, &pidfd), reap) else {
                panic!("it has ended")
            };
            assert_eq!(info.exit, Exit::with_code(7, StatusSource::Waitid));
            assert!(info.usage.is_some());
        }
        assert_eq!(wait_child(name(&child, &pidfd), true), Waited::NotOurs);
    }

    #[test]
    fn signals_and_codes_are_told_apart() {
        let (mut child, pidfd) = start("kill -KILL $$");
        sleep_until_readable(&pidfd);
        let Waited::Ended(info, _) = wait_child(name(&child, &pidfd), false) else {
            panic!("it has ended")
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
        send(pidfd.as_fd(), Some(Signal::STOP), To::Process).expect("stop");
        assert_eq!(wait_child(name(&child, &pidfd), true), Waited::NotYet);
        send(pidfd.as_fd(), Some(Signal::KILL), To::Process).expect("kill");
        assert!(child.wait().is_ok());
        assert_eq!(
            send(pidfd.as_fd(), None, To::Process),
            Err(Errno::from_raw(libc::ESRCH))
        );
    }

    #[test]
    fn the_pidfd_keeps_the_status_that_somebody_else_has_taken() {
        let (mut child, pidfd) = start("exit 9");
        let can_tell = info(pidfd.as_fd(), u64::from(libc::PIDFD_INFO_EXIT)).is_ok();
        assert_eq!(child.wait().expect("wait").code(), Some(9));
        assert_eq!(wait_child(name(&child, &pidfd), true), Waited::NotOurs);
        let told = exit_from_info(pidfd.as_fd());
        // Kernels before 6.15 have no answer; no kernel has a wrong one.
        assert!(
            told == Some(Exit::with_code(9, StatusSource::PidfdInfo))
                || (!can_tell && told.is_none()),
            "{told:?}"
        );
    }

    #[test]
    fn a_peak_below_the_hosts_is_not_the_childs() {
        assert!(own_peak() > 0);
        assert_eq!((peak(100, 100), peak(101, 100)), (None, Some(101)));
    }

    #[test]
    fn number_zero_is_nobody() {
        assert_eq!(open(0).map(|_| ()), Err(Errno::from_raw(libc::ESRCH)));
        assert!(pid_of(u32::MAX).is_none());
        assert_eq!(group_of(0), group_of(std::process::id()));
        assert_eq!(group_of(u32::MAX), None);
        for pid in [0, 1, u32::MAX] {
            // A signal that would do no harm if it went through.
            assert_eq!(
                kill(pid, To::Group, Signal::CONT),
                Err(Errno::from_raw(libc::EINVAL))
            );
        }
    }
}
