//! A plan as the child needs it: argv, envp, paths to try, and numbers. It is built anew for each
//! start, because the host's environment and PATH are those of the moment, and is dropped after
//! exec.

#![expect(
    unsafe_code,
    reason = "lists of pointers into strings of the same value are shared between threads"
)]

use crate::command::plan::{OutputPlan, Plan, StdinPlan, UserPlan};
use crate::types::{Errno, Signal, SpawnError, SpawnStep};
use std::ffi::{CStr, CString, OsStr, OsString, c_char};
use std::fmt;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Where programs are looked for when nobody has set PATH (confstr(3), _CS_PATH).
const DEFAULT_PATH: &str = "/bin:/usr/bin";
/// The longest name of a file in bytes (limits.h).
const NAME_MAX: usize = 255;

/// C strings with a null-terminated list of pointers to them.
pub(super) struct CStringArray {
    owned: Vec<CString>,
    pointers: Vec<*const c_char>,
}

// SAFETY: the pointers lead to the heap buffers of `owned`, which belong to this value (or to one
// that outlives it) and never change.
unsafe impl Send for CStringArray {}
// SAFETY: as above, and everything is read only.
unsafe impl Sync for CStringArray {}

/// Shows only their number, because values of variables may be secrets.
impl fmt::Debug for CStringArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CStringArray({})", self.owned.len())
    }
}

impl CStringArray {
    fn new(owned: Vec<CString>) -> CStringArray {
        let pointers = owned
            .iter()
            .map(|s| s.as_ptr())
            .chain([std::ptr::null()])
            .collect();
        CStringArray { owned, pointers }
    }

    /// The list, as execve(2) takes it.
    pub(super) fn as_ptr(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }

    /// A list of `first` and then these strings. Only `first` is owned by the new value, so the
    /// owner of `self` must outlive it.
    pub(super) fn after(&self, first: &CStr) -> CStringArray {
        let owned = vec![first.to_owned()];
        let pointers = owned
            .iter()
            .map(|s| s.as_ptr())
            .chain(self.pointers.iter().copied())
            .collect();
        CStringArray { owned, pointers }
    }

    /// The strings, without the array of pointers.
    pub(super) fn list(&self) -> &[CString] {
        &self.owned
    }
}

/// A resource limit of the child.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResourceLimit {
    /// The resource, RLIMIT_*.
    pub resource: u32,
    /// Soft and hard limit, as prlimit64(2) takes them.
    pub values: [u64; 2],
}

/// A plan, ready for the child.
#[derive(Debug)]
pub(super) struct Prepared {
    /// The arguments, `argv[0]` included.
    pub args: CStringArray,
    /// The environment, as `NAME=value`.
    pub env: CStringArray,
    /// Paths to try, in this order.
    pub candidates: Vec<CString>,
    /// Whether the paths come from PATH, because the program has no slash.
    pub searched: bool,
    /// The program, as the host has named it.
    pub program: PathBuf,
    /// The working directory; `None` for the host's.
    pub dir: Option<CString>,
    /// The file mode creation mask; `None` for the host's.
    pub umask: Option<u32>,
    /// Resource limits for setrlimit(2).
    pub limits: Vec<ResourceLimit>,
    /// User and group to change to.
    pub user: UserPlan,
    /// Signals to be ignored, as a kernel signal set.
    pub ignore: u64,
    /// Signals to be blocked, as a kernel signal set.
    pub block: u64,
    /// The signal that the child gets when the host's thread ends.
    pub death: Option<Signal>,
    /// The child's group becomes the foreground of its controlling terminal.
    pub foreground: bool,
    /// Descriptors of the host that are not close-on-exec stay open.
    pub inherit: bool,
    /// No stream is a descriptor that the host has passed, or a raw pipe.
    pub streams_are_the_loops: bool,
    /// Descriptors to pass, as the host's number and the child's.
    pub pass: Vec<(RawFd, RawFd)>,
}

/// The bit of a signal in a kernel signal set.
pub(super) const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

impl Prepared {
    /// Prepares a plan with the host's present environment and PATH.
    pub(super) fn new(plan: &Plan) -> Result<Prepared, SpawnError> {
        if plan.program.is_empty() {
            return Err(refused("the program has no name"));
        }
        let program = c_string(&plan.program, || "the program's name".into())?;
        let searched = !plan.program.as_bytes().contains(&b'/');
        let candidates = if searched {
            candidates(&plan.program, &search_path(plan))?
        } else {
            vec![program.clone()]
        };
        Ok(Prepared {
            args: arguments(plan, program)?,
            env: environment(plan)?,
            candidates,
            searched,
            program: PathBuf::from(&plan.program),
            dir: plan
                .dir
                .as_deref()
                .map(|dir| c_string(dir.as_os_str(), || "the working directory".into()))
                .transpose()?,
            umask: plan.umask,
            limits: plan
                .limits
                .iter()
                .map(|&(resource, soft, hard)| ResourceLimit {
                    resource,
                    values: [soft, hard],
                })
                .collect(),
            user: plan.user,
            ignore: ignored(&plan.ignore)?,
            // The kernel lets KILL and STOP through, whatever the set says (sigprocmask(2)).
            block: plan
                .block
                .iter()
                .fold(0, |set, signal| set | bit(signal.as_raw())),
            death: plan.parent_death,
            foreground: plan.foreground_terminal,
            inherit: plan.inherit_fds,
            streams_are_the_loops: !matches!(plan.stdin, StdinPlan::Fd(_) | StdinPlan::Raw)
                && [&plan.stdout, &plan.stderr]
                    .iter()
                    .all(|output| !matches!(output, OutputPlan::Fd(_) | OutputPlan::Raw)),
            pass: passed(plan)?,
        })
    }

