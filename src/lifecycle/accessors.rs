//! The queries of [`Lifecycle`]: its state, what it allows, and what the report says.

use super::dispatch::{Completion, Lifecycle};
use super::{drain, stop};
use crate::report::{ContainedBy, DrainReport, Settled, SettledAs, StopReport, StreamEnd};
use crate::types::{CollectMode, DetachError, Exit, Member, Ns, Outcome, StopPolicy, Stream};

/// The state of a generation, as the documentation names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// The process exists. Whether it executes its program is not known yet.
    Spawning,
    /// The program runs.
    Running,
    /// The leader has ended, and its streams are being drained.
    Exited,
    /// Every captured stream has ended.
    Drained,
    /// A bound passed, or a stop was over, with a stream still open.
    DrainTimedOut,
    /// The spawn has failed, and its process has not ended yet.
    Failing,
    /// The spawn has failed.
    Failed,
    /// A stop could not end the leader.
    Unfinished,
    /// The host has taken the process over.
    Detached,
}

/// How far a stop has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StopStage {
    /// No stop was asked for.
    Idle,
    /// The first signal was sent, and the grace runs.
    Terminating,
    /// SIGKILL was sent.
    Killing,
    /// The stop is over: the group is empty, or cannot be ended.
    Over,
}

impl Lifecycle {
    /// The current state.
    pub fn state(&self) -> State {
        match self.drain.phase() {
            drain::Phase::Spawning => State::Spawning,
            drain::Phase::Failing => State::Failing,
            drain::Phase::Running => State::Running,
            drain::Phase::FirstRead { .. }
            | drain::Phase::Exited
            | drain::Phase::LastRead { .. } => State::Exited,
            drain::Phase::Drained => State::Drained,
            drain::Phase::DrainTimedOut { .. } => State::DrainTimedOut,
            drain::Phase::Failed => State::Failed,
            drain::Phase::Unfinished => State::Unfinished,
            drain::Phase::Detached => State::Detached,
        }
    }

    /// The stop policy of the command.
    pub fn stop_policy(&self) -> StopPolicy {
        self.config.policy.stop
    }

    /// How the leader is to be collected now.
    ///
    /// It is kept as a zombie where its process id is the only safe way to signal the group, and
    /// the group may have to be signalled: a stop is in progress, or detection is disabled and so
    /// no member is known. It is reaped if the generation closes with the exit.
    pub fn collect_mode(&self) -> CollectMode {
        let may_signal = self.stop.is_in_progress() || self.config.policy.background.disabled;
        let closes_now = match self.drain.phase() {
            drain::Phase::Running => {
                !self.drain.streams().any_open() && !self.stop.is_in_progress()
            }
            drain::Phase::Failing => true,
            drain::Phase::Spawning
            | drain::Phase::FirstRead { .. }
            | drain::Phase::Exited
            | drain::Phase::LastRead { .. }
            | drain::Phase::Drained
            | drain::Phase::DrainTimedOut { .. }
            | drain::Phase::Failed
            | drain::Phase::Unfinished
            | drain::Phase::Detached => false,
        };
        if may_signal && !self.config.group_signal && !closes_now {
            CollectMode::KeepZombie
        } else {
            CollectMode::Reap
        }
    }

    /// The generation is closed or detached. Nothing changes any more.
    pub fn is_closed(&self) -> bool {
        self.completion == Completion::Closed || self.drain.phase() == drain::Phase::Detached
    }

    /// Whether the host may take the process over now.
    ///
    /// # Errors
    ///
    /// `NotStarted` before its program runs, `Killing` once SIGKILL was sent and somebody may be
    /// left, `Gone` when it is closed.
    pub fn can_detach(&self) -> Result<(), DetachError> {
        if self.is_closed() {
            return Err(DetachError::Gone);
        }
        match self.state() {
            State::Spawning | State::Failing | State::Failed => Err(DetachError::NotStarted),
            State::Unfinished => Err(DetachError::Killing),
            State::Detached => Err(DetachError::Gone),
            State::Running | State::Exited | State::Drained | State::DrainTimedOut => {
                match self.stop_stage() {
                    StopStage::Killing => Err(DetachError::Killing),
                    StopStage::Idle | StopStage::Terminating | StopStage::Over => Ok(()),
                }
            }
        }
    }

