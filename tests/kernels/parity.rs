//! The same scripts on every kernel: same events, same report, up to timing, the sizes of pieces
//! and the order between generations.
//!
//! A real kernel plays each script in real processes (the test binary plays them itself, see
//! `support`), the simulated one in its world. Bounds are generous on both: what is compared is
//! what was decided, never how long it took.

use lastwords::__internals::testing::isolation::alone;
use lastwords::sim::{Ns, SimOptions};
use lastwords::{
    BackendChoice, BackgroundPolicy, Capture, CgroupOptions, Command, Containment, DrainPolicy,
    Event, ExitSource, ExitSourceChoice, Generation, GroupSignal, Kernel, Reactor, StdinEnd,
    StopPolicy, Stream, Wait,
};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// When the host does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Never,
    Started,
    /// The first bytes of stdout are there: the script has come so far.
    Said,
    Exited,
    /// Background work is waited for.
    Waiting,
}

/// What the host does then.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Stop,
    Kill,
    /// Starts the same command again, once.
    Restart,
    CloseStdin,
}

/// One script and what is done to it.
struct Case {
    name: &'static str,
    script: &'static str,
    policies: fn(&mut Command),
    deed: (When, Deed),
    contain: Within,
}

/// What sees whoever has left the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Within {
    Group,
    Cookie,
    /// Where this machine gives one.
    Cgroup,
}

impl Within {
    fn containment(self) -> Containment {
        match self {
            Within::Group => Containment::Group,
            Within::Cookie => Containment::Cookie,
            Within::Cgroup => Containment::Cgroup(CgroupOptions::default()),
        }
    }
}

const fn within(contain: Within, case: Case) -> Case {
    Case { contain, ..case }
}

const fn case(name: &'static str, script: &'static str, policies: fn(&mut Command)) -> Case {
    told(name, script, policies, When::Never, Deed::Stop)
}

const fn told(
    name: &'static str,
    script: &'static str,
    policies: fn(&mut Command),
    when: When,
    deed: Deed,
) -> Case {
    Case {
        name,
        script,
        policies,
        deed: (when, deed),
        contain: Within::Group,
    }
}

fn plain(_: &mut Command) {}

fn short_drain(command: &mut Command) {
    command
        .drain(DrainPolicy::default().idle(ms(300)).limit(ms(20_000)))
        .background(BackgroundPolicy::settle().wait(Wait::For(ms(30_000))));
}

fn short_limit(command: &mut Command) {
    command
        .drain(DrainPolicy::default().idle(ms(20_000)).limit(ms(700)))
        .background(BackgroundPolicy::settle().wait(Wait::For(ms(30_000))));
}

/// The grace is longer than whoever obeys needs on any load.
fn ended(command: &mut Command) {
    command.background(
        BackgroundPolicy::settle()
            .grace(ms(100))
            .wait(Wait::For(ms(300)))
            .terminate_grace(ms(20_000)),
    );
}

fn waits(command: &mut Command) {
    command.background(
        BackgroundPolicy::settle()
            .grace(ms(100))
            .wait(Wait::For(ms(30_000))),
    );
}

fn short_wait(command: &mut Command) {
    command.background(
        BackgroundPolicy::settle()
            .grace(ms(100))
            .wait(Wait::For(ms(300)))
            .terminate_grace(ms(300)),
    );
}

fn kept(command: &mut Command) {
    command.background(
        BackgroundPolicy::settle()
            .grace(ms(100))
            .wait(Wait::For(ms(300)))
            .keep_orphans(true),
    );
}

fn reported(command: &mut Command) {
    command.background(BackgroundPolicy::report_only().grace(ms(100)));
}

fn ignored(command: &mut Command) {
    command
        .background(BackgroundPolicy::disabled())
        .drain(DrainPolicy::default().idle(ms(300)));
}

fn short_grace(command: &mut Command) {
    command.stop(StopPolicy::default().grace(ms(400)));
}

fn short_run(command: &mut Command) {
    command
        .run_limit(ms(500))
        .stop(StopPolicy::default().grace(ms(400)));
}

fn small(command: &mut Command) {
    command
        .stdout(Capture::default().max_bytes(1000))
        .stderr(Capture::default().max_bytes(10));
}

fn fed(command: &mut Command) {
    command.stdin("some bytes for it\n");
}

fn fed_much(command: &mut Command) {
    command.stdin(vec![b'x'; 1 << 20]);
}

