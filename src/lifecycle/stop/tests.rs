//! The table of `stop.rs`, cell by cell.

use crate::lifecycle::stop::*;
use crate::lifecycle::test_harness::{Rig, blind, code, member, ms, policy};
use crate::lifecycle::{Input, StopStage};
use crate::types::{Policy, Probe};

const FIRST: [Effect; 2] = [
    Effect::SignalGroup(Signal::TERM),
    Effect::SignalGroup(Signal::CONT),
];
const KILL: Effect = Effect::SignalGroup(Signal::KILL);

fn report(rig: &Rig) -> (StopReason, Signal, bool) {
    rig.lifecycle
        .stop_report()
        .map(|report| (report.reason, report.signal, report.escalated))
        .expect("a stop was begun")
}

#[test]
fn a_stop_sends_term_and_cont_and_then_kill_to_the_group() {
    let mut rig = Rig::running(policy());
    assert_eq!(
        rig.stop(),
        [
            &FIRST[..],
            &[Effect::ArmTimer(Timer::StopGrace, Ns::from_millis(30))]
        ]
        .concat()
    );
    assert_eq!(
        (rig.lifecycle.stop_stage(), report(&rig)),
        (
            StopStage::Terminating,
            (StopReason::Request, Signal::TERM, false)
        )
    );
    assert_eq!(
        rig.due(Timer::StopGrace),
        [
            Effect::ArmTimer(Timer::StopGrace, Ns::from_millis(130)),
            Effect::ListMembers
        ]
    );
    assert_eq!(
        (rig.lifecycle.stop_stage(), report(&rig)),
        (
            StopStage::Terminating,
            (StopReason::Request, Signal::TERM, false)
        )
    );
    let effects = rig.feed(Input::Members(&[member(1)], true));
    assert_eq!(
        effects,
        [
            Effect::CancelTimer(Timer::StopGrace),
            KILL,
            Effect::ArmTimer(Timer::StuckAfter, Ns::from_millis(70))
        ]
    );
    assert_eq!(
        (rig.lifecycle.stop_stage(), report(&rig)),
        (
            StopStage::Killing,
            (StopReason::Request, Signal::TERM, true)
        )
    );
}

#[test]
fn a_stop_of_one_that_is_being_spawned_signals_at_once() {
    let mut rig = Rig::spawned(policy());
    assert_eq!(rig.stop()[..2], FIRST);
    let _ = rig.feed(Input::StartFailed);
    let _ = rig.feed(Input::Exit(code(127)));
    assert!(rig.lifecycle.is_closed());
    assert_eq!(
        (rig.lifecycle.stop_stage(), rig.at(Timer::StopGrace)),
        (StopStage::Over, None)
    );
}

#[test]
fn a_stop_is_over_when_the_group_is_empty_and_not_when_the_leader_is_gone() {
    let mut rig = Rig::running(policy());
    let _ = rig.stop();
    let _ = rig.feed(Input::Exit(code(0)));
    let _ = rig.end_streams();
    let _ = rig.feed(Input::ReadDone);
    let _ = rig.feed(Input::Probed(Probe::Alive));
    let _ = rig.feed(Input::Members(&[member(1)], true));
    assert_eq!(
        (rig.lifecycle.stop_stage(), rig.at(Timer::StopGrace)),
        (StopStage::Terminating, Some(30))
    );
    let _ = rig.feed(Input::MemberGone);
    let effects = rig.feed(Input::Probed(Probe::Empty));
    assert!(effects.contains(&Effect::CancelTimer(Timer::StopGrace)));
    assert!(rig.lifecycle.is_closed());
}

#[test]
fn a_member_that_ignores_term_gets_kill_though_the_leader_has_left() {
    let mut rig = Rig::with_member(policy());
    let _ = rig.stop();
    assert!(rig.grace_over(7).contains(&KILL));
}

#[test]
fn a_grace_of_zero_and_a_kill_begin_with_kill_and_one_without_end_has_no_timer() {
    for begin in [
        Input::Kill(StopReason::Shutdown),
        Input::Stop(policy().stop.grace(ms(0)), StopReason::Shutdown),
    ] {
        let mut rig = Rig::running(policy());
        assert_eq!(
            rig.feed(begin),
            [
                KILL,
                Effect::ArmTimer(Timer::StuckAfter, Ns::from_millis(40))
            ]
        );
        assert_eq!(report(&rig), (StopReason::Shutdown, Signal::KILL, true));
    }
    let mut rig = Rig::running(policy());
    let own = policy().stop.grace(Bound::Never).signal(Signal::INT);
    assert_eq!(
        rig.feed(Input::Stop(own, StopReason::Request)),
        [
            Effect::SignalGroup(Signal::INT),
            Effect::SignalGroup(Signal::CONT)
        ]
    );
}

