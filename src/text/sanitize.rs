//! Makes one line at a time safe to show: control sequences out, carriage returns and backspaces
//! carried out, what is not text replaced. Byte by byte the same for every split of the input.
//!
//! ```text
//!   Ground --ESC--> Escape --[--> Csi ------final------> Ground
//!     ^               | | '---]--> Osc ----BEL or ST----> Ground
//!     |               | '-P X ^ _> Text -------ST-------> Ground      (ST: ESC \ or U+009C)
//!     '--final--------'                    and from everywhere at the end of the line
//! ```

use super::redact::Redactor;
use crate::types::limits::LINE;
use arrayvec::ArrayVec;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a line that are kept from its beginning.
const FIRST: usize = LINE;
/// Bytes with which the beginning of a secret is recognized, less one.
const BEGINNING: usize = 3;
/// Stands for what is not text.
const REPLACED: char = char::REPLACEMENT_CHARACTER;
/// Bytes of text beyond ASCII that are decoded at a time. Bounds what is decoded twice when a
/// special character ends it early.
const SPAN: usize = 128;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Ground,
    /// An ESC was read.
    Escape,
    /// After ESC and an intermediate byte: character sets and the like.
    Intermediate,
    /// In a control sequence: parameters and intermediates.
    Csi,
    /// In an operating system command: a string that BEL or ST ends.
    Osc,
    /// In a device control or another string that ST ends.
    Text,
    /// After ESC in one of the two strings.
    Stringing,
}

/// The text of a line. A line that is too long has lost bytes of its middle.
#[derive(Clone, Debug, Default)]
pub(super) struct LineText {
    /// The line so far, always valid UTF-8.
    bytes: Vec<u8>,
    /// Where the lost bytes would stand. Meaningless while there are none.
    gap: usize,
    lost: u64,
    /// Whether the last word before the gap, or within it, may hold the beginning of a secret.
    is_suspect: bool,
}

impl LineText {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        (self.gap, self.lost, self.is_suspect) = (0, 0, false);
    }

    /// The text that is kept.
    pub(super) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes).unwrap_or_default()
    }

    /// Where bytes were lost in the text, if any were, and how many.
    pub(super) fn gap(&self) -> Option<(usize, u64)> {
        (self.lost > 0).then_some((self.gap, self.lost))
    }

    /// Whether the text behind the gap may begin with the end of a secret.
    pub(super) fn is_suspect(&self) -> bool {
        self.is_suspect
    }

    /// Appends text; there is a limit to how much is kept.
    fn push(&mut self, text: &str, window: &Window) {
        let full = FIRST.saturating_add(window.size.saturating_mul(2));
        if self.bytes.len() + text.len() <= full {
            self.bytes.extend_from_slice(text.as_bytes());
            return;
        }
        for c in text.chars() {
            if self.bytes.len() + c.len_utf8() > full {
                self.lose(window);
            }
            let mut bytes = [0; 4];
            self.bytes
                .extend_from_slice(c.encode_utf8(&mut bytes).as_bytes());
        }
    }

    /// The same, for text that is ASCII.
    fn push_ascii(&mut self, mut ascii: &[u8], window: &Window) {
        let full = FIRST.saturating_add(window.size.saturating_mul(2));
        while !ascii.is_empty() {
            if self.bytes.len() >= full {
                self.lose(window);
            }
            let room = full - self.bytes.len();
            let (fits, rest) = ascii.split_at(room.min(ascii.len()));
            self.bytes.extend_from_slice(fits);
            ascii = rest;
        }
    }

    /// Makes room: of the bytes behind the first ones, only those of the window stay.
    fn lose(&mut self, window: &Window) {
        let begins = |at: &usize| self.bytes.get(*at).is_none_or(|byte| byte & 0xc0 != 0x80);
        if self.lost == 0 {
            self.gap = (0..=FIRST).rev().find(begins).unwrap_or_default();
        }
        let end = self.bytes.len();
        let to = (end.saturating_sub(window.size)..=end).find(begins);
        let to = to.unwrap_or(end).max(self.gap);
        let from = if self.lost == 0 { 0 } else { self.gap };
        self.is_suspect = window.is_suspect(&self.bytes, from..to, self.is_suspect);
        self.bytes.drain(self.gap..to);
        self.lost += (to - self.gap) as u64;
    }

    /// Takes the last character back, or of lost ones the last byte.
    fn pop(&mut self) {
        if self.lost > 0 && self.bytes.len() <= self.gap {
            self.lost -= 1;
            return;
        }
        while self.bytes.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
    }
}

