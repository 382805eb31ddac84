//! What sees a generation's processes outside its group: a cookie in their environment, a cgroup of
//! their own, or adoption.

use super::Sim;
use super::cgroup::{CgroupId, MOUNT};
use super::fault::{Call, Fault};
use super::process::{Condition, HOST, Process};
use super::signals::Reached;
use super::table::{Entry, Known};
use super::world::Mark;
use crate::command::{Containment, NO_CGROUP2, cgroup_refused, cookie_refused};
use crate::kernel::Orphans;
use crate::types::{
    Errno, MemberWatch, Probe, Signal, Signalled, SpawnError, SpawnStep, Token, TokenKind,
};
use std::path::Path;

/// What a generation is contained by, beside its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contained {
    /// The process group alone.
    No,
    /// A variable in the environment.
    Cookie,
    /// A cgroup of its own.
    Cgroup(CgroupId),
}

/// How a process belongs to a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Belongs {
    /// It does not.
    No,
    /// It is in the group, in the cgroup, or has the cookie.
    Yes,
    /// Its environment cannot be read now (state D).
    NotKnown,
}

impl Sim {
    /// Makes what a plan asks to be contained by.
    pub(super) fn make_containment(
        &mut self,
        containment: &Containment,
        generation: Token,
    ) -> Result<Contained, SpawnError> {
        let options = match containment {
            Containment::Group => return Ok(Contained::No),
            Containment::Cookie => {
                let fault = self.take_fault(Call::Spawn, Some(generation), |p| {
                    matches!(p.fault, Fault::Spawn(SpawnStep::Cookie, _))
                });
                return match fault {
                    Some((Fault::Spawn(_, errno), _)) => Err(cookie_refused(errno)),
                    _ => Ok(Contained::Cookie),
                };
            }
            Containment::Cgroup(options) => options,
        };
        let parent = options.parent.as_deref().unwrap_or(Path::new(MOUNT));
        if let Some((Fault::Spawn(_, errno), _)) =
            self.take_fault(Call::Spawn, Some(generation), |p| {
                matches!(p.fault, Fault::Spawn(SpawnStep::Cgroup, _))
            })
        {
            return Err(cgroup_refused(parent, errno));
        }
        if !parent.starts_with(MOUNT) {
            return Err(
                SpawnError::new(SpawnStep::Cgroup, Errno::from_raw(libc::EINVAL))
                    .at(parent)
                    .because(NO_CGROUP2),
            );
        }
        let path = parent.join(format!(
            "lastwords-{:08x}{:08x}",
            self.options.tag,
            generation.sequence()
        ));
        Ok(Contained::Cgroup(self.world.make_cgroup(
            path.to_string_lossy().into_owned(),
            generation.with(TokenKind::Cgroup),
        )))
    }

    /// Signals everybody: the group, then those outside who are known.
    pub(super) fn do_signal(&mut self, generation: Token, signal: Signal) -> Signalled {
        self.tick();
        let Some(entry) = self.table.get(generation) else {
            return Signalled::NoWay;
        };
        let (leader, contained) = (entry.leader, entry.contained);
        entry.told.clear();
        let all: Vec<u32> = self
            .world
            .processes()
            .filter(|p| {
                self.table
                    .look(generation)
                    .is_some_and(|e| self.belongs(e, p) == Belongs::Yes)
            })
            .map(|p| p.pid)
            .collect();
        if let Some(refused) = self.refused(Call::Signal, generation, &all) {
            return refused;
        }
        let group = self.signal_group(leader, signal);
        match contained {
            Contained::No => group,
            Contained::Cookie => group.and(self.signal_known(generation, signal, true)),
            Contained::Cgroup(id) => group.and(self.signal_cgroup(id, leader, signal)),
        }
    }

