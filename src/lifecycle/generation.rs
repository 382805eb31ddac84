//! The drain, from the spawn to the verdict: every state, and what every input does in it. What is
//! done is in `drain.rs`.

use super::drain::{Drain, Found};
use super::routing::DrainMessage;
use super::step::{Message, Step};
use super::stop::Stop;
use super::{Effect, Notification};
use crate::report::{EndedBy, StreamEnd};

/// Where a generation is in its drain.
///
/// ```text
///                      eof / read error on a stream (stays Running)
///                           .---.
///                           |   v
///     Spawning ---------> Running ---exit---> Sweeping ---first Swept---> Exited <--bytes were found--.
///        |                                       |                          |                         |
///        |                                       |                          '---bound passed---> LastRead
///        v                                       |  every captured stream ended                       |
///     Failing ---> Failed                        '---------------> Drained         still open: DrainTimedOut
/// ```
///
/// Every change there is (`tests/model.rs` walks each of them, and finds no other):
///
/// ```text
/// Spawning --Started--> Running
/// Spawning --StartFailed--> Failing
/// Spawning --ladder gave up--> Unfinished
/// Failing --Exit--> Failed
/// Failing --ladder gave up--> Unfinished
/// Running --Exit, a stream is open--> Sweeping
/// Running --Exit, no stream is open--> Drained
/// Running --ladder gave up--> Unfinished
/// Running --Detach--> Gone
/// Sweeping --last Ended--> Drained
/// Sweeping --Swept, bounds that are not zero--> Exited
/// Sweeping --Swept, a bound of zero or a stop that is over--> LastRead
/// Sweeping --Detach--> Gone
/// Exited --last Ended--> Drained
/// Exited --Due or a stop that is over--> LastRead
/// Exited --Detach--> Gone
/// LastRead --Swept, idle was meant and bytes were found--> Exited
/// LastRead --last Ended--> Drained
/// LastRead --Swept--> DrainTimedOut
/// LastRead --Detach--> Gone
/// Drained --Detach--> Gone
/// DrainTimedOut --Detach--> Gone
/// Unfinished --Exit after all, a stream is open--> Sweeping
/// Unfinished --Exit after all, no stream is open--> Drained
/// Unfinished --Exit after all, it could not be started--> Failed
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// The process exists; whether it executes its program is not known.
    Spawning,
    /// It does not; its end has not been seen yet.
    Failing,
    /// The program runs.
    Running,
    /// Exited: the sweep at the exit is under way. `cut`: a stop was over before it was done.
    Sweeping { cut: bool },
    /// Exited: the bounds run.
    Exited,
    /// Exited: a bound has passed, and what is there is read once more. `got`: it has brought
    /// bytes.
    LastRead { why: Why, got: bool },
    /// Verdict: every captured stream has ended.
    Drained,
    /// Verdict: a bound passed first.
    DrainTimedOut { by: EndedBy },
    /// It could not be started, and its process is gone.
    Failed,
    /// The leader never ended; what it had written is read before it is told.
    Unfinished,
    /// The host has let it go.
    Gone,
}

/// Why a last read is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Why {
    /// The idle bound: if the read brings bytes, it was not idle.
    Idle,
    /// The limit.
    Limit,
    /// Both have passed: idle is named if the read brings nothing.
    Both,
    /// A stop is over.
    Stop,
    /// Idle, and a stop was over while the read was under way: one more read.
    IdleThenStop,
}

impl Drain {
    /// Takes in one word. `stop` is looked at for what was asked, and why.
    pub(super) fn on_message(&mut self, step: &mut Step<'_>, message: Message<'_>, stop: &Stop) {
        let Some(message) = DrainMessage::of(message) else {
            return;
        };
        match self.phase {
            Phase::Spawning => self.spawning(step, message, stop),
            Phase::Failing => self.failing(step, message, stop),
            Phase::Running => self.running(step, message, stop),
            Phase::Sweeping { cut } => self.sweeping(step, message, stop, cut),
            Phase::Exited => self.exited(step, message, stop),
            Phase::LastRead { why, got } => self.last_read(step, message, stop, (why, got)),
            Phase::Drained => self.drained(step, message),
            Phase::DrainTimedOut { by } => self.drain_timed_out(step, message, by),
            Phase::Unfinished => self.unfinished(step, message, stop),
            Phase::Failed => self.failed(step, message),
            // Closed: nothing reaches it any more but facts of the same input.
            Phase::Gone => {}
        }
    }

