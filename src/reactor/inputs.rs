//! Facts become inputs of the state machines, and the work loop: every
//! [`Input`](crate::lifecycle::Input) is made in this file.
//!
//! ```text
//!  a fact --> apply: the machines take the input, effects.rs performs what follows
//!                       |
//!                       v
//!             pending: Work::ReadOut, Work::Answer  <--+
//!                       |                              | more of both
//!                       +-- run_pending: pop one, do it, apply what it brings
//! ```
//!
//! A fact comes from a notice of the kernel, a call of the host, a timer, a read, or the answer to
//! an effect. `apply` never runs pending work and pending work is run by one flat loop, so no call
//! nests.

use super::Reactor;
use super::entry::ReadOut;
use crate::kernel::{Collected, Kernel, Notice, SpawnOutcome};
use crate::lifecycle::{Input, State, Timer};
use crate::report::{StopReason, StreamEnd};
use crate::types::{
    Exit, ExitInfo, Holder, Member, Probe, Signalled, StopPolicy, Stream, Token, TokenKind,
};

/// Work that an input has left behind.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    /// Reads once from each stream of this generation that is being read out.
    ReadOut(Token),
    /// Tells the machines of this generation what a kernel call came to that was an effect.
    Answer(Token, Answer),
}

/// What a kernel call came to that was an effect.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    /// To [`Effect::ProbeGroup`](crate::lifecycle::Effect::ProbeGroup).
    Probed(Probe),
    /// To a signal.
    Signalled(Signalled),
    /// A member that was to be watched has ended already.
    MemberGone,
    /// A member could not be watched.
    WatchFailed,
}

impl Answer {
    const fn input(self) -> Input<'static> {
        match self {
            Answer::Probed(probe) => Input::Probed(probe),
            Answer::Signalled(signalled) => Input::Signalled(signalled),
            Answer::MemberGone => Input::MemberGone,
            Answer::WatchFailed => Input::WatchFailed,
        }
    }
}

/// The work loop.
impl<K: Kernel> Reactor<K> {
    /// Gives one input to a generation, and does all the work that follows from it. A read-out goes
    /// on as far as this turn's budget allows.
    fn handle(&mut self, key: usize, input: Input<'_>) {
        self.apply(key, input);
        self.run_pending();
    }

    /// Gives one input to a generation and performs the effects. Work that they leave is pending.
    fn apply(&mut self, key: usize, input: Input<'_>) {
        let entry = &mut self.table[key];
        let effects = entry.lifecycle.handle(self.clock.now, input);
        if entry.lifecycle.is_late() {
            for channel in entry.channels_mut() {
                let total = channel.captured.total();
                channel.late_from.get_or_insert(total);
            }
        }
        self.perform(key, effects);
    }

    /// Does pending work until there is none. Read-outs stand first: what a child has written is
    /// stored before the answers to other effects are looked at. Answers stand in the order of
    /// their effects.
    pub(super) fn run_pending(&mut self) {
        while let Some(work) = self.pending.pop_front() {
            match work {
                Work::ReadOut(token) => self.read_out_once(token),
                Work::Answer(token, answer) => {
                    if let Some(key) = self.table.lookup(token) {
                        self.apply(key, answer.input());
                    }
                }
            }
        }
    }
}

/// Facts from the kernel.
impl<K: Kernel> Reactor<K> {
    /// A notice is a hint. What it means is asked for here.
    pub(super) fn serve_notice(&mut self, notice: Notice) {
        let token = match notice {
            Notice::Outcome(token)
            | Notice::Exit(token)
            | Notice::MemberGone(token)
            | Notice::CgroupChanged(token)
            | Notice::Writable(token)
            | Notice::Readable(token) => token,
            Notice::Woken => return,
        };
        let Some(key) = self.table.lookup(token) else {
            self.stats.stale += 1;
            return;
        };
        match notice {
            Notice::Outcome(_) => self.check_outcome(key),
            Notice::Exit(_) => self.check_exit(key),
            Notice::MemberGone(_) => self.handle(key, Input::MemberGone),
            Notice::CgroupChanged(_) => self.handle(key, Input::CgroupChanged),
            Notice::Writable(_) => self.queue_stdin_write(key),
            Notice::Readable(_) => self.stream_readable(key, token),
            Notice::Woken => {}
        }
    }

    /// Asks whether the program was executed, if that is not known yet.
    pub(super) fn check_outcome(&mut self, key: usize) {
        if self.table[key].lifecycle.state() != State::Spawning {
            return;
        }
        let token = self.table[key].generation.token();
        match self.kernel.outcome(token) {
            SpawnOutcome::NotYet => {}
            SpawnOutcome::Started => self.handle(key, Input::Started),
            SpawnOutcome::Failed(error) => {
                let entry = &mut self.table[key];
                let projection = &entry.command.projection;
                entry.error = Some(error.redacted_with(|text| projection.text(text)));
                // The host cannot use them: nobody has the other ends.
                self.host_ends.forget(entry.generation);
                self.handle(key, Input::StartFailed);
            }
        }
    }

