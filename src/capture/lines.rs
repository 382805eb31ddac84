//! Lines of safe text as they arrive: the streaming form of the projection.

use super::key;
use super::projection::Projection;
use super::redact::{Redactor, Scratch, Suspicion};
use super::sanitize::{Sanitizer, plain_prefix};
use super::triggers::{PADDING, Padded};
use crate::limits::LINE;
use memchr::memchr;
use std::fmt;
use std::fmt::Write as _;

/// Bytes of a cut line that are kept free for the mark.
const MARK: usize = 128;

/// Bytes that are looked at together for anything that is not plain, and how many times as many at once.
const BLOCK: usize = 128;
const AHEAD: usize = 32;

/// A stream on its way to lines of safe text. Takes the bytes in any pieces; gives the same lines for all of them.
///
/// It holds at most one line, and of that not more than the window: 32 KiB, or four times the longest registered secret. It
/// has no memory until a piece ends within a line or a line needs work, and allocates nothing once it has held the longest one.
pub struct Lines {
    projection: Projection,
    line: Sanitizer,
    /// A private key that goes on in the next line.
    block: Option<key::Open>,
    work: Work,
}

/// Memory that is used again for every line.
#[derive(Default)]
struct Work {
    scratch: Scratch,
    again: Scratch,
    out: String,
}

/// No text.
impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines").field("in_line", &self.is_in_line()).finish_non_exhaustive()
    }
}

impl Lines {
    pub(super) fn new(projection: &Projection) -> Lines {
        Lines { projection: projection.clone(), line: Sanitizer::new(projection.window()), block: None, work: Work::default() }
    }

    /// The last piece ended within a line.
    pub fn is_in_line(&self) -> bool {
        !self.line.is_fresh()
    }

    /// A private key is going on.
    pub(super) fn is_in_key(&self) -> bool {
        self.block.is_some()
    }

    /// Takes a piece; `line` gets each line that ends in it, without its end.
    pub fn push(&mut self, bytes: &[u8], line: &mut (impl FnMut(&str) + ?Sized)) {
        let mut piece = Piece::new(bytes);
        let mut from = 0;
        while let Some(length) = bytes.get(from..).and_then(|rest| memchr(b'\n', rest)) {
            let to = from + length;
            match self.untouched(&mut piece, from, to) {
                Some(text) => line(text),
                None => {
                    self.line.feed(bytes.get(from..to).unwrap_or_default());
                    self.end_line(line);
                }
            }
            from = to + 1;
        }
        self.line.feed(bytes.get(from..).unwrap_or_default());
    }

    /// The stream has ended: a last line without a newline counts, if there is any text in it.
    pub fn finish(&mut self, line: &mut (impl FnMut(&str) + ?Sized)) {
        if self.line.is_blank() {
            self.line.clear();
        } else {
            self.end_line(line);
        }
        self.block = None;
    }

    /// Gives the line that has begun as [`Lines::finish`] would, and leaves it as it is. Allocates.
    pub(super) fn so_far(&self, line: &mut (impl FnMut(&str) + ?Sized)) {
        let (projection, work) = (self.projection.clone(), Work::default());
        Lines { projection, line: self.line.clone(), block: self.block, work }.finish(line);
    }

    /// The line as text, if there is nothing to do for it.
    fn untouched<'b>(&self, piece: &mut Piece<'b>, from: usize, to: usize) -> Option<&'b str> {
        if to - from > LINE || !self.line.is_fresh() || self.block.is_some() || !piece.is_plain(from, to) {
            return None;
        }
        let is_clear = |redactor: &Redactor| redactor.is_clear(piece.bytes, from, to, &mut piece.suspicion);
        if self.projection.redactor().is_none_or(is_clear) { piece.text(from, to) } else { None }
    }

    fn end_line(&mut self, line: &mut (impl FnMut(&str) + ?Sized)) {
        let (padded, over) = self.line.end(PADDING);
        // The sanitizer's text is UTF-8.
        if let Some(text) = Padded::new(padded) {
            match self.projection.redactor() {
                None => finished(text.text, over, &mut self.work.out, line),
                Some(redactor) => {
                    if let Some(text) = outside_block(text, &mut self.block) {
                        redacted(redactor, text, over, &mut self.work, line);
                        if self.work.scratch.has_key() {
                            self.block = key::opens(text.text);
                        }
                    }
                }
            }
        }
        self.line.clear();
    }
}

