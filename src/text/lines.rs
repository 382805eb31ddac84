//! Lines of safe text as they arrive: the streaming form of the projection.
//!
//! Plain lines are looked at where they are. All others are taken apart one by one, but put
//! together again in a batch: secrets are searched for in all of it at once, and only then it is
//! made lines again. A vector search takes longer to begin than to go through a line.

use super::projection::Projection;
use super::redact::triggers::PADDING;
use super::redact::{Redactor, Run, Scratch, pem};
use super::sanitize::{Sanitizer, plain_prefix, simple_line};
use crate::types::limits::LINE;
use arrayvec::ArrayVec;
use memchr::memchr_iter;
use std::fmt;
use std::fmt::Write as _;

/// Bytes of a cut line that are kept free for the mark.
const MARK: usize = 128;

/// Bytes that are looked at together for anything that is not plain, and how many times as many at
/// once.
const BLOCK: usize = 128;
const AHEAD: usize = 32;

/// Bytes of text that are searched for secrets together, and lines.
const BATCH: usize = 4096;
const BATCH_LINES: usize = 64;
/// Stands before a batch: a search begins four bytes before a line, in text that is nothing.
const LEAD: &[u8] = b"\n\n\n\n";
/// Plain lines in a row with which a batch ends.
const ENOUGH: u8 = 4;

/// A stream on its way to lines of safe text. Takes the bytes in any pieces; gives the same lines
/// for all of them.
///
/// It holds at most one line from one piece to the next, and of that not more than the window: 32
/// KiB, or four times the longest registered secret. It has no memory until a piece ends within a
/// line or a line needs work, and allocates nothing once it has held the longest one.
pub struct Lines {
    projection: Projection,
    line: Sanitizer,
    /// A private key that goes on in the next line.
    block: Option<pem::Open>,
    /// Empty between two pieces.
    batch: Batch,
    work: Work,
}

/// Lines whose secrets are not searched for yet.
#[derive(Default)]
struct Batch {
    /// UTF-8: the lead, and a newline behind each line.
    text: Vec<u8>,
    /// Where each line ends.
    ends: ArrayVec<usize, BATCH_LINES>,
    /// How many characters there were beyond the text of the last one.
    over: u64,
    /// How many lines at the end of it were plain.
    plain: u8,
}

impl Batch {
    /// There is room for a line of this length.
    fn has_room(&self, length: usize) -> bool {
        self.ends.is_empty() || (!self.ends.is_full() && self.text.len() + length < BATCH)
    }

    /// Adds a line that is the end of the text already.
    fn end_line(&mut self) {
        self.ends.push(self.text.len());
        self.text.push(b'\n');
    }

    fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
        (self.over, self.plain) = (0, 0);
    }
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
        f.debug_struct("Lines")
            .field("in_line", &self.is_in_line())
            .finish_non_exhaustive()
    }
}

impl Lines {
    pub(super) fn new(projection: &Projection) -> Lines {
        let (projection, line) = (projection.clone(), Sanitizer::new(projection.window()));
        Lines {
            projection,
            line,
            block: None,
            batch: Batch::default(),
            work: Work::default(),
        }
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
        let (mut from, mut clear) = (0, None::<&str>);
        for to in memchr_iter(b'\n', bytes) {
            if let (Some(text), true) = (
                clear.and_then(|clear| clear.get(from..to)),
                to - from <= LINE,
            ) {
                line(text);
            } else if let Some(text) = self.untouched(&mut piece, from, to) {
                self.flush(line);
                let Lines {
                    projection,
                    block,
                    work,
                    ..
                } = self;
                give(
                    projection.redactor(),
                    &mut piece.run,
                    from,
                    text,
                    0,
                    block,
                    work,
                    line,
                );
                clear = self.clear(&mut piece);
            } else {
                self.take_line(bytes.get(from..to).unwrap_or_default(), line);
                clear = None;
            }
            from = to + 1;
        }
        self.flush(line);
        self.line.feed(bytes.get(from..).unwrap_or_default());
    }

    /// The stream has ended: a last line without a newline counts, if there is any text in it.
    pub fn finish(&mut self, line: &mut (impl FnMut(&str) + ?Sized)) {
        if self.line.is_blank() {
            self.line.clear();
        } else {
            self.end_line(line);
            self.flush(line);
        }
        self.block = None;
    }

