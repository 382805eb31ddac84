//! Time as the rules see it: an integer that is handed to them.

use std::time::Duration;

/// Nanoseconds since the loop was made. Checked arithmetic: it saturates, it never wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ns(pub u64);

impl Ns {
    /// The time at which the loop began.
    pub const ZERO: Ns = Ns(0);
    /// Later than any time that comes: 584 years.
    pub const MAX: Ns = Ns(u64::MAX);

    /// This time and so much more.
    #[must_use]
    pub const fn after(self, more: Ns) -> Ns {
        Ns(self.0.saturating_add(more.0))
    }

    /// How long since `earlier`; zero if that is later.
    #[must_use]
    pub const fn since(self, earlier: Ns) -> Ns {
        Ns(self.0.saturating_sub(earlier.0))
    }

    /// So many milliseconds.
    pub const fn from_millis(ms: u64) -> Ns {
        Ns(ms.saturating_mul(1_000_000))
    }

    /// As std's type.
    pub const fn to_duration(self) -> Duration {
        Duration::from_nanos(self.0)
    }
}

impl From<Duration> for Ns {
    fn from(d: Duration) -> Ns {
        Ns(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Ns(1).since(Ns(2)), Ns::ZERO);
        assert_eq!(Ns::MAX.after(Ns(1)), Ns::MAX);
        assert_eq!(Ns::from(Duration::MAX), Ns::MAX);
        assert_eq!(Ns::from_millis(3).to_duration(), Duration::from_millis(3));
    }
}
