//! Descriptor numbers of the host that carry a child's streams while the child shares the host's
//! descriptor table.
//!
//! A clone copies the host's table, and the copy holds the pipe ends of all other children until it
//! is closed. A child that is stopped or frozen before it can do so would keep their streams open.
//! So the child is made with CLONE_FILES: it has no copy until close_range(2) with
//! CLOSE_RANGE_UNSHARE gives it a table of its own, of the lowest numbers only, and it closes all
//! but its own streams with its next calls. (That is also cheaper where the table is large: a copy
//! takes 10 µs for each thousand descriptors on the machine where it was measured.)
//!
//! Meanwhile the host must not close the child's ends, so a slot holds copies of them. When the
//! child has a table of its own, the host puts a placeholder onto the slot's numbers, which closes
//! its copies.

#![expect(unsafe_code, reason = "puts descriptors onto numbers that it owns")]

use super::fd_remap::ChildEnd;
use super::syscall::call;
use crate::types::Errno;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// Empty slots that a spawner keeps. More are made when they are needed, and closed afterwards.
const SLOTS_KEPT: usize = 8;

/// Three numbers, one for each stream.
#[derive(Debug)]
pub(super) struct FdSlot {
    numbers: [OwnedFd; 3],
    placeholder: Arc<OwnedFd>,
    filled: bool,
}

/// The empty slots.
#[derive(Debug, Default)]
pub(super) struct FdSlots {
    empty: Vec<FdSlot>,
}

impl FdSlots {
    /// A slot; a new one if there is no empty one. `None` if descriptors are short.
    pub(super) fn take(&mut self, placeholder: Option<&Arc<OwnedFd>>) -> Option<FdSlot> {
        self.empty.pop().or_else(|| FdSlot::new(placeholder?).ok())
    }

    /// Takes a slot back. One that could not be emptied is closed.
    pub(super) fn put(&mut self, slot: FdSlot) {
        if !slot.filled && self.empty.len() < SLOTS_KEPT {
            self.empty.push(slot);
        }
    }

    #[cfg(test)]
    pub(super) fn empty_count(&self) -> usize {
        self.empty.len()
    }
}

impl FdSlot {
    fn new(placeholder: &Arc<OwnedFd>) -> Result<FdSlot, Errno> {
        let number = || rustix::io::fcntl_dupfd_cloexec(placeholder, 3);
        Ok(FdSlot {
            numbers: [number()?, number()?, number()?],
            placeholder: Arc::clone(placeholder),
            filled: false,
        })
    }

    /// The first number above the slot: the child needs no descriptors from there on.
    pub(super) fn above(&self) -> RawFd {
        self.numbers
            .iter()
            .map(|fd| fd.as_raw_fd())
            .max()
            .map_or(3, |highest| highest + 1)
    }

    /// Puts the streams into the slot, and returns where they are. A stream that the child inherits
    /// is the host's own, as it is now: the host may replace it before the child has a table of its
    /// own.
    pub(super) fn fill(&mut self, ends: [ChildEnd; 3]) -> Result<[ChildEnd; 3], Errno> {
        self.filled = true;
        let mut placed = ends;
        for ((end, number), inherited) in placed.iter_mut().zip(&self.numbers).zip(0..) {
            let fd = match end {
                ChildEnd::Fd(fd) => *fd,
                ChildEnd::Inherit => inherited,
            };
            put(fd, number)?;
            *end = ChildEnd::Fd(number.as_raw_fd());
        }
        Ok(placed)
    }

    /// Whether the slot holds streams of a child.
    #[cfg(test)]
    pub(super) fn is_filled(&self) -> bool {
        self.filled
    }

    /// Closes the host's copies, once the child has a table of its own or has ended.
    pub(super) fn clear(&mut self) {
        if !self.filled {
            return;
        }
        let closed = self
            .numbers
            .iter()
            .map(|number| put(self.placeholder.as_raw_fd(), number));
        // Both numbers are open and different, so no call can fail; after a failure the slot would
        // not be used again.
        self.filled = closed.fold(false, |failed, one| failed | one.is_err());
    }
}

/// dup3(2) onto a number that a slot owns, close-on-exec.
fn put(fd: RawFd, number: &OwnedFd) -> Result<(), Errno> {
    // SAFETY: the number is owned by a slot, and stays open whatever is put there.
    unsafe {
        call(
            libc::SYS_dup3,
            [
                fd as usize,
                number.as_raw_fd() as usize,
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

    fn null() -> Arc<OwnedFd> {
        Arc::new(OwnedFd::from(
            std::fs::File::open("/dev/null").expect("there"),
        ))
    }

    #[test]
    fn slots_are_made_when_they_are_needed_and_some_are_kept() {
        let mut slots = FdSlots::default();
        assert!(slots.take(None).is_none());
        let null = null();
        let taken: Vec<FdSlot> = (0..=SLOTS_KEPT)
            .map(|_| slots.take(Some(&null)).expect("numbers"))
            .collect();
        assert!(taken.iter().all(|slot| {
            let above = slot.above();
            slot.numbers.iter().all(|fd| fd.as_raw_fd() < above)
        }));
        taken.into_iter().for_each(|slot| slots.put(slot));
        assert_eq!(slots.empty_count(), SLOTS_KEPT);
    }

    #[test]
    fn what_is_in_a_slot_is_closed_when_it_is_cleared() {
        let mut slot = FdSlot::new(&null()).expect("numbers");
        let (read, write) = std::io::pipe().expect("a pipe");
        let fd = ChildEnd::Fd(write.as_raw_fd());
        let placed = slot.fill([ChildEnd::Inherit, fd, fd]).expect("open");
        assert_eq!(
            placed,
            [0, 1, 2].map(|n: usize| ChildEnd::Fd(slot.numbers[n].as_raw_fd()))
        );
        drop(write);
        slot.clear();
        assert!(!slot.filled);
        assert_eq!(
            (&read).read(&mut [0]).expect("readable"),
            0,
            "no write end is left"
        );
        assert_eq!(
            slot.fill([ChildEnd::Fd(RawFd::MAX); 3]),
            Err(Errno::from_raw(libc::EBADF))
        );
    }
}
