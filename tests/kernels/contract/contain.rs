//! Promises about what sees a generation's processes outside its group.

use super::host::{Host, LONG, out_of};
use super::rig::Rig;
use crate::support;
use lastwords::__internals::kernel::{Found, Notice};
use lastwords::__internals::types::{CollectMode, Member, Probe, Release, Token, TokenKind};
use lastwords::{Containment, Errno, Kernel, MemberWatch, Signal, Signalled, SpawnStep, Stream};
use std::sync::Arc;
use std::time::Duration;

/// Starts a script in a containment.
fn start<R: Rig>(
    host: &mut Host<R>,
    slot: u32,
    script: &str,
    contain: Containment,
) -> (Token, u32) {
    let mut plan = support::plan(script);
    plan.contain = contain;
    let (token, born) = host.born(slot, plan);
    (token, born.pid)
}

/// The containments that can be had here, a cgroup last.
fn contained<R: Rig>(host: &mut Host<R>) -> Vec<Containment> {
    let cgroup = host.rig.cgroup_parent().map(Containment::Cgroup);
    [Containment::Cookie].into_iter().chain(cgroup).collect()
}

fn cgroup<R: Rig>(host: &mut Host<R>) -> Option<Containment> {
    host.rig.cgroup_parent().map(Containment::Cgroup)
}

/// The members that a look finds. Anybody's process that sleeps uninterruptibly makes a look for
/// cookies incomplete.
fn members<R: Rig>(host: &mut Host<R>, token: Token) -> Vec<Member> {
    let (found, _) = host.scan(&[token], &[]);
    let member = |found| match found {
        Found::Member(of, member) if of == token => member,
        found => panic!("not asked for: {found:?}"),
    };
    found.into_iter().map(member).collect()
}

fn names<R: Rig>(host: &mut Host<R>, token: Token) -> Vec<String> {
    let mut names: Vec<String> = members(host, token)
        .into_iter()
        .map(|m| m.who.comm)
        .collect();
    names.sort();
    names
}

/// Looks until these are the members.
#[track_caller]
fn until_members<R: Rig>(host: &mut Host<R>, token: Token, wanted: &[&str]) {
    let end = host.kernel().now().after(LONG);
    loop {
        let found = names(host, token);
        if found == wanted {
            return;
        }
        assert!(host.kernel().now() < end, "{found:?}, not {wanted:?}");
        host.rig.pass(Duration::from_millis(1));
    }
}

/// Nobody is left, by a probe or by a look.
#[track_caller]
fn until_empty<R: Rig>(host: &mut Host<R>, token: Token) {
    let end = host.kernel().now().after(LONG);
    while host.kernel().probe(token) != Probe::Empty && !members(host, token).is_empty() {
        assert!(host.kernel().now() < end, "somebody is left");
        host.rig.pass(Duration::from_millis(1));
    }
}

const TWO: &str = "fork { name \"in\"; sleep 20s }; fork { setsid; name \"out\"; echo stdout \"x\"; sleep 20s }; on USR1 { exit 0 }; sleep 20s";

/// Ends the leader once somebody has left its group.
fn leave_them<R: Rig>(host: &mut Host<R>, token: Token, pid: u32) {
    host.wait_for(Notice::Readable(out_of(token, Stream::Stdout)));
    host.rig.kill(pid, Signal::USR1);
    host.exit(token, CollectMode::Reap);
}

