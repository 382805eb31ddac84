//! Secrets that a name gives away: `password=`, `"token": "..."`, `--api-key ...`, `Authorization:
//! ...`, `user:pass@host`.

use super::token_patterns::is_word;
use std::ops::Range;

/// Pieces of the names below, in their usual spellings. Case matters.
#[rustfmt::skip]
pub(crate) const TRIGGERS: &[&str] = &[
    "pass", "Pass", "PASS", "pwd=", "pwd:", "pwd\"", "Pwd=", "PWD=", "PWD:",
    "ecret", "ECRET", "oken", "OKEN", "redential", "REDENTIAL",
    "_key", "_KEY", "-key", "-KEY", "pikey", "PIKEY", "sskey", "tekey",
    "piKe", "ssKe", "teKe", "onKe", "ngKe", "ntKe", "thKe", "erKe",
];

/// What a name must end with to name a secret, without case, `_`, `-`, `.` and digits at its end; by the last letter.
#[rustfmt::skip]
const fn endings(last: u8) -> &'static [&'static [u8]] {
    match last.to_ascii_lowercase() {
        b'd' => &[b"password", b"passwd"],
        b'e' => &[b"passphrase", b"passcode", b"secretkeybase"],
        b'l' => &[b"credential"],
        b'n' => &[b"token"],
        b's' => &[b"credentials"],
        b't' => &[b"passwort", b"secret"],
        b'y' => &[
            b"apikey", b"accesskey", b"secretkey", b"privatekey", b"authkey", b"encryptionkey", b"signingkey", b"accountkey", b"masterkey",
        ],
        _ => &[],
    }
}

/// The same, where it must be a word of its own: `pass`, `db_pass`, `dbPass`, not `bypass`.
const WORDS: &[&[u8]] = &[b"pass", b"pwd"];

/// Words that messages about a secret begin with, and hardly a secret.
#[rustfmt::skip]
const MESSAGES: &[&[u8]] = &[
    b"are", b"cannot", b"could", b"denied", b"does", b"empty", b"expected", b"expired", b"failed", b"has", b"incorrect", b"invalid", b"is",
    b"malformed", b"missing", b"must", b"no", b"none", b"not", b"required", b"too", b"unexpected", b"unknown", b"was",
];

/// Bytes of the longest of them, and one.
const MESSAGE: usize = 11;

/// What stands before a slash where two names stand for two values: `user/password: ...`.
const PAIRED: &[&[u8]] = &[b"user", b"name", b"login", b"mail", b"account", b"id"];

/// Bytes of a userinfo with a slash in it.
const PASSWORD: usize = 256;

/// Bytes of a name that are looked at.
const NAME: usize = 64;

/// Letters, digits, `_`, `-` and `.`.
const NAMES: [bool; 256] = {
    let mut names = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        names[byte] = is_word(byte as u8) || matches!(byte as u8, b'-' | b'.');
        byte += 1;
    }
    names
};

const fn is_name(byte: u8) -> bool {
    NAMES[byte as usize]
}

const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

const fn is_quote(byte: u8) -> bool {
    matches!(byte, b'"' | b'\'' | b'`')
}

fn count(text: &[u8], from: usize, of: impl Fn(u8) -> bool) -> usize {
    text.get(from..)
        .unwrap_or_default()
        .iter()
        .take_while(|byte| of(**byte))
        .count()
}

/// The name around `at`.
fn name_around(text: &[u8], at: usize) -> Range<usize> {
    let before = text
        .get(..at)
        .unwrap_or_default()
        .iter()
        .rev()
        .take(NAME)
        .take_while(|byte| is_name(**byte))
        .count();
    at - before
        ..at + count(
            text.get(..text.len().min(at + NAME)).unwrap_or_default(),
            at,
            is_name,
        )
}

/// The name says that its value is a secret.
fn is_secret(name: &[u8]) -> bool {
    let name = name.strip_suffix(b".").unwrap_or(name);
    let digits = name
        .iter()
        .rev()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let name = name.get(..name.len() - digits).unwrap_or_default();
    let endings = name.last().map_or(&[][..], |last| endings(*last));
    endings
        .iter()
        .any(|ending| ends_with(name, ending).is_some())
        || WORDS.iter().any(|word| is_own_word(name, word))
}

