//! Background work: processes that outlive their leader are detected, given a grace, waited for,
//! and ended, kept or reported.

use crate::common::gate::{Bell, Gate};
use crate::common::host::Host;
use crate::common::proc::{stat, wait_comm, wait_zombie};
use crate::common::{LONG, Way, every_way, ms, sys, wait_until};
use lastwords::__internals::testing::isolation;
use lastwords::__internals::testing::oracle::{History, Observed};
use lastwords::{
    BackgroundPolicy, Command, ContainedBy, Generation, Outcome, SettledAs, Signal, StopPolicy,
    StopReason, Stream, Verdict, Wait,
};
use std::time::{Duration, Instant};

every_way! {
    work_that_gave_its_output_away_is_listed_waited_for_and_terminated,
    work_that_finishes_within_the_wait_has_finished,
    teardown_within_the_grace_is_no_background_work,
    the_wait_ends_by_notice_for_more_members_than_are_watched,
    work_that_survivors_start_meanwhile_is_waited_for,
    the_grace_holds_for_work_that_is_only_reported,
    orphans_that_are_kept_live_on_after_the_wait,
    where_nobody_looks_nothing_is_known,
    work_that_ignores_term_is_killed_after_the_terminate_grace,
    a_terminate_grace_of_zero_kills_at_once,
    the_verdict_never_waits_for_background_work,
    end_of_file_and_background_work_say_nothing_about_each_other,
    a_zombie_is_no_background_work,
    a_process_whose_main_thread_has_ended_is_background_work,
    a_stop_during_the_grace_ends_it,
    a_stop_during_the_wait_ends_it,
    a_kill_during_the_wait_ends_it_at_once,
    a_failed_leader_and_its_work_are_told_apart,
    two_generations_do_not_see_each_others_work,
    work_outside_the_group_is_not_seen_by_the_plain_group,
}

/// The default policy with a short grace.
fn policy(grace: u64) -> BackgroundPolicy {
    BackgroundPolicy::settle().grace(ms(grace))
}

fn settled(story: &History) -> (SettledAs, Option<bool>) {
    let settled = story.settled().expect("settled");
    assert_eq!(settled.contained_by, ContainedBy::Group);
    (settled.state, settled.state.complete())
}

/// Spawns the command and turns until the wait for its background work begins.
fn waiting(host: &mut Host, command: &Command) -> Generation {
    let child = host.spawn(command);
    host.until_story(child, "BackgroundWait", |story| {
        story.background_wait().is_some()
    });
    child
}

/// CASES 35: the pipe is drained at once, the work is listed, and the policy decides.
fn work_that_gave_its_output_away_is_listed_waited_for_and_terminated(way: Way) {
    let mut host = Host::new(way);
    let mut command =
        host.telling("nohup sleep 60 >/dev/null 2>&1 & echo started; read x <&9; exit 0");
    let gate = Gate::at(9, &mut command);
    command.background(policy(100).wait(Wait::For(ms(200))));
    let child = host.spawn(&command);
    // The survivor closes its output as soon as it is scheduled.
    host.mark.wait_named("sleep", 1);
    gate.open();
    host.until_story(child, "BackgroundWait", |story| {
        story.background_wait().is_some()
    });
    let story = host.story(child);
    assert_eq!(
        story.turn_of(|seen| matches!(seen, Observed::Exited(_))),
        story.turn_of(|seen| matches!(seen, Observed::Drained(..)))
    );
    assert_eq!(
        story.drain().map(|drain| drain.verdict),
        Some(Verdict::Drained)
    );
    assert_eq!(story.delivered(Stream::Stdout), "started\n");
    let survivors = story.background_wait().expect("a wait");
    let sleeps = host.mark.named("sleep");
    assert_eq!(
        survivors
            .iter()
            .map(|who| (who.pid, who.comm.as_str()))
            .collect::<Vec<_>>(),
        [(sleeps[0].pid, "sleep")]
    );
    assert!(
        survivors[0].state.is_ascii_alphabetic() && survivors[0].age < LONG,
        "{survivors:?}"
    );
    let story = host.until_closed(child);
    assert_eq!(settled(story), (SettledAs::Terminated, Some(false)));
    let (report, told) = (story.report(), story.settled().expect("settled"));
    assert!(
        told.waited >= ms(300),
        "grace and wait, from the exit: {told:?}"
    );
    assert_eq!(
        told.processes.iter().map(|who| who.pid).collect::<Vec<_>>(),
        [sleeps[0].pid]
    );
    let stop = report.stop.as_ref().expect("the ladder");
    assert_eq!(
        (stop.reason, stop.signal, stop.escalated),
        (StopReason::Background, Signal::TERM, false)
    );
    assert_eq!(report.outcome, Some(Outcome::Succeeded), "the leader's own");
    assert!(host.mark.alive().is_empty());
    host.finish();
}

