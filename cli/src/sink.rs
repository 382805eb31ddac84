//! One of our own two outputs, written without ever waiting for its reader and without changing
//! what others share.
//!
//! stdout and stderr may be blocking, and their file descriptions belong to whoever started us:
//! setting O_NONBLOCK on them would change them for the shell and for everybody else. So each kind
//! of file is written its own method.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::{Errno, IoSlice, ReadWriteFlags};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Bytes that fit into a pipe that poll(2) calls writable (PIPE_BUF, one slot of the pipe).
const PIPE_CHUNK: usize = 4096;
/// Bytes that a terminal takes when poll(2) calls it writable (WAKEUP_CHARS of the tty layer).
const TERMINAL_CHUNK: usize = 256;
/// Major number of /dev/null, /dev/full and their like.
const MEMORY_DEVICES: u32 = 1;
/// Offset that makes pwritev2(2) use, and move, the file's own position, as on a pipe: -1.
const OWN_POSITION: u64 = u64::MAX;

/// How a file is written.
#[derive(Debug)]
enum Method {
    /// write(2): regular files, block devices, /dev/null. None of them has a reader to wait for.
    Direct,
    /// pwritev2(2) with RWF_NOWAIT: pipes and sockets, where the kernel has it (Linux 6.4 for
    /// pipes).
    NoWait,
    /// A file description of our own, O_NONBLOCK: terminals.
    Reopened(OwnedFd),
    /// poll(2), then no more than certainly fits. Another writer may come between, which is as far
    /// as this goes.
    Chunked(usize),
}

/// What became of bytes that were to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteOutcome {
    /// All are written.
    Written,
    /// Some are buffer back here until [`Sink::flush`] can write them: poll for writability.
    Buffered,
    /// They are thrown away: nobody will read them.
    Discarded,
}

/// Whether bytes can still be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// The reader is gone (EPIPE; EIO of a terminal that was hung up), or given up on.
    NoReader,
    Failed(Errno),
}

/// stdout or stderr of lastwords itself.
#[derive(Debug)]
pub(crate) struct Sink {
    fd: BorrowedFd<'static>,
    method: Method,
    state: State,
    terminal: bool,
    buffer: Vec<u8>,
    /// How much of `buffer` is written already.
    written: usize,
    /// The last byte that was taken.
    last: Option<u8>,
}

impl Sink {
    /// Looks at what the descriptor is.
    pub(crate) fn new(fd: BorrowedFd<'static>) -> Sink {
        let terminal = rustix::termios::isatty(fd);
        let stat = rustix::fs::fstat(fd);
        let method = match stat.map(|stat| {
            (
                FileType::from_raw_mode(stat.st_mode),
                rustix::fs::major(stat.st_rdev),
            )
        }) {
            Ok((FileType::RegularFile | FileType::BlockDevice | FileType::Directory, _)) => {
                Method::Direct
            }
            Ok((FileType::CharacterDevice, MEMORY_DEVICES)) => Method::Direct,
            Ok((FileType::CharacterDevice, _)) if terminal => {
                reopen(fd).map_or(Method::Chunked(TERMINAL_CHUNK), Method::Reopened)
            }
            Ok((FileType::Fifo | FileType::Socket, _)) => Method::NoWait,
            Ok(_) | Err(_) => Method::Chunked(PIPE_CHUNK),
        };
        Sink {
            fd,
            method,
            state: State::Open,
            terminal,
            buffer: Vec::new(),
            written: 0,
            last: None,
        }
    }

    /// Is it a terminal?
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Does something wait for its reader?
    pub(crate) fn is_buffering(&self) -> bool {
        self.written < self.buffer.len()
    }

    /// Can bytes still be written, as far as is known?
    pub(crate) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Did writing fail for another reason than a reader that is gone?
    pub(crate) fn failure(&self) -> Option<Errno> {
        match self.state {
            State::Failed(errno) => Some(errno),
            State::Open | State::NoReader => None,
        }
    }

    /// Does what was written so far end in the middle of a line?
    pub(crate) fn is_mid_line(&self) -> bool {
        self.last.is_some_and(|byte| byte != b'\n')
    }

