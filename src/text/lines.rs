//! Lines of safe text as they arrive: the streaming form of the projection.
//!
//! Most lines are plain and hold nothing that a secret begins with: they are given as they stand in
//! the piece that brought them. All others go through the sanitizer and the redactor one by one.

use super::projection::Projection;
use super::redact::{End, REDACTED, Redacted, Redactor, Scratch, ceil_char, floor_char, pem};
use super::sanitize::{LineText, Sanitizer, plain_prefix, simple_line};
use crate::types::limits::LINE;
use memchr::memchr_iter;
use std::fmt;
use std::fmt::Write as _;

/// Bytes of a cut line that are kept free for the mark.
const MARK: usize = 128;
/// Bytes of a cut line that are shown from its end, and from its beginning.
const LAST: usize = LINE / 2;
const FIRST: usize = LINE - LAST - MARK;

/// Bytes that are tested together for being plain, and how many times as many at a time.
const BLOCK: usize = 128;
const BLOCKS: usize = 32;

/// Turns a stream into lines of safe text as its bytes arrive; made by [`Projection::lines`].
///
/// The bytes may come in any pieces: the lines are the same. Between two pieces a line is held as
/// text, bounded by 24 KiB and twice the longest registered secret. Memory is allocated when a
/// piece ends within a line or a line is not plain, and reused from then on.
///
/// ```
/// use lastwords::Projection;
/// let mut lines = Projection::default().lines();
/// let mut seen = Vec::new();
/// lines.push(b"\x1b[31merr", &mut |line: &str| seen.push(line.to_owned()));
/// lines.push(b"or\x1b[0m: token=abc\nlast", &mut |line: &str| seen.push(line.to_owned()));
/// lines.finish(&mut |line: &str| seen.push(line.to_owned()));
/// assert_eq!(seen, ["error: token=[redacted]", "last"]);
/// ```
pub struct Lines {
    projection: Projection,
    line: Sanitizer,
    /// A private key that goes on in the next line.
    block: Option<pem::Open>,
    work: Work,
}

/// Memory that is reused for every line.
#[derive(Default)]
struct Work {
    line: LineText,
    scratch: Scratch,
    again: Scratch,
    out: String,
}

/// Shows whether a line has begun, and none of its text.
impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines")
            .field("in_line", &self.is_in_line())
            .finish_non_exhaustive()
    }
}

impl Lines {
    pub(super) fn new(projection: &Projection) -> Lines {
        Lines {
            projection: projection.clone(),
            line: Sanitizer::new(projection.window()),
            block: None,
            work: Work::default(),
        }
    }

    /// Whether the last piece ended within a line.
    pub fn is_in_line(&self) -> bool {
        !self.line.is_fresh()
    }

    /// Whether the next line belongs to a private key that an earlier one began.
    pub(super) fn is_in_key(&self) -> bool {
        self.block.is_some()
    }

    /// Takes the next bytes of the stream and calls `line` with each line that ends in them,
    /// without its line end.
    pub fn push(&mut self, bytes: &[u8], line: &mut (impl FnMut(&str) + ?Sized)) {
        let mut piece = Piece::new(bytes);
        // Up to here, nothing needs work.
        let mut clear = None::<&str>;
        let mut from = 0;
        for to in memchr_iter(b'\n', bytes) {
            let ready = clear.and_then(|clear| clear.get(from..to));
            if let Some(text) = ready.filter(|text| text.len() <= LINE) {
                line(text);
                from = to + 1;
                continue;
            }
            let raw = bytes.get(from..to).unwrap_or_default();
            let is_whole = raw.len() <= LINE && self.line.is_fresh();
            if let Some(text) = piece.plain_line(from, to).filter(|_| is_whole) {
                let redactor = self.projection.redactor();
                if self.block.is_none() && piece.is_clear(redactor, from, to) {
                    line(text);
                    clear = Some(piece.clear());
                } else {
                    self.give(Source::Plain(text), End::Complete, line);
                    clear = None;
                }
            } else if is_whole && simple_line(raw, &mut self.work.line) {
                self.give(Source::Line, End::Complete, line);
            } else {
                self.line.feed(raw);
                self.end_line(End::Complete, line);
            }
            from = to + 1;
        }
        self.line.feed(bytes.get(from..).unwrap_or_default());
    }

