//! Streams: order, end of file, closing, stdin, and pipes of kept work.
//!
//! Each test runs in a process of its own: between clone and exec, a child of another test holds
//! copies of all pipes.

use crate::kernel::linux::tests::*;

#[test]
fn bytes_come_in_order_and_none_is_missing() {
    alone(
        "bytes_come_in_order_and_none_is_missing",
        module_path!(),
        || {
            let mut rig = Rig::new(LinuxOptions::default());
            let token = rig.start(0, plan(&["seq", "1", "100000"]));
            let all = rig.rest(token, Stream::Stdout);
            let expected: String = (1..=100_000).map(|n| format!("{n}\n")).collect();
            assert_eq!(all.len(), 588_895);
            assert!(all == expected.as_bytes());
            rig.exit(token, CollectMode::Reap);
            rig.close(token);
        },
    );
}

/// CASES 64. Each read returns one packet, and one edge may stand for many packets.
#[test]
fn packets_of_a_direct_writer_are_all_read_after_one_notice() {
    alone(
        "packets_of_a_direct_writer_are_all_read_after_one_notice",
        module_path!(),
        || {
            for options in ways() {
                let mut rig = Rig::new(options);
                let script = "yes abcd | head -n 8 | dd bs=5 oflag=direct 2>/dev/null; read x";
                let token = rig.start(
                    0,
                    Plan {
                        stdin: StdinPlan::Feed,
                        ..sh(script)
                    },
                );
                rig.outcome(token);
                eventually("all packets are in the pipe", || {
                    let reader = rig.row(token).readers[0].as_ref().expect("captured");
                    rustix::io::ioctl_fionread(&reader.fd) == Ok(40)
                });
                let readable = Notice::Readable(token.with(TokenKind::Output(Stream::Stdout)));
                rig.wait_for(readable);
                let mut all = Vec::new();
                while let (ReadResult::Data { more_available, .. }, bytes) =
                    rig.read(token, Stream::Stdout)
                {
                    all.extend(bytes);
                    if !more_available && !rig.peek().contains(&readable) {
                        break;
                    }
                }
                assert_eq!(all, b"abcd\n".repeat(8), "{options:?}");
                rig.linux.close(token.with(TokenKind::Stdin));
                rig.exit(token, CollectMode::Reap);
                rig.close(token);
            }
        },
    );
}

#[test]
fn a_stream_that_the_child_has_closed_ends_and_wakes_nobody_again() {
    alone(
        "a_stream_that_the_child_has_closed_ends_and_wakes_nobody_again",
        module_path!(),
        || {
            let mut rig = Rig::new(LinuxOptions::default());
            let token = rig.start(
                0,
                Plan {
                    stdin: StdinPlan::Feed,
                    ..sh("exec >&- 2>&-; read x")
                },
            );
            rig.outcome(token);
            for stream in Stream::ALL {
                let what = token.with(TokenKind::Output(stream));
                while rig.read(token, stream).0 != ReadResult::End {
                    rig.wait();
                }
                rig.linux.close(what);
                assert_eq!(rig.read(token, stream).0, ReadResult::Stale);
            }
            assert_eq!(
                rig.peek()
                    .iter()
                    .filter(|n| matches!(n, Notice::Readable(_)))
                    .count(),
                0
            );
            let until = rig.linux.now().after(Ns::from_millis(30));
            rig.linux
                .wait(Until::At(until), &mut rig.notices)
                .expect("wait");
            assert!(
                !rig.notices
                    .as_slice()
                    .iter()
                    .any(|n| matches!(n, Notice::Readable(_) | Notice::Exit(_)))
            );
            rig.linux.close(token.with(TokenKind::Stdin));
            rig.exit(token, CollectMode::Reap);
            rig.close(token);
        },
    );
}

#[test]
fn a_closed_read_end_is_closed_for_the_writer_when_close_returns() {
    alone(
        "a_closed_read_end_is_closed_for_the_writer_when_close_returns",
        module_path!(),
        || {
            for options in ways() {
                let mut rig = Rig::new(options);
                let script = "trap '' PIPE; echo ready; read x; echo more || echo refused >&2";
                let token = rig.start(
                    0,
                    Plan {
                        stdin: StdinPlan::Feed,
                        ..sh(script)
                    },
                );
                assert_eq!(rig.line(token), "ready");
                for _ in 0..2 {
                    rig.linux
                        .close(token.with(TokenKind::Output(Stream::Stdout)));
                }
                assert_eq!(
                    rig.linux.write(token.with(TokenKind::Stdin), b"\n"),
                    Wrote::Took(1)
                );
                rig.exit(token, CollectMode::Reap);
                let bytes = rig.rest(token, Stream::Stderr);
                assert!(
                    String::from_utf8_lossy(&bytes).contains("refused"),
                    "{bytes:?}"
                );
                rig.close(token);
            }
        },
    );
}

