//! The drain: reading a generation's streams to their end after its leader's, however long others
//! hold them.

use crate::common::gate::{Bell, Gate};
use crate::common::host::{Host, delivered};
use crate::common::log::Log;
use crate::common::proc::{wait_comm, wait_zombie};
use crate::common::{LONG, Way, every_way, ms};
use lastwords::__internals::testing::oracle::{History, Observed};
use lastwords::{
    BackgroundPolicy, Bound, Capture, DrainPolicy, EndedBy, Generation, Outcome, Output, SettledAs,
    Stream, StreamEnd, Verdict, Wait,
};
use std::time::{Duration, Instant};

every_way! {
    a_child_that_left_nobody_is_drained_in_the_turn_that_sees_its_exit,
    bounds_of_zero_never_cut_a_child_that_left_nobody,
    no_captured_stream_means_drained_with_the_exit,
    while_the_leader_runs_there_is_no_limit,
    a_held_pipe_times_out_by_idle_and_its_holder_is_named,
    output_that_keeps_coming_is_read_until_it_ends,
    a_chatty_holder_is_ended_by_the_limit,
    a_held_pipe_changes_no_exit_status_and_hides_no_last_words,
    output_before_the_exit_is_counted_whichever_notice_comes_first,
    end_of_file_wins_over_an_idle_timer_that_is_due_in_the_same_turn,
    bytes_found_by_the_last_read_rearm_the_idle_bound,
    streams_that_are_closed_early_wake_nobody_until_the_exit,
    an_exit_beside_a_noisy_child_is_seen_within_one_turn,
    infinite_bounds_wait_for_end_of_file,
    a_bound_of_zero_ends_a_held_drain_at_once,
    if_both_bounds_are_due_idle_is_named,
    the_idle_clock_stands_while_the_host_holds_a_stream_back,
    a_holder_outside_the_group_is_found_and_named_with_its_stream,
    many_drains_that_are_due_at_once_all_end,
}

/// Bounds that are short, for tests in which one must pass.
fn short(idle: u64, limit: u64) -> DrainPolicy {
    DrainPolicy::default().idle(ms(idle)).limit(ms(limit))
}

fn exited(seen: &Observed) -> bool {
    matches!(seen, Observed::Exited(_))
}

fn drained(seen: &Observed) -> bool {
    matches!(seen, Observed::Drained(..))
}

/// Asserts that a drain has timed out by this, not before `at_least`.
fn assert_timed_out(story: &History, by: EndedBy, at_least: Duration) {
    let drain = story.drain().expect("a verdict");
    assert_eq!(
        (drain.verdict, drain.ended_by),
        (Verdict::DrainTimedOut, Some(by)),
        "{drain:?}"
    );
    assert!(drain.waited >= at_least, "{drain:?}");
}

/// SPEC 1.4: for a child that left nobody, end of file is there at the exit notice.
fn a_child_that_left_nobody_is_drained_in_the_turn_that_sees_its_exit(way: Way) {
    way.alone(|| {
        let mut host = Host::new(way);
        let child = host.run("echo out; echo err >&2; exit 3");
        let story = host.until_closed(child);
        assert_eq!(story.turn_of(exited), story.turn_of(drained), "{story:?}");
        assert_eq!(
            (story.kept(Stream::Stdout), story.kept(Stream::Stderr)),
            ("out\n".into(), "err\n".into())
        );
        assert_eq!(story.last_words(), Some(vec!["err".to_owned()]));
        let report = story.report();
        assert_eq!(
            (report.outcome, report.exit.and_then(|exit| exit.code)),
            (Some(Outcome::Failed), Some(3))
        );
        assert_eq!(report.state(), Some(Verdict::Drained));
        assert_eq!(
            report.drain.as_ref().map(|drain| drain.policy),
            Some(DrainPolicy::default())
        );
        let ends =
            [report.stdout, report.stderr].map(|stream| stream.and_then(|stream| stream.end));
        assert_eq!(ends, [Some(StreamEnd::Eof); 2]);
        host.finish();
    });
}

