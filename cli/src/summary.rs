//! What lastwords says on stderr once the command is over.

use super::duration::show;
use lastwords::{
    DrainReport, EndedBy, Outcome, Report, Settled, SettledAs, StopReason, Stream, StreamEnd,
    Survivor, Verdict,
};

/// How many processes are named; the rest is counted.
const NAMED: usize = 5;
/// What the line begins with that names who stays.
const STUCK: &str = "stuck: ";

/// How grave a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Worth knowing on a terminal.
    Fine,
    /// To be told anywhere.
    Warning,
    /// Something failed.
    Failure,
}

/// One line, without the prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) tone: Tone,
    pub(crate) text: String,
}

impl Line {
    fn fine(text: String) -> Line {
        Line {
            tone: Tone::Fine,
            text,
        }
    }

    pub(crate) fn warning(text: String) -> Line {
        Line {
            tone: Tone::Warning,
            text,
        }
    }

    pub(crate) fn failure(text: String) -> Line {
        Line {
            tone: Tone::Failure,
            text,
        }
    }

    /// With the prefix, and with its colour if colours are wanted.
    pub(crate) fn render(&self, colors: bool) -> String {
        let color = match self.tone {
            Tone::Fine => "2",
            Tone::Warning => "33",
            Tone::Failure => "31",
        };
        if colors {
            format!("\x1b[{color}mlastwords:\x1b[0m {}", self.text)
        } else {
            format!("lastwords: {}", self.text)
        }
    }
}

/// Everything there is to say of a run, the end first.
pub(crate) fn lines(report: &Report) -> Vec<Line> {
    if let Some(error) = &report.error {
        return vec![Line::failure(format!("failed to {error}"))];
    }
    let mut lines = vec![end(report)];
    lines.extend(report.drain.as_ref().and_then(drain));
    lines.extend(stuck(report));
    if let Some(work) = &report.background {
        // Who stays is named once, with the reason.
        let is_named =
            work.state == SettledAs::Stuck && lines.iter().any(|line| line.text.starts_with(STUCK));
        lines.extend(background(report, work).filter(|_| !is_named));
        lines.extend(held(report, work));
    }
    lines
}

/// How the leader ended.
fn end(report: &Report) -> Line {
    let name = plain(report.command.first().map_or("the command", String::as_str));
    let how = match report
        .exit
        .map(|exit| (exit.code, exit.signal, exit.core_dumped))
    {
        None => return Line::failure(format!("{name} has not ended")),
        Some((Some(code), _, _)) => format!("exited with {code}"),
        Some((None, Some(signal), core)) => format!(
            "was ended by {signal}{}",
            if core { ", core dumped" } else { "" }
        ),
        Some((None, None, _)) => {
            return Line::failure(format!(
                "{name} has ended, and its status was collected by somebody else"
            ));
        }
    };
    let after = report
        .timing
        .and_then(|timing| timing.ran)
        .map(|ran| format!(" after {}", show(ran)))
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
    // Whoever reads only what is said must learn why it has ended.
    if report.outcome == Some(Outcome::TimedOut) {
        Line::warning(text)
    } else {
        Line::fine(text)
    }
}

