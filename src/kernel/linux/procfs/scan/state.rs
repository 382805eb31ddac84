//! What a scan looks for and how far it has come. The slices that change it are in the files beside
//! this one.

use super::fd_list::{FdList, WantedStream};
use crate::kernel::linux::clock;
use crate::kernel::linux::containment::ContainmentState;
use crate::kernel::linux::process::identity::ProcessIdentity;
use crate::kernel::linux::process::leader::LeaderState;
use crate::kernel::linux::procfs::{Inode, Proc};
use crate::kernel::linux::table::{Reader, Row, Table};
use crate::kernel::{Found, Orphans, Scan, ScanStep};
use crate::types::{Member, Stream, Token, TokenKind, limits};
use std::time::Duration;

/// What the scan goes through now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScanPhase {
    /// All processes, to find members. Members of a target's group are also examined as holders.
    Members,
    /// The children of members, and their children in turn, for members without a cookie.
    Descendants,
    /// All the other processes, to find holders.
    Holders,
}

/// Whether everything that was looked for has been seen so far: nothing was refused or missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Complete {
    pub(super) members: bool,
    pub(super) holders: bool,
}

impl Complete {
    pub(super) const NEITHER: Complete = Complete {
        members: false,
        holders: false,
    };

    pub(super) const fn done(self) -> ScanStep {
        ScanStep::Done {
            members: self.members,
            holders: self.holders,
        }
    }
}

/// A generation whose members or holders are looked for.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) token: Token,
    /// The leader's process id, which is also the group's number.
    pub(super) pid: u32,
    pub(super) session: u32,
    pub(super) leader: LeaderState,
    pub(super) search: Search,
}

/// What is looked for on behalf of a target.
#[derive(Debug)]
pub(super) enum Search {
    Members(MemberSearch),
    Holders(HolderSearch),
}

/// The search for living members.
#[derive(Debug, Default)]
pub(super) struct MemberSearch {
    /// When the leader was started, if it has a cookie. Older processes do not descend from it.
    pub(super) cookie_since: Option<u64>,
    /// Members that the last scan has found, sorted. One that has left the group and replaced its
    /// environment since is still a member.
    pub(super) known: Vec<ProcessIdentity>,
    /// Processes with the group's number that are no living members: zombies, and members of
    /// another group of the same number.
    pub(super) others: usize,
    /// The number of members found.
    pub(super) found: usize,
    /// Whether a process that may have the cookie could not be examined.
    pub(super) is_doubtful: bool,
}

/// The search for processes that hold a captured stream open.
#[derive(Debug, Default)]
pub(super) struct HolderSearch {
    /// What the open streams are connected to, by [`Stream::index`].
    pub(super) streams: [Option<Inode>; 2],
    /// The number of holders found.
    pub(super) found: usize,
}

impl Target {
    /// The search for members, if that is what the target is for.
    pub(super) fn members(&self) -> Option<&MemberSearch> {
        match &self.search {
            Search::Members(search) => Some(search),
            Search::Holders(_) => None,
        }
    }

    /// Adds a member. Returns `false` beyond [`limits::MEMBERS`].
    fn add_member(&mut self, member: Member, found: &mut Vec<Found>) -> bool {
        match &mut self.search {
            Search::Members(search) if search.found < limits::MEMBERS => {
                search.found += 1;
                found.push(Found::Member(self.token, member));
                true
            }
            Search::Members(_) => false,
            Search::Holders(_) => true,
        }
    }

    /// Whether members are looked for by a cookie.
    pub(super) fn has_cookie(&self) -> bool {
        self.members()
            .is_some_and(|search| search.cookie_since.is_some())
    }

    /// Whether members are looked for by a cookie and a process that was started at `start` (clock
    /// ticks since boot) is not older than the leader.
    pub(super) fn seeks_cookie_since(&self, start: u64) -> bool {
        self.members()
            .and_then(|search| search.cookie_since)
            .is_some_and(|since| since <= start)
    }

    /// Whether this process is the leader after its end, which is no member.
    pub(super) fn is_ended_leader(&self, pid: u32) -> bool {
        pid == self.pid && self.leader != LeaderState::Running
    }
}

/// Sorted lists that lead from what is seen to the index of the target.
#[derive(Debug, Default)]
pub(super) struct TargetIndex {
    /// By process group.
    pub(super) groups: Vec<(u32, usize)>,
    /// By process id, for the processes of a target's cgroup.
    pub(super) cgroup_pids: Vec<(u32, usize)>,
    /// By what a descriptor is open on.
    pub(super) streams: Vec<WantedStream>,
    /// The earliest start of a leader with a cookie, if there is one.
    pub(super) cookies_since: Option<u64>,
}

/// The processes that the scan still has to visit in this phase.
#[derive(Debug, Default)]
pub(super) struct PidQueue {
    /// Read from the directory and not visited yet. The next one is the last.
    pub(super) pids: Vec<u32>,
    /// Whether the directory was read to its end.
    pub(super) is_listed: bool,
    /// Processes whose descriptors were examined in the first phase.
    pub(super) examined: Vec<u32>,
}

/// A zombie in a target's group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ZombieMember {
    pub(super) token: Token,
    pub(super) process: ProcessIdentity,
}

