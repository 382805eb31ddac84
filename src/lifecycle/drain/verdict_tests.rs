//! Tests of the ways to a verdict, from the exit to the end of the generation.

use super::*;
use crate::lifecycle::test_harness::{Harness, blind, code, member, notifications, policy};
use crate::lifecycle::{Input, Lifecycle, State, Timer};
use crate::report::StopReason;
use crate::types::{CollectMode, Holder, Outcome, Policy, Probe, Release, Signalled, Stream};
use Stream::{Stderr, Stdout};

#[test]
fn end_of_file_at_the_exit_is_drained_in_the_first_read_without_a_timer() {
    let mut harness = Harness::running(policy());
    let effects = harness.handle(Input::Exit(code(3)));
    assert_eq!(
        effects,
        [
            Effect::Notify(Notification::Exited),
            Effect::ReadAvailable,
            Effect::ProbeGroup
        ]
    );
    let _ = harness.handle(Input::Bytes(Stdout, 10));
    let effects = harness.end_streams();
    assert_eq!(
        effects,
        [
            Effect::CloseStream(Stdout),
            Effect::CloseStream(Stderr),
            Effect::Notify(Notification::Drained { warn: false })
        ]
    );
    assert_eq!(
        (harness.lifecycle.state(), harness.lifecycle.outcome()),
        (State::Drained, Some(Outcome::Failed))
    );
    let _ = harness.handle(Input::ReadDone);
    assert_eq!(
        notifications(&harness.handle(Input::Probed(Probe::Empty))),
        [Notification::Settled, Notification::Closed]
    );
}

#[test]
fn end_of_file_before_the_exit_stays_running_and_the_exit_goes_straight_to_drained() {
    let mut harness = Harness::running(policy());
    assert_eq!(
        harness.end_streams(),
        [Effect::CloseStream(Stdout), Effect::CloseStream(Stderr)]
    );
    assert_eq!(harness.lifecycle.state(), State::Running);
    let effects = harness.handle(Input::Exit(code(0)));
    assert_eq!(
        notifications(&effects),
        [Notification::Exited, Notification::Drained { warn: false }]
    );
    assert!(!effects.contains(&Effect::MarkLastWords) && !effects.contains(&Effect::ReadAvailable));
}

#[test]
fn with_nobody_looking_and_nothing_open_the_exit_is_the_end() {
    let mut harness = Harness::on(blind(), [false, false], true);
    let _ = harness.handle(Input::Started);
    let effects = harness.handle(Input::Exit(code(0)));
    let all = [
        Notification::Exited,
        Notification::Drained { warn: false },
        Notification::Settled,
        Notification::Closed,
    ];
    assert_eq!(notifications(&effects), all);
    assert!(harness.lifecycle.is_closed());
}

#[test]
fn end_of_file_found_by_the_last_read_is_drained() {
    let mut harness = Harness::exited(blind());
    let _ = harness.due(Timer::DrainIdle);
    assert_eq!(
        notifications(&harness.end_streams()),
        [Notification::Drained { warn: false }, Notification::Settled]
    );
    assert_eq!(
        (
            harness.lifecycle.state(),
            harness.at(Timer::DrainLimit),
            harness.ended_by()
        ),
        (State::Drained, None, Some(EndedBy::Eof))
    );
    assert_eq!(
        notifications(&harness.handle(Input::ReadDone)),
        [Notification::Closed]
    );
}

#[test]
fn a_timed_out_drain_is_told_with_its_holders_and_then_settled() {
    let mut harness = Harness::exited(blind());
    let _ = harness.due(Timer::DrainIdle);
    let _ = harness.handle(Input::ReadDone);
    assert!(harness.lifecycle.is_late());
    let _ = harness.handle(Input::Bytes(Stderr, 9));
    assert_eq!(
        (
            harness.lifecycle.late_bytes(Stderr),
            harness.lifecycle.late_bytes(Stdout)
        ),
        (9, 0)
    );
    let holder = Holder::new(9, "sleep".to_owned(), vec![Stderr]);
    let effects = harness.handle(Input::Holders(std::slice::from_ref(&holder), true));
    assert_eq!(
        notifications(&effects),
        [Notification::Drained { warn: true }, Notification::Settled]
    );
    assert_eq!(effects.last(), Some(&Effect::ReadAvailable));
    assert!(harness.handle(Input::Bytes(Stderr, 1)).is_empty());
    let effects = harness.handle(Input::ReadDone);
    assert_eq!(
        (
            notifications(&effects),
            harness.lifecycle.late_bytes(Stderr)
        ),
        (vec![Notification::Closed], 10)
    );
    assert_eq!(
        effects[..2],
        [Effect::CloseStream(Stdout), Effect::CloseStream(Stderr)]
    );
    assert_eq!(
        harness.lifecycle.stream_end(Stderr),
        Some(StreamEnd::Closed)
    );
    assert_eq!(
        harness
            .lifecycle
            .drain_report()
            .map(|report| (report.holders, report.holders_complete)),
        Some((vec![holder], true))
    );
}

