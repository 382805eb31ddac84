//! The speed of safe text, in GB/s of raw input: live (each line through the projection) and asked for at the end.
//!
//! `cargo bench --bench projection [rounds]`. With `--test` every case runs once, small.

use lastwords::Projection;
use lastwords::capture::{Captured, Pool};
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

fn asked(name: &str, projection: &Projection, text: &str, rounds: usize) {
    let mut pool = Pool::new(POOL_BYTES);
    let mut captured = Captured::new(KEEP, false, 0, false);
    for piece in text.as_bytes().chunks(BLOCK) {
        let mut spare = pool.take(BLOCK);
        spare.bytes_mut()[..piece.len()].copy_from_slice(piece);
        captured.store(&mut pool, None, spare, piece.len(), Ns::ZERO);
    }
    let mut best = Duration::MAX;
    for _ in 0..rounds {
        let begin = Instant::now();
        black_box(projection.last_lines(&captured, 0, u64::MAX, TAIL_LINES));
        best = best.min(begin.elapsed());
    }
    println!("asked {name:<43} {:6.2} us", best.as_nanos() as f64 / 1000.0);
}

fn main() {
    let small = std::env::args().any(|argument| argument == "--test");
    let rounds = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(if small { 1 } else { 200 });
    let lines = if small { 100 } else { 13_000 };
    let plain = Projection::builder().redact(false).build().expect("nothing");
    let default = Projection::default();
    let clean = clean(lines);
    let token = coloured(lines, "token=abcdef0123456789");
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
