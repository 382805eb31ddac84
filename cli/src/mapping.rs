//! `--map-signal` and `--map-exit`: what lastwords passes on in place of something else.

use lastwords::Signal;

/// What a signal to lastwords becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SignalMapping {
    from: Signal,
    /// `None` drops the signal.
    to: Option<Signal>,
}

/// What an exit code of the command becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExitMapping {
    from: u8,
    to: u8,
}

/// Signals that cannot be mapped: lastwords cannot catch them, or needs them to suspend and resume
/// the command.
const NOT_MAPPABLE: [Signal; 16] = [
    Signal::KILL,
    Signal::STOP,
    Signal::ILL,
    Signal::TRAP,
    Signal::ABRT,
    Signal::BUS,
    Signal::FPE,
    Signal::SEGV,
    Signal::SYS,
    Signal::PIPE,
    Signal::XFSZ,
    Signal::CHLD,
    Signal::CONT,
    Signal::TSTP,
    Signal::TTIN,
    Signal::TTOU,
];

/// Parses `FROM:TO`, where `TO` may be 0.
pub(crate) fn parse_signal(text: &str) -> Result<SignalMapping, String> {
    let expected = || "expected FROM:TO, two signals, where TO may be 0".to_owned();
    let (from, to) = text.split_once(':').ok_or_else(expected)?;
    let from = Signal::from_name(from).ok_or_else(expected)?;
    if NOT_MAPPABLE.contains(&from) {
        return Err(format!("{from} cannot be mapped"));
    }
    let to = match to {
        "0" => None,
        name => Some(Signal::from_name(name).ok_or_else(expected)?),
    };
    Ok(SignalMapping { from, to })
}

/// Parses `FROM:TO`, two exit codes.
pub(crate) fn parse_exit(text: &str) -> Result<ExitMapping, String> {
    let codes = text.split_once(':').and_then(|(from, to)| {
        Some(ExitMapping {
            from: from.parse().ok()?,
            to: to.parse().ok()?,
        })
    });
    codes.ok_or_else(|| "expected FROM:TO, two exit codes from 0 to 255".to_owned())
}

/// What the command gets in place of a signal; `None` drops it. The last mapping counts.
pub(crate) fn map_signal(mappings: &[SignalMapping], signal: Signal) -> Option<Signal> {
    let mapping = mappings.iter().rfind(|mapping| mapping.from == signal);
    mapping.map_or(Some(signal), |mapping| mapping.to)
}

/// The exit code in place of the command's, if it is mapped. The last mapping counts.
pub(crate) fn map_exit(mappings: &[ExitMapping], code: u8) -> Option<u8> {
    let mapping = mappings.iter().rfind(|mapping| mapping.from == code);
    mapping.map(|mapping| mapping.to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_mapped_dropped_or_left_alone() {
        let mappings =
            ["TERM:QUIT", "15:USR1", "HUP:0"].map(|text| parse_signal(text).expect("well formed"));
        assert_eq!(map_signal(&mappings, Signal::TERM), Some(Signal::USR1));
        assert_eq!(map_signal(&mappings, Signal::HUP), None);
        assert_eq!(map_signal(&mappings, Signal::INT), Some(Signal::INT));
        for text in [
            "TERM",
            "TERM:",
            ":TERM",
            "0:TERM",
            "KILL:TERM",
            "CONT:TERM",
            "TERM:NOPE",
        ] {
            assert!(parse_signal(text).is_err(), "{text}");
        }
    }

    #[test]
    fn exit_codes_are_mapped_or_left_alone() {
        let mappings = ["143:0", "0:7"].map(|text| parse_exit(text).expect("well formed"));
        assert_eq!(map_exit(&mappings, 143), Some(0));
        assert_eq!(map_exit(&mappings, 0), Some(7));
        assert_eq!(map_exit(&mappings, 1), None);
        for text in ["143", "143:", "256:0", "-1:0", "a:b"] {
            assert!(parse_exit(text).is_err(), "{text}");
        }
    }
}
