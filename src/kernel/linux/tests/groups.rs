//! Process groups: whether a member is left, and signals that reach the members and nobody else.

use crate::kernel::linux::tests::*;

/// Starts a leader that ends at once and leaves a member of its group that runs `body` with its
/// streams closed.
fn left_behind(rig: &mut Rig, body: &str) -> (Token, u32) {
    let token = rig.start(0, sh(&format!("sh -c '{body}' >/dev/null 2>&1 & echo $!")));
    let member = rig.line(token).parse().expect("a pid");
    (token, member)
}

const WAIT: &str = "exec sleep 60";

#[test]
fn an_empty_group_is_empty_by_one_question() {
    for options in ways() {
        let mut rig = Rig::new(options);
        let token = rig.start(0, plan(&["true"]));
        assert_eq!(rig.linux.probe(token), Probe::Alive, "the leader itself");
        rig.exit(token, CollectMode::Reap);
        assert_eq!(rig.linux.probe(token), Probe::Empty);
        assert_eq!(rig.linux.signal(token, Signal::KILL), Signalled::Empty);
        assert_eq!(
            rig.linux.signal_leader(token, Signal::KILL),
            Signalled::Empty
        );
        rig.close(token);
    }
}

#[test]
fn survivors_are_reached_after_the_leader_was_reaped() {
    alone(
        "survivors_are_reached_after_the_leader_was_reaped",
        module_path!(),
        || {
            adopt_orphans();
            for options in ways() {
                let mut rig = Rig::new(options);
                let (token, member) = left_behind(&mut rig, WAIT);
                rig.exit(token, CollectMode::Reap);
                assert_eq!(rig.linux.probe(token), Probe::Alive);
                assert!(is_alive(member));
                assert_eq!(
                    rig.linux.signal(token, Signal::TERM),
                    Signalled::Sent,
                    "{options:?}"
                );
                bury(member);
                assert_eq!(rig.linux.probe(token), Probe::Empty);
                assert_eq!(rig.linux.signal(token, Signal::TERM), Signalled::Empty);
                rig.close(token);
            }
        },
    );
}

#[test]
fn survivors_are_reached_while_the_leader_is_kept() {
    alone(
        "survivors_are_reached_while_the_leader_is_kept",
        module_path!(),
        || {
            adopt_orphans();
            for options in ways() {
                let mut rig = Rig::new(options);
                let (token, member) = left_behind(&mut rig, WAIT);
                rig.exit(token, CollectMode::KeepZombie);
                assert_eq!(rig.linux.probe(token), Probe::Unknown);
                assert_eq!(rig.linux.signal(token, Signal::TERM), Signalled::Sent);
                bury(member);
                rig.linux.collect(token, CollectMode::Reap);
                assert_eq!(rig.linux.probe(token), Probe::Empty);
                rig.close(token);
            }
        },
    );
}

#[test]
fn the_whole_group_gets_the_signal_and_the_leader_alone_when_it_is_meant() {
    for options in ways() {
        let mut rig = Rig::new(options);
        let token = rig.start(
            0,
            sh("trap 'exit 9' USR1; sleep 60 & echo $!; while :; do sleep 0.01; done"),
        );
        let member: u32 = rig.line(token).parse().expect("a pid");
        assert_eq!(
            rig.linux.signal_leader(token, Signal::USR1),
            Signalled::Sent
        );
        assert_eq!(rig.exit(token, CollectMode::Reap).exit.code, Some(9));
        assert!(is_alive(member));
        assert_eq!(rig.linux.signal(token, Signal::KILL), Signalled::Sent);
        eventually("the member ends", || !is_alive(member));
        rig.close(token);
    }
}

#[test]
fn real_time_signals_go_through_every_way() {
    for options in ways() {
        let mut rig = Rig::new(options);
        let token = rig.start(0, plan(&["sleep", "60"]));
        rig.outcome(token);
        let signal = Signal::from_name("RTMIN+3").expect("a signal");
        assert_eq!(rig.linux.signal(token, signal), Signalled::Sent);
        assert_eq!(rig.exit(token, CollectMode::Reap).exit.signal, Some(signal));
        rig.close(token);
    }
}

#[test]
fn a_stolen_zombie_pins_no_number() {
    alone("a_stolen_zombie_pins_no_number", module_path!(), || {
        let mut rig = Rig::new(LinuxOptions {
            group_signal: GroupSignal::Off,
            ..LinuxOptions::default()
        });
        let (token, member) = left_behind(&mut rig, WAIT);
        rig.exit(token, CollectMode::KeepZombie);
        let pid = rig.pid(token);
        rustix::process::waitpid(pidfd::pid_of(pid), rustix::process::WaitOptions::empty())
            .expect("stolen");
        // The group's number is not reserved any more. The member is reached through a pidfd of its
        // own, and not at all without one.
        rig.linux.inner.capabilities.pidfd_open = false;
        assert_eq!(rig.linux.signal(token, Signal::KILL), Signalled::NoWay);
        assert!(is_alive(member));
        rig.linux.inner.capabilities.pidfd_open = true;
        rig.linux.collect(token, CollectMode::Reap);
        assert_eq!(rig.linux.signal(token, Signal::KILL), Signalled::Sent);
        eventually("the member ends", || !is_alive(member));
        rig.close(token);
    });
}

