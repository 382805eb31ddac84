//! Exits: how they are noticed and how they are reported.

use crate::common::gate::Gate;
use crate::common::host::Host;
use crate::common::proc::{stat, wait_zombie};
use crate::common::tracer::Tracer;
use crate::common::{LONG, Mode, Way, every_way, ms, sys, wait_until};
use lastwords::__internals::testing::isolation;
use lastwords::__internals::testing::oracle::{History, Observed};
use lastwords::{
    Command, ExitSource, Outcome, Output, Reactor, SettledAs, Signal, StatusSource, Stream, Verdict,
};
use rustix::process::WaitOptions;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

every_way! {
    code_signal_and_core_dump_are_told_apart,
    the_exit_of_an_orderly_child_settles_and_closes_in_one_turn,
    a_zombie_leader_is_no_background_work,
    a_stopped_or_continued_child_is_not_an_exit,
    a_leader_whose_main_thread_has_ended_is_not_an_exit,
    children_that_ended_before_the_loop_looked_are_found,
    five_hundred_exits_at_once_are_five_hundred_exits,
    a_child_that_somebody_else_reaped_is_told_without_inventing_anything,
    an_ignored_sigchld_loses_no_exit,
    a_sigchld_that_is_ignored_behind_our_back_loses_no_exit,
    a_dead_child_under_a_tracer_is_not_an_exit_until_the_tracer_lets_go,
    resource_use_is_told_where_the_status_was_ours,
}

fn drained(story: &History) -> bool {
    story
        .drain()
        .is_some_and(|drain| drain.verdict == Verdict::Drained)
}

/// SPEC 2.2 and 2.4.
fn code_signal_and_core_dump_are_told_apart(way: Way) {
    let dir = std::env::temp_dir().join(format!(
        "lastwords-exit-{}-{:?}",
        std::process::id(),
        way.mode
    ));
    std::fs::create_dir_all(&dir).expect("a directory");
    let mut host = Host::new(way);
    for code in [0, 1, 7, 127, 255] {
        let child = host.run(&format!("exit {code}"));
        let report = host.until_closed(child).report();
        let exit = report.exit.expect("an exit");
        assert_eq!(
            (exit.code, exit.signal, exit.core_dumped, exit.source),
            (Some(code), None, false, StatusSource::Waitid)
        );
        assert_eq!(
            report.outcome,
            Some(if code == 0 {
                Outcome::Succeeded
            } else {
                Outcome::Failed
            })
        );
        assert_eq!(
            (report.exit_source, report.backend),
            (
                host.reactor.capabilities().exit,
                host.reactor.capabilities().backend
            )
        );
    }
    let ends = [
        (Signal::TERM, "0"),
        (Signal::KILL, "0"),
        (Signal::SEGV, "0"),
        (Signal::ABRT, "unlimited"),
    ];
    for (signal, core) in ends {
        let script = format!("ulimit -c {core}; kill -{signal} $$");
        let mut command = host.shell(&script);
        command.current_dir(&dir);
        let child = host.spawn(&command);
        let report = host.until_closed(child).report();
        let exit = report.exit.expect("an exit");
        assert_eq!(
            (exit.code, exit.signal, report.outcome),
            (None, Some(signal), Some(Outcome::Signaled))
        );
        // Whether a core is dumped depends on the machine. The report must agree with the kernel.
        let std = std::process::Command::new("sh")
            .args(["-c", &script])
            .current_dir(&dir)
            .status()
            .expect("a status");
        assert_eq!(exit.to_std(), Some(std), "{signal}, cores {core}");
    }
    host.finish();
    std::fs::remove_dir_all(&dir).expect("the directory goes");
}

/// A child that leaves nothing behind is settled without a wait.
fn the_exit_of_an_orderly_child_settles_and_closes_in_one_turn(way: Way) {
    way.alone(|| {
        let mut host = Host::new(way);
        let child = host.run("echo hello");
        let story = host.until_closed(child);
        let turns: Vec<_> = story
            .events
            .iter()
            .skip_while(|(seen, _)| !matches!(seen, Observed::Exited(_)))
            .map(|(_, turn)| turn)
            .collect();
        // Without the group flag the group is asked by number, and a short-lived zombie in it costs
        // a scan of /proc.
        if matches!(way.mode, Mode::Pidfd | Mode::Uring) {
            assert!(turns.windows(2).all(|pair| pair[0] == pair[1]), "{story:?}");
        }
        assert_eq!(
            story.settled().map(|settled| settled.state),
            Some(SettledAs::None)
        );
        host.finish();
    });
}

