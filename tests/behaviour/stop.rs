//! The stop: a signal to the whole group, a grace, SIGKILL to the whole group, and what is told of
//! it.

use crate::common::gate::Gate;
use crate::common::host::Host;
use crate::common::log::Log;
use crate::common::proc::{stat, wait_zombie};
use crate::common::tracer::Tracer;
use crate::common::{LONG, Way, every_way, ms, sys, wait_until};
use lastwords::{
    BackgroundPolicy, Bound, Command, DrainPolicy, EndedBy, Outcome, Reactor, SettledAs, Signal,
    Signalled, StopPolicy, StopReason, Stopping, Stream, Verdict, Wait,
};
use std::time::{Duration, Instant};

every_way! {
    a_stop_ends_as_soon_as_the_group_is_empty,
    a_member_that_ignores_term_is_killed_after_the_grace,
    words_said_under_term_are_kept_whatever_the_exit_code,
    words_of_members_said_under_term_are_kept,
    a_kill_goes_to_sigkill_at_once,
    a_grace_of_zero_is_a_kill,
    an_infinite_grace_never_escalates,
    another_signal_may_be_asked_for,
    stopping_again_can_only_shorten_and_says_what_was_the_case,
    start_and_stop_in_one_turn_is_one_story,
    stop_after_a_failed_spawn_is_one_story,
    a_leader_that_was_already_dead_was_not_stopped,
    a_leader_that_exits_in_the_turn_of_the_grace_timer_is_not_killed,
    a_stop_while_draining_cuts_the_drain_short,
    a_stop_with_an_escapee_on_the_pipe_cuts_the_drain_without_a_warning,
    a_stopped_group_is_continued_to_hear_its_term,
    a_stopped_group_that_ignores_term_is_killed,
    a_loop_of_background_sleeps_stopped_half_way_leaves_none,
    a_group_that_keeps_forking_leaves_none,
    a_leader_that_went_to_another_group_is_stopped_all_the_same,
    stop_all_stops_side_by_side_within_one_grace,
    a_signal_is_no_stop,
    what_survives_sigkill_is_told_and_reaped_when_it_does_end,
    members_of_another_user_are_told_with_who_stays,
}

fn grace(millis: u64) -> Option<StopPolicy> {
    Some(StopPolicy::default().grace(ms(millis)))
}

/// SPEC 3.1: not when the grace is over.
fn a_stop_ends_as_soon_as_the_group_is_empty(way: Way) {
    let mut host = Host::new(way);
    let child = host.run("echo ready; sleep 60 & sleep 61");
    host.until_said(child, "ready");
    let begun = Instant::now();
    assert_eq!(
        host.reactor
            .stop(child, Some(StopPolicy::default().grace(LONG * 10))),
        Stopping::Begun
    );
    let report = host.until_closed(child).report();
    assert!(begun.elapsed() < LONG);
    assert_eq!(
        (report.outcome, report.exit.and_then(|exit| exit.signal)),
        (Some(Outcome::Stopped), Some(Signal::TERM))
    );
    let stop = report.stop.as_ref().expect("a stop");
    assert_eq!(
        (stop.reason, stop.signal, stop.escalated, stop.denied),
        (StopReason::Request, Signal::TERM, false, false)
    );
    assert!(stop.stuck.is_empty());
    assert_eq!(
        report.background.as_ref().map(|settled| settled.state),
        Some(SettledAs::None)
    );
    assert!(
        host.mark.alive().is_empty(),
        "closed only when empty: {:?}",
        host.mark.alive()
    );
    host.finish();
}

