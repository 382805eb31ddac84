//! The same loop inside a multi-threaded tokio program, without an adapter, to show the whole
//! trick.
//!
//! `cargo run --example tokio_by_hand`
#![expect(
    unsafe_code,
    reason = "tokio's constructor demands a promise about the descriptor"
)]

use lastwords::{Command, Event, Generation, Outcome, Reactor, Report};
use std::collections::HashMap;
use std::io;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, timeout_at};

type Jobs = HashMap<Generation, &'static str>;

async fn drive(reactor: Reactor, mut jobs: Jobs) -> io::Result<Vec<(&'static str, Report)>> {
    // SAFETY: a reactor keeps one descriptor, open and unchanged, for as long as it lives.
    let mut reactor = unsafe { AsyncFd::register_with_interest(reactor, Interest::READABLE) }?;
    let mut done = Vec::new();
    while reactor.get_ref().is_busy() {
        let deadline = reactor
            .get_ref()
            .next_deadline()
            .map_or_else(far, Instant::from_std);
        match timeout_at(deadline, reactor.readable_mut()).await {
            Ok(guard) => {
                let mut guard = guard?;
                let turn = guard.get_inner_mut().turn(Some(Duration::ZERO))?;
                // Only a turn that left nothing behind may clear the edge; else tokio is never told
                // again.
                if !turn.more {
                    guard.clear_ready();
                }
            }
            Err(_) => {
                let _turn = reactor.get_mut().turn(Some(Duration::ZERO))?;
            }
        }
        while let Some(event) = reactor.get_mut().next_event() {
            if let Event::Closed {
                generation, report, ..
            } = event
                && let Some(name) = jobs.remove(&generation)
            {
                done.push((name, *report));
            }
        }
        // A turn is bounded; be fair to the others.
        tokio::task::yield_now().await;
    }
    Ok(done)
}

fn far() -> Instant {
    Instant::now() + Duration::from_secs(86_400)
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut reactor = Reactor::new()?;
    let mut jobs = Jobs::new();
    for (name, script) in [
        ("fmt", "sleep 0.2"),
        ("clippy", "echo warning >&2; sleep 0.1"),
        ("test", "exit 1"),
    ] {
        jobs.insert(reactor.start(&Command::shell(script))?, name);
    }
    let done = tokio::spawn(drive(reactor, jobs)).await??;
    for (name, report) in &done {
        println!("{name}: {:?} {:?}", report.outcome, report.stderr_tail);
    }
    assert_eq!(
        done.iter()
            .filter(|(_, report)| report.outcome == Some(Outcome::Succeeded))
            .count(),
        2
    );
    Ok(())
}
