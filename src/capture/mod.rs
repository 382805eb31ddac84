//! What is kept of a stream, and the text that is made of it. Pure: no descriptor, no clock.

pub mod block;

pub use block::{Block, Pool};
