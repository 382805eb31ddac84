//! Options for background work and containment.

use super::support::{
    LASTWORDS, Running, Scratch, eventually, finish, finish_with_report, is_alive, lastwords,
    read_report, shell, text, with_default_actions,
};
use rustix::process::Signal;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

const LEAVES: &str = "sleep 1000 >/dev/null 2>&1 & echo $!; exit 0";
const ESCAPES: &str = "setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $!; exit 0";

fn kill(pid: &str) {
    let _ = Command::new("kill")
        .args(["-9", pid.trim()])
        .stderr(Stdio::null())
        .status();
}

/// Whether a program is installed. Prints a note if it is not.
fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = std::env::split_paths(&path).any(|dir| dir.join(program).is_file());
    if !there {
        eprintln!("{program} is not installed: how it leaves its starter is not tested here");
    }
    there
}

#[test]
fn work_is_terminated_without_a_wait() {
    let (output, report) = finish_with_report(
        &["--background", "terminate", "--background-grace", "100ms"],
        LEAVES,
    );
    assert_eq!(output.status.code(), Some(123));
    assert_eq!(
        (
            &report["background"]["state"],
            &report["background"]["complete"]
        ),
        (&"terminated".into(), &false.into())
    );
    assert_eq!(report["background"]["processes"][0]["comm"], "sleep");
    assert_eq!(report["stop"]["reason"], "background");
    assert!(!is_alive(text(&output.stdout)));
    let said = text(&output.stderr);
    assert!(
        !said.contains("waiting for") && said.contains("background work was terminated"),
        "{said}"
    );
}

#[test]
fn work_is_terminated_after_its_wait_and_killed_after_its_grace() {
    let options = [
        "--background-grace",
        "100ms",
        "--background-wait",
        "300ms",
        "--terminate-grace",
        "200ms",
    ];
    let script = "(trap '' TERM; exec sleep 1000) >/dev/null 2>&1 & echo $!; exit 0";
    let (output, report) = finish_with_report(&options, script);
    assert_eq!(output.status.code(), Some(123));
    assert_eq!(
        (&report["background"]["state"], &report["stop"]["escalated"]),
        (&"terminated".into(), &true.into())
    );
    assert!(
        text(&output.stderr).contains("waiting for background work, 300ms at most: "),
        "{}",
        text(&output.stderr)
    );
    assert!(!is_alive(text(&output.stdout)));
}

/// CASES 49: a shell starts a helper and executes lastwords, as the entry points of containers do.
#[test]
fn a_child_that_was_there_before_is_neither_waited_for_nor_signalled() {
    for options in [
        "--contain cookie --background terminate --background-grace 0",
        "--contain cookie --background-wait 50s",
        "--init",
    ] {
        let scratch = Scratch::new();
        let (file, pid) = (scratch.path("report.json"), scratch.path("pid"));
        let script = format!(
            "sleep 1000 </dev/null >/dev/null 2>&1 & echo $! >{}; exec {LASTWORDS} run {options} --report {} -- true",
            pid.display(),
            file.display()
        );
        let output = finish(with_default_actions("sh").args(["-c", &script]));
        let helper = std::fs::read_to_string(&pid).expect("the helper's process id");
        let lives = is_alive(&helper);
        kill(&helper);
        let report = read_report(&file);
        assert_eq!(output.status.code(), Some(0), "{options}: {output:?}");
        assert_eq!(report["background"]["state"], "none", "{options}: {report}");
        assert!(
            report["background"]["waited_ms"].as_u64() < Some(9_000),
            "{options}: {report}"
        );
        assert!(lives, "{options}");
    }
}

/// CASES 49: what such a helper leaves behind is inherited by lastwords, and still nobody's.
#[test]
fn an_orphan_of_a_child_that_was_there_before_is_not_signalled() {
    let scratch = Scratch::new();
    let (file, go, pid) = (
        scratch.path("report.json"),
        scratch.path("go"),
        scratch.path("pid"),
    );
    let script = format!(
        "(while ! [ -e {go} ]; do sleep 0.01; done; \
            (setsid sh -c 'echo $$ >{pid}.new; mv {pid}.new {pid}; exec sleep 1000' &)) \
         </dev/null >/dev/null 2>&1 & \
         exec {LASTWORDS} run --contain cookie --background terminate --background-grace 0 --report {file} \
         -- sh -c ': >{go}; while ! [ -e {pid} ]; do sleep 0.01; done; \
            while [ \"$(cut -d\" \" -f4 /proc/$(cat {pid})/stat)\" != $PPID ]; do sleep 0.01; done'",
        go = go.display(),
        pid = pid.display(),
        file = file.display()
    );
    let output = finish(with_default_actions("sh").args(["-c", &script]));
    let orphan = std::fs::read_to_string(&pid).expect("the orphan's process id");
    let lives = is_alive(&orphan);
    kill(&orphan);
    let report = read_report(&file);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(report["background"]["state"], "none", "{report}");
    assert!(lives);
}

