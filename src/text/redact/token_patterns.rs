//! The shapes that secrets have: with which text each begins, and how far it reaches.
//!
//! One table. Each recognizer keeps these rules, on which the search depends ([`super`]):
//!
//! * A secret begins at the place of its beginning or behind it.
//! * A secret that is found in a text is found in every longer text with the same beginning, at the
//!   same place.
//! * What is read without a secret being found is bounded.

use super::heads::{HEAD, Owners};
use super::scan::{Class, Scan};
use super::{key_value, pem};
use std::ops::Range;

/// A known format of a token.
pub(crate) struct Shape {
    /// The texts with one of which it begins.
    pub(crate) begins: &'static [&'static str],
    pub(crate) letters: Letters,
    /// What may follow a beginning of fewer than four bytes.
    pub(crate) follow: Class,
    find: Find,
}

/// How a beginning is spelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Letters {
    /// As it stands.
    Exact,
    /// In lower case, in upper case, or with a capital first letter.
    AnyCase,
}

/// How a shape is recognized.
#[derive(Clone, Copy)]
enum Find {
    Token(Token),
    /// A function of the text and the place of the beginning to the secret.
    With(fn(&mut Scan<'_>, usize) -> Option<Range<usize>>),
}

/// What follows the beginning of a token: at least `least` bytes of the class.
#[derive(Clone, Copy)]
struct Token {
    class: Class,
    least: usize,
    needs: Needs,
}

/// What tells a token from words that happen to begin like it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    /// Its beginning alone: it is found in the middle of a word as well.
    Nothing,
    /// No word before it.
    Start,
    /// No word before it, and a character that is neither a lower-case letter nor a hyphen:
    /// `sk-learn-is-a-library` has none.
    Mixed,
}

/// Bytes of a token or value that are looked at for what makes it one. Of ten billion random tokens
/// of this length none is all lower case.
pub(crate) const LOOKED_AT: usize = 64;

/// Bytes of the first part of a web token that are looked at. As many of base64 that begin like one
/// are one.
const WEB_TOKEN_HEAD: usize = 256;

const fn token(begins: &'static [&'static str], class: Class, least: usize, needs: Needs) -> Shape {
    Shape {
        begins,
        letters: Letters::Exact,
        follow: class,
        find: Find::Token(Token {
            class,
            least,
            needs,
        }),
    }
}

const fn with(
    begins: &'static [&'static str],
    letters: Letters,
    follow: Class,
    find: fn(&mut Scan<'_>, usize) -> Option<Range<usize>>,
) -> Shape {
    Shape {
        begins,
        letters,
        follow,
        find: Find::With(find),
    }
}

/// The place in [`SHAPES`] of private keys, which may go on in the next line.
pub(crate) const PRIVATE_KEY: usize = 0;