/// No bound can make a leak of a child that left nobody: the timers are never armed.
fn bounds_of_zero_never_cut_a_child_that_left_nobody(way: Way) {
    way.alone(|| {
        let mut host = Host::new(way);
        for _ in 0..20 {
            let mut command = host.telling("seq 1 2000; echo err >&2");
            command.drain(short(0, 0));
            let child = host.spawn(&command);
            let story = host.until_closed(child);
            assert_eq!(
                story.drain().map(|drain| drain.verdict),
                Some(Verdict::Drained)
            );
            assert_eq!(story.report().stdout.map(|stream| stream.bytes), Some(8893));
        }
        host.finish();
    });
}

/// SPEC 1.3: with no captured stream the exit goes straight through Exited to Drained.
fn no_captured_stream_means_drained_with_the_exit(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.shell("sleep 0.2 & exit 4");
    command.stdout(Output::Null).stderr(Output::Null);
    let child = host.spawn(&command);
    let story = host.until_closed(child);
    assert_eq!(story.turn_of(exited), story.turn_of(drained));
    assert_eq!(story.last_words(), Some(Vec::new()));
    assert!(story.report().stdout.is_none() && story.report().stderr.is_none());
    host.finish();
}

/// SPEC 1.2: a child that runs on makes no drain warning, however short the bounds are.
fn while_the_leader_runs_there_is_no_limit(way: Way) {
    let warnings = Log::warnings_of(|| {
        let mut host = Host::new(way);
        let mut command = host.telling("read x <&9; echo done");
        let gate = Gate::at(9, &mut command);
        command.drain(short(1, 2));
        let child = host.spawn(&command);
        host.idle(ms(100));
        assert!(host.story(child).exit().is_none());
        gate.open();
        let story = host.until_closed(child);
        assert_eq!(
            (
                story.delivered(Stream::Stdout),
                story.drain().map(|d| d.verdict)
            ),
            ("done\n".into(), Some(Verdict::Drained))
        );
        host.finish();
    });
    assert!(warnings.is_empty(), "{warnings:?}");
}

/// Says it again where a look for holders was cut off: the machine was too busy for all of /proc
/// within 100 ms (SPEC 1.6).
fn until_complete(mut attempt: impl FnMut() -> bool) {
    let complete = (0..8).any(|_| attempt());
    assert!(complete, "no list of holders was complete");
}

/// CASES 1. The exit is told at once, what was written is there, and who holds the pipe is named.
fn a_held_pipe_times_out_by_idle_and_its_holder_is_named(way: Way) {
    let mut host = Host::new(way);
    until_complete(|| {
        let mut command = host.telling("sleep 30 & echo out");
        command
            .drain(DrainPolicy::default().idle(ms(300)))
            .background(BackgroundPolicy::disabled());
        let child = host.spawn(&command);
        let story = host.until_exited(child);
        assert!(
            story.exit().is_some_and(|exit| exit.success()) && story.drain().is_none(),
            "{story:?}"
        );
        let story = host.until_closed(child);
        assert_timed_out(story, EndedBy::Idle, ms(300));
        assert_eq!(story.delivered(Stream::Stdout), "out\n");
        assert_eq!(story.report().outcome, Some(Outcome::Succeeded));
        let sleep = host.mark.wait_named("sleep", 1)[0].pid;
        let drain = host.story(child).drain().expect("a verdict");
        assert_eq!(drain.open, Stream::ALL);
        let named: Vec<_> = drain
            .holders
            .iter()
            .map(|holder| (holder.pid, holder.comm.as_str(), holder.streams.as_slice()))
            .collect();
        let wanted = [(sleep, "sleep", &Stream::ALL[..])];
        assert!(
            named == wanted || (named.is_empty() && !drain.holders_complete),
            "{drain:?}"
        );
        host.mark.kill();
        drain.holders_complete
    });
    host.finish();
}

