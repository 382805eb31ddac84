//! What /proc says of one process. Only files that take no memory-map lock are read: `stat` and the
//! links below `fd`.

pub(crate) mod scan;

use crate::types::{Errno, Member, Survivor};
use rustix::fs::{AtFlags, Mode, OFlags, openat, readlinkat_raw, statat};
use std::ffi::CStr;
use std::io::Write;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// What is used of /proc/PID/stat (proc_pid_stat(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// Field 2, made fit for a report.
    pub comm: String,
    /// Field 3.
    pub state: char,
    /// Field 4.
    pub parent: u32,
    /// Field 5.
    pub group: u32,
    /// Field 6.
    pub session: u32,
    /// Field 9, PF_* of the kernel.
    pub flags: u64,
    /// Field 20.
    pub threads: u64,
    /// Field 22, in clock ticks since boot.
    pub start: u64,
}

impl Stat {
    /// PF_KTHREAD: a thread of the kernel itself, which has no descriptors.
    const KERNEL_THREAD: u64 = 0x0020_0000;

    /// Reads the one line. `None` if it is not one.
    pub(crate) fn parse(line: &[u8]) -> Option<Stat> {
        // The name may hold anything, `) ` included: it ends at the last parenthesis.
        let open = line.iter().position(|b| *b == b'(')?;
        let close = line.iter().rposition(|b| *b == b')')?;
        let comm = line.get(open + 1..close)?;
        let rest = std::str::from_utf8(line.get(close + 1..)?).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        // `nth` counts from what was taken last: fields 3, 4, 5, 6, 9, 20, 22.
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        let session = fields.next()?.parse().ok()?;
        let flags = fields.nth(2)?.parse().ok()?;
        let threads = fields.nth(10)?.parse().ok()?;
        let start = fields.nth(1)?.parse().ok()?;
        Some(Stat {
            comm: plain(comm),
            state,
            parent,
            group,
            session,
            flags,
            threads,
            start,
        })
    }

    /// A zombie (or one being buried) whose threads have all ended is not alive; one whose main
    /// thread alone has ended is.
    pub(crate) fn is_alive(&self) -> bool {
        !(matches!(self.state, 'Z' | 'X' | 'x') && self.threads <= 1)
    }

    /// A thread of the kernel itself.
    pub(crate) fn is_kernel_thread(&self) -> bool {
        self.flags & Self::KERNEL_THREAD != 0
    }

    /// As a report and a later look want it.
    pub(crate) fn member(self, pid: u32, now: Duration, ticks: u64) -> Member {
        let started = Duration::from_nanos(
            u64::try_from(u128::from(self.start) * 1_000_000_000 / u128::from(ticks.max(1)))
                .unwrap_or(0),
        );
        Member {
            who: Survivor::new(pid, self.comm, self.state, now.saturating_sub(started)),
            start: self.start,
        }
    }
}

/// A process chooses its own name, and so the bytes that would reach a terminal through a report.
fn plain(comm: &[u8]) -> String {
    let is_bidi = |c: char| matches!(c, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}');
    String::from_utf8_lossy(comm)
        .chars()
        .map(|c| {
            if c.is_control() || is_bidi(c) {
                '\u{FFFD}'
            } else {
                c
            }
        })
        .collect()
}

/// A path below /proc without an allocation: at most `4294967295/task/4294967295/fd`.
#[derive(Debug)]
pub(crate) struct Path {
    bytes: [u8; 48],
}

impl Path {
    /// Puts one together.
    pub(crate) fn new(parts: std::fmt::Arguments<'_>) -> Path {
        let mut bytes = [0; 48];
        // Cut off where it is too long, with a zero left at the end; no path that is asked for here
        // is.
        let _ = (&mut bytes[..47]).write_fmt(parts);
        Path { bytes }
    }

    /// As the kernel wants it.
    pub(crate) fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }
}

/// /proc, opened once: it shows this process under its own number, or it is another process world's
/// and of no use.
#[derive(Debug)]
pub(crate) struct Proc {
    dir: OwnedFd,
    hides: bool,
    ticks: u64,
}

