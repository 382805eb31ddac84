//! What one turn costs: the CPU time of the thread, allocations, and system calls.
//!
//! ```text
//! cargo bench -p lastwords-benches --bench turn                     # about five minutes
//! cargo bench -p lastwords-benches --bench turn -- --small          # does it run?
//! cargo bench -p lastwords-benches --bench turn -- --only mixed --json turn.json --plots .
//! ```
//!
//! 200 children write as fast as they can. In `bytes` that is all; in `mixed` quiet children come
//! and go beside them, and others that leave a process behind, so that exits, verdicts, reports and
//! scans of /proc fall into the turns. Only [`Reactor::turn`] is measured: what the host asks for
//! (starting a child, an event with its report) is not the turn's.
#![expect(unsafe_code, reason = "a counting allocator is an unsafe trait")]

#[path = "turn/allocations.rs"]
mod allocations;
#[expect(dead_code, reason = "shared with benches that measure other things")]
mod common;

use allocations::allocations;
use clap::{Parser, ValueEnum};
use common::child::{Gate, Role, made_by_another, program, unmake};
use common::counted::{Whose, slope, system_calls};
use common::figures::{Column, Figure, Measure, Round, Table, Unit};
use common::options::{Choice, Options};
use common::peers::has_uring;
use common::results::{Bound, Results};
use common::{Fail, raise_descriptor_limit, thread_cpu};
use lastwords::{
    BackendChoice, BackgroundPolicy, Command, DrainPolicy, Event, Generation, Reactor, Stdin,
};
use std::time::Duration;

/// What happens in the turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scene {
    /// Bytes of 200 noisy children
    Bytes,
    /// The same, with children that come and go and leave processes behind
    Mixed,
}

/// On which poll set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Host {
    /// lastwords on epoll
    Lastwords,
    /// lastwords on io_uring
    LastwordsUring,
}

impl std::fmt::Display for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}

/// What one turn costs.
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    options: Options<Scene, Host>,
    /// Children that make noise
    #[arg(long, value_name = "N")]
    noisy: Option<usize>,
    /// Reads of one turn [default: the loop's own]
    #[arg(long, value_name = "N")]
    reads: Option<usize>,
    /// Runs so many quiet children, one after another
    #[arg(long, hide = true, value_names = ["HOST", "COUNT", "CHILD"], num_args = 3)]
    play: Vec<String>,
}

/// CPU time of the thread in one turn.
const TURN: Measure = Measure::new("turn", Unit::Nanoseconds);
/// Allocations in one turn.
const ALLOCATIONS: Measure = Measure::new("allocations", Unit::Count);
/// Allocations in all turns after the warm-up, by their number.
const EACH: Measure = Measure::new("allocations_per_turn", Unit::Count);
/// Bytes read in one turn.
const BYTES: Measure = Measure::new("bytes_per_turn", Unit::Bytes);
/// CPU time of the turns by the bytes that they have read.
const CPU: Measure = Measure::new("cpu_per_byte", Unit::NanosecondsPerByte);
/// System calls of a quiet child, from its start to its report.
const CALLS: Measure = Measure::new("system_calls_per_child", Unit::Count);

fn main() -> Result<(), Fail> {
    let args = Args::parse();
    raise_descriptor_limit()?;
    if let [host, count, child] = &args.play[..] {
        made_by_another(child.into());
        return quiet(Host::from_str(host, true)?, count.parse()?);
    }
    let done = run(&args);
    unmake()?;
    done
}

fn run(args: &Args) -> Result<(), Fail> {
    let hosts = args
        .options
        .peers(|host| host != Host::LastwordsUring || has_uring());
    let mut results = Results::new("turn", &args.options)?;
    let (rounds, turns) = (args.options.rounds(1, 5), args.options.n(300, 5_000));
    let noisy = args.noisy.unwrap_or(args.options.size(40, 200));
    for scene in args.options.situations() {
        let title = format!(
            "{}: {noisy} noisy children ({rounds} rounds of {turns} turns)",
            scene.name()
        );
        let mut table = Table::new(scene.name(), title, &hosts);
        for round in 0..rounds {
            for place in 0..hosts.len() {
                let host = hosts[(place + round) % hosts.len()];
                let mut measured = Turns::new(host, scene, noisy, args.reads)?
                    .measure(turns, args.options.small)?;
                if round == 0
                    && let Some(calls) = calls_per_child(host)?
                {
                    measured = measured.number(CALLS, calls);
                }
                table.push(&host, measured);
            }
        }
        results.table(&table, &columns(), &[Host::Lastwords]);
        results.plot(&table, TURN)?;
        targets(scene, &table, &mut results);
    }
    results.write()
}

fn columns() -> Vec<Column<Host>> {
    let all = |percent: f64| {
        #[expect(clippy::cast_precision_loss, reason = "shown with four digits")]
        move |table: &Table<Host>, host: &Host| {
            TURN.unit.show(
                table
                    .all(host, TURN)
                    .map(|all| all.value_at_percentile(percent) as f64),
            )
        }
    };
    vec![
        Column::new("turn p50", all(50.0)),
        Column::new("p99", all(99.0)),
        Column::new("p99.9", all(99.9)),
        Column::worst("max", TURN),
        Column::count("n", TURN),
        Column::median("bytes", Figure::Percentile(BYTES, 50.0)),
        Column::median("CPU", Figure::Number(CPU)),
        Column::median("allocations per turn", Figure::Number(EACH)),
        Column::worst("most in one", ALLOCATIONS),
        Column::median("system calls per quiet child", Figure::Number(CALLS)),
    ]
}