/// CASES 28. Escalation goes by the group being empty, not by the leader being gone.
fn a_member_that_ignores_term_is_killed_after_the_grace(way: Way) {
    let mut host = Host::new(way);
    let child = host.run("(trap '' TERM; echo ready; sleep 60) & sleep 60");
    host.until_said(child, "ready");
    let begun = Instant::now();
    host.reactor.stop(child, grace(500));
    let story = host.until_exited(child);
    assert_eq!(
        story.exit().and_then(|exit| exit.signal),
        Some(Signal::TERM),
        "the leader did not ignore it"
    );
    let report = host.until_closed(child).report();
    assert!(begun.elapsed() >= ms(500));
    assert!(
        report
            .stop
            .as_ref()
            .is_some_and(|stop| stop.escalated && stop.stuck.is_empty()),
        "{report:?}"
    );
    let background = report.background.as_ref().expect("settled");
    assert_eq!(
        (background.state, background.state.complete()),
        (SettledAs::Terminated, Some(false))
    );
    assert!(
        !background.processes.is_empty(),
        "who needed SIGKILL is listed"
    );
    assert!(
        host.mark.alive().is_empty(),
        "closed only when empty: {:?}",
        host.mark.alive()
    );
    host.finish();
}

/// SPEC 2.4 and 3.2: stopped is no error, whatever the code.
fn words_said_under_term_are_kept_whatever_the_exit_code(way: Way) {
    let mut host = Host::new(way);
    for code in [0, 9] {
        // A shell would say on stderr what it thinks of its own children that are stopped with it.
        let script = format!(
            "$SIG{{TERM}} = sub {{ print \"out\\n\"; print STDERR \"bye\\n\"; exit {code} }}; $| = 1; print \"ready\\n\"; sleep 9 while 1"
        );
        let child = host.run(&format!("exec perl -e '{script}'"));
        host.until_said(child, "ready");
        host.reactor
            .stop(child, Some(StopPolicy::default().grace(LONG)));
        let story = host.until_closed(child);
        let report = story.report();
        assert_eq!(
            (report.outcome, report.exit.and_then(|exit| exit.code)),
            (Some(Outcome::Stopped), Some(code))
        );
        assert_eq!(
            (story.delivered(Stream::Stdout), &report.stderr_tail),
            ("ready\nout\n".into(), &vec!["bye".to_owned()])
        );
        assert_eq!(report.state(), Some(Verdict::Drained));
    }
    host.finish();
}

/// SPEC 3.2: also of members, while the leader is gone already.
fn words_of_members_said_under_term_are_kept(way: Way) {
    let mut host = Host::new(way);
    let member =
        "trap 'sleep 0.2; seq 1 20000; echo bye' TERM; echo ready; while :; do sleep 0.05; done";
    let child = host.run(&format!("({member}) & exec sleep 60"));
    host.until_said(child, "ready");
    host.reactor
        .stop(child, Some(StopPolicy::default().grace(ms(2000))));
    host.until_exited(child);
    host.until_said(child, "bye");
    assert!(
        host.story(child).drain().is_none(),
        "the drain waits for what is said under TERM"
    );
    let story = host.until_closed(child);
    // The member goes on after its trap, so it is killed in the end.
    assert!(
        story
            .report()
            .stop
            .as_ref()
            .is_some_and(|stop| stop.escalated)
    );
    assert_eq!(
        story.report().stdout.map(|stream| stream.bytes),
        Some(6 + 108_894 + 4)
    );
    assert_eq!(
        story.drain().map(|drain| drain.verdict),
        Some(Verdict::Drained)
    );
    host.finish();
}

/// SPEC 3.1.
fn a_kill_goes_to_sigkill_at_once(way: Way) {
    let mut host = Host::new(way);
    let child = host.run("trap 'echo never' TERM; (trap '' TERM; sleep 60) & echo ready; sleep 60");
    host.until_said(child, "ready");
    assert_eq!(host.reactor.kill(child), Stopping::Begun);
    let story = host.until_closed(child);
    let report = story.report();
    assert_eq!(
        (report.outcome, report.exit.and_then(|exit| exit.signal)),
        (Some(Outcome::Stopped), Some(Signal::KILL))
    );
    assert!(
        report
            .stop
            .as_ref()
            .is_some_and(|stop| stop.escalated && stop.reason == StopReason::Request)
    );
    assert_eq!(story.delivered(Stream::Stdout), "ready\n");
    assert!(host.mark.alive().is_empty());
    host.finish();
}

