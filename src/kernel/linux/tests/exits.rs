//! Exits: by pidfd, by SIGCHLD, reaped by somebody else, announced too early.

use crate::kernel::linux::tests::*;
use crate::types::{Exit, StatusSource};
use std::process::Command;

/// Runs `true` and `echo` in turn and expects end of file at each exit notice.
fn ends_at_exit(rounds: usize) {
    for (round, words) in [&["true"][..], &["echo", "x"]]
        .iter()
        .cycle()
        .take(rounds)
        .enumerate()
    {
        let options = ways()[round / 2 % 3];
        let mut rig = Rig::new(options);
        let token = rig.start(0, plan(words));
        let info = rig.exit(token, CollectMode::Reap);
        assert!(info.exit.success() && info.exit.source == StatusSource::Waitid);
        let expected: &[u8] = if words.len() > 1 { b"x\n" } else { b"" };
        assert_eq!(
            rig.read_out(token, Stream::Stdout),
            (ReadResult::End, expected.to_vec()),
            "round {round}"
        );
        assert_eq!(
            rig.read_out(token, Stream::Stderr),
            (ReadResult::End, Vec::new())
        );
        assert_eq!(rig.linux.probe(token), Probe::Empty);
        rig.close(token);
    }
}

// Both tests run in a process of their own: a child that another thread starts has copies of all
// write ends until its exec.
#[test]
fn end_of_file_is_there_at_the_exit_notice() {
    alone(
        "end_of_file_is_there_at_the_exit_notice",
        module_path!(),
        || ends_at_exit(1000),
    );
}

#[test]
fn end_of_file_is_there_at_the_exit_notice_in_a_host_with_many_descriptors() {
    alone(
        "end_of_file_is_there_at_the_exit_notice_in_a_host_with_many_descriptors",
        module_path!(),
        || {
            let mut rig = Rig::new(LinuxOptions::default());
            let many: Vec<OwnedFd> = (0..1500)
                .map(|_| rustix::io::dup(rustix::stdio::stderr()).expect("a descriptor"))
                .collect();
            for _ in 0..200 {
                let token = rig.start(0, sh("echo x; exec 1>&-"));
                rig.exit(token, CollectMode::Reap);
                assert_eq!(
                    rig.read_out(token, Stream::Stdout),
                    (ReadResult::End, b"x\n".to_vec())
                );
                assert_eq!(
                    rig.read_out(token, Stream::Stderr),
                    (ReadResult::End, Vec::new())
                );
                rig.close(token);
            }
            ends_at_exit(100);
            drop(many);
        },
    );
}

#[test]
fn loops_in_several_threads_do_not_disturb_each_other() {
    alone(
        "loops_in_several_threads_do_not_disturb_each_other",
        module_path!(),
        || {
            let run = |options: LinuxOptions| {
                let mut rig = Rig::new(options);
                for round in 0..150 {
                    let token = rig.start(0, sh(&format!("echo {round}; exit {}", round % 7)));
                    assert_eq!(
                        rig.exit(token, CollectMode::Reap).exit,
                        Exit::with_code(round % 7, StatusSource::Waitid)
                    );
                    // End of file may come later, when the other threads' children have called
                    // exec.
                    assert_eq!(
                        rig.rest(token, Stream::Stdout),
                        format!("{round}\n").as_bytes()
                    );
                    assert_eq!(rig.rest(token, Stream::Stderr), b"");
                    rig.close(token);
                }
            };
            std::thread::scope(|scope| {
                ways()
                    .into_iter()
                    .for_each(|options| drop(scope.spawn(move || run(options))))
            });
        },
    );
}

