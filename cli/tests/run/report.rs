//! Contents and destination of the report.

use crate::support::{
    Running, Scratch, finish, finish_with_report, lastwords, read_report, read_until, shell, text,
};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Command, Stdio};

#[test]
fn a_success_is_told_whole() {
    let (output, report) = finish_with_report(&[], "echo out; echo err >&2");
    assert_eq!(
        (text(&output.stdout), text(&output.stderr)),
        ("out\n", "err\n")
    );
    assert_eq!(report["schema"], 1);
    assert_eq!(report["id"].as_str().map(str::len), Some(36));
    assert_eq!(report["generation"], 1);
    assert_eq!(
        report["command"],
        json!(["sh", "-c", "echo out; echo err >&2"])
    );
    assert!(report["pid"].as_u64() > Some(1));
    assert_eq!(report["error"], Value::Null);
    assert_eq!(
        (&report["state"], &report["outcome"]),
        (&json!("drained"), &json!("succeeded"))
    );
    assert_eq!(
        report["exit"],
        json!({"code": 0, "signal": null, "core_dumped": false, "source": "waitid"})
    );
    assert_eq!(report["stop"], Value::Null);
    assert_eq!(
        (&report["drain"]["idle_ms"], &report["drain"]["limit_ms"]),
        (&json!(2000), &json!(5000))
    );
    assert_eq!(report["drain"]["ended_by"], "eof");
    assert_eq!(
        report["streams"]["stdout"],
        json!({"bytes": 4, "dropped": 0, "late": 0, "end": "eof", "error": null, "capacity": null})
    );
    assert_eq!(
        report["streams"]["stderr"],
        json!({"bytes": 4, "dropped": 0, "late": 0, "end": "eof", "error": null, "capacity": null})
    );
    assert_eq!(
        report.get("stdin"),
        Some(&Value::Null),
        "the command's own stdin is not fed by the loop"
    );
    assert_eq!(report["stderr_tail"], json!(["err"]));
    assert_eq!(report["background"]["state"], "none");
    assert_eq!(report["background"]["complete"], true);
    assert!(
        report["timing"]["started_at"]
            .as_str()
            .is_some_and(|at| at.ends_with('Z'))
    );
    assert!(report["timing"]["ran_us"].as_u64() <= report["timing"]["total_us"].as_u64());
    assert!(report["usage"]["user_us"].is_u64());
}

#[test]
fn a_failure_has_its_last_words() {
    let (_, report) = finish_with_report(
        &["--tail-lines", "2"],
        "printf 'one\\ntwo\\n\\033[31mthree\\033[0m\\n' >&2; exit 3",
    );
    assert_eq!(report["outcome"], "failed");
    assert_eq!(report["exit"]["code"], 3);
    assert_eq!(report["stderr_tail"], json!(["two", "three"]));
    let (_, report) = finish_with_report(&[], "kill -KILL $$");
    assert_eq!(report["outcome"], "signaled");
    assert_eq!(
        report["exit"],
        json!({"code": null, "signal": "KILL", "core_dumped": false, "source": "waitid"})
    );
}

#[test]
fn a_failed_spawn_is_told_in_the_same_form() {
    let scratch = Scratch::new();
    let file = scratch.path("report");
    for (words, step, errno) in [
        (
            &["--", "lastwords-no-such-command", "x"][..],
            "find",
            "ENOENT",
        ),
        (
            &["--cwd", "/no/such/directory", "--", "true", "x"],
            "chdir",
            "ENOENT",
        ),
    ] {
        finish(lastwords([OsStr::new("--report"), file.as_os_str()]).args(words));
        let report = read_report(&file);
        assert_eq!(
            (&report["error"]["step"], &report["error"]["errno"]),
            (&json!(step), &json!(errno)),
            "{report}"
        );
        assert!(report["error"]["path"].is_string() && report["error"]["message"].is_string());
        assert_eq!(report["command"][1], "x");
        assert!(report["id"].is_string());
        for field in [
            "state",
            "outcome",
            "exit",
            "stop",
            "drain",
            "background",
            "usage",
        ] {
            assert_eq!(report[field], Value::Null, "{field}");
        }
        let whole = finish_with_report(&[], "true").1;
        let keys = |value: &Value| {
            value
                .as_object()
                .map(|o| o.keys().cloned().collect::<Vec<_>>())
        };
        assert_eq!(keys(&report), keys(&whole), "every field is there");
    }
}