    // ---- the table, a column each

    fn spawning(&mut self, step: &mut Step<'_>, message: DrainMessage<'_>, stop: &Stop) {
        match message {
            DrainMessage::Started => {
                self.phase = Phase::Running;
                step.notify(Notification::Started);
            }
            DrainMessage::StartFailed => {
                self.phase = Phase::Failing;
                self.close_streams(step, StreamEnd::Closed);
            }
            DrainMessage::Bytes(stream, _) => self.count(step, stream),
            DrainMessage::Ended(stream, end) => self.end(step, stream, end),
            DrainMessage::StopEnded(end) => self.give_up(step, end, stop),
            DrainMessage::Paused(stream) => self.streams.pause(step.now, stream),
            DrainMessage::Resumed(stream) => self.streams.resume(step.now, stream),
            DrainMessage::GroupEmpty => {}
            DrainMessage::Exit(_)
            | DrainMessage::Swept
            | DrainMessage::IdleDue
            | DrainMessage::LimitDue
            | DrainMessage::Holders(..) => {
                step.contract_violation("an answer or an exit before the outcome of the spawn");
            }
        }
    }

    fn failing(&mut self, step: &mut Step<'_>, message: DrainMessage<'_>, stop: &Stop) {
        match message {
            DrainMessage::Exit(info) => {
                step.notify(Notification::SpawnFailed);
                self.fail(step, info);
            }
            DrainMessage::StopEnded(end) => self.give_up(step, end, stop),
            DrainMessage::Ended(..)
            | DrainMessage::GroupEmpty
            | DrainMessage::Paused(_)
            | DrainMessage::Resumed(_) => {}
            DrainMessage::Started
            | DrainMessage::StartFailed
            | DrainMessage::Bytes(..)
            | DrainMessage::Swept
            | DrainMessage::IdleDue
            | DrainMessage::LimitDue
            | DrainMessage::Holders(..) => {
                step.contract_violation("lifecycle in a generation that could not be started")
            }
        }
    }

    fn running(&mut self, step: &mut Step<'_>, message: DrainMessage<'_>, stop: &Stop) {
        match message {
            DrainMessage::Bytes(stream, _) => self.count(step, stream),
            DrainMessage::Ended(stream, end) => self.end(step, stream, end),
            DrainMessage::Exit(info) => {
                self.exit(step, info, stop);
                if self.streams.any_open() {
                    self.phase = Phase::Sweeping { cut: false };
                    self.sweep(step);
                } else {
                    self.give_drained(step);
                }
            }
            DrainMessage::StopEnded(end) => self.give_up(step, end, stop),
            DrainMessage::Paused(stream) => self.streams.pause(step.now, stream),
            DrainMessage::Resumed(stream) => self.streams.resume(step.now, stream),
            DrainMessage::GroupEmpty => {}
            DrainMessage::Started
            | DrainMessage::StartFailed
            | DrainMessage::Swept
            | DrainMessage::IdleDue
            | DrainMessage::LimitDue
            | DrainMessage::Holders(..) => step.contract_violation("a drain before the exit"),
        }
    }

    fn sweeping(&mut self, step: &mut Step<'_>, message: DrainMessage<'_>, stop: &Stop, cut: bool) {
        match message {
            DrainMessage::Bytes(stream, _) => self.count(step, stream),
            DrainMessage::Ended(stream, end) => self.end_after_exit(step, stream, end),
            DrainMessage::Swept => {
                self.sweeping = false;
                step.effect(Effect::MarkLastWords);
                if cut {
                    self.read_once_more(step, Why::Stop)
                } else {
                    self.begin_bounds(step)
                }
            }
            DrainMessage::GroupEmpty | DrainMessage::StopEnded(_) => {
                // The sweep that is under way may have passed a stream by already: one more read
                // follows it.
                self.phase = Phase::Sweeping {
                    cut: cut || !stop.is_idle(),
                };
            }
            DrainMessage::Paused(stream) => self.streams.pause(step.now, stream),
            DrainMessage::Resumed(stream) => self.streams.resume(step.now, stream),
            DrainMessage::Started
            | DrainMessage::StartFailed
            | DrainMessage::Exit(_)
            | DrainMessage::IdleDue
            | DrainMessage::LimitDue
            | DrainMessage::Holders(..) => {
                step.contract_violation("a second exit, or a bound before it runs")
            }
        }
    }

