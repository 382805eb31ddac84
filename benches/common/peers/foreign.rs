//! Peers in other languages: small programs in `benches/peers/`, made and run where their toolchain
//! is there.
//!
//! Such a program is told on its command line what a round is: PROGRAM ROLE NUMBER COUNT NOISY, the
//! first three being the command line of a measured child. First it runs ten quiet children that
//! are not counted. It gives its own stdin to the noisy ones, says `open` on a line when they are
//! all started, and ends with a line of JSON:
//!
//! ```text
//! {"samples": [[status, verdict], ...], "bytes": N, "cpu": N, "wall": N, "resident": N}
//! ```
//!
//! Times are in nanoseconds, those of the samples since the child's last act; `cpu` and `wall` are
//! those of the counted part, and `resident` is the largest resident memory in bytes.

use super::{Cost, Done, Peer, Sample, Work};
use crate::common::Fail;
use crate::common::child::{Gate, program};
use serde::Deserialize;
use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What runs the programs that were made: its command line.
type Made = Vec<OsString>;

/// The programs, made when they are first asked for; or why they cannot be had.
#[derive(Debug, Default)]
pub(super) struct Foreign {
    made: HashMap<String, Result<Made, String>>,
}

#[derive(Deserialize)]
struct Found {
    samples: Vec<(u64, u64)>,
    bytes: u64,
    cpu: u64,
    wall: u64,
    resident: u64,
}

impl Foreign {
    /// Makes the program of this peer; or says why it cannot be had.
    pub(super) fn make(&mut self, peer: Peer) -> Result<&Made, String> {
        self.made
            .entry(peer.to_string())
            .or_insert_with(|| make(peer))
            .as_ref()
            .map_err(Clone::clone)
    }

    pub(super) fn round(&mut self, peer: Peer, work: &Work) -> Result<Done, Fail> {
        let (runner, args) = self
            .make(peer)?
            .split_first()
            .ok_or("an empty command line")?;
        let gate = Gate::new()?;
        let mut command = Command::new(runner);
        let (role, number) = work.role.line();
        command.args(args).arg(program()?).args([
            role,
            &number.to_string(),
            &work.count.to_string(),
            &work.noisy.to_string(),
        ]);
        command.stdin(gate.stdin()?).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let mut gate = Some(gate);
        let mut found = None;
        for line in BufReader::new(child.stdout.take().ok_or("no stdout")?).lines() {
            match line? {
                line if line == "open" => drop(gate.take()),
                line => found = Some(serde_json::from_str::<Found>(&line)?),
            }
        }
        let status = child.wait()?;
        let found = found
            .filter(|_| status.success())
            .ok_or_else(|| format!("it ended with {status}"))?;
        let samples = found
            .samples
            .into_iter()
            .map(|(status, verdict)| Sample { status, verdict })
            .collect();
        let cost = Cost {
            cpu: found.cpu,
            wall: found.wall,
            resident: found.resident,
        };
        Ok(Done {
            samples,
            bytes: found.bytes,
            own: Some(cost),
        })
    }
}

/// Where the sources are.
fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("peers")
        .join(name)
}

fn make(peer: Peer) -> Result<Made, String> {
    let built = |name: &str| PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    match peer {
        Peer::Go => {
            let to = built("bench-peer-go");
            said(
                Command::new("go")
                    .arg("build")
                    .arg("-o")
                    .arg(&to)
                    .arg(source("drain.go")),
            )?;
            Ok(vec![to.into()])
        }
        Peer::Libuv => {
            let to = built("bench-peer-libuv");
            let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
            said(
                Command::new(compiler)
                    .args(["-O2", "-Wall", "-Wextra", "-o"])
                    .arg(&to)
                    .arg(source("drain_libuv.c"))
                    .arg("-luv"),
            )?;
            Ok(vec![to.into()])
        }
        Peer::Node => {
            said(Command::new("node").arg("--version"))?;
            Ok(vec!["node".into(), source("drain.js").into()])
        }
        Peer::Python => {
            said(Command::new("python3").args([
                "-c",
                "import asyncio, sys; sys.exit(sys.version_info < (3, 9))",
            ]))?;
            Ok(vec!["python3".into(), source("drain.py").into()])
        }
        Peer::Lastwords
        | Peer::LastwordsUring
        | Peer::RawEpoll
        | Peer::RawPrio
        | Peer::Spin
        | Peer::StdThreads
        | Peer::TokioCt
        | Peer::TokioMt
        | Peer::AsyncProcess => Err("it is not in another language".into()),
    }
}

/// Runs a command to its end; if it cannot be run or fails, what it said first.
fn said(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{name}: {error}"))?;
    if done.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&done.stderr)
        .lines()
        .take(2)
        .collect::<Vec<_>>()
        .join("; ");
    Err(format!("{name}: {}: {words}", done.status))
}
