//! One turn: wait, serve the notices, read, write, scan, and serve the timers.

use super::Reactor;
use crate::kernel::{Kernel, Until, WaitError};
use crate::lifecycle::Timer;
use crate::types::{Ns, Token, TurnError, limits};
use crate::wheel::Wheel;
use std::time::{Duration, Instant};

/// What a turn has left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a host that watches the descriptor by edges may clear its edge only after a turn that left nothing behind"]
#[non_exhaustive]
pub struct Turn {
    /// There is work that needs no notice: turn again without sleeping. While this is so,
    /// [`Reactor::next_deadline`](crate::Reactor::next_deadline) is now.
    pub more: bool,
    /// Events are waiting: take them with
    /// [`Reactor::next_event`](crate::Reactor::next_event).
    pub events: bool,
}

/// What comes due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alarm {
    /// A timer of the machines.
    Machine(Timer),
    /// Output that the host has paused withholds `Closed` no longer.
    PausedOutput,
}

/// The time, and what is timed.
pub(super) struct Clock {
    /// When the kernel was last asked. All that one wait or one read brings has the same time.
    pub(super) now: Ns,
    pub(super) timers: Wheel<(Token, Alarm)>,
    /// The deadline that the descriptor has, where it carries one.
    descriptor_deadline: Option<Ns>,
}

impl Clock {
    pub(super) fn new(now: Ns) -> Clock {
        Clock {
            now,
            timers: Wheel::new(),
            descriptor_deadline: None,
        }
    }
}

impl<K: Kernel> Reactor<K> {
    /// Does one bounded round: sleeps until there is something to do, at most `timeout` (`None`:
    /// for as long as nothing happens), does it, and says what is left. It does not sleep while
    /// events are waiting or work is left over.
    ///
    /// It makes no blocking call on behalf of a child, and allocates nothing once it is warmed up.
    /// A signal that interrupts the sleep ends the turn early; that is no error.
    ///
    /// # Errors
    ///
    /// The poll set is gone, or this is a forked copy of the host. The loop is of no use any more:
    /// drop it.
    pub fn turn(&mut self, timeout: Option<Duration>) -> Result<Turn, TurnError> {
        self.remove_closed();
        self.skip_stale_items();
        let until = if self.has_events() {
            Until::Peek
        } else {
            self.sleep_until(timeout)
        };
        self.round(until)?;
        Ok(Turn {
            more: self.has_work(),
            events: self.has_events(),
        })
    }

    /// How long a wait may sleep: not at all with work left over, else until the nearer of the
    /// deadline and the timeout.
    pub(super) fn sleep_until(&mut self, timeout: Option<Duration>) -> Until {
        if self.has_work() || timeout == Some(Duration::ZERO) {
            return Until::Peek;
        }
        let asked = timeout.map(|t| self.kernel.now().after(Ns::from(t)));
        match [self.deadline(), asked].into_iter().flatten().min() {
            Some(at) => Until::At(at),
            None => Until::Forever,
        }
    }

    /// One round. A panic of the host's own code goes on only after it, when the loop is
    /// consistent.
    pub(super) fn round(&mut self, until: Until) -> Result<(), TurnError> {
        let done = self.whole_round(until);
        if let Some(panic) = self.outbox.panic.take() {
            panic.resume();
        }
        done
    }

    fn whole_round(&mut self, until: Until) -> Result<(), TurnError> {
        self.stats.turns += 1;
        self.io.read_out_budget = limits::LAST_READ_BYTES;
        let events = self.outbox.lifecycle_events;
        self.wait_and_serve(until)?;
        self.resume_read_outs();
        self.read_ready(events)?;
        self.write_stdins();
        self.scan_slice();
        // With notices left behind, bytes may be there that a timer must not overtake.
        if !self.notices.more {
            while let Some((token, alarm)) = self.clock.timers.expire(self.clock.now) {
                match alarm {
                    Alarm::Machine(timer) => self.timer_due(token, timer),
                    Alarm::PausedOutput => self.paused_output_due(token),
                }
            }
        }
        self.update_deadline_fd();
        Ok(())
    }

    /// Waits, then serves what the kernel says: outcomes and exits first.
    pub(super) fn wait_and_serve(&mut self, until: Until) -> Result<(), TurnError> {
        let waited = self.kernel.wait(until, &mut self.notices);
        self.clock.now = self.kernel.now();
        waited.map_err(turn_error)?;
        self.serve_notices();
        Ok(())
    }

    /// The same between two reads, without sleeping. The time stays that of the last read: a look
    /// costs a tenth of a microsecond, and asking for the time as much.
    pub(super) fn poll_nonblocking(&mut self) -> Result<(), TurnError> {
        self.kernel
            .wait(Until::Peek, &mut self.notices)
            .map_err(turn_error)?;
        self.serve_notices();
        Ok(())
    }

    fn serve_notices(&mut self) {
        for place in 0..self.notices.len() {
            if let Some(notice) = self.notices.as_slice().get(place).copied() {
                self.serve_notice(notice);
            }
        }
    }

    /// There is work that needs no notice.
    fn has_work(&self) -> bool {
        !self.io.is_empty()
            || self.scans.is_active()
            || self.notices.more
            || (self.clock.timers.next_deadline()).is_some_and(|at| at <= self.clock.now)
    }

    fn deadline(&self) -> Option<Ns> {
        [self.clock.timers.next_deadline(), self.kernel.deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    /// When the next turn is due even if the descriptor stays silent: now, if work was left over;
    /// `None` if nothing is timed.
    ///
    /// Every call that changes a generation ([`Reactor::start`], [`Reactor::stop`],
    /// [`Reactor::feed`], ...) may bring this nearer: ask again after it. Waiting events do not
    /// count ([`Reactor::has_events`] tells them).
    pub fn next_deadline(&self) -> Option<Instant> {
        let at = if self.has_work() {
            self.clock.now
        } else {
            self.deadline()?
        };
        let origin = self.kernel.origin();
        Some(origin.checked_add(at.to_duration()).unwrap_or(origin))
    }

    /// Gives the deadline to the descriptor, if that was asked for and it has changed.
    pub(super) fn update_deadline_fd(&mut self) {
        if !self.settings.fold_deadline {
            return;
        }
        let at = if self.has_work() {
            Some(self.clock.now)
        } else {
            self.deadline()
        };
        if at != self.clock.descriptor_deadline {
            self.clock.descriptor_deadline = at;
            self.kernel.alarm(at);
        }
    }
}

/// Why the loop is of no use any more.
pub(super) fn turn_error(error: WaitError) -> TurnError {
    match error {
        WaitError::Failed(errno) => {
            TurnError::new("wait for the children's pipes and exits", Some(errno))
        }
        WaitError::Forked => TurnError::new("turn a loop in a forked copy of the host", None),
    }
}
