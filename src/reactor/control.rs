//! What a host can do to a generation.

use super::{Generation, Reactor, Stopping};
use crate::capture::Captured;
use crate::kernel::Kernel;
use crate::lifecycle::{Input, State, StopStage};
use crate::report::{StopReason, StreamEnd};
use crate::types::{DetachError, Signal, Signalled, StopPolicy, Stream};

/// A generation that was let go: from here on it is the host's.
///
/// Nobody reaps the leader but the host (waitid(2) on the pid or the pidfd), and nobody else reads
/// its pipes.
#[derive(Debug)]
#[non_exhaustive]
pub struct Detached<Raw> {
    /// The leader's process id, and its group's.
    pub pid: u32,
    /// Its pidfd, where there is one.
    pub pidfd: Option<Raw>,
    /// The write end of a stdin that the loop has fed.
    pub stdin: Option<Raw>,
    /// The read end of a captured stdout that is still open.
    pub stdout: Option<Raw>,
    /// The read end of a captured stderr that is still open.
    pub stderr: Option<Raw>,
    /// What was kept of stdout and stderr so far.
    pub kept: [Option<Captured>; 2],
}

impl<K: Kernel> Reactor<K> {
    /// Stops a generation: the policy's signal to its whole group, a grace, SIGKILL to the whole
    /// group. It is over as soon as the group is empty. `None` is the policy of its command.
    /// Stopping twice can only shorten the time left.
    pub fn stop(&mut self, generation: Generation, policy: Option<StopPolicy>) -> Stopping {
        self.stop_for(generation, policy, StopReason::Request)
    }

    /// SIGKILL to the whole group at once.
    pub fn kill(&mut self, generation: Generation) -> Stopping {
        let Some(key) = self.own(generation) else {
            return Stopping::Gone;
        };
        self.steer(key, |_| Input::Kill(StopReason::Request))
    }

    /// Stops all of them side by side. What could not be ended is in each one's report.
    pub fn stop_all(&mut self, policy: Option<StopPolicy>) {
        for generation in self.generations() {
            self.stop_for(generation, policy, StopReason::Shutdown);
        }
    }

    /// The keys of all that are not closed, in the order of their start.
    pub(super) fn generations(&self) -> Vec<Generation> {
        let mut all: Vec<_> = self
            .table
            .iter()
            .filter(|(_, entry)| entry.closed().is_none())
            .map(|(_, entry)| entry.generation)
            .collect();
        all.sort_unstable();
        all
    }

    fn stop_for(
        &mut self,
        generation: Generation,
        policy: Option<StopPolicy>,
        reason: StopReason,
    ) -> Stopping {
        let Some(key) = self.own(generation) else {
            return Stopping::Gone;
        };
        self.steer(key, |own| Input::Stop(policy.unwrap_or(own), reason))
    }

    /// The leader is asked first: one that was already dead was not stopped.
    fn steer(&mut self, key: usize, input: impl FnOnce(StopPolicy) -> Input<'static>) -> Stopping {
        self.now = self.kernel.now();
        self.ask_exit(key);
        let entry = &self.table[key];
        let (before, own) = (entry.lifecycle.stop_stage(), entry.lifecycle.stop_policy());
        if entry.lifecycle.is_closed() {
            return Stopping::Gone;
        }
        self.feed_input(key, input(own));
        self.fold();
        match before {
            StopStage::Idle => Stopping::Begun,
            StopStage::Terminating => Stopping::Shortened,
            StopStage::Killing | StopStage::Over => Stopping::Already,
        }
    }

    /// Sends a signal to the whole group, as far as that is certain to reach nobody else. It is no
    /// stop: nothing follows from it.
    pub fn signal(&mut self, generation: Generation, signal: Signal) -> Signalled {
        match self.own(generation) {
            Some(key) if !self.table[key].lifecycle.is_closed() => {
                self.kernel.signal(generation.token(), signal)
            }
            Some(_) | None => Signalled::Empty,
        }
    }

