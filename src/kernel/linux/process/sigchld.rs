//! Exits by SIGCHLD, where pidfds are missing: a self-pipe in the poll set, after which the loop's
//! own children are asked one by one by process id.
//!
//! A byte in the pipe only says that some child may have ended. Signals merge, and a host may
//! replace the handler or ignore SIGCHLD. So each signal begins a round over all children, and one
//! more round begins every [`limits::SIGCHLD_POLL`] without a signal.

use crate::types::{Errno, Ns, limits};
use rustix::pipe::{PipeFlags, pipe_with};
use signal_hook::SigId;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The signal handler, its self-pipe, and the progress of a round over the table.
#[derive(Debug)]
pub(crate) struct Sigchld {
    pipe: OwnedFd,
    handler: SigId,
    /// Places of the table that this round has still to visit.
    left: usize,
    /// The place that is visited next.
    next: usize,
    /// When the next round begins without a signal.
    due: Ns,
}

impl Sigchld {
    /// Installs the handler in addition to the handlers there are (signal-hook chains them).
    ///
    /// # Errors
    ///
    /// The errno of pipe2(2) or sigaction(2).
    pub(crate) fn install(now: Ns) -> Result<Sigchld, Errno> {
        let (pipe, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let handler = signal_hook::low_level::pipe::register(libc::SIGCHLD, write)
            .map_err(|e| Errno::from(&e))?;
        Ok(Sigchld {
            pipe,
            handler,
            left: 0,
            next: 0,
            due: now.after(limits::SIGCHLD_POLL.into()),
        })
    }

    /// The read end of the self-pipe, for the poll set.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// Empties the self-pipe, so that the next signal makes a new edge, and begins a round.
    /// `places` is the size of the table.
    pub(crate) fn on_signal(&mut self, places: usize) {
        let mut scratch = [0; 64];
        while let Ok(1..) | Err(rustix::io::Errno::INTR) =
            rustix::io::read(&self.pipe, &mut scratch)
        {}
        self.begin_round(places);
    }

    /// Begins a round if its time has come, and says whether it did.
    pub(crate) fn on_time(&mut self, now: Ns, places: usize) -> bool {
        let is_due = now >= self.due;
        if is_due {
            self.due = now.after(limits::SIGCHLD_POLL.into());
            self.begin_round(places);
        }
        is_due
    }

    /// A round that is under way starts over: a child visited before the signal may have ended
    /// since.
    fn begin_round(&mut self, places: usize) {
        self.left = places;
    }

    /// When the next round begins without a signal.
    pub(crate) fn due(&self) -> Ns {
        self.due
    }

    /// Whether a round is under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.left > 0
    }

    /// The place to visit next in this round; `None` when the round is over.
    pub(crate) fn next_place(&mut self, places: usize) -> Option<usize> {
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
    fn a_signal_in_the_middle_of_a_round_starts_it_over() {
        let mut sigchld = Sigchld::install(Ns::ZERO).expect("handler");
        assert_eq!(sigchld.next_place(3), None);
        sigchld.on_signal(3);
        assert_eq!(
            (sigchld.next_place(3), sigchld.next_place(3)),
            (Some(0), Some(1))
        );
        sigchld.on_signal(3);
        let mut rest: Vec<usize> = std::iter::from_fn(|| sigchld.next_place(3)).collect();
        rest.sort_unstable();
        assert_eq!(rest, [0, 1, 2]);
        assert!(!sigchld.is_busy());
    }

    #[test]
    fn an_empty_table_ends_the_round() {
        let mut sigchld = Sigchld::install(Ns::ZERO).expect("handler");
        sigchld.on_signal(5);
        assert_eq!(sigchld.next_place(0), None);
        assert!(!sigchld.is_busy());
    }

    #[test]
    fn a_round_begins_without_a_signal_when_its_time_has_come() {
        let mut sigchld = Sigchld::install(Ns::from_millis(5)).expect("handler");
        assert_eq!(sigchld.due(), Ns::from_millis(1005));
        assert!(!sigchld.on_time(Ns::from_millis(1004), 1) && !sigchld.is_busy());
        assert!(sigchld.on_time(Ns::from_millis(1005), 1) && sigchld.is_busy());
        assert_eq!(sigchld.due(), Ns::from_millis(2005));
    }

    #[test]
    fn the_signal_reaches_every_loop_that_lives() {
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