fn work_that_finishes_within_the_wait_has_finished(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.telling("(read x <&9) >/dev/null 2>&1 & exit 0");
    let gate = Gate::at(9, &mut command);
    command.background(policy(50));
    let child = waiting(&mut host, &command);
    assert!(host.story(child).settled().is_none());
    host.idle(ms(50));
    gate.open();
    let story = host.until_closed(child);
    assert_eq!(settled(story), (SettledAs::Finished, Some(true)));
    assert!(
        story
            .settled()
            .is_some_and(|settled| settled.waited >= ms(100) && settled.waited < LONG)
    );
    assert!(story.report().stop.is_none());
    host.finish();
}

/// SPEC 4.2: work that ends within the grace makes no event, and the grace is not waited out.
fn teardown_within_the_grace_is_no_background_work(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.telling("(read x <&9) >/dev/null 2>&1 & exit 0");
    let gate = Gate::at(9, &mut command);
    command.background(BackgroundPolicy::settle().grace(LONG * 10));
    let child = host.spawn(&command);
    host.until_drained(child);
    host.idle(ms(50));
    assert!(host.story(child).settled().is_none());
    gate.open();
    let story = host.until_closed(child);
    assert_eq!(settled(story), (SettledAs::None, Some(true)));
    host.finish();
}

/// SPEC 4.3: members beyond the number that can be watched are still waited for, members that come
/// later too.
fn the_wait_ends_by_notice_for_more_members_than_are_watched(way: Way) {
    let mut host = Host::new(way);
    let script =
        "i=0; while [ $i -lt 100 ]; do (read x <&9) >/dev/null 2>&1 & i=$((i+1)); done; exit 0";
    let mut command = host.shell(script);
    let gate = Gate::at(9, &mut command);
    command.background(policy(50));
    let child = waiting(&mut host, &command);
    assert_eq!(
        host.story(child).background_wait().map(|who| who.len()),
        Some(100)
    );
    // The scan takes some turns. Afterwards only the children cause events.
    host.idle(ms(100));
    let before = host.reactor.stats().turns;
    host.idle(ms(300));
    let turns = host.reactor.stats().turns - before;
    assert!(turns < 60, "{turns} turns with nobody coming or going");
    gate.open();
    let story = host.until_closed(child);
    assert_eq!(settled(story), (SettledAs::Finished, Some(true)));
    host.finish();
}

/// SPEC 4.3: processes forked during the scan are found by the next one.
fn work_that_survivors_start_meanwhile_is_waited_for(way: Way) {
    let mut host = Host::new(way);
    let mut command =
        host.shell("(read x <&9; (echo >&8; read y <&7) & exit 0) >/dev/null 2>&1 & exit 0");
    let (first, bell, second) = (
        Gate::at(9, &mut command),
        Bell::at(8, &mut command),
        Gate::at(7, &mut command),
    );
    command.background(policy(30));
    let child = waiting(&mut host, &command);
    let survivor = host.story(child).background_wait().expect("a wait")[0].pid;
    first.open();
    host.until("the newcomer, alone", |_| {
        bell.rang() && stat(survivor).is_none_or(|stat| stat.state == 'Z')
    });
    host.idle(ms(150));
    assert!(
        host.story(child).settled().is_none(),
        "the newcomer is waited for: {:?}",
        host.story(child)
    );
    second.open();
    let story = host.until_closed(child);
    assert_eq!(settled(story), (SettledAs::Finished, Some(true)));
    host.finish();
}

