//! Signals, and what sending one came to.

use std::fmt;

/// A signal, by number (signal(7)). Written and read without the `SIG` prefix: `TERM`, `KILL`,
/// `RTMIN+3`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Signal(i32);

macro_rules! signals {
    ($($(#[$doc:meta])* $name:ident = $libc:ident),* $(,)?) => {
        impl Signal {
            $($(#[$doc])* pub const $name: Signal = Signal(libc::$libc);)*
            const NAMED: &'static [(Signal, &'static str)] = &[$((Signal::$name, stringify!($name))),*];
        }
    };
}

signals! {
    /// SIGHUP: the terminal hung up, or its controlling process died.
    HUP = SIGHUP,
    /// SIGINT: interrupt from the keyboard (`^C`).
    INT = SIGINT,
    /// SIGQUIT: quit from the keyboard (`^\`), with a core dump.
    QUIT = SIGQUIT,
    /// SIGILL: illegal instruction.
    ILL = SIGILL,
    /// SIGTRAP: trace or breakpoint trap.
    TRAP = SIGTRAP,
    /// SIGABRT: abort(3).
    ABRT = SIGABRT,
    /// SIGBUS: bus error: bad memory access.
    BUS = SIGBUS,
    /// SIGFPE: erroneous arithmetic operation.
    FPE = SIGFPE,
    /// SIGKILL: kill; cannot be caught, blocked or ignored.
    KILL = SIGKILL,
    /// SIGUSR1: user-defined, the first.
    USR1 = SIGUSR1,
    /// SIGSEGV: invalid memory reference.
    SEGV = SIGSEGV,
    /// SIGUSR2: user-defined, the second.
    USR2 = SIGUSR2,
    /// SIGPIPE: write to a pipe without a reader.
    PIPE = SIGPIPE,
    /// SIGALRM: timer of alarm(2).
    ALRM = SIGALRM,
    /// SIGTERM: termination.
    TERM = SIGTERM,
    /// SIGSTKFLT: stack fault on a coprocessor (unused).
    STKFLT = SIGSTKFLT,
    /// SIGCHLD: a child stopped, continued or ended.
    CHLD = SIGCHLD,
    /// SIGCONT: continue if stopped.
    CONT = SIGCONT,
    /// SIGSTOP: stop; cannot be caught, blocked or ignored.
    STOP = SIGSTOP,
    /// SIGTSTP: stop from the keyboard (`^Z`).
    TSTP = SIGTSTP,
    /// SIGTTIN: terminal input by a background process.
    TTIN = SIGTTIN,
    /// SIGTTOU: terminal output by a background process.
    TTOU = SIGTTOU,
    /// SIGURG: urgent condition on a socket.
    URG = SIGURG,
    /// SIGXCPU: CPU time limit exceeded (setrlimit(2)).
    XCPU = SIGXCPU,
    /// SIGXFSZ: file size limit exceeded (setrlimit(2)).
    XFSZ = SIGXFSZ,
    /// SIGVTALRM: virtual alarm clock.
    VTALRM = SIGVTALRM,
    /// SIGPROF: profiling timer expired.
    PROF = SIGPROF,
    /// SIGWINCH: the size of the terminal changed.
    WINCH = SIGWINCH,
    /// SIGIO: I/O is possible.
    IO = SIGIO,
    /// SIGPWR: power failure.
    PWR = SIGPWR,
    /// SIGSYS: bad system call (seccomp(2)).
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

/// The answer to `Kernel::signal`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Signalled {
    /// Sent to at least one process of the group.
    Sent,
    /// There is nobody in the group. Certain.
    Empty,
    /// Every process that is left refused it (EPERM).
    Denied,
    /// There is no way that is certain to reach ours alone: nothing was sent.
    NoWay,
}

impl Signalled {
    /// What two ways that were both gone have come to: the best of it.
    #[must_use]
    pub const fn and(self, other: Signalled) -> Signalled {
        match (self, other) {
            (Signalled::Sent, _) | (_, Signalled::Sent) => Signalled::Sent,
            (Signalled::Denied, _) | (_, Signalled::Denied) => Signalled::Denied,
            (Signalled::NoWay, _) | (_, Signalled::NoWay) => Signalled::NoWay,
            (Signalled::Empty, Signalled::Empty) => Signalled::Empty,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Signal;

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
}
