//! Scans of /proc for members and holders, and watches of members.

use crate::kernel::Found;
use crate::kernel::linux::tests::*;
use crate::types::{Holder, MemberWatch};
use std::collections::BTreeMap;

impl Rig {
    /// Scans once: what was found, whether it is complete, and the number of slices.
    fn scan_all(
        &mut self,
        id: u64,
        members: &[Token],
        holders: &[Token],
    ) -> (Vec<Found>, bool, usize) {
        let mut scan = Scan {
            id,
            members: members.to_vec(),
            holders: holders.to_vec(),
            budget: limits::SCAN_BUDGET,
            ..Scan::default()
        };
        let mut slices = 1;
        loop {
            match self.linux.scan(&mut scan) {
                ScanStep::More => slices += 1,
                ScanStep::Done {
                    members: m,
                    holders: h,
                } => {
                    return (
                        scan.found,
                        scan.doubtful.is_empty()
                            && (members.is_empty() || m)
                            && (holders.is_empty() || h),
                        slices,
                    );
                }
            }
        }
    }

    fn members(&mut self, token: Token) -> Vec<Member> {
        let (mut found, mut complete, _) = self.scan_all(1, &[token], &[]);
        if found.is_empty() && !complete {
            // No member, though the group's number is in use. The next scan proves it by meeting
            // the same zombies.
            (found, complete, _) = self.scan_all(3, &[token], &[]);
        }
        assert!(complete || !rustix::process::geteuid().is_root());
        found
            .into_iter()
            .map(|found| match found {
                Found::Member(of, member) if of == token => member,
                other => panic!("{other:?}"),
            })
            .collect()
    }

    fn holders(&mut self, tokens: &[Token]) -> BTreeMap<u32, Vec<(Token, Holder)>> {
        let mut all: BTreeMap<u32, Vec<(Token, Holder)>> = BTreeMap::new();
        for found in self.scan_all(2, &[], tokens).0 {
            match found {
                Found::Holder(token, holder) => {
                    all.entry(holder.pid).or_default().push((token, holder))
                }
                other @ Found::Member(..) => panic!("{other:?}"),
            }
        }
        all
    }
}

#[test]
fn members_are_found_alive_and_without_their_leader() {
    for options in ways() {
        let mut rig = Rig::new(options);
        let script = "sleep 61 & sleep 62 & sh -c 'exit 0' & setsid sleep 1 & echo $!; read x";
        let token = rig.start(
            0,
            Plan {
                stdin: StdinPlan::Feed,
                ..sh(script)
            },
        );
        let escaped: u32 = rig.line(token).parse().expect("a pid");
        let leader = rig.pid(token);
        assert!(
            rig.members(token).iter().any(|m| m.who.pid == leader),
            "a leader that lives is one of them"
        );
        rig.linux.close(token.with(TokenKind::Stdin));
        rig.exit(token, CollectMode::KeepZombie);
        let mut members = Vec::new();
        eventually(
            "both have executed their program, and the others are gone",
            || {
                members = rig.members(token);
                members.len() == 2 && members.iter().all(|m| m.who.comm == "sleep")
            },
        );
        for member in &members {
            assert!(member.who.state.is_ascii_alphabetic());
            assert!(member.who.pid != leader && member.who.pid != escaped);
            assert!(member.who.age < LONG && member.start > 0);
        }
        rig.linux.collect(token, CollectMode::Reap);
        assert_eq!(rig.members(token).len(), 2);
        assert_eq!(rig.linux.signal(token, Signal::KILL), Signalled::Sent);
        eventually("nobody is left", || rig.members(token).is_empty());
        rig.close(token);
    }
}

#[test]
fn a_leader_that_ended_and_is_not_collected_is_no_member() {
    let mut rig = Rig::new(LinuxOptions::default());
    let token = rig.start(0, plan(&["true"]));
    rig.wait_for(Notice::Exit(token.with(TokenKind::Exit)));
    assert_eq!(rig.members(token), []);
    rig.linux.collect(token, CollectMode::Reap);
    rig.close(token);
}

