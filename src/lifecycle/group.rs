//! Is anything left in the group, and who: the only machine that knows what *is* left. Stop and
//! settle say what is *wanted*.

use super::member_list::List;
use super::routing::GroupMessage;
use super::step::{Fact, Message, Step};
use super::stop::Stop;
use super::{Effect, Timer};
use crate::types::{Member, Ns, Probe, limits};

/// What is known of the group.
///
/// At most one probe and one scan are under way. Every change there is:
///
/// ```text
/// Lead --List--> LeadScanning
/// LeadScanning --Members--> Lead
/// LeadScanning --LeaderEnded--> Scanning
/// Lead --LeaderEnded, detection on or a stop in progress--> Ask
/// Lead --LeaderEnded, neither--> Blind
/// Lead --SpawnFailed--> Empty
/// LeadScanning --SpawnFailed--> Empty
/// Ask --Probed(Empty)--> Empty
/// Ask --Probed, nobody is watched--> Scanning
/// Ask --Probed, somebody is watched--> Watching
/// Scanning --Members(none, complete)--> Empty
/// Scanning --Members--> Watching
/// Watching --MemberGone, CgroupChanged, Due(GroupPoll) or a signal that met nobody--> Ask
/// Watching --List--> Scanning
/// Blind --Want or List--> Ask
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// The leader has not ended: the exit notice is the watch.
    Lead,
    /// The same, and somebody wants to know who withstands SIGKILL.
    LeadScanning,
    /// A probe is under way. So many of those who are watched have not been seen to end.
    Ask { watched: u16 },
    /// A scan is under way.
    Scanning,
    /// It was not empty. So many of those who are watched have not been seen to end.
    Watching { watched: u16 },
    /// Nobody is left. Certain.
    Empty,
    /// The leader has ended, and nobody has asked for more.
    Blind,
}

/// After so many looks the pause does not grow any more.
const LOOKS: u8 = 7;
const _: () =
    assert!(limits::GROUP_POLL[0].as_millis() << LOOKS >= limits::GROUP_POLL[1].as_millis());

/// The group of one generation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Group {
    phase: Phase,
    /// The newest list that was not empty.
    members: List,
    /// The leader's number: it may be on a list, but its end is not background work. 0: nobody's.
    leader: u32,
    /// Watches were asked for, and not given up since.
    has_watches: bool,
    /// How often it was looked at for want of a watch.
    looks: u8,
    /// The last list had nobody on it, and was not complete: a look of the same kind at once would
    /// say no more.
    is_hidden: bool,
}

impl Group {
    /// A leader that has just been made.
    pub(super) fn new() -> Group {
        Group {
            phase: Phase::Lead,
            members: List::new(),
            leader: 0,
            has_watches: false,
            looks: 0,
            is_hidden: false,
        }
    }

    /// Says which number is the leader's.
    pub(super) fn led_by(&mut self, pid: u32) {
        self.leader = pid;
    }

    /// Takes in one word. `stop` is looked at for whether one is in progress.
    pub(super) fn on_message(&mut self, step: &mut Step<'_>, message: Message<'_>, stop: &Stop) {
        let Some(message) = GroupMessage::of(message) else {
            return;
        };
        match self.phase {
            Phase::Lead => self.lead(step, message, stop),
            Phase::LeadScanning => self.lead_scanning(step, message),
            Phase::Ask { watched } => self.ask(step, message, watched),
            Phase::Scanning => self.scanning(step, message),
            Phase::Watching { watched } => self.watching(step, message, watched),
            Phase::Empty => self.empty(step, message),
            Phase::Blind => self.blind(step, message),
        }
    }

    // ---- the table, a column each

    fn lead(&mut self, step: &mut Step<'_>, message: GroupMessage<'_>, stop: &Stop) {
        match message {
            GroupMessage::LeaderEnded => {
                if !step.policy.background.disabled || stop.is_in_progress() {
                    self.probe(step, 0);
                } else {
                    self.phase = Phase::Blind;
                }
            }
            GroupMessage::SpawnFailed => self.phase = Phase::Empty,
            GroupMessage::List => {
                self.phase = Phase::LeadScanning;
                step.effect(Effect::ListMembers);
            }
            GroupMessage::Want | GroupMessage::NobodySignalled | GroupMessage::CgroupChanged => {}
            GroupMessage::Probed(_)
            | GroupMessage::Members(..)
            | GroupMessage::MemberGone
            | GroupMessage::WatchFailed
            | GroupMessage::LookDue => {
                step.contract_violation("an answer about a group whose leader has not ended");
            }
        }
    }