#[test]
fn the_outcome_is_told_before_the_exit_and_before_any_byte() {
    for options in ways() {
        let mut rig = Rig::new(options);
        for _ in 0..50 {
            let token = rig.start(3, sh("echo a; exec 1>&-"));
            let all = rig.wait_for(Notice::Exit(token.with(TokenKind::Exit)));
            let at = |n: Notice| all.iter().position(|seen| *seen == n);
            let outcome = at(Notice::Outcome(token)).expect("an outcome");
            assert!(outcome < at(Notice::Exit(token.with(TokenKind::Exit))).expect("an exit"));
            assert!(
                at(Notice::Readable(
                    token.with(TokenKind::Output(Stream::Stdout))
                ))
                .is_none_or(|byte| outcome < byte)
            );
            assert_eq!(
                all.iter().filter(|n| **n == Notice::Outcome(token)).count(),
                1
            );
            rig.linux.collect(token, CollectMode::Reap);
            rig.close(token);
        }
    }
}

#[test]
fn code_signal_and_usage_are_told() {
    for options in ways() {
        let mut rig = Rig::new(options);
        let token = rig.start(0, sh("exit 3"));
        let code = rig.exit(token, CollectMode::Reap);
        assert_eq!(code.exit, Exit::with_code(3, StatusSource::Waitid));
        assert!(code.usage.is_some_and(|u| u.user + u.system < LONG));
        rig.close(token);
        let token = rig.start(0, sh("kill -TERM $$"));
        assert_eq!(
            rig.exit(token, CollectMode::Reap).exit,
            Exit::by_signal(Signal::TERM, false, StatusSource::Waitid)
        );
        rig.close(token);
    }
}

#[test]
fn a_kept_zombie_answers_the_same_until_it_is_reaped_and_after() {
    for options in ways() {
        let mut rig = Rig::new(options);
        let token = rig.start(0, sh("exit 5"));
        let first = rig.exit(token, CollectMode::KeepZombie);
        assert_eq!(rig.linux.probe(token), Probe::Unknown);
        let pid = rig.pid(token);
        assert!(pidfd::group_of(pid).is_some(), "its number is reserved");
        for keep in [
            CollectMode::KeepZombie,
            CollectMode::Reap,
            CollectMode::Reap,
        ] {
            assert_eq!(rig.linux.collect(token, keep), Collected::Ended(first));
        }
        assert!(pidfd::group_of(pid).is_none());
        assert_eq!(rig.linux.probe(token), Probe::Empty);
        rig.close(token);
    }
}

#[test]
fn nobody_is_woken_by_a_reaped_leader_again() {
    let mut rig = Rig::new(LinuxOptions::default());
    let token = rig.start(
        0,
        Plan {
            stdout: OutputPlan::Null,
            stderr: OutputPlan::Null,
            ..sh("exit 0")
        },
    );
    rig.exit(token, CollectMode::Reap);
    assert_eq!(rig.peek(), []);
    assert!(!rig.notices.more);
    rig.close(token);
}

#[test]
fn a_notice_for_a_child_that_lives_is_answered_not_yet_and_the_end_still_comes() {
    for options in ways() {
        let mut rig = Rig::new(options);
        let token = rig.start(
            0,
            Plan {
                stdin: StdinPlan::Feed,
                ..plan(&["cat"])
            },
        );
        for keep in [CollectMode::Reap, CollectMode::KeepZombie] {
            assert_eq!(rig.linux.collect(token, keep), Collected::NotYet);
        }
        // Stopping and continuing is no exit.
        assert_eq!(rig.linux.signal(token, Signal::STOP), Signalled::Sent);
        assert_eq!(
            rig.linux.collect(token, CollectMode::Reap),
            Collected::NotYet
        );
        assert_eq!(rig.linux.signal(token, Signal::CONT), Signalled::Sent);
        rig.linux.close(token.with(TokenKind::Stdin));
        assert!(rig.exit(token, CollectMode::Reap).exit.success());
        rig.close(token);
    }
}

