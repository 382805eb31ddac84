//! Who starts children, and closes them: both pipes at their end, and the status collected.

use crate::common::Fail;
use crate::common::options::Choice;
use crate::raw::Raw;
use lastwords::{Event, Reactor, Stdin};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::Read;
use std::process::Stdio;
use tokio::io::AsyncReadExt;

/// The program and its arguments.
pub(crate) type Line = Vec<OsString>;

/// Starts children that say nothing, and closes them.
pub(crate) trait Starter {
    /// Starts one with both outputs captured. Timed: what it does is what the caller stands still
    /// for.
    fn start(&mut self) -> Result<(), Fail>;
    /// Waits until at least one is closed, and says how many are.
    fn settle(&mut self) -> Result<usize, Fail>;
}

/// Someone who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Peer {
    /// `Reactor::start`
    Lastwords,
    /// `Reactor::spawn`, which waits for exec
    LastwordsSpawn,
    /// The same steps by hand
    RawClone3,
    /// `std::process::Command`; the oldest child is read to its end and waited for
    Std,
    /// tokio's `process` on its single-threaded runtime
    TokioCt,
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}

impl Peer {
    /// Makes one for this command line.
    pub(crate) fn starter(self, line: &Line) -> Result<Box<dyn Starter>, Fail> {
        Ok(match self {
            Peer::Lastwords => Box::new(Ours::new(line, Reactor::start)?),
            Peer::LastwordsSpawn => Box::new(Ours::new(line, Reactor::spawn)?),
            Peer::RawClone3 => Box::new(Raw::new(line)?),
            Peer::Std => Box::new(Std {
                command: command(line)?,
                children: VecDeque::new(),
            }),
            Peer::TokioCt => {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()?;
                Box::new(Tokio {
                    command: command(line)?.into(),
                    tasks: tokio::task::JoinSet::new(),
                    runtime,
                })
            }
        })
    }
}

fn command(line: &Line) -> Result<std::process::Command, Fail> {
    let (program, args) = line.split_first().ok_or("an empty command line")?;
    let mut command = std::process::Command::new(program);
    command
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Ok(command)
}

type Start =
    fn(&mut Reactor, &lastwords::Command) -> Result<lastwords::Generation, lastwords::SpawnError>;

struct Ours {
    reactor: Reactor,
    command: lastwords::Command,
    start: Start,
}

impl Ours {
    fn new(line: &Line, start: Start) -> Result<Ours, Fail> {
        let (program, args) = line.split_first().ok_or("an empty command line")?;
        let mut command = lastwords::Command::new(program);
        command.args(args).stdin(Stdin::Null);
        Ok(Ours {
            reactor: Reactor::new()?,
            command,
            start,
        })
    }
}

impl Starter for Ours {
    fn start(&mut self) -> Result<(), Fail> {
        (self.start)(&mut self.reactor, &self.command)?;
        Ok(())
    }

    fn settle(&mut self) -> Result<usize, Fail> {
        loop {
            match self.reactor.wait_event(None)? {
                Some(Event::Closed { .. }) => return Ok(1),
                Some(Event::SpawnFailed { error, .. }) => return Err(error.into()),
                Some(_) => {}
                None => return Err("nothing is left to wait for".into()),
            }
        }
    }
}

struct Std {
    command: std::process::Command,
    children: VecDeque<std::process::Child>,
}

impl Starter for Std {
    fn start(&mut self) -> Result<(), Fail> {
        self.children.push_back(self.command.spawn()?);
        Ok(())
    }

    fn settle(&mut self) -> Result<usize, Fail> {
        let mut child = self
            .children
            .pop_front()
            .ok_or("nothing is left to wait for")?;
        let mut kept = Vec::new();
        if let (Some(mut stdout), Some(mut stderr)) = (child.stdout.take(), child.stderr.take()) {
            stdout.read_to_end(&mut kept)?;
            stderr.read_to_end(&mut kept)?;
        }
        child.wait()?;
        Ok(1)
    }
}

struct Tokio {
    command: tokio::process::Command,
    // Before the runtime: its tasks hold the runtime's registrations.
    tasks: tokio::task::JoinSet<std::io::Result<()>>,
    runtime: tokio::runtime::Runtime,
}

impl Starter for Tokio {
    fn start(&mut self) -> Result<(), Fail> {
        let _inside = self.runtime.enter();
        let child = self.command.spawn()?;
        self.tasks.spawn(close(child));
        Ok(())
    }

    fn settle(&mut self) -> Result<usize, Fail> {
        let closed = self.runtime.block_on(self.tasks.join_next());
        closed.ok_or("nothing is left to wait for")???;
        Ok(1)
    }
}

async fn close(mut child: tokio::process::Child) -> std::io::Result<()> {
    let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let read_out = async {
        if let Some(pipe) = &mut stdout {
            pipe.read_to_end(&mut out).await
        } else {
            Ok(0)
        }
    };
    let read_err = async {
        if let Some(pipe) = &mut stderr {
            pipe.read_to_end(&mut err).await
        } else {
            Ok(0)
        }
    };
    tokio::try_join!(child.wait(), read_out, read_err)?;
    Ok(())
}
