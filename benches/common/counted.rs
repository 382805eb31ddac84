//! What another run of this bench does, counted from outside: instructions by callgrind, system
//! calls by strace.

use super::Fail;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::Command;

/// A run that was counted.
#[derive(Debug)]
pub(crate) struct Counted {
    /// Of the whole run.
    pub(crate) total: u64,
    /// The number that it has printed.
    pub(crate) said: u64,
}

/// Whose system calls are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// Those of the first thread.
    FirstThread,
    /// Those of all threads, and of the children, but for write(2): that is what the children do.
    AllThreads,
}

/// What one more of something costs: the difference of two runs by the difference of what they have
/// said. `None` where there is no such tool.
#[expect(clippy::cast_precision_loss, reason = "far fewer than 2^53")]
pub(crate) fn slope(short: Option<Counted>, long: Option<Counted>) -> Option<f64> {
    let (short, long) = short.zip(long)?;
    Some(
        long.total.saturating_sub(short.total) as f64
            / long.said.saturating_sub(short.said).max(1) as f64,
    )
}

/// Instructions of the process itself, without its children and without the kernel.
pub(crate) fn instructions(arguments: &[String]) -> Result<Option<Counted>, Fail> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--quiet", "--trace-children=no"]);
    let total = |profile: &str| {
        profile
            .lines()
            .filter_map(|line| line.strip_prefix("summary: ")?.trim().parse::<u64>().ok())
            .sum()
    };
    counted(valgrind, "--callgrind-out-file=", arguments, total)
}

/// Counts the system calls of a run.
pub(crate) fn system_calls(arguments: &[String], whose: Whose) -> Result<Option<Counted>, Fail> {
    let mut strace = Command::new("strace");
    strace.args(["-c", "-qq"]);
    if whose == Whose::AllThreads {
        strace.args(["-f", "-e", "trace=!write"]);
    }
    // Time, seconds, microseconds a call, calls, errors (if there are any), the word.
    let total = |table: &str| {
        let last = table.lines().rev().find(|line| line.ends_with(" total"));
        last.and_then(|line| line.split_whitespace().nth(3)?.parse().ok())
            .unwrap_or(0)
    };
    counted(strace, "--output=", arguments, total)
}

fn counted(
    mut tool: Command,
    out: &str,
    arguments: &[String],
    total: impl Fn(&str) -> u64,
) -> Result<Option<Counted>, Fail> {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("bench-counted-{}", std::process::id()));
    tool.arg(format!("{out}{}", path.display()))
        .arg(std::env::current_exe()?)
        .args(arguments);
    let ran = match tool.output() {
        Ok(ran) => ran,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let told = std::fs::read_to_string(&path);
    // It may not be there if the run has failed, which is told next.
    let _ = std::fs::remove_file(&path);
    if !ran.status.success() {
        let what = arguments.join(" ");
        return Err(format!(
            "{what}, counted: {}\n{}",
            ran.status,
            String::from_utf8_lossy(&ran.stderr)
        )
        .into());
    }
    Ok(Some(Counted {
        total: total(&told?),
        said: String::from_utf8(ran.stdout)?.trim().parse()?,
    }))
}
