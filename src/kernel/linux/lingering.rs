//! Resources that outlive their generation: pipes that kept work still writes to, which are read
//! and discarded so that the work does not die of SIGPIPE; children that have not ended, reaped
//! when they do; cgroups that are not empty, removed when they are. The reactor is not told of any
//! of it.

use super::containment::cgroup::Cgroup;
use super::poll::{Interest, Key, Poller};
use super::process::pidfd::{ChildRef, WaitResult, wait_child};
use super::stdio::read::discard;
use crate::types::{CollectMode, limits};
use std::os::fd::{AsFd, OwnedFd};

/// Bytes read of one pipe between two waits: what a pipe holds by default (pipe(7)).
const BYTES_PER_PIPE: usize = 64 << 10;
/// Bytes read of all pipes between two waits.
const BYTES_PER_WAIT: usize = 8 * BYTES_PER_PIPE;

#[derive(Debug)]
enum Resource {
    Pipe(OwnedFd),
    Child { pid: u32, pidfd: Option<OwnedFd> },
    Cgroup(Box<Cgroup>),
}

#[derive(Debug)]
struct Entry {
    /// The number in [`Key::Linger`].
    number: u32,
    resource: Resource,
}

/// All resources that outlive their generation.
#[derive(Debug, Default)]
pub(crate) struct Lingering {
    entries: Vec<Entry>,
    last_number: u32,
    scratch: Vec<u8>,
    /// Bytes that may still be read before the next wait.
    byte_budget: usize,
}

impl Lingering {
    /// Reads and discards what comes from a pipe, which is in the poll set already. Beyond
    /// [`limits::LINGERERS`] pipes it is closed instead.
    pub(crate) fn add_pipe(&mut self, fd: OwnedFd, poller: &mut Poller) {
        let pipes = self.count(|resource| matches!(resource, Resource::Pipe(_)));
        let number = self.next_number();
        // Registering it anew makes a notice for bytes that are there already.
        if pipes >= limits::LINGERERS || poller.reregister(fd.as_fd(), Key::Linger(number)).is_err()
        {
            poller.remove(fd.as_fd());
            return;
        }
        if self.scratch.is_empty() {
            self.scratch = vec![0; limits::BLOCK];
        }
        self.entries.push(Entry {
            number,
            resource: Resource::Pipe(fd),
        });
    }

    /// Reaps a child when it ends. Their number is not bounded: a child that is forgotten stays a
    /// zombie for as long as the host lives.
    pub(crate) fn add_child(&mut self, pid: u32, pidfd: Option<OwnedFd>, poller: &mut Poller) {
        let number = self.next_number();
        if let Some(pidfd) = &pidfd {
            // It may be in the poll set under another key. Without a place in the poll set the
            // child stays a zombie until the host ends.
            poller.remove(pidfd.as_fd());
            let _ = poller.add(pidfd.as_fd(), Key::Linger(number), Interest::Read);
        }
        let entry = Entry {
            number,
            resource: Resource::Child { pid, pidfd },
        };
        if !entry.reap_child(poller) {
            self.entries.push(entry);
        }
    }

    /// Removes a cgroup when it is empty. Beyond [`limits::LINGERERS`] cgroups only one try is
    /// made, now.
    pub(crate) fn add_cgroup(&mut self, cgroup: Cgroup, poller: &mut Poller) {
        let cgroups = self.count(|resource| matches!(resource, Resource::Cgroup(_)));
        let number = self.next_number();
        let is_watched = cgroups < limits::LINGERERS
            && poller
                .add(cgroup.events(), Key::Linger(number), Interest::Urgent)
                .is_ok();
        // Read after the watch began, so that every later change makes a notice.
        if is_watched && cgroup.is_populated() == Some(true) {
            self.entries.push(Entry {
                number,
                resource: Resource::Cgroup(Box::new(cgroup)),
            });
            return;
        }
        if is_watched {
            poller.remove(cgroup.events());
        }
        cgroup.remove();
    }

