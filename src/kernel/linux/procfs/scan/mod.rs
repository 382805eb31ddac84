//! Scans of /proc in slices: the living members of generations, and the holders of their pipes.
//!
//! One scan serves every generation that waits for one, since going through 45,000 descriptors
//! takes 90 ms. Members are found by asking each process for its group (one system call, no file)
//! and reading the stat of those that belong. Holders are found by comparing the links below
//! /proc/PID/fd, in members of the groups in question first.

mod emptiness;
mod fd_list;
mod holders;
mod members;
mod state;

use super::{Proc, is_shortage, parse_number};
use crate::kernel::linux::process::identity::ProcessIdentity;
use crate::kernel::linux::process::pidfd;
use crate::kernel::linux::table::Table;
use crate::kernel::{Found, Orphans, Scan, ScanStep};
use crate::types::{Errno, Token};
use rustix::fs::{RawDir, SeekFrom, seek};
use rustix::process::DumpableBehavior;
use state::{Complete, Context, EscapeeSearch, MemberSearch, ScanPhase, ScanState, ZombieMember};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;

/// Cost of the steps of a scan in microseconds on an ordinary machine. A slice may cost so much per
/// process of its budget; a process with thousands of descriptors takes several slices.
mod cost {
    /// What a budget of one process allows.
    pub(super) const BUDGET_PER_PROCESS: usize = 3;
    /// Reading a piece of a directory.
    pub(super) const LIST: usize = 3;
    /// Cost of one getpgid(2) call.
    pub(super) const GET_GROUP: usize = 3;
    /// Cost of reading /proc/PID/stat.
    pub(super) const READ_STAT: usize = 8;
    /// Cost of reading /proc/PID/environ.
    pub(super) const READ_ENVIRON: usize = 12;
    /// Cost of opening /proc/PID/fd.
    pub(super) const OPEN_FD_LIST: usize = 16;
    /// Reading one link below /proc/PID/fd.
    pub(super) const READ_FD_LINK: usize = 3;
    /// Passing over a process.
    pub(super) const SKIP: usize = 1;
}

/// Bytes of one getdents(2) call on /proc.
const LISTING_BYTES: usize = 4096;

/// Scans /proc. Keeps the position between two slices.
#[derive(Debug)]
pub(crate) struct Scanner {
    proc: Result<Proc, Errno>,
    scan: Option<ScanState>,
    buffer: Box<[MaybeUninit<u8>]>,
    escapees: EscapeeSearch,
    /// Dead members that this process has inherited, to be reaped.
    inherited_zombies: Vec<ProcessIdentity>,
    /// Zombies of groups that the previous scan has met.
    previous_zombies: Vec<ZombieMember>,
    /// Members found so far by the scan under way.
    found: Vec<(Token, ProcessIdentity)>,
}

impl Scanner {
    /// Opens /proc. If that fails, every scan is empty and not complete.
    pub(crate) fn new(cookie_prefix: &[u8], orphans: Orphans) -> Scanner {
        Scanner {
            proc: Proc::open(),
            scan: None,
            buffer: vec![MaybeUninit::uninit(); LISTING_BYTES].into_boxed_slice(),
            escapees: EscapeeSearch {
                cookie_prefix: cookie_prefix.to_vec(),
                orphans,
                orphan_owner: None,
            },
            inherited_zombies: Vec::new(),
            previous_zombies: Vec::new(),
            found: Vec::new(),
        }
    }

    /// Behaves from now on as in a system whose /proc cannot be used.
    #[cfg(test)]
    pub(crate) fn lose_proc(&mut self, why: Errno) {
        self.proc = Err(why);
    }

    /// /proc, if it could be opened.
    pub(crate) fn proc(&self) -> Option<&Proc> {
        self.proc.as_ref().ok()
    }

    /// Opens /proc again if that has failed before for want of descriptors or memory.
    ///
    /// # Errors
    ///
    /// Why there is no /proc to scan ([`Proc::open`]).
    pub(crate) fn require_proc(&mut self) -> Result<(), Errno> {
        if self.proc.as_ref().is_err_and(|e| is_shortage(*e)) {
            self.proc = Proc::open();
        }
        self.proc.as_ref().map(|_| ()).map_err(|e| *e)
    }

    /// Why a child that has just been started cannot be read in /proc, if it cannot (hidepid,
    /// proc(5)). Nothing is known if the host is not dumpable: the child shares its memory until
    /// exec, and so cannot be read until then even if it can be afterwards.
    pub(crate) fn hiding_error(&self, pid: u32) -> Option<Errno> {
        let refused = self.proc.as_ref().map_or_else(
            |e| Some(*e),
            |proc| proc.stat(pid).err().filter(|e| !is_shortage(*e)),
        );
        let is_dumpable = rustix::process::dumpable_behavior()
            .is_ok_and(|behavior| behavior == DumpableBehavior::Dumpable);
        refused.filter(|_| is_dumpable)
    }

    /// Must be called right before a child is started: decides which generation owns the orphans
    /// that this process will inherit.
    pub(crate) fn before_spawn(&mut self, generation: Token) {
        if self.escapees.orphans == Orphans::Adopt {
            self.escapees.orphan_owner = (!pidfd::has_children()).then_some(generation);
        }
    }

