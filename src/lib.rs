//! Runs other programs and tells the truth about how each one ended: its exit status, its last
//! words on stderr, who still holds its pipes, and the work it left running. Linux only.
//!
//! * [`run`] runs one [`Command`] to its end on the calling thread and gives its [`Report`] and the
//!   bytes that were kept of its output.
//! * A [`Reactor`] runs many side by side on one thread, and the host drives it: [`Reactor::turn`]
//!   and [`Reactor::next_event`], with one descriptor (`AsFd`) and one deadline
//!   ([`Reactor::next_deadline`]) for a loop of the host's own. [`Reactor::wait_event`] serves a
//!   host that has no loop.
//!
//! The exit status and the drain of the pipes are two facts, and neither waits for the other:
//!
//! | question | type |
//! | --- | --- |
//! | How long are the pipes read after the exit? | [`DrainPolicy`] |
//! | What becomes of processes that outlive their leader? | [`BackgroundPolicy`] |
//! | How is a command stopped? | [`StopPolicy`] |
//! | What can see processes that leave the group? | [`Containment`] |
//! | How much output is kept, and is it delivered while it comes? | [`Capture`] |
//! | What is safe to show of a child's text? | [`Projection`] |
//!
//! Features: `serde` makes reports serializable, `sim` adds a simulated kernel (module `sim`) for
//! hosts that test their own use of the loop.
//!
//! Comments in the sources cite the repository's docs/SPEC.md as `SPEC 1.4` (section 1, item 4)
//! and docs/CASES.md as `CASES 31`. docs/ARCHITECTURE.md there says how the library is built.

#![cfg_attr(
    not(feature = "__internals"),
    expect(
        unreachable_pub,
        reason = "what the inside shares is `pub` in private modules, and tests reach it through `__internals`"
    )
)]

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

/// Signals and the controlling terminal of the host process, for a program that stands in for its
/// child as a shell does. The loop itself uses none of it.
pub mod host {
    pub use crate::kernel::linux::abort_guard::{forget_group, kill_group_on_abort};
    pub use crate::kernel::linux::signal_state::{
        ignore, is_ignored, set_blocked, stop_self, unblock_all,
    };
    pub use crate::kernel::linux::terminal::{ControllingTerminal, Foreground, TerminalModes};
}

pub use capture::{Captured, Slices};
pub use command::{
    Capture, CgroupOptions, Command, Containment, Output, Stdin, TerminalControl, Transport,
};
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
    SpawnError, SpawnStep, StatusSource, StopPolicy, Stream, Survivor, TooLarge, TurnError, Wait,
};

/// Runs a command to its end on the calling thread, on a loop made for this call.
///
/// The end is [`Event::Closed`]: the pipes have ended or their bounds have passed, and background
/// work has become what the command's [`BackgroundPolicy`] says. With a policy that waits, the
/// call waits too.
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
/// [`RunError`] if the command could not be started, if no loop could be built (descriptors or
/// memory are short), or if the loop failed while it ran. A command that fails is no error. One
/// that needs the host while it runs ([`Stdin::Feed`], [`Stdin::Raw`], [`Output::Raw`]) is refused
/// with EINVAL.
pub fn run(command: &Command) -> Result<Finished, RunError> {
    Reactor::new()?.run(command)
}

/// The programs in the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
