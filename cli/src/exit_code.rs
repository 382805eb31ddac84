//! The exit code of lastwords (SPEC 8).

use super::args::StatusArgs;
use super::mapping::map_exit;
use lastwords::{Outcome, Report, SettledAs, Signal, SpawnError, SpawnStep, StopReason, Verdict};

/// The command returned 0, but its background work was waited for and did not finish.
const UNFINISHED_WORK: u8 = 123;
/// `--timeout` stopped the command.
const TIMED_OUT: u8 = 124;
/// lastwords itself failed.
pub(crate) const OWN_FAILURE: u8 = 125;
/// The command cannot be executed, as env(1) and shells report it.
const NOT_EXECUTABLE: u8 = 126;
/// The command was not found, as env(1) and shells report it.
const NOT_FOUND: u8 = 127;

/// How lastwords ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It exits with this code.
    Status(u8),
    /// It dies by the signal that ended the leader, so that a shell ends its loop. Process 1 cannot
    /// die by a signal and exits with 128+N.
    Signal(Signal),
}

/// How lastwords ends after this final report.
pub(crate) fn of_report(report: &Report, options: &StatusArgs) -> Ending {
    if let Some(error) = &report.error {
        return Ending::Status(of_failed_spawn(error));
    }
    if is_stuck(report) {
        return Ending::Status(OWN_FAILURE);
    }
    let code = report.exit.and_then(|exit| exit.code);
    let signal = report.exit.and_then(|exit| exit.signal);
    // A time limit that passed after the leader's exit changes only a success.
    let limit_passed = report
        .stop
        .as_ref()
        .is_some_and(|stop| stop.reason == StopReason::Timeout);
    let own_failure = signal.is_some() || code.is_some_and(|code| code != 0);
    let timed_out = report.outcome == Some(Outcome::TimedOut) || (limit_passed && !own_failure);
    if timed_out && !options.preserve_status {
        return Ending::Status(TIMED_OUT);
    }
    let status = match (code, signal) {
        (_, Some(signal)) => Some(for_signal(signal)),
        (code, None) => code.and_then(|code| u8::try_from(code).ok()),
    };
    if let Some(mapped) = status.and_then(|status| map_exit(&options.map_exit, status)) {
        return Ending::Status(if mapped == 0 && work_did_not_finish(report) {
            UNFINISHED_WORK
        } else {
            mapped
        });
    }
    match (code, signal) {
        (_, Some(signal)) if signal == Signal::INT || signal == Signal::QUIT => {
            Ending::Signal(signal)
        }
        (_, Some(signal)) => Ending::Status(for_signal(signal)),
        (Some(0), None) if work_did_not_finish(report) => Ending::Status(UNFINISHED_WORK),
        (Some(code), None) => Ending::Status(u8::try_from(code).unwrap_or(OWN_FAILURE)),
        (None, None) => Ending::Status(OWN_FAILURE),
    }
}

/// The exit code that stands for a signal: 128+N.
pub(crate) fn for_signal(signal: Signal) -> u8 {
    u8::try_from(128 + signal.as_raw()).unwrap_or(OWN_FAILURE)
}

/// The exit code for a failed spawn, as env(1) and shells choose it.
fn of_failed_spawn(error: &SpawnError) -> u8 {
    if error.is_not_found() {
        return NOT_FOUND;
    }
    match error.step() {
        SpawnStep::Find | SpawnStep::Exec => NOT_EXECUTABLE,
        _ if error.largest().is_some() => NOT_EXECUTABLE,
        _ => OWN_FAILURE,
    }
}

/// Whether a process survived SIGKILL or could not be signalled.
fn is_stuck(report: &Report) -> bool {
    report.state() == Some(Verdict::Unfinished)
        || report
            .stop
            .as_ref()
            .is_some_and(|stop| !stop.stuck.is_empty())
        || report
            .background
            .as_ref()
            .is_some_and(|work| work.state == SettledAs::Stuck)
}

