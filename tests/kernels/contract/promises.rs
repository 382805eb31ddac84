//! Promises about spawns, notices, bytes and time.

use super::host::{Host, LONG, exit_of, out_of};
use super::rig::Rig;
use crate::support;
use lastwords::__internals::command::plan::StdinPlan;
use lastwords::__internals::kernel::sim::script::pattern;
use lastwords::__internals::kernel::{
    Collected, Notice, ReadResult, SpawnOutcome, Until, Wake, Wrote,
};
use lastwords::__internals::types::{CollectMode, Release, Token, TokenKind, limits};
use lastwords::sim::Ns;
use lastwords::{Kernel, Signal, Stream};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

fn letters(stream: Stream, len: u64) -> Vec<u8> {
    (0..len).map(|at| pattern(stream, at)).collect()
}

pub(crate) fn the_outcome_comes_before_the_exit_and_the_exit_before_the_bytes<R: Rig>() {
    let mut host = Host::<R>::new();
    let children: Vec<_> = (0..8)
        .map(|slot| host.start(slot, "write stdout 1; write stderr 1; exit 0"))
        .collect();
    for (_, pid) in &children {
        host.pass_until("the child ends", |rig| !rig.is_alive(*pid));
    }
    // Not all of it need come at once, but nothing may overtake.
    let mut seen: Vec<Notice> = Vec::new();
    while children.iter().any(|(token, _)| {
        !Stream::ALL
            .iter()
            .all(|s| seen.contains(&Notice::Readable(out_of(*token, *s))))
    }) {
        let end = host.kernel().now().after(LONG);
        let notices = host.wait_until(end);
        assert!(notices.is_sorted_by_key(|n| n.rank()), "{notices:?}");
        seen.extend(notices);
    }
    let place = |notice: Notice| seen.iter().position(|n| *n == notice);
    for (token, _) in &children {
        let outcome = place(Notice::Outcome(*token));
        let exit = place(Notice::Exit(exit_of(*token)));
        assert!(
            outcome.is_some() && outcome < exit.or(outcome.map(|o| o + 1)),
            "{seen:?}"
        );
        for stream in Stream::ALL {
            assert!(
                outcome < place(Notice::Readable(out_of(*token, stream))),
                "{seen:?}"
            );
        }
    }
    for (token, _) in children {
        host.end(token);
    }
    host.done();
}

pub(crate) fn a_spawn_error_leaves_nothing<R: Rig>() {
    let mut host = Host::<R>::new();
    // What is made at the first spawn and kept is no leak.
    let (token, _) = host.start(3, "exit 0");
    host.end(token);
    let before = host.rig.count();
    for _ in 0..10 {
        for (what, prepare, plan) in host.rig.failures() {
            let token = host.token(3);
            prepare(&mut host.rig);
            if host.kernel().spawn(&Arc::new(plan), token).is_err() {
                assert_eq!(host.rig.count(), before, "{what}");
                continue;
            }
            let outcome = host.outcome(token);
            assert!(
                matches!(outcome, SpawnOutcome::Failed(_)),
                "{what}: {outcome:?}"
            );
            host.exit(token, CollectMode::Reap);
            for stream in Stream::ALL {
                assert_eq!(
                    host.read(out_of(token, stream), limits::BLOCK).0,
                    ReadResult::End,
                    "{what}"
                );
            }
            host.kernel().release(token, Release::Close);
            assert_eq!(host.rig.count(), before, "{what}");
        }
    }
    host.done();
}

pub(crate) fn end_of_file_is_there_at_the_exit_notice<R: Rig>() {
    let mut host = Host::<R>::new();
    for round in 0..5 {
        for (script, out, err) in [
            ("exit 0", 0, 0),
            ("write stdout 1; exit 1", 1, 0),
            ("write stderr 65536; write stdout 5000", 5000, 65536),
            ("write stderr 10; kill SELF KILL", 0, 10),
            ("fork { write stdout 7 }; wait; close stderr", 7, 0),
        ] {
            let (token, _) = host.start(round, script);
            host.exit(token, CollectMode::Reap);
            for (stream, len) in [(Stream::Stdout, out), (Stream::Stderr, err)] {
                let mut all = Vec::new();
                loop {
                    let (got, bytes) = host.read(out_of(token, stream), 16 << 10);
                    all.extend(bytes);
                    match got {
                        ReadResult::Data { .. } => {}
                        ReadResult::End => break,
                        ReadResult::Empty | ReadResult::Failed(_) | ReadResult::Stale => {
                            panic!("{script}: {got:?} on {stream}")
                        }
                    }
                }
                assert!(
                    all == letters(stream, len),
                    "{script}: {} bytes on {stream}",
                    all.len()
                );
            }
            host.kernel().release(token, Release::Close);
        }
    }
    host.done();
}

