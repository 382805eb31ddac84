//! What the host is told, and the key it is told by.

use super::last_words::LastWords;
use crate::report::{DrainReport, Report, Settled};
use crate::types::{Exit, Slot, SpawnError, Stream, Survivor, Token, TokenKind};
use std::fmt;
use std::time::Instant;

/// One run of one command: the key by which a host speaks of it. It is never used again, and names
/// nothing in another loop.
///
/// It is displayed as its number within the loop, counted from 1. Generations are ordered by their
/// start.
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

    /// Its number within the loop, counted from 1.
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

/// Something that has happened to a generation.
///
/// The order is `Started`, `Exited`, `Drained`, `BackgroundWait` (only if background work is waited
/// for), `Settled`, `Closed`. If the program could not be executed it is `SpawnFailed`, `Closed`.
/// `Output` comes anywhere before `Closed`, and is marked late after the verdict. A child that is
/// killed before it executes its program has no `Started`.
///
/// A leader that cannot be ended (it survives SIGKILL, or refuses to be signalled) has no `Exited`
/// and no `Drained`: `Started` is followed by `Settled`, as `Stuck`, and by `Closed`, whose report
/// is [`Verdict::Unfinished`](crate::Verdict::Unfinished).
///
/// Which one is "the end" depends on the question:
///
/// | event | what has ended | for a host that wants |
/// | --- | --- | --- |
/// | `Exited` | the leader | the exit status at once; output may still come |
/// | `Drained` | the leader's output | a result: status, complete output and last words. It does not wait for background work |
/// | `Settled` | background work, as far as its policy goes | to know whether the run has left something behind |
/// | `Closed` | everything: descriptors, timers, the table entry | to count, free or restart. **Every generation has it, once and as its last** |
///
/// An event borrows from the loop and has no destructor: the loop can be used again as soon as the
/// last borrowed field was looked at. No event needs an answer.
///
/// ```
/// use lastwords::{Capture, Command, Event, Reactor};
///
/// let mut command = Command::shell("echo hello; echo oops >&2; exit 3");
/// command.stdout(Capture::default().deliver(true));
/// let mut reactor = Reactor::new()?;
/// reactor.start(&command)?;
/// let mut story = Vec::new();
/// while let Some(event) = reactor.wait_event(None)? {
///     match event {
///         Event::Started { .. } => story.push("started".to_string()),
///         Event::SpawnFailed { error, .. } => story.push(format!("failed to {error}")),
///         Event::Output { bytes, .. } => story.push(String::from_utf8_lossy(bytes).into_owned()),
///         Event::Exited { exit, .. } => story.push(format!("exit code {:?}", exit.code)),
///         Event::Drained { last_words, .. } => story.extend(last_words.last().cloned()),
///         Event::Closed { .. } => story.push("closed".to_string()),
///         // BackgroundWait and Settled here; events may be added.
///         _ => {}
///     }
/// }
/// story.sort();
/// assert_eq!(story, ["closed", "exit code Some(3)", "hello\n", "oops", "started"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'r> {
    /// The child has executed its program (execve(2) has succeeded).
    #[non_exhaustive]
    Started {
        /// The generation that has started.
        generation: Generation,
        /// The leader's process id, and its process group's.
        pid: u32,
    },
    /// The program could not be executed. Only `Closed` follows. After
    /// [`Reactor::spawn`](crate::Reactor::spawn) this does not come: it returns the error.
    #[non_exhaustive]
    SpawnFailed {
        /// The generation that has failed.
        generation: Generation,
        /// The step that failed, with its path and errno.
        error: SpawnError,
    },
    /// Bytes of a captured stream, if [`Capture::deliver`](crate::Capture::deliver) is on.
    #[non_exhaustive]
    Output {
        /// The generation that has written.
        generation: Generation,
        /// The stream that they were written to.
        stream: Stream,
        /// The bytes as they are: neither redacted nor cut at lines. Never empty, at most 64 KiB.
        bytes: &'r [u8],
        /// Offset in bytes of the first of them in the stream.
        offset: u64,
        /// How many bytes right before them were lost
        /// ([`Capture::lossy`](crate::Capture::lossy) only).
        lost: u64,
        /// When they were read; for bytes of several reads, the last one.
        at: Instant,
        /// They came after the verdict.
        late: bool,
    },
    /// The leader has ended, and its status is known. Its output may still be coming, and work
    /// that it has left behind may go on.
    #[non_exhaustive]
    Exited {
        /// The generation whose leader has ended.
        generation: Generation,
        /// The exit code or signal.
        exit: Exit,
    },
    /// The verdict: the captured streams have ended, or a bound of the
    /// [`DrainPolicy`](crate::DrainPolicy) has passed with a pipe still open (`drain` says which,
    /// and who holds it). No part of the leader's output is missing. Bytes that come later are
    /// delivered as late.
    #[non_exhaustive]
    Drained {
        /// The generation that the verdict is about.
        generation: Generation,
        /// The exit code or signal, as in `Exited`.
        exit: Exit,
        /// What has ended the drain, how long it took, and who still holds a pipe.
        drain: &'r DrainReport,
        /// The last lines of stderr. They are rendered when they are looked at.
        last_words: LastWords<'r>,
    },
    /// Background work has outlived the leader and the grace of the
    /// [`BackgroundPolicy`](crate::BackgroundPolicy), and is waited for from now on. At most once.
    #[non_exhaustive]
    BackgroundWait {
        /// The generation whose work is waited for.
        generation: Generation,
        /// The processes that are waited for, at least one.
        survivors: &'r [Survivor],
    },
    /// What becomes of background work is decided: there was none, it has ended, it was terminated,
    /// or it is left running.
    #[non_exhaustive]
    Settled {
        /// The generation that has settled.
        generation: Generation,
        /// What has become of background work, and who is left.
        settled: &'r Settled,
    },
    /// Nothing of the generation is left, and its report is final. What was kept of its streams can
    /// be taken ([`Reactor::take`](crate::Reactor::take)) until the next event is asked for.
    #[non_exhaustive]
    Closed {
        /// The generation that has closed. The loop forgets it with the next call.
        generation: Generation,
        /// Everything that is known about the run.
        report: Box<Report>,
    },
}

const _: fn() = || {
    fn send<T: Send>() {}
    send::<Event<'static>>();
};

impl Event<'_> {
    /// The generation that the event is about.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A host must be able to use the loop again in the arm that has looked at borrowed bytes. A
    /// destructor would forbid that.
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