    /// How far a stop has come.
    pub fn stop_stage(&self) -> StopStage {
        match self.stop.phase() {
            stop::Phase::Idle => StopStage::Idle,
            stop::Phase::ListingMembers { .. }
            | stop::Phase::Terminating { .. }
            | stop::Phase::ListingSurvivors => StopStage::Terminating,
            stop::Phase::Killing | stop::Phase::ListingStuck(_) => StopStage::Killing,
            stop::Phase::Over(_) => StopStage::Over,
        }
    }

    /// A verdict was config: bytes from now on are late.
    pub fn is_late(&self) -> bool {
        matches!(self.state(), State::Drained | State::DrainTimedOut)
    }

    /// The stream is captured and has not ended.
    pub fn is_open(&self, stream: Stream) -> bool {
        self.drain.streams().is_open(stream)
    }

    /// Whether background work was left running on purpose: it is not ended with the loop.
    pub fn left_work_running(&self) -> bool {
        self.settle.left_work_running()
    }

    /// The leader's exit was seen.
    pub fn exit_seen(&self) -> bool {
        self.drain.exit().is_some()
    }

    /// The members of the newest list, for `Effect::WatchMembers` and the `BackgroundWait` event.
    pub fn members(&self) -> &[Member] {
        self.group.members()
    }

    /// How the leader ended.
    pub fn exit(&self) -> Option<Exit> {
        self.drain.exit()
    }

    /// The outcome. `None` before the exit, and after a failed spawn.
    pub fn outcome(&self) -> Option<Outcome> {
        self.drain.outcome()
    }

    /// The drain's part of the report. `None` before the verdict, and after a failed spawn.
    /// Allocates for the holders.
    pub fn drain_report(&self) -> Option<DrainReport> {
        self.drain.report(self.config.policy.drain)
    }

    /// The stop's part of the report. `None` if no stop was begun. Allocates for the processes
    /// that are stuck.
    pub fn stop_report(&self) -> Option<StopReport> {
        self.stop.report(&self.group)
    }

    /// The report on background work. `None` before it is settled, and after a failed spawn.
    /// Allocates for the list.
    pub fn settled(&self, now: Ns, contained_by: ContainedBy) -> Option<Settled> {
        let state = self.settle.outcome().filter(|_| self.outcome().is_some())?;
        let processes = match state {
            SettledAs::None | SettledAs::Disabled => &[],
            SettledAs::Finished | SettledAs::Reported | SettledAs::Kept => self.settle.listed(),
            SettledAs::Terminated if !self.settle.listed().is_empty() => self.settle.listed(),
            SettledAs::Terminated if !self.stop.needed_kill().is_empty() => self.stop.needed_kill(),
            SettledAs::Terminated | SettledAs::Stuck => self.members(),
        };
        let processes = processes.iter().map(|member| member.who.clone()).collect();
        let waited = match self.exit() {
            Some(_) => self
                .settle
                .over_at()
                .min(now)
                .since(self.drain.exit_at())
                .to_duration(),
            None => std::time::Duration::ZERO,
        };
        Some(Settled {
            state,
            waited,
            contained_by,
            processes,
        })
    }

    /// How the stream ended. `None` while it is open, and if it is not captured.
    pub fn stream_end(&self, stream: Stream) -> Option<StreamEnd> {
        self.drain.streams().end(stream)
    }

    /// Bytes that came after the verdict.
    pub fn late_bytes(&self, stream: Stream) -> u64 {
        self.drain.streams().late(stream)
    }
}