impl Proc {
    /// Opens it. The error says why there is nothing to look at.
    pub(crate) fn open() -> Result<Proc, Errno> {
        let dir = openat(
            rustix::fs::CWD,
            c"/proc",
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let mut buffer = [MaybeUninit::uninit(); 16];
        let (own, _) = readlinkat_raw(&dir, c"self", &mut buffer)?;
        if own
            != rustix::process::getpid()
                .as_raw_nonzero()
                .to_string()
                .as_bytes()
        {
            return Err(Errno::from_raw(libc::EXDEV));
        }
        // hidepid=2 takes the processes of other users out of the listing (proc(5)); process 1 is
        // always there otherwise.
        let first = statat(&dir, c"1/stat", AtFlags::empty());
        let hides = first.is_err() || !is_readable(&dir, c"1/stat");
        Ok(Proc {
            dir,
            hides,
            ticks: rustix::param::clock_ticks_per_second(),
        })
    }

    /// Processes of other users are hidden: no list is complete.
    pub(crate) fn hides(&self) -> bool {
        self.hides
    }

    /// The directory.
    pub(crate) fn dir(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.dir)
    }

    /// The directory once more, with a place of its own in the listing.
    pub(crate) fn reopen(&self) -> Result<OwnedFd, Errno> {
        Ok(openat(
            &self.dir,
            c".",
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?)
    }

    /// Clock ticks per second, the unit of [`Stat::start`].
    pub(crate) fn ticks(&self) -> u64 {
        self.ticks
    }

    /// The eight hexadecimal digits that follow `prefix` in the name of a variable of this
    /// process's environment, as it was at its exec. Reading it takes the lock of the process's
    /// memory map: not for one that sleeps uninterruptibly.
    pub(crate) fn variable_after(&self, pid: u32, prefix: &[u8]) -> Result<Option<u32>, Errno> {
        const DIGITS: usize = 8;
        /// The most that arguments and variables can be together, unless the stack's limit was
        /// raised (execve(2)).
        const MOST: usize = 2 << 20;
        let path = Path::new(format_args!("{pid}/environ"));
        let file = openat(
            &self.dir,
            path.as_c_str(),
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let finder = memchr::memmem::Finder::new(prefix);
        // What has to stay of a piece so that nothing is missed between two: a whole name but one
        // byte, and the byte before it.
        let whole = prefix.len() + DIGITS + 1;
        let mut buffer = [0; 8192];
        let (mut used, mut total) = (0, 0);
        while total < MOST {
            let n = match rustix::io::read(&file, buffer.get_mut(used..).unwrap_or_default()) {
                Ok(0) => break,
                Ok(n) => n,
                Err(rustix::io::Errno::INTR) => continue,
                Err(e) => return Err(e.into()),
            };
            let text = buffer.get(..used + n).unwrap_or_default();
            for at in finder.find_iter(text) {
                let begins = if at == 0 {
                    total == used
                } else {
                    text.get(at - 1) == Some(&0)
                };
                let id = text
                    .get(at + prefix.len()..at + whole)
                    .and_then(|id| id.strip_suffix(b"="));
                let id = id
                    .filter(|id| begins && id.iter().all(u8::is_ascii_hexdigit))
                    .and_then(|id| std::str::from_utf8(id).ok());
                if let Some(id) = id.and_then(|id| u32::from_str_radix(id, 16).ok()) {
                    return Ok(Some(id));
                }
            }
            total += n;
            let keep = text.len().min(whole);
            let from = text.len() - keep;
            buffer.copy_within(from..from + keep, 0);
            used = keep;
        }
        Ok(None)
    }

    /// Reads a process's stat. ENOENT and ESRCH: it is gone.
    pub(crate) fn stat(&self, pid: u32) -> Result<Stat, Errno> {
        let path = Path::new(format_args!("{pid}/stat"));
        let file = openat(
            &self.dir,
            path.as_c_str(),
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let mut buffer = [0; 1024];
        let mut used = 0;
        while let Some(rest) = buffer.get_mut(used..).filter(|rest| !rest.is_empty()) {
            match rustix::io::read(&file, rest) {
                Ok(0) => break,
                Ok(n) => used += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Stat::parse(buffer.get(..used).unwrap_or_default()).ok_or(Errno::from_raw(libc::EIO))
    }
}

fn is_readable(dir: &OwnedFd, path: &CStr) -> bool {
    openat(dir, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).is_ok()
}

/// The process is gone: what raced is no refusal.
pub(crate) fn is_gone(e: Errno) -> bool {
    matches!(e.raw(), libc::ENOENT | libc::ESRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &[u8] =
        b"42 (a) (b) R 1 2) S 7 40 41 34816 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 12345 1000 200\n";

    #[test]
    fn the_name_ends_at_the_last_parenthesis() {
        let stat = Stat::parse(LINE).expect("a line");
        let expected = Stat {
            comm: "a) (b) R 1 2".into(),
            state: 'S',
            parent: 7,
            group: 40,
            session: 41,
            flags: 4_194_560,
            threads: 3,
            start: 12345,
        };
        assert_eq!(stat, expected);
        assert!(!stat.is_kernel_thread());
    }

    #[test]
    fn what_is_no_line_is_no_stat() {
        for line in [
            &b""[..],
            b"42",
            b"42 (x",
            b"42 (x)",
            b"42 (x) S 1",
            b")(",
            b"42 (x) S a b c d e f g",
        ] {
            assert_eq!(Stat::parse(line), None, "{line:?}");
        }
        for cut in 0..LINE.len() - 20 {
            // No prefix makes it panic.
            let _ = Stat::parse(&LINE[..cut]);
        }
    }

    #[test]
    fn a_zombie_with_threads_is_alive() {
        let with = |state, threads| Stat {
            state,
            threads,
            ..Stat::parse(LINE).expect("a line")
        };
        assert!(with('Z', 2).is_alive());
        assert!(!with('Z', 1).is_alive());
        assert!(!with('X', 0).is_alive());
        assert!(with('D', 1).is_alive());
        assert!(with('T', 1).is_alive());
    }

    #[test]
    fn no_name_reaches_a_terminal_as_it_is() {
        assert_eq!(plain(b"\x1b[31mx\ty\xff"), "\u{FFFD}[31mx\u{FFFD}y\u{FFFD}");
        assert_eq!(
            plain("a\u{202E}b\u{2066}c\u{85}".as_bytes()),
            "a\u{FFFD}b\u{FFFD}c\u{FFFD}"
        );
    }

    #[test]
    fn this_process_is_found_under_its_own_number() {
        let proc = Proc::open().expect("/proc");
        let own = std::process::id();
        let stat = proc.stat(own).expect("stat");
        assert_eq!(
            Some(stat.group),
            crate::kernel::linux::process::pidfd::group_of(own)
        );
        assert!(stat.is_alive() && stat.start > 0);
        let member = stat.member(own, super::super::clock::since_boot(), proc.ticks());
        assert!(
            member.who.age < Duration::from_secs(3600),
            "{:?}",
            member.who.age
        );
        assert_eq!(proc.stat(0).map_err(is_gone), Err(true));
    }

    #[test]
    fn a_variable_is_found_by_the_beginning_of_its_name_wherever_it_stands() {
        let proc = Proc::open().expect("/proc");
        let prefix = b"LASTWORDS_COOKIE_00000000feedbeef";
        let name = |id: &str| format!("LASTWORDS_COOKIE_00000000feedbeef{id}");
        for (before, id, expected) in [
            (0, "0000002a", Some(42)),
            (3, "0000002a", Some(42)),
            (70, "ffffffff", Some(u32::MAX)),
            (3, "0000002", None),
            (3, "0000002g", None),
            (3, "0000002a1", None),
        ] {
            let mut command = std::process::Command::new("sleep");
            command.arg("60").env_clear();
            for n in 0..before {
                // Sorted before the name that is looked for, and longer than a piece; the name is
                // in the values, too.
                command.env(
                    format!("A{n:03}"),
                    format!("{}={}", name("00000001"), "x".repeat(400)),
                );
            }
            let mut child = command.env(name(id), "1").spawn().expect("sleep");
            // It has left our memory before it has an environment of its own.
            while std::fs::read(format!("/proc/{}/environ", child.id()))
                .expect("ours")
                .is_empty()
            {
                std::thread::yield_now();
            }
            assert_eq!(
                proc.variable_after(child.id(), prefix),
                Ok(expected),
                "{before} {id}"
            );
            child.kill().and_then(|()| child.wait()).expect("ended");
        }
        assert_eq!(proc.variable_after(0, prefix).map_err(is_gone), Err(true));
    }

    #[test]
    fn a_path_that_is_too_long_is_cut_and_ends() {
        assert_eq!(
            Path::new(format_args!("{}/fd", u32::MAX)).as_c_str(),
            c"4294967295/fd"
        );
        assert_eq!(
            Path::new(format_args!("{:90}", 1))
                .as_c_str()
                .to_bytes()
                .len(),
            47
        );
    }
}
