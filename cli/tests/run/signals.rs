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

/// Repeats a signal at intervals at which each one counts, until lastwords ends. Returns its code.
fn insist(running: &mut Running, signal: Signal) -> Option<i32> {
    while running.is_running() {
        running.signal(signal);
        std::thread::sleep(Duration::from_millis(400));
    }
    running.wait().code()
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
        assert_eq!(insist(&mut running, second), Some(137));
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
    assert_eq!(insist(&mut running, Signal::INT), Some(137));
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

/// CASES 58. `timeout` signals lastwords and then its group, which lastwords belongs to.
#[test]
fn two_terms_of_one_request_leave_the_whole_grace() {
    let script =
        "trap 'sleep 0.4; echo cleaned up; exit 0' TERM; echo ready; while :; do sleep 0.02; done";
    let mut running = start(&["--stop-grace", "infinite"], script);
    let mut stdout = running.stdout();
    read_until(&mut stdout, "ready");
    running.signal(Signal::TERM);
    running.signal(Signal::TERM);
    read_until(&mut stdout, "cleaned up");
    assert_eq!(running.wait().code(), Some(0));
}

/// Signals that would end lastwords by their default action, as kill(1) knows them.
const PASSED_ON: [&str; 10] = [
    "ALRM", "VTALRM", "PROF", "IO", "PWR", "XCPU", "STKFLT", "USR1", "34", "64",
];

/// CASES 55.
#[test]
fn every_signal_that_would_end_lastwords_reaches_the_leader() {
    for name in PASSED_ON {
        let script = format!("trap 'echo got; exit 7' {name}; {THEN_WAIT}");
        let mut running = Running::start(
            lastwords(["--", "bash", "-c", &script])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped()),
        );
        let mut stdout = running.stdout();
        read_until(&mut stdout, "ready");
        send(name, running.pid());
        read_until(&mut stdout, "got");
        assert_eq!(running.wait().code(), Some(7), "{name}");
    }
}

/// Sends a signal that rustix has no name for.
fn send(name: &str, pid: rustix::process::Pid) {
    let sent = std::process::Command::new("bash")
        .args(["-c", "kill -s \"$0\" \"$1\"", name])
        .arg(pid.as_raw_nonzero().to_string())
        .status()
        .expect("bash is there");
    assert!(sent.success(), "{name}");
}

/// CASES 54.
#[test]
fn signals_that_were_blocked_at_the_start_are_heard() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
        let mut command = std::process::Command::new("env");
        command.args([
            "--default-signal",
            "--block-signal=TERM,INT,HUP,CHLD,CONT,TSTP",
            LASTWORDS,
            "run",
            "--",
            "sh",
            "-c",
            "echo ready; exec sleep 1000",
        ]);
        let mut running = Running::start(
            command
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped()),
        );
        read_until(&mut running.stdout(), "ready");
        running.signal(signal);
        assert_eq!(running.wait().code(), Some(code));
    }
}

/// CASES 57.
#[test]
fn signals_that_were_ignored_at_the_start_end_neither_lastwords_nor_the_command() {
    let mut command = std::process::Command::new("env");
    command.args([
        "--default-signal",
        "--ignore-signal=TERM,PIPE,TSTP,ALRM",
        LASTWORDS,
        "run",
        "--",
        "sh",
        "-c",
        "grep SigIgn /proc/self/status; read line; exit 3",
    ]);
    let mut running = Running::start(
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    );
    let mut ignored = String::new();
    running.stdout().read_line(&mut ignored).expect("text");
    let ignored = ignored.rsplit('\t').next().unwrap_or_default().trim();
    let ignored = u64::from_str_radix(ignored, 16).expect("a number in hexadecimal");
    for signal in [Signal::TERM, Signal::PIPE, Signal::TSTP, Signal::ALARM] {
        assert_ne!(ignored & (1 << (signal.as_raw() - 1)), 0, "{signal:?}");
        running.signal(signal);
    }
    drop(running.child().stdin.take());
    assert_eq!(running.wait().code(), Some(3));
}

