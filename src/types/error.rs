//! One error type per operation. Each says what was attempted, on what, and the errno, and reads
//! after "failed to".

use super::Errno;
use std::path::{Path, PathBuf};
use std::{fmt, io};

/// The step of a spawn that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SpawnStep {
    /// The command itself is not one: empty, or a NUL byte in it.
    Command,
    /// Looking for the program in PATH.
    Find,
    /// Making a pipe, or opening /dev/null.
    Pipe,
    /// Putting a pipe or the exit notice into the poll set.
    Register,
    /// clone(2): no process could be made.
    Clone,
    /// setpgid(2): a group of its own.
    Group,
    /// tcsetpgrp(3): the terminal's foreground.
    Terminal,
    /// Putting the child's descriptors in their places.
    Descriptors,
    /// chdir(2): the working directory.
    Chdir,
    /// Setting a resource limit (setrlimit(2)).
    Limits,
    /// User or group.
    User,
    /// Making or entering the cgroup.
    Cgroup,
    /// Reading /proc, which finding processes by their cookie needs.
    Cookie,
    /// Executing the program (execve(2)).
    Exec,
}

impl SpawnStep {
    /// The word in reports.
    pub const fn name(self) -> &'static str {
        match self {
            SpawnStep::Command => "command",
            SpawnStep::Find => "find",
            SpawnStep::Pipe => "pipe",
            SpawnStep::Register => "register",
            SpawnStep::Clone => "clone",
            SpawnStep::Group => "group",
            SpawnStep::Terminal => "terminal",
            SpawnStep::Descriptors => "descriptors",
            SpawnStep::Chdir => "chdir",
            SpawnStep::Limits => "limits",
            SpawnStep::User => "user",
            SpawnStep::Cgroup => "cgroup",
            SpawnStep::Cookie => "cookie",
            SpawnStep::Exec => "exec",
        }
    }
}

impl fmt::Display for SpawnStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Names and sizes of what is large in an argument list or environment that was too large (never
/// values).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TooLarge {
    /// Bytes of all arguments and variables, their NULs and pointers included, as execve(2) counts
    /// them.
    pub total: u64,
    /// The largest ones first, at most five: `argument 3` or a variable's name, and its bytes.
    pub largest: Vec<(String, u64)>,
}

impl TooLarge {
    /// Puts one together.
    pub fn new(total: u64, largest: Vec<(String, u64)>) -> TooLarge {
        TooLarge { total, largest }
    }
}

/// A child could not be started. Nothing of the attempt is left: no process, descriptor or table
/// entry.
///
/// Displayed, as the other errors here are, by what was attempted: whoever shows it puts `failed
/// to` before it.
#[derive(Clone)]
pub struct SpawnError(Box<SpawnFault>);

#[derive(Clone)]
struct SpawnFault {
    step: SpawnStep,
    path: Option<PathBuf>,
    errno: Errno,
    note: Option<String>,
    too_large: Option<TooLarge>,
}

impl SpawnError {
    /// A failed step.
    pub fn new(step: SpawnStep, errno: Errno) -> SpawnError {
        SpawnError(Box::new(SpawnFault {
            step,
            path: None,
            errno,
            note: None,
            too_large: None,
        }))
    }

    /// The path that it is about.
    #[must_use]
    pub fn at(mut self, path: impl Into<PathBuf>) -> SpawnError {
        self.0.path = Some(path.into());
        self
    }

    /// What the errno alone does not say, in words: `the interpreter "/bin/nope" is missing`.
    #[must_use]
    pub fn because(mut self, note: impl Into<String>) -> SpawnError {
        self.0.note = Some(note.into());
        self
    }

    /// What was too large (E2BIG).
    #[must_use]
    pub fn with_sizes(mut self, sizes: TooLarge) -> SpawnError {
        self.0.too_large = Some(sizes);
        self
    }

    /// The same, with every text in it as this function shows it: without secrets.
    #[doc(hidden)]
    #[must_use]
    pub fn redacted_with(mut self, shown: impl Fn(&str) -> String) -> SpawnError {
        let fault = &mut *self.0;
        if let Some(path) = &mut fault.path {
            let text = path.to_string_lossy();
            let shown = shown(&text);
            // A path that there is nothing to hide of stays as it is, to the byte.
            if shown != text {
                *path = shown.into();
            }
        }
        fault.note = fault.note.take().map(|note| shown(&note));
        for (name, _) in fault
            .too_large
            .iter_mut()
            .flat_map(|sizes| &mut sizes.largest)
        {
            *name = shown(name);
        }
        self
    }

