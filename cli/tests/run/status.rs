//! The exit code of lastwords.

use crate::support::{
    LASTWORDS, Running, Scratch, finish, finish_with_report, is_alive, lastwords, shell, text,
    with_default_actions,
};
use rustix::process::Signal;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};

fn status(output: &Output) -> Option<i32> {
    output.status.code()
}

#[test]
fn a_code_is_handed_on() {
    for code in [0, 1, 3, 123, 255] {
        let output = finish(&mut shell(&[], &format!("exit {code}")));
        assert_eq!(status(&output), Some(code));
        assert_eq!(text(&output.stderr), "", "nothing is to be said");
    }
}

#[test]
fn a_signal_is_128_and_its_number() {
    for (signal, expected) in [("TERM", 143), ("KILL", 137), ("USR1", 138), ("SEGV", 139)] {
        assert_eq!(
            status(&finish(&mut shell(
                &[],
                &format!("ulimit -c 0; kill -{signal} $$")
            ))),
            Some(expected)
        );
    }
}

#[test]
fn an_end_by_int_or_quit_is_lastwords_own_end() {
    for (name, number) in [("INT", 2), ("QUIT", 3)] {
        let output = finish(&mut shell(&[], &format!("ulimit -c 0; kill -{name} $$")));
        assert_eq!(output.status.signal(), Some(number));
        assert!(
            !output.status.core_dumped(),
            "lastwords itself leaves no core"
        );
    }
    let mut outer = with_default_actions("sh");
    outer.args([
        "-c",
        r#""$0" run -- sh -c 'kill -INT $$'; echo $?"#,
        LASTWORDS,
    ]);
    assert_eq!(text(&finish(&mut outer).stdout), "130\n");
}

#[test]
fn a_command_that_is_not_there_is_127() {
    for command in [
        "lastwords-no-such-command",
        "/no/such/command",
        "./no-such-command",
    ] {
        let output = finish(&mut lastwords(["--", command]));
        assert_eq!(status(&output), Some(127), "{command}");
        let said = text(&output.stderr);
        assert!(
            said.starts_with("lastwords: failed to ")
                && said.contains(command)
                && said.lines().count() == 1,
            "{said}"
        );
    }
}

#[test]
fn a_command_that_cannot_be_executed_is_126() {
    let scratch = Scratch::new();
    let files = [
        scratch.file("plain", "true\n", 0o644),
        scratch.file("no-format", "\u{1}\u{2}\n", 0o755),
        scratch.file("no-interpreter", "#!/no/such/interpreter\n", 0o755),
        scratch.dir().to_path_buf(),
    ];
    for file in files {
        let output = finish(&mut lastwords(["--".as_ref(), file.as_os_str()]));
        assert_eq!(
            status(&output),
            Some(126),
            "{file:?}: {}",
            text(&output.stderr)
        );
        assert!(text(&output.stderr).contains(file.to_str().expect("text")));
    }
}

#[test]
fn the_own_failures_of_lastwords_are_125() {
    for words in [
        &["--nope", "--", "true"][..],
        &["--"],
        &[],
        &["--timeout", "0", "--", "true"],
        &["--cwd", "/no/such/directory", "--", "true"],
        &["--report", "/no/such/directory/report", "--", "true"],
        &["--termination-log", "/no/such/directory/log", "--", "true"],
    ] {
        let output = finish(&mut lastwords(words));
        assert_eq!(status(&output), Some(125), "{words:?}");
        assert!(!output.stderr.is_empty(), "{words:?} is told");
    }
    let alone = finish(Command::new(LASTWORDS).stdin(Stdio::null()));
    assert_eq!(status(&alone), Some(125));
}

#[test]
fn help_and_version_are_no_failure() {
    for words in [&["--help"][..], &["--version"], &["run", "--help"]] {
        let output = finish(Command::new(LASTWORDS).args(words));
        assert_eq!(status(&output), Some(0));
        assert!(!output.stdout.is_empty());
    }
}

/// The help documents the special exit codes.
#[test]
fn the_help_tells_the_exceptions() {
    let output = finish(Command::new(LASTWORDS).args(["run", "--help"]));
    let help = text(&output.stdout)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    for words in [
        "124 after --timeout (unless the command had ended before with a status that is not 0",
        "(--timeout takes no 0)",
        "LASTWORDS_LOG=off|error|warn|info|debug|trace",
        "(not with --background terminate)",
        "(not with --secret)",
    ] {
        assert!(
            help.contains(words),
            "{words:?} is not in the help:\n{help}"
        );
    }
}

