//! The ladder: a signal to the whole group, a grace, SIGKILL to the whole group, and what is left is stuck.
//!
//! Escalation goes by the group being empty, not by the leader being gone. Nothing is sent here.

use super::group::Group;
use super::heard::StopWord as Heard;
use super::policy::{Bound, StopPolicy};
use super::report::{StopReason, StopReport};
use super::step::{End, Fact, Step, Word};
use super::{Effect, Timer};
use crate::kernel::Signalled;
use crate::time::Ns;
use crate::words::Signal;

/// Where the ladder is.
///
/// Every change there is:
///
/// ```text
/// Idle --Stop, the group is empty--> Over
/// Idle --Stop--> Terminating
/// Idle --Kill, or a grace of zero--> Killing
/// Terminating --Kill, Due(StopGrace) or a grace of zero--> Killing
/// Terminating --GroupEmpty or NoWay--> Over
/// Killing --Due(StuckAfter) or Denied--> Naming
/// Killing --GroupEmpty or NoWay--> Over
/// Naming --Members--> Over
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// Nobody has asked.
    Idle,
    /// The first signal is sent. `kill_at`: when the grace ends, if it does. `owed`: it had no way, and is sent again once
    /// it is known who is left.
    Terminating { kill_at: Option<Ns>, owed: bool },
    /// SIGKILL is sent.
    Killing,
    /// It was of no use: who stays is being listed.
    Naming(End),
    /// Nothing more is done.
    Over(End),
}

/// How far a signal got that somebody was there to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Reached {
    Nobody,
    Signalled,
    Killed,
}

/// Why and with what a ladder was begun: what the report says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Begun {
    reason: StopReason,
    signal: Signal,
    escalated: bool,
}

/// The stop of one generation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stop {
    phase: Phase,
    begun: Option<Begun>,
    stuck_after: Ns,
    reached: Reached,
}

impl Stop {
    /// Nobody has asked.
    pub(super) fn new() -> Stop {
        Stop { phase: Phase::Idle, begun: None, stuck_after: Ns::MAX, reached: Reached::Nobody }
    }

    /// Takes in one word. `group` is looked at for whether anybody is left, and known.
    pub(super) fn hear(&mut self, step: &mut Step<'_>, word: Word<'_>, group: &Group) {
        let Some(heard) = Heard::of(word) else { return };
        match self.phase {
            Phase::Idle => self.idle(step, heard, group),
            Phase::Terminating { kill_at, owed } => self.terminating(step, heard, group, (kill_at, owed)),
            Phase::Killing => self.killing(step, heard, group),
            Phase::Naming(end) => self.naming(step, heard, group, end),
            Phase::Over(_) => self.after(step, heard),
        }
    }

    // ---- the table, a column each

    fn idle(&mut self, step: &mut Step<'_>, heard: Heard, group: &Group) {
        match heard {
            Heard::Stop(policy, reason) => self.begin(step, &policy, reason, group),
            Heard::RunLimit => {
                let policy = step.policy.stop;
                self.begin(step, &policy, StopReason::Timeout, group);
            }
            Heard::Kill(reason) => {
                let policy = step.policy.stop.grace(Bound::After(std::time::Duration::ZERO));
                self.begin(step, &policy, reason, group);
            }
            Heard::GroupEmpty | Heard::Members | Heard::SpawnFailed => {}
            Heard::GraceDue | Heard::StuckDue | Heard::Signalled(_) => step.impossible("no ladder has begun"),
        }
    }

    fn terminating(&mut self, step: &mut Step<'_>, heard: Heard, group: &Group, (kill_at, owed): (Option<Ns>, bool)) {
        match heard {
            Heard::Stop(policy, _) => self.shorten(step, &policy, (kill_at, owed)),
            Heard::RunLimit => {
                let policy = step.policy.stop;
                self.shorten(step, &policy, (kill_at, owed));
            }
            Heard::Kill(_) | Heard::GraceDue => self.kill(step),
            Heard::GroupEmpty => self.over(step, End::Gone),
            Heard::Members => {
                // Who was forked after the signal waits for SIGKILL, but one that had no way yet has one now.
                if owed && !group.is_empty() {
                    self.phase = Phase::Terminating { kill_at, owed: false };
                    self.send_first(step);
                }
            }
            Heard::Signalled(Signalled::Sent) => self.reached = self.reached.max(Reached::Signalled),
            Heard::Signalled(Signalled::NoWay) => {
                if group.is_unlisted() {
                    self.phase = Phase::Terminating { kill_at, owed: true };
                    step.fact(Fact::List);
                } else {
                    self.over(step, End::NoWay);
                }
            }
            // Refused: SIGKILL will be refused too, and then it is named who stays.
            Heard::Signalled(Signalled::Empty | Signalled::Denied) => {}
            Heard::SpawnFailed => self.end(step, End::Gone),
            Heard::StuckDue => step.impossible("SIGKILL was not sent"),
        }
    }

