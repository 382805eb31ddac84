//! Notices, the results of a wait.

use crate::types::{Token, limits};

/// Something that may have happened. A hint: the calls give the facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The outcome of the spawn is known.
    Outcome(Token),
    /// The leader may have ended.
    Exit(Token),
    /// A watched member has ended.
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
    /// The place in the order in which notices are served: outcomes, exits, members, cgroups,
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

/// A list of notices, filled by [`Kernel::wait`](crate::kernel::Kernel::wait). Its capacity is
/// [`limits::NOTICES`] and never grows.
#[derive(Debug, Default)]
pub struct Notices {
    list: Vec<Notice>,
    /// There are more notices: wait again before sleeping and before serving any timer.
    pub more: bool,
}

impl Notices {
    /// An empty list of full capacity.
    pub fn new() -> Notices {
        Notices {
            list: Vec::with_capacity(limits::NOTICES),
            more: false,
        }
    }

    /// Adds a notice. False if the list is full; then `more` is set.
    pub fn push(&mut self, notice: Notice) -> bool {
        if self.list.len() >= limits::NOTICES {
            self.more = true;
            return false;
        }
        self.list.push(notice);
        true
    }

    /// Sorts the list by [`Notice::rank`], without allocating. The order within a rank is not kept;
    /// it has no meaning.
    pub fn sort(&mut self) {
        // A stable sort may allocate.
        self.list.sort_unstable_by_key(|n| n.rank());
    }

    /// The notices, as a slice.
    pub fn as_slice(&self) -> &[Notice] {
        &self.list
    }

    /// The number of notices.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether the list is full.
    pub fn is_full(&self) -> bool {
        self.list.len() >= limits::NOTICES
    }

    /// Removes all notices, and clears `more`.
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
