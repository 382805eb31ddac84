//! What std and rustix do not offer, for tests that change what a whole process or thread shares.

#![expect(
    unsafe_code,
    reason = "signal masks and dispositions, fork, seccomp and credentials have no safe interface"
)]

use lastwords::Signal;

fn done(result: libc::c_int, what: &str) {
    assert_eq!(result, 0, "{what}: {}", std::io::Error::last_os_error());
}

/// What this process does with a signal; ours are `SIG_DFL`, `SIG_IGN`, or the address of a
/// handler.
pub(crate) fn disposition(signal: Signal) -> libc::sighandler_t {
    // SAFETY: all zeroes is a valid sigaction.
    let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: no new action is given, and `old` is a place for the present one.
    done(
        unsafe { libc::sigaction(signal.as_raw(), std::ptr::null(), &raw mut old) },
        "sigaction",
    );
    old.sa_sigaction
}

/// Ignores a signal in this process.
pub(crate) fn ignore(signal: Signal) {
    assert_ne!(
        // SAFETY: SIG_IGN is a valid disposition, and no Rust code depends on the handler that it
        // replaces.
        unsafe { libc::signal(signal.as_raw(), libc::SIG_IGN) },
        libc::SIG_ERR
    );
}

/// Gives a signal its default action in this process.
pub(crate) fn default_action(signal: Signal) {
    assert_ne!(
        // SAFETY: SIG_DFL is a valid disposition, and no Rust code depends on the handler that it
        // replaces.
        unsafe { libc::signal(signal.as_raw(), libc::SIG_DFL) },
        libc::SIG_ERR
    );
}

/// Blocks all signals in this thread.
pub(crate) fn block_all_signals() {
    // SAFETY: all zeroes is a valid set.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `all` is a valid place for a set.
    done(unsafe { libc::sigfillset(&raw mut all) }, "sigfillset");
    // SAFETY: `all` is a set; the old one is not wanted.
    done(
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut()) },
        "pthread_sigmask",
    );
}

/// Forks; `child` runs in the copy and its answer is the copy's exit code. The copy's process id.
pub(crate) fn fork(child: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the copy runs `child` and leaves by _exit. Tests that fork run alone in a process of
    // one thread.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
    if pid == 0 {
        let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(101);
        // SAFETY: ends the copy without running what belongs to the original.
        unsafe { libc::_exit(code) }
    }
    pid
}

/// Ends the main thread of this process and leaves the others, as a program does whose main
/// function ends by pthread_exit(3). To be called from another thread.
pub(crate) fn end_main_thread() {
    extern "C" fn end(_signal: libc::c_int) {
        // SAFETY: exit(2), not exit_group(2). The main thread waits for this test and holds nothing
        // that the others need.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }
    let handler: extern "C" fn(libc::c_int) = end;
    assert_ne!(
        // SAFETY: the handler makes one system call and does not return.
        unsafe { libc::signal(libc::SIGUSR1, handler as libc::sighandler_t) },
        libc::SIG_ERR
    );
    let process = std::process::id();
    assert_eq!(
        // SAFETY: plain numbers; the main thread has the process's number.
        unsafe { libc::syscall(libc::SYS_tgkill, process, process, libc::SIGUSR1) },
        0
    );
}

/// Whether this process adopts orphans.
pub(crate) fn is_subreaper() -> bool {
    let mut on: libc::c_int = 0;
    // SAFETY: `on` is a place for the answer.
    done(
        unsafe { libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut on) },
        "prctl",
    );
    on != 0
}

/// Becomes another user as far as permissions go; root stays the saved user, so that it can be
/// taken back.
pub(crate) fn become_user(uid: u32) {
    // SAFETY: changes this process's credentials only.
    done(unsafe { libc::setresuid(uid, uid, 0) }, "setresuid");
}

/// Is root again.
pub(crate) fn become_root() {
    // SAFETY: changes this process's credentials only.
    done(unsafe { libc::setresuid(0, 0, 0) }, "setresuid");
}

/// From now on each of these system calls fails with its errno in this process (seccomp(2)); it
/// cannot be taken back.
pub(crate) fn refuse(calls: &[(libc::c_long, i32)]) {
    const ALLOW: u32 = 0x7fff_0000;
    const ERRNO: u32 = 0x0005_0000;
    let stmt = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    // The number of the call is the first word of the data (seccomp(2), struct seccomp_data).
    let mut program = vec![stmt(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    for (call, errno) in calls {
        program.push(stmt(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            *call as u32,
            0,
            1,
        ));
        program.push(stmt(
            libc::BPF_RET | libc::BPF_K,
            ERRNO | *errno as u32,
            0,
            0,
        ));
    }
    program.push(stmt(libc::BPF_RET | libc::BPF_K, ALLOW, 0, 0));
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: plain numbers.
    done(
        unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) },
        "no_new_privs",
    );
    // SAFETY: `filter` describes `program`, and both live through the call; the kernel copies them.
    done(
        unsafe {
            libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const filter,
            )
        },
        "seccomp",
    );
}
