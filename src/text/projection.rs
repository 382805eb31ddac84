//! The projection: the public entry to safe text.

use super::lines::Lines;
use super::redact::{End, Literals, REDACTED, Redactor, key_value};
use super::sanitize::{LineText, Sanitizer, Window};
use super::tail;
use crate::capture::captured::Captured;
use crate::types::limits::LINE;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// The fewest bytes that a registered secret may have.
const SHORTEST: usize = 4;
/// The fewest bytes of a line of a secret of several lines, if any line has as many.
const TELLING: usize = 8;

/// Turns raw bytes into lines of text that are safe to show on a terminal, to log and to store.
///
/// * Terminal control sequences are removed. A carriage return keeps the last version of its line,
///   a backspace erases, other control characters but tabs are dropped. Invalid UTF-8 and
///   characters that change the direction of text become U+FFFD.
/// * A line has at most 8 KiB. Of a longer one about 4 KiB are shown from either end, with a mark
///   between them that says how many bytes are missing.
/// * Secrets become `[redacted]`: see [below](#secrets).
///
/// The result is the same for every split of the input, and projecting it again changes nothing.
/// The cost is linear in the input. A projection is cheap to clone; the default one redacts the
/// shapes below.
///
/// ```
/// use lastwords::Projection;
/// let projection = Projection::builder().secret("hunter2\n")?.build()?;
/// let raw = "10%\r\x1b[32m100%\x1b[0m\r\ntoken=abc hunt\x1b[1mer2";
/// assert_eq!(projection.text(raw), "100%\ntoken=[redacted] [redacted]");
/// # Ok::<(), lastwords::SecretError>(())
/// ```
///
/// # Secrets
///
/// | what | how it is recognized |
/// | --- | --- |
/// | registered literals | wherever they stand, at least 4 bytes; [`ProjectionBuilder::secret`] |
/// | values of names | `password`, `passwd`, `passphrase`, `pass`, `pwd`, `secret`, `token`, `credential`, and keys such as `api_key`, `access_key`, `private_key`, as the end of a name in any usual spelling, before `=`, `:`, `=>`, `:=`, in XML, JSON, headers, query strings, and as the argument of an option |
/// | `Authorization` headers | of every scheme; `Bearer` and `Basic` credentials anywhere |
/// | users and passwords | `scheme://user:password@host`, `-u user:password`, `--user=user:password` |
/// | tokens | AWS, GitHub, GitLab, Slack, Google, OpenAI, Anthropic, Stripe, npm, PyPI, RubyGems, Docker, Hugging Face, SendGrid, Twilio, Mailgun, DigitalOcean, Shopify, Databricks, Vault, Grafana, Atlassian and others, by their beginnings and lengths; JSON web tokens; signatures in URLs |
/// | private keys | PEM and similar blocks, over several lines, also when one end is missing |
///
/// Where a stream ends within a line, the end could be the beginning of a secret. There, four bytes
/// or more of a registered literal, and a token that is still too short, are redacted as well.
///
/// Not recognized: a secret in a format of its own without a name before it. Register it. Of ten
/// thousand random keys in each of 60 formats of the providers, none is shown (`tests/secrets.rs`).
///
/// Redacted by mistake, most often a word behind a name and a colon: no line of 97,000 lines of
/// system, package and build logs, 4 of 10,000 lines of manuals and change logs (`master_secret:
/// fixed`), and 5 of 10,000 lines of source text (`token: usize`).
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
    /// Builds a projection that redacts registered literals as well, or nothing.
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

    /// The streaming form, for bytes that arrive in pieces.
    pub fn lines(&self) -> Lines {
        Lines::new(self)
    }

    /// The newest `lines` lines of what is kept of a stream, oldest first; of the lines that begin
    /// at the offsets from `from` to below `to`. A line that begins there is given as far as it has
    /// come.
    ///
    /// A line whose beginning is not kept any more is left out. If there is no other, its last 8
    /// KiB are given from the first white space on, behind a mark. A private key whose
    /// beginning is not kept is redacted from the oldest kept byte on. A last line without a
    /// newline counts; its end is treated as [`Lines::finish`] does.
    ///
    /// Works backwards from the end: the cost depends on the lines that are given, not on how much
    /// is kept.
    pub fn last_lines(&self, captured: &Captured, from: u64, to: u64, lines: usize) -> Vec<String> {
        tail::last_lines(self, captured, from, to, lines)
    }

    /// The projection of a whole text, such as a message or an argument, with `\n` between lines.
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
        lines.close(End::Complete, &mut line);
        out
    }

    /// The projection of a command line, one string per argument. A secret is found in an argument
    /// of its own, too: `--token abc`, `-u user:password`, `-uuser:password`.
    pub fn command_line<A: AsRef<[u8]>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Vec<String> {
        let mut option = String::new();
        let mut shown = Vec::new();
        for argument in arguments {
            let argument = String::from_utf8_lossy(argument.as_ref()).into_owned();
            shown.push(
                if self.redacts() && key_value::is_option(&option, &argument) {
                    REDACTED.to_owned()
                } else if let Some(secret) =
                    key_value::user_in_option(&argument).filter(|_| self.redacts())
                {
                    let option = argument.get(..secret.start).unwrap_or_default();
                    format!("{option}{REDACTED}")
                } else {
                    self.text(&argument)
                },
            );
            option = argument;
        }
        shown
    }

    /// Whether both are clones of one projection, which make the same of every text.
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

    /// What is kept of the end of a long line: the bytes that are shown, and as many more as a
    /// registered secret has that begins before them.
    pub(super) fn window(&self) -> Window {
        Window {
            size: LINE + self.redactor().map_or(0, Redactor::longest),
            redactor: self.redactor.clone(),
        }
    }
}

