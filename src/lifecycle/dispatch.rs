//! Joins the four machines of one generation. An input goes to each of them, then the facts that
//! it brought up. At last the generation may close.

use super::context::{ArmedTimers, Context};
use super::drain::Drain;
use super::group::Group;
use super::message::{Facts, Message};
use super::settle::Settle;
use super::stop::Stop;
use super::vocabulary::{Effect, Effects, Input, Notification, Timer};
use crate::report::StreamEnd;
use crate::types::{CollectMode, Ns, Policy, Release};
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stdin {
    Open,
    Closed,
}

/// Which of the last notifications (`Settled`, `Closed`) has been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Completion {
    Pending,
    Settled,
    Closed,
}

/// The configuration that all runs of one command share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SharedConfig {
    pub(super) policy: Policy,
    pub(super) group_signal: bool,
}

impl SharedConfig {
    /// Resolves the policy's defaults. `group_signal`: `Capabilities::group_signal`, whether the
    /// kernel can signal and probe a group through the leader's pidfd.
    pub fn new(policy: Policy, group_signal: bool) -> SharedConfig {
        SharedConfig {
            policy: Policy {
                background: policy.background.resolve(),
                ..policy
            },
            group_signal,
        }
    }

    /// The policy, with every default filled in.
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Whether the kernel can signal and probe a group through the leader's pidfd.
    pub const fn group_signal(&self) -> bool {
        self.group_signal
    }
}

/// The lifecycle of one generation. It is pure: whoever owns it hands in inputs and carries out
/// effects.
///
/// **The contract.** [`Lifecycle::handle`] takes in one input. All effects that it gives back are
/// carried out, in order, before the next input. The answers to effects are inputs, in the order
/// of the effects. After [`Lifecycle::is_closed`] nothing changes any more. An input allocates
/// only to keep a list of members or holders.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lifecycle {
    pub(super) config: Arc<SharedConfig>,
    pub(super) drain: Drain,
    pub(super) group: Group,
    pub(super) stop: Stop,
    pub(super) settle: Settle,
    armed: ArmedTimers,
    stdin: Stdin,
    pub(super) completion: Completion,
    /// The leader was collected but not reaped.
    zombie_kept: bool,
    pub(super) contract_violations: u32,
}

impl Lifecycle {
    /// The lifecycle of a process that has just been made. `captured`: stdout, stderr.
    /// `feeds_stdin`: the loop writes its stdin. `group_signal`: see [`SharedConfig::new`].
    #[cfg(any(test, feature = "__internals"))]
    pub fn new(
        policy: Policy,
        captured: [bool; 2],
        feeds_stdin: bool,
        group_signal: bool,
    ) -> Lifecycle {
        Lifecycle::with_config(
            Arc::new(SharedConfig::new(policy, group_signal)),
            captured,
            feeds_stdin,
        )
    }

    /// The same with a configuration that is shared with other runs of the command.
    pub fn with_config(
        config: Arc<SharedConfig>,
        captured: [bool; 2],
        feeds_stdin: bool,
    ) -> Lifecycle {
        Lifecycle {
            config,
            drain: Drain::new(captured),
            group: Group::new(),
            stop: Stop::new(),
            settle: Settle::new(),
            armed: ArmedTimers::default(),
            stdin: if feeds_stdin {
                Stdin::Open
            } else {
                Stdin::Closed
            },
            completion: Completion::Pending,
            zombie_kept: false,
            contract_violations: 0,
        }
    }

    /// Sets the leader's process id. Without it the leader may be counted among those that needed
    /// SIGKILL.
    #[must_use]
    pub fn with_leader(mut self, pid: u32) -> Lifecycle {
        self.group.set_leader(pid);
        self
    }

    /// Says whether a containment can see members outside the process group. A stop then signals
    /// them with [`Effect::SignalEscapees`].
    #[must_use]
    pub fn with_containment(mut self, contained: bool) -> Lifecycle {
        if contained {
            self.stop.signal_escapees();
        }
        self
    }

    /// Arms the run limit, if there is one. To be called once, before the first input.
    #[must_use = "effects are to be carried out before the next input"]
    pub fn begin(&mut self, now: Ns) -> Effects {
        let mut effects = Effects::new();
        if let Some(limit) = self.config.policy.run_limit {
            self.with_context(now, &mut effects, &mut Facts::new(), |_, cx| {
                cx.arm(Timer::RunLimit, now.after(limit.into()))
            });
        }
        effects
    }

