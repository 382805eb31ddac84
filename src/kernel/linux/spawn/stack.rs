//! What a child runs on until it has executed its program: a stack with a guard page below it, and
//! above it the words it shares with the host.

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

/// Bytes of a program's beginning that a failed child leaves behind, so that the missing
/// interpreter can be named.
pub(super) const HEAD: usize = 2048;

/// What child and host share. Every word is zero but `tid` when the child begins.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Shared {
    /// Not zero while the child uses this memory. Zeroed by the kernel (CLONE_CHILD_CLEARTID)
    /// exactly when exec has left the old address space, or the child has died; then the futex
    /// here is woken.
    pub tid: AtomicU32,
    /// Not zero when the child has a descriptor table of its own.
    pub own_table: AtomicU32,
    /// The failed step ([`super::child::Stage`]), 0 for none.
    pub stage: AtomicU32,
    /// Its error number.
    pub errno: AtomicI32,
    /// Which of several it was about: the candidate, the limit, the target number.
    pub item: AtomicU32,
    /// File type and mode of the program that could not be executed; 0 if it was not seen.
    pub mode: AtomicU32,
    /// How much of `head` is filled.
    pub head_len: AtomicU32,
    /// The beginning of that program.
    pub head: UnsafeCell<[u8; HEAD]>,
}

impl Shared {
    /// Takes what a child without shared memory has told: the bytes of its own words. `tid` stays
    /// as it is.
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
        // SAFETY: the child that could write here works on a copy, so this is the only access.
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

    /// The bytes of the program's beginning.
    pub(super) fn head(&self) -> &[u8] {
        let len = (self.head_len.load(Ordering::Acquire) as usize).min(HEAD);
        // SAFETY: asked for only after the child has left this memory (`tid` is zero), so nobody
        // writes any more.
        let head = unsafe { &*self.head.get() };
        head.get(..len).unwrap_or_default()
    }
}

/// One mapping: guard page, stack, shared words. Unmapped on drop, so it must not be dropped while
/// a child uses it.
#[derive(Debug)]
pub(super) struct Stack {
    base: NonNull<c_void>,
    len: usize,
    guard: usize,
}

// SAFETY: the mapping belongs to this value alone; what is shared with the child are atomics, and
// `head`, which is looked at only after the child has left.
unsafe impl Send for Stack {}

impl Stack {
    /// Maps a new one. Nothing of it is resident until a child has used it.
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
        // Dropped, and so unmapped, if the next step fails.
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

    /// The lowest usable byte, and how many there are below the shared words. The end is
    /// page-aligned.
    pub(super) fn range(&self) -> (usize, usize) {
        let base = self.base.as_ptr() as usize + self.guard;
        (base, std::ptr::from_ref(self.shared()) as usize - base)
    }

    /// The words that are shared with the child.
    pub(super) fn shared(&self) -> &Shared {
        let room = size_of::<Shared>().next_multiple_of(self.guard);
        let at = self
            .base
            .as_ptr()
            .wrapping_byte_add(self.len - room)
            .cast::<Shared>();
        // SAFETY: inside the mapping, page-aligned, mapped readable and writable as long as `self`
        // lives, all bit patterns are valid, and every field is an atomic or an
        // `UnsafeCell`.
        unsafe { &*at }
    }

    /// Makes it ready for a child: all words zero, `tid` not.
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
    /// For AddressSanitizer: frames that a child has left by exec were never returned from, so
    /// their red zones are still there.
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
        // SAFETY: the mapping is this value's own; its owner drops it only when no child uses it.
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