/// The scripts. In none of them two processes die of one signal: which of them is seen to be gone
/// first is a matter of time.
const CASES: &[Case] = &[
    case("success", "exit 0", plain),
    case(
        "exit code and both streams",
        "echo stdout \"out\"; echo stderr \"err\"; exit 3",
        plain,
    ),
    case(
        "a signal",
        "echo stderr \"last words\"; kill SELF SEGV",
        plain,
    ),
    case(
        "much output",
        "write stdout 500000; write stderr 300000; exit 1",
        plain,
    ),
    case(
        "more than is kept",
        "write stdout 500000; write stderr 300000; exit 1",
        small,
    ),
    case(
        "early end of file",
        "echo stdout \"x\"; close stdout; close stderr; sleep 100ms; exit 4",
        plain,
    ),
    case(
        "a grandchild that goes on",
        "fork { sleep 150ms; echo stdout \"late\" }; echo stdout \"out\"; exit 0",
        plain,
    ),
    case(
        "a holder, by idle",
        "fork { sleep 2500ms }; echo stdout \"out\"; exit 3",
        short_drain,
    ),
    case(
        "a chatty holder, by the limit",
        "fork { repeat 50 { sleep 50ms; echo stdout \"tick\" } }; exit 0",
        short_limit,
    ),
    case(
        "background work that finishes",
        "fork { close stdout; close stderr; sleep 3500ms }; exit 0",
        plain,
    ),
    case(
        "background work that is ended",
        "fork { close stdout; close stderr; sleep 60s }; exit 0",
        short_wait,
    ),
    case(
        "background work deaf to TERM",
        "fork { ignore TERM; close stdout; close stderr; sleep 60s }; exit 0",
        short_wait,
    ),
    case(
        "background work that is kept",
        "fork { close stdout; close stderr; sleep 3s }; exit 0",
        kept,
    ),
    case(
        "background work that is reported",
        "fork { close stdout; close stderr; sleep 3s }; exit 5",
        reported,
    ),
    case(
        "nobody looks",
        "fork { close stdout; close stderr; sleep 1s }; exit 0",
        ignored,
    ),
    told(
        "a stop that is obeyed",
        "echo stdout \"up\"; sleep 60s",
        plain,
        When::Said,
        Deed::Stop,
    ),
    told(
        "a stop with last words",
        "on TERM { echo stderr \"bye\"; exit 7 }; echo stdout \"up\"; sleep 60s",
        plain,
        When::Said,
        Deed::Stop,
    ),
    told(
        "a stop of the deaf",
        "ignore TERM; echo stdout \"up\"; sleep 60s",
        short_grace,
        When::Said,
        Deed::Stop,
    ),
    told(
        "a stop of a stopped one",
        "echo stdout \"up\"; stop; sleep 60s",
        short_grace,
        When::Said,
        Deed::Stop,
    ),
    told(
        "a stop of the deaf member",
        "fork { ignore TERM; echo stdout \"up\"; sleep 60s }; sleep 60s",
        short_grace,
        When::Said,
        Deed::Stop,
    ),
    told(
        "a kill",
        "ignore TERM; echo stdout \"up\"; sleep 60s",
        plain,
        When::Said,
        Deed::Kill,
    ),
    told(
        "a stop while a pipe is held",
        "fork { sleep 60s }; exit 0",
        plain,
        When::Exited,
        Deed::Stop,
    ),
    told(
        "a stop of background work",
        "fork { close stdout; close stderr; sleep 60s }; exit 0",
        plain,
        When::Waiting,
        Deed::Stop,
    ),
    told(
        "a restart while a pipe is held",
        "fork { sleep 2500ms }; exit 0",
        short_drain,
        When::Exited,
        Deed::Restart,
    ),
    case("the run limit", "ignore TERM; sleep 60s", short_run),
    case(
        "the run limit while a pipe is held",
        "fork { sleep 60s }; exit 0",
        short_run,
    ),
    case("stdin that is read", "cat stdout; exit 2", fed),
    case("stdin that nobody reads", "exit 7", fed_much),
    told(
        "stdin that is closed",
        "read all; exit 2",
        |c| {
            c.stdin(lastwords::Stdin::Feed);
        },
        When::Started,
        Deed::CloseStdin,
    ),
];

/// Work that has left the group, and what each containment makes of it.
const ESCAPED: &str = "fork { setsid; close stdout; close stderr; sleep 3s }; sleep 300ms; exit 0";
const ESCAPED_FOR_LONG: &str =
    "fork { setsid; close stdout; close stderr; sleep 60s }; sleep 300ms; exit 0";
const ESCAPED_DEAF: &str =
    "fork { setsid; ignore TERM; close stdout; close stderr; sleep 60s }; sleep 300ms; exit 0";