/// A drain that a bound ended, and who was the reason.
fn drain(drain: &DrainReport) -> Option<Line> {
    let why = match (drain.verdict, drain.ended_by) {
        (Verdict::DrainTimedOut, Some(EndedBy::Idle)) => {
            format!("nothing came for {}", bound(drain.policy.idle))
        }
        (Verdict::DrainTimedOut, Some(EndedBy::Limit)) => {
            format!("still open {} after the exit", bound(drain.policy.limit))
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
        .map(|holder| process(&holder.comm, holder.pid))
        .collect();
    let looked = matches!(drain.ended_by, Some(EndedBy::Idle | EndedBy::Limit));
    let holders = match (holders.is_empty(), drain.holders_complete) {
        (true, true) if looked => ": nobody holds it any more".to_owned(),
        (true, false) if looked => ": who holds it could not be found out".to_owned(),
        (true, _) => String::new(),
        (false, complete) => format!(
            ": held by {}{}",
            listed(holders),
            if complete { "" } else { " and perhaps others" }
        ),
    };
    Some(Line::warning(format!(
        "timed out waiting for {streams} to drain ({why}){holders}"
    )))
}

fn bound(bound: lastwords::Bound) -> String {
    bound.duration().map_or_else(|| "ever".to_owned(), show)
}

/// Who survived SIGKILL, or refused to be signalled.
fn stuck(report: &Report) -> Option<Line> {
    let stop = report.stop.as_ref().filter(|stop| !stop.stuck.is_empty())?;
    let why = if stop.denied {
        "may not be signalled"
    } else {
        "did not end by SIGKILL"
    };
    Some(Line::failure(format!(
        "{STUCK}{} {why}",
        names(&stop.stuck)
    )))
}

/// What became of background work.
fn background(report: &Report, work: &Settled) -> Option<Line> {
    let (who, waited) = (names(&work.processes), show(work.waited));
    Some(match work.state {
        // Ended by a stop before anybody was listed: that is the stop's affair.
        SettledAs::Finished | SettledAs::Terminated if work.processes.is_empty() => return None,
        SettledAs::Finished => Line::fine(format!(
            "background work finished {waited} after the exit: {who}"
        )),
        // The stop came before the exit: nothing was left but by its own ladder, and these did not
        // go by its first signal.
        SettledAs::Terminated
            if matches!(report.outcome, Some(Outcome::Stopped | Outcome::TimedOut)) =>
        {
            Line::warning(format!("SIGKILL was needed for {who}"))
        }
        SettledAs::Terminated => {
            let limit = report
                .stop
                .as_ref()
                .is_some_and(|stop| stop.reason == StopReason::Timeout);
            let why = if limit { " (time limit)" } else { "" };
            Line::warning(format!(
                "background work was terminated {waited} after the exit{why}: {who}"
            ))
        }
        SettledAs::Kept | SettledAs::Reported => {
            Line::warning(format!("background work is left running: {who}"))
        }
        SettledAs::Stuck => Line::failure(format!("background work could not be ended: {who}")),
        _ => return None,
    })
}

/// Work that is left with a pipe whose reader ends now.
fn held(report: &Report, work: &Settled) -> Option<Line> {
    // With nobody looking, it is known by the pipe that it holds.
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
        Line::warning(format!(
            "what it writes to {streams} from now on finds a closed pipe"
        ))
    })
}

/// `sleep (pid 7), cat (pid 8) and 3 more`.
pub(crate) fn names(processes: &[Survivor]) -> String {
    listed(processes.iter().map(|p| process(&p.comm, p.pid)).collect())
}

fn process(comm: &str, pid: u32) -> String {
    format!("{} (pid {pid})", plain(comm))
}

fn listed(mut names: Vec<String>) -> String {
    let more = names.len().saturating_sub(NAMED);
    names.truncate(NAMED);
    match (names.is_empty(), more) {
        (true, _) => "nobody that could be named".to_owned(),
        (false, 0) => names.join(", "),
        (false, more) => format!("{} and {more} more", names.join(", ")),
    }
}

/// Nothing that a terminal would act on.
fn plain(text: &str) -> String {
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

/// Characters that change how others are shown: bidirectional controls, line and paragraph
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

    /// What is said of a job that is stopped after a second.
    fn said(script: &str) -> Vec<String> {
        let mut reactor = Reactor::simulated(SimOptions::default());
        let mut command = Command::new("job");
        command
            .arg(script)
            .run_limit(Duration::from_secs(1))
            .stop(StopPolicy::default().grace(Duration::from_millis(100)));
        command.background(BackgroundPolicy::default().grace(Duration::from_millis(200)));
        reactor.start(&command).expect("it starts");
        let mut said = Vec::new();
        while let Some(event) = reactor.wait_event(None).expect("a turn") {
            if let Event::Closed { report, .. } = event {
                said = lines(&report).into_iter().map(|line| line.text).collect();
            }
        }
        said
    }

    #[test]
    fn who_stays_is_named_once_with_the_reason() {
        assert_eq!(
            said("user 7; sleep forever"),
            [
                "job has not ended",
                "stuck: job (pid 1000) may not be signalled"
            ]
        );
        assert_eq!(
            said("unkillable"),
            [
                "job has not ended",
                "stuck: job (pid 1000) did not end by SIGKILL"
            ]
        );
        let left = said(
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
        let deaf = said("fork { name \"deaf\"; ignore TERM; sleep forever }; sleep forever");
        assert_eq!(
            deaf[1..],
            ["SIGKILL was needed for deaf (pid 1001)"],
            "{deaf:?}"
        );
        let left =
            said("fork { name \"left\"; close stdout; close stderr; sleep forever }; exit 0");
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
