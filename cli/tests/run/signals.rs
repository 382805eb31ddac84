//! Signals sent to lastwords.

use crate::support::{
    LASTWORDS, Running, Scratch, eventually, is_alive, lastwords, read_report, read_until, shell,
    text,
};
use rustix::process::Signal;
use serde_json::json;
use std::ffi::OsStr;
use std::io::BufRead;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::Duration;

/// Script: prints `ready`, then sleeps in short pieces, so that traps run soon.
const THEN_WAIT: &str = "echo ready; while :; do sleep 0.02; done";

fn start(options: &[&str], script: &str) -> Running {
    Running::start(
        shell(options, script)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    )
}

#[test]
fn term_is_a_stop() {
    let scratch = Scratch::new();
    let file = scratch.path("report");
    let script = format!("trap 'exit 0' TERM; {THEN_WAIT}");
    let mut command = lastwords([OsStr::new("--report"), file.as_os_str()]);
    let mut running = Running::start(
        command
            .args(["--", "sh", "-c", &script])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    );
    let mut stdout = running.stdout();
    read_until(&mut stdout, "ready");
    running.signal(Signal::TERM);
    assert_eq!(running.wait().code(), Some(0));
    let report = read_report(&file);
    assert_eq!(report["outcome"], "stopped");
    assert_eq!(
        report["stop"],
        json!({"reason": "request", "signal": "TERM", "escalated": false, "denied": false, "stuck": []})
    );
}

#[test]
fn a_stop_reaches_the_whole_group_and_uses_the_signal_asked_for() {
    let mut running = start(
        &["--stop-signal", "USR1", "--stop-grace", "infinite"],
        "trap 'exit 4' USR1; sleep 1000 & echo $!; wait",
    );
    let mut pid = String::new();
    running.stdout().read_line(&mut pid).expect("text");
    // Before exec the process has the shell's handler, which would swallow the signal.
    eventually("sleep runs", || {
        std::fs::read_to_string(format!("/proc/{}/comm", pid.trim()))
            .is_ok_and(|comm| comm == "sleep\n")
    });
    running.signal(Signal::TERM);
    assert_eq!(running.wait().code(), Some(4));
    assert!(
        !is_alive(&pid),
        "lastwords is not over before the group is empty"
    );
}

#[test]
fn what_ignores_term_is_killed_after_the_grace() {
    let mut running = start(
        &["--stop-grace", "200ms"],
        &format!("trap '' TERM; {THEN_WAIT}"),
    );
    let mut stdout = running.stdout();
    read_until(&mut stdout, "ready");
    running.signal(Signal::TERM);
    assert_eq!(running.wait().code(), Some(137));
}

#[test]
fn a_second_term_or_an_int_kills_during_a_stop() {
    for second in [Signal::TERM, Signal::INT] {
        let mut running = start(
            &["--stop-grace", "infinite"],
            &format!("trap 'echo asked' TERM; trap '' INT; {THEN_WAIT}"),
        );
        let mut stdout = running.stdout();
        read_until(&mut stdout, "ready");
        running.signal(Signal::TERM);
        read_until(&mut stdout, "asked");
        running.signal(second);
        assert_eq!(running.wait().code(), Some(137));
    }
}

#[test]
fn keyboard_signals_are_passed_on() {
    for (signal, name) in [
        (Signal::INT, "INT"),
        (Signal::HUP, "HUP"),
        (Signal::QUIT, "QUIT"),
        (Signal::WINCH, "WINCH"),
    ] {
        let mut running = start(&[], &format!("trap 'echo got; exit 5' {name}; {THEN_WAIT}"));
        let mut stdout = running.stdout();
        read_until(&mut stdout, "ready");
        running.signal(signal);
        read_until(&mut stdout, "got");
        assert_eq!(running.wait().code(), Some(5), "{name}");
    }
}

#[test]
fn int_reaches_members_of_the_group_and_ends_lastwords_like_the_leader() {
    // Background jobs of a non-interactive shell ignore INT, so perl starts the sleep.
    let script = "exec perl -e 'my $p = fork; if (!$p) { exec qw(sleep 1000) } $| = 1; print qq($p\\n); waitpid $p, 0; sleep 1000'";
    let mut running = start(&[], script);
    let mut pid = String::new();
    running.stdout().read_line(&mut pid).expect("text");
    running.signal(Signal::INT);
    assert_eq!(running.wait().signal(), Some(Signal::INT.as_raw()));
    assert!(!is_alive(&pid));
}

