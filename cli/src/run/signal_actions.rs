//! What a signal sent to lastwords does to the command.

use super::event_loop::Run;
use crate::terminal::stop_ourselves;
use lastwords::{Signal, Stopping};
use std::time::{Duration, Instant};

/// A second INT within this time kills the command.
const REPEATED_INT: Duration = Duration::from_secs(2);

/// What is known of a stop of the command.
pub(super) struct StopState {
    /// When the time limit stops the command.
    deadline: Option<Instant>,
    /// Whether a signal has asked for a stop.
    requested: bool,
    /// When the last INT came.
    last_int: Option<Instant>,
}

impl StopState {
    pub(super) fn new(deadline: Option<Instant>) -> StopState {
        StopState {
            deadline,
            requested: false,
            last_int: None,
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Whether an INT has come at all.
    pub(super) fn was_interrupted(&self) -> bool {
        self.last_int.is_some()
    }

    fn is_under_way(&self, now: Instant) -> bool {
        self.requested || self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Notes an INT. Returns whether it repeats an earlier one.
    fn note_int(&mut self, now: Instant) -> bool {
        self.last_int
            .replace(now)
            .is_some_and(|before| now.saturating_duration_since(before) <= REPEATED_INT)
    }
}

impl Run<'_> {
    pub(super) fn on_signal(&mut self, signal: Signal) {
        let now = Instant::now();
        match signal {
            Signal::TERM if self.stop.is_under_way(now) => self.kill_now(),
            Signal::TERM => self.request_stop(),
            Signal::INT => {
                let repeated = self.stop.note_int(now);
                if repeated || self.stop.is_under_way(now) {
                    self.kill_now();
                } else if self.wait.is_active() {
                    // The command has ended. The user does not want to wait for the rest.
                    self.request_stop();
                } else {
                    self.forward_signal(signal);
                }
            }
            Signal::USR1 | Signal::USR2 => {
                // An error means that the leader has ended: nobody is left to signal.
                let _ = self.reactor.signal_leader(self.generation, signal);
            }
            Signal::CHLD => self.check_leader_stopped(),
            Signal::TSTP => self.suspend(),
            Signal::CONT => self.resume(),
            other => self.forward_signal(other),
        }
    }

    fn request_stop(&mut self) {
        self.stop.requested = true;
        match self.reactor.stop(self.generation, None) {
            // A stop of the time limit or of background work is under way already.
            Stopping::Already | Stopping::Shortened => self.kill_now(),
            _ => {}
        }
    }

    fn forward_signal(&mut self, signal: Signal) {
        // An error means that the group is empty: nobody is left to signal.
        let _ = self.reactor.signal(self.generation, signal);
    }

    /// Sends SIGKILL to the command. If nobody is left to kill, output that its reader does not
    /// take is thrown away, so that lastwords can end.
    fn kill_now(&mut self) {
        self.stop.requested = true;
        if self.reactor.kill(self.generation) == Stopping::Gone {
            for stream in self.relay.discard_buffered() {
                self.close_output(stream);
            }
        }
    }

    /// Follows the command if the keyboard has stopped it.
    fn check_leader_stopped(&mut self) {
        let signals = &self.signals;
        let Some(terminal) = &mut self.terminal else {
            return;
        };
        if terminal.follow_stop(|| signals.take(Signal::CONT)) {
            self.forward_signal(Signal::CONT);
        }
    }

    /// TSTP was sent to lastwords: stops the command, then lastwords. Both go on together.
    fn suspend(&mut self) {
        self.forward_signal(Signal::TSTP);
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back();
        }
        stop_ourselves(false);
        self.resume();
    }

    /// lastwords was continued: continues the command.
    fn resume(&mut self) {
        if let Some(terminal) = &mut self.terminal {
            terminal.continued();
        }
        self.forward_signal(Signal::CONT);
    }
}
