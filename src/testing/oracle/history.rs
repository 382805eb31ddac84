//! The events of one generation, checked as they arrive.

use crate::capture::Captured;
use crate::reactor::Event;
use crate::report::{DrainReport, EndedBy, Report, Settled, SettledAs, StreamReport, Verdict};
use crate::types::{Exit, SpawnError, Stream, Survivor};
use std::fmt;
use std::time::Instant;

/// An event without the loan of the reactor's memory, and without the bytes of output.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the events are described at `Event`")]
pub enum Observed {
    Started {
        pid: u32,
    },
    SpawnFailed(SpawnError),
    Output {
        stream: Stream,
        len: usize,
        late: bool,
    },
    Exited(Exit),
    /// The verdict, and the last words that came with it.
    Drained(DrainReport, Vec<String>),
    BackgroundWait(Vec<Survivor>),
    Settled(Settled),
    Closed,
}

impl Observed {
    /// Its place in the order of a generation's events. Output and `BackgroundWait` have rules of
    /// their own.
    fn rank(&self) -> Option<u32> {
        match self {
            Observed::Started { .. } | Observed::SpawnFailed(_) => Some(0),
            Observed::Exited(_) => Some(1),
            Observed::Drained(..) => Some(2),
            Observed::Settled(_) => Some(3),
            Observed::Closed => Some(4),
            Observed::Output { .. } | Observed::BackgroundWait(_) => None,
        }
    }
}

/// What was delivered of one stream.
#[derive(Clone, Debug, Default)]
pub struct Delivered {
    /// The bytes of all pieces.
    pub bytes: Vec<u8>,
    /// The offset after the last piece.
    pub end: u64,
    /// Bytes that were dropped before they could be delivered.
    pub lost: u64,
    /// Bytes that came after the verdict.
    pub late: u64,
    /// When the last piece was read.
    at: Option<Instant>,
}

/// Whether every process that counts as background work can be named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// Every holder or survivor is named.
    Complete,
    /// Scans were incomplete: somebody may be there whom nobody has found.
    Incomplete,
}

/// Everything that a host was told of one generation.
#[derive(Default)]
pub struct History {
    /// The events, each with the number of the turn after which it was asked for.
    pub events: Vec<(Observed, u64)>,
    /// What was delivered of stdout and stderr.
    pub taken: [Delivered; 2],
    /// The report, once `Closed` was told.
    pub report: Option<Report>,
    /// What was kept of stdout and stderr. The host fills it in after `Closed`.
    pub kept: [Option<Captured>; 2],
}

/// The events, with consecutive pieces of output shown as one, and the report.
impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list = f.debug_list();
        for (place, (observed, turn)) in self.events.iter().enumerate() {
            let next = self.events.get(place + 1).map(|(next, _)| next);
            if !(matches!(observed, Observed::Output { .. })
                && matches!(next, Some(Observed::Output { .. })))
            {
                list.entry(&(turn, observed));
            }
        }
        list.entry(&self.report).finish()
    }
}

impl History {
    /// Records one event and checks its place in the order. `turn` is the number of the turn after
    /// which it was asked for.
    ///
    /// # Panics
    ///
    /// The event breaks an invariant.
    pub fn record(&mut self, event: Event<'_>, turn: u64) {
        assert!(self.report.is_none(), "{event:?} after Closed: {self:?}");
        let observed = match event {
            Event::Started { pid, .. } => Observed::Started { pid },
            Event::SpawnFailed { error, .. } => Observed::SpawnFailed(error),
            Event::Output {
                stream,
                bytes,
                offset,
                lost,
                at,
                late,
                ..
            } => {
                self.take(stream, bytes, offset, lost, at, late);
                Observed::Output {
                    stream,
                    len: bytes.len(),
                    late,
                }
            }
            Event::Exited { exit, .. } => Observed::Exited(exit),
            Event::Drained {
                exit,
                drain,
                last_words,
                ..
            } => {
                assert_eq!(Some(exit), self.exit(), "the exit told with the verdict");
                Observed::Drained(drain.clone(), last_words.to_vec())
            }
            Event::BackgroundWait { survivors, .. } => Observed::BackgroundWait(survivors.to_vec()),
            Event::Settled { settled, .. } => Observed::Settled(settled.clone()),
            Event::Closed { report, .. } => {
                self.report = Some(*report);
                Observed::Closed
            }
        };
        self.check_order(&observed);
        self.events.push((observed, turn));
    }

