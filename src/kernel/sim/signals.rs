//! Signals in the simulated world: dispositions, stopping, pinned numbers.

use super::log::{Happened, Violation};
use super::process::{After, Condition, Disposition, Doing, HOST, Process};
use super::world::World;
use crate::types::{Exit, Signal, StatusSource};

/// What became of a signal to one process, or to a whole group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// Somebody got it (a zombie counts, as in kill(2)).
    Somebody,
    /// No such process (ESRCH).
    Nobody,
    /// EPERM from everybody.
    Refused,
}

/// What a signal does if nobody has said anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Terminate,
    Nothing,
    Stop,
    Continue,
}

fn default_action(signal: Signal) -> Action {
    match signal {
        Signal::CHLD | Signal::URG | Signal::WINCH => Action::Nothing,
        Signal::STOP | Signal::TSTP | Signal::TTIN | Signal::TTOU => Action::Stop,
        Signal::CONT => Action::Continue,
        _ => Action::Terminate,
    }
}

impl World {
    /// kill(2) by the host through a way that cannot miss: a pidfd, or members that it has
    /// verified. `None` asks only.
    ///
    /// `family` is the birth of the leader: a process that does not descend from it gets nothing,
    /// and that is a violation.
    pub(super) fn send_to(&mut self, pids: &[u32], family: u64, signal: Option<Signal>) -> Reached {
        let mut reached = Reached::Nobody;
        for pid in pids {
            let Some(process) = self.processes.get(pid) else {
                continue;
            };
            if process.user.is_some() {
                if reached == Reached::Nobody {
                    reached = Reached::Refused;
                }
                continue;
            }
            if let Some(signal) = signal {
                if process.family != family {
                    self.violations
                        .push(Violation::Stranger { pid: *pid, signal });
                    continue;
                }
                self.deliver(*pid, signal);
            }
            reached = Reached::Somebody;
        }
        reached
    }

    /// kill(2) by the host to a number: a group's if it is negative. A number whose leader is not a
    /// child of the host that was not reaped yet may be anybody's: that is refused (`Nobody`)
    /// and recorded. Asking alone (`None`) is allowed.
    pub fn send_to_number(&mut self, target: i64, signal: Option<Signal>) -> Reached {
        let Ok(number) = u32::try_from(target.unsigned_abs()) else {
            return Reached::Nobody;
        };
        let pinned = self
            .processes
            .get(&number)
            .filter(|p| p.ppid == HOST)
            .map(|p| p.family);
        let pids = if target < 0 {
            self.group(number)
        } else {
            vec![number]
        };
        match (pinned, signal) {
            (Some(family), _) => self.send_to(&pids, family, signal),
            (None, None) => self.send_to(&pids, 0, None),
            (None, Some(signal)) => {
                self.violations.push(Violation::Unpinned { target, signal });
                Reached::Nobody
            }
        }
    }

    /// A process gets a signal.
    pub(super) fn deliver(&mut self, pid: u32, signal: Signal) {
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        if process.is_zombie() {
            return;
        }
        self.note(Happened::Signalled(pid, signal));
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        if process.condition == Condition::Stuck {
            process.pending.insert(signal);
            return;
        }
        if signal == Signal::KILL {
            self.finish(pid, Exit::by_signal(signal, false, StatusSource::Waitid));
            return;
        }
        if signal == Signal::CONT {
            self.resume(pid);
        } else if process.condition == Condition::Stopped && signal != Signal::STOP {
            process.pending.insert(signal);
            return;
        }
        self.dispose(pid, signal);
    }

    /// Carries out what the process has chosen for a signal, or the default.
    fn dispose(&mut self, pid: u32, signal: Signal) {
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        if process.blocked.contains(&signal) {
            process.pending.insert(signal);
            return;
        }
        let chosen = if signal == Signal::STOP {
            None
        } else {
            process.dispositions.get(&signal).cloned()
        };
        match chosen {
            Some(Disposition::Ignored) => {}
            Some(Disposition::Handled(_)) if process.is_handling(signal) => {
                process.pending.insert(signal);
            }
            Some(Disposition::Handled(acts)) => {
                let before = std::mem::replace(&mut process.doing, Doing::Next);
                process.enter(acts, After::Resume(signal, Box::new(before)));
                self.schedule_soon(pid);
            }
            None => match default_action(signal) {
                Action::Nothing | Action::Continue => {}
                Action::Stop => self.stop(pid),
                Action::Terminate => {
                    self.finish(pid, Exit::by_signal(signal, false, StatusSource::Waitid))
                }
            },
        }
    }

    fn stop(&mut self, pid: u32) {
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        if process.condition == Condition::Able {
            process.condition = Condition::Stopped;
            self.stopped += 1;
            self.unschedule(pid);
            self.note(Happened::Stopped(pid, true));
        }
    }

    fn resume(&mut self, pid: u32) {
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        if process.condition != Condition::Stopped {
            return;
        }
        process.condition = Condition::Able;
        let pending = std::mem::take(&mut process.pending);
        self.stopped = self.stopped.saturating_sub(1);
        self.note(Happened::Stopped(pid, false));
        self.go_on(pid);
        for signal in pending {
            self.dispose(pid, signal);
        }
    }

    // ------------------------------------------------------------------ orphaned groups

    /// The groups that the end of a process may orphan: its own and its children's. None if nobody
    /// is stopped.
    pub(super) fn groups_of_family(&self, pid: u32) -> Vec<u32> {
        if self.stopped == 0 {
            return Vec::new();
        }
        let mut groups: Vec<u32> = self
            .processes
            .values()
            .filter(|p| p.pid == pid || p.ppid == pid)
            .map(|p| p.pgid)
            .collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// No member has a parent in another group of the same session.
    pub(super) fn is_orphaned(&self, pgid: u32) -> bool {
        let linked = |p: &Process| match self.processes.get(&p.ppid) {
            Some(parent) => !parent.is_zombie() && parent.sid == p.sid && parent.pgid != pgid,
            None => p.ppid == HOST && p.sid == HOST,
        };
        !self
            .processes
            .values()
            .any(|p| p.pgid == pgid && !p.is_zombie() && linked(p))
    }

    /// A group with a stopped member that has just been orphaned gets HUP and CONT (setpgid(2)).
    pub(super) fn wake_orphaned(&mut self, pgid: u32, before: bool) {
        let stopped = |p: &Process| p.pgid == pgid && p.condition == Condition::Stopped;
        if before || !self.processes.values().any(stopped) || !self.is_orphaned(pgid) {
            return;
        }
        for pid in self.group(pgid) {
            self.deliver(pid, Signal::HUP);
            self.deliver(pid, Signal::CONT);
        }
    }
}
