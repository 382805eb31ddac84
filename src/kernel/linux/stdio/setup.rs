//! The three streams of a child: which descriptor it gets, and what is left with whom.

use super::read::Pipe;
use crate::command::Transport;
use crate::command::plan::{OutputPlan, Plan, StdinPlan};
use crate::kernel::linux::spawn::ChildEnd;
use crate::kernel::linux::table::Reader;
use crate::types::{Errno, SpawnError, Step};
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::os::fd::{AsRawFd, OwnedFd};

/// What a spawn needs of descriptors, made before the child exists. Dropped, everything is closed
/// again.
#[derive(Debug)]
pub(crate) struct Ends {
    /// What becomes the child's 0, 1 and 2.
    pub child: [ChildEnd; 3],
    /// The child's ends of its pipes: closed once it has its own.
    pub childs: [Option<OwnedFd>; 3],
    /// The write end that the loop feeds.
    pub feed: Option<OwnedFd>,
    /// The ends that the loop reads.
    pub readers: [Option<Reader>; 2],
    /// Capacities that were had, where one was asked for.
    pub capacities: [Option<u32>; 2],
    /// Ends for the host.
    pub raw: [Option<OwnedFd>; 3],
}

impl Ends {
    /// Makes what the plan says. `null` is /dev/null, opened at the first need and kept.
    pub(crate) fn make(plan: &Plan, null: &mut Option<OwnedFd>) -> Result<Ends, SpawnError> {
        let inherit = [ChildEnd::Inherit; 3];
        let mut ends = Ends {
            child: inherit,
            childs: [None, None, None],
            feed: None,
            readers: [None, None],
            capacities: [None; 2],
            raw: [None, None, None],
        };
        ends.stdin(&plan.stdin, null)?;
        ends.output(1, &plan.stdout, null)?;
        ends.output(2, &plan.stderr, null)?;
        Ok(ends)
    }

    fn stdin(&mut self, plan: &StdinPlan, null: &mut Option<OwnedFd>) -> Result<(), SpawnError> {
        self.child[0] = match plan {
            StdinPlan::Inherit => ChildEnd::Inherit,
            StdinPlan::Null => dev_null(null)?,
            StdinPlan::Fd(fd) => ChildEnd::Fd(fd.as_raw_fd()),
            StdinPlan::Feed | StdinPlan::Raw => {
                let Pipe { ours, childs } = Pipe::to_child().map_err(no_pipe)?;
                let place = if matches!(plan, StdinPlan::Raw) {
                    &mut self.raw[0]
                } else {
                    &mut self.feed
                };
                *place = Some(ours);
                ChildEnd::Fd(self.childs[0].insert(childs).as_raw_fd())
            }
        };
        Ok(())
    }

    fn output(
        &mut self,
        number: usize,
        plan: &OutputPlan,
        null: &mut Option<OwnedFd>,
    ) -> Result<(), SpawnError> {
        self.child[number] = match plan {
            OutputPlan::Inherit => ChildEnd::Inherit,
            OutputPlan::Null => dev_null(null)?,
            OutputPlan::Fd(fd) => ChildEnd::Fd(fd.as_raw_fd()),
            // stdout was made before: the same descriptor twice, or the host's own stdout.
            OutputPlan::ToStdout => match self.child[1] {
                ChildEnd::Inherit => ChildEnd::Fd(rustix::stdio::raw_stdout()),
                end => end,
            },
            OutputPlan::Capture { pipe, transport } => {
                let (Pipe { ours, childs }, peer) = match (transport, pipe) {
                    (Transport::Socket, _) => sockets().map_err(no_pipe)?,
                    (Transport::Pipe, None) => (Pipe::from_child().map_err(no_pipe)?, 0),
                    (Transport::Pipe, Some(size)) => {
                        let (made, had) = Pipe::of_capacity(*size).map_err(no_pipe)?;
                        self.capacities[number - 1] = had;
                        (made, 0)
                    }
                };
                self.readers[number - 1] = Some(Reader {
                    fd: ours,
                    hung_up: false,
                    ended: false,
                    peer,
                });
                ChildEnd::Fd(self.childs[number].insert(childs).as_raw_fd())
            }
            OutputPlan::Raw => {
                let Pipe { ours, childs } = Pipe::from_child().map_err(no_pipe)?;
                self.raw[number] = Some(ours);
                ChildEnd::Fd(self.childs[number].insert(childs).as_raw_fd())
            }
        };
        Ok(())
    }
}

/// Sockets, and the inode of the child's: the only thing by which those who hold it are known.
fn sockets() -> Result<(Pipe, u32), Errno> {
    let pipe = Pipe::sockets()?;
    let inode = rustix::fs::fstat(&pipe.childs)?.st_ino;
    Ok((pipe, u32::try_from(inode).unwrap_or(u32::MAX)))
}

fn no_pipe(errno: Errno) -> SpawnError {
    SpawnError::new(Step::Pipe, errno)
}

fn dev_null(null: &mut Option<OwnedFd>) -> Result<ChildEnd, SpawnError> {
    if null.is_none() {
        let opened = openat(
            CWD,
            c"/dev/null",
            OFlags::RDWR | OFlags::CLOEXEC,
            Mode::empty(),
        );
        *null = Some(opened.map_err(|e| no_pipe(e.into()).at("/dev/null"))?);
    }
    Ok(null
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
        let ends = Ends::make(
            &plan(StdinPlan::Feed, OutputPlan::Raw, OutputPlan::CAPTURED),
            &mut null,
        )
        .expect("ends");
        assert!(ends.feed.is_some() && ends.raw[0].is_none());
        assert!(ends.raw[1].is_some() && ends.readers[0].is_none());
        assert!(ends.readers[1].is_some() && ends.raw[2].is_none());
        assert!(null.is_none(), "not opened before it is needed");
        for (end, fd) in ends.child.iter().zip(&ends.childs) {
            assert_eq!(*end, ChildEnd::Fd(fd.as_ref().expect("a pipe").as_raw_fd()));
        }
    }

    #[test]
    fn merged_streams_are_one_pipe_and_null_is_opened_once() {
        let mut null = None;
        let ends = Ends::make(
            &plan(StdinPlan::Null, OutputPlan::CAPTURED, OutputPlan::ToStdout),
            &mut null,
        )
        .expect("ends");
        assert_eq!(ends.child[1], ends.child[2]);
        assert!(ends.childs[2].is_none() && ends.readers[1].is_none());
        let first = null.as_ref().map(AsRawFd::as_raw_fd);
        let ends = Ends::make(
            &plan(StdinPlan::Null, OutputPlan::Null, OutputPlan::ToStdout),
            &mut null,
        )
        .expect("ends");
        assert_eq!(null.as_ref().map(AsRawFd::as_raw_fd), first);
        assert!(
            ends.child
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
        let ends = Ends::make(&plan(stdin, stdout, OutputPlan::Inherit), &mut None).expect("ends");
        assert_eq!(ends.child, [given, given, ChildEnd::Inherit]);
        drop(ends);
        assert_eq!(Arc::strong_count(&file), 1);
        let ends = Ends::make(
            &plan(
                StdinPlan::Inherit,
                OutputPlan::Inherit,
                OutputPlan::ToStdout,
            ),
            &mut None,
        )
        .expect("ends");
        assert_eq!(
            ends.child,
            [ChildEnd::Inherit, ChildEnd::Inherit, ChildEnd::Fd(1)]
        );
    }
}
