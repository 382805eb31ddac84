//! Tests of the lines of a stream.

use crate::sim::Rng;
use crate::text::lines::*;
use crate::text::testing::{fragments, split};
use std::panic::{AssertUnwindSafe, catch_unwind};

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
        let again = lines(
            whole
                .iter()
                .flat_map(|line| [line, "\n"])
                .collect::<String>()
                .as_bytes(),
        );
        assert_eq!(again, whole, "{bytes:?}");
        let unsafe_char =
            |c: char| (c.is_control() && c != '\t') || ('\u{2028}'..='\u{202e}').contains(&c);
        assert!(
            !whole.iter().any(|line| line.contains(unsafe_char)),
            "{whole:?}"
        );
    }
}

/// CASES 17.
#[test]
fn a_sequence_without_an_end_ends_with_its_line() {
    for begin in [
        "\x1b]0;title",
        "\x1bPdevice",
        "\x1b[31",
        "\x1b",
        "\u{9d}title",
        "x\x1b_",
        "\x1b]a\x1b",
    ] {
        let bytes = format!("{begin}\nERROR real\n");
        for size in 1..bytes.len() {
            let mut out = Vec::new();
            split(&Projection::default(), bytes.as_bytes(), &[size], &mut out);
            assert_eq!(
                out.last().map(String::as_str),
                Some("ERROR real"),
                "{begin:?} {size}"
            );
        }
    }
}

/// CASES 16.
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
    assert_eq!(
        (out.len(), out[0].as_str(), out[50_000].as_str()),
        (50_001, "\u{fffd}", "good")
    );
}

#[test]
fn a_line_that_is_too_long_is_cut_in_its_middle_and_says_by_how_much() {
    for (n, c) in [
        (LINE, "x"),
        (LINE + 1, "x"),
        (3 * LINE, "x"),
        (20_000, "\u{e9}"),
    ] {
        let out = lines(c.repeat(n).as_bytes());
        assert_eq!(out.len(), 1);
        if n <= LINE {
            assert_eq!(out[0].len(), n);
            continue;
        }
        let (head, rest) = out[0].split_once("\u{2026}[").expect("a mark");
        let (cut, tail) = rest.split_once(" bytes cut]").expect("a mark");
        assert!(head.len() > 3900 && tail.len() > 4000 && out[0].len() <= LINE);
        let shown = head.len() + tail.len();
        assert_eq!(cut, (n * c.len() - shown).to_string());
        assert_eq!(lines(out[0].as_bytes()), out);
    }
}

/// An endless line still shows the reason at its end.
/// CASES 86.
#[test]
fn the_reason_at_the_end_of_an_endless_line_is_shown() {
    let mut bytes = vec![b'x'; 3_000_000];
    bytes.extend_from_slice(b" out of memory\n");
    let out = lines(&bytes);
    assert!(out[0].starts_with("xxxx"), "the beginning is known");
    assert!(out[0].contains(" bytes cut]x"), "no secret has begun");
    assert!(out[0].ends_with("x out of memory"));
    bytes.splice(..6, *b"token=");
    let out = lines(&bytes);
    assert!(out[0].starts_with("token=[redacted]"));
    assert!(out[0].ends_with("bytes cut] out of memory"));
}

/// What begins in the middle that is not shown ends in the text that is.
#[test]
fn no_secret_is_shown_behind_a_gap() {
    let secret = "S3CR3T with blanks in it ".repeat(20);
    let projection = Projection::builder()
        .secret(&secret)
        .expect("long")
        .build()
        .expect("few");
    let token = format!("token={}", "Ab1".repeat(20_000));
    let key = format!(
        "-----BEGIN PRIVATE KEY-----{}-----END PRIVATE KEY-----",
        "MII0".repeat(20_000)
    );
    for text in [&secret.repeat(200), &token, &key] {
        for before in (0..600).step_by(37) {
            let line = format!("{}{text} the end\n", "- ".repeat(before));
            let mut out = Vec::new();
            split(&projection, line.as_bytes(), &[997], &mut out);
            assert_eq!(out.len(), 1);
            assert!(out[0].ends_with(" the end"), "{}", out[0]);
            for part in ["S3C", "with bl", "Ab1A", "MII"] {
                assert!(!out[0].contains(part), "{before}: {}", out[0]);
            }
        }
    }
}