#[test]
fn a_later_stop_only_brings_the_end_nearer_and_the_first_reason_stays() {
    let mut rig = Rig::running(Policy {
        run_limit: Some(ms(10)),
        ..policy()
    });
    let _ = rig.stop();
    rig.now = 5;
    let longer = policy().stop.grace(ms(100));
    assert_eq!(rig.feed(Input::Stop(longer, StopReason::Shutdown)), []);
    assert_eq!(
        rig.feed(Input::Stop(
            longer.grace(Bound::Never),
            StopReason::Shutdown
        )),
        []
    );
    assert_eq!(rig.due(Timer::RunLimit), []);
    let shorter = policy().stop.grace(ms(15));
    assert_eq!(
        rig.feed(Input::Stop(shorter, StopReason::Shutdown)),
        [Effect::ArmTimer(Timer::StopGrace, Ns::from_millis(25))]
    );
    assert_eq!(
        rig.feed(Input::Kill(StopReason::Shutdown))[..2],
        [Effect::CancelTimer(Timer::StopGrace), KILL]
    );
    assert_eq!(rig.feed(Input::Kill(StopReason::Shutdown)), []);
    assert_eq!(report(&rig), (StopReason::Request, Signal::TERM, true));
}

#[test]
fn a_later_stop_ends_a_grace_that_has_no_end() {
    let mut rig = Rig::running(policy());
    let _ = rig.feed(Input::Stop(
        policy().stop.grace(Bound::Never),
        StopReason::Request,
    ));
    assert_eq!(
        rig.stop(),
        [Effect::ArmTimer(Timer::StopGrace, Ns::from_millis(30))]
    );
}

#[test]
fn the_run_limit_is_a_stop_with_its_own_reason() {
    let mut rig = Rig::running(Policy {
        run_limit: Some(ms(10)),
        ..policy()
    });
    assert_eq!(rig.due(Timer::RunLimit)[..2], FIRST);
    assert_eq!(report(&rig).0, StopReason::Timeout);
}

#[test]
fn what_survives_kill_is_listed_anew_and_reported_as_stuck() {
    let mut rig = Rig::with_member(policy());
    let _ = rig.feed(Input::Kill(StopReason::Request));
    let _ = rig.feed(Input::Signalled(Signalled::Sent));
    assert_eq!(rig.due(Timer::StuckAfter), [Effect::ListMembers]);
    assert_eq!(rig.lifecycle.stop_stage(), StopStage::Killing);
    assert!(rig.feed(Input::Members(&[member(9)], true)).contains(&KILL));
    let stuck = rig
        .lifecycle
        .stop_report()
        .map(|report| (report.stuck, report.denied));
    assert_eq!(stuck, Some((vec![member(9).who], false)));
    assert!(rig.lifecycle.is_closed());
}

#[test]
fn one_that_dies_after_all_while_the_stuck_are_listed_is_gone() {
    let mut rig = Rig::with_member(policy());
    let _ = rig.feed(Input::Kill(StopReason::Request));
    let _ = rig.due(Timer::StuckAfter);
    let _ = rig.feed(Input::Members(&[], true));
    assert_eq!(
        rig.lifecycle.stop_report().map(|report| report.stuck.len()),
        Some(0)
    );
    assert!(rig.lifecycle.is_closed());
}

#[test]
fn who_refuses_is_named() {
    let mut rig = Rig::with_member(policy());
    let _ = rig.stop();
    assert_eq!(rig.feed(Input::Signalled(Signalled::Denied)), []);
    let _ = rig.grace_over(7);
    assert_eq!(
        rig.feed(Input::Signalled(Signalled::Denied)),
        [Effect::CancelTimer(Timer::StuckAfter), Effect::ListMembers]
    );
    let _ = rig.feed(Input::Members(&[member(8)], false));
    let stuck = rig
        .lifecycle
        .stop_report()
        .map(|report| (report.stuck, report.denied));
    assert_eq!(stuck, Some((vec![member(8).who], true)));
}

