//! The descriptors that the ring watches, and the names of requests.

use crate::kernel::linux::poll::event::{Interest, Key, Ready};
use io_uring::{cqueue, opcode, squeue, types};
use std::os::fd::RawFd;
use std::thread::ThreadId;

/// The state of a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// No poll is under way; the last event has not been dealt with yet.
    Idle,
    /// A poll is queued or with the kernel.
    Armed,
    /// The completion of its poll has been seen and waits to be taken. The kernel holds nothing of
    /// it any more.
    Fired,
}

/// What a poll reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PollMode {
    /// The ring tells readiness once and must be asked again.
    OneShot,
    /// The present state, and then every change until it is removed.
    Multishot,
}

/// A watched descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registration {
    key: u64,
    /// The thread that armed the poll. In its context the kernel posts the completion and releases
    /// the file.
    thread: Option<ThreadId>,
    /// Tells the present poll of this descriptor from earlier ones.
    serial: u32,
    interest: Interest,
    pub(crate) state: State,
}

impl Registration {
    pub(crate) fn new(key: Key, interest: Interest) -> Registration {
        Registration {
            key: key.bits(),
            thread: None,
            serial: 0,
            interest,
            state: State::Idle,
        }
    }

    /// The request that arms the poll.
    pub(crate) fn arm(
        &mut self,
        fd: RawFd,
        serial: u32,
        thread: ThreadId,
        mode: PollMode,
    ) -> squeue::Entry {
        (self.state, self.serial, self.thread) = (State::Armed, serial, Some(thread));
        let events = match self.interest {
            Interest::Read => libc::POLLIN,
            Interest::Write => libc::POLLOUT,
            Interest::Urgent => libc::POLLPRI,
        };
        let poll = opcode::PollAdd::new(types::Fd(fd), u32::from(events.unsigned_abs()))
            .multi(mode == PollMode::Multishot);
        poll.build().user_data(UserData::Poll { fd, serial }.bits())
    }

    /// The name of its poll.
    pub(crate) fn name(&self, fd: RawFd) -> UserData {
        UserData::Poll {
            fd,
            serial: self.serial,
        }
    }

    /// Whether another thread has armed the poll.
    pub(crate) fn is_foreign(&self, thread: ThreadId) -> bool {
        self.thread.is_some_and(|armed_by| armed_by != thread)
    }
}

/// The name of a request, carried as `user_data`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UserData {
    /// A poll. The serial of a late completion differs from the registration's.
    Poll { fd: RawFd, serial: u32 },
    /// A read, by the number of the call and its place in the batch.
    Read { call: u32, place: u32 },
    /// A request whose completion is ignored.
    Ignored,
}

/// Serials and call numbers have 31 bits.
pub(crate) const SERIAL_MASK: u32 = 0x7fff_ffff;
const READ: u64 = 1 << 63;

impl UserData {
    pub(crate) fn bits(self) -> u64 {
        match self {
            UserData::Poll { fd, serial } => {
                u64::from(serial & SERIAL_MASK) << 32 | u64::from(fd.unsigned_abs())
            }
            UserData::Read { call, place } => {
                READ | u64::from(call & SERIAL_MASK) << 32 | u64::from(place)
            }
            UserData::Ignored => u64::MAX,
        }
    }

    pub(crate) fn from_bits(bits: u64) -> UserData {
        let number = (bits >> 32) as u32 & SERIAL_MASK;
        let low = bits as u32;
        match (bits, bits & READ, RawFd::try_from(low)) {
            (u64::MAX, ..) => UserData::Ignored,
            (_, 0, Ok(fd)) => UserData::Poll { fd, serial: number },
            (_, 0, Err(_)) => UserData::Ignored,
            _ => UserData::Read {
                call: number,
                place: low,
            },
        }
    }
}

/// A completion queue entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    pub user_data: UserData,
    /// The result of the operation; negative for an errno.
    pub result: i32,
    /// IORING_CQE_F_MORE: the same request will complete again.
    pub more: bool,
}

