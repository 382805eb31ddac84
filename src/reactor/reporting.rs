//! What a generation has to tell is put together here: the verdict, the last words, the report.

use super::Reactor;
use super::outbox::Item;
use super::slot::Entry;
use crate::command::Containment;
use crate::kernel::Kernel;
use crate::lifecycle::Notification;
use crate::report::{ContainedBy, DrainReport, EndedBy, Report, Settled, StopReport, Timing};
use crate::text::Projection;
use crate::types::{Errno, Ns, SpawnError, SpawnStep, Stream, Survivor};

impl Entry {
    /// The verdict. Told only after it was put together.
    pub(super) fn drain_told(&self) -> &DrainReport {
        const NOTHING: &DrainReport = &DrainReport::NOTHING;
        self.told
            .as_ref()
            .and_then(|told| told.drain.as_ref())
            .unwrap_or(NOTHING)
    }

    /// How background work was settled. Told only after it was put together.
    pub(super) fn settled_told(&self) -> &Settled {
        const NOTHING: &Settled = &Settled::NOTHING;
        self.told
            .as_ref()
            .and_then(|told| told.settled.as_ref())
            .unwrap_or(NOTHING)
    }

    /// Who counts as background work. Told only after it was put together.
    pub(super) fn survivors_told(&self) -> &[Survivor] {
        self.told.as_ref().map_or(&[], |told| &told.survivors)
    }

    pub(super) fn spawn_error(&self) -> SpawnError {
        self.error
            .clone()
            .unwrap_or_else(|| SpawnError::new(SpawnStep::Exec, Errno::from_raw(libc::EIO)))
    }

    // A process may call itself what it likes: names go out as all text does.

    fn drain_report(&self) -> Option<DrainReport> {
        let mut drain = self.lifecycle.drain_report()?;
        show(
            &self.run.projection,
            drain.holders.iter_mut().map(|holder| &mut holder.comm),
        );
        Some(drain)
    }

    fn settled(&self, now: Ns) -> Option<Settled> {
        let mut settled = self
            .lifecycle
            .settled(now, contained_by(&self.run.plan.contain))?;
        show(
            &self.run.projection,
            settled
                .processes
                .iter_mut()
                .map(|survivor| &mut survivor.comm),
        );
        Some(settled)
    }

    fn stop_report(&self) -> Option<StopReport> {
        let mut stop = self.lifecycle.stop_report()?;
        show(
            &self.run.projection,
            stop.stuck.iter_mut().map(|survivor| &mut survivor.comm),
        );
        Some(stop)
    }
}

impl<K: Kernel> Reactor<K> {
    /// Puts together what is to be told, and queues it.
    pub(super) fn tell(&mut self, key: usize, notification: Notification) {
        let token = self.table[key].generation.token();
        match notification {
            Notification::Started | Notification::SpawnFailed | Notification::Exited => {}
            Notification::Drained { warn } => self.tell_drained(key, warn),
            Notification::BackgroundWait => {
                let entry = &mut self.table[key];
                let mut survivors: Vec<_> = entry
                    .lifecycle
                    .members()
                    .iter()
                    .map(|member| member.who.clone())
                    .collect();
                show(
                    &entry.run.projection,
                    survivors.iter_mut().map(|survivor| &mut survivor.comm),
                );
                entry.told_mut(&mut self.boxes).survivors = survivors;
            }
            Notification::Settled => {
                let now = self.now;
                let entry = &mut self.table[key];
                entry.told_mut(&mut self.boxes).settled = entry.settled(now);
            }
            Notification::Closed => self.tell_closed(key),
        }
        self.tellings += 1;
        self.queue.push_back(Item::Tell(token, notification));
    }

    fn tell_drained(&mut self, key: usize, warn: bool) {
        self.mark_last_words(key);
        let entry = &mut self.table[key];
        entry.told_mut(&mut self.boxes).drain = entry.drain_report();
        if warn {
            warn_of(entry);
        }
    }

