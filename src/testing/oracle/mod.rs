//! The one check of what a host may be told, and in which order. The behaviour tests, the random
//! worlds, the tests of every order and the fuzz target `ordering` all use it.
//!
//! * [`History`] needs nothing but the events of one generation, so it serves real children too.
//! * [`WorldOracle`] compares the histories of a run on the simulated kernel with what has happened
//!   in its world.

mod closed;
mod history;
mod world;

pub use history::{Delivered, History, Naming, Observed};
pub use world::{Clarity, Conditions, Edge, Pace, Started, WorldOracle};
