//! Writes to lastwords' own stdout and stderr: the command's output unchanged and at once, and
//! messages of lastwords between its lines.

use super::signals::Signals;
use super::sink::{Sink, WriteOutcome};
use lastwords::{Signal, Stream};
use rustix::event::{PollFd, poll};
use std::io;

/// Clears the terminal line with the cursor.
const CLEAR_LINE: &[u8] = b"\r\x1b[K";

/// The two outputs of lastwords.
#[derive(Debug)]
pub(crate) struct Relay {
    sinks: [Sink; 2],
    /// The stream that was written last.
    last_written: Stream,
    /// Whether a progress line is shown. It is cleared before anything else is written.
    progress_line: bool,
    /// The signal because of which buffered output was discarded.
    interrupted_by: Option<Signal>,
}

impl Relay {
    /// Examines stdout and stderr of lastwords.
    pub(crate) fn new() -> Relay {
        let sinks = [
            Sink::new(rustix::stdio::stdout()),
            Sink::new(rustix::stdio::stderr()),
        ];
        Relay {
            sinks,
            last_written: Stream::Stderr,
            progress_line: false,
            interrupted_by: None,
        }
    }

    fn sink(&self, stream: Stream) -> &Sink {
        match stream {
            Stream::Stdout => &self.sinks[0],
            Stream::Stderr => &self.sinks[1],
        }
    }

    fn sink_mut(&mut self, stream: Stream) -> &mut Sink {
        match stream {
            Stream::Stdout => &mut self.sinks[0],
            Stream::Stderr => &mut self.sinks[1],
        }
    }

    /// Whether stderr is a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        self.sink(Stream::Stderr).is_terminal()
    }

    /// Forwards output of the command.
    pub(crate) fn forward(&mut self, stream: Stream, bytes: &[u8]) -> WriteOutcome {
        if self.sink(stream).is_terminal() {
            self.clear_progress_line();
        }
        self.last_written = stream;
        self.sink_mut(stream).write(bytes)
    }

    /// Flushes buffered output of one stream without blocking. Returns `None` if nothing is
    /// buffered.
    pub(crate) fn flush(&mut self, stream: Stream) -> Option<WriteOutcome> {
        let sink = self.sink_mut(stream);
        sink.is_buffering().then(|| sink.flush())
    }

    /// Descriptors to poll for writability: those with buffered output.
    pub(crate) fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.sinks
            .iter()
            .filter(|sink| sink.is_buffering())
            .map(Sink::as_poll_fd)
    }

    /// Blocks until all buffered output is written or its reader is gone. Signals with their
    /// default action may end lastwords meanwhile.
    ///
    /// With `signals`, a signal that ends lastwords makes it discard the output.
    pub(crate) fn flush_all(&mut self, mut signals: Option<&mut Signals>) {
        self.clear_progress_line();
        loop {
            for stream in Stream::ALL {
                self.flush(stream);
            }
            if !self.sinks.iter().any(Sink::is_buffering) {
                return;
            }
            if let Some(signal) = signals.as_mut().and_then(|s| s.take_terminating()) {
                self.discard_buffered().for_each(drop);
                self.interrupted_by = Some(signal);
                return;
            }
            let mut fds: Vec<PollFd<'_>> = self.poll_fds().collect();
            fds.extend(signals.as_ref().map(|signals| signals.poll_fd()));
            // The only possible error is EINTR.
            let _ = poll(&mut fds, None);
        }
    }

    /// The signal because of which [`Relay::flush_all`] has discarded output.
    pub(crate) fn interrupted_by(&self) -> Option<Signal> {
        self.interrupted_by
    }

    /// Discards all buffered output. Returns the streams that had some.
    pub(crate) fn discard_buffered(&mut self) -> impl Iterator<Item = Stream> + use<> {
        let discarded = Stream::ALL.map(|stream| {
            let sink = self.sink_mut(stream);
            sink.is_buffering().then(|| sink.discard()).map(|()| stream)
        });
        discarded.into_iter().flatten()
    }

    /// Prints a message of lastwords on stderr, on lines of its own.
    pub(crate) fn print_message(&mut self, text: &str) {
        self.clear_progress_line();
        let one_screen = self.sinks.iter().all(Sink::is_terminal);
        let cursor = if one_screen {
            self.last_written
        } else {
            Stream::Stderr
        };
        let begin = if self.sink(cursor).is_mid_line() {
            "\n"
        } else {
            ""
        };
        self.last_written = Stream::Stderr;
        // A message that cannot be written now is buffered or discarded like any output.
        let _ = self
            .sink_mut(Stream::Stderr)
            .write(format!("{begin}{text}\n").as_bytes());
    }

    /// Writes one line on stdout, on a line of its own, and blocks until it is written.
    pub(crate) fn line_on_stdout(&mut self, text: &str, signals: &mut Signals) -> io::Result<()> {
        self.flush_all(Some(&mut *signals));
        let sink = self.sink_mut(Stream::Stdout);
        let begin = if sink.is_mid_line() { "\n" } else { "" };
        let _ = sink.write(format!("{begin}{text}\n").as_bytes());
        self.flush_all(Some(signals));
        let sink = self.sink(Stream::Stdout);
        match sink.failure() {
            Some(errno) => Err(errno.into()),
            None if sink.is_open() => Ok(()),
            None => Err(rustix::io::Errno::PIPE.into()),
        }
    }

    /// Shows a line on the terminal that the next output replaces. Nothing is shown in the middle
    /// of a line of the command.
    pub(crate) fn show_progress(&mut self, text: &str) {
        let busy = self.sinks.iter().any(|sink| {
            sink.is_buffering() || (sink.is_terminal() && sink.is_mid_line() && !self.progress_line)
        });
        if busy || !self.is_terminal() {
            return;
        }
        let columns = rustix::termios::tcgetwinsize(rustix::stdio::stderr())
            .map_or(0, |size| usize::from(size.ws_col));
        let columns = if columns == 0 { 80 } else { columns };
        let cut: String = text.chars().take(columns.max(20) - 1).collect();
        self.clear_progress_line();
        // The line needs no newline, because it is cleared before anything else is written.
        let _ = self
            .sink_mut(Stream::Stderr)
            .write_transient(cut.as_bytes());
        self.progress_line = true;
    }

    fn clear_progress_line(&mut self) {
        if std::mem::take(&mut self.progress_line) {
            let _ = self.sink_mut(Stream::Stderr).write_transient(CLEAR_LINE);
        }
    }

    /// Streams that could not be written for another reason than a closed reader, with the error.
    pub(crate) fn failures(&self) -> impl Iterator<Item = (Stream, io::Error)> {
        Stream::ALL
            .into_iter()
            .filter_map(|stream| Some((stream, self.sink(stream).failure()?.into())))
    }
}
