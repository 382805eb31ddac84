//! What was told of one generation, checked against the invariants as it comes.

use lastwords::{
    Captured, DrainReport, EndedBy, Event, Exit, Report, Settled, SettledAs, SpawnError, Stream,
    StreamReport, Survivor, Verdict,
};
use std::fmt;
use std::time::Instant;

/// One event, owned.
#[derive(Clone, Debug)]
pub(crate) enum Seen {
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
    Drained(DrainReport, Vec<String>),
    BackgroundWait(Vec<Survivor>),
    Settled(Settled),
    Closed,
}

impl Seen {
    /// Its place in the order of a generation's life; output and the wait have none.
    fn rank(&self) -> Option<u32> {
        match self {
            Seen::Started { .. } | Seen::SpawnFailed(_) => Some(0),
            Seen::Exited(_) => Some(1),
            Seen::Drained(..) => Some(2),
            Seen::Settled(_) => Some(3),
            Seen::Closed => Some(4),
            Seen::Output { .. } | Seen::BackgroundWait(_) => None,
        }
    }
}

/// Delivered bytes of one stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taken {
    pub(crate) bytes: Vec<u8>,
    /// The offset after the last piece.
    pub(crate) end: u64,
    pub(crate) lost: u64,
    pub(crate) late: u64,
    at: Option<Instant>,
}

/// All that was told of one generation.
#[derive(Default)]
pub(crate) struct Story {
    pub(crate) events: Vec<(Seen, u64)>,
    pub(crate) taken: [Taken; 2],
    pub(crate) report: Option<Report>,
    pub(crate) kept: [Option<Captured>; 2],
}

/// The events, pieces of output in a row as one.
impl fmt::Debug for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list = f.debug_list();
        for (place, (seen, turn)) in self.events.iter().enumerate() {
            let next = self.events.get(place + 1).map(|(next, _)| next);
            if !(matches!(seen, Seen::Output { .. }) && matches!(next, Some(Seen::Output { .. }))) {
                list.entry(&(turn, seen));
            }
        }
        list.entry(&self.report).finish()
    }
}

impl Story {
    /// Takes one event in; `turn` is the number of the turn after which it was asked for.
    pub(crate) fn tell(&mut self, event: Event<'_>, turn: u64) {
        assert!(self.report.is_none(), "{event:?} after Closed: {self:?}");
        let seen = match event {
            Event::Started { pid, .. } => Seen::Started { pid },
            Event::SpawnFailed { error, .. } => Seen::SpawnFailed(error),
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
                Seen::Output {
                    stream,
                    len: bytes.len(),
                    late,
                }
            }
            Event::Exited { exit, .. } => Seen::Exited(exit),
            Event::Drained {
                exit,
                drain,
                last_words,
                ..
            } => {
                assert_eq!(Some(exit), self.exit(), "the exit told with the verdict");
                Seen::Drained(drain.clone(), last_words.to_vec())
            }
            Event::BackgroundWait { survivors, .. } => Seen::BackgroundWait(survivors.to_vec()),
            Event::Settled { settled, .. } => Seen::Settled(settled.clone()),
            Event::Closed { report, .. } => {
                self.report = Some(*report);
                Seen::Closed
            }
            other => panic!("an event that is not known here: {other:?}"),
        };
        self.check_order(&seen);
        self.events.push((seen, turn));
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

    fn check_order(&self, seen: &Seen) {
        let before = self.events.iter().filter_map(|(seen, _)| seen.rank()).max();
        if let Some(rank) = seen.rank() {
            assert!(before < Some(rank), "{seen:?} out of order: {self:?}");
        }
        if let Seen::BackgroundWait(survivors) = seen {
            assert!(
                before >= Some(1) && before < Some(3),
                "BackgroundWait out of order: {self:?}"
            );
            assert!(self.background_wait().is_none(), "BackgroundWait twice");
            assert!(!survivors.is_empty(), "a wait for nobody");
        }
    }

    /// What must hold of every generation that is closed.
    pub(crate) fn check_closed(&self) {
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
        assert_eq!(self.pid(), report.pid);
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
            _ => assert!(!settled.processes.is_empty(), "{settled:?} of nobody"),
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
    pub(crate) fn report(&self) -> &Report {
        self.report
            .as_ref()
            .unwrap_or_else(|| panic!("not closed: {self:?}"))
    }

    fn find<T>(&self, pick: impl Fn(&Seen) -> Option<T>) -> Option<T> {
        self.events.iter().find_map(|(seen, _)| pick(seen))
    }

    /// The leader's process id, once it is told.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.find(|seen| {
            if let Seen::Started { pid } = seen {
                Some(*pid)
            } else {
                None
            }
        })
    }

    /// Why it could not be started.
    pub(crate) fn failure(&self) -> Option<SpawnError> {
        self.find(|seen| {
            if let Seen::SpawnFailed(error) = seen {
                Some(error.clone())
            } else {
                None
            }
        })
    }

    /// The leader's end, once it is told.
    pub(crate) fn exit(&self) -> Option<Exit> {
        self.find(|seen| {
            if let Seen::Exited(exit) = seen {
                Some(*exit)
            } else {
                None
            }
        })
    }

    /// The verdict, once it is told.
    pub(crate) fn drain(&self) -> Option<&DrainReport> {
        self.events.iter().find_map(|(seen, _)| {
            if let Seen::Drained(drain, _) = seen {
                Some(drain)
            } else {
                None
            }
        })
    }

    /// The last words that were told with the verdict.
    pub(crate) fn last_words(&self) -> Option<Vec<String>> {
        self.find(|seen| {
            if let Seen::Drained(_, words) = seen {
                Some(words.clone())
            } else {
                None
            }
        })
    }

    /// Who is waited for, once that is told.
    pub(crate) fn background_wait(&self) -> Option<Vec<Survivor>> {
        self.find(|seen| {
            if let Seen::BackgroundWait(survivors) = seen {
                Some(survivors.clone())
            } else {
                None
            }
        })
    }

    /// What became of background work, once it is told.
    pub(crate) fn settled(&self) -> Option<&Settled> {
        self.events.iter().find_map(|(seen, _)| {
            if let Seen::Settled(settled) = seen {
                Some(settled)
            } else {
                None
            }
        })
    }

    /// The turn after which this was told.
    pub(crate) fn turn_of(&self, wanted: impl Fn(&Seen) -> bool) -> Option<u64> {
        self.events
            .iter()
            .find(|(seen, _)| wanted(seen))
            .map(|(_, turn)| *turn)
    }

    /// What was delivered of a stream, as text.
    pub(crate) fn delivered(&self, stream: Stream) -> String {
        String::from_utf8_lossy(&self.taken[stream.index()].bytes).into_owned()
    }

    /// What was kept of a stream, as text.
    pub(crate) fn kept(&self, stream: Stream) -> String {
        String::from_utf8_lossy(&self.kept_bytes(stream)).into_owned()
    }

    /// What was kept of a stream.
    pub(crate) fn kept_bytes(&self, stream: Stream) -> Vec<u8> {
        self.kept[stream.index()]
            .as_ref()
            .map(Captured::to_vec)
            .unwrap_or_default()
    }
}
