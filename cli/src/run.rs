//! `lastwords run`: one command from its start to the end of lastwords.

use super::args::{BackgroundWay, RunArgs, StdinFrom};
use super::live::Live;
use super::relay::Relay;
use super::show::{is_dumb, said, wants_colors};
use super::signals::{self, Signals};
use super::sink::Taken;
use super::status::{self, Ending};
use super::summary::{self, Line, Tone};
use super::terminal::{Terminal, stop_ourselves};
use super::{report, termination};
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
const INSIST: Duration = Duration::from_secs(2);
/// Descriptors of one sleep: the loop's, the signals', and our two outputs.
const POLLED: usize = 1 + signals::WATCHED + 2;

/// Runs the command, tells everything there is to tell, and says how lastwords ends.
pub(crate) fn run(args: &RunArgs) -> Ending {
    let mut relay = Relay::new();
    let colors = wants_colors(args.said.color, relay.is_terminal());
    let failed = |mut relay: Relay, what: String| {
        relay.say(&Line::failure(what).render(colors));
        relay.finish();
        Ending::Status(status::OWN_FAILURE)
    };
    let projection = match args.said.projection(|name| values(args, name)) {
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
        .said
        .report
        .as_deref()
        .filter(|path| path.as_os_str() != report::STDOUT)
    {
        report::check(path)
            .map_err(|e| format!("failed to write the report to {path:?}: {}", said(&e)))?;
    }
    match &args.said.termination_log {
        Some(path) => termination::check(path)
            .map_err(|e| format!("failed to write the last words to {path:?}: {}", said(&e))),
        None => Ok(()),
    }
}

/// io_uring was asked for, and is not there.
fn other_backend(args: &RunArgs, reactor: &Reactor) -> Option<Line> {
    let caps = reactor.caps();
    let missed = BackendChoice::from(args.ways.backend) == BackendChoice::Uring
        && caps.backend != Backend::Uring;
    (missed && !args.said.quiet)
        .then(|| Line::warning(format!("{} is used: {}", caps.backend, caps.backend_why)))
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
struct Done {
    report: Box<Report>,
    signals: Signals,
    /// Only if it may have been the keyboard that ended the command.
    terminal: Option<Terminal>,
}

/// From the start to the final report. An error is lastwords' own failure, in words.
fn drive(args: &RunArgs, projection: &Projection, relay: &mut Relay) -> Result<Done, String> {
    let mut terminal = Terminal::look();
    let signals =
        Signals::watch(terminal.is_some()).map_err(|e| format!("failed to watch signals: {e}"))?;
    let foreground = terminal.as_ref().is_some_and(Terminal::is_to_be_given);
    let policy = args.work.policy()?;
    let mut command = command(args, &signals, foreground);
    command
        .background(policy)
        .containment(args.work.containment())
        .projection(projection.clone());
    let mut builder = Reactor::builder();
    builder
        .backend(args.ways.backend.into())
        .exit_source(args.ways.exit_source.into());
    // lastwords has no children but the command. As process 1 it inherits orphans whether it asked
    // or not: their zombies are nobody else's to reap.
    let inherits = args.work.init || std::process::id() == 1;
    builder.adopt_orphans(inherits || args.work.containment() == Containment::Cookie);
    let mut reactor = builder.build().map_err(|e| format!("failed to {e}"))?;
    if let Some(line) = other_backend(args, &reactor) {
        relay.say(&line.render(false));
    }
    let started = Instant::now();
    let generation = match reactor.start(&command) {
        Ok(generation) => generation,
        Err(error) => {
            let report = failed_spawn(args, projection, &reactor, error);
            return Ok(Done {
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
    Ok(Done {
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
    let (bounds, child, said) = (&args.bounds, &args.child, &args.said);
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
        StdinFrom::Inherit => Stdin::Inherit,
        StdinFrom::Null => Stdin::Null,
    });
    let capture = Capture::default().keep(said.tail_bytes).deliver(true);
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
    command.last_words(LastWordsPolicy::default().lines(said.tail_lines));
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
    Live(Live),
}

impl Waiting {
    fn line(&mut self) -> Option<&mut Live> {
        match self {
            Waiting::Live(live) => Some(live),
            Waiting::No | Waiting::Silently => None,
        }
    }

    fn next(&self) -> Option<Instant> {
        match self {
            Waiting::Live(live) => Some(live.next()),
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
enum After {
    Nothing,
    Hold(Stream),
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
            self.write_held();
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
            Signal::TERM if self.stop.is_under_way(now) => self.insist(),
            Signal::TERM => self.ask_to_stop(),
            Signal::INT => {
                let again = self
                    .stop
                    .interrupted
                    .replace(now)
                    .is_some_and(|before| now.saturating_duration_since(before) <= INSIST);
                if again || self.stop.is_under_way(now) {
                    self.insist();
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
            Stopping::Already | Stopping::Shortened => self.insist(),
            _ => {}
        }
    }

    fn pass_on(&mut self, signal: Signal) {
        // An empty group gets nothing.
        let _ = self.reactor.signal(self.generation, signal);
    }

    /// Somebody means it: SIGKILL, and if nobody is left to be killed, no more waiting for our own
    /// readers.
    fn insist(&mut self) {
        self.stop.asked = true;
        if self.reactor.kill(self.generation) == Stopping::Gone {
            for stream in self.relay.give_up_held() {
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
    fn write_held(&mut self) {
        for stream in Stream::ALL {
            match self.relay.flush(stream) {
                Some(Taken::All) => {
                    self.reactor.resume_output(self.generation, stream);
                }
                Some(Taken::Gone) => self.close(stream),
                Some(Taken::Held) | None => {}
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
        if let Some(line) = self.live.line().and_then(|live| live.due(Instant::now())) {
            self.relay.show_live_line(&line);
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
                After::Nothing => {}
                After::Hold(stream) => {
                    self.reactor.pause_output(self.generation, stream);
                }
                After::Close(stream) => {
                    self.reactor.close_output(self.generation, stream);
                }
                After::Closed(report) => closed = Some(report),
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
) -> After {
    match event {
        Event::Output { stream, bytes, .. } => match relay.pass(stream, bytes) {
            Taken::All => After::Nothing,
            Taken::Held => After::Hold(stream),
            Taken::Gone => After::Close(stream),
        },
        Event::Exited { exit, .. } => {
            if let Some(terminal) = terminal {
                terminal.leader_ended(exit.signal.is_some());
            }
            After::Nothing
        }
        Event::BackgroundWait { survivors, .. } => {
            // What is ended at once is told of when it has ended.
            if args.work.background == BackgroundWay::Wait {
                let begun = Live::begin(
                    Instant::now(),
                    survivors,
                    args.work.background_wait.duration(),
                    limit,
                );
                *live = match (args.said.quiet, relay.is_terminal() && !is_dumb()) {
                    (true, _) => Waiting::Silently,
                    (false, true) => Waiting::Live(begun),
                    (false, false) => {
                        relay.say(&Line::warning(begun.once()).render(false));
                        Waiting::Silently
                    }
                };
            }
            After::Nothing
        }
        Event::Settled { .. } => {
            *live = Waiting::No;
            After::Nothing
        }
        Event::Closed { report, .. } => After::Closed(report),
        _ => After::Nothing,
    }
}

/// Writes the report and the summary, and settles how lastwords ends.
fn finish(
    args: &RunArgs,
    projection: &Projection,
    mut relay: Relay,
    done: Done,
    colors: bool,
) -> Ending {
    let Done {
        mut report,
        signals,
        terminal,
    } = done;
    signals.let_go();
    report.id = Some(uuid::Uuid::new_v4().to_string());
    let mut ending = status::of_report(&report);
    let mut lines = summary::lines(&report);
    let wanted = |line: &Line| match line.tone {
        Tone::Failure => true,
        Tone::Warning => !args.said.quiet,
        Tone::Fine => !args.said.quiet && relay.is_terminal(),
    };
    lines.retain(wanted);
    if let Some(path) = &args.said.report
        && let Err(e) = write_report(path, &report, &mut relay)
    {
        lines.push(Line::failure(format!(
            "failed to write the report to {path:?}: {}",
            said(&e)
        )));
        ending = Ending::Status(status::OWN_FAILURE);
    }
    if let Some(path) = &args.said.termination_log
        && let Err(e) = termination::write(path, &report)
    {
        lines.push(Line::failure(format!(
            "failed to write the last words to {path:?}: {}",
            said(&e)
        )));
        ending = Ending::Status(status::OWN_FAILURE);
    }
    relay.finish();
    for (stream, e) in relay.failures().collect::<Vec<_>>() {
        lines.push(Line::failure(format!(
            "failed to write to {stream}: {}",
            said(&e)
        )));
        ending = Ending::Status(status::OWN_FAILURE);
    }
    for mut line in lines {
        line.text = projection.text(&line.text);
        relay.say(&line.render(colors));
    }
    relay.finish();
    if let (Ending::Signal(signal), Some(terminal)) = (ending, &terminal) {
        terminal.tell_own_group(signal);
    }
    ending
}

fn write_report(path: &Path, report: &Report, relay: &mut Relay) -> io::Result<()> {
    let json = serde_json::to_string(report).map_err(io::Error::other)?;
    if path.as_os_str() == report::STDOUT {
        relay.line_on_stdout(&json)
    } else {
        report::write(path, &json)
    }
}
