//! Secrets that the host has registered: thousands of them, searched together.
//!
//! Text without any is passed over by a filter. Of every literal the short pieces (grams) at its
//! beginning are known; however a literal stands in the text, one of them begins at a place that
//! the filter looks at, since it knows as many of them, shifted by a byte each, as it goes in one
//! step. The longer the literals, the longer the steps. Where the filter finds a gram, the literals
//! that have it are compared; a text in which that would happen too often (thousands of literals
//! that begin alike) is left to an automaton, so that no text takes long.

use aho_corasick::{AhoCorasick, MatchKind};
use std::ops::Range;

/// The shortest literals of each filter, and the bytes of a gram.
const CLASSES: [(usize, usize); 4] = [(4, 4), (8, 4), (16, 8), (32, 8)];
/// Bits of a filter for each gram, and the least and most as powers of two: 4 KiB and 256 KiB.
const BITS: usize = 256;
const FILTER_BITS: [u32; 2] = [15, 21];
/// A place for each class.
pub(crate) type Next = [usize; CLASSES.len()];

/// Literals that are compared for each byte of text before the automaton takes over, on the
/// average.
const COMPARED: usize = 2;

/// All literals.
#[derive(Default)]
pub(crate) struct Literals {
    filters: Vec<Filter>,
    all: Vec<Vec<u8>>,
    automaton: Option<AhoCorasick>,
    longest: usize,
}

/// The grams of the literals of one class.
struct Filter {
    gram: usize,
    /// Places from one look to the next.
    step: usize,
    shift: u32,
    known: Vec<u64>,
    /// In the order of their hashes.
    grams: Vec<Gram>,
    /// Where in `grams` each word of `known` begins.
    begins: Vec<u32>,
}

struct Gram {
    hash: u64,
    bytes: u64,
    literal: usize,
    offset: usize,
}

