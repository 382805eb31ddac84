//! All orders: what happens to a generation comes in every order there is, and whatever comes one
//! after the other comes in one turn of the host as well as in two. Nothing is sampled, and the
//! numbers are printed.
//!
//! A cast is a leader with or without somebody who holds its pipes, a list of happenings (bytes,
//! ends of file, exits, the passing of each bound, stops, a restart, notices for nothing, thieves)
//! and what cannot be before what. Each order is played from the beginning on a loop over the
//! simulated kernel (`orders/play.rs`), to the end, and the invariants are checked after every turn
//! (`lastwords::__internals::testing::oracle`).
//!
//! By default an order is played with one turn after each happening, with one turn after all of
//! them, and, in the shorter casts, with each two neighbours in one turn. `LASTWORDS_ORDERS=full`
//! cuts every order into turns in every way.

mod play;

use lastwords::__internals::testing::oracle::Edge;
use lastwords::{CgroupOptions, Containment};
use play::{Cast, Leader, Move, Other, play};
use std::collections::BTreeSet;

/// Orders of up to so many happenings are also played with each two of them in one turn.
const SHORT: usize = 5;

/// Every order of the moves that breaks no rule.
fn orders(
    moves: &[Move],
    rules: &[(Move, Move)],
    so_far: &mut Vec<Move>,
    found: &mut Vec<Vec<Move>>,
) {
    if so_far.len() == moves.len() {
        found.push(so_far.clone());
        return;
    }
    for next in moves {
        let waits = |(before, after): &(Move, Move)| {
            after == next && moves.contains(before) && !so_far.contains(before)
        };
        if so_far.contains(next) || rules.iter().any(waits) {
            continue;
        }
        so_far.push(*next);
        orders(moves, rules, so_far, found);
        so_far.pop();
    }
}

/// The ways to cut an order into turns: a bit that is set joins a happening to the next one's turn.
fn cuts(moves: usize) -> Vec<u32> {
    let all = 1_u32 << (moves - 1);
    if std::env::var("LASTWORDS_ORDERS").is_ok_and(|v| v == "full") {
        return (0..all).collect();
    }
    let pairs = (0..moves - 1).map(|place| 1 << place);
    let pairs = pairs.filter(|_| moves <= SHORT);
    [0, all - 1].into_iter().chain(pairs).collect()
}

/// Plays a cast in every order on every kind of kernel; how many runs, and the edges of the state
/// diagram that were walked.
fn every_order(name: &str, cast: &Cast) -> BTreeSet<Edge> {
    let mut found = Vec::new();
    orders(&cast.moves, &cast.rules, &mut Vec::new(), &mut found);
    let cuts = cuts(cast.moves.len());
    let mut walked = BTreeSet::new();
    let mut runs = 0_u64;
    for order in &found {
        for joined in &cuts {
            for old in [false, true] {
                walked.extend(play(cast, order, *joined, old));
                runs += 1;
            }
        }
    }
    println!(
        "{name}: {} orders, {} ways to cut them into turns, 2 kernels: {runs} runs",
        found.len(),
        cuts.len()
    );
    walked
}

fn quiet() -> Cast {
    Cast::new(
        Leader::Sleeps,
        Other::Nobody,
        &[Move::Bytes, Move::Eof, Move::Exit, Move::Stop, Move::Stray],
    )
    .rules(&[(Move::Bytes, Move::Exit), (Move::Bytes, Move::Eof)])
}

fn restarted() -> Cast {
    Cast::new(
        Leader::Sleeps,
        Other::Holds,
        &[
            Move::Bytes,
            Move::Exit,
            Move::Restart,
            Move::OtherEnds,
            Move::Idle,
            Move::Stray,
        ],
    )
    .rules(&[(Move::Bytes, Move::Exit)])
}

fn held() -> Cast {
    let moves = [
        Move::Bytes,
        Move::Exit,
        Move::OtherBytes,
        Move::OtherEnds,
        Move::Idle,
        Move::Limit,
        Move::Restart,
    ];
    Cast::new(Leader::Sleeps, Other::Holds, &moves).rules(&[
        (Move::Bytes, Move::Exit),
        (Move::OtherBytes, Move::OtherEnds),
        (Move::Idle, Move::Limit),
    ])
}

