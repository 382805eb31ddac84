//! The loop in a host that has a loop of its own.

use crate::common::gate::{Bell, Gate};
use crate::common::host::Host;
use crate::common::mark::Mark;
use crate::common::proc::{children, descriptors, own_status, stat, wait_comm, wait_zombie};
use crate::common::{LONG, Mode, Way, every_way, ms, sys};
use lastwords::{
    BackgroundPolicy, Capture, Command, DetachError, DrainPolicy, Event, Outcome, Output, Reactor,
    Stopping, Stream, Verdict,
};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::process::{Pid, WaitOptions, waitpid};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

every_way! {
    descriptor_and_deadline_are_enough_for_a_foreign_loop,
    with_the_deadline_folded_in_the_descriptor_alone_is_enough,
    a_nested_edge_triggered_host_misses_nothing,
    the_descriptor_is_silent_after_a_turn_that_left_nothing,
    the_descriptor_is_the_same_for_the_whole_life,
    a_turn_never_blocks_beyond_its_timeout_and_never_ends_early_for_nothing,
    a_child_that_does_nothing_wakes_nobody,
    deadlines_are_told_while_something_is_timed_and_only_then,
    several_loops_in_one_process_do_not_disturb_each_other,
    a_loop_moves_to_another_thread_between_turns,
    wait_event_turns_until_there_is_one_or_none_can_come,
    a_forked_copy_refuses_and_its_drop_kills_nobody,
    a_dropped_loop_leaves_no_descriptor,
    a_turn_is_bounded_with_noisy_children,
    an_event_lets_the_loop_be_used_in_its_arm,
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: duration.as_secs() as i64,
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// Sleeps on the descriptor alone, at most `timeout`; true if it is readable.
fn readable(reactor: &Reactor, timeout: Duration) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(reactor.as_fd(), PollFlags::IN)];
    match poll(&mut fds, Some(&timespec(timeout))) {
        Ok(count) => count > 0,
        Err(error) => {
            assert_eq!(error, rustix::io::Errno::INTR);
            true
        }
    }
}

/// Commands of every kind: output, a held pipe that times out, background work that is ended, a run
/// limit, a large stdin.
fn all_kinds(host: &Host) -> Vec<Command> {
    let mut held = host.telling("sleep 60 & echo held");
    held.drain(DrainPolicy::default().idle(ms(120)).limit(ms(5000)));
    held.background(
        BackgroundPolicy::settle()
            .grace(ms(200))
            .wait(lastwords::Wait::For(ms(50))),
    );
    let mut limited = host.telling("trap '' TERM; while :; do sleep 0.05; done");
    limited
        .run_limit(ms(150))
        .stop(lastwords::StopPolicy::default().grace(ms(100)));
    let mut fed = host.shell("exec cat");
    fed.stdin(vec![b'f'; 2 << 20])
        .stdout(Capture::default().deliver(true).max_bytes(0));
    let bursts = host.telling("for i in 1 2 3 4 5; do seq 1 5000; sleep 0.02; done");
    let missing = Command::new("/nonexistent/program");
    vec![held, limited, fed, bursts, missing]
}

fn check_all_kinds(host: &Host, keys: &[lastwords::Generation]) {
    let report = |n: usize| host.story(keys[n]).report();
    assert_eq!(report(0).state(), Some(Verdict::DrainTimedOut));
    assert_eq!(
        report(0).background.as_ref().map(|settled| settled.state),
        Some(lastwords::SettledAs::Terminated)
    );
    assert_eq!(report(1).outcome, Some(Outcome::TimedOut));
    assert_eq!(report(2).stdout.map(|stream| stream.bytes), Some(2 << 20));
    assert_eq!(
        report(3).stdout.map(|stream| stream.bytes),
        Some(5 * 23_893)
    );
    assert!(report(4).error.is_some());
}

/// SPEC 6.3: poll(2) on the descriptor, with the deadline as its timeout.
fn descriptor_and_deadline_are_enough_for_a_foreign_loop(way: Way) {
    let mut host = Host::new(way);
    let keys: Vec<_> = all_kinds(&host)
        .iter()
        .map(|command| host.start(command))
        .collect();
    let begun = Instant::now();
    while host.reactor.is_busy() {
        assert!(begun.elapsed() < LONG, "the host was not woken");
        let left = if host.reactor.has_events() {
            Duration::ZERO
        } else {
            host.reactor
                .next_deadline()
                .map_or(LONG, |at| at.saturating_duration_since(Instant::now()))
        };
        readable(&host.reactor, left);
        host.step(Duration::ZERO);
    }
    check_all_kinds(&host, &keys);
    host.finish();
}

