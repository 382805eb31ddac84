//! The speed of capture and of safe text, in GB/s of raw input: bytes that are only kept, each line
//! through the projection as it arrives, and the last lines asked for at the end; beside what a
//! user would write of strip-ansi-escapes and regex.
//!
//! ```text
//! cargo bench -p lastwords-benches --bench capture                   # a minute
//! cargo bench -p lastwords-benches --bench capture -- --small        # does it run?
//! cargo bench -p lastwords-benches --bench capture -- --only live --rounds 500 --json capture.json
//! ```
//!
//! The case `linear` measures what one line costs against its length, for lines that repeat what
//! the search for secrets is slowest with, and fails if that is not linear.
//!
//! Every case is one thread on memory of its own: there is nobody to take turns with. What is
//! printed is the best of the rounds, which is what the code takes when nothing disturbs it, and
//! their median.

#[expect(dead_code, reason = "shared with benches that measure other things")]
mod common;

use clap::Parser;
use common::Fail;
use common::figures::{Column, Figure, Measure, Round, Table, Unit};
use common::options::{Choice, Options};
use common::results::{Bound, Results};
use lastwords::__internals::capture::{Block, Pool};
use lastwords::__internals::types::limits::{BLOCK, KEEP, POOL_BYTES, TAIL_LINES};
use lastwords::sim::Ns;
use lastwords::{Captured, Projection};
use std::hint::black_box;
use std::time::Instant;

/// Lines of about 80 bytes as builds and servers write them.
fn clean(n: usize) -> String {
    const WORDS: [&str; 16] = [
        "Compiling",
        "request",
        "finished",
        "in",
        "0.84s",
        "src/main.rs:42:7",
        "worker",
        "accepted",
        "connection",
        "from",
        "10.1.2.3",
        "with",
        "id",
        "4f1c9a",
        "test",
        "ok",
    ];
    let mut out = String::new();
    let mut place = 7_usize;
    for line in 0..n {
        let begin = out.len();
        out.push_str(&format!(
            "2026-11-05T12:{:02}:{:02} INFO ",
            line / 60 % 60,
            line % 60
        ));
        while out.len() - begin < 76 {
            place = (place * 31 + line) % 9973;
            out.push_str(WORDS[place % 16]);
            out.push(' ');
        }
        out.push('\n');
    }
    out
}

/// The same with colours and a secret on each line.
fn coloured(n: usize, secret: &str) -> String {
    clean(n)
        .lines()
        .map(|line| {
            format!(
                "\x1b[32m{}\x1b[0m {secret} {}\n",
                &line[..24],
                &line[24..50]
            )
        })
        .collect()
}

fn secrets(n: usize, length: usize) -> Vec<String> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"[(state % 62) as usize]
            as char
    };
    (0..n)
        .map(|_| (0..length).map(|_| next()).collect())
        .collect()
}

fn with(secrets: &[String]) -> Result<Projection, Fail> {
    let mut builder = Projection::builder();
    for secret in secrets {
        builder.secret(secret)?;
    }
    Ok(builder.build()?)
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Case {
    /// Bytes that are kept as the loop does
    Kept,
    /// What a user would write of strip-ansi-escapes and regex
    ByHand,
    /// Each line through the projection as it arrives
    Live,
    /// The last lines asked for at the end
    Asked,
    /// The cost of one line against its length
    Linear,
}

/// The speed of capture and of safe text.
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    options: Options<Case, Way>,
}

/// Who does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Way {
    Lastwords,
    ByHand,
}

/// One pass over the text.
const PASS: Measure = Measure::new("pass", Unit::Nanoseconds);
/// Its bytes in the time of the round.
const RATE: Measure = Measure::new("rate", Unit::BytesPerNanosecond);

/// The cases of one kind; each a row.
struct Bench {
    rounds: usize,
    table: Table<String>,
}

impl Bench {
    fn new(case: Case, title: &str, args: &Args) -> Bench {
        let rounds = args.options.rounds(1, 200);
        Bench {
            rounds,
            table: Table::new(
                case.name(),
                format!("{}: {title} ({rounds} rounds)", case.name()),
                &[],
            ),
        }
    }

    /// Times passes over so many bytes.
    fn rounds(
        &mut self,
        name: &str,
        bytes: usize,
        rounds: usize,
        mut pass: impl FnMut(),
    ) -> Result<(), Fail> {
        for _ in 0..rounds {
            let begin = Instant::now();
            pass();
            let ns = u64::try_from(begin.elapsed().as_nanos())?;
            self.table.push(
                &name.to_owned(),
                Round::new()
                    .samples(PASS, [ns])?
                    .share(RATE, bytes as u64, ns),
            );
        }
        Ok(())
    }

