//! The arithmetic of the tables: percentiles of a round, medians over the rounds, ratios of rounds that were taken together.

use super::Fail;
use super::peers::{Done, Peer};
use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// What one peer did in one round.
#[derive(Debug)]
pub(crate) struct Round {
    latency: Histogram<u64>,
    status: Histogram<u64>,
    cpu: u64,
    wall: u64,
    bytes: u64,
}

impl Round {
    /// From the samples, and the process's CPU and wall time in nanoseconds.
    pub(crate) fn new(done: &Done, cpu: u64, wall: u64) -> Result<Round, Fail> {
        let (mut latency, mut status) = (Histogram::new(3)?, Histogram::new(3)?);
        for sample in &done.samples {
            latency.record(sample.verdict)?;
            status.record(sample.status)?;
        }
        Ok(Round { latency, status, cpu, wall, bytes: done.bytes })
    }
}

/// A number that a round has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    /// From the last act to the verdict: this percentile, in nanoseconds.
    Latency(u8),
    /// From the last act to the status, the median, in nanoseconds.
    Status,
    /// CPU time of the host per measured child, starting it included, in nanoseconds.
    CpuPerChild,
    /// CPU time of the host per byte read, in nanoseconds.
    CpuPerByte,
    /// Bytes read in a nanosecond.
    Rate,
}

impl Figure {
    #[expect(clippy::cast_precision_loss, reason = "far more digits than a measurement has")]
    fn of(self, round: &Round) -> f64 {
        let per = |a: u64, b: u64| a as f64 / b.max(1) as f64;
        match self {
            Figure::Latency(percent) => round.latency.value_at_quantile(f64::from(percent) / 100.0) as f64,
            Figure::Status => round.status.value_at_quantile(0.5) as f64,
            Figure::CpuPerChild => per(round.cpu, round.latency.len()),
            Figure::CpuPerByte => per(round.cpu, round.bytes),
            Figure::Rate => per(round.bytes, round.wall),
        }
    }
}

/// All rounds of one scenario. Round `i` of one peer was taken next to round `i` of every other.
#[derive(Debug)]
pub(crate) struct Table {
    /// What was measured.
    pub(crate) title: String,
    rows: Vec<(Peer, Vec<Round>)>,
}

impl Table {
    /// An empty one.
    pub(crate) fn new(title: String, peers: &[Peer]) -> Table {
        Table { title, rows: peers.iter().map(|peer| (*peer, Vec::new())).collect() }
    }

    /// Adds a round.
    pub(crate) fn push(&mut self, peer: Peer, round: Round) {
        if let Some((_, rounds)) = self.rows.iter_mut().find(|(of, _)| *of == peer) {
            rounds.push(round);
        }
    }

    /// The peers, in their order.
    pub(crate) fn peers(&self) -> impl Iterator<Item = Peer> {
        self.rows.iter().map(|(peer, _)| *peer)
    }

    fn rounds(&self, peer: Peer) -> &[Round] {
        self.rows.iter().find(|(of, _)| *of == peer).map_or(&[], |(_, rounds)| rounds)
    }

    fn values(&self, peer: Peer, figure: Figure) -> Vec<f64> {
        self.rounds(peer).iter().map(|round| figure.of(round)).collect()
    }

    /// Children measured.
    pub(crate) fn count(&self, peer: Peer) -> u64 {
        self.rounds(peer).iter().map(|round| round.latency.len()).sum()
    }

    /// The largest latency of all rounds, in nanoseconds.
    pub(crate) fn worst(&self, peer: Peer) -> u64 {
        self.rounds(peer).iter().map(|round| round.latency.max()).max().unwrap_or(0)
    }

    /// A quantile over the rounds.
    pub(crate) fn over_rounds(&self, peer: Peer, figure: Figure, quantile: f64) -> Option<f64> {
        quantile_of(self.values(peer, figure), quantile)
    }

    /// The median over the rounds.
    pub(crate) fn median(&self, peer: Peer, figure: Figure) -> Option<f64> {
        self.over_rounds(peer, figure, 0.5)
    }

    /// The median over the rounds of the ratio within the round.
    pub(crate) fn ratio(&self, peer: Peer, to: Peer, figure: Figure) -> Option<f64> {
        let pairs = self.values(peer, figure).into_iter().zip(self.values(to, figure));
        quantile_of(pairs.map(|(a, b)| a / b.max(f64::MIN_POSITIVE)).collect(), 0.5)
    }

    /// Everything, as JSON. Times in nanoseconds.
    pub(crate) fn json(&self, against: &[Peer]) -> Value {
        let row = |peer: Peer| {
            let figure = |figure| json!({"median": self.median(peer, figure), "rounds": self.values(peer, figure)});
            let ratios = against.iter().map(|to| {
                let ratio = |percent| self.ratio(peer, *to, Figure::Latency(percent));
                (to.name().to_owned(), json!({"p50": ratio(50), "p90": ratio(90), "p99": ratio(99)}))
            });
            json!({
                "peer": peer.name(),
                "n": self.count(peer),
                "p50": figure(Figure::Latency(50)),
                "p90": figure(Figure::Latency(90)),
                "p99": figure(Figure::Latency(99)),
                "max": self.worst(peer),
                "status_p50": figure(Figure::Status),
                "cpu_per_child": figure(Figure::CpuPerChild),
                "cpu_per_byte": figure(Figure::CpuPerByte),
                "bytes_per_ns": figure(Figure::Rate),
                "ratio_to": ratios.collect::<serde_json::Map<_, _>>(),
            })
        };
        json!({"title": self.title, "peers": self.peers().map(row).collect::<Vec<_>>()})
    }
}

/// The quantile of a few values, between its neighbours where it falls between them.
pub(crate) fn quantile_of(mut values: Vec<f64>, quantile: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    #[expect(clippy::cast_precision_loss, reason = "a number of rounds")]
    let place = quantile * last as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and the number of rounds")]
    let below = place as usize;
    let (low, high) = (*values.get(below)?, *values.get((below + 1).min(last))?);
    Some(low + (high - low) * place.fract())
}

/// Nanoseconds as text, in a unit that suits them.
pub(crate) fn time(ns: Option<f64>) -> String {
    match ns {
        None => "-".into(),
        Some(ns) if ns < 1e6 => format!("{:.1} µs", ns / 1e3),
        Some(ns) if ns < 1e9 => format!("{:.2} ms", ns / 1e6),
        Some(ns) => format!("{:.2} s", ns / 1e9),
    }
}

/// A ratio as text.
pub(crate) fn times(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.3}"))
}

/// A Markdown table.
pub(crate) fn markdown(head: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let head: Vec<String> = head.iter().map(|&cell| cell.to_owned()).collect();
    let rule: Vec<String> = head.iter().map(|_| "---".to_owned()).collect();
    let body: String = rows.iter().map(|row| line(row)).collect();
    line(&head) + &line(&rule) + &body
}
