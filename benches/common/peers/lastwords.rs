//! lastwords itself, as a host without a loop of its own drives it.

use super::{Done, Sample, Work, stamp_of};
use crate::common::child::{Gate, Role};
use crate::common::{Fail, now};
use lastwords::{
    Backend, BackendChoice, BackgroundPolicy, Command, DrainPolicy, Event, Generation, Reactor,
    Stdin, Stream,
};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// The idle bound where a pipe is held by somebody else: in the other scenarios it is never
/// reached.
const IDLE: Duration = Duration::from_millis(100);

/// io_uring can be had here.
pub(crate) fn has_uring() -> bool {
    let built = Reactor::builder().backend(BackendChoice::Uring).build();
    built.is_ok_and(|reactor| reactor.capabilities().backend == Backend::Uring)
}

/// Free bytes that are kept from round to round, as the other peers keep their rings.
const POOL: usize = 1 << 30;

/// A reactor that lives for all rounds, once it was needed.
#[derive(Debug)]
pub(super) struct Host {
    backend: BackendChoice,
    reactor: Option<Reactor>,
}

impl Host {
    pub(super) fn new(backend: BackendChoice) -> Host {
        Host {
            backend,
            reactor: None,
        }
    }

    pub(super) fn round(&mut self, work: &Work) -> Result<Done, Fail> {
        let reactor = match &mut self.reactor {
            Some(reactor) => reactor,
            none => none.insert(
                Reactor::builder()
                    .backend(self.backend)
                    .pool_bytes(POOL)
                    .build()?,
            ),
        };
        round(reactor, work)
    }
}

fn round(reactor: &mut Reactor, work: &Work) -> Result<Done, Fail> {
    let before = reactor.stats().bytes;
    let gate = Gate::new()?;
    let mut noisy = Vec::with_capacity(work.noisy);
    for _ in 0..work.noisy {
        noisy.push(reactor.start(&command(Role::Noisy, Some(gate.stdin()?))?)?);
    }
    drop(gate);
    let mut done = Done::default();
    let command = command(work.role, None)?;
    for _ in 0..work.count {
        let generation = reactor.start(&command)?;
        done.samples.push(watch(reactor, generation)?);
    }
    for generation in &noisy {
        reactor.kill(*generation);
    }
    while reactor.wait_event(None)?.is_some() {}
    done.bytes = reactor.stats().bytes - before;
    Ok(done)
}

fn command(role: Role, gate: Option<OwnedFd>) -> Result<Command, Fail> {
    let mut command = role.own_command()?;
    command.stdin(gate.map_or(Stdin::Null, Stdin::Fd));
    if matches!(role, Role::Leaver(_)) {
        command
            .drain(DrainPolicy::default().idle(IDLE))
            .background(BackgroundPolicy::disabled());
    }
    Ok(command)
}

/// Turns until the generation is closed.
fn watch(reactor: &mut Reactor, ours: Generation) -> Result<Sample, Fail> {
    let (mut status, mut verdict, mut stamp) = (0, 0, None);
    while let Some(event) = reactor.wait_event(None)? {
        match event {
            Event::Exited { generation, .. } if generation == ours => status = now(),
            Event::Drained { generation, .. } if generation == ours => {
                verdict = now();
                let kept = reactor.kept(ours, Stream::Stdout).map(|kept| kept.to_vec());
                stamp = kept.and_then(|bytes| Some(u64::from_ne_bytes(bytes.try_into().ok()?)));
            }
            Event::SpawnFailed { error, .. } => return Err(error.into()),
            Event::Closed { generation, .. } if generation == ours => break,
            _ => {}
        }
    }
    let stamp = stamp_of(stamp)?;
    Ok(Sample {
        status: status.saturating_sub(stamp),
        verdict: verdict.saturating_sub(stamp),
    })
}
