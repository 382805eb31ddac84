//! What the ring watches, by descriptor; and what a poll of it is called.

use crate::kernel::linux::poll::{Interest, Key, Ready};
use io_uring::{cqueue, opcode, squeue, types};
use std::os::fd::RawFd;
use std::thread::ThreadId;

/// How a watch stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// No poll: whoever was told has not said that a notice is owed again.
    Idle,
    /// A poll is with the kernel, or on its way there.
    Armed,
    /// Its answer waits to be taken, and was seen there: the kernel has nothing of it any more.
    Fired,
}

/// What a poll tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    /// That it is ready, once.
    State,
    /// Every change.
    Changes,
}

/// One descriptor. Its poll holds no memory, only the open file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    key: u64,
    /// The thread that has armed it: in its context the kernel notes the answer, and lets the file
    /// go.
    thread: Option<ThreadId>,
    /// Which poll of this descriptor is meant.
    serial: u32,
    interest: Interest,
    pub(crate) state: State,
}

impl Watch {
    pub(crate) fn new(key: Key, interest: Interest) -> Watch {
        Watch {
            key: key.bits(),
            thread: None,
            serial: 0,
            interest,
            state: State::Idle,
        }
    }

    /// The poll that arms it. One for changes tells how things stand, and then of every change
    /// until it is removed.
    pub(crate) fn arm(
        &mut self,
        fd: RawFd,
        serial: u32,
        thread: ThreadId,
        of: Of,
    ) -> squeue::Entry {
        (self.state, self.serial, self.thread) = (State::Armed, serial, Some(thread));
        let events = match self.interest {
            Interest::Read => libc::POLLIN,
            Interest::Write => libc::POLLOUT,
            Interest::Urgent => libc::POLLPRI,
        };
        let poll = opcode::PollAdd::new(types::Fd(fd), u32::from(events.unsigned_abs()))
            .multi(of == Of::Changes);
        poll.build().user_data(Name::Poll { fd, serial }.bits())
    }

    /// What its poll is called.
    pub(crate) fn name(&self, fd: RawFd) -> Name {
        Name::Poll {
            fd,
            serial: self.serial,
        }
    }

    /// Armed by a thread that is not this one.
    pub(crate) fn is_foreign(&self, thread: ThreadId) -> bool {
        self.thread.is_some_and(|armed_by| armed_by != thread)
    }
}

/// What an answer is about: `user_data`, both ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// A poll. Late ones carry a serial that is not the watch's any more.
    Poll { fd: RawFd, serial: u32 },
    /// A read: which call, and which of its batch.
    Read { call: u32, place: u32 },
    /// Nobody waits for it.
    Nobody,
}

/// Numbers of polls and of calls have 31 bits.
pub(crate) const NUMBERS: u32 = 0x7fff_ffff;
const READ: u64 = 1 << 63;

impl Name {
    pub(crate) fn bits(self) -> u64 {
        match self {
            Name::Poll { fd, serial } => {
                u64::from(serial & NUMBERS) << 32 | u64::from(fd.unsigned_abs())
            }
            Name::Read { call, place } => READ | u64::from(call & NUMBERS) << 32 | u64::from(place),
            Name::Nobody => u64::MAX,
        }
    }

    pub(crate) fn from_bits(bits: u64) -> Name {
        let number = (bits >> 32) as u32 & NUMBERS;
        let low = bits as u32;
        match (bits, bits & READ, RawFd::try_from(low)) {
            (u64::MAX, ..) => Name::Nobody,
            (_, 0, Ok(fd)) => Name::Poll { fd, serial: number },
            (_, 0, Err(_)) => Name::Nobody,
            _ => Name::Read {
                call: number,
                place: low,
            },
        }
    }
}

/// An answer of the kernel's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub name: Name,
    /// As system calls have it: negative is an errno.
    pub result: i32,
    /// More will come of the same request.
    pub more: bool,
}

impl Answer {
    pub(crate) fn new(entry: &cqueue::Entry) -> Answer {
        Answer {
            name: Name::from_bits(entry.user_data()),
            result: entry.result(),
            more: cqueue::more(entry.flags()),
        }
    }
}

/// What an answer to a poll means.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Told {
    /// Something is ready.
    Ready(Ready),
    /// The poll was lost (the thread that armed it has ended): it is to be armed again.
    Lost(RawFd),
    /// It is of a watch that is gone, or of an older poll; or no answer to a poll.
    Stale,
}

const PAGE: usize = 64;
type Page = [Option<Watch>; PAGE];

/// All watches: a table in pages, since descriptors are small numbers, but need not begin small.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    pages: Vec<Option<Box<Page>>>,
    count: usize,
}

impl Watches {
    pub(crate) fn get_mut(&mut self, fd: RawFd) -> Option<&mut Watch> {
        let at = usize::try_from(fd).ok()?;
        self.pages
            .get_mut(at / PAGE)?
            .as_mut()?
            .get_mut(at % PAGE)?
            .as_mut()
    }

    /// Puts one in; how many there are then.
    pub(crate) fn put(&mut self, fd: RawFd, watch: Watch) -> usize {
        let at = usize::try_from(fd).unwrap_or(0);
        if self.pages.len() <= at / PAGE {
            self.pages.resize_with(at / PAGE + 1, || None);
        }
        if let Some(page) = self.pages.get_mut(at / PAGE)
            && let Some(place) = page
                .get_or_insert_with(|| Box::new([None; PAGE]))
                .get_mut(at % PAGE)
        {
            self.count += usize::from(place.replace(watch).is_none());
        }
        self.count
    }

