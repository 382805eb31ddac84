//! The progress line of a wait for background work: what is waited for, how long, and the limit.

use super::summary::process_list;
use super::units::format_duration;
use lastwords::Survivor;
use std::time::{Duration, Instant};

/// How often the line is redrawn.
const REDRAW_INTERVAL: Duration = Duration::from_secs(1);

/// A wait for background work that has begun.
#[derive(Debug)]
pub(crate) struct Progress {
    what: String,
    since: Instant,
    of: Option<Duration>,
    end: EndedBy,
    next: Instant,
}

/// Which limit ends the wait if the work does not finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndedBy {
    /// The wait of `--background-wait` ends it.
    Wait,
    /// The time limit of `--timeout` ends it.
    Limit,
}

impl Progress {
    /// Begins a wait that ends after `wait`, or at `limit` if the time limit of the run comes
    /// first.
    pub(crate) fn begin(
        now: Instant,
        survivors: &[Survivor],
        wait: Option<Duration>,
        limit: Option<Instant>,
    ) -> Progress {
        let left = limit.map(|limit| round_for_display(limit.saturating_duration_since(now)));
        let (of, end) = match (wait, left) {
            (Some(wait), Some(left)) if wait <= left => (Some(wait), EndedBy::Wait),
            (_, Some(left)) => (Some(left), EndedBy::Limit),
            (wait, None) => (wait, EndedBy::Wait),
        };
        Progress {
            what: process_list(survivors),
            since: now,
            of,
            end,
            next: now,
        }
    }

    fn reason(&self) -> &'static str {
        match self.end {
            EndedBy::Wait => "",
            EndedBy::Limit => " (time limit)",
        }
    }

    /// The message for a stderr that is no terminal, where a line cannot be redrawn.
    pub(crate) fn announcement(&self) -> String {
        match self.of {
            Some(of) => format!(
                "waiting for background work, {} at most{}: {}",
                format_duration(of),
                self.reason(),
                self.what
            ),
            None => format!("waiting for background work: {}", self.what),
        }
    }

    /// When the line has to be redrawn next.
    pub(crate) fn next_draw(&self) -> Instant {
        self.next
    }

    /// The current text of the line, if it has to be redrawn now.
    pub(crate) fn line_if_due(&mut self, now: Instant) -> Option<String> {
        if now < self.next {
            return None;
        }
        self.next = now + REDRAW_INTERVAL;
        let waited = Duration::from_secs(now.saturating_duration_since(self.since).as_secs());
        let of = self
            .of
            .map(|of| format!(" of {}{}", format_duration(of), self.reason()))
            .unwrap_or_default();
        Some(format!(
            "lastwords: waiting for background work, {}{of}: {}",
            format_duration(waited),
            self.what
        ))
    }
}

/// Rounds the remaining time for display: to 10 ms below one second, to 100 ms below ten seconds,
/// else to whole seconds.
fn round_for_display(left: Duration) -> Duration {
    let step = match left.as_secs() {
        0 => 10,
        1..10 => 100,
        _ => 1000,
    };
    let steps = (left.as_millis() + step / 2) / step;
    Duration::from_millis(u64::try_from(steps * step).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_what_how_long_and_of_how_long_once_a_second() {
        let begin = Instant::now();
        let survivors = [Survivor::new(7, "sleep".into(), 'S', Duration::ZERO)];
        let mut live = Progress::begin(begin, &survivors, Some(Duration::from_secs(1800)), None);
        assert_eq!(
            live.line_if_due(begin).as_deref(),
            Some("lastwords: waiting for background work, 0s of 30m: sleep (pid 7)")
        );
        assert_eq!(live.line_if_due(begin + REDRAW_INTERVAL / 2), None);
        assert_eq!(
            live.line_if_due(begin + 65 * REDRAW_INTERVAL).as_deref(),
            Some("lastwords: waiting for background work, 1m5s of 30m: sleep (pid 7)")
        );
        assert_eq!(live.next_draw(), begin + 66 * REDRAW_INTERVAL);
    }

    #[test]
    fn the_nearer_of_the_wait_and_the_time_limit_is_told() {
        let begin = Instant::now();
        let survivors = [Survivor::new(7, "sleep".into(), 'S', Duration::ZERO)];
        let texts = |wait: Option<u64>, limit: Option<u64>| {
            let limit = limit.map(|ms| begin + Duration::from_millis(ms));
            let mut live =
                Progress::begin(begin, &survivors, wait.map(Duration::from_millis), limit);
            (
                live.announcement(),
                live.line_if_due(begin)
                    .expect("it is line_if_due at announcement"),
            )
        };
        let words = |of: &str, at_most: &str| {
            let who = "sleep (pid 7)";
            (
                format!("waiting for background work{at_most}: {who}"),
                format!("lastwords: waiting for background work, 0s{of}: {who}"),
            )
        };
        assert_eq!(
            texts(Some(60_000), Some(399)),
            words(" of 400ms (time limit)", ", 400ms at most (time limit)")
        );
        assert_eq!(
            texts(Some(60_000), Some(29_970)),
            words(" of 30s (time limit)", ", 30s at most (time limit)")
        );
        assert_eq!(
            texts(Some(300), Some(9000)),
            words(" of 300ms", ", 300ms at most")
        );
        assert_eq!(
            texts(None, Some(1_520)),
            words(" of 1.5s (time limit)", ", 1.5s at most (time limit)")
        );
        assert_eq!(texts(None, None), words("", ""));
    }
}
