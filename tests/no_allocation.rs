//! A turn allocates nothing once the loop is warmed up; what is kept stays within its bound.
//! Counted, not timed.

#![expect(unsafe_code, reason = "an allocator that counts is an allocator")]

#[path = "behaviour/common/mod.rs"]
mod common;

use common::host::Host;
use common::{LONG, Way, every_way, ms};
use lastwords::{Capture, Command, Event, Generation, Line, Output, Reactor, Stream};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// The system's allocator, counting for each thread.
struct Counting;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    calls: u64,
    /// Bytes allocated and not freed, and the most that this has been.
    live: i64,
    peak: i64,
}

thread_local! {
    static COUNT: Cell<Count> = const { Cell::new(Count { calls: 0, live: 0, peak: 0 }) };
}

fn note(calls: u64, bytes: i64) {
    COUNT.with(|count| {
        let mut now = count.get();
        now.calls += calls;
        now.live += bytes;
        now.peak = now.peak.max(now.live);
        count.set(now);
    });
}

fn size(layout: Layout) -> i64 {
    i64::try_from(layout.size()).unwrap_or(i64::MAX)
}

// SAFETY: every call is the system allocator's; only numbers are kept beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(1, size(layout));
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(1, size(layout));
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new: usize) -> *mut u8 {
        note(1, i64::try_from(new).unwrap_or(i64::MAX) - size(layout));
        // SAFETY: as the caller promises.
        unsafe { System.realloc(block, layout, new) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        note(0, -size(layout));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations that `body` makes in this thread.
fn allocations<R>(body: impl FnOnce() -> R) -> (u64, R) {
    let before = COUNT.get().calls;
    let result = body();
    (COUNT.get().calls - before, result)
}

every_way! {
    turns_allocate_nothing_while_bytes_are_only_kept,
    turns_and_events_allocate_nothing_while_bytes_are_delivered,
    turns_allocate_nothing_while_a_line_function_sees_every_line,
    turns_allocate_nothing_when_quiet_children_exit,
    turns_allocate_nothing_while_a_stdin_is_written,
    turns_allocate_nothing_when_there_is_nothing_to_do,
    what_is_kept_stays_within_its_bound,
}

/// Drives all that runs to its end; allocations of the turns, and of the events but the last one of
/// each generation.
fn drive(reactor: &mut Reactor) -> (u64, u64) {
    let (mut turns, mut events) = (0, 0);
    let begun = Instant::now();
    while reactor.is_busy() {
        assert!(begun.elapsed() < LONG);
        let (count, turn) = allocations(|| reactor.turn(Some(ms(1000))));
        turns += count;
        let _turn = turn.expect("a turn");
        loop {
            let before = COUNT.get().calls;
            let Some(event) = reactor.next_event() else {
                break;
            };
            let count = COUNT.get().calls - before;
            // The report is made when it is asked for.
            if !matches!(event, Event::Closed { .. }) {
                events += count;
            }
        }
    }
    (turns, events)
}

/// Runs them all at once, again and again: sooner or later the loop has all that it will ever need,
/// and a run allocates nothing. How much is needed at the same time depends on who is scheduled
/// when, so a few runs may each need a block more.
fn assert_settles(way: Way, commands: impl Fn(&Host) -> Vec<Command>) {
    let mut host = Host::new(way);
    let commands = commands(&host);
    let mut counts = Vec::new();
    while counts.last() != Some(&(0, 0)) {
        assert!(
            counts.len() < 15,
            "every run allocates, in turns and in events: {counts:?}"
        );
        for command in &commands {
            host.reactor.spawn(command).expect("a process");
        }
        counts.push(drive(&mut host.reactor));
    }
    host.finish();
}

fn noisy(host: &Host, capture: Capture) -> Vec<Command> {
    (0..4)
        .map(|n| {
            let mut command = host.shell(&format!("head -c {} /dev/zero", (n + 1) * 3_000_000));
            command.stdout(capture).stderr(Output::Null);
            command
        })
        .collect()
}

fn turns_allocate_nothing_while_bytes_are_only_kept(way: Way) {
    for keep in [1000, 64 << 10, 1 << 20] {
        assert_settles(way, |host| noisy(host, Capture::default().max_bytes(keep)));
    }
}

fn turns_and_events_allocate_nothing_while_bytes_are_delivered(way: Way) {
    for ahead in [4096, 256 << 10] {
        assert_settles(way, |host| {
            noisy(
                host,
                Capture::default()
                    .max_bytes(0)
                    .deliver(true)
                    .high_water_mark(ahead),
            )
        });
    }
}

/// The memory is the generation's own: it is warm once its longest lines have been held.
fn turns_allocate_nothing_while_a_line_function_sees_every_line(way: Way) {
    let mut host = Host::new(way);
    let line = "printf '\\033[1mtoken=%s\\033[0m %d%%\\r%1000s\\n' abcdefgh $n ''";
    let mut command = host.shell(&format!("n=0; while :; do n=$((n+1)); {line}; done >&2"));
    let lines = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let count = lines.clone();
    command
        .stderr(Capture::default().max_bytes(64 << 10))
        .line_function(move |_| {
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Line::Keep
        });
    let child = host.spawn(&command);
    let seen = || lines.load(std::sync::atomic::Ordering::Relaxed);
    host.until("warm", |_| seen() > 3000);
    let (count, ()) = allocations(|| {
        let until = seen() + 1000;
        while seen() < until {
            let _turn = host.reactor.turn(Some(ms(1000))).expect("a turn");
        }
    });
    assert_eq!(count, 0);
    host.reactor.kill(child);
    host.until_closed(child);
    host.finish();
}

fn turns_allocate_nothing_when_quiet_children_exit(way: Way) {
    assert_settles(way, |host| {
        (0..30).map(|n| host.shell(&format!("exit {n}"))).collect()
    });
}

fn turns_allocate_nothing_while_a_stdin_is_written(way: Way) {
    assert_settles(way, |host| {
        let mut command = host.shell("exec cat");
        command
            .stdin(vec![0; 4 << 20])
            .stdout(Capture::default().max_bytes(4096));
        vec![command]
    });
}

fn turns_allocate_nothing_when_there_is_nothing_to_do(way: Way) {
    let mut host = Host::new(way);
    let command = host.shell("exec sleep 60");
    let child: Generation = host.spawn(&command);
    host.idle(ms(50));
    let (count, ()) = allocations(|| {
        for _ in 0..50 {
            let _turn = host.reactor.turn(Some(ms(1))).expect("a turn");
            assert!(host.reactor.next_event().is_none());
            assert!(
                host.reactor
                    .next_deadline()
                    .is_none_or(|at| at > Instant::now() - Duration::from_secs(60))
            );
        }
    });
    assert_eq!(count, 0);
    host.reactor.kill(child);
    host.until_closed(child);
    host.finish();
}

/// CASES 11. 4 MiB to stderr, 2 MiB kept: the allocator says so too.
fn what_is_kept_stays_within_its_bound(way: Way) {
    let mut host = Host::new(way);
    let command = host.shell("head -c 4194304 /dev/zero | tr '\\0' x >&2");
    let begun = COUNT.get().live;
    let child = host.reactor.spawn(&command).expect("a process");
    COUNT.set(Count {
        peak: begun,
        ..COUNT.get()
    });
    let mut most = 0;
    while host
        .reactor
        .kept(child, Stream::Stderr)
        .is_some_and(|kept| kept.total() < 4 << 20)
    {
        let _turn = host.reactor.turn(Some(ms(1000))).expect("a turn");
        let kept = host.reactor.kept(child, Stream::Stderr).expect("captured");
        most = most.max(kept.len());
        if kept.total() < 4 << 20 {
            assert!(
                COUNT.get().peak - begun <= (2 << 20) + (512 << 10),
                "{:?} after {begun}",
                COUNT.get()
            );
        }
    }
    assert_eq!(most, 2 << 20);
    let (_, _) = drive(&mut host.reactor);
    host.finish();
}
