//! A search for a hundred texts at once, byte by byte.
//!
//! A vector search goes through a text ten times as fast, but whenever it begins it looks at its
//! first three places with parts of what it knows, and compares nearly all texts there: it is for
//! beginning rarely. This one begins anywhere at no cost, and is for the rest of a line in which
//! something was found.

/// Bytes of a text that are looked at before it is compared.
const LOOKED_AT: usize = 4;
const BUCKETS: usize = 8;
/// Places that are looked at together. Each such window begins with no knowledge of the one before:
/// the processor works on several at a time.
const STEP: usize = 8;
const WINDOW: usize = STEP + LOOKED_AT - 1;
/// From here on, no bucket has all bytes that are looked at.
const NONE: u32 = (u8::MAX as u32) << (BUCKETS * (LOOKED_AT - 1));

/// The texts in eight buckets; for every byte, the buckets in which no text has it as its first,
/// second, third and fourth.
pub(crate) struct Bytewise {
    lanes: Box<[u32; 256]>,
    /// The first bytes of each text, and its number.
    buckets: [Vec<([u8; LOOKED_AT], usize)>; BUCKETS],
    texts: &'static [&'static str],
}

impl Bytewise {
    /// For texts of four bytes and more.
    pub(crate) fn new(texts: &'static [&'static str]) -> Bytewise {
        let mut search = Bytewise {
            lanes: Box::new([u32::MAX; 256]),
            buckets: Default::default(),
            texts,
        };
        for (number, text) in texts.iter().enumerate() {
            let bucket = number % BUCKETS;
            search.buckets[bucket]
                .extend(text.as_bytes().first_chunk().map(|head| (*head, number)));
            for (place, byte) in text.bytes().take(LOOKED_AT).enumerate() {
                search.lanes[usize::from(byte)] &= !(1 << (BUCKETS * place + bucket));
            }
        }
        search
    }

    /// Gives every place at or behind `from` at which one of the texts stands, and its number: the
    /// lowest, if there are several.
    pub(crate) fn find(&self, text: &[u8], from: usize, mut found: impl FnMut(usize, usize)) {
        let mut rest = text.get(from..).unwrap_or_default();
        while let Some(window) = rest.first_chunk::<WINDOW>() {
            if self.may_have(window) {
                self.look(text, text.len() - rest.len(), window, &mut found);
            }
            rest = rest.get(STEP..).unwrap_or_default();
        }
        if self.may_have(rest) {
            self.look(text, text.len() - rest.len(), rest, &mut found);
        }
    }

    /// A text may stand here.
    fn may_have(&self, window: &[u8]) -> bool {
        let (mut come, mut all) = (u32::MAX, u32::MAX);
        for byte in window {
            come = self.next(come, *byte);
            all &= come;
        }
        all < NONE
    }

    /// In each quarter, the buckets of which not so many bytes have come.
    fn next(&self, come: u32, byte: u8) -> u32 {
        come << BUCKETS | self.lanes[usize::from(byte)]
    }

    /// Gives what stands in these bytes, the first of which is at `from`.
    fn look(&self, text: &[u8], from: usize, window: &[u8], found: &mut impl FnMut(usize, usize)) {
        let mut come = u32::MAX;
        for (at, byte) in (from + 1..).zip(window) {
            come = self.next(come, *byte);
            let mut left = !come >> (BUCKETS * (LOOKED_AT - 1));
            let (at, mut first) = (at.saturating_sub(LOOKED_AT), None);
            while left != 0 {
                first = self
                    .at(
                        text.get(at..).unwrap_or_default(),
                        left.trailing_zeros() as usize,
                    )
                    .into_iter()
                    .chain(first)
                    .min();
                left &= left - 1;
            }
            if let Some(number) = first {
                found(at, number);
            }
        }
    }

    /// The text of this bucket that stands at the beginning.
    fn at(&self, text: &[u8], bucket: usize) -> Option<usize> {
        let head = text.first_chunk()?;
        let stands = |number: &usize| {
            self.texts
                .get(*number)
                .is_some_and(|known| text.starts_with(known.as_bytes()))
        };
        self.buckets
            .get(bucket)?
            .iter()
            .filter(|known| known.0 == *head)
            .map(|known| known.1)
            .find(stands)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::Rng;

    /// Texts that overlap, that begin alike and that differ in one byte, in text that is nothing
    /// but parts of them.
    #[test]
    fn every_text_is_found_wherever_it_stands() {
        const TEXTS: &[&str] = &[
            "abca",
            "bcab",
            "abcab",
            "aaaa",
            "ABCA",
            " abc",
            "cabca",
            "aab\n",
            "\u{e9}\u{e9}",
            "abba",
            "aaab",
        ];
        let search = Bytewise::new(TEXTS);
        for seed in 1..2000_u64 {
            let mut rng = Rng::new(seed);
            let text: Vec<u8> = (0..rng.index(60))
                .map(|_| b"aaabbccA \n\xc3\xa9"[rng.index(12)])
                .collect();
            let from = rng.index(text.len() + 2);
            let mut found = Vec::new();
            search.find(&text, from, |at, number| found.push((at, number)));
            let stands = |at: usize| {
                TEXTS
                    .iter()
                    .position(|known| text[at..].starts_with(known.as_bytes()))
                    .map(|number| (at, number))
            };
            assert_eq!(
                found,
                (from..text.len()).filter_map(stands).collect::<Vec<_>>(),
                "{text:?} from {from}"
            );
        }
    }
}
