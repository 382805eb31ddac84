//! What comments and pages refer to is there: items of the specification, rows of the cases, files
//! of the repository.

use crate::source::root;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Pages that were written before the repository had its own, without their ending. Nobody but
/// their authors can read them.
const NOT_HERE: [&str; 11] = [
    "api",
    "beyond",
    "cases",
    "contract",
    "design",
    "faces",
    "faults",
    "house",
    "lifecycle",
    "limits",
    "spec",
];
/// A name that begins with one of these and a slash is a path from the root of the repository.
const TOP: [&str; 10] = [
    "benches", "capi", "cli", "docs", "examples", "fuzz", "packages", "serve", "src", "tests",
];
/// Endings of files that a comment may name.
const NAMED: [&str; 7] = ["rs", "md", "toml", "json", "c", "py", "sh"];

/// A text file of the repository.
pub(crate) struct Page {
    /// From the root of the repository, with slashes.
    pub(crate) path: String,
    text: String,
}

/// Every file of the repository below its root, and the text of those that may refer to others.
pub(crate) fn pages() -> (Vec<Page>, BTreeSet<String>) {
    let mut files = BTreeSet::new();
    walk(&root(), &mut files);
    let pages = files
        .iter()
        .filter(|path| matches!(ending(path), "rs" | "md" | "toml"))
        .map(|path| Page {
            path: path.clone(),
            text: read(path),
        })
        .collect();
    (pages, files)
}

fn walk(folder: &Path, files: &mut BTreeSet<String>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_built = matches!(&*name, ".git" | "target" | "artifacts" | "coverage");
        if path.is_dir() && !is_built {
            walk(&path, files);
        } else if path.is_file() {
            let path = path.strip_prefix(root()).unwrap_or(&path);
            files.insert(path.to_string_lossy().replace('\\', "/"));
        }
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn ending(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(_, ending)| ending)
}

/// The sections of `docs/SPEC.md`, and how many items each has.
pub(crate) fn sections() -> BTreeMap<usize, usize> {
    let mut sections = BTreeMap::new();
    let mut current = None;
    for line in read("docs/SPEC.md").lines() {
        if let Some(title) = line.strip_prefix("## ") {
            current = number(title);
            sections.extend(current.map(|section| (section, 0)));
        } else if let (Some(section), Some(item)) = (current, number(line)) {
            let items: &mut usize = sections.entry(section).or_default();
            assert_eq!(
                item,
                *items + 1,
                "docs/SPEC.md, section {section}: an item is missing"
            );
            *items = item;
        }
    }
    sections
}

/// The rows of `docs/CASES.md`.
pub(crate) fn rows() -> BTreeSet<usize> {
    let page = read("docs/CASES.md");
    let cells = page.lines().filter_map(|line| line.strip_prefix("| "));
    cells
        .filter_map(|line| line.split(" |").next()?.parse().ok())
        .collect()
}

/// `12. ` at the beginning of a line.
fn number(line: &str) -> Option<usize> {
    let (number, _) = line.split_once(". ")?;
    number.parse().ok()
}

/// Every citation behind `word` in a text: `SPEC 1.4`, `SPEC 8 and 2.4`, `CASES 5, 7`. A number
/// behind a comma or an `and` counts if nothing but a number can be meant.
pub(crate) fn cited(text: &str, word: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices(word) {
        let before = text[..at].chars().next_back();
        let rest = text[at + word.len()..].strip_prefix(' ');
        let (false, Some(mut rest)) = (before.is_some_and(char::is_alphanumeric), rest) else {
            continue;
        };
        while let Some(one) = leading_number(rest) {
            found.push(one.to_owned());
            rest = &rest[one.len()..];
            let next = [", ", " and "]
                .iter()
                .find_map(|and| rest.strip_prefix(and));
            match next {
                Some(next) => rest = next,
                None => break,
            }
        }
    }
    found
}

/// `4`, `1.4`; not the `131` of `131,072`, nor the `8` of `8 threads`, `64 KiB` or `4-entry` behind
/// a full stop.
fn leading_number(text: &str) -> Option<&str> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let number = text[..end].trim_end_matches('.');
    let is_one = number.starts_with(|c: char| c.is_ascii_digit())
        && number.split('.').all(|part| !part.is_empty())
        && number.matches('.').count() <= 1;
    is_one.then_some(number)
}

/// Whether `1.4` or `8` is a place in the specification.
pub(crate) fn is_item(place: &str, sections: &BTreeMap<usize, usize>) -> bool {
    let (section, item) = match place.split_once('.') {
        Some((section, item)) => (section.parse(), item.parse().map(Some)),
        None => (place.parse(), Ok(None)),
    };
    let (Ok(section), Ok(item)) = (section, item) else {
        return false;
    };
    sections
        .get(&section)
        .is_some_and(|items| item.is_none_or(|item: usize| (1..=*items).contains(&item)))
}

