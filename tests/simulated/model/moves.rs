//! What can happen next, in a world and a life.

use super::world::{Collected, Config, Exec, Joined, Kind, Mem, Turn, World, bit, exit};
use lastwords::__internals::lifecycle::{Input, State, StopStage, Timer};
use lastwords::sim::Ns;
use lastwords::{StopReason, Stream, StreamEnd};

/// One thing that can happen.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Move {
    // Notices: what the kernel has to tell, and what the loop does of itself.
    Started,
    StartFailed,
    Exit,
    Readable(Stream),
    Eof(Stream),
    MemberGone(u8),
    Holders,
    Scan,
    Sweep(u8),
    /// `late`: so late that an idle bound has passed for all that came.
    Due(Timer, bool),
    Resume(Stream),
    // The world.
    ExecDone,
    ExecFails,
    /// Killed before its exec: the kernel cannot tell that from a success.
    ExecLooksDone,
    LeaderExits,
    LeaderCloses(Stream),
    LeaderWrites(Stream),
    LeaderForks {
        holds: u8,
        kind: Kind,
        inside: bool,
    },
    MemberEnds(u8),
    MemberWrites(u8, Stream),
    MemberForks(u8),
    // The host.
    Stop,
    Kill,
    Pause(Stream),
    StdinDone,
    Detach,
    Abandon,
}

impl Move {
    /// Whether it needs nobody but the kernel and the loop.
    pub(crate) fn is_notice(self) -> bool {
        matches!(
            self,
            Move::Started
                | Move::StartFailed
                | Move::Exit
                | Move::Readable(_)
                | Move::Eof(_)
                | Move::MemberGone(_)
                | Move::Holders
                | Move::Scan
                | Move::Sweep(_)
                | Move::Due(..)
                | Move::Resume(_)
                | Move::ExecLooksDone
        )
    }
}

/// Everything that can happen next.
pub(crate) fn moves(at: &Joined, config: &Config) -> Vec<Move> {
    let mut list = Vec::new();
    if !at.lifecycle.is_closed() {
        notices(at, &mut list);
        leader_moves(&at.world, config, &mut list);
        member_moves(&at.world, config, &mut list);
        host_moves(at, config, &mut list);
    }
    list
}

fn notices(at: &Joined, list: &mut Vec<Move>) {
    let world = &at.world;
    let waits_for_outcome = at.lifecycle.phases()[0] == "Spawning"
        || (at.lifecycle.state() == State::Unfinished && world.exec != Exec::Pending);
    let told = |notification| super::world::was_told(world, notification);
    let outcome_told = told(lastwords::__internals::lifecycle::Notification::Started)
        || at.lifecycle.phases()[0] == "Failing"
        || told(lastwords::__internals::lifecycle::Notification::SpawnFailed);
    let waits_for_outcome = waits_for_outcome && !outcome_told;
    match world.exec {
        Exec::Done if waits_for_outcome => list.push(Move::Started),
        Exec::Failed if waits_for_outcome => list.push(Move::StartFailed),
        Exec::Pending if !world.leader => list.push(Move::ExecLooksDone),
        Exec::Pending | Exec::Done | Exec::Failed => {}
    }
    let exit_waits = !world.leader && world.collected == Collected::Not;
    if exit_waits && outcome_told {
        list.push(Move::Exit);
    }
    for stream in Stream::ALL {
        if outcome_told && at.lifecycle.is_open(stream) && world.reader & bit(stream) != 0 {
            let paused = world.paused & bit(stream) != 0;
            if paused {
                list.push(Move::Resume(stream));
            } else if world.data & bit(stream) != 0 {
                list.push(Move::Readable(stream));
            } else if world.is_eof(stream) {
                list.push(Move::Eof(stream));
            }
        }
    }
    for (i, mem) in (0..).zip(&world.mems) {
        if mem.is_some_and(|m| m.gone) {
            list.push(Move::MemberGone(i));
        }
    }
    if world.holders
        && at
            .lifecycle
            .drain_report()
            .is_some_and(|report| report.ended_by.is_some())
        && !holders_told(world)
    {
        list.push(Move::Holders);
    }
    if world.scan {
        list.push(Move::Scan);
    }
    if let Some(next) = world.sweep {
        list.push(Move::Sweep(next));
    }
    // What is announced is served before any timer.
    let announced = exit_waits
        || world.mems.iter().flatten().any(|m| m.gone)
        || (waits_for_outcome && world.exec != Exec::Pending);
    if !announced {
        for timer in Timer::ALL
            .into_iter()
            .filter(|timer| world.armed & (1 << *timer as u8) != 0)
        {
            match timer {
                Timer::DrainIdle | Timer::DrainLimit => {
                    list.extend([Move::Due(timer, false), Move::Due(timer, true)])
                }
                _ => list.push(Move::Due(timer, false)),
            }
        }
    }
}

