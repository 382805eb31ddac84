//! Secrets that the text before them gives away: `password=`, `"token": "..."`, `--api-key ...`,
//! `Authorization: ...`, `https://user:password@host`, `curl -u user:password`.

use super::scan::{Class, Scan, is_quote};
use super::token_patterns::{LOOKED_AT, is_mixed};
use std::ops::Range;

/// The words with which the last part of a secret's name begins.
pub(crate) const NAMES: &[&str] = &["pass", "pwd", "secret", "token", "credential", "key"];

/// What a name must end with to name a secret. Case, `_`, `-`, `.` and digits at the end are
/// ignored.
#[rustfmt::skip]
const ENDINGS: &[&[u8]] = &[
    b"password", b"passwd", b"passphrase", b"passcode", b"passwort", b"secretkeybase", b"secret", b"token", b"credential", b"credentials",
    b"apikey", b"accesskey", b"secretkey", b"privatekey", b"authkey", b"encryptionkey", b"signingkey", b"accountkey", b"masterkey",
    b"sharedkey", b"sessionkey", b"apitoken",
];

/// The same, where it must be a word of its own: `pass`, `db_pass`, `dbPass`, not `bypass`.
const WORDS: &[&[u8]] = &[b"pass", b"pwd"];

/// Words with which a message about a secret begins, and hardly a secret.
#[rustfmt::skip]
const MESSAGES: &[&[u8]] = &[
    b"are", b"cannot", b"could", b"denied", b"does", b"empty", b"expected", b"expired", b"failed", b"has", b"incorrect", b"invalid", b"is",
    b"malformed", b"missing", b"must", b"no", b"none", b"not", b"required", b"too", b"unexpected", b"unknown", b"was",
];

/// Bytes of the longest of them, and one.
const MESSAGE: usize = 11;

/// What stands before a slash where two names stand for two values: `user/password: ...`.
const PAIRED: &[&[u8]] = &[b"user", b"name", b"login", b"mail", b"account", b"id"];

/// Bytes of a userinfo that are looked at.
const USERINFO: usize = 256;

/// Digits of the largest port.
const PORT: usize = 5;

/// Bytes of the shortest value with a hyphen at its beginning that is not taken for an option.
const HYPHENED: usize = 6;

/// What stands before the colon of a URL, which `-u` may have as its argument.
const URL_SCHEMES: &[&[u8]] = &[b"http", b"https", b"ssh", b"git", b"ftp", b"file"];

/// Bytes of a name that are looked at on either side of a place.
const NAME: usize = 64;

/// Schemes of an `Authorization` header with one credential, and with a list of parameters.
#[rustfmt::skip]
const SCHEMES: &[&[u8]] = &[
    b"bearer", b"basic", b"token", b"negotiate", b"ntlm", b"apikey", b"key",
];
const LISTS: &[&[u8]] = &[b"digest", b"hawk", b"oauth", b"aws4-hmac-sha256"];

/// The name around `at`.
fn name_around(scan: &mut Scan<'_>, at: usize) -> Range<usize> {
    let before = scan.before(at).iter().rev().take(NAME);
    let begin = at - before.take_while(|byte| Class::Dotted.has(**byte)).count();
    begin..scan.run(Class::Dotted, at).min(at + NAME)
}

/// The name says that its value is a secret.
fn is_secret(name: &[u8]) -> bool {
    let name = name.strip_suffix(b".").unwrap_or(name);
    let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit());
    let name = name.get(..name.len() - digits.count()).unwrap_or_default();
    let last = name.last().map(u8::to_ascii_lowercase);
    let has_ending =
        |ending: &&[u8]| ending.last().copied() == last && ends_with(name, ending).is_some();
    ENDINGS.iter().any(has_ending) || WORDS.iter().any(|word| is_own_word(name, word))
}

/// Where the ending begins, if the name ends with it.
fn ends_with(name: &[u8], ending: &[u8]) -> Option<usize> {
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
    // `PWD` and `OLDPWD` hold the shell's working directory.
    let Some(begin) = ends_with(name, word).filter(|_| name != b"PWD" && name != b"OLDPWD") else {
        return false;
    };
    let before = begin.checked_sub(1).and_then(|n| name.get(n));
    before.is_none_or(|before| {
        !before.is_ascii_alphabetic()
            || name.get(begin).is_some_and(u8::is_ascii_uppercase) && before.is_ascii_lowercase()
    })
}

