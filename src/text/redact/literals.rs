//! Registered secrets: an Aho-Corasick automaton, entered only where the four first bytes of one of
//! them stand.
//!
//! Each byte of the text moves the automaton once, however many literals there are and however much
//! they have in common, so the cost is linear. The state says which beginning of a literal the text
//! ends with, which is what must be hidden where a text ends too early.

use super::heads::{HEAD, Owners};
use super::scan::End;
use std::ops::Range;

/// A beginning of one or more literals.
#[derive(Clone, Debug, Default)]
struct Node {
    /// Its last byte.
    byte: u8,
    /// The length of the prefix in bytes.
    depth: u32,
    /// The length of the longest literal that it ends with, 0 for none.
    literal: u32,
    /// The longest other beginning that it ends with.
    suffix: u32,
    /// The first of the beginnings that are longer by one byte, and the next one beside this one.
    /// 0 for none: the root is never either.
    child: u32,
    sibling: u32,
}

/// The automaton of all registered secrets.
#[derive(Debug)]
pub(crate) struct Literals {
    /// The root first.
    nodes: Vec<Node>,
    count: usize,
    longest: usize,
    longest_spaced: usize,
}

impl Default for Literals {
    fn default() -> Self {
        Literals {
            nodes: vec![Node::default()],
            count: 0,
            longest: 0,
            longest_spaced: 0,
        }
    }
}

