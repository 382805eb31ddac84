//! Generations: every run has its own pipes, timers and completion, whatever numbers are used
//! again.

use crate::common::gate::{Bell, Gate};
use crate::common::host::Host;
use crate::common::mark::Mark;
use crate::common::proc::descriptors;
use crate::common::{Way, every_way, ms};
use lastwords::{
    BackgroundPolicy, Bound, Command, DetachError, DrainPolicy, EndedBy, FeedRefusal, Generation,
    Signal, Signalled, Stdin, Stopping, Stream, Verdict, Wait,
};
use std::collections::BTreeSet;
use std::time::Duration;

every_way! {
    a_restart_is_untouched_by_anything_late_of_the_run_before,
    numbers_of_descriptors_and_slots_are_used_again_without_mixing_anything_up,
    many_at_once_keep_their_own,
    a_key_of_a_closed_generation_is_worth_nothing,
    a_key_of_another_loop_is_gone,
    timers_of_an_old_generation_never_reach_a_new_one,
    the_same_command_runs_many_times,
    generations_are_numbered_from_one_in_the_order_of_their_start,
}

/// CASES 43. Generation 1 is row 1, restarted at once; its holder writes while 2 runs, with the
/// same descriptor numbers.
fn a_restart_is_untouched_by_anything_late_of_the_run_before(way: Way) {
    let mut host = Host::new(way);
    let script =
        "(trap '' PIPE; read x <&9; echo late from $0; echo >&8; read x <&9) & echo out of $0";
    let mut command = host.telling(script);
    let (gate, bell) = (Gate::at(9, &mut command), Bell::at(8, &mut command));
    command
        .drain(DrainPolicy::default().idle(ms(200)))
        .background(BackgroundPolicy::settle().grace(ms(20_000)));
    let mut one = command.clone();
    one.arg("one");
    let first = host.spawn(&one);
    host.until_exited(first);
    // Both live at the same time: 1 drains in its own time while 2 runs.
    let mut two = host.telling("echo out of $0; read x <&7; echo more of $0; exit 4");
    let other = Gate::at(7, &mut two);
    two.arg("two");
    let second = host.spawn(&two);
    assert_ne!(first, second);
    host.until_said(second, "out of two");
    let story = host.until_drained(first);
    assert_eq!(
        story.drain().map(|drain| (drain.verdict, drain.ended_by)),
        Some((Verdict::DrainTimedOut, Some(EndedBy::Idle)))
    );
    gate.pass();
    host.until("late words", |host| {
        host.story(first).delivered(Stream::Stdout).contains("late")
    });
    bell.wait();
    assert_eq!(host.story(second).delivered(Stream::Stdout), "out of two\n");
    assert!(host.story(second).exit().is_none());
    host.reactor.kill(first);
    assert_eq!(
        host.until_closed(first).delivered(Stream::Stdout),
        "out of one\nlate from one\n"
    );
    assert!(
        host.story(second).exit().is_none(),
        "a kill of the old one is no kill of the new one"
    );
    other.open();
    let story = host.until_closed(second);
    assert_eq!(
        (
            story.delivered(Stream::Stdout),
            story.exit().and_then(|exit| exit.code)
        ),
        ("out of two\nmore of two\n".into(), Some(4))
    );
    assert_eq!(
        story.drain().map(|drain| drain.verdict),
        Some(Verdict::Drained)
    );
    host.finish();
}

