//! The spawner on the real kernel. Tests that would disturb others run in a forked copy of the test
//! process.

#![expect(
    unsafe_code,
    reason = "forks the test process, refuses system calls in the copy"
)]

mod inherit;
mod many;
mod steps;
mod time;
mod ways;

use crate::command::plan::OutputPlan;
use crate::kernel::SpawnOutcome;
use crate::kernel::linux::spawn::*;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

/// Longer than any step takes on a loaded machine.
const LONG: Duration = Duration::from_secs(60);

/// What a new kernel can do.
fn free() -> SpawnOptions {
    SpawnOptions {
        vfork: false,
        clone3: true,
        pidfd: true,
        close_range: true,
    }
}

/// The same. With the environment variable `LASTWORDS_VFORK` the caller waits for exec, as it must
/// under valgrind.
fn options() -> SpawnOptions {
    SpawnOptions {
        vfork: std::env::var_os("LASTWORDS_VFORK").is_some(),
        ..free()
    }
}

/// Every combination of calls that a new kernel allows to be tried.
fn all_options() -> [SpawnOptions; 4] {
    [
        options(),
        SpawnOptions {
            vfork: true,
            ..options()
        },
        SpawnOptions {
            clone3: false,
            pidfd: false,
            ..options()
        },
        SpawnOptions {
            close_range: false,
            ..options()
        },
    ]
}

/// A plan whose output the test reads itself, as a host does with a raw stream.
fn plan(program: impl AsRef<Path>, args: &[&str]) -> Plan {
    let mut plan = Plan::new(program.as_ref().into());
    plan.stdout = OutputPlan::Raw;
    plan.args = args.iter().map(Into::into).collect();
    plan
}

/// The same plan with captured output. Such a child uses a slot.
fn captured(plan: Plan) -> Plan {
    Plan {
        stdout: OutputPlan::CAPTURED,
        ..plan
    }
}

fn shell(script: &str) -> Plan {
    plan("/bin/sh", &["-c", script])
}

fn null() -> File {
    File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .expect("/dev/null")
}

fn pipe() -> (OwnedFd, OwnedFd) {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe")
}

/// Waits for the end of the child, and returns its status.
fn reap(pid: u32) -> ExitStatus {
    let pid = Pid::from_raw(pid as i32).expect("a pid");
    let wait = || rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
    let (_, status) = rustix::io::retry_on_intr(wait)
        .expect("ours")
        .expect("waited");
    std::os::unix::process::ExitStatusExt::from_raw(status.as_raw())
}

fn known(pending: &mut PendingSpawn) -> SpawnOutcome {
    pending.wait(Some(LONG));
    pending.outcome()
}

/// Runs a plan to its end; what it wrote, and its status.
fn output(spawner: &mut Spawner, plan: Plan) -> Result<(String, ExitStatus), SpawnError> {
    let (read, write) = pipe();
    let null = null();
    let ends = [
        ChildEnd::Fd(null.as_raw_fd()),
        ChildEnd::Fd(write.as_raw_fd()),
        ChildEnd::Fd(write.as_raw_fd()),
    ];
    let launched = spawner.launch(&plan, ends, Inside::default());
    drop(write);
    let mut launched = launched?;
    let outcome = known(&mut launched.pending);
    let mut text = String::new();
    File::from(read).read_to_string(&mut text).expect("text");
    let status = reap(launched.pid);
    spawner.recycle(launched.pending);
    match outcome {
        SpawnOutcome::Started => Ok((text, status)),
        SpawnOutcome::Failed(error) => Err(error),
        SpawnOutcome::NotYet => panic!("not known after {LONG:?}"),
    }
}

/// What the child writes, trimmed.
fn says(spawner: &mut Spawner, plan: Plan) -> String {
    let (text, status) = output(spawner, plan).expect("starts");
    assert!(status.success(), "{status}: {text}");
    text.trim_end().to_owned()
}

