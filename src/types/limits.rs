//! Every bound of the crate, in one place, with what must hold between them.

use std::time::Duration;

/// Notices that one wait can take; what is beyond stays with the kernel.
pub const NOTICES: usize = 1024;
/// Reads in one batch: no exit waits behind more than this (0.1 ms).
pub const BATCH: usize = 8;
/// Reads of generations that still run, in one turn, if the host says nothing: 1 MiB at most, about
/// 0.3 ms. (Bench `turn`: with 32 of them the slowest turns are above a millisecond, and a byte
/// costs the same.)
pub const TURN_READS: usize = 16;
/// The most that a host may ask for: 64 MiB.
pub const TURN_READS_MOST: usize = 1024;
/// Bytes that last reads and exit sweeps may take in one turn.
pub const LAST_READ_BYTES: u64 = 4 << 20;
/// Children asked by pid in one call, where SIGCHLD is the exit watch.
pub const SIGCHLD_BATCH: usize = 256;
/// How often the SIGCHLD way asks all children of its own accord.
pub const SIGCHLD_POLL: Duration = Duration::from_secs(1);
/// Processes looked at in one slice of a /proc scan.
pub const SCAN_BUDGET: usize = 64;
/// Passes over /proc until two in a row found the same members.
pub const SCAN_PASSES: u32 = 8;
/// How long the holders of a pipe are looked for.
pub const HOLDER_TIME: Duration = Duration::from_millis(100);
/// Holders that one report lists.
pub const HOLDERS: usize = 256;
/// Members of one group whose end is watched through a descriptor of their own.
pub const WATCHED: usize = 64;
/// Members that one scan lists for a generation.
pub const MEMBERS: usize = 4096;
/// Pipes of kept work that the kernel object goes on reading.
pub const LINGERERS: usize = 64;
/// The sizes a block of captured bytes can have.
pub const BLOCK_SIZES: [usize; 4] = [1 << 10, 4 << 10, 16 << 10, 64 << 10];
/// The largest block.
pub const BLOCK: usize = BLOCK_SIZES[3];
/// The most that a pipe holds if nobody asked for more (pipe(7), pipe-max-size).
pub const PIPE_MAX: u64 = 1 << 20;
/// Bytes written to one stdin in one turn.
pub const STDIN_BYTES: u64 = 1 << 20;
/// Bytes of free blocks that a pool keeps.
pub const POOL_BYTES: usize = 8 << 20;
/// Boxes for what is not kept of an idle generation (a stream's state, what is told) that a loop
/// keeps for its next ones, of each kind.
pub const SPARE_BOXES: usize = 64;
/// Bytes of a stream that are kept, if the host says nothing.
pub const KEEP: u64 = 2 << 20;
/// Undelivered bytes at which a stream is not read any more.
pub const AHEAD: u64 = 256 << 10;
/// Lines of `stderr_tail`.
pub const TAIL_LINES: usize = 50;
/// Lines of `late_tail`.
pub const LATE_LINES: usize = 20;
/// Bytes of one line, the mark for what was cut included.
pub const LINE: usize = 8 << 10;
/// Life-cycle events that one generation can have waiting.
pub const EVENTS: usize = 7;
/// How long a dropped loop may take to kill and reap.
pub const DROP_BOUND: Duration = Duration::from_millis(100);
/// Without a byte for so long after the exit, the drain is over.
pub const DRAIN_IDLE: Duration = Duration::from_secs(2);
/// So long after the exit, the drain is over whatever arrives.
pub const DRAIN_LIMIT: Duration = Duration::from_secs(5);
/// From the stop's signal to SIGKILL.
pub const STOP_GRACE: Duration = Duration::from_secs(2);
/// How long a signal of a stop waits, at most, for the list of those whom it will end. The list takes
/// milliseconds; on a loaded machine the loop may not get to it for longer.
pub const SURVIVOR_LIST_TIME: Duration = Duration::from_secs(1);
/// From SIGKILL to `Stuck`.
pub const STUCK_AFTER: Duration = Duration::from_secs(5);
/// How long a survivor may live before it counts as background work.
pub const BACKGROUND_GRACE: Duration = Duration::from_secs(2);
/// The grace of a policy that only reports: what is left then is listed, and left alone.
pub const REPORT_GRACE: Duration = Duration::from_millis(100);
/// How long background work is waited for.
pub const BACKGROUND_WAIT: Duration = Duration::from_secs(30 * 60);
/// From SIGTERM to SIGKILL for background work that outlives the wait.
pub const TERMINATE_GRACE: Duration = Duration::from_secs(5);
/// First and last pause between two looks at members that cannot be watched.
pub const GROUP_POLL: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];
/// First and last pause between two looks at a spawn that is under way and of which nothing else is
/// heard. Most children have said something by the first one, or have ended, so that it costs them
/// no wake-up.
pub const SPAWN_POLL: [Duration; 2] = [Duration::from_millis(4), Duration::from_secs(1)];
/// Interval at which the leader of a child that shares the terminal is asked whether it was
/// stopped.
pub const JOB_CHECK: Duration = Duration::from_millis(100);
/// Bytes of stack for a child between clone and exec.
pub const SPAWN_STACK: usize = 64 << 10;
/// Such stacks that a loop keeps for its next children.
pub const SPAWN_STACKS: usize = 16;
/// Nanoseconds of one tick of the timer wheel, as a power of two: 2^20 ns.
pub const TICK_BITS: u32 = 20;

const _: () = assert!(BATCH * BLOCK <= LAST_READ_BYTES as usize);
const _: () = assert!(
    BLOCK_SIZES[0] < BLOCK_SIZES[1] && BLOCK_SIZES[1] < BLOCK_SIZES[2] && BLOCK_SIZES[2] < BLOCK
);
const _: () = assert!(TURN_READS <= TURN_READS_MOST);
const _: () = assert!(AHEAD <= KEEP);
const _: () = assert!(POOL_BYTES >= BATCH * BLOCK);
const _: () = assert!(LATE_LINES <= TAIL_LINES);
