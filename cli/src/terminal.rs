//! The controlling terminal, shared with the command as a shell shares it with a job (SPEC 8).
//!
//! The command leads a process group of its own, so only one of the two groups can be the
//! foreground. The command's group becomes the foreground at the start if lastwords is a job of its
//! own, else when the command asks for the terminal. It stays the foreground until the command
//! stops or ends.

use lastwords::Signal;
use lastwords::host::{self, ControllingTerminal, Foreground, TerminalModes};
use rustix::fs::{FileType, fstat};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use rustix::stdio::{stderr, stdin, stdout};

/// The controlling terminal of lastwords and of the command.
#[derive(Debug)]
pub(crate) struct Terminal {
    terminal: ControllingTerminal,
    /// The command's leader and group, once it is started.
    command: Option<u32>,
    holder: Holder,
    /// The modes when lastwords was started.
    modes: Option<TerminalModes>,
    /// Whether the command was hung up already because nobody can continue it.
    hung_up: bool,
}

/// Who lastwords has made the foreground.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    /// Nobody: the foreground is what the shell has chosen.
    Unchanged,
    /// The command. lastwords has to take the terminal back.
    Command,
}

/// What has to be done with the command after its leader was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterStop {
    /// The leader was not stopped, or its stop is its own business.
    Nothing,
    /// Continue the command.
    Continue,
    /// Nobody could ever give the terminal to the command: hang it up, then continue it, as the
    /// kernel does with stopped jobs that nobody can continue.
    HangUp,
}

impl Terminal {
    /// Opens the controlling terminal, if there is one.
    pub(crate) fn detect() -> Option<Terminal> {
        let terminal = ControllingTerminal::open()?;
        Some(Terminal {
            modes: terminal.modes(),
            terminal,
            command: None,
            holder: Holder::Unchanged,
            hung_up: false,
        })
    }

    /// Whether the command gets the terminal before exec: lastwords is a job of its own, which
    /// leads the foreground group, and nothing is connected to its streams by a pipe.
    pub(crate) fn gives_foreground_at_start(&self) -> bool {
        let leads_group = self.terminal.own_group() == Some(std::process::id());
        leads_group && self.terminal.foreground() == Foreground::Own && !any_stream_is_pipe()
    }

    /// The command was started. `has_foreground` if its group was made the foreground before exec.
    pub(crate) fn command_started(&mut self, pid: u32, has_foreground: bool) {
        self.command = Some(pid);
        if has_foreground {
            self.set_holder(Holder::Command);
        }
    }

    /// Makes the command's group the foreground.
    fn hand_over(&mut self) {
        if let Some(command) = self.command
            && self.terminal.set_foreground(command).is_ok()
        {
            self.set_holder(Holder::Command);
        }
    }

    /// Makes the group of lastwords the foreground again, if the command had the terminal. Returns
    /// whether it had.
    pub(crate) fn take_back(&mut self) -> bool {
        if self.holder == Holder::Unchanged {
            return false;
        }
        // Refused for a terminal that was hung up: nothing is left to take.
        let _ = self.terminal.take_back();
        self.set_holder(Holder::Unchanged);
        true
    }

    /// While the command has the foreground, lastwords writes its output from the background. With
    /// `stty tostop` the kernel would stop lastwords for it, unless TTOU is blocked. At other times
    /// that is right.
    fn set_holder(&mut self, holder: Holder) {
        self.holder = holder;
        // TTOU is a valid signal.
        let _ = host::set_blocked(Signal::TTOU, holder == Holder::Command);
    }

    /// The leader has ended. If a signal ended it, it could not restore the terminal's modes.
    pub(crate) fn leader_ended(&mut self, by_signal: bool) {
        if self.take_back()
            && by_signal
            && let Some(modes) = &self.modes
        {
            // Refused for a terminal that was hung up.
            let _ = self.terminal.set_modes(modes);
        }
    }

    /// Looks whether the leader was stopped, and follows it. Blocks while lastwords itself is
    /// stopped. `was_continued` takes a CONT that was sent to lastwords and says whether there was
    /// one.
    pub(crate) fn follow_leader(&mut self, mut was_continued: impl FnMut() -> bool) -> AfterStop {
        let Some(signal) = self.leader_stopped_by() else {
            return AfterStop::Nothing;
        };
        match signal {
            Signal::TTIN | Signal::TTOU => {
                let foreground = self.terminal.foreground();
                if foreground == Foreground::Own {
                    self.hand_over();
                    return AfterStop::Continue;
                }
                if self.command.map(Foreground::Group) == Some(foreground) {
                    // It was stopped before it was handed the terminal.
                    return AfterStop::Continue;
                }
                // The job of lastwords is in the background. The kernel would have stopped all of
                // it.
                was_continued();
                self.set_holder(Holder::Unchanged);
                let _ = host::stop_self(signal, true);
                if was_continued() {
                    self.regain_after_stop(true);
                    AfterStop::Continue
                } else if std::mem::replace(&mut self.hung_up, true) {
                    AfterStop::Nothing
                } else {
                    AfterStop::HangUp
                }
            }
            Signal::TSTP => {
                was_continued();
                // The keyboard stops every process of the foreground group.
                let had_terminal = self.take_back();
                let _ = host::stop_self(signal, had_terminal);
                was_continued();
                self.regain_after_stop(had_terminal);
                AfterStop::Continue
            }
            _ => AfterStop::Nothing,
        }
    }

    /// The signal that has stopped the leader, if it was stopped since the last call.
    fn leader_stopped_by(&self) -> Option<Signal> {
        let pid = Pid::from_raw(i32::try_from(self.command?).ok()?)?;
        // The leader's end is left to the reactor. ECHILD: the reactor has reaped it.
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        let status = waitid(WaitId::Pid(pid), options).ok()??;
        status.stopping_signal().and_then(Signal::from_raw)
    }

    /// Stops lastwords by TSTP, which was sent to lastwords itself and was passed on to the
    /// command. Blocks until lastwords is continued.
    pub(crate) fn suspend(&mut self) {
        let had_terminal = self.take_back();
        let _ = host::stop_self(Signal::TSTP, false);
        self.regain_after_stop(had_terminal);
    }

    /// lastwords was continued. `fg` has made its group the foreground, `bg` has not.
    fn regain_after_stop(&mut self, had_terminal: bool) {
        if had_terminal && self.terminal.foreground() == Foreground::Own {
            self.hand_over();
        }
    }

    /// lastwords was sent CONT. The shell may have taken the terminal from the command.
    pub(crate) fn continued(&mut self) {
        let had_terminal = self.holder == Holder::Command;
        let foreground = self.terminal.foreground();
        if self.command.map(Foreground::Group) != Some(foreground) {
            self.set_holder(Holder::Unchanged);
            self.regain_after_stop(had_terminal);
        }
    }
}

fn any_stream_is_pipe() -> bool {
    let is_pipe = |stat: rustix::fs::Stat| {
        matches!(
            FileType::from_raw_mode(stat.st_mode),
            FileType::Fifo | FileType::Socket
        )
    };
    [stdin(), stdout(), stderr()]
        .into_iter()
        .any(|stream| fstat(stream).is_ok_and(is_pipe))
}
