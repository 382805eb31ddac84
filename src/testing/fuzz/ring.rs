//! What is kept of a stream against a list of all its bytes.

use super::Bytes;
use crate::capture::{Block, Captured, Pool};
use crate::types::Ns;
use crate::types::limits::BLOCK;

/// The list, and what counts as dropped and delivered of it.
struct Plain {
    all: Vec<u8>,
    first: usize,
    cursor: usize,
    keep: usize,
    ahead: usize,
    deliver: bool,
    lossy: bool,
}

impl Plain {
    fn evict(&mut self) {
        let end = self.all.len();
        let undelivered = match (self.deliver, self.lossy) {
            (false, _) => end,
            (true, false) => self.cursor,
            (true, true) => self.cursor.max(end.saturating_sub(self.ahead)),
        };
        self.first = self
            .first
            .max(end.saturating_sub(self.keep).min(undelivered));
    }
}

/// Stores pieces of every size, delivers, stops delivering: bytes in are kept and dropped, what is
/// kept is the newest and never above the bound, undelivered bytes are there, and offsets fit.
pub fn ring(input: &[u8]) {
    let mut from = Bytes(input);
    let (keep, ahead) = (
        usize::from(from.byte()) * 37,
        usize::from(from.byte()) * 53 + 1,
    );
    let kind = from.byte();
    let (deliver, lossy) = (kind & 1 != 0, kind & 2 != 0);
    let mut plain = Plain {
        all: Vec::new(),
        first: 0,
        cursor: 0,
        keep,
        ahead,
        deliver,
        lossy,
    };
    let mut pool = Pool::new(1 << 20);
    let mut captured = Captured::new(keep as u64, deliver, ahead as u64, lossy);
    let mut spare = pool.take(BLOCK);
    let mut time = 0;
    while !from.is_over() && plain.all.len() < 4 << 20 {
        time += 1;
        match from.below(8) {
            0..4 => {
                if captured.is_full_ahead() && !lossy {
                    continue;
                }
                let n = (usize::from(from.byte()) << (from.byte() % 9)).min(BLOCK);
                spare = store(&mut captured, &mut pool, spare, &mut plain, n, Ns(time));
            }
            4..6 => piece(&mut captured, &mut plain),
            6 => captured.trim(&mut pool),
            _ => {
                if from.byte() == 255 {
                    captured.stop_delivery();
                    plain.deliver = false;
                    plain.evict();
                }
                let room = captured.room();
                captured.give_back(room);
            }
        }
        check(&captured, &plain);
    }
    captured.free(&mut pool);
    assert_eq!(
        (captured.len(), captured.dropped()),
        (0, plain.all.len() as u64)
    );
}

fn store(
    captured: &mut Captured,
    pool: &mut Pool,
    mut spare: Block,
    plain: &mut Plain,
    n: usize,
    at: Ns,
) -> Block {
    let begin = plain.all.len();
    plain
        .all
        .extend((begin..begin + n).map(|place| (place ^ (place >> 8) ^ (place >> 16)) as u8));
    let (_, bytes) = plain.all.split_at(begin);
    let mut room = captured.room();
    let left = room
        .as_ref()
        .map_or(0, |(block, full)| block.capacity() - *full as usize);
    let (first, second) = bytes.split_at(left.min(n));
    if let Some((block, full)) = &mut room {
        let full = *full as usize;
        block.bytes_mut()[full..full + first.len()].copy_from_slice(first);
    }
    let fits = second.len().min(spare.capacity());
    spare.bytes_mut()[..fits].copy_from_slice(&second[..fits]);
    let stored = first.len() + fits;
    plain.all.truncate(begin + stored);
    if stored == 0 {
        captured.give_back(room);
        return spare;
    }
    let spare = captured.store(pool, room, spare, stored, at);
    plain.evict();
    spare
}

fn piece(captured: &mut Captured, plain: &mut Plain) {
    let end = plain.all.len();
    match captured.next_piece(u64::MAX) {
        None => assert!(
            !plain.deliver || plain.cursor == end,
            "undelivered bytes are not given"
        ),
        Some(piece) => {
            assert!(plain.deliver);
            let offset = plain.cursor.max(plain.first);
            assert_eq!(
                (piece.offset, piece.lost),
                (offset as u64, (offset - plain.cursor) as u64)
            );
            assert!(
                plain.lossy || piece.lost == 0,
                "bytes lost that the host has not given up"
            );
            assert_eq!(piece.bytes, &plain.all[offset..offset + piece.bytes.len()]);
            assert!(!piece.bytes.is_empty());
            plain.cursor = offset + piece.bytes.len();
        }
    }
    plain.evict();
}

fn check(captured: &Captured, plain: &Plain) {
    let end = plain.all.len();
    assert_eq!(captured.total(), end as u64);
    assert_eq!(
        captured.len() + captured.dropped(),
        end as u64,
        "in is not kept and dropped"
    );
    assert_eq!(captured.dropped(), plain.first as u64);
    if !plain.deliver {
        assert!(
            captured.len()
                <= (plain.keep as u64).max(captured.len().min((end - plain.first) as u64))
        );
    }
    let kept: Vec<u8> = captured.slices().flatten().copied().collect();
    assert!(
        kept == plain.all[plain.first..],
        "what is kept is not the newest"
    );
}
