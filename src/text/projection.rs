//! What a host may show of a stream: the safe projection.

use super::lines::Lines;
use super::redact::literals::Literals;
use super::redact::{REDACTED, Redactor, key_value};
use super::sanitize::Sanitizer;
use super::tail;
use crate::capture::captured::Captured;
use crate::types::limits::LINE;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// The fewest bytes that a registered secret may have.
const SHORTEST: usize = 4;
/// The fewest bytes of a line that stands for a secret of several lines, if any has as many.
const TELLING: usize = 8;

/// Makes safe text of raw bytes: lines that can be shown on a terminal, logged and stored.
///
/// Terminal control sequences are taken out, a carriage return keeps the last version of its line,
/// a backspace erases, other controls but tabs are dropped, what is not UTF-8 and what changes the
/// direction of text becomes U+FFFD, and a line is at most 8 KiB. Secrets become `[redacted]`:
/// authorization headers, userinfo in URLs, tokens of well-known shapes, private keys, values of
/// names such as `password` and `api_key`, and what the host has registered. The result is the same
/// for every split of the input, and projecting it again changes nothing.
///
/// Cheap to clone. The default redacts the known shapes.
///
/// ```
/// use lastwords::Projection;
/// let projection = Projection::builder().secret("hunter2\n")?.build()?;
/// assert_eq!(projection.text("10%\r\x1b[32m100%\x1b[0m\r\ntoken=abc hunt\x1b[1mer2"), "100%\ntoken=[redacted] [redacted]");
/// # Ok::<(), lastwords::SecretError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Projection {
    redactor: Option<Arc<Redactor>>,
}

impl Default for Projection {
    fn default() -> Self {
        Projection {
            redactor: Some(Arc::new(Redactor::new(Literals::default()))),
        }
    }
}

impl Projection {
    /// A projection with secrets of the host's own, or without redaction.
    pub fn builder() -> ProjectionBuilder {
        ProjectionBuilder {
            literals: BTreeSet::new(),
            redact: true,
        }
    }

    /// Whether secrets are redacted.
    pub fn redacts(&self) -> bool {
        self.redactor.is_some()
    }

    /// The streaming form: lines as they arrive.
    pub fn lines(&self) -> Lines {
        Lines::new(self)
    }

    /// The newest `lines` lines, of those that begin at the offsets from `from` to below `to` of
    /// the stream (a line that begins there is taken whole, as far as it has come, so that none
    /// is shown in two halves).
    ///
    /// A line whose beginning is not kept any more is left out; if there is no other, a mark stands
    /// for it. A private key whose beginning is not kept is redacted from there on. A last line
    /// without a newline counts. Works backwards from the end: what it costs depends on the
    /// lines it gives.
    pub fn last_lines(&self, captured: &Captured, from: u64, to: u64, lines: usize) -> Vec<String> {
        tail::last_lines(self, captured, from, to, lines)
    }

    /// The projection of a text, such as a message.
    pub fn text(&self, text: &str) -> String {
        let mut out = String::new();
        let mut first = true;
        let mut line = |line: &str| {
            if !std::mem::take(&mut first) {
                out.push('\n');
            }
            out.push_str(line);
        };
        let mut lines = self.lines();
        lines.push(text.as_bytes(), &mut line);
        lines.finish(&mut line);
        out
    }

    /// The projection of a command line, one string per argument. A secret that follows an option
    /// in an argument of its own is found as well: `--token abc`, `-u user:password`.
    pub fn command_line<A: AsRef<[u8]>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Vec<String> {
        let mut option = String::new();
        let mut shown = Vec::new();
        for argument in arguments {
            let argument = String::from_utf8_lossy(argument.as_ref()).into_owned();
            let secret = self.redacts()
                && !argument.starts_with('-')
                && key_value::is_option(&option, &argument);
            shown.push(if secret {
                REDACTED.to_owned()
            } else {
                self.text(&argument)
            });
            option = argument;
        }
        shown
    }

