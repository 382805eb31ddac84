//! Linux under test.

#![expect(
    unsafe_code,
    reason = "the disposition of SIGPIPE is set for a whole process"
)]

use super::rig::{Failure, NO_GROUP_SIGNAL, Rig, SIGCHLD, URING};
use crate::support::{self, Census};
use lastwords::__internals::command::plan::Plan;
use lastwords::__internals::kernel::linux::{Linux, LinuxOptions};
use lastwords::{
    Backend, BackendChoice, CgroupOptions, ExitSourceChoice, GroupSignal, Kernel, Signal,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, Resource, Rlimit, WaitOptions, getrlimit, kill_process, setrlimit, waitpid,
};
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Linux, and processes that are not its own.
pub(crate) struct LinuxRig<const KIND: u8 = 0> {
    linux: Linux,
    strangers: Vec<Child>,
    /// How many descriptors may still be opened, the next time that they are short.
    spare: u64,
    /// A cgroup for the cgroups of this test.
    cgroups: Option<std::path::PathBuf>,
}

fn pid_of(number: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(number).ok()?)
}

fn stranger() -> Child {
    let (program, name, script) = support::play("sleep 20s");
    let mut command = Command::new(program);
    command
        .env(name, script)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    command.spawn().expect("the player starts")
}

fn limit_descriptors(soft: Option<u64>) {
    let hard = getrlimit(Resource::Nofile).maximum;
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: soft.or(hard),
            maximum: hard,
        },
    )
    .expect("a lower limit");
}

impl<const KIND: u8> Rig for LinuxRig<KIND> {
    type K = Linux;
    // SIGCHLD goes to any thread of the process, which then has to run first.
    const LATE: bool = KIND & SIGCHLD != 0;
    const IS_REAL: bool = true;
    const IS_INTERRUPTED: bool = false;

    fn new() -> Self {
        let mut options = LinuxOptions::default();
        if KIND & NO_GROUP_SIGNAL != 0 {
            options.group_signal = GroupSignal::Off;
        }
        if KIND & SIGCHLD != 0 {
            options.exit_source = ExitSourceChoice::Sigchld;
        }
        if KIND & URING != 0 {
            options.backend = BackendChoice::Uring;
        }
        let linux = Linux::new(options).expect("a poll set");
        if linux.capabilities().backend == Backend::Epoll && KIND & URING != 0 {
            // Then the promises are kept by epoll, as they are where it was asked for.
            eprintln!("{}", linux.capabilities().backend_why);
        }
        LinuxRig {
            linux,
            strangers: Vec::new(),
            spare: 0,
            cgroups: None,
        }
    }

    fn kernel(&mut self) -> &mut Linux {
        &mut self.linux
    }

    fn pass(&mut self, time: Duration) {
        std::thread::sleep(time);
    }

    fn is_readable(&mut self) -> bool {
        let mut polled = [PollFd::from_borrowed_fd(self.linux.as_fd(), PollFlags::IN)];
        poll(
            &mut polled,
            Some(&Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            }),
        )
        .expect("poll")
            > 0
    }

    fn is_alive(&mut self, pid: u32) -> bool {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(") ")
            .next()
            .is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['Z', 'X']))
    }

    fn kill(&mut self, pid: u32, signal: Signal) {
        let raw =
            rustix::process::Signal::from_named_raw(signal.as_raw()).expect("a signal with a name");
        let _ = kill_process(pid_of(pid).expect("a number"), raw);
        for mut child in self
            .strangers
            .extract_if(.., |c| c.id() == pid)
            .collect::<Vec<_>>()
        {
            child.wait().expect("a child of ours");
        }
    }

    fn steal(&mut self, pid: u32) {
        waitpid(pid_of(pid), WaitOptions::empty()).expect("a child of ours");
    }

    fn stranger(&mut self, pid: u32) -> Option<u32> {
        // Others take numbers meanwhile: some tries.
        for _ in 0..50 {
            fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).ok()?;
            let mut child = stranger();
            if child.id() == pid {
                self.strangers.push(child);
                return Some(pid);
            }
            child.kill().expect("a child of ours");
            child.wait().expect("a child of ours");
        }
        None
    }

    fn spurious_exit(&mut self) {
        // For SIGCHLD: the end of somebody else's child. A pidfd says nothing for nothing.
        let mut child = stranger();
        child.kill().expect("a child of ours");
        child.wait().expect("a child of ours");
    }

    fn failures(&mut self) -> Vec<Failure<Self>> {
        let plan = || support::plan("exit 0");
        let mut no_directory = plan();
        no_directory.dir = Some("/nonexistent/directory".into());
        let mut short = vec![("no directory", (|_| {}) as fn(&mut Self), no_directory)];
        for program in [
            "/nonexistent/program",
            "nonexistent-program",
            "/etc/passwd",
            "/etc",
            "",
        ] {
            short.push(("no program", |_| {}, Plan::new(program.into())));
        }
        for _ in 0..4 {
            let squeeze = |rig: &mut Self| {
                rig.spare = (rig.spare + 1) % 4;
                let open = Census::take().descriptors;
                let free = (0..)
                    .filter(|n| !open.contains_key(n))
                    .nth(rig.spare as usize);
                limit_descriptors(free.map(u64::from));
            };
            short.push(("too many open files", squeeze, plan()));
        }
        short
    }

    fn count(&mut self) -> String {
        limit_descriptors(None);
        // What was put aside is closed by the next wait at the latest.
        self.kernel().close_deferred();
        let census = Census::take();
        format!(
            "descriptors {:?}, children {:?}, {} threads",
            census.descriptors, census.children, census.threads
        )
    }

    fn named(&mut self, comm: &str) -> Vec<u32> {
        let all = fs::read_dir("/proc")
            .expect("/proc")
            .filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok());
        all.filter(|pid: &u32| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|c| c.trim_end() == comm)
        })
        .collect()
    }

    fn cgroup_parent(&mut self) -> Option<CgroupOptions> {
        let parent = support::cgroups()?.join(format!("lastwords-contract-{}", std::process::id()));
        if self.cgroups.is_none() {
            fs::create_dir(&parent).expect("a cgroup");
        }
        Some(CgroupOptions::default().parent(&*self.cgroups.get_or_insert(parent)))
    }

    fn cgroups(&mut self) -> usize {
        let Some(parent) = &self.cgroups else {
            return 0;
        };
        fs::read_dir(parent)
            .expect("it is there")
            .filter(|e| e.as_ref().is_ok_and(|e| e.path().is_dir()))
            .count()
    }

    fn die_of_sigpipe() {
        // SAFETY: the default action needs no handler.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    }

    fn end(self) {
        for mut child in self.strangers {
            child.kill().expect("a child of ours");
            child.wait().expect("a child of ours");
        }
        if let Some(parent) = self.cgroups {
            fs::remove_dir(parent).expect("nothing is left in it");
        }
    }
}
