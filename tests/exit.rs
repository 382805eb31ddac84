//! Exits: how they are learnt, and how they are told.

mod common;

use common::gate::Gate;
use common::host::Host;
use common::proc::{children, descriptors, mask_has, own_status, stat, wait_dead, wait_zombie};
use common::{LONG, Mode, Way, alone, every_way, ms, sys, wait_until};
use lastwords::{Backend, Command, ExitSource, Outcome, Output, Reactor, SettledAs, Signal, StatusSource, Step, Stream, Verdict};
use rustix::process::{Resource, Rlimit, WaitOptions, getrlimit, setrlimit};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

every_way! {
    code_signal_and_core_dump_are_told_apart,
    the_exit_of_an_orderly_child_settles_and_closes_in_one_turn,
    a_zombie_leader_is_no_background_work,
    a_stopped_or_continued_child_is_not_an_exit,
    a_leader_whose_main_thread_has_ended_is_not_an_exit,
    children_that_ended_before_the_loop_looked_are_found,
    five_hundred_exits_at_once_are_five_hundred_exits,
    a_child_that_somebody_else_reaped_is_told_without_inventing_anything,
    an_ignored_sigchld_loses_no_exit,
    a_sigchld_that_is_ignored_behind_our_back_loses_no_exit,
    a_dead_child_under_a_tracer_is_not_an_exit_until_the_tracer_lets_go,
    a_child_outlives_the_thread_that_spawned_it,
    a_child_starts_with_an_empty_mask_and_default_actions,
    a_child_leads_a_group_of_its_own_before_its_first_instruction,
    a_child_has_no_descriptor_of_the_host_but_those_passed_on_purpose,
    write_ends_never_leak_into_children_that_are_spawned_at_the_same_time,
    running_out_of_descriptors_in_the_middle_of_a_spawn_leaves_nothing,
    resource_use_is_told_where_the_status_was_ours,
    the_host_is_changed_as_little_as_possible,
}

fn drained(story: &common::story::Story) -> bool {
    story.drain().is_some_and(|drain| drain.verdict == Verdict::Drained)
}

/// spec 2.2 and 2.4.
fn code_signal_and_core_dump_are_told_apart(way: Way) {
    let dir = std::env::temp_dir().join(format!("lastwords-exit-{}-{:?}", std::process::id(), way.mode));
    std::fs::create_dir_all(&dir).expect("a directory");
    let mut host = Host::new(way);
    for code in [0, 1, 7, 127, 255] {
        let child = host.run(&format!("exit {code}"));
        let report = host.until_closed(child).report();
        let exit = report.exit.expect("an exit");
        assert_eq!((exit.code, exit.signal, exit.core_dumped, exit.source), (Some(code), None, false, StatusSource::Waitid));
        assert_eq!(report.outcome, Some(if code == 0 { Outcome::Succeeded } else { Outcome::Failed }));
        assert_eq!((report.exit_source, report.backend), (host.reactor.caps().exit, host.reactor.caps().backend));
    }
    let ends = [(Signal::TERM, "0"), (Signal::KILL, "0"), (Signal::SEGV, "0"), (Signal::ABRT, "unlimited")];
    for (signal, core) in ends {
        let script = format!("ulimit -c {core}; kill -{signal} $$");
        let mut command = host.shell(&script);
        command.current_dir(&dir);
        let child = host.spawn(&command);
        let report = host.until_closed(child).report();
        let exit = report.exit.expect("an exit");
        assert_eq!((exit.code, exit.signal, report.outcome), (None, Some(signal), Some(Outcome::Signaled)));
        // Whether a core is dumped is the machine's business; that we say what the kernel says is ours.
        let std = std::process::Command::new("sh").args(["-c", &script]).current_dir(&dir).status().expect("a status");
        assert_eq!(exit.to_std(), Some(std), "{signal}, cores {core}");
    }
    host.finish();
    std::fs::remove_dir_all(&dir).expect("the directory goes");
}

