//! The end of a leader, and what is left of its group.

use super::Sim;
use super::containment::{Belongs, told};
use super::fault::{Call, Fault};
use super::pipe::PipeId;
use super::process::{Condition, Descriptor, HOST, Process};
use super::signals::Reached;
use super::table::{Entry, ExitSeen, Known};
use crate::kernel::{Collected, Found, Notice, Scan, ScanStep};
use crate::types::{
    CollectMode, Errno, Exit, ExitInfo, Holder, Member, MemberWatch, Ns, Probe, Signal, Signalled,
    Slot, StatusSource, Stream, Survivor, Token, TokenKind,
};

/// The look that is under way.
#[derive(Debug, Default)]
pub(super) struct Look {
    id: u64,
    /// The process it goes on from.
    from: u32,
    /// Something was refused in it that a holder could be.
    hidden: bool,
    doubtful: Vec<Token>,
    found: Vec<(Token, Known)>,
}

impl Sim {
    pub(super) fn do_collect(&mut self, generation: Token, mode: CollectMode) -> Collected {
        self.tick();
        let batches = self.batches;
        let Some(entry) = self.table.get(generation) else {
            return Collected::NotYet;
        };
        let leader = entry.leader;
        let seen = std::mem::replace(&mut entry.exit, ExitSeen::No);
        if let ExitSeen::Announced(at) = seen {
            self.worst_wait = self.worst_wait.max(batches - at);
        }
        if self.leader(leader).is_some_and(|p| !p.is_zombie()) {
            return Collected::NotYet;
        }
        if let Some(delay) = self.delayed(generation, seen) {
            self.pending.push((
                self.world.now.after(delay),
                Notice::Exit(generation.with(TokenKind::Exit)),
            ));
            return Collected::NotYet;
        }
        let ours = self.leader(leader).is_some();
        if let Some(entry) = self.table.get(generation) {
            entry.exit = ExitSeen::Told;
        }
        let known = self.world.obituaries.get(&leader.birth).copied();
        match known {
            Some(known) if ours => {
                if mode == CollectMode::Reap {
                    self.world.reap(leader.pid, HOST);
                }
                Collected::Ended(ExitInfo {
                    exit: known.exit,
                    usage: Some(known.usage),
                })
            }
            Some(known) if self.capabilities.exit_info => {
                let exit = Exit {
                    source: StatusSource::PidfdInfo,
                    ..known.exit
                };
                Collected::Ended(ExitInfo { exit, usage: None })
            }
            Some(_) | None => Collected::Lost,
        }
    }

    /// Nothing to say though the leader has ended: for how long. A thief is let in here, too.
    fn delayed(&mut self, generation: Token, seen: ExitSeen) -> Option<Ns> {
        self.interrupted(Call::Collect, Some(generation));
        match self.take_fault(Call::Collect, Some(generation), |_| true) {
            Some((Fault::NotYet(delay), _)) => return Some(delay),
            Some((Fault::Stolen, _)) => {
                let pid = self.table.look(generation).map_or(0, |e| e.leader.pid);
                self.world.steal(pid);
            }
            _ => {}
        }
        let fault_rates = self.options.fault_rates;
        let announced = matches!(seen, ExitSeen::Announced(_));
        if !announced || !self.rng.chance(fault_rates.not_yet) {
            return None;
        }
        let delay = Ns(self.rng.below(fault_rates.lateness.0 + 1));
        self.by_chance(Call::Collect, Fault::NotYet(delay));
        Some(delay)
    }

    /// The leader, if it was not reaped.
    fn leader(&self, leader: Known) -> Option<&Process> {
        self.world
            .processes
            .get(&leader.pid)
            .filter(|p| p.birth == leader.birth)
    }

    /// Whether the leader of a generation has not ended.
    pub(super) fn leader_lives(&self, generation: Token) -> bool {
        let known = self.table.look(generation).map(|entry| entry.leader);
        known
            .and_then(|leader| self.leader(leader))
            .is_some_and(|p| !p.is_zombie())
    }

    /// The group as the leader's pidfd sees it: it is not fooled by another group with the same
    /// number.
    fn own_group(&self, leader: Known) -> Vec<u32> {
        let ours = |p: &&Process| p.pgid == leader.pid && p.family == leader.birth;
        self.world
            .processes
            .values()
            .filter(ours)
            .map(|p| p.pid)
            .collect()
    }

    /// What a signal meets instead of whom it was for; or they end just before.
    pub(super) fn refused(
        &mut self,
        call: Call,
        generation: Token,
        whom: &[u32],
    ) -> Option<Signalled> {
        match self.take_fault(call, Some(generation), |p| {
            p.fault != Fault::Gone || !whom.is_empty()
        })? {
            (Fault::Denied, _) => Some(Signalled::Denied),
            (Fault::NoWay, _) => Some(Signalled::NoWay),
            (Fault::Gone, _) => {
                self.end_before(whom);
                None
            }
            _ => None,
        }
    }

