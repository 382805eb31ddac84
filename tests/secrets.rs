//! Random keys in the formats of the providers: none is shown, whatever stands around it.
//!
//! The default is a few hundred keys of each format. For ten thousand of each:
//!
//! ```text
//! LASTWORDS_KEYS=10000 cargo test --release --test secrets
//! ```

use lastwords::Projection;
use lastwords::sim::Rng;

/// A key: text, and in braces a class of characters and how many of them are random.
///
/// `a` letters and digits, `u` base64 for URLs, `b` base64, `h` hexadecimal digits, `U` capital
/// letters and the digits from 2 to 7, `d` digits.
#[rustfmt::skip]
const KEYS: &[&str] = &[
    // AWS: access key ids.
    "AKIA{U16}", "ASIA{U16}",
    // GitHub: tokens of all kinds.
    "ghp_{a36}", "gho_{a36}", "ghu_{a36}", "ghs_{a36}", "ghr_{a36}", "github_pat_{a22}_{a59}",
    // GitLab, old and routable.
    "glpat-{u20}", "glpat-{u27}.01.{h9}", "gldt-{u20}", "glrt-{u20}", "glptt-{h40}",
    // Slack.
    "xoxb-{d12}-{d13}-{a24}", "xoxp-{d12}-{d12}-{d13}-{h32}", "xoxa-2-{d12}-{d12}-{d13}-{h32}", "xoxr-{d12}-{d12}-{h32}",
    "xoxs-{d12}-{d12}-{d13}-{h10}", "xoxc-{d12}-{d12}-{d13}-{h64}", "xoxd-{a20}%2F{a30}%3D", "xapp-1-A{U10}-{d13}-{h64}",
    // Stripe.
    "sk_live_{a24}", "rk_live_{a24}", "sk_test_{a99}", "whsec_{b32}",
    // OpenAI, Anthropic and others.
    "sk-{a48}", "sk-{a20}T3BlbkFJ{a20}", "sk-proj-{u124}", "sk-svcacct-{u74}", "sk-{h32}", "sk-ant-api03-{u93}AA", "gsk_{a52}", "xai-{a80}",
    // Google.
    "AIza{u35}", "ya29.{u120}", "GOCSPX-{u28}", "1//0{u64}",
    // Package registries.
    "npm_{a36}", "pypi-AgEIcHlwaS5vcmc{u150}", "rubygems_{h48}", "dckr_pat_{u27}",
    // Others.
    "SG.{u22}.{u43}", "SK{h32}", "key-{h32}", "dop_v1_{h64}", "hf_{a34}", "shpat_{h32}", "dapi{h32}", "hvs.{u90}", "glsa_{a32}_{h8}",
    "ATATT3xFfGF0{u170}={U8}", "NRAK-{U27}", "lin_api_{a40}", "ntn_{a46}",
    // JSON web tokens.
    "eyJhbGciOi{u26}.eyJ{u80}.{u43}", "eyJ0eXAiOi{u40}.{u20}.{u16}.{u300}.{u22}",
];

/// The same, for secrets that the text before them gives away.
#[rustfmt::skip]
const NAMED: &[&str] = &[
    "aws_secret_access_key = {b40}", "AWS_SECRET_ACCESS_KEY={b40}", "\"SecretAccessKey\": \"{b40}\",", "AWS_SESSION_TOKEN={b300}",
    "AccountName=x;AccountKey={b86}==;EndpointSuffix=y", "SharedAccessKey={b43}=", "?sv=2022&sig={a40}%3D",
    "password={a12}", "DB_PASSWORD: {a12}", "'client_secret': '{u40}'", "{\"token\":\"{u30}\",\"user\":\"bob\"}", "X-Api-Key: {a32}",
    "run --token {u24}", "run --token=-{u24} -v", "run --password '{u24}'", "<password>{a16}</password>",
    "curl -ubob:{u16} https://host", "curl -u bob:{u16} https://host", "curl --user=bob:{u16} https://host", "curl --user bob:{u16} h",
    "git clone https://bob:{u20}@host/x", "postgres://bob:{u20}@host:5432/db", "redis://:{u20}@host", "https://{a40}@host/x.git",
    "Authorization: Bearer {u40}", "authorization: Basic {b24}", "-H 'Authorization: token {h40}'", "sent Bearer {u32}",
];

/// What stands before and behind a key.
#[rustfmt::skip]
const AROUND: &[(&str, &str)] = &[
    ("", ""), ("key ", " ok"), ("x=", ""), ("\"", "\""), ("'", "',"), ("(", ")"), ("[", "]"), ("{\"k\":\"", "\"}"), ("two:\\n", "\\n"),
    ("https://host/", "/x"), ("a,", ",b"), ("`", "`"), ("<", ">"), ("\t", "\t"), ("|", "|"),
];

