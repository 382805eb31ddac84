//! Output: what is kept, what is delivered, and what a child cannot do to its neighbours.

use crate::common::gate::{Bell, Gate};
use crate::common::host::{Host, delivered};
use crate::common::proc::wait_zombie;
use crate::common::{LONG, Way, every_way, ms};
use lastwords::Kernel;
use lastwords::sim::SimOptions;
use lastwords::{
    Bound, Capture, Command, DrainPolicy, EndedBy, Event, Generation, LastWordsPolicy, Outcome,
    Output, Reactor, Signal, Stdin, Stopping, Stream, StreamEnd, Verdict,
};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

every_way! {
    paused_output_withholds_closed_no_longer_than_a_stop,
    what_needs_the_host_while_it_runs_is_refused_by_run,
    streams_are_captured_apart,
    merged_streams_keep_their_order,
    raw_streams_are_the_hosts,
    streams_go_where_they_are_sent,
    inherited_streams_are_the_hosts_own,
    what_is_kept_is_bounded_to_the_byte,
    nothing_is_kept_where_nothing_is_to_be,
    pieces_are_contiguous_and_carry_their_offsets,
    undelivered_bytes_hold_the_child_back_and_are_never_dropped,
    lossy_delivery_tells_what_was_lost,
    a_turn_with_events_waiting_does_not_sleep,
    a_stream_is_held_back_and_let_go_by_the_host,
    a_stream_that_the_host_closes_ends_its_writer,
    what_was_kept_can_be_looked_at_while_it_comes_and_taken_once,
    a_nul_byte_cuts_nothing,
    invalid_utf8_and_many_good_lines_are_kept_and_told,
    an_endless_line_is_cut_with_a_mark,
    kept_text_begins_with_a_whole_character,
    binary_noise_comes_through_unchanged,
    a_last_line_without_a_newline_counts,
    a_pipe_size_that_is_refused_is_no_error,
    noisy_children_cost_their_neighbours_nothing,
    a_child_that_moves_its_pipes_around_ends_like_any_other,
    run_gives_back_what_was_kept_and_leaves_other_events_alone,
}

fn streams_are_captured_apart(way: Way) {
    let mut host = Host::new(way);
    let child = host.run("echo 1; echo 2 >&2; echo 3; echo 4 >&2");
    let story = host.until_closed(child);
    assert_eq!(
        (
            story.delivered(Stream::Stdout),
            story.delivered(Stream::Stderr)
        ),
        ("1\n3\n".into(), "2\n4\n".into())
    );
    assert_eq!(
        (story.kept(Stream::Stdout), story.kept(Stream::Stderr)),
        ("1\n3\n".into(), "2\n4\n".into())
    );
    assert_eq!(story.report().stderr_tail, ["2", "4"]);
    host.finish();
}

/// SPEC 5.1: one pipe on request; the last words are in it.
fn merged_streams_keep_their_order(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.telling("for i in 1 2 3 4 5; do echo o$i; echo e$i >&2; done");
    command.stderr(Output::ToStdout);
    let child = host.spawn(&command);
    let story = host.until_closed(child);
    let order = "o1\ne1\no2\ne2\no3\ne3\no4\ne4\no5\ne5\n";
    assert_eq!(
        (story.delivered(Stream::Stdout), story.kept(Stream::Stdout)),
        (order.into(), order.into())
    );
    assert!(story.report().stderr.is_none());
    assert_eq!(
        story.report().stderr_tail,
        order.lines().collect::<Vec<_>>()
    );
    host.finish();
}

fn raw_streams_are_the_hosts(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.shell("echo out; echo err >&2; read x <&9; echo more");
    let gate = Gate::at(9, &mut command);
    command.stdout(Output::Raw).stderr(Output::Raw);
    let child = host.spawn(&command);
    let [out, err] = [
        host.reactor.take_stdout(child),
        host.reactor.take_stderr(child),
    ]
    .map(|raw| raw.expect("a read end"));
    assert!(host.reactor.take_stdout(child).is_none(), "once");
    let mut out = std::fs::File::from(out);
    let mut said = Vec::new();
    let mut buffer = [0; 64];
    crate::common::wait_until("its first line, without blocking", || {
        match out.read(&mut buffer) {
            Ok(n) => {
                said.extend_from_slice(&buffer[..n]);
                said.ends_with(b"\n")
            }
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
                false
            }
        }
    });
    gate.open();
    let story = host.until_closed(child);
    assert!(story.report().stdout.is_none() && story.report().stderr.is_none());
    assert_eq!(
        story.drain().map(|drain| drain.verdict),
        Some(Verdict::Drained)
    );
    out.read_to_end(&mut said).expect("the rest");
    assert_eq!(said, b"out\nmore\n");
    let mut said = String::new();
    std::fs::File::from(err)
        .read_to_string(&mut said)
        .expect("all of it");
    assert_eq!(said, "err\n");
    host.finish();
}

