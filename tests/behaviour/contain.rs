//! Processes that have left the process group are found by a cookie or a cgroup, waited for, and
//! ended (SPEC 4.6).

use crate::cgroups::cgroups;
use crate::common::gate::{Bell, Gate};
use crate::common::host::Host;
use crate::common::proc::{children, stat};
use crate::common::{LONG, Way, every_way, ms, sys, wait_until};
use lastwords::__internals::testing::isolation;
use lastwords::{
    BackgroundPolicy, CgroupOptions, Command, ContainedBy, Containment, Outcome, Reactor,
    SettledAs, Signal, SpawnStep, StopPolicy, Stream, Verdict, Wait,
};
use std::fs;
use std::time::Duration;

every_way! {
    an_escapee_is_not_seen_by_the_group,
    an_escapee_is_found_by_its_cookie_and_waited_for,
    an_escapee_is_found_by_its_cgroup_and_waited_for,
    escapees_are_ended_after_the_wait,
    a_stop_of_a_running_leader_reaches_those_outside_once,
    an_escapee_that_ignores_term_is_killed,
    a_command_that_leaves_nobody_is_settled_without_a_wait,
    the_cgroup_of_kept_work_stays_until_it_is_empty,
}

fn policy() -> BackgroundPolicy {
    BackgroundPolicy::settle()
        .grace(Duration::ZERO)
        .wait(Wait::For(LONG * 10))
}

fn contained(
    host: &Host,
    script: &str,
    containment: Containment,
    policy: BackgroundPolicy,
) -> Command {
    let mut command = host.telling(script);
    command.background(policy).containment(containment);
    command
}

/// The containments that find escapees; the cgroup only where one can be made.
fn both() -> Vec<Containment> {
    let cgroup = cgroups().map(|_| Containment::Cgroup(CgroupOptions::default()));
    [Containment::Cookie].into_iter().chain(cgroup).collect()
}

const ESCAPE: &str = "setsid sh -c 'echo $$ >&8; read x <&9' </dev/null >/dev/null 2>&1 & exit 0";

/// CASES 34: the documented limit of the process group.
fn an_escapee_is_not_seen_by_the_group(way: Way) {
    let mut host = Host::new(way);
    // The child has left the group before the leader ends.
    let script =
        "setsid sh -c 'echo $$ >&8; read x <&9' </dev/null >/dev/null 2>&1 & read x <&7; exit 0";
    let mut command = contained(&host, script, Containment::Group, policy());
    let (gate, out) = (Gate::at(9, &mut command), Gate::at(7, &mut command));
    let bell = Bell::at(8, &mut command);
    let child = host.spawn(&command);
    let pid: u32 = bell.wait().trim().parse().expect("a number");
    out.open();
    let story = host.until_closed(child);
    assert_eq!(
        story.settled().map(|s| (s.state, s.contained_by)),
        Some((SettledAs::None, ContainedBy::Group))
    );
    assert!(stat(pid).is_some());
    gate.open();
    host.finish();
}

fn waits_for_an_escapee(way: Way, containment: Containment, by: ContainedBy) {
    let mut host = Host::new(way);
    let mut command = contained(&host, ESCAPE, containment, policy());
    let gate = Gate::at(9, &mut command);
    let bell = Bell::at(8, &mut command);
    let child = host.spawn(&command);
    let pid: u32 = bell.wait().trim().parse().expect("a number");
    let story = host.until_story(child, "BackgroundWait", |story| {
        story.background_wait().is_some()
    });
    assert_eq!(
        story.drain().map(|drain| drain.verdict),
        Some(Verdict::Drained)
    );
    host.idle(ms(50));
    assert!(host.story(child).settled().is_none());
    gate.open();
    let story = host.until_closed(child);
    let settled = story.settled().expect("settled");
    assert_eq!(
        (
            settled.state,
            settled.state.complete(),
            settled.contained_by
        ),
        (SettledAs::Finished, Some(true), by)
    );
    assert!(
        settled.processes.iter().any(|process| process.pid == pid),
        "{settled:?}"
    );
    host.finish();
}

/// CASES 34.
fn an_escapee_is_found_by_its_cookie_and_waited_for(way: Way) {
    waits_for_an_escapee(way, Containment::Cookie, ContainedBy::Cookie);
}