pub(crate) fn data_and_hang_up_in_one_edge_are_read_to_the_end<R: Rig>() {
    let mut host = Host::<R>::new();
    // A read that fills its block exactly, one that does not, and none at all.
    for (slot, len) in [(0, 4096), (1, 8000), (2, 60_000), (3, 0)] {
        let (token, pid) = host.start(
            slot,
            &format!("write stdout {len}; close stdout; sleep 20s"),
        );
        let stream = out_of(token, Stream::Stdout);
        let (bytes, _) = host.read_to_end(stream, 4096);
        assert!(
            bytes == letters(Stream::Stdout, len),
            "{} of {len} bytes",
            bytes.len()
        );
        host.kernel().close(stream);
        assert!(host.rig.is_alive(pid));
        host.end(token);
    }
    host.done();
}

pub(crate) fn a_read_that_is_not_hot_gets_the_next_notice<R: Rig>() {
    let mut host = Host::<R>::new();
    let mut plan = support::plan("write stdout 100; loop { read 1; write stdout 5000 }");
    plan.stdin = StdinPlan::Feed;
    let (token, _) = host.born(0, plan);
    let (stream, stdin) = (out_of(token, Stream::Stdout), token.with(TokenKind::Stdin));
    let mut total = 0;
    for round in 0..20u64 {
        let wanted = 100 + round * 5000;
        while total < wanted {
            host.wait_for(Notice::Readable(stream));
            loop {
                match host.read(stream, 4096).0 {
                    ReadResult::Data { n, more_available } => {
                        total += n as u64;
                        assert!(
                            more_available || n < 4096,
                            "a full block says nothing about what is left"
                        );
                        if !more_available {
                            break;
                        }
                    }
                    ReadResult::Empty => break,
                    got @ (ReadResult::End | ReadResult::Failed(_) | ReadResult::Stale) => {
                        panic!("{got:?}")
                    }
                }
            }
        }
        assert_eq!(total, wanted);
        assert_eq!(host.kernel().write(stdin, b"x"), Wrote::Took(1));
    }
    host.end(token);
    host.done();
}

pub(crate) fn a_stale_token_does_nothing<R: Rig>() {
    let mut host = Host::<R>::new();
    let (old, _) = host.start(5, "exit 0");
    host.exit(old, CollectMode::Reap);
    host.kernel().release(old, Release::Close);
    // The same slot, and the same descriptors.
    let mut plan = support::plan("read 1; write stdout 3; sleep 20s");
    plan.stdin = StdinPlan::Feed;
    let (new, born) = host.born(5, plan);
    for what in [
        TokenKind::Output(Stream::Stdout),
        TokenKind::Output(Stream::Stderr),
        TokenKind::Stdin,
        TokenKind::Exit,
        TokenKind::Spawn,
        TokenKind::Member(0),
    ] {
        host.kernel().close(old.with(what));
    }
    assert_eq!(
        host.read(out_of(old, Stream::Stdout), 4096).0,
        ReadResult::Stale
    );
    assert!(!matches!(
        host.kernel().write(old.with(TokenKind::Stdin), b"x"),
        Wrote::Took(_)
    ));
    host.kernel().signal(old, Signal::KILL);
    host.kernel().signal_leader(old, Signal::KILL);
    assert!(!matches!(
        host.kernel().collect(old, CollectMode::Reap),
        Collected::Ended(_)
    ));
    assert_eq!(host.scan(&[old], &[old]).0, []);
    assert_eq!(host.kernel().release(old, Release::Close).pid, 0);
    // The new one has noticed nothing.
    assert_eq!(
        host.kernel().write(new.with(TokenKind::Stdin), b"x"),
        Wrote::Took(1)
    );
    host.wait_for(Notice::Readable(out_of(new, Stream::Stdout)));
    let end = host.kernel().now().after(LONG);
    let mut got = Vec::new();
    while got.len() < 3 && host.kernel().now() < end {
        got.extend(host.read(out_of(new, Stream::Stdout), 4096).1);
        host.rig.pass(std::time::Duration::from_millis(1));
    }
    assert_eq!(got, letters(Stream::Stdout, 3));
    assert!(host.rig.is_alive(born.pid));
    host.end(new);
    host.done();
}

