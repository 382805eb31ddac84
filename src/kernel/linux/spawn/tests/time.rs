//! How long a start suspends its caller, and how many children can be made. The bounds are
//! generous, for loaded machines; with the environment variable `LASTWORDS_SPAWNS` the numbers are
//! printed.

use crate::kernel::linux::spawn::tests::*;
use std::collections::VecDeque;
use std::process::{Command, Stdio};
use std::time::Instant;

#[test]
fn a_caller_stands_still_for_less_time_than_one_that_waits_for_exec() {
    in_a_process_of_its_own(|| {
        let mut spawners = [
            free(),
            SpawnOptions {
                vfork: true,
                ..free()
            },
        ]
        .map(Spawner::new);
        let few = compare("few descriptors", &mut spawners);
        // The slots exist since numbers were low.
        let filled = fill(18_000);
        let many = compare(&format!("{} descriptors", filled.len()), &mut spawners);
        if spawners[0].options.clone3 {
            assert!(
                few < 2.0 && many < 2.0,
                "compared with std: {few:.2}, {many:.2}"
            );
        }
    });
}

fn percentile(times: &[Duration], p: usize) -> f64 {
    let mut times = times.to_vec();
    times.sort_unstable();
    times
        .get((times.len() * p / 100).min(times.len() - 1))
        .copied()
        .unwrap_or_default()
        .as_secs_f64()
        * 1e6
}

fn tell(text: String) {
    if std::env::var_os("LASTWORDS_SPAWNS").is_some() {
        let _ = rustix::io::write(rustix::stdio::stderr(), text.as_bytes());
    }
}

fn std_command(null: &File) -> Command {
    let copy = || Stdio::from(null.try_clone().expect("a number"));
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", ":"])
        .stdin(copy())
        .stdout(copy())
        .stderr(copy());
    command
}

/// Starts `sh -c :` again and again, ten times with each spawner and with std in turn, because
/// copying a large table empties the caches. Returns the lower quartile of the first spawner
/// divided by that of std.
fn compare(what: &str, spawners: &mut [Spawner; 2]) -> f64 {
    let plan = captured(plan("/bin/sh", &["-c", ":"]));
    let null = null();
    let ends = [ChildEnd::Fd(null.as_raw_fd()); 3];
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..rounds(40) / 10 {
        for (spawner, times) in spawners.iter_mut().zip(&mut times) {
            for _ in 0..10 {
                let begin = Instant::now();
                let mut launched = spawner
                    .launch(&plan, ends, Inside::default())
                    .expect("starts");
                times.push(begin.elapsed());
                assert!(matches!(
                    known(&mut launched.pending),
                    SpawnOutcome::Started
                ));
                assert!(reap(launched.pid).success());
                spawner.recycle(launched.pending);
            }
        }
        for _ in 0..10 {
            let mut command = std_command(&null);
            let begin = Instant::now();
            let mut child = command.spawn().expect("starts");
            times[2].push(begin.elapsed());
            assert!(child.wait().expect("ends").success());
        }
    }
    for (name, times) in ["free", "vfork", "std"].into_iter().zip(&times) {
        let [p50, p90, p99] = [50, 90, 99].map(|p| percentile(times, p));
        tell(format!(
            "{what}: {name} stands still p50 {p50:.1}, p90 {p90:.1}, p99 {p99:.1} us\n"
        ));
    }
    // The lower quartile, because other processes disturb the slower half.
    percentile(&times[0], 25) / percentile(&times[2], 25)
}

#[test]
fn children_are_made_and_reaped_one_at_a_time_and_eight_in_flight() {
    in_a_process_of_its_own(|| {
        let plan = Arc::new(plan("/bin/sh", &["-c", ":"]));
        let null = null();
        let ends = [ChildEnd::Fd(null.as_raw_fd()); 3];
        let mut spawner = Spawner::new(free());
        let mut rates = [const { Vec::new() }; 3];
        let each = 20;
        for _ in 0..rounds(40) / 20 {
            for (in_flight, rates) in [1, 8].into_iter().zip(&mut rates) {
                let begin = Instant::now();
                let mut flying: VecDeque<Launched> = VecDeque::new();
                for n in 0..each + in_flight {
                    if n < each {
                        flying.push_back(
                            spawner
                                .launch(&plan, ends, Inside::default())
                                .expect("starts"),
                        );
                    }
                    if n + 1 >= in_flight
                        && let Some(mut launched) = flying.pop_front()
                    {
                        assert!(reap(launched.pid).success());
                        assert!(
                            matches!(launched.pending.outcome(), SpawnOutcome::Started),
                            "known before the exit is"
                        );
                        spawner.recycle(launched.pending);
                    }
                }
                rates.push(begin.elapsed() / each);
            }
            let begin = Instant::now();
            for _ in 0..each {
                assert!(std_command(&null).status().expect("starts").success());
            }
            rates[2].push(begin.elapsed() / each);
        }
        for (name, times) in ["one at a time", "eight in flight", "std, one at a time"]
            .into_iter()
            .zip(&rates)
        {
            tell(format!(
                "{name}: {:.0} children a second\n",
                1e6 / percentile(times, 50)
            ));
        }
        assert_eq!(spawner.pool.len(), 8, "as many stacks as were in flight");
    });
}
