//! The wait for background work, as one sees it on a terminal: what is waited for, how long, of how long.

use super::duration::show;
use super::summary::names;
use lastwords::Survivor;
use std::time::{Duration, Instant};

/// How often the line is drawn.
const EVERY: Duration = Duration::from_secs(1);

/// A wait that is under way.
#[derive(Debug)]
pub(crate) struct Live {
    what: String,
    since: Instant,
    of: Option<Duration>,
    next: Instant,
}

impl Live {
    /// It has begun.
    pub(crate) fn begin(now: Instant, survivors: &[Survivor], of: Option<Duration>) -> Live {
        Live { what: names(survivors), since: now, of, next: now }
    }

    /// What is told of it once, where there is no line to draw again.
    pub(crate) fn once(&self) -> String {
        match self.of {
            Some(of) => format!("waiting for background work, {} at most: {}", show(of), self.what),
            None => format!("waiting for background work: {}", self.what),
        }
    }

    /// When it is to be drawn again.
    pub(crate) fn next(&self) -> Instant {
        self.next
    }

    /// The line as it is now, if it is to be drawn again.
    pub(crate) fn due(&mut self, now: Instant) -> Option<String> {
        if now < self.next {
            return None;
        }
        self.next = now + EVERY;
        let waited = Duration::from_secs(now.saturating_duration_since(self.since).as_secs());
        let of = self.of.map(|of| format!(" of {}", show(of))).unwrap_or_default();
        Some(format!("lastwords: waiting for background work, {}{of}: {}", show(waited), self.what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_what_how_long_and_of_how_long_once_a_second() {
        let begin = Instant::now();
        let survivors = [Survivor::new(7, "sleep".into(), 'S', Duration::ZERO)];
        let mut live = Live::begin(begin, &survivors, Some(Duration::from_secs(1800)));
        assert_eq!(live.due(begin).as_deref(), Some("lastwords: waiting for background work, 0s of 30m: sleep (pid 7)"));
        assert_eq!(live.due(begin + EVERY / 2), None);
        assert_eq!(live.due(begin + 65 * EVERY).as_deref(), Some("lastwords: waiting for background work, 1m5s of 30m: sleep (pid 7)"));
        assert_eq!(live.next(), begin + 66 * EVERY);
    }
}
