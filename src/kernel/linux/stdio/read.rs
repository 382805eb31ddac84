//! Pipes of a child's streams: making them and reading them.

use crate::kernel::linux::poll::uring::{RingRead, RingReads, Uring};
use crate::kernel::linux::table::{Reader, Table};
use crate::kernel::{Batch, ReadOp, ReadResult};
use crate::types::limits::BATCH;
use crate::types::{Errno, limits};
use arrayvec::ArrayVec;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{ioctl_fionread, read, readv, retry_on_intr};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};
use rustix::pipe::{PipeFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with};
use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A new pipe or pair of sockets. Both ends are close-on-exec.
#[derive(Debug)]
pub(crate) struct Pipe {
    /// The loop's end, non-blocking.
    pub host_end: OwnedFd,
    /// The child's end, blocking, as programs expect of their streams.
    pub child_end: OwnedFd,
}

impl Pipe {
    /// A pipe from the child to the host.
    pub(crate) fn from_child() -> Result<Pipe, Errno> {
        let (host_end, child_end) = pipe_with(PipeFlags::CLOEXEC)?;
        set_nonblocking(&host_end)?;
        Ok(Pipe {
            host_end,
            child_end,
        })
    }

    /// A pipe from the child of the requested capacity in bytes, and the capacity that it has.
    ///
    /// A refusal is no error. A process that is not root gets at most /proc/sys/fs/pipe-max-size
    /// (EPERM), and no more once the pipes of one user hold /proc/sys/fs/pipe-user-pages-soft
    /// (pipe(7)).
    pub(crate) fn of_capacity(size: u32) -> Result<(Pipe, Option<u32>), Errno> {
        let pipe = Pipe::from_child()?;
        let had = fcntl_setpipe_size(&pipe.host_end, usize::try_from(size).unwrap_or(usize::MAX));
        let had = had.or_else(|_| fcntl_getpipe_size(&pipe.host_end)).ok();
        Ok((pipe, had.and_then(|had| u32::try_from(had).ok())))
    }

    /// A pair of sockets, of which the child writes one.
    pub(crate) fn sockets() -> Result<Pipe, Errno> {
        let (host_end, child_end) = socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        set_nonblocking(&host_end)?;
        // A read of the child's end finds end of file.
        shutdown(&host_end, Shutdown::Write)?;
        Ok(Pipe {
            host_end,
            child_end,
        })
    }

    /// A pipe from the host to the child.
    pub(crate) fn to_child() -> Result<Pipe, Errno> {
        let (child_end, host_end) = pipe_with(PipeFlags::CLOEXEC)?;
        set_nonblocking(&host_end)?;
        Ok(Pipe {
            host_end,
            child_end,
        })
    }
}

/// The ends of a pipe are two open files, each with flags of its own. A new one has no other flag
/// that can be set.
fn set_nonblocking(fd: &OwnedFd) -> Result<(), Errno> {
    Ok(fcntl_setfl(fd, OFlags::NONBLOCK)?)
}

/// The buffers of a read: the rest of the stream's block, then the spare.
pub(crate) fn room_and_spare(op: &mut ReadOp) -> [IoSliceMut<'_>; 2] {
    let room: &mut [u8] = match &mut op.room {
        // A block cannot hold more than its length. If it did, `get_mut` would return `None`, and
        // nothing would be read into it.
        Some((block, used)) => block
            .bytes_mut()
            .get_mut(*used as usize..)
            .unwrap_or_default(),
        None => &mut [],
    };
    [IoSliceMut::new(room), IoSliceMut::new(op.spare.bytes_mut())]
}

/// Reads a stream that an edge-triggered poll set watches. Bytes that were there before the read
/// make no new edge, so a short read reports more unless the pipe is known to be empty.
pub(crate) fn read_edge_triggered(reader: &mut Reader, op: &mut ReadOp) -> ReadResult {
    let result = read_once(reader, op);
    match result {
        ReadResult::Data {
            n,
            more_available: false,
        } => ReadResult::Data {
            n,
            more_available: may_have_more_packets(reader.fd.as_fd(), n),
        },
        other => other,
    }
}

