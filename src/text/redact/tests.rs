//! Tests of what is redacted and what is not.

use crate::sim::Rng;
use crate::text::Projection;
use crate::text::redact::*;
use crate::text::testing::{FRAGMENTS, split};
use crate::types::limits::LINE;

fn lines(projection: &Projection, bytes: &[u8], sizes: &[usize]) -> Vec<String> {
    let mut out = Vec::new();
    split(projection, bytes, sizes, &mut out);
    out
}

/// For each kind of shape: a text that has it, the result, and a text that nearly has it and is left
/// as it is. All are made up.
#[rustfmt::skip]
const EXAMPLES: &[(&str, &str, &str)] = &[
    ("db_password=hunter2 next", "db_password=[redacted] next", "password_file=/run/x max_tokens=4096 broken: yes \"/etc/passwd\": No password: *** token: not found"),
    ("Authorization: Token abc", "Authorization: Token [redacted]", "authorization failed Authorization: none given"),
    ("sent Bearer abc.123-x", "sent Bearer [redacted]", "the bearer of bad news, bearer authentication"),
    ("sent Basic dXNlcjpwYXNz ok", "sent Basic [redacted] ok", "basic authentication, Basic settings"),
    ("clone https://me:pa55@host/x", "clone https://[redacted]@host/x", "https://host:8080/@scope/name?to=a@b"),
    (r"k: -----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY----- x", "k: [redacted] x", "-----BEGIN PUBLIC KEY----- no PRIVATE KEY here"),
    ("got eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.c2lnbmF0 ok", "got [redacted] ok", "eyJhbGciOiJIUzI1 alone"),
    ("AKIAEXAMPLEEXAMPLE00", "[redacted]", "ASIA PACIFIC, ASIAN"),
    ("ghp_0123456789abcdefghijABCDEFGHIJ012345", "[redacted]", "ghp_short"),
    ("github_pat_0123456789abcdefghij_ABCDEFGHIJ", "[redacted]", "github_pat_x"),
    ("glpat-0123456789abcdefghij", "[redacted]", "glpat-short"),
    ("xoxb-0000000000-example", "[redacted]", "xoxb-none"),
    ("https://hooks.slack.com/services/T0000000/B0000000/example00000", "https://hooks.slack.com/[redacted]", "https://hooks.slack.com/docs"),
    ("AIza0123456789-0123456789_0123456789abc", "[redacted]", "AIzawa"),
    ("ya29.0123456789abcdefghij", "[redacted]", "ya29.short"),
    ("sk-ant-api03-0123456789abcdef", "[redacted]", "sk-learn-is-a-library-for-learning task-0123456789012345678901"),
    ("sk_test_0123456789", "[redacted]", "sk_test_short"),
    ("npm_0123456789abcdefghij0123456789abcdef", "[redacted]", "npm_config_registry npm_lifecycle_event"),
    ("pypi-0123456789abcdefghij0123456789abcdefghij", "[redacted]", "pypi-mirror-of-the-company"),
    ("dckr_pat_0123456789abcdefghij", "[redacted]", "dckr_pat_x"),
    ("hf_0123456789abcdefghij0123456789abcd", "[redacted]", "hf_hub_download"),
    ("SG.0123456789abcdefghij.0123456789abcdefghij", "[redacted]", "SG.short"),
    ("dop_v1_0123456789012345678901234567890123456789", "[redacted]", "dop_v1_0123"),
    ("shpat_01234567890123456789012345678901", "[redacted]", "shpat_0123"),
    ("dapi01234567890123456789012345678901", "[redacted]", "dapi0123"),
    ("hvs.0123456789abcdefghij", "[redacted]", "hvs.short"),
    ("glsa_0123456789abcdefghij0123456789ab_01234567", "[redacted]", "glc_module"),
    ("ATATT3xFfGF0123456789abcdefghij0123456789", "[redacted]", "ATATT3x"),
    ("AGE-SECRET-KEY-10123456789ABCDEFGHIJ0123456789ABCDEFGHIJ", "[redacted]", "AGE-SECRET-KEY-1..."),
    ("https://h/b?se=1&sig=abc%2F123 x", "https://h/b?se=1&sig=[redacted] x", "?sig= none"),
    ("curl -ubob:pw h", "curl -u[redacted] h", "sort -u file"),
    ("curl --user=bob:pw h", "curl --user=[redacted] h", "docker run -u 1000:1000 x"),
    ("curl -u 'bob:p w' h", "curl -u '[redacted]' h", "git push -u https://host/x"),
    ("run --token -Ab12_cd-x v", "run --token [redacted] v", "run --token -v --secret --name=X1 x"),
    ("xoxc-0000000000-example", "[redacted]", "xoxc-none"),
    ("xoxd-0000000%2Fexample", "[redacted]", "xoxd-none"),
    ("SK0123456789abcdef0123456789abcdef", "[redacted]", "TASK0123456789abcdef0123456789abcdef"),
    ("sk-abcdefghijklmnopqrst_vwxyz", "[redacted]", "sk-abcdefghijklmnopqrst-vwxyz"),
    (r"two:\nghp_0123456789abcdefghijABCDEFGHIJ012345", r"two:\n[redacted]", r"two:\nghp_short"),
    (r"two:\nsk-0123456789abcdefghijABCDEFGHIJ012345", r"two:\n[redacted]", "X-Api-Keys: 5"),
    ("X-Api-Key: abc", "X-Api-Key: [redacted]", "turnkey: abc"),
];

