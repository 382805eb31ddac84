//! Failed spawns, waits, the loop's descriptor, and forked copies of the process.

use crate::kernel::WaitError;
use crate::kernel::linux::tests::*;
use crate::types::SpawnStep;
use std::time::Instant;

#[test]
fn a_program_that_is_missing_is_told_and_leaves_nothing() {
    alone(
        "a_program_that_is_missing_is_told_and_leaves_nothing",
        module_path!(),
        || {
            for options in ways() {
                let mut rig = Rig::new(options);
                let token = rig.start(0, plan(&["true"]));
                rig.exit(token, CollectMode::Reap);
                rig.close(token);
                let before = descriptors();
                let token = rig.token(0);
                match rig
                    .linux
                    .spawn(&Arc::new(plan(&["/nonexistent/program"])), token)
                {
                    Err(e) => assert_eq!(e.raw_os_error(), libc::ENOENT),
                    Ok(_) => {
                        let SpawnOutcome::Failed(error) = rig.outcome(token) else {
                            panic!("it cannot start")
                        };
                        assert_eq!(
                            (error.step(), error.raw_os_error()),
                            (SpawnStep::Exec, libc::ENOENT)
                        );
                        rig.exit(token, CollectMode::Reap);
                        assert!(
                            !rig.notices.as_slice().contains(&Notice::Outcome(token)),
                            "told already"
                        );
                        rig.close(token);
                    }
                }
                assert_eq!(descriptors(), before);
                assert!(has_no_child());
            }
        },
    );
}

#[test]
fn running_out_of_descriptors_at_any_step_leaves_nothing() {
    alone(
        "running_out_of_descriptors_at_any_step_leaves_nothing",
        module_path!(),
        || {
            for options in ways() {
                let mut rig = Rig::new(options);
                let feed = || Plan {
                    stdin: StdinPlan::Feed,
                    ..plan(&["true"])
                };
                let token = rig.start(0, feed());
                rig.exit(token, CollectMode::Reap);
                rig.close(token);
                let before = descriptors();
                // All other descriptors are taken, and one is given back for each attempt.
                let mut taken = Vec::new();
                let low = rustix::process::Rlimit {
                    current: Some(64),
                    ..rustix::process::getrlimit(rustix::process::Resource::Nofile)
                };
                rustix::process::setrlimit(rustix::process::Resource::Nofile, low)
                    .expect("a lower limit");
                while let Ok(fd) = rustix::io::dup(rig.linux.as_fd()) {
                    taken.push(fd);
                }
                let full = taken.len();
                let mut failures = 0;
                loop {
                    let token = rig.token(0);
                    match rig.linux.spawn(&Arc::new(feed()), token) {
                        Ok(_) => {
                            rig.exit(token, CollectMode::Reap);
                            rig.close(token);
                            break;
                        }
                        Err(e) => {
                            assert_eq!(e.raw_os_error(), libc::EMFILE, "{e}");
                            assert!(
                                e.is_retryable()
                                    && matches!(e.step(), SpawnStep::Pipe | SpawnStep::Clone),
                                "{e}"
                            );
                            assert!(has_no_child());
                            assert!(
                                rig.linux.inner.table.get(token).is_none()
                                    && rig.linux.inner.pending_spawns.list.is_empty()
                            );
                            failures += 1;
                        }
                    }
                    drop(taken.pop().expect("it works with all of them"));
                }
                // Three pipes, and the pidfd of clone.
                assert!(failures >= 6, "{failures}");
                assert_eq!(full - taken.len(), failures);
                drop(taken);
                assert_eq!(descriptors(), before);
                assert!(has_no_child());
                let high = rustix::process::Rlimit {
                    current: low.maximum,
                    ..low
                };
                rustix::process::setrlimit(rustix::process::Resource::Nofile, high)
                    .expect("the old limit");
            }
        },
    );
}

