//! Notices of the simulated kernel: edges that wait until they are asked for, merged, late or for
//! nothing by the seed.

use super::Sim;
use super::containment::Contained;
use super::fault::{Call, Fault};
use super::log::{Happened, Violation};
use super::process::{HOST, Process};
use super::table::{Entry, ExitSeen, Known};
use crate::kernel::{Notice, Notices, Orphans, Until, WaitError};
use crate::types::{Errno, ExitSource, Ns, Slot, Stream, Token, TokenKind, limits};
use std::sync::atomic::Ordering;

/// Notices that can come for nothing.
pub(super) const SPURIOUS: [Fault; 8] = [
    Fault::SpuriousExit,
    Fault::SpuriousReadable(Stream::Stdout),
    Fault::SpuriousReadable(Stream::Stderr),
    Fault::SpuriousWritable,
    Fault::SpuriousMember,
    Fault::SpuriousCgroup,
    Fault::SpuriousOutcome,
    Fault::SpuriousWake,
];

impl Sim {
    /// Takes the world's edges over; merges what is the same, makes some late.
    pub(super) fn gather(&mut self) {
        let mut edges = std::mem::take(&mut self.world.edges);
        if self.capabilities.exit == ExitSource::Sigchld {
            edges.retain(|(_, n)| !matches!(n, Notice::Exit(_)));
            let swept = self.sweep_at.is_some_and(|at| at <= self.world.now);
            let signalled = std::mem::take(&mut self.world.sigchld) && !self.options.sigchld_lost;
            if signalled || swept {
                edges.extend(self.ended_children());
            }
            if swept {
                self.sweep_at = None;
            }
            self.arm_sweep();
        }
        for (at, notice) in edges.drain(..) {
            if self.pending.iter().any(|(_, n)| *n == notice) {
                continue;
            }
            // Counted from the change: a host that has not looked for longer finds it at its first
            // look.
            let at = at.after(self.lateness()).max(self.merge_until);
            self.pending.push((at, notice));
        }
        // Given back empty: its capacity serves the next edges.
        self.world.edges = edges;
    }

    /// How late a notice is.
    fn lateness(&mut self) -> Ns {
        match self.take_fault(Call::Wait, None, |p| {
            matches!(p.fault, Fault::Late(_) | Fault::Merged(_))
        }) {
            Some((Fault::Late(time), _)) => return time,
            Some((Fault::Merged(time), _)) => {
                self.merge_until = self.merge_until.max(self.world.now.after(time))
            }
            _ => {}
        }
        let fault_rates = self.options.fault_rates;
        if !self.rng.chance(fault_rates.late) {
            return Ns::ZERO;
        }
        let late = Ns(self.rng.below(fault_rates.lateness.0 + 1));
        self.by_chance(Call::Wait, Fault::Late(late));
        late
    }

    /// In SIGCHLD mode: children that have ended (or are gone) and were not announced yet, at most
    /// a sweep of them.
    fn ended_children(&mut self) -> Vec<(Ns, Notice)> {
        let world = &self.world;
        let ended = |leader: Known| {
            world
                .processes
                .get(&leader.pid)
                .is_none_or(|p| p.birth != leader.birth || p.is_zombie())
        };
        let unseen = self
            .table
            .iter()
            .filter(|(_, e)| e.exit == ExitSeen::No && ended(e.leader));
        let when = |leader: Known| {
            world
                .obituaries
                .get(&leader.birth)
                .map_or(world.now, |o| o.at)
        };
        let found: Vec<(Ns, Notice)> = unseen
            .map(|(slot, e)| {
                (
                    when(e.leader),
                    Notice::Exit(Token::new(Slot(slot), e.sequence, TokenKind::Exit)),
                )
            })
            .filter(|(_, n)| !self.pending.iter().any(|(_, p)| p == n))
            .collect();
        if found.len() > limits::SIGCHLD_BATCH {
            // The next call goes on where this one stopped.
            self.world.sigchld = true;
        }
        found.into_iter().take(limits::SIGCHLD_BATCH).collect()
    }

    /// The sweep of every second is due only if it would find somebody: else it would keep an idle
    /// world going for ever.
    fn arm_sweep(&mut self) {
        if self.sweep_at.is_none() && !self.ended_children().is_empty() {
            let second = Ns::from(limits::SIGCHLD_POLL);
            self.sweep_at = Some(Ns((self.world.now.0 / second.0 + 1) * second.0));
        }
    }

