//! Running one command to its end, and the end of the loop itself.

use super::{Event, Reactor};
use crate::capture::Captured;
use crate::command::Command;
use crate::kernel::{Kernel, Until};
use crate::lifecycle::Input;
use crate::report::Report;
use crate::types::{CollectMode, Ns, RunError, StopPolicy, Stream, TokenKind};

/// A command that was run to its end.
#[derive(Debug)]
#[non_exhaustive]
pub struct Finished {
    /// The whole truth.
    pub report: Report,
    /// What was kept of stdout, if it was captured.
    pub stdout: Option<Captured>,
    /// What was kept of stderr, if it was captured.
    pub stderr: Option<Captured>,
}

/// What [`Reactor::shutdown`] came to.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Leftovers {
    /// The reports of all that were not closed before, in the order in which they closed.
    pub reports: Vec<Report>,
}

impl Leftovers {
    /// Everything that was stopped has ended.
    pub fn is_empty(&self) -> bool {
        self.reports.iter().all(|report| {
            report
                .stop
                .as_ref()
                .is_none_or(|stop| stop.stuck.is_empty())
        })
    }
}

impl<K: Kernel> Reactor<K> {
    /// Runs a command to its end and gives back its report and what was kept. Nothing of it is
    /// delivered as an event; other generations go on meanwhile, and their events wait.
    ///
    /// # Errors
    ///
    /// It could not be started, or the loop failed.
    pub fn run(&mut self, command: &Command) -> Result<Finished, RunError> {
        let generation = self.spawn(&command.undelivered())?;
        while let Some(key) = self.own(generation) {
            if self.table[key].lifecycle.is_closed() {
                self.kernel.close_deferred();
                let report = self.report(key);
                let take = |this: &mut Self, stream| this.take(generation, stream);
                let (stdout, stderr) = (take(self, Stream::Stdout), take(self, Stream::Stderr));
                self.queue
                    .retain(|item| item.token().with(TokenKind::Spawn) != generation.token());
                self.remove(key);
                self.fold();
                return Ok(Finished {
                    report,
                    stdout,
                    stderr,
                });
            }
            let until = self.until(None);
            self.round(until)?;
        }
        Err(RunError::Turn(crate::types::TurnError::new(
            "run a command whose generation was taken away",
            None,
        )))
    }

    /// Ends well: stops everything (`None`: each with its own policy), and turns until all is
    /// closed or known to be stuck. Undelivered output is given up.
    pub fn shutdown(mut self, policy: Option<StopPolicy>) -> Leftovers {
        let mut leftovers = Leftovers::default();
        self.stop_all(policy);
        for (_, entry) in &mut self.table {
            entry.settle_words(entry.run.words_from());
            for stream in Stream::ALL {
                if let Some(channel) = entry.heard(stream, &mut self.boxes) {
                    channel.captured.stop_delivery();
                }
            }
        }
        while let Ok(Some(event)) = self.wait_event(None) {
            if let Event::Closed { report, .. } = event {
                leftovers.reports.push(*report);
            }
        }
        leftovers
    }

    /// Kills what is left, and reaps it as far as that goes within the bound.
    fn abandon(&mut self) {
        let generations = self.generations();
        self.now = self.kernel.now();
        for generation in &generations {
            if let Some(key) = self.own(*generation) {
                self.feed_input(key, Input::Abandon);
            }
        }
        let until = self.kernel.now().after(Ns::from(self.settings.drop_bound));
        for generation in &generations {
            while let Some(key) = self
                .own(*generation)
                .filter(|key| !self.table[*key].lifecycle.is_closed())
            {
                self.ask_exit(key);
                if self.table[key].lifecycle.exit_seen() || self.kernel.now() >= until {
                    break;
                }
                let soon = self.kernel.now().after(Ns::from_millis(1)).min(until);
                if self.look(Until::At(soon)).is_err() {
                    return;
                }
            }
            if self.own(*generation).is_some() {
                let _ = self.kernel.collect(generation.token(), CollectMode::Reap);
            }
        }
    }
}

impl<K: Kernel> Drop for Reactor<K> {
    fn drop(&mut self) {
        // In a forked copy the kernel object refuses everything: nothing here is ours to kill.
        if self.live > 0 && self.kernel.wait(Until::Peek, &mut self.notices).is_ok() {
            self.abandon();
        }
    }
}