/// CASES 34. The cgroup is gone afterwards.
fn an_escapee_is_found_by_its_cgroup_and_waited_for(way: Way) {
    let Some(parent) = cgroups() else { return };
    let own = parent.join(format!(
        "lastwords-test-own-{}-{:?}",
        std::process::id(),
        way.mode
    ));
    fs::create_dir(&own).expect("a cgroup");
    waits_for_an_escapee(
        way,
        Containment::Cgroup(CgroupOptions::default().parent(&own)),
        ContainedBy::Cgroup,
    );
    fs::remove_dir(&own).expect("nothing is left in it");
}

fn escapees_are_ended_after_the_wait(way: Way) {
    for containment in both() {
        let mut host = Host::new(way);
        let script = "setsid sleep 60 </dev/null >/dev/null 2>&1 & (setsid sh -c 'sleep 61 & sleep 62' >/dev/null 2>&1 &) ; exit 0";
        let mut command = contained(
            &host,
            script,
            containment,
            policy().wait(Wait::For(ms(400))).terminate_grace(LONG * 10),
        );
        command
            .stdout(lastwords::Output::Null)
            .stderr(lastwords::Output::Null);
        let child = host.spawn(&command);
        let story = host.until_closed(child);
        assert_eq!(
            story.settled().map(|settled| settled.state),
            Some(SettledAs::Terminated),
            "{story:?}"
        );
        assert!(
            story
                .report()
                .stop
                .as_ref()
                .is_some_and(|stop| !stop.escalated && stop.stuck.is_empty()),
            "{story:?}"
        );
        assert_eq!(story.report().outcome, Some(Outcome::Succeeded));
        assert!(host.mark.alive().is_empty(), "{:?}", host.mark.alive());
        host.finish();
    }
}

/// Members of the group get the signal at once, those outside when they are found, and nobody
/// twice.
fn a_stop_of_a_running_leader_reaches_those_outside_once(way: Way) {
    for containment in both() {
        let mut host = Host::new(way);
        let asked = |name: &str| {
            format!("trap 'echo {name}; [ -n \"$seen\" ] && echo twice; seen=1' TERM; echo up")
        };
        let spin = "n=0; while [ $n -lt 60 ]; do sleep 0.02; n=$((n + 1)); [ -n \"$seen\" ] && [ $n -lt 40 ] && n=40; done";
        let script = format!(
            "export IN='{}' SPIN='{spin}'; ",
            asked("outside").replace('\'', "'\\''")
        ) + "setsid sh -c 'eval \"$IN\"; eval \"$SPIN\"' & "
            + &format!("{}; eval \"$SPIN\"", asked("leader"));
        let mut command = contained(&host, &script, containment, policy());
        command.stderr(lastwords::Output::Null);
        let child = host.spawn(&command);
        host.until_story(child, "both", |story| {
            story.delivered(Stream::Stdout).matches("up").count() == 2
        });
        host.reactor
            .stop(child, Some(StopPolicy::default().grace(LONG * 10)));
        let said = host.until_closed(child).delivered(Stream::Stdout);
        assert!(
            said.contains("outside") && said.contains("leader"),
            "{said}"
        );
        assert!(!said.contains("twice"), "{said}");
        host.finish();
    }
}

fn an_escapee_that_ignores_term_is_killed(way: Way) {
    for containment in both() {
        let mut host = Host::new(way);
        let script = "setsid sh -c 'trap \"\" TERM; echo up; exec sleep 60' & wait";
        let command = contained(&host, script, containment, policy());
        let child = host.spawn(&command);
        host.until_said(child, "up");
        host.reactor
            .stop(child, Some(StopPolicy::default().grace(ms(200))));
        let story = host.until_closed(child);
        let settled = story.settled().expect("settled");
        assert_eq!(settled.state, SettledAs::Terminated, "{story:?}");
        assert_eq!(
            settled
                .processes
                .iter()
                .map(|s| s.comm.as_str())
                .collect::<Vec<_>>(),
            ["sleep"]
        );
        assert!(
            story
                .report()
                .stop
                .as_ref()
                .is_some_and(|stop| stop.escalated && stop.stuck.is_empty())
        );
        assert!(host.mark.alive().is_empty());
        host.finish();
    }
}

