//! Background work: what outlives its leader is found, waited for, and ended or left as the policy
//! says (SPEC 4).

use crate::common::gate::{Bell, Gate};
use crate::common::host::Host;
use crate::common::proc::{stat, wait_dead};
use crate::common::{LONG, Way, every_way, ms, wait_until};
use lastwords::{
    BackgroundPolicy, Bound, Command, ContainedBy, DrainPolicy, EndedBy, Outcome, SettledAs,
    Signal, StopPolicy, StopReason, Stopping, Stream, StreamEnd, Verdict, Wait,
};
use std::time::{Duration, Instant};

every_way! {
    a_leader_that_left_nobody_is_settled_at_once,
    by_default_work_is_listed_and_left_alone,
    ordinary_teardown_is_no_background_work,
    work_without_a_pipe_is_found_listed_once_and_waited_for,
    work_that_is_handed_on_from_process_to_process_is_not_nobody,
    processes_that_the_survivors_fork_are_waited_for_too,
    a_stream_that_is_held_is_read_while_the_holder_is_waited_for,
    what_outlives_the_wait_is_terminated_and_what_ignores_term_is_killed,
    a_member_that_forks_on_term_is_ended_too,
    orphans_are_kept_after_the_wait_when_asked,
    work_is_only_reported_when_asked,
    nobody_looks_when_asked_not_to,
    a_stop_ends_the_wait_with_its_own_grace,
    a_cancel_ends_the_grace,
    a_thousand_survivors_are_waited_for_and_ended,
    what_needed_sigkill_with_the_leader_is_listed_without_it,
    what_leaves_the_group_while_it_is_waited_for_is_waited_for_and_left_alone,
    the_wait_costs_no_turns,
}

/// Nothing is waited for but what the test waits for.
fn policy() -> BackgroundPolicy {
    BackgroundPolicy::settle()
        .grace(Duration::ZERO)
        .wait(Wait::For(LONG * 10))
}

fn quiet(host: &Host, script: &str, policy: BackgroundPolicy) -> Command {
    let mut command = host.telling(script);
    command.background(policy);
    command
}

/// CASES 25.
fn a_leader_that_left_nobody_is_settled_at_once(way: Way) {
    let mut host = Host::new(way);
    let begun = Instant::now();
    let command = quiet(&host, "exit 0", BackgroundPolicy::settle().grace(LONG * 10));
    let child = host.spawn(&command);
    let story = host.until_closed(child);
    let settled = story.settled().expect("settled");
    assert_eq!(
        (settled.state, settled.contained_by, settled.processes.len()),
        (SettledAs::None, ContainedBy::Group, 0)
    );
    assert_eq!(settled.state.complete(), Some(true));
    assert!(story.background_wait().is_none() && story.report().stop.is_none());
    assert!(begun.elapsed() < LONG);
    host.finish();
}

/// SPEC 4.2: what ends within the grace does not count.
fn ordinary_teardown_is_no_background_work(way: Way) {
    let mut host = Host::new(way);
    let mut command = quiet(
        &host,
        "(read x <&9) >/dev/null 2>&1 & exit 0",
        BackgroundPolicy::settle().grace(LONG * 10),
    );
    let gate = Gate::at(9, &mut command);
    let child = host.spawn(&command);
    assert_eq!(
        host.until_drained(child).drain().map(|drain| drain.verdict),
        Some(Verdict::Drained)
    );
    assert!(host.story(child).settled().is_none());
    gate.open();
    let story = host.until_closed(child);
    assert_eq!(
        story.settled().map(|settled| settled.state),
        Some(SettledAs::None)
    );
    assert!(story.background_wait().is_none());
    host.finish();
}

