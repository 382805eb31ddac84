//! stdin: null, inherited, a descriptor, a raw pipe, or bytes that the loop writes.

use crate::common::gate::Gate;
use crate::common::host::{Host, delivered};
use crate::common::proc::wait_comm;
use crate::common::{LONG, Way, every_way, ms, sys};
use lastwords::{Capture, FeedRefusal, Output, Signal, Stdin, StdinEnd, Stream};
use std::io::{Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

every_way! {
    bytes_are_written_and_then_closed,
    a_large_stdin_of_a_child_that_ends_is_no_error_and_no_signal,
    a_child_that_never_reads_stalls_nothing,
    a_child_that_closes_its_stdin_early_goes_on,
    what_is_fed_arrives_in_order_until_it_is_closed,
    what_cannot_be_fed_comes_back,
    a_null_stdin_is_at_its_end,
    a_raw_stdin_is_the_hosts_and_does_not_block,
    a_descriptor_becomes_the_childs_stdin,
    the_hosts_own_stdin_is_inherited,
    bytes_both_ways_through_one_child_never_deadlock,
    what_a_survivor_does_not_read_keeps_nothing_open,
    a_descriptor_that_was_given_away_is_not_kept,
    raw_ends_of_a_failed_start_are_closed_at_once,
    a_raw_stdout_that_becomes_a_childs_stdin_is_blocking,
}

fn bytes_are_written_and_then_closed(way: Way) {
    let mut host = Host::new(way);
    for len in [0, 1, 65_536, 65_537, 3_000_000] {
        let bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
        let mut command = host.shell("exec cat");
        command
            .stdin(bytes.clone())
            .stdout(Capture::default().deliver(true).max_bytes(0));
        let child = host.spawn(&command);
        let story = host.until_closed(child);
        assert!(
            story.taken[0].bytes == bytes,
            "{len} bytes come back as they went"
        );
        let stdin = story.report().stdin.expect("fed");
        assert_eq!(
            (stdin.bytes, stdin.unwritten, stdin.end, stdin.error),
            (len, 0, StdinEnd::Written, None)
        );
        assert!(story.report().success());
    }
    host.finish();
}

/// CASES 10. In a host where SIGPIPE has its default action; the disposition is untouched.
fn a_large_stdin_of_a_child_that_ends_is_no_error_and_no_signal(way: Way) {
    way.alone(|| {
        sys::default_action(Signal::PIPE);
        let mut host = Host::new(way);
        for script in ["exit 7", "exec <&-; sleep 0.1; exit 7"] {
            let mut command = host.telling(script);
            command.stdin(vec![b'x'; 64 << 20]);
            let child = host.spawn(&command);
            let report = host.until_closed(child).report();
            assert_eq!(report.exit.and_then(|exit| exit.code), Some(7));
            let stdin = report.stdin.expect("fed");
            assert!(
                matches!(stdin.end, StdinEnd::NoReader | StdinEnd::Unwritten)
                    && stdin.error.is_none(),
                "{stdin:?}"
            );
            assert_eq!(stdin.bytes + stdin.unwritten, 64 << 20, "{stdin:?}");
        }
        assert_eq!(sys::disposition(Signal::PIPE), libc::SIG_DFL);
        host.finish();
    });
}

/// SPEC 5.1: no turn blocks, and others go on.
fn a_child_that_never_reads_stalls_nothing(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.shell("exec sleep 60");
    command.stdin(vec![0; 4 << 20]);
    let lazy = host.spawn(&command);
    for n in 0..5 {
        let mut command = host.shell("exec cat");
        command.stdin(format!("{n}").into_bytes());
        let child = host.spawn(&command);
        assert_eq!(host.until_closed(child).kept(Stream::Stdout), n.to_string());
    }
    let begun = Instant::now();
    while host.step(Duration::ZERO) {}
    assert!(begun.elapsed() < LONG);
    host.reactor.stop(lazy, None);
    let stdin = host.until_closed(lazy).report().stdin.expect("fed");
    assert!(
        stdin.bytes > 0 && stdin.bytes <= 1 << 20,
        "what a pipe takes: {stdin:?}"
    );
    assert_eq!(stdin.bytes + stdin.unwritten, 4 << 20);
    assert!(
        matches!(stdin.end, StdinEnd::NoReader | StdinEnd::Unwritten),
        "{stdin:?}"
    );
    host.finish();
}

/// EPIPE is told, and the run goes on.
fn a_child_that_closes_its_stdin_early_goes_on(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.telling("head -c 5 <&0; exec <&-; read x <&9; echo on");
    let gate = Gate::at(9, &mut command);
    command.stdin(vec![b'y'; 2 << 20]);
    let child = host.spawn(&command);
    host.until_said(child, "yyyyy");
    host.idle(ms(50));
    assert!(host.story(child).exit().is_none());
    gate.open();
    let story = host.until_closed(child);
    assert_eq!(story.delivered(Stream::Stdout), "yyyyyon\n");
    let stdin = story.report().stdin.expect("fed");
    assert_eq!(
        (stdin.end, stdin.error),
        (StdinEnd::NoReader, None),
        "{stdin:?}"
    );
    host.finish();
}

fn what_is_fed_arrives_in_order_until_it_is_closed(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.telling("while read line; do echo \"<$line>\"; done; echo end");
    command.stdin(Stdin::Feed);
    let child = host.start(&command);
    for n in 0..4 {
        host.reactor
            .feed(child, format!("line {n}\n").into_bytes())
            .expect("fed");
        host.until_said(child, &format!("<line {n}>"));
    }
    host.idle(ms(30));
    assert!(host.story(child).exit().is_none(), "it waits for more");
    host.reactor.feed(child, b"last".to_vec()).expect("fed");
    host.reactor.feed(child, b" one\n".to_vec()).expect("fed");
    assert!(host.reactor.close_stdin(child));
    assert!(host.reactor.feed(child, b"too late".to_vec()).is_err());
    let story = host.until_closed(child);
    assert_eq!(
        story.delivered(Stream::Stdout),
        "<line 0>\n<line 1>\n<line 2>\n<line 3>\n<last one>\nend\n"
    );
    let stdin = story.report().stdin.expect("fed");
    assert_eq!(
        (stdin.bytes, stdin.unwritten, stdin.end),
        (4 * 7 + 9, 0, StdinEnd::Written)
    );
    host.finish();
}

fn what_cannot_be_fed_comes_back(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.shell("read x <&9");
    let gate = Gate::at(9, &mut command);
    let child = host.spawn(&command);
    let error = host
        .reactor
        .feed(child, b"bytes".to_vec())
        .expect_err("not fed by the loop");
    assert_eq!(
        (error.why, error.bytes.as_slice()),
        (FeedRefusal::Closed, &b"bytes"[..])
    );
    assert!(!host.reactor.close_stdin(child));
    gate.open();
    host.until_closed(child);
    assert_eq!(
        host.reactor
            .feed(child, b"bytes".to_vec())
            .map_err(|error| error.why),
        Err(FeedRefusal::Gone)
    );
    assert!(host.story(child).report().stdin.is_none());
    host.finish();
}

fn a_null_stdin_is_at_its_end(way: Way) {
    let mut host = Host::new(way);
    let child = host.run("cat; echo $?; readlink /proc/$$/fd/0");
    assert_eq!(
        host.until_closed(child).delivered(Stream::Stdout),
        "0\n/dev/null\n"
    );
    host.finish();
}

fn a_raw_stdin_is_the_hosts_and_does_not_block(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.telling("read x <&9; cat");
    let gate = Gate::at(9, &mut command);
    command.stdin(Stdin::Raw);
    let child = host.spawn(&command);
    let raw: OwnedFd = host.reactor.take_stdin(child).expect("the write end");
    assert!(host.reactor.take_stdin(child).is_none(), "once");
    assert!(host.reactor.take_stdout(child).is_none() && host.reactor.take_stderr(child).is_none());
    let mut pipe = std::fs::File::from(raw);
    let mut written = 0;
    loop {
        match pipe.write(&[b'z'; 4096]) {
            Ok(n) => written += n,
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
                break;
            }
        }
    }
    assert!(written >= 4096);
    drop(pipe);
    gate.open();
    let story = host.until_closed(child);
    assert_eq!(story.taken[0].bytes.len(), written);
    assert!(story.report().stdin.is_none(), "the loop has not fed it");
    host.finish();
}

