//! What a child inherits from its host, and what it does not.

use crate::kernel::linux::spawn::tests::*;
use crate::types::Signal;
use std::os::unix::net::UnixStream;

/// Reads a line of the child's own /proc/self/status.
fn status_line(spawner: &mut Spawner, mut plan: Plan, name: &str) -> u64 {
    plan.program = "/bin/sh".into();
    plan.args = vec!["-c".into(), "exec cat /proc/self/status".into()];
    let text = says(spawner, plan);
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .expect("there");
    u64::from_str_radix(line.trim(), 16).expect("a set")
}

fn ignore(signal: i32) {
    assert_ne!(
        // SAFETY: no handler, in a process of its own or for a signal that the harness ignores
        // anyway.
        unsafe { libc::signal(signal, libc::SIG_IGN) },
        libc::SIG_ERR
    );
}

#[test]
fn what_the_host_ignores_or_blocks_the_child_does_not() {
    in_a_process_of_its_own(|| {
        for signal in [
            libc::SIGPIPE,
            libc::SIGHUP,
            libc::SIGINT,
            libc::SIGTTOU,
            libc::SIGUSR1,
            40,
            64,
        ] {
            ignore(signal);
        }
        let blocked = host_status::SignalsBlocked::new();
        for options in all_options() {
            let mut spawner = Spawner::new(options);
            assert_eq!(
                status_line(&mut spawner, shell(""), "SigIgn:"),
                0,
                "{options:?}"
            );
            assert_eq!(
                status_line(&mut spawner, shell(""), "SigBlk:"),
                0,
                "{options:?}"
            );
        }
        drop(blocked);
    });
}

#[test]
fn what_the_host_ignores_is_found_without_a_proc_too() {
    in_a_process_of_its_own(|| {
        ignore(libc::SIGPIPE);
        ignore(64);
        let mut spawner = Spawner::new(options());
        spawner.proc_status = ProcStatus::unavailable();
        assert_eq!(status_line(&mut spawner, shell(""), "SigIgn:"), 0);
    });
}

#[test]
fn an_ignored_sigchld_is_not_passed_on() {
    in_a_process_of_its_own(|| {
        ignore(libc::SIGCHLD);
        for options in all_options() {
            let mut spawner = Spawner::new(options);
            let (read, write) = pipe();
            let null = null();
            let ends = [
                ChildEnd::Fd(null.as_raw_fd()),
                ChildEnd::Fd(write.as_raw_fd()),
                ChildEnd::Inherit,
            ];
            let launched = spawner
                .launch(
                    &Arc::new(plan("/bin/cat", &["/proc/self/status"])),
                    ends,
                    Inside::default(),
                )
                .expect("starts");
            drop(write);
            let mut text = String::new();
            File::from(read).read_to_string(&mut text).expect("text");
            let line = text
                .lines()
                .find(|line| line.starts_with("SigIgn:"))
                .expect("there")
                .to_owned();
            assert!(line.ends_with("\t0000000000000000"), "{line}");
            spawner.recycle(launched.pending);
        }
    });
}

#[test]
fn signals_are_ignored_by_request() {
    for options in all_options() {
        let mut spawner = Spawner::new(options);
        let mut plan = shell("");
        plan.ignore = vec![Signal::HUP, Signal::PIPE, Signal::QUIT];
        let set = [Signal::HUP, Signal::PIPE, Signal::QUIT]
            .iter()
            .fold(0, |set, s| set | prepare::bit(s.as_raw()));
        assert_eq!(
            status_line(&mut spawner, plan, "SigIgn:"),
            set,
            "{options:?}"
        );
    }
}

#[test]
fn a_child_has_three_descriptors_and_not_the_hosts_socket() {
    in_a_process_of_its_own(|| {
        let (socket, _other) = UnixStream::pair().expect("sockets");
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::empty()).expect("allowed");
        for options in all_options() {
            let mut spawner = Spawner::new(options);
            // The fourth is the directory that ls itself reads.
            assert_eq!(
                says(&mut spawner, plan("/bin/ls", &["/proc/self/fd"])),
                "0\n1\n2\n3",
                "{options:?}"
            );
        }
        refuse(&[(libc::SYS_close_range, libc::ENOSYS)]);
        assert_eq!(
            says(
                &mut Spawner::new(options()),
                plan("/bin/ls", &["/proc/self/fd"])
            ),
            "0\n1\n2\n3"
        );
        let mut plan = plan("/bin/ls", &["/proc/self/fd"]);
        plan.inherit_fds = true;
        let all = says(&mut Spawner::new(options()), plan);
        assert!(
            all.lines().any(|fd| fd == socket.as_raw_fd().to_string()),
            "{all}"
        );
    });
}

