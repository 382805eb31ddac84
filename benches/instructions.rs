//! How many instructions the hot paths take, counted by valgrind's callgrind: the same on every
//! run, so that a change that makes one of them longer is seen where times say nothing.
//!
//! ```text
//! cargo bench -p lastwords-benches --bench instructions                     # counts, and compares with benches/instructions.json
//! cargo bench -p lastwords-benches --bench instructions -- --only tail      # one of them
//! cargo bench -p lastwords-benches --bench instructions -- --accept         # what was counted is what is expected from now on
//! ```
//!
//! The bench runs itself under callgrind twice for each path, once for longer; the difference is
//! what the path costs. Only this process is counted, and only what it does itself, not what the
//! kernel does for it. The count depends on the processor (AVX2 or not) and a little on the
//! compiler: what is expected is kept for each kind of processor, and compared only with the
//! compiler that it was counted with.
//!
//! Without valgrind nothing is counted, and that is said. `--small` is the same: a count is worth
//! as much in a short run.

#[expect(dead_code, reason = "shared with benches that measure other things")]
mod common;
#[path = "instructions/paths.rs"]
mod paths;

use clap::{Parser, ValueEnum};
use common::Fail;
use common::child::{made_by_another, program, unmake};
use common::counted::{instructions, slope};
use common::figures::{Column, Figure, Measure, Round, Table, Unit};
use common::options::{Choice, Options};
use common::results::Results;
use paths::Path;
use serde_json::{Map, Value, json};
use std::process::Command;

/// What is expected. Kept beside the sources.
const EXPECTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/instructions.json");
/// By how much a count may exceed what is expected: copies, searches and hash maps differ a little
/// from run to run.
const TOLERANCE: f64 = 0.10;

const COUNTED: Measure = Measure::new("instructions", Unit::Count);

/// Which tool counts instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Counter {
    /// valgrind --tool=callgrind
    Callgrind,
}

/// Instructions of the hot paths.
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    options: Options<Path, Counter>,
    /// What was counted is what is expected from now on
    #[arg(long)]
    accept: bool,
    /// Does the path itself, so often
    #[arg(long, hide = true, value_names = ["PATH", "COUNT", "CHILD"], num_args = 3)]
    play: Vec<String>,
}

fn main() -> Result<(), Fail> {
    let args = Args::parse();
    if let [path, count, child] = &args.play[..] {
        return play(path, count, child);
    }
    let done = run(&args);
    unmake()?;
    done
}

fn play(path: &str, count: &str, child: &str) -> Result<(), Fail> {
    made_by_another(child.into());
    println!("{}", Path::from_str(path, true)?.play(count.parse()?)?);
    Ok(())
}

fn run(args: &Args) -> Result<(), Fail> {
    let mut options = args.options.clone();
    options.small = false;
    let (mut results, paths) = (
        Results::new("instructions", &options)?,
        options.situations(),
    );
    let mut expected = Expected::read()?;
    let mut table = Table::new(
        "instructions",
        format!("Instructions ({})", expected.whose),
        &[],
    );
    let mut grown = Vec::new();
    for path in paths {
        let Some(counted) = count(path)? else {
            println!("valgrind is not here: nothing is counted");
            return Ok(());
        };
        table.push(&path.name(), Round::new().number(COUNTED, counted));
        grown.extend(expected.compare(path, counted));
        if args.accept {
            expected.accept(path, counted);
        }
    }
    let known = expected.counts.clone();
    let of = move |path: &String| known.get(path).and_then(Value::as_f64);
    let (wanted, change) = (of.clone(), of);
    results.table(
        &table,
        &[
            Column::median("instructions", Figure::Number(COUNTED)),
            Column::new("expected", move |_, path| {
                wanted(path).map_or_else(|| "-".into(), |count| format!("{count:.0}"))
            }),
            Column::new("change", move |table, path| {
                let found = table
                    .median(path, Figure::Number(COUNTED))
                    .zip(change(path));
                found.map_or_else(
                    || "-".into(),
                    |(found, wanted)| format!("{:+.1} %", (found / wanted - 1.0) * 100.0),
                )
            }),
        ],
        &[],
    );
    bounds(&table, &mut results);
    results.write()?;
    if args.accept {
        return expected.write();
    }
    if grown.is_empty() {
        return Ok(());
    }
    println!();
    grown.iter().for_each(|line| println!("{line}"));
    Err("more instructions than expected: mend it, or accept it with `cargo bench -p lastwords-benches --bench instructions -- --accept`".into())
}

