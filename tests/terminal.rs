//! A controlling terminal that the host shares with its child.
//!
//! Each test runs in a process of its own, which leads a session on a new pseudo-terminal.

use lastwords::__internals::testing::isolation::alone;
use lastwords::{Command, Finished, Stdin, TerminalControl};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{getpgrp, ioctl_tiocsctty, setsid};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::tcgetpgrp;
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;

/// Becomes the leader of a session with a new terminal at descriptor 0. Returns the side of the
/// keyboard, which stays open until the process has ended: closing it would send HUP to the session
/// leader.
fn become_session_leader() -> ManuallyDrop<OwnedFd> {
    let keyboard =
        openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
    grantpt(&keyboard).expect("it is ours");
    unlockpt(&keyboard).expect("it is ours");
    let name = ptsname(&keyboard, Vec::new()).expect("it has a name");
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let terminal = open(name, flags, Mode::empty()).expect("it is unlocked");
    setsid().expect("a test process leads no group");
    ioctl_tiocsctty(&terminal).expect("the session has no terminal yet");
    rustix::stdio::dup2_stdin(&terminal).expect("descriptor 0 can be replaced");
    ManuallyDrop::new(keyboard)
}

fn keys(keyboard: &OwnedFd, keys: &[u8]) {
    rustix::io::write(keyboard, keys).expect("the terminal is open");
}

/// Runs a shell script that has the terminal as its stdin.
fn run(script: &str, change: impl FnOnce(&mut Command)) -> (Finished, Option<String>) {
    let mut command = Command::shell(script);
    command.stdin(Stdin::Inherit);
    change(&mut command);
    let finished = lastwords::run(&command).expect("it starts");
    let stdout = finished.stdout.as_ref().map(|kept| kept.to_vec());
    let stdout = stdout.map(|bytes| String::from_utf8(bytes).expect("text"));
    (finished, stdout)
}

fn assert_host_has_terminal() {
    let foreground = tcgetpgrp(rustix::stdio::stdin()).expect("a terminal");
    assert_eq!(foreground, getpgrp());
}

/// CASES 91.
#[test]
fn a_child_that_reads_an_inherited_terminal_gets_it_and_the_host_has_it_back() {
    alone(
        "a_child_that_reads_an_inherited_terminal_gets_it_and_the_host_has_it_back",
        module_path!(),
        || {
            let keyboard = become_session_leader();
            for from_start in [false, true] {
                keys(&keyboard, b"typed\n");
                let (finished, stdout) = run("read line; echo got $line; exit 3", |command| {
                    command.foreground_terminal(from_start);
                });
                assert_eq!(stdout.as_deref(), Some("got typed\n"));
                assert_eq!(finished.report.exit.and_then(|exit| exit.code), Some(3));
                assert_host_has_terminal();
            }
        },
    );
}

/// CASES 91. The prompt of a password, with no stream that is a terminal.
#[test]
fn a_child_that_opens_the_terminal_gets_it_where_the_host_has_asked_for_that() {
    alone(
        "a_child_that_opens_the_terminal_gets_it_where_the_host_has_asked_for_that",
        module_path!(),
        || {
            let keyboard = become_session_leader();
            keys(&keyboard, b"typed\n");
            let (_, stdout) = run("read line </dev/tty; echo got $line", |command| {
                command
                    .stdin(Stdin::Null)
                    .terminal(TerminalControl::Managed);
            });
            assert_eq!(stdout.as_deref(), Some("got typed\n"));
            assert_host_has_terminal();
        },
    );
}

/// CASES 91. Nobody could continue a session leader, so ^Z does not stop it, nor its child for
/// longer than a look takes.
#[test]
fn a_child_that_the_keyboard_stops_goes_on_with_its_host() {
    alone(
        "a_child_that_the_keyboard_stops_goes_on_with_its_host",
        module_path!(),
        || {
            let keyboard = become_session_leader();
            // As ^Z, at a moment when the child has the terminal for certain.
            let script = "kill -TSTP 0; read line; echo got $line";
            keys(&keyboard, b"typed\n");
            let (_, stdout) = run(script, |command| {
                command.foreground_terminal(true);
            });
            assert_eq!(stdout.as_deref(), Some("got typed\n"));
            assert_host_has_terminal();
        },
    );
}

/// CASES 91.
#[test]
fn the_modes_of_the_terminal_are_restored_after_a_child_that_was_killed() {
    alone(
        "the_modes_of_the_terminal_are_restored_after_a_child_that_was_killed",
        module_path!(),
        || {
            let _keyboard = become_session_leader();
            let is_raw = || {
                let modes = rustix::termios::tcgetattr(rustix::stdio::stdin());
                let canonical = rustix::termios::LocalModes::ICANON;
                !modes.expect("a terminal").local_modes.contains(canonical)
            };
            run("stty raw; kill -KILL $$", |command| {
                command.foreground_terminal(true);
            });
            assert!(!is_raw());
            assert_host_has_terminal();
        },
    );
}