/// A piece of a stream, and what is known of it so far.
struct Piece<'b> {
    bytes: &'b [u8],
    /// As much of it as is UTF-8; looked at when the first line is plain.
    text: Option<&'b str>,
    /// Up to here, from the line that was looked at last, all is plain.
    plain: usize,
    /// The last line was not: most likely the next is not either.
    is_coloured: bool,
    suspicion: Suspicion,
}

impl<'b> Piece<'b> {
    fn new(bytes: &'b [u8]) -> Piece<'b> {
        Piece { bytes, text: None, plain: 0, is_coloured: false, suspicion: Suspicion::default() }
    }

    /// A line as text. For plain lines: it is far quicker to look at all at once.
    fn text(&mut self, from: usize, to: usize) -> Option<&'b str> {
        let bytes = self.bytes;
        let text = *self.text.get_or_insert_with(|| match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => bytes.get(..error.valid_up_to()).and_then(|valid| std::str::from_utf8(valid).ok()).unwrap_or_default(),
        });
        text.get(from..to).or_else(|| std::str::from_utf8(bytes.get(from..to)?).ok())
    }

    /// The line from `from` to `to` is printable ASCII and tabs.
    fn is_plain(&mut self, from: usize, to: usize) -> bool {
        if self.plain >= to {
            return true;
        }
        let begin = self.plain.max(from);
        self.plain = begin;
        if !self.is_coloured {
            // Far ahead: most often all lines of a piece are plain.
            let blocks = self.bytes.get(begin..).unwrap_or_default().as_chunks().0.iter().take(AHEAD);
            self.plain += BLOCK * blocks.take_while(|block| is_plain_block(block)).count();
        }
        if self.plain < to {
            // Whatever is not plain may be in a line behind this one.
            let rest = self.bytes.get(self.plain..to).unwrap_or_default();
            self.is_coloured = plain_prefix(rest) < rest.len();
            self.plain = to;
            return !self.is_coloured;
        }
        true
    }
}

/// Printable ASCII, tabs and newlines alone. Written so that the compiler makes vector instructions of it.
fn is_plain_block(block: &[u8; BLOCK]) -> bool {
    let mut bad = false;
    for byte in block {
        // As signed numbers, those beyond ASCII are below the space as well.
        bad |= (byte.cast_signed() < 0x20 && *byte != b'\n' && *byte != b'\t') | (*byte == 0x7f);
    }
    !bad
}

/// What of a line is not inside a private key that an earlier one began; `None` if nothing is.
fn outside_block<'t>(text: Padded<'t>, block: &mut Option<key::Open>) -> Option<Padded<'t>> {
    let Some(open) = *block else {
        return Some(text);
    };
    if let Some(rest) = key::after_end(text.text) {
        *block = None;
        return text.from(text.text.len() - rest.len()).filter(|rest| !rest.text.trim().is_empty());
    }
    if open.goes_on(text.text) {
        return None;
    }
    *block = None;
    Some(text)
}

/// Gives a line without its secrets, and not too long. `over`: how many characters there were beyond the text.
fn redacted(redactor: &Redactor, text: Padded<'_>, over: u64, work: &mut Work, line: &mut (impl FnMut(&str) + ?Sized)) {
    let text = redactor.redact(text, &mut work.scratch).unwrap_or(text.text);
    // Behind the window a secret may go on whose beginning alone was not recognized: that is not shown.
    let shown = if over == 0 { text.len() } else { char_boundary(text, text.len().saturating_sub(redactor.margin())) };
    let (text, hidden) = text.split_at(shown);
    let over = over + hidden.chars().count() as u64;
    if over == 0 && text.len() <= LINE {
        return line(text);
    }
    work.out.clear();
    cut(text, over, &mut work.out);
    work.out.push_str(PADDING);
    // Cutting shows nothing new, but a literal may be found in the mark.
    if let Some(text) = Padded::new(work.out.as_bytes()) {
        line(redactor.redact(text, &mut work.again).unwrap_or(text.text));
    }
}

