//! The drain: what is known of the exit and of the streams, and what the cells of the table in
//! `generation.rs` do.
//!
//! What is wanted of it (a stop, a policy) is kept elsewhere; here is what *is*: exit seen, streams
//! open, bytes read.

use super::generation::{Phase, Why};
use super::step::{Fact, Step, StopResult};
use super::stop::Stop;
use super::streams::Streams;
use super::{Effect, Notification, Timer};
use crate::report::{DrainReport, EndedBy, StopReason, StreamEnd, Verdict};
use crate::types::{Bound, DrainPolicy, Exit, ExitInfo, Holder, Ns, Outcome, Stream};

/// The answer to [`Effect::FindHolders`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Found {
    pub(super) list: Vec<Holder>,
    pub(super) complete: bool,
}

/// The drain of one generation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Drain {
    pub(super) phase: Phase,
    pub(super) streams: Streams,
    /// A sweep is under way: there is never more than one.
    pub(super) sweeping: bool,
    pub(super) exit: Option<Exit>,
    pub(super) exit_at: Ns,
    pub(super) verdict_at: Ns,
    /// Which streams were open then: stdout, stderr.
    left_open: [bool; 2],
    pub(super) outcome: Option<Outcome>,
    pub(super) found: Option<Box<Found>>,
}

impl Drain {
    /// A process that has just been made, with these captured streams.
    pub(super) fn new(captured: [bool; 2]) -> Drain {
        Drain {
            phase: Phase::Spawning,
            streams: Streams::new(captured),
            sweeping: false,
            exit: None,
            exit_at: Ns::ZERO,
            verdict_at: Ns::ZERO,
            left_open: [false; 2],
            outcome: None,
            found: None,
        }
    }

    // ---- what the cells do

    pub(super) fn count(&mut self, step: &mut Step<'_>, stream: Stream) {
        if !self.streams.bytes(step.now, stream) {
            step.contract_violation("bytes of a stream that is not open");
        }
    }

    pub(super) fn end(&mut self, step: &mut Step<'_>, stream: Stream, end: StreamEnd) {
        if self.streams.close(step.now, stream, end) {
            step.effect(Effect::CloseStream(stream));
        } else {
            step.contract_violation("the end of a stream that is not open");
        }
    }

    pub(super) fn end_after_exit(&mut self, step: &mut Step<'_>, stream: Stream, end: StreamEnd) {
        self.end(step, stream, end);
        if !self.streams.any_open() {
            self.give_drained(step);
        }
    }

    pub(super) fn exit(&mut self, step: &mut Step<'_>, info: ExitInfo, stop: &Stop) {
        self.exit = Some(info.exit);
        self.exit_at = step.now;
        self.streams.exited(step.now);
        self.outcome = Some(outcome(&info, stop));
        step.notify(Notification::Exited);
        step.fact(Fact::LeaderEnded);
    }

    pub(super) fn fail(&mut self, step: &mut Step<'_>, info: ExitInfo) {
        self.phase = Phase::Failed;
        self.exit = Some(info.exit);
        self.exit_at = step.now;
        step.fact(Fact::SpawnFailed);
    }

    /// The first Swept after the exit, with a stream still open. A bound of zero is taken at once
    /// as its Due.
    pub(super) fn begin_bounds(&mut self, step: &mut Step<'_>) {
        self.phase = Phase::Exited;
        let limit = step.policy.drain.limit;
        if step.policy.drain.idle.is_zero() && self.is_idle(step) {
            self.read_once_more(
                step,
                if limit.is_zero() {
                    Why::Both
                } else {
                    Why::Idle
                },
            );
        } else if limit.is_zero() {
            self.read_once_more(step, Why::Limit);
        } else {
            self.run_idle_clock(step);
            if let Bound::After(limit) = limit {
                step.arm(Timer::DrainLimit, self.exit_at.after(limit.into()));
            }
        }
    }

