//! Processes of the simulated world do their acts.

use super::fault::Ask;
use super::log::Happened;
use super::pipe::{Flow, Moved, PipeId};
use super::process::{After, Condition, Descriptor, Disposition, Doing, HOST, Source, Step};
use super::script::{Act, Channel, Program, Target, piece as pattern_piece};
use super::world::{World, short};
use crate::types::{Exit, Ns, Signal, StatusSource, Stream};

/// How much a process writes or reads in one go.
const PIECE: usize = 64 << 10;

impl World {
    /// A process has its turn.
    pub(super) fn run(&mut self, pid: u32) {
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        if process.condition != Condition::Able {
            return;
        }
        let over = |until: Option<Ns>, now: Ns| until.is_some_and(|t| t <= now);
        match std::mem::replace(&mut process.doing, Doing::Next) {
            Doing::Exec(error) => self.executed(pid, error.map(|e| *e)),
            Doing::Next => self.next_act(pid),
            doing @ (Doing::Sleeping(until) | Doing::Spinning(until)) => {
                if over(until, self.now) {
                    self.next_act(pid);
                } else {
                    process.doing = doing;
                    self.go_on(pid);
                }
            }
            Doing::Outliving(until) if until <= self.now => {
                self.finish(pid, Exit::with_code(0, StatusSource::Waitid))
            }
            doing @ Doing::Outliving(_) => {
                process.doing = doing;
                self.go_on(pid);
            }
            Doing::Writing(stream, source, at, len) => self.write_on(pid, stream, source, at, len),
            Doing::Reading(left) => self.read_on(pid, left),
            Doing::Copying(stream) => self.copy_on(pid, stream),
            Doing::Waiting => self.wait_on(pid),
        }
    }

    /// Puts a process that can run again, or has just begun something, back into the queue.
    pub(super) fn go_on(&mut self, pid: u32) {
        let Some(process) = self.processes.get(&pid) else {
            return;
        };
        match process.doing {
            Doing::Sleeping(Some(at)) | Doing::Spinning(Some(at)) | Doing::Outliving(at) => {
                self.schedule(pid, at)
            }
            Doing::Sleeping(None) | Doing::Spinning(None) => self.unschedule(pid),
            Doing::Exec(_)
            | Doing::Next
            | Doing::Writing(..)
            | Doing::Reading(_)
            | Doing::Copying(_)
            | Doing::Waiting => {
                self.schedule_soon(pid);
            }
        }
    }

    fn executed(&mut self, pid: u32, error: Option<crate::types::SpawnError>) {
        let Some(birth) = self.processes.get(&pid).map(|p| p.birth) else {
            return;
        };
        match error {
            None => {
                self.note(Happened::Executed(pid));
                self.outcomes.insert(birth, Ok(()));
                self.schedule_soon(pid);
            }
            Some(error) => {
                self.outcomes.insert(birth, Err(error));
                self.finish(pid, Exit::with_code(127, StatusSource::Waitid));
            }
        }
    }

    fn next_act(&mut self, pid: u32) {
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        match process.step() {
            Step::Over => self.finish(pid, Exit::with_code(0, StatusSource::Waitid)),
            Step::Resumed(signal) => {
                let again = process.pending.remove(&signal);
                self.go_on(pid);
                if again {
                    self.deliver(pid, signal);
                }
            }
            Step::Act(act) => self.begin(pid, act),
        }
    }

