//! `lastwords run`: one command from its start to the end of lastwords.

use super::args::{BackgroundChoice, RunArgs, StdinChoice};
use super::exit_code::{self, Ending};
use super::format::{error_text, is_dumb, wants_colors};
use super::progress::Progress;
use super::relay::Relay;
use super::signals::{self, Signals};
use super::sink::WriteOutcome;
use super::summary::{self, Message, Severity};
use super::terminal::{Terminal, stop_ourselves};
use super::{report_file, termination_log};
use arrayvec::ArrayVec;
use lastwords::{
    Backend, BackendChoice, Bound, Capture, Command, Containment, DrainPolicy, Event, Generation,
    LastWordsPolicy, Output, Projection, Reactor, Report, Signal, SpawnError, Stdin, StopPolicy,
    Stopping, Stream, TurnError,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Two INTs within so long mean it.
const REPEATED_INT: Duration = Duration::from_secs(2);
/// Descriptors of one sleep: the loop's, the signals', and our two outputs.
const POLLED: usize = 1 + signals::WATCHED + 2;

/// Runs the command, tells everything there is to tell, and says how lastwords ends.
pub(crate) fn run(args: &RunArgs) -> Ending {
    let mut relay = Relay::new();
    let colors = wants_colors(args.reporting.color, relay.is_terminal());
    let failed = |mut relay: Relay, what: String| {
        relay.print_message(&Message::error(what).render(colors));
        relay.flush_all();
        Ending::Status(exit_code::OWN_FAILURE)
    };
    let projection = match args.reporting.projection(|name| values(args, name)) {
        Ok(projection) => projection,
        Err(what) => return failed(relay, what),
    };
    if let Err(what) = check_places(args) {
        return failed(relay, projection.text(&what));
    }
    match drive(args, &projection, &mut relay) {
        Ok(done) => finish(args, &projection, relay, done, colors),
        Err(what) => failed(relay, projection.text(&what)),
    }
}

/// Whether there is a place for what is to be written at the end: a long run should not end without
/// one.
fn check_places(args: &RunArgs) -> Result<(), String> {
    if let Some(path) = args
        .reporting
        .report
        .as_deref()
        .filter(|path| path.as_os_str() != report_file::STDOUT)
    {
        report_file::check(path)
            .map_err(|e| format!("failed to write the report to {path:?}: {}", error_text(&e)))?;
    }
    match &args.reporting.termination_log {
        Some(path) => termination_log::check(path).map_err(|e| {
            format!(
                "failed to write the last words to {path:?}: {}",
                error_text(&e)
            )
        }),
        None => Ok(()),
    }
}

/// io_uring was asked for, and is not there.
fn other_backend(args: &RunArgs, reactor: &Reactor) -> Option<Message> {
    let caps = reactor.caps();
    let missed = BackendChoice::from(args.kernel.backend) == BackendChoice::Uring
        && caps.backend != Backend::Uring;
    (missed && !args.reporting.quiet)
        .then(|| Message::warning(format!("{} is used: {}", caps.backend, caps.backend_why)))
}

/// What the command, and what lastwords itself was given as this variable.
fn values(args: &RunArgs, name: &OsStr) -> Vec<OsString> {
    let given = args
        .child
        .env
        .iter()
        .filter(|(key, _)| key == name)
        .map(|(_, value)| value.clone());
    given.chain(std::env::var_os(name)).collect()
}

/// A run that is over.
struct FinishedRun {
    report: Box<Report>,
    signals: Signals,
    /// Only if it may have been the keyboard that ended the command.
    terminal: Option<Terminal>,
}

/// From the start to the final report. An error is lastwords' own failure, in words.
fn drive(
    args: &RunArgs,
    projection: &Projection,
    relay: &mut Relay,
) -> Result<FinishedRun, String> {
    let mut terminal = Terminal::look();
    let signals =
        Signals::watch(terminal.is_some()).map_err(|e| format!("failed to watch signals: {e}"))?;
    let foreground = terminal.as_ref().is_some_and(Terminal::is_to_be_given);
    let policy = args.background.policy()?;
    let mut command = command(args, &signals, foreground);
    command
        .background(policy)
        .containment(args.background.containment())
        .projection(projection.clone());
    let mut builder = Reactor::builder();
    builder
        .backend(args.kernel.backend.into())
        .exit_source(args.kernel.exit_source.into());
    // lastwords has no children but the command. As process 1 it inherits orphans whether it asked
    // or not: their zombies are nobody else's to reap.
    let inherits = args.background.init || std::process::id() == 1;
    builder.adopt_orphans(inherits || args.background.containment() == Containment::Cookie);
    let mut reactor = builder.build().map_err(|e| format!("failed to {e}"))?;
    if let Some(line) = other_backend(args, &reactor) {
        relay.print_message(&line.render(false));
    }
    let started = Instant::now();
    let generation = match reactor.start(&command) {
        Ok(generation) => generation,
        Err(error) => {
            let report = failed_spawn(args, projection, &reactor, error);
            return Ok(FinishedRun {
                report,
                signals,
                terminal,
            });
        }
    };
    if let (Some(terminal), Some(pid)) = (&mut terminal, reactor.pid(generation)) {
        terminal.has_started(pid, foreground);
    }
    let deadline = limit(args).and_then(|limit| started.checked_add(limit));
    let mut run = Run {
        args,
        reactor,
        generation,
        relay,
        signals,
        terminal,
        live: Waiting::No,
        stop: Stop {
            deadline,
            asked: false,
            interrupted: None,
        },
    };
    let report = run.until_closed();
    let Run {
        signals,
        mut terminal,
        stop,
        ..
    } = run;
    if let Some(terminal) = &mut terminal {
        // A spawn that failed late may have had it, or a loop that failed.
        terminal.take_back();
    }
    let report = report.map_err(|e| format!("failed to {e}"))?;
    let by_us = report.stop.is_some() || stop.interrupted.is_some();
    Ok(FinishedRun {
        report,
        signals,
        terminal: terminal.filter(|_| !by_us),
    })
}

fn limit(args: &RunArgs) -> Option<Duration> {
    args.bounds.timeout.and_then(Bound::duration)
}

/// What is to be run, as the library has it.
fn command(args: &RunArgs, signals: &Signals, foreground: bool) -> Command {
    let (bounds, child, reporting) = (&args.bounds, &args.child, &args.reporting);
    // clap demands one word at least.
    let (program, words) = args
        .command
        .split_first()
        .map_or((None, &[][..]), |(program, words)| (Some(program), words));
    let mut command = Command::new(program.cloned().unwrap_or_default());
    command
        .args(words)
        .inherit_fds(!child.close_fds)
        .foreground_terminal(foreground);
    command.stdin(match child.stdin {
        StdinChoice::Inherit => Stdin::Inherit,
        StdinChoice::Null => Stdin::Null,
    });
    let capture = Capture::default().keep(reporting.tail_bytes).deliver(true);
    command.stdout(Output::Capture(capture));
    command.stderr(if child.merge {
        Output::ToStdout
    } else {
        Output::Capture(capture)
    });
    command.drain(
        DrainPolicy::default()
            .idle(bounds.drain_idle)
            .limit(bounds.drain_limit),
    );
    command.stop(
        StopPolicy::default()
            .signal(bounds.stop_signal)
            .grace(bounds.stop_grace),
    );
    command.last_words(LastWordsPolicy::default().lines(reporting.tail_lines));
    command.run_limit(limit(args));
    for name in &child.unset {
        command.env_remove(name);
    }
    for (name, value) in &child.env {
        command.env(name, value);
    }
    if let Some(dir) = &child.cwd {
        command.current_dir(dir);
    }
    for signal in signals.ignored() {
        command.ignore_signal(*signal);
    }
    command
}

/// The report of a command of which there never was a process.
fn failed_spawn(
    args: &RunArgs,
    projection: &Projection,
    reactor: &Reactor,
    error: SpawnError,
) -> Box<Report> {
    let command = projection.command_line(args.command.iter().map(|word| word.as_bytes()));
    let mut report = Report::of_failed_spawn(command, error, reactor.caps());
    report.redacted = projection.redacts();
    Box::new(report)
}

/// A command that runs, and what is beside it.
struct Run<'a> {
    args: &'a RunArgs,
    reactor: Reactor,
    generation: Generation,
    relay: &'a mut Relay,
    signals: Signals,
    terminal: Option<Terminal>,
    live: Waiting,
    stop: Stop,
}