    /// Gives the line that has begun as [`Lines::finish`] would, and leaves it as it is. Allocates.
    pub(super) fn so_far(&self, line: &mut (impl FnMut(&str) + ?Sized)) {
        let mut copy = Lines::new(&self.projection);
        (copy.line, copy.block) = (self.line.clone(), self.block);
        copy.finish(line);
    }

    /// The line as text, if it is plain and not one of few among others.
    fn untouched<'b>(&mut self, piece: &mut Piece<'b>, from: usize, to: usize) -> Option<&'b str> {
        if to - from > LINE || !self.line.is_fresh() || !piece.is_plain(from, to) {
            self.batch.plain = 0;
            return None;
        }
        if !self.batch.ends.is_empty() && self.batch.plain < ENOUGH {
            self.batch.plain += 1;
            return None;
        }
        piece.text(from, to)
    }

    /// The beginning of the piece: lines in it that come behind the one that was given last need no
    /// work either.
    fn clear<'b>(&self, piece: &mut Piece<'b>) -> Option<&'b str> {
        if self.block.is_some() {
            return None;
        }
        let clear = self
            .projection
            .redactor()
            .map_or(usize::MAX, |redactor| redactor.clear_until(&piece.run));
        let text = piece.valid();
        text.get(..clear.min(piece.plain).min(text.len()))
    }

    /// The rest of a line, which ends here.
    fn take_line(&mut self, bytes: &[u8], line: &mut (impl FnMut(&str) + ?Sized)) {
        if bytes.len() <= LINE && self.line.is_fresh() {
            self.make_room(bytes.len(), line);
            if simple_line(bytes, &mut self.batch.text) {
                self.batch.end_line();
                return;
            }
        }
        self.line.feed(bytes);
        self.end_line(line);
    }

    /// Puts the line that is over into the batch.
    fn end_line(&mut self, line: &mut (impl FnMut(&str) + ?Sized)) {
        let length = self.line.end().0.len();
        self.make_room(length, line);
        let (text, over) = self.line.end();
        self.batch.text.extend_from_slice(text);
        self.batch.end_line();
        self.batch.over = over;
        self.line.clear();
        if over > 0 {
            self.flush(line);
        }
    }

    /// There is room in the batch for one more line, or nothing in it.
    fn make_room(&mut self, length: usize, line: &mut (impl FnMut(&str) + ?Sized)) {
        if !self.batch.has_room(length) {
            self.flush(line);
        }
        // For a whole batch at once: later ones must not allocate because they are larger.
        let text = &mut self.batch.text;
        text.reserve(BATCH.saturating_sub(text.len()).max(LEAD.len() + length) + 1 + PADDING.len());
        if text.is_empty() {
            text.extend_from_slice(LEAD);
        }
    }

    /// Gives the lines of the batch.
    fn flush(&mut self, line: &mut (impl FnMut(&str) + ?Sized)) {
        if self.batch.ends.is_empty() {
            return;
        }
        // Taken out, so that lines are given once even if `line` panics.
        let mut batch = std::mem::take(&mut self.batch);
        batch.text.extend_from_slice(PADDING.as_bytes());
        // The sanitizer's text is UTF-8.
        let text = std::str::from_utf8(&batch.text).unwrap_or_default();
        let Lines {
            projection,
            block,
            work,
            ..
        } = self;
        let mut run = Run::new(text.as_bytes());
        let (mut from, last) = (LEAD.len(), batch.ends.len() - 1);
        for (place, to) in batch.ends.iter().enumerate() {
            let over = if place == last { batch.over } else { 0 };
            give(
                projection.redactor(),
                &mut run,
                from,
                text.get(from..*to).unwrap_or_default(),
                over,
                block,
                work,
                line,
            );
            from = *to + 1;
        }
        batch.clear();
        self.batch = batch;
    }
}

