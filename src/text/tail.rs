//! The newest lines of a stream: made of the kept bytes on request, or collected as they arrive.

use super::lines::{Lines, beheaded};
use super::projection::Projection;
use super::redact::{End, REDACTED, pem};
use super::sanitize::{LineText, Sanitizer};
use crate::capture::captured::Captured;
use memchr::{memchr, memmem, memrchr_iter};
use std::collections::VecDeque;
use std::ops::Range;

/// Bytes before the wanted lines that are read if these may be inside a private key, and the size
/// of a key without END that has lost its BEGIN.
const CONTEXT: u64 = 16 << 10;
/// Bytes of a line without a beginning that are read for each byte that may be needed of its text:
/// control sequences may take up some.
const RAW: u64 = 2;

/// A bounded list of lines that drops the oldest: collects the last words from [`Lines`].
///
/// The memory of a dropped line is reused for the next one.
///
/// ```
/// let mut tail = lastwords::Tail::new(2);
/// ["one", "two", "three"].iter().for_each(|line| tail.push(line));
/// assert_eq!(tail.iter().collect::<Vec<_>>(), ["two", "three"]);
/// ```
#[derive(Debug)]
pub struct Tail {
    lines: VecDeque<String>,
    most: usize,
}

impl Tail {
    /// Creates an empty list that keeps at most `most` lines. Allocates nothing.
    pub fn new(most: usize) -> Tail {
        Tail {
            lines: VecDeque::new(),
            most,
        }
    }

    /// Appends a line. A full list drops its oldest line.
    pub fn push(&mut self, line: &str) {
        let mut next = if self.lines.len() < self.most {
            String::new()
        } else {
            self.lines.pop_front().unwrap_or_default()
        };
        if self.most > 0 {
            next.clear();
            next.push_str(line);
            self.lines.push_back(next);
        }
    }

    /// Drops all lines.
    pub fn clear(&mut self) {
        self.lines.clear();
    }

    /// The number of lines.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether there are no lines.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Borrows the lines, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }

    /// Converts the list into its lines, oldest first.
    pub fn into_vec(self) -> Vec<String> {
        self.lines.into()
    }
}

/// See [`Projection::last_lines`].
pub(super) fn last_lines(
    projection: &Projection,
    captured: &Captured,
    from: u64,
    to: u64,
    most: usize,
) -> Vec<String> {
    let end = last_end(captured, to);
    let (Some(begin), Some(oldest)) = (first_begin(captured, from), first_begin(captured, 0))
    else {
        return without_beginning(projection, captured, from, to);
    };
    if begin >= end || begin >= to {
        return without_beginning(projection, captured, from, to);
    }
    // A line that is not shown (within a private key, or a last one without text) is replaced by an
    // older one: if too few remain, more are read.
    let mut wanted = most.saturating_add(1);
    loop {
        let start = begin_of_last(captured, begin, end, wanted);
        let shown = lines_from(projection, captured, oldest, start..end, most);
        if shown.len() >= most || start == begin {
            return shown;
        }
        wanted = wanted.saturating_mul(8);
    }
}

/// The newest `most` lines of a range that begins and ends with a line. The oldest line that is
/// kept whole begins at `oldest`.
fn lines_from(
    projection: &Projection,
    captured: &Captured,
    oldest: u64,
    range: Range<u64>,
    most: usize,
) -> Vec<String> {
    let mut lines = projection.lines();
    let mut edge = Edge::new(Tail::new(most));
    if projection.redacts() {
        let (context, is_edge) = context(projection, captured, oldest, range.start);
        edge.is_open = is_edge && captured.dropped() > 0;
        push(captured, context..range.start, &mut lines, &mut |line| {
            edge.pass(line)
        });
        edge.begin();
    }
    push(captured, range, &mut lines, &mut |line| edge.push(line));
    lines.finish(&mut |line: &str| edge.push(line));
    edge.finish()
}

fn push(captured: &Captured, range: Range<u64>, lines: &mut Lines, line: &mut dyn FnMut(&str)) {
    captured
        .slices_from(range.start, range.end)
        .for_each(|bytes| lines.push(bytes, line));
}