#[test]
fn a_run_that_takes_too_long_is_124() {
    let (output, report) = finish_with_report(&["--timeout", "200ms"], "sleep 1000");
    assert_eq!(status(&output), Some(124));
    assert_eq!(report["outcome"], "timed_out");
    assert_eq!(report["stop"]["reason"], "timeout");
    // A child that exits with 0 on TERM has still timed out.
    let polite = finish(&mut shell(
        &["--timeout", "200ms"],
        "trap 'exit 0' TERM; sleep 1000 & wait",
    ));
    assert_eq!(status(&polite), Some(124));
}

#[test]
fn a_status_of_its_own_is_stronger_than_a_limit_that_came_later() {
    // The limit is long enough for the leader to end first, on any load.
    let start = |code: u32| {
        let script = format!("sleep 1000 >/dev/null 2>&1 & exit {code}");
        Running::start(
            shell(&["--timeout", "3s"], &script)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped()),
        )
    };
    let (failed, succeeded) = (start(3), start(0));
    assert_eq!(status(&failed.finish()), Some(3));
    assert_eq!(status(&succeeded.finish()), Some(124));
}

#[test]
fn work_that_was_waited_for_and_ended_is_123_after_a_success_only() {
    for (code, expected) in [(0, 123), (7, 7)] {
        let script = format!("sleep 1000 >/dev/null 2>&1 & echo $!; exit {code}");
        let mut running = Running::start(
            shell(&[], &script)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped()),
        );
        let mut pid = String::new();
        running.stdout().read_line(&mut pid).expect("text");
        // The grace is over and the wait has begun.
        let mut stderr = BufReader::new(running.child().stderr.take().expect("piped"));
        let mut line = String::new();
        stderr.read_line(&mut line).expect("text");
        assert!(
            line.starts_with("lastwords: waiting for background work, 30m at most: sleep (pid "),
            "{line}"
        );
        running.signal(Signal::TERM);
        assert_eq!(running.wait().code(), Some(expected));
        assert!(!is_alive(&pid));
        line.clear();
        stderr.read_line(&mut line).expect("text");
        assert!(
            line.starts_with("lastwords: background work was terminated ")
                && line.contains("sleep (pid "),
            "{line}"
        );
    }
}

/// CASES 94: also within the grace, before what is left counts as background work.
#[test]
fn what_a_stop_ends_after_the_exit_is_work_that_was_cut_off() {
    let mut running = Running::start(
        shell(&[], "sleep 1000 >/dev/null 2>&1 & echo $!; exit 0").stdout(Stdio::piped()),
    );
    let mut pid = String::new();
    running.stdout().read_line(&mut pid).expect("text");
    running.signal(Signal::TERM);
    let status = running.wait();
    assert!(
        status.code() == Some(123) || status.code() == Some(143),
        "work that was cut off, or the stop's own end if that came first: {status}"
    );
    assert!(!is_alive(&pid));
}

#[test]
fn work_that_finishes_is_waited_for_and_no_failure() {
    let (output, report) = finish_with_report(&[], "sleep 0.5 >/dev/null 2>&1 & exit 0");
    assert_eq!(status(&output), Some(0));
    assert_eq!(report["background"]["complete"], true);
    assert!(
        report["timing"]["total_us"].as_u64() >= Some(450_000),
        "{report}"
    );
}

#[test]
fn a_mapped_status_replaces_that_of_the_command_and_not_lastwords_own() {
    let run = |options: &[&str], script| finish(&mut shell(options, script));
    assert_eq!(status(&run(&["--map-exit", "3:0,4:9"], "exit 3")), Some(0));
    assert_eq!(status(&run(&["--map-exit", "3:0,4:9"], "exit 4")), Some(9));
    assert_eq!(
        status(&run(&["--map-exit", "137:7"], "kill -KILL $$")),
        Some(7)
    );
    let options = ["--map-exit", "124:0,143:0", "--timeout", "100ms"];
    assert_eq!(status(&run(&options, "exec sleep 1000")), Some(124));
    let options = [
        "--map-exit",
        "5:0",
        "--background",
        "terminate",
        "--background-grace",
        "0",
    ];
    let left_work = "sleep 1000 >/dev/null 2>&1 & exit 5";
    assert_eq!(status(&run(&options, left_work)), Some(123));
}

#[test]
fn the_commands_own_status_after_a_time_limit_is_had_on_request() {
    let options = ["--preserve-status", "--timeout", "100ms"];
    let output = finish(&mut shell(&options, "exec sleep 1000"));
    assert_eq!(status(&output), Some(143));
}
