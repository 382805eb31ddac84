//! Finds secrets in the text of a line and puts `[redacted]` in their place.
//!
//! A mark that is there already is a border that nothing reaches across. What a shape finds across
//! a registered secret is one secret with it: who registers more never sees more. All that was
//! found is a border, then, and what lies between two borders is looked at again until nothing more
//! is found. So the result has no secret between its marks either: redacting twice is redacting
//! once.

mod bytewise;
pub(crate) mod key_value;
pub(crate) mod literals;
pub(crate) mod pem;
mod token_patterns;
pub(crate) mod triggers;

use crate::types::limits::LINE;
use literals::{Literals, Next};
use std::fmt;
use std::ops::Range;
use triggers::{NextPlaces, Place, Triggers};

/// Stands for a secret.
pub(crate) const REDACTED: &str = "[redacted]";

/// What is to be redacted, ready for searching.
pub(crate) struct Redactor {
    triggers: Triggers,
    literals: Literals,
}

/// No secret.
impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor")
            .field("literals", &self.literals.len())
            .finish_non_exhaustive()
    }
}

/// Memory that is used again for every line.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    places: Vec<Place>,
    /// Borders, in order, apart from one another.
    borders: Vec<Range<usize>>,
    registered: Vec<Range<usize>>,
    ahead: Vec<Range<usize>>,
    found: Vec<Range<usize>>,
    out: String,
}

impl Scratch {
    /// In the last text that was redacted, a private key may have begun or ended.
    pub(crate) fn has_key(&self) -> bool {
        self.places.iter().any(|place| place.is_key())
    }
}

/// A text of many lines, and where its next suspicious places are: each is searched for once,
/// however many lines lie before it.
#[derive(Debug)]
pub(crate) struct Run<'t> {
    text: &'t [u8],
    places: NextPlaces,
    literals: Next,
}

impl<'t> Run<'t> {
    /// Lines with a newline behind each. A text that is shorter than the vectors is searched
    /// without them, far slower; what is behind the last line is never looked at
    /// ([`triggers::PADDING`]).
    pub(crate) fn new(text: &'t [u8]) -> Run<'t> {
        Run {
            text,
            places: NextPlaces::default(),
            literals: Next::default(),
        }
    }
}

impl Redactor {
    pub(crate) fn new(literals: Literals) -> Redactor {
        Redactor {
            triggers: Triggers::new(),
            literals,
        }
    }

    /// Bytes before the end of a text that was cut in which a secret may begin that is not
    /// recognized.
    pub(crate) fn margin(&self) -> usize {
        self.literals.longest().max(LINE)
    }

    /// There is no secret in the line of the run from `from` to `to`. `from` is where a line
    /// begins, and does not go back.
    pub(crate) fn is_clear(&self, run: &mut Run<'_>, from: usize, to: usize) -> bool {
        let Run {
            text,
            places,
            literals,
        } = run;
        // The newline before the line may be the first byte of a trigger.
        let first_clear = from > 0 || !self.triggers.may_begin(text);
        first_clear
            && self.triggers.is_clear(text, from, to, places)
            && self.literals.is_clear(text, from, to, literals)
    }

    /// There is no secret in lines of the run, behind the one that was looked at last, that end up
    /// to here.
    pub(crate) fn clear_until(&self, run: &Run<'_>) -> usize {
        run.places
            .first()
            .min(self.literals.clear_until(&run.literals))
    }

