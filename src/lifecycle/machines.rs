//! The four machines of one generation, joined: an input goes to each of them, then the facts it
//! brought up, then it may close.

use super::drain::Drain;
use super::group::Group;
use super::settle::Settle;
use super::step::{Armed, Facts, Message, Step};
use super::stop::Stop;
use super::{Effect, Effects, Input, Notification, Timer};
use crate::report::StreamEnd;
use crate::types::{CollectMode, Ns, Policy, Release};
use std::sync::Arc;

/// stdin, as far as closing depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stdin {
    Open,
    Closed,
}

/// How much the host has been told, for the order of the last events: Drained, Settled, Closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Completion {
    Pending,
    Settled,
    Closed,
}

/// What does not change, and what all runs of one command share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SharedConfig {
    pub(super) policy: Policy,
    /// The kernel can signal and ask a group through the leader's pidfd (`Capabilities::group_signal`).
    pub(super) group_signal: bool,
}

impl SharedConfig {
    /// A policy, and `Capabilities::group_signal` of the kernel.
    pub fn new(policy: Policy, group_signal: bool) -> SharedConfig {
        SharedConfig {
            policy: Policy {
                background: policy.background.resolve(),
                ..policy
            },
            group_signal,
        }
    }

    /// The policy, with nothing left unsaid.
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// `Capabilities::group_signal` of the kernel.
    pub const fn group_signal(&self) -> bool {
        self.group_signal
    }
}

/// The life of one generation: pure, and driven by whoever owns it.
///
/// **The contract.** [`Lifecycle::handle`] takes one input and changes the machine once; all effects it
/// yields are carried out, in order, before the next input. Answers to effects are inputs, in the
/// order of the effects. After [`Lifecycle::is_closed`] nothing changes any more. An input costs no
/// allocation, but for the lists of members and holders, which are kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lifecycle {
    pub(super) config: Arc<SharedConfig>,
    pub(super) drain: Drain,
    pub(super) group: Group,
    pub(super) stop: Stop,
    pub(super) settle: Settle,
    armed: Armed,
    stdin: Stdin,
    pub(super) completion: Completion,
    /// What the leader was collected with.
    kept: bool,
    pub(super) contract_violations: u32,
}

impl Lifecycle {
    /// A process that has just been made. `captured`: stdout, stderr. `feeds_stdin`: the loop
    /// writes its stdin. `group_signal`: `Capabilities::group_signal`.
    pub fn new(
        policy: Policy,
        captured: [bool; 2],
        feeds_stdin: bool,
        group_signal: bool,
    ) -> Lifecycle {
        Lifecycle::sharing(
            Arc::new(SharedConfig::new(policy, group_signal)),
            captured,
            feeds_stdin,
        )
    }

    /// The same, with what it shares with other runs.
    pub fn sharing(config: Arc<SharedConfig>, captured: [bool; 2], feeds_stdin: bool) -> Lifecycle {
        Lifecycle {
            config,
            drain: Drain::new(captured),
            group: Group::new(),
            stop: Stop::new(),
            settle: Settle::new(),
            armed: Armed::default(),
            stdin: if feeds_stdin {
                Stdin::Open
            } else {
                Stdin::Closed
            },
            completion: Completion::Pending,
            kept: false,
            contract_violations: 0,
        }
    }

    /// Says which number is the leader's. Without it the leader may be counted among those that
    /// needed SIGKILL.
    #[must_use]
    pub fn led_by(mut self, pid: u32) -> Lifecycle {
        self.group.led_by(pid);
        self
    }

    /// Says that members can be outside the group ([`Effect::SignalEscapees`]).
    #[must_use]
    pub fn looking_outside(mut self, outside: bool) -> Lifecycle {
        if outside {
            self.stop.look_outside();
        }
        self
    }

    /// Arms the run limit, if there is one. Once, right after [`Lifecycle::new`].
    #[must_use = "effects are to be carried out before the next input"]
    pub fn begin(&mut self, now: Ns) -> Effects {
        let mut effects = Effects::new();
        if let Some(limit) = self.config.policy.run_limit {
            self.step(now, &mut effects, &mut Facts::new(), |_, step| {
                step.arm(Timer::RunLimit, now.after(limit.into()))
            });
        }
        effects
    }

