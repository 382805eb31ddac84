//! What the kernel says about this process.

use super::Fail;
use std::fs;

/// Resident memory in bytes, counted page by page (proc_pid_smaps(5)): statm lags behind.
pub(crate) fn resident() -> Result<u64, Fail> {
    field(&fs::read_to_string("/proc/self/smaps_rollup")?, "Rss:").map(|kib| kib << 10)
}

/// How many threads this process has.
pub(crate) fn threads() -> Result<u64, Fail> {
    field(&fs::read_to_string("/proc/self/status")?, "Threads:")
}

/// How often its threads have gone to sleep of their own accord.
pub(crate) fn sleeps() -> Result<u64, Fail> {
    let mut all = 0;
    for task in fs::read_dir("/proc/self/task")? {
        all += field(
            &fs::read_to_string(task?.path().join("status"))?,
            "voluntary_ctxt_switches:",
        )?;
    }
    Ok(all)
}

fn field(text: &str, name: &str) -> Result<u64, Fail> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .ok_or_else(|| format!("the kernel does not say {name}"))?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