/// CASES 25: no background work, no wait for the grace, no signal.
fn a_zombie_leader_is_no_background_work(way: Way) {
    let mut host = Host::new(way);
    let mut command = Command::new("true");
    host.mark.put_on(&mut command);
    let child = host.start(&command);
    wait_zombie(host.reactor.pid(child).expect("a process"));
    let story = host.until_closed(child);
    let settled = story.settled().expect("settled");
    assert_eq!(
        (settled.state, settled.state.complete()),
        (SettledAs::None, Some(true))
    );
    assert!(
        settled.waited < ms(1500),
        "the grace is not waited for: {settled:?}"
    );
    assert!(story.report().stop.is_none());
    host.finish();
}

/// CASES 24.
fn a_stopped_or_continued_child_is_not_an_exit(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.telling("echo ready; read x <&9; echo on; exit 5");
    let gate = Gate::at(9, &mut command);
    let child = host.spawn(&command);
    host.until_said(child, "ready");
    let pid = host.reactor.pid(child).expect("a process");
    for _ in 0..3 {
        host.reactor.signal_leader(child, Signal::STOP);
        wait_until("a stop", || stat(pid).is_some_and(|stat| stat.state == 'T'));
        host.idle(ms(20));
        host.reactor.signal_leader(child, Signal::CONT);
        wait_until("a continuation", || {
            stat(pid).is_some_and(|stat| stat.state != 'T')
        });
        host.idle(ms(20));
    }
    assert!(host.story(child).exit().is_none());
    gate.open();
    let story = host.until_closed(child);
    assert_eq!(
        (
            story.exit().and_then(|exit| exit.code),
            story.delivered(Stream::Stdout)
        ),
        (Some(5), "ready\non\n".into())
    );
    host.finish();
}

/// A process is alive while any of its threads runs.
fn a_leader_whose_main_thread_has_ended_is_not_an_exit(way: Way) {
    let mut host = Host::new(way);
    let mut command = player("a_process_whose_main_thread_has_ended");
    host.mark.put_on(&mut command);
    command.stdout(crate::common::host::delivered());
    let gate = Gate::at(9, &mut command);
    let child = host.spawn(&command);
    let pid = host.reactor.pid(child).expect("a process");
    wait_until("a main thread that has ended", || {
        stat(pid).is_some_and(|stat| stat.state == 'Z')
    });
    host.idle(ms(150));
    assert!(
        host.story(child).exit().is_none(),
        "others of its threads go on"
    );
    gate.open();
    let story = host.until_closed(child);
    assert_eq!(
        story.exit().and_then(|exit| exit.code),
        Some(6),
        "{story:?}"
    );
    host.finish();
}

/// This test binary as a child process.
fn player(part: &str) -> Command {
    let part = isolation::harness_name(part, module_path!());
    let mut command = Command::new(std::env::current_exe().expect("a name of this program"));
    command
        .args(["--exact", &part, "--nocapture", "--test-threads=1"])
        .env(isolation::ISOLATED_TEST, part);
    command
}

/// A helper process of the test above; as a test it does nothing.
#[test]
fn a_process_whose_main_thread_has_ended() {
    if !isolation::is_alone("a_process_whose_main_thread_has_ended", module_path!()) {
        return;
    }
    std::thread::spawn(|| {
        let _ = std::fs::read("/proc/thread-self/fd/9");
        std::process::exit(6);
    });
    sys::end_main_thread();
    loop {
        std::thread::park();
    }
}

/// SPEC 2.1: children that ended before the watch began.
fn children_that_ended_before_the_loop_looked_are_found(way: Way) {
    let mut host = Host::new(way);
    let children: Vec<_> = (0..10)
        .map(|code| {
            let command = host.shell(&format!("exit {code}"));
            host.start(&command)
        })
        .collect();
    for child in &children {
        wait_zombie(host.reactor.pid(*child).expect("a process"));
    }
    for (code, child) in (0..).zip(children) {
        assert_eq!(
            host.until_closed(child).exit().and_then(|exit| exit.code),
            Some(code)
        );
    }
    host.finish();
}

/// CASES 23: several children, one SIGCHLD.
fn five_hundred_exits_at_once_are_five_hundred_exits(way: Way) {
    let mut host = Host::new(way);
    let mut command = Command::new("true");
    host.mark.put_on(&mut command);
    command.stdout(Output::Null);
    let children: Vec<_> = (0..500).map(|_| host.start(&command)).collect();
    host.until("500 exits", |host| !host.reactor.is_busy());
    for child in children {
        assert!(host.story(child).report().success());
    }
    host.finish();
}

