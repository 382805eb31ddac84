//! Masks, exec, containment, orphans, faults of scripts and the story of a run.

use crate::command::{CgroupOptions, Containment};
use crate::kernel::Orphans;
use crate::kernel::sim::tests::*;
use crate::kernel::sim::{Call, faults};

fn start_in(sim: &mut Sim, slot: u32, script: &str, contain: Containment) -> u32 {
    let plan = Plan {
        contain,
        ..plan(script)
    };
    sim.spawn(&Arc::new(plan), token(slot)).expect("spawn").pid
}

fn cgroup() -> Containment {
    Containment::Cgroup(CgroupOptions::default())
}

/// Lets everything happen that is to happen within this time.
fn pass(sim: &mut Sim, millis: u64) {
    sim.advance(Ns::from_millis(millis));
}

#[test]
fn a_blocked_signal_comes_when_it_is_not_blocked_any_more() {
    let mut sim = Sim::new(SimOptions::default());
    let pid = start(
        &mut sim,
        0,
        "block TERM; block KILL; sleep 50ms; echo stdout \"a\"; unblock TERM; echo stdout \"b\"",
    );
    pass(&mut sim, 10);
    sim.world_mut().kill(pid, Signal::TERM);
    pass(&mut sim, 10);
    assert!(!sim.world().process(pid).expect("there").is_zombie());
    assert_eq!(exit(&mut sim, 0).signal, Some(Signal::TERM));
    assert_eq!(read(&mut sim, 0, Stream::Stdout).1, b"a\n");
    // SIGKILL cannot be blocked; a mask is inherited, and goes through exec.
    let pid = start(
        &mut sim,
        1,
        "block KILL; block TERM; fork { exec \"other\" { sleep forever } }; sleep forever",
    );
    pass(&mut sim, 10);
    assert_eq!(sim.signal(token(1), Signal::TERM), Signalled::Sent);
    pass(&mut sim, 1);
    assert_eq!(
        sim.world()
            .processes()
            .filter(|p| p.pgid == pid && !p.is_zombie())
            .count(),
        2
    );
    sim.world_mut().kill(pid, Signal::KILL);
    assert_eq!(exit(&mut sim, 1).signal, Some(Signal::KILL));
}

#[test]
fn exec_keeps_what_is_ignored_and_open_and_forgets_what_is_handled() {
    let mut sim = Sim::new(SimOptions::default());
    let pid = start(
        &mut sim,
        0,
        "ignore HUP; on TERM { exit 3 }; exec \"other\" { echo stdout \"there\"; sleep forever }; exit 9",
    );
    pass(&mut sim, 10);
    sim.world_mut().kill(pid, Signal::HUP);
    pass(&mut sim, 1);
    let process = sim.world().process(pid).expect("there");
    assert_eq!(
        (process.comm.as_str(), process.is_zombie()),
        ("other", false)
    );
    sim.world_mut().kill(pid, Signal::TERM);
    assert_eq!(exit(&mut sim, 0).signal, Some(Signal::TERM));
    assert_eq!(read(&mut sim, 0, Stream::Stdout).1, b"there\n");
}

#[test]
fn what_a_cgroup_tells_within_ten_milliseconds_is_told_together() {
    let mut sim = Sim::new(SimOptions::default());
    let begin = sim.now();
    start_in(&mut sim, 0, "exit 0", cgroup());
    let changed = Notice::CgroupChanged(token(0).with(TokenKind::Cgroup));
    assert!(wait_for(&mut sim, changed).contains(&changed));
    assert!(
        sim.now() < begin.after(Ns::from_millis(1)),
        "a birth is told at once"
    );
    exit(&mut sim, 0);
    assert_eq!(
        sim.probe(token(0)),
        Probe::Empty,
        "a plain read is up to date"
    );
    wait_for(&mut sim, changed);
    let waited = sim.now().since(begin);
    assert!(
        (Ns::from_millis(10)..Ns::from_millis(11)).contains(&waited),
        "{waited:?}"
    );
}

