//! What comes out of a bench: Markdown on stdout, everything as JSON, the distributions as plots,
//! and what was aimed at.

use super::figures::{Column, Measure, Table};
use super::options::{Choice, Options, Output};
use super::{Fail, plot};
use serde_json::{Value, json};
use std::fmt::Display;
use std::path::Path;
use std::time::SystemTime;

/// What is aimed at, of a number that a run has found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bound {
    /// It is no more than this.
    AtMost(f64),
    /// It is no less.
    AtLeast(f64),
}

impl Bound {
    fn holds(self, found: f64) -> bool {
        match self {
            Bound::AtMost(bound) => found <= bound,
            Bound::AtLeast(bound) => found >= bound,
        }
    }
}

impl Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Bound::AtMost(bound) => write!(f, "at most {bound}"),
            Bound::AtLeast(bound) => write!(f, "at least {bound}"),
        }
    }
}

/// The results of one run, written when it is done.
#[derive(Debug)]
pub(crate) struct Results {
    bench: &'static str,
    small: bool,
    output: Output,
    tables: Vec<Value>,
    targets: Vec<Value>,
}

impl Results {
    /// Of the bench of this name, to where its options say. Makes the directories that are missing,
    /// so that an hour is not lost.
    pub(crate) fn new<S: Choice, P: Choice>(
        bench: &'static str,
        options: &Options<S, P>,
    ) -> Result<Results, Fail> {
        let output = options.output.clone();
        let folders = output
            .json
            .as_deref()
            .and_then(Path::parent)
            .into_iter()
            .chain(output.plots.as_deref());
        for folder in folders.filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder)
                .map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        Ok(Results {
            bench,
            small: options.small,
            output,
            tables: Vec::new(),
            targets: Vec::new(),
        })
    }

    /// Prints a table with these columns, and keeps all of it, with ratios to the peers `against`.
    pub(crate) fn table<P: Display + Clone + PartialEq>(
        &mut self,
        table: &Table<P>,
        columns: &[Column<P>],
        against: &[P],
    ) {
        println!("\n## {}\n\n{}", table.title, table.markdown(columns));
        self.tables.push(table.json(against));
    }

    /// Plots the distribution of a measure, a line for each peer, if plots are wanted.
    pub(crate) fn plot<P: Display + Clone + PartialEq>(
        &self,
        table: &Table<P>,
        of: Measure,
    ) -> Result<(), Fail> {
        let Some(folder) = &self.output.plots else {
            return Ok(());
        };
        let lines: Vec<_> = table
            .peers()
            .filter_map(|peer| Some((peer.to_string(), table.all(peer, of)?)))
            .collect();
        let path = folder.join(format!("{}-{}-{}.svg", self.bench, table.name, of.name));
        plot::percentiles(&path, &table.title, &lines, of.unit)
    }

    /// Plots numbers over a size, both on logarithmic scales, a line for each peer, if plots are
    /// wanted.
    pub(crate) fn plot_sizes(
        &self,
        name: &str,
        title: &str,
        lines: &[plot::Line],
        unit: super::figures::Unit,
    ) -> Result<(), Fail> {
        let Some(folder) = &self.output.plots else {
            return Ok(());
        };
        plot::over_sizes(
            &folder.join(format!("{}-{name}.svg", self.bench)),
            title,
            lines,
            unit,
        )
    }

    /// Says whether what is aimed at was reached in this run. Nothing is said where nothing was
    /// found (a peer was left out).
    pub(crate) fn target(&mut self, what: impl Display, found: Option<f64>, bound: Bound) {
        let Some(found) = found else { return };
        let reached = bound.holds(found);
        let word = if reached { "reached" } else { "MISSED" };
        let note = if self.small {
            " (a small run: it means nothing)"
        } else {
            ""
        };
        println!("* {what}: {found:.4}, {bound}: {word}{note}");
        let (way, limit) = match bound {
            Bound::AtMost(limit) => ("at_most", limit),
            Bound::AtLeast(limit) => ("at_least", limit),
        };
        self.targets.push(
            json!({"what": what.to_string(), "found": found, way: limit, "reached": reached}),
        );
    }

    /// Writes the file, if one is wanted.
    pub(crate) fn write(self) -> Result<(), Fail> {
        let Some(path) = &self.output.json else {
            return Ok(());
        };
        let all = json!({
            "bench": self.bench,
            "small": self.small,
            "machine": machine()?,
            "tables": self.tables,
            "targets": self.targets,
        });
        Ok(std::fs::write(
            path,
            serde_json::to_string_pretty(&all)? + "\n",
        )?)
    }
}

/// What the figures were taken on, and when.
fn machine() -> Result<Value, Fail> {
    let uname = rustix::system::uname();
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    // Not every processor has a name there.
    let cpu = cpus
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map(|rest| rest.trim_start_matches([' ', '\t', ':']));
    Ok(json!({
        "kernel": uname.release().to_string_lossy(),
        "architecture": uname.machine().to_string_lossy(),
        "cpu": cpu,
        "cores": std::thread::available_parallelism()?,
        "date": humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        "lastwords": env!("CARGO_PKG_VERSION"),
    }))
}