fn holders_told(world: &World) -> bool {
    [false, true].into_iter().any(|warn| {
        super::world::was_told(
            world,
            lastwords::__internals::lifecycle::Notification::Drained { warn },
        )
    })
}

fn leader_moves(world: &World, config: &Config, list: &mut Vec<Move>) {
    if !world.leader {
        return;
    }
    if world.exec == Exec::Pending {
        list.extend([Move::ExecDone, Move::ExecFails]);
    }
    if world.exec != Exec::Done {
        return;
    }
    list.push(Move::LeaderExits);
    for stream in Stream::ALL {
        if world.leader_holds & bit(stream) != 0 {
            list.push(Move::LeaderCloses(stream));
            if world.used.writes < config.writes
                && world.data & bit(stream) == 0
                && world.reader & bit(stream) != 0
            {
                list.push(Move::LeaderWrites(stream));
            }
        }
    }
    if world.used.forks < config.forks {
        let mut holds = vec![world.leader_holds];
        if world.leader_holds != 0 {
            holds.push(0);
        }
        for holds in holds {
            list.extend(config.kinds.iter().map(|kind| Move::LeaderForks {
                holds,
                kind: *kind,
                inside: true,
            }));
            if holds != 0 {
                list.push(Move::LeaderForks {
                    holds,
                    kind: Kind::Obeys,
                    inside: false,
                });
            }
        }
    }
}

fn member_moves(world: &World, config: &Config, list: &mut Vec<Move>) {
    for (i, mem) in (0_u8..).zip(&world.mems) {
        let Some(mem) = mem.filter(|m| m.alive) else {
            continue;
        };
        if mem.kind != Kind::Stuck {
            list.push(Move::MemberEnds(i));
        }
        for stream in Stream::ALL {
            if mem.holds & bit(stream) != 0
                && world.used.writes < config.writes
                && world.data & bit(stream) == 0
            {
                list.push(Move::MemberWrites(i, stream));
            }
        }
        if mem.inside && world.used.forks < config.forks {
            list.push(Move::MemberForks(i));
        }
    }
}

fn host_moves(at: &Joined, config: &Config, list: &mut Vec<Move>) {
    let world = &at.world;
    if world.used.stops < config.stops {
        list.extend([Move::Stop, Move::Kill]);
        if config.abandon {
            list.push(Move::Abandon);
        }
    }
    for stream in Stream::ALL {
        if at.lifecycle.is_open(stream)
            && world.paused & bit(stream) == 0
            && world.used.pauses < config.pauses
        {
            list.push(Move::Pause(stream));
        }
    }
    if world.stdin {
        list.push(Move::StdinDone);
    }
    if config.detach && at.lifecycle.can_detach().is_ok() {
        list.push(Move::Detach);
    }
}

/// Plays this move on the world.
pub(crate) fn play(turn: &mut Turn<'_>, step: Move) {
    let zero = Ns::ZERO;
    match step {
        Move::Started => turn.feed(zero, Input::Started),
        Move::StartFailed => turn.feed(zero, Input::StartFailed),
        Move::Exit => turn.feed(zero, Input::Exit(exit())),
        Move::Readable(stream) => {
            turn.at.world.data &= !bit(stream);
            turn.feed(zero, Input::Bytes(stream, 1));
        }
        Move::Eof(stream) => turn.feed(zero, Input::Ended(stream, StreamEnd::Eof)),
        Move::MemberGone(i) => {
            with(&mut turn.at.world, i, |mem| {
                (mem.gone, mem.watched) = (false, false)
            });
            turn.feed(zero, Input::MemberGone);
        }
        Move::Holders => turn.feed(zero, Input::Holders(&[], true)),
        Move::Scan => {
            turn.scan_answers();
            turn.feed_answers();
        }
        Move::Sweep(next) => turn.sweep_goes_on(next),
        Move::Due(timer, late) => due(turn, timer, late),
        Move::Resume(stream) => {
            turn.at.world.paused &= !bit(stream);
            turn.feed(zero, Input::Resumed(stream));
        }
        Move::ExecDone | Move::ExecLooksDone => turn.at.world.exec = Exec::Done,
        Move::ExecFails => {
            turn.at.world.exec = Exec::Failed;
            turn.at.world.leader_ends();
        }
        Move::LeaderExits => turn.at.world.leader_ends(),
        Move::LeaderCloses(stream) => turn.at.world.leader_holds &= !bit(stream),
        Move::LeaderWrites(stream) => write(&mut turn.at.world, stream),
        Move::LeaderForks {
            holds,
            kind,
            inside,
        } => fork(&mut turn.at.world, holds, kind, inside),
        Move::MemberEnds(i) => with(&mut turn.at.world, i, World::member_ends),
        Move::MemberWrites(i, stream) => {
            if turn.at.world.reader & bit(stream) != 0 {
                write(&mut turn.at.world, stream);
            } else {
                sigpipe(turn, i);
            }
        }
        Move::MemberForks(i) => {
            if let Some(Some(mem)) = turn.at.world.mems.get(usize::from(i)).copied() {
                fork(&mut turn.at.world, mem.holds, mem.kind, true);
            }
        }
        Move::Stop
        | Move::Kill
        | Move::Abandon
        | Move::Pause(_)
        | Move::StdinDone
        | Move::Detach => host(turn, step),
    }
}

