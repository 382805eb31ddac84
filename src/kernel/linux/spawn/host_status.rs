//! What a spawn must know of the host, asked again and again: a host may be attached to by a
//! debugger, or open many descriptors, at any time.

#![expect(unsafe_code, reason = "sets this thread's mask, all 64 signals of it")]

use super::syscall::call;
use crate::kernel::linux::clock;
use rustix::fs::{Mode, OFlags};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What of the host matters to the making of a child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HostStatus {
    /// A debugger or tracer is attached.
    pub traced: bool,
    /// The size of its descriptor table.
    pub table: usize,
}

/// How long an answer holds: asking takes 6 µs, a debugger is attached by hand, and a table grows
/// slowly.
const CACHE_TIME: Duration = Duration::from_millis(10);

/// Where it is asked: `/proc/self/status`, kept open, since one pread gives all. The child reads in
/// it too.
#[derive(Debug)]
pub(super) struct ProcStatus {
    status: Option<Arc<OwnedFd>>,
    seen: Option<(Instant, HostStatus)>,
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

    /// As where there is no /proc.
    #[cfg(test)]
    pub(super) fn unavailable() -> ProcStatus {
        ProcStatus {
            status: None,
            seen: None,
        }
    }

    /// The open file, if there is a /proc.
    pub(super) fn fd(&self) -> Option<&Arc<OwnedFd>> {
        self.status.as_ref()
    }

    /// As it is now, or was a moment ago. Without a /proc: not traced, and a small table.
    pub(super) fn read(&mut self) -> HostStatus {
        let now = clock::instant();
        if let Some((at, host)) = self.seen
            && now.saturating_duration_since(at) < CACHE_TIME
        {
            return host;
        }
        let mut text = [0; STATUS_PREFIX];
        let read = self
            .status
            .as_ref()
            .and_then(|fd| rustix::io::pread(fd, &mut text, 0).ok());
        let host = read
            .and_then(|len| parse(text.get(..len)?))
            .unwrap_or_default();
        self.seen = Some((now, host));
        host
    }
}

/// Enough of a status file: what comes before the lines that matter is short but for the
/// supplementary groups.
pub(super) const STATUS_PREFIX: usize = 2048;

/// Two lines of proc_pid_status(5); `None` if one is missing.
fn parse(text: &[u8]) -> Option<HostStatus> {
    let traced = line(text, b"TracerPid:\t")? != b"0";
    let table = std::str::from_utf8(line(text, b"FDSize:\t")?)
        .ok()?
        .parse()
        .ok()?;
    Some(HostStatus { traced, table })
}

/// What follows `name` on its line. The child calls it too: it cannot panic.
fn line<'t>(text: &'t [u8], name: &[u8]) -> Option<&'t [u8]> {
    text.split(|&b| b == b'\n')
        .find_map(|line| line.strip_prefix(name))
}

/// The signals that a status file calls ignored; `None` if it does not say. The child calls it: it
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

/// All signals are blocked in this thread, those that the C library keeps for itself too, until it
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

/// Sets this thread's mask, gives the one before. Cannot fail: pointers and size are right.
fn set_mask(mask: u64) -> u64 {
    let mut before = 0_u64;
    let (new, old) = (
        std::ptr::from_ref(&mask) as usize,
        std::ptr::from_mut(&mut before) as usize,
    );
    // SAFETY: reads one signal set and writes another, both of the size that is told.
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
    fn this_process_is_seen() {
        let mut proc_status = ProcStatus::new();
        let host = proc_status.read();
        assert!(host.table >= 64);
        assert_eq!(proc_status.read(), host);
        assert_eq!(
            ProcStatus {
                status: None,
                seen: None
            }
            .read(),
            HostStatus::default()
        );
        let text = std::fs::read("/proc/self/status").expect("a /proc");
        // Rust's runtime ignores SIGPIPE.
        assert_ne!(ignored(&text).expect("said") & bit(libc::SIGPIPE), 0);
    }

    #[test]
    fn a_status_text_is_read_and_a_strange_one_is_not_believed() {
        let text = b"Name:\tx\nTracerPid:\t12\nFDSize:\t256\nSigIgn:\t000000000000100f\n";
        assert_eq!(
            parse(text),
            Some(HostStatus {
                traced: true,
                table: 256
            })
        );
        assert_eq!(ignored(text), Some(0x100f));
        assert_eq!(parse(b"TracerPid:\t0\nFDSize:\tx\n"), None);
        assert_eq!(parse(b"FDSize:\t1\n"), None);
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