    /// Takes in one input. What it yields is to be done, in order, before the next input.
    ///
    /// A timer that is not armed any more cannot be due: such a `Due` changes nothing, whoever was
    /// first.
    #[must_use = "effects are to be carried out before the next input"]
    pub fn handle(&mut self, now: Ns, input: Input<'_>) -> Effects {
        let mut effects = Effects::new();
        if self.is_closed() {
            return effects;
        }
        match input {
            Input::Due(timer) if !self.armed.take(timer) => return effects,
            Input::Detach if self.can_detach().is_ok() => {
                self.detach(now, &mut effects);
                return effects;
            }
            // Refused: `can_detach` says so, and it was asked.
            Input::Detach => return effects,
            // What was left running on purpose is not killed because the loop ends.
            Input::Abandon if self.settle.left_running() => return effects,
            Input::Exit(_) if !self.exit_seen() => {
                self.kept = self.collect_mode() == CollectMode::KeepZombie
            }
            Input::StdinClosed => self.stdin = Stdin::Closed,
            Input::Started
            | Input::StartFailed
            | Input::Exit(_)
            | Input::Bytes(..)
            | Input::Ended(..)
            | Input::ReadDone
            | Input::Probed(_)
            | Input::Members(..)
            | Input::MemberGone
            | Input::WatchFailed
            | Input::CgroupChanged
            | Input::Signalled(_)
            | Input::Holders(..)
            | Input::Paused(_)
            | Input::Resumed(_)
            | Input::Stop(..)
            | Input::Kill(_)
            | Input::Abandon
            | Input::Due(_) => {}
        }
        let swept = matches!(input, Input::ReadDone);
        let mut facts = Facts::new();
        self.go_round(now, Message::Input(input), &mut effects, &mut facts);
        let mut next = 0;
        while let Some(fact) = facts.get(next).copied() {
            self.go_round(now, Message::Fact(fact), &mut effects, &mut facts);
            next += 1;
        }
        self.finish(now, swept, &mut effects);
        effects
    }

    /// One message, to each machine in turn. The drain is first: what the others ask of it is as of
    /// after this word.
    fn go_round(
        &mut self,
        now: Ns,
        message: Message<'_>,
        effects: &mut Effects,
        facts: &mut Facts,
    ) {
        self.step(now, effects, facts, |lifecycle, step| {
            lifecycle.drain.on_message(step, message, lifecycle.stop);
            lifecycle.group.on_message(step, message, lifecycle.stop);
            lifecycle.stop.on_message(step, message, lifecycle.group);
            lifecycle.settle.on_message(
                step,
                message,
                lifecycle.group,
                lifecycle.stop,
                lifecycle.drain.exit_at(),
            );
        });
    }

    /// What is due once all facts have gone round: stdin, the events that were held back, and the
    /// end.
    fn finish(&mut self, now: Ns, swept: bool, effects: &mut Effects) {
        let close = self.may_close();
        let left_running = self.settle.left_running();
        let has_exit = self.exit_seen();
        self.step(now, effects, &mut Facts::new(), |lifecycle, step| {
            if *lifecycle.stdin == Stdin::Open && lifecycle.drain.is_over() {
                *lifecycle.stdin = Stdin::Closed;
                step.effect(Effect::CloseStdin);
            }
            if *lifecycle.completion == Completion::Pending
                && lifecycle.drain.is_told()
                && lifecycle.settle.outcome().is_some()
            {
                *lifecycle.completion = Completion::Settled;
                step.notify(Notification::Settled);
            }
            if !close {
                return;
            }
            let open = lifecycle.drain.streams().any_open();
            let linger = left_running && open;
            if open && !linger && !swept && lifecycle.drain.leaders_exit().is_some() {
                // Work that was waited for may have said something since: one last read, whose end
                // closes.
                lifecycle.drain.sweep(step);
                return;
            }
            lifecycle.drain.close_streams(
                step,
                if linger {
                    StreamEnd::Held
                } else {
                    StreamEnd::Closed
                },
            );
            lifecycle.group.unwatch(step);
            if lifecycle.kept {
                step.effect(Effect::ReapLeader);
            }
            for timer in Timer::ALL {
                step.cancel(timer);
            }
            step.effect(Effect::Release(if linger || !has_exit {
                Release::Linger
            } else {
                Release::Close
            }));
            step.notify(Notification::Closed);
            *lifecycle.completion = Completion::Closed;
        });
    }

    /// stdin does not hold it up: it is closed at the latest when the drain is over.
    fn may_close(&self) -> bool {
        self.drain.is_done() && self.settle.outcome().is_some() && !self.stop.is_in_progress()
    }

    fn detach(&mut self, now: Ns, effects: &mut Effects) {
        self.step(now, effects, &mut Facts::new(), |lifecycle, step| {
            lifecycle.settle.let_go(step);
            lifecycle.drain.let_go();
            lifecycle.group.unwatch(step);
            if lifecycle.kept {
                step.effect(Effect::ReapLeader);
            }
            for timer in Timer::ALL {
                step.cancel(timer);
            }
            step.effect(Effect::Release(Release::HandOver));
        });
    }

