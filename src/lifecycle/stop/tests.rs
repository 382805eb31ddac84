//! Tests of the stop, state by state.

use crate::lifecycle::stop::*;
use crate::lifecycle::test_harness::{Harness, blind, code, member, ms, policy};
use crate::lifecycle::{Input, StopStage};
use crate::types::{Bound, Policy, Probe, Signalled};

const FIRST: [Effect; 2] = [
    Effect::SignalGroup(Signal::TERM),
    Effect::SignalGroup(Signal::CONT),
];
const KILL: Effect = Effect::SignalGroup(Signal::KILL);

fn report(harness: &Harness) -> (StopReason, Signal, bool) {
    harness
        .lifecycle
        .stop_report()
        .map(|report| (report.reason, report.signal, report.escalated))
        .expect("a stop was begun")
}

#[test]
fn a_stop_sends_term_and_cont_and_then_kill_to_the_group() {
    let mut harness = Harness::running(policy());
    assert_eq!(
        harness.stop(),
        [
            &FIRST[..],
            &[Effect::ArmTimer(Timer::StopGrace, Ns::from_millis(30))]
        ]
        .concat()
    );
    assert_eq!(
        (harness.lifecycle.stop_stage(), report(&harness)),
        (
            StopStage::Terminating,
            (StopReason::Request, Signal::TERM, false)
        )
    );
    assert_eq!(
        harness.due(Timer::StopGrace),
        [
            Effect::ArmTimer(Timer::StopGrace, Ns::from_millis(1030)),
            Effect::ListMembers
        ]
    );
    assert_eq!(
        (harness.lifecycle.stop_stage(), report(&harness)),
        (
            StopStage::Terminating,
            (StopReason::Request, Signal::TERM, false)
        )
    );
    let effects = harness.handle(Input::Members(&[member(1)], true));
    assert_eq!(
        effects,
        [
            Effect::CancelTimer(Timer::StopGrace),
            KILL,
            Effect::ArmTimer(Timer::StuckAfter, Ns::from_millis(70))
        ]
    );
    assert_eq!(
        (harness.lifecycle.stop_stage(), report(&harness)),
        (
            StopStage::Killing,
            (StopReason::Request, Signal::TERM, true)
        )
    );
}

#[test]
fn a_stop_of_one_that_is_being_spawned_signals_at_once() {
    let mut harness = Harness::spawned(policy());
    assert_eq!(harness.stop()[..2], FIRST);
    let _ = harness.handle(Input::StartFailed);
    let _ = harness.handle(Input::Exit(code(127)));
    assert!(harness.lifecycle.is_closed());
    assert_eq!(
        (harness.lifecycle.stop_stage(), harness.at(Timer::StopGrace)),
        (StopStage::Over, None)
    );
}

#[test]
fn a_stop_is_over_when_the_group_is_empty_and_not_when_the_leader_is_gone() {
    let mut harness = Harness::running(policy());
    let _ = harness.stop();
    let _ = harness.handle(Input::Exit(code(0)));
    let _ = harness.end_streams();
    let _ = harness.handle(Input::ReadDone);
    let _ = harness.handle(Input::Probed(Probe::Alive));
    let _ = harness.handle(Input::Members(&[member(1)], true));
    assert_eq!(
        (harness.lifecycle.stop_stage(), harness.at(Timer::StopGrace)),
        (StopStage::Terminating, Some(30))
    );
    let _ = harness.handle(Input::MemberGone);
    let effects = harness.handle(Input::Probed(Probe::Empty));
    assert!(effects.contains(&Effect::CancelTimer(Timer::StopGrace)));
    assert!(harness.lifecycle.is_closed());
}

#[test]
fn a_member_that_ignores_term_gets_kill_though_the_leader_has_left() {
    let mut harness = Harness::with_member(policy());
    let _ = harness.stop();
    assert!(harness.grace_over(7).contains(&KILL));
}

/// CASES 95
#[test]
fn a_grace_of_zero_kill_as_the_signal_and_a_kill_are_the_same_and_one_without_end_has_no_timer() {
    for begin in [
        Input::Kill(StopReason::Shutdown),
        Input::Stop(policy().stop.grace(ms(0)), StopReason::Shutdown),
        Input::Stop(policy().stop.signal(Signal::KILL), StopReason::Shutdown),
    ] {
        let mut harness = Harness::running(policy());
        assert_eq!(
            harness.handle(begin),
            [
                KILL,
                Effect::ArmTimer(Timer::StuckAfter, Ns::from_millis(40))
            ]
        );
        assert_eq!(report(&harness), (StopReason::Shutdown, Signal::KILL, true));
    }
    let mut harness = Harness::running(policy());
    let own = policy().stop.grace(Bound::Never).signal(Signal::INT);
    assert_eq!(
        harness.handle(Input::Stop(own, StopReason::Request)),
        [
            Effect::SignalGroup(Signal::INT),
            Effect::SignalGroup(Signal::CONT)
        ]
    );
}

