//! A host for one test: it has a kernel and asks it as a reactor would.

use super::rig::Rig;
use crate::support;
use lastwords::__internals::capture::Pool;
use lastwords::__internals::command::plan::Plan;
use lastwords::__internals::kernel::{
    Batch, Collected, Found, Notice, Notices, ReadOp, ReadResult, Scan, ScanStep, SpawnOutcome,
    Spawned, Until,
};
use lastwords::__internals::types::{
    CollectMode, ExitInfo, Release, Slot, Token, TokenKind, limits,
};
use lastwords::sim::Ns;
use lastwords::{Kernel, Signal, Stream};
use std::sync::Arc;
use std::time::Duration;

/// Longer than anything takes here, on any load.
pub(crate) const LONG: Ns = Ns::from_millis(20_000);

/// The end of a generation, as a token.
pub(crate) fn exit_of(generation: Token) -> Token {
    generation.with(TokenKind::Exit)
}

/// A stream of a generation, as a token.
pub(crate) fn out_of(generation: Token, stream: Stream) -> Token {
    generation.with(TokenKind::Output(stream))
}

/// A kernel and what its user keeps.
pub(crate) struct Host<R: Rig> {
    pub(crate) rig: R,
    pool: Pool,
    sequence: u32,
    scans: u64,
}

impl<R: Rig> Host<R> {
    /// With a new kernel.
    pub(crate) fn new() -> Host<R> {
        Host {
            rig: R::new(),
            pool: Pool::new(limits::POOL_BYTES),
            sequence: 0,
            scans: 0,
        }
    }

    pub(crate) fn kernel(&mut self) -> &mut R::K {
        self.rig.kernel()
    }

    /// A token for the next generation in this slot.
    pub(crate) fn token(&mut self, slot: u32) -> Token {
        self.sequence += 1;
        Token::new(Slot(slot), self.sequence, TokenKind::Spawn)
    }

    /// Starts a plan.
    pub(crate) fn born(
        &mut self,
        slot: u32,
        plan: Plan,
    ) -> (Token, Spawned<<R::K as Kernel>::Raw>) {
        let token = self.token(slot);
        let born = self
            .kernel()
            .spawn(&Arc::new(plan), token)
            .expect("a spawn");
        (token, born)
    }

    /// Starts a script.
    pub(crate) fn start(&mut self, slot: u32, script: &str) -> (Token, u32) {
        let (token, born) = self.born(slot, support::plan(script));
        (token, born.pid)
    }

    /// One wait. Outcomes are asked for, as they must be.
    pub(crate) fn wait(&mut self, until: Until) -> (Vec<Notice>, bool) {
        let mut out = Notices::new();
        self.kernel().wait(until, &mut out).expect("a wait");
        let notices = out.as_slice().to_vec();
        for notice in &notices {
            if let Notice::Outcome(token) = notice {
                let outcome = self.kernel().outcome(*token);
                assert!(
                    !matches!(outcome, SpawnOutcome::NotYet),
                    "announced and not known: {token:?}"
                );
            }
        }
        (notices, out.more)
    }

    /// Waits, at most until `end`.
    pub(crate) fn wait_until(&mut self, end: Ns) -> Vec<Notice> {
        self.wait(Until::At(end)).0
    }

    /// Waits without sleeping until nothing is left to be told.
    pub(crate) fn peek_all(&mut self) -> Vec<Notice> {
        let mut all = Vec::new();
        loop {
            let (notices, more) = self.wait(Until::Peek);
            all.extend(notices);
            if !more {
                return all;
            }
        }
    }

