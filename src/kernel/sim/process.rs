//! A simulated process: who it is, what it does, and in which state it is.

use super::cgroup::CgroupId;
use super::pipe::PipeId;
use super::script::{Act, Acts, Channel};
use crate::types::{Exit, Ns, Signal, SpawnError, Stream, Token};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The number of the host in the simulated world.
pub const HOST: u32 = 100;
/// The family of a child of the host that is no leader. The first birth is 1.
pub const NO_FAMILY: u64 = 0;

/// The number of the process that adopts orphans.
pub const INIT: u32 = 1;

/// What a process's descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descriptor {
    /// The number is closed (EBADF).
    Closed,
    /// /dev/null, or something of the host's: takes everything, gives nothing.
    Null,
    /// An end of this pipe.
    Pipe(PipeId),
}

/// What a signal does to a process, if not the default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// The signal is ignored.
    Ignored,
    /// The process does these acts.
    Handled(Acts),
}

/// Bytes that are being written.
#[derive(Clone, Debug)]
pub enum Source {
    /// The bytes of [`super::script::pattern`].
    Pattern,
    /// The bytes of this text.
    Text(Arc<[u8]>),
}

/// What a process is in the middle of.
#[derive(Clone, Debug)]
pub enum Doing {
    /// It has not executed its program yet; what comes of it.
    Exec(Option<Box<SpawnError>>),
    /// Its next act.
    Next,
    /// Sleeping; `None` for ever.
    Sleeping(Option<Ns>),
    /// Using the processor; `None` for ever.
    Spinning(Option<Ns>),
    /// Writing: the stream, what, how much of it is written, how much it is in all.
    Writing(Stream, Source, u64, u64),
    /// Reading stdin; `None` to its end.
    Reading(Option<u64>),
    /// Copying stdin to this stream.
    Copying(Stream),
    /// Waiting for its children.
    Waiting,
    /// Its main thread has ended, another goes on until then.
    Outliving(Ns),
}

/// What comes after a list of acts.
#[derive(Clone, Debug)]
pub enum After {
    /// The acts around it.
    Outer,
    /// The same acts again, so many times more; `None` for ever.
    Again(Option<u64>),
    /// What a signal has interrupted.
    Resume(Signal, Box<Doing>),
}

/// A list of acts and the place in it.
#[derive(Clone, Debug)]
pub struct Frame {
    acts: Acts,
    at: usize,
    after: After,
}

impl Frame {
    /// The beginning of a list.
    pub fn new(acts: Acts, after: After) -> Frame {
        Frame { acts, at: 0, after }
    }
}

/// What a process does next.
#[derive(Clone, Debug)]
pub enum Step {
    /// Doing this act of its script.
    Act(Act),
    /// It goes on with what a signal had interrupted.
    Resumed(Signal),
    /// Its acts are over.
    Over,
}

/// Whether a process can run, besides what its acts say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It can be executed.
    Able,
    /// Stopped by a signal (T).
    Stopped,
    /// In uninterruptible sleep (D): nothing reaches it, SIGKILL included, until the world lets it
    /// go on.
    Stuck,
    /// It has ended and was not reaped (Z).
    Zombie(Exit),
}

