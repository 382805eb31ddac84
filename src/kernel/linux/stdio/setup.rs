//! Makes the descriptors of a child's three streams.

use super::read::Pipe;
use crate::command::Transport;
use crate::command::plan::{OutputPlan, Plan, StdinPlan};
use crate::kernel::linux::spawn::ChildEnd;
use crate::kernel::linux::table::Reader;
use crate::types::{Errno, SpawnError, SpawnStep};
use rustix::fs::{CWD, FileType, Mode, OFlags, fcntl_getfl, fcntl_setfl, openat};
use std::os::fd::{AsRawFd, OwnedFd};

/// The descriptors of a spawn, made before the child exists. Dropping it closes them.
#[derive(Debug)]
pub(crate) struct StdioSetup {
    /// What becomes descriptor 0, 1 and 2 of the child.
    pub targets: [ChildEnd; 3],
    /// The child's ends of its pipes. They are closed once the child has its copies.
    pub child_ends: [Option<OwnedFd>; 3],
    /// The write end of a stdin that the loop feeds.
    pub stdin: Option<OwnedFd>,
    /// The read ends of captured streams.
    pub readers: [Option<Reader>; 2],
    /// Capacities of the pipes in bytes, where the command asks for one.
    pub capacities: [Option<u32>; 2],
    /// The host's ends of raw streams.
    pub raw: [Option<OwnedFd>; 3],
}

impl StdioSetup {
    /// Makes the descriptors of a plan. /dev/null is opened when it is first needed, and kept.
    pub(crate) fn make(
        plan: &Plan,
        dev_null: &mut Option<OwnedFd>,
    ) -> Result<StdioSetup, SpawnError> {
        let inherit = [ChildEnd::Inherit; 3];
        let mut stdio = StdioSetup {
            targets: inherit,
            child_ends: [None, None, None],
            stdin: None,
            readers: [None, None],
            capacities: [None; 2],
            raw: [None, None, None],
        };
        stdio.stdin(&plan.stdin, dev_null)?;
        stdio.output(1, &plan.stdout, dev_null)?;
        stdio.output(2, &plan.stderr, dev_null)?;
        Ok(stdio)
    }

    fn stdin(
        &mut self,
        plan: &StdinPlan,
        dev_null: &mut Option<OwnedFd>,
    ) -> Result<(), SpawnError> {
        self.targets[0] = match plan {
            StdinPlan::Inherit => ChildEnd::Inherit,
            StdinPlan::Null => open_dev_null(dev_null)?,
            StdinPlan::Fd(fd) => given(fd),
            StdinPlan::Feed | StdinPlan::Raw => {
                let Pipe {
                    host_end,
                    child_end,
                } = Pipe::to_child().map_err(no_pipe)?;
                let place = if matches!(plan, StdinPlan::Raw) {
                    &mut self.raw[0]
                } else {
                    &mut self.stdin
                };
                *place = Some(host_end);
                ChildEnd::Fd(self.child_ends[0].insert(child_end).as_raw_fd())
            }
        };
        Ok(())
    }

    fn output(
        &mut self,
        number: usize,
        plan: &OutputPlan,
        dev_null: &mut Option<OwnedFd>,
    ) -> Result<(), SpawnError> {
        self.targets[number] = match plan {
            OutputPlan::Inherit => ChildEnd::Inherit,
            OutputPlan::Null => open_dev_null(dev_null)?,
            OutputPlan::Fd(fd) => given(fd),
            // The same descriptor as stdout, or the host's own stdout.
            OutputPlan::ToStdout => match self.targets[1] {
                ChildEnd::Inherit => ChildEnd::Fd(rustix::stdio::raw_stdout()),
                end => end,
            },
            OutputPlan::Capture { pipe, transport } => {
                let (
                    Pipe {
                        host_end,
                        child_end,
                    },
                    peer,
                ) = match (transport, pipe) {
                    (Transport::Socket, _) => sockets().map_err(no_pipe)?,
                    (Transport::Pipe, None) => (Pipe::from_child().map_err(no_pipe)?, 0),
                    (Transport::Pipe, Some(size)) => {
                        let (made, had) = Pipe::of_capacity(*size).map_err(no_pipe)?;
                        self.capacities[number - 1] = had;
                        (made, 0)
                    }
                };
                self.readers[number - 1] = Some(Reader {
                    fd: host_end,
                    hung_up: false,
                    ended: false,
                    peer,
                });
                ChildEnd::Fd(self.child_ends[number].insert(child_end).as_raw_fd())
            }
            OutputPlan::Raw => {
                let Pipe {
                    host_end,
                    child_end,
                } = Pipe::from_child().map_err(no_pipe)?;
                self.raw[number] = Some(host_end);
                ChildEnd::Fd(self.child_ends[number].insert(child_end).as_raw_fd())
            }
        };
        Ok(())
    }
}

