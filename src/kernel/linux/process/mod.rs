//! Processes: their pidfds, groups, ends and orphans.

pub(crate) mod exit_status;
pub(crate) mod group;
mod orphans;
pub(crate) mod pidfd;
pub(crate) mod sigchld;
pub mod signal_state;
