//! After the verdict: the warning, late output, and the pipes of work that goes on.

use crate::common::gate::{Bell, Gate};
use crate::common::host::Host;
use crate::common::log::Log;
use crate::common::proc::descriptors;
use crate::common::{Way, every_way, ms};
use lastwords::__internals::testing::oracle::History;
use lastwords::{
    BackgroundPolicy, Capture, DrainPolicy, EndedBy, Event, LastWordsPolicy, Reactor, SettledAs,
    Stream, StreamEnd, Verdict,
};
use std::time::Duration;

every_way! {
    a_held_pipe_leaves_no_descriptor_once_its_holder_has_died,
    the_warning_is_given_once_and_says_which_streams,
    late_output_is_read_while_background_work_is_waited_for,
    work_that_is_left_running_is_not_killed_by_its_pipe,
    with_nobody_looking_a_held_pipe_is_closed_at_the_verdict,
    late_lines_never_push_out_the_last_words,
    late_bytes_beyond_the_bound_change_no_last_word,
    what_is_delivered_or_taken_away_first_leaves_the_last_words,
}

/// Bounds that are short, for tests in which one must pass.
fn short(idle: u64, limit: u64) -> DrainPolicy {
    DrainPolicy::default().idle(ms(idle)).limit(ms(limit))
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

/// Says it again where a look for holders was cut off: the machine was too busy for all of /proc
/// within 100 ms (SPEC 1.6).
fn until_complete(mut attempt: impl FnMut() -> bool) {
    let complete = (0..8).any(|_| attempt());
    assert!(complete, "no list of holders was complete");
}

/// CASES 1. Nothing leaks when the holder dies later, though its pipe was kept open for it.
fn a_held_pipe_leaves_no_descriptor_once_its_holder_has_died(way: Way) {
    way.alone(|| {
        let mut host = Host::new(way);
        let warm = host.run("sleep 0.01 & echo warm");
        host.until_closed(warm);
        let before = descriptors();
        let mut command = host.telling("sleep 30 & echo out");
        command
            .drain(short(50, 100))
            .background(BackgroundPolicy::report_only().grace(Duration::ZERO));
        for _ in 0..3 {
            let child = host.spawn(&command);
            let story = host.until_closed(child);
            assert_eq!(
                story.settled().map(|settled| settled.state),
                Some(SettledAs::Reported)
            );
            assert_eq!(
                story.report().stdout.and_then(|stream| stream.end),
                Some(StreamEnd::Held)
            );
        }
        assert!(
            descriptors().len() >= before.len() + 6,
            "the pipes of work that goes on are kept"
        );
        host.mark.kill();
        host.until("the pipes' end", |_| descriptors().len() <= before.len());
        assert_eq!(descriptors(), before);
        host.finish();
    });
}

/// SPEC 1.6: one WARN event per generation, with what is needed to find the culprit.
fn the_warning_is_given_once_and_says_which_streams(way: Way) {
    let held = [
        ("", "stdout and stderr"),
        (">/dev/null", "stderr"),
        ("2>/dev/null", "stdout"),
    ];
    for (redirect, what) in held {
        until_complete(|| {
            let mut told = None;
            let warnings = Log::warnings_of(|| {
                let mut host = Host::new(way);
                let mut command =
                    host.shell(&format!("sleep 30 {redirect} & read x <&9; printf 12345"));
                let gate = Gate::at(9, &mut command);
                command
                    .drain(short(60, 5000))
                    .background(BackgroundPolicy::report_only().grace(Duration::ZERO));
                let child = host.spawn(&command);
                let sleep = host.mark.wait_named("sleep", 1)[0].pid;
                gate.open();
                let story = host.until_closed(child);
                let complete = story.drain().expect("a verdict").holders_complete;
                told = Some((child, story.report().pid.expect("a pid"), sleep, complete));
                host.idle(ms(50));
                host.mark.kill();
                host.finish();
            });
            let (child, pid, sleep, complete) = told.expect("a generation");
            assert_eq!(warnings.len(), 1, "{warnings:?}");
            assert_eq!(
                warnings[0].message,
                format!("timed out waiting for {what} to drain")
            );
            let fields = &warnings[0].fields;
            for wanted in [
                format!("generation={child} "),
                format!("pid={pid} "),
                "bytes=5 ".into(),
                format!("holders_complete={complete}"),
            ] {
                assert!(fields.contains(&wanted), "{wanted} in {fields}");
            }
            assert!(
                fields.contains(&format!("sleep ({sleep})")) || !complete,
                "{fields}"
            );
            let waited = fields
                .split_whitespace()
                .find_map(|field| field.strip_prefix("waited_ms="))
                .and_then(|ms| ms.parse::<u64>().ok());
            assert!(waited.is_some_and(|waited| waited >= 60), "{fields}");
            complete
        });
    }
}

/// SPEC 1.7: closing the read end at the verdict would kill the work that is waited for.
fn late_output_is_read_while_background_work_is_waited_for(way: Way) {
    let mut host = Host::new(way);
    let script = "(read x <&9; head -c 100000 /dev/zero && echo alive >&8; echo late words >&2) & echo early; echo why >&2";
    let mut command = host.telling(script);
    let (gate, bell) = (Gate::at(9, &mut command), Bell::at(8, &mut command));
    command
        .drain(short(60, 5000))
        .background(BackgroundPolicy::settle().grace(ms(100)));
    let child = host.spawn(&command);
    let story = host.until_drained(child);
    assert_timed_out(story, EndedBy::Idle, ms(60));
    host.until_story(child, "BackgroundWait", |story| {
        story.background_wait().is_some()
    });
    gate.open();
    let story = host.until_closed(child);
    assert_eq!(bell.wait(), "alive\n");
    assert_eq!(
        story.settled().map(|settled| settled.state),
        Some(SettledAs::Finished)
    );
    let (stdout, stderr) = (
        story.report().stdout.expect("captured"),
        story.report().stderr.expect("captured"),
    );
    assert_eq!(
        (stdout.bytes, stdout.late, stdout.end),
        (100_006, 100_000, Some(StreamEnd::Eof))
    );
    assert_eq!(
        (stderr.bytes, stderr.late, stderr.end),
        (15, 11, Some(StreamEnd::Eof))
    );
    assert_eq!(
        (&story.report().stderr_tail, &story.report().late_tail),
        (&vec!["why".into()], &vec!["late words".into()])
    );
    host.finish();
}

/// SPEC 1.7: keeping work is not killing it, though nothing of it is delivered any more.
fn work_that_is_left_running_is_not_killed_by_its_pipe(way: Way) {
    let mut host = Host::new(way);
    let mut command =
        host.telling("(read x <&9; head -c 300000 /dev/zero && echo alive >&8) & echo early");
    let (gate, bell) = (Gate::at(9, &mut command), Bell::at(8, &mut command));
    command
        .drain(short(60, 5000))
        .background(BackgroundPolicy::report_only().grace(ms(50)));
    let child = host.spawn(&command);
    let story = host.until_closed(child);
    assert_eq!(
        story.settled().map(|settled| settled.state),
        Some(SettledAs::Reported)
    );
    let stdout = story.report().stdout.expect("captured");
    assert_eq!((stdout.bytes, stdout.end), (6, Some(StreamEnd::Held)));
    assert!(!host.reactor.is_busy());
    gate.open();
    host.until("the work's end", |_| bell.rang());
    assert_eq!(bell.wait(), "alive\n");
    host.finish();
}

/// SPEC 1.7: nothing is settled where nobody looks; the read end is closed after the verdict, and
/// who writes on is told so.
fn with_nobody_looking_a_held_pipe_is_closed_at_the_verdict(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.telling("(trap '' PIPE; read x <&9; while /bin/echo more 2>/dev/null; do :; done; echo refused >&8) & exit 0");
    let (gate, bell) = (Gate::at(9, &mut command), Bell::at(8, &mut command));
    command
        .drain(short(60, 5000))
        .background(BackgroundPolicy::disabled());
    let child = host.spawn(&command);
    let story = host.until_closed(child);
    assert_timed_out(story, EndedBy::Idle, ms(60));
    assert_eq!(
        story.report().stdout.and_then(|stream| stream.end),
        Some(StreamEnd::Closed)
    );
    gate.open();
    assert_eq!(bell.wait(), "refused\n");
    host.finish();
}

/// SPEC 1.8: what was readable when the exit was seen is the last words; what comes after goes to a
/// tail of its own.
fn late_lines_never_push_out_the_last_words(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.shell("(read x <&9; for i in $(seq 1 60); do echo noise $i >&2; done) & seq 1 60 >&2; echo fatal >&2; exit 1");
    let gate = Gate::at(9, &mut command);
    command.last_words(LastWordsPolicy::default().lines(3));
    let child = host.spawn(&command);
    host.until_exited(child);
    gate.open();
    let story = host.until_closed(child);
    assert_eq!(story.report().stderr_tail, ["59", "60", "fatal"]);
    assert_eq!(
        story.last_words().as_ref(),
        Some(&story.report().stderr_tail)
    );
    let late: Vec<_> = (41..=60).map(|i| format!("noise {i}")).collect();
    assert_eq!(story.report().late_tail, late);
    host.finish();
}

/// SPEC 1.8, where the bytes of the last words are not kept any more when somebody asks, and the
/// last of them had no newline.
fn late_bytes_beyond_the_bound_change_no_last_word(way: Way) {
    let mut host = Host::new(way);
    let late = "printf 'ee\\n' >&2; head -c 99000 /dev/zero | tr '\\0' '~' | fold -w 99 >&2; echo >&2; echo late >&2";
    let mut command = host.shell(&format!(
        "(read x <&9; {late}) & printf 'one\\ntwo\\nthr' >&2; exit 1"
    ));
    let gate = Gate::at(9, &mut command);
    command.stderr(Capture::default().max_bytes(1000));
    let child = host.spawn(&command);
    host.until_exited(child);
    gate.open();
    let story = host.until_closed(child);
    assert_eq!(story.report().stderr_tail, ["one", "two", "thr"]);
    assert_eq!(
        story.last_words().as_ref(),
        Some(&story.report().stderr_tail)
    );
    let shown = &story.report().late_tail;
    assert!(
        shown.len() > 5
            && shown
                .iter()
                .rev()
                .skip(1)
                .all(|line| line == &"~".repeat(99)),
        "{shown:?}"
    );
    assert_eq!(shown.last().map(String::as_str), Some("late"));
    host.finish();
}

/// Nobody asks for the words before the bytes that they are made of are gone.
fn what_is_delivered_or_taken_away_first_leaves_the_last_words(way: Way) {
    for take in [false, true] {
        let mut host = Host::new(way);
        let mut command = host.shell("echo one >&2; echo two >&2");
        command.stderr(
            Capture::default()
                .max_bytes(if take { 1000 } else { 0 })
                .deliver(!take),
        );
        let child = host.reactor.spawn(&command).expect("a process");
        while host.reactor.stats().live > 0 {
            host.turn(ms(500));
        }
        if take {
            assert_eq!(
                host.reactor
                    .take(child, Stream::Stderr)
                    .map(|kept| kept.to_vec()),
                Some(b"one\ntwo\n".to_vec())
            );
        }
        let (mut at_verdict, mut report, mut bytes) = (Vec::new(), None, Vec::new());
        while let Some(event) = host.reactor.next_event() {
            match event {
                Event::Output { bytes: piece, .. } => bytes.extend_from_slice(piece),
                Event::Drained { last_words, .. } => at_verdict = last_words.to_vec(),
                Event::Closed { report: all, .. } => report = Some(all),
                _ => {}
            }
        }
        assert_eq!(bytes, if take { &b""[..] } else { b"one\ntwo\n" });
        assert_eq!(at_verdict, ["one", "two"]);
        assert_eq!(report.expect("Closed").stderr_tail, ["one", "two"]);
        host.finish();
    }
}

/// Late bytes come after the verdict, though that waits for the list of holders.
#[test]
fn late_bytes_are_told_after_the_verdict_however_long_the_look_for_holders_takes() {
    use lastwords::Command;
    use lastwords::sim::{Ns, Script, SimOptions};
    let mut options = SimOptions::seeded(1);
    options.call_cost = Ns::from_millis(1);
    let mut reactor = Reactor::simulated(options);
    for _ in 0..1_000 {
        let script = Script::parse("sleep 100s").expect("a script");
        reactor
            .sim()
            .world_mut()
            .stranger(None, &script)
            .expect("a number");
    }
    let mut command = Command::new("sim");
    command
        .arg("fork { repeat 400 { sleep 2ms; echo stdout \"tick\" } }; exit 0")
        .stdout(Capture::default().deliver(true))
        .drain(DrainPolicy::default().limit(ms(50)))
        .background(BackgroundPolicy::settle());
    reactor.start(&command).expect("it starts");
    let (mut is_told, mut late) = (false, 0);
    while let Some(event) = reactor.wait_event(None).expect("a turn") {
        match event {
            Event::Drained { .. } => is_told = true,
            Event::Output {
                late: true, bytes, ..
            } => {
                assert!(is_told, "late bytes before the verdict");
                late += bytes.len();
            }
            Event::Output { .. } => assert!(!is_told, "bytes that are not said to be late"),
            Event::Closed { report, .. } => {
                assert_eq!(report.stdout.map(|s| s.late as usize), Some(late))
            }
            _ => {}
        }
    }
    assert!(late > 1_000, "{late} late bytes: the look was over at once");
}
