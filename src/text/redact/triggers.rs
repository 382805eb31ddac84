//! Where in a text a secret may be: one search for the triggers of all shapes.
//!
//! Vector instructions look for the first four bytes of 110 texts at once; two single bytes (`@`,
//! `_`) that few texts have and many shapes need are searched for beside them, far faster. A shape
//! with a beginning of three bytes is looked for behind what most often stands before it.

use super::bytewise::Bytewise;
use super::token_patterns::{Find, SHAPES, Shape};
use super::{REDACTED, pem};
use aho_corasick::{AhoCorasick, Input, MatchKind, Span, packed};
use memchr::{memchr2, memmem};
use std::ops::Range;

/// What stands before a token whose beginning has three bytes. (At the beginning of a text nothing
/// need stand there.)
const BEFORE: &str = " =\"':/([{<,;`@>|\t\n";

/// All triggers of four bytes and more, in eight columns. The search sorts them into eight buckets, by their place modulo eight or
/// with an earlier one that has the low halves of its first four bytes in common, and compares all texts of a bucket wherever each
/// of four bytes could be that of one of them; so this order was found by exchanging pairs against a model of logs and source
/// texts, and what is found most often stands early in its bucket. It matters for the speed alone.
#[rustfmt::skip]
const ORDER: [&str; 110] = [
    "asic ", "oken",      "AKIA",             "-key",         "eyJh",  "pass",       "earer ", "PIKEY",
    "\"sk-", "hvs.",      "PRIVATE KEY",      "(sk-",         "eyJr",  REDACTED,     "ture=",  "REDENTIAL",
    "pwd\"", "glptt-",    "'SG.",             ",SG.",         "eyJl",  "OKEN",       "thKe",   "pwd:",
    "piKe",  "hvb.",      ":SG.",             ";SG.",         "pypi-", "PASS",       "ntKe",   "PWD=",
    "Pwd=",  "glcbt-",    "GOCSPX-",          "=SG.",         "xoxr-", "[SG.",       "erKe",   "tekey",
    "{SG.",  "PWD:",      " SG.",             "{sk-",         "xoxe",  "pikey",      ".eyJ",   "ssKe",
    "/sk-",  "glsoat-",   ">SG.",             ",sk-",         "xoxs-", "<SG.",       "ngKe",   ";sk-",
    " sk-",  "glrt-",     "ATCTT3",           "(SG.",         "xoxp-", "[sk-",       "onKe",   "uthorization",
    "@sk-",  "glft-",     "\"SG.",            "UTHORIZATION", "xoxa-", "-KEY",       "ECRET",  "`SG.",
    "pwd=",  "glpat-",    "ATATT3",           "ya29.",        "AIza",  "|SG.",       "sskey",  "ecret",
    "'sk-",  "|sk-",      "/SG.",             "=sk-",         "xapp-", "ASIC ",      "<sk-",   "teKe",
    "\nsk-", "`sk-",      "ASIA",             "\tSG.",        "dapi",  "pplx-",      "\nSG.",  "EARER ",
    ">sk-",  "gldt-",     "xoxb-",            "xai-",         "eyJ0",  "slack.com/", "@SG.",   "sig=",
    "Pass",  "redential", "AGE-SECRET-KEY-1", "\tsk-",        "hvr.",  ":sk-",
];

/// Numbers of the places that are no text of the order.
const AT: usize = ORDER.len();
const UNDERSCORE: usize = ORDER.len() + 1;
/// Stands for the mark of an earlier redaction.
const MARK: usize = ORDER.len() + 2;

/// Stands behind a text that is searched: a text that is shorter than the vectors would be searched
/// without them, far slower. No trigger ends with a newline.
pub(crate) const PADDING: &str =
    "\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n";

/// A place in a text at which a secret may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) at: usize,
    trigger: usize,
}

/// The next place at which a text that triggers begin with stands, and the next rare byte: each is
/// searched for once, however many lines lie before it. At first, neither is known to be behind the
/// beginning.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NextPlaces {
    text: usize,
    /// Which it is.
    number: Option<usize>,
    rare: usize,
}

impl NextPlaces {
    /// The first of them.
    pub(crate) fn first(&self) -> usize {
        self.text.min(self.rare)
    }
}