/// limits of the policy: zero is zero.
fn a_grace_of_zero_is_a_kill(way: Way) {
    let mut host = Host::new(way);
    let child = host.run("trap '' TERM; echo ready; sleep 60");
    host.until_said(child, "ready");
    host.reactor.stop(child, grace(0));
    let report = host.until_closed(child).report();
    assert_eq!(report.exit.and_then(|exit| exit.signal), Some(Signal::KILL));
    host.finish();
}

fn an_infinite_grace_never_escalates(way: Way) {
    let mut host = Host::new(way);
    let child = host.run("trap 'echo heard' TERM; echo ready; while :; do sleep 0.02; done");
    host.until_said(child, "ready");
    host.reactor
        .stop(child, Some(StopPolicy::default().grace(Bound::Never)));
    host.until_said(child, "heard");
    host.idle(ms(100));
    assert!(host.story(child).exit().is_none());
    host.reactor.kill(child);
    let report = host.until_closed(child).report();
    assert_eq!(
        (report.outcome, report.exit.and_then(|exit| exit.signal)),
        (Some(Outcome::Stopped), Some(Signal::KILL))
    );
    host.finish();
}

fn another_signal_may_be_asked_for(way: Way) {
    let mut host = Host::new(way);
    let child = host.run("trap 'echo usr1; exit 3' USR1; echo ready; while :; do sleep 0.02; done");
    host.until_said(child, "ready");
    host.reactor.stop(
        child,
        Some(StopPolicy::default().signal(Signal::USR1).grace(LONG)),
    );
    let story = host.until_closed(child);
    assert_eq!(story.delivered(Stream::Stdout), "ready\nusr1\n");
    assert_eq!(
        story
            .report()
            .stop
            .as_ref()
            .map(|stop| (stop.signal, stop.escalated)),
        Some((Signal::USR1, false))
    );
    assert_eq!(story.report().outcome, Some(Outcome::Stopped));
    host.finish();
}

/// CASES 42. stop(10 s), then kill, then stop; stop of a closed generation.
fn stopping_again_can_only_shorten_and_says_what_was_the_case(way: Way) {
    let mut host = Host::new(way);
    let child = host.run("trap '' TERM; echo ready; while :; do sleep 0.05; done");
    host.until_said(child, "ready");
    assert_eq!(host.reactor.stop(child, grace(10_000)), Stopping::Begun);
    assert_eq!(host.reactor.stop(child, grace(60_000)), Stopping::Shortened);
    host.idle(ms(100));
    assert!(host.story(child).exit().is_none());
    assert_eq!(host.reactor.kill(child), Stopping::Shortened);
    // Or all is over by now: the leader is asked first.
    let late = host.reactor.stop(child, grace(10_000));
    assert!(
        matches!(late, Stopping::Already | Stopping::Gone),
        "{late:?}"
    );
    let report = host.until_closed(child).report();
    assert_eq!(
        (report.outcome, report.exit.and_then(|exit| exit.signal)),
        (Some(Outcome::Stopped), Some(Signal::KILL))
    );
    assert_eq!(
        report.stop.as_ref().map(|stop| (stop.reason, stop.signal)),
        Some((StopReason::Request, Signal::TERM))
    );
    assert_eq!(
        (host.reactor.stop(child, None), host.reactor.kill(child)),
        (Stopping::Gone, Stopping::Gone)
    );

    // A later stop brings the end nearer.
    let child = host.run("trap '' TERM; echo ready; while :; do sleep 0.05; done");
    host.until_said(child, "ready");
    let begun = Instant::now();
    host.reactor
        .stop(child, Some(StopPolicy::default().grace(LONG * 10)));
    host.reactor.stop(child, grace(100));
    host.until_closed(child);
    assert!(begun.elapsed() >= ms(100) && begun.elapsed() < LONG);
    host.finish();
}

