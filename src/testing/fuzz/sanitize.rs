//! Safe text: whatever the bytes and however they come.

use super::Bytes;
use crate::text::Projection;
use crate::text::split::split;

/// What is registered in every run.
const SECRETS: [&str; 3] = ["hunter2-swordfish", "pass\u{e9}word", "0xDEADBEEF/42"];

/// Any split gives the same lines, twice is once, no control character but the tab, and no
/// registered secret.
pub fn sanitize(input: &[u8]) {
    let mut from = Bytes(input);
    let sizes: Vec<usize> = (0..4).map(|_| usize::from(from.byte()) + 1).collect();
    let bare = from.byte() & 1 == 0;
    let projection = projection(bare);
    let mut text = Vec::new();
    while !from.is_over() {
        // Secrets are rare in bytes by chance.
        match from.byte() {
            250 => text.extend_from_slice(SECRETS[usize::from(from.below(3))].as_bytes()),
            251 => with_a_colour_inside(&mut text, SECRETS[usize::from(from.below(3))]),
            252 => text.extend_from_slice(b"\x1b[31m"),
            253 => text.push(b'\n'),
            byte => text.push(byte),
        }
    }
    // Several times over: lines are searched in batches, and some batch is to be full.
    let text = text.repeat(sizes[0] % 5 + 1);
    let whole = lines(&projection, &text, &[text.len().max(1)]);
    assert_eq!(
        whole,
        lines(&projection, &text, &sizes),
        "another split, other lines"
    );
    assert_eq!(
        whole,
        lines(&projection, &text, &[1]),
        "byte by byte, other lines"
    );
    let line_by_line: Vec<usize> = text
        .split_inclusive(|byte| *byte == b'\n')
        .map(<[u8]>::len)
        .collect();
    assert_eq!(
        whole,
        lines(&projection, &text, &line_by_line),
        "line by line, other lines"
    );
    for line in &whole {
        assert!(
            !line.chars().any(|c| c.is_control() && c != '\t'),
            "a control character: {line:?}"
        );
        for secret in SECRETS.iter().filter(|_| !bare) {
            assert!(!line.contains(secret), "a secret: {line:?}");
        }
    }
    // A text of lines with an end each: an empty line at the end is one too.
    let again: String = whole
        .iter()
        .flat_map(|line| [line.as_str(), "\n"])
        .collect();
    assert_eq!(
        whole,
        lines(&projection, again.as_bytes(), &sizes),
        "twice is not once"
    );
}

fn with_a_colour_inside(text: &mut Vec<u8>, secret: &str) {
    let (first, second) = secret.as_bytes().split_at(4);
    text.extend_from_slice(first);
    text.extend_from_slice(b"\x1b[1;32m");
    text.extend_from_slice(second);
}

fn projection(bare: bool) -> Projection {
    let mut builder = Projection::builder();
    if bare {
        builder.redact(false);
    } else {
        for secret in SECRETS {
            builder.secret(secret).expect("long enough");
        }
    }
    builder.build().expect("a projection")
}

fn lines(projection: &Projection, bytes: &[u8], sizes: &[usize]) -> Vec<String> {
    let mut out = Vec::new();
    split(projection, bytes, sizes, &mut out);
    out
}
