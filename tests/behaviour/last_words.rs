//! The last words as they arrive, through a host's line function; and that no way out of the loop
//! shows a secret.

use crate::common::gate::Gate;
use crate::common::host::Host;
use crate::common::log::Log;
use crate::common::{LONG, Way, every_way, ms};
use lastwords::{
    BackgroundPolicy, Capture, Command, DrainPolicy, Event, LastWordsPolicy, Line, Output,
    Projection, Reactor, Stream,
};
use std::ffi::OsStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Instant;

every_way! {
    a_line_function_that_keeps_everything_changes_nothing,
    a_line_function_drops_and_changes_lines_as_they_come,
    a_line_function_sees_every_line_however_little_is_kept,
    a_panic_of_a_line_function_goes_through_the_turn_and_loses_its_line_alone,
    no_way_out_shows_a_secret,
    what_a_secret_was_started_with_is_not_shown_when_it_cannot_be_started,
}

/// A colour, a bar, an empty line, two halves, a key, a line without an end at the exit, and late
/// lines after it.
const MIXED: &str = "printf '\\033[31merror\\033[0m: \\303\\251\\r\\n10%%\\r20%%\\n\\ntoken=abcdefgh\\n' >&2; printf 'hal' >&2; \
    sleep 0.05; printf 'ves\\n-----BEGIN PRIVATE KEY-----\\nMIIEabc\\n-----END PRIVATE KEY-----\\nlast, no end' >&2; \
    (read -r _ <&7; printf ', the rest\\nlate one\\nlate two' >&2) & exit 3";

/// Both tails of the run. The child that is left behind writes after the verdict.
fn tails(way: Way, change: impl Fn(&mut Command)) -> (Vec<String>, Vec<String>) {
    let mut host = Host::new(way);
    let mut command = host.shell(MIXED);
    let gate = Gate::at(7, &mut command);
    command.drain(DrainPolicy::default().idle(ms(100)).limit(ms(200)));
    command.background(BackgroundPolicy::settle().grace(ms(100)));
    change(&mut command);
    let child = host.start(&command);
    host.until_drained(child);
    gate.open();
    let report = host.until_closed(child).report().clone();
    host.finish();
    (report.stderr_tail, report.late_tail)
}

fn a_line_function_that_keeps_everything_changes_nothing(way: Way) {
    let without = tails(way, |_| ());
    assert_eq!(
        without.0,
        [
            "error: é",
            "20%",
            "",
            "token=[redacted]",
            "halves",
            "[redacted]",
            "last, no end"
        ]
    );
    assert_eq!(without.1, ["late one", "late two"]);
    let with = tails(way, |command| {
        command.line_function(|_| Line::Keep);
    });
    assert_eq!(with, without);
    let few = |command: &mut Command| {
        let mut policy = LastWordsPolicy::default().lines(2);
        policy.late_lines = 1;
        command.last_words(policy);
    };
    let with = tails(way, |command| {
        few(command);
        command.line_function(|_| Line::Keep);
    });
    assert_eq!(with, tails(way, few));
    assert_eq!(with.1, ["late two"]);
}

fn a_line_function_drops_and_changes_lines_as_they_come(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.shell(
        "echo 'debug: x' >&2; echo 'error: y' >&2; echo stdout; echo 'z' >&2; cat >/dev/null",
    );
    let seen = Arc::new(Mutex::new(Vec::new()));
    let list = seen.clone();
    command
        .stdin(lastwords::Stdin::Feed)
        .line_function(move |line| {
            list.lock().expect("whole").push(line.to_owned());
            match line.strip_prefix("error: ") {
                Some(what) => Line::KeepAs(format!("\u{1b}[1mE {what} password=abcd")),
                None if line.starts_with("debug") => Line::Drop,
                None => Line::Keep,
            }
        });
    let child = host.spawn(&command);
    // While it runs.
    host.until("three lines", |_| seen.lock().expect("whole").len() == 3);
    host.reactor.close_stdin(child);
    let report = host.until_closed(child).report().clone();
    assert_eq!(report.stderr_tail, ["E y password=[redacted]", "z"]);
    assert_eq!(*seen.lock().expect("whole"), ["debug: x", "error: y", "z"]);
    let kept = host.story(child).kept[Stream::Stderr.index()]
        .as_ref()
        .map(|kept| kept.to_vec());
    assert_eq!(
        kept.as_deref(),
        Some(&b"debug: x\nerror: y\nz\n"[..]),
        "raw output is as it is"
    );
    host.finish();
}

