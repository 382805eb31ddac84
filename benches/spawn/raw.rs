//! The spawn one would write by hand for exactly this task, with the steps that lastwords takes:
//! clone3 in shared memory without waiting for exec, on a recycled stack, all signals blocked
//! around it; a group of its own, every other descriptor closed at exec, the ends in place; both
//! pipes and the pidfd in one epoll. It spares itself what is asked of /proc (a tracer, the size of
//! the descriptor table, ignored signals): it knows.

#![expect(
    unsafe_code,
    reason = "a clone in shared memory, and a child that may use system calls only"
)]

use crate::common::Fail;
use crate::peers::{Line, Starter};
use crate::syscall::{call, clone3};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::process::{Pid, WaitId, WaitIdOptions, setpgid, waitid};
use std::cell::UnsafeCell;
use std::ffi::{CString, c_char, c_int, c_long};
use std::os::unix::ffi::OsStrExt;
use std::ptr::from_ref;
use std::sync::atomic::{AtomicU32, Ordering};

const STACK: usize = 32 << 10;
/// Children in flight that get low numbers in a host with many descriptors.
const LANES: usize = 8;
/// So many open descriptors are many.
const MANY: RawFd = 1000;
/// Not in `libc` for every C library.
const CLEAR_SIGHAND: u64 = 1 << 32;

/// What a child runs on, and the word that the kernel zeroes when it has left.
#[repr(C, align(4096))]
struct Ground {
    stack: UnsafeCell<[u8; STACK]>,
    tid: AtomicU32,
    job: Job,
}

/// What a child does. Its pointers lead into `Strings`, which outlive it.
#[derive(Clone, Copy)]
struct Job {
    path: *const c_char,
    args: *const *const c_char,
    env: *const *const c_char,
    ends: [RawFd; 3],
    /// Numbers from here on are not copied, if it is not negative.
    above: RawFd,
}

struct Strings {
    _kept: Vec<CString>,
    list: Vec<*const c_char>,
}

impl Strings {
    fn new(texts: impl Iterator<Item = Vec<u8>>) -> Result<Strings, Fail> {
        let kept = texts.map(CString::new).collect::<Result<Vec<_>, _>>()?;
        let list = kept
            .iter()
            .map(|text| text.as_ptr())
            .chain([std::ptr::null()])
            .collect();
        Ok(Strings { _kept: kept, list })
    }
}

struct Child {
    ground: Box<Ground>,
    lane: Option<[OwnedFd; 2]>,
    pidfd: Option<OwnedFd>,
    pipes: [Option<OwnedFd>; 2],
}

/// The loop that was written by hand.
pub(crate) struct Raw {
    epoll: OwnedFd,
    null: OwnedFd,
    args: Strings,
    env: Strings,
    grounds: Vec<Box<Ground>>,
    lanes: Vec<[OwnedFd; 2]>,
    above: RawFd,
    table: Vec<Option<Child>>,
    events: Vec<Event>,
    scratch: Vec<u8>,
}

