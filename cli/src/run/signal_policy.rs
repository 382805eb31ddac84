//! The rules that decide what a signal to lastwords means for the command (SPEC 8). Pure: the
//! caller passes the time and carries out the action.

use crate::mapping::{SignalMapping, map_signal};
use lastwords::Signal;
use std::time::{Duration, Instant};

/// Two requests with the same signal within this time are one: `timeout`, make and service managers
/// signal their child and then its group.
const SAME_REQUEST: Duration = Duration::from_millis(300);
/// A second INT within this time kills the command.
const REPEATED_INT: Duration = Duration::from_secs(2);

/// What has to be done for a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Nothing,
    /// Send this signal to the command's group.
    ToGroup(Signal),
    /// Send this signal to the command's leader.
    ToLeader(Signal),
    /// Stop the command and what it left. The stop begins with the given signal, or with
    /// `--stop-signal`.
    Stop(Option<Signal>),
    /// Send SIGKILL to the command and what it left.
    Kill,
    /// Find out whether the command's leader was stopped.
    CheckLeader,
    /// Suspend the command and lastwords.
    Suspend,
    /// Continue the command.
    Resume,
}

/// Whether the command's leader has ended. Signals that a user sends then mean what it has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leader {
    Running,
    Ended,
}

/// The last signal of one kind that was counted as a request.
#[derive(Clone, Copy, Debug)]
struct Request {
    signal: Signal,
    at: Instant,
}

/// The state that the rules depend on.
#[derive(Debug)]
pub(super) struct SignalPolicy {
    mappings: Vec<SignalMapping>,
    leader: Leader,
    /// When the time limit stops the command.
    deadline: Option<Instant>,
    /// Whether a signal has begun a stop.
    stop_requested: bool,
    requests: Vec<Request>,
}

impl SignalPolicy {
    pub(super) fn new(mappings: &[SignalMapping], deadline: Option<Instant>) -> SignalPolicy {
        SignalPolicy {
            mappings: mappings.to_vec(),
            leader: Leader::Running,
            deadline,
            stop_requested: false,
            requests: Vec::new(),
        }
    }

    /// When the time limit stops the command.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// The command's leader has ended.
    pub(super) fn leader_ended(&mut self) {
        self.leader = Leader::Ended;
    }

    /// What has to be done for a signal that has come now.
    pub(super) fn action(&mut self, now: Instant, signal: Signal) -> Action {
        match signal {
            Signal::CHLD => return Action::CheckLeader,
            Signal::TSTP => return Action::Suspend,
            Signal::CONT => return Action::Resume,
            _ => {}
        }
        let Some(mapped) = map_signal(&self.mappings, signal) else {
            return Action::Nothing;
        };
        match (signal, self.leader) {
            (Signal::TERM, _) => self.on_term(now, mapped),
            (Signal::INT, leader) => self.on_int(now, mapped, leader),
            (Signal::HUP | Signal::QUIT, Leader::Ended) if self.is_stopping(now) => Action::Nothing,
            (Signal::HUP | Signal::QUIT, Leader::Ended) => self.begin_stop(None),
            (Signal::HUP | Signal::QUIT | Signal::WINCH, _) => Action::ToGroup(mapped),
            _ => Action::ToLeader(mapped),
        }
    }

    fn on_term(&mut self, now: Instant, mapped: Signal) -> Action {
        match self.count_request(now, Signal::TERM) {
            None => Action::Nothing,
            Some(_) if self.is_stopping(now) => self.kill(),
            Some(_) => self.begin_stop((mapped != Signal::TERM).then_some(mapped)),
        }
    }

    fn on_int(&mut self, now: Instant, mapped: Signal, leader: Leader) -> Action {
        match self.count_request(now, Signal::INT) {
            None => Action::Nothing,
            Some(_) if self.is_stopping(now) => self.kill(),
            Some(Some(since)) if since <= REPEATED_INT => self.kill(),
            Some(_) if leader == Leader::Ended => self.begin_stop(None),
            Some(_) => Action::ToGroup(mapped),
        }
    }

