//! Is the ring of any use here? Found by using it, not by the kernel's release: a filter, a setting
//! or an older kernel may refuse any part of it, or do it otherwise.

use super::{Interest, Key, Read, Reads, Uring};
use crate::kernel::linux::clock;
use crate::kernel::linux::poll::Ready;
use crate::types::{Errno, Ns};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use std::fmt;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Why there is no ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The part that did not work; nothing for the ring itself.
    what: Option<&'static str>,
    errno: Option<Errno>,
    /// /proc/sys/kernel/io_uring_disabled, if that is why.
    setting: Option<String>,
}

impl Refusal {
    /// There is no ring.
    pub(crate) fn refused(errno: Errno) -> Refusal {
        let setting = (errno.raw() == libc::EPERM)
            .then(|| std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled"));
        let setting = setting
            .and_then(Result::ok)
            .map(|text| text.trim().to_owned())
            .filter(|text| text != "0");
        Refusal {
            what: None,
            errno: Some(errno),
            setting,
        }
    }

    /// This part of it does not do what it should.
    fn surprise(what: &'static str) -> Refusal {
        Refusal {
            what: Some(what),
            errno: None,
            setting: None,
        }
    }

    fn failed(what: &'static str) -> impl Fn(Errno) -> Refusal {
        move |errno| Refusal {
            what: Some(what),
            errno: Some(errno),
            setting: None,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.what, self.errno) {
            (None, Some(errno)) => write!(f, "io_uring refused: {errno}")?,
            (Some(what), Some(errno)) => write!(f, "io_uring is of no use here: {what}: {errno}")?,
            (what, None) => write!(
                f,
                "io_uring is of no use here: {}",
                what.unwrap_or("nothing works")
            )?,
        }
        match &self.setting {
            Some(setting) => write!(f, " (kernel.io_uring_disabled = {setting})"),
            None => Ok(()),
        }
    }
}

const BYTES: usize = 4096;
/// What a wait for nothing sleeps.
const PAUSE: Ns = Ns(50_000);
/// What has happened is there at once; this bounds the damage of a ring that does not say so.
const PATIENCE: Ns = Ns::from_millis(200);

/// Tries everything that is needed. What it watched is gone when it returns.
pub(crate) fn try_out(ring: &mut Uring) -> Result<(), Refusal> {
    let made = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(Errno::from);
    let (reader, writer) = made.map_err(Refusal::failed("a pipe to try it on"))?;
    // No more than this has to fit; a refusal is no error.
    let _ = fcntl_setpipe_size(&reader, BYTES);
    try_reads(ring, reader.as_fd(), &writer)?;
    try_removal(ring, reader, &writer)
}

fn try_reads(ring: &mut Uring, reader: BorrowedFd<'_>, writer: &OwnedFd) -> Result<(), Refusal> {
    if read(ring, reader) != Err(Errno::from_raw(libc::EAGAIN)) {
        return Err(Refusal::surprise("a read of an empty pipe does not say so"));
    }
    ring.add(reader, Key::Alarm, Interest::Read)
        .map_err(Refusal::failed("a poll"))?;
    let begin = clock::instant();
    if wait(ring, PAUSE)?.is_some() {
        return Err(Refusal::surprise("a poll of an empty pipe finds something"));
    }
    if begin.elapsed() < PAUSE.to_duration() || begin.elapsed() > Duration::from_secs(10) {
        return Err(Refusal::surprise("a wait with a limit does not keep it"));
    }
    rustix::io::write(writer, &[7; BYTES])
        .map_err(|e| Refusal::failed("a pipe to try it on")(e.into()))?;
    match wait(ring, PATIENCE)? {
        Some(Ready {
            key: Key::Alarm,
            hung_up: false,
        }) => {}
        Some(_) | None => return Err(Refusal::surprise("a poll of a full pipe finds nothing")),
    }
    // It owes a notice: none is due yet.
    if read(ring, reader) != Ok(BYTES) {
        return Err(Refusal::surprise(
            "a read of a full pipe does not bring what is there",
        ));
    }
    match wait(ring, Ns::ZERO)? {
        Some(_) => Err(Refusal::surprise("a poll after a read finds what was read")),
        None => Ok(()),
    }
}

fn try_removal(ring: &mut Uring, reader: OwnedFd, writer: &OwnedFd) -> Result<(), Refusal> {
    ring.remove(reader.as_fd());
    ring.settle();
    drop(reader);
    let mut other_end = [PollFd::new(writer, PollFlags::OUT)];
    let polled = poll(&mut other_end, Some(&Timespec::default()));
    let [other_end] = other_end;
    if polled.is_err() || !other_end.revents().contains(PollFlags::ERR) {
        return Err(Refusal::surprise(
            "a poll that was removed keeps its pipe open",
        ));
    }
    match wait(ring, Ns::ZERO)? {
        Some(_) => Err(Refusal::surprise("a poll that was removed finds something")),
        None => Ok(()),
    }
}

/// Room and spare, as in earnest.
fn read(ring: &mut Uring, fd: BorrowedFd<'_>) -> Result<usize, Errno> {
    let (mut room, mut spare) = ([0; 16], [0; BYTES]);
    let got = {
        let mut reads = Reads::new();
        reads.push(Read {
            fd,
            into: [IoSliceMut::new(&mut room), IoSliceMut::new(&mut spare)],
            owed: true,
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
        // A signal came first: again, but not for ever.
        if whole || !ready.is_empty() || begin.elapsed() > timeout.to_duration() {
            return Ok(ready.pop());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_and_why() {
        let eperm = Errno::from_raw(libc::EPERM);
        let refusal = Refusal {
            what: None,
            errno: Some(eperm),
            setting: Some("2".into()),
        };
        assert_eq!(
            refusal.to_string(),
            "io_uring refused: Operation not permitted (EPERM) (kernel.io_uring_disabled = 2)"
        );
        assert_eq!(
            Refusal::failed("a wait")(eperm).to_string(),
            "io_uring is of no use here: a wait: Operation not permitted (EPERM)"
        );
        assert_eq!(
            Refusal::surprise("a poll finds nothing").to_string(),
            "io_uring is of no use here: a poll finds nothing"
        );
    }
}
