//! Many spawns at once: threads, failures, signals, and leaks.

use crate::kernel::linux::spawn::tests::*;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::thread;

fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps")
        .expect("a /proc")
        .lines()
        .count()
}

#[test]
fn threads_that_spawn_and_allocate_do_not_disturb_each_other_and_leave_nothing() {
    in_a_process_of_its_own(|| {
        const THREADS: usize = 8;
        let each = rounds(2_000) / THREADS;
        let handled = Arc::new(AtomicUsize::new(0));
        count_signals(&handled);
        // Once before measuring, so that allocator and loader have allocated what they keep.
        spawn_all(THREADS, 2);
        let (descriptors, maps) = (open_descriptors(), mappings());
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                // Many signals: no handler may run in a child, which shares this memory.
                while !over.load(Ordering::Relaxed) {
                    rustix::process::kill_process(
                        rustix::process::getpid(),
                        rustix::process::Signal::USR1,
                    )
                    .expect("ourselves");
                    thread::sleep(Duration::from_micros(200));
                }
            });
            spawn_all(THREADS, each);
            over.store(true, Ordering::Relaxed);
        });
        assert_eq!(open_descriptors(), descriptors);
        // Threads and allocators map memory too; one leaked stack for each spawn would be thousands
        // of mappings.
        assert!(
            mappings() < maps + 100,
            "{maps} mappings became {}",
            mappings()
        );
        assert_eq!(
            // SAFETY: asks only.
            unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) },
            -1,
            "no child is left"
        );
        assert!(handled.load(Ordering::Relaxed) > 0, "the storm came");
        assert_eq!(
            FOREIGN.load(Ordering::Relaxed),
            0,
            "a handler has run in a child"
        );
    });
}

/// Handlers that ran in another process than the host.
static FOREIGN: AtomicUsize = AtomicUsize::new(0);
static HANDLED: std::sync::OnceLock<Arc<AtomicUsize>> = std::sync::OnceLock::new();
static HOST: AtomicUsize = AtomicUsize::new(0);

extern "C" fn handler(_: i32) {
    // SAFETY: no arguments. Not the library's getpid, which a child in shared memory might get
    // wrong.
    let pid = unsafe { syscall::call(libc::SYS_getpid, [0; 5]) };
    if pid == Ok(HOST.load(Ordering::Relaxed)) {
        if let Some(handled) = HANDLED.get() {
            handled.fetch_add(1, Ordering::Relaxed);
        }
    } else {
        FOREIGN.fetch_add(1, Ordering::Relaxed);
    }
}

fn count_signals(handled: &Arc<AtomicUsize>) {
    HOST.store(std::process::id() as usize, Ordering::Relaxed);
    HANDLED.set(Arc::clone(handled)).expect("once a process");
    let handler: extern "C" fn(i32) = handler;
    assert_ne!(
        // SAFETY: the handler touches atomics only.
        unsafe { libc::signal(libc::SIGUSR1, handler as usize) },
        libc::SIG_ERR
    );
}

#[test]
fn no_handler_of_the_host_runs_in_a_child_that_gets_a_signal_on_its_way() {
    in_a_process_of_its_own(|| {
        count_signals(&Arc::new(AtomicUsize::new(0)));
        let null = null();
        for options in all_options() {
            let mut spawner = Spawner::new(options);
            for _ in 0..50 {
                let plan = Arc::new(plan("/bin/sleep", &["600"]));
                let mut launched = spawner
                    .launch(
                        &plan,
                        [ChildEnd::Fd(null.as_raw_fd()); 3],
                        Inside::default(),
                    )
                    .expect("starts");
                let group = Pid::from_raw(launched.pid as i32).expect("a pid");
                rustix::process::kill_process_group(group, rustix::process::Signal::USR1)
                    .expect("a group");
                assert_eq!(
                    std::os::unix::process::ExitStatusExt::signal(&reap(launched.pid)),
                    Some(libc::SIGUSR1)
                );
                assert!(matches!(
                    known(&mut launched.pending),
                    SpawnOutcome::Started
                ));
                spawner.recycle(launched.pending);
            }
        }
        assert_eq!(
            FOREIGN.load(Ordering::Relaxed),
            0,
            "a handler has run in a child"
        );
    });
}

