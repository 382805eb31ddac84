//! What a child does, as data. The same script is played by a process of the simulated kernel and,
//! in the integration tests, by a real process with real system calls.
//!
//! ```text
//! write stderr 100; sleep 50ms; fork { ignore TERM; hold 2s; write stdout 10 }; close stdout; exit 3
//! ```
//!
//! Acts stand one after the other, apart by `;` or line ends. A process whose acts are over exits
//! with 0.
//!
//! | act | what it does |
//! | --- | --- |
//! | `write STREAM N` | writes the first N bytes of [`pattern`], blocking; N may end in `K` or `M` (1024) |
//! | `print STREAM "text"` | writes the text; `\n`, `\r`, `\t`, `\0`, `\e`, `\\`, `\"` and `\xHH` as usual |
//! | `echo STREAM "text"` | the same and a newline |
//! | `sleep TIME`, `hold TIME` | waits; without a time (or `forever`) until a signal ends it |
//! | `spin TIME` | uses the processor for so long; without a time for ever |
//! | `fork { ... }` | a child does the acts in braces and exits with 0; the process goes on at once |
//! | `wait` | until every child has ended, and reaps them |
//! | `close stdin`, `close STREAM` | closes the descriptor |
//! | `read N`, `read all` | reads so many bytes of stdin, or to its end |
//! | `cat STREAM` | copies stdin to a stream until its end |
//! | `setsid`, `setpgid` | a session, or a group, of its own (a leader's `setsid` is refused, as setsid(2) does) |
//! | `ignore SIGNAL`, `default SIGNAL` | its disposition |
//! | `on SIGNAL { ... }` | does the acts when the signal comes, then goes on with what it was doing |
//! | `kill TARGET SIGNAL` | TARGET is `SELF`, `GROUP`, `PARENT` or `CHILD` (the one forked last) |
//! | `stop` | `kill SELF STOP` |
//! | `repeat N { ... }`, `loop { ... }` | the acts N times, or for ever |
//! | `block SIGNAL`, `unblock SIGNAL` | its mask: what comes while it is blocked comes when it is not any more |
//! | `exec "text" { ... }` | becomes a program of that name, which does the acts and exits with 0; handlers are gone, what is ignored stays |
//! | `exec clean "text" { ... }` | the same with an empty environment: a cookie in it is lost |
//! | `name "text"` | its command name (the first 15 bytes) |
//! | `outlive TIME` | its main thread ends, another goes on for so long; then it exits with 0 |
//! | `user N` | becomes another user. In the simulation the host may not signal it, nor see its descriptors |
//! | `unkillable` | uninterruptible sleep (state D) until the world lets it go on. Simulation only |
//! | `fault CALL WHAT` | the next such call of the host for this command goes wrong ([`super::fault`] has the list). Simulation only |
//! | `exit N` | ends |
//!
//! TIME is a number with `ns`, `us`, `ms`, `s` or `m`. `#` begins a remark that ends with the line.

use super::fault::{Call, Fault};
use crate::types::{Ns, Signal, Stream};
use std::fmt;
use std::sync::Arc;

/// Acts, one after the other. Shared, since a fork and a loop use the same ones.
pub type Acts = Arc<[Act]>;

/// One thing that a process does. The table on top of this page has the words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Writes the first so many bytes of [`pattern`].
    Write(Stream, u64),
    /// Writes these bytes.
    Print(Stream, Arc<[u8]>),
    /// Sleeps; `None` for ever.
    Sleep(Option<Ns>),
    /// Uses the processor; `None` for ever.
    Spin(Option<Ns>),
    /// A child does these.
    Fork(Acts),
    /// Until all children have ended.
    Wait,
    /// Closes a descriptor.
    Close(Channel),
    /// Reads so many bytes of stdin; `None` to its end.
    Read(Option<u64>),
    /// Copies stdin to a stream.
    Copy(Stream),
    /// A session of its own.
    Setsid,
    /// A group of its own.
    Setpgid,
    /// The signal is ignored.
    Ignore(Signal),
    /// The signal has its default action.
    Reset(Signal),
    /// The signal is handled by these.
    On(Signal, Acts),
    /// The signal is not taken for now.
    Block(Signal),
    /// It is taken again.
    Unblock(Signal),
    /// Becomes another program.
    Exec(Program),
    /// The next such call of the host goes wrong.
    Fault(Call, Fault),
    /// Sends a signal.
    Kill(Target, Signal),
    /// So many times; `None` for ever.
    Repeat(Option<u64>, Acts),
    /// Another command name.
    Name(String),
    /// The main thread ends, another goes on.
    Outlive(Ns),
    /// Becomes another user.
    User(u32),
    /// Enters an uninterruptible sleep.
    Unkillable,
    /// Ends with this code.
    Exit(i32),
}

