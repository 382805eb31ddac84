//! Plays a script with real system calls, in the process that was started for it, before `main`.
//!
//! Signals with a handler of acts are blocked and taken from a signalfd, so that none is missed
//! between looking and sleeping.

#![expect(
    unsafe_code,
    reason = "fork, signals and descriptors of a process that is its own master"
)]

use lastwords::__internals::kernel::sim::script::{
    Act, Acts, Channel, PLAY, Program, Target, piece,
};
use lastwords::sim::{Ns, Script};
use lastwords::{Signal, Stream};
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// The exit code of a script that cannot be read or played.
const CANNOT: i32 = 97;
/// How much is written in one go; with handlers no more than surely fits once the pipe is said to
/// have room.
const PIECE: usize = 64 << 10;
const SURE: usize = 4096;

#[ctor::ctor(unsafe)]
fn play_if_asked() {
    let Some(text) = std::env::var_os(PLAY) else {
        return;
    };
    let Ok(script) = Script::parse(&text.to_string_lossy()) else {
        leave(CANNOT)
    };
    let mut player = Player {
        handled: Vec::new(),
        blocked: Vec::new(),
        signals: None,
        child: 0,
    };
    player.acts(script.acts());
    leave(0);
}

fn leave(code: i32) -> ! {
    // SAFETY: ends the process at once; there is nothing to be cleaned up.
    unsafe { libc::_exit(code) }
}

struct Player {
    handled: Vec<(Signal, Acts)>,
    blocked: Vec<Signal>,
    /// The signalfd, once something is handled.
    signals: Option<RawFd>,
    /// The child forked last.
    child: libc::pid_t,
}

fn fd(channel: Channel) -> RawFd {
    match channel {
        Channel::Stdin => 0,
        Channel::Output(Stream::Stdout) => 1,
        Channel::Output(Stream::Stderr) => 2,
    }
}

