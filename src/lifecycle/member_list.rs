//! A list of members. Most generations never have one, and then it is a word.

use crate::types::Member;

/// Members, in the order in which they were put in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct List(Option<Box<Members>>);

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Members {
    list: Vec<Member>,
}

impl List {
    /// Nobody.
    pub(super) const fn new() -> List {
        List(None)
    }

    /// They.
    pub(super) fn as_slice(&self) -> &[Member] {
        self.0.as_ref().map_or(&[], |members| &members.list)
    }

    /// Adds some.
    pub(super) fn extend(&mut self, members: impl Iterator<Item = Member>) {
        let mut members = members.peekable();
        if members.peek().is_some() {
            self.0.get_or_insert_default().list.extend(members);
        }
    }

    /// These instead.
    pub(super) fn replace(&mut self, members: &[Member]) {
        if let Some(own) = &mut self.0 {
            own.list.clear();
        }
        self.extend(members.iter().cloned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::test_harness::member;

    #[test]
    fn a_list_is_what_was_put_in_last() {
        let mut list = List::new();
        list.replace(&[]);
        assert_eq!((list.as_slice(), &list), (&[][..], &List::default()));
        list.replace(&[member(3), member(4)]);
        list.extend([member(5)].into_iter());
        assert_eq!(list.as_slice(), [member(3), member(4), member(5)]);
        list.replace(&[member(6)]);
        assert_eq!(list.as_slice(), [member(6)]);
        list.replace(&[]);
        assert!(list.as_slice().is_empty());
    }
}
