//! The run limit, and the ways in which a host parts with a generation or with the loop: shutdown,
//! detach, drop.

use crate::common::gate::{Bell, Gate};
use crate::common::host::Host;
use crate::common::log::Panicking;
use crate::common::proc::{children, stat};
use crate::common::sys;
use crate::common::{LONG, Way, every_way, ms, wait_until};
use lastwords::{
    Backend, BackgroundPolicy, Bound, Command, DetachError, DrainPolicy, EndedBy, Outcome,
    SettledAs, StopPolicy, StopReason, Stopping, Stream, Verdict, Wait,
};
use rustix::process::{Pid, WaitOptions, waitpid};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

every_way! {
    shutdown_ends_everything_and_gives_the_reports,
    the_run_limit_is_a_stop_with_another_name,
    the_run_limit_bounds_the_drain_of_a_leader_that_had_ended,
    the_run_limit_ends_what_the_leader_left,
    a_run_limit_of_zero_stops_at_once,
    a_detached_generation_goes_on_and_is_the_hosts,
    what_cannot_be_detached_says_why,
    a_dropped_loop_kills_and_reaps_what_it_owns,
    a_subscriber_that_panics_in_start_leaves_no_child_without_an_owner,
    a_subscriber_that_panics_at_the_warning_stops_no_run,
    a_loop_whose_poll_set_fails_ends_what_it_has_started,
    a_drop_bound_of_zero_kills_and_does_not_wait,
    a_loop_dropped_in_the_middle_of_a_spawn_leaves_nothing,
}

/// SPEC 3.6.
fn shutdown_ends_everything_and_gives_the_reports(way: Way) {
    let mark = crate::common::mark::Mark::new();
    let mut reactor = way.reactor();
    for n in 0..4 {
        let mut command = Command::shell(format!("echo {n} >&2; yes & sleep 60"));
        mark.put_on(&mut command);
        command.stdout(crate::common::host::delivered());
        reactor.spawn(&command).expect("a process");
    }
    mark.wait_named("yes", 4);
    let leftovers = reactor.shutdown(Some(StopPolicy::default().grace(ms(1000))));
    assert!(leftovers.is_empty(), "nothing could not be ended");
    let mut numbers: Vec<_> = leftovers
        .reports
        .iter()
        .map(|report| report.generation)
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2, 3, 4]);
    for report in &leftovers.reports {
        assert_eq!(
            report.stop.as_ref().map(|stop| stop.reason),
            Some(StopReason::Shutdown)
        );
        assert_eq!(report.outcome, Some(Outcome::Stopped));
    }
    assert!(mark.alive().is_empty());
}

/// SPEC 1.5 and 2.4.
fn the_run_limit_is_a_stop_with_another_name(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.telling("trap 'echo bye; exit 0' TERM; while :; do sleep 0.02; done");
    command
        .run_limit(ms(300))
        .stop(StopPolicy::default().grace(LONG));
    let child = host.spawn(&command);
    let story = host.until_closed(child);
    let report = story.report();
    assert_eq!(
        (report.outcome, report.exit.and_then(|exit| exit.code)),
        (Some(Outcome::TimedOut), Some(0))
    );
    assert_eq!(
        report.stop.as_ref().map(|stop| stop.reason),
        Some(StopReason::Timeout)
    );
    assert!(
        report
            .timing
            .and_then(|timing| timing.ran)
            .is_some_and(|ran| ran >= ms(300)),
        "{:?}",
        report.timing
    );
    assert_eq!(
        (story.delivered(Stream::Stdout), report.state()),
        ("bye\n".into(), Some(Verdict::Drained))
    );

    // A run that ends in time is not touched.
    let mut command = host.telling("echo in time");
    command.run_limit(LONG);
    let child = host.spawn(&command);
    let report = host.until_closed(child).report();
    assert_eq!(
        (report.outcome, report.stop.is_none()),
        (Some(Outcome::Succeeded), true)
    );
    host.finish();
}

/// SPEC 1.5: `ended_by` is `deadline` only if a stream was still open then; the outcome stays the
/// leader's.
fn the_run_limit_bounds_the_drain_of_a_leader_that_had_ended(way: Way) {
    let mut host = Host::new(way);
    let mut command =
        host.telling("setsid sh -c 'echo away >&8; exec sleep 60' & read x <&9; exit 0");
    let (gate, bell) = (Gate::at(9, &mut command), Bell::at(8, &mut command));
    command.run_limit(ms(900)).drain(
        DrainPolicy::default()
            .idle(Bound::Never)
            .limit(Bound::Never),
    );
    let child = host.spawn(&command);
    bell.wait();
    gate.open();
    let story = host.until_closed(child);
    assert_eq!(
        story.drain().map(|drain| (drain.verdict, drain.ended_by)),
        Some((Verdict::DrainTimedOut, Some(EndedBy::Deadline)))
    );
    assert_eq!(story.report().outcome, Some(Outcome::Succeeded));
    host.mark.kill();
    host.finish();
}

