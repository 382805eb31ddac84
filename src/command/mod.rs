//! What to run: a builder that makes a [`Plan`] and a [`Policy`], both plain data.

mod containment;
pub mod plan;
pub(crate) mod shared;
mod stdio;

pub use containment::{CgroupOptions, Containment};
pub(crate) use containment::{NO_CGROUP2, cgroup_refused, cookie_refused};
pub use plan::TerminalControl;
pub use stdio::{Capture, Output, Stdin, Transport};

use crate::text::Projection;
use crate::types::{BackgroundPolicy, DrainPolicy, LastWordsPolicy, Signal, StopPolicy, Stream};
use plan::{OutputPlan, Plan, StdinPlan};
use shared::{CommandOptions, SharedCommand};
use std::ffi::OsStr;
use std::fmt;
use std::os::fd::{OwnedFd, RawFd};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A program to run, and how.
///
/// What a new command is:
///
/// * Its process leads a **process group of its own**, so a stop reaches everything that stays in
///   that group, and a `^C` typed at the host's terminal does not reach it.
/// * stdin is /dev/null.
/// * stdout and stderr are captured, each through a pipe of its own. Of each stream the newest 2
///   MiB are kept, and nothing is delivered while it runs ([`Capture`]).
/// * The environment and the working directory are the host's.
/// * The signal mask is empty, and every signal has its default action.
/// * It gets none of the host's descriptors above 2.
/// * There is no time limit, and the drain, stop and background policies are the defaults of
///   [`DrainPolicy`], [`StopPolicy`] and [`BackgroundPolicy`].
///
/// A command can be started many times, on any loop. Clones share what has been prepared until one
/// of them is changed.
///
/// ```
/// use lastwords::{Command, Output};
/// use std::time::Duration;
///
/// let mut command = Command::new("sh");
/// command
///     .args(["-c", "echo $GREETING; echo oops >&2"])
///     .env("GREETING", "hello")
///     .stderr(Output::ToStdout)
///     .run_limit(Duration::from_secs(600));
/// let finished = lastwords::run(&command)?;
/// assert_eq!(finished.stdout.map(|kept| kept.to_vec()).as_deref(), Some(&b"hello\noops\n"[..]));
/// # Ok::<(), lastwords::RunError>(())
/// ```
///
/// `Debug` shows the program, the number of arguments and the names of variables, as safe text. It
/// shows no argument and no value.
#[derive(Clone)]
pub struct Command {
    plan: Arc<Plan>,
    options: CommandOptions,
    pub(crate) input: Option<Arc<[u8]>>,
    /// Made at the first start; nothing of the command may change while it is there.
    shared: OnceLock<Arc<SharedCommand>>,
}

impl Command {
    /// A command that runs `program`.
    ///
    /// A name with a slash in it is a path. Any other name is looked for in the directories of
    /// PATH: the PATH that [`Command::env`] sets, else the host's.
    pub fn new(program: impl AsRef<OsStr>) -> Command {
        Command {
            plan: Arc::new(Plan::new(program.as_ref().to_os_string())),
            options: CommandOptions::default(),
            input: None,
            shared: OnceLock::new(),
        }
    }

    /// A command that runs `sh -c SCRIPT`.
    pub fn shell(script: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("sh");
        command.arg("-c").arg(script);
        command
    }

    fn plan_mut(&mut self) -> &mut Plan {
        self.shared = OnceLock::new();
        Arc::make_mut(&mut self.plan)
    }

    pub(crate) fn options_mut(&mut self) -> &mut CommandOptions {
        self.shared = OnceLock::new();
        &mut self.options
    }

    /// What all its runs have in common, in a loop with this projection and this way to signal
    /// groups.
    pub(crate) fn shared(&self, projection: &Projection, group_signal: bool) -> Arc<SharedCommand> {
        let projection = self.options.projection.as_ref().unwrap_or(projection);
        match self.shared.get() {
            Some(shared) if shared.is_prepared_for(projection, group_signal) => Arc::clone(shared),
            older => {
                let shared = Arc::new(SharedCommand::new(
                    &self.plan,
                    &self.options,
                    projection,
                    group_signal,
                ));
                if older.is_none() {
                    // Refused if another thread was faster: ours is as good.
                    let _ = self.shared.set(Arc::clone(&shared));
                }
                shared
            }
        }
    }

    pub(crate) fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Adds one argument. `argv[0]` is not among them ([`Command::arg0`]).
    pub fn arg(&mut self, arg: impl AsRef<OsStr>) -> &mut Command {
        self.plan_mut().args.push(arg.as_ref().to_os_string());
        self
    }

