//! What the kernel object keeps of each generation, by slot.

use super::containment::Contained;
use super::pipe::PipeId;
use crate::types::Token;
use std::collections::BTreeMap;

/// How far a leader's end has come, as the kernel object sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExitSeen {
    /// No notice has been given.
    No,
    /// A notice was given, when so many batches had been read; nobody has asked yet.
    Announced(u64),
    /// Somebody asked and was told that it has ended, or that it is lost.
    Told,
}

/// A process whatever its number: a pidfd, so to speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) pid: u32,
    pub(super) birth: u64,
}

/// What the kernel keeps of one generation.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) sequence: u32,
    pub(super) leader: Known,
    pub(super) streams: [Option<PipeId>; 2],
    pub(super) stdin: Option<PipeId>,
    /// The outcome's notice was given, or it was asked for.
    pub(super) outcome_told: bool,
    pub(super) exit: ExitSeen,
    /// Watched members by their token.
    pub(super) watches: Vec<(Token, Known)>,
    pub(super) contained: Contained,
    /// Members that the last whole look has found.
    pub(super) known: Vec<Known>,
    /// Those outside the group who have got the last signal.
    pub(super) told: Vec<Known>,
}

/// The generations, by slot.
#[derive(Debug, Default)]
pub(super) struct Table {
    entries: BTreeMap<u32, Entry>,
    /// Calls with tokens that were out of date.
    pub(super) stale: u64,
}

impl Table {
    /// The generation of a token; a stale one is counted.
    pub(super) fn get(&mut self, token: Token) -> Option<&mut Entry> {
        match self.entries.get_mut(&token.slot().0) {
            Some(entry) if entry.sequence == token.sequence() => Some(entry),
            _ => {
                self.stale += 1;
                None
            }
        }
    }

    /// The same, uncounted and unchanged.
    pub(super) fn look(&self, token: Token) -> Option<&Entry> {
        self.entries
            .get(&token.slot().0)
            .filter(|e| e.sequence == token.sequence())
    }

    pub(super) fn in_use(&self, token: Token) -> bool {
        self.entries.contains_key(&token.slot().0)
    }

    pub(super) fn insert(&mut self, token: Token, entry: Entry) {
        self.entries.insert(token.slot().0, entry);
    }

    pub(super) fn remove(&mut self, token: Token) -> Option<Entry> {
        self.look(token)?;
        self.entries.remove(&token.slot().0)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Entry)> {
        self.entries.iter().map(|(slot, entry)| (*slot, entry))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Entry)> {
        self.entries.iter_mut().map(|(slot, entry)| (*slot, entry))
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}
