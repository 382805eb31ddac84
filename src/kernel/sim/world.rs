//! The simulated world: processes with parents, groups and sessions, the pipes between them and the
//! host, and what is due when. The kernel object asks it as Linux is asked; a test may also reach
//! into it.

use super::cgroup::{Cgroup, CgroupId};
use super::fault::Ask;
use super::log::{Entry, Happened, Violation};
use super::pipe::{Flow, HostEnd, Pipe, PipeId};
use super::process::{After, Condition, Descriptor, Disposition, Doing, HOST, INIT, Process};
use super::script::Acts;
use crate::kernel::{Notice, Orphans};
use crate::types::{Exit, Ns, ResourceUsage, Signal, SpawnError, Token};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Who reaps the host's children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reaper {
    /// The host, when it collects them.
    #[default]
    Host,
    /// Somebody else in the host, at once: another thread that waits for every child, or an ignored
    /// SIGCHLD.
    Thief,
}

/// How the world behaves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) act_cost: Ns,
    pub(super) pid_max: u32,
    pub(super) reaper: Reaper,
    pub(super) orphans: Orphans,
    pub(super) log: bool,
}

/// What is kept of a child of the host that has ended: what a pidfd still knows.
#[derive(Clone, Copy, Debug)]
pub struct Obituary {
    /// The virtual time at which it is due.
    pub at: Ns,
    /// How it ended.
    pub exit: Exit,
    /// What it used.
    pub usage: ResourceUsage,
}

/// What a new process is made of.
pub(super) struct Recipe {
    pub(super) comm: String,
    pub(super) acts: Acts,
    pub(super) fds: [Descriptor; 3],
    pub(super) ignore: Vec<Signal>,
    pub(super) block: Vec<Signal>,
    pub(super) mark: Mark,
    pub(super) exec_at: Ns,
    pub(super) exec_error: Option<SpawnError>,
    pub(super) exit_watch: Option<Token>,
}

/// What tells a leader's descendants from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// Their group alone.
    None,
    /// A variable in their environment.
    Cookie,
    /// The cgroup that they are in.
    Cgroup(CgroupId),
}

/// Everything that is not the host.
#[derive(Debug)]
pub struct World {
    pub(super) now: Ns,
    pub(super) rules: Rules,
    pub(super) processes: BTreeMap<u32, Process>,
    pub(super) pipes: BTreeMap<PipeId, Pipe>,
    pub(super) cgroups: BTreeMap<CgroupId, Cgroup>,
    pub(super) next_cgroup: u64,
    /// Leaders that are nobody's business, by birth.
    pub(super) strangers: BTreeSet<u64>,
    /// Faults that processes have asked for, and that were not taken over.
    pub(super) asked: Vec<Ask>,
    /// Who runs when: time and order of arrival, then the process and which entry it is.
    queue: BTreeMap<(Ns, u64), (u32, u64)>,
    order: u64,
    births: u64,
    next_pid: u32,
    wrapped: bool,
    /// Numbers that the next processes are to get.
    pub(super) wanted: Vec<u32>,
    next_pipe: u64,
    /// How many processes are stopped: orphaned groups are looked for only then.
    pub(super) stopped: usize,
    /// What has changed since the kernel object looked, and when: edges.
    pub(super) edges: Vec<(Ns, Notice)>,
    /// A child of the host has ended since the kernel object looked.
    pub(super) sigchld: bool,
    /// How the host's spawns went, by birth, once that is known.
    pub(super) outcomes: BTreeMap<u64, Result<(), SpawnError>>,
    /// How the host's children ended, by birth.
    pub(super) obituaries: BTreeMap<u64, Obituary>,
    /// Children of the host that nobody will collect: reaped when they end.
    pub(super) unwatched: BTreeSet<u64>,
    pub(super) log: Vec<Entry>,
    pub(super) violations: Vec<Violation>,
}

impl World {
    pub(super) fn new(rules: Rules) -> World {
        World {
            now: Ns::ZERO,
            rules,
            processes: BTreeMap::new(),
            pipes: BTreeMap::new(),
            cgroups: BTreeMap::new(),
            next_cgroup: 0,
            strangers: BTreeSet::new(),
            asked: Vec::new(),
            queue: BTreeMap::new(),
            order: 0,
            births: 0,
            next_pid: 1000,
            wrapped: false,
            wanted: Vec::new(),
            next_pipe: 0,
            stopped: 0,
            edges: Vec::new(),
            sigchld: false,
            outcomes: BTreeMap::new(),
            obituaries: BTreeMap::new(),
            unwatched: BTreeSet::new(),
            log: Vec::new(),
            violations: Vec::new(),
        }
    }