fn stopped_while_held() -> Cast {
    Cast::new(
        Leader::Sleeps,
        Other::HoldsAndIsDeaf,
        &[
            Move::Exit,
            Move::Stop,
            Move::Kill,
            Move::Grace,
            Move::OtherEnds,
        ],
    )
}

fn waited_for() -> Cast {
    Cast::new(
        Leader::Sleeps,
        Other::WorksInTheBackground,
        &[
            Move::Exit,
            Move::BackgroundGrace,
            Move::Wait,
            Move::Stop,
            Move::OtherEnds,
        ],
    )
    .rules(&[(Move::BackgroundGrace, Move::Wait)])
}

fn escaped() -> Cast {
    Cast::new(
        Leader::Sleeps,
        Other::Escapes,
        &[
            Move::Exit,
            Move::OtherBytes,
            Move::OtherEnds,
            Move::Stop,
            Move::Limit,
        ],
    )
    .rules(&[(Move::OtherBytes, Move::OtherEnds)])
}

fn escaped_with_a_cookie() -> Cast {
    let moves = [
        Move::Exit,
        Move::OtherBytes,
        Move::OtherEnds,
        Move::Stop,
        Move::BackgroundGrace,
    ];
    Cast::new(Leader::Sleeps, Other::Escapes, &moves)
        .rules(&[(Move::OtherBytes, Move::OtherEnds)])
        .contained(Containment::Cookie)
}

fn escaped_in_a_cgroup() -> Cast {
    escaped_with_a_cookie().contained(Containment::Cgroup(CgroupOptions::default()))
}

fn deaf_with_a_cookie() -> Cast {
    let moves = [
        Move::Exit,
        Move::Stop,
        Move::Kill,
        Move::Grace,
        Move::OtherEnds,
    ];
    Cast::new(Leader::Sleeps, Other::EscapesAndIsDeaf, &moves).contained(Containment::Cookie)
}

fn deaf_in_a_cgroup() -> Cast {
    deaf_with_a_cookie().contained(Containment::Cgroup(CgroupOptions::default()))
}

fn works_in_a_cgroup() -> Cast {
    let moves = [
        Move::Exit,
        Move::BackgroundGrace,
        Move::Wait,
        Move::Stop,
        Move::OtherEnds,
    ];
    Cast::new(Leader::Sleeps, Other::EscapesAndWorks, &moves)
        .rules(&[(Move::BackgroundGrace, Move::Wait)])
        .contained(Containment::Cgroup(CgroupOptions::default()))
}

fn works_with_a_cookie() -> Cast {
    works_in_a_cgroup().contained(Containment::Cookie)
}

fn let_go_in_a_cgroup() -> Cast {
    let_go_alone().contained(Containment::Cgroup(CgroupOptions::default()))
}

fn spawning() -> Cast {
    Cast::new(
        Leader::IsSlow,
        Other::Nobody,
        &[
            Move::Exec,
            Move::Stop,
            Move::Exit,
            Move::RunLimit,
            Move::Restart,
        ],
    )
}

fn failing() -> Cast {
    Cast::new(
        Leader::CannotStart,
        Other::Nobody,
        &[
            Move::Exec,
            Move::Stop,
            Move::Kill,
            Move::Stray,
            Move::Restart,
        ],
    )
}

fn let_go() -> Cast {
    Cast::new(
        Leader::Sleeps,
        Other::Holds,
        &[
            Move::Exit,
            Move::Detach,
            Move::Idle,
            Move::Stop,
            Move::OtherEnds,
        ],
    )
}

fn let_go_alone() -> Cast {
    Cast::new(
        Leader::Sleeps,
        Other::WorksInTheBackground,
        &[Move::Bytes, Move::Exit, Move::Detach, Move::BackgroundGrace],
    )
    .rules(&[(Move::Bytes, Move::Exit)])
}

fn stuck() -> Cast {
    Cast::new(
        Leader::IsUnkillable,
        Other::Nobody,
        &[
            Move::Kill,
            Move::Stop,
            Move::Stuck,
            Move::Thaw,
            Move::Restart,
        ],
    )
}