#[test]
fn a_signal_without_a_way_is_sent_again_once_it_is_known_who_is_left() {
    // An older kernel, and a stop between the exit and the scan's answer: the leader is reaped,
    // nobody is known yet.
    let mut rig = Rig::exited(policy());
    let _ = rig.feed(Input::Probed(Probe::Alive));
    assert_eq!(rig.stop()[..2], FIRST);
    for _ in FIRST {
        assert_eq!(rig.feed(Input::Signalled(Signalled::NoWay)), []);
    }
    let effects = rig.feed(Input::Members(&[member(1)], true));
    assert_eq!(effects, [&[Effect::WatchMembers][..], &FIRST].concat());
    // Those who were forked after it wait for SIGKILL.
    let _ = rig.feed(Input::Signalled(Signalled::Sent));
    let _ = rig.feed(Input::MemberGone);
    let _ = rig.feed(Input::Probed(Probe::Alive));
    assert_eq!(
        rig.feed(Input::Members(&[member(2)], true)),
        [Effect::WatchMembers]
    );
}

#[test]
fn kill_without_a_way_is_sent_again_too_and_then_given_up() {
    let mut rig = Rig::exited(policy());
    let _ = rig.feed(Input::Probed(Probe::Alive));
    let _ = rig.feed(Input::Kill(StopReason::Request));
    assert_eq!(rig.feed(Input::Signalled(Signalled::NoWay)), []);
    assert_eq!(
        rig.feed(Input::Members(&[member(1)], true)),
        [Effect::WatchMembers, KILL]
    );
    let _ = rig.feed(Input::Signalled(Signalled::NoWay));
    assert_eq!(
        (rig.lifecycle.stop_stage(), rig.at(Timer::StuckAfter)),
        (StopStage::Over, None)
    );
    assert_eq!(
        rig.lifecycle.stop_report().map(|report| report.stuck),
        Some(vec![member(1).who])
    );
}

#[test]
fn with_nobody_left_a_stop_is_over_at_once_and_signals_nobody() {
    let mut rig = Rig::exited(Policy {
        background: blind().background,
        ..policy()
    });
    let _ = rig.stop();
    let _ = rig.feed(Input::Probed(Probe::Empty));
    assert_eq!(rig.lifecycle.stop_stage(), StopStage::Over);
    let mut rig = Rig::exited(policy());
    let _ = rig.feed(Input::Probed(Probe::Empty));
    let effects = rig.feed(Input::Kill(StopReason::Request));
    assert!(!effects.contains(&KILL));
    assert_eq!(report(&rig), (StopReason::Request, Signal::TERM, false));
}

#[test]
fn who_needs_kill_is_counted_before_it_is_sent_but_not_waited_for_long() {
    let mut rig = Rig::running(policy());
    let _ = rig.stop();
    let _ = rig.due(Timer::StopGrace);
    assert_eq!(rig.due(Timer::StopGrace)[0], KILL);
    assert_eq!(rig.now, 130);
    let mut rig = Rig::running(policy());
    let _ = rig.stop();
    let _ = rig.due(Timer::StopGrace);
    assert_eq!(
        rig.feed(Input::Kill(StopReason::Request))[..2],
        [Effect::CancelTimer(Timer::StopGrace), KILL]
    );
    // Whoever dies while it is counted did not need it.
    let mut rig = Rig::with_member(policy());
    let _ = rig.stop();
    let _ = rig.due(Timer::StopGrace);
    let _ = rig.feed(Input::Members(&[], true));
    assert_eq!(
        (rig.lifecycle.stop_stage(), report(&rig).2),
        (StopStage::Over, false)
    );
}

#[test]
fn members_outside_the_group_are_looked_for_and_get_the_signal_when_they_are_found() {
    let mut lifecycle =
        super::super::Lifecycle::new(policy(), [true, true], false, true).looking_outside(true);
    let mut feed = |now, input| lifecycle.handle(Ns::from_millis(now), input).to_vec();
    let _ = feed(0, Input::Started);
    let effects = feed(0, Input::Stop(policy().stop, StopReason::Request));
    assert_eq!(
        (&effects[..2], effects.last()),
        (&FIRST[..], Some(&Effect::ListMembers))
    );
    let _ = feed(0, Input::Signalled(Signalled::Sent));
    let effects = feed(1, Input::Members(&[member(1), member(2)], true));
    assert_eq!(
        effects,
        [
            Effect::SignalEscapees(Signal::TERM),
            Effect::SignalEscapees(Signal::CONT)
        ]
    );
}