impl Completion {
    pub(crate) fn new(entry: &cqueue::Entry) -> Completion {
        Completion {
            user_data: UserData::from_bits(entry.user_data()),
            result: entry.result(),
            more: cqueue::more(entry.flags()),
        }
    }
}

/// What the completion of a poll means.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PollResult {
    /// The descriptor is ready.
    Ready(Ready),
    /// The poll was cancelled because the thread that armed it has ended. It must be armed again.
    Lost(RawFd),
    /// It belongs to a removed registration or an earlier poll, or is not of a poll.
    Stale,
}

const PAGE: usize = 64;
type Page = [Option<Registration>; PAGE];

/// All registrations, by descriptor. Paged, because descriptors may be large numbers.
#[derive(Debug, Default)]
pub(crate) struct Registrations {
    pages: Vec<Option<Box<Page>>>,
    count: usize,
}

impl Registrations {
    pub(crate) fn get_mut(&mut self, fd: RawFd) -> Option<&mut Registration> {
        let at = usize::try_from(fd).ok()?;
        self.pages
            .get_mut(at / PAGE)?
            .as_mut()?
            .get_mut(at % PAGE)?
            .as_mut()
    }

    /// Inserts a registration, and returns how many there are then.
    pub(crate) fn put(&mut self, fd: RawFd, registration: Registration) -> usize {
        let at = usize::try_from(fd).unwrap_or(0);
        if self.pages.len() <= at / PAGE {
            self.pages.resize_with(at / PAGE + 1, || None);
        }
        if let Some(page) = self.pages.get_mut(at / PAGE)
            && let Some(place) = page
                .get_or_insert_with(|| Box::new([None; PAGE]))
                .get_mut(at % PAGE)
        {
            self.count += usize::from(place.replace(registration).is_none());
        }
        self.count
    }

    pub(crate) fn take(&mut self, fd: RawFd) -> Option<Registration> {
        let at = usize::try_from(fd).ok()?;
        let registration = self
            .pages
            .get_mut(at / PAGE)?
            .as_mut()?
            .get_mut(at % PAGE)?
            .take();
        self.count -= usize::from(registration.is_some());
        registration
    }

    pub(crate) fn for_each(&self, mut each: impl FnMut(RawFd, &Registration)) {
        let pages = self
            .pages
            .iter()
            .enumerate()
            .filter_map(|(n, page)| Some((n * PAGE, page.as_ref()?)));
        for (at, registration) in pages.flat_map(|(first, page)| (first..).zip(page.iter())) {
            if let (Some(registration), Ok(fd)) = (registration, RawFd::try_from(at)) {
                each(fd, registration);
            }
        }
    }

    /// The registration that waits for a completion of this name.
    fn find(&mut self, name: UserData) -> Option<&mut Registration> {
        let UserData::Poll { fd, serial } = name else {
            return None;
        };
        self.get_mut(fd).filter(|registration| {
            registration.serial == serial && registration.state != State::Idle
        })
    }

    /// Notes that a completion was seen and will be taken later. False if it is stale.
    pub(crate) fn note(&mut self, completion: Completion) -> bool {
        let registration = self.find(completion.user_data);
        match registration {
            Some(registration) if !completion.more => registration.state = State::Fired,
            Some(_) => {}
            None => return false,
        }
        true
    }