/// CASES 2. A grandchild that prints every 80 ms for half a second after the leader's exit.
fn output_that_keeps_coming_is_read_until_it_ends(way: Way) {
    let mut host = Host::new(way);
    let mut command = host
        .telling("(read x <&9; for i in 1 2 3 4 5 6; do sleep 0.08; echo line $i; done) & exit 0");
    let gate = Gate::at(9, &mut command);
    let child = host.spawn(&command);
    host.until_exited(child);
    gate.open();
    let story = host.until_closed(child);
    assert_eq!(
        story.delivered(Stream::Stdout),
        "line 1\nline 2\nline 3\nline 4\nline 5\nline 6\n"
    );
    let drain = story.drain().expect("a verdict");
    assert_eq!(
        (drain.verdict, drain.ended_by),
        (Verdict::Drained, Some(EndedBy::Eof))
    );
    assert!(drain.waited >= ms(480), "{drain:?}");
    assert_eq!(
        story
            .report()
            .stdout
            .map(|stream| (stream.bytes, stream.late)),
        Some((42, 0))
    );
    host.finish();
}

/// CASES 3. An idle limit alone never ends under a holder that prints every 20 ms.
fn a_chatty_holder_is_ended_by_the_limit(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.telling("(while :; do echo tick; sleep 0.02; done) & exit 0");
    let background = BackgroundPolicy::settle()
        .grace(ms(1000))
        .wait(Wait::For(Duration::ZERO))
        .terminate_grace(ms(5000));
    command
        .drain(DrainPolicy::default().idle(LONG).limit(ms(300)))
        .background(background);
    let child = host.spawn(&command);
    let story = host.until_closed(child);
    assert_timed_out(story, EndedBy::Limit, ms(300));
    assert_eq!(
        story.settled().map(|settled| settled.state),
        Some(SettledAs::Terminated)
    );
    let stdout = story.report().stdout.expect("captured");
    assert!(
        stdout.bytes > stdout.late && stdout.late > 0,
        "read before the verdict, and after it: {stdout:?}"
    );
    host.finish();
}

/// CASES 4. SPEC 1.10: the exit status and the drain's outcome are separate facts.
fn a_held_pipe_changes_no_exit_status_and_hides_no_last_words(way: Way) {
    let mut host = Host::new(way);
    for (code, outcome) in [(0, Outcome::Succeeded), (3, Outcome::Failed)] {
        let mut command = host.shell(&format!("sleep 30 & echo why >&2; exit {code}"));
        command
            .drain(short(60, 5000))
            .background(BackgroundPolicy::disabled());
        let child = host.spawn(&command);
        let story = host.until_closed(child);
        assert_timed_out(story, EndedBy::Idle, ms(60));
        let report = story.report();
        assert_eq!(
            (report.outcome, report.exit.and_then(|exit| exit.code)),
            (Some(outcome), Some(code))
        );
        assert_eq!(
            (report.success(), &report.stderr_tail),
            (code == 0, &vec!["why".to_owned()])
        );
        host.mark.kill();
    }
    host.finish();
}

/// CASES 5 and 7. `seq 1 100000` is 588,895 bytes, either way; the last of them come with a
/// hang-up.
fn output_before_the_exit_is_counted_whichever_notice_comes_first(way: Way) {
    way.alone(|| {
        let mut host = Host::new(way);
        let wanted: String = (1..=100_000).map(|n| format!("{n}\n")).collect();
        assert_eq!(wanted.len(), 588_895);

        let bytes_first = host.run("seq 1 100000");
        let story = host.until_closed(bytes_first);
        assert_eq!(
            story
                .report()
                .stdout
                .map(|stream| (stream.bytes, stream.dropped)),
            Some((588_895, 0))
        );
        assert!(story.kept(Stream::Stdout) == wanted && story.delivered(Stream::Stdout) == wanted);

        // All of it fits into a pipe of 1 MiB: the child has ended before the loop looks for the
        // first time.
        let mut command = host.shell("exec seq 1 100000");
        command.stdout(Capture::default().deliver(true).pipe(Some(1 << 20)));
        let exit_first = host.start(&command);
        wait_zombie(host.reactor.pid(exit_first).expect("a process"));
        let story = host.until_closed(exit_first);
        assert_eq!(
            story
                .report()
                .stdout
                .map(|stream| (stream.bytes, stream.dropped)),
            Some((588_895, 0))
        );
        assert_eq!(story.turn_of(exited), story.turn_of(drained));
        assert!(story.kept(Stream::Stdout) == wanted && story.delivered(Stream::Stdout) == wanted);
        host.finish();
    });
}

