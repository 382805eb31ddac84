//! What outlives its generation: pipes that kept work still holds, read and thrown away so that keeping the work is not killing
//! it, and leaders that have not ended, reaped when they do. Nobody is told of any of it.

use super::epoll::{Epoll, Key};
use super::pidfd::{ChildName, Waited, wait_child};
use super::pipe::throw_away;
use crate::limits;
use std::os::fd::{AsFd, OwnedFd};

/// Bytes that one look at the poll set reads of one pipe (what a pipe holds by default), and of all of them.
const MOST: usize = 64 << 10;
const MOST_OF_ALL: usize = 8 * MOST;

#[derive(Debug)]
enum What {
    Pipe(OwnedFd),
    Leader { pid: u32, pidfd: Option<OwnedFd> },
}

#[derive(Debug)]
struct Lingerer {
    number: u32,
    what: What,
}

/// All that lingers.
#[derive(Debug, Default)]
pub(crate) struct Lingering {
    list: Vec<Lingerer>,
    numbers: u32,
    scratch: Vec<u8>,
    /// Bytes that may still be read before the poll set is looked at again.
    left: usize,
}

impl Lingering {
    /// Goes on reading a pipe that is in the poll set. Beyond [`limits::LINGERERS`] it is closed instead.
    pub(crate) fn pipe(&mut self, fd: OwnedFd, epoll: &Epoll) {
        let pipes = self.list.iter().filter(|l| matches!(l.what, What::Pipe(_))).count();
        let number = self.next_number();
        // Under its new key what is readable now is told again.
        if pipes >= limits::LINGERERS || epoll.again_reader(fd.as_fd(), Key::Linger(number)).is_err() {
            epoll.remove(fd.as_fd());
            return;
        }
        if self.scratch.is_empty() {
            self.scratch = vec![0; limits::BLOCK];
        }
        self.list.push(Lingerer { number, what: What::Pipe(fd) });
    }

    /// Reaps a leader when it ends. Not bounded: a leader that is forgotten stays a zombie for as long as the host lives.
    pub(crate) fn leader(&mut self, pid: u32, pidfd: Option<OwnedFd>, epoll: &Epoll) {
        let number = self.next_number();
        if let Some(pidfd) = &pidfd {
            // It may have been taken out of the poll set, or never have been in it.
            epoll.remove(pidfd.as_fd());
            let _ = epoll.add_reader(pidfd.as_fd(), Key::Linger(number));
        }
        let lingerer = Lingerer { number, what: What::Leader { pid, pidfd } };
        if !lingerer.is_over(epoll) {
            self.list.push(lingerer);
        }
    }

    fn next_number(&mut self) -> u32 {
        self.numbers = self.numbers.wrapping_add(1);
        self.numbers
    }

    /// The poll set was looked at: there is time for some bytes again.
    pub(crate) fn begin(&mut self) {
        self.left = MOST_OF_ALL;
    }

    /// One of them is ready.
    pub(crate) fn ready(&mut self, number: u32, epoll: &Epoll) {
        let Some(at) = self.list.iter().position(|l| l.number == number) else { return };
        let Some(lingerer) = self.list.get(at) else { return };
        let is_over = match &lingerer.what {
            What::Leader { .. } => lingerer.is_over(epoll),
            What::Pipe(fd) => {
                let answer = if self.left == 0 { Some(true) } else { throw_away(fd.as_fd(), &mut self.scratch, MOST) };
                self.left = self.left.saturating_sub(MOST);
                match answer {
                    // Told again at once, so that a host that watches our descriptor comes back.
                    Some(true) => epoll.again_reader(fd.as_fd(), Key::Linger(number)).is_err(),
                    Some(false) => false,
                    None => true,
                }
            }
        };
        if is_over {
            self.list.swap_remove(at).close(epoll);
        }
    }

    /// Asks every leader whose end nothing tells (the SIGCHLD way).
    pub(crate) fn ask_leaders(&mut self, epoll: &Epoll) {
        self.list.retain(|l| !(matches!(l.what, What::Leader { pidfd: None, .. }) && l.is_over(epoll)));
    }

    /// A leader's end is learnt by asking.
    pub(crate) fn has_asked(&self) -> bool {
        self.list.iter().any(|l| matches!(l.what, What::Leader { pidfd: None, .. }))
    }

    /// A leader that lingers has this number.
    pub(crate) fn has_leader(&self, number: u32) -> bool {
        self.list.iter().any(|l| matches!(l.what, What::Leader { pid, .. } if pid == number))
    }

    /// How many there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// None.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

impl Lingerer {
    /// A leader that has ended, and is reaped thereby.
    fn is_over(&self, epoll: &Epoll) -> bool {
        match &self.what {
            What::Pipe(_) => false,
            What::Leader { pid, pidfd } => {
                let ended = wait_child(ChildName { pid: *pid, pidfd: pidfd.as_ref().map(AsFd::as_fd) }, true) != Waited::NotYet;
                if let (true, Some(pidfd)) = (ended, pidfd) {
                    epoll.remove(pidfd.as_fd());
                }
                ended
            }
        }
    }

