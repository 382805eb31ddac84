//! What a spawn must know of the host, and the blocking of signals around a clone.

#![expect(unsafe_code, reason = "sets this thread's mask, all 64 signals of it")]

use super::syscall::call;
use crate::kernel::linux::clock;
use rustix::fs::{Mode, OFlags};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long an answer is reused. Asking takes 6 µs, and a debugger is attached by hand.
const CACHE_TIME: Duration = Duration::from_millis(10);

/// /proc/self/status, kept open, so that one pread(2) answers. The child reads it too.
#[derive(Debug)]
pub(super) struct ProcStatus {
    status: Option<Arc<OwnedFd>>,
    seen: Option<(Instant, bool)>,
}

impl ProcStatus {
    pub(super) fn new() -> ProcStatus {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let status = rustix::fs::open("/proc/self/status", flags, Mode::empty()).ok();
        ProcStatus {
            status: status.map(Arc::new),
            seen: None,
        }
    }

    /// As on a system without /proc.
    #[cfg(test)]
    pub(super) fn unavailable() -> ProcStatus {
        ProcStatus {
            status: None,
            seen: None,
        }
    }

    /// The open file; `None` without a /proc.
    pub(super) fn fd(&self) -> Option<&Arc<OwnedFd>> {
        self.status.as_ref()
    }

    /// Whether a debugger or another tracer is attached to this process. False without a /proc.
    pub(super) fn is_traced(&mut self) -> bool {
        let now = clock::instant();
        if let Some((at, is_traced)) = self.seen
            && now.saturating_duration_since(at) < CACHE_TIME
        {
            return is_traced;
        }
        let mut text = [0; STATUS_PREFIX];
        let read = self
            .status
            .as_ref()
            .and_then(|fd| rustix::io::pread(fd, &mut text, 0).ok());
        let is_traced = read
            .and_then(|len| traced(text.get(..len)?))
            .unwrap_or(false);
        self.seen = Some((now, is_traced));
        is_traced
    }
}

/// Bytes read of a status file. What comes before the lines that matter is short, except for the
/// supplementary groups.
pub(super) const STATUS_PREFIX: usize = 2048;

/// Whether a status file names a tracer; `None` if it does not say.
fn traced(text: &[u8]) -> Option<bool> {
    Some(line(text, b"TracerPid:\t")? != b"0")
}

/// What follows `name` on its line. Called by the child too, so it cannot panic.
fn line<'t>(text: &'t [u8], name: &[u8]) -> Option<&'t [u8]> {
    text.split(|&b| b == b'\n')
        .find_map(|line| line.strip_prefix(name))
}

/// The ignored signals of a status file; `None` if it does not say. Called by the child too, so it
/// cannot panic.
pub(super) fn ignored(text: &[u8]) -> Option<u64> {
    let digits = line(text, b"SigIgn:\t")?;
    if digits.len() != 16 {
        return None;
    }
    digits.iter().try_fold(0_u64, |set, digit| {
        let value = match digit {
            b'0'..=b'9' => digit.wrapping_sub(b'0'),
            b'a'..=b'f' => digit.wrapping_sub(b'a').wrapping_add(10),
            _ => return None,
        };
        Some((set << 4) | u64::from(value))
    })
}

/// Blocks all signals of this thread, those that the C library keeps for itself included, until it
/// is dropped.
#[derive(Debug)]
pub(super) struct SignalsBlocked {
    before: u64,
}

impl SignalsBlocked {
    pub(super) fn new() -> SignalsBlocked {
        SignalsBlocked {
            before: set_mask(u64::MAX),
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        set_mask(self.before);
    }
}

/// Sets this thread's signal mask and returns the one before. Cannot fail.
fn set_mask(mask: u64) -> u64 {
    let mut before = 0_u64;
    let (new, old) = (
        std::ptr::from_ref(&mask) as usize,
        std::ptr::from_mut(&mut before) as usize,
    );
    // SAFETY: reads one signal set and writes another, both of the size that is passed.
    let set = unsafe {
        call(
            libc::SYS_rt_sigprocmask,
            [libc::SIG_SETMASK as usize, new, old, size_of::<u64>(), 0],
        )
    };
    debug_assert!(set.is_ok());
    before
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::linux::spawn::prepare::bit;

    #[test]
    fn the_status_of_this_process_is_read() {
        let mut proc_status = ProcStatus::new();
        let is_traced = proc_status.is_traced();
        assert_eq!(proc_status.is_traced(), is_traced);
        assert!(!ProcStatus::unavailable().is_traced());
        let text = std::fs::read("/proc/self/status").expect("a /proc");
        // Rust's runtime ignores SIGPIPE.
        assert_ne!(ignored(&text).expect("said") & bit(libc::SIGPIPE), 0);
    }

    #[test]
    fn a_status_text_is_read_and_a_strange_one_is_not_believed() {
        let text = b"Name:\tx\nTracerPid:\t12\nFDSize:\t256\nSigIgn:\t000000000000100f\n";
        assert_eq!(traced(text), Some(true));
        assert_eq!(traced(b"TracerPid:\t0\n"), Some(false));
        assert_eq!(ignored(text), Some(0x100f));
        assert_eq!(traced(b"FDSize:\t1\n"), None);
        for strange in [&b""[..], b"SigIgn:\t1\n", b"SigIgn:\t000000000000zzzz\n"] {
            assert_eq!(ignored(strange), None);
        }
    }

    #[test]
    fn the_mask_is_full_while_blocked_and_then_as_before() {
        let before = set_mask(bit(libc::SIGUSR1));
        {
            let _blocked = SignalsBlocked::new();
            let full = set_mask(u64::MAX);
            // KILL and STOP cannot be blocked.
            assert_eq!(full, !(bit(libc::SIGKILL) | bit(libc::SIGSTOP)));
        }
        assert_eq!(set_mask(before), bit(libc::SIGUSR1));
    }
}