fn streams_go_where_they_are_sent(way: Way) {
    let path = std::env::temp_dir().join(format!(
        "lastwords-output-{}-{:?}",
        std::process::id(),
        way.mode
    ));
    let file = std::fs::File::create(&path).expect("a file");
    let mut host = Host::new(way);
    let mut command = host.shell("echo to the file; echo nowhere >&2; readlink /proc/$$/fd/2");
    command.stdout(OwnedFd::from(file)).stderr(Output::Null);
    let child = host.spawn(&command);
    let report = host.until_closed(child).report();
    assert!(report.success() && report.stdout.is_none() && report.stderr.is_none());
    assert_eq!(
        std::fs::read_to_string(&path).expect("text"),
        "to the file\n/dev/null\n"
    );
    host.finish();
    std::fs::remove_file(path).expect("removed");
}

fn inherited_streams_are_the_hosts_own(way: Way) {
    if way.is_alone() {
        let mut host = Host::new(way);
        let mut command = host.shell("echo said by the child; echo and by its stderr >&2");
        command.stdout(Output::Inherit).stderr(Output::Inherit);
        let child = host.spawn(&command);
        assert!(host.until_closed(child).report().success());
        host.finish();
        return;
    }
    let output = way.command().output().expect("this test binary again");
    let (said, complained) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}{complained}"
    );
    assert!(
        said.contains("said by the child\n") && complained.contains("and by its stderr\n"),
        "{said}{complained}"
    );
}

/// CASES 11. SPEC 5.2: the newest bytes, the others counted.
fn what_is_kept_is_bounded_to_the_byte(way: Way) {
    let mut host = Host::new(way);
    let child = host.run("head -c 4194304 /dev/zero | tr '\\0' x >&2");
    let story = host.until_closed(child);
    let stderr = story.report().stderr.expect("captured");
    assert_eq!((stderr.bytes, stderr.dropped), (4 << 20, 2 << 20));
    assert_eq!(story.kept_bytes(Stream::Stderr).len(), 2 << 20);
    for keep in [1, 100, 4096, 65_537, 588_894, 588_895, 1 << 20] {
        let mut command = host.shell("exec seq 1 100000");
        command.stdout(Capture::default().max_bytes(keep));
        let child = host.spawn(&command);
        let story = host.until_closed(child);
        let stdout = story.report().stdout.expect("captured");
        assert_eq!(
            (stdout.bytes, stdout.dropped),
            (588_895, 588_895_u64.saturating_sub(keep))
        );
        let all: String = (1..=100_000).map(|n| format!("{n}\n")).collect();
        assert!(
            all.as_bytes().ends_with(&story.kept_bytes(Stream::Stdout)),
            "the newest {keep}"
        );
    }
    host.finish();
}

fn nothing_is_kept_where_nothing_is_to_be(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.shell("seq 1 100000; echo err >&2");
    command
        .stdout(Capture::default().max_bytes(0))
        .stderr(Capture::default().max_bytes(0));
    let child = host.spawn(&command);
    let story = host.until_closed(child);
    let report = story.report();
    assert_eq!(
        report.stdout.map(|stream| (stream.bytes, stream.dropped)),
        Some((588_895, 588_895))
    );
    assert!(
        report.stderr_tail.is_empty(),
        "words that are not kept cannot be told: {:?}",
        report.stderr_tail
    );
    host.finish();
}

