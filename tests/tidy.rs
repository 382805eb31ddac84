//! Style as a test: who may use whom, how long things are, and what may stand where.
//!
//! Exceptions are lists in this file. They are printed, and one that is not needed any more fails.

#[path = "tidy/architecture.rs"]
mod architecture;
#[path = "tidy/cases.rs"]
mod cases;
#[path = "tidy/references.rs"]
mod references;
#[path = "tidy/source.rs"]
mod source;

use source::{Source, blank, bools, functions, rooms_used, root, sources};

/// The rooms, and which others each may use. Floor by floor, as the page in `lib.rs` draws them.
const ROOMS: &[(&str, &[&str])] = &[
    // Floor 0: the shared vocabulary.
    ("types", &[]),
    // Floor 1: pure rules and plain data.
    ("report", &["types"]),
    ("capture", &["types"]),
    ("wheel", &["types"]),
    ("text", &["types", "capture"]),
    ("lifecycle", &["types", "report"]),
    // Floor 2: what is to be run.
    ("command", &["types", "text", "lifecycle"]),
    // Floor 3: the contract moves the captures' blocks, and carries out the command's plan.
    ("kernel", &["types", "capture", "command"]),
    // Floor 4.
    (
        "reactor",
        &[
            "types",
            "report",
            "capture",
            "text",
            "lifecycle",
            "wheel",
            "command",
            "kernel",
        ],
    ),
    // Beside the floors: the public face of the simulation, and what the tests share, which
    // looks at every room and is built for tests alone.
    ("sim", &["types", "kernel", "reactor"]),
    (
        "testing",
        &[
            "types",
            "report",
            "capture",
            "text",
            "lifecycle",
            "wheel",
            "command",
            "kernel",
            "reactor",
        ],
    ),
];

/// Packages that see the public face alone.
const FACES: &[&str] = &["cli", "examples"];

/// Lines of a file in `src`, at most.
const FILE_LINES: usize = 700;
/// Lines of a function, fewer than this.
const FUNCTION_LINES: usize = 120;
/// `bool` fields of a struct, at most.
const BOOLS: usize = 2;

/// Longer than a file may be: one list each, and no place to cut it.
const LONG_FILES: &[&str] = &[];
/// Structs that are plain data (what a kernel can do, is to do, or is told to do without): every
/// `bool` is a fact of its own.
const MANY_BOOLS: &[&str] = &[
    "Capabilities",
    "Plan",
    "Prepared",
    "SimOptions",
    "SpawnOptions",
];
/// Functions that are one table, one row a line.
const LONG_FUNCTIONS: &[&str] = &[];

fn room(path: &str) -> &str {
    let inside = path.strip_prefix("src/").unwrap_or(path);
    inside
        .split('/')
        .next()
        .unwrap_or(inside)
        .trim_end_matches(".rs")
}

/// A file that is built for tests alone.
fn is_for_tests(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs") || path.ends_with("/testing.rs")
}

fn src() -> Vec<Source> {
    let list = sources("src");
    assert!(
        list.len() > 15,
        "the sources are not where they are looked for"
    );
    list
}

/// Fails with all of them.
fn none(what: &str, wrong: &[String]) {
    assert!(wrong.is_empty(), "{what}:\n  {}", wrong.join("\n  "));
}

/// Takes the exceptions out, prints them, and fails for one that is not needed.
fn but(what: &str, wrong: Vec<(String, String)>, exceptions: &[&str]) {
    for name in exceptions {
        println!("{what}: except {name}");
        assert!(
            wrong.iter().any(|(found, _)| found == name),
            "{what}: {name} needs no exception any more"
        );
    }
    let left: Vec<String> = wrong
        .into_iter()
        .filter(|(name, _)| !exceptions.contains(&name.as_str()))
        .map(|(_, line)| line)
        .collect();
    none(what, &left);
}

