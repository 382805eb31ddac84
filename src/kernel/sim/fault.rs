//! What can go wrong in a call, on demand or by the seed.

use crate::error::{Errno, Step};
use crate::time::Ns;
use crate::token::Slot;
use crate::words::Stream;

/// Something that goes wrong in one call. Handed to [`super::Sim::inject`]; the next call that it fits takes it.
///
/// EINTR in `read` and `write` is not here: a kernel object tries again, so nobody above sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `spawn`: this step fails. Up to `Clone` (and `Register`) the call itself is an error; the later steps are the child's,
    /// and are told by `outcome`.
    Spawn(Step, Errno),
    /// `spawn`: exec takes so long.
    SlowExec(Ns),
    /// `wait`: a signal interrupts it before anything is due: `Ok` with nothing.
    Interrupted,
    /// `wait`: the poll set fails.
    Wait(Errno),
    /// `wait`: a notice that the leader may have ended, for nothing.
    SpuriousExit,
    /// `wait`: a notice that a stream may be read, for nothing.
    SpuriousReadable(Stream),
    /// `read`: the stream fails.
    Read(Stream, Errno),
    /// `read`: at most so many bytes, though more are there.
    ShortRead(usize),
    /// `write`: stdin fails.
    Write(Errno),
    /// `write`: at most so many bytes, though more would fit.
    ShortWrite(usize),
    /// `collect`: it has nothing to say (a tracer); the leader's end is announced again this much later.
    NotYet(Ns),
    /// `collect`: somebody else was faster, and reaps the leader if it has ended.
    Stolen,
    /// `signal` and `signal_leader`: EPERM from everybody.
    Denied,
    /// `signal` and `signal_leader`: no way that is certain.
    NoWay,
    /// `scan`: the pass is not complete (/proc refuses).
    Incomplete,
    /// `watch`: no descriptor (EMFILE), or no pidfd_open (ENOSYS, EPERM).
    Watch(Errno),
}

/// The calls that faults fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Spawn,
    Wait,
    Read(Stream),
    Write,
    Collect,
    Signal,
    Scan,
    Watch,
}

impl Fault {
    pub(super) fn fits(self, call: Call) -> bool {
        match self {
            Fault::Spawn(..) | Fault::SlowExec(_) => call == Call::Spawn,
            Fault::Interrupted | Fault::Wait(_) | Fault::SpuriousExit | Fault::SpuriousReadable(_) => call == Call::Wait,
            Fault::Read(stream, _) => call == Call::Read(stream),
            Fault::ShortRead(_) => matches!(call, Call::Read(_)),
            Fault::Write(_) | Fault::ShortWrite(_) => call == Call::Write,
            Fault::NotYet(_) | Fault::Stolen => call == Call::Collect,
            Fault::Denied | Fault::NoWay => call == Call::Signal,
            Fault::Incomplete => call == Call::Scan,
            Fault::Watch(_) => call == Call::Watch,
        }
    }
}

/// A fault that waits for its call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planned {
    pub(super) fault: Fault,
    /// For this generation's slot only.
    pub(super) only: Option<Slot>,
    /// So many calls more; `None` for every one.
    pub(super) times: Option<u32>,
}

/// All that wait.
#[derive(Debug, Default)]
pub(super) struct Faults(Vec<Planned>);

impl Faults {
    pub(super) fn add(&mut self, planned: Planned) {
        if planned.times != Some(0) {
            self.0.push(planned);
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The first that fits this call; it is used up by one.
    pub(super) fn take(&mut self, call: Call, slot: Option<Slot>) -> Option<(Fault, Option<Slot>)> {
        let fits = |p: &Planned| p.fault.fits(call) && (p.only.is_none() || slot.is_none() || p.only == slot);
        let place = self.0.iter().position(fits)?;
        let planned = self.0.get_mut(place)?;
        let taken = (planned.fault, planned.only);
        match &mut planned.times {
            None => {}
            Some(times) => {
                *times -= 1;
                if *times == 0 {
                    self.0.remove(place);
                }
            }
        }
        Some(taken)
    }
}

/// What goes wrong by the seed, each in so many of a thousand cases. The default is: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unruly {
    /// `wait`: a notice for nothing.
    pub spurious: u16,
    /// A notice comes late, by up to [`Unruly::lateness`] after the change it is about.
    pub late: u16,
    /// How late at most.
    pub lateness: Ns,
    /// `read`: fewer bytes than are there.
    pub short_reads: u16,
    /// `wait`: EINTR.
    pub interrupted: u16,
    /// `collect`: nothing to say though it has ended; it is announced again.
    pub not_yet: u16,
    /// `watch`: EMFILE.
    pub no_watch: u16,
    /// `scan`: not complete.
    pub incomplete: u16,
    /// Notices of one rank come in another order.
    pub shuffled: u16,
}

impl Unruly {
    /// Everything that may go wrong without anybody being to blame, often.
    pub const fn storm() -> Unruly {
        Unruly {
            spurious: 100,
            late: 150,
            lateness: Ns::from_millis(2),
            short_reads: 150,
            interrupted: 50,
            not_yet: 100,
            no_watch: 100,
            incomplete: 50,
            shuffled: 500,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_waits_for_its_call_and_its_slot() {
        let mut faults = Faults::default();
        faults.add(Planned { fault: Fault::ShortRead(1), only: Some(Slot(3)), times: Some(2) });
        faults.add(Planned { fault: Fault::NoWay, only: None, times: None });
        assert_eq!(faults.take(Call::Read(Stream::Stderr), Some(Slot(2))), None);
        assert_eq!(faults.take(Call::Wait, None), None);
        for _ in 0..2 {
            assert!(faults.take(Call::Read(Stream::Stderr), Some(Slot(3))).is_some());
        }
        assert_eq!(faults.take(Call::Read(Stream::Stderr), Some(Slot(3))), None);
        for _ in 0..3 {
            assert!(faults.take(Call::Signal, Some(Slot(1))).is_some());
        }
    }
}