/// What a process becomes by exec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its command name.
    pub name: String,
    /// Whether it begins with an empty environment.
    pub is_clean: bool,
    /// What it does.
    pub acts: Acts,
    /// The same, as it was written.
    pub text: Arc<str>,
}

/// A descriptor of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// Descriptor 0 of the process.
    Stdin,
    /// Descriptor 1 or 2.
    Output(Stream),
}

impl Channel {
    /// Its number: 0, 1 or 2.
    pub const fn number(self) -> usize {
        match self {
            Channel::Stdin => 0,
            Channel::Output(stream) => stream.index() + 1,
        }
    }
}

/// Who gets a signal that a process sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The process itself.
    Me,
    /// Its whole group, itself included.
    Group,
    /// The parent of the process.
    Parent,
    /// The child that it forked last; nobody, if it has forked none.
    Child,
}

/// The whole behaviour of a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    acts: Acts,
}

impl Script {
    /// Reads one. Blocks may be [`MAX_DEPTH`] deep.
    ///
    /// ```
    /// use lastwords::__internals::kernel::sim::script::{Act, Script};
    /// let script = Script::parse("sleep 5ms; exit 3").unwrap();
    /// assert_eq!(script.acts().last(), Some(&Act::Exit(3)));
    /// assert!(Script::parse("dance").is_err());
    /// ```
    pub fn parse(text: &str) -> Result<Script, ScriptError> {
        Ok(Script {
            acts: super::parse::parse(text)?,
        })
    }

    /// The acts of the script, in order.
    pub fn acts(&self) -> &Acts {
        &self.acts
    }
}

/// How deep blocks may be.
pub const MAX_DEPTH: usize = 32;

/// A script that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptError {
    /// The byte of the text at which it went wrong.
    pub at: usize,
    /// What was expected, or is wrong.
    pub what: String,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "read the script at byte {}: {}", self.at, self.what)
    }
}

impl std::error::Error for ScriptError {}

/// Byte `at` of what `write` writes: lines of 63 letters, small ones on stdout and large ones on
/// stderr. Each line begins with another letter than the one before, so that a lost or doubled
/// piece shows.
pub const fn pattern(stream: Stream, at: u64) -> u8 {
    PATTERNS[stream.index()][(at % PERIOD as u64) as usize]
}

/// Bytes `at` to `at + len` of what `write` writes.
pub fn piece(stream: Stream, at: u64, len: usize) -> Vec<u8> {
    let period = &PATTERNS[stream.index()];
    let from = (at % PERIOD as u64) as usize;
    let mut bytes = Vec::with_capacity(len + PERIOD);
    bytes.extend_from_slice(&period[from..]);
    while bytes.len() < len {
        bytes.extend_from_slice(period);
    }
    bytes.truncate(len);
    bytes
}

/// 26 letters in lines of 64: then it begins again.
const PERIOD: usize = 64 * 26;
const PATTERNS: &[[u8; PERIOD]; 2] = &[letters(b'a'), letters(b'A')];

const fn letters(first: u8) -> [u8; PERIOD] {
    let mut bytes = [b'\n'; PERIOD];
    let mut at = 0;
    while at < PERIOD {
        if at % 64 != 63 {
            // The number of the line moves the letters on.
            bytes[at] = first + ((at + at / 64) % 26) as u8;
        }
        at += 1;
    }
    bytes
}

/// The variable that a script is handed over in.
pub const PLAY: &str = "LASTWORDS_PLAY";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_pattern_and_lines_differ() {
        for (at, len) in [(0, 5000), (1663, 3), (99_999, 70_000), (7, 0)] {
            let expected: Vec<u8> = (at..at + len).map(|n| pattern(Stream::Stderr, n)).collect();
            assert_eq!(piece(Stream::Stderr, at, len as usize), expected);
        }
        let lines = piece(Stream::Stdout, 0, 26 * 64);
        let mut lines: Vec<&[u8]> = lines
            .split(|b| *b == b'\n')
            .filter(|l| !l.is_empty())
            .collect();
        assert!(
            lines
                .iter()
                .all(|l| l.len() == 63 && l.iter().all(u8::is_ascii_lowercase))
        );
        lines.dedup();
        assert_eq!(lines.len(), 26);
    }
}
