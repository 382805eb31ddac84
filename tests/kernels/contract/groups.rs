//! Promises about the ends of leaders, and about what is left of their groups.

use super::host::{Host, LONG, exit_of, out_of};
use super::rig::Rig;
use lastwords::__internals::kernel::{Collected, Found, Notice};
use lastwords::__internals::types::{CollectMode, Member, Probe, Release, Token, TokenKind};
use lastwords::sim::Ns;
use lastwords::{Errno, ExitSource, Kernel, MemberWatch, Signal, Signalled, StatusSource, Stream};
use std::time::Duration;

/// The members that a scan finds, twice in a row the same ones.
fn members<R: Rig>(host: &mut Host<R>, token: Token) -> Vec<Member> {
    let (mut found, mut complete) = host.scan(&[token], &[]);
    if found.is_empty() && !complete {
        // Nobody, though the number is in use: believed when the next look meets no other zombies.
        (found, complete) = host.scan(&[token], &[]);
    }
    assert!(complete);
    let member = |found| match found {
        Found::Member(of, member) if of == token => member,
        found => panic!("not asked for: {found:?}"),
    };
    found.into_iter().map(member).collect()
}

pub(crate) fn the_group_exists_when_spawn_returns<R: Rig>() {
    let mut host = Host::<R>::new();
    for slot in 0..50 {
        let (token, _) = host.start(slot, "ignore KILL; sleep 20s");
        assert_eq!(host.kernel().signal(token, Signal::KILL), Signalled::Sent);
        assert_eq!(
            host.exit(token, CollectMode::Reap).exit.signal,
            Some(Signal::KILL)
        );
        host.kernel().release(token, Release::Close);
    }
    host.done();
}

pub(crate) fn an_exit_notice_for_nothing_is_answered_not_yet_and_does_not_spin<R: Rig>() {
    let mut host = Host::<R>::new();
    let (token, pid) = host.start(0, "sleep 20s");
    host.wait_for(Notice::Outcome(token));
    host.rig.spurious_exit();
    let end = host.kernel().now().after(Ns::from_millis(200));
    let mut waits = 0;
    while host.kernel().now() < end {
        for notice in host.wait_until(end) {
            if notice == Notice::Exit(exit_of(token)) {
                assert_eq!(
                    host.kernel().collect(token, CollectMode::Reap),
                    Collected::NotYet
                );
            }
        }
        waits += 1;
    }
    assert!(waits < 50, "{waits} waits for nothing");
    assert_eq!(
        host.kernel().collect(token, CollectMode::KeepZombie),
        Collected::NotYet
    );
    host.rig.kill(pid, Signal::TERM);
    assert_eq!(
        host.exit(token, CollectMode::Reap).exit.signal,
        Some(Signal::TERM)
    );
    host.kernel().release(token, Release::Close);
    host.done();
}

pub(crate) fn a_stopped_child_has_not_ended<R: Rig>() {
    let mut host = Host::<R>::new();
    let (token, _) = host.start(0, "echo stdout \"x\"; stop; exit 6");
    host.wait_for(Notice::Readable(out_of(token, Stream::Stdout)));
    host.rig.pass(Duration::from_millis(50));
    for notice in host.peek_all() {
        if notice == Notice::Exit(exit_of(token)) {
            assert_eq!(
                host.kernel().collect(token, CollectMode::Reap),
                Collected::NotYet
            );
        }
    }
    assert_eq!(
        host.kernel().collect(token, CollectMode::Reap),
        Collected::NotYet
    );
    assert_eq!(host.kernel().signal(token, Signal::CONT), Signalled::Sent);
    assert_eq!(host.exit(token, CollectMode::Reap).exit.code, Some(6));
    host.kernel().release(token, Release::Close);
    host.done();
}

