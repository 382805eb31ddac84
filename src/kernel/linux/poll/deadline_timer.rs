//! The timer of [`crate::kernel::Kernel::alarm`]: a timerfd in the poll set, for hosts that watch
//! the descriptor alone.

use super::{Interest, Key, Poller};
use crate::types::{Errno, Ns};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::os::fd::{AsFd, OwnedFd};

/// A timer that is watched, and not set.
#[derive(Debug)]
pub(crate) struct Alarm(OwnedFd);

impl Alarm {
    /// A new one. What may run out: descriptors, memory.
    pub(crate) fn new(poller: &mut Poller) -> Result<Alarm, Errno> {
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?;
        poller.add(timer.as_fd(), Key::Alarm, Interest::Read)?;
        poller.settle();
        Ok(Alarm(timer))
    }

    /// Makes the descriptor readable so long from now, or not at all.
    pub(crate) fn set(&self, left: Option<Ns>, poller: &mut Poller) {
        // Zero would disarm it.
        let value = left
            .map_or(Ns::ZERO, |left| Ns(left.0.max(1)))
            .to_duration();
        let value = Timespec {
            tv_sec: i64::try_from(value.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: value.subsec_nanos().into(),
        };
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: value,
        };
        let set = timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once);
        debug_assert!(set.is_ok(), "{set:?}");
        if left.is_some() {
            poller.owe(self.0.as_fd());
            poller.settle();
        }
    }
}
