//! What a loop has said through `tracing`, in this thread.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// One event: its level, its message, and its fields as `name=value` words.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) level: Level,
    pub(crate) message: String,
    pub(crate) fields: String,
}

/// Keeps every event.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<Line>>>);

impl Log {
    /// Runs `body` with what it says being kept.
    pub(crate) fn of(body: impl FnOnce()) -> Vec<Line> {
        let log = Log::default();
        tracing::subscriber::with_default(log.clone(), body);
        let lines = log.0.lock().expect("nobody panicked while it wrote");
        lines.clone()
    }

    /// The warnings among what `body` says.
    pub(crate) fn warnings_of(body: impl FnOnce()) -> Vec<Line> {
        Log::of(body)
            .into_iter()
            .filter(|line| line.level == Level::WARN)
            .collect()
    }
}

#[derive(Default)]
struct Words {
    message: String,
    fields: String,
}

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let written = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, "{name}={value:?} "),
        };
        written.expect("a string takes everything");
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target().starts_with("lastwords")
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut words = Words::default();
        event.record(&mut words);
        let line = Line {
            level: *event.metadata().level(),
            message: words.message,
            fields: words.fields,
        };
        self.0
            .lock()
            .expect("nobody panicked while it wrote")
            .push(line);
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

/// Panics at every event.
#[derive(Debug)]
pub(crate) struct Panicking;

impl Subscriber for Panicking {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target().starts_with("lastwords")
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, _event: &Event<'_>) {
        panic!("a subscriber that panics");
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}