/// What programs write, in many lines: plain ones, coloured ones, secrets, keys of several lines,
/// lines as long as may be.
fn output(seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut bytes = Vec::new();
    let kinds = 1 + rng.index(16);
    for n in 0..rng.index(400) {
        match rng.index(kinds) {
            0 => bytes.extend_from_slice(format!("plain line {n}, and nothing in it").as_bytes()),
            1 => bytes.extend_from_slice(b"\x1b[32mok\x1b[0m test ... ok\r"),
            2 => {}
            3 => {
                bytes.extend_from_slice(b"\x1b[1mtoken=abcdef0123\x1b[0m and password: hunter2; x")
            }
            4 => bytes.extend_from_slice(b"sk-0123456789abcdefghij first of a line, plain"),
            5 => bytes.extend_from_slice(
                b"\x1b[msk-0123456789abcdefghij https://me:pa55@host/x s3cret word",
            ),
            6 => bytes.extend_from_slice(b"a s3cret word and pwd=x in a plain line, api_key: yes"),
            7 => bytes.extend_from_slice(b"-----BEGIN RSA PRIVATE KEY-----"),
            8 => bytes.extend_from_slice(b"MIIEpAIBAAKCAQEA0123456789abcdef"),
            9 => bytes.extend_from_slice(b"-----END RSA PRIVATE KEY-----sk-0123456789abcdefghij"),
            10 => bytes.extend_from_slice("10%\r20%\r\u{9b}1mé \u{202e}".as_bytes()),
            11 => bytes.extend_from_slice(b"\xff ghp_0123456789abcdefghij\x08"),
            13 => bytes.extend_from_slice(b"nothing but a s3cret word here"),
            14 => bytes.extend_from_slice(b"AKIAEXAMPLEEXAMPLE00sk-0123456789abcdefghij"),
            12 => bytes.resize(
                bytes.len()
                    + [LINE / 2, LINE, LINE + 1, 2 * LINE, 5 * LINE][rng.index(5)]
                    + rng.index(3),
                b'.',
            ),
            _ => bytes.extend_from_slice(&fragments(seed + n as u64, 9)),
        }
        bytes.push(b'\n');
    }
    bytes
}

#[test]
fn a_line_gives_the_same_alone_and_among_others_plain_and_coloured() {
    let projection = Projection::builder()
        .secret("s3cret word")
        .expect("long")
        .build()
        .expect("one");
    for seed in 1..120 {
        let bytes = output(seed);
        let given = |bytes: &[u8], sizes: &[usize]| {
            let mut out = Vec::new();
            split(&projection, bytes, sizes, &mut out);
            out
        };
        let line_by_line: Vec<usize> = bytes
            .split_inclusive(|byte| *byte == b'\n')
            .map(<[u8]>::len)
            .collect();
        let alone = given(&bytes, &line_by_line);
        for sizes in [&[bytes.len()][..], &[4096], &[1 << 16, 1], &[500, 3]] {
            assert_eq!(given(&bytes, sizes), alone, "{seed} {sizes:?}");
        }
        // A plain line is looked at where it stands, a coloured one is taken apart first.
        let coloured: Vec<u8> = bytes
            .split_inclusive(|byte| *byte == b'\n')
            .flat_map(|line| [b"\x1b[m", line].concat())
            .collect();
        assert_eq!(given(&coloured, &[bytes.len()]), alone, "{seed}");
        let again: Vec<u8> = alone
            .iter()
            .flat_map(|line| [line.as_bytes(), b"\n"].concat())
            .collect();
        assert_eq!(
            given(&again, &[again.len()]),
            alone,
            "{seed}: twice is not once"
        );
        assert!(!alone.concat().contains("s3cret word"), "{seed}");
    }
}

/// Whoever sees the lines may panic: none is given twice.
#[test]
fn a_line_that_panics_is_given_once() {
    let projection = Projection::default();
    let mut lines = projection.lines();
    let mut seen = Vec::new();
    let text = b"\x1b[mone\n\x1b[mtwo\n\x1b[mthree\n";
    let caught = catch_unwind(AssertUnwindSafe(|| {
        lines.push(text, &mut |line: &str| {
            seen.push(line.to_owned());
            assert!(line != "two", "enough");
        });
    }));
    assert!(caught.is_err());
    lines.push(b"four\n", &mut |line: &str| seen.push(line.to_owned()));
    assert_eq!(seen.iter().filter(|line| *line == "one").count(), 1);
    assert_eq!(seen.last().map(String::as_str), Some("four"));
}