pub(crate) fn a_closed_read_end_is_closed_for_the_writer_at_once<R: Rig>() {
    let mut host = Host::<R>::new();
    for slot in 0..10 {
        let mut plan = support::plan("read 1; write stdout 1; exit 0");
        plan.stdin = StdinPlan::Feed;
        let (token, _) = host.born(slot, plan);
        let stream = out_of(token, Stream::Stdout);
        host.kernel().close(stream);
        host.kernel().close(stream);
        // Only now the child may write: a pipe that were still open would take the byte.
        assert_eq!(
            host.kernel().write(token.with(TokenKind::Stdin), b"x"),
            Wrote::Took(1)
        );
        let info = host.exit(token, CollectMode::Reap);
        assert_eq!(info.exit.signal, Some(Signal::PIPE));
        assert_eq!(host.read(stream, 4096).0, ReadResult::Stale);
        host.kernel().release(token, Release::Close);
    }
    host.done();
}

pub(crate) fn exits_behind_hot_streams_are_announced_by_the_next_look<R: Rig>() {
    let mut host = Host::<R>::new();
    let noisy: Vec<_> = (0..100)
        .map(|slot| host.start(slot, "loop { write stdout 64K }"))
        .collect();
    let mut quiet: HashMap<Token, u32> = (100..164)
        .map(|slot| host.start(slot, "sleep 20ms; exit 0"))
        .collect();
    let mut ready: Vec<Token> = Vec::new();
    let mut announced = HashSet::new();
    let end = host.kernel().now().after(LONG);
    let mut ended_before = HashSet::new();
    while !quiet.is_empty() && host.kernel().now() < end {
        // Who has ended before this look has to be in it, or in what is left of it. In a storm the
        // notice itself may be late.
        let ended: HashSet<Token> = quiet
            .iter()
            .filter(|(_, pid)| !host.rig.is_alive(**pid))
            .map(|(t, _)| *t)
            .collect();
        let notices = if ready.is_empty() {
            host.wait_until(end)
        } else {
            host.peek_all()
        };
        let mut bytes_seen = false;
        for notice in notices {
            match notice {
                Notice::Exit(of) => {
                    assert!(!bytes_seen, "an exit behind bytes");
                    if host
                        .kernel()
                        .collect(of.with(TokenKind::Spawn), CollectMode::Reap)
                        != Collected::NotYet
                    {
                        announced.insert(of.with(TokenKind::Spawn));
                        quiet.remove(&of.with(TokenKind::Spawn));
                    }
                }
                Notice::Readable(of) => {
                    bytes_seen = true;
                    if !ready.contains(&of) {
                        ready.push(of);
                    }
                }
                _ => {}
            }
        }
        if !R::LATE {
            let late: Vec<&Token> = ended_before
                .iter()
                .filter(|t| !announced.contains(*t))
                .collect();
            assert!(
                late.is_empty(),
                "{} ends that two looks did not show",
                late.len()
            );
        }
        ended_before = ended;
        for stream in ready
            .drain(..ready.len().min(limits::BATCH))
            .collect::<Vec<_>>()
        {
            if let (
                ReadResult::Data {
                    more_available: true,
                    ..
                },
                _,
            ) = host.read(stream, limits::BLOCK)
            {
                ready.push(stream);
            }
        }
    }
    assert_eq!(announced.len(), 64);
    for (token, _) in noisy {
        host.end(token);
    }
    host.done();
}

pub(crate) fn more_notices_than_fit_are_given_by_the_next_waits<R: Rig>() {
    let mut host = Host::<R>::new();
    let children: Vec<_> = (0..300)
        .map(|slot| host.start(slot, "write stdout 1; write stderr 1; exit 0"))
        .collect();
    for (_, pid) in &children {
        host.pass_until("the child ends", |rig| !rig.is_alive(*pid));
    }
    let mut seen = HashSet::new();
    let end = host.kernel().now().after(LONG);
    let wanted = children.len() * 4;
    let mut first = true;
    while seen.len() < wanted && host.kernel().now() < end {
        let (notices, more) = host.wait(Until::At(end));
        assert!(notices.len() <= limits::NOTICES);
        if first && !R::LATE {
            assert!(more, "{} notices were all", notices.len());
            first = false;
        }
        for notice in notices {
            match notice {
                Notice::Exit(of) => {
                    let ended = host
                        .kernel()
                        .collect(of.with(TokenKind::Spawn), CollectMode::Reap)
                        != Collected::NotYet;
                    seen.extend(ended.then_some(of.bits()));
                }
                Notice::Outcome(of) | Notice::Readable(of) => {
                    seen.insert(of.bits());
                }
                _ => {}
            }
        }
    }
    assert_eq!(seen.len(), wanted);
    for (token, _) in children {
        host.kernel().release(token, Release::Close);
    }
    host.done();
}