/// The usual case: nothing is waited for.
fn the_exit_of_an_orderly_child_settles_and_closes_in_one_turn(way: Way) {
    way.alone(|| {
        let mut host = Host::new(way);
        let child = host.run("echo hello");
        let story = host.until_closed(child);
        let turns: Vec<_> =
            story.events.iter().skip_while(|(seen, _)| !matches!(seen, common::story::Seen::Exited(_))).map(|(_, turn)| turn).collect();
        // Where the group cannot be asked through the pidfd its number is asked, and a zombie of the moment costs a look at /proc.
        if way.mode == Mode::Pidfd {
            assert!(turns.windows(2).all(|pair| pair[0] == pair[1]), "{story:?}");
        }
        assert_eq!(story.settled().map(|settled| settled.state), Some(SettledAs::None));
        host.finish();
    });
}

/// cases: 25. No background work, no grace wait, no signal.
fn a_zombie_leader_is_no_background_work(way: Way) {
    let mut host = Host::new(way);
    let mut command = Command::new("true");
    host.mark.put_on(&mut command);
    let child = host.start(&command);
    wait_zombie(host.reactor.pid(child).expect("a process"));
    let story = host.until_closed(child);
    let settled = story.settled().expect("settled");
    assert_eq!((settled.state, settled.state.complete()), (SettledAs::None, Some(true)));
    assert!(settled.waited < ms(1500), "the grace is not waited for: {settled:?}");
    assert!(story.report().stop.is_none());
    host.finish();
}

/// cases: 24.
fn a_stopped_or_continued_child_is_not_an_exit(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.telling("echo ready; read x <&9; echo on; exit 5");
    let gate = Gate::at(9, &mut command);
    let child = host.spawn(&command);
    host.until_said(child, "ready");
    let pid = host.reactor.pid(child).expect("a process");
    for _ in 0..3 {
        host.reactor.signal_leader(child, Signal::STOP);
        wait_until("a stop", || stat(pid).is_some_and(|stat| stat.state == 'T'));
        host.idle(ms(20));
        host.reactor.signal_leader(child, Signal::CONT);
        wait_until("a continuation", || stat(pid).is_some_and(|stat| stat.state != 'T'));
        host.idle(ms(20));
    }
    assert!(host.story(child).exit().is_none());
    gate.open();
    let story = host.until_closed(child);
    assert_eq!((story.exit().and_then(|exit| exit.code), story.delivered(Stream::Stdout)), (Some(5), "ready\non\n".into()));
    host.finish();
}

/// design.md, "Known traps": a process is not dead while other threads of it are still going.
fn a_leader_whose_main_thread_has_ended_is_not_an_exit(way: Way) {
    let mut host = Host::new(way);
    let mut command = player("a_process_whose_main_thread_has_ended");
    host.mark.put_on(&mut command);
    command.stdout(common::host::delivered());
    let gate = Gate::at(9, &mut command);
    let child = host.spawn(&command);
    let pid = host.reactor.pid(child).expect("a process");
    wait_until("a main thread that has ended", || stat(pid).is_some_and(|stat| stat.state == 'Z'));
    host.idle(ms(150));
    assert!(host.story(child).exit().is_none(), "others of its threads go on");
    gate.open();
    let story = host.until_closed(child);
    assert_eq!(story.exit().and_then(|exit| exit.code), Some(6), "{story:?}");
    host.finish();
}

/// This test binary as a child that plays a part.
fn player(part: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a name of this program"));
    command.args(["--exact", part, "--nocapture", "--test-threads=1"]).env("LASTWORDS_TEST_ALONE", part);
    command
}

/// A part, not a test: only in a process of its own does it do anything.
#[test]
fn a_process_whose_main_thread_has_ended() {
    if !alone::is_alone("a_process_whose_main_thread_has_ended") {
        return;
    }
    std::thread::spawn(|| {
        let _ = std::fs::read("/proc/thread-self/fd/9");
        std::process::exit(6);
    });
    sys::end_main_thread();
    loop {
        std::thread::park();
    }
}

/// spec 2.1: children that ended before the watch began.
fn children_that_ended_before_the_loop_looked_are_found(way: Way) {
    let mut host = Host::new(way);
    let children: Vec<_> = (0..10)
        .map(|code| {
            let command = host.shell(&format!("exit {code}"));
            host.start(&command)
        })
        .collect();
    for child in &children {
        wait_zombie(host.reactor.pid(*child).expect("a process"));
    }
    for (code, child) in (0..).zip(children) {
        assert_eq!(host.until_closed(child).exit().and_then(|exit| exit.code), Some(code));
    }
    host.finish();
}

