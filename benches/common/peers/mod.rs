//! Who is measured. Every peer does the same: starts a number of children that make noise, then runs quiet ones among them, one
//! after another, and says for each how long after its last act everything about it was known: both pipes at their end, and the
//! status. All keep the newest 2 MiB of each stream.

mod lastwords;
mod raw;
mod threads;
mod tokio;

use super::Fail;
use super::child::Role;
use ::lastwords::BackendChoice;

/// What a peer is to do in one round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    /// What the measured children do.
    pub(crate) role: Role,
    /// How many of them, one after another.
    pub(crate) count: usize,
    /// How many children make noise beside them.
    pub(crate) noisy: usize,
}

/// When things about one child were known, in nanoseconds after its last act.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Its status.
    pub(crate) status: u64,
    /// Everything.
    pub(crate) verdict: u64,
}

/// What a round came to.
#[derive(Debug, Default)]
pub(crate) struct Done {
    /// One for each measured child.
    pub(crate) samples: Vec<Sample>,
    /// Bytes read, of all children.
    pub(crate) bytes: u64,
}

/// Someone who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// lastwords on epoll.
    Lastwords,
    /// lastwords on io_uring.
    LastwordsUring,
    /// A hand-written loop on one epoll, one read per event, in the order of the events.
    Raw,
    /// The same, with the pidfds in an epoll of their own that is looked at after every read; who has exited is drained at once.
    RawPrio,
    /// The first one, never sleeping.
    Spin,
    /// std, with a thread for each pipe.
    Threads,
    /// tokio's `process` on its single-threaded runtime.
    TokioCurrent,
    /// tokio's `process` on its multi-threaded runtime.
    TokioMulti,
}

impl Peer {
    /// All of them, in the order of the tables.
    pub(crate) const ALL: [Peer; 8] =
        [Peer::Lastwords, Peer::LastwordsUring, Peer::Raw, Peer::RawPrio, Peer::Spin, Peer::Threads, Peer::TokioCurrent, Peer::TokioMulti];

    /// Its name in tables and arguments.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Peer::Lastwords => "lastwords",
            Peer::LastwordsUring => "lastwords-uring",
            Peer::Raw => "raw-epoll",
            Peer::RawPrio => "raw-prio",
            Peer::Spin => "spin",
            Peer::Threads => "std-threads",
            Peer::TokioCurrent => "tokio-ct",
            Peer::TokioMulti => "tokio-mt",
        }
    }

    /// Measured when nobody says who: all that sleep, and io_uring only where it is to be had.
    pub(crate) fn by_default(self) -> bool {
        match self {
            Peer::Spin => false,
            Peer::LastwordsUring => lastwords::has_uring(),
            Peer::Lastwords | Peer::Raw | Peer::RawPrio | Peer::Threads | Peer::TokioCurrent | Peer::TokioMulti => true,
        }
    }
}

/// What peers keep from round to round: reactors. (The rings of the others are kept in `tail.rs`.)
#[derive(Debug)]
pub(crate) struct Hosts {
    epoll: lastwords::Host,
    uring: lastwords::Host,
}

impl Hosts {
    /// Nothing yet.
    pub(crate) fn new() -> Hosts {
        Hosts { epoll: lastwords::Host::new(BackendChoice::Epoll), uring: lastwords::Host::new(BackendChoice::Uring) }
    }

    /// Does a round of a peer.
    pub(crate) fn round(&mut self, peer: Peer, work: &Work) -> Result<Done, Fail> {
        match peer {
            Peer::Lastwords => self.epoll.round(work),
            Peer::LastwordsUring => self.uring.round(work),
            Peer::Raw => raw::round(raw::Manner::Plain, work),
            Peer::RawPrio => raw::round(raw::Manner::ExitsFirst, work),
            Peer::Spin => raw::round(raw::Manner::Spin, work),
            Peer::Threads => threads::round(work),
            Peer::TokioCurrent => tokio::round(::tokio::runtime::Builder::new_current_thread(), work),
            Peer::TokioMulti => tokio::round(::tokio::runtime::Builder::new_multi_thread(), work),
        }
    }
}

/// The time that a child has left in its stdout.
fn stamp_of(stamp: Option<u64>) -> Result<u64, Fail> {
    stamp.ok_or_else(|| "a child did not leave its time: it failed before its last act".into())
}
