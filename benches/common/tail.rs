//! What the hand-written peers keep of a stream: the newest 2 MiB, in a ring that is read into
//! directly and recycled.

use futures_lite::AsyncReadExt as _;
use std::io::{self, ErrorKind, Read};
use std::sync::{Mutex, PoisonError};
use tokio::io::AsyncReadExt as _;

/// Bytes kept, as lastwords keeps by default.
const KEEP: usize = 2 << 20;
/// Bytes asked for in one read.
const READ: usize = 64 << 10;

/// The newest bytes of a stream.
#[derive(Debug)]
pub(crate) struct Tail {
    ring: Box<[u8]>,
    at: usize,
    total: u64,
}

/// Rings that are free. One for all peers: whoever is measured first does not pay the page faults
/// of the others.
static FREE: Mutex<Vec<Box<[u8]>>> = Mutex::new(Vec::new());

impl Tail {
    /// An empty one, from a recycled ring where there is one.
    pub(crate) fn new() -> Tail {
        let free = FREE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Tail {
            ring: free.unwrap_or_else(|| vec![0; KEEP].into_boxed_slice()),
            at: 0,
            total: 0,
        }
    }

    /// Of a pipe that is read to its end by a thread that waits.
    pub(crate) fn of(mut pipe: impl Read) -> io::Result<Tail> {
        let mut tail = Tail::new();
        loop {
            match pipe.read(tail.space()) {
                Ok(0) => return Ok(tail),
                Ok(n) => tail.took(n),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The same, by a task of tokio.
    pub(crate) async fn of_tokio(mut pipe: impl tokio::io::AsyncRead + Unpin) -> io::Result<Tail> {
        let mut tail = Tail::new();
        loop {
            match pipe.read(tail.space()).await? {
                0 => return Ok(tail),
                n => tail.took(n),
            }
        }
    }

    /// The same, by a task of another executor.
    pub(crate) async fn of_futures(
        mut pipe: impl futures_lite::AsyncRead + Unpin,
    ) -> io::Result<Tail> {
        let mut tail = Tail::new();
        loop {
            match pipe.read(tail.space()).await? {
                0 => return Ok(tail),
                n => tail.took(n),
            }
        }
    }

    /// Where the next read goes.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        let end = (self.at + READ).min(KEEP);
        &mut self.ring[self.at..end]
    }

    /// So many bytes were read.
    pub(crate) fn took(&mut self, n: usize) {
        self.at = (self.at + n) % KEEP;
        self.total += n as u64;
    }

    /// All bytes of the stream, kept or not.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// The last eight bytes of a stream that has never wrapped: where a child leaves its time.
    pub(crate) fn stamp(&self) -> Option<u64> {
        let bytes = self.ring.get(self.at.checked_sub(8)?..self.at)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        FREE.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(std::mem::take(&mut self.ring));
    }
}