    /// The step that failed.
    pub fn step(&self) -> SpawnStep {
        self.0.step
    }

    /// The program, directory or file that it failed on.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// The error number.
    pub fn errno(&self) -> Errno {
        self.0.errno
    }

    /// The error number as std has it.
    pub fn raw_os_error(&self) -> i32 {
        self.0.errno.raw()
    }

    /// The program was not found (and not: its interpreter, or its working directory).
    pub fn is_not_found(&self) -> bool {
        match self.0.step {
            SpawnStep::Find => self.0.errno.raw() == libc::ENOENT,
            SpawnStep::Exec => self.0.errno.raw() == libc::ENOENT && self.0.note.is_none(),
            _ => false,
        }
    }

    /// The same may work later: descriptors, memory or processes were short, or the file was being
    /// written.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self.0.errno.raw(),
            libc::EMFILE | libc::ENFILE | libc::EAGAIN | libc::ENOMEM | libc::ETXTBSY | libc::EINTR
        )
    }

    /// With E2BIG: how large, and which arguments and variables are the largest.
    pub fn largest(&self) -> Option<&TooLarge> {
        self.0.too_large.as_ref()
    }
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fault = &*self.0;
        let what = match fault.step {
            SpawnStep::Command => "use the command",
            SpawnStep::Find => "find the program",
            SpawnStep::Pipe => "make the child's streams",
            SpawnStep::Register => "watch the child",
            SpawnStep::Clone => "make a process",
            SpawnStep::Group => "make a process group",
            SpawnStep::Terminal => "make the child's group the terminal's foreground",
            SpawnStep::Descriptors => "put the child's descriptors in place",
            SpawnStep::Chdir => "enter the working directory",
            SpawnStep::Limits => "set a resource limit",
            SpawnStep::User => "change user or group",
            SpawnStep::Cgroup if fault.path.is_some() => "make a cgroup for the child in",
            SpawnStep::Cgroup => "enter the cgroup",
            SpawnStep::Cookie => "find processes by their cookie in",
            SpawnStep::Exec => "execute the program",
        };
        f.write_str(what)?;
        if let Some(path) = &fault.path {
            write!(f, " {path:?}")?;
        }
        write!(f, ": {}", fault.errno)?;
        if let Some(note) = &fault.note {
            write!(f, ": {note}")?;
        }
        if let Some(sizes) = &fault.too_large {
            write!(f, ": {} bytes in all", sizes.total)?;
            for (name, bytes) in &sizes.largest {
                write!(f, ", {name} {bytes}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SpawnError({}: {self})", self.0.step)
    }
}

impl std::error::Error for SpawnError {}

/// Keeps [`io::Error::raw_os_error`], which an error that carries another one does not have. The
/// step and the path are lost: show the [`SpawnError`] itself where they matter.
impl From<SpawnError> for io::Error {
    fn from(e: SpawnError) -> io::Error {
        io::Error::from_raw_os_error(e.raw_os_error())
    }
}

macro_rules! plain_error {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            pub(crate) attempt: String,
            pub(crate) errno: Option<Errno>,
        }

        impl $name {
            pub(crate) fn new(attempt: impl Into<String>, errno: Option<Errno>) -> $name {
                $name { attempt: attempt.into(), errno }
            }

            /// The error number, if the kernel gave one.
            pub fn raw_os_error(&self) -> Option<i32> {
                self.errno.map(Errno::raw)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.attempt)?;
                match self.errno {
                    Some(errno) => write!(f, ": {errno}"),
                    None => Ok(()),
                }
            }
        }

        impl std::error::Error for $name {}

        /// Keeps [`io::Error::raw_os_error`] where there is an errno.
        impl From<$name> for io::Error {
            fn from(e: $name) -> io::Error {
                match e.errno {
                    Some(errno) => io::Error::from_raw_os_error(errno.raw()),
                    None => io::Error::other(e),
                }
            }
        }
    };
}

