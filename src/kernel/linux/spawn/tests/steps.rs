//! Every step that can fail, made to fail: the error's step, path and errno, and no leaks.

use crate::command::plan::UserPlan;
use crate::kernel::linux::spawn::tests::*;

/// Fails with the same message by every method, and leaves no process.
fn fails(plan: impl Fn() -> Plan) -> SpawnError {
    let mut errors = all_options().map(|options| {
        let mut spawner = Spawner::new(options);
        output(&mut spawner, plan()).expect_err("must fail")
    });
    let [first, rest @ ..] = &mut errors;
    for other in rest {
        assert_eq!(first.to_string(), other.to_string());
        assert_eq!(first.step(), other.step());
    }
    first.clone()
}

fn facts(error: &SpawnError) -> (SpawnStep, i32, Option<&Path>) {
    (error.step(), error.raw_os_error(), error.path())
}

#[test]
fn a_program_that_is_nowhere_in_path_is_not_found() {
    let error = fails(|| plan("lastwords-no-such-program", &[]));
    assert_eq!(
        facts(&error),
        (
            SpawnStep::Find,
            libc::ENOENT,
            Some(Path::new("lastwords-no-such-program"))
        )
    );
    assert!(error.is_not_found());
}

#[test]
fn a_program_with_a_slash_that_is_not_there_is_not_found() {
    let error = fails(|| plan("/nowhere/program", &[]));
    assert_eq!(
        facts(&error),
        (
            SpawnStep::Exec,
            libc::ENOENT,
            Some(Path::new("/nowhere/program"))
        )
    );
    assert!(error.is_not_found());
    let error = fails(|| plan("/dev/null/program", &[]));
    assert_eq!(
        facts(&error),
        (
            SpawnStep::Exec,
            libc::ENOTDIR,
            Some(Path::new("/dev/null/program"))
        )
    );
}

#[test]
fn a_missing_working_directory_is_named_and_is_not_the_program() {
    let with_dir = |dir: &'static str| {
        move || {
            let mut plan = shell(":");
            plan.dir = Some(dir.into());
            plan
        }
    };
    let error = fails(with_dir("/nowhere/at all"));
    assert_eq!(
        facts(&error),
        (
            SpawnStep::Chdir,
            libc::ENOENT,
            Some(Path::new("/nowhere/at all"))
        )
    );
    assert!(!error.is_not_found());
    let error = fails(with_dir("/dev/null"));
    assert_eq!(
        facts(&error),
        (
            SpawnStep::Chdir,
            libc::ENOTDIR,
            Some(Path::new("/dev/null"))
        )
    );
}

#[test]
fn a_file_without_execute_permission_is_told_so() {
    let scratch = Scratch::new("mode");
    let file = scratch.file("tool", b"#!/bin/sh\n", 0o644);
    let error = fails(|| plan(&file, &[]));
    assert_eq!(facts(&error), (SpawnStep::Exec, libc::EACCES, Some(&*file)));
    assert!(
        error.to_string().contains("no execute permission"),
        "{error}"
    );
    // In PATH a file without permission is remembered, whatever follows.
    let searched = || {
        let mut plan = plan("tool", &[]);
        plan.env.insert(
            "PATH".into(),
            Some(format!("/nowhere:{}:/bin", scratch.0.display()).into()),
        );
        plan
    };
    let error = fails(searched);
    assert_eq!(facts(&error), (SpawnStep::Exec, libc::EACCES, Some(&*file)));
    // A file that may be executed wins, wherever it is.
    let later = Scratch::new("later");
    later.file("tool", b"#!/bin/sh\necho later\n", 0o755);
    for options in all_options() {
        let mut plan = plan("tool", &[]);
        plan.env.insert(
            "PATH".into(),
            Some(format!("{}:{}", scratch.0.display(), later.0.display()).into()),
        );
        assert_eq!(says(&mut Spawner::new(options), plan), "later");
    }
    let error = fails(|| plan("/bin/", &[]));
    assert_eq!(error.raw_os_error(), libc::EACCES);
    assert!(error.to_string().contains("it is a directory"), "{error}");
}

#[test]
fn a_directory_that_may_not_be_searched_is_told_so() {
    let scratch = Scratch::new("search");
    let file = scratch.file("tool", b"#!/bin/sh\n", 0o755);
    let error = fails(|| {
        let mut plan = plan(&file, &[]);
        // Root may search every directory, so another user is needed.
        plan.user.uid = is_root().then_some(65_534);
        std::fs::set_permissions(&scratch.0, std::fs::Permissions::from_mode(0o600)).expect("ours");
        plan
    });
    std::fs::set_permissions(&scratch.0, std::fs::Permissions::from_mode(0o700)).expect("ours");
    assert_eq!(facts(&error), (SpawnStep::Exec, libc::EACCES, Some(&*file)));
    assert!(error.to_string().contains("may not be searched"), "{error}");
}