const ESCAPED_HOLDER: &str =
    "fork { setsid; sleep 2500ms }; sleep 300ms; echo stdout \"out\"; exit 3";
const ESCAPED_TWICE: &str = "fork { setsid; close stdout; close stderr; fork { setsid; ignore HUP; sleep 3s }; sleep 100ms }; sleep 600ms; exit 0";
const ESCAPED_CLEAN: &str = "fork { setsid; close stdout; close stderr; exec clean \"bare\" { sleep 3s } }; sleep 600ms; exit 0";

const CONTAINED: &[Case] = &[
    case("an escapee that nobody sees", ESCAPED, plain),
    within(
        Within::Cookie,
        case("a cookie and nobody", "echo stdout \"out\"; exit 2", plain),
    ),
    within(
        Within::Cookie,
        case("a cookie and work that finishes", ESCAPED, waits),
    ),
    within(
        Within::Cookie,
        case("a cookie and work that is ended", ESCAPED_FOR_LONG, ended),
    ),
    within(
        Within::Cookie,
        case("a cookie and work that is deaf", ESCAPED_DEAF, short_wait),
    ),
    within(
        Within::Cookie,
        case("a cookie and work that is kept", ESCAPED, kept),
    ),
    within(
        Within::Cookie,
        case("a cookie and a holder", ESCAPED_HOLDER, short_drain),
    ),
    within(
        Within::Cookie,
        case("a cookie that is inherited twice", ESCAPED_TWICE, waits),
    ),
    within(
        Within::Cookie,
        case("a cookie that is thrown away", ESCAPED_CLEAN, plain),
    ),
    within(
        Within::Cookie,
        told(
            "a cookie and a stop",
            ESCAPED_FOR_LONG,
            waits,
            When::Waiting,
            Deed::Stop,
        ),
    ),
    within(
        Within::Cgroup,
        case("a cgroup and nobody", "echo stdout \"out\"; exit 2", plain),
    ),
    within(
        Within::Cgroup,
        case("a cgroup and work that finishes", ESCAPED, waits),
    ),
    within(
        Within::Cgroup,
        case("a cgroup and work that is ended", ESCAPED_FOR_LONG, ended),
    ),
    within(
        Within::Cgroup,
        case("a cgroup and work that is deaf", ESCAPED_DEAF, short_wait),
    ),
    within(
        Within::Cgroup,
        case("a cgroup and work that is kept", ESCAPED, kept),
    ),
    within(
        Within::Cgroup,
        case("a cgroup and work that is reported", ESCAPED, reported),
    ),
    within(
        Within::Cgroup,
        case("a cgroup and a clean environment", ESCAPED_CLEAN, waits),
    ),
    within(
        Within::Cgroup,
        case("a cgroup and a holder", ESCAPED_HOLDER, short_drain),
    ),
    within(
        Within::Cgroup,
        told(
            "a cgroup and a kill",
            ESCAPED_DEAF,
            waits,
            When::Waiting,
            Deed::Kill,
        ),
    ),
];

/// Stands for what could not be found out in time.
const UNKNOWN: &str = "?";

/// The same, but for what could not be found out.
fn alike(expected: &str, got: &str) -> bool {
    let fits = |(expected, got): (&str, &str)| match got.strip_suffix(UNKNOWN) {
        Some(got) => expected.starts_with(got),
        None => expected == got,
    };
    expected.lines().count() == got.lines().count() && expected.lines().zip(got.lines()).all(fits)
}

/// What a host is told, without times, process numbers and pieces.
#[derive(Default)]
struct Told {
    lines: BTreeMap<Generation, String>,
    bytes: BTreeMap<(Generation, usize), Vec<u8>>,
    pids: BTreeMap<Generation, u32>,
}

impl Told {
    fn line(&mut self, generation: Generation, text: &str) {
        let lines = self.lines.entry(generation).or_default();
        writeln!(lines, "{text}").expect("a string takes everything");
    }

