//! io_uring as the poll set: refused, overflowing, moved between threads, and closed during writes.

use super::refused::{runs, three};
use crate::kernel::linux::poll::Poller;
use crate::kernel::linux::poll::uring::{self, RingRead, RingReads, Uring};
use crate::kernel::linux::tests::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::IoSliceMut;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;

const OPTIONS: LinuxOptions = LinuxOptions {
    orphans: crate::kernel::linux::Orphans::Leave,
    backend: BackendChoice::Uring,
    exit_source: ExitSourceChoice::Auto,
    group_signal: GroupSignal::Auto,
    fold_deadline: false,
    vfork: false,
};

/// A ring of so many completions. `None`, after printing the reason, where there is none.
fn ring(completions: u32) -> Option<Uring> {
    uring::open(completions)
        .inspect_err(|refusal| eprintln!("not tried: {refusal}"))
        .ok()
}

fn rig(completions: u32) -> Option<Rig> {
    let poller = Poller::Uring(Box::new(ring(completions)?));
    let mut rig = Rig::new(LinuxOptions::default());
    rig.linux = Linux::with(OPTIONS, (poller, Backend::Uring, "a test".into())).expect("a kernel");
    Some(rig)
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    rustix::io::retry_on_intr(|| poll(&mut fds, Some(&Timespec::default()))).expect("poll") > 0
}

#[test]
fn a_ring_that_is_asked_for_is_used_and_told() {
    let Some(_) = ring(8) else { return };
    let rig = Rig::new(OPTIONS);
    assert_eq!(
        (
            rig.linux.capabilities().backend,
            rig.linux.capabilities().backend_why.as_str()
        ),
        (Backend::Uring, "io_uring was asked for")
    );
    for (backend, why) in [
        (BackendChoice::Auto, "epoll is the default"),
        (BackendChoice::Epoll, "epoll was asked for"),
    ] {
        let rig = Rig::new(LinuxOptions { backend, ..OPTIONS });
        assert_eq!(
            (
                rig.linux.capabilities().backend,
                rig.linux.capabilities().backend_why.as_str()
            ),
            (Backend::Epoll, why)
        );
    }
}

/// CASES 44.
#[test]
fn a_refused_ring_is_epoll_and_the_reason_is_told() {
    alone(
        "a_refused_ring_is_epoll_and_the_reason_is_told",
        module_path!(),
        || {
            adopt_orphans();
            for (errno, text) in [
                (libc::EPERM, "Operation not permitted (EPERM)"),
                (libc::ENOSYS, "Function not implemented (ENOSYS)"),
            ] {
                refuse(&[libc::SYS_io_uring_setup], errno);
                let mut rig = Rig::new(OPTIONS);
                let capabilities = rig.linux.capabilities();
                assert_eq!(capabilities.backend, Backend::Epoll);
                assert!(
                    capabilities
                        .backend_why
                        .starts_with(&format!("io_uring refused: {text}")),
                    "{}",
                    capabilities.backend_why
                );
                assert_eq!(runs(&mut rig).0, three());
            }
        },
    );
}

/// CASES 44.
#[test]
fn a_ring_refused_to_the_second_loop_leaves_the_first_its_own() {
    alone(
        "a_ring_refused_to_the_second_loop_leaves_the_first_its_own",
        module_path!(),
        || {
            adopt_orphans();
            let Some(_) = ring(8) else { return };
            let mut first = Rig::new(OPTIONS);
            refuse(&[libc::SYS_io_uring_setup], libc::ENOMEM);
            let mut second = Rig::new(OPTIONS);
            assert_eq!(
                (
                    first.linux.capabilities().backend,
                    second.linux.capabilities().backend
                ),
                (Backend::Uring, Backend::Epoll)
            );
            assert!(
                second.linux.capabilities().backend_why.contains("ENOMEM"),
                "{}",
                second.linux.capabilities().backend_why
            );
            assert_eq!(runs(&mut first).0, three());
            assert_eq!(runs(&mut second).0, three());
        },
    );
}