    /// Whether the child needs descriptors of the host besides its streams until exec: passed ones,
    /// or one that a path leads through (/proc/self/fd, /dev/fd).
    pub(super) fn needs_descriptors(&self) -> bool {
        let leads = |path: &CString| {
            path.as_bytes().starts_with(b"/proc") || path.as_bytes().starts_with(b"/dev")
        };
        !self.pass.is_empty()
            || self.dir.as_ref().is_some_and(leads)
            || self.candidates.iter().any(leads)
    }

    /// Whether the user or group changes.
    pub(super) fn changes_user(&self) -> bool {
        self.user != UserPlan::default()
    }
}

fn refused(note: impl Into<String>) -> SpawnError {
    SpawnError::new(SpawnStep::Command, Errno::from_raw(libc::EINVAL)).because(note)
}

fn c_string(text: &OsStr, what: impl FnOnce() -> String) -> Result<CString, SpawnError> {
    CString::new(text.as_bytes()).map_err(|_| refused(format!("there is a NUL byte in {}", what())))
}

fn arguments(plan: &Plan, program: CString) -> Result<CStringArray, SpawnError> {
    let first = match &plan.arg0 {
        Some(arg0) => c_string(arg0, || "argument 0".into())?,
        None => program,
    };
    let rest = plan
        .args
        .iter()
        .enumerate()
        .map(|(n, arg)| c_string(arg, || format!("argument {}", n + 1)));
    Ok(CStringArray::new(
        std::iter::once(Ok(first))
            .chain(rest)
            .collect::<Result<_, _>>()?,
    ))
}

/// The host's variables with the plan's changes, as `NAME=value`. An error tells names, never
/// values.
fn environment(plan: &Plan) -> Result<CStringArray, SpawnError> {
    let hosts = (!plan.env_clear)
        .then(std::env::vars_os)
        .into_iter()
        .flatten();
    let kept = hosts.filter(|(name, _)| !plan.env.contains_key(name));
    let set = plan
        .env
        .iter()
        .filter_map(|(name, value)| Some((name.clone(), value.clone()?)));
    let strings = kept.chain(set).map(|(name, value)| variable(name, value));
    Ok(CStringArray::new(strings.collect::<Result<_, _>>()?))
}

fn variable(name: OsString, value: OsString) -> Result<CString, SpawnError> {
    // As in std, a leading `=` is part of the name.
    let misplaced = name.as_bytes().iter().skip(1).any(|&b| b == b'=');
    if name.is_empty() || misplaced {
        return Err(refused(format!(
            "{:?} cannot be the name of a variable",
            name.to_string_lossy()
        )));
    }
    let name_len = name.len();
    let mut text = name.into_vec();
    text.reserve_exact(value.len() + 2);
    text.push(b'=');
    text.extend_from_slice(value.as_bytes());
    CString::new(text).map_err(|e| {
        let text = e.into_vec();
        let name = String::from_utf8_lossy(text.get(..name_len).unwrap_or_default());
        refused(format!("there is a NUL byte in the variable {name:?}"))
    })
}

/// The plan's PATH, else the host's.
fn search_path(plan: &Plan) -> OsString {
    let own = plan.env.get(OsStr::new("PATH")).cloned().flatten();
    own.or_else(|| std::env::var_os("PATH"))
        .unwrap_or_else(|| DEFAULT_PATH.into())
}

/// The paths to try, as execvp(3) builds them. Entries that are too long for a path are passed
/// over, but a name that is too long for any directory is an error.
fn candidates(program: &OsStr, path: &OsStr) -> Result<Vec<CString>, SpawnError> {
    if program.len() > NAME_MAX {
        return Err(
            SpawnError::new(SpawnStep::Find, Errno::from_raw(libc::ENAMETOOLONG)).at(program),
        );
    }
    path.as_bytes()
        .split(|&b| b == b':')
        .map(|dir| {
            // An empty entry is the working directory. `./` keeps a name with a leading `-` from
            // being an option of an interpreter.
            if dir.is_empty() {
                Path::new(".").join(program)
            } else {
                Path::new(OsStr::from_bytes(dir)).join(program)
            }
        })
        .filter(|path| path.as_os_str().len() < libc::PATH_MAX as usize)
        .map(|path| c_string(path.as_os_str(), || "PATH".into()))
        .collect()
}

fn ignored(signals: &[Signal]) -> Result<u64, SpawnError> {
    let mut set = 0;
    for signal in signals {
        if *signal == Signal::KILL || *signal == Signal::STOP {
            return Err(refused(format!("{signal} cannot be ignored")));
        }
        set |= bit(signal.as_raw());
    }
    Ok(set)
}

