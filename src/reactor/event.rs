//! What the host is told, and the key it is told by.

use super::last_words::LastWords;
use crate::report::{DrainReport, Report, Settled};
use crate::types::{Exit, Slot, SpawnError, Stream, Survivor, Token, TokenKind};
use std::fmt;
use std::time::Instant;

/// One run of one command: the key by which a host speaks of it. Never used again, and worth
/// nothing to another loop.
///
/// Displayed as its number within the loop, from 1.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Generation {
    pub(super) sequence: u32,
    pub(super) slot: u32,
    pub(super) tag: u32,
}

impl Generation {
    pub(super) fn token(self) -> Token {
        Token::new(Slot(self.slot), self.sequence, TokenKind::Spawn)
    }

    /// Its number within the loop, from 1.
    pub fn number(self) -> u64 {
        u64::from(self.sequence)
    }
}

impl fmt::Debug for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Generation({})", self.sequence)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sequence.fmt(f)
    }
}

/// Something that has happened. Per generation the order is `Started`, `Exited`, `Drained`,
/// `BackgroundWait` (only if background work is waited for), `Settled`, `Closed`; or `SpawnFailed`,
/// `Closed`. `Output` comes anywhere before `Closed`, marked late after the verdict.
///
/// A leader that cannot be ended (it survives SIGKILL, or refuses to be signalled) has no `Exited`
/// and no `Drained`: `Started` is followed by `Settled`, as `Stuck`, and by `Closed`, whose report
/// is [`Verdict::Unfinished`](crate::Verdict::Unfinished). **`Closed` is the one event that every
/// generation has**, once and as its last: a host that counts, frees or restarts does so there.
///
/// It lends what it shows, and has no destructor: the loop may be used again as soon as the last
/// borrowed field was looked at. None of the events needs an answer.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'r> {
    /// exec has succeeded.
    #[non_exhaustive]
    Started {
        /// Whose.
        generation: Generation,
        /// The leader's process id, and the group's.
        pid: u32,
    },
    /// It could not be started after all ([`Reactor::start`](crate::Reactor::start) only).
    #[non_exhaustive]
    SpawnFailed {
        /// Whose.
        generation: Generation,
        /// Step, path and errno.
        error: SpawnError,
    },
    /// Bytes of a captured stream, if delivery was asked for.
    #[non_exhaustive]
    Output {
        /// Whose.
        generation: Generation,
        /// Which stream.
        stream: Stream,
        /// The bytes, as they are. Never empty.
        bytes: &'r [u8],
        /// The place of the first of them in the stream.
        offset: u64,
        /// Bytes lost just before them (lossy delivery only).
        lost: u64,
        /// When they were read; for bytes of several reads, the last.
        at: Instant,
        /// They came after the verdict.
        late: bool,
    },
    /// The leader has ended.
    #[non_exhaustive]
    Exited {
        /// Whose.
        generation: Generation,
        /// How.
        exit: Exit,
    },
    /// The verdict, of either kind.
    #[non_exhaustive]
    Drained {
        /// Whose.
        generation: Generation,
        /// How the leader ended.
        exit: Exit,
        /// What ended the drain, how long it took, and who still holds a pipe.
        drain: &'r DrainReport,
        /// The last lines of stderr, made when they are looked at.
        last_words: LastWords<'r>,
    },
    /// Background work is waited for from now on. At most once.
    #[non_exhaustive]
    BackgroundWait {
        /// Whose.
        generation: Generation,
        /// Who is waited for.
        survivors: &'r [Survivor],
    },
    /// What became of background work is known.
    #[non_exhaustive]
    Settled {
        /// Whose.
        generation: Generation,
        /// What became of it.
        settled: &'r Settled,
    },
    /// Nothing of the generation is left. What was kept of its streams can be taken until the next
    /// event is asked for.
    #[non_exhaustive]
    Closed {
        /// Whose.
        generation: Generation,
        /// The whole truth.
        report: Box<Report>,
    },
}

const _: fn() = || {
    fn send<T: Send>() {}
    send::<Event<'static>>();
};

impl Event<'_> {
    /// The generation that it is about.
    pub fn generation(&self) -> Generation {
        match self {
            Event::Started { generation, .. }
            | Event::SpawnFailed { generation, .. }
            | Event::Output { generation, .. }
            | Event::Exited { generation, .. }
            | Event::Drained { generation, .. }
            | Event::BackgroundWait { generation, .. }
            | Event::Settled { generation, .. }
            | Event::Closed { generation, .. } => *generation,
        }
    }
}

/// What a turn left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a host that watches the descriptor by edges may clear its edge only after a turn that left nothing behind"]
#[non_exhaustive]
pub struct Turn {
    /// There is work that needs no notice: turn again without sleeping. While this is so,
    /// [`Reactor::next_deadline`](crate::Reactor::next_deadline) is now.
    pub more: bool,
    /// There are events to be asked for.
    pub events: bool,
}

/// What a stop came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stopping {
    /// It has begun.
    Begun,
    /// One is under way already; its end may have come nearer.
    Shortened,
    /// One is over already, or SIGKILL was sent already: nothing was changed.
    Already,
    /// The generation is closed, was replaced, or belongs to another loop.
    Gone,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host must be able to use the loop again in the arm that looked at borrowed bytes; a
    /// destructor would forbid it.
    #[test]
    fn an_event_has_no_destructor_of_its_own_beyond_its_report() {
        fn use_again(mut next: impl for<'a> FnMut(&'a mut Vec<u8>) -> Event<'a>) {
            let mut owner = Vec::new();
            if let Event::Output { bytes, .. } = next(&mut owner) {
                let n = bytes.len();
                owner.push(u8::try_from(n).unwrap_or(0));
            }
        }
        let generation = Generation {
            sequence: 1,
            slot: 0,
            tag: 0,
        };
        use_again(|owner| Event::Output {
            generation,
            stream: Stream::Stdout,
            bytes: owner,
            offset: 0,
            lost: 0,
            at: Instant::now(),
            late: false,
        });
    }
}
