//! The termination message of a container: last words in a file that Kubernetes mounts and reads.

use super::report_file;
use lastwords::Report;
use rustix::fs::{Access, access};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

/// The most bytes that Kubernetes reads from `terminationMessagePath`.
const MOST: usize = 4096;

/// Checks before the run, as far as possible, that the file can be written.
pub(crate) fn check(path: &Path) -> io::Result<()> {
    report_file::check(path)?;
    match access(path, Access::WRITE_OK) {
        // The file is created when it is written.
        Err(rustix::io::Errno::NOENT) => Ok(access(
            report_file::directory(path),
            Access::WRITE_OK | Access::EXEC_OK,
        )?),
        there => Ok(there?),
    }
}

/// Writes the file in place. Kubernetes would not see a file that is renamed over the mounted one.
pub(crate) fn write(path: &Path, report: &Report) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)?;
    file.write_all(message(report).as_bytes())
}

/// The newest lines that fit, or the end of the last line. For a command that could not be started,
/// the reason.
fn message(report: &Report) -> String {
    if let Some(error) = &report.error {
        return newest(&format!("failed to {error}\n")).to_owned();
    }
    let lines = report.stderr_tail.iter().chain(&report.late_tail);
    let text: String = lines.flat_map(|line| [line.as_str(), "\n"]).collect();
    newest(&text).to_owned()
}

fn newest(text: &str) -> &str {
    let mut from = text.len().saturating_sub(MOST);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    if from == 0 {
        return text;
    }
    // A line that is cut at its beginning is left out, unless it is the last one.
    let is_cut = !text[..from].ends_with('\n');
    match text[from..].find('\n') {
        Some(end) if is_cut && from + end + 1 < text.len() => &text[from + end + 1..],
        _ => &text[from..],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_lines_are_kept_whole_and_the_last_one_in_any_case() {
        assert_eq!(newest("a\nb\n"), "a\nb\n");
        assert_eq!(newest(""), "");
        let line = |c: &str, n: usize| format!("{}\n", c.repeat(n));
        let fits = line("x", MOST - 1);
        assert_eq!(newest(&fits), fits);
        assert_eq!(newest(&format!("old\n{fits}")), fits);
        assert_eq!(
            newest(&format!("{}{}", line("a", 100), line("b", 4000))),
            line("b", 4000)
        );
        let long = line("\u{e9}", 5000);
        assert_eq!(newest(&long).len(), MOST - 1);
        assert!(long.ends_with(newest(&long)));
    }
}
