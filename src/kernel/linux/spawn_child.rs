//! A spawn, and how it goes. What can run out is taken before the child exists.

use super::containment::ContainmentState;
use super::containment::cgroup::Cgroup;
use super::poll::{Interest, Key};
use super::process::leader::{ExitWatch, LeaderState};
use super::process::pidfd;
use super::process::pidfd::{ChildRef, SignalScope, WaitResult, wait_child};
use super::spawn::{Launched, Spawner};
use super::stdio::setup::Ends;
use super::table::{Birth, Reader, Row, Table};
use super::{Linux, clock};
use crate::command::plan::Plan;
use crate::kernel::{Kernel as _, Notice, SpawnOutcome, Spawned};
use crate::types::{
    Errno, ExitSource, Keep, Ns, Release, Signal, Slot, SpawnError, Step, Stream, Token, What,
    limits,
};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// How long a child that could not be watched is waited for, after it was killed.
const REAP_WITHIN: Duration = Duration::from_millis(100);

impl Linux {
    /// [`crate::kernel::Kernel::spawn`].
    pub(crate) fn start(
        &mut self,
        plan: &Arc<Plan>,
        generation: Token,
    ) -> Result<Spawned<OwnedFd>, SpawnError> {
        if self.mark.is_copy() {
            let refused = SpawnError::new(Step::Clone, Errno::from_raw(libc::EPERM));
            return Err(
                refused.because("this process is a forked copy of the one that made the loop")
            );
        }
        // What is of no use must not be what is missing.
        self.tidy();
        if !self.table.reserve(generation) {
            return Err(SpawnError::new(
                Step::Register,
                Errno::from_raw(libc::ENOMEM),
            ));
        }
        let mut ends = Ends::make(plan, &mut self.null)?;
        let host_peak = pidfd::own_peak();
        let mut containment = self.names.contain(&plan.contain, generation.sequence())?;
        let inside = containment
            .as_deref()
            .map(ContainmentState::inside)
            .unwrap_or_default();
        let started = self
            .register(&ends, inside.cgroup, generation)
            .and_then(|()| self.spawner.launch(plan, ends.child, inside));
        // The child has its own by now, or there is none.
        ends.childs = [None, None, None];
        let launched = match started {
            Ok(launched) => launched,
            Err(e) => {
                self.unregister(&ends, inside.cgroup);
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
            way,
        } = launched;
        tracing::debug!(pid, ?way, "made a child");
        if let (Some(ContainmentState::Cookie(cookie)), Some(proc)) =
            (containment.as_deref_mut(), self.scanner.proc())
        {
            cookie.since = proc.stat(pid).map_or(0, |stat| stat.start);
        }
        let readers = ends.readers.each_mut().map(Option::take);
        let row = Row {
            sequence: generation.sequence(),
            pid,
            session: pidfd::own_session(),
            pidfd,
            birth: Birth::UnderWay(Box::new(pending)),
            leader: LeaderState::Running,
            watch: ExitWatch::Off,
            exit: None,
            host_peak,
            readers,
            stdin: ends.feed.take(),
            watched: Vec::new(),
            known: Vec::new(),
            containment,
        };
        self.adopt(row, generation)?;
        let [stdin, stdout, stderr] = ends.raw;
        Ok(Spawned {
            pid,
            stdin,
            stdout,
            stderr,
            capacities: ends.capacities,
            started_at,
        })
    }

    /// Puts a child that exists into the table and its end into the poll set; or kills it, and
    /// nothing of it is left.
    fn adopt(&mut self, mut row: Row, generation: Token) -> Result<(), SpawnError> {
        if let Err(e) = self.watch_exit(&mut row, generation) {
            self.undo(row);
            return Err(SpawnError::new(Step::Register, e));
        }
        let asked = row.watch == ExitWatch::Sigchld;
        if let Some(older) = self.table.put(generation, row) {
            // Its owner has taken the slot back without a release; it can reach nobody any more.
            self.let_go(older, Release::Close);
        }
        self.under_way.push(generation.with(What::Spawn));
        (self.look, self.pause) = (
            self.clock.now().after(limits::SPAWN_LOOK[0].into()),
            limits::SPAWN_LOOK[0].into(),
        );
        if asked {
            // Its signal may have come and gone before it was in the table.
            self.ask(generation.slot().0 as usize);
        }
        Ok(())
    }

    fn watch_exit(&mut self, row: &mut Row, generation: Token) -> Result<(), Errno> {
        if row.pidfd.is_none() && self.capabilities.pidfd_open {
            match pidfd::open(row.pid) {
                Ok(pidfd) => row.pidfd = Some(pidfd),
                // To run out of something is not to lack the call.
                Err(e) if matches!(e.raw(), libc::EMFILE | libc::ENFILE | libc::ENOMEM) => {
                    return Err(e);
                }
                Err(_) => {}
            }
        }
        if let (ExitSource::Pidfd, Some(pidfd)) = (self.capabilities.exit, &row.pidfd) {
            match self.poller.add(
                pidfd.as_fd(),
                Key::Token(generation.with(What::Exit)),
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

    /// A child that exists and cannot be watched: killed through its descriptor (or its number,
    /// which nobody has reaped), and reaped.
    pub(crate) fn undo(&mut self, mut row: Row) {
        let killed = match &row.pidfd {
            Some(pidfd) if self.capabilities.pidfd_signal => {
                pidfd::send(pidfd.as_fd(), Some(Signal::KILL), SignalScope::Process)
            }
            _ => pidfd::kill(row.pid, SignalScope::Process, Signal::KILL),
        };
        row.unwatch_all(&mut self.poller);
        if let Birth::UnderWay(mut pending) = row.birth {
            pending.wait(Some(REAP_WITHIN));
            self.spawner.recycle(*pending);
        }
        let containment = row.containment.take();
        let child = ChildRef {
            pid: row.pid,
            pidfd: row.pidfd.as_ref().map(AsFd::as_fd),
        };
        let end = clock::instant() + REAP_WITHIN;
        while killed.is_ok() && wait_child(child, Keep::No) == WaitResult::Running {
            if clock::instant() > end {
                // In a frozen cgroup, say. It has no descriptor of ours, and is reaped when it
                // ends.
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

    /// Watches our ends before there is anybody at the other ends. On an error nothing is watched.
    fn register(
        &mut self,
        ends: &Ends,
        cgroup: Option<&Cgroup>,
        generation: Token,
    ) -> Result<(), SpawnError> {
        let registered = self.register_each(ends, cgroup, generation);
        if registered.is_err() {
            self.unregister(ends, cgroup);
        }
        registered.map_err(|e| SpawnError::new(Step::Register, e))
    }

    fn register_each(
        &mut self,
        ends: &Ends,
        cgroup: Option<&Cgroup>,
        generation: Token,
    ) -> Result<(), Errno> {
        if let Some(cgroup) = cgroup {
            // Read once, so that only what changes from now on is told.
            let _ = cgroup.is_populated();
            self.poller.add(
                cgroup.events(),
                Key::Token(generation.with(What::Cgroup)),
                Interest::Urgent,
            )?;
        }
        for (stream, reader) in Stream::ALL.iter().zip(&ends.readers) {
            if let Some(Reader { fd, .. }) = reader {
                self.poller.add(
                    fd.as_fd(),
                    Key::Token(generation.with(What::Output(*stream))),
                    Interest::Read,
                )?;
            }
        }
        match &ends.feed {
            Some(fd) => self.poller.add(
                fd.as_fd(),
                Key::Token(generation.with(What::Stdin)),
                Interest::Write,
            ),
            None => Ok(()),
        }
    }

    fn unregister(&mut self, ends: &Ends, cgroup: Option<&Cgroup>) {
        if let Some(cgroup) = cgroup {
            self.poller.remove(cgroup.events());
        }
        for fd in ends
            .readers
            .iter()
            .flatten()
            .map(|reader| &reader.fd)
            .chain(&ends.feed)
        {
            self.poller.remove(fd.as_fd());
        }
        self.poller.settle();
    }

    /// [`crate::kernel::Kernel::outcome`]. Once it was told here, no notice follows.
    pub(crate) fn birth(&mut self, generation: Token) -> SpawnOutcome {
        if !is_born(&mut self.table, &mut self.spawner, generation) {
            return SpawnOutcome::NotYet;
        }
        self.under_way
            .retain(|token| *token != generation.with(What::Spawn));
        match self.table.get(generation).map(|row| &row.birth) {
            Some(Birth::Started) => SpawnOutcome::Started,
            Some(Birth::Failed(error)) => SpawnOutcome::Failed(error.clone()),
            Some(Birth::UnderWay(_)) | None => SpawnOutcome::NotYet,
        }
    }

    /// Sleeps until the outcome is known, at most until then.
    pub(crate) fn wait_for_birth(&mut self, generation: Token, until: Option<Ns>) {
        let left = until.map(|at| at.since(self.clock.now()).to_duration());
        if let Some(Row {
            birth: Birth::UnderWay(pending),
            ..
        }) = self.table.get_mut(generation)
        {
            pending.wait(left);
        }
    }

    /// Asks the child in this place by number, if that is how its end is learnt.
    pub(crate) fn ask(&mut self, place: usize) -> bool {
        let Some(row) = self
            .table
            .at(place)
            .filter(|row| row.watch == ExitWatch::Sigchld)
        else {
            return false;
        };
        if wait_child(row.child_ref(), Keep::Zombie) != WaitResult::Running {
            row.watch = ExitWatch::SigchldNotified;
            let slot = Slot(u32::try_from(place).unwrap_or(u32::MAX));
            let token = Token::new(slot, row.sequence, What::Exit);
            self.owed.push_back(Notice::Exit(token));
        }
        true
    }
}

/// Whether its outcome is known: a memory load while it is not. The child's stack then goes to the
/// next one.
pub(crate) fn is_born(table: &mut Table, spawner: &mut Spawner, generation: Token) -> bool {
    let Some(row) = table.get_mut(generation) else {
        return false;
    };
    let Birth::UnderWay(pending) = &mut row.birth else {
        return true;
    };
    let birth = match pending.outcome() {
        SpawnOutcome::NotYet => return false,
        SpawnOutcome::Started => Birth::Started,
        SpawnOutcome::Failed(error) => Birth::Failed(error),
    };
    if let Birth::UnderWay(pending) = std::mem::replace(&mut row.birth, birth) {
        spawner.recycle(*pending);
    }
    true
}
