//! Where in a text a secret may be: one search for the triggers of all shapes.
//!
//! Vector instructions look for the first four bytes of 110 texts at once; two single bytes (`@`, `_`) that few texts have
//! and many shapes need are searched for beside them, far faster. A shape with a beginning of three bytes is looked for
//! behind what most often stands before it.

use super::key;
use super::redact::REDACTED;
use super::shapes::{Find, SHAPES, Shape};
use aho_corasick::packed;
use aho_corasick::{AhoCorasick, Input, MatchKind, Span};
use memchr::{memchr2, memchr2_iter, memmem};
use std::ops::Range;

/// What stands before a token whose beginning has three bytes. (At the beginning of a text nothing need stand there.)
const BEFORE: &str = " =\"':/([{<,;`@>|\t\n";

/// All triggers of four bytes and more, in eight columns. The search sorts them into eight buckets by their place modulo
/// eight, and is the faster the less the texts of a bucket make together of what is common; so this order was found by
/// exchanging pairs against a model of logs and source texts. It matters for the speed alone.
#[rustfmt::skip]
const ORDER: [&str; 110] = [
    "pwd\"",  "glft-",   "AKIA",        "-key",  "xoxe",  "pplx-",       "erKe",   "PIKEY",
    "\"sk-",  "hvs.",    ":SG.",        "(sk-",  "eyJr",  "PASS",        "ntKe",   "REDENTIAL",
    "asic ",  "glptt-",  "'SG.",        ",SG.",  "eyJl",  "slack.com/",  "thKe",   "pwd:",
    "piKe",   "hvb.",    "PRIVATE KEY", ";SG.",  "pypi-", "-KEY",        "ture=",  "PWD=",
    "Pwd=",   "glcbt-",  "GOCSPX-",     "=SG.",  "xoxr-", "[SG.",        "earer ", "tekey",
    "{SG.",   "PWD:",    " SG.",        "{sk-",  "eyJh",  "pikey",       ".eyJ",   "ssKe",
    "/sk-",   "glsoat-", ">SG.",        ",sk-",  "xoxs-", "<SG.",        "ngKe",   ";sk-",
    " sk-",   "glrt-",   "ATCTT3",      "(SG.",  "xoxp-", "[sk-",        "onKe",   "uthorization",
    "@sk-",   "oken",    "\"SG.",       "UTHORIZATION", "xoxa-", REDACTED, "ECRET", "`SG.",
    "pwd=",   "glpat-",  "ATATT3",      "ya29.", "AIza",  "|SG.",        "sskey",  "ecret",
    "'sk-",   "|sk-",    "/SG.",        "=sk-",  "xapp-", "ASIC ",       "<sk-",   "teKe",
    "\nsk-",  "`sk-",    "ASIA",        "\tSG.", "dapi",  "pass",        "\nSG.",  "EARER ",
    ">sk-",   "gldt-",   "xoxb-",       "xai-",  "eyJ0",  "OKEN",        "@SG.",   "sig=",
    "Pass",   "redential", "AGE-SECRET-KEY-1", "\tsk-", "hvr.", ":sk-",
];

/// Numbers of the places that are no text of the order.
const AT: usize = ORDER.len();
const UNDERSCORE: usize = ORDER.len() + 1;
/// Stands for the mark of an earlier redaction.
const MARK: usize = ORDER.len() + 2;

/// Stands behind a text that is searched: a text that is shorter than the vectors would be searched without them, far slower. No
/// trigger ends with a newline.
pub(super) const PADDING: &str = "\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n";

/// A text, and the same with the padding behind it.
#[derive(Clone, Copy)]
pub(super) struct Padded<'t> {
    pub(super) text: &'t str,
    padded: &'t [u8],
}

impl<'t> Padded<'t> {
    /// From bytes that end with the padding; `None` if they do not, or if they are not UTF-8.
    pub(super) fn new(padded: &'t [u8]) -> Option<Padded<'t>> {
        let text = std::str::from_utf8(padded.strip_suffix(PADDING.as_bytes())?).ok()?;
        Some(Padded { text, padded })
    }

    /// What is left from this byte on.
    pub(super) fn from(self, at: usize) -> Option<Padded<'t>> {
        Some(Padded { text: self.text.get(at..)?, padded: self.padded.get(at..)? })
    }
}