    pub(super) fn signal_group(&mut self, leader: Known, signal: Signal) -> Signalled {
        if self.capabilities.group_signal {
            let pids = self.own_group(leader);
            return told(self.world.send_to(&pids, leader.birth, Some(signal)));
        }
        let number = -i64::from(leader.pid);
        if self.leader(leader).is_some() {
            return told(self.world.send_to_number(number, Some(signal)));
        }
        // The leader was reaped: its members one by one, through pidfds that are opened before it
        // is asked who they are.
        if self.options.members == MemberWatch::Pidfd {
            let pids: Vec<u32> = self
                .world
                .processes
                .values()
                .filter(|p| self.is_member(leader, p))
                .map(|p| p.pid)
                .collect();
            if !pids.is_empty() {
                return told(self.world.send_to(&pids, leader.birth, Some(signal)));
            }
        }
        match self.world.send_to_number(number, None) {
            Reached::Nobody => Signalled::Empty,
            Reached::Somebody | Reached::Refused => Signalled::NoWay,
        }
    }

    pub(super) fn do_signal_leader(&mut self, generation: Token, signal: Signal) -> Signalled {
        self.tick();
        let Some(leader) = self.table.get(generation).map(|e| e.leader) else {
            return Signalled::NoWay;
        };
        let whom: Vec<u32> = self
            .leader(leader)
            .filter(|p| !p.is_zombie())
            .map(|p| p.pid)
            .into_iter()
            .collect();
        if let Some(refused) = self.refused(Call::SignalLeader, generation, &whom) {
            return refused;
        }
        if self.leader(leader).is_none() {
            return Signalled::Empty;
        }
        told(
            self.world
                .send_to(&[leader.pid], leader.birth, Some(signal)),
        )
    }

    pub(super) fn probe_group(&mut self, leader: Known) -> Probe {
        match self.leader(leader).map(Process::is_zombie) {
            Some(true) => return Probe::Unknown,
            Some(false) => return Probe::Alive,
            None => {}
        }
        let empty = if self.capabilities.group_signal {
            self.own_group(leader).is_empty()
        } else {
            self.world.send_to_number(-i64::from(leader.pid), None) == Reached::Nobody
        };
        if empty { Probe::Empty } else { Probe::Alive }
    }

    // ------------------------------------------------------------------ looking

    pub(super) fn do_scan(&mut self, scan: &mut Scan) -> ScanStep {
        self.tick();
        self.interrupted(Call::Scan, None);
        if self.scan.id != scan.id {
            self.scan = Look {
                id: scan.id,
                ..Look::default()
            };
        }
        let wanted = !scan.members.is_empty() || !scan.holders.is_empty();
        if self.scan.from == 0
            && wanted
            && self
                .take_fault(Call::Scan, None, |p| matches!(p.fault, Fault::Scan(_)))
                .is_some()
        {
            return ScanStep::Done {
                members: false,
                holders: false,
            };
        }
        let slice: Vec<u32> = self
            .world
            .processes
            .range(self.scan.from..)
            .take(scan.budget.max(1))
            .map(|(pid, _)| *pid)
            .collect();
        self.lose_one(&slice, scan);
        for pid in &slice {
            for token in &scan.members {
                if let Some(member) = self.member(*token, *pid) {
                    scan.found.push(Found::Member(*token, member));
                }
            }
            for token in &scan.holders {
                if let Some(holder) = self.holder(*token, *pid) {
                    scan.found.push(Found::Holder(*token, holder));
                }
            }
        }
        self.scan.from = slice.last().map_or(u32::MAX, |pid| pid + 1);
        if self
            .world
            .processes
            .range(self.scan.from..)
            .next()
            .is_some()
        {
            return ScanStep::More;
        }
        self.look_over(scan)
    }

    /// One member ends just before it is looked at.
    fn lose_one(&mut self, slice: &[u32], scan: &Scan) {
        let is_member = |pid: &&u32| {
            let process = self
                .world
                .processes
                .get(pid)
                .filter(|p| p.condition != Condition::Stuck && p.birth != p.family);
            process.is_some_and(|p| {
                scan.members.iter().any(|t| {
                    self.table
                        .look(*t)
                        .is_some_and(|e| self.belongs(e, p) == Belongs::Yes)
                })
            })
        };
        if let Some(one) = slice.iter().find(is_member).copied()
            && self
                .take_fault(Call::Scan, None, |p| p.fault == Fault::Gone)
                .is_some()
        {
            self.end_before(&[one]);
        }
    }

    fn look_over(&mut self, scan: &mut Scan) -> ScanStep {
        let mut refused = self
            .take_fault(Call::Scan, None, |p| p.fault == Fault::Incomplete)
            .is_some();
        if self.rng.chance(self.options.fault_rates.incomplete) {
            self.by_chance(Call::Scan, Fault::Incomplete);
            refused = true;
        }
        // The next slice, of this look or another, begins at the first process again.
        let look = std::mem::take(&mut self.scan);
        for token in &scan.members {
            let known: Vec<Known> = look
                .found
                .iter()
                .filter(|(of, _)| of == token)
                .map(|(_, one)| *one)
                .collect();
            if let Some(entry) = self.table.get(*token) {
                entry.known = known;
            }
        }
        self.reap_inherited(&scan.members);
        scan.doubtful.extend(look.doubtful);
        ScanStep::Done {
            members: !refused,
            holders: !(look.hidden || refused),
        }
    }

