//! The ring itself: arming and removing polls, submitting, waiting, and taking completions.
#![expect(
    unsafe_code,
    reason = "submits requests, some of which point at memory"
)]

use super::refusal::Refusal;
use super::registrations::{
    Completion, PollMode, PollResult, Registration, Registrations, SERIAL_MASK, State, UserData,
};
use crate::kernel::linux::poll::event::{Interest, Key, Ready};
use crate::types::{Errno, Ns};
use io_uring::{IoUring, opcode, squeue, types};
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;
use std::{fmt, io};

/// Entries of the submission queue: a batch of reads with a poll each, and some more.
const SUBMISSIONS: u32 = 32;
/// Entries of the completion queue. The kernel keeps more until there is room
/// (io_uring_setup(2), IORING_FEAT_NODROP).
pub(crate) const COMPLETIONS: u32 = 2048;
/// How long another thread is waited for to release the file of a poll that it has armed.
const RELEASE_TIMEOUT: Duration = Duration::from_millis(100);

/// How often a temporary failure of io_uring_enter(2) is tried again at once.
const SUBMIT_ATTEMPTS: usize = 8;
/// Pause between two attempts to wait that fail temporarily.
const RETRY_PAUSE: Duration = Duration::from_millis(1);

#[cfg(test)]
type Injected = VecDeque<Errno>;
#[cfg(not(test))]
type Injected = ();

/// An io_uring that serves as the poll set and does the reads.
pub(crate) struct Uring {
    ring: IoUring,
    registrations: Registrations,
    /// Completions that the ring had no room for.
    pub(super) spilled: VecDeque<Completion>,
    /// The last wait left completions behind.
    more: bool,
    serial: u32,
    pub(super) call: u32,
    /// Requests that the last [`Uring::submit`] has left in the queue.
    queued: usize,
    /// Errors that the next attempts to enter the ring get, in tests.
    injected: Injected,
    /// The ring could not be entered. It is not entered again, because requests that are still
    /// queued may point at memory that is gone.
    pub(super) broken: Option<Errno>,
}

impl Uring {
    /// A new ring, not tried out.
    pub(super) fn new(completions: u32) -> Result<Uring, Refusal> {
        let ring = IoUring::builder()
            .setup_cqsize(completions)
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .build(SUBMISSIONS.min(completions))
            .map_err(|e| Refusal::refused(Errno::from(&e)))?;
        Ok(Uring {
            ring,
            registrations: Registrations::default(),
            spilled: VecDeque::new(),
            more: false,
            serial: 0,
            call: 0,
            queued: 0,
            injected: Injected::default(),
            broken: None,
        })
    }

    /// As [`crate::kernel::linux::poll::Poller::add`]. Allocates whatever later calls need.
    pub(crate) fn add(
        &mut self,
        fd: BorrowedFd<'_>,
        key: Key,
        interest: Interest,
    ) -> Result<(), Errno> {
        self.broken.map_or(Ok(()), Err)?;
        let count = self
            .registrations
            .put(fd.as_raw_fd(), Registration::new(key, interest));
        // Each registration has at most one completion, so there is always room to spill.
        self.spilled
            .reserve(count.saturating_sub(self.spilled.len()));
        self.arm(fd.as_raw_fd(), PollMode::OneShot);
        Ok(())
    }

    /// As [`crate::kernel::linux::poll::Poller::rearm`]. Does nothing while a poll is under way.
    pub(crate) fn rearm(&mut self, fd: BorrowedFd<'_>) {
        self.arm(fd.as_raw_fd(), PollMode::OneShot);
    }

    /// As [`crate::kernel::linux::poll::Poller::rearm_multishot`].
    pub(crate) fn rearm_multishot(&mut self, fd: BorrowedFd<'_>) {
        self.arm(fd.as_raw_fd(), PollMode::Multishot);
    }

    /// As [`crate::kernel::linux::poll::Poller::remove`].
    pub(crate) fn remove(&mut self, fd: BorrowedFd<'_>) {
        let fd = fd.as_raw_fd();
        let Some(registration) = self.registrations.take(fd) else {
            return;
        };
        self.push_poll_remove(fd, &registration);
        if registration.state == State::Armed
            && registration.is_foreign(std::thread::current().id())
        {
            self.submit();
            self.await_release(registration.name(fd));
        }
    }

    /// Ends every watch. (Closing the ring would do that too, but only when a kernel thread gets to
    /// it.)
    pub(crate) fn remove_all(&mut self) {
        let registrations = std::mem::take(&mut self.registrations);
        registrations.for_each(|fd, registration| self.push_poll_remove(fd, registration));
        self.submit();
    }

