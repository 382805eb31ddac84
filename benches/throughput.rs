//! How fast bytes are taken from children that write as fast as they can, and what it costs the
//! host.
//!
//! ```text
//! cargo bench -p lastwords-benches --bench throughput                     # about a quarter of an hour
//! cargo bench -p lastwords-benches --bench throughput -- --small          # does it run?
//! cargo bench -p lastwords-benches --bench throughput -- --only sixteen-large --peers lastwords,raw-epoll,raw-prio,raw-32
//! ```
//!
//! Every peer reads both pipes of every child to their end and keeps the newest 2 MiB of each
//! stream. The peers are taken in turn in each round; a ratio is the median of the ratios within
//! the rounds. Where strace and valgrind are there, the system calls and the instructions of each
//! peer are counted apart, in two runs of different lengths.

#[expect(dead_code, reason = "shared with benches that measure other things")]
mod common;
#[path = "throughput/peers.rs"]
mod peers;
#[path = "throughput/raw.rs"]
mod raw;

use clap::{Parser, ValueEnum};
use common::child::{Role, made_by_another, program, unmake};
use common::counted::{Whose, instructions, slope, system_calls};
use common::figures::{Column, Figure, Measure, Round, Table, Unit};
use common::options::{Choice, Options};
use common::results::{Bound, Results};
use common::{Fail, cpu, now, raise_descriptor_limit};
use peers::{Hosts, Peer, Work};

/// Who writes, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scene {
    /// One child, 64 KiB in a write
    OneLarge,
    /// One child, 4 KiB in a write
    OneSmall,
    /// 16 children, 64 KiB in a write
    SixteenLarge,
    /// 16 children, 4 KiB in a write
    SixteenSmall,
}

impl Scene {
    const fn children(self) -> usize {
        match self {
            Scene::OneLarge | Scene::OneSmall => 1,
            Scene::SixteenLarge | Scene::SixteenSmall => 16,
        }
    }

    /// So many MiB in all.
    fn work(self, mib: u64) -> Work {
        let each = (mib / self.children() as u64).max(1);
        let role = match self {
            Scene::OneLarge | Scene::SixteenLarge => Role::Bulk(each),
            Scene::OneSmall | Scene::SixteenSmall => Role::Fine(each),
        };
        Work {
            role,
            children: self.children(),
        }
    }

    fn title(self, rounds: usize, mib: u64) -> String {
        let (children, size) = match self {
            Scene::OneLarge => ("one child", 64),
            Scene::OneSmall => ("one child", 4),
            Scene::SixteenLarge => ("16 children", 64),
            Scene::SixteenSmall => ("16 children", 4),
        };
        format!("{children}, {size} KiB in a write ({rounds} rounds of {mib} MiB)")
    }
}

/// Bytes of many children, and what it costs to take them.
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    options: Options<Scene, Peer>,
    /// Does a round itself, of so many MiB
    #[arg(long, hide = true, value_names = ["PEER", "SCENE", "MIB", "CHILD"], num_args = 4)]
    play: Vec<String>,
}

/// CPU time of the host per byte read.
const CPU: Measure = Measure::new("cpu_per_byte", Unit::NanosecondsPerByte);
/// Bytes read in a nanosecond.
const RATE: Measure = Measure::new("rate", Unit::BytesPerNanosecond);
/// System calls of the host per MiB.
const CALLS: Measure = Measure::new("system_calls_per_mib", Unit::Count);
/// Instructions of the host per MiB, the kernel's not counted.
const INSTRUCTIONS: Measure = Measure::new("instructions_per_mib", Unit::Count);

fn main() -> Result<(), Fail> {
    let args = Args::parse();
    raise_descriptor_limit()?;
    if let [peer, scene, mib, child] = &args.play[..] {
        made_by_another(child.into());
        return play(
            Peer::from_str(peer, true)?,
            Scene::from_str(scene, true)?,
            mib.parse()?,
        );
    }
    let done = run(&args);
    unmake()?;
    done
}

fn play(peer: Peer, scene: Scene, mib: u64) -> Result<(), Fail> {
    println!("{}", Hosts::default().round(peer, &scene.work(mib))? >> 20);
    Ok(())
}

