//! The command `lastwords`: arguments in, public API, text out.

mod args;
mod exit_code;
mod format;
mod progress;
mod relay;
mod report_file;
mod run;
mod signals;
mod sink;
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
            // A stderr that takes nothing leaves the status to say it.
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

/// The library's own log, if `LASTWORDS_LOG` names a level. Off otherwise: what is to be said, the
/// command says itself.
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