/// CASES 35. End of file says nothing about background work.
fn work_without_a_pipe_is_found_listed_once_and_waited_for(way: Way) {
    way.alone(|| {
        let mut host = Host::new(way);
        let mut command = quiet(
            &host,
            "(exec sh -c 'read x <&9') >/dev/null 2>&1 & echo started $!",
            policy(),
        );
        let gate = Gate::at(9, &mut command);
        let child = host.spawn(&command);
        let story = host.until_story(child, "BackgroundWait, Drained", |story| {
            // The subshell has the pipe until it has come to its redirection, which may take longer
            // than the grace.
            story.background_wait().is_some() && story.drain().is_some()
        });
        assert_eq!(
            story.drain().map(|drain| drain.verdict),
            Some(Verdict::Drained),
            "end of file is there at once: {story:?}"
        );
        let survivors = story.background_wait().expect("who");
        let pid: u32 = story
            .delivered(Stream::Stdout)
            .trim_start_matches("started ")
            .trim()
            .parse()
            .expect("a number");
        assert_eq!(
            survivors
                .iter()
                .map(|s| (s.pid, s.comm.as_str()))
                .collect::<Vec<_>>(),
            [(pid, "sh")]
        );
        assert!(
            survivors
                .iter()
                .all(|s| "SRD".contains(s.state) && s.age < LONG),
            "{survivors:?}"
        );
        gate.open();
        let story = host.until_closed(child);
        let settled = story.settled().expect("settled");
        assert_eq!(
            (settled.state, settled.state.complete()),
            (SettledAs::Finished, Some(true))
        );
        assert_eq!(
            settled.processes.iter().map(|s| s.pid).collect::<Vec<_>>(),
            [pid]
        );
        assert!(story.report().success());
        host.finish();
    });
}

/// SPEC 4.1 and 4.3: every look passes by a process that is forked and gone within milliseconds;
/// the group is not empty for all that.
fn work_that_is_handed_on_from_process_to_process_is_not_nobody(way: Way) {
    let mut host = Host::new(way);
    let chain = "use Time::HiRes qw(time sleep); $end = time + 1.2; while (time < $end) { exit 0 if fork; sleep 0.003 } print STDERR qq(done)";
    let policy = BackgroundPolicy::settle()
        .grace(ms(100))
        .wait(Wait::For(LONG));
    let command = quiet(&host, &format!("exec perl -e '{chain}'"), policy);
    let child = host.spawn(&command);
    let story = host.until_closed(child);
    assert_eq!(
        story.settled().map(|settled| settled.state),
        Some(SettledAs::Finished)
    );
    assert_eq!(
        story.delivered(Stream::Stderr),
        "done",
        "it had come to its end"
    );
    host.finish();
}

/// SPEC 4.3: a list is a snapshot.
fn processes_that_the_survivors_fork_are_waited_for_too(way: Way) {
    let mut host = Host::new(way);
    let relay =
        "read x <&9; (read x <&9; (read x <&9; echo third >&8) & echo second >&8) & echo first >&8";
    let mut command = quiet(
        &host,
        &format!("({relay}) >/dev/null 2>&1 & exit 0"),
        policy(),
    );
    let gate = Gate::at(9, &mut command);
    let bell = Bell::at(8, &mut command);
    let child = host.spawn(&command);
    host.until_story(child, "BackgroundWait", |story| {
        story.background_wait().is_some()
    });
    for word in ["first\n", "second\n", "third\n"] {
        assert!(
            host.story(child).settled().is_none(),
            "{:?}",
            host.story(child)
        );
        gate.pass();
        assert_eq!(bell.wait(), word);
        host.idle(ms(30));
    }
    let story = host.until_closed(child);
    assert_eq!(
        story.settled().map(|settled| settled.state),
        Some(SettledAs::Finished)
    );
    host.finish();
}

/// SPEC 1.7: closing it would kill the work by SIGPIPE.
fn a_stream_that_is_held_is_read_while_the_holder_is_waited_for(way: Way) {
    let mut host = Host::new(way);
    let mut command = quiet(
        &host,
        "(read x <&9; echo late; echo last >&2) & echo early; exit 0",
        policy(),
    );
    command.drain(DrainPolicy::default().idle(ms(20)));
    let gate = Gate::at(9, &mut command);
    let child = host.spawn(&command);
    host.until_drained(child);
    host.until_story(child, "BackgroundWait", |story| {
        story.background_wait().is_some()
    });
    gate.open();
    let story = host.until_closed(child);
    let report = story.report();
    assert_eq!(story.delivered(Stream::Stdout), "early\nlate\n");
    assert_eq!(
        report.stdout.map(|s| (s.bytes, s.late, s.end)),
        Some((11, 5, Some(StreamEnd::Eof)))
    );
    assert_eq!(
        report.stderr.map(|s| (s.bytes, s.late, s.end)),
        Some((5, 5, Some(StreamEnd::Eof)))
    );
    assert_eq!(
        (report.stderr_tail.len(), &report.late_tail[..]),
        (0, &["last".to_owned()][..])
    );
    assert_eq!(
        report.drain.as_ref().and_then(|d| d.ended_by),
        Some(EndedBy::Idle)
    );
    assert_eq!(
        report.background.as_ref().map(|b| b.state),
        Some(SettledAs::Finished)
    );
    host.finish();
}