pub(crate) fn a_wait_with_an_end_is_never_early<R: Rig>() {
    let mut host = Host::<R>::new();
    for micros in [0, 1, 300, 999, 1_000, 1_001, 2_500, 20_000] {
        let begin = host.kernel().now();
        let end = begin.after(Ns(micros * 1000));
        let mut waits = 0;
        while host.kernel().now() < end || waits == 0 {
            assert_eq!(host.wait_until(end), []);
            waits += 1;
        }
        // EINTR is a wait that ends early with nothing.
        assert!(
            waits == 1 || R::IS_INTERRUPTED && waits < 50,
            "{waits} waits for {micros} us"
        );
        assert!(host.kernel().now() < end.after(LONG));
    }
    let begin = host.kernel().now();
    host.wait(Until::Peek);
    assert!(host.kernel().now() < begin.after(LONG));
    host.done();
}

pub(crate) fn the_descriptor_is_readable_while_a_notice_waits<R: Rig>() {
    let mut host = Host::<R>::new();
    host.peek_all();
    assert!(!host.rig.is_readable());
    let mut plan = support::plan("write stdout 1; read 70000; exit 0");
    plan.stdin = StdinPlan::Feed;
    let (token, _) = host.born(0, plan);
    let stdin = token.with(TokenKind::Stdin);
    host.pass_until("bytes", Rig::is_readable);
    host.wait_for(Notice::Readable(out_of(token, Stream::Stdout)));
    while !matches!(
        host.read(out_of(token, Stream::Stdout), 4096).0,
        ReadResult::Empty
    ) {}
    let mut left = 70_000;
    while left > 0 {
        match host.kernel().write(stdin, &vec![0; left]) {
            Wrote::Took(n) => left -= n,
            Wrote::Full => {
                host.pass_until("room", Rig::is_readable);
                host.wait_for(Notice::Writable(stdin));
            }
            wrote @ (Wrote::NoReader | Wrote::Failed(_)) => panic!("{wrote:?}"),
        }
    }
    host.exit(token, CollectMode::Reap);
    for _ in 0..50 {
        host.peek_all();
        host.rig.pass(std::time::Duration::from_millis(1));
    }
    // Everything was told: the hang-ups, too.
    host.peek_all();
    assert!(R::LATE || !host.rig.is_readable());
    host.kernel().waker().wake();
    assert!(host.rig.is_readable());
    host.kernel().release(token, Release::Close);
    host.done();
}

pub(crate) fn a_waker_wakes_once_or_more<R: Rig>() {
    let mut host = Host::<R>::new();
    let waker = host.kernel().waker();
    for _ in 0..3 {
        let waker = waker.clone();
        std::thread::spawn(move || (0..10).for_each(|_| waker.wake()))
            .join()
            .expect("the thread ends");
        host.wait_for(Notice::Woken);
        host.peek_all();
        assert!(!host.peek_all().contains(&Notice::Woken));
    }
    host.done();
}

pub(crate) fn stdin_tells_of_room_and_of_nobody_without_a_signal<R: Rig>() {
    R::die_of_sigpipe();
    let mut host = Host::<R>::new();
    let mut plan = support::plan("sleep 30ms; read 300000; close stdin; write stdout 1; sleep 20s");
    plan.stdin = StdinPlan::Feed;
    let (token, _) = host.born(0, plan);
    let stdin = token.with(TokenKind::Stdin);
    let mut left = 300_000;
    let mut full = 0;
    while left > 0 {
        match host.kernel().write(stdin, &vec![0; left]) {
            Wrote::Took(n) => left -= n,
            Wrote::Full => {
                full += 1;
                host.wait_for(Notice::Writable(stdin));
            }
            wrote @ (Wrote::NoReader | Wrote::Failed(_)) => panic!("{wrote:?}"),
        }
    }
    assert!(full > 0, "a pipe that holds everything");
    host.wait_for(Notice::Readable(out_of(token, Stream::Stdout)));
    assert_eq!(host.kernel().write(stdin, b"x"), Wrote::NoReader);
    host.kernel().close(stdin);
    host.end(token);
    host.done();
}