/// Every shape. The lengths are somewhat below those that the providers use today.
#[rustfmt::skip]
pub(crate) const SHAPES: &[Shape] = &[
    with(&[pem::TRIGGER], Letters::Exact, Class::Space, pem::in_line),
    // Values of names.
    with(key_value::NAMES, Letters::AnyCase, Class::AfterName, key_value::value),
    with(&["authorization"], Letters::AnyCase, Class::Space, key_value::authorization),
    with(&["bearer "], Letters::AnyCase, Class::Space, key_value::bearer),
    with(&["basic "], Letters::AnyCase, Class::Space, key_value::basic),
    with(&["://"], Letters::Exact, Class::Visible, key_value::userinfo),
    with(&[" -u", " --user", " --proxy-user"], Letters::Exact, Class::Visible, key_value::user_option),
    with(&[" -u "], Letters::Exact, Class::Visible, key_value::user_option),
    with(&["sig="], Letters::Exact, Class::Visible, signature),
    with(&["signature="], Letters::AnyCase, Class::Visible, signature),
    with(&["eyJ"], Letters::Exact, Class::Url64, web_token),
    with(&["slack.com/"], Letters::Exact, Class::Path, web_hook),
    // AWS access key ids; secret keys have a name.
    token(&["AKIA", "ASIA"], Class::UpperOrDigit, 16, Needs::Start),
    // GitHub.
    token(&["ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"], Class::Word, 20, Needs::Nothing),
    // GitLab.
    token(&["glpat-", "gldt-", "glrt-", "glrtr-", "glcbt-", "glptt-", "glsoat-", "glft-", "glimt-", "glagent-"],
        Class::Dotted, 16, Needs::Nothing),
    // Slack.
    token(&["xoxa-", "xoxb-", "xoxc-", "xoxd-", "xoxe-", "xoxe.", "xoxp-", "xoxr-", "xoxs-", "xapp-"],
        Class::Escaped, 10, Needs::Nothing),
    // Google.
    token(&["AIza"], Class::Url64, 30, Needs::Nothing),
    token(&["ya29.", "GOCSPX-"], Class::Dotted, 20, Needs::Nothing),
    token(&["1//0"], Class::Url64, 40, Needs::Start),
    // OpenAI, Anthropic and others.
    token(&["sk-"], Class::Url64, 20, Needs::Mixed),
    token(&["gsk_", "xai-", "pplx-"], Class::Url64, 20, Needs::Mixed),
    // Stripe.
    token(&["sk_live_", "sk_test_", "rk_live_", "rk_test_"], Class::Alphanumeric, 10, Needs::Nothing),
    token(&["whsec_"], Class::Base64, 20, Needs::Nothing),
    // Package registries.
    token(&["npm_"], Class::Alphanumeric, 30, Needs::Nothing),
    token(&["pypi-"], Class::Url64, 40, Needs::Nothing),
    token(&["rubygems_"], Class::Hex, 40, Needs::Nothing),
    token(&["dckr_pat_", "dckr_oat_"], Class::Url64, 20, Needs::Nothing),
    // Hugging Face.
    token(&["hf_", "api_org_"], Class::Alphanumeric, 30, Needs::Start),
    // SendGrid.
    token(&["SG."], Class::Dotted, 40, Needs::Mixed),
    // Twilio, Mailgun.
    token(&["SK"], Class::LowerHex, 32, Needs::Start),
    token(&["key-"], Class::Hex, 32, Needs::Start),
    // DigitalOcean, Shopify, Databricks, HashiCorp Vault.
    token(&["dop_v1_", "doo_v1_", "dor_v1_"], Class::Hex, 40, Needs::Nothing),
    token(&["shpat_", "shpca_", "shppa_", "shpss_"], Class::Hex, 30, Needs::Nothing),
    token(&["dapi"], Class::Hex, 32, Needs::Start),
    token(&["hvs.", "hvb.", "hvr."], Class::Url64, 20, Needs::Start),
    // Grafana, Atlassian, New Relic, Postman, Linear, Figma, Sentry, Doppler, Supabase, Notion.
    token(&["glsa_", "glc_"], Class::Base64, 30, Needs::Start),
    token(&["ATATT3", "ATCTT3"], Class::Path, 30, Needs::Nothing),
    token(&["NRAK-", "PMAK-"], Class::Url64, 27, Needs::Nothing),
    token(&["lin_api_", "figd_", "sntrys_", "sntryu_", "dp.pt.", "sbp_", "ntn_"], Class::Base64, 32, Needs::Start),
    // age.
    token(&["AGE-SECRET-KEY-1"], Class::UpperOrDigit, 40, Needs::Nothing),
];

const _: () = assert!(
    SHAPES.len() < u64::BITS as usize,
    "a place has a bit for each shape"
);

impl Shape {
    /// Every spelling of a beginning, with at least `least` bytes: what may follow is added.
    fn longer(&self, begin: &str, least: usize) -> Vec<Vec<u8>> {
        let mut open = spellings(begin, self.letters);
        let mut all = Vec::new();
        while let Some(begin) = open.pop() {
            if begin.len() >= least {
                all.push(begin);
            } else {
                let longer = |byte| [begin.as_slice(), &[byte]].concat();
                open.extend(self.follow.bytes().map(longer));
            }
        }
        all
    }

    /// The secret whose beginning stands at `at`.
    pub(crate) fn find(&self, scan: &mut Scan<'_>, at: usize) -> Option<Range<usize>> {
        let begin = self.begins.iter().find(|begin| {
            let text = scan.from(at).get(..begin.len()).unwrap_or_default();
            match self.letters {
                Letters::Exact => text == begin.as_bytes(),
                Letters::AnyCase => text.eq_ignore_ascii_case(begin.as_bytes()),
            }
        })?;
        match &self.find {
            Find::With(find) => find(scan, at),
            Find::Token(token) => token.find(scan, at, at + begin.len()),
        }
    }
}