/// CASES 81. Not a minute for a server that the command has started, and nobody is killed.
fn by_default_work_is_listed_and_left_alone(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.shell("sleep 60 >/dev/null 2>&1 & exit 0");
    command.background(BackgroundPolicy::default());
    let begin = Instant::now();
    let report = host.reactor.run(&command).expect("run").report;
    assert!(begin.elapsed() < LONG, "{:?}", begin.elapsed());
    let settled = report.background.expect("it has run");
    assert_eq!(settled.state, SettledAs::Reported);
    assert_eq!(settled.processes.len(), 1, "{settled:?}");
    assert_eq!(host.mark.alive().len(), 1, "it lives on");
    host.mark.kill();
    host.finish();
}

/// CASES 28, for what the leader has left.
fn what_outlives_the_wait_is_terminated_and_what_ignores_term_is_killed(way: Way) {
    for ignores in [false, true] {
        let mut host = Host::new(way);
        let trap = if ignores { "trap '' TERM;" } else { "" };
        let mut command = quiet(
            &host,
            &format!("({trap} echo ready >&8; exec sleep 60) >/dev/null 2>&1 & exit 0"),
            BackgroundPolicy::settle()
                .grace(ms(50))
                .wait(Wait::For(ms(500)))
                .terminate_grace(ms(if ignores { 100 } else { 60_000 })),
        );
        let bell = Bell::at(8, &mut command);
        let child = host.spawn(&command);
        bell.wait();
        let story = host.until_closed(child);
        let report = story.report();
        let settled = story.settled().expect("settled");
        assert_eq!(
            (settled.state, settled.state.complete()),
            (SettledAs::Terminated, Some(false))
        );
        assert_eq!(
            settled
                .processes
                .iter()
                .map(|s| s.comm.as_str())
                .collect::<Vec<_>>(),
            ["sleep"]
        );
        assert!(settled.waited >= ms(550) && story.background_wait().is_some());
        let stop = report.stop.as_ref().expect("a stop");
        assert_eq!(
            (stop.reason, stop.signal, stop.escalated, stop.stuck.len()),
            (StopReason::Background, Signal::TERM, ignores, 0)
        );
        assert_eq!(
            report.outcome,
            Some(Outcome::Succeeded),
            "the leader had ended by itself"
        );
        assert!(host.mark.alive().is_empty());
        host.finish();
    }
}

/// Who is forked after TERM waits for SIGKILL.
fn a_member_that_forks_on_term_is_ended_too(way: Way) {
    let mut host = Host::new(way);
    let script = "(trap 'sleep 60 & sleep 60 & exit 0' TERM; echo ready >&8; while :; do sleep 0.01; done) >/dev/null 2>&1 & exit 0";
    let mut command = quiet(
        &host,
        script,
        policy().wait(Wait::For(ms(300))).terminate_grace(ms(300)),
    );
    let bell = Bell::at(8, &mut command);
    let child = host.spawn(&command);
    bell.wait();
    let report = host.until_closed(child).report();
    assert_eq!(
        report.background.as_ref().map(|settled| settled.state),
        Some(SettledAs::Terminated)
    );
    assert!(
        report
            .stop
            .as_ref()
            .is_some_and(|stop| stop.escalated && stop.stuck.is_empty()),
        "{report:?}"
    );
    assert!(host.mark.alive().is_empty(), "{:?}", host.mark.alive());
    host.finish();
}

/// SPEC 4 and 1.7: it is not killed by the end of its pipe either.
fn orphans_are_kept_after_the_wait_when_asked(way: Way) {
    let mut host = Host::new(way);
    let script = "(read x <&9; echo one; read x <&9; echo two; echo alive >&8) & exit 0";
    let mut command = quiet(
        &host,
        script,
        policy().wait(Wait::For(ms(100))).keep_orphans(true),
    );
    command.drain(DrainPolicy::default().idle(ms(20)));
    let gate = Gate::at(9, &mut command);
    let bell = Bell::at(8, &mut command);
    let child = host.spawn(&command);
    let story = host.until_closed(child);
    let settled = story.settled().expect("settled");
    assert_eq!(
        (
            settled.state,
            settled.state.complete(),
            settled.processes.len()
        ),
        (SettledAs::Kept, Some(false), 1)
    );
    assert!(story.report().stop.is_none());
    assert_eq!(
        story.report().stdout.and_then(|s| s.end),
        Some(StreamEnd::Held)
    );
    for _ in 0..2 {
        gate.pass();
    }
    assert_eq!(bell.wait(), "alive\n");
    host.mark.wait_gone();
    host.finish();
}