/// Whether background work is waited for.
enum Waiting {
    No,
    /// Nothing more is shown of it.
    Silently,
    /// With a line on the terminal.
    Progress(Progress),
}

impl Waiting {
    fn line(&mut self) -> Option<&mut Progress> {
        match self {
            Waiting::Progress(live) => Some(live),
            Waiting::No | Waiting::Silently => None,
        }
    }

    fn next(&self) -> Option<Instant> {
        match self {
            Waiting::Progress(live) => Some(live.next_draw()),
            Waiting::No | Waiting::Silently => None,
        }
    }
}

/// What is known of a stop.
struct Stop {
    /// When the run limit begins one.
    deadline: Option<Instant>,
    /// Somebody asked for one.
    asked: bool,
    /// The last INT.
    interrupted: Option<Instant>,
}

impl Stop {
    fn is_under_way(&self, now: Instant) -> bool {
        self.asked || self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

/// What an event leaves to be done once its borrow has ended.
enum FollowUp {
    Nothing,
    Pause(Stream),
    Close(Stream),
    Closed(Box<Report>),
}

impl Run<'_> {
    /// Turns until the generation is closed.
    fn until_closed(&mut self) -> Result<Box<Report>, TurnError> {
        loop {
            if self.sleep() {
                while let Some(signal) = self.signals.next() {
                    self.on_signal(signal);
                }
            }
            self.flush_buffered();
            self.draw();
            let _turn = self.reactor.turn(Some(Duration::ZERO))?;
            if let Some(report) = self.take_events() {
                return Ok(report);
            }
        }
    }

    /// Sleeps until there may be something to do; says whether a signal has come.
    fn sleep(&self) -> bool {
        let wake = [self.reactor.next_deadline(), self.live.next()]
            .into_iter()
            .flatten()
            .min();
        let timeout = match wake {
            _ if self.reactor.has_events() => Some(Duration::ZERO),
            Some(at) => Some(at.saturating_duration_since(Instant::now())),
            None => None,
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
        fds.extend(self.signals.poll_fds());
        let signals_end = fds.len();
        fds.extend(self.relay.poll_fds());
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => fds[1..signals_end]
                .iter()
                .any(|fd| !fd.revents().is_empty()),
            // EINTR: a signal has come. Nothing else can.
            Err(_) => true,
        }
    }

    fn on_signal(&mut self, signal: Signal) {
        let now = Instant::now();
        match signal {
            Signal::TERM if self.stop.is_under_way(now) => self.kill_now(),
            Signal::TERM => self.ask_to_stop(),
            Signal::INT => {
                let again =
                    self.stop.interrupted.replace(now).is_some_and(|before| {
                        now.saturating_duration_since(before) <= REPEATED_INT
                    });
                if again || self.stop.is_under_way(now) {
                    self.kill_now();
                } else if !matches!(self.live, Waiting::No) {
                    // The command has ended; what it has left is not waited for any longer.
                    self.ask_to_stop();
                } else {
                    self.pass_on(signal);
                }
            }
            Signal::USR1 | Signal::USR2 => {
                // A leader that is gone gets nothing.
                let _ = self.reactor.signal_leader(self.generation, signal);
            }
            Signal::CHLD => self.follow_stop(),
            Signal::TSTP => self.stop_together(),
            Signal::CONT => self.go_on(),
            other => self.pass_on(other),
        }
    }

    fn ask_to_stop(&mut self) {
        self.stop.asked = true;
        match self.reactor.stop(self.generation, None) {
            // Somebody else's: the run limit's, or that of background work.
            Stopping::Already | Stopping::Shortened => self.kill_now(),
            _ => {}
        }
    }

    fn pass_on(&mut self, signal: Signal) {
        // An empty group gets nothing.
        let _ = self.reactor.signal(self.generation, signal);
    }

    /// Somebody means it: SIGKILL, and if nobody is left to be killed, no more waiting for our own
    /// readers.
    fn kill_now(&mut self) {
        self.stop.asked = true;
        if self.reactor.kill(self.generation) == Stopping::Gone {
            for stream in self.relay.discard_buffered() {
                self.close(stream);
            }
        }
    }

    /// The command may have been stopped from the keyboard: then lastwords is, too.
    fn follow_stop(&mut self) {
        let signals = &self.signals;
        let Some(terminal) = &mut self.terminal else {
            return;
        };
        if terminal.follow_stop(|| signals.take(Signal::CONT)) {
            self.pass_on(Signal::CONT);
        }
    }

    /// We were asked to stop: the command first. Both go on together.
    fn stop_together(&mut self) {
        self.pass_on(Signal::TSTP);
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back();
        }
        stop_ourselves(false);
        self.go_on();
    }