/// The nearer of the wait and the time limit is shown, with the limit as the reason.
#[test]
fn a_time_limit_that_is_nearer_than_the_wait_is_told() {
    let output = finish(&mut shell(
        &["--timeout", "3s", "--background-grace", "100ms"],
        LEAVES,
    ));
    assert_eq!(output.status.code(), Some(124));
    let said = text(&output.stderr);
    let [wait, end] = said.lines().collect::<Vec<_>>()[..] else {
        panic!("{said}")
    };
    assert!(
        wait.starts_with("lastwords: waiting for background work, ")
            && wait.contains(" at most (time limit): sleep (pid "),
        "{said}"
    );
    assert!(!wait.contains("30m"), "{said}");
    assert!(
        end.starts_with("lastwords: background work was terminated ")
            && end.contains(" (time limit): sleep (pid "),
        "{said}"
    );
    assert!(!is_alive(text(&output.stdout)));
}

/// Members of the group that outlived the first signal of a stop are no background work.
#[test]
fn what_a_time_limit_had_to_kill_is_not_called_background_work() {
    let script = "(trap '' TERM; while :; do sleep 0.05; done) & echo $!; wait";
    let options = ["--timeout", "500ms", "--stop-grace", "200ms"];
    let output = finish(&mut shell(&options, script));
    assert_eq!(output.status.code(), Some(124));
    let said = text(&output.stderr);
    assert!(
        said.contains("SIGKILL was needed") && !said.contains("background work"),
        "{said}"
    );
}

#[test]
fn work_that_is_reported_or_not_looked_for_leaves_the_status_as_it_is() {
    for (options, state, status) in [
        (
            &["--background", "report", "--background-grace", "100ms"][..],
            "reported",
            0,
        ),
        (&["--background", "ignore"], "disabled", 0),
        (
            &[
                "--background-grace",
                "0",
                "--background-wait",
                "100ms",
                "--keep-orphans",
            ],
            "kept",
            123,
        ),
    ] {
        let (output, report) = finish_with_report(options, LEAVES);
        assert_eq!(output.status.code(), Some(status), "{options:?}");
        assert_eq!(report["background"]["state"], state);
        assert!(
            is_alive(text(&output.stdout)),
            "{options:?}: it was left running"
        );
        kill(text(&output.stdout));
    }
}

#[test]
fn options_that_contradict_each_other_start_nothing() {
    let output = finish(&mut shell(
        &["--background", "terminate", "--keep-orphans"],
        "echo started",
    ));
    assert_eq!(
        (output.status.code(), text(&output.stdout)),
        (Some(125), "")
    );
    assert!(
        text(&output.stderr).contains("contradict"),
        "{}",
        text(&output.stderr)
    );
}

/// A process that left the group is not seen by the group, and is ended by the other containments.
#[test]
fn an_escapee_is_seen_by_the_cookie_and_by_the_cgroup() {
    for (by, state, status) in [
        ("group", "none", 0),
        ("cookie", "terminated", 123),
        ("cgroup", "terminated", 123),
    ] {
        let options = [
            "--contain",
            by,
            "--background",
            "terminate",
            "--background-grace",
            "300ms",
        ];
        // The process has to leave the group first.
        let script = format!(
            "{}; sleep 0.3; exit 0",
            ESCAPES.trim_end_matches("; exit 0")
        );
        let (output, report) = finish_with_report(&options, &script);
        if by == "cgroup" && report["error"]["step"] == "cgroup" {
            eprintln!(
                "containment by cgroup cannot be tested here: {}",
                report["error"]["message"]
            );
            assert_eq!(output.status.code(), Some(125));
            continue;
        }
        assert_eq!(report["background"]["contained_by"], by);
        assert_eq!(
            (&report["background"]["state"], output.status.code()),
            (&state.into(), Some(status)),
            "{report}"
        );
        assert_eq!(is_alive(text(&output.stdout)), by == "group");
        kill(text(&output.stdout));
    }
}

#[test]
fn a_containment_that_cannot_be_had_is_125_and_says_what_is_missing() {
    let (output, report) =
        finish_with_report(&["--contain", "cgroup=/nonexistent"], "echo started");
    assert_eq!(
        (output.status.code(), text(&output.stdout)),
        (Some(125), "")
    );
    assert_eq!(
        (&report["error"]["step"], &report["error"]["errno"]),
        (&"cgroup".into(), &"ENOENT".into())
    );
    assert!(
        text(&output.stderr).contains("failed to make a cgroup for the child in \"/nonexistent\""),
        "{}",
        text(&output.stderr)
    );
}

