//! Finds out what this kernel, in this process, can do, by trying each call.
#![expect(
    unsafe_code,
    reason = "tries system calls with arguments that cannot do anything"
)]

use super::options::LinuxOptions;
use super::process::pidfd;
use super::stdio::write;
use crate::kernel::linux::last_errno::last_errno;
use crate::types::{
    Backend, BuildError, Capabilities, Errno, ExitSource, ExitSourceChoice, GroupSignal,
    MemberWatch,
};
use std::os::fd::AsFd;

/// Tries everything except the poll set, which is tried when it is made.
///
/// # Errors
///
/// The options insist on pidfds and there are none, or descriptors or memory are short.
pub(crate) fn find(options: &LinuxOptions) -> Result<Capabilities, BuildError> {
    let clone3 = try_clone3();
    let opened = pidfd::open(std::process::id());
    if let Err(e) = &opened {
        refuse_shortage("open a pidfd", *e)?;
    }
    let exit = choose_exit(
        options.exit_source,
        clone3,
        opened.as_ref().map(|_| ()).map_err(|e| *e),
    )?;
    let mut capabilities = Capabilities::bare(Backend::Epoll, exit.0);
    capabilities.exit_why = exit.1;
    capabilities.clone3 = clone3.is_ok();
    // clone(2) knows CLONE_PIDFD as long as clone3(2) does, and there is no harmless way to try it.
    capabilities.pidfd_from_clone = clone3.is_ok() || is_at_least(5, 3);
    capabilities.pidfd_open = opened.is_ok();
    // The kernel checks the flags first, then the descriptor: EBADF means that the flag is known.
    capabilities.pidfd_signal = try_signal(0) == libc::EBADF;
    capabilities.group_signal = capabilities.pidfd_signal
        && options.group_signal == GroupSignal::Auto
        && try_signal(libc::PIDFD_SIGNAL_PROCESS_GROUP) == libc::EBADF;
    // This tells that the request is known. Whether it reports exit statuses could be tried only
    // with a child that has ended.
    capabilities.exit_info = is_at_least(6, 15)
        && opened
            .is_ok_and(|own| pidfd::info(own.as_fd(), u64::from(libc::PIDFD_INFO_EXIT)).is_ok());
    capabilities.close_range = try_close_range();
    capabilities.nosignal_write = match write::try_write_without_signal() {
        Ok(()) => true,
        Err(e) => {
            refuse_shortage("write to a pipe", e)?;
            false
        }
    };
    capabilities.members = if capabilities.pidfd_open {
        MemberWatch::Pidfd
    } else {
        MemberWatch::Polling
    };
    Ok(capabilities)
}

/// Running out of descriptors or memory does not mean that a call is missing.
fn refuse_shortage(attempt: &'static str, errno: Errno) -> Result<(), BuildError> {
    match errno.raw() {
        libc::EMFILE | libc::ENFILE | libc::ENOMEM => Err(BuildError::new(attempt, Some(errno))),
        _ => Ok(()),
    }
}

type Tried = Result<(), Errno>;

fn choose_exit(
    choice: ExitSourceChoice,
    clone3: Tried,
    open: Tried,
) -> Result<(ExitSource, String), BuildError> {
    const EVERY_SECOND: &str = "children are also asked once a second";
    match (choice, clone3, open) {
        (ExitSourceChoice::Sigchld, ..) => Ok((
            ExitSource::Sigchld,
            format!("SIGCHLD was asked for; {EVERY_SECOND}"),
        )),
        (ExitSourceChoice::Pidfd, Ok(()), _) | (ExitSourceChoice::Pidfd, _, Ok(())) => {
            Ok((ExitSource::Pidfd, "pidfds were asked for".into()))
        }
        (ExitSourceChoice::Pidfd, Err(_), Err(e)) => {
            Err(BuildError::new("watch exits by pidfd", Some(e)))
        }
        (ExitSourceChoice::Auto, Ok(()), Ok(())) => {
            Ok((ExitSource::Pidfd, "pidfds are available".into()))
        }
        (ExitSourceChoice::Auto, Ok(()), Err(e)) => Ok((
            ExitSource::Pidfd,
            format!("clone3 gives pidfds; pidfd_open refused: {e}"),
        )),
        (ExitSourceChoice::Auto, Err(e), Ok(())) => Ok((
            ExitSource::Pidfd,
            format!("pidfd_open gives pidfds; clone3 refused: {e}"),
        )),
        (ExitSourceChoice::Auto, Err(clone3), Err(open)) => Ok((
            ExitSource::Sigchld,
            format!("clone3 refused: {clone3}; pidfd_open refused: {open}; {EVERY_SECOND}"),
        )),
    }
}

