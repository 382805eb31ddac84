//! The command line: options, their defaults, and what is refused.

use super::mapping::{self, ExitMapping, SignalMapping};
use super::units;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use lastwords::{
    BackendChoice, BackgroundPolicy, Bound, CgroupOptions, Containment, ExitSourceChoice,
    Projection, Signal, Wait,
};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

/// Runs other programs and tells the truth about how each one ended.
#[derive(Debug, Parser)]
#[command(name = "lastwords", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run one command, pass its output through, and say how it ended.
    #[command(after_help = STATUSES)]
    Run(Box<RunArgs>),
}

/// Help text for exit codes, durations and environment variables.
const STATUSES: &str = "\
Exit status: that of the command; 128+N if signal N ended it (INT and QUIT end lastwords the same way); 124 after \
--timeout (unless the command had ended before with a status that is not 0: then that one); 123 if the command returned 0 \
and its background work did not finish (not with --background report or ignore); 125 if lastwords itself failed; \
126 if the command can't be executed; 127 if it isn't found.

DUR is 500ms, 1.5s, 2m, 1h30m, 0 or infinite (--timeout takes no 0). Two pipes give up the order between stdout and stderr: \
--merge keeps it.

Environment: LASTWORDS_LOG=off|error|warn|info|debug|trace writes the library's own log to stderr (default: off). NO_COLOR \
turns off the colours of --color auto.";

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) bounds: BoundArgs,
    #[command(flatten)]
    pub(crate) background: BackgroundArgs,
    #[command(flatten)]
    pub(crate) child: ChildArgs,
    #[command(flatten)]
    pub(crate) status: StatusArgs,
    #[command(flatten)]
    pub(crate) reporting: ReportingArgs,
    #[command(flatten)]
    pub(crate) kernel: KernelArgs,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Time limits and how a stop goes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Bounds")]
pub(crate) struct BoundArgs {
    /// After the exit, stop reading when no byte has come for this long
    #[arg(long, value_name = "DUR", default_value = "2s", value_parser = units::parse_bound)]
    pub(crate) drain_idle: Bound,
    /// After the exit, stop reading after this long, even if bytes still come
    #[arg(long, value_name = "DUR", default_value = "5s", value_parser = units::parse_bound)]
    pub(crate) drain_limit: Bound,
    /// The first signal of a stop
    #[arg(long, value_name = "SIG", default_value = "TERM", value_parser = signal)]
    pub(crate) stop_signal: Signal,
    /// Time from that signal to SIGKILL
    #[arg(long, value_name = "DUR", default_value = "2s", value_parser = units::parse_bound)]
    pub(crate) stop_grace: Bound,
    /// Stop the run, and what it left, after this long (not 0)
    #[arg(long, value_name = "DUR", value_parser = units::parse_limit)]
    pub(crate) timeout: Option<Bound>,
}

impl BoundArgs {
    /// How long the run may take, or `None` without a limit.
    pub(crate) fn time_limit(&self) -> Option<Duration> {
        self.timeout.and_then(Bound::duration)
    }
}

/// What happens to processes that outlive the command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Background work")]
pub(crate) struct BackgroundArgs {
    /// Wait for background work, list it and leave it running, end it without a wait, or do not
    /// look for any
    #[arg(long = "background", value_name = "WAY", default_value = "wait")]
    pub(crate) choice: BackgroundChoice,
    /// Processes still alive this long after the exit are background work
    #[arg(long, value_name = "DUR", default_value = "2s", value_parser = units::parse_bound)]
    pub(crate) background_grace: Bound,
    /// How long to wait for background work
    #[arg(long, value_name = "DUR", default_value = "30m", value_parser = units::parse_bound)]
    pub(crate) background_wait: Bound,
    /// Time from TERM to SIGKILL for work that outlives the wait
    #[arg(long, value_name = "DUR", default_value = "5s", value_parser = units::parse_bound)]
    pub(crate) terminate_grace: Bound,
    /// Leave work that outlives the wait running (not with --background terminate)
    #[arg(long)]
    pub(crate) keep_orphans: bool,
    /// How processes that leave the process group are found: group (they are not), cookie, cgroup,
    /// or cgroup=DIR [default: group; with --init cookie]
    #[arg(long, value_name = "BY", value_parser = OsStringValueParser::new().try_map(containment))]
    pub(crate) contain: Option<Containment>,
    /// For a container's first process: reap inherited processes, and count those that descend
    /// from the command as background work
    #[arg(long)]
    pub(crate) init: bool,
}

