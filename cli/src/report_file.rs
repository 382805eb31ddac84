//! Writes the report to its file.

use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The file name that stands for stdout.
pub(crate) const STDOUT: &str = "-";

/// Writes the report. A plain file, or a new one, is written beside and renamed, so that no reader
/// sees half of it. Anything else (a pipe, a device, a symbolic link) is written in place.
pub(crate) fn write(path: &Path, json: &str) -> io::Result<()> {
    let text = format!("{json}\n");
    match fs::symlink_metadata(path) {
        Ok(there) if there.is_file() => replace(path, Some(there.permissions()), &text),
        Ok(_) => in_place(path, &text),
        Err(e) if e.kind() == io::ErrorKind::NotFound => replace(path, None, &text),
        Err(e) => Err(e),
    }
}

/// Checks before the run, as far as possible, that the report can be written.
pub(crate) fn check(path: &Path) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|there| there.is_dir()) {
        return Err(Errno::ISDIR.into());
    }
    if fs::metadata(directory(path))?.is_dir() {
        Ok(())
    } else {
        Err(Errno::NOTDIR.into())
    }
}

/// The directory that contains the file.
pub(crate) fn directory(path: &Path) -> &Path {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

fn replace(path: &Path, permissions: Option<fs::Permissions>, text: &str) -> io::Result<()> {
    let there = permissions.is_some();
    match beside(path, permissions, text) {
        // The directory refuses new files, or the file is a mount point. The file itself can still
        // be written.
        Err(e) if there && is_about_the_place(&e) => in_place(path, text),
        done => done,
    }
}

fn is_about_the_place(e: &io::Error) -> bool {
    [
        Errno::ACCESS,
        Errno::PERM,
        Errno::ROFS,
        Errno::BUSY,
        Errno::XDEV,
    ]
    .iter()
    .any(|errno| e.raw_os_error() == Some(errno.raw_os_error()))
}

fn beside(path: &Path, permissions: Option<fs::Permissions>, text: &str) -> io::Result<()> {
    let draft = draft_name(path)?;
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o666)
        .open(&draft)?;
    let done = fill(file, permissions, text).and_then(|()| fs::rename(&draft, path));
    if done.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&draft);
    }
    done
}

fn fill(mut file: File, permissions: Option<fs::Permissions>, text: &str) -> io::Result<()> {
    if let Some(permissions) = permissions {
        file.set_permissions(fs::Permissions::from_mode(permissions.mode() & 0o777))?;
    }
    file.write_all(text.as_bytes())
}

/// A unique file name in the same directory.
fn draft_name(path: &Path) -> io::Result<PathBuf> {
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::from(io::ErrorKind::IsADirectory))?;
    let mut draft = std::ffi::OsString::from(".");
    // The maximum of a file name is 255 bytes, so a long name is shortened.
    let short: String = name.to_string_lossy().chars().take(40).collect();
    draft.push(format!("{short}.{}", uuid::Uuid::new_v4().simple()));
    Ok(path.with_file_name(draft))
}

fn in_place(path: &Path, text: &str) -> io::Result<()> {
    let flags = i32::try_from(rustix::fs::OFlags::NOCTTY.bits()).unwrap_or(0);
    // O_CREAT creates the target of a dangling symbolic link, as a shell's redirection does.
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(flags)
        .open(path)?;
    file.write_all(text.as_bytes())
}
