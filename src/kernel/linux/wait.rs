//! Waiting, and the order of what is told: outcomes before exits before bytes.

use super::poll::{Key, Poller, Ready};
use super::process::leader::ExitWatch;
use super::process::pidfd;
use super::process::sigchld::Sigchld;
use super::spawn_child::is_born;
use super::table::{Birth, Row};
use super::{Linux, Orphans};
use crate::kernel::{Kernel, Notice, Notices, Until, WaitError};
use crate::types::{Ns, Token, What, limits};
use std::collections::VecDeque;
use std::os::fd::AsFd;

/// How long an exit or a byte may wait for its outcome. The kernel zeroes the tid word before it
/// tells of the end, so the outcome is there; this bounds the damage of one that does not keep to
/// that.
const OUTCOME_WITHIN: Ns = Ns::from_millis(10);

impl Linux {
    /// [`crate::kernel::Kernel::wait`].
    pub(crate) fn wait_for_notices(
        &mut self,
        until: Until,
        out: &mut Notices,
    ) -> Result<(), WaitError> {
        out.clear();
        if self.mark.is_copy() {
            return Err(WaitError::Forked);
        }
        self.tidy();
        let end = match until {
            Until::Peek => Some(Ns::ZERO),
            Until::At(at) => Some(at),
            Until::Forever => None,
            Until::Outcome(token, until) => {
                self.wait_for_birth(token, until);
                return Ok(());
            }
        };
        self.give_owed(out);
        self.look_at_births(out);
        loop {
            let timeout = self.timeout(end, out);
            // A signal is `Ok` with what there was before it.
            let whole = self
                .poller
                .wait(timeout, &mut self.ready)
                .map_err(WaitError::Failed)?;
            if self.take_ready(out) {
                self.reap_zombies();
            }
            self.look_at_births(out);
            self.ask_children();
            self.give_owed(out);
            if !whole || !out.is_empty() || self.is_asking() || self.is_past(end) {
                break;
            }
        }
        out.more |= !self.owed.is_empty() || self.poller.was_full() || self.is_asking();
        self.poller.settle();
        out.sort();
        Ok(())
    }

    fn is_past(&self, end: Option<Ns>) -> bool {
        end.is_some_and(|end| end == Ns::ZERO || self.clock.now() >= end)
    }