/// cases: 23. Signals that were merged into one.
fn five_hundred_exits_at_once_are_five_hundred_exits(way: Way) {
    let mut host = Host::new(way);
    let mut command = Command::new("true");
    host.mark.put_on(&mut command);
    command.stdout(Output::Null);
    let children: Vec<_> = (0..500).map(|_| host.start(&command)).collect();
    host.until("500 exits", |host| !host.reactor.is_busy());
    for child in children {
        assert!(host.story(child).report().success());
    }
    host.finish();
}

/// cases: 22. Another thread loops waitpid(-1, WNOHANG).
fn a_child_that_somebody_else_reaped_is_told_without_inventing_anything(way: Way) {
    way.alone(|| {
        static OVER: AtomicBool = AtomicBool::new(false);
        let thief = std::thread::spawn(|| {
            let mut stolen = 0;
            while !OVER.load(Ordering::Relaxed) {
                match rustix::process::wait(WaitOptions::NOHANG) {
                    Ok(Some(_)) => stolen += 1,
                    Ok(None) | Err(_) => std::thread::yield_now(),
                }
            }
            stolen
        });
        let mut host = Host::new(way);
        let (mut known, mut unknown) = (0, 0);
        for n in 0..60 {
            let child = host.run(&format!("echo out; exit {}", n % 3 + 7));
            let story = host.until_closed(child);
            let exit = story.exit().expect("an exit, in any case");
            match exit.source {
                StatusSource::None => unknown += 1,
                _ => known += 1,
            }
            if exit.source == StatusSource::None {
                assert_eq!((exit.code, exit.signal, story.report().outcome), (None, None, Some(Outcome::Unknown)));
            } else {
                assert_eq!((exit.code, story.report().outcome), (Some(n % 3 + 7), Some(Outcome::Failed)));
            }
            assert_eq!(story.report().usage.is_some(), exit.source == StatusSource::Waitid);
            assert!(drained(story) && story.delivered(Stream::Stdout) == "out\n");
        }
        OVER.store(true, Ordering::Relaxed);
        let stolen: u32 = thief.join().expect("a count");
        assert!(stolen > 0, "the test must steal something");
        let caps = host.reactor.caps();
        assert!(unknown == 0 || !caps.exit_info || caps.exit == ExitSource::Sigchld, "{known} known, {unknown} unknown: {caps:?}");
        host.finish();
    });
}

fn exits_are_seen_with_sigchld_ignored(host: &mut Host) {
    for n in 0..8 {
        let child = host.run(&format!("echo out; exit {}", n + 1));
        let story = host.until_closed(child);
        let exit = story.exit().expect("an exit");
        assert!(
            exit.code == Some(n + 1) || (exit.source, story.report().outcome) == (StatusSource::None, Some(Outcome::Unknown)),
            "{exit:?}"
        );
        let caps = host.reactor.caps();
        assert!(exit.code.is_some() || !caps.exit_info || caps.exit == ExitSource::Sigchld, "{exit:?} with {caps:?}");
        assert!(drained(host.story(child)));
    }
}

/// cases: 22. SIGCHLD ignored by the host before the loop was built: the kernel reaps all children itself.
fn an_ignored_sigchld_loses_no_exit(way: Way) {
    way.alone(|| {
        sys::ignore(Signal::CHLD);
        let mut host = Host::new(way);
        exits_are_seen_with_sigchld_ignored(&mut host);
        host.finish();
    });
}

/// cases: 22, spec 2.1: this is why the SIGCHLD way also asks once a second.
fn a_sigchld_that_is_ignored_behind_our_back_loses_no_exit(way: Way) {
    way.alone(|| {
        let mut host = Host::new(way);
        let child = host.run("exit 9");
        assert_eq!(host.until_closed(child).exit().and_then(|exit| exit.code), Some(9));
        sys::ignore(Signal::CHLD);
        exits_are_seen_with_sigchld_ignored(&mut host);
        host.finish();
    });
}