    fn take(
        &mut self,
        stream: Stream,
        bytes: &[u8],
        offset: u64,
        lost: u64,
        at: Instant,
        late: bool,
    ) {
        assert!(!bytes.is_empty(), "an empty piece");
        assert!(
            !late || self.drain().is_some(),
            "late bytes before the verdict: {self:?}"
        );
        let taken = &mut self.taken[stream.index()];
        assert_eq!(
            offset,
            taken.end + lost,
            "a hole, or bytes twice, in {stream}"
        );
        assert!(
            late || taken.late == 0,
            "bytes after late ones that are not late"
        );
        assert!(
            taken.at.is_none_or(|before| before <= at),
            "a piece that is older than the one before"
        );
        taken.bytes.extend_from_slice(bytes);
        taken.end = offset + bytes.len() as u64;
        taken.lost += lost;
        taken.late += if late { bytes.len() as u64 } else { 0 };
        taken.at = Some(at);
    }

    fn check_order(&self, observed: &Observed) {
        let before = self
            .events
            .iter()
            .filter_map(|(observed, _)| observed.rank())
            .max();
        if let Some(rank) = observed.rank() {
            assert!(before < Some(rank), "{observed:?} out of order: {self:?}");
        }
        if matches!(observed, Observed::BackgroundWait(_)) {
            assert!(
                before >= Some(1) && before < Some(3),
                "BackgroundWait out of order: {self:?}"
            );
            assert!(self.background_wait().is_none(), "BackgroundWait twice");
        }
    }

    /// Checks that the report of a closed generation agrees with its events, and with what was
    /// kept of its output.
    ///
    /// # Panics
    ///
    /// They do not agree, or the generation is not closed.
    pub fn check_report(&self, naming: Naming) {
        let report = self.report();
        if let Some(error) = &report.error {
            assert!(self.failure().is_some(), "the event of {error}");
            assert!(report.pid.is_none() && report.outcome.is_none() && report.exit.is_none());
            assert!(
                report.drain.is_none() && report.background.is_none() && report.timing.is_none()
            );
            assert!(self.exit().is_none() && self.drain().is_none() && self.settled().is_none());
            return;
        }
        match self.pid() {
            Some(pid) => assert_eq!(Some(pid), report.pid, "Started, and the pid in the report"),
            // Killed before it has executed its program, or stuck there.
            None => assert!(
                report.exit.is_none_or(|exit| exit.signal.is_some()),
                "an exit of its own without Started: {self:?}"
            ),
        }
        assert_eq!(
            self.exit(),
            report.exit,
            "Exited, and the exit in the report"
        );
        let drain = report.drain.as_ref().expect("a drain");
        assert_eq!(
            self.drain(),
            report.exit.and(Some(drain)),
            "Drained, and the drain in the report"
        );
        let streams = [report.stdout, report.stderr];
        match drain.verdict {
            Verdict::Drained => {
                assert_eq!((drain.ended_by, drain.open.len()), (Some(EndedBy::Eof), 0))
            }
            Verdict::DrainTimedOut => assert!(
                drain.ended_by.is_some_and(|by| by != EndedBy::Eof) && !drain.open.is_empty(),
                "{drain:?}"
            ),
            _ => assert!(
                report.exit.is_none() && drain.ended_by.is_none(),
                "{drain:?}"
            ),
        }
        for stream in Stream::ALL {
            self.check_stream(stream, streams[stream.index()].as_ref());
        }
        let settled = report
            .background
            .as_ref()
            .expect("what became of background work");
        assert_eq!(
            self.settled(),
            Some(settled),
            "Settled, and the background in the report"
        );
        match settled.state {
            SettledAs::None | SettledAs::Disabled => {
                assert!(settled.processes.is_empty() && self.background_wait().is_none())
            }
            // A leader that never ended is named by the report itself.
            SettledAs::Stuck if report.exit.is_none() => {}
            SettledAs::Stuck
            | SettledAs::Finished
            | SettledAs::Reported
            | SettledAs::Terminated
            | SettledAs::Kept => assert!(
                naming == Naming::Incomplete || !settled.processes.is_empty(),
                "{settled:?} of nobody"
            ),
        }
        if naming == Naming::Complete {
            let survivors = self.background_wait();
            assert!(
                survivors.is_none_or(|survivors| !survivors.is_empty()),
                "a wait for nobody: {self:?}"
            );
        }
        let timing = report.timing.as_ref().expect("times");
        assert!(timing.ran.is_none_or(|ran| ran <= timing.total));
    }