/// SPEC 5.3. The story checks every piece: no hole, nothing twice, the offsets, the order in time.
fn pieces_are_contiguous_and_carry_their_offsets(way: Way) {
    let mut host = Host::new(way);
    let before = Instant::now();
    let child = host.run("for i in 1 2 3; do seq 1 20000; sleep 0.02; seq 1 10 >&2; done");
    let story = host.until_closed(child);
    assert_eq!(story.taken[0].bytes.len(), 3 * 108_894);
    assert_eq!(story.taken[1].bytes.len(), 3 * 21);
    assert!(
        story
            .report()
            .timing
            .is_some_and(|timing| timing.total <= before.elapsed())
    );
    host.finish();
}

/// SPEC 5.6: at `high_water_mark` undelivered bytes the stream is not read.
fn undelivered_bytes_hold_the_child_back_and_are_never_dropped(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.shell("head -c 1048576 /dev/zero; echo >&8");
    let bell = Bell::at(8, &mut command);
    command
        .stdout(
            Capture::default()
                .deliver(true)
                .high_water_mark(10_000)
                .max_bytes(0),
        )
        .stderr(Output::Null);
    let child = host.spawn(&command);
    // Nothing is taken: turns go on, and read no more than they may.
    let total = |host: &Host| {
        host.reactor
            .kept(child, Stream::Stdout)
            .expect("captured")
            .total()
    };
    crate::common::wait_until("as much as may wait", || {
        host.turn(Duration::ZERO);
        total(&host) >= 10_000
    });
    for _ in 0..50 {
        host.turn(ms(10));
        std::thread::sleep(ms(2));
    }
    let held = total(&host);
    assert!(
        (10_000..=10_000 + (128 << 10)).contains(&held),
        "at most one read beyond `high_water_mark`: {held}"
    );
    assert!(!bell.rang(), "the child is held back");
    let story = host.until_closed(child);
    assert_eq!(
        (story.taken[0].bytes.len(), story.taken[0].lost),
        (1 << 20, 0)
    );
    assert!(bell.rang());
    host.finish();
}

fn lossy_delivery_tells_what_was_lost(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.shell("exec seq 1 100000");
    command.stdout(
        Capture::default()
            .deliver(true)
            .high_water_mark(4096)
            .max_bytes(1000)
            .lossy(true),
    );
    let child = host.spawn(&command);
    // Nothing is taken until it has ended: it is not held back.
    wait_until_dead_turning(&mut host, child);
    let story = host.until_closed(child);
    let taken = &story.taken[0];
    assert_eq!(
        (taken.bytes.len() as u64 + taken.lost, taken.end),
        (588_895, 588_895)
    );
    assert!(
        taken.lost > 500_000 && taken.bytes.len() >= 4096,
        "{} lost, {} taken",
        taken.lost,
        taken.bytes.len()
    );
    assert!(taken.bytes.ends_with(b"99999\n100000\n"));
    host.finish();
}

fn wait_until_dead_turning(host: &mut Host, child: lastwords::Generation) {
    let pid = host.reactor.pid(child).expect("a process");
    crate::common::wait_until("its end", || {
        host.turn(Duration::ZERO);
        crate::common::proc::stat(pid).is_none_or(|stat| stat.state == 'Z')
    });
}

/// SPEC 5.6.
fn a_turn_with_events_waiting_does_not_sleep(way: Way) {
    let mut host = Host::new(way);
    let child = host.run("echo out; exec sleep 60");
    crate::common::wait_until("an event", || {
        host.turn(Duration::ZERO);
        host.reactor.has_events()
    });
    let begun = Instant::now();
    for _ in 0..100 {
        host.turn(LONG);
    }
    assert!(begun.elapsed() < LONG, "100 turns: {:?}", begun.elapsed());
    host.until_said(child, "out");
    host.reactor.kill(child);
    host.until_closed(child);
    host.finish();
}

fn a_stream_is_held_back_and_let_go_by_the_host(way: Way) {
    let mut host = Host::new(way);
    let child = host.run("echo one; echo two >&2; echo >&2");
    assert!(host.reactor.pause_output(child, Stream::Stdout));
    host.until_drained(child);
    assert!(host.story(child).taken[0].bytes.is_empty());
    assert_eq!(
        host.story(child).delivered(Stream::Stderr),
        "two\n\n",
        "the other stream goes on"
    );
    host.idle(ms(50));
    assert!(
        host.story(child).report.is_none(),
        "Closed waits for what is undelivered"
    );
    assert!(host.reactor.resume_output(child, Stream::Stdout));
    let story = host.until_closed(child);
    assert_eq!(story.delivered(Stream::Stdout), "one\n");
    assert!(!host.reactor.pause_output(child, Stream::Stdout));
    host.finish();
}