    /// Arms the idle bound, unless it is armed or its clock stands. Resuming the stream that holds
    /// it arms it.
    pub(super) fn run_idle_clock(&mut self, step: &mut Step<'_>) {
        if let (Bound::After(idle), Some(since)) =
            (step.policy.drain.idle, self.streams.idle_since())
            && self.phase == Phase::Exited
            && !step.armed.has(Timer::DrainIdle)
        {
            step.arm(Timer::DrainIdle, since.after(idle.into()));
        }
    }

    /// Lazy: bytes only move the clock, and a due timer with newer bytes arms itself again. While a
    /// stop is under way its end gives the verdict: who is asked to end may be silent until
    /// then (SPEC 1.5).
    pub(super) fn idle_due(&mut self, step: &mut Step<'_>, stop: &Stop) {
        match (stop.is_in_progress(), self.is_idle(step)) {
            (true, _) => {}
            (false, true) => self.read_once_more(step, Why::Idle),
            (false, false) => self.run_idle_clock(step),
        }
    }

    pub(super) fn is_idle(&self, step: &Step<'_>) -> bool {
        match (step.policy.drain.idle, self.streams.idle_since()) {
            (Bound::After(idle), Some(since)) => since.after(idle.into()) <= step.now,
            (Bound::Never, _) | (_, None) => false,
        }
    }

    pub(super) fn sweep(&mut self, step: &mut Step<'_>) {
        self.sweeping = true;
        step.effect(Effect::ReadAvailable);
    }

    pub(super) fn read_once_more(&mut self, step: &mut Step<'_>, why: Why) {
        step.cancel(Timer::DrainIdle);
        self.phase = Phase::LastRead { why, got: false };
        self.sweep(step);
    }

    pub(super) fn last_read_done(&mut self, step: &mut Step<'_>, stop: &Stop, why: Why, got: bool) {
        self.sweeping = false;
        // Bytes found by the last read re-arm an idle bound that is not zero.
        let busy = got && !step.policy.drain.idle.is_zero();
        match why {
            Why::Idle if busy => {
                self.phase = Phase::Exited;
                self.run_idle_clock(step);
            }
            Why::Both if busy => self.give_timed_out(step, EndedBy::Limit),
            Why::Idle | Why::Both => self.give_timed_out(step, EndedBy::Idle),
            Why::Limit => self.give_timed_out(step, EndedBy::Limit),
            Why::Stop => self.give_timed_out(step, ended_by(stop)),
            Why::IdleThenStop => self.read_once_more(step, Why::Stop),
        }
    }

    pub(super) fn give_drained(&mut self, step: &mut Step<'_>) {
        self.verdict(step, Phase::Drained);
        step.notify(Notification::Drained { warn: false });
    }

    pub(super) fn give_timed_out(&mut self, step: &mut Step<'_>, by: EndedBy) {
        self.verdict(step, Phase::DrainTimedOut { by });
        step.effect(Effect::FindHolders);
    }

    pub(super) fn verdict(&mut self, step: &mut Step<'_>, phase: Phase) {
        step.cancel(Timer::DrainIdle);
        step.cancel(Timer::DrainLimit);
        self.verdict_at = step.now;
        self.left_open = Stream::ALL.map(|stream| self.streams.is_open(stream));
        self.phase = phase;
    }

    /// The ladder is over. If the leader stays for all that, there will be no verdict.
    pub(super) fn give_up(&mut self, step: &mut Step<'_>, result: StopResult, stop: &Stop) {
        match result {
            StopResult::Gone => {}
            StopResult::Stuck | StopResult::Denied | StopResult::NoWay => {
                if self.phase == Phase::Failing {
                    step.notify(Notification::SpawnFailed);
                } else {
                    let by_limit = stop.reason() == Some(StopReason::Timeout);
                    self.outcome = Some(if by_limit {
                        Outcome::TimedOut
                    } else {
                        Outcome::Unknown
                    });
                }
                self.phase = Phase::Unfinished;
                self.sweep(step);
            }
        }
    }

