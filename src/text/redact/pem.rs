//! Private keys in PEM and similar formats: lines of base64 between a BEGIN and an END marker.

use super::scan::{Class, Scan};
use memchr::memmem;
use std::ops::Range;

/// The text that every such marker contains.
pub(crate) const TRIGGER: &str = "PRIVATE KEY";
/// The shortest run of base64 that is not taken for a word, in a line with other text before it.
const RUN: usize = 16;
/// The shortest run of base64 that is most likely a line of a key.
const LONG_RUN: usize = 40;
/// The most bytes of a marker between its dashes and [`TRIGGER`].
const LABEL: usize = 40;
/// Beginnings of the header lines that may stand between BEGIN and the base64.
const HEADERS: [&str; 7] = [
    "Proc-Type:",
    "DEK-Info:",
    "Version:",
    "Comment:",
    "Hash:",
    "Charset:",
    "MessageID:",
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Begin,
    End,
}

/// The marker whose [`TRIGGER`] stands at `at`, and its place without blanks around it.
fn marker(text: &[u8], at: usize) -> Option<(Kind, Range<usize>)> {
    let words = text
        .get(..at)?
        .iter()
        .rev()
        .take(LABEL)
        .take_while(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || **b == b' ')
        .count();
    let label = text.get(at - words..at)?.trim_ascii_start();
    let kind = match label {
        [b'B', b'E', b'G', b'I', b'N', b' ', ..] => Kind::Begin,
        [b'E', b'N', b'D', b' ', ..] => Kind::End,
        _ => return None,
    };
    let before = text.get(..at - words)?;
    let dashes = before
        .iter()
        .rev()
        .take(5)
        .take_while(|byte| **byte == b'-')
        .count();
    if dashes < 4 {
        return None;
    }
    let mut end = at + TRIGGER.len();
    for tail in [&b" BLOCK"[..], b" "] {
        end += if text.get(end..)?.starts_with(tail) {
            tail.len()
        } else {
            0
        };
    }
    // Five dashes at most, and none if another marker follows that needs them.
    let rest = text.get(end..)?;
    let own = rest
        .iter()
        .take(5)
        .take_while(|byte| **byte == b'-')
        .count();
    if !rest.get(own..)?.trim_ascii_start().starts_with(b"BEGIN ") {
        end += own;
    }
    Some((kind, before.len() - dashes..end))
}

fn markers(text: &[u8]) -> impl Iterator<Item = (Kind, Range<usize>)> {
    memmem::find_iter(text, TRIGGER).filter_map(|at| marker(text, at))
}

/// The part of a block that is in one line: from BEGIN to END, or to the end of the line.
pub(crate) fn in_line(scan: &mut Scan<'_>, at: usize) -> Option<Range<usize>> {
    let text = scan.get(scan.left..scan.len());
    let (Kind::Begin, begin) = marker(text, at - scan.left)? else {
        return None;
    };
    let rest = text.get(begin.end..)?;
    let end = markers(rest)
        .find(|(kind, _)| *kind == Kind::End)
        .map_or(text.len(), |(_, end)| begin.end + end.end);
    Some(scan.left + begin.start..scan.left + end)
}

/// A block that goes on in the next line. `prefix` counts the bytes of its first line before BEGIN
/// (and after an earlier END): a log's timestamp, for instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Open {
    prefix: usize,
}

/// Whether the line begins a block without ending it.
pub(crate) fn opens(text: &str) -> Option<Open> {
    let (mut open, mut after) = (None, 0);
    for (kind, marker) in markers(text.as_bytes()) {
        if kind == Kind::Begin {
            open = open.or(Some(Open {
                prefix: marker.start.saturating_sub(after),
            }));
        } else {
            (open, after) = (None, marker.end);
        }
    }
    open
}

/// If the line ends a block that an earlier one began: the text after the END marker.
pub(crate) fn after_end(text: &str) -> Option<&str> {
    match markers(text.as_bytes()).next()? {
        (Kind::End, marker) => text.get(marker.end..),
        (Kind::Begin, _) => None,
    }
}

impl Open {
    /// Whether the line belongs to the block and is not its last.
    pub(crate) fn goes_on(self, text: &str) -> bool {
        // A block never contains another BEGIN.
        is_body(text)
            || (self.prefix > 0
                && last_run(text) >= RUN
                && markers(text.as_bytes()).next().is_none())
    }
}