/// CASES 78. What was not taken can still be taken, and the report counts it.
fn paused_output_withholds_closed_no_longer_than_a_stop(way: Way) {
    type Ending = fn(&mut Reactor, Generation);
    let endings: [(&str, Ending); 5] = [
        ("echo one; exec sleep 60", |reactor, child| {
            assert_eq!(reactor.kill(child), Stopping::Begun);
        }),
        ("echo one; exec sleep 60", |reactor, child| {
            assert_eq!(reactor.stop(child, None), Stopping::Begun);
        }),
        ("echo one", |reactor, child| {
            reactor.kill(child);
        }),
        ("echo one", |reactor, child| {
            reactor.stop(child, None);
        }),
        ("echo one", |reactor, child| {
            reactor.close_output(child, Stream::Stdout);
        }),
    ];
    for (script, end) in endings {
        let mut host = Host::new(way);
        let mut command = host.telling(script);
        command.drain(DrainPolicy::default().limit(Bound::Never));
        let child = host.reactor.spawn(&command).expect("a process");
        assert!(host.reactor.pause_output(child, Stream::Stdout));
        let has_come = |reactor: &Reactor| {
            reactor
                .kept(child, Stream::Stdout)
                .is_some_and(|kept| kept.total() == 4)
        };
        while !has_come(&host.reactor)
            || (script == "echo one" && has_not_settled(&mut host.reactor))
        {
            let _turn = host.reactor.turn(Some(ms(10))).expect("a turn");
        }
        end(&mut host.reactor, child);
        let report = loop {
            match host.reactor.wait_event(Some(LONG)).expect("a turn") {
                Some(Event::Closed { report, .. }) => break report,
                Some(Event::Output { .. }) => panic!("it is paused"),
                Some(_) => {}
                None => panic!("no Closed: {script}"),
            }
        };
        assert_eq!(report.stdout.map(|stdout| stdout.bytes), Some(4));
        let kept = host.reactor.take(child, Stream::Stdout).expect("kept");
        assert_eq!(
            kept.undelivered_slices().collect::<Vec<_>>().concat(),
            b"one\n"
        );
        host.finish();
    }
}

/// Takes an event; false once everything was told but `Closed`.
fn has_not_settled(reactor: &mut Reactor) -> bool {
    !matches!(reactor.next_event(), Some(Event::Settled { .. }))
}

/// CASES 78. The drain's limit holds for a paused stream too.
#[test]
fn paused_output_withholds_closed_until_the_drains_limit() {
    let mut reactor = Reactor::simulated(SimOptions::default());
    let mut command = Command::new("job");
    command
        .arg("echo stdout \"one\"; exit 0")
        .stdout(Capture::default().deliver(true).max_bytes(0))
        .drain(DrainPolicy::default().limit(ms(3000)));
    let child = reactor.start(&command).expect("it starts");
    assert!(reactor.pause_output(child, Stream::Stdout));
    let mut exited = None;
    loop {
        let event = reactor.wait_event(None).expect("a turn").expect("an event");
        match event {
            Event::Exited { .. } => exited = Some(reactor.sim().now()),
            Event::Closed { .. } => break,
            Event::Output { .. } => panic!("it is paused"),
            _ => {}
        }
    }
    let waited = reactor
        .sim()
        .now()
        .since(exited.expect("it has ended"))
        .to_duration();
    assert!(waited >= ms(2900) && waited < ms(4000), "{waited:?}");
    let kept = reactor.take(child, Stream::Stdout).expect("kept");
    assert_eq!(
        kept.undelivered_slices().collect::<Vec<_>>().concat(),
        b"one\n"
    );
}

