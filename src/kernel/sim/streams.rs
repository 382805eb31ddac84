//! Spawns, reads, writes and ends of streams.

use super::containment::Contained;
use super::fault::{Call, Fault, Planned};
use super::log::{Happened, Violation};
use super::pipe::{Flow, HostEnd, Moved, Pipe, PipeId};
use super::process::{Descriptor, HOST};
use super::repro::Started;
use super::script::{PLAY, Script};
use super::table::{Entry, ExitSeen, Known};
use super::world::Recipe;
use super::{Sim, SimEnd, fails_in_host};
use crate::command::Transport;
use crate::command::plan::{OutputPlan, Plan, StdinPlan};
use crate::kernel::{Batch, Notice, ReadOp, ReadResult, Released, Spawned, Wrote};
use crate::types::{Errno, Ns, Release, SpawnError, SpawnStep, Stream, Token, TokenKind, limits};
use std::borrow::Cow;
use std::ffi::OsStr;
use std::time::{Duration, SystemTime};

/// Whether a fault waits for a command with a containment that it can befall.
fn is_of_containment(planned: &Planned) -> bool {
    matches!(
        planned.fault,
        Fault::Spawn(SpawnStep::Cgroup | SpawnStep::Cookie, _)
    )
}

impl Sim {
    pub(super) fn do_spawn(
        &mut self,
        plan: &Plan,
        generation: Token,
    ) -> Result<Spawned<SimEnd>, SpawnError> {
        self.tick();
        let mut exec_at = self.world.now.after(self.options.exec_time);
        let mut exec_error = None;
        while let Some((fault, _)) =
            self.take_fault(Call::Spawn, Some(generation), |p| !is_of_containment(p))
        {
            match fault {
                Fault::SlowExec(time) => exec_at = self.world.now.after(time),
                Fault::Spawn(step, errno) if fails_in_host(step) => {
                    return Err(SpawnError::new(step, errno));
                }
                Fault::Spawn(step, errno) => {
                    exec_error = Some(SpawnError::new(step, errno).at(&plan.program))
                }
                _ => {}
            }
        }
        let script = script_of(plan)?;
        if self.table.in_use(generation) {
            self.world
                .violations
                .push(Violation::SlotInUse(generation.slot().0));
            return Err(SpawnError::new(
                SpawnStep::Register,
                Errno::from_raw(libc::EEXIST),
            ));
        }
        let contained = self.make_containment(&plan.contain, generation)?;
        let stdin = self.stdin_pipe(&plan.stdin, generation);
        let stdout = self.output_pipe(&plan.stdout, generation, Stream::Stdout);
        let stderr = self.output_pipe(&plan.stderr, generation, Stream::Stderr);
        let fd = |pipe: Option<(PipeId, bool)>| {
            pipe.map_or(Descriptor::Null, |(id, _)| Descriptor::Pipe(id))
        };
        let merged = if matches!(plan.stderr, OutputPlan::ToStdout) {
            stdout
        } else {
            stderr
        };
        let recipe = Recipe {
            comm: plan
                .program
                .to_string_lossy()
                .rsplit('/')
                .next()
                .unwrap_or_default()
                .to_owned(),
            acts: script.acts().clone(),
            fds: [fd(stdin), fd(stdout), fd(merged)],
            ignore: plan.ignore.clone(),
            block: plan.block.clone(),
            mark: contained.mark(),
            exec_at,
            exec_error,
            exit_watch: Some(generation.with(TokenKind::Exit)),
        };
        if self.options.log {
            self.started.push(Started {
                at: self.world.now,
                pid: 0,
                script: text_of(plan).into_owned(),
            });
        }
        let started_at = SystemTime::UNIX_EPOCH
            + Duration::from_secs(1_700_000_000)
            + self.world.now.to_duration();
        self.reap_strangers();
        let has_children = self.world.processes().any(|p| p.ppid == HOST);
        let pid = self.world.spawn(recipe);
        if let Some(started) = self.started.last_mut() {
            started.pid = pid;
        }
        let leader = Known {
            pid,
            birth: self.world.process(pid).map_or(0, |p| p.birth),
        };
        self.orphan_owner = (!has_children).then_some(leader.birth);
        let ours = |pipe: Option<(PipeId, bool)>| pipe.and_then(|(id, raw)| (!raw).then_some(id));
        let raw = |pipe: Option<(PipeId, bool)>| {
            pipe.and_then(|(id, raw)| raw.then_some(SimEnd::Pipe(id)))
        };
        let entry = Entry {
            sequence: generation.sequence(),
            leader,
            streams: [ours(stdout), ours(stderr)],
            stdin: ours(stdin),
            outcome_told: false,
            exit: ExitSeen::No,
            watches: Vec::new(),
            contained,
            known: Vec::new(),
            told: Vec::new(),
        };
        self.table.insert(generation, entry);
        self.look_pause = limits::SPAWN_POLL[0].into();
        self.look_at = self.world.now.after(self.look_pause);
        // A simulated pipe has the capacity that was asked for.
        let capacities = [&plan.stdout, &plan.stderr].map(|plan| match plan {
            OutputPlan::Capture {
                pipe,
                transport: Transport::Pipe,
            } => *pipe,
            _ => None,
        });
        Ok(Spawned {
            pid,
            stdin: raw(stdin),
            stdout: raw(stdout),
            stderr: raw(stderr),
            capacities,
            started_at,
        })
    }

