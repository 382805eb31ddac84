//! Kernel facts become inputs: the only place where they do.

use super::Reactor;
use crate::kernel::{Collected, Kernel, Notice, SpawnOutcome};
use crate::lifecycle::{Input, State};
use crate::types::{Exit, ExitInfo, Token, TokenKind};

impl<K: Kernel> Reactor<K> {
    pub(super) fn serve(&mut self, notice: Notice) {
        let token = match notice {
            Notice::Outcome(t)
            | Notice::Exit(t)
            | Notice::MemberGone(t)
            | Notice::CgroupChanged(t)
            | Notice::Writable(t)
            | Notice::Readable(t) => t,
            Notice::Woken => return,
        };
        let Some(key) = self.find(token) else {
            self.stats.stale += 1;
            return;
        };
        match notice {
            Notice::Outcome(_) => self.ask_outcome(key),
            Notice::Exit(_) => self.ask_exit(key),
            Notice::MemberGone(_) => self.feed_input(key, Input::MemberGone),
            Notice::CgroupChanged(_) => self.feed_input(key, Input::CgroupChanged),
            Notice::Writable(_) => self.want_write(key),
            Notice::Readable(_) => self.readable(key, token),
            Notice::Woken => {}
        }
    }

    /// How did the spawn go?
    pub(super) fn ask_outcome(&mut self, key: usize) {
        if self.table[key].lifecycle.state() != State::Spawning {
            return;
        }
        let token = self.table[key].generation.token();
        match self.kernel.outcome(token) {
            SpawnOutcome::NotYet => {}
            SpawnOutcome::Started => self.feed_input(key, Input::Started),
            SpawnOutcome::Failed(error) => {
                let entry = &mut self.table[key];
                entry.error = Some(error.redacted_with(|text| entry.run.projection.text(text)));
                self.feed_input(key, Input::StartFailed);
            }
        }
    }

    /// Has the leader ended? Its spawn's outcome is told first.
    pub(super) fn ask_exit(&mut self, key: usize) {
        self.ask_outcome(key);
        let entry = &self.table[key];
        if entry.lifecycle.exit_seen() || entry.lifecycle.state() == State::Spawning {
            return;
        }
        let info = match self
            .kernel
            .collect(entry.generation.token(), entry.lifecycle.collect_mode())
        {
            Collected::NotYet => return,
            Collected::Ended(info) => info,
            Collected::Lost => ExitInfo {
                exit: Exit::unknown(),
                usage: None,
            },
        };
        let told = self.table[key].told_mut(&mut self.boxes);
        (told.exited, told.usage) = (Some(self.now), info.usage);
        self.feed_input(key, Input::Exit(info));
    }

    /// Bytes of a generation that has exited and waits for its verdict are read at once, others
    /// when it is their turn.
    fn readable(&mut self, key: usize, token: Token) {
        let TokenKind::Output(stream) = token.kind() else {
            return;
        };
        self.ask_outcome(key);
        match self.table[key].lifecycle.state() {
            State::Exited => self.sweep_stream(key, stream),
            State::Spawning
            | State::Running
            | State::Drained
            | State::DrainTimedOut
            | State::Failing
            | State::Failed
            | State::Unfinished
            | State::Gone => {
                self.heat(key, stream);
            }
        }
    }
}
