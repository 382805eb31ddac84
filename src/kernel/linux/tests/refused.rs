//! Kernels and sandboxes that refuse calls, imitated by a seccomp filter.

use crate::kernel::linux::tests::*;
use crate::types::{Exit, StatusSource};

/// Makes these calls fail with this errno, in this process and its children. Only inside [`alone`].
#[expect(unsafe_code, reason = "installs a filter")]
pub(in crate::kernel::linux) fn refuse(calls: &[libc::c_long], errno: i32) {
    let statement = |code: u32, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    };
    // The number of the call is the first word that a filter sees.
    let mut program = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0)];
    for call in calls {
        let code = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        program.push(libc::sock_filter {
            code,
            jt: 0,
            jf: 1,
            k: u32::try_from(*call).expect("a small number"),
        });
        program.push(statement(
            libc::BPF_RET | libc::BPF_K,
            libc::SECCOMP_RET_ERRNO | errno.unsigned_abs(),
        ));
    }
    program.push(statement(
        libc::BPF_RET | libc::BPF_K,
        libc::SECCOMP_RET_ALLOW,
    ));
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).expect("short"),
        filter: program.as_mut_ptr(),
    };
    assert_eq!(
        // SAFETY: no memory is involved.
        unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) },
        0
    );
    assert_eq!(
        // SAFETY: the program lives until the call has returned.
        unsafe {
            libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            )
        },
        0
    );
}

/// Runs a child whose member outlives it through exit, probe, scan, signal and release.
pub(super) fn runs(rig: &mut Rig) -> (Exit, Signalled) {
    let token = rig.start(0, sh("sleep 60 >/dev/null 2>&1 & echo $!; exit 3"));
    let member: u32 = rig.line(token).parse().expect("a pid");
    let info = rig.exit(token, CollectMode::Reap);
    assert_eq!(rig.linux.probe(token), Probe::Alive);
    let answer = rig.linux.signal(token, Signal::KILL);
    if answer != Signalled::Sent {
        assert!(is_alive(member));
        pidfd::kill(member, SignalScope::Process, Signal::KILL)
            .expect("adopted: its number is pinned");
    }
    bury(member);
    assert_eq!(rig.linux.probe(token), Probe::Empty);
    rig.close(token);
    (info.exit, answer)
}

pub(super) fn three() -> Exit {
    Exit::with_code(3, StatusSource::Waitid)
}

#[test]
fn a_sandbox_without_pidfds_learns_exits_by_sigchld_and_says_why() {
    alone(
        "a_sandbox_without_pidfds_learns_exits_by_sigchld_and_says_why",
        module_path!(),
        || {
            adopt_orphans();
            refuse(
                &[
                    libc::SYS_clone3,
                    libc::SYS_pidfd_open,
                    libc::SYS_pidfd_send_signal,
                ],
                libc::EPERM,
            );
            let mut rig = Rig::new(LinuxOptions::default());
            assert_eq!(rig.linux.capabilities().exit, ExitSource::Sigchld);
            assert!(
                rig.linux
                    .capabilities()
                    .exit_why
                    .contains("pidfd_open refused: Operation not permitted (EPERM)"),
                "{:?}",
                rig.linux.capabilities()
            );
            assert_eq!(
                runs(&mut rig),
                (three(), Signalled::NoWay),
                "there is no way that is certain"
            );
            let error = Linux::new(LinuxOptions {
                exit_source: ExitSourceChoice::Pidfd,
                ..LinuxOptions::default()
            })
            .expect_err("insisted on");
            assert_eq!(error.raw_os_error(), Some(libc::EPERM));
        },
    );
}

#[test]
fn a_pidfd_from_clone_needs_no_pidfd_open() {
    alone(
        "a_pidfd_from_clone_needs_no_pidfd_open",
        module_path!(),
        || {
            adopt_orphans();
            for errno in [libc::EPERM, libc::ENOSYS] {
                refuse(&[libc::SYS_pidfd_open], errno);
                let mut rig = Rig::new(LinuxOptions::default());
                let capabilities = rig.linux.capabilities().clone();
                assert_eq!(
                    (capabilities.exit, capabilities.pidfd_open),
                    (ExitSource::Pidfd, false)
                );
                let way = if capabilities.group_signal {
                    Signalled::Sent
                } else {
                    Signalled::NoWay
                };
                assert_eq!(runs(&mut rig), (three(), way));
                assert!(rig.linux.inner.sigchld.is_none());
            }
        },
    );
}

#[test]
fn without_pidfd_send_signal_numbers_that_are_pinned_are_used() {
    alone(
        "without_pidfd_send_signal_numbers_that_are_pinned_are_used",
        module_path!(),
        || {
            adopt_orphans();
            refuse(&[libc::SYS_pidfd_send_signal], libc::ENOSYS);
            let mut rig = Rig::new(LinuxOptions::default());
            let capabilities = rig.linux.capabilities().clone();
            assert_eq!(
                (
                    capabilities.exit,
                    capabilities.pidfd_signal,
                    capabilities.group_signal
                ),
                (ExitSource::Pidfd, false, false)
            );
            let token = rig.start(0, plan(&["sleep", "60"]));
            assert!(matches!(rig.outcome(token), SpawnOutcome::Started));
            assert_eq!(
                rig.linux.signal_leader(token, Signal::STOP),
                Signalled::Sent
            );
            assert_eq!(rig.linux.signal(token, Signal::KILL), Signalled::Sent);
            assert_eq!(
                rig.exit(token, CollectMode::Reap).exit.signal,
                Some(Signal::KILL)
            );
            rig.close(token);
            assert_eq!(runs(&mut rig), (three(), Signalled::NoWay));
        },
    );
}