#[test]
fn a_missing_interpreter_is_named() {
    let scratch = Scratch::new("interpreter");
    let file = scratch.file("tool", b"#!/nowhere/python3 -u\nprint()\n", 0o755);
    for program in [file.as_path(), Path::new("tool")] {
        let error = fails(|| {
            let mut plan = plan(program, &[]);
            plan.env
                .insert("PATH".into(), Some(scratch.0.clone().into()));
            plan
        });
        assert_eq!(facts(&error), (SpawnStep::Exec, libc::ENOENT, Some(&*file)));
        assert!(
            error
                .to_string()
                .contains("the interpreter \"/nowhere/python3\" is missing"),
            "{error}"
        );
        assert!(!error.is_not_found(), "the program was found");
    }
    // Relative to the child's working directory, not the host's.
    let error = fails(|| {
        let mut plan = plan("./tool", &[]);
        plan.dir = Some(scratch.0.clone());
        plan
    });
    assert!(error.to_string().contains("/nowhere/python3"), "{error}");
}

#[test]
fn a_missing_loader_of_a_binary_is_named() {
    let mut binary = std::fs::read("/proc/self/exe").expect("this program");
    let Some(at) = binary.windows(8).position(|bytes| bytes == b"/ld-linu") else {
        println!("skipped: this program has no loader");
        return;
    };
    binary.truncate(1 << 16);
    binary[at + 1..at + 3].copy_from_slice(b"XX");
    let scratch = Scratch::new("loader");
    let file = scratch.file("binary", &binary, 0o755);
    let error = fails(|| plan(&file, &[]));
    assert_eq!(facts(&error), (SpawnStep::Exec, libc::ENOENT, Some(&*file)));
    assert!(error.to_string().contains("/XX-linux"), "{error}");
}

#[test]
fn what_is_no_program_is_told_so() {
    let scratch = Scratch::new("format");
    for (name, text, note) in [
        ("text", &b"echo hello\n"[..], "no #! line"),
        ("empty", b"", "empty"),
        ("elf", b"\x7fELF????", "damaged"),
    ] {
        let file = scratch.file(name, text, 0o755);
        let error = fails(|| plan(&file, &[]));
        assert_eq!(
            facts(&error),
            (SpawnStep::Exec, libc::ENOEXEC, Some(&*file))
        );
        assert!(error.to_string().contains(note), "{error}");
    }
}

#[test]
fn a_busy_file_is_told_so_and_may_be_tried_again() {
    let scratch = Scratch::new("busy");
    let file = scratch.file("tool", b"#!/bin/sh\n", 0o755);
    let writer = File::options().append(true).open(&file).expect("ours");
    let error = fails(|| plan(&file, &[]));
    assert_eq!(
        facts(&error),
        (SpawnStep::Exec, libc::ETXTBSY, Some(&*file))
    );
    assert!(
        error.is_retryable() && error.to_string().contains("open for writing"),
        "{error}"
    );
    drop(writer);
}

#[test]
fn what_is_too_large_is_named_with_its_size_and_without_its_value() {
    let longest = 32 * rustix::param::page_size();
    let with_value = |len: usize| {
        move || {
            let mut plan = shell(":");
            // The size includes `BULKY=`.
            plan.env
                .insert("BULKY".into(), Some("s".repeat(len - 6).into()));
            plan
        }
    };
    let error = fails(with_value(longest));
    assert_eq!(
        (error.step(), error.raw_os_error()),
        (SpawnStep::Exec, libc::E2BIG)
    );
    let sizes = error.largest().expect("told");
    assert_eq!(sizes.largest[0], ("BULKY".to_owned(), longest as u64));
    assert!(sizes.total > longest as u64 && sizes.largest.len() <= 5);
    let text = format!("{error} {error:?}");
    assert!(
        text.contains("BULKY is too long") && !text.contains("sss"),
        "{text}"
    );
    let mut spawner = Spawner::new(options());
    assert!(
        output(&mut spawner, with_value(longest - 1)()).is_ok(),
        "one byte less is not too much"
    );

    let error = fails(|| plan("/bin/sh", &["-c", ":", &"a".repeat(longest)]));
    assert_eq!(
        error.largest().expect("told").largest[0],
        ("argument 3".to_owned(), longest as u64)
    );

    // Too large together, though none alone: 6 MiB is the limit (execve(2)).
    let error = fails(|| {
        let mut plan = shell(":");
        plan.args
            .extend(std::iter::repeat_n("b".repeat(100_000).into(), 80));
        plan
    });
    let sizes = error.largest().expect("told");
    assert!(
        sizes.total > 8_000_000 && sizes.largest.len() == 5,
        "{sizes:?}"
    );
    assert!(error.to_string().contains("together"), "{error}");
}

