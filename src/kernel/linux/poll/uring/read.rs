//! Reads: a batch in one call, each followed by the poll of its stream, all of them over when the
//! call returns.

use super::Uring;
use super::watches::{Answer, NUMBERS, Name};
use crate::types::limits::BATCH;
use crate::types::{Errno, Ns};
use arrayvec::ArrayVec;
use io_uring::{opcode, types};
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, BorrowedFd};

/// One read of a batch.
#[derive(Debug)]
pub(crate) struct Read<'a> {
    /// Of what.
    pub fd: BorrowedFd<'a>,
    /// Where to: filled in this order. The first may be empty.
    pub into: [IoSliceMut<'a>; 2],
    /// A notice is owed after it.
    pub owed: bool,
    /// What it brought.
    pub got: Option<Result<usize, Errno>>,
}

/// Reads of one call.
pub(crate) type Reads<'a> = ArrayVec<Read<'a>, BATCH>;

impl Uring {
    /// Does all of them, in their order. Each has its answer when it returns, and nothing of it is
    /// left with the kernel.
    pub(crate) fn read(&mut self, reads: &mut Reads<'_>) {
        if reads.is_empty() {
            return;
        }
        self.call = (self.call + 1) & NUMBERS;
        let call = self.call;
        for (place, read) in (0..).zip(reads.iter_mut()) {
            self.push_read(read, Name::Read { call, place });
            if read.owed {
                self.owe(read.fd);
            }
        }
        self.submit();
        while !self.take_reads(call, reads) {
            if self.broken.is_some() {
                // Nothing that is still queued will ever be submitted.
                break;
            }
            // The ring is full, or the kernel has no memory for the request. Neither is for ever.
            self.spill(|answer| fill(reads, call, answer));
            self.sleep(1, Some(Ns::from_millis(1)));
        }
        read_otherwise(reads);
        if !self.spilled.is_empty() {
            self.settle();
        }
    }

    fn push_read(&mut self, read: &mut Read<'_>, name: Name) {
        let [room, _] = &read.into;
        let (into, count) = if room.is_empty() {
            (&mut read.into[1..], 1)
        } else {
            (&mut read.into[..], 2)
        };
        // `IoSliceMut` has the layout of an iovec. Read from where the pipe stands: there is no
        // other place.
        let request = opcode::Readv::new(
            types::Fd(read.fd.as_raw_fd()),
            into.as_mut_ptr().cast::<libc::iovec>(),
            count,
        );
        self.push(
            request
                .offset(u64::MAX)
                .rw_flags(libc::RWF_NOWAIT)
                .build()
                .user_data(name.bits()),
        );
    }

    /// Looks for their answers. What others wait for stays in the ring, and everything behind it.
    /// True when all are there.
    fn take_reads(&mut self, call: u32, reads: &mut Reads<'_>) -> bool {
        let (mut nobodys, mut is_nobodys) = (0, true);
        self.peek(|watches, answer| {
            if watches.note(answer) {
                is_nobodys = false;
            } else {
                fill(reads, call, answer);
            }
            nobodys += usize::from(is_nobodys);
        });
        for _ in 0..nobodys {
            self.next_in_ring();
        }
        reads.iter().all(|read| read.got.is_some())
    }
}

fn fill(reads: &mut Reads<'_>, call: u32, answer: Answer) {
    let Name::Read {
        call: answered,
        place,
    } = answer.name
    else {
        return;
    };
    if answered == call
        && let Some(read) = reads.get_mut(place as usize)
    {
        read.got = Some(
            usize::try_from(answer.result)
                .map_err(|_| Errno::from_raw(answer.result.wrapping_neg())),
        );
    }
}

/// Those that the ring had no answer to, or that a signal came before: without it, one by one.
fn read_otherwise(reads: &mut Reads<'_>) {
    let is_open = |read: &&mut Read<'_>| {
        read.got
            .is_none_or(|got| got == Err(Errno::from_raw(libc::EINTR)))
    };
    for read in reads.iter_mut().filter(is_open) {
        read.got = Some(
            rustix::io::retry_on_intr(|| rustix::io::readv(read.fd, &mut read.into))
                .map_err(Errno::from),
        );
    }
}