fn work_is_only_reported_when_asked(way: Way) {
    let mut host = Host::new(way);
    let mut command = quiet(
        &host,
        "(read x <&9) >/dev/null 2>&1 & exit 0",
        BackgroundPolicy::report_only().grace(ms(50)),
    );
    let gate = Gate::at(9, &mut command);
    let child = host.spawn(&command);
    let story = host.until_closed(child);
    let settled = story.settled().expect("settled");
    assert_eq!(
        (
            settled.state,
            settled.state.complete(),
            settled.processes.len()
        ),
        (SettledAs::Reported, Some(false), 1)
    );
    assert!(settled.waited >= ms(50) && story.background_wait().is_none());
    assert_eq!(host.mark.alive().len(), 1, "it was left running");
    gate.open();
    host.finish();
}

fn nobody_looks_when_asked_not_to(way: Way) {
    let mut host = Host::new(way);
    let mut command = quiet(
        &host,
        "(read x <&9) >/dev/null 2>&1 & exit 0",
        BackgroundPolicy::disabled(),
    );
    let gate = Gate::at(9, &mut command);
    let child = host.spawn(&command);
    let story = host.until_closed(child);
    let settled = story.settled().expect("settled");
    assert_eq!(
        (settled.state, settled.state.complete()),
        (SettledAs::Disabled, None)
    );
    gate.open();
    host.finish();
}

/// SPEC 4.5, and CASES 29 with a longer wait.
fn a_stop_ends_the_wait_with_its_own_grace(way: Way) {
    let mut host = Host::new(way);
    let mut command = quiet(
        &host,
        "sleep 60 & exit 0",
        policy().terminate_grace(LONG * 10),
    );
    command.drain(
        DrainPolicy::default()
            .idle(Bound::Never)
            .limit(Bound::Never),
    );
    let child = host.spawn(&command);
    host.until_story(child, "BackgroundWait", |story| {
        story.background_wait().is_some()
    });
    assert!(matches!(
        host.reactor
            .stop(child, Some(StopPolicy::default().grace(LONG * 10))),
        Stopping::Begun
    ));
    let story = host.until_closed(child);
    assert_eq!(
        story
            .settled()
            .map(|settled| (settled.state, settled.processes.len())),
        Some((SettledAs::Terminated, 1))
    );
    assert_eq!(
        story
            .report()
            .stop
            .as_ref()
            .map(|stop| (stop.reason, stop.escalated)),
        Some((StopReason::Request, false))
    );
    assert_eq!(story.report().outcome, Some(Outcome::Succeeded));
    host.finish();
}

fn a_cancel_ends_the_grace(way: Way) {
    let mut host = Host::new(way);
    let mut command = quiet(
        &host,
        "(trap '' TERM; echo ready >&8; exec sleep 60) >/dev/null 2>&1 & exit 0",
        BackgroundPolicy::settle().grace(LONG * 10),
    );
    let bell = Bell::at(8, &mut command);
    let child = host.spawn(&command);
    bell.wait();
    host.until_drained(child);
    host.idle(ms(20));
    host.reactor.kill(child);
    let story = host.until_closed(child);
    assert_eq!(
        story
            .settled()
            .map(|settled| (settled.state, settled.processes.len())),
        Some((SettledAs::Terminated, 1))
    );
    assert!(story.background_wait().is_none());
    host.finish();
}

/// Only some of them have a descriptor of their own.
fn a_thousand_survivors_are_waited_for_and_ended(way: Way) {
    way.alone(|| {
        let mut host = Host::new(way);
        let script =
            "i=0; while [ $i -lt 1000 ]; do sleep 600 >/dev/null 2>&1 & i=$((i+1)); done; exit 0";
        let mut command = quiet(&host, script, policy());
        command
            .stdout(lastwords::Output::Null)
            .stderr(lastwords::Output::Null);
        let child = host.spawn(&command);
        let story = host.until_story(child, "BackgroundWait", |story| {
            story.background_wait().is_some()
        });
        assert_eq!(
            story.background_wait().map(|survivors| survivors.len()),
            Some(1000)
        );
        host.reactor
            .stop(child, Some(StopPolicy::default().grace(LONG * 10)));
        let story = host.until_closed(child);
        assert_eq!(
            story
                .settled()
                .map(|settled| (settled.state, settled.processes.len())),
            Some((SettledAs::Terminated, 1000))
        );
        assert!(host.mark.alive().is_empty());
        host.finish();
    });
}