/// A name of a secret, a separator, and the value.
pub(crate) fn value(scan: &mut Scan<'_>, at: usize) -> Option<Range<usize>> {
    let name = name_around(scan, at);
    if !is_secret(scan.get(name.clone())) {
        return None;
    }
    let (from, kind) = value_begin(scan, &name)?;
    match kind {
        Value::Element => {
            let rest = scan.from(from);
            let end = rest.iter().position(|byte| *byte == b'<');
            let end = from + end.unwrap_or(rest.len());
            tells(scan.get(from..end)).then_some(from..end)
        }
        Value::Argument if scan.byte(from) == Some(b'-') => {
            // Another option, or a value that begins like one.
            let end = scan.run(Class::Visible, from);
            is_hyphened_value(scan.get(from..end)).then_some(from..end)
        }
        Value::Argument | Value::Assigned => whole_value(scan, from),
    }
}

/// A value that begins with a hyphen, not an option.
fn is_hyphened_value(argument: &[u8]) -> bool {
    let is_setting = argument.starts_with(b"--") && argument.contains(&b'=');
    argument.len() >= HYPHENED && is_mixed(argument) && !is_setting
}

/// Something that a secret has: a letter of any script, or a digit.
fn tells(value: &[u8]) -> bool {
    value
        .iter()
        .any(|byte| byte.is_ascii_alphanumeric() || !byte.is_ascii())
}

/// How a value is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    /// Behind `=`, `:` and the like.
    Assigned,
    /// The argument behind an option.
    Argument,
    /// The content of an XML element.
    Element,
}

/// Where the value of a name begins.
fn value_begin(scan: &mut Scan<'_>, name: &Range<usize>) -> Option<(usize, Value)> {
    let rest = scan.from(name.end).iter();
    let closing = rest.take_while(|byte| is_quote(**byte) || matches!(byte, b'\\' | b']'));
    let end = name.end + closing.count();
    let begin = scan.run(Class::Blank, end);
    let is_bare = end == name.end;
    let separator = match scan.from(begin) {
        [b':', b':', ..] => return None,
        // The colon is the end of what is quoted: `"password:": No such file`.
        [b':', close, b':', ..]
            if is_quote(*close)
                && scan
                    .previous(name.start)
                    .is_some_and(|byte| byte == *close || byte == b'/') =>
        {
            return None;
        }
        [b':', b'=', ..] | [b'=', b'>', ..] => 2,
        [b':', ..] => 1,
        [b'=', rest @ ..] => 1 + rest.iter().take_while(|byte| **byte == b'=').count(),
        [b'>', ..] if is_bare && begin == end && scan.previous(name.start) == Some(b'<') => {
            return Some((begin + 1, Value::Element));
        }
        [_, ..] if is_bare && begin > end && scan.byte(name.start) == Some(b'-') => {
            return Some((begin, Value::Argument));
        }
        _ => return None,
    };
    let from = scan.run(Class::Blank, begin + separator);
    let is_colon = separator == 1 && scan.byte(begin) == Some(b':');
    let is_message = is_colon && (is_path_message(scan, name, from) || is_message(scan, from));
    (!is_message).then_some((from, Value::Assigned))
}

/// The name is the end of a path, and what is behind its colon is said about that: `"/etc/passwd":
/// Permission denied`. Not if it is quoted, as the values of keys with slashes in them are.
fn is_path_message(scan: &mut Scan<'_>, name: &Range<usize>, from: usize) -> bool {
    let is_quoted = |byte: u8| is_quote(byte) || byte == b'\\';
    if scan.previous(name.start) != Some(b'/') || scan.byte(from).is_some_and(is_quoted) {
        return false;
    }
    let slash = name.start - 1;
    let parent = name_around(scan, slash).start..slash;
    let is_first = scan.previous(parent.start) != Some(b'/');
    let parent = scan.get(parent);
    // Not a comment, nor an authority: two slashes.
    let paired = is_secret(parent) || PAIRED.iter().any(|word| ends_with(parent, word).is_some());
    if parent.is_empty() {
        is_first
    } else {
        !is_first || !paired
    }
}

/// A message is behind the colon, not a value: a blank, a word with which messages begin, and
/// another blank (or the mark of a secret that began with one).
fn is_message(scan: &Scan<'_>, from: usize) -> bool {
    let head = scan.get(from..scan.len().min(from + MESSAGE));
    let word = head.iter().take_while(|byte| byte.is_ascii_lowercase());
    let (word, rest) = head.split_at(word.count());
    let goes_on = |at: usize| match scan.byte(at) {
        Some(byte) => Class::Blank.has(byte),
        None => scan.is_mark(at),
    };
    let end = from + word.len();
    scan.previous(from)
        .is_some_and(|byte| Class::Blank.has(byte))
        && MESSAGES.contains(&word)
        && (goes_on(end) || matches!(rest, [b',' | b':' | b';', ..]) && goes_on(end + 1))
}

