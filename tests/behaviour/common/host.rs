//! A host that drives one loop and keeps the story of each of its generations.

use super::mark::Mark;
use super::proc::stat;
use super::{LONG, Way};
use lastwords::__internals::testing::oracle::{History, Naming};
use lastwords::{BackgroundPolicy, Builder, Capture, Command, Generation, Output, Reactor, Stream};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A loop, the mark that its commands carry, and what was told. The loop is dropped before the mark
/// kills what is left.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) reactor: Reactor,
    pub(crate) mark: Mark,
    stories: BTreeMap<Generation, History>,
}

impl Host {
    /// A loop in this mode.
    pub(crate) fn new(way: Way) -> Host {
        Host::with(&way.builder())
    }

    /// A loop that is built so.
    pub(crate) fn with(builder: &Builder) -> Host {
        Host {
            reactor: builder.build().expect("a loop"),
            mark: Mark::new(),
            stories: BTreeMap::new(),
        }
    }

    /// `sh -c SCRIPT` with the mark on it; both streams captured, nothing delivered, background
    /// work waited for.
    pub(crate) fn shell(&self, script: &str) -> Command {
        let mut command = Command::shell(script);
        self.mark.put_on(&mut command);
        command.background(BackgroundPolicy::settle());
        command
    }

    /// The same, with both streams delivered as they come.
    pub(crate) fn telling(&self, script: &str) -> Command {
        let mut command = self.shell(script);
        command.stdout(delivered()).stderr(delivered());
        command
    }

    /// Starts it, without waiting for exec.
    pub(crate) fn start(&mut self, command: &Command) -> Generation {
        let generation = self.reactor.start(command).expect("a process");
        self.stories.insert(generation, History::default());
        generation
    }

    /// Starts it, and waits for exec.
    pub(crate) fn spawn(&mut self, command: &Command) -> Generation {
        let generation = self
            .reactor
            .spawn(command)
            .expect("a process that executes its program");
        self.stories.insert(generation, History::default());
        generation
    }

    /// Spawns `sh -c SCRIPT` with both streams delivered.
    pub(crate) fn run(&mut self, script: &str) -> Generation {
        let command = self.telling(script);
        self.spawn(&command)
    }

    /// One turn; the events are left where they are. Whether it left work behind.
    pub(crate) fn turn(&mut self, timeout: Duration) -> bool {
        self.reactor.turn(Some(timeout)).expect("a turn").more
    }

    /// Takes all events that are waiting, without turning; how many there were.
    pub(crate) fn take_events(&mut self) -> usize {
        let mut count = 0;
        while self.take_event() {
            count += 1;
        }
        count
    }

    fn take_event(&mut self) -> bool {
        let turn = self.reactor.stats().turns;
        let Some(event) = self.reactor.next_event() else {
            return false;
        };
        let generation = event.generation();
        let story = self
            .stories
            .get_mut(&generation)
            .unwrap_or_else(|| panic!("an event of a stranger: {event:?}"));
        story.record(event, turn);
        if story.report.is_some() {
            for stream in Stream::ALL {
                story.kept[stream.index()] = self.reactor.take(generation, stream);
                assert!(
                    self.reactor.take(generation, stream).is_none(),
                    "taken twice"
                );
            }
            story.check_report(Naming::Complete);
        }
        true
    }

    /// One turn, then all events. Whether the turn left work behind.
    pub(crate) fn step(&mut self, timeout: Duration) -> bool {
        let more = self.turn(timeout);
        self.take_events();
        more
    }

    /// Turns, taking events, until it is so; fails when that takes too long.
    pub(crate) fn until(&mut self, what: &str, mut so: impl FnMut(&mut Host) -> bool) {
        let begun = Instant::now();
        self.take_events();
        while !so(self) {
            let left = LONG.saturating_sub(begun.elapsed());
            assert!(!left.is_zero(), "waited for: {what}: {:?}", self.stories);
            self.step(left.min(Duration::from_millis(500)));
        }
    }

    /// Turns, taking events, for so long: for tests that nothing happens.
    pub(crate) fn idle(&mut self, time: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < time {
            let left = time.saturating_sub(begun.elapsed());
            self.step(left);
        }
    }

    /// Turns until its story is so.
    pub(crate) fn until_story(
        &mut self,
        generation: Generation,
        what: &str,
        so: impl Fn(&History) -> bool,
    ) -> &History {
        self.until(what, |host| so(&host.stories[&generation]));
        &self.stories[&generation]
    }

    /// Turns until so much was delivered of stdout.
    pub(crate) fn until_said(&mut self, generation: Generation, text: &str) {
        self.until_story(generation, text, |story| {
            story.delivered(Stream::Stdout).contains(text)
        });
    }

    /// Turns until the leader's end is told.
    pub(crate) fn until_exited(&mut self, generation: Generation) -> &History {
        self.until_story(generation, "Exited", |story| story.exit().is_some())
    }

    /// Turns until the verdict is told.
    pub(crate) fn until_drained(&mut self, generation: Generation) -> &History {
        self.until_story(generation, "Drained", |story| story.drain().is_some())
    }

    /// Turns until it is closed; nothing of it may be left but what has left its group.
    pub(crate) fn until_closed(&mut self, generation: Generation) -> &History {
        self.until_story(generation, "Closed", |story| story.report.is_some());
        let story = &self.stories[&generation];
        if let Some(pid) = story.report().pid {
            let ours = |pid| stat(pid).filter(|stat| stat.parent == std::process::id());
            assert!(
                story.report().exit.is_none() || ours(pid).is_none(),
                "a leader that was not reaped: {:?}",
                ours(pid)
            );
        }
        story
    }

    /// What was told of it so far.
    pub(crate) fn story(&self, generation: Generation) -> &History {
        &self.stories[&generation]
    }

    /// All is closed and nothing is left.
    pub(crate) fn finish(mut self) {
        self.take_events();
        assert!(!self.reactor.is_busy(), "not closed: {:?}", self.stories);
        assert_eq!(self.reactor.stats().live, 0);
        assert!(!self.reactor.has_events());
        self.mark.wait_gone();
    }
}

/// A captured stream that is delivered.
pub(crate) fn delivered() -> Output {
    Output::Capture(Capture::default().deliver(true))
}