impl Raw {
    /// With low numbers set aside, as lastwords does while a host is small.
    pub(crate) fn new(line: &Line) -> Result<Raw, Fail> {
        let null: OwnedFd = std::fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/null")?
            .into();
        let lane = || {
            Ok::<_, Errno>([
                rustix::io::fcntl_dupfd_cloexec(&null, 3)?,
                rustix::io::fcntl_dupfd_cloexec(&null, 3)?,
            ])
        };
        let lanes = (0..LANES).map(|_| lane()).collect::<Result<Vec<_>, _>>()?;
        let above = lanes
            .iter()
            .flatten()
            .map(|fd| fd.as_raw_fd() + 1)
            .max()
            .unwrap_or(0);
        let variable = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            [name.as_bytes(), b"=", value.as_bytes()].concat()
        };
        Ok(Raw {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            null,
            args: Strings::new(line.iter().map(|text| text.as_bytes().to_vec()))?,
            env: Strings::new(std::env::vars_os().map(variable))?,
            grounds: Vec::new(),
            lanes,
            above,
            table: Vec::new(),
            events: Vec::with_capacity(64),
            scratch: vec![0; 64 << 10],
        })
    }

    fn ground(&mut self, job: Job) -> Box<Ground> {
        let new = || {
            Box::new(Ground {
                stack: UnsafeCell::new([0; STACK]),
                tid: AtomicU32::new(0),
                job,
            })
        };
        let mut ground = self.grounds.pop().unwrap_or_else(new);
        ground.job = job;
        ground.tid.store(1, Ordering::Release);
        ground
    }

    fn close_if_over(&mut self, slot: usize) -> usize {
        let over = |child: &Child| child.pidfd.is_none() && child.pipes.iter().all(Option::is_none);
        let Some(child) = self.table[slot].take_if(|child| over(child)) else {
            return 0;
        };
        // It has ended, so the kernel has zeroed its word.
        assert_eq!(child.ground.tid.load(Ordering::Acquire), 0);
        self.grounds.push(child.ground);
        self.lanes.extend(child.lane);
        1
    }

    fn take(&mut self, word: u64) -> Result<usize, Fail> {
        let slot = usize::try_from(word >> 2)?;
        let Some(child) = self.table[slot].as_mut() else {
            return Ok(0);
        };
        if word & 3 == 2 {
            let Some(pidfd) = &child.pidfd else {
                return Ok(0);
            };
            if waitid(
                WaitId::PidFd(pidfd.as_fd()),
                WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
            )?
            .is_none()
            {
                return Ok(0);
            }
            epoll::delete(&self.epoll, pidfd)?;
            child.pidfd = None;
            for number in child.lane.iter().flatten() {
                put(&self.null, number)?;
            }
            return Ok(self.close_if_over(slot));
        }
        let pipe = &mut child.pipes[usize::try_from(word & 1)?];
        let Some(fd) = pipe else { return Ok(0) };
        match rustix::io::read(&*fd, &mut *self.scratch) {
            Ok(0) => {
                // First taken out of the set: a child before its exec holds a copy.
                epoll::delete(&self.epoll, &*fd)?;
                *pipe = None;
                Ok(self.close_if_over(slot))
            }
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }
}

