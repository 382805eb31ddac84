//! Writing to a child's stdin without raising SIGPIPE in the host, and without touching the host's
//! disposition of SIGPIPE.
#![expect(
    unsafe_code,
    reason = "pwritev2 with a flag that rustix does not name, and this thread's signal mask"
)]

use crate::kernel::Wrote;
use crate::kernel::linux::last_errno::last_errno;
use crate::types::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use std::ffi::c_long;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// RWF_NOSIGNAL (Linux 6.18): no SIGPIPE for this write.
const RWF_NOSIGNAL: i32 = 0x100;

/// Tries whether pwritev2(2) knows RWF_NOSIGNAL, on a pipe that has a reader.
pub(crate) fn try_write_without_signal() -> Result<(), Errno> {
    let (_reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    match write_without_signal(writer.as_fd(), b"x") {
        Ok(_) => Ok(()),
        Err(e) => Err(Errno::from_raw(e)),
    }
}

/// Writes once, to a non-blocking descriptor. `without_signal` says whether pwritev2(2) knows
/// RWF_NOSIGNAL.
pub(crate) fn write(fd: BorrowedFd<'_>, bytes: &[u8], without_signal: bool) -> Wrote {
    if bytes.is_empty() {
        return Wrote::Failed(Errno::from_raw(libc::EINVAL));
    }
    loop {
        let direct = without_signal.then(|| write_without_signal(fd, bytes));
        let result = match direct {
            // A seccomp filter that was installed after the flag was tried.
            None | Some(Err(libc::EPERM | libc::ENOSYS | libc::EOPNOTSUPP | libc::EINVAL)) => {
                write_under_mask(fd, bytes)
            }
            Some(result) => result,
        };
        return match result {
            // A pipe takes at least one byte or says EAGAIN.
            Ok(0) => Wrote::Full,
            Ok(n) => Wrote::Took(n),
            Err(libc::EINTR) => continue,
            Err(libc::EAGAIN) => Wrote::Full,
            Err(libc::EPIPE) => Wrote::NoReader,
            Err(errno) => Wrote::Failed(Errno::from_raw(errno)),
        };
    }
}

fn write_without_signal(fd: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, i32> {
    let piece = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // The raw call, because not every C library passes an unknown flag on. Each argument is as wide
    // as a register. Offset -1 means the present position (readv(2)).
    // SAFETY: the one piece is `bytes`, which the kernel only reads.
    let n = unsafe {
        libc::syscall(
            libc::SYS_pwritev2,
            c_long::from(fd.as_raw_fd()),
            &raw const piece,
            1_usize,
            -1_i64,
            -1_i64,
            c_long::from(RWF_NOSIGNAL),
        )
    };
    usize::try_from(n).map_err(|_| last_errno())
}

/// Writes with SIGPIPE blocked in this thread. The kernel sends the signal to the writing thread
/// before write(2) returns, so it is taken back here, unless it was pending before.
fn write_under_mask(fd: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, i32> {
    let pipe = sigpipe();
    let was_pending = is_pending(libc::SIGPIPE);
    let mut before = pipe;
    // SAFETY: both sets are live.
    let errno = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const pipe, &raw mut before) };
    if errno != 0 {
        return Err(errno);
    }
    let result = rustix::io::write(fd, bytes).map_err(rustix::io::Errno::raw_os_error);
    if result == Err(libc::EPIPE) && !was_pending {
        let now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: set and time are live, and no information is asked for. After EINTR nothing was
        // taken yet.
        while unsafe { libc::sigtimedwait(&raw const pipe, std::ptr::null_mut(), &raw const now) }
            == -1
            && last_errno() == libc::EINTR
        {}
    }
    // SAFETY: the set was filled in above.
    let _ = unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut())
    };
    result
}

fn is_pending(signal: i32) -> bool {
    // SAFETY: plain bits, which the next call fills in.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set lives here.
    if unsafe { libc::sigpending(&raw mut set) } != 0 {
        return false;
    }
    // SAFETY: the set was filled in, and the signal's number is valid.
    unsafe { libc::sigismember(&raw const set, signal) == 1 }
}

fn sigpipe() -> libc::sigset_t {
    // SAFETY: plain bits, which the next call makes an empty set.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set lives here.
    unsafe { libc::sigemptyset(&raw mut set) };
    // SAFETY: as above, and the signal's number is valid.
    unsafe { libc::sigaddset(&raw mut set, libc::SIGPIPE) };
    set
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::isolation::alone;
    use std::os::fd::OwnedFd;

    fn nonblocking() -> (OwnedFd, OwnedFd) {
        pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).expect("pipe")
    }

    fn ways() -> Vec<bool> {
        if try_write_without_signal().is_ok() {
            vec![false, true]
        } else {
            vec![false]
        }
    }

    #[test]
    fn bytes_go_in_until_it_is_full() {
        alone("bytes_go_in_until_it_is_full", module_path!(), || {
            for way in ways() {
                let (reader, writer) = nonblocking();
                let mut taken = 0;
                let last = loop {
                    match write(writer.as_fd(), &[5; 10_000], way) {
                        Wrote::Took(n) => taken += n,
                        other => break other,
                    }
                };
                assert_eq!(last, Wrote::Full);
                let mut all = vec![0; taken + 1];
                assert_eq!(rustix::io::read(&reader, &mut all), Ok(taken));
                assert!(matches!(write(writer.as_fd(), b"x", way), Wrote::Took(1)));
            }
        });
    }

    #[test]
    fn a_reader_that_is_gone_raises_no_signal_even_under_the_default_action() {
        alone(
            "a_reader_that_is_gone_raises_no_signal_even_under_the_default_action",
            module_path!(),
            || {
                // SAFETY: sets the default action, by which a SIGPIPE would end this process.
                unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
                for way in ways() {
                    let (reader, writer) = nonblocking();
                    drop(reader);
                    assert_eq!(write(writer.as_fd(), b"x", way), Wrote::NoReader);
                    assert!(!is_pending(libc::SIGPIPE));
                }
            },
        );
    }

    #[test]
    fn a_signal_that_was_pending_before_stays_pending() {
        alone(
            "a_signal_that_was_pending_before_stays_pending",
            module_path!(),
            || {
                let set = sigpipe();
                // SAFETY: the set is live, and only this thread is changed.
                unsafe {
                    libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut())
                };
                // SAFETY: the signal goes to this thread, which blocks it.
                unsafe { libc::raise(libc::SIGPIPE) };
                let (reader, writer) = nonblocking();
                drop(reader);
                assert_eq!(write(writer.as_fd(), b"x", false), Wrote::NoReader);
                assert!(is_pending(libc::SIGPIPE));
            },
        );
    }

    /// CASES 67.
    #[test]
    fn a_flag_that_is_refused_later_is_done_without() {
        alone(
            "a_flag_that_is_refused_later_is_done_without",
            module_path!(),
            || {
                crate::kernel::linux::tests::refuse(&[libc::SYS_pwritev2], libc::EPERM);
                let (reader, writer) = nonblocking();
                assert_eq!(write(writer.as_fd(), b"x", true), Wrote::Took(1));
                drop(reader);
                assert_eq!(write(writer.as_fd(), b"x", true), Wrote::NoReader);
            },
        );
    }
}
