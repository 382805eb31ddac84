//! Runs on a pseudo-terminal. The session leader is a shell or lastwords itself.
//!
//! A script that waits for a key executes its last program (`exec sleep`). A shell that forks for
//! it would lose a key now and then: a signal that comes between the fork and the exec is taken by
//! the copy of the shell, while the shell itself cannot be stopped and does not hear it.

use crate::support::{LASTWORDS, Running, eventually, is_alive};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::{Arc, Mutex};

const CTRL_C: &str = "\x03";
const CTRL_BACKSLASH: &str = "\x1c";
const CTRL_Q: &str = "\x11";
const CTRL_S: &str = "\x13";
const CTRL_Z: &str = "\x1a";

/// A pseudo-terminal and the session that runs on it.
struct Screen {
    keyboard: File,
    shown: Arc<Mutex<Vec<u8>>>,
    /// How many bytes of `shown` were matched already.
    seen: usize,
    running: Running,
}

impl Screen {
    /// Runs a program as the leader of a session with this controlling terminal.
    fn run(program: &[&str]) -> Screen {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
            .expect("a terminal");
        grantpt(&ours).expect("ours");
        unlockpt(&ours).expect("ours");
        tcsetwinsize(
            &ours,
            Winsize {
                ws_row: 24,
                ws_col: 200,
                ws_xpixel: 0,
                ws_ypixel: 0,
            },
        )
        .expect("a terminal");
        let name = ptsname(&ours, Vec::new()).expect("it has a name");
        let theirs = open(
            name,
            OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .expect("it is there");
        let copy = |fd: &OwnedFd| fd.try_clone().expect("a copy");
        let mut command = Command::new("setsid");
        command
            .args(["--ctty", "env", "--default-signal"])
            .args(program)
            .stdin(copy(&theirs))
            .stdout(copy(&theirs))
            .stderr(theirs);
        command
            .env("TERM", "xterm")
            .env("PS1", "$ ")
            .env("LASTWORDS", LASTWORDS)
            .env_remove("NO_COLOR")
            .env_remove("LASTWORDS_LOG");
        let running = Running::start(&mut command);
        drop(command);
        let shown = Arc::new(Mutex::new(Vec::new()));
        let (mut screen, onto) = (File::from(copy(&ours)), Arc::clone(&shown));
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            // EIO: the last process has closed the terminal.
            while let Ok(n @ 1..) = screen.read(&mut piece) {
                onto.lock()
                    .expect("no panic holds it")
                    .extend_from_slice(&piece[..n]);
            }
        });
        Screen {
            keyboard: File::from(ours),
            shown,
            seen: 0,
            running,
        }
    }

    fn bash() -> Screen {
        let mut screen = Screen::run(&["bash", "--norc", "--noprofile", "--noediting", "-i"]);
        screen.wait_for("$ ");
        screen
    }

    fn dash() -> Screen {
        let mut screen = Screen::run(&["dash", "-i"]);
        screen.wait_for("$ ");
        screen
    }

    fn lastwords(words: &[&str]) -> Screen {
        Screen::run(&[&[LASTWORDS, "run"], words].concat())
    }

    fn keys(&mut self, keys: &str) {
        self.keyboard
            .write_all(keys.as_bytes())
            .expect("somebody has it open");
    }

    fn all(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().expect("no panic holds it")).into_owned()
    }

    /// Waits until the text is shown, after the text that was waited for before.
    fn wait_for(&mut self, text: &str) {
        let shown = Arc::clone(&self.shown);
        let seen = self.seen;
        let find = || {
            let shown = shown.lock().expect("no panic holds it");
            shown[seen..]
                .windows(text.len())
                .position(|piece| piece == text.as_bytes())
        };
        let waited = std::time::Instant::now();
        while find().is_none() {
            assert!(
                waited.elapsed().as_secs() < 60,
                "{text:?} was never shown after byte {seen} of {:?}",
                self.all()
            );
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        self.seen += find().unwrap_or(0) + text.len();
    }

    /// Waits for `end` and returns the text shown before it.
    fn word_before(&mut self, end: &str) -> String {
        let from = self.seen;
        self.wait_for(end);
        let shown = self.shown.lock().expect("no panic holds it");
        String::from_utf8_lossy(&shown[from..self.seen - end.len()])
            .trim()
            .to_owned()
    }
}

fn state(pid: &str) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

