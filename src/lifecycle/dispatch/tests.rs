//! Tests of what the four machines do together: the zombie, the end, detaching, dropping.

use super::*;
use crate::lifecycle::State;
use crate::lifecycle::test_harness::{Harness, blind, code, member, ms, notifications, policy};
use crate::report::{ContainedBy, SettledAs, StopReason};
use crate::types::{DetachError, Probe, Signal, Signalled, Stream};

#[test]
fn the_leader_is_kept_only_where_its_number_may_be_needed() {
    let keep = |policy, flag, stop: bool, open: bool| {
        let mut harness = Harness::on(policy, [open, false], flag);
        let _ = harness.handle(Input::Started);
        if stop {
            let _ = harness.stop();
        }
        harness.lifecycle.collect_mode()
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
        let mut harness = Harness::on(blind(), [true, false], flag);
        let _ = harness.handle(Input::Started);
        let _ = harness.handle(Input::Exit(code(0)));
        let _ = harness.handle(Input::Ended(Stream::Stdout, StreamEnd::Eof));
        let effects = harness.handle(Input::ReadDone);
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
    let mut harness = Harness::on(
        Policy {
            run_limit: Some(ms(500)),
            ..policy()
        },
        [true, false],
        false,
    );
    let _ = harness.handle(Input::Started);
    let _ = harness.stop();
    let _ = harness.handle(Input::Signalled(Signalled::Sent));
    let _ = harness.handle(Input::Exit(code(0)));
    let _ = harness.handle(Input::ReadDone);
    let _ = harness.handle(Input::Probed(Probe::Unknown));
    let _ = harness.handle(Input::Members(&[member(1)], true));
    let _ = harness.grace_over(1);
    let _ = harness.handle(Input::Signalled(Signalled::NoWay));
    let _ = harness.handle(Input::ReadDone);
    let effects = harness.handle(Input::Holders(&[], true));
    let tell = [Notification::Drained { warn: false }, Notification::Settled].map(Effect::Notify);
    assert_eq!(effects, [&tell[..], &[Effect::ReadAvailable]].concat());
    let effects = harness.handle(Input::ReadDone);
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
        notifications(&feed(Input::Probed(Probe::Empty))),
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
    let mut harness = Harness::exited(Policy {
        run_limit: Some(ms(500)),
        ..policy()
    });
    let _ = harness.handle(Input::Probed(Probe::Alive));
    let _ = harness.handle(Input::Members(&[member(1)], true));
    let _ = harness.handle(Input::Stop(policy().stop, StopReason::Request));
    assert_eq!(harness.lifecycle.can_detach(), Ok(()));
    let effects = harness.handle(Input::Detach);
    assert_eq!(effects.first(), Some(&Effect::UnwatchMembers));
    assert_eq!(effects.last(), Some(&Effect::Release(Release::HandOver)));
    assert_eq!(
        (
            notifications(&effects),
            harness.lifecycle.state(),
            harness.lifecycle.is_closed()
        ),
        (vec![], State::Detached, true)
    );
    assert!(Timer::ALL.iter().all(|timer| harness.at(*timer).is_none()));
    assert_eq!(harness.lifecycle.can_detach(), Err(DetachError::Gone));
    assert_eq!(
        harness
            .lifecycle
            .settled(Ns::MAX, ContainedBy::Group)
            .map(|s| s.state),
        Some(SettledAs::Kept)
    );
}

#[test]
fn what_has_not_started_or_is_being_killed_is_not_let_go() {
    let mut harness = Harness::spawned(policy());
    assert_eq!(harness.lifecycle.can_detach(), Err(DetachError::NotStarted));
    assert!(harness.handle(Input::Detach).is_empty());
    let _ = harness.handle(Input::StartFailed);
    assert_eq!(harness.lifecycle.can_detach(), Err(DetachError::NotStarted));
    let mut harness = Harness::running(policy());
    let _ = harness.handle(Input::Kill(StopReason::Request));
    assert_eq!(harness.lifecycle.can_detach(), Err(DetachError::Killing));
    assert!(harness.handle(Input::Detach).is_empty());
    assert_eq!(harness.lifecycle.state(), State::Running);
}

#[test]
fn a_loop_that_ends_kills_what_is_not_closed_but_not_what_was_kept_on_purpose() {
    let mut harness = Harness::running(policy());
    assert_eq!(
        harness.handle(Input::Abandon)[0],
        Effect::SignalGroup(Signal::KILL)
    );
    let reported = crate::types::BackgroundPolicy::report_only().grace(ms(0));
    let mut harness = Harness::exited(Policy {
        background: reported,
        ..policy()
    });
    let _ = harness.handle(Input::Probed(Probe::Alive));
    let _ = harness.handle(Input::Members(&[member(1)], true));
    assert!(harness.handle(Input::Abandon).is_empty());
}

#[test]
fn a_timer_that_was_cancelled_in_the_same_turn_changes_nothing() {
    let mut harness = Harness::exited(policy());
    let _ = harness.end_streams();
    let before = harness.lifecycle.clone();
    assert!(harness.handle(Input::Due(Timer::DrainIdle)).is_empty());
    assert!(harness.handle(Input::Due(Timer::BackgroundWait)).is_empty());
    assert_eq!(harness.lifecycle, before);
}

#[test]
fn a_generation_with_nobody_looking_waits_for_its_stop_all_the_same() {
    let mut harness = Harness::running(blind());
    let _ = harness.stop();
    let _ = harness.handle(Input::Signalled(Signalled::Sent));
    let _ = harness.handle(Input::Exit(code(0)));
    assert_eq!(
        notifications(&harness.end_streams()),
        [Notification::Drained { warn: false }, Notification::Settled]
    );
    let _ = harness.handle(Input::ReadDone);
    let _ = harness.handle(Input::Probed(Probe::Alive));
    let _ = harness.handle(Input::Members(&[member(1)], true));
    let _ = harness.handle(Input::MemberGone);
    assert!(!harness.lifecycle.is_closed());
    assert_eq!(
        notifications(&harness.handle(Input::Probed(Probe::Empty))),
        [Notification::Closed]
    );
}

#[test]
fn a_life_is_small() {
    assert!(size_of::<Lifecycle>() <= 640, "{}", size_of::<Lifecycle>());
}
