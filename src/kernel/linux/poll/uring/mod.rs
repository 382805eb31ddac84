//! The other poll set: io_uring, with one-shot polls for notices, and reads that are over when the
//! call returns.
//!
//! Nothing is ever with the kernel that owns memory of ours: a poll holds only the open file, and a
//! read is submitted with RWF_NOWAIT, so that it ends inside the call that submits it. There is
//! nothing to cancel that could carry bytes.
//!
//! What is there to know (each point tried, and tried again by the self-test of every ring that is
//! built):
//! * A poll is level-checked when it is armed, so arming it after a read that found nothing can
//!   miss nothing. Each read is followed by the poll of its stream in the same call.
//! * `close(2)` with a poll under way leaves the pipe open, and its writer's next write is
//!   accepted. So polls are taken out, and that has reached the kernel, before a close counts.
//! * The kernel notes an answer in the context of the thread that armed the poll, and cancels it
//!   when that thread ends: then it is armed again by whoever waits next.
//! * Answers stay in the ring until a wait takes them, so that the ring's descriptor is readable
//!   for as long as a notice waits. Only if the ring overflows they are moved into memory, and an
//!   answer to nothing keeps the descriptor readable.
//!
//! The ring is a plain one with COOP_TASKRUN: without SINGLE_ISSUER, since a loop may be sent to
//! another thread, and without DEFER_TASKRUN, which does not wake an epoll that watches the ring. A
//! host that sleeps in epoll_wait(2) on the descriptor may see EINTR when an answer comes.
#![expect(
    unsafe_code,
    reason = "submits requests, some of which point at memory"
)]

mod probe;
mod read;
mod watches;

pub(crate) use read::{Read, Reads};

use super::{Interest, Key, Ready};
use crate::types::{Errno, Ns};
use io_uring::{IoUring, opcode, squeue, types};
use probe::Refusal;
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;
use std::{fmt, io};
use watches::{Answer, NUMBERS, Name, Of, State, Told, Watch, Watches};

/// Requests that are submitted at once: a batch of reads and as many polls, and something over.
const SUBMISSIONS: u32 = 32;
/// Answers that the ring itself holds. More are kept by the kernel until there is room
/// (io_uring_setup(2), IORING_FEAT_NODROP).
pub(crate) const COMPLETIONS: u32 = 2048;
/// How long another thread may take to let go of what it has armed.
const LET_GO_WITHIN: Duration = Duration::from_millis(100);

/// One ring. Its descriptor never changes.
pub(crate) struct Uring {
    ring: IoUring,
    watches: Watches,
    /// Answers that the ring had no room for.
    spilled: VecDeque<Answer>,
    /// The last wait did not take everything.
    more: bool,
    serial: u32,
    call: u32,
    /// The ring cannot be entered any more, and is not tried again: what is still queued must
    /// never be submitted.
    broken: Option<Errno>,
}

impl Uring {
    /// A ring that holds so many answers, if everything that it is needed for works here.
    pub(crate) fn new(completions: u32) -> Result<Uring, Refusal> {
        let ring = IoUring::builder()
            .setup_cqsize(completions)
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .build(SUBMISSIONS.min(completions))
            .map_err(|e| Refusal::refused(Errno::from(&e)))?;
        let mut ring = Uring {
            ring,
            watches: Watches::default(),
            spilled: VecDeque::new(),
            more: false,
            serial: 0,
            call: 0,
            broken: None,
        };
        probe::try_out(&mut ring)?;
        Ok(ring)
    }

    /// Watches a descriptor from now on. How it stands is told at once. Allocates, if anything has
    /// to.
    pub(crate) fn add(
        &mut self,
        fd: BorrowedFd<'_>,
        key: Key,
        interest: Interest,
    ) -> Result<(), Errno> {
        self.broken.map_or(Ok(()), Err)?;
        let count = self.watches.put(fd.as_raw_fd(), Watch::new(key, interest));
        // Each watch has at most one answer: there is always room to spill.
        self.spilled
            .reserve(count.saturating_sub(self.spilled.len()));
        self.arm(fd.as_raw_fd(), Of::State);
        Ok(())
    }

    /// A notice is owed. One that is under way will do.
    pub(crate) fn owe(&mut self, fd: BorrowedFd<'_>) {
        self.arm(fd.as_raw_fd(), Of::State);
    }

    /// Notices of changes are owed.
    pub(crate) fn owe_changes(&mut self, fd: BorrowedFd<'_>) {
        self.arm(fd.as_raw_fd(), Of::Changes);
    }

    /// Watches it no more.
    pub(crate) fn remove(&mut self, fd: BorrowedFd<'_>) {
        let fd = fd.as_raw_fd();
        let Some(watch) = self.watches.take(fd) else {
            return;
        };
        self.push_removal(fd, &watch);
        if watch.state == State::Armed && watch.is_foreign(std::thread::current().id()) {
            self.settle();
            self.await_letting_go(watch.name(fd));
        }
    }

    /// The same for everything. (A ring that is closed lets go of what its polls hold, too, but
    /// only when a kernel thread comes to it.)
    pub(crate) fn remove_all(&mut self) {
        let watches = std::mem::take(&mut self.watches);
        watches.for_each(|fd, watch| self.push_removal(fd, watch));
        self.settle();
    }

    fn push_removal(&mut self, fd: RawFd, watch: &Watch) {
        if watch.state == State::Armed {
            let removal = opcode::PollRemove::new(watch.name(fd).bits()).build();
            self.push(
                removal
                    .flags(squeue::Flags::SKIP_SUCCESS)
                    .user_data(Name::Nobody.bits()),
            );
        }
    }

