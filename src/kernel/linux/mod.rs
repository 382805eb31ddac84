//! The Linux kernel object: epoll through mio or io_uring, pidfds or SIGCHLD, /proc.
//!
//! Unsafe code is allowed below this module only (and in the C face), each block with its reason.
//!
//! ```text
//!  capabilities     what can be done here            spawn/   a child that exists          scan     who is in a group, who holds a pipe
//!  clock    the only clock                   ends     its three streams            procfs   one process, as /proc has it
//!  fork     is this still our process?       table    slot -> row                  linger   what outlives its generation
//!  poller   the poll set: epoll or uring     exits    has the leader ended?        pipe     reading
//!  wait     notices, in order                group    signals, and who is left     feed     writing
//! ```

mod capabilities;
pub(crate) mod clock;
mod containment;
mod fork_guard;
mod lingering;
mod poll;
mod process;
mod procfs;
mod release;
pub(crate) mod spawn;
mod spawn_child;
mod stdio;
mod table;
#[cfg(test)]
mod tests;
mod wait;

pub use process::signal_state;

use containment::{NameGenerator, signal};
use process::identity::open_verified;
use process::{exit_status, group, orphans};
use stdio::{read, write};

pub use super::Orphans;

use super::{
    Batch, Collected, Kernel, Notice, Notices, ReadResult, Released, Scan, ScanStep, SpawnOutcome,
    Spawned, Until, WaitError, Wrote, sealed,
};
use crate::command::plan::Plan;
use crate::types::{
    Backend, BackendChoice, BuildError, Capabilities, Errno, ExitSource, ExitSourceChoice,
    GroupSignal, Keep, Member, Ns, Probe, Release, Signal, Signalled, Slot, SpawnError, Token,
    What, limits,
};
use clock::Clock;
use fork_guard::ForkMark;
use lingering::Lingering;
pub use poll::LinuxWaker;
use poll::deadline_timer::Alarm;
use poll::{Interest, Key, Poller, Ready};
use process::sigchld::Sigchld;
use procfs::scan::Scanner;
use spawn::{SpawnOptions, Spawner};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Instant;
use table::Table;

/// What a host asks of the Linux kernel object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinuxOptions {
    /// Which poll set.
    pub backend: BackendChoice,
    /// How exits are learnt.
    pub exit_source: ExitSourceChoice,
    /// Whether groups are signalled through pidfds.
    pub group_signal: GroupSignal,
    /// The descriptor becomes readable at the deadline of [`Kernel::alarm`], too: a timerfd in the
    /// poll set.
    pub fold_deadline: bool,
    /// A spawn stands still until exec, as vfork(2) has it (needed under valgrind).
    pub vfork: bool,
    /// What becomes of orphans.
    pub orphans: Orphans,
}

/// The Linux kernel. One poll set, whose descriptor is the same for its whole life; no thread, no
/// global state, and no signal handler unless exits are learnt by SIGCHLD.
#[derive(Debug)]
pub struct Linux {
    mark: ForkMark,
    capabilities: Capabilities,
    clock: Clock,
    poller: Poller,
    /// What the poll set has found.
    ready: Vec<Ready>,
    waker: LinuxWaker,
    alarm: Option<Alarm>,
    table: Table,
    spawner: Spawner,
    /// /dev/null, once it was needed.
    null: Option<OwnedFd>,
    /// Spawns whose outcome was not told yet.
    under_way: Vec<Token>,
    /// When to look at them of our own accord, and the pause to the look after that.
    look: Ns,
    pause: Ns,
    sigchld: Option<Sigchld>,
    lingering: Lingering,
    scanner: Scanner,
    /// Descriptors of no use any more, whose closing nobody waits for.
    aside: Vec<release::Aside>,
    /// Notices that did not fit.
    owed: VecDeque<Notice>,
    /// Makes the names of cookies and cgroups.
    names: NameGenerator,
    orphans: Orphans,
}

impl Linux {
    /// Readinesses taken by one wait; each is at most two notices.
    const READY: usize = limits::NOTICES / 2;

    /// Finds out what can be done here, and makes an empty poll set.
    ///
    /// An error if descriptors or memory are short, or if pidfds are insisted on and not there.
    pub fn new(options: LinuxOptions) -> Result<Linux, BuildError> {
        let chosen = Poller::choose(options.backend, Self::READY);
        Linux::with(
            options,
            chosen.map_err(|e| BuildError::new("make the poll set", Some(Errno::from(&e))))?,
        )
    }

