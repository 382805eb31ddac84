//! Pipes: made close-on-exec, our end non-blocking, the child's end blocking.

use super::table::Table;
use super::uring::{Read, Reads, Uring};
use crate::error::Errno;
use crate::kernel::{Batch, Got, ReadOp};
use crate::limits::BATCH;
use arrayvec::ArrayVec;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{read, readv, retry_on_intr};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A new pipe, by whose end is whose.
#[derive(Debug)]
pub(crate) struct Pipe {
    /// Non-blocking.
    pub ours: OwnedFd,
    /// Blocking, as programs expect of what they are started with.
    pub childs: OwnedFd,
}

impl Pipe {
    /// A pipe that the child writes. `size` is the capacity to ask for, in bytes.
    ///
    /// A refused size is no error: the pipes of one user share a limit (/proc/sys/fs/pipe-user-pages-soft).
    pub(crate) fn from_child(size: Option<u32>) -> Result<Pipe, Errno> {
        let (ours, childs) = pipe_with(PipeFlags::CLOEXEC)?;
        set_nonblocking(&ours)?;
        if let Some(size) = size {
            let _ = fcntl_setpipe_size(&ours, usize::try_from(size).unwrap_or(usize::MAX));
        }
        Ok(Pipe { ours, childs })
    }

    /// A pipe that the child reads.
    pub(crate) fn to_child() -> Result<Pipe, Errno> {
        let (childs, ours) = pipe_with(PipeFlags::CLOEXEC)?;
        set_nonblocking(&ours)?;
        Ok(Pipe { ours, childs })
    }
}

/// The two ends of a pipe are two open files: the flag of one is not the other's. A new one has no other flag that can be set.
fn set_nonblocking(fd: &OwnedFd) -> Result<(), Errno> {
    Ok(fcntl_setfl(fd, OFlags::NONBLOCK)?)
}

/// Where a read goes: the rest of the stream's block, then the spare.
pub(crate) fn room_and_spare(op: &mut ReadOp) -> [IoSliceMut<'_>; 2] {
    let room: &mut [u8] = match &mut op.room {
        // A block cannot be fuller than it is long; `get_mut` answers `None` then, and nothing is read into it.
        Some((block, used)) => block.bytes_mut().get_mut(*used as usize..).unwrap_or_default(),
        None => &mut [],
    };
    [IoSliceMut::new(room), IoSliceMut::new(op.spare.bytes_mut())]
}

/// One read into the rest of the stream's block, then the spare.
pub(crate) fn read_into(fd: BorrowedFd<'_>, op: &mut ReadOp, hung_up: &mut bool) -> Got {
    let mut into = room_and_spare(op);
    let asked = into[0].len() + into[1].len();
    let result = retry_on_intr(|| match &mut into {
        [room, spare] if room.is_empty() => read(fd, &mut **spare),
        into => readv(fd, into),
    });
    judge(result.map_err(Errno::from), asked, hung_up)
}

/// What a read means that asked for so many bytes. `hung_up` is what the poll set has said of this stream; it is taken back when the
/// read shows that somebody can write again (a pipe can be opened anew through /proc).
pub(crate) fn judge(result: Result<usize, Errno>, asked: usize, hung_up: &mut bool) -> Got {
    match result {
        Ok(0) => Got::End,
        Ok(n) => Got::Data { n, hot: n == asked || *hung_up },
        Err(e) if e.raw() == libc::EAGAIN => {
            *hung_up = false;
            Got::Empty
        }
        Err(e) => Got::Failed(e),
    }
}

/// A batch in one call.
pub(crate) fn read_all(ring: &mut Uring, table: &mut Table, batch: &mut Batch) {
    let mut asked = ArrayVec::<(usize, usize), BATCH>::new();
    let mut reads = Reads::new();
    for (place, op) in batch.iter_mut().enumerate() {
        op.got = Got::Unasked;
        if let Some(reader) = table.reader_at(op.stream) {
            let into = room_and_spare(op);
            asked.push((place, into[0].len() + into[1].len()));
            // After a hang-up it is hot until it is read out: there is nothing to be told.
            reads.push(Read { fd: reader.fd.as_fd(), into, owed: !reader.hung_up, got: None });
        }
    }
    ring.read(&mut reads);
    let got: ArrayVec<_, BATCH> = reads.into_iter().map(|read| read.got).collect();
    for ((place, asked), got) in asked.into_iter().zip(got) {
        let (Some(op), Some(got)) = (batch.get_mut(place), got) else { continue };
        let Some(reader) = table.reader(op.stream) else { continue };
        let was_hung_up = reader.hung_up;
        op.got = judge(got, asked, &mut reader.hung_up);
        if was_hung_up && op.got == Got::Empty {
            ring.owe(reader.fd.as_fd());
        }
    }
    ring.settle();
}

/// Reads and throws away, at most `most` bytes. `true` when there may be more, `None` when the pipe has ended or failed.
pub(crate) fn throw_away(fd: BorrowedFd<'_>, scratch: &mut [u8], most: usize) -> Option<bool> {
    let mut read_so_far = 0;
    while read_so_far < most {
        match read(fd, &mut *scratch) {
            Ok(0) => return None,
            Ok(n) => read_so_far += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => return Some(false),
            Err(_) => return None,
        }
    }
    Some(true)
}

