//! The three standard streams of a child, on the host's side.

pub(crate) mod read;
pub(crate) mod setup;
pub(crate) mod write;