/// Where the ending begins, if the name ends with it.
fn ends_with(name: &[u8], ending: &[u8]) -> Option<usize> {
    let begin = name.len().checked_sub(ending.len());
    if begin.is_some_and(|begin| {
        name.get(begin..)
            .is_some_and(|end| end.eq_ignore_ascii_case(ending))
    }) {
        return begin;
    }
    let mut left = ending.len();
    for (place, byte) in name.iter().enumerate().rev() {
        match left.checked_sub(1).and_then(|n| ending.get(n)) {
            None => return Some(place + 1),
            Some(wanted) if byte.eq_ignore_ascii_case(wanted) => left -= 1,
            Some(_) if matches!(byte, b'_' | b'-' | b'.') && left < ending.len() => {}
            Some(_) => return None,
        }
    }
    (left == 0).then_some(0)
}

fn is_own_word(name: &[u8], word: &[u8]) -> bool {
    // PWD is where a shell is.
    let Some(begin) = ends_with(name, word).filter(|_| name != b"PWD" && name != b"OLDPWD") else {
        return false;
    };
    let before = begin.checked_sub(1).and_then(|n| name.get(n));
    before.is_none_or(|before| {
        !before.is_ascii_alphabetic()
            || name.get(begin).is_some_and(u8::is_ascii_uppercase) && before.is_ascii_lowercase()
    })
}

/// A name that ends like one of the list, a separator, and the value.
pub(crate) fn value(text: &[u8], at: usize) -> Option<Range<usize>> {
    let name = name_around(text, at);
    if !is_secret(text.get(name.clone())?) {
        return None;
    }
    let (from, element) = value_begin(text, &name)?;
    if element {
        return until(text, from, |byte| byte == b'<').filter(|span| tells(text, span));
    }
    whole_value(text, from)
}

/// Something is in the span that a secret has: a letter of any script, or a digit.
fn tells(text: &[u8], span: &Range<usize>) -> bool {
    text.get(span.clone()).is_some_and(|value| {
        value
            .iter()
            .any(|byte| byte.is_ascii_alphanumeric() || !byte.is_ascii())
    })
}

/// Where the value of a name begins; whether it is the content of an XML element.
fn value_begin(text: &[u8], name: &Range<usize>) -> Option<(usize, bool)> {
    let quote = count(text, name.end, |byte| {
        is_quote(byte) || matches!(byte, b'\\' | b']')
    });
    let end = name.end + quote;
    let blanks = count(text, end, is_blank);
    let begin = end + blanks;
    let rest = text.get(begin..)?;
    let separator = match rest {
        [b':', b':', ..] => return None,
        // The colon is the end of what is quoted: `"password:": No such file`.
        [b':', close, b':', ..]
            if is_quote(*close)
                && byte_before(text, name.start)
                    .is_some_and(|byte| byte == *close || byte == b'/') =>
        {
            return None;
        }
        [b':', b'=', ..] | [b'=', b'>', ..] => 2,
        [b':', ..] => 1,
        [b'=', ..] => count(text, begin, |byte| byte == b'='),
        [b'>', ..] if quote == 0 && blanks == 0 && byte_before(text, name.start) == Some(b'<') => {
            return Some((begin + 1, true));
        }
        // An option of a command: `--token abc`.
        [byte, ..]
            if quote == 0 && blanks > 0 && text.get(name.start) == Some(&b'-') && *byte != b'-' =>
        {
            0
        }
        _ => return None,
    };
    let from = begin + separator + count(text, begin + separator, is_blank);
    let is_colon = separator == 1 && rest.first() == Some(&b':');
    let is_message = is_colon && (is_path_message(text, name, from) || is_message(text, from));
    (!is_message).then_some((from, false))
}

fn byte_before(text: &[u8], at: usize) -> Option<u8> {
    at.checked_sub(1).and_then(|n| text.get(n)).copied()
}

/// The name is the end of a path, and what is behind its colon is said about that: `"/etc/passwd":
/// Permission denied`. Not if it is quoted, as the values of keys with slashes in them are.
fn is_path_message(text: &[u8], name: &Range<usize>, from: usize) -> bool {
    if byte_before(text, name.start) != Some(b'/')
        || text
            .get(from)
            .is_some_and(|byte| is_quote(*byte) || *byte == b'\\')
    {
        return false;
    }
    let slash = name.start - 1;
    let parent = name_around(text, slash).start..slash;
    let is_first = byte_before(text, parent.start) != Some(b'/');
    let Some(parent) = text.get(parent) else {
        return false;
    };
    // Not a comment, nor an authority: two slashes.
    let paired = is_secret(parent) || PAIRED.iter().any(|word| ends_with(parent, word).is_some());
    if parent.is_empty() {
        is_first
    } else {
        !is_first || !paired
    }
}