/// CASES 42. A stop that is asked for while the spawn is under way is carried out.
fn start_and_stop_in_one_turn_is_one_story(way: Way) {
    let mut host = Host::new(way);
    for _ in 0..10 {
        let command = host.shell("sleep 60 & sleep 60");
        let child = host.start(&command);
        assert_eq!(host.reactor.stop(child, None), Stopping::Begun);
        let story = host.until_closed(child);
        assert_eq!(story.report().outcome, Some(Outcome::Stopped), "{story:?}");
        let command = host.shell("sleep 60 & sleep 60");
        let child = host.start(&command);
        assert_eq!(host.reactor.kill(child), Stopping::Begun);
        let story = host.until_closed(child);
        assert_eq!(
            story.exit().and_then(|exit| exit.signal),
            Some(Signal::KILL)
        );
        assert!(host.mark.alive().is_empty());
    }
    host.finish();
}

/// CASES 42.
fn stop_after_a_failed_spawn_is_one_story(way: Way) {
    let mut host = Host::new(way);
    let mut command = Command::new("true");
    host.mark.put_on(&mut command);
    command.current_dir("/nonexistent");
    // The spawn has failed, and nobody has looked yet.
    let child = host.start(&command);
    wait_zombie(host.reactor.pid(child).expect("a process"));
    host.reactor.stop(child, None);
    host.reactor.kill(child);
    let story = host.until_closed(child);
    assert!(
        story
            .failure()
            .is_some_and(|error| error.raw_os_error() == libc::ENOENT),
        "{story:?}"
    );
    assert_eq!(host.reactor.stop(child, None), Stopping::Gone);
    // It is about to fail, or is killed before it does.
    for _ in 0..5 {
        let child = host.start(&command);
        host.reactor.kill(child);
        let story = host.until_closed(child);
        let killed = story
            .exit()
            .is_some_and(|exit| exit.signal == Some(Signal::KILL));
        assert!(killed != story.failure().is_some(), "{story:?}");
    }
    host.finish();
}

/// SPEC 3.1: the leader is asked first.
fn a_leader_that_was_already_dead_was_not_stopped(way: Way) {
    let mut host = Host::new(way);
    let child = host.run("exit 5");
    wait_zombie(host.reactor.pid(child).expect("a process"));
    host.reactor.stop(child, None);
    let report = host.until_closed(child).report();
    assert_eq!(
        (report.outcome, report.exit.and_then(|exit| exit.code)),
        (Some(Outcome::Failed), Some(5))
    );
    host.finish();
}

/// CASES 27. The grace timer is due in the turn in which the exit is seen: the exit is served
/// first.
fn a_leader_that_exits_in_the_turn_of_the_grace_timer_is_not_killed(way: Way) {
    let mut host = Host::new(way);
    let child = host.run("trap 'exit 4' TERM; echo ready; while :; do sleep 0.02; done");
    host.until_said(child, "ready");
    host.reactor.stop(child, grace(150));
    wait_zombie(host.reactor.pid(child).expect("a process"));
    wait_until("members that end", || host.mark.alive().is_empty());
    std::thread::sleep(ms(200));
    let asked_at_once = host.reactor.capabilities().group_signal;
    let report = host.until_closed(child).report();
    assert_eq!(
        (report.outcome, report.exit.and_then(|exit| exit.code)),
        (Some(Outcome::Stopped), Some(4))
    );
    // Where only a look at /proc can tell that nobody is left, the grace passes meanwhile; the
    // number is reserved until then.
    assert!(
        report
            .stop
            .as_ref()
            .is_some_and(|stop| !stop.escalated || !asked_at_once),
        "{report:?}"
    );
    host.finish();
}