impl Place {
    /// A mark stands here.
    pub(crate) fn is_mark(self) -> bool {
        self.trigger == MARK
    }

    /// A private key may begin or end here.
    pub(crate) fn is_key(self) -> bool {
        ORDER.get(self.trigger) == Some(&pem::TRIGGER)
    }
}

/// What a trigger may belong to.
struct Owner {
    shape: &'static Shape,
    /// The beginning of the token, in two parts: before the trigger, and from it on. For other
    /// shapes, what must stand at the place, if that is more than what is known already.
    head: &'static str,
    tail: &'static str,
    /// A byte of the trigger is before the token.
    is_behind: bool,
}

/// Searches for triggers.
pub(crate) struct Triggers {
    search: Search,
    rest: Bytewise,
    /// By the number of the trigger.
    owners: Vec<Vec<Owner>>,
    /// Tokens with beginnings of three bytes.
    short: Vec<Owner>,
    /// Where an authority begins, in a text with an `@`.
    scheme: memmem::Finder<'static>,
}

enum Search {
    /// With vector instructions.
    Packed(packed::Searcher),
    /// On a processor without them.
    Automaton(AhoCorasick),
    /// Cannot be built (it can, a test shows): every place is one.
    Nothing,
}

impl Triggers {
    pub(crate) fn new() -> Triggers {
        let packed = packed::Config::new()
            .heuristic_pattern_limits(false)
            .only_teddy_fat(Some(false))
            .builder()
            .extend(ORDER)
            .build();
        Triggers::with(packed.map_or_else(automaton, Search::Packed))
    }

    fn with(search: Search) -> Triggers {
        let mut owners: Vec<Vec<Owner>> = Vec::new();
        owners.resize_with(UNDERSCORE + 1, Vec::new);
        let mut short = Vec::new();
        for (trigger, is_behind, head, tail, shape) in beginnings() {
            let number = if trigger.starts_with('_') {
                UNDERSCORE
            } else if trigger == "@" {
                AT
            } else {
                ORDER
                    .iter()
                    .position(|known| *known == trigger)
                    .unwrap_or(UNDERSCORE)
            };
            if is_behind && trigger.starts_with(' ') {
                short.push(Owner {
                    shape,
                    head,
                    tail,
                    is_behind: false,
                });
            }
            if let Some(list) = owners.get_mut(number) {
                list.push(Owner {
                    shape,
                    head,
                    tail,
                    is_behind,
                });
            }
        }
        Triggers {
            search,
            rest: Bytewise::new(&ORDER),
            owners,
            short,
            scheme: memmem::Finder::new("://"),
        }
    }

    /// No trigger stands in the line from `from` to `to`, nor at the byte before it. `next` is the
    /// same for a run of lines in one text, and `from` does not go back.
    pub(crate) fn is_clear(
        &self,
        text: &[u8],
        from: usize,
        to: usize,
        next: &mut NextPlaces,
    ) -> bool {
        if next.text <= from.saturating_sub(1) {
            self.find_next(text, from, next);
        }
        if next.rare <= from {
            next.rare = next_rare(text, from).unwrap_or(usize::MAX);
        }
        next.text >= to && next.rare >= to
    }

    /// All places of the line, in order, counted from its beginning. `next` as for
    /// [`Triggers::is_clear`].
    pub(crate) fn places(
        &self,
        text: &[u8],
        from: usize,
        to: usize,
        next: &mut NextPlaces,
        places: &mut Vec<Place>,
    ) {
        places.clear();
        if next.text < to {
            // What was found may be before the line: its newline. At first, nothing was found yet.
            let known = next.text.checked_sub(from).zip(next.number);
            places.extend(known.map(|(at, number)| Place {
                at,
                trigger: trigger(number),
            }));
            let line = text.get(from..to).unwrap_or_default();
            let behind = known.map_or(0, |(at, _)| at + 1);
            self.rest.find(line, behind, |at, number| {
                places.push(Place {
                    at,
                    trigger: trigger(number),
                })
            });
            self.find_next(text, to + 1, next);
        }
        if next.rare < from || from == 0 {
            next.rare = next_rare(text, from).unwrap_or(usize::MAX);
        }
        let texts = places.len();
        let mut has_at = false;
        while next.rare < to {
            if text.get(next.rare) == Some(&b'@') {
                has_at = true;
            } else {
                places.push(Place {
                    at: next.rare - from,
                    trigger: UNDERSCORE,
                });
            }
            next.rare = next_rare(text, next.rare + 1).unwrap_or(usize::MAX);
        }
        if has_at {
            let line = text.get(from..to).unwrap_or_default();
            places.extend(
                self.scheme
                    .find_iter(line)
                    .map(|at| Place { at, trigger: AT }),
            );
        }
        if places.len() > texts {
            places.sort_unstable_by_key(|place| place.at);
        }
    }