#[test]
fn every_shape_is_redacted_and_nothing_like_it_is() {
    let projection = Projection::default();
    for (secret, redacted, other) in EXAMPLES {
        assert_eq!(projection.text(secret), *redacted);
        let line = projection.text(&format!("12:00 {secret}\n"));
        assert_eq!(line, format!("12:00 {redacted}"));
        assert_eq!(projection.text(other), *other);
    }
}

/// The first four bytes of a registered secret, and any longer part, are redacted where a stream
/// ends with them, and nowhere else.
/// CASES 83.
#[test]
fn the_beginning_of_a_registered_secret_is_redacted_where_the_stream_ends() {
    const SECRET: &str = "correct horse battery staple 0123456";
    let projection = Projection::builder()
        .secret(SECRET)
        .and_then(|builder| builder.build())
        .expect("one");
    for n in 0..=SECRET.len() {
        let part = &SECRET[..n];
        let text = format!("the key is {part}");
        let shown = if n < 4 { part } else { REDACTED };
        for size in [1, 3, text.len()] {
            let out = lines(&projection, text.as_bytes(), &[size]);
            assert_eq!(out, [format!("the key is {shown}")]);
        }
        // The same letters in the middle of a text, and at the end of a whole line.
        if n < SECRET.len() {
            for text in [format!("{part}, the key"), format!("the key is {part}\n")] {
                let out = lines(&projection, text.as_bytes(), &[text.len()]);
                assert_eq!(out, [text.trim_end_matches('\n')]);
            }
        }
    }
}

#[test]
fn the_beginning_of_a_shape_is_redacted_where_the_stream_ends() {
    let projection = Projection::default();
    for (text, begin) in [
        ("ghp_0123456789abcdefghijABCDEFGHIJ012345", 4),
        ("AKIAEXAMPLEEXAMPLE00", 4),
        ("sk-abcdefghijklmnopqrstuvwxyz0123", 3),
        ("glpat-0123456789abcdefghij", 6),
        ("xoxb-0000000000-example", 5),
        ("eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.c2lnbmF0", 3),
        ("SG.0123456789abcdefghij.0123456789abcdefghij", 3),
    ] {
        for n in begin + 1..=text.len() {
            let text = format!("see {}", &text[..n]);
            assert_eq!(
                lines(&projection, text.as_bytes(), &[7]),
                ["see [redacted]"]
            );
        }
    }
    for (text, shown) in [
        ("sent Bearer a", "sent Bearer [redacted]"),
        ("sent Basic dX", "sent Basic [redacted]"),
        ("psql https://me:pa", "psql https://[redacted]"),
        ("password=h", "password=[redacted]"),
        ("on http://localhost:8080", "on http://localhost:8080"),
        ("see https://example.com", "see https://example.com"),
        ("ghp_", "ghp_"),
    ] {
        assert_eq!(lines(&projection, text.as_bytes(), &[7]), [shown]);
    }
}

