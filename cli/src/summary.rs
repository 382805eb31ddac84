//! The summary that lastwords prints on stderr when the command is over.

use super::units::format_duration;
use lastwords::{
    DrainReport, EndedBy, Outcome, Report, Settled, SettledAs, StopReason, Stream, StreamEnd,
    Survivor, Verdict,
};

/// The most processes that one message names. The others are counted.
const MAX_NAMED: usize = 5;
/// The beginning of the message that names processes which could not be ended.
const STUCK: &str = "stuck: ";

/// How important a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// Printed on a terminal only.
    Info,
    /// Printed everywhere, except with `--quiet`.
    Warning,
    /// Failures, which `--quiet` prints too.
    Error,
}

/// One line of text, without the prefix `lastwords:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) severity: Severity,
    pub(crate) text: String,
}

impl Message {
    fn info(text: String) -> Message {
        Message {
            severity: Severity::Info,
            text,
        }
    }

    pub(crate) fn warning(text: String) -> Message {
        Message {
            severity: Severity::Warning,
            text,
        }
    }

    pub(crate) fn error(text: String) -> Message {
        Message {
            severity: Severity::Error,
            text,
        }
    }

    /// Adds the prefix, coloured by the severity if `colors` is set.
    pub(crate) fn render(&self, colors: bool) -> String {
        let color = match self.severity {
            Severity::Info => "2",
            Severity::Warning => "33",
            Severity::Error => "31",
        };
        if colors {
            format!("\x1b[{color}mlastwords:\x1b[0m {}", self.text)
        } else {
            format!("lastwords: {}", self.text)
        }
    }
}

/// All messages about a run. The first one describes how the command ended.
pub(crate) fn messages(report: &Report) -> Vec<Message> {
    if let Some(error) = &report.error {
        return vec![Message::error(format!("failed to {error}"))];
    }
    let mut lines = vec![describe_exit(report)];
    lines.extend(report.drain.as_ref().and_then(describe_drain));
    lines.extend(describe_stuck(report));
    if let Some(work) = &report.background {
        // The stuck message has named these processes already.
        let is_named =
            work.state == SettledAs::Stuck && lines.iter().any(|line| line.text.starts_with(STUCK));
        lines.extend(describe_background(report, work).filter(|_| !is_named));
        lines.extend(describe_held_pipes(report, work));
    }
    lines
}

/// Describes how the leader ended.
fn describe_exit(report: &Report) -> Message {
    let name = escape_controls(report.command.first().map_or("the command", String::as_str));
    let how = match report
        .exit
        .map(|exit| (exit.code, exit.signal, exit.core_dumped))
    {
        None => return Message::error(format!("{name} has not ended")),
        Some((Some(code), _, _)) => format!("exited with {code}"),
        Some((None, Some(signal), core)) => format!(
            "was ended by {signal}{}",
            if core { ", core dumped" } else { "" }
        ),
        Some((None, None, _)) => {
            return Message::error(format!(
                "{name} has ended, and its status was collected by somebody else"
            ));
        }
    };
    let after = report
        .timing
        .and_then(|timing| timing.ran)
        .map(|ran| format!(" after {}", format_duration(ran)))
        .unwrap_or_default();
    let why = match report.outcome {
        Some(Outcome::Stopped) => " (stopped)",
        Some(Outcome::TimedOut) => " (time limit)",
        _ => "",
    };
    let hard = if report.stop.as_ref().is_some_and(|stop| stop.escalated) {
        ", SIGKILL was needed"
    } else {
        ""
    };
    let text = format!("{name} {how}{after}{why}{hard}");
    // The severity is raised because `--quiet` hides everything else that mentions the time limit.
    if report.outcome == Some(Outcome::TimedOut) {
        Message::warning(text)
    } else {
        Message::info(text)
    }
}

