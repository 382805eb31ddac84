//! The SIGCHLD way, where pidfds are missing: a signal pipe in the poll set, and only our own
//! children asked, by number.
//!
//! The pipe is only a hint that somebody may have ended. Signals merge, and a host may replace the
//! handler or ignore SIGCHLD behind our back: so every child is asked after each hint, and all of
//! them once in [`limits::CHILD_SWEEP`].

use crate::types::{Errno, Ns, limits};
use rustix::pipe::{PipeFlags, pipe_with};
use signal_hook::SigId;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The handler, its pipe, and how far a round of questions has come.
#[derive(Debug)]
pub(crate) struct Sigchld {
    pipe: OwnedFd,
    handler: SigId,
    /// Places of the table that are still to be looked at in this round.
    left: usize,
    /// The place that is next.
    next: usize,
    /// When to ask all of them of our own accord.
    due: Ns,
}

impl Sigchld {
    /// Installs the handler, beside whatever handlers there are (signal-hook calls them too).
    pub(crate) fn install(now: Ns) -> Result<Sigchld, Errno> {
        let (pipe, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let handler = signal_hook::low_level::pipe::register(libc::SIGCHLD, write)
            .map_err(|e| Errno::from(&e))?;
        Ok(Sigchld {
            pipe,
            handler,
            left: 0,
            next: 0,
            due: now.after(limits::CHILD_SWEEP.into()),
        })
    }

    /// What the poll set watches.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// The pipe has something: somebody may have ended. `places` is the size of the table.
    pub(crate) fn hint(&mut self, places: usize) {
        let mut scratch = [0; 64];
        // Emptied, so that the next signal makes a new edge. A byte that comes meanwhile means the
        // round that begins here.
        while let Ok(1..) | Err(rustix::io::Errno::INTR) =
            rustix::io::read(&self.pipe, &mut scratch)
        {}
        self.begin(places);
    }

    /// Begins a round, if one is due; says so.
    pub(crate) fn look_at_clock(&mut self, now: Ns, places: usize) -> bool {
        let is_due = now >= self.due;
        if is_due {
            self.due = now.after(limits::CHILD_SWEEP.into());
            self.begin(places);
        }
        is_due
    }

    /// A round that is under way is made whole again: whoever was asked before the hint may have
    /// ended since.
    fn begin(&mut self, places: usize) {
        self.left = places;
    }

    /// When it wants to be looked at next, whatever happens.
    pub(crate) fn due(&self) -> Ns {
        self.due
    }

    /// A round is under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.left > 0
    }

    /// The next place to ask in this round.
    pub(crate) fn step(&mut self, places: usize) -> Option<usize> {
        if self.left == 0 || places == 0 {
            self.left = 0;
            return None;
        }
        self.left -= 1;
        let place = self.next % places;
        self.next = place + 1;
        Some(place)
    }
}

impl Drop for Sigchld {
    fn drop(&mut self) {
        signal_hook::low_level::unregister(self.handler);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_in_the_middle_of_a_round_makes_it_whole_again() {
        let mut sigchld = Sigchld::install(Ns::ZERO).expect("handler");
        assert_eq!(sigchld.step(3), None);
        sigchld.hint(3);
        assert_eq!((sigchld.step(3), sigchld.step(3)), (Some(0), Some(1)));
        sigchld.hint(3);
        let mut rest: Vec<usize> = std::iter::from_fn(|| sigchld.step(3)).collect();
        rest.sort_unstable();
        assert_eq!(rest, [0, 1, 2]);
        assert!(!sigchld.is_busy());
    }

    #[test]
    fn a_table_that_has_shrunk_or_is_empty_ends_the_round() {
        let mut sigchld = Sigchld::install(Ns::ZERO).expect("handler");
        sigchld.hint(5);
        assert_eq!(sigchld.step(0), None);
        assert!(!sigchld.is_busy());
    }

    #[test]
    fn a_round_begins_by_itself_once_its_time_has_come() {
        let mut sigchld = Sigchld::install(Ns::from_millis(5)).expect("handler");
        assert_eq!(sigchld.due(), Ns::from_millis(1005));
        assert!(!sigchld.look_at_clock(Ns::from_millis(1004), 1) && !sigchld.is_busy());
        assert!(sigchld.look_at_clock(Ns::from_millis(1005), 1) && sigchld.is_busy());
        assert_eq!(sigchld.due(), Ns::from_millis(2005));
    }

    #[test]
    fn the_signal_reaches_every_loop_and_none_that_is_gone() {
        let readable = |s: &Sigchld| {
            let mut fds = [rustix::event::PollFd::from_borrowed_fd(
                s.fd(),
                rustix::event::PollFlags::IN,
            )];
            let limit = rustix::time::Timespec {
                tv_sec: 20,
                tv_nsec: 0,
            };
            rustix::event::poll(&mut fds, Some(&limit)) == Ok(1)
        };
        let gone = Sigchld::install(Ns::ZERO).expect("handler");
        let (a, b) = (
            Sigchld::install(Ns::ZERO).expect("handler"),
            Sigchld::install(Ns::ZERO).expect("handler"),
        );
        drop(gone);
        assert!(
            std::process::Command::new("true")
                .status()
                .expect("true")
                .success()
        );
        assert!(readable(&a) && readable(&b));
    }
}