    /// The best rate of a row, in GB/s.
    fn best(&self, name: &str) -> Option<f64> {
        self.table
            .over_rounds(&name.to_owned(), Figure::Number(RATE), 1.0)
    }

    fn shortest(&self, name: &str) -> Option<f64> {
        self.table
            .over_rounds(&name.to_owned(), Figure::Percentile(PASS, 50.0), 0.0)
    }

    fn live(&mut self, name: &str, projection: &Projection, text: &str) -> Result<(), Fail> {
        let mut lines = projection.lines();
        let mut bytes = 0;
        self.rounds(name, text.len(), self.rounds, || {
            for piece in text.as_bytes().chunks(BLOCK) {
                lines.push(piece, &mut |line: &str| bytes += black_box(line).len());
            }
        })?;
        black_box(bytes);
        Ok(())
    }

    /// One line through what a user would write: the escapes stripped, the secrets replaced by a
    /// pattern.
    fn by_hand(&mut self, name: &str, text: &str) -> Result<(), Fail> {
        let pattern = r"(?i)\b(password|passwd|token|secret|api[_-]?key)\s*[=:]\s*\S+|\bbearer\s+\S+|://[^/\s:@]+:[^/\s@]+@";
        let secrets = regex::Regex::new(pattern)?;
        let mut bytes = 0;
        self.rounds(name, text.len(), self.rounds.div_ceil(10), || {
            for line in text.as_bytes().split(|byte| *byte == b'\n') {
                let stripped = strip_ansi_escapes::strip(line);
                bytes += black_box(
                    secrets.replace_all(&String::from_utf8_lossy(&stripped), "[redacted]"),
                )
                .len();
            }
        })?;
        black_box(bytes);
        Ok(())
    }

    /// Bytes that are kept and never looked at, or with the last lines asked for at the end.
    fn kept(
        &mut self,
        name: &str,
        projection: Option<&Projection>,
        text: &str,
    ) -> Result<(), Fail> {
        let mut pool = Pool::new(POOL_BYTES);
        let mut spare = None;
        self.rounds(name, text.len(), self.rounds, || {
            let mut captured = keep(text, &mut pool, &mut spare);
            if let Some(projection) = projection {
                black_box(projection.last_lines(&captured, 0, u64::MAX, TAIL_LINES));
            }
            captured.free(&mut pool);
        })
    }

    fn asked(&mut self, name: &str, projection: &Projection, text: &str) -> Result<(), Fail> {
        let captured = keep(text, &mut Pool::new(POOL_BYTES), &mut None);
        self.rounds(name, text.len(), self.rounds, || {
            black_box(projection.last_lines(&captured, 0, u64::MAX, TAIL_LINES));
        })
    }
}

/// Keeps it all as the loop does, up to the bound.
fn keep(text: &str, pool: &mut Pool, spare: &mut Option<Block>) -> Captured {
    let mut captured = Captured::new(KEEP, false, 0, false);
    for piece in text.as_bytes().chunks(BLOCK) {
        let mut block = spare.take().unwrap_or_else(|| pool.take(BLOCK));
        block.bytes_mut()[..piece.len()].copy_from_slice(piece);
        *spare = Some(captured.store(pool, None, block, piece.len(), Ns::ZERO));
    }
    captured
}

/// What the cases work on.
struct Texts {
    lines: usize,
    clean: String,
    token: String,
    plain: Projection,
    default: Projection,
}

/// How many secrets are registered, and of how many letters each.
const REGISTERED: [(usize, usize); 6] = [
    (1, 12),
    (20, 20),
    (1000, 40),
    (1000, 20),
    (1000, 12),
    (1000, 6),
];

impl Texts {
    fn new(small: bool) -> Result<Texts, Fail> {
        let lines = if small { 100 } else { 13_000 };
        Ok(Texts {
            lines,
            clean: clean(lines),
            token: coloured(lines, "token=abcdef0123456789"),
            plain: Projection::builder().redact(false).build()?,
            default: Projection::default(),
        })
    }
}

fn kept(args: &Args, texts: &Texts) -> Result<Bench, Fail> {
    let mut bench = Bench::new(Case::Kept, "bytes as the loop keeps them", args);
    bench.kept("and never looked at", None, &texts.clean)?;
    bench.kept(
        "the last 50 lines asked for at the end",
        Some(&texts.default),
        &texts.clean,
    )?;
    Ok(bench)
}

