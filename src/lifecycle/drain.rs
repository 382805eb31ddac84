//! The drain: what is known of the exit and of the streams, and what the cells of the table in `generation.rs` do.
//!
//! What is wanted of it (a stop, a policy) is kept elsewhere; here is what *is*: exit seen, streams open, bytes read.

use super::generation::{Phase, Why};
use super::policy::{Bound, DrainPolicy};
use super::report::{DrainReport, EndedBy, StopReason, StreamEnd, Verdict};
use super::step::{End, Fact, Step};
use super::stop::Stop;
use super::streams::Streams;
use super::{Effect, Happening, Timer};
use crate::kernel::ExitInfo;
use crate::time::Ns;
use crate::words::{Holder, Outcome, Stream};

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
    pub(super) exit: Option<ExitInfo>,
    pub(super) exit_at: Ns,
    pub(super) verdict_at: Ns,
    /// Which streams were open then: stdout, stderr.
    left_open: [bool; 2],
    pub(super) outcome: Option<Outcome>,
    pub(super) found: Option<Found>,
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
            step.impossible("bytes of a stream that is not open");
        }
    }

    pub(super) fn end(&mut self, step: &mut Step<'_>, stream: Stream, end: StreamEnd) {
        if self.streams.close(step.now, stream, end) {
            step.effect(Effect::Close(stream));
        } else {
            step.impossible("the end of a stream that is not open");
        }
    }

    pub(super) fn end_after_exit(&mut self, step: &mut Step<'_>, stream: Stream, end: StreamEnd) {
        self.end(step, stream, end);
        if !self.streams.any_open() {
            self.give_drained(step);
        }
    }

    pub(super) fn exit(&mut self, step: &mut Step<'_>, info: ExitInfo, stop: &Stop) {
        self.exit = Some(info);
        self.exit_at = step.now;
        self.streams.exited(step.now);
        self.outcome = Some(outcome(&info, stop));
        step.tell(Happening::Exited);
        step.fact(Fact::LeaderEnded);
    }

    pub(super) fn fail(&mut self, step: &mut Step<'_>, info: ExitInfo) {
        self.phase = Phase::Failed;
        self.exit = Some(info);
        self.exit_at = step.now;
        step.fact(Fact::SpawnFailed);
    }

    /// The first Swept after the exit, with a stream still open. A bound of zero is taken at once as its Due.
    pub(super) fn begin_bounds(&mut self, step: &mut Step<'_>) {
        self.phase = Phase::Exited;
        let limit = step.policy.drain.limit;
        if step.policy.drain.idle.is_zero() && self.is_idle(step) {
            self.read_once_more(step, if limit.is_zero() { Why::Both } else { Why::Idle });
        } else if limit.is_zero() {
            self.read_once_more(step, Why::Limit);
        } else {
            self.run_idle_clock(step);
            if let Bound::After(limit) = limit {
                step.arm(Timer::DrainLimit, self.exit_at.after(limit.into()));
            }
        }
    }

    /// Arms the idle bound, unless it is armed or its clock stands. Resuming the stream that holds it arms it.
    pub(super) fn run_idle_clock(&mut self, step: &mut Step<'_>) {
        if let (Bound::After(idle), Some(since)) = (step.policy.drain.idle, self.streams.idle_since())
            && self.phase == Phase::Exited
            && !step.armed.has(Timer::DrainIdle)
        {
            step.arm(Timer::DrainIdle, since.after(idle.into()));
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
        step.effect(Effect::Sweep);
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
        step.tell(Happening::Drained { warn: false });
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
    pub(super) fn give_up(&mut self, step: &mut Step<'_>, end: End, stop: &Stop) {
        match end {
            End::Gone => {}
            End::Stuck | End::Denied | End::NoWay => {
                if self.phase == Phase::Failing {
                    step.tell(Happening::SpawnFailed);
                } else {
                    let by_limit = stop.reason() == Some(StopReason::Timeout);
                    self.outcome = Some(if by_limit { Outcome::TimedOut } else { Outcome::Unknown });
                }
                self.phase = Phase::Unfinished;
                self.sweep(step);
            }
        }
    }

    /// Closes every stream that is open, or marks it as held.
    pub(super) fn close_streams(&mut self, step: &mut Step<'_>, end: StreamEnd) {
        for stream in Stream::ALL {
            if self.streams.close(step.now, stream, end) && end != StreamEnd::Held {
                step.effect(Effect::Close(stream));
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

    pub(super) fn exit_info(&self) -> Option<&ExitInfo> {
        self.exit.as_ref()
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

    /// Nothing more is written to stdin: the verdict is given, or there will be none.
    pub(super) fn is_over(&self) -> bool {
        self.ending().is_some() || matches!(self.phase, Phase::Failed | Phase::Unfinished)
    }

    /// Its part of closing: the verdict is told, or there is none and all was read; and no sweep is under way.
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
            holders: self.found.as_ref().map_or_else(Vec::new, |found| found.list.clone()),
            holders_complete: self.found.as_ref().is_none_or(|found| found.complete),
            open: Stream::ALL.into_iter().filter(|stream| self.left_open[stream.index()]).collect(),
        })
    }
}

/// A stop or the run limit counts only if it was asked for before the exit: then the ladder has begun by now.
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
        Some(StopReason::Request | StopReason::Shutdown | StopReason::Background) | None => EndedBy::Stop,
    }
}

