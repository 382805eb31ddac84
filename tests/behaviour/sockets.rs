//! Streams that come through a pair of sockets: what is the same as with pipes, and what is not.

use crate::common::host::Host;
use crate::common::proc::wait_comm;
use crate::common::{Way, every_way, ms};
use lastwords::{
    BackgroundPolicy, Bound, Capture, Command, DrainPolicy, DrainReport, EndedBy, Outcome, Output,
    Signal, Stream, StreamEnd, Transport, Verdict,
};

every_way! {
    what_a_child_wrote_is_all_there_and_it_is_drained,
    bounds_of_zero_cut_nothing_of_a_child_that_left_nobody,
    a_held_socket_times_out_and_its_holder_is_named,
    a_holder_outside_the_group_is_named_too,
    what_comes_after_the_verdict_is_late,
    who_writes_to_a_closed_one_is_refused,
    a_child_that_closes_its_streams_runs_on_without_a_wake_up,
    merged_streams_keep_their_order,
    a_stream_cannot_be_opened_by_name,
    a_capacity_means_nothing,
}

fn socket() -> Capture {
    Capture::default().transport(Transport::Socket)
}

fn shell(host: &Host, script: &str) -> Command {
    let mut command = host.shell(script);
    command.stdout(socket()).stderr(socket());
    command
}

/// More than it holds, to the byte, and the last words.
fn what_a_child_wrote_is_all_there_and_it_is_drained(way: Way) {
    let mut host = Host::new(way);
    let mut command = shell(
        &host,
        "seq 1 100000; head -c 3000000 /dev/zero | tr '\\0' x >&2; echo >&2; echo bye >&2; exit 3",
    );
    command.stderr(socket().max_bytes(4 << 20));
    let child = host.spawn(&command);
    let story = host.until_closed(child);
    let report = story.report();
    assert_eq!(
        (report.outcome, report.state()),
        (Some(Outcome::Failed), Some(Verdict::Drained))
    );
    let streams = [report.stdout, report.stderr]
        .map(|stream| stream.map(|stream| (stream.bytes, stream.end)));
    assert_eq!(
        streams,
        [
            Some((588_895, Some(StreamEnd::Eof))),
            Some((3_000_005, Some(StreamEnd::Eof)))
        ]
    );
    assert_eq!(report.stderr_tail.last().map(String::as_str), Some("bye"));
    host.finish();
}

fn bounds_of_zero_cut_nothing_of_a_child_that_left_nobody(way: Way) {
    way.alone(|| {
        let mut host = Host::new(way);
        for _ in 0..20 {
            let mut command = shell(&host, "head -c 150000 /dev/zero; echo last >&2");
            command.drain(
                DrainPolicy::default()
                    .idle(Bound::After(ms(0)))
                    .limit(Bound::After(ms(0))),
            );
            let child = host.spawn(&command);
            let story = host.until_closed(child);
            assert_eq!(story.report().state(), Some(Verdict::Drained), "{story:?}");
            assert_eq!(
                story.report().stdout.map(|stream| stream.bytes),
                Some(150_000)
            );
            assert_eq!(story.report().stderr_tail, ["last"]);
        }
        host.finish();
    });
}

/// It is on the list, which holds nobody else; or the list says that it is not complete.
fn assert_named(drain: &DrainReport, comm: &str, stream: Stream) {
    let named: Vec<_> = drain
        .holders
        .iter()
        .map(|holder| (holder.comm.as_str(), holder.streams.as_slice()))
        .collect();
    assert!(
        named == [(comm, &[stream][..])] || (named.is_empty() && !drain.holders_complete),
        "{drain:?}"
    );
}

fn a_held_socket_times_out_and_its_holder_is_named(way: Way) {
    let mut host = Host::new(way);
    let mut command = shell(&host, "sleep 60 2>/dev/null & echo out; exit 4");
    command.drain(DrainPolicy::default().idle(ms(100)));
    let child = host.spawn(&command);
    let story = host.until_drained(child);
    let drain = story.drain().expect("a verdict");
    assert_eq!(
        (drain.verdict, drain.ended_by),
        (Verdict::DrainTimedOut, Some(EndedBy::Idle))
    );
    assert_eq!(drain.open, [Stream::Stdout]);
    assert_named(drain, "sleep", Stream::Stdout);
    host.reactor.kill(child);
    let report = host.until_closed(child).report();
    assert_eq!(
        (report.exit.and_then(|exit| exit.code), report.outcome),
        (Some(4), Some(Outcome::Failed))
    );
    host.finish();
}