/// A message is behind the colon, not a value: a blank, a word that messages begin with, and
/// another blank. What follows is not asked for: it may be a secret, which becomes a mark, and
/// marks are not looked at.
fn is_message(text: &[u8], from: usize) -> bool {
    let head = text
        .get(from..text.len().min(from + MESSAGE))
        .unwrap_or_default();
    let (word, rest) = head.split_at(count(head, 0, |byte| byte.is_ascii_lowercase()));
    let blank = byte_before(text, from).is_some_and(is_blank);
    let goes_on = |at: usize| {
        text.get(from + word.len() + at)
            .is_some_and(|byte| is_blank(*byte))
    };
    blank
        && MESSAGES.contains(&word)
        && (goes_on(0) || matches!(rest, [b',' | b':' | b';', ..]) && goes_on(1))
}

fn until(text: &[u8], from: usize, end: impl Fn(u8) -> bool) -> Option<Range<usize>> {
    let n = count(text, from, |byte| !end(byte));
    (n > 0).then_some(from..from + n)
}

/// A value, quoted or not; the quotes around it are not part of it. One that tells nothing up to
/// white space is none: `***`, `}`. (What ends it before that depends on what is behind it, and
/// whether there is a value must not.)
fn whole_value(text: &[u8], from: usize) -> Option<Range<usize>> {
    let escapes = count(text, from, |byte| byte == b'\\');
    let quote = text
        .get(from + escapes)
        .copied()
        .filter(|byte| is_quote(*byte));
    let Some(quote) = quote else {
        return until(text, from, |byte| byte.is_ascii_whitespace())
            .filter(|run| tells(text, run))
            .map(|run| from..unquoted_end(text, run.start));
    };
    let from = from + escapes + 1;
    let close = closing_quote(text, from, quote, escapes);
    // What follows the closing quote without a gap belongs to the value, as it does in a shell.
    let after = close + escapes + 1;
    let goes_on = text
        .get(after)
        .is_some_and(|byte| is_word(*byte) || is_quote(*byte) || matches!(byte, b'\\' | b'$'));
    let (to, run) = if goes_on {
        (
            unquoted_end(text, after),
            after + count(text, after, |byte| !byte.is_ascii_whitespace()),
        )
    } else {
        (close, close)
    };
    tells(text, &(from..run)).then_some(from..to)
}

/// The place of the quote that closes (of the backslashes before it, if the opening one had any),
/// or the end.
fn closing_quote(text: &[u8], from: usize, quote: u8, escapes: usize) -> usize {
    let mut backslashes = 0;
    for (place, byte) in text.iter().enumerate().skip(from) {
        if *byte == quote && (backslashes == escapes || escapes == 0 && backslashes % 2 == 0) {
            return place - escapes;
        }
        backslashes = if *byte == b'\\' { backslashes + 1 } else { 0 };
    }
    text.len()
}

/// White space, and what may separate pairs.
const MAY_END: [bool; 256] = {
    let mut may_end = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        may_end[byte] =
            (byte as u8).is_ascii_whitespace() || matches!(byte as u8, b'&' | b';' | b',');
        byte += 1;
    }
    may_end
};

/// Up to white space, or to a separator that begins another pair. One at the beginning is a part of
/// the value: whether there is a value must not depend on what is behind it.
fn unquoted_end(text: &[u8], from: usize) -> usize {
    let mut place = from;
    loop {
        place += count(text, place, |byte| !MAY_END[usize::from(byte)]);
        match text.get(place) {
            None => return text.len(),
            Some(b'&' | b';' | b',') if place == from || !begins_pair(text, place + 1) => {
                place += 1
            }
            Some(_) => return place,
        }
    }
}

/// Another name with its separator, or a quote.
fn begins_pair(text: &[u8], from: usize) -> bool {
    let n = count(text, from, is_name);
    let next = text.get(from + n);
    if n == 0 {
        next.is_some_and(|byte| is_quote(*byte))
    } else {
        next.is_some_and(|byte| matches!(byte, b'=' | b':'))
    }
}

