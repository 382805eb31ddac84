//! Spawns that fail: the step, the path and the errno are named, and nothing is left.

use crate::common::host::Host;
use crate::common::proc::{children, descriptors};
use crate::common::{Way, every_way, ms, sys};
use lastwords::{Command, Errno, SpawnError, SpawnStep, Stopping, Stream};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

every_way! {
    a_missing_program_is_not_found,
    a_program_that_cannot_be_executed_says_why,
    a_missing_interpreter_is_told_as_such,
    a_working_directory_that_is_none_is_named,
    a_command_that_is_none_is_refused_before_anything_is_made,
    too_large_an_environment_names_the_variable_and_its_size,
    too_many_arguments_say_how_large_they_are,
    a_file_that_is_being_written_is_busy,
    the_path_that_the_command_is_given_decides,
    a_failed_start_is_told_by_events,
    failed_spawns_leave_nothing,
    no_process_to_be_had_is_an_error_that_may_pass,
    a_limit_or_a_user_that_is_refused_is_named,
}

/// A directory of files that a test makes, gone with it.
struct Files(PathBuf);

impl Files {
    fn new(way: Way) -> Files {
        let dir = std::env::temp_dir().join(format!(
            "lastwords-{}-{}",
            std::process::id(),
            way.file_name()
        ));
        fs::create_dir_all(&dir).expect("a directory");
        Files(dir)
    }

