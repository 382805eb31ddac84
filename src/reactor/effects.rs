//! Effects of the state machines become kernel calls: every
//! [`Effect`](crate::lifecycle::Effect) is performed in this file.
//!
//! Three effects take more than one call, over several turns, and are only begun here: the read-out
//! (`reads.rs`), the list of members and the list of holders (`scan_schedule.rs`).

use super::Reactor;
use super::inputs::{Answer, Work};
use super::turn::Alarm;
use crate::kernel::{Collected, Kernel};
use crate::lifecycle::{Effect, Effects, Timer};
use crate::report::StdinEnd;
use crate::types::{
    CollectMode, Errno, Ns, Release, Signal, Signalled, Stream, Token, TokenKind, limits,
};

impl<K: Kernel> Reactor<K> {
    /// Performs the effects of one input, in order. Answers become pending work.
    pub(super) fn perform(&mut self, key: usize, effects: Effects) {
        let token = self.table[key].generation.token();
        for effect in effects {
            match effect {
                Effect::ReadAvailable => self.begin_read_out(key),
                Effect::MarkLastWords => self.mark_last_words(key),
                Effect::ProbeGroup => {
                    let probe = self.kernel.probe(token);
                    self.answer(token, Answer::Probed(probe));
                }
                Effect::ListMembers => self.scans.want_members(token),
                Effect::WatchMembers => self.watch_members(key),
                Effect::UnwatchMembers => {
                    self.unwatch_members(key);
                    self.scans.forget_members(token);
                }
                Effect::FindHolders => self
                    .scans
                    .want_holders(token, self.clock.now.after(Ns::from(limits::HOLDER_TIME))),
                Effect::CloseStream(stream) => self.close_stream(key, stream),
                Effect::CloseStdin => self.end_stdin(key, None),
                Effect::SignalGroup(signal) => {
                    let signalled = self.kernel.signal(token, signal);
                    self.answer(token, Answer::Signalled(signalled));
                }
                Effect::SignalEscapees(signal) => self.signal_escapees(token, signal),
                Effect::ArmTimer(timer, at) => self.arm_timer(key, timer, at),
                Effect::CancelTimer(timer) => self.cancel_timer(key, timer),
                Effect::ReapLeader => match self.kernel.collect(token, CollectMode::Reap) {
                    Collected::Ended(_) | Collected::NotYet | Collected::Lost => {}
                },
                Effect::Release(how) => self.release(token, how),
                Effect::Notify(notification) => self.notify(key, notification),
            }
        }
    }

    fn answer(&mut self, token: Token, answer: Answer) {
        self.pending.push_back(Work::Answer(token, answer));
    }

    /// Nobody outside the group says nothing about the group, and is no answer.
    fn signal_escapees(&mut self, token: Token, signal: Signal) {
        match self.kernel.signal_outside(token, signal) {
            Signalled::Empty | Signalled::NoWay => {}
            reached @ (Signalled::Sent | Signalled::Denied) => {
                self.answer(token, Answer::Signalled(reached));
            }
        }
    }

    fn release(&mut self, token: Token, how: Release) {
        let released = self.kernel.release(token, how);
        self.host_ends.handed_over = match how {
            Release::HandOver => Some(released),
            Release::Close | Release::Linger => None,
        };
    }

    fn close_stream(&mut self, key: usize, stream: Stream) {
        let entry = &mut self.table[key];
        if let Some(channel) = entry.channel_mut(stream) {
            channel.read_out_left = 0;
        }
        let token = entry.token(TokenKind::Output(stream));
        self.kernel.close(token);
    }

    /// Closes a fed stdin. `end` is `None` when the machines close it: what was not written by then
    /// stays unwritten.
    pub(super) fn end_stdin(&mut self, key: usize, end: Option<(StdinEnd, Option<Errno>)>) {
        let entry = &mut self.table[key];
        let token = entry.token(TokenKind::Stdin);
        if let Some(stdin) = &mut entry.stdin {
            let (end, error) = end.unwrap_or((stdin.end_if_closed_now(), None));
            stdin.end.get_or_insert(end);
            stdin.error = stdin.error.or(error);
        }
        self.kernel.close(token);
    }

    fn arm_timer(&mut self, key: usize, timer: Timer, at: Ns) {
        self.cancel_timer(key, timer);
        let token = self.table[key].generation.token();
        let id = self.clock.timers.arm(at, (token, Alarm::Machine(timer)));
        self.table[key].put_timer(timer, id, &mut self.memory.boxes);
    }

    fn cancel_timer(&mut self, key: usize, timer: Timer) {
        if let Some(id) = self.table[key].take_timer(timer) {
            self.clock.timers.cancel(id);
        }
    }

    /// Watches each member, at most [`limits::WATCHED`] of them. Older watches are given up first.
    fn watch_members(&mut self, key: usize) {
        self.unwatch_members(key);
        let entry = &mut self.table[key];
        let generation = entry.generation.token();
        let mut failed = false;
        for (place, member) in (0..).zip(entry.lifecycle.members().iter().take(limits::WATCHED)) {
            let token = generation.with(TokenKind::Member(place));
            match self.kernel.watch(member, token) {
                Ok(()) => {}
                Err(errno) if errno.raw() == libc::ESRCH => {
                    let gone = Work::Answer(generation, Answer::MemberGone);
                    self.pending.push_back(gone);
                }
                Err(_) => failed = true,
            }
            entry.watched = place + 1;
        }
        if failed {
            self.answer(generation, Answer::WatchFailed);
        }
    }

    fn unwatch_members(&mut self, key: usize) {
        let entry = &mut self.table[key];
        let generation = entry.generation.token();
        for place in 0..std::mem::take(&mut entry.watched) {
            self.kernel.close(generation.with(TokenKind::Member(place)));
        }
    }
}