    /// The descriptor, for a poll set.
    pub(crate) fn as_poll_fd(&self) -> PollFd<'_> {
        PollFd::from_borrowed_fd(self.write_end(), PollFlags::OUT)
    }

    /// Writes what can be written at once and holds the rest back.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> WriteOutcome {
        if self.state != State::Open {
            return WriteOutcome::Discarded;
        }
        if let Some(byte) = bytes.last() {
            self.last = Some(*byte);
        }
        if self.is_buffering() {
            self.buffer.extend_from_slice(bytes);
            return WriteOutcome::Buffered;
        }
        let written_now = self.write_available(bytes);
        if self.state != State::Open {
            return WriteOutcome::Discarded;
        }
        if written_now == bytes.len() {
            return WriteOutcome::Written;
        }
        self.buffer.extend_from_slice(&bytes[written_now..]);
        WriteOutcome::Buffered
    }

    /// The same for what leaves no trace on the line: a line that is cleared again.
    pub(crate) fn write_transient(&mut self, bytes: &[u8]) -> WriteOutcome {
        let last = self.last;
        let taken = self.write(bytes);
        self.last = last;
        taken
    }

    /// Writes of what is buffer back what can be written now.
    pub(crate) fn flush(&mut self) -> WriteOutcome {
        let buffer = std::mem::take(&mut self.buffer);
        self.written += self.write_available(&buffer[self.written..]);
        self.buffer = buffer;
        if self.state != State::Open {
            self.discard();
            return WriteOutcome::Discarded;
        }
        if self.is_buffering() {
            return WriteOutcome::Buffered;
        }
        self.buffer.clear();
        self.written = 0;
        WriteOutcome::Written
    }

    /// Throws away what is buffer back, and whatever comes.
    pub(crate) fn discard(&mut self) {
        if self.state == State::Open {
            self.state = State::NoReader;
        }
        self.buffer = Vec::new();
        self.written = 0;
    }

    fn write_end(&self) -> BorrowedFd<'_> {
        match &self.method {
            Method::Reopened(own) => own.as_fd(),
            Method::Direct | Method::NoWait | Method::Chunked(_) => self.fd,
        }
    }

    /// Writes until all is written or nothing fits; says how much it was. An error ends up in
    /// `state`.
    fn write_available(&mut self, bytes: &[u8]) -> usize {
        let mut written_now = 0;
        while written_now < bytes.len() {
            match self.write_once(&bytes[written_now..]) {
                Ok(0) | Err(Errno::AGAIN) => break,
                Ok(n) => written_now += n,
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::SPIPE)
                    if matches!(self.method, Method::NoWait) =>
                {
                    self.method = Method::Chunked(PIPE_CHUNK);
                }
                Err(Errno::PIPE | Errno::CONNRESET) => {
                    self.state = State::NoReader;
                    break;
                }
                Err(Errno::IO) if self.terminal => {
                    self.state = State::NoReader;
                    break;
                }
                Err(errno) => {
                    self.state = State::Failed(errno);
                    break;
                }
            }
        }
        written_now
    }

    /// One system call that does not wait. `Ok(0)` and EAGAIN: nothing fits.
    fn write_once(&self, bytes: &[u8]) -> Result<usize, Errno> {
        match &self.method {
            Method::Direct => rustix::io::write(self.fd, bytes),
            Method::NoWait => rustix::io::pwritev2(
                self.fd,
                &[IoSlice::new(bytes)],
                OWN_POSITION,
                ReadWriteFlags::NOWAIT,
            ),
            Method::Reopened(own) => rustix::io::write(own, bytes),
            Method::Chunked(size) => {
                let mut fds = [PollFd::from_borrowed_fd(self.fd, PollFlags::OUT)];
                poll(
                    &mut fds,
                    Some(&Timespec {
                        tv_sec: 0,
                        tv_nsec: 0,
                    }),
                )?;
                // A hang-up or an error is told by the write.
                if fds[0].revents().is_empty() {
                    Ok(0)
                } else {
                    rustix::io::write(self.fd, &bytes[..bytes.len().min(*size)])
                }
            }
        }
    }
}

