//! The table of generations: what the kernel object has of each, by slot. A token whose sequence
//! differs from the row's is stale.

use super::containment::ContainmentState;
use super::containment::cgroup::Cgroup;
use super::poll::Poller;
use super::process::identity::ProcessIdentity;
use super::process::leader::{ExitWatch, LeaderState};
use super::process::pidfd::ChildRef;
use super::procfs::Inode;
use super::spawn::PendingSpawn;
use crate::types::{ExitInfo, SpawnError, Token, TokenKind};
use std::os::fd::{AsFd, OwnedFd};

/// Whether the child has executed its program.
#[derive(Debug)]
pub(crate) enum SpawnState {
    /// Not known yet. The child may still be using memory of the host.
    Pending(Box<PendingSpawn>),
    /// exec has succeeded, or the child was killed before it.
    Started,
    /// A step failed.
    Failed(SpawnError),
}

/// The host's end of an output pipe.
#[derive(Debug)]
pub(crate) struct Reader {
    /// Its file is non-blocking.
    pub fd: OwnedFd,
    /// The poll set has reported that no write end is open.
    pub hung_up: bool,
    /// It was read to end of file, so nobody can tell whether it is still open.
    pub ended: bool,
    /// For a socket, the inode of the other end; 0 for a pipe, both ends of which have the same
    /// inode. (Inode numbers of both kinds have 32 bits.)
    pub peer: u32,
}

impl Reader {
    /// True for a socket, false for a pipe.
    pub(crate) fn is_socket(&self) -> bool {
        self.peer != 0
    }

    /// What the holders of the write end have open; `None` if fstat(2) fails.
    pub(crate) fn inode(&self) -> Option<Inode> {
        if self.is_socket() {
            return Some(Inode::Socket(u64::from(self.peer)));
        }
        rustix::fs::fstat(&self.fd)
            .ok()
            .map(|stat| Inode::Pipe(stat.st_ino))
    }
}

/// What the kernel object has of one generation.
#[derive(Debug)]
pub(crate) struct Row {
    /// Tells this generation from others that use the same slot.
    pub sequence: u32,
    /// The leader's pid, which is also the number of its group.
    pub pid: u32,
    /// The session in which it was started.
    pub session: u32,
    /// Open until the release, because it reaches the group after the leader was reaped.
    pub pidfd: Option<OwnedFd>,
    /// Whether the child has executed its program.
    pub spawn: SpawnState,
    /// How far the leader's life is known to have come.
    pub leader: LeaderState,
    /// How the leader's exit is noticed.
    pub watch: ExitWatch,
    /// How the leader ended, if that is known.
    pub exit: Option<ExitInfo>,
    /// The host's own peak memory at the spawn, in KiB.
    pub host_peak: u64,
    /// The output pipes, by [`crate::types::Stream::index`].
    pub readers: [Option<Reader>; 2],
    /// The write end of a stdin that the loop feeds.
    pub stdin: Option<OwnedFd>,
    /// Pidfds of members in the poll set, with the place that their token names.
    pub watched: Vec<(u8, OwnedFd)>,
    /// Members that the last complete scan has found. They are signalled one by one where the
    /// group flag is missing, or where they can be outside the group.
    pub known: Vec<ProcessIdentity>,
    /// The containment, beside the process group.
    pub containment: Option<Box<ContainmentState>>,
}