/// Describes a drain that ended before end of file, and who held the pipes.
fn describe_drain(drain: &DrainReport) -> Option<Message> {
    let why = match (drain.verdict, drain.ended_by) {
        (Verdict::DrainTimedOut, Some(EndedBy::Idle)) => {
            format!("nothing came for {}", format_bound(drain.policy.idle))
        }
        (Verdict::DrainTimedOut, Some(EndedBy::Limit)) => {
            format!(
                "still open {} after the exit",
                format_bound(drain.policy.limit)
            )
        }
        (Verdict::DrainTimedOut, Some(EndedBy::Stop | EndedBy::Deadline)) => {
            "still open when everything was stopped".to_owned()
        }
        _ => return None,
    };
    let streams: Vec<&str> = drain.open.iter().map(|stream| stream.name()).collect();
    let streams = if streams.is_empty() {
        "output".to_owned()
    } else {
        streams.join(" and ")
    };
    let holders: Vec<String> = drain
        .holders
        .iter()
        .map(|holder| process_name(&holder.comm, holder.pid))
        .collect();
    let looked = matches!(drain.ended_by, Some(EndedBy::Idle | EndedBy::Limit));
    let holders = match (holders.is_empty(), drain.holders_complete) {
        (true, true) if looked => ": nobody holds it any more".to_owned(),
        (true, false) if looked => ": who holds it could not be found out".to_owned(),
        (true, _) => String::new(),
        (false, complete) => format!(
            ": held by {}{}",
            join_limited(holders),
            if complete { "" } else { " and perhaps others" }
        ),
    };
    Some(Message::warning(format!(
        "timed out waiting for {streams} to drain ({why}){holders}"
    )))
}

fn format_bound(bound: lastwords::Bound) -> String {
    bound
        .duration()
        .map_or_else(|| "ever".to_owned(), format_duration)
}

/// Names the processes that survived SIGKILL or could not be signalled.
fn describe_stuck(report: &Report) -> Option<Message> {
    let stop = report.stop.as_ref().filter(|stop| !stop.stuck.is_empty())?;
    let why = if stop.denied {
        "may not be signalled"
    } else {
        "did not end by SIGKILL"
    };
    Some(Message::error(format!(
        "{STUCK}{} {why}",
        process_list(&stop.stuck)
    )))
}

/// Describes what became of background work.
fn describe_background(report: &Report, work: &Settled) -> Option<Message> {
    let (who, waited) = (process_list(&work.processes), format_duration(work.waited));
    Some(match work.state {
        // A stop ended the work before it was listed. The exit message says so already.
        SettledAs::Finished | SettledAs::Terminated if work.processes.is_empty() => return None,
        SettledAs::Finished => Message::info(format!(
            "background work finished {waited} after the exit: {who}"
        )),
        // The stop began before the exit, so these are members that needed SIGKILL, not background
        // work.
        SettledAs::Terminated
            if matches!(report.outcome, Some(Outcome::Stopped | Outcome::TimedOut)) =>
        {
            Message::warning(format!("SIGKILL was needed for {who}"))
        }
        SettledAs::Terminated => {
            let limit = report
                .stop
                .as_ref()
                .is_some_and(|stop| stop.reason == StopReason::Timeout);
            let why = if limit { " (time limit)" } else { "" };
            Message::warning(format!(
                "background work was terminated {waited} after the exit{why}: {who}"
            ))
        }
        SettledAs::Kept | SettledAs::Reported => {
            Message::warning(format!("background work is left running: {who}"))
        }
        SettledAs::Stuck => Message::error(format!("background work could not be ended: {who}")),
        _ => return None,
    })
}

/// Warns that work which is left running writes to a pipe that is closed now.
fn describe_held_pipes(report: &Report, work: &Settled) -> Option<Message> {
    // Without detection, a process that is left running is known only as a holder of the pipe.
    let unseen = work.state == SettledAs::Disabled
        && report
            .drain
            .as_ref()
            .is_some_and(|drain| !drain.holders.is_empty());
    let left = unseen || matches!(work.state, SettledAs::Kept | SettledAs::Reported);
    let open = |stream: Stream| {
        unseen
            && report
                .drain
                .as_ref()
                .is_some_and(|drain| drain.open.contains(&stream))
    };
    let held = |stream: &Option<lastwords::StreamReport>| {
        stream.is_some_and(|s| s.end == Some(StreamEnd::Held))
    };
    let streams = match (
        held(&report.stdout) || open(Stream::Stdout),
        held(&report.stderr) || open(Stream::Stderr),
    ) {
        (true, true) => "stdout and stderr",
        (true, false) => "stdout",
        (false, true) => "stderr",
        (false, false) => return None,
    };
    left.then(|| {
        Message::warning(format!(
            "what it writes to {streams} from now on finds a closed pipe"
        ))
    })
}