    /// Ends the stream. A last line without a newline is given too if it has any text; as the
    /// stream may have been cut there, what could have become a secret at its end is redacted.
    pub fn finish(&mut self, line: &mut (impl FnMut(&str) + ?Sized)) {
        self.close(End::Open, line);
    }

    /// The same, for a text whose end is known.
    pub(super) fn close(&mut self, end: End, line: &mut (impl FnMut(&str) + ?Sized)) {
        if self.line.is_blank() {
            self.line.clear();
        } else {
            self.end_line(end, line);
        }
        self.block = None;
    }

    /// Gives the line that has begun as [`Lines::finish`] would, and goes on with it. Allocates.
    pub(super) fn so_far(&self, line: &mut (impl FnMut(&str) + ?Sized)) {
        let mut copy = Lines::new(&self.projection);
        (copy.line, copy.block) = (self.line.clone(), self.block);
        copy.finish(line);
    }

    /// Gives the line of the sanitizer, which is over.
    fn end_line(&mut self, end: End, line: &mut (impl FnMut(&str) + ?Sized)) {
        // Taken out first, so that no line is given twice even if `line` panics.
        self.line.take(&mut self.work.line);
        self.give(Source::Line, end, line);
    }

    /// Gives one line without its secrets, cut to length.
    fn give(&mut self, source: Source<'_>, end: End, line: &mut (impl FnMut(&str) + ?Sized)) {
        let Work {
            line: held,
            scratch,
            again,
            out,
        } = &mut self.work;
        let redactor = self.projection.redactor();
        let (mut text, gap) = match source {
            Source::Plain(text) => (text, None),
            Source::Line => (held.as_str(), held.gap()),
        };
        let edge = if held.is_suspect() {
            Edge::WithinWord
        } else {
            Edge::BehindWord
        };
        let whole = text.len();
        if redactor.is_some() && self.block.is_some() {
            match outside_block(text, &mut self.block) {
                Some(rest) => text = rest,
                None => return,
            }
        }
        // A gap within a private key was dropped with it.
        let gap = gap.and_then(|(at, lost)| Some((at.checked_sub(whole - text.len())?, lost)));
        let shown = match gap {
            Some((at, lost)) => {
                let (first, last) = text.split_at(floor_char(text, at));
                with_gap(redactor, first, lost, (last, edge), end, scratch, out)
            }
            None => redacted(redactor, text, 0, end, scratch),
        };
        if shown.has_key {
            self.block = pem::opens(text);
        }
        if gap.is_none() && shown.text.len() <= LINE {
            return line(shown.text);
        }
        if gap.is_none() {
            let (head, tail) = (head_of(shown.text, FIRST), tail_of(shown.text, LAST));
            let cut = shown.text.len() - head.len() - tail.len();
            out.clear();
            out.push_str(head);
            push_mark(cut as u64, "bytes", out);
            out.push_str(tail);
        }
        // Cutting shows nothing new, but a registered secret may stand in the mark.
        line(redacted(redactor, out, 0, End::Complete, again).text);
    }
}

/// Where the text of a line is.
enum Source<'t> {
    /// In the piece that brought it.
    Plain(&'t str),
    /// In the working memory.
    Line,
}

/// The text from `from` on without its secrets, if there is a redactor.
fn redacted<'t>(
    redactor: Option<&Redactor>,
    text: &'t str,
    from: usize,
    end: End,
    scratch: &'t mut Scratch,
) -> Redacted<'t> {
    match redactor {
        Some(redactor) => redactor.redact(text, from, end, scratch),
        None => Redacted {
            text: text.get(from..).unwrap_or_default(),
            has_key: false,
        },
    }
}

