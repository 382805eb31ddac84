//! Output of the command reaches the readers of lastwords unchanged and at once, whatever the
//! readers do.

use crate::support::{
    LASTWORDS, Running, Scratch, eventually, finish, finish_with_report, is_alive, lastwords,
    read_report, read_until, shell, text,
};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::pipe::{PipeFlags, fcntl_getpipe_size, pipe_with};
use rustix::process::Signal;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Pseudo-random bytes (xorshift), the same in every run.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.flatten().take(len).collect()
}

#[test]
fn ten_megabytes_of_noise_on_both_streams_arrive_as_they_are() {
    let scratch = Scratch::new();
    let (out, err) = (noise(10 << 20), noise((10 << 20) + 1)[1..].to_vec());
    std::fs::write(scratch.path("out"), &out).expect("writable");
    std::fs::write(scratch.path("err"), &err).expect("writable");
    let output = finish(shell(&[], "cat err >&2 & cat out; wait").current_dir(scratch.dir()));
    assert!(output.status.success());
    assert!(output.stdout == out && output.stderr == err);
}

#[test]
fn output_into_files_arrives_as_it_is() {
    let scratch = Scratch::new();
    std::fs::write(scratch.path("in"), noise(3 << 20)).expect("writable");
    let (out, err) = (scratch.path("out"), scratch.path("err"));
    let mut command = shell(&[], "cat in; cat in >&2");
    command
        .current_dir(scratch.dir())
        .stdout(File::create(&out).expect("new"))
        .stderr(File::create(&err).expect("new"));
    assert!(Running::start(&mut command).wait().success());
    for file in [out, err] {
        assert!(std::fs::read(file).expect("there") == noise(3 << 20));
    }
}

#[test]
fn a_line_arrives_while_the_command_runs() {
    let mut running = Running::start(
        shell(&[], "printf 'no newline'; printf err >&2; sleep 1000")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    );
    let mut seen = [0; 10];
    running.stdout().read_exact(&mut seen).expect("at once");
    assert_eq!(&seen, b"no newline");
    let mut seen = [0; 3];
    running
        .child()
        .stderr
        .as_mut()
        .expect("piped")
        .read_exact(&mut seen)
        .expect("at once");
    assert_eq!(&seen, b"err");
    assert!(running.is_running());
}