pub(crate) fn a_stolen_child_is_ended_or_lost<R: Rig>() {
    let mut host = Host::<R>::new();
    for slot in 0..5 {
        let (token, pid) = host.start(slot, "exit 9");
        host.pass_until("the child ends", |rig| !rig.is_alive(pid));
        host.rig.steal(pid);
        let collected = loop {
            host.wait_for(Notice::Exit(exit_of(token)));
            match host.kernel().collect(token, CollectMode::Reap) {
                Collected::NotYet => {}
                collected @ (Collected::Ended(_) | Collected::Lost) => break collected,
            }
        };
        match collected {
            Collected::Ended(info) => {
                assert_eq!(
                    (info.exit.code, info.exit.source, info.usage),
                    (Some(9), StatusSource::PidfdInfo, None)
                );
            }
            Collected::Lost => assert!(
                !host.kernel().capabilities().exit_info
                    || host.kernel().capabilities().exit == ExitSource::Sigchld
            ),
            Collected::NotYet => unreachable!(),
        }
        // Its number is anybody's now.
        assert_ne!(host.kernel().signal(token, Signal::TERM), Signalled::Sent);
        assert_ne!(
            host.kernel().signal_leader(token, Signal::TERM),
            Signalled::Sent
        );
        host.kernel().release(token, Release::Close);
    }
    host.done();
}

pub(crate) fn a_probe_knows_empty_from_zombies_from_a_kept_leader<R: Rig>() {
    let mut host = Host::<R>::new();
    let (token, _) = host.start(0, "exit 0");
    host.exit(token, CollectMode::KeepZombie);
    assert_eq!(host.kernel().probe(token), Probe::Unknown);
    assert_eq!(members(&mut host, token), []);
    assert!(
        matches!(host.kernel().collect(token, CollectMode::Reap), Collected::Ended(i) if i.exit.success())
    );
    assert_eq!(host.kernel().probe(token), Probe::Empty);
    assert_eq!(host.kernel().signal(token, Signal::KILL), Signalled::Empty);
    host.kernel().release(token, Release::Close);

    // A zombie in the group whose parent is in a session of its own.
    let (token, _) = host.start(
        1,
        "fork { fork { sleep 20ms }; setsid; sleep 2s }; sleep 100ms; exit 0",
    );
    assert_eq!(host.kernel().probe(token), Probe::Alive);
    host.exit(token, CollectMode::Reap);
    assert_eq!(host.kernel().probe(token), Probe::Alive);
    assert_eq!(members(&mut host, token), []);
    host.kernel().release(token, Release::Close);
    host.done();
}

pub(crate) fn a_signal_never_leaves_the_group_when_numbers_repeat<R: Rig>() {
    let mut host = Host::<R>::new();
    let mut tried = false;
    for slot in 0..20 {
        let (token, pid) = host.start(slot, "exit 0");
        host.exit(token, CollectMode::Reap);
        if let Some(stranger) = host.rig.stranger(pid) {
            assert_eq!(stranger, pid);
            tried = true;
            for signal in [Signal::TERM, Signal::KILL] {
                let signalled = host.kernel().signal(token, signal);
                assert!(
                    matches!(signalled, Signalled::Empty | Signalled::NoWay),
                    "{signalled:?}"
                );
                assert_ne!(host.kernel().signal_leader(token, signal), Signalled::Sent);
            }
            assert_eq!(members(&mut host, token), []);
            host.kernel().release(token, Release::Close);
            host.rig.pass(Duration::from_millis(50));
            assert!(host.rig.is_alive(stranger));
            host.rig.kill(stranger, Signal::KILL);
            break;
        }
        host.kernel().release(token, Release::Close);
    }
    assert!(tried || R::IS_REAL, "no number could be made to repeat");
    if !tried {
        eprintln!(
            "not tried: process numbers cannot be chosen here (/proc/sys/kernel/ns_last_pid)"
        );
    }
    host.done();
}

