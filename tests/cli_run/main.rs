//! The command `lastwords run`, seen from outside.
#![cfg(feature = "cli")]

mod output;
mod report;
mod signals;
mod status;
mod support;
mod surroundings;
mod terminal;
