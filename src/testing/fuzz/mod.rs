//! The bodies of the fuzz targets: each takes bytes and panics at the first thing that is not as it
//! should be.
//!
//! `fuzz/fuzz_targets/*.rs` are one line each; `cargo test` runs the same bodies on the committed
//! seeds (`tests/simulated/fuzz_seeds.rs`).

mod ordering;
mod ring;
mod sanitize;
mod spawn_spec;
mod wheel;

pub use ordering::ordering;
pub use ring::ring;
pub use sanitize::sanitize;
pub use spawn_spec::{prepares, spawn_spec};
pub use wheel::wheel;

/// A target's body.
pub type Target = fn(&[u8]);

/// Every target, and its name. [`canary`] is not among them: it must fail.
pub const TARGETS: [(&str, Target); 5] = [
    ("ordering", ordering),
    ("ring", ring),
    ("sanitize", sanitize),
    ("spawn_spec", spawn_spec),
    ("wheel", wheel),
];

/// Fails for an input that only who looks into it can find (a fuzzer that is led by coverage does,
/// in seconds): a fuzzer that does not find it finds nothing else either.
pub fn canary(input: &[u8]) {
    let mut from = Bytes(input);
    let word = b"last";
    assert!(
        word.iter().any(|letter| from.byte() != *letter),
        "the canary sings"
    );
}

/// Numbers from an input: 0 when it is over.
#[derive(Debug)]
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    /// Below `bound`, which is at most 256.
    fn below(&mut self, bound: u16) -> u16 {
        u16::from(self.byte()) % bound.max(1)
    }

    fn number(&mut self) -> u64 {
        (0..8).fold(0, |number, _| number << 8 | u64::from(self.byte()))
    }

    /// So many bytes, or what there is.
    fn some(&mut self, most: usize) -> &'a [u8] {
        let (some, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        some
    }

    fn is_over(&self) -> bool {
        self.0.is_empty()
    }
}
