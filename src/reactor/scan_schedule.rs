//! Scans of /proc, one at a time and a slice a turn, for all generations that wait for one.

use super::Reactor;
use crate::kernel::{Found, Kernel, Scan, ScanStep};
use crate::types::{Holder, Member, Ns, Token, limits};

/// A generation whose living members are to be listed.
#[derive(Debug)]
struct MemberRequest {
    token: Token,
    found: Vec<Member>,
    /// What the scan before this one found. Two scans in a row that agree are the answer.
    before: Option<Vec<Member>>,
    scans: u32,
    stage: Stage,
}

/// A generation whose pipes' holders are to be listed.
#[derive(Debug)]
struct HolderRequest {
    token: Token,
    found: Vec<Holder>,
    until: Ns,
    stage: Stage,
}

/// A list that is an answer.
struct Listed<T> {
    token: Token,
    list: Vec<T>,
    complete: bool,
}

/// Whether the scan under way is for this request: it must have been there when the scan began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Queued,
    Scanning,
}

/// Whether a scan is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ScanState {
    #[default]
    Idle,
    UnderWay,
}

/// Who waits for what, and the scan under way.
#[derive(Debug, Default)]
pub(super) struct ScanSchedule {
    members: Vec<MemberRequest>,
    holders: Vec<HolderRequest>,
    scan: Scan,
    state: ScanState,
}

impl ScanSchedule {
    pub(super) fn is_active(&self) -> bool {
        !self.members.is_empty() || !self.holders.is_empty()
    }

    pub(super) fn want_members(&mut self, token: Token) {
        self.forget_members(token);
        self.members.push(MemberRequest {
            token,
            found: Vec::new(),
            before: None,
            scans: 0,
            stage: Stage::Queued,
        });
    }

    pub(super) fn forget_members(&mut self, token: Token) {
        self.members.retain(|request| request.token != token);
    }

    /// `until`: when the list is given as far as it has come.
    pub(super) fn want_holders(&mut self, token: Token, until: Ns) {
        self.holders.push(HolderRequest {
            token,
            found: Vec::new(),
            until,
            stage: Stage::Queued,
        });
    }

    pub(super) fn forget(&mut self, token: Token) {
        self.forget_members(token);
        self.holders.retain(|request| request.token != token);
    }

    /// Begins a scan for all who wait.
    fn begin(&mut self) {
        self.state = ScanState::UnderWay;
        self.scan.id += 1;
        self.scan.budget = limits::SCAN_BUDGET;
        self.scan.found.clear();
        self.scan.doubtful.clear();
        self.scan.members.clear();
        self.scan.holders.clear();
        for request in &mut self.members {
            request.stage = Stage::Scanning;
            request.found.clear();
            self.scan.members.push(request.token);
        }
        for request in &mut self.holders {
            request.stage = Stage::Scanning;
            request.found.clear();
            self.scan.holders.push(request.token);
        }
    }

    /// Gives what a slice has found to those who wait for it.
    fn sort_found(&mut self) {
        for found in self.scan.found.drain(..) {
            match found {
                Found::Member(token, member) => {
                    let request = self
                        .members
                        .iter_mut()
                        .find(|r| r.token == token && r.stage == Stage::Scanning);
                    if let Some(request) = request.filter(|r| r.found.len() < limits::MEMBERS) {
                        request.found.push(member);
                    }
                }
                Found::Holder(token, holder) => {
                    let request = self
                        .holders
                        .iter_mut()
                        .find(|r| r.token == token && r.stage == Stage::Scanning);
                    if let Some(request) = request.filter(|r| r.found.len() < limits::HOLDERS) {
                        request.found.push(holder);
                    }
                }
            }
        }
    }

    /// A member list that is an answer after a whole scan: two scans in a row found the same, or
    /// there were enough of them. `complete`: the scan was refused nothing.
    fn next_member_list(&mut self, complete: bool) -> Option<Listed<Member>> {
        let place = self
            .members
            .iter_mut()
            .position(|request| request.stage == Stage::Scanning && request.is_answered())?;
        let MemberRequest {
            token,
            found,
            before,
            ..
        } = self.members.swap_remove(place);
        let agreed = before.is_some_and(|before| are_same(&before, &found));
        Some(Listed {
            complete: complete && agreed && !self.scan.doubtful.contains(&token),
            token,
            list: found,
        })
    }

    /// A holder list that is an answer: a scan has ended (`ended`: whether it was refused nothing),
    /// or there is no time left.
    fn next_holder_list(&mut self, ended: Option<bool>, now: Ns) -> Option<Listed<Holder>> {
        let is_answered = |request: &HolderRequest| {
            (ended.is_some() && request.stage == Stage::Scanning) || request.until <= now
        };
        let place = self.holders.iter().position(is_answered)?;
        let HolderRequest {
            token,
            found,
            stage,
            ..
        } = self.holders.swap_remove(place);
        Some(Listed {
            complete: ended == Some(true)
                && stage == Stage::Scanning
                && found.len() < limits::HOLDERS,
            token,
            list: found,
        })
    }
}

impl MemberRequest {
    /// Counts the scan that has ended. Either its list is the answer, or another scan is wanted.
    fn is_answered(&mut self) -> bool {
        self.scans += 1;
        self.found
            .sort_by_key(|member| (member.who.pid, member.start));
        let agreed = (self.before.as_ref()).is_some_and(|before| are_same(before, &self.found));
        if agreed || self.scans >= limits::SCAN_PASSES {
            return true;
        }
        self.before = Some(std::mem::take(&mut self.found));
        self.stage = Stage::Queued;
        false
    }
}

/// The same processes. Their states do not count.
fn are_same(one: &[Member], other: &[Member]) -> bool {
    one.len() == other.len()
        && one
            .iter()
            .zip(other)
            .all(|(a, b)| (a.who.pid, a.start) == (b.who.pid, b.start))
}

impl<K: Kernel> Reactor<K> {
    /// One slice of the scan under way. A scan begins when somebody waits and none is under way.
    pub(super) fn scan_slice(&mut self) {
        if !self.scans.is_active() {
            self.scans.state = ScanState::Idle;
            return;
        }
        if self.scans.state == ScanState::Idle {
            self.scans.begin();
        }
        let step = self.kernel.scan(&mut self.scans.scan);
        self.clock.now = self.kernel.now();
        self.scans.sort_found();
        let holders_ended = match step {
            ScanStep::More => None,
            ScanStep::Done { members, holders } => {
                self.scans.state = ScanState::Idle;
                while let Some(listed) = self.scans.next_member_list(members) {
                    self.members_listed(listed.token, &listed.list, listed.complete);
                }
                Some(holders)
            }
        };
        let now = self.clock.now;
        while let Some(listed) = self.scans.next_holder_list(holders_ended, now) {
            self.holders_listed(listed.token, &listed.list, listed.complete);
        }
    }
}