/// SPEC 6.3: no timeout of the host's own.
fn with_the_deadline_folded_in_the_descriptor_alone_is_enough(way: Way) {
    let mut builder = way.builder();
    let mut host = Host::with(builder.fold_deadline(true));
    let keys: Vec<_> = all_kinds(&host)
        .iter()
        .map(|command| host.start(command))
        .collect();
    let begun = Instant::now();
    let mut turns = 0;
    while host.reactor.is_busy() {
        assert!(
            readable(&host.reactor, LONG),
            "nothing wakes the host: {:?}",
            host.reactor
        );
        assert!(begun.elapsed() < LONG);
        host.step(Duration::ZERO);
        turns += 1;
    }
    assert!(
        turns < 20_000,
        "{turns} turns: the descriptor is not readable without a reason"
    );
    check_all_kinds(&host, &keys);
    host.finish();
}

/// The edge is cleared only after a turn that left nothing behind.
fn a_nested_edge_triggered_host_misses_nothing(way: Way) {
    let mut builder = way.builder();
    let mut host = Host::with(builder.fold_deadline(true));
    let outer = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll");
    let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(
        &outer,
        host.reactor.as_fd(),
        epoll::EventData::new_u64(1),
        edges,
    )
    .expect("added");
    let mut keys: Vec<_> = all_kinds(&host)
        .iter()
        .map(|command| host.start(command))
        .collect();
    for n in 0..20 {
        let command = host.telling(&format!(
            "for i in 1 2 3; do seq 1 3000; sleep 0.01; done; exit {n}"
        ));
        keys.push(host.start(&command));
    }
    let begun = Instant::now();
    let mut events = [epoll::Event {
        flags: epoll::EventFlags::empty(),
        data: epoll::EventData::new_u64(0),
    }; 4];
    while host.reactor.is_busy() {
        assert!(begun.elapsed() < LONG, "an edge was missed");
        let got = match epoll::wait(&outer, &mut events, Some(&timespec(LONG))) {
            Ok(got) => got,
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => panic!("epoll: {error}"),
        };
        assert!(got > 0, "an edge was missed: {:?}", host.reactor);
        while host.step(Duration::ZERO) {}
    }
    check_all_kinds(&host, &keys);
    for (n, key) in (0..).zip(&keys[5..]) {
        let report = host.story(*key).report();
        assert_eq!(
            (
                report.exit.and_then(|exit| exit.code),
                report.stdout.map(|stream| stream.bytes)
            ),
            (Some(n), Some(3 * 13_893))
        );
    }
    host.finish();
}

/// Readable after each kind of notice, and not after `more == false`.
fn the_descriptor_is_silent_after_a_turn_that_left_nothing(way: Way) {
    // Children of other tests of this process would make SIGCHLD speak.
    way.alone(|| {
        let mut host = Host::new(way);
        let mut command = host.telling("echo one; read x <&9; echo two; read x <&9; exit 0");
        let gate = Gate::at(9, &mut command);
        let child = host.spawn(&command);
        for text in ["one\n", "one\ntwo\n"] {
            assert!(readable(&host.reactor, LONG), "bytes");
            host.until_said(child, text);
            while host.step(Duration::ZERO) {}
            assert!(
                !readable(&host.reactor, Duration::ZERO),
                "nothing is left to do"
            );
            assert!(!readable(&host.reactor, ms(50)));
            gate.pass();
        }
        assert!(readable(&host.reactor, LONG), "an exit");
        host.until_closed(child);
        while host.step(Duration::ZERO) {}
        assert!(!readable(&host.reactor, Duration::ZERO));
        host.finish();
    });
}

fn the_descriptor_is_the_same_for_the_whole_life(way: Way) {
    let mut host = Host::new(way);
    let number = host.reactor.as_raw_fd();
    let what = std::fs::read_link(format!("/proc/self/fd/{number}")).expect("a descriptor");
    for _ in 0..10 {
        let child = host.run("echo out");
        host.until_closed(child);
        assert_eq!(
            (host.reactor.as_raw_fd(), host.reactor.as_fd().as_raw_fd()),
            (number, number)
        );
    }
    assert_eq!(
        std::fs::read_link(format!("/proc/self/fd/{number}")).expect("a descriptor"),
        what
    );
    let flags = rustix::io::fcntl_getfd(host.reactor.as_fd()).expect("flags");
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    host.finish();
}