    fn count(&self, is_counted: impl Fn(&Resource) -> bool) -> usize {
        self.entries
            .iter()
            .filter(|entry| is_counted(&entry.resource))
            .count()
    }

    /// Whether nothing is left.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn next_number(&mut self) -> u32 {
        self.last_number = self.last_number.wrapping_add(1);
        self.last_number
    }

    /// Renews the byte budget, once per wait.
    pub(crate) fn begin_wait(&mut self) {
        self.byte_budget = BYTES_PER_WAIT;
    }

    /// Serves the readiness of one resource.
    pub(crate) fn on_ready(&mut self, number: u32, poller: &mut Poller) {
        let Some(at) = self.entries.iter().position(|l| l.number == number) else {
            return;
        };
        let Some(entry) = self.entries.get(at) else {
            return;
        };
        let is_over = match &entry.resource {
            Resource::Child { pidfd, .. } => {
                let is_over = entry.reap_child(poller);
                if let (false, Some(pidfd)) = (is_over, pidfd) {
                    poller.rearm_multishot(pidfd.as_fd());
                }
                is_over
            }
            Resource::Cgroup(cgroup) => {
                let is_over = cgroup.is_populated() != Some(true);
                if is_over {
                    cgroup.remove();
                } else {
                    poller.rearm(cgroup.events());
                }
                is_over
            }
            Resource::Pipe(fd) => {
                let more_available = if self.byte_budget == 0 {
                    Some(true)
                } else {
                    discard(fd.as_fd(), &mut self.scratch, BYTES_PER_PIPE)
                };
                self.byte_budget = self.byte_budget.saturating_sub(BYTES_PER_PIPE);
                match more_available {
                    // Registering it anew makes the loop's descriptor readable at once, for a host
                    // that watches that descriptor.
                    Some(true) => poller.reregister(fd.as_fd(), Key::Linger(number)).is_err(),
                    Some(false) => {
                        poller.rearm(fd.as_fd());
                        false
                    }
                    None => true,
                }
            }
        };
        if is_over {
            self.entries.swap_remove(at).close(poller);
        }
    }

    /// Asks every child that has no pidfd whether it has ended.
    pub(crate) fn poll_children(&mut self, poller: &mut Poller) {
        self.entries
            .retain(|entry| !(entry.is_child_without_pidfd() && entry.reap_child(poller)));
    }

    /// Whether there are children whose exit is learnt by [`Lingering::poll_children`] alone.
    pub(crate) fn needs_polling(&self) -> bool {
        self.entries.iter().any(Entry::is_child_without_pidfd)
    }

    /// Whether one of the children has this process id.
    pub(crate) fn has_child(&self, wanted: u32) -> bool {
        self.entries
            .iter()
            .any(|l| matches!(l.resource, Resource::Child { pid, .. } if pid == wanted))
    }
}

impl Entry {
    fn is_child_without_pidfd(&self) -> bool {
        matches!(self.resource, Resource::Child { pidfd: None, .. })
    }

    /// Reaps the child if it has ended, and says whether it has.
    fn reap_child(&self, poller: &mut Poller) -> bool {
        match &self.resource {
            Resource::Pipe(_) | Resource::Cgroup(_) => false,
            Resource::Child { pid, pidfd } => {
                let child = ChildRef {
                    pid: *pid,
                    pidfd: pidfd.as_ref().map(AsFd::as_fd),
                };
                let has_ended = wait_child(child, CollectMode::Reap) != WaitResult::Running;
                if let (true, Some(pidfd)) = (has_ended, pidfd) {
                    poller.remove(pidfd.as_fd());
                }
                has_ended
            }
        }
    }

