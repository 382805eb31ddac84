//! Recognises a forked copy of the process, by a page that the kernel empties in a forked child
//! (MADV_WIPEONFORK, Linux 4.14).
//!
//! A forked copy has the loop's descriptors, and so its poll set; whatever it did to them would
//! affect the host. So it must not wait, signal or spawn, and dropping the loop there only closes
//! descriptors.
#![expect(unsafe_code, reason = "maps one page, and reads it")]

use crate::types::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

const PAGE: usize = 4096;
const MARK: u32 = 0x4C57_4F52;

/// Tells whether this is still the process that made it.
#[derive(Debug)]
pub(crate) struct ForkGuard {
    page: Option<NonNull<AtomicU32>>,
    /// Compared with the present pid where the page cannot be had: a system call instead of a
    /// memory load.
    pid: rustix::process::Pid,
}

// SAFETY: the page belongs to this value alone, and is accessed atomically only.
unsafe impl Send for ForkGuard {}
// SAFETY: as above; `&ForkGuard` only loads.
unsafe impl Sync for ForkGuard {}

impl ForkGuard {
    /// Marks this process. The only expected error is ENOMEM.
    pub(crate) fn new() -> Result<ForkGuard, Errno> {
        let pid = rustix::process::getpid();
        // SAFETY: a new private mapping at an address of the kernel's choice touches nothing that
        // exists.
        let page = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                PAGE,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        // SAFETY: the page has just been mapped, and nothing else refers to it.
        let wiped = unsafe { madvise(page, PAGE, Advice::LinuxWipeOnFork) };
        let guard = ForkGuard {
            page: NonNull::new(page.cast()),
            pid,
        };
        match (wiped, guard.cell()) {
            (Ok(()), Some(cell)) => cell.store(MARK, Ordering::Relaxed),
            _ => return Ok(ForkGuard { page: None, pid }),
        }
        Ok(guard)
    }

    /// True in a forked copy of the process that called [`ForkGuard::new`].
    pub(crate) fn is_copy(&self) -> bool {
        match self.cell() {
            Some(cell) => cell.load(Ordering::Relaxed) != MARK,
            None => rustix::process::getpid() != self.pid,
        }
    }

    fn cell(&self) -> Option<&AtomicU32> {
        // SAFETY: the page stays mapped until drop, is aligned, zeroed by the kernel, and used as
        // this one atomic only.
        self.page.map(|page| unsafe { page.as_ref() })
    }
}

impl Drop for ForkGuard {
    fn drop(&mut self) {
        if let Some(page) = self.page {
            // SAFETY: mapped by `new` with this length, and no reference to it outlives this value.
            let _ = unsafe { munmap(page.as_ptr().cast(), PAGE) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit_code_of_a_fork(in_child: impl FnOnce() -> i32) -> i32 {
        // SAFETY: the child only loads, compares and calls _exit.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            let code = in_child();
            // SAFETY: ends the child without running destructors of the host.
            unsafe { libc::_exit(code) };
        }
        let mut status = 0;
        // SAFETY: waits for that child; `status` outlives the call.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        libc::WEXITSTATUS(status)
    }

    #[test]
    fn a_forked_copy_knows_that_it_is_one() {
        let guard = ForkGuard::new().expect("a page");
        assert!(!guard.is_copy());
        assert_eq!(exit_code_of_a_fork(|| i32::from(guard.is_copy())), 1);
        assert!(!guard.is_copy());
    }

    #[test]
    fn without_the_page_the_process_id_tells() {
        let guard = ForkGuard {
            page: None,
            pid: rustix::process::getpid(),
        };
        assert!(!guard.is_copy());
        assert_eq!(exit_code_of_a_fork(|| i32::from(guard.is_copy())), 1);
    }
}
