//! What the cells of the drain's table do.

use crate::lifecycle::drain::*;
use crate::lifecycle::test_harness::{Rig, blind, code, ms, policy, told};
use crate::lifecycle::{Input, State};
use crate::types::{Exit, Policy, Probe, Signal, StatusSource, StopPolicy};
use Stream::{Stderr, Stdout};

fn bounds(idle: Bound, limit: Bound) -> Policy {
    Policy {
        drain: DrainPolicy { idle, limit },
        ..blind()
    }
}

fn ended_by(rig: &Rig) -> Option<EndedBy> {
    rig.lifecycle
        .drain_report()
        .and_then(|report| report.ended_by)
}

fn verdict_after_last_read(rig: &mut Rig) -> Option<EndedBy> {
    assert_eq!(rig.feed(Input::ReadDone).last(), Some(&Effect::FindHolders));
    ended_by(rig)
}

#[test]
fn the_bounds_are_armed_after_the_sweep_and_what_comes_then_is_late_words() {
    let mut rig = Rig::running(blind());
    rig.now = 1000;
    assert_eq!(
        told(&rig.feed(Input::Exit(code(0)))),
        [Notification::Exited]
    );
    let effects = rig.feed(Input::ReadDone);
    assert_eq!(effects[0], Effect::MarkLastWords);
    assert_eq!(
        (rig.at(Timer::DrainIdle), rig.at(Timer::DrainLimit)),
        (Some(1020), Some(1050))
    );
}

#[test]
fn a_first_reading_that_takes_its_time_moves_neither_bound() {
    let mut rig = Rig::running(blind());
    rig.now = 1000;
    let _ = rig.feed(Input::Exit(code(0)));
    rig.now = 1010;
    let _ = rig.feed(Input::ReadDone);
    assert_eq!(
        (rig.at(Timer::DrainIdle), rig.at(Timer::DrainLimit)),
        (Some(1020), Some(1050)),
        "both count from the exit"
    );
}

#[test]
fn bytes_move_the_idle_bound_when_it_comes_due() {
    let mut rig = Rig::exited(blind());
    rig.now = 15;
    assert!(rig.feed(Input::Bytes(Stderr, 1)).is_empty());
    let _ = rig.due(Timer::DrainIdle);
    assert_eq!(
        (rig.now, rig.at(Timer::DrainIdle), rig.lifecycle.state()),
        (20, Some(35), State::Exited)
    );
    assert_eq!(rig.due(Timer::DrainIdle), [Effect::ReadAvailable]);
    assert_eq!(verdict_after_last_read(&mut rig), Some(EndedBy::Idle));
    assert_eq!(
        rig.lifecycle.drain_report().map(|report| report.waited),
        Some(ms(35))
    );
}

#[test]
fn bytes_found_by_the_last_read_re_arm_the_idle_bound() {
    let mut rig = Rig::exited(blind());
    rig.now = 30;
    let _ = rig.due(Timer::DrainIdle);
    let _ = rig.feed(Input::Bytes(Stdout, 5));
    let _ = rig.feed(Input::ReadDone);
    assert_eq!(
        (rig.lifecycle.state(), rig.at(Timer::DrainIdle)),
        (State::Exited, Some(50))
    );
    let _ = rig.due(Timer::DrainLimit);
    let _ = rig.feed(Input::Bytes(Stdout, 5));
    assert_eq!(verdict_after_last_read(&mut rig), Some(EndedBy::Limit));
}

#[test]
fn an_idle_bound_of_zero_is_taken_at_the_first_sweep_and_no_byte_re_arms_it() {
    for limit in [Bound::After(ms(50)), Bound::After(ms(0)), Bound::Never] {
        let mut rig = Rig::running(bounds(Bound::After(ms(0)), limit));
        let _ = rig.feed(Input::Exit(code(0)));
        assert_eq!(
            rig.feed(Input::ReadDone),
            [Effect::MarkLastWords, Effect::ReadAvailable]
        );
        let _ = rig.feed(Input::Bytes(Stdout, 1));
        assert_eq!(verdict_after_last_read(&mut rig), Some(EndedBy::Idle));
    }
}

#[test]
fn a_limit_of_zero_is_taken_at_the_first_sweep() {
    let mut rig = Rig::running(bounds(Bound::After(ms(20)), Bound::After(ms(0))));
    let _ = rig.feed(Input::Exit(code(0)));
    assert_eq!(
        rig.feed(Input::ReadDone),
        [Effect::MarkLastWords, Effect::ReadAvailable]
    );
    assert_eq!(verdict_after_last_read(&mut rig), Some(EndedBy::Limit));
}

#[test]
fn no_bounds_no_timers() {
    let mut rig = Rig::running(bounds(Bound::Never, Bound::Never));
    let _ = rig.feed(Input::Exit(code(0)));
    assert_eq!(rig.feed(Input::ReadDone), [Effect::MarkLastWords]);
    let _ = rig.end_streams();
    assert_eq!(rig.lifecycle.state(), State::Drained);
}

