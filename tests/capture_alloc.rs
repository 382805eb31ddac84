//! What the capture of a stream allocates, counted: nothing after warm-up, and never more than its
//! bound.
#![expect(unsafe_code, reason = "a counting allocator is an unsafe trait")]

use lastwords::__internals::capture::Pool;
use lastwords::__internals::types::limits::{BLOCK, POOL_BYTES};
use lastwords::sim::Ns;
use lastwords::{Captured, Line, LiveTail, Projection};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Counts what the thread of one test does, so that tests beside it do not matter.
struct Counting;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
    static HELD: Cell<i64> = const { Cell::new(0) };
}

fn count(calls: u64, bytes: i64) {
    CALLS.set(CALLS.get() + calls);
    HELD.set(HELD.get() + bytes);
}

// SAFETY: everything is left to the system's allocator; counting allocates nothing (constant
// thread-locals without drop).
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(1, size as i64 - layout.size() as i64);
        // SAFETY: as above.
        unsafe { System.realloc(old, layout, size) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        count(0, -(layout.size() as i64));
        // SAFETY: as above.
        unsafe { System.dealloc(old, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Reads that bring `sizes` in turn until `total` bytes have come.
fn feed(captured: &mut Captured, pool: &mut Pool, sizes: &[usize], total: usize) {
    let mut spare = pool.take(BLOCK);
    let (mut done, mut turn) = (0, 0);
    while done < total {
        let n = sizes[turn % sizes.len()].min(total - done);
        turn += 1;
        let room = captured.room();
        spare = captured.store(pool, room, spare, n, Ns(done as u64));
        done += n;
    }
    pool.put(spare);
}

#[test]
fn two_hundred_megabytes_through_a_small_bound_allocate_nothing_after_warm_up() {
    const KEEP: usize = 2 << 20;
    let before = HELD.get();
    let mut pool = Pool::new(POOL_BYTES);
    let mut captured = Captured::new(KEEP as u64, false, 0, false);
    let empty = HELD.get() - before;
    for (n, sizes) in [
        [BLOCK, 30_000, 1],
        [BLOCK, BLOCK, BLOCK],
        [1, 4096, BLOCK],
        [30_000, 100, 7],
    ]
    .iter()
    .enumerate()
    {
        let calls = CALLS.get();
        feed(&mut captured, &mut pool, sizes, 64 << 20);
        if n > 0 {
            assert_eq!(CALLS.get() - calls, 0, "reads of {sizes:?}");
        }
        assert_eq!(captured.len(), KEEP as u64);
        let held = HELD.get() - before - empty;
        assert!(held <= (KEEP + 4 * BLOCK) as i64, "{held} bytes are held");
    }
    assert_eq!(captured.total(), 4 * (64 << 20));
    assert_eq!(captured.len() + captured.dropped(), captured.total());
    drop((captured, pool));
    assert_eq!(HELD.get(), before, "nothing is leaked");
}

#[test]
fn streams_that_come_after_others_use_their_memory() {
    let mut pool = Pool::new(POOL_BYTES);
    let mut calls = 0;
    for round in 0..4 {
        if round == 2 {
            calls = CALLS.get();
        }
        for (keep, total) in [
            (2 << 20, 5 << 20),
            (100, 10_000),
            (2 << 20, 80),
            (30_000, 1 << 20),
        ] {
            let mut captured = Captured::new(keep, false, 0, false);
            feed(&mut captured, &mut pool, &[5000, 60_000, 80], total);
            captured.free(&mut pool);
        }
    }
    assert_eq!(CALLS.get() - calls, 0);
}

#[test]
fn delivery_allocates_nothing_after_warm_up() {
    let mut pool = Pool::new(POOL_BYTES);
    let mut captured = Captured::new(0, true, 256 << 10, false);
    let mut calls = 0;
    for round in 0..200 {
        if round == 20 {
            calls = CALLS.get();
        }
        feed(&mut captured, &mut pool, &[BLOCK, 100, 9000], 250_000);
        while captured.next_piece(u64::MAX).is_some() {}
        captured.trim(&mut pool);
    }
    assert_eq!(CALLS.get() - calls, 0);
    assert_eq!((captured.len(), captured.total()), (0, 200 * 250_000));
}

#[test]
fn a_line_takes_the_smallest_block_and_silence_takes_none() {
    let mut pool = Pool::new(0);
    let spare = pool.take(BLOCK);
    let before = HELD.get();
    let mut captured = Captured::new(2 << 20, false, 0, false);
    assert_eq!(HELD.get(), before, "an idle stream costs nothing");
    let spare = captured.store(&mut pool, None, spare, 60, Ns::ZERO);
    assert!(
        HELD.get() - before <= 4096 + 256,
        "{} bytes for a line",
        HELD.get() - before
    );
    drop((captured, spare));
}

#[test]
fn live_lines_allocate_nothing_after_warm_up() {
    let projection = Projection::builder()
        .secret("correct horse")
        .expect("long")
        .build()
        .expect("few");
    let long = "x".repeat(100_000);
    let text = format!(
        "plain\n\x1b[1mcorrect \x1b[0mhorse token=abc\r\npart é\n10%\r20%\n-----BEGIN PRIVATE KEY-----\nMIIE\n\
         -----END PRIVATE KEY-----\nhttps://a:b@c ghp_x eyJhbGciOi.eyJ\n{long}\n"
    );
    let mut tail = LiveTail::new(&projection, 3, 3);
    let mut calls = 0;
    for round in 0..50 {
        if round == 10 {
            calls = CALLS.get();
        }
        text.as_bytes()
            .chunks(777)
            .for_each(|piece| tail.push(piece, &mut |_| Line::Keep));
    }
    assert_eq!(CALLS.get() - calls, 0);
    assert!(tail.last().all(|line| !line.contains("horse")));
}
