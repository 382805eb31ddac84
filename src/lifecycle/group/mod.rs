//! The group: is anybody left in it, and who?
//!
//! It is the only machine that knows what *is* left. Stop and settle say what is *wanted*.

mod phase;
mod table;

use super::context::Context;
use super::member_list::MemberList;
use super::message::Fact;
use super::vocabulary::{Effect, Timer};
use crate::types::{Member, Ns, limits};
pub(super) use phase::Phase;

/// The pause between two polls doubles this many times.
const POLL_DOUBLINGS: u8 = 7;
const _: () = assert!(
    limits::GROUP_POLL[0].as_millis() << POLL_DOUBLINGS >= limits::GROUP_POLL[1].as_millis()
);

/// The group of one generation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Group {
    phase: Phase,
    /// The newest list that was not empty.
    members: MemberList,
    /// The leader's process id, or 0 if it is not known. The leader may be on a list, but is not
    /// background work.
    leader: u32,
    /// Watches were asked for, and have not been given up since.
    has_watches: bool,
    /// How often the group was polled for want of a watch.
    polls: u8,
    /// The last list was empty and not complete. Another one at once would say no more.
    last_list_was_hidden: bool,
}

impl Group {
    /// The group of a leader that has just been made.
    pub(super) fn new() -> Group {
        Group {
            phase: Phase::LeaderAlive,
            members: MemberList::new(),
            leader: 0,
            has_watches: false,
            polls: 0,
            last_list_was_hidden: false,
        }
    }

    pub(super) fn set_leader(&mut self, pid: u32) {
        self.leader = pid;
    }

    // ---- actions of the table

    /// Asks whether anybody is left. While a poll is due, some members are not watched: then the
    /// number of those who are says nothing, and a list has to follow.
    fn probe(&mut self, cx: &mut Context<'_>, watched: u16) {
        let watched = if cx.armed.contains(Timer::GroupPoll) {
            0
        } else {
            watched
        };
        cx.cancel(Timer::GroupPoll);
        self.phase = Phase::Probing { watched };
        cx.effect(Effect::ProbeGroup);
    }

    fn list(&mut self, cx: &mut Context<'_>) {
        self.phase = Phase::Listing;
        cx.effect(Effect::ListMembers);
    }

    fn record_list(&mut self, list: &[Member]) {
        if !list.is_empty() {
            self.members.replace(list);
        }
    }

    fn found_empty(&mut self, cx: &mut Context<'_>) {
        self.phase = Phase::Empty;
        self.unwatch(cx);
        cx.fact(Fact::GroupEmpty);
    }

    fn poll_later(&mut self, cx: &mut Context<'_>) {
        if !cx.armed.contains(Timer::GroupPoll) {
            let [first, last] = limits::GROUP_POLL.map(Ns::from);
            let pause = Ns(first.0.saturating_mul(1 << self.polls).min(last.0));
            self.polls = (self.polls + 1).min(POLL_DOUBLINGS);
            cx.arm(Timer::GroupPoll, cx.now.after(pause));
        }
    }

    /// Gives up the watches, if there are any.
    pub(super) fn unwatch(&mut self, cx: &mut Context<'_>) {
        if std::mem::take(&mut self.has_watches) {
            cx.effect(Effect::UnwatchMembers);
        }
    }

    // ---- queries

    #[cfg(any(test, feature = "__internals"))]
    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    pub(super) fn is_empty(&self) -> bool {
        self.phase == Phase::Empty
    }

    /// Who is left is being found out. Until then a signal may have no way to them.
    pub(super) fn is_unlisted(&self) -> bool {
        match self.phase {
            Phase::Probing { .. } | Phase::Listing => true,
            Phase::LeaderAlive
            | Phase::LeaderAliveListing
            | Phase::Watching { .. }
            | Phase::Empty
            | Phase::NotAsked => false,
        }
    }

    pub(super) fn members(&self) -> &[Member] {
        self.members.as_slice()
    }

    /// The members without the leader.
    pub(super) fn members_without_leader(&self) -> impl Iterator<Item = &Member> {
        self.members
            .as_slice()
            .iter()
            .filter(|member| member.who.pid != self.leader)
    }
}

#[cfg(test)]
mod tests;