plain_error! {
    /// A loop could not be built.
    BuildError
}
plain_error! {
    /// A turn could not be done: the poll set is gone, or this is a forked copy of the host. The loop is of no use any more.
    TurnError
}

/// A command could not be run to its end.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum RunError {
    /// It could not be started.
    Spawn(SpawnError),
    /// The loop could not be built.
    Build(BuildError),
    /// The loop failed while it ran.
    Turn(TurnError),
}

impl RunError {
    /// The error number, if the kernel gave one.
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            RunError::Spawn(e) => Some(e.raw_os_error()),
            RunError::Build(e) => e.raw_os_error(),
            RunError::Turn(e) => e.raw_os_error(),
        }
    }

    /// The program was not found.
    pub fn is_not_found(&self) -> bool {
        matches!(self, RunError::Spawn(e) if e.is_not_found())
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Spawn(e) => e.fmt(f),
            RunError::Build(e) => e.fmt(f),
            RunError::Turn(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for RunError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RunError::Spawn(e) => Some(e),
            RunError::Build(e) => Some(e),
            RunError::Turn(e) => Some(e),
        }
    }
}

impl From<RunError> for io::Error {
    fn from(e: RunError) -> io::Error {
        match e {
            RunError::Spawn(e) => e.into(),
            RunError::Build(e) => e.into(),
            RunError::Turn(e) => e.into(),
        }
    }
}

impl From<SpawnError> for RunError {
    fn from(e: SpawnError) -> RunError {
        RunError::Spawn(e)
    }
}

impl From<TurnError> for RunError {
    fn from(e: TurnError) -> RunError {
        RunError::Turn(e)
    }
}

impl From<BuildError> for RunError {
    fn from(e: BuildError) -> RunError {
        RunError::Build(e)
    }
}

/// A generation could not be let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DetachError {
    /// It has not been started yet (or its spawn has failed).
    NotStarted,
    /// Its group is being killed.
    Killing,
    /// It is closed, was replaced, or belongs to another loop.
    Gone,
    /// This is a forked copy of the host.
    Forked,
}

impl fmt::Display for DetachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DetachError::NotStarted => "detach a generation that has not been started",
            DetachError::Killing => "detach a generation that is being killed",
            DetachError::Gone => "detach a generation that is closed or not of this loop",
            DetachError::Forked => "detach a generation in a forked copy of the host",
        })
    }
}

impl std::error::Error for DetachError {}

impl From<DetachError> for io::Error {
    fn from(e: DetachError) -> io::Error {
        io::Error::other(e)
    }
}

/// Bytes could not be given to a stdin. They come back with the error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FeedError {
    /// Why the bytes were refused.
    pub why: FeedRefusal,
    /// The bytes, untouched.
    pub bytes: Vec<u8>,
}

/// Why bytes were not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FeedRefusal {
    /// The stdin is not fed by the loop, or is closed already.
    Closed,
    /// The generation is closed, was replaced, or belongs to another loop.
    Gone,
}

impl fmt::Display for FeedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.why {
            FeedRefusal::Closed => write!(
                f,
                "feed {} bytes to a stdin that is closed or not ours to write",
                self.bytes.len()
            ),
            FeedRefusal::Gone => write!(
                f,
                "feed {} bytes to a generation that is closed or not of this loop",
                self.bytes.len()
            ),
        }
    }
}

impl std::error::Error for FeedError {}

impl From<FeedError> for io::Error {
    fn from(e: FeedError) -> io::Error {
        io::Error::other(e)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spawn_error_names_step_path_errno_and_sizes() {
        let error = SpawnError::new(SpawnStep::Exec, Errno(libc::E2BIG))
            .at("/bin/true")
            .with_sizes(TooLarge::new(200_000, vec![("BIG".into(), 131_072)]));
        assert_eq!(
            error.to_string(),
            "execute the program \"/bin/true\": Argument list too long (E2BIG): 200000 bytes in all, BIG 131072"
        );
        assert!(!error.is_not_found());
        assert!(SpawnError::new(SpawnStep::Find, Errno(libc::ENOENT)).is_not_found());
        assert!(
            !SpawnError::new(SpawnStep::Exec, Errno(libc::ENOENT))
                .because("the interpreter is missing")
                .is_not_found()
        );
    }
}