    fn exited(&mut self, step: &mut Step<'_>, message: DrainMessage<'_>, stop: &Stop) {
        match message {
            DrainMessage::Bytes(stream, _) => self.count(step, stream),
            DrainMessage::Ended(stream, end) => {
                self.end_after_exit(step, stream, end);
                self.run_idle_clock(step);
            }
            DrainMessage::IdleDue => self.idle_due(step, stop),
            DrainMessage::LimitDue => {
                let why = if self.is_idle(step) {
                    Why::Both
                } else {
                    Why::Limit
                };
                self.read_once_more(step, why);
            }
            DrainMessage::GroupEmpty | DrainMessage::StopEnded(_) => {
                // Nobody of ours can write any more, or nothing can be done about those who can.
                if !stop.is_idle() {
                    self.read_once_more(step, Why::Stop);
                }
            }
            DrainMessage::Paused(stream) => self.streams.pause(step.now, stream),
            DrainMessage::Resumed(stream) => {
                self.streams.resume(step.now, stream);
                self.run_idle_clock(step);
            }
            DrainMessage::Started
            | DrainMessage::StartFailed
            | DrainMessage::Exit(_)
            | DrainMessage::Swept
            | DrainMessage::Holders(..) => {
                step.contract_violation("a second exit, or an answer nobody asked for");
            }
        }
    }

    fn last_read(
        &mut self,
        step: &mut Step<'_>,
        message: DrainMessage<'_>,
        stop: &Stop,
        (why, got): (Why, bool),
    ) {
        match message {
            DrainMessage::Bytes(stream, _) => {
                self.count(step, stream);
                self.phase = Phase::LastRead { why, got: true };
            }
            DrainMessage::Ended(stream, end) => self.end_after_exit(step, stream, end),
            DrainMessage::Swept => self.last_read_done(step, stop, why, got),
            DrainMessage::LimitDue => {
                let why = match why {
                    Why::Idle | Why::Both => Why::Both,
                    Why::Limit => Why::Limit,
                    // The stop was first.
                    Why::Stop => Why::Stop,
                    Why::IdleThenStop => Why::IdleThenStop,
                };
                self.phase = Phase::LastRead { why, got };
            }
            DrainMessage::GroupEmpty | DrainMessage::StopEnded(_) => {
                let why = match why {
                    Why::Idle | Why::IdleThenStop if !stop.is_idle() => Why::IdleThenStop,
                    Why::Idle | Why::IdleThenStop | Why::Limit | Why::Both | Why::Stop => why,
                };
                self.phase = Phase::LastRead { why, got };
            }
            DrainMessage::Paused(stream) => self.streams.pause(step.now, stream),
            DrainMessage::Resumed(stream) => self.streams.resume(step.now, stream),
            DrainMessage::Started
            | DrainMessage::StartFailed
            | DrainMessage::Exit(_)
            | DrainMessage::IdleDue
            | DrainMessage::Holders(..) => {
                step.contract_violation("a second exit, or an idle bound that is not running");
            }
        }
    }

    fn drained(&mut self, step: &mut Step<'_>, message: DrainMessage<'_>) {
        match message {
            DrainMessage::Swept => self.sweeping = false,
            DrainMessage::GroupEmpty
            | DrainMessage::StopEnded(_)
            | DrainMessage::Paused(_)
            | DrainMessage::Resumed(_) => {}
            DrainMessage::Started
            | DrainMessage::StartFailed
            | DrainMessage::Bytes(..)
            | DrainMessage::Ended(..)
            | DrainMessage::Exit(_)
            | DrainMessage::IdleDue
            | DrainMessage::LimitDue
            | DrainMessage::Holders(..) => step.contract_violation("every stream has ended"),
        }
    }

    fn drain_timed_out(&mut self, step: &mut Step<'_>, message: DrainMessage<'_>, by: EndedBy) {
        match message {
            DrainMessage::Bytes(stream, n) => {
                self.count(step, stream);
                self.streams.count_late(stream, n);
            }
            DrainMessage::Ended(stream, end) => self.end(step, stream, end),
            DrainMessage::Holders(list, complete) => {
                if self.found.is_some() {
                    step.contract_violation("holders were asked for once");
                } else {
                    self.found = Some(Box::new(Found {
                        list: list.to_vec(),
                        complete,
                    }));
                    step.notify(Notification::Drained {
                        warn: matches!(by, EndedBy::Idle | EndedBy::Limit),
                    });
                }
            }
            // The last read before its streams are closed.
            DrainMessage::Swept => self.sweeping = false,
            DrainMessage::GroupEmpty
            | DrainMessage::StopEnded(_)
            | DrainMessage::Paused(_)
            | DrainMessage::Resumed(_) => {}
            DrainMessage::Started
            | DrainMessage::StartFailed
            | DrainMessage::Exit(_)
            | DrainMessage::IdleDue
            | DrainMessage::LimitDue => {
                step.contract_violation("the verdict was given");
            }
        }
    }

