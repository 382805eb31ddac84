//! Tests of the drain's actions: bounds, pauses, and the outcome.

use crate::lifecycle::drain::*;
use crate::lifecycle::test_harness::{Harness, blind, code, ms, notifications, policy};
use crate::lifecycle::{Input, State};
use crate::types::{Exit, Policy, Probe, Signal, StatusSource, StopPolicy};
use Stream::{Stderr, Stdout};

fn bounds(idle: Bound, limit: Bound) -> Policy {
    Policy {
        drain: DrainPolicy { idle, limit },
        ..blind()
    }
}

#[test]
fn the_bounds_are_armed_after_the_first_read_and_what_comes_then_is_late_words() {
    let mut harness = Harness::running(blind());
    harness.now = 1000;
    assert_eq!(
        notifications(&harness.handle(Input::Exit(code(0)))),
        [Notification::Exited]
    );
    let effects = harness.handle(Input::ReadDone);
    assert_eq!(effects[0], Effect::MarkLastWords);
    assert_eq!(
        (harness.at(Timer::DrainIdle), harness.at(Timer::DrainLimit)),
        (Some(1020), Some(1050))
    );
}

#[test]
fn a_first_reading_that_takes_its_time_moves_neither_bound() {
    let mut harness = Harness::running(blind());
    harness.now = 1000;
    let _ = harness.handle(Input::Exit(code(0)));
    harness.now = 1010;
    let _ = harness.handle(Input::ReadDone);
    assert_eq!(
        (harness.at(Timer::DrainIdle), harness.at(Timer::DrainLimit)),
        (Some(1020), Some(1050)),
        "both count from the exit"
    );
}

#[test]
fn bytes_move_the_idle_bound_when_it_comes_due() {
    let mut harness = Harness::exited(blind());
    harness.now = 15;
    assert!(harness.handle(Input::Bytes(Stderr, 1)).is_empty());
    let _ = harness.due(Timer::DrainIdle);
    assert_eq!(
        (
            harness.now,
            harness.at(Timer::DrainIdle),
            harness.lifecycle.state()
        ),
        (20, Some(35), State::Exited)
    );
    assert_eq!(harness.due(Timer::DrainIdle), [Effect::ReadAvailable]);
    assert_eq!(harness.verdict_after_last_read(), Some(EndedBy::Idle));
    assert_eq!(
        harness.lifecycle.drain_report().map(|report| report.waited),
        Some(ms(35))
    );
}

#[test]
fn bytes_found_by_the_last_read_re_arm_the_idle_bound() {
    let mut harness = Harness::exited(blind());
    harness.now = 30;
    let _ = harness.due(Timer::DrainIdle);
    let _ = harness.handle(Input::Bytes(Stdout, 5));
    let _ = harness.handle(Input::ReadDone);
    assert_eq!(
        (harness.lifecycle.state(), harness.at(Timer::DrainIdle)),
        (State::Exited, Some(50))
    );
    let _ = harness.due(Timer::DrainLimit);
    let _ = harness.handle(Input::Bytes(Stdout, 5));
    assert_eq!(harness.verdict_after_last_read(), Some(EndedBy::Limit));
}

#[test]
fn an_idle_bound_of_zero_is_taken_with_the_first_read_and_no_byte_re_arms_it() {
    for limit in [Bound::After(ms(50)), Bound::After(ms(0)), Bound::Never] {
        let mut harness = Harness::running(bounds(Bound::After(ms(0)), limit));
        let _ = harness.handle(Input::Exit(code(0)));
        assert_eq!(
            harness.handle(Input::ReadDone),
            [Effect::MarkLastWords, Effect::ReadAvailable]
        );
        let _ = harness.handle(Input::Bytes(Stdout, 1));
        assert_eq!(harness.verdict_after_last_read(), Some(EndedBy::Idle));
    }
}

#[test]
fn a_limit_of_zero_is_taken_with_the_first_read() {
    let mut harness = Harness::running(bounds(Bound::After(ms(20)), Bound::After(ms(0))));
    let _ = harness.handle(Input::Exit(code(0)));
    assert_eq!(
        harness.handle(Input::ReadDone),
        [Effect::MarkLastWords, Effect::ReadAvailable]
    );
    assert_eq!(harness.verdict_after_last_read(), Some(EndedBy::Limit));
}

#[test]
fn no_bounds_no_timers() {
    let mut harness = Harness::running(bounds(Bound::Never, Bound::Never));
    let _ = harness.handle(Input::Exit(code(0)));
    assert_eq!(harness.handle(Input::ReadDone), [Effect::MarkLastWords]);
    let _ = harness.end_streams();
    assert_eq!(harness.lifecycle.state(), State::Drained);
}