/// A writer that has set O_DIRECT (pipe(2)) makes packets of at most a page each, and a read
/// returns one packet, however many there are. So after a read of at most a page the pipe is asked.
fn may_have_more_packets(fd: BorrowedFd<'_>, n: usize) -> bool {
    n <= rustix::param::page_size() && ioctl_fionread(fd) != Ok(0)
}

/// Reads once into the rest of the stream's block, then into the spare.
fn read_once(reader: &mut Reader, op: &mut ReadOp) -> ReadResult {
    let fd = reader.fd.as_fd();
    let mut into = room_and_spare(op);
    let asked = into[0].len() + into[1].len();
    let result = retry_on_intr(|| match &mut into {
        [room, spare] if room.is_empty() => read(fd, &mut **spare),
        into => readv(fd, into),
    });
    interpret(result.map_err(Errno::from), asked, reader)
}

/// Interprets the result of a read of at most `asked` bytes. EAGAIN shows that somebody has a write
/// end again (a pipe can be opened anew through /proc), so an earlier hang-up does not count any
/// more.
pub(crate) fn interpret(
    result: Result<usize, Errno>,
    asked: usize,
    reader: &mut Reader,
) -> ReadResult {
    match result {
        Ok(0) => ReadResult::End,
        // A read of a socket stops behind a message that carried a descriptor, whatever follows.
        Ok(n) => ReadResult::Data {
            n,
            more_available: n == asked || reader.hung_up || reader.is_socket(),
        },
        Err(e) if e.raw() == libc::EAGAIN => {
            reader.hung_up = false;
            ReadResult::Empty
        }
        Err(e) => ReadResult::Failed(e),
    }
}

/// A single read, without the ring: a request of the ring costs more than the call.
fn read_single(ring: &mut Uring, table: &mut Table, op: &mut ReadOp) {
    op.result = ReadResult::Stale;
    let Some(reader) = table.reader(op.stream) else {
        return;
    };
    op.result = read_once(reader, op);
    match op.result {
        ReadResult::Empty
        | ReadResult::Data {
            more_available: false,
            ..
        } => ring.rearm(reader.fd.as_fd()),
        // The reactor reads it again, or closes it, without a notice.
        ReadResult::Data {
            more_available: true,
            ..
        }
        | ReadResult::End
        | ReadResult::Failed(_)
        | ReadResult::Stale => {}
    }
    ring.submit();
}

/// A batch of reads in one system call.
pub(crate) fn read_batch(ring: &mut Uring, table: &mut Table, batch: &mut Batch) {
    if let [op] = &mut batch[..] {
        return read_single(ring, table, op);
    }
    let mut asked = ArrayVec::<(usize, usize), BATCH>::new();
    let mut reads = RingReads::new();
    for (place, op) in batch.iter_mut().enumerate() {
        op.result = ReadResult::Stale;
        if let Some(reader) = table.reader_at(op.stream) {
            let into = room_and_spare(op);
            asked.push((place, into[0].len() + into[1].len()));
            // After a hang-up the stream is read to its end without further notices.
            reads.push(RingRead {
                fd: reader.fd.as_fd(),
                into,
                rearm: !reader.hung_up,
                got: None,
            });
        }
    }
    ring.read(&mut reads);
    let got: ArrayVec<_, BATCH> = reads.into_iter().map(|read| read.got).collect();
    for ((place, asked), got) in asked.into_iter().zip(got) {
        let (Some(op), Some(got)) = (batch.get_mut(place), got) else {
            continue;
        };
        let Some(reader) = table.reader(op.stream) else {
            continue;
        };
        let was_hung_up = reader.hung_up;
        op.result = interpret(got, asked, reader);
        if was_hung_up && op.result == ReadResult::Empty {
            ring.rearm(reader.fd.as_fd());
        }
    }
    ring.submit();
}

/// Shuts a socket down before it is closed, so that a writer gets EPIPE and SIGPIPE, as with a pipe
/// (one that sleeps in a write gets only the error). If it were closed with bytes unread, the
/// writer would get ECONNRESET and no signal.
pub(crate) fn shut_down_socket(fd: BorrowedFd<'_>) {
    // ENOTCONN means that the other end is closed.
    if shutdown(fd, Shutdown::Read).is_ok() {
        // No bytes are added any more, so this ends.
        let _ = discard(fd, &mut [0; 8 << 10], limits::PIPE_MAX as usize);
    }
}