#[test]
fn many_descriptors_are_closed_by_list_and_by_counting() {
    in_a_process_of_its_own(|| {
        let null = null();
        let mut open = Vec::new();
        for _ in 0..300 {
            let fd = rustix::io::dup(&null).expect("numbers");
            rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::empty()).expect("allowed");
            open.push(fd);
        }
        let options = SpawnOptions {
            close_range: false,
            ..options()
        };
        assert_eq!(
            says(
                &mut Spawner::new(options),
                plan("/bin/ls", &["/proc/self/fd"])
            ),
            "0\n1\n2\n3"
        );
        // The child cannot list /proc/self/fd, since openat is refused. So ls cannot be used here.
        refuse(&[(libc::SYS_getdents64, libc::ENOSYS)]);
        let script = "for n in 3 4 5 6 7 8 9; do test -e /proc/self/fd/$n && echo $n; done; true";
        assert_eq!(says(&mut Spawner::new(options), shell(script)), "");
    });
}

#[test]
fn descriptors_are_passed_at_their_numbers_even_where_these_collide() {
    in_a_process_of_its_own(|| {
        let scratch = Scratch::new("pass");
        let files: Vec<Arc<OwnedFd>> = (0..4)
            .map(|n| {
                let path = scratch.file(&n.to_string(), format!("file {n}\n").as_bytes(), 0o644);
                Arc::new(OwnedFd::from(File::open(path).expect("written")))
            })
            .collect();
        let numbers: Vec<RawFd> = files.iter().map(|fd| fd.as_raw_fd()).collect();
        // Each stream at the number of another one, and one at its own.
        for turn in 0..files.len() {
            for options in all_options() {
                let targets: Vec<RawFd> = (0..numbers.len())
                    .map(|n| numbers[(n + turn) % numbers.len()])
                    .collect();
                let mut plan =
                    shell("for n in \"$@\"; do cat /dev/fd/$n; done; ls /proc/self/fd | wc -l");
                plan.args.push("sh".into());
                plan.args
                    .extend(targets.iter().map(|n| n.to_string().into()));
                plan.pass = files.iter().cloned().zip(targets).collect();
                let text = says(&mut Spawner::new(options), plan);
                assert_eq!(
                    text, "file 0\nfile 1\nfile 2\nfile 3\n8",
                    "{options:?}, turned by {turn}"
                );
            }
        }
    });
}

/// Only descriptors that the child does not need are closed before exec.
#[test]
fn a_program_and_a_directory_can_be_named_by_a_descriptor_of_the_host() {
    in_a_process_of_its_own(|| {
        let open = |path: &str| OwnedFd::from(File::open(path).expect("there"));
        let (program, usr) = (open("/bin/pwd"), open("/usr"));
        for method in ["/proc/self/fd", "/dev/fd"] {
            for options in all_options() {
                let mut plan = plan(format!("{method}/{}", program.as_raw_fd()), &["-P"]);
                plan.dir = Some(format!("{method}/{}", usr.as_raw_fd()).into());
                assert_eq!(
                    says(&mut Spawner::new(options), plan),
                    "/usr",
                    "{options:?}"
                );
            }
        }
    });
}

#[test]
fn a_descriptor_on_its_way_is_not_put_where_another_one_belongs() {
    in_a_process_of_its_own(|| {
        let scratch = Scratch::new("method");
        let [a, b, c] = ["a", "b", "c"].map(|name| {
            let path = scratch.file(name, format!("file {name}\n").as_bytes(), 0o644);
            Arc::new(OwnedFd::from(File::open(path).expect("written")))
        });
        for options in all_options() {
            let mut spawner = Spawner::new(options);
            // Two change places, so both must be moved away, while a third is put at each of the
            // lowest free numbers.
            for to in 3..20 {
                let (at_a, at_b) = (a.as_raw_fd(), b.as_raw_fd());
                if [at_a, at_b].contains(&to) {
                    continue;
                }
                let mut plan = shell("for n in \"$@\"; do cat /dev/fd/$n; done");
                plan.args.push("sh".into());
                plan.args
                    .extend([to, at_b, at_a].map(|n| n.to_string().into()));
                plan.pass = vec![
                    (Arc::clone(&c), to),
                    (Arc::clone(&a), at_b),
                    (Arc::clone(&b), at_a),
                ];
                assert_eq!(
                    says(&mut spawner, plan),
                    "file c\nfile a\nfile b",
                    "{options:?}, the third at {to}"
                );
            }
        }
    });
}