    /// A pipe, and whether the host gets its end raw.
    fn stdin_pipe(&mut self, plan: &StdinPlan, generation: Token) -> Option<(PipeId, bool)> {
        let capacity = self.options.pipe as usize;
        match plan {
            StdinPlan::Null | StdinPlan::Inherit | StdinPlan::Fd(_) => None,
            StdinPlan::Feed => Some((
                self.world.make_pipe(
                    Flow::ToChild,
                    capacity,
                    Some(generation.with(TokenKind::Stdin)),
                ),
                false,
            )),
            StdinPlan::Raw => Some((self.world.make_pipe(Flow::ToChild, capacity, None), true)),
        }
    }

    fn output_pipe(
        &mut self,
        plan: &OutputPlan,
        generation: Token,
        stream: Stream,
    ) -> Option<(PipeId, bool)> {
        let default = self.options.pipe;
        let token = generation.with(TokenKind::Output(stream));
        match plan {
            // A socket carries bytes as a pipe does; what else it does no child of the simulation
            // looks at.
            OutputPlan::Capture { pipe, transport } => {
                let capacity = pipe
                    .filter(|_| *transport == Transport::Pipe)
                    .unwrap_or(default) as usize;
                Some((
                    self.world.make_pipe(Flow::FromChild, capacity, Some(token)),
                    false,
                ))
            }
            OutputPlan::Raw => Some((
                self.world
                    .make_pipe(Flow::FromChild, default as usize, None),
                true,
            )),
            OutputPlan::Inherit | OutputPlan::Null | OutputPlan::Fd(_) | OutputPlan::ToStdout => {
                None
            }
        }
    }

    pub(super) fn do_read(&mut self, batch: &mut Batch) {
        self.tick();
        self.batches += 1;
        self.interrupted(Call::Read, batch.first().map(|op| op.stream));
        for place in 0..batch.len() {
            let Some(stream) = batch.get(place).map(|op| op.stream) else {
                break;
            };
            let again = batch.iter().take(place).any(|op| op.stream == stream);
            if let Some(op) = batch.get_mut(place) {
                op.result = self.read_one(op, again);
                if let (ReadResult::Data { n, .. }, rate @ 1..) =
                    (op.result, u64::from(self.options.read_rate))
                {
                    let end = self.world.now.after(Ns(n as u64 * 1000 / rate));
                    self.world.run_until(end);
                }
            }
        }
    }