#[test]
fn a_name_gives_its_value_away_in_its_usual_spellings() {
    let projection = Projection::default();
    for (text, redacted) in [
        ("PASSWORD=hunter2", "PASSWORD=[redacted]"),
        ("password: hunter2!;x", "password: [redacted]"),
        (
            "Password = \"a b\\\"c\" next",
            "Password = \"[redacted]\" next",
        ),
        (
            "{\"token\":\"abc\",\"user\":\"bob\"}",
            "{\"token\":\"[redacted]\",\"user\":\"bob\"}",
        ),
        (
            r#"{\"apiKey\": \"abc\", \"x\": 1}"#,
            r#"{\"apiKey\": \"[redacted]\", \"x\": 1}"#,
        ),
        ("'client_secret': 'abc'", "'client_secret': '[redacted]'"),
        (
            "https://h/?access_token=abc&user=bob",
            "https://h/?access_token=[redacted]&user=bob",
        ),
        ("Server=x;Pwd=abc;Db=y", "Server=x;Pwd=[redacted];Db=y"),
        (
            "AWS_SECRET_ACCESS_KEY=ab/cd+ef",
            "AWS_SECRET_ACCESS_KEY=[redacted]",
        ),
        ("x-api-key: abc", "x-api-key: [redacted]"),
        ("API_KEY => 'abc'", "API_KEY => '[redacted]'"),
        (
            "os.environ[\"DB_PASS\"] = \"abc\"",
            "os.environ[\"DB_PASS\"] = \"[redacted]\"",
        ),
        (
            "run --db-password abc --verbose",
            "run --db-password [redacted] --verbose",
        ),
        ("run --token=abc -v", "run --token=[redacted] -v"),
        (
            "<password>abc d</password>",
            "<password>[redacted]</password>",
        ),
        ("secret='abc'\"'\"'def' x", "secret='[redacted] x"),
        ("password=\"never closed", "password=\"[redacted]"),
        (
            "DB_PASSWORD2=abc dbPass=abc",
            "DB_PASSWORD2=[redacted] dbPass=[redacted]",
        ),
        ("pässword password=pässword", "pässword password=[redacted]"),
        (
            "Authorization: Digest username=\"x\", response=\"y\"",
            "Authorization: Digest [redacted]",
        ),
        (
            "-H 'Authorization: Bearer abc' https://h",
            "-H 'Authorization: Bearer [redacted]' https://h",
        ),
        (
            "\"authorization\":\"Basic abc\",\"x\":1",
            "\"authorization\":\"Basic [redacted]\",\"x\":1",
        ),
        ("postgres://u:p/w#x@h/db", "postgres://[redacted]@h/db"),
        ("ssh://[::1]:22/@x http://@h", "ssh://[::1]:22/@x http://@h"),
    ] {
        assert_eq!(projection.text(text), redacted);
        assert_eq!(projection.text(redacted), redacted);
    }
    for text in [
        "bypass=1 compass: n PWD=/home passed=3",
        "tokens: 5, max_tokens=10, tokenizer: x",
        "secret_name: x",
        "unexpected token",
        "token::new()",
        "password",
        "password:",
        "--token --verbose",
        "monkey=1 key=2 keyboard: x",
    ] {
        assert_eq!(projection.text(text), text);
    }
}