    fn untold(&self) -> impl Iterator<Item = (Notice, bool)> {
        self.table
            .iter()
            .filter(|(_, e)| !e.outcome_told)
            .map(|(slot, e)| {
                let known = self.world.outcomes.contains_key(&e.leader.birth);
                (
                    Notice::Outcome(Token::new(Slot(slot), e.sequence, TokenKind::Spawn)),
                    known,
                )
            })
    }

    /// Takes up outcomes that are known and were not told: at each wait, and in a long one at the
    /// looks.
    fn outcomes(&mut self) -> bool {
        let known: Vec<Notice> = self
            .untold()
            .filter(|(_, known)| *known)
            .map(|(n, _)| n)
            .collect();
        for notice in known {
            if !self.pending.iter().any(|(_, n)| *n == notice) {
                self.pending.push((self.world.now, notice));
            }
        }
        self.pending
            .iter()
            .any(|(_, n)| matches!(n, Notice::Outcome(_)))
    }

    /// A success of exec announces itself to nobody: a sleep looks of its own accord, less and less
    /// often.
    fn look(&mut self) {
        if self.world.now < self.look_at {
            return;
        }
        self.outcomes();
        self.look_pause =
            Ns(self.look_pause.0.saturating_mul(2)).min(Ns::from(limits::SPAWN_POLL[1]));
        self.look_at = self.world.now.after(self.look_pause);
    }

    /// Something is due that ends a sleep.
    fn is_due(&self) -> bool {
        self.pending.iter().any(|(at, _)| *at <= self.world.now)
            || self.waker.flag.load(Ordering::Acquire)
    }

    /// The next thing that can end a sleep, or lead to something that does.
    fn next_event(&self) -> Option<Ns> {
        let late = self
            .pending
            .iter()
            .filter(|(at, _)| *at > self.world.now)
            .map(|(at, _)| *at)
            .min();
        // Looks that would find nothing are left out: they would keep an idle world going for ever.
        let look = self
            .untold()
            .any(|(_, known)| known)
            .then_some(self.look_at);
        [self.world.next_event(), late, self.sweep_at, look]
            .into_iter()
            .flatten()
            .min()
    }

    pub(super) fn do_wait(&mut self, until: Until, out: &mut Notices) -> Result<(), WaitError> {
        out.clear();
        self.tick();
        if let Some((Fault::Stalled(time), _)) =
            self.take_fault(Call::Wait, None, |p| matches!(p.fault, Fault::Stalled(_)))
        {
            self.advance(time);
        }
        self.gather();
        self.reap_strangers();
        if let Some(errno) = self.wait_fault() {
            return Err(WaitError::Failed(errno));
        }
        let fault_rates = self.options.fault_rates;
        let is_idle = !self.is_due() && !self.untold().any(|(_, known)| known);
        // What is ready comes before a signal, as in epoll_wait(2).
        let by_chance = self.rng.chance(fault_rates.interrupted) && is_idle;
        if by_chance {
            self.by_chance(Call::Wait, Fault::Interrupted);
        }
        if by_chance
            || (is_idle
                && self
                    .take_fault(Call::Wait, None, |p| p.fault == Fault::Interrupted)
                    .is_some())
        {
            return Ok(());
        }
        if self.rng.chance(fault_rates.spurious) {
            self.spurious_by_chance();
        }
        match until {
            Until::Outcome(token, limit) => return self.wait_outcome(token, limit),
            Until::Peek => {}
            Until::At(_) | Until::Forever if self.outcomes() => {}
            Until::At(at) => self.sleep(Some(at))?,
            Until::Forever => self.sleep(None)?,
        }
        self.outcomes();
        self.give(out);
        Ok(())
    }

    /// Lets the clock jump until something is due, or it is `end`.
    fn sleep(&mut self, end: Option<Ns>) -> Result<(), WaitError> {
        while !self.is_due() && end.is_none_or(|end| end > self.world.now) {
            let Some(next) = self.next_event().into_iter().chain(end).min() else {
                // Nobody will ever do anything, and there is no time to wait for.
                return Err(WaitError::Failed(Errno::from_raw(libc::EDEADLK)));
            };
            self.check_sleep();
            self.world.run_until(next);
            self.gather();
            self.look();
            self.world.note(Happened::Slept(next));
        }
        Ok(())
    }

