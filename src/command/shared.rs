//! What all runs of one command have in common: made at the first start, and shared by what the
//! loop keeps of each.

use super::Capture;
use super::Containment;
use super::plan::{OutputPlan, Plan};
use crate::lifecycle::SharedConfig;
use crate::text::{LineFunction, Projection};
use crate::types::{LastWordsPolicy, Policy, Stream};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, OnceLock};

/// What a command says besides its plan.
#[derive(Clone, Default)]
pub(crate) struct CommandOptions {
    pub(crate) policy: Policy,
    pub(crate) captures: [Capture; 2],
    pub(crate) last_words: LastWordsPolicy,
    /// If not the loop's.
    pub(crate) projection: Option<Projection>,
    pub(crate) line_function: Option<Arc<LineFunction>>,
}

/// What all runs of a command in one loop share.
pub(crate) struct SharedCommand {
    pub(crate) containment: Containment,
    /// The arguments, `argv[0]` included. Not the plan: that owns descriptors, which must not stay
    /// open for as long as a generation lives.
    argv: Vec<OsString>,
    captured: [bool; 2],
    last_words_stream: Stream,
    pub(crate) config: Arc<SharedConfig>,
    pub(crate) captures: [Capture; 2],
    pub(crate) last_words: LastWordsPolicy,
    /// The only way out for text of its streams and its command line.
    pub(crate) projection: Projection,
    pub(crate) line_function: Option<Arc<LineFunction>>,
    shown: OnceLock<Vec<String>>,
}

impl SharedCommand {
    pub(crate) fn new(
        plan: &Plan,
        options: &CommandOptions,
        projection: &Projection,
        group_signal: bool,
    ) -> SharedCommand {
        SharedCommand {
            containment: plan.contain.clone(),
            argv: plan
                .words()
                .map(|word| OsStr::from_bytes(word).to_os_string())
                .collect(),
            captured: [&plan.stdout, &plan.stderr]
                .map(|output| matches!(output, OutputPlan::Capture { .. })),
            last_words_stream: match &plan.stderr {
                OutputPlan::ToStdout => Stream::Stdout,
                OutputPlan::Capture { .. }
                | OutputPlan::Raw
                | OutputPlan::Inherit
                | OutputPlan::Null
                | OutputPlan::Fd(_) => Stream::Stderr,
            },
            config: Arc::new(SharedConfig::new(options.policy, group_signal)),
            captures: options.captures,
            last_words: options.last_words,
            projection: projection.clone(),
            line_function: options.line_function.clone(),
            shown: OnceLock::new(),
        }
    }

    /// It was made for these.
    pub(crate) fn is_prepared_for(&self, projection: &Projection, group_signal: bool) -> bool {
        self.projection.is_same(projection) && self.config.group_signal() == group_signal
    }

    /// Whether this stream is captured.
    pub(crate) fn captures(&self, stream: Stream) -> bool {
        self.captured[stream.index()]
    }

    /// The stream in which the last words are: stderr, or stdout when both are one pipe.
    pub(crate) fn last_words_stream(&self) -> Stream {
        self.last_words_stream
    }

    /// The command line as safe text, made once.
    pub(crate) fn command_line(&self) -> &[String] {
        self.shown.get_or_init(|| {
            self.projection
                .command_line(self.argv.iter().map(|word| word.as_bytes()))
        })
    }
}

impl fmt::Debug for SharedCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedCommand")
            .field("args", &self.argv.len())
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
