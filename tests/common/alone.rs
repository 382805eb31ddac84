//! Tests that change what a whole process shares: each runs in a process of its own, which is this
//! test binary again.

use std::process::{Command, Stdio};

const ALONE: &str = "LASTWORDS_TEST_ALONE";

/// True in a process that runs this test alone.
pub(crate) fn is_alone(test: &str) -> bool {
    std::env::var_os(ALONE).is_some_and(|name| name == test)
}

/// Runs `body` in a process of its own; `test` is the full name of the test that asks for it.
pub(crate) fn alone(test: &str, body: impl FnOnce()) {
    if is_alone(test) {
        body();
        return;
    }
    let output = again(test)
        .stdin(Stdio::null())
        .output()
        .expect("this test binary again");
    let (said, complained) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    let passed = output.status.success() && said.contains("1 passed");
    assert!(
        passed,
        "{test}, alone: {}\n{said}{complained}",
        output.status
    );
}

/// This test binary, to run one test in its main thread; ended from outside if it takes a minute.
pub(crate) fn again(test: &str) -> Command {
    let mut command = Command::new("timeout");
    let exe = std::env::current_exe().expect("a name of this program");
    command
        .args(["-k", "5", "60"])
        .arg(exe)
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(ALONE, test);
    command
}