/// CASES 25.
fn a_command_that_leaves_nobody_is_settled_without_a_wait(way: Way) {
    for containment in both() {
        let mut host = Host::new(way);
        let command = contained(
            &host,
            "sleep 0.01; echo hi",
            containment,
            BackgroundPolicy::settle().grace(LONG * 10),
        );
        let children: Vec<_> = (0..20).map(|_| host.spawn(&command)).collect();
        for child in children {
            let story = host.until_closed(child);
            assert_eq!(
                story.settled().map(|settled| settled.state),
                Some(SettledAs::None)
            );
            assert!(story.report().success());
        }
        host.finish();
    }
}

fn the_cgroup_of_kept_work_stays_until_it_is_empty(way: Way) {
    let Some(parent) = cgroups() else { return };
    let own = parent.join(format!(
        "lastwords-test-kept-{}-{:?}",
        std::process::id(),
        way.mode
    ));
    fs::create_dir(&own).expect("a cgroup");
    let mut host = Host::new(way);
    let containment = Containment::Cgroup(CgroupOptions::default().parent(&own));
    let mut command = contained(
        &host,
        ESCAPE,
        containment,
        BackgroundPolicy::report_only().grace(ms(20)),
    );
    let gate = Gate::at(9, &mut command);
    let bell = Bell::at(8, &mut command);
    let child = host.spawn(&command);
    bell.wait();
    let story = host.until_closed(child);
    assert_eq!(
        story.settled().map(|settled| settled.state),
        Some(SettledAs::Reported)
    );
    let inner = || {
        fs::read_dir(&own)
            .expect("there")
            .filter_map(Result::ok)
            .filter(|e| e.path().is_dir())
            .map(|e| e.path())
            .collect::<Vec<_>>()
    };
    assert_eq!(inner().len(), 1);
    gate.open();
    host.mark.wait_gone();
    host.until("an empty cgroup is removed", |_| inner().is_empty());
    fs::remove_dir(&own).expect("empty");
    host.finish();
}

/// The error names the step, the directory and what is missing. Nothing was started.
#[test]
fn a_cgroup_that_cannot_be_had_is_an_error_that_says_what_is_missing() {
    let mut reactor = Reactor::new().expect("a loop");
    for (parent, errno, word) in [
        ("/nonexistent", libc::ENOENT, "no such cgroup"),
        ("/tmp", libc::EINVAL, "cgroup2"),
    ] {
        let mut command = Command::new("true");
        command.containment(Containment::Cgroup(CgroupOptions::default().parent(parent)));
        let error = reactor.spawn(&command).expect_err("refused");
        assert_eq!(
            (error.step(), error.raw_os_error(), error.path()),
            (SpawnStep::Cgroup, errno, Some(parent.as_ref()))
        );
        assert!(error.to_string().contains(word), "{error}");
    }
    assert!(!reactor.is_busy());
}

/// CASES 90: what leaves the cgroup is not seen, as documented.
#[test]
fn a_process_that_leaves_its_cgroup_is_not_seen() {
    let (true, Some(parent)) = (rustix::process::getuid().is_root(), cgroups()) else {
        eprintln!("not root, or no cgroup2: no process can leave its cgroup here");
        return;
    };
    let mut host = Host::with(&Reactor::builder());
    let script = format!(
        "setsid sh -c 'echo $$ >{}/cgroup.procs; echo $$ >&8; read x <&9' \
         </dev/null >/dev/null 2>&1 & read x <&7; exit 0",
        parent.display()
    );
    let containment = Containment::Cgroup(CgroupOptions::default());
    let mut command = contained(&host, &script, containment, policy());
    let (gate, out) = (Gate::at(9, &mut command), Gate::at(7, &mut command));
    let bell = Bell::at(8, &mut command);
    let child = host.spawn(&command);
    let pid: u32 = bell.wait().trim().parse().expect("a number");
    out.open();
    let story = host.until_closed(child);
    assert_eq!(
        story.settled().map(|s| (s.state, s.contained_by)),
        Some((SettledAs::None, ContainedBy::Cgroup))
    );
    assert!(stat(pid).is_some());
    gate.open();
    host.finish();
}