/// SPEC 6.2.
fn a_turn_never_blocks_beyond_its_timeout_and_never_ends_early_for_nothing(way: Way) {
    way.alone(|| {
        let mut host = Host::new(way);
        let begun = Instant::now();
        host.turn(ms(50));
        assert!(
            begun.elapsed() >= ms(50) && begun.elapsed() < LONG,
            "an empty loop: {:?}",
            begun.elapsed()
        );
        let child = host.run("echo ready; exec sleep 60");
        host.until_said(child, "ready");
        wait_comm(host.reactor.pid(child).expect("a process"), "sleep");
        while host.step(Duration::ZERO) {}
        for timeout in [0, 1, 20, 100] {
            let begun = Instant::now();
            host.turn(ms(timeout));
            assert!(
                begun.elapsed() >= ms(timeout) && begun.elapsed() < LONG,
                "{timeout} ms: {:?}",
                begun.elapsed()
            );
        }
        host.reactor.kill(child);
        host.until_closed(child);
        host.finish();
    });
}

/// SPEC 1.9 and 6.2: asleep means asleep.
fn a_child_that_does_nothing_wakes_nobody(way: Way) {
    way.alone(|| {
        let mut host = Host::new(way);
        let children: Vec<_> = (0..20)
            .map(|n| {
                let mut command = host.shell(if n % 2 == 0 {
                    "exec sleep 60"
                } else {
                    "exec >&- 2>&- <&-; exec sleep 60"
                });
                command.stdin(vec![0; 1 << 20]);
                host.spawn(&command)
            })
            .collect();
        for child in &children {
            wait_comm(host.reactor.pid(*child).expect("a process"), "sleep");
        }
        while host.step(Duration::ZERO) {}
        let before = host.reactor.stats();
        host.turn(ms(400));
        host.idle(ms(1500));
        let after = host.reactor.stats();
        // The SIGCHLD way looks once a second; a spawn that is looked at for the last time is one
        // turn more.
        let allowed = if way.mode == Mode::Sigchld { 6 } else { 4 };
        assert!(
            after.turns - before.turns <= allowed,
            "{} turns with nothing to do",
            after.turns - before.turns
        );
        assert_eq!(after.reads, before.reads);
        host.reactor.stop_all(None);
        host.until("all closed", |host| !host.reactor.is_busy());
        host.finish();
    });
}

fn deadlines_are_told_while_something_is_timed_and_only_then(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.telling("echo ready; exec sleep 60");
    let child = host.spawn(&command);
    host.until_said(child, "ready");
    while host.step(Duration::ZERO) {}
    match way.mode {
        Mode::Pidfd | Mode::OldGroup | Mode::Uring => {
            assert_eq!(host.reactor.next_deadline(), None, "nothing is timed")
        }
        Mode::Sigchld => assert!(
            host.reactor
                .next_deadline()
                .is_some_and(|at| at < Instant::now() + ms(1500)),
            "a look once a second"
        ),
    }
    host.reactor.stop(
        child,
        Some(lastwords::StopPolicy::default().grace(LONG * 10)),
    );
    assert!(host.reactor.next_deadline().is_some(), "the grace is");
    host.until_closed(child);
    command.run_limit(LONG * 4);
    let before = Instant::now();
    let child = host.spawn(&command);
    host.until_said(child, "ready");
    while host.step(Duration::ZERO) {}
    let deadline = host.reactor.next_deadline().expect("the run limit");
    assert!(deadline > before && deadline <= Instant::now() + LONG * 4 + ms(10));
    host.reactor.kill(child);
    host.until_closed(child);
    host.finish();
}

/// SPEC 6.1.
fn several_loops_in_one_process_do_not_disturb_each_other(way: Way) {
    let run = |host: &mut Host, n: i32| {
        let mut command = host.telling(&format!("echo {n}; read x <&9; exit {n}"));
        let gate = Gate::at(9, &mut command);
        (host.spawn(&command), gate)
    };
    let mut hosts: Vec<_> = (0..3).map(|_| Host::new(way)).collect();
    let mut keys = Vec::new();
    for (n, host) in (0..).zip(&mut hosts) {
        keys.push(run(host, n + 10));
    }
    // The first is dropped in the middle, with its child.
    drop(hosts.remove(0));
    keys.remove(0);
    std::thread::scope(|scope| {
        for (n, (mut host, (child, gate))) in (11..).zip(hosts.into_iter().zip(keys)) {
            scope.spawn(move || {
                for _ in 0..10 {
                    let other = host.run("seq 1 1000; true & wait");
                    assert!(host.until_closed(other).report().success());
                }
                gate.open();
                let story = host.until_closed(child);
                assert_eq!(
                    (
                        story.exit().and_then(|exit| exit.code),
                        story.delivered(Stream::Stdout)
                    ),
                    (Some(n), format!("{n}\n"))
                );
                host.finish();
            });
        }
    });
}

