//! The two output streams of a child.

use std::fmt;

/// One of the two output streams of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "lowercase")
)]
pub enum Stream {
    /// Descriptor 1 of the child.
    Stdout,
    /// Descriptor 2 of the child.
    Stderr,
}

impl Stream {
    /// Both streams, in the order of their descriptors.
    pub const ALL: [Stream; 2] = [Stream::Stdout, Stream::Stderr];

    /// 0 for stdout, 1 for stderr: the place of the stream in a table of two.
    pub const fn index(self) -> usize {
        match self {
            Stream::Stdout => 0,
            Stream::Stderr => 1,
        }
    }

    /// `"stdout"` or `"stderr"`.
    pub const fn name(self) -> &'static str {
        match self {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        }
    }
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
