//! Who holds thousands of children at once. What comes from a child is kept as it is, in memory of
//! its size.

mod lastwords;
mod raw;
mod threads;
mod tokio;

use super::Fail;
use super::child::{Gate, Role};
use super::options::Choice;
use ::lastwords::BackendChoice;
use std::time::{Duration, Instant};

/// Children to be started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    /// What they do.
    pub(crate) role: Role,
    /// How many children there are.
    pub(crate) count: usize,
    /// So many may be between their clone and their exec at a time, where the peer does not wait
    /// for exec anyway.
    pub(crate) flight: usize,
}

/// Holds children: starts them, reads what they write, waits for their ends.
pub(crate) trait Crowd {
    /// Starts children, with this gate as their stdin or the host's own, and returns when all
    /// execute their program.
    fn start(&mut self, what: Start, gate: Option<&Gate>) -> Result<(), Fail>;
    /// Waits until so many have ended since the beginning, their pipes at their ends and their
    /// status known.
    fn finish(&mut self, total: usize) -> Result<(), Fail>;
    /// Bytes read so far.
    fn bytes(&self) -> u64;
    /// Reads until so many bytes have been read since the beginning.
    fn read(&mut self, bytes: u64) -> Result<(), Fail>;
    /// Sleeps in its loop.
    fn pause(&mut self, time: Duration) -> Result<(), Fail>;
}

/// Turns a loop, with the time that is left each time, until so much has passed.
fn turn_for(
    time: Duration,
    mut turn: impl FnMut(Duration) -> Result<(), Fail>,
) -> Result<(), Fail> {
    let end = Instant::now() + time;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        turn(left)?;
    }
}

/// Who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// lastwords on epoll
    Lastwords,
    /// lastwords on io_uring
    LastwordsUring,
    /// A hand-written loop on one epoll; std starts its children
    RawEpoll,
    /// tokio's `process` on its single-threaded runtime, a task for each child
    TokioCt,
    /// std, with a thread for each pipe
    StdThreads,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}

impl Kind {
    /// A loop of it.
    pub(crate) fn crowd(self) -> Result<Box<dyn Crowd>, Fail> {
        Ok(match self {
            Kind::Lastwords => Box::new(lastwords::Ours::new(BackendChoice::Epoll)?),
            Kind::LastwordsUring => Box::new(lastwords::Ours::new(BackendChoice::Uring)?),
            Kind::RawEpoll => Box::new(raw::Raw::new()?),
            Kind::TokioCt => Box::new(tokio::Tokio::new()?),
            Kind::StdThreads => Box::new(threads::Threads::default()),
        })
    }

    /// It can be had here.
    pub(crate) fn is_present(self) -> bool {
        match self {
            Kind::LastwordsUring => super::peers::has_uring(),
            Kind::Lastwords | Kind::RawEpoll | Kind::TokioCt | Kind::StdThreads => true,
        }
    }
}