fn a_holder_outside_the_group_is_named_too(way: Way) {
    let mut host = Host::new(way);
    let mut command = shell(&host, "setsid sleep 60 >/dev/null & echo $!; exit 0");
    command.drain(DrainPolicy::default().idle(ms(100)));
    command.stdout(socket().deliver(true));
    let child = host.spawn(&command);
    host.until_said(child, "\n");
    let pid: u32 = host
        .story(child)
        .delivered(Stream::Stdout)
        .trim()
        .parse()
        .expect("a pid");
    wait_comm(pid, "sleep");
    let story = host.until_drained(child);
    let drain = story.drain().expect("a verdict");
    assert_named(drain, "sleep", Stream::Stderr);
    assert!(
        drain.holders.iter().all(|holder| holder.pid == pid),
        "{drain:?}"
    );
    host.until_closed(child);
    host.mark.kill();
    host.finish();
}

fn what_comes_after_the_verdict_is_late(way: Way) {
    let mut host = Host::new(way);
    let mut command = shell(&host, "(sleep 0.6; echo late >&2) & echo early >&2; exit 0");
    command
        .drain(DrainPolicy::default().idle(ms(50)))
        .background(BackgroundPolicy::settle().grace(ms(0)));
    let child = host.spawn(&command);
    let report = host.until_closed(child).report();
    assert_eq!(
        (report.state(), report.stderr_tail.as_slice()),
        (Some(Verdict::DrainTimedOut), &["early".to_owned()][..])
    );
    assert_eq!(
        (
            report.late_tail.as_slice(),
            report.stderr.map(|stream| stream.late)
        ),
        (&["late".to_owned()][..], Some(5))
    );
    host.finish();
}

/// The signal comes only to who writes after the close; one who sleeps in a write has the error
/// alone.
fn who_writes_to_a_closed_one_is_refused(way: Way) {
    let mut host = Host::new(way);
    let mut command = shell(&host, "exec yes");
    command.stdout(socket().max_bytes(100));
    let child = host.spawn(&command);
    host.until("some bytes", |host| host.reactor.stats().bytes > 100_000);
    assert!(host.reactor.close_output(child, Stream::Stdout));
    let report = host.until_closed(child).report();
    let is_told = report
        .stderr_tail
        .iter()
        .any(|line| line.contains("Broken pipe"));
    assert!(
        report
            .exit
            .is_some_and(|exit| exit.signal == Some(Signal::PIPE))
            || is_told,
        "{report:?}"
    );
    host.finish();
}

fn a_child_that_closes_its_streams_runs_on_without_a_wake_up(way: Way) {
    let mut host = Host::new(way);
    let child = host.spawn(&shell(&host, "exec >&- 2>&-; sleep 0.5; exit 7"));
    host.idle(ms(200));
    let turns = host.reactor.stats().turns;
    host.idle(ms(100));
    assert!(host.reactor.stats().turns - turns < 20, "it spins");
    let report = host.until_closed(child).report();
    assert_eq!(
        (report.exit.and_then(|exit| exit.code), report.state()),
        (Some(7), Some(Verdict::Drained))
    );
    host.finish();
}

fn merged_streams_keep_their_order(way: Way) {
    let mut host = Host::new(way);
    let mut command = shell(&host, "for i in 1 2 3; do echo o$i; echo e$i >&2; done");
    command.stderr(Output::ToStdout);
    let child = host.spawn(&command);
    assert_eq!(
        host.until_closed(child).report().stderr_tail,
        ["o1", "e1", "o2", "e2", "o3", "e3"]
    );
    host.finish();
}

/// What it breaks, as it is documented: ENXIO. The same with a pipe succeeds.
fn a_stream_cannot_be_opened_by_name(way: Way) {
    let mut host = Host::new(way);
    let script = "if (echo x >/proc/self/fd/1) 2>/dev/null; then echo opened; else echo refused; fi; test -t 1 || echo no terminal";
    for (through, said) in [
        (Transport::Pipe, "x\nopened\nno terminal\n"),
        (Transport::Socket, "refused\nno terminal\n"),
    ] {
        let mut command = host.shell(script);
        command.stdout(Capture::default().transport(through));
        let child = host.spawn(&command);
        assert_eq!(host.until_closed(child).kept(Stream::Stdout), said);
    }
    host.finish();
}

fn a_capacity_means_nothing(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.shell("echo out");
    command
        .stdout(socket().pipe(Some(1 << 20)))
        .stderr(Capture::default().pipe(Some(128 << 10)));
    let child = host.spawn(&command);
    let report = host.until_closed(child).report();
    let capacities =
        [report.stdout, report.stderr].map(|stream| stream.and_then(|stream| stream.capacity));
    assert_eq!(capacities, [None, Some(128 << 10)]);
    host.finish();
}
