//! Runs a test in a process of its own.
//!
//! Tests of one binary run side by side in one process. A test that changes what a process shares
//! (signal handlers, descriptors, resource limits), or that fails when another test starts a child
//! at the same moment, starts its own test binary again with itself as the only test.
//!
//! A test is given by its name and by the `module_path!()` of the module it stands in.

use std::process::{Command, Stdio};

/// The environment variable that holds the name of the one test that a process was started for.
pub const ISOLATED_TEST: &str = "LASTWORDS_ISOLATED_TEST";

/// The environment variable that holds the seconds after which an isolated test is ended from
/// outside, for a soak that is to run for hours.
const TIME_LIMIT: &str = "LASTWORDS_TEST_SECONDS";

/// Seconds, if the variable is not set.
const DEFAULT_TIME_LIMIT: &str = "300";

/// The name by which the test harness knows a test: its path without the crate.
pub fn harness_name(test: &str, module: &str) -> String {
    match module.split_once("::") {
        Some((_, inner)) => format!("{inner}::{test}"),
        None => test.to_owned(),
    }
}

/// Whether this process was started to run this test and nothing else.
pub fn is_alone(test: &str, module: &str) -> bool {
    std::env::var_os(ISOLATED_TEST).is_some_and(|name| name == *harness_name(test, module))
}

/// Runs `body`, which is the rest of the test that calls this, in a process of its own.
///
/// # Panics
///
/// The body has failed, there is no test of this name, or the test binary cannot be started again.
pub fn alone(test: &str, module: &str, body: impl FnOnce()) {
    if is_alone(test, module) {
        return body();
    }
    let output = command(test, module)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{test}: start this test binary again: {error}"));
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    // A name that matches no test would pass without having run anything.
    assert!(
        output.status.success() && stdout.contains("1 passed"),
        "{test}, in a process of its own: {}\n{stdout}{stderr}",
        output.status
    );
}

/// This test binary, to run one test in a process of its own. It is ended from outside after five
/// minutes, or after as many seconds as `LASTWORDS_TEST_SECONDS` says.
///
/// # Panics
///
/// The path of the test binary is not known.
pub fn command(test: &str, module: &str) -> Command {
    let name = harness_name(test, module);
    let binary = std::env::current_exe().expect("the path of this test binary");
    let seconds = std::env::var_os(TIME_LIMIT).unwrap_or_else(|| DEFAULT_TIME_LIMIT.into());
    let mut command = Command::new("timeout");
    command
        .args(["-k", "5"])
        .arg(seconds)
        .arg(binary)
        .args(["--exact", &name, "--nocapture", "--test-threads=1"])
        .env(ISOLATED_TEST, &name);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_harness_knows_a_test_by_its_path_without_the_crate() {
        assert_eq!(harness_name("one", "lastwords::a::tests"), "a::tests::one");
        assert_eq!(harness_name("one", "drain"), "one");
    }

    #[test]
    fn an_isolated_test_runs_once_and_its_failure_is_seen() {
        let test = "an_isolated_test_runs_once_and_its_failure_is_seen";
        let outer = std::process::id();
        alone(test, module_path!(), || {
            assert_ne!(
                std::os::unix::process::parent_id(),
                outer,
                "run under timeout(1)"
            );
        });
        if !is_alone(test, module_path!()) {
            let missing = std::panic::catch_unwind(|| alone("no_such_test", module_path!(), || ()));
            assert!(missing.is_err(), "a test that is not there");
        }
    }
}
