//! The poll set on io_uring, with one-shot polls for notices, and reads that have ended when the
//! call returns.
//!
//! The kernel never holds memory of the host: a poll holds the open file only, and a read is
//! submitted with RWF_NOWAIT, so that it ends inside the call that submits it. No operation that
//! could carry bytes is ever left to be cancelled.
//!
//! The code relies on the following, and the self-test of each new ring tries it:
//! * A poll checks the level when it is armed, so arming it after a read that found nothing misses
//!   nothing. A read and the poll of its stream go to the kernel in one call.
//! * close(2) with a poll under way leaves the pipe open, and the kernel accepts the writer's next
//!   write. So a poll is removed, and the removal is submitted, before a close takes effect.
//! * The kernel posts a completion in the context of the thread that armed the poll, and cancels
//!   the poll when that thread ends. The next wait then arms it again.
//! * Completions stay in the ring until a wait takes them, so that the ring's descriptor is
//!   readable while an event waits. Only when the ring overflows are they moved into memory; then a
//!   no-op keeps the descriptor readable.
//!
//! The ring uses COOP_TASKRUN. It does not use SINGLE_ISSUER, since a loop may be sent to another
//! thread, nor DEFER_TASKRUN, which does not wake an epoll that watches the ring. A host that
//! sleeps in epoll_wait(2) on the descriptor may see EINTR when a completion is posted.

mod probe;
mod read;
mod refusal;
mod registrations;
mod ring;

pub(crate) use read::{RingRead, RingReads};
pub(crate) use refusal::Refusal;
pub(crate) use ring::{COMPLETIONS, Uring};

/// A ring that holds so many completions, if everything that is needed of it works here.
pub(crate) fn open(completions: u32) -> Result<Uring, Refusal> {
    let mut ring = Uring::new(completions)?;
    probe::try_out(&mut ring)?;
    Ok(ring)
}
