//! The four machines of one generation, joined: an input goes to each of them, then the facts it
//! brought up, then it may close.

use super::drain::Drain;
use super::group::Group;
use super::settle::Settle;
use super::step::{Armed, Facts, Step, Word};
use super::stop::Stop;
use super::{Effect, Effects, Happening, Input, Timer};
use crate::report::StreamEnd;
use crate::types::{Keep, Ns, Policy, Release};
use std::sync::Arc;

/// stdin, as far as closing depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stdin {
    Open,
    Closed,
}

/// How much the host has been told, for the order of the last events: Drained, Settled, Closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Told {
    NotSettled,
    Settled,
    Closed,
}

/// What does not change, and what all runs of one command share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Given {
    pub(super) policy: Policy,
    /// The kernel can signal and ask a group through the leader's pidfd (`Capabilities::group_signal`).
    pub(super) group_signal: bool,
}

impl Given {
    /// A policy, and `Capabilities::group_signal` of the kernel.
    pub fn new(policy: Policy, group_signal: bool) -> Given {
        Given {
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
/// **The contract.** [`Life::handle`] takes one input and changes the machine once; all effects it
/// yields are carried out, in order, before the next input. Answers to effects are inputs, in the
/// order of the effects. After [`Life::is_closed`] nothing changes any more. An input costs no
/// allocation, but for the lists of members and holders, which are kept.
///
/// ```
/// use lastwords::__internals::lifecycle::{Effect, Happening, Input, Life};
/// use lastwords::__internals::types::{Ns, Policy};
/// let mut life = Life::new(Policy::default(), [true, true], false, true);
/// assert!(life.begin(Ns::ZERO).is_empty());
/// assert_eq!(life.handle(Ns(5), Input::Started).as_slice(), [Effect::Tell(Happening::Started)]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Life {
    pub(super) given: Arc<Given>,
    pub(super) drain: Drain,
    pub(super) group: Group,
    pub(super) stop: Stop,
    pub(super) settle: Settle,
    armed: Armed,
    stdin: Stdin,
    pub(super) told: Told,
    /// What the leader was collected with.
    kept: bool,
    pub(super) impossible: u32,
}

impl Life {
    /// A process that has just been made. `captured`: stdout, stderr. `feeds_stdin`: the loop
    /// writes its stdin. `group_signal`: `Capabilities::group_signal`.
    pub fn new(policy: Policy, captured: [bool; 2], feeds_stdin: bool, group_signal: bool) -> Life {
        Life::sharing(
            Arc::new(Given::new(policy, group_signal)),
            captured,
            feeds_stdin,
        )
    }

    /// The same, with what it shares with other runs.
    pub fn sharing(given: Arc<Given>, captured: [bool; 2], feeds_stdin: bool) -> Life {
        Life {
            given,
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
            told: Told::NotSettled,
            kept: false,
            impossible: 0,
        }
    }

    /// Says which number is the leader's. Without it the leader may be counted among those that
    /// needed SIGKILL.
    #[must_use]
    pub fn led_by(mut self, pid: u32) -> Life {
        self.group.led_by(pid);
        self
    }

    /// Says that members can be outside the group ([`Effect::SignalOutside`]).
    #[must_use]
    pub fn looking_outside(mut self, outside: bool) -> Life {
        if outside {
            self.stop.look_outside();
        }
        self
    }

    /// Arms the run limit, if there is one. Once, right after [`Life::new`].
    #[must_use = "effects are to be carried out before the next input"]
    pub fn begin(&mut self, now: Ns) -> Effects {
        let mut effects = Effects::new();
        if let Some(limit) = self.given.policy.run_limit {
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
            Input::Exit(_) if !self.exit_seen() => self.kept = self.keep() == Keep::Zombie,
            Input::StdinClosed => self.stdin = Stdin::Closed,
            Input::Started
            | Input::StartFailed
            | Input::Exit(_)
            | Input::Bytes(..)
            | Input::Ended(..)
            | Input::Swept
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
        let swept = matches!(input, Input::Swept);
        let mut facts = Facts::new();
        self.go_round(now, Word::Input(input), &mut effects, &mut facts);
        let mut next = 0;
        while let Some(fact) = facts.get(next).copied() {
            self.go_round(now, Word::Fact(fact), &mut effects, &mut facts);
            next += 1;
        }
        self.finish(now, swept, &mut effects);
        effects
    }

    /// One word, to each machine in turn. The drain is first: what the others ask of it is as of
    /// after this word.
    fn go_round(&mut self, now: Ns, word: Word<'_>, effects: &mut Effects, facts: &mut Facts) {
        self.step(now, effects, facts, |life, step| {
            life.drain.hear(step, word, life.stop);
            life.group.hear(step, word, life.stop);
            life.stop.hear(step, word, life.group);
            life.settle
                .hear(step, word, life.group, life.stop, life.drain.exit_at());
        });
    }

    /// What is due once all facts have gone round: stdin, the events that were held back, and the
    /// end.
    fn finish(&mut self, now: Ns, swept: bool, effects: &mut Effects) {
        let close = self.may_close();
        let left_running = self.settle.left_running();
        let has_exit = self.exit_seen();
        self.step(now, effects, &mut Facts::new(), |life, step| {
            if *life.stdin == Stdin::Open && life.drain.is_over() {
                *life.stdin = Stdin::Closed;
                step.effect(Effect::CloseStdin);
            }
            if *life.told == Told::NotSettled
                && life.drain.is_told()
                && life.settle.outcome().is_some()
            {
                *life.told = Told::Settled;
                step.tell(Happening::Settled);
            }
            if !close {
                return;
            }
            let open = life.drain.streams().any_open();
            let linger = left_running && open;
            if open && !linger && !swept && life.drain.leaders_exit().is_some() {
                // Work that was waited for may have said something since: one last read, whose end
                // closes.
                life.drain.sweep(step);
                return;
            }
            life.drain.close_streams(
                step,
                if linger {
                    StreamEnd::Held
                } else {
                    StreamEnd::Closed
                },
            );
            life.group.unwatch(step);
            if life.kept {
                step.effect(Effect::Reap);
            }
            for timer in Timer::ALL {
                step.cancel(timer);
            }
            step.effect(Effect::Release(if linger || !has_exit {
                Release::Linger
            } else {
                Release::Close
            }));
            step.tell(Happening::Closed);
            *life.told = Told::Closed;
        });
    }

    /// stdin does not hold it up: it is closed at the latest when the drain is over.
    fn may_close(&self) -> bool {
        self.drain.is_done() && self.settle.outcome().is_some() && !self.stop.is_in_progress()
    }

    fn detach(&mut self, now: Ns, effects: &mut Effects) {
        self.step(now, effects, &mut Facts::new(), |life, step| {
            life.settle.let_go(step);
            life.drain.let_go();
            life.group.unwatch(step);
            if life.kept {
                step.effect(Effect::Reap);
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
        let Life {
            given,
            drain,
            group,
            stop,
            settle,
            armed,
            stdin,
            told,
            kept,
            impossible,
        } = self;
        let mut step = Step {
            now,
            policy: &given.policy,
            effects,
            facts,
            armed,
            impossible,
        };
        work(
            Machines {
                drain,
                group,
                stop,
                settle,
                stdin,
                told,
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
    told: &'a mut Told,
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
            rig.life.keep()
        };
        assert_eq!(keep(policy(), false, false, true), Keep::No);
        assert_eq!(keep(policy(), false, true, true), Keep::Zombie);
        assert_eq!(keep(policy(), false, true, false), Keep::Zombie);
        assert_eq!(keep(blind(), false, false, true), Keep::Zombie);
        assert_eq!(keep(blind(), false, false, false), Keep::No);
        for (policy, stop) in [
            (policy(), false),
            (policy(), true),
            (blind(), false),
            (blind(), true),
        ] {
            assert_eq!(keep(policy, true, stop, true), Keep::No);
        }
    }

    #[test]
    fn a_kept_leader_is_reaped_at_the_end_and_no_other() {
        for flag in [false, true] {
            let mut rig = Rig::on(blind(), [true, false], flag);
            let _ = rig.feed(Input::Started);
            let _ = rig.feed(Input::Exit(code(0)));
            let _ = rig.feed(Input::Ended(Stream::Stdout, StreamEnd::Eof));
            let effects = rig.feed(Input::Swept);
            let reap: &[Effect] = if flag { &[] } else { &[Effect::Reap] };
            assert_eq!(
                effects,
                [
                    reap,
                    &[
                        Effect::Release(Release::Close),
                        Effect::Tell(Happening::Closed)
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
        let _ = rig.feed(Input::Swept);
        let _ = rig.feed(Input::Probed(Probe::Cannot));
        let _ = rig.feed(Input::Members(&[member(1)], true));
        let _ = rig.grace_over(1);
        let _ = rig.feed(Input::Signalled(Signalled::NoWay));
        let _ = rig.feed(Input::Swept);
        let effects = rig.feed(Input::Holders(&[], true));
        let tell = [Happening::Drained { warn: false }, Happening::Settled].map(Effect::Tell);
        assert_eq!(effects, [&tell[..], &[Effect::Sweep]].concat());
        let effects = rig.feed(Input::Swept);
        let expected = [
            Effect::Close(Stream::Stdout),
            Effect::UnwatchAll,
            Effect::Reap,
            Effect::Cancel(Timer::RunLimit),
            Effect::Release(Release::Close),
            Effect::Tell(Happening::Closed),
        ];
        assert_eq!(effects, expected);
    }

    #[test]
    fn stdin_is_closed_at_the_latest_with_the_verdict() {
        let mut life = Life::new(policy(), [true, false], true, true);
        let mut feed = |input| life.handle(Ns::ZERO, input).to_vec();
        let _ = feed(Input::Started);
        assert!(!feed(Input::Exit(code(0))).contains(&Effect::CloseStdin));
        let effects = feed(Input::Ended(Stream::Stdout, StreamEnd::Eof));
        assert_eq!(effects.last(), Some(&Effect::CloseStdin));
        assert!(feed(Input::StdinClosed).is_empty());
        let _ = feed(Input::Swept);
        assert_eq!(
            told(&feed(Input::Probed(Probe::Empty))),
            [Happening::Settled, Happening::Closed]
        );
    }

    #[test]
    fn stdin_that_is_closed_already_is_not_closed_again() {
        let mut life = Life::new(policy(), [false, false], true, true);
        let mut feed = |input| life.handle(Ns::ZERO, input).to_vec();
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
        assert_eq!(rig.life.can_detach(), Ok(()));
        let effects = rig.feed(Input::Detach);
        assert_eq!(effects.first(), Some(&Effect::UnwatchAll));
        assert_eq!(effects.last(), Some(&Effect::Release(Release::HandOver)));
        assert_eq!(
            (told(&effects), rig.life.state(), rig.life.is_closed()),
            (vec![], State::Gone, true)
        );
        assert!(Timer::ALL.iter().all(|timer| rig.at(*timer).is_none()));
        assert_eq!(rig.life.can_detach(), Err(DetachError::Gone));
        assert_eq!(
            rig.life
                .settled(Ns::MAX, ContainedBy::Group)
                .map(|s| s.state),
            Some(SettledAs::Kept)
        );
    }

    #[test]
    fn what_has_not_started_or_is_being_killed_is_not_let_go() {
        let mut rig = Rig::spawned(policy());
        assert_eq!(rig.life.can_detach(), Err(DetachError::NotStarted));
        assert!(rig.feed(Input::Detach).is_empty());
        let _ = rig.feed(Input::StartFailed);
        assert_eq!(rig.life.can_detach(), Err(DetachError::NotStarted));
        let mut rig = Rig::running(policy());
        let _ = rig.feed(Input::Kill(StopReason::Request));
        assert_eq!(rig.life.can_detach(), Err(DetachError::Killing));
        assert!(rig.feed(Input::Detach).is_empty());
        assert_eq!(rig.life.state(), State::Running);
    }

    #[test]
    fn a_loop_that_ends_kills_what_is_not_closed_but_not_what_was_kept_on_purpose() {
        let mut rig = Rig::running(policy());
        assert_eq!(rig.feed(Input::Abandon)[0], Effect::Signal(Signal::KILL));
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
        let before = rig.life.clone();
        assert!(rig.feed(Input::Due(Timer::DrainIdle)).is_empty());
        assert!(rig.feed(Input::Due(Timer::BackgroundWait)).is_empty());
        assert_eq!(rig.life, before);
    }

    #[test]
    fn a_generation_with_nobody_looking_waits_for_its_stop_all_the_same() {
        let mut rig = Rig::running(blind());
        let _ = rig.stop();
        let _ = rig.feed(Input::Signalled(Signalled::Sent));
        let _ = rig.feed(Input::Exit(code(0)));
        assert_eq!(
            told(&rig.end_streams()),
            [Happening::Drained { warn: false }, Happening::Settled]
        );
        let _ = rig.feed(Input::Swept);
        let _ = rig.feed(Input::Probed(Probe::Alive));
        let _ = rig.feed(Input::Members(&[member(1)], true));
        let _ = rig.feed(Input::MemberGone);
        assert!(!rig.life.is_closed());
        assert_eq!(
            told(&rig.feed(Input::Probed(Probe::Empty))),
            [Happening::Closed]
        );
    }

    #[test]
    fn a_life_is_small() {
        assert!(size_of::<Life>() <= 640, "{}", size_of::<Life>());
    }
}