/// SPEC 4.2: the grace holds for every policy but `disabled`.
fn the_grace_holds_for_work_that_is_only_reported(way: Way) {
    let mut host = Host::new(way);
    for grace in [0, 250] {
        let mut command = host.shell("sleep 60 >/dev/null 2>&1 & echo >&8; read x <&9");
        let (bell, gate) = (Bell::at(8, &mut command), Gate::at(9, &mut command));
        command.background(BackgroundPolicy::report_only().grace(ms(grace)));
        let child = host.spawn(&command);
        bell.wait();
        let sleep = host.mark.wait_named("sleep", 1)[0].pid;
        gate.open();
        let story = host.until_closed(child);
        assert_eq!(settled(story), (SettledAs::Reported, Some(false)));
        let told = story.settled().expect("settled");
        assert!(told.waited >= ms(grace), "{told:?}");
        assert_eq!(
            told.processes
                .iter()
                .map(|who| (who.pid, who.comm.as_str()))
                .collect::<Vec<_>>(),
            [(sleep, "sleep")]
        );
        assert!(story.background_wait().is_none() && story.report().stop.is_none());
        assert_eq!(host.mark.alive().len(), 1, "it is left running");
        host.mark.kill();
    }
    // Work that ends within the grace is not reported.
    let mut command = host.shell("sleep 0.05 >/dev/null 2>&1 & exit 0");
    command.background(BackgroundPolicy::report_only().grace(LONG));
    let child = host.spawn(&command);
    assert_eq!(
        settled(host.until_closed(child)),
        (SettledAs::None, Some(true))
    );
    host.finish();
}

fn orphans_that_are_kept_live_on_after_the_wait(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.shell("sleep 60 >/dev/null 2>&1 & exit 0");
    command.background(policy(50).wait(Wait::For(ms(100))).keep_orphans(true));
    let child = waiting(&mut host, &command);
    let story = host.until_closed(child);
    assert_eq!(settled(story), (SettledAs::Kept, Some(false)));
    assert!(
        story
            .settled()
            .is_some_and(|settled| settled.waited >= ms(150))
    );
    assert!(story.report().stop.is_none());
    host.idle(ms(50));
    assert_eq!(host.mark.alive().len(), 1, "it is left running");
    host.mark.kill();
    host.finish();
}

fn where_nobody_looks_nothing_is_known(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.shell("sleep 60 >/dev/null 2>&1 & exit 0");
    command.background(BackgroundPolicy::disabled());
    let child = host.spawn(&command);
    let story = host.until_closed(child);
    assert_eq!(settled(story), (SettledAs::Disabled, None));
    assert_eq!(host.mark.alive().len(), 1, "it is left running");
    host.mark.kill();
    host.finish();
}

fn work_that_ignores_term_is_killed_after_the_terminate_grace(way: Way) {
    let mut host = Host::new(way);
    let mut command =
        host.shell("(trap '' TERM; echo >&8; exec sleep 60) >/dev/null 2>&1 & read x <&9");
    let (bell, gate) = (Bell::at(8, &mut command), Gate::at(9, &mut command));
    command.background(
        policy(0)
            .wait(Wait::For(Duration::ZERO))
            .terminate_grace(ms(200)),
    );
    let child = host.spawn(&command);
    bell.wait();
    gate.open();
    let story = host.until_closed(child);
    assert_eq!(settled(story), (SettledAs::Terminated, Some(false)));
    assert!(
        story
            .settled()
            .is_some_and(|settled| settled.waited >= ms(200))
    );
    let stop = story.report().stop.as_ref().expect("the ladder");
    assert_eq!(
        (stop.reason, stop.escalated, stop.stuck.len()),
        (StopReason::Background, true, 0)
    );
    assert!(host.mark.alive().is_empty());
    host.finish();
}

