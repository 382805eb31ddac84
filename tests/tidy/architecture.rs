//! Tables of `docs/ARCHITECTURE.md` that repeat a list of the code are that list.

use crate::source::{root, sources};
use std::collections::BTreeSet;

/// A machine of the page, and the file with its states.
const MACHINES: [(&str, &str); 4] = [
    ("drain", "src/lifecycle/drain/phase.rs"),
    ("group", "src/lifecycle/group/phase.rs"),
    ("stop", "src/lifecycle/stop/phase.rs"),
    ("settle", "src/lifecycle/settle/phase.rs"),
];

/// Differences between the page and the code.
pub(crate) fn differences() -> Vec<String> {
    let page = std::fs::read_to_string(root().join("docs/ARCHITECTURE.md"))
        .expect("docs/ARCHITECTURE.md is there");
    let mut wrong = Vec::new();
    for (machine, file) in MACHINES {
        let states = table(&page, "| machine | states |")
            .into_iter()
            .find(|row| row.first().is_some_and(|name| name == machine))
            .and_then(|row| row.get(1).cloned())
            .unwrap_or_default();
        let listed = states.split(", ").map(str::to_owned).collect();
        compare(machine, &listed, &variants(file, "enum Phase "), &mut wrong);
    }
    let timers = names(&table(&page, "| timer | armed by |"));
    let coded = variants("src/lifecycle/vocabulary.rs", "enum Timer ");
    compare("timers", &timers, &coded, &mut wrong);
    let questions = names(&table(&page, "| question | promise |"));
    let asked = methods("src/kernel/contract/mod.rs", "trait Kernel");
    compare("questions to the kernel", &questions, &asked, &mut wrong);
    wrong
}

fn compare(what: &str, page: &BTreeSet<String>, code: &BTreeSet<String>, wrong: &mut Vec<String>) {
    if code.is_empty() {
        wrong.push(format!("{what}: the code has none where it is looked for"));
    }
    let only = |one: &BTreeSet<String>, other: &BTreeSet<String>, place: &str| {
        let names: Vec<String> = one.difference(other).cloned().collect();
        (!names.is_empty()).then(|| format!("{what}: only {place} has {}", names.join(", ")))
    };
    wrong.extend(only(page, code, "the page"));
    wrong.extend(only(code, page, "the code"));
}

/// The cells of the rows below this header.
fn table(page: &str, header: &str) -> Vec<Vec<String>> {
    let rows = page.lines().skip_while(|line| !line.starts_with(header));
    rows.skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|row| {
            let cells = row.trim_matches('|').split('|');
            cells.map(|cell| cell.trim().to_owned()).collect()
        })
        .collect()
}

/// The names in the first column.
fn names(rows: &[Vec<String>]) -> BTreeSet<String> {
    let cells = rows.iter().filter_map(|row| row.first());
    cells
        .flat_map(|cell| cell.split(", "))
        .map(|name| name.trim_matches('`').to_owned())
        .collect()
}

/// The variants of an enum.
fn variants(file: &str, head: &str) -> BTreeSet<String> {
    let names = body(file, head).into_iter().filter_map(|line| {
        let name: String = line.chars().take_while(|c| c.is_alphanumeric()).collect();
        name.starts_with(|c: char| c.is_ascii_uppercase())
            .then_some(name)
    });
    names.collect()
}

/// The methods of a trait.
fn methods(file: &str, head: &str) -> BTreeSet<String> {
    let names = body(file, head).into_iter().filter_map(|line| {
        let name = line.strip_prefix("fn ")?;
        Some(
            name.chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect(),
        )
    });
    names.collect()
}

/// The lines of an item that stand directly in its braces.
fn body(file: &str, head: &str) -> Vec<String> {
    let Some(source) = sources("src").into_iter().find(|s| s.path == file) else {
        return Vec::new();
    };
    let Some(begin) = source.shipped.find(head) else {
        return Vec::new();
    };
    let mut depth = 0;
    let mut lines = Vec::new();
    for line in source.shipped[begin..].lines() {
        if depth == 1 {
            lines.push(line.trim().to_owned());
        }
        depth += line.matches('{').count();
        depth -= line.matches('}').count();
        if depth == 0 && line.contains('}') {
            break;
        }
    }
    lines
}
