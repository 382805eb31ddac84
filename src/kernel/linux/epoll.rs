//! The poll set: one edge-triggered epoll, through mio.
//!
//! Edge-triggered: a readiness is told once. "Data and hang-up" come as one edge and are never repeated, so a stream whose
//! hang-up was told is read to its end.

use crate::error::Errno;
use crate::time::Ns;
use crate::token::Token;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

/// What something in the poll set is: a token of the reactor's, or the kernel object's own. One word, both ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// Something of a generation.
    Token(Token),
    /// The signal pipe of the SIGCHLD way.
    Sigchld,
    /// The timer of [`crate::kernel::Kernel::alarm`].
    Alarm,
    /// What stays with the kernel object after its generation: its number there.
    Linger(u32),
}

// Low bytes that `What` never has.
const SIGCHLD: u64 = 0x08;
const ALARM: u64 = 0x09;
const LINGER: u64 = 0x0a;

impl Key {
    fn bits(self) -> usize {
        let bits = match self {
            Key::Token(token) => token.bits(),
            Key::Sigchld => SIGCHLD,
            Key::Alarm => ALARM,
            Key::Linger(number) => u64::from(number) << 8 | LINGER,
        };
        // 64 bits wide, asserted in token.rs.
        bits as usize
    }

    fn from_bits(bits: usize) -> Option<Key> {
        let bits = bits as u64;
        match bits & 0xff {
            SIGCHLD => Some(Key::Sigchld),
            ALARM => Some(Key::Alarm),
            LINGER => Some(Key::Linger((bits >> 8) as u32)),
            _ => Token::from_bits(bits).map(Key::Token),
        }
    }
}

/// One readiness.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    /// Of what.
    pub key: Key,
    /// Nobody has the other end of the pipe any more.
    pub hung_up: bool,
}

/// One epoll. Its descriptor never changes.
#[derive(Debug)]
pub(crate) struct Epoll {
    poll: Poll,
    events: Events,
    room: usize,
}

impl Epoll {
    /// An empty set that takes at most `room` readinesses in one wait.
    pub(crate) fn new(room: usize) -> io::Result<Epoll> {
        Ok(Epoll { poll: Poll::new()?, events: Events::with_capacity(room), room })
    }

    /// A waker for it.
    pub(crate) fn waker(&self, token: Token) -> io::Result<mio::Waker> {
        mio::Waker::new(self.poll.registry(), mio::Token(Key::Token(token).bits()))
    }

    /// Watches for something to read (or the other end's going).
    pub(crate) fn add_reader(&self, fd: BorrowedFd<'_>, key: Key) -> Result<(), Errno> {
        self.add(fd, key, Interest::READABLE)
    }

    /// Watches for room to write (or the other end's going).
    pub(crate) fn add_writer(&self, fd: BorrowedFd<'_>, key: Key) -> Result<(), Errno> {
        self.add(fd, key, Interest::WRITABLE)
    }

    /// Watches for something urgent to read (POLLPRI): how a file of a cgroup tells of a change.
    pub(crate) fn add_urgent(&self, fd: BorrowedFd<'_>, key: Key) -> Result<(), Errno> {
        self.add(fd, key, Interest::PRIORITY)
    }

    fn add(&self, fd: BorrowedFd<'_>, key: Key, interest: Interest) -> Result<(), Errno> {
        self.poll.registry().register(&mut SourceFd(&fd.as_raw_fd()), mio::Token(key.bits()), interest).map_err(|e| Errno::from(&e))
    }

    /// The same descriptor under another key; what is ready is told again.
    pub(crate) fn again_reader(&self, fd: BorrowedFd<'_>, key: Key) -> Result<(), Errno> {
        self.poll
            .registry()
            .reregister(&mut SourceFd(&fd.as_raw_fd()), mio::Token(key.bits()), Interest::READABLE)
            .map_err(|e| Errno::from(&e))
    }

