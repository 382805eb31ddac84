//! Stdins that the loop writes.

use super::{Generation, Reactor};
use crate::kernel::{Kernel, Wrote};
use crate::report::{StdinEnd, StdinReport};
use crate::types::{Errno, FeedError, FeedRefusal, TokenKind, limits};
use std::collections::VecDeque;
use std::sync::Arc;

/// A stdin that the loop writes, and what it is still to get.
#[derive(Debug)]
pub(super) struct FedStdin {
    pieces: VecDeque<Arc<[u8]>>,
    /// Bytes of the first piece that have been written.
    begun: usize,
    written: u64,
    /// No more is given: it is closed when everything is written.
    is_last_given: bool,
    pub(super) end: Option<StdinEnd>,
    pub(super) error: Option<Errno>,
}

impl FedStdin {
    /// One that gets `input` and then ends, or, without one, what the host feeds it.
    pub(super) fn new(input: Option<Arc<[u8]>>) -> FedStdin {
        FedStdin {
            is_last_given: input.is_some(),
            pieces: input.into_iter().collect(),
            begun: 0,
            written: 0,
            end: None,
            error: None,
        }
    }

    fn unwritten(&self) -> u64 {
        self.pieces
            .iter()
            .map(|piece| piece.len() as u64)
            .sum::<u64>()
            .saturating_sub(self.begun as u64)
    }

    /// How it has ended if it is closed at this moment.
    pub(super) fn end_if_closed_now(&self) -> StdinEnd {
        if self.unwritten() == 0 {
            StdinEnd::Written
        } else {
            StdinEnd::Unwritten
        }
    }

    pub(super) fn report(&self) -> StdinReport {
        StdinReport {
            bytes: self.written,
            unwritten: self.unwritten(),
            end: self.end.unwrap_or_else(|| self.end_if_closed_now()),
            error: self.error,
        }
    }

    /// The bytes that are to be written next, at most `budget` of them. Pieces that are written
    /// are dropped.
    fn next_part(&mut self, budget: u64) -> Option<&[u8]> {
        while self
            .pieces
            .front()
            .is_some_and(|piece| piece.len() <= self.begun)
        {
            self.pieces.pop_front();
            self.begun = 0;
        }
        let rest = self.pieces.front()?.get(self.begun..)?;
        let most = usize::try_from(budget).unwrap_or(usize::MAX);
        Some(rest.get(..most).unwrap_or(rest))
    }

    fn count(&mut self, written: usize) {
        self.begun += written;
        self.written += written as u64;
    }
}

/// Whether a stdin has to be written to again without a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteOutcome {
    /// Nothing is left, nothing fits, or it is closed.
    Done,
    /// This turn's budget is used up.
    BudgetUsed,
}

impl<K: Kernel> Reactor<K> {
    /// Gives bytes to a stdin that was made with [`Stdin::Feed`](crate::Stdin::Feed). They are
    /// written as the child takes them, at most 1 MiB a turn.
    ///
    /// # Errors
    ///
    /// The stdin is closed or not one that the loop writes ([`FeedRefusal::Closed`]), or the
    /// generation is gone ([`FeedRefusal::Gone`]). The bytes come back in the error.
    pub fn feed(&mut self, generation: Generation, bytes: Vec<u8>) -> Result<(), FeedError> {
        let Some(key) = self.lookup_key(generation) else {
            return Err(FeedError {
                why: FeedRefusal::Gone,
                bytes,
            });
        };
        match &mut self.table[key].stdin {
            Some(stdin) if stdin.end.is_none() && !stdin.is_last_given => {
                stdin.pieces.push_back(bytes.into());
            }
            Some(_) | None => {
                return Err(FeedError {
                    why: FeedRefusal::Closed,
                    bytes,
                });
            }
        }
        self.queue_stdin_write(key);
        self.update_deadline_fd();
        Ok(())
    }

    /// Closes a fed stdin once everything that was given is written. Returns `false` if there is no
    /// open one.
    pub fn close_stdin(&mut self, generation: Generation) -> bool {
        let Some(key) = self.lookup_key(generation) else {
            return false;
        };
        match &mut self.table[key].stdin {
            Some(stdin) if stdin.end.is_none() => stdin.is_last_given = true,
            Some(_) | None => return false,
        }
        self.queue_stdin_write(key);
        self.update_deadline_fd();
        true
    }

    /// There is something to write, or room to write it.
    pub(super) fn queue_stdin_write(&mut self, key: usize) {
        let token = self.table[key].token(TokenKind::Stdin);
        if !self.io.writable.contains(&token) {
            self.io.writable.push_back(token);
        }
    }

    /// Writes to each stdin that may take bytes, at most [`limits::STDIN_BYTES`] a turn.
    pub(super) fn write_stdins(&mut self) {
        for _ in 0..self.io.writable.len() {
            let Some(token) = self.io.writable.pop_front() else {
                return;
            };
            if let Some(key) = self.table.lookup(token)
                && self.write_stdin(key) == WriteOutcome::BudgetUsed
            {
                self.io.writable.push_back(token);
            }
        }
    }

    fn write_stdin(&mut self, key: usize) -> WriteOutcome {
        let entry = &mut self.table[key];
        let token = entry.token(TokenKind::Stdin);
        let Some(stdin) = entry.stdin.as_deref_mut() else {
            return WriteOutcome::Done;
        };
        if stdin.end.is_some() {
            return WriteOutcome::Done;
        }
        let mut budget = limits::STDIN_BYTES;
        let end = loop {
            let Some(part) = stdin.next_part(budget) else {
                if !stdin.is_last_given {
                    return WriteOutcome::Done;
                }
                break (StdinEnd::Written, None);
            };
            if part.is_empty() {
                return WriteOutcome::BudgetUsed;
            }
            match self.kernel.write(token, part) {
                Wrote::Took(n) => {
                    stdin.count(n);
                    budget = budget.saturating_sub(n as u64);
                }
                Wrote::Full => return WriteOutcome::Done,
                Wrote::NoReader => break (StdinEnd::NoReader, None),
                Wrote::Failed(errno) => break (StdinEnd::Error, Some(errno)),
            }
        };
        self.end_stdin(key, Some(end));
        self.stdin_closed(key);
        WriteOutcome::Done
    }
}
