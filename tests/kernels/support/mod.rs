//! What the integration tests share.
//!
//! * The test binary plays the children itself: [`plan`] and [`play`] start it again with a script
//!   in the environment, which is done before `main` with real system calls (`player.rs`). The
//!   simulated kernel reads the same variable.
//! * [`Census`] counts what could leak.

mod census;
mod cgroups;
mod player;

pub(crate) use census::Census;
pub(crate) use cgroups::cgroups;

use lastwords::__internals::command::plan::Plan;
use lastwords::__internals::kernel::sim::script::PLAY;
use lastwords::sim::Script;
use std::ffi::OsString;

/// Each test binary uses a part of this; here is a use of all of it.
const _: fn() = || {
    let _ = (
        program,
        play,
        plan,
        cgroups,
        Census::take,
        Census::difference,
        Census::assert_same,
    );
};

/// The program that plays scripts: this one.
pub(crate) fn program() -> OsString {
    std::env::current_exe()
        .expect("the path of the test binary")
        .into_os_string()
}

/// Program, variable and value that play a script. A script that cannot be read fails the test here
/// and not in the child.
pub(crate) fn play(script: &str) -> (OsString, &'static str, OsString) {
    if let Err(error) = Script::parse(script) {
        panic!("{script:?}: {error}");
    }
    (program(), PLAY, script.into())
}

/// A plan that plays a script; both streams captured, stdin null.
pub(crate) fn plan(script: &str) -> Plan {
    let (program, name, value) = play(script);
    let mut plan = Plan::new(program);
    plan.env.insert(name.into(), Some(value));
    plan
}
