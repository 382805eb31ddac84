//! The words all floors share: what is said of streams, signals, exits, survivors and holders.
//!
//! Nothing here decides anything or touches the system.

use std::fmt;
use std::time::Duration;

/// One of the two output streams of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "lowercase")
)]
pub enum Stream {
    /// Descriptor 1 of the child.
    Stdout,
    /// Descriptor 2 of the child.
    Stderr,
}

impl Stream {
    /// Both streams, in the order of their descriptors.
    pub const ALL: [Stream; 2] = [Stream::Stdout, Stream::Stderr];

    /// 0 for stdout, 1 for stderr: the place of the stream in a table of two.
    pub const fn index(self) -> usize {
        match self {
            Stream::Stdout => 0,
            Stream::Stderr => 1,
        }
    }

    /// `"stdout"` or `"stderr"`.
    pub const fn name(self) -> &'static str {
        match self {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        }
    }
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

macro_rules! signals {
    ($($(#[$doc:meta])* $name:ident = $libc:ident),* $(,)?) => {
        impl Signal {
            $($(#[$doc])* pub const $name: Signal = Signal(libc::$libc);)*
            const NAMED: &'static [(Signal, &'static str)] = &[$((Signal::$name, stringify!($name))),*];
        }
    };
}

/// A signal, by number (signal(7)). Written and read without the `SIG` prefix: `TERM`, `KILL`,
/// `RTMIN+3`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Signal(i32);

signals! {
    /// SIGHUP.
    HUP = SIGHUP,
    /// SIGINT.
    INT = SIGINT,
    /// SIGQUIT.
    QUIT = SIGQUIT,
    /// SIGILL.
    ILL = SIGILL,
    /// SIGTRAP.
    TRAP = SIGTRAP,
    /// SIGABRT.
    ABRT = SIGABRT,
    /// SIGBUS.
    BUS = SIGBUS,
    /// SIGFPE.
    FPE = SIGFPE,
    /// SIGKILL.
    KILL = SIGKILL,
    /// SIGUSR1.
    USR1 = SIGUSR1,
    /// SIGSEGV.
    SEGV = SIGSEGV,
    /// SIGUSR2.
    USR2 = SIGUSR2,
    /// SIGPIPE.
    PIPE = SIGPIPE,
    /// SIGALRM.
    ALRM = SIGALRM,
    /// SIGTERM.
    TERM = SIGTERM,
    /// SIGSTKFLT.
    STKFLT = SIGSTKFLT,
    /// SIGCHLD.
    CHLD = SIGCHLD,
    /// SIGCONT.
    CONT = SIGCONT,
    /// SIGSTOP.
    STOP = SIGSTOP,
    /// SIGTSTP.
    TSTP = SIGTSTP,
    /// SIGTTIN.
    TTIN = SIGTTIN,
    /// SIGTTOU.
    TTOU = SIGTTOU,
    /// SIGURG.
    URG = SIGURG,
    /// SIGXCPU.
    XCPU = SIGXCPU,
    /// SIGXFSZ.
    XFSZ = SIGXFSZ,
    /// SIGVTALRM.
    VTALRM = SIGVTALRM,
    /// SIGPROF.
    PROF = SIGPROF,
    /// SIGWINCH.
    WINCH = SIGWINCH,
    /// SIGIO.
    IO = SIGIO,
    /// SIGPWR.
    PWR = SIGPWR,
    /// SIGSYS.
    SYS = SIGSYS,
}

impl Signal {
    /// First real-time signal as the kernel numbers them (signal(7)); glibc keeps 32 and 33 for
    /// itself.
    const RTMIN: i32 = 34;
    /// Last signal number of Linux.
    const MAX: i32 = 64;

    /// The signal with this number; `None` unless 1 to 64.
    pub const fn from_raw(number: i32) -> Option<Signal> {
        if number >= 1 && number <= Self::MAX {
            Some(Signal(number))
        } else {
            None
        }
    }

    /// Its number on this machine.
    pub const fn as_raw(self) -> i32 {
        self.0
    }

    /// Reads `TERM`, `SIGTERM`, `term`, `15` or `RTMIN+3`. `None` for anything else.
    pub fn from_name(name: &str) -> Option<Signal> {
        if let Ok(number) = name.parse::<i32>() {
            return Signal::from_raw(number);
        }
        let upper = name.to_ascii_uppercase();
        let bare = upper.strip_prefix("SIG").unwrap_or(&upper);
        if let Some(rest) = bare.strip_prefix("RTMIN") {
            let offset = if rest.is_empty() {
                0
            } else {
                rest.strip_prefix('+')?.parse::<i32>().ok()?
            };
            return Signal::from_raw(Self::RTMIN.checked_add(offset)?);
        }
        Self::NAMED
            .iter()
            .find(|(_, n)| *n == bare)
            .map(|(s, _)| *s)
    }

    /// Its name without `SIG`, if it is not a real-time signal.
    pub fn name(self) -> Option<&'static str> {
        Self::NAMED
            .iter()
            .find(|(s, _)| *s == self)
            .map(|(_, n)| *n)
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None if self.0 > Self::RTMIN => write!(f, "RTMIN+{}", self.0 - Self::RTMIN),
            None if self.0 == Self::RTMIN => f.write_str("RTMIN"),
            None => write!(f, "{}", self.0),
        }
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signal({self})")
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Signal {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Where an exit status came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum StatusSource {
    /// waitid(2): the status was ours to collect.
    Waitid,
    /// The pidfd, after somebody else had reaped the child (PIDFD_GET_INFO with PIDFD_INFO_EXIT,
    /// Linux 6.15).
    PidfdInfo,
    /// Nobody: the child has ended, and its status cannot be learnt.
    None,
}

/// How the leader of a generation ended, as the kernel tells it.
///
/// Exactly one of `code` and `signal` is set, or neither when `source` is [`StatusSource::None`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Exit {
    /// The exit code, 0 to 255.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<Signal>,
    /// Whether a core was dumped.
    pub core_dumped: bool,
    /// Where this was learnt.
    pub source: StatusSource,
}

impl Exit {
    /// An exit with a code.
    pub const fn with_code(code: i32, source: StatusSource) -> Exit {
        Exit {
            code: Some(code),
            signal: None,
            core_dumped: false,
            source,
        }
    }

    /// An end by a signal.
    pub const fn by_signal(signal: Signal, core_dumped: bool, source: StatusSource) -> Exit {
        Exit {
            code: None,
            signal: Some(signal),
            core_dumped,
            source,
        }
    }

    /// An end whose status nobody can tell.
    pub const fn unknown() -> Exit {
        Exit {
            code: None,
            signal: None,
            core_dumped: false,
            source: StatusSource::None,
        }
    }

    /// Reads the status word of wait(2).
    pub const fn from_wait_status(status: i32, source: StatusSource) -> Exit {
        let low = status & 0x7f;
        if low == 0 {
            return Exit::with_code((status >> 8) & 0xff, source);
        }
        match Signal::from_raw(low) {
            Some(signal) => Exit::by_signal(signal, status & 0x80 != 0, source),
            None => Exit::unknown(),
        }
    }

    /// True for exit code 0 only.
    pub const fn success(&self) -> bool {
        matches!(self.code, Some(0))
    }

    /// The same as std's type; `None` when the status is not known.
    pub fn to_std(&self) -> Option<std::process::ExitStatus> {
        use std::os::unix::process::ExitStatusExt;
        let raw = match (self.code, self.signal) {
            (Some(code), _) => (code & 0xff) << 8,
            (None, Some(signal)) => signal.as_raw() | if self.core_dumped { 0x80 } else { 0 },
            (None, None) => return None,
        };
        Some(std::process::ExitStatus::from_raw(raw))
    }
}

/// A process of a generation that is alive after the leader's end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Survivor {
    /// Its process id.
    pub pid: u32,
    /// Its command name as the kernel keeps it (at most 15 bytes; control characters replaced).
    pub comm: String,
    /// Its state letter of /proc/PID/stat (proc_pid_stat(5)): R, S, D, T, t, Z, ...
    pub state: char,
    /// How long ago it was started, when it was listed.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "age_ms", serialize_with = "as_millis")
    )]
    pub age: Duration,
}

