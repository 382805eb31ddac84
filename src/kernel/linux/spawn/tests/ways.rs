//! The methods by which a child is made, and what each promises the host.

use crate::command::plan::UserPlan;
use crate::kernel::linux::spawn::tests::*;
use crate::types::Signal;

pub(super) fn method(spawner: &mut Spawner, plan: Plan) -> CloneMethod {
    let null = null();
    let mut launched = spawner
        .launch(
            &Arc::new(plan),
            [ChildEnd::Fd(null.as_raw_fd()); 3],
            Inside::default(),
        )
        .expect("starts");
    assert!(matches!(
        known(&mut launched.pending),
        SpawnOutcome::Started
    ));
    assert!(reap(launched.pid).success());
    let method = launched.method;
    spawner.recycle(launched.pending);
    method
}

#[test]
fn a_kernel_or_filter_without_clone3_is_served_by_vfork() {
    for errno in [libc::ENOSYS, libc::EPERM] {
        in_a_process_of_its_own(|| {
            let mut spawner = Spawner::new(free());
            let untraced = method(&mut spawner, shell(":"));
            refuse(&[(libc::SYS_clone3, errno)]);
            assert_eq!(method(&mut spawner, shell(":")), CloneMethod::Vfork);
            assert!(!spawner.options.clone3, "not tried again");
            assert!(matches!(untraced, CloneMethod::NoWait | CloneMethod::Vfork));
        });
    }
}

/// Attaches to the host as a tracer, reports whether it could, and continues the host at each stop
/// with the signal that stopped it. Does not return.
fn trace(host: i32, told: &OwnedFd) -> ! {
    // SAFETY: attaches without stopping it.
    let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, host, 0, 0) };
    let _ = rustix::io::write(told, &[u8::from(seized == 0)]);
    let mut status = 0;
    // SAFETY: waits for the tracee.
    while unsafe { libc::waitpid(host, &raw mut status, 0) } == host && libc::WIFSTOPPED(status) {
        // SAFETY: it is stopped.
        unsafe { libc::ptrace(libc::PTRACE_CONT, host, 0, libc::WSTOPSIG(status)) };
    }
    // SAFETY: ends this copy.
    unsafe { libc::_exit(0) }
}

#[test]
fn a_debugger_is_noticed() {
    in_a_process_of_its_own(|| {
        let host = std::process::id() as i32;
        let (read, write) = pipe();
        // SAFETY: the copy makes two calls and ends.
        let tracer = unsafe { libc::fork() };
        if tracer == 0 {
            trace(host, &write);
        }
        let mut seized = [0];
        File::from(read).read_exact(&mut seized).expect("told");
        if seized == [1] {
            assert_eq!(
                method(&mut Spawner::new(free()), shell(":")),
                CloneMethod::Vfork
            );
        } else {
            println!("skipped: tracing is not allowed here, or is being done already");
        }
        // SAFETY: our own child, not reaped.
        unsafe { libc::kill(tracer, libc::SIGKILL) };
    });
}

#[test]
fn a_child_of_another_user_leaves_the_host_as_it_was() {
    if !is_root() {
        println!("skipped: only root can become another user");
        return;
    }
    in_a_process_of_its_own(|| {
        for options in all_options() {
            let mut spawner = Spawner::new(options);
            let mut plan = shell("id -u; id -g; id -G");
            plan.user = UserPlan {
                uid: Some(65_534),
                gid: Some(65_533),
            };
            assert_eq!(
                says(&mut spawner, plan),
                "65534\n65533\n65533",
                "{options:?}"
            );
            let mut plan = shell(":");
            plan.user = UserPlan {
                uid: None,
                gid: Some(65_533),
            };
            assert_eq!(method(&mut spawner, plan), CloneMethod::Fork);
            assert_eq!(
                // SAFETY: asks only.
                unsafe { libc::prctl(libc::PR_GET_DUMPABLE) },
                1,
                "{options:?}"
            );
        }
        assert_eq!(rustix::process::getuid().as_raw(), 0);
    });
}