#[test]
fn ctrl_c_ends_a_loop_in_a_script() {
    let script = r#"while :; do "$LASTWORDS" run -- sh -c 'echo run''ning; exec sleep 1000'; done; echo went''on"#;
    let mut screen = Screen::run(&["bash", "-c", script]);
    screen.wait_for("running");
    screen.keys(CTRL_C);
    assert_eq!(screen.running.wait().signal(), Some(Signal::INT.as_raw()));
    assert!(!screen.all().contains("wenton"));
}

#[test]
fn ctrl_c_ends_a_loop_in_an_interactive_shell() {
    let mut screen = Screen::bash();
    screen.keys(
        "while :; do \"$LASTWORDS\" run --quiet -- sh -c 'echo run''ning; exec sleep 1000'; done\n",
    );
    screen.wait_for("running");
    screen.keys(CTRL_C);
    screen.wait_for("$ ");
    screen.keys("echo sta''tus=$?\n");
    screen.wait_for("status=130");
}

#[test]
fn ctrl_backslash_ends_both() {
    let mut screen = Screen::run(&[
        "bash",
        "-c",
        r#"ulimit -c 0; "$LASTWORDS" run -- sh -c 'echo rea''dy; exec sleep 1000'; echo status=$?"#,
    ]);
    screen.wait_for("ready");
    screen.keys(CTRL_BACKSLASH);
    screen.wait_for("status=131");
}

#[test]
fn a_command_that_handles_ctrl_c_goes_on_and_so_does_lastwords() {
    let mut screen = Screen::lastwords(&[
        "--",
        "sh",
        "-c",
        "trap 'echo handled; exit 4' INT; echo ready; while :; do sleep 0.05; done",
    ]);
    screen.wait_for("ready");
    screen.keys(CTRL_C);
    screen.wait_for("handled");
    assert_eq!(screen.running.wait().code(), Some(4));
}

#[test]
fn ctrl_z_stops_both_and_fg_goes_on() {
    let mut screen = Screen::bash();
    screen.keys("\"$LASTWORDS\" run -- sh -c 'echo pi''d $PPID $$ en''d; read line; echo got $line; exit 3'\n");
    screen.wait_for("pid ");
    let pids = screen.word_before(" end");
    let pids: Vec<&str> = pids.split(' ').collect();
    screen.keys(CTRL_Z);
    screen.wait_for("Stopped");
    screen.wait_for("$ ");
    for pid in &pids {
        assert_eq!(state(pid), Some('T'), "{pid} of {pids:?}");
    }
    screen.keys("fg\n");
    eventually("both go on", || {
        pids.iter().all(|pid| state(pid) == Some('S'))
    });
    screen.keys("typed\n");
    screen.wait_for("got typed");
    screen.wait_for("$ ");
    screen.keys("echo sta''tus=$?\n");
    screen.wait_for("status=3");
}

#[test]
fn a_job_in_the_background_stops_when_it_reads_and_goes_on_in_the_foreground() {
    let mut screen = Screen::bash();
    screen.keys("\"$LASTWORDS\" run --quiet -- sh -c 'read line; echo got $line' &\n");
    screen.wait_for("$ ");
    eventually("the shell has learnt that it has stopped", || {
        screen.keys("jobs -s; echo lis''ted\n");
        let shown = screen.word_before("listed");
        shown.contains("Stopped")
    });
    screen.keys("fg\n");
    screen.wait_for("got $line'");
    std::thread::sleep(std::time::Duration::from_millis(200));
    screen.keys("typed\n");
    screen.wait_for("got typed");
    screen.wait_for("$ ");
}

#[test]
fn a_job_that_is_continued_in_the_background_leaves_the_terminal_to_the_shell() {
    let mut screen = Screen::bash();
    screen.keys("\"$LASTWORDS\" run --quiet -- sh -c 'echo rea''dy; exec sleep 1000'\n");
    screen.wait_for("ready");
    screen.keys(CTRL_Z);
    screen.wait_for("Stopped");
    screen.keys("bg\n");
    screen.keys("echo she''ll reads\n");
    screen.wait_for("shell reads");
    screen.keys("jobs -r; echo lis''ted\n");
    assert!(screen.word_before("listed").contains("Running"));
    screen.keys("kill -TERM %1; wait %1; echo sta''tus=$?\n");
    screen.wait_for("status=143");
}