    fn close(self, epoll: &Epoll) {
        match self.what {
            What::Pipe(fd) | What::Leader { pidfd: Some(fd), .. } => epoll.remove(fd.as_fd()),
            What::Leader { pidfd: None, .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::linux::pidfd;
    use crate::kernel::linux::pipe::Pipe;
    use crate::time::Ns;
    use std::process::{Command, Stdio};

    fn serve(lingering: &mut Lingering, epoll: &mut Epoll) {
        assert!(epoll.wait(Some(Ns::from_millis(20_000))).expect("wait"));
        let ready: Vec<Key> = epoll.ready().map(|r| r.key).collect();
        assert!(!ready.is_empty());
        lingering.begin();
        for key in ready {
            let Key::Linger(number) = key else { panic!("{key:?}") };
            lingering.ready(number, epoll);
        }
    }

    #[test]
    fn a_pipe_is_read_for_as_long_as_somebody_writes() {
        let (mut lingering, mut epoll) = (Lingering::default(), Epoll::new(8).expect("epoll"));
        let pipe = Pipe::from_child(None).expect("pipe");
        // What was written before it began to linger counts, too.
        rustix::io::write(&pipe.childs, &[1; 60_000]).expect("write");
        epoll.add_reader(pipe.ours.as_fd(), Key::Sigchld).expect("add");
        lingering.pipe(pipe.ours, &epoll);
        for _ in 0..4 {
            serve(&mut lingering, &mut epoll);
            // Blocks (and hangs the test) unless the pipe was emptied.
            assert_eq!(rustix::io::write(&pipe.childs, &[1; 60_000]), Ok(60_000));
        }
        drop(pipe.childs);
        serve(&mut lingering, &mut epoll);
        assert!(lingering.is_empty());
    }

    #[test]
    fn what_is_read_at_once_is_bounded_and_the_rest_is_told_again() {
        let (mut lingering, mut epoll) = (Lingering::default(), Epoll::new(64).expect("epoll"));
        let mut writers = Vec::new();
        for _ in 0..20 {
            let pipe = Pipe::from_child(None).expect("pipe");
            rustix::io::write(&pipe.childs, &[1; 4000]).expect("write");
            epoll.add_reader(pipe.ours.as_fd(), Key::Sigchld).expect("add");
            lingering.pipe(pipe.ours, &epoll);
            writers.push(pipe.childs);
        }
        let mut rounds = 0;
        let is_full = |fd: &OwnedFd| rustix::io::ioctl_fionread(fd).expect("bytes") > 0;
        while writers.iter().any(is_full) {
            serve(&mut lingering, &mut epoll);
            rounds += 1;
        }
        assert!(rounds >= 20 / (MOST_OF_ALL / MOST), "{rounds}");
        assert_eq!(lingering.len(), 20);
    }

    #[test]
    fn beyond_its_bound_a_pipe_is_closed() {
        let (mut lingering, epoll) = (Lingering::default(), Epoll::new(8).expect("epoll"));
        let mut writers = Vec::new();
        for _ in 0..=limits::LINGERERS {
            let pipe = Pipe::from_child(None).expect("pipe");
            epoll.add_reader(pipe.ours.as_fd(), Key::Sigchld).expect("add");
            lingering.pipe(pipe.ours, &epoll);
            writers.push(pipe.childs);
        }
        assert_eq!(lingering.len(), limits::LINGERERS);
        let has_no_reader = |fd: &OwnedFd| {
            let mut fds = [rustix::event::PollFd::new(fd, rustix::event::PollFlags::OUT)];
            assert!(rustix::event::poll(&mut fds, Some(&rustix::time::Timespec::default())).is_ok());
            fds[0].revents().contains(rustix::event::PollFlags::ERR)
        };
        assert_eq!(writers.iter().filter(|w| has_no_reader(w)).count(), 1);
    }

    #[test]
    #[expect(clippy::zombie_processes, reason = "the one under test waits for it")]
    fn a_leader_is_reaped_when_it_ends_by_notice_and_by_asking() {
        let (mut lingering, mut epoll) = (Lingering::default(), Epoll::new(8).expect("epoll"));
        for by_pidfd in [true, false] {
            let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("cat");
            let pid = child.id();
            lingering.leader(pid, by_pidfd.then(|| pidfd::open(pid).expect("pidfd")), &epoll);
            assert_eq!(lingering.len(), 1);
            drop(child.stdin.take());
            if by_pidfd {
                serve(&mut lingering, &mut epoll);
            } else {
                while !lingering.is_empty() {
                    lingering.ask_leaders(&epoll);
                    std::thread::yield_now();
                }
            }
            assert!(lingering.is_empty());
            assert_eq!(wait_child(ChildName { pid, pidfd: None }, true), Waited::NotOurs);
        }
    }
}
