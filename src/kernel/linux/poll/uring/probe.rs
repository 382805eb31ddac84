//! The self-test of a new ring. A filter, a setting or an older kernel may refuse any operation, or
//! do it differently, so each is tried; the kernel's release says nothing about that.

use super::read::{RingRead, RingReads};
use super::refusal::Refusal;
use super::ring::Uring;
use crate::kernel::linux::clock;
use crate::kernel::linux::poll::event::{Interest, Key, Ready};
use crate::types::{Errno, Ns};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

const BYTES: usize = 4096;
/// Timeout of the wait that finds nothing.
const PAUSE: Ns = Ns(50_000);
/// Timeout of a wait whose event has happened already; reached only on a ring that does not work.
const PATIENCE: Ns = Ns::from_millis(200);

/// Tries every operation that is needed. Nothing is watched when it returns.
pub(super) fn try_out(ring: &mut Uring) -> Result<(), Refusal> {
    let made = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(Errno::from);
    let (reader, writer) = made.map_err(Refusal::failed("a pipe to try it on"))?;
    // One page is enough. If the kernel refuses to shrink the pipe, the test works all the same.
    let _ = fcntl_setpipe_size(&reader, BYTES);
    try_reads(ring, reader.as_fd(), &writer)?;
    try_removal(ring, reader.as_fd(), &writer)
}

fn try_reads(ring: &mut Uring, reader: BorrowedFd<'_>, writer: &OwnedFd) -> Result<(), Refusal> {
    if read(ring, reader) != Err(Errno::from_raw(libc::EAGAIN)) {
        return Err(Refusal::unexpected(
            "a read of an empty pipe does not say so",
        ));
    }
    ring.add(reader, Key::Alarm, Interest::Read)
        .map_err(Refusal::failed("a poll"))?;
    let begin = clock::instant();
    if wait(ring, PAUSE)?.is_some() {
        return Err(Refusal::unexpected(
            "a poll of an empty pipe finds something",
        ));
    }
    if begin.elapsed() < PAUSE.to_duration() || begin.elapsed() > Duration::from_secs(10) {
        return Err(Refusal::unexpected("a wait with a limit does not keep it"));
    }
    rustix::io::write(writer, &[7; BYTES])
        .map_err(|e| Refusal::failed("a pipe to try it on")(e.into()))?;
    match wait(ring, PATIENCE)? {
        Some(Ready {
            key: Key::Alarm,
            hung_up: false,
        }) => {}
        Some(_) | None => return Err(Refusal::unexpected("a poll of a full pipe finds nothing")),
    }
    // A read arms the poll again; there is nothing to report yet.
    if read(ring, reader) != Ok(BYTES) {
        return Err(Refusal::unexpected(
            "a read of a full pipe does not bring what is there",
        ));
    }
    match wait(ring, Ns::ZERO)? {
        Some(_) => Err(Refusal::unexpected(
            "a poll after a read finds what was read",
        )),
        None => Ok(()),
    }
}

/// A removed poll must have ended, since only then has it released the open file. Whether the pipe
/// is closed thereby cannot be observed here: a child of another thread that has not called exec
/// yet may hold copies of its descriptors.
fn try_removal(ring: &mut Uring, reader: BorrowedFd<'_>, writer: &OwnedFd) -> Result<(), Refusal> {
    if !ring.remove_and_confirm(reader) {
        return Err(Refusal::unexpected("a poll that was removed does not end"));
    }
    rustix::io::write(writer, &[7])
        .map_err(|e| Refusal::failed("a pipe to try it on")(e.into()))?;
    match wait(ring, Ns::ZERO)? {
        Some(_) => Err(Refusal::unexpected(
            "a poll that was removed finds something",
        )),
        None => Ok(()),
    }
}

/// A read into two buffers, as the reactor's reads are.
fn read(ring: &mut Uring, fd: BorrowedFd<'_>) -> Result<usize, Errno> {
    let (mut room, mut spare) = ([0; 16], [0; BYTES]);
    let got = {
        let mut reads = RingReads::new();
        reads.push(RingRead {
            fd,
            into: [IoSliceMut::new(&mut room), IoSliceMut::new(&mut spare)],
            rearm: true,
            got: None,
        });
        ring.read(&mut reads);
        reads.pop().and_then(|read| read.got)
    };
    match got.unwrap_or(Err(Errno::from_raw(libc::EIO))) {
        Ok(n) if room.iter().chain(&spare).take(n).any(|byte| *byte != 7) => {
            Err(Errno::from_raw(libc::EILSEQ))
        }
        got => got,
    }
}

fn wait(ring: &mut Uring, timeout: Ns) -> Result<Option<Ready>, Refusal> {
    let mut ready = Vec::with_capacity(2);
    let begin = clock::instant();
    loop {
        let whole = ring
            .wait(Some(timeout), &mut ready)
            .map_err(Refusal::failed("a wait"))?;
        // After a signal it is tried again, until the timeout.
        if whole || !ready.is_empty() || begin.elapsed() > timeout.to_duration() {
            return Ok(ready.pop());
        }
    }
}