#[test]
fn merged_streams_keep_their_order() {
    alone("merged_streams_keep_their_order", module_path!(), || {
        let mut rig = Rig::new(LinuxOptions::default());
        let token = rig.start(
            0,
            Plan {
                stderr: OutputPlan::ToStdout,
                ..sh("echo a; echo b >&2; echo c; echo d >&2")
            },
        );
        rig.exit(token, CollectMode::Reap);
        assert_eq!(rig.rest(token, Stream::Stdout), b"a\nb\nc\nd\n");
        assert_eq!(rig.read(token, Stream::Stderr).0, ReadResult::Stale);
        rig.close(token);
    });
}

#[test]
fn stdin_is_fed_until_it_is_full_and_again_when_there_is_room() {
    alone(
        "stdin_is_fed_until_it_is_full_and_again_when_there_is_room",
        module_path!(),
        || {
            for options in ways() {
                let mut rig = Rig::new(options);
                let token = rig.start(
                    0,
                    Plan {
                        stdin: StdinPlan::Feed,
                        ..plan(&["wc", "-c"])
                    },
                );
                let stdin = token.with(TokenKind::Stdin);
                let mut left = 3_000_000;
                while left > 0 {
                    match rig.linux.write(stdin, &vec![b'x'; left]) {
                        Wrote::Took(n) => left -= n,
                        Wrote::Full => drop(rig.wait_for(Notice::Writable(stdin))),
                        other => panic!("{other:?}"),
                    }
                }
                rig.linux.close(stdin);
                rig.linux.close(stdin);
                assert_eq!(rig.line(token), "3000000");
                rig.exit(token, CollectMode::Reap);
                rig.close(token);
            }
        },
    );
}

#[test]
fn a_stdin_that_nobody_reads_is_told_and_kills_nobody() {
    alone(
        "a_stdin_that_nobody_reads_is_told_and_kills_nobody",
        module_path!(),
        || {
            #[expect(unsafe_code, reason = "what a C host has")]
            // SAFETY: the default action, as in a C host.
            unsafe {
                libc::signal(libc::SIGPIPE, libc::SIG_DFL)
            };
            for nosignal in [false, true] {
                let mut rig = Rig::new(LinuxOptions::default());
                rig.linux.inner.capabilities.nosignal_write &= nosignal;
                let token = rig.start(
                    0,
                    Plan {
                        stdin: StdinPlan::Feed,
                        ..sh("exit 7")
                    },
                );
                assert_eq!(rig.exit(token, CollectMode::Reap).exit.code, Some(7));
                assert_eq!(
                    rig.linux.write(token.with(TokenKind::Stdin), &[0; 100_000]),
                    Wrote::NoReader
                );
                rig.close(token);
            }
        },
    );
}

#[test]
fn raw_ends_go_to_the_host_nonblocking() {
    alone(
        "raw_ends_go_to_the_host_nonblocking",
        module_path!(),
        || {
            let mut rig = Rig::new(LinuxOptions::default());
            let token = rig.token(0);
            let plan = Plan {
                stdin: StdinPlan::Raw,
                stdout: OutputPlan::Raw,
                stderr: OutputPlan::Null,
                ..plan(&["cat"])
            };
            let born = rig.linux.spawn(&Arc::new(plan), token).expect("cat");
            let (stdin, stdout) = (born.stdin.expect("stdin"), born.stdout.expect("stdout"));
            assert!(born.stderr.is_none() && born.pid > 1);
            assert_eq!(
                rustix::io::read(&stdout, &mut [0; 4]),
                Err(rustix::io::Errno::AGAIN)
            );
            rustix::io::write(&stdin, b"hi").expect("write");
            drop(stdin);
            rig.exit(token, CollectMode::Reap);
            let mut buffer = [0; 4];
            assert_eq!(rustix::io::read(&stdout, &mut buffer), Ok(2));
            assert_eq!(rustix::io::read(&stdout, &mut buffer), Ok(0));
            rig.close(token);
        },
    );
}

