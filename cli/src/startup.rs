//! What lastwords was started with and the Rust runtime changes before `main`: the runtime ignores
//! PIPE.
#![expect(unsafe_code, reason = "a function that runs before main")]

use lastwords::Signal;
use std::sync::atomic::{AtomicBool, Ordering};

static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);

/// Whether lastwords was started with PIPE ignored.
pub(crate) fn pipe_was_ignored() -> bool {
    PIPE_IGNORED.load(Ordering::Relaxed)
}

/// Called by the C runtime before the Rust runtime starts. It uses nothing of the Rust runtime.
extern "C" fn observe() {
    PIPE_IGNORED.store(lastwords::host::is_ignored(Signal::PIPE), Ordering::Relaxed);
}

// SAFETY: the section holds pointers to functions that the C runtime calls once, before main; what
// arguments it passes is of no use here (ld.so(8), .init_array).
#[used]
#[unsafe(link_section = ".init_array")]
static OBSERVE: extern "C" fn() = observe;
