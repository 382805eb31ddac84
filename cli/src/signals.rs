//! The signals that lastwords handles, behind one readable descriptor.

use crate::startup;
use lastwords::{Signal, host};
use rustix::event::{PollFd, PollFlags};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;
use signal_hook::low_level::emulate_default_handler;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The last signal number of Linux.
const LAST_SIGNAL: i32 = 64;
/// Signals that the C library keeps for itself.
const RESERVED: [i32; 2] = [32, 33];

/// Signals that lastwords does not handle: those that report a fault of lastwords itself, those
/// that cannot be caught, and those listed with a reason.
const NOT_HANDLED: [Signal; 15] = [
    Signal::ILL,
    Signal::TRAP,
    Signal::ABRT,
    Signal::BUS,
    Signal::FPE,
    Signal::SEGV,
    Signal::SYS,
    Signal::KILL,
    Signal::STOP,
    // lastwords ignores them.
    Signal::PIPE,
    Signal::XFSZ,
    // The kernel sends them on terminal access, and their default action is right.
    Signal::TTIN,
    Signal::TTOU,
    // Its default action is to do nothing.
    Signal::URG,
    // Handled only where it is needed.
    Signal::CHLD,
];

/// Signals that end lastwords once the command is over.
const TERMINATING: [Signal; 4] = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM];

/// The signals that lastwords handles, and those that were ignored when it was started.
pub(crate) struct Signals {
    delivery: SignalDelivery<UnixStream, SignalOnly>,
    /// Signals that have come and were not taken yet. Several of one kind are one, as pending
    /// signals are.
    pending: SignalSet,
    ignored: Vec<Signal>,
    /// Makes the handlers of [`TERMINATING`] do the default action.
    default_actions: Arc<AtomicBool>,
}

/// A set of signals: bit N-1 is signal N.
#[derive(Clone, Copy, Default)]
struct SignalSet(u64);

impl SignalSet {
    fn bit(signal: Signal) -> u64 {
        1 << (signal.as_raw() - 1)
    }

    fn insert(&mut self, signal: Signal) {
        self.0 |= Self::bit(signal);
    }

    fn remove(&mut self, signal: Signal) -> bool {
        let was_there = self.0 & Self::bit(signal) != 0;
        self.0 &= !Self::bit(signal);
        was_there
    }

    fn iter(self) -> impl Iterator<Item = Signal> {
        all_signals().filter(move |signal| self.0 & Self::bit(*signal) != 0)
    }
}

fn all_signals() -> impl Iterator<Item = Signal> {
    (1..=LAST_SIGNAL).filter_map(Signal::from_raw)
}

impl Signals {
    /// Installs the handlers. Signals that were ignored stay ignored. `with_terminal` adds CHLD,
    /// which tells that the command was stopped.
    ///
    /// Afterwards no signal is blocked, whatever mask lastwords was started with.
    pub(crate) fn install(with_terminal: bool) -> io::Result<Signals> {
        let ignored: Vec<Signal> = all_signals()
            .filter(|signal| match *signal {
                Signal::PIPE => startup::pipe_was_ignored(),
                other => host::is_ignored(other),
            })
            .collect();
        let (read, write) = UnixStream::pair()?;
        let none: [i32; 0] = [];
        let mut signals = Signals {
            delivery: SignalDelivery::with_pipe(read, write, SignalOnly, none)?,
            pending: SignalSet::default(),
            ignored,
            default_actions: Arc::default(),
        };
        let handled = all_signals()
            .filter(|signal| !NOT_HANDLED.contains(signal) && !RESERVED.contains(&signal.as_raw()))
            .filter(|signal| !signals.ignored.contains(signal));
        for signal in handled.collect::<Vec<_>>() {
            signals.handle(signal)?;
        }
        // With CHLD ignored the kernel would throw the command's status away.
        if with_terminal || signals.ignored.contains(&Signal::CHLD) {
            signals.handle(Signal::CHLD)?;
        }
        // Writing to a closed pipe, or beyond the limit of a file's size, returns an error.
        host::ignore(Signal::PIPE)?;
        host::ignore(Signal::XFSZ)?;
        host::unblock_all()?;
        Ok(signals)
    }

    fn handle(&mut self, signal: Signal) -> io::Result<()> {
        let raw = signal.as_raw();
        if TERMINATING.contains(&signal) {
            let default = Arc::clone(&self.default_actions);
            signal_hook::flag::register_conditional_default(raw, default)?;
        }
        self.delivery.handle().add_signal(raw)?;
        Ok(())
    }

    /// The signals that were ignored when lastwords was started.
    pub(crate) fn ignored(&self) -> &[Signal] {
        &self.ignored
    }

    /// The descriptor that is readable when a signal has come.
    pub(crate) fn poll_fd(&self) -> PollFd<'_> {
        PollFd::new(self.delivery.get_read(), PollFlags::IN)
    }

    fn receive(&mut self) {
        for raw in self.delivery.pending() {
            if let Some(signal) = Signal::from_raw(raw) {
                self.pending.insert(signal);
            }
        }
    }

    /// Takes one signal that has come. CONT comes last: a stop signal that came with it was ended
    /// by it.
    pub(crate) fn next(&mut self) -> Option<Signal> {
        self.receive();
        let is_cont = |signal: &Signal| *signal == Signal::CONT;
        let signals = || self.pending.iter();
        let signal = signals()
            .find(|signal| !is_cont(signal))
            .or_else(|| signals().find(is_cont))?;
        self.pending.remove(signal);
        Some(signal)
    }

    /// Takes one kind of signal. Returns whether it has come.
    pub(crate) fn take(&mut self, signal: Signal) -> bool {
        self.receive();
        self.pending.remove(signal)
    }

    /// Takes a signal that ends lastwords once the command is over.
    pub(crate) fn take_terminating(&mut self) -> Option<Signal> {
        TERMINATING.into_iter().find(|signal| self.take(*signal))
    }

    /// The command is over: from now on TERM, INT, HUP and QUIT end lastwords by their default
    /// action. Process 1 keeps its handlers, because the kernel ignores default actions there.
    pub(crate) fn restore_default_actions(&self) {
        let is_process_1 = std::process::id() == 1;
        self.default_actions.store(!is_process_1, Ordering::SeqCst);
    }
}

/// Ends lastwords by a signal, without a core file. Returns only as process 1, which no default
/// action ends.
pub(crate) fn terminate_by(signal: Signal) {
    // On an error a core file of lastwords may be written, which does no harm.
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    if std::process::id() != 1 {
        let _ = emulate_default_handler(signal.as_raw());
    }
}
