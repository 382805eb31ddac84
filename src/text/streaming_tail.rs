//! The last words collected as they arrive, through a line function of the host.

use super::lines::Lines;
use super::projection::Projection;
use super::tail::Tail;

/// What a [`LineFunction`] decides about a line.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Line {
    /// Keep the line.
    Keep,
    /// Keep this text instead of the line. It goes through the projection, and may have several
    /// lines.
    KeepAs(String),
    /// Keep nothing of the line.
    Drop,
}

/// A function of the host that sees each line of safe text once, when it is complete, and decides
/// what is kept of it. Install it with [`Command::line_function`](crate::Command::line_function).
pub type LineFunction = dyn Fn(&str) -> Line + Send + Sync;

/// The newest lines of a stream, made as its bytes arrive, for a host that wants to see or to
/// change each line.
///
/// A host that needs neither calls [`Projection::last_lines`] at the end, which gives the same
/// lines and costs nothing before that.
///
/// ```
/// use lastwords::{Line, LiveTail, Projection};
/// let mut seen = 0;
/// let mut tail = LiveTail::new(&Projection::default(), 50, 20);
/// tail.push(b"debug: x\nerror: y\n", &mut |line| {
///     seen += 1;
///     if line.starts_with("debug") { Line::Drop } else { Line::Keep }
/// });
/// assert_eq!((seen, tail.last().collect::<Vec<_>>()), (2, vec!["error: y"]));
/// ```
#[derive(Debug)]
pub struct LiveTail {
    projection: Projection,
    lines: Lines,
    last: Tail,
    late: Tail,
    phase: Phase,
}

/// Which list the next line belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Last,
    /// The line that has begun was given as one of the last, as far as it had come. Its rest is
    /// dropped, and the lines after it are late.
    RestOfLast,
    Late,
}

impl LiveTail {
    /// Keeps the newest `last` lines, and of late ones the newest `late`. Allocates nothing.
    pub fn new(projection: &Projection, last: usize, late: usize) -> LiveTail {
        LiveTail {
            projection: projection.clone(),
            lines: projection.lines(),
            last: Tail::new(last),
            late: Tail::new(late),
            phase: Phase::Last,
        }
    }

    /// Takes the next bytes of the stream and calls `line` for each line that ends in them. If that
    /// panics, the line is dropped.
    pub fn push(&mut self, bytes: &[u8], line: &mut (impl FnMut(&str) -> Line + ?Sized)) {
        let LiveTail {
            projection,
            lines,
            last,
            late,
            phase,
        } = self;
        lines.push(bytes, &mut |text: &str| {
            keep(projection, last, late, phase, text, line)
        });
    }

    /// Starts the list of late lines, which never push out earlier ones. A line that has begun is
    /// given to `line` at once, as far as it has come; its rest is dropped.
    pub fn begin_late(&mut self, line: &mut (impl FnMut(&str) -> Line + ?Sized)) {
        if self.phase != Phase::Last {
            return;
        }
        let LiveTail {
            projection,
            lines,
            last,
            late,
            phase,
        } = self;
        lines.so_far(&mut |text: &str| keep(projection, last, late, phase, text, line));
        self.phase = if self.lines.is_in_line() {
            Phase::RestOfLast
        } else {
            Phase::Late
        };
    }

    /// Ends the stream. A last line without a newline counts.
    pub fn finish(&mut self, line: &mut (impl FnMut(&str) -> Line + ?Sized)) {
        let LiveTail {
            projection,
            lines,
            last,
            late,
            phase,
        } = self;
        lines.finish(&mut |text: &str| keep(projection, last, late, phase, text, line));
    }

    /// The newest lines before [`LiveTail::begin_late`], oldest first.
    pub fn last(&self) -> impl Iterator<Item = &str> {
        self.last.iter()
    }

    /// The newest lines after it, oldest first.
    pub fn late(&self) -> impl Iterator<Item = &str> {
        self.late.iter()
    }
}

/// Keeps what the host decides about a line.
fn keep(
    projection: &Projection,
    last: &mut Tail,
    late: &mut Tail,
    phase: &mut Phase,
    text: &str,
    line: &mut (impl FnMut(&str) -> Line + ?Sized),
) {
    let tail = match *phase {
        Phase::Last => last,
        Phase::Late => late,
        Phase::RestOfLast => {
            *phase = Phase::Late;
            return;
        }
    };
    match line(text) {
        Line::Keep => tail.push(text),
        // The host's own text may hold control characters and secrets.
        Line::KeepAs(text) => projection
            .text(&text)
            .split('\n')
            .for_each(|line| tail.push(line)),
        Line::Drop => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::testing::{captured, fragments};

    #[test]
    fn both_ways_give_the_same() {
        let projection = Projection::default();
        for seed in 1..150 {
            let bytes = fragments(seed, 80);
            let all = captured(&bytes, 1 << 20);
            for mark in [0, bytes.len() / 3, bytes.len()] {
                let mut live = LiveTail::new(&projection, 5, 3);
                let mut line = |_: &str| Line::Keep;
                bytes[..mark]
                    .chunks(7)
                    .for_each(|piece| live.push(piece, &mut line));
                live.begin_late(&mut line);
                bytes[mark..]
                    .chunks(3)
                    .for_each(|piece| live.push(piece, &mut line));
                live.finish(&mut line);
                let (last, late): (Vec<&str>, Vec<&str>) =
                    (live.last().collect(), live.late().collect());
                let so_far = captured(&bytes[..mark], 1 << 20);
                assert_eq!(
                    last,
                    projection.last_lines(&so_far, 0, mark as u64, 5),
                    "{seed} {mark} {bytes:?}"
                );
                assert_eq!(
                    late,
                    projection.last_lines(&all, mark as u64, u64::MAX, 3),
                    "{seed} {mark} {bytes:?}"
                );
            }
        }
    }

    #[test]
    fn a_line_function_drops_and_changes_lines_and_lets_nothing_unsafe_in() {
        let mut tail = LiveTail::new(&Projection::default(), 3, 3);
        tail.push(b"drop me\nkeep me\nchange me\n", &mut |line| match line {
            "drop me" => Line::Drop,
            "change me" => Line::KeepAs("\x1b[1mtoken=x\na\tb\u{202e}".to_owned()),
            _ => Line::Keep,
        });
        assert_eq!(
            tail.last().collect::<Vec<_>>(),
            ["keep me", "token=[redacted]", "a\tb\u{fffd}"]
        );
    }
}