    /// One slice. At the end of a scan the members found are noted in the table: signals go to them
    /// one by one where the group flag is missing, or where they can be outside the group.
    pub(crate) fn slice(&mut self, scan: &mut Scan, table: &mut Table) -> ScanStep {
        let before = scan.found.len();
        let step = self.scan_slice(scan, table);
        self.reap_inherited();
        for found in scan.found.iter().skip(before) {
            if let Found::Member(token, member) = found {
                let identity = ProcessIdentity {
                    pid: member.who.pid,
                    start: member.start,
                };
                self.found.push((*token, identity));
            }
        }
        if let ScanStep::Done { .. } = step {
            for token in &scan.members {
                if let Some(row) = table.get_mut(*token) {
                    row.known.clear();
                }
            }
            for (token, identity) in self.found.drain(..) {
                if let Some(row) = table.get_mut(token) {
                    row.known.push(identity);
                }
            }
        }
        step
    }

    fn scan_slice(&mut self, scan: &mut Scan, table: &Table) -> ScanStep {
        let Ok(proc) = &self.proc else {
            self.scan = None;
            return Complete::NEITHER.done();
        };
        let mut state = match self.scan.take() {
            Some(state) if state.id == scan.id => state,
            _ => {
                // The scan before this one may have been given up.
                self.found.clear();
                if seek(proc.dir(), SeekFrom::Start(0)).is_err() {
                    return Complete::NEITHER.done();
                }
                ScanState::new(scan, table, proc)
            }
        };
        let mut budget = scan.budget.max(1) * cost::BUDGET_PER_PROCESS;
        loop {
            let context = Context {
                proc,
                table,
                escapees: &self.escapees,
                inherited_zombies: &mut self.inherited_zombies,
            };
            match state.step(context, &mut self.buffer, &mut scan.found) {
                Some(cost) if cost < budget => budget -= cost,
                Some(_) => {
                    self.scan = Some(state);
                    return ScanStep::More;
                }
                None => {
                    let empty_is_certain =
                        state.is_empty_certain(table, &self.escapees, &self.previous_zombies);
                    state.complete.members &= empty_is_certain;
                    // Hidden processes of other users may belong to a generation that has members.
                    // That one without members has no hidden one either was proved above.
                    let hides = proc.hides();
                    let is_doubtful =
                        |search: &MemberSearch| search.is_doubtful || (hides && search.found > 0);
                    let doubtful = state
                        .targets
                        .iter()
                        .filter(|target| target.members().is_some_and(is_doubtful))
                        .map(|target| target.token);
                    scan.doubtful.extend(doubtful);
                    self.previous_zombies = state.zombies;
                    return state.complete.done();
                }
            }
        }
    }

    /// Reaps the inherited zombies that were found, each through a descriptor that was opened
    /// before its identity was checked.
    fn reap_inherited(&mut self) {
        let Ok(proc) = &self.proc else { return };
        for zombie in self.inherited_zombies.drain(..) {
            if let Ok(fd) = pidfd::open(zombie.pid)
                && proc
                    .stat(zombie.pid)
                    .is_ok_and(|stat| stat.start == zombie.start && !stat.is_alive())
            {
                pidfd::reap(fd.as_fd());
            }
        }
    }
}

impl ScanState {
    /// Does one step and returns its cost; `None` when the scan is over.
    fn step(
        &mut self,
        context: Context<'_>,
        buffer: &mut [MaybeUninit<u8>],
        found: &mut Vec<Found>,
    ) -> Option<usize> {
        let proc = context.proc;
        if let Some(fds) = self.fds.take() {
            return Some(self.examine_fds(proc, fds, buffer, found));
        }
        if let Some(pid) = self.queue.pids.pop() {
            return Some(match self.phase {
                ScanPhase::Members | ScanPhase::Descendants => {
                    self.visit_process(context, pid, found)
                }
                ScanPhase::Holders if self.queue.examined.binary_search(&pid).is_ok() => cost::SKIP,
                ScanPhase::Holders => self.open_fds(proc, pid),
            });
        }
        if !self.queue.is_listed {
            self.list_processes(proc, buffer);
            return Some(cost::LIST);
        }
        if self.phase == ScanPhase::Members && self.index.cookies_since.is_some() {
            self.phase = ScanPhase::Descendants;
            self.descent.others.sort_unstable();
        }
        if self.phase == ScanPhase::Descendants
            && let Some(cost) = self.visit_children(proc, found)
        {
            return Some(cost);
        }
        if self.phase == ScanPhase::Holders
            || self.index.streams.is_empty()
            || seek(proc.dir(), SeekFrom::Start(0)).is_err()
        {
            return None;
        }
        self.phase = ScanPhase::Holders;
        self.queue.is_listed = false;
        self.queue.examined.sort_unstable();
        Some(cost::LIST)
    }

    /// Reads a piece of the list of processes.
    fn list_processes(&mut self, proc: &Proc, buffer: &mut [MaybeUninit<u8>]) {
        let mut entries = RawDir::new(proc.dir(), buffer);
        loop {
            match entries.next() {
                None => self.queue.is_listed = true,
                Some(Err(rustix::io::Errno::INTR)) => {}
                Some(Err(_)) => {
                    self.complete = Complete::NEITHER;
                    self.queue.is_listed = true;
                }
                Some(Ok(entry)) => self.queue.pids.extend(parse_number(entry.file_name())),
            }
            if self.queue.is_listed || entries.is_buffer_empty() {
                break;
            }
        }
        self.queue.pids.reverse();
    }
}
