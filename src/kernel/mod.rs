//! The kernel below the loop: one contract, and the two that keep it.

mod contract;
pub mod linux;
#[cfg(any(test, feature = "sim"))]
pub mod sim;

pub(crate) use contract::sealed;
pub use contract::*;
