//! The state of the kernel object, and the calls of the contract that take a few lines.
//!
//! Nothing here checks for a forked copy of the process, and nothing submits to the poll set:
//! [`super::Linux`] does both.

use super::capabilities;
use super::clock::Clock;
use super::containment::{NameGenerator, signal};
use super::deferred_close::{DeferredClose, DeferredCloses};
use super::jobs::Jobs;
use super::lingering::Lingering;
use super::options::LinuxOptions;
use super::poll::deadline_timer::Alarm;
use super::poll::{Interest, Key, LinuxWaker, Poller, Ready};
use super::process::identity::open_verified;
use super::process::sigchld::Sigchld;
use super::process::{exit_status, group, orphans};
use super::procfs::scan::Scanner;
use super::spawn::{SpawnOptions, Spawner};
use super::stdio::{read, write};
use super::table::Table;
use crate::kernel::{
    Batch, Collected, Notice, Orphans, ReadResult, Released, Scan, ScanStep, Wrote,
};
use crate::types::{
    Backend, BuildError, Capabilities, CollectMode, Errno, ExitSource, Member, Ns, Probe, Release,
    Signal, Signalled, Slot, Token, TokenKind, limits,
};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Events taken by one wait of the poll set. Each becomes at most two notices.
pub(super) const READY: usize = limits::NOTICES / 2;

/// What [`super::Linux`] guards.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) capabilities: Capabilities,
    pub(super) clock: Clock,
    pub(super) poller: Poller,
    /// What the poll set has reported. Kept for its capacity.
    pub(super) ready: Vec<Ready>,
    pub(super) waker: LinuxWaker,
    alarm: Option<Alarm>,
    pub(super) table: Table,
    pub(super) spawner: Spawner,
    /// /dev/null, opened when it is first needed.
    pub(super) dev_null: Option<OwnedFd>,
    pub(super) pending_spawns: PendingSpawns,
    pub(super) jobs: Jobs,
    pub(super) sigchld: Option<Sigchld>,
    pub(super) lingering: Lingering,
    pub(super) scanner: Scanner,
    pub(super) deferred_closes: DeferredCloses,
    /// Notices that did not fit into the caller's list, or that no event of the poll set
    /// announces.
    pub(super) queued: VecDeque<Notice>,
    /// Makes the names of cookies and cgroups.
    pub(super) names: NameGenerator,
    pub(super) orphans: Orphans,
}

/// Spawns whose outcome has not been reported, and when to check them next. A successful exec makes
/// no event, so they are checked on a timer with backoff ([`limits::SPAWN_POLL`]).
#[derive(Debug, Default)]
pub(super) struct PendingSpawns {
    pub(super) list: Vec<Token>,
    pub(super) next_check: Ns,
    pub(super) interval: Ns,
}