/// Another user than root is told how to have a cgroup delegated.
#[test]
fn a_cgroup_that_may_not_be_written_is_told_with_how_to_delegate() {
    let test = "a_cgroup_that_may_not_be_written_is_told_with_how_to_delegate";
    if !rustix::process::getuid().is_root() || cgroups().is_none() {
        eprintln!("not root, or no cgroup2: another user's refusal cannot be tested here");
        return;
    }
    isolation::alone(test, module_path!(), || {
        let mut reactor = Reactor::new().expect("a loop");
        sys::become_user(12_345);
        let mut command = Command::new("true");
        command.containment(Containment::Cgroup(CgroupOptions::default()));
        let error = reactor.spawn(&command).expect_err("refused");
        assert_eq!(
            (error.step(), error.raw_os_error()),
            (SpawnStep::Cgroup, libc::EACCES)
        );
        assert!(error.to_string().contains("Delegate=yes"), "{error}");
        sys::become_root();
    });
}

/// A child that clone3(2) does not place into the cgroup enters it before exec.
#[test]
fn a_child_that_is_made_by_vfork_enters_its_cgroup_before_exec() {
    if cgroups().is_none() {
        return;
    }
    for vfork in [false, true] {
        let mut reactor = Reactor::builder().vfork(vfork).build().expect("a loop");
        let mut command = Command::new("cat");
        command
            .arg("/proc/self/cgroup")
            .containment(Containment::Cgroup(CgroupOptions::default()));
        let finished = reactor.run(&command).expect("it runs");
        let said = finished
            .stdout
            .map(|kept| kept.to_string_lossy())
            .unwrap_or_default();
        assert!(
            said.lines()
                .any(|line| line.starts_with("0::") && line.contains("/lastwords-")),
            "{said}"
        );
        assert!(finished.report.success());
    }
}

/// The id is in the cookie's name, so a nested run does not overwrite the outer one's cookie.
#[test]
fn cookies_of_nested_runs_stand_side_by_side() {
    let mut reactor = Reactor::new().expect("a loop");
    let mut command = Command::shell("env | grep -c '^LASTWORDS_COOKIE_[0-9a-f]*=1$'");
    command
        .env("LASTWORDS_COOKIE_0123456789abcdef00000001", "1")
        .containment(Containment::Cookie);
    let finished = reactor.run(&command).expect("it runs");
    assert_eq!(
        finished
            .stdout
            .map(|kept| kept.to_string_lossy())
            .as_deref(),
        Some("2\n")
    );
}

/// SPEC 2.8: the host becomes a subreaper only on request, and then reaps what it inherits.
#[test]
fn a_host_that_asks_is_subreaper_and_members_that_it_inherits_are_reaped() {
    let test = "a_host_that_asks_is_subreaper_and_members_that_it_inherits_are_reaped";
    isolation::alone(test, module_path!(), || {
        drop(Reactor::new().expect("a loop"));
        assert!(!sys::is_subreaper());
        let mut host = Host::with(Reactor::builder().subreaper(true));
        assert!(sys::is_subreaper());
        let mut command = contained(&host, ESCAPE, Containment::Cookie, policy());
        let gate = Gate::at(9, &mut command);
        let bell = Bell::at(8, &mut command);
        let child = host.spawn(&command);
        let pid: u32 = bell.wait().trim().parse().expect("a number");
        host.until_story(child, "BackgroundWait", |story| {
            story.background_wait().is_some()
        });
        assert_eq!(stat(pid).map(|stat| stat.parent), Some(std::process::id()));
        // A child that the host has started itself is not reaped.
        let mut own = std::process::Command::new("true").spawn().expect("true");
        wait_until("a zombie", || {
            stat(own.id()).is_some_and(|stat| stat.state == 'Z')
        });
        gate.open();
        let story = host.until_closed(child);
        assert_eq!(
            story.settled().map(|settled| settled.state),
            Some(SettledAs::Finished)
        );
        assert!(own.wait().expect("the host's own to wait for").success());
        assert!(children().is_empty(), "{:?}", children());
        host.finish();
    });
}

/// The parent proves what a replaced environment hides.
#[test]
fn a_process_without_its_environment_is_found_under_a_member() {
    let mut host = Host::with(&Reactor::builder());
    let script = "setsid sh -c 'env -i sh -c \"echo \\$\\$ >&8; read x <&9\"; exit 0' \
                  </dev/null >/dev/null 2>&1 & exit 0";
    let mut command = contained(&host, script, Containment::Cookie, policy());
    let gate = Gate::at(9, &mut command);
    let bell = Bell::at(8, &mut command);
    let child = host.spawn(&command);
    let pid: u32 = bell.wait().trim().parse().expect("a number");
    host.until_story(child, "BackgroundWait", |story| {
        story.background_wait().is_some()
    });
    gate.open();
    let story = host.until_closed(child);
    let settled = story.settled().expect("settled");
    assert!(
        settled.processes.iter().any(|process| process.pid == pid),
        "{settled:?}"
    );
    host.finish();
}

