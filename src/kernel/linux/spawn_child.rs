//! Spawning a child, and learning whether it executed its program. Everything that can run out is
//! allocated before the child exists.

use super::clock;
use super::containment::cgroup::Cgroup;
use super::containment::{ContainmentState, signal};
use super::inner::Inner;
use super::poll::{Interest, Key};
use super::process::job_control::JobControl;
use super::process::leader::{ExitWatch, LeaderState};
use super::process::pidfd::{ChildRef, WaitResult, wait_child};
use super::process::{group, pidfd};
use super::spawn::{Launched, Spawner};
use super::stdio::setup::StdioSetup;
use super::table::{Reader, Row, SpawnState, Table};
use crate::command::plan::Plan;
use crate::command::{Containment, cookie_refused};
use crate::kernel::{Notice, SpawnOutcome, Spawned};
use crate::types::{
    CollectMode, Errno, ExitSource, Ns, Release, Signal, Signalled, Slot, SpawnError, SpawnStep,
    Stream, Token, TokenKind, limits,
};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// How long a child that was killed because it could not be watched is waited for.
const REAP_TIMEOUT: Duration = Duration::from_millis(100);

impl Inner {
    /// [`crate::kernel::Kernel::spawn`].
    pub(super) fn spawn_child(
        &mut self,
        plan: &Arc<Plan>,
        generation: Token,
    ) -> Result<Spawned<OwnedFd>, SpawnError> {
        // Descriptors that are not needed any more must not be the ones that are missing.
        self.close_deferred();
        if !self.table.reserve(generation) {
            return Err(SpawnError::new(
                SpawnStep::Register,
                Errno::from_raw(libc::ENOMEM),
            ));
        }
        let mut stdio = StdioSetup::make(plan, &mut self.dev_null)?;
        if matches!(plan.contain, Containment::Cookie) {
            self.scanner.require_proc().map_err(cookie_refused)?;
        }
        let host_peak = pidfd::own_peak();
        let job = JobControl::for_plan(plan);
        let containment = self.names.contain(&plan.contain, generation.sequence())?;
        let inside = containment
            .as_deref()
            .map(ContainmentState::inside)
            .unwrap_or_default();
        // A zombie of an orphan would count as a child that was there before.
        self.reap_zombies();
        self.scanner.before_spawn(generation);
        let launched = self
            .register(&stdio, inside.cgroup, generation)
            .and_then(|()| self.spawner.launch(plan, stdio.targets, inside));
        // The child has its own copies by now, or there is no child.
        stdio.child_ends = [None, None, None];
        let launched = match launched {
            Ok(launched) => launched,
            Err(e) => {
                self.unregister(&stdio, inside.cgroup);
                if let Some(cgroup) = inside.cgroup {
                    cgroup.remove();
                }
                return Err(e);
            }
        };
        let Launched {
            pid,
            pidfd,
            pending,
            started_at,
            ..
        } = launched;
        let has_cookie = matches!(containment.as_deref(), Some(ContainmentState::Cookie(_)));
        let hidden = self.scanner.hiding_error(pid).filter(|_| has_cookie);
        let readers = stdio.readers.each_mut().map(Option::take);
        let row = Row {
            sequence: generation.sequence(),
            pid,
            session: pidfd::own_session(),
            pidfd,
            spawn: SpawnState::Pending(Box::new(pending)),
            leader: LeaderState::Running,
            watch: ExitWatch::Off,
            exit: None,
            host_peak,
            readers,
            stdin: stdio.stdin.take(),
            watched: Vec::new(),
            known: Vec::new(),
            containment,
        };
        if let Some(e) = hidden {
            self.undo(row);
            return Err(cookie_refused(e));
        }
        self.adopt(row, generation)?;
        if let Some(job) = job {
            self.jobs.add(generation, job, self.clock.now());
        }
        let [stdin, stdout, stderr] = stdio.raw;
        Ok(Spawned {
            pid,
            stdin,
            stdout,
            stderr,
            capacities: stdio.capacities,
            started_at,
        })
    }

