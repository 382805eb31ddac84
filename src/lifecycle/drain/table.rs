//! The table of the drain: what each message does in each state.

use super::phase::ReadReason;
use super::{Drain, Phase};
use crate::lifecycle::context::Context;
use crate::lifecycle::message::Message;
use crate::lifecycle::routing::DrainMessage;
use crate::lifecycle::stop::Stop;
use crate::lifecycle::vocabulary::{Effect, Notification};
use crate::report::{EndedBy, StreamEnd};

impl Drain {
    /// Takes in one message. `stop` says whether a stop was asked for, and why.
    pub(in crate::lifecycle) fn on_message(
        &mut self,
        cx: &mut Context<'_>,
        message: Message<'_>,
        stop: &Stop,
    ) {
        let Some(message) = DrainMessage::route(message) else {
            return;
        };
        match self.phase {
            Phase::Spawning => self.spawning(cx, message, stop),
            Phase::Failing => self.failing(cx, message, stop),
            Phase::Running => self.running(cx, message, stop),
            Phase::FirstRead { cut } => self.first_read(cx, message, stop, cut),
            Phase::Exited => self.exited(cx, message, stop),
            Phase::LastRead { reason, got_bytes } => {
                self.last_read(cx, message, stop, (reason, got_bytes))
            }
            Phase::Drained => self.drained(cx, message),
            Phase::DrainTimedOut { by } => self.drain_timed_out(cx, message, by),
            Phase::Unfinished => self.unfinished(cx, message, stop),
            Phase::Failed => self.failed(cx, message),
            // Only facts of the same input arrive.
            Phase::Detached => {}
        }
    }

    fn spawning(&mut self, cx: &mut Context<'_>, message: DrainMessage<'_>, stop: &Stop) {
        match message {
            DrainMessage::Started => {
                self.phase = Phase::Running;
                cx.notify(Notification::Started);
            }
            DrainMessage::StartFailed => {
                self.phase = Phase::Failing;
                self.close_streams(cx, StreamEnd::Closed);
            }
            DrainMessage::Bytes(stream, _) => self.record_bytes(cx, stream),
            DrainMessage::Ended(stream, end) => self.end_stream(cx, stream, end),
            DrainMessage::StopEnded(result) => self.on_stop_ended_before_exit(cx, result, stop),
            DrainMessage::Paused(stream) => self.streams.pause(cx.now, stream),
            DrainMessage::Resumed(stream) => self.streams.resume(cx.now, stream),
            DrainMessage::GroupEmpty => {}
            DrainMessage::Exit(_)
            | DrainMessage::ReadDone
            | DrainMessage::IdleDue
            | DrainMessage::LimitDue
            | DrainMessage::Holders(..) => {
                cx.contract_violation("an answer or an exit before the outcome of the spawn");
            }
        }
    }

    fn failing(&mut self, cx: &mut Context<'_>, message: DrainMessage<'_>, stop: &Stop) {
        match message {
            DrainMessage::Exit(info) => {
                cx.notify(Notification::SpawnFailed);
                self.record_failed_spawn(cx, info);
            }
            DrainMessage::StopEnded(result) => self.on_stop_ended_before_exit(cx, result, stop),
            DrainMessage::Ended(..)
            | DrainMessage::GroupEmpty
            | DrainMessage::Paused(_)
            | DrainMessage::Resumed(_) => {}
            DrainMessage::Started
            | DrainMessage::StartFailed
            | DrainMessage::Bytes(..)
            | DrainMessage::ReadDone
            | DrainMessage::IdleDue
            | DrainMessage::LimitDue
            | DrainMessage::Holders(..) => {
                cx.contract_violation("a message that only a running program can cause")
            }
        }
    }

    fn running(&mut self, cx: &mut Context<'_>, message: DrainMessage<'_>, stop: &Stop) {
        match message {
            DrainMessage::Bytes(stream, _) => self.record_bytes(cx, stream),
            DrainMessage::Ended(stream, end) => self.end_stream(cx, stream, end),
            DrainMessage::Exit(info) => {
                self.record_exit(cx, info, stop);
                if self.streams.any_open() {
                    self.phase = Phase::FirstRead { cut: false };
                    self.read_available(cx);
                } else {
                    self.conclude_drained(cx);
                }
            }
            DrainMessage::StopEnded(result) => self.on_stop_ended_before_exit(cx, result, stop),
            DrainMessage::Paused(stream) => self.streams.pause(cx.now, stream),
            DrainMessage::Resumed(stream) => self.streams.resume(cx.now, stream),
            DrainMessage::GroupEmpty => {}
            DrainMessage::Started
            | DrainMessage::StartFailed
            | DrainMessage::ReadDone
            | DrainMessage::IdleDue
            | DrainMessage::LimitDue
            | DrainMessage::Holders(..) => cx.contract_violation("a drain before the exit"),
        }
    }