/// Joins names as in `sleep (pid 7), cat (pid 8) and 3 more`.
pub(crate) fn process_list(processes: &[Survivor]) -> String {
    join_limited(
        processes
            .iter()
            .map(|p| process_name(&p.comm, p.pid))
            .collect(),
    )
}

fn process_name(comm: &str, pid: u32) -> String {
    format!("{} (pid {pid})", escape_controls(comm))
}

fn join_limited(mut names: Vec<String>) -> String {
    let more = names.len().saturating_sub(MAX_NAMED);
    names.truncate(MAX_NAMED);
    match (names.is_empty(), more) {
        (true, _) => "nobody that could be named".to_owned(),
        (false, 0) => names.join(", "),
        (false, more) => format!("{} and {more} more", names.join(", ")),
    }
}

/// Replaces every character that a terminal would interpret.
fn escape_controls(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c.is_control() || is_format(c) {
                char::REPLACEMENT_CHARACTER
            } else {
                c
            }
        })
        .collect()
}

/// Whether a character changes how others are displayed: bidirectional controls, line and paragraph
/// separators.
fn is_format(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastwords::sim::SimOptions;
    use lastwords::{BackgroundPolicy, Command, Event, Reactor, StopPolicy};
    use std::time::Duration;

    /// The messages about a simulated job with a time limit of one second.
    fn summary_of(script: &str) -> Vec<String> {
        let mut reactor = Reactor::simulated(SimOptions::default());
        let mut command = Command::new("job");
        command
            .arg(script)
            .run_limit(Duration::from_secs(1))
            .stop(StopPolicy::default().grace(Duration::from_millis(100)));
        command.background(BackgroundPolicy::settle().grace(Duration::from_millis(200)));
        reactor.start(&command).expect("it starts");
        let mut said = Vec::new();
        while let Some(event) = reactor.wait_event(None).expect("a turn") {
            if let Event::Closed { report, .. } = event {
                said = messages(&report)
                    .into_iter()
                    .map(|line| line.text)
                    .collect();
            }
        }
        said
    }

    #[test]
    fn who_stays_is_named_once_with_the_reason() {
        assert_eq!(
            summary_of("user 7; sleep forever"),
            [
                "job has not ended",
                "stuck: job (pid 1000) may not be signalled"
            ]
        );
        assert_eq!(
            summary_of("unkillable"),
            [
                "job has not ended",
                "stuck: job (pid 1000) did not end by SIGKILL"
            ]
        );
        let left = summary_of(
            "fork { name \"left\"; close stdout; close stderr; user 7; sleep forever }; exit 0",
        );
        assert_eq!(
            left[1..],
            ["stuck: left (pid 1001) may not be signalled"],
            "{left:?}"
        );
    }

    #[test]
    fn what_the_time_limit_ended_is_background_work_only_if_the_leader_was_gone_before() {
        let deaf = summary_of("fork { name \"deaf\"; ignore TERM; sleep forever }; sleep forever");
        assert_eq!(
            deaf[1..],
            ["SIGKILL was needed for deaf (pid 1001)"],
            "{deaf:?}"
        );
        let left =
            summary_of("fork { name \"left\"; close stdout; close stderr; sleep forever }; exit 0");
        let [_, work] = left.as_slice() else {
            panic!("{left:?}")
        };
        assert!(
            work.starts_with("background work was terminated ")
                && work.ends_with(" (time limit): left (pid 1001)"),
            "{work}"
        );
    }
}