#[test]
fn numbers_that_are_not_ours_are_refused() {
    let mut rig = Rig::new(LinuxOptions {
        group_signal: GroupSignal::Off,
        ..LinuxOptions::default()
    });
    let token = rig.start(0, plan(&["sleep", "60"]));
    let pid = rig.pid(token);
    let own = pidfd::group_of(0).expect("a group");
    let pidfd = rig.row(token).pidfd.take();
    for number in [0, 1, own, pidfd::own_session(), u32::MAX] {
        rig.row(token).pid = number;
        // CONT is harmless if it is sent after all.
        assert_eq!(
            rig.linux.signal(token, Signal::CONT),
            Signalled::NoWay,
            "{number}"
        );
        assert_eq!(
            rig.linux.signal_leader(token, Signal::CONT),
            Signalled::NoWay,
            "{number}"
        );
    }
    rig.row(token).pid = pid;
    rig.row(token).pidfd = pidfd;
    rig.end(token);
}

#[test]
fn without_pidfds_the_number_is_used_while_the_leader_is_ours() {
    alone(
        "without_pidfds_the_number_is_used_while_the_leader_is_ours",
        module_path!(),
        || {
            adopt_orphans();
            let mut rig = Rig::new(LinuxOptions {
                exit_source: ExitSourceChoice::Sigchld,
                group_signal: GroupSignal::Off,
                ..LinuxOptions::default()
            });
            (
                rig.linux.inner.capabilities.pidfd_open,
                rig.linux.inner.capabilities.pidfd_signal,
            ) = (false, false);
            let (token, member) = left_behind(&mut rig, WAIT);
            rig.row(token).pidfd = None;
            rig.exit(token, CollectMode::KeepZombie);
            assert_eq!(rig.linux.signal(token, Signal::KILL), Signalled::Sent);
            bury(member);
            assert!(matches!(
                rig.linux.collect(token, CollectMode::Reap),
                Collected::Ended(_)
            ));
            assert_eq!(rig.linux.probe(token), Probe::Empty);
            rig.close(token);

            let (token, member) = left_behind(&mut rig, WAIT);
            rig.row(token).pidfd = None;
            rig.exit(token, CollectMode::Reap);
            assert_eq!(rig.linux.probe(token), Probe::Alive);
            assert_eq!(
                rig.linux.signal(token, Signal::KILL),
                Signalled::NoWay,
                "nothing says whose it is"
            );
            assert!(is_alive(member));
            let fd = pidfd::open(member).expect("pidfd");
            pidfd::send(fd.as_fd(), Some(Signal::KILL), SignalScope::Process).expect("kill");
            rig.close(token);
        },
    );
}

#[test]
fn a_group_of_another_user_denies() {
    if !rustix::process::geteuid().is_root() {
        // Only root can start a process of another user.
        assert!(rustix::process::geteuid().as_raw() > 0);
        return;
    }
    alone("a_group_of_another_user_denies", module_path!(), || {
        for options in ways() {
            let mut rig = Rig::new(options);
            let mut plan = plan(&["sleep", "60"]);
            plan.user.uid = Some(65534);
            let token = rig.start(0, plan);
            assert!(matches!(rig.outcome(token), SpawnOutcome::Started));
            let pid = rig.pid(token);
            #[expect(unsafe_code, reason = "becomes somebody else, and root again")]
            // SAFETY: the effective user alone changes, of all threads.
            let set = |uid: u32| assert_eq!(unsafe { libc::seteuid(uid) }, 0);
            // kill(2) compares the real user id too, so both are changed.
            #[expect(unsafe_code, reason = "becomes somebody else, and root again")]
            let both = |real: u32, effective: u32| {
                // SAFETY: as above; the saved user stays root.
                assert_eq!(unsafe { libc::setresuid(real, effective, 0) }, 0)
            };
            both(65533, 65533);
            let answers = (
                rig.linux.signal(token, Signal::KILL),
                rig.linux.signal_leader(token, Signal::KILL),
            );
            let probe = rig.linux.probe(token);
            set(0);
            both(0, 0);
            assert_eq!(
                answers,
                (Signalled::Denied, Signalled::Denied),
                "{options:?}"
            );
            assert_eq!(probe, Probe::Alive);
            assert!(is_alive(pid));
            rig.end(token);
        }
    });
}