#[test]
fn a_pipe_that_somebody_holds_is_told_with_its_holder() {
    for (code, outcome) in [(0, "succeeded"), (3, "failed")] {
        let script = format!("sleep 1.5 & echo out; echo last >&2; exit {code}");
        let (output, report) = finish_with_report(&["--drain-idle", "100ms"], &script);
        assert_eq!(output.status.code(), Some(code));
        assert_eq!(text(&output.stdout), "out\n");
        assert_eq!(
            (&report["state"], &report["outcome"]),
            (&json!("drain_timed_out"), &json!(outcome))
        );
        assert_eq!(report["drain"]["ended_by"], "idle");
        assert_eq!(report["drain"]["idle_ms"], 100);
        assert!(
            report["drain"]["waited_us"].as_u64() < Some(1_400_000),
            "the verdict does not wait for the sleep: {report}"
        );
        // On an overloaded machine the scan for holders may run out of time. The message then says
        // so.
        let found = &report["drain"]["holders"][0];
        if report["drain"]["holders_complete"] == true || !found.is_null() {
            assert_eq!(found["comm"], "sleep");
            assert_eq!(found["streams"], json!(["stdout", "stderr"]));
        }
        assert_eq!(report["stderr_tail"], json!(["last"]));
        let said: Vec<&str> = text(&output.stderr)
            .lines()
            .filter(|line| line.contains("timed out"))
            .collect();
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].starts_with("lastwords: timed out waiting for stdout and stderr to drain (nothing came for 100ms)"), "{said:?}");
    }
}

#[test]
fn a_drain_without_bounds_waits_for_the_end_of_file() {
    let (output, report) = finish_with_report(
        &["--drain-idle", "infinite", "--drain-limit", "infinite"],
        "(sleep 0.6; echo late) & exit 0",
    );
    assert_eq!(text(&output.stdout), "late\n");
    assert_eq!(
        (&report["state"], &report["drain"]["ended_by"]),
        (&json!("drained"), &json!("eof"))
    );
    assert_eq!(
        (&report["drain"]["idle_ms"], &report["drain"]["limit_ms"]),
        (&Value::Null, &Value::Null)
    );
}

