//! A cursor-free view of the text in which a secret is recognized: classes of bytes, runs of one
//! class, and the limits beyond which nothing may be read.

use std::ops::Range;

/// What comes after the last byte of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The end of the line: the text is whole.
    Complete,
    /// Unknown: the stream ended or was looked at within a line, or the line was cut to length. A
    /// secret may have begun that is not recognizable yet.
    Open,
    /// The mark of an earlier redaction.
    Mark,
}

/// A set of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Alphanumeric,
    UpperOrDigit,
    Hex,
    LowerHex,
    /// Letters, digits and the underscore.
    Word,
    /// The URL-safe alphabet of base64.
    Url64,
    /// [`Class::Url64`] and the dot: words joined by `-` and `.`, such as a name.
    Dotted,
    /// [`Class::Url64`], the dot, the slash and the equals sign.
    Path,
    /// Both alphabets of base64, with padding.
    Base64,
    /// The characters of a bearer token (RFC 6750, section 2.1).
    Bearer,
    /// [`Class::Dotted`] and the percent sign.
    Escaped,
    /// The characters of a value in a query string.
    Query,
    Blank,
    Space,
    /// Everything but white space.
    Visible,
    /// What may follow the last letter of a name in front of its value.
    AfterName,
}

const CLASSES: usize = Class::AfterName as usize + 1;

/// The classes of each byte, one bit for each class.
const CLASSES_OF: [u32; 256] = {
    let mut all = [0; 256];
    let mut n = 0;
    while n < 256 {
        let byte = n as u8;
        let word = byte.is_ascii_alphanumeric() || byte == b'_';
        let url64 = word || byte == b'-';
        let space = byte.is_ascii_whitespace();
        let has = [
            byte.is_ascii_alphanumeric(),
            byte.is_ascii_uppercase() || byte.is_ascii_digit(),
            byte.is_ascii_hexdigit(),
            matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
            word,
            url64,
            url64 || byte == b'.',
            url64 || matches!(byte, b'.' | b'/' | b'='),
            url64 || matches!(byte, b'+' | b'/' | b'='),
            url64 || matches!(byte, b'.' | b'~' | b'+' | b'/' | b'='),
            url64 || matches!(byte, b'.' | b'%'),
            url64 || matches!(byte, b'.' | b'~' | b'+' | b'/' | b'%'),
            matches!(byte, b' ' | b'\t'),
            space,
            !space,
            byte.is_ascii_digit()
                || matches!(
                    byte,
                    b'=' | b':' | b'>' | b'"' | b'\'' | b'`' | b'\\' | b']' | b'.'
                )
                || matches!(byte, b' ' | b'\t'),
        ];
        let mut class = 0;
        while class < CLASSES {
            all[n] |= (has[class] as u32) << class;
            class += 1;
        }
        n += 1;
    }
    all
};

impl Class {
    pub(crate) const fn has(self, byte: u8) -> bool {
        CLASSES_OF[byte as usize] >> self as u32 & 1 == 1
    }

    /// All bytes of the class.
    pub(crate) fn bytes(self) -> impl Iterator<Item = u8> {
        (0..=u8::MAX).filter(move |byte| self.has(*byte))
    }
}

pub(crate) const fn is_quote(byte: u8) -> bool {
    matches!(byte, b'"' | b'\'' | b'`')
}

/// A text between two borders.
pub(crate) struct Scan<'t> {
    text: &'t [u8],
    /// Nothing before this offset is read.
    pub(crate) left: usize,
    end: End,
    /// The last run of each class: a run is not walked through again from within it, so that the
    /// cost of all recognizers together is linear in the text.
    runs: [Range<usize>; CLASSES],
}

impl<'t> Scan<'t> {
    /// Nothing behind `text` is read; offsets count from its beginning.
    pub(crate) fn new(text: &'t [u8], left: usize, end: End) -> Scan<'t> {
        Scan {
            text,
            left,
            end,
            runs: std::array::from_fn(|_| 0..0),
        }
    }

    pub(crate) fn text(&self) -> &'t [u8] {
        self.text
    }

    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    pub(crate) fn byte(&self, at: usize) -> Option<u8> {
        self.text.get(at).copied()
    }

    /// The bytes from `at` on.
    pub(crate) fn from(&self, at: usize) -> &'t [u8] {
        self.text.get(at..).unwrap_or_default()
    }

    pub(crate) fn get(&self, range: Range<usize>) -> &'t [u8] {
        self.text.get(range).unwrap_or_default()
    }

    /// The bytes from the left border up to `at`.
    pub(crate) fn before(&self, at: usize) -> &'t [u8] {
        self.text.get(self.left..at).unwrap_or_default()
    }

    /// The byte before `at`, unless the border is there.
    pub(crate) fn previous(&self, at: usize) -> Option<u8> {
        self.before(at).last().copied()
    }

    /// Where the run of bytes of `class` ends that begins at `from`.
    pub(crate) fn run(&mut self, class: Class, from: usize) -> usize {
        let Some(run) = self.runs.get_mut(class as usize) else {
            return from;
        };
        if !(run.start <= from && from < run.end) {
            let rest = self.text.get(from..).unwrap_or_default();
            let end = rest.iter().position(|byte| !class.has(*byte));
            *run = from..from + end.unwrap_or(rest.len());
        }
        run.end
    }

    /// `at` is the end of a text that may go on: what has begun may become anything.
    pub(crate) fn is_open(&self, at: usize) -> bool {
        self.end == End::Open && at >= self.len()
    }

    /// The mark of an earlier redaction stands at `at`.
    pub(crate) fn is_mark(&self, at: usize) -> bool {
        self.end == End::Mark && at >= self.len()
    }

    /// A token may begin at `at`: no word goes on there. An escaped control character (`\n` as two
    /// characters) is no part of a word.
    pub(crate) fn begins_word(&self, at: usize) -> bool {
        match self.before(at) {
            [.., b'\\', b'n' | b'r' | b't'] => true,
            [.., byte] => !Class::Word.has(*byte),
            [] => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_the_same_from_wherever_within_it_is_asked_for() {
        let text = b"ab-cd ef_gh..ij";
        let mut scan = Scan::new(text, 0, End::Complete);
        for from in (0..text.len()).chain((0..text.len()).rev()) {
            for class in [Class::Word, Class::Url64, Class::Dotted, Class::Visible] {
                let end = (from..text.len()).find(|at| !class.has(text[*at]));
                assert_eq!(scan.run(class, from), end.unwrap_or(text.len()));
            }
        }
    }

    #[test]
    fn classes_hold_what_they_say() {
        let has = |class: Class| class.bytes().map(char::from).collect::<String>();
        assert_eq!(has(Class::Blank), "\t ");
        assert_eq!(has(Class::Hex), "0123456789ABCDEFabcdef");
        assert_eq!(has(Class::AfterName), "\t \"'.0123456789:=>\\]`");
        assert!(has(Class::Path).starts_with("-./0") && has(Class::Bearer).ends_with('~'));
    }
}