    /// We were continued.
    fn go_on(&mut self) {
        if let Some(terminal) = &mut self.terminal {
            terminal.continued();
        }
        self.pass_on(Signal::CONT);
    }

    /// Writes what our readers have room for now, and lets the command's streams go on.
    fn flush_buffered(&mut self) {
        for stream in Stream::ALL {
            match self.relay.flush(stream) {
                Some(WriteOutcome::Written) => {
                    self.reactor.resume_output(self.generation, stream);
                }
                Some(WriteOutcome::Discarded) => self.close(stream),
                Some(WriteOutcome::Buffered) | None => {}
            }
        }
    }

    /// Our own reader is gone: the command finds that its reader is gone too. What was read already
    /// is taken and thrown away.
    fn close(&mut self, stream: Stream) {
        self.reactor.close_output(self.generation, stream);
        self.reactor.resume_output(self.generation, stream);
    }

    fn draw(&mut self) {
        if let Some(line) = self
            .live
            .line()
            .and_then(|live| live.line_if_due(Instant::now()))
        {
            self.relay.show_progress(&line);
        }
    }

    /// Takes every event there is; the report once it is final.
    fn take_events(&mut self) -> Option<Box<Report>> {
        let mut closed = None;
        while let Some(event) = self.reactor.next_event() {
            let after = on_event(
                event,
                self.args,
                self.relay,
                &mut self.terminal,
                (&mut self.live, self.stop.deadline),
            );
            match after {
                FollowUp::Nothing => {}
                FollowUp::Pause(stream) => {
                    self.reactor.pause_output(self.generation, stream);
                }
                FollowUp::Close(stream) => {
                    self.reactor.close_output(self.generation, stream);
                }
                FollowUp::Closed(report) => closed = Some(report),
            }
        }
        closed
    }
}

