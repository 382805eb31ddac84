//! Carries out what the signal policy decides.

use super::event_loop::Run;
use super::signal_policy::Action;
use crate::terminal::AfterStop;
use lastwords::{Signal, StopPolicy, Stopping, host};
use std::time::Instant;

impl Run<'_> {
    pub(super) fn on_signal(&mut self, signal: Signal) {
        match self.policy.action(Instant::now(), signal) {
            Action::Nothing => {}
            Action::ToGroup(signal) => self.signal_group(signal),
            Action::ToLeader(signal) => {
                // An error means that the leader has ended: nobody is left to signal.
                let _ = self.reactor.signal_leader(self.generation, signal);
            }
            Action::Stop(signal) => self.stop(signal),
            Action::Kill => self.kill(),
            Action::CheckLeader => self.follow_leader(),
            Action::Suspend => self.suspend(),
            Action::Resume => {
                if let Some(terminal) = &mut self.terminal {
                    terminal.continued();
                }
                self.signal_group(Signal::CONT);
            }
        }
    }

    fn signal_group(&mut self, signal: Signal) {
        // An error means that the group is empty: nobody is left to signal.
        let _ = self.reactor.signal(self.generation, signal);
    }

    fn stop(&mut self, signal: Option<Signal>) {
        let policy = signal.map(|signal| {
            StopPolicy::default()
                .signal(signal)
                .grace(self.args.bounds.stop_grace)
        });
        match self.reactor.stop(self.generation, policy) {
            // A stop of the time limit or of background work is under way already.
            Stopping::Already | Stopping::Shortened => self.kill(),
            _ => {}
        }
    }

    /// Sends SIGKILL to the command. If nobody is left to kill, output that its reader does not
    /// take is thrown away, so that lastwords can end.
    fn kill(&mut self) {
        if self.reactor.kill(self.generation) == Stopping::Gone {
            for stream in self.relay.discard_buffered() {
                self.close_output(stream);
            }
        }
    }

    /// Follows the command if its leader was stopped.
    fn follow_leader(&mut self) {
        let signals = &mut self.signals;
        let Some(terminal) = &mut self.terminal else {
            return;
        };
        match terminal.follow_leader(|| signals.take(Signal::CONT)) {
            AfterStop::Nothing => {}
            AfterStop::Continue => self.signal_group(Signal::CONT),
            AfterStop::HangUp => {
                self.signal_group(Signal::HUP);
                self.signal_group(Signal::CONT);
            }
        }
    }

    /// TSTP was sent to lastwords: stops the command, then lastwords. Both go on together.
    fn suspend(&mut self) {
        // CONT ends a stop that came before it.
        if self.signals.take(Signal::CONT) {
            self.on_signal(Signal::CONT);
            return;
        }
        self.signal_group(Signal::TSTP);
        match &mut self.terminal {
            Some(terminal) => terminal.suspend(),
            None => {
                // TSTP is a valid signal.
                let _ = host::stop_self(Signal::TSTP, false);
            }
        }
        self.signals.take(Signal::CONT);
        self.signal_group(Signal::CONT);
    }
}