    /// Puts a child that exists into the table and watches for its end. If that fails, the child is
    /// killed and nothing of it is left.
    fn adopt(&mut self, mut row: Row, generation: Token) -> Result<(), SpawnError> {
        if let Err(e) = self.watch_exit(&mut row, generation) {
            self.undo(row);
            return Err(SpawnError::new(SpawnStep::Register, e));
        }
        let is_by_pid = row.watch == ExitWatch::Sigchld;
        if let Some(older) = self.table.put(generation, row) {
            // The slot was taken back without a release; no token can reach the older row any
            // more.
            self.let_go(older, Release::Close);
        }
        let spawns = &mut self.pending_spawns;
        spawns.list.push(generation.with(TokenKind::Spawn));
        spawns.interval = limits::SPAWN_POLL[0].into();
        spawns.next_check = self.clock.now().after(spawns.interval);
        if is_by_pid {
            // Its SIGCHLD may have arrived before it was in the table.
            self.check_exit_by_pid(generation.slot().0 as usize);
        }
        Ok(())
    }

    fn watch_exit(&mut self, row: &mut Row, generation: Token) -> Result<(), Errno> {
        if row.pidfd.is_none() && self.capabilities.pidfd_open {
            match pidfd::open(row.pid) {
                Ok(pidfd) => row.pidfd = Some(pidfd),
                // Running out of something does not mean that the call is missing.
                Err(e) if matches!(e.raw(), libc::EMFILE | libc::ENFILE | libc::ENOMEM) => {
                    return Err(e);
                }
                Err(_) => {}
            }
        }
        if let (ExitSource::Pidfd, Some(pidfd)) = (self.capabilities.exit, &row.pidfd) {
            match self.poller.add(
                pidfd.as_fd(),
                Key::Token(generation.with(TokenKind::Exit)),
                Interest::Read,
            ) {
                Ok(()) => {
                    row.watch = ExitWatch::Pidfd;
                    return Ok(());
                }
                // Linux 5.2 has pidfds that cannot be polled.
                Err(e) if e.raw() == libc::EPERM => {}
                Err(e) => return Err(e),
            }
        }
        self.use_sigchld()?;
        row.watch = ExitWatch::Sigchld;
        Ok(())
    }

    /// Kills and reaps a child that exists and cannot be watched, together with everything that it
    /// has started meanwhile in its process group and its cgroup.
    pub(super) fn undo(&mut self, mut row: Row) {
        let proc = self.scanner.proc();
        signal::signal(&mut row, Signal::KILL, &self.capabilities, proc);
        // The leader's state is not known to have changed, so this reaches it in any group.
        let killed = group::signal_leader(&row, Signal::KILL, &self.capabilities);
        row.unwatch_all(&mut self.poller);
        if let SpawnState::Pending(mut pending) = row.spawn {
            pending.wait(Some(REAP_TIMEOUT));
            self.spawner.recycle(*pending);
        }
        let containment = row.containment.take();
        let child = ChildRef {
            pid: row.pid,
            pidfd: row.pidfd.as_ref().map(AsFd::as_fd),
        };
        let end = clock::instant() + REAP_TIMEOUT;
        while wait_child(child, CollectMode::Reap) == WaitResult::Running {
            if killed == Signalled::NoWay || clock::instant() > end {
                // It may be in a frozen cgroup. It holds no descriptor of the host, and is reaped
                // when it ends.
                self.lingering
                    .add_child(row.pid, row.pidfd, &mut self.poller);
                return;
            }
            std::thread::yield_now();
        }
        if let Some(cgroup) = containment.as_deref().and_then(ContainmentState::cgroup) {
            cgroup.remove();
        }
    }

    /// Watches the host's ends of the pipes before a child has the other ends. After an error
    /// nothing is watched.
    fn register(
        &mut self,
        stdio: &StdioSetup,
        cgroup: Option<&Cgroup>,
        generation: Token,
    ) -> Result<(), SpawnError> {
        let registered = self.register_each(stdio, cgroup, generation);
        if registered.is_err() {
            self.unregister(stdio, cgroup);
        }
        registered.map_err(|e| SpawnError::new(SpawnStep::Register, e))
    }