/// How many keys of each format.
fn count() -> u64 {
    let count = std::env::var("LASTWORDS_KEYS").ok();
    count.and_then(|count| count.parse().ok()).unwrap_or(150)
}

/// A text of the format, and its random parts.
fn random(format: &str, rng: &mut Rng) -> (String, Vec<String>) {
    const LETTERS: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    let (mut text, mut parts) = (String::new(), Vec::new());
    let mut rest = format;
    while let Some((before, after)) = rest.split_once('{') {
        text.push_str(before);
        let class = after.chars().next().unwrap_or('}');
        let (n, behind) = after
            .get(1..)
            .and_then(|after| after.split_once('}'))
            .unwrap_or_default();
        let Ok(n) = n.parse::<usize>() else {
            // A brace of the text.
            text.push('{');
            rest = after;
            continue;
        };
        let of: String = match class {
            'a' => LETTERS.to_owned(),
            'u' => format!("{LETTERS}-_"),
            'b' => format!("{LETTERS}+/"),
            'h' => "0123456789abcdef".to_owned(),
            'U' => "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".to_owned(),
            'd' => "0123456789".to_owned(),
            other => panic!("no class {other} in {format}"),
        };
        let part: String = (0..n)
            .map(|_| char::from(rng.pick(of.as_bytes())))
            .collect();
        text.push_str(&part);
        parts.push(part);
        rest = behind;
    }
    (text + rest, parts)
}

/// Neither a random part nor eight characters of one are in the text.
fn assert_hidden(shown: &str, text: &str, parts: &[String]) {
    for part in parts.iter().filter(|part| part.len() >= 8) {
        let mut pieces = part.as_bytes().windows(8);
        let found = pieces.find(|piece| shown.as_bytes().windows(8).any(|other| other == *piece));
        assert!(found.is_none(), "{text} is shown as {shown}");
    }
}

/// CASES 85.
#[test]
fn no_random_key_of_a_known_format_is_shown() {
    let projection = Projection::default();
    let mut rng = Rng::new(1);
    for format in KEYS {
        for n in 0..count() {
            let (key, _) = random(format, &mut rng);
            let (before, behind) = AROUND[n as usize % AROUND.len()];
            let text = format!("{before}{key}{behind}");
            // A slash may belong to the key.
            let expected = ["", behind].map(|behind| format!("{before}[redacted]{behind}"));
            let shown = projection.text(&text);
            assert!(
                expected.contains(&shown),
                "{format}: {text} is shown as {shown}"
            );
        }
    }
}

#[test]
fn no_random_value_of_a_secret_name_is_shown() {
    let projection = Projection::default();
    let mut rng = Rng::new(2);
    for format in NAMED {
        for _ in 0..count() {
            let (text, parts) = random(format, &mut rng);
            assert_hidden(&projection.text(&text), &text, &parts);
        }
    }
}

#[test]
fn no_random_secret_of_a_command_line_is_shown() {
    let projection = Projection::default();
    let mut rng = Rng::new(3);
    for _ in 0..count() {
        let (password, part) = random("{u20}", &mut rng);
        for arguments in [
            vec!["run".to_owned(), "--token".to_owned(), password.clone()],
            vec![
                "run".to_owned(),
                "--token".to_owned(),
                format!("-{password}"),
            ],
            vec!["run".to_owned(), format!("--token={password}")],
            vec![
                "curl".to_owned(),
                "-u".to_owned(),
                format!("bob:{password}"),
            ],
            vec!["curl".to_owned(), format!("-ubob:{password}")],
            vec!["curl".to_owned(), format!("--user=bob:{password}")],
            vec![
                "sh".to_owned(),
                "-c".to_owned(),
                format!("curl -ubob:{password} h"),
            ],
        ] {
            let shown = projection.command_line(&arguments).join(" ");
            assert_hidden(&shown, &arguments.join(" "), &part);
        }
    }
}

/// A key that is cut behind its beginning, and behind its fourth character, is not shown at the end
/// of a stream either.
#[test]
fn no_random_key_that_the_end_of_a_stream_cuts_is_shown() {
    let projection = Projection::default();
    let mut rng = Rng::new(4);
    for format in KEYS.iter().filter(|format| !format.starts_with("xoxd")) {
        let begin = format.find('{').unwrap_or_default();
        for _ in 0..count().div_ceil(10) {
            let (key, _) = random(format, &mut rng);
            for n in (begin + 1).max(4)..key.len() {
                let mut lines = projection.lines();
                let mut shown = String::new();
                lines.push(format!("see {}", &key[..n]).as_bytes(), &mut |_: &str| ());
                lines.finish(&mut |line: &str| shown.push_str(line));
                assert_eq!(shown, "see [redacted]", "{format}: {}", &key[..n]);
            }
        }
    }
}
