//! Inputs for the tests of safe text.

use crate::capture::block::Pool;
use crate::capture::captured::Captured;
use crate::sim::Rng;
use crate::types::Ns;
use crate::types::limits::BLOCK;

pub(super) use super::split::split;

/// A stream that has brought `bytes` and keeps the newest `keep` of them.
pub(super) fn captured(bytes: &[u8], keep: u64) -> Captured {
    let mut pool = Pool::new(0);
    let mut captured = Captured::new(keep, false, 0, false);
    let mut spare = pool.take(BLOCK);
    for bytes in bytes.chunks(BLOCK) {
        let mut room = captured.room();
        let n = room
            .as_ref()
            .map_or(0, |(block, full)| block.capacity() - *full as usize)
            .min(bytes.len());
        if let Some((block, full)) = &mut room {
            block.bytes_mut()[*full as usize..][..n].copy_from_slice(&bytes[..n]);
        }
        spare.bytes_mut()[..bytes.len() - n].copy_from_slice(&bytes[n..]);
        spare = captured.store(&mut pool, room, spare, bytes.len(), Ns::ZERO);
    }
    captured
}

pub(super) const FRAGMENTS: &[&[u8]] = &[
    b"\n",
    b"\n",
    b"\n",
    b"\r\n",
    b"\r",
    b"\x08",
    b"\x1b[31m",
    b"\x1b[0m",
    b"\x1b]0;t\x07",
    b"\x1b]0;t",
    b"\x1b\\",
    b"\x1bP1",
    b"\x1b",
    b"\x1b[",
    b"\x9b",
    b"\xc2\x9b1m",
    b"\xc2",
    b"\xc2\x9c",
    b"\xe2\x80\xae",
    b"\xe2\x80",
    b"\xff",
    b"\0",
    b"\t",
    b"word",
    b" ",
    b"a",
    b"\xc3\xa9",
    b"\xf0\x9f\x98\x80",
    b"\xf0\x9f",
    b"the quick brown fox",
    b"\x7f",
    b"\x18",
    b"(B",
    b"m",
];

/// Random fragments of terminal output and of broken text.
pub(super) fn fragments(seed: u64, most: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..rng.index(most))
        .flat_map(|_| rng.pick(FRAGMENTS).iter().copied())
        .collect()
}
