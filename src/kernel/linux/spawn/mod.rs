//! Starts children without waiting for exec.
//!
//! A child is made by clone3(2) with CLONE_VM and without CLONE_VFORK. It shares the host's memory,
//! runs [`child::run`] on a small stack of its own, and leaves the memory by exec or by ending,
//! while the host goes on. The kernel tells the host when: it zeroes [`stack::Shared::tid`]
//! (CLONE_CHILD_CLEARTID). Zero means that stack and arguments are free again, and zero without a
//! failed step means that exec has succeeded.
//!
//! ```text
//!  host   block signals, clone3, unblock, setpgid, go on ......... tid is 0: outcome, reuse the stack
//!  child                        \ signals, group, descriptors, terminal, directory, limits, user, mask, exec
//! ```
//!
//! What the code must take care of:
//! * Until it has called exec or closed them, the child has copies of the host's descriptors (or,
//!   with a slot, shares the host's table: `fd_slot.rs`). So a watched descriptor is taken out of
//!   the poll set before it is closed, and the host closes the child's ends whether or not the
//!   spawn succeeds.
//! * Before the child has called setpgid(2), a signal to its group gets ESRCH. So the host calls
//!   setpgid too, before [`Spawner::launch`] returns.
//! * A debugger would lose its breakpoints in the shared memory, and valgrind and some filters
//!   refuse clone3: [`CloneMethod`].
//! * dup3(a, a), and source numbers that are also target numbers: `fd_remap.rs`.
//! * A child that never calls exec (a frozen cgroup, a dead file system) keeps its memory. If
//!   [`PendingSpawn`] is dropped first, the memory is leaked, not freed.
//! * AddressSanitizer, if this crate is built with it, takes stack frames from a "fake stack" of
//!   the host's thread, which the child must not use:
//!   `ASAN_OPTIONS=detect_stack_use_after_return=0`.

#![expect(unsafe_code, reason = "clone, and the descriptor it makes")]

mod child;
mod child_call;
mod child_signals;
mod explain;
mod fd_remap;
mod fd_slot;
mod gate;
mod host_status;
mod pending;
mod prepare;
mod stack;
mod syscall;
#[cfg(test)]
mod tests;

pub(crate) use fd_remap::ChildEnd;
pub(crate) use pending::PendingSpawn;

use super::clock;
use super::containment::cgroup::Cgroup;
use crate::command::plan::Plan;
use crate::types::{Errno, SpawnError, SpawnStep, limits};
use child::{ChildArgs, OtherFds};
use fd_remap::FdRemap;
use fd_slot::{FdSlot, FdSlots};
use gate::Gate;
use host_status::{ProcStatus, SignalsBlocked};
use prepare::Prepared;
use rustix::process::Pid;
use stack::{Shared, Stack};
use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;
use syscall::CloneArgs;

/// Prepares everything that a spawn of this plan needs before there is a child, and starts nothing.
///
/// # Errors
///
/// As for a spawn.
#[cfg(any(test, feature = "sim"))]
pub(crate) fn try_prepare(plan: &Plan) -> Result<(), SpawnError> {
    Prepared::new(plan).map(drop)
}

/// clone3(2) only (Linux 5.5): signals with a handler get the default action.
const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;
/// clone3(2) only (Linux 5.7): the child starts in the cgroup of a descriptor.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// What a spawner may use, from the capabilities and the options of the host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpawnOptions {
    /// Suspend the caller until exec. Needed under valgrind.
    pub vfork: bool,
    /// Whether to use clone3(2) in place of clone(2).
    pub clone3: bool,
    /// Whether to ask for a pidfd with CLONE_PIDFD.
    pub pidfd: bool,
    /// Whether to use close_range(2).
    pub close_range: bool,
}

/// Why a spawn failed before there was a child. A refused clone may be tried by another method.
enum Refused {
    Clone(Errno),
    Step(SpawnError),
}

impl From<SpawnError> for Refused {
    fn from(error: SpawnError) -> Refused {
        Refused::Step(error)
    }
}

/// The system call that makes a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CloneMethod {
    /// clone3(2) with shared memory. The caller goes on at once.
    NoWait,
    /// clone(2) with shared memory and CLONE_VFORK: the caller is suspended until exec. Used on
    /// request, where a tracer is attached, and where clone3 is missing.
    Vfork,
    /// clone(2) with a copy of the memory and CLONE_VFORK. Used for a child that changes its user:
    /// with shared memory the host would become undumpable, or else processes of the new user could
    /// read the host's memory through the child.
    Fork,
}

