//! What children do and what their host wants of them, from numbers.

use lastwords::__internals::kernel::Orphans;
use lastwords::sim::{FaultRates, Ns, Reaper, Rng, SimOptions};
use lastwords::{
    BackgroundPolicy, Bound, Capture, CgroupOptions, Command, Containment, DrainPolicy, ExitSource,
    MemberWatch, StopPolicy, Wait,
};
use std::fmt::Write;
use std::time::Duration;

/// Acts that are not everyday's.
const ODD: [&str; 12] = [
    "stop",
    "kill SELF SEGV",
    "exit 4",
    "outlive 700ms",
    "unkillable",
    "user 7",
    "wait",
    "read all",
    "cat stdout",
    "block TERM",
    "unblock TERM",
    "exec \"other\" { write stderr 80; sleep 90ms; exit 5 }",
];

pub(crate) fn chance(rng: &mut Rng, percent: u64) -> bool {
    rng.below(100) < percent
}

/// Acts of a process; how deep it may still fork.
fn acts(rng: &mut Rng, depth: u32, out: &mut String) {
    for _ in 0..rng.below(5) {
        let stream = rng.pick(&["stdout", "stderr"]);
        match rng.below(if depth > 0 { 15 } else { 11 }) {
            0..3 => write!(
                out,
                "write {stream} {}",
                rng.pick(&[1, 80, 4096, 70_000, 200_000])
            ),
            3..6 => write!(
                out,
                "sleep {}ms",
                rng.pick(&[0, 1, 5, 90, 800, 2_500, 7_000])
            ),
            6 => write!(out, "close {stream}"),
            7 => write!(out, "ignore {}", rng.pick(&["TERM", "PIPE", "HUP"])),
            8 => write!(
                out,
                "on TERM {{ echo stderr \"asked\"; sleep {}ms; exit 9 }}",
                rng.pick(&[0, 50, 3_000])
            ),
            9 => write!(out, "spin {}ms", rng.pick(&[1, 40])),
            10 => write!(out, "{}", rng.pick(&ODD)),
            11..13 => block(rng, depth, "", out),
            13 if chance(rng, 20) => block(
                rng,
                depth,
                "setsid; exec clean \"bare\" { sleep 900ms }; ",
                out,
            ),
            13 => block(rng, depth, "setsid; ", out),
            _ => write!(
                out,
                "fork {{ repeat 200 {{ sleep {}ms; echo {stream} \"tick\" }} }}",
                rng.pick(&[3, 30, 400])
            ),
        }
        .expect("a string takes everything");
        out.push_str("; ");
    }
}

fn block(rng: &mut Rng, depth: u32, first: &str, out: &mut String) -> std::fmt::Result {
    write!(out, "fork {{ {first}")?;
    acts(rng, depth - 1, out);
    out.push('}');
    Ok(())
}

fn bound(rng: &mut Rng) -> Bound {
    match rng.below(5) {
        0 => Bound::Never,
        1 => Bound::After(Duration::ZERO),
        _ => Bound::After(Duration::from_millis(rng.pick(&[1, 50, 400, 2_000, 5_000]))),
    }
}

/// A stop with an end: one without would wait for ever for whoever ignores its signal.
pub(crate) fn stop_policy(rng: &mut Rng) -> StopPolicy {
    let grace = Duration::from_millis(rng.pick(&[0, 1, 300, 2_000]));
    StopPolicy::default()
        .grace(grace)
        .stuck_after(Duration::from_millis(1_500))
}

fn background(rng: &mut Rng) -> BackgroundPolicy {
    let millis = |rng: &mut Rng| Duration::from_millis(rng.pick(&[0, 10, 500, 2_000]));
    match rng.below(4) {
        0 => BackgroundPolicy::disabled(),
        1 => BackgroundPolicy::report_only().grace(millis(rng)),
        _ => {
            let wait = Wait::For(millis(rng));
            BackgroundPolicy::settle()
                .grace(millis(rng))
                .wait(wait)
                .terminate_grace(millis(rng))
                .keep_orphans(chance(rng, 25))
        }
    }
}

pub(crate) fn command(
    rng: &mut Rng,
    wants: (Option<&str>, Option<Containment>),
) -> (String, Command) {
    let mut script = String::new();
    acts(rng, 3, &mut script);
    if let Some(other) = wants.0 {
        other.clone_into(&mut script);
    }
    let mut command = Command::new("sim");
    command
        .arg(&script)
        .drain(DrainPolicy::default().idle(bound(rng)).limit(bound(rng)))
        .stop(stop_policy(rng))
        .background(background(rng))
        // The end of everything, since bounds may be infinite.
        .run_limit(Duration::from_millis(rng.pick(&[1, 300, 4_000, 20_000])));
    if matches!(rng.below(3), 0) {
        command.stdout(
            Capture::default()
                .deliver(true)
                .high_water_mark(4096)
                .max_bytes(8192),
        );
    }
    if chance(rng, 30) {
        // Less than a pipe holds, and more.
        command.stdin(vec![b'x'; rng.pick(&[10, 3_000, 100_000])]);
    }
    match rng.below(5) {
        0 => command.containment(Containment::Cookie),
        1 => command.containment(Containment::Cgroup(CgroupOptions::default())),
        _ => &mut command,
    };
    if let Some(other) = wants.1 {
        command.containment(other);
    }
    (script, command)
}

pub(crate) fn options(rng: &mut Rng, seed: u64) -> SimOptions {
    let mut options = SimOptions::seeded(seed);
    options.group_signal = chance(rng, 50);
    options.exit_info = chance(rng, 50);
    options.pipe = rng.pick(&[4096, 65_536]);
    if chance(rng, 50) {
        // Nothing can happen between two calls of a turn.
        options.call_cost = Ns::ZERO;
    }
    if chance(rng, 30) {
        options.exit_source = ExitSource::Sigchld;
        options.sigchld_lost = chance(rng, 30);
    }
    if chance(rng, 20) {
        options.members = MemberWatch::Polling;
    }
    if chance(rng, 15) {
        options.reaper = Reaper::Thief;
    }
    options.orphans = rng.pick(&[
        Orphans::Leave,
        Orphans::Leave,
        Orphans::Inherit,
        Orphans::Adopt,
    ]);
    if chance(rng, 20) {
        // Numbers come round soon.
        options.pid_max = 2000;
    }
    if chance(rng, 60) {
        options.fault_rates = FaultRates {
            not_yet: rng.pick(&[0, 0, 100]),
            incomplete: rng.pick(&[0, 0, 50]),
            ..FaultRates::storm()
        };
    }
    options
}

/// A kernel and a machine as they should be.
pub(crate) fn calm(rng: &mut Rng, seed: u64) -> SimOptions {
    let mut options = SimOptions::seeded(seed);
    options.group_signal = chance(rng, 50);
    options.pipe = rng.pick(&[4096, 65_536]);
    if chance(rng, 30) {
        options.exit_source = ExitSource::Sigchld;
    }
    options
}