/// `Reactor: Send`.
fn a_loop_moves_to_another_thread_between_turns(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.telling("while read x <&9; do echo $x; done; exit 3");
    let gate = Gate::at(9, &mut command);
    let child = host.spawn(&command);
    for n in 1..=5 {
        gate.pass();
        host = std::thread::spawn(move || {
            let wanted = "go\n".repeat(n);
            host.until_said(child, &wanted);
            host
        })
        .join()
        .expect("a thread that ends");
    }
    gate.open();
    let story = host.until_closed(child);
    assert_eq!(
        (
            story.delivered(Stream::Stdout),
            story.exit().and_then(|exit| exit.code)
        ),
        ("go\n".repeat(5), Some(3))
    );
    host.finish();
}

fn wait_event_turns_until_there_is_one_or_none_can_come(way: Way) {
    let mut host = Host::new(way);
    assert!(
        host.reactor.wait_event(None).expect("a turn").is_none(),
        "nothing is running: it does not sleep for ever"
    );
    let child = host.run("echo ready; exec sleep 60");
    host.until_said(child, "ready");
    let begun = Instant::now();
    assert!(
        host.reactor
            .wait_event(Some(ms(80)))
            .expect("a turn")
            .is_none()
    );
    assert!(begun.elapsed() >= ms(80) && begun.elapsed() < LONG);
    host.reactor.kill(child);
    let Some(Event::Exited {
        generation, exit, ..
    }) = host.reactor.wait_event(None).expect("a turn")
    else {
        panic!("the exit comes first")
    };
    assert_eq!(
        (generation, exit.signal),
        (child, Some(lastwords::Signal::KILL))
    );
    let mut count = 0;
    while host.reactor.wait_event(None).expect("a turn").is_some() {
        count += 1;
    }
    assert_eq!(count, 3, "Drained, Settled, Closed");
    assert!(!host.reactor.is_busy());
}

/// SPEC 3.6.
fn a_forked_copy_refuses_and_its_drop_kills_nobody(way: Way) {
    way.alone(|| {
        let mark = Mark::new();
        let mut reactor = way.reactor();
        let mut command = Command::shell("echo ready; read x <&9; echo alive; exit 6");
        mark.put_on(&mut command);
        command.stdout(Capture::default().deliver(true));
        let gate = Gate::at(9, &mut command);
        let child = reactor.spawn(&command).expect("a process");
        let pid = reactor.pid(child).expect("a process");
        let copy = sys::fork(|| {
            let refused = [
                reactor.turn(Some(Duration::ZERO)).is_err(),
                reactor.start(&command).is_err(),
                reactor.spawn(&command).is_err(),
                reactor.wait_event(Some(Duration::ZERO)).is_err(),
                matches!(reactor.detach(child), Err(DetachError::Forked)),
                reactor.stop(child, None) == Stopping::Gone,
                reactor.kill(child) == Stopping::Gone,
                reactor.signal(child, lastwords::Signal::KILL) != lastwords::Signalled::Sent,
                reactor.signal_leader(child, lastwords::Signal::KILL) != lastwords::Signalled::Sent,
                reactor.next_event().is_none(),
                reactor.pid(child).is_none(),
            ];
            let taken: Vec<_> = (0..)
                .zip(&refused)
                .filter(|(_, refused)| !**refused)
                .map(|(place, _)| place)
                .collect();
            if !taken.is_empty() {
                eprintln!("not refused in the copy: {taken:?}");
            }
            // The copy drops its copy of the loop.
            drop(std::mem::replace(&mut reactor, way.reactor()));
            i32::from(!taken.is_empty())
        });
        let (_, status) = waitpid(Pid::from_raw(copy), WaitOptions::empty())
            .expect("ours")
            .expect("a status");
        assert_eq!(
            status.exit_status(),
            Some(0),
            "a call was not refused in the copy"
        );
        assert!(
            stat(pid).is_some_and(|stat| stat.state != 'Z'),
            "the original's child lives"
        );
        gate.open();
        let (mut said, mut report) = (Vec::new(), None);
        while let Some(event) = reactor.wait_event(Some(LONG)).expect("a turn") {
            match event {
                Event::Output { bytes, .. } => said.extend_from_slice(bytes),
                Event::Closed { report: last, .. } => report = Some(last),
                _ => {}
            }
        }
        assert_eq!(said, b"ready\nalive\n");
        assert_eq!(
            report
                .and_then(|report| report.exit)
                .and_then(|exit| exit.code),
            Some(6)
        );
        mark.wait_gone();
    });
}