/// CASES 89: the child has a child of its own by then.
#[test]
fn a_child_that_cannot_be_watched_is_killed_with_its_group_and_reaped() {
    alone(
        "a_child_that_cannot_be_watched_is_killed_with_its_group_and_reaped",
        module_path!(),
        || {
            let mut rig = Rig::new(LinuxOptions::default());
            adopt_orphans();
            let token = rig.start(0, sh("sleep 60 & echo $!; exec sleep 60"));
            let member: u32 = rig.line(token).parse().expect("a pid");
            let row = rig.linux.inner.table.take(token).expect("a row");
            rig.linux.inner.pending_spawns.list.clear();
            rig.linux.inner.undo(row);
            bury(member);
            assert!(has_no_child());
            assert!(rig.linux.inner.lingering.is_empty());
        },
    );
}

#[test]
fn a_success_is_told_though_nothing_else_happens() {
    for options in ways() {
        let mut rig = Rig::new(options);
        let quiet = Plan {
            stdin: StdinPlan::Feed,
            stdout: OutputPlan::Null,
            stderr: OutputPlan::Null,
            ..plan(&["cat"])
        };
        let token = rig.start(0, quiet);
        assert!(
            rig.linux.deadline().is_some(),
            "a foreign loop is told when to look"
        );
        let all = rig.wait_for(Notice::Outcome(token));
        assert!(
            all.iter()
                .all(|n| matches!(n, Notice::Outcome(_) | Notice::Writable(_))),
            "{all:?}"
        );
        assert!(matches!(rig.linux.outcome(token), SpawnOutcome::Started));
        assert_eq!(
            rig.linux.deadline().is_some(),
            rig.linux.capabilities().exit == ExitSource::Sigchld
        );
        rig.end(token);
        assert_eq!(rig.linux.deadline(), None);
    }
}

#[test]
fn a_child_is_in_a_group_of_its_own_when_spawn_returns() {
    for options in ways() {
        let mut rig = Rig::new(options);
        for _ in 0..100 {
            let token = rig.start(0, plan(&["sleep", "60"]));
            let pid = rig.pid(token);
            assert_eq!(pidfd::group_of(pid), Some(pid));
            assert_eq!(rig.linux.signal(token, Signal::KILL), Signalled::Sent);
            rig.exit(token, CollectMode::Reap);
            rig.close(token);
        }
    }
}

#[test]
fn a_wait_is_never_early_and_a_peek_never_sleeps() {
    // The SIGCHLD of another test's child would end a wait.
    alone(
        "a_wait_is_never_early_and_a_peek_never_sleeps",
        module_path!(),
        || {
            for options in ways() {
                let mut rig = Rig::new(options);
                for ms in [1, 3, 20] {
                    let at = rig.linux.now().after(Ns(ms * 1_000_000 + 300));
                    rig.linux
                        .wait(Until::At(at), &mut rig.notices)
                        .expect("wait");
                    assert!(rig.linux.now() >= at && rig.notices.is_empty() && !rig.notices.more);
                }
                let token = rig.start(0, plan(&["sleep", "60"]));
                rig.outcome(token);
                let begin = Instant::now();
                for _ in 0..100 {
                    assert_eq!(rig.peek(), []);
                }
                assert!(begin.elapsed() < Duration::from_secs(5));
                // The sweep of the SIGCHLD source, once a second, neither ends the wait nor makes
                // it longer.
                let at = rig.linux.now().after(Ns::from_millis(1100));
                rig.linux
                    .wait(Until::At(at), &mut rig.notices)
                    .expect("wait");
                assert!(rig.linux.now() >= at || rig.notices.more);
                rig.end(token);
            }
        },
    );
}