impl BackgroundArgs {
    /// How the command is contained.
    pub(crate) fn containment(&self) -> Containment {
        match &self.contain {
            Some(containment) => containment.clone(),
            None if self.init => Containment::Cookie,
            None => Containment::Group,
        }
    }

    /// The policy that the options describe, or an error if they contradict each other.
    pub(crate) fn policy(&self) -> Result<BackgroundPolicy, String> {
        let time = |bound: Bound| bound.duration().unwrap_or(Duration::MAX);
        let policy = BackgroundPolicy::settle()
            .grace(time(self.background_grace))
            .terminate_grace(time(self.terminate_grace));
        match (self.choice, self.keep_orphans) {
            (BackgroundChoice::Wait, keep) => Ok(policy
                .wait(Wait::For(time(self.background_wait)))
                .keep_orphans(keep)),
            (BackgroundChoice::Report, _) => Ok(policy.wait(Wait::ReportOnly)),
            (BackgroundChoice::Terminate, false) => Ok(policy.wait(Wait::For(Duration::ZERO))),
            (BackgroundChoice::Terminate, true) => {
                Err("--keep-orphans and --background terminate contradict each other".into())
            }
            (BackgroundChoice::Ignore, _) => Ok(BackgroundPolicy::disabled()),
        }
    }
}

/// The command's environment, descriptors and working directory.
#[derive(Debug, Args)]
#[command(next_help_heading = "The command's surroundings")]
pub(crate) struct ChildArgs {
    /// Use one pipe for stdout and stderr, which keeps their order
    #[arg(long)]
    pub(crate) merge: bool,
    /// Where the command's stdin comes from
    #[arg(long, value_name = "FROM", default_value = "inherit")]
    pub(crate) stdin: StdinChoice,
    /// Where the command's stdout goes: through lastwords, or straight to lastwords' own stdout,
    /// so that the command sees a terminal there (nothing of it is kept for the report)
    #[arg(long, value_name = "TO", default_value = "pipe")]
    pub(crate) stdout: OutputChoice,
    /// The same for stderr (the report then has no last words)
    #[arg(
        long,
        value_name = "TO",
        default_value = "pipe",
        conflicts_with = "merge"
    )]
    pub(crate) stderr: OutputChoice,
    /// Pass a signal to lastwords on as another, or not at all (FROM:0); one mapped from TERM
    /// begins a stop with that signal
    #[arg(long, value_name = "FROM:TO", value_delimiter = ',', value_parser = mapping::parse_signal)]
    pub(crate) map_signal: Vec<SignalMapping>,
    /// Working directory of the command
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Set a variable; --env PATH= decides where the command is looked for
    #[arg(long, value_name = "K=V", value_parser = OsStringValueParser::new().try_map(variable))]
    pub(crate) env: Vec<(OsString, OsString)>,
    /// Remove a variable (before --env sets any)
    #[arg(long, value_name = "K", value_parser = OsStringValueParser::new().try_map(name))]
    pub(crate) unset: Vec<OsString>,
    /// Close descriptors above 2 that lastwords was started with; by default they are passed on
    #[arg(long)]
    pub(crate) close_fds: bool,
}

/// The exit code of lastwords.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Exit status")]
pub(crate) struct StatusArgs {
    /// After --timeout, end with the command's own status instead of 124
    #[arg(long)]
    pub(crate) preserve_status: bool,
    /// End with another status in place of the command's, such as 143:0; the report keeps the
    /// command's
    #[arg(long, value_name = "FROM:TO", value_delimiter = ',', value_parser = mapping::parse_exit)]
    pub(crate) map_exit: Vec<ExitMapping>,
}

/// What is kept and reported.
#[derive(Debug, Args)]
#[command(next_help_heading = "What is told")]
pub(crate) struct ReportingArgs {
    /// Write the report as one JSON object; - writes it as a line on stdout
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// How many of the last lines of stderr the report contains
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) tail_lines: usize,
    /// How many of the last bytes of each stream are kept for the report
    #[arg(long, value_name = "N", default_value = "2MiB", value_parser = units::parse_size)]
    pub(crate) tail_bytes: u64,
    /// Write the last words (at most 4096 bytes) to the file that Kubernetes reads
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "/dev/termination-log")]
    pub(crate) termination_log: Option<PathBuf>,
    /// Redact the value of this variable in everything that lastwords writes itself; output of the
    /// command is never changed (repeatable)
    #[arg(long, value_name = "NAME")]
    pub(crate) secret: Vec<OsString>,
    /// Redact nothing; the report says so (not with --secret)
    #[arg(long, conflicts_with = "secret")]
    pub(crate) no_redact: bool,
    /// Print no summary and nothing about the drain or background work; failures are still printed
    #[arg(long)]
    pub(crate) quiet: bool,
    /// When the summary has colours
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Color,
}