    /// When this object wants to be looked at, whatever happens: spawns whose success nothing
    /// announces, and children that nothing may announce (the SIGCHLD way).
    pub(crate) fn own_deadline(&self) -> Option<Ns> {
        let look = (!self.under_way.is_empty()).then_some(self.look);
        let ask = self
            .sigchld
            .as_ref()
            .map(Sigchld::due)
            .filter(|_| self.has_asked());
        match (look, ask) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Somebody's end is learnt by asking.
    fn has_asked(&self) -> bool {
        self.table.iter().any(|row| row.watch == ExitWatch::Sigchld)
            || self.lingering.needs_polling()
    }

    /// A round of questions is under way, and goes on in the next wait.
    fn is_asking(&self) -> bool {
        self.sigchld.as_ref().is_some_and(Sigchld::is_busy)
    }

    fn timeout(&self, end: Option<Ns>, out: &Notices) -> Option<Ns> {
        let is_busy = !out.is_empty() || !self.owed.is_empty() || self.is_asking();
        if is_busy || end == Some(Ns::ZERO) {
            return Some(Ns::ZERO);
        }
        let end = match (end, self.own_deadline()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        end.map(|end| end.since(self.clock.now()))
    }

    /// Notices that did not fit before, and those that nothing in the poll set made.
    fn give_owed(&mut self, out: &mut Notices) {
        while !out.is_full()
            && let Some(notice) = self.owed.pop_front()
        {
            out.push(notice);
        }
    }

    /// Looks at the spawns under way: a memory load each. Their number is that of the children that
    /// have not called exec yet.
    fn look_at_births(&mut self, out: &mut Notices) {
        if self.under_way.is_empty() {
            return;
        }
        let Linux {
            under_way,
            table,
            spawner,
            owed,
            ..
        } = self;
        under_way.retain(|token| {
            if table.get(*token).is_none() {
                return false;
            }
            let is_known = is_born(table, spawner, *token);
            if is_known {
                give(out, owed, Notice::Outcome(*token));
            }
            !is_known
        });
        if !self.under_way.is_empty() {
            let now = self.clock.now();
            if now >= self.look {
                self.pause = Ns(self.pause.0.saturating_mul(2)).min(limits::SPAWN_LOOK[1].into());
                self.look = now.after(self.pause);
            }
        }
    }

    /// Turns what the poll set has found into notices; says whether SIGCHLD has come.
    fn take_ready(&mut self, out: &mut Notices) -> bool {
        let mut has_sigchld = false;
        let Linux {
            poller,
            ready,
            waker,
            table,
            spawner,
            under_way,
            sigchld,
            lingering,
            owed,
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
                        poller.owe(sigchld.fd());
                        lingering.poll_children(poller);
                    }
                    continue;
                }
                // It has done what it is for: the descriptor was readable.
                Key::Alarm => continue,
            };
            if token.what() == What::Wake {
                waker.heard(poller);
                give(out, owed, Notice::Woken);
                continue;
            }
            // Stale: the slot is somebody else's by now.
            let Some(row) = table.get_mut(token) else {
                continue;
            };
            let Some(notice) = notice_of(row, token, hung_up, poller, *orphans) else {
                continue;
            };
            if matches!(notice, Notice::Exit(_) | Notice::Readable(_)) {
                let spawn = token.with(What::Spawn);
                if let Some(at) = under_way.iter().position(|t| *t == spawn) {
                    wait_for_outcome(row);
                    if is_born(table, spawner, spawn) {
                        under_way.swap_remove(at);
                        give(out, owed, Notice::Outcome(spawn));
                    }
                }
            }
            give(out, owed, notice);
        }
        has_sigchld
    }

    /// The SIGCHLD way: asks the next children of a round, at most [`limits::SWEEP_CHILDREN`].
    fn ask_children(&mut self) {
        let places = self.table.places();
        let Some(sigchld) = &mut self.sigchld else {
            return;
        };
        if sigchld.on_time(self.clock.now(), places) {
            self.lingering.poll_children(&mut self.poller);
        }
        let mut asked = 0;
        while asked < limits::SWEEP_CHILDREN
            && let Some(place) = self.sigchld.as_mut().and_then(|s| s.next_place(places))
        {
            asked += usize::from(self.ask(place));
        }
    }
}

/// What the readiness of something of a generation means. Nothing, if that has been closed
/// meanwhile.
fn notice_of(
    row: &mut Row,
    token: Token,
    hung_up: bool,
    poller: &mut Poller,
    orphans: Orphans,
) -> Option<Notice> {
    match token.what() {
        What::Output(stream) => {
            let reader = row.readers[stream.index()].as_mut()?;
            reader.hung_up |= hung_up;
            Some(Notice::Readable(token))
        }
        What::Exit => Some(Notice::Exit(token)),
        What::Stdin => Some(Notice::Writable(token)),
        // A pidfd is ready twice, at the end and at the reaping: once is enough.
        What::Member(place) => {
            let member = row.unwatch_member(place, poller)?;
            if orphans != Orphans::Leave {
                pidfd::reap(member.as_fd());
            }
            Some(Notice::MemberGone(token))
        }
        What::Cgroup => {
            if let Some(cgroup) = row.cgroup() {
                // Read, so that only the next change is told.
                let _ = cgroup.is_populated();
                poller.owe(cgroup.events());
            }
            Some(Notice::CgroupChanged(token))
        }
        What::Spawn | What::Wake => None,
    }
}

fn wait_for_outcome(row: &mut Row) {
    if let Birth::UnderWay(pending) = &mut row.birth {
        pending.wait(Some(OUTCOME_WITHIN.to_duration()));
    }
}

/// One that does not fit is given by the next wait.
fn give(out: &mut Notices, owed: &mut VecDeque<Notice>, notice: Notice) {
    if !owed.is_empty() || !out.push(notice) {
        owed.push_back(notice);
    }
}