    fn push_poll_remove(&mut self, fd: RawFd, registration: &Registration) {
        if registration.state == State::Armed {
            let removal = opcode::PollRemove::new(registration.name(fd).bits()).build();
            self.push(
                removal
                    .flags(squeue::Flags::SKIP_SUCCESS)
                    .user_data(UserData::Ignored.bits()),
            );
        }
    }

    fn arm(&mut self, fd: RawFd, mode: PollMode) {
        let serial = self.next_serial();
        if let Some(registration) = self.registrations.get_mut(fd)
            && registration.state == State::Idle
        {
            let poll = registration.arm(fd, serial, std::thread::current().id(), mode);
            self.push(poll);
        }
    }

    fn next_serial(&mut self) -> u32 {
        self.serial = (self.serial + 1) & SERIAL_MASK;
        self.serial
    }

    /// Queues a request. A full queue is submitted first.
    pub(super) fn push(&mut self, request: squeue::Entry) {
        while self.broken.is_none() {
            // SAFETY: polls, removals and no-ops point at no memory; what a read points at outlives
            // it (read.rs).
            if unsafe { self.ring.submission().push(&request) }.is_ok() {
                return;
            }
            self.enter();
        }
    }

    /// Submits queued requests. A temporary failure is tried again a few times; if it lasts, the
    /// requests stay queued, and [`Uring::has_unsubmitted`] says so.
    pub(super) fn enter(&mut self) {
        for _ in 0..SUBMIT_ATTEMPTS {
            if self.broken.is_some() {
                return;
            }
            match self.try_enter() {
                Ok(()) => return,
                Err(e) if self.note_failure(&e) => std::thread::yield_now(),
                Err(_) => return,
            }
        }
    }

    fn try_enter(&mut self) -> io::Result<()> {
        self.injected_failure()?;
        self.ring.submit().map(|_| ())
    }

    /// Requests are queued that a temporary failure has kept from the kernel. The ring's descriptor
    /// cannot become ready for them, so the next wait must not be left to the host.
    pub(crate) fn has_unsubmitted(&self) -> bool {
        self.broken.is_none() && self.queued > 0
    }

    /// Submits queued requests, and makes the descriptor readable if a completion waits in memory.
    pub(crate) fn submit(&mut self) {
        if !self.spilled.is_empty() && self.ring.completion().is_empty() {
            self.push(
                opcode::Nop::new()
                    .build()
                    .user_data(UserData::Ignored.bits()),
            );
        }
        if !self.ring.submission().is_empty() {
            self.enter();
        }
        self.queued = self.ring.submission().len();
    }

    /// True for a temporary failure: EAGAIN and ENOMEM (no memory for a request), EBUSY (the ring
    /// is full of completions), EINTR. Any other breaks the ring.
    fn note_failure(&mut self, e: &io::Error) -> bool {
        let errno = Errno::from(e);
        let passes = matches!(
            errno.raw(),
            libc::EAGAIN | libc::EBUSY | libc::EINTR | libc::ETIME | libc::ENOMEM
        );
        if !passes {
            self.broken = Some(errno);
        }
        passes
    }

    /// As [`crate::kernel::linux::poll::Poller::wait`]. Makes no system call where none is needed:
    /// the kernel posts completions during any system call of this thread.
    pub(crate) fn wait(
        &mut self,
        timeout: Option<Ns>,
        ready: &mut Vec<Ready>,
    ) -> Result<bool, Errno> {
        self.submit();
        let is_here = !self.spilled.is_empty() || !self.ring.completion().is_empty();
        let mut whole = true;
        if !is_here && timeout != Some(Ns::ZERO) {
            whole = self.sleep(1, timeout);
        } else if self.has_deferred_completions() {
            self.enter();
        }
        self.broken.map_or(Ok(()), Err)?;
        while ready.len() < ready.capacity()
            && let Some(completion) = self.next_completion()
        {
            match self.registrations.take_completion(completion) {
                PollResult::Ready(one) => ready.push(one),
                PollResult::Lost(fd) => self.arm(fd, PollMode::OneShot),
                PollResult::Stale => {}
            }
        }
        let is_full = ready.len() >= ready.capacity() && !self.ring.completion().is_empty();
        self.more = is_full || !self.spilled.is_empty() || self.ring.submission().cq_overflow();
        Ok(whole)
    }

    /// The kernel has completions that it has not put into the ring.
    fn has_deferred_completions(&mut self) -> bool {
        let queue = self.ring.submission();
        queue.taskrun() || queue.cq_overflow()
    }