#[test]
fn a_status_that_somebody_else_has_taken_is_found_or_lost_and_never_waited_for() {
    alone(
        "a_status_that_somebody_else_has_taken_is_found_or_lost_and_never_waited_for",
        module_path!(),
        || {
            let thief = std::thread::spawn(|| {
                loop {
                    // SAFETY: no status is asked for.
                    #[expect(unsafe_code, reason = "what a careless host does")]
                    let taken = unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) };
                    if taken == -1 {
                        std::thread::yield_now();
                    }
                }
            });
            for options in ways() {
                let mut rig = Rig::new(options);
                let (mut found, mut lost, mut ours) = (0, 0, 0);
                for _ in 0..60 {
                    let token = rig.start(0, sh("exit 6"));
                    let answer = loop {
                        rig.wait_for(Notice::Exit(token.with(TokenKind::Exit)));
                        match rig.linux.collect(token, CollectMode::Reap) {
                            Collected::NotYet => {}
                            answer => break answer,
                        }
                    };
                    match answer {
                        Collected::Ended(ExitInfo { exit, usage }) => {
                            assert_eq!(exit.code, Some(6));
                            assert_eq!(usage.is_some(), exit.source == StatusSource::Waitid);
                            if usage.is_some() {
                                ours += 1
                            } else {
                                found += 1
                            }
                        }
                        Collected::Lost => lost += 1,
                        Collected::NotYet => unreachable!("asked until it was told"),
                    }
                    assert_eq!(rig.linux.probe(token), Probe::Empty);
                    rig.close(token);
                }
                assert_eq!(found + lost + ours, 60);
                assert!(
                    !rig.linux.capabilities().exit_info || lost == 0,
                    "found {found}, lost {lost}, ours {ours}"
                );
            }
            assert!(!thief.is_finished());
        },
    );
}

#[test]
fn a_host_that_ignores_sigchld_gets_its_exits() {
    alone(
        "a_host_that_ignores_sigchld_gets_its_exits",
        module_path!(),
        || {
            for options in ways() {
                let mut rig = Rig::new(options);
                // After the loop has installed its handler.
                // SAFETY: the kernel reaps from now on.
                #[expect(unsafe_code, reason = "what a careless host does")]
                unsafe {
                    libc::signal(libc::SIGCHLD, libc::SIG_IGN)
                };
                let token = rig.start(0, sh("exit 4"));
                rig.wait_for(Notice::Exit(token.with(TokenKind::Exit)));
                match rig.linux.collect(token, CollectMode::Reap) {
                    Collected::Ended(info) => {
                        assert_eq!(info.exit, Exit::with_code(4, StatusSource::PidfdInfo))
                    }
                    Collected::Lost => assert!(!rig.linux.capabilities().exit_info),
                    Collected::NotYet => panic!("it has ended"),
                }
                rig.close(token);
            }
        },
    );
}

#[test]
fn five_hundred_exits_at_once_are_all_seen_by_sigchld() {
    let options = LinuxOptions {
        exit_source: ExitSourceChoice::Sigchld,
        ..LinuxOptions::default()
    };
    let mut rig = Rig::new(options);
    let quiet = || Plan {
        stdin: StdinPlan::Feed,
        stdout: OutputPlan::Null,
        stderr: OutputPlan::Null,
        ..plan(&["cat"])
    };
    let tokens: Vec<Token> = (0..500).map(|slot| rig.start(slot, quiet())).collect();
    for token in &tokens {
        rig.linux.close(token.with(TokenKind::Stdin));
    }
    let mut left: Vec<Token> = tokens.clone();
    while !left.is_empty() {
        let asked = rig.wait();
        assert!(
            asked
                .iter()
                .filter(|n| matches!(n, Notice::Exit(_)))
                .count()
                <= limits::SIGCHLD_BATCH
        );
        for notice in asked {
            if let Notice::Exit(token) = notice {
                assert!(matches!(
                    rig.linux.collect(token, CollectMode::Reap),
                    Collected::Ended(_)
                ));
                left.retain(|t| t.with(TokenKind::Exit) != token);
            }
        }
    }
    tokens.into_iter().for_each(|token| rig.close(token));
}