/// A process of the simulated world.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its process id.
    pub pid: u32,
    /// Its parent's number.
    pub ppid: u32,
    /// Its process group id.
    pub pgid: u32,
    /// Its session id.
    pub sid: u32,
    /// Which process it is, whatever its number: what a pidfd holds on to.
    pub birth: u64,
    /// The [`Process::birth`] of the leader it descends from, or `NO_FAMILY`.
    pub family: u64,
    /// Its command name.
    pub comm: String,
    /// When it was made.
    pub born: Ns,
    /// Whether it can run.
    pub condition: Condition,
    /// What it is in the middle of.
    pub doing: Doing,
    /// The acts it is in.
    pub frames: Vec<Frame>,
    /// Dispositions other than the default.
    pub dispositions: BTreeMap<Signal, Disposition>,
    /// Signals that it does not take for now.
    pub blocked: BTreeSet<Signal>,
    /// Signals that wait until it can take them.
    pub pending: BTreeSet<Signal>,
    /// The mark in its environment: the [`Process::birth`] of the leader that was given it.
    pub cookie: Option<u64>,
    /// The cgroup that it is in, if that is one of a generation's own.
    pub cgroup: Option<CgroupId>,
    /// Descriptors 0, 1 and 2.
    pub fds: [Descriptor; 3],
    /// Another user than the host's.
    pub user: Option<u32>,
    /// Time it has used.
    pub cpu: Ns,
    /// The child it forked last.
    pub last_child: Option<u64>,
    /// Which entry of the queue is its own; others are out of date.
    pub turn: u64,
    /// Who is told of its end as a leader.
    pub exit_watch: Option<Token>,
    /// Who is told of its end as a member.
    pub member_watches: Vec<Token>,
}

impl Process {
    /// The letter of /proc/PID/stat.
    pub fn letter(&self) -> char {
        match (self.condition, &self.doing) {
            (Condition::Zombie(_), _) | (_, Doing::Outliving(_)) => 'Z',
            (Condition::Stopped, _) => 'T',
            (Condition::Stuck, _) => 'D',
            (Condition::Able, Doing::Next | Doing::Exec(_) | Doing::Spinning(_)) => 'R',
            (
                Condition::Able,
                Doing::Sleeping(_)
                | Doing::Writing(..)
                | Doing::Reading(_)
                | Doing::Copying(_)
                | Doing::Waiting,
            ) => 'S',
        }
    }

    /// Ended, all its threads included.
    pub fn is_zombie(&self) -> bool {
        matches!(self.condition, Condition::Zombie(_))
    }

    /// The mark, if the host can read it: the environment of another user's process, and of one
    /// whose main thread has ended, is not shown.
    pub fn shown_cookie(&self) -> Option<u64> {
        self.cookie
            .filter(|_| self.user.is_none() && !matches!(self.doing, Doing::Outliving(_)))
    }

    /// Start time as /proc tells it: in ticks of 10 ms.
    pub fn start_ticks(&self) -> u64 {
        self.born.0 / 10_000_000
    }

    /// What this channel is connected to.
    pub fn fd(&self, channel: Channel) -> Descriptor {
        self.fds
            .get(channel.number())
            .copied()
            .unwrap_or(Descriptor::Closed)
    }

    /// Whether a signal is in the middle of being handled.
    pub fn is_handling(&self, signal: Signal) -> bool {
        self.frames
            .iter()
            .any(|f| matches!(f.after, After::Resume(s, _) if s == signal))
    }

    /// Begins a list of acts.
    pub fn enter(&mut self, acts: Acts, after: After) {
        self.frames.push(Frame::new(acts, after));
    }

    /// Takes the next step of its acts.
    pub fn step(&mut self) -> Step {
        loop {
            let Some(frame) = self.frames.last_mut() else {
                return Step::Over;
            };
            if let Some(act) = frame.acts.get(frame.at) {
                frame.at += 1;
                return Step::Act(act.clone());
            }
            match &mut frame.after {
                // An empty loop for ever would never come to an end here: one act that does nothing
                // stands for its round.
                After::Again(left) if left.is_none_or(|n| n > 0) => {
                    *left = left.map(|n| n - 1);
                    frame.at = 0;
                    if frame.acts.is_empty() {
                        return Step::Act(Act::Spin(Some(Ns::ZERO)));
                    }
                }
                After::Outer | After::Again(_) => {
                    self.frames.pop();
                }
                After::Resume(..) => {
                    if let Some(Frame {
                        after: After::Resume(signal, doing),
                        ..
                    }) = self.frames.pop()
                    {
                        self.doing = *doing;
                        return Step::Resumed(signal);
                    }
                }
            }
        }
    }
}
