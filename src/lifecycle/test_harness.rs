//! For the tests of this room: a life, a clock that is set by hand, and the checks that hold after
//! every input.

use super::{Effect, Input, Lifecycle, Notification, Timer};
use crate::report::{EndedBy, StopReason};
use crate::types::{
    BackgroundPolicy, Bound, DrainPolicy, Exit, ExitInfo, Member, Ns, Policy, Probe, StatusSource,
    StopPolicy, Stream, Survivor, Wait,
};
use std::time::Duration;

/// So many milliseconds.
pub(super) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// An exit with this code.
pub(super) fn code(code: i32) -> ExitInfo {
    ExitInfo {
        exit: Exit::with_code(code, StatusSource::Waitid),
        usage: None,
    }
}

/// A member with this number.
pub(super) fn member(pid: u32) -> Member {
    Member {
        who: Survivor::new(pid, "sleep".to_owned(), 'S', ms(1)),
        start: u64::from(pid),
    }
}

/// The policies of these tests: idle 20 ms, limit 50 ms; stop 30 ms, stuck 40 ms; grace 10 ms, wait
/// 100 ms, terminate 60 ms.
pub(super) fn policy() -> Policy {
    Policy {
        drain: DrainPolicy {
            idle: Bound::After(ms(20)),
            limit: Bound::After(ms(50)),
        },
        stop: StopPolicy::default().grace(ms(30)).stuck_after(ms(40)),
        background: BackgroundPolicy::settle()
            .grace(ms(10))
            .wait(Wait::For(ms(100)))
            .terminate_grace(ms(60)),
        run_limit: None,
    }
}

/// The same, with nobody looking for background work.
pub(super) fn blind() -> Policy {
    Policy {
        background: BackgroundPolicy::disabled(),
        ..policy()
    }
}

/// A generation that is driven by a test.
pub(super) struct Harness {
    /// The machines under test.
    pub(super) lifecycle: Lifecycle,
    /// The current time in milliseconds.
    pub(super) now: u64,
    armed: [Option<Ns>; 8],
}

impl Harness {
    /// A process that has just been made, with both streams captured, on a kernel with the group
    /// flag.
    pub(super) fn spawned(policy: Policy) -> Harness {
        Harness::on(policy, [true, true], true)
    }

    /// A process that has just been made.
    pub(super) fn on(policy: Policy, captured: [bool; 2], group_signal: bool) -> Harness {
        let mut lifecycle = Lifecycle::new(policy, captured, false, group_signal);
        let effects = lifecycle.begin(Ns::ZERO);
        let mut harness = Harness {
            lifecycle,
            now: 0,
            armed: [None; 8],
        };
        harness.note(&effects);
        harness
    }

    /// One whose program runs.
    pub(super) fn running(policy: Policy) -> Harness {
        let mut harness = Harness::spawned(policy);
        assert_eq!(
            harness.handle(Input::Started),
            [Effect::Notify(Notification::Started)]
        );
        harness
    }

    /// One whose leader has ended with code 0, was read out, and left both streams open; the group has
    /// not answered.
    pub(super) fn exited(policy: Policy) -> Harness {
        let mut harness = Harness::running(policy);
        let _ = harness.handle(Input::Exit(code(0)));
        let _ = harness.handle(Input::ReadDone);
        harness
    }

    /// One that has its verdict by end of file, and whose group has one member that
    /// was found.
    pub(super) fn with_member(policy: Policy) -> Harness {
        let mut harness = Harness::exited(policy);
        harness.end_streams();
        let _ = harness.handle(Input::Probed(Probe::Alive));
        let _ = harness.handle(Input::Members(&[member(7)], true));
        harness
    }

    /// End of file on both streams.
    pub(super) fn end_streams(&mut self) -> Vec<Effect> {
        let mut effects = self.handle(Input::Ended(Stream::Stdout, crate::report::StreamEnd::Eof));
        effects.extend(self.handle(Input::Ended(Stream::Stderr, crate::report::StreamEnd::Eof)));
        effects
    }

    /// A stop as the host asks for it.
    pub(super) fn stop(&mut self) -> Vec<Effect> {
        self.handle(Input::Stop(policy().stop, StopReason::Request))
    }

    /// What has ended the drain, once there is a verdict.
    pub(super) fn ended_by(&self) -> Option<EndedBy> {
        self.lifecycle
            .drain_report()
            .and_then(|report| report.ended_by)
    }

    /// The last read is over, so the holders are looked for. Returns what has ended the drain.
    pub(super) fn verdict_after_last_read(&mut self) -> Option<EndedBy> {
        assert_eq!(
            self.handle(Input::ReadDone).last(),
            Some(&Effect::FindHolders)
        );
        self.ended_by()
    }

    /// The timer's time has come.
    pub(super) fn due(&mut self, timer: Timer) -> Vec<Effect> {
        let at = self
            .at(timer)
            .unwrap_or_else(|| panic!("{timer:?} is not armed"));
        self.now = self.now.max(at);
        self.armed[timer as usize] = None;
        self.handle(Input::Due(timer))
    }

    /// The stop's grace is over: who is left (`pid` alone) is listed, and killed.
    pub(super) fn grace_over(&mut self, pid: u32) -> Vec<Effect> {
        let effects = self.due(Timer::StopGrace);
        assert!(
            !effects
                .iter()
                .any(|effect| matches!(effect, Effect::SignalGroup(_))),
            "{effects:?}"
        );
        if effects.contains(&Effect::ProbeGroup) {
            let _ = self.handle(Input::Probed(Probe::Alive));
        }
        self.handle(Input::Members(&[member(pid)], true))
    }

    /// When it is due, in milliseconds.
    pub(super) fn at(&self, timer: Timer) -> Option<u64> {
        self.armed[timer as usize].map(|at| at.0 / 1_000_000)
    }

    /// One input at the current time.
    pub(super) fn handle(&mut self, input: Input<'_>) -> Vec<Effect> {
        let effects = self.lifecycle.handle(Ns::from_millis(self.now), input);
        self.note(&effects);
        for timer in Timer::ALL {
            let armed = self.armed[timer as usize].is_some();
            assert!(
                !armed || self.lifecycle.wants_timer(timer),
                "{timer:?} is armed outside the state that owns it: {:?}",
                self.lifecycle
            );
        }
        effects.to_vec()
    }

    fn note(&mut self, effects: &[Effect]) {
        for effect in effects {
            if let Effect::ArmTimer(timer, at) = effect {
                self.armed[*timer as usize] = Some(*at);
            }
            if let Effect::CancelTimer(timer) = effect {
                assert!(
                    self.armed[*timer as usize].take().is_some(),
                    "{timer:?} is cancelled, and was not armed"
                );
            }
        }
    }
}

/// The notifications to the host among these effects.
pub(super) fn notifications(effects: &[Effect]) -> Vec<Notification> {
    effects
        .iter()
        .filter_map(|effect| {
            if let Effect::Notify(notification) = effect {
                Some(*notification)
            } else {
                None
            }
        })
        .collect()
}
