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

/// Lanes that a spawner keeps: so many children may be between clone and a table of their own at
/// once; more copy the table.
const LANES: usize = 8;
/// A table of this size (FDSize in /proc/self/status) is worth it.
const LARGE: usize = 1024;
/// From this size on numbers are reserved, while they are still low, if they were not from the
/// beginning.
const GROWING: usize = 512;

/// Three numbers.
#[derive(Debug)]
pub(super) struct Lane {
    slots: [OwnedFd; 3],
    placeholder: Arc<OwnedFd>,
    lent: bool,
}

/// Those that are free.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    free: Vec<Lane>,
    reserved: bool,
    /// The first number above all slots.
    above: RawFd,
}

impl Lanes {
    /// With the numbers reserved at once, if this process may have so many descriptors that a large
    /// table is to be expected: it may come by them before its first child.
    pub(super) fn new(placeholder: Option<&Arc<OwnedFd>>) -> Lanes {
        let mut lanes = Lanes::default();
        let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        if let Some(placeholder) =
            placeholder.filter(|_| most.is_none_or(|most| most > LARGE as u64))
        {
            lanes.reserved = true;
            lanes.reserve(placeholder);
        }
        lanes
    }

    /// A lane, and the number from which on the child needs no descriptors; `None` if copying is
    /// cheap, or no lane is free.
    pub(super) fn take(
        &mut self,
        table: usize,
        placeholder: Option<&Arc<OwnedFd>>,
    ) -> Option<(Lane, RawFd)> {
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

    /// Takes a lane back.
    pub(super) fn put(&mut self, lane: Lane) {
        if !lane.lent {
            self.free.push(lane);
        }
    }

    /// Running out of descriptors here is no error: there are fewer lanes then.
    fn reserve(&mut self, placeholder: &Arc<OwnedFd>) {
        let slot = || rustix::io::fcntl_dupfd_cloexec(placeholder, 3);
        for _ in 0..LANES {
            let (Ok(a), Ok(b), Ok(c)) = (slot(), slot(), slot()) else {
                return;
            };
            self.above = [&a, &b, &c]
                .iter()
                .map(|fd| fd.as_raw_fd() + 1)
                .chain([self.above])
                .max()
                .unwrap_or(self.above);
            self.free.push(Lane {
                slots: [a, b, c],
                placeholder: Arc::clone(placeholder),
                lent: false,
            });
        }
    }
}

impl Lane {
    /// Puts the ends into the slots, and says where they are.
    pub(super) fn lend(&mut self, ends: [ChildEnd; 3]) -> Result<[ChildEnd; 3], Errno> {
        self.lent = true;
        let mut lent = ends;
        for (end, slot) in lent.iter_mut().zip(&self.slots) {
            if let ChildEnd::Fd(fd) = end {
                put(*fd, slot)?;
                *end = ChildEnd::Fd(slot.as_raw_fd());
            }
        }
        Ok(lent)
    }

    /// Something is in the slots.
    #[cfg(test)]
    pub(super) fn is_lent(&self) -> bool {
        self.lent
    }

    /// The child has its own table, or never will: closes what was lent.
    pub(super) fn rest(&mut self) {
        if !self.lent {
            return;
        }
        let closed = self
            .slots
            .iter()
            .map(|slot| put(self.placeholder.as_raw_fd(), slot));
        // Both numbers are open and different, so this cannot fail; if it did, the lane would not
        // be used again.
        self.lent = closed.fold(false, |failed, one| failed | one.is_err());
    }
}

/// dup3(2) onto a number that is ours, close-on-exec.
fn put(fd: RawFd, slot: &OwnedFd) -> Result<(), Errno> {
    // SAFETY: the number is owned by a lane, and stays open whatever is put there.
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
        let mut lanes = Lanes::default();
        assert!(lanes.take(64, Some(&null)).is_none());
        assert!(!lanes.reserved);
        assert!(lanes.take(GROWING, Some(&null)).is_none());
        assert_eq!(lanes.free.len(), LANES);
        let table = usize::try_from(lanes.above).expect("positive") * 2 + LARGE;
        let taken: Vec<_> = (0..LANES)
            .map(|_| lanes.take(table, Some(&null)).expect("one each"))
            .collect();
        assert!(lanes.take(table, Some(&null)).is_none());
        let highest = taken
            .iter()
            .flat_map(|(lane, _)| &lane.slots)
            .map(|fd| fd.as_raw_fd())
            .max();
        assert!(
            taken
                .iter()
                .all(|(_, above)| Some(*above) == highest.map(|fd| fd + 1))
        );
        assert!(Lanes::default().take(1 << 20, None).is_none());
    }

    #[test]
    fn what_was_lent_is_closed_when_the_lane_rests() {
        let null = Arc::new(OwnedFd::from(
            std::fs::File::open("/dev/null").expect("there"),
        ));
        let mut lanes = Lanes::default();
        lanes.reserve(&null);
        let mut lane = lanes.free.pop().expect("reserved");
        let (read, write) = std::io::pipe().expect("a pipe");
        let fd = ChildEnd::Fd(write.as_raw_fd());
        let lent = lane.lend([ChildEnd::Inherit, fd, fd]).expect("open");
        assert_eq!(lent[0], ChildEnd::Inherit);
        assert_ne!(lent[1], lent[2]);
        drop(write);
        lane.rest();
        assert!(!lane.lent);
        assert_eq!(
            (&read).read(&mut [0]).expect("readable"),
            0,
            "no write end is left"
        );
        assert_eq!(
            lane.lend([ChildEnd::Fd(RawFd::MAX); 3]),
            Err(Errno::from_raw(libc::EBADF))
        );
    }
}
