//! tokio: a task for each child.

use super::{Crowd, Start};
use crate::common::Fail;
use crate::common::child::Gate;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// What the tasks tell.
#[derive(Default)]
struct Told {
    bytes: AtomicU64,
    more: Notify,
}

pub(super) struct Tokio {
    told: Arc<Told>,
    over: usize,
    // Before the runtime: its tasks hold the runtime's registrations.
    tasks: JoinSet<std::io::Result<()>>,
    runtime: Runtime,
}

impl Tokio {
    pub(super) fn new() -> Result<Tokio, Fail> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Tokio {
            told: Arc::default(),
            over: 0,
            tasks: JoinSet::new(),
            runtime,
        })
    }
}

impl Crowd for Tokio {
    fn start(&mut self, what: Start, gate: Option<&Gate>) -> Result<(), Fail> {
        let mut command = Command::from(what.role.command()?);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let _inside = self.runtime.enter();
        for _ in 0..what.count {
            command.stdin(match gate {
                Some(gate) => Stdio::from(gate.stdin()?),
                None => Stdio::inherit(),
            });
            let child = command.spawn()?;
            self.tasks.spawn(watch(child, self.told.clone()));
        }
        // Every task has begun to wait before this one goes on.
        self.runtime.block_on(tokio::task::yield_now());
        Ok(())
    }

    fn finish(&mut self, total: usize) -> Result<(), Fail> {
        while self.over < total {
            let ended = self.runtime.block_on(self.tasks.join_next());
            ended.ok_or("nobody is left to wait for")???;
            self.over += 1;
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.told.bytes.load(Ordering::Relaxed)
    }

    fn read(&mut self, bytes: u64) -> Result<(), Fail> {
        while self.bytes() < bytes {
            self.runtime.block_on(self.told.more.notified());
        }
        Ok(())
    }

    fn pause(&mut self, time: Duration) -> Result<(), Fail> {
        // Made inside: it needs the runtime.
        self.runtime
            .block_on(async { tokio::time::sleep(time).await });
        Ok(())
    }
}

async fn watch(mut child: Child, told: Arc<Told>) -> std::io::Result<()> {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    tokio::try_join!(child.wait(), to_end(stdout, &told), to_end(stderr, &told))?;
    Ok(())
}

async fn to_end(pipe: Option<impl AsyncRead + Unpin>, told: &Told) -> std::io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    if let Some(mut pipe) = pipe {
        loop {
            match pipe.read_buf(&mut kept).await? {
                0 => break,
                n => {
                    told.bytes.fetch_add(n as u64, Ordering::Relaxed);
                    told.more.notify_one();
                }
            }
        }
    }
    Ok(kept)
}
