//! The signal dispositions of a child between clone and exec.

use super::child_call::sys;
use super::host_status;
use super::prepare::bit;
use std::ffi::c_int;
use std::os::fd::RawFd;

/// The kernel's `struct sigaction` (the same on both machines): handler, flags, restorer, mask.
#[repr(C)]
struct Action([usize; 3], u64);

/// Every signal whose action can be changed.
pub(super) const ALL: u64 = !(bit(libc::SIGKILL) | bit(libc::SIGSTOP));

/// The signals that the host ignores, and that this child has inherited as ignored. Read here and
/// not before the clone, so that the host does not wait for it. All of them, if the file cannot be
/// read.
pub(super) fn ignored(proc_status: RawFd) -> u64 {
    let mut text = [0_u8; host_status::STATUS_PREFIX];
    let read = sys(
        libc::SYS_pread64,
        [
            proc_status as usize,
            text.as_mut_ptr() as usize,
            host_status::STATUS_PREFIX,
            0,
            0,
        ],
    );
    let set = read
        .ok()
        .and_then(|len| host_status::ignored(text.get(..len)?));
    set.map_or(ALL, |set| set & ALL)
}

/// Signals whose default action is a core dump (signal(7)).
const CORE: u64 = bit(libc::SIGQUIT)
    | bit(libc::SIGILL)
    | bit(libc::SIGTRAP)
    | bit(libc::SIGABRT)
    | bit(libc::SIGBUS)
    | bit(libc::SIGFPE)
    | bit(libc::SIGSEGV)
    | bit(libc::SIGSYS)
    | bit(libc::SIGXCPU)
    | bit(libc::SIGXFSZ);

/// SA_RESTORER: the kernel of x86-64 runs no handler without one, even if it never returns.
const SA_RESTORER: usize = 0x0400_0000;

/// Handles a core-dumping signal between the unblocking of signals and exec, which resets it to the
/// default. A core dump takes every process that shares the memory with it before Linux 5.16
/// (kernel commit 0258b5fd7c71), and dumps the host's memory on any kernel.
extern "C" fn exit_on_signal(signal: c_int) {
    loop {
        let _ = sys(
            libc::SYS_exit_group,
            [128_usize.wrapping_add(signal as usize), 0, 0, 0, 0],
        );
    }
}

/// Ignores the signals of `ignore`, gives core-dumping ones the handler above, and resets the other
/// signals of `reset` to the default. The numbers are valid and not KILL or STOP, so no call can
/// fail.
pub(super) fn dispositions(reset: u64, ignore: u64) {
    let handler = exit_on_signal as extern "C" fn(c_int) as usize;
    for signal in 1..=64_u32 {
        let bit = 1_u64 << (signal - 1);
        let action = if ignore & bit != 0 {
            Action([libc::SIG_IGN, 0, 0], 0)
        } else if CORE & bit != 0 {
            Action([handler, SA_RESTORER, handler], u64::MAX)
        } else if reset & bit != 0 {
            Action([libc::SIG_DFL, 0, 0], 0)
        } else {
            continue;
        };
        let _ = sys(
            libc::SYS_rt_sigaction,
            [
                signal as usize,
                std::ptr::from_ref(&action) as usize,
                0,
                size_of::<u64>(),
                0,
            ],
        );
    }
}