    fn read_one(&mut self, op: &mut ReadOp, again: bool) -> ReadResult {
        let TokenKind::Output(stream) = op.stream.kind() else {
            return ReadResult::Stale;
        };
        let Some(id) = self
            .table
            .get(op.stream)
            .and_then(|e| e.streams[stream.index()])
        else {
            return ReadResult::Stale;
        };
        if again {
            self.world.violations.push(Violation::ReadTwice(id));
        }
        let (mut room, filled) = match &mut op.room {
            Some((block, filled)) => (&mut block.bytes_mut()[..], *filled as usize),
            None => (&mut [][..], 0),
        };
        if filled > room.len() {
            self.world.violations.push(Violation::Overfull);
            return ReadResult::Failed(Errno::from_raw(libc::EFAULT));
        }
        room = &mut room[filled..];
        let spare = op.spare.bytes_mut();
        let asked = room.len() + spare.len();
        let mut limit = asked;
        let there = self.world.pipes.get(&id).map_or(0, Pipe::len);
        let is_running = self.leader_lives(op.stream);
        let fits = |p: &Planned| match p.fault {
            Fault::ReadLater(_) => there > 0 && is_running && p.fault.is_about(stream),
            Fault::ShortRead(most) => there > most,
            Fault::Read(..) => p.fault.is_about(stream),
            _ => false,
        };
        match self.take_fault(Call::Read, Some(op.stream), fits) {
            Some((Fault::Read(_, errno), _)) => return ReadResult::Failed(errno),
            Some((Fault::ShortRead(most), _)) => limit = most.clamp(1, asked.max(1)),
            Some((Fault::ReadLater(_), _)) => {
                self.world.edge(Notice::Readable(op.stream));
                return ReadResult::Empty;
            }
            _ => {}
        }
        if self.rng.chance(self.options.fault_rates.short_reads) {
            limit = limit.min(1 + usize::try_from(self.rng.below(there as u64 + 1)).unwrap_or(0));
            self.by_chance(Call::Read, Fault::ShortRead(limit));
        }
        let Some(pipe) = self.world.pipes.get_mut(&id) else {
            return ReadResult::Stale;
        };
        let first = limit.min(room.len());
        let n = match pipe.take(&mut room[..first]) {
            Moved::Bytes(n) if n == room.len() => {
                n + taken(pipe.take(&mut spare[..(limit - n).min(asked - n)]))
            }
            Moved::Bytes(n) => n,
            // A room of none says nothing: what is in the spare decides.
            Moved::Blocked | Moved::Gone if first == 0 => taken(pipe.take(&mut spare[..limit])),
            Moved::Blocked | Moved::Gone => 0,
        };
        if n == 0 {
            return if pipe.no_writer() {
                ReadResult::End
            } else {
                ReadResult::Empty
            };
        }
        let more_available = n == asked || (pipe.no_writer() && limit == asked);
        let owed = !more_available && (!pipe.is_empty() || pipe.no_writer());
        self.world.note(Happened::Read(id, n));
        self.world.pipe_changed(id);
        if owed {
            // Fewer bytes than are there, and `more_available` is false: the rest makes a notice.
            self.world.edge(Notice::Readable(op.stream));
        }
        ReadResult::Data { n, more_available }
    }

    pub(super) fn do_write(&mut self, stdin: Token, bytes: &[u8]) -> Wrote {
        self.tick();
        let gone = Wrote::Failed(Errno::from_raw(libc::EBADF));
        let Some(id) = self.table.get(stdin).and_then(|e| e.stdin) else {
            return gone;
        };
        self.interrupted(Call::Write, Some(stdin));
        let mut limit = bytes.len();
        let fits = |p: &Planned| match p.fault {
            Fault::ShortWrite(most) => bytes.len() > most,
            fault => fault != Fault::Interrupted,
        };
        match self.take_fault(Call::Write, Some(stdin), fits) {
            Some((Fault::Write(errno), _)) => return Wrote::Failed(errno),
            Some((Fault::NoReader, _)) => return Wrote::NoReader,
            Some((Fault::ShortWrite(most), _)) => limit = limit.min(most.max(1)),
            Some((Fault::WriteLater, _)) => {
                self.world.edge(Notice::Writable(stdin));
                return Wrote::Full;
            }
            _ => {}
        }
        self.write_end(id, &bytes[..limit])
    }

    fn write_end(&mut self, id: PipeId, bytes: &[u8]) -> Wrote {
        let Some(pipe) = self.world.pipes.get_mut(&id) else {
            return Wrote::NoReader;
        };
        match pipe.put(bytes) {
            Moved::Gone => Wrote::NoReader,
            Moved::Blocked => {
                pipe.owed = true;
                Wrote::Full
            }
            Moved::Bytes(n) => {
                self.world.pipe_changed(id);
                Wrote::Took(n)
            }
        }
    }

    pub(super) fn do_close(&mut self, what: Token) {
        self.tick();
        let Some(entry) = self.table.get(what) else {
            return;
        };
        let leader = entry.leader;
        let pipe = match what.kind() {
            TokenKind::Output(stream) => entry.streams[stream.index()].take(),
            TokenKind::Stdin => entry.stdin.take(),
            TokenKind::Member(_) => {
                self.unwatch(what);
                None
            }
            TokenKind::Exit => {
                if let Some(process) = self
                    .world
                    .processes
                    .get_mut(&leader.pid)
                    .filter(|p| p.birth == leader.birth)
                {
                    process.exit_watch = None;
                }
                None
            }
            TokenKind::Spawn | TokenKind::Cgroup | TokenKind::Wake => None,
        };
        if let Some(id) = pipe {
            self.world.close_host_end(id);
        }
    }