/// CASES 6. A loop that was kept from running never calls a quiet child a leak.
fn end_of_file_wins_over_an_idle_timer_that_is_due_in_the_same_turn(way: Way) {
    let mut host = Host::new(way);
    // All three at once: the exit, the end of file, and what would have been the timers.
    let mut command = host.telling("sleep 0.05 & echo out");
    command.drain(short(20, 30));
    let all_at_once = host.spawn(&command);
    wait_zombie(host.reactor.pid(all_at_once).expect("a process"));
    host.mark.wait_gone();
    let story = host.until_closed(all_at_once);
    assert_eq!(
        story.drain().map(|drain| drain.verdict),
        Some(Verdict::Drained)
    );

    // The exit is seen while somebody holds the pipe; then the loop stands still until the holder
    // and the timers are over.
    let mut command = host.telling("(read x <&9; echo late words) & exit 0");
    let gate = Gate::at(9, &mut command);
    command.drain(short(200, 300));
    let stalled = host.spawn(&command);
    host.until_exited(stalled);
    gate.open();
    host.mark.wait_gone();
    std::thread::sleep(ms(320));
    let story = host.until_closed(stalled);
    assert_eq!(
        story.drain().map(|drain| (drain.verdict, drain.ended_by)),
        Some((Verdict::Drained, Some(EndedBy::Eof)))
    );
    assert_eq!(story.delivered(Stream::Stdout), "late words\n");
    assert!(story.drain().is_some_and(|drain| drain.waited >= ms(320)));
    host.finish();
}

/// SPEC 1.3: an idle bound whose last read finds bytes was not idle.
fn bytes_found_by_the_last_read_rearm_the_idle_bound(way: Way) {
    let mut host = Host::new(way);
    let mut command =
        host.telling("(read x <&9; echo first; echo >&8; read y <&7; echo second) & exit 0");
    let (gate, bell, last) = (
        Gate::at(9, &mut command),
        Bell::at(8, &mut command),
        Gate::at(7, &mut command),
    );
    command.drain(DrainPolicy::default().idle(ms(500)).limit(Bound::Never));
    let child = host.spawn(&command);
    host.until_exited(child);
    // The host stands still: bytes come, and then the idle bound passes.
    gate.open();
    bell.wait();
    std::thread::sleep(ms(600));
    host.step(Duration::ZERO);
    host.until_said(child, "first");
    assert!(
        host.story(child).drain().is_none(),
        "the bytes were there when the bound was looked at: {:?}",
        host.story(child)
    );
    last.open();
    let story = host.until_closed(child);
    assert_eq!(
        (
            story.delivered(Stream::Stdout),
            story.drain().map(|d| d.verdict)
        ),
        ("first\nsecond\n".into(), Some(Verdict::Drained))
    );
    host.finish();
}

/// CASES 8. No spinning on the hang-up of a stream that the child has closed.
fn streams_that_are_closed_early_wake_nobody_until_the_exit(way: Way) {
    way.alone(|| {
        let mut host = Host::new(way);
        let mut command = host.shell("exec >&- 2>&-; exec sleep 1.2");
        command.drain(short(1, 1));
        let child = host.spawn(&command);
        wait_comm(host.reactor.pid(child).expect("a process"), "sleep");
        while host.step(Duration::ZERO) {}
        let (before, begun) = (host.reactor.stats(), Instant::now());
        host.turn(ms(600));
        host.step(Duration::ZERO);
        assert!(host.story(child).exit().is_none());
        assert!(
            host.reactor.stats().reads == before.reads,
            "a stream that has ended is not read again"
        );
        assert!(
            begun.elapsed() >= ms(600),
            "something woke the loop after {:?}",
            begun.elapsed()
        );
        let story = host.until_closed(child);
        assert_eq!(story.turn_of(exited), story.turn_of(drained));
        assert_eq!(
            story.drain().map(|drain| drain.verdict),
            Some(Verdict::Drained)
        );
        let report = story.report();
        let ends =
            [report.stdout, report.stderr].map(|stream| stream.and_then(|stream| stream.end));
        assert_eq!(ends, [Some(StreamEnd::Eof); 2]);
        // The exit and its turn, and the look that the SIGCHLD way has once a second.
        let turns = host.reactor.stats().turns - before.turns;
        assert!(turns <= 12, "{turns} turns for one exit");
        host.finish();
    });
}