    fn first_read(
        &mut self,
        cx: &mut Context<'_>,
        message: DrainMessage<'_>,
        stop: &Stop,
        cut: bool,
    ) {
        match message {
            DrainMessage::Bytes(stream, _) => self.record_bytes(cx, stream),
            DrainMessage::Ended(stream, end) => self.end_stream_after_exit(cx, stream, end),
            DrainMessage::ReadDone => {
                self.read_pending = false;
                cx.effect(Effect::MarkLastWords);
                if cut {
                    self.begin_last_read(cx, ReadReason::Stop)
                } else {
                    self.start_bounds(cx)
                }
            }
            DrainMessage::GroupEmpty | DrainMessage::StopEnded(_) => {
                // The current read may have left a stream before its last bytes were written.
                // One more read follows it.
                self.phase = Phase::FirstRead {
                    cut: cut || !stop.is_idle(),
                };
            }
            DrainMessage::Paused(stream) => self.streams.pause(cx.now, stream),
            DrainMessage::Resumed(stream) => self.streams.resume(cx.now, stream),
            DrainMessage::Started
            | DrainMessage::StartFailed
            | DrainMessage::Exit(_)
            | DrainMessage::IdleDue
            | DrainMessage::LimitDue
            | DrainMessage::Holders(..) => {
                cx.contract_violation("a second exit, or a bound before it runs")
            }
        }
    }

    fn exited(&mut self, cx: &mut Context<'_>, message: DrainMessage<'_>, stop: &Stop) {
        match message {
            DrainMessage::Bytes(stream, _) => self.record_bytes(cx, stream),
            DrainMessage::Ended(stream, end) => {
                self.end_stream_after_exit(cx, stream, end);
                self.arm_idle_bound(cx);
            }
            DrainMessage::IdleDue => self.on_idle_due(cx, stop),
            DrainMessage::LimitDue => {
                let reason = if self.idle_has_passed(cx) {
                    ReadReason::IdleAndLimit
                } else {
                    ReadReason::Limit
                };
                self.begin_last_read(cx, reason);
            }
            DrainMessage::GroupEmpty | DrainMessage::StopEnded(_) => {
                // Either no member is left that could write, or those that are left cannot be
                // ended.
                if !stop.is_idle() {
                    self.begin_last_read(cx, ReadReason::Stop);
                }
            }
            DrainMessage::Paused(stream) => self.streams.pause(cx.now, stream),
            DrainMessage::Resumed(stream) => {
                self.streams.resume(cx.now, stream);
                self.arm_idle_bound(cx);
            }
            DrainMessage::Started
            | DrainMessage::StartFailed
            | DrainMessage::Exit(_)
            | DrainMessage::ReadDone
            | DrainMessage::Holders(..) => {
                cx.contract_violation("a second exit, or an answer nobody asked for");
            }
        }
    }

    fn last_read(
        &mut self,
        cx: &mut Context<'_>,
        message: DrainMessage<'_>,
        stop: &Stop,
        (reason, got_bytes): (ReadReason, bool),
    ) {
        match message {
            DrainMessage::Bytes(stream, _) => {
                self.record_bytes(cx, stream);
                self.phase = Phase::LastRead {
                    reason,
                    got_bytes: true,
                };
            }
            DrainMessage::Ended(stream, end) => self.end_stream_after_exit(cx, stream, end),
            DrainMessage::ReadDone => self.finish_last_read(cx, stop, reason, got_bytes),
            DrainMessage::LimitDue => {
                let reason = match reason {
                    ReadReason::Idle | ReadReason::IdleAndLimit => ReadReason::IdleAndLimit,
                    ReadReason::Limit => ReadReason::Limit,
                    // The stop was first.
                    ReadReason::Stop => ReadReason::Stop,
                    ReadReason::IdleThenStop => ReadReason::IdleThenStop,
                };
                self.phase = Phase::LastRead { reason, got_bytes };
            }
            DrainMessage::GroupEmpty | DrainMessage::StopEnded(_) => {
                let reason = match reason {
                    ReadReason::Idle | ReadReason::IdleThenStop if !stop.is_idle() => {
                        ReadReason::IdleThenStop
                    }
                    ReadReason::Idle
                    | ReadReason::IdleThenStop
                    | ReadReason::Limit
                    | ReadReason::IdleAndLimit
                    | ReadReason::Stop => reason,
                };
                self.phase = Phase::LastRead { reason, got_bytes };
            }
            DrainMessage::Paused(stream) => self.streams.pause(cx.now, stream),
            DrainMessage::Resumed(stream) => self.streams.resume(cx.now, stream),
            DrainMessage::Started
            | DrainMessage::StartFailed
            | DrainMessage::Exit(_)
            | DrainMessage::IdleDue
            | DrainMessage::Holders(..) => {
                cx.contract_violation("a second exit, or an idle bound that is not running");
            }
        }
    }