    /// Adds several arguments, in order.
    pub fn args(&mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> &mut Command {
        self.plan_mut()
            .args
            .extend(args.into_iter().map(|a| a.as_ref().to_os_string()));
        self
    }

    /// Sets `argv[0]`. Default: the program's name as it was given.
    pub fn arg0(&mut self, arg0: impl AsRef<OsStr>) -> &mut Command {
        self.plan_mut().arg0 = Some(arg0.as_ref().to_os_string());
        self
    }

    /// Sets a variable of the child's environment. A PATH that is set here decides where the
    /// program is looked for.
    pub fn env(&mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> &mut Command {
        self.plan_mut().env.insert(
            name.as_ref().to_os_string(),
            Some(value.as_ref().to_os_string()),
        );
        self
    }

    /// Removes a variable that the child would have from the host.
    pub fn env_remove(&mut self, name: impl AsRef<OsStr>) -> &mut Command {
        self.plan_mut()
            .env
            .insert(name.as_ref().to_os_string(), None);
        self
    }

    /// Starts from an empty environment. Variables that were set before this call are dropped too.
    pub fn env_clear(&mut self) -> &mut Command {
        let plan = self.plan_mut();
        plan.env_clear = true;
        plan.env.clear();
        self
    }

    /// Sets the working directory (chdir(2)). Default: the host's. A relative program with a slash
    /// in it is looked for from there. A directory that does not exist is a [`SpawnError`] at
    /// `Step::Chdir`.
    ///
    /// [`SpawnError`]: crate::SpawnError
    pub fn current_dir(&mut self, dir: impl AsRef<Path>) -> &mut Command {
        self.plan_mut().dir = Some(dir.as_ref().to_path_buf());
        self
    }

    /// Sets the file mode creation mask (umask(2)). Default: the host's.
    pub fn umask(&mut self, mask: u32) -> &mut Command {
        self.plan_mut().umask = Some(mask);
        self
    }

    /// Passes a descriptor to the child under this number. Other descriptors above 2 are not
    /// passed, unless [`Command::inherit_fds`] says so.
    pub fn pass_fd(&mut self, fd: OwnedFd, number: RawFd) -> &mut Command {
        self.plan_mut().pass.push((Arc::new(fd), number));
        self
    }

    /// Whether the child also gets every descriptor above 2 that the host has open without
    /// close-on-exec, as a shell passes them. Default: false.
    pub fn inherit_fds(&mut self, inherit: bool) -> &mut Command {
        self.plan_mut().inherit_fds = inherit;
        self
    }

    /// Makes the child ignore this signal from its start, as nohup(1) does with HUP. Every other
    /// signal starts with its default action.
    pub fn ignore_signal(&mut self, signal: Signal) -> &mut Command {
        let plan = self.plan_mut();
        if !plan.ignore.contains(&signal) {
            plan.ignore.push(signal);
        }
        self
    }

    /// Blocks this signal in the child's signal mask. The mask is empty otherwise, whatever the
    /// mask of the thread that starts the child.
    pub fn block_signal(&mut self, signal: Signal) -> &mut Command {
        let plan = self.plan_mut();
        if !plan.block.contains(&signal) {
            plan.block.push(signal);
        }
        self
    }

    /// Sets what the child reads on descriptor 0. Default: [`Stdin::Null`].
    ///
    /// Bytes are written by the loop, and the pipe is closed after the last of them. A child that
    /// does not read stalls nothing.
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
                self.options_mut().captures[stream.index()] = capture;
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

    /// Sets where the child's descriptor 1 goes. Default: captured, the newest 2 MiB kept
    /// ([`Capture::default`]). After the end, [`Finished::stdout`](crate::Finished::stdout) or
    /// [`Reactor::take`](crate::Reactor::take) gives the kept bytes.
    ///
    /// [`Output::ToStdout`] means [`Output::Inherit`] here.
    pub fn stdout(&mut self, stdout: impl Into<Output>) -> &mut Command {
        let plan = self.output(Stream::Stdout, stdout.into());
        self.plan_mut().stdout = plan;
        self
    }

    /// Sets where the child's descriptor 2 goes. Default: captured, the newest 2 MiB kept. The last
    /// words of a report are made from this stream.
    ///
    /// [`Output::ToStdout`] merges it into stdout: one pipe, the order of writes kept, and the last
    /// words are those of the merged stream.
    pub fn stderr(&mut self, stderr: impl Into<Output>) -> &mut Command {
        let plan = self.output(Stream::Stderr, stderr.into());
        self.plan_mut().stderr = plan;
        self
    }

    /// Sets how long the pipes are read after the exit. Default: 2 s without a byte, 5 s in all.
    pub fn drain(&mut self, policy: DrainPolicy) -> &mut Command {
        self.options_mut().policy.drain = policy;
        self
    }

    /// Sets how the command is stopped where a call gives no policy of its own. Default: SIGTERM to
    /// the group, SIGKILL 2 s later.
    pub fn stop(&mut self, policy: StopPolicy) -> &mut Command {
        self.options_mut().policy.stop = policy;
        self
    }

    /// Sets what becomes of processes that outlive the leader. Default:
    /// [`BackgroundPolicy::report_only`].
    pub fn background(&mut self, policy: BackgroundPolicy) -> &mut Command {
        self.options_mut().policy.background = policy;
        self
    }

    /// Sets what can see processes that leave the group. Default: [`Containment::Group`], which
    /// sees none of them.
    pub fn containment(&mut self, containment: Containment) -> &mut Command {
        self.plan_mut().contain = containment;
        self
    }

    /// Sets how many of the last lines of stderr the report keeps. Default: 50 lines.
    pub fn last_words(&mut self, policy: LastWordsPolicy) -> &mut Command {
        self.options_mut().last_words = policy;
        self
    }

    /// Sets how safe text is made of the child's stderr and of the reported command line. Default:
    /// the loop's ([`Builder::projection`](crate::Builder::projection)).
    pub fn projection(&mut self, projection: Projection) -> &mut Command {
        self.options_mut().projection = Some(projection);
        self
    }

    /// Stops the command this long after the spawn, background work included; the outcome is then
    /// [`Outcome::TimedOut`](crate::Outcome::TimedOut). Zero stops it at once. Default: no limit.
    pub fn run_limit(&mut self, limit: impl Into<Option<Duration>>) -> &mut Command {
        self.options_mut().policy.run_limit = limit.into();
        self
    }

    /// Makes the child's group the foreground group of its controlling terminal before exec,
    /// whichever of its streams leads to the terminal (tcsetpgrp(3)). Default: false. The terminal
    /// is taken back as [`Command::terminal`] says.
    pub fn foreground_terminal(&mut self, foreground: bool) -> &mut Command {
        self.plan_mut().foreground_terminal = foreground;
        self
    }

    /// Whether the loop shares the host's controlling terminal with the child as a shell does:
    /// hands it over when the child asks for it, and takes it back. Default:
    /// [`TerminalControl::Automatic`].
    pub fn terminal(&mut self, control: TerminalControl) -> &mut Command {
        self.plan_mut().terminal = control;
        self
    }

    /// Sets a resource limit in the child (setrlimit(2)): the resource (`RLIMIT_*`), the soft limit
    /// and the hard limit.
    pub fn resource_limit(&mut self, resource: u32, soft: u64, hard: u64) -> &mut Command {
        self.plan_mut().limits.push((resource, soft, hard));
        self
    }

    /// Changes the user before exec (setresuid(2)): the real, effective and saved id.
    pub fn uid(&mut self, uid: u32) -> &mut Command {
        self.plan_mut().user.uid = Some(uid);
        self
    }

    /// Changes the group before exec (setresgid(2)) and drops the supplementary groups.
    pub fn gid(&mut self, gid: u32) -> &mut Command {
        self.plan_mut().user.gid = Some(gid);
        self
    }

    pub(crate) fn feeds_stdin(&self) -> bool {
        matches!(self.plan.stdin, StdinPlan::Feed)
    }

    /// Why nobody could end this command if the host does nothing but wait for it, if that is so.
    pub(crate) fn why_host_is_needed(&self) -> Option<&'static str> {
        match (&self.plan.stdin, &self.plan.stdout, &self.plan.stderr) {
            (StdinPlan::Feed, _, _) if self.input.is_none() => {
                Some("its stdin is to be fed, and a call that runs to the end feeds nothing")
            }
            (StdinPlan::Raw, _, _) => Some(
                "its raw stdin is to be taken, and a call that runs to the end gives it out to nobody",
            ),
            (_, OutputPlan::Raw, _) | (_, _, OutputPlan::Raw) => Some(
                "its raw output is to be taken, and a call that runs to the end gives it out to nobody",
            ),
            _ => None,
        }
    }

    /// The same, with nothing delivered (for [`Reactor::run`](crate::Reactor::run), which nobody
    /// pops events from).
    pub(crate) fn undelivered(&self) -> Command {
        let mut command = self.clone();
        for capture in &mut command.options_mut().captures {
            capture.deliver = false;
        }
        command
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let projection = self.options.projection.clone().unwrap_or_default();
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
            .field("policy", &self.options.policy)
            .finish_non_exhaustive()
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
}
