//! Finds secrets in the text of a line and puts `[redacted]` in their place.
//!
//! ```text
//!  heads           where a secret may begin: one search for all of them
//!  literals        secrets that the host has registered
//!  token_patterns  the table of shapes that secrets have
//!  key_value, pem  recognizers of that table that need more than a row
//!  scan            what a recognizer sees of the text
//! ```
//!
//! Text that holds nothing is passed over by a vector search for the beginnings of all shapes, as
//! long as no literal is registered.
//!
//! One pass over the text of a line collects the places at which something may begin. The
//! registered literals among them are found first. Then each place of a shape is tried in order,
//! unless it lies within a secret that was found before it.
//!
//! # Redacting twice is redacting once
//!
//! A mark that stands in the text already is a border: nothing is found across it. So after a
//! redaction only the text between the marks can hold a secret, and there is none if each shape is
//! tried twice, with the whole text before it and with the text from the last secret on: a shape is
//! found in the beginning of a text only if it is found in the whole ([`token_patterns`]). The
//! first of the two makes sure that whoever registers more literals never sees more of a larger
//! secret.

mod heads;
pub(crate) mod key_value;
mod literals;
pub(crate) mod pem;
mod scan;
mod token_patterns;

use aho_corasick::{AhoCorasick, Input, MatchKind};
use heads::{Heads, Owners};
pub(crate) use literals::Literals;
use memchr::memmem;
pub(crate) use scan::End;
use scan::Scan;
use std::fmt;
use std::ops::Range;
use token_patterns::{PRIVATE_KEY, SHAPES};

/// Stands for a secret.
pub(crate) const REDACTED: &str = "[redacted]";

/// Everything that is redacted, ready for searching.
pub(crate) struct Redactor {
    heads: Heads,
    literals: Literals,
    skip: Vec<AhoCorasick>,
    marks: memmem::Finder<'static>,
}

/// Shows the number of registered secrets.
impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor")
            .field("literals", &self.literals.len())
            .finish_non_exhaustive()
    }
}

/// Working memory that is reused for every line.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Places at which a shape may begin, and which.
    places: Vec<(usize, u64)>,
    /// Registered literals, in order and apart from one another.
    registered: Vec<Range<usize>>,
    /// All secrets; in the end in order and apart from one another.
    secrets: Vec<Range<usize>>,
    /// Whether a marker of a private key may stand in the text.
    has_key: bool,
    out: String,
}

/// A text without its secrets.
pub(crate) struct Redacted<'t> {
    pub(crate) text: &'t str,
    /// Whether a private key may begin or end in it.
    pub(crate) has_key: bool,
}

impl Redactor {
    pub(crate) fn new(literals: Literals) -> Redactor {
        let heads = [token_patterns::heads(), literals.heads()].concat();
        Redactor {
            heads: Heads::new(&heads),
            skip: if literals.len() == 0 {
                skip()
            } else {
                Vec::new()
            },
            literals,
            marks: memmem::Finder::new(REDACTED),
        }
    }

    /// Bytes of the longest registered literal.
    pub(crate) fn longest(&self) -> usize {
        self.literals.longest()
    }

    /// Bytes of the longest registered literal with white space in it.
    pub(crate) fn longest_spaced(&self) -> usize {
        self.literals.longest_spaced()
    }

    /// The first place at or after `from` at which a secret may begin.
    pub(crate) fn next_place(&self, text: &[u8], from: usize) -> Option<usize> {
        if self.skip.is_empty() {
            return self.heads.next(text, from).map(|(at, _)| at);
        }
        let mut to = text.len();
        for search in &self.skip {
            let found = search.find(Input::new(text).range(from.min(to)..to));
            // The searches that follow need not go further.
            to = found.map_or(to, |found| (found.start() + heads::HEAD).min(to));
        }
        let found = |at: usize| at.saturating_sub(heads::HEAD).max(from);
        (to < text.len()).then(|| found(to))
    }