#[test]
fn registered_secrets_are_found_whole_in_colours_and_overlapping() {
    let mut builder = Projection::builder();
    for secret in [
        &b"correct horse"[..],
        b"horse battery\n",
        b"\xa9tail",
        b"tab\x1b[1mbed",
        "müde".as_bytes(),
    ] {
        builder.secret(secret).expect("long enough");
    }
    let projection = builder.build().expect("few");
    let shown = |text: &[u8]| lines(&projection, text, &[text.len()]).join("\n");
    assert_eq!(shown(b"a correct horse battery b"), "a [redacted] b");
    assert_eq!(
        shown(b"a corr\x1b[31mect ho\x1b[0mrse b\n"),
        "a [redacted] b"
    );
    assert_eq!(
        shown("a étail b".as_bytes()),
        "a [redacted] b",
        "its raw bytes are in the text"
    );
    assert_eq!(shown(b"a \xa9tail b"), "a [redacted] b");
    assert_eq!(
        shown(b"a tabbed b tab\x1b[1mbed"),
        "a [redacted] b [redacted]"
    );
    assert_eq!(shown("mümüde".as_bytes()), "mü[redacted]");
}

#[test]
fn a_registered_secret_inside_a_larger_one_lets_no_part_of_that_through() {
    let mut builder = Projection::builder();
    for secret in ["admin", "hunter2", "abcd", "ijkl", "prod"] {
        builder.secret(secret).expect("long enough");
    }
    let projection = builder.build().expect("few");
    for (text, redacted) in [
        (
            "psql https://admin:s3cretpass@db.host/x",
            "psql https://[redacted]@db.host/x",
        ),
        ("password=hunter2-prod-xyz next", "password=[redacted] next"),
        ("password=\"my hunter2 prod\"", "password=\"[redacted]\""),
        (
            "Authorization: Bearer eyJ0123abcdTAILTAIL",
            "Authorization: Bearer [redacted]",
        ),
        (
            "key ghp_0123456789abcdefghijklmnopABCDEFGHIJ z",
            "key [redacted] z",
        ),
        (
            "postgres://user:pa-prod-zzz@h/db",
            "postgres://[redacted]@h/db",
        ),
        (
            "AWS_SECRET_ACCESS_KEY=aaaprodbbb/ccc",
            "AWS_SECRET_ACCESS_KEY=[redacted]",
        ),
        ("admin prod", "[redacted] [redacted]"),
    ] {
        assert_eq!(projection.text(text), redacted);
        assert_eq!(projection.text(redacted), redacted);
    }
}

/// A trigger of a later line is none of the first, whose own are rare bytes or registered.
#[test]
fn a_mark_in_a_later_line_changes_nothing_in_the_first() {
    let projection = Projection::builder()
        .secret("Zq9#literal")
        .expect("long")
        .build()
        .expect("few");
    for (text, redacted) in [
        (
            "https://me:pa55w@host/ x\nold log: [redacted]\n",
            ["https://[redacted]@host/ x", "old log: [redacted]"],
        ),
        (
            "key ghp_0123456789abcdefghijABCDEFGHIJ012345 z\nx [redacted]\n",
            ["key [redacted] z", "x [redacted]"],
        ),
        (
            "a Zq9#literal\n[redacted] b\n",
            ["a [redacted]", "[redacted] b"],
        ),
        (
            "Zq9#literalplain line here\nthen [redacted]\n",
            ["[redacted]plain line here", "then [redacted]"],
        ),
    ] {
        for sizes in [&[text.len()][..], &[1], &[7, 30], &[26, 1]] {
            assert_eq!(
                lines(&projection, text.as_bytes(), sizes),
                redacted,
                "{sizes:?}"
            );
        }
        assert_eq!(projection.text(text), redacted.join("\n"));
    }
}

#[test]
fn a_secret_of_several_lines_is_found_line_by_line() {
    let projection = Projection::builder()
        .secret("{\n  \"first part\",\n  \"second part\"\n}\n")
        .expect("long")
        .build()
        .expect("few");
    assert_eq!(
        projection.text("{\n  \"first part\",\n}\nx \"second part\" y"),
        "{\n  [redacted]\n}\nx [redacted] y"
    );
}

#[test]
fn what_would_be_found_in_any_text_is_refused() {
    for secret in [
        &b""[..],
        b"abc",
        b"abc\n",
        b"\n\n\n\n\n",
        b"ab\x1b[1m",
        b"a\nb\nc\nd",
    ] {
        let error = Projection::builder().secret(secret).expect_err("too short");
        assert!(
            error.is_too_short() && error.to_string().starts_with("register a secret: "),
            "{error}"
        );
    }
    let builder = format!(
        "{:?}",
        Projection::builder()
            .secret("abcd\r\n")
            .expect("four bytes")
    );
    assert!(
        !builder.contains("abcd") && !builder.contains("97"),
        "{builder}"
    );
}

