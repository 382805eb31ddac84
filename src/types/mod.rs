//! The shared vocabulary: plain values that every other room speaks of. Nothing here has behaviour
//! beyond reading and writing itself, and nothing here asks the clock, the environment or the
//! kernel.

mod capabilities;
mod errno;
mod error;
mod exit;
pub mod limits;
mod policy;
mod process;
mod signal;
mod stream;
mod time;
mod token;

pub use capabilities::{
    Backend, BackendChoice, Capabilities, ExitSource, ExitSourceChoice, GroupSignal, MemberWatch,
};
pub use errno::Errno;
pub use error::{
    BuildError, DetachError, FeedError, FeedRefusal, RunError, SpawnError, SpawnStep, TooLarge,
    TurnError,
};
pub use exit::{Exit, ExitInfo, Outcome, ResourceUsage, StatusSource};
pub use policy::{BackgroundPolicy, Bound, DrainPolicy, LastWordsPolicy, Policy, StopPolicy, Wait};
pub use process::{CollectMode, Holder, Member, Probe, Release, Survivor};
pub use signal::{Signal, Signalled};
pub use stream::Stream;
pub use time::Ns;
pub use token::{Slot, Token, TokenKind};
