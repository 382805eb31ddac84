//! Processes: descriptors, identities, exit statuses, group signals and inherited orphans.

pub mod abort_guard;
pub(crate) mod exit_status;
pub(crate) mod group;
pub(crate) mod identity;
pub(crate) mod job_control;
pub(crate) mod leader;
pub(crate) mod orphans;
pub(crate) mod pidfd;
pub(crate) mod sigchld;
pub mod signal_state;
pub mod terminal;
