//! What to run: a builder that makes a [`Plan`] and a [`Policy`], both plain data.

mod containment;
pub mod plan;
pub(crate) mod shared;
mod stdio;

pub use containment::{CgroupOptions, Containment};
pub(crate) use containment::{NO_CGROUP2, cgroup_refused};
pub use stdio::{Capture, Output, Stdin, Transport};

use crate::text::Projection;
use crate::types::{BackgroundPolicy, DrainPolicy, LastWordsPolicy, Signal, StopPolicy, Stream};
use plan::{OutputPlan, Plan, StdinPlan};
use shared::{Run, Said};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::fd::{OwnedFd, RawFd};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// One command and how it is to be run. Can be run many times; a clone shares what has been
/// prepared.
///
/// ```
/// use lastwords::{Capture, Command, Output};
/// use std::time::Duration;
/// let mut command = Command::new("make");
/// command.arg("-j4").env("LANG", "C").stderr(Output::ToStdout).stdout(Capture::default().max_bytes(64 << 10));
/// command.run_limit(Duration::from_secs(600));
/// ```
///
/// Its `Debug` shows names of variables, never values, and no arguments.
#[derive(Clone)]
pub struct Command {
    plan: Arc<Plan>,
    said: Said,
    pub(crate) input: Option<Arc<[u8]>>,
    /// Made at the first start; nothing of the command may change while it is there.
    run: OnceLock<Arc<Run>>,
}

impl Command {
    /// This program: a path if there is a slash in it, else looked for in PATH.
    pub fn new(program: impl AsRef<OsStr>) -> Command {
        Command {
            plan: Arc::new(Plan::new(program.as_ref().to_os_string())),
            said: Said::default(),
            input: None,
            run: OnceLock::new(),
        }
    }

    /// `sh -c SCRIPT`.
    pub fn shell(script: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("sh");
        command.arg("-c").arg(script);
        command
    }

    fn plan_mut(&mut self) -> &mut Plan {
        self.run = OnceLock::new();
        let plan = Arc::make_mut(&mut self.plan);
        plan.prepared = OnceLock::new();
        plan
    }

    pub(crate) fn said_mut(&mut self) -> &mut Said {
        self.run = OnceLock::new();
        &mut self.said
    }

    /// What all its runs have in common, in a loop with this projection and this way to signal
    /// groups.
    pub(crate) fn run(&self, projection: &Projection, group_signal: bool) -> Arc<Run> {
        let projection = self.said.projection.as_ref().unwrap_or(projection);
        match self.run.get() {
            Some(run) if run.is_for(projection, group_signal) => Arc::clone(run),
            older => {
                let run = Arc::new(Run::new(&self.plan, &self.said, projection, group_signal));
                if older.is_none() {
                    // Refused if another thread was faster: ours is as good.
                    let _ = self.run.set(Arc::clone(&run));
                }
                run
            }
        }
    }

    pub(crate) fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Adds an argument.
    pub fn arg(&mut self, arg: impl AsRef<OsStr>) -> &mut Command {
        self.plan_mut().args.push(arg.as_ref().to_os_string());
        self
    }