#[test]
fn a_cgroup_is_removed_when_nobody_is_left_and_holds_whoever_tries_to_leave() {
    let mut sim = Sim::new(SimOptions::default());
    start_in(
        &mut sim,
        0,
        "fork { setsid; fork { setsid; user 7; exec clean \"deep\" { sleep forever } } }; sleep 1ms",
        cgroup(),
    );
    exit(&mut sim, 0);
    pass(&mut sim, 5);
    let (found, complete) = members(&mut sim, 0);
    assert_eq!(
        (
            found
                .iter()
                .map(|m| m.who.comm.as_str())
                .collect::<Vec<_>>(),
            complete
        ),
        (vec!["deep"], true)
    );
    // Another user's, which no signal reaches; `cgroup.kill` asks nobody.
    assert_eq!(sim.signal(token(0), Signal::TERM), Signalled::Denied);
    sim.release(token(0), Release::Close);
    let paths: Vec<(String, bool)> = sim
        .world()
        .cgroups()
        .map(|(path, alive)| (path.to_owned(), alive))
        .collect();
    assert!(
        matches!(&paths[..], [(path, true)] if path.starts_with("/sys/fs/cgroup/lastwords-")),
        "{paths:?}"
    );
    sim.world_mut().kill(found[0].who.pid, Signal::KILL);
    assert_eq!(sim.world().cgroups().count(), 0);

    start_in(
        &mut sim,
        1,
        "fork { setsid; user 7; sleep forever }; sleep forever",
        cgroup(),
    );
    pass(&mut sim, 5);
    assert_eq!(sim.signal(token(1), Signal::KILL), Signalled::Sent);
    exit(&mut sim, 1);
    assert_eq!(sim.probe(token(1)), Probe::Empty);
    sim.release(token(1), Release::Close);
    assert_eq!(
        (sim.world().cgroups().count(), sim.violations().len()),
        (0, 0)
    );
}

#[test]
fn a_cgroup_that_cannot_be_had_says_what_the_real_kernel_says() {
    let mut sim = Sim::new(SimOptions::default());
    for (fault, words) in [
        ("spawn cgroup EACCES", "Delegate=yes"),
        ("spawn cgroup EPERM", "Delegate=yes"),
        ("spawn cgroup ENOENT", "no such cgroup"),
        ("spawn cgroup EAGAIN", "cgroup.max.descendants"),
    ] {
        sim.inject_text(fault).expect("a fault");
        // It waits for a command that asks for one.
        start(&mut sim, 0, "exit 0");
        exit(&mut sim, 0);
        sim.release(token(0), Release::Close);
        let plan = Plan {
            contain: cgroup(),
            ..plan("exit 0")
        };
        let error = sim.spawn(&Arc::new(plan), token(0)).expect_err(fault);
        assert_eq!(
            (error.step(), error.path()),
            (SpawnStep::Cgroup, Some("/sys/fs/cgroup".as_ref())),
            "{fault}"
        );
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(
            (
                sim.generations(),
                sim.world().cgroups().count(),
                sim.world().processes().count()
            ),
            (0, 0, 0)
        );
    }
}

/// CASES 87.
#[test]
fn a_cookie_that_could_not_be_looked_for_is_refused_at_the_start() {
    let mut sim = Sim::new(SimOptions::default());
    for (fault, words) in [
        ("spawn cookie ENOENT", "not mounted"),
        ("spawn cookie EXDEV", "another PID namespace"),
    ] {
        sim.inject_text(fault).expect("a fault");
        start_in(&mut sim, 0, "exit 0", Containment::Group);
        exit(&mut sim, 0);
        sim.release(token(0), Release::Close);
        let plan = Plan {
            contain: Containment::Cookie,
            ..plan("exit 0")
        };
        let error = sim.spawn(&Arc::new(plan), token(0)).expect_err(fault);
        assert_eq!(
            (error.step(), error.path()),
            (SpawnStep::Cookie, Some("/proc".as_ref()))
        );
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(sim.generations(), 0);
    }
}

