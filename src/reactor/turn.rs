//! One turn.

use super::{Reactor, Turn};
use crate::kernel::{Kernel, Until, WaitError};
use crate::lifecycle::{Input, Timer};
use crate::types::{Ns, TurnError, limits};
use std::time::{Duration, Instant};

impl<K: Kernel> Reactor<K> {
    /// Does one bounded round: sleeps until there is something to do, at most `timeout` (`None`:
    /// for as long as nothing happens), serves it, and says what it left behind. It never
    /// sleeps while events are waiting or work is left over.
    ///
    /// It makes no blocking call on behalf of a child, and allocates nothing once it is warmed up.
    ///
    /// # Errors
    ///
    /// The poll set is gone, or this is a forked copy of the host: the loop is of no use any more.
    pub fn turn(&mut self, timeout: Option<Duration>) -> Result<Turn, TurnError> {
        self.reclaim();
        self.settle_front();
        let until = if self.has_events() {
            Until::Peek
        } else {
            self.until(timeout)
        };
        self.round(until)?;
        Ok(Turn {
            more: self.has_work(),
            events: self.has_events(),
        })
    }

    /// How long a wait may sleep: not at all with work left over, else until the nearer of the
    /// deadline and the timeout.
    pub(super) fn until(&mut self, timeout: Option<Duration>) -> Until {
        if self.has_work() || timeout == Some(Duration::ZERO) {
            return Until::Peek;
        }
        let asked = timeout.map(|t| self.kernel.now().after(Ns::from(t)));
        match [self.deadline(), asked].into_iter().flatten().min() {
            Some(at) => Until::At(at),
            None => Until::Forever,
        }
    }

    pub(super) fn round(&mut self, until: Until) -> Result<(), TurnError> {
        let done = self.whole_round(until);
        // Not before everything is as it has to be.
        if let Some(panic) = self.panic.take() {
            panic.resume();
        }
        done
    }

    fn whole_round(&mut self, until: Until) -> Result<(), TurnError> {
        self.stats.turns += 1;
        self.sweep_budget = limits::LAST_READ_BYTES;
        let tellings = self.tellings;
        self.look(until)?;
        self.resume_sweeps();
        self.read_running(tellings)?;
        self.write_stdins();
        self.errand_slice();
        if !self.notices.more {
            self.serve_timers();
        }
        self.fold();
        Ok(())
    }

    /// Waits, then serves what the kernel says: outcomes and exits first.
    pub(super) fn look(&mut self, until: Until) -> Result<(), TurnError> {
        let waited = self.kernel.wait(until, &mut self.notices);
        self.now = self.kernel.now();
        waited.map_err(wait_failed)?;
        self.serve_notices();
        Ok(())
    }

    /// The same between two reads, without sleeping. The time is that of the last read: a look
    /// costs a tenth of a microsecond, and asking for the time as much.
    pub(super) fn glance(&mut self) -> Result<(), TurnError> {
        self.kernel
            .wait(Until::Peek, &mut self.notices)
            .map_err(wait_failed)?;
        self.serve_notices();
        Ok(())
    }

    fn serve_notices(&mut self) {
        for place in 0..self.notices.len() {
            if let Some(notice) = self.notices.as_slice().get(place).copied() {
                self.serve(notice);
            }
        }
    }

    fn serve_timers(&mut self) {
        while let Some((token, timer)) = self.wheel.expire(self.now) {
            match self.find(token) {
                Some(key) => {
                    self.table[key].take_timer(timer);
                    if timer == Timer::RunLimit {
                        // The leader is asked first: one that was already dead is not stopped (its
                        // notice may be late: SIGCHLD).
                        self.ask_exit(key);
                    }
                    if !self.table[key].lifecycle.is_closed() {
                        self.feed_input(key, Input::Due(timer));
                    }
                }
                None => self.stats.stale += 1,
            }
        }
    }

    /// There is work that needs no notice.
    pub(super) fn has_work(&self) -> bool {
        !self.ready.is_empty()
            || !self.sweeps.is_empty()
            || !self.writers.is_empty()
            || self.errand.is_active()
            || self.notices.more
            || self.wheel.next_deadline().is_some_and(|at| at <= self.now)
    }

    fn deadline(&self) -> Option<Ns> {
        [self.wheel.next_deadline(), self.kernel.deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    /// When the next turn is due even if the descriptor stays silent: now, if work was left over;
    /// `None` if nothing is timed.
    ///
    /// Waiting events are the host's to ask for and do not count ([`Reactor::has_events`]).
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.has_work() {
            return Some(self.instant(self.now));
        }
        self.deadline().map(|at| self.instant(at))
    }

    /// Folds the deadline into the descriptor, if that was asked for and it has changed.
    pub(super) fn fold(&mut self) {
        if !self.settings.fold_deadline {
            return;
        }
        let at = if self.has_work() {
            Some(self.now)
        } else {
            self.deadline()
        };
        if at != self.alarm {
            self.alarm = at;
            self.kernel.alarm(at);
        }
    }
}

/// The loop's own end, in words.
pub(super) fn wait_failed(error: WaitError) -> TurnError {
    match error {
        WaitError::Failed(errno) => {
            TurnError::new("wait for the children's pipes and exits", Some(errno))
        }
        WaitError::Forked => TurnError::new("turn a loop in a forked copy of the host", None),
    }
}
