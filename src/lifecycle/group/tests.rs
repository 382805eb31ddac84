//! Tests of the group: probes, lists, watches and polls.

use super::*;
use crate::lifecycle::test_harness::{Harness, blind, code, member, policy};
use crate::lifecycle::vocabulary::Input;
use crate::report::{SettledAs, StopReason};
use crate::types::{Probe, Signal, Signalled};

fn settled_as(harness: &Harness) -> Option<SettledAs> {
    harness
        .lifecycle
        .settled(Ns::MAX, crate::report::ContainedBy::Group)
        .map(|settled| settled.state)
}

/// One whose group was found alive, and is being scanned.
fn scanning() -> Harness {
    let mut harness = Harness::exited(policy());
    assert!(
        harness
            .handle(Input::Probed(Probe::Alive))
            .starts_with(&[Effect::ListMembers])
    );
    harness
}

#[test]
fn an_empty_group_costs_one_probe_and_is_no_background_work() {
    let mut harness = Harness::exited(policy());
    assert_eq!(harness.handle(Input::Probed(Probe::Empty)), []);
    assert_eq!(settled_as(&harness), Some(SettledAs::None));
}

#[test]
fn nobody_asks_with_detection_off_until_a_stop_wants_to_know() {
    let mut harness = Harness::running(blind());
    assert!(
        !harness
            .handle(Input::Exit(code(0)))
            .contains(&Effect::ProbeGroup)
    );
    let _ = harness.handle(Input::ReadDone);
    let effects = harness.stop();
    assert_eq!(effects.last(), Some(&Effect::ProbeGroup));
    assert_eq!(settled_as(&harness), Some(SettledAs::Disabled));
}

#[test]
fn with_detection_off_a_stop_before_the_exit_asks_all_the_same() {
    let mut harness = Harness::running(blind());
    let _ = harness.stop();
    assert!(
        harness
            .handle(Input::Exit(code(0)))
            .contains(&Effect::ProbeGroup)
    );
}

#[test]
fn zombies_alone_are_an_empty_group() {
    let mut harness = scanning();
    assert!(
        harness
            .handle(Input::Members(&[], true))
            .contains(&Effect::CancelTimer(Timer::BackgroundGrace))
    );
    assert_eq!(settled_as(&harness), Some(SettledAs::None));
}

#[test]
fn a_kept_zombie_hides_the_answer_and_a_scan_gives_it() {
    let mut harness = Harness::on(blind(), [true, true], false);
    let _ = harness.handle(Input::Started);
    assert_eq!(
        harness.lifecycle.collect_mode(),
        crate::types::CollectMode::KeepZombie
    );
    let _ = harness.handle(Input::Exit(code(0)));
    let _ = harness.stop();
    assert_eq!(
        harness.handle(Input::Probed(Probe::Unknown)),
        [Effect::ListMembers]
    );
    assert_eq!(
        harness.handle(Input::Members(&[], true)),
        [Effect::CancelTimer(Timer::StopGrace)]
    );
}

#[test]
fn an_incomplete_scan_that_finds_nobody_is_not_certain_and_is_repeated_with_backoff() {
    let mut harness = scanning();
    let mut pauses = Vec::new();
    for _ in 0..9 {
        let _ = harness.handle(Input::Members(&[], false));
        pauses.push(
            harness
                .at(Timer::GroupPoll)
                .map_or(0, |at| at - harness.now),
        );
        assert_eq!(harness.due(Timer::GroupPoll), [Effect::ProbeGroup]);
        let _ = harness.handle(Input::Probed(Probe::Alive));
    }
    assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
    assert_eq!(settled_as(&harness), None);
}

#[test]
fn members_are_watched_and_only_the_last_one_to_go_costs_a_scan() {
    let mut harness = scanning();
    assert_eq!(
        harness.handle(Input::Members(&[member(1), member(2)], true)),
        [Effect::WatchMembers]
    );
    assert_eq!(harness.handle(Input::MemberGone), [Effect::ProbeGroup]);
    assert_eq!(harness.handle(Input::Probed(Probe::Alive)), []);
    assert_eq!(harness.handle(Input::MemberGone), [Effect::ProbeGroup]);
    assert_eq!(
        harness.handle(Input::Probed(Probe::Alive)),
        [Effect::ListMembers]
    );
    assert_eq!(
        harness.handle(Input::Members(&[member(3)], true)),
        [Effect::WatchMembers]
    );
    assert_eq!(harness.lifecycle.members(), [member(3)]);
    let _ = harness.handle(Input::MemberGone);
    let effects = harness.handle(Input::Probed(Probe::Empty));
    assert!(effects.contains(&Effect::UnwatchMembers));
}

#[test]
fn members_that_end_together_are_all_counted() {
    let mut harness = scanning();
    let _ = harness.handle(Input::Members(&[member(1), member(2)], true));
    let _ = harness.handle(Input::MemberGone);
    // The second notice is served before the probe has answered.
    assert_eq!(harness.handle(Input::MemberGone), []);
    assert_eq!(
        harness.handle(Input::Probed(Probe::Alive)),
        [Effect::ListMembers]
    );
}

