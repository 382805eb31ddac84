//! What is asked of a life: where it is, what it needs, and what the report says.

use super::machines::{Completion, Lifecycle};
use super::{Timer, generation, group, settle, stop};
use crate::report::{ContainedBy, DrainReport, Settled, SettledAs, StopReport, StreamEnd};
use crate::types::{CollectMode, DetachError, Exit, Member, Ns, Outcome, StopPolicy, Stream};

/// Where a generation is, in the words of the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// The process exists; whether it executes its program is not known yet.
    Spawning,
    /// The program runs.
    Running,
    /// The leader has ended; its streams are being drained.
    Exited,
    /// Every captured stream has ended.
    Drained,
    /// A bound passed, or a stop ended the drain, with a stream still open.
    DrainTimedOut,
    /// It could not be started, and its process has not gone yet.
    Failing,
    /// It could not be started.
    Failed,
    /// The leader withstood SIGKILL and never ended.
    Unfinished,
    /// The host has let it go (detach).
    Gone,
}

/// How far a stop has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StopStage {
    /// Nobody has asked for one.
    Idle,
    /// The first signal is sent; the grace runs.
    Terminating,
    /// SIGKILL is sent.
    Killing,
    /// Nothing more is done: the group is empty, or cannot be ended.
    Over,
}

impl Lifecycle {
    /// Where it is.
    pub fn state(&self) -> State {
        match self.drain.phase() {
            generation::Phase::Spawning => State::Spawning,
            generation::Phase::Failing => State::Failing,
            generation::Phase::Running => State::Running,
            generation::Phase::Sweeping { .. }
            | generation::Phase::Exited
            | generation::Phase::LastRead { .. } => State::Exited,
            generation::Phase::Drained => State::Drained,
            generation::Phase::DrainTimedOut { .. } => State::DrainTimedOut,
            generation::Phase::Failed => State::Failed,
            generation::Phase::Unfinished => State::Unfinished,
            generation::Phase::Gone => State::Gone,
        }
    }

    /// How it is stopped when nothing else is said.
    pub fn stop_policy(&self) -> StopPolicy {
        self.config.policy.stop
    }

    /// What the leader is to be collected with, now. It is kept as a zombie only where its number
    /// is the one safe way to the group, and a way may be needed: a stop is in progress, or
    /// nobody looks (so nobody else is known). Not if the generation closes with the exit.
    pub fn collect_mode(&self) -> CollectMode {
        let may_signal = self.stop.is_in_progress() || self.config.policy.background.disabled;
        let closes_now = match self.drain.phase() {
            generation::Phase::Running => {
                !self.drain.streams().any_open() && !self.stop.is_in_progress()
            }
            generation::Phase::Failing => true,
            generation::Phase::Spawning
            | generation::Phase::Sweeping { .. }
            | generation::Phase::Exited
            | generation::Phase::LastRead { .. }
            | generation::Phase::Drained
            | generation::Phase::DrainTimedOut { .. }
            | generation::Phase::Failed
            | generation::Phase::Unfinished
            | generation::Phase::Gone => false,
        };
        if may_signal && !self.config.group_signal && !closes_now {
            CollectMode::KeepZombie
        } else {
            CollectMode::Reap
        }
    }

    /// Nothing changes any more: it is closed, or the host has let it go.
    pub fn is_closed(&self) -> bool {
        self.completion == Completion::Closed || self.drain.phase() == generation::Phase::Gone
    }

    /// Whether the host may let it go, now.
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
            State::Gone => Err(DetachError::Gone),
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
            stop::Phase::Terminating { .. } | stop::Phase::Counting => StopStage::Terminating,
            stop::Phase::Killing | stop::Phase::Naming(_) => StopStage::Killing,
            stop::Phase::Over(_) => StopStage::Over,
        }
    }

    /// A verdict was config: bytes from now on are late.
    pub fn is_late(&self) -> bool {
        matches!(self.state(), State::Drained | State::DrainTimedOut)
    }

    /// The stream is captured, and has not ended.
    pub fn is_open(&self, stream: Stream) -> bool {
        self.drain.streams().is_open(stream)
    }

    /// The leader's exit was seen.
    pub fn exit_seen(&self) -> bool {
        self.drain.leaders_exit().is_some()
    }

    /// Who was found in the group: for [`Effect::WatchMembers`] and the `BackgroundWait` event.
    pub fn members(&self) -> &[Member] {
        self.group.members()
    }

    /// The leader's end.
    pub fn exit(&self) -> Option<Exit> {
        self.drain.leaders_exit()
    }

    /// In one word; `None` before the exit, and when it could not be started.
    pub fn outcome(&self) -> Option<Outcome> {
        self.drain.outcome()
    }

    /// The drain; `None` before the verdict, and when it could not be started. Allocates for the
    /// holders.
    pub fn drain_report(&self) -> Option<DrainReport> {
        self.drain.report(self.config.policy.drain)
    }

    /// The stop; `None` if none was begun. Allocates for those who are stuck.
    pub fn stop_report(&self) -> Option<StopReport> {
        self.stop.report(&self.group)
    }

    /// How background work was settled; `None` before that, and when it could not be started.
    /// Allocates for the list.
    pub fn settled(&self, now: Ns, contained_by: ContainedBy) -> Option<Settled> {
        let state = self.settle.outcome().filter(|_| self.outcome().is_some())?;
        let processes = match state {
            SettledAs::None | SettledAs::Disabled => &[],
            SettledAs::Finished | SettledAs::Reported | SettledAs::Kept => self.settle.named(),
            SettledAs::Terminated if !self.settle.named().is_empty() => self.settle.named(),
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

    /// How the stream ended.
    pub fn stream_end(&self, stream: Stream) -> Option<StreamEnd> {
        self.drain.streams().end(stream)
    }

    /// Bytes that came after the verdict.
    pub fn late_bytes(&self, stream: Stream) -> u64 {
        self.drain.streams().late(stream)
    }

    /// The state that owns this timer is the current one. A timer that is armed without this is a
    /// fault.
    pub fn wants_timer(&self, timer: Timer) -> bool {
        !self.is_closed()
            && match timer {
                Timer::RunLimit => true,
                Timer::DrainIdle => self.drain.phase() == generation::Phase::Exited,
                Timer::DrainLimit => matches!(
                    self.drain.phase(),
                    generation::Phase::Exited | generation::Phase::LastRead { .. }
                ),
                Timer::StopGrace => matches!(
                    self.stop.phase(),
                    stop::Phase::Terminating { .. } | stop::Phase::Counting
                ),
                Timer::StuckAfter => self.stop.phase() == stop::Phase::Killing,
                Timer::BackgroundGrace => self.settle.phase() == settle::Phase::Grace,
                Timer::BackgroundWait => self.settle.phase() == settle::Phase::Waiting,
                Timer::GroupPoll => matches!(self.group.phase(), group::Phase::Watching { .. }),
            }
    }

    /// How often something came that cannot come by contract. It changed nothing.
    pub fn contract_violations(&self) -> u32 {
        self.contract_violations
    }

    /// The states of drain, group, stop and settle, by the names of their diagrams. For tests.
    pub fn phases(&self) -> [&'static str; 4] {
        [
            self.drain.phase().name(),
            self.group.phase().name(),
            self.stop.phase().name(),
            self.settle.phase().name(),
        ]
    }
}