/// Whether the line may belong to a block with any prefix.
pub(crate) fn may_be_inside(text: &str) -> bool {
    is_body(text) || last_run(text) >= RUN
}

/// Whether the line most likely belongs to a key.
pub(crate) fn is_like_key(text: &str) -> bool {
    last_run(text) >= LONG_RUN
}

const fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=')
}

/// The line without what source code, quotation and mail put around it.
fn bare(text: &str) -> &str {
    let text = text.trim_start_matches([' ', '\t', '"', '\'', '|', '>', '#', '*']);
    let text = text.trim_end();
    let text = text
        .strip_suffix(" +")
        .unwrap_or(text)
        .trim_end_matches([' ', '\t', '"', '\'', ',', ';', '\\']);
    text.strip_suffix("\\n")
        .map_or(text, |text| text.trim_end_matches("\\r"))
}

/// Whether the line is base64, blank, or a header.
fn is_body(text: &str) -> bool {
    let text = bare(text);
    text.bytes().all(is_base64) || HEADERS.iter().any(|header| text.starts_with(header))
}

/// The length of the run of base64 that ends the line; 0 if it is a part of a longer word.
fn last_run(text: &str) -> usize {
    let text = bare(text).as_bytes();
    let run = text
        .iter()
        .rev()
        .take_while(|byte| is_base64(**byte))
        .count();
    let before = text.len().checked_sub(run + 1).and_then(|n| text.get(n));
    if before.is_some_and(|byte| Class::Url64.has(*byte)) {
        0
    } else {
        run
    }
}

#[cfg(test)]
mod tests {
    use crate::sim::Rng;
    use crate::text::Projection;
    use crate::text::testing::{captured, split};

    const BODY: &str = "MIIEpAIBAAKCAQEA0123456789abcdefghijABCDEFGHIJ0123456789abcdefgh\n";

    fn key(kind: &str) -> String {
        format!(
            "-----BEGIN {kind}-----\n{}MIIE==\n-----END {kind}-----\n",
            BODY.repeat(5)
        )
    }

    fn lines(text: &str) -> Vec<String> {
        let projection = Projection::default();
        let mut out = Vec::new();
        split(&projection, text.as_bytes(), &[text.len()], &mut out);
        let mut pieces = Vec::new();
        split(&projection, text.as_bytes(), &[7], &mut pieces);
        assert_eq!(out, pieces);
        // What is kept gives the same, however many lines are asked for.
        let all = captured(text.as_bytes(), 1 << 20);
        for most in [0, 1, 2, 3, 4, 100] {
            assert_eq!(
                Projection::default().last_lines(&all, 0, u64::MAX, most),
                out[out.len().saturating_sub(most)..],
                "{most} of {text}"
            );
        }
        out
    }

    #[test]
    fn a_key_of_several_lines_becomes_one_mark() {
        for kind in [
            "PRIVATE KEY",
            "RSA PRIVATE KEY",
            "OPENSSH PRIVATE KEY",
            "ENCRYPTED PRIVATE KEY",
            "PGP PRIVATE KEY BLOCK",
        ] {
            assert_eq!(
                lines(&format!("before\n{}after\n", key(kind))),
                ["before", "[redacted]", "after"]
            );
        }
        let headers = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nMIIE\n-----END RSA PRIVATE KEY-----";
        assert_eq!(lines(headers), ["[redacted]"]);
        let ssh2 = "---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\nComment: me\nMIIE\n---- END SSH2 ENCRYPTED PRIVATE KEY ----";
        assert_eq!(lines(ssh2), ["[redacted]"]);
        let certificate = key("CERTIFICATE");
        assert_eq!(lines(&certificate), certificate.lines().collect::<Vec<_>>());
    }

    #[test]
    fn a_key_may_be_indented_quoted_prefixed_or_in_one_line() {
        let indented = key("PRIVATE KEY").replace('\n', "\n    ");
        assert_eq!(
            lines(&format!("key: |\n    {indented}\nend!")),
            ["key: |", "    [redacted]", "    ", "end!"]
        );
        let quoted = key("PRIVATE KEY")
            .lines()
            .map(|line| format!("  \"{line}\\n\" +\n"))
            .collect::<String>();
        assert!(
            !lines(&quoted).concat().contains("MII"),
            "{:?}",
            lines(&quoted)
        );
        let prefixed = key("PRIVATE KEY")
            .lines()
            .map(|line| format!("12:00:01 INFO {line}\n"))
            .collect::<String>();
        assert!(
            !lines(&prefixed).concat().contains("MIIEpA"),
            "{:?}",
            lines(&prefixed)
        );
        let one = format!("x={} y", key("PRIVATE KEY").replace('\n', "\\n"));
        assert_eq!(lines(&one), [r"x=[redacted]\n y"]);
        let coloured = key("PRIVATE KEY").replace("KEY", "\x1b[1mK\x1b[0mEY");
        assert_eq!(lines(&coloured), ["[redacted]"]);
    }