    /// Signals those outside who are known by now, and have not got the last signal.
    pub(super) fn do_signal_outside(&mut self, generation: Token, signal: Signal) -> Signalled {
        self.tick();
        match self.table.get(generation).map(|entry| entry.contained) {
            None => Signalled::NoWay,
            Some(Contained::No | Contained::Cgroup(_)) => Signalled::Empty,
            Some(Contained::Cookie) => {
                let known: Vec<u32> = self.known(generation).iter().map(|one| one.pid).collect();
                match self.refused(Call::SignalOutside, generation, &known) {
                    Some(refused) => refused,
                    None => self.signal_known(generation, signal, false),
                }
            }
        }
    }

    /// Members outside the group that a look has found, and that live.
    fn known(&self, generation: Token) -> Vec<Known> {
        let Some(entry) = self.table.look(generation) else {
            return Vec::new();
        };
        let leader = entry.leader;
        let lives = |one: &&Known| {
            let process = self
                .world
                .process(one.pid)
                .filter(|p| p.birth == one.birth && !p.is_zombie());
            process.is_some_and(|p| p.birth != leader.birth && p.pgid != leader.pid)
        };
        entry.known.iter().filter(lives).copied().collect()
    }

    /// Members that a look has found and that have left the group: one by one, through pidfds.
    fn signal_known(&mut self, generation: Token, signal: Signal, is_new: bool) -> Signalled {
        let Some(entry) = self
            .table
            .look(generation)
            .filter(|_| self.options.members == MemberWatch::Pidfd)
        else {
            return Signalled::Empty;
        };
        let (leader, told) = (entry.leader, entry.told.clone());
        let (mut answer, mut reached) = (Signalled::Empty, Vec::new());
        for one in self.known(generation) {
            if !is_new && signal != Signal::CONT && told.contains(&one) {
                continue;
            }
            match self.world.send_to(&[one.pid], leader.birth, Some(signal)) {
                Reached::Somebody => answer = Signalled::Sent,
                Reached::Refused => answer = answer.and(Signalled::Denied),
                Reached::Nobody => continue,
            }
            reached.push(one);
        }
        if let Some(entry) = self
            .table
            .get(generation)
            .filter(|_| signal != Signal::CONT)
        {
            entry.told.extend(reached);
        }
        answer
    }

    /// Those in the cgroup who are not in the group, which was signalled already; SIGKILL by
    /// `cgroup.kill`.
    fn signal_cgroup(&mut self, id: CgroupId, leader: Known, signal: Signal) -> Signalled {
        if signal == Signal::KILL {
            return told(self.world.kill_cgroup(id, leader.birth));
        }
        let outside = |p: &&Process| {
            p.cgroup == Some(id)
                && !p.is_zombie()
                && p.pgid != leader.pid
                && p.birth != leader.birth
        };
        let pids: Vec<u32> = self
            .world
            .processes()
            .filter(outside)
            .map(|p| p.pid)
            .collect();
        if self.options.members == MemberWatch::Polling {
            return Signalled::Empty;
        }
        told(self.world.send_to(&pids, leader.birth, Some(signal)))
    }

    pub(super) fn do_probe(&mut self, generation: Token) -> Probe {
        self.tick();
        let Some(entry) = self.table.get(generation) else {
            return Probe::Empty;
        };
        let (leader, contained) = (entry.leader, entry.contained);
        if let Some((Fault::Refused(errno), _)) =
            self.take_fault(Call::Probe, Some(generation), |_| true)
        {
            // EPERM says that somebody is there; anything else says nothing.
            return if errno.raw() == libc::EPERM {
                Probe::Alive
            } else {
                Probe::Unknown
            };
        }
        let group = self.probe_group(leader);
        match (contained, group) {
            (Contained::No, _) | (_, Probe::Alive) => group,
            // Only a look tells.
            (Contained::Cookie, Probe::Empty | Probe::Unknown) => Probe::Unknown,
            (Contained::Cgroup(id), Probe::Empty | Probe::Unknown) => {
                if self.world.is_populated(id) {
                    Probe::Alive
                } else {
                    group
                }
            }
        }
    }

