//! lastwords.

use super::{Crowd, Start, turn_for};
use crate::common::Fail;
use crate::common::child::Gate;
use lastwords::{BackendChoice, Event, Reactor, Stdin};
use std::time::Duration;

/// One reactor, with the defaults of the library.
pub(super) struct Ours {
    reactor: Reactor,
    started: usize,
    closed: usize,
}

impl Ours {
    pub(super) fn new(backend: BackendChoice) -> Result<Ours, Fail> {
        Ok(Ours {
            reactor: Reactor::builder().backend(backend).build()?,
            started: 0,
            closed: 0,
        })
    }

    /// Sleeps until there is an event or bytes were read, or until the deadline; then takes the
    /// events.
    fn turn(&mut self, left: Option<Duration>) -> Result<(), Fail> {
        let _turn = self.reactor.turn(left)?;
        while let Some(event) = self.reactor.next_event() {
            match event {
                Event::Started { .. } => self.started += 1,
                Event::SpawnFailed { error, .. } => return Err(error.into()),
                Event::Closed { .. } => self.closed += 1,
                _ => {}
            }
        }
        Ok(())
    }
}

impl Crowd for Ours {
    fn start(&mut self, what: Start, gate: Option<&Gate>) -> Result<(), Fail> {
        let mut command = what.role.own_command()?;
        command.stdin(match gate {
            Some(gate) => Stdin::Fd(gate.stdin()?),
            None => Stdin::Inherit,
        });
        let (mut begun, wanted) = (self.started, self.started + what.count);
        for _ in 0..what.count {
            self.reactor.start(&command)?;
            begun += 1;
            self.turn(Some(Duration::ZERO))?;
            while begun - self.started >= what.flight {
                self.turn(None)?;
            }
        }
        while self.started < wanted {
            self.turn(None)?;
        }
        Ok(())
    }

    fn finish(&mut self, total: usize) -> Result<(), Fail> {
        while self.closed < total {
            self.turn(None)?;
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.reactor.stats().bytes
    }

    fn read(&mut self, bytes: u64) -> Result<(), Fail> {
        while self.bytes() < bytes {
            self.turn(None)?;
        }
        Ok(())
    }

    fn pause(&mut self, time: Duration) -> Result<(), Fail> {
        turn_for(time, |left| self.turn(Some(left)))
    }
}
