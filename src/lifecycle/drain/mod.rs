//! The drain: from the spawn to the verdict on the captured streams.
//!
//! It knows the leader's exit, which streams are open, and when bytes came. What the host wants (a
//! policy, a stop) is kept elsewhere. The actions of its table are here.

mod phase;
mod streams;
mod table;

use super::context::Context;
use super::message::{Fact, StopResult};
use super::stop::Stop;
use super::vocabulary::{Effect, Notification, Timer};
use crate::report::{DrainReport, EndedBy, StopReason, StreamEnd, Verdict};
use crate::types::{Bound, DrainPolicy, Exit, ExitInfo, Holder, Ns, Outcome, Stream};
pub(super) use phase::Phase;
use phase::ReadReason;
use streams::Streams;

/// The answer to [`Effect::FindHolders`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct HoldersFound {
    list: Vec<Holder>,
    complete: bool,
}

/// The drain of one generation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Drain {
    phase: Phase,
    streams: Streams,
    /// [`Effect::ReadAvailable`] has not been answered. At most one is under way.
    read_pending: bool,
    exit: Option<Exit>,
    exit_at: Ns,
    verdict_at: Ns,
    /// Which streams were open at the verdict: stdout, stderr.
    open_at_verdict: [bool; 2],
    outcome: Option<Outcome>,
    holders: Option<Box<HoldersFound>>,
}

impl Drain {
    /// The drain of a process that has just been made. `captured`: stdout, stderr.
    pub(super) fn new(captured: [bool; 2]) -> Drain {
        Drain {
            phase: Phase::Spawning,
            streams: Streams::new(captured),
            read_pending: false,
            exit: None,
            exit_at: Ns::ZERO,
            verdict_at: Ns::ZERO,
            open_at_verdict: [false; 2],
            outcome: None,
            holders: None,
        }
    }

    // ---- actions of the table

    fn record_bytes(&mut self, cx: &mut Context<'_>, stream: Stream) {
        if !self.streams.record_bytes(cx.now, stream) {
            cx.contract_violation("bytes of a stream that is not open");
        }
    }

    fn end_stream(&mut self, cx: &mut Context<'_>, stream: Stream, end: StreamEnd) {
        if self.streams.close(cx.now, stream, end) {
            cx.effect(Effect::CloseStream(stream));
        } else {
            cx.contract_violation("the end of a stream that is not open");
        }
    }

    fn end_stream_after_exit(&mut self, cx: &mut Context<'_>, stream: Stream, end: StreamEnd) {
        self.end_stream(cx, stream, end);
        if !self.streams.any_open() {
            self.conclude_drained(cx);
        }
    }

    fn record_exit(&mut self, cx: &mut Context<'_>, info: ExitInfo, stop: &Stop) {
        self.exit = Some(info.exit);
        self.exit_at = cx.now;
        self.streams.start_idle_clock(cx.now);
        self.outcome = Some(outcome(&info, stop));
        cx.notify(Notification::Exited);
        cx.fact(Fact::LeaderEnded);
    }

    fn record_failed_spawn(&mut self, cx: &mut Context<'_>, info: ExitInfo) {
        self.phase = Phase::Failed;
        self.exit = Some(info.exit);
        self.exit_at = cx.now;
        cx.fact(Fact::SpawnFailed);
    }

    /// Starts both bounds after the first read. A bound of zero has passed at once.
    fn start_bounds(&mut self, cx: &mut Context<'_>) {
        self.phase = Phase::Exited;
        let limit = cx.policy.drain.limit;
        if cx.policy.drain.idle.is_zero() && self.idle_has_passed(cx) {
            let reason = if limit.is_zero() {
                ReadReason::IdleAndLimit
            } else {
                ReadReason::Idle
            };
            self.begin_last_read(cx, reason);
        } else if limit.is_zero() {
            self.begin_last_read(cx, ReadReason::Limit);
        } else {
            self.arm_idle_bound(cx);
            if let Bound::After(limit) = limit {
                cx.arm(Timer::DrainLimit, self.exit_at.after(limit.into()));
            }
        }
    }

