//! What the benches share: their arguments, clocks, the children they run, the peers they measure,
//! the arithmetic of their tables, and what becomes of the results.

pub(crate) mod apart;
pub(crate) mod child;
pub(crate) mod counted;
pub(crate) mod crowd;
pub(crate) mod figures;
pub(crate) mod options;
pub(crate) mod peers;
pub(crate) mod plot;
pub(crate) mod proc;
pub(crate) mod results;
pub(crate) mod tail;

use rustix::process::{Resource, getrlimit, setrlimit};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// An error of a bench: it says what failed and ends the run.
pub(crate) type Fail = Box<dyn std::error::Error + Send + Sync>;

fn nanoseconds(at: Timespec) -> u64 {
    let whole = u64::try_from(at.tv_sec)
        .unwrap_or(0)
        .saturating_mul(1_000_000_000);
    whole.saturating_add(u64::try_from(at.tv_nsec).unwrap_or(0))
}

/// CLOCK_MONOTONIC in nanoseconds: the same clock in every process of the machine.
pub(crate) fn now() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// CPU time of this thread, in nanoseconds.
pub(crate) fn thread_cpu() -> u64 {
    nanoseconds(clock_gettime(ClockId::ThreadCPUTime))
}

/// CPU time of this process, all threads, in nanoseconds. Children do not count.
pub(crate) fn cpu() -> u64 {
    nanoseconds(clock_gettime(ClockId::ProcessCPUTime))
}

/// Two hundred children take six hundred descriptors and more: takes as many as the hard limit
/// allows.
pub(crate) fn raise_descriptor_limit() -> Result<(), Fail> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}