/// Collects the secrets of a host for a [`Projection`]; made by [`Projection::builder`].
///
/// ```
/// use lastwords::Projection;
/// let mut builder = Projection::builder();
/// builder.secret("correct horse")?.secret(std::env::var("PATH").unwrap_or_default())?;
/// let projection = builder.build()?;
/// assert_eq!(projection.text("a correct horse"), "a [redacted]");
/// # Ok::<(), lastwords::SecretError>(())
/// ```
#[derive(Clone)]
pub struct ProjectionBuilder {
    literals: BTreeSet<Vec<u8>>,
    redact: bool,
}

/// Shows the number of secrets.
impl fmt::Debug for ProjectionBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProjectionBuilder")
            .field("literals", &self.literals.len())
            .field("redact", &self.redact)
            .finish()
    }
}

impl ProjectionBuilder {
    /// Registers a secret of at least 4 bytes; newlines at its end are ignored. It is found in its
    /// raw form and in the form that the projection gives it. A secret of several lines is
    /// registered line by line, without those of fewer than 8 bytes (4 if all are short).
    ///
    /// # Errors
    ///
    /// The secret, or all of its lines, have fewer than 4 bytes of text.
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
        let mut sanitizer = Sanitizer::new(Window {
            size: usize::MAX,
            redactor: None,
        });
        let mut text = LineText::default();
        let mut parts: Vec<Vec<u8>> = Vec::new();
        for line in raw.split(|byte| *byte == b'\n') {
            sanitizer.feed(line);
            sanitizer.take(&mut text);
            let shown = text.as_str().as_bytes().to_vec();
            // No raw form with control characters is ever in a projection.
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

    /// Turns all redaction on or off. Default on.
    pub fn redact(&mut self, redact: bool) -> &mut Self {
        self.redact = redact;
        self
    }

    /// Builds the projection.
    ///
    /// # Errors
    ///
    /// The secrets have more than four billion bytes together.
    pub fn build(&self) -> Result<Projection, SecretError> {
        if !self.redact {
            return Ok(Projection { redactor: None });
        }
        let literals = self.literals.iter().map(Vec::as_slice);
        let literals = Literals::new(literals).ok_or(SecretError {
            kind: SecretErrorKind::TooMany,
        })?;
        Ok(Projection {
            redactor: Some(Arc::new(Redactor::new(literals))),
        })
    }
}

/// Why a secret cannot be registered. Never shows the secret.
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
    /// Whether the secret has fewer than 4 bytes of text: so short a text is found in any output.
    pub fn is_too_short(&self) -> bool {
        matches!(
            self.kind,
            SecretErrorKind::TooShort | SecretErrorKind::NothingLeft
        )
    }
}

/// Completes the sentence "failed to ...".
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
