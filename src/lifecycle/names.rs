//! The names that the states have in their diagrams.

use super::{generation, group, settle, stop};

impl generation::Phase {
    /// Its name in the diagram.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Spawning => "Spawning",
            Self::Failing => "Failing",
            Self::Running => "Running",
            Self::Sweeping { .. } => "Sweeping",
            Self::Exited => "Exited",
            Self::LastRead { .. } => "LastRead",
            Self::Drained => "Drained",
            Self::DrainTimedOut { .. } => "DrainTimedOut",
            Self::Failed => "Failed",
            Self::Unfinished => "Unfinished",
            Self::Gone => "Gone",
        }
    }
}

impl group::Phase {
    /// Its name in the diagram.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Lead => "Lead",
            Self::LeadScanning => "LeadScanning",
            Self::Ask { .. } => "Ask",
            Self::Scanning => "Scanning",
            Self::Watching { .. } => "Watching",
            Self::Empty => "Empty",
            Self::Blind => "Blind",
        }
    }
}

impl stop::Phase {
    /// Its name in the diagram.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Idle => "Idle",
            Self::Terminating { .. } => "Terminating",
            Self::Counting => "Counting",
            Self::Killing => "Killing",
            Self::Naming(_) => "Naming",
            Self::Over(_) => "Over",
        }
    }
}

impl settle::Phase {
    /// Its name in the diagram.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Before => "Before",
            Self::Off => "Off",
            Self::Asked => "Asked",
            Self::Grace => "Grace",
            Self::Listing => "Listing",
            Self::Waiting => "Waiting",
            Self::Ending { .. } => "Ending",
            Self::Over(_) => "Over",
        }
    }
}