#[test]
fn members_that_a_scan_has_found_are_signalled_by_their_own_names() {
    alone(
        "members_that_a_scan_has_found_are_signalled_by_their_own_names",
        module_path!(),
        || {
            adopt_orphans();
            let mut rig = Rig::new(LinuxOptions {
                group_signal: GroupSignal::Off,
                ..LinuxOptions::default()
            });
            let (token, member) = left_behind(&mut rig, WAIT);
            rig.exit(token, CollectMode::Reap);
            let mut scan = Scan {
                id: 1,
                members: vec![token],
                budget: 1,
                ..Scan::default()
            };
            while rig.linux.scan(&mut scan) == ScanStep::More {}
            assert_eq!(rig.row(token).known.len(), 1);
            // With another start time the process id means another process.
            rig.row(token).known[0].start += 1;
            let known = rig.row(token).known.clone();
            assert!(
                open_verified(
                    rig.linux.inner.scanner.proc().expect("/proc"),
                    known[0].pid,
                    Some(known[0].start)
                )
                .is_err()
            );
            // No known member is left, so the signal looks for members itself.
            assert_eq!(rig.linux.signal(token, Signal::STOP), Signalled::Sent);
            rig.row(token).known[0].start -= 1;
            assert_eq!(rig.linux.signal(token, Signal::KILL), Signalled::Sent);
            bury(member);
            assert_eq!(rig.linux.signal(token, Signal::KILL), Signalled::Empty);
            rig.close(token);
        },
    );
}

/// Starts a process with this process id that leads a group of its own, has a child in it, and
/// sleeps. `None` where choosing a process id is not permitted.
#[expect(unsafe_code, reason = "chooses a process id")]
fn stranger(pid: u32) -> Option<u32> {
    let wanted = [i32::try_from(pid).expect("a pid")];
    // SAFETY: integers only.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.exit_signal = libc::SIGCHLD.unsigned_abs().into();
    args.set_tid = wanted.as_ptr() as u64;
    args.set_tid_size = 1;
    // SAFETY: as fork(2); the copy makes system calls only, and ends by a signal.
    let child = unsafe {
        libc::syscall(
            libc::SYS_clone3,
            &raw const args,
            size_of::<libc::clone_args>(),
        )
    };
    if child == 0 {
        // The test's output is not held open by the copy.
        // SAFETY: the copy uses none of its descriptors.
        unsafe { libc::close_range(0, u32::MAX, 0) };
        // SAFETY: no memory is involved.
        unsafe { libc::setpgid(0, 0) };
        // SAFETY: as above.
        unsafe { libc::fork() };
        loop {
            // SAFETY: no memory is involved.
            unsafe { libc::pause() };
        }
    }
    u32::try_from(child).ok()
}

/// CASES 26.
#[test]
fn a_stranger_with_the_leaders_number_gets_nothing() {
    alone(
        "a_stranger_with_the_leaders_number_gets_nothing",
        module_path!(),
        || {
            for options in ways() {
                let mut rig = Rig::new(options);
                let token = rig.start(0, plan(&["true"]));
                rig.exit(token, CollectMode::Reap);
                let pid = rig.pid(token);
                let Some(child) = stranger(pid) else {
                    assert!(
                        !rustix::process::geteuid().is_root(),
                        "root may choose numbers"
                    );
                    return;
                };
                assert_eq!(child, pid);
                let children = format!("/proc/{pid}/task/{pid}/children");
                let members = || std::fs::read_to_string(&children).unwrap_or_default();
                eventually("it leads a group of its own, with a member", || {
                    pidfd::group_of(pid) == Some(pid) && !members().is_empty()
                });
                let member: u32 = members().trim().parse().expect("a pid");
                let is_certain = rig.linux.capabilities().group_signal;
                assert_eq!(
                    rig.linux.probe(token),
                    if is_certain {
                        Probe::Empty
                    } else {
                        Probe::Alive
                    }
                );
                for _ in 0..2 {
                    let answer = rig.linux.signal(token, Signal::KILL);
                    assert_eq!(
                        answer,
                        if is_certain {
                            Signalled::Empty
                        } else {
                            Signalled::NoWay
                        },
                        "{options:?}"
                    );
                    assert_eq!(
                        rig.linux.signal_leader(token, Signal::KILL),
                        Signalled::Empty
                    );
                    // The next signal uses what a scan has found.
                    let mut scan = Scan {
                        id: 1,
                        members: vec![token],
                        budget: 64,
                        ..Scan::default()
                    };
                    while rig.linux.scan(&mut scan) == ScanStep::More {}
                    assert_eq!(scan.found, []);
                }
                rig.close(token);
                assert!(is_alive(pid) && is_alive(member));
                pidfd::kill(pid, SignalScope::Group, Signal::KILL)
                    .expect("a child of this process");
                bury(pid);
            }
        },
    );
}