    fn lead_scanning(&mut self, step: &mut Step<'_>, message: GroupMessage<'_>) {
        match message {
            GroupMessage::Members(list, _) => {
                self.note(list);
                self.phase = Phase::Lead;
            }
            // The scan that is under way answers.
            GroupMessage::LeaderEnded => self.phase = Phase::Scanning,
            GroupMessage::SpawnFailed => self.phase = Phase::Empty,
            GroupMessage::List
            | GroupMessage::Want
            | GroupMessage::NobodySignalled
            | GroupMessage::CgroupChanged => {}
            GroupMessage::Probed(_)
            | GroupMessage::MemberGone
            | GroupMessage::WatchFailed
            | GroupMessage::LookDue => {
                step.contract_violation("an answer about a group whose leader has not ended");
            }
        }
    }

    fn ask(&mut self, step: &mut Step<'_>, message: GroupMessage<'_>, watched: u16) {
        match message {
            GroupMessage::Probed(Probe::Empty) => self.found_empty(step),
            GroupMessage::Probed(Probe::Unknown) if self.is_hidden => {
                self.phase = Phase::Watching { watched: 0 };
                self.look_later(step);
            }
            GroupMessage::Probed(answer @ (Probe::Alive | Probe::Unknown)) => {
                if watched > 0 {
                    // Whoever is watched and was not seen to end lives.
                    self.phase = Phase::Watching { watched };
                } else {
                    self.scan(step);
                    if answer == Probe::Alive {
                        step.fact(Fact::GroupAlive);
                    }
                }
            }
            GroupMessage::MemberGone => {
                self.phase = Phase::Ask {
                    watched: watched.saturating_sub(1),
                }
            }
            // A list is needed: what is watched already does not do.
            GroupMessage::WatchFailed | GroupMessage::List => {
                self.is_hidden = false;
                self.phase = Phase::Ask { watched: 0 };
            }
            GroupMessage::Want
            | GroupMessage::NobodySignalled
            | GroupMessage::CgroupChanged
            | GroupMessage::SpawnFailed => {}
            GroupMessage::LeaderEnded | GroupMessage::Members(..) | GroupMessage::LookDue => {
                step.contract_violation("a probe is under way, no scan and no look")
            }
        }
    }

    fn scanning(&mut self, step: &mut Step<'_>, message: GroupMessage<'_>) {
        match message {
            GroupMessage::Members([], true) => self.found_empty(step),
            GroupMessage::Members(list, _) => {
                self.note(list);
                self.is_hidden = list.is_empty();
                self.phase = Phase::Watching {
                    watched: u16::try_from(list.len().min(limits::WATCHED)).unwrap_or(0),
                };
                if list.is_empty() {
                    // Hidden from us, or too quick: nobody to watch.
                    self.look_later(step);
                } else {
                    self.has_watches = true;
                    step.effect(Effect::WatchMembers);
                }
                step.fact(Fact::GroupAlive);
            }
            // The watches that follow the list answer for whoever of it has ended meanwhile.
            GroupMessage::MemberGone | GroupMessage::CgroupChanged | GroupMessage::WatchFailed => {}
            GroupMessage::Want
            | GroupMessage::List
            | GroupMessage::NobodySignalled
            | GroupMessage::SpawnFailed => {}
            GroupMessage::LeaderEnded | GroupMessage::Probed(_) | GroupMessage::LookDue => {
                step.contract_violation("a scan is under way, no probe and no look")
            }
        }
    }

    fn watching(&mut self, step: &mut Step<'_>, message: GroupMessage<'_>, watched: u16) {
        match message {
            GroupMessage::MemberGone => self.probe(step, watched.saturating_sub(1)),
            // A cgroup's own answer is certain.
            GroupMessage::CgroupChanged => self.probe(step, watched),
            GroupMessage::NobodySignalled => self.probe(step, 0),
            GroupMessage::LookDue => {
                self.is_hidden = false;
                self.probe(step, 0);
            }
            GroupMessage::WatchFailed => self.look_later(step),
            GroupMessage::List => {
                step.cancel(Timer::GroupPoll);
                self.scan(step);
            }
            GroupMessage::Want | GroupMessage::SpawnFailed => {}
            GroupMessage::LeaderEnded | GroupMessage::Probed(_) | GroupMessage::Members(..) => {
                step.contract_violation("neither a probe nor a scan is under way")
            }
        }
    }

