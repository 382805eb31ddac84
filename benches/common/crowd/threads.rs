//! std: a thread for each pipe.

use super::{Crowd, Start};
use crate::common::Fail;
use crate::common::child::Gate;
use std::io::{ErrorKind, Read};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

type Reader = JoinHandle<std::io::Result<Vec<u8>>>;

#[derive(Default)]
pub(super) struct Threads {
    // The newest are waited for first: those of a burst.
    children: Vec<(Child, [Reader; 2])>,
    bytes: Arc<AtomicU64>,
    over: usize,
}

impl Threads {
    fn reader(&self, mut pipe: impl Read + Send + 'static) -> Reader {
        let bytes = self.bytes.clone();
        std::thread::spawn(move || {
            let (mut kept, mut some) = (Vec::new(), [0; 4096]);
            loop {
                match pipe.read(&mut some) {
                    Ok(0) => return Ok(kept),
                    Ok(n) => {
                        kept.extend_from_slice(&some[..n]);
                        bytes.fetch_add(n as u64, Ordering::Relaxed);
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        })
    }
}

impl Crowd for Threads {
    fn start(&mut self, what: Start, gate: Option<&Gate>) -> Result<(), Fail> {
        let mut command = what.role.command()?;
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        for _ in 0..what.count {
            command.stdin(match gate {
                Some(gate) => Stdio::from(gate.stdin()?),
                None => Stdio::inherit(),
            });
            let mut child = command.spawn()?;
            let (stdout, stderr) = child
                .stdout
                .take()
                .zip(child.stderr.take())
                .ok_or("the child has no pipes")?;
            self.children
                .push((child, [self.reader(stdout), self.reader(stderr)]));
        }
        Ok(())
    }

    fn finish(&mut self, total: usize) -> Result<(), Fail> {
        while self.over < total {
            let (mut child, readers) = self.children.pop().ok_or("nobody is left to wait for")?;
            child.wait()?;
            for reader in readers {
                reader.join().map_err(|_| "a reader has panicked")??;
            }
            self.over += 1;
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn read(&mut self, bytes: u64) -> Result<(), Fail> {
        while self.bytes() < bytes {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn pause(&mut self, time: Duration) -> Result<(), Fail> {
        std::thread::sleep(time);
        Ok(())
    }
}