/// `yes` ends by SIGPIPE, and the other stream goes on.
fn a_stream_that_the_host_closes_ends_its_writer(way: Way) {
    let mut host = Host::new(way);
    let child = host.run("echo words >&2; exec yes");
    host.until_said(child, "y\n");
    assert!(host.reactor.close_output(child, Stream::Stdout));
    assert!(
        !host.reactor.close_output(child, Stream::Stdout),
        "it is closed already"
    );
    let story = host.until_closed(child);
    let report = story.report();
    assert_eq!(
        (report.outcome, report.exit.and_then(|exit| exit.signal)),
        (Some(Outcome::Signaled), Some(Signal::PIPE))
    );
    assert_eq!(
        report.stdout.and_then(|stream| stream.end),
        Some(StreamEnd::Closed)
    );
    assert_eq!(report.stderr_tail, ["words"]);
    assert_eq!(
        report
            .drain
            .as_ref()
            .map(|drain| (drain.verdict, drain.ended_by)),
        Some((Verdict::Drained, Some(EndedBy::Eof)))
    );
    host.finish();
}

fn what_was_kept_can_be_looked_at_while_it_comes_and_taken_once(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.shell("echo early; echo >&8; read x <&9; echo late");
    let (bell, gate) = (Bell::at(8, &mut command), Gate::at(9, &mut command));
    let child = host.spawn(&command);
    bell.wait();
    host.until("the first line", |host| {
        host.reactor
            .kept(child, Stream::Stdout)
            .is_some_and(|kept| kept.to_vec() == b"early\n")
    });
    assert!(
        host.reactor.take(child, Stream::Stdout).is_none(),
        "not before Closed"
    );
    gate.open();
    let mut taken = None;
    let begun = Instant::now();
    while taken.is_none() {
        assert!(begun.elapsed() < LONG);
        let Some(event) = host.reactor.wait_event(Some(LONG)).expect("a turn") else {
            continue;
        };
        if let Event::Closed { generation, .. } = event {
            assert!(host.reactor.kept(generation, Stream::Stdout).is_some());
            taken = host.reactor.take(generation, Stream::Stdout);
            assert!(host.reactor.take(generation, Stream::Stdout).is_none());
            assert!(host.reactor.kept(generation, Stream::Stderr).is_some());
        }
    }
    let mut taken = taken.expect("what was kept");
    assert_eq!(
        (
            taken.len(),
            taken.total(),
            taken.dropped(),
            taken.is_empty()
        ),
        (11, 11, 0, false)
    );
    let mut text = String::new();
    taken.read_to_string(&mut text).expect("text");
    assert_eq!(
        (text.as_str(), taken.to_string_lossy().as_str()),
        ("early\nlate\n", "early\nlate\n")
    );
    assert!(host.reactor.next_event().is_none());
    assert!(
        host.reactor.take(child, Stream::Stderr).is_none()
            && host.reactor.kept(child, Stream::Stderr).is_none()
    );
    assert!(!host.reactor.is_busy());
}

/// CASES 15, with the Rust face.
fn a_nul_byte_cuts_nothing(way: Way) {
    let mut host = Host::new(way);
    let child = host.run("printf 'a\\000b'; printf 'c\\000d\\n' >&2");
    let story = host.until_closed(child);
    assert_eq!(
        (
            story.taken[0].bytes.as_slice(),
            story.kept_bytes(Stream::Stdout)
        ),
        (&b"a\0b"[..], b"a\0b".to_vec())
    );
    assert_eq!(story.kept_bytes(Stream::Stderr), b"c\0d\n");
    assert_eq!(story.report().stderr_tail, ["cd"]);
    host.finish();
}

/// CASES 13.
fn invalid_utf8_and_many_good_lines_are_kept_and_told(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.shell("printf '\\377\\n' >&2; seq 1 50000 >&2");
    command.last_words(LastWordsPolicy::default().lines(60_000));
    let child = host.spawn(&command);
    let story = host.until_closed(child);
    let tail = &story.report().stderr_tail;
    assert_eq!(
        (tail.len(), tail[0].as_str(), tail[50_000].as_str()),
        (50_001, "\u{fffd}", "50000")
    );
    assert_eq!(
        story.report().stderr.map(|stream| stream.bytes),
        Some(2 + 288_894)
    );
    host.finish();
}