/// An option of a command names a secret, and the argument behind it is that.
pub(crate) fn is_option(option: &str, argument: &str) -> bool {
    const WITH_USER: [&str; 4] = ["-u", "--user", "-U", "--proxy-user"];
    let password = argument
        .split_once(':')
        .map_or("", |(_, password)| password);
    let with_password = !password.bytes().all(|byte| byte.is_ascii_digit());
    (WITH_USER.contains(&option) && with_password)
        || (option.starts_with('-') && is_secret(option.as_bytes()))
}

/// The value of an `Authorization` header: what follows the scheme.
pub(crate) fn authorization(text: &[u8], at: usize) -> Option<Range<usize>> {
    const WORDS: [&[u8]; 7] = [
        b"bearer",
        b"basic",
        b"token",
        b"negotiate",
        b"ntlm",
        b"apikey",
        b"key",
    ];
    const LISTS: [&[u8]; 4] = [b"digest", b"hawk", b"oauth", b"aws4-hmac-sha256"];
    let name = name_around(text, at);
    ends_with(text.get(name.clone())?, b"authorization")?;
    let (from, _) = value_begin(text, &name)?;
    let quote = text.get(from).copied().filter(|byte| is_quote(*byte));
    let begin = from + usize::from(quote.is_some());
    let scheme = begin..begin + count(text, begin, is_name);
    let blanks = count(text, scheme.end, is_blank);
    let is_one_of = |list: &[&[u8]]| {
        list.iter().any(|known| {
            text.get(scheme.clone())
                .is_some_and(|word| word.eq_ignore_ascii_case(known))
        })
    };
    if blanks > 0 && is_one_of(&LISTS) {
        return until(text, scheme.end + blanks, |byte| Some(byte) == quote);
    }
    if blanks > 0 && is_one_of(&WORDS) {
        return until(text, scheme.end + blanks, |byte| {
            byte.is_ascii_whitespace() || is_quote(byte) || byte == b','
        })
        .filter(|span| tells(text, span));
    }
    whole_value(text, from)
}

/// A word behind `bearer` that is no word of a language.
pub(crate) fn bearer(text: &[u8], at: usize) -> Option<Range<usize>> {
    let from = at + b"earer".len();
    let from = from + count(text, from, is_blank);
    let n = count(text, from, |byte| {
        is_word(byte) || matches!(byte, b'-' | b'.' | b'~' | b'+' | b'/' | b'=')
    });
    let head = text.get(from..from + n.min(16))?;
    let no_word = n >= 16
        || head
            .iter()
            .any(|byte| byte.is_ascii_digit() || matches!(byte, b'~' | b'+' | b'=' | b'_'));
    (n >= 4 && no_word).then_some(from..from + n)
}

/// A word behind `basic` that is base64 of `user:`.
pub(crate) fn basic(text: &[u8], at: usize) -> Option<Range<usize>> {
    let from = at + b"asic".len();
    let from = from + count(text, from, is_blank);
    let n = count(text, from, |byte| {
        is_word(byte) || matches!(byte, b'-' | b'+' | b'/' | b'=')
    });
    has_colon(text.get(from..from + n)?).then_some(from..from + n)
}

/// Base64 of printable characters and a colon after them.
fn has_colon(base64: &[u8]) -> bool {
    let (mut bits, mut have) = (0_u32, 0);
    for byte in base64 {
        let six = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return false,
        };
        (bits, have) = (bits << 6 | u32::from(six), have + 6);
        if have < 8 {
            continue;
        }
        have -= 8;
        match (bits >> have) as u8 {
            b':' => return true,
            b' '..=b'~' | 0x80.. => {}
            0..=0x1f | 0x7f => return false,
        }
    }
    false
}

/// What stands before the `@` of an authority that begins behind the `://` at `at`.
pub(crate) fn userinfo(text: &[u8], at: usize) -> Option<Range<usize>> {
    let from = at + b"://".len();
    let is_end =
        |byte: u8| byte.is_ascii_whitespace() || is_quote(byte) || matches!(byte, b'<' | b'>');
    let authority = text.get(
        from..from
            + count(text, from, |byte| {
                !is_end(byte) && !matches!(byte, b'/' | b'?' | b'#')
            }),
    )?;
    let last_at = |bytes: &[u8]| {
        bytes
            .iter()
            .rposition(|byte| *byte == b'@')
            .filter(|n| *n > 0)
            .map(|n| from..from + n)
    };
    if authority.contains(&b'@') {
        return last_at(authority);
    }
    // A password with one of `/?#` in it: what is behind the colon is no port.
    let port = authority
        .iter()
        .position(|byte| *byte == b':')
        .and_then(|n| authority.get(n + 1..))?;
    if authority.starts_with(b"[") || port.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let rest = text.get(from..text.len().min(from + PASSWORD))?;
    last_at(rest.get(..count(rest, 0, |byte| !is_end(byte)))?)
}