/// Gives a line that is not too long.
fn finished(text: &str, over: u64, out: &mut String, line: &mut (impl FnMut(&str) + ?Sized)) {
    if over == 0 && text.len() <= LINE {
        return line(text);
    }
    out.clear();
    cut(text, over, out);
    line(out);
}

/// The beginning of a line that is too long, and how many characters are missing: `over` beyond those in `text`.
fn cut(text: &str, over: u64, out: &mut String) {
    let (shown, rest) = text.split_at(char_boundary(text, LINE - MARK));
    out.push_str(shown);
    push_mark(rest.chars().count() as u64 + over, "characters", out);
}

/// The last beginning of a character that is not behind `at`.
fn char_boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default()
}

/// Appends what stands for text that is not shown.
pub(super) fn push_mark(count: u64, unit: &str, out: &mut String) {
    // Writing to a `String` cannot fail.
    let _ = write!(out, "…[{count} {unit} cut]");
}
#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::testing::{fragments, split};

    fn lines(bytes: &[u8]) -> Vec<String> {
        let mut out = Vec::new();
        split(&Projection::default(), bytes, &[bytes.len()], &mut out);
        out
    }

    #[test]
    fn every_split_gives_the_same_and_twice_is_once() {
        let projection = Projection::default();
        for seed in 1..400 {
            let bytes = fragments(seed, 80);
            let whole = lines(&bytes);
            for sizes in [&[1][..], &[2], &[3, 1], &[7, 64, 1]] {
                let mut pieces = Vec::new();
                split(&projection, &bytes, sizes, &mut pieces);
                assert_eq!(pieces, whole, "{bytes:?}");
            }
            let again = lines(whole.iter().flat_map(|line| [line, "\n"]).collect::<String>().as_bytes());
            assert_eq!(again, whole, "{bytes:?}");
            let unsafe_char = |c: char| (c.is_control() && c != '\t') || ('\u{2028}'..='\u{202e}').contains(&c);
            assert!(!whole.iter().any(|line| line.contains(unsafe_char)), "{whole:?}");
        }
    }

    #[test]
    fn a_sequence_without_an_end_ends_with_its_line() {
        for begin in ["\x1b]0;title", "\x1bPdevice", "\x1b[31", "\x1b", "\u{9d}title", "x\x1b_", "\x1b]a\x1b"] {
            let bytes = format!("{begin}\nERROR real\n");
            for size in 1..bytes.len() {
                let mut out = Vec::new();
                split(&Projection::default(), bytes.as_bytes(), &[size], &mut out);
                assert_eq!(out.last().map(String::as_str), Some("ERROR real"), "{begin:?} {size}");
            }
        }
    }

    #[test]
    fn titles_device_strings_and_directions_leave_the_text() {
        let line = b"\x1b]0;evil\x07\x1bP+q\x1b\\\xc2\x9b31merror\xe2\x80\xae: no\xc2\x9c\n";
        assert_eq!(lines(line), ["error\u{fffd}: no"]);
        assert_eq!(lines(b"a\0b\n"), ["ab"]);
    }

    #[test]
    fn a_bad_byte_does_not_stop_what_follows() {
        let bytes = [&b"\xff\n"[..], &b"good\n".repeat(50_000)].concat();
        let out = lines(&bytes);
        assert_eq!((out.len(), out[0].as_str(), out[50_000].as_str()), (50_001, "\u{fffd}", "good"));
    }

    #[test]
    fn a_line_that_is_too_long_is_cut_and_says_by_how_much() {
        for (n, c) in [(LINE, "x"), (LINE + 1, "x"), (5_000_000, "x"), (20_000, "é")] {
            let out = lines(c.repeat(n).as_bytes());
            assert_eq!(out.len(), 1);
            assert!(out[0].len() <= LINE && out[0].starts_with(c));
            if n <= LINE {
                assert_eq!(out[0].len(), n);
            } else {
                let shown = out[0].chars().take_while(|shown| c.contains(*shown)).count();
                assert!(out[0].ends_with(&format!("{c}…[{} characters cut]", n - shown)), "{}", out[0]);
            }
            assert_eq!(lines(out[0].as_bytes()), out);
        }
    }
}
