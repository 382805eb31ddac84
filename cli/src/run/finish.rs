//! The last steps of a run: report, termination message, summary, exit code.

use super::FinishedRun;
use crate::args::RunArgs;
use crate::exit_code::{self, Ending};
use crate::format::error_text;
use crate::relay::Relay;
use crate::signals::Signals;
use crate::summary::{self, Message, Severity};
use crate::{report_file, termination_log};
use lastwords::{Projection, Report};
use std::io;
use std::path::Path;

/// Writes the report and the summary. Returns how lastwords has to end.
pub(super) fn finish(
    args: &RunArgs,
    projection: &Projection,
    mut relay: Relay,
    run: FinishedRun,
    colors: bool,
) -> Ending {
    let FinishedRun {
        mut report,
        mut signals,
    } = run;
    signals.restore_default_actions();
    report.id = Some(uuid::Uuid::new_v4().to_string());
    let mut messages = summary::messages(&report);
    messages.retain(|message| match message.severity {
        Severity::Error => true,
        Severity::Warning => !args.reporting.quiet,
        Severity::Info => !args.reporting.quiet && relay.is_terminal(),
    });
    let failures = write_results(args, &report, &mut relay, &mut signals);
    let ending = if failures.is_empty() {
        exit_code::of_report(&report, &args.status)
    } else {
        Ending::Status(exit_code::OWN_FAILURE)
    };
    messages.extend(failures.into_iter().map(Message::error));
    for mut message in messages {
        message.text = projection.text(&message.text);
        relay.print_message(&message.render(colors));
    }
    relay.flush_all(Some(&mut signals));
    // Whoever ends lastwords in this way must not take it for a success.
    relay.interrupted_by().map_or(ending, Ending::Signal)
}

/// Writes what was asked for, and the rest of the command's output. Returns what failed.
fn write_results(
    args: &RunArgs,
    report: &Report,
    relay: &mut Relay,
    signals: &mut Signals,
) -> Vec<String> {
    let mut failures = Vec::new();
    if let Some(path) = &args.reporting.report
        && let Err(e) = write_report(path, report, relay, signals)
    {
        let why = error_text(&e);
        failures.push(format!("failed to write the report to {path:?}: {why}"));
    }
    if let Some(path) = &args.reporting.termination_log
        && let Err(e) = termination_log::write(path, report)
    {
        let why = error_text(&e);
        failures.push(format!("failed to write the last words to {path:?}: {why}"));
    }
    relay.flush_all(Some(signals));
    let outputs = relay.failures();
    failures.extend(
        outputs.map(|(stream, e)| format!("failed to write to {stream}: {}", error_text(&e))),
    );
    failures
}

fn write_report(
    path: &Path,
    report: &Report,
    relay: &mut Relay,
    signals: &mut Signals,
) -> io::Result<()> {
    let json = serde_json::to_string(report).map_err(io::Error::other)?;
    if path.as_os_str() == report_file::STDOUT {
        relay.line_on_stdout(&json, signals)
    } else {
        report_file::write(path, &json)
    }
}