pub(crate) fn whoever_has_left_the_group_is_found_by_what_contains_it_and_signalled<R: Rig>() {
    let mut host = Host::<R>::new();
    let (token, pid) = start(&mut host, 0, TWO, Containment::Group);
    leave_them(&mut host, token, pid);
    until_members(&mut host, token, &["in"]);
    let (_, left) = (
        host.kernel().signal(token, Signal::KILL),
        host.rig.named("out"),
    );
    left.into_iter()
        .for_each(|pid| host.rig.kill(pid, Signal::KILL));
    host.kernel().release(token, Release::Close);

    let all = contained(&mut host);
    for (slot, contain) in (1..).zip(all) {
        let (token, pid) = start(&mut host, slot, TWO, contain.clone());
        leave_them(&mut host, token, pid);
        until_members(&mut host, token, &["in", "out"]);
        assert_ne!(host.kernel().probe(token), Probe::Empty);
        match host.kernel().signal(token, Signal::TERM) {
            Signalled::Sent => until_empty(&mut host, token),
            Signalled::NoWay => {
                let capabilities = host.kernel().capabilities();
                assert!(!capabilities.group_signal && capabilities.members == MemberWatch::Polling);
                for member in members(&mut host, token) {
                    host.rig.kill(member.who.pid, Signal::KILL);
                }
            }
            signalled @ (Signalled::Empty | Signalled::Denied) => {
                panic!("{contain:?}: {signalled:?}")
            }
        }
        host.kernel().release(token, Release::Close);
    }
    assert_eq!(host.rig.cgroups(), 0);
    host.done();
}

pub(crate) fn whoever_is_outside_gets_a_signal_once_it_is_found_and_once_only<R: Rig>() {
    let mut host = Host::<R>::new();
    let asked = "fork { setsid; on TERM { echo stdout \"asked\" }; echo stdout \"up\"; loop { sleep 20s } }; sleep 20s";
    let (token, _) = start(&mut host, 0, asked, Containment::Cookie);
    let stream = out_of(token, Stream::Stdout);
    host.wait_for(Notice::Readable(stream));
    assert_eq!(
        host.kernel().signal_outside(token, Signal::TERM),
        Signalled::Empty
    );
    assert_eq!(members(&mut host, token).len(), 2);
    if host.kernel().capabilities().members == MemberWatch::Pidfd {
        assert_eq!(
            host.kernel().signal_outside(token, Signal::TERM),
            Signalled::Sent
        );
        assert_eq!(
            host.kernel().signal_outside(token, Signal::TERM),
            Signalled::Empty
        );
        assert_eq!(
            host.kernel().signal_outside(token, Signal::CONT),
            Signalled::Sent
        );
        let end = host.kernel().now().after(LONG);
        let mut said = Vec::new();
        while !said.ends_with(b"asked\n") {
            assert!(host.kernel().now() < end, "{said:?}");
            said.extend(host.read(stream, 4096).1);
            host.rig.pass(Duration::from_millis(1));
        }
        host.rig.pass(Duration::from_millis(50));
        said.extend(host.read(stream, 4096).1);
        assert_eq!(String::from_utf8_lossy(&said), "up\nasked\n");
    }
    for member in members(&mut host, token) {
        host.rig.kill(member.who.pid, Signal::KILL);
    }
    host.exit(token, CollectMode::Reap);
    host.kernel().release(token, Release::Close);
    // Nobody else has anybody outside.
    let (token, _) = host.start(1, "sleep 20s");
    assert_eq!(
        host.kernel().signal_outside(token, Signal::TERM),
        Signalled::Empty
    );
    host.end(token);
    host.done();
}

pub(crate) fn a_cookie_is_lost_with_the_environment_unless_it_was_found_before<R: Rig>() {
    let mut host = Host::<R>::new();
    let script = "fork { setsid; name \"before\"; on USR1 { exec clean \"after\" { sleep 20s } }; sleep 20s }; \
                  fork { setsid; exec clean \"never\" { echo stdout \"x\"; sleep 20s } }; \
                  fork { setsid; exec \"dirty\" { sleep 20s } }; on USR1 { exit 0 }; echo stdout \"y\"; sleep 20s";
    let (token, pid) = start(&mut host, 0, script, Containment::Cookie);
    // One line of who has thrown its environment away, and one of the leader, who has made all of
    // them.
    let (end, mut said) = (host.kernel().now().after(LONG), Vec::new());
    while said.len() < 4 {
        assert!(host.kernel().now() < end, "{said:?}");
        host.wait_until(end);
        said.extend(host.read(out_of(token, Stream::Stdout), 4096).1);
    }
    host.rig.kill(pid, Signal::USR1);
    host.exit(token, CollectMode::Reap);
    until_members(&mut host, token, &["before", "dirty"]);
    let before = members(&mut host, token)
        .into_iter()
        .find(|m| m.who.comm == "before")
        .expect("it has just been found")
        .who
        .pid;
    host.rig.kill(before, Signal::USR1);
    until_members(&mut host, token, &["after", "dirty"]);
    for member in members(&mut host, token) {
        host.rig.kill(member.who.pid, Signal::KILL);
    }
    host.rig
        .named("never")
        .into_iter()
        .for_each(|pid| host.rig.kill(pid, Signal::KILL));
    host.kernel().release(token, Release::Close);
    host.done();
}

