//! What is to be run, from bytes: refused with a clean error or run to its end, and nothing is left
//! of it.

use super::Bytes;
use crate::command::{Capture, Command, Output, Stdin};
use crate::kernel::linux::spawn;
use crate::kernel::sim::SimOptions;
use crate::kernel::sim::pipe::HostEnd;
use crate::reactor::Reactor;
use crate::types::{BackgroundPolicy, DrainPolicy, Ns, Signal, SpawnError, StopPolicy, Wait};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// Pieces of scripts, so that some bytes are children that do something.
const PIECES: [&str; 12] = [
    "echo stdout \"x\"; ",
    "write stderr 5000; ",
    "sleep 1ms; ",
    "fork { ",
    "}; ",
    "exit 3; ",
    "kill SELF KILL; ",
    "close stdout; ",
    "setsid; ",
    "cat stdout; ",
    "ignore TERM; ",
    "unkillable; ",
];

/// What Linux would be given for this command is made, and thrown away: for the bench. False if it
/// was refused.
pub fn prepares(command: &Command) -> bool {
    spawn::try_prepare(command.plan()).is_ok()
}

/// No panic, no error without a step, no process, pipe or table entry left; what Linux would be
/// given is prepared as well.
pub fn spawn_spec(input: &[u8]) {
    let mut from = Bytes(input);
    let command = command(&mut from);
    told(spawn::try_prepare(command.plan()).err());
    let mut options = SimOptions::seeded(u64::from(from.byte()));
    options.act_cost = Ns(10_000);
    let mut reactor = Reactor::simulated(options);
    let started = if from.byte() & 1 == 0 {
        reactor.start(&command)
    } else {
        reactor.spawn(&command)
    };
    match started {
        Err(error) => told(Some(error)),
        Ok(generation) => {
            let _ = reactor.feed(generation, vec![b'x'; 10]);
            let _ = reactor.close_stdin(generation);
            let _ = (
                reactor.take_stdin(generation),
                reactor.take_stdout(generation),
                reactor.take_stderr(generation),
            );
        }
    }
    let mut turns = 0;
    while reactor.is_busy() {
        turns += 1;
        assert!(turns < 5_000, "no end");
        let _turn = reactor.turn(None).expect("nobody waits for nothing");
        while reactor.next_event().is_some() {}
    }
    let sim = reactor.sim();
    assert_eq!(sim.violations(), []);
    assert_eq!(sim.generations(), 0);
    let open = sim
        .world()
        .pipes()
        .filter(|(_, pipe)| matches!(pipe.host, HostEnd::Open(Some(_))))
        .count();
    assert_eq!(open, 0, "a pipe that is still watched");
}

/// An error says what it is about, and never the value of a variable.
fn told(error: Option<SpawnError>) {
    let Some(error) = error else { return };
    assert!(!error.to_string().is_empty());
    assert!(
        !format!("{error} {error:?}").contains("VALUE-OF-A-VARIABLE"),
        "{error:?}"
    );
}

fn word<'a>(from: &mut Bytes<'a>) -> &'a OsStr {
    let length = usize::from(from.byte() % 32);
    OsStr::from_bytes(from.some(length))
}

fn script(from: &mut Bytes<'_>) -> String {
    let mut script = String::new();
    let mut open = 0;
    for _ in 0..from.below(12) {
        let piece = PIECES[usize::from(from.below(PIECES.len() as u16))];
        open += piece.matches('{').count();
        if piece.starts_with('}') {
            if open == 0 {
                continue;
            }
            open -= 1;
        }
        script.push_str(piece);
    }
    script.extend(std::iter::repeat_n("}; ", open));
    script
}

fn command(from: &mut Bytes<'_>) -> Command {
    let kind = from.byte();
    let mut command = Command::new(if kind & 1 == 0 {
        OsStr::new("sim")
    } else {
        word(from)
    });
    match kind & 6 {
        0 | 2 => command.arg(script(from)),
        4 => command.arg(word(from)),
        _ => &mut command,
    };
    for _ in 0..from.below(6) {
        match from.below(12) {
            0 => command.arg(word(from)),
            1 => command.arg0(word(from)),
            2 => {
                // The value is looked for in what errors say.
                let value = [b"VALUE-OF-A-VARIABLE", from.some(3)].concat();
                command.env(word(from), OsStr::from_bytes(&value))
            }
            3 => command.env_remove(word(from)),
            4 => command.env_clear(),
            5 => command.current_dir(word(from)),
            6 => command.umask(u32::from(from.byte()) << (from.byte() % 25)),
            7 => command.resource_limit(u32::from(from.byte()), from.number(), from.number()),
            8 => command.ignore_signal(signal(from)),
            9 => command.block_signal(signal(from)),
            10 => command.inherit_fds(true),
            _ => command.foreground_terminal(from.byte() & 1 == 1),
        };
    }
    ends(from, &mut command);
    bounds(from, &mut command);
    command
}

fn signal(from: &mut Bytes<'_>) -> Signal {
    Signal::from_raw(i32::from(from.byte() % 64) + 1).unwrap_or(Signal::HUP)
}

fn ends(from: &mut Bytes<'_>, command: &mut Command) {
    match from.below(4) {
        0 => command.stdin(Stdin::Null),
        1 => command.stdin(Stdin::Feed),
        2 => command.stdin(Stdin::Raw),
        _ => command.stdin(Stdin::Inherit),
    };
    match from.below(4) {
        0 => command.stdout(Output::Null),
        1 => command.stdout(Output::Raw),
        2 => command.stdout(
            Capture::default()
                .max_bytes(from.number())
                .pipe(Some(u32::from(from.byte()) << 12)),
        ),
        _ => command.stdout(Output::Inherit),
    };
    match from.below(3) {
        0 => command.stderr(Output::Null),
        1 => command.stderr(Output::ToStdout),
        _ => command.stderr(Capture::default().max_bytes(u64::from(from.byte()))),
    };
}

fn bounds(from: &mut Bytes<'_>, command: &mut Command) {
    let mut time = || {
        Duration::from_nanos(from.number() >> (from.byte() % 64)).min(Duration::from_secs(1 << 30))
    };
    command
        .drain(DrainPolicy::default().idle(time()).limit(time()))
        .stop(
            StopPolicy::default()
                .grace(Duration::from_millis(5))
                .stuck_after(Duration::from_millis(5)),
        )
        .background(
            BackgroundPolicy::settle()
                .grace(time())
                .wait(Wait::For(time())),
        )
        .run_limit(Duration::from_millis(20));
}
