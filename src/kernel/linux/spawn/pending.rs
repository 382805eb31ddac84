//! A spawn under way: what the child still uses, and how it went.

#![expect(
    unsafe_code,
    reason = "gives the memory of a child free, or leaves it for ever"
)]

use super::child::Job;
use super::explain;
use super::fd_slot::Lane;
use super::stack::Stack;
use crate::kernel::SpawnOutcome;
use crate::kernel::linux::clock;
use rustix::thread::futex;
use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Stack, job and shared words of a child. Dropped while the child still uses them, they are
/// leaked, never freed.
#[derive(Debug)]
pub(crate) struct Pending {
    stack: ManuallyDrop<Stack>,
    job: ManuallyDrop<Box<Job>>,
    lane: ManuallyDrop<Option<Lane>>,
}

impl Pending {
    pub(super) fn new(stack: Stack, job: Box<Job>, lane: Option<Lane>) -> Pending {
        Pending {
            stack: ManuallyDrop::new(stack),
            job: ManuallyDrop::new(job),
            lane: ManuallyDrop::new(lane),
        }
    }

    pub(super) fn stack(&self) -> &Stack {
        &self.stack
    }

    pub(super) fn job(&self) -> &Job {
        &self.job
    }

    /// The child has left the memory: by exec, or by its end.
    pub(crate) fn is_known(&self) -> bool {
        // Acquire: what the child wrote before it ended is seen.
        self.stack.shared().tid.load(Ordering::Acquire) == 0
    }

    /// It shares the host's table for a while.
    #[cfg(test)]
    pub(super) fn has_lane(&self) -> bool {
        self.lane.is_some()
    }

    /// The host still has copies of the child's ends in a lane.
    #[cfg(test)]
    pub(super) fn is_lending(&self) -> bool {
        self.lane.as_ref().is_some_and(Lane::is_lent)
    }

    /// The child has a descriptor table of its own, or has ended.
    fn has_own_table(&self) -> bool {
        self.stack.shared().own_table.load(Ordering::Acquire) != 0 || self.is_known()
    }

    /// How it went; a memory load or two while it is not known. In a host with many descriptors,
    /// this is also what closes the host's last copies of the child's ends: so it is asked
    /// before the end of their streams is waited for.
    pub(crate) fn outcome(&mut self) -> SpawnOutcome {
        if self.has_own_table()
            && let Some(lane) = self.lane.as_mut()
        {
            lane.rest();
        }
        if !self.is_known() {
            return SpawnOutcome::NotYet;
        }
        match explain::error(self.stack.shared(), &self.job.prepared) {
            Some(error) => SpawnOutcome::Failed(error),
            // Or it was killed on its way: its exit tells.
            None => SpawnOutcome::Started,
        }
    }

    /// Sleeps until the outcome is known, at most so long; for ever with `None`.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) {
        let tid = &self.stack.shared().tid;
        let end = timeout.and_then(|t| clock::instant().checked_add(t));
        loop {
            let now = tid.load(Ordering::Acquire);
            if now == 0 {
                return;
            }
            let left = end.map(|end| end.saturating_duration_since(clock::instant()));
            if left == Some(Duration::ZERO) {
                return;
            }
            // Not a private futex: the kernel's own wake at the child's leave is a shared one.
            // Every answer (woken, changed meanwhile, interrupted, late) is a reason to
            // look again.
            let left = left.and_then(|left| left.try_into().ok());
            let _ = futex::wait(tid, futex::Flags::empty(), now, left.as_ref());
        }
    }

    /// Stack and lane, once the child has left them; itself if it has not.
    pub(super) fn into_parts(mut self) -> Result<(Stack, Option<Lane>), Pending> {
        if !self.is_known() {
            return Err(self);
        }
        if let Some(lane) = self.lane.as_mut() {
            lane.rest();
        }
        let mut this = ManuallyDrop::new(self);
        // SAFETY: taken once, since `this` is not used again and its `drop` does not run.
        unsafe { ManuallyDrop::drop(&mut this.job) };
        // SAFETY: as above.
        let lane = unsafe { ManuallyDrop::take(&mut this.lane) };
        // SAFETY: as above.
        Ok((unsafe { ManuallyDrop::take(&mut this.stack) }, lane))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.has_own_table() {
            // SAFETY: nobody shares the host's table any more, and this value ends.
            unsafe { ManuallyDrop::drop(&mut self.lane) };
        }
        if !self.is_known() {
            return;
        }
        // SAFETY: nobody uses it any more: the child has left, and this value ends.
        unsafe { ManuallyDrop::drop(&mut self.job) };
        // SAFETY: as above.
        unsafe { ManuallyDrop::drop(&mut self.stack) };
    }
}
