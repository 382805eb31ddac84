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
pub mod captured;

pub use block::{Block, Pool};
pub use captured::{Captured, Piece, Slices};
