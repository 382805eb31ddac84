//! What the kernel can do, and what a host asks it to use.

use std::fmt;

/// Which poll set is used.
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
    /// io_uring.
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

/// How the end of a leader is learnt.
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
    /// SIGCHLD in the poll set, and the loop's own children asked by pid.
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

/// What is asked of the backend when a loop is built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BackendChoice {
    /// What is best here.
    #[default]
    Auto,
    /// epoll.
    Epoll,
    /// io_uring where the kernel has what it needs, else epoll with the reason told
    /// ([`Capabilities::backend_why`](crate::Capabilities)).
    ///
    /// A host that sleeps in epoll_wait(2) on the loop's descriptor may see EINTR when something
    /// happens. What was watched before a loop is sent to another thread is still noted by the
    /// thread that it was sent from: as soon as that one makes a system call, sleeps, is
    /// interrupted, or ends.
    Uring,
}

/// What is asked of the exit watch when a loop is built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExitSourceChoice {
    /// Pidfds where the kernel offers them, else SIGCHLD.
    #[default]
    Auto,
    /// Pidfds, else an error.
    Pidfd,
    /// SIGCHLD, though there are pidfds.
    Sigchld,
}

/// Whether the group is signalled through the leader's pidfd (Linux 6.9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GroupSignal {
    /// Where the kernel can.
    #[default]
    Auto,
    /// Never: the ways of older kernels are used (for tests).
    Off,
}

/// How the end of a member is learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberWatch {
    /// By a pidfd each.
    Pidfd,
    /// By looking again.
    Polling,
}

/// What this kernel, in this process, can do: found once, by trying, when the loop is built.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The poll set in use.
    pub backend: Backend,
    /// Why this one: `"epoll was asked for"`, `"io_uring refused: Operation not permitted
    /// (EPERM)"`.
    pub backend_why: String,
    /// How exits are learnt.
    pub exit: ExitSource,
    /// Why so.
    pub exit_why: String,
    /// clone3(2) (Linux 5.3).
    pub clone3: bool,
    /// CLONE_PIDFD (Linux 5.2).
    pub pidfd_from_clone: bool,
    /// pidfd_open(2) (Linux 5.3).
    pub pidfd_open: bool,
    /// pidfd_send_signal(2) (Linux 5.1).
    pub pidfd_signal: bool,
    /// PIDFD_SIGNAL_PROCESS_GROUP (Linux 6.9).
    pub group_signal: bool,
    /// PIDFD_GET_INFO with PIDFD_INFO_EXIT (Linux 6.15).
    pub exit_info: bool,
    /// close_range(2) (Linux 5.9).
    pub close_range: bool,
    /// pwritev2(2) with RWF_NOSIGNAL (Linux 6.18).
    pub nosignal_write: bool,
    /// How the end of a member is learnt.
    pub members: MemberWatch,
    /// How many reads are worth doing before the poll set is asked again: 1 where each read is a
    /// system call, more where one system call does several.
    pub reads_per_batch: usize,
}

impl Capabilities {
    /// A description with nothing but the backend and the exit source: the rest is refused.
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
