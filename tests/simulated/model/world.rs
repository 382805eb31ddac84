//! A small world around one life: a leader, up to two members, two pipes, and a kernel that
//! answers.

use lastwords::__internals::lifecycle::{
    Effect, Input, Lifecycle, Notification, State, StopStage, Timer,
};
use lastwords::__internals::types::{CollectMode, ExitInfo, Member, Policy, Probe, Release};
use lastwords::sim::Ns;
use lastwords::{
    ContainedBy, EndedBy, Exit, Outcome, SettledAs, Signal, Signalled, StatusSource, StopReason,
    Stream, StreamEnd, Survivor, Verdict,
};
use std::collections::VecDeque;
use std::time::Duration;

/// What a process does with signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Obeys,
    IgnoresTerm,
    Stuck,
    /// It has changed user: EPERM.
    Denies,
}

/// How the exec goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Exec {
    Pending,
    Done,
    Failed,
}

/// What has become of the leader's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Collected {
    Not,
    Kept,
    Reaped,
    Lingers,
    HandedOver,
}

/// A process that the leader left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Mem {
    /// Streams it holds, a bit each.
    pub(crate) holds: u8,
    pub(crate) kind: Kind,
    pub(crate) inside: bool,
    pub(crate) alive: bool,
    pub(crate) watched: bool,
    /// Its end is announced, and not served yet.
    pub(crate) gone: bool,
}

/// What is explored, and with which bounds.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) name: &'static str,
    pub(crate) policy: Policy,
    pub(crate) group_signal: bool,
    pub(crate) captured: [bool; 2],
    pub(crate) feeds_stdin: bool,
    /// Scans and sweeps answer in a later step, not in the same.
    pub(crate) slow: bool,
    /// Members that have ended stay zombies.
    pub(crate) zombies: bool,
    /// No member can be watched.
    pub(crate) unwatchable: bool,
    /// Members are hidden from scans, which are incomplete therefore.
    pub(crate) hidden: bool,
    /// Only a scan tells that nobody is left: a cookie.
    pub(crate) marked: bool,
    pub(crate) leader: Kind,
    pub(crate) kinds: &'static [Kind],
    pub(crate) writes: u8,
    pub(crate) forks: u8,
    pub(crate) stops: u8,
    pub(crate) pauses: u8,
    pub(crate) detach: bool,
    pub(crate) abandon: bool,
}

/// Everything outside the life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) exec: Exec,
    pub(crate) leader: bool,
    /// Streams the leader holds, have unread bytes, are open on our side, are not read for now: a
    /// bit each.
    pub(crate) leader_holds: u8,
    pub(crate) data: u8,
    pub(crate) reader: u8,
    pub(crate) paused: u8,
    pub(crate) mems: [Option<Mem>; 2],
    pub(crate) collected: Collected,
    /// The next stream of the sweep that is under way, if it is a slow one.
    pub(crate) sweep: Option<u8>,
    pub(crate) scan: bool,
    pub(crate) holders: bool,
    pub(crate) stdin: bool,
    pub(crate) armed: u8,
    /// A byte came since the idle timer was armed.
    pub(crate) fresh: bool,
    /// The sweep that is under way, or was last, has brought bytes.
    pub(crate) swept_bytes: bool,
    /// A signal met somebody who was alive.
    pub(crate) met: bool,
    /// A stop that began after the exit has ended somebody who was known to be alive.
    pub(crate) cut_off: bool,
    pub(crate) told: u8,
    pub(crate) marks: u8,
    pub(crate) released: bool,
    /// Why it was stopped, if that was before its exit was seen.
    pub(crate) stopped: Option<StopReason>,
    pub(crate) used: Used,
}

/// What of the bounds is used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Used {
    pub(crate) writes: u8,
    pub(crate) forks: u8,
    pub(crate) stops: u8,
    pub(crate) pauses: u8,
    pub(crate) sigpipes: u8,
}

pub(crate) const fn bit(stream: Stream) -> u8 {
    1 << stream.index()
}