/// cases: 20. The pidfd becomes readable, waitid has nothing: armed again, no spinning, and the real end is told later.
fn a_dead_child_under_a_tracer_is_not_an_exit_until_the_tracer_lets_go(way: Way) {
    way.alone(|| {
        let mut host = Host::new(way);
        let child = host.run("echo ready; exec sleep 60");
        host.until_said(child, "ready");
        let pid = host.reactor.pid(child).expect("a process");
        // PTRACE_SEIZE; the tracer keeps the dead child to itself until it ends.
        let script = "use strict; $| = 1; syscall($ARGV[0] + 0, 0x4206, $ARGV[1] + 0, 0, 0) == 0 or die \"seize: $!\"; print \"seized\\n\"; <STDIN>;";
        let mut tracer = std::process::Command::new("perl")
            .args(["-e", script, &libc::SYS_ptrace.to_string(), &pid.to_string()])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("perl");
        let mut said = [0; 7];
        std::io::Read::read_exact(tracer.stdout.as_mut().expect("its output"), &mut said).expect("the tracer speaks");
        host.reactor.signal_leader(child, Signal::KILL);
        wait_zombie(pid);
        let before = host.reactor.stats().turns;
        host.idle(ms(400));
        assert!(host.story(child).exit().is_none(), "the tracer has it still");
        let turns = host.reactor.stats().turns - before;
        assert!(turns < 50, "{turns} turns with nothing to do");
        drop(tracer.stdin.take());
        let story = host.until_closed(child);
        assert_eq!(story.exit().and_then(|exit| exit.signal), Some(Signal::KILL));
        tracer.wait().expect("the tracer ends");
        host.finish();
    });
}

/// cases: 33.
fn a_child_outlives_the_thread_that_spawned_it(way: Way) {
    let mut host = Host::new(way);
    let mut command = host.telling("read x <&9; echo alive");
    let gate = Gate::at(9, &mut command);
    let (mut host, child) = std::thread::spawn(move || {
        let child = host.spawn(&command);
        (host, child)
    })
    .join()
    .expect("a thread that ends");
    host.idle(ms(50));
    gate.open();
    let story = host.until_closed(child);
    assert!(story.report().success() && story.delivered(Stream::Stdout) == "alive\n");
    host.finish();
}

/// cases: 32, spec 2.6: whatever the host has done to itself.
fn a_child_starts_with_an_empty_mask_and_default_actions(way: Way) {
    way.alone(|| {
        for signal in [Signal::PIPE, Signal::HUP, Signal::USR1, Signal::QUIT] {
            sys::ignore(signal);
        }
        sys::block_all_signals();
        let masks = |host: &mut Host, command: &Command| {
            let child = host.spawn(command);
            let text = host.until_closed(child).kept(Stream::Stdout);
            let mask = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(|mask| u64::from_str_radix(mask.trim(), 16));
            [mask("SigBlk:").expect("a line").expect("a mask"), mask("SigIgn:").expect("a line").expect("a mask")]
        };
        let mut host = Host::new(way);
        let status = |host: &Host| {
            let mut command = Command::new("cat");
            host.mark.put_on(&mut command);
            command.arg("/proc/self/status");
            command
        };
        let mut command = status(&host);
        assert_eq!(masks(&mut host, &command), [0, 0]);
        command.ignore_signal(Signal::HUP).block_signal(Signal::USR2);
        assert_eq!(masks(&mut host, &command), [1 << (Signal::USR2.as_raw() - 1), 1 << (Signal::HUP.as_raw() - 1)]);
        assert_eq!(sys::disposition(Signal::PIPE), libc::SIG_IGN, "the host's own is as it was");
        assert!(mask_has(&own_status("SigBlk"), libc::SIGTERM));
        host.finish();
    });
}

/// spec 2.6.
fn a_child_leads_a_group_of_its_own_before_its_first_instruction(way: Way) {
    let mut host = Host::new(way);
    let session = stat(std::process::id()).expect("ourselves").session;
    for _ in 0..20 {
        let command = host.telling("read stat </proc/$$/stat; echo $stat");
        let child = host.start(&command);
        let pid = host.reactor.pid(child).expect("a process");
        assert_eq!(stat(pid).map(|stat| stat.group), Some(pid), "it leads its group when start returns");
        let text = host.until_closed(child).delivered(Stream::Stdout);
        let fields: Vec<_> = text.rsplit(") ").next().expect("fields").split(' ').collect();
        assert_eq!((fields[2], fields[3]), (pid.to_string().as_str(), session.to_string().as_str()));
    }
    host.finish();
}