/// A descriptor that the host gives to a child. A pipe is made blocking: one that lastwords has
/// made is non-blocking on the host's side, and programs do not expect EAGAIN of their standard
/// streams.
fn given(fd: &OwnedFd) -> ChildEnd {
    let is_pipe = rustix::fs::fstat(fd)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo);
    if is_pipe
        && let Ok(flags) = fcntl_getfl(fd)
        && flags.contains(OFlags::NONBLOCK)
    {
        // This cannot fail for an open pipe.
        let _ = fcntl_setfl(fd, flags.difference(OFlags::NONBLOCK));
    }
    ChildEnd::Fd(fd.as_raw_fd())
}

/// A pair of sockets, and the inode of the child's end, by which its holders are found.
fn sockets() -> Result<(Pipe, u32), Errno> {
    let pipe = Pipe::sockets()?;
    let inode = rustix::fs::fstat(&pipe.child_end)?.st_ino;
    Ok((pipe, u32::try_from(inode).unwrap_or(u32::MAX)))
}

fn no_pipe(errno: Errno) -> SpawnError {
    SpawnError::new(SpawnStep::Pipe, errno)
}

fn open_dev_null(dev_null: &mut Option<OwnedFd>) -> Result<ChildEnd, SpawnError> {
    if dev_null.is_none() {
        let opened = openat(
            CWD,
            c"/dev/null",
            OFlags::RDWR | OFlags::CLOEXEC,
            Mode::empty(),
        );
        *dev_null = Some(opened.map_err(|e| no_pipe(e.into()).at("/dev/null"))?);
    }
    Ok(dev_null
        .as_ref()
        .map_or(ChildEnd::Inherit, |fd| ChildEnd::Fd(fd.as_raw_fd())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;
    use std::sync::Arc;

    fn plan(stdin: StdinPlan, stdout: OutputPlan, stderr: OutputPlan) -> Plan {
        Plan {
            stdin,
            stdout,
            stderr,
            ..Plan::new(OsString::from("true"))
        }
    }

    #[test]
    fn each_end_has_one_owner() {
        let mut null = None;
        let stdio = StdioSetup::make(
            &plan(StdinPlan::Feed, OutputPlan::Raw, OutputPlan::CAPTURED),
            &mut null,
        )
        .expect("stdio");
        assert!(stdio.stdin.is_some() && stdio.raw[0].is_none());
        assert!(stdio.raw[1].is_some() && stdio.readers[0].is_none());
        assert!(stdio.readers[1].is_some() && stdio.raw[2].is_none());
        assert!(null.is_none(), "not opened before it is needed");
        for (end, fd) in stdio.targets.iter().zip(&stdio.child_ends) {
            assert_eq!(*end, ChildEnd::Fd(fd.as_ref().expect("a pipe").as_raw_fd()));
        }
    }

    #[test]
    fn merged_streams_are_one_pipe_and_null_is_opened_once() {
        let mut null = None;
        let stdio = StdioSetup::make(
            &plan(StdinPlan::Null, OutputPlan::CAPTURED, OutputPlan::ToStdout),
            &mut null,
        )
        .expect("stdio");
        assert_eq!(stdio.targets[1], stdio.targets[2]);
        assert!(stdio.child_ends[2].is_none() && stdio.readers[1].is_none());
        let first = null.as_ref().map(AsRawFd::as_raw_fd);
        let stdio = StdioSetup::make(
            &plan(StdinPlan::Null, OutputPlan::Null, OutputPlan::ToStdout),
            &mut null,
        )
        .expect("stdio");
        assert_eq!(null.as_ref().map(AsRawFd::as_raw_fd), first);
        assert!(
            stdio
                .targets
                .iter()
                .all(|end| Some(*end) == first.map(ChildEnd::Fd))
        );
    }

    #[test]
    fn what_the_host_gives_is_left_with_the_host() {
        let file = Arc::new(OwnedFd::from(
            std::fs::File::open("/dev/null").expect("/dev/null"),
        ));
        let given = ChildEnd::Fd(file.as_raw_fd());
        let (stdin, stdout) = (
            StdinPlan::Fd(Arc::clone(&file)),
            OutputPlan::Fd(Arc::clone(&file)),
        );
        let stdio =
            StdioSetup::make(&plan(stdin, stdout, OutputPlan::Inherit), &mut None).expect("stdio");
        assert_eq!(stdio.targets, [given, given, ChildEnd::Inherit]);
        drop(stdio);
        assert_eq!(Arc::strong_count(&file), 1);
        let stdio = StdioSetup::make(
            &plan(
                StdinPlan::Inherit,
                OutputPlan::Inherit,
                OutputPlan::ToStdout,
            ),
            &mut None,
        )
        .expect("stdio");
        assert_eq!(
            stdio.targets,
            [ChildEnd::Inherit, ChildEnd::Inherit, ChildEnd::Fd(1)]
        );
    }
}