    /// Redacts the text from `from` on; what stands before that is looked at, too. Returns the text
    /// without its secrets, which borrows from `scratch` if there were any.
    pub(crate) fn redact<'t>(
        &self,
        text: &'t str,
        from: usize,
        end: End,
        scratch: &'t mut Scratch,
    ) -> Redacted<'t> {
        scratch.secrets.clear();
        scratch.has_key = false;
        let mut left = 0;
        for mark in self.marks.find_iter(text.as_bytes()) {
            self.between(text, left..mark, End::Mark, scratch);
            left = mark + REDACTED.len();
        }
        self.between(text, left..text.len(), end, scratch);
        merge(&mut scratch.secrets);
        if !scratch.secrets.is_empty() {
            replace(text, from, &scratch.secrets, &mut scratch.out);
        }
        Redacted {
            text: if scratch.secrets.is_empty() {
                text.get(from..).unwrap_or_default()
            } else {
                &scratch.out
            },
            has_key: scratch.has_key,
        }
    }

    /// Finds the secrets between two borders.
    fn between(&self, text: &str, part: Range<usize>, end: End, scratch: &mut Scratch) {
        let Scratch {
            places,
            registered,
            secrets,
            has_key,
            ..
        } = scratch;
        places.clear();
        registered.clear();
        let bytes = text.as_bytes().get(..part.end).unwrap_or_default();
        let (mut at, mut followed) = (part.start, part.start);
        while let Some((begin, Owners { shapes, literal })) = self.heads.next(bytes, at) {
            if literal != 0 && begin >= followed {
                let found = |span| registered.push(whole(text, span));
                followed = self.literals.follow(bytes, begin, literal, end, found);
            }
            if shapes != 0 {
                places.push((begin, shapes));
            }
            at = begin + 1;
        }
        if places.is_empty() && registered.is_empty() {
            return;
        }
        merge(registered);
        *has_key |= places
            .iter()
            .any(|(_, shapes)| shapes >> PRIVATE_KEY & 1 == 1);
        let mut scan = Scan::new(bytes, part.start, end);
        shapes(text, &mut scan, places, registered, secrets);
        secrets.append(registered);
    }
}

/// Vector searches for the beginnings of all shapes. They start slowly and then pass over text
/// without any several times as fast as [`Heads`] does.
fn skip() -> Vec<AhoCorasick> {
    /// The search compares all beginnings with vector instructions up to about this many.
    const TOGETHER: usize = 51;
    let mut searches = Vec::new();
    for beginnings in token_patterns::beginnings() {
        for some in beginnings.chunks(TOGETHER) {
            let search = AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostFirst)
                .build(some);
            match search {
                Ok(search) => searches.push(search),
                // Without it, the other search finds all places.
                Err(_) => return Vec::new(),
            }
        }
    }
    searches
}

/// The beginnings of all shapes.
#[cfg(feature = "__internals")]
pub(crate) fn shape_beginnings() -> impl Iterator<Item = &'static str> {
    SHAPES.iter().flat_map(|shape| shape.begins).copied()
}

/// Tries each place of a shape, in order.
fn shapes(
    text: &str,
    scan: &mut Scan<'_>,
    places: &[(usize, u64)],
    registered: &[Range<usize>],
    secrets: &mut Vec<Range<usize>>,
) {
    let left = scan.left;
    let mut registered = registered.iter().peekable();
    // The end of the last secret before the place, and the secret that was found last.
    let (mut border, mut last) = (left, left..left);
    for (at, shapes) in places {
        if last.contains(at) {
            continue;
        }
        while let Some(literal) = registered.next_if(|literal| literal.end <= *at) {
            border = border.max(literal.end);
        }
        if last.end <= *at {
            border = border.max(last.end);
        }
        let is_registered = registered
            .peek()
            .is_some_and(|literal| literal.start <= *at);
        let is_border = border > left && !is_registered;
        for left in [left].into_iter().chain(is_border.then_some(border)) {
            scan.left = left;
            let mut shapes = *shapes;
            while let Some(shape) = SHAPES.get(shapes.trailing_zeros() as usize) {
                shapes &= shapes - 1;
                if let Some(secret) = shape.find(scan, *at) {
                    let secret = whole(text, secret);
                    last = if last.end <= *at {
                        secret.clone()
                    } else {
                        last.start.min(secret.start)..last.end.max(secret.end)
                    };
                    secrets.push(secret);
                }
            }
        }
    }
    scan.left = left;
}

/// The span, extended to the characters in which it begins and ends.
fn whole(text: &str, span: Range<usize>) -> Range<usize> {
    floor_char(text, span.start)..ceil_char(text, span.end)
}

/// The last character boundary at or before `at`.
pub(crate) fn floor_char(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// The first character boundary at or after `at`.
pub(crate) fn ceil_char(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}

/// Puts spans in order and joins those that touch.
fn merge(spans: &mut Vec<Range<usize>>) {
    if spans.len() < 2 {
        return;
    }
    spans.sort_unstable_by_key(|span| span.start);
    spans.dedup_by(|next, last| {
        let joins = next.start <= last.end;
        if joins {
            last.end = last.end.max(next.end);
        }
        joins
    });
}

/// Writes the text from `from` on with a mark in the place of each span.
fn replace(text: &str, from: usize, spans: &[Range<usize>], out: &mut String) {
    out.clear();
    let mut at = from;
    for span in spans.iter().filter(|span| span.end > from) {
        out.push_str(text.get(at..span.start.max(at)).unwrap_or_default());
        out.push_str(REDACTED);
        at = span.end;
    }
    out.push_str(text.get(at..).unwrap_or_default());
}

#[cfg(test)]
mod tests;