#[test]
fn a_ring_that_can_be_made_and_not_entered_is_epoll() {
    alone(
        "a_ring_that_can_be_made_and_not_entered_is_epoll",
        module_path!(),
        || {
            let Some(_) = ring(8) else { return };
            refuse(&[libc::SYS_io_uring_enter], libc::EPERM);
            let before = descriptors();
            let mut rig = Rig::new(OPTIONS);
            assert_eq!(rig.linux.capabilities().backend, Backend::Epoll);
            assert!(
                rig.linux
                    .capabilities()
                    .backend_why
                    .starts_with("io_uring is of no use here: "),
                "{}",
                rig.linux.capabilities().backend_why
            );
            let token = rig.start(0, sh("echo x; exit 3"));
            assert_eq!(rig.exit(token, CollectMode::Reap).exit, three());
            rig.close(token);
            drop(rig);
            assert_eq!(descriptors(), before);
        },
    );
}

#[test]
fn a_ring_that_is_refused_later_ends_the_loop_and_loses_no_byte() {
    alone(
        "a_ring_that_is_refused_later_ends_the_loop_and_loses_no_byte",
        module_path!(),
        || {
            let Some(mut rig) = rig(64) else { return };
            let token = rig.start(0, sh("echo whole"));
            rig.exit(token, CollectMode::KeepZombie);
            refuse(&[libc::SYS_io_uring_enter], libc::EPERM);
            // Bytes that are there are read all the same, and once.
            assert_eq!(
                rig.read(token, Stream::Stdout),
                (
                    ReadResult::Data {
                        n: 6,
                        more_available: rig.hung_up(token)
                    },
                    b"whole\n".to_vec()
                )
            );
            assert_eq!(rig.read(token, Stream::Stdout).0, ReadResult::End);
            let until = rig.linux.now().after(LONG.into());
            let waited = rig.linux.wait(Until::At(until), &mut rig.notices);
            assert_eq!(waited, Err(WaitError::Failed(Errno::from_raw(libc::EPERM))));
            rig.close(token);
        },
    );
}

impl Rig {
    fn hung_up(&mut self, token: Token) -> bool {
        self.row(token).readers[Stream::Stdout.index()]
            .as_ref()
            .is_some_and(|reader| reader.hung_up)
    }
}

/// CASES 47.
#[test]
fn a_ring_of_four_answers_loses_none_of_twelve_children() {
    let Some(mut rig) = rig(4) else { return };
    for round in 0..20 {
        let tokens: Vec<Token> = (0..12)
            .map(|slot| {
                rig.start(
                    slot,
                    sh(&format!("seq 1 {}; echo e >&2; exit {slot}", 100 * round)),
                )
            })
            .collect();
        if round % 2 == 0 {
            // All children end before the first wait.
            for token in &tokens {
                let pid = rig.pid(*token);
                eventually("the child ends or waits for its reader", || {
                    !is_alive(pid) || round > 10
                });
            }
        }
        let mut out: Vec<Vec<u8>> = vec![Vec::new(); 24];
        let (mut open, mut ended) = (vec![true; 24], 0);
        while open.contains(&true) || ended < 12 {
            // Waits for a notice. After a wait that reported `more`, the next wait does not sleep.
            for notice in rig.wait() {
                match notice {
                    Notice::Exit(of) => {
                        let Collected::Ended(info) = rig.linux.collect(of, CollectMode::Reap)
                        else {
                            continue;
                        };
                        assert_eq!(info.exit.code, Some(of.slot().0 as i32));
                        ended += 1;
                    }
                    Notice::Outcome(of) => {
                        assert!(matches!(rig.linux.outcome(of), SpawnOutcome::Started))
                    }
                    _ => {}
                }
            }
            // In batches of eight, whether or not a stream has something.
            let all: Vec<usize> = (0..24).filter(|n| open[*n]).collect();
            for places in all.chunks(limits::BATCH) {
                for (place, got, bytes) in rig.read_batch(&tokens, places) {
                    out[place].extend(bytes);
                    if got == ReadResult::End {
                        open[place] = false;
                        rig.linux.close(
                            tokens[place / 2].with(TokenKind::Output(Stream::ALL[place % 2])),
                        );
                    }
                }
            }
        }
        let lines: String = (1..=100 * round).map(|n| format!("{n}\n")).collect();
        for (place, bytes) in out.iter().enumerate() {
            assert!(
                bytes
                    == if place % 2 == 0 {
                        lines.as_bytes()
                    } else {
                        b"e\n"
                    },
                "round {round}, stream {place}: {} bytes",
                bytes.len()
            );
        }
        for token in tokens {
            rig.close(token);
        }
    }
}