impl ReportingArgs {
    /// Builds the projection that makes text safe to show. The error names the secret that cannot
    /// be registered, never its value. `lookup` returns the values of a variable.
    pub(crate) fn projection(
        &self,
        lookup: impl Fn(&OsStr) -> Vec<OsString>,
    ) -> Result<Projection, String> {
        let mut builder = Projection::builder();
        builder.redact(!self.no_redact);
        for (place, name) in self.secret.iter().enumerate() {
            let values = lookup(name);
            if values.is_empty() {
                // The name is not shown: somebody may have passed the secret itself.
                let (place, all) = (place + 1, self.secret.len());
                return Err(format!(
                    "--secret ({place} of {all}): no such variable is set (it takes a name, not the value)"
                ));
            }
            for value in values {
                builder
                    .secret(value.as_bytes())
                    .map_err(|e| format!("--secret {name:?}: failed to {e}"))?;
            }
        }
        builder.build().map_err(|e| format!("failed to {e}"))
    }
}

/// Which kernel interfaces are used.
#[derive(Debug, Args)]
#[command(next_help_heading = "Kernel interfaces")]
pub(crate) struct KernelArgs {
    /// The poll set
    #[arg(long, value_name = "WAY", default_value = "auto")]
    pub(crate) backend: BackendArg,
    /// How the exit of the command is noticed
    #[arg(long, value_name = "WAY", default_value = "auto")]
    pub(crate) exit_source: ExitSourceArg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackgroundChoice {
    Wait,
    Report,
    Terminate,
    Ignore,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StdinChoice {
    Inherit,
    Null,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputChoice {
    Pipe,
    Inherit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackendArg {
    Auto,
    Epoll,
    Uring,
}

impl From<BackendArg> for BackendChoice {
    fn from(way: BackendArg) -> BackendChoice {
        match way {
            BackendArg::Auto => BackendChoice::Auto,
            BackendArg::Epoll => BackendChoice::Epoll,
            BackendArg::Uring => BackendChoice::Uring,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExitSourceArg {
    Auto,
    Pidfd,
    Sigchld,
}

impl From<ExitSourceArg> for ExitSourceChoice {
    fn from(way: ExitSourceArg) -> ExitSourceChoice {
        match way {
            ExitSourceArg::Auto => ExitSourceChoice::Auto,
            ExitSourceArg::Pidfd => ExitSourceChoice::Pidfd,
            ExitSourceArg::Sigchld => ExitSourceChoice::Sigchld,
        }
    }
}

fn signal(text: &str) -> Result<Signal, String> {
    Signal::from_name(text).ok_or_else(|| {
        "not a signal: expected a name such as TERM, or a number from 1 to 64".into()
    })
}

fn containment(text: OsString) -> Result<Containment, String> {
    match text.as_bytes() {
        b"group" => Ok(Containment::Group),
        b"cookie" => Ok(Containment::Cookie),
        b"cgroup" => Ok(Containment::Cgroup(CgroupOptions::default())),
        bytes => match bytes
            .strip_prefix(b"cgroup=")
            .filter(|path| !path.is_empty())
        {
            Some(path) => Ok(Containment::Cgroup(
                CgroupOptions::default().parent(OsStr::from_bytes(path)),
            )),
            None => Err("expected group, cookie, cgroup or cgroup=DIR".into()),
        },
    }
}

fn variable(text: OsString) -> Result<(OsString, OsString), String> {
    let bytes = text.as_bytes();
    match bytes.iter().position(|b| *b == b'=') {
        Some(at) if at > 0 => {
            let (key, value) = (
                OsStr::from_bytes(&bytes[..at]),
                OsStr::from_bytes(&bytes[at + 1..]),
            );
            Ok((key.to_os_string(), value.to_os_string()))
        }
        Some(_) | None => Err("expected NAME=VALUE".into()),
    }
}

fn name(text: OsString) -> Result<OsString, String> {
    if text.is_empty() || text.as_bytes().contains(&b'=') {
        Err("not the name of a variable".into())
    } else {
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<RunArgs, clap::Error> {
        let words = ["lastwords", "run"].iter().chain(args);
        Cli::try_parse_from(words).map(|cli| match cli.verb {
            Verb::Run(run) => *run,
        })
    }

    #[test]
    fn the_definition_is_sound() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn what_stands_after_the_dashes_is_the_commands_own() {
        let run = parse(&[
            "--timeout",
            "1m",
            "--",
            "make",
            "--timeout",
            "2s",
            "--",
            "x",
        ])
        .expect("well formed");
        assert_eq!(run.command, ["make", "--timeout", "2s", "--", "x"]);
        assert_eq!(
            run.bounds.timeout,
            Some(Bound::After(std::time::Duration::from_secs(60)))
        );
    }

    #[test]
    fn wrong_use_is_refused() {
        for args in [
            &["--"][..],
            &["true"],
            &["--nope", "--", "true"],
            &["--timeout", "0", "--", "true"],
            &["--stop-signal", "NOPE", "--", "true"],
            &["--env", "=x", "--", "true"],
            &["--env", "x", "--", "true"],
            &["--unset", "a=b", "--", "true"],
            &["--tail-bytes", "2MB", "--", "true"],
            &["--stdin", "file", "--", "true"],
            &["--stdout", "null", "--", "true"],
            &["--merge", "--stderr", "inherit", "--", "true"],
            &["--map-signal", "TERM", "--", "true"],
            &["--map-signal", "KILL:TERM", "--", "true"],
            &["--map-exit", "143", "--", "true"],
            &["--background", "nope", "--", "true"],
            &["--terminate-grace", "1", "--", "true"],
            &["--contain", "nope", "--", "true"],
            &["--contain", "cgroup=", "--", "true"],
            &["--secret", "X", "--no-redact", "--", "true"],
        ] {
            assert!(parse(args).is_err(), "{args:?} was taken");
        }
    }

    #[test]
    fn options_of_background_work_come_to_one_policy() {
        let policy = |args: &[&str]| {
            parse(&[args, &["--", "true"]].concat())
                .expect("well formed")
                .background
                .policy()
        };
        let seconds = Duration::from_secs;
        assert_eq!(policy(&[]), Ok(BackgroundPolicy::settle().resolve()));
        assert_eq!(
            policy(&["--background", "ignore"]),
            Ok(BackgroundPolicy::disabled())
        );
        assert_eq!(
            policy(&["--background", "report"]).map(|p| p.wait),
            Ok(Some(Wait::ReportOnly))
        );
        assert_eq!(
            policy(&["--background", "terminate"]).map(|p| p.wait),
            Ok(Some(Wait::For(Duration::ZERO)))
        );
        assert_eq!(
            policy(&["--background-wait", "infinite"]).map(|p| p.wait),
            Ok(Some(Wait::For(Duration::MAX)))
        );
        let all = [
            "--background-grace",
            "0",
            "--background-wait",
            "3s",
            "--terminate-grace",
            "4s",
            "--keep-orphans",
        ];
        let expected = BackgroundPolicy::settle()
            .grace(Duration::ZERO)
            .wait(Wait::For(seconds(3)))
            .terminate_grace(seconds(4));
        assert_eq!(policy(&all), Ok(expected.keep_orphans(true)));
        assert!(policy(&["--background", "terminate", "--keep-orphans"]).is_err());
    }

    #[test]
    fn what_contains_the_command_is_named_and_init_means_the_cookie() {
        let contains = |args: &[&str]| {
            parse(&[args, &["--", "true"]].concat())
                .expect("well formed")
                .background
                .containment()
        };
        assert_eq!(contains(&[]), Containment::Group);
        assert_eq!(contains(&["--init"]), Containment::Cookie);
        assert_eq!(
            contains(&["--init", "--contain", "group"]),
            Containment::Group
        );
        assert_eq!(
            contains(&["--contain", "cgroup"]),
            Containment::Cgroup(CgroupOptions::default())
        );
        assert_eq!(
            contains(&["--contain", "cgroup=/c"]),
            Containment::Cgroup(CgroupOptions::default().parent("/c"))
        );
    }

    #[test]
    fn the_termination_log_is_where_kubernetes_reads_it_unless_told_otherwise() {
        let log = |args: &[&str]| {
            parse(&[args, &["--", "true"]].concat())
                .expect("well formed")
                .reporting
                .termination_log
        };
        assert_eq!(log(&[]), None);
        assert_eq!(
            log(&["--termination-log"]),
            Some("/dev/termination-log".into())
        );
        assert_eq!(log(&["--termination-log", "x"]), Some("x".into()));
    }

    #[test]
    fn a_value_may_be_empty_and_hold_equal_signs() {
        let run = parse(&[
            "--env", "A=", "--env", "B=c=d", "--unset", "C", "--", "true",
        ])
        .expect("well formed");
        assert_eq!(
            run.child.env,
            [("A".into(), "".into()), ("B".into(), "c=d".into())]
        );
        assert_eq!(run.child.unset, ["C"]);
    }
}
