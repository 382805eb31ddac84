//! Runs other programs and tells the truth about how each one ended.
//!
//! * [`run`] runs one [`Command`] to its end: exit status, last words on stderr, what was kept of
//!   its output, who still holds its pipes, and the work it left running, in one [`Report`].
//! * A [`Reactor`] runs many side by side on one thread, and is driven by the host:
//!   [`Reactor::turn`] and [`Reactor::next_event`], with one descriptor and one deadline
//!   ([`Reactor::next_deadline`]) for a loop of the host's own.
//!
//! The exit status and the drain of the pipes are two facts, and neither waits for the other: see
//! [`DrainPolicy`] for the bounds, [`BackgroundPolicy`] for what becomes of work that outlives its
//! leader, [`StopPolicy`] for how a stop goes, and [`Projection`] for what is safe to show.
//!
//! Numbers such as `spec 1.4` in comments name sections of the project's specification, which is
//! kept apart from the sources.
//!
//! # How it is built
//!
//! ```text
//!  floor 5   cli/
//!  floor 2   reactor/
//!  floor 1   kernel/ (contract; linux/; sim/)   lifecycle/   capture/   wheel.rs
//!  floor 0   words.rs  time.rs  token.rs  limits.rs  error.rs
//! ```
//!
//! Rules are pure, the kernel is one contract, the reactor only joins them. The rooms are `pub` for
//! the project's own tests, benches and fuzz targets, and hidden: no promise is made about anything
//! that is not named in this page.

#[doc(hidden)]
pub mod capture;
#[doc(hidden)]
pub mod error;
#[cfg(any(test, feature = "sim"))]
#[doc(hidden)]
pub mod fuzz;
#[doc(hidden)]
pub mod kernel;
#[doc(hidden)]
pub mod lifecycle;
#[doc(hidden)]
pub mod limits;
#[doc(hidden)]
pub mod reactor;
#[doc(hidden)]
pub mod time;
#[doc(hidden)]
pub mod token;
#[doc(hidden)]
pub mod wheel;
#[doc(hidden)]
pub mod words;

#[cfg(any(test, feature = "sim"))]
pub mod sim;

/// What a program around the loop may have to know or change of its own signals.
pub mod host {
    pub use crate::kernel::linux::host::{block, is_ignored, with_default_action};
}

pub use capture::{
    Captured, Line, LineFunction, Lines, LiveTail, Projection, ProjectionBuilder, SecretError,
    Slices, Tail,
};
pub use error::{
    BuildError, DetachError, Errno, FeedError, FeedRefusal, RunError, SpawnError, Step, TooLarge,
    TurnError,
};
pub use kernel::plan::{CgroupOptions, Containment, Through};
pub use kernel::{Caps, Kernel, MemberWatch, Signalled, Usage};
pub use lifecycle::policy::{
    BackgroundPolicy, Bound, DrainPolicy, LastWordsPolicy, StopPolicy, Wait,
};
pub use lifecycle::report::{
    ContainedBy, DrainReport, EndedBy, Report, Settled, SettledAs, StdinEnd, StdinReport,
    StopReason, StopReport, StreamEnd, StreamReport, Timing, Verdict,
};
pub use reactor::{
    Builder, Capture, Command, Detached, Event, Finished, Generation, LastWords, Leftovers, Output,
    Reactor, Stats, Stdin, Stopping, Turn,
};
pub use words::{
    Backend, BackendChoice, Exit, ExitSource, ExitSourceChoice, GroupSignal, Holder, Outcome,
    Signal, StatusSource, Stream, Survivor,
};

/// Runs a command to its end, on a loop of its own.
///
/// ```
/// use lastwords::Command;
/// let finished = lastwords::run(&Command::shell("echo out; echo err >&2; exit 3"))?;
/// assert_eq!(finished.stdout.map(|kept| kept.to_vec()).as_deref(), Some(&b"out\n"[..]));
/// assert_eq!(finished.report.stderr_tail, ["err"]);
/// assert_eq!(finished.report.exit.and_then(|exit| exit.code), Some(3));
/// # Ok::<(), lastwords::RunError>(())
/// ```
///
/// # Errors
///
/// It could not be started, or no loop could be built.
pub fn run(command: &Command) -> Result<Finished, RunError> {
    Reactor::new()?.run(command)
}

/// The programs in the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