#[test]
fn the_signal_at_the_parents_death_survives_a_change_of_user() {
    in_a_process_of_its_own(|| {
        for uid in [None, is_root().then_some(65_534)] {
            let (read, write) = pipe();
            // SAFETY: the copy spawns, and ends without its destructors.
            let parent = unsafe { libc::fork() };
            if parent == 0 {
                let mut plan = plan("/bin/sleep", &["600"]);
                plan.parent_death = Some(Signal::KILL);
                plan.user.uid = uid;
                let null = null();
                let ends = [
                    ChildEnd::Fd(null.as_raw_fd()),
                    ChildEnd::Fd(write.as_raw_fd()),
                    ChildEnd::Inherit,
                ];
                let mut launched = Spawner::new(free())
                    .launch(&plan, ends, Inside::default())
                    .expect("starts");
                assert!(matches!(
                    known(&mut launched.pending),
                    SpawnOutcome::Started
                ));
                // SAFETY: ends the copy.
                unsafe { libc::_exit(0) };
            }
            drop(write);
            // End of file comes when the child is dead; without the signal that takes ten minutes.
            assert_eq!(File::from(read).read(&mut [0]).expect("readable"), 0);
        }
    });
}

#[test]
fn the_childs_group_becomes_the_terminals_foreground() {
    in_a_process_of_its_own(|| {
        let terminal = terminal();
        let (master, slave) = (&terminal.0, &terminal.1);
        rustix::process::setsid().expect("not a leader");
        assert_eq!(
            // SAFETY: makes it this session's terminal.
            unsafe { libc::ioctl(slave.as_raw_fd(), libc::TIOCSCTTY, 0) },
            0
        );
        rustix::stdio::dup2_stdin(slave).expect("allowed");
        for options in all_options() {
            let mut plan = plan("/bin/sleep", &["600"]);
            plan.foreground_terminal = true;
            let ends = [ChildEnd::Inherit, ChildEnd::Inherit, ChildEnd::Inherit];
            let mut launched = Spawner::new(options)
                .launch(&plan, ends, Inside::default())
                .expect("starts");
            assert!(
                matches!(known(&mut launched.pending), SpawnOutcome::Started),
                "{options:?}"
            );
            let group = rustix::termios::tcgetpgrp(master).expect("a terminal");
            assert_eq!(
                group.as_raw_nonzero().get() as u32,
                launched.pid,
                "{options:?}"
            );
            // ^C on the terminal reaches the child.
            rustix::io::write(master, b"\x03").expect("a terminal");
            assert_eq!(
                std::os::unix::process::ExitStatusExt::signal(&reap(launched.pid)),
                Some(libc::SIGINT)
            );
        }
        // Closing the terminal would hang up on this process, which leads its session.
        std::mem::forget(terminal);
    });
}

/// Master and slave of a new terminal.
fn terminal() -> (OwnedFd, File) {
    // SAFETY: opens a descriptor.
    let master = unsafe { libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC) };
    assert!(master >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: just opened, owned by nobody else.
    let master = unsafe { OwnedFd::from_raw_fd(master) };
    // SAFETY: an open terminal.
    assert_eq!(unsafe { libc::unlockpt(master.as_raw_fd()) }, 0);
    let mut name = [0_u8; 64];
    assert_eq!(
        // SAFETY: the buffer's own length.
        unsafe { libc::ptsname_r(master.as_raw_fd(), name.as_mut_ptr().cast(), name.len()) },
        0
    );
    let name = std::ffi::CStr::from_bytes_until_nul(&name)
        .expect("a name")
        .to_str()
        .expect("ASCII");
    let mut how = File::options();
    std::os::unix::fs::OpenOptionsExt::custom_flags(how.read(true).write(true), libc::O_NOCTTY);
    (master, how.open(name).expect("unlocked"))
}

/// Holds every exec of a file until it is released, by a lease (fcntl(2), F_SETLEASE): whoever
/// opens the file waits until the lease is given up.
struct Held {
    file: File,
    path: PathBuf,
    scratch: Scratch,
}

/// F_SETSIG of fcntl(2), which libc does not define for every target.
const F_SETSIG: i32 = 10;

impl Held {
    fn new(name: &str) -> Option<Held> {
        let scratch = Scratch::new(name);
        let path = scratch.file("tool", b"#!/bin/sh\nexit 5\n", 0o755);
        let file = File::open(&path).expect("ours");
        let held = Held {
            file,
            path,
            scratch,
        };
        match held.hold() {
            Ok(()) => Some(held),
            Err(e) => {
                println!("skipped: no leases here: {e}");
                None
            }
        }
    }

    fn hold(&self) -> std::io::Result<()> {
        // The holder of a lease is told by a signal: SIGURG is ignored by default, while SIGIO
        // would end the process. Giving up the lease forgets this setting.
        // SAFETY: integers only.
        unsafe { libc::fcntl(self.file.as_raw_fd(), F_SETSIG, libc::SIGURG) };
        // SAFETY: integers only.
        let leased = unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) };
        if leased == 0 {
            Ok(())
        } else {
            Err(std::io::Error::last_os_error())
        }
    }

    fn let_go(&self) {
        assert_eq!(
            // SAFETY: integers only.
            unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) },
            0
        );
    }
}