    /// Asks whether the leader has ended. Whether it was started is told first.
    pub(super) fn check_exit(&mut self, key: usize) {
        self.check_outcome(key);
        let entry = &self.table[key];
        if entry.lifecycle.exit_seen() || entry.lifecycle.state() == State::Spawning {
            return;
        }
        let mode = entry.lifecycle.collect_mode();
        let info = match self.kernel.collect(entry.generation.token(), mode) {
            Collected::NotYet => return,
            Collected::Ended(info) => info,
            Collected::Lost => ExitInfo {
                exit: Exit::unknown(),
                usage: None,
            },
        };
        let state = self.table[key].exit_state_mut(&mut self.memory.boxes);
        (state.exited, state.usage) = (Some(self.clock.now), info.usage);
        self.handle(key, Input::Exit(info));
    }

    /// A stream of a generation that has exited and waits for its verdict is read out at once. Any
    /// other waits for its turn on the ready list.
    fn stream_readable(&mut self, key: usize, token: Token) {
        let TokenKind::Output(stream) = token.kind() else {
            return;
        };
        self.check_outcome(key);
        match self.table[key].lifecycle.state() {
            State::Exited => {
                self.begin_stream_read_out(key, stream);
                self.run_pending();
            }
            State::Spawning
            | State::Running
            | State::Drained
            | State::DrainTimedOut
            | State::Failing
            | State::Failed
            | State::Unfinished
            | State::Detached => self.mark_readable(key, stream),
        }
    }

    /// `n` bytes were read and stored, at least one.
    pub(super) fn bytes_read(&mut self, key: usize, stream: Stream, n: u64) {
        self.apply(key, Input::Bytes(stream, n));
    }

    /// A read has found the end of the stream, or an error.
    pub(super) fn stream_ended(&mut self, key: usize, stream: Stream, end: StreamEnd) {
        self.apply(key, Input::Ended(stream, end));
    }

    /// The read-out is over. The machines are told if they have asked for it.
    pub(super) fn read_out_done(&mut self, key: usize) {
        match std::mem::replace(&mut self.table[key].read_out, ReadOut::Idle) {
            ReadOut::Requested => self.apply(key, Input::ReadDone),
            ReadOut::Unrequested | ReadOut::Idle => {}
        }
    }

    /// The backlog of a stream is full: it is not read until the host has taken enough.
    pub(super) fn backlog_filled(&mut self, key: usize, stream: Stream) {
        self.apply(key, Input::Paused(stream));
    }

    /// The fed stdin is closed: everything was written, nobody reads it, or it failed.
    pub(super) fn stdin_closed(&mut self, key: usize) {
        self.handle(key, Input::StdinClosed);
    }

    /// A scan has listed the living members. `complete`: none can have been missed.
    pub(super) fn members_listed(&mut self, token: Token, members: &[Member], complete: bool) {
        if let Some(key) = self.table.lookup(token) {
            self.handle(key, Input::Members(members, complete));
        }
    }

    /// A scan has listed who holds the open streams. `complete`: nobody can have been missed.
    pub(super) fn holders_listed(&mut self, token: Token, holders: &[Holder], complete: bool) {
        if let Some(key) = self.table.lookup(token) {
            self.handle(key, Input::Holders(holders, complete));
        }
    }

    /// A timer has come due. At the run limit the leader is asked first: one that had ended already
    /// was not stopped (its notice may be late where exits are learnt by SIGCHLD).
    pub(super) fn timer_due(&mut self, token: Token, timer: Timer) {
        let Some(key) = self.table.lookup(token) else {
            self.stats.stale += 1;
            return;
        };
        self.table[key].take_timer(timer);
        if timer == Timer::RunLimit {
            self.check_exit(key);
        }
        if !self.table[key].lifecycle.is_closed() {
            self.handle(key, Input::Due(timer));
        }
    }
}

/// Facts from the host.
impl<K: Kernel> Reactor<K> {
    /// The host wants a stop. Without a policy that of the command is used.
    pub(super) fn stop_requested(
        &mut self,
        key: usize,
        policy: Option<StopPolicy>,
        reason: StopReason,
    ) {
        let policy = policy.unwrap_or_else(|| self.table[key].lifecycle.stop_policy());
        self.handle(key, Input::Stop(policy, reason));
    }

    /// The host wants SIGKILL now.
    pub(super) fn kill_requested(&mut self, key: usize) {
        self.handle(key, Input::Kill(StopReason::Request));
    }

    /// The host has closed the read end of a stream.
    pub(super) fn output_closed(&mut self, key: usize, stream: Stream) {
        self.handle(key, Input::Ended(stream, StreamEnd::Closed));
    }

    /// The host has taken enough of a stream whose backlog was full.
    pub(super) fn backlog_drained(&mut self, key: usize, stream: Stream) {
        self.handle(key, Input::Resumed(stream));
    }

    /// The host lets the generation go.
    pub(super) fn detach_requested(&mut self, key: usize) {
        self.handle(key, Input::Detach);
    }

    /// The loop is being dropped.
    pub(super) fn loop_dropped(&mut self, key: usize) {
        self.handle(key, Input::Abandon);
    }
}
