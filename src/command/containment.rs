//! What can see the processes of a command.

use crate::types::{Errno, SpawnError, SpawnStep};
use std::path::{Path, PathBuf};

/// What can see the processes of a command, and so reach those that have left its process group
/// (`setsid`, a daemon's double fork).
///
/// ```
/// use lastwords::{CgroupOptions, Command, Containment};
/// let mut command = Command::shell("setsid sleep 1 &");
/// command.containment(Containment::Cgroup(CgroupOptions::default().parent("/sys/fs/cgroup/jobs")));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Containment {
    /// The process group alone: one system call asks whether it is empty. **A process that has left
    /// the group is not seen**, unless it holds a captured pipe.
    #[default]
    Group,
    /// A variable in the environment, whose *name* carries the id of the run
    /// (`LASTWORDS_COOKIE_<hex id>=1`), so that nested runs do not overwrite each other;
    /// searched for in /proc whenever it is asked who is left: a look at all processes instead of
    /// one system call. Not seen are processes outside the group whose environment may not be
    /// read (another user's, or one that has made itself undumpable) or was thrown away (`env
    /// -i`, programs that write their title over it) before they were first found;
    /// [`Builder::adopt_orphans`](crate::Builder::adopt_orphans) finds those as well.
    Cookie,
    /// A cgroup of its own (cgroup v2): nothing can leave it, its end is told by `cgroup.events`,
    /// and `cgroup.kill` ends all of it. It is removed at the close; that of work that was left
    /// running or let go stays until it is empty, and is removed then if the loop still lives
    /// (64 of them at most; otherwise it is the host's to remove). The command is born into it
    /// (clone3 with CLONE_INTO_CGROUP, Linux 5.7; else it enters before exec). If it cannot be
    /// had, the spawn fails and says what is missing.
    Cgroup(CgroupOptions),
}

/// Where the cgroup of [`Containment::Cgroup`] is made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct CgroupOptions {
    /// A directory of a cgroup2 file system in which the host may make others. Default: the cgroup
    /// that the host itself is in.
    pub parent: Option<PathBuf>,
}

impl CgroupOptions {
    /// Sets [`CgroupOptions::parent`].
    #[must_use]
    pub fn parent(mut self, directory: impl Into<PathBuf>) -> Self {
        self.parent = Some(directory.into());
        self
    }
}

/// What is said of a parent that is no place for cgroups.
pub(crate) const NO_CGROUP2: &str =
    "it is no directory of a cgroup2 file system, and cgroup v1 does not do";
const DELEGATE: &str = "have one delegated (Delegate=yes in a systemd unit; systemd-run --user --scope -p Delegate=yes COMMAND; or, \
    as root, make a directory there and chown it and its cgroup.procs), or name another";

/// A cgroup that could not be had: an error that says what is missing.
pub(crate) fn cgroup_refused(at: &Path, errno: Errno) -> SpawnError {
    let error = SpawnError::new(SpawnStep::Cgroup, errno).at(at);
    match errno.raw() {
        libc::EACCES | libc::EPERM => error.because(format!("this user may not make a cgroup there, or put a process into it: {DELEGATE}")),
        libc::EROFS => error.because("cgroup2 is mounted read-only here; a container needs it writable and a cgroup namespace of its own"),
        libc::ENOENT => error.because("there is no such cgroup"),
        libc::EBUSY => error.because("it has controllers enabled for its children, and so may hold no process of its own: name another"),
        libc::EOPNOTSUPP => error.because("it is a threaded or an invalid domain: name another"),
        libc::EAGAIN => error.because("cgroup.max.descendants or cgroup.max.depth of a parent is reached"),
        _ => error,
    }
}
