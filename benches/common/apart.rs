//! Processes of a bench's own, in each of which one peer is measured alone: this program again,
//! with `--apart PEER`.
//!
//! It is told what to do on its stdin, an order a line, and answers each with a line on its stdout,
//! both in JSON. Then its stdin becomes the gate that its idle children wait in front of, so that
//! no peer needs a descriptor for that.

use super::child::{made_by_another, program};
use super::crowd::{Crowd, Kind, Start};
use super::options::Choice;
use super::{Fail, cpu, now, proc};
use crate::common::child::{Gate, Role};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// What a process is told to do.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Start so many idle children, each of which has written a line to both streams if `wrote`.
    Grow { count: usize, wrote: bool },
    /// Do nothing for so long, then say what there is.
    Look { ms: u64 },
    /// Start so many children, of whom so many may be in flight, wait until all run, then let them
    /// end, all at once.
    Burst { count: usize, flight: usize },
    /// Start a child that writes so many lines, one in a millisecond, and read them.
    Ticks { lines: u64 },
    /// Let all idle children end, and wait for them.
    Empty,
}

/// What a process found. What an order does not measure is 0. Times in nanoseconds, memory in
/// bytes.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Found {
    /// Resident memory in bytes.
    pub(crate) resident: u64,
    /// Threads of the process.
    pub(crate) threads: u64,
    /// How often a thread went to sleep.
    pub(crate) sleeps: u64,
    /// CPU time: while nothing was done; of the starts; of the turns.
    pub(crate) cpu: u64,
    /// CPU time of the exits.
    pub(crate) exits: u64,
}

/// The arguments of a bench that does this.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Apart {
    /// Be that process, for this peer
    #[arg(long, hide = true, value_enum)]
    apart: Option<Kind>,
    /// The children's program
    #[arg(long, hide = true)]
    child: Option<PathBuf>,
}

impl Apart {
    /// Does what such a process does, if this is one.
    pub(crate) fn serve(&self) -> Result<bool, Fail> {
        let Some(kind) = self.apart else {
            return Ok(false);
        };
        if let Some(path) = &self.child {
            made_by_another(path.clone());
        }
        super::raise_descriptor_limit()?;
        let orders = File::from(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?);
        let mut host = Host {
            crowd: kind.crowd()?,
            gate: None,
            idle: 0,
            over: 0,
        };
        for line in BufReader::new(orders).lines() {
            let found = host.obey(serde_json::from_str(&line?)?)?;
            println!("{}", serde_json::to_string(&found)?);
        }
        host.empty()?;
        Ok(true)
    }
}

struct Host {
    crowd: Box<dyn Crowd>,
    gate: Option<Gate>,
    /// Children that wait in front of it.
    idle: usize,
    /// Children that have ended, or will have when they are waited for.
    over: usize,
}

impl Host {
    fn obey(&mut self, order: Order) -> Result<Found, Fail> {
        match order {
            Order::Grow { count, wrote } => self.grow(count, wrote)?,
            Order::Look { ms } => return self.look(Duration::from_millis(ms)),
            Order::Burst { count, flight } => return self.burst(count, flight),
            Order::Ticks { lines } => return self.ticks(lines),
            Order::Empty => self.empty()?,
        }
        Ok(Found::default())
    }

    fn grow(&mut self, count: usize, wrote: bool) -> Result<(), Fail> {
        if self.gate.is_none() {
            let gate = Gate::new()?;
            rustix::stdio::dup2_stdin(gate.stdin()?)?;
            self.gate = Some(gate);
        }
        let due = self.crowd.bytes() + if wrote { 2 * LINE * count as u64 } else { 0 };
        let role = if wrote { Role::Wrote } else { Role::Idle };
        self.crowd.start(
            Start {
                role,
                count,
                flight: FLIGHT,
            },
            None,
        )?;
        self.idle += count;
        self.crowd.read(due)
    }

    fn look(&mut self, time: Duration) -> Result<Found, Fail> {
        let (sleeps, before) = (proc::sleeps()?, cpu());
        self.crowd.pause(time)?;
        let cpu = cpu() - before;
        // The one that the pause itself ended is no wake-up.
        let sleeps = (proc::sleeps()? - sleeps).saturating_sub(1);
        Ok(Found {
            resident: proc::resident()?,
            threads: proc::threads()?,
            sleeps,
            cpu,
            exits: 0,
        })
    }

    fn burst(&mut self, count: usize, flight: usize) -> Result<Found, Fail> {
        let gate = Gate::new()?;
        let before = cpu();
        self.crowd.start(
            Start {
                role: Role::Idle,
                count,
                flight,
            },
            Some(&gate),
        )?;
        let started = cpu();
        drop(gate);
        self.over += count;
        self.crowd.finish(self.over)?;
        Ok(Found {
            cpu: started - before,
            exits: cpu() - started,
            ..Found::default()
        })
    }

    fn ticks(&mut self, lines: u64) -> Result<Found, Fail> {
        let due = self.crowd.bytes() + lines * LINE;
        self.crowd.start(
            Start {
                role: Role::Ticks(lines),
                count: 1,
                flight: FLIGHT,
            },
            None,
        )?;
        let before = cpu();
        self.crowd.read(due)?;
        let cpu = cpu() - before;
        self.over += 1;
        self.crowd.finish(self.over)?;
        Ok(Found {
            cpu,
            ..Found::default()
        })
    }

    fn empty(&mut self) -> Result<(), Fail> {
        self.gate = None;
        self.over += std::mem::take(&mut self.idle);
        self.crowd.finish(self.over)
    }
}

/// Children in flight where the number does not matter.
const FLIGHT: usize = 8;
/// Bytes of a line that a child writes (`say` in child.c).
const LINE: u64 = 85;

/// Such a process, seen from outside.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    orders: ChildStdin,
    found: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts a process of this kind.
    pub(crate) fn new(kind: Kind) -> Result<Process, Fail> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["--apart", &kind.name(), "--child"])
            .arg(program()?);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (orders, found) = child
            .stdin
            .take()
            .zip(child.stdout.take())
            .ok_or("it has no pipes")?;
        Ok(Process {
            child,
            orders,
            found: BufReader::new(found).lines(),
        })
    }

    /// Has it do something, and waits until it is done.
    pub(crate) fn ask(&mut self, order: Order) -> Result<Found, Fail> {
        writeln!(self.orders, "{}", serde_json::to_string(&order)?)?;
        let line = self
            .found
            .next()
            .ok_or_else(|| format!("a process apart has ended: {order:?}"))??;
        Ok(serde_json::from_str(&line)?)
    }

    /// Waits until it has ended, and its children with it.
    pub(crate) fn end(mut self) -> Result<(), Fail> {
        drop(self.orders);
        let status = self.child.wait()?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("a process apart has ended with {status}").into())
        }
    }
}

/// So many children of three descriptors each fit under the limit, beside what else there is.
pub(crate) fn room() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    limit
        .and_then(|limit| usize::try_from(limit).ok())
        .map_or(usize::MAX, |limit| limit.saturating_sub(700) / 3)
}

/// Now and then a round should be told of: it takes minutes.
pub(crate) fn told(what: &str, began: u64) {
    eprintln!("({what}: {} s)", (now() - began) / 1_000_000_000);
}