/// An offset from which to read so that it is known at `start` whether a private key goes on there;
/// and whether that stays unknown, because the edge of the kept bytes or too many lines that look
/// like a key come first.
fn context(projection: &Projection, captured: &Captured, oldest: u64, start: u64) -> (u64, bool) {
    let mut before = start;
    // The line before it nearly always tells.
    for distance in [0, CONTEXT] {
        before = begin_of_last(
            captured,
            oldest,
            before.saturating_sub(distance).max(oldest),
            1,
        )
        .min(before);
        if before <= oldest {
            return (oldest, true);
        }
        let mut lines = projection.lines();
        let mut known = false;
        push(captured, before..start, &mut lines, &mut |line| {
            known |= !pem::may_be_inside(line)
        });
        if known || lines.is_in_key() {
            return (before, false);
        }
    }
    // Nothing but base64 and blank lines for 16 KiB: search for the last marker itself.
    match last_marker(captured, oldest, before) {
        Some(marker) => (begin_of_last(captured, oldest, marker, 1), false),
        None => (before, true),
    }
}

/// The offset of the last marker of a private key in a range.
fn last_marker(captured: &Captured, from: u64, to: u64) -> Option<u64> {
    // There may be megabytes. Each block is searched forwards, which is the faster direction.
    let finder = memmem::Finder::new(pem::TRIGGER);
    let mut at = to;
    // The beginning of the following block, for a marker that lies across the border.
    let mut after: Vec<u8> = Vec::new();
    for bytes in captured.slices_from(from, to).rev() {
        at -= bytes.len() as u64;
        let border = bytes.len().saturating_sub(pem::TRIGGER.len());
        let across = [bytes.get(border..).unwrap_or_default(), &after].concat();
        if let Some(n) = finder.find_iter(&across).last() {
            return Some(at + border as u64 + n as u64);
        }
        if let Some(n) = finder.find_iter(bytes).last() {
            return Some(at + n as u64);
        }
        after = bytes.get(..pem::TRIGGER.len()).unwrap_or(bytes).to_vec();
    }
    None
}

/// Collects lines where it is not known whether a private key goes on at the first one. An END
/// without a BEGIN redacts all lines before it; so do lines of base64 that are long enough for a
/// key.
struct Edge {
    tail: Tail,
    is_open: bool,
    /// Lines that may belong to a key.
    held: Vec<String>,
    bytes: usize,
    is_like_key: bool,
}

impl Edge {
    fn new(tail: Tail) -> Edge {
        Edge {
            tail,
            is_open: false,
            held: Vec::new(),
            bytes: 0,
            is_like_key: false,
        }
    }

    /// Takes a line before the wanted ones.
    fn pass(&mut self, line: &str) {
        self.is_open &= pem::after_end(line).is_none() && pem::may_be_inside(line);
        self.is_like_key |= pem::is_like_key(line);
        self.bytes += line.len();
    }

    /// Marks the beginning of the wanted lines.
    fn begin(&mut self) {
        self.is_like_key &= self.is_open;
    }

    fn push(&mut self, line: &str) {
        if !self.is_open {
            return self.tail.push(line);
        }
        if let Some(rest) = pem::after_end(line) {
            self.is_open = false;
            self.held.clear();
            self.tail.clear();
            self.tail.push(REDACTED);
            if !rest.trim().is_empty() {
                self.tail.push(rest);
            }
            return;
        }
        if pem::may_be_inside(line) && self.bytes < CONTEXT as usize {
            self.bytes += line.len() + 1;
            self.is_like_key |= pem::is_like_key(line);
            self.held.push(line.to_owned());
            return;
        }
        self.release();
        self.is_open = pem::may_be_inside(line);
        self.tail.push(line);
    }

    /// Decides about the held lines: a key without an end, or no key.
    fn release(&mut self) {
        if self.is_like_key && !self.held.is_empty() {
            self.held.clear();
            self.tail.push(REDACTED);
        }
        self.held.drain(..).for_each(|line| self.tail.push(&line));
    }

    fn finish(mut self) -> Vec<String> {
        self.release();
        self.tail.into_vec()
    }
}

