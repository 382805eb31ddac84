//! The children that share the host's controlling terminal, and when to check them.

use super::containment::signal::signal;
use super::inner::Inner;
use super::process::job_control::{JobAction, JobControl};
use super::process::leader::LeaderState;
use crate::types::{Ns, Signal, Token, limits};

/// Children that share the terminal until their leader has ended.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    list: Vec<(Token, JobControl)>,
    next_check: Ns,
}

impl Jobs {
    pub(super) fn add(&mut self, generation: Token, job: JobControl, now: Ns) {
        if self.list.is_empty() {
            self.next_check = now.after(limits::JOB_CHECK.into());
        }
        self.list.push((generation, job));
    }

    /// When to check the children next; `None` without any.
    pub(super) fn next_check(&self) -> Option<Ns> {
        (!self.list.is_empty()).then_some(self.next_check)
    }

    /// The leader has ended, or the generation is over: takes the terminal back.
    pub(super) fn end(&mut self, generation: Token, by_signal: bool) {
        let is_same = |(token, _): &(Token, JobControl)| {
            (token.slot(), token.sequence()) == (generation.slot(), generation.sequence())
        };
        if let Some(place) = self.list.iter().position(is_same) {
            let (_, job) = self.list.swap_remove(place);
            job.end(by_signal);
        }
    }
}

impl Inner {
    /// Checks the children that share the terminal, when that is due.
    pub(super) fn check_jobs(&mut self) {
        let now = self.clock.now();
        if self.jobs.next_check().is_none_or(|at| now < at) {
            return;
        }
        self.jobs.next_check = now.after(limits::JOB_CHECK.into());
        let proc = self.scanner.proc();
        for (token, job) in &mut self.jobs.list {
            // A pid that was reaped may be somebody else's.
            let row = self.table.get_mut(*token);
            let Some(row) = row.filter(|row| row.leader == LeaderState::Running) else {
                continue;
            };
            if job.check(row.pid) == JobAction::Continue {
                // The group cannot be empty: its leader is not reaped.
                let _ = signal(row, Signal::CONT, &self.capabilities, proc);
            }
        }
    }
}