#[test]
fn ctrl_z_means_nothing_where_nobody_could_continue_us() {
    let mut screen = Screen::lastwords(&[
        "--",
        "sh",
        "-c",
        "echo ready; read line; echo got $line; exit 3",
    ]);
    screen.wait_for("ready");
    screen.keys(CTRL_Z);
    std::thread::sleep(std::time::Duration::from_millis(200));
    screen.keys("typed\n");
    screen.wait_for("got typed");
    assert_eq!(screen.running.wait().code(), Some(3));
}

#[test]
fn the_rest_of_a_pipeline_keeps_the_keyboard() {
    let mut screen = Screen::bash();
    screen.keys("\"$LASTWORDS\" run --quiet -- sh -c 'echo rea''dy; exec sleep 1000' | (read x; read line </dev/tty; echo $x got $line)\n");
    screen.wait_for("got $line)");
    std::thread::sleep(std::time::Duration::from_millis(200));
    screen.keys("typed\n");
    screen.wait_for("ready got typed");
    screen.keys(CTRL_C);
    screen.wait_for("$ ");
    screen.keys("echo sta''tus=${PIPESTATUS[0]}\n");
    screen.wait_for("status=130");
}

#[test]
fn a_command_in_a_pipeline_gets_the_keyboard_when_it_asks_for_it() {
    let mut screen = Screen::run(&[
        "bash",
        "-c",
        r#""$LASTWORDS" run --quiet -- sh -c 'read line; echo got $line; exit 4' | cat; exit ${PIPESTATUS[0]}"#,
    ]);
    screen.keys("typed\n");
    screen.wait_for("got typed");
    assert_eq!(screen.running.wait().code(), Some(4));
}

#[test]
fn ctrl_z_reaches_a_command_that_has_no_terminal() {
    let mut screen = Screen::bash();
    screen.keys(
        "\"$LASTWORDS\" run --quiet -- sh -c 'echo pi''d $PPID $$ en''d; exec sleep 1000' </dev/null\n",
    );
    screen.wait_for("pid ");
    let pids = screen.word_before(" end");
    let pids: Vec<&str> = pids.split(' ').collect();
    screen.keys(CTRL_Z);
    screen.wait_for("Stopped");
    eventually("both stop", || {
        pids.iter().all(|pid| state(pid) == Some('T'))
    });
    screen.keys("fg\n");
    eventually("both go on", || {
        pids.iter().all(|pid| state(pid) == Some('S'))
    });
    screen.keys(CTRL_C);
    screen.wait_for("$ ");
    screen.keys("echo sta''tus=$?\n");
    screen.wait_for("status=130");
}

#[test]
fn the_terminal_is_taken_back_at_the_exit() {
    let script = r#""$LASTWORDS" run --quiet -- sh -c 'read line; echo inner $line'; read line; echo outer $line"#;
    let mut screen = Screen::run(&["bash", "-c", script]);
    screen.keys("one\n");
    screen.wait_for("inner one");
    screen.keys("two\n");
    screen.wait_for("outer two");
    assert!(screen.running.wait().success());
}

#[test]
fn a_terminal_that_stops_background_writers_does_not_stop_the_foreground_job() {
    let script = r#"stty tostop; "$LASTWORDS" run -- sh -c 'echo hel''lo; exit 6'; echo status=$?"#;
    let mut screen = Screen::run(&["bash", "-c", script]);
    screen.wait_for("hello");
    screen.wait_for("status=6");
}

#[test]
fn a_command_that_was_killed_leaves_no_raw_terminal() {
    let script = r#""$LASTWORDS" run -- sh -c 'stty raw -echo; kill -KILL $$'; stty -a | grep -o -- '-*icanon'; echo status=$?"#;
    let mut screen = Screen::run(&["bash", "-c", script]);
    let shown = screen.word_before("status=0");
    assert!(
        shown.contains("icanon") && !shown.contains("-icanon"),
        "{shown:?}"
    );
}

#[test]
fn a_screen_that_was_frozen_holds_back_no_timer() {
    let mut screen = Screen::lastwords(&[
        "--timeout",
        "700ms",
        "--",
        "sh",
        "-c",
        "echo pid $$ end; exec yes",
    ]);
    screen.wait_for("pid ");
    let pid = screen.word_before(" end");
    screen.keys(CTRL_S);
    eventually("the limit ends it", || !is_alive(&pid));
    screen.keys(CTRL_Q);
    assert_eq!(screen.running.wait().code(), Some(124));
}

