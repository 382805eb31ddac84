//! Signals, as readable descriptors beside the loop's own.

use lastwords::Signal;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use signal_hook::low_level::{emulate_default_handler, pipe};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Those that mean something to lastwords or to the command, wherever it runs.
const WANTED: [Signal; 9] = [
    Signal::TERM,
    Signal::INT,
    Signal::HUP,
    Signal::QUIT,
    Signal::WINCH,
    Signal::USR1,
    Signal::USR2,
    Signal::TSTP,
    Signal::CONT,
];
/// Those that stay ignored if they were ignored at the start, for the command too (nohup).
const KEPT_IGNORED: [Signal; 3] = [Signal::INT, Signal::HUP, Signal::QUIT];
/// The most that are watched at once.
pub(crate) const WATCHED: usize = WANTED.len() + 1;

/// One signal's self-pipe. One each, so that two signals that come together stay two.
#[derive(Debug)]
struct SignalPipe {
    signal: Signal,
    read: OwnedFd,
}

/// The signals that are watched, and those that were ignored at the start.
#[derive(Debug)]
pub(crate) struct Signals {
    pipes: Vec<SignalPipe>,
    ignored: Vec<Signal>,
    /// The default action holds again.
    over: Arc<AtomicBool>,
}

impl Signals {
    /// Watches from now on; with a terminal that is shared with the command, the command's stops
    /// too.
    pub(crate) fn watch(with_terminal: bool) -> io::Result<Signals> {
        let ignored: Vec<Signal> = KEPT_IGNORED
            .into_iter()
            .filter(|s| lastwords::host::is_ignored(*s))
            .collect();
        let mut signals = Signals {
            pipes: Vec::with_capacity(WATCHED),
            ignored,
            over: Arc::new(AtomicBool::new(false)),
        };
        for signal in WANTED {
            let stays_ignored = signals.ignored.contains(&signal)
                || (signal == Signal::TSTP && lastwords::host::is_ignored(signal));
            if !stays_ignored {
                signals.add(signal)?;
            }
        }
        // An ignored CHLD would lose the command's status; a handler puts an end to that.
        if with_terminal || lastwords::host::is_ignored(Signal::CHLD) {
            signals.add(Signal::CHLD)?;
        }
        Ok(signals)
    }

    fn add(&mut self, signal: Signal) -> io::Result<()> {
        let raw = signal.as_raw();
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        if matches!(
            signal,
            Signal::TERM | Signal::INT | Signal::HUP | Signal::QUIT
        ) {
            signal_hook::flag::register_conditional_default(raw, Arc::clone(&self.over))?;
        }
        pipe::register(raw, write)?;
        self.pipes.push(SignalPipe { signal, read });
        Ok(())
    }

    /// What was ignored at the start and stays so.
    pub(crate) fn ignored(&self) -> &[Signal] {
        &self.ignored
    }

    /// Descriptors that are readable when a signal has come.
    pub(crate) fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.pipes
            .iter()
            .map(|pipe| PollFd::new(&pipe.read, PollFlags::IN))
    }

    /// Takes one signal that has come, in the order of importance.
    pub(crate) fn next(&self) -> Option<Signal> {
        let mut byte = [0];
        self.pipes
            .iter()
            .find(|pipe| read_one(&pipe.read, &mut byte))
            .map(|pipe| pipe.signal)
    }

    /// Takes all of one kind; says whether there was one.
    pub(crate) fn take(&self, signal: Signal) -> bool {
        let mut byte = [0];
        let mut any = false;
        for pipe in self.pipes.iter().filter(|pipe| pipe.signal == signal) {
            while read_one(&pipe.read, &mut byte) {
                any = true;
            }
        }
        any
    }

    /// The command is over: from now on TERM, INT, HUP and QUIT end lastwords, as they end any
    /// program that only writes.
    ///
    /// Not so for the first process of a container, which no default action ends.
    pub(crate) fn restore_default_actions(&self) {
        self.over.store(std::process::id() != 1, Ordering::SeqCst);
    }
}

fn read_one(read: &OwnedFd, byte: &mut [u8; 1]) -> bool {
    loop {
        match rustix::io::read(read, byte.as_mut_slice()) {
            Ok(n) => return n > 0,
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Ends lastwords by a signal; comes back only where that cannot be (the first process of a
/// container). No core: it would be lastwords' own, and say nothing.
pub(crate) fn terminate_by(signal: Signal) {
    // Refused at worst; a core file is then all that comes of it.
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    if std::process::id() != 1 {
        let _ = emulate_default_handler(signal.as_raw());
    }
}