fn a_terminate_grace_of_zero_kills_at_once(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.shell("(trap '' TERM; exec sleep 60) >/dev/null 2>&1 & exit 0");
    command.background(
        policy(0)
            .wait(Wait::For(Duration::ZERO))
            .terminate_grace(Duration::ZERO),
    );
    let child = host.spawn(&command);
    let story = host.until_closed(child);
    assert_eq!(settled(story).0, SettledAs::Terminated);
    assert!(
        story
            .report()
            .stop
            .as_ref()
            .is_some_and(|stop| stop.escalated)
    );
    host.finish();
}

/// SPEC 1.3: `Drained` does not wait for settling.
fn the_verdict_never_waits_for_background_work(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.shell("echo why >&2; (read x <&9) >/dev/null 2>&1 & exit 3");
    let gate = Gate::at(9, &mut command);
    command.background(policy(20_000));
    let child = host.spawn(&command);
    let story = host.until_drained(child);
    assert_eq!(story.last_words(), Some(vec!["why".to_owned()]));
    assert!(story.settled().is_none());
    gate.open();
    assert_eq!(settled(host.until_closed(child)).0, SettledAs::None);
    host.finish();
}

/// SPEC 4.1: end of file and an empty group are independent of each other.
fn end_of_file_and_background_work_say_nothing_about_each_other(way: Way) {
    let mut host = Host::new(way);
    // The group is empty, but a process outside it holds the pipe.
    let mut command = host.shell("setsid sh -c 'echo >&8; read x <&7' & read x <&9");
    let (bell, out, gate) = (
        Bell::at(8, &mut command),
        Gate::at(7, &mut command),
        Gate::at(9, &mut command),
    );
    let outside = host.spawn(&command);
    bell.wait();
    gate.open();
    host.until_exited(outside);
    host.idle(ms(100));
    assert!(host.story(outside).drain().is_none(), "the pipe is held");
    out.open();
    let story = host.until_closed(outside);
    assert_eq!(
        (settled(story).0, story.drain().map(|drain| drain.verdict)),
        (SettledAs::None, Some(Verdict::Drained))
    );

    // The pipe has ended, but a member of the group lives.
    let mut command = host.shell("(read x <&9) >/dev/null 2>&1 & exit 0");
    let gate = Gate::at(9, &mut command);
    command.background(policy(0));
    let inside = waiting(&mut host, &command);
    assert_eq!(
        host.until_drained(inside)
            .drain()
            .map(|drain| drain.verdict),
        Some(Verdict::Drained)
    );
    gate.open();
    assert_eq!(settled(host.until_closed(inside)).0, SettledAs::Finished);
    host.finish();
}

/// SPEC 4.1: a zombie whose parent is outside the group and does not reap it.
fn a_zombie_is_no_background_work(way: Way) {
    let mut host = Host::new(way);
    let script = "use POSIX; if (!fork) { my $k = fork; exit 0 if !$k; POSIX::setsid(); open(my $b, '>&=', 8); print $b \"$k\\n\"; \
                  close $b; sleep 60 } open(my $g, '<&=', 9); <$g>; exit 0";
    let mut command = Command::new("perl");
    host.mark.put_on(&mut command);
    command
        .args(["-e", script])
        .stdout(lastwords::Output::Null)
        .stderr(lastwords::Output::Null);
    let (bell, gate) = (Bell::at(8, &mut command), Gate::at(9, &mut command));
    command.background(BackgroundPolicy::settle().grace(LONG * 10));
    let child = host.spawn(&command);
    let zombie: u32 = bell.wait().trim().parse().expect("a process id");
    wait_zombie(zombie);
    assert_eq!(stat(zombie).map(|stat| stat.group), host.reactor.pid(child));
    gate.open();
    let story = host.until_closed(child);
    assert_eq!(settled(story), (SettledAs::None, Some(true)));
    assert!(
        stat(zombie).is_some_and(|stat| stat.state == 'Z'),
        "it was there all the time"
    );
    host.mark.kill();
    host.finish();
}

