//! What a host can do to a generation: stop, signal, close, take and let go.

use super::channel::Delivery;
use super::{Generation, Reactor};
use crate::capture::Captured;
use crate::kernel::{Kernel, Released};
use crate::lifecycle::{State, StopStage};
use crate::report::StopReason;
use crate::types::{DetachError, Signal, Signalled, StopPolicy, Stream, limits};
use std::collections::BTreeMap;

/// What a call that stops a generation has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stopping {
    /// A stop has begun.
    Begun,
    /// A stop was under way already. Its end may have come nearer; it is never put off.
    Shortened,
    /// A stop was over already, or SIGKILL had been sent: nothing was changed.
    Already,
    /// The generation is closed, was replaced, or belongs to another loop.
    Gone,
}

/// A generation that was let go by [`Reactor::detach`]: from here on it is the host's.
///
/// Nobody reaps the leader but the host (waitid(2) on the pid or the pidfd), and nobody else reads
/// its pipes. Dropping this closes the descriptors, so a child that writes on gets SIGPIPE.
#[derive(Debug)]
#[non_exhaustive]
pub struct Detached<Raw> {
    /// The leader's process id, and its group's. Valid until the host reaps it.
    pub pid: u32,
    /// The leader's pidfd, where the kernel has them.
    pub pidfd: Option<Raw>,
    /// The write end of a stdin that the loop has fed, if it is still open. Non-blocking.
    pub stdin: Option<Raw>,
    /// The read end of a captured stdout that is still open. Non-blocking.
    pub stdout: Option<Raw>,
    /// The read end of a captured stderr that is still open. Non-blocking.
    pub stderr: Option<Raw>,
    /// What was kept of stdout and stderr so far; `None` for a stream that was not captured.
    pub kept: [Option<Captured>; 2],
}

/// Pipe ends that are the host's.
pub(super) struct HostEnds<R> {
    /// Ends of raw streams that the host has not taken yet, by the bits of the generation's token.
    untaken: BTreeMap<u64, RawStdio<R>>,
    /// What the release of a detached generation has handed over.
    pub(super) handed_over: Option<Released<R>>,
}

/// The host's ends of a child's raw streams.
pub(super) struct RawStdio<R> {
    pub(super) stdin: Option<R>,
    pub(super) stdout: Option<R>,
    pub(super) stderr: Option<R>,
}

impl<R> HostEnds<R> {
    pub(super) fn new() -> HostEnds<R> {
        HostEnds {
            untaken: BTreeMap::new(),
            handed_over: None,
        }
    }

    pub(super) fn insert(&mut self, generation: Generation, ends: RawStdio<R>) {
        if ends.stdin.is_some() || ends.stdout.is_some() || ends.stderr.is_some() {
            self.untaken.insert(generation.token().bits(), ends);
        }
    }

    /// Closes those that were not taken.
    pub(super) fn forget(&mut self, generation: Generation) {
        self.untaken.remove(&generation.token().bits());
    }
}

/// What is stopped with.
enum StopRequest {
    /// The policy's signal, a grace, SIGKILL.
    Stop(Option<StopPolicy>, StopReason),
    /// SIGKILL at once.
    Kill,
}

impl<K: Kernel> Reactor<K> {
    /// Stops a generation: the policy's signal to its whole process group, a grace, SIGKILL to the
    /// whole group. It is over as soon as the group is empty. Without a `policy` that of the
    /// command is used ([`Command::stop`](crate::Command::stop)). Stopping twice can only shorten
    /// the time left.
    ///
    /// The leader is asked first whether it has ended: one that was already dead was not stopped,
    /// and its outcome is its own. Events may be waiting after this call, and
    /// [`Reactor::next_deadline`] may have come nearer.
    pub fn stop(&mut self, generation: Generation, policy: Option<StopPolicy>) -> Stopping {
        self.begin_stop(generation, StopRequest::Stop(policy, StopReason::Request))
    }

    /// Sends SIGKILL to the whole group at once. Otherwise as [`Reactor::stop`].
    pub fn kill(&mut self, generation: Generation) -> Stopping {
        self.begin_stop(generation, StopRequest::Kill)
    }

    /// Stops all generations side by side, within one grace. What could not be ended is in the
    /// report of each.
    pub fn stop_all(&mut self, policy: Option<StopPolicy>) {
        for generation in self.table.open_generations() {
            self.begin_stop(generation, StopRequest::Stop(policy, StopReason::Shutdown));
        }
    }

    fn begin_stop(&mut self, generation: Generation, request: StopRequest) -> Stopping {
        let Some(key) = self.lookup_key(generation) else {
            return Stopping::Gone;
        };
        self.clock.now = self.kernel.now();
        self.check_exit(key);
        let lifecycle = &self.table[key].lifecycle;
        if lifecycle.is_closed() {
            self.give_up_paused_output(key);
            return Stopping::Gone;
        }
        let before = lifecycle.stop_stage();
        match request {
            StopRequest::Stop(policy, reason) => self.stop_requested(key, policy, reason),
            StopRequest::Kill => self.kill_requested(key),
        }
        self.update_deadline_fd();
        match before {
            StopStage::Idle => Stopping::Begun,
            StopStage::Terminating => Stopping::Shortened,
            StopStage::Killing | StopStage::Over => Stopping::Already,
        }
    }