fn run(args: &Args) -> Result<(), Fail> {
    let peers = args.options.peers(Peer::by_default);
    let mut results = Results::new("throughput", &args.options)?;
    let (mut hosts, rounds, mib) = (
        Hosts::default(),
        args.options.rounds(1, 15),
        args.options.n(32, 512) as u64,
    );
    for scene in args.options.situations() {
        let mut table = Table::new(scene.name(), scene.title(rounds, mib), &peers);
        for round in 0..rounds {
            for place in 0..peers.len() {
                let peer = peers[(place + round) % peers.len()];
                let (cpu_before, before) = (cpu(), now());
                let bytes = hosts
                    .round(peer, &scene.work(mib))
                    .map_err(|error| format!("{peer} in {}: {error}", scene.name()))?;
                let mut done = Round::new().share(CPU, cpu() - cpu_before, bytes).share(
                    RATE,
                    bytes,
                    now() - before,
                );
                if round == 0 {
                    done = counted(done, peer, scene, args.options.small)?;
                }
                table.push(&peer, done);
            }
        }
        results.table(
            &table,
            &columns(),
            &[Peer::RawEpoll, Peer::RawPrio, Peer::Raw32, Peer::Lastwords],
        );
        targets(scene, &table, &mut results);
    }
    results.write()
}

/// The same for all rounds of a peer, and for all of a size of writes that a reader does not see.
fn counted(mut round: Round, peer: Peer, scene: Scene, small: bool) -> Result<Round, Fail> {
    let is_large = matches!(scene, Scene::OneLarge | Scene::SixteenLarge);
    if !is_large
        || (small && !matches!(peer, Peer::Lastwords | Peer::LastwordsUring | Peer::RawPrio))
    {
        return Ok(round);
    }
    // The shorter run has filled what is kept of each stream.
    let [short, long] = [3, 7].map(|mib| (mib * scene.children() as u64).to_string());
    let child = program()?.display().to_string();
    let line = |mib: String| {
        [
            "--play".into(),
            peer.name(),
            scene.name(),
            mib,
            child.clone(),
        ]
    };
    let (short, long) = (line(short), line(long));
    if let Some(calls) = slope(
        system_calls(&short, Whose::AllThreads)?,
        system_calls(&long, Whose::AllThreads)?,
    ) {
        round = round.number(CALLS, calls);
    }
    // valgrind knows nothing of io_uring.
    if peer != Peer::LastwordsUring
        && let Some(count) = slope(instructions(&short)?, instructions(&long)?)
    {
        round = round.number(INSTRUCTIONS, count);
    }
    Ok(round)
}

fn columns() -> Vec<Column<Peer>> {
    let cpu = Figure::Number(CPU);
    vec![
        Column::median("CPU", cpu),
        Column::quartiles("quartiles", cpu),
        Column::ratio("CPU : raw-epoll", Peer::RawEpoll, cpu),
        Column::ratio(": raw-prio", Peer::RawPrio, cpu),
        Column::ratio(": raw-32", Peer::Raw32, cpu),
        Column::median("rate", Figure::Number(RATE)),
        Column::median("calls/MiB", Figure::Number(CALLS)),
        Column::median("instructions/MiB", Figure::Number(INSTRUCTIONS)),
    ]
}

/// What is aimed at, and whether it was reached in this run.
fn targets(scene: Scene, table: &Table<Peer>, results: &mut Results) {
    let ratio = |of, to| table.ratio(&of, &to, Figure::Number(CPU));
    let raw = [Peer::RawEpoll, Peer::RawPrio, Peer::Raw32];
    let worst = raw
        .into_iter()
        .filter_map(|to| ratio(Peer::Lastwords, to))
        .max_by(f64::total_cmp);
    results.target("L4, CPU to the best raw loop", worst, Bound::AtMost(1.10));
    for peer in [Peer::TokioCt, Peer::AsyncProcess] {
        results.target(
            format!("L4, CPU to {peer}"),
            ratio(Peer::Lastwords, peer),
            Bound::AtMost(1.0),
        );
    }
    results.target(
        "L11, CPU on io_uring to epoll",
        ratio(Peer::LastwordsUring, Peer::Lastwords),
        Bound::AtMost(1.0),
    );
    if scene == Scene::SixteenLarge {
        let calls = table.median(&Peer::LastwordsUring, Figure::Number(CALLS));
        results.target(
            "L11, system calls per MiB on io_uring",
            calls,
            Bound::AtMost(4.0),
        );
    }
}
