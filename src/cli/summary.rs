//! What lastwords says on stderr once the command is over.

use super::duration::show;
use lastwords::{DrainReport, EndedBy, Outcome, Report, Settled, SettledAs, Stream, StreamEnd, Survivor, Verdict};

/// How many processes are named; the rest is counted.
const NAMED: usize = 5;

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
        Line { tone: Tone::Fine, text }
    }

    pub(crate) fn warning(text: String) -> Line {
        Line { tone: Tone::Warning, text }
    }

    pub(crate) fn failure(text: String) -> Line {
        Line { tone: Tone::Failure, text }
    }

    /// With the prefix, and with its colour if colours are wanted.
    pub(crate) fn render(&self, colors: bool) -> String {
        let color = match self.tone {
            Tone::Fine => "2",
            Tone::Warning => "33",
            Tone::Failure => "31",
        };
        if colors { format!("\x1b[{color}mlastwords:\x1b[0m {}", self.text) } else { format!("lastwords: {}", self.text) }
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
        lines.extend(background(work));
        lines.extend(held(report, work));
    }
    lines
}

/// How the leader ended.
fn end(report: &Report) -> Line {
    let name = plain(report.command.first().map_or("the command", String::as_str));
    let how = match report.exit.map(|exit| (exit.code, exit.signal, exit.core_dumped)) {
        None => return Line::failure(format!("{name} has not ended")),
        Some((Some(code), _, _)) => format!("exited with {code}"),
        Some((None, Some(signal), core)) => format!("was ended by {signal}{}", if core { ", core dumped" } else { "" }),
        Some((None, None, _)) => return Line::failure(format!("{name} has ended, and its status was collected by somebody else")),
    };
    let after = report.timing.and_then(|timing| timing.ran).map(|ran| format!(" after {}", show(ran))).unwrap_or_default();
    let why = match report.outcome {
        Some(Outcome::Stopped) => " (stopped)",
        Some(Outcome::TimedOut) => " (time limit)",
        _ => "",
    };
    let hard = if report.stop.as_ref().is_some_and(|stop| stop.escalated) { ", SIGKILL was needed" } else { "" };
    let text = format!("{name} {how}{after}{why}{hard}");
    // Whoever reads only what is said must learn why it has ended.
    if report.outcome == Some(Outcome::TimedOut) { Line::warning(text) } else { Line::fine(text) }
}

/// A drain that a bound ended, and who was the reason.
fn drain(drain: &DrainReport) -> Option<Line> {
    let why = match (drain.verdict, drain.ended_by) {
        (Verdict::DrainTimedOut, Some(EndedBy::Idle)) => format!("nothing came for {}", bound(drain.policy.idle)),
        (Verdict::DrainTimedOut, Some(EndedBy::Limit)) => format!("still open {} after the exit", bound(drain.policy.limit)),
        (Verdict::DrainTimedOut, Some(EndedBy::Stop | EndedBy::Deadline)) => "still open when everything was stopped".to_owned(),
        _ => return None,
    };
    let streams: Vec<&str> = drain.open.iter().map(|stream| stream.name()).collect();
    let streams = if streams.is_empty() { "output".to_owned() } else { streams.join(" and ") };
    let holders: Vec<String> = drain.holders.iter().map(|holder| process(&holder.comm, holder.pid)).collect();
    let looked = matches!(drain.ended_by, Some(EndedBy::Idle | EndedBy::Limit));
    let holders = match (holders.is_empty(), drain.holders_complete) {
        (true, true) if looked => ": nobody holds it any more".to_owned(),
        (true, false) if looked => ": who holds it could not be found out".to_owned(),
        (true, _) => String::new(),
        (false, complete) => format!(": held by {}{}", listed(holders), if complete { "" } else { " and perhaps others" }),
    };
    Some(Line::warning(format!("timed out waiting for {streams} to drain ({why}){holders}")))
}

fn bound(bound: lastwords::Bound) -> String {
    bound.duration().map_or_else(|| "ever".to_owned(), show)
}

/// Who survived SIGKILL, or refused to be signalled.
fn stuck(report: &Report) -> Option<Line> {
    let stop = report.stop.as_ref().filter(|stop| !stop.stuck.is_empty())?;
    let why = if stop.denied { "may not be signalled" } else { "did not end by SIGKILL" };
    Some(Line::failure(format!("stuck: {} {why}", names(&stop.stuck))))
}

/// What became of background work.
fn background(work: &Settled) -> Option<Line> {
    let (who, waited) = (names(&work.processes), show(work.waited));
    Some(match work.state {
        // Ended by a stop before anybody was listed: that is the stop's affair.
        SettledAs::Finished | SettledAs::Terminated if work.processes.is_empty() => return None,
        SettledAs::Finished => Line::fine(format!("background work finished {waited} after the exit: {who}")),
        SettledAs::Terminated => Line::warning(format!("background work was terminated {waited} after the exit: {who}")),
        SettledAs::Kept | SettledAs::Reported => Line::warning(format!("background work is left running: {who}")),
        SettledAs::Stuck => Line::failure(format!("background work could not be ended: {who}")),
        _ => return None,
    })
}

/// Work that is left with a pipe whose reader ends now.
fn held(report: &Report, work: &Settled) -> Option<Line> {
    // With nobody looking, it is known by the pipe that it holds.
    let unseen = work.state == SettledAs::Disabled && report.drain.as_ref().is_some_and(|drain| !drain.holders.is_empty());
    let left = unseen || matches!(work.state, SettledAs::Kept | SettledAs::Reported);
    let open = |stream: Stream| unseen && report.drain.as_ref().is_some_and(|drain| drain.open.contains(&stream));
    let held = |stream: &Option<lastwords::StreamReport>| stream.is_some_and(|s| s.end == Some(StreamEnd::Held));
    let streams = match (held(&report.stdout) || open(Stream::Stdout), held(&report.stderr) || open(Stream::Stderr)) {
        (true, true) => "stdout and stderr",
        (true, false) => "stdout",
        (false, true) => "stderr",
        (false, false) => return None,
    };
    left.then(|| Line::warning(format!("what it writes to {streams} from now on finds a closed pipe")))
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
    text.chars().map(|c| if c.is_control() || is_format(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Characters that change how others are shown: bidirectional controls, line and paragraph separators.
fn is_format(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