const TOLD: [Notification; 8] = [
    Notification::Started,
    Notification::SpawnFailed,
    Notification::Exited,
    Notification::Drained { warn: false },
    Notification::Drained { warn: true },
    Notification::BackgroundWait,
    Notification::Settled,
    Notification::Closed,
];

fn told(notification: Notification) -> u8 {
    TOLD.iter()
        .position(|other| *other == notification)
        .map_or(0, |place| 1 << place)
}

/// Whether this was told.
pub(crate) fn was_told(world: &World, notification: Notification) -> bool {
    world.told & told(notification) != 0
}

impl World {
    pub(crate) fn new(config: &Config) -> World {
        let captured = u8::from(config.captured[0]) | u8::from(config.captured[1]) << 1;
        World {
            exec: Exec::Pending,
            leader: true,
            leader_holds: captured,
            data: 0,
            reader: captured,
            paused: 0,
            mems: [None; 2],
            collected: Collected::Not,
            sweep: None,
            scan: false,
            holders: false,
            stdin: config.feeds_stdin,
            armed: 0,
            fresh: false,
            swept_bytes: false,
            met: false,
            cut_off: false,
            told: 0,
            marks: 0,
            released: false,
            stopped: None,
            used: Used::default(),
        }
    }

    /// Nobody has its write end open any more.
    pub(crate) fn is_eof(&self, stream: Stream) -> bool {
        let held = self
            .mems
            .iter()
            .flatten()
            .any(|m| m.alive && m.holds & bit(stream) != 0);
        self.leader_holds & bit(stream) == 0 && !held
    }

    /// Living members of the group.
    pub(crate) fn insiders(&self) -> impl Iterator<Item = &Mem> {
        self.mems.iter().flatten().filter(|m| m.inside && m.alive)
    }

    pub(crate) fn leader_ends(&mut self) {
        self.leader = false;
        self.leader_holds = 0;
    }

    pub(crate) fn member_ends(mem: &mut Mem) {
        mem.alive = false;
        mem.gone = mem.watched;
    }

    fn members(&self) -> Vec<Member> {
        let leader = self.leader.then_some(100);
        let inside = (0_u32..)
            .zip(&self.mems)
            .filter(|(_, m)| m.is_some_and(|m| m.inside && m.alive))
            .map(|(i, _)| i);
        inside
            .chain(leader)
            .map(|pid| Member {
                who: Survivor::new(pid, String::new(), 'S', Duration::ZERO),
                start: 0,
            })
            .collect()
    }
}

/// One answer of the world that is still to be fed.
enum Answer {
    Bytes(Stream),
    Eof(Stream),
    Swept,
    Probed(Probe),
    Members(Vec<Member>, bool),
    MemberGone,
    WatchFailed,
    Signalled(Signalled),
}

/// A life and its world, and what is wrong with them.
#[derive(Clone)]
pub(crate) struct Joined {
    pub(crate) lifecycle: Lifecycle,
    pub(crate) world: World,
}

impl Joined {
    /// Background work is settled, and no stop is in progress.
    pub(crate) fn is_settled(&self) -> bool {
        let [_, _, stop, settle] = self.lifecycle.phases();
        self.lifecycle.is_closed()
            || (matches!(settle, "Over" | "Disabled") && matches!(stop, "Idle" | "Over"))
    }
}

/// One input, worked on until nothing is left to answer.
pub(crate) struct Turn<'c> {
    pub(crate) at: Joined,
    pub(crate) config: &'c Config,
    pub(crate) problems: Vec<&'static str>,
    /// Names of the states, before and after each input, for each of the four machines that
    /// changed.
    pub(crate) edges: Vec<(usize, &'static str, &'static str)>,
    answers: VecDeque<Answer>,
}