/// The offset of the first line that begins at `from` or later, if there is one.
fn first_begin(captured: &Captured, from: u64) -> Option<u64> {
    if from == 0 && captured.dropped() == 0 {
        return Some(0);
    }
    // Only a kept newline proves that a line begins behind it.
    let mut at = from.saturating_sub(1).max(captured.dropped());
    for bytes in captured.slices_from(at, captured.total()) {
        if let Some(n) = memchr(b'\n', bytes) {
            return Some(at + n as u64 + 1);
        }
        at += bytes.len() as u64;
    }
    None
}

/// The offset behind the line that holds the last byte before `to`.
fn last_end(captured: &Captured, to: u64) -> u64 {
    let mut at = to.saturating_sub(1);
    for bytes in captured.slices_from(at, captured.total()) {
        if let Some(n) = memchr(b'\n', bytes) {
            return at.max(captured.dropped()) + n as u64 + 1;
        }
        at = at.max(captured.dropped()) + bytes.len() as u64;
    }
    captured.total()
}

/// The offset at which the last `most` lines before `end` begin, or `begin`.
fn begin_of_last(captured: &Captured, begin: u64, end: u64, most: usize) -> u64 {
    // The newline that ends the last line is not the beginning of another.
    let mut left = most;
    let last = end.saturating_sub(1);
    let mut at = last;
    for bytes in captured.slices_from(begin, last).rev() {
        at -= bytes.len() as u64;
        for n in memrchr_iter(b'\n', bytes) {
            left = left.saturating_sub(1);
            if left == 0 {
                return at + n as u64 + 1;
            }
        }
    }
    begin
}