/// Reports panics in forked copies of this process on stderr. Set up before there is one: in the
/// copy, a thread that does not exist there may hold the lock for it.
fn told_in_copies() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let original = std::process::id();
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if std::process::id() == original {
                before(info);
            } else {
                let _ = rustix::io::write(rustix::stdio::stderr(), format!("{info}\n").as_bytes());
            }
        }));
    });
}

/// Runs `test` in a forked copy of this process, so that it may close descriptors, change
/// dispositions, and the like.
fn in_a_process_of_its_own(test: impl FnOnce()) {
    told_in_copies();
    // SAFETY: the C library makes its allocator usable in the copy; the copy ends without returning
    // into the test harness.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "{}", std::io::Error::last_os_error());
    if pid == 0 {
        // Ends the copy if it hangs.
        let within = 120 + u32::try_from(rounds(0) / 50).unwrap_or(0);
        // SAFETY: a number only.
        unsafe { libc::alarm(within) };
        let status = i32::from(catch_unwind(AssertUnwindSafe(test)).is_err());
        // SAFETY: no destructors of the harness run in the copy.
        unsafe { libc::_exit(status) };
    }
    let status = reap(pid as u32);
    assert!(status.success(), "in a process of its own: {status}");
}

/// Makes these system calls fail in this process and its children.
fn refuse(calls: &[(std::ffi::c_long, i32)]) {
    let op = |code: u32, jump: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: jump,
        k,
    };
    // The number of the call is the first word of `seccomp_data`.
    let mut program = vec![op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)];
    for (number, errno) in calls {
        program.push(op(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            1,
            *number as u32,
        ));
        program.push(op(
            libc::BPF_RET | libc::BPF_K,
            0,
            libc::SECCOMP_RET_ERRNO | *errno as u32,
        ));
    }
    program.push(op(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW));
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    assert_eq!(
        // SAFETY: numbers only.
        unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) },
        0
    );
    // SAFETY: the kernel copies the filter.
    let set = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const filter,
        )
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

/// A temporary directory of a test, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("lastwords-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Scratch(path)
    }

    /// Makes a file of this text and mode. Another process writes it: a descriptor open for writing
    /// here would for a moment be in children of other tests and make the file busy.
    fn file(&self, name: &str, text: &[u8], mode: u32) -> PathBuf {
        let path = self.0.join(name);
        let mut cat = std::process::Command::new("sh")
            .args(["-c", "cat > \"$0\""])
            .arg(&path)
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("sh");
        std::io::Write::write_all(&mut cat.stdin.take().expect("piped"), text).expect("cat reads");
        assert!(cat.wait().expect("ends").success());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("ours");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Opens descriptors until one has this number, or until the limit is reached.
fn fill(to: RawFd) -> Vec<OwnedFd> {
    let null = null();
    let mut filled = Vec::new();
    while filled.last().is_none_or(|fd: &OwnedFd| fd.as_raw_fd() < to) {
        match rustix::io::fcntl_dupfd_cloexec(&null, 0) {
            Ok(fd) => filled.push(fd),
            Err(_) => break,
        }
    }
    filled
}

/// A spawner in a host that has many descriptors, and so a large table.
fn with_many_descriptors() -> (Spawner, Vec<OwnedFd>) {
    let mut spawner = Spawner::new(free());
    assert_eq!(says(&mut spawner, shell("echo small")), "small");
    let filled = fill(1_100);
    assert!(
        filled.last().is_some_and(|fd| fd.as_raw_fd() >= 900),
        "the limit of open files is too low for this test"
    );
    (spawner, filled)
}

/// The number of open descriptors.
fn open_descriptors() -> usize {
    // One of them is the directory that is read here.
    std::fs::read_dir("/proc/self/fd").expect("a /proc").count() - 1
}

/// The number of rounds; more with the environment variable `LASTWORDS_SPAWNS`.
fn rounds(default: usize) -> usize {
    std::env::var("LASTWORDS_SPAWNS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(default)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
