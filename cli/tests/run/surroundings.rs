//! The environment, descriptors and signal dispositions that the command starts with.

use crate::support::{
    LASTWORDS, Running, Scratch, finish, finish_with_report, lastwords, shell, text,
};
use std::ffi::OsStr;
use std::io::Write;
use std::process::{Command, Stdio};

#[test]
fn stdin_is_passed_on_or_empty() {
    let mut running = Running::start(
        lastwords(["--", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    );
    running
        .child()
        .stdin
        .take()
        .expect("piped")
        .write_all(b"through\n")
        .expect("it reads");
    assert_eq!(text(&running.finish().stdout), "through\n");

    let mut running = Running::start(
        lastwords(["--stdin", "null", "--", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    );
    let ours = running.child().stdin.take();
    assert_eq!(text(&running.finish().stdout), "");
    drop(ours);
}

#[test]
fn the_working_directory_is_the_commands_alone() {
    let scratch = Scratch::new();
    scratch.file("tool", "#!/bin/sh\npwd\n", 0o755);
    let dir = scratch.dir().canonicalize().expect("there");
    let output = finish(&mut lastwords([
        OsStr::new("--cwd"),
        dir.as_os_str(),
        "--".as_ref(),
        "./tool".as_ref(),
    ]));
    assert_eq!(text(&output.stdout).trim_end(), dir.to_str().expect("text"));
}

#[test]
fn variables_are_set_over_the_own_and_removed() {
    let options = [
        "--unset",
        "GONE",
        "--unset",
        "BACK",
        "--env",
        "BACK=again",
        "--env",
        "A=b=c",
        "--env",
        "EMPTY=",
    ];
    let script = "echo \"$A|$EMPTY|${EMPTY-unset}|${GONE-unset}|$BACK|$KEPT\"";
    let output = finish(
        shell(&options, script)
            .env("GONE", "x")
            .env("BACK", "y")
            .env("KEPT", "z"),
    );
    assert_eq!(text(&output.stdout), "b=c|||unset|again|z\n");
}

#[test]
fn a_path_that_is_set_decides_where_the_command_is_looked_for() {
    let scratch = Scratch::new();
    scratch.file("lastwords-test-tool", "#!/bin/sh\necho found\n", 0o755);
    let path = format!("PATH={}:/usr/bin:/bin", scratch.dir().display());
    let output = finish(&mut lastwords([
        "--env",
        &path,
        "--",
        "lastwords-test-tool",
    ]));
    assert_eq!(text(&output.stdout), "found\n");
    let output = finish(&mut lastwords([
        "--env",
        "PATH=/no/such/directory",
        "--",
        "sh",
    ]));
    assert_eq!(output.status.code(), Some(127));
}

#[test]
fn descriptors_are_passed_on_unless_they_are_to_be_closed() {
    let mut outer = Command::new("bash");
    outer.args([
        "-c",
        r#""$0" run -- diff <(echo a) <(echo a) && echo same"#,
        LASTWORDS,
    ]);
    assert_eq!(text(&finish(&mut outer).stdout), "same\n");

    let script = r#"exec 9>/dev/null; "$0" run $1 -- sh -c 'if { true >&9; } 2>/dev/null; then echo open; else echo closed; fi'"#;
    for (option, expected) in [("", "open\n"), ("--close-fds", "closed\n")] {
        let output = finish(Command::new("bash").args(["-c", script, LASTWORDS, option]));
        assert_eq!(text(&output.stdout), expected, "{}", text(&output.stderr));
    }
}

#[test]
fn no_descriptor_of_lastwords_itself_reaches_the_command() {
    // ls has a descriptor for the directory itself. Without the option, descriptors that this test
    // binary inherited stay open.
    let bare = finish(Command::new("ls").arg("/proc/self/fd").stdin(Stdio::null()));
    let expected = text(&bare.stdout);
    for (options, expected) in [
        (&[][..], expected),
        (&["--exit-source", "sigchld"], expected),
        (&["--close-fds"], "0\n1\n2\n3\n"),
    ] {
        let output = finish(&mut lastwords(options.iter().copied().chain([
            "--",
            "ls",
            "/proc/self/fd",
        ])));
        assert_eq!(text(&output.stdout), expected, "{options:?}");
    }
}

#[test]
fn signals_ignored_at_the_start_stay_ignored_for_the_command() {
    for signal in ["HUP", "INT", "QUIT"] {
        let script = format!("kill -{signal} $$; echo alive");
        let mut nohup = Command::new("env");
        nohup.args([
            &format!("--ignore-signal={signal}"),
            LASTWORDS,
            "run",
            "--",
            "sh",
            "-c",
            &script,
        ]);
        let output = finish(&mut nohup);
        assert_eq!(
            (text(&output.stdout), output.status.code()),
            ("alive\n", Some(0)),
            "{signal}"
        );
    }
    let output = finish(&mut shell(&[], "kill -HUP $$; echo alive"));
    assert_eq!(
        (text(&output.stdout), output.status.code()),
        ("", Some(129))
    );
}

#[test]
fn an_ignored_chld_costs_no_status() {
    let mut outer = Command::new("env");
    outer.args([
        "--ignore-signal=CHLD",
        LASTWORDS,
        "run",
        "--",
        "sh",
        "-c",
        "exit 3",
    ]);
    assert_eq!(finish(&mut outer).status.code(), Some(3));
}

#[test]
fn the_command_begins_with_clean_signals() {
    let script = "grep -E '^Sig(Blk|Ign)' /proc/self/status | tr -d '\\t\\n'";
    let output = finish(&mut lastwords(["--", "sh", "-c", script]));
    assert_eq!(
        text(&output.stdout),
        "SigBlk:0000000000000000SigIgn:0000000000000000"
    );
}

#[test]
fn a_log_is_written_when_it_is_asked_for_only() {
    let quiet = finish(&mut shell(&[], "true"));
    assert_eq!(text(&quiet.stderr), "");
    let mut command = shell(&["--drain-idle", "50ms", "--quiet"], "sleep 0.7 & exit 0");
    let logged = finish(command.env("LASTWORDS_LOG", "warn"));
    assert!(
        text(&logged.stderr).contains("timed out waiting for stdout and stderr to drain"),
        "{}",
        text(&logged.stderr)
    );
    let wrong = finish(shell(&[], "true").env("LASTWORDS_LOG", "loud"));
    assert_eq!(wrong.status.code(), Some(125));
}

#[test]
fn a_nested_run_is_a_run_like_any_other() {
    let (output, report) = finish_with_report(
        &[],
        &format!("{LASTWORDS} run -- sh -c 'echo inner >&2; exit 9'"),
    );
    assert_eq!(
        (output.status.code(), text(&output.stderr)),
        (Some(9), "inner\n")
    );
    assert_eq!(report["exit"]["code"], 9);
}