impl Literals {
    /// From the bytes of each, at least four. `None` if they are too many to be numbered: four
    /// billion bytes.
    pub(crate) fn new<'l>(all: impl IntoIterator<Item = &'l [u8]>) -> Option<Literals> {
        let mut literals = Literals::default();
        let mut parents = vec![0];
        for literal in all {
            let mut node = 0;
            for byte in literal {
                node = match literals.child(node, *byte) {
                    Some(child) => child,
                    None => {
                        let child = u32::try_from(literals.nodes.len()).ok()?;
                        let parent = &mut literals.nodes[node as usize];
                        let (depth, sibling) = (parent.depth + 1, parent.child);
                        parent.child = child;
                        parents.push(node);
                        literals.nodes.push(Node {
                            byte: *byte,
                            depth,
                            sibling,
                            ..Node::default()
                        });
                        child
                    }
                };
            }
            let node = &mut literals.nodes[node as usize];
            node.literal = node.depth;
            literals.count += 1;
            literals.longest = literals.longest.max(literal.len());
            if literal.iter().any(u8::is_ascii_whitespace) {
                literals.longest_spaced = literals.longest_spaced.max(literal.len());
            }
        }
        literals.link(&parents);
        Some(literals)
    }

    /// Finds the suffix of each node, shorter ones first.
    fn link(&mut self, parents: &[u32]) {
        let mut order: Vec<usize> = (1..self.nodes.len()).collect();
        order.sort_by_key(|node| self.nodes[*node].depth);
        for node in order {
            let Node { byte, depth, .. } = self.nodes[node];
            let mut suffix = 0;
            if depth > 1 {
                let mut at = self.nodes[parents[node] as usize].suffix;
                suffix = loop {
                    match self.child(at, byte) {
                        Some(child) => break child,
                        None if at == 0 => break 0,
                        None => at = self.nodes[at as usize].suffix,
                    }
                };
            }
            let shorter = self.nodes[suffix as usize].literal;
            let node = &mut self.nodes[node];
            node.suffix = suffix;
            node.literal = node.literal.max(shorter);
        }
    }

    fn child(&self, node: u32, byte: u8) -> Option<u32> {
        let mut child = self.nodes.get(node as usize)?.child;
        while child != 0 {
            let node = self.nodes.get(child as usize)?;
            if node.byte == byte {
                return Some(child);
            }
            child = node.sibling;
        }
        None
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Bytes of the longest literal.
    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    /// Bytes of the longest literal with white space in it.
    pub(crate) fn longest_spaced(&self) -> usize {
        self.longest_spaced
    }

    /// The head of each literal, with its node.
    pub(crate) fn heads(&self) -> Vec<([u8; HEAD], Owners)> {
        let mut heads = Vec::new();
        let mut open = vec![(0_u32, [0; HEAD])];
        while let Some((node, mut head)) = open.pop() {
            let depth = self.nodes[node as usize].depth as usize;
            if depth == HEAD {
                let owners = Owners {
                    shapes: 0,
                    literal: node,
                };
                heads.push((head, owners));
                continue;
            }
            let mut child = self.nodes[node as usize].child;
            while child != 0 {
                head[depth] = self.nodes[child as usize].byte;
                open.push((child, head));
                child = self.nodes[child as usize].sibling;
            }
        }
        heads
    }

    /// Follows the text from a head, whose node is `node` and which begins at `begin`, for as long
    /// as a literal may be going on. Gives the literals (of those that end at one place, the
    /// longest), and at an open end the beginning of one. Returns the first place at which a
    /// literal may begin that was not followed.
    pub(crate) fn follow(
        &self,
        text: &[u8],
        begin: usize,
        node: u32,
        end: End,
        mut found: impl FnMut(Range<usize>),
    ) -> usize {
        let (mut at, mut node) = (begin + HEAD, node);
        while let Some(Node { depth, literal, .. }) = self.nodes.get(node as usize) {
            let (depth, literal) = (*depth as usize, *literal as usize);
            if literal > 0 {
                found(at - literal..at);
            }
            let Some(byte) = text.get(at) else {
                if end == End::Open && depth >= HEAD {
                    found(at - depth..at);
                }
                return text.len();
            };
            let Some(next) = self.step(node, *byte) else {
                return at.saturating_sub(HEAD - 1).max(begin + 1);
            };
            (at, node) = (at + 1, next);
        }
        text.len()
    }

    /// The longest beginning, of four bytes at least, that this one ends with when the byte is
    /// added.
    fn step(&self, node: u32, byte: u8) -> Option<u32> {
        let mut at = node;
        loop {
            let here = self.nodes.get(at as usize)?;
            if (here.depth as usize) + 1 < HEAD {
                return None;
            }
            if let Some(child) = self.child(at, byte) {
                return Some(child);
            }
            at = here.suffix;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::Rng;
    use crate::text::redact::heads::Heads;

    fn spans(literals: &Literals, text: &[u8], end: End) -> Vec<bool> {
        let heads = Heads::new(&literals.heads());
        let (mut at, mut followed) = (0, 0);
        let mut covered = vec![false; text.len()];
        while let Some((begin, owners)) = heads.next(text, at) {
            if begin >= followed {
                followed = literals.follow(text, begin, owners.literal, end, |span| {
                    covered[span].fill(true)
                });
            }
            at = begin + 1;
        }
        covered
    }

    /// Short alphabets, so that literals overlap, contain each other and repeat themselves.
    #[test]
    fn every_byte_of_every_literal_is_covered_and_no_other() {
        for seed in 1..3000_u64 {
            let mut rng = Rng::new(seed);
            let letters = 1 + rng.index(3);
            let mut word = |least: usize, more: usize| -> Vec<u8> {
                let n = least + rng.index(more);
                (0..n).map(|_| b"abc"[rng.index(letters)]).collect()
            };
            let all: Vec<Vec<u8>> = (0..1 + seed % 5).map(|_| word(4, 8)).collect();
            let text = word(0, 60);
            let literals = Literals::new(all.iter().map(Vec::as_slice)).expect("few");
            for end in [End::Complete, End::Open] {
                let mut expected = vec![false; text.len()];
                for literal in &all {
                    for at in 0..text.len() {
                        if text[at..].starts_with(literal) {
                            expected[at..at + literal.len()].fill(true);
                        }
                        let rest = &text[at..];
                        if end == End::Open && rest.len() >= HEAD && literal.starts_with(rest) {
                            expected[at..].fill(true);
                        }
                    }
                }
                assert_eq!(spans(&literals, &text, end), expected, "{all:?} {text:?}");
            }
        }
    }

    #[test]
    fn the_longest_literals_are_known() {
        let all: [&[u8]; 3] = [b"abcdefgh", b"ab cd", b"wxyz"];
        let literals = Literals::new(all).expect("few");
        let longest = (literals.longest(), literals.longest_spaced());
        assert_eq!((literals.len(), longest), (3, (8, 5)));
    }
}
