//! What all runs of one command have in common: made at the first start, and shared by what the
//! loop keeps of each.

use super::Capture;
use super::plan::{OutputPlan, Plan};
use crate::lifecycle::SharedConfig;
use crate::text::{LineFunction, Projection};
use crate::types::{LastWordsPolicy, Policy, Stream};
use std::fmt;
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
    pub(crate) plan: Arc<Plan>,
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
        plan: &Arc<Plan>,
        options: &CommandOptions,
        projection: &Projection,
        group_signal: bool,
    ) -> SharedCommand {
        SharedCommand {
            plan: Arc::clone(plan),
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
        let plan = match stream {
            Stream::Stdout => &self.plan.stdout,
            Stream::Stderr => &self.plan.stderr,
        };
        matches!(plan, OutputPlan::Capture { .. })
    }

    /// The stream in which the last words are: stderr, or stdout when both are one pipe.
    pub(crate) fn last_words_stream(&self) -> Stream {
        match &self.plan.stderr {
            OutputPlan::ToStdout => Stream::Stdout,
            OutputPlan::Capture { .. }
            | OutputPlan::Raw
            | OutputPlan::Inherit
            | OutputPlan::Null
            | OutputPlan::Fd(_) => Stream::Stderr,
        }
    }

    /// The command line as safe text, made once.
    pub(crate) fn command_line(&self) -> &[String] {
        self.shown
            .get_or_init(|| self.projection.command_line(self.plan.words()))
    }
}

impl fmt::Debug for SharedCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedCommand")
            .field("plan", &self.plan)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
