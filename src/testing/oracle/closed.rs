//! What must hold when a generation is closed.

use super::Naming;
use super::world::{Clarity, LeaderEnd, Pace, Watched, WorldOracle};
use crate::kernel::sim::Sim;
use crate::kernel::sim::log::Happened;
use crate::kernel::sim::process::Process;
use crate::reactor::Generation;
use crate::report::{EndedBy, Report, SettledAs, StreamEnd};
use crate::types::{Ns, Outcome, Stream};
use std::collections::BTreeSet;
use std::time::Duration;

/// The longest turn at [`Pace::Prompt`]: slices of a scan, and a tick of the timer wheel.
const TURN: Duration = Duration::from_millis(5);

impl WorldOracle {
    pub(super) fn check_closed(&self, sim: &Sim, generation: Generation) {
        let watched = &self.all[&generation];
        watched.history.check_report(self.naming(watched));
        let report = watched.history.report();
        self.check_bytes(sim, watched, report);
        self.check_outcome(sim, watched, report);
        self.check_survivors(sim, watched, report);
        if !watched.script.contains("fork") && report.exit.is_some() {
            self.check_childless(watched, report);
        }
        if self.conditions.pace == Pace::Prompt {
            self.check_times(sim, watched, report);
        }
    }

    /// The bytes in the report are those that were read, and at end of file those that were
    /// written.
    fn check_bytes(&self, sim: &Sim, watched: &Watched, report: &Report) {
        for stream in Stream::ALL {
            let told = [&report.stdout, &report.stderr][stream.index()];
            let (Some(told), Some(pipe)) = (told, watched.pipes[stream.index()]) else {
                continue;
            };
            let (mut wrote, mut read) = (0, 0);
            for entry in sim.log() {
                match entry.what {
                    Happened::Wrote(_, id, n) if id == pipe => wrote += n as u64,
                    Happened::Read(id, n) if id == pipe => read += n as u64,
                    _ => {}
                }
            }
            if told.bytes != read {
                self.fail(
                    watched,
                    "bytes that were read and not counted",
                    &(stream, read),
                );
            }
            if told.end == Some(StreamEnd::Eof) && read != wrote {
                self.fail(watched, "bytes that nobody read", &(stream, wrote));
            }
        }
        if let (Some(stdout), Some(_)) = (report.stdout, report.exit)
            && stdout.bytes - stdout.late < watched.leader_wrote
        {
            self.fail(
                watched,
                "bytes of the leader came after the verdict",
                &stdout,
            );
        }
    }

    fn check_outcome(&self, sim: &Sim, watched: &Watched, report: &Report) {
        let exit = report.exit;
        let is_lost = exit.is_some_and(|exit| exit.code.is_none() && exit.signal.is_none());
        if let (LeaderEnd::ByItself, Some(code), None, false) =
            (watched.end, watched.exit_code, &report.error, is_lost)
        {
            // Whoever had ended by itself was not stopped, even if the stop came in that moment.
            let expected = if code == 0 {
                Outcome::Succeeded
            } else {
                Outcome::Failed
            };
            if exit.and_then(|exit| exit.code) != Some(code) || report.outcome != Some(expected) {
                self.fail(
                    watched,
                    "the leader ended by itself",
                    &(exit, report.outcome),
                );
            }
        }
        let is_stopped = matches!(report.outcome, Some(Outcome::Stopped | Outcome::TimedOut));
        let clear = self.conditions.clarity == Clarity::Clear
            && self.conditions.pace == Pace::Instant
            && !watched.script.contains("user");
        let signalled = sim
            .log()
            .iter()
            .any(|e| matches!(e.what, Happened::Signalled(pid, _) if pid == watched.pid));
        if is_stopped && clear && !signalled {
            self.fail(watched, "stopped without a signal", &report.outcome);
        }
    }

