//! The kernels, side by side: the contract on each of them, the same scripts on each of them, and a
//! soak. The test binary plays the children itself (`support/player.rs`).

mod contract;
mod parity;
mod player;
mod soak;
mod support;
