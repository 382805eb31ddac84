//! A test for each column of the table, and for what SPEC 4 says of it.

use crate::lifecycle::settle::*;
use crate::lifecycle::test_harness::{Rig, blind, code, member, ms, policy, told};
use crate::lifecycle::{Effect, Input};
use crate::report::ContainedBy;
use crate::types::{Probe, Release, Signal, Signalled, Stream};

fn with(background: BackgroundPolicy) -> crate::types::Policy {
    crate::types::Policy {
        background,
        ..policy()
    }
}

fn state(rig: &Rig) -> Option<SettledAs> {
    rig.lifecycle
        .settled(Ns::MAX, ContainedBy::Group)
        .map(|settled| settled.state)
}

/// One whose member has outlived the grace and is waited for.
fn waiting(policy: crate::types::Policy) -> Rig {
    let mut rig = Rig::with_member(policy);
    assert_eq!(rig.due(Timer::BackgroundGrace), [Effect::ListMembers]);
    let effects = rig.feed(Input::Members(&[member(7), member(8)], true));
    assert_eq!(told(&effects), [Notification::BackgroundWait]);
    assert_eq!(rig.lifecycle.members(), [member(7), member(8)]);
    rig
}

fn group_ends(rig: &mut Rig) -> Vec<Effect> {
    let _ = rig.feed(Input::MemberGone);
    rig.feed(Input::Probed(Probe::Empty))
}

#[test]
fn ordinary_teardown_within_the_grace_is_no_background_work() {
    let mut rig = Rig::with_member(policy());
    assert_eq!(rig.at(Timer::BackgroundGrace), Some(10));
    rig.now = 4;
    let effects = group_ends(&mut rig);
    assert_eq!(
        told(&effects),
        [Notification::Settled, Notification::Closed]
    );
    let settled = rig.lifecycle.settled(Ns::MAX, ContainedBy::Group);
    assert_eq!(
        settled.map(|s| (s.state, s.waited, s.processes)),
        Some((SettledAs::None, ms(4), vec![]))
    );
}

#[test]
fn what_outlives_the_grace_is_listed_as_of_then_and_waited_for() {
    let mut rig = waiting(policy());
    assert_eq!(rig.at(Timer::BackgroundWait), Some(110));
    rig.now = 50;
    let effects = group_ends(&mut rig);
    assert_eq!(
        told(&effects),
        [Notification::Settled, Notification::Closed]
    );
    let settled = rig
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
    let mut rig = Rig::with_member(policy());
    let _ = rig.due(Timer::BackgroundGrace);
    let _ = rig.feed(Input::Members(&[], true));
    assert_eq!(state(&rig), Some(SettledAs::None));
}

#[test]
fn a_grace_that_has_passed_or_is_zero_is_not_waited_for() {
    let mut late = Rig::exited(policy());
    late.now = 10;
    let mut zero = Rig::exited(with(policy().background.grace(ms(0))));
    for rig in [&mut late, &mut zero] {
        assert_eq!(rig.feed(Input::Probed(Probe::Alive)), [Effect::ListMembers]);
        assert_eq!(
            told(&rig.feed(Input::Members(&[member(1)], true))),
            [Notification::BackgroundWait]
        );
    }
}

#[test]
fn what_outlives_the_wait_is_terminated_with_a_grace_of_its_own() {
    let mut rig = waiting(policy());
    let effects = rig.due(Timer::BackgroundWait);
    assert_eq!(effects[0], Effect::SignalGroup(Signal::TERM));
    assert_eq!(rig.at(Timer::StopGrace), Some(170));
    let _ = rig.feed(Input::Signalled(Signalled::Sent));
    let _ = group_ends(&mut rig);
    assert_eq!(state(&rig), Some(SettledAs::Terminated));
    assert_eq!(
        rig.lifecycle.stop_report().map(|report| report.reason),
        Some(StopReason::Background)
    );
    assert_eq!(
        rig.lifecycle.outcome(),
        Some(crate::types::Outcome::Succeeded)
    );
}