/// What is aimed at whatever is expected.
fn bounds(table: &Table<String>, results: &mut Results) {
    use common::results::Bound::AtMost;
    let of = |path: Path| table.median(&path.name(), Figure::Number(COUNTED));
    results.target(
        "L9, cancel and arm among 1,000",
        of(Path::Rearm),
        AtMost(120.0),
    );
    results.target(
        "L9, cancel and arm among 200,000",
        of(Path::RearmMany),
        AtMost(120.0),
    );
    results.target("L9, next deadline", of(Path::NextDeadline), AtMost(30.0));
}

/// What the path costs each time that it is done.
fn count(path: Path) -> Result<Option<f64>, Fail> {
    let child = program()?.display().to_string();
    let run = |count: u64| {
        instructions(&[
            "--play".into(),
            path.name(),
            count.to_string(),
            child.clone(),
        ])
    };
    let [short, long] = path.counts();
    Ok(slope(run(short)?, run(long)?))
}

/// What is expected of this kind of processor, and by whom it was compiled.
struct Expected {
    /// All of the file.
    all: Map<String, Value>,
    /// The kind of processor.
    whose: String,
    compiler: String,
    counts: Map<String, Value>,
    /// It was counted with this compiler.
    same_compiler: bool,
}

impl Expected {
    fn read() -> Result<Expected, Fail> {
        let all: Map<String, Value> = match std::fs::read_to_string(EXPECTED) {
            Ok(text) => serde_json::from_str(&text)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Map::new(),
            Err(error) => return Err(error.into()),
        };
        let (whose, compiler) = (processor(), compiler()?);
        let ours = all.get(&whose);
        let counts = ours
            .and_then(|of| of.get("counts"))
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();
        let same_compiler = ours
            .and_then(|of| of.get("compiler"))
            .and_then(Value::as_str)
            == Some(&compiler);
        if counts.is_empty() {
            println!("nothing is expected of {whose} yet: counted, not compared");
        } else if !same_compiler {
            println!(
                "what is expected was counted with another compiler than {compiler}: told, not held against it"
            );
        }
        Ok(Expected {
            all,
            whose,
            compiler,
            counts,
            same_compiler,
        })
    }

    /// What is to be said of a path that has become longer, or that nobody knows yet.
    fn compare(&self, path: Path, counted: f64) -> Option<String> {
        if !self.same_compiler {
            return None;
        }
        let name = path.name();
        let Some(expected) = self.counts.get(&name).and_then(Value::as_f64) else {
            return Some(format!(
                "{name}: {counted:.0} instructions, and nothing is expected"
            ));
        };
        let change = counted / expected - 1.0;
        if change < -TOLERANCE {
            println!(
                "{name}: {counted:.0} instructions instead of {expected:.0}: shorter; --accept keeps it so"
            );
        }
        (change > TOLERANCE).then(|| {
            let (more, most) = (change * 100.0, TOLERANCE * 100.0);
            format!("{name}: {counted:.0} instructions instead of {expected:.0}: {more:.1} % more, at most {most:.0} % are tolerated")
        })
    }

    fn accept(&mut self, path: Path, counted: f64) {
        self.counts.insert(path.name(), json!(counted.round()));
    }

    fn write(mut self) -> Result<(), Fail> {
        self.all.insert(
            self.whose,
            json!({"compiler": self.compiler, "counts": self.counts}),
        );
        Ok(std::fs::write(
            EXPECTED,
            serde_json::to_string_pretty(&self.all)? + "\n",
        )?)
    }
}

/// What decides which code is run.
fn processor() -> String {
    #[cfg(target_arch = "x86_64")]
    let wide = if std::arch::is_x86_feature_detected!("avx2") {
        "-avx2"
    } else {
        ""
    };
    #[cfg(not(target_arch = "x86_64"))]
    let wide = "";
    format!("{}{wide}", std::env::consts::ARCH)
}

/// The first two numbers of its version: `1.95`. Cargo's are the compiler's.
fn compiler() -> Result<String, Fail> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let told = String::from_utf8(Command::new(cargo).arg("--version").output()?.stdout)?;
    let version = told
        .split_whitespace()
        .nth(1)
        .ok_or("cargo does not tell its version")?;
    Ok(version.split('.').take(2).collect::<Vec<_>>().join("."))
}