    /// Takes in one input. The effects are to be carried out, in order, before the next input.
    ///
    /// A `Due` for a timer that is not armed changes nothing: the timer was cancelled in the same
    /// turn.
    #[must_use = "effects are to be carried out before the next input"]
    pub fn handle(&mut self, now: Ns, input: Input<'_>) -> Effects {
        let mut effects = Effects::new();
        if self.is_closed() {
            return effects;
        }
        match input {
            Input::Due(timer) if !self.armed.remove(timer) => return effects,
            Input::Detach if self.can_detach().is_ok() => {
                self.detach(now, &mut effects);
                return effects;
            }
            // Refused. The reactor asks `can_detach` first.
            Input::Detach => return effects,
            // Work that was left running on purpose is not killed because the loop ends.
            Input::Abandon if self.settle.left_work_running() => return effects,
            Input::Exit(_) if !self.exit_seen() => {
                self.zombie_kept = self.collect_mode() == CollectMode::KeepZombie
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
        let mut facts = Facts::new();
        self.dispatch(now, Message::Input(input), &mut effects, &mut facts);
        let mut next = 0;
        while let Some(fact) = facts.get(next).copied() {
            self.dispatch(now, Message::Fact(fact), &mut effects, &mut facts);
            next += 1;
        }
        self.close_what_is_over(now, matches!(input, Input::ReadDone), &mut effects);
        effects
    }

    /// Hands one message to each machine. A machine sees the others as they are after this
    /// message if they come before it.
    fn dispatch(
        &mut self,
        now: Ns,
        message: Message<'_>,
        effects: &mut Effects,
        facts: &mut Facts,
    ) {
        self.with_context(now, effects, facts, |machines, cx| {
            let Machines {
                drain,
                group,
                stop,
                settle,
                ..
            } = machines;
            drain.on_message(cx, message, stop);
            group.on_message(cx, message, stop.is_in_progress());
            stop.on_message(cx, message, group);
            settle.on_message(cx, message, group, stop, drain.exit_at());
        });
    }

    /// Closes stdin, sends the last notifications, and closes the generation, as far as each is
    /// due. `just_read`: the input was [`Input::ReadDone`].
    fn close_what_is_over(&mut self, now: Ns, just_read: bool, effects: &mut Effects) {
        let may_close = self.may_close();
        let work_left = self.settle.left_work_running();
        let has_exit = self.exit_seen();
        self.with_context(now, effects, &mut Facts::new(), |mut machines, cx| {
            machines.close_stdin(cx);
            machines.notify_settled(cx);
            if may_close {
                machines.close(cx, work_left, has_exit, just_read);
            }
        });
    }

    /// stdin does not delay it: it is closed with the verdict at the latest.
    fn may_close(&self) -> bool {
        self.drain.may_close() && self.settle.outcome().is_some() && !self.stop.is_in_progress()
    }

    fn detach(&mut self, now: Ns, effects: &mut Effects) {
        self.with_context(now, effects, &mut Facts::new(), |mut machines, cx| {
            machines.settle.detach(cx);
            machines.drain.detach();
            machines.release(cx, Release::HandOver);
        });
    }

    fn with_context(
        &mut self,
        now: Ns,
        effects: &mut Effects,
        facts: &mut Facts,
        work: impl FnOnce(Machines<'_>, &mut Context<'_>),
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
            zombie_kept,
            contract_violations,
        } = self;
        let mut context = Context {
            now,
            policy: &config.policy,
            effects,
            facts,
            armed,
            contract_violations,
        };
        let machines = Machines {
            drain,
            group,
            stop,
            settle,
            stdin,
            completion,
            zombie_kept: *zombie_kept,
        };
        work(machines, &mut context);
    }
}

/// The machines during the work on one input.
struct Machines<'a> {
    drain: &'a mut Drain,
    group: &'a mut Group,
    stop: &'a mut Stop,
    settle: &'a mut Settle,
    stdin: &'a mut Stdin,
    completion: &'a mut Completion,
    zombie_kept: bool,
}

impl Machines<'_> {
    fn close_stdin(&mut self, cx: &mut Context<'_>) {
        if *self.stdin == Stdin::Open && self.drain.is_concluded() {
            *self.stdin = Stdin::Closed;
            cx.effect(Effect::CloseStdin);
        }
    }

    /// `Settled` comes after `Drained`, whichever was decided first.
    fn notify_settled(&mut self, cx: &mut Context<'_>) {
        if *self.completion == Completion::Pending
            && self.drain.is_reported()
            && self.settle.outcome().is_some()
        {
            *self.completion = Completion::Settled;
            cx.notify(Notification::Settled);
        }
    }

    fn close(&mut self, cx: &mut Context<'_>, work_left: bool, has_exit: bool, just_read: bool) {
        let any_open = self.drain.streams().any_open();
        let keep_reading = work_left && any_open;
        if any_open && !keep_reading && !just_read && has_exit {
            // What was written until now still belongs to the output. Its `ReadDone` closes.
            self.drain.read_available(cx);
            return;
        }
        let end = if keep_reading {
            StreamEnd::Held
        } else {
            StreamEnd::Closed
        };
        self.drain.close_streams(cx, end);
        self.release(
            cx,
            if keep_reading || !has_exit {
                Release::Linger
            } else {
                Release::Close
            },
        );
        cx.notify(Notification::Closed);
        *self.completion = Completion::Closed;
    }

    /// Gives up watches, the zombie, all timers, and what the kernel object still has.
    fn release(&mut self, cx: &mut Context<'_>, how: Release) {
        self.group.unwatch(cx);
        if self.zombie_kept {
            cx.effect(Effect::ReapLeader);
        }
        for timer in Timer::ALL {
            cx.cancel(timer);
        }
        cx.effect(Effect::Release(how));
    }
}

#[cfg(test)]
mod tests;
