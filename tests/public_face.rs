//! The public face from outside, with nothing of the repository's own test support: these tests
//! are part of the published package.

use lastwords::{
    BackgroundPolicy, Capture, Command, DrainPolicy, Event, Outcome, Output, Reactor, RunError,
    SettledAs, Signal, Stdin, StopPolicy, Stream, Verdict, Wait,
};
use std::error::Error;
use std::time::Duration;

type Tried = Result<(), Box<dyn Error>>;

#[test]
fn a_run_gives_output_status_and_last_words() -> Tried {
    let finished = lastwords::run(&Command::shell("echo out; echo err >&2; exit 3"))?;
    assert_eq!(finished.report.outcome, Some(Outcome::Failed));
    assert_eq!(finished.report.exit.and_then(|exit| exit.code), Some(3));
    assert_eq!(finished.report.stderr_tail, ["err"]);
    assert_eq!(finished.stdout.ok_or("captured")?.to_vec(), b"out\n");
    assert_eq!(finished.stderr.ok_or("captured")?.to_vec(), b"err\n");
    Ok(())
}

#[test]
fn a_program_that_is_not_there_is_an_error_with_its_errno() {
    match lastwords::run(&Command::new("/nonexistent/program")) {
        Err(RunError::Spawn(error)) => assert_eq!(error.raw_os_error(), 2),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_held_pipe_is_a_bounded_drain_and_not_a_hang() -> Tried {
    let mut command = Command::shell("sleep 60 & exit 0");
    command
        .drain(DrainPolicy::default().idle(Duration::from_millis(100)))
        .background(
            BackgroundPolicy::default()
                .grace(Duration::from_millis(100))
                .wait(Wait::For(Duration::ZERO)),
        );
    let report = lastwords::run(&command)?.report;
    assert_eq!(report.outcome, Some(Outcome::Succeeded));
    let drain = report.drain.ok_or("it has run")?;
    assert_eq!(drain.verdict, Verdict::DrainTimedOut);
    let background = report.background.ok_or("it has run")?;
    assert_eq!(background.state, SettledAs::Terminated);
    Ok(())
}

#[test]
fn events_come_in_order_and_lend_their_bytes() -> Tried {
    let mut reactor = Reactor::new()?;
    let mut command = Command::new("cat");
    command
        .stdin(Stdin::from("hello"))
        .stdout(Capture::default().deliver(true))
        .stderr(Output::Null);
    let generation = reactor.spawn(&command)?;
    let (mut seen, mut order) = (Vec::new(), Vec::new());
    while let Some(event) = reactor.wait_event(None)? {
        match event {
            Event::Started { .. } => order.push("started"),
            Event::Output {
                stream: Stream::Stdout,
                bytes,
                ..
            } => {
                seen.extend_from_slice(bytes);
                // The borrow has ended: the loop may be used in the same arm.
                let _ = reactor.stats();
            }
            Event::Exited { exit, .. } => {
                assert!(exit.success());
                order.push("exited");
            }
            Event::Drained { .. } => order.push("drained"),
            Event::Settled { .. } => order.push("settled"),
            Event::Closed {
                generation: closed, ..
            } => {
                assert_eq!(closed, generation);
                order.push("closed");
            }
            _ => {}
        }
    }
    assert_eq!(seen, b"hello");
    assert_eq!(order, ["started", "exited", "drained", "settled", "closed"]);
    Ok(())
}

#[test]
fn a_stop_ends_the_whole_group() -> Tried {
    let mut reactor = Reactor::new()?;
    let generation = reactor.spawn(&Command::shell("sleep 60 & sleep 60"))?;
    let policy = StopPolicy::default()
        .signal(Signal::TERM)
        .grace(Duration::from_secs(10));
    reactor.stop(generation, Some(policy));
    while let Some(event) = reactor.wait_event(None)? {
        if let Event::Closed { report, .. } = event {
            assert_eq!(report.outcome, Some(Outcome::Stopped));
            let stop = report.stop.ok_or("it was stopped")?;
            assert!(!stop.escalated, "TERM was enough");
        }
    }
    Ok(())
}