    /// Nobody whom the containment can see is left if the report says so.
    fn check_survivors(&self, sim: &Sim, watched: &Watched, report: &Report) {
        let state = report.background.as_ref().map(|settled| settled.state);
        if !matches!(
            state,
            Some(SettledAs::None | SettledAs::Finished | SettledAs::Terminated)
        ) {
            return;
        }
        // A scan takes time, and faults hide processes: whoever is forked outside the group
        // meanwhile is not seen by its cookie.
        let cookie = watched.cookie.filter(|_| {
            self.conditions.pace == Pace::Instant && self.conditions.clarity < Clarity::Faulty
        });
        let is_ours = |p: &&Process| {
            let in_group = p.pgid == watched.pid && p.family == watched.birth;
            let in_cgroup = watched.cgroup.is_some() && p.cgroup == watched.cgroup;
            let is_marked = cookie.is_some() && p.shown_cookie() == cookie;
            !p.is_zombie() && (in_group || in_cgroup || is_marked)
        };
        let left: Vec<u32> = sim
            .world()
            .processes()
            .filter(is_ours)
            .map(|p| p.pid)
            .collect();
        if !left.is_empty() {
            self.fail(watched, "processes are left", &left);
        }
        let mut log = sim.log().iter();
        let signalled = log.any(|entry| matches!(entry.what, Happened::Signalled(..)));
        // Without pidfds there is no way to signal those who have left the group and are known by
        // their cookie. They may end by themselves.
        if state == Some(SettledAs::Terminated) && watched.cookie.is_none() && !signalled {
            self.fail(watched, "terminated without a signal", &state);
        }
    }

    /// Whether everybody whom a generation leaves can be named.
    fn naming(&self, watched: &Watched) -> Naming {
        let scripts = |word: &str| self.all.values().any(|other| other.script.contains(word));
        let is_stopped = watched.history.report().stop.is_some();
        // Members may die of a stop's signal before anybody has listed them. A process of another
        // user makes every scan incomplete. In uninterruptible sleep a process does not show its
        // environment: it may be anybody's.
        if self.conditions.clarity > Clarity::Clear
            || is_stopped
            || scripts("user")
            || (watched.cookie.is_some() && scripts("unkillable"))
        {
            Naming::Incomplete
        } else {
            Naming::Complete
        }
    }

    /// A leader without children ends its own streams, and leaves nobody.
    fn check_childless(&self, watched: &Watched, report: &Report) {
        let ended_by = watched.history.drain().and_then(|drain| drain.ended_by);
        if ended_by != Some(EndedBy::Eof) {
            self.fail(
                watched,
                "a drain was cut though nobody held a pipe",
                &ended_by,
            );
        }
        let Some(settled) = report.background.as_ref() else {
            return;
        };
        let names_nobody = settled.processes.iter().all(|p| p.pid == watched.pid);
        let is_none = matches!(settled.state, SettledAs::None | SettledAs::Disabled);
        let may_miss = self.naming(watched) == Naming::Incomplete;
        let may_be_told = is_none || may_miss && names_nobody;
        if !may_be_told {
            self.fail(
                watched,
                "background work of a leader without children",
                settled,
            );
        }
    }

    /// Nothing is told later than it has happened, but for the turn that it takes.
    fn check_times(&self, sim: &Sim, watched: &Watched, report: &Report) {
        let times = |wanted: &dyn Fn(&Happened) -> bool| {
            let entries = sim.log().iter().filter(|e| wanted(&e.what));
            entries.map(|e| e.at).collect::<Vec<Ns>>()
        };
        let exits = times(&|what| matches!(what, Happened::Ended(pid, ..) if *pid == watched.pid));
        let Some(exit) = exits.first() else { return };
        let after_exit = |times: Vec<Ns>| {
            let last = times.last().map_or(Ns::ZERO, |last| last.since(*exit));
            last.to_duration() + TURN
        };
        if let Some(drain) = &report.drain
            && drain.ended_by == Some(EndedBy::Eof)
        {
            let is_ours = |id: &_| watched.pipes.contains(&Some(*id));
            let hung_up = times(&|what| matches!(what, Happened::HungUp(id) if is_ours(id)));
            if drain.waited > after_exit(hung_up) {
                self.fail(watched, "an end of file was noticed too late", drain);
            }
        }
        if let Some(settled) = &report.background
            && matches!(settled.state, SettledAs::None | SettledAs::Finished)
        {
            let family = descendants(sim, watched.pid);
            let is_contained = watched.cookie.is_some() || watched.cgroup.is_some();
            let ends = times(&|what| match what {
                Happened::Ended(pid, pgid, _) => {
                    *pgid == watched.pid || (is_contained && family.contains(pid))
                }
                _ => false,
            });
            if settled.waited > after_exit(ends) {
                self.fail(watched, "the end of a member was noticed too late", settled);
            }
        }
    }
}

/// A process and all that descend from it. No process id is used twice at [`Pace::Prompt`].
fn descendants(sim: &Sim, pid: u32) -> BTreeSet<u32> {
    let mut family = BTreeSet::from([pid]);
    for entry in sim.log() {
        if let Happened::Born(child, parent) = entry.what
            && family.contains(&parent)
        {
            family.insert(child);
        }
    }
    family
}