#[test]
fn if_both_bounds_are_due_idle_is_named_unless_the_last_read_finds_bytes() {
    for (bytes, named) in [(false, EndedBy::Idle), (true, EndedBy::Limit)] {
        // The limit is served first.
        let mut harness = Harness::exited(blind());
        harness.now = 60;
        let _ = harness.due(Timer::DrainLimit);
        assert_eq!(harness.at(Timer::DrainIdle), None);
        if bytes {
            let _ = harness.handle(Input::Bytes(Stdout, 1));
        }
        assert_eq!(harness.verdict_after_last_read(), Some(named));
        // The idle bound is served first.
        let mut harness = Harness::exited(blind());
        harness.now = 60;
        let _ = harness.due(Timer::DrainIdle);
        let _ = harness.due(Timer::DrainLimit);
        if bytes {
            let _ = harness.handle(Input::Bytes(Stdout, 1));
        }
        assert_eq!(harness.verdict_after_last_read(), Some(named));
    }
}

#[test]
fn a_limit_that_passes_before_the_idle_bound_is_named() {
    let mut harness = Harness::exited(blind());
    harness.now = 45;
    let _ = harness.handle(Input::Bytes(Stdout, 1));
    let _ = harness.due(Timer::DrainLimit);
    assert_eq!(harness.verdict_after_last_read(), Some(EndedBy::Limit));
}

#[test]
fn a_stop_under_way_holds_the_idle_bound_back_and_its_end_gives_the_verdict() {
    let mut harness = Harness::exited(blind());
    let _ = harness.handle(Input::Stop(StopPolicy::default(), StopReason::Request));
    let _ = harness.due(Timer::DrainIdle);
    assert_eq!(
        (harness.lifecycle.state(), harness.lifecycle.drain_report()),
        (State::Exited, None)
    );
    let _ = harness.handle(Input::Probed(Probe::Empty));
    assert_eq!(harness.verdict_after_last_read(), Some(EndedBy::Stop));
}

#[test]
fn a_paused_stream_stops_the_idle_clock_and_not_the_limit() {
    let mut harness = Harness::exited(blind());
    harness.now = 5;
    let _ = harness.handle(Input::Paused(Stdout));
    assert!(harness.due(Timer::DrainIdle).is_empty());
    assert_eq!(
        (harness.lifecycle.state(), harness.at(Timer::DrainIdle)),
        (State::Exited, None)
    );
    harness.now = 40;
    let _ = harness.handle(Input::Resumed(Stdout));
    assert_eq!(harness.at(Timer::DrainIdle), Some(55));
    let _ = harness.handle(Input::Paused(Stdout));
    let _ = harness.due(Timer::DrainLimit);
    assert_eq!(harness.verdict_after_last_read(), Some(EndedBy::Limit));
}

#[test]
fn an_idle_bound_of_zero_waits_for_a_paused_stream() {
    let mut harness = Harness::running(bounds(Bound::After(ms(0)), Bound::Never));
    let _ = harness.handle(Input::Paused(Stdout));
    let _ = harness.handle(Input::Exit(code(0)));
    assert_eq!(harness.handle(Input::ReadDone), [Effect::MarkLastWords]);
    harness.now = 7;
    let _ = harness.handle(Input::Resumed(Stdout));
    assert_eq!(harness.due(Timer::DrainIdle), [Effect::ReadAvailable]);
}

#[test]
fn the_outcome_says_what_was_asked_before_the_exit() {
    let signalled = ExitInfo {
        exit: Exit::by_signal(Signal::TERM, false, StatusSource::Waitid),
        usage: None,
    };
    let lost = ExitInfo {
        exit: Exit::unknown(),
        usage: None,
    };
    let cases = [
        (None, code(0), Outcome::Succeeded),
        (None, code(1), Outcome::Failed),
        (None, signalled, Outcome::Signaled),
        (None, lost, Outcome::Unknown),
        (Some(StopReason::Request), code(0), Outcome::Stopped),
        (Some(StopReason::Shutdown), signalled, Outcome::Stopped),
        (Some(StopReason::Timeout), code(0), Outcome::TimedOut),
        (Some(StopReason::Request), lost, Outcome::Stopped),
    ];
    for (reason, info, outcome) in cases {
        let mut harness = Harness::running(policy());
        if let Some(reason) = reason {
            let _ = harness.handle(Input::Stop(policy().stop, reason));
        }
        let _ = harness.handle(Input::Exit(info));
        assert_eq!(
            harness.lifecycle.outcome(),
            Some(outcome),
            "{reason:?} {info:?}"
        );
    }
}

#[test]
fn a_stop_that_is_over_during_the_first_read_has_one_more_read_after_it() {
    let mut harness = Harness::running(policy());
    let _ = harness.stop();
    let _ = harness.handle(Input::Exit(code(0)));
    let _ = harness.handle(Input::Probed(Probe::Empty));
    assert_eq!(
        harness.handle(Input::ReadDone),
        [Effect::MarkLastWords, Effect::ReadAvailable]
    );
    assert_eq!(harness.verdict_after_last_read(), Some(EndedBy::Stop));

    let mut harness = Harness::exited(policy());
    let _ = harness.handle(Input::Probed(Probe::Empty));
    let _ = harness.due(Timer::DrainIdle);
    let _ = harness.stop();
    assert_eq!(harness.handle(Input::ReadDone), [Effect::ReadAvailable]);
    assert_eq!(harness.verdict_after_last_read(), Some(EndedBy::Stop));
}
