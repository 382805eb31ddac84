//! The whole kernel object, called as a reactor calls it.

mod exits;
mod groups;
mod pipes;
mod refused;
mod scans;
mod starts;
mod uring;

pub(in crate::kernel::linux) use refused::refuse;

use super::process::leader::LeaderState;
use super::process::pidfd;
use super::process::pidfd::SignalScope;
use super::table::Row;
use crate::capture::Pool;
use crate::command::Transport;
use crate::command::plan::{OutputPlan, StdinPlan};
use crate::kernel::linux::poll::{Interest, Key};
use crate::kernel::linux::process::identity::open_verified;
use crate::kernel::linux::stdio::read;
use crate::kernel::linux::*;
use crate::kernel::{Notice, ReadOp, Wake};
use crate::testing::isolation::alone;
use crate::types::{
    BackendChoice, ExitInfo, ExitSource, ExitSourceChoice, GroupSignal, Slot, Stream, TokenKind,
    limits,
};
use std::ffi::OsString;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(30);

/// A kernel object, with what a reactor keeps besides.
struct Rig {
    linux: Linux,
    notices: Notices,
    pool: Pool,
    sequence: u32,
    /// Notices that have come and were not waited for yet.
    kept: Vec<Notice>,
}

/// A plan of a program and its arguments.
fn plan(words: &[&str]) -> Plan {
    let mut plan = Plan::new(OsString::from(words[0]));
    plan.args = words[1..].iter().map(OsString::from).collect();
    plan
}

fn sh(script: &str) -> Plan {
    plan(&["sh", "-c", script])
}

/// Every combination of exit source, group signals and backend that can be had here.
fn ways() -> Vec<LinuxOptions> {
    let auto = LinuxOptions::default();
    vec![
        auto,
        LinuxOptions {
            group_signal: GroupSignal::Off,
            ..auto
        },
        LinuxOptions {
            exit_source: ExitSourceChoice::Sigchld,
            ..auto
        },
        LinuxOptions {
            exit_source: ExitSourceChoice::Sigchld,
            group_signal: GroupSignal::Off,
            vfork: true,
            ..auto
        },
        LinuxOptions {
            backend: BackendChoice::Uring,
            ..auto
        },
        LinuxOptions {
            backend: BackendChoice::Uring,
            exit_source: ExitSourceChoice::Sigchld,
            group_signal: GroupSignal::Off,
            ..auto
        },
    ]
}

impl Rig {
    fn new(options: LinuxOptions) -> Rig {
        Rig {
            linux: Linux::new(options).expect("a kernel"),
            notices: Notices::new(),
            pool: Pool::new(1 << 20),
            sequence: 0,
            kept: Vec::new(),
        }
    }

    fn token(&mut self, slot: u32) -> Token {
        self.sequence += 1;
        Token::new(Slot(slot), self.sequence, TokenKind::Spawn)
    }

    fn start(&mut self, slot: u32, plan: Plan) -> Token {
        let token = self.token(slot);
        self.linux
            .spawn(&Arc::new(plan), token)
            .unwrap_or_else(|e| panic!("failed to {e}"));
        token
    }

    /// Waits until there is a notice. Panics if none comes for too long.
    fn wait(&mut self) -> Vec<Notice> {
        let until = self.linux.now().after(LONG.into());
        loop {
            self.linux
                .wait(Until::At(until), &mut self.notices)
                .expect("wait");
            if !self.notices.is_empty() {
                return self.notices.as_slice().to_vec();
            }
            assert!(self.linux.now() < until, "nothing happened in {LONG:?}");
        }
    }

    /// Waits for this notice, or takes it from those kept. Returns all notices up to and including
    /// it, in their order, and forgets them.
    fn wait_for(&mut self, notice: Notice) -> Vec<Notice> {
        while !self.kept.contains(&notice) {
            let more = self.wait();
            self.kept.extend(more);
        }
        let all = self.kept.clone();
        self.kept.retain(|n| *n != notice);
        all
    }

    fn peek(&mut self) -> Vec<Notice> {
        self.linux
            .wait(Until::Peek, &mut self.notices)
            .expect("wait");
        self.notices.as_slice().to_vec()
    }

    /// Waits for the outcome.
    fn outcome(&mut self, token: Token) -> SpawnOutcome {
        let until = self.linux.now().after(LONG.into());
        self.linux
            .wait(Until::Outcome(token, Some(until)), &mut self.notices)
            .expect("wait");
        self.linux.outcome(token)
    }

    /// Reads the stream once and gives the bytes.
    fn read(&mut self, token: Token, stream: Stream) -> (ReadResult, Vec<u8>) {
        let mut batch = Batch::new();
        let spare = self.pool.take(limits::BLOCK);
        batch.push(ReadOp {
            stream: token.with(TokenKind::Output(stream)),
            room: None,
            spare,
            result: ReadResult::Stale,
        });
        self.linux.read(&mut batch);
        let op = batch.pop().expect("the one that was put in");
        let bytes = if let ReadResult::Data { n, .. } = op.result {
            op.spare.bytes()[..n].to_vec()
        } else {
            Vec::new()
        };
        self.pool.put(op.spare);
        (op.result, bytes)
    }

    /// Reads until nothing is available. Returns the bytes and the last result.
    fn read_out(&mut self, token: Token, stream: Stream) -> (ReadResult, Vec<u8>) {
        let mut all = Vec::new();
        loop {
            match self.read(token, stream) {
                (ReadResult::Data { n, more_available }, bytes) => {
                    assert!(n > 0 && n == bytes.len());
                    all.extend(bytes);
                    if !more_available && self.read_more(token, stream, &mut all) {
                        return (ReadResult::Empty, all);
                    }
                }
                (last, _) => return (last, all),
            }
        }
    }