/// Writes the beginning of a line, a mark for its middle, and its end to `out`. Of the middle only
/// the length is known, beside what `first` and `last` hold of it. Returns nothing of the text.
fn with_gap<'t>(
    redactor: Option<&Redactor>,
    first: &str,
    lost: u64,
    (last, edge): (&str, Edge),
    end: End,
    scratch: &mut Scratch,
    out: &mut String,
) -> Redacted<'t> {
    out.clear();
    let head = redacted(redactor, first, 0, End::Open, scratch);
    out.push_str(head_of(head.text, FIRST));
    let mut has_key = head.has_key;
    let begin = after_edge(redactor, last, edge);
    let tail = redacted(redactor, last, begin, end, scratch);
    has_key |= tail.has_key;
    let tail = tail_of(tail.text, LAST);
    let length = (first.len() + last.len()) as u64 + lost;
    push_mark(
        length.saturating_sub((out.len() + tail.len()) as u64),
        "bytes",
        out,
    );
    out.push_str(tail);
    Redacted { text: "", has_key }
}

/// What may be shown of the end of a line whose beginning is not known, behind a mark for `missing`
/// bytes less what is shown.
pub(super) fn beheaded(projection: &Projection, line: &LineText, missing: u64, end: End) -> String {
    let redactor = projection.redactor();
    let text = line.as_str();
    let last = line.gap().map_or(0, |(at, _)| at);
    let last = text.get(last..).unwrap_or_default();
    let begin = after_edge(redactor, last, Edge::WithinWord);
    let (mut scratch, mut again) = (Scratch::default(), Scratch::default());
    let tail = redacted(redactor, last, begin, end, &mut scratch);
    let tail = tail_of(tail.text, LINE - MARK);
    let mut out = String::new();
    let cut = missing.saturating_sub(tail.len() as u64);
    push_mark(cut, "bytes of an older line", &mut out);
    out.push_str(tail);
    redacted(redactor, &out, 0, End::Complete, &mut again)
        .text
        .to_owned()
}

/// Where a text without its beginning begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Edge {
    /// Perhaps within a word that is a secret.
    WithinWord,
    /// The word there is no secret.
    BehindWord,
}

/// Where the text behind an edge may be shown from: behind every secret that could have begun
/// before the edge.
fn after_edge(redactor: Option<&Redactor>, text: &str, edge: Edge) -> usize {
    let mut from = redactor.map_or(0, |redactor| ceil_char(text, redactor.longest_spaced()));
    if let Some(rest) = redactor.and_then(|_| pem::after_end(text)) {
        from = from.max(text.len() - rest.len());
    }
    if edge == Edge::BehindWord {
        return from;
    }
    let rest = text.get(from..).unwrap_or_default();
    let space = rest.bytes().position(|byte| byte.is_ascii_whitespace());
    from + space.unwrap_or(rest.len())
}

/// The first `most` bytes, without parts of a character or of a mark.
fn head_of(text: &str, most: usize) -> &str {
    let at = floor_char(text, most);
    let begin = floor_char(text, at.saturating_sub(REDACTED.len() - 1));
    let near = text.get(begin..).unwrap_or_default().find(REDACTED);
    let at = near.map_or(at, |mark| at.min(begin + mark));
    text.get(..at).unwrap_or_default()
}

/// The last `most` bytes, without parts of a character or of a mark.
fn tail_of(text: &str, most: usize) -> &str {
    let at = ceil_char(text, text.len().saturating_sub(most));
    let begin = floor_char(text, at.saturating_sub(REDACTED.len() - 1));
    let near = text.get(begin..).unwrap_or_default().find(REDACTED);
    let mark = near.map(|mark| begin + mark).filter(|mark| *mark < at);
    let at = mark.map_or(at, |mark| mark + REDACTED.len());
    text.get(at..).unwrap_or_default()
}

/// Appends what stands for text that is not shown.
fn push_mark(count: u64, unit: &str, out: &mut String) {
    // Writing to a `String` cannot fail.
    let _ = write!(out, "\u{2026}[{count} {unit} cut]");
}

/// What of a line is not inside the private key that an earlier one began; `None` if nothing is.
fn outside_block<'t>(text: &'t str, block: &mut Option<pem::Open>) -> Option<&'t str> {
    let open = block.take()?;
    if let Some(rest) = pem::after_end(text) {
        return Some(rest).filter(|rest| !rest.trim().is_empty());
    }
    if open.goes_on(text) {
        *block = Some(open);
        return None;
    }
    Some(text)
}

