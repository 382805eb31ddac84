//! What is to be run, as plain data: made by [`crate::Command`], carried out by a kernel.

use super::{Containment, Transport};
use crate::types::Signal;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

/// What becomes of the child's descriptor 0.
#[derive(Clone, Debug, Default)]
pub enum StdinPlan {
    /// The child reads /dev/null.
    #[default]
    Null,
    /// The host's own.
    Inherit,
    /// A pipe that the loop writes and then closes.
    Feed,
    /// A pipe whose non-blocking write end the host gets.
    Raw,
    /// A descriptor that the host passes.
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
        transport: Transport,
    },
    /// A pipe whose non-blocking read end the host gets.
    Raw,
    /// The host's own.
    Inherit,
    /// The child writes to /dev/null.
    Null,
    /// A descriptor that the host passes.
    Fd(Arc<OwnedFd>),
    /// The same as stdout (for stderr only): one pipe, the order kept.
    ToStdout,
}

impl OutputPlan {
    /// Captured, nothing else said.
    pub const CAPTURED: OutputPlan = OutputPlan::Capture {
        pipe: None,
        transport: Transport::Pipe,
    };
}

/// A user and group to become, before exec.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserPlan {
    /// The user id for setresuid(2).
    pub uid: Option<u32>,
    /// setresgid(2); supplementary groups are then dropped.
    pub gid: Option<u32>,
}

/// Whether the loop shares the host's controlling terminal with the child
/// ([`Command::terminal`](crate::Command::terminal)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TerminalControl {
    /// As [`TerminalControl::Managed`] if the child inherits a stream that is a terminal, or is
    /// given the foreground before exec. Else as [`TerminalControl::Unmanaged`].
    #[default]
    Automatic,
    /// The child's group becomes the foreground when its leader is stopped because it reads from
    /// the terminal, or sets it, in the background. The host's group becomes the foreground again
    /// when the leader ends, or is stopped by ^Z.
    ///
    /// What the terminal would have sent to the host's group, had the child been in it, is sent to
    /// it: TSTP when ^Z has stopped the child, TTIN or TTOU when the child uses the terminal while
    /// the host's group is in the background. By default they stop the host, and its shell
    /// continues both.
    ///
    /// The leader is asked every 100 ms whether it was stopped, because a pidfd does not report
    /// it.
    Managed,
    /// The loop never touches the terminal. A child that uses it in the background stays stopped
    /// until the host does something about it.
    Unmanaged,
}

/// One run of one command, as data. Values of the environment never appear in its `Debug`.
#[derive(Clone)]
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
    /// The file mode creation mask for umask(2).
    pub umask: Option<u32>,
    /// Where descriptor 0 comes from.
    pub stdin: StdinPlan,
    /// Where descriptor 1 goes.
    pub stdout: OutputPlan,
    /// Where descriptor 2 goes.
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
    /// Make the child's group the foreground of its controlling terminal before exec.
    pub foreground_terminal: bool,
    /// Share the terminal with the child while it runs.
    pub terminal: TerminalControl,
    /// setrlimit(2): resource (RLIMIT_*), soft and hard limit.
    pub limits: Vec<(u32, u64, u64)>,
    /// User and group.
    pub user: UserPlan,
    /// Signal to the child when the spawning thread ends (PR_SET_PDEATHSIG).
    pub parent_death: Option<Signal>,
    /// What can see its processes.
    pub contain: Containment,
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
            terminal: TerminalControl::default(),
            limits: Vec::new(),
            user: UserPlan::default(),
            parent_death: None,
            contain: Containment::Group,
        }
    }

    /// argv: what it is called, and the arguments.
    pub fn words(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(self.arg0.as_ref().unwrap_or(&self.program))
            .chain(&self.args)
            .map(|word| word.as_bytes())
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
