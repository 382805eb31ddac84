//! The shapes that secrets have: what text gives each away, and how far it reaches.
//!
//! One table. A shape is looked for only where one of its triggers stands; the triggers of all
//! shapes are searched together ([`super::triggers`]). Every shape grows to the right as far as it
//! can and needs no particular character behind it, so that a text that was cut shows nothing that
//! the whole text would not show.

use super::{key_value, pem};
use std::ops::Range;

/// One shape.
pub(crate) struct Shape {
    /// What it is, for a test that fails.
    #[cfg_attr(not(test), expect(dead_code, reason = "names the row in tests"))]
    pub(crate) name: &'static str,
    pub(crate) find: Find,
    /// A text that has it, and what becomes of that.
    #[cfg_attr(not(test), expect(dead_code, reason = "an example for tests"))]
    pub(crate) positive: (&'static str, &'static str),
    /// A text that has a trigger, or nearly, and is left as it is.
    #[cfg_attr(not(test), expect(dead_code, reason = "an example for tests"))]
    pub(crate) negative: &'static str,
}

/// How a shape is recognized.
pub(crate) enum Find {
    /// A token: one of these beginnings, and then enough bytes of a kind.
    Token(&'static [&'static str], Token),
    /// Anything else: its triggers, and a function of the text and where a trigger begins, to where
    /// the secret is.
    With(&'static [&'static str], Finder),
}

/// Finds a secret at a trigger.
pub(crate) type Finder = fn(&[u8], usize) -> Option<Range<usize>>;

/// What follows the beginning of a token: at least `least` of these bytes. A token begins at a
/// word's beginning. In a beginning, `|` stands where its trigger begins, if that is not its own
/// beginning.
pub(crate) struct Token {
    of: fn(u8) -> bool,
    least: usize,
    needs: Needs,
}

/// What tells a token from words that happen to begin like it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    Nothing,
    /// A digit among the first `least` bytes.
    Digit,
}

impl Token {
    /// The token that has its beginning of `prefix` bytes at `at`.
    pub(crate) fn at(&self, text: &[u8], at: usize, prefix: usize) -> Option<Range<usize>> {
        if at
            .checked_sub(1)
            .and_then(|before| text.get(before))
            .is_some_and(|before| is_word(*before))
        {
            return None;
        }
        let body = text.get(at + prefix..)?;
        // First what does not depend on the length: a text full of beginnings takes no longer than
        // another.
        if self.needs == Needs::Digit && !body.iter().take(self.least).any(u8::is_ascii_digit) {
            return None;
        }
        let n = body.iter().take_while(|byte| (self.of)(**byte)).count();
        (n >= self.least).then_some(at..at + prefix + n)
    }
}

/// Letters, digits, underscore: what a token must not have right before it.
pub(crate) const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

const fn is_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

const fn is_hex(byte: u8) -> bool {
    byte.is_ascii_hexdigit()
}

/// The alphabet of base64 for URLs.
const fn is_url64(byte: u8) -> bool {
    is_word(byte) || byte == b'-'
}

const fn is_dotted(byte: u8) -> bool {
    is_url64(byte) || byte == b'.'
}

const fn is_path(byte: u8) -> bool {
    is_url64(byte) || byte == b'/'
}

const fn token(prefixes: &'static [&'static str], of: fn(u8) -> bool, least: usize) -> Find {
    Find::Token(
        prefixes,
        Token {
            of,
            least,
            needs: Needs::Nothing,
        },
    )
}

const fn token_with_digit(
    prefixes: &'static [&'static str],
    of: fn(u8) -> bool,
    least: usize,
) -> Find {
    Find::Token(
        prefixes,
        Token {
            of,
            least,
            needs: Needs::Digit,
        },
    )
}

/// Bytes of the first part of a web token that are looked at. As many of base64 that begin like one
/// are one.
const WEB_TOKEN_HEAD: usize = 256;

