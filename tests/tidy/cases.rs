//! Which test is for which row of `docs/CASES.md`: the marks in the tests' own comments.

use crate::references;
use crate::source::{root, sources};
use std::collections::BTreeMap;

/// A test and the rows that it says it is for.
struct Marked {
    test: String,
    place: String,
    rows: Vec<usize>,
    /// `#[test]` stands above it.
    is_plain: bool,
}

/// Rows and their tests, in order. A mark that stands above something that no test runs is an
/// error.
pub(crate) fn rows() -> Result<BTreeMap<usize, Vec<String>>, String> {
    let mut all = Vec::new();
    let mut texts = Vec::new();
    for source in ["src", "tests", "cli"]
        .iter()
        .flat_map(|folder| sources(folder))
        .filter(|source| !source.path.starts_with("tests/tidy"))
    {
        let text = std::fs::read_to_string(root().join(&source.path))
            .map_err(|e| format!("{}: {e}", source.path))?;
        marked(&source.path, &text, &mut all);
        texts.push(source.code);
    }
    let mut rows: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for one in all {
        // If it is none by itself, it stands in a list of tests: `every_way!`, the promises of the
        // contract, the casts of the orders.
        let listed = |line: &str| is_listed(line.trim(), &one.test);
        if !one.is_plain && !texts.iter().flat_map(|text| text.lines()).any(listed) {
            return Err(format!(
                "{}: {} is marked, and is no test",
                one.place, one.test
            ));
        }
        for row in one.rows {
            rows.entry(row)
                .or_default()
                .push(format!("{} ({})", one.test, one.place));
        }
    }
    Ok(rows)
}

fn is_listed(line: &str, test: &str) -> bool {
    let rest = line
        .rsplit("::")
        .next()
        .unwrap_or_default()
        .strip_prefix(test);
    rest.is_some_and(|rest| rest.is_empty() || rest == "," || rest.starts_with(" = "))
}

/// The comments with a mark, and the functions below them.
fn marked(place: &str, text: &str, all: &mut Vec<Marked>) {
    let (mut rows, mut is_plain) = (Vec::new(), false);
    for line in text.lines().map(str::trim) {
        if let Some(comment) = line.strip_prefix("///") {
            rows.extend(numbers(comment));
        } else if line.starts_with("#[") {
            is_plain |= line == "#[test]";
        } else if let Some(name) = function(line).filter(|_| !rows.is_empty()) {
            all.push(Marked {
                test: name.to_owned(),
                place: place.to_owned(),
                rows: std::mem::take(&mut rows),
                is_plain,
            });
            is_plain = false;
        } else {
            (rows, is_plain) = (Vec::new(), false);
        }
    }
}

fn function(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("fn ")?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_')
        .next()
        .filter(|name| !name.is_empty())
}

/// The rows that a comment names: `CASES 5 and 7`, `CASES 21, SPEC 2.1`. A number that belongs to
/// the sentence after the mark is none: `CASES 11. 4 MiB`.
pub(crate) fn numbers(comment: &str) -> Vec<usize> {
    let cited = references::cited(comment, "CASES");
    cited.iter().filter_map(|row| row.parse().ok()).collect()
}