    fn unfinished(&mut self, step: &mut Step<'_>, message: DrainMessage<'_>, stop: &Stop) {
        match message {
            DrainMessage::Swept => self.sweeping = false,
            DrainMessage::Bytes(stream, _) => self.count(step, stream),
            DrainMessage::Ended(stream, end) => self.end(step, stream, end),
            // It did end, while what it had written was being read. The stop is over.
            DrainMessage::Exit(info) if self.outcome.is_some() => {
                self.exit(step, info, stop);
                if self.streams.any_open() {
                    self.phase = Phase::Sweeping { cut: true }
                } else {
                    self.give_drained(step)
                }
            }
            DrainMessage::Exit(info) => self.fail(step, info),
            // How the spawn went may become known after all.
            DrainMessage::Started => step.notify(Notification::Started),
            DrainMessage::StartFailed => {
                self.outcome = None;
                step.notify(Notification::SpawnFailed);
            }
            DrainMessage::GroupEmpty
            | DrainMessage::StopEnded(_)
            | DrainMessage::Paused(_)
            | DrainMessage::Resumed(_) => {}
            DrainMessage::IdleDue | DrainMessage::LimitDue | DrainMessage::Holders(..) => {
                step.contract_violation("there was no exit")
            }
        }
    }

    fn failed(&mut self, step: &mut Step<'_>, message: DrainMessage<'_>) {
        match message {
            DrainMessage::Swept => self.sweeping = false,
            DrainMessage::Ended(stream, end) => self.end(step, stream, end),
            DrainMessage::Bytes(..)
            | DrainMessage::GroupEmpty
            | DrainMessage::StopEnded(_)
            | DrainMessage::Paused(_)
            | DrainMessage::Resumed(_) => {}
            DrainMessage::Started
            | DrainMessage::StartFailed
            | DrainMessage::Exit(_)
            | DrainMessage::IdleDue
            | DrainMessage::LimitDue
            | DrainMessage::Holders(..) => {
                step.contract_violation("it could not be started, and its process is gone");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::test_harness::{Rig, blind, code, member, policy, told};
    use crate::lifecycle::{Input, Lifecycle, State, Timer};
    use crate::report::StopReason;
    use crate::types::{CollectMode, Holder, Outcome, Policy, Probe, Release, Signalled, Stream};
    use Stream::{Stderr, Stdout};

    fn ended_by(rig: &Rig) -> Option<EndedBy> {
        rig.lifecycle
            .drain_report()
            .and_then(|report| report.ended_by)
    }

    fn verdict_after_last_read(rig: &mut Rig) -> Option<EndedBy> {
        assert_eq!(rig.feed(Input::ReadDone).last(), Some(&Effect::FindHolders));
        ended_by(rig)
    }

    #[test]
    fn end_of_file_at_the_exit_is_drained_in_the_sweep_without_a_timer() {
        let mut rig = Rig::running(policy());
        let effects = rig.feed(Input::Exit(code(3)));
        assert_eq!(
            effects,
            [
                Effect::Notify(Notification::Exited),
                Effect::ReadAvailable,
                Effect::ProbeGroup
            ]
        );
        let _ = rig.feed(Input::Bytes(Stdout, 10));
        let effects = rig.end_streams();
        assert_eq!(
            effects,
            [
                Effect::CloseStream(Stdout),
                Effect::CloseStream(Stderr),
                Effect::Notify(Notification::Drained { warn: false })
            ]
        );
        assert_eq!(
            (rig.lifecycle.state(), rig.lifecycle.outcome()),
            (State::Drained, Some(Outcome::Failed))
        );
        let _ = rig.feed(Input::ReadDone);
        assert_eq!(
            told(&rig.feed(Input::Probed(Probe::Empty))),
            [Notification::Settled, Notification::Closed]
        );
    }

    #[test]
    fn end_of_file_before_the_exit_stays_running_and_the_exit_goes_straight_to_drained() {
        let mut rig = Rig::running(policy());
        assert_eq!(
            rig.end_streams(),
            [Effect::CloseStream(Stdout), Effect::CloseStream(Stderr)]
        );
        assert_eq!(rig.lifecycle.state(), State::Running);
        let effects = rig.feed(Input::Exit(code(0)));
        assert_eq!(
            told(&effects),
            [Notification::Exited, Notification::Drained { warn: false }]
        );
        assert!(
            !effects.contains(&Effect::MarkLastWords) && !effects.contains(&Effect::ReadAvailable)
        );
    }

    #[test]
    fn with_nobody_looking_and_nothing_open_the_exit_is_the_end() {
        let mut rig = Rig::on(blind(), [false, false], true);
        let _ = rig.feed(Input::Started);
        let effects = rig.feed(Input::Exit(code(0)));
        let all = [
            Notification::Exited,
            Notification::Drained { warn: false },
            Notification::Settled,
            Notification::Closed,
        ];
        assert_eq!(told(&effects), all);
        assert!(rig.lifecycle.is_closed());
    }

    #[test]
    fn end_of_file_found_by_the_last_read_is_drained() {
        let mut rig = Rig::exited(blind());
        let _ = rig.due(Timer::DrainIdle);
        assert_eq!(
            told(&rig.end_streams()),
            [Notification::Drained { warn: false }, Notification::Settled]
        );
        assert_eq!(
            (
                rig.lifecycle.state(),
                rig.at(Timer::DrainLimit),
                ended_by(&rig)
            ),
            (State::Drained, None, Some(EndedBy::Eof))
        );
        assert_eq!(told(&rig.feed(Input::ReadDone)), [Notification::Closed]);
    }

    #[test]
    fn a_timed_out_drain_is_told_with_its_holders_and_then_settled() {
        let mut rig = Rig::exited(blind());
        let _ = rig.due(Timer::DrainIdle);
        let _ = rig.feed(Input::ReadDone);
        assert!(rig.lifecycle.is_late());
        let _ = rig.feed(Input::Bytes(Stderr, 9));
        assert_eq!(
            (
                rig.lifecycle.late_bytes(Stderr),
                rig.lifecycle.late_bytes(Stdout)
            ),
            (9, 0)
        );
        let holder = Holder::new(9, "sleep".to_owned(), vec![Stderr]);
        let effects = rig.feed(Input::Holders(std::slice::from_ref(&holder), true));
        assert_eq!(
            told(&effects),
            [Notification::Drained { warn: true }, Notification::Settled]
        );
        assert_eq!(effects.last(), Some(&Effect::ReadAvailable));
        assert!(rig.feed(Input::Bytes(Stderr, 1)).is_empty());
        let effects = rig.feed(Input::ReadDone);
        assert_eq!(
            (told(&effects), rig.lifecycle.late_bytes(Stderr)),
            (vec![Notification::Closed], 10)
        );
        assert_eq!(
            effects[..2],
            [Effect::CloseStream(Stdout), Effect::CloseStream(Stderr)]
        );
        assert_eq!(rig.lifecycle.stream_end(Stderr), Some(StreamEnd::Closed));
        assert_eq!(
            rig.lifecycle
                .drain_report()
                .map(|report| (report.holders, report.holders_complete)),
            Some((vec![holder], true))
        );
    }

    #[test]
    fn a_failed_spawn_is_told_once_its_process_is_gone() {
        let mut rig = Rig::spawned(policy());
        assert_eq!(
            rig.feed(Input::StartFailed),
            [Effect::CloseStream(Stdout), Effect::CloseStream(Stderr)]
        );
        assert_eq!(
            (rig.lifecycle.state(), rig.lifecycle.collect_mode()),
            (State::Failing, CollectMode::Reap)
        );
        let effects = rig.feed(Input::Exit(code(127)));
        assert_eq!(
            told(&effects),
            [Notification::SpawnFailed, Notification::Closed]
        );
        assert_eq!(
            (
                rig.lifecycle.state(),
                rig.lifecycle.outcome(),
                rig.lifecycle.drain_report()
            ),
            (State::Failed, None, None)
        );
    }

    #[test]
    fn a_stop_with_an_empty_group_cuts_a_drain_that_an_escapee_holds() {
        for (reason, named) in [
            (StopReason::Request, EndedBy::Stop),
            (StopReason::Timeout, EndedBy::Deadline),
        ] {
            let mut rig = Rig::exited(policy());
            let _ = rig.feed(Input::Probed(Probe::Empty));
            let effects = rig.feed(Input::Stop(policy().stop, reason));
            assert_eq!(
                effects,
                [Effect::CancelTimer(Timer::DrainIdle), Effect::ReadAvailable]
            );
            assert_eq!(verdict_after_last_read(&mut rig), Some(named));
            assert_eq!(
                told(&rig.feed(Input::Holders(&[], false)))[0],
                Notification::Drained { warn: false }
            );
            assert_eq!(rig.lifecycle.outcome(), Some(Outcome::Succeeded));
        }
    }

    #[test]
    fn a_leader_that_withstands_sigkill_is_unfinished_and_lingers() {
        for limit in [false, true] {
            let mut rig = Rig::running(Policy {
                run_limit: Some(crate::lifecycle::test_harness::ms(5)),
                ..policy()
            });
            if limit {
                let _ = rig.due(Timer::RunLimit);
                let _ = rig.grace_over(1);
            } else {
                let _ = rig.feed(Input::Kill(StopReason::Request));
            }
            let _ = rig.feed(Input::Signalled(Signalled::Sent));
            assert_eq!(rig.due(Timer::StuckAfter), [Effect::ListMembers]);
            assert_eq!(
                rig.feed(Input::Members(&[member(1)], true)).last(),
                Some(&Effect::ReadAvailable)
            );
            let effects = rig.feed(Input::ReadDone);
            assert_eq!(
                told(&effects),
                [Notification::Settled, Notification::Closed]
            );
            assert!(effects.contains(&Effect::Release(Release::Linger)));
            let outcome = if limit {
                Outcome::TimedOut
            } else {
                Outcome::Unknown
            };
            assert_eq!(
                (rig.lifecycle.state(), rig.lifecycle.outcome()),
                (State::Unfinished, Some(outcome))
            );
            assert_eq!(
                rig.lifecycle.stop_report().map(|report| report.stuck.len()),
                Some(1)
            );
            assert_eq!(
                rig.lifecycle
                    .drain_report()
                    .map(|report| report.holders_complete),
                Some(false),
                "nobody was looked for"
            );
        }
    }

    #[test]
    fn a_leader_that_ends_after_all_while_it_is_read_out_has_its_verdict() {
        let mut rig = Rig::running(policy());
        let _ = rig.feed(Input::Kill(StopReason::Request));
        let _ = rig.due(Timer::StuckAfter);
        let _ = rig.feed(Input::Members(&[], true));
        let effects = rig.feed(Input::Exit(code(0)));
        assert_eq!(
            (told(&effects), rig.lifecycle.outcome()),
            (vec![Notification::Exited], Some(Outcome::Stopped))
        );
        let _ = rig.feed(Input::Probed(Probe::Empty));
        assert_eq!(
            rig.feed(Input::ReadDone),
            [Effect::MarkLastWords, Effect::ReadAvailable]
        );
        assert_eq!(verdict_after_last_read(&mut rig), Some(EndedBy::Stop));
        assert_eq!(
            told(&rig.feed(Input::Holders(&[], true))),
            [Notification::Drained { warn: false }, Notification::Settled]
        );
        assert_eq!(told(&rig.feed(Input::ReadDone)), [Notification::Closed]);
    }

    #[test]
    fn after_the_end_nothing_changes_any_more() {
        let mut rig = Rig::on(blind(), [false, false], true);
        let _ = rig.feed(Input::Started);
        let _ = rig.feed(Input::Exit(code(0)));
        let closed: Lifecycle = rig.lifecycle.clone();
        for input in [
            Input::Exit(code(1)),
            Input::ReadDone,
            Input::Bytes(Stdout, 1),
            Input::Kill(StopReason::Request),
            Input::Detach,
        ] {
            assert!(rig.feed(input).is_empty());
        }
        assert_eq!(rig.lifecycle, closed);
    }

    #[test]
    fn what_cannot_come_is_counted_and_changes_nothing() {
        let mut rig = Rig::running(policy());
        let before = rig.lifecycle.state();
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            rig.lifecycle.handle(crate::types::Ns::ZERO, Input::Started)
        }));
        assert_eq!(caught.is_err(), cfg!(debug_assertions));
        assert_eq!(
            (rig.lifecycle.state(), rig.lifecycle.contract_violations()),
            (before, 1)
        );
    }
}