/// CASES 22: another thread calls waitpid(-1, WNOHANG) in a loop.
fn a_child_that_somebody_else_reaped_is_told_without_inventing_anything(way: Way) {
    way.alone(|| {
        static OVER: AtomicBool = AtomicBool::new(false);
        static STOLEN: AtomicU32 = AtomicU32::new(0);
        let thief = std::thread::spawn(|| {
            while !OVER.load(Ordering::Relaxed) {
                match rustix::process::wait(WaitOptions::NOHANG) {
                    Ok(Some(_)) => {
                        STOLEN.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(None) | Err(_) => std::thread::yield_now(),
                }
            }
        });
        let mut host = Host::new(way);
        let (mut known, mut unknown) = (0, 0);
        // On a busy machine the other thread seldom comes first.
        for n in (0..5_000).take_while(|n| *n < 60 || STOLEN.load(Ordering::Relaxed) == 0) {
            let child = host.run(&format!("echo out; exit {}", n % 3 + 7));
            let story = host.until_closed(child);
            let exit = story.exit().expect("an exit, in any case");
            match exit.source {
                StatusSource::None => unknown += 1,
                _ => known += 1,
            }
            if exit.source == StatusSource::None {
                assert_eq!(
                    (exit.code, exit.signal, story.report().outcome),
                    (None, None, Some(Outcome::Unknown))
                );
            } else {
                assert_eq!(
                    (exit.code, story.report().outcome),
                    (Some(n % 3 + 7), Some(Outcome::Failed))
                );
            }
            assert_eq!(
                story.report().usage.is_some(),
                exit.source == StatusSource::Waitid
            );
            assert!(drained(story) && story.delivered(Stream::Stdout) == "out\n");
        }
        OVER.store(true, Ordering::Relaxed);
        thief.join().expect("no panic");
        assert!(
            STOLEN.load(Ordering::Relaxed) > 0,
            "the test must steal something"
        );
        let capabilities = host.reactor.capabilities();
        assert!(
            unknown == 0 || !capabilities.exit_info || capabilities.exit == ExitSource::Sigchld,
            "{known} known, {unknown} unknown: {capabilities:?}"
        );
        host.finish();
    });
}

fn exits_are_seen_with_sigchld_ignored(host: &mut Host) {
    for n in 0..8 {
        let child = host.run(&format!("echo out; exit {}", n + 1));
        let story = host.until_closed(child);
        let exit = story.exit().expect("an exit");
        assert!(
            exit.code == Some(n + 1)
                || (exit.source, story.report().outcome)
                    == (StatusSource::None, Some(Outcome::Unknown)),
            "{exit:?}"
        );
        let capabilities = host.reactor.capabilities();
        assert!(
            exit.code.is_some()
                || !capabilities.exit_info
                || capabilities.exit == ExitSource::Sigchld,
            "{exit:?} with {capabilities:?}"
        );
        assert!(drained(host.story(child)));
    }
}

/// CASES 22: the host ignores SIGCHLD before the loop is built, so the kernel reaps all children.
fn an_ignored_sigchld_loses_no_exit(way: Way) {
    way.alone(|| {
        sys::ignore(Signal::CHLD);
        let mut host = Host::new(way);
        exits_are_seen_with_sigchld_ignored(&mut host);
        host.finish();
    });
}

/// CASES 22, SPEC 2.1: without signals children are found by the round of every second.
fn a_sigchld_that_is_ignored_behind_our_back_loses_no_exit(way: Way) {
    way.alone(|| {
        let mut host = Host::new(way);
        let child = host.run("exit 9");
        assert_eq!(
            host.until_closed(child).exit().and_then(|exit| exit.code),
            Some(9)
        );
        sys::ignore(Signal::CHLD);
        exits_are_seen_with_sigchld_ignored(&mut host);
        host.finish();
    });
}

/// CASES 20: the pidfd becomes readable while waitid(2) has nothing. The watch is armed again
/// without spinning, and the exit is reported when it comes.
fn a_dead_child_under_a_tracer_is_not_an_exit_until_the_tracer_lets_go(way: Way) {
    way.alone(|| {
        let mut host = Host::new(way);
        let child = host.run("echo ready; exec sleep 60");
        host.until_said(child, "ready");
        let pid = host.reactor.pid(child).expect("a process");
        let tracer = Tracer::seize(pid);
        host.reactor.signal_leader(child, Signal::KILL);
        wait_zombie(pid);
        let before = host.reactor.stats().turns;
        host.idle(ms(400));
        assert!(
            host.story(child).exit().is_none(),
            "the tracer has it still"
        );
        let turns = host.reactor.stats().turns - before;
        assert!(turns < 50, "{turns} turns with nothing to do");
        tracer.let_go();
        let story = host.until_closed(child);
        assert_eq!(
            story.exit().and_then(|exit| exit.signal),
            Some(Signal::KILL)
        );
        host.finish();
    });
}

/// SPEC 2.5.
fn resource_use_is_told_where_the_status_was_ours(way: Way) {
    let mut host = Host::new(way);
    let child = host.run("i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done");
    let report = host.until_closed(child).report();
    let usage = report.usage.expect("the status was ours");
    assert!(
        usage.user + usage.system > ms(1) && usage.user + usage.system < LONG,
        "{usage:?}"
    );
    let timing = report.timing.expect("times");
    assert!(
        timing.ran.is_some_and(|ran| ran > ms(1) && ran < LONG),
        "{timing:?}"
    );
    host.finish();
}

/// A system call that is refused, and the exit source that the loop must choose then.
fn exits_with_calls_refused(test: &str, calls: &[(libc::c_long, i32)], check: impl Fn(&Reactor)) {
    isolation::alone(test, module_path!(), || {
        sys::refuse(calls);
        let mut host = Host::with(&Reactor::builder());
        check(&host.reactor);
        let child = host.run("echo out; echo err >&2; exit 7");
        let story = host.until_closed(child);
        assert_eq!(
            (
                story.exit().and_then(|exit| exit.code),
                story.delivered(Stream::Stdout)
            ),
            (Some(7), "out\n".into())
        );
        assert!(drained(story));
        // A stop still ends the group, with and without its leader.
        let mut command = host.telling("(trap '' TERM; echo ready; exec sleep 60) & wait");
        command.stop(lastwords::StopPolicy::default().grace(ms(100)));
        let child = host.spawn(&command);
        host.until_said(child, "ready");
        host.reactor.stop(child, None);
        let report = host.until_closed(child).report();
        assert_eq!(report.outcome, Some(Outcome::Stopped));
        assert!(
            report
                .stop
                .as_ref()
                .is_some_and(|stop| stop.stuck.is_empty()),
            "{report:?}"
        );
        host.finish();
    });
}

/// CASES 21: a seccomp filter answers EPERM.
#[test]
fn exits_are_seen_where_pidfd_open_is_refused() {
    exits_with_calls_refused(
        "exits_are_seen_where_pidfd_open_is_refused",
        &[(libc::SYS_pidfd_open, libc::EPERM)],
        |reactor| {
            assert!(
                !reactor.capabilities().pidfd_open,
                "{:?}",
                reactor.capabilities()
            );
        },
    );
}

/// CASES 21: no pidfd_open(2), but pidfds from clone3(2).
#[test]
fn exits_are_seen_where_pidfd_open_is_missing() {
    exits_with_calls_refused(
        "exits_are_seen_where_pidfd_open_is_missing",
        &[(libc::SYS_pidfd_open, libc::ENOSYS)],
        |reactor| {
            let capabilities = reactor.capabilities();
            assert!(
                !capabilities.pidfd_open
                    && (capabilities.exit == ExitSource::Pidfd) == capabilities.pidfd_from_clone,
                "{capabilities:?}"
            );
        },
    );
}

/// CASES 21.
#[test]
fn exits_are_seen_where_pidfd_send_signal_alone_is_missing() {
    let test = "exits_are_seen_where_pidfd_send_signal_alone_is_missing";
    exits_with_calls_refused(
        test,
        &[(libc::SYS_pidfd_send_signal, libc::ENOSYS)],
        |reactor| {
            let capabilities = reactor.capabilities();
            assert!(
                !capabilities.pidfd_signal && !capabilities.group_signal,
                "{capabilities:?}"
            );
        },
    );
}

/// CASES 21: no pidfds at all. SIGCHLD takes over, and the reason can be asked.
#[test]
fn exits_are_seen_where_nothing_of_pidfds_is_to_be_had() {
    let none = [
        (libc::SYS_clone3, libc::ENOSYS),
        (libc::SYS_pidfd_open, libc::ENOSYS),
        (libc::SYS_pidfd_send_signal, libc::ENOSYS),
    ];
    exits_with_calls_refused(
        "exits_are_seen_where_nothing_of_pidfds_is_to_be_had",
        &none,
        |reactor| {
            let capabilities = reactor.capabilities();
            assert!(
                !capabilities.clone3 && !capabilities.pidfd_open && !capabilities.pidfd_signal,
                "{capabilities:?}"
            );
            assert!(!capabilities.exit_why.is_empty());
        },
    );
}

/// CASES 96.
#[test]
fn exits_are_seen_where_waitid_is_refused() {
    exits_with_calls_refused(
        "exits_are_seen_where_waitid_is_refused",
        &[(libc::SYS_waitid, libc::EPERM)],
        |_| {},
    );
}

/// CASES 96.
#[test]
fn an_exit_is_seen_though_every_wait_is_refused() {
    let test = "an_exit_is_seen_though_every_wait_is_refused";
    isolation::alone(test, module_path!(), || {
        sys::refuse(&[
            (libc::SYS_waitid, libc::EPERM),
            (libc::SYS_wait4, libc::EPERM),
        ]);
        let mut reactor = Reactor::new().expect("a loop");
        let command = Command::shell("echo out; exit 7");
        let report = reactor.run(&command).expect("it runs").report;
        assert_eq!(report.outcome, Some(Outcome::Unknown));
    });
}