    /// Counts a request. `None` if it repeats one that was counted just before; else the time since
    /// the last one with the same signal.
    fn count_request(&mut self, now: Instant, signal: Signal) -> Option<Option<Duration>> {
        let Some(last) = self.requests.iter_mut().find(|last| last.signal == signal) else {
            self.requests.push(Request { signal, at: now });
            return Some(None);
        };
        let since = now.saturating_duration_since(last.at);
        if since < SAME_REQUEST {
            return None;
        }
        last.at = now;
        Some(Some(since))
    }

    fn is_stopping(&self, now: Instant) -> bool {
        self.stop_requested || self.deadline.is_some_and(|deadline| deadline <= now)
    }

    fn begin_stop(&mut self, signal: Option<Signal>) -> Action {
        self.stop_requested = true;
        Action::Stop(signal)
    }

    fn kill(&mut self) -> Action {
        self.stop_requested = true;
        Action::Kill
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::parse_signal;

    /// Feeds signals at times in milliseconds.
    fn actions(policy: &mut SignalPolicy, signals: &[(u64, Signal)]) -> Vec<Action> {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let actions = signals
            .iter()
            .map(|(ms, signal)| policy.action(at(*ms), *signal));
        actions.collect()
    }

    fn plain() -> SignalPolicy {
        SignalPolicy::new(&[], None)
    }

    #[test]
    fn two_terms_of_one_request_are_one_stop() {
        let signals = [(0, Signal::TERM), (1, Signal::TERM), (299, Signal::TERM)];
        assert_eq!(
            actions(&mut plain(), &signals),
            [Action::Stop(None), Action::Nothing, Action::Nothing]
        );
    }

    #[test]
    fn a_later_term_or_an_int_kills_during_a_stop() {
        for (ms, second) in [(300, Signal::TERM), (1, Signal::INT)] {
            assert_eq!(
                actions(&mut plain(), &[(0, Signal::TERM), (ms, second)]),
                [Action::Stop(None), Action::Kill]
            );
        }
    }

    #[test]
    fn a_second_int_kills_between_300_milliseconds_and_two_seconds() {
        let forward = Action::ToGroup(Signal::INT);
        for (ms, action) in [
            (299, Action::Nothing),
            (300, Action::Kill),
            (2000, Action::Kill),
            (2001, forward),
        ] {
            let signals = [(0, Signal::INT), (ms, Signal::INT)];
            assert_eq!(actions(&mut plain(), &signals), [forward, action], "{ms}");
        }
    }

    #[test]
    fn after_the_leaders_exit_signals_of_the_user_stop_what_is_left() {
        for signal in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM] {
            let mut policy = plain();
            policy.leader_ended();
            assert_eq!(
                actions(&mut policy, &[(0, signal), (1, signal), (400, signal)])[..2],
                [Action::Stop(None), Action::Nothing],
                "{signal}"
            );
        }
    }

    #[test]
    fn a_term_after_the_time_limit_kills() {
        let mut policy = SignalPolicy::new(&[], Some(Instant::now()));
        assert_eq!(actions(&mut policy, &[(10, Signal::TERM)]), [Action::Kill]);
    }

    #[test]
    fn other_signals_go_to_the_leader() {
        for signal in [Signal::USR1, Signal::ALRM, Signal::PWR, Signal::IO] {
            assert_eq!(
                actions(&mut plain(), &[(0, signal), (1, signal)]),
                [Action::ToLeader(signal), Action::ToLeader(signal)]
            );
        }
    }

    #[test]
    fn mapped_signals_replace_the_signal_or_drop_it() {
        let policy =
            |text: &str| SignalPolicy::new(&[parse_signal(text).expect("well formed")], None);
        let of = |text: &str, signal| actions(&mut policy(text), &[(0, signal)])[0];
        assert_eq!(
            of("TERM:QUIT", Signal::TERM),
            Action::Stop(Some(Signal::QUIT))
        );
        assert_eq!(of("TERM:0", Signal::TERM), Action::Nothing);
        assert_eq!(of("HUP:USR1", Signal::HUP), Action::ToGroup(Signal::USR1));
        assert_eq!(of("USR1:0", Signal::USR1), Action::Nothing);
        assert_eq!(of("INT:TERM", Signal::INT), Action::ToGroup(Signal::TERM));
    }
}
