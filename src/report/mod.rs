//! What the host is told. The fields are those of the JSON report, schema 1; with the feature
//! `serde` a [`Report`] serializes to exactly that.

#[cfg(feature = "serde")]
mod json;

use crate::types::{
    Backend, Bound, Capabilities, DrainPolicy, Errno, Exit, ExitSource, Holder, Outcome,
    ResourceUsage, Signal, SpawnError, Stream, Survivor,
};
use std::time::{Duration, SystemTime};

/// How the drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum Verdict {
    /// End of file (or an error) on every captured stream.
    Drained,
    /// A bound passed first, or a stop ended it.
    DrainTimedOut,
    /// The leader never ended (stuck): there is no verdict.
    Unfinished,
}

/// What ended the drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum EndedBy {
    /// Every captured stream ended.
    Eof,
    /// The idle bound.
    Idle,
    /// The limit passed ([`DrainPolicy::limit`]).
    Limit,
    /// A stop that was over while a stream was still open.
    Stop,
    /// The same, with the run limit as the reason.
    Deadline,
}

impl EndedBy {
    /// The word in reports.
    pub const fn name(self) -> &'static str {
        match self {
            EndedBy::Eof => "eof",
            EndedBy::Idle => "idle",
            EndedBy::Limit => "limit",
            EndedBy::Stop => "stop",
            EndedBy::Deadline => "deadline",
        }
    }
}

/// The drain of one generation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DrainReport {
    /// Which of the verdicts.
    pub verdict: Verdict,
    /// What ended it; `None` when unfinished.
    pub ended_by: Option<EndedBy>,
    /// The bounds in force.
    pub policy: DrainPolicy,
    /// From the exit to the verdict.
    pub waited: Duration,
    /// Who still held a pipe at the verdict. Empty unless it timed out.
    pub holders: Vec<Holder>,
    /// Whether that list is complete (/proc may refuse, or time ran out; for a leader that never
    /// ended nobody was looked for).
    pub holders_complete: bool,
    /// The streams that were still open at the verdict.
    pub open: Vec<Stream>,
}

impl DrainReport {
    /// The drain of a generation that has none: nothing was waited for.
    pub(crate) const NOTHING: DrainReport = DrainReport {
        verdict: Verdict::Unfinished,
        ended_by: None,
        policy: DrainPolicy {
            idle: Bound::Never,
            limit: Bound::Never,
        },
        waited: Duration::ZERO,
        holders: Vec::new(),
        holders_complete: false,
        open: Vec::new(),
    };
}

/// Why a stop was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum StopReason {
    /// The host asked.
    Request,
    /// The run limit.
    Timeout,
    /// `shutdown` or `stop_all`.
    Shutdown,
    /// Background work that outlived its wait.
    Background,
}

/// A stop that was begun.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StopReport {
    /// Why: the first reason there was.
    pub reason: StopReason,
    /// The first signal.
    pub signal: Signal,
    /// SIGKILL was needed (or asked for).
    pub escalated: bool,
    /// Who survived it, or refused it.
    pub stuck: Vec<Survivor>,
    /// Whether those who stay had refused the signal (EPERM).
    pub denied: bool,
}

/// How a captured stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum StreamEnd {
    /// End of file.
    Eof,
    /// Closed by us: after the verdict, or because the host asked.
    Closed,
    /// Kept open and read for work that was left running.
    Held,
    /// A read error.
    Error,
}

/// One captured stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamReport {
    /// Bytes read in all, late ones included.
    pub bytes: u64,
    /// Bytes that are not kept any more.
    pub dropped: u64,
    /// Bytes that came after the verdict.
    pub late: u64,
    /// How it ended; `None` while it is open.
    pub end: Option<StreamEnd>,
    /// The read error.
    pub error: Option<Errno>,
    /// The capacity of its pipe in bytes, if one was asked for
    /// ([`Capture::pipe`](crate::Capture::pipe)): what was had.
    pub capacity: Option<u32>,
}

/// How a fed stdin ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum StdinEnd {
    /// Everything was written, and it was closed.
    Written,
    /// The generation was over before everything was written.
    Unwritten,
    /// Nobody was left to read it (EPIPE). Not an error.
    NoReader,
    /// A write error.
    Error,
}

