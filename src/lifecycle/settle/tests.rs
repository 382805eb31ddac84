//! Tests of settling, state by state, and of what SPEC 4 says of it.

use crate::lifecycle::settle::*;
use crate::lifecycle::test_harness::{Harness, blind, code, member, ms, notifications, policy};
use crate::lifecycle::{Effect, Input};
use crate::report::ContainedBy;
use crate::types::{BackgroundPolicy, Probe, Release, Signal, Signalled, Stream};

fn with(background: BackgroundPolicy) -> crate::types::Policy {
    crate::types::Policy {
        background,
        ..policy()
    }
}

fn state(harness: &Harness) -> Option<SettledAs> {
    harness
        .lifecycle
        .settled(Ns::MAX, ContainedBy::Group)
        .map(|settled| settled.state)
}

/// One whose member has outlived the grace and is waited for.
fn waiting(policy: crate::types::Policy) -> Harness {
    let mut harness = Harness::with_member(policy);
    assert_eq!(harness.due(Timer::BackgroundGrace), [Effect::ListMembers]);
    let effects = harness.handle(Input::Members(&[member(7), member(8)], true));
    assert_eq!(notifications(&effects), [Notification::BackgroundWait]);
    assert_eq!(harness.lifecycle.members(), [member(7), member(8)]);
    harness
}

fn group_ends(harness: &mut Harness) -> Vec<Effect> {
    let _ = harness.handle(Input::MemberGone);
    harness.handle(Input::Probed(Probe::Empty))
}

#[test]
fn ordinary_teardown_within_the_grace_is_no_background_work() {
    let mut harness = Harness::with_member(policy());
    assert_eq!(harness.at(Timer::BackgroundGrace), Some(10));
    harness.now = 4;
    let effects = group_ends(&mut harness);
    assert_eq!(
        notifications(&effects),
        [Notification::Settled, Notification::Closed]
    );
    let settled = harness.lifecycle.settled(Ns::MAX, ContainedBy::Group);
    assert_eq!(
        settled.map(|s| (s.state, s.waited, s.processes)),
        Some((SettledAs::None, ms(4), vec![]))
    );
}

#[test]
fn what_outlives_the_grace_is_listed_as_of_then_and_waited_for() {
    let mut harness = waiting(policy());
    assert_eq!(harness.at(Timer::BackgroundWait), Some(110));
    harness.now = 50;
    let effects = group_ends(&mut harness);
    assert_eq!(
        notifications(&effects),
        [Notification::Settled, Notification::Closed]
    );
    let settled = harness
        .lifecycle
        .settled(Ns::MAX, ContainedBy::Group)
        .expect("settled");
    assert_eq!(
        (settled.state, settled.waited, settled.processes.len()),
        (SettledAs::Finished, ms(50), 2)
    );
    assert_eq!(settled.state.complete(), Some(true));
}

#[test]
fn what_ends_while_it_is_listed_is_none() {
    let mut harness = Harness::with_member(policy());
    let _ = harness.due(Timer::BackgroundGrace);
    let _ = harness.handle(Input::Members(&[], true));
    assert_eq!(state(&harness), Some(SettledAs::None));
}

#[test]
fn a_grace_that_has_passed_or_is_zero_is_not_waited_for() {
    let mut late = Harness::exited(policy());
    late.now = 10;
    let mut zero = Harness::exited(with(policy().background.grace(ms(0))));
    for harness in [&mut late, &mut zero] {
        assert_eq!(
            harness.handle(Input::Probed(Probe::Alive)),
            [Effect::ListMembers]
        );
        assert_eq!(
            notifications(&harness.handle(Input::Members(&[member(1)], true))),
            [Notification::BackgroundWait]
        );
    }
}