    /// Begins an act. One that waits sets what the process is in the middle of; all others are over
    /// at once.
    fn begin(&mut self, pid: u32, act: Act) {
        let now = self.now;
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        let later = |time: Option<Ns>| time.map(|t| now.after(t));
        match act {
            Act::Write(stream, len) => {
                process.doing = Doing::Writing(stream, Source::Pattern, 0, len)
            }
            Act::Print(stream, text) => {
                let len = text.len() as u64;
                process.doing = Doing::Writing(stream, Source::Text(text), 0, len);
            }
            Act::Sleep(time) => process.doing = Doing::Sleeping(later(time)),
            Act::Spin(time) => {
                process.cpu = process.cpu.after(time.unwrap_or_default());
                process.doing = Doing::Spinning(later(time));
            }
            Act::Fork(acts) => self.fork(pid, acts),
            Act::Wait => process.doing = Doing::Waiting,
            Act::Close(channel) => self.close_fd(pid, channel.number()),
            Act::Read(left) => process.doing = Doing::Reading(left),
            Act::Copy(stream) => process.doing = Doing::Copying(stream),
            // A leader of a group may not make a session (setsid(2)); nor may the leader of a
            // session change its group.
            Act::Setsid if process.pgid != pid => (process.pgid, process.sid) = (pid, pid),
            Act::Setpgid if process.sid != pid => process.pgid = pid,
            Act::Setsid | Act::Setpgid => {}
            Act::Ignore(signal) => {
                process.dispositions.insert(signal, Disposition::Ignored);
            }
            Act::Reset(signal) => {
                process.dispositions.remove(&signal);
            }
            Act::On(signal, acts) => {
                process
                    .dispositions
                    .insert(signal, Disposition::Handled(acts));
            }
            Act::Block(signal) => {
                // SIGKILL and SIGSTOP cannot be (sigprocmask(2)).
                if !matches!(signal, Signal::KILL | Signal::STOP) {
                    process.blocked.insert(signal);
                }
            }
            Act::Unblock(signal) => return self.unblock(pid, signal),
            Act::Exec(program) => self.exec(pid, program),
            Act::Fault(call, fault) => {
                let family = process.family;
                self.asked.push(Ask {
                    family,
                    call,
                    fault,
                });
            }
            Act::Kill(target, signal) => return self.send(pid, target, signal),
            Act::Repeat(Some(0), _) => {}
            Act::Repeat(times, acts) => process.enter(acts, After::Again(times.map(|n| n - 1))),
            Act::Name(name) => process.comm = short(&name),
            Act::Outlive(time) => process.doing = Doing::Outliving(now.after(time)),
            Act::User(user) => process.user = Some(user),
            Act::Unkillable => return self.freeze(pid),
            Act::Exit(code) => {
                return self.finish(pid, Exit::with_code(code, StatusSource::Waitid));
            }
        }
        self.go_on(pid);
    }

    /// execve(2): what is ignored, blocked or open stays, what is handled does not.
    fn exec(&mut self, pid: u32, program: Program) {
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        process.comm = short(&program.name);
        process
            .dispositions
            .retain(|_, what| *what == Disposition::Ignored);
        process.frames.clear();
        if program.is_clean {
            process.cookie = None;
        }
        process.enter(program.acts, After::Outer);
        self.note(Happened::Executed(pid));
    }

    /// What came meanwhile comes now.
    fn unblock(&mut self, pid: u32, signal: Signal) {
        self.go_on(pid);
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        if process.blocked.remove(&signal) && process.pending.remove(&signal) {
            self.deliver(pid, signal);
        }
    }

    /// A process signals. It goes on first, so that what it sends itself finds it between two acts.
    fn send(&mut self, pid: u32, target: Target, signal: Signal) {
        self.go_on(pid);
        let Some(process) = self.processes.get(&pid) else {
            return;
        };
        let pids = match target {
            Target::Me => vec![pid],
            Target::Parent if process.ppid > HOST => vec![process.ppid],
            Target::Parent => Vec::new(),
            Target::Child => {
                let child = process.last_child;
                self.processes
                    .values()
                    .filter(|p| Some(p.birth) == child)
                    .map(|p| p.pid)
                    .collect()
            }
            Target::Group => {
                // Itself last: it may not outlive its own signal.
                let pgid = process.pgid;
                let mut pids = self.group(pgid);
                pids.retain(|p| *p != pid);
                pids.push(pid);
                pids
            }
        };
        for pid in pids {
            self.deliver(pid, signal);
        }
    }

    // ------------------------------------------------------------------ acts that wait

    /// write(2) of a process, without blocking.
    pub(super) fn write(&mut self, pid: u32, stream: Stream, bytes: &[u8]) -> Moved {
        let Some(process) = self.processes.get(&pid) else {
            return Moved::Gone;
        };
        match process.fd(Channel::Output(stream)) {
            Descriptor::Closed => Moved::Gone,
            Descriptor::Null => Moved::Bytes(bytes.len()),
            Descriptor::Pipe(id) => self.write_pipe(pid, id, bytes),
        }
    }

    fn write_pipe(&mut self, pid: u32, id: PipeId, bytes: &[u8]) -> Moved {
        let Some(pipe) = self.pipes.get_mut(&id) else {
            return Moved::Gone;
        };
        let moved = pipe.put(bytes);
        match moved {
            Moved::Bytes(0) => {}
            Moved::Bytes(n) => {
                self.note(Happened::Wrote(pid, id, n));
                self.pipe_readable(id);
            }
            Moved::Blocked => pipe.sleepers.push(pid),
            Moved::Gone => {
                self.note(Happened::Broken(pid, id));
                self.deliver(pid, Signal::PIPE);
            }
        }
        moved
    }

