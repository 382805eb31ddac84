//! What a generation has to tell: the verdict, settling, and the report.

use super::Reactor;
use super::entry::Entry;
use super::line_filter::DeferredPanic;
use super::outbox::Item;
use crate::command::Containment;
use crate::kernel::Kernel;
use crate::lifecycle::Notification;
use crate::report::{ContainedBy, DrainReport, EndedBy, Report, Settled, StopReport, Timing};
use crate::text::Projection;
use crate::types::{Errno, Ns, SpawnError, SpawnStep, Stream, Survivor};

/// What events lend. Each is put together before its event is queued.
impl Entry {
    pub(super) fn notified_drain(&self) -> &DrainReport {
        const NOTHING: &DrainReport = &DrainReport::NOTHING;
        self.exit_state
            .as_ref()
            .and_then(|state| state.drain.as_ref())
            .unwrap_or(NOTHING)
    }

    pub(super) fn notified_settled(&self) -> &Settled {
        const NOTHING: &Settled = &Settled::NOTHING;
        self.exit_state
            .as_ref()
            .and_then(|state| state.settled.as_ref())
            .unwrap_or(NOTHING)
    }

    pub(super) fn notified_survivors(&self) -> &[Survivor] {
        self.exit_state
            .as_ref()
            .map_or(&[], |state| &state.survivors)
    }

    pub(super) fn spawn_error(&self) -> SpawnError {
        self.error
            .clone()
            .unwrap_or_else(|| SpawnError::new(SpawnStep::Exec, Errno::from_raw(libc::EIO)))
    }
}

/// What the machines know, with the names of processes as safe text: a process may call itself what
/// it likes.
impl Entry {
    fn drain_report(&self) -> Option<DrainReport> {
        let mut drain = self.lifecycle.drain_report()?;
        let names = drain.holders.iter_mut().map(|holder| &mut holder.comm);
        project(&self.command.projection, names);
        Some(drain)
    }

    fn settled(&self, now: Ns) -> Option<Settled> {
        let contained_by = contained_by(&self.command.containment);
        let mut settled = self.lifecycle.settled(now, contained_by)?;
        project_survivors(&self.command.projection, &mut settled.processes);
        Some(settled)
    }

    fn stop_report(&self) -> Option<StopReport> {
        let mut stop = self.lifecycle.stop_report()?;
        project_survivors(&self.command.projection, &mut stop.stuck);
        Some(stop)
    }

    fn survivors(&self) -> Vec<Survivor> {
        let members = self.lifecycle.members().iter();
        let mut survivors: Vec<_> = members.map(|member| member.who.clone()).collect();
        project_survivors(&self.command.projection, &mut survivors);
        survivors
    }
}

impl<K: Kernel> Reactor<K> {
    /// Puts together what is to be told, and queues the event.
    pub(super) fn notify(&mut self, key: usize, notification: Notification) {
        let now = self.clock.now;
        match notification {
            Notification::Started | Notification::SpawnFailed | Notification::Exited => {}
            Notification::Drained { warn } => self.prepare_drained(key, warn),
            Notification::BackgroundWait => {
                let entry = &mut self.table[key];
                let survivors = entry.survivors();
                entry.exit_state_mut(&mut self.memory.boxes).survivors = survivors;
            }
            Notification::Settled => {
                let entry = &mut self.table[key];
                let settled = entry.settled(now);
                entry.exit_state_mut(&mut self.memory.boxes).settled = settled;
            }
            Notification::Closed => self.prepare_closed(key),
        }
        let token = self.table[key].generation.token();
        self.outbox.lifecycle_events += 1;
        self.outbox
            .queue
            .push_back(Item::Lifecycle(token, notification));
    }

    fn prepare_drained(&mut self, key: usize, warn: bool) {
        self.mark_last_words(key);
        let entry = &mut self.table[key];
        let drain = entry.drain_report();
        entry.exit_state_mut(&mut self.memory.boxes).drain = drain;
        if warn {
            let entry = &self.table[key];
            DeferredPanic::guard(&mut self.outbox.panic, || warn_of_held_pipe(entry));
        }
    }