/// cases: 40, spec 2.6.
fn a_child_has_no_descriptor_of_the_host_but_those_passed_on_purpose(way: Way) {
    way.alone(|| {
        // Descriptors that are not close-on-exec: a socket, and a file at a high number.
        let (socket, _other) = std::os::unix::net::UnixStream::pair().expect("a socket");
        let low = rustix::io::dup(&socket).expect("a copy");
        let high = rustix::io::fcntl_dupfd_cloexec(&socket, 500).expect("a high number");
        rustix::io::fcntl_setfd(&high, rustix::io::FdFlags::empty()).expect("not close-on-exec");
        let mut host = Host::new(way);
        let list = |host: &mut Host, command: &Command| {
            let child = host.spawn(command);
            let text = host.until_closed(child).kept(Stream::Stdout);
            let mut list: Vec<i32> = text.lines().map(|line| line.parse().expect("a number")).collect();
            list.sort_unstable();
            list
        };
        let mut command = host.shell("ls /proc/$$/fd");
        assert_eq!(list(&mut host, &command), [0, 1, 2]);
        command.pass_fd(rustix::io::fcntl_dupfd_cloexec(&low, 3).expect("a copy"), 7);
        assert_eq!(list(&mut host, &command), [0, 1, 2, 7]);
        let mut command = host.shell("ls /proc/$$/fd");
        command.inherit_fds(true);
        let inherited = list(&mut host, &command);
        assert!(inherited.contains(&500) && inherited.len() >= 6, "{inherited:?}");
        host.finish();
    });
}

/// cases: 39. Two threads spawning in a loop, each with pipes, beside a third that uses std: end of file comes at once.
fn write_ends_never_leak_into_children_that_are_spawned_at_the_same_time(way: Way) {
    let spawner = || {
        let mut host = Host::new(way);
        let mut sleepers = Vec::new();
        for _ in 0..25 {
            let mut sleeper = Command::new("sleep");
            host.mark.put_on(&mut sleeper);
            sleeper.arg("60");
            sleepers.push(host.start(&sleeper));
            let child = host.run("echo out");
            let story = host.until_closed(child);
            assert!(drained(story), "somebody else has its pipe: {story:?}");
        }
        for sleeper in sleepers {
            host.reactor.kill(sleeper);
        }
        host.until("all closed", |host| !host.reactor.is_busy());
        host.finish();
    };
    std::thread::scope(|scope| {
        let both = [scope.spawn(spawner), scope.spawn(spawner)];
        while both.iter().any(|thread| !thread.is_finished()) {
            let status = std::process::Command::new("sleep").arg("0.02").status().expect("a status");
            assert!(status.success());
        }
    });
}

/// cases: 21, spec 2.1 and section 9: a spawn error, and no child, descriptor or table entry is left. Tried with every number of
/// descriptors that are still to be had.
fn running_out_of_descriptors_in_the_middle_of_a_spawn_leaves_nothing(way: Way) {
    way.alone(|| {
        let mut host = Host::new(way);
        let warm = host.run("echo warm");
        host.until_closed(warm);
        let command = host.telling("echo out; echo err >&2");
        let before = descriptors();
        let old = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(120), maximum: old.maximum }).expect("a limit");
        let mut refused = 0;
        for left in 0..12 {
            let mut plugs = Vec::new();
            while let Ok(plug) = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 0) {
                plugs.push(plug);
            }
            plugs.truncate(plugs.len() - left);
            let full = descriptors_by_trying();
            match host.reactor.start(&command) {
                Err(error) => {
                    refused += 1;
                    assert_eq!(error.raw_os_error(), libc::EMFILE, "{error}");
                    assert!(
                        error.is_retryable() && matches!(error.step(), Step::Pipe | Step::Register | Step::Clone | Step::Exec),
                        "{error}"
                    );
                    assert_eq!(descriptors_by_trying(), full, "with {left} left, {error}");
                    drop(plugs);
                    assert!(children().is_empty(), "with {left} left: {:?}", children());
                    assert_eq!((host.reactor.stats().live, host.reactor.is_busy()), (0, false));
                }
                Ok(generation) => {
                    drop(plugs);
                    let reports = reports_of_all(&mut host.reactor);
                    assert_eq!(reports.len(), 1, "{generation}");
                    assert!(reports[0].success() && reports[0].stderr_tail == ["err"], "with {left} left: {:?}", reports[0]);
                }
            }
        }
        assert!(refused >= 4, "four pipe ends at least are needed; refused {refused} times");
        setrlimit(Resource::Nofile, old).expect("the old limit");
        assert_eq!(descriptors(), before);
        host.finish();
    });
}

