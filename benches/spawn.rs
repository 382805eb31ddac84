//! How many children are started and closed in a second, and how long the caller stands still for a start.
//!
//! ```text
//! cargo bench --bench spawn                     # some minutes
//! cargo bench --bench spawn -- --small          # about ten seconds: does it run?
//! cargo bench --bench spawn -- --hosts small --children sh --rounds 20 --n 200 --json spawn.json
//! strace -f -o calls target/release/deps/spawn-* --strace-one 110
//! ```
//!
//! A child says nothing; it is closed when both pipes are at their end and its status is collected. Every peer is measured in
//! every round, one after the other, each round beginning with another one. What is printed is the median over the rounds of each
//! round's figure, and a ratio is the median of the ratios within the rounds. `--host-mib N` is the memory that the second host has
//! touched. The third has many descriptors, and has made children while it came by them (`--sudden`: none, since there were few).

#[expect(dead_code, reason = "shared with a bench that measures other things")]
mod common;
#[path = "spawn/peers.rs"]
mod peers;
#[path = "spawn/raw.rs"]
mod raw;
/// The instruction that makes a system call, and a clone whose child does not return: as the library has them.
#[expect(dead_code, unused_imports, reason = "clone(2) is not measured, and its tests are not run here")]
#[path = "../src/kernel/linux/spawn/syscall.rs"]
mod syscall;
/// What `syscall` needs of the library.
mod error {
    pub(crate) use lastwords::Errno;
}

use common::child::{program, unmake};
use common::figures::{markdown, quantile_of, time, times};
use common::{Fail, cpu, now, raise_descriptor_limit};
use peers::{Line, Peer, Starter};
use serde_json::json;
use std::fs::File;
use std::hint::black_box;
use std::time::Duration;

/// Descriptors of the host that has many, if its limit allows.
const DESCRIPTORS: usize = 18_000;
/// Left free below the limit.
const SPARE: usize = 400;
/// A host's descriptors while it grows: its table has 512 places then.
const GROWN: usize = 300;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Host {
    Small,
    Memory,
    Descriptors,
}

impl Host {
    const ALL: [Host; 3] = [Host::Small, Host::Memory, Host::Descriptors];

    const fn name(self) -> &'static str {
        match self {
            Host::Small => "small",
            Host::Memory => "memory",
            Host::Descriptors => "descriptors",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    /// `/bin/sh -c :`.
    Shell,
    /// The freestanding one.
    Tiny,
}

impl Program {
    const ALL: [Program; 2] = [Program::Shell, Program::Tiny];

    const fn name(self) -> &'static str {
        match self {
            Program::Shell => "sh",
            Program::Tiny => "tiny",
        }
    }

    fn line(self) -> Result<Line, Fail> {
        Ok(match self {
            Program::Shell => ["/bin/sh", "-c", ":"].map(Into::into).to_vec(),
            Program::Tiny => vec![program()?.into(), "end".into(), "0".into()],
        })
    }
}

#[derive(Debug)]
struct Asked {
    hosts: Vec<Host>,
    programs: Vec<Program>,
    peers: Vec<Peer>,
    flights: Vec<usize>,
    rounds: usize,
    count: usize,
    host_mib: usize,
    sudden: bool,
    json: Option<String>,
    strace_one: Option<usize>,
}

impl Asked {
    fn from_args(args: impl Iterator<Item = String>) -> Result<Asked, Fail> {
        let args: Vec<String> = args.collect();
        let small = args.iter().any(|arg| arg == "--small");
        let mut asked = Asked {
            hosts: Host::ALL.to_vec(),
            programs: Program::ALL.to_vec(),
            peers: Peer::ALL.to_vec(),
            flights: vec![1, 8],
            rounds: if small { 2 } else { 10 },
            count: if small { 16 } else { 120 },
            host_mib: if small { 64 } else { 4096 },
            sudden: false,
            json: None,
            strace_one: None,
        };
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| Fail::from(format!("{arg} wants a value")));
            match arg.as_str() {
                "--rounds" => asked.rounds = value()?.parse()?,
                "--n" => asked.count = value()?.parse()?,
                "--host-mib" => asked.host_mib = value()?.parse()?,
                "--json" => asked.json = Some(value()?),
                "--hosts" => asked.hosts = pick(&value()?, &Host::ALL, Host::name)?,
                "--children" => asked.programs = pick(&value()?, &Program::ALL, Program::name)?,
                "--peers" => asked.peers = pick(&value()?, &Peer::ALL, Peer::name)?,
                "--in-flight" => asked.flights = value()?.split(',').map(str::parse).collect::<Result<_, _>>()?,
                "--strace-one" => asked.strace_one = Some(value()?.parse()?),
                "--sudden" => asked.sudden = true,
                // The second is Cargo's own.
                "--small" | "--bench" => {}
                _ => return Err(format!("unknown argument {arg}").into()),
            }
        }
        Ok(asked)
    }
}

