//! The timer of [`crate::kernel::Kernel::alarm`]: a timerfd(2) in the poll set, for hosts that
//! watch only the descriptor.

use super::{Interest, Key, Poller};
use crate::types::{Errno, Ns};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::os::fd::{AsFd, OwnedFd};

/// A timer in the poll set.
#[derive(Debug)]
pub(crate) struct Alarm(OwnedFd);

impl Alarm {
    /// A new timer, not set. Fails for want of descriptors or memory.
    pub(crate) fn new(poller: &mut Poller) -> Result<Alarm, Errno> {
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?;
        poller.add(timer.as_fd(), Key::Alarm, Interest::Read)?;
        Ok(Alarm(timer))
    }

    /// Makes the descriptor readable after `left`, or not at all.
    pub(crate) fn set(&self, left: Option<Ns>, poller: &mut Poller) {
        // Zero would disarm the timer.
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
            poller.rearm(self.0.as_fd());
        }
    }
}