#[test]
fn a_room_uses_only_the_rooms_below_it() {
    let mut wrong = Vec::new();
    for source in src()
        .iter()
        .filter(|s| !matches!(room(&s.path), "lib" | "main"))
    {
        let name = room(&source.path);
        let Some((_, allowed)) = ROOMS.iter().find(|(known, _)| *known == name) else {
            wrong.push(format!(
                "{}: `{name}` is on no floor; tell this test on which",
                source.path
            ));
            continue;
        };
        let for_tests: &[&str] = if is_for_tests(&source.path) {
            &["sim", "testing"]
        } else {
            &[]
        };
        for used in rooms_used(&source.shipped) {
            let used = used.as_str();
            if used != name && !allowed.contains(&used) && !for_tests.contains(&used) {
                wrong.push(format!("{} uses crate::{used}", source.path));
            }
        }
    }
    none("a room uses what is above it or beside it", &wrong);
}

#[test]
fn the_kernel_uses_of_the_captures_only_blocks_and_of_the_command_only_its_plan() {
    let mut wrong = Vec::new();
    for source in src() {
        if room(&source.path) != "kernel" || source.path.contains("/tests") {
            continue;
        }
        let allowed = [
            ("crate::capture::", &["Block"][..]),
            (
                "crate::command::",
                &[
                    "plan",
                    "Plan",
                    "OutputPlan",
                    "StdinPlan",
                    "UserPlan",
                    "Containment",
                    "CgroupOptions",
                    "Transport",
                    "NO_CGROUP2",
                    "cgroup_refused",
                    "cookie_refused",
                ],
            ),
        ];
        for (inside, allowed) in allowed {
            if source.path.contains("/sim") && inside.contains("capture") {
                continue;
            }
            for (at, _) in source.shipped.match_indices(inside) {
                let list = source.shipped[at + inside.len()..]
                    .split(';')
                    .next()
                    .unwrap_or("");
                let list = list.split_once('}').map_or(list, |(list, _)| list);
                let names = list
                    .split(|c: char| !c.is_alphanumeric() && c != '_')
                    .filter(|name| !name.is_empty() && *name != "as" && *name != "refused");
                // After a plain path comes code: only its first name counts.
                let names: Vec<&str> = if list.starts_with('{') {
                    names.collect()
                } else {
                    names.take(1).collect()
                };
                wrong.extend(
                    names
                        .iter()
                        .filter(|name| !allowed.contains(name))
                        .map(|name| format!("{} uses {inside}{name}", source.path)),
                );
            }
        }
    }
    none("only plain data crosses into the kernel", &wrong);
}

#[test]
fn the_upper_floors_see_the_public_face_alone() {
    let mut wrong = Vec::new();
    for source in FACES.iter().flat_map(|folder| sources(folder)) {
        if source.shipped.contains("__internals") {
            wrong.push(source.path);
        }
    }
    none("a hidden room is used from above", &wrong);
}

#[test]
fn unsafe_code_has_an_address() {
    let mut wrong = Vec::new();
    for source in src() {
        let may = source.path.starts_with("src/kernel/linux/");
        let words = source
            .code
            .split(|c: char| !c.is_alphanumeric() && c != '_');
        if !may && words.into_iter().any(|word| word == "unsafe") {
            wrong.push(source.path);
        }
    }
    none("unsafe outside src/kernel/linux", &wrong);
}

#[test]
fn rules_read_no_clock_no_environment_and_no_static() {
    let pure = [
        "types",
        "report",
        "capture",
        "wheel",
        "text",
        "lifecycle",
        "command",
        "reactor",
    ];
    let ambient = [
        "Instant::now",
        "SystemTime::now",
        "env::",
        "static ",
        "thread_local!",
    ];
    let mut wrong = Vec::new();
    for source in src()
        .iter()
        .filter(|s| pure.contains(&room(&s.path)) || s.path.starts_with("src/kernel/contract/"))
    {
        // A lifetime is no static, and neither are constants of the compiler's own environment.
        let code = source.shipped.replace("'static ", " ");
        wrong.extend(
            ambient
                .iter()
                .filter(|word| code.contains(**word))
                .map(|word| format!("{}: {}", source.path, word.trim())),
        );
    }
    none("an ambient input", &wrong);
}