#[test]
fn the_descriptor_is_readable_for_each_kind_of_notice_and_not_afterwards() {
    let mut rig = Rig::new(LinuxOptions {
        fold_deadline: true,
        ..LinuxOptions::default()
    });
    let own = rig.linux.as_raw_fd();
    let readable = |rig: &Rig, ms: i64| {
        let mut fds = [rustix::event::PollFd::new(
            &rig.linux,
            rustix::event::PollFlags::IN,
        )];
        let limit = rustix::time::Timespec {
            tv_sec: ms / 1000,
            tv_nsec: ms % 1000 * 1_000_000,
        };
        rustix::event::poll(&mut fds, Some(&limit)).expect("poll") == 1
    };
    assert!(!readable(&rig, 0));
    rig.linux.waker().wake();
    assert!(readable(&rig, 20_000));
    assert_eq!(rig.peek(), [Notice::Woken]);
    assert!(!readable(&rig, 0));

    let at = rig.linux.now().after(Ns::from_millis(5));
    rig.linux.alarm(Some(at));
    assert!(readable(&rig, 20_000));
    assert!(rig.linux.now() >= at);
    assert_eq!(rig.peek(), []);
    assert!(!readable(&rig, 0));
    rig.linux.alarm(Some(Ns::ZERO));
    assert!(readable(&rig, 20_000), "a time that is past is now");
    assert_eq!(rig.peek(), []);
    rig.linux
        .alarm(Some(rig.linux.inner.clock.now().after(Ns::from_millis(50))));
    rig.linux.alarm(None);
    assert!(!readable(&rig, 100));

    let token = rig.start(0, sh("echo x"));
    rig.outcome(token);
    let mut seen = Vec::new();
    while !seen.iter().any(|n| matches!(n, Notice::Exit(_))) {
        assert!(readable(&rig, 20_000));
        seen.extend(rig.peek());
    }
    rig.linux.collect(token, CollectMode::Reap);
    assert!(!readable(&rig, 0));
    rig.close(token);
    assert_eq!(rig.linux.as_raw_fd(), own);
}

#[test]
fn a_waker_wakes_from_another_thread_and_any_number_of_times() {
    let mut rig = Rig::new(LinuxOptions::default());
    let waker = rig.linux.waker();
    let thread = std::thread::spawn(move || (0..1000).for_each(|_| waker.wake()));
    rig.linux
        .wait(Until::Forever, &mut rig.notices)
        .expect("wait");
    assert_eq!(rig.notices.as_slice(), [Notice::Woken]);
    thread.join().expect("it ends");
}

#[test]
fn more_readinesses_than_one_wait_takes_are_given_by_the_next() {
    alone(
        "more_readinesses_than_one_wait_takes_are_given_by_the_next",
        module_path!(),
        || {
            let mut rig = Rig::new(LinuxOptions::default());
            let tokens: Vec<Token> = (0..700)
                .map(|slot| {
                    rig.start(
                        slot,
                        Plan {
                            stderr: OutputPlan::Null,
                            ..sh("exec echo x")
                        },
                    )
                })
                .collect();
            for token in &tokens {
                rig.outcome(*token);
            }
            let (mut exits, mut reads) = (
                std::collections::HashSet::new(),
                std::collections::HashSet::new(),
            );
            while exits.len() < tokens.len() || reads.len() < tokens.len() {
                for notice in rig.wait() {
                    match notice {
                        Notice::Exit(token) => {
                            assert!(matches!(
                                rig.linux.collect(token, CollectMode::Reap),
                                Collected::Ended(_)
                            ));
                            exits.insert(token);
                        }
                        Notice::Readable(token) => drop(reads.insert(token)),
                        other => panic!("{other:?}"),
                    }
                }
            }
            for token in tokens {
                assert_eq!(
                    rig.read_out(token, Stream::Stdout),
                    (ReadResult::End, b"x\n".to_vec())
                );
                rig.close(token);
            }
        },
    );
}