impl<'c> Turn<'c> {
    pub(crate) fn new(at: Joined, config: &'c Config) -> Turn<'c> {
        Turn {
            at,
            config,
            problems: Vec::new(),
            edges: Vec::new(),
            answers: VecDeque::new(),
        }
    }

    fn bad(&mut self, holds: bool, problem: &'static str) {
        if !holds {
            self.problems.push(problem);
        }
    }

    /// Feeds one input, carries out its effects, and feeds the answers, in order.
    pub(crate) fn feed(&mut self, now: Ns, input: Input<'_>) {
        self.feed_one(now, input);
        let mut rounds = 0;
        while let Some(answer) = self.answers.pop_front() {
            rounds += 1;
            if rounds > 200 {
                self.problems.push("effects and answers go round for ever");
                return;
            }
            self.feed_answer(&answer);
        }
    }

    fn feed_answer(&mut self, answer: &Answer) {
        let input = match answer {
            Answer::Bytes(stream) => {
                self.at.world.swept_bytes = true;
                Input::Bytes(*stream, 1)
            }
            Answer::Eof(stream) => Input::Ended(*stream, StreamEnd::Eof),
            Answer::Swept => Input::ReadDone,
            Answer::Probed(probe) => Input::Probed(*probe),
            Answer::Members(list, complete) => Input::Members(list, *complete),
            Answer::MemberGone => Input::MemberGone,
            Answer::WatchFailed => Input::WatchFailed,
            Answer::Signalled(signalled) => Input::Signalled(*signalled),
        };
        self.feed_one(Ns::ZERO, input);
    }

    fn feed_one(&mut self, now: Ns, input: Input<'_>) {
        let before = self.at.lifecycle.phases();
        let was_idle = self.at.lifecycle.stop_stage() == StopStage::Idle;
        if let Input::Bytes(stream, _) = input {
            self.at.world.fresh = true;
            self.bad(
                self.at.lifecycle.is_open(stream),
                "bytes are given to a stream that is not open",
            );
        }
        if let Input::Due(timer) = input {
            self.at.world.armed &= !(1 << timer as u8);
        }
        if let Input::Exit(_) = input {
            let keep = self.at.lifecycle.collect_mode() == CollectMode::KeepZombie;
            self.at.world.collected = if keep {
                Collected::Kept
            } else {
                Collected::Reaped
            };
        }
        let effects = self.at.lifecycle.handle(now, input);
        let after = self.at.lifecycle.phases();
        self.edges.extend(
            (0..4)
                .filter(|i| before[*i] != after[*i])
                .map(|i| (i, before[i], after[i])),
        );
        if was_idle
            && self.at.lifecycle.stop_stage() != StopStage::Idle
            && !self.at.lifecycle.exit_seen()
        {
            self.at.world.stopped = self.at.lifecycle.stop_report().map(|report| report.reason);
        }
        self.bad(effects.len() <= 20, "too many effects of one input");
        for effect in effects {
            self.carry_out(effect);
        }
        self.check_verdict(before[0], after[0]);
        self.check_settled(before[3], after[3]);
        self.check_ladder(before[2], after[2]);
        self.bad(
            self.at.lifecycle.contract_violations() == 0,
            "something came that cannot come",
        );
    }

    fn carry_out(&mut self, effect: Effect) {
        let closed = was_told(&self.at.world, Notification::Closed);
        self.bad(!closed, "an effect after Closed");
        match effect {
            Effect::ReadAvailable => self.sweep(),
            Effect::MarkLastWords => {
                self.at.world.marks += 1;
                self.bad(self.at.world.marks == 1, "the last words are marked twice");
                self.bad(
                    self.at.lifecycle.exit_seen(),
                    "the last words are marked before the exit",
                );
            }
            Effect::ProbeGroup => self.probe(),
            Effect::ListMembers => {
                self.bad(!self.at.world.scan, "a second scan is asked for");
                self.at.world.scan = true;
                if !self.config.slow {
                    self.scan_answers();
                }
            }
            Effect::WatchMembers => self.watch(),
            Effect::UnwatchMembers => self.unwatch(),
            Effect::FindHolders => {
                self.bad(!self.at.world.holders, "holders are looked for twice");
                self.at.world.holders = true;
            }
            Effect::CloseStream(stream) => self.close(stream),
            Effect::CloseStdin => {
                self.bad(self.at.world.stdin, "stdin is closed twice");
                self.at.world.stdin = false;
            }
            Effect::SignalGroup(signal) => self.signal(signal),
            Effect::SignalEscapees(_) => self.bad(false, "nobody can be outside"),
            Effect::ArmTimer(timer, _) => {
                self.at.world.armed |= 1 << timer as u8;
                if timer == Timer::DrainIdle {
                    self.at.world.fresh = false;
                }
            }
            Effect::CancelTimer(timer) => {
                let mask = 1 << timer as u8;
                self.bad(
                    self.at.world.armed & mask != 0,
                    "a timer is cancelled that is not armed",
                );
                self.at.world.armed &= !mask;
            }
            Effect::ReapLeader => {
                self.bad(
                    self.at.world.collected == Collected::Kept,
                    "a leader is reaped that was not kept",
                );
                self.at.world.collected = Collected::Reaped;
            }
            Effect::Release(how) => self.release(how),
            Effect::Notify(notification) => self.tell(notification),
        }
    }

    // ---- the kernel's answers

    fn sweep(&mut self) {
        self.bad(self.at.world.sweep.is_none(), "a second sweep is asked for");
        self.at.world.swept_bytes = false;
        if self.config.slow {
            self.at.world.sweep = Some(0);
        } else {
            for stream in Stream::ALL {
                self.sweep_stream(stream);
            }
            self.answers.push_back(Answer::Swept);
        }
    }

    fn sweep_stream(&mut self, stream: Stream) {
        if !self.at.lifecycle.is_open(stream) {
            return;
        }
        if self.at.world.data & bit(stream) != 0 {
            self.at.world.data &= !bit(stream);
            self.answers.push_back(Answer::Bytes(stream));
        }
        if self.at.world.is_eof(stream) {
            self.answers.push_back(Answer::Eof(stream));
        }
    }

    /// One slice of a slow sweep.
    pub(crate) fn sweep_goes_on(&mut self, next: u8) {
        match Stream::ALL.get(usize::from(next)) {
            Some(stream) => {
                self.at.world.sweep = Some(next + 1);
                self.sweep_stream(*stream);
                while let Some(answer) = self.answers.pop_front() {
                    self.feed_answer(&answer);
                }
            }
            None => {
                self.at.world.sweep = None;
                self.feed(Ns::ZERO, Input::ReadDone);
            }
        }
    }

    fn probe(&mut self) {
        self.bad(
            self.at.world.collected != Collected::Not,
            "the group is asked about before the exit",
        );
        let zombie = self.config.zombies
            && self
                .at
                .world
                .mems
                .iter()
                .flatten()
                .any(|m| m.inside && !m.alive);
        let is_empty = self.at.world.insiders().next().is_none();
        let answer =
            if self.at.world.collected == Collected::Kept || (self.config.marked && is_empty) {
                Probe::Unknown
            } else if zombie || self.at.world.insiders().next().is_some() {
                Probe::Alive
            } else {
                Probe::Empty
            };
        self.answers.push_back(Answer::Probed(answer));
    }

    /// The scan that is under way answers.
    pub(crate) fn scan_answers(&mut self) {
        self.at.world.scan = false;
        let list = if self.config.hidden {
            Vec::new()
        } else {
            self.at.world.members()
        };
        self.answers
            .push_back(Answer::Members(list, !self.config.hidden));
    }

    /// Feeds what is queued.
    pub(crate) fn feed_answers(&mut self) {
        while let Some(answer) = self.answers.pop_front() {
            self.feed_answer(&answer);
        }
    }

    fn watch(&mut self) {
        self.unwatch();
        for member in self.at.lifecycle.members().to_vec() {
            match self.at.world.mems.get_mut(member.who.pid as usize) {
                Some(Some(mem)) if mem.alive && self.config.unwatchable => {}
                Some(Some(mem)) if mem.alive => mem.watched = true,
                _ => self.answers.push_back(Answer::MemberGone),
            }
        }
        if self.config.unwatchable {
            self.answers.push_back(Answer::WatchFailed);
        }
    }

    fn unwatch(&mut self) {
        for mem in self.at.world.mems.iter_mut().flatten() {
            (mem.watched, mem.gone) = (false, false);
        }
    }

    fn signal(&mut self, signal: Signal) {
        let world = &mut self.at.world;
        let pinned = self.config.group_signal
            || !matches!(world.collected, Collected::Reaped | Collected::HandedOver);
        let reaches = |m: &Mem| m.inside && m.alive && (pinned || m.watched);
        if !pinned && !world.mems.iter().flatten().any(|m| m.watched) {
            self.answers.push_back(Answer::Signalled(Signalled::NoWay));
            return;
        }
        let zombie = !world.leader && matches!(world.collected, Collected::Not | Collected::Kept);
        let somebody = world.leader || zombie || world.mems.iter().flatten().any(reaches);
        let denied = |kind: Kind| kind == Kind::Denies;
        let all_denied = (!world.leader || denied(self.config.leader))
            && world
                .mems
                .iter()
                .flatten()
                .filter(|m| reaches(m))
                .all(|m| denied(m.kind))
            && !zombie;
        let answer = match (somebody, all_denied) {
            (false, _) => Signalled::Empty,
            (true, true) => Signalled::Denied,
            (true, false) => Signalled::Sent,
        };
        self.answers.push_back(Answer::Signalled(answer));
        if answer != Signalled::Sent || signal == Signal::CONT {
            return;
        }
        world.met = true;
        let cuts_off = world.stopped.is_none() && self.at.lifecycle.phases()[3] == "Ending";
        let obeys = |kind| match kind {
            Kind::Obeys => true,
            Kind::IgnoresTerm => signal == Signal::KILL,
            Kind::Stuck | Kind::Denies => false,
        };
        for mem in world
            .mems
            .iter_mut()
            .flatten()
            .filter(|m| m.inside && m.alive && (pinned || m.watched))
        {
            if obeys(mem.kind) {
                world.cut_off |= cuts_off;
                World::member_ends(mem);
            }
        }
        if world.leader && obeys(self.config.leader) {
            world.leader_ends();
        }
    }

    fn close(&mut self, stream: Stream) {
        let unread = self.at.world.data & bit(stream) != 0;
        let exempt = self.config.slow || matches!(self.at.lifecycle.state(), State::Unfinished);
        self.bad(!unread || exempt, "a stream with unread bytes is closed");
        self.at.world.reader &= !bit(stream);
        self.at.world.data &= !bit(stream);
        self.at.world.paused &= !bit(stream);
    }

    fn release(&mut self, how: Release) {
        self.bad(!self.at.world.released, "released twice");
        self.at.world.released = true;
        match how {
            Release::Close => {
                self.bad(
                    self.at.world.collected == Collected::Reaped,
                    "released before the leader is reaped",
                );
                self.bad(self.at.world.reader == 0, "released with an open stream");
            }
            Release::Linger if self.at.lifecycle.exit_seen() => {
                self.bad(self.at.world.reader != 0, "lingers for nothing");
                self.bad(
                    self.at.world.collected == Collected::Reaped,
                    "lingers with a leader that is not reaped",
                );
            }
            Release::Linger => self.at.world.collected = Collected::Lingers,
            Release::HandOver => self.at.world.collected = Collected::HandedOver,
        }
    }

    fn tell(&mut self, notification: Notification) {
        let mask = told(notification);
        // BackgroundWait may come before the verdict or after it.
        let waits = told(Notification::BackgroundWait);
        let before = if notification == Notification::BackgroundWait {
            self.at.world.told & waits
        } else {
            self.at.world.told & !waits
        };
        self.bad(before < mask, "told twice, or out of order");
        self.at.world.told |= mask;
        if notification == Notification::BackgroundWait {
            self.bad(
                was_told(&self.at.world, Notification::Exited),
                "background work is told of before the exit",
            );
        }
    }

    // ---- what must hold at single moments

    fn check_verdict(&mut self, before: &str, after: &str) {
        if before == after {
            return;
        }
        let world = self.at.world;
        let open = Stream::ALL
            .into_iter()
            .any(|stream| self.at.lifecycle.is_open(stream));
        let report = self.at.lifecycle.drain_report();
        if after == "Drained" {
            self.bad(!open, "2 Drained with an open stream");
        }
        if after == "DrainTimedOut" {
            let (data, reader, bytes) = (world.data, world.reader, world.swept_bytes);
            let ended_by = report.and_then(|report| report.ended_by);
            let policy = self.config.policy.drain;
            self.bad(open, "2 DrainTimedOut with every stream ended");
            self.bad(
                data & reader == 0 || self.config.slow,
                "3 a verdict with unread bytes",
            );
            self.bad(
                ended_by != Some(EndedBy::Idle) || !bytes || policy.idle.is_zero(),
                "2 idle, though bytes had just come",
            );
            let deadline = self
                .at
                .lifecycle
                .stop_report()
                .is_some_and(|report| report.reason == StopReason::Timeout);
            let cut = matches!(ended_by, Some(EndedBy::Stop | EndedBy::Deadline));
            self.bad(
                !cut || self.at.lifecycle.stop_stage() != StopStage::Idle,
                "2 cut without a stop",
            );
            self.bad(
                !cut || (ended_by == Some(EndedBy::Deadline)) == deadline,
                "2 the wrong reason is named",
            );
        }
    }

    fn check_settled(&mut self, before: &str, after: &str) {
        if before == after || !(after == "Over" || after == "Disabled") {
            return;
        }
        let Some(settled) = self.at.lifecycle.settled(Ns::MAX, ContainedBy::Group) else {
            return;
        };
        let alive = self.at.world.insiders().next().is_some();
        match settled.state {
            SettledAs::None | SettledAs::Finished => {
                self.bad(!alive, "8 complete though the group is not empty");
                self.bad(
                    !self.at.world.cut_off,
                    "8 complete though a stop has cut work off",
                );
            }
            SettledAs::Terminated => {
                self.bad(!alive, "8 terminated though somebody is left");
                self.bad(self.at.world.met, "8 terminated without a signal");
            }
            _ => {}
        }
        let detached = self.at.lifecycle.state() == State::Detached;
        self.bad(
            settled.state != SettledAs::Kept
                || self.config.policy.background.keep_orphans
                || detached,
            "8 kept unasked",
        );
    }

    /// A ladder that is over leaves nobody whom SIGKILL would have ended, if nothing hides or
    /// protects him.
    fn check_ladder(&mut self, before: &str, after: &str) {
        let ended = before != after && after == "Over";
        // A leader that cannot die cannot fork either: this world is not so strict.
        let exempt = self.config.slow
            || self.config.unwatchable
            || self.config.hidden
            || self.config.leader == Kind::Stuck;
        let left = self
            .at
            .world
            .insiders()
            .any(|m| matches!(m.kind, Kind::Obeys | Kind::IgnoresTerm));
        self.bad(
            !ended || exempt || !left,
            "the ladder is over, and somebody is left who would have obeyed",
        );
    }

    /// What must hold whenever nothing is left to answer.
    pub(crate) fn check(&mut self, before: &Joined) {
        let closed = self.at.lifecycle.is_closed();
        for timer in Timer::ALL {
            let armed = self.at.world.armed & (1 << timer as u8) != 0;
            self.bad(
                !armed || self.at.lifecycle.wants_timer(timer),
                "7 a timer is armed outside the state that owns it",
            );
        }
        if closed && !before.lifecycle.is_closed() {
            self.check_closed();
        }
        self.bad(closed || !self.at.world.released, "released before the end");
        let empty = self.at.lifecycle.phases()[1] == "Empty";
        self.bad(
            !(empty && self.at.world.mems.iter().flatten().any(|m| m.watched)),
            "an empty group is watched",
        );
        let (was, is) = (&before.world, self.at.world);
        if !self.config.slow
            && before.lifecycle.phases()[0] == "Running"
            && self.at.lifecycle.exit_seen()
        {
            let all = Stream::ALL
                .into_iter()
                .all(|stream| !before.lifecycle.is_open(stream) || was.is_eof(stream));
            self.bad(
                !all || self.at.lifecycle.state() == State::Drained,
                "3a end of file was there at the exit, and yet no verdict",
            );
        }
        let settling = matches!(
            self.at.lifecycle.phases()[3],
            "Grace" | "Listing" | "Waiting" | "Ending"
        );
        let lost = Stream::ALL
            .into_iter()
            .any(|s| is.insiders().any(|m| m.holds & bit(s) != 0) && is.reader & bit(s) == 0);
        self.bad(
            !(settling && lost),
            "12 a reader is closed while its writer is waited for",
        );
    }

    fn check_closed(&mut self) {
        let world = self.at.world;
        self.bad(world.armed == 0, "5 a timer is armed after the end");
        self.bad(
            world.collected != Collected::Not && world.collected != Collected::Kept,
            "5 the leader is not collected at the end",
        );
        self.bad(world.released, "5 not released at the end");
        self.bad(
            !world.mems.iter().flatten().any(|m| m.watched),
            "5 a member is watched after the end",
        );
        let state = self.at.lifecycle.state();
        if state == State::Detached {
            return;
        }
        self.bad(!world.stdin, "5 stdin is open at the end");
        self.bad(
            matches!(
                self.at.lifecycle.stop_stage(),
                StopStage::Idle | StopStage::Over
            ),
            "5 closed while a stop is in progress",
        );
        let drained = [false, true]
            .map(|warn| u8::from(was_told(&world, Notification::Drained { warn })))
            .iter()
            .sum::<u8>();
        let one = u8::from(matches!(state, State::Drained | State::DrainTimedOut));
        self.bad(drained == one, "1 not exactly one verdict");
        self.bad(
            self.at.lifecycle.exit_seen() || state == State::Unfinished,
            "1 closed without an exit",
        );
        let report = self.at.lifecycle.drain_report();
        let bounds = report
            .as_ref()
            .is_some_and(|r| matches!(r.ended_by, Some(EndedBy::Idle | EndedBy::Limit)));
        self.bad(
            was_told(&world, Notification::Drained { warn: true }) == bounds,
            "6 warned wrongly",
        );
        let unfinished = report
            .as_ref()
            .is_some_and(|r| r.verdict == Verdict::Unfinished);
        self.bad(
            !unfinished || state == State::Unfinished,
            "1 unfinished with an exit",
        );
        self.check_outcome();
        let settled = self
            .at
            .lifecycle
            .settled(Ns::MAX, ContainedBy::Group)
            .map(|settled| settled.state);
        self.bad(
            was_told(&world, Notification::Settled) == settled.is_some(),
            "settled is not told",
        );
        if matches!(settled, Some(SettledAs::Kept | SettledAs::Reported)) {
            let lost = Stream::ALL.into_iter().any(|s| {
                world.insiders().any(|m| m.holds & bit(s) != 0) && world.reader & bit(s) == 0
            });
            self.bad(!lost, "12 work is left running, and its pipe is closed");
            let held = Stream::ALL
                .into_iter()
                .filter(|s| world.reader & bit(*s) != 0);
            let ok = held
                .clone()
                .all(|stream| self.at.lifecycle.stream_end(stream) == Some(StreamEnd::Held));
            self.bad(ok, "12 a stream is held and not said to be");
        } else {
            self.bad(world.reader == 0, "5 a stream is open at the end");
        }
    }

    fn check_outcome(&mut self) {
        let expected = match (self.at.lifecycle.state(), self.at.world.stopped) {
            (State::Failed, _) => None,
            (State::Unfinished, _) if was_told(&self.at.world, Notification::SpawnFailed) => None,
            (State::Unfinished, Some(StopReason::Timeout)) => Some(Outcome::TimedOut),
            (State::Unfinished, _) => Some(Outcome::Unknown),
            (_, None) => Some(Outcome::Succeeded),
            (_, Some(StopReason::Timeout)) => Some(Outcome::TimedOut),
            (_, Some(_)) => Some(Outcome::Stopped),
        };
        self.bad(
            self.at.lifecycle.outcome() == expected,
            "the outcome is wrong",
        );
    }
}

/// The exit of every leader of this world: what matters is what was asked before it.
pub(crate) fn exit() -> ExitInfo {
    ExitInfo {
        exit: Exit::with_code(0, StatusSource::Waitid),
        usage: None,
    }
}