    fn empty(&mut self, step: &mut Step<'_>, message: GroupMessage<'_>) {
        match message {
            GroupMessage::MemberGone | GroupMessage::CgroupChanged | GroupMessage::WatchFailed => {}
            GroupMessage::Want
            | GroupMessage::List
            | GroupMessage::NobodySignalled
            | GroupMessage::SpawnFailed => {}
            GroupMessage::LeaderEnded
            | GroupMessage::Probed(_)
            | GroupMessage::Members(..)
            | GroupMessage::LookDue => step.contract_violation("the group is empty"),
        }
    }

    fn blind(&mut self, step: &mut Step<'_>, message: GroupMessage<'_>) {
        match message {
            GroupMessage::Want | GroupMessage::List => self.probe(step, 0),
            GroupMessage::NobodySignalled
            | GroupMessage::CgroupChanged
            | GroupMessage::SpawnFailed => {}
            GroupMessage::LeaderEnded
            | GroupMessage::Probed(_)
            | GroupMessage::Members(..)
            | GroupMessage::MemberGone
            | GroupMessage::WatchFailed
            | GroupMessage::LookDue => step.contract_violation("nobody has asked"),
        }
    }

    // ---- what the cells do

    /// Asks whether anybody is left. If a look is owed, somebody is not watched: only a scan tells
    /// who is left then.
    fn probe(&mut self, step: &mut Step<'_>, watched: u16) {
        let watched = if step.armed.has(Timer::GroupPoll) {
            0
        } else {
            watched
        };
        step.cancel(Timer::GroupPoll);
        self.phase = Phase::Ask { watched };
        step.effect(Effect::ProbeGroup);
    }

    fn scan(&mut self, step: &mut Step<'_>) {
        self.phase = Phase::Scanning;
        step.effect(Effect::ListMembers);
    }

    fn note(&mut self, list: &[Member]) {
        if !list.is_empty() {
            self.members.replace(list);
        }
    }

    fn found_empty(&mut self, step: &mut Step<'_>) {
        self.phase = Phase::Empty;
        self.unwatch(step);
        step.fact(Fact::GroupEmpty);
    }

    fn look_later(&mut self, step: &mut Step<'_>) {
        if !step.armed.has(Timer::GroupPoll) {
            let [first, last] = limits::GROUP_POLL.map(Ns::from);
            let pause = Ns(first.0.saturating_mul(1 << self.looks).min(last.0));
            self.looks = (self.looks + 1).min(LOOKS);
            step.arm(Timer::GroupPoll, step.now.after(pause));
        }
    }

    /// Gives up the watches, if there are any.
    pub(super) fn unwatch(&mut self, step: &mut Step<'_>) {
        if std::mem::take(&mut self.has_watches) {
            step.effect(Effect::UnwatchMembers);
        }
    }

    // ---- what is asked of it

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    pub(super) fn is_empty(&self) -> bool {
        self.phase == Phase::Empty
    }

    /// It is not known yet who is left: a signal may have no way to them until it is.
    pub(super) fn is_unlisted(&self) -> bool {
        match self.phase {
            Phase::Ask { .. } | Phase::Scanning => true,
            Phase::Lead
            | Phase::LeadScanning
            | Phase::Watching { .. }
            | Phase::Empty
            | Phase::Blind => false,
        }
    }

    pub(super) fn members(&self) -> &[Member] {
        self.members.as_slice()
    }

