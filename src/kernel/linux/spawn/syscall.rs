//! System calls by instruction, for code that runs between clone and exec.
//!
//! There the child shares its memory, and the thread pointer, with the host's running threads. A
//! wrapper of the C library would write the `errno` of a host thread and may take its locks, and
//! `rustix` promises nothing about such use. These functions execute one instruction each:
//! arguments and result are in registers, and results from -4095 to -1 are errors.
//!
//! Each call that the child makes changes only what the kernel keeps for the child itself:
//!
//! | call | kept in | shared with the host? |
//! | --- | --- | --- |
//! | rt_sigaction | signal handlers | no: without CLONE_SIGHAND the child has a copy |
//! | rt_sigprocmask, prctl(PR_SET_PDEATHSIG) | the task | no |
//! | setpgid, prlimit64, setgroups, setresgid, setresuid | the process | no (credentials change only in [`super::CloneMethod::Fork`]) |
//! | dup3, fcntl, close, close_range, unshare, openat, pread64, read, write | the descriptor table | no: without CLONE_FILES the child has a copy, and with it the table is unshared before anything in it is changed |
//! | chdir, umask | the file system context | no: without CLONE_FS the child has a copy |
//! | execve | the address space | it leaves the shared one, which stays as it is |
//! | exit_group | the process | only the child's thread group ends |
//! | getpid, getppid, getuid, getgid, getgroups, statx, getdents64, ioctl(TIOCSPGRP) | - | they change nothing of the host's but the given buffer |
#![expect(
    unsafe_code,
    reason = "system calls by instruction; the child of a clone may use nothing else"
)]

use crate::types::Errno;
use std::arch::asm;
use std::ffi::{c_int, c_long};

/// The result of a system call.
pub(super) type SyscallResult = Result<usize, Errno>;

fn answer(raw: isize) -> SyscallResult {
    // Errors are -4095 to -1. Other negative numbers are values, such as addresses.
    if (-4095..0).contains(&raw) {
        Err(Errno::from_raw(raw.unsigned_abs() as i32))
    } else {
        Ok(raw.cast_unsigned())
    }
}

/// A system call with up to five arguments.
///
/// # Safety
/// What the call does with its arguments must be sound: pointers valid for what the kernel reads
/// and writes there.
pub(super) unsafe fn call(number: c_long, args: [usize; 5]) -> SyscallResult {
    let raw: isize;
    let [a, b, c, d, e] = args;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the convention of syscall(2) for x86-64; the instruction itself destroys rcx and r11.
    // The rest is the caller's promise.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => raw, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e,
             lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the convention of syscall(2) for arm64: every register but x0 is kept. The rest is
    // the caller's promise.
    unsafe {
        asm!("svc 0", in("x8") number, inlateout("x0") a => raw, in("x1") b, in("x2") c, in("x3") d, in("x4") e, options(nostack));
    }
    answer(raw)
}

/// The function that a child runs. Its result becomes the exit status.
pub(super) type Entry<T> = extern "C" fn(*const T) -> c_int;

/// clone3(2). The parent gets the child's pid; the child runs `entry(child_args)` on its new stack
/// and ends with its result.
///
/// # Safety `args` must be sound. Without CLONE_VFORK, the stack, `child_args`, and what both point
/// to must stay until the child has left the memory. `entry` must keep the rules of this module's
/// header.
pub(super) unsafe fn clone3<T>(
    args: &libc::clone_args,
    entry: Entry<T>,
    child_args: *const T,
) -> SyscallResult {
    // CLONE_ARGS_SIZE_VER0 is what Linux 5.3 knows; VER2 has a cgroup (Linux 5.7).
    let size = if args.cgroup == 0 { 64 } else { 88 };
    // SAFETY: these are the sizes of two versions of `clone_args`. The rest is the caller's
    // promise.
    unsafe {
        fork_into(
            libc::SYS_clone3,
            [std::ptr::from_ref(args) as usize, size, 0, 0, 0],
            entry,
            child_args,
        )
    }
}

/// Arguments of clone(2), whose order depends on the machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct CloneArgs {
    /// Flags, and the exit signal in the low byte.
    pub flags: c_int,
    /// The end of the stack, 16-byte aligned.
    pub stack_top: usize,
    /// Where CLONE_PIDFD writes.
    pub pidfd: usize,
    /// What CLONE_CHILD_CLEARTID zeroes.
    pub child_tid: usize,
}

/// clone(2), as [`clone3`].
///
/// # Safety
/// As [`clone3`].
pub(super) unsafe fn clone<T>(
    args: CloneArgs,
    entry: Entry<T>,
    child_args: *const T,
) -> SyscallResult {
    // The flags are a 32-bit set: no sign extension.
    let flags = args.flags.cast_unsigned() as usize;
    #[cfg(target_arch = "x86_64")]
    let list = [flags, args.stack_top, args.pidfd, args.child_tid, 0];
    #[cfg(target_arch = "aarch64")]
    let list = [flags, args.stack_top, args.pidfd, 0, args.child_tid];
    // SAFETY: the caller's promise.
    unsafe { fork_into(libc::SYS_clone, list, entry, child_args) }
}

/// Makes a clone call. The child calls `entry` and ends the process, without returning through a
/// frame of the parent.
unsafe fn fork_into<T>(
    number: c_long,
    args: [usize; 5],
    entry: Entry<T>,
    child_args: *const T,
) -> SyscallResult {
    let raw: isize;
    let [a, b, c, d, e] = args;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the parent's path is a plain system call. The child begins with result 0 on the new
    // stack, whose end is 16-byte aligned as `call` needs it, marks the outermost frame, and ends
    // in exit_group. Not `nostack`: where clone is emulated by a fork (valgrind), the child
    // continues on a copy of this stack, and the compiler must keep nothing below the stack
    // pointer.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r13",
            "mov edi, eax",
            "mov eax, {exit_group}",
            "syscall",
            "ud2",
            "2:",
            exit_group = const libc::SYS_exit_group,
            inlateout("rax") number as isize => raw,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e,
            in("r12") child_args, in("r13") entry,
            lateout("rcx") _, lateout("r11") _,
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above. The link register is cleared to mark the outermost frame.
    unsafe {
        asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x30, xzr",
            "mov x0, x20",
            "blr x21",
            "mov x8, {exit_group}",
            "svc 0",
            "brk 1",
            "2:",
            exit_group = const libc::SYS_exit_group,
            in("x8") number,
            inlateout("x0") a => raw,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e,
            in("x20") child_args, in("x21") entry,
        );
    }
    answer(raw)
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the spawner has no system call instruction for this machine");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_gives_values_and_errors_as_the_kernel_does() {
        // SAFETY: getpid(2) has no arguments.
        let pid = unsafe { call(libc::SYS_getpid, [0; 5]) };
        assert_eq!(pid, Ok(std::process::id() as usize));
        // SAFETY: closing a descriptor that cannot exist changes nothing.
        let closed = unsafe { call(libc::SYS_close, [usize::MAX, 0, 0, 0, 0]) };
        assert_eq!(closed, Err(Errno::from_raw(libc::EBADF)));
        assert_eq!(answer(-4095), Err(Errno::from_raw(4095)));
        assert_eq!(answer(-4096), Ok((-4096_isize).cast_unsigned()));
    }
}
