//! stdins that the loop writes.

use super::slot::Feed;
use super::{Generation, Reactor};
use crate::kernel::{Kernel, Wrote};
use crate::lifecycle::Input;
use crate::report::StdinEnd;
use crate::types::{FeedError, FeedRefusal, TokenKind, limits};

impl<K: Kernel> Reactor<K> {
    /// Gives bytes to a stdin that was made with [`Stdin::Feed`](crate::Stdin::Feed). They are
    /// written when the child takes them.
    ///
    /// # Errors
    ///
    /// The stdin is closed, or not one that the loop writes; the bytes come back.
    pub fn feed(&mut self, generation: Generation, bytes: Vec<u8>) -> Result<(), FeedError> {
        let Some(key) = self.own(generation) else {
            return Err(FeedError {
                why: FeedRefusal::Gone,
                bytes,
            });
        };
        match &mut self.table[key].feed {
            Some(feed) if feed.end.is_none() && !feed.last => feed.queue.push_back(bytes.into()),
            Some(_) | None => {
                return Err(FeedError {
                    why: FeedRefusal::Closed,
                    bytes,
                });
            }
        }
        self.want_write(key);
        self.fold();
        Ok(())
    }

    /// Closes a fed stdin once everything that was given has been written. False if there is none
    /// (any more).
    pub fn close_stdin(&mut self, generation: Generation) -> bool {
        let Some(key) = self.own(generation) else {
            return false;
        };
        match &mut self.table[key].feed {
            Some(feed) if feed.end.is_none() => feed.last = true,
            Some(_) | None => return false,
        }
        self.want_write(key);
        self.fold();
        true
    }

    /// There is something to write, or room to write it.
    pub(super) fn want_write(&mut self, key: usize) {
        let token = self.table[key].token(TokenKind::Stdin);
        if !self.writers.contains(&token) {
            self.writers.push_back(token);
        }
    }

    /// Writes to each stdin that may take bytes, a bounded number a turn.
    pub(super) fn write_stdins(&mut self) {
        for _ in 0..self.writers.len() {
            let Some(token) = self.writers.pop_front() else {
                return;
            };
            let Some(key) = self.find(token) else {
                continue;
            };
            if self.write_stdin(key) {
                self.writers.push_back(token);
            }
        }
    }

    /// True when the budget was used up with bytes and room left.
    fn write_stdin(&mut self, key: usize) -> bool {
        let entry = &mut self.table[key];
        let token = entry.token(TokenKind::Stdin);
        let Some(feed) = entry.feed.as_deref_mut() else {
            return false;
        };
        let mut budget = limits::STDIN_BYTES;
        let end = loop {
            if feed.end.is_some() {
                return false;
            }
            let Some(piece) = feed.queue.front() else {
                if !feed.last {
                    return false;
                }
                break (StdinEnd::Written, None);
            };
            let rest = piece.get(feed.begun..).unwrap_or_default();
            if rest.is_empty() {
                feed.queue.pop_front();
                feed.begun = 0;
                continue;
            }
            if budget == 0 {
                return true;
            }
            let part = rest
                .get(
                    ..rest
                        .len()
                        .min(usize::try_from(budget).unwrap_or(usize::MAX)),
                )
                .unwrap_or(rest);
            match self.kernel.write(token, part) {
                Wrote::Took(n) => budget = budget.saturating_sub(feed.took(n)),
                Wrote::Full => return false,
                Wrote::NoReader => break (StdinEnd::NoReader, None),
                Wrote::Failed(errno) => break (StdinEnd::Error, Some(errno)),
            }
        };
        self.end_stdin(key, Some(end));
        self.feed_input(key, Input::StdinClosed);
        false
    }
}

impl Feed {
    fn took(&mut self, n: usize) -> u64 {
        self.begun += n;
        self.written += n as u64;
        n as u64
    }
}
