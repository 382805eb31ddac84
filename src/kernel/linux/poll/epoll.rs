//! The poll set on one edge-triggered epoll, through mio.
//!
//! Each change is reported once. Data and a hang-up come as a single edge that is never repeated,
//! so a stream whose hang-up was reported must be read until its end.

use super::event::{Interest, Key, Ready};
use crate::types::{Errno, Ns, Token};
use mio::unix::SourceFd;
use mio::{Events, Poll};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

/// One epoll instance.
#[derive(Debug)]
pub(crate) struct Epoll {
    poll: Poll,
    events: Events,
    capacity: usize,
}

impl Epoll {
    /// An empty set. One wait reports at most `capacity` events.
    pub(super) fn new(capacity: usize) -> io::Result<Epoll> {
        Ok(Epoll {
            poll: Poll::new()?,
            events: Events::with_capacity(capacity),
            capacity,
        })
    }

    pub(super) fn waker(&self, token: Token) -> io::Result<mio::Waker> {
        mio::Waker::new(self.poll.registry(), word(Key::Token(token)))
    }

    /// Watches a descriptor from now on.
    pub(super) fn add(
        &self,
        fd: BorrowedFd<'_>,
        key: Key,
        interest: Interest,
    ) -> Result<(), Errno> {
        let interest = match interest {
            Interest::Read => mio::Interest::READABLE,
            Interest::Write => mio::Interest::WRITABLE,
            Interest::Urgent => mio::Interest::PRIORITY,
        };
        self.poll
            .registry()
            .register(&mut SourceFd(&fd.as_raw_fd()), word(key), interest)
            .map_err(|e| Errno::from(&e))
    }

    /// Watches a descriptor under another key. Its present state is reported again.
    pub(super) fn reregister(&self, fd: BorrowedFd<'_>, key: Key) -> Result<(), Errno> {
        self.poll
            .registry()
            .reregister(
                &mut SourceFd(&fd.as_raw_fd()),
                word(key),
                mio::Interest::READABLE,
            )
            .map_err(|e| Errno::from(&e))
    }

    /// Ends a watch.
    pub(super) fn remove(&self, fd: BorrowedFd<'_>) {
        // The only possible error is ENOENT: it is not watched.
        let _ = self
            .poll
            .registry()
            .deregister(&mut SourceFd(&fd.as_raw_fd()));
    }

    /// As [`super::Poller::wait`].
    pub(super) fn wait(
        &mut self,
        timeout: Option<Ns>,
        ready: &mut Vec<Ready>,
    ) -> Result<bool, Errno> {
        match self
            .poll
            .poll(&mut self.events, timeout.map(|t| Duration::from_nanos(t.0)))
        {
            Ok(()) => {}
            Err(e) => {
                self.events.clear();
                return if e.kind() == io::ErrorKind::Interrupted {
                    Ok(false)
                } else {
                    Err(Errno::from(&e))
                };
            }
        }
        ready.extend(self.events.iter().filter_map(|event| {
            let key = Key::from_bits(event.token().0 as u64)?;
            Some(Ready {
                key,
                hung_up: event.is_read_closed() || event.is_write_closed() || event.is_error(),
            })
        }));
        Ok(true)
    }

    /// Whether the last wait may have left events behind.
    pub(super) fn was_full(&self) -> bool {
        self.events.iter().count() >= self.capacity
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

/// A key as a token of mio, which is 64 bits wide (asserted in `types/token.rs`).
fn word(key: Key) -> mio::Token {
    mio::Token(key.bits() as usize)
}

#[cfg(test)]
mod tests {
    // Each test that closes a pipe runs in a process of its own: between clone and exec, a child of
    // another test holds copies of all pipes.
    use super::*;
    use crate::testing::isolation::alone;
    use rustix::pipe::{PipeFlags, pipe_with};
    use std::time::Instant;

    fn wait(epoll: &mut Epoll, timeout: Option<Ns>) -> Vec<Ready> {
        let mut ready = Vec::new();
        assert!(epoll.wait(timeout, &mut ready).expect("wait"));
        ready
    }

    #[test]
    fn data_and_hang_up_come_as_one_edge_and_only_once() {
        alone(
            "data_and_hang_up_come_as_one_edge_and_only_once",
            module_path!(),
            || {
                let mut epoll = Epoll::new(8).expect("epoll");
                let (read, write) =
                    pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).expect("pipe");
                epoll
                    .add(read.as_fd(), Key::Linger(3), Interest::Read)
                    .expect("add");
                assert_eq!(wait(&mut epoll, Some(Ns::ZERO)).len(), 0);

                rustix::io::write(&write, b"x").expect("write");
                drop(write);
                let ready = wait(&mut epoll, Some(Ns::from_millis(1000)));
                assert_eq!(
                    (ready.len(), ready[0].key, ready[0].hung_up),
                    (1, Key::Linger(3), true)
                );
                assert_eq!(
                    wait(&mut epoll, Some(Ns::ZERO)).len(),
                    0,
                    "an edge is reported once"
                );

                epoll
                    .reregister(read.as_fd(), Key::Linger(4))
                    .expect("again");
                let keys: Vec<Key> = wait(&mut epoll, Some(Ns::ZERO))
                    .iter()
                    .map(|r| r.key)
                    .collect();
                assert_eq!(keys, [Key::Linger(4)]);
            },
        );
    }

    #[test]
    fn a_wait_is_never_early_and_a_full_one_says_so() {
        let mut epoll = Epoll::new(1).expect("epoll");
        let begin = Instant::now();
        assert_eq!(wait(&mut epoll, Some(Ns(3_200_000))).len(), 0);
        assert!(begin.elapsed() >= Duration::from_nanos(3_200_000));
        assert!(!epoll.was_full());

        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).expect("pipe");
        epoll
            .add(read.as_fd(), Key::Linger(1), Interest::Read)
            .expect("add");
        drop(write);
        assert_eq!(wait(&mut epoll, None).len(), 1);
        assert!(epoll.was_full());
    }
}
