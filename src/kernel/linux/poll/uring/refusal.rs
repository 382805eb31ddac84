//! Why io_uring is not used, for [`crate::types::Capabilities::backend_why`].

use crate::types::Errno;
use std::fmt;

/// Why io_uring is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The operation that did not work; `None` if there is no ring.
    what: Option<&'static str>,
    errno: Option<Errno>,
    /// The value of /proc/sys/kernel/io_uring_disabled, if that is the reason.
    setting: Option<String>,
}

impl Refusal {
    /// The ring could not be made.
    pub(super) fn refused(errno: Errno) -> Refusal {
        let setting = (errno.raw() == libc::EPERM)
            .then(|| std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled"));
        let setting = setting
            .and_then(Result::ok)
            .map(|text| text.trim().to_owned())
            .filter(|text| text != "0");
        Refusal {
            what: None,
            errno: Some(errno),
            setting,
        }
    }

    /// An operation does not do what it should.
    pub(super) fn unexpected(what: &'static str) -> Refusal {
        Refusal {
            what: Some(what),
            errno: None,
            setting: None,
        }
    }

    /// An operation failed.
    pub(super) fn failed(what: &'static str) -> impl Fn(Errno) -> Refusal {
        move |errno| Refusal {
            what: Some(what),
            errno: Some(errno),
            setting: None,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.what, self.errno) {
            (None, Some(errno)) => write!(f, "io_uring refused: {errno}")?,
            (Some(what), Some(errno)) => write!(f, "io_uring is of no use here: {what}: {errno}")?,
            (what, None) => write!(
                f,
                "io_uring is of no use here: {}",
                what.unwrap_or("nothing works")
            )?,
        }
        match &self.setting {
            Some(setting) => write!(f, " (kernel.io_uring_disabled = {setting})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_and_why() {
        let eperm = Errno::from_raw(libc::EPERM);
        let refusal = Refusal {
            what: None,
            errno: Some(eperm),
            setting: Some("2".into()),
        };
        assert_eq!(
            refusal.to_string(),
            "io_uring refused: Operation not permitted (EPERM) (kernel.io_uring_disabled = 2)"
        );
        assert_eq!(
            Refusal::failed("a wait")(eperm).to_string(),
            "io_uring is of no use here: a wait: Operation not permitted (EPERM)"
        );
        assert_eq!(
            Refusal::unexpected("a poll finds nothing").to_string(),
            "io_uring is of no use here: a poll finds nothing"
        );
    }
}
