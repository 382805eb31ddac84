//! The last words as text: made of the kept bytes when somebody looks at them, and only then.
//!
//! ```text
//!  exit, streams read out     the place is marked: what came so far are the last words, what comes later is late
//!  the host looks, Closed     the text is made, once
//!  another byte of the stream, a delivery beyond the bound, the stream is taken away
//!                             the text is made before that: nothing pushes out a last word
//! ```
//!
//! So the verdict does not wait for text that nobody may want to see.

use super::slot::Entry;
use crate::types::Stream;
use std::fmt;
use std::ops::Deref;
use std::sync::OnceLock;

/// The words of a generation, as far as they were made. In locks only because a loop may be shared
/// with other threads.
#[derive(Debug, Default)]
pub(super) struct Words {
    last: OnceLock<Vec<String>>,
    late: OnceLock<Vec<String>>,
}

/// The last lines of stderr, as safe text. They are made when they are looked at for the first time
/// (ten to thirty microseconds for fifty lines), of what was there when the exit was seen; the
/// report has the same.
///
/// ```
/// use lastwords::{Command, Event, Reactor};
/// let mut reactor = Reactor::new()?;
/// reactor.spawn(&Command::shell("echo one >&2; echo two >&2"))?;
/// while let Some(event) = reactor.wait_event(None)? {
///     if let Event::Drained { last_words, .. } = event {
///         assert_eq!(last_words.join("\n"), "one\ntwo");
///         for line in last_words {
///             eprintln!("| {line}");
///         }
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct LastWords<'r> {
    entry: &'r Entry,
}

impl<'r> LastWords<'r> {
    pub(super) fn of(entry: &'r Entry) -> LastWords<'r> {
        LastWords { entry }
    }

    /// The lines, oldest first.
    pub fn lines(self) -> &'r [String] {
        self.entry.last_words()
    }
}

impl Deref for LastWords<'_> {
    type Target = [String];

    fn deref(&self) -> &[String] {
        self.lines()
    }
}

impl<'r> IntoIterator for LastWords<'r> {
    type Item = &'r String;
    type IntoIter = std::slice::Iter<'r, String>;

    fn into_iter(self) -> Self::IntoIter {
        self.lines().iter()
    }
}

/// The lines.
impl fmt::Debug for LastWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines().fmt(f)
    }
}

impl Entry {
    /// The last words; none before they were marked.
    pub(super) fn last_words(&self) -> &[String] {
        let Some((told, mark)) = self.told.as_ref().and_then(|told| Some((told, told.mark?)))
        else {
            return &[];
        };
        told.words.last.get_or_init(|| self.make(0, mark, 0))
    }

    /// Those that came later; none before nothing comes any more.
    fn late_words(&self) -> &[String] {
        let closed = self.told.as_ref().filter(|told| told.closed.is_some());
        let Some((told, mark)) = closed.and_then(|told| Some((told, told.mark?))) else {
            return &[];
        };
        told.words.late.get_or_init(|| self.make(mark, u64::MAX, 1))
    }

    /// The lines that begin at the offsets from `from` to below `to`; `which`: the last (0) or the
    /// late ones (1).
    fn make(&self, from: u64, to: u64, which: usize) -> Vec<String> {
        let Some(channel) = self.channel(self.run.words_from()) else {
            return Vec::new();
        };
        let lines = if which == 0 {
            self.run.last_words.lines
        } else {
            self.run.last_words.late_lines
        };
        match &channel.watch {
            Some(watch) if which == 0 => watch.tail().last().map(str::to_owned).collect(),
            Some(watch) => watch.tail().late().map(str::to_owned).collect(),
            None if from >= channel.captured.total() => Vec::new(),
            None => self
                .run
                .projection
                .last_lines(&channel.captured, from, to, lines),
        }
    }

    /// There are words of this stream that are not text yet.
    pub(super) fn owes_words(&self, stream: Stream) -> bool {
        let Some(told) = self.told.as_ref().filter(|told| told.mark.is_some()) else {
            return false;
        };
        let Words { last, late } = &told.words;
        let is_owed = last.get().is_none() || (told.closed.is_some() && late.get().is_none());
        is_owed && stream == self.run.words_from()
    }

    /// Makes text of what is marked, before something changes of the bytes of this stream.
    pub(super) fn settle_words(&self, stream: Stream) {
        if self.owes_words(stream) {
            self.last_words();
            self.late_words();
        }
    }

    /// Both, for the report: they are made now at the latest, and nothing is owed any more.
    pub(super) fn take_words(&mut self) -> [Vec<String>; 2] {
        self.settle_words(self.run.words_from());
        let Some(told) = &mut self.told else {
            return Default::default();
        };
        told.mark = None;
        let Words { last, late } = &mut told.words;
        [
            last.take().unwrap_or_default(),
            late.take().unwrap_or_default(),
        ]
    }
}
