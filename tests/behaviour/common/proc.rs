//! What /proc says.

use super::wait_until;
use std::fs;

/// One process as /proc/PID/stat has it (proc_pid_stat(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) pid: u32,
    pub(crate) comm: String,
    pub(crate) state: char,
    pub(crate) parent: u32,
    pub(crate) group: u32,
    pub(crate) session: u32,
}

/// What is said of this process, if there is one.
pub(crate) fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (begin, end) = (text.find('(')?, text.rfind(')')?);
    let mut rest = text.get(end + 2..)?.split(' ');
    let state = rest.next()?.chars().next()?;
    let mut number = || rest.next()?.parse().ok();
    Some(Stat {
        pid,
        comm: text.get(begin + 1..end)?.to_owned(),
        state,
        parent: number()?,
        group: number()?,
        session: number()?,
    })
}

/// Waits until this process has ended: a zombie, or gone.
pub(crate) fn wait_dead(pid: u32) {
    wait_until("the end of a process", || {
        stat(pid).is_none_or(|stat| stat.state == 'Z' || stat.state == 'X')
    });
}

/// Waits until this process is a child of ours that nobody has collected.
pub(crate) fn wait_zombie(pid: u32) {
    wait_until("a zombie", || {
        stat(pid).is_some_and(|stat| stat.state == 'Z')
    });
}

/// Waits until this process executes this program.
pub(crate) fn wait_comm(pid: u32, comm: &str) {
    wait_until(comm, || stat(pid).is_some_and(|stat| stat.comm == comm));
}

/// All process ids there are.
pub(crate) fn pids() -> Vec<u32> {
    let Ok(all) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

/// Children of this process, zombies included; for tests that are alone in a process.
pub(crate) fn children() -> Vec<Stat> {
    let me = std::process::id();
    pids()
        .into_iter()
        .filter_map(stat)
        .filter(|stat| stat.parent == me)
        .collect()
}

/// Descriptors of this process, sorted, with what they are.
pub(crate) fn descriptors() -> Vec<(i32, String)> {
    let Ok(all) = fs::read_dir("/proc/self/fd") else {
        return Vec::new();
    };
    let mut list: Vec<(i32, String)> = all
        .filter_map(|entry| {
            let number = entry.ok()?.file_name().to_str()?.parse().ok()?;
            // The directory that is being read here is closed again by now, or soon.
            let what = fs::read_link(format!("/proc/self/fd/{number}")).ok()?;
            Some((number, what.to_string_lossy().into_owned()))
        })
        .filter(|(_, what)| !what.starts_with("/proc/"))
        .collect();
    list.sort_unstable();
    list
}

/// One field of /proc/thread-self/status, such as `SigCgt`, `SigBlk` or `Threads`.
pub(crate) fn own_status(field: &str) -> String {
    let text = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = text
        .lines()
        .find(|line| line.split(':').next() == Some(field));
    line.and_then(|line| line.split(':').nth(1))
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Whether a mask of /proc/PID/status has this signal.
pub(crate) fn mask_has(mask: &str, signal: i32) -> bool {
    u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask >> (signal - 1) & 1 == 1)
}