    fn prepare_closed(&mut self, key: usize) {
        let now = self.clock.now;
        self.mark_last_words(key);
        let entry = &mut self.table[key];
        let (drain, settled) = (entry.drain_report(), entry.settled(now));
        let state = entry.exit_state_mut(&mut self.memory.boxes);
        state.closed = Some(now);
        state.drain = state.drain.take().or(drain);
        state.settled = state.settled.take().or(settled);
        if let Some(filter) = entry
            .channel_mut(entry.command.last_words_stream())
            .and_then(|channel| channel.filter.as_mut())
        {
            filter.finish(&mut self.outbox.panic);
        }
        let token = entry.generation.token();
        self.stats.live -= 1;
        self.scans.forget(token);
    }

    /// The report of a generation that is closed. The last words are moved into it, so it is made
    /// once.
    pub(super) fn report(&mut self, key: usize) -> Report {
        let entry = &mut self.table[key];
        let [stderr_tail, late_tail] = entry.take_words();
        let entry = &self.table[key];
        let ran = entry.error.is_none();
        let capabilities = self.kernel.capabilities();
        let closed = entry.closed().unwrap_or(self.clock.now);
        let state = entry.exit_state.as_deref();
        let since_spawn = |at: Ns| at.since(entry.birth.at).to_duration();
        Report {
            id: None,
            generation: entry.generation.number(),
            session: None,
            name: None,
            command: entry.command.command_line().to_vec(),
            pid: ran.then_some(entry.birth.pid),
            error: entry.error.clone(),
            outcome: entry.lifecycle.outcome().filter(|_| ran),
            exit: entry.lifecycle.exit().filter(|_| ran),
            stop: entry.stop_report(),
            drain: state.and_then(|state| state.drain.clone()).filter(|_| ran),
            stdout: entry.stream_report(Stream::Stdout).filter(|_| ran),
            stderr: entry.stream_report(Stream::Stderr).filter(|_| ran),
            stdin: entry.stdin.as_ref().map(|stdin| stdin.report()),
            stderr_tail,
            late_tail,
            redacted: entry.command.projection.redacts(),
            background: state
                .and_then(|state| state.settled.clone())
                .filter(|_| ran),
            timing: ran.then(|| Timing {
                started_at: entry.birth.started_at,
                ran: entry.exited().map(since_spawn),
                total: since_spawn(closed),
            }),
            usage: state.and_then(|state| state.usage).filter(|_| ran),
            backend: capabilities.backend,
            exit_source: capabilities.exit,
        }
    }
}

fn project<'a>(projection: &Projection, names: impl Iterator<Item = &'a mut String>) {
    names.for_each(|name| *name = projection.text(name));
}

fn project_survivors(projection: &Projection, survivors: &mut [Survivor]) {
    let names = survivors.iter_mut().map(|survivor| &mut survivor.comm);
    project(projection, names);
}

fn contained_by(containment: &Containment) -> ContainedBy {
    match containment {
        Containment::Group => ContainedBy::Group,
        Containment::Cookie => ContainedBy::Cookie,
        Containment::Cgroup(_) => ContainedBy::Cgroup,
    }
}

/// The one warning of the library: a bound of the drain has passed with a pipe still held.
fn warn_of_held_pipe(entry: &Entry) {
    let drain = entry.notified_drain();
    let is_open = |stream: Stream| entry.captured(stream).is_some() && drain.open.contains(&stream);
    let what = match (is_open(Stream::Stdout), is_open(Stream::Stderr)) {
        (true, true) => "stdout and stderr",
        (true, false) => "stdout",
        (false, true) => "stderr",
        (false, false) => return,
    };
    let bytes: u64 = entry
        .channels()
        .map(|channel| channel.captured.total())
        .sum();
    let holders: Vec<String> = drain
        .holders
        .iter()
        .map(|h| format!("{} ({})", h.comm, h.pid))
        .collect();
    tracing::warn!(
        generation = entry.generation.number(),
        pid = entry.birth.pid,
        waited_ms = u64::try_from(drain.waited.as_millis()).unwrap_or(u64::MAX),
        bytes,
        ended_by = drain.ended_by.map_or("", EndedBy::name),
        holders = holders.join(", "),
        holders_complete = drain.holders_complete,
        "timed out waiting for {what} to drain"
    );
}
