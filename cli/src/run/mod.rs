//! `lastwords run`: runs one command, passes its output through, and reports how it ended.

mod command;
mod event_loop;
mod finish;
mod signal_actions;
mod signal_policy;

use super::args::RunArgs;
use super::exit_code::{self, Ending};
use super::format::{error_text, wants_colors};
use super::relay::Relay;
use super::signals::Signals;
use super::summary::Message;
use super::terminal::Terminal;
use super::{report_file, termination_log};
use event_loop::{BackgroundWait, Run};
use lastwords::{
    Backend, BackendChoice, Containment, Projection, Reactor, Report, SpawnError, host,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use signal_policy::SignalPolicy;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::time::Instant;

/// Runs the command, writes the report and the summary, and returns how lastwords has to end.
pub(crate) fn run(args: &RunArgs) -> Ending {
    let mut relay = Relay::new();
    let colors = wants_colors(args.reporting.color, relay.is_terminal());
    let failed = |mut relay: Relay, what: String| {
        relay.print_message(&Message::error(what).render(colors));
        relay.flush_all(None);
        Ending::Status(exit_code::OWN_FAILURE)
    };
    let projection = match args
        .reporting
        .projection(|name| variable_values(args, name))
    {
        Ok(projection) => projection,
        Err(what) => return failed(relay, what),
    };
    if let Err(what) = check_destinations(args) {
        return failed(relay, projection.text(&what));
    }
    match execute(args, &projection, &mut relay) {
        Ok(finished) => finish::finish(args, &projection, relay, finished, colors),
        Err(what) => failed(relay, projection.text(&what)),
    }
}

/// Checks before the run that the report and the termination message can be written, so that a
/// long run does not end without them.
fn check_destinations(args: &RunArgs) -> Result<(), String> {
    let reporting = &args.reporting;
    if let Some(path) = &reporting.report
        && path.as_os_str() != report_file::STDOUT
    {
        report_file::check(path)
            .map_err(|e| format!("failed to write the report to {path:?}: {}", error_text(&e)))?;
    }
    if let Some(path) = &reporting.termination_log {
        termination_log::check(path).map_err(|e| {
            let why = error_text(&e);
            format!("failed to write the last words to {path:?}: {why}")
        })?;
    }
    Ok(())
}

/// The values of a variable that have to be redacted: the one given with `--env`, and the one in
/// the environment of lastwords.
fn variable_values(args: &RunArgs, name: &OsStr) -> Vec<OsString> {
    let given = args
        .child
        .env
        .iter()
        .filter(|(key, _)| key == name)
        .map(|(_, value)| value.clone());
    given.chain(std::env::var_os(name)).collect()
}

/// A run that is over, with what the last steps still need.
struct FinishedRun {
    report: Box<Report>,
    signals: Signals,
}

/// Runs the command from its start to the final report. An error is a failure of lastwords
/// itself, as text.
fn execute(
    args: &RunArgs,
    projection: &Projection,
    relay: &mut Relay,
) -> Result<FinishedRun, String> {
    let mut terminal = Terminal::detect();
    let signals = Signals::install(terminal.is_some())
        .map_err(|e| format!("failed to watch signals: {e}"))?;
    let foreground = terminal
        .as_ref()
        .is_some_and(Terminal::gives_foreground_at_start);
    let mut command = command::build(args, signals.ignored(), foreground);
    command
        .background(args.background.policy()?)
        .containment(args.background.containment())
        .projection(projection.clone());
    let mut reactor = build_reactor(args)?;
    if let Some(message) = backend_fallback(args, &reactor) {
        relay.print_message(&message.render(false));
    }
    let started = Instant::now();
    let generation = match reactor.start(&command) {
        Ok(generation) => generation,
        Err(error) => {
            return Ok(FinishedRun {
                report: failed_spawn(args, projection, &reactor, error),
                signals,
            });
        }
    };
    if let Some(pid) = reactor.pid(generation) {
        if let Some(terminal) = &mut terminal {
            terminal.command_started(pid, foreground);
        }
        guard_against_abort(pid);
    }
    let limit = args.bounds.time_limit();
    let mut run = Run {
        args,
        reactor,
        generation,
        relay,
        signals,
        terminal,
        wait: BackgroundWait::Inactive,
        policy: SignalPolicy::new(
            &args.child.map_signal,
            limit.and_then(|limit| started.checked_add(limit)),
        ),
    };
    let report = run.until_closed();
    let Run {
        signals,
        mut terminal,
        ..
    } = run;
    host::forget_group();
    if let Some(terminal) = &mut terminal {
        // The command still has it if exec failed or if the loop failed.
        terminal.take_back();
    }
    let report = report.map_err(|e| format!("failed to {e}"))?;
    Ok(FinishedRun { report, signals })
}

/// Makes an abort of lastwords, such as the one when memory is refused, kill the command first.
fn guard_against_abort(pid: u32) {
    // The leader is not reaped yet, so the number is its own. Without a pidfd, or without the
    // handler, an abort leaves the command running.
    let leader = i32::try_from(pid).ok().and_then(Pid::from_raw);
    if let Some(leader) = leader
        && let Ok(pidfd) = pidfd_open(leader, PidfdFlags::empty())
    {
        let _ = host::kill_group_on_abort(pid, pidfd);
    }
}

fn build_reactor(args: &RunArgs) -> Result<Reactor, String> {
    let mut builder = Reactor::builder();
    builder
        .backend(args.kernel.backend.into())
        .exit_source(args.kernel.exit_source.into());
    // The command is the only child of lastwords. Process 1 inherits orphans without asking for
    // them, and nobody else can reap their zombies.
    let inherits = args.background.init || std::process::id() == 1;
    builder.adopt_orphans(inherits || args.background.containment() == Containment::Cookie);
    builder.build().map_err(|e| format!("failed to {e}"))
}

/// The warning that io_uring was asked for and cannot be used here.
fn backend_fallback(args: &RunArgs, reactor: &Reactor) -> Option<Message> {
    let capabilities = reactor.capabilities();
    let missing = BackendChoice::from(args.kernel.backend) == BackendChoice::Uring
        && capabilities.backend != Backend::Uring;
    (missing && !args.reporting.quiet).then(|| {
        Message::warning(format!(
            "{} is used: {}",
            capabilities.backend, capabilities.backend_why
        ))
    })
}

/// The report of a command that could not be started.
fn failed_spawn(
    args: &RunArgs,
    projection: &Projection,
    reactor: &Reactor,
    error: SpawnError,
) -> Box<Report> {
    let command = projection.command_line(args.command.iter().map(|word| word.as_bytes()));
    let mut report = Report::of_failed_spawn(command, error, reactor.capabilities());
    report.redacted = projection.redacts();
    Box::new(report)
}
