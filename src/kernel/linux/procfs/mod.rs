//! Reading /proc: `stat` and `environ` of a process, and the list of processes.
//!
//! `stat` and the links below `fd` can be read at any time. `environ` takes the lock of the
//! process's memory map, so it is not read for a process in uninterruptible sleep.

pub(crate) mod scan;

use crate::types::{Errno, Member, Survivor};
use rustix::fs::{AtFlags, Mode, OFlags, RawDir, openat, readlinkat_raw, statat};
use std::ffi::CStr;
use std::io::Write;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// The fields of /proc/PID/stat that are used here (proc_pid_stat(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// Field 2: the command name, with control characters replaced.
    pub comm: String,
    /// Field 3: the state letter.
    pub state: char,
    /// Field 4: the parent's process id.
    pub parent: u32,
    /// Field 5: the process group.
    pub group: u32,
    /// Field 6: the session.
    pub session: u32,
    /// Field 9: the kernel's PF_* flags.
    pub flags: u64,
    /// Field 20: the number of threads.
    pub threads: u64,
    /// Field 22: the start time in clock ticks since boot.
    pub start: u64,
}

impl Stat {
    /// PF_KTHREAD: a kernel thread, which has no descriptors and no environment.
    const KERNEL_THREAD: u64 = 0x0020_0000;

    /// Parses the line. `None` if a field is missing or malformed.
    pub(crate) fn parse(line: &[u8]) -> Option<Stat> {
        // The name may contain any byte, parentheses included. It ends at the last one.
        let open = line.iter().position(|b| *b == b'(')?;
        let close = line.iter().rposition(|b| *b == b')')?;
        let comm = line.get(open + 1..close)?;
        let rest = std::str::from_utf8(line.get(close + 1..)?).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        // `nth` counts from the field taken last: these are 3, 4, 5, 6, 9, 20, 22.
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        let session = fields.next()?.parse().ok()?;
        let flags = fields.nth(2)?.parse().ok()?;
        let threads = fields.nth(10)?.parse().ok()?;
        let start = fields.nth(1)?.parse().ok()?;
        Some(Stat {
            comm: printable(comm),
            state,
            parent,
            group,
            session,
            flags,
            threads,
            start,
        })
    }

    /// Whether any thread of the process runs. A process whose main thread alone has ended is shown
    /// as a zombie with more than one thread, and is alive.
    pub(crate) fn is_alive(&self) -> bool {
        !(matches!(self.state, 'Z' | 'X' | 'x') && self.threads <= 1)
    }

    /// Whether this is a kernel thread.
    pub(crate) fn is_kernel_thread(&self) -> bool {
        self.flags & Self::KERNEL_THREAD != 0
    }

    /// The process as a member of a generation. `now` is the time since boot, `ticks` the clock
    /// ticks per second.
    pub(crate) fn into_member(self, pid: u32, now: Duration, ticks: u64) -> Member {
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

/// Replaces control characters and bidirectional controls: a process chooses its own name, and
/// reports reach terminals.
fn printable(comm: &[u8]) -> String {
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

/// What a descriptor is open on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Inode {
    /// A pipe; both of its ends have this inode number.
    Pipe(u64),
    /// The inode number of a socket.
    Socket(u64),
}

impl Inode {
    /// Parses the target of a link below /proc/PID/fd (proc_pid_fd(5)). `None` for everything but
    /// pipes and sockets.
    pub(crate) fn parse(link: &[u8]) -> Option<Inode> {
        type Kind = fn(u64) -> Inode;
        let (kind, rest): (Kind, &[u8]) = match link.strip_prefix(b"pipe:[") {
            Some(rest) => (Inode::Pipe, rest),
            None => (Inode::Socket, link.strip_prefix(b"socket:[")?),
        };
        let number = std::str::from_utf8(rest.strip_suffix(b"]")?).ok()?;
        number.parse().ok().map(kind)
    }
}

/// A path relative to /proc, formatted without allocation. The longest one in use is
/// `4294967295/task/4294967295/fd`.
#[derive(Debug)]
pub(crate) struct Path {
    bytes: [u8; 48],
}

impl Path {
    /// Formats the path. One that is too long is cut; none in use is.
    pub(crate) fn new(parts: std::fmt::Arguments<'_>) -> Path {
        let mut bytes = [0; 48];
        // The last byte stays zero.
        let _ = (&mut bytes[..47]).write_fmt(parts);
        Path { bytes }
    }

    /// The path with a terminating NUL.
    pub(crate) fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }
}

/// An open /proc that shows the PID namespace of this process.
#[derive(Debug)]
pub(crate) struct Proc {
    dir: OwnedFd,
    hides: bool,
    ticks: u64,
}

impl Proc {
    /// Opens /proc.
    ///
    /// # Errors
    ///
    /// EXDEV: /proc belongs to another PID namespace, so its process ids mean nothing here.
    /// Otherwise the errno of opening it.
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
        // With hidepid=1 the files of other users' processes cannot be read, with 2 and 4 the
        // processes are not listed either (proc(5)). Process 1 exists always.
        let first = statat(&dir, c"1/stat", AtFlags::empty());
        let hides = first.is_err() || !is_readable(&dir, c"1/stat");
        Ok(Proc {
            dir,
            hides,
            ticks: rustix::param::clock_ticks_per_second(),
        })
    }

