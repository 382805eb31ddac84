//! Every order of a small world, walked breadth first, driving the real machines; what must hold is
//! checked in every state.
//!
//! A leader, up to two members (holding a pipe or not, deaf to TERM, to KILL, or of another user;
//! in the group or escaped), bytes and ends of file, stops of the host, every timer in every order,
//! four background policies, kernels with and without the group flag, finite, infinite and zero
//! bounds. In the end: from every state in which the leader has ended, or a stop was begun, notices
//! and timers alone lead to Closed.
//!
//! By default a subset of about half a million states; `LASTWORDS_MODEL=full` walks everything: 28
//! million states, some minutes with `--release`.

mod moves;
mod world;

use lastwords::__internals::lifecycle::{Lifecycle, StopStage, Timer};
use lastwords::__internals::types::Policy;
use lastwords::sim::Ns;
use lastwords::{BackgroundPolicy, Bound, DrainPolicy, Wait};
use moves::{Move, moves, play};
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::time::Duration;
use world::{Config, Exec, Joined, Kind, Turn, World};

const SEC: Duration = Duration::from_secs(1);

/// What one exploration found.
#[derive(Default)]
struct Explored {
    states: usize,
    closed: usize,
    edges: BTreeSet<(usize, &'static str, &'static str)>,
    problems: HashMap<&'static str, String>,
}

/// The states that were reached: only their hashes are kept, with the way to them.
struct Seen {
    places: HashMap<u64, u32>,
    ways: Vec<(u32, Option<Move>)>,
}

impl Seen {
    /// Its number; `None` if it was known (then the number is in the second place).
    fn put(&mut self, state: &Joined, from: u32, by: Option<Move>) -> (bool, u32) {
        let mut hasher = DefaultHasher::new();
        (&state.lifecycle, &state.world).hash(&mut hasher);
        let next = u32::try_from(self.ways.len()).expect("fewer than 2^32 states");
        let place = *self.places.entry(hasher.finish()).or_insert(next);
        if place == next {
            self.ways.push((from, by));
        }
        (place == next, place)
    }

    fn way(&self, to: u32) -> String {
        let mut words = Vec::new();
        let mut at = to;
        while let Some((from, Some(by))) = self.ways.get(at as usize) {
            words.push(format!("{by:?}"));
            at = *from;
        }
        words.reverse();
        words.join(" > ")
    }
}