    /// Adds arguments.
    pub fn args(&mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> &mut Command {
        self.plan_mut()
            .args
            .extend(args.into_iter().map(|a| a.as_ref().to_os_string()));
        self
    }

    /// `argv[0]`, if it is not the program.
    pub fn arg0(&mut self, arg0: impl AsRef<OsStr>) -> &mut Command {
        self.plan_mut().arg0 = Some(arg0.as_ref().to_os_string());
        self
    }

    /// Sets a variable. A PATH set here decides where the program is looked for.
    pub fn env(&mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> &mut Command {
        self.plan_mut().env.insert(
            name.as_ref().to_os_string(),
            Some(value.as_ref().to_os_string()),
        );
        self
    }

    /// Removes a variable.
    pub fn env_remove(&mut self, name: impl AsRef<OsStr>) -> &mut Command {
        self.plan_mut()
            .env
            .insert(name.as_ref().to_os_string(), None);
        self
    }

    /// Begins with no variables at all, those set so far included.
    pub fn env_clear(&mut self) -> &mut Command {
        let plan = self.plan_mut();
        plan.env_clear = true;
        plan.env.clear();
        self
    }

    /// The working directory. A relative program with a slash in it is looked for from there.
    pub fn current_dir(&mut self, dir: impl AsRef<Path>) -> &mut Command {
        self.plan_mut().dir = Some(dir.as_ref().to_path_buf());
        self
    }

    /// umask(2).
    pub fn umask(&mut self, mask: u32) -> &mut Command {
        self.plan_mut().umask = Some(mask);
        self
    }

    /// Passes a descriptor, under this number. Nothing else above 2 is passed on.
    pub fn pass_fd(&mut self, fd: OwnedFd, number: RawFd) -> &mut Command {
        self.plan_mut().pass.push((Arc::new(fd), number));
        self
    }

    /// Passes on what the host has open above 2 and not close-on-exec, as a shell does. Default no.
    pub fn inherit_fds(&mut self, inherit: bool) -> &mut Command {
        self.plan_mut().inherit_fds = inherit;
        self
    }

    /// Ignores this signal in the child, as nohup(1) does with HUP. All others begin with their
    /// default action.
    pub fn ignore_signal(&mut self, signal: Signal) -> &mut Command {
        let plan = self.plan_mut();
        if !plan.ignore.contains(&signal) {
            plan.ignore.push(signal);
        }
        self
    }

    /// Leaves this signal blocked in the child. The mask is empty otherwise.
    pub fn block_signal(&mut self, signal: Signal) -> &mut Command {
        let plan = self.plan_mut();
        if !plan.block.contains(&signal) {
            plan.block.push(signal);
        }
        self
    }

    /// stdin.
    pub fn stdin(&mut self, stdin: impl Into<Stdin>) -> &mut Command {
        self.input = None;
        let plan = match stdin.into() {
            Stdin::Null => StdinPlan::Null,
            Stdin::Inherit => StdinPlan::Inherit,
            Stdin::Bytes(bytes) => {
                self.input = Some(bytes.into());
                StdinPlan::Feed
            }
            Stdin::Feed => StdinPlan::Feed,
            Stdin::Raw => StdinPlan::Raw,
            Stdin::Fd(fd) => StdinPlan::Fd(Arc::new(fd)),
        };
        self.plan_mut().stdin = plan;
        self
    }

    fn output(&mut self, stream: Stream, output: Output) -> OutputPlan {
        match output {
            Output::Capture(capture) => {
                self.said_mut().captures[stream.index()] = capture;
                OutputPlan::Capture {
                    pipe: capture.pipe,
                    transport: capture.transport,
                }
            }
            Output::Raw => OutputPlan::Raw,
            Output::Inherit => OutputPlan::Inherit,
            Output::Null => OutputPlan::Null,
            Output::Fd(fd) => OutputPlan::Fd(Arc::new(fd)),
            Output::ToStdout => match stream {
                Stream::Stdout => OutputPlan::Inherit,
                Stream::Stderr => OutputPlan::ToStdout,
            },
        }
    }

    /// stdout.
    pub fn stdout(&mut self, stdout: impl Into<Output>) -> &mut Command {
        let plan = self.output(Stream::Stdout, stdout.into());
        self.plan_mut().stdout = plan;
        self
    }

    /// stderr.
    pub fn stderr(&mut self, stderr: impl Into<Output>) -> &mut Command {
        let plan = self.output(Stream::Stderr, stderr.into());
        self.plan_mut().stderr = plan;
        self
    }

    /// The bounds of the drain.
    pub fn drain(&mut self, policy: DrainPolicy) -> &mut Command {
        self.said_mut().policy.drain = policy;
        self
    }

    /// How it is stopped when nothing else is said.
    pub fn stop(&mut self, policy: StopPolicy) -> &mut Command {
        self.said_mut().policy.stop = policy;
        self
    }

    /// What becomes of work that outlives its leader.
    pub fn background(&mut self, policy: BackgroundPolicy) -> &mut Command {
        self.said_mut().policy.background = policy;
        self
    }

    /// What can see its processes. Default: [`Containment::Group`].
    pub fn containment(&mut self, containment: Containment) -> &mut Command {
        self.plan_mut().contain = containment;
        self
    }

    /// How many of the last words are kept.
    pub fn last_words(&mut self, policy: LastWordsPolicy) -> &mut Command {
        self.said_mut().last_words = policy;
        self
    }

    /// How safe text is made of its stderr and its command line, if not as the loop says
    /// ([`Builder::projection`](crate::Builder::projection)).
    pub fn projection(&mut self, projection: Projection) -> &mut Command {
        self.said_mut().projection = Some(projection);
        self
    }

    /// Stops it (outcome `TimedOut`) this long after the spawn. Zero stops it at once.
    pub fn run_limit(&mut self, limit: impl Into<Option<Duration>>) -> &mut Command {
        self.said_mut().policy.run_limit = limit.into();
        self
    }

    /// Makes the child's group the foreground of the terminal at its descriptor 0, before exec
    /// (tcsetpgrp(3)).
    pub fn foreground_terminal(&mut self, foreground: bool) -> &mut Command {
        self.plan_mut().foreground_terminal = foreground;
        self
    }

    /// setrlimit(2) in the child: a resource (RLIMIT_*), its soft and its hard limit.
    pub fn resource_limit(&mut self, resource: u32, soft: u64, hard: u64) -> &mut Command {
        self.plan_mut().limits.push((resource, soft, hard));
        self
    }

    /// setresuid(2) in the child.
    pub fn uid(&mut self, uid: u32) -> &mut Command {
        self.plan_mut().user.uid = Some(uid);
        self
    }

    /// setresgid(2) in the child; its supplementary groups are dropped.
    pub fn gid(&mut self, gid: u32) -> &mut Command {
        self.plan_mut().user.gid = Some(gid);
        self
    }

    pub(crate) fn feeds_stdin(&self) -> bool {
        matches!(self.plan.stdin, StdinPlan::Feed)
    }

    /// The same, with nothing delivered (for [`Reactor::run`](crate::Reactor::run), which nobody
    /// pops events from).
    pub(crate) fn undelivered(&self) -> Command {
        let mut command = self.clone();
        for capture in &mut command.said_mut().captures {
            capture.deliver = false;
        }
        command
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let projection = self.said.projection.clone().unwrap_or_default();
        let shown = |text: &OsStr| projection.text(&text.to_string_lossy());
        f.debug_struct("Command")
            .field("program", &shown(&self.plan.program))
            .field("args", &self.plan.args.len())
            .field(
                "env",
                &self
                    .plan
                    .env
                    .keys()
                    .map(|name| shown(name))
                    .collect::<Vec<_>>(),
            )
            .field(
                "dir",
                &self.plan.dir.as_deref().map(|dir| shown(dir.as_os_str())),
            )
            .field("policy", &self.said.policy)
            .finish_non_exhaustive()
    }
}

/// Program, arguments, variables and directory. Its stdio cannot be read back and is as
/// [`Command::new`] makes it.
impl From<&std::process::Command> for Command {
    fn from(std: &std::process::Command) -> Command {
        let mut command = Command::new(std.get_program());
        command.args(std.get_args());
        for (name, value) in std.get_envs() {
            command
                .plan_mut()
                .env
                .insert(name.to_os_string(), value.map(OsString::from));
        }
        if let Some(dir) = std.get_current_dir() {
            command.current_dir(dir);
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_environment_are_never_shown() {
        let mut command = Command::new("true");
        command.env("API", "hunter2-secret").arg("x");
        let shown = format!("{command:?}");
        assert!(shown.contains("API"), "{shown}");
        assert!(!shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn a_changed_clone_leaves_the_other_as_it_was() {
        let mut one = Command::new("echo");
        one.arg("a");
        let mut two = one.clone();
        two.arg("b");
        assert_eq!(one.plan().args.len(), 1);
        assert_eq!(two.plan().args.len(), 2);
    }

    #[test]
    fn program_arguments_variables_and_directory_are_taken_from_std() {
        let mut std = std::process::Command::new("make");
        std.args(["-j", "4"])
            .env("A", "1")
            .env_remove("B")
            .current_dir("/tmp");
        let command = Command::from(&std);
        let plan = command.plan();
        assert_eq!(
            plan.words()
                .map(|word| String::from_utf8_lossy(word))
                .collect::<Vec<_>>(),
            ["make", "-j", "4"]
        );
        assert_eq!(plan.env.get(OsStr::new("A")), Some(&Some("1".into())));
        assert_eq!(plan.env.get(OsStr::new("B")), Some(&None));
        assert_eq!(plan.dir.as_deref(), Some(Path::new("/tmp")));
    }
}
