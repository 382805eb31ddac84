//! Counts what a process can leak. Of use only where nothing else goes on in the process (see
//! [`super::alone`]).

use std::collections::BTreeMap;
use std::fs;

/// What this process has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Census {
    /// Open descriptors, and what they are.
    pub(crate) descriptors: BTreeMap<u32, String>,
    /// Children, zombies included.
    pub(crate) children: Vec<u32>,
    /// Threads of this process.
    pub(crate) threads: usize,
    /// Anonymous memory mappings (stacks among them).
    pub(crate) mappings: usize,
}

/// Mappings that may come about without being a leak: the allocator's own.
const MAPPINGS_SLACK: usize = 4;

impl Census {
    /// Counts what this process has now.
    pub(crate) fn take() -> Census {
        let mut descriptors = BTreeMap::new();
        for entry in fs::read_dir("/proc/self/fd")
            .expect("/proc/self/fd")
            .flatten()
        {
            let number = entry
                .file_name()
                .to_string_lossy()
                .parse()
                .expect("a number");
            // The one that this directory is read through is gone by the time it is looked at.
            if let Ok(target) = fs::read_link(entry.path()) {
                descriptors.insert(number, target.to_string_lossy().into_owned());
            }
        }
        descriptors.retain(|_, target| !target.ends_with("/fd"));
        let tasks: Vec<_> = fs::read_dir("/proc/self/task")
            .expect("/proc/self/task")
            .flatten()
            .collect();
        let mut children = Vec::new();
        for task in &tasks {
            let list = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            children.extend(
                list.split_whitespace()
                    .filter_map(|pid| pid.parse::<u32>().ok()),
            );
        }
        children.sort_unstable();
        let maps = fs::read_to_string("/proc/self/maps").expect("/proc/self/maps");
        let mappings = maps
            .lines()
            .filter(|line| line.split_whitespace().nth(5).is_none())
            .count();
        Census {
            descriptors,
            children,
            threads: tasks.len(),
            mappings,
        }
    }

    /// What is more or less than before, in words. Mappings may grow a little (by the allocator's
    /// own): a leak of one at a time shows when what is tried is tried often enough.
    pub(crate) fn difference(&self) -> Option<String> {
        self.difference_to(&Census::take())
    }

    fn difference_to(&self, now: &Census) -> Option<String> {
        let mut told = Vec::new();
        if now.descriptors != self.descriptors {
            told.push(format!(
                "descriptors: {:?}, now {:?}",
                self.descriptors, now.descriptors
            ));
        }
        if now.children != self.children {
            told.push(format!(
                "children: {:?}, now {:?}",
                self.children, now.children
            ));
        }
        if now.threads != self.threads {
            told.push(format!("threads: {}, now {}", self.threads, now.threads));
        }
        if now.mappings > self.mappings + MAPPINGS_SLACK {
            told.push(format!("mappings: {}, now {}", self.mappings, now.mappings));
        }
        (!told.is_empty()).then(|| told.join("; "))
    }

    /// Fails with the difference, if there is one.
    #[track_caller]
    pub(crate) fn assert_same(&self) {
        self.assert_like(&Census::take());
    }

    /// Fails with the difference to a later census, if there is one.
    #[track_caller]
    pub(crate) fn assert_like(&self, now: &Census) {
        if let Some(difference) = self.difference_to(now) {
            panic!("{difference}");
        }
    }
}
