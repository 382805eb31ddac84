//! `--init` and `--termination-log`: lastwords as the first process of a container.

use super::support::{
    LASTWORDS, Running, Scratch, finish, finish_with_report, read_report, read_until, shell, text,
};
use rustix::process::{Pid, Signal, kill_process};
use std::io::BufReader;
use std::process::{Command, Stdio};

/// `lastwords run` as process 1 of a PID namespace with its own /proc. Prints why and returns
/// `None` where namespaces are not permitted.
fn first_process(options: &[&str], script: &str) -> Option<Command> {
    let unshare = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command
            .args(["--pid", "--fork", "--mount-proc", "--kill-child"])
            .args(words)
            .stdin(Stdio::null());
        command
    };
    let tried = unshare(&["true"]).stderr(Stdio::piped()).output();
    match tried {
        Ok(output) if output.status.success() => {}
        other => {
            eprintln!(
                "no pid namespace can be made here, so there is no process 1 to be: {other:?}"
            );
            return None;
        }
    }
    Some(unshare(
        &[
            &[LASTWORDS, "run", "--init"],
            options,
            &["--", "sh", "-c", script],
        ]
        .concat(),
    ))
}

/// Script: prints the number of zombies among the children of process 1.
const ZOMBIES: &str = "zombies() { cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z 1 '; }";

