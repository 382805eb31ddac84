//! Shares the controlling terminal of the host with a child, as a shell does with a job.
//!
//! The child leads a process group of its own. When its leader is stopped because it has used the
//! terminal from the background, the group is made the foreground and continued. A pidfd does not
//! report a stop, so the leader is asked at intervals ([`limits::JOB_CHECK`]).

use super::terminal::{ControllingTerminal, Foreground, TerminalModes};
use crate::command::plan::{OutputPlan, Plan, StdinPlan, TerminalControl};
use crate::types::Signal;
use rustix::process::{Pid, WaitId, WaitIdOptions, kill_current_process_group, waitid};

/// The terminal, and who has it.
#[derive(Debug)]
pub(crate) struct JobControl {
    terminal: ControllingTerminal,
    /// The modes at the spawn. A leader that dies by a signal cannot restore them itself.
    modes: Option<TerminalModes>,
    holder: Holder,
    leader: Leader,
}

/// Who is the foreground because of this child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    /// The host has not given the terminal away.
    Host,
    /// The child's group.
    Child,
}

/// What the last look at the leader has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leader {
    Running,
    /// It was stopped by this signal.
    Stopped(Signal),
    /// It waits for the terminal, which the host does not have. The host's group was stopped for
    /// it.
    Waiting(Signal),
}

/// What has to be done with the child's group after a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobAction {
    Nothing,
    /// Send CONT to the group.
    Continue,
}

impl JobControl {
    /// The terminal for a child of this plan; `None` if it shares none.
    pub(crate) fn for_plan(plan: &Plan) -> Option<JobControl> {
        let is_managed = match plan.terminal {
            TerminalControl::Managed => true,
            TerminalControl::Unmanaged => false,
            TerminalControl::Automatic => plan.foreground_terminal || inherits_terminal(plan),
        };
        if !is_managed {
            return None;
        }
        let terminal = ControllingTerminal::open()?;
        Some(JobControl {
            modes: terminal.modes(),
            terminal,
            holder: if plan.foreground_terminal {
                Holder::Child
            } else {
                Holder::Host
            },
            leader: Leader::Running,
        })
    }

    /// Looks whether the leader, which is not reaped yet, was stopped or continued, and whether it
    /// can have the terminal.
    pub(crate) fn check(&mut self, pid: u32) -> JobAction {
        self.update(pid);
        match self.leader {
            Leader::Running => JobAction::Nothing,
            Leader::Stopped(signal @ (Signal::TTIN | Signal::TTOU)) | Leader::Waiting(signal) => {
                self.on_terminal_access(pid, signal)
            }
            Leader::Stopped(Signal::TSTP) if self.holder == Holder::Child => {
                self.on_keyboard_stop(pid)
            }
            // The leader has stopped itself, or somebody has stopped it: nobody's terminal.
            Leader::Stopped(_) => JobAction::Nothing,
        }
    }

    fn update(&mut self, pid: u32) {
        let options = WaitIdOptions::STOPPED | WaitIdOptions::CONTINUED | WaitIdOptions::NOHANG;
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        // ECHILD: somebody else has reaped it.
        let status = pid.and_then(|pid| waitid(WaitId::Pid(pid), options).ok().flatten());
        let Some(status) = status else { return };
        match status.stopping_signal().and_then(Signal::from_raw) {
            Some(signal) => self.leader = Leader::Stopped(signal),
            None if status.continued() => self.leader = Leader::Running,
            None => {}
        }
    }

    fn on_terminal_access(&mut self, pid: u32, signal: Signal) -> JobAction {
        let foreground = self.terminal.foreground();
        if foreground == Foreground::Own {
            self.hand_over(pid)
        } else if foreground == Foreground::Group(pid) {
            self.leader = Leader::Running;
            JobAction::Continue
        } else {
            if self.leader == Leader::Stopped(signal) {
                // The kernel would have sent it to the host's group, had the child been in it.
                self.leader = Leader::Waiting(signal);
                stop_own_group(signal);
            }
            JobAction::Nothing
        }
    }

    /// ^Z has stopped the child's group, and would have stopped the host's as well.
    fn on_keyboard_stop(&mut self, pid: u32) -> JobAction {
        self.take_back();
        stop_own_group(Signal::TSTP);
        // Continued in the foreground, or not stopped because nobody could continue it.
        if self.terminal.foreground() == Foreground::Own {
            self.hand_over(pid)
        } else {
            self.leader = Leader::Running;
            JobAction::Continue
        }
    }

    fn hand_over(&mut self, pid: u32) -> JobAction {
        if self.terminal.set_foreground(pid).is_ok() {
            self.holder = Holder::Child;
        }
        self.leader = Leader::Running;
        JobAction::Continue
    }

    fn take_back(&mut self) {
        self.holder = Holder::Host;
        // Refused for a terminal that was hung up: nothing is left to take.
        let _ = self.terminal.take_back();
    }

    /// The leader has ended: takes the terminal back, and restores its modes if the leader was
    /// killed.
    pub(crate) fn end(mut self, by_signal: bool) {
        if self.holder == Holder::Host {
            return;
        }
        self.take_back();
        if by_signal && let Some(modes) = &self.modes {
            // Refused for a terminal that was hung up.
            let _ = self.terminal.set_modes(modes);
        }
    }
}

/// Whether one of the child's streams is a terminal of the host.
fn inherits_terminal(plan: &Plan) -> bool {
    let stdin = matches!(plan.stdin, StdinPlan::Inherit).then(rustix::stdio::stdin);
    let stdout = matches!(plan.stdout, OutputPlan::Inherit).then(rustix::stdio::stdout);
    let stderr = matches!(plan.stderr, OutputPlan::Inherit).then(rustix::stdio::stderr);
    [stdin, stdout, stderr]
        .into_iter()
        .flatten()
        .any(rustix::termios::isatty)
}

/// Sends the host's own group a stop signal, which does what the host has chosen for it.
fn stop_own_group(signal: Signal) {
    if let Some(signal) = rustix::process::Signal::from_named_raw(signal.as_raw()) {
        // A process may signal its own group.
        let _ = kill_current_process_group(signal);
    }
}