/// CASES 14. The raw bytes are all there; of the line both ends are told, at most 8 KiB.
fn an_endless_line_is_cut_with_a_mark(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.shell("printf begin >&2; head -c 5000000 /dev/zero | tr '\\0' x >&2");
    command.stderr(Capture::default().max_bytes(8 << 20));
    let child = host.spawn(&command);
    let story = host.until_closed(child);
    assert_eq!(
        story
            .report()
            .stderr
            .map(|stream| (stream.bytes, stream.dropped)),
        Some((5_000_005, 0))
    );
    let tail = &story.report().stderr_tail;
    assert_eq!(tail.len(), 1);
    let line = tail[0].as_str();
    assert!(line.len() <= 8 << 10, "{}", line.len());
    assert!(line.starts_with("beginxxxx") && line.ends_with("xxxx"));
    // Both ends, and between them how much is missing.
    let (first, rest) = line.split_once("\u{2026}[").expect("a mark");
    let (cut, last) = rest.split_once(" bytes cut]").expect("the mark's end");
    let cut: usize = cut.parse().expect("a number");
    assert_eq!(first.len() + cut + last.len(), 5_000_005);
    host.finish();
}

/// CASES 12. An endless two-byte character, and bounds that fall into the middle of one.
fn kept_text_begins_with_a_whole_character(way: Way) {
    let mut host = Host::new(way);
    for keep in [999, 1000] {
        let mut command =
            host.shell("i=0; while [ $i -lt 2000 ]; do printf '\\303\\251' >&2; i=$((i+1)); done");
        command.stderr(Capture::default().max_bytes(keep));
        let child = host.spawn(&command);
        let story = host.until_closed(child);
        assert_eq!(
            story
                .report()
                .stderr
                .map(|stream| (stream.bytes, stream.dropped)),
            Some((4000, 4000 - keep))
        );
        let text = story.kept[1].as_ref().expect("captured").to_string_lossy();
        assert!(
            text.chars().all(|c| c == 'é') && text.chars().count() as u64 == keep / 2,
            "{text}"
        );
        assert!(
            story
                .report()
                .stderr_tail
                .iter()
                .all(|line| !line.contains('\u{fffd}'))
        );
    }
    host.finish();
}