#[test]
fn a_second_int_soon_after_the_first_kills() {
    let mut running = start(&[], &format!("trap 'echo got' INT; {THEN_WAIT}"));
    let mut stdout = running.stdout();
    read_until(&mut stdout, "ready");
    running.signal(Signal::INT);
    read_until(&mut stdout, "got");
    running.signal(Signal::INT);
    assert_eq!(running.wait().code(), Some(137));
}

#[test]
fn an_int_long_after_the_first_is_passed_on() {
    let mut running = start(
        &[],
        &format!("n=0; trap 'n=$((n+1)); echo got $n; [ $n -lt 2 ] || exit 6' INT; {THEN_WAIT}"),
    );
    let mut stdout = running.stdout();
    read_until(&mut stdout, "ready");
    running.signal(Signal::INT);
    read_until(&mut stdout, "got 1");
    std::thread::sleep(Duration::from_millis(2300));
    running.signal(Signal::INT);
    read_until(&mut stdout, "got 2");
    assert_eq!(running.wait().code(), Some(6));
}

#[test]
fn user_signals_reach_the_leader_alone() {
    // USR1 would kill the other member of the group.
    let script = format!(
        "sleep 1000 & echo $!; trap 'echo one' USR1; trap 'echo two; kill $!; exit 8' USR2; {THEN_WAIT}"
    );
    let mut running = start(&[], &script);
    let mut stdout = running.stdout();
    let mut pid = String::new();
    stdout.read_line(&mut pid).expect("text");
    read_until(&mut stdout, "ready");
    running.signal(Signal::USR1);
    read_until(&mut stdout, "one");
    assert!(is_alive(&pid));
    running.signal(Signal::USR2);
    read_until(&mut stdout, "two");
    assert_eq!(running.wait().code(), Some(8));
}

#[test]
fn a_stop_cuts_the_drain_of_a_pipe_that_a_member_holds() {
    let mut running = start(
        &["--drain-idle", "infinite", "--drain-limit", "infinite"],
        "sleep 1000 & echo $!; exit 3",
    );
    let mut pid = String::new();
    running.stdout().read_line(&mut pid).expect("text");
    running.signal(Signal::TERM);
    let status = running.wait();
    assert!(
        status.code() == Some(3) || status.code() == Some(143),
        "its own end, or the stop's if that came first: {status}"
    );
    assert!(!is_alive(&pid));
}

#[test]
fn a_stopped_command_can_be_stopped_for_good() {
    let mut running = start(&[], "echo $$; kill -STOP $$; sleep 1000");
    let mut pid = String::new();
    running.stdout().read_line(&mut pid).expect("text");
    eventually("it has stopped itself", || {
        std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()))
            .is_ok_and(|stat| stat.contains(") T "))
    });
    assert!(running.is_running(), "a stop is not an end");
    running.signal(Signal::TERM);
    assert_eq!(running.wait().code(), Some(143));
}

#[test]
fn a_stop_from_the_keyboard_means_nothing_where_nobody_could_continue_us() {
    // lastwords leads a session of its own. Its group is orphaned, so the kernel does not stop it.
    let mut command = std::process::Command::new("setsid");
    command.args([
        LASTWORDS,
        "run",
        "--",
        "sh",
        "-c",
        "echo ready; read line; exit 5",
    ]);
    let mut running = Running::start(
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    );
    read_until(&mut running.stdout(), "ready");
    running.signal(Signal::TSTP);
    std::thread::sleep(Duration::from_millis(200));
    drop(running.child().stdin.take());
    assert_eq!(running.wait().code(), Some(5));
}

#[test]
fn many_runs_side_by_side_keep_their_statuses_apart() {
    let runs: Vec<(i32, Running)> = (0..30)
        .map(|n| (n, start(&[], &format!("echo {n}; exit {n}"))))
        .collect();
    for (n, running) in runs {
        let output = running.finish();
        assert_eq!(
            (output.status.code(), text(&output.stdout)),
            (Some(n), format!("{n}\n").as_str())
        );
    }
}