    fn killing(&mut self, step: &mut Step<'_>, heard: Heard, group: &Group) {
        match heard {
            Heard::StuckDue => self.name(step, End::Stuck),
            Heard::GroupEmpty => self.over(step, End::Gone),
            Heard::Members => {
                // Once more for those who were forked, or had no way, meanwhile.
                if !group.is_empty() {
                    step.effect(Effect::Signal(Signal::KILL));
                }
            }
            Heard::Signalled(Signalled::Sent) => self.reached = Reached::Killed,
            Heard::Signalled(Signalled::Denied) => self.name(step, End::Denied),
            Heard::Signalled(Signalled::NoWay) => {
                if group.is_unlisted() {
                    step.fact(Fact::List);
                } else {
                    self.over(step, End::NoWay);
                }
            }
            Heard::SpawnFailed => self.end(step, End::Gone),
            Heard::Signalled(Signalled::Empty) | Heard::Stop(..) | Heard::RunLimit | Heard::Kill(_) => {}
            Heard::GraceDue => step.impossible("the grace is over"),
        }
    }

    fn naming(&mut self, step: &mut Step<'_>, heard: Heard, group: &Group, end: End) {
        match heard {
            Heard::Members => {
                if !group.is_empty() {
                    self.over(step, end);
                }
            }
            Heard::GroupEmpty => self.over(step, End::Gone),
            Heard::SpawnFailed => self.end(step, End::Gone),
            Heard::Signalled(_) | Heard::Stop(..) | Heard::RunLimit | Heard::Kill(_) => {}
            Heard::GraceDue | Heard::StuckDue => step.impossible("nothing is waited for but the list"),
        }
    }

    fn after(&mut self, step: &mut Step<'_>, heard: Heard) {
        match heard {
            Heard::Stop(..) | Heard::RunLimit | Heard::Kill(_) | Heard::GroupEmpty | Heard::Members => {}
            // SIGCONT's answer, after SIGTERM's has ended the ladder.
            Heard::Signalled(_) | Heard::SpawnFailed => {}
            Heard::GraceDue | Heard::StuckDue => step.impossible("the ladder is over"),
        }
    }

    // ---- what the cells do

    fn begin(&mut self, step: &mut Step<'_>, policy: &StopPolicy, reason: StopReason, group: &Group) {
        self.begun = Some(Begun { reason, signal: policy.signal, escalated: false });
        if group.is_empty() {
            // Nobody to signal, but a drain that an escapee holds ends now.
            self.over(step, End::Gone);
            return;
        }
        self.stuck_after = policy.stuck_after.into();
        if policy.grace.is_zero() {
            self.begun = Some(Begun { reason, signal: Signal::KILL, escalated: true });
            self.kill(step);
        } else {
            let kill_at = policy.grace.duration().map(|grace| step.now.after(grace.into()));
            self.phase = Phase::Terminating { kill_at, owed: false };
            self.send_first(step);
            if let Some(at) = kill_at {
                step.arm(Timer::StopGrace, at);
            }
        }
        step.fact(Fact::Want);
        step.fact(Fact::StopBegan);
    }

    /// A later stop can only bring the end nearer.
    fn shorten(&mut self, step: &mut Step<'_>, policy: &StopPolicy, (kill_at, owed): (Option<Ns>, bool)) {
        self.stuck_after = self.stuck_after.min(policy.stuck_after.into());
        if policy.grace.is_zero() {
            self.kill(step);
        } else if let Some(grace) = policy.grace.duration() {
            let at = step.now.after(grace.into());
            if kill_at.is_none_or(|kill_at| at < kill_at) {
                self.phase = Phase::Terminating { kill_at: Some(at), owed };
                step.arm(Timer::StopGrace, at);
            }
        }
    }