/// A helper process of the test below; as a test it does nothing.
#[test]
fn a_process_whose_main_thread_has_ended() {
    if !isolation::is_alone("a_process_whose_main_thread_has_ended", module_path!()) {
        return;
    }
    sys::end_main_thread();
    let _ = std::fs::read("/proc/thread-self/fd/9");
    std::process::exit(0);
}

/// SPEC 4.1: a process in state Z with more than one thread is alive.
fn a_process_whose_main_thread_has_ended_is_background_work(way: Way) {
    let mut host = Host::new(way);
    let exe = std::env::current_exe().expect("a name of this program");
    let part = isolation::harness_name("a_process_whose_main_thread_has_ended", module_path!());
    let script = "\"$0\" --exact \"$1\" --nocapture --test-threads=1 >/dev/null 2>&1 & echo $! >&8; read x <&7";
    let mut command = Command::new("sh");
    host.mark.put_on(&mut command);
    command
        .args(["-c", script])
        .arg(exe)
        .arg(&part)
        .env(isolation::ISOLATED_TEST, part);
    let (bell, end, leader) = (
        Bell::at(8, &mut command),
        Gate::at(9, &mut command),
        Gate::at(7, &mut command),
    );
    command.background(policy(100));
    let child = host.spawn(&command);
    let member: u32 = bell.wait().trim().parse().expect("a process id");
    wait_until("a main thread that has ended", || {
        stat(member).is_some_and(|stat| stat.state == 'Z')
    });
    leader.open();
    host.until_story(child, "BackgroundWait", |story| {
        story.background_wait().is_some()
    });
    let survivors = host.story(child).background_wait().expect("a wait");
    assert_eq!(
        survivors.iter().map(|who| who.pid).collect::<Vec<_>>(),
        [member]
    );
    host.idle(ms(150));
    assert!(
        host.story(child).settled().is_none(),
        "it lives: {:?}",
        host.story(child)
    );
    end.open();
    assert_eq!(
        settled(host.until_closed(child)),
        (SettledAs::Finished, Some(true))
    );
    host.finish();
}

/// SPEC 4.5 and 4.4: the work could have gone on, so the stop has cut it off. CASES 94.
fn a_stop_during_the_grace_ends_it(way: Way) {
    let mut host = Host::new(way);
    // The leader ends when its child has executed `sleep`, so that the list says so.
    let mut command = host.shell(
        "sleep 60 >/dev/null 2>&1 & while ! grep -q sleep /proc/$!/comm; do :; done; exit 0",
    );
    command.background(BackgroundPolicy::settle().grace(LONG * 10));
    let child = host.spawn(&command);
    host.until_drained(child);
    let begun = Instant::now();
    host.reactor
        .stop(child, Some(StopPolicy::default().grace(LONG)));
    let story = host.until_closed(child);
    assert!(begun.elapsed() < LONG);
    assert_eq!(settled(story), (SettledAs::Terminated, Some(false)));
    let listed = &story
        .report()
        .background
        .as_ref()
        .expect("settled")
        .processes;
    assert_eq!(
        listed.iter().map(|p| p.comm.as_str()).collect::<Vec<_>>(),
        ["sleep"]
    );
    assert_eq!(story.report().outcome, Some(Outcome::Succeeded));
    assert_eq!(
        story.report().stop.as_ref().map(|stop| stop.escalated),
        Some(false)
    );
    assert!(host.mark.alive().is_empty());
    host.finish();
}

