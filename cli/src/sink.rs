//! Writes to stdout or stderr of lastwords without blocking and without changing the descriptor.
//!
//! stdout and stderr may be blocking, and their file descriptions are shared with the process that
//! started lastwords. Setting O_NONBLOCK would change them for everybody, so each kind of file
//! needs a method of its own.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::{Errno, IoSlice, ReadWriteFlags};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Bytes that a pipe accepts without blocking when poll(2) reports it writable (PIPE_BUF).
const PIPE_CHUNK: usize = 4096;
/// Bytes that a terminal accepts without blocking when poll(2) reports it writable (WAKEUP_CHARS in
/// the kernel's tty layer).
const TERMINAL_CHUNK: usize = 256;
/// Major device number of /dev/null, /dev/full and similar devices.
const MEMORY_DEVICES: u32 = 1;
/// The offset -1 makes pwritev2(2) use and advance the file position.
const OWN_POSITION: u64 = u64::MAX;

/// How a file is written without blocking.
#[derive(Debug)]
enum Method {
    /// write(2): regular files, block devices, /dev/null. They never block for a reader.
    Direct,
    /// pwritev2(2) with RWF_NOWAIT: pipes (since Linux 6.4) and sockets.
    NoWait,
    /// write(2) on a new file description with O_NONBLOCK: terminals.
    Reopened(OwnedFd),
    /// poll(2), then a write of at most this many bytes. It blocks only if another process fills
    /// the file between the two calls.
    Chunked(usize),
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteOutcome {
    /// All bytes are written.
    Written,
    /// Some bytes are buffered until [`Sink::flush`] can write them.
    Buffered,
    /// The bytes are thrown away, because nobody can read them.
    Discarded,
}

/// Whether the file accepts bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// The reader is gone (EPIPE, ECONNRESET, EIO of a closed terminal), or output was discarded.
    NoReader,
    Failed(Errno),
}

/// stdout or stderr of lastwords.
#[derive(Debug)]
pub(crate) struct Sink {
    fd: BorrowedFd<'static>,
    method: Method,
    state: State,
    terminal: bool,
    buffer: Vec<u8>,
    /// How many bytes of `buffer` are written already.
    written: usize,
    /// The last byte that was accepted.
    last: Option<u8>,
}

impl Sink {
    /// Chooses the method by the type of the file.
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

    /// Whether the file is a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Whether bytes are buffered.
    pub(crate) fn is_buffering(&self) -> bool {
        self.written < self.buffer.len()
    }

    /// Whether no write has failed yet.
    pub(crate) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// The error of a write, unless the reader is gone.
    pub(crate) fn failure(&self) -> Option<Errno> {
        match self.state {
            State::Failed(errno) => Some(errno),
            State::Open | State::NoReader => None,
        }
    }

    /// Whether the output so far ends in the middle of a line.
    pub(crate) fn is_mid_line(&self) -> bool {
        self.last.is_some_and(|byte| byte != b'\n')
    }

    /// The descriptor to poll for writability.
    pub(crate) fn as_poll_fd(&self) -> PollFd<'_> {
        PollFd::from_borrowed_fd(self.write_end(), PollFlags::OUT)
    }

    /// Writes as much as possible without blocking and buffers the rest.
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

    /// Like [`Sink::write`], for text that is cleared again and does not count for
    /// [`Sink::is_mid_line`].
    pub(crate) fn write_transient(&mut self, bytes: &[u8]) -> WriteOutcome {
        let last = self.last;
        let taken = self.write(bytes);
        self.last = last;
        taken
    }

    /// Flushes buffered output without blocking.
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

    /// Discards buffered output and everything that is written later.
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

    /// Writes until everything is written or the file is full. Returns the number of bytes written.
    /// An error is stored in `state`.
    fn write_available(&mut self, bytes: &[u8]) -> usize {
        let mut written_now = 0;
        while written_now < bytes.len() {
            match self.write_once(&bytes[written_now..]) {
                Ok(0) | Err(Errno::AGAIN) => break,
                Ok(n) => written_now += n,
                Err(Errno::INTR) => {}
                Err(errno) if matches!(self.method, Method::NoWait) && is_unsupported(errno) => {
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

    /// Makes one write call that does not block. `Ok(0)` and EAGAIN mean that the file is full.
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
                // After a hang-up the write returns the error.
                if fds[0].revents().is_empty() {
                    Ok(0)
                } else {
                    rustix::io::write(self.fd, &bytes[..bytes.len().min(*size)])
                }
            }
        }
    }
}

/// Whether an error of pwritev2(2) says that the call, or its flag, cannot be used here: the kernel
/// or the file lacks it, or a seccomp filter refuses it (EPERM). Bytes can be written in another
/// way.
fn is_unsupported(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::SPIPE | Errno::PERM
    )
}

/// Opens the same terminal with a new file description. Refused for a terminal of another user, and
/// without /proc.
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

    /// A sink on a descriptor that stays open for the life of the test binary.
    fn sink(fd: impl Into<OwnedFd>) -> Sink {
        let fd: &'static OwnedFd = Box::leak(Box::new(fd.into()));
        Sink::new(fd.as_fd())
    }

    fn pattern() -> Vec<u8> {
        (0..MORE_THAN_A_PIPE)
            .map(|n| u8::try_from(n % 251).expect("below 251"))
            .collect()
    }

    /// Writes more than fits while nobody reads, then reads everything in pieces.
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

    /// CASES 67.
    #[test]
    fn a_refused_pwritev2_is_replaced_and_a_failed_write_is_not() {
        for errno in [Errno::PERM, Errno::NOSYS, Errno::OPNOTSUPP] {
            assert!(is_unsupported(errno), "{errno}");
        }
        for errno in [Errno::FBIG, Errno::NOSPC, Errno::IO, Errno::PIPE] {
            assert!(!is_unsupported(errno), "{errno}");
        }
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