    /// A group that is stopped (SIGSTOP) takes the signal only when it goes on.
    fn send_first(&mut self, step: &mut Step<'_>) {
        if let Some(begun) = self.begun {
            step.effect(Effect::Signal(begun.signal));
            step.effect(Effect::Signal(Signal::CONT));
        }
    }

    fn kill(&mut self, step: &mut Step<'_>) {
        step.cancel(Timer::StopGrace);
        self.phase = Phase::Killing;
        if let Some(begun) = &mut self.begun {
            begun.escalated = true;
        }
        step.effect(Effect::Signal(Signal::KILL));
        step.arm(Timer::StuckAfter, step.now.after(self.stuck_after));
    }

    fn name(&mut self, step: &mut Step<'_>, end: End) {
        step.cancel(Timer::StuckAfter);
        self.phase = Phase::Naming(end);
        step.fact(Fact::List);
    }

    fn end(&mut self, step: &mut Step<'_>, end: End) {
        step.cancel(Timer::StopGrace);
        step.cancel(Timer::StuckAfter);
        self.phase = Phase::Over(end);
    }

    fn over(&mut self, step: &mut Step<'_>, end: End) {
        self.end(step, end);
        step.fact(Fact::LadderOver(end));
    }

    // ---- what is asked of it

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    /// Nobody has asked.
    pub(super) fn is_idle(&self) -> bool {
        self.phase == Phase::Idle
    }

    /// Begun, and not over.
    pub(super) fn is_in_progress(&self) -> bool {
        match self.phase {
            Phase::Terminating { .. } | Phase::Killing | Phase::Naming(_) => true,
            Phase::Idle | Phase::Over(_) => false,
        }
    }

    /// How it ended.
    pub(super) fn ended(&self) -> Option<End> {
        match self.phase {
            Phase::Over(end) => Some(end),
            Phase::Idle | Phase::Terminating { .. } | Phase::Killing | Phase::Naming(_) => None,
        }
    }

    /// Why it was begun: the first reason there was.
    pub(super) fn reason(&self) -> Option<StopReason> {
        self.begun.map(|begun| begun.reason)
    }

    /// A signal of it was sent while somebody was there to receive it.
    pub(super) fn has_signalled(&self) -> bool {
        self.reached >= Reached::Signalled
    }

    /// SIGKILL was, too.
    pub(super) fn has_killed(&self) -> bool {
        self.reached == Reached::Killed
    }

    pub(super) fn report(&self, group: &Group) -> Option<StopReport> {
        let begun = self.begun?;
        let end = self.ended();
        let stuck = match end {
            Some(End::Stuck | End::Denied | End::NoWay) => group.members().iter().map(|member| member.who.clone()).collect(),
            Some(End::Gone) | None => Vec::new(),
        };
        let denied = end == Some(End::Denied);
        Some(StopReport { reason: begun.reason, signal: begun.signal, escalated: begun.escalated, stuck, denied })
    }
}

#[cfg(test)]
mod tests {
    use super::super::policy::Policy;
    use super::super::rig::{Rig, blind, code, member, ms, policy};
    use super::super::{Input, Ladder};
    use super::*;
    use crate::kernel::Probe;

    const FIRST: [Effect; 2] = [Effect::Signal(Signal::TERM), Effect::Signal(Signal::CONT)];
    const KILL: Effect = Effect::Signal(Signal::KILL);

    fn report(rig: &Rig) -> (StopReason, Signal, bool) {
        rig.life.stop_report().map(|report| (report.reason, report.signal, report.escalated)).expect("a stop was begun")
    }

    #[test]
    fn a_stop_sends_term_and_cont_and_then_kill_to_the_group() {
        let mut rig = Rig::running(policy());
        assert_eq!(rig.stop(), [&FIRST[..], &[Effect::Arm(Timer::StopGrace, Ns::from_millis(30))]].concat());
        assert_eq!((rig.life.stopping(), report(&rig)), (Ladder::Terminating, (StopReason::Request, Signal::TERM, false)));
        assert_eq!(rig.due(Timer::StopGrace), [KILL, Effect::Arm(Timer::StuckAfter, Ns::from_millis(70))]);
        assert_eq!((rig.life.stopping(), report(&rig)), (Ladder::Killing, (StopReason::Request, Signal::TERM, true)));
    }

