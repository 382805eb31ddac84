//! What can go wrong in a call, on demand or by the seed.
//!
//! A fault goes wrong in one call of one kind. As text (an act of a script, `fault read stdout
//! EIO`, or [`super::Sim::inject_text`]):
//!
//! | text | what goes wrong |
//! | --- | --- |
//! | `spawn STEP ERRNO` | this step of the next spawn (the words of a report: `pipe`, `register`, `clone`, `cgroup`, `chdir`, `exec`, ...) |
//! | `spawn slow TIME` | its exec takes so long |
//! | `outcome EAGAIN` | announced, and not known yet |
//! | `wait EINTR`, `wait ERRNO` | a signal interrupts it before anything is due; the poll set fails, which is the loop's end |
//! | `wait spurious WHAT` | a notice for nothing: `exit`, `stdout`, `stderr`, `stdin`, `member`, `cgroup`, `outcome`, `woken` |
//! | `wait late TIME` | the next notice comes so much later |
//! | `wait merged TIME` | whatever comes about within that time is told at its end |
//! | `wait stalled TIME` | the host stands still for so long before it looks (a loaded machine, a suspended host) |
//! | `read STREAM ERRNO`, `read STREAM EAGAIN` | it fails; it has nothing yet though bytes are there (before the leader's end only) |
//! | `read short N`, `write short N` | at most so many bytes |
//! | `write EAGAIN`, `write EPIPE`, `write ERRNO` | nothing fits; nobody reads; it fails |
//! | `collect EAGAIN TIME` | nothing to say (a tracer); the end is announced again so much later |
//! | `collect ECHILD` | somebody else was faster, and reaps the leader if it has ended |
//! | `signal EPERM`, `signal ENOSYS` | refused; no way that is certain. Also `signal-leader` and (EPERM alone) `signal-outside` |
//! | `signal ESRCH` | whoever would have got it ends just before. Also `signal-leader` and `signal-outside` |
//! | `probe EPERM`, `probe ERRNO` | somebody is there, it seems; no answer, so that a look is needed |
//! | `scan EACCES` | the pass is not complete |
//! | `scan ESRCH` | a member ends just before it is looked at |
//! | `scan ERRNO` | the look cannot be begun: it is over, has found nothing, and is not complete |
//! | `watch ERRNO` | no descriptor, no pidfd_open; ESRCH: it ends just before |
//! | `CALL EINTR` | `read`, `write`, `collect`, `scan`: the kernel object tries again, which takes the time of another call |

use super::log::Happened;
use super::process::HOST;
use super::{Sim, faults};
use crate::types::{Errno, Ns, Slot, SpawnStep, Stream, Token};
use std::collections::BTreeMap;
use std::fmt;

/// Something that goes wrong in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `spawn`: this step fails. Up to `Clone` (and `Register`, `Cgroup`) the call itself is an
    /// error; the later steps are the child's, and are told by `outcome`. `Cgroup` waits for a
    /// command that asks for one.
    Spawn(SpawnStep, Errno),
    /// `spawn`: exec takes so long.
    SlowExec(Ns),
    /// `outcome`: announced, and not known yet; it is announced again.
    OutcomeLater,
    /// `wait`: a signal interrupts it before anything is due: `Ok` with nothing. Other calls: the
    /// kernel object tries again.
    Interrupted,
    /// `wait`: the poll set fails.
    Wait(Errno),
    /// `wait`: a notice that the leader may have ended, for nothing.
    SpuriousExit,
    /// `wait`: a notice that a stream may be read, for nothing.
    SpuriousReadable(Stream),
    /// `wait`: a notice that stdin may be written, for nothing.
    SpuriousWritable,
    /// `wait`: a notice that a watched member has ended, for nothing.
    SpuriousMember,
    /// `wait`: a notice that a cgroup has changed, for nothing.
    SpuriousCgroup,
    /// `wait`: a notice that an outcome is known, for nothing.
    SpuriousOutcome,
    /// `wait`: woken by nobody.
    SpuriousWake,
    /// `wait`: the next notice that comes about is told so much later.
    Late(Ns),
    /// `wait`: what comes about within this time is told together at its end.
    Merged(Ns),
    /// `wait`: the host stands still for so long before it looks.
    Stalled(Ns),
    /// `read`: the stream fails.
    Read(Stream, Errno),
    /// `read`: nothing yet, though bytes are there; they make another notice. Waits for a stream
    /// whose leader has not ended: after that nothing may be left behind.
    ReadLater(Stream),
    /// `read`: at most so many bytes, though more are there.
    ShortRead(usize),
    /// `write`: stdin fails.
    Write(Errno),
    /// `write`: nothing fits now; a notice follows.
    WriteLater,
    /// `write` finds no reader (EPIPE).
    NoReader,
    /// `write`: at most so many bytes, though more would fit.
    ShortWrite(usize),
    /// `collect`: it has nothing to say (a tracer); the leader's end is announced again this much
    /// later.
    NotYet(Ns),
    /// `collect`: somebody else was faster, and reaps the leader if it has ended.
    Stolen,
    /// `signal`, `signal_leader`, `signal_outside`: EPERM from everybody.
    Denied,
    /// `signal` and `signal_leader`: no way that is certain.
    NoWay,
    /// `signal`, `signal_leader`, `signal_outside`, `scan`: whoever it is about ends just before
    /// (unless nothing can end him).
    Gone,
    /// `probe`: EPERM looks like somebody; anything else is no answer.
    Refused(Errno),
    /// `scan`: the pass is not complete (/proc refuses).
    Incomplete,
    /// `scan`: it cannot be begun.
    Scan(Errno),
    /// `watch`: no descriptor (EMFILE), or no pidfd_open (ENOSYS, EPERM).
    Watch(Errno),
}

