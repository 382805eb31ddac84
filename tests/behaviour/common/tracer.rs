//! A tracer (ptrace(2)) that is no part of the test: another process.

use std::io::Read;
use std::process::{Child, Command, Stdio};

/// A process that traces another one without stopping it. A traced process that dies is kept from
/// its parent until the tracer lets go of it.
#[derive(Debug)]
pub(crate) struct Tracer(Child);

impl Tracer {
    /// PTRACE_SEIZE, by perl.
    pub(crate) fn seize(pid: u32) -> Tracer {
        let script = "$| = 1; syscall($ARGV[0] + 0, 0x4206, $ARGV[1] + 0, 0, 0) == 0 or die \"seize: $!\"; print \"seized\\n\"; <STDIN>;";
        let mut tracer = Command::new("perl")
            .args([
                "-e",
                script,
                &libc::SYS_ptrace.to_string(),
                &pid.to_string(),
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("perl");
        let mut said = [0; 7];
        tracer
            .stdout
            .as_mut()
            .expect("its output")
            .read_exact(&mut said)
            .expect("the tracer speaks");
        Tracer(tracer)
    }

    /// Detaches the tracer.
    pub(crate) fn let_go(mut self) {
        drop(self.0.stdin.take());
        self.0.wait().expect("the tracer ends");
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