fn binary_noise_comes_through_unchanged(way: Way) {
    let mut host = Host::new(way);
    let noise: Vec<u8> = (0..300_000u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    let mut command = host.telling("exec cat");
    command.stdin(noise.clone());
    let child = host.spawn(&command);
    let story = host.until_closed(child);
    assert!(story.taken[0].bytes == noise && story.kept_bytes(Stream::Stdout) == noise);
    host.finish();
}

fn a_last_line_without_a_newline_counts(way: Way) {
    let mut host = Host::new(way);
    let child = host.run("printf 'first\\r\\nlast' >&2");
    assert_eq!(
        host.until_closed(child).report().stderr_tail,
        ["first", "last"]
    );
    host.finish();
}

/// A refusal is normal, not an error.
fn a_pipe_size_that_is_refused_is_no_error(way: Way) {
    let mut host = Host::new(way);
    for pipe in [0, 1, 4096, 1 << 20, 1 << 31, u32::MAX] {
        let mut command = host.shell("exec seq 1 100000");
        command.stdout(Capture::default().pipe(Some(pipe)));
        let child = host.spawn(&command);
        let stdout = host.until_closed(child).report().stdout.expect("captured");
        assert_eq!(stdout.bytes, 588_895, "{pipe}");
        // What was had is told: a power of two of pages, or what it was before.
        assert!(
            stdout
                .capacity
                .is_some_and(|had| had.is_power_of_two() && had >= 4096),
            "{pipe}: {stdout:?}"
        );
        if pipe == 1 << 20 {
            assert!(
                [64 << 10, 1 << 20].contains(&stdout.capacity.unwrap_or(0)),
                "{stdout:?}"
            );
        }
    }
    host.finish();
}

/// SPEC 5.5: bounded bytes per stream and turn; the quiet ones are served while the noisy ones go
/// on.
fn noisy_children_cost_their_neighbours_nothing(way: Way) {
    let mut host = Host::new(way);
    let noisy: Vec<_> = (0..4)
        .map(|_| {
            let mut command = host.shell("exec yes");
            command
                .stdout(Capture::default().max_bytes(1 << 16))
                .stderr(Output::Null);
            host.spawn(&command)
        })
        .collect();
    for n in 0..10 {
        let mut command = host.telling("read x <&9; echo quiet >&2; echo $x");
        let gate = Gate::at(9, &mut command);
        let child = host.spawn(&command);
        gate.pass();
        wait_zombie(host.reactor.pid(child).expect("a process"));
        let before = host.reactor.stats();
        let story = host.until_drained(child);
        assert_eq!(
            (story.delivered(Stream::Stdout), story.last_words()),
            ("go\n".into(), Some(vec!["quiet".to_owned()]))
        );
        let read = host.reactor.stats().bytes - before.bytes;
        assert!(
            read <= 8 << 20,
            "{n}: {read} bytes of others before its verdict"
        );
    }
    for child in &noisy {
        let total = host
            .reactor
            .kept(*child, Stream::Stdout)
            .expect("captured")
            .total();
        assert!(total > 0, "each has its turn");
    }
    host.reactor.stop_all(None);
    host.until("all closed", |host| !host.reactor.is_busy());
    host.finish();
}

/// SPEC 9: children that close or dup their pipes.
fn a_child_that_moves_its_pipes_around_ends_like_any_other(way: Way) {
    let mut host = Host::new(way);
    let child = host.run("exec 5>&1 6>&2 1>&6 2>&5 5>&- 6>&-; echo to stderr; echo to stdout >&2; exec 1>&- 1>&2; echo too");
    let story = host.until_closed(child);
    assert_eq!(
        (
            story.delivered(Stream::Stdout),
            story.delivered(Stream::Stderr)
        ),
        ("to stdout\ntoo\n".into(), "to stderr\n".into())
    );
    assert_eq!(
        story.drain().map(|drain| drain.verdict),
        Some(Verdict::Drained)
    );
    host.finish();
}

/// `run` is the one-liner; other generations' events wait.
fn run_gives_back_what_was_kept_and_leaves_other_events_alone(way: Way) {
    let mut host = Host::new(way);
    let mut other = host.telling("echo other; exec sleep 60");
    other.drain(DrainPolicy::default());
    let other = host.spawn(&other);
    let command = host.telling("echo out; echo err >&2; exit 3");
    let finished = host.reactor.run(&command).expect("run");
    assert_eq!(
        finished.stdout.map(|kept| kept.to_vec()),
        Some(b"out\n".to_vec())
    );
    assert_eq!(
        finished.stderr.map(|kept| kept.to_vec()),
        Some(b"err\n".to_vec())
    );
    assert_eq!(
        (finished.report.outcome, finished.report.stderr_tail),
        (Some(Outcome::Failed), vec!["err".to_owned()])
    );
    host.until_said(other, "other");
    host.reactor.kill(other);
    host.until_closed(other);
    let error = host
        .reactor
        .run(&Command::new("/nonexistent/program"))
        .expect_err("no such program");
    assert!(
        error.is_not_found() && error.raw_os_error() == Some(libc::ENOENT),
        "{error}"
    );
    host.finish();
}

/// CASES 79. Nobody could feed the child, or take its pipe, while the call waits for its end.
fn what_needs_the_host_while_it_runs_is_refused_by_run(way: Way) {
    let mut host = Host::new(way);
    let plain = host.shell("cat; sleep 60");
    let (mut fed, mut raw_in) = (plain.clone(), plain.clone());
    fed.stdin(Stdin::Feed);
    raw_in.stdin(Stdin::Raw);
    let (mut raw_out, mut raw_err) = (plain.clone(), plain.clone());
    raw_out.stdout(Output::Raw);
    raw_err.stderr(Output::Raw);
    for command in [fed, raw_in, raw_out, raw_err] {
        let error = host.reactor.run(&command).expect_err("refused");
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{error}");
        assert!(error.to_string().contains("runs to the end"), "{error}");
        assert!(lastwords::run(&command).is_err());
    }
    assert_eq!(host.reactor.stats().started, 0);
    host.finish();
}

#[test]
fn name_arguments_variables_and_umask_are_as_the_command_says() {
    let mut command = Command::new("sh");
    command
        .arg0("another name")
        .args(["-c", "echo $0; umask; env | wc -l"])
        .env_clear()
        .env("ONLY", "one")
        .umask(0o027);
    let text = lastwords::run(&command)
        .expect("run")
        .stdout
        .expect("captured")
        .to_string_lossy();
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    assert_eq!(lines[..2], ["another name", "0027"]);
    assert!(delivered_is_not_the_default(), "delivery is opt-in");
}

fn delivered_is_not_the_default() -> bool {
    matches!((Output::default(), delivered()), (Output::Capture(one), Output::Capture(two)) if !one.deliver && two.deliver)
}
