//! The speed of capture and of safe text, in GB/s of raw input: bytes that are only kept, each line through the projection as it
//! arrives, and the last lines asked for at the end; beside what a user would write of strip-ansi-escapes and regex.
//!
//! `cargo bench --bench capture [rounds]`. With `--small` every case runs once, small.

use lastwords::Projection;
use lastwords::capture::{Block, Captured, Pool};
use lastwords::limits::{BLOCK, KEEP, POOL_BYTES, TAIL_LINES};
use lastwords::time::Ns;
use std::hint::black_box;
use std::time::{Duration, Instant};

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
        out.push_str(&format!("2026-11-05T12:{:02}:{:02} INFO ", line / 60 % 60, line % 60));
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
    clean(n).lines().map(|line| format!("\x1b[32m{}\x1b[0m {secret} {}\n", &line[..24], &line[24..50])).collect()
}

fn secrets(n: usize, length: usize) -> Vec<String> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"[(state % 62) as usize] as char
    };
    (0..n).map(|_| (0..length).map(|_| next()).collect()).collect()
}

fn with(secrets: &[String]) -> Projection {
    let mut builder = Projection::builder();
    for secret in secrets {
        builder.secret(secret).expect("long enough");
    }
    builder.build().expect("few enough")
}

fn live(name: &str, projection: &Projection, text: &str, rounds: usize) {
    let mut lines = projection.lines();
    let mut best = Duration::MAX;
    let mut bytes = 0;
    for _ in 0..rounds {
        let begin = Instant::now();
        for piece in text.as_bytes().chunks(BLOCK) {
            lines.push(piece, &mut |line: &str| bytes += black_box(line).len());
        }
        best = best.min(begin.elapsed());
    }
    println!("live {name:<44} {:6.2} GB/s", text.len() as f64 / best.as_nanos() as f64);
    black_box(bytes);
}

/// One line through what a user would write: the escapes stripped, the secrets replaced by a pattern.
fn by_hand(name: &str, text: &str, rounds: usize) {
    let pattern = r"(?i)\b(password|passwd|token|secret|api[_-]?key)\s*[=:]\s*\S+|\bbearer\s+\S+|://[^/\s:@]+:[^/\s@]+@";
    let secrets = regex::Regex::new(pattern).expect("a pattern");
    let mut best = Duration::MAX;
    let mut bytes = 0;
    for _ in 0..rounds.div_ceil(10) {
        let begin = Instant::now();
        for line in text.as_bytes().split(|byte| *byte == b'\n') {
            let stripped = strip_ansi_escapes::strip(line);
            bytes += black_box(secrets.replace_all(&String::from_utf8_lossy(&stripped), "[redacted]")).len();
        }
        best = best.min(begin.elapsed());
    }
    println!("by hand {name:<41} {:6.2} GB/s", text.len() as f64 / best.as_nanos() as f64);
    black_box(bytes);
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

/// Bytes that are kept and never looked at, and the same with the last lines asked for at the end.
fn kept(name: &str, projection: Option<&Projection>, text: &str, rounds: usize) {
    let mut pool = Pool::new(POOL_BYTES);
    let mut spare = None;
    let mut best = Duration::MAX;
    for _ in 0..rounds {
        let begin = Instant::now();
        let mut captured = keep(text, &mut pool, &mut spare);
        if let Some(projection) = projection {
            black_box(projection.last_lines(&captured, 0, u64::MAX, TAIL_LINES));
        }
        best = best.min(begin.elapsed());
        captured.free(&mut pool);
    }
    println!("kept {name:<44} {:6.2} GB/s", text.len() as f64 / best.as_nanos() as f64);
}

fn asked(name: &str, projection: &Projection, text: &str, rounds: usize) {
    let captured = keep(text, &mut Pool::new(POOL_BYTES), &mut None);
    let mut best = Duration::MAX;
    for _ in 0..rounds {
        let begin = Instant::now();
        black_box(projection.last_lines(&captured, 0, u64::MAX, TAIL_LINES));
        best = best.min(begin.elapsed());
    }
    println!("asked {name:<43} {:6.2} us", best.as_nanos() as f64 / 1000.0);
}

fn main() {
    let small = std::env::args().any(|argument| argument == "--small" || argument == "--test");
    let rounds = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(if small { 1 } else { 200 });
    let lines = if small { 100 } else { 13_000 };
    let plain = Projection::builder().redact(false).build().expect("nothing");
    let default = Projection::default();
    let clean = clean(lines);
    let token = coloured(lines, "token=abcdef0123456789");
    kept("and never looked at", None, &clean, rounds);
    kept("the last 50 lines asked for at the end", Some(&default), &clean, rounds);
    by_hand("clean", &clean, rounds);
    by_hand("coloured, a token on each line", &token, rounds);
    live("clean, no redaction", &plain, &clean, rounds);
    live("clean", &default, &clean, rounds);
    live("coloured, a token on each line", &default, &token, rounds);
    live("coloured, a token on each line, no redaction", &plain, &token, rounds);
    for (n, length) in [(1, 12), (20, 20), (1000, 40), (1000, 20), (1000, 12), (1000, 6)] {
        let secrets = secrets(n, length);
        let projection = with(&secrets);
        live(&format!("clean, {n} secrets of {length}"), &projection, &clean, rounds);
        let text = coloured(lines, &secrets[0]);
        live(&format!("coloured, one on each line, {n} secrets of {length}"), &projection, &text, rounds);
        asked(&format!("coloured, {n} secrets of {length}"), &projection, &text, rounds);
    }
    asked("clean", &default, &clean, rounds);
    asked("coloured, a token on each line", &default, &token, rounds);
    let begin = Instant::now();
    black_box(Projection::default());
    println!("building the default takes {:?}", begin.elapsed());
}
