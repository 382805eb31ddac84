//! The controlling terminal of the host process, and which process group is its foreground.
#![expect(unsafe_code, reason = "getpgrp(2) and ioctl(2) with plain numbers")]

use super::signal_state::with_blocked;
use crate::types::Signal;
use rustix::fs::{Mode, OFlags, open};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Which process group is the foreground of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreground {
    /// The group of this process.
    Own,
    /// The group with this number.
    Group(u32),
    /// A group that this process cannot see (another PID namespace), or none.
    Other,
}

/// The controlling terminal of this process.
#[derive(Debug)]
pub struct ControllingTerminal {
    fd: OwnedFd,
    /// The group of this process; `None` if it was made outside of this PID namespace.
    own_group: Option<u32>,
}

impl ControllingTerminal {
    /// Opens the terminal through /dev/tty, so that it does not matter which descriptors of this
    /// process lead to it. `None` without a controlling terminal.
    ///
    /// Without /dev, the first of descriptors 0 to 2 that is the controlling terminal is copied.
    pub fn open() -> Option<ControllingTerminal> {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = open("/dev/tty", flags, Mode::empty()).ok();
        let fd = fd.or_else(|| {
            let streams = [
                rustix::stdio::stdin(),
                rustix::stdio::stdout(),
                rustix::stdio::stderr(),
            ];
            let terminal = streams
                .into_iter()
                .find(|stream| foreground_group(stream).is_ok())?;
            rustix::io::fcntl_dupfd_cloexec(terminal, 3).ok()
        })?;
        foreground_group(&fd).ok()?;
        Some(ControllingTerminal {
            fd,
            own_group: own_group(),
        })
    }

    /// The group of this process; `None` if it was made outside of this PID namespace.
    pub fn own_group(&self) -> Option<u32> {
        self.own_group
    }

    /// Which group is the foreground.
    pub fn foreground(&self) -> Foreground {
        match (foreground_group(&self.fd), self.own_group) {
            (Ok(group), Some(own)) if group == own => Foreground::Own,
            // Both groups may be outside of this namespace: then only the terminal itself knows.
            (Ok(0), None) if self.may_read() => Foreground::Own,
            (Ok(0), _) | (Err(_), _) => Foreground::Other,
            (Ok(group), _) => Foreground::Group(group),
        }
    }

    /// Whether the kernel lets this process read from the terminal, which it refuses to a
    /// background group with EIO while TTIN is blocked. Takes no byte of the input.
    fn may_read(&self) -> bool {
        let read = || rustix::io::read(&self.fd, &mut [0_u8; 0][..]);
        !matches!(
            with_blocked(Signal::TTIN, read),
            Ok(Err(rustix::io::Errno::IO)) | Err(_)
        )
    }

    /// Makes a group of this session the foreground.
    ///
    /// # Errors
    ///
    /// EPERM or ESRCH: the group has ended. EIO: the terminal was hung up.
    pub fn set_foreground(&self, group: u32) -> io::Result<()> {
        let number = group.cast_signed();
        // SAFETY: the terminal is open, and the number is read only.
        let set =
            || unsafe { libc::ioctl(self.fd.as_raw_fd(), libc::TIOCSPGRP, &raw const number) };
        // TTOU would stop a process that does this from the background.
        match with_blocked(Signal::TTOU, || (set(), io::Error::last_os_error()))? {
            (0, _) => Ok(()),
            (_, error) => Err(error),
        }
    }

    /// Makes the own group the foreground, if it has a number in this PID namespace.
    ///
    /// # Errors
    ///
    /// As [`ControllingTerminal::set_foreground`].
    pub fn take_back(&self) -> io::Result<()> {
        self.own_group
            .map_or(Ok(()), |own| self.set_foreground(own))
    }

    /// The current modes (echo, canonical input, ...).
    pub fn modes(&self) -> Option<TerminalModes> {
        tcgetattr(&self.fd).ok().map(TerminalModes)
    }

    /// Sets the modes once all output is written.
    ///
    /// # Errors
    ///
    /// EIO: the terminal was hung up.
    pub fn set_modes(&self, modes: &TerminalModes) -> io::Result<()> {
        let set = || tcsetattr(&self.fd, OptionalActions::Drain, &modes.0);
        Ok(with_blocked(Signal::TTOU, set)??)
    }
}

/// Modes of a terminal, as [`ControllingTerminal::modes`] has read them.
#[derive(Clone, Debug)]
pub struct TerminalModes(Termios);

/// The foreground group of this process's controlling terminal; 0 if it is in another PID
/// namespace.
fn foreground_group(terminal: &impl AsFd) -> io::Result<u32> {
    let mut group = MaybeUninit::<libc::pid_t>::zeroed();
    let raw = terminal.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open, and the number goes to a place of its own type.
    if unsafe { libc::ioctl(raw, libc::TIOCGPGRP, group.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroed, and filled by the call.
    let group = unsafe { group.assume_init() };
    Ok(u32::try_from(group).unwrap_or(0))
}

/// The group of this process; `None` if its number belongs to another PID namespace (0).
fn own_group() -> Option<u32> {
    // SAFETY: getpgrp(2) takes nothing and cannot fail.
    let group = unsafe { libc::getpgrp() };
    u32::try_from(group).ok().filter(|group| *group != 0)
}
