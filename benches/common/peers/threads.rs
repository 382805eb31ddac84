//! std: a thread for each pipe, and one that waits for the child.

use super::{Done, Sample, Work, stamp_of};
use crate::common::child::{Gate, Role};
use crate::common::tail::Tail;
use crate::common::{Fail, now};
use std::io::Read;
use std::process::{Child, Stdio};
use std::thread::JoinHandle;

type Reader = JoinHandle<std::io::Result<Tail>>;

struct Watched {
    child: Child,
    stdout: Reader,
    stderr: Reader,
}

pub(super) fn round(work: &Work) -> Result<Done, Fail> {
    let mut done = Done::default();
    let gate = Gate::new()?;
    let mut noisy = Vec::with_capacity(work.noisy);
    for _ in 0..work.noisy {
        noisy.push(start(Role::Noisy, Stdio::from(gate.stdin()?))?);
    }
    drop(gate);
    for _ in 0..work.count {
        let mut one = start(work.role, Stdio::null())?;
        one.child.wait()?;
        let status = now();
        let (stdout, stderr) = (join(one.stdout)?, join(one.stderr)?);
        let verdict = now();
        let stamp = stamp_of(stdout.stamp())?;
        done.bytes += stdout.total() + stderr.total();
        done.samples.push(Sample {
            status: status.saturating_sub(stamp),
            verdict: verdict.saturating_sub(stamp),
        });
    }
    for one in &mut noisy {
        one.child.kill()?;
    }
    for mut one in noisy {
        one.child.wait()?;
        done.bytes += join(one.stdout)?.total() + join(one.stderr)?.total();
    }
    Ok(done)
}

fn start(role: Role, stdin: Stdio) -> Result<Watched, Fail> {
    let mut child = role
        .command()?
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (stdout, stderr) = stdout.zip(stderr).ok_or("the child has no pipes")?;
    Ok(Watched {
        child,
        stdout: reader(stdout),
        stderr: reader(stderr),
    })
}

fn reader(pipe: impl Read + Send + 'static) -> Reader {
    std::thread::spawn(move || Tail::of(pipe))
}

fn join(reader: Reader) -> Result<Tail, Fail> {
    Ok(reader.join().map_err(|_| "a reader has panicked")??)
}