fn by_hand(args: &Args, texts: &Texts) -> Result<Bench, Fail> {
    let mut bench = Bench::new(
        Case::ByHand,
        "strip-ansi-escapes and regex, line by line",
        args,
    );
    bench.by_hand("clean", &texts.clean)?;
    bench.by_hand("coloured, a token on each line", &texts.token)?;
    Ok(bench)
}

fn live(args: &Args, texts: &Texts) -> Result<Bench, Fail> {
    let mut bench = Bench::new(
        Case::Live,
        "each line through the projection as it arrives",
        args,
    );
    bench.live("clean, no redaction", &texts.plain, &texts.clean)?;
    bench.live("clean", &texts.default, &texts.clean)?;
    bench.live(
        "coloured, a token on each line",
        &texts.default,
        &texts.token,
    )?;
    bench.live(
        "coloured, a token on each line, no redaction",
        &texts.plain,
        &texts.token,
    )?;
    for (n, length) in REGISTERED {
        let secrets = secrets(n, length);
        let projection = with(&secrets)?;
        bench.live(
            &format!("clean, {n} secrets of {length}"),
            &projection,
            &texts.clean,
        )?;
        let text = coloured(texts.lines, &secrets[0]);
        bench.live(
            &format!("coloured, one on each line, {n} secrets of {length}"),
            &projection,
            &text,
        )?;
    }
    Ok(bench)
}

fn asked(args: &Args, texts: &Texts) -> Result<Bench, Fail> {
    let mut bench = Bench::new(Case::Asked, "the last 50 lines at the end", args);
    bench.asked("clean", &texts.default, &texts.clean)?;
    bench.asked(
        "coloured, a token on each line",
        &texts.default,
        &texts.token,
    )?;
    for (n, length) in REGISTERED {
        let secrets = secrets(n, length);
        let text = coloured(texts.lines, &secrets[0]);
        bench.asked(
            &format!("coloured, {n} secrets of {length}"),
            &with(&secrets)?,
            &text,
        )?;
    }
    Ok(bench)
}

/// Lengths of the lines whose cost is compared, in KiB.
const LENGTHS: [usize; 3] = [32, 64, 128];
/// How far the slope of the logarithms of cost and length may be from 1.
const SLOPE: f64 = 0.15;
/// How often a cost that is not linear is measured.
const ATTEMPTS: usize = 40;

/// What is repeated for each beginning of a shape.
fn units(begin: &str) -> [String; 5] {
    [
        begin.to_owned(),
        format!("{begin}=*,"),
        format!("-{begin}"),
        format!("{begin}:\"*"),
        format!("{begin}a:b@c/"),
    ]
}

/// The least processor time that a line takes, in nanoseconds: a busy machine does not count.
fn cost(projection: &Projection, line: &[u8], rounds: usize) -> f64 {
    let mut lines = projection.lines();
    let mut shortest = f64::MAX;
    for _ in 0..rounds {
        let begin = processor_time();
        lines.push(line, &mut |line: &str| {
            black_box(line);
        });
        shortest = shortest.min(processor_time() - begin);
    }
    shortest
}

/// What this thread has used, in nanoseconds.
fn processor_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// The slope of the line through the logarithms (least squares).
fn slope(points: &[(f64, f64)]) -> f64 {
    let points: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    let n = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let above: f64 = points
        .iter()
        .map(|point| (point.0 - x) * (point.1 - y))
        .sum();
    above
        / points
            .iter()
            .map(|point| (point.0 - x).powi(2))
            .sum::<f64>()
}