#[test]
fn if_both_bounds_are_due_idle_is_named_unless_the_last_read_finds_bytes() {
    for (bytes, named) in [(false, EndedBy::Idle), (true, EndedBy::Limit)] {
        // The limit is served first.
        let mut rig = Rig::exited(blind());
        rig.now = 60;
        let _ = rig.due(Timer::DrainLimit);
        assert_eq!(rig.at(Timer::DrainIdle), None);
        if bytes {
            let _ = rig.feed(Input::Bytes(Stdout, 1));
        }
        assert_eq!(verdict_after_last_read(&mut rig), Some(named));
        // The idle bound is served first.
        let mut rig = Rig::exited(blind());
        rig.now = 60;
        let _ = rig.due(Timer::DrainIdle);
        let _ = rig.due(Timer::DrainLimit);
        if bytes {
            let _ = rig.feed(Input::Bytes(Stdout, 1));
        }
        assert_eq!(verdict_after_last_read(&mut rig), Some(named));
    }
}

#[test]
fn a_limit_that_passes_before_the_idle_bound_is_named() {
    let mut rig = Rig::exited(blind());
    rig.now = 45;
    let _ = rig.feed(Input::Bytes(Stdout, 1));
    let _ = rig.due(Timer::DrainLimit);
    assert_eq!(verdict_after_last_read(&mut rig), Some(EndedBy::Limit));
}

#[test]
fn a_stop_under_way_holds_the_idle_bound_back_and_its_end_gives_the_verdict() {
    let mut rig = Rig::exited(blind());
    let _ = rig.feed(Input::Stop(StopPolicy::default(), StopReason::Request));
    let _ = rig.due(Timer::DrainIdle);
    assert_eq!(
        (rig.lifecycle.state(), rig.lifecycle.drain_report()),
        (State::Exited, None)
    );
    let _ = rig.feed(Input::Probed(Probe::Empty));
    assert_eq!(verdict_after_last_read(&mut rig), Some(EndedBy::Stop));
}

#[test]
fn a_paused_stream_stops_the_idle_clock_and_not_the_limit() {
    let mut rig = Rig::exited(blind());
    rig.now = 5;
    let _ = rig.feed(Input::Paused(Stdout));
    assert!(rig.due(Timer::DrainIdle).is_empty());
    assert_eq!(
        (rig.lifecycle.state(), rig.at(Timer::DrainIdle)),
        (State::Exited, None)
    );
    rig.now = 40;
    let _ = rig.feed(Input::Resumed(Stdout));
    assert_eq!(rig.at(Timer::DrainIdle), Some(55));
    let _ = rig.feed(Input::Paused(Stdout));
    let _ = rig.due(Timer::DrainLimit);
    assert_eq!(verdict_after_last_read(&mut rig), Some(EndedBy::Limit));
}

#[test]
fn an_idle_bound_of_zero_waits_for_a_paused_stream() {
    let mut rig = Rig::running(bounds(Bound::After(ms(0)), Bound::Never));
    let _ = rig.feed(Input::Paused(Stdout));
    let _ = rig.feed(Input::Exit(code(0)));
    assert_eq!(rig.feed(Input::ReadDone), [Effect::MarkLastWords]);
    rig.now = 7;
    let _ = rig.feed(Input::Resumed(Stdout));
    assert_eq!(rig.due(Timer::DrainIdle), [Effect::ReadAvailable]);
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
        let mut rig = Rig::running(policy());
        if let Some(reason) = reason {
            let _ = rig.feed(Input::Stop(policy().stop, reason));
        }
        let _ = rig.feed(Input::Exit(info));
        assert_eq!(
            rig.lifecycle.outcome(),
            Some(outcome),
            "{reason:?} {info:?}"
        );
    }
}

#[test]
fn a_stop_that_is_over_during_a_sweep_has_one_more_read_after_it() {
    let mut rig = Rig::running(policy());
    let _ = rig.stop();
    let _ = rig.feed(Input::Exit(code(0)));
    let _ = rig.feed(Input::Probed(Probe::Empty));
    assert_eq!(
        rig.feed(Input::ReadDone),
        [Effect::MarkLastWords, Effect::ReadAvailable]
    );
    assert_eq!(verdict_after_last_read(&mut rig), Some(EndedBy::Stop));

    let mut rig = Rig::exited(policy());
    let _ = rig.feed(Input::Probed(Probe::Empty));
    let _ = rig.due(Timer::DrainIdle);
    let _ = rig.stop();
    assert_eq!(rig.feed(Input::ReadDone), [Effect::ReadAvailable]);
    assert_eq!(verdict_after_last_read(&mut rig), Some(EndedBy::Stop));
}