/// Every shape. The examples are made up.
pub(crate) const SHAPES: &[Shape] = &[
    Shape {
        name: "name and value",
        find: Find::With(key_value::TRIGGERS, key_value::value),
        positive: ("db_password=hunter2 next", "db_password=[redacted] next"),
        negative: "password_file=/run/x max_tokens=4096 broken: yes \"/etc/passwd\": No password: *** token: not found",
    },
    Shape {
        name: "authorization header",
        find: Find::With(&["uthorization", "UTHORIZATION"], key_value::authorization),
        positive: (
            "Authorization: Token abc",
            "Authorization: Token [redacted]",
        ),
        negative: "authorization failed Authorization: none given",
    },
    Shape {
        name: "bearer",
        find: Find::With(&["earer ", "EARER "], key_value::bearer),
        positive: ("sent Bearer abc.123-x", "sent Bearer [redacted]"),
        negative: "the bearer of bad news, bearer authentication",
    },
    Shape {
        name: "basic",
        find: Find::With(&["asic ", "ASIC "], key_value::basic),
        positive: ("sent Basic dXNlcjpwYXNz ok", "sent Basic [redacted] ok"),
        negative: "basic authentication, Basic settings",
    },
    Shape {
        name: "userinfo of a URL",
        find: Find::With(&["@"], key_value::userinfo),
        positive: (
            "clone https://me:pa55@host/x",
            "clone https://[redacted]@host/x",
        ),
        negative: "https://host:8080/@scope/name?to=a@b",
    },
    Shape {
        name: "private key",
        find: Find::With(&[pem::TRIGGER], pem::in_line),
        positive: (
            r"k: -----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY----- x",
            "k: [redacted] x",
        ),
        negative: "-----BEGIN PUBLIC KEY----- no PRIVATE KEY here",
    },
    Shape {
        name: "JSON web token",
        find: Find::With(&["eyJh", "eyJ0", "eyJr", "eyJl", ".eyJ"], web_token),
        positive: (
            "got eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.c2lnbmF0 ok",
            "got [redacted] ok",
        ),
        negative: "eyJhbGciOiJIUzI1 alone",
    },
    Shape {
        name: "AWS key id",
        find: token(
            &["AKIA", "ASIA"],
            |b| b.is_ascii_uppercase() || b.is_ascii_digit(),
            16,
        ),
        positive: ("AKIAEXAMPLEEXAMPLE00", "[redacted]"),
        negative: "ASIA PACIFIC, ASIAN",
    },
    Shape {
        name: "GitHub token",
        find: token(&["ghp|_", "gho|_", "ghu|_", "ghs|_", "ghr|_"], is_word, 20),
        positive: ("ghp_0123456789abcdefghijABCDEFGHIJ012345", "[redacted]"),
        negative: "ghp_short",
    },
    Shape {
        name: "GitHub fine-grained token",
        find: token(&["github|_pat_"], is_word, 20),
        positive: ("github_pat_0123456789abcdefghij_ABCDEFGHIJ", "[redacted]"),
        negative: "github_pat_x",
    },
    Shape {
        name: "GitLab token",
        find: token(
            &[
                "glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glsoat-", "glft-",
            ],
            is_dotted,
            16,
        ),
        positive: ("glpat-0123456789abcdefghij", "[redacted]"),
        negative: "glpat-short",
    },
    Shape {
        name: "Slack token",
        find: token(
            &["xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xoxe", "xapp-"],
            is_dotted,
            10,
        ),
        positive: ("xoxb-0000000000-example", "[redacted]"),
        negative: "xoxb-none",
    },
    Shape {
        name: "Slack webhook",
        find: Find::With(&["slack.com/"], |text, at| {
            behind(text, at, b"slack.com/", is_path, 30)
        }),
        positive: (
            "https://hooks.slack.com/services/T0000000/B0000000/example00000",
            "https://hooks.slack.com/[redacted]",
        ),
        negative: "https://hooks.slack.com/docs",
    },
    Shape {
        name: "Google API key",
        find: token(&["AIza"], is_url64, 30),
        positive: ("AIza0123456789-0123456789_0123456789abc", "[redacted]"),
        negative: "AIzawa",
    },
    Shape {
        name: "Google OAuth",
        find: token(&["ya29.", "GOCSPX-"], is_dotted, 20),
        positive: ("ya29.0123456789abcdefghij", "[redacted]"),
        negative: "ya29.short",
    },
    Shape {
        name: "OpenAI, Anthropic and the like",
        find: token_with_digit(&["sk-", "gsk|_", "xai-", "pplx-"], is_url64, 20),
        positive: ("sk-ant-api03-0123456789abcdef", "[redacted]"),
        negative: "sk-learn-is-a-library-for-learning task-0123456789012345678901",
    },
    Shape {
        name: "Stripe key",
        find: token(
            &[
                "sk|_live_",
                "sk|_test_",
                "rk|_live_",
                "rk|_test_",
                "whsec|_",
            ],
            is_word,
            10,
        ),
        positive: ("sk_test_0123456789", "[redacted]"),
        negative: "sk_test_short",
    },
    Shape {
        name: "npm token",
        find: token(&["npm|_"], is_alphanumeric, 30),
        positive: ("npm_0123456789abcdefghij0123456789abcdef", "[redacted]"),
        negative: "npm_config_registry npm_lifecycle_event",
    },
    Shape {
        name: "PyPI token",
        find: token(&["pypi-"], is_url64, 40),
        positive: (
            "pypi-0123456789abcdefghij0123456789abcdefghij",
            "[redacted]",
        ),
        negative: "pypi-mirror-of-the-company",
    },
    Shape {
        name: "Docker token",
        find: token(&["dckr|_pat_", "dckr|_oat_"], is_url64, 20),
        positive: ("dckr_pat_0123456789abcdefghij", "[redacted]"),
        negative: "dckr_pat_x",
    },
    Shape {
        name: "Hugging Face token",
        find: token(&["hf|_"], is_alphanumeric, 30),
        positive: ("hf_0123456789abcdefghij0123456789abcd", "[redacted]"),
        negative: "hf_hub_download",
    },
    Shape {
        name: "SendGrid key",
        find: token_with_digit(&["SG."], is_dotted, 40),
        positive: ("SG.0123456789abcdefghij.0123456789abcdefghij", "[redacted]"),
        negative: "SG.short",
    },
    Shape {
        name: "DigitalOcean token",
        find: token(&["dop|_v1_", "doo|_v1_", "dor|_v1_"], is_hex, 40),
        positive: (
            "dop_v1_0123456789012345678901234567890123456789",
            "[redacted]",
        ),
        negative: "dop_v1_0123",
    },
    Shape {
        name: "Shopify token",
        find: token(&["shpat|_", "shpca|_", "shppa|_", "shpss|_"], is_hex, 30),
        positive: ("shpat_01234567890123456789012345678901", "[redacted]"),
        negative: "shpat_0123",
    },
    Shape {
        name: "Databricks token",
        find: token(&["dapi"], |b| is_hex(b) || b == b'-', 32),
        positive: ("dapi01234567890123456789012345678901", "[redacted]"),
        negative: "dapi0123",
    },
    Shape {
        name: "Vault token",
        find: token(&["hvs.", "hvb.", "hvr."], is_url64, 20),
        positive: ("hvs.0123456789abcdefghij", "[redacted]"),
        negative: "hvs.short",
    },
    Shape {
        name: "Grafana token",
        find: token(&["glsa|_", "glc|_"], is_word, 30),
        positive: (
            "glsa_0123456789abcdefghij0123456789ab_01234567",
            "[redacted]",
        ),
        negative: "glc_module",
    },
    Shape {
        name: "Atlassian token",
        find: token(&["ATATT3", "ATCTT3"], |b| is_url64(b) || b == b'=', 30),
        positive: ("ATATT3xFfGF0123456789abcdefghij0123456789", "[redacted]"),
        negative: "ATATT3x",
    },
    Shape {
        name: "age key",
        find: token(
            &["AGE-SECRET-KEY-1"],
            |b| b.is_ascii_uppercase() || b.is_ascii_digit(),
            40,
        ),
        positive: (
            "AGE-SECRET-KEY-10123456789ABCDEFGHIJ0123456789ABCDEFGHIJ",
            "[redacted]",
        ),
        negative: "AGE-SECRET-KEY-1...",
    },
    Shape {
        name: "signature in a URL",
        find: Find::With(&["sig=", "ture="], signature),
        positive: (
            "https://h/b?se=1&sig=abc%2F123 x",
            "https://h/b?se=1&sig=[redacted] x",
        ),
        negative: "?sig= none",
    },
];

