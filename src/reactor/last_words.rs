//! The last words as text: rendered from the kept bytes when somebody looks at them, and not
//! before.
//!
//! ```text
//!  exit, streams read out     marked: what came so far are the last words, what comes later is late
//!  the host looks, Closed     rendered, once
//!  another byte of the stream, a delivery beyond the bound, the stream is taken
//!                             rendered before that: nothing pushes out a last word
//! ```
//!
//! So the verdict does not wait for text that nobody may want to see.

use super::Reactor;
use super::entry::Entry;
use crate::kernel::Kernel;
use crate::types::Stream;
use std::fmt;
use std::ops::Deref;
use std::sync::OnceLock;

/// Lines of a generation that have been rendered. In locks only because events lend them from a
/// shared reference.
#[derive(Debug, Default)]
pub(super) struct RenderedWords {
    last: OnceLock<Vec<String>>,
    late: OnceLock<Vec<String>>,
}

/// Which lines are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Words {
    /// What had come when the exit was seen.
    Last,
    /// What came after that.
    Late,
}

/// The last lines of stderr (of stdout, if both are one pipe), as safe text: what had come when the
/// exit was seen, at most [`LastWordsPolicy::lines`](crate::LastWordsPolicy::lines) lines of at
/// most 8 KiB.
///
/// They are rendered when they are looked at for the first time, which takes ten to thirty
/// microseconds for fifty lines; the report has the same lines.
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

/// Shows the lines.
impl fmt::Debug for LastWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines().fmt(f)
    }
}

impl<K: Kernel> Reactor<K> {
    /// Marks what has come so far as the last words; once. They become text when they are asked
    /// for, or right before anything changes about the bytes that they are made of.
    pub(super) fn mark_last_words(&mut self, key: usize) {
        let entry = &mut self.table[key];
        if entry.late_words_from().is_some() {
            return;
        }
        let channel = entry.channel_mut(entry.command.last_words_stream());
        let total = channel
            .as_ref()
            .map_or(0, |channel| channel.captured.total());
        if let Some(filter) = channel.and_then(|channel| channel.filter.as_mut()) {
            filter.begin_late(&mut self.outbox.panic);
        }
        entry.exit_state_mut(&mut self.memory.boxes).late_words_from = Some(total);
    }
}

impl Entry {
    fn late_words_from(&self) -> Option<u64> {
        self.exit_state.as_ref()?.late_words_from
    }

    /// The last words; none before they are marked.
    fn last_words(&self) -> &[String] {
        let (Some(state), Some(to)) = (&self.exit_state, self.late_words_from()) else {
            return &[];
        };
        let render = || self.render(Words::Last, 0, to);
        state.words.last.get_or_init(render)
    }

    /// The lines that came later; none before nothing comes any more.
    fn late_words(&self) -> &[String] {
        let (Some(state), Some(from), Some(_)) =
            (&self.exit_state, self.late_words_from(), self.closed())
        else {
            return &[];
        };
        let render = || self.render(Words::Late, from, u64::MAX);
        state.words.late.get_or_init(render)
    }

    /// The lines that begin at the offsets from `from` to below `to`.
    fn render(&self, which: Words, from: u64, to: u64) -> Vec<String> {
        let Some(channel) = self.channel(self.command.last_words_stream()) else {
            return Vec::new();
        };
        let policy = &self.command.last_words;
        let lines = match which {
            Words::Last => policy.lines,
            Words::Late => policy.late_lines,
        };
        match (&channel.filter, which) {
            (Some(filter), Words::Last) => filter.tail().last().map(str::to_owned).collect(),
            (Some(filter), Words::Late) => filter.tail().late().map(str::to_owned).collect(),
            (None, _) if from >= channel.captured.total() => Vec::new(),
            (None, _) => {
                let projection = &self.command.projection;
                projection.last_lines(&channel.captured, from, to, lines)
            }
        }
    }

    /// There are marked words of this stream that are not text yet.
    pub(super) fn has_unrendered_words(&self, stream: Stream) -> bool {
        let Some(state) = &self.exit_state else {
            return false;
        };
        let RenderedWords { last, late } = &state.words;
        let is_unrendered =
            last.get().is_none() || (state.closed.is_some() && late.get().is_none());
        state.late_words_from.is_some()
            && is_unrendered
            && stream == self.command.last_words_stream()
    }

    /// Renders what is marked, before something changes about the bytes of this stream.
    pub(super) fn render_last_words(&self, stream: Stream) {
        if self.has_unrendered_words(stream) {
            self.last_words();
            self.late_words();
        }
    }

    /// Takes the last and the late words for the report. Nothing is marked any more.
    pub(super) fn take_words(&mut self) -> [Vec<String>; 2] {
        self.render_last_words(self.command.last_words_stream());
        let Some(state) = &mut self.exit_state else {
            return Default::default();
        };
        state.late_words_from = None;
        let RenderedWords { last, late } = &mut state.words;
        [
            last.take().unwrap_or_default(),
            late.take().unwrap_or_default(),
        ]
    }
}