    /// Closes every stream that is open, or marks it as held.
    pub(super) fn close_streams(&mut self, step: &mut Step<'_>, result: StreamEnd) {
        for stream in Stream::ALL {
            if self.streams.close(step.now, stream, result) && result != StreamEnd::Held {
                step.effect(Effect::CloseStream(stream));
            }
        }
    }

    /// The host lets it go, with its streams as they are.
    pub(super) fn let_go(&mut self) {
        self.phase = Phase::Gone;
    }

    // ---- what is asked of it

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    pub(super) fn streams(&self) -> &Streams {
        &self.streams
    }

    pub(super) fn leaders_exit(&self) -> Option<Exit> {
        self.exit
    }

    pub(super) fn exit_at(&self) -> Ns {
        self.exit_at
    }

    pub(super) fn outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    /// The verdict, or that there will be none.
    pub(super) fn ending(&self) -> Option<(Verdict, Option<EndedBy>)> {
        match self.phase {
            Phase::Drained => Some((Verdict::Drained, Some(EndedBy::Eof))),
            Phase::DrainTimedOut { by } => Some((Verdict::DrainTimedOut, Some(by))),
            // One that could not be started has no outcome, and nothing more is told of it.
            Phase::Unfinished if self.outcome.is_some() => Some((Verdict::Unfinished, None)),
            Phase::Unfinished
            | Phase::Spawning
            | Phase::Failing
            | Phase::Running
            | Phase::Sweeping { .. }
            | Phase::Exited
            | Phase::LastRead { .. }
            | Phase::Failed
            | Phase::Gone => None,
        }
    }

    /// The host has been told all there is to tell of the drain.
    pub(super) fn is_told(&self) -> bool {
        match self.ending() {
            Some((Verdict::Drained, _)) => true,
            // Not before what is there was read: it may end meanwhile after all.
            Some((Verdict::Unfinished, _)) => !self.sweeping,
            Some((Verdict::DrainTimedOut, _)) => self.found.is_some(),
            None => false,
        }
    }

    /// Nothing more is written to stdin: the verdict is config, or there will be none.
    pub(super) fn is_over(&self) -> bool {
        self.ending().is_some() || matches!(self.phase, Phase::Failed | Phase::Unfinished)
    }

    /// Its part of closing: the verdict is told, or there is none and all was read; and no sweep is
    /// under way.
    pub(super) fn is_done(&self) -> bool {
        self.is_over() && !self.sweeping && (self.is_told() || self.ending().is_none())
    }

    pub(super) fn report(&self, policy: DrainPolicy) -> Option<DrainReport> {
        let (verdict, ended_by) = self.ending()?;
        Some(DrainReport {
            verdict,
            ended_by,
            policy,
            waited: self.verdict_at.since(self.exit_at).to_duration(),
            holders: self
                .found
                .as_ref()
                .map_or_else(Vec::new, |found| found.list.clone()),
            // Without a verdict nobody was looked for.
            holders_complete: self
                .found
                .as_ref()
                .map_or(verdict == Verdict::Drained, |found| found.complete),
            open: Stream::ALL
                .into_iter()
                .filter(|stream| self.left_open[stream.index()])
                .collect(),
        })
    }
}

/// A stop or the run limit counts only if it was asked for before the exit: then the ladder has
/// begun by now.
fn outcome(info: &ExitInfo, stop: &Stop) -> Outcome {
    match stop.reason() {
        Some(StopReason::Request | StopReason::Shutdown) => Outcome::Stopped,
        Some(StopReason::Timeout) => Outcome::TimedOut,
        Some(StopReason::Background) | None => match (info.exit.code, info.exit.signal) {
            (Some(0), _) => Outcome::Succeeded,
            (Some(_), _) => Outcome::Failed,
            (None, Some(_)) => Outcome::Signaled,
            (None, None) => Outcome::Unknown,
        },
    }
}

fn ended_by(stop: &Stop) -> EndedBy {
    match stop.reason() {
        Some(StopReason::Timeout) => EndedBy::Deadline,
        Some(StopReason::Request | StopReason::Shutdown | StopReason::Background) | None => {
            EndedBy::Stop
        }
    }
}

#[cfg(test)]
mod tests;