/// How much is kept of the end of a long line, and what of the rest must be known.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// Bytes that are kept from the end, at least.
    pub(super) size: usize,
    pub(super) redactor: Option<Arc<Redactor>>,
}

impl Window {
    /// Whether a secret may have begun in the last word of the range; if that has no white space,
    /// also if one had before.
    fn is_suspect(&self, bytes: &[u8], range: Range<usize>, before: bool) -> bool {
        let Some(redactor) = &self.redactor else {
            return false;
        };
        let lost = bytes.get(range.clone()).unwrap_or_default();
        let space = lost.iter().rposition(u8::is_ascii_whitespace);
        let from = range.start + space.unwrap_or_default();
        // The beginning of a secret may lie across the end of the range.
        let text = bytes
            .get(..bytes.len().min(range.end + BEGINNING))
            .unwrap_or_default();
        // And across its beginning, which the gap has hidden: then that counts as one.
        (before && space.is_none()) || redactor.next_place(text, from).is_some()
    }
}

/// The line that is being read.
#[derive(Clone, Debug)]
pub(super) struct Sanitizer {
    state: State,
    /// Whether the line has any byte yet.
    begun: bool,
    /// Whether a carriage return came last: the next character begins the line anew.
    returned: bool,
    /// Bytes of a character that is not complete yet.
    carry: ArrayVec<u8, 4>,
    now: LineText,
    /// The last version of the line, before a carriage return, that was not empty.
    before: LineText,
    window: Window,
}

impl Sanitizer {
    /// An empty line. Of a long one the first 8 KiB are kept, and the window at its end. Allocates
    /// nothing.
    pub(super) fn new(window: Window) -> Sanitizer {
        Sanitizer {
            state: State::Ground,
            begun: false,
            returned: false,
            carry: ArrayVec::new(),
            now: LineText::default(),
            before: LineText::default(),
            window,
        }
    }

    /// Whether no byte of a line has come yet.
    pub(super) fn is_fresh(&self) -> bool {
        !self.begun
    }