/// CASES 29.
fn a_stop_while_draining_cuts_the_drain_short(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.telling("(echo mine; exec sleep 60) & exit 0");
    command.drain(
        DrainPolicy::default()
            .idle(Bound::Never)
            .limit(Bound::Never),
    );
    let child = host.spawn(&command);
    host.until_exited(child);
    host.until_said(child, "mine");
    assert!(host.story(child).drain().is_none());
    assert_eq!(
        host.reactor
            .stop(child, Some(StopPolicy::default().grace(LONG))),
        Stopping::Begun
    );
    let story = host.until_closed(child);
    assert_eq!(
        story.drain().map(|drain| (drain.verdict, drain.ended_by)),
        Some((Verdict::Drained, Some(EndedBy::Eof)))
    );
    let report = story.report();
    assert_eq!(
        report.outcome,
        Some(Outcome::Succeeded),
        "the leader had ended before"
    );
    assert_eq!(
        report
            .stop
            .as_ref()
            .map(|stop| (stop.reason, stop.escalated)),
        Some((StopReason::Request, false))
    );
    assert!(host.mark.alive().is_empty());
    host.finish();
}

/// SPEC 1.5: the drain is bounded by the stop though infinite bounds were asked for.
fn a_stop_with_an_escapee_on_the_pipe_cuts_the_drain_without_a_warning(way: Way) {
    let warnings = Log::warnings_of(|| {
        let mut host = Host::new(way);
        for in_group in ["", "sleep 60 &"] {
            let mut command = host.telling(&format!(
                "{in_group} setsid sh -c 'echo away; exec sleep 60' & read x <&9; exit 0"
            ));
            let gate = Gate::at(9, &mut command);
            command.drain(
                DrainPolicy::default()
                    .idle(Bound::Never)
                    .limit(Bound::Never),
            );
            let child = host.spawn(&command);
            host.until_said(child, "away");
            gate.open();
            host.until_exited(child);
            host.idle(ms(30));
            host.reactor.stop(child, None);
            let story = host.until_closed(child);
            let drain = story.drain().expect("a verdict");
            assert_eq!(
                (drain.verdict, drain.ended_by),
                (Verdict::DrainTimedOut, Some(EndedBy::Stop)),
                "{story:?}"
            );
            assert_eq!(story.report().outcome, Some(Outcome::Succeeded));
            host.mark.kill();
        }
        host.finish();
    });
    assert!(warnings.is_empty(), "{warnings:?}");
}

/// CASES 30. TERM, then CONT.
fn a_stopped_group_is_continued_to_hear_its_term(way: Way) {
    let mut host = Host::new(way);
    let child = host.run("echo ready; kill -STOP $$; echo never");
    let pid = host.reactor.pid(child).expect("a process");
    wait_until("a stop", || stat(pid).is_some_and(|stat| stat.state == 'T'));
    host.reactor
        .stop(child, Some(StopPolicy::default().grace(LONG)));
    let story = host.until_closed(child);
    let report = story.report();
    assert_eq!(
        (report.outcome, report.exit.and_then(|exit| exit.signal)),
        (Some(Outcome::Stopped), Some(Signal::TERM))
    );
    assert!(report.stop.as_ref().is_some_and(|stop| !stop.escalated));
    assert_eq!(story.delivered(Stream::Stdout), "ready\n");
    host.finish();
}

/// CASES 30. SIGKILL at the grace.
fn a_stopped_group_that_ignores_term_is_killed(way: Way) {
    let mut host = Host::new(way);
    let child = host.run("trap '' TERM; kill -STOP $$; sleep 60");
    let pid = host.reactor.pid(child).expect("a process");
    wait_until("a stop", || stat(pid).is_some_and(|stat| stat.state == 'T'));
    host.reactor.stop(child, grace(150));
    let report = host.until_closed(child).report();
    assert_eq!(
        (report.outcome, report.exit.and_then(|exit| exit.signal)),
        (Some(Outcome::Stopped), Some(Signal::KILL))
    );
    host.finish();
}

/// CASES 36.
fn a_loop_of_background_sleeps_stopped_half_way_leaves_none(way: Way) {
    let mut host = Host::new(way);
    let script = "i=0; while [ $i -lt 300 ]; do sleep 60 & i=$((i+1)); [ $i = 150 ] && echo half; done; wait";
    let child = host.run(script);
    host.until_said(child, "half");
    host.reactor.stop(child, None);
    let report = host.until_closed(child).report();
    assert_eq!(report.outcome, Some(Outcome::Stopped));
    assert!(host.mark.alive().is_empty(), "{:?}", host.mark.alive());
    host.finish();
}