/// False where every spawn waits for exec, since a test that holds exec would wait too.
fn is_free(spawner: &mut Spawner) -> bool {
    let free = method(spawner, shell(":")) == CloneMethod::NoWait;
    if !free {
        println!("skipped: clone3 is refused here, or a tracer is attached");
    }
    free
}

#[test]
fn launch_does_not_wait_for_exec() {
    in_a_process_of_its_own(|| {
        let Some(held) = Held::new("held") else {
            return;
        };
        let mut spawner = Spawner::new(free());
        if !is_free(&mut spawner) {
            return;
        }
        let null = null();
        let mut launched = spawner
            .launch(
                &Arc::new(plan(&held.path, &[])),
                [ChildEnd::Fd(null.as_raw_fd()); 3],
                Inside::default(),
            )
            .expect("starts");
        // `launch` has returned, though exec cannot have happened.
        launched.pending.wait(Some(Duration::from_millis(50)));
        assert!(matches!(launched.pending.outcome(), SpawnOutcome::NotYet));
        held.let_go();
        assert!(matches!(
            known(&mut launched.pending),
            SpawnOutcome::Started
        ));
        assert_eq!(reap(launched.pid).code(), Some(5));
        spawner.recycle(launched.pending);
    });
}

/// CASES 75. Before Linux 5.16 a core-dumping signal ends every process that shares the memory.
#[test]
fn a_core_dumping_signal_before_exec_ends_the_child_alone_and_dumps_nothing() {
    in_a_process_of_its_own(|| {
        let Some(held) = Held::new("dumped") else {
            return;
        };
        let mut spawner = Spawner::new(free());
        if !is_free(&mut spawner) {
            return;
        }
        let null = null();
        for signal in [libc::SIGQUIT, libc::SIGSEGV, libc::SIGABRT, libc::SIGXCPU] {
            let mut launched = spawner
                .launch(
                    &plan(&held.path, &[]),
                    [ChildEnd::Fd(null.as_raw_fd()); 3],
                    Inside::default(),
                )
                .expect("starts");
            // SAFETY: our own child, not reaped.
            unsafe { libc::kill(launched.pid as i32, signal) };
            let status = reap(launched.pid);
            assert_eq!(status.code(), Some(128 + signal), "{status}");
            assert!(!matches!(
                known(&mut launched.pending),
                SpawnOutcome::NotYet
            ));
            spawner.recycle(launched.pending);
        }
        held.let_go();
    });
}

/// CASES 74. The child's terminal is used, whatever the host has as descriptor 0.
#[test]
fn a_child_with_a_terminal_of_its_own_becomes_its_foreground() {
    in_a_process_of_its_own(|| {
        let terminal = terminal();
        let (master, slave) = (&terminal.0, &terminal.1);
        rustix::process::setsid().expect("not a leader");
        assert_eq!(
            // SAFETY: makes it this session's terminal.
            unsafe { libc::ioctl(slave.as_raw_fd(), libc::TIOCSCTTY, 0) },
            0
        );
        let null = null();
        rustix::stdio::dup2_stdin(&null).expect("allowed");
        let to_slave = ChildEnd::Fd(slave.as_raw_fd());
        let to_null = ChildEnd::Fd(null.as_raw_fd());
        // The terminal is one of its streams, or only its controlling terminal.
        for ends in [
            [to_slave, to_null, to_null],
            [to_null, to_null, to_slave],
            [to_null, to_null, to_null],
        ] {
            let mut plan = plan("/bin/sleep", &["600"]);
            plan.foreground_terminal = true;
            let mut launched = Spawner::new(options())
                .launch(&plan, ends, Inside::default())
                .expect("starts");
            let outcome = known(&mut launched.pending);
            assert!(matches!(outcome, SpawnOutcome::Started), "{outcome:?}");
            let group = rustix::termios::tcgetpgrp(master).expect("a terminal");
            assert_eq!(group.as_raw_nonzero().get() as u32, launched.pid);
            rustix::io::write(master, b"\x03").expect("a terminal");
            assert_eq!(
                std::os::unix::process::ExitStatusExt::signal(&reap(launched.pid)),
                Some(libc::SIGINT)
            );
        }
        // Closing the terminal would hang up on this process, which leads its session.
        std::mem::forget(terminal);
    });
}