    /// Interprets a completion and updates its registration.
    pub(crate) fn take_completion(&mut self, completion: Completion) -> PollResult {
        let (Some(registration), UserData::Poll { fd, .. }) =
            (self.find(completion.user_data), completion.user_data)
        else {
            return PollResult::Stale;
        };
        if !completion.more {
            registration.state = State::Idle;
        }
        if completion.result == -libc::ECANCELED {
            return PollResult::Lost(fd);
        }
        // An error is reported as a hang-up; the next read or write tells which error it is.
        let gone = i32::from(libc::POLLHUP | libc::POLLERR);
        let hung_up = completion.result < 0 || completion.result & gone != 0;
        Key::from_bits(registration.key).map_or(PollResult::Stale, |key| {
            PollResult::Ready(Ready { key, hung_up })
        })
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
            UserData::Poll { fd: 0, serial: 1 },
            UserData::Poll {
                fd: RawFd::MAX,
                serial: SERIAL_MASK,
            },
            UserData::Read { call: 0, place: 0 },
            UserData::Read {
                call: SERIAL_MASK,
                place: 7,
            },
            UserData::Ignored,
        ] {
            assert_eq!(UserData::from_bits(name.bits()), name);
        }
    }

    #[test]
    fn descriptors_far_apart_are_kept_apart() {
        let mut registrations = Registrations::default();
        for (n, fd) in [3, 66, 100_000].into_iter().enumerate() {
            assert!(registrations.get_mut(fd).is_none());
            let key = Key::Linger(u32::try_from(n).expect("small"));
            assert_eq!(
                registrations.put(fd, Registration::new(key, Interest::Read)),
                n + 1
            );
        }
        assert_eq!(
            registrations.put(66, Registration::new(Key::Alarm, Interest::Read)),
            3,
            "one registration for each descriptor"
        );
        assert!(
            registrations.take(66).is_some()
                && registrations.take(66).is_none()
                && registrations.take(-1).is_none()
        );
        assert!(registrations.get_mut(3).is_some() && registrations.get_mut(100_000).is_some());
    }

    #[test]
    fn late_answers_are_told_from_those_that_are_waited_for() {
        let mut registrations = Registrations::default();
        registrations.put(5, Registration::new(Key::Linger(1), Interest::Read));
        let arm = |registrations: &mut Registrations, serial| {
            registrations
                .get_mut(5)
                .expect("watched")
                .arm(5, serial, me(), PollMode::OneShot);
        };
        let completion = |serial, result| Completion {
            user_data: UserData::Poll { fd: 5, serial },
            result,
            more: false,
        };
        arm(&mut registrations, 1);
        let hang_up = i32::from(libc::POLLHUP);
        assert!(matches!(
            registrations.take_completion(completion(1, hang_up)),
            PollResult::Ready(Ready {
                key: Key::Linger(1),
                hung_up: true
            })
        ));
        assert!(
            matches!(
                registrations.take_completion(completion(1, hang_up)),
                PollResult::Stale
            ),
            "taken once"
        );
        arm(&mut registrations, 2);
        assert!(
            matches!(
                registrations.take_completion(completion(1, -libc::ECANCELED)),
                PollResult::Stale
            ),
            "removed by us"
        );
        assert!(
            matches!(
                registrations.take_completion(completion(2, -libc::ECANCELED)),
                PollResult::Lost(5)
            ),
            "and this one not"
        );
        arm(&mut registrations, 3);
        assert!(matches!(
            registrations.take_completion(completion(3, i32::from(libc::POLLIN))),
            PollResult::Ready(Ready { hung_up: false, .. })
        ));
        arm(&mut registrations, 4);
        assert!(matches!(
            registrations.take_completion(completion(4, -libc::ENOMEM)),
            PollResult::Ready(Ready { hung_up: true, .. })
        ));
        arm(&mut registrations, 5);
        let more = Completion {
            more: true,
            ..completion(5, 1)
        };
        assert!(
            registrations.note(more)
                && matches!(registrations.take_completion(more), PollResult::Ready(_))
        );
        assert!(
            registrations
                .get_mut(5)
                .is_some_and(|registration| registration.state == State::Armed),
            "it goes on"
        );
        assert!(registrations.note(completion(5, 1)) && !registrations.note(completion(4, 1)));
        assert!(
            registrations
                .get_mut(5)
                .is_some_and(|registration| registration.state == State::Fired)
        );
        registrations.take(5);
        assert!(
            matches!(
                registrations.take_completion(completion(5, 1)),
                PollResult::Stale
            ) && !registrations.note(more)
        );
    }
}
