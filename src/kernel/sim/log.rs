//! What has happened in the simulated world, in order: two runs with one seed and the same calls
//! give the same list.

use super::cgroup::CgroupId;
use super::fault::{Call, Fault};
use super::pipe::PipeId;
use crate::kernel::Notice;
use crate::types::{Exit, Ns, Signal};

/// One thing that has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    /// A process was made by this one.
    Born(u32, u32),
    /// It has executed its program.
    Executed(u32),
    /// It has written so many bytes.
    Wrote(u32, PipeId, usize),
    /// It has written to a pipe that nobody reads any more.
    Broken(u32, PipeId),
    /// It was sent a signal.
    Signalled(u32, Signal),
    /// It has ended; the group it was in.
    Ended(u32, u32, Exit),
    /// It was reaped, by this one.
    Reaped(u32, u32),
    /// A process was stopped (true) or continued.
    Stopped(u32, bool),
    /// The host has read so many bytes.
    Read(PipeId, usize),
    /// The last process that held a pipe has let it go.
    HungUp(PipeId),
    /// The host has closed its end.
    Closed(PipeId),
    /// The host was given a notice.
    Noticed(Notice),
    /// The host slept until this time.
    Slept(Ns),
    /// A call of the host went wrong.
    Faulted(Call, Fault),
    /// A generation was given a cgroup.
    CgroupMade(CgroupId),
    /// That was removed, being empty.
    CgroupRemoved(CgroupId),
}

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The virtual time of the entry.
    pub at: Ns,
    /// What happened at that time.
    pub what: Happened,
}

/// Something that a kernel must never be made to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A signal to a number whose leader was reaped, and that may be anybody's. It was refused.
    Unpinned {
        /// The number; negative for a group.
        target: i64,
        /// The signal that was sent.
        signal: Signal,
    },
    /// A signal was about to reach a process that is no descendant of the generation's leader. It
    /// was refused.
    Stranger {
        /// The process that was reached.
        pid: u32,
        /// The signal that was sent.
        signal: Signal,
    },
    /// The host went to sleep though the end of this leader was announced and nobody had asked for
    /// it.
    SleptOverExit(u32),
    /// One batch has the same stream twice: what the first read left behind the second one would
    /// misplace.
    ReadTwice(PipeId),
    /// A block is said to be fuller than it is large.
    Overfull,
    /// A slot was given to a new generation while the old one was still there.
    SlotInUse(u32),
}
