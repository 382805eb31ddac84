//! Processes that are neither the host nor a leader: members of a group and holders of a pipe.

use super::Stream;
use std::time::Duration;

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

/// What becomes of a child that is collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectMode {
    /// It is reaped.
    Reap,
    /// It is looked at only, and its number stays reserved.
    KeepZombie,
}

/// The answer to [`Kernel::probe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Probe {
    /// Nobody is left. Certain.
    Empty,
    /// Somebody is left; perhaps zombies only.
    Alive,
    /// The kept zombie hides the answer.
    Unknown,
}

/// A process found in a group: who it is, and what makes it certain that a number still means the
/// same process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// What is told of it.
    pub who: Survivor,
    /// Its start time in clock ticks since boot (proc_pid_stat(5), field 22).
    pub start: u64,
}

/// What becomes of what a generation still has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Release {
    /// Everything is closed.
    Close,
    /// Process and pipes go to the host.
    HandOver,
    /// A leader that never ended, or pipes of kept work, stay with the kernel object: it reaps the
    /// one, and reads the others and throws away, without ever telling the reactor.
    Linger,
}