fn pick<T: Copy>(names: &str, all: &[T], name_of: fn(T) -> &'static str) -> Result<Vec<T>, Fail> {
    let one = |name: &str| all.iter().copied().find(|one| name_of(*one) == name).ok_or_else(|| Fail::from(format!("no {name} here")));
    names.split(',').map(one).collect()
}

/// What one peer did in one round: each in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Round {
    still_p50: f64,
    still_p99: f64,
    wall_each: f64,
    cpu_each: f64,
}

type Figure = fn(&Round) -> f64;

const STILL: Figure = |round| round.still_p50;
const STILL_P99: Figure = |round| round.still_p99;
const WALL: Figure = |round| round.wall_each;
const CPU: Figure = |round| round.cpu_each;

/// Starts and closes so many, so many at a time.
#[expect(clippy::cast_precision_loss, reason = "far more digits than a measurement has")]
fn round(starter: &mut dyn Starter, count: usize, flight: usize) -> Result<Round, Fail> {
    let mut still = Vec::with_capacity(count);
    let (cpu_before, before, mut live) = (cpu(), now(), 0);
    while still.len() < count || live > 0 {
        while live < flight && still.len() < count {
            let began = now();
            starter.start()?;
            still.push((now() - began) as f64);
            live += 1;
        }
        live -= starter.settle()?;
    }
    let each = |total: u64| total as f64 / count.max(1) as f64;
    let (wall_each, cpu_each) = (each(now() - before), each(cpu() - cpu_before));
    let quantile = |at| quantile_of(still.clone(), at).unwrap_or(0.0);
    Ok(Round { still_p50: quantile(0.5), still_p99: quantile(0.99), wall_each, cpu_each })
}

/// One situation: the rounds of each peer.
struct Table {
    title: String,
    rows: Vec<(Peer, Vec<Round>)>,
}

impl Table {
    fn values(&self, peer: Peer, figure: Figure) -> Vec<f64> {
        self.rows.iter().filter(|(of, _)| *of == peer).flat_map(|(_, rounds)| rounds.iter().map(figure)).collect()
    }

    fn median(&self, peer: Peer, figure: Figure) -> Option<f64> {
        quantile_of(self.values(peer, figure), 0.5)
    }

    /// How many times as much as the other.
    fn ratio(&self, peer: Peer, to: Peer, figure: Figure) -> Option<f64> {
        let pairs = self.values(peer, figure).into_iter().zip(self.values(to, figure));
        quantile_of(pairs.map(|(a, b)| a / b.max(f64::MIN_POSITIVE)).collect(), 0.5)
    }

    fn shown(&self) -> String {
        let head = ["peer", "stands still p50", "p99", "children/s", "host CPU each", "rate : raw", ": std", ": tokio-ct", "CPU : raw"];
        let row = |peer: Peer| {
            // A rate is the inverse of the time.
            let rate = |to| times(self.ratio(to, peer, WALL));
            vec![
                peer.name().to_owned(),
                time(self.median(peer, STILL)),
                time(self.median(peer, STILL_P99)),
                self.median(peer, WALL).map_or_else(|| "-".into(), |ns| format!("{:.0}", 1e9 / ns)),
                time(self.median(peer, CPU)),
                rate(Peer::Raw),
                rate(Peer::Std),
                rate(Peer::Tokio),
                times(self.ratio(peer, Peer::Raw, CPU)),
            ]
        };
        markdown(&head, &self.rows.iter().map(|(peer, _)| row(*peer)).collect::<Vec<_>>())
    }