/// How members outside the process groups are found.
#[derive(Debug)]
pub(super) struct EscapeeSearch {
    /// The prefix of the names of this kernel object's cookies.
    pub(super) cookie_prefix: Vec<u8>,
    pub(super) orphans: Orphans,
    /// The generation that every orphan of this process descends from: all children of the process
    /// are the loop's ([`Orphans::Adopt`]), there was none when this generation was started, and
    /// no other was started since.
    pub(super) orphan_owner: Option<Token>,
}

impl EscapeeSearch {
    /// Whether an orphan without a cookie certainly descends from this generation's leader. The
    /// kernel keeps no ancestry after a reparenting, so nothing else proves it.
    pub(super) fn owns_orphans(&self, generation: Token) -> bool {
        self.orphan_owner
            .is_some_and(|owner| owner.with(TokenKind::Spawn) == generation.with(TokenKind::Spawn))
    }
}

/// What is needed to find the descendants of members.
#[derive(Debug, Default)]
pub(super) struct Descent {
    /// Members whose children are still to be looked for, with the index of their target.
    pub(super) parents: Vec<(ProcessIdentity, usize)>,
    /// Processes that belong to no target by themselves, with the process id of their parent;
    /// sorted by that when the first phase is over.
    pub(super) others: Vec<(u32, ProcessIdentity)>,
}

/// What one step of a scan works with.
pub(super) struct Context<'a> {
    pub(super) proc: &'a Proc,
    pub(super) table: &'a Table,
    pub(super) escapees: &'a EscapeeSearch,
    /// Filled with dead members that this process has inherited and must reap.
    pub(super) inherited_zombies: &'a mut Vec<ProcessIdentity>,
}

/// A scan under way.
#[derive(Debug)]
pub(super) struct ScanState {
    /// The [`Scan::id`] of the scan under way.
    pub(super) id: u64,
    pub(super) phase: ScanPhase,
    pub(super) targets: Vec<Target>,
    pub(super) index: TargetIndex,
    pub(super) queue: PidQueue,
    pub(super) descent: Descent,
    /// The process whose descriptors are being examined.
    pub(super) fds: Option<FdList>,
    /// Zombies in the groups of the targets.
    pub(super) zombies: Vec<ZombieMember>,
    pub(super) complete: Complete,
    /// Time since boot when the scan began.
    pub(super) now: Duration,
}

impl ScanState {
    /// Begins a scan for the generations that `scan` names. Stale tokens are left out.
    pub(super) fn new(scan: &Scan, table: &Table, proc: &Proc) -> ScanState {
        let mut state = ScanState {
            id: scan.id,
            phase: ScanPhase::Members,
            targets: Vec::with_capacity(scan.members.len() + scan.holders.len()),
            index: TargetIndex::default(),
            queue: PidQueue::default(),
            descent: Descent::default(),
            fds: None,
            zombies: Vec::new(),
            complete: Complete {
                members: true,
                holders: !proc.hides(),
            },
            now: clock::since_boot(),
        };
        for token in &scan.members {
            if let Some(row) = table.get(*token) {
                let search = state.member_search(row);
                state.add_target(*token, row, Search::Members(search));
            }
        }
        for token in &scan.holders {
            if let Some(row) = table.get(*token) {
                let search = state.holder_search(row);
                state.add_target(*token, row, Search::Holders(search));
            }
        }
        state.index.groups.sort_unstable();
        state.index.cgroup_pids.sort_unstable();
        state.index.streams.sort_unstable();
        state
    }

    /// Adds a member of a target. Its children are looked for later if the target has a cookie.
    pub(super) fn add_member(&mut self, target: usize, member: Member, found: &mut Vec<Found>) {
        let Some(place) = self.targets.get_mut(target) else {
            return;
        };
        if place.has_cookie() {
            let identity = ProcessIdentity {
                pid: member.who.pid,
                start: member.start,
            };
            self.descent.parents.push((identity, target));
        }
        self.complete.members &= place.add_member(member, found);
    }

    fn member_search(&mut self, row: &Row) -> MemberSearch {
        let mut search = MemberSearch::default();
        match row.containment.as_deref() {
            Some(ContainmentState::Cookie(cookie)) => {
                let earliest = self.index.cookies_since.unwrap_or(u64::MAX);
                self.index.cookies_since = Some(earliest.min(cookie.since));
                search.cookie_since = Some(cookie.since);
                search.known.clone_from(&row.known);
                search.known.sort_unstable();
            }
            Some(ContainmentState::Cgroup(cgroup)) => {
                let mut pids = Vec::new();
                self.complete.members &= cgroup.members(&mut pids);
                let target = self.targets.len();
                let entries = pids.into_iter().map(|pid| (pid, target));
                self.index.cgroup_pids.extend(entries);
            }
            None => {}
        }
        search
    }

    fn holder_search(&mut self, row: &Row) -> HolderSearch {
        let mut search = HolderSearch::default();
        for stream in Stream::ALL {
            let reader = row.readers.get(stream.index()).and_then(Option::as_ref);
            if let Some(inode) = reader.and_then(Reader::inode) {
                search.streams[stream.index()] = Some(inode);
                let wanted = (inode, self.targets.len(), stream);
                self.index.streams.push(wanted);
            }
        }
        search
    }

    fn add_target(&mut self, token: Token, row: &Row, search: Search) {
        self.index.groups.push((row.pid, self.targets.len()));
        self.targets.push(Target {
            token,
            pid: row.pid,
            session: row.session,
            leader: row.leader,
            search,
        });
    }
}