    /// A line of the run, or the end of one, without its secrets; `None` if it has none. It begins
    /// at `from`, which does not go back.
    pub(crate) fn redact<'s>(
        &self,
        run: &mut Run<'_>,
        from: usize,
        text: &str,
        scratch: &'s mut Scratch,
    ) -> Option<&'s str> {
        let Scratch {
            places,
            borders,
            registered,
            ahead,
            found,
            out,
        } = scratch;
        borders.clear();
        found.clear();
        let to = from + text.len();
        self.triggers
            .places(run.text, from, to, &mut run.places, places);
        self.literals
            .find(run.text, from, to, &mut run.literals, |span| {
                borders.push(whole(text, span))
            });
        if places.is_empty() && borders.is_empty() && !self.triggers.may_begin(text.as_bytes()) {
            return None;
        }
        let literals = borders.len();
        let marks = places
            .iter()
            .filter(|place| place.is_mark())
            .map(|place| place.at..place.at + REDACTED.len());
        if literals > 0 && (!places.is_empty() || self.triggers.may_begin(text.as_bytes())) {
            // What is registered may be a part of a larger secret: that one first, whole.
            registered.clear();
            registered.append(borders);
            borders.extend(marks.clone());
            self.look_between(text, places, borders, ahead, found);
            borders.clear();
            borders.append(registered);
            borders.append(found);
        }
        borders.extend(marks);
        merge(borders);
        self.look_between(text, places, borders, ahead, found);
        if literals == 0 && found.is_empty() {
            return None;
        }
        borders.append(found);
        merge(borders);
        replace(text, borders, out);
        Some(out)
    }

    /// Looks for secrets between the borders, from left to right. One that is found is a border for
    /// what is behind it; for what is before it, it changes nothing, since no shape is found in
    /// the beginning of a text that is not found in the whole.
    fn look_between(
        &self,
        text: &str,
        places: &[Place],
        borders: &[Range<usize>],
        ahead: &mut Vec<Range<usize>>,
        found: &mut Vec<Range<usize>>,
    ) {
        if let ([], [place]) = (borders, places) {
            return self.look_once(text, *place, found);
        }
        let mut places = places.iter().copied().peekable();
        let mut start = 0;
        for border in borders
            .iter()
            .cloned()
            .chain(std::iter::once(text.len()..text.len()))
        {
            // Secrets that were found from places before them, the next one last: there may be more
            // before they begin.
            ahead.clear();
            ahead.push(border.clone());
            start = self.look_first(text, start..border.start, found);
            while let Some(place) = places.next_if(|place| place.at < border.start) {
                while let Some(passed) = ahead.pop_if(|secret| secret.start <= place.at) {
                    let end = ahead.last().map_or(border.start, |next| next.start);
                    start = self.look_first(text, passed.end..end, found);
                }
                let end = ahead.last().map_or(border.start, |next| next.start);
                // A trigger may begin with the byte before the range.
                if place.at + 1 < start || place.is_mark() {
                    continue;
                }
                let Some(secret) = self.triggers.secret_at(text.as_bytes(), start..end, place)
                else {
                    continue;
                };
                let secret = whole(text, secret);
                found.push(secret.clone());
                if secret.start > place.at + 1 {
                    ahead.push(secret);
                } else {
                    start = self.look_first(text, secret.end..end, found);
                }
            }
            // What is behind the last place.
            while let Some(passed) = ahead.pop() {
                let end = ahead.last().map_or(border.start, |next| next.start);
                if end > passed.end {
                    self.look_first(text, passed.end..end, found);
                }
            }
            start = border.end;
        }
    }

    /// The same where there is one place and no border, as in most lines with a secret.
    fn look_once(&self, text: &str, place: Place, found: &mut Vec<Range<usize>>) {
        let start = self.look_first(text, 0..text.len(), found);
        if place.at + 1 < start {
            return;
        }
        if let Some(secret) = self
            .triggers
            .secret_at(text.as_bytes(), start..text.len(), place)
        {
            let secret = whole(text, secret);
            found.push(secret.clone());
            self.look_first(text, secret.end..text.len(), found);
        }
    }

    /// Looks for secrets with which the range begins; where it begins behind them.
    fn look_first(&self, text: &str, range: Range<usize>, found: &mut Vec<Range<usize>>) -> usize {
        let mut start = range.start;
        while let Some(secret) = self
            .triggers
            .secret_first(text.as_bytes(), start..range.end)
        {
            start = secret.end;
            found.push(secret);
        }
        start
    }
}

/// The span with the characters whole in which it begins and ends.
fn whole(text: &str, span: Range<usize>) -> Range<usize> {
    if text.is_char_boundary(span.start) && text.is_char_boundary(span.end) {
        return span;
    }
    let start = (0..=span.start)
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or_default();
    let end = (span.end..text.len())
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(text.len());
    start..end
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

/// Writes `text` to `out` with marks in the place of the spans.
fn replace(text: &str, spans: &[Range<usize>], out: &mut String) {
    out.clear();
    out.reserve(text.len() + REDACTED.len() * spans.len());
    let mut from = 0;
    for span in spans {
        out.push_str(text.get(from..span.start).unwrap_or_default());
        out.push_str(REDACTED);
        from = span.end;
    }
    out.push_str(text.get(from..).unwrap_or_default());
}

#[cfg(test)]
mod tests;