    pub(crate) fn take(&mut self, fd: RawFd) -> Option<Watch> {
        let at = usize::try_from(fd).ok()?;
        let watch = self
            .pages
            .get_mut(at / PAGE)?
            .as_mut()?
            .get_mut(at % PAGE)?
            .take();
        self.count -= usize::from(watch.is_some());
        watch
    }

    pub(crate) fn for_each(&self, mut each: impl FnMut(RawFd, &Watch)) {
        let pages = self
            .pages
            .iter()
            .enumerate()
            .filter_map(|(n, page)| Some((n * PAGE, page.as_ref()?)));
        for (at, watch) in pages.flat_map(|(first, page)| (first..).zip(page.iter())) {
            if let (Some(watch), Ok(fd)) = (watch, RawFd::try_from(at)) {
                each(fd, watch);
            }
        }
    }

    /// The watch whose poll this is an answer to.
    fn asked(&mut self, name: Name) -> Option<&mut Watch> {
        let Name::Poll { fd, serial } = name else {
            return None;
        };
        self.get_mut(fd)
            .filter(|watch| watch.serial == serial && watch.state != State::Idle)
    }

    /// An answer was seen that is to be taken later. False if nobody will want it.
    pub(crate) fn note(&mut self, answer: Answer) -> bool {
        let watch = self.asked(answer.name);
        match watch {
            Some(watch) if !answer.more => watch.state = State::Fired,
            Some(_) => {}
            None => return false,
        }
        true
    }

    /// Takes an answer.
    pub(crate) fn take_answer(&mut self, answer: Answer) -> Told {
        let (Some(watch), Name::Poll { fd, .. }) = (self.asked(answer.name), answer.name) else {
            return Told::Stale;
        };
        if !answer.more {
            watch.state = State::Idle;
        }
        if answer.result == -libc::ECANCELED {
            return Told::Lost(fd);
        }
        // An error is told like a hang-up: who looks will see.
        let gone = i32::from(libc::POLLHUP | libc::POLLERR);
        let hung_up = answer.result < 0 || answer.result & gone != 0;
        Key::from_bits(watch.key).map_or(Told::Stale, |key| Told::Ready(Ready { key, hung_up }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn me() -> ThreadId {
        std::thread::current().id()
    }

    #[test]
    fn names_go_both_ways_and_never_meet() {
        for name in [
            Name::Poll { fd: 0, serial: 1 },
            Name::Poll {
                fd: RawFd::MAX,
                serial: NUMBERS,
            },
            Name::Read { call: 0, place: 0 },
            Name::Read {
                call: NUMBERS,
                place: 7,
            },
            Name::Nobody,
        ] {
            assert_eq!(Name::from_bits(name.bits()), name);
        }
    }

    #[test]
    fn descriptors_far_apart_are_kept_apart() {
        let mut watches = Watches::default();
        for (n, fd) in [3, 66, 100_000].into_iter().enumerate() {
            assert!(watches.get_mut(fd).is_none());
            let key = Key::Linger(u32::try_from(n).expect("small"));
            assert_eq!(watches.put(fd, Watch::new(key, Interest::Read)), n + 1);
        }
        assert_eq!(
            watches.put(66, Watch::new(Key::Alarm, Interest::Read)),
            3,
            "one watch for each descriptor"
        );
        assert!(
            watches.take(66).is_some() && watches.take(66).is_none() && watches.take(-1).is_none()
        );
        assert!(watches.get_mut(3).is_some() && watches.get_mut(100_000).is_some());
    }

    #[test]
    fn late_answers_are_told_from_those_that_are_waited_for() {
        let mut watches = Watches::default();
        watches.put(5, Watch::new(Key::Linger(1), Interest::Read));
        let arm = |watches: &mut Watches, serial| {
            watches
                .get_mut(5)
                .expect("watched")
                .arm(5, serial, me(), Of::State);
        };
        let answer = |serial, result| Answer {
            name: Name::Poll { fd: 5, serial },
            result,
            more: false,
        };
        arm(&mut watches, 1);
        let hang_up = i32::from(libc::POLLHUP);
        assert!(matches!(
            watches.take_answer(answer(1, hang_up)),
            Told::Ready(Ready {
                key: Key::Linger(1),
                hung_up: true
            })
        ));
        assert!(
            matches!(watches.take_answer(answer(1, hang_up)), Told::Stale),
            "taken once"
        );
        arm(&mut watches, 2);
        assert!(
            matches!(
                watches.take_answer(answer(1, -libc::ECANCELED)),
                Told::Stale
            ),
            "removed by us"
        );
        assert!(
            matches!(
                watches.take_answer(answer(2, -libc::ECANCELED)),
                Told::Lost(5)
            ),
            "and this one not"
        );
        arm(&mut watches, 3);
        assert!(matches!(
            watches.take_answer(answer(3, i32::from(libc::POLLIN))),
            Told::Ready(Ready { hung_up: false, .. })
        ));
        arm(&mut watches, 4);
        assert!(matches!(
            watches.take_answer(answer(4, -libc::ENOMEM)),
            Told::Ready(Ready { hung_up: true, .. })
        ));
        arm(&mut watches, 5);
        let more = Answer {
            more: true,
            ..answer(5, 1)
        };
        assert!(watches.note(more) && matches!(watches.take_answer(more), Told::Ready(_)));
        assert!(
            watches
                .get_mut(5)
                .is_some_and(|watch| watch.state == State::Armed),
            "it goes on"
        );
        assert!(watches.note(answer(5, 1)) && !watches.note(answer(4, 1)));
        assert!(
            watches
                .get_mut(5)
                .is_some_and(|watch| watch.state == State::Fired)
        );
        watches.take(5);
        assert!(matches!(watches.take_answer(answer(5, 1)), Told::Stale) && !watches.note(more));
    }
}
