//! The arithmetic of the tables: percentiles of a round, medians over the rounds, ratios of rounds
//! that were taken together.

use super::Fail;
use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};
use std::fmt::Display;

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// A time in nanoseconds.
    Nanoseconds,
    /// Memory in bytes.
    Bytes,
    /// A rate of bytes: as many GB/s.
    BytesPerNanosecond,
    /// CPU time of each byte; shown as seconds per GiB.
    NanosecondsPerByte,
    /// Things that are counted.
    Count,
}

impl Unit {
    /// As it is written in the results.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Unit::Nanoseconds => "ns",
            Unit::Bytes => "bytes",
            Unit::BytesPerNanosecond => "bytes/ns",
            Unit::NanosecondsPerByte => "ns/byte",
            Unit::Count => "count",
        }
    }

    /// A number as text, in a size that suits it.
    pub(crate) fn show(self, value: Option<f64>) -> String {
        let Some(value) = value else {
            return "-".into();
        };
        match self {
            Unit::Nanoseconds => time(Some(value)),
            Unit::Bytes if value.abs() < 1024.0 => format!("{value:.0} B"),
            Unit::Bytes if value.abs() < 1_048_576.0 => format!("{:.2} KiB", value / 1024.0),
            Unit::Bytes => format!("{:.2} MiB", value / 1_048_576.0),
            Unit::BytesPerNanosecond => format!("{value:.2} GB/s"),
            Unit::NanosecondsPerByte => format!("{:.3} s/GiB", value * f64::from(1 << 30) / 1e9),
            Unit::Count if value.fract() == 0.0 => format!("{value:.0}"),
            Unit::Count => format!("{value:.2}"),
        }
    }
}

/// Something that is measured: its name in the results, and its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Measure {
    /// Lower case, with underscores.
    pub(crate) name: &'static str,
    pub(crate) unit: Unit,
}

impl Measure {
    /// One by this name.
    pub(crate) const fn new(name: &'static str, unit: Unit) -> Measure {
        Measure { name, unit }
    }
}

/// A number that a round has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Figure {
    /// This percentile of the round's samples.
    Percentile(Measure, f64),
    /// The number that the round has given.
    Number(Measure),
}

impl Figure {
    const fn unit(self) -> Unit {
        match self {
            Figure::Percentile(measure, _) | Figure::Number(measure) => measure.unit,
        }
    }
}

/// What one peer did in one round.
#[derive(Debug, Default)]
pub(crate) struct Round {
    samples: Vec<(Measure, Histogram<u64>)>,
    numbers: Vec<(Measure, f64)>,
}

impl Round {
    /// With nothing in it.
    pub(crate) fn new() -> Round {
        Round::default()
    }

    /// Adds samples of a measure, in its unit; their distribution is kept with three digits.
    pub(crate) fn samples(
        mut self,
        of: Measure,
        samples: impl IntoIterator<Item = u64>,
    ) -> Result<Round, Fail> {
        let mut histogram = Histogram::new(3)?;
        for sample in samples {
            histogram.record(sample)?;
        }
        self.samples.push((of, histogram));
        Ok(self)
    }

    /// Adds samples that were recorded already.
    pub(crate) fn recorded(mut self, of: Measure, samples: Histogram<u64>) -> Round {
        self.samples.push((of, samples));
        self
    }

    /// Adds a number.
    pub(crate) fn number(mut self, of: Measure, value: f64) -> Round {
        self.numbers.push((of, value));
        self
    }

    /// Adds a number that is a share: a total by a count.
    pub(crate) fn share(self, of: Measure, total: u64, count: u64) -> Round {
        self.number(of, share(total, count))
    }

    fn histogram(&self, of: Measure) -> Option<&Histogram<u64>> {
        self.samples
            .iter()
            .find(|(measure, _)| *measure == of)
            .map(|(_, histogram)| histogram)
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "far more digits than a measurement has"
    )]
    fn figure(&self, figure: Figure) -> Option<f64> {
        match figure {
            Figure::Percentile(of, percent) => self
                .histogram(of)
                .map(|histogram| histogram.value_at_percentile(percent) as f64),
            Figure::Number(of) => self
                .numbers
                .iter()
                .find(|(measure, _)| *measure == of)
                .map(|(_, value)| *value),
        }
    }
}

/// All rounds of one situation. Round `i` of one peer was taken next to round `i` of every other.
#[derive(Debug)]
pub(crate) struct Table<P> {
    /// One word, for the names of files.
    pub(crate) name: String,
    /// What was measured.
    pub(crate) title: String,
    rows: Vec<(P, Vec<Round>)>,
}