    fn tell_closed(&mut self, key: usize) {
        let now = self.now;
        self.mark_last_words(key);
        let entry = &mut self.table[key];
        let (drain, settled) = (entry.drain_report(), entry.settled(now));
        let told = entry.told_mut(&mut self.boxes);
        told.closed = Some(now);
        told.drain = told.drain.take().or(drain);
        told.settled = told.settled.take().or(settled);
        if let Some(watch) = entry
            .channel_mut(entry.run.words_from())
            .and_then(|channel| channel.watch.as_mut())
        {
            watch.finish(&mut self.panic);
        }
        let token = entry.generation.token();
        self.live -= 1;
        self.errand.forget(token);
    }

    /// What stderr has brought so far are the last words; once. They become text when they are
    /// asked for, or right before anything changes of the bytes that they are made of.
    pub(super) fn mark_last_words(&mut self, key: usize) {
        let entry = &mut self.table[key];
        if entry.mark().is_some() {
            return;
        }
        let channel = entry.channel_mut(entry.run.words_from());
        let total = channel
            .as_ref()
            .map_or(0, |channel| channel.captured.total());
        if let Some(watch) = channel.and_then(|channel| channel.watch.as_mut()) {
            watch.begin_late(&mut self.panic);
        }
        entry.told_mut(&mut self.boxes).mark = Some(total);
    }

    /// The whole truth about a generation that is closed; made once, since the words go with it.
    pub(super) fn report(&mut self, key: usize) -> Report {
        let entry = &mut self.table[key];
        let [stderr_tail, late_tail] = entry.take_words();
        let entry = &self.table[key];
        let ran = entry.error.is_none();
        let capabilities = self.kernel.capabilities();
        let closed = entry.closed().unwrap_or(self.now);
        let told = entry.told.as_deref();
        Report {
            id: None,
            generation: entry.generation.number(),
            session: None,
            name: None,
            command: entry.run.command_line().to_vec(),
            pid: ran.then_some(entry.pid),
            error: entry.error.clone(),
            outcome: entry.lifecycle.outcome().filter(|_| ran),
            exit: entry.lifecycle.exit().filter(|_| ran),
            stop: entry.stop_report(),
            drain: told.and_then(|told| told.drain.clone()).filter(|_| ran),
            stdout: entry.stream_report(Stream::Stdout).filter(|_| ran),
            stderr: entry.stream_report(Stream::Stderr).filter(|_| ran),
            stdin: entry.stdin_report(),
            stderr_tail,
            late_tail,
            redacted: entry.run.projection.redacts(),
            background: told.and_then(|told| told.settled.clone()).filter(|_| ran),
            timing: ran.then(|| Timing {
                started_at: entry.started_at,
                ran: entry.exited().map(|at| at.since(entry.born).to_duration()),
                total: closed.since(entry.born).to_duration(),
            }),
            usage: told.and_then(|told| told.usage).filter(|_| ran),
            backend: capabilities.backend,
            exit_source: capabilities.exit,
        }
    }
}

fn show<'a>(projection: &Projection, names: impl Iterator<Item = &'a mut String>) {
    names.for_each(|name| *name = projection.text(name));
}

fn contained_by(containment: &Containment) -> ContainedBy {
    match containment {
        Containment::Group => ContainedBy::Group,
        Containment::Cookie => ContainedBy::Cookie,
        Containment::Cgroup(_) => ContainedBy::Cgroup,
    }
}

/// The one warning: a bound has passed with a pipe still held.
fn warn_of(entry: &Entry) {
    let Some(drain) = entry.told.as_ref().and_then(|told| told.drain.as_ref()) else {
        return;
    };
    let open = |stream: Stream| entry.kept(stream).is_some() && drain.open.contains(&stream);
    let what = match (open(Stream::Stdout), open(Stream::Stderr)) {
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
        pid = entry.pid,
        waited_ms = u64::try_from(drain.waited.as_millis()).unwrap_or(u64::MAX),
        bytes,
        ended_by = drain.ended_by.map_or("", EndedBy::name),
        holders = holders.join(", "),
        holders_complete = drain.holders_complete,
        "timed out waiting for {what} to drain"
    );
}