#[test]
fn what_outlives_the_wait_is_terminated_with_a_grace_of_its_own() {
    let mut harness = waiting(policy());
    let effects = harness.due(Timer::BackgroundWait);
    assert_eq!(effects[0], Effect::SignalGroup(Signal::TERM));
    assert_eq!(harness.at(Timer::StopGrace), Some(170));
    let _ = harness.handle(Input::Signalled(Signalled::Sent));
    let _ = group_ends(&mut harness);
    assert_eq!(state(&harness), Some(SettledAs::Terminated));
    assert_eq!(
        harness.lifecycle.stop_report().map(|report| report.reason),
        Some(StopReason::Background)
    );
    assert_eq!(
        harness.lifecycle.outcome(),
        Some(crate::types::Outcome::Succeeded)
    );
}

#[test]
fn members_that_die_of_sigkill_together_with_the_leader_are_none() {
    for alive in [false, true] {
        let mut harness = Harness::running(policy());
        let _ = harness.handle(Input::Kill(StopReason::Request));
        let _ = harness.handle(Input::Signalled(Signalled::Sent));
        let _ = harness.handle(Input::Exit(code(0)));
        let _ = harness.handle(Input::Probed(Probe::Alive));
        if alive {
            let _ = harness.handle(Input::Members(&[member(7)], true));
            let _ = group_ends(&mut harness);
        } else {
            let _ = harness.handle(Input::Members(&[], true));
        }
        assert_eq!(
            state(&harness),
            Some(if alive {
                SettledAs::Terminated
            } else {
                SettledAs::None
            })
        );
    }
}

#[test]
fn what_had_ended_before_the_signal_has_finished() {
    let mut harness = waiting(policy());
    let _ = harness.due(Timer::BackgroundWait);
    assert_eq!(
        harness.handle(Input::Signalled(Signalled::Empty)),
        [Effect::ProbeGroup]
    );
    let _ = harness.handle(Input::Probed(Probe::Empty));
    assert_eq!(state(&harness), Some(SettledAs::Finished));
}

#[test]
fn a_wait_of_zero_terminates_at_once_and_says_whom() {
    let mut harness = Harness::with_member(with(policy().background.wait(Wait::For(ms(0)))));
    let _ = harness.due(Timer::BackgroundGrace);
    let effects = harness.handle(Input::Members(&[member(7)], true));
    let term = Effect::SignalGroup(Signal::TERM);
    assert_eq!(
        effects[..3],
        [
            Effect::WatchMembers,
            Effect::Notify(Notification::BackgroundWait),
            term
        ]
    );
}

#[test]
fn a_terminate_grace_of_zero_kills() {
    let mut harness = waiting(with(policy().background.terminate_grace(ms(0))));
    assert_eq!(
        harness.due(Timer::BackgroundWait)[0],
        Effect::SignalGroup(Signal::KILL)
    );
}

#[test]
fn work_that_is_only_reported_or_kept_lives_on_and_so_does_its_pipe() {
    for keep in [false, true] {
        let background = if keep {
            policy().background.keep_orphans(true)
        } else {
            policy().background.wait(Wait::ReportOnly)
        };
        let mut harness = Harness::exited(with(background));
        let _ = harness.handle(Input::Ended(Stream::Stdout, crate::report::StreamEnd::Eof));
        let _ = harness.handle(Input::Probed(Probe::Alive));
        let _ = harness.handle(Input::Members(&[member(1)], true));
        let _ = harness.due(Timer::BackgroundGrace);
        let _ = harness.handle(Input::Members(&[member(1)], true));
        if keep {
            let _ = harness.due(Timer::BackgroundWait);
        }
        let _ = harness.due(Timer::DrainIdle);
        let _ = harness.handle(Input::ReadDone);
        let effects = harness.handle(Input::Holders(&[], true));
        let expected = [
            Notification::Drained { warn: true },
            Notification::Settled,
            Notification::Closed,
        ];
        assert_eq!(notifications(&effects), expected);
        assert!(effects.contains(&Effect::Release(Release::Linger)));
        assert!(!effects.contains(&Effect::CloseStream(Stream::Stderr)));
        assert_eq!(
            harness.lifecycle.stream_end(Stream::Stderr),
            Some(crate::report::StreamEnd::Held)
        );
        assert_eq!(
            state(&harness),
            Some(if keep {
                SettledAs::Kept
            } else {
                SettledAs::Reported
            })
        );
    }
}