    fn register_each(
        &mut self,
        stdio: &StdioSetup,
        cgroup: Option<&Cgroup>,
        generation: Token,
    ) -> Result<(), Errno> {
        if let Some(cgroup) = cgroup {
            // Reading the file clears the event, so that only later changes are reported.
            let _ = cgroup.is_populated();
            self.poller.add(
                cgroup.events(),
                Key::Token(generation.with(TokenKind::Cgroup)),
                Interest::Urgent,
            )?;
        }
        for (stream, reader) in Stream::ALL.iter().zip(&stdio.readers) {
            if let Some(Reader { fd, .. }) = reader {
                self.poller.add(
                    fd.as_fd(),
                    Key::Token(generation.with(TokenKind::Output(*stream))),
                    Interest::Read,
                )?;
            }
        }
        match &stdio.stdin {
            Some(fd) => self.poller.add(
                fd.as_fd(),
                Key::Token(generation.with(TokenKind::Stdin)),
                Interest::Write,
            ),
            None => Ok(()),
        }
    }

    fn unregister(&mut self, stdio: &StdioSetup, cgroup: Option<&Cgroup>) {
        if let Some(cgroup) = cgroup {
            self.poller.remove(cgroup.events());
        }
        for fd in stdio
            .readers
            .iter()
            .flatten()
            .map(|reader| &reader.fd)
            .chain(&stdio.stdin)
        {
            self.poller.remove(fd.as_fd());
        }
    }

    /// [`crate::kernel::Kernel::outcome`]. An outcome that was reported here is not announced by a
    /// notice any more.
    pub(super) fn spawn_outcome(&mut self, generation: Token) -> SpawnOutcome {
        if !check_outcome(&mut self.table, &mut self.spawner, generation) {
            return SpawnOutcome::NotYet;
        }
        self.pending_spawns
            .list
            .retain(|token| *token != generation.with(TokenKind::Spawn));
        match self.table.get(generation).map(|row| &row.spawn) {
            Some(SpawnState::Started) => SpawnOutcome::Started,
            Some(SpawnState::Failed(error)) => SpawnOutcome::Failed(error.clone()),
            Some(SpawnState::Pending(_)) | None => SpawnOutcome::NotYet,
        }
    }

    /// Sleeps until the outcome is known, or until the given time.
    pub(super) fn wait_for_outcome(&mut self, generation: Token, until: Option<Ns>) {
        let left = until.map(|at| at.since(self.clock.now()).to_duration());
        if let Some(Row {
            spawn: SpawnState::Pending(pending),
            ..
        }) = self.table.get_mut(generation)
        {
            pending.wait(left);
        }
    }

    /// Asks by pid whether the leader in this place of the table has ended. False if its exit is
    /// noticed in another way.
    pub(super) fn check_exit_by_pid(&mut self, place: usize) -> bool {
        let Some(row) = self
            .table
            .at(place)
            .filter(|row| row.watch == ExitWatch::Sigchld)
        else {
            return false;
        };
        if wait_child(row.child_ref(), CollectMode::KeepZombie) != WaitResult::Running {
            row.watch = ExitWatch::SigchldNotified;
            let slot = Slot(u32::try_from(place).unwrap_or(u32::MAX));
            let token = Token::new(slot, row.sequence, TokenKind::Exit);
            self.queued.push_back(Notice::Exit(token));
        }
        true
    }
}

/// Whether the outcome of a spawn is known; one memory load while it is not. When it becomes known,
/// the child's stack is free for the next child.
pub(super) fn check_outcome(table: &mut Table, spawner: &mut Spawner, generation: Token) -> bool {
    let Some(row) = table.get_mut(generation) else {
        return false;
    };
    let SpawnState::Pending(pending) = &mut row.spawn else {
        return true;
    };
    let state = match pending.outcome() {
        SpawnOutcome::NotYet => return false,
        SpawnOutcome::Started => SpawnState::Started,
        SpawnOutcome::Failed(error) => SpawnState::Failed(error),
    };
    if let SpawnState::Pending(pending) = std::mem::replace(&mut row.spawn, state) {
        spawner.recycle(*pending);
    }
    true
}
