//! Safe text: turns the bytes that a child wrote into lines that may be shown. Pure.
//!
//! ```text
//!  sanitize        a line of bytes -> text without control characters
//!  redact          a line of text  -> the line without its secrets
//!  lines           bytes in any pieces -> lines of safe text
//!  tail            the newest lines of kept bytes, on request
//!  streaming_tail  the newest lines, as they arrive
//!  projection      the public entry to all of these
//! ```

pub mod lines;
pub mod projection;
mod redact;
mod sanitize;
#[cfg(any(test, feature = "sim"))]
pub(crate) mod split;
pub mod streaming_tail;
pub mod tail;
#[cfg(test)]
mod testing;

pub use lines::Lines;
pub use projection::{Projection, ProjectionBuilder, SecretError};
pub use streaming_tail::{Line, LineFunction, LiveTail};
pub use tail::Tail;

/// The texts with which the known shapes of secrets begin: for benches and tests that try all.
#[cfg(feature = "__internals")]
pub fn shape_beginnings() -> impl Iterator<Item = &'static str> {
    redact::shape_beginnings()
}