pub(crate) fn a_cgroup_tells_of_its_end_is_killed_as_a_whole_and_removed<R: Rig>() {
    let mut host = Host::<R>::new();
    let Some(contain) = cgroup(&mut host) else {
        return host.done();
    };
    let script = "ignore TERM; fork { setsid; fork { setsid; ignore HUP; sleep 20s }; sleep 20s }; fork { echo stdout \"x\"; sleep 20s }; \
                  on USR1 { exit 0 }; sleep 20s";
    let (token, pid) = start(&mut host, 0, script, contain);
    assert_eq!(host.rig.cgroups(), 1);
    leave_them(&mut host, token, pid);
    let left = members(&mut host, token);
    assert!(left.len() >= 2, "{left:?}");
    assert_eq!(host.kernel().probe(token), Probe::Alive);
    assert_eq!(host.kernel().signal(token, Signal::KILL), Signalled::Sent);
    let end = host.kernel().now().after(LONG);
    let changed = Notice::CgroupChanged(token.with(TokenKind::Cgroup));
    let mut told = false;
    while !told || host.kernel().probe(token) != Probe::Empty {
        assert!(host.kernel().now() < end, "told of the end: {told}");
        let soon = host
            .kernel()
            .now()
            .after(lastwords::sim::Ns::from_millis(20));
        told |= host.wait_until(soon).contains(&changed);
    }
    assert_eq!(members(&mut host, token), []);
    assert_eq!(host.kernel().signal(token, Signal::KILL), Signalled::Empty);
    host.kernel().release(token, Release::Close);
    assert_eq!(host.rig.cgroups(), 0);
    host.done();
}

pub(crate) fn a_cgroup_of_work_that_goes_on_is_removed_when_that_ends<R: Rig>() {
    let mut host = Host::<R>::new();
    let Some(contain) = cgroup(&mut host) else {
        return host.done();
    };
    for (slot, how) in [
        (0, Release::Linger),
        (1, Release::HandOver),
        (2, Release::Close),
    ] {
        let (token, pid) = start(&mut host, slot, TWO, contain.clone());
        leave_them(&mut host, token, pid);
        until_members(&mut host, token, &["in", "out"]);
        let left = members(&mut host, token);
        drop(host.kernel().release(token, how));
        host.peek_all();
        assert_eq!(host.rig.cgroups(), 1, "{how:?}");
        for member in left {
            host.rig.kill(member.who.pid, Signal::KILL);
        }
        let end = host.kernel().now().after(LONG);
        while host.rig.cgroups() > 0 {
            assert!(host.kernel().now() < end, "{how:?}: it stays");
            let soon = host
                .kernel()
                .now()
                .after(lastwords::sim::Ns::from_millis(20));
            host.wait_until(soon);
        }
    }
    host.done();
}

pub(crate) fn a_cgroup_that_cannot_be_had_is_an_error_and_leaves_nothing<R: Rig>() {
    let mut host = Host::<R>::new();
    // What is made at the first spawn and kept is no leak.
    let (token, _) = host.start(0, "exit 0");
    host.end(token);
    let before = host.rig.count();
    for _ in 0..3 {
        let mut plan = support::plan("exit 0");
        plan.contain = Containment::Cgroup(lastwords::CgroupOptions::default().parent("/tmp"));
        let token = host.token(0);
        let Err(error) = host.kernel().spawn(&Arc::new(plan), token) else {
            panic!("/tmp is no cgroup")
        };
        assert_eq!(
            (error.step(), error.raw_os_error()),
            (SpawnStep::Cgroup, Errno::from_raw(libc::EINVAL).raw())
        );
        assert!(error.to_string().contains("cgroup2"), "{error}");
        assert_eq!(host.rig.count(), before);
    }
    host.done();
}