#[test]
fn one_scan_serves_many_generations_in_slices() {
    let mut rig = Rig::new(LinuxOptions::default());
    let tokens: Vec<Token> = (0..5)
        .map(|slot| rig.start(slot, sh("sleep 60 & exec sleep 60")))
        .collect();
    let stale = rig.token(9);
    for token in &tokens {
        rig.outcome(*token);
    }
    let mut wanted = tokens.clone();
    wanted.push(stale);
    let mut per_token: BTreeMap<u32, usize> = BTreeMap::new();
    eventually("all of them are found", || {
        per_token.clear();
        let (found, ..) = rig.scan_all(1, &wanted, &[]);
        for found in found {
            let Found::Member(token, _) = found else {
                panic!("{found:?}")
            };
            *per_token.entry(token.slot().0).or_default() += 1;
        }
        per_token.values().sum::<usize>() == 10
    });
    assert_eq!(
        per_token.into_iter().collect::<Vec<_>>(),
        (0..5).map(|slot| (slot, 2)).collect::<Vec<_>>()
    );
    let mut scan = Scan {
        id: 7,
        members: wanted,
        budget: 1,
        ..Scan::default()
    };
    let mut slices = 0;
    while rig.linux.scan(&mut scan) == ScanStep::More {
        slices += 1;
    }
    assert!(
        slices > 10,
        "a budget of one process makes many slices, not {slices}"
    );
    tokens.into_iter().for_each(|token| rig.end(token));
}

#[test]
fn a_new_scan_starts_over() {
    let mut rig = Rig::new(LinuxOptions::default());
    let token = rig.start(0, sh("sleep 60 & exec sleep 60"));
    rig.outcome(token);
    eventually("both are there", || rig.members(token).len() == 2);
    let mut scan = Scan {
        id: 10,
        members: vec![token],
        budget: 1,
        ..Scan::default()
    };
    assert_eq!(rig.linux.scan(&mut scan), ScanStep::More);
    assert_eq!(rig.members(token).len(), 2, "another id");
    rig.end(token);
}

#[test]
fn holders_are_those_who_can_write() {
    for options in ways() {
        let mut rig = Rig::new(options);
        // The first sleep holds stderr alone, the second both streams; `reader` below has only the
        // read end, opened through /proc. The leader has ended.
        let script = "sleep 61 >/dev/null & setsid sleep 62 & read x <&- ; echo $$";
        let token = rig.start(0, sh(script));
        rig.exit(token, CollectMode::Reap);
        let path = format!(
            "/proc/self/fd/{}",
            rig.row(token).readers[1]
                .as_ref()
                .expect("stderr")
                .fd
                .as_raw_fd()
        );
        let read_end = std::fs::File::open(&path).expect("the read end once more");
        let mut reader = std::process::Command::new("sleep")
            .arg("60")
            .stdin(read_end)
            .spawn()
            .expect("sleep");
        let other = rig.start(1, plan(&["sleep", "60"]));
        rig.outcome(other);
        let mut holders = BTreeMap::new();
        eventually("both have executed their program", || {
            holders = rig.holders(&[token, other]);
            holders
                .values()
                .flatten()
                .filter(|(_, h)| h.comm == "sleep")
                .count()
                == 2
        });
        let streams: Vec<Vec<Stream>> = holders
            .values()
            .flatten()
            .map(|(of, h)| {
                assert_eq!(*of, token);
                h.streams.clone()
            })
            .collect();
        assert_eq!(streams.len(), 2, "{holders:?}");
        assert!(
            streams.contains(&vec![Stream::Stderr])
                && streams.contains(&vec![Stream::Stdout, Stream::Stderr])
        );
        assert!(!holders.contains_key(&reader.id()) && !holders.contains_key(&std::process::id()));
        for pid in holders.keys() {
            let fd = pidfd::open(*pid).expect("pidfd");
            pidfd::send(fd.as_fd(), Some(Signal::KILL), SignalScope::Process).expect("kill");
        }
        eventually("nobody holds it", || rig.holders(&[token]).is_empty());
        reader.kill().expect("kill");
        reader.wait().expect("wait");
        rig.end(other);
        rig.close(token);
    }
}

#[test]
fn a_process_with_many_descriptors_is_looked_at_in_slices() {
    alone(
        "a_process_with_many_descriptors_is_looked_at_in_slices",
        module_path!(),
        || {
            let mut rig = Rig::new(LinuxOptions::default());
            let token = rig.start(0, plan(&["sleep", "60"]));
            rig.outcome(token);
            // The holder has the write end and a thousand other descriptors.
            let end = std::fs::File::options()
                .write(true)
                .open(format!(
                    "/proc/self/fd/{}",
                    rig.row(token).readers[0]
                        .as_ref()
                        .expect("stdout")
                        .fd
                        .as_raw_fd()
                ))
                .expect("a write end");
            let many: Vec<std::fs::File> = (0..1000)
                .map(|_| std::fs::File::open("/dev/null").expect("open"))
                .collect();
            let mut plan = plan(&["sleep", "60"]);
            plan.stdin = StdinPlan::Fd(Arc::new(end.into()));
            plan.pass = many
                .into_iter()
                .zip(10..)
                .map(|(file, number)| (Arc::new(file.into()), number))
                .collect();
            let holder = rig.start(1, plan);
            rig.outcome(holder);
            let pid = rig.pid(holder);
            assert_eq!(
                rig.holders(&[token]).keys().copied().collect::<Vec<_>>(),
                [pid]
            );
            // Its descriptors alone take this many slices.
            let (.., slices) = rig.scan_all(3, &[], &[token]);
            assert!(slices > 1000 * 2 / (limits::SCAN_BUDGET * 3), "{slices}");
            rig.end(holder);
            rig.end(token);
        },
    );
}