    /// Arms the idle bound, unless it is armed or its clock stands for a paused stream. Resuming
    /// that stream arms it.
    fn arm_idle_bound(&mut self, cx: &mut Context<'_>) {
        if let (Bound::After(idle), Some(since)) = (cx.policy.drain.idle, self.streams.idle_since())
            && self.phase == Phase::Exited
            && !cx.armed.contains(Timer::DrainIdle)
        {
            cx.arm(Timer::DrainIdle, since.after(idle.into()));
        }
    }

    /// Bytes only move the idle clock, so that they never touch the timer wheel: a timer that is
    /// due with newer bytes is armed again. During a stop the idle bound does nothing, because
    /// processes that are asked to end may be silent until they do (SPEC 1.5).
    fn on_idle_due(&mut self, cx: &mut Context<'_>, stop: &Stop) {
        match (stop.is_in_progress(), self.idle_has_passed(cx)) {
            (true, _) => {}
            (false, true) => self.begin_last_read(cx, ReadReason::Idle),
            (false, false) => self.arm_idle_bound(cx),
        }
    }

    fn idle_has_passed(&self, cx: &Context<'_>) -> bool {
        match (cx.policy.drain.idle, self.streams.idle_since()) {
            (Bound::After(idle), Some(since)) => since.after(idle.into()) <= cx.now,
            (Bound::Never, _) | (_, None) => false,
        }
    }

    pub(super) fn read_available(&mut self, cx: &mut Context<'_>) {
        self.read_pending = true;
        cx.effect(Effect::ReadAvailable);
    }

    fn begin_last_read(&mut self, cx: &mut Context<'_>, reason: ReadReason) {
        cx.cancel(Timer::DrainIdle);
        self.phase = Phase::LastRead {
            reason,
            got_bytes: false,
        };
        self.read_available(cx);
    }

    fn finish_last_read(
        &mut self,
        cx: &mut Context<'_>,
        stop: &Stop,
        reason: ReadReason,
        got_bytes: bool,
    ) {
        self.read_pending = false;
        // Bytes found by the last read start an idle bound anew, unless it is zero (SPEC 1.3).
        let was_busy = got_bytes && !cx.policy.drain.idle.is_zero();
        match reason {
            ReadReason::Idle if was_busy => {
                self.phase = Phase::Exited;
                self.arm_idle_bound(cx);
            }
            ReadReason::IdleAndLimit if was_busy => self.conclude_timed_out(cx, EndedBy::Limit),
            ReadReason::Idle | ReadReason::IdleAndLimit => {
                self.conclude_timed_out(cx, EndedBy::Idle)
            }
            ReadReason::Limit => self.conclude_timed_out(cx, EndedBy::Limit),
            ReadReason::Stop => self.conclude_timed_out(cx, ended_by(stop)),
            ReadReason::IdleThenStop => self.begin_last_read(cx, ReadReason::Stop),
        }
    }

    fn conclude_drained(&mut self, cx: &mut Context<'_>) {
        self.conclude(cx, Phase::Drained);
        cx.notify(Notification::Drained { warn: false });
    }

    /// The notification waits for the holders.
    fn conclude_timed_out(&mut self, cx: &mut Context<'_>, by: EndedBy) {
        self.conclude(cx, Phase::DrainTimedOut { by });
        cx.effect(Effect::FindHolders);
    }

    fn conclude(&mut self, cx: &mut Context<'_>, verdict: Phase) {
        cx.cancel(Timer::DrainIdle);
        cx.cancel(Timer::DrainLimit);
        self.verdict_at = cx.now;
        self.open_at_verdict = Stream::ALL.map(|stream| self.streams.is_open(stream));
        self.phase = verdict;
    }

    fn record_holders(
        &mut self,
        cx: &mut Context<'_>,
        by: EndedBy,
        list: &[Holder],
        complete: bool,
    ) {
        if self.holders.is_some() {
            cx.contract_violation("holders were asked for once");
            return;
        }
        self.holders = Some(Box::new(HoldersFound {
            list: list.to_vec(),
            complete,
        }));
        cx.notify(Notification::Drained {
            warn: matches!(by, EndedBy::Idle | EndedBy::Limit),
        });
    }