    // ------------------------------------------------------------------ time

    /// When the next process does something.
    pub fn next_event(&self) -> Option<Ns> {
        self.queue.keys().next().map(|(at, _)| *at)
    }

    /// Moves the clock, and does everything that is due until then, in order.
    pub(super) fn run_until(&mut self, end: Ns) {
        while let Some(at) = self.next_event().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            let Some((_, (pid, turn))) = self.queue.pop_first() else {
                break;
            };
            if self.processes.get(&pid).is_some_and(|p| p.turn == turn) {
                self.run(pid);
            }
        }
        self.now = self.now.max(end);
    }

    /// A process's next turn; an earlier entry of its own is out of date from now on.
    pub(super) fn schedule(&mut self, pid: u32, at: Ns) {
        self.order += 1;
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        process.turn = self.order;
        self.queue
            .insert((at.max(self.now), self.order), (pid, self.order));
    }

    /// The same, after the time that an act takes.
    pub(super) fn schedule_soon(&mut self, pid: u32) {
        self.schedule(pid, self.now.after(self.rules.act_cost));
    }

    /// Takes away its next turn.
    pub(super) fn unschedule(&mut self, pid: u32) {
        self.order += 1;
        let order = self.order;
        if let Some(process) = self.processes.get_mut(&pid) {
            process.turn = order;
        }
    }

    /// Something has changed for whoever watches it.
    pub(super) fn edge(&mut self, notice: Notice) {
        self.edges.push((self.now, notice));
    }

    pub(super) fn note(&mut self, what: Happened) {
        if self.rules.log {
            self.log.push(Entry { at: self.now, what });
        }
    }

    // ------------------------------------------------------------------ births

    pub(super) fn is_free(&self, pid: u32) -> bool {
        // A number stays reserved while it is anybody's group or session, as in Linux.
        pid > HOST
            && !self
                .processes
                .values()
                .any(|p| p.pid == pid || p.pgid == pid || p.sid == pid)
    }

    fn take_pid(&mut self) -> u32 {
        if let Some(place) = self.wanted.iter().position(|pid| self.is_free(*pid)) {
            return self.wanted.remove(place);
        }
        loop {
            let pid = self.next_pid;
            self.next_pid += 1;
            if self.next_pid > self.rules.pid_max {
                self.next_pid = HOST + 200;
                self.wrapped = true;
            }
            let free = if self.wrapped {
                self.is_free(pid)
            } else {
                !self.processes.contains_key(&pid)
            };
            if free {
                return pid;
            }
        }
    }

    fn birth(&mut self) -> u64 {
        self.births += 1;
        self.births
    }

    /// A child of the host, leading a group of its own.
    pub(super) fn spawn(&mut self, recipe: Recipe) -> u32 {
        let pid = self.take_pid();
        let birth = self.birth();
        let exec_at = recipe.exec_at;
        let ignored = recipe
            .ignore
            .into_iter()
            .map(|signal| (signal, Disposition::Ignored));
        let mut process = Process {
            pid,
            ppid: HOST,
            pgid: pid,
            sid: HOST,
            birth,
            family: birth,
            comm: short(&recipe.comm),
            born: self.now,
            condition: Condition::Able,
            doing: Doing::Exec(recipe.exec_error.map(Box::new)),
            frames: Vec::new(),
            dispositions: ignored.collect(),
            blocked: recipe.block.into_iter().collect(),
            pending: BTreeSet::new(),
            cookie: (recipe.mark == Mark::Cookie).then_some(birth),
            cgroup: if let Mark::Cgroup(id) = recipe.mark {
                Some(id)
            } else {
                None
            },
            fds: recipe.fds,
            user: None,
            cpu: Ns::ZERO,
            last_child: None,
            turn: 0,
            exit_watch: recipe.exit_watch,
            member_watches: Vec::new(),
        };
        process.enter(recipe.acts, After::Outer);
        self.adopt(process, HOST);
        self.schedule(pid, exec_at);
        pid
    }

    /// A child of `parent` that does these acts; its descriptors are the parent's.
    pub(super) fn fork(&mut self, parent: u32, acts: Acts) {
        let Some(parent) = self.processes.get(&parent) else {
            return;
        };
        let mut child = parent.clone();
        child.ppid = parent.pid;
        child.pid = self.take_pid();
        child.birth = self.birth();
        child.born = self.now;
        child.condition = Condition::Able;
        child.doing = Doing::Next;
        child.frames.clear();
        child.pending.clear();
        child.cpu = Ns::ZERO;
        child.last_child = None;
        child.exit_watch = None;
        child.member_watches.clear();
        child.enter(acts, After::Outer);
        let (pid, birth, ppid) = (child.pid, child.birth, child.ppid);
        self.adopt(child, ppid);
        self.schedule_soon(pid);
        if let Some(parent) = self.processes.get_mut(&ppid) {
            parent.last_child = Some(birth);
        }
    }

    fn adopt(&mut self, process: Process, parent: u32) {
        for fd in process.fds {
            if let Descriptor::Pipe(id) = fd
                && let Some(pipe) = self.pipes.get_mut(&id)
            {
                pipe.ends += 1;
            }
        }
        self.note(Happened::Born(process.pid, parent));
        let cgroup = process.cgroup;
        let was_populated = cgroup.is_some_and(|id| self.is_populated(id));
        self.processes.insert(process.pid, process);
        if let (Some(id), false) = (cgroup, was_populated) {
            self.cgroup_changed(id);
        }
    }

    // ------------------------------------------------------------------ ends

    /// A process ends: descriptors first, then its children's parent, then the notices.
    pub(super) fn finish(&mut self, pid: u32, exit: Exit) {
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        if process.is_zombie() {
            return;
        }
        if process.condition == Condition::Stopped {
            self.stopped = self.stopped.saturating_sub(1);
        }
        if matches!(process.doing, Doing::Exec(_)) {
            // Killed before exec: that looks like a start, and the exit says the rest.
            self.outcomes.entry(process.birth).or_insert(Ok(()));
        }
        let groups = self.groups_of_family(pid);
        let orphaned: Vec<bool> = groups.iter().map(|g| self.is_orphaned(*g)).collect();
        self.close_all(pid);
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        process.condition = Condition::Zombie(exit);
        process.frames.clear();
        let (ppid, pgid, birth, cgroup) =
            (process.ppid, process.pgid, process.birth, process.cgroup);
        let is_leader = birth == process.family;
        let (exit_watch, members) = (
            process.exit_watch,
            std::mem::take(&mut process.member_watches),
        );
        let usage = ResourceUsage::new(Duration::from_nanos(process.cpu.0), Duration::ZERO, None);
        self.unschedule(pid);
        self.note(Happened::Ended(pid, pgid, exit));
        self.orphan_children(pid);
        for (group, before) in groups.iter().zip(orphaned) {
            self.wake_orphaned(*group, before);
        }
        for token in members {
            self.edge(Notice::MemberGone(token));
        }
        if let Some(id) = cgroup.filter(|id| !self.is_populated(*id)) {
            self.cgroup_changed(id);
        }
        if ppid == HOST {
            if is_leader {
                self.obituaries.insert(
                    birth,
                    Obituary {
                        at: self.now,
                        exit,
                        usage,
                    },
                );
            }
            self.sigchld = true;
            if let Some(token) = exit_watch {
                self.edge(Notice::Exit(token));
            }
            if self.unwatched.remove(&birth) {
                self.obituaries.remove(&birth);
                self.reap(pid, HOST);
            } else if self.rules.reaper == Reaper::Thief {
                self.reap(pid, INIT);
            }
        } else {
            self.tell_parent(pid, ppid);
        }
    }

    fn tell_parent(&mut self, pid: u32, ppid: u32) {
        let Some(parent) = self.processes.get(&ppid) else {
            // Only init is no process of the world, and init reaps at once.
            self.reap(pid, INIT);
            return;
        };
        if parent.dispositions.get(&Signal::CHLD) == Some(&Disposition::Ignored) {
            self.reap(pid, ppid);
        } else if matches!(parent.doing, Doing::Waiting) && parent.condition == Condition::Able {
            self.schedule_soon(ppid);
        }
    }

    /// Its children are given to whoever adopts them: init, which reaps at once, or a host that has
    /// asked for them.
    fn orphan_children(&mut self, pid: u32) {
        let mut zombies = Vec::new();
        let (orphans, strangers) = (self.rules.orphans, &self.strangers);
        for child in self.processes.values_mut().filter(|p| p.ppid == pid) {
            child.ppid = if orphans == Orphans::Leave || strangers.contains(&child.family) {
                INIT
            } else {
                HOST
            };
            if child.is_zombie() {
                zombies.push((child.pid, child.ppid));
            }
        }
        for (zombie, parent) in zombies {
            if parent == INIT {
                self.reap(zombie, INIT);
            } else {
                self.sigchld = true;
            }
        }
    }

    /// Takes a zombie away; its number is free again, if it is nobody's group or session.
    pub(super) fn reap(&mut self, pid: u32, by: u32) {
        if self.processes.get(&pid).is_some_and(Process::is_zombie) {
            self.processes.remove(&pid);
            self.note(Happened::Reaped(pid, by));
        }
    }

    // ------------------------------------------------------------------ pipes

    pub(super) fn make_pipe(
        &mut self,
        flow: Flow,
        capacity: usize,
        watch: Option<Token>,
    ) -> PipeId {
        self.next_pipe += 1;
        let id = PipeId(self.next_pipe);
        self.pipes.insert(id, Pipe::new(flow, capacity, watch));
        id
    }

    /// Something about a pipe has changed for the processes at its other end, or for the host.
    pub(super) fn pipe_changed(&mut self, id: PipeId) {
        let Some(pipe) = self.pipes.get_mut(&id) else {
            return;
        };
        for pid in std::mem::take(&mut pipe.sleepers) {
            if self
                .processes
                .get(&pid)
                .is_some_and(|p| p.condition == Condition::Able)
            {
                self.schedule_soon(pid);
            }
        }
        let Some(pipe) = self.pipes.get_mut(&id) else {
            return;
        };
        if let (Flow::ToChild, HostEnd::Open(Some(token))) = (pipe.flow, pipe.host)
            && (pipe.no_reader() || (pipe.owed && pipe.room() > 0))
        {
            pipe.owed = false;
            self.edge(Notice::Writable(token));
        }
    }

    /// The host is told that bytes, or the end, are there.
    pub(super) fn pipe_readable(&mut self, id: PipeId) {
        if let Some(&Pipe {
            flow: Flow::FromChild,
            host: HostEnd::Open(Some(token)),
            ..
        }) = self.pipes.get(&id)
        {
            self.edge(Notice::Readable(token));
        }
    }

    /// One descriptor of a process less.
    pub(super) fn drop_end(&mut self, id: PipeId) {
        let Some(pipe) = self.pipes.get_mut(&id) else {
            return;
        };
        pipe.ends = pipe.ends.saturating_sub(1);
        if pipe.ends == 0 {
            self.note(Happened::HungUp(id));
            self.pipe_readable(id);
            self.pipe_changed(id);
            self.forget_pipe(id);
        }
    }

    /// The host's end is closed: writers get EPIPE from now on.
    pub(super) fn close_host_end(&mut self, id: PipeId) {
        let Some(pipe) = self.pipes.get_mut(&id) else {
            return;
        };
        if pipe.host == HostEnd::Closed {
            return;
        }
        pipe.host = HostEnd::Closed;
        if pipe.flow == Flow::FromChild {
            pipe.spill();
        }
        self.note(Happened::Closed(id));
        self.pipe_changed(id);
        self.forget_pipe(id);
    }

    fn forget_pipe(&mut self, id: PipeId) {
        let over = |p: &Pipe| p.ends == 0 && matches!(p.host, HostEnd::Closed | HostEnd::Lingering);
        if self.pipes.get(&id).is_some_and(over) {
            self.pipes.remove(&id);
        }
    }

    /// From now on the host reads it and throws it away.
    pub(super) fn linger(&mut self, id: PipeId) {
        let Some(pipe) = self.pipes.get_mut(&id) else {
            return;
        };
        pipe.host = HostEnd::Lingering;
        pipe.spill();
        self.pipe_changed(id);
        self.forget_pipe(id);
    }

    pub(super) fn close_fd(&mut self, pid: u32, number: usize) {
        let Some(slot) = self
            .processes
            .get_mut(&pid)
            .and_then(|p| p.fds.get_mut(number))
        else {
            return;
        };
        if let Descriptor::Pipe(id) = std::mem::replace(slot, Descriptor::Closed) {
            self.drop_end(id);
        }
    }

    fn close_all(&mut self, pid: u32) {
        for number in 0..3 {
            self.close_fd(pid, number);
        }
    }
}

/// A command name as the kernel keeps it: 15 bytes.
pub(super) fn short(name: &str) -> String {
    let mut end = name.len().min(15);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name[..end].to_owned()
}