/// The containment of a child besides its process group.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Inside<'a> {
    /// A variable, `NAME=value`, that comes before all others in its environment.
    pub variable: Option<&'a CStr>,
    /// The cgroup that it starts in, or enters before exec.
    pub cgroup: Option<&'a Cgroup>,
}

/// A child that exists and leads its own process group.
#[derive(Debug)]
pub(crate) struct Launched {
    /// Its pid, which is also the number of its group.
    pub pid: u32,
    /// Its pidfd; `None` where clone does not return one.
    pub pidfd: Option<OwnedFd>,
    /// What the child still uses of the host, and whether it has executed its program.
    pub pending: PendingSpawn,
    /// The wall clock just before the clone.
    pub started_at: SystemTime,
    /// The method that was used.
    #[cfg(test)]
    pub method: CloneMethod,
}

/// Makes children. Keeps stacks and descriptor slots for the next ones.
#[derive(Debug)]
pub(crate) struct Spawner {
    options: SpawnOptions,
    proc_status: ProcStatus,
    pool: Vec<Stack>,
    fd_slots: FdSlots,
    /// Holds children back, in tests.
    gate: Gate,
    /// Spawns that were recycled before their outcome was known. A child still uses their memory.
    abandoned: Vec<PendingSpawn>,
}

impl Spawner {
    pub(crate) fn new(options: SpawnOptions) -> Spawner {
        let pool = Vec::with_capacity(limits::SPAWN_STACKS);
        let proc_status = ProcStatus::new();
        Spawner {
            options,
            proc_status,
            pool,
            fd_slots: FdSlots::default(),
            gate: Gate::default(),
            abandoned: Vec::new(),
        }
    }

    /// Makes a child of this plan. When this returns, the child and its group exist;
    /// [`Launched::pending`] tells whether it executes its program.
    ///
    /// `ends` are the host's descriptors that become 0, 1 and 2. They are close-on-exec, and the
    /// caller closes them afterwards in any case. After an error nothing is left.
    pub(crate) fn launch(
        &mut self,
        plan: &Plan,
        ends: [ChildEnd; 3],
        inside: Inside<'_>,
    ) -> Result<Launched, SpawnError> {
        let prepared = Arc::new(Prepared::new(plan)?);
        self.reclaim();
        let is_traced = self.proc_status.is_traced();
        let method = self.method(&prepared, is_traced);
        let launched = match self.launch_by(method, &prepared, ends, inside) {
            // An old kernel or a filter: use clone with CLONE_VFORK from now on. EINVAL comes of a
            // clone3 without CLONE_CLEAR_SIGHAND or CLONE_INTO_CGROUP.
            Err(Refused::Clone(e))
                if method == CloneMethod::NoWait
                    && matches!(e.raw(), libc::ENOSYS | libc::EPERM | libc::EINVAL) =>
            {
                // With a cgroup, the refusal may be about the cgroup.
                self.options.clone3 &= inside.cgroup.is_some() && e.raw() != libc::ENOSYS;
                self.launch_by(CloneMethod::Vfork, &prepared, ends, inside)
            }
            launched => launched,
        };
        launched.map_err(|refused| match (refused, inside.cgroup) {
            (Refused::Step(error), _) => error,
            (Refused::Clone(e), Some(cgroup))
                if !matches!(e.raw(), libc::EAGAIN | libc::ENOMEM) =>
            {
                cgroup.placement_error(e)
            }
            (Refused::Clone(e), _) => SpawnError::new(SpawnStep::Clone, e),
        })
    }