impl Player {
    fn acts(&mut self, acts: &Acts) {
        for act in acts.iter() {
            self.act(act);
            self.handle(Some(Duration::ZERO), None);
        }
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::Write(stream, len) => {
                self.write(*stream, *len, |at, n| piece(*stream, at, n as usize))
            }
            Act::Print(stream, text) => {
                self.write(*stream, text.len() as u64, |at, n| {
                    text[at as usize..(at + n) as usize].to_vec()
                });
            }
            Act::Sleep(time) => self.sleep(*time),
            Act::Spin(time) => self.spin(*time),
            Act::Fork(acts) => self.fork(acts),
            Act::Wait => self.wait(),
            Act::Close(channel) => {
                // SAFETY: 0, 1 and 2 are this process's own.
                unsafe { libc::close(fd(*channel)) };
            }
            Act::Read(left) => self.read(*left, None),
            Act::Copy(stream) => self.read(None, Some(*stream)),
            Act::Setsid => {
                // SAFETY: no memory is involved.
                unsafe { libc::setsid() };
            }
            Act::Setpgid => {
                // SAFETY: no memory is involved.
                unsafe { libc::setpgid(0, 0) };
            }
            Act::Ignore(signal) => self.dispose(*signal, libc::SIG_IGN),
            Act::Reset(signal) => self.dispose(*signal, libc::SIG_DFL),
            Act::On(signal, acts) => self.on(*signal, acts),
            Act::Block(signal) => {
                self.blocked.push(*signal);
                self.mask(*signal, libc::SIG_BLOCK);
                self.listen();
            }
            Act::Unblock(signal) => {
                self.blocked.retain(|s| s != signal);
                if !self.handled.iter().any(|(s, _)| s == signal) {
                    self.mask(*signal, libc::SIG_UNBLOCK);
                }
                self.listen();
            }
            Act::Exec(program) => exec(program),
            Act::Kill(target, signal) => self.kill(*target, *signal),
            Act::Repeat(times, acts) => {
                let mut left = *times;
                while left != Some(0) {
                    self.acts(acts);
                    left = left.map(|n| n - 1);
                }
            }
            Act::Name(name) => {
                let name = std::ffi::CString::new(name.as_str()).unwrap_or_default();
                // SAFETY: a string that ends with NUL; the kernel copies at most 16 bytes of it.
                unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
            }
            Act::Outlive(time) => outlive(*time),
            Act::User(user) => {
                // SAFETY: no memory is involved.
                unsafe { libc::setresuid(*user, *user, *user) };
            }
            Act::Unkillable | Act::Fault(..) => leave(CANNOT),
            Act::Exit(code) => leave(*code),
        }
    }

    // ------------------------------------------------------------------ waiting

    /// Waits for handled signals and runs their acts: until `time` has passed, or until `other` has
    /// one of its events.
    fn handle(&mut self, time: Option<Duration>, other: Option<(RawFd, i16)>) {
        let end = time.map(|t| Instant::now() + t);
        loop {
            let left = end.map(|e| e.saturating_duration_since(Instant::now()));
            let mut polled = [
                libc::pollfd {
                    fd: self.signals.unwrap_or(-1),
                    events: libc::POLLIN,
                    revents: 0,
                },
                libc::pollfd {
                    fd: other.map_or(-1, |o| o.0),
                    events: other.map_or(0, |o| o.1),
                    revents: 0,
                },
            ];
            // Rounded up: a sleep is never shorter than it was asked to be.
            let timeout = left.map_or(-1, |l| {
                l.as_micros().div_ceil(1000).min(1_000_000_000) as i32
            });
            if timeout == 0 && self.signals.is_none() && other.is_none() {
                return;
            }
            // SAFETY: two entries that live across the call.
            let n = unsafe { libc::poll(polled.as_mut_ptr(), 2, timeout) };
            if n > 0 && polled[0].revents != 0 {
                self.take_signal();
            } else if n > 0 || end.is_some_and(|e| Instant::now() >= e) {
                return;
            }
        }
    }

    fn take_signal(&mut self) {
        // SAFETY: all zeroes is a value of this plain structure.
        let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
        let size = std::mem::size_of_val(&info);
        // SAFETY: the structure is as large as is said, and lives across the call.
        let n = unsafe { libc::read(self.signals.unwrap_or(-1), (&raw mut info).cast(), size) };
        if usize::try_from(n) == Ok(size) {
            let of = |(signal, _): &&(Signal, Acts)| signal.as_raw() == info.ssi_signo as i32;
            if let Some((_, acts)) = self.handled.iter().find(of).cloned() {
                self.acts(&acts);
            }
        }
    }

    fn sleep(&mut self, time: Option<Ns>) {
        self.handle(time.map(Ns::to_duration), None);
    }

    fn spin(&mut self, time: Option<Ns>) {
        let end = time.map(|t| Instant::now() + t.to_duration());
        while end.is_none_or(|e| Instant::now() < e) {
            for _ in 0..100_000 {
                std::hint::spin_loop();
            }
            self.handle(Some(Duration::ZERO), None);
        }
    }

    fn wait(&mut self) {
        loop {
            let flags = if self.signals.is_some() {
                libc::WNOHANG
            } else {
                0
            };
            // SAFETY: the status is not asked for.
            match unsafe { libc::waitpid(-1, std::ptr::null_mut(), flags) } {
                -1 => return,
                0 => self.handle(Some(Duration::from_millis(1)), None),
                _ => {}
            }
        }
    }

    // ------------------------------------------------------------------ bytes

    fn write(&mut self, stream: Stream, len: u64, bytes: impl Fn(u64, u64) -> Vec<u8>) {
        let to = fd(Channel::Output(stream));
        let mut at = 0;
        while at < len {
            let mut piece = PIECE;
            if self.signals.is_some() {
                piece = SURE;
                self.handle(None, Some((to, libc::POLLOUT)));
            }
            let bytes = bytes(at, (len - at).min(piece as u64));
            // SAFETY: as many bytes as are there.
            match unsafe { libc::write(to, bytes.as_ptr().cast(), bytes.len()) } {
                n if n > 0 => at += n as u64,
                // EPIPE or EBADF: the rest is not written.
                _ => return,
            }
        }
    }

    fn read(&mut self, mut left: Option<u64>, copy: Option<Stream>) {
        let mut bytes = vec![0u8; PIECE];
        while left != Some(0) {
            if self.signals.is_some() {
                self.handle(None, Some((0, libc::POLLIN)));
            }
            let most = left.map_or(PIECE, |l| l.min(PIECE as u64) as usize);
            // SAFETY: at most as many bytes as there is room for.
            let n = unsafe { libc::read(0, bytes.as_mut_ptr().cast(), most) };
            let Some(n) = usize::try_from(n).ok().filter(|n| *n > 0) else {
                return;
            };
            left = left.map(|l| l - n as u64);
            if let Some(stream) = copy {
                self.write(stream, n as u64, |at, len| {
                    bytes[at as usize..(at + len) as usize].to_vec()
                });
            }
        }
    }

    // ------------------------------------------------------------------ processes and signals

    fn fork(&mut self, acts: &Acts) {
        // SAFETY: nothing but this thread has been started, so the copy is whole.
        match unsafe { libc::fork() } {
            0 => {
                self.child = 0;
                self.acts(acts);
                leave(0);
            }
            -1 => leave(CANNOT),
            pid => self.child = pid,
        }
    }

    fn kill(&self, target: Target, signal: Signal) {
        let number = |pid: u32| libc::pid_t::try_from(pid).unwrap_or(0);
        let pid = match target {
            Target::Me => number(std::process::id()),
            Target::Group => 0,
            Target::Parent => number(std::os::unix::process::parent_id()),
            Target::Child if self.child > 0 => self.child,
            Target::Child => return,
        };
        // SAFETY: no memory is involved.
        unsafe { libc::kill(pid, signal.as_raw()) };
    }

    fn dispose(&mut self, signal: Signal, action: libc::sighandler_t) {
        // SAFETY: ignoring and the default need no handler.
        unsafe { libc::signal(signal.as_raw(), action) };
        self.handled.retain(|(s, _)| *s != signal);
        if !self.blocked.contains(&signal) {
            self.mask(signal, libc::SIG_UNBLOCK);
        }
    }

    fn on(&mut self, signal: Signal, acts: &Acts) {
        self.mask(signal, libc::SIG_BLOCK);
        self.handled.retain(|(s, _)| *s != signal);
        self.handled.push((signal, acts.clone()));
        self.listen();
    }

    /// The signalfd has what is handled and not blocked.
    fn listen(&mut self) {
        if self.signals.is_none() && self.handled.is_empty() {
            return;
        }
        let all = set_of(
            self.handled
                .iter()
                .map(|(s, _)| *s)
                .filter(|s| !self.blocked.contains(s)),
        );
        // SAFETY: the set lives across the call.
        let fd = unsafe { libc::signalfd(self.signals.unwrap_or(-1), &all, libc::SFD_CLOEXEC) };
        if self.signals.is_none() {
            // Out of the way of descriptors 0 to 2, which a script may have closed.
            // SAFETY: a descriptor of this process's own.
            self.signals = Some(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 100) });
            // SAFETY: the same.
            unsafe { libc::close(fd) };
        }
    }

    fn mask(&self, signal: Signal, how: i32) {
        let set = set_of(std::iter::once(signal));
        // SAFETY: the set lives across the call; the old one is not asked for.
        unsafe { libc::sigprocmask(how, &set, std::ptr::null_mut()) };
    }
}