impl<P: Display + Clone + PartialEq> Table<P> {
    /// An empty one, with a row for each peer.
    pub(crate) fn new(name: impl Into<String>, title: impl Into<String>, peers: &[P]) -> Table<P> {
        Table {
            name: name.into(),
            title: title.into(),
            rows: peers
                .iter()
                .map(|peer| (peer.clone(), Vec::new()))
                .collect(),
        }
    }

    /// Adds a round, and a row if the peer has none yet.
    pub(crate) fn push(&mut self, peer: &P, round: Round) {
        match self.rows.iter_mut().find(|(of, _)| of == peer) {
            Some((_, rounds)) => rounds.push(round),
            None => self.rows.push((peer.clone(), vec![round])),
        }
    }

    /// The peers, in their order.
    pub(crate) fn peers(&self) -> impl Iterator<Item = &P> {
        self.rows.iter().map(|(peer, _)| peer)
    }

    fn rounds(&self, peer: &P) -> &[Round] {
        self.rows
            .iter()
            .find(|(of, _)| of == peer)
            .map_or(&[], |(_, rounds)| rounds)
    }

    fn values(&self, peer: &P, figure: Figure) -> Vec<f64> {
        self.rounds(peer)
            .iter()
            .filter_map(|round| round.figure(figure))
            .collect()
    }

    /// The samples of all rounds together.
    pub(crate) fn all(&self, peer: &P, of: Measure) -> Option<Histogram<u64>> {
        let mut each = self
            .rounds(peer)
            .iter()
            .filter_map(|round| round.histogram(of));
        let mut all = each.next()?.clone();
        for histogram in each {
            // Both resize themselves: this cannot fail.
            all.add(histogram).ok()?;
        }
        Some(all)
    }

    /// A quantile over the rounds.
    pub(crate) fn over_rounds(&self, peer: &P, figure: Figure, quantile: f64) -> Option<f64> {
        quantile_of(self.values(peer, figure), quantile)
    }

    /// The median over the rounds.
    pub(crate) fn median(&self, peer: &P, figure: Figure) -> Option<f64> {
        self.over_rounds(peer, figure, 0.5)
    }

    /// The median over the rounds of the ratio within the round.
    pub(crate) fn ratio(&self, peer: &P, to: &P, figure: Figure) -> Option<f64> {
        let pairs = self.rounds(peer).iter().zip(self.rounds(to));
        let ratio = |(a, b): (&Round, &Round)| {
            Some(a.figure(figure)? / b.figure(figure)?.max(f64::MIN_POSITIVE))
        };
        quantile_of(pairs.filter_map(ratio).collect(), 0.5)
    }

    /// As a Markdown table: a row for each peer.
    pub(crate) fn markdown(&self, columns: &[Column<P>]) -> String {
        let head: Vec<&str> = ["peer"]
            .into_iter()
            .chain(columns.iter().map(|column| column.head.as_str()))
            .collect();
        let row = |peer: &P| {
            [peer.to_string()]
                .into_iter()
                .chain(columns.iter().map(|column| (column.cell)(self, peer)))
                .collect()
        };
        markdown(&head, &self.peers().map(row).collect::<Vec<_>>())
    }

    /// Everything: of each peer the distribution of each measure over all rounds, the figures of
    /// each round, and how many times as much they are as those of the peers `against`.
    pub(crate) fn json(&self, against: &[P]) -> Value {
        let row = |(peer, rounds): &(P, Vec<Round>)| {
            let mut row = Map::from_iter([("peer".to_owned(), json!(peer.to_string()))]);
            if let Some(first) = rounds.first() {
                let sampled = first
                    .samples
                    .iter()
                    .map(|(of, _)| (of.name.to_owned(), self.distribution(peer, *of, against)));
                let counted = first.numbers.iter().map(|(of, _)| {
                    let figure = Figure::Number(*of);
                    let found = json!({
                        "unit": of.unit.name(),
                        "median": self.median(peer, figure),
                        "rounds": self.values(peer, figure),
                        "ratio_to": self.ratios(peer, against, figure),
                    });
                    (of.name.to_owned(), found)
                });
                row.extend(sampled.chain(counted));
            }
            Value::Object(row)
        };
        json!({"name": self.name, "title": self.title, "peers": self.rows.iter().map(row).collect::<Vec<_>>()})
    }