/// Gives one line of a run, which begins at `from`. `over`: how many characters there were beyond
/// its text.
#[expect(
    clippy::too_many_arguments,
    reason = "the line, and what is known before it"
)]
fn give(
    redactor: Option<&Redactor>,
    run: &mut Run<'_>,
    from: usize,
    text: &str,
    over: u64,
    block: &mut Option<pem::Open>,
    work: &mut Work,
    line: &mut (impl FnMut(&str) + ?Sized),
) {
    let Some(redactor) = redactor else {
        return finished(text, over, &mut work.out, line);
    };
    let mut begin = from;
    if block.is_some() {
        let Some(rest) = outside_block(text, block) else {
            return;
        };
        begin += text.len() - rest.len();
    }
    // What begins within a line must not be taken for one.
    if begin == from
        && over == 0
        && text.len() <= LINE
        && redactor.is_clear(run, from, from + text.len())
    {
        return line(text);
    }
    let text = text.get(begin - from..).unwrap_or_default();
    redacted(redactor, run, begin, text, over, work, line);
    if work.scratch.has_key() {
        *block = pem::opens(text);
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
    run: Run<'b>,
}

impl<'b> Piece<'b> {
    fn new(bytes: &'b [u8]) -> Piece<'b> {
        Piece {
            bytes,
            text: None,
            plain: 0,
            is_coloured: false,
            run: Run::new(bytes),
        }
    }

    /// A line as text. For plain lines: it is far quicker to look at all at once.
    fn text(&mut self, from: usize, to: usize) -> Option<&'b str> {
        self.valid()
            .get(from..to)
            .or_else(|| std::str::from_utf8(self.bytes.get(from..to)?).ok())
    }

    /// As much of it as is UTF-8.
    fn valid(&mut self) -> &'b str {
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

    /// The line from `from` to `to` is printable ASCII and tabs.
    fn is_plain(&mut self, from: usize, to: usize) -> bool {
        if self.plain >= to {
            return true;
        }
        let begin = self.plain.max(from);
        self.plain = begin;
        if !self.is_coloured {
            // Far ahead: most often all lines of a piece are plain.
            let blocks = self
                .bytes
                .get(begin..)
                .unwrap_or_default()
                .as_chunks()
                .0
                .iter()
                .take(AHEAD);
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

/// Printable ASCII, tabs and newlines alone. Written so that the compiler makes vector instructions
/// of it.
fn is_plain_block(block: &[u8; BLOCK]) -> bool {
    let mut bad = false;
    for byte in block {
        // As signed numbers, those beyond ASCII are below the space as well.
        bad |= (byte.cast_signed() < 0x20 && *byte != b'\n' && *byte != b'\t') | (*byte == 0x7f);
    }
    !bad
}

/// What of a line is not inside the private key that an earlier one began; `None` if nothing is.
fn outside_block<'t>(text: &'t str, block: &mut Option<pem::Open>) -> Option<&'t str> {
    let open = block.take()?;
    if let Some(rest) = pem::after_end(text) {
        return if rest.trim().is_empty() {
            None
        } else {
            Some(rest)
        };
    }
    if open.goes_on(text) {
        *block = Some(open);
        return None;
    }
    Some(text)
}

/// Gives a line without its secrets, and not too long.
fn redacted(
    redactor: &Redactor,
    run: &mut Run<'_>,
    from: usize,
    text: &str,
    over: u64,
    work: &mut Work,
    line: &mut (impl FnMut(&str) + ?Sized),
) {
    let text = redactor
        .redact(run, from, text, &mut work.scratch)
        .unwrap_or(text);
    // Behind the window a secret may go on whose beginning alone was not recognized: that is not
    // shown.
    let shown = if over == 0 {
        text.len()
    } else {
        char_boundary(text, text.len().saturating_sub(redactor.margin()))
    };
    let (text, hidden) = text.split_at(shown);
    let over = over + hidden.chars().count() as u64;
    if over == 0 && text.len() <= LINE {
        return line(text);
    }
    work.out.clear();
    cut(text, over, &mut work.out);
    let length = work.out.len();
    work.out.push_str(PADDING);
    // Cutting shows nothing new, but a literal may be found in the mark.
    let text = work.out.get(..length).unwrap_or_default();
    line(
        redactor
            .redact(&mut Run::new(work.out.as_bytes()), 0, text, &mut work.again)
            .unwrap_or(text),
    );
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

/// The beginning of a line that is too long, and how many characters are missing: `over` beyond
/// those in `text`.
fn cut(text: &str, over: u64, out: &mut String) {
    let (shown, rest) = text.split_at(char_boundary(text, LINE - MARK));
    out.push_str(shown);
    push_mark(rest.chars().count() as u64 + over, "characters", out);
}

/// The last beginning of a character that is not behind `at`.
fn char_boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or_default()
}

/// Appends what stands for text that is not shown.
pub(super) fn push_mark(count: u64, unit: &str, out: &mut String) {
    // Writing to a `String` cannot fail.
    let _ = write!(out, "…[{count} {unit} cut]");
}

#[cfg(test)]
mod tests;
