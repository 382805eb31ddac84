//! Secrets are redacted in everything that lastwords writes itself, and never in the command's
//! output.

use crate::support::{Scratch, finish, finish_with_report, lastwords, text};
use std::ffi::OsStr;
use std::fs;
use std::process::Output;

const SECRET: &str = "correct-horse-battery";
const BEARER: &str = "eyAbC123.tok-en_val";

/// The lines on stderr that lastwords has written itself.
fn own_lines(output: &Output) -> String {
    text(&output.stderr)
        .lines()
        .filter(|line| line.starts_with("lastwords: ") || line.contains(" WARN "))
        .collect::<Vec<_>>()
        .join("\n")
}

fn assert_clean(what: &str, said: &str) {
    for part in [&SECRET[..9], &SECRET[11..], BEARER, &BEARER[9..]] {
        assert!(!said.contains(part), "{what} shows {part}: {said}");
    }
}

#[test]
fn a_secret_is_in_no_word_of_lastwords_and_in_all_that_is_passed_through() {
    let scratch = Scratch::new();
    let (report, log) = (scratch.path("report"), scratch.path("log"));
    let script = format!(
        "one=$(printf %.9s \"$KEY\"); two=$(printf %s \"$KEY\" | tail -c +10 | tr -d '\\n'); KEY=$one$two; \
         head -c 8185 /dev/zero | tr '\\0' x >&2; echo \"$KEY\" >&2; \
         echo \"$KEY\" >&2; echo 'Authorization: Bearer {BEARER}' >&2; printf \"$one\" >&2; sleep 0.1; echo \"$two\" >&2; \
         printf \"$one\\\\033[31m$two\\\\n\" >&2; echo \"$KEY\"; \
         sleep 1.5 & exit 3"
    );
    for log_level in ["off", "trace"] {
        let mut command = lastwords([
            "--secret",
            "KEY",
            "--secret",
            "OTHER",
            "--drain-idle",
            "100ms",
            "--background",
            "report",
        ]);
        command.args([
            OsStr::new("--report"),
            report.as_os_str(),
            OsStr::new("--termination-log"),
            log.as_os_str(),
        ]);
        command.args(["--", "sh", "-c", &script, SECRET]);
        // A value with a trailing newline, as an environment file may contain.
        let output = finish(
            command
                .env("KEY", format!("{SECRET}\n"))
                .env("OTHER", "another")
                .env("LASTWORDS_LOG", log_level),
        );
        assert_eq!(output.status.code(), Some(3));
        assert_eq!(
            text(&output.stdout).matches(SECRET).count(),
            1,
            "stdout is passed through"
        );
        // A log line may separate the two writes of the command.
        let whole = if log_level == "off" { 3 } else { 2 };
        assert!(
            text(&output.stderr).matches(SECRET).count() >= whole,
            "so is stderr"
        );
        let own = own_lines(&output);
        assert_clean("stderr", &own);
        assert!(own.contains("timed out waiting"), "{own}");
        let (report, log) = (
            fs::read_to_string(&report).expect("a report"),
            fs::read_to_string(&log).expect("last words"),
        );
        assert_clean("the report", &report);
        assert_clean("the termination log", &log);
        assert!(report.contains("\"redacted\":true"), "{report}");
        assert_eq!(
            report.matches("Bearer [redacted]").count(),
            2,
            "in the command line and in the last words: {report}"
        );
        assert!(log.contains("[redacted]"), "{log}");
    }
}

#[test]
fn a_command_that_cannot_be_started_shows_no_secret() {
    let scratch = Scratch::new();
    let (report, log) = (scratch.path("report"), scratch.path("log"));
    let program = format!("/no/such/{SECRET}");
    for (cwd, program) in [("/", program.as_str()), (program.as_str(), "true")] {
        let mut command = lastwords(["--secret", "KEY", "--cwd", cwd]);
        command.args([
            OsStr::new("--report"),
            report.as_os_str(),
            OsStr::new("--termination-log"),
            log.as_os_str(),
        ]);
        let output = finish(
            command
                .args(["--", program, "--token", "hunter2hunter2", SECRET])
                .env("KEY", SECRET),
        );
        assert_clean("stderr", text(&output.stderr));
        assert!(
            text(&output.stderr).contains("/no/such/[redacted]"),
            "{}",
            text(&output.stderr)
        );
        let report = fs::read_to_string(&report).expect("a report");
        assert_clean("the report", &report);
        assert!(
            !report.contains("hunter2") && report.contains("\"redacted\":true"),
            "{report}"
        );
        assert_clean(
            "the termination log",
            &fs::read_to_string(&log).expect("why"),
        );
    }
}

#[test]
fn the_value_that_the_command_is_given_counts() {
    let (_, report) = finish_with_report(
        &["--env", &format!("KEY={SECRET}"), "--secret", "KEY"],
        "echo \"$KEY\" >&2",
    );
    assert_eq!(report["stderr_tail"][0], "[redacted]");
}

#[test]
fn a_file_name_with_a_secret_is_not_shown_when_it_cannot_be_written() {
    let output = finish(
        lastwords([
            "--secret",
            "KEY",
            "--report",
            &format!("/no/such/{SECRET}"),
            "--",
            "true",
        ])
        .env("KEY", SECRET),
    );
    assert_eq!(output.status.code(), Some(125));
    assert_clean("stderr", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("failed to write the report"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn a_secret_that_cannot_be_kept_is_refused_and_not_shown() {
    let refused = |name: &str, value: Option<&str>| {
        let mut command = lastwords(["--secret", name, "--", "sh", "-c", "echo ran"]);
        command.env_remove(name);
        if let Some(value) = value {
            command.env(name, value);
        }
        let output = finish(&mut command);
        assert_eq!(
            (output.status.code(), text(&output.stdout)),
            (Some(125), ""),
            "nothing is run"
        );
        text(&output.stderr).to_owned()
    };
    let unset = refused("lastwords_no_such_variable", None);
    assert!(
        unset.contains("--secret (1 of 1): no such variable is set"),
        "{unset}"
    );
    let short = refused("KEY", Some("q7z\n"));
    assert!(
        short.contains("KEY") && short.contains("fewer than 4 bytes") && !short.contains("q7z"),
        "{short}"
    );
    assert!(refused("KEY", Some("")).contains("fewer than 4 bytes"));
    // Somebody passes the value instead of the name. It must not appear in a log.
    assert!(!refused(BEARER, None).contains(BEARER));
}

#[test]
fn without_redaction_the_report_says_so() {
    let (_, report) =
        finish_with_report(&["--no-redact"], "printf '\\033[31mtoken=abcdefgh\\n' >&2");
    assert_eq!(
        (&report["redacted"], &report["stderr_tail"][0]),
        (&false.into(), &"token=abcdefgh".into())
    );
    let (_, report) = finish_with_report(&[], "echo token=abcdefgh >&2");
    assert_eq!(
        (&report["redacted"], &report["stderr_tail"][0]),
        (&true.into(), &"token=[redacted]".into())
    );
}