/// Reads and discards at most `most` bytes. `Some(true)` if there may be more, `None` when the pipe
/// has ended or failed.
pub(crate) fn discard(fd: BorrowedFd<'_>, scratch: &mut [u8], most: usize) -> Option<bool> {
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
    // Each test that closes a pipe runs in a process of its own: between clone and exec, a child of
    // another test holds copies of all pipes.
    use super::*;
    use crate::capture::Pool;
    use crate::testing::isolation::alone;
    use crate::types::limits::BLOCK;
    use crate::types::{Slot, Stream, Token, TokenKind};
    use rustix::fs::fcntl_getfl;
    use rustix::io::{FdFlags, fcntl_getfd};
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    use std::mem::MaybeUninit;

    fn op(pool: &mut Pool, room: Option<u32>) -> ReadOp {
        let stream = Token::new(Slot(0), 1, TokenKind::Output(Stream::Stdout));
        ReadOp {
            stream,
            room: room.map(|used| (pool.take(1), used)),
            spare: pool.take(BLOCK),
            result: ReadResult::Stale,
        }
    }

    fn reader(fd: OwnedFd) -> Reader {
        Reader {
            fd,
            hung_up: false,
            ended: false,
            peer: 0,
        }
    }

    /// What follows a message that carried a descriptor makes no notice of its own.
    #[test]
    fn a_socket_is_hot_until_it_is_read_out_and_the_other_end_reads_nothing() {
        alone(
            "a_socket_is_hot_until_it_is_read_out_and_the_other_end_reads_nothing",
            module_path!(),
            || {
                let mut pool = Pool::new(1 << 20);
                let pipe = Pipe::sockets().expect("sockets");
                let (mut op, mut reader) = (
                    op(&mut pool, None),
                    Reader {
                        peer: 1,
                        ..reader(pipe.host_end)
                    },
                );
                assert_eq!(rustix::io::read(&pipe.child_end, &mut [0; 8]), Ok(0));
                let mut space = [MaybeUninit::uninit(); 64];
                let mut message = SendAncillaryBuffer::new(&mut space);
                let fds = [pipe.child_end.as_fd()];
                assert!(message.push(SendAncillaryMessage::ScmRights(&fds)));
                let sent = sendmsg(
                    &pipe.child_end,
                    &[std::io::IoSlice::new(b"ab")],
                    &mut message,
                    SendFlags::empty(),
                );
                assert_eq!(sent, Ok(2));
                assert_eq!(rustix::io::write(&pipe.child_end, b"cd"), Ok(2));
                assert_eq!(
                    read_edge_triggered(&mut reader, &mut op),
                    ReadResult::Data {
                        n: 2,
                        more_available: true
                    }
                );
                assert_eq!(
                    read_edge_triggered(&mut reader, &mut op),
                    ReadResult::Data {
                        n: 2,
                        more_available: true
                    }
                );
                assert_eq!(read_edge_triggered(&mut reader, &mut op), ReadResult::Empty);
                drop(pipe.child_end);
                assert_eq!(
                    read_edge_triggered(&mut reader, &mut op),
                    ReadResult::End,
                    "the descriptor in the message was closed when that was read"
                );
            },
        );
    }

    #[test]
    fn our_end_alone_is_nonblocking_and_both_close_on_exec() {
        for pipe in [
            Pipe::from_child().expect("pipe"),
            Pipe::sockets().expect("sockets"),
            Pipe::to_child().expect("pipe"),
        ] {
            assert!(
                fcntl_getfl(&pipe.host_end)
                    .expect("flags")
                    .contains(OFlags::NONBLOCK)
            );
            assert!(
                !fcntl_getfl(&pipe.child_end)
                    .expect("flags")
                    .contains(OFlags::NONBLOCK)
            );
            for end in [&pipe.host_end, &pipe.child_end] {
                assert!(fcntl_getfd(end).expect("flags").contains(FdFlags::CLOEXEC));
            }
        }
    }

    #[test]
    fn a_capacity_is_asked_for_and_its_refusal_is_no_error() {
        for (asked, had) in [(4096, 4096), (70_000, 1 << 17), (0, 4096)] {
            let (pipe, told) = Pipe::of_capacity(asked).expect("pipe");
            assert_eq!(
                (fcntl_getpipe_size(&pipe.host_end).expect("size"), told),
                (had, Some(had as u32))
            );
        }
        // More than any pipe can have.
        let (pipe, told) = Pipe::of_capacity(u32::MAX).expect("pipe");
        assert_eq!(
            fcntl_getpipe_size(&pipe.host_end).ok(),
            told.map(|told| told as usize)
        );
    }

    #[test]
    fn room_is_filled_before_the_spare_and_a_full_read_is_hot() {
        alone(
            "room_is_filled_before_the_spare_and_a_full_read_is_hot",
            module_path!(),
            || {
                let mut pool = Pool::new(1 << 20);
                let pipe = Pipe::of_capacity(1 << 17).expect("pipe").0;
                let mut op = op(&mut pool, Some(1022));
                let mut reader = reader(pipe.host_end);
                assert_eq!(read_edge_triggered(&mut reader, &mut op), ReadResult::Empty);
                rustix::io::write(&pipe.child_end, b"abcd").expect("write");
                assert_eq!(
                    read_edge_triggered(&mut reader, &mut op),
                    ReadResult::Data {
                        n: 4,
                        more_available: false
                    }
                );
                let (block, _) = op.room.as_ref().expect("room");
                assert_eq!(
                    (&block.bytes()[1022..], &op.spare.bytes()[..2]),
                    (&b"ab"[..], &b"cd"[..])
                );

                let many = vec![7; BLOCK + 2];
                assert_eq!(
                    rustix::io::write(&pipe.child_end, &many).expect("write"),
                    many.len()
                );
                assert_eq!(
                    read_edge_triggered(&mut reader, &mut op),
                    ReadResult::Data {
                        n: many.len(),
                        more_available: true
                    }
                );
                drop(pipe.child_end);
                assert_eq!(read_edge_triggered(&mut reader, &mut op), ReadResult::End);
            },
        );
    }

    #[test]
    fn a_stream_whose_hang_up_was_told_is_hot_until_it_is_read_out() {
        alone(
            "a_stream_whose_hang_up_was_told_is_hot_until_it_is_read_out",
            module_path!(),
            || {
                let mut pool = Pool::new(1 << 20);
                let pipe = Pipe::from_child().expect("pipe");
                let (mut op, mut reader) = (
                    op(&mut pool, None),
                    Reader {
                        hung_up: true,
                        ..reader(pipe.host_end)
                    },
                );
                rustix::io::write(&pipe.child_end, b"x").expect("write");
                assert_eq!(
                    read_edge_triggered(&mut reader, &mut op),
                    ReadResult::Data {
                        n: 1,
                        more_available: true
                    }
                );
                assert_eq!(read_edge_triggered(&mut reader, &mut op), ReadResult::Empty);
                assert!(
                    !reader.hung_up,
                    "somebody can write: the hang-up was taken back"
                );
            },
        );
    }

    #[test]
    fn what_is_thrown_away_is_bounded_and_the_end_is_told() {
        alone(
            "what_is_thrown_away_is_bounded_and_the_end_is_told",
            module_path!(),
            || {
                let mut pool = Pool::new(1 << 20);
                let pipe = Pipe::from_child().expect("pipe");
                let mut scratch = [0; 16];
                rustix::io::write(&pipe.child_end, &[1; 40]).expect("write");
                assert_eq!(discard(pipe.host_end.as_fd(), &mut scratch, 32), Some(true));
                assert_eq!(
                    discard(pipe.host_end.as_fd(), &mut scratch, 32),
                    Some(false)
                );
                drop(pipe.child_end);
                assert_eq!(discard(pipe.host_end.as_fd(), &mut scratch, 32), None);
                let mut op = op(&mut pool, Some(1024));
                assert_eq!(
                    read_edge_triggered(&mut reader(pipe.host_end), &mut op),
                    ReadResult::End,
                    "a full block leaves the spare"
                );
            },
        );
    }
}
