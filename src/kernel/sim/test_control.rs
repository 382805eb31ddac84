//! What a test may ask of the world, and do to it behind the host's back.

use super::pipe::{Moved, Pipe, PipeId};
use super::process::{Condition, Descriptor, INIT, NO_FAMILY, Process};
use super::script::Script;
use super::world::{Mark, Recipe, World};
use crate::types::{Exit, Ns, Signal, Stream};

impl World {
    /// The virtual time.
    pub fn now(&self) -> Ns {
        self.now
    }

    /// Every process, zombies included, by number.
    pub fn processes(&self) -> impl Iterator<Item = &Process> {
        self.processes.values()
    }

    /// The process with this number, zombies included.
    pub fn process(&self, pid: u32) -> Option<&Process> {
        self.processes.get(&pid)
    }

    /// The processes of a group, zombies included.
    pub fn group(&self, pgid: u32) -> Vec<u32> {
        self.processes
            .values()
            .filter(|p| p.pgid == pgid)
            .map(|p| p.pid)
            .collect()
    }

    /// Every cgroup that was made for a generation and is still there, by its path, and whether
    /// anybody in it is alive.
    pub fn cgroups(&self) -> impl Iterator<Item = (&str, bool)> {
        self.cgroups
            .iter()
            .map(|(id, cgroup)| (cgroup.path(), self.is_populated(*id)))
    }

    /// Every pipe that either side still has open.
    pub fn pipes(&self) -> impl Iterator<Item = (PipeId, &Pipe)> {
        self.pipes.iter().map(|(id, pipe)| (*id, pipe))
    }

    /// One pipe, if either side still has it open.
    pub fn pipe(&self, id: PipeId) -> Option<&Pipe> {
        self.pipes.get(&id)
    }

    /// Ends a process as it is told; `false` if there is none, or it has ended.
    pub fn end(&mut self, pid: u32, exit: Exit) -> bool {
        let alive = self.processes.get(&pid).is_some_and(|p| !p.is_zombie());
        self.finish(pid, exit);
        alive
    }

    /// Sends a signal from outside: nobody's pins are looked at.
    pub fn kill(&mut self, pid: u32, signal: Signal) {
        self.deliver(pid, signal);
    }

    /// Somebody else reaps this zombie.
    pub fn steal(&mut self, pid: u32) {
        self.reap(pid, INIT);
    }

    /// A process writes these bytes now, whatever it is in the middle of; how many went in.
    pub fn put(&mut self, pid: u32, stream: Stream, bytes: &[u8]) -> usize {
        match self.write(pid, stream, bytes) {
            Moved::Bytes(n) => n,
            Moved::Blocked | Moved::Gone => 0,
        }
    }

    /// Puts a process into uninterruptible sleep.
    pub fn freeze(&mut self, pid: u32) {
        let Some(process) = self.processes.get_mut(&pid).filter(|p| !p.is_zombie()) else {
            return;
        };
        if process.condition == Condition::Stopped {
            self.stopped = self.stopped.saturating_sub(1);
        }
        process.condition = Condition::Stuck;
        self.unschedule(pid);
    }

    /// Lets it go on; what was sent to it meanwhile arrives.
    pub fn thaw(&mut self, pid: u32) {
        let Some(process) = self
            .processes
            .get_mut(&pid)
            .filter(|p| p.condition == Condition::Stuck)
        else {
            return;
        };
        process.condition = Condition::Able;
        let pending = std::mem::take(&mut process.pending);
        self.go_on(pid);
        for signal in pending {
            self.deliver(pid, signal);
        }
    }

    /// The next processes get these numbers, as soon as they are free.
    pub fn use_pids(&mut self, pids: impl IntoIterator<Item = u32>) {
        self.wanted.extend(pids);
    }

    /// A process that no loop has started: without streams, and nobody is told of its end.
    fn unwatched(&self, comm: &str, script: &Script) -> Recipe {
        Recipe {
            comm: comm.to_owned(),
            acts: script.acts().clone(),
            fds: [Descriptor::Null; 3],
            ignore: Vec::new(),
            block: Vec::new(),
            mark: Mark::None,
            exec_at: self.now,
            exec_error: None,
            exit_watch: None,
        }
    }

    /// A child of the host that is no generation's leader: one that the process had before it
    /// executed the host's program. It leads a group of its own.
    pub fn sibling(&mut self, script: &Script) -> u32 {
        let pid = self.spawn(self.unwatched("sibling", script));
        if let Some(process) = self.processes.get_mut(&pid) {
            process.family = NO_FAMILY;
        }
        pid
    }

    /// A process that has nothing to do with the host, leading a group and a session of its own; it
    /// belongs to init. With a number, `None` if that is not free.
    pub fn stranger(&mut self, pid: Option<u32>, script: &Script) -> Option<u32> {
        if let Some(pid) = pid {
            if !self.is_free(pid) {
                return None;
            }
            self.wanted.insert(0, pid);
        }
        let pid = self.spawn(self.unwatched("stranger", script));
        let process = self.processes.get_mut(&pid)?;
        process.ppid = INIT;
        process.sid = pid;
        let birth = process.birth;
        self.strangers.insert(birth);
        Some(pid)
    }
}
