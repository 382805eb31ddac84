//! The only place that reads a clock.

use crate::types::Ns;
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant, SystemTime};

/// Monotonic time since it was made (CLOCK_MONOTONIC: it stands still while the machine is
/// suspended).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
    tag: u32,
}

impl Clock {
    /// A clock that begins now.
    pub(crate) fn new() -> Clock {
        Clock {
            origin: instant(),
            tag: tag(),
        }
    }

    /// Nanoseconds since it was made.
    pub(crate) fn now(&self) -> Ns {
        Ns::from(self.origin.elapsed())
    }

    /// The time at which it was made, for those who speak of std's `Instant`.
    pub(crate) fn origin(&self) -> Instant {
        self.origin
    }

    /// A number that differs from one clock to the next.
    pub(crate) fn tag(&self) -> u32 {
        self.tag
    }
}

/// Of nanoseconds, the lowest bits differ most. Never 0: that is the tag of forked copies.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "any bits will do"
)]
fn tag() -> u32 {
    let now = clock_gettime(ClockId::Monotonic);
    ((now.tv_nsec as u32) ^ (now.tv_sec as u32).rotate_left(20)).max(1)
}

/// CLOCK_MONOTONIC, for waits of the kernel object's own.
pub(crate) fn instant() -> Instant {
    Instant::now()
}

/// The wall clock (CLOCK_REALTIME). For reports only; nothing is decided by it.
pub(crate) fn wall() -> SystemTime {
    SystemTime::now()
}

/// Time since boot, suspended time included: what process start times count from (proc_pid_stat(5),
/// field 22).
pub(crate) fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(
        u64::try_from(now.tv_sec).unwrap_or(0),
        u32::try_from(now.tv_nsec).unwrap_or(0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_begins_at_zero_and_never_goes_back() {
        let clock = Clock::new();
        let first = clock.now();
        assert!(first < Ns::from_millis(60_000));
        assert!(clock.now() >= first);
        assert!(clock.origin() <= Instant::now());
        assert!(wall() > SystemTime::UNIX_EPOCH);
        assert!(since_boot() > Duration::ZERO);
    }
}