/// SPEC 9: members that fork after TERM wait for SIGKILL, which gets them all.
fn a_group_that_keeps_forking_leaves_none(way: Way) {
    let mut host = Host::new(way);
    let breeder = "trap '' TERM; while :; do (sleep 0.03; sleep 60 & sleep 0.03); done";
    let child = host.run(&format!(
        "trap '' TERM; ({breeder}) & ({breeder}) & echo ready; {breeder}"
    ));
    host.until_said(child, "ready");
    host.reactor.stop(child, grace(200));
    let report = host.until_closed(child).report();
    assert_eq!(report.outcome, Some(Outcome::Stopped));
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

/// SPEC 9: a leader that changes its group is still ours.
fn a_leader_that_went_to_another_group_is_stopped_all_the_same(way: Way) {
    let mut host = Host::new(way);
    // The child makes a group, the leader joins it.
    let script = "$| = 1; my $k = fork; if (!$k) { setpgrp(0, 0); sleep 1 while 1 } setpgrp($k, $k); setpgrp(0, $k) or die; \
                  print \"moved\\n\"; sleep 60";
    let mut command = Command::new("perl");
    host.mark.put_on(&mut command);
    command
        .args(["-e", script])
        .stdout(crate::common::host::delivered());
    let child = host.spawn(&command);
    host.until_said(child, "moved");
    let pid = host.reactor.pid(child).expect("a process");
    assert!(stat(pid).is_some_and(|stat| stat.group != pid));
    host.reactor.stop(
        child,
        Some(StopPolicy::default().grace(ms(300)).stuck_after(ms(2000))),
    );
    let report = host.until_closed(child).report();
    assert_eq!(report.outcome, Some(Outcome::Stopped), "{report:?}");
    assert!(stat(pid).is_none());
    host.mark.kill();
    host.finish();
}

/// SPEC 3.4.
fn stop_all_stops_side_by_side_within_one_grace(way: Way) {
    let mut host = Host::new(way);
    let all: Vec<_> = (0..5)
        .map(|_| host.run("trap '' TERM; echo ready; while :; do sleep 0.1; done"))
        .collect();
    for child in &all {
        host.until_said(*child, "ready");
    }
    let begun = Instant::now();
    host.reactor
        .stop_all(Some(StopPolicy::default().grace(ms(1500))));
    host.until("all closed", |host| !host.reactor.is_busy());
    assert!(
        begun.elapsed() >= ms(1500) && begun.elapsed() < ms(6000),
        "one grace for all: {:?}",
        begun.elapsed()
    );
    for child in all {
        let stop = host.story(child).report().stop.clone().expect("a stop");
        assert_eq!((stop.reason, stop.escalated), (StopReason::Shutdown, true));
    }
    host.finish();
}

/// A signal is sent as asked, and nothing else follows from it.
fn a_signal_is_no_stop(way: Way) {
    let mut host = Host::new(way);
    let child = host
        .run("trap 'echo member' USR1; (trap 'echo member' USR1; echo ready; read x <&9; :) & echo ready; while :; do sleep 0.02; done");
    host.until_story(child, "both", |story| {
        story.delivered(Stream::Stdout).matches("ready").count() == 2
    });
    assert_eq!(
        host.reactor.signal_leader(child, Signal::USR1),
        Signalled::Sent
    );
    host.until_said(child, "member");
    assert_eq!(host.reactor.signal(child, Signal::TERM), Signalled::Sent);
    let report = host.until_closed(child).report();
    assert_eq!(
        (report.outcome, report.stop.is_none()),
        (Some(Outcome::Signaled), true)
    );
    assert_eq!(report.exit.and_then(|exit| exit.signal), Some(Signal::TERM));
    assert_eq!(
        (
            host.reactor.signal(child, Signal::TERM),
            host.reactor.signal_leader(child, Signal::TERM)
        ),
        (Signalled::Empty, Signalled::Empty)
    );
    host.finish();
}

/// SPEC 3.3: what survives SIGKILL is `Stuck`, the loop goes on; here a tracer keeps the dead
/// leader from us.
fn what_survives_sigkill_is_told_and_reaped_when_it_does_end(way: Way) {
    way.alone(|| {
        let mut host = Host::new(way);
        let child = host.run("echo ready; exec sleep 60");
        host.until_said(child, "ready");
        let pid = host.reactor.pid(child).expect("a process");
        let tracer = Tracer::seize(pid);
        host.reactor.stop(
            child,
            Some(StopPolicy::default().grace(ms(100)).stuck_after(ms(400))),
        );
        let story = host.until_closed(child);
        let report = story.report();
        assert_eq!(
            (report.exit, report.state()),
            (None, Some(Verdict::Unfinished)),
            "{story:?}"
        );
        assert_eq!(report.outcome, Some(Outcome::Unknown));
        assert!(
            report.stop.as_ref().is_some_and(|stop| stop.escalated),
            "{report:?}"
        );
        assert!(!host.reactor.is_busy());
        // The loop goes on, and so do other children.
        let other = host.run("echo other");
        assert!(host.until_closed(other).report().success());
        tracer.let_go();
        host.until("a leader that is reaped after all", |_| stat(pid).is_none());
        host.finish();
    });
}

/// CASES 31. EPERM is reported with who stays.
fn members_of_another_user_are_told_with_who_stays(way: Way) {
    if !rustix::process::getuid().is_root() {
        eprintln!("not root: a process of another user cannot be made");
        return;
    }
    way.alone(|| {
        let mut host = Host::new(way);
        let mut command = host.telling("echo ready; exec sleep 60");
        command.uid(65_534).gid(65_534);
        let child = host.spawn(&command);
        host.until_said(child, "ready");
        let pid = host.reactor.pid(child).expect("a process");
        sys::become_user(12_345);
        host.reactor.stop(
            child,
            Some(StopPolicy::default().grace(ms(100)).stuck_after(ms(600))),
        );
        let report = host.until_closed(child).report();
        let stop = report.stop.as_ref().expect("a stop");
        assert!(stop.denied, "{report:?}");
        assert_eq!(
            stop.stuck
                .iter()
                .map(|who| (who.pid, who.comm.as_str()))
                .collect::<Vec<_>>(),
            [(pid, "sleep")]
        );
        assert!(
            report.outcome != Some(Outcome::Stopped) && report.exit.is_none(),
            "not success: {report:?}"
        );
        sys::become_root();
        host.mark.kill();
        host.until("a leader that is reaped after all", |_| stat(pid).is_none());
        host.finish();
    });
}

/// SPEC 3.1 and 4.5: the same ladder for work that the leader has left.
#[test]
fn a_stop_of_background_work_uses_the_stops_own_grace() {
    let mut host = Host::with(&Reactor::builder());
    let mut command =
        host.telling("(trap '' TERM; echo ready; exec sleep 60 >/dev/null 2>&1) & exit 0");
    command.background(
        BackgroundPolicy::settle()
            .grace(Duration::ZERO)
            .wait(Wait::For(LONG * 10)),
    );
    let child = host.spawn(&command);
    host.until_story(child, "BackgroundWait", |story| {
        story.background_wait().is_some()
    });
    host.until_said(child, "ready");
    let begun = Instant::now();
    host.reactor.stop(child, grace(200));
    let report = host.until_closed(child).report();
    assert!(begun.elapsed() >= ms(200) && begun.elapsed() < LONG);
    assert_eq!(
        report.background.as_ref().map(|settled| settled.state),
        Some(SettledAs::Terminated)
    );
    assert_eq!(
        report
            .stop
            .as_ref()
            .map(|stop| (stop.reason, stop.escalated)),
        Some((StopReason::Request, true))
    );
    host.finish();
}