    /// A living member of the generation: by its group, by its cgroup, by its cookie, or because
    /// the host has inherited it.
    pub(super) fn belongs(&self, entry: &Entry, process: &Process) -> Belongs {
        let leader = entry.leader;
        if process.is_zombie() {
            return Belongs::No;
        }
        if self.is_member(leader, process) {
            return Belongs::Yes;
        }
        let found = match entry.contained {
            Contained::No => false,
            Contained::Cgroup(id) => process.cgroup == Some(id) && process.pgid != leader.pid,
            Contained::Cookie => {
                let is_known = entry.known.contains(&Known {
                    pid: process.pid,
                    birth: process.birth,
                });
                let is_found = is_known
                    || self.is_own_orphan(leader, process)
                    || self.is_child_of_member(entry, process);
                if !is_found
                    && process.condition == Condition::Stuck
                    && process.birth > leader.birth
                {
                    return Belongs::NotKnown;
                }
                is_found || process.shown_cookie() == Some(leader.birth)
            }
        };
        if found { Belongs::Yes } else { Belongs::No }
    }

    /// An orphan that the host has inherited, where every orphan descends from this leader.
    fn is_own_orphan(&self, leader: Known, process: &Process) -> bool {
        let is_leader = |birth: u64| self.table.iter().any(|(_, e)| e.leader.birth == birth);
        self.options.orphans == Orphans::Adopt
            && process.ppid == HOST
            && process.birth > leader.birth
            && !is_leader(process.birth)
            && self.orphan_owner == Some(leader.birth)
    }

    /// The parent of the process is a member.
    fn is_child_of_member(&self, entry: &Entry, process: &Process) -> bool {
        self.world
            .process(process.ppid)
            .is_some_and(|parent| self.belongs(entry, parent) == Belongs::Yes)
    }

    // ------------------------------------------------------------------ inherited zombies

    /// A look has met zombies that the host has inherited.
    pub(super) fn reap_inherited(&mut self, scanned: &[Token]) {
        if self.options.orphans == Orphans::Leave {
            return;
        }
        let entries: Vec<&Entry> = scanned
            .iter()
            .filter_map(|token| self.table.look(*token))
            .collect();
        let is_of = |p: &Process| {
            entries.iter().any(|e| {
                p.pgid == e.leader.pid
                    || e.known.contains(&Known {
                        pid: p.pid,
                        birth: p.birth,
                    })
            }) && p.birth != p.family
        };
        let zombies: Vec<u32> = self
            .world
            .processes()
            .filter(|p| p.is_zombie() && p.ppid == HOST && is_of(p))
            .map(|p| p.pid)
            .collect();
        for pid in zombies {
            self.world.reap(pid, HOST);
        }
    }

    /// Where all children belong to the loop: those that are no leader are reaped as soon as they
    /// are seen.
    pub(super) fn reap_strangers(&mut self) {
        if self.options.orphans != Orphans::Adopt {
            return;
        }
        let zombies: Vec<u32> = self
            .world
            .processes()
            .filter(|p| p.is_zombie() && p.ppid == HOST && p.birth != p.family)
            .map(|p| p.pid)
            .collect();
        for pid in zombies {
            self.world.reap(pid, HOST);
        }
    }

    /// Members that go on after their generation are reaped when they end.
    pub(super) fn leave_to_reap(&mut self, entry: &Entry) {
        if self.options.orphans != Orphans::Inherit {
            return;
        }
        for one in &entry.known {
            let inherited = self
                .world
                .process(one.pid)
                .filter(|p| p.birth == one.birth && p.ppid == HOST && p.birth != p.family);
            match inherited.map(Process::is_zombie) {
                None => {}
                Some(true) => self.world.reap(one.pid, HOST),
                Some(false) => {
                    self.world.unwatched.insert(one.birth);
                }
            }
        }
    }
}

impl Contained {
    /// What its leader is marked by.
    pub(super) const fn mark(self) -> Mark {
        match self {
            Contained::No => Mark::None,
            Contained::Cookie => Mark::Cookie,
            Contained::Cgroup(id) => Mark::Cgroup(id),
        }
    }
}

pub(super) fn told(reached: Reached) -> Signalled {
    match reached {
        Reached::Somebody => Signalled::Sent,
        Reached::Nobody => Signalled::Empty,
        Reached::Refused => Signalled::Denied,
    }
}
