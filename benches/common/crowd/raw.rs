//! The loop that one would write by hand: one epoll, a table with a list of its free places, reads
//! into one scratch buffer.

use super::{Crowd, Start, turn_for};
use crate::common::Fail;
use crate::common::child::Gate;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};
use std::process::Stdio;
use std::time::Duration;

/// Events taken at once.
const EVENTS: usize = 256;
/// Bytes of a read.
const READ: usize = 64 << 10;
/// The last two bits of an event's word: a stream's place, or this.
const EXIT: u64 = 2;

#[derive(Default)]
struct Watched {
    pidfd: Option<OwnedFd>,
    pipes: [Option<OwnedFd>; 2],
    kept: [Vec<u8>; 2],
}

impl Watched {
    fn is_over(&self) -> bool {
        self.pidfd.is_none() && self.pipes.iter().all(Option::is_none)
    }
}

pub(super) struct Raw {
    epoll: OwnedFd,
    events: Vec<Event>,
    scratch: Vec<u8>,
    table: Vec<Watched>,
    free: Vec<usize>,
    bytes: u64,
    over: usize,
}

impl Raw {
    pub(super) fn new() -> Result<Raw, Fail> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let (events, scratch) = (Vec::with_capacity(EVENTS), vec![0; READ]);
        Ok(Raw {
            epoll,
            events,
            scratch,
            table: Vec::new(),
            free: Vec::new(),
            bytes: 0,
            over: 0,
        })
    }

    fn turn(&mut self, left: Option<Duration>) -> Result<(), Fail> {
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        let left = left.map(Timespec::try_from).transpose()?;
        match epoll::wait(&self.epoll, spare_capacity(&mut events), left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            self.take(event.data.u64())?;
        }
        self.events = events;
        Ok(())
    }

    fn take(&mut self, word: u64) -> Result<(), Fail> {
        let slot = usize::try_from(word >> 2)?;
        let watched = self.table.get_mut(slot).ok_or("an event of nobody")?;
        if word & 3 == EXIT {
            let Some(pidfd) = &watched.pidfd else {
                return Ok(());
            };
            if waitid(
                WaitId::PidFd(pidfd.as_fd()),
                WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
            )?
            .is_none()
            {
                return Ok(());
            }
            // The only descriptor of it: closing it takes it out of the set.
            watched.pidfd = None;
        } else {
            let place = usize::from(word & 1 == 1);
            let Some(pipe) = &watched.pipes[place] else {
                return Ok(());
            };
            match rustix::io::read(pipe, &mut *self.scratch) {
                Ok(0) => watched.pipes[place] = None,
                Ok(n) => {
                    self.bytes += n as u64;
                    watched.kept[place].extend_from_slice(&self.scratch[..n]);
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if watched.is_over() {
            *watched = Watched::default();
            self.free.push(slot);
            self.over += 1;
        }
        Ok(())
    }
}

impl Crowd for Raw {
    fn start(&mut self, what: Start, gate: Option<&Gate>) -> Result<(), Fail> {
        let mut command = what.role.command()?;
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        for _ in 0..what.count {
            command.stdin(match gate {
                Some(gate) => Stdio::from(gate.stdin()?),
                None => Stdio::inherit(),
            });
            let mut child = command.spawn()?;
            let pid = Pid::from_raw(child.id().cast_signed()).ok_or("the child has no number")?;
            let (stdout, stderr) = child
                .stdout
                .take()
                .zip(child.stderr.take())
                .ok_or("the child has no pipes")?;
            let pipes: [OwnedFd; 2] = [stdout.into(), stderr.into()];
            let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
            let slot = self.free.pop().unwrap_or(self.table.len());
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
            epoll::add(
                &self.epoll,
                &pidfd,
                EventData::new_u64(word | EXIT),
                EventFlags::IN,
            )?;
            let watched = Watched {
                pidfd: Some(pidfd),
                pipes: pipes.map(Some),
                kept: [Vec::new(), Vec::new()],
            };
            match self.table.get_mut(slot) {
                Some(place) => *place = watched,
                None => self.table.push(watched),
            }
        }
        Ok(())
    }

    fn finish(&mut self, total: usize) -> Result<(), Fail> {
        while self.over < total {
            self.turn(None)?;
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read(&mut self, bytes: u64) -> Result<(), Fail> {
        while self.bytes < bytes {
            self.turn(None)?;
        }
        Ok(())
    }

    fn pause(&mut self, time: Duration) -> Result<(), Fail> {
        turn_for(time, |left| self.turn(Some(left)))
    }
}
