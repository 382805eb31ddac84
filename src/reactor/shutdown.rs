//! Running one command to its end, and the end of the loop itself.

use super::{Event, Generation, Reactor};
use crate::capture::Captured;
use crate::command::{Command, Containment};
use crate::kernel::{Found, Kernel, Scan, ScanStep, Until};
use crate::report::Report;
use crate::types::{
    CollectMode, Errno, Ns, Release, RunError, Signal, SpawnError, SpawnStep, StopPolicy, Stream,
    Token, TurnError, limits,
};

/// A command that was run to its end, by [`run`](crate::run) or [`Reactor::run`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Finished {
    /// How it ended: exit status, drain, last words, background work, times.
    pub report: Report,
    /// What was kept of stdout; `None` if it was not captured.
    pub stdout: Option<Captured>,
    /// What was kept of stderr; `None` if it was not captured.
    pub stderr: Option<Captured>,
}

/// What [`Reactor::shutdown`] has come to.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Leftovers {
    /// The reports of all generations that were not closed before, in the order in which they
    /// closed.
    pub reports: Vec<Report>,
}

impl Leftovers {
    /// Whether everything that was stopped has ended: no process has survived SIGKILL.
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
    /// Runs a command to its end and gives back its report and what was kept. The thread stands
    /// still meanwhile. Nothing of the command is delivered as an event, whatever
    /// [`Capture::deliver`](crate::Capture::deliver) says; other generations go on, and their
    /// events wait.
    ///
    /// # Errors
    ///
    /// The command could not be started ([`RunError::Spawn`]), or the loop failed
    /// ([`RunError::Turn`]). A command that needs the host while it runs is refused with EINVAL:
    /// [`Stdin::Feed`](crate::Stdin::Feed), [`Stdin::Raw`](crate::Stdin::Raw) and
    /// [`Output::Raw`](crate::Output::Raw).
    pub fn run(&mut self, command: &Command) -> Result<Finished, RunError> {
        if let Some(why) = command.why_host_is_needed() {
            let invalid = Errno::from_raw(libc::EINVAL);
            return Err(SpawnError::new(SpawnStep::Command, invalid)
                .because(why)
                .into());
        }
        let generation = self.spawn(&command.undelivered())?;
        while let Some(key) = self.lookup_key(generation) {
            if self.table[key].lifecycle.is_closed() {
                self.kernel.close_deferred();
                let report = self.report(key);
                let [stdout, stderr] = Stream::ALL.map(|stream| self.take(generation, stream));
                self.outbox.forget(generation.token());
                self.remove(key);
                self.update_deadline_fd();
                return Ok(Finished {
                    report,
                    stdout,
                    stderr,
                });
            }
            let until = self.sleep_until(None);
            self.round(until)?;
        }
        Err(RunError::Turn(TurnError::new(
            "run a command whose generation was taken away",
            None,
        )))
    }

    /// Ends the loop well: stops everything (without a `policy` each with its own), and turns until
    /// all is closed or known to be stuck. Undelivered output is given up; what was kept goes with
    /// the loop. It takes at most as long as the longest stop: grace, and
    /// [`StopPolicy::stuck_after`].
    pub fn shutdown(mut self, policy: Option<StopPolicy>) -> Leftovers {
        let mut leftovers = Leftovers::default();
        self.stop_all(policy);
        for entry in self.table.entries_mut() {
            entry.render_last_words(entry.command.last_words_stream());
            for stream in Stream::ALL {
                if let Some(channel) = entry.activate(stream, &mut self.memory.boxes) {
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

    /// Kills what is left, and reaps it as far as that goes within the bound of a drop.
    fn abandon(&mut self) {
        let generations = self.table.open_generations();
        self.clock.now = self.kernel.now();
        for generation in &generations {
            if let Some(key) = self.lookup_key(*generation) {
                self.loop_dropped(key);
            }
        }
        let until = (self.kernel.now()).after(Ns::from(self.settings.drop_bound));
        for generation in &generations {
            while let Some(key) = self
                .lookup_key(*generation)
                .filter(|key| !self.table[*key].lifecycle.is_closed())
            {
                self.check_exit(key);
                if self.table[key].lifecycle.exit_seen() || self.kernel.now() >= until {
                    break;
                }
                let soon = self.kernel.now().after(Ns::from_millis(1)).min(until);
                if self.wait_and_serve(Until::At(soon)).is_err() {
                    // The poll set may be what has failed: the leader is asked without it.
                    self.kernel.sleep_until(soon);
                }
            }
            if self.lookup_key(*generation).is_some() {
                let _ = self.kernel.collect(generation.token(), CollectMode::Reap);
            }
        }
        self.end_escapees(&generations, until);
    }

    /// Kills the members that a containment finds outside the groups, waits within the bound until
    /// nobody is left, and releases the generations, so that their cgroups are removed. Work that
    /// was left running on purpose is not touched.
    fn end_escapees(&mut self, generations: &[Generation], until: Ns) {
        let mut left = Vec::new();
        for generation in generations {
            if let Some(key) = self.lookup_key(*generation)
                && !self.table[key].lifecycle.left_work_running()
                && self.table[key].command.containment != Containment::Group
            {
                left.push(generation.token());
            }
        }
        let mut scans = 0;
        while !left.is_empty() && self.kernel.now() < until {
            scans += 1;
            self.kill_found(&mut left, until, u64::MAX - scans);
            let soon = self.kernel.now().after(Ns::from_millis(1)).min(until);
            if !left.is_empty() && self.wait_and_serve(Until::At(soon)).is_err() {
                break;
            }
        }
        if !left.is_empty() {
            let generations = left.len();
            tracing::warn!(
                generations,
                "the bound of a drop did not suffice to end everybody"
            );
        }
        for generation in generations {
            let key = self.lookup_key(*generation);
            if key.is_some_and(|key| !self.table[key].lifecycle.left_work_running()) {
                self.kernel.release(generation.token(), Release::Close);
            }
        }
    }

    /// Scans once, and kills the members outside the groups that were found. Generations without a
    /// member are taken off the list.
    fn kill_found(&mut self, tokens: &mut Vec<Token>, until: Ns, id: u64) {
        let mut scan = Scan {
            id,
            members: tokens.clone(),
            budget: limits::SCAN_BUDGET,
            ..Scan::default()
        };
        let is_complete = loop {
            match self.kernel.scan(&mut scan) {
                ScanStep::Done { members, .. } => break members,
                ScanStep::More if self.kernel.now() >= until => break false,
                ScanStep::More => {}
            }
        };
        tokens.retain(|token| {
            let has_member = scan
                .found
                .iter()
                .any(|found| matches!(found, Found::Member(of, _) if of == token));
            if has_member {
                self.kernel.signal(*token, Signal::KILL);
            }
            has_member || !is_complete || scan.doubtful.contains(token)
        });
    }
}

impl<K: Kernel> Drop for Reactor<K> {
    fn drop(&mut self) {
        // In a forked copy nothing is its own to kill.
        if self.stats.live > 0 && !self.is_copy() {
            self.abandon();
        }
    }
}