/// A value, quoted or not; the quotes around it are not part of it. One without a letter or a digit
/// at its beginning is none: `***`, `}`.
fn whole_value(scan: &mut Scan<'_>, from: usize) -> Option<Range<usize>> {
    let escapes = scan.from(from).iter().take_while(|byte| **byte == b'\\');
    let escapes = escapes.count();
    let Some(quote) = scan.byte(from + escapes).filter(|byte| is_quote(*byte)) else {
        let n = (scan.run(Class::Visible, from) - from).min(LOOKED_AT);
        let is_value = n == LOOKED_AT || tells(scan.get(from..from + n));
        return is_value.then(|| from..unquoted_end(scan, from));
    };
    let from = from + escapes + 1;
    let close = closing_quote(scan.text(), from, quote, escapes);
    // What follows the closing quote without a gap belongs to the value, as it does in a shell.
    let after = close + escapes + 1;
    let goes_on = scan.byte(after).is_some_and(|byte| {
        Class::Word.has(byte) || is_quote(byte) || matches!(byte, b'\\' | b'$')
    });
    let (to, looked_at) = if goes_on {
        (unquoted_end(scan, after), scan.run(Class::Visible, after))
    } else {
        (close, close)
    };
    tells(scan.get(from..looked_at)).then_some(from..to)
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

/// Up to white space, or to a separator that begins another pair. One at the beginning is a part of
/// the value.
fn unquoted_end(scan: &mut Scan<'_>, from: usize) -> usize {
    let end = scan.run(Class::Visible, from);
    let mut at = from + 1;
    while at < end {
        let is_separator = matches!(scan.byte(at), Some(b'&' | b';' | b','));
        if is_separator && begins_pair(scan, at + 1) {
            return at;
        }
        at += 1;
    }
    end.max(from)
}

/// Another name with its separator, or a quote.
fn begins_pair(scan: &mut Scan<'_>, from: usize) -> bool {
    let end = scan.run(Class::Dotted, from);
    let next = scan.byte(end);
    if end == from {
        next.is_some_and(is_quote)
    } else {
        next.is_some_and(|byte| matches!(byte, b'=' | b':'))
    }
}

/// The value of an `Authorization` header: what follows the scheme.
pub(crate) fn authorization(scan: &mut Scan<'_>, at: usize) -> Option<Range<usize>> {
    let name = name_around(scan, at);
    ends_with(scan.get(name.clone()), b"authorization")?;
    let (from, _) = value_begin(scan, &name)?;
    let quote = scan.byte(from).filter(|byte| is_quote(*byte));
    let begin = from + usize::from(quote.is_some());
    let scheme = begin..scan.run(Class::Dotted, begin);
    let value = scan.run(Class::Blank, scheme.end);
    let word = scan.get(scheme.clone());
    let is_one_of = |list: &[&[u8]]| list.iter().any(|known| word.eq_ignore_ascii_case(known));
    let is_list = is_one_of(LISTS);
    if !is_list && !is_one_of(SCHEMES) {
        return whole_value(scan, from);
    }
    // A scheme at the end of the text is followed by nothing, or by a mark.
    let (has_value, rest) = (value > scheme.end, scan.from(value));
    if !has_value && scheme.end < scan.len() {
        return whole_value(scan, from);
    }
    let ends = |byte: &u8| {
        if is_list {
            Some(*byte) == quote
        } else {
            Class::Space.has(*byte) || is_quote(*byte) || *byte == b','
        }
    };
    let end = value + rest.iter().position(ends).unwrap_or(rest.len());
    (end > value && tells(scan.get(value..end))).then_some(value..end)
}

/// A word behind `bearer` that is no word of a language.
pub(crate) fn bearer(scan: &mut Scan<'_>, at: usize) -> Option<Range<usize>> {
    let from = scan.run(Class::Blank, at + "bearer".len());
    let end = scan.run(Class::Bearer, from);
    let head = scan.get(from..end.min(from + 16));
    let is_sign = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'~' | b'+' | b'=' | b'_');
    let is_token = head.len() == 16 || head.len() >= 4 && head.iter().any(is_sign);
    (is_token || scan.is_open(end) && end > from).then_some(from..end)
}