    /// Reads to end of file, waiting where needed.
    fn rest(&mut self, token: Token, stream: Stream) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let (last, bytes) = self.read_out(token, stream);
            all.extend(bytes);
            match last {
                ReadResult::End => return all,
                ReadResult::Empty => {
                    drop(self.wait_for(Notice::Readable(token.with(TokenKind::Output(stream)))))
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// After a read without `more_available` the pipe is empty, or has bytes that came since. The
    /// next read tells which.
    fn read_more(&mut self, token: Token, stream: Stream, all: &mut Vec<u8>) -> bool {
        match self.read(token, stream) {
            (ReadResult::Data { .. }, bytes) => {
                all.extend(bytes);
                false
            }
            (ReadResult::Empty, _) => true,
            (_, _) => false,
        }
    }

    /// Waits for the exit and collects it.
    fn exit(&mut self, token: Token, mode: CollectMode) -> ExitInfo {
        loop {
            self.wait_for(Notice::Exit(token.with(TokenKind::Exit)));
            match self.linux.collect(token, mode) {
                Collected::Ended(info) => return info,
                Collected::NotYet => {}
                Collected::Lost => panic!("nobody else reaps here"),
            }
        }
    }

    /// Reads one line of a script's output. Bytes after it stay unread.
    fn line(&mut self, token: Token) -> String {
        let mut all = Vec::new();
        while !all.ends_with(b"\n") {
            let (got, bytes) = self.read(token, Stream::Stdout);
            all.extend(bytes);
            match got {
                ReadResult::Data { .. } => {}
                ReadResult::Empty => drop(self.wait_for(Notice::Readable(
                    token.with(TokenKind::Output(Stream::Stdout)),
                ))),
                other => panic!("{other:?} after {all:?}"),
            }
        }
        String::from_utf8(all).expect("text").trim_end().to_string()
    }

    fn pid(&mut self, token: Token) -> u32 {
        self.row(token).pid
    }

    fn row(&mut self, token: Token) -> &mut Row {
        self.linux.inner.table.get_mut(token).expect("a row")
    }

    fn close(&mut self, token: Token) {
        self.linux.release(token, Release::Close);
        self.linux.close_deferred();
    }

    /// Kills the group, and closes everything of the generation.
    fn end(&mut self, token: Token) {
        self.linux.signal(token, Signal::KILL);
        if self.row(token).leader == LeaderState::Running {
            self.exit(token, CollectMode::Reap);
        }
        self.close(token);
    }
}

/// The open descriptors of this process.
fn descriptors() -> Vec<String> {
    let mut all: Vec<String> = std::fs::read_dir("/proc/self/fd")
        .expect("/proc")
        .flatten()
        .filter_map(|entry| {
            let to = std::fs::read_link(entry.path()).ok()?;
            Some(format!(
                "{} -> {}",
                entry.file_name().display(),
                to.display()
            ))
        })
        .filter(|line| !line.contains("/proc/"))
        .collect();
    all.sort();
    all
}

/// Whether this process has no child, running or dead.
fn has_no_child() -> bool {
    let options = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOHANG;
    matches!(
        rustix::process::waitid(rustix::process::WaitId::All, options),
        Err(rustix::io::Errno::CHILD)
    )
}

/// Makes this process inherit orphans, so that it can reap them. Only inside [`alone`].
fn adopt_orphans() {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).expect("subreaper");
}

/// Waits for the end of an inherited orphan and reaps it.
fn bury(pid: u32) {
    rustix::process::waitpid(pidfd::pid_of(pid), rustix::process::WaitOptions::empty())
        .expect("adopted");
}

/// Changes the effective user and group, or changes them back to root. Only inside [`alone`].
#[expect(unsafe_code, reason = "changes who this process is")]
fn become_user(id: u32) {
    // Back to root the user must change first, and away from root it must change last.
    for step in if id == 0 {
        [libc::seteuid, libc::setegid]
    } else {
        [libc::setegid, libc::seteuid]
    } {
        // SAFETY: no memory is involved.
        assert_eq!(unsafe { step(id) }, 0);
    }
}

/// Mounts a /proc of this process's own with this option, where that is permitted. For [`alone`]
/// only.
#[expect(unsafe_code, reason = "unshare(2) and mount(2)")]
fn mount_proc(option: &std::ffi::CStr) -> bool {
    // SAFETY: no memory is involved.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return false;
    }
    let mount = |from: &std::ffi::CStr,
                 at: &std::ffi::CStr,
                 kind: &std::ffi::CStr,
                 flags: u64,
                 data: &std::ffi::CStr| {
        // SAFETY: all strings end with NUL and outlive the call.
        unsafe {
            libc::mount(
                from.as_ptr(),
                at.as_ptr(),
                kind.as_ptr(),
                flags,
                data.as_ptr().cast(),
            )
        }
    };
    let private = libc::MS_PRIVATE | libc::MS_REC;
    mount(c"none", c"/", c"", private, c"") == 0
        && mount(c"proc", c"/proc", c"proc", 0, option) == 0
}

/// Whether a process exists and is no zombie.
fn is_alive(pid: u32) -> bool {
    procfs::Proc::open()
        .expect("/proc")
        .stat(pid)
        .is_ok_and(|stat| stat.is_alive())
}

/// Checks a condition again and again, and panics if it never holds.
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = std::time::Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < LONG, "not in {LONG:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
