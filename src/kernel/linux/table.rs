//! The table: slot -> what the kernel object has of a generation. The sequence in a token decides
//! whether it is still meant.

use super::containment::ContainmentState;
use super::containment::cgroup::Cgroup;
use super::poll::Poller;
use super::process::identity::ProcessIdentity;
use super::process::leader::{ExitWatch, LeaderState};
use super::process::pidfd::ChildRef;
use super::procfs::Inode;
use super::spawn::Pending;
use crate::types::{ExitInfo, SpawnError, Token, What};
use std::os::fd::{AsFd, OwnedFd};

/// How the spawn goes.
#[derive(Debug)]
pub(crate) enum Birth {
    /// Not known yet; the child may still be using memory of ours.
    UnderWay(Box<Pending>),
    /// exec has succeeded.
    Started,
    /// A step failed.
    Failed(SpawnError),
}

/// Our end of an output pipe.
#[derive(Debug)]
pub(crate) struct Reader {
    /// Non-blocking.
    pub fd: OwnedFd,
    /// The poll set has said that nobody can write any more.
    pub hung_up: bool,
    /// It was read to its end: nobody is left who could tell whether our end is still open.
    pub ended: bool,
    /// Of a socket, the inode of the other end; 0 for a pipe, whose ends have one inode. (The
    /// kernel's numbers for both have 32 bits.)
    pub peer: u32,
}

impl Reader {
    /// It is a socket.
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
    /// Tells it from the slot's other users.
    pub sequence: u32,
    /// The leader's number, and its group's.
    pub pid: u32,
    /// The session that it was born into.
    pub session: u32,
    /// Kept open until the release: it reaches the group after the leader was reaped.
    pub pidfd: Option<OwnedFd>,
    /// How the spawn goes.
    pub birth: Birth,
    /// How far the leader's life is known to have come.
    pub leader: LeaderState,
    /// How the leader's exit is noticed.
    pub watch: ExitWatch,
    /// How the leader ended, if that is known.
    pub exit: Option<ExitInfo>,
    /// The host's own peak memory in KiB at the spawn.
    pub host_peak: u64,
    /// By [`crate::types::Stream::index`].
    pub readers: [Option<Reader>; 2],
    /// Our end of a fed stdin.
    pub stdin: Option<OwnedFd>,
    /// Members in the poll set, by place.
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

    /// Takes the leader out of the poll set; its descriptor stays.
    pub(crate) fn unwatch_exit(&mut self, poller: &mut Poller) {
        if let (ExitWatch::Pidfd, Some(pidfd)) = (self.watch, &self.pidfd) {
            poller.remove(pidfd.as_fd());
        }
        self.watch = ExitWatch::Off;
    }

    /// Gives up the place of a watched member. `None` if it was empty.
    pub(crate) fn unwatch_member(&mut self, place: u8, poller: &mut Poller) -> Option<OwnedFd> {
        let at = self.watched.iter().position(|(p, _)| *p == place)?;
        let (_, fd) = self.watched.swap_remove(at);
        poller.remove(fd.as_fd());
        Some(fd)
    }

    /// The cgroup, if it has one.
    pub(crate) fn cgroup(&self) -> Option<&Cgroup> {
        self.containment
            .as_deref()
            .and_then(ContainmentState::cgroup)
    }

    /// Takes everything of it out of the poll set. What is closed afterwards is closed for good,
    /// whoever has a copy.
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
        poller.settle();
    }
}

/// All rows.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Option<Row>>,
}

impl Table {
    /// How many places there are, used or not.
    pub(crate) fn places(&self) -> usize {
        self.rows.len()
    }

    /// The row in a place, whoever's it is.
    pub(crate) fn at(&mut self, place: usize) -> Option<&mut Row> {
        self.rows.get_mut(place)?.as_mut()
    }

    /// Makes sure that [`Table::put`] for this token cannot fail for want of memory. `false` if it
    /// can.
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

    /// Puts a row in. An older row in the same place is returned.
    pub(crate) fn put(&mut self, token: Token, row: Row) -> Option<Row> {
        if !self.reserve(token) {
            return Some(row);
        }
        self.rows
            .get_mut(token.slot().0 as usize)
            .and_then(|place| place.replace(row))
    }

    /// The row that a token means, unless it is stale.
    pub(crate) fn get(&self, token: Token) -> Option<&Row> {
        self.rows
            .get(token.slot().0 as usize)?
            .as_ref()
            .filter(|row| row.sequence == token.sequence())
    }

    /// The same, to be changed.
    pub(crate) fn get_mut(&mut self, token: Token) -> Option<&mut Row> {
        self.rows
            .get_mut(token.slot().0 as usize)?
            .as_mut()
            .filter(|row| row.sequence == token.sequence())
    }

    /// Our end of the output pipe that a token means, unless it is stale or closed.
    pub(crate) fn reader_at(&self, token: Token) -> Option<&Reader> {
        let What::Output(stream) = token.what() else {
            return None;
        };
        self.get(token)?.readers.get(stream.index())?.as_ref()
    }

    /// The same, to be changed.
    pub(crate) fn reader(&mut self, token: Token) -> Option<&mut Reader> {
        let What::Output(stream) = token.what() else {
            return None;
        };
        self.get_mut(token)?
            .readers
            .get_mut(stream.index())?
            .as_mut()
    }

    /// Takes the row out, unless the token is stale.
    pub(crate) fn take(&mut self, token: Token) -> Option<Row> {
        self.rows
            .get_mut(token.slot().0 as usize)?
            .take_if(|row| row.sequence == token.sequence())
    }

    /// All rows there are.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().flatten()
    }
}

/// An idle child is to cost at most half a KiB in all, of which this is one part.
const _: () = assert!(size_of::<Option<Row>>() <= 200);
