//! Waiting, and the order of the notices: outcomes before exits before bytes.

use super::inner::Inner;
use super::poll::{Key, Poller, Ready};
use super::process::leader::ExitWatch;
use super::process::pidfd;
use super::process::sigchld::Sigchld;
use super::spawn_child::check_outcome;
use super::table::{Row, SpawnState};
use crate::kernel::{Notice, Notices, Orphans, Until, WaitError};
use crate::types::{Ns, Token, TokenKind, limits};
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::time::Duration;

/// How long an exit or a byte is held back for the outcome of its spawn. The kernel zeroes the tid
/// word before it reports the end of a process, so the outcome is there already; the limit bounds
/// the damage on a kernel that does not keep that order.
const OUTCOME_TIMEOUT: Duration = Duration::from_millis(10);

/// The longest sleep while changes of the poll set wait to be submitted.
const RETRY_PAUSE: Ns = Ns::from_millis(1);

impl Inner {
    /// [`crate::kernel::Kernel::wait`]. `out` is empty when this is called.
    pub(super) fn wait(&mut self, until: Until, out: &mut Notices) -> Result<(), WaitError> {
        self.close_deferred();
        let end = match until {
            Until::Peek => Some(Ns::ZERO),
            Until::At(at) => Some(at),
            Until::Forever => None,
            Until::Outcome(token, until) => {
                self.wait_for_outcome(token, until);
                return Ok(());
            }
        };
        self.deliver_queued(out);
        self.check_pending_spawns(out);
        loop {
            let timeout = self.timeout(end, out);
            let is_complete = self
                .poller
                .wait(timeout, &mut self.ready)
                .map_err(WaitError::Failed)?;
            if self.take_ready(out) {
                self.reap_zombies();
            }
            self.check_pending_spawns(out);
            self.check_jobs();
            self.sweep_children();
            self.deliver_queued(out);
            // A wait that a signal interrupted ends with what there was before the signal.
            if !is_complete || !out.is_empty() || self.is_sweeping() || self.is_past(end) {
                break;
            }
        }
        out.more |= !self.queued.is_empty() || self.poller.was_full() || self.is_sweeping();
        out.sort();
        Ok(())
    }

    fn is_past(&self, end: Option<Ns>) -> bool {
        end.is_some_and(|end| end == Ns::ZERO || self.clock.now() >= end)
    }

    /// When a wait must end at the latest for the kernel object's own sake: a successful exec makes
    /// no event, neither does a child whose SIGCHLD the host has caught, and a watch that could not
    /// be submitted reports nothing.
    pub(super) fn internal_deadline(&self) -> Option<Ns> {
        if self.poller.has_unsubmitted() {
            return Some(Ns::ZERO);
        }
        self.next_check()
    }

    /// When pending spawns, or children that are asked by pid, must be checked.
    fn next_check(&self) -> Option<Ns> {
        let spawns = &self.pending_spawns;
        let spawn_check = (!spawns.list.is_empty()).then_some(spawns.next_check);
        let sweep = self
            .sigchld
            .as_ref()
            .map(Sigchld::due)
            .filter(|_| self.has_leaders_by_pid());
        earlier(earlier(spawn_check, sweep), self.jobs.next_check())
    }

    fn has_leaders_by_pid(&self) -> bool {
        self.table.iter().any(|row| row.watch == ExitWatch::Sigchld)
            || self.lingering.needs_polling()
    }

    /// A sweep over the children is under way, and goes on in the next wait.
    fn is_sweeping(&self) -> bool {
        self.sigchld.as_ref().is_some_and(Sigchld::is_busy)
    }

    fn timeout(&self, end: Option<Ns>, out: &Notices) -> Option<Ns> {
        let is_busy = !out.is_empty() || !self.queued.is_empty() || self.is_sweeping();
        if is_busy || end == Some(Ns::ZERO) {
            return Some(Ns::ZERO);
        }
        let retry = self
            .poller
            .has_unsubmitted()
            .then(|| self.clock.now().after(RETRY_PAUSE));
        let end = earlier(earlier(end, retry), self.next_check());
        end.map(|end| end.since(self.clock.now()))
    }

    fn deliver_queued(&mut self, out: &mut Notices) {
        while !out.is_full()
            && let Some(notice) = self.queued.pop_front()
        {
            out.push(notice);
        }
    }

    /// Checks the spawns under way. Each costs a memory load, and there are only as many as there
    /// are children that have not called exec yet.
    fn check_pending_spawns(&mut self, out: &mut Notices) {
        if self.pending_spawns.list.is_empty() {
            return;
        }
        let Inner {
            pending_spawns,
            table,
            spawner,
            queued,
            ..
        } = self;
        pending_spawns.list.retain(|token| {
            if table.get(*token).is_none() {
                return false;
            }
            let is_known = check_outcome(table, spawner, *token);
            if is_known {
                push_or_queue(out, queued, Notice::Outcome(*token));
            }
            !is_known
        });
        if !pending_spawns.list.is_empty() {
            let now = self.clock.now();
            if now >= pending_spawns.next_check {
                let longer = Ns(pending_spawns.interval.0.saturating_mul(2));
                pending_spawns.interval = longer.min(limits::SPAWN_POLL[1].into());
                pending_spawns.next_check = now.after(pending_spawns.interval);
            }
        }
    }