/// The stdin that the loop has fed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StdinReport {
    /// Bytes that went into the pipe.
    pub bytes: u64,
    /// Bytes that did not.
    pub unwritten: u64,
    /// How it ended.
    pub end: StdinEnd,
    /// The write error.
    pub error: Option<Errno>,
}

/// What became of background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum SettledAs {
    /// There was none.
    None,
    /// It finished within the wait.
    Finished,
    /// It was listed and left.
    Reported,
    /// It was ended.
    Terminated,
    /// It was left running after the wait.
    Kept,
    /// It could not be ended.
    Stuck,
    /// Detection was switched off, so nobody looked.
    Disabled,
}

impl SettledAs {
    /// Whether all work is done, as far as the containment can see it: `Some(true)` for none and
    /// finished, `None` when nobody looked, else `Some(false)`.
    ///
    /// [`Settled::contained_by`] says what was looked at: the process group does not see who has
    /// left it, and neither a cookie nor a cgroup sees everybody
    /// ([`Containment`](crate::Containment)).
    pub const fn complete(self) -> Option<bool> {
        match self {
            SettledAs::None | SettledAs::Finished => Some(true),
            SettledAs::Disabled => None,
            SettledAs::Reported | SettledAs::Terminated | SettledAs::Kept | SettledAs::Stuck => {
                Some(false)
            }
        }
    }
}

/// How escapees of the group are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum ContainedBy {
    /// They are not: the process group alone is looked at.
    #[default]
    Group,
    /// By an environment variable.
    Cookie,
    /// By a cgroup of their own.
    Cgroup,
}

/// How background work was settled.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settled {
    /// What became of it.
    pub state: SettledAs,
    /// How long that took, from the exit.
    pub waited: Duration,
    /// What was able to see it.
    pub contained_by: ContainedBy,
    /// Who was listed.
    pub processes: Vec<Survivor>,
}

impl Settled {
    /// What is told where nobody looked.
    pub(crate) const NOTHING: Settled = Settled {
        state: SettledAs::Disabled,
        waited: Duration::ZERO,
        contained_by: ContainedBy::Group,
        processes: Vec::new(),
    };
}

/// When, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timing {
    /// The wall clock at the spawn.
    pub started_at: SystemTime,
    /// From the spawn to the exit; `None` if the leader never ended.
    pub ran: Option<Duration>,
    /// From the spawn to the report.
    pub total: Duration,
}

