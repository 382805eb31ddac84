//! Where a child's descriptors 0, 1 and 2 go.

use crate::types::limits;
use std::os::fd::OwnedFd;

/// Where the child's descriptor 0 comes from. Default: [`Stdin::Null`].
#[derive(Debug, Default)]
#[non_exhaustive]
pub enum Stdin {
    /// /dev/null: the child reads end of file at once.
    #[default]
    Null,
    /// The host's own descriptor 0.
    Inherit,
    /// These bytes, written by the loop through a pipe, then end of file. A child that does not
    /// read them stalls neither the loop nor its own exit.
    Bytes(Vec<u8>),
    /// A pipe that the loop writes: the bytes that the host gives to
    /// [`Reactor::feed`](crate::Reactor::feed), until
    /// [`Reactor::close_stdin`](crate::Reactor::close_stdin).
    Feed,
    /// A pipe that the host writes. The host takes the write end, which is non-blocking
    /// ([`Reactor::take_stdin`](crate::Reactor::take_stdin)).
    Raw,
    /// A descriptor of the host's.
    Fd(OwnedFd),
}

impl From<Vec<u8>> for Stdin {
    fn from(bytes: Vec<u8>) -> Stdin {
        Stdin::Bytes(bytes)
    }
}

impl From<&str> for Stdin {
    fn from(text: &str) -> Stdin {
        Stdin::Bytes(text.as_bytes().to_vec())
    }
}

impl From<OwnedFd> for Stdin {
    fn from(fd: OwnedFd) -> Stdin {
        Stdin::Fd(fd)
    }
}

/// How the loop captures a stream: how much it keeps, and whether it hands bytes to the host.
///
/// ```
/// use lastwords::{Capture, Command};
///
/// let mut command = Command::shell("printf 1234567890");
/// command.stdout(Capture::default().max_bytes(4));
/// let kept = lastwords::run(&command)?.stdout.expect("stdout is captured");
/// assert_eq!(kept.to_vec(), b"7890");
/// assert_eq!(kept.dropped(), 6);
/// # Ok::<(), lastwords::RunError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capture {
    /// How many bytes are kept, the newest ones. Default: 2 MiB.
    /// [`StreamReport::dropped`](crate::StreamReport::dropped) counts the bytes not kept.
    pub max_bytes: u64,
    /// Whether bytes are delivered as [`Event::Output`](crate::Event::Output) while the command
    /// runs. Default: false; bytes are kept and not delivered.
    pub deliver: bool,
    /// Undelivered bytes at which the stream is not read any more, so that the child is held back.
    /// Default 256 KiB.
    pub high_water_mark: u64,
    /// Drops undelivered bytes beyond `max_bytes` instead of holding the child back; the event
    /// after a loss says how many bytes are missing. Default: false.
    pub lossy: bool,
    /// Capacity of the pipe to ask for in bytes (F_SETPIPE_SZ, fcntl(2)). The kernel rounds it up
    /// to a power of two of pages. Without root's rights more than /proc/sys/fs/pipe-max-size
    /// (1 MiB) is refused, and any growth once the pipes of the user take /proc/sys/fs/
    /// pipe-user-pages-soft (64 MiB); a refusal is no error, and
    /// [`StreamReport::capacity`](crate::StreamReport::capacity) says what was had. Default: as
    /// the kernel gives it (64 KiB).
    pub pipe: Option<u32>,
    /// A pipe, or a pair of sockets, which is faster and breaks some programs: see
    /// [`Transport::Socket`]. Default: a pipe.
    pub transport: Transport,
}

impl Default for Capture {
    fn default() -> Self {
        Capture {
            max_bytes: limits::KEEP,
            deliver: false,
            high_water_mark: limits::AHEAD,
            lossy: false,
            pipe: None,
            transport: Transport::Pipe,
        }
    }
}

impl Capture {
    /// Sets [`Capture::max_bytes`].
    #[must_use]
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Sets [`Capture::deliver`].
    #[must_use]
    pub fn deliver(mut self, deliver: bool) -> Self {
        self.deliver = deliver;
        self
    }

    /// Sets [`Capture::high_water_mark`]. At least 1.
    #[must_use]
    pub fn high_water_mark(mut self, bytes: u64) -> Self {
        self.high_water_mark = bytes.max(1);
        self
    }

    /// Sets [`Capture::lossy`].
    #[must_use]
    pub fn lossy(mut self, lossy: bool) -> Self {
        self.lossy = lossy;
        self
    }

    /// Sets [`Capture::transport`].
    #[must_use]
    pub fn transport(mut self, transport: Transport) -> Self {
        self.transport = transport;
        self
    }

    /// Sets [`Capture::pipe`].
    #[must_use]
    pub fn pipe(mut self, bytes: Option<u32>) -> Self {
        self.pipe = bytes;
        self
    }
}

/// Where the child's descriptor 1 or 2 goes. Default: captured, as [`Capture::default`] says.
#[derive(Debug)]
#[non_exhaustive]
pub enum Output {
    /// A pipe that the loop reads, or a pair of sockets ([`Capture::transport`]).
    Capture(Capture),
    /// A pipe that the host reads. The host takes the read end, which is non-blocking
    /// ([`Reactor::take_stdout`](crate::Reactor::take_stdout)).
    Raw,
    /// The host's own descriptor of the same number.
    Inherit,
    /// What is written is thrown away (/dev/null).
    Null,
    /// A descriptor of the host's.
    Fd(OwnedFd),
    /// For stderr: the same pipe, file or descriptor as stdout, so that the order of writes to both
    /// is kept. For stdout it means [`Output::Inherit`].
    ToStdout,
}

impl Default for Output {
    fn default() -> Self {
        Output::Capture(Capture::default())
    }
}

impl From<Capture> for Output {
    fn from(capture: Capture) -> Output {
        Output::Capture(capture)
    }
}

impl From<OwnedFd> for Output {
    fn from(fd: OwnedFd) -> Output {
        Output::Fd(fd)
    }
}

/// What connects the child's stream to the loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Transport {
    /// A pipe, as programs expect it.
    #[default]
    Pipe,
    /// A pair of connected stream sockets (socketpair(2), unix(7)), the loop's shut for writing.
    /// With writes of 64 KiB it is faster than a pipe of 64 KiB, 1.4 to 2.5 times for one
    /// child, at two thirds of the CPU; **with writes of 4 KiB it is slower**, at half as much
    /// CPU again (`cargo bench -p lastwords-benches --bench options`). The price is that the
    /// child's stream is a socket:
    ///
    /// * Opening it anew by name fails: `echo x >/dev/stderr`, or `/proc/self/fd/2`, gets ENXIO.
    ///   Shell scripts do that.
    /// * Every holder could also read it, where it finds end of file; `shutdown(fd, SHUT_WR)` in
    ///   one process ends it for all.
    /// * Programs that look at what they write to (fstat(2)) see a socket; splice(2) and tee(2)
    ///   between pipes do not apply, F_GETPIPE_SZ gets EBADF. As with a pipe it is no terminal. Who
    ///   writes when the loop has closed its end gets EPIPE and SIGPIPE; but who sleeps in a write
    ///   at that moment gets EPIPE without the signal.
    /// * It holds what the send buffer allows (/proc/sys/net/core/wmem_default, 208 KiB), headers
    ///   included: many small writes fill it sooner than they would a pipe.
    ///   [`Capture::pipe`](crate::Capture::pipe) means nothing here.
    /// * Holders are named as those of a pipe are; who has it only inside a message on its way to
    ///   another process (SCM_RIGHTS) is seen in neither.
    Socket,
}
