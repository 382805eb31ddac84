//! The report as JSON, schema 1: every field always there, null where there is no value, infinite
//! bounds null, signals without `SIG`. Fields are added, never renamed. What each of them says
//! stands in the documentation of [`Report`].

use super::{
    ContainedBy, DrainReport, EndedBy, Report, Settled, SettledAs, StdinEnd, StdinReport,
    StopReason, StopReport, StreamEnd, StreamReport, Timing, Verdict,
};
use crate::types::{
    Backend, Bound, Errno, Exit, ExitSource, Holder, Outcome, ResourceUsage, Signal, SpawnError,
    Survivor,
};
use serde::{Serialize, Serializer};
use std::time::{Duration, SystemTime};

/// The number of the schema.
const SCHEMA: u32 = 1;

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        ReportJson {
            schema: SCHEMA,
            id: self.id.as_deref(),
            // A number is given to what gets as far as a process.
            generation: (self.generation != 0).then_some(self.generation),
            session: self.session.as_deref(),
            name: self.name.as_deref(),
            command: &self.command,
            pid: self.pid,
            error: self.error.as_ref().map(ErrorJson::from),
            state: self.state(),
            outcome: self.outcome,
            exit: self.exit,
            stop: self.stop.as_ref().map(StopJson::from),
            drain: self.drain.as_ref().map(DrainJson::from),
            streams: StreamsJson::of(self),
            stdin: self
                .stdin
                .filter(|_| self.error.is_none())
                .map(StdinJson::from),
            stderr_tail: &self.stderr_tail,
            late_tail: &self.late_tail,
            redacted: self.redacted,
            background: self.background.as_ref().map(BackgroundJson::from),
            timing: self.timing.map(TimingJson::from),
            usage: self.usage.map(UsageJson::from),
            backend: self.backend,
            exit_source: self.exit_source,
        }
        .serialize(serializer)
    }
}

#[derive(Serialize)]
struct ReportJson<'a> {
    schema: u32,
    id: Option<&'a str>,
    generation: Option<u64>,
    session: Option<&'a str>,
    name: Option<&'a str>,
    command: &'a [String],
    pid: Option<u32>,
    error: Option<ErrorJson>,
    state: Option<Verdict>,
    outcome: Option<Outcome>,
    exit: Option<Exit>,
    stop: Option<StopJson<'a>>,
    drain: Option<DrainJson<'a>>,
    streams: StreamsJson,
    stdin: Option<StdinJson>,
    stderr_tail: &'a [String],
    late_tail: &'a [String],
    redacted: bool,
    background: Option<BackgroundJson<'a>>,
    timing: Option<TimingJson>,
    usage: Option<UsageJson>,
    backend: Backend,
    exit_source: ExitSource,
}

#[derive(Serialize)]
struct ErrorJson {
    step: &'static str,
    path: Option<String>,
    errno: String,
    message: String,
}

impl From<&SpawnError> for ErrorJson {
    fn from(error: &SpawnError) -> ErrorJson {
        ErrorJson {
            step: error.step().name(),
            path: error.path().map(|path| path.to_string_lossy().into_owned()),
            errno: errno(error.errno()),
            message: format!("failed to {error}"),
        }
    }
}

/// Its name, or `errno N`.
fn errno(errno: Errno) -> String {
    format!("{errno:?}")
}

#[derive(Serialize)]
struct StopJson<'a> {
    reason: StopReason,
    signal: Signal,
    escalated: bool,
    denied: bool,
    stuck: &'a [Survivor],
}

impl<'a> From<&'a StopReport> for StopJson<'a> {
    fn from(stop: &'a StopReport) -> StopJson<'a> {
        let StopReport {
            reason,
            signal,
            escalated,
            stuck,
            denied,
        } = stop;
        StopJson {
            reason: *reason,
            signal: *signal,
            escalated: *escalated,
            denied: *denied,
            stuck,
        }
    }
}