    /// Looks for the first place at or behind the newline before `from`, where a line begins, at
    /// which a trigger stands.
    fn find_next(&self, text: &[u8], from: usize, next: &mut NextPlaces) {
        // The search looks at the first three places with parts of what it knows: let those be such
        // that the newline is in each, which no trigger has but as its first byte. So it
        // finds nothing there, and compares nothing either.
        let span = Span::from(from.saturating_sub(4).min(text.len())..text.len());
        let found = match &self.search {
            Search::Packed(searcher) => searcher
                .find_in(text, span)
                .map(|it| (it.start(), it.pattern().as_usize())),
            Search::Automaton(it) => it
                .find(Input::new(text).span(span))
                .map(|it| (it.start(), it.pattern().as_usize())),
            Search::Nothing => {
                (next.text, next.number) = (from, None);
                return;
            }
        };
        (next.text, next.number) =
            found.map_or((usize::MAX, None), |(at, number)| (at, Some(number)));
    }

    /// The secret at a place, if there is one. Nothing outside of `range` is looked at.
    pub(crate) fn secret_at(
        &self,
        text: &[u8],
        range: Range<usize>,
        place: Place,
    ) -> Option<Range<usize>> {
        let part = text.get(range.clone())?;
        let span = self
            .owners
            .get(place.trigger)?
            .iter()
            .find_map(|owner| owner.find(part, place.at, range.start));
        span.map(|span| span.start + range.start..span.end + range.start)
    }

    /// The secret with which the range begins, of those that need something before them.
    pub(crate) fn secret_first(&self, text: &[u8], range: Range<usize>) -> Option<Range<usize>> {
        let part = text
            .get(range.clone())
            .filter(|part| self.may_begin(part))?;
        let span = self.short.iter().find_map(|owner| owner.find(part, 0, 0));
        span.map(|span| span.start + range.start..span.end + range.start)
    }

    /// A secret that needs something before it may begin here.
    pub(crate) fn may_begin(&self, text: &[u8]) -> bool {
        self.short.iter().any(|owner| starts_with(text, owner.tail))
    }
}

impl Owner {
    /// `at` is where the trigger stands, counted as `start` is, which is where the part begins.
    fn find(&self, part: &[u8], at: usize, start: usize) -> Option<Range<usize>> {
        match &self.shape.find {
            Find::With(_, find) => {
                let at = at.checked_sub(start)?;
                if starts_with(part.get(at..)?, self.tail) {
                    find(part, at)
                } else {
                    None
                }
            }
            Find::Token(_, token) => {
                let begin = (at + usize::from(self.is_behind))
                    .checked_sub(start)?
                    .checked_sub(self.head.len())?;
                let rest = part.get(begin..)?;
                if !starts_with(rest, self.head)
                    || !starts_with(rest.get(self.head.len()..)?, self.tail)
                {
                    return None;
                }
                token.at(part, begin, self.head.len() + self.tail.len())
            }
        }
    }
}

/// For a few bytes, most often in vain: a call of memcmp would take longer.
fn starts_with(text: &[u8], beginning: &str) -> bool {
    text.len() >= beginning.len()
        && beginning
            .bytes()
            .zip(text)
            .all(|(one, other)| one == *other)
}