/// CASES 43. The pipe of 1 is closed at its verdict, 2 gets the same descriptor numbers, and then
/// the holder of 1 writes.
fn numbers_of_descriptors_and_slots_are_used_again_without_mixing_anything_up(way: Way) {
    way.alone(|| {
        let mut host = Host::new(way);
        let warm = host.run("echo warm");
        host.until_closed(warm);
        let numbers = |host: &Host, child: Generation| {
            let pipes = descriptors()
                .into_iter()
                .filter(|(_, what)| what.starts_with("pipe:"))
                .map(|(number, _)| number);
            assert!(host.reactor.pid(child).is_some());
            pipes.collect::<BTreeSet<_>>()
        };
        for round in 0..10 {
            let mut command = host
                .telling("(trap '' PIPE; read x <&9; echo stray; echo >&8) 2>/dev/null & echo out");
            let (gate, bell) = (Gate::at(9, &mut command), Bell::at(8, &mut command));
            command
                .drain(DrainPolicy::default().idle(ms(20)).limit(Bound::Never))
                .background(BackgroundPolicy::disabled());
            let first = host.spawn(&command);
            let before = numbers(&host, first);
            host.until_closed(first);
            let mut command =
                host.telling(&format!("echo round {round}; read x <&7; exit {round}"));
            let other = Gate::at(7, &mut command);
            let second = host.spawn(&command);
            assert!(
                numbers(&host, second).intersection(&before).count() > 0,
                "numbers are used again"
            );
            host.until_said(second, "round");
            gate.pass();
            bell.wait();
            host.idle(ms(10));
            other.open();
            let story = host.until_closed(second);
            assert_eq!(story.delivered(Stream::Stdout), format!("round {round}\n"));
            assert_eq!(story.exit().and_then(|exit| exit.code), Some(round));
            assert_eq!(host.story(first).delivered(Stream::Stdout), "out\n");
        }
        host.finish();
    });
}

fn many_at_once_keep_their_own(way: Way) {
    let mut host = Host::new(way);
    let children: Vec<_> = (0..60)
        .map(|n| {
            let mut command = host.telling(&format!(
                "read x; echo $x out; echo {n} err >&2; seq 1 $((n * {n})); exit {n}"
            ));
            command.stdin(format!("{n}\n").into_bytes());
            (n, host.start(&command))
        })
        .collect();
    host.until("all closed", |host| !host.reactor.is_busy());
    for (n, child) in children {
        let story = host.story(child);
        assert_eq!(story.exit().and_then(|exit| exit.code), Some(n));
        assert!(
            story
                .delivered(Stream::Stdout)
                .starts_with(&format!("{n} out\n"))
        );
        assert_eq!(story.report().stderr_tail, [format!("{n} err")]);
        assert_eq!(
            story.drain().map(|drain| drain.verdict),
            Some(Verdict::Drained)
        );
    }
    host.finish();
}

fn assert_gone(host: &mut Host, key: Generation) {
    let reactor = &mut host.reactor;
    assert_eq!(
        (reactor.stop(key, None), reactor.kill(key)),
        (Stopping::Gone, Stopping::Gone)
    );
    assert_eq!(
        (
            reactor.signal(key, Signal::KILL),
            reactor.signal_leader(key, Signal::KILL)
        ),
        (Signalled::Empty, Signalled::Empty)
    );
    assert_eq!(
        reactor.feed(key, b"x".to_vec()).map_err(|error| error.why),
        Err(FeedRefusal::Gone)
    );
    assert_eq!(reactor.detach(key).err(), Some(DetachError::Gone));
    assert!(reactor.pid(key).is_none() && !reactor.close_stdin(key));
    assert!(
        reactor.take_stdin(key).is_none()
            && reactor.take_stdout(key).is_none()
            && reactor.take_stderr(key).is_none()
    );
    for stream in Stream::ALL {
        assert!(reactor.kept(key, stream).is_none() && reactor.take(key, stream).is_none());
        assert!(
            !reactor.close_output(key, stream)
                && !reactor.pause_output(key, stream)
                && !reactor.resume_output(key, stream)
        );
    }
}

