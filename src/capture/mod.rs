//! What is kept of a stream, and the text that is made of it. Pure: no descriptor, no clock.
//!
//! ```text
//!  block     blocks of bytes and the pool that recycles them
//!  captured  the newest bytes of a stream, in blocks
//!  sanitize  a line of bytes -> a line of text that is safe to show
//!  shapes, named, key, triggers, bytewise, literals   what secrets look like
//!  redact    a line of text -> the line without its secrets
//!  lines     bytes in any pieces -> lines of safe text
//!  tail      the newest lines, from the kept bytes when they are asked for
//!  live      the newest lines, as they arrive
//!  projection   the face of all that
//! ```

pub mod block;
mod bytewise;
pub mod captured;
mod key;
pub mod lines;
mod literals;
pub mod live;
mod named;
pub mod projection;
mod redact;
mod sanitize;
mod shapes;
#[cfg(any(test, feature = "sim"))]
pub(crate) mod split;
pub mod tail;
#[cfg(test)]
mod testing;
mod triggers;

pub use block::{Block, Pool};
pub use captured::{Captured, Piece, Slices};
pub use lines::Lines;
pub use live::{Line, LineFunction, LiveTail};
pub use projection::{Projection, ProjectionBuilder, SecretError};
pub use tail::Tail;