#[test]
fn reported_work_without_a_pipe_of_ours_leaves_nothing_behind() {
    let mut harness = Harness::with_member(with(policy().background.wait(Wait::ReportOnly)));
    let _ = harness.due(Timer::BackgroundGrace);
    let effects = harness.handle(Input::Members(&[member(7)], true));
    assert_eq!(
        notifications(&effects),
        [Notification::Settled, Notification::Closed]
    );
    assert!(effects.contains(&Effect::Release(Release::Close)));
}

#[test]
fn a_stop_ends_the_grace_the_listing_and_the_wait() {
    let mut listing = Harness::with_member(policy());
    let _ = listing.due(Timer::BackgroundGrace);
    let lives = [Harness::with_member(policy()), waiting(policy()), listing];
    for mut harness in lives {
        let effects = harness.stop();
        assert_eq!(
            effects
                .iter()
                .filter(|e| matches!(e, Effect::SignalGroup(_)))
                .count(),
            2
        );
        assert_eq!(
            (
                harness.at(Timer::BackgroundGrace),
                harness.at(Timer::BackgroundWait)
            ),
            (None, None)
        );
        let _ = harness.handle(Input::Signalled(Signalled::Sent));
        if harness.lifecycle.phases()[1] == "Listing" {
            let _ = harness.handle(Input::Members(&[], true));
        } else {
            let _ = group_ends(&mut harness);
        }
        let settled = harness
            .lifecycle
            .settled(Ns::MAX, ContainedBy::Group)
            .expect("settled");
        assert_eq!(
            (settled.state, settled.state.complete()),
            (SettledAs::Terminated, Some(false))
        );
        assert!(settled.processes.contains(&member(7).who));
    }
}

/// CASES 94
#[test]
fn work_that_a_deadline_cuts_off_after_the_exit_is_terminated_whatever_the_grace() {
    let mut harness = Harness::exited(crate::types::Policy {
        run_limit: Some(ms(5)),
        ..policy()
    });
    let _ = harness.handle(Input::Probed(Probe::Alive));
    let _ = harness.handle(Input::Members(&[member(7)], true));
    let effects = harness.due(Timer::RunLimit);
    assert!(effects.contains(&Effect::SignalGroup(Signal::TERM)));
    let _ = harness.handle(Input::Signalled(Signalled::Sent));
    let _ = group_ends(&mut harness);
    assert_eq!(state(&harness), Some(SettledAs::Terminated));
}

#[test]
fn a_stop_after_the_exit_that_meets_nobody_has_terminated_nothing() {
    for (mut harness, outcome) in [
        (Harness::with_member(policy()), SettledAs::None),
        (waiting(policy()), SettledAs::Finished),
    ] {
        let _ = harness.stop();
        let _ = harness.handle(Input::Signalled(Signalled::Empty));
        let _ = harness.handle(Input::Probed(Probe::Empty));
        assert_eq!(state(&harness), Some(outcome));
    }
}

/// CASES 94
#[test]
fn a_stop_while_the_group_is_still_being_asked_cuts_off_whoever_is_left() {
    for left in [false, true] {
        let mut harness = Harness::exited(policy());
        let _ = harness.handle(Input::Probed(Probe::Unknown));
        let _ = harness.stop();
        if left {
            let _ = harness.handle(Input::Members(&[member(7)], true));
            let _ = harness.handle(Input::Signalled(Signalled::Sent));
            let _ = group_ends(&mut harness);
        } else {
            let _ = harness.handle(Input::Members(&[], true));
        }
        assert_eq!(
            state(&harness),
            Some(if left {
                SettledAs::Terminated
            } else {
                SettledAs::None
            })
        );
    }
}

