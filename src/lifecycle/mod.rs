//! The lifecycle of a generation: four small machines, and nothing else.
//!
//! ```text
//!          Input (one at a time)          Effects (carried out in order before the next input;
//!               |                                  their answers are inputs)
//!               v                                              ^
//!      Lifecycle::handle(now, input) --> drain --> group --> stop --> settle --> close?
//!                                          ^                            |
//!                                          '----- facts, until none ----'
//! ```
//!
//! | machine | answers |
//! | --- | --- |
//! | drain | has the leader ended, and has its output been read? |
//! | group | is anybody left in the process group, and who? |
//! | stop | how far has the group's termination come? |
//! | settle | what becomes of the work that outlived the leader? |
//!
//! Each machine has a folder: `phase.rs` is its state with every transition, `table.rs` is what
//! each message does in each state, and `mod.rs` is its data and the actions of the table.
//! `routing.rs` says which messages concern which machine, and `dispatch.rs` joins the four.
//!
//! Time is an argument. No clock, descriptor, environment or static is read here.

#![deny(clippy::wildcard_enum_match_arm)]

mod accessors;
mod context;
mod dispatch;
mod drain;
mod group;
#[cfg(any(test, feature = "__internals"))]
mod inspection;
mod member_list;
mod message;
mod routing;
mod settle;
mod stop;
mod vocabulary;

#[cfg(test)]
mod test_harness;

pub use accessors::{State, StopStage};
pub use dispatch::{Lifecycle, SharedConfig};
pub use vocabulary::{Effect, Effects, Input, Notification, Timer};
