//! What goes to our own stdout and stderr: the command's bytes, unchanged and at once, and between
//! its lines our own.

use super::sink::{Sink, WriteOutcome};
use lastwords::Stream;
use rustix::event::{PollFd, poll};
use std::io;

/// Clears the line that the cursor is on.
const CLEAR_LINE: &[u8] = b"\r\x1b[K";

/// Both outputs.
#[derive(Debug)]
pub(crate) struct Relay {
    sinks: [Sink; 2],
    /// Which of them was written last.
    last_written: Stream,
    /// A line of ours stands on the terminal, to be cleared before anything else is written.
    progress_line: bool,
}

impl Relay {
    /// Looks at our own stdout and stderr.
    pub(crate) fn new() -> Relay {
        let sinks = [
            Sink::new(rustix::stdio::stdout()),
            Sink::new(rustix::stdio::stderr()),
        ];
        Relay {
            sinks,
            last_written: Stream::Stderr,
            progress_line: false,
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

    /// Is our own stderr a terminal?
    pub(crate) fn is_terminal(&self) -> bool {
        self.sink(Stream::Stderr).is_terminal()
    }

    /// Passes on what the command has written.
    pub(crate) fn forward(&mut self, stream: Stream, bytes: &[u8]) -> WriteOutcome {
        if self.sink(stream).is_terminal() {
            self.clear_progress_line();
        }
        self.last_written = stream;
        self.sink_mut(stream).write(bytes)
    }

    /// Writes what is held back of one stream, as far as its reader takes it now; `None` if nothing
    /// is held back.
    pub(crate) fn flush(&mut self, stream: Stream) -> Option<WriteOutcome> {
        let sink = self.sink_mut(stream);
        sink.is_buffering().then(|| sink.flush())
    }

    /// Descriptors that are to be polled for writability.
    pub(crate) fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.sinks
            .iter()
            .filter(|sink| sink.is_buffering())
            .map(Sink::as_poll_fd)
    }

    /// Waits until everything is written or nobody reads it any more. Signals may end lastwords
    /// meanwhile.
    pub(crate) fn flush_all(&mut self) {
        self.clear_progress_line();
        loop {
            for stream in Stream::ALL {
                self.flush(stream);
            }
            let mut fds: Vec<PollFd<'_>> = self.poll_fds().collect();
            if fds.is_empty() {
                return;
            }
            // EINTR is all that can come.
            let _ = poll(&mut fds, None);
        }
    }

    /// What is held back now will not be written: somebody who insists wants lastwords to end.
    pub(crate) fn discard_buffered(&mut self) -> impl Iterator<Item = Stream> + use<> {
        let discarded = Stream::ALL.map(|stream| {
            let sink = self.sink_mut(stream);
            sink.is_buffering().then(|| sink.discard()).map(|()| stream)
        });
        discarded.into_iter().flatten()
    }

    /// Says something of our own on stderr: whole lines, never in the middle of one of the
    /// command's.
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
        // Held back or gone: nothing more can be done about it here.
        let _ = self
            .sink_mut(Stream::Stderr)
            .write(format!("{begin}{text}\n").as_bytes());
    }

    /// Writes one line of its own on stdout, and waits until it is written.
    pub(crate) fn line_on_stdout(&mut self, text: &str) -> io::Result<()> {
        self.flush_all();
        let sink = self.sink_mut(Stream::Stdout);
        let begin = if sink.is_mid_line() { "\n" } else { "" };
        let _ = sink.write(format!("{begin}{text}\n").as_bytes());
        self.flush_all();
        let sink = self.sink(Stream::Stdout);
        match sink.failure() {
            Some(errno) => Err(errno.into()),
            None if sink.is_open() => Ok(()),
            None => Err(rustix::io::Errno::PIPE.into()),
        }
    }

    /// Shows a line on the terminal that the next output replaces. Not in the middle of one of the
    /// command's.
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
        // The newline that it does not have is not missed: the line is cleared before anything else
        // comes.
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

    /// An output that could not be written, though somebody might have read it: which, and why.
    pub(crate) fn failures(&self) -> impl Iterator<Item = (Stream, io::Error)> {
        Stream::ALL
            .into_iter()
            .filter_map(|stream| Some((stream, self.sink(stream).failure()?.into())))
    }
}