    fn write_on(&mut self, pid: u32, stream: Stream, source: Source, at: u64, len: u64) {
        let piece = usize::try_from(len - at).map_or(PIECE, |left| left.min(PIECE));
        let moved = match &source {
            _ if piece == 0 => Moved::Bytes(0),
            Source::Pattern => self.write(pid, stream, &pattern_piece(stream, at, piece)),
            Source::Text(text) => {
                let from = usize::try_from(at).unwrap_or(usize::MAX).min(text.len());
                let text = text.clone();
                self.write(
                    pid,
                    stream,
                    text.get(from..from + piece).unwrap_or_default(),
                )
            }
        };
        let at = match moved {
            Moved::Bytes(n) => at + n as u64,
            Moved::Blocked => at,
            // EPIPE or EBADF: the rest is not written.
            Moved::Gone => len,
        };
        let Some(process) = self.processes.get_mut(&pid).filter(|p| !p.is_zombie()) else {
            return;
        };
        if at < len {
            process.doing = Doing::Writing(stream, source, at, len);
            if moved == Moved::Blocked {
                self.unschedule(pid);
                return;
            }
        }
        self.go_on(pid);
    }

    /// read(2) of a process on stdin, without blocking.
    fn read_stdin(&mut self, pid: u32, into: &mut [u8]) -> Moved {
        let Some(process) = self.processes.get(&pid) else {
            return Moved::Gone;
        };
        let Descriptor::Pipe(id) = process.fd(Channel::Stdin) else {
            return Moved::Gone;
        };
        let Some(pipe) = self.pipes.get_mut(&id).filter(|p| p.flow == Flow::ToChild) else {
            return Moved::Gone;
        };
        let moved = pipe.take(into);
        match moved {
            Moved::Bytes(_) => self.pipe_changed(id),
            Moved::Blocked => pipe.sleepers.push(pid),
            Moved::Gone => {}
        }
        moved
    }

    fn read_on(&mut self, pid: u32, left: Option<u64>) {
        let mut bytes = vec![
            0;
            left.and_then(|n| usize::try_from(n).ok())
                .map_or(PIECE, |n| n.min(PIECE))
        ];
        let moved = if bytes.is_empty() {
            Moved::Gone
        } else {
            self.read_stdin(pid, &mut bytes)
        };
        let left = match moved {
            Moved::Bytes(n) => left.map(|l| l.saturating_sub(n as u64)),
            Moved::Blocked => left,
            Moved::Gone => Some(0),
        };
        self.wait_or_go_on(
            pid,
            moved,
            (left != Some(0)).then_some(Doing::Reading(left)),
        );
    }

    fn copy_on(&mut self, pid: u32, stream: Stream) {
        // No more than fits, so that nothing is held in between.
        let mut room = PIECE;
        if let Some(Descriptor::Pipe(id)) = self
            .processes
            .get(&pid)
            .map(|p| p.fd(Channel::Output(stream)))
            && let Some(pipe) = self.pipes.get_mut(&id).filter(|p| !p.no_reader())
        {
            room = pipe.room();
            if room == 0 {
                pipe.sleepers.push(pid);
            }
        }
        let mut bytes = vec![0; room.min(PIECE)];
        let moved = if bytes.is_empty() {
            Moved::Blocked
        } else {
            self.read_stdin(pid, &mut bytes)
        };
        if let Moved::Bytes(n) = moved {
            self.write(pid, stream, bytes.get(..n).unwrap_or_default());
        }
        self.wait_or_go_on(
            pid,
            moved,
            (moved != Moved::Gone).then_some(Doing::Copying(stream)),
        );
    }

    fn wait_or_go_on(&mut self, pid: u32, moved: Moved, doing: Option<Doing>) {
        let Some(process) = self.processes.get_mut(&pid).filter(|p| !p.is_zombie()) else {
            return;
        };
        if let Some(doing) = doing {
            process.doing = doing;
            if moved == Moved::Blocked {
                self.unschedule(pid);
                return;
            }
        }
        self.go_on(pid);
    }

    fn wait_on(&mut self, pid: u32) {
        let mut alive = false;
        let children: Vec<(u32, bool)> = self
            .processes
            .values()
            .filter(|p| p.ppid == pid)
            .map(|p| (p.pid, p.is_zombie()))
            .collect();
        for (child, zombie) in children {
            if zombie {
                self.reap(child, pid);
            } else {
                alive = true;
            }
        }
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        if alive {
            process.doing = Doing::Waiting;
            self.unschedule(pid);
        } else {
            self.go_on(pid);
        }
    }
}
