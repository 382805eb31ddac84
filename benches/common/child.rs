//! The children: a freestanding program (`child.c`), made by the C compiler that has also linked
//! this bench.

use super::Fail;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

const SOURCE: &[u8] = include_bytes!("child.c");

/// What a child does. Its last act is to write the time to its stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Waits half a millisecond, and ends.
    Quiet,
    /// Writes so many MiB to stderr, and ends at once: some of it is still in the pipe.
    Bulk(u64),
    /// The same in pieces of 4 KiB.
    Fine(u64),
    /// Waits until its stdin ends, then writes to stderr at full speed until it cannot.
    Noisy,
    /// Writes to stderr at full speed for so many milliseconds, and writes the number of bytes to
    /// stdout before its last act.
    Counted(u64),
    /// Leaves a process behind that holds both its pipes for so many milliseconds, and ends.
    Leaver(u64),
    /// Waits until its stdin ends, and ends.
    Idle,
    /// Writes a line to stdout and to stderr, then does as `Idle`.
    Wrote,
    /// Writes so many lines to stdout, one in a millisecond, and ends.
    Ticks(u64),
}

impl Role {
    /// What it is told on its command line.
    pub(crate) fn line(self) -> (&'static str, u64) {
        match self {
            Role::Quiet => ("quiet", 0),
            Role::Bulk(mib) => ("bulk", mib),
            Role::Fine(mib) => ("fine", mib),
            Role::Noisy => ("noisy", 0),
            Role::Counted(ms) => ("counted", ms),
            Role::Leaver(ms) => ("leaver", ms),
            Role::Idle => ("idle", 0),
            Role::Wrote => ("wrote", 0),
            Role::Ticks(lines) => ("ticks", lines),
        }
    }

    /// The command line that plays it.
    pub(crate) fn command(self) -> Result<Command, Fail> {
        let (word, number) = self.line();
        let mut command = Command::new(program()?);
        command.arg(word).arg(number.to_string());
        Ok(command)
    }

    /// The same for lastwords.
    pub(crate) fn own_command(self) -> Result<lastwords::Command, Fail> {
        let (word, number) = self.line();
        let mut command = lastwords::Command::new(program()?);
        command.arg(word).arg(number.to_string());
        Ok(command)
    }
}

static MADE: OnceLock<Result<PathBuf, String>> = OnceLock::new();

/// Another process of this bench has made it.
pub(crate) fn made_by_another(path: PathBuf) {
    // The first to say where it is wins.
    MADE.get_or_init(|| Ok(path));
}

/// Where the program is; made when it is first asked for. With `end 0` it ends at once and says
/// nothing.
pub(crate) fn program() -> Result<&'static PathBuf, Fail> {
    MADE.get_or_init(|| {
        make().map_err(|error| format!("failed to make the benches' child: {error}"))
    })
    .as_ref()
    .map_err(|e| e.clone().into())
}

fn make() -> Result<PathBuf, Fail> {
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("bench-child-{}", std::process::id()));
    let mut cc = Command::new(compiler);
    cc.args([
        "-O2",
        "-static",
        "-nostdlib",
        "-ffreestanding",
        "-fno-stack-protector",
        "-x",
        "c",
        "-",
        "-o",
    ])
    .arg(&path);
    let mut cc = cc.stdin(Stdio::piped()).spawn()?;
    cc.stdin.take().ok_or("no stdin")?.write_all(SOURCE)?;
    let status = cc.wait()?;
    if !status.success() {
        return Err(format!("the C compiler says {status}").into());
    }
    Ok(path)
}

/// Removes the program, if it was made.
pub(crate) fn unmake() -> Result<(), Fail> {
    let Some(Ok(path)) = MADE.get() else {
        return Ok(());
    };
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Noisy children wait in front of it; dropping it lets them begin, all at once.
#[derive(Debug)]
pub(crate) struct Gate {
    inner: File,
    _outer: OwnedFd,
}

impl Gate {
    /// A closed gate.
    pub(crate) fn new() -> Result<Gate, Fail> {
        let (inner, outer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        Ok(Gate {
            inner: File::from(inner),
            _outer: outer,
        })
    }

    /// The stdin of a child that waits in front of it.
    pub(crate) fn stdin(&self) -> Result<OwnedFd, Fail> {
        Ok(self.inner.try_clone()?.into())
    }
}
