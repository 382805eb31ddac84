//! Low descriptor numbers kept for children of a host with many descriptors.
//!
//! A clone copies the host's descriptor table, 10 µs per thousand on the machine where it was
//! measured, and exec closes the copies one by one. With CLONE_FILES the child shares the table
//! instead, and close_range(2) with CLOSE_RANGE_UNSHARE gives it one of its own that has only the
//! lowest ones. So the child's ends must be low, and stay until the child has its own table; then
//! the placeholder is put back, and the host's copies are closed by that.

#![expect(unsafe_code, reason = "puts descriptors onto numbers that it owns")]

use super::fd_remap::ChildEnd;
use super::syscall::call;
use crate::types::Errno;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// FdSlots that a spawner keeps: so many children may be between clone and a table of their own at
/// once; more copy the table.
const SLOTS: usize = 8;
/// A table of this size (FDSize in /proc/self/status) is worth it.
const LARGE: usize = 1024;
/// From this size on numbers are reserved, while they are still low, if they were not from the
/// beginning.
const GROWING: usize = 512;

/// Three numbers.
#[derive(Debug)]
pub(super) struct FdSlot {
    slots: [OwnedFd; 3],
    placeholder: Arc<OwnedFd>,
    filled: bool,
}

/// Those that are free.
#[derive(Debug, Default)]
pub(super) struct FdSlots {
    free: Vec<FdSlot>,
    reserved: bool,
    /// The first number above all slots.
    above: RawFd,
}

impl FdSlots {
    /// With the numbers reserved at once, if this process may have so many descriptors that a large
    /// table is to be expected: it may come by them before its first child.
    pub(super) fn new(placeholder: Option<&Arc<OwnedFd>>) -> FdSlots {
        let mut fd_slots = FdSlots::default();
        let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        if let Some(placeholder) =
            placeholder.filter(|_| most.is_none_or(|most| most > LARGE as u64))
        {
            fd_slots.reserved = true;
            fd_slots.reserve(placeholder);
        }
        fd_slots
    }

    /// A fd_slot, and the number from which on the child needs no descriptors; `None` if copying is
    /// cheap, or no fd_slot is free.
    pub(super) fn take(
        &mut self,
        table: usize,
        placeholder: Option<&Arc<OwnedFd>>,
    ) -> Option<(FdSlot, RawFd)> {
        if !self.reserved && table >= GROWING {
            self.reserved = true;
            self.reserve(placeholder?);
        }
        // Half: the slots may be high in a host that had many descriptors before it had a spawner.
        if table < LARGE || usize::try_from(self.above).ok()? > table / 2 {
            return None;
        }
        Some((self.free.pop()?, self.above))
    }

    /// How many there are to take.
    #[cfg(test)]
    pub(super) fn free_count(&self) -> usize {
        self.free.len()
    }

    /// Takes a fd_slot back.
    pub(super) fn put(&mut self, fd_slot: FdSlot) {
        if !fd_slot.filled {
            self.free.push(fd_slot);
        }
    }

    /// Running out of descriptors here is no error: there are fewer fd_slots then.
    fn reserve(&mut self, placeholder: &Arc<OwnedFd>) {
        let slot = || rustix::io::fcntl_dupfd_cloexec(placeholder, 3);
        for _ in 0..SLOTS {
            let (Ok(a), Ok(b), Ok(c)) = (slot(), slot(), slot()) else {
                return;
            };
            self.above = [&a, &b, &c]
                .iter()
                .map(|fd| fd.as_raw_fd() + 1)
                .chain([self.above])
                .max()
                .unwrap_or(self.above);
            self.free.push(FdSlot {
                slots: [a, b, c],
                placeholder: Arc::clone(placeholder),
                filled: false,
            });
        }
    }
}

impl FdSlot {
    /// Puts the ends into the slots, and says where they are.
    pub(super) fn fill(&mut self, ends: [ChildEnd; 3]) -> Result<[ChildEnd; 3], Errno> {
        self.filled = true;
        let mut filled = ends;
        for (end, slot) in filled.iter_mut().zip(&self.slots) {
            if let ChildEnd::Fd(fd) = end {
                put(*fd, slot)?;
                *end = ChildEnd::Fd(slot.as_raw_fd());
            }
        }
        Ok(filled)
    }

    /// Something is in the slots.
    #[cfg(test)]
    pub(super) fn is_filled(&self) -> bool {
        self.filled
    }

    /// The child has its own table, or never will: closes what was filled.
    pub(super) fn clear(&mut self) {
        if !self.filled {
            return;
        }
        let closed = self
            .slots
            .iter()
            .map(|slot| put(self.placeholder.as_raw_fd(), slot));
        // Both numbers are open and different, so this cannot fail; if it did, the fd_slot would not
        // be used again.
        self.filled = closed.fold(false, |failed, one| failed | one.is_err());
    }
}

/// dup3(2) onto a number that is ours, close-on-exec.
fn put(fd: RawFd, slot: &OwnedFd) -> Result<(), Errno> {
    // SAFETY: the number is owned by a fd_slot, and stays open whatever is put there.
    unsafe {
        call(
            libc::SYS_dup3,
            [
                fd as usize,
                slot.as_raw_fd() as usize,
                libc::O_CLOEXEC as usize,
                0,
                0,
            ],
        )
    }
    .map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_small_table_is_copied_and_numbers_are_reserved_when_it_grows() {
        let null = Arc::new(OwnedFd::from(
            std::fs::File::open("/dev/null").expect("there"),
        ));
        let mut fd_slots = FdSlots::default();
        assert!(fd_slots.take(64, Some(&null)).is_none());
        assert!(!fd_slots.reserved);
        assert!(fd_slots.take(GROWING, Some(&null)).is_none());
        assert_eq!(fd_slots.free.len(), SLOTS);
        let table = usize::try_from(fd_slots.above).expect("positive") * 2 + LARGE;
        let taken: Vec<_> = (0..SLOTS)
            .map(|_| fd_slots.take(table, Some(&null)).expect("one each"))
            .collect();
        assert!(fd_slots.take(table, Some(&null)).is_none());
        let highest = taken
            .iter()
            .flat_map(|(fd_slot, _)| &fd_slot.slots)
            .map(|fd| fd.as_raw_fd())
            .max();
        assert!(
            taken
                .iter()
                .all(|(_, above)| Some(*above) == highest.map(|fd| fd + 1))
        );
        assert!(FdSlots::default().take(1 << 20, None).is_none());
    }

    #[test]
    fn what_was_lent_is_closed_when_the_lane_rests() {
        let null = Arc::new(OwnedFd::from(
            std::fs::File::open("/dev/null").expect("there"),
        ));
        let mut fd_slots = FdSlots::default();
        fd_slots.reserve(&null);
        let mut fd_slot = fd_slots.free.pop().expect("reserved");
        let (read, write) = std::io::pipe().expect("a pipe");
        let fd = ChildEnd::Fd(write.as_raw_fd());
        let filled = fd_slot.fill([ChildEnd::Inherit, fd, fd]).expect("open");
        assert_eq!(filled[0], ChildEnd::Inherit);
        assert_ne!(filled[1], filled[2]);
        drop(write);
        fd_slot.clear();
        assert!(!fd_slot.filled);
        assert_eq!(
            (&read).read(&mut [0]).expect("readable"),
            0,
            "no write end is left"
        );
        assert_eq!(
            fd_slot.fill([ChildEnd::Fd(RawFd::MAX); 3]),
            Err(Errno::from_raw(libc::EBADF))
        );
    }
}
