//! The test binary plays scripts as the simulated kernel does.

use crate::support::{Census, play};
use lastwords::__internals::testing::isolation::alone;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};

fn command(script: &str) -> Command {
    let (program, name, value) = play(script);
    let mut command = Command::new(program);
    command.env(name, value).stdin(Stdio::null());
    command
}

fn output(script: &str) -> Output {
    command(script).output().expect("the player starts")
}

#[test]
fn a_script_writes_and_exits_as_it_says() {
    let out = output("write stdout 100000; echo stderr \"a\\tb\"; exit 3");
    assert_eq!(out.status.code(), Some(3));
    let expected: Vec<u8> = (0..100_000)
        .map(|n| lastwords::__internals::kernel::sim::script::pattern(lastwords::Stream::Stdout, n))
        .collect();
    assert_eq!(out.stdout, expected);
    assert_eq!(out.stderr, b"a\tb\n");
    assert_eq!(
        output("kill SELF KILL").status.signal(),
        Some(libc::SIGKILL)
    );
    assert_eq!(output("").status.code(), Some(0));
}

#[test]
fn children_of_a_script_write_and_are_waited_for() {
    let out = output(
        "fork { print stdout \"child \"; exit 1 }; wait; fork { sleep forever }; kill CHILD TERM; wait; print stdout \"parent\"",
    );
    assert_eq!(out.stdout, b"child parent");
}

#[test]
fn a_handled_signal_runs_its_acts_and_what_it_interrupted_goes_on() {
    let out = output(
        "on USR1 { print stdout \"usr \" }; ignore TERM; kill SELF USR1; kill SELF TERM; fork { sleep 30ms; kill PARENT USR1; sleep 30ms; kill PARENT USR1 }; sleep 150ms; print stdout \"end\"",
    );
    assert_eq!(out.stdout, b"usr usr usr end");
}

#[test]
fn stdin_is_read_and_copied() {
    let mut child = command("read 3; cat stdout; exit 5")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the player starts");
    child
        .stdin
        .take()
        .expect("piped")
        .write_all(b"abcdef")
        .expect("it reads");
    let mut rest = String::new();
    child
        .stdout
        .take()
        .expect("piped")
        .read_to_string(&mut rest)
        .expect("it writes");
    assert_eq!(
        (rest.as_str(), child.wait().expect("a child").code()),
        ("def", Some(5))
    );
}

#[test]
fn a_main_thread_that_ends_leaves_a_zombie_that_is_alive() {
    let mut child = command("outlive 300ms").spawn().expect("the player starts");
    let state = || {
        let stat =
            std::fs::read_to_string(format!("/proc/{}/stat", child.id())).expect("it is there");
        let fields: Vec<String> = stat
            .rsplit(") ")
            .next()
            .expect("fields")
            .split(' ')
            .map(str::to_owned)
            .collect();
        (fields[0].clone(), fields[17].clone())
    };
    let found = (0..200).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(1));
        state() == ("Z".to_owned(), "2".to_owned())
    });
    assert!(found, "{:?}", state());
    assert_eq!(child.wait().expect("a child").code(), Some(0));
}

#[test]
fn a_census_sees_a_descriptor_and_a_child() {
    alone(
        "a_census_sees_a_descriptor_and_a_child",
        module_path!(),
        || {
            let before = Census::take();
            before.assert_same();
            let file = std::fs::File::open("/dev/null").expect("/dev/null");
            let mut child = command("sleep forever").spawn().expect("the player starts");
            let now = Census::take();
            assert_eq!(
                (now.descriptors.len(), now.children.len()),
                (before.descriptors.len() + 1, before.children.len() + 1)
            );
            assert!(
                before
                    .difference()
                    .is_some_and(|d| d.contains("descriptors") && d.contains("children"))
            );
            drop(file);
            child.kill().expect("it is there");
            assert_eq!(Census::take().children, vec![child.id()]);
            child.wait().expect("a child");
            before.assert_same();
        },
    );
}
