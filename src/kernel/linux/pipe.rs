//! Pipes: made close-on-exec, our end non-blocking, the child's end blocking.

use crate::error::Errno;
use crate::kernel::{Got, ReadOp};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{read, readv};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use std::io::IoSliceMut;
use std::os::fd::{BorrowedFd, OwnedFd};

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

/// One read into the rest of the stream's block, then the spare. `hung_up` is what the poll set has said of this stream; it is
/// taken back when the read shows that somebody can write again (a pipe can be opened anew through /proc).
pub(crate) fn read_into(fd: BorrowedFd<'_>, op: &mut ReadOp, hung_up: &mut bool) -> Got {
    let spare = op.spare.bytes_mut();
    let room: &mut [u8] = match &mut op.room {
        // A block cannot be fuller than it is long; `get_mut` answers `None` then, and nothing is read into it.
        Some((block, used)) => block.bytes_mut().get_mut(*used as usize..).unwrap_or_default(),
        None => &mut [],
    };
    let asked = room.len() + spare.len();
    let result = loop {
        let result = if room.is_empty() {
            read(fd, &mut *spare)
        } else {
            readv(fd, &mut [IoSliceMut::new(&mut *room), IoSliceMut::new(&mut *spare)])
        };
        match result {
            Err(rustix::io::Errno::INTR) => {}
            result => break result,
        }
    };
    match result {
        Ok(0) => Got::End,
        Ok(n) => Got::Data { n, hot: n == asked || *hung_up },
        Err(rustix::io::Errno::AGAIN) => {
            *hung_up = false;
            Got::Empty
        }
        Err(e) => Got::Failed(e.into()),
    }
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
    use super::*;
    use crate::capture::Pool;
    use crate::limits::BLOCK;
    use crate::token::{Slot, Token, What};
    use crate::words::Stream;
    use rustix::fs::fcntl_getfl;
    use rustix::io::{FdFlags, fcntl_getfd};
    use std::os::fd::AsFd;

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
    }

    #[test]
    fn a_stream_whose_hang_up_was_told_is_hot_until_it_is_read_out() {
        let mut pool = Pool::new(1 << 20);
        let pipe = Pipe::from_child(None).expect("pipe");
        let (mut op, mut hung_up) = (op(&mut pool, None), true);
        rustix::io::write(&pipe.childs, b"x").expect("write");
        assert_eq!(read_into(pipe.ours.as_fd(), &mut op, &mut hung_up), Got::Data { n: 1, hot: true });
        assert_eq!(read_into(pipe.ours.as_fd(), &mut op, &mut hung_up), Got::Empty);
        assert!(!hung_up, "somebody can write: the hang-up was taken back");
    }

    #[test]
    fn what_is_thrown_away_is_bounded_and_the_end_is_told() {
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
    }
}