#[test]
fn a_look_for_a_cookie_knows_what_it_cannot_see() {
    let mut sim = Sim::new(SimOptions::default());
    let script = "fork { setsid; name \"user\"; user 7; sleep forever }; fork { setsid; name \"thread\"; outlive 1s }; \
                  fork { setsid; name \"seen\"; sleep forever }; sleep 1ms";
    start_in(&mut sim, 0, script, Containment::Cookie);
    exit(&mut sim, 0);
    pass(&mut sim, 5);
    let (found, complete) = members(&mut sim, 0);
    assert_eq!(
        (
            found
                .iter()
                .map(|m| m.who.comm.as_str())
                .collect::<Vec<_>>(),
            complete
        ),
        (vec!["seen"], true)
    );
    // Whose environment cannot be read for now may be anybody's, but not if it was found before.
    sim.world_mut().freeze(found[0].who.pid);
    let (again, complete) = members(&mut sim, 0);
    assert_eq!(
        (
            again
                .iter()
                .map(|m| (m.who.pid, m.who.state))
                .collect::<Vec<_>>(),
            complete
        ),
        (vec![(found[0].who.pid, 'D')], true)
    );
    start(&mut sim, 1, "unkillable");
    pass(&mut sim, 5);
    assert!(!members(&mut sim, 0).1);
}

#[test]
fn a_host_that_inherits_reaps_members_and_one_that_adopts_reaps_everybody() {
    for orphans in [Orphans::Leave, Orphans::Inherit, Orphans::Adopt] {
        let mut sim = Sim::new(SimOptions {
            orphans,
            ..SimOptions::default()
        });
        let script = "fork { fork { sleep 50ms }; sleep 20ms }; fork { setsid; exec clean \"bare\" { sleep 200ms } }; sleep 1ms; exit 4";
        start_in(&mut sim, 0, script, Containment::Cookie);
        assert_eq!(exit(&mut sim, 0).code, Some(4));
        let expected = if orphans == Orphans::Adopt { 3 } else { 2 };
        assert_eq!(members(&mut sim, 0).0.len(), expected, "{orphans:?}");
        let parent = if orphans == Orphans::Leave {
            1
        } else {
            super::super::process::HOST
        };
        let bare = sim
            .world()
            .processes()
            .find(|p| p.comm == "bare")
            .map(|p| p.ppid);
        assert_eq!(bare, Some(parent), "{orphans:?}");
        pass(&mut sim, 100);
        let zombies = |sim: &Sim| sim.world().processes().filter(|p| p.is_zombie()).count();
        let _ = members(&mut sim, 0);
        assert_eq!(zombies(&sim), 0, "{orphans:?}");
        // What goes on after its generation is reaped when it ends.
        sim.release(token(0), Release::Close);
        pass(&mut sim, 300);
        wait(&mut sim, Until::Peek);
        let left = if orphans == Orphans::Inherit { 1 } else { 0 };
        assert_eq!(
            zombies(&sim),
            left,
            "{orphans:?}: whoever was no member stays a zombie of its subreaper"
        );
        assert!(sim.violations().is_empty());
    }
}

/// CASES 49.
#[test]
fn children_that_the_host_had_before_and_their_orphans_are_nobodys() {
    let mut sim = Sim::new(SimOptions {
        orphans: Orphans::Adopt,
        ..SimOptions::default()
    });
    // Its child becomes the host's orphan after the leader was started.
    let text = "fork { sleep 5ms; fork { sleep forever }; exit 0 }; sleep forever";
    let script = Script::parse(text).expect("a script");
    sim.world_mut().sibling(&script);
    start_in(&mut sim, 0, "sleep 20ms", Containment::Cookie);
    exit(&mut sim, 0);
    pass(&mut sim, 10);
    assert_eq!(members(&mut sim, 0), (vec![], true));
    assert_eq!(sim.signal(token(0), Signal::KILL), Signalled::Empty);
    assert!(sim.violations().is_empty());
    assert_eq!(
        sim.world().processes().filter(|p| !p.is_zombie()).count(),
        2
    );
}