/// The same terminal through a file description of our own. It may be refused: a terminal of
/// another user, no /proc.
fn reopen(fd: BorrowedFd<'_>) -> Option<OwnedFd> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::{PipeFlags, pipe_with};
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    const MORE_THAN_A_PIPE: usize = 300_000;

    /// A sink for the test binary's life.
    fn sink(fd: impl Into<OwnedFd>) -> Sink {
        let fd: &'static OwnedFd = Box::leak(Box::new(fd.into()));
        Sink::new(fd.as_fd())
    }

    fn pattern() -> Vec<u8> {
        (0..MORE_THAN_A_PIPE)
            .map(|n| u8::try_from(n % 251).expect("below 251"))
            .collect()
    }

    /// Writes more than fits with nobody reading, then reads it all in pieces.
    fn is_held_and_arrives(mut sink: Sink, mut reader: impl Read) {
        let all = pattern();
        assert_eq!(sink.write(&all), WriteOutcome::Buffered);
        assert!(sink.is_buffering());
        let flags = rustix::fs::fcntl_getfl(sink.fd).expect("an open descriptor");
        assert!(
            !flags.contains(OFlags::NONBLOCK),
            "a shared description was changed"
        );
        let mut got = Vec::new();
        let mut piece = [0; 5000];
        while got.len() < all.len() {
            let n = reader.read(&mut piece).expect("readable");
            got.extend_from_slice(&piece[..n]);
            let taken = sink.flush();
            assert_eq!(taken == WriteOutcome::Buffered, sink.is_buffering());
        }
        assert!(got == all && !sink.is_buffering());
        assert_eq!(sink.write(b"more"), WriteOutcome::Written);
    }

    #[test]
    fn a_full_pipe_holds_back_and_never_waits() {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        is_held_and_arrives(sink(write), std::fs::File::from(read));
    }

    #[test]
    fn a_full_pipe_holds_back_where_the_kernel_cannot_say_nowait() {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        let mut sink = sink(write);
        sink.method = Method::Chunked(PIPE_CHUNK);
        is_held_and_arrives(sink, std::fs::File::from(read));
    }

    #[test]
    fn a_full_socket_holds_back() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        is_held_and_arrives(sink(ours), theirs);
    }

    #[test]
    fn a_plain_file_takes_everything() {
        let mut path = std::env::temp_dir();
        path.push(format!("lastwords-sink-{}", uuid::Uuid::new_v4()));
        let mut sink = sink(std::fs::File::create_new(&path).expect("a new file"));
        assert_eq!(sink.write(&pattern()), WriteOutcome::Written);
        let there = std::fs::read(&path).expect("the file");
        std::fs::remove_file(&path).expect("ours");
        assert!(there == pattern());
    }

    #[test]
    fn a_reader_that_is_gone_is_no_failure() {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        let mut sink = sink(write);
        assert_eq!(sink.write(&pattern()), WriteOutcome::Buffered);
        drop(read);
        assert_eq!(sink.flush(), WriteOutcome::Discarded);
        assert_eq!(sink.write(b"x"), WriteOutcome::Discarded);
        assert!(!sink.is_buffering() && !sink.is_open() && sink.failure().is_none());
    }

    #[test]
    fn a_full_disk_is_a_failure() {
        let mut sink = sink(
            std::fs::File::options()
                .write(true)
                .open("/dev/full")
                .expect("the device"),
        );
        assert_eq!(sink.write(b"x"), WriteOutcome::Discarded);
        assert_eq!(sink.failure(), Some(Errno::NOSPC));
    }

    #[test]
    fn whether_a_line_is_open_is_known() {
        let (_read, write) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        let mut sink = sink(write);
        assert!(!sink.is_mid_line());
        sink.write(b"a\nb");
        assert!(sink.is_mid_line());
        sink.write(b"\n");
        sink.write_transient(b"live");
        assert!(!sink.is_mid_line());
    }
}