#[derive(Serialize)]
struct DrainJson<'a> {
    idle_ms: Option<u64>,
    limit_ms: Option<u64>,
    ended_by: Option<EndedBy>,
    waited_us: u64,
    holders: &'a [Holder],
    holders_complete: bool,
}

impl<'a> From<&'a DrainReport> for DrainJson<'a> {
    fn from(drain: &'a DrainReport) -> DrainJson<'a> {
        DrainJson {
            idle_ms: bound_millis(drain.policy.idle),
            limit_ms: bound_millis(drain.policy.limit),
            ended_by: drain.ended_by,
            waited_us: micros(drain.waited),
            holders: &drain.holders,
            holders_complete: drain.holders_complete,
        }
    }
}

#[derive(Serialize)]
struct StreamsJson {
    stdout: Option<StreamJson>,
    stderr: Option<StreamJson>,
}

impl StreamsJson {
    /// Of a command that never ran, nothing was captured.
    fn of(report: &Report) -> StreamsJson {
        let ran = |stream: Option<StreamReport>| {
            stream
                .filter(|_| report.error.is_none())
                .map(StreamJson::from)
        };
        StreamsJson {
            stdout: ran(report.stdout),
            stderr: ran(report.stderr),
        }
    }
}

#[derive(Serialize)]
struct StreamJson {
    bytes: u64,
    dropped: u64,
    late: u64,
    end: Option<StreamEnd>,
    error: Option<String>,
    capacity: Option<u32>,
}

impl From<StreamReport> for StreamJson {
    fn from(stream: StreamReport) -> StreamJson {
        let StreamReport {
            bytes,
            dropped,
            late,
            end,
            error,
            capacity,
        } = stream;
        StreamJson {
            bytes,
            dropped,
            late,
            end,
            error: error.map(errno),
            capacity,
        }
    }
}

#[derive(Serialize)]
struct StdinJson {
    bytes: u64,
    unwritten: u64,
    end: StdinEnd,
    error: Option<String>,
}

impl From<StdinReport> for StdinJson {
    fn from(stdin: StdinReport) -> StdinJson {
        let StdinReport {
            bytes,
            unwritten,
            end,
            error,
        } = stdin;
        StdinJson {
            bytes,
            unwritten,
            end,
            error: error.map(errno),
        }
    }
}

#[derive(Serialize)]
struct BackgroundJson<'a> {
    state: SettledAs,
    complete: Option<bool>,
    waited_ms: u64,
    contained_by: ContainedBy,
    processes: &'a [Survivor],
}

impl<'a> From<&'a Settled> for BackgroundJson<'a> {
    fn from(settled: &'a Settled) -> BackgroundJson<'a> {
        BackgroundJson {
            state: settled.state,
            complete: settled.state.complete(),
            waited_ms: millis(settled.waited),
            contained_by: settled.contained_by,
            processes: &settled.processes,
        }
    }
}

#[derive(Serialize)]
struct TimingJson {
    started_at: String,
    ran_us: Option<u64>,
    total_us: u64,
}

impl From<Timing> for TimingJson {
    fn from(timing: Timing) -> TimingJson {
        TimingJson {
            started_at: rfc3339(timing.started_at),
            ran_us: timing.ran.map(micros),
            total_us: micros(timing.total),
        }
    }
}

#[derive(Serialize)]
struct UsageJson {
    user_us: u64,
    system_us: u64,
    max_rss_kib: Option<u64>,
}

impl From<ResourceUsage> for UsageJson {
    fn from(usage: ResourceUsage) -> UsageJson {
        UsageJson {
            user_us: micros(usage.user),
            system_us: micros(usage.system),
            max_rss_kib: usage.max_rss_kib,
        }
    }
}

