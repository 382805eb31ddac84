//! How long after a child's last act everything about it is known: both pipes at their end, and the status.
//!
//! ```text
//! cargo bench --bench drain                     # about ten minutes
//! cargo bench --bench drain -- --small          # about ten seconds: does it run?
//! cargo bench --bench drain -- --only noisy --peers lastwords,raw-prio --rounds 20 --n 40 --json noisy.json
//! ```
//!
//! Every peer is measured in every round, one after the other, each round beginning with another one. Percentiles are a round's;
//! what is printed is their median over the rounds, and a ratio is the median of the ratios within the rounds.

mod common;

use common::child::{Role, unmake};
use common::figures::{Figure, Round, Table, markdown, time, times};
use common::peers::{Hosts, Peer, Work};
use common::{Fail, cpu, now, raise_descriptor_limit};
use serde_json::json;

/// A situation in which the latency is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scenario {
    /// A child that says nothing.
    Quiet,
    /// A child that has written 64 MiB to stderr.
    Bulk,
    /// A quiet child among many that write at full speed.
    Noisy,
    /// A child that leaves a process behind which holds both its pipes.
    Leak,
}

impl Scenario {
    const ALL: [Scenario; 4] = [Scenario::Quiet, Scenario::Bulk, Scenario::Noisy, Scenario::Leak];

    const fn name(self) -> &'static str {
        match self {
            Scenario::Quiet => "quiet",
            Scenario::Bulk => "bulk",
            Scenario::Noisy => "noisy",
            Scenario::Leak => "leak",
        }
    }

    /// Rounds, and what is done in each.
    fn size(self, small: bool) -> (usize, Work) {
        let work = |role, count, noisy| Work { role, count, noisy };
        match (self, small) {
            (Scenario::Quiet, false) => (20, work(Role::Quiet, 200, 0)),
            (Scenario::Quiet, true) => (2, work(Role::Quiet, 50, 0)),
            (Scenario::Bulk, false) => (20, work(Role::Bulk(64), 10, 0)),
            (Scenario::Bulk, true) => (1, work(Role::Bulk(64), 2, 0)),
            (Scenario::Noisy, false) => (10, work(Role::Quiet, 50, 200)),
            (Scenario::Noisy, true) => (1, work(Role::Quiet, 3, 40)),
            (Scenario::Leak, false) => (3, work(Role::Leaver(2000), 1, 0)),
            (Scenario::Leak, true) => (1, work(Role::Leaver(400), 1, 0)),
        }
    }

    fn title(self, rounds: usize, work: &Work) -> String {
        let what = match work.role {
            Role::Quiet | Role::Noisy if work.noisy == 0 => "quiet child".to_owned(),
            Role::Quiet | Role::Noisy => format!("quiet child among {} noisy ones", work.noisy),
            Role::Bulk(mib) => format!("after {mib} MiB of stderr"),
            Role::Leaver(ms) => format!("a process left behind holds the pipes for {ms} ms"),
        };
        format!("{}: {what} ({rounds} rounds of {})", self.name(), work.count)
    }
}

/// What was asked for on the command line.
#[derive(Debug)]
struct Asked {
    scenarios: Vec<Scenario>,
    peers: Vec<Peer>,
    rounds: Option<usize>,
    count: Option<usize>,
    noisy: Option<usize>,
    size: Size,
    json: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    Full,
    Small,
}

impl Asked {
    fn from_args(mut args: impl Iterator<Item = String>) -> Result<Asked, Fail> {
        let mut asked = Asked {
            scenarios: Scenario::ALL.to_vec(),
            peers: Vec::new(),
            rounds: None,
            count: None,
            noisy: None,
            size: Size::Full,
            json: None,
        };
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| Fail::from(format!("{arg} wants a value")));
            match arg.as_str() {
                "--rounds" => asked.rounds = Some(value()?.parse()?),
                "--n" => asked.count = Some(value()?.parse()?),
                "--noisy" => asked.noisy = Some(value()?.parse()?),
                "--small" => asked.size = Size::Small,
                "--json" => asked.json = Some(value()?),
                "--only" => asked.scenarios = pick(&value()?, &Scenario::ALL, Scenario::name)?,
                "--peers" => asked.peers = pick(&value()?, &Peer::ALL, Peer::name)?,
                // Cargo's own.
                "--bench" => {}
                _ => return Err(format!("unknown argument {arg}").into()),
            }
        }
        if asked.peers.is_empty() {
            asked.peers = Peer::ALL.into_iter().filter(|peer| peer.by_default()).collect();
        }
        Ok(asked)
    }
}

fn pick<T: Copy>(names: &str, all: &[T], name_of: fn(T) -> &'static str) -> Result<Vec<T>, Fail> {
    let one = |name: &str| {
        let found = all.iter().copied().find(|one| name_of(*one) == name);
        found.ok_or_else(|| {
            let known: Vec<_> = all.iter().map(|one| name_of(*one)).collect();
            Fail::from(format!("{name} is none of {}", known.join(", ")))
        })
    };
    names.split(',').map(one).collect()
}

fn main() -> Result<(), Fail> {
    let done = run();
    unmake()?;
    done
}