    /// Takes one event in; what it means to the deed.
    fn event(&mut self, event: &Event<'_>) -> When {
        let generation = event.generation();
        match event {
            Event::Started { pid, .. } => {
                self.pids.insert(generation, *pid);
                self.line(generation, "started");
                When::Started
            }
            Event::SpawnFailed { error, .. } => {
                self.line(generation, &format!("failed at {:?}", error.step()));
                When::Never
            }
            Event::Output { stream, bytes, .. } => {
                self.bytes
                    .entry((generation, stream.index()))
                    .or_default()
                    .extend_from_slice(bytes);
                if *stream == Stream::Stdout {
                    When::Said
                } else {
                    When::Never
                }
            }
            Event::Exited { exit, .. } => {
                self.line(
                    generation,
                    &format!(
                        "exited {:?} {:?} core {}",
                        exit.code,
                        exit.signal,
                        exit.core_dumped && exit.signal.is_none()
                    ),
                );
                When::Exited
            }
            Event::Drained {
                drain, last_words, ..
            } => {
                // The look for holders has an end in time: on a busy machine it may not be
                // complete.
                let holders = if drain.holders_complete {
                    drain.holders.len().to_string()
                } else {
                    UNKNOWN.to_owned()
                };
                self.line(
                    generation,
                    &format!(
                        "{:?} by {:?}, open {:?}, holders {holders}",
                        drain.verdict, drain.ended_by, drain.open
                    ),
                );
                self.line(generation, &format!("last words {last_words:?}"));
                When::Never
            }
            Event::BackgroundWait { survivors, .. } => {
                self.line(generation, &format!("waits for {}", survivors.len()));
                When::Waiting
            }
            Event::Settled { settled, .. } => {
                self.line(
                    generation,
                    &format!(
                        "settled {:?}, {} processes, {:?}",
                        settled.state,
                        settled.processes.len(),
                        settled.contained_by
                    ),
                );
                When::Never
            }
            Event::Closed { report, .. } => {
                // How many bytes are late is a matter of time.
                let streams = [report.stdout, report.stderr]
                    .map(|s| s.map(|s| (s.bytes, s.dropped, s.late > 0, s.end, s.error)));
                let stop = report.stop.as_ref().map(|s| (s.reason, s.escalated));
                // Whether the exit or the closed pipe is seen first is a matter of time.
                let stdin = report.stdin.as_ref().map(|s| s.end == StdinEnd::Written);
                self.line(
                    generation,
                    &format!(
                        "closed {:?}, streams {streams:?}, stop {stop:?}, stdin written {stdin:?}",
                        report.outcome
                    ),
                );
                self.line(
                    generation,
                    &format!("tails {:?} {:?}", report.stderr_tail, report.late_tail),
                );
                When::Never
            }
            other => panic!("not known here: {other:?}"),
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (number, (generation, lines)) in self.lines.iter().enumerate() {
            writeln!(text, "generation {}:\n{lines}", number + 1)
                .expect("a string takes everything");
            for stream in Stream::ALL {
                let bytes = self
                    .bytes
                    .get(&(*generation, stream.index()))
                    .map_or(&[][..], Vec::as_slice);
                let sum = bytes.iter().fold(0_u64, |sum, byte| {
                    sum.wrapping_mul(31).wrapping_add(u64::from(*byte))
                });
                writeln!(text, "{stream}: {} bytes, sum {sum:x}", bytes.len())
                    .expect("a string takes everything");
            }
        }
        text
    }
}

/// A case that is being played, and what was told of it.
struct Playing<'a> {
    case: &'a Case,
    command: Command,
    first: Generation,
    told: Told,
    deed_done: bool,
}