impl Starter for Raw {
    fn start(&mut self) -> Result<(), Fail> {
        let slot = self
            .table
            .iter()
            .position(Option::is_none)
            .unwrap_or(self.table.len());
        let word = (slot as u64) << 2;
        let make = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
        let ((out, out_end), (err, err_end)) = (make()?, make()?);
        for (place, pipe) in (0..).zip([&out, &err]) {
            ioctl_fionbio(pipe, true)?;
            epoll::add(
                &self.epoll,
                pipe,
                EventData::new_u64(word | place),
                EventFlags::IN,
            )?;
        }
        let lane = if out.as_raw_fd() > MANY {
            self.lanes.pop()
        } else {
            None
        };
        if let Some([a, b]) = &lane {
            put(&out_end, a)?;
            put(&err_end, b)?;
        }
        let [a, b] = lane
            .as_ref()
            .map_or([out_end.as_raw_fd(), err_end.as_raw_fd()], |[a, b]| {
                [a.as_raw_fd(), b.as_raw_fd()]
            });
        let job = Job {
            path: self.args.list[0],
            args: self.args.list.as_ptr(),
            env: self.env.list.as_ptr(),
            ends: [self.null.as_raw_fd(), a, b],
            above: if lane.is_some() { self.above } else { -1 },
        };
        let ground = self.ground(job);
        let (pid, pidfd) = born(&ground)?;
        drop((out_end, err_end));
        // The child does the same; who comes second gets an error that means nothing.
        let _ = setpgid(Some(pid), Some(pid));
        epoll::add(
            &self.epoll,
            &pidfd,
            EventData::new_u64(word | 2),
            EventFlags::IN,
        )?;
        let child = Child {
            ground,
            lane,
            pidfd: Some(pidfd),
            pipes: [Some(out), Some(err)],
        };
        match self.table.get_mut(slot) {
            Some(place) => *place = Some(child),
            None => self.table.push(Some(child)),
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<usize, Fail> {
        let mut closed = 0;
        while closed == 0 {
            let mut events = std::mem::take(&mut self.events);
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                closed += self.take(event.data.u64())?;
            }
            self.events = events;
        }
        Ok(closed)
    }
}

fn put(from: &OwnedFd, to: &OwnedFd) -> Result<(), Fail> {
    sys(
        libc::SYS_dup3,
        [
            from.as_raw_fd() as usize,
            to.as_raw_fd() as usize,
            libc::O_CLOEXEC as usize,
            0,
            0,
        ],
    )
    .map_err(|error| format!("dup3: {error:?}"))?;
    Ok(())
}

/// The clone, with all signals blocked around it.
fn born(ground: &Ground) -> Result<(Pid, OwnedFd), Fail> {
    let mut pidfd: RawFd = -1;
    let table = if ground.job.above >= 0 {
        libc::CLONE_FILES
    } else {
        0
    };
    // SAFETY: integers only: all zero is a valid value.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = (libc::CLONE_VM | libc::CLONE_PIDFD | libc::CLONE_CHILD_CLEARTID | table) as u64
        | CLEAR_SIGHAND;
    args.pidfd = std::ptr::from_mut(&mut pidfd) as u64;
    args.child_tid = from_ref(&ground.tid) as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    args.stack = ground.stack.get() as u64;
    args.stack_size = STACK as u64;
    let (all, mut before) = (u64::MAX, 0_u64);
    mask(&all, std::ptr::from_mut(&mut before) as usize);
    // SAFETY: stack, job and word are kept until the child has ended; `run` makes system calls
    // only.
    let pid = unsafe { clone3(&args, run, from_ref(&ground.job)) };
    mask(&before, 0);
    let pid = pid.map_err(|error| format!("clone3: {error:?}"))?;
    // SAFETY: the kernel has just made it for us.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok((
        Pid::from_raw(i32::try_from(pid)?).ok_or("the child has no number")?,
        pidfd,
    ))
}

fn mask(set: &u64, old: usize) {
    let _ = sys(
        libc::SYS_rt_sigprocmask,
        [
            libc::SIG_SETMASK as usize,
            from_ref(set) as usize,
            old,
            8,
            0,
        ],
    );
}

fn sys(number: c_long, args: [usize; 5]) -> Result<usize, lastwords::Errno> {
    // SAFETY: every pointer handed in here leads to a live value of the type that the call reads or
    // writes.
    unsafe { call(number, args) }
}

/// What the child does; it returns only if it could not.
extern "C" fn run(job: *const Job) -> c_int {
    // SAFETY: it is kept until this process has left the memory.
    let job = unsafe { &*job };
    match steps(job) {
        Ok(_) | Err(_) => 127,
    }
}

fn steps(job: &Job) -> Result<usize, lastwords::Errno> {
    /// The kernel's `struct sigaction`: handler, flags, restorer, mask.
    #[repr(C)]
    struct Action([usize; 3], u64);
    let default = Action([libc::SIG_DFL, 0, 0], 0);
    // The runtime ignores it.
    sys(
        libc::SYS_rt_sigaction,
        [libc::SIGPIPE as usize, from_ref(&default) as usize, 0, 8, 0],
    )?;
    sys(libc::SYS_setpgid, [0; 5])?;
    if job.above >= 0 {
        sys(
            libc::SYS_close_range,
            [
                job.above as usize,
                u32::MAX as usize,
                libc::CLOSE_RANGE_UNSHARE as usize,
                0,
                0,
            ],
        )?;
    }
    sys(
        libc::SYS_close_range,
        [
            3,
            u32::MAX as usize,
            libc::CLOSE_RANGE_CLOEXEC as usize,
            0,
            0,
        ],
    )?;
    for (to, from) in (0_usize..).zip(&job.ends) {
        sys(libc::SYS_dup3, [*from as usize, to, 0, 0, 0])?;
    }
    mask(&0, 0);
    sys(
        libc::SYS_execve,
        [job.path as usize, job.args as usize, job.env as usize, 0, 0],
    )
}
