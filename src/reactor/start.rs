//! Starting a command: a spawn, an entry in the table, and the machines' first effects.

use super::channel::StreamSlot;
use super::control::RawStdio;
use super::entry::{ClosedEvent, Entry, ReadOut, SpawnFacts};
use super::stdin::FedStdin;
use super::{Generation, Reactor};
use crate::command::shared::SharedCommand;
use crate::command::{Command, Containment};
use crate::kernel::{Kernel, Spawned, Until, WaitError};
use crate::lifecycle::{Lifecycle, State};
use crate::types::{Errno, Ns, SpawnError, SpawnStep, Stream, Token, limits};
use std::num::NonZero;
use std::sync::Arc;

impl<K: Kernel> Reactor<K> {
    /// Starts a command and does not wait for exec: the process exists when this returns, and the
    /// calling thread has stood still for microseconds. [`Event::Started`](crate::Event::Started)
    /// or [`Event::SpawnFailed`](crate::Event::SpawnFailed) follows.
    ///
    /// | what goes wrong | how it is told |
    /// | --- | --- |
    /// | a NUL byte, an empty command, a program that is not in PATH, a directory for the cgroup that cannot be had | `Err` |
    /// | too few descriptors, processes or memory; a poll set that cannot watch the child | `Err` |
    /// | the working directory, the user, a resource limit, the terminal, the descriptors | `SpawnFailed` |
    /// | exec: permission, format, a missing interpreter, arguments that are too large | `SpawnFailed` |
    /// | the child is killed before exec | `Exited`, as for any other end |
    ///
    /// After the call take events and ask for [`Reactor::next_deadline`] again before sleeping in a
    /// loop of your own.
    ///
    /// # Errors
    ///
    /// [`SpawnError`] names the step, the path and the errno; texts in it are redacted as the
    /// command's projection says. Nothing is left of the attempt: no process, descriptor or table
    /// entry.
    pub fn start(&mut self, command: &Command) -> Result<Generation, SpawnError> {
        self.remove_closed();
        self.reserve();
        let generation = self
            .table
            .next_generation()
            .ok_or_else(|| SpawnError::new(SpawnStep::Register, Errno::from_raw(libc::EMFILE)))?;
        // Before the child exists: it may have ended by the time this thread runs again.
        self.clock.now = self.kernel.now();
        let group_signal = self.kernel.capabilities().group_signal;
        let shared = command.shared(&self.settings.projection, group_signal);
        let spawned = match self.kernel.spawn(command.plan(), generation.token()) {
            Ok(spawned) => spawned,
            Err(error) => return Err(error.redacted_with(|text| shared.projection.text(text))),
        };
        let entry = self.new_entry(command, shared, generation, &spawned);
        let Spawned {
            stdin,
            stdout,
            stderr,
            ..
        } = spawned;
        self.host_ends.insert(
            generation,
            RawStdio {
                stdin,
                stdout,
                stderr,
            },
        );
        let feeds_stdin = entry.stdin.is_some();
        let key = self.table.insert(entry);
        self.stats.live += 1;
        self.stats.started += 1;
        let effects = self.table[key].lifecycle.begin(self.clock.now);
        self.perform(key, effects);
        self.run_pending();
        if feeds_stdin {
            self.queue_stdin_write(key);
        }
        self.update_deadline_fd();
        // Last, when the child has its owner: a subscriber may panic.
        tracing::debug!(
            generation = generation.number(),
            pid = self.table[key].birth.pid,
            "started a child"
        );
        Ok(generation)
    }

    /// Starts a command and waits until it executes its program, or cannot. The thread stands still
    /// meanwhile, and no other generation is served.
    ///
    /// # Errors
    ///
    /// As [`Reactor::start`]; what `start` would tell as `SpawnFailed` is an error as well. Nothing
    /// is left, and no event follows.
    pub fn spawn(&mut self, command: &Command) -> Result<Generation, SpawnError> {
        let generation = self.start(command)?;
        let token = generation.token();
        loop {
            let Some(key) = self.table.lookup(token) else {
                return Ok(generation);
            };
            self.check_outcome(key);
            match self.table[key].lifecycle.state() {
                State::Spawning => {}
                State::Failing | State::Failed => return Err(self.reap_failed_spawn(token)),
                State::Running
                | State::Exited
                | State::Drained
                | State::DrainTimedOut
                | State::Unfinished
                | State::Detached => return Ok(generation),
            }
            self.kernel
                .wait(Until::Outcome(token, None), &mut self.notices)
                .map_err(wait_failed_before_exec)?;
        }
    }

    /// Collects a child that could not execute its program, and takes back its events.
    fn reap_failed_spawn(&mut self, token: Token) -> SpawnError {
        let mut error = None;
        while let Some(key) = self.table.lookup(token) {
            error = self.table[key].error.clone().or(error);
            if self.table[key].lifecycle.is_closed() {
                self.outbox.forget(token);
                self.remove(key);
                break;
            }
            let soon = self.kernel.now().after(Ns::from(limits::SPAWN_POLL[0]));
            if self.wait_and_serve(Until::At(soon)).is_err() {
                break;
            }
            if let Some(key) = self.table.lookup(token) {
                self.check_exit(key);
            }
        }
        error.unwrap_or_else(|| SpawnError::new(SpawnStep::Exec, Errno::from_raw(libc::EIO)))
    }

    /// Makes room in every list for one more generation, so that no turn has to.
    fn reserve(&mut self) {
        let generations = self.table.len() + 1;
        self.table.reserve(1);
        self.outbox.reserve(generations);
        self.io.reserve(generations);
    }

    fn new_entry(
        &mut self,
        command: &Command,
        shared: Arc<SharedCommand>,
        generation: Generation,
        spawned: &Spawned<K::Raw>,
    ) -> Entry {
        let captured = Stream::ALL.map(|stream| shared.captures(stream));
        let stdin = command
            .feeds_stdin()
            .then(|| Box::new(FedStdin::new(command.input.clone())));
        let config = Arc::clone(&shared.config);
        let mut entry = Entry {
            generation,
            lifecycle: Lifecycle::with_config(config, captured, stdin.is_some())
                .with_leader(spawned.pid)
                .with_containment(shared.containment == Containment::Cookie),
            command: shared,
            birth: SpawnFacts {
                pid: spawned.pid,
                at: self.clock.now,
                started_at: spawned.started_at,
                capacities: spawned.capacities.map(|bytes| bytes.and_then(NonZero::new)),
            },
            streams: captured.map(|is_captured| {
                if is_captured {
                    StreamSlot::Unallocated
                } else {
                    StreamSlot::Absent
                }
            }),
            stdin,
            read_out: ReadOut::Idle,
            watched: 0,
            error: None,
            exit_state: None,
            closed_event: ClosedEvent::InOrder,
        };
        if entry.command.line_function.is_some() {
            // The line filter has to learn when the last words are over.
            let stream = entry.command.last_words_stream();
            entry.activate(stream, &mut self.memory.boxes);
        }
        entry
    }
}

fn wait_failed_before_exec(error: WaitError) -> SpawnError {
    let errno = match error {
        WaitError::Failed(errno) => errno,
        WaitError::Forked => Errno::from_raw(libc::EPERM),
    };
    SpawnError::new(SpawnStep::Exec, errno).because("the loop failed while it waited for exec")
}
