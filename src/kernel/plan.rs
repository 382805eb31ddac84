//! What is to be run, as plain data: made by [`crate::Command`], carried out by a kernel.

use crate::error::{Errno, SpawnError, Step};
use crate::words::Signal;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// What becomes of the child's descriptor 0.
#[derive(Clone, Debug, Default)]
pub enum StdinPlan {
    /// /dev/null.
    #[default]
    Null,
    /// The host's own.
    Inherit,
    /// A pipe that the loop writes and then closes.
    Feed,
    /// A pipe whose non-blocking write end the host gets.
    Raw,
    /// This descriptor.
    Fd(Arc<OwnedFd>),
}

/// What becomes of the child's descriptor 1 or 2.
#[derive(Clone, Debug)]
pub enum OutputPlan {
    /// A pipe (or socket) that the loop reads; `pipe` is the capacity to ask for in bytes
    /// (F_SETPIPE_SZ; a refusal is no error).
    Capture {
        /// Capacity to ask for, of a pipe.
        pipe: Option<u32>,
        /// What it is.
        through: Through,
    },
    /// A pipe whose non-blocking read end the host gets.
    Raw,
    /// The host's own.
    Inherit,
    /// /dev/null.
    Null,
    /// This descriptor.
    Fd(Arc<OwnedFd>),
    /// The same as stdout (for stderr only): one pipe, the order kept.
    ToStdout,
}

impl OutputPlan {
    /// Captured, nothing else said.
    pub const CAPTURED: OutputPlan = OutputPlan::Capture {
        pipe: None,
        through: Through::Pipe,
    };
}

/// What a captured stream comes through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Through {
    /// A pipe, as programs expect it.
    #[default]
    Pipe,
    /// A pair of connected stream sockets (socketpair(2), unix(7)), the loop's shut for writing.
    /// With writes of 64 KiB it is faster than a pipe of 64 KiB, 1.4 to 2.5 times for one
    /// child, at two thirds of the CPU; **with writes of 4 KiB it is slower**, at half as much
    /// CPU again (`cargo bench --bench options`). The price is that the child's stream is a socket:
    ///
    /// * Opening it anew by name fails: `echo x >/dev/stderr`, or `/proc/self/fd/2`, gets ENXIO.
    ///   Shell scripts do that.
    /// * Every holder could also read it, where it finds end of file; `shutdown(fd, SHUT_WR)` in
    ///   one process ends it for all.
    /// * Programs that look at what they write to (fstat(2)) see a socket; splice(2) and tee(2)
    ///   between pipes do not apply, F_GETPIPE_SZ gets EBADF. As with a pipe it is no terminal. Who
    ///   writes when the loop has closed its end gets EPIPE and SIGPIPE; but who sleeps in a write
    ///   at that moment gets EPIPE without the signal.
    /// * It holds what the send buffer allows (/proc/sys/net/core/wmem_default, 208 KiB), headers
    ///   included: many small writes fill it sooner than they would a pipe.
    ///   [`Capture::pipe`](crate::Capture::pipe) means nothing here.
    /// * Holders are named as those of a pipe are; who has it only inside a message on its way to
    ///   another process (SCM_RIGHTS) is seen in neither.
    Socket,
}

/// A user and group to become, before exec.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserPlan {
    /// setresuid(2).
    pub uid: Option<u32>,
    /// setresgid(2); supplementary groups are then dropped.
    pub gid: Option<u32>,
}

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
    let error = SpawnError::new(Step::Cgroup, errno).at(at);
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

/// One run of one command, as data. Values of the environment never appear in its `Debug`.
pub struct Plan {
    /// The program: a path if it has a slash, else looked for in PATH.
    pub program: OsString,
    /// `argv[0]`, if it is not the program.
    pub arg0: Option<OsString>,
    /// The arguments after `argv[0]`.
    pub args: Vec<OsString>,
    /// Begin with no variables at all.
    pub env_clear: bool,
    /// Variables set (`Some`) or removed (`None`) over the host's.
    pub env: BTreeMap<OsString, Option<OsString>>,
    /// The working directory.
    pub dir: Option<PathBuf>,
    /// umask(2).
    pub umask: Option<u32>,
    /// Descriptor 0.
    pub stdin: StdinPlan,
    /// Descriptor 1.
    pub stdout: OutputPlan,
    /// Descriptor 2.
    pub stderr: OutputPlan,
    /// Descriptors passed on purpose, with their numbers in the child.
    pub pass: Vec<(Arc<OwnedFd>, RawFd)>,
    /// Host's descriptors from 3 on that are not close-on-exec are passed on as they are (the
    /// command, by default).
    pub inherit_fds: bool,
    /// Signals that are ignored in the child (nohup). All others have their default action.
    pub ignore: Vec<Signal>,
    /// Signals that are blocked in the child. The mask is empty otherwise.
    pub block: Vec<Signal>,
    /// Make the child's group the foreground of the terminal at descriptor 0, before exec.
    pub foreground_terminal: bool,
    /// setrlimit(2): resource (RLIMIT_*), soft and hard limit.
    pub limits: Vec<(u32, u64, u64)>,
    /// User and group.
    pub user: UserPlan,
    /// Signal to the child when the spawning thread ends (PR_SET_PDEATHSIG).
    pub parent_death: Option<Signal>,
    /// What can see its processes.
    pub contain: Containment,
    /// What a kernel has made of it: built at the first spawn, used again by later ones.
    pub prepared: OnceLock<Box<dyn std::any::Any + Send + Sync>>,
}

impl Plan {
    /// This program, nothing else said.
    pub fn new(program: OsString) -> Plan {
        Plan {
            program,
            arg0: None,
            args: Vec::new(),
            env_clear: false,
            env: BTreeMap::new(),
            dir: None,
            umask: None,
            stdin: StdinPlan::Null,
            stdout: OutputPlan::CAPTURED,
            stderr: OutputPlan::CAPTURED,
            pass: Vec::new(),
            inherit_fds: false,
            ignore: Vec::new(),
            block: Vec::new(),
            foreground_terminal: false,
            limits: Vec::new(),
            user: UserPlan::default(),
            parent_death: None,
            contain: Containment::Group,
            prepared: OnceLock::new(),
        }
    }

    /// argv: what it is called, and the arguments.
    pub fn words(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(self.arg0.as_ref().unwrap_or(&self.program))
            .chain(&self.args)
            .map(|word| word.as_bytes())
    }
}

/// A copy without what a kernel has prepared: it may be changed.
impl Clone for Plan {
    fn clone(&self) -> Plan {
        Plan {
            program: self.program.clone(),
            arg0: self.arg0.clone(),
            args: self.args.clone(),
            env_clear: self.env_clear,
            env: self.env.clone(),
            dir: self.dir.clone(),
            umask: self.umask,
            stdin: self.stdin.clone(),
            stdout: self.stdout.clone(),
            stderr: self.stderr.clone(),
            pass: self.pass.clone(),
            inherit_fds: self.inherit_fds,
            ignore: self.ignore.clone(),
            block: self.block.clone(),
            foreground_terminal: self.foreground_terminal,
            limits: self.limits.clone(),
            user: self.user,
            parent_death: self.parent_death,
            contain: self.contain.clone(),
            prepared: OnceLock::new(),
        }
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("program", &self.program)
            .field("args", &self.args.len())
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("dir", &self.dir)
            .finish_non_exhaustive()
    }
}
