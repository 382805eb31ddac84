//! The poll set, whichever it is. Everything above it asks the same questions of both.

pub(crate) mod deadline_timer;
mod epoll;
pub(crate) mod uring;

use crate::kernel::Wake;
use crate::types::{Backend, BackendChoice, Errno, Ns, Token};
use epoll::Epoll;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use uring::Uring;

/// What something in the poll set is: a token of the reactor's, or the kernel object's own. One
/// word, both ways.
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
    /// The whole word.
    pub(crate) fn bits(self) -> u64 {
        match self {
            Key::Token(token) => token.bits(),
            Key::Sigchld => SIGCHLD,
            Key::Alarm => ALARM,
            Key::Linger(number) => u64::from(number) << 8 | LINGER,
        }
    }

    /// Back from a word; `None` if it was never one of ours.
    pub(crate) fn from_bits(bits: u64) -> Option<Key> {
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

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    /// Something to read, or the other end's going.
    Read,
    /// Room to write, or the other end's going.
    Write,
    /// Something urgent to read (POLLPRI): how a file of a cgroup tells of a change.
    Urgent,
}

/// One poll set. Its descriptor never changes.
#[derive(Debug)]
pub(crate) enum Poller {
    /// Edge-triggered: a watch tells of every change, once.
    Epoll(Epoll),
    /// One-shot: a watch tells once, of how things stand, and has to be told that a notice is owed
    /// again. (Boxed: what a ring needs besides is larger, and there is one.)
    Uring(Box<Uring>),
}

impl Poller {
    /// The one that is asked for, or else epoll, and why. `room`: readinesses that one wait takes
    /// at most.
    pub(crate) fn choose(
        choice: BackendChoice,
        room: usize,
    ) -> io::Result<(Poller, Backend, String)> {
        let why = match choice {
            BackendChoice::Auto => "epoll is the default".into(),
            BackendChoice::Epoll => "epoll was asked for".into(),
            BackendChoice::Uring => match Uring::new(uring::COMPLETIONS) {
                Ok(ring) => {
                    return Ok((
                        Poller::Uring(Box::new(ring)),
                        Backend::Uring,
                        "io_uring was asked for".into(),
                    ));
                }
                Err(refusal) => refusal.to_string(),
            },
        };
        Ok((Poller::Epoll(Epoll::new(room)?), Backend::Epoll, why))
    }

    /// Watches a descriptor from now on. How it stands is told at once.
    pub(crate) fn add(
        &mut self,
        fd: BorrowedFd<'_>,
        key: Key,
        interest: Interest,
    ) -> Result<(), Errno> {
        match self {
            Poller::Epoll(epoll) => epoll.add(fd, key, interest),
            Poller::Uring(ring) => ring.add(fd, key, interest),
        }
    }

    /// The same descriptor under another key; what is there to read is told again.
    pub(crate) fn again_reader(&mut self, fd: BorrowedFd<'_>, key: Key) -> Result<(), Errno> {
        match self {
            Poller::Epoll(epoll) => epoll.again_reader(fd, key),
            Poller::Uring(ring) => {
                ring.remove(fd);
                ring.add(fd, key, Interest::Read)
            }
        }
    }

    /// A notice is owed from here on: whoever was told of this descriptor has found nothing more to
    /// do there.
    pub(crate) fn owe(&mut self, fd: BorrowedFd<'_>) {
        match self {
            // An edge will come.
            Poller::Epoll(_) => {}
            Poller::Uring(ring) => ring.owe(fd),
        }
    }

    /// The same where "it is ready" is no news any more, and more than that is waited for: a leader
    /// that has ended and that its tracer keeps from us.
    pub(crate) fn owe_changes(&mut self, fd: BorrowedFd<'_>) {
        match self {
            Poller::Epoll(_) => {}
            Poller::Uring(ring) => ring.owe_changes(fd),
        }
    }

    /// Watches it no more. Must come before every close: a child that has not called exec yet holds
    /// a copy of the descriptor, and a poll of io_uring holds the open file itself; closing
    /// ours alone would leave either alive.
    pub(crate) fn remove(&mut self, fd: BorrowedFd<'_>) {
        match self {
            Poller::Epoll(epoll) => epoll.remove(fd),
            Poller::Uring(ring) => ring.remove(fd),
        }
    }

    /// Watches nothing any more.
    pub(crate) fn remove_all(&mut self) {
        match self {
            // It ends with the last descriptor of it.
            Poller::Epoll(_) => {}
            Poller::Uring(ring) => ring.remove_all(),
        }
    }

    /// What was asked for has reached the kernel. Everything that watches or ends a watch does this
    /// before it returns to the host, who may sleep on the descriptor next.
    pub(crate) fn settle(&mut self) {
        match self {
            Poller::Epoll(_) => {}
            Poller::Uring(ring) => ring.settle(),
        }
    }

    /// Sleeps until something is ready, at most `timeout` (for ever without one; epoll rounds up to
    /// a millisecond; zero does not sleep). `false` when a signal came first. What is ready is
    /// then in `ready`, as much as its capacity holds; nothing allocates.
    pub(crate) fn wait(
        &mut self,
        timeout: Option<Ns>,
        ready: &mut Vec<Ready>,
    ) -> Result<bool, Errno> {
        ready.clear();
        match self {
            Poller::Epoll(epoll) => epoll.wait(timeout, ready),
            Poller::Uring(ring) => ring.wait(timeout, ready),
        }
    }

    /// Whether the last wait may have left something behind.
    pub(crate) fn was_full(&self) -> bool {
        match self {
            Poller::Epoll(epoll) => epoll.was_full(),
            Poller::Uring(ring) => ring.has_more(),
        }
    }

    /// A waker for it. Called once.
    pub(crate) fn waker(&mut self, token: Token) -> io::Result<LinuxWaker> {
        match self {
            Poller::Epoll(epoll) => Ok(LinuxWaker(Bell::Mio(Arc::new(epoll.waker(token)?)))),
            Poller::Uring(ring) => {
                let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
                ring.add(bell.as_fd(), Key::Token(token), Interest::Read)?;
                ring.settle();
                Ok(LinuxWaker(Bell::Eventfd(Arc::new(bell))))
            }
        }
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Poller::Epoll(epoll) => epoll.as_fd(),
            Poller::Uring(ring) => ring.as_fd(),
        }
    }
}

impl AsRawFd for Poller {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// Wakes a [`super::Linux`] that sleeps (or will): an eventfd in its poll set.
#[derive(Clone, Debug)]
pub struct LinuxWaker(Bell);

#[derive(Clone, Debug)]
enum Bell {
    Mio(Arc<mio::Waker>),
    Eventfd(Arc<OwnedFd>),
}

impl LinuxWaker {
    /// It was heard: what rings from now on makes a new notice.
    pub(crate) fn heard(&self, poller: &mut Poller) {
        match &self.0 {
            // An edge for each ring.
            Bell::Mio(_) => {}
            Bell::Eventfd(bell) => {
                // EAGAIN: there was nothing in it.
                let _ = rustix::io::read(bell, &mut [0; 8]);
                poller.owe(bell.as_fd());
            }
        }
    }
}

impl Wake for LinuxWaker {
    fn wake(&self) {
        // An eventfd that is full is readable; there is nothing else that could fail.
        match &self.0 {
            Bell::Mio(waker) => drop(waker.wake()),
            Bell::Eventfd(bell) => drop(rustix::io::write(bell, &1_u64.to_ne_bytes())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::limits::WATCHED;
    use crate::types::{Slot, What};

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
}