/// The whole truth about one generation.
///
/// # As JSON
///
/// With the feature `serde` it is `Serialize`, in the form that `lastwords run --report` writes:
/// `schema` 1. Every field is always there, and `null` where there is no value; fields are added,
/// never renamed. Times end with their unit, signals are names without `SIG`.
///
/// | field | says |
/// | --- | --- |
/// | `schema` | 1 |
/// | `id`, `session`, `name` | what the host calls it (the command: a UUID, `null`, `null`) |
/// | `generation`, `pid` | its number within the loop, and the leader's process id |
/// | `command` | program and arguments, redacted |
/// | `error` | `null`, or why it could not be started: `step`, `path`, `errno` (a name), `message`; then nothing below has a value |
/// | `state` | the verdict: `drained`, `drain_timed_out`, or `unfinished` (the leader never ended) |
/// | `outcome` | `succeeded`, `failed`, `signaled`, `stopped`, `timed_out`, `unknown` |
/// | `exit` | `code` or `signal`, `core_dumped`, and `source`: `waitid`, `pidfd_info`, `none` |
/// | `stop` | `null`, or `reason` (`request`, `timeout`, `shutdown`, `background`), first `signal`, `escalated` to SIGKILL, `denied` (EPERM), who is `stuck` |
/// | `drain` | `idle_ms` and `limit_ms` (`null`: none), `ended_by` (`eof`, `idle`, `limit`, `stop`, `deadline`), `waited_us`, `holders`, `holders_complete` |
/// | `streams.stdout`, `streams.stderr` | `null` if not captured, or `bytes` in all, of them `dropped` (not kept) and `late`, `end` (`eof`, `closed`, `held`, `error`), `error`, `capacity` of the pipe if one was asked for |
/// | `stdin` | `null` if the loop did not feed it, or `bytes`, `unwritten`, `end` (`written`, `unwritten`, `no_reader`, `error`), `error` |
/// | `stderr_tail`, `late_tail` | the last lines until the exit, and those that came after it |
/// | `redacted` | whether secrets were taken out |
/// | `background` | `state` (`none`, `finished`, `reported`, `terminated`, `kept`, `stuck`, `disabled`), `complete`, `waited_ms` from the exit, `contained_by` (`group`, `cookie`, `cgroup`), `processes` |
/// | `timing` | `started_at` (RFC 3339), `ran_us` to the exit, `total_us` to the report |
/// | `usage` | `null`, or `user_us`, `system_us`, `max_rss_kib` |
/// | `backend`, `exit_source` | `epoll` or `uring`; `pidfd` or `sigchld` |
///
/// A holder has `pid`, `comm` and `streams`; a process in `stuck` and `processes` has `pid`,
/// `comm`, `state` (as in ps(1)) and `age_ms`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// An id of the host's choosing (the command and the runner put a UUID here).
    pub id: Option<String>,
    /// Its number within the loop, from 1; 0 if it never got one.
    pub generation: u64,
    /// The host's session.
    pub session: Option<String>,
    /// The host's name for it.
    pub name: Option<String>,
    /// Program and arguments.
    pub command: Vec<String>,
    /// The leader's process id; `None` if the spawn failed before there was one.
    pub pid: Option<u32>,
    /// Why it could not be started.
    pub error: Option<SpawnError>,
    /// How it ended; `None` when it could not be started.
    pub outcome: Option<Outcome>,
    /// The leader's end; `None` if it never ended or never ran.
    pub exit: Option<Exit>,
    /// The stop, if one was begun.
    pub stop: Option<StopReport>,
    /// The drain; `None` when it could not be started.
    pub drain: Option<DrainReport>,
    /// stdout, if it was captured.
    pub stdout: Option<StreamReport>,
    /// stderr, if it was captured (with stdout, if it was merged).
    pub stderr: Option<StreamReport>,
    /// stdin, if the loop fed it.
    pub stdin: Option<StdinReport>,
    /// The last lines of stderr that were there when the exit was seen.
    pub stderr_tail: Vec<String>,
    /// The last lines of stderr that came later.
    pub late_tail: Vec<String>,
    /// Whether secrets were taken out of what is said here.
    pub redacted: bool,
    /// Background work; `None` when it could not be started.
    pub background: Option<Settled>,
    /// When; `None` when it could not be started.
    pub timing: Option<Timing>,
    /// What it used, where the status was ours to collect.
    pub usage: Option<ResourceUsage>,
    /// The poll set.
    pub backend: Backend,
    /// The exit watch.
    pub exit_source: ExitSource,
}

impl Report {
    /// The report of a command of which there never was a process:
    /// [`Reactor::start`](crate::Reactor) has refused it.
    ///
    /// `command` is told as it is given.
    pub fn of_failed_spawn(
        command: Vec<String>,
        error: SpawnError,
        capabilities: &Capabilities,
    ) -> Report {
        Report {
            id: None,
            generation: 0,
            session: None,
            name: None,
            command,
            pid: None,
            error: Some(error),
            outcome: None,
            exit: None,
            stop: None,
            drain: None,
            stdout: None,
            stderr: None,
            stdin: None,
            stderr_tail: Vec::new(),
            late_tail: Vec::new(),
            redacted: false,
            background: None,
            timing: None,
            usage: None,
            backend: capabilities.backend,
            exit_source: capabilities.exit,
        }
    }

    /// Whether the leader ended with exit code 0. Nothing else is looked at: neither the outcome (a
    /// command that was stopped or ran into its limit may still end with 0), nor the verdict on
    /// its pipes, nor the work that it left ([`Settled::state`]). False for a signal, an
    /// unknown status, a leader that never ended, and a failed spawn.
    pub fn success(&self) -> bool {
        self.exit.is_some_and(|e| e.success())
    }

    /// The JSON field `state`: `drained`, `drain_timed_out` or `unfinished`; `None` when it could
    /// not be started.
    pub fn state(&self) -> Option<Verdict> {
        self.drain.as_ref().map(|d| d.verdict)
    }
}