impl Rig {
    /// Reads each of these streams once, in one batch. A place is twice the number of the child,
    /// plus the stream's index.
    fn read_batch(
        &mut self,
        tokens: &[Token],
        places: &[usize],
    ) -> Vec<(usize, ReadResult, Vec<u8>)> {
        let mut batch = Batch::new();
        for place in places {
            let stream = tokens[place / 2].with(TokenKind::Output(Stream::ALL[place % 2]));
            batch.push(ReadOp {
                stream,
                room: None,
                spare: self.pool.take(limits::BLOCK),
                result: ReadResult::Stale,
            });
        }
        self.linux.read(&mut batch);
        let mut answers = Vec::new();
        for (place, op) in places.iter().zip(batch) {
            let n = if let ReadResult::Data { n, .. } = op.result {
                n
            } else {
                0
            };
            answers.push((*place, op.result, op.spare.bytes()[..n].to_vec()));
            self.pool.put(op.spare);
        }
        answers
    }
}

/// CASES 66.
#[test]
fn a_temporary_failure_to_enter_the_ring_leaves_no_watch_behind() {
    alone(
        "a_temporary_failure_to_enter_the_ring_leaves_no_watch_behind",
        module_path!(),
        || {
            for errno in [libc::EAGAIN, libc::EBUSY, libc::ENOMEM] {
                // Once, and more often than one call tries.
                for attempts in [1, 100] {
                    let Some(mut rig) = rig(64) else { return };
                    let token = rig.start(
                        0,
                        Plan {
                            stdin: StdinPlan::Feed,
                            ..sh("echo one; read x; echo two; read x")
                        },
                    );
                    rig.wait_for(Notice::Readable(
                        token.with(TokenKind::Output(Stream::Stdout)),
                    ));
                    let Poller::Uring(ring) = &mut rig.linux.inner.poller else {
                        panic!("a ring")
                    };
                    ring.inject(Errno::from_raw(errno), attempts);
                    // This read arms the poll of the stream. The child writes afterwards.
                    assert_eq!(rig.read(token, Stream::Stdout).1, b"one\n");
                    assert_eq!(
                        rig.linux.deadline() == Some(Ns::ZERO),
                        attempts > 1,
                        "what could not be submitted is due at once"
                    );
                    rig.linux.write(token.with(TokenKind::Stdin), b"\n");
                    assert_eq!(rig.line(token), "two");
                    // Each wait submits again.
                    for _ in 0..100 {
                        rig.peek();
                    }
                    assert_ne!(rig.linux.deadline(), Some(Ns::ZERO));
                    rig.linux.close(token.with(TokenKind::Stdin));
                    rig.exit(token, CollectMode::Reap);
                    rig.close(token);
                }
            }
        },
    );
}

/// CASES 68. A child of another thread that has not called exec yet has copies of all descriptors.
#[test]
fn the_self_test_of_a_ring_does_not_mind_copies_of_its_pipe() {
    alone(
        "the_self_test_of_a_ring_does_not_mind_copies_of_its_pipe",
        module_path!(),
        || {
            let Some(_) = ring(8) else { return };
            let done = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        #[expect(unsafe_code, reason = "a child that has not called exec")]
                        // SAFETY: the child only sleeps and ends.
                        let pid = unsafe { libc::fork() };
                        if pid == 0 {
                            thread::sleep(Duration::from_millis(2));
                            #[expect(unsafe_code, reason = "ends without running anything else")]
                            // SAFETY: as above.
                            unsafe {
                                libc::_exit(0)
                            };
                        }
                        #[expect(unsafe_code, reason = "waits for that child")]
                        // SAFETY: no status is asked for.
                        unsafe {
                            libc::waitpid(pid, std::ptr::null_mut(), 0)
                        };
                    }
                });
                let refusals: Vec<String> = (0..100)
                    .filter_map(|_| uring::open(8).err())
                    .map(|refusal| refusal.to_string())
                    .collect();
                done.store(true, Ordering::Relaxed);
                assert_eq!(refusals, Vec::<String>::new());
            });
        },
    );
}

