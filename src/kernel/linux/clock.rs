//! The only code that reads a clock.

use crate::types::Ns;
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant, SystemTime};

/// Monotonic time since the clock was made (CLOCK_MONOTONIC, which stands still while the machine
/// is suspended).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
    tag: u32,
}

impl Clock {
    /// A clock that starts at zero now.
    pub(crate) fn new() -> Clock {
        Clock {
            origin: instant(),
            tag: tag(),
        }
    }

    /// The time since the clock was made.
    pub(crate) fn now(&self) -> Ns {
        Ns::from(self.origin.elapsed())
    }

    /// The moment at which the clock was made.
    pub(crate) fn origin(&self) -> Instant {
        self.origin
    }

    /// A number that differs between clocks of one process; never 0.
    pub(crate) fn tag(&self) -> u32 {
        self.tag
    }
}

/// The lowest bits of the nanoseconds differ most. 0 is reserved for forked copies.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "any bits will do"
)]
fn tag() -> u32 {
    let now = clock_gettime(ClockId::Monotonic);
    ((now.tv_nsec as u32) ^ (now.tv_sec as u32).rotate_left(20)).max(1)
}

/// Time since boot in clock ticks, rounded down: a process that is started later has no earlier
/// start time (proc_pid_stat(5), field 22).
pub(crate) fn ticks_since_boot() -> u64 {
    let ticks = u128::from(rustix::param::clock_ticks_per_second());
    u64::try_from(since_boot().as_nanos() * ticks / 1_000_000_000).unwrap_or(u64::MAX)
}

/// The present moment, for waits inside the kernel object (CLOCK_MONOTONIC).
pub(crate) fn instant() -> Instant {
    Instant::now()
}

/// The wall clock (CLOCK_REALTIME), for reports only. No decision depends on it.
pub(crate) fn wall() -> SystemTime {
    SystemTime::now()
}

/// Time since boot, suspended time included (CLOCK_BOOTTIME). Start times of processes count from
/// there (proc_pid_stat(5), field 22).
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