/// A place in a text at which a secret may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) at: usize,
    trigger: usize,
}

impl Place {
    /// A mark stands here.
    pub(super) fn is_mark(self) -> bool {
        self.trigger == MARK
    }

    /// A private key may begin or end here.
    pub(super) fn is_key(self) -> bool {
        ORDER.get(self.trigger) == Some(&key::TRIGGER)
    }
}

/// What a trigger may belong to.
struct Owner {
    shape: &'static Shape,
    /// The beginning of the token, in two parts: before the trigger, and from it on. For other shapes, what must stand at
    /// the place, if that is more than what is known already.
    head: &'static str,
    tail: &'static str,
    /// A byte of the trigger is before the token.
    is_behind: bool,
}

/// Searches for triggers.
pub(super) struct Triggers {
    search: Search,
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
    pub(super) fn new() -> Triggers {
        let packed = packed::Config::new().heuristic_pattern_limits(false).only_teddy_fat(Some(false)).builder().extend(ORDER).build();
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
                ORDER.iter().position(|known| *known == trigger).unwrap_or(UNDERSCORE)
            };
            if is_behind && trigger.starts_with(' ') {
                short.push(Owner { shape, head, tail, is_behind: false });
            }
            if let Some(list) = owners.get_mut(number) {
                list.push(Owner { shape, head, tail, is_behind });
            }
        }
        Triggers { search, owners, short, scheme: memmem::Finder::new("://") }
    }

    /// The first place at or behind `from` at which a trigger stands.
    pub(super) fn next(&self, text: &[u8], from: usize) -> Option<usize> {
        self.next_text(text, from).map(|it| it.at)
    }

    fn next_text(&self, text: &[u8], from: usize) -> Option<Place> {
        let span = Span::from(from.min(text.len())..text.len());
        let (at, trigger) = match &self.search {
            Search::Packed(searcher) => searcher.find_in(text, span).map(|it| (it.start(), it.pattern().as_usize()))?,
            Search::Automaton(it) => it.find(Input::new(text).span(span)).map(|it| (it.start(), it.pattern().as_usize()))?,
            Search::Nothing => (from, UNDERSCORE),
        };
        Some(Place { at, trigger: if ORDER.get(trigger) == Some(&REDACTED) { MARK } else { trigger } })
    }

    /// All places, in order.
    pub(super) fn places(&self, text: Padded<'_>, places: &mut Vec<Place>) {
        places.clear();
        let mut from = 0;
        while let Some(place) = self.next_text(text.padded, from) {
            places.push(place);
            from = place.at + 1;
        }
        let text = text.text.as_bytes();
        let texts = places.len();
        let mut has_at = false;
        for at in memchr2_iter(b'@', b'_', text) {
            if text.get(at) == Some(&b'@') {
                has_at = true;
            } else if is_rare_place(text, at) {
                places.push(Place { at, trigger: UNDERSCORE });
            }
        }
        if has_at {
            places.extend(self.scheme.find_iter(text).map(|at| Place { at, trigger: AT }));
        }
        if places.len() > texts {
            places.sort_unstable_by_key(|place| place.at);
        }
    }

    /// The secret at a place, if there is one. Nothing outside of `range` is looked at.
    pub(super) fn secret_at(&self, text: &[u8], range: Range<usize>, place: Place) -> Option<Range<usize>> {
        let part = text.get(range.clone())?;
        let span = self.owners.get(place.trigger)?.iter().find_map(|owner| owner.find(part, place.at, range.start));
        span.map(|span| span.start + range.start..span.end + range.start)
    }

    /// The secret with which the range begins, of those that need something before them.
    pub(super) fn secret_first(&self, text: &[u8], range: Range<usize>) -> Option<Range<usize>> {
        let part = text.get(range.clone()).filter(|part| self.may_begin(part))?;
        let span = self.short.iter().find_map(|owner| owner.find(part, 0, 0));
        span.map(|span| span.start + range.start..span.end + range.start)
    }

    /// A secret that needs something before it may begin here.
    pub(super) fn may_begin(&self, text: &[u8]) -> bool {
        self.short.iter().any(|owner| starts_with(text, owner.tail))
    }
}