/// The slot is somebody else's by then, and nothing reaches them.
fn a_key_of_a_closed_generation_is_worth_nothing(way: Way) {
    let mut host = Host::new(way);
    let old = host.run("echo old");
    host.until_closed(old);
    let mut command = host.telling("read x; echo $x");
    command.stdin(Stdin::Feed);
    let new = host.spawn(&command);
    assert_gone(&mut host, old);
    host.idle(ms(20));
    host.reactor.feed(new, b"mine\n".to_vec()).expect("fed");
    let story = host.until_closed(new);
    assert_eq!(story.delivered(Stream::Stdout), "mine\n");
    assert!(story.report().success() && story.report().stop.is_none());
    host.finish();
}

/// Both have the same slot and the same number.
fn a_key_of_another_loop_is_gone(way: Way) {
    let (mut host, mut other) = (Host::new(way), Host::new(way));
    let mine = host.run("echo mine; exec sleep 60");
    let theirs = other.run("echo theirs; exec sleep 60");
    assert_eq!((mine.number(), theirs.number()), (1, 1));
    assert_ne!(mine, theirs);
    assert_gone(&mut host, theirs);
    assert_gone(&mut other, mine);
    host.until_said(mine, "mine");
    other.until_said(theirs, "theirs");
    for (host, child) in [(&mut host, mine), (&mut other, theirs)] {
        host.reactor.kill(child);
        host.until_closed(child);
    }
    host.finish();
    other.finish();
}

/// Every timer that an old generation can leave: of its run limit, its drain, its grace, its wait.
fn timers_of_an_old_generation_never_reach_a_new_one(way: Way) {
    let mut host = Host::new(way);
    for _ in 0..3 {
        let mut command = host.telling("(read x <&9) & exit 0");
        let gate = Gate::at(9, &mut command);
        command
            .run_limit(ms(300))
            .drain(DrainPolicy::default().idle(ms(150)).limit(ms(200)));
        command.background(
            BackgroundPolicy::settle()
                .grace(ms(150))
                .wait(Wait::For(ms(100))),
        );
        let old = host.spawn(&command);
        host.until_exited(old);
        gate.open();
        host.until_closed(old);
        let mut command = host.telling("read x <&9; echo out");
        let gate = Gate::at(9, &mut command);
        let new = host.spawn(&command);
        host.idle(ms(350));
        gate.open();
        let story = host.until_closed(new);
        assert!(
            story.report().success() && story.report().stop.is_none(),
            "{story:?}"
        );
        assert_eq!(
            story.drain().map(|drain| drain.verdict),
            Some(Verdict::Drained)
        );
    }
    host.finish();
}

fn the_same_command_runs_many_times(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.telling("cat; echo $0 >&2");
    command.arg("name").stdin(b"again".to_vec());
    let copy = command.clone();
    for n in 0..20 {
        let child = host.spawn(if n % 2 == 0 { &command } else { &copy });
        let story = host.until_closed(child);
        assert_eq!(
            (story.delivered(Stream::Stdout), &story.report().stderr_tail),
            ("again".into(), &vec!["name".to_owned()])
        );
        assert_eq!(story.report().generation, n + 1);
    }
    host.finish();
}

fn generations_are_numbered_from_one_in_the_order_of_their_start(way: Way) {
    let mark = Mark::new();
    let mut reactor = way.reactor();
    let mut command = Command::new("true");
    mark.put_on(&mut command);
    let keys: Vec<_> = (0..5)
        .map(|_| reactor.start(&command).expect("a process"))
        .collect();
    assert_eq!(
        keys.iter().map(|key| key.number()).collect::<Vec<_>>(),
        [1, 2, 3, 4, 5]
    );
    assert!(keys.is_sorted());
    assert_eq!(
        keys.iter().map(ToString::to_string).collect::<String>(),
        "12345"
    );
    assert_eq!((reactor.stats().started, reactor.stats().live), (5, 5));
    let leftovers = reactor.shutdown(None);
    assert_eq!(leftovers.reports.len(), 5);
    assert!(leftovers.reports.iter().all(|report| {
        report
            .timing
            .is_some_and(|timing| timing.total > Duration::ZERO)
    }));
}