/// A piece of a stream, and what is known of it so far.
struct Piece<'b> {
    bytes: &'b [u8],
    /// See [`Piece::text`]; not known at first.
    text: Option<&'b str>,
    /// Up to here, from the line that was looked at last, all is plain.
    plain: usize,
    /// The last line was not plain; most likely the next is not either.
    is_coloured: bool,
    /// The first place at which a secret may begin, behind the line that was looked at last.
    place: Place,
}

impl<'b> Piece<'b> {
    fn new(bytes: &'b [u8]) -> Piece<'b> {
        Piece {
            bytes,
            text: None,
            plain: 0,
            is_coloured: false,
            place: Place::Unknown,
        }
    }

    /// The line from `from` to `to`, if it is printable ASCII and tabs.
    fn plain_line(&mut self, from: usize, to: usize) -> Option<&'b str> {
        if self.plain < to && !self.find_plain(from, to) {
            return None;
        }
        let text = self.text().get(from..to);
        text.or_else(|| std::str::from_utf8(self.bytes.get(from..to)?).ok())
    }

    /// As much of the piece as is UTF-8. Much quicker for all lines at once than for each.
    fn text(&mut self) -> &'b str {
        let bytes = self.bytes;
        self.text
            .get_or_insert_with(|| match std::str::from_utf8(bytes) {
                Ok(text) => text,
                Err(error) => bytes
                    .get(..error.valid_up_to())
                    .and_then(|valid| std::str::from_utf8(valid).ok())
                    .unwrap_or_default(),
            })
    }

    fn find_plain(&mut self, from: usize, to: usize) -> bool {
        self.plain = self.plain.max(from);
        if !self.is_coloured {
            // Far ahead: most often all lines of a piece are plain.
            let rest = self.bytes.get(self.plain..).unwrap_or_default();
            let blocks = rest.as_chunks().0.iter().take(BLOCKS);
            self.plain += BLOCK * blocks.take_while(|block| is_plain_block(block)).count();
        }
        if self.plain < to {
            // What is not plain may stand in a line behind this one.
            let rest = self.bytes.get(self.plain..to).unwrap_or_default();
            self.is_coloured = plain_prefix(rest) < rest.len();
            self.plain = to;
            return !self.is_coloured;
        }
        true
    }

    /// The beginning of the piece, as far as it is plain and no secret may begin behind the line
    /// that was looked at last.
    fn clear(&mut self) -> &'b str {
        let text = self.text();
        let to = self.plain.min(self.place.limit());
        text.get(..to.min(text.len())).unwrap_or_default()
    }

    /// No secret may begin in the line. Each line begins behind the one before it.
    fn is_clear(&mut self, redactor: Option<&Redactor>, from: usize, to: usize) -> bool {
        let is_behind = match self.place {
            Place::Unknown => true,
            Place::At(place) => place < from,
            Place::Nowhere => false,
        };
        if is_behind {
            let place = redactor.and_then(|redactor| redactor.next_place(self.bytes, from));
            self.place = place.map_or(Place::Nowhere, Place::At);
        }
        self.place.limit() >= to
    }
}

/// Where the next secret may begin.
#[derive(Clone, Copy)]
enum Place {
    Unknown,
    At(usize),
    Nowhere,
}

impl Place {
    /// No secret may begin before this offset, as far as is known.
    fn limit(self) -> usize {
        match self {
            Place::Unknown => 0,
            Place::At(place) => place,
            Place::Nowhere => usize::MAX,
        }
    }
}

/// Printable ASCII, tabs and newlines alone. Written so that the compiler makes vector instructions
/// of it.
fn is_plain_block(block: &[u8; BLOCK]) -> bool {
    let mut bad = false;
    for byte in block {
        // As signed numbers, bytes beyond ASCII are below the space as well.
        bad |= (byte.cast_signed() < 0x20 && *byte != b'\n' && *byte != b'\t') | (*byte == 0x7f);
    }
    !bad
}

#[cfg(test)]
mod tests;
