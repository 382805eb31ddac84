//! The error number of the C library's last call on this thread.

/// The errno that a call of `libc` has just set. EIO if there is none.
pub(crate) fn last_errno() -> i32 {
    std::io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}