/// In UTC, to the microsecond. A clock outside the years 1970 to 9999 is moved to their edge: the
/// format has no others.
fn rfc3339(at: SystemTime) -> String {
    const LAST: Duration = Duration::from_secs(253_402_300_799);
    let since = at
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or(Duration::ZERO)
        .min(LAST);
    humantime::format_rfc3339_micros(SystemTime::UNIX_EPOCH + since).to_string()
}

fn bound_millis(bound: Bound) -> Option<u64> {
    bound.duration().map(millis)
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

fn micros(d: Duration) -> u64 {
    u64::try_from(d.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Capabilities, DrainPolicy, SpawnStep, StatusSource, Stream};
    use serde_json::{Value, json};

    fn json(report: &Report) -> Value {
        serde_json::to_value(report).expect("a report has nothing that JSON has not")
    }

    fn failed() -> Report {
        let error = SpawnError::new(SpawnStep::Find, Errno::from_raw(libc::ENOENT)).at("nope");
        Report::of_failed_spawn(
            vec!["nope".into(), "-x".into()],
            error,
            &Capabilities::bare(Backend::Epoll, ExitSource::Pidfd),
        )
    }

    fn survivor() -> Survivor {
        Survivor::new(9, "sleep".into(), 'S', Duration::from_millis(10))
    }

    fn full() -> Report {
        let mut report = failed();
        report.error = None;
        report.id = Some("an id".into());
        report.generation = 1;
        report.pid = Some(7);
        report.outcome = Some(Outcome::Signaled);
        report.exit = Some(Exit::by_signal(Signal::TERM, true, StatusSource::Waitid));
        report.stop = Some(StopReport {
            reason: StopReason::Background,
            signal: Signal::TERM,
            escalated: true,
            stuck: vec![survivor()],
            denied: false,
        });
        report.drain = Some(DrainReport {
            verdict: Verdict::DrainTimedOut,
            ended_by: Some(EndedBy::Idle),
            policy: DrainPolicy::default().limit(Bound::Never),
            waited: Duration::from_micros(84),
            holders: vec![Holder::new(
                9,
                "sleep".into(),
                vec![Stream::Stdout, Stream::Stderr],
            )],
            holders_complete: true,
            open: vec![Stream::Stdout, Stream::Stderr],
        });
        report.stdout = Some(StreamReport {
            bytes: 5,
            dropped: 1,
            late: 2,
            end: Some(StreamEnd::Error),
            error: Some(Errno::from_raw(libc::EIO)),
            capacity: None,
        });
        report.stdin = Some(StdinReport {
            bytes: 3,
            unwritten: 4,
            end: StdinEnd::NoReader,
            error: None,
        });
        report.stderr_tail = vec!["last".into()];
        report.late_tail = vec!["late".into()];
        report.background = Some(Settled {
            state: SettledAs::Terminated,
            waited: Duration::from_millis(1500),
            contained_by: ContainedBy::Group,
            processes: vec![survivor()],
        });
        report.timing = Some(Timing {
            started_at: SystemTime::UNIX_EPOCH + Duration::from_micros(1_700_000_000_000_001),
            ran: Some(Duration::from_micros(3)),
            total: Duration::from_micros(4),
        });
        report.usage = Some(ResourceUsage::new(
            Duration::from_micros(1),
            Duration::from_micros(2),
            None,
        ));
        report
    }

    #[test]
    fn a_report_has_the_form_of_schema_1() {
        let process = json!({"pid": 9, "comm": "sleep", "state": "S", "age_ms": 10});
        let expected = json!({
            "schema": 1, "id": "an id", "generation": 1, "session": null, "name": null,
            "command": ["nope", "-x"], "pid": 7, "error": null,
            "state": "drain_timed_out", "outcome": "signaled",
            "exit": {"code": null, "signal": "TERM", "core_dumped": true, "source": "waitid"},
            "stop": {"reason": "background", "signal": "TERM", "escalated": true, "denied": false, "stuck": [process]},
            "drain": {"idle_ms": 2000, "limit_ms": null, "ended_by": "idle", "waited_us": 84,
                      "holders": [{"pid": 9, "comm": "sleep", "streams": ["stdout", "stderr"]}], "holders_complete": true},
            "streams": {"stdout": {"bytes": 5, "dropped": 1, "late": 2, "end": "error", "error": "EIO", "capacity": null},
                        "stderr": null},
            "stdin": {"bytes": 3, "unwritten": 4, "end": "no_reader", "error": null},
            "stderr_tail": ["last"], "late_tail": ["late"], "redacted": false,
            "background": {"state": "terminated", "complete": false, "waited_ms": 1500, "contained_by": "group",
                           "processes": [process]},
            "timing": {"started_at": "2023-11-14T22:13:20.000001Z", "ran_us": 3, "total_us": 4},
            "usage": {"user_us": 1, "system_us": 2, "max_rss_kib": null},
            "backend": "epoll", "exit_source": "pidfd",
        });
        assert_eq!(json(&full()), expected);
    }

    #[test]
    fn a_failed_spawn_has_the_same_fields_and_null_where_there_is_no_value() {
        let (failed, full) = (json(&failed()), json(&full()));
        let keys = |value: &Value| {
            value
                .as_object()
                .map(|o| o.keys().cloned().collect::<Vec<_>>())
        };
        assert_eq!(keys(&failed), keys(&full));
        assert_eq!(failed["error"]["step"], "find");
        assert_eq!(failed["error"]["path"], "nope");
        assert_eq!(failed["error"]["errno"], "ENOENT");
        assert!(
            failed["error"]["message"]
                .as_str()
                .is_some_and(|m| m.contains("nope"))
        );
        for field in [
            "id",
            "generation",
            "pid",
            "state",
            "outcome",
            "exit",
            "stop",
            "drain",
            "stdin",
            "background",
            "timing",
            "usage",
        ] {
            assert!(failed[field].is_null(), "{field}");
        }
        assert_eq!(failed["streams"], json!({"stdout": null, "stderr": null}));
    }

    #[test]
    fn a_field_is_there_whether_it_has_a_value_or_not() {
        let (empty, mut report) = (json(&full()), full());
        report.stdout = report.stdout.map(|stdout| StreamReport {
            capacity: Some(4096),
            ..stdout
        });
        report.stdin = report.stdin.map(|stdin| StdinReport {
            end: StdinEnd::Error,
            error: Some(Errno::from_raw(libc::EIO)),
            ..stdin
        });
        report.stop = report.stop.map(|stop| StopReport {
            denied: true,
            ..stop
        });
        let told = json(&report);
        assert_eq!(
            (
                &empty["streams"]["stdout"]["capacity"],
                &told["streams"]["stdout"]["capacity"]
            ),
            (&Value::Null, &json!(4096))
        );
        assert_eq!(
            (&empty["stop"]["denied"], &told["stop"]["denied"]),
            (&json!(false), &json!(true))
        );
        assert_eq!(
            told["stdin"],
            json!({"bytes": 3, "unwritten": 4, "end": "error", "error": "EIO"})
        );
        report.stdin = None;
        assert_eq!(json(&report).get("stdin"), Some(&Value::Null));
    }

    #[test]
    fn nobody_looked_is_neither_complete_nor_incomplete() {
        let mut report = full();
        if let Some(settled) = &mut report.background {
            settled.state = SettledAs::Disabled;
        }
        assert_eq!(json(&report)["background"]["complete"], Value::Null);
    }

    #[test]
    fn a_clock_beyond_the_format_is_moved_to_its_edge() {
        assert_eq!(
            rfc3339(SystemTime::UNIX_EPOCH - Duration::from_secs(5)),
            "1970-01-01T00:00:00.000000Z"
        );
        assert_eq!(
            rfc3339(SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 40)),
            "9999-12-31T23:59:59.000000Z"
        );
    }
}