fn host(turn: &mut Turn<'_>, step: Move) {
    if matches!(step, Move::Stop | Move::Kill | Move::Abandon) {
        turn.at.world.used.stops += 1;
        // The leader is asked first: one that was already dead was not stopped.
        let exits = !turn.at.world.leader && turn.at.world.collected == Collected::Not;
        if exits && matches!(turn.at.lifecycle.phases()[0], "Running" | "Failing") {
            turn.feed(Ns::ZERO, Input::Exit(exit()));
        }
    }
    let stop = turn.config.policy.stop;
    match step {
        Move::Stop => turn.feed(Ns::ZERO, Input::Stop(stop, StopReason::Request)),
        Move::Kill => turn.feed(Ns::ZERO, Input::Kill(StopReason::Request)),
        Move::Abandon => turn.feed(Ns::ZERO, Input::Abandon),
        Move::Pause(stream) => {
            turn.at.world.used.pauses += 1;
            turn.at.world.paused |= bit(stream);
            turn.feed(Ns::ZERO, Input::Paused(stream));
        }
        Move::StdinDone => {
            turn.at.world.stdin = false;
            turn.feed(Ns::ZERO, Input::StdinClosed);
        }
        Move::Detach => {
            turn.feed(Ns::ZERO, Input::Detach);
            if turn.at.lifecycle.state() != State::Detached {
                turn.problems.push("what may be let go is not");
            }
        }
        _ => {}
    }
}

/// All happens at time zero, but for the two bounds of the drain, which look at the clock: on time,
/// a byte that came since the idle bound was armed is newer; late, it has been idle since.
fn due(turn: &mut Turn<'_>, timer: Timer, late: bool) {
    let idle = turn
        .config
        .policy
        .drain
        .idle
        .duration()
        .map_or(Ns::ZERO, Ns::from);
    let now = match timer {
        Timer::DrainIdle if turn.at.world.fresh && !late => Ns(idle.0.saturating_sub(1)),
        Timer::DrainIdle => idle,
        Timer::DrainLimit if late => idle,
        _ => Ns::ZERO,
    };
    turn.feed(now, Input::Due(timer));
}

fn with(world: &mut World, i: u8, work: impl FnOnce(&mut Mem)) {
    if let Some(Some(mem)) = world.mems.get_mut(usize::from(i)) {
        work(mem);
    }
}

fn write(world: &mut World, stream: Stream) {
    world.used.writes += 1;
    world.data |= bit(stream);
}

fn fork(world: &mut World, holds: u8, kind: Kind, inside: bool) {
    world.used.forks += 1;
    if let Some(place) = world.mems.iter_mut().find(|place| place.is_none()) {
        *place = Some(Mem {
            holds,
            kind,
            inside,
            alive: true,
            watched: false,
            gone: false,
        });
    }
}

/// It writes into a pipe that nobody reads.
fn sigpipe(turn: &mut Turn<'_>, i: u8) {
    turn.at.world.used.writes += 1;
    turn.at.world.used.sigpipes += 1;
    with(&mut turn.at.world, i, World::member_ends);
    let settling = matches!(
        turn.at.lifecycle.phases()[3],
        "Grace" | "Listing" | "Waiting"
    );
    if settling
        && turn.at.lifecycle.stop_stage() == StopStage::Idle
        && turn
            .at
            .world
            .mems
            .iter()
            .flatten()
            .any(|m| m.inside && !m.alive)
    {
        turn.problems
            .push("12 work that is waited for is killed by SIGPIPE");
    }
}