#[cfg(test)]
mod tests {
    use super::super::policy::Policy;
    use super::super::rig::{Rig, blind, code, ms, policy, told};
    use super::super::{Input, State};
    use super::*;
    use crate::kernel::Probe;
    use crate::words::{Exit, Signal, StatusSource};
    use Stream::{Stderr, Stdout};

    fn bounds(idle: Bound, limit: Bound) -> Policy {
        Policy { drain: DrainPolicy { idle, limit }, ..blind() }
    }

    fn ended_by(rig: &Rig) -> Option<EndedBy> {
        rig.life.drain_report().and_then(|report| report.ended_by)
    }

    fn verdict_after_last_read(rig: &mut Rig) -> Option<EndedBy> {
        assert_eq!(rig.feed(Input::Swept).last(), Some(&Effect::FindHolders));
        ended_by(rig)
    }

    #[test]
    fn the_bounds_are_armed_after_the_sweep_and_what_comes_then_is_late_words() {
        let mut rig = Rig::running(blind());
        rig.now = 1000;
        assert_eq!(told(&rig.feed(Input::Exit(code(0)))), [Happening::Exited]);
        let effects = rig.feed(Input::Swept);
        assert_eq!(effects[0], Effect::Mark);
        assert_eq!((rig.at(Timer::DrainIdle), rig.at(Timer::DrainLimit)), (Some(1020), Some(1050)));
    }

    #[test]
    fn bytes_move_the_idle_bound_when_it_comes_due() {
        let mut rig = Rig::exited(blind());
        rig.now = 15;
        assert!(rig.feed(Input::Bytes(Stderr, 1)).is_empty());
        let _ = rig.due(Timer::DrainIdle);
        assert_eq!((rig.now, rig.at(Timer::DrainIdle), rig.life.state()), (20, Some(35), State::Exited));
        assert_eq!(rig.due(Timer::DrainIdle), [Effect::Sweep]);
        assert_eq!(verdict_after_last_read(&mut rig), Some(EndedBy::Idle));
        assert_eq!(rig.life.drain_report().map(|report| report.waited), Some(ms(35)));
    }

    #[test]
    fn bytes_found_by_the_last_read_re_arm_the_idle_bound() {
        let mut rig = Rig::exited(blind());
        rig.now = 30;
        let _ = rig.due(Timer::DrainIdle);
        let _ = rig.feed(Input::Bytes(Stdout, 5));
        let _ = rig.feed(Input::Swept);
        assert_eq!((rig.life.state(), rig.at(Timer::DrainIdle)), (State::Exited, Some(50)));
        let _ = rig.due(Timer::DrainLimit);
        let _ = rig.feed(Input::Bytes(Stdout, 5));
        assert_eq!(verdict_after_last_read(&mut rig), Some(EndedBy::Limit));
    }

    #[test]
    fn an_idle_bound_of_zero_is_taken_at_the_first_sweep_and_no_byte_re_arms_it() {
        for limit in [Bound::After(ms(50)), Bound::After(ms(0)), Bound::Never] {
            let mut rig = Rig::running(bounds(Bound::After(ms(0)), limit));
            let _ = rig.feed(Input::Exit(code(0)));
            assert_eq!(rig.feed(Input::Swept), [Effect::Mark, Effect::Sweep]);
            let _ = rig.feed(Input::Bytes(Stdout, 1));
            assert_eq!(verdict_after_last_read(&mut rig), Some(EndedBy::Idle));
        }
    }

    #[test]
    fn a_limit_of_zero_is_taken_at_the_first_sweep() {
        let mut rig = Rig::running(bounds(Bound::After(ms(20)), Bound::After(ms(0))));
        let _ = rig.feed(Input::Exit(code(0)));
        assert_eq!(rig.feed(Input::Swept), [Effect::Mark, Effect::Sweep]);
        assert_eq!(verdict_after_last_read(&mut rig), Some(EndedBy::Limit));
    }

    #[test]
    fn no_bounds_no_timers() {
        let mut rig = Rig::running(bounds(Bound::Never, Bound::Never));
        let _ = rig.feed(Input::Exit(code(0)));
        assert_eq!(rig.feed(Input::Swept), [Effect::Mark]);
        let _ = rig.end_streams();
        assert_eq!(rig.life.state(), State::Drained);
    }

