//! Safe text: the projection of bytes that a child wrote into lines that may be shown. Pure.

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