    /// The members without the leader.
    pub(super) fn others(&self) -> impl Iterator<Item = &Member> {
        self.members
            .as_slice()
            .iter()
            .filter(|member| member.who.pid != self.leader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::Input;
    use crate::lifecycle::test_harness::{Rig, blind, code, member, policy};
    use crate::report::{SettledAs, StopReason};
    use crate::types::{Signal, Signalled};

    fn settled_as(rig: &Rig) -> Option<SettledAs> {
        rig.lifecycle
            .settled(Ns::MAX, crate::report::ContainedBy::Group)
            .map(|settled| settled.state)
    }

    /// One whose group was found alive, and is being scanned.
    fn scanning() -> Rig {
        let mut rig = Rig::exited(policy());
        assert!(
            rig.feed(Input::Probed(Probe::Alive))
                .starts_with(&[Effect::ListMembers])
        );
        rig
    }

    #[test]
    fn an_empty_group_costs_one_probe_and_is_no_background_work() {
        let mut rig = Rig::exited(policy());
        assert_eq!(rig.feed(Input::Probed(Probe::Empty)), []);
        assert_eq!(settled_as(&rig), Some(SettledAs::None));
    }

    #[test]
    fn nobody_asks_with_detection_off_until_a_stop_wants_to_know() {
        let mut rig = Rig::running(blind());
        assert!(!rig.feed(Input::Exit(code(0))).contains(&Effect::ProbeGroup));
        let _ = rig.feed(Input::ReadDone);
        let effects = rig.stop();
        assert_eq!(effects.last(), Some(&Effect::ProbeGroup));
        assert_eq!(settled_as(&rig), Some(SettledAs::Disabled));
    }

    #[test]
    fn with_detection_off_a_stop_before_the_exit_asks_all_the_same() {
        let mut rig = Rig::running(blind());
        let _ = rig.stop();
        assert!(rig.feed(Input::Exit(code(0))).contains(&Effect::ProbeGroup));
    }

    #[test]
    fn zombies_alone_are_an_empty_group() {
        let mut rig = scanning();
        assert!(
            rig.feed(Input::Members(&[], true))
                .contains(&Effect::CancelTimer(Timer::BackgroundGrace))
        );
        assert_eq!(settled_as(&rig), Some(SettledAs::None));
    }

    #[test]
    fn a_kept_zombie_hides_the_answer_and_a_scan_gives_it() {
        let mut rig = Rig::on(blind(), [true, true], false);
        let _ = rig.feed(Input::Started);
        assert_eq!(
            rig.lifecycle.collect_mode(),
            crate::types::CollectMode::KeepZombie
        );
        let _ = rig.feed(Input::Exit(code(0)));
        let _ = rig.stop();
        assert_eq!(
            rig.feed(Input::Probed(Probe::Unknown)),
            [Effect::ListMembers]
        );
        assert_eq!(
            rig.feed(Input::Members(&[], true)),
            [Effect::CancelTimer(Timer::StopGrace)]
        );
    }

    #[test]
    fn an_incomplete_scan_that_finds_nobody_is_not_certain_and_is_repeated_with_backoff() {
        let mut rig = scanning();
        let mut pauses = Vec::new();
        for _ in 0..9 {
            let _ = rig.feed(Input::Members(&[], false));
            pauses.push(rig.at(Timer::GroupPoll).map_or(0, |at| at - rig.now));
            assert_eq!(rig.due(Timer::GroupPoll), [Effect::ProbeGroup]);
            let _ = rig.feed(Input::Probed(Probe::Alive));
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
        assert_eq!(settled_as(&rig), None);
    }

    #[test]
    fn members_are_watched_and_only_the_last_one_to_go_costs_a_scan() {
        let mut rig = scanning();
        assert_eq!(
            rig.feed(Input::Members(&[member(1), member(2)], true)),
            [Effect::WatchMembers]
        );
        assert_eq!(rig.feed(Input::MemberGone), [Effect::ProbeGroup]);
        assert_eq!(rig.feed(Input::Probed(Probe::Alive)), []);
        assert_eq!(rig.feed(Input::MemberGone), [Effect::ProbeGroup]);
        assert_eq!(rig.feed(Input::Probed(Probe::Alive)), [Effect::ListMembers]);
        assert_eq!(
            rig.feed(Input::Members(&[member(3)], true)),
            [Effect::WatchMembers]
        );
        assert_eq!(rig.lifecycle.members(), [member(3)]);
        let _ = rig.feed(Input::MemberGone);
        let effects = rig.feed(Input::Probed(Probe::Empty));
        assert!(effects.contains(&Effect::UnwatchMembers));
    }

    #[test]
    fn members_that_end_together_are_all_counted() {
        let mut rig = scanning();
        let _ = rig.feed(Input::Members(&[member(1), member(2)], true));
        let _ = rig.feed(Input::MemberGone);
        // The second notice is served before the probe has answered.
        assert_eq!(rig.feed(Input::MemberGone), []);
        assert_eq!(rig.feed(Input::Probed(Probe::Alive)), [Effect::ListMembers]);
    }

    #[test]
    fn a_member_that_cannot_be_watched_is_looked_for() {
        let mut rig = scanning();
        let _ = rig.feed(Input::Members(&[member(1), member(2)], true));
        let effects = rig.feed(Input::WatchFailed);
        assert_eq!(
            effects,
            [Effect::ArmTimer(Timer::GroupPoll, Ns::from_millis(10))]
        );
        // A notice of the one that is watched looks at once: the number that is left says nothing
        // of the other.
        assert_eq!(
            rig.feed(Input::MemberGone),
            [Effect::CancelTimer(Timer::GroupPoll), Effect::ProbeGroup]
        );
        assert_eq!(rig.feed(Input::Probed(Probe::Alive)), [Effect::ListMembers]);
        let _ = rig.feed(Input::Members(&[member(2)], true));
        assert_eq!(
            rig.feed(Input::WatchFailed),
            [Effect::ArmTimer(Timer::GroupPoll, Ns::from_millis(20))]
        );
    }

    #[test]
    fn a_watch_that_fails_after_another_member_had_ended_leads_to_a_scan() {
        let mut rig = scanning();
        let _ = rig.feed(Input::Members(&[member(1), member(2), member(3)], true));
        let _ = rig.feed(Input::MemberGone);
        assert_eq!(rig.feed(Input::WatchFailed), []);
        assert_eq!(rig.feed(Input::Probed(Probe::Alive)), [Effect::ListMembers]);
    }

    #[test]
    fn more_members_than_can_be_watched_are_scanned_for_again_when_those_are_gone() {
        let mut rig = scanning();
        let crowd: Vec<Member> = (1..=100).map(member).collect();
        let _ = rig.feed(Input::Members(&crowd, true));
        for left in (0..limits::WATCHED).rev() {
            assert_eq!(rig.feed(Input::MemberGone), [Effect::ProbeGroup]);
            let effects = rig.feed(Input::Probed(Probe::Alive));
            assert_eq!(effects == [Effect::ListMembers], left == 0);
        }
    }

    #[test]
    fn a_cgroup_that_changes_is_asked() {
        let mut rig = Rig::running(policy());
        assert_eq!(rig.feed(Input::CgroupChanged), []);
        let mut rig = scanning();
        assert_eq!(rig.feed(Input::CgroupChanged), []);
        let _ = rig.feed(Input::Members(&[member(1)], true));
        assert_eq!(rig.feed(Input::CgroupChanged), [Effect::ProbeGroup]);
        assert_eq!(rig.feed(Input::Probed(Probe::Alive)), []);
    }

    #[test]
    fn a_signal_that_meets_nobody_asks_again() {
        let mut rig = scanning();
        let _ = rig.feed(Input::Members(&[member(1)], true));
        let _ = rig.feed(Input::Kill(StopReason::Request));
        assert_eq!(
            rig.feed(Input::Signalled(Signalled::Empty)),
            [Effect::ProbeGroup]
        );
        // Only those who were known are gone: somebody else is there, and gets SIGKILL too.
        assert_eq!(rig.feed(Input::Probed(Probe::Alive)), [Effect::ListMembers]);
        let effects = rig.feed(Input::Members(&[member(2)], true));
        assert_eq!(
            effects,
            [Effect::WatchMembers, Effect::SignalGroup(Signal::KILL)]
        );
    }

    #[test]
    fn a_signal_that_meets_nobody_does_not_repeat_at_once_a_look_that_could_not_tell() {
        let mut rig = scanning();
        let _ = rig.feed(Input::Kill(StopReason::Request));
        let effects = rig.feed(Input::Members(&[], false));
        assert!(effects.contains(&Effect::SignalGroup(Signal::KILL)));
        assert_eq!(
            rig.feed(Input::Signalled(Signalled::Empty)),
            [Effect::CancelTimer(Timer::GroupPoll), Effect::ProbeGroup]
        );
        // Only a look could tell, and it has just been taken: the next one has its time.
        let effects = rig.feed(Input::Probed(Probe::Unknown));
        assert!(
            matches!(effects[..], [Effect::ArmTimer(Timer::GroupPoll, _)]),
            "{effects:?}"
        );
        assert_eq!(rig.due(Timer::GroupPoll), [Effect::ProbeGroup]);
        assert_eq!(
            rig.feed(Input::Probed(Probe::Unknown)),
            [Effect::ListMembers]
        );
        assert!(
            rig.feed(Input::Members(&[], true))
                .contains(&Effect::CancelTimer(Timer::StuckAfter))
        );
    }

    #[test]
    fn a_leader_that_ends_while_it_is_being_listed_is_not_probed_twice() {
        let mut rig = Rig::running(policy());
        let _ = rig.feed(Input::Kill(StopReason::Request));
        assert_eq!(rig.due(Timer::StuckAfter), [Effect::ListMembers]);
        let effects = rig.feed(Input::Exit(code(0)));
        assert!(!effects.contains(&Effect::ProbeGroup) && !effects.contains(&Effect::ListMembers));
        let _ = rig.feed(Input::Members(&[], true));
        assert_eq!(settled_as(&rig), Some(SettledAs::None));
    }
}
