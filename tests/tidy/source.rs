//! Source files as the rules of `tidy.rs` see them: without comments and without the insides of
//! literals.

use std::path::{Path, PathBuf};

/// One source file.
pub(crate) struct Source {
    /// From the root of the project, with slashes.
    pub(crate) path: String,
    /// Its code: comments and the insides of literals are blank, every line stays in its place.
    pub(crate) code: String,
    /// The same without test modules and test-only items.
    pub(crate) shipped: String,
}

/// The root of the project.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file below this folder of the project; none if there is no such folder.
pub(crate) fn sources(folder: &str) -> Vec<Source> {
    let mut files = Vec::new();
    walk(&root().join(folder), &mut files);
    files.sort();
    files
        .iter()
        .map(|file| {
            let text = std::fs::read_to_string(file)
                .unwrap_or_else(|e| panic!("failed to read {}: {e}", file.display()));
            let path = file
                .strip_prefix(root())
                .unwrap_or(file)
                .to_string_lossy()
                .replace('\\', "/");
            let code = blank(&text);
            let shipped = without_tests(&code);
            Source {
                path,
                code,
                shipped,
            }
        })
        .collect()
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            walk(&path, files);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            files.push(path);
        }
    }
}

/// Blanks comments, and what is between the quotes of strings and characters.
pub(crate) fn blank(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = literal_or_comment(&chars, at);
        if end == at {
            out.push(chars[at]);
            at += 1;
        } else {
            out.extend(
                chars[at..end]
                    .iter()
                    .map(|c| if *c == '\n' { '\n' } else { ' ' }),
            );
            at = end;
        }
    }
    out
}

/// Where the comment or literal that begins here ends; `at` if none does.
fn literal_or_comment(chars: &[char], at: usize) -> usize {
    let is = |offset: usize, c: char| chars.get(at + offset) == Some(&c);
    let word_before = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
    if is(0, '/') && is(1, '/') {
        return at + chars[at..].iter().take_while(|c| **c != '\n').count();
    }
    if is(0, '/') && is(1, '*') {
        return block_comment(chars, at);
    }
    if is(0, 'r')
        && (is(1, '"') || is(1, '#'))
        && (!word_before || chars[at - 1] == 'b' || chars[at - 1] == 'c')
    {
        return raw_string(chars, at);
    }
    if is(0, '"') {
        return quoted(chars, at, '"');
    }
    // A character, and not a lifetime.
    if is(0, '\'') && (is(1, '\\') || is(2, '\'')) {
        return quoted(chars, at, '\'');
    }
    at
}

fn block_comment(chars: &[char], at: usize) -> usize {
    let (mut depth, mut end) = (0, at);
    while end + 1 < chars.len() {
        match (chars[end], chars[end + 1]) {
            ('/', '*') => (depth, end) = (depth + 1, end + 2),
            ('*', '/') => (depth, end) = (depth - 1, end + 2),
            _ => end += 1,
        }
        if depth == 0 {
            return end;
        }
    }
    chars.len()
}

fn raw_string(chars: &[char], at: usize) -> usize {
    let hashes = chars[at + 1..].iter().take_while(|c| **c == '#').count();
    if chars.get(at + 1 + hashes) != Some(&'"') {
        return at;
    }
    let close: Vec<char> = std::iter::once('"')
        .chain(std::iter::repeat_n('#', hashes))
        .collect();
    let body = at + 2 + hashes;
    (body..chars.len())
        .find(|i| chars[*i..].starts_with(&close))
        .map_or(chars.len(), |i| i + close.len())
}

fn quoted(chars: &[char], at: usize, quote: char) -> usize {
    let mut end = at + 1;
    while end < chars.len() && chars[end] != quote {
        end += if chars[end] == '\\' { 2 } else { 1 };
    }
    (end + 1).min(chars.len())
}

/// Blanks every item that has `#[cfg(test)]`, or a longer condition that needs it, on the line
/// before.
fn without_tests(code: &str) -> String {
    let mut out = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(begin) = rest
        .find("#[cfg(test)]")
        .into_iter()
        .chain(rest.find("#[cfg(all(test"))
        .min()
    {
        let (before, item) = rest.split_at(begin);
        out.push_str(before);
        let (blanked, after) = item.split_at(item_end(item));
        out.extend(blanked.chars().filter(|c| *c == '\n'));
        rest = after;
    }
    out.push_str(rest);
    out
}

/// The end of the item that begins here: its closing brace, or its semicolon.
fn item_end(item: &str) -> usize {
    let mut depth = 0_u32;
    for (i, c) in item.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth <= 1 => return i + 1,
            '}' => depth -= 1,
            ';' if depth == 0 => return i + 1,
            _ => {}
        }
    }
    item.len()
}

/// A function, and how many lines it has from its first line to its closing brace.
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) lines: usize,
}

/// Every function with a body.
pub(crate) fn functions(code: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for (begin, _) in code.match_indices("fn ") {
        let starts_word = code[..begin]
            .chars()
            .next_back()
            .is_none_or(|c| c.is_whitespace() || c == '(');
        let name: String = code[begin + 3..]
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        let body = code[begin..]
            .find(['{', ';'])
            .filter(|i| code.as_bytes()[begin + *i] == b'{');
        if let (true, false, Some(_)) = (starts_word, name.is_empty(), body) {
            let end = item_end(&code[begin..]);
            found.push(Function {
                name,
                lines: code[begin..begin + end].lines().count(),
            });
        }
    }
    found
}

/// Every struct with named fields, and how many of them are `bool`.
pub(crate) fn bools(code: &str) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for (begin, _) in code.match_indices("struct ") {
        let name: String = code[begin + 7..]
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        let item = &code[begin..begin + item_end(&code[begin..])];
        let fields = item.find('{').map_or("", |open| &item[open..]);
        found.push((name, fields.matches(": bool").count()));
    }
    found
}

/// Every path that begins at the root of the crate, by its first word: from `crate::a::b` and `use
/// crate::{a, b::c}`.
pub(crate) fn rooms_used(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (begin, _) in code.match_indices("crate::") {
        if code[..begin].ends_with('$') {
            continue;
        }
        let rest = &code[begin + 7..];
        if let Some(group) = rest.strip_prefix('{') {
            let mut depth = 0;
            let words = group.split_inclusive([',', '{', '}']).map(|word| {
                let top = depth == 0;
                depth += word.matches('{').count();
                let closed = word.matches('}').count();
                let ended = closed > depth;
                depth = depth.saturating_sub(closed);
                (top, ended, word)
            });
            for (top, ended, word) in words {
                let name = first_word(word.trim_start());
                if top && !name.is_empty() {
                    found.push(name);
                }
                if ended {
                    break;
                }
            }
        } else {
            found.push(first_word(rest));
        }
    }
    found.sort();
    found.dedup();
    found
}

fn first_word(text: &str) -> String {
    text.chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect()
}