    /// A stop is over while the leader has not ended. Unless the group is empty there will be no
    /// verdict.
    fn on_stop_ended_before_exit(&mut self, cx: &mut Context<'_>, result: StopResult, stop: &Stop) {
        match result {
            StopResult::Gone => {}
            StopResult::Stuck | StopResult::Denied | StopResult::NoWay => {
                if self.phase == Phase::Failing {
                    cx.notify(Notification::SpawnFailed);
                } else {
                    self.outcome = Some(if stop.reason() == Some(StopReason::Timeout) {
                        Outcome::TimedOut
                    } else {
                        Outcome::Unknown
                    });
                }
                self.phase = Phase::Unfinished;
                self.read_available(cx);
            }
        }
    }

    /// Closes every open stream. With [`StreamEnd::Held`] they are only marked, and stay open in
    /// the kernel object.
    pub(super) fn close_streams(&mut self, cx: &mut Context<'_>, end: StreamEnd) {
        for stream in Stream::ALL {
            if self.streams.close(cx.now, stream, end) && end != StreamEnd::Held {
                cx.effect(Effect::CloseStream(stream));
            }
        }
    }

    /// The host takes the process over, with its streams as they are.
    pub(super) fn detach(&mut self) {
        self.phase = Phase::Detached;
    }

    // ---- queries

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    pub(super) fn streams(&self) -> &Streams {
        &self.streams
    }

    /// The leader's exit, also that of a leader whose spawn has failed.
    pub(super) fn exit(&self) -> Option<Exit> {
        self.exit
    }

    pub(super) fn exit_at(&self) -> Ns {
        self.exit_at
    }

    pub(super) fn outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    /// The verdict, or that there will be none, and what ended the drain.
    fn verdict(&self) -> Option<(Verdict, Option<EndedBy>)> {
        match self.phase {
            Phase::Drained => Some((Verdict::Drained, Some(EndedBy::Eof))),
            Phase::DrainTimedOut { by } => Some((Verdict::DrainTimedOut, Some(by))),
            // A failed spawn has no outcome, and nothing more is told of it.
            Phase::Unfinished if self.outcome.is_some() => Some((Verdict::Unfinished, None)),
            Phase::Unfinished
            | Phase::Spawning
            | Phase::Failing
            | Phase::Running
            | Phase::FirstRead { .. }
            | Phase::Exited
            | Phase::LastRead { .. }
            | Phase::Failed
            | Phase::Detached => None,
        }
    }

    /// The host has been notified of the verdict, or all was read of a leader that stays.
    pub(super) fn is_reported(&self) -> bool {
        match self.verdict() {
            Some((Verdict::Drained, _)) => true,
            // The leader may end after all during this read.
            Some((Verdict::Unfinished, _)) => !self.read_pending,
            Some((Verdict::DrainTimedOut, _)) => self.holders.is_some(),
            None => false,
        }
    }

    /// The verdict is given, or there will be none.
    pub(super) fn is_concluded(&self) -> bool {
        self.verdict().is_some() || matches!(self.phase, Phase::Failed | Phase::Unfinished)
    }

    /// The drain allows the generation to close.
    pub(super) fn may_close(&self) -> bool {
        self.is_concluded()
            && !self.read_pending
            && (self.is_reported() || self.verdict().is_none())
    }

    pub(super) fn report(&self, policy: DrainPolicy) -> Option<DrainReport> {
        let (verdict, ended_by) = self.verdict()?;
        Some(DrainReport {
            verdict,
            ended_by,
            policy,
            waited: self.verdict_at.since(self.exit_at).to_duration(),
            holders: self
                .holders
                .as_ref()
                .map_or_else(Vec::new, |found| found.list.clone()),
            // Without a verdict nobody was looked for.
            holders_complete: self
                .holders
                .as_ref()
                .map_or(verdict == Verdict::Drained, |found| found.complete),
            open: Stream::ALL
                .into_iter()
                .filter(|stream| self.open_at_verdict[stream.index()])
                .collect(),
        })
    }
}

/// A stop or the run limit decides the outcome only if it began before the exit.
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
#[cfg(test)]
mod verdict_tests;