    /// A living process of the leader's group and session. Once the leader was reaped, whoever has
    /// its number leads another group with that number: then nobody is a member.
    pub(super) fn is_member(&self, leader: Known, process: &Process) -> bool {
        let other = |p: &Process| p.birth != leader.birth;
        process.pgid == leader.pid
            && process.sid == HOST
            && !process.is_zombie()
            && !self.world.processes.get(&leader.pid).is_some_and(other)
    }

    fn member(&mut self, token: Token, pid: u32) -> Option<Member> {
        let entry = self.table.look(token)?;
        let process = self.world.processes.get(&pid)?;
        match self.belongs(entry, process) {
            Belongs::No => return None,
            Belongs::NotKnown => {
                if !self.scan.doubtful.contains(&token) {
                    self.scan.doubtful.push(token);
                }
                return None;
            }
            Belongs::Yes => {}
        }
        self.scan.found.push((
            token,
            Known {
                pid,
                birth: process.birth,
            },
        ));
        let age = self.world.now.since(process.born).to_duration();
        let who = Survivor::new(pid, process.comm.clone(), process.letter(), age);
        Some(Member {
            who,
            start: process.start_ticks(),
        })
    }

    fn holder(&mut self, token: Token, pid: u32) -> Option<Holder> {
        let entry = self.table.look(token)?;
        let process = self.world.processes.get(&pid)?;
        if process.birth == entry.leader.birth {
            return None;
        }
        let streams = held(entry, process);
        if process.user.is_some() {
            // /proc/PID/fd of another user cannot be read: whether it holds anything is not known.
            self.scan.hidden = true;
            return None;
        }
        (!streams.is_empty()).then(|| Holder::new(pid, process.comm.clone(), streams))
    }

    // ------------------------------------------------------------------ members

    pub(super) fn do_watch(&mut self, member: &Member, token: Token) -> Result<(), Errno> {
        self.tick();
        match self.take_fault(Call::Watch, Some(token), |_| true) {
            Some((Fault::Watch(errno), _)) if errno.raw() == libc::ESRCH => {
                self.end_before(&[member.who.pid])
            }
            Some((Fault::Watch(errno), _)) => return Err(errno),
            _ => {}
        }
        if self.options.members == MemberWatch::Polling {
            return Err(Errno::from_raw(libc::ENOSYS));
        }
        if self.rng.chance(self.options.fault_rates.no_watch) {
            self.by_chance(Call::Watch, Fault::Watch(Errno::from_raw(libc::EMFILE)));
            return Err(Errno::from_raw(libc::EMFILE));
        }
        self.unwatch(token);
        let gone = Errno::from_raw(libc::ESRCH);
        let Some(entry) = self.table.get(token) else {
            return Err(gone);
        };
        let same = |p: &&mut Process| p.start_ticks() == member.start && !p.is_zombie();
        let Some(process) = self.world.processes.get_mut(&member.who.pid).filter(same) else {
            return Err(gone);
        };
        entry.watches.push((
            token,
            Known {
                pid: process.pid,
                birth: process.birth,
            },
        ));
        process.member_watches.push(token);
        Ok(())
    }

    /// Ends the watch with this token; what it may have announced is forgotten.
    pub(super) fn unwatch(&mut self, token: Token) {
        let Some(entry) = self.table.get(token) else {
            return;
        };
        let Some(place) = entry.watches.iter().position(|(t, _)| *t == token) else {
            return;
        };
        let (_, known) = entry.watches.swap_remove(place);
        if let Some(process) = self
            .world
            .processes
            .get_mut(&known.pid)
            .filter(|p| p.birth == known.birth)
        {
            process.member_watches.retain(|t| *t != token);
        }
        let of_this = |n: &Notice| *n == Notice::MemberGone(token);
        self.pending.retain(|(_, n)| !of_this(n));
        self.world.edges.retain(|(_, n)| !of_this(n));
    }

    /// The leader of a slot, for tests that know the token only.
    pub fn leader_pid(&self, generation: Token) -> Option<u32> {
        self.table.look(generation).map(|e| e.leader.pid)
    }

    /// The slots of all generations.
    pub fn slots(&self) -> Vec<Slot> {
        self.table.iter().map(|(slot, _)| Slot(slot)).collect()
    }
}

/// The open captured streams that a process holds.
fn held(entry: &Entry, process: &Process) -> Vec<Stream> {
    let holds = |id: PipeId| process.fds.contains(&Descriptor::Pipe(id));
    Stream::ALL
        .into_iter()
        .filter(|s| entry.streams[s.index()].is_some_and(holds))
        .collect()
}
