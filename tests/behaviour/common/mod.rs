//! What the behaviour tests share: the ways in which they are run, a host that drives a loop and
//! checks the invariants of every event, marks by which processes that were left running are found,
//! and gates that children wait at.
//!
//! Nothing here sleeps for a time to pass if there is an event to wait for.
//!
//! Tests of one file run side by side in one process, and a child that has not executed its program
//! yet holds copies of all descriptors of the process, those of other tests among them, for some
//! microseconds or, on a busy machine, longer. So a test that says what happens in the very turn of
//! an exit runs in a process of its own ([`Way::alone`]).

#![allow(dead_code, reason = "`tests/no_allocation.rs` uses a part of this")]

pub(crate) mod gate;
pub(crate) mod host;
pub(crate) mod log;
pub(crate) mod mark;
pub(crate) mod proc;
pub(crate) mod sys;
pub(crate) mod tracer;

use lastwords::__internals::testing::isolation;
use lastwords::{
    Backend, BackendChoice, Builder, ExitSource, ExitSourceChoice, GroupSignal, Reactor,
};
use std::time::{Duration, Instant};

/// Longer than anything takes that happens at all, on a machine that is busy with other things.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// A duration in milliseconds.
pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A way of watching and signalling children: everything that touches the kernel is tested in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Pidfds, and the group through the leader's pidfd.
    Pidfd,
    /// Pidfds as kernels before 6.9 have them: the group by other ways.
    OldGroup,
    /// Exits are learnt from SIGCHLD.
    Sigchld,
    /// Pidfds, with io_uring as the poll set (epoll where the kernel refuses it).
    Uring,
}

/// The mode that a test runs in, the test's name and the module it stands in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) mode: Mode,
    pub(crate) test: &'static str,
    pub(crate) module: &'static str,
}

impl Way {
    /// A builder that is set for this mode.
    pub(crate) fn builder(self) -> Builder {
        let mut builder = Reactor::builder();
        match self.mode {
            Mode::Pidfd => builder.exit_source(ExitSourceChoice::Pidfd),
            Mode::OldGroup => builder
                .exit_source(ExitSourceChoice::Pidfd)
                .group_signal(GroupSignal::Off),
            Mode::Sigchld => builder.exit_source(ExitSourceChoice::Sigchld),
            Mode::Uring => builder
                .exit_source(ExitSourceChoice::Pidfd)
                .backend(BackendChoice::Uring),
        };
        builder
    }

    /// A loop in this mode.
    pub(crate) fn reactor(self) -> Reactor {
        self.builder().build().expect("a loop")
    }

    /// The exit source that this mode must lead to.
    pub(crate) fn exit_source(self) -> ExitSource {
        match self.mode {
            Mode::Pidfd | Mode::OldGroup | Mode::Uring => ExitSource::Pidfd,
            Mode::Sigchld => ExitSource::Sigchld,
        }
    }

    /// The poll sets that this mode may lead to: a kernel may refuse io_uring.
    pub(crate) fn backends(self) -> &'static [Backend] {
        match self.mode {
            Mode::Pidfd | Mode::OldGroup | Mode::Sigchld => &[Backend::Epoll],
            Mode::Uring => &[Backend::Uring, Backend::Epoll],
        }
    }

    /// Runs the rest of this test in a process of its own.
    pub(crate) fn alone(self, body: impl FnOnce()) {
        isolation::alone(self.test, self.module, body);
    }

    /// Whether this is the process that [`Way::command`] has started.
    pub(crate) fn is_alone(self) -> bool {
        isolation::is_alone(self.test, self.module)
    }

    /// This test binary, to run this test alone.
    pub(crate) fn command(self) -> std::process::Command {
        isolation::command(self.test, self.module)
    }

    /// A name for files that no other test uses.
    pub(crate) fn file_name(self) -> String {
        isolation::harness_name(self.test, self.module).replace("::", "-")
    }
}

/// Makes a test of each function for each [`Mode`]: `pidfd::NAME`, `old_group::NAME`,
/// `sigchld::NAME`, `uring::NAME`.
macro_rules! every_way {
    ($($test:ident),+ $(,)?) => {
        $crate::common::every_way!(@ pidfd Pidfd $($test)+);
        $crate::common::every_way!(@ old_group OldGroup $($test)+);
        $crate::common::every_way!(@ sigchld Sigchld $($test)+);
        $crate::common::every_way!(@ uring Uring $($test)+);
    };
    (@ $way:ident $mode:ident $($test:ident)+) => {
        mod $way {
            $(#[test]
            fn $test() {
                super::$test($crate::common::Way {
                    mode: $crate::common::Mode::$mode,
                    test: stringify!($test),
                    module: module_path!(),
                });
            })+
        }
    };
}
pub(crate) use every_way;

/// Looks again and again until it is so; for what nobody gives notice of.
pub(crate) fn wait_until(what: &str, mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < LONG, "waited for: {what}");
        std::thread::sleep(ms(2));
    }
}
