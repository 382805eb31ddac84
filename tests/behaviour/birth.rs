//! What a child is born with, whatever the host has done to itself, and what a spawn leaves behind
//! in the host.

use crate::common::gate::Gate;
use crate::common::host::Host;
use crate::common::proc::{children, descriptors, mask_has, own_status, stat, wait_dead};
use crate::common::{LONG, Mode, Way, every_way, ms, sys};
use lastwords::__internals::testing::oracle::History;
use lastwords::{Command, Reactor, Signal, SpawnStep, Stream, Verdict};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

every_way! {
    a_child_outlives_the_thread_that_spawned_it,
    a_child_starts_with_an_empty_mask_and_default_actions,
    a_child_leads_a_group_of_its_own_before_its_first_instruction,
    a_child_has_no_descriptor_of_the_host_but_those_passed_on_purpose,
    write_ends_never_leak_into_children_that_are_spawned_at_the_same_time,
    running_out_of_descriptors_in_the_middle_of_a_spawn_leaves_nothing,
    the_host_is_changed_as_little_as_possible,
}

fn drained(story: &History) -> bool {
    story
        .drain()
        .is_some_and(|drain| drain.verdict == Verdict::Drained)
}

/// CASES 33.
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

/// CASES 32, SPEC 2.6: whatever the host has done to itself.
fn a_child_starts_with_an_empty_mask_and_default_actions(way: Way) {
    way.alone(|| {
        for signal in [Signal::PIPE, Signal::HUP, Signal::USR1, Signal::QUIT] {
            sys::ignore(signal);
        }
        sys::block_all_signals();
        let masks = |host: &mut Host, command: &Command| {
            let child = host.spawn(command);
            let text = host.until_closed(child).kept(Stream::Stdout);
            let mask = |name: &str| {
                text.lines()
                    .find_map(|line| line.strip_prefix(name))
                    .map(|mask| u64::from_str_radix(mask.trim(), 16))
            };
            [
                mask("SigBlk:").expect("a line").expect("a mask"),
                mask("SigIgn:").expect("a line").expect("a mask"),
            ]
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
        command
            .ignore_signal(Signal::HUP)
            .block_signal(Signal::USR2);
        assert_eq!(
            masks(&mut host, &command),
            [
                1 << (Signal::USR2.as_raw() - 1),
                1 << (Signal::HUP.as_raw() - 1)
            ]
        );
        assert_eq!(
            sys::disposition(Signal::PIPE),
            libc::SIG_IGN,
            "the host's own is as it was"
        );
        assert!(mask_has(&own_status("SigBlk"), libc::SIGTERM));
        host.finish();
    });
}

/// SPEC 2.6.
fn a_child_leads_a_group_of_its_own_before_its_first_instruction(way: Way) {
    let mut host = Host::new(way);
    let session = stat(std::process::id()).expect("ourselves").session;
    for _ in 0..20 {
        let command = host.telling("read stat </proc/$$/stat; echo $stat");
        let child = host.start(&command);
        let pid = host.reactor.pid(child).expect("a process");
        assert_eq!(
            stat(pid).map(|stat| stat.group),
            Some(pid),
            "it leads its group when start returns"
        );
        let text = host.until_closed(child).delivered(Stream::Stdout);
        let fields: Vec<_> = text
            .rsplit(") ")
            .next()
            .expect("fields")
            .split(' ')
            .collect();
        assert_eq!(
            (fields[2], fields[3]),
            (pid.to_string().as_str(), session.to_string().as_str())
        );
    }
    host.finish();
}

/// CASES 40, SPEC 2.6.
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
            let mut list: Vec<i32> = text
                .lines()
                .map(|line| line.parse().expect("a number"))
                .collect();
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
        assert!(
            inherited.contains(&low.as_raw_fd()) && inherited.contains(&500),
            "{inherited:?}"
        );
        host.finish();
    });
}

/// CASES 39. Two threads spawning in a loop, each with pipes, beside a third that uses std: end of
/// file comes at once.
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
            let status = std::process::Command::new("sleep")
                .arg("0.02")
                .status()
                .expect("a status");
            assert!(status.success());
        }
    });
}