#[test]
fn kept_work_goes_on_writing_after_its_generation() {
    alone(
        "kept_work_goes_on_writing_after_its_generation",
        module_path!(),
        || {
            for options in ways() {
                let mut rig = Rig::new(options);
                // After its leader has ended, the survivor writes more than a pipe holds, and then
                // reports that.
                let path = std::env::temp_dir().join(format!(
                    "lastwords-linger-{}-{}",
                    std::process::id(),
                    rig.linux.as_raw_fd()
                ));
                let script = format!(
                    "(read x; seq 1 100000; echo $? >'{0}.new'; mv '{0}.new' '{0}') <&3 & echo left",
                    path.display()
                );
                let (hold, release) = read::Pipe::to_child()
                    .map(|p| (p.child_end, p.host_end))
                    .expect("pipe");
                let mut plan = sh(&script);
                plan.pass = vec![(Arc::new(hold), 3)];
                let token = rig.start(0, plan);
                rig.exit(token, CollectMode::Reap);
                assert_eq!(rig.line(token), "left");
                rig.linux.release(token, Release::Linger);
                assert_eq!(rig.read(token, Stream::Stdout).0, ReadResult::Stale);
                rustix::io::write(&release, b"\n").expect("write");
                eventually("the work that was kept ends well", || {
                    assert_eq!(rig.peek(), [], "nobody is told");
                    path.exists()
                });
                assert_eq!(
                    std::fs::read_to_string(&path).expect("its status").trim(),
                    "0"
                );
                std::fs::remove_file(&path).expect("remove");
                eventually("its pipes end", || {
                    rig.peek();
                    rig.linux.inner.lingering.is_empty()
                });
            }
        },
    );
}

#[test]
fn a_stale_token_does_nothing_after_its_slot_was_used_again() {
    alone(
        "a_stale_token_does_nothing_after_its_slot_was_used_again",
        module_path!(),
        || {
            for options in ways() {
                let mut rig = Rig::new(options);
                let old = rig.start(0, plan(&["true"]));
                rig.exit(old, CollectMode::Reap);
                rig.close(old);
                let new = rig.start(
                    0,
                    Plan {
                        stdin: StdinPlan::Feed,
                        ..plan(&["cat"])
                    },
                );
                assert!(matches!(rig.outcome(new), SpawnOutcome::Started));
                for what in [
                    TokenKind::Output(Stream::Stdout),
                    TokenKind::Output(Stream::Stderr),
                    TokenKind::Stdin,
                    TokenKind::Exit,
                    TokenKind::Spawn,
                    TokenKind::Member(0),
                ] {
                    rig.linux.close(old.with(what));
                }
                assert_eq!(rig.linux.signal(old, Signal::KILL), Signalled::NoWay);
                assert_eq!(rig.linux.signal_leader(old, Signal::KILL), Signalled::NoWay);
                assert_eq!(rig.linux.collect(old, CollectMode::Reap), Collected::NotYet);
                assert_eq!(rig.linux.probe(old), Probe::Unknown);
                assert!(matches!(rig.linux.outcome(old), SpawnOutcome::NotYet));
                assert_eq!(
                    rig.linux.write(old.with(TokenKind::Stdin), b"x"),
                    Wrote::Failed(Errno::from_raw(libc::EBADF))
                );
                let released = rig.linux.release(old, Release::HandOver);
                assert!(released.pid == 0 && released.pidfd.is_none());

                assert_eq!(
                    rig.linux.write(new.with(TokenKind::Stdin), b"alive\n"),
                    Wrote::Took(6)
                );
                assert_eq!(rig.line(new), "alive");
                rig.end(new);
            }
        },
    );
}

/// A process that is not root gets at most pipe-max-size (pipe(7)).
#[test]
fn a_capacity_that_is_refused_is_told_as_what_was_had() {
    alone(
        "a_capacity_that_is_refused_is_told_as_what_was_had",
        module_path!(),
        || {
            let most: u32 = std::fs::read_to_string("/proc/sys/fs/pipe-max-size")
                .expect("a /proc")
                .trim()
                .parse()
                .expect("a number");
            let mut rig = Rig::new(LinuxOptions::default());
            let start = |rig: &mut Rig, pipe: Option<u32>| {
                let token = rig.token(0);
                let plan = Plan {
                    stdout: OutputPlan::Capture {
                        pipe,
                        transport: Transport::Pipe,
                    },
                    ..sh("echo out")
                };
                let born = rig.linux.spawn(&Arc::new(plan), token).expect("starts");
                assert_eq!(rig.rest(token, Stream::Stdout), b"out\n");
                rig.exit(token, CollectMode::Reap);
                rig.close(token);
                born.capacities
            };
            assert_eq!(start(&mut rig, None), [None; 2], "nobody asked");
            assert_eq!(start(&mut rig, Some(256 << 10)), [Some(256 << 10), None]);
            if rustix::process::geteuid().is_root() {
                become_user(65_534);
            }
            let [had, _] = start(&mut rig, Some(most.saturating_mul(2)));
            // Less than the default, where the user has too many pipes.
            assert!(
                had.is_some_and(|had| (4096..=64 << 10).contains(&had)),
                "{had:?}"
            );
        },
    );
}