/// The outcome is `TimedOut` only if the leader was alive.
fn the_run_limit_ends_what_the_leader_left(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.telling("sleep 60 >/dev/null 2>&1 & exit 0");
    command.run_limit(ms(500)).background(
        BackgroundPolicy::settle()
            .grace(ms(50))
            .wait(Wait::For(LONG * 10)),
    );
    let child = host.spawn(&command);
    let story = host.until_closed(child);
    assert!(story.background_wait().is_some());
    let report = story.report();
    assert_eq!(report.outcome, Some(Outcome::Succeeded));
    assert_eq!(
        report
            .stop
            .as_ref()
            .map(|stop| (stop.reason, stop.escalated)),
        Some((StopReason::Timeout, false))
    );
    assert_eq!(
        report.background.as_ref().map(|settled| settled.state),
        Some(SettledAs::Terminated)
    );
    assert!(
        report.timing.is_some_and(|timing| timing.total >= ms(500)),
        "{:?}",
        report.timing
    );
    host.finish();
}

fn a_run_limit_of_zero_stops_at_once(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.shell("sleep 60");
    command.run_limit(Duration::ZERO);
    let child = host.start(&command);
    let report = host.until_closed(child).report();
    assert_eq!(report.outcome, Some(Outcome::TimedOut));
    host.finish();
}

/// SPEC 3.6.
fn a_detached_generation_goes_on_and_is_the_hosts(way: Way) {
    way.alone(|| {
        let mut host = Host::new(way);
        let mut command = host.telling("echo before; read x <&9; echo after; exit 11");
        let gate = Gate::at(9, &mut command);
        let child = host.spawn(&command);
        host.until_said(child, "before");
        let detached = host.reactor.detach(child).expect("it may go");
        assert_eq!(
            detached.kept[0]
                .as_ref()
                .map(|kept| kept.to_vec())
                .as_deref(),
            Some(&b"before\n"[..])
        );
        assert!(!host.reactor.is_busy() && host.reactor.stats().live == 0);
        assert!(host.reactor.pid(child).is_none());
        assert_eq!(host.reactor.stop(child, None), Stopping::Gone);
        let Host { reactor, mark, .. } = host;
        drop(reactor);
        assert!(
            stat(detached.pid).is_some_and(|stat| stat.state != 'Z'),
            "it goes on"
        );
        gate.open();
        let pid = Pid::from_raw(detached.pid.try_into().expect("fits")).expect("not zero");
        let (_, status) = waitpid(Some(pid), WaitOptions::empty())
            .expect("ours to reap")
            .expect("a status");
        assert_eq!(status.exit_status(), Some(11));
        let mut text = [0; 64];
        let n = rustix::io::read(
            detached.stdout.as_ref().expect("its pipe").as_fd(),
            &mut text,
        )
        .expect("what it said");
        assert_eq!(&text[..n], b"after\n");
        assert!(children().is_empty());
        mark.wait_gone();
    });
}

/// The way back is named in the error.
fn what_cannot_be_detached_says_why(way: Way) {
    let mut host = Host::new(way);
    let child = host.run("trap '' TERM; echo ready; sleep 60");
    host.until_said(child, "ready");
    host.reactor.kill(child);
    match host.reactor.detach(child) {
        Err(DetachError::Killing | DetachError::Gone) => {}
        other => panic!("being killed, or dead by now: {other:?}"),
    }
    host.until_closed(child);
    assert_eq!(host.reactor.detach(child).err(), Some(DetachError::Gone));

    let mut command = host.shell("true");
    command.current_dir("/nonexistent");
    let child = host.start(&command);
    assert!(matches!(
        host.reactor.detach(child).err(),
        Some(DetachError::NotStarted | DetachError::Gone)
    ));
    host.until_closed(child);
    host.finish();
}

/// SPEC 3.6: dropping kills and reaps what the loop still owns, members and ignored signals or not.
fn a_dropped_loop_kills_and_reaps_what_it_owns(way: Way) {
    way.alone(|| {
        let mark = crate::common::mark::Mark::new();
        let mut reactor = way.builder().drop_bound(LONG).build().expect("a loop");
        for script in [
            "trap '' TERM; sleep 60",
            "sleep 60 & sleep 61",
            "sleep 60 & exit 0",
            "kill -STOP $$",
        ] {
            let mut command = Command::shell(script);
            command.background(BackgroundPolicy::settle());
            mark.put_on(&mut command);
            reactor.spawn(&command).expect("a process");
        }
        let mut command = Command::new("sleep");
        mark.put_on(&mut command);
        reactor.start(command.arg("60")).expect("a process");
        mark.wait_named("sleep", 5);
        for _ in 0..3 {
            let _turn = reactor.turn(Some(ms(20))).expect("a turn");
        }
        drop(reactor);
        wait_until("nobody", || mark.alive().is_empty());
        assert!(children().is_empty(), "all are reaped: {:?}", children());
    });
}