#[test]
fn a_later_stop_only_brings_the_end_nearer_and_the_first_reason_stays() {
    let mut harness = Harness::running(Policy {
        run_limit: Some(ms(10)),
        ..policy()
    });
    let _ = harness.stop();
    harness.now = 5;
    let longer = policy().stop.grace(ms(100));
    assert_eq!(
        harness.handle(Input::Stop(longer, StopReason::Shutdown)),
        []
    );
    assert_eq!(
        harness.handle(Input::Stop(
            longer.grace(Bound::Never),
            StopReason::Shutdown
        )),
        []
    );
    assert_eq!(harness.due(Timer::RunLimit), []);
    let shorter = policy().stop.grace(ms(15));
    assert_eq!(
        harness.handle(Input::Stop(shorter, StopReason::Shutdown)),
        [Effect::ArmTimer(Timer::StopGrace, Ns::from_millis(25))]
    );
    assert_eq!(
        harness.handle(Input::Kill(StopReason::Shutdown))[..2],
        [Effect::CancelTimer(Timer::StopGrace), KILL]
    );
    assert_eq!(harness.handle(Input::Kill(StopReason::Shutdown)), []);
    assert_eq!(report(&harness), (StopReason::Request, Signal::TERM, true));
}

#[test]
fn a_later_stop_ends_a_grace_that_has_no_end() {
    let mut harness = Harness::running(policy());
    let _ = harness.handle(Input::Stop(
        policy().stop.grace(Bound::Never),
        StopReason::Request,
    ));
    assert_eq!(
        harness.stop(),
        [Effect::ArmTimer(Timer::StopGrace, Ns::from_millis(30))]
    );
}

#[test]
fn the_run_limit_is_a_stop_with_its_own_reason() {
    let mut harness = Harness::running(Policy {
        run_limit: Some(ms(10)),
        ..policy()
    });
    assert_eq!(harness.due(Timer::RunLimit)[..2], FIRST);
    assert_eq!(report(&harness).0, StopReason::Timeout);
}

#[test]
fn what_survives_kill_is_listed_anew_and_reported_as_stuck() {
    let mut harness = Harness::with_member(policy());
    let _ = harness.handle(Input::Kill(StopReason::Request));
    let _ = harness.handle(Input::Signalled(Signalled::Sent));
    assert_eq!(harness.due(Timer::StuckAfter), [Effect::ListMembers]);
    assert_eq!(harness.lifecycle.stop_stage(), StopStage::Killing);
    assert!(
        harness
            .handle(Input::Members(&[member(9)], true))
            .contains(&KILL)
    );
    let stuck = harness
        .lifecycle
        .stop_report()
        .map(|report| (report.stuck, report.denied));
    assert_eq!(stuck, Some((vec![member(9).who], false)));
    assert!(harness.lifecycle.is_closed());
}

#[test]
fn one_that_dies_after_all_while_the_stuck_are_listed_is_gone() {
    let mut harness = Harness::with_member(policy());
    let _ = harness.handle(Input::Kill(StopReason::Request));
    let _ = harness.due(Timer::StuckAfter);
    let _ = harness.handle(Input::Members(&[], true));
    assert_eq!(
        harness
            .lifecycle
            .stop_report()
            .map(|report| report.stuck.len()),
        Some(0)
    );
    assert!(harness.lifecycle.is_closed());
}

#[test]
fn who_refuses_is_named() {
    let mut harness = Harness::with_member(policy());
    let _ = harness.stop();
    assert_eq!(harness.handle(Input::Signalled(Signalled::Denied)), []);
    let _ = harness.grace_over(7);
    assert_eq!(
        harness.handle(Input::Signalled(Signalled::Denied)),
        [Effect::CancelTimer(Timer::StuckAfter), Effect::ListMembers]
    );
    let _ = harness.handle(Input::Members(&[member(8)], false));
    let stuck = harness
        .lifecycle
        .stop_report()
        .map(|report| (report.stuck, report.denied));
    assert_eq!(stuck, Some((vec![member(8).who], true)));
}

/// Members were known, all of those have ended, and a new list is under way.
fn listing_again() -> Harness {
    let mut harness = Harness::with_member(policy());
    let _ = harness.handle(Input::MemberGone);
    assert_eq!(
        harness.handle(Input::Probed(Probe::Alive)),
        [Effect::ListMembers]
    );
    harness
}

#[test]
fn a_signal_without_a_way_is_sent_again_once_it_is_known_who_is_left() {
    // An older kernel: the leader is reaped, and nobody who is left is known.
    let mut harness = listing_again();
    assert_eq!(harness.stop()[..2], FIRST);
    for _ in FIRST {
        assert_eq!(harness.handle(Input::Signalled(Signalled::NoWay)), []);
    }
    let effects = harness.handle(Input::Members(&[member(1)], true));
    assert_eq!(effects, [&[Effect::WatchMembers][..], &FIRST].concat());
    // Those who were forked after it wait for SIGKILL.
    let _ = harness.handle(Input::Signalled(Signalled::Sent));
    let _ = harness.handle(Input::MemberGone);
    let _ = harness.handle(Input::Probed(Probe::Alive));
    assert_eq!(
        harness.handle(Input::Members(&[member(2)], true)),
        [Effect::WatchMembers]
    );
}