fn a_line_function_sees_every_line_however_little_is_kept(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.shell("seq 1 100000 >&2");
    let sum = Arc::new(Mutex::new((0_u64, 0_u64)));
    let total = sum.clone();
    command
        .stderr(Capture::default().max_bytes(10))
        .line_function(move |line| {
            let mut total = total.lock().expect("whole");
            *total = (total.0 + 1, total.1 + line.parse::<u64>().unwrap_or(0));
            Line::Keep
        });
    let child = host.start(&command);
    let report = host.until_closed(child).report().clone();
    assert_eq!(
        *sum.lock().expect("whole"),
        (100_000, 100_000 * 100_001 / 2)
    );
    assert_eq!(
        (
            report.stderr_tail.len(),
            report.stderr_tail.last().map(String::as_str)
        ),
        (50, Some("100000"))
    );
    host.finish();
}

fn a_panic_of_a_line_function_goes_through_the_turn_and_loses_its_line_alone(way: Way) {
    let mut host = Host::new(way);
    let mut command =
        host.shell("echo one >&2; echo bad >&2; echo two >&2; printf bad >&2; exit 3");
    command.line_function(|line| {
        if line == "bad" {
            std::panic::panic_any("from the function")
        } else {
            Line::Keep
        }
    });
    let beside = host.shell("echo beside >&2; exit 4");
    let children =
        [&command, &beside].map(|command| host.reactor.start(command).expect("a process"));
    let (mut panics, mut reports) = (0, Vec::new());
    let begun = Instant::now();
    while reports.len() < 2 {
        assert!(begun.elapsed() < LONG, "{reports:?}");
        match catch_unwind(AssertUnwindSafe(|| host.reactor.turn(Some(ms(100))))) {
            Ok(turn) => assert!(turn.is_ok()),
            Err(payload) => {
                assert_eq!(payload.downcast_ref::<&str>(), Some(&"from the function"));
                panics += 1;
            }
        }
        while let Some(event) = host.reactor.next_event() {
            if let Event::Closed {
                generation, report, ..
            } = event
            {
                reports.push((generation, report));
            }
        }
    }
    assert!(
        (1..=2).contains(&panics),
        "{panics}: the second is one more, or in the same turn"
    );
    reports.sort_by_key(|(generation, _)| *generation != children[0]);
    let told = |place: usize| {
        (
            reports[place].1.exit.and_then(|exit| exit.code),
            reports[place].1.stderr_tail.as_slice(),
        )
    };
    assert_eq!(
        told(0),
        (Some(3), &["one".to_owned(), "two".to_owned()][..])
    );
    assert_eq!(told(1), (Some(4), &["beside".to_owned()][..]));
    assert_eq!(
        reports[0].1.stderr.map(|stream| stream.bytes),
        Some(15),
        "every byte is counted"
    );
    host.finish();
}

const REGISTERED: &str = "correct-horse-battery";
const BEARER: &str = "eyAbC123.tok-en_val";

fn projection() -> Projection {
    Projection::builder()
        .secret(REGISTERED)
        .and_then(|builder| builder.build())
        .expect("long enough, and one")
}

/// Registered, as a bearer token, in two halves 100 ms apart, with a colour in its middle, and at
/// the length limit of a line.
fn planted() -> String {
    format!(
        "one=$(printf %.9s \"$KEY\"); two=$(printf %s \"$KEY\" | tail -c +10); \
         echo \"key $KEY\" >&2; echo 'Authorization: Bearer {BEARER}' >&2; printf \"half $one\" >&2; sleep 0.1; echo \"$two\" >&2; \
         printf \"colour $one\\\\033[31m$two\\\\n\" >&2; head -c 8185 /dev/zero | tr '\\0' x >&2; echo \"$KEY\" >&2; sleep 5 & exit 3"
    )
}

/// No part of a secret that could be told from other text.
fn assert_clean(what: &str, text: &str) {
    let (one, two) = REGISTERED.split_at(9);
    for secret in [one, two, BEARER, &BEARER[9..]] {
        assert!(!text.contains(secret), "{what} shows {secret}: {text}");
    }
}

