//! Runs other programs and tells the truth about how each one ended.
//!
//! # Rooms
//!
//! ```text
//!  floor 5   cli/
//!  floor 2   reactor/
//!  floor 1   kernel/ (contract; linux/; sim/)   lifecycle/   capture/   wheel.rs
//!  floor 0   words.rs  time.rs  token.rs  limits.rs  error.rs
//! ```
//!
//! Rules are pure, the kernel is one contract, the reactor only joins them.
//!
//! The rooms are `pub` for the project's own tests, benches and fuzz targets, and hidden: no promise is made about anything
//! that is not named in this page.

#[doc(hidden)]
pub mod capture;
#[doc(hidden)]
pub mod error;
#[doc(hidden)]
pub mod kernel;
#[doc(hidden)]
pub mod lifecycle;
#[doc(hidden)]
pub mod limits;
#[doc(hidden)]
pub mod time;
#[doc(hidden)]
pub mod token;
#[doc(hidden)]
pub mod words;

pub use error::{BuildError, DetachError, Errno, FeedError, FeedRefusal, RunError, SpawnError, Step, TooLarge, TurnError};
pub use kernel::{Caps, MemberWatch, Usage};
pub use lifecycle::policy::{BackgroundPolicy, Bound, DrainPolicy, LastWordsPolicy, StopPolicy, Wait};
pub use lifecycle::report::{
    ContainedBy, DrainReport, EndedBy, Report, Settled, SettledAs, StopReason, StopReport, StreamEnd, StreamReport, Timing, Verdict,
};
pub use words::{
    Backend, BackendChoice, Exit, ExitSource, ExitSourceChoice, GroupSignal, Holder, Outcome, Signal, StatusSource, Stream, Survivor,
};
