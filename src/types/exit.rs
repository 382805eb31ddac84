//! How a leader ended, and what it used.

use super::Signal;
use std::time::Duration;

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

/// How a leader ended, and what it used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExitInfo {
    /// How it ended.
    pub exit: Exit,
    /// What the child used; `None` when its status was not the loop's to collect.
    pub usage: Option<ResourceUsage>,
}

/// Resources that a child and the children it has waited for used, as getrusage(2) counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ResourceUsage {
    /// CPU time in user mode, to the microsecond.
    pub user: Duration,
    /// CPU time in the kernel, to the microsecond.
    pub system: Duration,
    /// Peak resident memory in KiB. `None` unless it is above the host's own peak at the spawn: at
    /// exec the kernel carries the spawner's peak over to the child.
    pub max_rss_kib: Option<u64>,
}

impl ResourceUsage {
    /// Resource usage with these values.
    pub fn new(user: Duration, system: Duration, max_rss_kib: Option<u64>) -> ResourceUsage {
        ResourceUsage {
            user,
            system,
            max_rss_kib,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Exit, StatusSource};
    use crate::types::Signal;

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
