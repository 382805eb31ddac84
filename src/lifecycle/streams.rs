//! The captured streams of one generation as the drain sees them: open or how they ended, paused or
//! not, and the idle clock.

use crate::report::StreamEnd;
use crate::types::{Ns, Stream};

/// A set of the two streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Set(u8);

impl Set {
    fn has(self, stream: Stream) -> bool {
        self.0 & (1 << stream.index()) != 0
    }
    fn put(&mut self, stream: Stream) {
        self.0 |= 1 << stream.index();
    }
    fn remove(&mut self, stream: Stream) {
        self.0 &= !(1 << stream.index());
    }
    fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// The captured streams.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Streams {
    open: Set,
    paused: Set,
    ends: [Option<StreamEnd>; 2],
    late: [u64; 2],
    /// The later of the exit and the last byte, moved on by the time of pauses.
    last_byte: Ns,
    paused_at: Ns,
}

impl Streams {
    /// These are captured, and open.
    pub(super) fn new(captured: [bool; 2]) -> Streams {
        let mut open = Set::default();
        for stream in Stream::ALL {
            if captured[stream.index()] {
                open.put(stream);
            }
        }
        Streams {
            open,
            paused: Set::default(),
            ends: [None; 2],
            late: [0; 2],
            last_byte: Ns::ZERO,
            paused_at: Ns::ZERO,
        }
    }

    /// Whether this one is captured and has not ended.
    pub(super) fn is_open(&self, stream: Stream) -> bool {
        self.open.has(stream)
    }

    /// Whether any is.
    pub(super) fn any_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// How it ended.
    pub(super) fn end(&self, stream: Stream) -> Option<StreamEnd> {
        self.ends[stream.index()]
    }

    /// Bytes that came after the verdict.
    pub(super) fn late(&self, stream: Stream) -> u64 {
        self.late[stream.index()]
    }

    /// It has brought bytes. False if it is not open.
    pub(super) fn bytes(&mut self, now: Ns, stream: Stream) -> bool {
        if self.open.has(stream) {
            self.last_byte = now;
        }
        self.open.has(stream)
    }

    /// So many of them came after the verdict.
    pub(super) fn count_late(&mut self, stream: Stream, n: u64) {
        let late = &mut self.late[stream.index()];
        *late = late.saturating_add(n);
    }

    /// It has ended. False if it was not open.
    pub(super) fn close(&mut self, now: Ns, stream: Stream, end: StreamEnd) -> bool {
        if !self.open.has(stream) {
            return false;
        }
        self.resume(now, stream);
        self.open.remove(stream);
        self.ends[stream.index()] = Some(end);
        true
    }

    /// It is not read for a while.
    pub(super) fn pause(&mut self, now: Ns, stream: Stream) {
        if self.open.has(stream) {
            if self.paused.is_empty() {
                self.paused_at = now;
            }
            self.paused.put(stream);
        }
    }

    /// It is read again: the idle clock stood since the pause began, or since the last byte of the
    /// other stream.
    pub(super) fn resume(&mut self, now: Ns, stream: Stream) {
        let was = !self.paused.is_empty();
        self.paused.remove(stream);
        if was && self.paused.is_empty() {
            self.last_byte = self
                .last_byte
                .after(now.since(self.paused_at.max(self.last_byte)));
        }
    }

    /// Idle counts from the exit at the earliest.
    pub(super) fn exited(&mut self, now: Ns) {
        self.last_byte = now;
    }

    /// From when on it has been idle; `None` while the clock stands.
    pub(super) fn idle_since(&self) -> Option<Ns> {
        self.paused.is_empty().then_some(self.last_byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Stream::{Stderr, Stdout};

    #[test]
    fn only_captured_streams_are_open_and_each_ends_once() {
        let mut streams = Streams::new([false, true]);
        assert!(!streams.is_open(Stdout) && streams.is_open(Stderr) && streams.any_open());
        assert!(!streams.close(Ns(1), Stdout, StreamEnd::Eof));
        assert!(streams.close(Ns(1), Stderr, StreamEnd::Error));
        assert!(!streams.close(Ns(2), Stderr, StreamEnd::Eof));
        assert_eq!(
            (streams.end(Stdout), streams.end(Stderr)),
            (None, Some(StreamEnd::Error))
        );
        assert!(!streams.any_open() && !streams.bytes(Ns(3), Stderr));
    }

    #[test]
    fn paused_time_does_not_count_as_idle() {
        let mut streams = Streams::new([true, true]);
        streams.exited(Ns(100));
        streams.pause(Ns(110), Stdout);
        assert_eq!(streams.idle_since(), None);
        streams.resume(Ns(150), Stdout);
        // 10 before the pause count, the 40 of the pause do not.
        assert_eq!(streams.idle_since(), Some(Ns(140)));
    }

    #[test]
    fn a_pause_counts_from_the_last_byte_of_the_other_stream_and_until_both_are_read() {
        let mut streams = Streams::new([true, true]);
        streams.exited(Ns(100));
        streams.pause(Ns(50), Stdout);
        streams.pause(Ns(120), Stderr);
        assert!(streams.bytes(Ns(130), Stderr));
        streams.resume(Ns(140), Stdout);
        assert_eq!(streams.idle_since(), None);
        streams.resume(Ns(170), Stderr);
        assert_eq!(streams.idle_since(), Some(Ns(170)));
    }

    #[test]
    fn a_stream_that_ends_while_it_is_paused_lets_the_clock_run_again() {
        let mut streams = Streams::new([true, true]);
        streams.exited(Ns(10));
        streams.pause(Ns(10), Stdout);
        assert!(streams.close(Ns(30), Stdout, StreamEnd::Closed));
        assert_eq!(streams.idle_since(), Some(Ns(30)));
        streams.pause(Ns(40), Stdout);
        assert_eq!(streams.idle_since(), Some(Ns(30)));
    }
}
