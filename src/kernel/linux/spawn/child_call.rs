//! The system calls of a child between clone and exec.
#![expect(unsafe_code, reason = "raw system calls between clone and exec")]

use super::syscall::{SyscallResult, call};
use std::ffi::c_long;

/// Makes a system call; the only place where the child does.
pub(super) fn sys(number: c_long, args: [usize; 5]) -> SyscallResult {
    // SAFETY: every pointer that the code of a child passes leads to a live value of the type
    // that the call reads or writes. What the calls change belongs to the child (the table in
    // `syscall.rs`).
    unsafe { call(number, args) }
}