/// CASES 21, SPEC 2.1 and SPEC 9: a spawn error, and no child, descriptor or table entry is
/// left. Tried with every number of descriptors that are still free.
fn running_out_of_descriptors_in_the_middle_of_a_spawn_leaves_nothing(way: Way) {
    way.alone(|| {
        let mut host = Host::new(way);
        let warm = host.run("echo warm");
        host.until_closed(warm);
        let command = host.telling("echo out; echo err >&2");
        let before = descriptors();
        let old = getrlimit(Resource::Nofile);
        setrlimit(
            Resource::Nofile,
            Rlimit {
                current: Some(120),
                maximum: old.maximum,
            },
        )
        .expect("a limit");
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
                        error.is_retryable()
                            && matches!(
                                error.step(),
                                SpawnStep::Pipe
                                    | SpawnStep::Register
                                    | SpawnStep::Clone
                                    | SpawnStep::Exec
                            ),
                        "{error}"
                    );
                    assert_eq!(descriptors_by_trying(), full, "with {left} left, {error}");
                    drop(plugs);
                    assert!(children().is_empty(), "with {left} left: {:?}", children());
                    assert_eq!(
                        (host.reactor.stats().live, host.reactor.is_busy()),
                        (0, false)
                    );
                }
                Ok(generation) => {
                    drop(plugs);
                    let reports = reports_of_all(&mut host.reactor);
                    assert_eq!(reports.len(), 1, "{generation}");
                    assert!(
                        reports[0].success() && reports[0].stderr_tail == ["err"],
                        "with {left} left: {:?}",
                        reports[0]
                    );
                }
            }
        }
        assert!(
            refused >= 4,
            "four pipe ends at least are needed; refused {refused} times"
        );
        setrlimit(Resource::Nofile, old).expect("the old limit");
        assert_eq!(descriptors(), before);
        host.finish();
    });
}

/// How many descriptors are still free, found without opening a directory.
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

/// SPEC 2.8 and 6.1: no subreaper, no thread, no handler unless SIGCHLD is the exit watch; the
/// choice and its reason can be asked.
fn the_host_is_changed_as_little_as_possible(way: Way) {
    way.alone(|| {
        let threads = own_status("Threads");
        let (caught, ignored, blocked) = (
            own_status("SigCgt"),
            own_status("SigIgn"),
            own_status("SigBlk"),
        );
        let before = descriptors();
        let mut host = Host::new(way);
        let child = host.run("echo out; sleep 0.01 & exit 0");
        host.until_closed(child);
        assert_eq!(
            (
                own_status("Threads"),
                own_status("SigIgn"),
                own_status("SigBlk")
            ),
            (threads, ignored, blocked)
        );
        match way.mode {
            Mode::Pidfd | Mode::OldGroup | Mode::Uring => assert_eq!(own_status("SigCgt"), caught),
            Mode::Sigchld => assert!(mask_has(&own_status("SigCgt"), libc::SIGCHLD)),
        }
        assert!(!sys::is_subreaper());
        let capabilities = host.reactor.capabilities().clone();
        assert_eq!(capabilities.exit, way.exit_source());
        assert!(
            way.backends().contains(&capabilities.backend),
            "{capabilities:?}"
        );
        assert!(
            !capabilities.exit_why.is_empty() && !capabilities.backend_why.is_empty(),
            "{capabilities:?}"
        );
        assert!(way.mode != Mode::OldGroup || !capabilities.group_signal);
        host.finish();
        if way.mode != Mode::Sigchld {
            assert_eq!(
                descriptors(),
                before,
                "the loop took its descriptors with it"
            );
        }
    });
}

/// CASES 41. 8 threads allocating, 1000 spawns: no lock is held in the child.
#[test]
fn spawning_beside_threads_that_allocate_never_deadlocks() {
    static OVER: AtomicBool = AtomicBool::new(false);
    let way = Way {
        mode: Mode::Pidfd,
        test: "spawning_beside_threads_that_allocate_never_deadlocks",
        module: module_path!(),
    };
    std::thread::scope(|scope| {
        for n in 0..8usize {
            scope.spawn(move || {
                let mut sizes = (1..4000).cycle();
                while !OVER.load(Ordering::Relaxed) {
                    let held: Vec<Vec<u8>> = sizes
                        .by_ref()
                        .take(200)
                        .map(|size| vec![0; size + n])
                        .collect();
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

/// SPEC 2.7: the loop's thread does not wait for exec; a stop that is asked for meanwhile is
/// carried out (stop.rs).
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
