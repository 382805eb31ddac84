//! The loop around a running command: sleeps, drives the reactor, and moves output.

use super::signal_policy::SignalPolicy;
use crate::args::{BackgroundChoice, RunArgs};
use crate::format::is_dumb;
use crate::progress::Progress;
use crate::relay::Relay;
use crate::signals::Signals;
use crate::sink::WriteOutcome;
use crate::summary::Message;
use crate::terminal::Terminal;
use arrayvec::ArrayVec;
use lastwords::{Event, Generation, Reactor, Report, Stream, TurnError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// The most descriptors of one poll(2): the reactor's, the signals', and the two outputs.
const POLLED: usize = 4;

/// A running command and everything around it.
pub(super) struct Run<'a> {
    pub(super) args: &'a RunArgs,
    pub(super) reactor: Reactor,
    pub(super) generation: Generation,
    pub(super) relay: &'a mut Relay,
    pub(super) signals: Signals,
    pub(super) terminal: Option<Terminal>,
    pub(super) wait: BackgroundWait,
    pub(super) policy: SignalPolicy,
}

/// What lastwords shows of a wait for background work.
pub(super) enum BackgroundWait {
    /// Nothing is waited for.
    Inactive,
    /// Work is waited for; nothing more is shown.
    Silent,
    /// Work is waited for, with a progress line on the terminal.
    Shown(Progress),
}

impl BackgroundWait {
    fn line_if_due(&mut self, now: Instant) -> Option<String> {
        match self {
            BackgroundWait::Shown(progress) => progress.line_if_due(now),
            BackgroundWait::Inactive | BackgroundWait::Silent => None,
        }
    }

    fn next_draw(&self) -> Option<Instant> {
        match self {
            BackgroundWait::Shown(progress) => Some(progress.next_draw()),
            BackgroundWait::Inactive | BackgroundWait::Silent => None,
        }
    }
}

/// What has to be done for an event once the reactor can be borrowed again.
enum FollowUp {
    Nothing,
    Pause(Stream),
    Close(Stream),
    Closed(Box<Report>),
}

impl Run<'_> {
    /// Drives the command until its report is final.
    pub(super) fn until_closed(&mut self) -> Result<Box<Report>, TurnError> {
        loop {
            if self.sleep() {
                while let Some(signal) = self.signals.next() {
                    self.on_signal(signal);
                }
            }
            self.flush_buffered();
            if let Some(line) = self.wait.line_if_due(Instant::now()) {
                self.relay.show_progress(&line);
            }
            let _turn = self.reactor.turn(Some(Duration::ZERO))?;
            if let Some(report) = self.take_events() {
                return Ok(report);
            }
        }
    }

    /// Sleeps until there may be something to do. Returns whether a signal may have come.
    fn sleep(&self) -> bool {
        let wake = [self.reactor.next_deadline(), self.wait.next_draw()]
            .into_iter()
            .flatten()
            .min();
        let timeout = if self.reactor.has_events() {
            Some(Duration::ZERO)
        } else {
            wake.map(|at| at.saturating_duration_since(Instant::now()))
        };
        let timeout = timeout.map(|t| Timespec {
            tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: t.subsec_nanos().into(),
        });
        let mut fds: ArrayVec<PollFd<'_>, POLLED> = ArrayVec::new();
        fds.push(PollFd::from_borrowed_fd(
            self.reactor.as_fd(),
            PollFlags::IN,
        ));
        fds.push(self.signals.poll_fd());
        fds.extend(self.relay.poll_fds());
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => !fds[1].revents().is_empty(),
            // EINTR: a signal has come.
            Err(_) => true,
        }
    }

    /// Writes as much buffered output as the readers accept now. A stream whose buffer has become
    /// empty is read again.
    fn flush_buffered(&mut self) {
        for stream in Stream::ALL {
            match self.relay.flush(stream) {
                Some(WriteOutcome::Written) => {
                    self.reactor.resume_output(self.generation, stream);
                }
                Some(WriteOutcome::Discarded) => self.close_output(stream),
                Some(WriteOutcome::Buffered) | None => {}
            }
        }
    }

    /// Closes the command's pipe, because the reader of lastwords' own output is gone. Bytes that
    /// were read already are delivered once more and thrown away.
    pub(super) fn close_output(&mut self, stream: Stream) {
        self.reactor.close_output(self.generation, stream);
        self.reactor.resume_output(self.generation, stream);
    }

    /// Handles every event that is there. Returns the report once it is final.
    fn take_events(&mut self) -> Option<Box<Report>> {
        let mut report = None;
        while let Some(event) = self.reactor.next_event() {
            let follow_up = match event {
                Event::Output { stream, bytes, .. } => match self.relay.forward(stream, bytes) {
                    WriteOutcome::Written => FollowUp::Nothing,
                    WriteOutcome::Buffered => FollowUp::Pause(stream),
                    WriteOutcome::Discarded => FollowUp::Close(stream),
                },
                Event::Exited { exit, .. } => {
                    self.policy.leader_ended();
                    if let Some(terminal) = &mut self.terminal {
                        terminal.leader_ended(exit.signal.is_some());
                    }
                    FollowUp::Nothing
                }
                Event::BackgroundWait { survivors, .. } => {
                    // Work that is ended at once is reported when it has ended.
                    if self.args.background.choice == BackgroundChoice::Wait {
                        let progress = Progress::begin(
                            Instant::now(),
                            survivors,
                            self.args.background.background_wait.duration(),
                            self.policy.deadline(),
                        );
                        self.wait = begin_wait(progress, self.args.reporting.quiet, self.relay);
                    }
                    FollowUp::Nothing
                }
                Event::Settled { .. } => {
                    self.wait = BackgroundWait::Inactive;
                    FollowUp::Nothing
                }
                Event::Closed { report, .. } => FollowUp::Closed(report),
                _ => FollowUp::Nothing,
            };
            match follow_up {
                FollowUp::Nothing => {}
                FollowUp::Pause(stream) => {
                    self.reactor.pause_output(self.generation, stream);
                }
                FollowUp::Close(stream) => {
                    self.reactor.close_output(self.generation, stream);
                }
                FollowUp::Closed(closed) => {
                    self.forward_undelivered();
                    report = Some(closed);
                }
            }
        }
        report
    }

    /// Output that was read and not delivered when the run ended, because its reader is slow, is
    /// still written.
    fn forward_undelivered(&mut self) {
        for stream in Stream::ALL {
            if let Some(kept) = self.reactor.take(self.generation, stream) {
                for bytes in kept.undelivered_slices() {
                    self.relay.forward(stream, bytes);
                }
            }
        }
    }
}

/// Shows that a wait has begun: a progress line on a terminal, one message elsewhere.
fn begin_wait(progress: Progress, quiet: bool, relay: &mut Relay) -> BackgroundWait {
    if quiet {
        return BackgroundWait::Silent;
    }
    if relay.is_terminal() && !is_dumb() {
        return BackgroundWait::Shown(progress);
    }
    relay.print_message(&Message::warning(progress.announcement()).render(false));
    BackgroundWait::Silent
}