/// CASES 56.
#[test]
fn a_file_that_may_not_grow_is_an_error_and_no_end() {
    let scratch = Scratch::new();
    let out = scratch.path("out");
    let script = r#"ulimit -f 8; exec "$0" run --quiet -- head -c 1000000 /dev/zero"#;
    let mut command = std::process::Command::new("env");
    command.args(["--default-signal", "bash", "-c", script, LASTWORDS]);
    let output = crate::support::Running::start(
        command
            .stdin(Stdio::null())
            .stdout(std::fs::File::create(&out).expect("a new file"))
            .stderr(Stdio::piped()),
    )
    .finish();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(text(&output.stderr).contains("EFBIG"), "{output:?}");

    let report = scratch.path("report");
    let script = r#"ulimit -f 0; exec "$0" run --quiet --report "$1" -- true"#;
    let mut command = std::process::Command::new("env");
    command.args(["--default-signal", "bash", "-c", script, LASTWORDS]);
    let output = crate::support::finish(command.arg(&report).stdin(Stdio::null()));
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(text(&output.stderr).contains("EFBIG"), "{output:?}");
    let left: Vec<_> = std::fs::read_dir(scratch.dir())
        .expect("a directory")
        .filter_map(|entry| Some(entry.ok()?.file_name()))
        .collect();
    assert_eq!(left, ["out"], "no draft of the report is left");
}

/// CASES 62.
#[test]
fn a_signal_of_the_user_during_the_wait_for_background_work_cuts_it_off() {
    for signal in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM] {
        let scratch = Scratch::new();
        let file = scratch.path("report");
        let mut command = lastwords([OsStr::new("--report"), file.as_os_str()]);
        command.args(["--background-grace", "0", "--", "sh", "-c"]);
        command.arg("sleep 1000 >/dev/null 2>&1 & exit 0");
        let mut running = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        let mut stderr = std::io::BufReader::new(running.child().stderr.take().expect("piped"));
        let mut line = String::new();
        while !line.contains("waiting for background work") {
            line.clear();
            assert_ne!(stderr.read_line(&mut line).expect("text"), 0);
        }
        running.signal(signal);
        assert_eq!(running.wait().code(), Some(123), "{signal:?}");
        let background = &read_report(&file)["background"];
        assert_eq!(background["state"], "terminated");
        assert_eq!(background["complete"], false);
    }
}

/// CASES 63. Memory that is refused ends lastwords by ABRT.
#[test]
fn an_abort_of_lastwords_kills_the_command() {
    let mut running = start(&[], "sleep 1000 & echo $!; echo $$; wait");
    let mut stdout = running.stdout();
    let (mut member, mut leader) = (String::new(), String::new());
    stdout.read_line(&mut member).expect("text");
    stdout.read_line(&mut leader).expect("text");
    running.signal(Signal::ABORT);
    assert_eq!(running.wait().signal(), Some(Signal::ABORT.as_raw()));
    eventually("the group is killed", || {
        !is_alive(&leader) && !is_alive(&member)
    });
}

#[test]
fn a_signal_reaches_the_command_as_the_one_it_is_mapped_to() {
    for (mapping, sent, trapped) in [
        ("TERM:USR1", Signal::TERM, "USR1"),
        ("HUP:USR2", Signal::HUP, "USR2"),
        ("USR1:TERM", Signal::USR1, "TERM"),
    ] {
        let script = format!("trap 'echo got; exit 5' {trapped}; {THEN_WAIT}");
        let mut running = start(&["--map-signal", mapping], &script);
        let mut stdout = running.stdout();
        read_until(&mut stdout, "ready");
        running.signal(sent);
        read_until(&mut stdout, "got");
        assert_eq!(running.wait().code(), Some(5), "{mapping}");
    }
}

#[test]
fn a_signal_that_is_mapped_to_0_is_dropped() {
    let options = ["--map-signal", "TERM:0,USR1:0"];
    let mut running = start(&options, &format!("trap 'exit 5' USR2; {THEN_WAIT}"));
    read_until(&mut running.stdout(), "ready");
    for signal in [Signal::TERM, Signal::USR1, Signal::USR2] {
        running.signal(signal);
    }
    assert_eq!(running.wait().code(), Some(5));
}