fn stolen() -> Cast {
    Cast::new(
        Leader::Sleeps,
        Other::Holds,
        &[
            Move::Exit,
            Move::Steal,
            Move::Stop,
            Move::Idle,
            Move::OtherEnds,
        ],
    )
    .rules(&[(Move::Exit, Move::Steal)])
}

fn run_out() -> Cast {
    Cast::new(
        Leader::Sleeps,
        Other::HoldsAndIsDeaf,
        &[
            Move::Exit,
            Move::RunLimit,
            Move::Grace,
            Move::OtherBytes,
            Move::OtherEnds,
        ],
    )
    .rules(&[(Move::OtherBytes, Move::OtherEnds)])
}

macro_rules! casts {
    ($($test:ident = $cast:ident),+ $(,)?) => {
        $(#[test]
        fn $test() {
            every_order(stringify!($cast), &$cast());
        })+

        /// Every cast that there is.
        const CASTS: &[(&str, fn() -> Cast)] = &[$((stringify!($cast), $cast)),+];
    };
}

casts! {
    a_quiet_child_is_drained_in_the_turn_of_its_exit_in_every_order = quiet,
    a_second_generation_is_untouched_by_the_first_in_every_order = restarted,
    a_held_pipe_is_read_to_its_end_or_to_a_bound_in_every_order = held,
    a_stop_ends_a_group_that_is_deaf_in_every_order = stopped_while_held,
    background_work_is_waited_for_or_ended_in_every_order = waited_for,
    an_escaped_holder_is_left_alone_in_every_order = escaped,
    an_escaped_holder_is_found_by_its_cookie_in_every_order = escaped_with_a_cookie,
    an_escaped_holder_is_found_by_its_cgroup_in_every_order = escaped_in_a_cgroup,
    a_deaf_escapee_is_killed_by_its_cookie_in_every_order = deaf_with_a_cookie,
    a_deaf_escapee_is_killed_by_its_cgroup_in_every_order = deaf_in_a_cgroup,
    escaped_work_is_waited_for_by_its_cgroup_in_every_order = works_in_a_cgroup,
    escaped_work_is_waited_for_by_its_cookie_in_every_order = works_with_a_cookie,
    a_cgroup_that_is_let_go_is_removed_when_it_is_empty_in_every_order = let_go_in_a_cgroup,
    a_spawn_under_way_can_be_stopped_in_every_order = spawning,
    a_spawn_that_fails_is_told_once_in_every_order = failing,
    a_generation_that_is_let_go_is_the_hosts_in_every_order = let_go,
    a_generation_with_background_work_can_be_let_go_in_every_order = let_go_alone,
    a_leader_that_withstands_sigkill_does_not_hang_the_host_in_any_order = stuck,
    a_stolen_exit_hangs_nobody_in_any_order = stolen,
    the_run_limit_ends_what_is_left_in_every_order = run_out,
}

/// The state diagram as the host sees it. (The edges of the four machines behind it are walked by
/// `tests/simulated/model.rs`.)
const DIAGRAM: [Edge; 15] = [
    ("Spawning", "Running"),
    ("Spawning", "Failed"),
    ("Failed", "Closed"),
    ("Running", "Exited"),
    ("Running", "Unfinished"),
    ("Running", "Gone"),
    ("Exited", "Drained"),
    ("Exited", "DrainTimedOut"),
    ("Exited", "Gone"),
    ("Drained", "Settled"),
    ("Drained", "Gone"),
    ("DrainTimedOut", "Settled"),
    ("DrainTimedOut", "Gone"),
    ("Settled", "Closed"),
    ("Unfinished", "Settled"),
];

#[test]
fn every_edge_of_the_state_diagram_is_walked() {
    let (mut walked, mut all) = (BTreeSet::new(), 0);
    for (_, cast) in CASTS {
        let cast = cast();
        let mut found = Vec::new();
        orders(&cast.moves, &cast.rules, &mut Vec::new(), &mut found);
        all += found.len();
        for order in found {
            walked.extend(play(&cast, &order, 0, false));
        }
    }
    println!(
        "{} casts, {all} orders, {} edges: {walked:?}",
        CASTS.len(),
        walked.len()
    );
    let drawn = BTreeSet::from(DIAGRAM);
    assert_eq!(walked, drawn, "walked and drawn");
}
