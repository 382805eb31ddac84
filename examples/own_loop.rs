//! A host with a loop of its own: poll(2) on its own descriptor and on the reactor's, the nearer
//! deadline honoured.
//!
//! `cargo run --example own_loop` runs two jobs side by side. Enter on stdin stops them.

use lastwords::{Capture, Command, DrainPolicy, Event, Reactor, Stream};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// The host's own sleep: as long as nothing is due.
fn nap(reactor: &Reactor) -> Option<Timespec> {
    let left = if reactor.has_events() {
        Some(Duration::ZERO)
    } else {
        reactor
            .next_deadline()
            .map(|at| at.saturating_duration_since(Instant::now()))
    };
    left.and_then(|left| left.try_into().ok())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut reactor = Reactor::new()?;
    let mut build =
        Command::shell("for i in 1 2 3; do echo step $i; sleep 0.1; done; echo done >&2");
    build
        .stdout(Capture::default().deliver(true))
        .drain(DrainPolicy::default().idle(Duration::from_millis(200)));
    let build = reactor.spawn(&build)?;
    let tests = reactor
        .start(Command::shell("echo 2 failed >&2; exit 3").run_limit(Duration::from_secs(600)))?;

    let host = io::stdin();
    let mut host_open = true;
    let mut failed = 0;
    while reactor.is_busy() {
        let timeout = nap(&reactor);
        let mut fds = vec![PollFd::from_borrowed_fd(reactor.as_fd(), PollFlags::IN)];
        if host_open {
            fds.push(PollFd::new(&host, PollFlags::IN));
        }
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let host_says = fds.get(1).is_some_and(|fd| !fd.revents().is_empty());

        // `next_deadline` says "now" while a turn left something behind, so its answer need not be
        // looked at here.
        let _turn = reactor.turn(Some(Duration::ZERO))?;
        if host_says {
            // A host without a terminal is at the end of its stdin from the beginning: that is no
            // wish to quit.
            host_open = false;
            if host.read_line(&mut String::new())? > 0 {
                reactor.stop_all(None);
            }
        }
        while let Some(event) = reactor.next_event() {
            match event {
                Event::Output {
                    stream: Stream::Stdout,
                    bytes,
                    ..
                } => io::stdout().write_all(bytes)?,
                Event::SpawnFailed {
                    generation, error, ..
                } if generation == tests => eprintln!("failed to start the tests: {error}"),
                Event::Drained {
                    drain, last_words, ..
                } => {
                    for holder in &drain.holders {
                        eprintln!(
                            "{} ({}) still holds {:?}",
                            holder.comm, holder.pid, holder.streams
                        );
                    }
                    for line in last_words {
                        eprintln!("| {line}");
                    }
                }
                Event::BackgroundWait {
                    generation,
                    survivors,
                    ..
                } => eprintln!("{generation}: waiting for {} processes", survivors.len()),
                Event::Closed {
                    generation, report, ..
                } => {
                    let kept = reactor.take(generation, Stream::Stderr);
                    failed += u32::from(!report.success());
                    if generation == build {
                        eprintln!(
                            "{:?}, {} bytes of stderr kept",
                            report.outcome,
                            kept.map_or(0, |kept| kept.len())
                        );
                    }
                }
                _ => {}
            }
        }
    }
    assert_eq!(failed, 1, "the tests of this example fail on purpose");
    Ok(())
}
