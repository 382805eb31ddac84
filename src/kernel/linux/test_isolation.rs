//! For tests that would disturb their neighbours: the test binary runs one test of its own once
//! more, alone in a process.

use std::process::Command;

const ALONE: &str = "LASTWORDS_TEST_ALONE";

/// Runs `body` in a process of its own, and fails if that does. `name` is the test's own name,
/// `module` its `module_path!()`.
pub(crate) fn alone(name: &str, module: &str, body: impl FnOnce()) {
    let (_, module) = module.split_once("::").expect("a path below the crate");
    let test = format!("{module}::{name}");
    if std::env::var_os(ALONE).is_some_and(|asked| asked == *test) {
        return body();
    }
    let own = std::env::current_exe().expect("the test binary");
    let output = Command::new(own)
        .args([&test, "--exact", "--nocapture", "--test-threads=1"])
        .env(ALONE, &test)
        .output()
        .expect("run");
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    // A name that matches nothing would pass without having run.
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{:?}\n{text}",
        output.status
    );
}