/// The calls of the contract in which something can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the calls are described by the contract")]
pub enum Call {
    Spawn,
    Outcome,
    Wait,
    Read,
    Write,
    Collect,
    Signal,
    SignalOutside,
    SignalLeader,
    Probe,
    Scan,
    Watch,
}

impl Call {
    /// All of them.
    pub const ALL: [Call; 12] = [
        Call::Spawn,
        Call::Outcome,
        Call::Wait,
        Call::Read,
        Call::Write,
        Call::Collect,
        Call::Signal,
        Call::SignalOutside,
        Call::SignalLeader,
        Call::Probe,
        Call::Scan,
        Call::Watch,
    ];

    /// The word for this call in scripts and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Call::Spawn => "spawn",
            Call::Outcome => "outcome",
            Call::Wait => "wait",
            Call::Read => "read",
            Call::Write => "write",
            Call::Collect => "collect",
            Call::Signal => "signal",
            Call::SignalOutside => "signal-outside",
            Call::SignalLeader => "signal-leader",
            Call::Probe => "probe",
            Call::Scan => "scan",
            Call::Watch => "watch",
        }
    }
}

impl Fault {
    /// The call that it goes wrong in, if no other is named.
    pub const fn call(self) -> Call {
        match self {
            Fault::Spawn(..) | Fault::SlowExec(_) => Call::Spawn,
            Fault::OutcomeLater => Call::Outcome,
            Fault::Interrupted
            | Fault::Wait(_)
            | Fault::Late(_)
            | Fault::Merged(_)
            | Fault::Stalled(_) => Call::Wait,
            Fault::SpuriousExit
            | Fault::SpuriousReadable(_)
            | Fault::SpuriousWritable
            | Fault::SpuriousMember => Call::Wait,
            Fault::SpuriousCgroup | Fault::SpuriousOutcome | Fault::SpuriousWake => Call::Wait,
            Fault::Read(..) | Fault::ReadLater(_) | Fault::ShortRead(_) => Call::Read,
            Fault::Write(_) | Fault::WriteLater | Fault::NoReader | Fault::ShortWrite(_) => {
                Call::Write
            }
            Fault::NotYet(_) | Fault::Stolen => Call::Collect,
            Fault::Denied | Fault::NoWay | Fault::Gone => Call::Signal,
            Fault::Refused(_) => Call::Probe,
            Fault::Incomplete | Fault::Scan(_) => Call::Scan,
            Fault::Watch(_) => Call::Watch,
        }
    }

    /// It is about this stream, or about any.
    pub(super) fn is_about(self, stream: Stream) -> bool {
        match self {
            Fault::Read(of, _) | Fault::ReadLater(of) => of == stream,
            _ => true,
        }
    }
}

/// A kind of fault, for counting: the call, the step of a spawn, and what goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kind {
    /// In which call.
    pub call: Call,
    /// At which step, for a spawn.
    pub step: Option<&'static str>,
    /// An errno, or a word.
    pub what: &'static str,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.call.name())?;
        self.step.map_or(Ok(()), |step| write!(f, " {step}"))?;
        write!(f, " {}", self.what)
    }
}

/// A fault that a process has asked for by its script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) family: u64,
    pub(super) call: Call,
    pub(super) fault: Fault,
}

/// A fault that waits for its call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planned {
    pub(super) call: Call,
    pub(super) fault: Fault,
    /// For this generation's slot only.
    pub(super) only: Option<Slot>,
    /// So many calls more; `None` for every one.
    pub(super) times: Option<u32>,
}

/// All that wait, and how many were met.
#[derive(Default)]
pub(super) struct Faults {
    list: Vec<Planned>,
    met: BTreeMap<Kind, u64>,
}

/// Those that wait, as text.
impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(
                self.list
                    .iter()
                    .map(|p| (faults::text(p.call, p.fault), p.only, p.times)),
            )
            .finish()
    }
}

impl Faults {
    pub(super) fn add(&mut self, planned: Planned) {
        if planned.times != Some(0) {
            self.list.push(planned);
        }
    }

    pub(super) fn clear(&mut self) {
        self.list.clear();
    }

    pub(super) fn count(&mut self, kind: Kind) {
        *self.met.entry(kind).or_default() += 1;
    }

