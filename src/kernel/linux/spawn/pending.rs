//! A spawn whose outcome is not known: what the child still uses of the host.

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

/// Stack, arguments and shared words of a child. If it is dropped while the child still uses them,
/// they are leaked.
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

    /// Whether the child has left the memory, by exec or by ending.
    pub(crate) fn is_known(&self) -> bool {
        // Acquire, so that what the child wrote before it ended is seen.
        self.stack.shared().tid.load(Ordering::Acquire) == 0
    }

    /// Whether the host still has copies of the child's ends in a slot.
    #[cfg(test)]
    pub(super) fn is_fd_slot_filled(&self) -> bool {
        self.fd_slot.as_ref().is_some_and(FdSlot::is_filled)
    }

    /// Whether the child has its own descriptor table, or has ended.
    fn has_own_table(&self) -> bool {
        self.stack.shared().own_table.load(Ordering::Acquire) != 0 || self.is_known()
    }

    /// The outcome; a memory load or two while it is not known. This also clears the slot once the
    /// child has its own descriptor table, so it must be asked before end of file of the child's
    /// streams can be expected.
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
            // Or it was killed before exec, which its exit status tells.
            None => SpawnOutcome::Started,
        }
    }

    /// Sleeps until the outcome is known, at most for `timeout`; without limit for `None`.
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
            // Not a private futex, because the kernel's wake-up when the child leaves is a shared
            // one. Whatever the result, the word is checked again.
            let left = left.and_then(|left| left.try_into().ok());
            let _ = futex::wait(tid, futex::Flags::empty(), now, left.as_ref());
        }
    }

    /// Stack and slot, once the child has left them; before that, the value itself.
    pub(super) fn into_parts(mut self) -> Result<(Stack, Option<FdSlot>), PendingSpawn> {
        if !self.is_known() {
            return Err(self);
        }
        if let Some(fd_slot) = self.fd_slot.as_mut() {
            fd_slot.clear();
        }
        let mut this = ManuallyDrop::new(self);
        // SAFETY: taken once: `this` is not used again, and its `drop` does not run.
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
            // SAFETY: no child shares the host's table any more, and this value ends here.
            unsafe { ManuallyDrop::drop(&mut self.fd_slot) };
        }
        if !self.is_known() {
            return;
        }
        // SAFETY: the child has left the memory, and this value ends here.
        unsafe { ManuallyDrop::drop(&mut self.child_args) };
        // SAFETY: as above.
        unsafe { ManuallyDrop::drop(&mut self.stack) };
    }
}
