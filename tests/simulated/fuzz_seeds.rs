//! The bodies of the fuzz targets on the committed seeds, and on some inputs from numbers; and the
//! one that must fail.

use lastwords::__internals::testing::fuzz::{TARGETS, Target, canary};
use lastwords::sim::Rng;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

/// Inputs from numbers for each target, beside its seeds.
const INPUTS: u64 = 200;

fn seeds(name: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(name);
    let found = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut seeds: Vec<PathBuf> = found.map(|entry| entry.expect("an entry").path()).collect();
    seeds.sort();
    seeds
}

fn numbers(seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..rng.below(300)).map(|_| rng.below(256) as u8).collect()
}

fn run(name: &str, target: Target) {
    let seeds = seeds(name);
    assert!(!seeds.is_empty(), "{name} has no seeds");
    for path in &seeds {
        let input = std::fs::read(path).expect("a seed");
        assert!(input.len() <= 4096, "{}: a seed is small", path.display());
        assert!(
            catch_unwind(|| target(&input)).is_ok(),
            "{name} fails for {}",
            path.display()
        );
    }
    for seed in 0..INPUTS {
        let input = numbers(seed);
        assert!(
            catch_unwind(|| target(&input)).is_ok(),
            "{name} fails for the input of number {seed}: {input:?}"
        );
    }
}

macro_rules! seeds_of {
    ($($test:ident = $place:literal),+ $(,)?) => {
        $(#[test]
        fn $test() {
            let (name, target) = TARGETS[$place];
            assert_eq!(name, stringify!($test));
            run(name, target);
        })+
    };
}

seeds_of! { ordering = 0, ring = 1, sanitize = 2, spawn_spec = 3, wheel = 4 }

/// A fuzzer that does not find it finds nothing.
#[test]
fn the_canary_fails() {
    assert!(catch_unwind(|| canary(b"last")).is_err());
    assert!(catch_unwind(|| canary(b"lasso")).is_ok());
}

#[test]
fn every_target_has_a_file_of_one_line() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/fuzz_targets");
    let names = TARGETS.iter().map(|(name, _)| *name).chain(["canary"]);
    for name in names {
        let text = std::fs::read_to_string(folder.join(format!("{name}.rs")))
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        let bodies = text
            .lines()
            .filter(|line| line.contains("fuzz_target!"))
            .count();
        assert!(
            bodies == 1
                && text.contains(&format!(
                    "lastwords::__internals::testing::fuzz::{name}(input)"
                )),
            "{name}: {text}"
        );
    }
}