    fn arm(&mut self, fd: RawFd, of: Of) {
        let serial = self.next_serial();
        if let Some(watch) = self.watches.get_mut(fd)
            && watch.state == State::Idle
        {
            let poll = watch.arm(fd, serial, std::thread::current().id(), of);
            self.push(poll);
        }
    }

    fn next_serial(&mut self) -> u32 {
        self.serial = (self.serial + 1) & NUMBERS;
        self.serial
    }

    /// Queues a request; a queue that is full is submitted first.
    fn push(&mut self, request: squeue::Entry) {
        while self.broken.is_none() {
            // SAFETY: polls, removals and empty requests point at no memory; what a read points at
            // outlives it (read.rs).
            if unsafe { self.ring.submission().push(&request) }.is_ok() {
                return;
            }
            self.submit();
        }
    }

    /// Submits what is queued. What could not be submitted for want of memory stays queued.
    fn submit(&mut self) {
        if self.broken.is_none()
            && let Err(e) = self.ring.submit()
            && self.note_failure(&e)
        {
            std::thread::yield_now();
        }
    }

    /// What is queued reaches the kernel, and the descriptor is readable if anything waits to be
    /// taken.
    pub(crate) fn settle(&mut self) {
        if !self.spilled.is_empty() && self.ring.completion().is_empty() {
            self.push(opcode::Nop::new().build().user_data(Name::Nobody.bits()));
        }
        if !self.ring.submission().is_empty() {
            self.submit();
        }
    }

    /// `true` if it will pass: EAGAIN (no memory for a request), EBUSY (the ring is full of
    /// answers), EINTR.
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

    /// Sleeps until there is an answer, at most `timeout`; not at all if one is there. Makes no
    /// call where none is needed: the kernel notes answers whenever this thread makes any call.
    pub(crate) fn wait(
        &mut self,
        timeout: Option<Ns>,
        ready: &mut Vec<Ready>,
    ) -> Result<bool, Errno> {
        self.settle();
        let is_here = !self.spilled.is_empty() || !self.ring.completion().is_empty();
        let mut whole = true;
        if !is_here && timeout != Some(Ns::ZERO) {
            whole = self.sleep(1, timeout);
        } else if self.has_unnoted() {
            self.submit();
        }
        self.broken.map_or(Ok(()), Err)?;
        while ready.len() < ready.capacity()
            && let Some(answer) = self.next_answer()
        {
            match self.watches.take_answer(answer) {
                Told::Ready(one) => ready.push(one),
                Told::Lost(fd) => self.arm(fd, Of::State),
                Told::Stale => {}
            }
        }
        let is_full = ready.len() >= ready.capacity() && !self.ring.completion().is_empty();
        self.more = is_full || !self.spilled.is_empty() || self.ring.submission().cq_overflow();
        Ok(whole)
    }

    /// The kernel has answers that it has not put into the ring.
    fn has_unnoted(&mut self) -> bool {
        let queue = self.ring.submission();
        queue.taskrun() || queue.cq_overflow()
    }

    /// Enters the ring until there are `wanted` answers in it. `false` when a signal came first.
    fn sleep(&mut self, wanted: usize, timeout: Option<Ns>) -> bool {
        if self.broken.is_some() {
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
                e.raw_os_error() != Some(libc::EINTR)
            }
        }
    }

    fn next_answer(&mut self) -> Option<Answer> {
        self.spilled.pop_front().or_else(|| self.next_in_ring())
    }

    fn next_in_ring(&mut self) -> Option<Answer> {
        let entry = self.ring.completion().next()?;
        Some(Answer::new(&entry))
    }

    /// The last wait has left something behind. (What has come since does not count: it can wait
    /// for the next one.)
    pub(crate) fn has_more(&self) -> bool {
        self.more
    }

    /// Calls `look` for each answer in the ring, and leaves them there.
    fn peek(&mut self, mut look: impl FnMut(&mut Watches, Answer)) {
        let mut queue = self.ring.completion();
        for entry in &mut queue {
            look(&mut self.watches, Answer::new(&entry));
        }
        // Its drop would tell the kernel that they were taken.
        std::mem::forget(queue);
    }

    /// Makes room in the ring: answers that somebody waits for are kept here, the others are only
    /// looked at.
    fn spill(&mut self, mut look: impl FnMut(Answer)) {
        while let Some(answer) = self.next_in_ring() {
            look(answer);
            if self.watches.note(answer) {
                self.spilled.push_back(answer);
            }
        }
    }

    /// Waits until the thread that armed a poll has noted that it was removed: with the next thing
    /// it does, it lets go of the file. A thread comes to it as soon as it makes a system call,
    /// sleeps in one, or is interrupted.
    fn await_letting_go(&mut self, name: Name) {
        for _ in 0..LET_GO_WITHIN.as_millis() {
            let (mut unread, mut is_noted) = (0, false);
            self.peek(|_, answer| {
                unread += 1;
                is_noted |= answer.name == name;
            });
            if unread >= self.ring.completion().capacity() {
                self.spill(|_| {});
                unread = 0;
            }
            if is_noted || self.broken.is_some() {
                return;
            }
            self.sleep(unread + 1, Some(Ns::from_millis(1)));
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
        // SAFETY: the ring owns its descriptor, and is borrowed for as long as the answer.
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