#[test]
fn kill_without_a_way_is_sent_again_too_and_then_given_up() {
    let mut harness = listing_again();
    let _ = harness.handle(Input::Kill(StopReason::Request));
    assert_eq!(harness.handle(Input::Signalled(Signalled::NoWay)), []);
    assert_eq!(
        harness.handle(Input::Members(&[member(1)], true)),
        [Effect::WatchMembers, KILL]
    );
    let _ = harness.handle(Input::Signalled(Signalled::NoWay));
    assert_eq!(
        (
            harness.lifecycle.stop_stage(),
            harness.at(Timer::StuckAfter)
        ),
        (StopStage::Over, None)
    );
    assert_eq!(
        harness.lifecycle.stop_report().map(|report| report.stuck),
        Some(vec![member(1).who])
    );
}

#[test]
fn with_nobody_left_a_stop_is_over_at_once_and_signals_nobody() {
    let mut harness = Harness::exited(Policy {
        background: blind().background,
        ..policy()
    });
    let _ = harness.stop();
    let _ = harness.handle(Input::Probed(Probe::Empty));
    assert_eq!(harness.lifecycle.stop_stage(), StopStage::Over);
    let mut harness = Harness::exited(policy());
    let _ = harness.handle(Input::Probed(Probe::Empty));
    let effects = harness.handle(Input::Kill(StopReason::Request));
    assert!(!effects.contains(&KILL));
    assert_eq!(report(&harness), (StopReason::Request, Signal::TERM, false));
}

#[test]
fn who_needs_kill_is_counted_before_it_is_sent_but_not_waited_for_long() {
    let mut harness = Harness::running(policy());
    let _ = harness.stop();
    let _ = harness.due(Timer::StopGrace);
    assert_eq!(harness.due(Timer::StopGrace)[0], KILL);
    assert_eq!(harness.now, 1030);
    let mut harness = Harness::running(policy());
    let _ = harness.stop();
    let _ = harness.due(Timer::StopGrace);
    assert_eq!(
        harness.handle(Input::Kill(StopReason::Request))[..2],
        [Effect::CancelTimer(Timer::StopGrace), KILL]
    );
    // Whoever dies while it is counted did not need it.
    let mut harness = Harness::with_member(policy());
    let _ = harness.stop();
    let _ = harness.due(Timer::StopGrace);
    let _ = harness.handle(Input::Members(&[], true));
    assert_eq!(
        (harness.lifecycle.stop_stage(), report(&harness).2),
        (StopStage::Over, false)
    );
}

#[test]
fn members_outside_the_group_are_looked_for_and_get_the_signal_when_they_are_found() {
    let mut lifecycle =
        super::super::Lifecycle::new(policy(), [true, true], false, true).with_containment(true);
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

/// CASES 94: the report is to say whom the stop has ended.
#[test]
fn a_stop_after_the_exit_waits_for_the_list_that_is_under_way_and_not_for_long() {
    for (too_slow, begin) in [
        (false, Input::Stop(policy().stop, StopReason::Request)),
        (true, Input::Stop(policy().stop, StopReason::Request)),
        (false, Input::Kill(StopReason::Request)),
        (true, Input::Kill(StopReason::Request)),
    ] {
        let mut harness = Harness::exited(policy());
        let _ = harness.handle(Input::Probed(Probe::Alive));
        let limit = limits::SURVIVOR_LIST_TIME;
        let effects = harness.handle(begin);
        assert!(effects.contains(&Effect::ArmTimer(Timer::StopGrace, limit.into())));
        assert!(!effects.iter().any(|e| matches!(e, Effect::SignalGroup(_))));
        let effects = if too_slow {
            harness.due(Timer::StopGrace)
        } else {
            harness.handle(Input::Members(&[member(7)], true))
        };
        let kills = matches!(begin, Input::Kill(_));
        assert_eq!(effects.contains(&KILL), kills);
        assert_eq!(effects.contains(&FIRST[0]), !kills);
        let grace = (!kills).then_some(harness.now + 30);
        assert_eq!(harness.at(Timer::StopGrace), grace);
    }
}

#[test]
fn a_later_stop_shortens_one_that_waits_for_the_list() {
    let mut harness = Harness::exited(policy());
    let _ = harness.handle(Input::Probed(Probe::Alive));
    let _ = harness.stop();
    let shorter = policy().stop.grace(ms(3));
    assert_eq!(
        harness.handle(Input::Stop(shorter, StopReason::Request)),
        []
    );
    assert_eq!(harness.handle(Input::Kill(StopReason::Request)), []);
    let effects = harness.handle(Input::Members(&[member(7)], true));
    assert!(effects.contains(&KILL) && !effects.contains(&FIRST[0]));
}

#[test]
fn a_loop_that_is_dropped_waits_for_no_list() {
    for stopped in [false, true] {
        let mut harness = Harness::exited(policy());
        let _ = harness.handle(Input::Probed(Probe::Alive));
        if stopped {
            let _ = harness.stop();
        }
        assert!(harness.handle(Input::Abandon).contains(&KILL));
    }
}