    fn ratios(&self, peer: &P, against: &[P], figure: Figure) -> Map<String, Value> {
        let known = against
            .iter()
            .filter(|to| self.peers().any(|peer| peer == *to));
        known
            .map(|to| (to.to_string(), json!(self.ratio(peer, to, figure))))
            .collect()
    }

    fn distribution(&self, peer: &P, of: Measure, against: &[P]) -> Value {
        let Some(all) = self.all(peer, of) else {
            return Value::Null;
        };
        let percentiles = PERCENTILES.iter().map(|percent| {
            (
                format!("p{percent}"),
                json!(all.value_at_percentile(*percent)),
            )
        });
        let rounds = [50.0, 90.0, 99.0].map(|percent| {
            let figure = Figure::Percentile(of, percent);
            let found = json!({
                "median": self.median(peer, figure),
                "each": self.values(peer, figure),
                "ratio_to": self.ratios(peer, against, figure),
            });
            (format!("p{percent}"), found)
        });
        json!({
            "unit": of.unit.name(),
            "n": all.len(),
            "min": all.min(),
            "mean": all.mean(),
            "max": all.max(),
            "all": percentiles.collect::<Map<_, _>>(),
            "rounds": rounds.into_iter().collect::<Map<_, _>>(),
        })
    }
}

/// The percentiles of a distribution that are written down.
const PERCENTILES: [f64; 11] = [
    1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.99,
];

/// What stands in a cell of a peer's row.
type Cell<P> = Box<dyn Fn(&Table<P>, &P) -> String>;

/// A column of a table: its head, and what stands in a peer's row.
pub(crate) struct Column<P> {
    head: String,
    cell: Cell<P>,
}

impl<P: Display + Clone + PartialEq + 'static> Column<P> {
    /// One of the bench's own.
    pub(crate) fn new(
        head: impl Into<String>,
        cell: impl Fn(&Table<P>, &P) -> String + 'static,
    ) -> Column<P> {
        Column {
            head: head.into(),
            cell: Box::new(cell),
        }
    }

    /// The median over the rounds.
    pub(crate) fn median(head: impl Into<String>, figure: Figure) -> Column<P> {
        Column::new(head, move |table, peer| {
            figure.unit().show(table.median(peer, figure))
        })
    }

    /// The lower and the upper quartile over the rounds.
    pub(crate) fn quartiles(head: impl Into<String>, figure: Figure) -> Column<P> {
        Column::new(head, move |table, peer| {
            let at = |quantile| {
                figure
                    .unit()
                    .show(table.over_rounds(peer, figure, quantile))
            };
            format!("{} .. {}", at(0.25), at(0.75))
        })
    }

    /// The largest sample of all rounds.
    pub(crate) fn worst(head: impl Into<String>, of: Measure) -> Column<P> {
        #[expect(clippy::cast_precision_loss, reason = "shown with four digits")]
        Column::new(head, move |table, peer| {
            of.unit
                .show(table.all(peer, of).map(|all| all.max() as f64))
        })
    }

    /// How many samples there are.
    pub(crate) fn count(head: impl Into<String>, of: Measure) -> Column<P> {
        Column::new(head, move |table, peer| {
            table.all(peer, of).map_or(0, |all| all.len()).to_string()
        })
    }

    /// How many times as much as that of another peer: the median of the ratios within the rounds.
    pub(crate) fn ratio(head: impl Into<String>, to: P, figure: Figure) -> Column<P> {
        Column::new(head, move |table, peer| {
            times(table.ratio(peer, &to, figure))
        })
    }
}

/// A total by a count.
#[expect(
    clippy::cast_precision_loss,
    reason = "far more digits than a measurement has"
)]
pub(crate) fn share(total: u64, count: u64) -> f64 {
    total as f64 / count.max(1) as f64
}

/// The quantile of a few values, between its neighbours where it falls between them.
pub(crate) fn quantile_of(mut values: Vec<f64>, quantile: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    #[expect(clippy::cast_precision_loss, reason = "a number of rounds")]
    let place = quantile * last as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and the number of rounds"
    )]
    let below = place as usize;
    let (low, high) = (*values.get(below)?, *values.get((below + 1).min(last))?);
    Some(low + (high - low) * place.fract())
}

/// Nanoseconds as text, in a unit that suits them.
pub(crate) fn time(ns: Option<f64>) -> String {
    match ns {
        None => "-".into(),
        Some(ns) if ns.abs() < 1e3 => format!("{ns:.1} ns"),
        Some(ns) if ns.abs() < 1e6 => format!("{:.1} µs", ns / 1e3),
        Some(ns) if ns.abs() < 1e9 => format!("{:.2} ms", ns / 1e6),
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
