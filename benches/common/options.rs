//! What every bench is told on its command line. A bench flattens it into arguments of its own:
//!
//! ```text
//! #[derive(clap::Parser)]
//! struct Args {
//!     #[command(flatten)]
//!     options: Options<Scenario, Peer>,
//! }
//! ```

use clap::ValueEnum;
use std::path::PathBuf;

/// What a list on the command line may name.
pub(crate) trait Choice:
    ValueEnum + Copy + PartialEq + std::fmt::Debug + Send + Sync + 'static
{
    /// Its name in arguments, tables and files: the one that `clap` knows it by.
    fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

impl<T: ValueEnum + Copy + PartialEq + std::fmt::Debug + Send + Sync + 'static> Choice for T {}

/// The options of all benches. `S` are a bench's situations, `P` those who are measured in them.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options<S: Choice, P: Choice> {
    /// Few rounds of little work: does it run? (Its figures mean nothing.)
    #[arg(long)]
    pub(crate) small: bool,
    /// How often each is measured
    #[arg(long, value_name = "N")]
    pub(crate) rounds: Option<usize>,
    /// How much is done in a round: children, where there are children
    #[arg(long, value_name = "N")]
    pub(crate) n: Option<usize>,
    /// Who is measured [default: all that this machine has]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    peers: Vec<P>,
    /// In which situations [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    only: Vec<S>,
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    _cargo: Cargo,
}

/// Where the results go, beside the Markdown on stdout.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Output {
    /// Writes all results to this file
    #[arg(long, value_name = "PATH")]
    pub(crate) json: Option<PathBuf>,
    /// Writes the distributions to this directory, as SVG
    #[arg(long, value_name = "DIR")]
    pub(crate) plots: Option<PathBuf>,
}

/// What cargo says to every bench.
#[derive(Clone, Debug, clap::Args)]
struct Cargo {
    #[arg(long = "bench", hide = true)]
    _bench: bool,
}

impl<S: Choice, P: Choice> Options<S, P> {
    /// The first where the bench is to be small, else the second.
    pub(crate) fn size<T>(&self, small: T, full: T) -> T {
        if self.small { small } else { full }
    }

    /// How many rounds, if nothing else was asked for.
    pub(crate) fn rounds(&self, small: usize, full: usize) -> usize {
        self.rounds.unwrap_or(self.size(small, full))
    }

    /// How much in a round, if nothing else was asked for.
    pub(crate) fn n(&self, small: usize, full: usize) -> usize {
        self.n.unwrap_or(self.size(small, full))
    }

    /// The situations asked for, or all.
    pub(crate) fn situations(&self) -> Vec<S> {
        if self.only.is_empty() {
            S::value_variants().to_vec()
        } else {
            self.only.clone()
        }
    }

    /// The peers asked for, or those that are measured when nobody says who.
    pub(crate) fn peers(&self, by_default: impl Fn(P) -> bool) -> Vec<P> {
        if self.peers.is_empty() {
            P::value_variants()
                .iter()
                .copied()
                .filter(|peer| by_default(*peer))
                .collect()
        } else {
            self.peers.clone()
        }
    }
}