#[test]
fn a_member_that_cannot_be_watched_is_looked_for() {
    let mut harness = scanning();
    let _ = harness.handle(Input::Members(&[member(1), member(2)], true));
    let effects = harness.handle(Input::WatchFailed);
    assert_eq!(
        effects,
        [Effect::ArmTimer(Timer::GroupPoll, Ns::from_millis(10))]
    );
    // A notice of the one that is watched looks at once: the number that is left says nothing
    // of the other.
    assert_eq!(
        harness.handle(Input::MemberGone),
        [Effect::CancelTimer(Timer::GroupPoll), Effect::ProbeGroup]
    );
    assert_eq!(
        harness.handle(Input::Probed(Probe::Alive)),
        [Effect::ListMembers]
    );
    let _ = harness.handle(Input::Members(&[member(2)], true));
    assert_eq!(
        harness.handle(Input::WatchFailed),
        [Effect::ArmTimer(Timer::GroupPoll, Ns::from_millis(20))]
    );
}

#[test]
fn a_watch_that_fails_after_another_member_had_ended_leads_to_a_scan() {
    let mut harness = scanning();
    let _ = harness.handle(Input::Members(&[member(1), member(2), member(3)], true));
    let _ = harness.handle(Input::MemberGone);
    assert_eq!(harness.handle(Input::WatchFailed), []);
    assert_eq!(
        harness.handle(Input::Probed(Probe::Alive)),
        [Effect::ListMembers]
    );
}

#[test]
fn more_members_than_can_be_watched_are_scanned_for_again_when_those_are_gone() {
    let mut harness = scanning();
    let crowd: Vec<Member> = (1..=100).map(member).collect();
    let _ = harness.handle(Input::Members(&crowd, true));
    for left in (0..limits::WATCHED).rev() {
        assert_eq!(harness.handle(Input::MemberGone), [Effect::ProbeGroup]);
        let effects = harness.handle(Input::Probed(Probe::Alive));
        assert_eq!(effects == [Effect::ListMembers], left == 0);
    }
}

#[test]
fn a_cgroup_that_changes_is_asked() {
    let mut harness = Harness::running(policy());
    assert_eq!(harness.handle(Input::CgroupChanged), []);
    let mut harness = scanning();
    assert_eq!(harness.handle(Input::CgroupChanged), []);
    let _ = harness.handle(Input::Members(&[member(1)], true));
    assert_eq!(harness.handle(Input::CgroupChanged), [Effect::ProbeGroup]);
    assert_eq!(harness.handle(Input::Probed(Probe::Alive)), []);
}

#[test]
fn a_signal_that_meets_nobody_asks_again() {
    let mut harness = scanning();
    let _ = harness.handle(Input::Members(&[member(1)], true));
    let _ = harness.handle(Input::Kill(StopReason::Request));
    assert_eq!(
        harness.handle(Input::Signalled(Signalled::Empty)),
        [Effect::ProbeGroup]
    );
    // Only those who were known are gone: somebody else is there, and gets SIGKILL too.
    assert_eq!(
        harness.handle(Input::Probed(Probe::Alive)),
        [Effect::ListMembers]
    );
    let effects = harness.handle(Input::Members(&[member(2)], true));
    assert_eq!(
        effects,
        [Effect::WatchMembers, Effect::SignalGroup(Signal::KILL)]
    );
}

#[test]
fn a_signal_that_meets_nobody_does_not_repeat_at_once_a_look_that_could_not_tell() {
    let mut harness = scanning();
    let _ = harness.handle(Input::Kill(StopReason::Request));
    let effects = harness.handle(Input::Members(&[], false));
    assert!(effects.contains(&Effect::SignalGroup(Signal::KILL)));
    assert_eq!(
        harness.handle(Input::Signalled(Signalled::Empty)),
        [Effect::CancelTimer(Timer::GroupPoll), Effect::ProbeGroup]
    );
    // Only a look could tell, and it has just been taken: the next one has its time.
    let effects = harness.handle(Input::Probed(Probe::Unknown));
    assert!(
        matches!(effects[..], [Effect::ArmTimer(Timer::GroupPoll, _)]),
        "{effects:?}"
    );
    assert_eq!(harness.due(Timer::GroupPoll), [Effect::ProbeGroup]);
    assert_eq!(
        harness.handle(Input::Probed(Probe::Unknown)),
        [Effect::ListMembers]
    );
    assert!(
        harness
            .handle(Input::Members(&[], true))
            .contains(&Effect::CancelTimer(Timer::StuckAfter))
    );
}

#[test]
fn a_leader_that_ends_while_it_is_being_listed_is_not_probed_twice() {
    let mut harness = Harness::running(policy());
    let _ = harness.handle(Input::Kill(StopReason::Request));
    assert_eq!(harness.due(Timer::StuckAfter), [Effect::ListMembers]);
    let effects = harness.handle(Input::Exit(code(0)));
    assert!(!effects.contains(&Effect::ProbeGroup) && !effects.contains(&Effect::ListMembers));
    let _ = harness.handle(Input::Members(&[], true));
    assert_eq!(settled_as(&harness), Some(SettledAs::None));
}
