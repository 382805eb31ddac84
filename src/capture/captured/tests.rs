//! Tests of the kept bytes against a plain vector that keeps everything.

use crate::capture::captured::*;
use crate::sim::Rng;
use crate::types::limits::{AHEAD, KEEP, POOL_BYTES};
use std::io::Read as _;

/// A stream, its pool and its spare, fed as a reactor does.
struct Feed {
    captured: Captured,
    pool: Pool,
    spare: Option<Block>,
    written: Vec<u8>,
}

impl Feed {
    fn new(captured: Captured) -> Feed {
        let mut pool = Pool::new(POOL_BYTES);
        let spare = Some(pool.take(BLOCK));
        Feed {
            captured,
            pool,
            spare,
            written: Vec::new(),
        }
    }

    /// One read that brings at most `n` bytes.
    fn read(&mut self, n: usize) {
        let mut room = self.captured.room();
        let mut spare = self.spare.take().expect("a spare");
        let into_room = room
            .as_ref()
            .map_or(0, |(block, full)| block.capacity() - *full as usize)
            .min(n);
        let n = n.min(into_room + spare.capacity());
        let bytes: Vec<u8> = (0..n)
            .map(|i| (((self.written.len() + i) * 31) >> 3) as u8)
            .collect();
        if let Some((block, full)) = &mut room {
            block.bytes_mut()[*full as usize..][..into_room].copy_from_slice(&bytes[..into_room]);
        }
        spare.bytes_mut()[..n - into_room].copy_from_slice(&bytes[into_room..]);
        self.written.extend_from_slice(&bytes);
        if n == 0 {
            self.captured.give_back(room);
            self.spare = Some(spare);
        } else {
            self.spare = Some(self.captured.store(
                &mut self.pool,
                room,
                spare,
                n,
                Ns(self.written.len() as u64),
            ));
        }
    }

    fn size(&self) -> usize {
        self.captured
            .blocks
            .iter()
            .map(|filled| filled.block.capacity())
            .sum()
    }

    fn check(&self) {
        let c = &self.captured;
        assert_eq!(c.total(), self.written.len() as u64);
        assert_eq!(c.len() + c.dropped(), c.total());
        assert!(
            c.to_vec() == self.written[c.dropped() as usize..],
            "kept bytes differ"
        );
    }
}

#[test]
fn the_newest_bytes_are_kept_to_the_byte() {
    for keep in [0, 1, 100, 1000, 4096, 5000, 60_000, 65_536, 70_000, 300_000] {
        let mut rng = Rng::new(keep + 1);
        let mut feed = Feed::new(Captured::new(keep, false, AHEAD, false));
        for _ in 0..300 {
            let most = [1, 100, 5000, 70_000, 140_000][rng.below(5) as usize];
            feed.read(rng.below(most + 1) as usize);
            feed.check();
            assert_eq!(feed.captured.len(), keep.min(feed.captured.total()));
            let n = feed.captured.len() as usize;
            let most = if feed.captured.total() < 65_536 {
                (4 * n).max(4096)
            } else {
                n + 2 * BLOCK
            };
            assert!(
                feed.size() <= most.max(usize::from(n > 0) * 4096),
                "{} for {n} bytes",
                feed.size()
            );
        }
        let (from, to) = (
            feed.captured.dropped() + keep / 3,
            feed.captured.dropped() + keep / 2,
        );
        let part = feed
            .captured
            .slices_from(from, to)
            .collect::<Vec<_>>()
            .concat();
        assert!(part == feed.written[from as usize..to as usize]);
        let mut backwards: Vec<&[u8]> = feed.captured.slices().rev().collect();
        backwards.reverse();
        assert!(backwards.concat() == feed.captured.to_vec());
    }
}

#[test]
fn undelivered_bytes_are_never_dropped_and_come_once_in_order() {
    for keep in [0, 10, 5000, 100_000] {
        let mut rng = Rng::new(keep + 99);
        let mut feed = Feed::new(Captured::new(keep, true, 200_000, false));
        let mut delivered = 0;
        for _ in 0..2000 {
            if feed.captured.is_full_ahead() || rng.below(3) == 0 {
                for _ in 0..rng.below(5) {
                    let Some(piece) = feed.captured.next_piece(u64::MAX) else {
                        break;
                    };
                    assert_eq!((piece.offset, piece.lost), (delivered, 0));
                    let n = piece.bytes.len() as u64;
                    assert!(piece.bytes == &feed.written[delivered as usize..][..n as usize]);
                    assert!(n > 0 && piece.at.0 >= delivered + n);
                    delivered += n;
                    if rng.below(2) == 0 {
                        feed.captured.trim(&mut feed.pool);
                    }
                }
            } else {
                feed.read(rng.below(30_000) as usize);
            }
            feed.check();
            let undelivered = feed.captured.total() - delivered;
            assert_eq!(feed.captured.undelivered(), undelivered);
            assert!(undelivered < 200_000 + 2 * BLOCK as u64);
            assert_eq!(
                feed.captured.len(),
                keep.max(undelivered).min(feed.captured.total())
            );
        }
    }
}

