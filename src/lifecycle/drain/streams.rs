//! The captured streams of one generation as the drain sees them: open or how they ended, paused
//! or read, and the idle clock.

use crate::report::StreamEnd;
use crate::types::{Ns, Stream};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct StreamSet(u8);

impl StreamSet {
    fn contains(self, stream: Stream) -> bool {
        self.0 & (1 << stream.index()) != 0
    }

    fn insert(&mut self, stream: Stream) {
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
pub(in crate::lifecycle) struct Streams {
    open: StreamSet,
    paused: StreamSet,
    ends: [Option<StreamEnd>; 2],
    late: [u64; 2],
    /// The later of the exit and the last byte, plus the time that streams were paused since.
    idle_since: Ns,
    /// When the first of the streams that are paused was paused.
    paused_at: Ns,
}

impl Streams {
    /// Streams of which the captured ones are open. `captured`: stdout, stderr.
    pub(super) fn new(captured: [bool; 2]) -> Streams {
        let mut open = StreamSet::default();
        for stream in Stream::ALL {
            if captured[stream.index()] {
                open.insert(stream);
            }
        }
        Streams {
            open,
            paused: StreamSet::default(),
            ends: [None; 2],
            late: [0; 2],
            idle_since: Ns::ZERO,
            paused_at: Ns::ZERO,
        }
    }

    /// The stream is captured and has not ended.
    pub(in crate::lifecycle) fn is_open(&self, stream: Stream) -> bool {
        self.open.contains(stream)
    }

    pub(in crate::lifecycle) fn any_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// How the stream ended. `None` while it is open, and if it is not captured.
    pub(in crate::lifecycle) fn end(&self, stream: Stream) -> Option<StreamEnd> {
        self.ends[stream.index()]
    }

    /// Bytes that came after the verdict.
    pub(in crate::lifecycle) fn late(&self, stream: Stream) -> u64 {
        self.late[stream.index()]
    }

    /// Moves the idle clock for bytes that came. False if the stream is not open.
    pub(super) fn record_bytes(&mut self, now: Ns, stream: Stream) -> bool {
        if self.open.contains(stream) {
            self.idle_since = now;
        }
        self.open.contains(stream)
    }

    /// Counts bytes that came after the verdict.
    pub(super) fn record_late(&mut self, stream: Stream, n: u64) {
        let late = &mut self.late[stream.index()];
        *late = late.saturating_add(n);
    }

    /// Records the end of a stream. False if it was not open.
    pub(super) fn close(&mut self, now: Ns, stream: Stream, end: StreamEnd) -> bool {
        if !self.open.contains(stream) {
            return false;
        }
        self.resume(now, stream);
        self.open.remove(stream);
        self.ends[stream.index()] = Some(end);
        true
    }

    /// Stops the idle clock while the host holds back this stream.
    pub(super) fn pause(&mut self, now: Ns, stream: Stream) {
        if self.open.contains(stream) {
            if self.paused.is_empty() {
                self.paused_at = now;
            }
            self.paused.insert(stream);
        }
    }

    /// Lets the idle clock run again once no stream is paused. The clock stood since the pause
    /// began, or since the last byte of the other stream if that is later.
    pub(super) fn resume(&mut self, now: Ns, stream: Stream) {
        let was_paused = !self.paused.is_empty();
        self.paused.remove(stream);
        if was_paused && self.paused.is_empty() {
            let stood = now.since(self.paused_at.max(self.idle_since));
            self.idle_since = self.idle_since.after(stood);
        }
    }

    /// Idle time counts from the exit at the earliest.
    pub(super) fn start_idle_clock(&mut self, exit_at: Ns) {
        self.idle_since = exit_at;
    }

    /// The beginning of the current idle time. `None` while the clock stands.
    pub(super) fn idle_since(&self) -> Option<Ns> {
        self.paused.is_empty().then_some(self.idle_since)
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
        assert!(!streams.any_open() && !streams.record_bytes(Ns(3), Stderr));
    }

    #[test]
    fn paused_time_does_not_count_as_idle() {
        let mut streams = Streams::new([true, true]);
        streams.start_idle_clock(Ns(100));
        streams.pause(Ns(110), Stdout);
        assert_eq!(streams.idle_since(), None);
        streams.resume(Ns(150), Stdout);
        // The 10 before the pause count; the 40 of the pause do not.
        assert_eq!(streams.idle_since(), Some(Ns(140)));
    }

    #[test]
    fn a_pause_counts_from_the_last_byte_of_the_other_stream_and_until_both_are_read() {
        let mut streams = Streams::new([true, true]);
        streams.start_idle_clock(Ns(100));
        streams.pause(Ns(50), Stdout);
        streams.pause(Ns(120), Stderr);
        assert!(streams.record_bytes(Ns(130), Stderr));
        streams.resume(Ns(140), Stdout);
        assert_eq!(streams.idle_since(), None);
        streams.resume(Ns(170), Stderr);
        assert_eq!(streams.idle_since(), Some(Ns(170)));
    }

    #[test]
    fn a_stream_that_ends_while_it_is_paused_lets_the_clock_run_again() {
        let mut streams = Streams::new([true, true]);
        streams.start_idle_clock(Ns(10));
        streams.pause(Ns(10), Stdout);
        assert!(streams.close(Ns(30), Stdout, StreamEnd::Closed));
        assert_eq!(streams.idle_since(), Some(Ns(30)));
        streams.pause(Ns(40), Stdout);
        assert_eq!(streams.idle_since(), Some(Ns(30)));
    }
}