    fn check_stream(&self, stream: Stream, report: Option<&StreamReport>) {
        let taken = &self.taken[stream.index()];
        let kept = self.kept[stream.index()].as_ref();
        let Some(report) = report else {
            assert!(kept.is_none() && taken.end == 0, "{stream} is not captured");
            return;
        };
        let kept = kept.expect("what was kept of a captured stream");
        assert_eq!(report.bytes, kept.total(), "{stream}: bytes in");
        assert_eq!(
            report.bytes,
            kept.len() + report.dropped,
            "{stream}: bytes in = kept + dropped"
        );
        assert_eq!(kept.to_vec().len() as u64, kept.len());
        let timed_out = self
            .drain()
            .is_none_or(|drain| drain.verdict == Verdict::DrainTimedOut);
        assert!(
            report.late <= report.bytes && (report.late == 0 || timed_out),
            "{stream}: late bytes"
        );
        assert!(
            report.end.is_some(),
            "{stream} of a closed generation has ended somehow"
        );
        if taken.end > 0 {
            assert_eq!(
                taken.end, report.bytes,
                "{stream}: every byte was delivered"
            );
            assert_eq!(taken.bytes.len() as u64 + taken.lost, report.bytes);
            assert_eq!(taken.late, report.late, "{stream}: late bytes");
            assert!(
                taken.bytes.ends_with(&kept.to_vec()) || kept.len() > taken.bytes.len() as u64,
                "{stream}: the newest bytes are kept"
            );
        }
    }

    /// The report of a closed generation.
    pub fn report(&self) -> &Report {
        self.report
            .as_ref()
            .unwrap_or_else(|| panic!("not closed: {self:?}"))
    }

    fn find<T>(&self, pick: impl Fn(&Observed) -> Option<T>) -> Option<T> {
        self.events.iter().find_map(|(observed, _)| pick(observed))
    }

    /// The leader's process id, once it is told.
    pub fn pid(&self) -> Option<u32> {
        self.find(|observed| {
            if let Observed::Started { pid } = observed {
                Some(*pid)
            } else {
                None
            }
        })
    }

    /// Why it could not be started.
    pub fn failure(&self) -> Option<SpawnError> {
        self.find(|observed| {
            if let Observed::SpawnFailed(error) = observed {
                Some(error.clone())
            } else {
                None
            }
        })
    }

    /// The leader's end, once it is told.
    pub fn exit(&self) -> Option<Exit> {
        self.find(|observed| {
            if let Observed::Exited(exit) = observed {
                Some(*exit)
            } else {
                None
            }
        })
    }

    /// The verdict, once it is told.
    pub fn drain(&self) -> Option<&DrainReport> {
        self.events.iter().find_map(|(observed, _)| {
            if let Observed::Drained(drain, _) = observed {
                Some(drain)
            } else {
                None
            }
        })
    }

    /// The last words that were told with the verdict.
    pub fn last_words(&self) -> Option<Vec<String>> {
        self.find(|observed| {
            if let Observed::Drained(_, words) = observed {
                Some(words.clone())
            } else {
                None
            }
        })
    }

    /// Who is waited for, once that is told.
    pub fn background_wait(&self) -> Option<Vec<Survivor>> {
        self.find(|observed| {
            if let Observed::BackgroundWait(survivors) = observed {
                Some(survivors.clone())
            } else {
                None
            }
        })
    }

    /// What became of background work, once it is told.
    pub fn settled(&self) -> Option<&Settled> {
        self.events.iter().find_map(|(observed, _)| {
            if let Observed::Settled(settled) = observed {
                Some(settled)
            } else {
                None
            }
        })
    }

    /// The turn after which this was told.
    pub fn turn_of(&self, wanted: impl Fn(&Observed) -> bool) -> Option<u64> {
        self.events
            .iter()
            .find(|(observed, _)| wanted(observed))
            .map(|(_, turn)| *turn)
    }

    /// What was delivered of a stream, as text.
    pub fn delivered(&self, stream: Stream) -> String {
        String::from_utf8_lossy(&self.taken[stream.index()].bytes).into_owned()
    }

    /// What was kept of a stream, as text.
    pub fn kept(&self, stream: Stream) -> String {
        String::from_utf8_lossy(&self.kept_bytes(stream)).into_owned()
    }

    /// What was kept of a stream.
    pub fn kept_bytes(&self, stream: Stream) -> Vec<u8> {
        self.kept[stream.index()]
            .as_ref()
            .map(Captured::to_vec)
            .unwrap_or_default()
    }
}