/// How many descriptors are still to be had, found without opening a directory.
fn descriptors_by_trying() -> usize {
    let mut plugs = Vec::new();
    while let Ok(plug) = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 0) {
        plugs.push(plug);
    }
    plugs.len()
}

/// Turns until all is closed; the reports.
fn reports_of_all(reactor: &mut Reactor) -> Vec<lastwords::Report> {
    let mut reports = Vec::new();
    while let Some(event) = reactor.wait_event(Some(LONG)).expect("a turn") {
        if let lastwords::Event::Closed { report, .. } = event {
            reports.push(*report);
        }
    }
    reports
}

/// spec 2.5.
fn resource_use_is_told_where_the_status_was_ours(way: Way) {
    let mut host = Host::new(way);
    let child = host.run("i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done");
    let report = host.until_closed(child).report();
    let usage = report.usage.expect("the status was ours");
    assert!(usage.user + usage.system > ms(1) && usage.user + usage.system < LONG, "{usage:?}");
    let timing = report.timing.expect("times");
    assert!(timing.ran.is_some_and(|ran| ran > ms(1) && ran < LONG), "{timing:?}");
    host.finish();
}

/// spec 2.8 and 6.1: no subreaper, no thread, no handler unless SIGCHLD is the exit watch; the choice and its reason can be asked.
fn the_host_is_changed_as_little_as_possible(way: Way) {
    way.alone(|| {
        let threads = own_status("Threads");
        let (caught, ignored, blocked) = (own_status("SigCgt"), own_status("SigIgn"), own_status("SigBlk"));
        let before = descriptors();
        let mut host = Host::new(way);
        let child = host.run("echo out; sleep 0.01 & exit 0");
        host.until_closed(child);
        assert_eq!((own_status("Threads"), own_status("SigIgn"), own_status("SigBlk")), (threads, ignored, blocked));
        match way.mode {
            Mode::Pidfd | Mode::OldGroup => assert_eq!(own_status("SigCgt"), caught),
            Mode::Sigchld => assert!(mask_has(&own_status("SigCgt"), libc::SIGCHLD)),
        }
        assert!(!sys::is_subreaper());
        let caps = host.reactor.caps().clone();
        assert_eq!((caps.exit, caps.backend), (way.exit_source(), Backend::Epoll));
        assert!(!caps.exit_why.is_empty() && !caps.backend_why.is_empty(), "{caps:?}");
        assert!(way.mode != Mode::OldGroup || !caps.group_signal);
        host.finish();
        if way.mode != Mode::Sigchld {
            assert_eq!(descriptors(), before, "the loop took its descriptors with it");
        }
    });
}

/// What is refused, and what a loop that may choose must then choose.
fn exits_with_calls_refused(test: &str, calls: &[(libc::c_long, i32)], check: impl Fn(&Reactor)) {
    alone::alone(test, || {
        sys::refuse(calls);
        let mut host = Host::with(&Reactor::builder());
        check(&host.reactor);
        let child = host.run("echo out; echo err >&2; exit 7");
        let story = host.until_closed(child);
        assert_eq!((story.exit().and_then(|exit| exit.code), story.delivered(Stream::Stdout)), (Some(7), "out\n".into()));
        assert!(drained(story));
        // The group is still ended, without the leader and with it.
        let mut command = host.telling("(trap '' TERM; echo ready; exec sleep 60) & wait");
        command.stop(lastwords::StopPolicy::default().grace(ms(100)));
        let child = host.spawn(&command);
        host.until_said(child, "ready");
        host.reactor.stop(child, None);
        let report = host.until_closed(child).report();
        assert_eq!(report.outcome, Some(Outcome::Stopped));
        assert!(report.stop.as_ref().is_some_and(|stop| stop.stuck.is_empty()), "{report:?}");
        host.finish();
    });
}

