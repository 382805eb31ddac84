//! What the host chose: bounds, signals, and what becomes of background work. Plain data.

use super::{Signal, limits};
use std::time::Duration;

/// A bound in time. Zero is "at once"; there may be none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bound {
    /// After this long.
    After(Duration),
    /// Not at all.
    Never,
}

impl Bound {
    /// The duration, if there is one.
    pub const fn duration(self) -> Option<Duration> {
        match self {
            Bound::After(d) => Some(d),
            Bound::Never => None,
        }
    }

    /// Whether the bound is zero.
    pub const fn is_zero(self) -> bool {
        matches!(self, Bound::After(d) if d.is_zero())
    }
}

impl From<Duration> for Bound {
    fn from(d: Duration) -> Bound {
        Bound::After(d)
    }
}

impl From<Option<Duration>> for Bound {
    fn from(d: Option<Duration>) -> Bound {
        d.map_or(Bound::Never, Bound::After)
    }
}

/// How long a generation's captured streams are read after the exit.
///
/// ```
/// use lastwords::{Bound, DrainPolicy};
/// use std::time::Duration;
/// let policy = DrainPolicy::default().idle(Duration::from_millis(200)).limit(Bound::Never);
/// assert_eq!(policy.idle, Bound::After(Duration::from_millis(200)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct DrainPolicy {
    /// Without a byte on any captured stream for so long. Default 2 s.
    pub idle: Bound,
    /// After the exit, whatever arrives. Default 5 s.
    pub limit: Bound,
}

impl Default for DrainPolicy {
    fn default() -> Self {
        DrainPolicy {
            idle: Bound::After(limits::DRAIN_IDLE),
            limit: Bound::After(limits::DRAIN_LIMIT),
        }
    }
}

impl DrainPolicy {
    /// Sets [`DrainPolicy::idle`].
    #[must_use]
    pub fn idle(mut self, idle: impl Into<Bound>) -> Self {
        self.idle = idle.into();
        self
    }

    /// Sets [`DrainPolicy::limit`].
    #[must_use]
    pub fn limit(mut self, limit: impl Into<Bound>) -> Self {
        self.limit = limit.into();
        self
    }
}

/// How a stop goes: a signal to the whole group, a grace, SIGKILL to the whole group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct StopPolicy {
    /// The first signal. Default TERM.
    pub signal: Signal,
    /// From the signal to SIGKILL. Default 2 s; zero is SIGKILL at once; `Never` is no SIGKILL.
    pub grace: Bound,
    /// From SIGKILL to `Stuck`. Default 5 s.
    pub stuck_after: Duration,
}

impl Default for StopPolicy {
    fn default() -> Self {
        StopPolicy {
            signal: Signal::TERM,
            grace: Bound::After(limits::STOP_GRACE),
            stuck_after: limits::STUCK_AFTER,
        }
    }
}

impl StopPolicy {
    /// Sets [`StopPolicy::signal`].
    #[must_use]
    pub fn signal(mut self, signal: Signal) -> Self {
        self.signal = signal;
        self
    }

    /// Sets [`StopPolicy::grace`].
    #[must_use]
    pub fn grace(mut self, grace: impl Into<Bound>) -> Self {
        self.grace = grace.into();
        self
    }

    /// Sets [`StopPolicy::stuck_after`].
    #[must_use]
    pub fn stuck_after(mut self, after: Duration) -> Self {
        self.stuck_after = after;
        self
    }
}

/// How long background work is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Wait {
    /// So long from the end of the grace, at most.
    For(Duration),
    /// Not at all: it is listed and left.
    ReportOnly,
}

/// What becomes of processes that outlive their leader. A field that is `None` is filled by
/// [`BackgroundPolicy::resolve`]; zero is zero.
///
/// There are four ready policies, and each sets every field:
///
/// | policy | grace | then |
/// | --- | --- | --- |
/// | [`report_only`](BackgroundPolicy::report_only), the default of the library | 100 ms | list what is left, and leave it alone |
/// | [`settle`](BackgroundPolicy::settle), the default of the command `lastwords run` | 2 s | wait 30 min at most, then SIGTERM, and SIGKILL 5 s later |
/// | [`terminate`](BackgroundPolicy::terminate) | 2 s | SIGTERM, and SIGKILL 5 s later |
/// | [`disabled`](BackgroundPolicy::disabled) | | nobody looks |
///
/// ```
/// use lastwords::{BackgroundPolicy, Command, SettledAs};
/// use std::time::Duration;
///
/// let mut command = Command::shell("sleep 60 >/dev/null 2>&1 & exit 0");
/// command.background(BackgroundPolicy::terminate().grace(Duration::ZERO));
/// let background = lastwords::run(&command)?.report.background;
/// assert_eq!(background.map(|settled| settled.state), Some(SettledAs::Terminated));
/// # Ok::<(), lastwords::RunError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct BackgroundPolicy {
    /// Nobody looks whether anything is left.
    pub disabled: bool,
    /// How long a survivor may live after the leader's exit before it counts as background work,
    /// and not as ordinary teardown.
    pub grace: Option<Duration>,
    /// How long background work is waited for, from the end of the grace.
    pub wait: Option<Wait>,
    /// From SIGTERM to SIGKILL, for what outlives the wait.
    pub terminate_grace: Option<Duration>,
    /// Leave what outlives the wait running, instead of ending it.
    pub keep_orphans: bool,
}

