//! Who reads. Every peer does the same: starts so many children at once, reads both pipes of each
//! to their end, keeps the newest 2 MiB of each stream, and learns each status.

use super::raw;
use crate::common::Fail;
use crate::common::child::Role;
use crate::common::options::Choice;
use crate::common::peers::has_uring;
use crate::common::tail::Tail;
use futures_lite::future;
use lastwords::{BackendChoice, Event, Reactor, Stdin};
use std::process::Stdio;

/// What is to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    /// What each child does.
    pub(crate) role: Role,
    /// How many of them, side by side.
    pub(crate) children: usize,
}

/// Who reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Peer {
    /// lastwords on epoll
    Lastwords,
    /// lastwords on io_uring
    LastwordsUring,
    /// A hand-written loop on one epoll, one read per event, in the order of the events
    RawEpoll,
    /// The same, with the pidfds in an epoll of their own that is looked at after every read
    RawPrio,
    /// The first one, with up to 32 reads per event
    #[value(name = "raw-32")]
    Raw32,
    /// std, with a thread for each pipe
    StdThreads,
    /// tokio's `process` on its single-threaded runtime
    TokioCt,
    /// tokio's `process` on its multi-threaded runtime
    TokioMt,
    /// async-process on one thread
    AsyncProcess,
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}

impl Peer {
    /// Measured when nobody says who: io_uring only where the kernel offers it.
    pub(crate) fn by_default(self) -> bool {
        self != Peer::LastwordsUring || has_uring()
    }
}

/// Free bytes that a reactor keeps from round to round, as the other peers keep their rings.
const POOL: usize = 1 << 30;

/// What peers keep from round to round. (The rings of the others are kept in `tail.rs`.)
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    epoll: Option<Reactor>,
    uring: Option<Reactor>,
}

fn reactor(backend: BackendChoice) -> Result<Reactor, Fail> {
    Ok(Reactor::builder()
        .backend(backend)
        .pool_bytes(POOL)
        .build()?)
}

impl Hosts {
    /// One round of a peer: bytes read.
    pub(crate) fn round(&mut self, peer: Peer, work: &Work) -> Result<u64, Fail> {
        let held = |place: &mut Option<Reactor>, backend| {
            let reactor = match place {
                Some(reactor) => reactor,
                none => none.insert(reactor(backend)?),
            };
            lastwords_round(reactor, work)
        };
        match peer {
            Peer::Lastwords => held(&mut self.epoll, BackendChoice::Epoll),
            Peer::LastwordsUring => held(&mut self.uring, BackendChoice::Uring),
            Peer::RawEpoll => raw::round(raw::Manner::Plain, work),
            Peer::RawPrio => raw::round(raw::Manner::ExitsFirst, work),
            Peer::Raw32 => raw::round(raw::Manner::Many, work),
            Peer::StdThreads => threads_round(work),
            Peer::TokioCt => tokio_round(&mut tokio::runtime::Builder::new_current_thread(), work),
            Peer::TokioMt => tokio_round(&mut tokio::runtime::Builder::new_multi_thread(), work),
            Peer::AsyncProcess => async_process_round(work),
        }
    }
}

fn lastwords_round(reactor: &mut Reactor, work: &Work) -> Result<u64, Fail> {
    let before = reactor.stats().bytes;
    let mut command = work.role.own_command()?;
    command.stdin(Stdin::Null);
    for _ in 0..work.children {
        reactor.start(&command)?;
    }
    while let Some(event) = reactor.wait_event(None)? {
        if let Event::SpawnFailed { error, .. } = event {
            return Err(error.into());
        }
    }
    Ok(reactor.stats().bytes - before)
}

fn std_child(role: Role) -> Result<std::process::Command, Fail> {
    let mut command = role.command()?;
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Ok(command)
}

fn threads_round(work: &Work) -> Result<u64, Fail> {
    let mut all = Vec::with_capacity(work.children);
    for _ in 0..work.children {
        let mut child = std_child(work.role)?.spawn()?;
        let (stdout, stderr) = child
            .stdout
            .take()
            .zip(child.stderr.take())
            .ok_or("the child has no pipes")?;
        all.push((
            std::thread::spawn(move || Tail::of(stdout)),
            std::thread::spawn(move || Tail::of(stderr)),
            child,
        ));
    }
    let mut bytes = 0;
    for (stdout, stderr, mut child) in all {
        for reader in [stdout, stderr] {
            bytes += reader.join().map_err(|_| "a reader has panicked")??.total();
        }
        child.wait()?;
    }
    Ok(bytes)
}

fn tokio_round(builder: &mut tokio::runtime::Builder, work: &Work) -> Result<u64, Fail> {
    builder.enable_all().build()?.block_on(async {
        let mut tasks = Vec::with_capacity(work.children);
        for _ in 0..work.children {
            let mut child = tokio::process::Command::from(std_child(work.role)?).spawn()?;
            let (stdout, stderr) = child
                .stdout
                .take()
                .zip(child.stderr.take())
                .ok_or("the child has no pipes")?;
            tasks.push(tokio::spawn(async move {
                let (ended, stdout, stderr) =
                    tokio::join!(child.wait(), Tail::of_tokio(stdout), Tail::of_tokio(stderr));
                ended?;
                std::io::Result::Ok(stdout?.total() + stderr?.total())
            }));
        }
        let mut bytes = 0;
        for task in tasks {
            bytes += task.await??;
        }
        Ok(bytes)
    })
}

fn async_process_round(work: &Work) -> Result<u64, Fail> {
    let executor = async_executor::LocalExecutor::new();
    async_io::block_on(executor.run(async {
        let mut tasks = Vec::with_capacity(work.children);
        for _ in 0..work.children {
            let mut command = async_process::Command::from(std_child(work.role)?);
            // It does not look at what std was told of them.
            command
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            let mut child = command.spawn()?;
            let (stdout, stderr) = child
                .stdout
                .take()
                .zip(child.stderr.take())
                .ok_or("the child has no pipes")?;
            tasks.push(executor.spawn(async move {
                let streams = future::zip(Tail::of_futures(stdout), Tail::of_futures(stderr));
                let (ended, (stdout, stderr)) = future::zip(child.status(), streams).await;
                ended?;
                std::io::Result::Ok(stdout?.total() + stderr?.total())
            }));
        }
        let mut bytes = 0;
        for task in tasks {
            bytes += task.await?;
        }
        Ok(bytes)
    }))
}