fn explore(config: &Config) -> Explored {
    let mut found = Explored::default();
    let mut seen = Seen {
        places: HashMap::new(),
        ways: Vec::new(),
    };
    let mut queue = VecDeque::new();
    let mut lifecycle = Lifecycle::new(
        config.policy,
        config.captured,
        config.feeds_stdin,
        config.group_signal,
    )
    .with_leader(100);
    let mut world = World::new(config);
    for effect in lifecycle.begin(Ns::ZERO) {
        assert!(matches!(
            effect,
            lastwords::__internals::lifecycle::Effect::ArmTimer(..)
        ));
        world.armed = 1;
    }
    let first = Joined { lifecycle, world };
    queue.push_back((first.clone(), seen.put(&first, 0, None).1));
    // By notices and timers alone: from, to. And the states that must lead to the end.
    let (mut notices, mut must, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    // The same without waiting for a timer: an empty group ends every wait for it.
    let (mut prompt, mut must_now, mut settled) = (Vec::new(), Vec::new(), Vec::new());
    while let Some((state, place)) = queue.pop_front() {
        if state.is_settled() {
            settled.push(place);
        } else if state.lifecycle.exit_seen() && state.world.insiders().next().is_none() {
            must_now.push(place);
        }
        if state.lifecycle.is_closed() {
            ends.push(place);
            continue;
        }
        if (!state.world.leader && state.world.exec != Exec::Pending)
            || state.lifecycle.stop_stage() != StopStage::Idle
        {
            must.push(place);
        }
        for step in moves(&state, config) {
            let mut turn = Turn::new(state.clone(), config);
            play(&mut turn, step);
            turn.check(&state);
            for problem in &turn.problems {
                found.problems.entry(problem).or_insert_with(|| {
                    format!(
                        "{} > {step:?}\n      {:?}\n      {:?}",
                        seen.way(place),
                        turn.at.lifecycle.phases(),
                        turn.at.world
                    )
                });
            }
            found.edges.extend(turn.edges.iter().copied());
            let (new, to) = seen.put(&turn.at, place, Some(step));
            if step.is_notice() {
                notices.push((to, place));
                if !matches!(step, Move::Due(timer, _) if timer != Timer::GroupPoll) {
                    prompt.push((to, place));
                }
            }
            if new {
                queue.push_back((turn.at, to));
            }
        }
    }
    found.states = seen.ways.len();
    found.closed = ends.len();
    let live = lead_to(&ends, notices, seen.ways.len());
    if let Some(stuck) = must.into_iter().find(|place| !live[*place as usize]) {
        found.problems.insert(
            "5 never closes by notices and timers alone",
            seen.way(stuck),
        );
    }
    let live = lead_to(&settled, prompt, seen.ways.len());
    // A kept zombie hides the answer of a probe, and nothing else is certain where members are
    // hidden from scans.
    let uncertain = config.hidden && (!config.group_signal || config.marked);
    if let Some(stuck) = must_now
        .into_iter()
        .find(|place| !live[*place as usize])
        .filter(|_| !uncertain)
    {
        found.problems.insert(
            "nobody is left in the group, and yet a timer is waited for",
            seen.way(stuck),
        );
    }
    found
}

/// Which states lead to one of `ends`, by these edges (to, from).
fn lead_to(ends: &[u32], mut edges: Vec<(u32, u32)>, states: usize) -> Vec<bool> {
    edges.sort_unstable();
    let mut live = vec![false; states];
    let mut stack = ends.to_vec();
    while let Some(at) = stack.pop() {
        if !std::mem::replace(&mut live[at as usize], true) {
            let first = edges.partition_point(|(to, _)| *to < at);
            stack.extend(
                edges[first..]
                    .iter()
                    .take_while(|(to, _)| *to == at)
                    .map(|(_, from)| *from),
            );
        }
    }
    live
}

fn base() -> Config {
    Config {
        name: "",
        policy: Policy::default(),
        group_signal: true,
        captured: [true, false],
        feeds_stdin: false,
        slow: false,
        zombies: false,
        unwatchable: false,
        hidden: false,
        marked: false,
        leader: Kind::Obeys,
        kinds: &[Kind::Obeys, Kind::IgnoresTerm, Kind::Stuck],
        writes: 1,
        forks: 1,
        stops: 1,
        pauses: 0,
        detach: false,
        abandon: false,
    }
}

fn backgrounds() -> [(&'static str, BackgroundPolicy); 4] {
    [
        ("wait", BackgroundPolicy::settle()),
        ("report", BackgroundPolicy::report_only()),
        ("keep", BackgroundPolicy::settle().keep_orphans(true)),
        ("disabled", BackgroundPolicy::disabled()),
    ]
}

/// What the written tables were walked with first: every policy, kernel and kind of bound.
fn main_set() -> Vec<Config> {
    let mut list = Vec::new();
    for (name, background) in backgrounds() {
        for (group_signal, infinite) in [(true, false), (false, false), (true, true)] {
            for limited in [false, true] {
                // Nothing bounds a drain without bounds, a stop or a run limit.
                if infinite && !limited {
                    continue;
                }
                let drain = if infinite {
                    DrainPolicy::default()
                        .idle(Bound::Never)
                        .limit(Bound::Never)
                } else {
                    DrainPolicy::default()
                };
                let policy = Policy {
                    background,
                    drain,
                    run_limit: limited.then_some(60 * SEC),
                    ..Policy::default()
                };
                list.push(Config {
                    name,
                    policy,
                    group_signal,
                    ..base()
                });
            }
        }
    }
    list
}

/// What that left out, each with bounds of its own.
fn side_set() -> Vec<Config> {
    let few: &'static [Kind] = &[Kind::Obeys, Kind::IgnoresTerm];
    let one: &'static [Kind] = &[Kind::Obeys];
    let mut list = Vec::new();
    for group_signal in [true, false] {
        let base = Config {
            group_signal,
            kinds: few,
            ..base()
        };
        let zero = DrainPolicy::default().idle(Duration::ZERO);
        let at_once = BackgroundPolicy::settle()
            .grace(Duration::ZERO)
            .wait(Wait::For(Duration::ZERO))
            .terminate_grace(Duration::ZERO);
        let blind = Policy {
            background: BackgroundPolicy::disabled(),
            ..Policy::default()
        };
        let with = |drain: DrainPolicy| Policy {
            drain,
            ..Policy::default()
        };
        list.extend([
            Config {
                name: "slow scans and sweeps",
                slow: true,
                ..base.clone()
            },
            Config {
                name: "slow, two members",
                slow: true,
                kinds: one,
                forks: 2,
                writes: 0,
                stops: 0,
                ..base.clone()
            },
            Config {
                name: "slow, detach",
                slow: true,
                detach: true,
                kinds: one,
                stops: 0,
                ..base.clone()
            },
            Config {
                name: "slow, nobody looks",
                slow: true,
                policy: blind,
                ..base.clone()
            },
            Config {
                name: "two streams",
                captured: [true, true],
                kinds: one,
                stops: 0,
                ..base.clone()
            },
            Config {
                name: "two streams, a stop",
                captured: [true, true],
                kinds: one,
                writes: 0,
                ..base.clone()
            },
            Config {
                name: "no stream",
                captured: [false, false],
                feeds_stdin: true,
                ..base.clone()
            },
            Config {
                name: "pauses",
                pauses: 2,
                kinds: one,
                stops: 0,
                ..base.clone()
            },
            Config {
                name: "detach and abandon",
                detach: true,
                abandon: true,
                ..base.clone()
            },
            Config {
                name: "detach, nobody looks",
                detach: true,
                abandon: true,
                policy: blind,
                ..base.clone()
            },
            Config {
                name: "idle of zero",
                policy: with(zero),
                ..base.clone()
            },
            Config {
                name: "idle of zero, pauses",
                policy: with(zero),
                pauses: 1,
                kinds: one,
                ..base.clone()
            },
            Config {
                name: "both of zero",
                policy: with(zero.limit(Duration::ZERO)),
                ..base.clone()
            },
            Config {
                name: "limit of zero",
                policy: with(DrainPolicy::default().limit(Duration::ZERO)),
                ..base.clone()
            },
            Config {
                name: "background at once",
                policy: Policy {
                    background: at_once,
                    ..Policy::default()
                },
                ..base.clone()
            },
            Config {
                name: "zombies stay",
                zombies: true,
                kinds: one,
                forks: 2,
                writes: 0,
                ..base.clone()
            },
            Config {
                name: "nobody can be watched",
                unwatchable: true,
                ..base.clone()
            },
            Config {
                name: "unwatchable zombies",
                unwatchable: true,
                zombies: true,
                kinds: one,
                ..base.clone()
            },
            Config {
                name: "members of another user",
                kinds: &[Kind::Denies, Kind::Obeys],
                ..base.clone()
            },
            Config {
                name: "hidden members",
                hidden: true,
                kinds: &[Kind::Denies, Kind::Obeys],
                ..base.clone()
            },
            Config {
                name: "a cookie",
                marked: true,
                ..base.clone()
            },
            Config {
                name: "a cookie, slow",
                marked: true,
                slow: true,
                kinds: one,
                ..base.clone()
            },
            Config {
                name: "a cookie and hidden members",
                marked: true,
                hidden: true,
                kinds: one,
                ..base.clone()
            },
            Config {
                name: "a stuck leader",
                leader: Kind::Stuck,
                feeds_stdin: true,
                ..base.clone()
            },
            Config {
                name: "a stuck leader, slow",
                leader: Kind::Stuck,
                slow: true,
                kinds: one,
                ..base.clone()
            },
            Config {
                name: "a leader of another user",
                leader: Kind::Denies,
                kinds: &[Kind::Denies, Kind::Obeys],
                ..base.clone()
            },
            Config {
                name: "a deaf leader",
                leader: Kind::IgnoresTerm,
                stops: 2,
                ..base.clone()
            },
            Config {
                name: "two writes",
                writes: 2,
                kinds: one,
                ..base.clone()
            },
            Config {
                name: "two members",
                forks: 2,
                writes: 0,
                stops: 1,
                ..base.clone()
            },
        ]);
    }
    list
}

/// The main set with more of everything.
fn full_set() -> Vec<Config> {
    let more = |writes, forks, stops| {
        move |config: Config| Config {
            writes,
            forks,
            stops,
            ..config
        }
    };
    main_set()
        .into_iter()
        .map(more(2, 2, 2))
        .chain(
            side_set()
                .into_iter()
                .filter(|config| !config.slow)
                .map(more(2, 2, 2)),
        )
        .chain(
            side_set()
                .into_iter()
                .filter(|config| config.slow)
                .map(more(1, 1, 2)),
        )
        .chain([true, false].map(|group_signal| Config {
            name: "slow, unwatchable",
            slow: true,
            unwatchable: true,
            kinds: &[Kind::Obeys],
            group_signal,
            ..more(0, 2, 0)(base())
        }))
        .collect()
}

fn walk(configs: &[Config]) -> Explored {
    let mut all = Explored::default();
    for config in configs {
        let found = explore(config);
        println!(
            "{:26} group flag {:5} drain {:>3?}/{:>3?} run limit {:5}: {:7} states, {:6} closed, {} problems",
            config.name,
            config.group_signal,
            config
                .policy
                .drain
                .idle
                .duration()
                .map(|d| d.as_secs())
                .unwrap_or(999),
            config
                .policy
                .drain
                .limit
                .duration()
                .map(|d| d.as_secs())
                .unwrap_or(999),
            config.policy.run_limit.is_some(),
            found.states,
            found.closed,
            found.problems.len()
        );
        for (problem, way) in &found.problems {
            println!("    {problem}\n      {way}");
        }
        all.states += found.states;
        all.closed += found.closed;
        all.edges.extend(&found.edges);
        all.problems.extend(found.problems);
    }
    println!("{} states, {} closed", all.states, all.closed);
    all
}

#[test]
fn every_order_of_the_small_world_keeps_the_invariants_closes_and_walks_every_edge_of_the_diagrams()
{
    let full = std::env::var("LASTWORDS_MODEL").is_ok_and(|v| v == "full");
    let mut configs = side_set();
    configs.extend(main_set());
    if full {
        configs.extend(full_set());
    }
    let all = walk(&configs);
    assert!(all.problems.is_empty(), "{:?}", all.problems.keys());

    let diagrams = [
        ("drain", include_str!("../../src/lifecycle/drain/phase.rs")),
        ("group", include_str!("../../src/lifecycle/group/phase.rs")),
        ("stop", include_str!("../../src/lifecycle/stop/phase.rs")),
        (
            "settle",
            include_str!("../../src/lifecycle/settle/phase.rs"),
        ),
    ];
    for (machine, (name, source)) in diagrams.into_iter().enumerate() {
        let drawn = diagram(source);
        let walked: BTreeSet<_> = all
            .edges
            .iter()
            .filter(|(m, ..)| *m == machine)
            .map(|(_, from, to)| (*from, *to))
            .collect();
        println!(
            "{name}: {} edges drawn, {} walked",
            drawn.len(),
            walked.len()
        );
        let (unwalked, undrawn): (Vec<_>, Vec<_>) = (
            drawn.difference(&walked).collect(),
            walked.difference(&drawn).collect(),
        );
        assert!(
            unwalked.is_empty() && undrawn.is_empty(),
            "{name}: drawn and not walked {unwalked:?}, walked and not drawn {undrawn:?}"
        );
    }
}

/// The changes that the diagram above a machine's states lists.
fn diagram(source: &'static str) -> BTreeSet<(&'static str, &'static str)> {
    source
        .lines()
        .filter_map(|line| line.strip_prefix("/// "))
        .filter_map(|line| {
            line.split_once(" --")
                .and_then(|(from, rest)| Some((from, rest.rsplit_once("--> ")?.1)))
        })
        .filter(|(from, to)| {
            [from, to]
                .into_iter()
                .all(|name| name.chars().all(|c| c.is_ascii_alphabetic()))
        })
        .collect()
}