pub(crate) fn a_group_is_signalled_after_its_leader_was_reaped<R: Rig>() {
    let mut host = Host::<R>::new();
    let (token, _) = host.start(
        0,
        "fork { name \"left\"; ignore TERM; sleep 20s }; sleep 50ms; exit 0",
    );
    host.exit(token, CollectMode::Reap);
    let left = members(&mut host, token);
    assert_eq!(
        left.iter().map(|m| m.who.comm.as_str()).collect::<Vec<_>>(),
        ["left"]
    );
    let pid = left[0].who.pid;
    assert_eq!(
        host.kernel().signal_leader(token, Signal::KILL),
        Signalled::Empty
    );
    match host.kernel().signal(token, Signal::TERM) {
        Signalled::Sent => {
            host.rig.pass(Duration::from_millis(50));
            assert!(host.rig.is_alive(pid));
            assert_eq!(host.kernel().signal(token, Signal::KILL), Signalled::Sent);
        }
        Signalled::NoWay => {
            let capabilities = host.kernel().capabilities();
            assert!(!capabilities.group_signal && capabilities.members == MemberWatch::Polling);
            host.rig.kill(pid, Signal::KILL);
        }
        signalled @ (Signalled::Empty | Signalled::Denied) => panic!("{signalled:?}"),
    }
    host.pass_until("the member dies", |rig| !rig.is_alive(pid));
    let end = host.kernel().now().after(LONG);
    while host.kernel().probe(token) != Probe::Empty {
        assert!(
            host.kernel().now() < end,
            "whoever adopts orphans does not reap"
        );
        host.rig.pass(Duration::from_millis(1));
    }
    assert_eq!(host.kernel().signal(token, Signal::KILL), Signalled::Empty);
    host.kernel().release(token, Release::Close);
    host.done();
}

pub(crate) fn a_scan_finds_members_and_holders_and_no_zombies<R: Rig>() {
    let mut host = Host::<R>::new();
    let script = "fork { name \"both\"; sleep 20s }; fork { name \"err\"; close stdout; sleep 20s };\
                  fork { name \"none\"; close stdout; close stderr; sleep 20s };\
                  fork { name \"away\"; setsid; sleep 1s }; sleep 100ms; exit 0";
    let (token, _) = host.start(0, script);
    let (other, other_pid) = host.start(1, "name \"other\"; sleep 20s");
    host.exit(token, CollectMode::Reap);
    let (found, complete) = host.scan(&[token, other], &[token, other]);
    let mut names: Vec<String> = Vec::new();
    for found in found {
        names.push(match found {
            Found::Member(of, member) if of == token => {
                assert_eq!(member.who.state, 'S', "{member:?}");
                format!("member {}", member.who.comm)
            }
            Found::Member(_, member) => {
                assert_eq!(member.who.pid, other_pid);
                "member other".to_owned()
            }
            Found::Holder(of, holder) => {
                assert_eq!(of, token, "a leader is no holder: {holder:?}");
                format!("holder {} {:?}", holder.comm, holder.streams)
            }
        });
    }
    names.sort();
    let expected = [
        "holder away [Stdout, Stderr]",
        "holder both [Stdout, Stderr]",
        "holder err [Stderr]",
        "member both",
        "member err",
        "member none",
        "member other",
    ];
    assert_eq!(names, expected);
    assert!(complete);
    // A stream that is closed is not asked about any more.
    host.kernel().close(out_of(token, Stream::Stdout));
    let (found, _) = host.scan(&[], &[token]);
    assert!(
        found
            .iter()
            .all(|f| matches!(f, Found::Holder(_, h) if h.streams == [Stream::Stderr])),
        "{found:?}"
    );
    assert_eq!(found.len(), 3);
    host.end(other);
    for member in members(&mut host, token) {
        host.rig.kill(member.who.pid, Signal::KILL);
    }
    host.kernel().release(token, Release::Close);
    host.done();
}