/// What is shown of a line without its beginning when there is no other: a mark, and the end of it.
fn without_beginning(
    projection: &Projection,
    captured: &Captured,
    from: u64,
    to: u64,
) -> Vec<String> {
    let first = captured.dropped();
    if from > first || first == 0 || to.min(captured.total()) <= first {
        return Vec::new();
    }
    let end = last_end(captured, first + 1);
    let window = projection.window();
    let begin = end.saturating_sub(RAW * window.size as u64);
    let mut line = Sanitizer::new(window);
    let mut is_whole = false;
    for bytes in captured.slices_from(begin, end) {
        is_whole = bytes.ends_with(b"\n");
        line.feed(bytes.strip_suffix(b"\n").unwrap_or(bytes));
    }
    let mut text = LineText::default();
    line.take(&mut text);
    let last = if is_whole { End::Complete } else { End::Open };
    let length = end - first - u64::from(is_whole);
    vec![beheaded(projection, &text, length, last)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::testing::{captured, fragments, split};
    use crate::types::limits::LINE;

    /// Without redaction, which has tests of its own: it takes long to build.
    fn plain() -> Projection {
        Projection::builder()
            .redact(false)
            .build()
            .expect("nothing to build")
    }

    fn last(bytes: &[u8], keep: u64, lines: usize) -> Vec<String> {
        plain().last_lines(&captured(bytes, keep), 0, u64::MAX, lines)
    }

    #[test]
    fn the_newest_lines_are_given_and_a_last_one_without_newline_counts() {
        assert_eq!(last(b"", 100, 5), [""; 0]);
        assert_eq!(last(b"\n\n", 100, 5), ["", ""]);
        assert_eq!(last(b"a\nb\r\nc", 100, 5), ["a", "b", "c"]);
        assert_eq!(last(b"a\nb\nc\n", 100, 2), ["b", "c"]);
        assert_eq!(last(b"a\nb\nc\n\x1b[0m", 100, 2), ["b", "c"]);
        assert_eq!(last(b"a\nb", 100, 0), [""; 0]);
        let many: String = (0..100_000).map(|n| format!("line {n}\n")).collect();
        let expected: Vec<String> = (99_950..100_000).map(|n| format!("line {n}")).collect();
        assert_eq!(last(many.as_bytes(), 2 << 20, 50), expected);
    }

    #[test]
    fn a_line_without_its_beginning_is_left_out() {
        assert_eq!(last(b"secret one\ntwo\nthree\n", 15, 9), ["two", "three"]);
        // Even if it may have been whole: nobody knows any more.
        assert_eq!(last(b"one\ntwo\nthree\n", 10, 9), ["three"]);
        assert_eq!(
            last(b"\xff\ngood\nlines\n", 100, 9),
            ["\u{fffd}", "good", "lines"]
        );
    }

    #[test]
    fn an_endless_line_leaves_a_mark_and_whole_characters() {
        assert_eq!(
            last(&"é".repeat(5000).into_bytes(), 999, 50),
            ["…[999 bytes of an older line cut]"]
        );
        let five = vec![b'x'; 5_000_000];
        assert_eq!(
            last(&five, 2 << 20, 50),
            ["…[2097152 bytes of an older line cut]"]
        );
        let whole = last(&five, 8 << 20, 50);
        assert!(whole.len() == 1 && whole[0].len() <= LINE);
        assert!(whole[0].starts_with("xxxx") && whole[0].contains("x…[4991936 bytes cut]x"));
    }

    /// CASES 86.
    #[test]
    fn the_end_of_a_line_without_its_beginning_is_shown() {
        for newline in ["", "\n"] {
            let text = format!(
                "{}{newline}",
                "x".repeat(3_000_000) + " the reason: no memory"
            );
            let shown = last(text.as_bytes(), 2 << 20, 50);
            let cut = (2 << 20) - " the reason: no memory".len() - newline.len();
            let expected = format!("…[{cut} bytes of an older line cut] the reason: no memory");
            assert_eq!(shown, [expected]);
        }
        let words: String = (0..600_000).map(|n| format!("word{n} ")).collect();
        let shown = last(words.as_bytes(), 2 << 20, 50);
        assert!(shown[0].ends_with(&words[words.len() - 8000..]) && shown[0].len() <= LINE);
        // Nothing of a secret that the edge cuts.
        let projection = Projection::builder()
            .secret("correct horse battery")
            .and_then(|builder| builder.build())
            .expect("one");
        let text = "correct horse battery ".repeat(50);
        for keep in 20..600 {
            let shown = projection.last_lines(&captured(text.as_bytes(), keep), 0, u64::MAX, 5);
            let has = |part: &str| shown[0].contains(part);
            assert!(
                !has("horse") && !has("batt") && !has("corr"),
                "{keep}: {shown:?}"
            );
        }
    }

    #[test]
    fn a_line_belongs_to_the_range_in_which_it_begins() {
        let bytes = b"one\ntwo\nthree\nfour";
        let (projection, captured) = (Projection::default(), captured(bytes, 100));
        for mark in 0..=bytes.len() {
            let early = projection.last_lines(&captured, 0, mark as u64, 9);
            let late = projection.last_lines(&captured, mark as u64, u64::MAX, 9);
            assert_eq!(
                [early.clone(), late].concat(),
                ["one", "two", "three", "four"],
                "{mark}"
            );
            assert_eq!(
                early.len(),
                [0, 4, 8, 14].iter().filter(|begin| **begin < mark).count()
            );
        }
    }

    #[test]
    fn lines_of_kept_bytes_are_the_newest_of_all_lines() {
        for seed in 1..200 {
            let bytes = fragments(seed, 60);
            let mut lines = Vec::new();
            split(&plain(), &bytes, &[bytes.len()], &mut lines);
            for most in [0, 1, 2, 5, 1000] {
                let newest = &lines[lines.len().saturating_sub(most)..];
                assert_eq!(last(&bytes, 1 << 20, most), newest, "{bytes:?}");
                let kept = last(&bytes, bytes.len() as u64 / 2, most);
                let marked = kept
                    .first()
                    .is_some_and(|line| line.contains("older line cut]"));
                assert!(marked || newest.ends_with(&kept), "{kept:?} {newest:?}");
            }
        }
    }

    #[test]
    fn a_tail_keeps_the_newest() {
        let mut tail = Tail::new(2);
        ["a", "b", "c"].into_iter().for_each(|line| tail.push(line));
        assert_eq!(
            (tail.len(), tail.iter().collect::<Vec<_>>()),
            (2, vec!["b", "c"])
        );
        let mut none = Tail::new(0);
        none.push("a");
        assert!(none.is_empty());
    }
}
