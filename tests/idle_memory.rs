//! What a child costs in the loop that does nothing, and one that wrote a line. Counted at the
//! allocator, not timed.

#![expect(unsafe_code, reason = "an allocator that counts is an allocator")]

use lastwords::{
    Builder, Command, Event, ExitSourceChoice, GroupSignal, Outcome, Reactor, StopPolicy,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// The system's allocator; it counts what each thread has allocated and not freed.
struct Counting;

thread_local! {
    static LIVE: Cell<i64> = const { Cell::new(0) };
}

fn note(bytes: i64) {
    LIVE.with(|live| live.set(live.get() + bytes));
}

fn size(layout: Layout) -> i64 {
    i64::try_from(layout.size()).unwrap_or(i64::MAX)
}

// SAFETY: every call is the system allocator's; only a number is kept beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(size(layout));
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(size(layout));
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new: usize) -> *mut u8 {
        note(i64::try_from(new).unwrap_or(i64::MAX) - size(layout));
        // SAFETY: as the caller promises.
        unsafe { System.realloc(block, layout, new) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        note(-size(layout));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Lists double when they are full, so each holds what it has room for at both of these.
const NUMBERS: [usize; 2] = [128, 256];

/// Starts children until there are so many, and takes their events until nothing has come for a
/// while.
fn grow(reactor: &mut Reactor, command: &Command, to: usize) {
    let live = usize::try_from(reactor.stats().live).expect("few");
    for _ in live..to {
        reactor.spawn(command).expect("a process");
    }
    let end = Instant::now() + Duration::from_secs(60);
    while Instant::now() < end {
        match reactor
            .wait_event(Some(Duration::from_millis(300)))
            .expect("a turn")
        {
            Some(Event::Closed { report, .. }) => panic!("it has ended: {:?}", report.outcome),
            Some(_) => {}
            None => return,
        }
    }
    panic!("they go on saying something");
}

/// Bytes of one more child.
fn bytes_each(builder: &Builder, script: &str) -> i64 {
    let mut reactor = builder.build().expect("a loop");
    let command = Command::shell(script);
    let [some, more] = NUMBERS.map(|number| {
        grow(&mut reactor, &command, number);
        LIVE.with(Cell::get)
    });
    reactor.stop_all(Some(StopPolicy::default().grace(Duration::ZERO)));
    let mut closed = 0;
    while let Some(event) = reactor.wait_event(None).expect("a turn") {
        if let Event::Closed { report, .. } = event {
            assert_eq!(report.outcome, Some(Outcome::Stopped));
            closed += 1;
        }
    }
    assert_eq!(closed, NUMBERS[1]);
    (more - some) / i64::try_from(NUMBERS[1] - NUMBERS[0]).expect("few")
}

fn ways() -> [Builder; 3] {
    let mut old_group = Reactor::builder();
    old_group.group_signal(GroupSignal::Off);
    let mut sigchld = Reactor::builder();
    sigchld.exit_source(ExitSourceChoice::Sigchld);
    [Reactor::builder(), old_group, sigchld]
}

/// Target L7 of benches/README.md. Beside what is kept of it (half a KiB), a place for each of its
/// events is counted here, which stays untouched, and so takes no memory, unless so many events do
/// wait.
#[test]
fn an_idle_child_costs_half_a_kilobyte_and_places_for_its_events() {
    for builder in ways() {
        let each = bytes_each(&builder, "exec sleep 600");
        println!("{each} bytes");
        assert!((100..768).contains(&each), "{each} bytes");
    }
}

/// Target L7 of benches/README.md: a stream that has brought little has one small block.
#[test]
fn a_child_that_wrote_a_line_costs_one_small_block_a_stream_more() {
    let builder = Reactor::builder();
    let each = bytes_each(&builder, "echo out; echo err >&2; exec sleep 600");
    println!("{each} bytes");
    assert!((2 * 1024..768 + 2 * 2048).contains(&each), "{each} bytes");
}