#[test]
fn a_process_whose_main_thread_has_ended_is_alive_and_holds() {
    let script = "import ctypes, os, threading, time\n\
                  threading.Thread(target=time.sleep, args=(60,)).start()\n\
                  print('up', flush=True)\n\
                  ctypes.CDLL(None).syscall(60, 0)\n";
    if std::process::Command::new("python3")
        .arg("--version")
        .output()
        .is_err()
        || !cfg!(target_arch = "x86_64")
    {
        // This test needs a program that ends its main thread alone. Without one the parser is
        // tested.
        assert!(
            procfs::Stat::parse(b"1 (x) Z 1 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0 2 0 5 ")
                .is_some_and(|stat| stat.is_alive())
        );
        return;
    }
    let mut rig = Rig::new(LinuxOptions::default());
    let token = rig.start(0, plan(&["python3", "-c", script]));
    assert_eq!(rig.line(token), "up");
    let mut members = Vec::new();
    eventually("its main thread has ended", || {
        members = rig.members(token);
        members.first().is_some_and(|m| m.who.state == 'Z')
    });
    assert_eq!(members.len(), 1);
    assert_eq!(
        rig.linux.collect(token, CollectMode::Reap),
        Collected::NotYet
    );
    // A leader is no holder of its own streams unless it was reaped.
    let pid = rig.pid(token);
    rig.row(token).leader = LeaderState::Reaped;
    assert!(rig.holders(&[token]).contains_key(&pid));
    rig.row(token).leader = LeaderState::Running;
    rig.end(token);
}

#[test]
fn a_watched_member_is_told_once_when_it_ends() {
    alone(
        "a_watched_member_is_told_once_when_it_ends",
        module_path!(),
        || {
            adopt_orphans();
            let mut rig = Rig::new(LinuxOptions::default());
            assert_eq!(rig.linux.capabilities().members, MemberWatch::Pidfd);
            let token = rig.start(0, sh("sleep 61 & sleep 62 & echo ready"));
            rig.exit(token, CollectMode::Reap);
            let mut members = Vec::new();
            eventually("both are asleep", || {
                members = rig.members(token);
                members.iter().filter(|m| m.who.comm == "sleep").count() == 2
            });
            for (place, member) in (0..).zip(&members) {
                assert_eq!(
                    rig.linux
                        .watch(member, token.with(TokenKind::Member(place))),
                    Ok(())
                );
            }
            let mistaken = Member {
                start: members[0].start + 1,
                ..members[0].clone()
            };
            assert_eq!(
                rig.linux.watch(&mistaken, token.with(TokenKind::Member(5))),
                Err(Errno::from_raw(libc::ESRCH)),
                "another process"
            );
            rig.linux.close(token.with(TokenKind::Member(1)));
            assert_eq!(rig.linux.signal(token, Signal::KILL), Signalled::Sent);
            rig.wait_for(Notice::MemberGone(token.with(TokenKind::Member(0))));
            members.iter().for_each(|member| bury(member.who.pid));
            assert_eq!(rig.linux.probe(token), Probe::Empty);
            assert!(
                !rig.peek()
                    .iter()
                    .any(|n| matches!(n, Notice::MemberGone(_))),
                "once, and not for the one that is watched no more"
            );
            assert_eq!(
                rig.linux
                    .watch(&members[0], token.with(TokenKind::Member(0))),
                Err(Errno::from_raw(libc::ESRCH))
            );
            rig.linux.inner.capabilities.pidfd_open = false;
            assert_eq!(
                rig.linux
                    .watch(&members[0], token.with(TokenKind::Member(0))),
                Err(Errno::from_raw(libc::ENOSYS))
            );
            rig.close(token);
        },
    );
}

/// CASES 87.
#[test]
fn a_cookie_that_could_not_be_looked_for_is_refused_at_the_start() {
    let mut rig = Rig::new(LinuxOptions::default());
    for (errno, words) in [
        (libc::ENOENT, "not mounted"),
        (libc::EXDEV, "another PID namespace"),
        (libc::EACCES, "hidepid"),
    ] {
        rig.linux.inner.scanner.lose_proc(Errno::from_raw(errno));
        let plan = Plan {
            contain: crate::command::Containment::Cookie,
            ..plan(&["true"])
        };
        let token = rig.token(0);
        let error = rig
            .linux
            .spawn(&Arc::new(plan), token)
            .expect_err("refused");
        assert_eq!(
            (error.step(), error.raw_os_error()),
            (SpawnStep::Cookie, errno)
        );
        assert_eq!(error.path(), Some("/proc".as_ref()));
        assert!(error.to_string().contains(words), "{error}");
    }
}

