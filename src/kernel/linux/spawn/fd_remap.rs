//! Plans which descriptor goes to which number in the child, before the clone and without changing
//! any.

use std::os::fd::RawFd;
use std::sync::atomic::AtomicI32;

/// What becomes descriptor 0, 1 or 2 of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChildEnd {
    /// The host's descriptor of the same number.
    Inherit,
    /// This descriptor of the host, which is close-on-exec. Several streams may use the same.
    Fd(RawFd),
}

/// A descriptor to be put at a number.
#[derive(Debug)]
pub(super) struct FdMove {
    /// Its number in the host.
    pub from: RawFd,
    /// Its number in the child.
    pub to: RawFd,
    /// Another descriptor is put at its number, so it is moved away first.
    pub lift: bool,
    /// The number that it was moved to. Set by the child.
    pub lifted: AtomicI32,
}

/// All descriptors of a child, streams first.
#[derive(Debug)]
pub(super) struct FdRemap {
    /// One entry for each number in the child.
    pub list: Vec<FdMove>,
}

impl FdRemap {
    /// Plans the moves. `pass` has pairs of the host's number and the child's. The child's numbers
    /// are distinct and at least 3.
    pub(super) fn new(ends: [ChildEnd; 3], pass: &[(RawFd, RawFd)]) -> FdRemap {
        let ends = (0..).zip(ends).filter_map(|(to, end)| match end {
            ChildEnd::Inherit => None,
            ChildEnd::Fd(from) => Some((from, to)),
        });
        let pairs: Vec<(RawFd, RawFd)> = ends.chain(pass.iter().copied()).collect();
        let overwritten = |number: RawFd| {
            pairs
                .iter()
                .any(|&(from, to)| to == number && from != number)
        };
        let list = pairs
            .iter()
            .map(|&(from, to)| FdMove {
                from,
                to,
                lift: from != to && overwritten(from),
                lifted: AtomicI32::new(-1),
            })
            .collect();
        FdRemap { list }
    }

    /// Whether a descriptor is put at this number. Called by the child, so it cannot panic.
    pub(super) fn is_target(&self, number: RawFd) -> bool {
        self.list.iter().any(|m| m.to == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Does the moves on a table of names, as the child does them.
    fn carried_out(
        remap: &FdRemap,
        host: &[(RawFd, &'static str)],
    ) -> BTreeMap<RawFd, &'static str> {
        let mut table: BTreeMap<RawFd, &'static str> = host.iter().copied().collect();
        let mut lifted = BTreeMap::new();
        for m in remap.list.iter().filter(|m| m.lift) {
            let free = (3..)
                .find(|n| !table.contains_key(n) && !remap.is_target(*n))
                .expect("numbers do not end");
            table.insert(free, table[&m.from]);
            lifted.insert(m.to, free);
        }
        for m in &remap.list {
            let from = lifted.get(&m.to).copied().unwrap_or(m.from);
            table.insert(m.to, table[&from]);
        }
        table
    }

    #[test]
    fn every_descriptor_arrives_whatever_numbers_overlap() {
        let host: Vec<(RawFd, &'static str)> =
            vec![(0, "a"), (1, "b"), (2, "c"), (3, "d"), (4, "e"), (5, "f")];
        let name = |fd: RawFd| host.iter().find(|(n, _)| *n == fd).expect("in the table").1;
        // Every choice of three ends out of six numbers, while passed descriptors use numbers that
        // are sources too.
        for code in 0..216 {
            let ends = [code % 6, code / 6 % 6, code / 36];
            for pass in [
                [(3, 4), (4, 3)],
                [(0, 3), (3, 5)],
                [(5, 5), (2, 9)],
                [(4, 5), (5, 4)],
            ] {
                let remap = FdRemap::new(ends.map(ChildEnd::Fd), &pass);
                let table = carried_out(&remap, &host);
                for (to, from) in (0..).zip(ends).chain(pass.map(|(from, to)| (to, from))) {
                    assert_eq!(table[&to], name(from), "{ends:?} {pass:?} at {to}");
                }
            }
        }
    }

    #[test]
    fn an_inherited_end_is_not_moved() {
        let remap = FdRemap::new([ChildEnd::Inherit, ChildEnd::Fd(7), ChildEnd::Inherit], &[]);
        assert_eq!(
            remap
                .list
                .iter()
                .map(|m| (m.from, m.to, m.lift))
                .collect::<Vec<_>>(),
            [(7, 1, false)]
        );
        assert!(remap.is_target(1) && !remap.is_target(0) && !remap.is_target(7));
    }
}