    /// Both are copies of one, so that they make the same of every text.
    pub(crate) fn is_same(&self, other: &Projection) -> bool {
        match (&self.redactor, &other.redactor) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    pub(super) fn redactor(&self) -> Option<&Redactor> {
        self.redactor.as_deref()
    }

    /// Bytes of a line's text that are looked at; what is beyond is counted.
    pub(super) fn window(&self) -> usize {
        self.redactor()
            .map_or(LINE, |redactor| 2 * (LINE + redactor.margin()))
    }
}

/// Makes a [`Projection`].
#[derive(Clone)]
pub struct ProjectionBuilder {
    literals: BTreeSet<Vec<u8>>,
    redact: bool,
}

/// No secret.
impl fmt::Debug for ProjectionBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProjectionBuilder")
            .field("literals", &self.literals.len())
            .field("redact", &self.redact)
            .finish()
    }
}

impl ProjectionBuilder {
    /// Registers a secret of at least 4 bytes, without newlines at its end. It is found in its raw
    /// form and as the projection shows it. One of several lines is found line by line.
    pub fn secret(&mut self, secret: impl AsRef<[u8]>) -> Result<&mut Self, SecretError> {
        let raw = secret.as_ref();
        let raw = raw
            .get(
                ..raw.len()
                    - raw
                        .iter()
                        .rev()
                        .take_while(|b| matches!(b, b'\n' | b'\r'))
                        .count(),
            )
            .unwrap_or_default();
        if raw.len() < SHORTEST {
            return Err(SecretError {
                kind: SecretErrorKind::TooShort,
            });
        }
        let mut sanitizer = Sanitizer::new(usize::MAX);
        let mut parts: Vec<Vec<u8>> = Vec::new();
        for line in raw.split(|byte| *byte == b'\n') {
            sanitizer.feed(line);
            let shown = sanitizer.end().0.to_vec();
            sanitizer.clear();
            // A raw form with controls in it never gets into the projection.
            if shown != line && !line.iter().any(u8::is_ascii_control) {
                parts.push(line.to_vec());
            }
            parts.push(shown);
        }
        if raw.contains(&b'\n') {
            parts
                .iter_mut()
                .for_each(|part| *part = part.trim_ascii().to_vec());
            let telling = if parts.iter().any(|part| part.len() >= TELLING) {
                TELLING
            } else {
                SHORTEST
            };
            parts.retain(|part| part.len() >= telling);
        }
        if !parts.iter().any(|part| part.len() >= SHORTEST) {
            return Err(SecretError {
                kind: SecretErrorKind::NothingLeft,
            });
        }
        self.literals
            .extend(parts.into_iter().filter(|part| part.len() >= SHORTEST));
        Ok(self)
    }

    /// Whether secrets are redacted at all. On by default.
    pub fn redact(&mut self, redact: bool) -> &mut Self {
        self.redact = redact;
        self
    }

    /// The projection. Fails only if there are more secrets than can be searched together: hundreds
    /// of millions of bytes.
    pub fn build(&self) -> Result<Projection, SecretError> {
        if !self.redact {
            return Ok(Projection { redactor: None });
        }
        let literals =
            Literals::new(self.literals.iter().cloned().collect()).map_err(|_| SecretError {
                kind: SecretErrorKind::TooMany,
            })?;
        Ok(Projection {
            redactor: Some(Arc::new(Redactor::new(literals))),
        })
    }
}

/// A secret cannot be registered. Says why, never what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecretError {
    kind: SecretErrorKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SecretErrorKind {
    TooShort,
    NothingLeft,
    TooMany,
}

impl SecretError {
    /// It has fewer than 4 bytes, or would have as text (spec: too short to be told from other
    /// text).
    pub fn is_too_short(&self) -> bool {
        matches!(
            self.kind,
            SecretErrorKind::TooShort | SecretErrorKind::NothingLeft
        )
    }
}

/// Reads after "failed to".
impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            SecretErrorKind::TooShort => "register a secret: it has fewer than 4 bytes, and would be found in any text",
            SecretErrorKind::NothingLeft => {
                "register a secret: none of its lines has 4 bytes of text once control characters are taken out"
            }
            SecretErrorKind::TooMany => "register the secrets: together they are too large to be searched for",
        })
    }
}

impl std::error::Error for SecretError {}
