//! What the kernel can do in this process, and what a host asks it to use.

use std::fmt;

/// The poll set in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "lowercase")
)]
#[non_exhaustive]
pub enum Backend {
    /// epoll, through mio.
    Epoll,
    /// io_uring (Linux 5.19).
    Uring,
    /// The simulated kernel.
    Sim,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Backend::Epoll => "epoll",
            Backend::Uring => "uring",
            Backend::Sim => "sim",
        })
    }
}

/// How the exit of a leader is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "lowercase")
)]
#[non_exhaustive]
pub enum ExitSource {
    /// A pidfd in the poll set.
    Pidfd,
    /// SIGCHLD, through a pipe in the poll set. Then the loop's own children are asked by pid.
    Sigchld,
}

impl fmt::Display for ExitSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ExitSource::Pidfd => "pidfd",
            ExitSource::Sigchld => "sigchld",
        })
    }
}

/// Which poll set a host asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BackendChoice {
    /// epoll, as it is the cheaper for most hosts.
    #[default]
    Auto,
    /// epoll, by the host's own choice.
    Epoll,
    /// io_uring where the kernel has what it needs, else epoll.
    /// [`Capabilities::backend_why`](crate::Capabilities) tells the reason.
    ///
    /// A host that sleeps in epoll_wait(2) on the loop's descriptor may see EINTR when something
    /// happens. After a loop was sent to another thread, events of descriptors that were watched
    /// before are posted by the old thread, as soon as it makes a system call, sleeps, is
    /// interrupted, or ends.
    Uring,
}

/// How a host wants exits to be noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExitSourceChoice {
    /// Pidfds where the kernel offers them, else SIGCHLD.
    #[default]
    Auto,
    /// Pidfds; building the loop fails without them.
    Pidfd,
    /// SIGCHLD, even where there are pidfds.
    Sigchld,
}

/// Whether the group is signalled through the leader's pidfd (Linux 6.9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GroupSignal {
    /// Where the kernel can.
    #[default]
    Auto,
    /// Never. For tests of what older kernels do.
    Off,
}

/// How the end of a group member is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberWatch {
    /// By a pidfd for each member, in the poll set.
    Pidfd,
    /// By scanning /proc again, with backoff from 10 ms to 1 s.
    Polling,
}

/// What this kernel can do in this process. Found out once, by trying, when the loop is built. A
/// call counts as missing if the kernel lacks it (ENOSYS, EINVAL) or a sandbox refuses it (EPERM).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The poll set in use.
    pub backend: Backend,
    /// Why this one, for example `"epoll was asked for"` or `"io_uring refused: Operation not
    /// permitted (EPERM)"`.
    pub backend_why: String,
    /// How exits are noticed.
    pub exit: ExitSource,
    /// Why that way, for example `"pidfds are available"`.
    pub exit_why: String,
    /// clone3(2) (Linux 5.3): a start does not wait for exec.
    pub clone3: bool,
    /// CLONE_PIDFD (Linux 5.2): a child's pidfd exists as soon as the child.
    pub pidfd_from_clone: bool,
    /// pidfd_open(2) (Linux 5.3): members can be watched and signalled by pidfd.
    pub pidfd_open: bool,
    /// pidfd_send_signal(2) (Linux 5.1): a signal cannot reach another process that reuses the
    /// pid.
    pub pidfd_signal: bool,
    /// PIDFD_SIGNAL_PROCESS_GROUP (Linux 6.9): a group is signalled and probed through its
    /// leader's pidfd, even after the leader was reaped.
    pub group_signal: bool,
    /// PIDFD_GET_INFO with PIDFD_INFO_EXIT (Linux 6.15): the status of a child that somebody else
    /// has reaped.
    pub exit_info: bool,
    /// close_range(2) (Linux 5.9): a child closes the host's descriptors in one call.
    pub close_range: bool,
    /// pwritev2(2) with RWF_NOSIGNAL (Linux 6.18): a write to a closed stdin raises no SIGPIPE.
    /// Elsewhere SIGPIPE is blocked around the write.
    pub nosignal_write: bool,
    /// How the end of a group member is noticed.
    pub members: MemberWatch,
    /// How many reads are worth doing before the poll set is asked again: 1 where each read is a
    /// system call, more where one system call does several.
    pub reads_per_batch: usize,
}

impl Capabilities {
    /// Capabilities of a kernel that has only this backend and exit source.
    pub fn bare(backend: Backend, exit: ExitSource) -> Capabilities {
        Capabilities {
            backend,
            backend_why: String::new(),
            exit,
            exit_why: String::new(),
            clone3: false,
            pidfd_from_clone: false,
            pidfd_open: false,
            pidfd_signal: false,
            group_signal: false,
            exit_info: false,
            close_range: false,
            nosignal_write: false,
            members: MemberWatch::Polling,
            reads_per_batch: 1,
        }
    }
}