/// Each thread makes so many children, four at a time, of which one in four cannot start, and
/// allocates meanwhile.
fn spawn_all(threads: usize, each: usize) {
    thread::scope(|scope| {
        for seed in 0..threads {
            scope.spawn(move || {
                let mut spawner = Spawner::new(options());
                let plans = [
                    plan("true", &[]),
                    plan("false", &[]),
                    plan("lastwords-nowhere", &[]),
                    shell("exit 3"),
                ]
                .map(Arc::new);
                let codes = [Some(0), Some(1), None, Some(3)];
                let null = null();
                let mut flying = std::collections::VecDeque::new();
                let mut held: Vec<Vec<u8>> = Vec::new();
                for n in 0..each {
                    let kind = (n + seed) % plans.len();
                    flying.push_back((
                        kind,
                        spawner
                            .launch(
                                &plans[kind],
                                [ChildEnd::Fd(null.as_raw_fd()); 3],
                                Inside::default(),
                            )
                            .expect("starts"),
                    ));
                    held.push(vec![n as u8; 16 + n * 37 % 5_000]);
                    held.truncate(n % 50);
                    if flying.len() == 4 {
                        land(&mut spawner, flying.pop_front(), codes);
                    }
                }
                while !flying.is_empty() {
                    land(&mut spawner, flying.pop_front(), codes);
                }
            });
        }
    });
}

fn land(spawner: &mut Spawner, flown: Option<(usize, Launched)>, codes: [Option<i32>; 4]) {
    let (kind, mut launched) = flown.expect("one in flight");
    match (known(&mut launched.pending), codes[kind]) {
        (SpawnOutcome::Started, Some(code)) => assert_eq!(reap(launched.pid).code(), Some(code)),
        (SpawnOutcome::Failed(error), None) => {
            assert_eq!(error.step(), SpawnStep::Find);
            reap(launched.pid);
        }
        (outcome, expected) => panic!("{outcome:?} instead of {expected:?}"),
    }
    spawner.recycle(launched.pending);
}

#[test]
fn no_write_end_leaks_into_the_other_threads_child() {
    in_a_process_of_its_own(|| {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                // Long-lived children: if one of them had a pipe of the other thread, that pipe
                // would not end.
                let mut spawner = Spawner::new(options());
                let mut sleepers = Vec::new();
                while !over.load(Ordering::Relaxed) && sleepers.len() < 300 {
                    let (read, write) = pipe();
                    let ends = [
                        ChildEnd::Fd(read.as_raw_fd()),
                        ChildEnd::Fd(write.as_raw_fd()),
                        ChildEnd::Fd(write.as_raw_fd()),
                    ];
                    let mut launched = spawner
                        .launch(
                            &Arc::new(plan("/bin/sleep", &["600"])),
                            ends,
                            Inside::default(),
                        )
                        .expect("starts");
                    assert!(matches!(
                        known(&mut launched.pending),
                        SpawnOutcome::Started
                    ));
                    sleepers.push(launched);
                }
                while !over.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(1));
                }
                for sleeper in sleepers {
                    let pid = Pid::from_raw(sleeper.pid as i32).expect("a pid");
                    rustix::process::kill_process(pid, rustix::process::Signal::KILL)
                        .expect("ours");
                    reap(sleeper.pid);
                }
            });
            let mut spawner = Spawner::new(options());
            for _ in 0..300 {
                // Reads to end of file, which would take ten minutes if a pipe had leaked.
                assert_eq!(says(&mut spawner, shell("echo here")), "here");
            }
            over.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn a_child_outlives_the_thread_that_started_it() {
    let (pid, mut pending) = thread::spawn(|| {
        let null = null();
        let launched = Spawner::new(options()).launch(
            &Arc::new(shell("sleep 0.2; exit 9")),
            [ChildEnd::Fd(null.as_raw_fd()); 3],
            Inside::default(),
        );
        let launched = launched.expect("starts");
        (launched.pid, launched.pending)
    })
    .join()
    .expect("no panic");
    assert!(matches!(known(&mut pending), SpawnOutcome::Started));
    assert_eq!(reap(pid).code(), Some(9));
}

