//! Bringing a generation in.

use super::slot::{Entry, Feed, Slot, Sweep};
use super::{Generation, Reactor};
use crate::command::shared::Run;
use crate::command::{Command, Containment};
use crate::kernel::{Kernel, Spawned, Until, WaitError};
use crate::lifecycle::{Lifecycle, State};
use crate::types::{Errno, Ns, SpawnError, SpawnStep, Stream, Token, TokenKind, limits};
use std::collections::VecDeque;
use std::num::NonZero;
use std::sync::Arc;

/// Places in the queue of events for one generation: its life-cycle events, and an item for each
/// stream.
const PLACES: usize = limits::EVENTS + 2;

impl<K: Kernel> Reactor<K> {
    /// Starts a command and does not wait for exec: the process exists when this returns, its
    /// thread has stood still for microseconds. `Started` or `SpawnFailed` follows as an event.
    ///
    /// # Errors
    ///
    /// Nothing is left of the attempt. Out of descriptors, memory or processes, a NUL byte, an
    /// empty or missing program.
    pub fn start(&mut self, command: &Command) -> Result<Generation, SpawnError> {
        self.reclaim();
        self.reserve();
        let slot = u32::try_from(self.table.vacant_key())
            .ok()
            .filter(|slot| *slot < Token::SLOTS);
        let slot = slot
            .ok_or_else(|| SpawnError::new(SpawnStep::Register, Errno::from_raw(libc::EMFILE)))?;
        self.sequence = self.sequence.wrapping_add(1).max(1);
        let generation = Generation {
            sequence: self.sequence,
            slot,
            tag: self.tag,
        };
        // Before the child exists: it may have ended by the time this thread is let run again.
        self.now = self.kernel.now();
        let run = command.run(&self.projection, self.kernel.capabilities().group_signal);
        let born = match self.kernel.spawn(command.plan(), generation.token()) {
            Ok(born) => born,
            Err(error) => {
                return Err(error.redacted_with(|text| run.projection.text(text)));
            }
        };
        let raw = [
            born.stdin.is_some(),
            born.stdout.is_some(),
            born.stderr.is_some(),
        ];
        let entry = self.entry(command, run, generation, &born);
        if raw.contains(&true) {
            self.raw.insert(
                generation.token().bits(),
                [born.stdin, born.stdout, born.stderr],
            );
        }
        let feeds = entry.feed.is_some();
        let key = self.table.insert(entry);
        self.live += 1;
        self.stats.started += 1;
        let effects = self.table[key].lifecycle.begin(self.now);
        for effect in effects {
            self.carry(key, effect);
        }
        self.follow(key);
        if feeds {
            self.want_write(key);
        }
        self.fold();
        Ok(generation)
    }

    /// Starts a command and waits until it executes its program (or cannot).
    ///
    /// # Errors
    ///
    /// As [`Reactor::start`], and every step between clone and exec: directory, descriptors, the
    /// program itself. Nothing is left.
    pub fn spawn(&mut self, command: &Command) -> Result<Generation, SpawnError> {
        let generation = self.start(command)?;
        let token = generation.token();
        loop {
            let Some(key) = self.find(token) else {
                return Ok(generation);
            };
            self.ask_outcome(key);
            match self.table[key].lifecycle.state() {
                State::Spawning => {}
                State::Failing | State::Failed => break,
                State::Running
                | State::Exited
                | State::Drained
                | State::DrainTimedOut
                | State::Unfinished
                | State::Gone => {
                    return Ok(generation);
                }
            }
            if let Err(error) = self
                .kernel
                .wait(Until::Outcome(token, None), &mut self.notices)
            {
                return Err(wait_failed(error));
            }
        }
        self.bury(token)
    }

    /// Collects a child that could not execute its program, and takes back what was to be told of
    /// it.
    fn bury(&mut self, token: Token) -> Result<Generation, SpawnError> {
        let mut error = None;
        while let Some(key) = self.find(token) {
            error = self.table[key].error.clone().or(error);
            if self.table[key].lifecycle.is_closed() {
                self.queue
                    .retain(|item| item.token().with(TokenKind::Spawn) != token);
                self.remove(key);
                break;
            }
            let soon = self.kernel.now().after(Ns::from(limits::SPAWN_POLL[0]));
            if self.look(Until::At(soon)).is_err() {
                break;
            }
            if let Some(key) = self.find(token) {
                self.ask_exit(key);
            }
        }
        Err(error.unwrap_or_else(|| SpawnError::new(SpawnStep::Exec, Errno::from_raw(libc::EIO))))
    }

    /// Room in every list for one more generation, so that no turn has to make it.
    fn reserve(&mut self) {
        let one_more = self.table.len() + 1;
        let room = |len: usize, wanted: usize| wanted.saturating_sub(len);
        self.table.reserve(1);
        self.queue
            .reserve(room(self.queue.len(), one_more * PLACES));
        self.ready.reserve(room(self.ready.len(), one_more * 2));
        self.sweeps.reserve(room(self.sweeps.len(), one_more));
        self.writers.reserve(room(self.writers.len(), one_more));
    }

    fn entry(
        &mut self,
        command: &Command,
        run: Arc<Run>,
        generation: Generation,
        born: &Spawned<K::Raw>,
    ) -> Entry {
        let captured = Stream::ALL.map(|stream| run.captures(stream));
        let feed = command.feeds_stdin().then(|| {
            let queue: VecDeque<_> = command.input.iter().cloned().collect();
            Box::new(Feed {
                last: command.input.is_some(),
                queue,
                begun: 0,
                written: 0,
                end: None,
                error: None,
            })
        });
        let mut entry = Entry {
            generation,
            lifecycle: Lifecycle::sharing(Arc::clone(&run.config), captured, feed.is_some())
                .led_by(born.pid)
                .looking_outside(run.plan.contain == Containment::Cookie),
            pid: born.pid,
            run,
            born: self.now,
            started_at: born.started_at,
            streams: captured.map(|is| if is { Slot::Quiet } else { Slot::Absent }),
            feed,
            capacities: born.capacities.map(|had| had.and_then(NonZero::new)),
            sweep: Sweep::None,
            sweep_queued: false,
            watched: 0,
            error: None,
            told: None,
            last_event_waits: false,
        };
        if entry.run.line_function.is_some() {
            // Its watch has to know when the last words are over.
            entry.heard(entry.run.words_from(), &mut self.boxes);
        }
        entry
    }
}

fn wait_failed(error: WaitError) -> SpawnError {
    let errno = match error {
        WaitError::Failed(errno) => errno,
        WaitError::Forked => Errno::from_raw(libc::EPERM),
    };
    SpawnError::new(SpawnStep::Exec, errno).because("the loop failed while it waited for exec")
}