/// CASES 18, 19. In a process of its own, for the log: which warnings are asked for is decided for
/// all threads at once.
fn no_way_out_shows_a_secret(way: Way) {
    way.alone(|| {
        for watched in [false, true] {
            let mut ways = Vec::new();
            let mut raw = Vec::new();
            let warnings = Log::of(|| {
                let mut host = Host::new(way);
                let mut command = host.telling(&planted());
                command
                    .env("KEY", REGISTERED)
                    .arg(REGISTERED)
                    .projection(projection());
                command.drain(DrainPolicy::default().idle(ms(200)));
                command.background(BackgroundPolicy::report_only().grace(ms(50)));
                if watched {
                    command.line_function(|line| {
                        assert_clean("the line function", line);
                        Line::Keep
                    });
                }
                ways.push(("Debug of the command", format!("{command:?}")));
                let child = host.reactor.start(&command).expect("a process");
                let mut closed = false;
                while !closed {
                    let event = host
                        .reactor
                        .wait_event(Some(LONG))
                        .expect("a loop")
                        .expect("more to come");
                    ways.push(("Debug of an event", format!("{event:?}")));
                    match event {
                        Event::Output {
                            stream: Stream::Stderr,
                            bytes,
                            ..
                        } => raw.extend_from_slice(bytes),
                        Event::Drained { last_words, .. } => {
                            ways.push(("the last words", last_words.join("\n")))
                        }
                        Event::Closed { report, .. } => {
                            assert!(report.redacted);
                            assert_eq!(report.stderr_tail.len(), 5);
                            assert_eq!(
                                report.stderr_tail[2..4],
                                ["half [redacted]", "colour [redacted]"]
                            );
                            ways.push(("Debug of the report", format!("{report:?}")));
                            ways.push((
                                "the report's own words",
                                format!("{:?} {:?}", report.command, report.stderr_tail),
                            ));
                            closed = true;
                        }
                        _ => {}
                    }
                }
                let kept = host.reactor.take(child, Stream::Stderr);
                ways.push((
                    "Debug of what was kept",
                    format!("{kept:?} {:?}", host.reactor),
                ));
            });
            assert!(
                warnings
                    .iter()
                    .any(|line| line.level == tracing::Level::WARN),
                "{warnings:?}"
            );
            ways.push(("the log", format!("{warnings:?}")));
            ways.iter()
                .for_each(|(what, text)| assert_clean(what, text));
            let raw = String::from_utf8_lossy(&raw);
            assert_eq!(
                raw.matches(REGISTERED).count(),
                3,
                "raw output is raw: whole, in halves, and at the limit"
            );
            assert!(raw.contains(BEARER));
        }
    });
}

fn what_a_secret_was_started_with_is_not_shown_when_it_cannot_be_started(way: Way) {
    let mut host = Host::new(way);
    let program = format!("/no/such/{REGISTERED}");
    for (program, dir) in [(program.as_str(), None), ("true", Some(program.as_str()))] {
        let mut command = Command::new(OsStr::new(program));
        command
            .arg(REGISTERED)
            .projection(projection())
            .stdout(Output::Null);
        if let Some(dir) = dir {
            command.current_dir(dir);
        }
        let error = host.reactor.spawn(&command).expect_err("it is not there");
        let shown = format!("{error} {error:?} {:?} {command:?}", error.path());
        assert_clean("the error", &shown);
        assert!(shown.contains("[redacted]"), "{shown}");
        let child = host.start(&command);
        let story = host.until_closed(child);
        assert_clean("the events", &format!("{story:?}"));
    }
    host.finish();
}

/// What a line function holds is the host's own, and nothing that the loop keeps for the next
/// child.
#[test]
fn a_line_function_ends_with_its_command_and_the_generations_of_it() {
    let held = Arc::new(Mutex::new(Vec::new()));
    let theirs = Arc::clone(&held);
    let mut reactor = Reactor::new().expect("a loop");
    let mut command = Command::shell("echo one >&2");
    command.line_function(move |line| {
        theirs
            .lock()
            .expect("no panic holds it")
            .push(line.to_owned());
        Line::Keep
    });
    reactor.spawn(&command).expect("a shell");
    drop(command);
    while reactor.wait_event(None).expect("a turn").is_some() {}
    assert_eq!(*held.lock().expect("no panic holds it"), ["one"]);
    assert_eq!(Arc::strong_count(&held), 1);
}
