//! What sees a generation's processes outside its group: a cookie in their environment, or a cgroup
//! of their own.

pub(crate) mod cgroup;

use super::process::pidfd::To;
use super::process::{group, pidfd};
use super::procfs::Proc;
use super::procfs::scan::open_verified;
use super::spawn::Inside;
use super::table::Row;
use crate::command::Containment;
use crate::types::{Capabilities, Probe, Signal, Signalled, SpawnError};
use cgroup::Cgroup;
use std::ffi::CString;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::AsFd;

/// What a generation is contained by, beside its group.
#[derive(Debug)]
pub(crate) enum Contained {
    /// A variable.
    Cookie(Cookie),
    /// A cgroup.
    Cgroup(Cgroup),
}

/// A generation's cookie.
#[derive(Debug)]
pub(crate) struct Cookie {
    /// The variable, `NAME=1`.
    text: CString,
    /// When the leader began, in clock ticks since boot: whoever began earlier is not its
    /// descendant.
    pub since: u64,
    /// Who outside the group has got the last signal: number and start time.
    told: Vec<(u32, u64)>,
}

/// The ids of one kernel object.
#[derive(Debug)]
pub(crate) struct Ids {
    base: u64,
    prefix: String,
}

impl Ids {
    /// An id that no other kernel object has: 64 random bits, and the generation's number in it.
    pub(crate) fn new() -> Ids {
        // The keys come from the system's random numbers.
        let base = RandomState::new().build_hasher().finish();
        Ids {
            base,
            prefix: format!("LASTWORDS_COOKIE_{base:016x}"),
        }
    }

    /// What the names of all cookies of this kernel object begin with; eight hexadecimal digits and
    /// `=` follow.
    pub(crate) fn prefix(&self) -> &[u8] {
        self.prefix.as_bytes()
    }

    /// What the plan asks for; `None` for the group alone.
    pub(crate) fn make(
        &self,
        containment: &Containment,
        sequence: u32,
    ) -> Result<Option<Box<Contained>>, SpawnError> {
        Ok(match containment {
            Containment::Group => None,
            Containment::Cookie => {
                // No NUL in it.
                let text =
                    CString::new(format!("{}{sequence:08x}=1", self.prefix)).unwrap_or_default();
                Some(Box::new(Contained::Cookie(Cookie {
                    text,
                    since: 0,
                    told: Vec::new(),
                })))
            }
            Containment::Cgroup(options) => {
                let name = format!("lastwords-{:016x}{sequence:08x}", self.base);
                Some(Box::new(Contained::Cgroup(Cgroup::make(options, &name)?)))
            }
        })
    }
}

impl Contained {
    /// As the spawner wants it.
    pub(crate) fn inside(&self) -> Inside<'_> {
        match self {
            Contained::Cookie(cookie) => Inside {
                variable: Some(&cookie.text),
                cgroup: None,
            },
            Contained::Cgroup(cgroup) => Inside {
                variable: None,
                cgroup: Some(cgroup),
            },
        }
    }

    /// The cgroup itself, if it is one.
    pub(crate) fn into_cgroup(self) -> Option<Cgroup> {
        match self {
            Contained::Cookie(_) => None,
            Contained::Cgroup(cgroup) => Some(cgroup),
        }
    }

    /// The cgroup, if it is one.
    pub(crate) fn cgroup(&self) -> Option<&Cgroup> {
        match self {
            Contained::Cookie(_) => None,
            Contained::Cgroup(cgroup) => Some(cgroup),
        }
    }
}

/// Signals everybody: the group, then those outside who are known.
pub(crate) fn signal(
    row: &mut Row,
    signal: Signal,
    capabilities: &Capabilities,
    proc: Option<&Proc>,
) -> Signalled {
    if let Some(Contained::Cookie(cookie)) = row.contained.as_deref_mut() {
        cookie.told.clear();
    }
    let group = group::signal(row, signal, capabilities, proc);
    let outside = match row.contained.as_deref() {
        None => return group,
        Some(Contained::Cookie(_)) => signal_known(row, signal, capabilities, proc, true),
        Some(Contained::Cgroup(cgroup)) => cgroup.signal_outside(row.pid, signal),
    };
    group.and(outside)
}

/// Signals those outside who are known by now, and have not got the last signal. SIGCONT goes with
/// it.
pub(crate) fn signal_outside(
    row: &mut Row,
    signal: Signal,
    capabilities: &Capabilities,
    proc: Option<&Proc>,
) -> Signalled {
    match row.contained.as_deref() {
        Some(Contained::Cookie(_)) => signal_known(row, signal, capabilities, proc, false),
        Some(Contained::Cgroup(_)) | None => Signalled::Empty,
    }
}

/// Members that a look has found and that have left the group: one by one, through descriptors that
/// were opened before it was asked who they are.
fn signal_known(
    row: &mut Row,
    signal: Signal,
    capabilities: &Capabilities,
    proc: Option<&Proc>,
    is_new: bool,
) -> Signalled {
    let (Some(proc), true) = (proc, capabilities.pidfd_open && capabilities.pidfd_signal) else {
        return Signalled::Empty;
    };
    let (pid, known) = (row.pid, std::mem::take(&mut row.known));
    let mut answer = Signalled::Empty;
    if let Some(Contained::Cookie(cookie)) = row.contained.as_deref_mut() {
        for one in &known {
            let is_repeated = !is_new && signal != Signal::CONT && cookie.told.contains(one);
            if is_repeated || one.0 == pid || pidfd::group_of(one.0) == Some(pid) {
                continue;
            }
            let Ok((fd, _)) = open_verified(proc, one.0, Some(one.1)) else {
                continue;
            };
            match pidfd::send(fd.as_fd(), Some(signal), To::Process).map_err(|e| e.raw()) {
                Ok(()) => answer = Signalled::Sent,
                Err(libc::EPERM) if answer != Signalled::Sent => answer = Signalled::Denied,
                Err(_) => continue,
            }
            if signal != Signal::CONT {
                cookie.told.push(*one);
            }
        }
    }
    row.known = known;
    answer
}

/// Is anybody left, in the group or outside?
pub(crate) fn probe(row: &Row, capabilities: &Capabilities) -> Probe {
    let group = group::probe(row, capabilities);
    match (row.contained.as_deref(), group) {
        (None, _) | (_, Probe::Alive) => group,
        // Only a look tells.
        (Some(Contained::Cookie(_)), Probe::Empty | Probe::Cannot) => Probe::Cannot,
        (Some(Contained::Cgroup(cgroup)), Probe::Empty | Probe::Cannot) => {
            match cgroup.is_populated() {
                Some(true) => Probe::Alive,
                Some(false) => group,
                None => Probe::Cannot,
            }
        }
    }
}