    /// Keys and parts of keys among other lines: what is kept gives what was seen live.
    #[test]
    fn both_ways_agree_on_where_a_key_ends() {
        const PARTS: &[&str] = &[
            "-----BEGIN PRIVATE KEY-----",
            "-----END PRIVATE KEY-----",
            "12:00 ",
            "  ",
            "\"",
            "\n",
            "\n",
            "\n",
            "MIIE",
            "MIIEpAIBAAKCAQEA0123456789abcdef",
            "an error",
            "Version: 1",
            "word",
            "\x1b[1m",
            "-----BEGIN EC PRIVATE KEY-----",
            "\\n",
        ];
        for seed in 1..150_u64 {
            let mut rng = Rng::new(seed);
            let text: String = (0..rng.index(60)).map(|_| rng.pick(PARTS)).collect();
            lines(&text);
        }
    }

    #[test]
    fn a_key_without_an_end_ends_at_the_first_line_that_is_no_base64() {
        let text = format!(
            "-----BEGIN PRIVATE KEY-----\n{}an error: no\nMIIE\n",
            BODY.repeat(3)
        );
        assert_eq!(lines(&text), ["[redacted]", "an error: no", "MIIE"]);
        assert_eq!(
            lines(&format!("{text}-----END PRIVATE KEY-----"))[3],
            "-----END PRIVATE KEY-----"
        );
        let two = format!("{}{}", key("PRIVATE KEY").trim_end(), key("EC PRIVATE KEY"));
        assert_eq!(lines(&two), ["[redacted]", "[redacted]"]);
        assert!(
            !lines(&two.replace("----------", "-----"))
                .concat()
                .contains("MII")
        );
    }

    #[test]
    fn a_key_that_has_lost_its_beginning_is_redacted_back_to_the_edge() {
        let long = format!(
            "{}{}MIIE==\n-----END PRIVATE KEY-----\nafter\n",
            "-----BEGIN PRIVATE KEY-----\n",
            BODY.repeat(600)
        );
        let projection = Projection::default();
        for key in [key("PRIVATE KEY") + "after\n", long] {
            for keep in (7..key.len() as u64).step_by(1 + key.len() / 100) {
                let kept = captured(key.as_bytes(), keep);
                for most in [1, 2, 50] {
                    let shown = projection.last_lines(&kept, 0, u64::MAX, most);
                    assert!(!shown.concat().contains("MII"), "{keep} {most} {shown:?}");
                    assert_eq!(shown.last().map(String::as_str), Some("after"));
                }
            }
        }
        // Neither of its ends is kept.
        let body = BODY.repeat(40);
        let shown =
            Projection::default().last_lines(&captured(body.as_bytes(), 1000), 0, u64::MAX, 50);
        assert_eq!(shown, ["[redacted]"]);
        // Other text is not taken for a key.
        let numbers: String = (0..5000).map(|n| format!("{n}\n")).collect();
        let shown =
            Projection::default().last_lines(&captured(numbers.as_bytes(), 1000), 0, u64::MAX, 3);
        assert_eq!(shown, ["4997", "4998", "4999"]);
    }

    #[test]
    fn late_lines_of_a_key_are_not_shown_either() {
        let text = format!("before\n{}after\n", key("PRIVATE KEY"));
        let all = captured(text.as_bytes(), 1 << 20);
        let projection = Projection::default();
        for mark in (0..text.len() as u64).step_by(3) {
            let early = projection.last_lines(&all, 0, mark, 50);
            let late = projection.last_lines(&all, mark, u64::MAX, 20);
            assert!(
                !early.concat().contains("MII") && !late.concat().contains("MII"),
                "{mark}"
            );
            assert_eq!(
                [early, late].concat(),
                ["before", "[redacted]", "after"],
                "{mark}"
            );
        }
    }
}
