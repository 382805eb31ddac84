//! Translates the command line into the library's [`Command`].

use crate::args::{OutputChoice, RunArgs, StdinChoice};
use lastwords::{
    Capture, Command, DrainPolicy, LastWordsPolicy, Output, Signal, Stdin, StopPolicy,
    TerminalControl,
};

/// Builds the command that the arguments describe.
///
/// Signals in `ignored` stay ignored in the command. `foreground` makes the command's group the
/// foreground of its terminal before exec.
pub(super) fn build(args: &RunArgs, ignored: &[Signal], foreground: bool) -> Command {
    let (bounds, child, reporting) = (&args.bounds, &args.child, &args.reporting);
    // clap requires at least one word.
    let (program, arguments) = match args.command.split_first() {
        Some((program, arguments)) => (program.clone(), arguments),
        None => (std::ffi::OsString::new(), &[][..]),
    };
    let mut command = Command::new(program);
    command
        .args(arguments)
        .inherit_fds(!child.close_fds)
        .foreground_terminal(foreground)
        .terminal(TerminalControl::Unmanaged);
    command.stdin(match child.stdin {
        StdinChoice::Inherit => Stdin::Inherit,
        StdinChoice::Null => Stdin::Null,
    });
    let capture = Capture::default()
        .max_bytes(reporting.tail_bytes)
        .deliver(true);
    let output = |choice| match choice {
        OutputChoice::Pipe => Output::Capture(capture),
        OutputChoice::Inherit => Output::Inherit,
    };
    command.stdout(output(child.stdout));
    command.stderr(if child.merge {
        Output::ToStdout
    } else {
        output(child.stderr)
    });
    command.drain(
        DrainPolicy::default()
            .idle(bounds.drain_idle)
            .limit(bounds.drain_limit),
    );
    command.stop(
        StopPolicy::default()
            .signal(bounds.stop_signal)
            .grace(bounds.stop_grace),
    );
    command.last_words(LastWordsPolicy::default().lines(reporting.tail_lines));
    command.run_limit(bounds.time_limit());
    for name in &child.unset {
        command.env_remove(name);
    }
    for (name, value) in &child.env {
        command.env(name, value);
    }
    if let Some(dir) = &child.cwd {
        command.current_dir(dir);
    }
    for signal in ignored {
        command.ignore_signal(*signal);
    }
    command
}