/// A run without background work makes one system call to ask whether the group is empty.
#[test]
fn detection_costs_one_system_call_where_nothing_is_left() {
    if !is_installed("strace") {
        return;
    }
    let calls = |background: &str| {
        let scratch = Scratch::new();
        let log = scratch.path("calls");
        let mut command = Command::new("strace");
        command
            .arg("-o")
            .arg(&log)
            .args([LASTWORDS, "run", "--background", background, "--", "true"])
            .stdin(Stdio::null());
        let output = finish(&mut command);
        if !output.status.success() {
            eprintln!("strace may not trace here: {}", text(&output.stderr));
            return None;
        }
        let log = std::fs::read_to_string(&log).expect("a log");
        let count = |name: &str| log.lines().filter(|line| line.starts_with(name)).count();
        Some((
            count("pidfd_send_signal"),
            count("getdents"),
            count("kill("),
        ))
    };
    // No other system call signals a process or reads /proc.
    if let (Some(with), Some(without)) = (calls("wait"), calls("ignore")) {
        assert!(
            with.0 + with.2 <= without.0 + without.2 + 1,
            "{with:?} {without:?}"
        );
        assert_eq!(with.1, without.1, "no look through /proc");
    }
}

/// Runs a command that daemonizes, under containment by cookie. The leader's status comes at once,
/// and the daemon is found and ended.
fn daemon(comm: &str, script: &str, dir: &Path) {
    let report = dir.join("report.json");
    let mut command = lastwords([
        "--contain",
        "cookie",
        "--background",
        "terminate",
        "--background-grace",
        "1s",
        "--report",
    ]);
    command
        .arg(&report)
        .args(["--", "sh", "-c", script])
        .current_dir(dir)
        .stdout(Stdio::null());
    let output = finish(&mut command);
    let report = read_report(&report);
    assert_eq!(
        (&report["exit"]["code"], output.status.code()),
        (&0.into(), Some(123)),
        "{report}\n{}",
        text(&output.stderr)
    );
    assert_eq!(report["background"]["state"], "terminated");
    let listed = report["background"]["processes"]
        .as_array()
        .expect("a list");
    let named = |process: &&serde_json::Value| {
        process["comm"]
            .as_str()
            .is_some_and(|name| name.starts_with(comm))
    };
    let pid = listed
        .iter()
        .find(named)
        .unwrap_or_else(|| panic!("{comm} is not among {listed:?}"))["pid"]
        .to_string();
    eventually("the daemon's end", || !is_alive(&pid));
}

/// CASES 48.
#[test]
fn daemons_that_detach_by_themselves_are_seen() {
    if is_installed("ssh-agent") {
        let scratch = Scratch::new();
        daemon("ssh-agent", "ssh-agent -a ./agent", scratch.dir());
    }
    if is_installed("redis-server") {
        let scratch = Scratch::new();
        daemon(
            "redis-server",
            "redis-server --port 0 --unixsocket ./redis --save '' --daemonize yes",
            scratch.dir(),
        );
    }
}

/// CASES 48. `git gc --auto` detaches.
#[test]
fn git_housekeeping_that_detaches_is_waited_for() {
    if !is_installed("git") {
        return;
    }
    let scratch = Scratch::new();
    let script = "git init -q . && git config gc.autoDetach true && git config gc.auto 1 && git config user.name x && git config user.email x@localhost
        i=0; while [ $i -lt 300 ]; do echo $i > f$i; i=$((i + 1)); done; git add . && git commit -qm x && git gc --auto --quiet; exit 0";
    let report = scratch.path("report.json");
    let mut command = lastwords(["--contain", "cookie", "--report"]);
    command
        .arg(&report)
        .args(["--", "sh", "-c", script])
        .current_dir(scratch.dir())
        .stdout(Stdio::null());
    let output = finish(&mut command);
    let report = read_report(&report);
    assert_eq!(
        (output.status.code(), &report["background"]["complete"]),
        (Some(0), &true.into()),
        "{report}\n{}",
        text(&output.stderr)
    );
    // Its lock file is gone, so the detached process was waited for.
    assert!(!scratch.path(".git/gc.pid").exists());
}

/// Ctrl-C during the wait for background work.
#[test]
fn an_interrupt_ends_the_wait_and_the_work() {
    let mut running = Running::start(
        shell(&["--background-grace", "50ms"], LEAVES)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    );
    let mut pid = String::new();
    running.stdout().read_line(&mut pid).expect("text");
    let mut stderr = BufReader::new(running.child().stderr.take().expect("piped"));
    let mut line = String::new();
    stderr.read_line(&mut line).expect("text");
    assert!(
        line.starts_with("lastwords: waiting for background work, 30m at most: sleep (pid "),
        "{line}"
    );
    running.signal(Signal::INT);
    assert_eq!(running.wait().code(), Some(123));
    assert!(!is_alive(&pid));
}