#[test]
fn a_failed_spawn_is_told_once_its_process_is_gone() {
    let mut harness = Harness::spawned(policy());
    assert_eq!(
        harness.handle(Input::StartFailed),
        [Effect::CloseStream(Stdout), Effect::CloseStream(Stderr)]
    );
    assert_eq!(
        (harness.lifecycle.state(), harness.lifecycle.collect_mode()),
        (State::Failing, CollectMode::Reap)
    );
    let effects = harness.handle(Input::Exit(code(127)));
    assert_eq!(
        notifications(&effects),
        [Notification::SpawnFailed, Notification::Closed]
    );
    assert_eq!(
        (
            harness.lifecycle.state(),
            harness.lifecycle.outcome(),
            harness.lifecycle.drain_report()
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
        let mut harness = Harness::exited(policy());
        let _ = harness.handle(Input::Probed(Probe::Empty));
        let effects = harness.handle(Input::Stop(policy().stop, reason));
        assert_eq!(
            effects,
            [Effect::CancelTimer(Timer::DrainIdle), Effect::ReadAvailable]
        );
        assert_eq!(harness.verdict_after_last_read(), Some(named));
        assert_eq!(
            notifications(&harness.handle(Input::Holders(&[], false)))[0],
            Notification::Drained { warn: false }
        );
        assert_eq!(harness.lifecycle.outcome(), Some(Outcome::Succeeded));
    }
}

#[test]
fn a_leader_that_withstands_sigkill_is_unfinished_and_lingers() {
    for limit in [false, true] {
        let mut harness = Harness::running(Policy {
            run_limit: Some(crate::lifecycle::test_harness::ms(5)),
            ..policy()
        });
        if limit {
            let _ = harness.due(Timer::RunLimit);
            let _ = harness.grace_over(1);
        } else {
            let _ = harness.handle(Input::Kill(StopReason::Request));
        }
        let _ = harness.handle(Input::Signalled(Signalled::Sent));
        assert_eq!(harness.due(Timer::StuckAfter), [Effect::ListMembers]);
        assert_eq!(
            harness.handle(Input::Members(&[member(1)], true)).last(),
            Some(&Effect::ReadAvailable)
        );
        let effects = harness.handle(Input::ReadDone);
        assert_eq!(
            notifications(&effects),
            [Notification::Settled, Notification::Closed]
        );
        assert!(effects.contains(&Effect::Release(Release::Linger)));
        let outcome = if limit {
            Outcome::TimedOut
        } else {
            Outcome::Unknown
        };
        assert_eq!(
            (harness.lifecycle.state(), harness.lifecycle.outcome()),
            (State::Unfinished, Some(outcome))
        );
        assert_eq!(
            harness
                .lifecycle
                .stop_report()
                .map(|report| report.stuck.len()),
            Some(1)
        );
        assert_eq!(
            harness
                .lifecycle
                .drain_report()
                .map(|report| report.holders_complete),
            Some(false),
            "nobody was looked for"
        );
    }
}

#[test]
fn a_leader_that_ends_after_all_while_it_is_read_out_has_its_verdict() {
    let mut harness = Harness::running(policy());
    let _ = harness.handle(Input::Kill(StopReason::Request));
    let _ = harness.due(Timer::StuckAfter);
    let _ = harness.handle(Input::Members(&[], true));
    let effects = harness.handle(Input::Exit(code(0)));
    assert_eq!(
        (notifications(&effects), harness.lifecycle.outcome()),
        (vec![Notification::Exited], Some(Outcome::Stopped))
    );
    let _ = harness.handle(Input::Probed(Probe::Empty));
    assert_eq!(
        harness.handle(Input::ReadDone),
        [Effect::MarkLastWords, Effect::ReadAvailable]
    );
    assert_eq!(harness.verdict_after_last_read(), Some(EndedBy::Stop));
    assert_eq!(
        notifications(&harness.handle(Input::Holders(&[], true))),
        [Notification::Drained { warn: false }, Notification::Settled]
    );
    assert_eq!(
        notifications(&harness.handle(Input::ReadDone)),
        [Notification::Closed]
    );
}

#[test]
fn after_the_end_nothing_changes_any_more() {
    let mut harness = Harness::on(blind(), [false, false], true);
    let _ = harness.handle(Input::Started);
    let _ = harness.handle(Input::Exit(code(0)));
    let closed: Lifecycle = harness.lifecycle.clone();
    for input in [
        Input::Exit(code(1)),
        Input::ReadDone,
        Input::Bytes(Stdout, 1),
        Input::Kill(StopReason::Request),
        Input::Detach,
    ] {
        assert!(harness.handle(input).is_empty());
    }
    assert_eq!(harness.lifecycle, closed);
}

#[test]
fn what_cannot_come_is_counted_and_changes_nothing() {
    let mut harness = Harness::running(policy());
    let before = harness.lifecycle.state();
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        harness
            .lifecycle
            .handle(crate::types::Ns::ZERO, Input::Started)
    }));
    assert_eq!(caught.is_err(), cfg!(debug_assertions));
    assert_eq!(
        (
            harness.lifecycle.state(),
            harness.lifecycle.contract_violations()
        ),
        (before, 1)
    );
}