    /// Takes a part of a line, without a newline in it.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) {
        self.begun |= !bytes.is_empty();
        while let (false, Some(byte)) = (self.carry.is_empty(), bytes.first()) {
            bytes = self.complete(*byte, bytes);
        }
        while !bytes.is_empty() {
            let used = match self.state {
                State::Ground => self.ground(bytes),
                State::Escape
                | State::Intermediate
                | State::Csi
                | State::Osc
                | State::Text
                | State::Stringing => self.one(bytes),
            };
            bytes = bytes.get(used..).unwrap_or_default();
        }
    }

    /// The text of the line, which is over. [`Sanitizer::clear`] follows.
    pub(super) fn end(&mut self) -> &mut LineText {
        if !self.carry.is_empty() {
            self.carry.clear();
            self.step(REPLACED);
        }
        if self.now.is_empty() {
            &mut self.before
        } else {
            &mut self.now
        }
    }

    /// Moves the text of the line, which is over, to `line`, and begins the next one.
    pub(super) fn take(&mut self, line: &mut LineText) {
        std::mem::swap(self.end(), line);
        self.clear();
    }

    /// Whether the line has no text.
    pub(super) fn is_blank(&self) -> bool {
        self.carry.is_empty() && self.now.is_empty() && self.before.is_empty()
    }

    /// Begins the next line.
    pub(super) fn clear(&mut self) {
        self.state = State::Ground;
        self.begun = false;
        self.returned = false;
        self.carry.clear();
        self.now.clear();
        self.before.clear();
    }

    /// Adds a byte to an incomplete character.
    fn complete<'b>(&mut self, byte: u8, bytes: &'b [u8]) -> &'b [u8] {
        self.carry.push(byte);
        let rest = bytes.get(1..).unwrap_or_default();
        match decode(&self.carry) {
            Decoded::Incomplete => rest,
            Decoded::Char(c, _) => {
                self.carry.clear();
                self.step(c);
                rest
            }
            Decoded::Bad(n) => {
                // The byte that made it bad may begin something of its own.
                let again = n < self.carry.len();
                self.carry.clear();
                self.step(REPLACED);
                if again { bytes } else { rest }
            }
        }
    }

    /// Outside a control sequence: takes bytes of one kind. Returns how many.
    fn ground(&mut self, bytes: &[u8]) -> usize {
        let plain = plain_prefix(bytes);
        if plain > 0 {
            self.push_plain(bytes.get(..plain).unwrap_or_default());
            return plain;
        }
        match bytes {
            [0x1b, b'[', rest @ ..] => match control_sequence(rest) {
                Some(length) => 2 + length,
                None => self.one(bytes),
            },
            [byte, ..] if !byte.is_ascii() => self.beyond_ascii(bytes),
            _ => self.one(bytes),
        }
    }

    /// Text that begins with a character beyond ASCII.
    fn beyond_ascii(&mut self, bytes: &[u8]) -> usize {
        let span = bytes.get(..SPAN).unwrap_or(bytes);
        let span = span
            .iter()
            .position(|byte| is_control(*byte))
            .and_then(|n| span.get(..n))
            .unwrap_or(span);
        let valid = match std::str::from_utf8(span) {
            Ok(text) => text,
            Err(error) => span
                .get(..error.valid_up_to())
                .and_then(|valid| std::str::from_utf8(valid).ok())
                .unwrap_or_default(),
        };
        if valid.is_empty() {
            return self.one(bytes);
        }
        let mut rest = valid;
        while let (State::Ground, Some(c)) = (self.state, rest.chars().next()) {
            let text = special(rest).unwrap_or(rest.len());
            if text == 0 {
                self.step(c);
                rest = rest.get(c.len_utf8()..).unwrap_or_default();
            } else {
                self.push_text(rest.get(..text).unwrap_or_default());
                rest = rest.get(text..).unwrap_or_default();
            }
        }
        valid.len() - rest.len()
    }

    /// Takes one character. Returns its length in bytes.
    fn one(&mut self, bytes: &[u8]) -> usize {
        if let Some(byte) = bytes.first().filter(|byte| byte.is_ascii()) {
            self.step(char::from(*byte));
            return 1;
        }
        match decode(bytes) {
            Decoded::Char(c, n) => {
                self.step(c);
                n
            }
            Decoded::Bad(n) => {
                self.step(REPLACED);
                n
            }
            Decoded::Incomplete => {
                self.carry.extend(bytes.iter().copied().take(3));
                bytes.len()
            }
        }
    }

    fn step(&mut self, c: char) {
        self.state = match (self.state, c) {
            (State::Ground, _) => return self.text_or_control(c),
            // CAN and SUB end every sequence, ESC begins a new one.
            (_, '\x18' | '\x1a') => State::Ground,
            (State::Osc | State::Text, '\x1b') => State::Stringing,
            (State::Osc, '\x07')
            | (State::Osc | State::Text, '\u{9c}')
            | (State::Stringing, '\\') => State::Ground,
            (State::Osc | State::Text, _) => return,
            (State::Escape | State::Intermediate | State::Csi | State::Stringing, '\x1b') => {
                State::Escape
            }
            (State::Stringing, _) => {
                self.state = State::Escape;
                return self.step(c);
            }
            (State::Escape | State::Intermediate | State::Csi, '\0'..='\x1f' | '\x7f') => {
                return self.text_or_control(c);
            }
            (State::Escape, '[') => State::Csi,
            (State::Escape, ']') => State::Osc,
            (State::Escape, 'P' | 'X' | '^' | '_') => State::Text,
            (State::Escape | State::Intermediate, ' '..='/') => State::Intermediate,
            (State::Csi, ' '..='?') => return,
            (State::Escape | State::Intermediate | State::Csi, ' '..='~') => State::Ground,
            (State::Escape | State::Intermediate | State::Csi, _) => {
                self.state = State::Ground;
                return self.text_or_control(c);
            }
        };
    }

    fn text_or_control(&mut self, c: char) {
        match c {
            '\r' => self.returned = true,
            '\x08' => self.erase(),
            '\x1b' => self.state = State::Escape,
            '\t' => self.push(c),
            '\0'..='\x1f' | '\x7f' => {}
            '\u{9b}' => self.state = State::Csi,
            '\u{9d}' => self.state = State::Osc,
            '\u{90}' | '\u{98}' | '\u{9e}' | '\u{9f}' => self.state = State::Text,
            '\u{80}'..='\u{9f}' => {}
            // Directions and separators that change how the rest of a line is shown.
            '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => self.push(REPLACED),
            _ => self.push(c),
        }
    }

    fn push(&mut self, c: char) {
        self.push_text(c.encode_utf8(&mut [0; 4]));
    }

    fn push_text(&mut self, text: &str) {
        self.begin();
        self.now.push(text, &self.window);
    }

    fn push_plain(&mut self, ascii: &[u8]) {
        self.begin();
        self.now.push_ascii(ascii, &self.window);
    }

    /// Before a character: after a carriage return the line begins anew, and what was there is
    /// remembered.
    fn begin(&mut self) {
        if std::mem::take(&mut self.returned) && !self.now.is_empty() {
            std::mem::swap(&mut self.now, &mut self.before);
            self.now.clear();
        }
    }

    /// Carries a backspace out.
    fn erase(&mut self) {
        if !self.returned {
            self.now.pop();
        }
    }
}