fn a_dropped_loop_leaves_no_descriptor(way: Way) {
    way.alone(|| {
        // The SIGCHLD way's handler has a pipe of the process's own, which stays.
        drop(way.reactor());
        let before = descriptors();
        let threads = own_status("Threads");
        for round in 0..3 {
            let mut builder = way.builder();
            let mut host = Host::with(builder.fold_deadline(round == 1).drop_bound(LONG));
            for _ in 0..5 {
                let mut command = host.shell("sleep 60 & exec sleep 60");
                command.stdin(vec![0; 1 << 20]);
                host.spawn(&command);
            }
            let mut command = host.shell("exec sleep 60");
            command.stdin(lastwords::Stdin::Raw).stdout(Output::Raw);
            host.spawn(&command);
            let mut held = host.shell("sleep 60 & exit 0");
            held.drain(DrainPolicy::default().idle(Duration::ZERO))
                .background(BackgroundPolicy::report_only().grace(Duration::ZERO));
            let child = host.spawn(&held);
            host.until_closed(child);
            host.idle(ms(20));
            drop(host);
            assert_eq!(descriptors(), before, "round {round}");
            assert_eq!(own_status("Threads"), threads);
            assert!(children().is_empty(), "{:?}", children());
        }
    });
}

/// SPEC 6.2: one bounded round, however much there is to read.
fn a_turn_is_bounded_with_noisy_children(way: Way) {
    let mut host = Host::new(way);
    for _ in 0..6 {
        let mut command = host.shell("exec yes");
        command
            .stdout(Capture::default().max_bytes(4096))
            .stderr(Output::Null);
        host.spawn(&command);
    }
    host.until("bytes", |host| host.reactor.stats().bytes > 4 << 20);
    for _ in 0..50 {
        let before = host.reactor.stats();
        host.step(Duration::ZERO);
        let after = host.reactor.stats();
        assert!(
            after.reads - before.reads <= 32 && after.bytes - before.bytes <= 32 * (128 << 10),
            "{before:?} {after:?}"
        );
    }
    host.reactor.stop_all(None);
    host.until("all closed", |host| !host.reactor.is_busy());
    host.finish();

    // What is beyond its bounds is taken for the nearer one.
    for (asked, most) in [(0, 1), (2, 2), (usize::MAX, 1024)] {
        let mut builder = way.builder();
        a_turn_has_so_many_reads(Host::with(builder.reads_per_turn(asked)), most);
    }
}

fn a_turn_has_so_many_reads(mut host: Host, most: u64) {
    let mut command = host.shell("exec yes");
    command
        .stdout(Capture::default().max_bytes(4096))
        .stderr(Output::Null);
    let child = host.spawn(&command);
    for _ in 0..20 {
        let before = host.reactor.stats().reads;
        host.step(ms(10));
        assert!(host.reactor.stats().reads - before <= most);
    }
    host.reactor.kill(child);
    host.until_closed(child);
    host.finish();
}

/// The borrow has ended when the last borrowed field was looked at.
fn an_event_lets_the_loop_be_used_in_its_arm(way: Way) {
    let mark = Mark::new();
    let mut reactor = way.reactor();
    let mut command = Command::shell("echo fatal error; exec sleep 60");
    mark.put_on(&mut command);
    command.stdout(Capture::default().deliver(true));
    let bell = Bell::at(8, &mut command);
    reactor.spawn(&command).expect("a process");
    let mut closed = false;
    while let Some(event) = reactor.wait_event(Some(LONG)).expect("a turn") {
        match event {
            Event::Started { pid, .. } => assert!(stat(pid).is_some()),
            Event::Output {
                generation, bytes, ..
            } if bytes.ends_with(b"fatal error\n") => {
                reactor.kill(generation);
            }
            Event::Closed {
                generation, report, ..
            } => {
                let kept = reactor.take(generation, Stream::Stdout);
                closed = report.outcome == Some(Outcome::Stopped)
                    && kept.is_some_and(|kept| kept.len() == 12);
            }
            _ => {}
        }
    }
    assert!(closed && !bell.rang());
}

/// The promise of `more`: a host that always asks it and the deadline never spins.
#[test]
fn a_zombie_that_nobody_turns_for_makes_the_descriptor_readable() {
    let mut host = Host::with(&Reactor::builder());
    let command = host.shell("exit 3");
    let child = host.start(&command);
    wait_zombie(host.reactor.pid(child).expect("a process"));
    assert!(readable(&host.reactor, LONG));
    assert_eq!(
        host.until_closed(child).exit().and_then(|exit| exit.code),
        Some(3)
    );
    host.finish();
}
