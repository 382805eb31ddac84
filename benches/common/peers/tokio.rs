//! tokio's `process`: a task for each child, which reads both pipes to their end and waits.

use super::{Done, Sample, Work, stamp_of};
use crate::common::child::{Gate, Role};
use crate::common::tail::Tail;
use crate::common::{Fail, now};
use rustix::process::{Pid, Signal, kill_process};
use std::process::Stdio;
use tokio::process::{Child, Command};
use tokio::runtime::Builder;

/// What was known when, and bytes read.
struct Watched {
    status: u64,
    verdict: u64,
    stdout: Tail,
    stderr: Tail,
}

pub(super) fn round(mut builder: Builder, work: &Work) -> Result<Done, Fail> {
    builder.enable_all().build()?.block_on(run(*work))
}

async fn run(work: Work) -> Result<Done, Fail> {
    let mut done = Done::default();
    let gate = Gate::new()?;
    let mut noisy = Vec::with_capacity(work.noisy);
    for _ in 0..work.noisy {
        let child = start(Role::Noisy, Stdio::from(gate.stdin()?))?;
        let pid = child
            .id()
            .and_then(|id| Pid::from_raw(id.cast_signed()))
            .ok_or("the child has no number")?;
        noisy.push((pid, tokio::spawn(watch(child))));
    }
    drop(gate);
    for _ in 0..work.count {
        let one = tokio::spawn(watch(start(work.role, Stdio::null())?)).await??;
        let stamp = stamp_of(one.stdout.stamp())?;
        done.bytes += one.stdout.total() + one.stderr.total();
        done.samples.push(Sample {
            status: one.status.saturating_sub(stamp),
            verdict: one.verdict.saturating_sub(stamp),
        });
    }
    for (pid, _) in &noisy {
        kill_process(*pid, Signal::KILL)?;
    }
    for (_, task) in noisy {
        let one = task.await??;
        done.bytes += one.stdout.total() + one.stderr.total();
    }
    Ok(done)
}

fn start(role: Role, stdin: Stdio) -> Result<Child, Fail> {
    Ok(Command::from(role.command()?)
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?)
}

async fn watch(mut child: Child) -> Result<Watched, Fail> {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (stdout, stderr) = stdout.zip(stderr).ok_or("the child has no pipes")?;
    let waiting = async {
        let ended = child.wait().await;
        (ended, now())
    };
    let ((ended, status), stdout, stderr) =
        tokio::join!(waiting, Tail::of_tokio(stdout), Tail::of_tokio(stderr));
    let verdict = now();
    ended?;
    Ok(Watched {
        status,
        verdict,
        stdout: stdout?,
        stderr: stderr?,
    })
}