    /// Sends a signal to the whole process group, as far as that is certain to reach nobody else.
    /// It is no stop: nothing follows from it. [`Signalled::Empty`] for a generation that is closed
    /// or not this loop's.
    pub fn signal(&mut self, generation: Generation, signal: Signal) -> Signalled {
        match self.lookup_key(generation) {
            Some(key) if !self.table[key].lifecycle.is_closed() => {
                self.kernel.signal(generation.token(), signal)
            }
            Some(_) | None => Signalled::Empty,
        }
    }

    /// Sends a signal to the leader alone, if it has not ended. Otherwise as [`Reactor::signal`].
    pub fn signal_leader(&mut self, generation: Generation, signal: Signal) -> Signalled {
        match self.lookup_key(generation) {
            Some(key) if !self.table[key].lifecycle.exit_seen() => {
                self.kernel.signal_leader(generation.token(), signal)
            }
            Some(_) | None => Signalled::Empty,
        }
    }

    /// The leader's process id, also after its end; `None` for a generation that is gone.
    pub fn pid(&self, generation: Generation) -> Option<u32> {
        self.lookup_key(generation)
            .map(|key| self.table[key].birth.pid)
    }

    /// Closes the read end of a captured stream: the host does not want it any more. A process that
    /// writes on gets SIGPIPE or EPIPE. The stream counts as ended for the drain. Output of it that
    /// is paused withholds nothing any more. Returns `false` if it is not open.
    pub fn close_output(&mut self, generation: Generation, stream: Stream) -> bool {
        let Some(key) = self.lookup_key(generation) else {
            return false;
        };
        let is_open = self.table[key].lifecycle.is_open(stream);
        if is_open {
            self.clock.now = self.kernel.now();
            self.check_outcome(key);
            self.output_closed(key, stream);
        }
        if let Some(channel) = self.table[key].channel_mut(stream)
            && channel.delivery == Delivery::PausedByHost
        {
            channel.delivery = Delivery::Abandoned;
        }
        self.requeue_closed(key);
        self.update_deadline_fd();
        is_open
    }

    /// What is kept of a captured stream at this moment. `None` if it is not captured or was
    /// taken, or the generation is gone.
    pub fn kept(&self, generation: Generation, stream: Stream) -> Option<&Captured> {
        let key = self.lookup_key(generation)?;
        self.table[key].captured(stream)
    }

    /// Takes what was kept of a stream of a generation whose
    /// [`Event::Closed`](crate::Event::Closed) was the last event; once. `None` before, and
    /// after the next call of [`Reactor::next_event`] or [`Reactor::turn`].
    pub fn take(&mut self, generation: Generation, stream: Stream) -> Option<Captured> {
        let key = self.lookup_key(generation)?;
        let entry = &mut self.table[key];
        entry.closed()?;
        entry.render_last_words(stream);
        entry.take_captured(stream)
    }

    /// Takes the write end of a stdin that was made with [`Stdin::Raw`](crate::Stdin::Raw); once.
    /// It is an `OwnedFd` on Linux, and non-blocking. What is not taken is closed with the
    /// generation.
    pub fn take_stdin(&mut self, generation: Generation) -> Option<K::Raw> {
        self.untaken_ends(generation)?.stdin.take()
    }

    /// Takes the read end of a stdout that was made with [`Output::Raw`](crate::Output::Raw); once.
    /// It is an `OwnedFd` on Linux, and non-blocking. What is not taken is closed with the
    /// generation.
    pub fn take_stdout(&mut self, generation: Generation) -> Option<K::Raw> {
        self.untaken_ends(generation)?.stdout.take()
    }

    /// Takes the read end of a stderr that was made with [`Output::Raw`](crate::Output::Raw); once.
    /// It is an `OwnedFd` on Linux, and non-blocking. What is not taken is closed with the
    /// generation.
    pub fn take_stderr(&mut self, generation: Generation) -> Option<K::Raw> {
        self.untaken_ends(generation)?.stderr.take()
    }

    fn untaken_ends(&mut self, generation: Generation) -> Option<&mut RawStdio<K::Raw>> {
        self.lookup_key(generation)?;
        self.host_ends.untaken.get_mut(&generation.token().bits())
    }

    /// Lets a running generation go on purpose: process, pipes and what was kept so far are the
    /// host's from here on. No event of it follows, and those that waited are dropped.
    ///
    /// # Errors
    ///
    /// It has not executed its program yet, is being killed, or is gone; or this is a forked copy
    /// of the host.
    pub fn detach(&mut self, generation: Generation) -> Result<Detached<K::Raw>, DetachError> {
        if self.is_copy() {
            return Err(DetachError::Forked);
        }
        let key = self.lookup_key(generation).ok_or(DetachError::Gone)?;
        self.clock.now = self.kernel.now();
        self.check_exit(key);
        if self.table[key].lifecycle.is_closed() {
            return Err(DetachError::Gone);
        }
        self.table[key].lifecycle.can_detach()?;
        if self.table[key].lifecycle.state() == State::Exited {
            self.io.read_out_budget = limits::LAST_READ_BYTES;
            for stream in Stream::ALL {
                self.begin_stream_read_out(key, stream);
            }
            self.run_pending();
            self.resume_read_outs();
        }
        self.detach_requested(key);
        self.scans.forget(generation.token());
        self.outbox.forget(generation.token());
        let released = self.host_ends.handed_over.take().unwrap_or_default();
        let kept = Stream::ALL.map(|stream| self.table[key].take_captured(stream));
        let pid = self.table[key].birth.pid;
        self.remove(key);
        self.stats.live -= 1;
        self.update_deadline_fd();
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