    #[test]
    fn if_both_bounds_are_due_idle_is_named_unless_the_last_read_finds_bytes() {
        for (bytes, named) in [(false, EndedBy::Idle), (true, EndedBy::Limit)] {
            // The limit is served first.
            let mut rig = Rig::exited(blind());
            rig.now = 60;
            let _ = rig.due(Timer::DrainLimit);
            assert_eq!(rig.at(Timer::DrainIdle), None);
            if bytes {
                let _ = rig.feed(Input::Bytes(Stdout, 1));
            }
            assert_eq!(verdict_after_last_read(&mut rig), Some(named));
            // The idle bound is served first.
            let mut rig = Rig::exited(blind());
            rig.now = 60;
            let _ = rig.due(Timer::DrainIdle);
            let _ = rig.due(Timer::DrainLimit);
            if bytes {
                let _ = rig.feed(Input::Bytes(Stdout, 1));
            }
            assert_eq!(verdict_after_last_read(&mut rig), Some(named));
        }
    }

    #[test]
    fn a_limit_that_passes_before_the_idle_bound_is_named() {
        let mut rig = Rig::exited(blind());
        rig.now = 45;
        let _ = rig.feed(Input::Bytes(Stdout, 1));
        let _ = rig.due(Timer::DrainLimit);
        assert_eq!(verdict_after_last_read(&mut rig), Some(EndedBy::Limit));
    }

    #[test]
    fn a_paused_stream_stops_the_idle_clock_and_not_the_limit() {
        let mut rig = Rig::exited(blind());
        rig.now = 5;
        let _ = rig.feed(Input::Paused(Stdout));
        assert!(rig.due(Timer::DrainIdle).is_empty());
        assert_eq!((rig.life.state(), rig.at(Timer::DrainIdle)), (State::Exited, None));
        rig.now = 40;
        let _ = rig.feed(Input::Resumed(Stdout));
        assert_eq!(rig.at(Timer::DrainIdle), Some(55));
        let _ = rig.feed(Input::Paused(Stdout));
        let _ = rig.due(Timer::DrainLimit);
        assert_eq!(verdict_after_last_read(&mut rig), Some(EndedBy::Limit));
    }

    #[test]
    fn an_idle_bound_of_zero_waits_for_a_paused_stream() {
        let mut rig = Rig::running(bounds(Bound::After(ms(0)), Bound::Never));
        let _ = rig.feed(Input::Paused(Stdout));
        let _ = rig.feed(Input::Exit(code(0)));
        assert_eq!(rig.feed(Input::Swept), [Effect::Mark]);
        rig.now = 7;
        let _ = rig.feed(Input::Resumed(Stdout));
        assert_eq!(rig.due(Timer::DrainIdle), [Effect::Sweep]);
    }

    #[test]
    fn the_outcome_says_what_was_asked_before_the_exit() {
        let signalled = ExitInfo { exit: Exit::by_signal(Signal::TERM, false, StatusSource::Waitid), usage: None };
        let lost = ExitInfo { exit: Exit::unknown(), usage: None };
        let cases = [
            (None, code(0), Outcome::Succeeded),
            (None, code(1), Outcome::Failed),
            (None, signalled, Outcome::Signaled),
            (None, lost, Outcome::Unknown),
            (Some(StopReason::Request), code(0), Outcome::Stopped),
            (Some(StopReason::Shutdown), signalled, Outcome::Stopped),
            (Some(StopReason::Timeout), code(0), Outcome::TimedOut),
            (Some(StopReason::Request), lost, Outcome::Stopped),
        ];
        for (reason, info, outcome) in cases {
            let mut rig = Rig::running(policy());
            if let Some(reason) = reason {
                let _ = rig.feed(Input::Stop(policy().stop, reason));
            }
            let _ = rig.feed(Input::Exit(info));
            assert_eq!(rig.life.outcome(), Some(outcome), "{reason:?} {info:?}");
        }
    }

    #[test]
    fn a_stop_that_is_over_during_a_sweep_has_one_more_read_after_it() {
        let mut rig = Rig::running(policy());
        let _ = rig.stop();
        let _ = rig.feed(Input::Exit(code(0)));
        let _ = rig.feed(Input::Probed(Probe::Empty));
        assert_eq!(rig.feed(Input::Swept), [Effect::Mark, Effect::Sweep]);
        assert_eq!(verdict_after_last_read(&mut rig), Some(EndedBy::Stop));

        let mut rig = Rig::exited(policy());
        let _ = rig.feed(Input::Probed(Probe::Empty));
        let _ = rig.due(Timer::DrainIdle);
        let _ = rig.stop();
        assert_eq!(rig.feed(Input::Swept), [Effect::Sweep]);
        assert_eq!(verdict_after_last_read(&mut rig), Some(EndedBy::Stop));
    }
}