    fn make(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
        path
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The error of a spawn that fails; nothing of it may be left in the loop.
fn refused(host: &mut Host, command: &Command) -> SpawnError {
    let error = host
        .reactor
        .spawn(command)
        .expect_err("it cannot be started");
    assert!(
        !host.reactor.is_busy() && !host.reactor.has_events() && host.reactor.stats().live == 0,
        "{error}"
    );
    error
}

fn assert_is(error: &SpawnError, steps: &[SpawnStep], errno: i32, path: &Path) {
    assert!(steps.contains(&error.step()), "{error:?}");
    assert_eq!(
        (error.errno(), error.raw_os_error()),
        (Errno::from_raw(errno), errno),
        "{error:?}"
    );
    assert_eq!(error.path(), Some(path), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains(&*path.to_string_lossy())
            && text.contains(Errno::from_raw(errno).name().expect("a name")),
        "{text}"
    );
    let io = std::io::Error::from(error.clone());
    // CASES 80: what a host compares is kept.
    assert_eq!(io.raw_os_error(), Some(errno));
}

/// CASES 37 and 80. With and without a slash, absolute and relative.
fn a_missing_program_is_not_found(way: Way) {
    let mut host = Host::new(way);
    for program in [
        "/nonexistent/program",
        "./nonexistent-program",
        "nonexistent-program-of-lastwords",
        "/etc/passwd/program",
    ] {
        let error = refused(&mut host, &Command::new(program));
        let errno = if program.starts_with("/etc") {
            libc::ENOTDIR
        } else {
            libc::ENOENT
        };
        assert_is(
            &error,
            &[SpawnStep::Exec, SpawnStep::Find],
            errno,
            Path::new(program),
        );
        assert_eq!(error.is_not_found(), errno == libc::ENOENT, "{error:?}");
        assert!(!error.is_retryable());
    }
    host.finish();
}

/// CASES 37.
fn a_program_that_cannot_be_executed_says_why(way: Way) {
    let files = Files::new(way);
    let mut host = Host::new(way);
    let plain = files.make("plain", "#!/bin/sh\n", 0o644);
    let error = refused(&mut host, &Command::new(&plain));
    assert_is(&error, &[SpawnStep::Exec], libc::EACCES, &plain);
    assert!(!error.is_not_found());
    let error = refused(&mut host, &Command::new(&files.0));
    assert_is(&error, &[SpawnStep::Exec], libc::EACCES, &files.0);
    let garbage = files.make("garbage", "\u{1}\u{2}\u{3} not a program", 0o755);
    let error = refused(&mut host, &Command::new(&garbage));
    assert_is(&error, &[SpawnStep::Exec], libc::ENOEXEC, &garbage);
    host.finish();
}

/// CASES 37. ENOENT of a file that is there.
fn a_missing_interpreter_is_told_as_such(way: Way) {
    let files = Files::new(way);
    let mut host = Host::new(way);
    let script = files.make(
        "script",
        "#!/nonexistent/interpreter -x\necho never\n",
        0o755,
    );
    let error = refused(&mut host, &Command::new(&script));
    assert_is(&error, &[SpawnStep::Exec], libc::ENOENT, &script);
    assert!(
        error.to_string().contains("/nonexistent/interpreter"),
        "{error}"
    );
    assert!(!error.is_not_found(), "the program was found: {error}");
    host.finish();
}

/// CASES 37.
fn a_working_directory_that_is_none_is_named(way: Way) {
    let files = Files::new(way);
    let mut host = Host::new(way);
    let file = files.make("file", "", 0o644);
    for (dir, errno) in [
        (Path::new("/nonexistent/dir"), libc::ENOENT),
        (file.as_path(), libc::ENOTDIR),
    ] {
        let mut command = Command::new("true");
        command.current_dir(dir);
        let error = refused(&mut host, &command);
        assert_is(&error, &[SpawnStep::Chdir], errno, dir);
        assert!(!error.is_not_found(), "not the program: {error}");
    }
    host.finish();
}

/// SPEC 9: NUL in an argument; an empty command.
fn a_command_that_is_none_is_refused_before_anything_is_made(way: Way) {
    let mut host = Host::new(way);
    let mut with_nul = Command::new("true");
    with_nul.arg("a\0b");
    let mut in_value = Command::new("true");
    in_value.env("NAME", "se\0cret");
    let mut in_name = Command::new("true");
    in_name.env("NA\0ME", "x");
    for command in [
        Command::new(""),
        Command::new("tr\0ue"),
        with_nul,
        in_value,
        in_name,
    ] {
        let error = refused(&mut host, &command);
        assert_eq!(error.step(), SpawnStep::Command, "{error:?}");
        let error = host.reactor.start(&command).expect_err("start says so too");
        assert_eq!(error.step(), SpawnStep::Command);
        assert!(!error.to_string().contains("cret"), "no values: {error}");
    }
    host.finish();
}

/// CASES 38. 131,072 bytes: the kernel takes one less (MAX_ARG_STRLEN, execve(2)).
fn too_large_an_environment_names_the_variable_and_its_size(way: Way) {
    let mut host = Host::new(way);
    let mut command = Command::new("true");
    let value = "v".repeat(131_072 - "LARGE_VARIABLE=".len());
    command
        .env("LARGE_VARIABLE", &value)
        .env("SMALL_VARIABLE", "hunter2");
    let error = refused(&mut host, &command);
    assert_eq!(
        (error.step(), error.raw_os_error()),
        (SpawnStep::Exec, libc::E2BIG),
        "{error}"
    );
    let sizes = error.largest().expect("what is large");
    assert!(sizes.total > 131_072, "{sizes:?}");
    let (name, bytes) = &sizes.largest[0];
    assert!(
        name == "LARGE_VARIABLE" && (131_071..=131_073).contains(bytes),
        "{:?}",
        sizes.largest
    );
    let text = error.to_string();
    assert!(
        text.contains("LARGE_VARIABLE") && !text.contains("vvvv") && !text.contains("hunter2"),
        "no values: {text}"
    );
    assert!(!format!("{error:?}").contains("vvvv"));
    // One byte less is a command like any other.
    command.env("LARGE_VARIABLE", &value[2..]);
    let child = host.spawn(&command);
    assert!(host.until_closed(child).report().success());
    host.finish();
}

fn too_many_arguments_say_how_large_they_are(way: Way) {
    let mut host = Host::new(way);
    let mut command = Command::new("true");
    for _ in 0..70 {
        command.arg("x".repeat(100_000));
    }
    let error = refused(&mut host, &command);
    assert_eq!(
        (error.step(), error.raw_os_error()),
        (SpawnStep::Exec, libc::E2BIG),
        "{error}"
    );
    let sizes = error.largest().expect("what is large");
    assert!(
        sizes.total > 7_000_000 && sizes.largest.len() <= 5 && sizes.largest[0].1 >= 100_000,
        "{sizes:?}"
    );
    host.finish();
}

/// SPEC 2.4: ETXTBSY.
fn a_file_that_is_being_written_is_busy(way: Way) {
    let files = Files::new(way);
    let mut host = Host::new(way);
    let copy = files.0.join("busy");
    fs::copy("/bin/true", &copy).expect("a program");
    let writer = fs::File::options()
        .append(true)
        .open(&copy)
        .expect("a writer");
    let error = refused(&mut host, &Command::new(&copy));
    assert_is(&error, &[SpawnStep::Exec], libc::ETXTBSY, &copy);
    assert!(error.is_retryable());
    drop(writer);
    host.finish();
}

/// SPEC 8 and 2.4: a PATH that is set for the command decides where it is looked for.
fn the_path_that_the_command_is_given_decides(way: Way) {
    let files = Files::new(way);
    let mut host = Host::new(way);
    files.make("only-here", "#!/bin/sh\necho found\n", 0o755);
    let mut command = Command::new("only-here");
    command.env(
        "PATH",
        format!("/nonexistent:{}:/bin:/usr/bin", files.0.display()),
    );
    let child = host.spawn(&command);
    assert_eq!(host.until_closed(child).kept(Stream::Stdout), "found\n");
    command.env("PATH", "/nonexistent");
    let error = refused(&mut host, &command);
    assert!(error.is_not_found(), "{error:?}");
    // A file without the execute bit on the way does not end the search; found nowhere else, it is
    // what is told.
    let (first, second) = (Files(files.0.join("first")), Files(files.0.join("second")));
    for dir in [&first, &second] {
        fs::create_dir_all(&dir.0).expect("a directory");
    }
    first.make("tool", "#!/bin/sh\n", 0o644);
    let mut command = Command::new("tool");
    command.env(
        "PATH",
        format!("{}:{}", first.0.display(), second.0.display()),
    );
    assert_eq!(refused(&mut host, &command).raw_os_error(), libc::EACCES);
    second.make("tool", "#!/bin/sh\nexit 5\n", 0o755);
    let child = host.spawn(&command);
    assert_eq!(
        host.until_closed(child).exit().and_then(|exit| exit.code),
        Some(5)
    );
    host.finish();
}

/// SPEC 2.7: `SpawnFailed` follows as an event, then `Closed`, and nothing else.
fn a_failed_start_is_told_by_events(way: Way) {
    let mut host = Host::new(way);
    let mut command = Command::new("/nonexistent/program");
    command
        .arg("argument")
        .stdin(vec![b'x'; 1 << 20])
        .run_limit(ms(60_000));
    let child = host.start(&command);
    let story = host.until_closed(child);
    assert_eq!(story.events.len(), 2, "{story:?}");
    let report = story.report();
    let error = report.error.as_ref().expect("an error");
    assert_is(
        error,
        &[SpawnStep::Exec],
        libc::ENOENT,
        Path::new("/nonexistent/program"),
    );
    assert_eq!(report.command, ["/nonexistent/program", "argument"]);
    assert!(report.stop.is_none() && report.stderr_tail.is_empty());
    assert_eq!(host.reactor.stop(child, None), Stopping::Gone);
    host.finish();
}

/// SPEC 9, SPEC 2.4: no process, descriptor or table entry is left behind.
fn failed_spawns_leave_nothing(way: Way) {
    way.alone(|| {
        let mut host = Host::new(way);
        let warm = host.run("echo warm");
        host.until_closed(warm);
        let before = descriptors();
        let mut no_dir = Command::new("true");
        no_dir.current_dir("/nonexistent");
        let mut too_large = Command::new("true");
        too_large.env("LARGE", "v".repeat(200_000));
        let failing = [
            Command::new("/nonexistent"),
            no_dir,
            too_large,
            Command::new("/"),
            Command::new(""),
        ];
        for _ in 0..20 {
            for command in &failing {
                refused(&mut host, command);
                assert!(children().is_empty(), "{:?}", children());
            }
        }
        assert_eq!(descriptors(), before);
        for command in &failing[..4] {
            let child = host.start(command);
            host.until_closed(child);
        }
        assert!(children().is_empty());
        assert_eq!(descriptors(), before);
        let child = host.run("echo still works");
        assert_eq!(
            host.until_closed(child).delivered(Stream::Stdout),
            "still works\n"
        );
        host.finish();
    });
}

/// SPEC 9: process limits at clone. Root has none, so this is tried as somebody else.
fn no_process_to_be_had_is_an_error_that_may_pass(way: Way) {
    way.alone(|| {
        if rustix::process::getuid().is_root() {
            sys::become_user(54_321);
        }
        let mut host = Host::new(way);
        let warm = host.run("echo warm");
        host.until_closed(warm);
        let before = descriptors();
        setrlimit(
            Resource::Nproc,
            Rlimit {
                current: Some(0),
                maximum: None,
            },
        )
        .or_else(|_| {
            let old = rustix::process::getrlimit(Resource::Nproc);
            setrlimit(
                Resource::Nproc,
                Rlimit {
                    current: Some(0),
                    maximum: old.maximum,
                },
            )
        })
        .expect("a limit");
        let error = refused(&mut host, &Command::new("true"));
        assert_eq!(
            (error.step(), error.raw_os_error()),
            (SpawnStep::Clone, libc::EAGAIN),
            "{error:?}"
        );
        assert!(error.is_retryable());
        assert!(children().is_empty());
        assert_eq!(descriptors(), before);
        host.finish();
    });
}

/// What is to be done between clone and exec, and cannot.
fn a_limit_or_a_user_that_is_refused_is_named(way: Way) {
    way.alone(|| {
        if rustix::process::getuid().is_root() {
            sys::become_user(54_321);
        }
        let mut host = Host::new(way);
        let mut command = Command::new("true");
        command.uid(1);
        let error = refused(&mut host, &command);
        assert_eq!(
            (error.step(), error.raw_os_error()),
            (SpawnStep::User, libc::EPERM),
            "{error:?}"
        );
        let mut command = Command::new("true");
        command.resource_limit(libc::RLIMIT_NOFILE, 20, 10);
        let error = refused(&mut host, &command);
        assert_eq!(
            (error.step(), error.raw_os_error()),
            (SpawnStep::Limits, libc::EINVAL),
            "{error:?}"
        );
        host.finish();
    });
}