    /// Watches it no more. Must come before every close: a child that has not called exec yet holds a copy of the
    /// descriptor, and closing ours alone would leave the registration alive.
    pub(crate) fn remove(&self, fd: BorrowedFd<'_>) {
        // ENOENT: it was taken out before. Nothing else is to be expected of a descriptor that we own.
        let _ = self.poll.registry().deregister(&mut SourceFd(&fd.as_raw_fd()));
    }

    /// Sleeps until something is ready, at most `timeout` (for ever without one; rounded up to a millisecond; zero does not
    /// sleep). `false` when a signal came first. What is ready is then in [`Epoll::ready`].
    pub(crate) fn wait(&mut self, timeout: Option<Ns>) -> Result<bool, Errno> {
        match self.poll.poll(&mut self.events, timeout.map(|t| Duration::from_nanos(t.0))) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {
                self.events.clear();
                Ok(false)
            }
            Err(e) => {
                self.events.clear();
                Err(Errno::from(&e))
            }
        }
    }

    /// What the last wait found.
    pub(crate) fn ready(&self) -> impl Iterator<Item = Ready> + '_ {
        self.events.iter().filter_map(|event| {
            let key = Key::from_bits(event.token().0)?;
            Some(Ready { key, hung_up: event.is_read_closed() || event.is_write_closed() || event.is_error() })
        })
    }

    /// Whether the last wait may have left something behind.
    pub(crate) fn was_full(&self) -> bool {
        self.events.iter().count() >= self.room
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poll.registry().as_fd()
    }
}

impl AsRawFd for Epoll {
    fn as_raw_fd(&self) -> RawFd {
        self.poll.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::WATCHED;
    use crate::token::{Slot, What};
    use rustix::pipe::{PipeFlags, pipe_with};
    use std::time::Instant;

    #[test]
    fn keys_go_both_ways_and_never_meet() {
        let token = |what| Key::Token(Token::new(Slot(7), 9, what));
        let last = u8::try_from(WATCHED - 1).expect("small");
        let keys = [
            Key::Sigchld,
            Key::Alarm,
            Key::Linger(0),
            Key::Linger(u32::MAX),
            token(What::Spawn),
            token(What::Exit),
            token(What::Wake),
            token(What::Member(last)),
        ];
        for key in keys {
            assert_eq!(Key::from_bits(key.bits()), Some(key));
        }
        assert_eq!(Key::from_bits(0xff), None);
    }

    #[test]
    fn data_and_hang_up_come_as_one_edge_and_only_once() {
        let mut epoll = Epoll::new(8).expect("epoll");
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).expect("pipe");
        epoll.add_reader(read.as_fd(), Key::Linger(3)).expect("add");
        assert!(epoll.wait(Some(Ns::ZERO)).expect("wait"));
        assert_eq!(epoll.ready().count(), 0);

        rustix::io::write(&write, b"x").expect("write");
        drop(write);
        assert!(epoll.wait(Some(Ns::from_millis(1000))).expect("wait"));
        let ready: Vec<Ready> = epoll.ready().collect();
        assert_eq!((ready.len(), ready[0].key, ready[0].hung_up), (1, Key::Linger(3), true));
        assert!(epoll.wait(Some(Ns::ZERO)).expect("wait"));
        assert_eq!(epoll.ready().count(), 0, "an edge is told once");

        epoll.again_reader(read.as_fd(), Key::Linger(4)).expect("again");
        assert!(epoll.wait(Some(Ns::ZERO)).expect("wait"));
        assert_eq!(epoll.ready().map(|r| r.key).collect::<Vec<_>>(), [Key::Linger(4)]);
    }

    #[test]
    fn a_wait_is_never_early_and_a_full_one_says_so() {
        let mut epoll = Epoll::new(1).expect("epoll");
        let begin = Instant::now();
        assert!(epoll.wait(Some(Ns(3_200_000))).expect("wait"));
        assert!(begin.elapsed() >= Duration::from_nanos(3_200_000));
        assert!(!epoll.was_full());

        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).expect("pipe");
        epoll.add_reader(read.as_fd(), Key::Linger(1)).expect("add");
        drop(write);
        assert!(epoll.wait(None).expect("wait"));
        assert!(epoll.was_full());
    }
}
