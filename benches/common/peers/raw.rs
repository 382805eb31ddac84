//! The loop one would write by hand for exactly this task: epoll, pidfds, reads straight into a
//! recycled ring.

use super::{Done, Sample, Work, stamp_of};
use crate::common::child::{Gate, Role};
use crate::common::tail::Tail;
use crate::common::{Fail, now};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};
use std::process::Stdio;

/// How a raw loop goes about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// One epoll, its events in their order.
    Plain,
    /// Exits in an epoll of their own, looked at after every read; the pipes of who has exited are
    /// drained at once.
    ExitsFirst,
    /// As `Plain`, and never sleeps.
    Spin,
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
    pidfd: OwnedFd,
    pipes: [Option<OwnedFd>; 2],
    tails: [Tail; 2],
    status: Option<u64>,
    verdict: Option<u64>,
}

struct Loop {
    manner: Manner,
    epoll: OwnedFd,
    exits: OwnedFd,
    events: Vec<Event>,
    exit_events: Vec<Event>,
    table: Vec<Option<Watched>>,
    bytes: u64,
}

pub(super) fn round(manner: Manner, work: &Work) -> Result<Done, Fail> {
    let mut this = Loop::new(manner)?;
    let gate = Gate::new()?;
    for _ in 0..work.noisy {
        this.start(Role::Noisy, Stdio::from(gate.stdin()?))?;
    }
    drop(gate);
    let mut samples = Vec::with_capacity(work.count);
    for _ in 0..work.count {
        let slot = this.start(work.role, Stdio::null())?;
        samples.push(this.until_known(slot)?);
    }
    for watched in this.table.iter().flatten() {
        pidfd_send_signal(&watched.pidfd, Signal::KILL)?;
    }
    while this
        .table
        .iter()
        .flatten()
        .any(|watched| watched.verdict.is_none())
    {
        this.turn()?;
    }
    Ok(Done {
        samples,
        bytes: this.bytes,
        own: None,
    })
}

impl Loop {
    fn new(manner: Manner) -> Result<Loop, Fail> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let exits = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        if manner == Manner::ExitsFirst {
            epoll::add(&epoll, &exits, EventData::new_u64(EXITS), EventFlags::IN)?;
        }
        let events = || Vec::with_capacity(EVENTS);
        Ok(Loop {
            manner,
            epoll,
            exits,
            events: events(),
            exit_events: events(),
            table: Vec::new(),
            bytes: 0,
        })
    }

    fn start(&mut self, role: Role, stdin: Stdio) -> Result<usize, Fail> {
        let mut child = role
            .command()?
            .stdin(stdin)
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
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        let slot = self
            .table
            .iter()
            .position(Option::is_none)
            .unwrap_or(self.table.len());
        let word = (slot as u64) << 2;
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
        epoll::add(set, &pidfd, EventData::new_u64(word | EXIT), EventFlags::IN)?;
        let watched = Watched {
            pidfd,
            pipes: pipes.map(Some),
            tails: [Tail::new(), Tail::new()],
            status: None,
            verdict: None,
        };
        match self.table.get_mut(slot) {
            Some(place) => *place = Some(watched),
            None => self.table.push(Some(watched)),
        }
        Ok(slot)
    }

    fn until_known(&mut self, slot: usize) -> Result<Sample, Fail> {
        loop {
            if let Some(Watched {
                verdict: Some(verdict),
                status: Some(status),
                tails,
                ..
            }) = &self.table[slot]
            {
                let stamp = stamp_of(tails[0].stamp())?;
                let sample = Sample {
                    status: status.saturating_sub(stamp),
                    verdict: verdict.saturating_sub(stamp),
                };
                self.table[slot] = None;
                return Ok(sample);
            }
            self.turn()?;
        }
    }

    fn turn(&mut self) -> Result<(), Fail> {
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        let nap = if self.manner == Manner::Spin {
            Some(&AT_ONCE)
        } else {
            None
        };
        match epoll::wait(&self.epoll, spare_capacity(&mut events), nap) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            let word = event.data.u64();
            if word == EXITS {
                self.look_for_exits()?;
                continue;
            }
            let slot = usize::try_from(word >> 2)?;
            match word & 3 {
                EXIT => self.exit(slot)?,
                place => {
                    self.read(slot, usize::try_from(place)?)?;
                    if self.manner == Manner::ExitsFirst {
                        self.look_for_exits()?;
                    }
                }
            }
        }
        self.events = events;
        Ok(())
    }

    /// Exits, and then what those who have exited left in their pipes.
    fn look_for_exits(&mut self) -> Result<(), Fail> {
        let mut events = std::mem::take(&mut self.exit_events);
        events.clear();
        epoll::wait(&self.exits, spare_capacity(&mut events), Some(&AT_ONCE))?;
        for event in &events {
            let slot = usize::try_from(event.data.u64() >> 2)?;
            self.exit(slot)?;
            for place in 0..2 {
                while self.read(slot, place)? {}
            }
        }
        self.exit_events = events;
        Ok(())
    }

    fn exit(&mut self, slot: usize) -> Result<(), Fail> {
        let Some(watched) = self.table.get_mut(slot).and_then(Option::as_mut) else {
            return Ok(());
        };
        let ended = waitid(
            WaitId::PidFd(watched.pidfd.as_fd()),
            WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
        )?;
        if ended.is_some() {
            watched.status = Some(now());
            let set = if self.manner == Manner::ExitsFirst {
                &self.exits
            } else {
                &self.epoll
            };
            epoll::delete(set, &watched.pidfd)?;
            watched.conclude();
        }
        Ok(())
    }

    /// One read; true if there may be more.
    fn read(&mut self, slot: usize, place: usize) -> Result<bool, Fail> {
        let Some(watched) = self.table.get_mut(slot).and_then(Option::as_mut) else {
            return Ok(false);
        };
        let (pipe, tail) = (&mut watched.pipes[place], &mut watched.tails[place]);
        let Some(fd) = pipe else { return Ok(false) };
        match rustix::io::read(&*fd, tail.space()) {
            Ok(0) => {
                // The last descriptor of the pipe's read end: closing it takes it out of the poll
                // set.
                *pipe = None;
                watched.conclude();
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

impl Watched {
    fn conclude(&mut self) {
        if self.status.is_some() && self.pipes.iter().all(Option::is_none) {
            self.verdict = Some(now());
        }
    }
}