    pub(super) fn met(&self) -> &BTreeMap<Kind, u64> {
        &self.met
    }

    /// The first that fits this call; it is used up by one.
    pub(super) fn take(
        &mut self,
        call: Call,
        slot: Option<Slot>,
        fits: impl Fn(&Planned) -> bool,
    ) -> Option<(Fault, Option<Slot>)> {
        let meets = |p: &Planned| {
            p.call == call && (p.only.is_none() || slot.is_none() || p.only == slot) && fits(p)
        };
        let place = self.list.iter().position(meets)?;
        let planned = self.list.get_mut(place)?;
        let taken = (planned.fault, planned.only);
        match &mut planned.times {
            None => {}
            Some(times) => {
                *times -= 1;
                if *times == 0 {
                    self.list.remove(place);
                }
            }
        }
        Some(taken)
    }
}

impl Sim {
    /// The fault that this call meets, if one waits for it.
    pub(super) fn take_fault(
        &mut self,
        call: Call,
        of: Option<Token>,
        fits: impl Fn(&Planned) -> bool,
    ) -> Option<(Fault, Option<Slot>)> {
        for ask in std::mem::take(&mut self.world.asked) {
            let slot = self
                .table
                .iter()
                .find(|(_, e)| e.leader.birth == ask.family)
                .map(|(slot, _)| Slot(slot));
            // A spawn is another command's.
            let only = if matches!(ask.call, Call::Spawn | Call::Wait) && !is_aimed(ask.fault) {
                None
            } else {
                slot
            };
            self.faults.add(Planned {
                call: ask.call,
                fault: ask.fault,
                only,
                times: Some(1),
            });
        }
        let taken = self.faults.take(call, of.map(Token::slot), fits)?;
        self.faults.count(faults::kind(call, taken.0));
        self.world.note(Happened::Faulted(call, taken.0));
        Some(taken)
    }

    /// Something went wrong by the seed.
    pub(super) fn by_chance(&mut self, call: Call, fault: Fault) {
        self.faults.count(faults::kind(call, fault));
        self.world.note(Happened::Faulted(call, fault));
    }

    /// EINTR, where the kernel object tries again: the time of another call.
    pub(super) fn interrupted(&mut self, call: Call, of: Option<Token>) {
        if self
            .take_fault(call, of, |p| p.fault == Fault::Interrupted)
            .is_some()
        {
            self.tick();
        }
    }

    /// Whoever of these can end, does.
    pub(super) fn end_before(&mut self, pids: &[u32]) {
        use super::process::Condition;
        use crate::types::{Exit, StatusSource};
        for pid in pids {
            if self
                .world
                .process(*pid)
                .is_some_and(|p| p.pid != HOST && p.condition != Condition::Stuck)
            {
                self.world
                    .end(*pid, Exit::with_code(0, StatusSource::Waitid));
            }
        }
    }
}

/// A notice for nothing that is of one generation.
fn is_aimed(fault: Fault) -> bool {
    matches!(
        fault,
        Fault::SpuriousExit
            | Fault::SpuriousReadable(_)
            | Fault::SpuriousWritable
            | Fault::SpuriousMember
            | Fault::SpuriousCgroup
            | Fault::SpuriousOutcome
    )
}

/// What goes wrong by the seed, each in so many of a thousand cases. The default is: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultRates {
    /// `wait`: a notice for nothing.
    pub spurious: u16,
    /// A notice comes late, by up to [`FaultRates::lateness`] after the change it is about.
    pub late: u16,
    /// How late at most.
    pub lateness: Ns,
    /// `read`: fewer bytes than are there.
    pub short_reads: u16,
    /// How often `wait` is interrupted (EINTR), of a thousand.
    pub interrupted: u16,
    /// `collect`: nothing to say though it has ended; it is announced again.
    pub not_yet: u16,
    /// How often `watch` finds no descriptor (EMFILE), of a thousand.
    pub no_watch: u16,
    /// `scan`: not complete.
    pub incomplete: u16,
    /// Notices of one rank come in another order.
    pub shuffled: u16,
}

impl FaultRates {
    /// Everything that may go wrong without anybody being to blame, often.
    pub const fn storm() -> FaultRates {
        FaultRates {
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
        let any = |_: &Planned| true;
        faults.add(Planned {
            call: Call::Read,
            fault: Fault::ShortRead(1),
            only: Some(Slot(3)),
            times: Some(2),
        });
        faults.add(Planned {
            call: Call::Signal,
            fault: Fault::NoWay,
            only: None,
            times: None,
        });
        assert_eq!(faults.take(Call::Read, Some(Slot(2)), any), None);
        assert_eq!(faults.take(Call::Wait, None, any), None);
        for _ in 0..2 {
            assert!(faults.take(Call::Read, Some(Slot(3)), any).is_some());
        }
        assert_eq!(faults.take(Call::Read, Some(Slot(3)), any), None);
        for _ in 0..3 {
            assert!(faults.take(Call::Signal, Some(Slot(1)), any).is_some());
        }
    }
}
