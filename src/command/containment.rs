//! What can see the processes of a command.

use crate::types::{Errno, SpawnError, SpawnStep};
use std::path::{Path, PathBuf};

/// How the processes of a command are found, those that have left its process group (`setsid`, a
/// daemon's double fork) included. Reports speak of what was found: `background.complete` is about
/// the processes that this containment can see.
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
    /// An environment variable whose *name* carries the id of the run
    /// (`LASTWORDS_COOKIE_<hex id>=1`), so that nested runs do not overwrite each other. Asking who
    /// is left takes a scan of all processes in /proc instead of one system call.
    ///
    /// Found are processes with the variable in the environment that they had at exec, and the
    /// children of members, whatever their environment. **Not found** are processes outside the
    /// group whose parent has ended before it was seen, and whose environment cannot be read
    /// (another user's process, or one that has made itself undumpable) or does not have the
    /// variable (`env -i`, programs that write their title over it).
    /// [`Builder::adopt_orphans`](crate::Builder::adopt_orphans) says when those are found.
    ///
    /// The spawn fails if there is no /proc, if it belongs to another PID namespace, or if it hides
    /// the command itself. With `hidepid` only this user's processes are found.
    Cookie,
    /// A cgroup of its own (cgroup v2). `cgroup.events` reports when it is empty, and `cgroup.kill`
    /// ends everybody in it. The command is born into it (clone3(2) with CLONE_INTO_CGROUP, Linux
    /// 5.7); where that is missing it enters before exec. If the cgroup cannot be had, the spawn
    /// fails and says what is missing.
    ///
    /// **A process that may write another cgroup's `cgroup.procs` can leave it** (root without a
    /// cgroup namespace of its own, or a user to whom a common ancestor was delegated), and is not
    /// found then.
    ///
    /// The cgroup is removed at the close. One with work that was left running stays until it is
    /// empty, and is removed then if the loop still lives; beyond 64 of them it is the host's to
    /// remove.
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

/// The error for a cookie that could not be looked for, with the errno of reading /proc.
pub(crate) fn cookie_refused(errno: Errno) -> SpawnError {
    let error = SpawnError::new(SpawnStep::Cookie, errno).at("/proc");
    match errno.raw() {
        libc::EXDEV => {
            error.because("it belongs to another PID namespace; mount one of this namespace")
        }
        libc::ENOENT | libc::ESRCH | libc::EACCES | libc::EPERM => error.because(
            "it is not mounted, or its mount option hidepid hides the command from this user",
        ),
        _ => error,
    }
}

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
