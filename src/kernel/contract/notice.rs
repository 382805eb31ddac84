//! Notices: what a wait brings.

use crate::types::{Token, limits};

/// One thing that may have happened. A hint, never a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// How the spawn went is known.
    Outcome(Token),
    /// The leader may have ended.
    Exit(Token),
    /// A watched group member has ended.
    MemberGone(Token),
    /// `cgroup.events` may have changed.
    CgroupChanged(Token),
    /// stdin may take bytes, or has no reader any more.
    Writable(Token),
    /// Bytes, end of file or an error may be there.
    Readable(Token),
    /// A waker was used.
    Woken,
}

impl Notice {
    /// Its place in the order in which notices are served: outcomes, exits, members, cgroups,
    /// stdin, bytes, wake-ups.
    pub const fn rank(self) -> usize {
        match self {
            Notice::Outcome(_) => 0,
            Notice::Exit(_) => 1,
            Notice::MemberGone(_) => 2,
            Notice::CgroupChanged(_) => 3,
            Notice::Writable(_) => 4,
            Notice::Readable(_) => 5,
            Notice::Woken => 6,
        }
    }
}

/// Filled by [`Kernel::wait`](crate::kernel::Kernel::wait); a fixed capacity of
/// [`limits::NOTICES`], never grows.
#[derive(Debug, Default)]
pub struct Notices {
    list: Vec<Notice>,
    /// The capacity was used up: ask again before sleeping and before any timer.
    pub more: bool,
}

impl Notices {
    /// An empty list with its whole capacity.
    pub fn new() -> Notices {
        Notices {
            list: Vec::with_capacity(limits::NOTICES),
            more: false,
        }
    }

    /// Adds one; `false` (and `more` set) when the list is full.
    pub fn push(&mut self, notice: Notice) -> bool {
        if self.list.len() >= limits::NOTICES {
            self.more = true;
            return false;
        }
        self.list.push(notice);
        true
    }

    /// Puts them in the order of [`Notice::rank`], stable within a rank. Allocates nothing.
    pub fn sort(&mut self) {
        // `sort_by_key` may allocate; an unstable sort by (rank, place) cannot tell equal ranks
        // apart, and need not: notices are hints, and within a rank their order carries no
        // meaning.
        self.list.sort_unstable_by_key(|n| n.rank());
    }

    /// All of them.
    pub fn as_slice(&self) -> &[Notice] {
        &self.list
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// None.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Room for one more?
    pub fn is_full(&self) -> bool {
        self.list.len() >= limits::NOTICES
    }

    /// Empties it.
    pub fn clear(&mut self) {
        self.list.clear();
        self.more = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Slot, TokenKind};

    #[test]
    fn notices_come_exits_first_and_never_beyond_their_capacity() {
        let token = Token::new(Slot(1), 1, TokenKind::Exit);
        let mut notices = Notices::new();
        for _ in 0..limits::NOTICES - 1 {
            assert!(notices.push(Notice::Readable(token)));
        }
        assert!(notices.push(Notice::Exit(token)));
        assert!(!notices.more);
        assert!(!notices.push(Notice::Woken));
        assert!(notices.more);
        notices.sort();
        assert_eq!(notices.as_slice()[0], Notice::Exit(token));
        assert_eq!(notices.len(), limits::NOTICES);
    }
}