impl Survivor {
    /// Puts one together.
    pub fn new(pid: u32, comm: String, state: char, age: Duration) -> Survivor {
        Survivor {
            pid,
            comm,
            state,
            age,
        }
    }
}

/// A process other than the leader that still has the write end of a captured pipe open.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Holder {
    /// Its process id.
    pub pid: u32,
    /// Its command name (at most 15 bytes; control characters replaced).
    pub comm: String,
    /// The streams it holds, in the order of their descriptors.
    pub streams: Vec<Stream>,
}

impl Holder {
    /// Puts one together.
    pub fn new(pid: u32, comm: String, streams: Vec<Stream>) -> Holder {
        Holder { pid, comm, streams }
    }
}

#[cfg(feature = "serde")]
fn as_millis<S: serde::Serializer>(age: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
}

/// How a generation ended, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum Outcome {
    /// Exit code 0.
    Succeeded,
    /// Another exit code.
    Failed,
    /// Ended by a signal that we did not ask for.
    Signaled,
    /// A stop was asked for before the exit; not an error, whatever the code.
    Stopped,
    /// The run limit stopped it.
    TimedOut,
    /// Nobody can tell.
    Unknown,
}

/// Which poll set is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "lowercase")
)]
#[non_exhaustive]
pub enum Backend {
    /// epoll, through mio.
    Epoll,
    /// io_uring.
    Uring,
    /// The simulated kernel.
    Sim,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Backend::Epoll => "epoll",
            Backend::Uring => "uring",
            Backend::Sim => "sim",
        })
    }
}

