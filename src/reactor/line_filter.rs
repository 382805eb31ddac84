//! The last words as they arrive, through the line function of a host that has one.

use crate::command::Command;
use crate::command::shared::Run;
use crate::text::{Line, LineFunction, LiveTail};
use crate::types::Stream;
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};

impl Command {
    /// Sees each line of the last words as it arrives, as safe text without secrets, and says what
    /// is kept of it. `last_words`, `stderr_tail` and `late_tail` are then made of what it
    /// keeps; one that keeps everything changes nothing of them, as long as
    /// [`Capture::max_bytes`](crate::Capture::max_bytes) suffices for them (it is called for every line,
    /// however little is kept). Raw output is as it is without.
    ///
    /// It is called inside [`Reactor::turn`](crate::Reactor::turn), or whatever other call of the
    /// loop reads: it must not block. A line that has begun when the last words are settled, or
    /// when the stream has ended, is seen as far as it has come. If it panics, the line is
    /// dropped; the round is finished, and then the panic goes on through `turn`, which can be
    /// called again.
    ///
    /// ```
    /// use lastwords::{Command, Line};
    /// let mut command = Command::shell("echo 'debug: x' >&2; echo 'error: y' >&2");
    /// command.line_function(|line| if line.starts_with("debug") { Line::Drop } else { Line::Keep });
    /// assert_eq!(lastwords::run(&command)?.report.stderr_tail, ["error: y"]);
    /// # Ok::<(), lastwords::RunError>(())
    /// ```
    pub fn line_function(
        &mut self,
        function: impl Fn(&str) -> Line + Send + Sync + 'static,
    ) -> &mut Command {
        self.said_mut().line_function = Some(Arc::new(function));
        self
    }
}

/// A line function, and what it has kept.
pub(super) struct Watch {
    tail: LiveTail,
    function: Arc<LineFunction>,
}

/// A panic of a line function that has not gone on yet. In a lock only because a loop may be shared
/// with other threads and what a panic carries may not.
pub(super) struct Panic(Mutex<Box<dyn Any + Send>>);

impl Panic {
    /// Goes on with it.
    pub(super) fn resume(self) -> ! {
        resume_unwind(self.0.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Panic")
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

impl Watch {
    /// That of a command for this stream, if it has one and the last words are in it.
    pub(super) fn of(run: &Run, stream: Stream) -> Option<Box<Watch>> {
        let function = run
            .line_function
            .clone()
            .filter(|_| stream == run.words_from())?;
        let tail = LiveTail::new(
            &run.projection,
            run.last_words.lines,
            run.last_words.late_lines,
        );
        Some(Box::new(Watch { tail, function }))
    }

    /// Takes what was read. Allocates nothing once its lines have held the longest ones, unless the
    /// function does.
    pub(super) fn push(&mut self, bytes: &[u8], panic: &mut Option<Panic>) {
        self.tail.push(bytes, &mut |line: &str| {
            guarded(&self.function, line, panic)
        });
    }

    /// What begins from now on is late: the last words stay as they are.
    pub(super) fn begin_late(&mut self, panic: &mut Option<Panic>) {
        self.tail
            .begin_late(&mut |line: &str| guarded(&self.function, line, panic));
    }

    /// Nothing comes any more.
    pub(super) fn finish(&mut self, panic: &mut Option<Panic>) {
        self.tail
            .finish(&mut |line: &str| guarded(&self.function, line, panic));
    }

    /// What is kept.
    pub(super) fn tail(&self) -> &LiveTail {
        &self.tail
    }
}

/// Calls the function. Its panic is kept until the loop can be left: other reads of the same batch
/// have brought bytes that must not be lost. The first is the one that goes on.
fn guarded(function: &Arc<LineFunction>, line: &str, panic: &mut Option<Panic>) -> Line {
    catch_unwind(AssertUnwindSafe(|| function(line))).unwrap_or_else(|payload| {
        panic.get_or_insert_with(|| Panic(Mutex::new(payload)));
        Line::Drop
    })
}
