//! What a generation has to tell is put together here: the verdict, the last words, the report.

use super::Reactor;
use super::entry::{Entry, Told};
use super::queue::Item;
use crate::capture::Projection;
use crate::error::{Errno, SpawnError, Step};
use crate::kernel::Kernel;
use crate::kernel::plan::Containment;
use crate::lifecycle::Happening;
use crate::lifecycle::report::{ContainedBy, DrainReport, EndedBy, Report, Settled, StopReport, Timing};
use crate::time::Ns;
use crate::words::Stream;

impl Told {
    /// The verdict. Told only after it was put together.
    pub(super) fn drain_told(&self) -> &DrainReport {
        const NOTHING: &DrainReport = &DrainReport::NOTHING;
        self.drain.as_ref().unwrap_or(NOTHING)
    }

    /// How background work was settled. Told only after it was put together.
    pub(super) fn settled_told(&self) -> &Settled {
        const NOTHING: &Settled = &Settled::NOTHING;
        self.settled.as_ref().unwrap_or(NOTHING)
    }
}

impl Entry {
    pub(super) fn spawn_error(&self) -> SpawnError {
        self.error.clone().unwrap_or_else(|| SpawnError::new(Step::Exec, Errno::from_raw(libc::EIO)))
    }

    // A process may call itself what it likes: names go out as all text does.

    fn drain_report(&self) -> Option<DrainReport> {
        let mut drain = self.life.drain_report()?;
        show(&self.projection, drain.holders.iter_mut().map(|holder| &mut holder.comm));
        Some(drain)
    }

    fn settled(&self, now: Ns) -> Option<Settled> {
        let mut settled = self.life.settled(now, contained_by(&self.plan.contain))?;
        show(&self.projection, settled.processes.iter_mut().map(|survivor| &mut survivor.comm));
        Some(settled)
    }

    fn stop_report(&self) -> Option<StopReport> {
        let mut stop = self.life.stop_report()?;
        show(&self.projection, stop.stuck.iter_mut().map(|survivor| &mut survivor.comm));
        Some(stop)
    }
}

impl<K: Kernel> Reactor<K> {
    /// Puts together what is to be told, and queues it.
    pub(super) fn tell(&mut self, key: usize, happening: Happening) {
        let token = self.table[key].generation.token();
        match happening {
            Happening::Started | Happening::SpawnFailed | Happening::Exited => {}
            Happening::Drained { warn } => self.tell_drained(key, warn),
            Happening::BackgroundWait => {
                let entry = &mut self.table[key];
                entry.told.survivors = entry.life.members().iter().map(|member| member.who.clone()).collect();
                show(&entry.projection, entry.told.survivors.iter_mut().map(|survivor| &mut survivor.comm));
            }
            Happening::Settled => {
                let now = self.now;
                let entry = &mut self.table[key];
                entry.told.settled = entry.settled(now);
            }
            Happening::Closed => self.tell_closed(key),
        }
        self.tellings += 1;
        self.queue.push_back(Item::Tell(token, happening));
    }

    fn tell_drained(&mut self, key: usize, warn: bool) {
        self.mark_last_words(key);
        let entry = &mut self.table[key];
        entry.told.drain = entry.drain_report();
        if warn {
            warn_of(entry);
        }
    }

    fn tell_closed(&mut self, key: usize) {
        let now = self.now;
        self.mark_last_words(key);
        let entry = &mut self.table[key];
        entry.closed = Some(now);
        if entry.told.drain.is_none() {
            entry.told.drain = entry.drain_report();
        }
        if entry.told.settled.is_none() {
            entry.told.settled = entry.settled(now);
        }
        let lines = entry.tail_lines[1] as usize;
        if let (Some(mark), Some(channel)) = (entry.mark, entry.streams[entry.words_from.index()].as_deref_mut()) {
            entry.told.late_words = match &mut channel.watch {
                Some(watch) => watch.late_words(&mut self.panic),
                None => entry.projection.last_lines(&channel.captured, mark, channel.captured.total(), lines),
            };
        }
        let token = entry.generation.token();
        self.live -= 1;
        self.errand.forget(token);
    }

    /// What stderr has brought so far are the last words; once. They are put together here, before anything that comes later can
    /// push them out.
    pub(super) fn mark_last_words(&mut self, key: usize) {
        let entry = &mut self.table[key];
        if entry.told.last_words.is_some() {
            return;
        }
        let lines = entry.tail_lines[0] as usize;
        let Some(channel) = entry.streams[entry.words_from.index()].as_deref_mut() else {
            entry.told.last_words = Some(Vec::new());
            return;
        };
        let total = channel.captured.total();
        entry.told.last_words = Some(match &mut channel.watch {
            Some(watch) => watch.last_words(&mut self.panic),
            None => entry.projection.last_lines(&channel.captured, 0, total, lines),
        });
        entry.mark = Some(total);
    }

    /// The whole truth about a generation that is closed.
    pub(super) fn report(&self, key: usize) -> Report {
        let entry = &self.table[key];
        let ran = entry.error.is_none();
        let caps = self.kernel.caps();
        let closed = entry.closed.unwrap_or(self.now);
        Report {
            id: None,
            generation: entry.generation.number(),
            session: None,
            name: None,
            command: entry.projection.command_line(entry.plan.words()),
            pid: ran.then_some(entry.pid),
            error: entry.error.clone(),
            outcome: entry.life.outcome().filter(|_| ran),
            exit: entry.life.exit().filter(|_| ran).map(|info| info.exit),
            stop: entry.stop_report(),
            drain: entry.told.drain.clone().filter(|_| ran),
            stdout: entry.stream_report(Stream::Stdout).filter(|_| ran),
            stderr: entry.stream_report(Stream::Stderr).filter(|_| ran),
            stdin: entry.stdin_report(),
            stderr_tail: entry.told.last_words.clone().unwrap_or_default(),
            late_tail: entry.told.late_words.clone(),
            redacted: entry.projection.redacts(),
            background: entry.told.settled.clone().filter(|_| ran),
            timing: ran.then(|| Timing {
                started_at: entry.started_at,
                ran: entry.exited.map(|at| at.since(entry.born).to_duration()),
                total: closed.since(entry.born).to_duration(),
            }),
            usage: entry.life.exit().filter(|_| ran).and_then(|info| info.usage),
            backend: caps.backend,
            exit_source: caps.exit,
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
    let Some(drain) = &entry.told.drain else { return };
    let open = |stream: Stream| entry.channel(stream).is_some() && drain.open.contains(&stream);
    let what = match (open(Stream::Stdout), open(Stream::Stderr)) {
        (true, true) => "stdout and stderr",
        (true, false) => "stdout",
        (false, true) => "stderr",
        (false, false) => return,
    };
    let bytes: u64 = entry.streams.iter().flatten().map(|channel| channel.captured.total()).sum();
    let holders: Vec<String> = drain.holders.iter().map(|h| format!("{} ({})", h.comm, h.pid)).collect();
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
