//! Pipes between a test and its children: a child waits at a gate until the test opens it; no
//! sleeping on either side.

use super::LONG;
use lastwords::Command;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use std::os::fd::{OwnedFd, RawFd};

/// A gate that children wait at: `read x <&9`.
#[derive(Debug)]
pub(crate) struct Gate {
    open: OwnedFd,
}

impl Gate {
    /// A closed gate, at descriptor `number` of the command (one digit, since that is what a shell
    /// understands).
    pub(crate) fn at(number: RawFd, command: &mut Command) -> Gate {
        let (wait, open) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        command.pass_fd(wait, number);
        Gate { open }
    }

    /// Lets one `read` through.
    pub(crate) fn pass(&self) {
        rustix::io::write(&self.open, b"go\n").expect("somebody at the gate");
    }

    /// Lets everybody through, now and later.
    pub(crate) fn open(self) {}
}

/// A bell that children ring: `echo >&8`.
#[derive(Debug)]
pub(crate) struct Bell {
    heard: OwnedFd,
}

impl Bell {
    /// A bell, at descriptor `number` of the command.
    pub(crate) fn at(number: RawFd, command: &mut Command) -> Bell {
        let (heard, ring) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        command.pass_fd(ring, number);
        Bell { heard }
    }

    /// True if it was rung.
    pub(crate) fn rang(&self) -> bool {
        self.poll(0)
    }

    /// What was written with it so far: at least one byte is waited for.
    pub(crate) fn wait(&self) -> String {
        assert!(
            self.poll(LONG.as_millis().try_into().expect("fits")),
            "nobody rang"
        );
        let mut text = [0; 256];
        let n = rustix::io::read(&self.heard, &mut text).expect("what was written");
        String::from_utf8_lossy(&text[..n]).into_owned()
    }

    fn poll(&self, millis: i64) -> bool {
        let timeout = rustix::event::Timespec {
            tv_sec: millis / 1000,
            tv_nsec: millis % 1000 * 1_000_000,
        };
        let mut fds = [PollFd::new(&self.heard, PollFlags::IN)];
        // SIGCHLD may come meanwhile.
        rustix::io::retry_on_intr(|| poll(&mut fds, Some(&timeout))).expect("poll") > 0
            && fds[0].revents().contains(PollFlags::IN)
    }
}