    #[test]
    fn a_stop_of_one_that_is_being_spawned_signals_at_once() {
        let mut rig = Rig::spawned(policy());
        assert_eq!(rig.stop()[..2], FIRST);
        let _ = rig.feed(Input::StartFailed);
        let _ = rig.feed(Input::Exit(code(127)));
        assert!(rig.life.is_closed());
        assert_eq!((rig.life.stopping(), rig.at(Timer::StopGrace)), (Ladder::Over, None));
    }

    #[test]
    fn a_stop_is_over_when_the_group_is_empty_and_not_when_the_leader_is_gone() {
        let mut rig = Rig::running(policy());
        let _ = rig.stop();
        let _ = rig.feed(Input::Exit(code(0)));
        let _ = rig.end_streams();
        let _ = rig.feed(Input::Swept);
        let _ = rig.feed(Input::Probed(Probe::Alive));
        let _ = rig.feed(Input::Members(&[member(1)], true));
        assert_eq!((rig.life.stopping(), rig.at(Timer::StopGrace)), (Ladder::Terminating, Some(30)));
        let _ = rig.feed(Input::MemberGone);
        let effects = rig.feed(Input::Probed(Probe::Empty));
        assert!(effects.contains(&Effect::Cancel(Timer::StopGrace)));
        assert!(rig.life.is_closed());
    }

    #[test]
    fn a_member_that_ignores_term_gets_kill_though_the_leader_has_left() {
        let mut rig = Rig::with_member(policy());
        let _ = rig.stop();
        assert_eq!(rig.due(Timer::StopGrace)[0], KILL);
    }

    #[test]
    fn a_grace_of_zero_and_a_kill_begin_with_kill_and_one_without_end_has_no_timer() {
        for begin in [Input::Kill(StopReason::Shutdown), Input::Stop(policy().stop.grace(ms(0)), StopReason::Shutdown)] {
            let mut rig = Rig::running(policy());
            assert_eq!(rig.feed(begin), [KILL, Effect::Arm(Timer::StuckAfter, Ns::from_millis(40))]);
            assert_eq!(report(&rig), (StopReason::Shutdown, Signal::KILL, true));
        }
        let mut rig = Rig::running(policy());
        let own = policy().stop.grace(Bound::Never).signal(Signal::INT);
        assert_eq!(rig.feed(Input::Stop(own, StopReason::Request)), [Effect::Signal(Signal::INT), Effect::Signal(Signal::CONT)]);
    }

    #[test]
    fn a_later_stop_only_brings_the_end_nearer_and_the_first_reason_stays() {
        let mut rig = Rig::running(Policy { run_limit: Some(ms(10)), ..policy() });
        let _ = rig.stop();
        rig.now = 5;
        let longer = policy().stop.grace(ms(100));
        assert_eq!(rig.feed(Input::Stop(longer, StopReason::Shutdown)), []);
        assert_eq!(rig.feed(Input::Stop(longer.grace(Bound::Never), StopReason::Shutdown)), []);
        assert_eq!(rig.due(Timer::RunLimit), []);
        let shorter = policy().stop.grace(ms(15));
        assert_eq!(rig.feed(Input::Stop(shorter, StopReason::Shutdown)), [Effect::Arm(Timer::StopGrace, Ns::from_millis(25))]);
        assert_eq!(rig.feed(Input::Kill(StopReason::Shutdown))[..2], [Effect::Cancel(Timer::StopGrace), KILL]);
        assert_eq!(rig.feed(Input::Kill(StopReason::Shutdown)), []);
        assert_eq!(report(&rig), (StopReason::Request, Signal::TERM, true));
    }

    #[test]
    fn a_later_stop_ends_a_grace_that_has_no_end() {
        let mut rig = Rig::running(policy());
        let _ = rig.feed(Input::Stop(policy().stop.grace(Bound::Never), StopReason::Request));
        assert_eq!(rig.stop(), [Effect::Arm(Timer::StopGrace, Ns::from_millis(30))]);
    }

    #[test]
    fn the_run_limit_is_a_stop_with_its_own_reason() {
        let mut rig = Rig::running(Policy { run_limit: Some(ms(10)), ..policy() });
        assert_eq!(rig.due(Timer::RunLimit)[..2], FIRST);
        assert_eq!(report(&rig).0, StopReason::Timeout);
    }