#[test]
fn a_host_with_many_descriptors_gets_all_of_them_back() {
    in_a_process_of_its_own(|| {
        let (mut spawner, filled) = with_many_descriptors();
        let null = null();
        let before = open_descriptors() - 3 * spawner.fd_slots.empty_count();
        for round in 0..rounds(50) {
            // Both streams use one pipe, and more children are under way than slots are kept.
            assert_eq!(
                says(&mut spawner, plan("/bin/ls", &["/proc/self/fd"])),
                "0\n1\n2\n3",
                "round {round}"
            );
            let error = output(&mut spawner, plan("/nowhere", &[])).expect_err("not there");
            assert_eq!(error.step(), SpawnStep::Exec);
            let null = null.try_clone().expect("a number");
            let ends = [ChildEnd::Fd(null.as_raw_fd()); 3];
            let plan = captured(shell(":"));
            let flying: Vec<Launched> = (0..7)
                .map(|_| {
                    spawner
                        .launch(&plan, ends, Inside::default())
                        .expect("starts")
                })
                .collect();
            for mut launched in flying {
                assert!(matches!(
                    known(&mut launched.pending),
                    SpawnOutcome::Started
                ));
                let status = reap(launched.pid);
                assert!(status.success(), "{status}");
                spawner.recycle(launched.pending);
            }
        }
        let in_slots = 3 * spawner.fd_slots.empty_count();
        assert_eq!(open_descriptors() - in_slots, before);
        assert!(in_slots > 0, "fd_slots were used, and came back");
        // A passed descriptor may have any number, so the table is copied.
        let (last, to) = (filled.last().expect("many"), filled.len() as RawFd + 1_000);
        let mut plan = plan("/bin/ls", &["/proc/self/fd"]);
        plan.pass = vec![(Arc::new(last.try_clone().expect("a number")), to)];
        let listed = says(&mut spawner, plan);
        let mut listed: Vec<RawFd> = listed
            .lines()
            .map(|n| n.parse().expect("a number"))
            .collect();
        listed.sort_unstable();
        assert_eq!(listed, [0, 1, 2, 3, to]);
    });
}

/// CASES 77. A child that inherits a stream gets the host's descriptor of the moment of the start.
#[test]
fn a_child_gets_the_streams_that_the_host_has_at_the_start() {
    in_a_process_of_its_own(|| {
        let mut spawner = Spawner::new(free());
        assert_eq!(spawner.fd_slots.empty_count(), 0, "made when needed");
        let (read, write) = pipe();
        rustix::stdio::dup2_stdout(&write).expect("allowed");
        drop(write);
        let gate = Gate::closed();
        spawner.gate = gate.clone();
        let null = null();
        let mut launched = spawner
            .launch(
                &captured(shell("echo mine")),
                [
                    ChildEnd::Fd(null.as_raw_fd()),
                    ChildEnd::Inherit,
                    ChildEnd::Inherit,
                ],
                Inside::default(),
            )
            .expect("starts");
        // The host replaces it afterwards.
        rustix::stdio::dup2_stdout(&null).expect("allowed");
        gate.open();
        assert!(matches!(
            known(&mut launched.pending),
            SpawnOutcome::Started
        ));
        spawner.recycle(launched.pending);
        let mut text = String::new();
        File::from(read).read_to_string(&mut text).expect("text");
        assert_eq!(text, "mine\n");
        assert!(reap(launched.pid).success());
    });
}

/// CASES 77. As a frozen cgroup, a debugger or a stop signal would stop it.
#[test]
fn a_child_that_has_not_begun_holds_no_end_of_another() {
    in_a_process_of_its_own(|| {
        let mut spawner = Spawner::new(free());
        if super::ways::method(&mut spawner, shell(":")) != CloneMethod::NoWait {
            println!("skipped: clone3 is refused here, or a tracer is attached");
            return;
        }
        let null = null();
        let stuck: Vec<Launched> = (0..10)
            .map(|_| {
                // Its write end is open in the host while the next ones are started.
                let (_read, write) = pipe();
                spawner.gate = Gate::closed();
                spawner
                    .launch(
                        &captured(shell("exit 7")),
                        [
                            ChildEnd::Fd(null.as_raw_fd()),
                            ChildEnd::Fd(write.as_raw_fd()),
                            ChildEnd::Fd(null.as_raw_fd()),
                        ],
                        Inside::default(),
                    )
                    .expect("starts")
            })
            .collect();
        spawner.gate = Gate::default();
        // Reads to end of file, which would not come if a stuck child held a copy.
        for _ in 0..50 {
            assert_eq!(says(&mut spawner, shell("echo quiet")), "quiet");
        }
        // Each stuck child goes on where it was stopped.
        for launched in stuck {
            launched.pending.child_args().gate.open();
            assert_eq!(reap(launched.pid).code(), Some(7));
            spawner.recycle(launched.pending);
        }
    });
}

/// CASES 72. The number of the host's descriptors does not matter.
#[test]
fn a_program_named_by_a_descriptor_is_found_in_a_host_with_many() {
    in_a_process_of_its_own(|| {
        let (mut spawner, _filled) = with_many_descriptors();
        let program = File::open("/bin/sh").expect("a shell");
        let path = format!("/proc/self/fd/{}", program.as_raw_fd());
        assert_eq!(
            says(&mut spawner, plan(path, &["-c", "echo found"])),
            "found"
        );
    });
}