/// CASES 9. `yes` beside `exit 7`: exits never queue behind bytes.
fn an_exit_beside_a_noisy_child_is_seen_within_one_turn(way: Way) {
    way.alone(|| {
        let mut host = Host::new(way);
        let noisy: Vec<_> = (0..3)
            .map(|_| {
                let mut command = host.shell("exec yes");
                command.stdout(Capture::default().max_bytes(64 << 10));
                host.spawn(&command)
            })
            .collect();
        host.until("bytes", |host| host.reactor.stats().bytes > 4 << 20);
        for _ in 0..5 {
            let child = host.run("exit 7");
            wait_zombie(host.reactor.pid(child).expect("a process"));
            host.step(Duration::ZERO);
            let story = host.story(child);
            assert_eq!(
                story.exit().and_then(|exit| exit.code),
                Some(7),
                "one turn was not enough: {story:?}"
            );
            assert_eq!(
                story.drain().map(|drain| drain.verdict),
                Some(Verdict::Drained)
            );
        }
        for child in noisy {
            host.reactor.kill(child);
            let story = host.until_closed(child);
            let stdout = story.report().stdout.expect("captured");
            assert_eq!(
                stdout.bytes - stdout.dropped,
                64 << 10,
                "kept to the byte: {stdout:?}"
            );
        }
        host.until("all closed", |host| !host.reactor.is_busy());
        host.finish();
    });
}

/// SPEC 1.3: infinite is allowed for each bound.
fn infinite_bounds_wait_for_end_of_file(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.telling("(read x <&9; echo at last) & exit 0");
    let gate = Gate::at(9, &mut command);
    command
        .drain(
            DrainPolicy::default()
                .idle(Bound::Never)
                .limit(Bound::Never),
        )
        .background(BackgroundPolicy::disabled());
    let child = host.spawn(&command);
    host.until_exited(child);
    host.idle(ms(100));
    assert!(host.story(child).drain().is_none());
    gate.open();
    let story = host.until_closed(child);
    assert_eq!(
        story.drain().map(|drain| drain.verdict),
        Some(Verdict::Drained)
    );
    assert_eq!(story.delivered(Stream::Stdout), "at last\n");
    host.finish();
}

/// SPEC 1.3: zero is allowed for each bound, and means at once; what was in the pipe is not lost.
fn a_bound_of_zero_ends_a_held_drain_at_once(way: Way) {
    let mut host = Host::new(way);
    let zero = DrainPolicy::default()
        .idle(Bound::Never)
        .limit(Bound::Never);
    for (policy, by) in [
        (zero.idle(Duration::ZERO), EndedBy::Idle),
        (zero.limit(Duration::ZERO), EndedBy::Limit),
    ] {
        let mut command = host.telling("sleep 30 & seq 1 1000");
        command
            .drain(policy)
            .background(BackgroundPolicy::disabled());
        let child = host.spawn(&command);
        let story = host.until_closed(child);
        assert_timed_out(story, by, Duration::ZERO);
        assert_eq!(
            story
                .report()
                .stdout
                .map(|stream| (stream.bytes, stream.late)),
            Some((3893, 0))
        );
        host.mark.kill();
    }
    host.finish();
}

