//! The command `lastwords`. It parses the arguments and uses the library's public API alone.

mod args;
mod exit_code;
mod format;
mod mapping;
mod progress;
mod relay;
mod report_file;
mod run;
mod signals;
mod sink;
mod startup;
mod summary;
mod terminal;
mod termination_log;
mod units;

use args::{Cli, Verb};
use clap::Parser;
use exit_code::Ending;
use std::process::ExitCode;
use tracing_subscriber::filter::LevelFilter;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            // If stderr cannot be written either, the exit code still reports the failure.
            let _ = e.print();
            return ExitCode::from(if e.use_stderr() {
                exit_code::OWN_FAILURE
            } else {
                0
            });
        }
    };
    if let Err(what) = log_to_stderr() {
        eprintln!("lastwords: {what}");
        return ExitCode::from(exit_code::OWN_FAILURE);
    }
    let ending = match cli.verb {
        Verb::Run(args) => run::run(&args),
    };
    match ending {
        Ending::Status(status) => ExitCode::from(status),
        Ending::Signal(signal) => {
            signals::terminate_by(signal);
            ExitCode::from(exit_code::for_signal(signal))
        }
    }
}

/// Writes the library's log to stderr if `LASTWORDS_LOG` names a level. It is off by default,
/// because the command prints its own messages.
fn log_to_stderr() -> Result<(), String> {
    let Some(level) = std::env::var_os("LASTWORDS_LOG").filter(|level| !level.is_empty()) else {
        return Ok(());
    };
    let level: LevelFilter = level
        .to_str()
        .and_then(|level| level.parse().ok())
        .ok_or_else(|| {
            format!("LASTWORDS_LOG is {level:?}: expected off, error, warn, info, debug or trace")
        })?;
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .init();
    Ok(())
}