    pub(super) fn do_release(&mut self, generation: Token, how: Release) -> Released<SimEnd> {
        self.tick();
        let Some(watches) = self.table.get(generation).map(|e| e.watches.clone()) else {
            return Released::default();
        };
        for (token, _) in watches {
            self.unwatch(token);
        }
        let Some(entry) = self.table.remove(generation) else {
            return Released::default();
        };
        self.leave_to_reap(&entry);
        if let Contained::Cgroup(id) = entry.contained {
            self.world.leave_cgroup(id);
        }
        let Known { pid, birth } = entry.leader;
        let leader = self
            .world
            .processes
            .get_mut(&pid)
            .filter(|p| p.birth == birth);
        let ended = leader.as_ref().is_none_or(|p| p.is_zombie());
        if let Some(leader) = leader {
            leader.exit_watch = None;
        }
        self.world.outcomes.remove(&birth);
        self.world.obituaries.remove(&birth);
        let mut released = Released {
            pid,
            ..Released::default()
        };
        if how == Release::HandOver {
            released.pidfd = Some(SimEnd::Process(pid, birth));
            let unwatch = |world: &mut super::World, id: PipeId| {
                if let Some(pipe) = world.pipes.get_mut(&id) {
                    pipe.host = HostEnd::Open(None);
                }
                SimEnd::Pipe(id)
            };
            released.stdin = entry.stdin.map(|id| unwatch(&mut self.world, id));
            let [stdout, stderr] = entry
                .streams
                .map(|id| id.map(|id| unwatch(&mut self.world, id)));
            (released.stdout, released.stderr) = (stdout, stderr);
            return released;
        }
        if ended {
            self.world.reap(pid, super::process::HOST);
        } else {
            self.world.unwatched.insert(birth);
        }
        for id in entry.streams.into_iter().flatten() {
            let lingering = self
                .world
                .pipes()
                .filter(|(_, p)| p.host == HostEnd::Lingering)
                .count();
            if how == Release::Linger && lingering < limits::LINGERERS {
                self.world.linger(id);
            } else {
                self.world.close_host_end(id);
            }
        }
        if let Some(id) = entry.stdin {
            self.world.close_host_end(id);
        }
        released
    }

    // ------------------------------------------------------------------ ends that the host owns

    /// Reads an end that the host owns, without blocking: what is there, empty at end of file,
    /// `None` if there is nothing yet (or it is no read end).
    pub fn raw_read(&mut self, end: &SimEnd) -> Option<Vec<u8>> {
        let SimEnd::Pipe(id) = end else { return None };
        let pipe = self
            .world
            .pipes
            .get_mut(id)
            .filter(|p| p.flow == Flow::FromChild)?;
        let mut bytes = vec![0; pipe.len().max(1)];
        match pipe.take(&mut bytes) {
            Moved::Bytes(n) => bytes.truncate(n),
            Moved::Gone => bytes.clear(),
            Moved::Blocked => return None,
        }
        self.world.pipe_changed(*id);
        Some(bytes)
    }

    /// Writes to an end that the host owns, without blocking.
    pub fn raw_write(&mut self, end: &SimEnd, bytes: &[u8]) -> Wrote {
        match end {
            SimEnd::Pipe(id) => self.write_end(*id, bytes),
            SimEnd::Process(..) => Wrote::Failed(Errno::from_raw(libc::EINVAL)),
        }
    }

    /// Closes an end that the host owns.
    pub fn raw_close(&mut self, end: SimEnd) {
        if let SimEnd::Pipe(id) = end {
            self.world.close_host_end(id);
        }
    }
}

fn taken(moved: Moved) -> usize {
    match moved {
        Moved::Bytes(n) => n,
        Moved::Blocked | Moved::Gone => 0,
    }
}

/// The script of a plan: its variable, or its first argument, or nothing at all.
fn script_of(plan: &Plan) -> Result<Script, SpawnError> {
    if plan.program.is_empty() {
        return Err(SpawnError::new(
            SpawnStep::Command,
            Errno::from_raw(libc::EINVAL),
        ));
    }
    let unreadable = |e: super::script::ScriptError| {
        SpawnError::new(SpawnStep::Command, Errno::from_raw(libc::EINVAL)).because(e.to_string())
    };
    Script::parse(&text_of(plan)).map_err(unreadable)
}

fn text_of(plan: &Plan) -> Cow<'_, str> {
    match plan.env.get(OsStr::new(PLAY)) {
        Some(Some(text)) => text.to_string_lossy(),
        Some(None) | None => plan
            .args
            .first()
            .map(|a| a.to_string_lossy())
            .unwrap_or_default(),
    }
}