    fn close(self, poller: &mut Poller) {
        match self.resource {
            Resource::Pipe(fd)
            | Resource::Child {
                pidfd: Some(fd), ..
            } => poller.remove(fd.as_fd()),
            Resource::Child { pidfd: None, .. } => {}
            Resource::Cgroup(cgroup) => poller.remove(cgroup.events()),
        }
    }
}

#[cfg(test)]
mod tests {
    // Each test runs in a process of its own: between clone and exec a child of a neighbouring test
    // holds copies of every pipe of the process.
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
        lingering.begin_wait();
        for Ready { key, .. } in ready {
            let Key::Linger(number) = key else {
                panic!("{key:?}")
            };
            lingering.on_ready(number, poller);
        }
        poller.submit();
    }

    /// An empty list with a poll set, for each backend.
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
                    // Bytes written before the pipe was added are discarded too.
                    rustix::io::write(&pipe.child_end, &[1; 60_000]).expect("write");
                    poller
                        .add(pipe.host_end.as_fd(), Key::Sigchld, Interest::Read)
                        .expect("add");
                    lingering.add_pipe(pipe.host_end, &mut poller);
                    for _ in 0..4 {
                        serve(&mut lingering, &mut poller);
                        // Blocks (and hangs the test) unless the pipe was emptied.
                        assert_eq!(rustix::io::write(&pipe.child_end, &[1; 60_000]), Ok(60_000));
                    }
                    drop(pipe.child_end);
                    serve(&mut lingering, &mut poller);
                    assert!(lingering.is_empty());
                }
            },
        );
    }

    #[test]
    fn reads_between_two_waits_are_bounded_and_the_rest_makes_notices_again() {
        for (mut lingering, mut poller) in pollers() {
            let mut writers = Vec::new();
            for _ in 0..20 {
                let pipe = Pipe::from_child().expect("pipe");
                rustix::io::write(&pipe.child_end, &[1; 4000]).expect("write");
                poller
                    .add(pipe.host_end.as_fd(), Key::Sigchld, Interest::Read)
                    .expect("add");
                lingering.add_pipe(pipe.host_end, &mut poller);
                writers.push(pipe.child_end);
            }
            let mut rounds = 0;
            let is_full = |fd: &OwnedFd| rustix::io::ioctl_fionread(fd).expect("bytes") > 0;
            while writers.iter().any(is_full) {
                serve(&mut lingering, &mut poller);
                rounds += 1;
            }
            assert!(rounds >= 20 / (BYTES_PER_WAIT / BYTES_PER_PIPE), "{rounds}");
            assert_eq!(lingering.entries.len(), 20);
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
                        .add(pipe.host_end.as_fd(), Key::Sigchld, Interest::Read)
                        .expect("add");
                    lingering.add_pipe(pipe.host_end, &mut poller);
                    writers.push(pipe.child_end);
                }
                assert_eq!(lingering.entries.len(), limits::LINGERERS);
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
                poller.submit();
                assert_eq!(writers.iter().filter(|w| has_no_reader(w)).count(), 1);
            }
        });
    }

    #[test]
    #[expect(clippy::zombie_processes, reason = "the one under test waits for it")]
    fn a_child_is_reaped_when_it_ends_by_notice_and_by_polling() {
        alone(
            "a_child_is_reaped_when_it_ends_by_notice_and_by_polling",
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
                        lingering.add_child(
                            pid,
                            by_pidfd.then(|| pidfd::open(pid).expect("pidfd")),
                            &mut poller,
                        );
                        assert_eq!(lingering.entries.len(), 1);
                        drop(child.stdin.take());
                        if by_pidfd {
                            serve(&mut lingering, &mut poller);
                        } else {
                            while !lingering.is_empty() {
                                lingering.poll_children(&mut poller);
                                std::thread::yield_now();
                            }
                        }
                        assert!(lingering.is_empty());
                        assert_eq!(
                            wait_child(ChildRef { pid, pidfd: None }, CollectMode::Reap),
                            WaitResult::NotChild
                        );
                    }
                }
            },
        );
    }
}