/// What is aimed at, and whether it was reached in this run.
fn targets(scene: Scene, table: &Table<Host>, results: &mut Results) {
    for host in table.peers().copied().collect::<Vec<_>>() {
        #[expect(clippy::cast_precision_loss, reason = "shown with four digits")]
        let slow = table
            .all(&host, TURN)
            .map(|all| all.value_at_percentile(99.9) as f64 / 1e6);
        results.target(
            format!("L8, p99.9 of a turn's CPU in ms, {host}, {}", scene.name()),
            slow,
            Bound::AtMost(1.0),
        );
        if scene == Scene::Bytes {
            let each = table.median(&host, Figure::Number(EACH));
            results.target(
                format!("L8, allocations per turn of bytes, {host}"),
                each,
                Bound::AtMost(0.0),
            );
        }
    }
}

/// A loop with what happens in it.
struct Turns {
    reactor: Reactor,
    noisy: Vec<Generation>,
    /// Those that come and go: what is started in place of each that has ended.
    passing: Vec<(Generation, Command)>,
}

impl Turns {
    fn new(host: Host, scene: Scene, noisy: usize, reads: Option<usize>) -> Result<Turns, Fail> {
        let mut builder = builder(host);
        builder.pool_bytes(1 << 30);
        if let Some(reads) = reads {
            builder.reads_per_turn(reads);
        }
        let mut this = Turns {
            reactor: builder.build()?,
            noisy: Vec::new(),
            passing: Vec::new(),
        };
        let gate = Gate::new()?;
        for _ in 0..noisy {
            let mut command = Role::Noisy.own_command()?;
            command.stdin(Stdin::Fd(gate.stdin()?));
            this.noisy.push(this.reactor.start(&command)?);
        }
        if scene == Scene::Mixed {
            for command in passing()? {
                let generation = this.reactor.start(&command)?;
                this.passing.push((generation, command));
            }
        }
        Ok(this)
    }

    fn measure(mut self, turns: usize, small: bool) -> Result<Round, Fail> {
        // Every stream has its blocks by then: 2 MiB of each of 200, at 1 MiB and more in a turn.
        let warm_up = if small { turns } else { turns.max(2_000) };
        for _ in 0..warm_up {
            self.turn()?;
        }
        let (mut spent, mut allocated, mut read) = (
            Vec::with_capacity(turns),
            Vec::with_capacity(turns),
            Vec::with_capacity(turns),
        );
        for _ in 0..turns {
            let (bytes, allocations_before, before) =
                (self.reactor.stats().bytes, allocations(), thread_cpu());
            let _more = self.reactor.turn(Some(Duration::from_millis(1)))?;
            spent.push(thread_cpu() - before);
            allocated.push(allocations() - allocations_before);
            read.push(self.reactor.stats().bytes - bytes);
            self.serve()?;
        }
        self.end()?;
        let (cpu, bytes, calls) = (
            spent.iter().sum(),
            read.iter().sum(),
            allocated.iter().sum(),
        );
        let round = Round::new()
            .samples(TURN, spent)?
            .samples(ALLOCATIONS, allocated)?
            .samples(BYTES, read)?;
        Ok(round
            .share(CPU, cpu, bytes)
            .share(EACH, calls, turns as u64))
    }

    fn turn(&mut self) -> Result<(), Fail> {
        let _more = self.reactor.turn(Some(Duration::from_millis(1)))?;
        self.serve()
    }

    /// Takes the events, and starts another child for each that is over.
    fn serve(&mut self) -> Result<(), Fail> {
        let mut over = Vec::new();
        while let Some(event) = self.reactor.next_event() {
            match event {
                Event::SpawnFailed { error, .. } => return Err(error.into()),
                Event::Closed { generation, .. } => over.push(generation),
                _ => {}
            }
        }
        for (generation, command) in &mut self.passing {
            if over.contains(generation) {
                *generation = self.reactor.start(command)?;
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), Fail> {
        for generation in self
            .noisy
            .iter()
            .chain(self.passing.iter().map(|(generation, _)| generation))
        {
            self.reactor.kill(*generation);
        }
        while self.reactor.wait_event(None)?.is_some() {}
        Ok(())
    }
}

fn builder(host: Host) -> lastwords::Builder {
    let mut builder = Reactor::builder();
    builder.backend(match host {
        Host::Lastwords => BackendChoice::Epoll,
        Host::LastwordsUring => BackendChoice::Uring,
    });
    builder
}

/// Eight quiet ones, four that leave work behind which is waited for, and four whose pipes are held
/// beyond the bound, so that the holder is looked for.
fn passing() -> Result<Vec<Command>, Fail> {
    let mut all = Vec::new();
    for number in 0..16 {
        let role = if number < 8 {
            Role::Quiet
        } else {
            Role::Leaver(60)
        };
        let mut command = role.own_command()?;
        command.stdin(Stdin::Null);
        if number >= 12 {
            command.drain(DrainPolicy::default().idle(Duration::from_millis(10)));
        }
        if number >= 8 {
            command.background(BackgroundPolicy::settle().grace(Duration::from_millis(5)));
        }
        all.push(command);
    }
    Ok(all)
}

fn quiet(host: Host, count: u64) -> Result<(), Fail> {
    let mut reactor = builder(host).build()?;
    let mut command = Role::Quiet.own_command()?;
    command.stdin(Stdin::Null);
    for _ in 0..count {
        reactor.start(&command)?;
        while reactor.wait_event(None)?.is_some() {}
    }
    println!("{count}");
    Ok(())
}

fn calls_per_child(host: Host) -> Result<Option<f64>, Fail> {
    let child = program()?.display().to_string();
    let run = |count: u64| {
        system_calls(
            &[
                "--play".into(),
                host.name(),
                count.to_string(),
                child.clone(),
            ],
            Whose::FirstThread,
        )
    };
    Ok(slope(run(20)?, run(60)?))
}
