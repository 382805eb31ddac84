//! Whether cgroups can be made here.

use std::fs;
use std::path::PathBuf;

/// The cgroup2 file system, if this user can make cgroups there. Where not, it is printed why.
pub(crate) fn cgroups() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mount = mounts
        .lines()
        .filter_map(|line| {
            line.split(' ')
                .nth(1)
                .filter(|_| line.split(' ').nth(2) == Some("cgroup2"))
        })
        .next();
    let Some(mount) = mount else {
        eprintln!("no cgroup2 file system is mounted: containment by cgroup cannot be tested here");
        return None;
    };
    // Where the command itself would look.
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = own
        .lines()
        .find_map(|line| line.strip_prefix("0::/"))
        .unwrap_or_default();
    let parent = PathBuf::from(mount).join(own);
    let probe = parent.join(
        format!(
            "lastwords-test-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        )
        .replace(['(', ')'], ""),
    );
    match fs::create_dir(&probe).and_then(|()| fs::remove_dir(&probe)) {
        Ok(()) => Some(parent),
        Err(e) => {
            eprintln!(
                "{}: {e}: containment by cgroup cannot be tested here",
                parent.display()
            );
            None
        }
    }
}