#[test]
fn members_that_die_of_sigkill_together_with_the_leader_are_none() {
    for alive in [false, true] {
        let mut rig = Rig::running(policy());
        let _ = rig.feed(Input::Kill(StopReason::Request));
        let _ = rig.feed(Input::Signalled(Signalled::Sent));
        let _ = rig.feed(Input::Exit(code(0)));
        let _ = rig.feed(Input::Probed(Probe::Alive));
        if alive {
            let _ = rig.feed(Input::Members(&[member(7)], true));
            let _ = group_ends(&mut rig);
        } else {
            let _ = rig.feed(Input::Members(&[], true));
        }
        assert_eq!(
            state(&rig),
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
    let mut rig = waiting(policy());
    let _ = rig.due(Timer::BackgroundWait);
    assert_eq!(
        rig.feed(Input::Signalled(Signalled::Empty)),
        [Effect::ProbeGroup]
    );
    let _ = rig.feed(Input::Probed(Probe::Empty));
    assert_eq!(state(&rig), Some(SettledAs::Finished));
}

#[test]
fn a_wait_of_zero_terminates_at_once_and_says_whom() {
    let mut rig = Rig::with_member(with(policy().background.wait(Wait::For(ms(0)))));
    let _ = rig.due(Timer::BackgroundGrace);
    let effects = rig.feed(Input::Members(&[member(7)], true));
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
    let mut rig = waiting(with(policy().background.terminate_grace(ms(0))));
    assert_eq!(
        rig.due(Timer::BackgroundWait)[0],
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
        let mut rig = Rig::exited(with(background));
        let _ = rig.feed(Input::Ended(Stream::Stdout, crate::report::StreamEnd::Eof));
        let _ = rig.feed(Input::Probed(Probe::Alive));
        let _ = rig.feed(Input::Members(&[member(1)], true));
        let _ = rig.due(Timer::BackgroundGrace);
        let _ = rig.feed(Input::Members(&[member(1)], true));
        if keep {
            let _ = rig.due(Timer::BackgroundWait);
        }
        let _ = rig.due(Timer::DrainIdle);
        let _ = rig.feed(Input::ReadDone);
        let effects = rig.feed(Input::Holders(&[], true));
        let expected = [
            Notification::Drained { warn: true },
            Notification::Settled,
            Notification::Closed,
        ];
        assert_eq!(told(&effects), expected);
        assert!(effects.contains(&Effect::Release(Release::Linger)));
        assert!(!effects.contains(&Effect::CloseStream(Stream::Stderr)));
        assert_eq!(
            rig.lifecycle.stream_end(Stream::Stderr),
            Some(crate::report::StreamEnd::Held)
        );
        assert_eq!(
            state(&rig),
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
    let mut rig = Rig::with_member(with(policy().background.wait(Wait::ReportOnly)));
    let _ = rig.due(Timer::BackgroundGrace);
    let effects = rig.feed(Input::Members(&[member(7)], true));
    assert_eq!(
        told(&effects),
        [Notification::Settled, Notification::Closed]
    );
    assert!(effects.contains(&Effect::Release(Release::Close)));
}

#[test]
fn a_stop_ends_the_grace_the_listing_and_the_wait() {
    let mut listing = Rig::with_member(policy());
    let _ = listing.due(Timer::BackgroundGrace);
    let lives = [
        (Rig::with_member(policy()), SettledAs::None),
        (waiting(policy()), SettledAs::Terminated),
    ];
    for (mut rig, outcome) in lives.into_iter().chain([(listing, SettledAs::Terminated)]) {
        let effects = rig.stop();
        assert_eq!(
            effects
                .iter()
                .filter(|e| matches!(e, Effect::SignalGroup(_)))
                .count(),
            2
        );
        assert_eq!(
            (
                rig.at(Timer::BackgroundGrace),
                rig.at(Timer::BackgroundWait)
            ),
            (None, None)
        );
        let _ = rig.feed(Input::Signalled(Signalled::Sent));
        if state(&rig).is_none()
            && outcome == SettledAs::Terminated
            && rig.lifecycle.members().len() == 1
        {
            let _ = rig.feed(Input::Members(&[], true));
        } else {
            let _ = group_ends(&mut rig);
        }
        assert_eq!(state(&rig), Some(outcome));
    }
}

#[test]
fn members_that_die_of_a_stops_ladder_are_none_and_those_that_needed_kill_are_terminated() {
    for needs_kill in [false, true] {
        let mut rig = Rig::running(policy());
        let _ = rig.stop();
        let _ = rig.feed(Input::Signalled(Signalled::Sent));
        let _ = rig.feed(Input::Exit(code(0)));
        let _ = rig.feed(Input::Probed(Probe::Alive));
        let _ = rig.feed(Input::Members(&[member(1)], true));
        if needs_kill {
            let _ = rig.grace_over(1);
            let _ = rig.feed(Input::Signalled(Signalled::Sent));
        }
        let _ = group_ends(&mut rig);
        assert_eq!(
            state(&rig),
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
    let mut rig = waiting(policy());
    let _ = rig.due(Timer::BackgroundWait);
    let _ = rig.grace_over(7);
    let _ = rig.feed(Input::Signalled(Signalled::Sent));
    let _ = rig.due(Timer::StuckAfter);
    let effects = rig.feed(Input::Members(&[member(7)], true));
    assert_eq!(
        told(&effects),
        [Notification::Settled, Notification::Closed]
    );
    assert_eq!(state(&rig), Some(SettledAs::Stuck));
}

#[test]
fn with_nobody_looking_it_is_disabled_and_whether_it_is_complete_is_unknown() {
    let mut rig = Rig::exited(blind());
    assert_eq!(state(&rig), Some(SettledAs::Disabled));
    assert_eq!(SettledAs::Disabled.complete(), None);
    assert!(told(&rig.end_streams()).contains(&Notification::Settled));
}

#[test]
fn settled_is_told_after_the_verdict_though_it_was_known_before() {
    let mut rig = Rig::exited(policy());
    assert_eq!(told(&rig.feed(Input::Probed(Probe::Empty))), []);
    assert_eq!(
        told(&rig.end_streams()),
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
            crate::lifecycle::Lifecycle::new(policy(), [false, false], false, true).led_by(5);
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
