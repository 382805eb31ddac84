//! Effects become kernel calls: the only place where they do.

use super::Reactor;
use super::slot::Sweep;
use crate::kernel::{Collected, Kernel};
use crate::lifecycle::{Effect, Input, Timer};
use crate::report::StdinEnd;
use crate::types::{
    CollectMode, Errno, Ns, Probe, Release, Signal, Signalled, Stream, Token, TokenKind, limits,
};

/// What a kernel call that was asked for by an effect came to: an input, in the order of the
/// effects.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    Probed(Probe),
    Signalled(Signalled),
    MemberGone,
    WatchFailed,
}

impl Answer {
    const fn input(self) -> Input<'static> {
        match self {
            Answer::Probed(probe) => Input::Probed(probe),
            Answer::Signalled(signalled) => Input::Signalled(signalled),
            Answer::MemberGone => Input::MemberGone,
            Answer::WatchFailed => Input::WatchFailed,
        }
    }
}

impl<K: Kernel> Reactor<K> {
    /// Gives one input to a generation and carries everything out that follows from it, readings
    /// included as far as this turn's budget goes.
    pub(super) fn feed_input(&mut self, key: usize, input: Input<'_>) {
        self.apply(key, input);
        self.follow(key);
    }

    /// Readings that were asked for come before the other answers, which come in the order of their
    /// effects.
    pub(super) fn follow(&mut self, key: usize) {
        loop {
            if self.table[key].sweep != Sweep::None && self.sweep_budget > 0 {
                self.sweep_step(key);
            } else if let Some(answer) = self.answers.pop_front() {
                self.apply(key, answer.input());
            } else {
                break;
            }
        }
        self.queue_sweep(key);
    }

    /// One input, and its effects.
    pub(super) fn apply(&mut self, key: usize, input: Input<'_>) {
        let now = self.now;
        let entry = &mut self.table[key];
        let effects = entry.lifecycle.handle(now, input);
        if entry.lifecycle.is_late() {
            for channel in entry.channels_mut() {
                let total = channel.captured.total();
                channel.late_from.get_or_insert(total);
            }
        }
        for effect in effects {
            self.carry(key, effect);
        }
    }

    pub(super) fn carry(&mut self, key: usize, effect: Effect) {
        let token = self.table[key].generation.token();
        match effect {
            Effect::ReadAvailable => self.sweep_all(key),
            Effect::MarkLastWords => self.mark_last_words(key),
            Effect::ProbeGroup => {
                let probe = self.kernel.probe(token);
                self.answers.push_back(Answer::Probed(probe));
            }
            Effect::ListMembers => self.errand.want_members(token),
            Effect::WatchMembers => self.watch_members(key),
            Effect::UnwatchMembers => {
                self.unwatch_members(key);
                self.errand.forget_members(token);
            }
            Effect::FindHolders => self
                .errand
                .want_holders(token, self.now.after(Ns::from(limits::HOLDER_TIME))),
            Effect::CloseStream(stream) => self.close_stream(key, stream),
            Effect::CloseStdin => self.end_stdin(key, None),
            Effect::SignalGroup(signal) => self.send(token, signal),
            Effect::SignalEscapees(signal) => match self.kernel.signal_outside(token, signal) {
                // That there is nobody outside says nothing about the group.
                Signalled::Empty | Signalled::NoWay => {}
                told @ (Signalled::Sent | Signalled::Denied) => {
                    self.answers.push_back(Answer::Signalled(told))
                }
            },
            Effect::ArmTimer(timer, at) => self.arm(key, timer, at),
            Effect::CancelTimer(timer) => self.cancel(key, timer),
            Effect::ReapLeader => match self.kernel.collect(token, CollectMode::Reap) {
                Collected::Ended(_) | Collected::NotYet | Collected::Lost => {}
            },
            Effect::Release(how) => self.release(token, how),
            Effect::Notify(notification) => self.tell(key, notification),
        }
    }

    fn send(&mut self, token: Token, signal: Signal) {
        let signalled = self.kernel.signal(token, signal);
        self.answers.push_back(Answer::Signalled(signalled));
    }

    fn release(&mut self, token: Token, how: Release) {
        let released = self.kernel.release(token, how);
        self.released = match how {
            Release::HandOver => Some(released),
            Release::Close | Release::Linger => None,
        };
    }

    fn close_stream(&mut self, key: usize, stream: Stream) {
        let entry = &mut self.table[key];
        if let Some(channel) = entry.channel_mut(stream) {
            channel.sweep_left = 0;
        }
        let token = entry.token(TokenKind::Output(stream));
        self.kernel.close(token);
    }

    /// Closes stdin; without a reason given, whatever is still to be written is what was left.
    pub(super) fn end_stdin(&mut self, key: usize, end: Option<(StdinEnd, Option<Errno>)>) {
        let entry = &mut self.table[key];
        let token = entry.token(TokenKind::Stdin);
        if let Some(feed) = &mut entry.feed {
            let left = if feed.unwritten() == 0 {
                StdinEnd::Written
            } else {
                StdinEnd::Unwritten
            };
            let (end, error) = end.unwrap_or((left, None));
            feed.end.get_or_insert(end);
            feed.error = feed.error.or(error);
        }
        self.kernel.close(token);
    }

    fn arm(&mut self, key: usize, timer: Timer, at: Ns) {
        self.cancel(key, timer);
        let token = self.table[key].generation.token();
        let id = self.wheel.arm(at, (token, timer));
        self.table[key].put_timer(timer, id, &mut self.boxes);
    }

    fn cancel(&mut self, key: usize, timer: Timer) {
        if let Some(id) = self.table[key].take_timer(timer) {
            self.wheel.cancel(id);
        }
    }

    /// A descriptor for each member, as many as there are places for; all older ones are given up
    /// first.
    fn watch_members(&mut self, key: usize) {
        self.unwatch_members(key);
        let Some(entry) = self.table.get_mut(key) else {
            return;
        };
        let mut failed = false;
        for (place, member) in (0..).zip(entry.lifecycle.members().iter().take(limits::WATCHED)) {
            let token = entry.generation.token().with(TokenKind::Member(place));
            match self.kernel.watch(member, token) {
                Ok(()) => {}
                Err(errno) if errno.raw() == libc::ESRCH => {
                    self.answers.push_back(Answer::MemberGone)
                }
                Err(_) => failed = true,
            }
            entry.watched = place + 1;
        }
        if failed {
            self.answers.push_back(Answer::WatchFailed);
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