#[test]
fn without_clone3_children_are_started_and_watched_all_the_same() {
    alone(
        "without_clone3_children_are_started_and_watched_all_the_same",
        module_path!(),
        || {
            adopt_orphans();
            refuse(&[libc::SYS_clone3, libc::SYS_close_range], libc::ENOSYS);
            let mut rig = Rig::new(LinuxOptions::default());
            let capabilities = rig.linux.capabilities().clone();
            assert_eq!(
                (
                    capabilities.exit,
                    capabilities.clone3,
                    capabilities.close_range
                ),
                (ExitSource::Pidfd, false, false)
            );
            assert!(
                capabilities.exit_why.contains("clone3 refused"),
                "{}",
                capabilities.exit_why
            );
            assert_eq!(runs(&mut rig), (three(), Signalled::Sent));
        },
    );
}

#[test]
fn a_child_without_a_pidfd_is_asked_by_number() {
    alone(
        "a_child_without_a_pidfd_is_asked_by_number",
        module_path!(),
        || {
            let mut rig = Rig::new(LinuxOptions::default());
            let token = rig.start(0, sh("exit 3"));
            rig.wait_for(Notice::Exit(token.with(TokenKind::Exit)));
            rig.row(token).pidfd = None;
            assert!(
                matches!(rig.linux.collect(token, CollectMode::Reap), Collected::Ended(info) if info.exit == three())
            );
            rig.close(token);
        },
    );
}

#[test]
fn a_loop_that_cannot_be_built_leaves_nothing() {
    alone(
        "a_loop_that_cannot_be_built_leaves_nothing",
        module_path!(),
        || {
            let options = LinuxOptions {
                fold_deadline: true,
                exit_source: ExitSourceChoice::Sigchld,
                ..LinuxOptions::default()
            };
            drop(Linux::new(options).expect("a kernel"));
            let before = descriptors();
            let low = rustix::process::Rlimit {
                current: Some(64),
                ..rustix::process::getrlimit(rustix::process::Resource::Nofile)
            };
            rustix::process::setrlimit(rustix::process::Resource::Nofile, low)
                .expect("a lower limit");
            let mut taken = Vec::new();
            while let Ok(fd) = rustix::io::dup(rustix::stdio::stderr()) {
                taken.push(fd);
            }
            let mut failures = 0;
            while let Err(e) = Linux::new(options) {
                assert_eq!(e.raw_os_error(), Some(libc::EMFILE), "{e}");
                failures += 1;
                drop(taken.pop().expect("it works with all of them"));
            }
            // The poll set, its waker, its timer, and the pipe of the SIGCHLD handler.
            assert!(failures >= 5, "{failures}");
            drop(taken);
            assert_eq!(descriptors(), before);
        },
    );
}

/// CASES 69.
#[test]
fn a_shortage_of_descriptors_is_not_taken_for_a_missing_call() {
    alone(
        "a_shortage_of_descriptors_is_not_taken_for_a_missing_call",
        module_path!(),
        || {
            let found = |options| Linux::new(options).map(|linux| linux.capabilities().clone());
            let options = LinuxOptions::default();
            let expected = found(options).expect("a kernel");
            let low = rustix::process::Rlimit {
                current: Some(64),
                ..rustix::process::getrlimit(rustix::process::Resource::Nofile)
            };
            rustix::process::setrlimit(rustix::process::Resource::Nofile, low)
                .expect("a lower limit");
            let mut taken = Vec::new();
            while let Ok(fd) = rustix::io::dup(rustix::stdio::stderr()) {
                taken.push(fd);
            }
            while !taken.is_empty() {
                match found(options) {
                    Ok(capabilities) => assert_eq!(capabilities, expected),
                    Err(e) => assert_eq!(e.raw_os_error(), Some(libc::EMFILE), "{e}"),
                }
                taken.pop();
            }
        },
    );
}

#[test]
fn a_proc_that_hides_others_makes_no_list_complete() {
    if !rustix::process::geteuid().is_root() {
        // Mounting /proc takes root. Without it, the present /proc is read, and says whether it
        // hides processes.
        assert!(procfs::Proc::open().is_ok());
        return;
    }
    alone(
        "a_proc_that_hides_others_makes_no_list_complete",
        module_path!(),
        || {
            for (hidepid, hides) in [
                (c"hidepid=0", false),
                (c"hidepid=1", true),
                (c"hidepid=2", true),
            ] {
                if !mount_proc(hidepid) {
                    return;
                }
                become_user(65534);
                let seen = procfs::Proc::open().map(|proc| proc.hides());
                become_user(0);
                assert_eq!(seen, Ok(hides), "{hidepid:?}");
                assert_eq!(
                    procfs::Proc::open().map(|proc| proc.hides()),
                    Ok(false),
                    "root sees all"
                );
            }
        },
    );
}