/// SPEC 4.4: those that needed a stop's SIGKILL are listed; the leader's own end is no background
/// work.
fn what_needed_sigkill_with_the_leader_is_listed_without_it(way: Way) {
    for member in [true, false] {
        let mut host = Host::new(way);
        let beside = if member {
            "(exec sleep 61) & (exec sleep 60) & "
        } else {
            ""
        };
        let child = host.run(&format!(
            "trap '' TERM; {beside}echo ready; while :; do sleep 0.05; done"
        ));
        host.until_said(child, "ready");
        if member {
            host.mark.wait_named("sleep", 3);
        }
        host.reactor
            .stop(child, Some(StopPolicy::default().grace(ms(150))));
        let story = host.until_closed(child);
        let (report, settled) = (story.report(), story.settled().expect("settled"));
        assert_eq!(report.exit.and_then(|exit| exit.signal), Some(Signal::KILL));
        let sleeps = settled
            .processes
            .iter()
            .filter(|p| p.comm == "sleep")
            .count();
        if member {
            assert_eq!(
                (settled.state, settled.state.complete()),
                (SettledAs::Terminated, Some(false)),
                "{story:?}"
            );
            assert!((2..=3).contains(&sleeps), "{settled:?}");
        }
        assert!(
            settled.processes.iter().all(|p| Some(p.pid) != report.pid),
            "{settled:?}"
        );
        host.finish();
    }
}

/// SPEC 4.3: whoever was watched when it left the group is known, and waited for to its end; nobody
/// signals it.
fn what_leaves_the_group_while_it_is_waited_for_is_waited_for_and_left_alone(way: Way) {
    for stops in [false, true] {
        let mut host = Host::new(way);
        let script =
            "(read x <&9; exec setsid sh -c 'echo $$ >&8; read x <&7') >/dev/null 2>&1 & exit 0";
        let mut command = quiet(&host, script, policy());
        let (gate, stay) = (Gate::at(9, &mut command), Gate::at(7, &mut command));
        let bell = Bell::at(8, &mut command);
        let child = host.spawn(&command);
        host.until_story(child, "BackgroundWait", |story| {
            story.background_wait().is_some()
        });
        gate.open();
        let pid: u32 = bell.wait().trim().parse().expect("a number");
        host.idle(ms(30));
        assert!(
            host.story(child).settled().is_none(),
            "{:?}",
            host.story(child)
        );
        if stops {
            host.reactor
                .stop(child, Some(StopPolicy::default().grace(LONG * 10)));
            host.until_closed(child);
            assert!(
                stat(pid).is_some_and(|stat| stat.state != 'Z'),
                "left alone"
            );
        }
        stay.open();
        wait_dead(pid);
        let story = host.until_closed(child);
        assert_eq!(
            story.settled().map(|s| (s.state, s.contained_by)),
            Some((SettledAs::Finished, ContainedBy::Group))
        );
        host.finish();
    }
}

/// SPEC 4.3: the end of the wait is told, not looked for.
fn the_wait_costs_no_turns(way: Way) {
    let mut host = Host::new(way);
    let mut command = quiet(&host, "(read x <&9) >/dev/null 2>&1 & exit 0", policy());
    let gate = Gate::at(9, &mut command);
    let child = host.spawn(&command);
    host.until_story(child, "BackgroundWait", |story| {
        story.background_wait().is_some()
    });
    host.idle(ms(50));
    let before = host.reactor.stats().turns;
    // The SIGCHLD way asks once a second.
    host.turn(ms(700));
    host.take_events();
    let turns = host.reactor.stats().turns - before;
    assert_eq!(turns, 1);
    assert!(
        host.reactor.next_deadline().is_some(),
        "the wait itself ends"
    );
    gate.open();
    wait_until("nobody", || host.mark.alive().is_empty());
    host.until_closed(child);
    host.finish();
}