/// Every trigger of every shape: its text, whether its first byte is before the token, the token's
/// beginning before and from the trigger on, and the shape.
fn beginnings() -> impl Iterator<Item = (String, bool, &'static str, &'static str, &'static Shape)>
{
    SHAPES
        .iter()
        .flat_map(|shape| -> Vec<(String, bool, &str, &str, &Shape)> {
            match &shape.find {
                Find::With(triggers, _) => triggers
                    .iter()
                    .map(|trigger| {
                        (
                            trigger.to_string(),
                            false,
                            "",
                            if trigger.starts_with('_') {
                                *trigger
                            } else {
                                ""
                            },
                            shape,
                        )
                    })
                    .collect(),
                Find::Token(prefixes, _) => prefixes
                    .iter()
                    .flat_map(|prefix| {
                        let (head, tail) = prefix.split_once('|').unwrap_or(("", prefix));
                        if tail.len() < 4 && head.is_empty() {
                            BEFORE
                                .chars()
                                .map(|before| (format!("{before}{tail}"), true, head, tail, shape))
                                .collect::<Vec<_>>()
                        } else {
                            vec![(tail.to_owned(), false, head, tail, shape)]
                        }
                    })
                    .collect(),
            }
        })
}

/// What a text of the order stands for.
fn trigger(number: usize) -> usize {
    if ORDER.get(number) == Some(&REDACTED) {
        MARK
    } else {
        number
    }
}

fn automaton() -> Search {
    let built = AhoCorasick::builder()
        .match_kind(MatchKind::LeftmostFirst)
        .build(ORDER);
    built.map_or(Search::Nothing, Search::Automaton)
}

/// The next `@` or `_` at which a secret may be.
fn next_rare(text: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        at += memchr2(b'@', b'_', text.get(at..)?)?;
        if is_rare_place(text, at) {
            return Some(at);
        }
        at += 1;
    }
}

/// Not an underscore that no shape has.
fn is_rare_place(text: &[u8], at: usize) -> bool {
    if text.get(at) == Some(&b'@') {
        return true;
    }
    if let [b'_', b'k', b'e', b'y', ..] | [b'_', b'K', b'E', b'Y', ..] =
        text.get(at..).unwrap_or_default()
    {
        return true;
    }
    matches!(
        text.get(at.saturating_sub(3)..at).unwrap_or_default(),
        [b'g', b'h', b'p' | b'o' | b'u' | b's' | b'r']
            | [b'd', b'o', b'p' | b'o' | b'r']
            | [.., b'h', b'f']
            | [.., b's' | b'r', b'k']
            | b"hub"
            | b"ckr"
            | b"sec"
            | b"npm"
            | b"pat"
            | b"pca"
            | b"ppa"
            | b"pss"
            | b"lsa"
            | b"glc"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_order_has_all_triggers_and_no_other() {
        let of_shapes: BTreeSet<String> = beginnings()
            .map(|it| it.0)
            .filter(|it| !it.starts_with('_') && it != "@")
            .collect();
        let ordered: BTreeSet<String> = ORDER
            .iter()
            .map(|it| it.to_string())
            .filter(|it| it != REDACTED)
            .collect();
        assert_eq!(of_shapes, ordered);
        assert_eq!(ordered.len() + 1, ORDER.len(), "none stands twice");
        assert!(
            ORDER.iter().all(|trigger| trigger.len() >= 4),
            "a shorter one would slow down the search for all"
        );
    }

    #[test]
    fn every_underscore_of_a_shape_is_looked_at() {
        for (_, _, head, tail, _) in beginnings().filter(|it| it.0.starts_with('_')) {
            let text = format!("{head}{tail}");
            assert!(is_rare_place(text.as_bytes(), head.len()), "{text}");
        }
        assert!(!is_rare_place(b"snake_case", 5));
    }

    #[test]
    fn both_searches_find_the_same() {
        let fast = Triggers::new();
        let slow = Triggers::with(automaton());
        assert!(
            matches!(fast.search, Search::Packed(_))
                || cfg!(not(any(target_arch = "x86_64", target_arch = "aarch64")))
        );
        assert!(matches!(slow.search, Search::Automaton(_)));
        for text in SHAPES
            .iter()
            .flat_map(|shape| [shape.positive.0, shape.negative])
        {
            let (mut one, mut other) = (Vec::new(), Vec::new());
            let padded = format!("{text}{PADDING}");
            fast.places(
                padded.as_bytes(),
                0,
                text.len(),
                &mut NextPlaces::default(),
                &mut one,
            );
            slow.places(
                padded.as_bytes(),
                0,
                text.len(),
                &mut NextPlaces::default(),
                &mut other,
            );
            assert_eq!(one, other, "{padded}");
        }
    }
}