impl Owner {
    /// `at` is where the trigger stands, counted as `start` is, which is where the part begins.
    fn find(&self, part: &[u8], at: usize, start: usize) -> Option<Range<usize>> {
        match &self.shape.find {
            Find::With(_, find) => {
                let at = at.checked_sub(start)?;
                if starts_with(part.get(at..)?, self.tail) { find(part, at) } else { None }
            }
            Find::Token(_, token) => {
                let begin = (at + usize::from(self.is_behind)).checked_sub(start)?.checked_sub(self.head.len())?;
                let rest = part.get(begin..)?;
                if !starts_with(rest, self.head) || !starts_with(rest.get(self.head.len()..)?, self.tail) {
                    return None;
                }
                token.at(part, begin, self.head.len() + self.tail.len())
            }
        }
    }
}

/// For a few bytes, most often in vain: a call of memcmp would take longer.
fn starts_with(text: &[u8], beginning: &str) -> bool {
    text.len() >= beginning.len() && beginning.bytes().zip(text).all(|(one, other)| one == *other)
}

/// Every trigger of every shape: its text, whether its first byte is before the token, the token's beginning before and from
/// the trigger on, and the shape.
fn beginnings() -> impl Iterator<Item = (String, bool, &'static str, &'static str, &'static Shape)> {
    SHAPES.iter().flat_map(|shape| -> Vec<(String, bool, &str, &str, &Shape)> {
        match &shape.find {
            Find::With(triggers, _) => triggers
                .iter()
                .map(|trigger| (trigger.to_string(), false, "", if trigger.starts_with('_') { *trigger } else { "" }, shape))
                .collect(),
            Find::Token(prefixes, _) => prefixes
                .iter()
                .flat_map(|prefix| {
                    let (head, tail) = prefix.split_once('|').unwrap_or(("", prefix));
                    if tail.len() < 4 && head.is_empty() {
                        BEFORE.chars().map(|before| (format!("{before}{tail}"), true, head, tail, shape)).collect::<Vec<_>>()
                    } else {
                        vec![(tail.to_owned(), false, head, tail, shape)]
                    }
                })
                .collect(),
        }
    })
}

fn automaton() -> Search {
    let built = AhoCorasick::builder().match_kind(MatchKind::LeftmostFirst).build(ORDER);
    built.map_or(Search::Nothing, Search::Automaton)
}

/// The next `@` or `_` at which a secret may be.
pub(super) fn next_rare(text: &[u8], from: usize) -> Option<usize> {
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
    if let [b'_', b'k', b'e', b'y', ..] | [b'_', b'K', b'E', b'Y', ..] = text.get(at..).unwrap_or_default() {
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
        let of_shapes: BTreeSet<String> = beginnings().map(|it| it.0).filter(|it| !it.starts_with('_') && it != "@").collect();
        let ordered: BTreeSet<String> = ORDER.iter().map(|it| it.to_string()).filter(|it| it != REDACTED).collect();
        assert_eq!(of_shapes, ordered);
        assert_eq!(ordered.len() + 1, ORDER.len(), "none stands twice");
        assert!(ORDER.iter().all(|trigger| trigger.len() >= 4), "a shorter one would slow down the search for all");
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
        assert!(matches!(fast.search, Search::Packed(_)) || cfg!(not(any(target_arch = "x86_64", target_arch = "aarch64"))));
        assert!(matches!(slow.search, Search::Automaton(_)));
        for text in SHAPES.iter().flat_map(|shape| [shape.positive.0, shape.negative]) {
            let (mut one, mut other) = (Vec::new(), Vec::new());
            let padded = format!("{text}{PADDING}");
            let text = Padded::new(padded.as_bytes()).expect("padded");
            fast.places(text, &mut one);
            slow.places(text, &mut other);
            let plain = |places: &[Place]| places.iter().map(|it| (it.at, it.trigger)).collect::<Vec<_>>();
            assert_eq!(plain(&one), plain(&other), "{padded}");
        }
    }
}