#[test]
fn the_end_is_told_on_a_terminal_unless_it_is_to_be_quiet() {
    let mut screen = Screen::lastwords(&["--", "sh", "-c", "printf unfinished; exit 3"]);
    screen.wait_for("unfinished\r\n");
    screen.wait_for("lastwords:\x1b[0m sh exited with 3 after ");
    assert_eq!(screen.running.wait().code(), Some(3));

    let mut screen = Screen::lastwords(&["--color", "never", "--", "true"]);
    screen.wait_for("lastwords: true exited with 0 after ");
    assert!(!screen.all().contains('\x1b'));

    let mut screen = Screen::lastwords(&["--quiet", "--", "sh", "-c", "echo out"]);
    screen.wait_for("out\r\n");
    screen.running.wait();
    assert_eq!(screen.all(), "out\r\n");
}

#[test]
fn a_wait_for_background_work_is_shown_while_it_lasts() {
    let mut screen = Screen::lastwords(&[
        "--color",
        "never",
        "--",
        "sh",
        "-c",
        "sleep 4 >/dev/null 2>&1 & exit 0",
    ]);
    screen.wait_for("lastwords: waiting for background work, 0s of 30m: sleep (pid ");
    screen.wait_for("\r\x1b[Klastwords: waiting for background work, 1s of 30m: sleep (pid ");
    screen.wait_for("\r\x1b[Klastwords: sh exited with 0 after ");
    screen.wait_for("lastwords: background work finished ");
    assert_eq!(screen.running.wait().code(), Some(0));
}

/// Prompts on /dev/tty, as sudo and ssh do.
const PASSWORD_PROMPT: &str =
    r#"bash -c 'read -p "pass""word: " x </dev/tty; echo got $x; exit 4'"#;

/// CASES 50.
#[test]
fn a_password_prompt_on_the_terminal_works_with_stdin_a_pipe() {
    for mut screen in [Screen::bash(), Screen::dash()] {
        screen.keys(&format!(
            "echo data | \"$LASTWORDS\" run --quiet -- {PASSWORD_PROMPT}; echo sta''tus=$?\n"
        ));
        screen.wait_for("password: ");
        screen.keys("secret\n");
        screen.wait_for("got secret");
        screen.wait_for("status=4");
    }
}