#[test]
fn strangers_are_reaped_and_the_commands_own_status_is_kept() {
    let script = format!(
        "{ZOMBIES}; i=0; while [ $i -lt 30 ]; do (sh -c 'true' & true) ; (setsid sh -c 'exit 5' &); i=$((i+1)); done
         i=0; while [ $(zombies) -gt 0 ] && [ $i -lt 200 ]; do sleep 0.05; i=$((i+1)); done; echo left $(zombies) pid1 $(cat /proc/1/comm); exit 9"
    );
    let Some(mut command) = first_process(&["--quiet"], &script) else {
        return;
    };
    let output = finish(&mut command);
    assert_eq!(
        (text(&output.stdout), output.status.code()),
        ("left 0 pid1 lastwords\n", Some(9)),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn everything_adopted_is_background_work_even_without_an_environment() {
    let scratch = Scratch::new();
    let file = scratch.path("report.json");
    let options = [
        "--background",
        "terminate",
        "--background-grace",
        "500ms",
        "--report",
        file.to_str().expect("text"),
    ];
    let script = "setsid env -i sleep 1000 </dev/null >/dev/null 2>&1 & sleep 0.2; exit 0";
    let Some(mut command) = first_process(&options, script) else {
        return;
    };
    let output = finish(&mut command);
    let report = read_report(&file);
    assert_eq!(output.status.code(), Some(123), "{report}");
    assert_eq!(
        (
            &report["background"]["state"],
            &report["background"]["contained_by"]
        ),
        (&"terminated".into(), &"cookie".into())
    );
    assert_eq!(report["background"]["processes"][0]["comm"], "sleep");
}

/// Process 1, the only child of unshare(1).
fn the_only_child(unshare: &Running) -> Pid {
    let pid = unshare.pid().as_raw_nonzero();
    let children =
        std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("a list");
    let child = children.trim().parse().ok().and_then(Pid::from_raw);
    child.expect("a number")
}

#[test]
fn signals_to_the_first_process_are_passed_on() {
    let script = "trap 'echo told; exit 7' TERM; echo ready; while :; do sleep 0.02; done";
    let Some(mut command) = first_process(&["--quiet"], script) else {
        return;
    };
    let mut running = Running::start(command.stdout(Stdio::piped()));
    let mut stdout = running.stdout();
    read_until(&mut stdout, "ready");
    kill_process(the_only_child(&running), Signal::TERM).expect("it runs");
    read_until(&mut stdout, "told");
    assert_eq!(running.wait().code(), Some(7));
}

#[test]
fn init_beside_others_reaps_what_it_inherits() {
    let (output, report) = finish_with_report(
        &["--init", "--background-grace", "50ms"],
        "(setsid sleep 0.3 >/dev/null 2>&1 &); exit 0",
    );
    assert_eq!(
        (output.status.code(), &report["background"]["contained_by"]),
        (Some(0), &"cookie".into())
    );
    assert_eq!(report["background"]["complete"], true);
}

#[test]
fn the_last_words_are_written_in_place() {
    use std::os::unix::fs::MetadataExt;
    let scratch = Scratch::new();
    let file = scratch.file(
        "log",
        "older and longer than what is to come, by far\n",
        0o644,
    );
    let before = std::fs::metadata(&file).expect("there").ino();
    let log = file.to_str().expect("text");
    let output = finish(&mut shell(
        &["--termination-log", log],
        "echo out; echo one >&2; printf '\\033[31mtwo\\033[0m\\n' >&2; exit 3",
    ));
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(std::fs::read_to_string(&file).expect("there"), "one\ntwo\n");
    assert_eq!(
        std::fs::metadata(&file).expect("there").ino(),
        before,
        "not another file"
    );
    let output = finish(&mut shell(
        &["--termination-log", log],
        "i=0; while [ $i -lt 49 ]; do printf \"%0120d\\n\" $i >&2; i=$((i+1)); done",
    ));
    assert!(output.status.success());
    let kept = std::fs::read_to_string(&file).expect("there");
    assert!(
        kept.len() <= 4096
            && kept.len() > 3900
            && kept.ends_with("48\n")
            && kept.lines().all(|line| line.len() == 120),
        "{kept}"
    );
}

#[test]
fn why_it_could_not_be_started_is_its_last_word() {
    let scratch = Scratch::new();
    let file = scratch.path("log");
    let mut command = super::support::lastwords(["--termination-log"]);
    assert_eq!(
        finish(command.arg(&file).args(["--", "/nonexistent/program"]))
            .status
            .code(),
        Some(127)
    );
    let text = std::fs::read_to_string(&file).expect("made");
    assert!(
        text.starts_with("failed to execute the program \"/nonexistent/program\""),
        "{text}"
    );
}

#[test]
fn last_words_that_have_no_place_are_told_before_anything_runs() {
    let scratch = Scratch::new();
    for place in [std::path::Path::new("/nonexistent/log"), scratch.dir()] {
        let options = ["--termination-log", place.to_str().expect("text")];
        let output = finish(&mut shell(&options, "echo started"));
        assert_eq!(
            (output.status.code(), text(&output.stdout)),
            (Some(125), ""),
            "{place:?}"
        );
        assert!(
            text(&output.stderr).contains("failed to write the last words to"),
            "{}",
            text(&output.stderr)
        );
    }
}

#[test]
fn last_words_whose_place_goes_away_meanwhile_are_told() {
    let scratch = Scratch::new();
    let dir = scratch.path("mount");
    std::fs::create_dir(&dir).expect("made");
    let file = dir.join("log");
    let script = format!("rmdir {}; echo started", dir.display());
    let output = finish(&mut shell(
        &["--termination-log", file.to_str().expect("text")],
        &script,
    ));
    assert_eq!(
        (output.status.code(), text(&output.stdout)),
        (Some(125), "started\n")
    );
    assert!(
        text(&output.stderr).contains("failed to write the last words to"),
        "{}",
        text(&output.stderr)
    );
}

/// CASES 61. The output is stuck after the command has ended: nobody reads it.
#[test]
fn the_first_process_obeys_term_while_its_output_is_stuck() {
    let script = "head -c 100000 /dev/zero; echo done >&2";
    let Some(mut command) = first_process(&["--quiet"], script) else {
        return;
    };
    let mut running = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let stdout = running.child().stdout.take();
    let mut stderr = BufReader::new(running.child().stderr.take().expect("piped"));
    read_until(&mut stderr, "done");
    let first = the_only_child(&running);
    while running.is_running() {
        // It has ended meanwhile if this fails.
        let _ = kill_process(first, Signal::TERM);
        std::thread::sleep(std::time::Duration::from_millis(400));
    }
    drop(stdout);
}