fn run() -> Result<(), Fail> {
    let asked = Asked::from_args(std::env::args().skip(1))?;
    raise_descriptor_limit()?;
    let (mut hosts, mut tables) = (Hosts::new(), Vec::new());
    for scenario in &asked.scenarios {
        let table = measure(*scenario, &asked, &mut hosts)?;
        println!("\n## {}\n\n{}", table.title, shown(*scenario, &table));
        for line in targets(*scenario, &table) {
            println!("{line}");
        }
        tables.push(table);
    }
    if let Some(path) = &asked.json {
        let against = [Peer::Raw, Peer::RawPrio, Peer::TokioCurrent];
        let all: Vec<_> = tables.iter().map(|table| table.json(&against)).collect();
        std::fs::write(path, serde_json::to_string_pretty(&json!({"bench": "drain", "unit": "ns", "tables": all}))? + "\n")?;
    }
    Ok(())
}

fn measure(scenario: Scenario, asked: &Asked, hosts: &mut Hosts) -> Result<Table, Fail> {
    let (rounds, mut work) = scenario.size(asked.size == Size::Small);
    let rounds = asked.rounds.unwrap_or(rounds);
    work.count = asked.count.unwrap_or(work.count);
    if scenario == Scenario::Noisy {
        work.noisy = asked.noisy.unwrap_or(work.noisy);
    }
    let mut table = Table::new(scenario.title(rounds, &work), &asked.peers);
    for round in 0..rounds {
        for place in 0..asked.peers.len() {
            let peer = asked.peers[(place + round) % asked.peers.len()];
            let (cpu_before, before) = (cpu(), now());
            let done = hosts.round(peer, &work).map_err(|error| format!("{} in {}: {error}", peer.name(), scenario.name()))?;
            table.push(peer, Round::new(&done, cpu() - cpu_before, now() - before)?);
        }
    }
    Ok(table)
}

fn shown(scenario: Scenario, table: &Table) -> String {
    let per = match scenario {
        Scenario::Quiet | Scenario::Leak => "CPU per child",
        Scenario::Bulk | Scenario::Noisy => "CPU s/GiB; GB/s",
    };
    let head =
        ["peer", "p50", "quartiles of p50", "p90", "p99", "max", "n", "p50 : raw-epoll", ": raw-prio", ": tokio-ct", "status p50", per];
    let row = |peer: Peer| {
        let median = |figure| table.median(peer, figure);
        let quartile = |at| time(table.over_rounds(peer, Figure::Latency(50), at));
        let against = |to| times(table.ratio(peer, to, Figure::Latency(50)));
        let cost = match scenario {
            Scenario::Quiet | Scenario::Leak => time(median(Figure::CpuPerChild)),
            Scenario::Bulk | Scenario::Noisy => {
                let (cpu, rate) = (median(Figure::CpuPerByte).unwrap_or(0.0), median(Figure::Rate).unwrap_or(0.0));
                // Nanoseconds per byte to seconds per GiB.
                format!("{:.3}; {rate:.2}", cpu * f64::from(1 << 30) / 1e9)
            }
        };
        #[expect(clippy::cast_precision_loss, reason = "shown with four digits")]
        let worst = table.worst(peer) as f64;
        vec![
            peer.name().to_owned(),
            time(median(Figure::Latency(50))),
            format!("{} .. {}", quartile(0.25), quartile(0.75)),
            time(median(Figure::Latency(90))),
            time(median(Figure::Latency(99))),
            time(Some(worst)),
            table.count(peer).to_string(),
            against(Peer::Raw),
            against(Peer::RawPrio),
            against(Peer::TokioCurrent),
            time(median(Figure::Status)),
            cost,
        ]
    };
    markdown(&head, &table.peers().map(row).collect::<Vec<_>>())
}

/// What is aimed at, and whether it was reached in this run.
fn targets(scenario: Scenario, table: &Table) -> Vec<String> {
    let ratio = |to, percent| table.ratio(Peer::Lastwords, to, Figure::Latency(percent));
    let says = |what: &str, found: Option<f64>, bound: f64| {
        let found = found?;
        let word = if found <= bound { "reached" } else { "MISSED" };
        Some(format!("* {what}: {found:.4}, at most {bound}: {word}"))
    };
    let best_raw = |percent| ratio(Peer::Raw, percent).into_iter().chain(ratio(Peer::RawPrio, percent)).max_by(f64::total_cmp);
    let lines = match scenario {
        Scenario::Quiet => vec![
            says("L1, p50 to raw-epoll", ratio(Peer::Raw, 50), 1.10),
            says("L1, p90 to raw-epoll", ratio(Peer::Raw, 90), 1.3),
            says("L1, p50 to tokio-ct", ratio(Peer::TokioCurrent, 50), 1.0),
        ],
        Scenario::Bulk => {
            let p50 = |peer| table.median(peer, Figure::Latency(50));
            let best = table.peers().filter(|peer| !matches!(peer, Peer::Lastwords | Peer::LastwordsUring | Peer::Spin)).filter_map(p50);
            let lower = table.over_rounds(Peer::Lastwords, Figure::Latency(50), 0.25);
            vec![
                says("L2, p50 to raw-prio", ratio(Peer::RawPrio, 50), 1.15),
                says("L2, lower quartile of p50 to the best peer", lower.zip(best.min_by(f64::total_cmp)).map(|(a, b)| a / b), 1.0),
            ]
        }
        Scenario::Noisy => vec![
            says("L3, p50 to tokio-ct", ratio(Peer::TokioCurrent, 50), 0.02),
            says("L3, p99 to tokio-ct", ratio(Peer::TokioCurrent, 99), 0.02),
            says("L3, p50 to the better raw loop", best_raw(50), 1.5),
        ],
        Scenario::Leak => Vec::new(),
    };
    lines.into_iter().flatten().collect()
}