    fn json(&self) -> serde_json::Value {
        let row = |peer: Peer| {
            let figure = |figure| json!({"median": self.median(peer, figure), "rounds": self.values(peer, figure)});
            json!({
                "peer": peer.name(),
                "still_p50": figure(STILL),
                "still_p99": figure(STILL_P99),
                "wall_per_child": figure(WALL),
                "cpu_per_child": figure(CPU),
            })
        };
        json!({"title": self.title, "peers": self.rows.iter().map(|(peer, _)| row(*peer)).collect::<Vec<_>>()})
    }
}

/// A peer with its loop, ready.
type Ready = (Peer, Box<dyn Starter>);

fn measure(title: String, ready: &mut [Ready], asked: &Asked, flight: usize) -> Result<Table, Fail> {
    let mut table = Table { title, rows: ready.iter().map(|(peer, _)| (*peer, Vec::new())).collect() };
    let peers = ready.len();
    for number in 0..asked.rounds {
        for place in 0..peers {
            let (peer, starter) = &mut ready[(place + number) % peers];
            let done = round(starter.as_mut(), asked.count, flight).map_err(|error| format!("{}: {error}", peer.name()))?;
            table.rows[(place + number) % peers].1.push(done);
        }
    }
    Ok(table)
}

/// What makes a host large; dropped, it is small again.
#[derive(Default)]
struct Ballast {
    memory: Vec<u8>,
    descriptors: Vec<File>,
}

impl Ballast {
    fn open(&mut self, count: usize) -> Result<(), Fail> {
        while self.descriptors.len() < count {
            let next = match self.descriptors.first() {
                Some(file) => file.try_clone()?,
                None => File::open("/dev/null")?,
            };
            self.descriptors.push(next);
        }
        Ok(())
    }

    fn new(host: Host, ready: &mut [Ready], asked: &Asked) -> Result<(Ballast, String), Fail> {
        let mut ballast = Ballast::default();
        let title = match host {
            Host::Small => "a small host".to_owned(),
            Host::Memory => {
                ballast.memory = black_box(vec![1; asked.host_mib << 20]);
                format!("a host with {} MiB of touched memory", asked.host_mib)
            }
            Host::Descriptors => {
                let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
                let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
                let count = DESCRIPTORS.min(limit.saturating_sub(SPARE));
                if !asked.sudden {
                    ballast.open(GROWN.min(count))?;
                    // The size of the table is looked up from time to time only.
                    std::thread::sleep(Duration::from_millis(30));
                    for (_, starter) in ready.iter_mut() {
                        round(starter.as_mut(), 1, 1)?;
                    }
                }
                ballast.open(count)?;
                std::thread::sleep(Duration::from_millis(30));
                format!("a host with {count} open descriptors")
            }
        };
        Ok((ballast, title))
    }
}

fn main() -> Result<(), Fail> {
    let asked = Asked::from_args(std::env::args().skip(1))?;
    raise_descriptor_limit()?;
    if let Some(count) = asked.strace_one {
        let [peer, ..] = asked.peers.as_slice() else { return Err("no peer".into()) };
        round(peer.starter(&Program::Shell.line()?)?.as_mut(), count, 1)?;
        return Ok(());
    }
    let done = run(&asked);
    unmake()?;
    done
}

fn run(asked: &Asked) -> Result<(), Fail> {
    let mut tables = Vec::new();
    for program in &asked.programs {
        let line = program.line()?;
        let ready: Result<Vec<Ready>, Fail> = asked.peers.iter().map(|peer| Ok((*peer, peer.starter(&line)?))).collect();
        let mut ready = ready?;
        for host in &asked.hosts {
            let (ballast, what) = Ballast::new(*host, &mut ready, asked)?;
            for flight in &asked.flights {
                let title = format!("{} in {what}, {flight} in flight ({} rounds of {})", program.name(), asked.rounds, asked.count);
                let table = measure(title, &mut ready, asked, *flight)?;
                println!("\n## {}\n\n{}", table.title, table.shown());
                tables.push(table);
            }
            black_box(&ballast.memory);
        }
    }
    if let Some(path) = &asked.json {
        let all: Vec<_> = tables.iter().map(Table::json).collect();
        std::fs::write(path, serde_json::to_string_pretty(&json!({"bench": "spawn", "unit": "ns", "tables": all}))? + "\n")?;
    }
    Ok(())
}