#[test]
fn merged_output_keeps_its_order() {
    let script = "i=0; while [ $i -lt 500 ]; do echo o$i; echo e$i >&2; i=$((i+1)); done";
    let output = finish(&mut shell(&["--merge"], script));
    let expected: String = (0..500).map(|i| format!("o{i}\ne{i}\n")).collect();
    assert_eq!(text(&output.stdout), expected);
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn a_slow_reader_loses_nothing_and_holds_the_command_back() {
    let scratch = Scratch::new();
    let all = noise(3 << 20);
    std::fs::write(scratch.path("in"), &all).expect("writable");
    let mut running = Running::start(
        shell(&[], "cat in; echo written >&2")
            .current_dir(scratch.dir())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    );
    let mut stdout = running.child().stdout.take().expect("piped");
    std::thread::sleep(Duration::from_millis(500));
    assert!(running.is_running(), "3 MiB fit into no pipe");
    let mut got = Vec::new();
    let mut piece = vec![0; 50_000];
    loop {
        match stdout.read(&mut piece).expect("readable") {
            0 => break,
            n => got.extend_from_slice(&piece[..n]),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(got == all);
    assert_eq!(text(&running.finish().stderr), "written\n");
}

#[test]
fn a_reader_that_does_not_read_holds_back_its_own_stream_only() {
    let script = "yes & i=0; while [ $i -lt 3000 ]; do echo line $i >&2; i=$((i+1)); done; kill $!; wait $!; exit 7";
    let mut running = Running::start(
        shell(&[], script)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    );
    let _unread = running.child().stdout.take();
    let mut stderr = BufReader::new(running.child().stderr.take().expect("piped"));
    read_until(&mut stderr, "line 2999");
    drop(_unread);
    assert_eq!(running.wait().code(), Some(7));
}

#[test]
fn a_reader_that_does_not_read_holds_back_no_timer() {
    let mut running = Running::start(
        shell(&["--timeout", "300ms"], "echo $$; exec yes")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    );
    let mut stdout = running.stdout();
    let mut pid = String::new();
    stdout.read_line(&mut pid).expect("text");
    eventually("the limit ends what nobody reads", || !is_alive(&pid));
    assert!(running.is_running(), "what was read is still to be written");
    let mut rest = Vec::new();
    stdout.read_to_end(&mut rest).expect("readable");
    assert!(
        rest.len() > 65_536 && rest.chunks_exact(2).all(|line| line == b"y\n"),
        "nothing is lost in the middle"
    );
    assert_eq!(running.wait().code(), Some(124));
}

#[test]
fn somebody_who_insists_need_not_wait_for_a_reader() {
    let mut running = Running::start(
        shell(&[], "echo $$; exec yes")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    );
    let mut stdout = running.stdout();
    let mut pid = String::new();
    stdout.read_line(&mut pid).expect("text");
    running.signal(Signal::TERM);
    eventually("yes ends", || !is_alive(&pid));
    eventually("lastwords ends though nobody reads", || {
        if running.is_running() {
            running.signal(Signal::TERM);
            std::thread::sleep(Duration::from_millis(50));
        }
        !running.is_running()
    });
}

#[test]
fn a_reader_that_is_gone_ends_the_writer_as_it_would_without_us() {
    let scratch = Scratch::new();
    let report = scratch.path("report");
    let mut running = Running::start(
        lastwords([OsStr::new("--report"), report.as_os_str()])
            .args(["--", "yes"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    );
    let mut stdout = running.stdout();
    read_until(&mut stdout, "y");
    drop(stdout);
    let output = running.finish();
    assert_eq!(output.status.code(), Some(141));
    assert_eq!(text(&output.stderr), "");
    let report = read_report(&report);
    assert_eq!(report["exit"]["signal"], "PIPE");
    assert_eq!(report["streams"]["stdout"]["end"], "closed");

    let mut shell = Command::new("bash");
    shell.args([
        "-c",
        r#""$0" run -- yes | head -n 1; echo ${PIPESTATUS[0]}"#,
        LASTWORDS,
    ]);
    assert_eq!(text(&finish(&mut shell).stdout), "y\n141\n");
}

#[test]
fn the_other_stream_goes_on_when_one_reader_is_gone() {
    let script = "echo ready; read go; echo lost; echo kept >&2; sleep 0.2; echo lost again; echo kept too >&2; exit 5";
    let mut running = Running::start(
        shell(&[], &format!("trap '' PIPE; {script}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    );
    let mut stdout = running.stdout();
    read_until(&mut stdout, "ready");
    drop(stdout);
    drop(running.child().stdin.take());
    let output = running.finish();
    let said: Vec<&str> = text(&output.stderr)
        .lines()
        .filter(|line| line.starts_with("kept"))
        .collect();
    assert_eq!(said, ["kept", "kept too"]);
    assert_eq!(output.status.code(), Some(5));
}

#[test]
fn a_shared_pipe_stays_as_it_was() {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
    let ours = write.try_clone().expect("a copy");
    let capacity = fcntl_getpipe_size(&ours).expect("a pipe");
    let mut running = Running::start(shell(&[], "yes | head -c 300000").stdout(write));
    eventually("the pipe is full", || {
        rustix::io::ioctl_fionread(&read).is_ok_and(|n| n as usize > capacity / 2)
    });
    assert!(!fcntl_getfl(&ours).expect("open").contains(OFlags::NONBLOCK));
    drop(ours);
    let mut all = Vec::new();
    File::from(read).read_to_end(&mut all).expect("readable");
    assert_eq!(all.len(), 300_000);
    assert!(running.wait().success());
}

#[test]
fn a_socket_is_written_like_a_pipe() {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let mut running = Running::start(
        shell(&[], "yes | head -c 2000000").stdout(std::os::fd::OwnedFd::from(theirs)),
    );
    std::thread::sleep(Duration::from_millis(200));
    let mut all = Vec::new();
    let mut ours = ours;
    ours.read_to_end(&mut all).expect("readable");
    assert_eq!(all.len(), 2_000_000);
    assert!(running.wait().success());
}

#[test]
fn output_that_cannot_be_written_is_a_failure_of_lastwords() {
    let full = File::options()
        .write(true)
        .open("/dev/full")
        .expect("the device");
    let mut command = shell(&[], "echo lost; echo kept >&2");
    let output = Running::start(command.stdout(full).stderr(Stdio::piped())).finish();
    assert_eq!(output.status.code(), Some(125));
    let said = text(&output.stderr);
    assert!(
        said.starts_with("kept\n") && said.contains("failed to write to stdout: No space left"),
        "{said}"
    );
}

#[test]
fn the_last_words_written_under_a_stop_arrive() {
    let script = "trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.05; done";
    let mut running = Running::start(
        shell(&[], script)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    );
    let mut stdout = running.stdout();
    read_until(&mut stdout, "ready");
    running.signal(Signal::TERM);
    read_until(&mut stdout, "bye");
    assert_eq!(running.wait().code(), Some(3));
}

#[test]
fn a_command_that_sleeps_costs_nothing() {
    let mut running = Running::start(
        shell(&[], "echo ready; sleep 2")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    );
    let mut stdout = running.stdout();
    read_until(&mut stdout, "ready");
    let pid = running.pid();
    let switches = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()))
            .expect("it runs");
        let line = status
            .lines()
            .find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"))
            .expect("the kernel counts");
        line.trim().parse::<u64>().expect("a number")
    };
    std::thread::sleep(Duration::from_millis(200));
    let before = switches();
    let began = Instant::now();
    std::thread::sleep(Duration::from_millis(800));
    let woken = switches() - before;
    assert!(
        woken <= 3,
        "{woken} wake-ups in {:?} with nothing to do",
        began.elapsed()
    );
    assert!(running.wait().success());
}

#[test]
fn a_child_that_closed_its_outputs_is_waited_for() {
    let (output, report) = finish_with_report(&[], "exec >&- 2>&-; sleep 0.4; exit 6");
    assert_eq!(output.status.code(), Some(6));
    assert_eq!(report["state"], "drained");
    assert!(report["timing"]["ran_us"].as_u64() >= Some(350_000));
}

#[test]
fn what_a_grandchild_writes_after_the_exit_is_passed_on() {
    let script =
        "(i=0; while [ $i -lt 6 ]; do echo line $i; i=$((i+1)); sleep 0.08; done) & exit 0";
    let (output, report) = finish_with_report(&[], script);
    assert_eq!(
        text(&output.stdout),
        (0..6).map(|i| format!("line {i}\n")).collect::<String>()
    );
    assert_eq!(report["state"], "drained");
}