/// Arguments of size 0 clone nothing: EINVAL where the call is known.
fn try_clone3() -> Tried {
    // SAFETY: size 0 is refused before anything is read.
    let result = unsafe { libc::syscall(libc::SYS_clone3, std::ptr::null::<u8>(), 0_usize) };
    match errno_of(result) {
        libc::EINVAL => Ok(()),
        e => Err(Errno::from_raw(e)),
    }
}

/// The errno of sending signal 0 to descriptor -1.
fn try_signal(flags: u32) -> i32 {
    // SAFETY: descriptor -1 names no process, and signal 0 does nothing.
    let result = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            -1_i64,
            0_i64,
            std::ptr::null::<u8>(),
            i64::from(flags),
        )
    };
    errno_of(result)
}

/// Closes a descriptor that cannot exist.
fn try_close_range() -> bool {
    // SAFETY: no descriptor has this number.
    let result = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            i64::from(u32::MAX),
            i64::from(u32::MAX),
            0_i64,
        )
    };
    result == 0
}

/// The errno of a call that returned `result`; 0 if it has succeeded.
fn errno_of(result: libc::c_long) -> i32 {
    if result == -1 { last_errno() } else { 0 }
}

/// Whether the release of uname(2) is at least this one.
fn is_at_least(major: u32, minor: u32) -> bool {
    let name = rustix::system::uname();
    is_release_at_least(name.release().to_bytes(), (major, minor))
}

fn is_release_at_least(release: &[u8], wanted: (u32, u32)) -> bool {
    let text = String::from_utf8_lossy(release);
    let mut numbers = text
        .split(|c: char| !c.is_ascii_digit())
        .map(|n| n.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_is_told_with_its_reason() {
        let refused = Err(Errno::from_raw(libc::EPERM));
        let auto = |clone3, open| {
            choose_exit(ExitSourceChoice::Auto, clone3, open).expect("there is always a way")
        };
        assert_eq!(auto(Ok(()), Ok(())).0, ExitSource::Pidfd);
        assert_eq!(
            auto(Ok(()), refused).1,
            "clone3 gives pidfds; pidfd_open refused: Operation not permitted (EPERM)"
        );
        assert_eq!(auto(refused, Ok(())).0, ExitSource::Pidfd);
        let (source, why) = auto(refused, Err(Errno::from_raw(libc::ENOSYS)));
        assert_eq!(source, ExitSource::Sigchld);
        assert!(why.contains("clone3 refused: Operation not permitted (EPERM); pidfd_open refused: Function not implemented"), "{why}");
        assert_eq!(
            choose_exit(ExitSourceChoice::Sigchld, Ok(()), Ok(()))
                .expect("can be had")
                .0,
            ExitSource::Sigchld
        );
        let error = choose_exit(ExitSourceChoice::Pidfd, refused, refused).expect_err("not there");
        assert_eq!(
            error.to_string(),
            "watch exits by pidfd: Operation not permitted (EPERM)"
        );
    }

    #[test]
    fn trying_agrees_with_the_kernels_release() {
        let capabilities = find(&LinuxOptions::default()).expect("capabilities");
        // A filter may refuse what the kernel has, but a call cannot succeed that the kernel lacks.
        for (has, (major, minor)) in [
            (capabilities.clone3, (5, 3)),
            (capabilities.pidfd_open, (5, 3)),
            (capabilities.pidfd_signal, (5, 1)),
            (capabilities.group_signal, (6, 9)),
            (capabilities.exit_info, (6, 15)),
            (capabilities.close_range, (5, 9)),
            (capabilities.nosignal_write, (6, 18)),
        ] {
            assert!(!has || is_at_least(major, minor), "{capabilities:?}");
        }
        let off = find(&LinuxOptions {
            group_signal: GroupSignal::Off,
            ..LinuxOptions::default()
        })
        .expect("capabilities");
        assert!(!off.group_signal);
    }

    #[test]
    fn releases_are_compared_by_number() {
        assert!(is_release_at_least(b"6.18.44-fc-v857", (6, 9)));
        assert!(is_release_at_least(b"5.10.0", (5, 3)));
        assert!(!is_release_at_least(b"5.2-rc1", (5, 3)));
        assert!(!is_release_at_least(b"", (5, 3)));
        assert!(is_release_at_least(b"7", (6, 15)));
    }
}