#[test]
fn quiet_says_nothing_of_a_held_pipe() {
    let output = finish(&mut shell(
        &["--quiet", "--drain-idle", "50ms"],
        "sleep 0.8 & exit 0",
    ));
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn merged_streams_are_told_as_one() {
    let (_, report) = finish_with_report(&["--merge"], "echo out; echo err >&2");
    assert_eq!(report["streams"]["stdout"]["bytes"], 8);
    assert_eq!(report["streams"]["stderr"], Value::Null);
    assert_eq!(
        report["stderr_tail"],
        json!(["out", "err"]),
        "the last words are those of the one stream there is"
    );
}

#[test]
fn the_kept_bytes_are_bounded_as_asked() {
    let (_, report) = finish_with_report(
        &["--tail-bytes", "10"],
        "printf 0123456789abc; printf 'x\\nlast\\n' >&2",
    );
    assert_eq!(
        (
            &report["streams"]["stdout"]["bytes"],
            &report["streams"]["stdout"]["dropped"]
        ),
        (&json!(13), &json!(3))
    );
    assert_eq!(report["stderr_tail"], json!(["x", "last"]));
}

#[test]
fn a_dash_is_a_line_of_its_own_after_the_output() {
    for (script, before) in [("printf out", "out"), ("echo out", "out"), ("true", "")] {
        let output = finish(&mut shell(&["--report", "-"], script));
        let said = text(&output.stdout);
        let lines: Vec<&str> = said.lines().collect();
        let (json, rest) = lines.split_last().expect("a report");
        assert_eq!(rest.join("\n"), before);
        assert!(said.ends_with('\n'));
        let report: Value = serde_json::from_str(json).expect("JSON");
        assert_eq!(report["outcome"], "succeeded");
    }
}

#[test]
fn a_relative_name_is_relative_to_where_lastwords_was_started() {
    let scratch = Scratch::new();
    let output =
        finish(shell(&["--report", "report", "--cwd", "/"], "pwd").current_dir(scratch.dir()));
    assert_eq!(text(&output.stdout), "/\n");
    assert_eq!(read_report(&scratch.path("report"))["exit"]["code"], 0);
}

#[test]
fn a_plain_file_is_replaced_whole_and_keeps_its_permissions() {
    let scratch = Scratch::new();
    let file = scratch.file("report", &"x".repeat(100_000), 0o640);
    let inode = std::fs::metadata(&file).expect("there").ino();
    finish(lastwords([OsStr::new("--report"), file.as_os_str()]).args(["--", "true"]));
    let there = std::fs::metadata(&file).expect("there");
    assert_ne!(there.ino(), inode, "it was renamed over, not written into");
    assert_eq!(there.permissions().mode() & 0o777, 0o640);
    assert_eq!(read_report(&file)["exit"]["code"], 0);
    assert_eq!(
        std::fs::read_dir(scratch.dir()).expect("there").count(),
        1,
        "no draft is left"
    );
}

#[test]
fn what_is_no_plain_file_is_written_in_place() {
    let scratch = Scratch::new();
    let (file, link) = (scratch.file("file", "old", 0o644), scratch.path("link"));
    std::os::unix::fs::symlink(&file, &link).expect("a link");
    finish(lastwords([OsStr::new("--report"), link.as_os_str()]).args(["--", "true"]));
    assert!(
        std::fs::symlink_metadata(&link)
            .expect("there")
            .is_symlink()
    );
    assert_eq!(read_report(&file)["exit"]["code"], 0);

    let fifo = scratch.path("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status().expect("mkfifo");
    assert!(made.success());
    let reader = Running::start(Command::new("cat").arg(&fifo).stdout(Stdio::piped()));
    let output = finish(lastwords([OsStr::new("--report"), fifo.as_os_str()]).args(["--", "true"]));
    assert_eq!(output.status.code(), Some(0));
    let read = reader.finish().stdout;
    assert_eq!(
        serde_json::from_slice::<Value>(&read).expect("JSON")["exit"]["code"],
        0
    );
    use std::os::unix::fs::FileTypeExt;
    assert!(
        std::fs::symlink_metadata(&fifo)
            .expect("there")
            .file_type()
            .is_fifo()
    );
}

#[test]
fn a_report_that_nobody_reads_can_be_given_up() {
    let scratch = Scratch::new();
    let fifo = scratch.path("fifo");
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .expect("mkfifo")
            .success()
    );
    let mut command = lastwords([OsStr::new("--report"), fifo.as_os_str()]);
    let mut running = Running::start(command.args(["--", "echo", "done"]).stdout(Stdio::piped()));
    read_until(&mut running.stdout(), "done");
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(running.is_running(), "it waits for a reader");
    running.signal(rustix::process::Signal::TERM);
    assert!(!running.wait().success());
}

#[test]
fn what_was_chosen_is_told() {
    for (exit_source, backend) in [("pidfd", "epoll"), ("sigchld", "epoll")] {
        let (output, report) = finish_with_report(
            &["--exit-source", exit_source, "--backend", backend],
            "exit 4",
        );
        assert_eq!(output.status.code(), Some(4));
        assert_eq!(
            (&report["exit_source"], &report["backend"]),
            (&json!(exit_source), &json!(backend))
        );
    }
}

#[test]
fn the_ring_is_used_where_it_can_be_had_and_the_command_runs_all_the_same() {
    let asked = lastwords::Reactor::builder()
        .backend(lastwords::BackendChoice::Uring)
        .build()
        .expect("a loop");
    let (output, report) =
        finish_with_report(&["--backend", "uring"], "echo out; echo err >&2; exit 4");
    assert_eq!(
        (
            output.status.code(),
            output.stdout.as_slice(),
            output.stderr.as_slice()
        ),
        (Some(4), &b"out\n"[..], &b"err\n"[..])
    );
    assert_eq!(
        report["backend"],
        json!(asked.capabilities().backend.to_string())
    );
}
