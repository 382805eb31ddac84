//! The memory of a child until exec: a stack with a guard page below it, and above it the words
//! that it shares with the host.

#![expect(
    unsafe_code,
    reason = "maps and unmaps the memory that a child shares with the host"
)]

use crate::types::{Errno, limits};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// Bytes of the program's beginning that a failed child leaves behind, so that a missing
/// interpreter can be named.
pub(super) const HEAD: usize = 2048;

/// The words that child and host share. All but `tid` are zero when the child begins.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Shared {
    /// Not zero while the child uses this memory. The kernel zeroes it (CLONE_CHILD_CLEARTID) when
    /// exec has left the old address space or the child has died, and then wakes the futex.
    pub tid: AtomicU32,
    /// Not zero once the child has its own descriptor table.
    pub own_table: AtomicU32,
    /// The failed step ([`super::child::Stage`]), or 0.
    pub stage: AtomicU32,
    /// The errno of the failed step.
    pub errno: AtomicI32,
    /// Which limit, path or number the failed step was about.
    pub item: AtomicU32,
    /// File type and mode of the program that could not be executed; 0 if it was not found.
    pub mode: AtomicU32,
    /// How many bytes of `head` are filled.
    pub head_len: AtomicU32,
    /// The first bytes of that program.
    pub head: UnsafeCell<[u8; HEAD]>,
}

impl Shared {
    /// Takes over the words of a child that does not share the memory. `tid` stays as it is.
    pub(super) fn take_over(&self, told: &[u8; size_of::<Shared>()]) {
        let word = |at: usize| {
            let mut bytes = [0; 4];
            bytes
                .iter_mut()
                .zip(told.iter().skip(at))
                .for_each(|(to, from)| *to = *from);
            u32::from_ne_bytes(bytes)
        };
        let head = told.iter().skip(offset_of!(Shared, head)).take(HEAD);
        // SAFETY: this child writes to a copy of the memory, so there is no other access.
        let own = unsafe { &mut *self.head.get() };
        own.iter_mut().zip(head).for_each(|(to, from)| *to = *from);
        self.stage
            .store(word(offset_of!(Shared, stage)), Ordering::Relaxed);
        self.errno.store(
            word(offset_of!(Shared, errno)).cast_signed(),
            Ordering::Relaxed,
        );
        self.item
            .store(word(offset_of!(Shared, item)), Ordering::Relaxed);
        self.mode
            .store(word(offset_of!(Shared, mode)), Ordering::Relaxed);
        self.head_len
            .store(word(offset_of!(Shared, head_len)), Ordering::Relaxed);
    }

    /// The first bytes of the program.
    pub(super) fn head(&self) -> &[u8] {
        let len = (self.head_len.load(Ordering::Acquire) as usize).min(HEAD);
        // SAFETY: called only after the child has left this memory (`tid` is zero), so nothing
        // writes here.
        let head = unsafe { &*self.head.get() };
        head.get(..len).unwrap_or_default()
    }
}

/// A mapping of guard page, stack and shared words. Dropping it unmaps it, so it must not be
/// dropped while a child uses it.
#[derive(Debug)]
pub(super) struct Stack {
    base: NonNull<c_void>,
    len: usize,
    guard: usize,
}

// SAFETY: the mapping belongs to this value alone. The child shares only atomics, and `head`, which
// is read only after the child has left.
unsafe impl Send for Stack {}

impl Stack {
    /// Maps a new stack. No page is resident until a child uses it.
    pub(super) fn new() -> Result<Stack, Errno> {
        let page = rustix::param::page_size();
        let room = size_of::<Shared>().next_multiple_of(page);
        let len = page + limits::SPAWN_STACK.next_multiple_of(page) + room;
        let flags = MapFlags::PRIVATE | MapFlags::STACK | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that
        // exists.
        let base = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::empty(), flags)
        }?;
        let base = NonNull::new(base).ok_or(Errno::from_raw(libc::ENOMEM))?;
        // Unmapped by its drop if the next step fails.
        let stack = Stack {
            base,
            len,
            guard: page,
        };
        let usable = stack.base.as_ptr().wrapping_byte_add(page);
        // SAFETY: the range lies in the mapping just made, which nothing refers to yet.
        unsafe {
            rustix::mm::mprotect(
                usable,
                len - page,
                MprotectFlags::READ | MprotectFlags::WRITE,
            )
        }?;
        Ok(stack)
    }

    /// Address of the lowest usable byte, and the number of bytes below the shared words. The end
    /// is page-aligned.
    pub(super) fn range(&self) -> (usize, usize) {
        let base = self.base.as_ptr() as usize + self.guard;
        (base, std::ptr::from_ref(self.shared()) as usize - base)
    }

    /// The shared words.
    pub(super) fn shared(&self) -> &Shared {
        let room = size_of::<Shared>().next_multiple_of(self.guard);
        let at = self
            .base
            .as_ptr()
            .wrapping_byte_add(self.len - room)
            .cast::<Shared>();
        // SAFETY: inside the mapping, page-aligned, readable and writable as long as `self` lives.
        // All bit patterns are valid, and every field is an atomic or an `UnsafeCell`.
        unsafe { &*at }
    }

    /// Prepares the words for a child: all zero, except `tid`.
    pub(super) fn arm(&self) {
        #[cfg(test)]
        self.unpoison();
        let shared = self.shared();
        shared.own_table.store(0, Ordering::Relaxed);
        shared.stage.store(0, Ordering::Relaxed);
        shared.errno.store(0, Ordering::Relaxed);
        shared.item.store(0, Ordering::Relaxed);
        shared.mode.store(0, Ordering::Relaxed);
        shared.head_len.store(0, Ordering::Relaxed);
        shared.tid.store(1, Ordering::Release);
    }
}

#[cfg(test)]
impl Stack {
    /// For AddressSanitizer: removes the red zones of frames that a child has left by exec, without
    /// returning from them.
    fn unpoison(&self) {
        // SAFETY: a name that ends with a NUL.
        let function = unsafe {
            libc::dlsym(
                libc::RTLD_DEFAULT,
                c"__asan_unpoison_memory_region".as_ptr(),
            )
        };
        if !function.is_null() {
            // SAFETY: the sanitizer's documented type of this function
            // (sanitizer/asan_interface.h).
            let unpoison: extern "C" fn(*const c_void, usize) =
                unsafe { std::mem::transmute(function) };
            unpoison(self.base.as_ptr(), self.len);
        }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value, and its owner drops it only when no child uses
        // it.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stack_and_shared_words_do_not_overlap_and_are_aligned() {
        let stack = Stack::new().expect("memory");
        let (base, len) = stack.range();
        assert!(len >= limits::SPAWN_STACK);
        assert_eq!((base + len) % 16, 0);
        assert_eq!(base + len, std::ptr::from_ref(stack.shared()) as usize);
        stack.arm();
        assert_eq!(stack.shared().tid.load(Ordering::Relaxed), 1);
        assert!(stack.shared().head().is_empty());
    }
}