    /// Enters the ring until there are `wanted` completions in it. `false` if a signal interrupted
    /// it.
    pub(super) fn sleep(&mut self, wanted: usize, timeout: Option<Ns>) -> bool {
        if self.broken.is_some() {
            return true;
        }
        if let Err(e) = self.injected_failure() {
            self.note_failure(&e);
            return true;
        }
        let slept = match timeout {
            None => self.ring.submitter().submit_and_wait(wanted),
            Some(timeout) => {
                let limit = types::Timespec::from(timeout.to_duration());
                self.ring
                    .submitter()
                    .submit_with_args(wanted, &types::SubmitArgs::new().timespec(&limit))
            }
        };
        match slept {
            Ok(_) => true,
            Err(e) => {
                self.note_failure(&e);
                if matches!(
                    e.raw_os_error(),
                    Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM)
                ) {
                    // The kernel has not slept. The caller tries again until its own time is over.
                    std::thread::sleep(RETRY_PAUSE);
                }
                e.raw_os_error() != Some(libc::EINTR)
            }
        }
    }

    fn next_completion(&mut self) -> Option<Completion> {
        self.spilled.pop_front().or_else(|| self.next_in_ring())
    }

    pub(super) fn next_in_ring(&mut self) -> Option<Completion> {
        let entry = self.ring.completion().next()?;
        Some(Completion::new(&entry))
    }

    /// Whether the last wait has left completions behind. Later ones do not count: the next wait
    /// takes them.
    pub(crate) fn has_more(&self) -> bool {
        self.more
    }

    /// Calls `look` for each completion in the ring, and leaves them there.
    pub(super) fn peek(&mut self, mut look: impl FnMut(&mut Registrations, Completion)) {
        let mut queue = self.ring.completion();
        for entry in &mut queue {
            look(&mut self.registrations, Completion::new(&entry));
        }
        // Dropping the queue would tell the kernel that they were taken.
        std::mem::forget(queue);
    }

    /// Makes room in the ring. Completions of registrations are kept in memory, the others are only
    /// shown to `look`.
    pub(super) fn spill(&mut self, mut look: impl FnMut(Completion)) {
        while let Some(completion) = self.next_in_ring() {
            look(completion);
            if self.registrations.note(completion) {
                self.spilled.push_back(completion);
            }
        }
    }

    /// Waits until the thread that armed a removed poll has posted its completion, whereby it
    /// releases the file. True if it has done so in time. A thread does so as soon as it makes a
    /// system call, sleeps in one, or is interrupted.
    fn await_release(&mut self, name: UserData) -> bool {
        for _ in 0..RELEASE_TIMEOUT.as_millis() {
            let (mut unread, mut is_noted) = (0, false);
            self.peek(|_, completion| {
                unread += 1;
                is_noted |= completion.user_data == name;
            });
            if unread >= self.ring.completion().capacity() {
                self.spill(|_| {});
                unread = 0;
            }
            if is_noted || self.broken.is_some() {
                return is_noted;
            }
            self.sleep(unread + 1, Some(Ns::from_millis(1)));
        }
        false
    }

    /// Ends a watch whose poll is under way, and confirms that the poll has ended.
    pub(super) fn remove_and_confirm(&mut self, fd: BorrowedFd<'_>) -> bool {
        let fd = fd.as_raw_fd();
        let Some(registration) = self.registrations.take(fd) else {
            return false;
        };
        self.push_poll_remove(fd, &registration);
        self.submit();
        self.await_release(registration.name(fd))
    }
}

#[cfg(not(test))]
impl Uring {
    #[expect(clippy::unnecessary_wraps, reason = "fails in tests")]
    fn injected_failure(&mut self) -> io::Result<()> {
        let () = self.injected;
        Ok(())
    }
}

#[cfg(test)]
impl Uring {
    /// Makes the next attempts to enter the ring fail.
    pub(crate) fn inject(&mut self, errno: Errno, attempts: usize) {
        self.injected.extend(std::iter::repeat_n(errno, attempts));
    }

    fn injected_failure(&mut self) -> io::Result<()> {
        match self.injected.pop_front() {
            Some(errno) => Err(io::Error::from_raw_os_error(errno.raw())),
            None => Ok(()),
        }
    }
}

impl AsRawFd for Uring {
    fn as_raw_fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }
}

impl std::os::fd::AsFd for Uring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring owns its descriptor, and is borrowed for as long as the result.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}

impl fmt::Debug for Uring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uring")
            .field("fd", &self.ring.as_raw_fd())
            .field("broken", &self.broken)
            .finish_non_exhaustive()
    }
}