#[test]
fn the_descriptor_stays_readable_when_the_ring_has_overflowed() {
    let Some(mut ring) = ring(4) else { return };
    let pipes: Vec<_> = (0..12)
        .map(|_| read::Pipe::from_child().expect("pipe"))
        .collect();
    for (n, pipe) in (0..).zip(&pipes) {
        ring.add(pipe.host_end.as_fd(), Key::Linger(n), Interest::Read)
            .expect("add");
    }
    ring.submit();
    let quiet = read::Pipe::from_child().expect("pipe");
    for pipe in &pipes {
        rustix::io::write(&pipe.child_end, b"x").expect("write");
    }
    // A read needs room in the ring for its completion.
    assert_eq!(
        read_once(&mut ring, quiet.host_end.as_fd(), &mut [0; 8]),
        Err(Errno::from_raw(libc::EAGAIN))
    );
    let (mut keys, mut ready) = (Vec::new(), Vec::with_capacity(5));
    for _ in 0..100 {
        if keys.len() < 12 {
            assert!(is_readable(ring.as_fd()), "{keys:?}");
        }
        ring.wait(Some(Ns::ZERO), &mut ready).expect("wait");
        keys.extend(ready.drain(..).map(|ready| ready.key));
        ring.submit();
    }
    keys.sort_by_key(|key| key.bits());
    assert_eq!(keys, (0..12).map(Key::Linger).collect::<Vec<_>>());
    assert!(!is_readable(ring.as_fd()));
}

fn read_once(ring: &mut Uring, fd: BorrowedFd<'_>, into: &mut [u8]) -> Result<usize, Errno> {
    let mut reads = RingReads::new();
    reads.push(RingRead {
        fd,
        into: [IoSliceMut::new(&mut []), IoSliceMut::new(into)],
        rearm: true,
        got: None,
    });
    ring.read(&mut reads);
    reads
        .pop()
        .and_then(|read| read.got)
        .expect("over when it returns")
}

/// CASES 45, 46. No read is ever armed, so no cancel can eat bytes: what is read is what was
/// written, from its first byte on without a gap, and a write that begins after the close is
/// refused. `LASTWORDS_RACES=100000` races as often as the row says.
#[test]
fn closing_while_somebody_writes_neither_eats_nor_accepts_a_byte() {
    // Children of other tests hold copies of the pipes until they call exec.
    alone(
        "closing_while_somebody_writes_neither_eats_nor_accepts_a_byte",
        module_path!(),
        || {
            let rounds = std::env::var("LASTWORDS_RACES")
                .ok()
                .map_or(4000, |n| n.parse().expect("LASTWORDS_RACES is a number"));
            let Some(mut ring) = ring(64) else { return };
            let (give, take) = channel::<(OwnedFd, Arc<(AtomicBool, AtomicU64)>)>();
            let writer = thread::spawn(move || {
                for (fd, shared) in take {
                    let mut next = 0_u8;
                    loop {
                        let is_closed = shared.0.load(Ordering::SeqCst);
                        let wrote = rustix::io::write(
                            &fd,
                            &[next, next.wrapping_add(1), next.wrapping_add(2)],
                        );
                        assert!(
                            !is_closed || wrote == Err(rustix::io::Errno::PIPE),
                            "after the close: {wrote:?}"
                        );
                        match wrote {
                            Ok(n) => {
                                next = next.wrapping_add(n as u8);
                                shared.1.fetch_add(n as u64, Ordering::SeqCst);
                            }
                            Err(e) => break assert_eq!(e, rustix::io::Errno::PIPE),
                        }
                    }
                    shared.1.fetch_or(1 << 63, Ordering::SeqCst);
                }
            });
            let mut some = 0;
            for round in 0..rounds {
                let pipe = read::Pipe::of_capacity(4096).expect("pipe").0;
                let shared = Arc::new((AtomicBool::new(false), AtomicU64::new(0)));
                ring.add(pipe.host_end.as_fd(), Key::Linger(round), Interest::Read)
                    .expect("add");
                ring.submit();
                give.send((pipe.child_end, Arc::clone(&shared)))
                    .expect("the thread runs");
                let (mut bytes, mut next) = ([0; 64], 0_u8);
                let mut total = 0;
                for _ in 0..round % 7 {
                    let n = read_once(&mut ring, pipe.host_end.as_fd(), &mut bytes).unwrap_or(0);
                    for byte in &bytes[..n] {
                        assert_eq!(*byte, next, "a gap");
                        next = next.wrapping_add(1);
                    }
                    total += n as u64;
                }
                some += u32::from(total > 0);
                ring.remove(pipe.host_end.as_fd());
                ring.submit();
                drop(pipe.host_end);
                shared.0.store(true, Ordering::SeqCst);
                eventually("the writer is told", || {
                    shared.1.load(Ordering::SeqCst) >> 63 == 1
                });
                let written = shared.1.load(Ordering::SeqCst) & !(1 << 63);
                assert!(
                    total <= written && written - total <= 4096,
                    "{total} of {written}"
                );
            }
            drop(give);
            writer
                .join()
                .expect("no write was accepted after its close");
            println!("{rounds} closes raced with a writer, {some} with bytes read before");
            assert!(
                some > rounds / 10,
                "hardly a byte was there to be read: {some}"
            );
        },
    );
}

