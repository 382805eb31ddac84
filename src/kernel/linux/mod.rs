//! The Linux kernel object: epoll through mio, pidfds or SIGCHLD, /proc.
//!
//! Unsafe code is allowed below this module only (and in the C face), each block with its reason.
