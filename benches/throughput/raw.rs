//! The loops one would write by hand for exactly this: epoll, pidfds, reads straight into a
//! recycled ring.

use super::peers::Work;
use crate::common::Fail;
use crate::common::tail::Tail;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};
use std::process::{Child, Stdio};

/// How a loop goes about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// One epoll, its events in their order, one read each.
    Plain,
    /// Exits in an epoll of their own, looked at after every read; the pipes of who has exited are
    /// drained at once.
    ExitsFirst,
    /// As `Plain`, with reads until there is nothing left, at most 32.
    Many,
}

/// Events taken at once.
const EVENTS: usize = 256;
/// The last two bits of an event's word: a stream's place, or this.
const EXIT: u64 = 2;
/// The word of the epoll of the exits.
const EXITS: u64 = u64::MAX;
const AT_ONCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

struct Watched {
    pidfd: Option<OwnedFd>,
    pipes: [Option<OwnedFd>; 2],
    tails: [Tail; 2],
}

struct Loop {
    manner: Manner,
    epoll: OwnedFd,
    exits: OwnedFd,
    table: Vec<Watched>,
    /// Children without a pidfd (valgrind knows none): waited for at the end.
    others: Vec<Child>,
    /// Pipes and pidfds that are open.
    open: usize,
    bytes: u64,
}

pub(super) fn round(manner: Manner, work: &Work) -> Result<u64, Fail> {
    let (epoll, exits) = (
        epoll::create(epoll::CreateFlags::CLOEXEC)?,
        epoll::create(epoll::CreateFlags::CLOEXEC)?,
    );
    if manner == Manner::ExitsFirst {
        epoll::add(&epoll, &exits, EventData::new_u64(EXITS), EventFlags::IN)?;
    }
    let mut this = Loop {
        manner,
        epoll,
        exits,
        table: Vec::with_capacity(work.children),
        others: Vec::new(),
        open: 0,
        bytes: 0,
    };
    for _ in 0..work.children {
        this.start(work)?;
    }
    let (mut events, mut exited) = (Vec::with_capacity(EVENTS), Vec::with_capacity(EVENTS));
    while this.open > 0 {
        this.turn(&mut events, &mut exited)?;
    }
    for child in &mut this.others {
        child.wait()?;
    }
    Ok(this.bytes)
}

impl Loop {
    fn start(&mut self, work: &Work) -> Result<(), Fail> {
        let mut child = work
            .role
            .command()?
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let pid = Pid::from_raw(child.id().cast_signed()).ok_or("the child has no number")?;
        let (stdout, stderr) = child
            .stdout
            .take()
            .zip(child.stderr.take())
            .ok_or("the child has no pipes")?;
        let pipes: [OwnedFd; 2] = [stdout.into(), stderr.into()];
        let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => Some(pidfd),
            Err(Errno::NOSYS) => None,
            Err(error) => return Err(error.into()),
        };
        let word = (self.table.len() as u64) << 2;
        for (place, pipe) in (0..).zip(&pipes) {
            ioctl_fionbio(pipe, true)?;
            epoll::add(
                &self.epoll,
                pipe,
                EventData::new_u64(word | place),
                EventFlags::IN,
            )?;
        }
        let set = if self.manner == Manner::ExitsFirst {
            &self.exits
        } else {
            &self.epoll
        };
        self.open += 2;
        match &pidfd {
            Some(pidfd) => {
                epoll::add(set, pidfd, EventData::new_u64(word | EXIT), EventFlags::IN)?;
                self.open += 1;
            }
            None => self.others.push(child),
        }
        self.table.push(Watched {
            pidfd,
            pipes: pipes.map(Some),
            tails: [Tail::new(), Tail::new()],
        });
        Ok(())
    }

    fn turn(&mut self, events: &mut Vec<Event>, exited: &mut Vec<Event>) -> Result<(), Fail> {
        wait(&self.epoll, events, None)?;
        for event in events.iter() {
            let word = event.data.u64();
            if word == EXITS {
                self.look_for_exits(exited)?;
                continue;
            }
            let slot = usize::try_from(word >> 2)?;
            if word & 3 == EXIT {
                self.exit(slot)?;
                continue;
            }
            let place = usize::try_from(word & 3)?;
            let reads = if self.manner == Manner::Many { 32 } else { 1 };
            for _ in 0..reads {
                if !self.read(slot, place)? {
                    break;
                }
            }
            if self.manner == Manner::ExitsFirst {
                self.look_for_exits(exited)?;
            }
        }
        Ok(())
    }

    /// Exits, and then what those who have exited left in their pipes.
    fn look_for_exits(&mut self, exited: &mut Vec<Event>) -> Result<(), Fail> {
        wait(&self.exits, exited, Some(&AT_ONCE))?;
        for event in exited.iter() {
            let slot = usize::try_from(event.data.u64() >> 2)?;
            self.exit(slot)?;
            for place in 0..2 {
                while self.read(slot, place)? {}
            }
        }
        Ok(())
    }

    fn exit(&mut self, slot: usize) -> Result<(), Fail> {
        let Some(pidfd) = &self.table[slot].pidfd else {
            return Ok(());
        };
        if waitid(
            WaitId::PidFd(pidfd.as_fd()),
            WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
        )?
        .is_some()
        {
            // Its last descriptor: closing it takes it out of the poll set.
            self.table[slot].pidfd = None;
            self.open -= 1;
        }
        Ok(())
    }

    /// One read; true if there may be more.
    fn read(&mut self, slot: usize, place: usize) -> Result<bool, Fail> {
        let watched = &mut self.table[slot];
        let (pipe, tail) = (&mut watched.pipes[place], &mut watched.tails[place]);
        let Some(fd) = pipe else { return Ok(false) };
        match rustix::io::read(&*fd, tail.space()) {
            Ok(0) => {
                *pipe = None;
                self.open -= 1;
                Ok(false)
            }
            Ok(n) => {
                tail.took(n);
                self.bytes += n as u64;
                Ok(true)
            }
            Err(Errno::AGAIN) => Ok(false),
            Err(Errno::INTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }
}

fn wait(set: &OwnedFd, events: &mut Vec<Event>, nap: Option<&Timespec>) -> Result<(), Fail> {
    events.clear();
    match epoll::wait(set, spare_capacity(events), nap) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