    /// Turns what the poll set has reported into notices. True if SIGCHLD has arrived.
    fn take_ready(&mut self, out: &mut Notices) -> bool {
        let mut has_sigchld = false;
        let Inner {
            poller,
            ready,
            waker,
            table,
            spawner,
            pending_spawns,
            sigchld,
            lingering,
            queued,
            orphans,
            ..
        } = self;
        let places = table.places();
        lingering.begin_wait();
        for Ready { key, hung_up } in ready.drain(..) {
            let token = match key {
                Key::Token(token) => token,
                Key::Linger(number) => {
                    lingering.on_ready(number, poller);
                    continue;
                }
                Key::Sigchld => {
                    has_sigchld = true;
                    if let Some(sigchld) = sigchld {
                        sigchld.on_signal(places);
                        poller.rearm(sigchld.fd());
                        lingering.poll_children(poller);
                    }
                    continue;
                }
                // Its only purpose is to make the descriptor readable.
                Key::Alarm => continue,
            };
            if token.kind() == TokenKind::Wake {
                if let Some(fd) = waker.acknowledge() {
                    poller.rearm(fd);
                }
                push_or_queue(out, queued, Notice::Woken);
                continue;
            }
            // A stale token: another generation has the slot by now.
            let Some(row) = table.get_mut(token) else {
                continue;
            };
            let Some(notice) = notice_of(row, token, hung_up, poller, *orphans) else {
                continue;
            };
            if matches!(notice, Notice::Exit(_) | Notice::Readable(_)) {
                let spawn = token.with(TokenKind::Spawn);
                if let Some(at) = pending_spawns.list.iter().position(|t| *t == spawn) {
                    if let SpawnState::Pending(pending) = &mut row.spawn {
                        pending.wait(Some(OUTCOME_TIMEOUT));
                    }
                    if check_outcome(table, spawner, spawn) {
                        pending_spawns.list.swap_remove(at);
                        push_or_queue(out, queued, Notice::Outcome(spawn));
                    }
                }
            }
            push_or_queue(out, queued, notice);
        }
        has_sigchld
    }

    /// With SIGCHLD as the exit source: asks the next children of a sweep, at most
    /// [`limits::SIGCHLD_BATCH`].
    fn sweep_children(&mut self) {
        let places = self.table.places();
        let Some(sigchld) = &mut self.sigchld else {
            return;
        };
        if sigchld.on_time(self.clock.now(), places) {
            self.lingering.poll_children(&mut self.poller);
        }
        let mut asked = 0;
        while asked < limits::SIGCHLD_BATCH
            && let Some(place) = self.sigchld.as_mut().and_then(|s| s.next_place(places))
        {
            asked += usize::from(self.check_exit_by_pid(place));
        }
    }
}

fn earlier(a: Option<Ns>, b: Option<Ns>) -> Option<Ns> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// The notice for the readiness of something of a generation; `None` if it has been closed since.
fn notice_of(
    row: &mut Row,
    token: Token,
    hung_up: bool,
    poller: &mut Poller,
    orphans: Orphans,
) -> Option<Notice> {
    match token.kind() {
        TokenKind::Output(stream) => {
            let reader = row.readers[stream.index()].as_mut()?;
            reader.hung_up |= hung_up;
            Some(Notice::Readable(token))
        }
        TokenKind::Exit => Some(Notice::Exit(token)),
        TokenKind::Stdin => Some(Notice::Writable(token)),
        // A pidfd becomes ready twice, at the end and when the process is reaped. The first time is
        // enough.
        TokenKind::Member(place) => {
            let member = row.unwatch_member(place, poller)?;
            if orphans != Orphans::Leave {
                pidfd::reap(member.as_fd());
            }
            Some(Notice::MemberGone(token))
        }
        TokenKind::Cgroup => {
            if let Some(cgroup) = row.cgroup() {
                // Reading the file clears the event, so that only the next change is reported.
                let _ = cgroup.is_populated();
                poller.rearm(cgroup.events());
            }
            Some(Notice::CgroupChanged(token))
        }
        TokenKind::Spawn | TokenKind::Wake => None,
    }
}

/// Queues the notice for the next wait if it does not fit.
fn push_or_queue(out: &mut Notices, queued: &mut VecDeque<Notice>, notice: Notice) {
    if !queued.is_empty() || !out.push(notice) {
        queued.push_back(notice);
    }
}