/// In a host without other children an orphan counts even without its cookie, and is reaped.
#[test]
fn an_orphan_of_the_only_child_counts_without_its_cookie_and_is_reaped() {
    let test = "an_orphan_of_the_only_child_counts_without_its_cookie_and_is_reaped";
    isolation::alone(test, module_path!(), || {
        let mut host = Host::with(Reactor::builder().adopt_orphans(true));
        let script = "setsid env -i sh -c 'echo $$ >&8; (true &); (true &); read x <&9' </dev/null >/dev/null 2>&1 & exit 4";
        let mut command = contained(&host, script, Containment::Cookie, policy());
        let gate = Gate::at(9, &mut command);
        let bell = Bell::at(8, &mut command);
        let child = host.spawn(&command);
        let pid: u32 = bell.wait().trim().parse().expect("a number");
        host.until_story(child, "BackgroundWait", |story| {
            story.background_wait().is_some()
        });
        let zombies = || {
            children()
                .into_iter()
                .filter(|stat| stat.state == 'Z')
                .count()
        };
        host.until("no zombies", |_| zombies() == 0);
        gate.open();
        let story = host.until_closed(child);
        let settled = story.settled().expect("settled");
        assert_eq!(settled.state, SettledAs::Finished);
        assert!(
            settled.processes.iter().any(|process| process.pid == pid),
            "{settled:?}"
        );
        assert_eq!(
            story.report().exit.and_then(|exit| exit.code),
            Some(4),
            "nobody else has taken its status"
        );
        host.until("nobody", |_| children().is_empty());
        host.finish();
    });
}

/// CASES 93: escapees end with a loop that is dropped, and no cgroup stays.
#[test]
fn a_dropped_loop_leaves_neither_escapees_nor_cgroups() {
    let test = "a_dropped_loop_leaves_neither_escapees_nor_cgroups";
    isolation::alone(test, module_path!(), || {
        let own = cgroups().map(|parent| {
            let own = parent.join(format!("lastwords-test-drop-{}", std::process::id()));
            fs::create_dir(&own).expect("a cgroup");
            own
        });
        let cgroup = own
            .iter()
            .map(|own| Containment::Cgroup(CgroupOptions::default().parent(own)));
        for containment in [Containment::Cookie].into_iter().chain(cgroup) {
            for _ in 0..10 {
                let mark = crate::common::mark::Mark::new();
                let mut reactor = Reactor::builder().drop_bound(LONG).build().expect("a loop");
                // One leader still runs, one has ended.
                for end in ["wait", "exit 0"] {
                    let script = format!(
                        "setsid sh -c 'sleep 60 & sleep 60' </dev/null >/dev/null 2>&1 & {end}"
                    );
                    let mut command = Command::shell(script);
                    command
                        .containment(containment.clone())
                        .background(policy());
                    mark.put_on(&mut command);
                    reactor.spawn(&command).expect("a process");
                }
                mark.wait_named("sleep", 4);
                drop(reactor);
                wait_until("nobody is left", || mark.alive().is_empty());
                let left = own
                    .iter()
                    .flat_map(|own| fs::read_dir(own).expect("a cgroup"));
                let left: Vec<_> = left
                    .flatten()
                    .filter(|entry| entry.path().is_dir())
                    .collect();
                assert!(left.is_empty(), "{left:?}");
            }
        }
        if let Some(own) = own {
            fs::remove_dir(own).expect("nothing is left in it");
        }
    });
}

/// CASES 26: a process id that was seen once is not enough to signal its present owner.
#[test]
fn a_signal_after_the_end_of_an_escapee_reaches_nobody() {
    let mut host = Host::with(&Reactor::builder());
    let mut command = contained(&host, ESCAPE, Containment::Cookie, policy());
    let gate = Gate::at(9, &mut command);
    let bell = Bell::at(8, &mut command);
    let child = host.spawn(&command);
    bell.wait();
    host.until_story(child, "BackgroundWait", |story| {
        story.background_wait().is_some()
    });
    gate.open();
    host.mark.wait_gone();
    assert_eq!(
        host.reactor.signal(child, Signal::TERM),
        lastwords::Signalled::Empty
    );
    host.until_closed(child);
    host.finish();
}