#[test]
fn the_clocks_are_read_in_few_places() {
    let may = ["src/kernel/linux/", "src/kernel/sim/"];
    let reads = |s: &Source| {
        ["Instant::now", "SystemTime::now"]
            .iter()
            .any(|word| s.shipped.contains(word))
    };
    let wrong: Vec<String> = src()
        .into_iter()
        .filter(|s| reads(s) && !may.iter().any(|place| s.path.starts_with(place)))
        .map(|s| s.path)
        .collect();
    none("a clock is read", &wrong);
}

#[test]
fn the_machines_have_no_wildcard_arm() {
    let mut wrong = Vec::new();
    for source in src().iter().filter(|s| room(&s.path) == "lifecycle") {
        let arm = |line: &str| {
            line.trim_start().starts_with("_ =>")
                || line.contains("| _ =>")
                || line.trim_start().starts_with("_ if ")
        };
        wrong.extend(
            (1..)
                .zip(source.shipped.lines())
                .filter(|(_, l)| arm(l))
                .map(|(n, _)| format!("{}:{n}", source.path)),
        );
    }
    none("a wildcard arm", &wrong);
}

#[test]
fn the_reactor_makes_inputs_in_one_file_and_performs_effects_in_one() {
    let mut wrong = Vec::new();
    for source in src().iter().filter(|s| room(&s.path) == "reactor") {
        for (word, only) in [
            ("Input::", "src/reactor/inputs.rs"),
            ("Effect::", "src/reactor/effects.rs"),
        ] {
            if source.path != only && source.shipped.contains(word) {
                wrong.push(format!(
                    "{} has {word}, which belongs into {only}",
                    source.path
                ));
            }
        }
    }
    none("an input or an effect out of its place", &wrong);
}

#[test]
fn files_are_short() {
    let long = src()
        .into_iter()
        .filter(|s| !s.path.contains("/tests"))
        .map(|s| (s.code.lines().count(), s.path));
    let long = long
        .filter(|(lines, _)| *lines > FILE_LINES)
        .map(|(lines, path)| (path.clone(), format!("{path}: {lines}")));
    but("longer than a file may be", long.collect(), LONG_FILES);
}

#[test]
fn functions_are_short() {
    let mut long = Vec::new();
    for source in src() {
        let list = functions(&source.shipped)
            .into_iter()
            .filter(|f| f.lines >= FUNCTION_LINES);
        long.extend(list.map(|f| {
            (
                f.name.clone(),
                format!("{}: {} has {} lines", source.path, f.name, f.lines),
            )
        }));
    }
    but("longer than a function may be", long, LONG_FUNCTIONS);
}

#[test]
fn a_struct_has_few_bools() {
    let mut many = Vec::new();
    for source in src() {
        let list = bools(&source.shipped)
            .into_iter()
            .filter(|(_, n)| *n > BOOLS);
        many.extend(
            list.map(|(name, n)| (name.clone(), format!("{}: {name} has {n}", source.path))),
        );
    }
    but("more bools than a struct may have", many, MANY_BOOLS);
}

#[test]
fn nothing_is_left_to_do_or_left_out() {
    let mut wrong = Vec::new();
    let words = ["#[ignore", "todo!", "unimplemented!", "dbg!"];
    for folder in ["src", "tests", "cli", "examples", "benches", "fuzz"] {
        for source in sources(folder) {
            // Support code of several tests is used in part by each of them, which `expect` cannot
            // say.
            let allows: &[&str] = if matches!(folder, "src" | "cli") {
                &["#[allow(", "#![allow("]
            } else {
                &[]
            };
            let found = words
                .iter()
                .chain(allows)
                .filter(|word| source.code.contains(**word));
            wrong.extend(found.map(|word| format!("{}: {word}", source.path)));
        }
    }
    none("unfinished", &wrong);
}

#[test]
fn the_readme_names_the_compiler_that_cargo_does() {
    let read = |name: &str| std::fs::read_to_string(root().join(name));
    let cargo = read("Cargo.toml").expect("Cargo.toml is there");
    let version = cargo
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = "))
        .map(|v| v.trim().trim_matches('"').to_owned());
    let version = version.expect("Cargo.toml has a rust-version");
    let Ok(readme) = read("README.md") else {
        println!("there is no README.md yet");
        return;
    };
    let named: Vec<&str> = readme
        .match_indices("Rust 1.")
        .map(|(at, _)| &readme[at + 5..])
        .map(version_at)
        .collect();
    assert!(!named.is_empty(), "README.md names no `Rust 1.x`");
    assert!(
        named.iter().all(|found| *found == version),
        "README.md says {named:?}, Cargo.toml {version}"
    );
}