#[test]
fn a_host_without_streams_gets_its_children_right() {
    in_a_process_of_its_own(|| {
        let stderr =
            rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), 10).expect("a number");
        for closed in 0..8 {
            for fd in (0..3).filter(|fd| closed & (1 << fd) != 0) {
                // SAFETY: nothing of this process uses its streams, the panic hook apart.
                unsafe { libc::close(fd) };
            }
            // The pipe has the lowest numbers.
            for options in all_options() {
                let mut spawner = Spawner::new(options);
                let script =
                    "echo out; echo err >&2; read line; echo $?; ls /proc/self/fd | tr '\\n' ' '";
                let text = says(&mut spawner, shell(script));
                assert_eq!(
                    text, "out\nerr\n1\n0 1 2 3",
                    "closed {closed:03b} {options:?}"
                );
            }
            for fd in 0..3 {
                // SAFETY: back as it was, or at least open.
                unsafe { libc::dup2(stderr.as_raw_fd(), fd) };
            }
        }
    });
}

#[test]
fn a_child_leads_a_group_of_its_own_when_launch_returns() {
    for options in all_options() {
        let mut spawner = Spawner::new(options);
        let null = null();
        let ends = [ChildEnd::Fd(null.as_raw_fd()); 3];
        for _ in 0..20 {
            let mut launched = spawner
                .launch(
                    &Arc::new(plan("/bin/sleep", &["60"])),
                    ends,
                    Inside::default(),
                )
                .expect("starts");
            let pid = Pid::from_raw(launched.pid as i32).expect("a pid");
            assert_eq!(rustix::process::getpgid(Some(pid)), Ok(pid));
            // A signal to the group reaches the child, however far it has come.
            rustix::process::kill_process_group(pid, rustix::process::Signal::KILL)
                .expect("a group");
            assert_eq!(
                std::os::unix::process::ExitStatusExt::signal(&reap(launched.pid)),
                Some(libc::SIGKILL)
            );
            assert!(
                matches!(known(&mut launched.pending), SpawnOutcome::Started),
                "its exit tells the rest"
            );
            spawner.recycle(launched.pending);
        }
    }
}

#[test]
fn directory_umask_limits_arguments_and_variables_arrive() {
    for options in all_options() {
        let mut plan = shell("pwd; umask; ulimit -n; echo \"$0 $1\"; echo \"$LASTWORDS_TEST\"");
        plan.args.extend(["zero".into(), "one two".into()]);
        plan.dir = Some("/usr".into());
        plan.umask = Some(0o027);
        plan.limits = vec![(libc::RLIMIT_NOFILE, 77, 78)];
        plan.env.insert("LASTWORDS_TEST".into(), Some("a=b".into()));
        let text = says(&mut Spawner::new(options), plan);
        assert_eq!(text, "/usr\n0027\n77\nzero one two\na=b", "{options:?}");
    }
    let mut plan = plan("cat", &["/proc/self/cmdline"]);
    plan.arg0 = Some("another name".into());
    assert_eq!(
        says(&mut Spawner::new(options()), plan),
        "another name\0/proc/self/cmdline\0"
    );
}

#[test]
fn a_relative_program_is_looked_for_in_the_childs_directory() {
    let scratch = Scratch::new("relative");
    scratch.file("tool", b"#!/bin/sh\necho \"$0\"\n", 0o755);
    for (program, path, name) in [
        ("./tool", None, "./tool"),
        ("tool", Some(""), "./tool"),
        ("tool", Some("/nowhere:."), "./tool"),
    ] {
        let mut plan = plan(program, &[]);
        plan.dir = Some(scratch.0.clone());
        if let Some(path) = path {
            plan.env.insert("PATH".into(), Some(path.into()));
        }
        assert_eq!(says(&mut Spawner::new(options()), plan), name);
    }
}

/// CASES 70.
#[test]
fn environment_and_path_are_those_of_the_host_at_each_start() {
    in_a_process_of_its_own(|| {
        let set = |name: &str, value: &std::ffi::OsStr| {
            // SAFETY: this copy of the process has one thread.
            unsafe { std::env::set_var(name, value) }
        };
        let mut spawner = Spawner::new(options());
        let shows = shell("echo $LASTWORDS_VARIABLE");
        for value in ["1", "2"] {
            set("LASTWORDS_VARIABLE", value.as_ref());
            assert_eq!(says(&mut spawner, shows.clone()), value);
        }
        let scratch = Scratch::new("path");
        scratch.file("a-tool", b"#!/bin/sh\necho found\n", 0o755);
        let tool = plan("a-tool", &[]);
        let error = output(&mut spawner, tool.clone()).expect_err("not there yet");
        assert_eq!(error.step(), SpawnStep::Find);
        let mut path = std::env::var_os("PATH").unwrap_or_default();
        path.push(":");
        path.push(&scratch.0);
        set("PATH", &path);
        assert_eq!(says(&mut spawner, tool), "found");
    });
}