/// CASES 49.
#[test]
fn an_orphan_without_a_cookie_counts_if_it_was_seen_under_a_member() {
    let mut sim = Sim::new(SimOptions {
        orphans: Orphans::Adopt,
        ..SimOptions::default()
    });
    sim.world_mut()
        .sibling(&Script::parse("sleep forever").expect("a script"));
    let text = "fork { setsid; fork { setsid; exec clean \"bare\" { sleep forever } }; sleep 50ms }; sleep 1ms";
    start_in(&mut sim, 0, text, Containment::Cookie);
    exit(&mut sim, 0);
    pass(&mut sim, 10);
    assert_eq!(members(&mut sim, 0).0.len(), 2);
    pass(&mut sim, 100);
    let left = members(&mut sim, 0).0;
    let names: Vec<&str> = left.iter().map(|m| m.who.comm.as_str()).collect();
    assert_eq!(names, ["bare"]);
    assert_eq!(sim.signal(token(0), Signal::KILL), Signalled::Sent);
    assert!(sim.violations().is_empty());
}

#[test]
fn a_fault_in_a_script_is_met_by_the_next_such_call_for_its_command() {
    let mut sim = Sim::new(SimOptions::default());
    start(&mut sim, 0, "echo stdout \"fine\"; sleep 1s");
    start(
        &mut sim,
        1,
        "fault read stdout EIO; fault wait spurious exit; echo stdout \"lost\"; sleep 1s",
    );
    pass(&mut sim, 10);
    assert_eq!(read(&mut sim, 0, Stream::Stdout).1, b"fine\n");
    assert_eq!(
        read(&mut sim, 1, Stream::Stdout).0,
        ReadResult::Failed(Errno::from_raw(libc::EIO))
    );
    assert_eq!(read(&mut sim, 1, Stream::Stdout).1, b"lost\n");
    wait_for(&mut sim, Notice::Exit(token(1).with(TokenKind::Exit)));
    assert_eq!(sim.collect(token(1), CollectMode::Reap), Collected::NotYet);
    let met: Vec<String> = sim
        .faults_met()
        .iter()
        .map(|(kind, times)| format!("{kind}: {times}"))
        .collect();
    assert_eq!(met, ["wait spurious exit: 1", "read EIO: 1"]);
}

#[test]
fn late_and_merged_notices_are_late_and_come_together() {
    let mut sim = Sim::new(SimOptions::default());
    start(
        &mut sim,
        0,
        "sleep 10ms; echo stdout \"a\"; sleep 1ms; echo stderr \"b\"; sleep 1s",
    );
    wait_for(&mut sim, Notice::Outcome(token(0)));
    sim.inject_text("wait merged 5ms").expect("a fault");
    let all = wait(&mut sim, Until::Forever);
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(sim.now() >= Ns::from_millis(15));
    sim.inject_at(Call::Wait, Fault::Late(Ns::from_millis(700)));
    // Descriptors are closed first.
    wait_for(
        &mut sim,
        Notice::Readable(token(0).with(TokenKind::Output(Stream::Stdout))),
    );
    assert!(sim.now() >= Ns::from_millis(1_700), "{:?}", sim.now());
}

#[test]
fn a_story_has_the_seed_the_scripts_the_faults_and_the_log() {
    let mut sim = Sim::new(SimOptions::seeded(4711));
    sim.inject_text("read short 1").expect("a fault");
    sim.inject_text("watch EMFILE").expect("a fault");
    start(&mut sim, 0, "echo stdout \"x\"; exit 3");
    exit(&mut sim, 0);
    let _ = read(&mut sim, 0, Stream::Stdout);
    let story = sim.story();
    for words in [
        "seed 4711",
        "plays: echo stdout \"x\"; exit 3",
        "went wrong 1 time: read short",
        "watch EMFILE",
        "Executed(1000)",
    ] {
        assert!(story.contains(words), "{words}: {story}");
    }
    assert_eq!(
        faults::parse("watch EMFILE"),
        Ok((Call::Watch, Fault::Watch(Errno::from_raw(libc::EMFILE))))
    );
}
