//! The host's own signal dispositions and masks: what a program around the loop may need to read or
//! change. The loop itself changes neither.
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

/// Blocks a signal in the calling thread and in the threads that it starts afterwards
/// (pthread_sigmask(3)). Children of the loop start with an empty signal mask all the same.
///
/// A program that has given the terminal's foreground to a child blocks TTOU before it takes the
/// foreground back: tcsetpgrp(3) from the background would stop it, and so would each write to the
/// terminal with `stty tostop`.
///
/// # Errors
///
/// EINVAL if the signal cannot be put into a set.
///
/// ```
/// use lastwords::Signal;
///
/// lastwords::host::block(Signal::TTOU)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn block(signal: Signal) -> io::Result<()> {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the set is a place of its own type.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: the set has been made by sigemptyset(3).
    let added = unsafe { libc::sigaddset(set.as_mut_ptr(), signal.as_raw()) };
    if added != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the set is initialized, and a null place for the old mask is allowed.
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), ptr::null_mut()) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Calls `run` while a signal has its default action (SIG_DFL), then restores the action that it
/// had before. Other threads see the default action meanwhile.
///
/// A program that handles TSTP stops itself this way as the kernel would have stopped it: together
/// with its process group, and not at all in an orphaned process group, where no shell could
/// continue it.
///
/// # Errors
///
/// EINVAL for KILL and STOP, whose action cannot be changed; `run` is not called then.
///
/// ```
/// use lastwords::Signal;
/// use lastwords::host::{is_ignored, with_default_action};
///
/// let ignored_meanwhile = with_default_action(Signal::PIPE, || is_ignored(Signal::PIPE))?;
/// assert!(!ignored_meanwhile && is_ignored(Signal::PIPE));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn with_default_action<T>(signal: Signal, run: impl FnOnce() -> T) -> io::Result<T> {
    let mut default = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a zeroed sigaction is a valid one: SIG_DFL, an empty mask, no flags.
    let default = unsafe { default.assume_init_mut() };
    default.sa_sigaction = libc::SIG_DFL;
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: both are places of their own type.
    if unsafe { libc::sigaction(signal.as_raw(), default, before.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let answer = run();
    // SAFETY: what sigaction(2) has filled in itself is given back to it.
    if unsafe { libc::sigaction(signal.as_raw(), before.as_ptr(), ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(answer)
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
            .expect("/proc tells the masks");
        u64::from_str_radix(line.trim(), 16).expect("a number in hexadecimal")
    }

    #[test]
    fn signals_that_the_runtime_ignores_are_told() {
        // The runtime of a Rust program ignores PIPE and does not touch USR2.
        assert!(is_ignored(Signal::PIPE));
        assert!(!is_ignored(Signal::USR2));
    }

    #[test]
    fn the_default_action_holds_while_the_function_runs() {
        // No other test uses XFSZ.
        signal_hook::flag::register(libc::SIGXFSZ, std::sync::Arc::default())
            .expect("a signal that can be handled");
        let handled = || mask("SigCgt:") & (1 << (libc::SIGXFSZ - 1)) != 0;
        assert!(handled());
        assert_eq!(with_default_action(Signal::XFSZ, handled).ok(), Some(false));
        assert!(handled());
        assert!(with_default_action(Signal::KILL, || ()).is_err());
    }

    #[test]
    fn a_blocked_signal_is_in_the_mask() {
        std::thread::spawn(|| {
            block(Signal::TTOU).expect("a valid signal");
            assert_ne!(mask("SigBlk:") & (1 << (libc::SIGTTOU - 1)), 0);
        })
        .join()
        .expect("the thread's assertions hold");
    }
}
