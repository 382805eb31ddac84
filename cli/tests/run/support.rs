//! Helpers shared by the tests. A guard ends each process that a test starts.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The longest time that a test waits for anything.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const LASTWORDS: &str = env!("CARGO_BIN_EXE_lastwords");

/// A program started with the default action for every signal. The process that runs the tests may
/// ignore some (nohup, a background job of a script).
pub(crate) fn with_default_actions(program: &str) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal", program]);
    command
}

/// `lastwords run WORDS...`, with stdin from /dev/null.
pub(crate) fn lastwords(words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let mut command = with_default_actions(LASTWORDS);
    command
        .arg("run")
        .args(words)
        .stdin(Stdio::null())
        .env_remove("LASTWORDS_LOG");
    command
}

/// `lastwords run OPTIONS -- sh -c SCRIPT`.
pub(crate) fn shell(options: &[&str], script: &str) -> Command {
    lastwords(options.iter().copied().chain(["--", "sh", "-c", script]))
}

/// Runs a command to its end and collects both outputs.
pub(crate) fn finish(command: &mut Command) -> Output {
    let running = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    running.finish()
}

/// Runs a script to its end and collects both outputs and the report.
pub(crate) fn finish_with_report(options: &[&str], script: &str) -> (Output, Value) {
    let scratch = Scratch::new();
    let file = scratch.path("report.json");
    let mut command = lastwords([OsStr::new("--report"), file.as_os_str()]);
    let output = finish(command.args(options).args(["--", "sh", "-c", script]));
    (output, read_report(&file))
}

pub(crate) fn read_report(file: &Path) -> Value {
    let text = std::fs::read_to_string(file).expect("a report was written");
    assert!(
        text.ends_with('\n') && text.lines().count() == 1,
        "one object, one line"
    );
    serde_json::from_str(&text).expect("the report is JSON")
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

/// A process that is stopped when the value is dropped.
#[derive(Debug)]
pub(crate) struct Running(Option<Child>);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Running {
        Running(Some(command.spawn().expect("it is there")))
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        self.0.as_mut().expect("not finished")
    }

    pub(crate) fn stdout(&mut self) -> BufReader<ChildStdout> {
        BufReader::new(self.child().stdout.take().expect("piped"))
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(self.0.as_ref().expect("not finished"))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it has not been waited for");
    }

    /// Waits for the process to end, and collects the outputs that the test has not taken.
    pub(crate) fn finish(mut self) -> Output {
        let child = self.child();
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let reading = (
            std::thread::spawn(|| collect(stdout)),
            std::thread::spawn(|| collect(stderr)),
        );
        let status = self.wait();
        let stdout = reading.0.join().expect("read");
        let stderr = reading.1.join().expect("read");
        Output {
            status,
            stdout,
            stderr,
        }
    }

    /// Waits for the process to end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if let Some(status) = self.child().try_wait().expect("ours") {
                self.0 = None;
                return status;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("still running after {PATIENCE:?}");
    }

    /// The exit status stays readable for [`Running::wait`].
    pub(crate) fn is_running(&mut self) -> bool {
        self.child().try_wait().expect("ours").is_none()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(mut child) = self.0.take() else {
            return;
        };
        let pid = Pid::from_child(&child);
        // The second TERM makes lastwords kill everything it has started.
        for signal in [Signal::TERM, Signal::TERM, Signal::CONT] {
            let _ = kill_process(pid, signal);
            for _ in 0..100 {
                if let Ok(Some(_)) = child.try_wait() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn collect(stream: Option<impl Read>) -> Vec<u8> {
    let mut all = Vec::new();
    if let Some(mut stream) = stream {
        stream.read_to_end(&mut all).expect("readable");
    }
    all
}

/// Reads lines until one equals `wanted`.
pub(crate) fn read_until(reader: &mut impl BufRead, wanted: &str) {
    let mut seen = String::new();
    loop {
        let mut line = String::new();
        assert_ne!(
            reader.read_line(&mut line).expect("text"),
            0,
            "{wanted:?} never came; before the end came {seen:?}"
        );
        if line.trim_end() == wanted {
            return;
        }
        seen.push_str(&line);
    }
}

/// Polls a condition until it holds.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process with this id is alive. A zombie is not.
pub(crate) fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit(") ")
        .next()
        .is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z') && !rest.starts_with('X'))
}

/// A temporary directory that is removed when the value is dropped.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "lastwords-cli-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a new directory");
        Scratch(path)
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.0
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Creates a file with these contents and permissions.
    pub(crate) fn file(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = self.path(name);
        std::fs::write(&path, text).expect("writable");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("ours");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
