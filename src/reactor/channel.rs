//! One captured stream of one generation: its bytes, whether it is read, and whether it is
//! delivered.

use super::line_filter::LineFilter;
use crate::capture::Captured;
use crate::command::shared::SharedCommand;
use crate::types::{Errno, Stream, limits};

/// What the loop keeps of one output stream.
#[derive(Debug)]
pub(super) enum StreamSlot {
    /// The stream is not captured, or its bytes were taken.
    Absent,
    /// The stream is captured, and nothing was read from it yet. An idle child costs no more than
    /// this.
    Unallocated,
    /// The stream has been read from, paused or looked at.
    Active(Box<Channel>),
}

/// A captured stream that has been read from, paused or looked at.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) captured: Captured,
    pub(super) listing: Listing,
    pub(super) backlog: Backlog,
    pub(super) delivery: Delivery,
    /// Bytes that the read-out under way may still read; 0 when none is under way.
    pub(super) read_out_left: u64,
    /// The most bytes that the pipe can hold.
    pub(super) capacity: u64,
    /// Offset of the first byte that came after the verdict.
    pub(super) late_from: Option<u64>,
    /// An output item of this stream stands in the outbox.
    pub(super) is_offered: bool,
    /// The host's line function, if it sees this stream.
    pub(super) filter: Option<Box<LineFilter>>,
    /// Why reading has ended, if that was an error.
    pub(super) error: Option<Errno>,
}

impl Channel {
    pub(super) fn new(command: &SharedCommand, stream: Stream) -> Channel {
        let capture = command.captures[stream.index()];
        Channel {
            captured: Captured::new(
                capture.max_bytes,
                capture.deliver,
                capture.high_water_mark.max(1),
                capture.lossy,
            ),
            listing: Listing::Unlisted,
            backlog: Backlog::BelowMark,
            delivery: Delivery::Flowing,
            read_out_left: 0,
            capacity: pipe_capacity(capture.pipe),
            late_from: None,
            is_offered: false,
            filter: LineFilter::for_stream(command, stream),
            error: None,
        }
    }

    /// A read-out of the generation reads this stream: the ready list leaves it alone meanwhile.
    pub(super) fn is_being_read_out(&self) -> bool {
        self.read_out_left > 0
    }
}

/// Where a stream stands with regard to the list of streams that may have bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listing {
    /// Not on the list. The next byte makes a notice.
    Unlisted,
    /// On the list, once.
    Listed,
    /// It may have bytes and is not read, because its backlog is full. It goes back on the list
    /// when the host has taken enough.
    Withheld,
}

/// How many undelivered bytes there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backlog {
    /// Fewer than [`Capture::high_water_mark`](crate::Capture::high_water_mark): the stream is
    /// read.
    BelowMark,
    /// As many or more: the stream is not read, and the idle clock of the drain stands.
    Full,
}

/// Whether the host wants the bytes of a stream now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    /// Bytes are offered as events.
    Flowing,
    /// The host has called `pause_output`: bytes are read up to the high-water mark and not
    /// offered.
    PausedByHost,
    /// It was paused, and withholds nothing any more: the host has closed the stream, or the
    /// drain's limit has passed. Bytes are not offered; they can be taken after `Closed`.
    Abandoned,
}

/// The most that a pipe of the requested capacity can hold: the kernel rounds up to a power of two
/// of pages, and gives an unprivileged user at most /proc/sys/fs/pipe-max-size, 1 MiB (pipe(7)).
fn pipe_capacity(requested: Option<u32>) -> u64 {
    requested
        .map_or(64 << 10, |bytes| u64::from(bytes).next_power_of_two())
        .max(limits::PIPE_MAX)
}