fn a_descriptor_becomes_the_childs_stdin(way: Way) {
    let name = format!("lastwords-stdin-{}-{:?}", std::process::id(), way.mode);
    let path = std::env::temp_dir().join(name);
    let mut file = std::fs::File::options()
        .create(true)
        .truncate(true)
        .read(true)
        .write(true)
        .open(&path)
        .expect("a file");
    std::fs::remove_file(&path).expect("a file without a name");
    file.write_all(b"from a file").expect("written");
    file.rewind().expect("rewound");
    let mut host = Host::new(way);
    let mut command = host.telling("cat");
    command.stdin(OwnedFd::from(file));
    let child = host.spawn(&command);
    assert_eq!(
        host.until_closed(child).delivered(Stream::Stdout),
        "from a file"
    );
    host.finish();
}

fn the_hosts_own_stdin_is_inherited(way: Way) {
    if way.is_alone() {
        let mut host = Host::new(way);
        let mut command = host.telling("cat");
        command.stdin(Stdin::Inherit);
        let child = host.spawn(&command);
        assert_eq!(
            host.until_closed(child).delivered(Stream::Stdout),
            "the host's own"
        );
        host.finish();
        return;
    }
    let mut child = way
        .command()
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("this test binary again");
    child
        .stdin
        .take()
        .expect("its stdin")
        .write_all(b"the host's own")
        .expect("written");
    let mut said = String::new();
    child
        .stdout
        .take()
        .expect("its stdout")
        .read_to_string(&mut said)
        .expect("text");
    assert!(
        child.wait().expect("a status").success() && said.contains("1 passed"),
        "{said}"
    );
}