fn version_at(text: &str) -> &str {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    text[..end].trim_end_matches('.')
}

#[test]
fn every_row_of_the_case_list_has_a_named_test() {
    let named = cases::rows().unwrap_or_else(|e| panic!("{e}"));
    let rows = references::rows();
    assert!(rows.len() >= 48, "docs/CASES.md has lost rows: {rows:?}");
    for row in &rows {
        let tests = named.get(row).map(Vec::as_slice).unwrap_or_default();
        println!(
            "{row:>3}  {}",
            if tests.is_empty() {
                "-".to_owned()
            } else {
                tests.join("\n     ")
            }
        );
    }
    let missing: Vec<&usize> = rows.iter().filter(|row| !named.contains_key(row)).collect();
    assert!(missing.is_empty(), "rows without a test: {missing:?}");
    let unknown: Vec<&usize> = named.keys().filter(|row| !rows.contains(row)).collect();
    assert!(unknown.is_empty(), "no such rows: {unknown:?}");
}

#[test]
fn the_tables_of_the_architecture_are_those_of_the_code() {
    none("docs/ARCHITECTURE.md differs", &architecture::differences());
}

#[test]
fn what_comments_and_pages_refer_to_is_there() {
    let (pages, files) = references::pages();
    assert!(
        pages.len() > 50,
        "the pages are not where they are looked for"
    );
    none("dangling references", &references::dangling(&pages, &files));
    none(
        "pages that are not in the repository",
        &references::unknown_pages(&pages),
    );
    none("links that lead nowhere", &references::broken_links(&pages));
}

#[test]
fn this_test_sees_what_it_looks_for() {
    assert_eq!(
        cases::numbers(" SPEC 4.5, and CASES 29 with a longer wait."),
        [29]
    );
    assert_eq!(cases::numbers(" CASES 5 and 7. `seq 1 100000`"), [5, 7]);
    assert_eq!(cases::numbers(" CASES 18, 19. In"), [18, 19]);
    assert_eq!(cases::numbers(" CASES 21, SPEC 2.1 and 9"), [21]);
    assert_eq!(cases::numbers(" CASES 38. 131,072 bytes"), [38]);
    assert_eq!(cases::numbers(" nothing"), []);
    assert_eq!(
        references::cited("(SPEC 8 and 2.4). SPEC 1.4, 1.5: SPECIAL 7", "SPEC"),
        ["8", "2.4", "1.4", "1.5"]
    );
    let sections = references::sections();
    assert_eq!(sections.len(), 9);
    for (place, is_there) in [("1.11", true), ("8", true), ("1.12", false), ("10", false)] {
        assert_eq!(references::is_item(place, &sections), is_there, "{place}");
    }
    let code = blank(
        "let s = \"unsafe {\"; // unsafe\n/* a /* b */ todo! */ let c = '{'; let r = r#\"dbg!(\"{\")\"#; fn f<'a>(x: &'a str) {}",
    );
    for hidden in ["unsafe", "todo!", "dbg!", "'{'"] {
        assert!(!code.contains(hidden), "{hidden} in {code}");
    }
    assert!(code.contains("fn f<'a>(x: &'a str) {}") && code.lines().count() == 2);
    assert_eq!(
        rooms_used("use crate::{a, b::{c, d}, e}; let x = crate::f::g();"),
        ["a", "b", "e", "f"]
    );
    assert_eq!(
        bools("struct A { a: bool, b: u8 }\nstruct B;\nstruct C { x: bool, y: bool, z: bool }")
            .last(),
        Some(&("C".to_owned(), 3))
    );
    let found = functions("fn one() {\n  if x { y }\n}\ntrait T { fn none(&self); }\n");
    assert_eq!(
        found
            .iter()
            .map(|f| (f.name.as_str(), f.lines))
            .collect::<Vec<_>>(),
        [("one", 3)]
    );
}