impl Token {
    /// The token that begins at `at`; its own part begins at `body`.
    fn find(self, scan: &mut Scan<'_>, at: usize, body: usize) -> Option<Range<usize>> {
        if self.needs != Needs::Nothing && !scan.begins_word(at) {
            return None;
        }
        let end = scan.run(self.class, body);
        if scan.is_open(end) && end > body {
            return Some(at..end);
        }
        let is_token = end - body >= self.least
            && (self.needs != Needs::Mixed || is_mixed(scan.get(body..end)));
        is_token.then_some(at..end)
    }
}

/// No words of lower-case letters joined by hyphens.
pub(crate) fn is_mixed(text: &[u8]) -> bool {
    let mut looked_at = text.iter().take(LOOKED_AT);
    looked_at.any(|byte| !byte.is_ascii_lowercase() && *byte != b'-')
}

/// The path of `https://hooks.slack.com/services/...`.
fn web_hook(scan: &mut Scan<'_>, at: usize) -> Option<Range<usize>> {
    let from = at + "slack.com/".len();
    let is_hook = scan.from(from).starts_with(b"services/")
        || scan.from(from).starts_with(b"workflows/")
        || scan.from(from).starts_with(b"triggers/");
    let end = scan.run(Class::Path, from);
    (is_hook && (end - from >= 30 || scan.is_open(end))).then_some(from..end)
}

/// `?sig=`, `&sig=`, `X-Amz-Signature=`.
fn signature(scan: &mut Scan<'_>, at: usize) -> Option<Range<usize>> {
    let name = scan.from(at).iter().position(|byte| *byte == b'=')?;
    let from = at + name + 1;
    let wanted: &[u8] = if name == "sig".len() { b"?&" } else { b"?&-" };
    if !scan.previous(at).is_some_and(|byte| wanted.contains(&byte)) {
        return None;
    }
    let end = scan.run(Class::Query, from);
    (end > from).then_some(from..end)
}

/// Two parts or more of base64 with dots between them (RFC 7519); the first is a JSON object.
fn web_token(scan: &mut Scan<'_>, at: usize) -> Option<Range<usize>> {
    if !scan.begins_word(at) {
        return None;
    }
    let first = scan.run(Class::Url64, at);
    let end = scan.run(Class::Dotted, at);
    let is_long = first - at >= WEB_TOKEN_HEAD;
    let is_token = first - at >= 10 && scan.byte(first) == Some(b'.') && end - first > 10;
    (is_token || is_long || scan.is_open(end)).then_some(at..end)
}

/// The heads of all shapes: the first four bytes of every spelling of every beginning.
pub(crate) fn heads() -> Vec<([u8; HEAD], Owners)> {
    let mut all = Vec::new();
    for (number, shape) in SHAPES.iter().enumerate() {
        let owners = Owners {
            shapes: 1 << number,
            literal: 0,
        };
        for begin in shape.begins {
            let begins = shape.longer(begin, HEAD);
            let heads = begins.iter().filter_map(|begin| begin.first_chunk());
            all.extend(heads.map(|head| (*head, owners)));
        }
    }
    all
}

/// Beginnings of all shapes for a search that only says whether there is any: three bytes of those
/// that are short, and four bytes of the others.
pub(crate) fn beginnings() -> [Vec<Vec<u8>>; 2] {
    let mut all: [Vec<Vec<u8>>; 3] = Default::default();
    for shape in SHAPES {
        for begin in shape.begins {
            let list = begin.len().clamp(2, HEAD) - 2;
            all[list].extend(shape.longer(begin, HEAD - 1).into_iter().map(|mut begin| {
                begin.truncate(HEAD);
                begin
            }));
        }
    }
    // In this order, what the search puts into one of its buckets has bytes in common.
    for list in &mut all {
        list.sort_unstable();
        list.dedup();
    }
    let [continued, mut short, long] = all;
    short.extend(continued);
    [short, long]
}

fn spellings(begin: &str, letters: Letters) -> Vec<Vec<u8>> {
    let exact = begin.as_bytes().to_vec();
    match letters {
        Letters::Exact => vec![exact],
        Letters::AnyCase => {
            let mut capital = exact.clone();
            if let Some(first) = capital.first_mut() {
                first.make_ascii_uppercase();
            }
            vec![exact.to_ascii_uppercase(), capital, exact]
        }
    }
}
