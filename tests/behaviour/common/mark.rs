//! A mark that a command and all its descendants carry, whatever group or session they go to: a
//! variable of a value of its own.

use super::proc::{Stat, pids, stat};
use super::{LONG, ms, wait_until};
use lastwords::Command;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

const NAME: &str = "LASTWORDS_TEST_MARK";
static NEXT: AtomicU32 = AtomicU32::new(0);

/// A mark. Dropped, it kills whatever still carries it.
#[derive(Debug)]
pub(crate) struct Mark(String);

impl Mark {
    /// A mark that nobody carries yet.
    pub(crate) fn new() -> Mark {
        Mark(format!(
            "{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        ))
    }

    /// Puts the mark on a command.
    pub(crate) fn put_on(&self, command: &mut Command) {
        command.env(NAME, &self.0);
    }

    /// Who carries the mark and lives (a zombie has no environment).
    pub(crate) fn alive(&self) -> Vec<Stat> {
        let wanted = format!("{NAME}={}", self.0).into_bytes();
        let carries = |pid: &u32| {
            fs::read(format!("/proc/{pid}/environ"))
                .is_ok_and(|environ| environ.split(|byte| *byte == 0).any(|var| var == wanted))
        };
        pids()
            .into_iter()
            .filter(carries)
            .filter_map(stat)
            .filter(|stat| stat.state != 'Z')
            .collect()
    }

    /// Living carriers with this command name.
    pub(crate) fn named(&self, comm: &str) -> Vec<Stat> {
        self.alive()
            .into_iter()
            .filter(|stat| stat.comm == comm)
            .collect()
    }

    /// Waits until as many living carriers have this command name.
    pub(crate) fn wait_named(&self, comm: &str, count: usize) -> Vec<Stat> {
        wait_until(comm, || self.named(comm).len() == count);
        self.named(comm)
    }

    /// Waits until nobody carries it any more.
    pub(crate) fn wait_gone(&self) {
        let begun = Instant::now();
        loop {
            let left = self.alive();
            if left.is_empty() {
                return;
            }
            assert!(begun.elapsed() < LONG, "left running: {left:?}");
            std::thread::sleep(ms(2));
        }
    }

    /// Kills whoever carries it.
    pub(crate) fn kill(&self) {
        let begun = Instant::now();
        loop {
            let left = self.alive();
            if left.is_empty() || begun.elapsed() > LONG {
                return;
            }
            for pid in left
                .iter()
                .filter_map(|stat| Pid::from_raw(stat.pid.try_into().ok()?))
            {
                let _ = kill_process(pid, Signal::KILL);
            }
            std::thread::sleep(ms(2));
        }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.kill();
    }
}