#[test]
fn polls_of_a_thread_that_has_ended_are_armed_again() {
    let Some(mut rig) = rig(64) else { return };
    let child = Plan {
        stdin: StdinPlan::Feed,
        ..sh("read x; echo $x; exit 3")
    };
    let (mut rig, token) = thread::spawn(move || {
        let token = rig.start(0, child);
        assert!(matches!(rig.outcome(token), SpawnOutcome::Started));
        rig.peek();
        (rig, token)
    })
    .join()
    .expect("a child");
    assert_eq!(
        rig.linux.write(token.with(TokenKind::Stdin), b"hello\n"),
        Wrote::Took(6)
    );
    assert_eq!(rig.line(token), "hello");
    assert_eq!(rig.exit(token, CollectMode::Reap).exit, three());
    rig.linux.waker().wake();
    rig.wait_for(Notice::Woken);
    rig.close(token);
}

/// Waits until a thread of this process sleeps in the kernel.
fn until_asleep(thread: rustix::process::Pid) {
    let path = format!("/proc/self/task/{thread}/stat");
    let is_asleep = || {
        let stat = std::fs::read_to_string(&path).expect("a thread of this process");
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with('S'))
    };
    while !is_asleep() {
        thread::yield_now();
    }
}

#[test]
fn a_loop_that_was_sent_away_from_a_living_thread_hears_and_closes_at_once() {
    // Children of other tests hold copies of the pipes until they call exec.
    alone(
        "a_loop_that_was_sent_away_from_a_living_thread_hears_and_closes_at_once",
        module_path!(),
        || {
            let Some(rig) = rig(64) else { return };
            let (send, receive) = channel();
            let (end, ended) = channel::<()>();
            let elder = thread::spawn(move || {
                let mut rig = rig;
                let script = "trap '' PIPE; echo ready; read x; echo more || echo refused >&2";
                let token = rig.start(
                    0,
                    Plan {
                        stdin: StdinPlan::Feed,
                        ..sh(script)
                    },
                );
                let own = rustix::thread::gettid();
                send.send((rig, token, own)).expect("somebody takes it");
                let _ = ended.recv();
            });
            let (mut rig, token, elder_id) = receive.recv().expect("a loop");
            assert_eq!(rig.line(token), "ready");
            // A thread that only waits for a processor gives nothing up until it has one.
            until_asleep(elder_id);
            // Armed by the other thread, and not since. It is closed for the writer all the same.
            rig.linux
                .close(token.with(TokenKind::Output(Stream::Stdout)));
            assert_eq!(
                rig.linux.write(token.with(TokenKind::Stdin), b"\n"),
                Wrote::Took(1)
            );
            assert_eq!(rig.exit(token, CollectMode::Reap).exit.code, Some(0));
            assert!(String::from_utf8_lossy(&rig.rest(token, Stream::Stderr)).contains("refused"));
            rig.close(token);
            drop(end);
            elder.join().expect("a thread that waited");
        },
    );
}

#[test]
fn a_loop_that_is_dropped_leaves_no_pipe_open() {
    // Children of other tests hold copies of the pipes until they call exec.
    alone(
        "a_loop_that_is_dropped_leaves_no_pipe_open",
        module_path!(),
        || {
            let Some(mut rig) = rig(64) else { return };
            let token = rig.token(0);
            let (hold, their) = (read::Pipe::from_child().expect("pipe"), rig.linux.waker());
            // A pipe in the loop's poll set whose other end this test holds.
            let Poller::Uring(ring) = &mut rig.linux.inner.poller else {
                panic!("a ring")
            };
            ring.add(
                hold.host_end.as_fd(),
                Key::Token(token.with(TokenKind::Output(Stream::Stdout))),
                Interest::Read,
            )
            .expect("add");
            ring.submit();
            drop(rig);
            drop(hold.host_end);
            assert_eq!(
                rustix::io::write(&hold.child_end, b"x"),
                Err(rustix::io::Errno::PIPE)
            );
            their.wake();
        },
    );
}