/// Whether background work was terminated, or kept after the wait.
fn work_did_not_finish(report: &Report) -> bool {
    report
        .background
        .as_ref()
        .is_some_and(|work| matches!(work.state, SettledAs::Terminated | SettledAs::Kept))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastwords::{Backend, Capabilities, Errno, Exit, ExitSource, StatusSource, TooLarge};

    const ENOENT: Errno = Errno::from_raw(2);

    fn report_of(error: SpawnError) -> Report {
        let caps = Capabilities::bare(Backend::Epoll, ExitSource::Pidfd);
        Report::of_failed_spawn(vec!["x".into()], error, &caps)
    }

    fn failed(error: SpawnError) -> Ending {
        of_report(&report_of(error), &StatusArgs::default())
    }

    fn ended(exit: Exit, outcome: Outcome) -> Ending {
        ended_with(exit, outcome, &StatusArgs::default())
    }

    fn ended_with(exit: Exit, outcome: Outcome, options: &StatusArgs) -> Ending {
        let mut report = report_of(SpawnError::new(SpawnStep::Exec, ENOENT));
        (report.error, report.exit, report.outcome) = (None, Some(exit), Some(outcome));
        of_report(&report, options)
    }

    #[test]
    fn a_failed_spawn_ends_as_env_and_the_shells_end() {
        let new = |step, errno| SpawnError::new(step, Errno::from_raw(errno));
        assert_eq!(failed(new(SpawnStep::Find, 2)), Ending::Status(127));
        assert_eq!(failed(new(SpawnStep::Exec, 2)), Ending::Status(127));
        assert_eq!(
            failed(new(SpawnStep::Exec, 2).because("the interpreter is missing")),
            Ending::Status(126)
        );
        assert_eq!(failed(new(SpawnStep::Find, 13)), Ending::Status(126));
        assert_eq!(failed(new(SpawnStep::Exec, 8)), Ending::Status(126));
        assert_eq!(
            failed(new(SpawnStep::Clone, 7).with_sizes(TooLarge::new(1, Vec::new()))),
            Ending::Status(126)
        );
        assert_eq!(failed(new(SpawnStep::Chdir, 2)), Ending::Status(125));
        assert_eq!(failed(new(SpawnStep::Pipe, 24)), Ending::Status(125));
    }

    #[test]
    fn an_end_is_handed_on() {
        let code = |code| Exit::with_code(code, StatusSource::Waitid);
        let by = |signal| Exit::by_signal(signal, false, StatusSource::Waitid);
        assert_eq!(ended(code(0), Outcome::Succeeded), Ending::Status(0));
        assert_eq!(ended(code(255), Outcome::Failed), Ending::Status(255));
        assert_eq!(ended(code(3), Outcome::Stopped), Ending::Status(3));
        assert_eq!(
            ended(by(Signal::TERM), Outcome::Stopped),
            Ending::Status(143)
        );
        assert_eq!(
            ended(by(Signal::INT), Outcome::Signaled),
            Ending::Signal(Signal::INT)
        );
        assert_eq!(
            ended(by(Signal::QUIT), Outcome::Signaled),
            Ending::Signal(Signal::QUIT)
        );
        assert_eq!(
            ended(by(Signal::INT), Outcome::TimedOut),
            Ending::Status(124)
        );
        assert_eq!(ended(code(0), Outcome::TimedOut), Ending::Status(124));
        assert_eq!(
            ended(Exit::unknown(), Outcome::Unknown),
            Ending::Status(125)
        );
    }

    #[test]
    fn a_status_of_the_command_can_be_mapped() {
        let options = StatusArgs {
            preserve_status: false,
            map_exit: ["143:0", "130:5"]
                .map(|text| crate::mapping::parse_exit(text).expect("well formed"))
                .to_vec(),
        };
        let by = |signal| Exit::by_signal(signal, false, StatusSource::Waitid);
        let of = |exit, outcome| ended_with(exit, outcome, &options);
        assert_eq!(of(by(Signal::TERM), Outcome::Stopped), Ending::Status(0));
        assert_eq!(of(by(Signal::INT), Outcome::Signaled), Ending::Status(5));
        assert_eq!(of(by(Signal::TERM), Outcome::TimedOut), Ending::Status(124));
    }

    #[test]
    fn the_commands_own_status_is_kept_after_a_time_limit_on_request() {
        let options = StatusArgs {
            preserve_status: true,
            map_exit: Vec::new(),
        };
        let exit = Exit::by_signal(Signal::TERM, false, StatusSource::Waitid);
        assert_eq!(
            ended_with(exit, Outcome::TimedOut, &options),
            Ending::Status(143)
        );
    }
}
