//! Pipes: a capacity, the bytes in it, and who holds its ends.

use crate::types::Token;
use std::collections::VecDeque;

/// A pipe's number (its inode, so to speak). Never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PipeId(pub u64);

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// A child writes, the host reads.
    FromChild,
    /// The host writes, a child reads.
    ToChild,
}

/// The host's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostEnd {
    /// It is open; notices of its changes go to this token, if it is watched.
    Open(Option<Token>),
    /// It is read and thrown away.
    Lingering,
    /// It is closed.
    Closed,
}

/// A pipe between the host and its children.
#[derive(Clone, Debug)]
pub struct Pipe {
    /// Whether the host reads or writes it.
    pub flow: Flow,
    /// Bytes that fit.
    pub capacity: usize,
    /// The host's end.
    pub host: HostEnd,
    /// How many descriptors of processes are open on it.
    pub ends: u32,
    /// The host has found it full, and is owed a notice.
    pub owed: bool,
    /// Processes that sleep until it changes.
    pub sleepers: Vec<u32>,
    bytes: VecDeque<u8>,
}

/// What a process's write or read came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// So many bytes, at least one.
    Bytes(usize),
    /// It would block.
    Blocked,
    /// The other side is gone: EPIPE for a writer, end of file for a reader.
    Gone,
}

impl Pipe {
    /// An empty one; the host's end is open, no process has the other yet.
    pub fn new(flow: Flow, capacity: usize, watch: Option<Token>) -> Pipe {
        Pipe {
            flow,
            capacity: capacity.max(1),
            host: HostEnd::Open(watch),
            ends: 0,
            owed: false,
            sleepers: Vec::new(),
            bytes: VecDeque::new(),
        }
    }

    /// Bytes in it.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Bytes that still fit.
    pub fn room(&self) -> usize {
        self.capacity.saturating_sub(self.bytes.len())
    }

    /// Whoever reads it has closed it.
    pub fn no_reader(&self) -> bool {
        match self.flow {
            Flow::FromChild => self.host == HostEnd::Closed,
            Flow::ToChild => self.ends == 0,
        }
    }

    /// Whoever writes it has closed it.
    pub fn no_writer(&self) -> bool {
        match self.flow {
            Flow::FromChild => self.ends == 0,
            Flow::ToChild => self.host == HostEnd::Closed,
        }
    }

    /// Puts in what fits. A lingering end takes everything.
    pub fn put(&mut self, bytes: &[u8]) -> Moved {
        if self.no_reader() {
            return Moved::Gone;
        }
        if self.flow == Flow::FromChild && self.host == HostEnd::Lingering {
            return Moved::Bytes(bytes.len());
        }
        let n = bytes.len().min(self.room());
        if n == 0 && !bytes.is_empty() {
            return Moved::Blocked;
        }
        self.bytes.extend(&bytes[..n]);
        Moved::Bytes(n)
    }

    /// Takes out at most what `into` holds.
    pub fn take(&mut self, into: &mut [u8]) -> Moved {
        let n = into.len().min(self.bytes.len());
        if n == 0 {
            return if self.no_writer() && self.bytes.is_empty() {
                Moved::Gone
            } else {
                Moved::Blocked
            };
        }
        let (front, back) = self.bytes.as_slices();
        let first = n.min(front.len());
        into[..first].copy_from_slice(&front[..first]);
        into[first..n].copy_from_slice(&back[..n - first]);
        self.bytes.drain(..n);
        Moved::Bytes(n)
    }

    /// Throws away what is in it.
    pub fn spill(&mut self) {
        self.bytes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_takes_what_fits_and_tells_ends_from_emptiness() {
        let mut pipe = Pipe::new(Flow::FromChild, 4, None);
        pipe.ends = 1;
        let mut out = [0; 3];
        assert_eq!(pipe.take(&mut out), Moved::Blocked);
        assert_eq!(pipe.put(b"abcdef"), Moved::Bytes(4));
        assert_eq!(pipe.put(b"e"), Moved::Blocked);
        assert_eq!((pipe.take(&mut out), &out), (Moved::Bytes(3), b"abc"));
        pipe.ends = 0;
        assert_eq!(pipe.take(&mut out), Moved::Bytes(1));
        assert_eq!(pipe.take(&mut out), Moved::Gone);
        pipe.host = HostEnd::Closed;
        assert_eq!(pipe.put(b"x"), Moved::Gone);
    }
}