    fn launch_by(
        &mut self,
        method: CloneMethod,
        prepared: &Arc<Prepared>,
        ends: [ChildEnd; 3],
        inside: Inside<'_>,
    ) -> Result<Launched, Refused> {
        let no_memory = |errno| SpawnError::new(SpawnStep::Clone, errno);
        let stack = self
            .pool
            .pop()
            .map_or_else(Stack::new, Ok)
            .map_err(no_memory)?;
        let status = status_pipe(method)?;
        let mut fd_slot = self.fd_slot(method, prepared, ends);
        let placed = match &mut fd_slot {
            Some(slot) => slot
                .fill(ends)
                .map_err(|errno| SpawnError::new(SpawnStep::Descriptors, errno))?,
            None => ends,
        };
        let remap = FdRemap::new(placed, &prepared.pass);
        let child_args = Box::new(ChildArgs {
            cleared: method == CloneMethod::NoWait,
            proc_status: self.proc_status.fd().map_or(-1, |fd| fd.as_raw_fd()),
            unshare: fd_slot.as_ref().map(FdSlot::above),
            gate: self.gate.clone(),
            host: if prepared.death.is_some() {
                std::process::id()
            } else {
                0
            },
            other_fds: self.other_fds(prepared, status.is_some()),
            status: status.as_ref().map_or(-1, |(_, write)| write.as_raw_fd()),
            shared: NonNull::from(stack.shared()),
            remap,
            env: inside.variable.map(|variable| prepared.env.after(variable)),
            cgroup: inside
                .cgroup
                .filter(|_| method != CloneMethod::NoWait)
                .map_or(-1, |cgroup| cgroup.procs().as_raw_fd()),
            prepared: Arc::clone(prepared),
        });
        let pending = PendingSpawn::new(stack, child_args, fd_slot);
        let started_at = clock::wall();
        let (pid, pidfd) = match self.clone_child(method, &pending, inside.cgroup) {
            Err(e) => {
                self.abandon(pending);
                return Err(Refused::Clone(e));
            }
            Ok(born) => born,
        };
        if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
            // The child calls setpgid too. The later of the two gets an error that means nothing
            // (EACCES after exec).
            let _ = rustix::process::setpgid(Some(pid), Some(pid));
        }
        if let Some((read, write)) = status {
            drop(write);
            self.read_outcome(method, &pending, read);
        }
        Ok(Launched {
            pid,
            pidfd,
            pending,
            started_at,
            #[cfg(test)]
            method,
        })
    }

    /// Reuses the memory of a child for the next one: at once if the child has left it, or else
    /// when it has. Memory that a child still uses when the spawner is dropped is leaked.
    pub(crate) fn recycle(&mut self, pending: PendingSpawn) {
        let (stack, fd_slot) = match pending.into_parts() {
            Ok(parts) => parts,
            Err(pending) => return self.abandoned.push(pending),
        };
        if self.pool.len() < limits::SPAWN_STACKS {
            self.pool.push(stack);
        }
        if let Some(fd_slot) = fd_slot {
            self.fd_slots.put(fd_slot);
        }
    }

    /// Recycles abandoned spawns that have ended since; a memory load for each.
    fn reclaim(&mut self) {
        while let Some(free) = self.abandoned.iter().position(PendingSpawn::is_known) {
            let pending = self.abandoned.swap_remove(free);
            self.recycle(pending);
        }
    }

    /// A slot for this child, so that it need not copy the host's descriptors. `None` where the
    /// child needs more than its streams, where it inherits a stream that is closed in the host,
    /// and where others than the loop use the host's end of a stream: they would have to wait until
    /// the loop clears the slot.
    fn fd_slot(
        &mut self,
        method: CloneMethod,
        prepared: &Prepared,
        ends: [ChildEnd; 3],
    ) -> Option<FdSlot> {
        let is_open = |number: RawFd| {
            // SAFETY: the number is one of the host's streams, and the borrow ends with the call.
            let fd = unsafe { BorrowedFd::borrow_raw(number) };
            rustix::io::fcntl_getfd(fd).is_ok()
        };
        let can = self.options.close_range
            && method == CloneMethod::NoWait
            && !prepared.inherit
            && !prepared.needs_descriptors()
            && prepared.streams_are_the_loops
            && (0..)
                .zip(ends)
                .all(|(number, end)| end != ChildEnd::Inherit || is_open(number));
        if can {
            self.fd_slots.take(self.proc_status.fd())
        } else {
            None
        }
    }

    fn other_fds(&self, prepared: &Prepared, tells: bool) -> OtherFds {
        if prepared.inherit {
            OtherFds::Keep
        } else if !self.options.close_range {
            OtherFds::SetCloexecEach
        } else if tells || prepared.needs_descriptors() {
            OtherFds::SetCloexec
        } else {
            OtherFds::Close
        }
    }

    fn method(&self, prepared: &Prepared, is_traced: bool) -> CloneMethod {
        if prepared.changes_user() {
            CloneMethod::Fork
        } else if self.options.vfork || !self.options.clone3 || is_traced {
            CloneMethod::Vfork
        } else {
            CloneMethod::NoWait
        }
    }

    /// Takes back the memory of a child that was not made.
    fn abandon(&mut self, pending: PendingSpawn) {
        pending.stack().shared().tid.store(0, Ordering::Relaxed);
        self.recycle(pending);
    }

    /// Makes the child, with all signals blocked meanwhile.
    fn clone_child(
        &self,
        method: CloneMethod,
        pending: &PendingSpawn,
        cgroup: Option<&Cgroup>,
    ) -> Result<(u32, Option<OwnedFd>), Errno> {
        pending.stack().arm();
        let (stack, stack_size) = pending.stack().range();
        let tid = std::ptr::from_ref(&pending.stack().shared().tid) as usize;
        let child_args = std::ptr::from_ref(pending.child_args());
        let mut pidfd: RawFd = -1;
        let pidfd_to = std::ptr::from_mut(&mut pidfd) as usize;
        let pidfd_flag = if self.options.pidfd {
            libc::CLONE_PIDFD
        } else {
            0
        };
        let blocked = SignalsBlocked::new();
        let pid = if method == CloneMethod::NoWait {
            let table = if pending.child_args().unshare.is_some() {
                libc::CLONE_FILES
            } else {
                0
            };
            let into = if cgroup.is_some() {
                CLONE_INTO_CGROUP
            } else {
                0
            };
            let flags = (libc::CLONE_VM | libc::CLONE_CHILD_CLEARTID | table | pidfd_flag) as u64
                | CLONE_CLEAR_SIGHAND
                | into;
            let mut args = clone3_args(flags, [pidfd_to, tid, stack, stack_size]);
            args.cgroup = cgroup
                .and_then(|cgroup| u64::try_from(cgroup.dir().as_raw_fd()).ok())
                .unwrap_or(0);
            // SAFETY: `PendingSpawn` keeps stack, arguments and shared words until the kernel has
            // zeroed `tid`, and `run` keeps the rules of its module.
            unsafe { syscall::clone3(&args, child::run, child_args) }
        } else {
            let memory = match method {
                CloneMethod::NoWait | CloneMethod::Vfork => {
                    libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_CHILD_CLEARTID
                }
                // Requested under valgrind, which supports fork and vfork only.
                CloneMethod::Fork if self.options.vfork => 0,
                CloneMethod::Fork => libc::CLONE_VFORK,
            };
            let flags = memory | pidfd_flag | libc::SIGCHLD;
            let args = CloneArgs {
                flags,
                stack_top: stack + stack_size,
                pidfd: pidfd_to,
                child_tid: tid,
            };
            // SAFETY: as above. In a copy of the memory the child has copies of all three.
            unsafe { syscall::clone(args, child::run, child_args) }
        };
        drop(blocked);
        let pid = pid?;
        // SAFETY: the kernel has just made the descriptor for this process. Before Linux 5.2 the
        // flag is unknown and the number stays -1.
        let pidfd = (pidfd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(pidfd) });
        Ok((pid as u32, pidfd))
    }

    /// Reads the outcome after a clone that waited for exec. Where the memory is not shared (a copy
    /// on purpose, or vfork emulated by fork), the child has written it to the pipe.
    fn read_outcome(&self, method: CloneMethod, pending: &PendingSpawn, read: OwnedFd) {
        let shared = pending.stack().shared();
        if shared.tid.load(Ordering::Acquire) == 0 {
            return;
        }
        // After a fork that waited for exec, the pipe holds the answer or never will. Otherwise end
        // of file is waited for: exec closes the pipe.
        let waited = method == CloneMethod::Fork && !self.options.vfork;
        let unblocked = waited && rustix::io::ioctl_fionbio(&read, true).is_ok();
        debug_assert_eq!(waited, unblocked);
        let mut words = [0; size_of::<Shared>()];
        let told = rustix::io::retry_on_intr(|| rustix::io::read(&read, &mut words));
        // The words arrive whole, since they are fewer than PIPE_BUF bytes.
        if told == Ok(words.len()) {
            shared.take_over(&words);
        }
        shared.tid.store(0, Ordering::Release);
    }
}

fn clone3_args(flags: u64, [pidfd, child_tid, stack, stack_size]: [usize; 4]) -> libc::clone_args {
    // SAFETY: integers only. Zero is a valid value and means "not used".
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = flags;
    args.pidfd = pidfd as u64;
    args.child_tid = child_tid as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    args.stack = stack as u64;
    args.stack_size = stack_size as u64;
    args
}

/// The pipe through which a child reports if its memory is not shared.
fn status_pipe(method: CloneMethod) -> Result<Option<(OwnedFd, OwnedFd)>, SpawnError> {
    match method {
        CloneMethod::NoWait => Ok(None),
        CloneMethod::Vfork | CloneMethod::Fork => {
            match rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC) {
                Ok(pipe) => Ok(Some(pipe)),
                Err(e) => Err(SpawnError::new(SpawnStep::Pipe, e.into())),
            }
        }
    }
}
