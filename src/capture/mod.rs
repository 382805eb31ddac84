//! Bytes captured from a child's stdout or stderr. Pure: no descriptor, no clock.
//!
//! ```text
//!  block     fixed-size buffers, and the pool that recycles them
//!  captured  the newest bytes of one stream, held in such buffers
//! ```

pub mod block;
pub mod captured;

pub use block::{Block, Pool};
#[cfg(any(test, feature = "__internals"))]
pub use captured::Piece;
pub use captured::{Captured, Slices};
