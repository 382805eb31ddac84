//! A list of members that costs one word while it is empty. Most generations never have one.

use crate::types::Member;

/// Members, in the order in which they were added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct MemberList(Option<Box<Members>>);

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Members {
    list: Vec<Member>,
}

impl MemberList {
    pub(super) const fn new() -> MemberList {
        MemberList(None)
    }

    pub(super) fn as_slice(&self) -> &[Member] {
        self.0.as_ref().map_or(&[], |members| &members.list)
    }

    /// Adds members at the end.
    pub(super) fn extend(&mut self, members: impl Iterator<Item = Member>) {
        let mut members = members.peekable();
        if members.peek().is_some() {
            self.0.get_or_insert_default().list.extend(members);
        }
    }

    /// Replaces all members, and keeps the allocation.
    pub(super) fn replace(&mut self, members: &[Member]) {
        if let Some(members) = &mut self.0 {
            members.list.clear();
        }
        self.extend(members.iter().cloned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::test_harness::member;

    #[test]
    fn a_list_has_what_was_put_in_since_the_last_replacement() {
        let mut list = MemberList::new();
        list.replace(&[]);
        assert_eq!((list.as_slice(), &list), (&[][..], &MemberList::default()));
        list.replace(&[member(3), member(4)]);
        list.extend([member(5)].into_iter());
        assert_eq!(list.as_slice(), [member(3), member(4), member(5)]);
        list.replace(&[member(6)]);
        assert_eq!(list.as_slice(), [member(6)]);
        list.replace(&[]);
        assert!(list.as_slice().is_empty());
    }
}
