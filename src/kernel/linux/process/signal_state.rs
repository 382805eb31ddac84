//! Signal dispositions and the signal mask of the host process. The loop itself changes neither.
#![expect(
    unsafe_code,
    reason = "sigaction(2) and pthread_sigmask(3) take pointers"
)]

use crate::types::Signal;
use std::mem::MaybeUninit;
use std::{io, ptr};

/// Whether this process ignores a signal (SIG_IGN, sigaction(2)).
///
/// Ignored dispositions survive exec, so right after the start this tells what the program was
/// started with: `nohup` ignores HUP, for example. `false` if the kernel does not know the signal.
///
/// ```
/// use lastwords::Signal;
/// use lastwords::host::is_ignored;
///
/// // The runtime of a Rust program ignores PIPE.
/// assert!(is_ignored(Signal::PIPE));
/// assert!(!is_ignored(Signal::USR2));
/// ```
pub fn is_ignored(signal: Signal) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null action changes nothing; the old one goes to a place of its own type.
    let answer = unsafe { libc::sigaction(signal.as_raw(), ptr::null(), action.as_mut_ptr()) };
    if answer != 0 {
        return false;
    }
    // SAFETY: sigaction(2) has succeeded, so it has filled the structure (which was zeroed
    // besides).
    let action = unsafe { action.assume_init() };
    action.sa_sigaction == libc::SIG_IGN
}

/// Makes this process ignore a signal. Children of the loop are not affected.
///
/// # Errors
///
/// EINVAL: KILL and STOP cannot be ignored.
pub fn ignore(signal: Signal) -> io::Result<()> {
    set_action(signal, libc::SIG_IGN).map(|_| ())
}

/// Unblocks all signals in the calling thread, whatever mask the process was started with.
///
/// # Errors
///
/// None on Linux.
pub fn unblock_all() -> io::Result<()> {
    change_mask(libc::SIG_SETMASK, &set_of(None)?).map(|_| ())
}

/// Stops this process with the default action of TSTP, TTIN or TTOU, as if the terminal had sent
/// the signal, and returns when it is continued. `whole_group` sends it to the whole process group.
///
/// A handler of the signal is put aside meanwhile. Returns at once if the process group is
/// orphaned, because nobody could continue it (setpgid(2)).
///
/// # Errors
///
/// EINVAL: the action of this signal cannot be changed.
pub fn stop_self(signal: Signal, whole_group: bool) -> io::Result<()> {
    let unblocked = change_mask(libc::SIG_UNBLOCK, &set_of(Some(signal))?)?;
    let before = set_action(signal, libc::SIG_DFL)?;
    let target = if whole_group {
        0
    } else {
        std::process::id().cast_signed()
    };
    // SAFETY: kill(2) takes two numbers.
    let sent = unsafe { libc::kill(target, signal.as_raw()) };
    let error = (sent != 0).then(io::Error::last_os_error);
    // SAFETY: the action was filled in by sigaction(2).
    unsafe { libc::sigaction(signal.as_raw(), &raw const before, ptr::null_mut()) };
    change_mask(libc::SIG_SETMASK, &unblocked)?;
    error.map_or(Ok(()), Err)
}

/// Runs `call` with a signal blocked in the calling thread.
pub(crate) fn with_blocked<T>(signal: Signal, call: impl FnOnce() -> T) -> io::Result<T> {
    let before = change_mask(libc::SIG_BLOCK, &set_of(Some(signal))?)?;
    let answer = call();
    change_mask(libc::SIG_SETMASK, &before)?;
    Ok(answer)
}

/// Blocks or unblocks a signal in the calling thread. Children of the loop start with an empty mask
/// all the same.
///
/// A program that has given the terminal's foreground to its child blocks TTOU: with `stty tostop`
/// every write to the terminal would stop it otherwise.
///
/// # Errors
///
/// EINVAL if the signal cannot be put into a set.
pub fn set_blocked(signal: Signal, blocked: bool) -> io::Result<()> {
    let how = if blocked {
        libc::SIG_BLOCK
    } else {
        libc::SIG_UNBLOCK
    };
    change_mask(how, &set_of(Some(signal))?).map(|_| ())
}

/// An empty set, or the set of one signal.
fn set_of(signal: Option<Signal>) -> io::Result<libc::sigset_t> {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the set is a place of its own type.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    if let Some(signal) = signal {
        // SAFETY: the set has been made by sigemptyset(3).
        if unsafe { libc::sigaddset(set.as_mut_ptr(), signal.as_raw()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: sigemptyset(3) has initialized it.
    Ok(unsafe { set.assume_init() })
}

/// Changes the mask of the calling thread. Returns the mask before.
fn change_mask(how: libc::c_int, set: &libc::sigset_t) -> io::Result<libc::sigset_t> {
    let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: both are places of their own type.
    match unsafe { libc::pthread_sigmask(how, set, before.as_mut_ptr()) } {
        // SAFETY: pthread_sigmask(3) has filled it.
        0 => Ok(unsafe { before.assume_init() }),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Sets the action of a signal. Returns the action before.
pub(crate) fn set_action(
    signal: Signal,
    handler: libc::sighandler_t,
) -> io::Result<libc::sigaction> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a zeroed sigaction is a valid one: SIG_DFL, an empty mask, no flags.
    let action = unsafe { action.assume_init_mut() };
    action.sa_sigaction = handler;
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: both are places of their own type; a handler is a function that takes the number.
    if unsafe { libc::sigaction(signal.as_raw(), action, before.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: sigaction(2) has filled it.
    Ok(unsafe { before.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(name: &str) -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status")
            .expect("a thread can read its own status");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .expect("the kernel shows its masks");
        u64::from_str_radix(line.trim(), 16).expect("a number in hexadecimal")
    }

    fn bit(signal: Signal) -> u64 {
        1 << (signal.as_raw() - 1)
    }

    #[test]
    fn ignored_signals_are_known() {
        // The runtime of a Rust program ignores PIPE, and leaves USR2 alone.
        assert!(is_ignored(Signal::PIPE));
        assert!(!is_ignored(Signal::USR2));
    }

    #[test]
    fn a_signal_is_blocked_for_one_call() {
        std::thread::spawn(|| {
            let blocked = || mask("SigBlk:") & bit(Signal::TTOU) != 0;
            assert_eq!(with_blocked(Signal::TTOU, blocked).ok(), Some(true));
            assert!(!blocked());
        })
        .join()
        .expect("the thread has made its assertions");
    }

    #[test]
    fn the_whole_mask_is_cleared() {
        std::thread::spawn(|| {
            set_blocked(Signal::TTOU, true).expect("a valid signal");
            set_blocked(Signal::TERM, true).expect("a valid signal");
            assert_ne!(mask("SigBlk:") & bit(Signal::TERM), 0);
            unblock_all().expect("an empty mask");
            assert_eq!(mask("SigBlk:"), 0);
        })
        .join()
        .expect("the thread has made its assertions");
    }

    #[test]
    fn a_signal_that_cannot_be_caught_is_refused() {
        assert!(stop_self(Signal::KILL, false).is_err());
    }
}