    fn drained(&mut self, cx: &mut Context<'_>, message: DrainMessage<'_>) {
        match message {
            DrainMessage::ReadDone => self.read_pending = false,
            DrainMessage::GroupEmpty
            | DrainMessage::StopEnded(_)
            | DrainMessage::Paused(_)
            | DrainMessage::Resumed(_) => {}
            DrainMessage::Started
            | DrainMessage::StartFailed
            | DrainMessage::Bytes(..)
            | DrainMessage::Ended(..)
            | DrainMessage::Exit(_)
            | DrainMessage::IdleDue
            | DrainMessage::LimitDue
            | DrainMessage::Holders(..) => cx.contract_violation("every stream has ended"),
        }
    }

    fn drain_timed_out(&mut self, cx: &mut Context<'_>, message: DrainMessage<'_>, by: EndedBy) {
        match message {
            DrainMessage::Bytes(stream, n) => {
                self.record_bytes(cx, stream);
                self.streams.record_late(stream, n);
            }
            DrainMessage::Ended(stream, end) => self.end_stream(cx, stream, end),
            DrainMessage::Holders(list, complete) => self.record_holders(cx, by, list, complete),
            // The read before the streams are closed.
            DrainMessage::ReadDone => self.read_pending = false,
            DrainMessage::GroupEmpty
            | DrainMessage::StopEnded(_)
            | DrainMessage::Paused(_)
            | DrainMessage::Resumed(_) => {}
            DrainMessage::Started
            | DrainMessage::StartFailed
            | DrainMessage::Exit(_)
            | DrainMessage::IdleDue
            | DrainMessage::LimitDue => {
                cx.contract_violation("the verdict was given");
            }
        }
    }

    fn unfinished(&mut self, cx: &mut Context<'_>, message: DrainMessage<'_>, stop: &Stop) {
        match message {
            DrainMessage::ReadDone => self.read_pending = false,
            DrainMessage::Bytes(stream, _) => self.record_bytes(cx, stream),
            DrainMessage::Ended(stream, end) => self.end_stream(cx, stream, end),
            // The leader ended while its output was being read. The stop is over already.
            DrainMessage::Exit(info) if self.outcome.is_some() => {
                self.record_exit(cx, info, stop);
                if self.streams.any_open() {
                    self.phase = Phase::FirstRead { cut: true }
                } else {
                    self.conclude_drained(cx)
                }
            }
            DrainMessage::Exit(info) => self.record_failed_spawn(cx, info),
            // The outcome of the spawn may still become known.
            DrainMessage::Started => cx.notify(Notification::Started),
            DrainMessage::StartFailed => {
                self.outcome = None;
                cx.notify(Notification::SpawnFailed);
            }
            DrainMessage::GroupEmpty
            | DrainMessage::StopEnded(_)
            | DrainMessage::Paused(_)
            | DrainMessage::Resumed(_) => {}
            DrainMessage::IdleDue | DrainMessage::LimitDue | DrainMessage::Holders(..) => {
                cx.contract_violation("there was no exit")
            }
        }
    }

    fn failed(&mut self, cx: &mut Context<'_>, message: DrainMessage<'_>) {
        match message {
            DrainMessage::ReadDone => self.read_pending = false,
            DrainMessage::Ended(stream, end) => self.end_stream(cx, stream, end),
            DrainMessage::Bytes(..)
            | DrainMessage::GroupEmpty
            | DrainMessage::StopEnded(_)
            | DrainMessage::Paused(_)
            | DrainMessage::Resumed(_) => {}
            DrainMessage::Started
            | DrainMessage::StartFailed
            | DrainMessage::Exit(_)
            | DrainMessage::IdleDue
            | DrainMessage::LimitDue
            | DrainMessage::Holders(..) => {
                cx.contract_violation("the spawn has failed, and its process is gone");
            }
        }
    }
}