impl Inner {
    pub(super) fn new(
        options: LinuxOptions,
        (mut poller, backend, why): (Poller, Backend, String),
    ) -> Result<Inner, BuildError> {
        let failed = |attempt: &'static str| move |e: Errno| BuildError::new(attempt, Some(e));
        let failed_io = |attempt: &'static str| {
            move |e: io::Error| BuildError::new(attempt, Some(Errno::from(&e)))
        };
        let capabilities = Capabilities {
            reads_per_batch: poller.reads_per_batch(),
            backend,
            backend_why: why,
            ..capabilities::find(&options)?
        };
        let waker = poller
            .waker(Token::new(Slot(0), 0, TokenKind::Wake))
            .map_err(failed_io("make the waker"))?;
        let alarm = if options.fold_deadline {
            Some(Alarm::new(&mut poller).map_err(failed("make the timer"))?)
        } else {
            None
        };
        let spawner = Spawner::new(SpawnOptions {
            vfork: options.vfork,
            clone3: capabilities.clone3,
            pidfd: capabilities.pidfd_from_clone,
            close_range: capabilities.close_range,
        });
        let wants_sigchld = capabilities.exit == ExitSource::Sigchld;
        if options.orphans != Orphans::Leave {
            let own = rustix::process::getpid();
            rustix::process::set_child_subreaper(Some(own))
                .map_err(|e| failed("become a subreaper")(e.into()))?;
        }
        let names = NameGenerator::new();
        let mut inner = Inner {
            capabilities,
            clock: Clock::new(),
            poller,
            ready: Vec::with_capacity(READY),
            waker,
            alarm,
            table: Table::default(),
            spawner,
            dev_null: None,
            pending_spawns: PendingSpawns::default(),
            jobs: Jobs::default(),
            sigchld: None,
            lingering: Lingering::default(),
            scanner: Scanner::new(names.cookie_prefix(), options.orphans),
            deferred_closes: DeferredCloses::new(),
            queued: VecDeque::with_capacity(limits::NOTICES),
            names,
            orphans: options.orphans,
        };
        if wants_sigchld || options.orphans == Orphans::Adopt {
            inner.use_sigchld().map_err(failed("watch SIGCHLD"))?;
        }
        inner.poller.submit();
        Ok(inner)
    }

    /// Installs the SIGCHLD handler, if there is none yet. A single child without a pidfd needs it,
    /// whatever the others have.
    pub(super) fn use_sigchld(&mut self) -> Result<(), Errno> {
        if self.sigchld.is_none() {
            let sigchld = Sigchld::install(self.clock.now())?;
            self.poller
                .add(sigchld.fd(), Key::Sigchld, Interest::Read)?;
            self.sigchld = Some(sigchld);
        }
        Ok(())
    }

    /// [`crate::kernel::Kernel::close_deferred`].
    pub(super) fn close_deferred(&mut self) {
        self.deferred_closes.close_all(&mut self.poller);
    }

    pub(super) fn read(&mut self, batch: &mut Batch) {
        match &mut self.poller {
            Poller::Epoll(_) => {
                for op in batch.iter_mut() {
                    if let Some(reader) = self.table.reader(op.stream) {
                        op.result = read::read_edge_triggered(reader, op);
                    }
                }
            }
            Poller::Uring(ring) => read::read_batch(ring, &mut self.table, batch),
        }
        for op in batch.iter().filter(|op| op.result == ReadResult::End) {
            if let Some(reader) = self.table.reader(op.stream) {
                reader.ended = true;
            }
        }
    }

    pub(super) fn write(&mut self, stdin: Token, bytes: &[u8]) -> Wrote {
        let row = self.table.get(stdin);
        let fd = row
            .filter(|_| stdin.kind() == TokenKind::Stdin)
            .and_then(|row| row.stdin.as_ref());
        let Some(fd) = fd else {
            return Wrote::Failed(Errno::from_raw(libc::EBADF));
        };
        let wrote = write::write(fd.as_fd(), bytes, self.capabilities.nosignal_write);
        if wrote == Wrote::Full {
            self.poller.rearm(fd.as_fd());
        }
        wrote
    }

    pub(super) fn close(&mut self, what: Token) {
        let Some(row) = self.table.get_mut(what) else {
            return;
        };
        let closed = match what.kind() {
            TokenKind::Output(stream) => match row.readers[stream.index()].take() {
                Some(reader) if reader.ended => {
                    self.deferred_closes
                        .push(DeferredClose::Watched(reader.fd), &mut self.poller);
                    return;
                }
                reader => reader.map(|reader| {
                    if reader.is_socket() {
                        read::shut_down_socket(reader.fd.as_fd());
                    }
                    reader.fd
                }),
            },
            TokenKind::Stdin => row.stdin.take(),
            TokenKind::Member(place) => {
                row.unwatch_member(place, &mut self.poller);
                None
            }
            TokenKind::Exit => {
                row.unwatch_exit(&mut self.poller);
                None
            }
            TokenKind::Spawn | TokenKind::Cgroup | TokenKind::Wake => None,
        };
        if let Some(fd) = closed {
            self.poller.remove(fd.as_fd());
        }
    }

    pub(super) fn collect(&mut self, generation: Token, mode: CollectMode) -> Collected {
        let Some(row) = self.table.get_mut(generation) else {
            return Collected::NotYet;
        };
        let collected = exit_status::collect(row, mode, &mut self.poller);
        if collected != Collected::NotYet {
            let by_signal = row.exit.is_some_and(|info| info.exit.signal.is_some());
            self.jobs.end(generation, by_signal);
            // waitid(2) has shown this leader instead of the orphans that ended after it.
            self.reap_zombies();
        }
        collected
    }

    pub(super) fn signal(&mut self, generation: Token, signal: Signal) -> Signalled {
        let proc = self.scanner.proc();
        self.table
            .get_mut(generation)
            .map_or(Signalled::NoWay, |row| {
                signal::signal(row, signal, &self.capabilities, proc)
            })
    }

    pub(super) fn signal_outside(&mut self, generation: Token, signal: Signal) -> Signalled {
        let proc = self.scanner.proc();
        self.table
            .get_mut(generation)
            .map_or(Signalled::NoWay, |row| {
                signal::signal_outside(row, signal, &self.capabilities, proc)
            })
    }

    pub(super) fn signal_leader(&mut self, generation: Token, signal: Signal) -> Signalled {
        self.table.get(generation).map_or(Signalled::NoWay, |row| {
            group::signal_leader(row, signal, &self.capabilities)
        })
    }

    pub(super) fn probe(&mut self, generation: Token) -> Probe {
        self.table
            .get(generation)
            .map_or(Probe::Unknown, |row| signal::probe(row, &self.capabilities))
    }

    pub(super) fn scan(&mut self, scan: &mut Scan) -> ScanStep {
        self.scanner.slice(scan, &mut self.table)
    }

    /// Reaps the zombies of inherited orphans, where the loop adopts all children of the process.
    pub(super) fn reap_zombies(&mut self) {
        if self.orphans == Orphans::Adopt {
            orphans::reap_zombies(&self.table, &self.lingering, self.scanner.proc());
        }
    }

    pub(super) fn watch(&mut self, member: &Member, token: Token) -> Result<(), Errno> {
        let (TokenKind::Member(place), Some(proc), true) = (
            token.kind(),
            self.scanner.proc(),
            self.capabilities.pidfd_open,
        ) else {
            return Err(Errno::from_raw(libc::ENOSYS));
        };
        let row = self
            .table
            .get_mut(token)
            .ok_or(Errno::from_raw(libc::ESRCH))?;
        row.unwatch_member(place, &mut self.poller);
        let (fd, _) = open_verified(proc, member.who.pid, Some(member.start))?;
        self.poller
            .add(fd.as_fd(), Key::Token(token), Interest::Read)?;
        row.watched.push((place, fd));
        Ok(())
    }

    pub(super) fn release(&mut self, generation: Token, how: Release) -> Released<OwnedFd> {
        let Some(row) = self.table.take(generation) else {
            return Released::default();
        };
        self.pending_spawns
            .list
            .retain(|token| *token != generation);
        self.jobs.end(generation, how != Release::HandOver);
        self.let_go(row, how)
    }

    pub(super) fn set_alarm(&mut self, at: Option<Ns>) {
        if let Some(alarm) = &self.alarm {
            alarm.set(at.map(|at| at.since(self.clock.now())), &mut self.poller);
        }
    }
}