    /// Nobody may sleep while an announced exit waits to be asked for.
    fn check_sleep(&mut self) {
        for (_, entry) in self.table.iter_mut() {
            if matches!(entry.exit, ExitSeen::Announced(_)) {
                self.world
                    .violations
                    .push(Violation::SleptOverExit(entry.leader.pid));
                entry.exit = ExitSeen::Told;
            }
        }
    }

    fn wait_outcome(&mut self, token: Token, limit: Option<Ns>) -> Result<(), WaitError> {
        let Some(birth) = self.table.get(token).map(|e| e.leader.birth) else {
            return Ok(());
        };
        while !self.world.outcomes.contains_key(&birth)
            && limit.is_none_or(|end| end > self.world.now)
        {
            let Some(next) = self.world.next_event().into_iter().chain(limit).min() else {
                return Err(WaitError::Failed(Errno::from_raw(libc::EDEADLK)));
            };
            self.world.run_until(next);
        }
        Ok(())
    }

    /// Hands out what is due, by rank; what does not fit stays.
    fn give(&mut self, out: &mut Notices) {
        let now = self.world.now;
        if self.rng.chance(self.options.fault_rates.shuffled) {
            self.rng.shuffle(&mut self.pending);
        }
        // Stable: within a rank in the order in which it came about.
        self.pending.sort_by_key(|(at, n)| (*at > now, n.rank()));
        let due = self.pending.iter().take_while(|(at, _)| *at <= now).count();
        let mut given = 0;
        for place in 0..due {
            let Some((_, notice)) = self.pending.get(place).copied() else {
                break;
            };
            if self.is_current(notice) {
                if !out.push(notice) {
                    break;
                }
                self.given(notice);
            } else {
                self.table.stale += 1;
            }
            given = place + 1;
        }
        self.pending.drain(..given);
        if self.waker.flag.load(Ordering::Acquire) && out.push(Notice::Woken) {
            self.waker.flag.store(false, Ordering::Release);
            self.world.note(Happened::Noticed(Notice::Woken));
        }
    }

    fn given(&mut self, notice: Notice) {
        let batches = self.batches;
        self.world.note(Happened::Noticed(notice));
        match notice {
            Notice::Outcome(token) => {
                if let Some(entry) = self.table.get(token) {
                    // One for nothing tells nothing.
                    entry.outcome_told = self.world.outcomes.contains_key(&entry.leader.birth);
                }
            }
            Notice::Exit(token) => {
                if let Some(entry) = self.table.get(token).filter(|e| e.exit == ExitSeen::No) {
                    entry.exit = ExitSeen::Announced(batches);
                }
            }
            Notice::MemberGone(token) => self.member_told(token),
            Notice::CgroupChanged(_)
            | Notice::Writable(_)
            | Notice::Readable(_)
            | Notice::Woken => {}
        }
    }

    /// Its end is told: a zombie that the host has inherited is reaped.
    fn member_told(&mut self, token: Token) {
        let watches = self
            .table
            .look(token)
            .map(|e| e.watches.as_slice())
            .unwrap_or_default();
        let Some((_, one)) = watches.iter().find(|(of, _)| *of == token).copied() else {
            return;
        };
        let inherited = |p: &Process| p.birth == one.birth && p.ppid == HOST && p.birth != p.family;
        if self.options.orphans != Orphans::Leave
            && self.world.process(one.pid).is_some_and(inherited)
        {
            self.world.reap(one.pid, HOST);
        }
    }

    /// The table drops what is out of date, as a poll set's user must: the object still exists, the
    /// entry does not.
    fn is_current(&self, notice: Notice) -> bool {
        match notice {
            Notice::Woken => true,
            Notice::MemberGone(token) => self
                .table
                .look(token)
                .is_some_and(|e| e.watches.iter().any(|(t, _)| *t == token)),
            Notice::Outcome(token) => self.table.look(token).is_some_and(|e| !e.outcome_told),
            Notice::Exit(token) => self
                .table
                .look(token)
                .is_some_and(|e| e.exit != ExitSeen::Told),
            Notice::CgroupChanged(token) => self
                .table
                .look(token)
                .is_some_and(|e| matches!(e.contained, Contained::Cgroup(_))),
            Notice::Writable(token) => self.table.look(token).is_some_and(|e| e.stdin.is_some()),
            Notice::Readable(token) => match token.kind() {
                TokenKind::Output(stream) => self
                    .table
                    .look(token)
                    .is_some_and(|e| e.streams[stream.index()].is_some()),
                TokenKind::Spawn
                | TokenKind::Exit
                | TokenKind::Stdin
                | TokenKind::Member(_)
                | TokenKind::Cgroup
                | TokenKind::Wake => false,
            },
        }
    }