#[cfg(test)]
mod tests {
    // Alone in a process: between clone and exec a neighbour's child holds copies of every pipe of the process.
    use super::*;
    use crate::capture::Pool;
    use crate::kernel::linux::again::alone;
    use crate::limits::BLOCK;
    use crate::token::{Slot, Token, What};
    use crate::words::Stream;
    use rustix::fs::fcntl_getfl;
    use rustix::io::{FdFlags, fcntl_getfd};

    fn op(pool: &mut Pool, room: Option<u32>) -> ReadOp {
        let stream = Token::new(Slot(0), 1, What::Output(Stream::Stdout));
        ReadOp { stream, room: room.map(|used| (pool.take(1), used)), spare: pool.take(BLOCK), got: Got::Unasked }
    }

    #[test]
    fn our_end_alone_is_nonblocking_and_both_close_on_exec() {
        for pipe in [Pipe::from_child(None).expect("pipe"), Pipe::to_child().expect("pipe")] {
            assert!(fcntl_getfl(&pipe.ours).expect("flags").contains(OFlags::NONBLOCK));
            assert!(!fcntl_getfl(&pipe.childs).expect("flags").contains(OFlags::NONBLOCK));
            for end in [&pipe.ours, &pipe.childs] {
                assert!(fcntl_getfd(end).expect("flags").contains(FdFlags::CLOEXEC));
            }
        }
    }

    #[test]
    fn a_capacity_is_asked_for_and_its_refusal_is_no_error() {
        let pipe = Pipe::from_child(Some(4096)).expect("pipe");
        assert_eq!(rustix::pipe::fcntl_getpipe_size(&pipe.ours).expect("size"), 4096);
        assert!(Pipe::from_child(Some(u32::MAX)).is_ok());
    }

    #[test]
    fn room_is_filled_before_the_spare_and_a_full_read_is_hot() {
        alone("room_is_filled_before_the_spare_and_a_full_read_is_hot", module_path!(), || {
            let mut pool = Pool::new(1 << 20);
            let pipe = Pipe::from_child(Some(1 << 17)).expect("pipe");
            let mut op = op(&mut pool, Some(4094));
            let mut hung_up = false;
            assert_eq!(read_into(pipe.ours.as_fd(), &mut op, &mut hung_up), Got::Empty);
            rustix::io::write(&pipe.childs, b"abcd").expect("write");
            assert_eq!(read_into(pipe.ours.as_fd(), &mut op, &mut hung_up), Got::Data { n: 4, hot: false });
            let (block, _) = op.room.as_ref().expect("room");
            assert_eq!((&block.bytes()[4094..], &op.spare.bytes()[..2]), (&b"ab"[..], &b"cd"[..]));

            let many = vec![7; BLOCK + 2];
            assert_eq!(rustix::io::write(&pipe.childs, &many).expect("write"), many.len());
            assert_eq!(read_into(pipe.ours.as_fd(), &mut op, &mut hung_up), Got::Data { n: many.len(), hot: true });
            drop(pipe.childs);
            assert_eq!(read_into(pipe.ours.as_fd(), &mut op, &mut hung_up), Got::End);
        });
    }

    #[test]
    fn a_stream_whose_hang_up_was_told_is_hot_until_it_is_read_out() {
        alone("a_stream_whose_hang_up_was_told_is_hot_until_it_is_read_out", module_path!(), || {
            let mut pool = Pool::new(1 << 20);
            let pipe = Pipe::from_child(None).expect("pipe");
            let (mut op, mut hung_up) = (op(&mut pool, None), true);
            rustix::io::write(&pipe.childs, b"x").expect("write");
            assert_eq!(read_into(pipe.ours.as_fd(), &mut op, &mut hung_up), Got::Data { n: 1, hot: true });
            assert_eq!(read_into(pipe.ours.as_fd(), &mut op, &mut hung_up), Got::Empty);
            assert!(!hung_up, "somebody can write: the hang-up was taken back");
        });
    }

    #[test]
    fn what_is_thrown_away_is_bounded_and_the_end_is_told() {
        alone("what_is_thrown_away_is_bounded_and_the_end_is_told", module_path!(), || {
            let mut pool = Pool::new(1 << 20);
            let pipe = Pipe::from_child(None).expect("pipe");
            let mut scratch = [0; 16];
            rustix::io::write(&pipe.childs, &[1; 40]).expect("write");
            assert_eq!(throw_away(pipe.ours.as_fd(), &mut scratch, 32), Some(true));
            assert_eq!(throw_away(pipe.ours.as_fd(), &mut scratch, 32), Some(false));
            drop(pipe.childs);
            assert_eq!(throw_away(pipe.ours.as_fd(), &mut scratch, 32), None);
            let mut op = op(&mut pool, Some(4096));
            assert_eq!(read_into(pipe.ours.as_fd(), &mut op, &mut false), Got::End, "a full block leaves the spare");
        });
    }
}