#[test]
fn a_mark_in_a_later_line_hides_no_secret_of_the_first() {
    for later in ["[redacted]", "password=[redacted]", "x [redacted] y"] {
        let text = format!("glsa_0123456789abcdefghij0123456789ab\n\n{later}\n");
        assert_eq!(
            lines(&Projection::default(), text.as_bytes(), &[text.len()]),
            ["[redacted]", "", later]
        );
    }
}

#[test]
fn without_redaction_nothing_is_replaced() {
    let projection = Projection::builder()
        .secret("abcd")
        .expect("long")
        .redact(false)
        .build()
        .expect("nothing");
    assert!(!projection.redacts());
    assert_eq!(projection.text("abcd token=x\x1b[1m"), "abcd token=x");
}

#[test]
fn the_length_limit_lets_no_part_of_a_secret_through() {
    let secret = "S3CR3T-0123456789".repeat(3);
    let projection = Projection::builder()
        .secret(&secret)
        .expect("long")
        .build()
        .expect("few");
    let window = projection.window().size;
    let around = |at: usize| at.saturating_sub(60)..at + 60;
    for at in around(LINE / 2 - 128)
        .chain(around(LINE))
        .chain(around(LINE + window))
        .chain(around(LINE + 2 * window))
        .step_by(13)
    {
        for named in [
            secret.clone(),
            format!("token={secret}"),
            format!("ghp_{}", "x1".repeat(30)),
        ] {
            for behind in [10, LINE / 2, LINE, window, 3 * window] {
                let line = format!("{}{named}{}", "- ".repeat(at / 2), " -".repeat(behind / 2));
                let out = lines(&projection, line.as_bytes(), &[1000]);
                assert!(out.len() == 1 && out[0].len() <= LINE);
                assert!(!out[0].contains("S3C") && !out[0].contains("x1x1"), "{at}");
            }
        }
    }
    let many = format!("{secret} ").repeat(3000);
    let out = lines(&projection, many.as_bytes(), &[999]);
    assert!(
        !out[0].contains("S3C") && out[0].len() <= LINE,
        "{}",
        out[0]
    );
}

#[test]
fn a_secret_longer_than_a_line_leaves_nothing() {
    let secret = (0..30_000).map(|n| format!("{n:x}")).collect::<String>();
    let projection = Projection::builder()
        .secret(&secret)
        .expect("long")
        .build()
        .expect("few");
    let out = lines(&projection, format!("a {secret} b\n").as_bytes(), &[777]);
    assert_eq!(out, ["a [redacted] b"]);
}

const SECRETS: &[&str] = &[
    "hunter2!",
    "word word",
    "foxes",
    "pa55 wörd",
    "[redact",
    "character",
    "2026",
];
const GLUE: &[&[u8]] = &[
    b"=",
    b":",
    b"\"",
    b"'",
    b"\\",
    b"&",
    b";",
    b",",
    b"//",
    b"://",
    b"@",
    b"-",
    b"_",
    b".",
    b"[redacted]",
    b"[",
    b"]",
    b"<",
    b">",
    b"password",
    b"_token",
    b"--secret ",
    b"Bearer ",
    b"Basic ",
    b"Authorization: ",
    b"12",
    b" ",
    b": not ",
    b"/token: ",
    b"**",
    b"ghp_0123456789abcdefghij",
];