/// CASES 73.
#[test]
fn a_change_of_user_drops_the_groups_and_ones_own_group_takes_no_privilege() {
    let own_gid = rustix::process::getgid().as_raw();
    in_a_process_of_its_own(|| {
        if is_root() {
            let groups = [4, 27].map(|gid| libc::gid_t::try_from(gid).expect("small"));
            assert_eq!(
                // SAFETY: two groups are read.
                unsafe { libc::setgroups(groups.len(), groups.as_ptr()) },
                0
            );
            let mut plan = shell("id -G");
            plan.user.uid = Some(65_534);
            assert_eq!(
                says(&mut Spawner::new(options()), plan),
                own_gid.to_string()
            );
            // SAFETY: this copy of the process is somebody else from here on.
            unsafe { libc::setresuid(65_533, 65_533, 65_533) };
        }
        let mut plan = shell("id -g");
        plan.user.gid = Some(own_gid);
        assert_eq!(
            says(&mut Spawner::new(options()), plan),
            own_gid.to_string()
        );
    });
}

#[test]
fn memory_that_a_child_still_uses_is_not_given_free() {
    in_a_process_of_its_own(|| {
        let Some(held) = Held::new("leaked") else {
            return;
        };
        let mut spawner = Spawner::new(free());
        if !is_free(&mut spawner) {
            return;
        }
        spawner.pool.clear();
        let null = null();
        let ends = [ChildEnd::Fd(null.as_raw_fd()); 3];
        for recycled in [false, true] {
            let launched = spawner
                .launch(
                    &Arc::new(plan(&held.path, &["argument"])),
                    ends,
                    Inside::default(),
                )
                .expect("starts");
            if recycled {
                spawner.recycle(launched.pending);
            } else {
                drop(launched.pending);
            }
            assert!(spawner.pool.is_empty());
            held.let_go();
            // Stack, arguments and variables were still there, since it has found its program.
            assert_eq!(reap(launched.pid).code(), Some(5));
            spawner.reclaim();
            assert_eq!(
                spawner.pool.len(),
                usize::from(recycled),
                "free when it is free"
            );
            held.hold().expect("as before");
        }
        drop(spawner);
    });
}

#[test]
fn a_slot_is_cleared_before_exec() {
    in_a_process_of_its_own(|| {
        let Some(held) = Held::new("fd_slot") else {
            return;
        };
        let (mut spawner, _filled) = with_many_descriptors();
        if !is_free(&mut spawner) {
            return;
        }
        let null = null();
        let mut launched = spawner
            .launch(
                &captured(plan(&held.path, &[])),
                [ChildEnd::Fd(null.as_raw_fd()); 3],
                Inside::default(),
            )
            .expect("starts");
        assert!(launched.pending.is_fd_slot_filled());
        let end = std::time::Instant::now() + LONG;
        while launched.pending.is_fd_slot_filled() && std::time::Instant::now() < end {
            assert!(
                matches!(launched.pending.outcome(), SpawnOutcome::NotYet),
                "exec is held"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!launched.pending.is_fd_slot_filled());
        held.let_go();
        assert_eq!(reap(launched.pid).code(), Some(5));
    });
}

#[test]
fn a_spawn_that_waits_does_not_wait_for_a_fork_of_the_host() {
    if !is_root() {
        println!("skipped: only root can become another user");
        return;
    }
    in_a_process_of_its_own(|| {
        let Some(held) = Held::new("forked") else {
            return;
        };
        std::fs::set_permissions(&held.scratch.0, std::fs::Permissions::from_mode(0o755))
            .expect("ours");
        let mut plan = plan(&held.path, &[]);
        plan.user.uid = Some(65_534);
        let launching = std::thread::spawn(move || {
            let null = null();
            let launched = Spawner::new(free())
                .launch(
                    &Arc::new(plan),
                    [ChildEnd::Fd(null.as_raw_fd()); 3],
                    Inside::default(),
                )
                .expect("starts");
            assert_eq!(launched.method, CloneMethod::Fork);
            reap(launched.pid).code()
        });
        // Gives the child time to reach the exec that is held.
        std::thread::sleep(Duration::from_millis(300));
        // SAFETY: the copy, which has a copy of everything the spawn has open, only sleeps.
        let copy = unsafe { libc::fork() };
        if copy == 0 {
            loop {
                // SAFETY: until it is killed.
                unsafe { libc::pause() };
            }
        }
        held.let_go();
        assert_eq!(launching.join().expect("no panic"), Some(5));
        rustix::process::kill_process(
            Pid::from_raw(copy).expect("a pid"),
            rustix::process::Signal::KILL,
        )
        .expect("ours");
        reap(copy as u32);
    });
}