/// The cost of a line against its length: for every beginning of a shape and several things behind
/// it, and for registered secrets as long as the line that repeat themselves.
fn linear(args: &Args, results: &mut Results) -> Result<(), Fail> {
    let rounds = args.options.rounds(1, 7);
    let long = LENGTHS[2] << 10;
    println!("\nlinear: one line of the unit, repeated (shortest of {rounds} rounds)\n");
    println!(
        "{:<28} {:>28}  slope",
        "unit", "ns a byte at 32, 64, 128 KiB"
    );
    let mut cases: Vec<(String, Projection)> = Vec::new();
    // A long secret: a long line is looked at whole.
    let random = with(&secrets(1, long))?;
    for begin in lastwords::__internals::text::shape_beginnings() {
        cases.extend(units(begin).map(|unit| (unit, random.clone())));
    }
    for unit in ["a", "ab", "aaaaaaab", "token=*,"] {
        let repeated = unit.repeat(long / unit.len());
        let almost = format!("{}X{}", &repeated[..long / 2], &repeated[..long / 2]);
        cases.push((unit.to_owned(), with(&[repeated + "X"])?));
        cases.push((unit.to_owned(), with(&[almost])?));
    }
    let (mut least, mut most) = (f64::MAX, f64::MIN);
    for (unit, projection) in cases {
        let lines = LENGTHS.map(|kib| unit.repeat((kib << 10) / unit.len()) + "\n");
        let mut points = lines.each_ref().map(|line| (line.len() as f64, f64::MAX));
        let mut found = f64::NAN;
        // What comes out wrong is measured again: other work on the machine disturbs the caches.
        for _ in 0..ATTEMPTS {
            for (line, (_, ns)) in lines.iter().zip(&mut points) {
                *ns = ns.min(cost(&projection, line.as_bytes(), rounds));
            }
            found = slope(&points);
            if (found - 1.0).abs() <= SLOPE {
                break;
            }
        }
        let slope = found;
        (least, most) = (least.min(slope), most.max(slope));
        let per_byte: Vec<String> = points
            .iter()
            .map(|(bytes, ns)| format!("{:7.2}", ns / bytes))
            .collect();
        println!(
            "{:<28} {}  {slope:.2}",
            format!("{unit:?}"),
            per_byte.join(" ")
        );
    }
    results.target("least slope", Some(least), Bound::AtLeast(1.0 - SLOPE));
    results.target("greatest slope", Some(most), Bound::AtMost(1.0 + SLOPE));
    if !args.options.small && (least < 1.0 - SLOPE || most > 1.0 + SLOPE) {
        return Err(format!("not linear: slopes from {least:.2} to {most:.2}").into());
    }
    Ok(())
}

/// What is aimed at, and whether it was reached in this run.
fn targets(case: Case, bench: &Bench, results: &mut Results) {
    match case {
        Case::Kept | Case::ByHand | Case::Linear => {}
        Case::Live => {
            results.target("L5, clean, GB/s", bench.best("clean"), Bound::AtLeast(2.0));
            let found = bench.best("coloured, a token on each line");
            results.target(
                "L5, coloured, a token on each line, GB/s",
                found,
                Bound::AtLeast(0.3),
            );
            for (n, length) in REGISTERED.into_iter().filter(|(n, _)| *n == 1000) {
                for row in [
                    format!("clean, {n} secrets of {length}"),
                    format!("coloured, one on each line, {n} secrets of {length}"),
                ] {
                    results.target(
                        format!("L5, {row}, GB/s"),
                        bench.best(&row),
                        Bound::AtLeast(0.4),
                    );
                }
            }
        }
        Case::Asked => {
            let rows: Vec<&String> = bench.table.peers().collect();
            let longest = rows
                .into_iter()
                .filter_map(|row| bench.shortest(row))
                .max_by(f64::total_cmp);
            results.target(
                "L5, asked for at the end, the longest in µs",
                longest.map(|ns| ns / 1e3),
                Bound::AtMost(50.0),
            );
        }
    }
}

fn main() -> Result<(), Fail> {
    let args = Args::parse();
    let texts = Texts::new(args.options.small)?;
    let mut results = Results::new("capture", &args.options)?;
    let ways = args.options.peers(|_| true);
    for case in args.options.situations() {
        let way = if case == Case::ByHand {
            Way::ByHand
        } else {
            Way::Lastwords
        };
        if !ways.contains(&way) {
            continue;
        }
        let bench = match case {
            Case::Kept => kept(&args, &texts)?,
            Case::ByHand => by_hand(&args, &texts)?,
            Case::Live => live(&args, &texts)?,
            Case::Asked => asked(&args, &texts)?,
            Case::Linear => {
                linear(&args, &mut results)?;
                continue;
            }
        };
        let time = |head: &str, quantile| {
            let figure = Figure::Percentile(PASS, 50.0);
            Column::new(head, move |table: &Table<String>, row| {
                Unit::Nanoseconds.show(table.over_rounds(row, figure, quantile))
            })
        };
        let rate = |head: &str, quantile| {
            let figure = Figure::Number(RATE);
            Column::new(head, move |table: &Table<String>, row| {
                Unit::BytesPerNanosecond.show(table.over_rounds(row, figure, quantile))
            })
        };
        // What is asked for at the end takes as long for a megabyte as for a gigabyte: it has no
        // rate.
        let columns = if case == Case::Asked {
            vec![time("best", 0.0), time("median", 0.5)]
        } else {
            vec![
                rate("best", 1.0),
                rate("median", 0.5),
                time("best pass", 0.0),
            ]
        };
        results.table(&bench.table, &columns, &[]);
        targets(case, &bench, &mut results);
    }
    let begin = Instant::now();
    black_box(Projection::default());
    println!("\nbuilding the default takes {:?}", begin.elapsed());
    results.write()
}