    /// The poll set fails, or has something to tell for nothing.
    fn wait_fault(&mut self) -> Option<Errno> {
        if let Some((Fault::Wait(errno), _)) =
            self.take_fault(Call::Wait, None, |p| matches!(p.fault, Fault::Wait(_)))
        {
            return Some(errno);
        }
        // Those that fit nobody wait until they do.
        let fitting: Vec<Fault> = SPURIOUS
            .into_iter()
            .filter(|fault| !self.for_nothing(*fault, None).is_empty())
            .collect();
        let taken = self.take_fault(Call::Wait, None, |p| fitting.contains(&p.fault));
        if let Some((fault, only)) = taken {
            self.tell_for_nothing(fault, only);
        }
        None
    }

    /// The notices that a spurious one could be.
    fn for_nothing(&self, fault: Fault, only: Option<Slot>) -> Vec<Notice> {
        let of: Vec<(u32, &Entry)> = self
            .table
            .iter()
            .filter(|(slot, _)| only.is_none_or(|o| o.0 == *slot))
            .collect();
        let token =
            |slot: u32, e: &Entry, kind: TokenKind| Token::new(Slot(slot), e.sequence, kind);
        // Nothing but the outcome itself is told of a generation before its outcome, not even for
        // nothing.
        let told = of.iter().copied().filter(|(_, e)| e.outcome_told);
        match fault {
            Fault::SpuriousExit => told
                .map(|(s, e)| Notice::Exit(token(s, e, TokenKind::Exit)))
                .collect(),
            Fault::SpuriousReadable(stream) => told
                .map(|(s, e)| Notice::Readable(token(s, e, TokenKind::Output(stream))))
                .collect(),
            Fault::SpuriousWritable => told
                .filter(|(_, e)| e.stdin.is_some())
                .map(|(s, e)| Notice::Writable(token(s, e, TokenKind::Stdin)))
                .collect(),
            Fault::SpuriousMember => told
                .flat_map(|(_, e)| {
                    e.watches
                        .iter()
                        .map(|(token, _)| Notice::MemberGone(*token))
                })
                .collect(),
            Fault::SpuriousCgroup => told
                .filter(|(_, e)| matches!(e.contained, Contained::Cgroup(_)))
                .map(|(s, e)| Notice::CgroupChanged(token(s, e, TokenKind::Cgroup)))
                .collect(),
            Fault::SpuriousOutcome => of
                .iter()
                .filter(|(_, e)| !e.outcome_told)
                .map(|(s, e)| Notice::Outcome(token(*s, e, TokenKind::Spawn)))
                .collect(),
            Fault::SpuriousWake => vec![Notice::Woken],
            _ => Vec::new(),
        }
    }

    fn tell_for_nothing(&mut self, fault: Fault, only: Option<Slot>) {
        let mut notices = self.for_nothing(fault, only);
        if only.is_none() {
            let one = self.rng.below(notices.len() as u64);
            notices = notices
                .into_iter()
                .skip(usize::try_from(one).unwrap_or(0))
                .take(1)
                .collect();
        }
        self.pending
            .extend(notices.into_iter().map(|n| (self.world.now, n)));
    }

    fn spurious_by_chance(&mut self) {
        let pick = usize::try_from(self.rng.below(SPURIOUS.len() as u64)).unwrap_or(0);
        if let Some(fault) = SPURIOUS
            .get(pick)
            .copied()
            .filter(|fault| !self.for_nothing(*fault, None).is_empty())
        {
            self.by_chance(Call::Wait, fault);
            self.tell_for_nothing(fault, None);
        }
    }

    /// What the host's descriptor would say: something is due.
    pub(super) fn readable(&mut self) -> bool {
        self.gather();
        let now = self.world.now;
        self.is_due() || self.alarm_at.is_some_and(|at| at <= now)
    }
}
