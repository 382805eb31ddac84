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
//! `SPEC 1.4` in a comment means section 1, item 4 of docs/SPEC.md in the repository, `CASES 31` a
//! row of docs/CASES.md.
//!
//! # How it is built
//!
//! ```text
//!  reactor/
//!  kernel/ (contract/; linux/; sim/)
//!  command/
//!  text/    lifecycle/
//!  report/  capture/  wheel.rs
//!  types/
//! ```
//!
//! Rules are pure, the kernel is one contract, the reactor only joins them. A room uses what stands
//! below it; docs/ARCHITECTURE.md in the repository tells the rest.

mod capture;
mod command;
mod kernel;
mod lifecycle;
mod reactor;
mod report;
#[cfg(any(test, feature = "__internals"))]
mod testing;
mod text;
mod types;
mod wheel;

/// The inside of the library for the project's own tests, benches and fuzz targets. No promise is
/// made about anything in it.
#[cfg(feature = "__internals")]
#[doc(hidden)]
pub mod __internals {
    pub mod capture {
        pub use crate::capture::*;
    }
    pub mod command {
        pub use crate::command::*;
    }
    pub mod kernel {
        pub use crate::kernel::*;
    }
    pub mod lifecycle {
        pub use crate::lifecycle::*;
    }
    pub mod reactor {
        pub use crate::reactor::*;
    }
    pub mod report {
        pub use crate::report::*;
    }
    pub mod testing {
        pub use crate::testing::*;
    }
    pub mod text {
        pub use crate::text::*;
    }
    pub mod types {
        pub use crate::types::*;
    }
    pub mod wheel {
        pub use crate::wheel::*;
    }
}

#[cfg(any(test, feature = "sim"))]
pub mod sim;

/// What a program around the loop may have to know or change of its own signals.
pub mod host {
    pub use crate::kernel::linux::signal_state::{block, is_ignored, with_default_action};
}

pub use capture::{Captured, Slices};
pub use command::{Capture, CgroupOptions, Command, Containment, Output, Stdin, Transport};
pub use kernel::Kernel;
pub use reactor::{
    Builder, Detached, Event, Finished, Generation, LastWords, Leftovers, Reactor, Stats, Stopping,
    Turn,
};
pub use report::{
    ContainedBy, DrainReport, EndedBy, Report, Settled, SettledAs, StdinEnd, StdinReport,
    StopReason, StopReport, StreamEnd, StreamReport, Timing, Verdict,
};
pub use text::{
    Line, LineFunction, Lines, LiveTail, Projection, ProjectionBuilder, SecretError, Tail,
};
pub use types::{
    Backend, BackendChoice, BackgroundPolicy, Bound, BuildError, Capabilities, DetachError,
    DrainPolicy, Errno, Exit, ExitSource, ExitSourceChoice, FeedError, FeedRefusal, GroupSignal,
    Holder, LastWordsPolicy, MemberWatch, Outcome, ResourceUsage, RunError, Signal, Signalled,
    SpawnError, StatusSource, Step, StopPolicy, Stream, Survivor, TooLarge, TurnError, Wait,
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
