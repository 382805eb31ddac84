//! Kills a child's process group when the host process aborts.
#![expect(
    unsafe_code,
    reason = "a signal handler, and system calls that are async-signal-safe"
)]

use super::signal_state::set_action;
use crate::types::Signal;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::{io, ptr};

/// The pidfd of the group's leader for the ABRT handler, or -1.
static ABORT_PIDFD: AtomicI32 = AtomicI32::new(-1);
/// The group for the ABRT handler where the kernel cannot signal a group by pidfd, or 0.
static ABORT_GROUP: AtomicI32 = AtomicI32::new(0);

/// Makes ABRT kill the process group of a child before it ends this process, so that a program
/// that runs out of memory leaves nothing running. The leader's pidfd is kept open for the life of
/// the process. [`forget_group`] ends it.
///
/// # Errors
///
/// None on Linux.
pub fn kill_group_on_abort(leader: u32, pidfd: OwnedFd) -> io::Result<()> {
    ABORT_PIDFD.store(pidfd.into_raw_fd(), Ordering::SeqCst);
    ABORT_GROUP.store(i32::try_from(leader).unwrap_or(0), Ordering::SeqCst);
    set_action(Signal::ABRT, on_abort as *const () as libc::sighandler_t).map(|_| ())
}

/// The group is empty: ABRT kills nobody any more.
pub fn forget_group() {
    ABORT_GROUP.store(0, Ordering::SeqCst);
    ABORT_PIDFD.store(-1, Ordering::SeqCst);
}

/// Kills the group and ends the process. Calls async-signal-safe functions alone.
extern "C" fn on_abort(signal: libc::c_int) {
    /// PIDFD_SIGNAL_PROCESS_GROUP (Linux 6.9).
    const WHOLE_GROUP: libc::c_int = 1 << 2;
    let (pidfd, group) = (
        ABORT_PIDFD.load(Ordering::SeqCst),
        ABORT_GROUP.load(Ordering::SeqCst),
    );
    let mut by_number = true;
    if pidfd >= 0 {
        let info = ptr::null::<libc::siginfo_t>();
        let call = libc::SYS_pidfd_send_signal;
        // SAFETY: pidfd_send_signal(2) takes numbers and a null pointer.
        let sent = unsafe { libc::syscall(call, pidfd, libc::SIGKILL, info, WHOLE_GROUP) };
        // EINVAL: before Linux 6.9. Any other error says that the group is empty, and its number
        // may belong to somebody else.
        // SAFETY: the call has no preconditions.
        let location = unsafe { libc::__errno_location() };
        // SAFETY: it points to the errno of this thread.
        let errno = unsafe { *location };
        by_number = sent != 0 && matches!(errno, libc::EINVAL | libc::ENOSYS);
    }
    if by_number && group > 1 {
        // SAFETY: kill(2) takes two numbers.
        unsafe { libc::kill(-group, libc::SIGKILL) };
    }
    // SAFETY: signal(2) with the default action, and raise(3): both are async-signal-safe.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    // SAFETY: as above. The signal is blocked until this handler returns.
    unsafe { libc::raise(signal) };
}