    fn with(
        options: LinuxOptions,
        (mut poller, backend, why): (Poller, Backend, String),
    ) -> Result<Linux, BuildError> {
        let failed = |attempt: &'static str| move |e: Errno| BuildError::new(attempt, Some(e));
        let failed_io = |attempt: &'static str| {
            move |e: io::Error| BuildError::new(attempt, Some(Errno::from(&e)))
        };
        let mark = ForkMark::new().map_err(failed("mark the process"))?;
        let capabilities = Capabilities {
            backend,
            backend_why: why,
            ..capabilities::find(&options)?
        };
        let clock = Clock::new();
        let waker = poller
            .waker(Token::new(Slot(0), 0, What::Wake))
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
        let mut linux = Linux {
            mark,
            capabilities,
            clock,
            poller,
            ready: Vec::with_capacity(Self::READY),
            waker,
            alarm,
            table: Table::default(),
            spawner,
            null: None,
            under_way: Vec::new(),
            look: Ns::ZERO,
            pause: Ns::ZERO,
            sigchld: None,
            lingering: Lingering::default(),
            scanner: Scanner::new(names.cookie_prefix(), options.orphans),
            aside: Vec::with_capacity(release::ASIDE),
            owed: VecDeque::with_capacity(limits::NOTICES),
            names,
            orphans: options.orphans,
        };
        if wants_sigchld || options.orphans == Orphans::Adopt {
            linux.use_sigchld().map_err(failed("watch SIGCHLD"))?;
        }
        Ok(linux)
    }

    /// Installs the handler, if there is none yet: a child without a pidfd needs it whatever the
    /// others have.
    fn use_sigchld(&mut self) -> Result<(), Errno> {
        if self.sigchld.is_none() {
            let sigchld = Sigchld::install(self.clock.now())?;
            self.poller
                .add(sigchld.fd(), Key::Sigchld, Interest::Read)?;
            self.poller.settle();
            self.sigchld = Some(sigchld);
        }
        Ok(())
    }
}

impl Linux {
    /// Reaps the zombies of inherited orphans, where all children of the process are the loop's.
    fn reap_zombies(&mut self) {
        if self.orphans == Orphans::Adopt {
            orphans::reap_zombies(&self.table, &self.lingering, self.scanner.proc());
        }
    }
}

impl AsFd for Linux {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}

impl AsRawFd for Linux {
    fn as_raw_fd(&self) -> RawFd {
        self.poller.as_raw_fd()
    }
}

impl Drop for Linux {
    /// What is closed with it is closed for the other ends at once. In a forked copy the poll set
    /// is the host's.
    fn drop(&mut self) {
        if !self.mark.is_copy() {
            self.poller.remove_all();
        }
    }
}

impl sealed::Sealed for Linux {}

impl Kernel for Linux {
    type Raw = OwnedFd;
    type Waker = LinuxWaker;

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn now(&mut self) -> Ns {
        self.clock.now()
    }

    fn origin(&self) -> Instant {
        self.clock.origin()
    }

    fn tag(&self) -> u32 {
        if self.mark.is_copy() {
            0
        } else {
            self.clock.tag()
        }
    }

    fn is_copy(&self) -> bool {
        self.mark.is_copy()
    }

    fn deadline(&self) -> Option<Ns> {
        self.own_deadline()
    }

    fn spawn(
        &mut self,
        plan: &Arc<Plan>,
        generation: Token,
    ) -> Result<Spawned<OwnedFd>, SpawnError> {
        let born = self.start(plan, generation);
        self.poller.settle();
        born
    }

    fn outcome(&mut self, generation: Token) -> SpawnOutcome {
        self.birth(generation)
    }

    fn wait(&mut self, until: Until, out: &mut Notices) -> Result<(), WaitError> {
        self.wait_for_notices(until, out)
    }

    fn read(&mut self, batch: &mut Batch) {
        // A copy would take the bytes away from the host.
        if self.mark.is_copy() {
            batch
                .iter_mut()
                .for_each(|op| op.result = ReadResult::Stale);
            return;
        }
        match &mut self.poller {
            Poller::Epoll(_) => {
                for op in batch.iter_mut() {
                    op.result = match self.table.reader(op.stream) {
                        Some(reader) => read::read_into(reader, op),
                        None => ReadResult::Stale,
                    };
                }
            }
            Poller::Uring(ring) => read::read_all(ring, &mut self.table, batch),
        }
        for op in batch.iter().filter(|op| op.result == ReadResult::End) {
            if let Some(reader) = self.table.reader(op.stream) {
                reader.ended = true;
            }
        }
    }

    fn write(&mut self, stdin: Token, bytes: &[u8]) -> Wrote {
        match self.table.get(stdin).and_then(|row| row.stdin.as_ref()) {
            Some(fd) if stdin.what() == What::Stdin && !self.mark.is_copy() => {
                let wrote = write::write(fd.as_fd(), bytes, self.capabilities.nosignal_write);
                if wrote == Wrote::Full {
                    self.poller.owe(fd.as_fd());
                    self.poller.settle();
                }
                wrote
            }
            _ => Wrote::Failed(Errno::from_raw(libc::EBADF)),
        }
    }