/// CASES 50. Without job control all of them share a group.
#[test]
fn a_password_prompt_works_in_a_script() {
    for shell in ["bash", "dash"] {
        let script =
            format!(r#"echo data | "$LASTWORDS" run --quiet -- {PASSWORD_PROMPT}; echo status=$?"#);
        let mut screen = Screen::run(&[shell, "-c", &script]);
        screen.wait_for("password: ");
        screen.keys("secret\n");
        screen.wait_for("got secret");
        screen.wait_for("status=4");
    }
}

#[test]
fn a_password_prompt_works_in_a_nested_run_and_as_the_leader_of_the_session() {
    let nested = format!(r#"exec "$LASTWORDS" run --quiet -- {PASSWORD_PROMPT}"#);
    for mut screen in [
        Screen::lastwords(&["--quiet", "--", "sh", "-c", &nested]),
        Screen::lastwords(&["--quiet", "--", "sh", "-c", PASSWORD_PROMPT]),
    ] {
        screen.wait_for("password: ");
        screen.keys("secret\n");
        screen.wait_for("got secret");
        assert_eq!(screen.running.wait().code(), Some(4));
    }
}

/// CASES 51.
#[test]
fn a_command_that_interrupts_itself_ends_lastwords_and_not_the_script() {
    for shell in ["bash", "dash"] {
        let script = r#""$LASTWORDS" run --quiet -- sh -c 'kill -INT $$'; echo after $?"#;
        let mut screen = Screen::run(&[shell, "-c", script]);
        screen.wait_for("after 130");
        assert!(screen.running.wait().success(), "{shell}");
    }
}

/// CASES 52. dash ends at once by an INT of its own, whatever its child did with it.
#[test]
fn ctrl_c_reaches_the_script_around_a_command_that_handles_it() {
    let handles = r#"sh -c "trap 'exit 0' INT; echo rea''dy; while :; do sleep 0.05; done""#;
    let script =
        format!(r#"for i in 1 2 3; do "$LASTWORDS" run --quiet -- {handles}; done; echo went on"#);
    let mut screen = Screen::run(&["dash", "-c", &script]);
    screen.wait_for("ready");
    screen.keys(CTRL_C);
    assert_eq!(screen.running.wait().signal(), Some(Signal::INT.as_raw()));
    assert!(!screen.all().contains("went on"));

    let script =
        format!(r#"trap 'echo parent heard it' INT; "$LASTWORDS" run --quiet -- {handles}"#);
    for shell in ["bash", "dash"] {
        let mut screen = Screen::run(&[shell, "-c", &script]);
        screen.wait_for("ready");
        screen.keys(CTRL_C);
        screen.wait_for("parent heard it");
    }
}

/// CASES 53.
#[test]
fn a_job_in_the_background_respects_a_terminal_that_stops_writers() {
    let mut screen = Screen::bash();
    screen.keys("stty tostop; \"$LASTWORDS\" run --quiet -- sh -c 'echo writ''ten' &\n");
    screen.wait_for("$ ");
    eventually("the shell has learnt that it has stopped", || {
        screen.keys("jobs -s; echo lis''ted\n");
        screen.word_before("listed").contains("Stopped")
    });
    assert!(!screen.all().contains("written"));
    screen.keys("fg\n");
    screen.wait_for("written");
    screen.wait_for("$ ");
}

/// CASES 59. The shell's group, which is the foreground, has no number in the namespace.
#[test]
fn a_command_in_a_pid_namespace_gets_the_terminal_of_the_outer_shell() {
    let namespace = ["unshare", "--pid", "--fork", "--mount-proc"];
    let mut tried = Command::new(namespace[0]);
    let tried = tried.args(&namespace[1..]).arg("true").output();
    if !tried.as_ref().is_ok_and(|output| output.status.success()) {
        eprintln!("no PID namespace can be made here: {tried:?}");
        return;
    }
    let script = format!(
        r#"{} "$LASTWORDS" run --quiet -- head -n 1; echo status=$?"#,
        namespace.join(" ")
    );
    let mut screen = Screen::run(&["bash", "-c", &script]);
    screen.keys("typed\n");
    screen.wait_for("typed\r\ntyped");
    screen.wait_for("status=0");
}

#[test]
fn a_pager_behind_lastwords_and_lastwords_behind_a_pipe_both_get_the_keyboard() {
    let mut screen = Screen::bash();
    screen.keys("\"$LASTWORDS\" run --quiet -- echo from''above | (read x; read line </dev/tty; echo $x $line)\n");
    screen.wait_for("$line)");
    screen.keys("typed\n");
    screen.wait_for("fromabove typed");
    screen.wait_for("$ ");
    screen.keys("echo data | \"$LASTWORDS\" run --quiet --stdout inherit -- bash -c '[ -t 1 ] && read line </dev/tty; echo to the term''inal $line'\n");
    screen.wait_for("$line'");
    screen.keys("again\n");
    screen.wait_for("to the terminal again");
}

/// CASES 60. Interactive programs need a terminal on their outputs.
#[test]
fn an_interactive_shell_has_job_control_with_inherited_outputs() {
    let mut screen = Screen::lastwords(&[
        "--quiet",
        "--stdout",
        "inherit",
        "--stderr",
        "inherit",
        "--",
        "bash",
        "--norc",
        "--noprofile",
        "--noediting",
        "-i",
    ]);
    screen.wait_for("$ ");
    screen.keys("sh -c 'echo run''ning; exec sleep 1000'\n");
    // ^Z throws away input that was not read yet.
    screen.wait_for("running");
    screen.keys(CTRL_Z);
    screen.wait_for("Stopped");
    screen.keys("jobs -s; echo lis''ted\n");
    assert!(screen.word_before("listed").contains("Stopped"));
    screen.keys("kill -KILL %1\n");
    // The shell refuses to exit until it has noticed that the job has ended.
    eventually("the shell exits", || {
        screen.keys("exit 6\n");
        !screen.running.is_running()
    });
    assert_eq!(screen.running.wait().code(), Some(6));
}

/// CASES 54.
#[test]
fn ctrl_z_and_fg_work_with_their_signals_blocked_at_the_start() {
    let mut screen = Screen::bash();
    screen.keys("env --block-signal=CHLD,CONT,TSTP,TTIN,TTOU \"$LASTWORDS\" run --quiet -- sh -c 'echo rea''dy; read line; echo got $line'\n");
    screen.wait_for("ready");
    screen.keys(CTRL_Z);
    screen.wait_for("Stopped");
    screen.wait_for("$ ");
    screen.keys("fg\n");
    screen.wait_for("got $line'");
    screen.keys("typed\n");
    screen.wait_for("got typed");
}