/// Fragments with secrets among them, whole, in colours and in pieces.
#[test]
fn no_split_and_no_control_lets_a_secret_through_and_twice_is_once() {
    let mut builder = Projection::builder();
    for secret in SECRETS {
        builder.secret(secret).expect("long");
    }
    let projection = builder.build().expect("few");
    let shapes: Vec<&[u8]> = EXAMPLES
        .iter()
        .flat_map(|(secret, _, other)| [secret.as_bytes(), other.as_bytes()])
        .collect();
    for seed in 1..400_u64 {
        let mut rng = Rng::new(seed);
        let mut bytes = Vec::new();
        for _ in 0..rng.index(30) {
            match rng.index(5) {
                0 => {
                    let secret = rng.pick(SECRETS).as_bytes();
                    let (head, rest) = secret.split_at(rng.index(secret.len()));
                    bytes.extend_from_slice(head);
                    bytes.extend_from_slice([&b""[..], b"\x1b[7m", b"\0", b"x\x08"][rng.index(4)]);
                    bytes.extend_from_slice(rest);
                }
                1 => bytes.extend_from_slice(rng.pick(&shapes)),
                2 => {
                    let shape = rng.pick(&shapes);
                    let from = rng.index(shape.len());
                    bytes.extend_from_slice(&shape[from..from + rng.index(shape.len() - from + 1)]);
                }
                3 => bytes.extend_from_slice(rng.pick(GLUE)),
                _ => bytes.extend_from_slice(rng.pick(FRAGMENTS)),
            }
        }
        let whole = lines(&projection, &bytes, &[bytes.len().max(1)]);
        for sizes in [&[1][..], &[5, 2], &[64]] {
            assert_eq!(lines(&projection, &bytes, sizes), whole, "{seed}");
        }
        let text = whole
            .iter()
            .flat_map(|line| [line, "\n"])
            .collect::<String>();
        assert_eq!(
            lines(&projection, text.as_bytes(), &[text.len().max(1)]),
            whole,
            "{seed}"
        );
        // What stands between the marks: two of the "secrets" are parts of marks.
        for part in whole.iter().flat_map(|line| line.split(REDACTED)) {
            assert!(
                !SECRETS.iter().any(|secret| part.contains(secret)),
                "{seed}: {part}"
            );
            assert!(!part.contains(|c: char| c.is_control() && c != '\t'));
        }
    }
}

#[test]
fn an_option_gives_away_the_argument_behind_it() {
    let projection = Projection::default();
    let shown = projection.command_line([
        "run",
        "--token",
        "abc",
        "--password",
        "--x",
        "-H",
        "Authorization: Basic abc",
        "K_TOKEN=x",
    ]);
    assert_eq!(
        shown,
        [
            "run",
            "--token",
            "[redacted]",
            "--password",
            "--x",
            "-H",
            "Authorization: Basic [redacted]",
            "K_TOKEN=[redacted]"
        ]
    );
    assert_eq!(
        projection.command_line(["sh", "-c", "echo a\nexport TOKEN=b"]),
        ["sh", "-c", "echo a\nexport TOKEN=[redacted]"]
    );
    assert_eq!(
        projection.command_line(["curl", "-u", "me:pw", "-u", "1:2", "h"]),
        ["curl", "-u", "[redacted]", "-u", "1:2", "h"]
    );
    assert_eq!(
        projection.command_line(["curl", "-ubob:pw", "--user=bob:pw", "--token", "-Ab12_cd-x"]),
        [
            "curl",
            "-u[redacted]",
            "--user=[redacted]",
            "--token",
            "[redacted]"
        ]
    );
    assert_eq!(
        projection.command_line(["sh", "-c", "curl -ubob:pw https://host:8080"]),
        ["sh", "-c", "curl -u[redacted] https://host:8080"]
    );
}

/// CASES 84. Counted in generous time: quadratic, these lines took minutes together.
#[test]
fn what_the_search_is_slowest_with_takes_no_longer_for_a_longer_secret() {
    let long = "token=*,".repeat(12_500) + "X";
    let projection = Projection::builder()
        .secret(&long)
        .and_then(|builder| builder.build())
        .expect("one");
    let line = "token=*,".repeat(12_500);
    for _ in 0..20 {
        let out = lines(&projection, format!("{line}\n").as_bytes(), &[4096]);
        assert!(out[0].starts_with("token=") && out[0].len() <= LINE);
        let out = lines(&projection, line.as_bytes(), &[4096]);
        assert_eq!(out, [REDACTED]);
    }
}