/// A word behind `basic` that is base64 of `user:`.
pub(crate) fn basic(scan: &mut Scan<'_>, at: usize) -> Option<Range<usize>> {
    let from = scan.run(Class::Blank, at + "basic".len());
    let end = scan.run(Class::Base64, from);
    let is_open = scan.is_open(end) && end > from;
    (is_open || has_colon(scan.get(from..end))).then_some(from..end)
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

/// What stands before the `@` of an authority, which begins behind the `://` at `at`.
pub(crate) fn userinfo(scan: &mut Scan<'_>, at: usize) -> Option<Range<usize>> {
    let from = at + "://".len();
    let rest = scan.get(from..scan.len().min(from + USERINFO));
    let ends =
        |byte: &u8| Class::Space.has(*byte) || is_quote(*byte) || matches!(byte, b'<' | b'>');
    let rest = rest.split(ends).next().unwrap_or_default();
    let is_path = |byte: &u8| matches!(byte, b'/' | b'?' | b'#');
    let authority = rest.split(is_path).next().unwrap_or_default();
    let last_at = |bytes: &[u8]| {
        let at = bytes.iter().rposition(|byte| *byte == b'@');
        at.filter(|at| *at > 0).map(|at| from..from + at)
    };
    if authority.contains(&b'@') {
        return last_at(authority);
    }
    let colon = authority.iter().position(|byte| *byte == b':')?;
    let port = authority.get(colon + 1..).unwrap_or_default();
    let is_port = port.iter().all(u8::is_ascii_digit) && port.len() <= PORT;
    if authority.starts_with(b"[") || is_port {
        return None;
    }
    // What is behind the colon is no port: a password with one of `/?#` in it, or one that the end
    // of the text has cut.
    if scan.is_open(from + rest.len()) {
        return Some(from..from + rest.len());
    }
    last_at(rest)
}

/// The argument of `-u` or `--user` that is a user and a password: `-u bob:pw`, `-ubob:pw`,
/// `--user=bob:pw`.
pub(crate) fn user_option(scan: &mut Scan<'_>, at: usize) -> Option<Range<usize>> {
    let rest = scan.from(at + 1);
    let name = if rest.starts_with(b"--") {
        rest.iter().position(|byte| matches!(byte, b'=' | b' '))? + 1
    } else {
        "-u".len()
    };
    let known: &[&[u8]] = &[
        b"-u",
        b"--user=",
        b"--user ",
        b"--proxy-user=",
        b"--proxy-user ",
    ];
    if !known.contains(&rest.get(..name)?) {
        return None;
    }
    let from = scan.run(Class::Blank, at + 1 + name);
    let quote = scan.byte(from).filter(|byte| is_quote(*byte));
    let from = from + usize::from(quote.is_some());
    let rest = scan.get(from..scan.len().min(from + USERINFO));
    let ends = |byte: &u8| match quote {
        Some(quote) => *byte == quote,
        None => Class::Space.has(*byte),
    };
    let argument = rest.split(ends).next().unwrap_or_default();
    is_user_and_password(argument).then(|| from..from + argument.len())
}

/// A user, a colon and a password, not `uid:gid`, nor a URL.
fn is_user_and_password(argument: &[u8]) -> bool {
    let Some(colon) = argument.iter().position(|byte| *byte == b':') else {
        return false;
    };
    let (user, password) = argument.split_at(colon);
    let is_user =
        |byte: &u8| Class::Dotted.has(*byte) || matches!(byte, b'@' | b'\\' | b'%' | b'+');
    let password = password.get(1..).unwrap_or_default();
    user.first().is_some_and(|first| Class::Word.has(*first))
        && user.iter().all(is_user)
        && !URL_SCHEMES.contains(&user)
        && !password.iter().all(u8::is_ascii_digit)
}

/// An option of a command names a secret, and the argument behind it is that.
pub(crate) fn is_option(option: &str, argument: &str) -> bool {
    const WITH_USER: [&str; 4] = ["-u", "--user", "-U", "--proxy-user"];
    if WITH_USER.contains(&option) {
        return is_user_and_password(argument.as_bytes());
    }
    let is_value = !argument.starts_with('-') || is_hyphened_value(argument.as_bytes());
    is_value && option.starts_with('-') && is_secret(option.as_bytes())
}

/// The part of an argument that is a user and a password: `-ubob:pw`, `--user=bob:pw`.
pub(crate) fn user_in_option(argument: &str) -> Option<Range<usize>> {
    let begin = ["--user=", "--proxy-user=", "-u", "-U"]
        .iter()
        .find(|option| argument.starts_with(**option))?
        .len();
    let value = argument.get(begin..)?;
    is_user_and_password(value.as_bytes()).then_some(begin..argument.len())
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