/// SPEC 1.3.
fn if_both_bounds_are_due_idle_is_named(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.shell("sleep 30 & exit 0");
    command
        .drain(short(150, 150))
        .background(BackgroundPolicy::disabled());
    let child = host.spawn(&command);
    host.until_exited(child);
    std::thread::sleep(ms(200));
    let story = host.until_closed(child);
    assert_timed_out(story, EndedBy::Idle, ms(150));
    host.mark.kill();
    host.finish();
}

/// SPEC 1.3 and 5.6: idle does not count while lastwords itself holds back reading for a slow
/// consumer.
fn the_idle_clock_stands_while_the_host_holds_a_stream_back(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.shell("sleep 30 & head -c 8192 /dev/zero");
    command
        .stdout(Capture::default().deliver(true).high_water_mark(4096))
        .stderr(Output::Null);
    command
        .drain(DrainPolicy::default().idle(ms(100)).limit(Bound::Never))
        .background(BackgroundPolicy::disabled());
    let child = host.spawn(&command);
    assert!(host.reactor.pause_output(child, Stream::Stdout));
    host.until_exited(child);
    host.idle(ms(400));
    let story = host.story(child);
    assert!(
        story.drain().is_none() && story.taken[0].end == 0,
        "held back: {story:?}"
    );
    assert!(host.reactor.resume_output(child, Stream::Stdout));
    let story = host.until_closed(child);
    assert_timed_out(story, EndedBy::Idle, ms(400));
    assert_eq!(story.taken[0].bytes.len(), 8192);
    host.mark.kill();
    host.finish();
}

/// SPEC 1.6 and section 4.6: a holder need not be in the group; the stream that it does not hold
/// has ended.
fn a_holder_outside_the_group_is_found_and_named_with_its_stream(way: Way) {
    let mut host = Host::new(way);
    until_complete(|| {
        let mut command =
            host.shell("setsid sh -c 'echo away >&8; exec sleep 30' >/dev/null & read x <&9");
        let (gate, bell) = (Gate::at(9, &mut command), Bell::at(8, &mut command));
        command.drain(short(100, 5000));
        let child = host.spawn(&command);
        assert_eq!(bell.wait(), "away\n");
        host.mark.wait_named("sleep", 1);
        gate.open();
        let story = host.until_closed(child);
        assert_timed_out(story, EndedBy::Idle, ms(100));
        // The group was empty: the plain group does not see who has left it.
        assert_eq!(
            story.settled().map(|settled| settled.state),
            Some(SettledAs::None)
        );
        assert_eq!(
            story.report().stdout.and_then(|stream| stream.end),
            Some(StreamEnd::Eof)
        );
        assert_eq!(
            story.report().stderr.and_then(|stream| stream.end),
            Some(StreamEnd::Closed)
        );
        let drain = story.drain().expect("a verdict");
        assert_eq!(drain.open, [Stream::Stderr]);
        let named: Vec<_> = drain
            .holders
            .iter()
            .map(|holder| (holder.comm.as_str(), holder.streams.as_slice()))
            .collect();
        let (complete, wanted) = (drain.holders_complete, [("sleep", &[Stream::Stderr][..])]);
        assert!(
            named == wanted || (named.is_empty() && !complete),
            "{drain:?}"
        );
        host.mark.kill();
        complete
    });
    host.finish();
}

/// Bounds of many generations that are due together all end, each with its own bytes and its own
/// holder.
fn many_drains_that_are_due_at_once_all_end(way: Way) {
    let mut host = Host::new(way);
    let children: Vec<(usize, Generation)> = (0..24)
        .map(|n| {
            let mut command = host.shell(&format!("sleep 30 & seq 1 {n}"));
            command
                .stdout(delivered())
                .drain(short(300, 5000))
                .background(BackgroundPolicy::disabled());
            (n, host.spawn(&command))
        })
        .collect();
    for (n, child) in children {
        let story = host.until_closed(child);
        assert_timed_out(story, EndedBy::Idle, ms(300));
        assert_eq!(story.delivered(Stream::Stdout).lines().count(), n);
        let drain = story.drain().expect("a verdict");
        assert!(
            drain.holders.len() == 1 || !drain.holders_complete,
            "{drain:?}"
        );
    }
    host.mark.kill();
    host.finish();
}
