//! What outlives its generation: pipes that kept work still holds, read and thrown away so that
//! keeping the work is not killing it, leaders that have not ended, reaped when they do, and
//! cgroups that somebody is still in, removed when they are empty. Nobody is told of any of it.

use super::containment::cgroup::Cgroup;
use super::poll::{Interest, Key, Poller};
use super::process::pidfd::{ChildName, Waited, wait_child};
use super::stdio::read::throw_away;
use crate::types::limits;
use std::os::fd::{AsFd, OwnedFd};

/// Bytes that one look at the poll set reads of one pipe (what a pipe holds by default), and of all
/// of them.
const MOST: usize = 64 << 10;
const MOST_OF_ALL: usize = 8 * MOST;

#[derive(Debug)]
enum What {
    Pipe(OwnedFd),
    Leader { pid: u32, pidfd: Option<OwnedFd> },
    Cgroup(Box<Cgroup>),
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
    /// Goes on reading a pipe that is in the poll set. Beyond [`limits::LINGERERS`] it is closed
    /// instead.
    pub(crate) fn pipe(&mut self, fd: OwnedFd, poller: &mut Poller) {
        let pipes = self
            .list
            .iter()
            .filter(|l| matches!(l.what, What::Pipe(_)))
            .count();
        let number = self.next_number();
        // Under its new key what is readable now is told again.
        if pipes >= limits::LINGERERS
            || poller
                .again_reader(fd.as_fd(), Key::Linger(number))
                .is_err()
        {
            poller.remove(fd.as_fd());
            return;
        }
        if self.scratch.is_empty() {
            self.scratch = vec![0; limits::BLOCK];
        }
        self.list.push(Lingerer {
            number,
            what: What::Pipe(fd),
        });
    }

    /// Reaps a leader when it ends. Not bounded: a leader that is forgotten stays a zombie for as
    /// long as the host lives.
    pub(crate) fn leader(&mut self, pid: u32, pidfd: Option<OwnedFd>, poller: &mut Poller) {
        let number = self.next_number();
        if let Some(pidfd) = &pidfd {
            // It may have been taken out of the poll set, or never have been in it.
            poller.remove(pidfd.as_fd());
            let _ = poller.add(pidfd.as_fd(), Key::Linger(number), Interest::Read);
        }
        let lingerer = Lingerer {
            number,
            what: What::Leader { pid, pidfd },
        };
        if !lingerer.is_over(poller) {
            self.list.push(lingerer);
        }
    }

