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

/// The answer to [`Kernel::signal`].
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
