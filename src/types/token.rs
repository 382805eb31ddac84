//! What a notice is about, in one `u64`: slot, sequence and what, both ways.
//!
//! A slot is used again by later generations; the sequence is not. So whatever comes late for an
//! old generation is told from its successor's by a comparison (SPEC 1.11).

use super::Stream;
use super::limits::WATCHED;
use std::num::NonZeroU64;

const _: () = assert!(usize::BITS == 64, "a token must fit into mio's usize");

const SLOT_BITS: u32 = 24;
const WHAT_BITS: u32 = 8;
const FIRST_MEMBER: u8 = 16;

const _: () = assert!(FIRST_MEMBER as usize + WATCHED <= 1 << WHAT_BITS);

/// The place of a generation in every table that is keyed by generation. Used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub u32);

/// What of a generation (or of the loop) is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// The generation itself, and how its spawn went.
    Spawn,
    /// The leader's end.
    Exit,
    /// An output stream's read end.
    Output(Stream),
    /// The write end of stdin.
    Stdin,
    /// A watched member of the group, by its place: 0 to `limits::WATCHED - 1`.
    Member(u8),
    /// A change of `cgroup.events`.
    Cgroup,
    /// The waker of the loop.
    Wake,
}

impl TokenKind {
    const fn code(self) -> u8 {
        match self {
            TokenKind::Spawn => 1,
            TokenKind::Exit => 2,
            TokenKind::Output(Stream::Stdout) => 3,
            TokenKind::Output(Stream::Stderr) => 4,
            TokenKind::Stdin => 5,
            TokenKind::Cgroup => 6,
            TokenKind::Wake => 7,
            TokenKind::Member(place) => FIRST_MEMBER + place,
        }
    }

    const fn from_code(code: u8) -> Option<TokenKind> {
        Some(match code {
            1 => TokenKind::Spawn,
            2 => TokenKind::Exit,
            3 => TokenKind::Output(Stream::Stdout),
            4 => TokenKind::Output(Stream::Stderr),
            5 => TokenKind::Stdin,
            6 => TokenKind::Cgroup,
            7 => TokenKind::Wake,
            _ if code >= FIRST_MEMBER && (code - FIRST_MEMBER) as usize >= WATCHED => return None,
            _ if code >= FIRST_MEMBER => TokenKind::Member(code - FIRST_MEMBER),
            _ => return None,
        })
    }
}

/// Slot (24 bits), sequence (32 bits) and what (8 bits). Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(NonZeroU64);

impl Token {
    /// How many slots there can be.
    pub const SLOTS: u32 = 1 << SLOT_BITS;

    /// Puts one together. The slot must be below [`Token::SLOTS`]; higher bits are cut off.
    pub const fn new(slot: Slot, sequence: u32, kind: TokenKind) -> Token {
        let slot = (slot.0 & (Self::SLOTS - 1)) as u64;
        let bits = (slot << 40) | ((sequence as u64) << WHAT_BITS) | kind.code() as u64;
        match NonZeroU64::new(bits) {
            Some(bits) => Token(bits),
            // Codes begin at 1.
            None => unreachable!(),
        }
    }

    /// The whole number, for a poll set.
    pub const fn bits(self) -> u64 {
        self.0.get()
    }

    /// Back from a poll set; `None` if it was never one of ours.
    pub const fn from_bits(bits: u64) -> Option<Token> {
        match (NonZeroU64::new(bits), TokenKind::from_code(bits as u8)) {
            (Some(bits), Some(_)) => Some(Token(bits)),
            _ => None,
        }
    }

    /// The slot of the table.
    pub const fn slot(self) -> Slot {
        Slot((self.0.get() >> 40) as u32)
    }

    /// The sequence number of the generation.
    pub const fn sequence(self) -> u32 {
        (self.0.get() >> WHAT_BITS) as u32
    }

    /// What is meant.
    pub const fn kind(self) -> TokenKind {
        match TokenKind::from_code(self.0.get() as u8) {
            Some(kind) => kind,
            // `new` and `from_bits` are the only ways to make one.
            None => unreachable!(),
        }
    }

    /// The same generation, something else of it.
    #[must_use]
    pub const fn with(self, kind: TokenKind) -> Token {
        Token::new(self.slot(), self.sequence(), kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_goes_both_ways() {
        let whats = [
            TokenKind::Spawn,
            TokenKind::Exit,
            TokenKind::Output(Stream::Stdout),
            TokenKind::Output(Stream::Stderr),
            TokenKind::Stdin,
            TokenKind::Cgroup,
            TokenKind::Wake,
        ];
        let members = (0..WATCHED).map(|n| TokenKind::Member(u8::try_from(n).expect("small")));
        for what in whats.into_iter().chain(members) {
            for slot in [0, 1, Token::SLOTS - 1] {
                for sequence in [0, 1, u32::MAX] {
                    let token = Token::new(Slot(slot), sequence, what);
                    assert_eq!(
                        (token.slot(), token.sequence(), token.kind()),
                        (Slot(slot), sequence, what)
                    );
                    assert_eq!(Token::from_bits(token.bits()), Some(token));
                }
            }
        }
        assert_eq!(Token::from_bits(0), None);
        assert_eq!(Token::from_bits(255), None);
    }
}