    /// Removes a cgroup when it is empty. Beyond [`limits::LINGERERS`] one that is not empty now
    /// stays.
    pub(crate) fn cgroup(&mut self, cgroup: Cgroup, poller: &mut Poller) {
        let cgroups = self
            .list
            .iter()
            .filter(|l| matches!(l.what, What::Cgroup(_)))
            .count();
        let number = self.next_number();
        let is_watched = cgroups < limits::LINGERERS
            && poller
                .add(cgroup.events(), Key::Linger(number), Interest::Urgent)
                .is_ok();
        // Asked after it is watched: the next change is told.
        if is_watched && cgroup.is_populated() == Some(true) {
            self.list.push(Lingerer {
                number,
                what: What::Cgroup(Box::new(cgroup)),
            });
            return;
        }
        if is_watched {
            poller.remove(cgroup.events());
        }
        cgroup.remove();
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
    pub(crate) fn ready(&mut self, number: u32, poller: &mut Poller) {
        let Some(at) = self.list.iter().position(|l| l.number == number) else {
            return;
        };
        let Some(lingerer) = self.list.get(at) else {
            return;
        };
        let is_over = match &lingerer.what {
            What::Leader { pidfd, .. } => {
                let is_over = lingerer.is_over(poller);
                if let (false, Some(pidfd)) = (is_over, pidfd) {
                    poller.owe_changes(pidfd.as_fd());
                }
                is_over
            }
            What::Cgroup(cgroup) => {
                let is_over = cgroup.is_populated() != Some(true);
                if is_over {
                    cgroup.remove();
                } else {
                    poller.owe(cgroup.events());
                }
                is_over
            }
            What::Pipe(fd) => {
                let answer = if self.left == 0 {
                    Some(true)
                } else {
                    throw_away(fd.as_fd(), &mut self.scratch, MOST)
                };
                self.left = self.left.saturating_sub(MOST);
                match answer {
                    // Told again at once, so that a host that watches our descriptor comes back.
                    Some(true) => poller
                        .again_reader(fd.as_fd(), Key::Linger(number))
                        .is_err(),
                    Some(false) => {
                        poller.owe(fd.as_fd());
                        false
                    }
                    None => true,
                }
            }
        };
        if is_over {
            self.list.swap_remove(at).close(poller);
        }
    }

    /// Asks every leader whose end nothing tells (the SIGCHLD way).
    pub(crate) fn ask_leaders(&mut self, poller: &mut Poller) {
        self.list
            .retain(|l| !(matches!(l.what, What::Leader { pidfd: None, .. }) && l.is_over(poller)));
    }

    /// A leader's end is learnt by asking.
    pub(crate) fn has_asked(&self) -> bool {
        self.list
            .iter()
            .any(|l| matches!(l.what, What::Leader { pidfd: None, .. }))
    }

    /// A leader that lingers has this number.
    pub(crate) fn has_leader(&self, number: u32) -> bool {
        self.list
            .iter()
            .any(|l| matches!(l.what, What::Leader { pid, .. } if pid == number))
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
    fn is_over(&self, poller: &mut Poller) -> bool {
        match &self.what {
            What::Pipe(_) | What::Cgroup(_) => false,
            What::Leader { pid, pidfd } => {
                let ended = wait_child(
                    ChildName {
                        pid: *pid,
                        pidfd: pidfd.as_ref().map(AsFd::as_fd),
                    },
                    true,
                ) != Waited::NotYet;
                if let (true, Some(pidfd)) = (ended, pidfd) {
                    poller.remove(pidfd.as_fd());
                }
                ended
            }
        }
    }

    fn close(self, poller: &mut Poller) {
        match self.what {
            What::Pipe(fd)
            | What::Leader {
                pidfd: Some(fd), ..
            } => poller.remove(fd.as_fd()),
            What::Leader { pidfd: None, .. } => {}
            What::Cgroup(cgroup) => poller.remove(cgroup.events()),
        }
    }
}

#[cfg(test)]
mod tests {
    // Alone in a process: between clone and exec a neighbour's child holds copies of every pipe of
    // the process.
    use super::*;
    use crate::kernel::linux::poll::Ready;
    use crate::kernel::linux::process::pidfd;
    use crate::kernel::linux::stdio::read::Pipe;
    use crate::testing::isolation::alone;
    use crate::types::{BackendChoice, Ns};
    use std::process::{Command, Stdio};

    fn serve(lingering: &mut Lingering, poller: &mut Poller) {
        let mut ready: Vec<Ready> = Vec::with_capacity(64);
        let begin = std::time::Instant::now();
        while ready.is_empty() {
            assert!(begin.elapsed() < std::time::Duration::from_secs(20));
            poller
                .wait(Some(Ns::from_millis(20_000)), &mut ready)
                .expect("wait");
        }
        lingering.begin();
        for Ready { key, .. } in ready {
            let Key::Linger(number) = key else {
                panic!("{key:?}")
            };
            lingering.ready(number, poller);
        }
        poller.settle();
    }

    /// Nothing that lingers, and a poll set; both kinds of those, if they are there.
    fn pollers() -> impl Iterator<Item = (Lingering, Poller)> {
        [BackendChoice::Epoll, BackendChoice::Uring]
            .into_iter()
            .map(|choice| {
                let (poller, ..) = Poller::choose(choice, 64).expect("a poll set");
                (Lingering::default(), poller)
            })
    }

    #[test]
    fn a_pipe_is_read_for_as_long_as_somebody_writes() {
        alone(
            "a_pipe_is_read_for_as_long_as_somebody_writes",
            module_path!(),
            || {
                for (mut lingering, mut poller) in pollers() {
                    let pipe = Pipe::from_child().expect("pipe");
                    // What was written before it began to linger counts, too.
                    rustix::io::write(&pipe.childs, &[1; 60_000]).expect("write");
                    poller
                        .add(pipe.ours.as_fd(), Key::Sigchld, Interest::Read)
                        .expect("add");
                    lingering.pipe(pipe.ours, &mut poller);
                    for _ in 0..4 {
                        serve(&mut lingering, &mut poller);
                        // Blocks (and hangs the test) unless the pipe was emptied.
                        assert_eq!(rustix::io::write(&pipe.childs, &[1; 60_000]), Ok(60_000));
                    }
                    drop(pipe.childs);
                    serve(&mut lingering, &mut poller);
                    assert!(lingering.is_empty());
                }
            },
        );
    }

    #[test]
    fn what_is_read_at_once_is_bounded_and_the_rest_is_told_again() {
        for (mut lingering, mut poller) in pollers() {
            let mut writers = Vec::new();
            for _ in 0..20 {
                let pipe = Pipe::from_child().expect("pipe");
                rustix::io::write(&pipe.childs, &[1; 4000]).expect("write");
                poller
                    .add(pipe.ours.as_fd(), Key::Sigchld, Interest::Read)
                    .expect("add");
                lingering.pipe(pipe.ours, &mut poller);
                writers.push(pipe.childs);
            }
            let mut rounds = 0;
            let is_full = |fd: &OwnedFd| rustix::io::ioctl_fionread(fd).expect("bytes") > 0;
            while writers.iter().any(is_full) {
                serve(&mut lingering, &mut poller);
                rounds += 1;
            }
            assert!(rounds >= 20 / (MOST_OF_ALL / MOST), "{rounds}");
            assert_eq!(lingering.len(), 20);
        }
    }

    #[test]
    fn beyond_its_bound_a_pipe_is_closed() {
        alone("beyond_its_bound_a_pipe_is_closed", module_path!(), || {
            for (mut lingering, mut poller) in pollers() {
                let mut writers = Vec::new();
                for _ in 0..=limits::LINGERERS {
                    let pipe = Pipe::from_child().expect("pipe");
                    poller
                        .add(pipe.ours.as_fd(), Key::Sigchld, Interest::Read)
                        .expect("add");
                    lingering.pipe(pipe.ours, &mut poller);
                    writers.push(pipe.childs);
                }
                assert_eq!(lingering.len(), limits::LINGERERS);
                let has_no_reader = |fd: &OwnedFd| {
                    let mut fds = [rustix::event::PollFd::new(
                        fd,
                        rustix::event::PollFlags::OUT,
                    )];
                    assert!(
                        rustix::event::poll(&mut fds, Some(&rustix::time::Timespec::default()))
                            .is_ok()
                    );
                    fds[0].revents().contains(rustix::event::PollFlags::ERR)
                };
                poller.settle();
                assert_eq!(writers.iter().filter(|w| has_no_reader(w)).count(), 1);
            }
        });
    }

    #[test]
    #[expect(clippy::zombie_processes, reason = "the one under test waits for it")]
    fn a_leader_is_reaped_when_it_ends_by_notice_and_by_asking() {
        alone(
            "a_leader_is_reaped_when_it_ends_by_notice_and_by_asking",
            module_path!(),
            || {
                for (mut lingering, mut poller) in pollers() {
                    for by_pidfd in [true, false] {
                        let mut child = Command::new("cat")
                            .stdin(Stdio::piped())
                            .stdout(Stdio::null())
                            .spawn()
                            .expect("cat");
                        let pid = child.id();
                        lingering.leader(
                            pid,
                            by_pidfd.then(|| pidfd::open(pid).expect("pidfd")),
                            &mut poller,
                        );
                        assert_eq!(lingering.len(), 1);
                        drop(child.stdin.take());
                        if by_pidfd {
                            serve(&mut lingering, &mut poller);
                        } else {
                            while !lingering.is_empty() {
                                lingering.ask_leaders(&mut poller);
                                std::thread::yield_now();
                            }
                        }
                        assert!(lingering.is_empty());
                        assert_eq!(
                            wait_child(ChildName { pid, pidfd: None }, true),
                            Waited::NotOurs
                        );
                    }
                }
            },
        );
    }
}