pub(crate) fn the_end_of_a_watched_member_is_noticed<R: Rig>() {
    let mut host = Host::<R>::new();
    let (token, _) = host.start(
        0,
        "fork { sleep 20s }; fork { sleep 20s }; sleep 50ms; exit 0",
    );
    host.exit(token, CollectMode::Reap);
    let left = members(&mut host, token);
    assert_eq!(left.len(), 2);
    let places = [
        token.with(TokenKind::Member(0)),
        token.with(TokenKind::Member(63)),
    ];
    if host.kernel().capabilities().members == MemberWatch::Polling {
        assert!(host.kernel().watch(&left[0], places[0]).is_err());
    } else {
        for (member, place) in left.iter().zip(places) {
            assert_eq!(host.kernel().watch(member, place), Ok(()));
        }
        host.rig.kill(left[1].who.pid, Signal::KILL);
        let seen = host.wait_for(Notice::MemberGone(places[1]));
        assert!(!seen.contains(&Notice::MemberGone(places[0])));
        // A watch that is closed says nothing any more.
        host.kernel().close(places[0]);
        host.rig.kill(left[0].who.pid, Signal::KILL);
        host.pass_until("the member dies", |rig| !rig.is_alive(left[0].who.pid));
        host.rig.pass(Duration::from_millis(20));
        assert!(!host.peek_all().contains(&Notice::MemberGone(places[0])));
        // The same number, another start: somebody else.
        let mut other = left[0].clone();
        other.start += 1_000_000;
        assert_eq!(
            host.kernel().watch(&other, places[0]),
            Err(Errno::from_raw(libc::ESRCH))
        );
        assert_eq!(
            host.kernel().watch(&left[0], places[0]),
            Err(Errno::from_raw(libc::ESRCH))
        );
    }
    for member in left {
        host.rig.kill(member.who.pid, Signal::KILL);
    }
    host.kernel().release(token, Release::Close);
    host.done();
}

pub(crate) fn what_lingers_is_read_and_what_is_handed_over_is_left_alone<R: Rig>() {
    let mut host = Host::<R>::new();
    // What is made at the first spawn and kept is no leak.
    let (token, _) = host.start(0, "exit 0");
    host.end(token);
    let before = host.rig.count();
    // More than a pipe holds, and a SIGPIPE would end it before it tells so.
    let script = "fork { write stdout 300000; sleep 20ms; write stdout 300000; ignore TERM; sleep 20s }; sleep 10ms; exit 0";
    let (token, _) = host.start(0, script);
    host.exit(token, CollectMode::Reap);
    let left = members(&mut host, token);
    host.kernel().release(token, Release::Linger);
    let pid = left[0].who.pid;
    let end = host.kernel().now().after(Ns::from_millis(300));
    while host.kernel().now() < end {
        for notice in host.wait_until(end) {
            assert_eq!(notice, Notice::Woken, "nobody wants to know");
        }
    }
    assert!(host.rig.is_alive(pid));
    host.rig.kill(pid, Signal::TERM);
    host.rig.pass(Duration::from_millis(50));
    assert!(host.rig.is_alive(pid), "it came as far as to ignore TERM");
    host.rig.kill(pid, Signal::KILL);
    host.pass_until("the member dies", |rig| !rig.is_alive(pid));
    let end = host.kernel().now().after(LONG);
    while host.rig.count() != before {
        assert!(host.kernel().now() < end, "{}", host.rig.count());
        let soon = host.kernel().now().after(Ns::from_millis(10));
        host.wait_until(soon);
    }

    let (token, pid) = host.start(1, "read all; sleep 20s");
    let released = host.kernel().release(token, Release::HandOver);
    assert_eq!(released.pid, pid);
    assert!(released.stdout.is_some() && released.stderr.is_some() && released.stdin.is_none());
    host.rig.pass(Duration::from_millis(50));
    assert!(host.rig.is_alive(pid));
    host.rig.kill(pid, Signal::KILL);
    host.pass_until("the leader dies", |rig| !rig.is_alive(pid));
    host.rig.steal(pid);
    host.done();
}
