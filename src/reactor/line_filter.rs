//! The last words as they arrive, through the line function of a host that has one.

use crate::command::Command;
use crate::command::shared::SharedCommand;
use crate::text::{Line, LineFunction, LiveTail};
use crate::types::Stream;
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};

impl Command {
    /// Sees each line of the last words as it arrives, as safe text without secrets, and says what
    /// is kept of it. `last_words`, `stderr_tail` and `late_tail` are then made of what it keeps.
    /// It is called for every line, however little
    /// [`Capture::max_bytes`](crate::Capture::max_bytes) keeps. Raw output is as it is without.
    ///
    /// It is called inside [`Reactor::turn`](crate::Reactor::turn), or any other call of the loop
    /// that reads: it must not block. A line that has begun when the last words are settled, or
    /// when the stream has ended, is shown as far as it has come. If the function panics, the line
    /// is dropped; the round is finished, and then the panic goes on through `turn`, which can be
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
        self.options_mut().line_function = Some(Arc::new(function));
        self
    }
}

/// A line function, and the lines that it has kept.
pub(super) struct LineFilter {
    tail: LiveTail,
    function: Arc<LineFunction>,
}

/// A panic of the host's own code (a line function, a `tracing` subscriber) that is to go on. In a
/// lock only because the loop may move to another thread, and what a panic carries may not be
/// shared.
pub(super) struct DeferredPanic(Mutex<Box<dyn Any + Send>>);

impl DeferredPanic {
    /// Calls code of the host. Its panic is kept until the loop can be left: work that is under way
    /// must not be lost. The first panic is the one that goes on. `None` if it has panicked.
    pub(super) fn guard<T>(
        panic: &mut Option<DeferredPanic>,
        call: impl FnOnce() -> T,
    ) -> Option<T> {
        catch_unwind(AssertUnwindSafe(call))
            .map_err(|payload| {
                panic.get_or_insert_with(|| DeferredPanic(Mutex::new(payload)));
            })
            .ok()
    }

    /// Goes on with it.
    pub(super) fn resume(self) -> ! {
        resume_unwind(self.0.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for LineFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LineFilter").finish_non_exhaustive()
    }
}

impl LineFilter {
    /// That of a command for this stream, if it has one and the last words are in this stream.
    pub(super) fn for_stream(command: &SharedCommand, stream: Stream) -> Option<Box<LineFilter>> {
        let function = command
            .line_function
            .clone()
            .filter(|_| stream == command.last_words_stream())?;
        let policy = &command.last_words;
        let tail = LiveTail::new(&command.projection, policy.lines, policy.late_lines);
        Some(Box::new(LineFilter { tail, function }))
    }

    /// Shows what was read. Allocates nothing once its buffers have held the longest lines, unless
    /// the function does.
    pub(super) fn push(&mut self, bytes: &[u8], panic: &mut Option<DeferredPanic>) {
        self.tail.push(bytes, &mut |line: &str| {
            call_guarded(&self.function, line, panic)
        });
    }

    /// What begins from now on is late: the last words stay as they are.
    pub(super) fn begin_late(&mut self, panic: &mut Option<DeferredPanic>) {
        self.tail
            .begin_late(&mut |line: &str| call_guarded(&self.function, line, panic));
    }

    /// Nothing comes any more.
    pub(super) fn finish(&mut self, panic: &mut Option<DeferredPanic>) {
        self.tail
            .finish(&mut |line: &str| call_guarded(&self.function, line, panic));
    }

    /// The lines that were kept.
    pub(super) fn tail(&self) -> &LiveTail {
        &self.tail
    }
}

/// Calls the function. A line at which it panics is dropped.
fn call_guarded(
    function: &Arc<LineFunction>,
    line: &str,
    panic: &mut Option<DeferredPanic>,
) -> Line {
    DeferredPanic::guard(panic, || function(line)).unwrap_or(Line::Drop)
}
