//! Long errands: one look through /proc at a time, a slice a turn, for all generations that wait
//! for one.

use super::Reactor;
use crate::kernel::{Found, Kernel, Scan, ScanStep};
use crate::lifecycle::Input;
use crate::types::{Holder, Member, Ns, Token, limits};

/// A generation whose living members are wanted.
#[derive(Debug)]
struct MembersWanted {
    token: Token,
    found: Vec<Member>,
    /// What the pass before this one found; two passes that agree are the answer.
    before: Option<Vec<Member>>,
    passes: u32,
    stage: Stage,
}

/// A generation whose pipes' holders are wanted.
#[derive(Debug)]
struct HoldersWanted {
    token: Token,
    found: Vec<Holder>,
    until: Ns,
    stage: Stage,
}

/// Whether the look under way is for this one too: it must have been there when the look began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waits,
    Looking,
}

/// Whether a look is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Look {
    #[default]
    None,
    UnderWay,
}

/// Who waits for what, and the look under way.
#[derive(Debug, Default)]
pub(super) struct Errand {
    members: Vec<MembersWanted>,
    holders: Vec<HoldersWanted>,
    scan: Scan,
    look: Look,
}

impl Errand {
    pub(super) fn is_active(&self) -> bool {
        !self.members.is_empty() || !self.holders.is_empty()
    }

    pub(super) fn want_members(&mut self, token: Token) {
        self.forget_members(token);
        self.members.push(MembersWanted {
            token,
            found: Vec::new(),
            before: None,
            passes: 0,
            stage: Stage::Waits,
        });
    }

    pub(super) fn forget_members(&mut self, token: Token) {
        self.members.retain(|wanted| wanted.token != token);
    }

    pub(super) fn want_holders(&mut self, token: Token, until: Ns) {
        self.holders.push(HoldersWanted {
            token,
            found: Vec::new(),
            until,
            stage: Stage::Waits,
        });
    }

    pub(super) fn forget(&mut self, token: Token) {
        self.forget_members(token);
        self.holders.retain(|wanted| wanted.token != token);
    }

    /// Begins a look for all who wait.
    fn begin(&mut self) {
        self.look = Look::UnderWay;
        self.scan.id += 1;
        self.scan.budget = limits::SCAN_BUDGET;
        self.scan.found.clear();
        self.scan.doubtful.clear();
        self.scan.members.clear();
        self.scan.holders.clear();
        for wanted in &mut self.members {
            wanted.stage = Stage::Looking;
            wanted.found.clear();
            self.scan.members.push(wanted.token);
        }
        for wanted in &mut self.holders {
            wanted.stage = Stage::Looking;
            wanted.found.clear();
            self.scan.holders.push(wanted.token);
        }
    }

    /// Sorts what a slice found to those who wait for it.
    fn sort(&mut self) {
        for found in self.scan.found.drain(..) {
            match found {
                Found::Member(token, member) => {
                    let wanted = self
                        .members
                        .iter_mut()
                        .find(|w| w.token == token && w.stage == Stage::Looking);
                    if let Some(wanted) = wanted.filter(|w| w.found.len() < limits::MEMBERS) {
                        wanted.found.push(member);
                    }
                }
                Found::Holder(token, holder) => {
                    let wanted = self
                        .holders
                        .iter_mut()
                        .find(|w| w.token == token && w.stage == Stage::Looking);
                    if let Some(wanted) = wanted.filter(|w| w.found.len() < limits::HOLDERS) {
                        wanted.found.push(holder);
                    }
                }
            }
        }
    }

    /// A member list that is an answer, if there is one after this pass: two passes in a row found
    /// the same, or there were enough.
    fn members_answered(&mut self, complete: bool) -> Option<(Token, Vec<Member>, bool)> {
        let place = self
            .members
            .iter_mut()
            .position(|wanted| wanted.stage == Stage::Looking && wanted.passed())?;
        let wanted = self.members.swap_remove(place);
        let agreed = wanted
            .before
            .as_ref()
            .is_some_and(|before| same(before, &wanted.found));
        let complete = complete && agreed && !self.scan.doubtful.contains(&wanted.token);
        Some((wanted.token, wanted.found, complete))
    }

    /// A holder list that is an answer: the pass has ended, or there is no time left.
    fn holders_answered(
        &mut self,
        ended: Option<bool>,
        now: Ns,
    ) -> Option<(Token, Vec<Holder>, bool)> {
        let done = |wanted: &HoldersWanted| {
            (ended.is_some() && wanted.stage == Stage::Looking) || wanted.until <= now
        };
        let place = self.holders.iter().position(done)?;
        let wanted = self.holders.swap_remove(place);
        let complete = ended.is_some_and(|complete| {
            complete && wanted.stage == Stage::Looking && wanted.found.len() < limits::HOLDERS
        });
        Some((wanted.token, wanted.found, complete))
    }
}

impl MembersWanted {
    /// Counts the pass; true when its list is the answer.
    fn passed(&mut self) -> bool {
        if self.passes == u32::MAX {
            return false;
        }
        self.passes += 1;
        self.found
            .sort_by_key(|member| (member.who.pid, member.start));
        let agreed = self
            .before
            .as_ref()
            .is_some_and(|before| same(before, &self.found));
        if agreed || self.passes >= limits::SCAN_PASSES {
            return true;
        }
        self.before = Some(std::mem::take(&mut self.found));
        self.stage = Stage::Waits;
        false
    }
}

/// The same processes; what they are doing does not count.
fn same(one: &[Member], other: &[Member]) -> bool {
    one.len() == other.len()
        && one
            .iter()
            .zip(other)
            .all(|(a, b)| (a.who.pid, a.start) == (b.who.pid, b.start))
}

impl<K: Kernel> Reactor<K> {
    /// One slice of the look under way; a look begins when somebody waits and none is.
    pub(super) fn errand_slice(&mut self) {
        if !self.errand.is_active() {
            self.errand.look = Look::None;
            return;
        }
        if self.errand.look == Look::None {
            self.errand.begin();
        }
        let step = self.kernel.scan(&mut self.errand.scan);
        self.now = self.kernel.now();
        self.errand.sort();
        let ended = match step {
            ScanStep::More => None,
            ScanStep::Done { members, holders } => Some((members, holders)),
        };
        if let Some((members, _)) = ended {
            self.errand.look = Look::None;
            while let Some((token, list, complete)) = self.errand.members_answered(members) {
                if let Some(key) = self.find(token) {
                    self.feed_input(key, Input::Members(&list, complete));
                }
            }
        }
        let now = self.now;
        while let Some((token, list, complete)) = self
            .errand
            .holders_answered(ended.map(|(_, holders)| holders), now)
        {
            if let Some(key) = self.find(token) {
                self.feed_input(key, Input::Holders(&list, complete));
            }
        }
    }
}