/// [`BackgroundPolicy::report_only`].
impl Default for BackgroundPolicy {
    fn default() -> Self {
        BackgroundPolicy::report_only()
    }
}

impl BackgroundPolicy {
    const SETTLE: BackgroundPolicy = BackgroundPolicy {
        disabled: false,
        grace: Some(limits::BACKGROUND_GRACE),
        wait: Some(Wait::For(limits::BACKGROUND_WAIT)),
        terminate_grace: Some(limits::TERMINATE_GRACE),
        keep_orphans: false,
    };

    /// Lists what is left 100 ms after the exit, and leaves it alone. A run never waits longer
    /// than that for work that its leader has left, and ends none of it.
    pub const fn report_only() -> Self {
        BackgroundPolicy {
            grace: Some(limits::REPORT_GRACE),
            wait: Some(Wait::ReportOnly),
            ..Self::SETTLE
        }
    }

    /// Waits for what is left 2 s after the exit, for at most 30 min, and ends what is still there
    /// then: SIGTERM, and SIGKILL 5 s later.
    pub const fn settle() -> Self {
        Self::SETTLE
    }

    /// Ends what is left 2 s after the exit: SIGTERM, and SIGKILL 5 s later.
    pub const fn terminate() -> Self {
        BackgroundPolicy {
            wait: Some(Wait::For(Duration::ZERO)),
            ..Self::SETTLE
        }
    }

    /// Nobody looks whether anything is left. The report says `Disabled`.
    pub const fn disabled() -> Self {
        BackgroundPolicy {
            disabled: true,
            ..Self::SETTLE
        }
    }

    /// Sets [`BackgroundPolicy::grace`].
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// Sets [`BackgroundPolicy::wait`].
    #[must_use]
    pub fn wait(mut self, wait: Wait) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Sets [`BackgroundPolicy::terminate_grace`].
    #[must_use]
    pub fn terminate_grace(mut self, grace: Duration) -> Self {
        self.terminate_grace = Some(grace);
        self
    }

    /// Sets [`BackgroundPolicy::keep_orphans`].
    #[must_use]
    pub fn keep_orphans(mut self, keep: bool) -> Self {
        self.keep_orphans = keep;
        self
    }

    /// The same with every field set: one that is `None` is taken from
    /// [`BackgroundPolicy::settle`].
    #[must_use]
    pub fn resolve(self) -> BackgroundPolicy {
        BackgroundPolicy {
            disabled: self.disabled,
            grace: self.grace.or(Self::SETTLE.grace),
            wait: self.wait.or(Self::SETTLE.wait),
            terminate_grace: self.terminate_grace.or(Self::SETTLE.terminate_grace),
            keep_orphans: self.keep_orphans,
        }
    }
}

/// How many of the last words are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct LastWordsPolicy {
    /// Lines of `stderr_tail`, the newest. Default 50.
    pub lines: usize,
    /// Lines of `late_tail`, the newest. Default 20.
    pub late_lines: usize,
}

impl Default for LastWordsPolicy {
    fn default() -> Self {
        LastWordsPolicy {
            lines: limits::TAIL_LINES,
            late_lines: limits::LATE_LINES,
        }
    }
}

impl LastWordsPolicy {
    /// Sets [`LastWordsPolicy::lines`].
    #[must_use]
    pub fn lines(mut self, lines: usize) -> Self {
        self.lines = lines;
        self
    }
}

/// Everything the machines need to know of what the host chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Policy {
    /// How long the pipes are read after the exit.
    pub drain: DrainPolicy,
    /// The stop that is used when nothing else is said (also by the run limit).
    pub stop: StopPolicy,
    /// What becomes of work that outlives its leader.
    pub background: BackgroundPolicy,
    /// The run limit, from the spawn.
    pub run_limit: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ready_policy_sets_every_field_and_the_default_only_reports() {
        let second = Duration::from_secs(1);
        let all = [
            (
                BackgroundPolicy::report_only(),
                second / 10,
                Wait::ReportOnly,
            ),
            (
                BackgroundPolicy::settle(),
                second * 2,
                Wait::For(second * 1800),
            ),
            (
                BackgroundPolicy::terminate(),
                second * 2,
                Wait::For(Duration::ZERO),
            ),
        ];
        for (policy, grace, wait) in all {
            assert_eq!(policy.resolve(), policy);
            assert_eq!((policy.grace, policy.wait), (Some(grace), Some(wait)));
            assert_eq!(policy.terminate_grace, Some(second * 5));
            assert!(!policy.disabled && !policy.keep_orphans);
        }
        assert!(BackgroundPolicy::disabled().disabled);
        assert_eq!(BackgroundPolicy::default(), BackgroundPolicy::report_only());
        let unset = BackgroundPolicy {
            grace: None,
            wait: None,
            terminate_grace: None,
            ..BackgroundPolicy::default()
        };
        assert_eq!(unset.resolve(), BackgroundPolicy::settle());
    }
}