/// How the end of a leader is learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "lowercase")
)]
#[non_exhaustive]
pub enum ExitSource {
    /// A pidfd in the poll set.
    Pidfd,
    /// SIGCHLD in the poll set, and the loop's own children asked by pid.
    Sigchld,
}

impl fmt::Display for ExitSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ExitSource::Pidfd => "pidfd",
            ExitSource::Sigchld => "sigchld",
        })
    }
}

/// What is asked of the backend when a loop is built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BackendChoice {
    /// What is best here.
    #[default]
    Auto,
    /// epoll.
    Epoll,
    /// io_uring where the kernel has what it needs, else epoll with the reason told
    /// ([`Caps::backend_why`](crate::Caps)).
    ///
    /// A host that sleeps in epoll_wait(2) on the loop's descriptor may see EINTR when something
    /// happens. What was watched before a loop is sent to another thread is still noted by the
    /// thread that it was sent from: as soon as that one makes a system call, sleeps, is
    /// interrupted, or ends.
    Uring,
}

/// What is asked of the exit watch when a loop is built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExitSourceChoice {
    /// Pidfds where the kernel offers them, else SIGCHLD.
    #[default]
    Auto,
    /// Pidfds, else an error.
    Pidfd,
    /// SIGCHLD, though there are pidfds.
    Sigchld,
}

/// Whether the group is signalled through the leader's pidfd (Linux 6.9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GroupSignal {
    /// Where the kernel can.
    #[default]
    Auto,
    /// Never: the ways of older kernels are used (for tests).
    Off,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signal_names_go_both_ways() {
        for (signal, name) in Signal::NAMED {
            assert_eq!(Signal::from_name(name), Some(*signal));
            assert_eq!(
                Signal::from_name(&format!("sig{}", name.to_lowercase())),
                Some(*signal)
            );
            assert_eq!(signal.to_string(), *name);
        }
        assert_eq!(
            Signal::from_name("RTMIN+3")
                .map(|s| s.to_string())
                .as_deref(),
            Some("RTMIN+3")
        );
        assert_eq!(Signal::from_name("9"), Some(Signal::KILL));
        assert_eq!(Signal::from_name("0"), None);
        assert_eq!(Signal::from_name("65"), None);
        assert_eq!(Signal::from_name("RTMIN-1"), None);
        assert_eq!(Signal::from_name("NOPE"), None);
    }

    #[test]
    fn a_wait_status_is_read_as_wait_2_says() {
        let code = Exit::from_wait_status(3 << 8, StatusSource::Waitid);
        assert_eq!(
            (code.code, code.signal, code.core_dumped),
            (Some(3), None, false)
        );
        let core = Exit::from_wait_status(6 | 0x80, StatusSource::Waitid);
        assert_eq!(
            (core.code, core.signal, core.core_dumped),
            (None, Some(Signal::ABRT), true)
        );
        for raw in [0, 256, 9, 6 | 0x80] {
            let std = std::os::unix::process::ExitStatusExt::from_raw(raw);
            assert_eq!(
                Exit::from_wait_status(raw, StatusSource::Waitid).to_std(),
                Some(std)
            );
        }
        assert_eq!(Exit::unknown().to_std(), None);
    }
}