/// cases: 21. A seccomp filter that answers EPERM.
#[test]
fn exits_are_seen_where_pidfd_open_is_refused() {
    exits_with_calls_refused("exits_are_seen_where_pidfd_open_is_refused", &[(libc::SYS_pidfd_open, libc::EPERM)], |reactor| {
        assert!(!reactor.caps().pidfd_open, "{:?}", reactor.caps());
    });
}

/// cases: 21. A kernel that has no pidfd_open; a pidfd from clone needs none.
#[test]
fn exits_are_seen_where_pidfd_open_is_missing() {
    exits_with_calls_refused("exits_are_seen_where_pidfd_open_is_missing", &[(libc::SYS_pidfd_open, libc::ENOSYS)], |reactor| {
        let caps = reactor.caps();
        assert!(!caps.pidfd_open && (caps.exit == ExitSource::Pidfd) == caps.pidfd_from_clone, "{caps:?}");
    });
}

/// cases: 21.
#[test]
fn exits_are_seen_where_pidfd_send_signal_alone_is_missing() {
    let test = "exits_are_seen_where_pidfd_send_signal_alone_is_missing";
    exits_with_calls_refused(test, &[(libc::SYS_pidfd_send_signal, libc::ENOSYS)], |reactor| {
        let caps = reactor.caps();
        assert!(!caps.pidfd_signal && !caps.group_signal, "{caps:?}");
    });
}

/// cases: 21. No pidfds by any way: SIGCHLD takes over, and says why.
#[test]
fn exits_are_seen_where_nothing_of_pidfds_is_to_be_had() {
    let none = [(libc::SYS_clone3, libc::ENOSYS), (libc::SYS_pidfd_open, libc::ENOSYS), (libc::SYS_pidfd_send_signal, libc::ENOSYS)];
    exits_with_calls_refused("exits_are_seen_where_nothing_of_pidfds_is_to_be_had", &none, |reactor| {
        let caps = reactor.caps();
        assert!(!caps.clone3 && !caps.pidfd_open && !caps.pidfd_signal, "{caps:?}");
        assert!(!caps.exit_why.is_empty());
    });
}

/// cases: 41. 8 threads allocating, 1000 spawns: no lock is held in the child.
#[test]
fn spawning_beside_threads_that_allocate_never_deadlocks() {
    static OVER: AtomicBool = AtomicBool::new(false);
    let way = Way { mode: Mode::Pidfd, test: "" };
    std::thread::scope(|scope| {
        for n in 0..8usize {
            scope.spawn(move || {
                let mut sizes = (1..4000).cycle();
                while !OVER.load(Ordering::Relaxed) {
                    let held: Vec<Vec<u8>> = sizes.by_ref().take(200).map(|size| vec![0; size + n]).collect();
                    std::hint::black_box(held);
                    std::thread::sleep(Duration::from_micros(200));
                }
            });
        }
        let mut host = Host::new(way);
        let mut command = Command::new("true");
        host.mark.put_on(&mut command);
        for _ in 0..20 {
            for _ in 0..50 {
                host.start(&command);
            }
            host.until("50 exits", |host| !host.reactor.is_busy());
        }
        OVER.store(true, Ordering::Relaxed);
        assert_eq!(host.reactor.stats().started, 1000);
        host.finish();
    });
}

/// spec 2.7: the loop's thread does not wait for exec; a stop that is asked for meanwhile is carried out (stop.rs).
#[test]
fn start_returns_a_process_whose_outcome_follows_as_an_event() {
    let mut host = Host::with(&Reactor::builder());
    let command = host.telling("exit 0");
    let child = host.start(&command);
    let pid = host.reactor.pid(child).expect("a process");
    assert!(stat(pid).is_some(), "the process exists");
    assert!(host.story(child).pid().is_none());
    let story = host.until_closed(child);
    assert_eq!(story.pid(), Some(pid));
    wait_dead(pid);
    host.finish();
}