/// What a page says to its readers: all of it, or the comments of a source.
fn prose(page: &Page) -> Vec<(usize, &str)> {
    let lines = (1..).zip(page.text.lines());
    lines
        .filter_map(|(n, line)| match ending(&page.path) {
            "rs" => line.find("//").map(|at| (n, &line[at..])),
            "toml" => line.find('#').map(|at| (n, &line[at..])),
            _ => Some((n, line)),
        })
        .collect()
}

/// Everything that is not there, with its place.
pub(crate) fn dangling(pages: &[Page], files: &BTreeSet<String>) -> Vec<String> {
    let (sections, rows) = (sections(), rows());
    let mut wrong = Vec::new();
    for page in pages {
        for (n, line) in prose(page) {
            let at = |what: String| format!("{}:{n}: {what}", page.path);
            let spec = cited(line, "SPEC").into_iter();
            let spec = spec.filter(|place| !is_item(place, &sections));
            wrong.extend(spec.map(|place| at(format!("no SPEC {place}"))));
            let cases = cited(line, "CASES").into_iter();
            let cases = cases.filter(|row| !row.parse().is_ok_and(|row| rows.contains(&row)));
            wrong.extend(cases.map(|row| at(format!("no CASES {row}"))));
            wrong.extend(old_forms(line).map(|old| at(format!("`{old}` is an old citation"))));
            let named = names(line).filter(|name| !is_there(name, &page.path, files));
            wrong.extend(named.map(|name| at(format!("no file {name}"))));
        }
    }
    wrong
}

/// Citations as they were written before the repository had its own pages.
fn old_forms(line: &str) -> impl Iterator<Item = &'static str> {
    let forms = [
        ("spec", "spec N"),
        ("cases:", "cases: N"),
        ("case", "case N"),
    ];
    forms
        .into_iter()
        .filter(|(word, _)| !cited(line, word).is_empty())
        .map(|(_, form)| form)
}

/// What looks like the name of a file, or of a folder at the top of the repository.
fn names(line: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_-./*{}<>:~$".contains(c);
    line.split(move |c| !is_part(c))
        .map(|word| word.trim_matches(|c| "-.:<>".contains(c)))
        .filter(|word| {
            word.chars()
                .all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c))
        })
        .filter(|word| is_name(word))
}

fn is_name(word: &str) -> bool {
    let (top, rest) = word.split_once('/').unwrap_or(("", word));
    let stem = rest.rsplit('/').next().unwrap_or_default();
    let is_file = NAMED.contains(&ending(stem)) && !stem.starts_with('.');
    // A pattern, such as `benches/NAME.rs`.
    let is_pattern = stem.split('.').next().is_some_and(|stem| {
        stem.len() > 1 && stem.chars().all(|c| c.is_ascii_uppercase()) && ending(rest) != "md"
    });
    !is_pattern
        && if top.is_empty() {
            // `child.c` and `Cargo.toml` are anybody's.
            is_file && matches!(ending(word), "rs" | "md") && !word.starts_with('/')
        } else {
            TOP.contains(&top) && (is_file || word.ends_with('/'))
        }
}

/// From the root, from beside the page, or, for a name without a folder at the top, anywhere.
fn is_there(name: &str, page: &str, files: &BTreeSet<String>) -> bool {
    let beside = page.rsplit_once('/').map_or("", |(folder, _)| folder);
    let from_root = |path: &str| {
        files.contains(path) || (path.ends_with('/') && files.iter().any(|f| f.starts_with(path)))
    };
    let is_from_top = name
        .split_once('/')
        .is_some_and(|(top, _)| TOP.contains(&top));
    from_root(name)
        || from_root(&format!("{beside}/{name}"))
        || (!is_from_top && files.iter().any(|file| file.ends_with(&format!("/{name}"))))
}

/// Mentions of pages that are not in the repository.
pub(crate) fn unknown_pages(pages: &[Page]) -> Vec<String> {
    let mut wrong = Vec::new();
    for page in pages {
        for (n, line) in (1..).zip(page.text.lines()) {
            for stem in NOT_HERE {
                let name = format!("{stem}.md");
                let is_word = |at: usize| {
                    let before = line[..at].chars().next_back();
                    !before.is_some_and(|c| c.is_alphanumeric() || "_-".contains(c))
                };
                if line.match_indices(&name).any(|(at, _)| is_word(at)) {
                    wrong.push(format!("{}:{n}: {name}", page.path));
                }
            }
        }
    }
    wrong
}

/// Links of the pages that lead to no file.
pub(crate) fn broken_links(pages: &[Page]) -> Vec<String> {
    let mut wrong = Vec::new();
    for page in pages.iter().filter(|page| ending(&page.path) == "md") {
        let folder = root().join(&page.path);
        let folder = folder.parent().unwrap_or(Path::new("/"));
        for (at, _) in page.text.match_indices("](") {
            let target = page.text[at + 2..].split(')').next().unwrap_or_default();
            let file = target.split('#').next().unwrap_or_default();
            if !file.is_empty() && !file.contains("://") && !folder.join(file).exists() {
                wrong.push(format!("{}: {target}", page.path));
            }
        }
    }
    wrong
}