/// CASES 82. The child has an owner before anything is logged: the drop ends it.
fn a_subscriber_that_panics_in_start_leaves_no_child_without_an_owner(way: Way) {
    way.alone(|| {
        let mark = crate::common::mark::Mark::new();
        let mut command = Command::shell("sleep 60");
        mark.put_on(&mut command);
        let mut reactor = way.reactor();
        let started = tracing::subscriber::with_default(Panicking, || {
            catch_unwind(AssertUnwindSafe(|| reactor.start(&command).is_ok()))
        });
        assert!(started.is_err(), "it has panicked");
        assert_eq!(reactor.stats().live, 1);
        drop(reactor);
        assert!(children().is_empty(), "all are reaped: {:?}", children());
    });
}

/// CASES 82. The warning of a held pipe panics; the run goes on to its end.
fn a_subscriber_that_panics_at_the_warning_stops_no_run(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.shell("sleep 60 & exit 3");
    command.drain(DrainPolicy::default().idle(ms(50)));
    let child = host.spawn(&command);
    let mut panics = 0;
    tracing::subscriber::with_default(Panicking, || {
        while panics == 0 {
            let turned = catch_unwind(AssertUnwindSafe(|| host.reactor.turn(Some(LONG)).is_ok()));
            panics += usize::from(turned.is_err());
        }
    });
    host.reactor.kill(child);
    let story = host.until_closed(child);
    assert_eq!(story.report().exit.and_then(|exit| exit.code), Some(3));
    host.finish();
}

/// CASES 92. The poll set is asked no more; what is the loop's own is killed and reaped without it.
fn a_loop_whose_poll_set_fails_ends_what_it_has_started(way: Way) {
    way.alone(|| {
        let mark = crate::common::mark::Mark::new();
        let mut reactor = way.builder().drop_bound(LONG).build().expect("a loop");
        for script in ["trap '' TERM; sleep 60", "sleep 60 & sleep 61"] {
            let mut command = Command::shell(script);
            mark.put_on(&mut command);
            reactor.spawn(&command).expect("a process");
        }
        mark.wait_named("sleep", 3);
        sys::refuse(&[
            (libc::SYS_epoll_wait, libc::EBADF),
            (libc::SYS_epoll_pwait, libc::EBADF),
            (libc::SYS_epoll_pwait2, libc::EBADF),
            (libc::SYS_io_uring_enter, libc::EBADF),
            (libc::SYS_poll, libc::EBADF),
            (libc::SYS_ppoll, libc::EBADF),
        ]);
        // io_uring takes a refusal for one that passes, and says nothing yet.
        let has_failed = (0..100).any(|_| reactor.turn(Some(ms(10))).is_err());
        assert!(has_failed || reactor.capabilities().backend == Backend::Uring);
        drop(reactor);
        assert!(children().is_empty(), "all are reaped: {:?}", children());
        wait_until("nobody", || mark.alive().is_empty());
    });
}

fn a_drop_bound_of_zero_kills_and_does_not_wait(way: Way) {
    way.alone(|| {
        let mark = crate::common::mark::Mark::new();
        let mut reactor = way
            .builder()
            .drop_bound(Duration::ZERO)
            .build()
            .expect("a loop");
        for _ in 0..3 {
            let mut command = Command::shell("trap '' TERM; sleep 60 & sleep 60");
            mark.put_on(&mut command);
            reactor.spawn(&command).expect("a process");
        }
        mark.wait_named("sleep", 6);
        drop(reactor);
        wait_until("nobody", || mark.alive().is_empty());
    });
}

/// It is killed, and its memory freed only when it has left it.
fn a_loop_dropped_in_the_middle_of_a_spawn_leaves_nothing(way: Way) {
    way.alone(|| {
        let mark = crate::common::mark::Mark::new();
        let mut command = Command::shell("sleep 60 & exec sleep 60");
        mark.put_on(&mut command);
        for bound in [LONG, Duration::ZERO] {
            for _ in 0..15 {
                let mut reactor = way.builder().drop_bound(bound).build().expect("a loop");
                reactor.start(&command).expect("a process");
                drop(reactor);
                assert!(
                    bound.is_zero() || children().is_empty(),
                    "reaped: {:?}",
                    children()
                );
            }
            wait_until("nobody", || mark.alive().is_empty());
        }
    });
}