/// Neither side waits for the other: 8 MiB in, 8 MiB out, through pipes of 64 KiB.
fn bytes_both_ways_through_one_child_never_deadlock(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.shell("exec cat");
    command
        .stdin(vec![b'b'; 8 << 20])
        .stdout(Capture::default().max_bytes(1000))
        .stderr(Output::Null);
    let child = host.spawn(&command);
    let story = host.until_closed(child);
    let stdout = story.report().stdout.expect("captured");
    assert_eq!((stdout.bytes, stdout.dropped), (8 << 20, (8 << 20) - 1000));
    assert_eq!(story.report().stdin.map(|stdin| stdin.bytes), Some(8 << 20));
    host.finish();
}

/// The leader has ended, a survivor holds the read end of stdin and never reads: it is closed with
/// the generation.
fn what_a_survivor_does_not_read_keeps_nothing_open(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.shell("exec 3<&0; sleep 60 <&3 >/dev/null 2>&1 & exit 0");
    command.stdin(vec![b'u'; 1 << 20]).stdout(delivered());
    command.background(
        lastwords::BackgroundPolicy::settle()
            .grace(ms(50))
            .wait(lastwords::Wait::For(ms(50))),
    );
    let child = host.spawn(&command);
    wait_comm(host.mark.wait_named("sleep", 1)[0].pid, "sleep");
    let story = host.until_closed(child);
    let stdin = story.report().stdin.expect("fed");
    assert_eq!(stdin.bytes + stdin.unwritten, 1 << 20);
    assert!(
        matches!(stdin.end, StdinEnd::NoReader | StdinEnd::Unwritten),
        "{stdin:?}"
    );
    host.finish();
}

/// CASES 65. Of a pipe that was given away, the child alone has the end, once the command is
/// dropped.
fn a_descriptor_that_was_given_away_is_not_kept(way: Way) {
    way.alone(|| {
        let mut host = Host::new(way);
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let (given, mut own) = std::io::pipe().expect("a pipe");
        let mut command = host.shell("exec >&- <&-; read x <&3");
        command
            .stdin(Stdin::Fd(given.into()))
            .stdout(Output::Fd(writer.into()));
        let (passed, hold) = std::io::pipe().expect("a pipe");
        command.pass_fd(passed.into(), 3);
        let child = host.spawn(&command);
        drop(command);
        // The child lives, and has closed both.
        let mut all = Vec::new();
        assert_eq!(reader.read_to_end(&mut all).expect("to its end"), 0);
        let refused = own.write(b"x").expect_err("nobody reads it");
        assert_eq!(refused.kind(), std::io::ErrorKind::BrokenPipe);
        drop(hold);
        let story = host.until_closed(child);
        assert!(!story.report().success());
        host.finish();
    });
}

/// CASES 65.
fn raw_ends_of_a_failed_start_are_closed_at_once(way: Way) {
    way.alone(|| {
        let mut host = Host::new(way);
        let mut command = lastwords::Command::new("/nowhere/at/all");
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        command.stdout(Output::Fd(writer.into())).stdin(Stdin::Raw);
        let refused = host.reactor.spawn(&command).expect_err("not there");
        assert_eq!(refused.step(), lastwords::SpawnStep::Exec);
        drop(command);
        assert_eq!(reader.read_to_end(&mut Vec::new()).expect("to its end"), 0);
        host.finish();
    });
}

/// CASES 76. The end that the host gets is non-blocking; programs do not expect that.
fn a_raw_stdout_that_becomes_a_childs_stdin_is_blocking(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.shell("read x; echo late");
    command.stdin(Stdin::Feed).stdout(Output::Raw);
    let first = host.spawn(&command);
    let raw = host.reactor.take_stdout(first).expect("raw");
    let mut command = host.shell("exec cat");
    command
        .stdin(Stdin::Fd(raw))
        .stdout(Capture::default().deliver(true));
    let second = host.spawn(&command);
    // It has begun to wait by now, or will wait.
    wait_comm(host.reactor.pid(second).expect("it runs"), "cat");
    host.reactor.feed(first, b"go\n".to_vec()).expect("fed");
    host.reactor.close_stdin(first);
    host.until_closed(first);
    let story = host.until_closed(second);
    assert_eq!(story.taken[0].bytes, b"late\n");
    assert!(story.report().success());
    host.finish();
}
