//! What finds a generation's processes outside its process group: a cookie in their environment, or
//! a cgroup of their own.

pub(crate) mod cgroup;
pub(crate) mod signal;

use super::clock;
use super::process::identity::ProcessIdentity;
use super::spawn::Inside;
use crate::command::Containment;
use crate::types::SpawnError;
use cgroup::Cgroup;
use std::ffi::CString;
use std::hash::{BuildHasher, Hasher, RandomState};

/// The containment of one generation, beside its process group.
#[derive(Debug)]
pub(crate) enum ContainmentState {
    /// A variable in the environment.
    Cookie(Cookie),
    /// A cgroup of its own, which the loop made.
    Cgroup(Cgroup),
}

/// The cookie of one generation: an environment variable whose name is unique.
#[derive(Debug)]
pub(crate) struct Cookie {
    /// The variable as `NAME=1`.
    variable: CString,
    /// A time right before the leader was started, in clock ticks since boot. An older process
    /// does not descend from it.
    pub since: u64,
    /// Members outside the group that have got the last signal already.
    signalled: Vec<ProcessIdentity>,
}

/// Makes the names of one kernel object's cookies and cgroups.
#[derive(Debug)]
pub(crate) struct NameGenerator {
    base: u64,
    cookie_prefix: String,
}

impl NameGenerator {
    /// A generator whose names no other one makes: they contain 64 random bits, and the sequence
    /// number of the generation.
    pub(crate) fn new() -> NameGenerator {
        // RandomState takes its keys from the system's random numbers.
        let base = RandomState::new().build_hasher().finish();
        NameGenerator {
            base,
            cookie_prefix: format!("LASTWORDS_COOKIE_{base:016x}"),
        }
    }

    /// The prefix of all cookies' names. The sequence number of the generation follows as eight
    /// hexadecimal digits, then `=`.
    pub(crate) fn cookie_prefix(&self) -> &[u8] {
        self.cookie_prefix.as_bytes()
    }

    /// Sets up the containment of a new generation; `None` for the process group alone.
    ///
    /// # Errors
    ///
    /// The cgroup cannot be created ([`Cgroup::create`]).
    pub(crate) fn contain(
        &self,
        containment: &Containment,
        sequence: u32,
    ) -> Result<Option<Box<ContainmentState>>, SpawnError> {
        Ok(match containment {
            Containment::Group => None,
            Containment::Cookie => {
                let variable = format!("{}{sequence:08x}=1", self.cookie_prefix);
                Some(Box::new(ContainmentState::Cookie(Cookie {
                    // There is no NUL in it.
                    variable: CString::new(variable).unwrap_or_default(),
                    since: clock::ticks_since_boot(),
                    signalled: Vec::new(),
                })))
            }
            Containment::Cgroup(options) => {
                let name = format!("lastwords-{:016x}{sequence:08x}", self.base);
                let cgroup = Cgroup::create(options, &name)?;
                Some(Box::new(ContainmentState::Cgroup(cgroup)))
            }
        })
    }
}

impl ContainmentState {
    /// What the spawner needs to place the child.
    pub(crate) fn inside(&self) -> Inside<'_> {
        match self {
            ContainmentState::Cookie(cookie) => Inside {
                variable: Some(&cookie.variable),
                cgroup: None,
            },
            ContainmentState::Cgroup(cgroup) => Inside {
                variable: None,
                cgroup: Some(cgroup),
            },
        }
    }

    /// Takes the cgroup out, if there is one.
    pub(crate) fn into_cgroup(self) -> Option<Cgroup> {
        match self {
            ContainmentState::Cookie(_) => None,
            ContainmentState::Cgroup(cgroup) => Some(cgroup),
        }
    }

    /// The cgroup, if there is one.
    pub(crate) fn cgroup(&self) -> Option<&Cgroup> {
        match self {
            ContainmentState::Cookie(_) => None,
            ContainmentState::Cgroup(cgroup) => Some(cgroup),
        }
    }
}
