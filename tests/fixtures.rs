//! What real programs have written to a terminal or a pipe, and the last words that are made of it.
//!
//! `tests/fixtures/NAME.raw` is the output of the program, to the byte (names of hosts and
//! directories replaced by examples), `NAME.expected` its safe text, one line each.

use lastwords::{Line, LiveTail, Projection};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const ALL: usize = 10_000;

/// Raw output and expected lines, by the name of the program.
fn fixtures() -> BTreeMap<String, (Vec<u8>, Vec<String>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut all = BTreeMap::new();
    for file in fs::read_dir(dir).expect("fixtures") {
        let path = file.expect("a file").path();
        if path.extension().is_some_and(|end| end == "raw") {
            let raw = fs::read(&path).expect("readable");
            let expected = fs::read_to_string(path.with_extension("expected"))
                .expect("every output has its text beside it");
            let name = path
                .file_stem()
                .expect("a name")
                .to_string_lossy()
                .into_owned();
            all.insert(name, (raw, expected.lines().map(str::to_owned).collect()));
        }
    }
    all
}

fn in_pieces(raw: &[u8], size: usize) -> Vec<String> {
    let mut tail = LiveTail::new(&Projection::default(), ALL, 0);
    let mut keep = |_: &str| Line::Keep;
    raw.chunks(size)
        .for_each(|piece| tail.push(piece, &mut keep));
    tail.finish(&mut keep);
    tail.last().map(str::to_owned).collect()
}

#[test]
fn the_text_of_real_output_is_the_expected_one_for_every_split() {
    let fixtures = fixtures();
    assert!(fixtures.len() >= 12, "{:?}", fixtures.keys());
    for (name, (raw, expected)) in &fixtures {
        for size in [raw.len(), 1, 2, 3, 7, 64, 4096] {
            assert_eq!(
                &in_pieces(raw, size),
                expected,
                "{name} in pieces of {size}"
            );
        }
        let text: String = expected.iter().flat_map(|line| [line, "\n"]).collect();
        assert_eq!(
            &in_pieces(text.as_bytes(), ALL),
            expected,
            "{name}, projected again"
        );
    }
}

#[test]
fn the_last_words_of_real_output_are_its_last_lines() {
    for (name, (_, expected)) in fixtures() {
        let file = format!("{}/tests/fixtures/{name}.raw", env!("CARGO_MANIFEST_DIR"));
        let mut command = lastwords::Command::new("sh");
        command.args(["-c", "cat \"$1\" >&2", "sh", &file]);
        command.last_words(lastwords::LastWordsPolicy::default().lines(5));
        let report = lastwords::run(&command).expect("a shell").report;
        assert_eq!(
            report.stderr_tail,
            expected[expected.len().saturating_sub(5)..],
            "{name}"
        );
    }
}

/// What planted secrets there are in the raw output is in no text.
#[test]
fn secrets_in_real_output_are_in_no_text() {
    let planted = ["abcDEF123.tok-en_value", "hunter2", "s3cr3t-pass"];
    let fixtures = fixtures();
    for secret in planted {
        let has = |raw: &[u8]| {
            raw.windows(secret.len())
                .any(|window| window == secret.as_bytes())
        };
        assert!(
            fixtures.values().any(|(raw, _)| has(raw)),
            "{secret} is planted"
        );
        for (name, (_, expected)) in &fixtures {
            assert!(
                !expected.iter().any(|line| line.contains(secret)),
                "{name} shows {secret}"
            );
        }
    }
}