impl Row {
    /// The leader, as waitid(2) takes it.
    pub(crate) fn child_ref(&self) -> ChildRef<'_> {
        ChildRef {
            pid: self.pid,
            pidfd: self.pidfd.as_ref().map(AsFd::as_fd),
        }
    }

    /// Takes the leader out of the poll set. Its pidfd stays open.
    pub(crate) fn unwatch_exit(&mut self, poller: &mut Poller) {
        if let (ExitWatch::Pidfd, Some(pidfd)) = (self.watch, &self.pidfd) {
            poller.remove(pidfd.as_fd());
        }
        self.watch = ExitWatch::Off;
    }

    /// Ends the watch of a member and returns its pidfd; `None` if there is none in that place.
    pub(crate) fn unwatch_member(&mut self, place: u8, poller: &mut Poller) -> Option<OwnedFd> {
        let at = self.watched.iter().position(|(p, _)| *p == place)?;
        let (_, fd) = self.watched.swap_remove(at);
        poller.remove(fd.as_fd());
        Some(fd)
    }

    /// The generation's cgroup, if it has one.
    pub(crate) fn cgroup(&self) -> Option<&Cgroup> {
        self.containment
            .as_deref()
            .and_then(ContainmentState::cgroup)
    }

    /// Takes every descriptor of the row out of the poll set.
    pub(crate) fn unwatch_all(&mut self, poller: &mut Poller) {
        self.unwatch_exit(poller);
        for (_, fd) in self.watched.drain(..) {
            poller.remove(fd.as_fd());
        }
        if let Some(cgroup) = self.cgroup() {
            poller.remove(cgroup.events());
        }
        for fd in self
            .readers
            .iter()
            .flatten()
            .map(|reader| &reader.fd)
            .chain(&self.stdin)
        {
            poller.remove(fd.as_fd());
        }
    }
}

/// The rows, by slot.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Option<Row>>,
}

impl Table {
    /// The number of places, used or not.
    pub(crate) fn places(&self) -> usize {
        self.rows.len()
    }

    /// The row in a place, whatever its sequence.
    pub(crate) fn at(&mut self, place: usize) -> Option<&mut Row> {
        self.rows.get_mut(place)?.as_mut()
    }

    /// Allocates the place for this token, so that [`Table::put`] cannot fail. False if there is no
    /// memory.
    pub(crate) fn reserve(&mut self, token: Token) -> bool {
        let place = token.slot().0 as usize;
        if place < self.rows.len() {
            return true;
        }
        if self.rows.try_reserve(place + 1 - self.rows.len()).is_err() {
            return false;
        }
        self.rows.resize_with(place + 1, || None);
        true
    }

    /// Inserts a row, and returns an older row from the same place.
    pub(crate) fn put(&mut self, token: Token, row: Row) -> Option<Row> {
        if !self.reserve(token) {
            return Some(row);
        }
        self.rows
            .get_mut(token.slot().0 as usize)
            .and_then(|place| place.replace(row))
    }

    /// The row of a token; `None` if the token is stale.
    pub(crate) fn get(&self, token: Token) -> Option<&Row> {
        self.rows
            .get(token.slot().0 as usize)?
            .as_ref()
            .filter(|row| row.sequence == token.sequence())
    }

    /// As [`Table::get`], mutable.
    pub(crate) fn get_mut(&mut self, token: Token) -> Option<&mut Row> {
        self.rows
            .get_mut(token.slot().0 as usize)?
            .as_mut()
            .filter(|row| row.sequence == token.sequence())
    }

    /// The output pipe of a token; `None` if the token is stale or the pipe is closed.
    pub(crate) fn reader_at(&self, token: Token) -> Option<&Reader> {
        let TokenKind::Output(stream) = token.kind() else {
            return None;
        };
        self.get(token)?.readers.get(stream.index())?.as_ref()
    }

    /// As [`Table::reader_at`], mutable.
    pub(crate) fn reader(&mut self, token: Token) -> Option<&mut Reader> {
        let TokenKind::Output(stream) = token.kind() else {
            return None;
        };
        self.get_mut(token)?
            .readers
            .get_mut(stream.index())?
            .as_mut()
    }

    /// Removes the row of a token; `None` if the token is stale.
    pub(crate) fn take(&mut self, token: Token) -> Option<Row> {
        self.rows
            .get_mut(token.slot().0 as usize)?
            .take_if(|row| row.sequence == token.sequence())
    }

    /// All rows, in the order of their slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().flatten()
    }
}

// An idle child costs at most half a KiB of memory in all; the row is one part of that.
const _: () = assert!(size_of::<Option<Row>>() <= 200);