#[test]
fn a_lossy_stream_never_pauses_and_tells_what_was_lost() {
    let mut rng = Rng::new(5);
    let mut feed = Feed::new(Captured::new(1000, true, 50_000, true));
    let (mut seen, mut lost) = (0, 0);
    for _ in 0..2000 {
        assert!(!feed.captured.is_full_ahead());
        feed.read(rng.below(30_000) as usize);
        assert!(feed.captured.len() <= 50_000);
        if rng.below(4) == 0
            && let Some(piece) = feed.captured.next_piece(u64::MAX)
        {
            assert_eq!(piece.offset, seen + lost + piece.lost);
            assert!(piece.bytes == &feed.written[piece.offset as usize..][..piece.bytes.len()]);
            lost += piece.lost;
            seen += piece.bytes.len() as u64;
        }
        feed.check();
    }
    while let Some(piece) = feed.captured.next_piece(u64::MAX) {
        lost += piece.lost;
        seen += piece.bytes.len() as u64;
    }
    assert_eq!(seen + lost, feed.captured.total());
    assert!(lost > 0);
}

#[test]
fn an_idle_stream_has_no_block_and_a_line_costs_the_smallest() {
    let mut feed = Feed::new(Captured::new(KEEP, false, AHEAD, false));
    assert!(feed.captured.room().is_none());
    assert_eq!(feed.size(), 0);
    feed.read(80);
    assert_eq!(feed.size(), BLOCK_SIZES[0]);
    assert!(size_of::<Captured>() <= 104, "{}", size_of::<Captured>());
}

#[test]
fn nothing_kept_and_nothing_delivered_takes_no_block_and_counts_all() {
    let mut feed = Feed::new(Captured::new(0, false, AHEAD, false));
    for _ in 0..10 {
        feed.read(BLOCK);
    }
    assert_eq!(
        (feed.captured.total(), feed.captured.dropped(), feed.size()),
        (10 * BLOCK as u64, 10 * BLOCK as u64, 0)
    );
}

#[test]
fn all_blocks_go_back_and_the_counts_stay() {
    let mut feed = Feed::new(Captured::new(KEEP, false, AHEAD, false));
    for _ in 0..10 {
        feed.read(BLOCK);
    }
    let size = feed.size();
    feed.captured.free(&mut feed.pool);
    assert_eq!((feed.pool.bytes(), feed.size()), (size, 0));
    assert_eq!(
        (feed.captured.len(), feed.captured.total()),
        (0, 10 * BLOCK as u64)
    );
    feed.read(5);
    assert_eq!(feed.captured.to_vec(), feed.written[10 * BLOCK..]);
}

#[test]
fn reading_gives_each_byte_once_and_debug_gives_none() {
    let mut feed = Feed::new(Captured::new(KEEP, true, AHEAD, false));
    feed.read(100_000);
    let mut all = Vec::new();
    feed.captured.read_to_end(&mut all).expect("memory");
    assert!(all == feed.written);
    feed.read(10);
    assert_eq!(feed.captured.read_to_end(&mut all).ok(), Some(10));
    let mut feed = Feed::new(Captured::new(KEEP, true, AHEAD, false));
    feed.read(3);
    let debug = format!("{:?} {:?}", feed.captured, feed.captured.slices());
    assert_eq!(
        debug,
        "Captured { len: 3, dropped: 0, total: 3, undelivered: 3, .. } [3]"
    );
    assert_eq!(
        format!("{:?}", feed.captured.next_piece(u64::MAX)),
        "Some(Piece { len: 3, offset: 0, lost: 0, at: Ns(3) })"
    );
}

#[test]
fn lossy_text_begins_with_a_whole_character() {
    for keep in [998, 999] {
        let mut pool = Pool::new(0);
        let mut captured = Captured::new(keep, false, 0, false);
        let mut spare = pool.take(BLOCK);
        spare.bytes_mut()[..4000].copy_from_slice("é".repeat(2000).as_bytes());
        captured.store(&mut pool, None, spare, 4000, Ns::ZERO);
        assert_eq!(captured.to_string_lossy(), "é".repeat(499));
    }
}

#[test]
fn a_piece_ends_where_the_late_bytes_begin() {
    let mut feed = Feed::new(Captured::new(KEEP, true, AHEAD, false));
    feed.read(100);
    let piece = feed
        .captured
        .next_piece(60)
        .map(|piece| (piece.offset, piece.bytes.len()));
    assert_eq!(piece, Some((0, 60)));
    let piece = feed
        .captured
        .next_piece(60)
        .map(|piece| (piece.offset, piece.bytes.len()));
    assert_eq!(piece, Some((60, 40)));
    assert_eq!(feed.captured.undelivered(), 0);
    feed.read(5);
    feed.captured.stop_delivery();
    assert_eq!((feed.captured.undelivered(), feed.captured.len()), (0, 105));
    let mut feed = Feed::new(Captured::new(10, true, AHEAD, false));
    feed.read(100);
    feed.captured.stop_delivery();
    assert_eq!(
        feed.captured.to_vec(),
        feed.written[90..],
        "the bound holds at once"
    );
}
