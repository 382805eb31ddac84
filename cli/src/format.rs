//! Text of errors, and whether colours are used.

use super::args::Color;
use std::io;

/// The text of an error, with the symbolic name of its errno where it has one.
pub(crate) fn error_text(e: &io::Error) -> String {
    if e.raw_os_error().is_some() {
        lastwords::Errno::from(e).to_string()
    } else {
        e.to_string()
    }
}

pub(crate) fn wants_colors(color: Color, terminal: bool) -> bool {
    match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => {
            terminal
                && !is_dumb()
                && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        }
    }
}

/// Whether the terminal supports no control sequences (`TERM` is unset, empty or `dumb`).
pub(crate) fn is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb")
}
