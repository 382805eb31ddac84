//! Who is measured. Every peer does the same: starts a number of children that make noise, then
//! runs quiet ones among them, one after another, and says for each how long after its last act
//! everything about it was known: both pipes at their end, and the status. All keep the newest 2
//! MiB of each stream.

mod async_process;
mod foreign;
mod lastwords;
mod raw;
mod threads;
mod tokio;

pub(crate) use self::lastwords::has_uring;

use super::Fail;
use super::child::Role;
use super::options::Choice;
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
    /// When its status was known.
    pub(crate) status: u64,
    /// When pipes and status were all known.
    pub(crate) verdict: u64,
}

/// What a round came to.
#[derive(Debug, Default)]
pub(crate) struct Done {
    /// One for each measured child.
    pub(crate) samples: Vec<Sample>,
    /// Bytes read, of all children.
    pub(crate) bytes: u64,
    /// What it has cost, of a peer in a process of its own.
    pub(crate) own: Option<Cost>,
}

/// What a round has cost in a process of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// CPU time, in nanoseconds.
    pub(crate) cpu: u64,
    /// From its beginning to its end, in nanoseconds.
    pub(crate) wall: u64,
    /// The largest resident memory, in bytes.
    pub(crate) resident: u64,
}

/// Someone who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Peer {
    /// lastwords on epoll
    Lastwords,
    /// lastwords on io_uring
    LastwordsUring,
    /// A hand-written loop on one epoll, one read per event, in the order of the events
    RawEpoll,
    /// The same, with the pidfds in an epoll of their own that is looked at after every read; who
    /// has exited is drained at once
    RawPrio,
    /// The first one, never sleeping
    Spin,
    /// std, with a thread for each pipe
    StdThreads,
    /// tokio's `process` on its single-threaded runtime
    TokioCt,
    /// tokio's `process` on its multi-threaded runtime
    TokioMt,
    /// async-process on one thread
    AsyncProcess,
    /// Go's `os/exec`, a goroutine for each pipe
    Go,
    /// Node's `child_process`
    Node,
    /// Python's `asyncio`
    Python,
    /// libuv, from C
    Libuv,
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}

impl Peer {
    /// Measured when nobody says who: all in this language that sleep, and io_uring only where the
    /// kernel offers it.
    pub(crate) fn by_default(self) -> bool {
        match self {
            Peer::Spin => false,
            Peer::LastwordsUring => lastwords::has_uring(),
            Peer::Lastwords
            | Peer::RawEpoll
            | Peer::RawPrio
            | Peer::StdThreads
            | Peer::TokioCt
            | Peer::TokioMt
            | Peer::AsyncProcess => true,
            Peer::Go | Peer::Node | Peer::Python | Peer::Libuv => false,
        }
    }

    /// It is a program in another language.
    pub(crate) const fn is_foreign(self) -> bool {
        matches!(self, Peer::Go | Peer::Node | Peer::Python | Peer::Libuv)
    }
}

/// What peers keep from round to round: reactors. (The rings of the others are kept in `tail.rs`.)
#[derive(Debug)]
pub(crate) struct Hosts {
    epoll: lastwords::Host,
    uring: lastwords::Host,
    foreign: foreign::Foreign,
}

impl Hosts {
    /// No peer process has been started.
    pub(crate) fn new() -> Hosts {
        Hosts {
            epoll: lastwords::Host::new(BackendChoice::Epoll),
            uring: lastwords::Host::new(BackendChoice::Uring),
            foreign: foreign::Foreign::default(),
        }
    }

    /// Who of these can be measured here: says of the programs in other languages which are absent,
    /// and why.
    pub(crate) fn present(&mut self, peers: Vec<Peer>) -> Vec<Peer> {
        let mut present = peers;
        present.retain(|peer| {
            let absent = if peer.is_foreign() {
                self.foreign.make(*peer).err()
            } else {
                None
            };
            if let Some(why) = &absent {
                println!("* {peer} is absent: {why}");
            }
            absent.is_none()
        });
        present
    }

    /// Does a round of a peer.
    pub(crate) fn round(&mut self, peer: Peer, work: &Work) -> Result<Done, Fail> {
        match peer {
            Peer::Lastwords => self.epoll.round(work),
            Peer::LastwordsUring => self.uring.round(work),
            Peer::RawEpoll => raw::round(raw::Manner::Plain, work),
            Peer::RawPrio => raw::round(raw::Manner::ExitsFirst, work),
            Peer::Spin => raw::round(raw::Manner::Spin, work),
            Peer::StdThreads => threads::round(work),
            Peer::TokioCt => tokio::round(::tokio::runtime::Builder::new_current_thread(), work),
            Peer::TokioMt => tokio::round(::tokio::runtime::Builder::new_multi_thread(), work),
            Peer::AsyncProcess => async_process::round(work),
            Peer::Go | Peer::Node | Peer::Python | Peer::Libuv => self.foreign.round(peer, work),
        }
    }
}

/// The time that a child has left in its stdout.
fn stamp_of(stamp: Option<u64>) -> Result<u64, Fail> {
    stamp.ok_or_else(|| "a child did not leave its time: it failed before its last act".into())
}