impl<'a> Playing<'a> {
    fn start<K: Kernel>(reactor: &mut Reactor<K>, case: &'a Case) -> Playing<'a> {
        let (program, name, script) = crate::support::play(case.script);
        let mut command = Command::new(program);
        command
            .env(name, script)
            .containment(case.contain.containment())
            .background(BackgroundPolicy::settle())
            .stdout(Capture::default().deliver(true))
            .stderr(Capture::default().deliver(true));
        (case.policies)(&mut command);
        let first = reactor
            .start(&command)
            .unwrap_or_else(|e| panic!("{}: {e}", case.name));
        Playing {
            case,
            command,
            first,
            told: Told::default(),
            deed_done: false,
        }
    }

    /// Does the deed of the case. Returns the generation that it has started.
    fn deed<K: Kernel>(&mut self, reactor: &mut Reactor<K>) -> Option<Generation> {
        self.deed_done = true;
        match self.case.deed.1 {
            Deed::Stop => {
                let _ = reactor.stop(self.first, None);
            }
            Deed::Kill => {
                let _ = reactor.kill(self.first);
            }
            Deed::Restart => return Some(reactor.start(&self.command).expect("it starts again")),
            Deed::CloseStdin => assert!(reactor.close_stdin(self.first)),
        }
        None
    }
}

/// Plays cases side by side on one loop. Returns what was told of each.
fn play<K: Kernel>(reactor: &mut Reactor<K>, cases: &[&Case]) -> Vec<String> {
    let mut playing: Vec<Playing<'_>> = cases
        .iter()
        .map(|case| Playing::start(reactor, case))
        .collect();
    let mut owners: BTreeMap<Generation, usize> = playing
        .iter()
        .enumerate()
        .map(|(place, one)| (one.first, place))
        .collect();
    while let Some(event) = reactor.wait_event(Some(ms(30_000))).expect("a turn") {
        let generation = event.generation();
        let place = owners[&generation];
        let one = &mut playing[place];
        let when = one.told.event(&event);
        if when == one.case.deed.0
            && when != When::Never
            && !one.deed_done
            && generation == one.first
        {
            let restarted = one.deed(reactor);
            owners.extend(restarted.map(|generation| (generation, place)));
        }
    }
    let told: Vec<String> = playing.iter().map(|one| one.told.text()).collect();
    assert!(!reactor.is_busy(), "nothing happens any more: {told:#?}");
    told
}

/// How many cases are played side by side. They sleep most of their time.
const AT_ONCE: usize = 8;

fn linux(
    backend: BackendChoice,
    exit_source: ExitSourceChoice,
    group_signal: GroupSignal,
    cases: &[&Case],
) -> Vec<String> {
    let mut builder = Reactor::builder();
    builder
        .backend(backend)
        .exit_source(exit_source)
        .group_signal(group_signal);
    let mut reactor = builder.build().expect("a loop");
    let batches = cases.chunks(AT_ONCE);
    batches.flat_map(|some| play(&mut reactor, some)).collect()
}

fn simulated(exit_source: ExitSource, group_signal: bool, cases: &[&Case]) -> Vec<String> {
    let one = |case: &&Case| {
        let mut options = SimOptions::seeded(7);
        (options.exit_source, options.group_signal) = (exit_source, group_signal);
        let mut reactor = Reactor::simulated(options);
        let told = play(&mut reactor, &[case]);
        assert_eq!(reactor.sim().violations(), []);
        told
    };
    cases.iter().flat_map(one).collect()
}

/// How long a case takes.
fn simulated_time(case: &Case) -> Ns {
    let mut reactor = Reactor::simulated(SimOptions::seeded(7));
    play(&mut reactor, &[case]);
    reactor.sim().world().now()
}

/// Every case on one kernel, compared with the simulated one as the options' defaults have it.
fn compare(test: &str, kernel: fn(&[&Case]) -> Vec<String>) {
    alone(test, module_path!(), || {
        let mut wrong = String::new();
        let has_cgroups = crate::support::cgroups().is_some();
        let mut cases: Vec<&Case> = CASES
            .iter()
            .chain(CONTAINED)
            .filter(|case| has_cgroups || case.contain != Within::Cgroup)
            .collect();
        // Cases that take as long as each other are played side by side.
        cases.sort_by_cached_key(|case| simulated_time(case));
        let all_expected = simulated(ExitSource::Pidfd, true, &cases);
        let all_got = kernel(&cases);
        assert_eq!(all_got.len(), cases.len());
        for ((case, expected), got) in cases.iter().zip(&all_expected).zip(&all_got) {
            assert!(expected.contains("closed"), "{}: {expected}", case.name);
            if !alike(expected, got) {
                writeln!(
                    wrong,
                    "=== {}\n--- simulated:\n{expected}\n--- here:\n{got}",
                    case.name
                )
                .expect("a string takes everything");
            }
        }
        assert!(wrong.is_empty(), "{wrong}");
        println!("{} scripts are told alike", cases.len());
    });
}

macro_rules! kernels {
    ($($name:ident = $kernel:expr;)+) => {
        $(#[test]
        fn $name() {
            compare(stringify!($name), $kernel);
        })+
    };
}

kernels! {
    simulated_without_group_signal = |cases| simulated(ExitSource::Pidfd, false, cases);
    simulated_by_sigchld = |cases| simulated(ExitSource::Sigchld, false, cases);
    epoll_by_pidfd = |cases| linux(BackendChoice::Epoll, ExitSourceChoice::Pidfd, GroupSignal::Auto, cases);
    epoll_without_group_signal = |cases| linux(BackendChoice::Epoll, ExitSourceChoice::Pidfd, GroupSignal::Off, cases);
    epoll_by_sigchld = |cases| linux(BackendChoice::Epoll, ExitSourceChoice::Sigchld, GroupSignal::Auto, cases);
    uring_by_pidfd = |cases| linux(BackendChoice::Uring, ExitSourceChoice::Pidfd, GroupSignal::Auto, cases);
}