/// `live` comes with the time at which the run limit ends the wait.
fn on_event(
    event: Event<'_>,
    args: &RunArgs,
    relay: &mut Relay,
    terminal: &mut Option<Terminal>,
    (live, limit): (&mut Waiting, Option<Instant>),
) -> FollowUp {
    match event {
        Event::Output { stream, bytes, .. } => match relay.forward(stream, bytes) {
            WriteOutcome::Written => FollowUp::Nothing,
            WriteOutcome::Buffered => FollowUp::Pause(stream),
            WriteOutcome::Discarded => FollowUp::Close(stream),
        },
        Event::Exited { exit, .. } => {
            if let Some(terminal) = terminal {
                terminal.leader_ended(exit.signal.is_some());
            }
            FollowUp::Nothing
        }
        Event::BackgroundWait { survivors, .. } => {
            // What is ended at once is told of when it has ended.
            if args.background.choice == BackgroundChoice::Wait {
                let begun = Progress::begin(
                    Instant::now(),
                    survivors,
                    args.background.background_wait.duration(),
                    limit,
                );
                *live = match (args.reporting.quiet, relay.is_terminal() && !is_dumb()) {
                    (true, _) => Waiting::Silently,
                    (false, true) => Waiting::Progress(begun),
                    (false, false) => {
                        relay.print_message(&Message::warning(begun.announcement()).render(false));
                        Waiting::Silently
                    }
                };
            }
            FollowUp::Nothing
        }
        Event::Settled { .. } => {
            *live = Waiting::No;
            FollowUp::Nothing
        }
        Event::Closed { report, .. } => FollowUp::Closed(report),
        _ => FollowUp::Nothing,
    }
}

/// Writes the report and the summary, and settles how lastwords ends.
fn finish(
    args: &RunArgs,
    projection: &Projection,
    mut relay: Relay,
    done: FinishedRun,
    colors: bool,
) -> Ending {
    let FinishedRun {
        mut report,
        signals,
        terminal,
    } = done;
    signals.restore_default_actions();
    report.id = Some(uuid::Uuid::new_v4().to_string());
    let mut ending = exit_code::of_report(&report);
    let mut lines = summary::messages(&report);
    let wanted = |line: &Message| match line.severity {
        Severity::Error => true,
        Severity::Warning => !args.reporting.quiet,
        Severity::Info => !args.reporting.quiet && relay.is_terminal(),
    };
    lines.retain(wanted);
    if let Some(path) = &args.reporting.report
        && let Err(e) = write_report(path, &report, &mut relay)
    {
        lines.push(Message::error(format!(
            "failed to write the report to {path:?}: {}",
            error_text(&e)
        )));
        ending = Ending::Status(exit_code::OWN_FAILURE);
    }
    if let Some(path) = &args.reporting.termination_log
        && let Err(e) = termination_log::write(path, &report)
    {
        lines.push(Message::error(format!(
            "failed to write the last words to {path:?}: {}",
            error_text(&e)
        )));
        ending = Ending::Status(exit_code::OWN_FAILURE);
    }
    relay.flush_all();
    for (stream, e) in relay.failures().collect::<Vec<_>>() {
        lines.push(Message::error(format!(
            "failed to write to {stream}: {}",
            error_text(&e)
        )));
        ending = Ending::Status(exit_code::OWN_FAILURE);
    }
    for mut line in lines {
        line.text = projection.text(&line.text);
        relay.print_message(&line.render(colors));
    }
    relay.flush_all();
    if let (Ending::Signal(signal), Some(terminal)) = (ending, &terminal) {
        terminal.tell_own_group(signal);
    }
    ending
}

fn write_report(path: &Path, report: &Report, relay: &mut Relay) -> io::Result<()> {
    let json = serde_json::to_string(report).map_err(io::Error::other)?;
    if path.as_os_str() == report_file::STDOUT {
        relay.line_on_stdout(&json)
    } else {
        report_file::write(path, &json)
    }
}
