//! Reads of a batch in one system call, each with the poll of its stream. All have ended when the
//! call returns.

use super::Uring;
use super::registrations::{Completion, SERIAL_MASK, UserData};
use crate::types::limits::BATCH;
use crate::types::{Errno, Ns};
use arrayvec::ArrayVec;
use io_uring::{opcode, types};
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, BorrowedFd};

/// One read that a ring is to do.
#[derive(Debug)]
pub(crate) struct RingRead<'a> {
    pub fd: BorrowedFd<'a>,
    /// The buffers, filled in this order. The first may be empty.
    pub into: [IoSliceMut<'a>; 2],
    /// Arm the poll of the stream after the read.
    pub rearm: bool,
    /// The result, once there is one.
    pub got: Option<Result<usize, Errno>>,
}

/// The reads of one batch.
pub(crate) type RingReads<'a> = ArrayVec<RingRead<'a>, BATCH>;

impl Uring {
    /// Does all reads, in their order. Each has its result when this returns.
    pub(crate) fn read(&mut self, reads: &mut RingReads<'_>) {
        if reads.is_empty() {
            return;
        }
        self.call = (self.call + 1) & SERIAL_MASK;
        let call = self.call;
        for (place, read) in (0..).zip(reads.iter_mut()) {
            self.push_read(read, UserData::Read { call, place });
            if read.rearm {
                self.rearm(read.fd);
            }
        }
        self.enter();
        while !self.take_reads(call, reads) {
            if self.broken.is_some() {
                // A broken ring never submits what is still queued.
                break;
            }
            // The ring is full, or the kernel has no memory for the request. Both pass.
            self.spill(|completion| fill(reads, call, completion));
            self.sleep(1, Some(Ns::from_millis(1)));
        }
        read_directly(reads);
        if !self.spilled.is_empty() {
            self.submit();
        }
    }

    fn push_read(&mut self, read: &mut RingRead<'_>, name: UserData) {
        let [room, _] = &read.into;
        let (into, count) = if room.is_empty() {
            (&mut read.into[1..], 1)
        } else {
            (&mut read.into[..], 2)
        };
        // `IoSliceMut` has the layout of an iovec. A pipe has no other offset than its present one.
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

    /// Fills in the results that are in the ring. Completions that others wait for, and all behind
    /// them, stay there. True when every read has its result.
    fn take_reads(&mut self, call: u32, reads: &mut RingReads<'_>) -> bool {
        let (mut nobodys, mut is_nobodys) = (0, true);
        self.peek(|registrations, completion| {
            if registrations.note(completion) {
                is_nobodys = false;
            } else {
                fill(reads, call, completion);
            }
            nobodys += usize::from(is_nobodys);
        });
        for _ in 0..nobodys {
            self.next_in_ring();
        }
        reads.iter().all(|read| read.got.is_some())
    }
}

fn fill(reads: &mut RingReads<'_>, call: u32, completion: Completion) {
    let UserData::Read {
        call: answered,
        place,
    } = completion.user_data
    else {
        return;
    };
    if answered == call
        && let Some(read) = reads.get_mut(place as usize)
    {
        read.got = Some(
            usize::try_from(completion.result)
                .map_err(|_| Errno::from_raw(completion.result.wrapping_neg())),
        );
    }
}

/// Does those reads directly that the ring has no result for, or that a signal interrupted.
fn read_directly(reads: &mut RingReads<'_>) {
    let is_open = |read: &&mut RingRead<'_>| {
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
