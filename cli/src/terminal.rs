//! The controlling terminal, shared with the command as a shell shares it with a job.
//!
//! The command's group is the foreground while it runs, so that keys and `stty tostop` mean what
//! they mean without us. When it stops (^Z), lastwords takes the terminal back and stops its own
//! group; when that is continued, both go on.
//!
//! In a pipeline (`lastwords run -- make | less`) our own group has others who may want the
//! keyboard: there the command gets the foreground when it asks for it (TTIN, TTOU), and keys reach
//! it through us until then.

use lastwords::Signal;
use rustix::fs::{FileType, fstat};
use rustix::process::{
    Pid, WaitId, WaitIdOptions, getpgrp, getpid, kill_current_process_group, kill_process, waitid,
};
use rustix::stdio::{stdin, stdout};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

/// The terminal at stdin, if it is ours to share.
#[derive(Debug)]
pub(crate) struct Terminal {
    own: Pid,
    /// The command's group, once there is one.
    job: Option<Pid>,
    foreground: Foreground,
    /// Its modes when lastwords was started.
    modes: Option<Termios>,
}

/// Who was put into the foreground, as far as lastwords had a say in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Foreground {
    /// Whoever the shell says.
    Untouched,
    /// The command: what was given is taken back.
    Given,
    /// It was the command until the leader's end.
    GivenToTheEnd,
}

impl Terminal {
    /// Looks whether stdin is the controlling terminal. Blocks SIGTTOU then: the foreground is
    /// changed from the background.
    pub(crate) fn detect() -> Option<Terminal> {
        tcgetpgrp(stdin()).ok()?;
        lastwords::host::block(Signal::TTOU).ok()?;
        Some(Terminal {
            own: getpgrp(),
            job: None,
            foreground: Foreground::Untouched,
            modes: tcgetattr(stdin()).ok(),
        })
    }

    /// Is the command to have the foreground from the start?
    pub(crate) fn gives_foreground_at_start(&self) -> bool {
        let stdout = fstat(stdout()).map(|stat| FileType::from_raw_mode(stat.st_mode));
        self.is_ours() && !matches!(stdout, Ok(FileType::Fifo | FileType::Socket))
    }

    /// Is our own group in its foreground?
    fn is_ours(&self) -> bool {
        tcgetpgrp(stdin()).is_ok_and(|group| group == self.own)
    }

    /// The command has a group of its own now; with `given` it was made the foreground before its
    /// program began.
    pub(crate) fn command_started(&mut self, pid: u32, given: bool) {
        self.job = i32::try_from(pid).ok().and_then(Pid::from_raw);
        self.foreground = if given {
            Foreground::Given
        } else {
            Foreground::Untouched
        };
    }

    /// Gives it to the command if it is ours.
    fn give(&mut self) {
        if let Some(job) = self.job
            && self.is_ours()
            && tcsetpgrp(stdin(), job).is_ok()
        {
            self.foreground = Foreground::Given;
        }
    }

    /// Takes it back if it was given; says whether it was.
    pub(crate) fn take_back(&mut self) -> bool {
        if self.foreground != Foreground::Given {
            return false;
        }
        self.foreground = Foreground::Untouched;
        // Refused when the terminal was hung up: then there is nothing to take.
        tcsetpgrp(stdin(), self.own).is_ok()
    }

    /// The leader has ended. If a signal ended it, the terminal's modes of the start come back: it
    /// could not see to that.
    pub(crate) fn leader_ended(&mut self, by_signal: bool) {
        if !self.take_back() {
            return;
        }
        self.foreground = Foreground::GivenToTheEnd;
        if let Some(modes) = self.modes.as_ref().filter(|_| by_signal) {
            let _ = tcsetattr(stdin(), OptionalActions::Drain, modes);
        }
    }

    /// A child has changed its state. If it was the leader's stop, our own group stops too; when
    /// this returns, and says so, the command is to be continued.
    pub(crate) fn follow_stop(&mut self, was_continued: impl Fn() -> bool) -> bool {
        let Some(job) = self.job else { return false };
        // The leader, and stops alone: its end is left to the loop. ECHILD: it was reaped already.
        let asked = waitid(
            WaitId::Pid(job),
            WaitIdOptions::STOPPED | WaitIdOptions::NOHANG,
        );
        let Ok(Some(status)) = asked else {
            return false;
        };
        let by = status.stopping_signal().and_then(Signal::from_raw);
        // It wants the terminal, and we have it to give.
        if matches!(by, Some(Signal::TTIN | Signal::TTOU)) && self.is_ours() {
            self.give();
            return true;
        }
        self.take_back();
        was_continued();
        stop_ourselves(by != Some(Signal::STOP));
        self.give();
        // What has stopped itself by hand, and was not continued with us, stays stopped.
        was_continued() || by != Some(Signal::STOP)
    }

    /// We were continued: by `fg` the terminal is ours to give, by `bg` it is not.
    pub(crate) fn continued(&mut self) {
        match tcgetpgrp(stdin()) {
            Ok(group) if group == self.own => self.give(),
            Ok(group) if Some(group) == self.job => {}
            Ok(_) | Err(_) => self.foreground = Foreground::Untouched,
        }
    }

    /// What ended the command from the keyboard would have reached our whole group, had it been in
    /// the foreground.
    pub(crate) fn tell_own_group(&self, signal: Signal) {
        let signal = rustix::process::Signal::from_named_raw(signal.as_raw());
        if let (Foreground::GivenToTheEnd, Some(signal)) = (self.foreground, signal) {
            let _ = kill_current_process_group(signal);
        }
    }
}

/// Stops lastwords as the keyboard does: by the default action of TSTP, which is nothing where no
/// shell is there to continue us. Returns when it goes on. With `whole_group` everybody stops whom
/// the keyboard would have stopped.
pub(crate) fn stop_ourselves(whole_group: bool) {
    let tstp = rustix::process::Signal::TSTP;
    let stop = || {
        if whole_group {
            kill_current_process_group(tstp)
        } else {
            kill_process(getpid(), tstp)
        }
    };
    // Neither can fail: the signal can be handled, and we may signal ourselves.
    let _ = lastwords::host::with_default_action(Signal::TSTP, stop);
}