    /// Waits until this notice comes; everything that came before it, and it.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, wanted: Notice) -> Vec<Notice> {
        let end = self.kernel().now().after(LONG);
        let mut all = Vec::new();
        while self.kernel().now() < end {
            all.extend(self.wait_until(end));
            if all.contains(&wanted) {
                return all;
            }
        }
        panic!("{wanted:?} did not come; what came: {all:?}");
    }

    /// Lets time pass until this holds.
    #[track_caller]
    pub(crate) fn pass_until(&mut self, what: &str, mut holds: impl FnMut(&mut R) -> bool) {
        for _ in 0..20_000 {
            if holds(&mut self.rig) {
                return;
            }
            self.rig.pass(Duration::from_millis(1));
        }
        panic!("it did not come to this: {what}");
    }

    /// Waits for the outcome alone.
    #[track_caller]
    pub(crate) fn outcome(&mut self, generation: Token) -> SpawnOutcome {
        let end = self.kernel().now().after(LONG);
        while self.kernel().now() < end {
            self.kernel()
                .wait(Until::Outcome(generation, Some(end)), &mut Notices::new())
                .expect("a wait");
            match self.kernel().outcome(generation) {
                // A signal has interrupted the wait.
                SpawnOutcome::NotYet => {}
                outcome @ (SpawnOutcome::Started | SpawnOutcome::Failed(_)) => return outcome,
            }
        }
        panic!("no outcome");
    }

    /// Waits for the end and collects it; how it ended.
    #[track_caller]
    pub(crate) fn exit(&mut self, generation: Token, mode: CollectMode) -> ExitInfo {
        loop {
            self.wait_for(Notice::Exit(exit_of(generation)));
            match self.kernel().collect(generation, mode) {
                Collected::Ended(info) => return info,
                Collected::NotYet => {}
                Collected::Lost => panic!("nobody else has reaped it"),
            }
        }
    }

    /// One read with a spare block of this size.
    pub(crate) fn read(&mut self, stream: Token, size: usize) -> (ReadResult, Vec<u8>) {
        let mut batch = Batch::new();
        batch.push(ReadOp {
            stream,
            room: None,
            spare: self.pool.take(size),
            result: ReadResult::Stale,
        });
        self.kernel().read(&mut batch);
        let op = batch.pop().expect("the batch keeps its reads");
        let n = if let ReadResult::Data { n, .. } = op.result {
            n
        } else {
            0
        };
        let bytes = op.spare.bytes()[..n].to_vec();
        self.pool.put(op.spare);
        (op.result, bytes)
    }

    /// Reads as a reactor does: at once while more is available, else after the next notice; to end
    /// of file. The bytes, and how many notices it took.
    #[track_caller]
    pub(crate) fn read_to_end(&mut self, stream: Token, size: usize) -> (Vec<u8>, usize) {
        let (mut all, mut notices) = (Vec::new(), 0);
        loop {
            self.wait_for(Notice::Readable(stream));
            notices += 1;
            loop {
                let (result, bytes) = self.read(stream, size);
                all.extend(bytes);
                match result {
                    ReadResult::Data {
                        more_available: true,
                        ..
                    } => {}
                    ReadResult::Data {
                        more_available: false,
                        ..
                    }
                    | ReadResult::Empty => break,
                    ReadResult::End => return (all, notices),
                    ReadResult::Failed(_) | ReadResult::Stale => panic!("{result:?}"),
                }
            }
        }
    }

    /// A whole look: who is found, and whether that is everybody.
    pub(crate) fn scan(&mut self, members: &[Token], holders: &[Token]) -> (Vec<Found>, bool) {
        self.scans += 1;
        let mut scan = Scan {
            id: self.scans,
            members: members.to_vec(),
            holders: holders.to_vec(),
            budget: limits::SCAN_BUDGET,
            ..Scan::default()
        };
        for _ in 0..1_000_000 {
            if let ScanStep::Done {
                members: all_members,
                holders: all_holders,
            } = self.kernel().scan(&mut scan)
            {
                return (
                    scan.found,
                    scan.doubtful.is_empty()
                        && (members.is_empty() || all_members)
                        && (holders.is_empty() || all_holders),
                );
            }
        }
        panic!("a scan without an end");
    }

    /// Kills the group, collects the leader, gives everything back.
    #[track_caller]
    pub(crate) fn end(&mut self, generation: Token) {
        self.kernel().signal(generation, Signal::KILL);
        if self.kernel().collect(generation, CollectMode::Reap) == Collected::NotYet {
            self.exit(generation, CollectMode::Reap);
        }
        self.kernel().release(generation, Release::Close);
    }

    /// The end of the test.
    pub(crate) fn done(self) {
        self.rig.end();
    }
}
