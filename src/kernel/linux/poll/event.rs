//! What a poll set is told to watch, and what it reports.

use crate::types::Token;

/// Identifies a watched descriptor: a token of the reactor, or something of the kernel object's
/// own. Fits into the 64 bits that epoll and io_uring pass through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// A descriptor of a generation.
    Token(Token),
    /// The self-pipe of the SIGCHLD handler.
    Sigchld,
    /// The timer of [`crate::kernel::Kernel::alarm`].
    Alarm,
    /// An entry of [`crate::kernel::linux::lingering`], by its number.
    Linger(u32),
}

// Low bytes that no `What` has.
const SIGCHLD: u64 = 0x08;
const ALARM: u64 = 0x09;
const LINGER: u64 = 0x0a;

impl Key {
    /// The key as one word.
    pub(crate) fn bits(self) -> u64 {
        match self {
            Key::Token(token) => token.bits(),
            Key::Sigchld => SIGCHLD,
            Key::Alarm => ALARM,
            Key::Linger(number) => u64::from(number) << 8 | LINGER,
        }
    }

    /// The key of a word; `None` if no key has it.
    pub(super) fn from_bits(bits: u64) -> Option<Key> {
        match bits & 0xff {
            SIGCHLD => Some(Key::Sigchld),
            ALARM => Some(Key::Alarm),
            LINGER => Some(Key::Linger((bits >> 8) as u32)),
            _ => Token::from_bits(bits).map(Key::Token),
        }
    }
}

/// A watched descriptor is ready.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub key: Key,
    /// The other end of the pipe is closed, or the descriptor is in error.
    pub hung_up: bool,
}

/// What a descriptor is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    /// Something to read, or a hang-up (POLLIN).
    Read,
    /// Room to write, or a hang-up (POLLOUT).
    Write,
    /// A change of a cgroup's file (POLLPRI).
    Urgent,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::limits::WATCHED;
    use crate::types::{Slot, TokenKind};

    #[test]
    fn keys_go_both_ways_and_never_meet() {
        let token = |what| Key::Token(Token::new(Slot(7), 9, what));
        let last = u8::try_from(WATCHED - 1).expect("small");
        let keys = [
            Key::Sigchld,
            Key::Alarm,
            Key::Linger(0),
            Key::Linger(u32::MAX),
            token(TokenKind::Spawn),
            token(TokenKind::Exit),
            token(TokenKind::Wake),
            token(TokenKind::Member(last)),
        ];
        for key in keys {
            assert_eq!(Key::from_bits(key.bits()), Some(key));
        }
        assert_eq!(Key::from_bits(0xff), None);
    }
}
