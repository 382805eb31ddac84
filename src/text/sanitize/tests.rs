//! Tests of one line.

use crate::text::redact::floor_char;
use crate::text::sanitize::*;

fn sanitizer(size: usize) -> Sanitizer {
    Sanitizer::new(Window {
        size,
        redactor: None,
    })
}

fn clean(line: &[u8]) -> String {
    let mut sanitizer = sanitizer(1 << 20);
    sanitizer.feed(line);
    let whole = sanitizer.end().as_str().to_owned();
    // The same, byte by byte.
    sanitizer.clear();
    line.iter().for_each(|byte| sanitizer.feed(&[*byte]));
    assert_eq!(sanitizer.end().as_str(), whole, "{line:?}");
    whole
}

#[test]
fn control_sequences_are_taken_out() {
    for (line, text) in [
        (&b"\x1b[1;31mred\x1b[0m"[..], "red"),
        (b"\x1b]0;title\x07text", "text"),
        (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"a\x1bPq#0;2;0\x1b\\b", "ab"),
        (b"a\x1b_apc\x1b\\b\x1b^pm\x1b\\c\x1bXsos\x1b\\d", "abcd"),
        (b"\x1b(B\x1b)0\x1b#8x", "x"),
        (b"\x1b7\x1b8\x1bMx\x1bc", "x"),
        (b"\x1b[?25l\x1b[2K\x1b[12;3Hx", "x"),
        (b"\x1b[38:2:1:2:3mx\x1b[ qy", "xy"),
        (
            "\u{9b}31mx\u{9d}title\u{9c}y\u{90}dcs\u{9c}z\u{85}".as_bytes(),
            "xyz",
        ),
        (b"\x1b]title\x1b[31mred", "red"),
        (b"\x1b[31\x18mx", "mx"),
        (b"\x1b\x1b[31mx", "x"),
        ("\x1b[3é".as_bytes(), "é"),
        (b"\x1b]never ended", ""),
        (b"x\x1b", "x"),
        (b"x\x1b[12", "x"),
    ] {
        assert_eq!(clean(line), text, "{line:?}");
    }
}

#[test]
fn a_carriage_return_keeps_the_last_version_that_is_not_empty() {
    for (line, text) in [
        (&b"10%\r20%\r30%"[..], "30%"),
        (b"10%\r20%\r", "20%"),
        (b"10%\r\r\r", "10%"),
        (b"10%\r\x1b[K", "10%"),
        (b"10%\rx\x08", "10%"),
        (b"\r\rx", "x"),
        (b"abc\r\x08d", "d"),
        (b"abc\x1b\r[31mx", "x"),
        (b"\r", ""),
    ] {
        assert_eq!(clean(line), text, "{line:?}");
    }
}

#[test]
fn backspace_erases_a_character_and_other_controls_are_dropped() {
    for (line, text) in [
        ("aé\x08b".as_bytes(), "ab"),
        (b"\x08\x08a\x08\x08\x08b", "b"),
        (b"N\x08NA\x08A", "NA"),
        (b"a\0b\x01\x07\x0b\x0c\x0e\x7fc", "abc"),
        (b"a\tb", "a\tb"),
    ] {
        assert_eq!(clean(line), text, "{line:?}");
    }
}

#[test]
fn what_is_not_text_is_replaced_as_the_standard_library_does_it() {
    for line in [
        &b"\xff"[..],
        b"a\x80b\x9fc",
        b"\xe2\x82",
        b"\xe2\x82x",
        b"\xf0\x9f\x98x\xf0\x9f\x98\x80",
        b"\xc0\xaf\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
    ] {
        assert_eq!(clean(line), String::from_utf8_lossy(line), "{line:?}");
    }
    assert_eq!(
        clean("a\u{202e}b\u{2066}c\u{2029}d\u{2070}\u{2027}".as_bytes()),
        "a\u{fffd}b\u{fffd}c\u{fffd}d\u{2070}\u{2027}"
    );
}

#[test]
fn a_long_line_keeps_its_beginning_and_its_end() {
    let long = |text: &str, size: usize| {
        let mut sanitizer = sanitizer(100);
        text.as_bytes()
            .chunks(size)
            .for_each(|piece| sanitizer.feed(piece));
        let line = sanitizer.end();
        (line.as_str().to_owned(), line.gap())
    };
    let ascii: String = (0..5000).map(|n| format!("{n} ")).collect();
    for text in [ascii.clone(), "\u{e9}".repeat(9000) + &ascii] {
        for n in [100, LINE, LINE + 200, LINE + 201, 3 * LINE] {
            let text = &text[..floor_char(&text, n)];
            let (kept, gap) = long(text, text.len());
            for size in [1, 2, 7, 1000] {
                assert_eq!(long(text, size), (kept.clone(), gap), "{n} {size}");
            }
            let Some((at, lost)) = gap else {
                assert!(text.len() <= LINE + 200);
                assert_eq!(kept, text);
                continue;
            };
            assert!((LINE - 1..=LINE).contains(&at) && kept.len() <= LINE + 200);
            assert_eq!(kept.len() + usize::try_from(lost).expect("few"), text.len());
            assert!(text.starts_with(&kept[..at]) && text.ends_with(&kept[at..]));
            assert!(kept.len() - at >= 100);
        }
    }
}

#[test]
fn what_was_lost_of_a_line_can_be_erased() {
    let mut sanitizer = sanitizer(4);
    sanitizer.feed("x".repeat(LINE).as_bytes());
    sanitizer.feed(b"12345678");
    assert_eq!(sanitizer.end().gap(), None);
    sanitizer.feed(b"9");
    assert_eq!(sanitizer.end().gap(), Some((LINE, 4)));
    sanitizer.feed(&[8; 7]);
    let line = sanitizer.end();
    assert_eq!((line.gap(), line.as_str().len()), (Some((LINE, 2)), LINE));
    sanitizer.feed(&[8; 4]);
    let line = sanitizer.end();
    assert_eq!((line.gap(), line.as_str().len()), (None, LINE - 2));
}

#[test]
fn the_plain_prefix_is_exact() {
    for n in 0..40 {
        for bad in [0_u8, 0x1f, 0x7f, 0x80, 0xff, b'\n', b'\r', 0x1b] {
            let mut bytes = vec![b' '; 40];
            bytes[n / 2] = b'\t';
            bytes[n] = bad;
            bytes[39] = 0x80;
            assert_eq!(plain_prefix(&bytes), n.min(39), "{bad}");
        }
    }
    assert_eq!(plain_prefix(b"\x80\x1f abc"), 0);
    assert_eq!(plain_prefix(b"~ \t"), 3);
}