#[test]
fn children_of_others_are_left_alone() {
    for options in ways() {
        let mut rig = Rig::new(options);
        let mut other = Command::new("sh")
            .args(["-c", "exit 8"])
            .spawn()
            .expect("sh");
        let token = rig.start(0, plan(&["true"]));
        rig.exit(token, CollectMode::Reap);
        rig.close(token);
        assert_eq!(
            other.wait().expect("still ours to wait for").code(),
            Some(8)
        );
    }
}

#[test]
fn what_exits_are_learnt_by_is_told() {
    let rig = Rig::new(LinuxOptions {
        exit_source: ExitSourceChoice::Sigchld,
        ..LinuxOptions::default()
    });
    assert_eq!(rig.linux.capabilities().exit, ExitSource::Sigchld);
    assert!(rig.linux.capabilities().exit_why.contains("once a second"));
}

/// Forks a tracer of `pid`. It writes `t` once it traces (`n` if that is not permitted), reaps the
/// process as a tracer does when a byte comes from `go`, and ends.
#[expect(unsafe_code, reason = "a debugger")]
fn trace(pid: u32, say: &OwnedFd, go: &OwnedFd) -> i32 {
    let pid = i32::try_from(pid).expect("a pid");
    // SAFETY: the copy has one thread, does nothing but system calls, and ends with _exit.
    let copy = unsafe { libc::fork() };
    if copy != 0 {
        return copy;
    }
    // SAFETY: no memory is involved.
    let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, 0) } == 0;
    let _ = rustix::io::write(say, if seized { b"t" } else { b"n" });
    let _ = rustix::io::read(go, &mut [0; 1]);
    // SAFETY: no status is asked for.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL) };
    // SAFETY: ends the copy without running anything of the host's.
    unsafe { libc::_exit(0) }
}

#[test]
fn a_tracer_keeps_the_exit_back_and_nothing_spins() {
    alone(
        "a_tracer_keeps_the_exit_back_and_nothing_spins",
        module_path!(),
        || {
            for options in ways() {
                let mut rig = Rig::new(options);
                let token = rig.start(
                    0,
                    Plan {
                        stdin: StdinPlan::Feed,
                        ..sh("read x; exit 3")
                    },
                );
                assert!(matches!(rig.outcome(token), SpawnOutcome::Started));
                let (said, say) =
                    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("pipe");
                let (go, goes) =
                    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("pipe");
                let tracer = trace(rig.pid(token), &say, &go);
                let mut answer = [0];
                assert_eq!(rustix::io::read(&said, &mut answer), Ok(1));
                if &answer != b"t" {
                    assert!(
                        !rustix::process::geteuid().is_root(),
                        "root may trace its children"
                    );
                    rig.end(token);
                    return;
                }
                rig.linux.write(token.with(TokenKind::Stdin), b"\n");
                rig.rest(token, Stream::Stdout);
                let pid = rig.pid(token);
                let proc = procfs::Proc::open().expect("/proc");
                eventually("it has ended", || {
                    proc.stat(pid).is_ok_and(|stat| !stat.is_alive())
                });
                let (mut waits, mut notices) = (0, 0);
                let end = rig.linux.now().after(Ns::from_millis(300));
                while rig.linux.now() < end {
                    rig.linux
                        .wait(Until::At(end), &mut rig.notices)
                        .expect("wait");
                    waits += 1;
                    if rig
                        .notices
                        .as_slice()
                        .contains(&Notice::Exit(token.with(TokenKind::Exit)))
                    {
                        notices += 1;
                        assert_eq!(
                            rig.linux.collect(token, CollectMode::Reap),
                            Collected::NotYet
                        );
                    }
                }
                assert!(
                    waits < 10 && notices < 5,
                    "{waits} waits, {notices} notices"
                );
                rustix::io::write(&goes, b"x").expect("write");
                assert_eq!(
                    rig.exit(token, CollectMode::Reap).exit,
                    Exit::with_code(3, StatusSource::Waitid)
                );
                rig.close(token);
                bury(tracer.unsigned_abs());
            }
        },
    );
}