    fn close(&mut self, what: Token) {
        let is_copy = self.mark.is_copy();
        let Some(row) = self.table.get_mut(what) else {
            return;
        };
        let closed = match what.what() {
            What::Output(stream) => match row.readers[stream.index()].take() {
                Some(reader) if reader.ended && !is_copy => {
                    self.put_aside(release::Aside::Watched(reader.fd));
                    return;
                }
                reader => reader.map(|reader| {
                    if reader.is_socket() && !is_copy {
                        read::hang_up(reader.fd.as_fd());
                    }
                    reader.fd
                }),
            },
            What::Stdin => row.stdin.take(),
            What::Member(_) | What::Exit if is_copy => None,
            What::Member(place) => {
                let _ = row.unwatch_member(place, &mut self.poller);
                None
            }
            What::Exit => {
                row.unwatch_exit(&mut self.poller);
                None
            }
            What::Spawn | What::Cgroup | What::Wake => None,
        };
        if is_copy {
            return;
        }
        if let Some(fd) = &closed {
            self.poller.remove(fd.as_fd());
        }
        self.poller.settle();
    }

    fn collect(&mut self, generation: Token, keep: Keep) -> Collected {
        if self.mark.is_copy() {
            return Collected::NotYet;
        }
        let Some(row) = self.table.get_mut(generation) else {
            return Collected::NotYet;
        };
        let collected = exit_status::collect(row, keep, &mut self.poller);
        self.poller.settle();
        if collected != Collected::NotYet {
            // waitid(2) has shown this leader instead of the orphans that ended after it.
            self.reap_zombies();
        }
        collected
    }

    fn signal(&mut self, generation: Token, signal: Signal) -> Signalled {
        match self.table.get_mut(generation) {
            Some(row) if !self.mark.is_copy() => {
                signal::signal(row, signal, &self.capabilities, self.scanner.proc())
            }
            _ => Signalled::NoWay,
        }
    }

    fn signal_outside(&mut self, generation: Token, signal: Signal) -> Signalled {
        match self.table.get_mut(generation) {
            Some(row) if !self.mark.is_copy() => {
                signal::signal_outside(row, signal, &self.capabilities, self.scanner.proc())
            }
            _ => Signalled::NoWay,
        }
    }

    fn signal_leader(&mut self, generation: Token, signal: Signal) -> Signalled {
        match self.table.get(generation) {
            Some(row) if !self.mark.is_copy() => {
                group::signal_leader(row, signal, &self.capabilities)
            }
            _ => Signalled::NoWay,
        }
    }

    fn probe(&mut self, generation: Token) -> Probe {
        match self.table.get(generation) {
            Some(row) if !self.mark.is_copy() => signal::probe(row, &self.capabilities),
            _ => Probe::Cannot,
        }
    }

    fn scan(&mut self, scan: &mut Scan) -> ScanStep {
        if self.mark.is_copy() {
            return ScanStep::Done {
                members: false,
                holders: false,
            };
        }
        self.scanner.slice(scan, &mut self.table)
    }

    fn watch(&mut self, member: &Member, token: Token) -> Result<(), Errno> {
        let (What::Member(place), Some(proc)) = (token.what(), self.scanner.proc()) else {
            return Err(Errno::from_raw(libc::ENOSYS));
        };
        if self.mark.is_copy() || !self.capabilities.pidfd_open {
            return Err(Errno::from_raw(libc::ENOSYS));
        }
        let row = self
            .table
            .get_mut(token)
            .ok_or(Errno::from_raw(libc::ESRCH))?;
        drop(row.unwatch_member(place, &mut self.poller));
        let (fd, _) = open_verified(proc, member.who.pid, Some(member.start))?;
        self.poller
            .add(fd.as_fd(), Key::Token(token), Interest::Read)?;
        self.poller.settle();
        row.watched.push((place, fd));
        Ok(())
    }

    fn release(&mut self, generation: Token, how: Release) -> Released<OwnedFd> {
        match self.table.take(generation) {
            Some(row) => {
                self.under_way.retain(|token| *token != generation);
                let released = self.let_go(row, how);
                if !self.mark.is_copy() {
                    self.poller.settle();
                }
                released
            }
            None => Released::default(),
        }
    }

    fn tidy(&mut self) {
        self.close_aside();
    }

    fn alarm(&mut self, at: Option<Ns>) {
        let Some(alarm) = &self.alarm else { return };
        if self.mark.is_copy() {
            return;
        }
        alarm.set(at.map(|at| at.since(self.clock.now())), &mut self.poller);
    }

    fn waker(&self) -> LinuxWaker {
        self.waker.clone()
    }
}

const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Linux>();
};
