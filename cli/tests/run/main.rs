//! Tests of `lastwords run` as an installed program.

mod background;
mod init;
mod output;
mod report;
mod secrets;
mod signals;
mod status;
mod support;
mod surroundings;
mod terminal;