fn passed(plan: &Plan) -> Result<Vec<(RawFd, RawFd)>, SpawnError> {
    let mut list: Vec<(RawFd, RawFd)> = Vec::with_capacity(plan.pass.len());
    for (fd, to) in &plan.pass {
        let wrong = |note: String| {
            SpawnError::new(SpawnStep::Descriptors, Errno::from_raw(libc::EINVAL)).because(note)
        };
        if *to < 3 || *to == RawFd::MAX {
            return Err(wrong(format!(
                "a descriptor cannot be passed as number {to}"
            )));
        }
        if list.iter().any(|(_, other)| other == to) {
            return Err(wrong(format!("two descriptors are passed as number {to}")));
        }
        list.push((fd.as_raw_fd(), *to));
    }
    Ok(list)
}

/// The path in a C string.
pub(super) fn path(text: &CStr) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(text.to_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn env_of(plan: &Plan) -> Vec<String> {
        let strings = environment(plan).expect("no NUL");
        strings
            .list()
            .iter()
            .map(|s| s.to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn the_environment_is_the_hosts_with_the_plans_over_it() {
        let mut plan = Plan::new("true".into());
        plan.env.insert("LASTWORDS_NEW".into(), Some("x=y".into()));
        plan.env.insert("PATH".into(), None);
        let env = env_of(&plan);
        assert!(env.contains(&"LASTWORDS_NEW=x=y".to_owned()));
        assert!(!env.iter().any(|s| s.starts_with("PATH=")));
        assert_eq!(
            env.len(),
            std::env::vars_os().filter(|(n, _)| n != "PATH").count() + 1
        );
        plan.env_clear = true;
        assert_eq!(env_of(&plan), ["LASTWORDS_NEW=x=y"]);
    }

    #[test]
    fn the_plans_path_decides_where_a_bare_name_is_looked_for() {
        let mut plan = Plan::new("tool".into());
        plan.env.insert("PATH".into(), Some("/a::b".into()));
        let prepared = Prepared::new(&plan).expect("fine");
        let paths: Vec<PathBuf> = prepared.candidates.iter().map(|c| path(c)).collect();
        assert_eq!(
            paths,
            [
                Path::new("/a/tool"),
                Path::new("./tool"),
                Path::new("b/tool")
            ]
        );
        assert!(prepared.searched);
    }

    /// CASES 71.
    #[test]
    fn an_entry_of_path_that_is_too_long_is_passed_over() {
        let mut plan = Plan::new("tool".into());
        let long = "/d".repeat(libc::PATH_MAX as usize);
        plan.env
            .insert("PATH".into(), Some(format!("/a:{long}:/b").into()));
        let prepared = Prepared::new(&plan).expect("fine");
        let paths: Vec<PathBuf> = prepared.candidates.iter().map(|c| path(c)).collect();
        assert_eq!(paths, [Path::new("/a/tool"), Path::new("/b/tool")]);
        let error = Prepared::new(&Plan::new("n".repeat(256).into())).expect_err("too long");
        assert_eq!(
            (error.step(), error.raw_os_error()),
            (SpawnStep::Find, libc::ENAMETOOLONG)
        );
    }

    #[test]
    fn what_is_no_command_is_told_without_values() {
        let note = |plan: &Plan| {
            let error = Prepared::new(plan).expect_err("refused");
            assert_eq!(error.raw_os_error(), libc::EINVAL);
            (error.step(), error.to_string())
        };
        assert_eq!(note(&Plan::new("".into())).0, SpawnStep::Command);
        let mut plan = Plan::new("true".into());
        plan.args.push("sec\0ret".into());
        let (step, text) = note(&plan);
        assert_eq!(step, SpawnStep::Command);
        assert!(
            text.contains("argument 1") && !text.contains("sec"),
            "{text}"
        );
        let mut plan = Plan::new("true".into());
        plan.env.insert("NAME".into(), Some("sec\0ret".into()));
        let (_, text) = note(&plan);
        assert!(text.contains("NAME") && !text.contains("sec"), "{text}");
        for name in ["", "A=B"] {
            let mut plan = Plan::new("true".into());
            plan.env.insert(name.into(), Some("secret".into()));
            assert!(!note(&plan).1.contains("secret"));
        }
        let mut plan = Plan::new("true".into());
        plan.ignore.push(Signal::KILL);
        assert!(note(&plan).1.contains("KILL cannot be ignored"));
    }

    #[test]
    fn a_descriptor_is_passed_at_one_number_above_the_streams() {
        let null = Arc::new(std::os::fd::OwnedFd::from(
            std::fs::File::open("/dev/null").expect("there"),
        ));
        for pass in [
            vec![(Arc::clone(&null), 2)],
            vec![(Arc::clone(&null), 5), (null, 5)],
        ] {
            let mut plan = Plan::new("true".into());
            plan.pass = pass;
            assert_eq!(
                Prepared::new(&plan).expect_err("refused").step(),
                SpawnStep::Descriptors
            );
        }
    }
}