    /// Whether processes of other users are hidden (hidepid, proc(5)): no list is complete then.
    pub(crate) fn hides(&self) -> bool {
        self.hides
    }

    /// The directory itself. All users of this descriptor share one position in the listing.
    pub(crate) fn dir(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.dir)
    }

    /// Calls `each` with the id of every process listed. Returns `false` if the listing failed
    /// before its end.
    pub(crate) fn for_each_pid(&self, mut each: impl FnMut(u32)) -> bool {
        // A descriptor of its own, so that a scan under way keeps its position in the listing.
        let Ok(dir) = openat(
            &self.dir,
            c".",
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        ) else {
            return false;
        };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut entries = RawDir::new(&dir, &mut buffer);
        while let Some(entry) = entries.next() {
            match entry {
                Ok(entry) => parse_number(entry.file_name())
                    .into_iter()
                    .for_each(&mut each),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// Clock ticks per second, the unit of [`Stat::start`].
    pub(crate) fn ticks(&self) -> u64 {
        self.ticks
    }

    /// Finds a variable whose name is `prefix` and eight hexadecimal digits in the environment that
    /// the process had at its exec, and returns the number that the digits are.
    ///
    /// Must not be called for a process in state D: reading `environ` waits for the lock of the
    /// memory map, which such a process may hold.
    ///
    /// # Errors
    ///
    /// ENOENT or ESRCH: the process has ended. EACCES: the environment is another user's.
    pub(crate) fn find_variable(&self, pid: u32, prefix: &[u8]) -> Result<Option<u32>, Errno> {
        const DIGITS: usize = 8;
        /// Bytes that arguments and environment can have together, unless the stack's limit was
        /// raised (execve(2)).
        const ENVIRON_MAX: usize = 2 << 20;
        let path = Path::new(format_args!("{pid}/environ"));
        let file = self.open_file(path.as_c_str())?;
        let finder = memchr::memmem::Finder::new(prefix);
        // The end of each piece is kept in front of the next, so that a name on the border is
        // found: one whole name but its last byte, and the byte before it.
        let whole = prefix.len() + DIGITS + 1;
        let mut buffer = [0; 8192];
        let (mut used, mut total) = (0, 0);
        while total < ENVIRON_MAX {
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

    /// Opens a file of /proc for reading.
    fn open_file(&self, path: &CStr) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(openat(&self.dir, path, flags, Mode::empty())?)
    }

    /// Reads /proc/PID/stat.
    ///
    /// # Errors
    ///
    /// ENOENT or ESRCH: the process has ended ([`is_gone`]). EIO: the line cannot be parsed.
    pub(crate) fn stat(&self, pid: u32) -> Result<Stat, Errno> {
        let path = Path::new(format_args!("{pid}/stat"));
        let file = self.open_file(path.as_c_str())?;
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

/// Parses a file name that begins with a digit as a number.
fn parse_number(name: &CStr) -> Option<u32> {
    name.to_str()
        .ok()
        .filter(|n| n.starts_with(|c: char| c.is_ascii_digit()))?
        .parse()
        .ok()
}

/// Whether an error means that this process has run out of descriptors or memory: it says nothing
/// about the process that was to be read.
pub(crate) fn is_shortage(e: Errno) -> bool {
    matches!(e.raw(), libc::EMFILE | libc::ENFILE | libc::ENOMEM)
}

/// Whether an error of reading below /proc/PID means that the process has ended, rather than that
/// the read was refused.
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
    fn malformed_lines_are_refused() {
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
            // Must not panic, whatever the prefix.
            let _ = Stat::parse(&LINE[..cut]);
        }
    }

    #[test]
    fn pipes_and_sockets_are_told_apart_and_everything_else_is_neither() {
        for (link, expected) in [
            (&b"pipe:[17]"[..], Some(Inode::Pipe(17))),
            (b"socket:[17]", Some(Inode::Socket(17))),
            (b"anon_inode:[pidfd]", None),
            (b"pipe:[]", None),
            (b"pipe:[1", None),
            (b"/tmp/pipe:[17]", None),
        ] {
            assert_eq!(Inode::parse(link), expected);
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
    fn control_characters_of_a_name_are_replaced() {
        assert_eq!(
            printable(b"\x1b[31mx\ty\xff"),
            "\u{FFFD}[31mx\u{FFFD}y\u{FFFD}"
        );
        assert_eq!(
            printable("a\u{202E}b\u{2066}c\u{85}".as_bytes()),
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
        let member = stat.into_member(own, super::super::clock::since_boot(), proc.ticks());
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
                // Variables before the one that is looked for, longer than the read buffer, with
                // the wanted name in their values.
                command.env(
                    format!("A{n:03}"),
                    format!("{}={}", name("00000001"), "x".repeat(400)),
                );
            }
            let mut child = command.env(name(id), "1").spawn().expect("sleep");
            // Until its exec the child shows an empty environment.
            while std::fs::read(format!("/proc/{}/environ", child.id()))
                .expect("ours")
                .is_empty()
            {
                std::thread::yield_now();
            }
            assert_eq!(
                proc.find_variable(child.id(), prefix),
                Ok(expected),
                "{before} {id}"
            );
            child.kill().and_then(|()| child.wait()).expect("ended");
        }
        assert_eq!(proc.find_variable(0, prefix).map_err(is_gone), Err(true));
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