#[cfg(test)]
mod tests {
    use super::{MESSAGE, MESSAGES};
    use crate::text::Projection;

    #[test]
    fn the_end_of_a_path_is_no_key_of_what_is_said_about_it() {
        shows(&[
            "\"/etc/passwd\": Permission denied (EACCES)",
            "/etc/passwd: Permission denied",
            "failed to enter \"/root/token\": No such file or directory",
            "cat: ../my-token: Is a directory, cat: conf/token: Is a directory",
            "/run/secrets/db_password:3: line too long",
            "/token: Gone",
            "failed to find the program \"password:\": No such file or directory",
            "\"/root/token:\": No such file or directory",
        ]);
        hides(&[
            ("{\"password\": \"x\"}", "{\"password\": \"[redacted]\"}"),
            (
                "{\"app/password\": \"x\"}",
                "{\"app/password\": \"[redacted]\"}",
            ),
            (
                "user/password: bob/x login/pwd: x",
                "user/password: [redacted] login/pwd: [redacted]",
            ),
            ("//password: x", "//password: [redacted]"),
            ("https://host/?token=abc", "https://host/?token=[redacted]"),
            ("/api?token=abc", "/api?token=[redacted]"),
            ("/api/token=abc", "/api/token=[redacted]"),
            ("/bin/x --token=abc", "/bin/x --token=[redacted]"),
            ("DB_PASSWORD=x", "DB_PASSWORD=[redacted]"),
            ("/x/token := abc", "/x/token := [redacted]"),
            ("\"password:\" x", "\"password:\"[redacted]"),
        ]);
    }

    #[test]
    fn a_value_without_a_letter_or_digit_is_no_secret() {
        shows(&[
            "unexpected token: `}` at line 3",
            "token: ,",
            "password: ***",
            "{\"password\": \"***\", \"user\": \"bob\"}",
            "\"secret\": {",
            "<password>****</password>",
            "Authorization: Bearer ***",
        ]);
        hides(&[
            ("password=!!!&hunter2", "password=[redacted]"),
            ("password=***&user=bob", "password=[redacted]&user=bob"),
            ("password: *1*", "password: [redacted]"),
            ("password: \"!\"x", "password: \"[redacted]"),
            ("password: \u{fc}", "password: [redacted]"),
            (
                "token: *,a-ghp_0123456789abcdefghij=",
                "token: [redacted],a-[redacted]=",
            ),
        ]);
    }

    #[test]
    fn a_message_behind_a_name_is_no_value() {
        shows(&[
            "token: unexpected end of file",
            "secret: not found",
            "password: must not be empty",
            "Authorization: none given",
            "token: invalid, secret: missing: see above",
            "\"token\": is required",
        ]);
        hides(&[
            ("password: hunter2", "password: [redacted]"),
            (
                "password: swordfish is wrong",
                "password: [redacted] is wrong",
            ),
            ("password: not", "password: [redacted]"),
            ("password: nothing else", "password: [redacted] else"),
            ("password: not,here", "password: [redacted]"),
            ("password: \"not found\"", "password: \"[redacted]\""),
            ("password=not found", "password=[redacted] found"),
            ("password:not found", "password:[redacted] found"),
            ("password: Not found", "password: [redacted] found"),
            (
                "token: not ghp_0123456789abcdefghij",
                "token: not [redacted]",
            ),
        ]);
    }

    #[test]
    fn every_word_of_a_message_is_looked_at_whole() {
        for word in MESSAGES {
            let word = std::str::from_utf8(word).expect("ASCII");
            assert!(word.len() < MESSAGE, "{word}");
            shows(&[&format!("token: {word} x"), &format!("token: {word}: x")]);
        }
    }

    fn shows(texts: &[&str]) {
        for text in texts {
            assert_eq!(Projection::default().text(text), *text);
        }
    }

    fn hides(texts: &[(&str, &str)]) {
        for (text, redacted) in texts {
            assert_eq!(Projection::default().text(text), *redacted);
            assert_eq!(Projection::default().text(redacted), *redacted);
        }
    }
}