enum Decoded {
    Char(char, usize),
    /// So many bytes are no character.
    Bad(usize),
    /// All bytes may become a character.
    Incomplete,
}

/// The first character. Bad bytes are taken together as `String::from_utf8_lossy` takes them.
fn decode(bytes: &[u8]) -> Decoded {
    let head = bytes.get(..4).unwrap_or(bytes);
    let (valid, error) = match std::str::from_utf8(head) {
        Ok(text) => (text, None),
        Err(error) => {
            let valid = head
                .get(..error.valid_up_to())
                .and_then(|valid| std::str::from_utf8(valid).ok());
            (valid.unwrap_or_default(), Some(error.error_len()))
        }
    };
    match (valid.chars().next(), error) {
        (Some(c), _) => Decoded::Char(c, c.len_utf8()),
        (None, Some(Some(n))) => Decoded::Bad(n),
        (None, Some(None) | None) => Decoded::Incomplete,
    }
}

/// Writes the text of a whole line, of at most 8 KiB, to `out` if the line is plain but for whole
/// control sequences and a carriage return at the end. The result is that of a [`Sanitizer`], far
/// quicker. `false` if there is more to the line.
pub(super) fn simple_line(line: &[u8], out: &mut LineText) -> bool {
    out.clear();
    let mut rest = line.strip_suffix(b"\r").unwrap_or(line);
    loop {
        let (plain, special) = rest.split_at(plain_prefix(rest));
        out.bytes.extend_from_slice(plain);
        let length = match special {
            [] => return true,
            [0x1b, b'[', sequence @ ..] => control_sequence(sequence),
            _ => None,
        };
        let Some(length) = length else {
            return false;
        };
        rest = special.get(2 + length..).unwrap_or_default();
    }
}

/// The length of a control sequence behind its introducer, if it is whole and nothing else is in
/// it.
fn control_sequence(bytes: &[u8]) -> Option<usize> {
    let length = bytes.iter().position(|byte| !matches!(byte, b' '..=b'?'))?;
    matches!(bytes.get(length), Some(b'@'..=b'~')).then_some(length + 1)
}

/// Where the first character stands that is more than text: C1 controls, directions, separators.
fn special(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    memchr::memchr2_iter(0xc2, 0xe2, bytes).find(|at| match bytes.get(*at..).unwrap_or_default() {
        [0xc2, second, ..] => *second < 0xa0,
        [0xe2, 0x80, third, ..] => (0xa8..=0xae).contains(third),
        [0xe2, 0x81, third, ..] => (0xa6..=0xa9).contains(third),
        _ => false,
    })
}

const fn is_control(byte: u8) -> bool {
    byte < 0x20 || byte == 0x7f
}

/// How many bytes from the beginning are printable ASCII or tabs.
pub(super) fn plain_prefix(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    let mut at = 0;
    while let Some(word) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let word = u64::from_le_bytes(*word);
        let below_space = word.wrapping_sub(ONES * 0x20) & !word;
        let no_delete = word ^ (ONES * 0x7f);
        let delete = no_delete.wrapping_sub(ONES) & !no_delete;
        // The lowest flagged byte is exact; borrows disturb only what is above it.
        let flagged = (below_space | delete | word) & (ONES * 0x80);
        if flagged == 0 {
            at += 8;
            continue;
        }
        at += flagged.trailing_zeros() as usize / 8;
        if bytes.get(at) != Some(&b'\t') {
            return at;
        }
        at += 1;
    }
    let rest = bytes.get(at..).unwrap_or_default();
    at + rest
        .iter()
        .take_while(|byte| matches!(byte, b' '..=b'~' | b'\t'))
        .count()
}

#[cfg(test)]
mod tests;