impl Literals {
    /// From the bytes of each; none is shorter than four. Fails if they are too many or too long
    /// for an automaton.
    pub(crate) fn new(all: Vec<Vec<u8>>) -> Result<Literals, aho_corasick::BuildError> {
        let mut filters = Vec::new();
        for (class, &(least, gram)) in CLASSES.iter().enumerate() {
            let most = CLASSES.get(class + 1).map_or(usize::MAX, |next| next.0);
            let members: Vec<usize> = (0..all.len())
                .filter(|n| (least..most).contains(&all[*n].len()))
                .collect();
            if !members.is_empty() {
                filters.push(Filter::new(&all, &members, least, gram));
            }
        }
        let automaton = if all.is_empty() {
            None
        } else {
            Some(
                AhoCorasick::builder()
                    .match_kind(MatchKind::Standard)
                    .build(&all)?,
            )
        };
        let longest = all.iter().map(Vec::len).max().unwrap_or_default();
        Ok(Literals {
            filters,
            all,
            automaton,
            longest,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    /// No literal lies wholly between `from` and `to`. `next` has, for each class, the next
    /// suspicious place that is known (0 at first): each is searched for once, however many
    /// lines lie before it.
    pub(crate) fn is_clear(&self, text: &[u8], from: usize, to: usize, next: &mut Next) -> bool {
        self.filters
            .iter()
            .zip(next)
            .fold(true, |is_clear, (filter, next)| {
                if *next <= from {
                    *next = filter.suspect(text, from).unwrap_or(usize::MAX);
                }
                is_clear & (*next >= to)
            })
    }

    /// No literal lies wholly in text, behind the line that was looked at last, that ends up to
    /// here.
    pub(crate) fn clear_until(&self, next: &Next) -> usize {
        self.filters
            .iter()
            .zip(next)
            .map(|(_, next)| *next)
            .min()
            .unwrap_or(usize::MAX)
    }

    /// Gives every literal in the line from `from` to `to`, counted from its beginning; also those
    /// that overlap, and some twice. `next` as for [`Literals::is_clear`].
    pub(crate) fn find(
        &self,
        text: &[u8],
        from: usize,
        to: usize,
        next: &mut Next,
        mut found: impl FnMut(Range<usize>),
    ) {
        let mut left = COMPARED * (to - from);
        for (filter, next) in self.filters.iter().zip(next) {
            if !filter.find(text, from..to, &self.all, next, &mut left, &mut found) {
                // What is found once more joins with what was found before.
                let line = text.get(from..to).unwrap_or_default();
                self.automaton
                    .iter()
                    .flat_map(|it| it.find_overlapping_iter(line))
                    .for_each(|it| found(it.range()));
                return;
            }
        }
    }
}

impl Filter {
    fn new(all: &[Vec<u8>], members: &[usize], least: usize, gram: usize) -> Filter {
        let step = least - gram + 1;
        let bits = (members.len() * step * BITS)
            .next_power_of_two()
            .ilog2()
            .clamp(FILTER_BITS[0], FILTER_BITS[1]);
        let mut filter = Filter {
            gram,
            step,
            shift: 64 - bits,
            known: vec![0; 1 << (bits - 6)],
            grams: Vec::new(),
            begins: Vec::new(),
        };
        for &literal in members {
            for (offset, bytes) in all[literal].windows(gram).take(step).enumerate() {
                let bytes = read(bytes);
                let hash = filter.hash(bytes);
                filter.known[(hash >> 6) as usize] |= 1 << (hash & 63);
                filter.grams.push(Gram {
                    hash,
                    bytes,
                    literal,
                    offset,
                });
            }
        }
        filter.grams.sort_unstable_by_key(|gram| gram.hash);
        let words = 0..=filter.known.len() as u64;
        filter.begins = words
            .map(|word| filter.grams.partition_point(|gram| gram.hash >> 6 < word) as u32)
            .collect();
        filter
    }

    fn hash(&self, gram: u64) -> u64 {
        gram.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift
    }

    /// The literals with a gram of this hash, and perhaps a few more.
    fn grams_of(&self, hash: u64) -> &[Gram] {
        let word = (hash >> 6) as usize;
        let (Some(from), Some(to)) = (self.begins.get(word), self.begins.get(word + 1)) else {
            return &[];
        };
        self.grams
            .get(*from as usize..*to as usize)
            .unwrap_or_default()
    }

    /// Gives the literals in the line; `false` if that would take more than `left` comparisons.
    fn find(
        &self,
        text: &[u8],
        line: Range<usize>,
        all: &[Vec<u8>],
        next: &mut usize,
        left: &mut usize,
        found: &mut impl FnMut(Range<usize>),
    ) -> bool {
        if *next <= line.start {
            *next = self.suspect(text, line.start).unwrap_or(usize::MAX);
        }
        while *next < line.end {
            let at = *next;
            let bytes = text.get(at..at + self.gram).map(read).unwrap_or_default();
            let grams = self.grams_of(self.hash(bytes));
            let Some(less) = left.checked_sub(grams.len()) else {
                return false;
            };
            *left = less;
            for gram in grams.iter().filter(|gram| gram.bytes == bytes) {
                let begin = at
                    .checked_sub(gram.offset)
                    .filter(|begin| *begin >= line.start);
                if let (Some(begin), Some(literal)) = (begin, all.get(gram.literal))
                    && text.get(begin..line.end.min(begin + literal.len())) == Some(literal)
                {
                    found(begin - line.start..begin - line.start + literal.len());
                }
            }
            *next = self.suspect(text, at + self.step).unwrap_or(usize::MAX);
        }
        true
    }

    fn suspect(&self, text: &[u8], from: usize) -> Option<usize> {
        match self.gram {
            4 => self.look::<4>(text, from),
            _ => self.look::<8>(text, from),
        }
    }

    fn look<const GRAM: usize>(&self, text: &[u8], from: usize) -> Option<usize> {
        let mut at = from;
        while let Some(gram) = text.get(at..).and_then(|rest| rest.first_chunk::<GRAM>()) {
            let hash = self.hash(read(gram));
            if self
                .known
                .get((hash >> 6) as usize)
                .is_some_and(|known| known >> (hash & 63) & 1 == 1)
            {
                return Some(at);
            }
            at += self.step;
        }
        None
    }
}

/// A gram as a number.
fn read(gram: &[u8]) -> u64 {
    gram.iter()
        .rev()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::Rng;

    /// Every literal at every place, among text that is nearly one.
    #[test]
    fn the_filter_lets_no_literal_pass() {
        let mut rng = Rng::new(42);
        let all: Vec<Vec<u8>> = (0..500)
            .map(|n| (0..4 + n % 70).map(|_| b"abcdefgh"[rng.index(8)]).collect())
            .collect();
        let literals = Literals::new(all.clone()).expect("few");
        for round in 0..3000 {
            let literal = &all[rng.index(all.len())];
            let before = rng.index(100);
            let mut text: Vec<u8> = (0..before).map(|_| b"ABCDEFGHI "[rng.index(10)]).collect();
            text.extend_from_slice(literal);
            text.extend((0..rng.index(100)).map(|_| b"ABCDEFGHI "[rng.index(10)]));
            let from = rng.index(before + 1);
            assert!(
                !literals.is_clear(&text, from, before + literal.len(), &mut Next::default()),
                "{round}"
            );
            let mut found = Vec::new();
            literals.find(&text, 0, text.len(), &mut Next::default(), |span| {
                found.push(span)
            });
            assert!(found.contains(&(before..before + literal.len())), "{round}");
        }
    }

    #[test]
    fn text_without_literals_is_passed_over() {
        let mut rng = Rng::new(1);
        let all: Vec<Vec<u8>> = (0..1000)
            .map(|_| (0..24).map(|_| rng.index(256) as u8).collect())
            .collect();
        let literals = Literals::new(all.clone()).expect("few");
        let text = b"the quick brown fox jumps over the lazy dog, again and again\n".repeat(1000);
        let (mut at, mut hits) = (0, 0);
        while let Some(next) = literals
            .filters
            .iter()
            .filter_map(|filter| filter.suspect(&text, at))
            .min()
        {
            (at, hits) = (next + 1, hits + 1);
        }
        assert!(hits * 50 < text.len() / 9, "{hits} looks were in vain");
        assert!(Literals::default().is_clear(&text, 0, text.len(), &mut Next::default()));
    }

    /// Literals that begin alike, and a text that is full of that beginning.
    #[test]
    fn a_text_full_of_beginnings_is_left_to_the_automaton() {
        let all: Vec<Vec<u8>> = (0..3000)
            .map(|n| format!("sk-proj-sk-proj-{n:04}").into_bytes())
            .collect();
        let literals = Literals::new(all).expect("few");
        let text = format!(
            "{} sk-proj-sk-proj-0042 {}",
            "sk-proj-".repeat(500),
            "sk-proj-".repeat(500)
        );
        let mut left = COMPARED * text.len();
        assert!(!literals.filters[0].find(
            text.as_bytes(),
            0..text.len(),
            &literals.all,
            &mut 0,
            &mut left,
            &mut |_| ()
        ));
        let mut found = Vec::new();
        literals.find(
            text.as_bytes(),
            0,
            text.len(),
            &mut Next::default(),
            |span| found.push(&text[span]),
        );
        assert_eq!(found, ["sk-proj-sk-proj-0042"]);
    }
}