/// SPEC 4.5.
fn a_stop_during_the_wait_ends_it(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.shell("sleep 60 >/dev/null 2>&1 & exit 0");
    command.background(policy(30));
    let child = waiting(&mut host, &command);
    host.reactor
        .stop(child, Some(StopPolicy::default().grace(LONG)));
    let story = host.until_closed(child);
    assert_eq!(settled(story), (SettledAs::Terminated, Some(false)));
    assert_eq!(
        story
            .report()
            .stop
            .as_ref()
            .map(|stop| (stop.reason, stop.escalated)),
        Some((StopReason::Request, false))
    );
    assert!(host.mark.alive().is_empty());
    host.finish();
}

/// SPEC 4.5.
fn a_kill_during_the_wait_ends_it_at_once(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.shell("(trap '' TERM; exec sleep 60) >/dev/null 2>&1 & exit 0");
    command.background(policy(30));
    let child = waiting(&mut host, &command);
    host.reactor.kill(child);
    let story = host.until_closed(child);
    assert_eq!(settled(story), (SettledAs::Terminated, Some(false)));
    assert!(host.mark.alive().is_empty());
    host.finish();
}

fn a_failed_leader_and_its_work_are_told_apart(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.shell("sleep 60 >/dev/null 2>&1 & echo why >&2; exit 9");
    command.background(policy(0).wait(Wait::For(Duration::ZERO)));
    let child = host.spawn(&command);
    let story = host.until_closed(child);
    assert_eq!(settled(story).0, SettledAs::Terminated);
    let report = story.report();
    assert_eq!(
        (report.outcome, report.exit.and_then(|exit| exit.code)),
        (Some(Outcome::Failed), Some(9))
    );
    assert_eq!(report.stderr_tail, ["why"]);
    host.finish();
}

/// One scan of /proc serves every generation that waits, each with its own members.
fn two_generations_do_not_see_each_others_work(way: Way) {
    let mut host = Host::new(way);
    let start = |host: &mut Host, name: &str| {
        let mut command = host.shell(&format!(
            "exec 3>&1; (exec -a x true) 2>/dev/null; {name} 60 >/dev/null 2>&1 3>&- & exit 0"
        ));
        command.background(policy(100));
        host.spawn(&command)
    };
    let (one, two) = (start(&mut host, "sleep"), start(&mut host, "env sleep"));
    host.until("both wait", |host| {
        [one, two]
            .iter()
            .all(|child| host.story(*child).background_wait().is_some())
    });
    for child in [one, two] {
        let survivors = host.story(child).background_wait().expect("a wait");
        let group = host.story(child).pid().expect("a leader");
        assert_eq!(survivors.len(), 1, "{survivors:?}");
        assert_eq!(stat(survivors[0].pid).map(|stat| stat.group), Some(group));
        wait_comm(survivors[0].pid, "sleep");
    }
    host.reactor.kill(one);
    assert_eq!(settled(host.until_closed(one)).0, SettledAs::Terminated);
    assert!(host.story(two).settled().is_none());
    host.reactor.kill(two);
    assert_eq!(settled(host.until_closed(two)).0, SettledAs::Terminated);
    host.finish();
}

/// CASES 34: the report says that only the group was watched: `contained_by` is `group`.
fn work_outside_the_group_is_not_seen_by_the_plain_group(way: Way) {
    let mut host = Host::new(way);
    let mut command =
        host.shell("setsid sh -c 'echo >&8; exec sleep 60' >/dev/null 2>&1 & read x <&9; exit 0");
    let (bell, gate) = (Bell::at(8, &mut command), Gate::at(9, &mut command));
    let child = host.spawn(&command);
    bell.wait();
    gate.open();
    let story = host.until_closed(child);
    assert_eq!(settled(story), (SettledAs::None, Some(true)));
    assert_eq!(host.mark.alive().len(), 1);
    host.mark.kill();
    host.finish();
}