#[test]
fn members_that_die_of_a_stop_are_none_and_those_that_needed_kill_are_terminated() {
    for needs_kill in [false, true] {
        let mut harness = Harness::running(policy());
        let _ = harness.stop();
        let _ = harness.handle(Input::Signalled(Signalled::Sent));
        let _ = harness.handle(Input::Exit(code(0)));
        let _ = harness.handle(Input::Probed(Probe::Alive));
        let _ = harness.handle(Input::Members(&[member(1)], true));
        if needs_kill {
            let _ = harness.grace_over(1);
            let _ = harness.handle(Input::Signalled(Signalled::Sent));
        }
        let _ = group_ends(&mut harness);
        assert_eq!(
            state(&harness),
            Some(if needs_kill {
                SettledAs::Terminated
            } else {
                SettledAs::None
            })
        );
    }
}

#[test]
fn what_cannot_be_ended_is_stuck() {
    let mut harness = waiting(policy());
    let _ = harness.due(Timer::BackgroundWait);
    let _ = harness.grace_over(7);
    let _ = harness.handle(Input::Signalled(Signalled::Sent));
    let _ = harness.due(Timer::StuckAfter);
    let effects = harness.handle(Input::Members(&[member(7)], true));
    assert_eq!(
        notifications(&effects),
        [Notification::Settled, Notification::Closed]
    );
    assert_eq!(state(&harness), Some(SettledAs::Stuck));
}

#[test]
fn with_nobody_looking_it_is_disabled_and_whether_it_is_complete_is_unknown() {
    let mut harness = Harness::exited(blind());
    assert_eq!(state(&harness), Some(SettledAs::Disabled));
    assert_eq!(SettledAs::Disabled.complete(), None);
    assert!(notifications(&harness.end_streams()).contains(&Notification::Settled));
}

#[test]
fn settled_is_told_after_the_verdict_though_it_was_known_before() {
    let mut harness = Harness::exited(policy());
    assert_eq!(
        notifications(&harness.handle(Input::Probed(Probe::Empty))),
        []
    );
    assert_eq!(
        notifications(&harness.end_streams()),
        [
            Notification::Drained { warn: false },
            Notification::Settled,
            Notification::Closed
        ]
    );
}

#[test]
fn who_needed_kill_together_with_the_leader_is_listed_and_the_leader_is_not() {
    for with_member in [false, true] {
        let mut lifecycle =
            crate::lifecycle::Lifecycle::new(policy(), [false, false], false, true).with_leader(5);
        let mut feed = |now, input| lifecycle.handle(Ns::from_millis(now), input).to_vec();
        let _ = feed(0, Input::Started);
        let _ = feed(0, Input::Stop(policy().stop, StopReason::Request));
        let _ = feed(0, Input::Signalled(Signalled::Sent));
        let _ = feed(30, Input::Due(Timer::StopGrace));
        let all = [member(5), member(9)];
        let effects = feed(
            31,
            Input::Members(if with_member { &all } else { &all[..1] }, true),
        );
        assert!(effects.contains(&Effect::SignalGroup(Signal::KILL)));
        let _ = feed(31, Input::Signalled(Signalled::Sent));
        let _ = feed(32, Input::Exit(code(0)));
        let _ = feed(32, Input::Probed(Probe::Empty));
        let settled = lifecycle
            .settled(Ns::MAX, ContainedBy::Group)
            .expect("settled");
        assert_eq!(
            settled.state,
            if with_member {
                SettledAs::Terminated
            } else {
                SettledAs::None
            }
        );
        assert_eq!(
            settled.processes,
            if with_member {
                vec![member(9).who]
            } else {
                vec![]
            }
        );
    }
}