    /// The same for the leader alone, if it has not ended.
    pub fn signal_leader(&mut self, generation: Generation, signal: Signal) -> Signalled {
        match self.own(generation) {
            Some(key) if !self.table[key].lifecycle.exit_seen() => {
                self.kernel.signal_leader(generation.token(), signal)
            }
            Some(_) | None => Signalled::Empty,
        }
    }

    /// The leader's process id; `None` for a generation that is gone.
    pub fn pid(&self, generation: Generation) -> Option<u32> {
        self.own(generation).map(|key| self.table[key].pid)
    }

    /// Closes the read end of a captured stream: the host does not want it any more. Who writes on
    /// gets SIGPIPE or EPIPE. The stream counts as ended. False if it is not open.
    pub fn close_output(&mut self, generation: Generation, stream: Stream) -> bool {
        let Some(key) = self.own(generation) else {
            return false;
        };
        if !self.table[key].lifecycle.is_open(stream) {
            return false;
        }
        self.now = self.kernel.now();
        self.ask_outcome(key);
        self.feed_input(key, Input::Ended(stream, StreamEnd::Closed));
        self.fold();
        true
    }

    /// What is kept of a captured stream at this moment.
    pub fn kept(&self, generation: Generation, stream: Stream) -> Option<&Captured> {
        let key = self.own(generation)?;
        self.table[key].kept(stream)
    }

    /// Takes what was kept of a stream of a generation whose `Closed` is being handled; once.
    pub fn take(&mut self, generation: Generation, stream: Stream) -> Option<Captured> {
        let key = self.own(generation)?;
        let entry = &mut self.table[key];
        entry.closed()?;
        entry.settle_words(stream);
        entry.take(stream)
    }

    /// The write end of a stdin that was made with [`Stdin::Raw`](crate::Stdin::Raw); once.
    pub fn take_stdin(&mut self, generation: Generation) -> Option<K::Raw> {
        self.take_raw(generation, 0)
    }

    /// The read end of a stdout that was made with [`Output::Raw`](crate::Output::Raw); once.
    pub fn take_stdout(&mut self, generation: Generation) -> Option<K::Raw> {
        self.take_raw(generation, 1)
    }

    /// The read end of a stderr that was made with [`Output::Raw`](crate::Output::Raw); once.
    pub fn take_stderr(&mut self, generation: Generation) -> Option<K::Raw> {
        self.take_raw(generation, 2)
    }

    fn take_raw(&mut self, generation: Generation, place: usize) -> Option<K::Raw> {
        self.own(generation)?;
        self.raw
            .get_mut(&generation.token().bits())?
            .get_mut(place)?
            .take()
    }

    /// Lets a running generation go on purpose: process, pipes and what was kept so far are the
    /// host's from here on. No event of it follows.
    ///
    /// # Errors
    ///
    /// It has not been started yet, is being killed, or is gone.
    pub fn detach(&mut self, generation: Generation) -> Result<Detached<K::Raw>, DetachError> {
        if self.is_copy() {
            return Err(DetachError::Forked);
        }
        let key = self.own(generation).ok_or(DetachError::Gone)?;
        self.now = self.kernel.now();
        self.ask_exit(key);
        if self.table[key].lifecycle.is_closed() {
            return Err(DetachError::Gone);
        }
        self.table[key].lifecycle.can_detach()?;
        if self.table[key].lifecycle.state() == State::Exited {
            self.sweep_budget = crate::types::limits::LAST_READ_BYTES;
            for stream in Stream::ALL {
                self.sweep_stream(key, stream);
            }
        }
        self.feed_input(key, Input::Detach);
        self.errand.forget(generation.token());
        let released = self.released.take().unwrap_or_default();
        self.queue
            .retain(|item| item.token().with(crate::types::TokenKind::Spawn) != generation.token());
        let kept = Stream::ALL.map(|stream| self.table[key].take(stream));
        let pid = self.table[key].pid;
        self.remove(key);
        self.live -= 1;
        self.fold();
        Ok(Detached {
            pid,
            pidfd: released.pidfd,
            stdin: released.stdin,
            stdout: released.stdout,
            stderr: released.stderr,
            kept,
        })
    }
}