/// At least `least` bytes behind a prefix that stands at `at`.
fn behind(
    text: &[u8],
    at: usize,
    prefix: &[u8],
    of: fn(u8) -> bool,
    least: usize,
) -> Option<Range<usize>> {
    let from = at + prefix.len();
    let n = text
        .get(from..)?
        .iter()
        .take_while(|byte| of(**byte))
        .count();
    (n >= least).then_some(from..from + n)
}

/// `?sig=`, `&sig=`, `X-Amz-Signature=`.
fn signature(text: &[u8], at: usize) -> Option<Range<usize>> {
    let sign = at + text.get(at..)?.iter().position(|byte| *byte == b'=')?;
    let name = text.get(sign.saturating_sub(10)..sign)?;
    if ![&b"?sig"[..], b"&sig", b"-Signature", b"-signature"]
        .iter()
        .any(|known| name.ends_with(known))
    {
        return None;
    }
    let of = |byte: &u8| is_dotted(*byte) || matches!(byte, b'%' | b'~' | b'+' | b'/');
    let n = text
        .get(sign + 1..)?
        .iter()
        .take_while(|byte| of(byte))
        .count();
    (n > 0).then_some(sign + 1..sign + 1 + n)
}

/// Two or three parts of base64 with dots between them; the first, and most often the second, is a
/// JSON object. The trigger is one of their beginnings.
fn web_token(text: &[u8], at: usize) -> Option<Range<usize>> {
    let head = text
        .get(..at)?
        .iter()
        .rev()
        .take(WEB_TOKEN_HEAD)
        .take_while(|byte| is_url64(**byte))
        .count();
    let begin = if text.get(at) == Some(&b'.') {
        at - head
    } else {
        at
    };
    let before = begin.checked_sub(1).and_then(|before| text.get(before));
    let rest = text.get(begin..)?;
    if !rest.starts_with(b"eyJ") || before.is_some_and(|before| is_word(*before)) {
        return None;
    }
    let first = rest
        .iter()
        .take(WEB_TOKEN_HEAD)
        .take_while(|byte| is_url64(**byte))
        .count();
    let dot = usize::from(rest.get(first) == Some(&b'.'));
    if first < 10 || (dot == 0 && first < WEB_TOKEN_HEAD) {
        return None;
    }
    let n = rest
        .get(first + dot..)?
        .iter()
        .take_while(|byte| is_dotted(**byte))
        .count();
    (n >= 10 || first == WEB_TOKEN_HEAD).then_some(begin..begin + first + dot + n)
}