    fn step(
        &mut self,
        now: Ns,
        effects: &mut Effects,
        facts: &mut Facts,
        work: impl FnOnce(Machines<'_>, &mut Step<'_>),
    ) {
        let Lifecycle {
            config,
            drain,
            group,
            stop,
            settle,
            armed,
            stdin,
            completion,
            kept,
            contract_violations,
        } = self;
        let mut step = Step {
            now,
            policy: &config.policy,
            effects,
            facts,
            armed,
            contract_violations,
        };
        work(
            Machines {
                drain,
                group,
                stop,
                settle,
                stdin,
                completion,
                kept: *kept,
            },
            &mut step,
        );
    }
}

/// The machines, for one step.
struct Machines<'a> {
    drain: &'a mut Drain,
    group: &'a mut Group,
    stop: &'a mut Stop,
    settle: &'a mut Settle,
    stdin: &'a mut Stdin,
    completion: &'a mut Completion,
    kept: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::State;
    use crate::lifecycle::test_harness::{Rig, blind, code, member, ms, policy, told};
    use crate::report::{ContainedBy, SettledAs, StopReason};
    use crate::types::{DetachError, Probe, Signal, Signalled, Stream};

    #[test]
    fn the_leader_is_kept_only_where_its_number_may_be_needed() {
        let keep = |policy, flag, stop: bool, open: bool| {
            let mut rig = Rig::on(policy, [open, false], flag);
            let _ = rig.feed(Input::Started);
            if stop {
                let _ = rig.stop();
            }
            rig.lifecycle.collect_mode()
        };
        assert_eq!(keep(policy(), false, false, true), CollectMode::Reap);
        assert_eq!(keep(policy(), false, true, true), CollectMode::KeepZombie);
        assert_eq!(keep(policy(), false, true, false), CollectMode::KeepZombie);
        assert_eq!(keep(blind(), false, false, true), CollectMode::KeepZombie);
        assert_eq!(keep(blind(), false, false, false), CollectMode::Reap);
        for (policy, stop) in [
            (policy(), false),
            (policy(), true),
            (blind(), false),
            (blind(), true),
        ] {
            assert_eq!(keep(policy, true, stop, true), CollectMode::Reap);
        }
    }

    #[test]
    fn a_kept_leader_is_reaped_at_the_end_and_no_other() {
        for flag in [false, true] {
            let mut rig = Rig::on(blind(), [true, false], flag);
            let _ = rig.feed(Input::Started);
            let _ = rig.feed(Input::Exit(code(0)));
            let _ = rig.feed(Input::Ended(Stream::Stdout, StreamEnd::Eof));
            let effects = rig.feed(Input::ReadDone);
            let reap: &[Effect] = if flag { &[] } else { &[Effect::ReapLeader] };
            assert_eq!(
                effects,
                [
                    reap,
                    &[
                        Effect::Release(Release::Close),
                        Effect::Notify(Notification::Closed)
                    ]
                ]
                .concat()
            );
        }
    }

    #[test]
    fn everything_is_given_up_in_order_at_the_end() {
        let mut rig = Rig::on(
            Policy {
                run_limit: Some(ms(500)),
                ..policy()
            },
            [true, false],
            false,
        );
        let _ = rig.feed(Input::Started);
        let _ = rig.stop();
        let _ = rig.feed(Input::Signalled(Signalled::Sent));
        let _ = rig.feed(Input::Exit(code(0)));
        let _ = rig.feed(Input::ReadDone);
        let _ = rig.feed(Input::Probed(Probe::Unknown));
        let _ = rig.feed(Input::Members(&[member(1)], true));
        let _ = rig.grace_over(1);
        let _ = rig.feed(Input::Signalled(Signalled::NoWay));
        let _ = rig.feed(Input::ReadDone);
        let effects = rig.feed(Input::Holders(&[], true));
        let tell =
            [Notification::Drained { warn: false }, Notification::Settled].map(Effect::Notify);
        assert_eq!(effects, [&tell[..], &[Effect::ReadAvailable]].concat());
        let effects = rig.feed(Input::ReadDone);
        let expected = [
            Effect::CloseStream(Stream::Stdout),
            Effect::UnwatchMembers,
            Effect::ReapLeader,
            Effect::CancelTimer(Timer::RunLimit),
            Effect::Release(Release::Close),
            Effect::Notify(Notification::Closed),
        ];
        assert_eq!(effects, expected);
    }

    #[test]
    fn stdin_is_closed_at_the_latest_with_the_verdict() {
        let mut lifecycle = Lifecycle::new(policy(), [true, false], true, true);
        let mut feed = |input| lifecycle.handle(Ns::ZERO, input).to_vec();
        let _ = feed(Input::Started);
        assert!(!feed(Input::Exit(code(0))).contains(&Effect::CloseStdin));
        let effects = feed(Input::Ended(Stream::Stdout, StreamEnd::Eof));
        assert_eq!(effects.last(), Some(&Effect::CloseStdin));
        assert!(feed(Input::StdinClosed).is_empty());
        let _ = feed(Input::ReadDone);
        assert_eq!(
            told(&feed(Input::Probed(Probe::Empty))),
            [Notification::Settled, Notification::Closed]
        );
    }

    #[test]
    fn stdin_that_is_closed_already_is_not_closed_again() {
        let mut lifecycle = Lifecycle::new(policy(), [false, false], true, true);
        let mut feed = |input| lifecycle.handle(Ns::ZERO, input).to_vec();
        let _ = feed(Input::Started);
        let _ = feed(Input::StdinClosed);
        assert!(!feed(Input::Exit(code(0))).contains(&Effect::CloseStdin));
    }

    #[test]
    fn a_generation_that_is_let_go_tells_nothing_more() {
        let mut rig = Rig::exited(Policy {
            run_limit: Some(ms(500)),
            ..policy()
        });
        let _ = rig.feed(Input::Probed(Probe::Alive));
        let _ = rig.feed(Input::Members(&[member(1)], true));
        let _ = rig.feed(Input::Stop(policy().stop, StopReason::Request));
        assert_eq!(rig.lifecycle.can_detach(), Ok(()));
        let effects = rig.feed(Input::Detach);
        assert_eq!(effects.first(), Some(&Effect::UnwatchMembers));
        assert_eq!(effects.last(), Some(&Effect::Release(Release::HandOver)));
        assert_eq!(
            (
                told(&effects),
                rig.lifecycle.state(),
                rig.lifecycle.is_closed()
            ),
            (vec![], State::Gone, true)
        );
        assert!(Timer::ALL.iter().all(|timer| rig.at(*timer).is_none()));
        assert_eq!(rig.lifecycle.can_detach(), Err(DetachError::Gone));
        assert_eq!(
            rig.lifecycle
                .settled(Ns::MAX, ContainedBy::Group)
                .map(|s| s.state),
            Some(SettledAs::Kept)
        );
    }

    #[test]
    fn what_has_not_started_or_is_being_killed_is_not_let_go() {
        let mut rig = Rig::spawned(policy());
        assert_eq!(rig.lifecycle.can_detach(), Err(DetachError::NotStarted));
        assert!(rig.feed(Input::Detach).is_empty());
        let _ = rig.feed(Input::StartFailed);
        assert_eq!(rig.lifecycle.can_detach(), Err(DetachError::NotStarted));
        let mut rig = Rig::running(policy());
        let _ = rig.feed(Input::Kill(StopReason::Request));
        assert_eq!(rig.lifecycle.can_detach(), Err(DetachError::Killing));
        assert!(rig.feed(Input::Detach).is_empty());
        assert_eq!(rig.lifecycle.state(), State::Running);
    }

    #[test]
    fn a_loop_that_ends_kills_what_is_not_closed_but_not_what_was_kept_on_purpose() {
        let mut rig = Rig::running(policy());
        assert_eq!(
            rig.feed(Input::Abandon)[0],
            Effect::SignalGroup(Signal::KILL)
        );
        let reported = crate::types::BackgroundPolicy::report_only().grace(ms(0));
        let mut rig = Rig::exited(Policy {
            background: reported,
            ..policy()
        });
        let _ = rig.feed(Input::Probed(Probe::Alive));
        let _ = rig.feed(Input::Members(&[member(1)], true));
        assert!(rig.feed(Input::Abandon).is_empty());
    }

    #[test]
    fn a_timer_that_was_cancelled_in_the_same_turn_changes_nothing() {
        let mut rig = Rig::exited(policy());
        let _ = rig.end_streams();
        let before = rig.lifecycle.clone();
        assert!(rig.feed(Input::Due(Timer::DrainIdle)).is_empty());
        assert!(rig.feed(Input::Due(Timer::BackgroundWait)).is_empty());
        assert_eq!(rig.lifecycle, before);
    }

    #[test]
    fn a_generation_with_nobody_looking_waits_for_its_stop_all_the_same() {
        let mut rig = Rig::running(blind());
        let _ = rig.stop();
        let _ = rig.feed(Input::Signalled(Signalled::Sent));
        let _ = rig.feed(Input::Exit(code(0)));
        assert_eq!(
            told(&rig.end_streams()),
            [Notification::Drained { warn: false }, Notification::Settled]
        );
        let _ = rig.feed(Input::ReadDone);
        let _ = rig.feed(Input::Probed(Probe::Alive));
        let _ = rig.feed(Input::Members(&[member(1)], true));
        let _ = rig.feed(Input::MemberGone);
        assert!(!rig.lifecycle.is_closed());
        assert_eq!(
            told(&rig.feed(Input::Probed(Probe::Empty))),
            [Notification::Closed]
        );
    }

    #[test]
    fn a_life_is_small() {
        assert!(size_of::<Lifecycle>() <= 640, "{}", size_of::<Lifecycle>());
    }
}
