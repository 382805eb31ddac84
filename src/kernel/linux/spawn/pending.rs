//! A spawn under method: what the child still uses, and how it went.

#![expect(
    unsafe_code,
    reason = "gives the memory of a child free, or leaves it for ever"
)]

use super::child::ChildArgs;
use super::explain;
use super::fd_slot::FdSlot;
use super::stack::Stack;
use crate::kernel::SpawnOutcome;
use crate::kernel::linux::clock;
use rustix::thread::futex;
use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Stack, child_args and shared words of a child. Dropped while the child still uses them, they are
/// leaked, never freed.
#[derive(Debug)]
pub(crate) struct PendingSpawn {
    stack: ManuallyDrop<Stack>,
    child_args: ManuallyDrop<Box<ChildArgs>>,
    fd_slot: ManuallyDrop<Option<FdSlot>>,
}

impl PendingSpawn {
    pub(super) fn new(
        stack: Stack,
        child_args: Box<ChildArgs>,
        fd_slot: Option<FdSlot>,
    ) -> PendingSpawn {
        PendingSpawn {
            stack: ManuallyDrop::new(stack),
            child_args: ManuallyDrop::new(child_args),
            fd_slot: ManuallyDrop::new(fd_slot),
        }
    }

    pub(super) fn stack(&self) -> &Stack {
        &self.stack
    }

    pub(super) fn child_args(&self) -> &ChildArgs {
        &self.child_args
    }

    /// The child has left the memory: by exec, or by its end.
    pub(crate) fn is_known(&self) -> bool {
        // Acquire: what the child wrote before it ended is seen.
        self.stack.shared().tid.load(Ordering::Acquire) == 0
    }

    /// The host still has copies of the child's ends in a fd_slot.
    #[cfg(test)]
    pub(super) fn is_fd_slot_filled(&self) -> bool {
        self.fd_slot.as_ref().is_some_and(FdSlot::is_filled)
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
            && let Some(fd_slot) = self.fd_slot.as_mut()
        {
            fd_slot.clear();
        }
        if !self.is_known() {
            return SpawnOutcome::NotYet;
        }
        match explain::error(self.stack.shared(), &self.child_args.prepared) {
            Some(error) => SpawnOutcome::Failed(error),
            // Or it was killed on its method: its exit tells.
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

    /// Stack and fd_slot, once the child has left them; itself if it has not.
    pub(super) fn into_parts(mut self) -> Result<(Stack, Option<FdSlot>), PendingSpawn> {
        if !self.is_known() {
            return Err(self);
        }
        if let Some(fd_slot) = self.fd_slot.as_mut() {
            fd_slot.clear();
        }
        let mut this = ManuallyDrop::new(self);
        // SAFETY: taken once, since `this` is not used again and its `drop` does not run.
        unsafe { ManuallyDrop::drop(&mut this.child_args) };
        // SAFETY: as above.
        let fd_slot = unsafe { ManuallyDrop::take(&mut this.fd_slot) };
        // SAFETY: as above.
        Ok((unsafe { ManuallyDrop::take(&mut this.stack) }, fd_slot))
    }
}

impl Drop for PendingSpawn {
    fn drop(&mut self) {
        if self.has_own_table() {
            // SAFETY: nobody shares the host's table any more, and this value ends.
            unsafe { ManuallyDrop::drop(&mut self.fd_slot) };
        }
        if !self.is_known() {
            return;
        }
        // SAFETY: nobody uses it any more: the child has left, and this value ends.
        unsafe { ManuallyDrop::drop(&mut self.child_args) };
        // SAFETY: as above.
        unsafe { ManuallyDrop::drop(&mut self.stack) };
    }
}