#[test]
fn a_forked_copy_refuses_and_its_end_changes_nothing() {
    alone(
        "a_forked_copy_refuses_and_its_end_changes_nothing",
        module_path!(),
        || {
            let mut rig = Rig::new(LinuxOptions {
                fold_deadline: true,
                ..LinuxOptions::default()
            });
            let token = rig.start(
                0,
                Plan {
                    stdin: StdinPlan::Feed,
                    ..plan(&["cat"])
                },
            );
            assert!(matches!(rig.outcome(token), SpawnOutcome::Started));
            rig.linux
                .write(token.with(TokenKind::Stdin), b"for the host\n");
            rig.wait_for(Notice::Readable(
                token.with(TokenKind::Output(Stream::Stdout)),
            ));

            #[expect(unsafe_code, reason = "a host that forks")]
            // SAFETY: this process has one thread of interest; the child ends with _exit.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    refuses(&mut rig, token)
                }))
                .is_ok();
                drop(rig);
                #[expect(unsafe_code, reason = "a host that forks")]
                // SAFETY: ends the copy without running anything of the host's.
                unsafe {
                    libc::_exit(if refused { 0 } else { 1 })
                };
            }
            let mut status = -1;
            #[expect(unsafe_code, reason = "a host that forks")]
            // SAFETY: waits for the copy made above.
            let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert_eq!((waited, status), (child, 0));

            // The host's loop is untouched: nothing was read, closed, signalled or taken out of the
            // poll set.
            assert_eq!(rig.line(token), "for the host");
            assert_eq!(
                rig.linux.write(token.with(TokenKind::Stdin), b"again\n"),
                Wrote::Took(6)
            );
            rig.wait_for(Notice::Readable(
                token.with(TokenKind::Output(Stream::Stdout)),
            ));
            assert_eq!(rig.line(token), "again");
            rig.linux.close(token.with(TokenKind::Stdin));
            assert!(rig.exit(token, CollectMode::Reap).exit.success());
            rig.close(token);
        },
    );
}

/// Runs in the forked copy.
fn refuses(rig: &mut Rig, token: Token) {
    assert_eq!(
        rig.linux.wait(Until::Peek, &mut rig.notices),
        Err(WaitError::Forked)
    );
    let other = Token::new(Slot(1), 77, TokenKind::Spawn);
    assert!(rig.linux.spawn(&Arc::new(plan(&["true"])), other).is_err());
    assert_eq!(rig.read(token, Stream::Stdout).0, ReadResult::Stale);
    assert!(matches!(
        rig.linux.write(token.with(TokenKind::Stdin), b"x"),
        Wrote::Failed(_)
    ));
    assert_eq!(rig.linux.signal(token, Signal::KILL), Signalled::NoWay);
    assert_eq!(
        rig.linux.signal_leader(token, Signal::KILL),
        Signalled::NoWay
    );
    assert_eq!(rig.linux.probe(token), Probe::Unknown);
    assert_eq!(
        rig.linux.collect(token, CollectMode::Reap),
        Collected::NotYet
    );
    assert!(matches!(
        rig.linux.scan(&mut Scan {
            id: 1,
            budget: 9,
            ..Scan::default()
        }),
        ScanStep::Done {
            members: false,
            holders: false
        }
    ));
    rig.linux.alarm(Some(Ns::ZERO));
    rig.linux
        .close(token.with(TokenKind::Output(Stream::Stdout)));
    rig.linux.close(token.with(TokenKind::Exit));
    let released = rig.linux.release(token, Release::HandOver);
    assert!(released.pid == 0 && released.stdout.is_none());
}

#[test]
fn everything_goes_to_the_host_with_a_hand_over() {
    let mut rig = Rig::new(LinuxOptions::default());
    let token = rig.start(
        0,
        Plan {
            stdin: StdinPlan::Feed,
            ..plan(&["cat"])
        },
    );
    rig.outcome(token);
    let pid = rig.pid(token);
    let released = rig.linux.release(token, Release::HandOver);
    assert_eq!(released.pid, pid);
    assert_eq!(
        released.pidfd.is_some(),
        rig.linux.capabilities().pidfd_from_clone || rig.linux.capabilities().pidfd_open
    );
    rustix::io::write(released.stdin.expect("stdin"), b"mine").expect("write");
    let stdout = released.stdout.expect("stdout");
    let status =
        rustix::process::waitpid(pidfd::pid_of(pid), rustix::process::WaitOptions::empty())
            .expect("ours to wait for");
    assert_eq!(status.map(|(_, s)| s.exit_status()), Some(Some(0)));
    let mut buffer = [0; 8];
    assert_eq!(rustix::io::read(stdout, &mut buffer), Ok(4));
    assert!(released.stderr.is_some());
    assert_eq!(rig.peek(), []);
}