/// CASES 87: with hidepid, and without root, the children of this user can be read.
#[test]
fn a_proc_that_hides_other_users_still_proves_that_nobody_is_left() {
    let test = "a_proc_that_hides_other_users_still_proves_that_nobody_is_left";
    alone(test, module_path!(), || {
        // The real ids too: an exec with two different users makes a process undumpable.
        #[expect(unsafe_code, reason = "changes who this process is")]
        let become_both = |id: u32| {
            let set_group = || {
                // SAFETY: no memory is involved.
                assert_eq!(unsafe { libc::setresgid(id, id, 0) }, 0);
            };
            if id != 0 {
                set_group();
            }
            // SAFETY: no memory is involved. The saved user stays root.
            assert_eq!(unsafe { libc::setresuid(id, id, 0) }, 0);
            if id == 0 {
                set_group();
            }
        };
        for hidepid in [c"hidepid=1", c"hidepid=2", c"hidepid=4"] {
            if !mount_proc(hidepid) {
                eprintln!("no /proc can be mounted here");
                return;
            }
            become_both(65534);
            let mut rig = Rig::new(LinuxOptions::default());
            assert!(rig.linux.inner.scanner.proc().expect("/proc").hides());
            let contained = |words: &[&str]| Plan {
                contain: crate::command::Containment::Cookie,
                ..plan(words)
            };
            let token = rig.start(0, contained(&["true"]));
            rig.exit(token, CollectMode::Reap);
            assert_eq!(rig.scan_all(1, &[token], &[]).0, []);
            assert!(rig.scan_all(2, &[token], &[]).1, "{hidepid:?}");
            rig.close(token);
            let script = "setsid sleep 60 >/dev/null 2>&1 & echo $!";
            let token = rig.start(0, contained(&["sh", "-c", script]));
            let escapee: u32 = rig.line(token).parse().expect("a pid");
            rig.exit(token, CollectMode::Reap);
            eventually("it has left the group, and is found", || {
                let (found, complete, _) = rig.scan_all(3, &[token], &[]);
                // Another user's process may be hidden.
                pidfd::group_of(escapee) == Some(escapee) && found.len() == 1 && !complete
            });
            assert_eq!(rig.linux.signal(token, Signal::KILL), Signalled::Sent);
            rig.close(token);
            drop(rig);
            become_both(0);
        }
    });
}

/// CASES 88: `ulimit -n`. EMFILE says nothing about the process that was to be read.
#[test]
fn a_host_without_free_descriptors_claims_no_complete_list() {
    let test = "a_host_without_free_descriptors_claims_no_complete_list";
    alone(test, module_path!(), || {
        adopt_orphans();
        let mut rig = Rig::new(LinuxOptions::default());
        let token = rig.start(0, sh("setsid sleep 60 & echo $!"));
        let holder: u32 = rig.line(token).parse().expect("a pid");
        rig.exit(token, CollectMode::Reap);
        let old = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let low = rustix::process::Rlimit {
            current: Some(64),
            ..old
        };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, low).expect("a lower limit");
        let mut taken = Vec::new();
        while let Ok(fd) = rustix::io::dup(rustix::stdio::stderr()) {
            taken.push(fd);
        }
        for free in 0..4 {
            let (found, complete, _) = rig.scan_all(10 + free, &[], &[token]);
            let is_named = found
                .iter()
                .any(|f| matches!(f, Found::Holder(_, h) if h.pid == holder));
            assert!(is_named || !complete, "{free} free: {found:?}");
            drop(taken.pop());
        }
        drop(taken);
        assert!(rig.holders(&[token]).contains_key(&holder));
        pidfd::kill(holder, SignalScope::Process, Signal::KILL).expect("kill");
        bury(holder);
        rig.close(token);
    });
}

#[test]
fn without_proc_nothing_is_found_and_nothing_is_claimed() {
    let mut rig = Rig::new(LinuxOptions::default());
    let token = rig.start(0, plan(&["sleep", "60"]));
    rig.linux
        .inner
        .scanner
        .lose_proc(Errno::from_raw(libc::ENOENT));
    let mut scan = Scan {
        id: 1,
        members: vec![token],
        budget: 64,
        ..Scan::default()
    };
    assert_eq!(
        rig.linux.scan(&mut scan),
        ScanStep::Done {
            members: false,
            holders: false
        }
    );
    assert_eq!(scan.found, []);
    rig.end(token);
}
