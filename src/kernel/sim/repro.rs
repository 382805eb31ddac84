//! What a run needs to be played again, and what has happened in it, as text.

use super::Sim;
use crate::types::Ns;
use std::fmt::Write;

/// Lines of the log that a failing run prints: the newest.
const LINES: usize = 2_000;

/// A command that was started.
#[derive(Clone, Debug)]
pub(super) struct Started {
    pub(super) at: Ns,
    pub(super) pid: u32,
    pub(super) script: String,
}

impl Sim {
    /// The options with their seed, every script that was started, the faults that wait, and the
    /// event log: what reproduces this run, and what it has come to. A thread that panics with
    /// a `Sim` in its hands prints it on stderr ([`SimOptions::log`](super::SimOptions::log)
    /// off: it does not).
    pub fn story(&self) -> String {
        let mut story = String::new();
        // A string takes everything.
        let _ = writeln!(story, "seed {}, {:?}", self.options.seed, self.options);
        for Started { at, pid, script } in &self.started {
            let _ = writeln!(story, "{:>12} ns  process {pid} plays: {script}", at.0);
        }
        for (kind, times) in self.faults.met() {
            let times_word = if *times == 1 { "time" } else { "times" };
            let _ = writeln!(story, "went wrong {times} {times_word}: {kind}");
        }
        let _ = writeln!(story, "waiting to go wrong: {:?}", self.faults);
        let log = &self.world.log;
        let skipped = log.len().saturating_sub(LINES);
        if skipped > 0 {
            let _ = writeln!(story, "({skipped} earlier events)");
        }
        for entry in log.iter().skip(skipped) {
            let _ = writeln!(story, "{:>12} ns  {:?}", entry.at.0, entry.what);
        }
        story
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        if self.options.log && std::thread::panicking() {
            eprintln!("--- the simulated run that failed\n{}---", self.story());
        }
    }
}