fn set_of(signals: impl Iterator<Item = Signal>) -> libc::sigset_t {
    // SAFETY: all zeroes is a value of this plain structure, and the next call makes it an empty
    // set.
    let mut set = unsafe { std::mem::zeroed() };
    // SAFETY: the set is there.
    unsafe { libc::sigemptyset(&mut set) };
    for signal in signals {
        // SAFETY: the set is there, and `Signal` has numbers of signals only.
        unsafe { libc::sigaddset(&mut set, signal.as_raw()) };
    }
    set
}

/// Becomes this program again, with another script and perhaps with nothing else in its
/// environment.
fn exec(program: &Program) -> ! {
    let text = |text: String| std::ffi::CString::new(text).unwrap_or_default();
    let name = program.name.replace('\\', "\\\\").replace('"', "\\\"");
    let others = std::env::vars()
        .filter(|(name, _)| !program.is_clean && name != PLAY)
        .map(|(name, value)| text(format!("{name}={value}")));
    let env: Vec<_> = others
        .chain([text(format!("{PLAY}=name \"{name}\"; {}", program.text))])
        .collect();
    let argv = [text(program.name.clone())];
    let pointers = |list: &[std::ffi::CString]| {
        list.iter()
            .map(|s| s.as_ptr())
            .chain([std::ptr::null()])
            .collect::<Vec<_>>()
    };
    // What is ignored or blocked stays so: std's own exec would undo it.
    // SAFETY: both lists end with null, and what they point to lives across the call.
    unsafe {
        libc::execve(
            c"/proc/self/exe".as_ptr(),
            pointers(&argv).as_ptr(),
            pointers(&env).as_ptr(),
        )
    };
    leave(CANNOT)
}

/// The main thread ends, another goes on.
fn outlive(time: Ns) {
    std::thread::spawn(move || {
        std::thread::sleep(time.to_duration());
        leave(0);
    });
    // SAFETY: ends this thread alone; nothing that it has lent to another is used by that.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
}