#[test]
fn a_limit_that_cannot_be_set_is_named() {
    let error = fails(|| {
        let mut plan = shell(":");
        plan.limits = vec![(libc::RLIMIT_CORE, 0, 0), (99, 1, 2)];
        plan
    });
    assert_eq!(
        (error.step(), error.raw_os_error()),
        (SpawnStep::Limits, libc::EINVAL)
    );
    assert!(error.to_string().contains("resource 99"), "{error}");
}

#[test]
fn a_descriptor_beyond_the_limit_is_named_by_its_number() {
    let error = fails(|| {
        let mut plan = shell(":");
        plan.pass = vec![(Arc::new(null().into()), i32::MAX - 1)];
        plan
    });
    assert_eq!(
        (error.step(), error.raw_os_error()),
        (SpawnStep::Descriptors, libc::EBADF)
    );
    assert!(error.to_string().contains("number 2147483646"), "{error}");
}

#[test]
fn a_terminal_that_is_none_is_told() {
    in_a_process_of_its_own(|| {
        // In a session without a controlling terminal.
        rustix::process::setsid().expect("not a leader");
        rustix::stdio::dup2_stdin(null()).expect("allowed");
        let error = fails(|| {
            let mut plan = shell(":");
            plan.foreground_terminal = true;
            plan
        });
        assert_eq!(
            (error.step(), error.raw_os_error()),
            (SpawnStep::Terminal, libc::ENOTTY)
        );
    });
}

#[test]
fn a_refused_group_and_a_refused_user_are_told() {
    in_a_process_of_its_own(|| {
        refuse(&[
            (libc::SYS_setpgid, libc::EPERM),
            (libc::SYS_setgroups, libc::EPERM),
            (libc::SYS_setresuid, libc::EAGAIN),
        ]);
        let error = fails(|| shell(":"));
        assert_eq!(
            (error.step(), error.raw_os_error()),
            (SpawnStep::Group, libc::EPERM)
        );
    });
    in_a_process_of_its_own(|| {
        refuse(&[
            (libc::SYS_setgroups, libc::EPERM),
            (libc::SYS_setresuid, libc::EAGAIN),
        ]);
        // With no group to drop, the refusal of setgroups changes nothing.
        let groups = rustix::process::getgroups().expect("a list");
        let (errno, call) = if groups.is_empty() {
            (libc::EAGAIN, "setresuid")
        } else {
            (libc::EPERM, "setgroups")
        };
        for gid in [Some(1), None] {
            let user = UserPlan { uid: Some(1), gid };
            let error = fails(|| {
                let mut plan = shell(":");
                plan.user = user;
                plan
            });
            assert_eq!(
                (error.step(), error.raw_os_error()),
                (SpawnStep::User, errno)
            );
            assert!(error.to_string().contains(call), "{error}");
        }
    });
}

#[test]
fn a_process_that_cannot_be_made_leaves_nothing() {
    in_a_process_of_its_own(|| {
        refuse(&[
            (libc::SYS_clone3, libc::EAGAIN),
            (libc::SYS_clone, libc::EAGAIN),
        ]);
        for options in all_options() {
            let mut spawner = Spawner::new(options);
            output(&mut spawner, shell(":")).expect_err("refused");
            let before = open_descriptors();
            for _ in 0..100 {
                let error = output(&mut spawner, shell(":")).expect_err("refused");
                assert_eq!(
                    (error.step(), error.raw_os_error()),
                    (SpawnStep::Clone, libc::EAGAIN)
                );
                assert!(error.is_retryable());
            }
            assert_eq!(open_descriptors(), before);
            assert_eq!(spawner.pool.len(), 1, "one stack, used again");
        }
        assert_eq!(
            // SAFETY: asks only.
            unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) },
            -1,
            "no child"
        );
    });
}

#[test]
fn too_few_descriptors_are_an_error_that_leaves_nothing() {
    in_a_process_of_its_own(|| {
        let mut spawner = Spawner::new(SpawnOptions {
            vfork: true,
            ..options()
        });
        let null = null();
        let plan = Arc::new(shell(":"));
        let mut taken = Vec::new();
        while let Ok(fd) = rustix::io::fcntl_dupfd_cloexec(&null, 0) {
            taken.push(fd);
        }
        let error = spawner
            .launch(
                &plan,
                [ChildEnd::Fd(null.as_raw_fd()); 3],
                Inside::default(),
            )
            .expect_err("no pipe");
        assert_eq!(
            (error.step(), error.raw_os_error()),
            (SpawnStep::Pipe, libc::EMFILE)
        );
        // The pidfd that clone3 makes.
        let error = Spawner::new(free())
            .launch(
                &plan,
                [ChildEnd::Fd(null.as_raw_fd()); 3],
                Inside::default(),
            )
            .expect_err("no pidfd");
        assert_eq!(
            (error.step(), error.raw_os_error()),
            (SpawnStep::Clone, libc::EMFILE)
        );
        assert_eq!(
            // SAFETY: asks only.
            unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) },
            -1,
            "no child"
        );
    });
}