    #[test]
    fn what_survives_kill_is_listed_anew_and_reported_as_stuck() {
        let mut rig = Rig::with_member(policy());
        let _ = rig.feed(Input::Kill(StopReason::Request));
        let _ = rig.feed(Input::Signalled(Signalled::Sent));
        assert_eq!(rig.due(Timer::StuckAfter), [Effect::Scan]);
        assert_eq!(rig.life.stopping(), Ladder::Killing);
        let _ = rig.feed(Input::Members(&[member(9)], true));
        let stuck = rig.life.stop_report().map(|report| (report.stuck, report.denied));
        assert_eq!(stuck, Some((vec![member(9).who], false)));
        assert!(rig.life.is_closed());
    }

    #[test]
    fn one_that_dies_after_all_while_the_stuck_are_listed_is_gone() {
        let mut rig = Rig::with_member(policy());
        let _ = rig.feed(Input::Kill(StopReason::Request));
        let _ = rig.due(Timer::StuckAfter);
        let _ = rig.feed(Input::Members(&[], true));
        assert_eq!(rig.life.stop_report().map(|report| report.stuck.len()), Some(0));
        assert!(rig.life.is_closed());
    }

    #[test]
    fn who_refuses_is_named() {
        let mut rig = Rig::with_member(policy());
        let _ = rig.stop();
        assert_eq!(rig.feed(Input::Signalled(Signalled::Denied)), []);
        let _ = rig.due(Timer::StopGrace);
        assert_eq!(rig.feed(Input::Signalled(Signalled::Denied)), [Effect::Cancel(Timer::StuckAfter), Effect::Scan]);
        let _ = rig.feed(Input::Members(&[member(8)], false));
        let stuck = rig.life.stop_report().map(|report| (report.stuck, report.denied));
        assert_eq!(stuck, Some((vec![member(8).who], true)));
    }

    #[test]
    fn a_signal_without_a_way_is_sent_again_once_it_is_known_who_is_left() {
        // An older kernel, and a stop between the exit and the scan's answer: the leader is reaped, nobody is known yet.
        let mut rig = Rig::exited(policy());
        let _ = rig.feed(Input::Probed(Probe::Alive));
        assert_eq!(rig.stop()[..2], FIRST);
        for _ in FIRST {
            assert_eq!(rig.feed(Input::Signalled(Signalled::NoWay)), []);
        }
        let effects = rig.feed(Input::Members(&[member(1)], true));
        assert_eq!(effects, [&[Effect::Watch][..], &FIRST].concat());
        // Those who were forked after it wait for SIGKILL.
        let _ = rig.feed(Input::Signalled(Signalled::Sent));
        let _ = rig.feed(Input::MemberGone);
        let _ = rig.feed(Input::Probed(Probe::Alive));
        assert_eq!(rig.feed(Input::Members(&[member(2)], true)), [Effect::Watch]);
    }

    #[test]
    fn kill_without_a_way_is_sent_again_too_and_then_given_up() {
        let mut rig = Rig::exited(policy());
        let _ = rig.feed(Input::Probed(Probe::Alive));
        let _ = rig.feed(Input::Kill(StopReason::Request));
        assert_eq!(rig.feed(Input::Signalled(Signalled::NoWay)), []);
        assert_eq!(rig.feed(Input::Members(&[member(1)], true)), [Effect::Watch, KILL]);
        let _ = rig.feed(Input::Signalled(Signalled::NoWay));
        assert_eq!((rig.life.stopping(), rig.at(Timer::StuckAfter)), (Ladder::Over, None));
        assert_eq!(rig.life.stop_report().map(|report| report.stuck), Some(vec![member(1).who]));
    }

    #[test]
    fn with_nobody_left_a_stop_is_over_at_once_and_signals_nobody() {
        let mut rig = Rig::exited(Policy { background: blind().background, ..policy() });
        let _ = rig.stop();
        let _ = rig.feed(Input::Probed(Probe::Empty));
        assert_eq!(rig.life.stopping(), Ladder::Over);
        let mut rig = Rig::exited(policy());
        let _ = rig.feed(Input::Probed(Probe::Empty));
        let effects = rig.feed(Input::Kill(StopReason::Request));
        assert!(!effects.contains(&KILL));
        assert_eq!(report(&rig), (StopReason::Request, Signal::TERM, false));
    }
}
