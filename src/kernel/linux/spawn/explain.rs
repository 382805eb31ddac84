//! Turns what a failed child has left behind into an error.

use super::child::Stage;
use super::prepare::{Prepared, path};
use super::stack::Shared;
use crate::types::{Errno, SpawnError, SpawnStep, TooLarge};
use std::ffi::CString;
use std::sync::atomic::Ordering;

/// The longest argument or variable, its NUL included: 32 pages (MAX_ARG_STRLEN, execve(2)).
fn longest() -> u64 {
    32 * rustix::param::page_size() as u64
}

/// How many of the largest arguments and variables an error names.
const LARGEST_SHOWN: usize = 5;

/// The error of a failed child; `None` if no step failed.
pub(super) fn error(shared: &Shared, plan: &Prepared) -> Option<SpawnError> {
    let stage = shared.stage.load(Ordering::Acquire);
    if stage == 0 {
        return None;
    }
    let errno = Errno::from_raw(shared.errno.load(Ordering::Relaxed));
    let item = shared.item.load(Ordering::Relaxed);
    // A number without a stage is impossible. If there were one, the spawn would still have failed.
    let stage = Stage::ALL
        .into_iter()
        .find(|s| *s as u32 == stage)
        .unwrap_or(Stage::Exec);
    Some(match stage {
        Stage::Group => SpawnError::new(SpawnStep::Group, errno),
        Stage::Terminal => SpawnError::new(SpawnStep::Terminal, errno),
        Stage::Close => SpawnError::new(SpawnStep::Descriptors, errno)
            .because("what the child must not have could not be marked"),
        Stage::Place => SpawnError::new(SpawnStep::Descriptors, errno)
            .because(format!("number {item} in the child")),
        Stage::Chdir => chdir(errno, plan),
        Stage::ResourceLimit => {
            SpawnError::new(SpawnStep::Limits, errno).because(limit(plan, item))
        }
        Stage::User => SpawnError::new(SpawnStep::User, errno).because(user_call(item)),
        Stage::Death => {
            SpawnError::new(SpawnStep::Group, errno).because("the signal at the parent's death")
        }
        Stage::Find => SpawnError::new(SpawnStep::Find, errno).at(&plan.program),
        Stage::Exec => exec(errno, item, shared, plan),
        Stage::Cgroup => SpawnError::new(SpawnStep::Cgroup, errno)
            .because("the child could not enter it by cgroup.procs"),
    })
}

fn chdir(errno: Errno, plan: &Prepared) -> SpawnError {
    let error = SpawnError::new(SpawnStep::Chdir, errno);
    match &plan.dir {
        Some(dir) => error.at(path(dir)),
        None => error,
    }
}

fn limit(plan: &Prepared, item: u32) -> String {
    match plan.limits.get(item as usize) {
        Some(limit) => format!(
            "resource {}, soft limit {}, hard limit {}",
            limit.resource, limit.values[0], limit.values[1]
        ),
        None => String::from("a resource"),
    }
}

fn user_call(item: u32) -> &'static str {
    match std::ffi::c_long::from(item) {
        libc::SYS_setgroups => "setgroups",
        libc::SYS_setresgid => "setresgid",
        _ => "setresuid",
    }
}

fn exec(errno: Errno, item: u32, shared: &Shared, plan: &Prepared) -> SpawnError {
    let file = plan
        .candidates
        .get(item as usize)
        .map_or_else(|| plan.program.clone(), |c| path(c));
    let error = SpawnError::new(SpawnStep::Exec, errno).at(file);
    let mode = shared.mode.load(Ordering::Relaxed);
    let kind = mode & libc::S_IFMT;
    match errno.raw() {
        libc::E2BIG => with_sizes(error, plan),
        libc::ETXTBSY => error.because("the file is open for writing"),
        libc::ENOEXEC if shared.head().is_empty() && kind == libc::S_IFREG => {
            error.because("the file is empty, or cannot be read")
        }
        libc::ENOEXEC if shared.head().starts_with(b"\x7fELF") => {
            error.because("the file is made for another machine, or is damaged")
        }
        libc::ENOEXEC => error.because("the file is no program and has no #! line"),
        libc::EACCES if kind == libc::S_IFDIR => error.because("it is a directory"),
        libc::EACCES if kind == libc::S_IFREG && mode & 0o111 == 0 => {
            error.because("the file has no execute permission")
        }
        libc::EACCES if kind == libc::S_IFREG => match interpreter(shared.head()) {
            Some(name) => error.because(format!(
                "the file, its file system or its interpreter {name:?} may not be executed"
            )),
            None => error.because("the file, or its file system, may not be executed"),
        },
        libc::EACCES if kind != 0 => error.because("it is not a file"),
        libc::EACCES => error.because("a directory on the method to it may not be searched"),
        libc::ENOENT if kind != 0 => match interpreter(shared.head()) {
            Some(name) => error.because(format!("the interpreter {name:?} is missing")),
            None => error.because("the file is there, its interpreter is missing"),
        },
        _ => error,
    }
}

/// The interpreter that a file names in its `#!` line or in an ELF program header (PT_INTERP), if
/// that is among the first bytes.
fn interpreter(head: &[u8]) -> Option<String> {
    let name = match head.strip_prefix(b"#!") {
        Some(line) => {
            let line = line.split(|&b| b == b'\n').next()?.trim_ascii_start();
            // A carriage return is part of the name, and often the reason. It is shown as \r.
            line.split(|&b| b == b' ' || b == b'\t' || b == 0).next()?
        }
        None => elf_interpreter(head)?,
    };
    (!name.is_empty()).then(|| String::from_utf8_lossy(name).into_owned())
}

/// The PT_INTERP entry of a 64-bit ELF file (elf(5)) of this machine's byte order.
fn elf_interpreter(head: &[u8]) -> Option<&[u8]> {
    const CLASS_64: u8 = 2;
    const PT_INTERP: u64 = 3;
    if !head.starts_with(b"\x7fELF") || *head.get(4)? != CLASS_64 {
        return None;
    }
    let number = |at: usize, size: usize| {
        let bytes = head.get(at..at.checked_add(size)?)?;
        let mut whole = [0; 8];
        whole.get_mut(..size)?.copy_from_slice(bytes);
        Some(u64::from_le_bytes(whole))
    };
    let (table, entry, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for n in 0..count {
        let at = usize::try_from(table.checked_add(n.checked_mul(entry)?)?).ok()?;
        if number(at, 4)? == PT_INTERP {
            let begin = usize::try_from(number(at.checked_add(8)?, 8)?).ok()?;
            return head.get(begin..)?.split(|&b| b == 0).next();
        }
    }
    None
}

/// Adds to an E2BIG error how large everything is, as execve(2) counts it, and the names of the
/// largest arguments and variables.
fn with_sizes(error: SpawnError, plan: &Prepared) -> SpawnError {
    let all = || plan.args.list().iter().chain(plan.env.list());
    let pointers = (all().count() as u64 + 2) * size_of::<usize>() as u64;
    let total = all()
        .map(|s| s.as_bytes_with_nul().len() as u64)
        .sum::<u64>()
        + pointers;
    let args = plan
        .args
        .list()
        .iter()
        .enumerate()
        .map(|(n, s)| (format!("argument {n}"), size(s)));
    let env = plan.env.list().iter().map(|s| (name(s), size(s)));
    let mut largest: Vec<(String, u64)> = args.chain(env).collect();
    largest.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    largest.truncate(LARGEST_SHOWN);
    let note = match largest.first() {
        Some((name, bytes)) if *bytes >= longest() => format!(
            "{name} is too long: {bytes} bytes, and {} is the most",
            longest() - 1
        ),
        _ => String::from("arguments and variables together are too large"),
    };
    error
        .because(note)
        .with_sizes(TooLarge::new(total, largest))
}

fn size(text: &CString) -> u64 {
    text.as_bytes().len() as u64
}

/// The name in `NAME=value`.
fn name(text: &CString) -> String {
    let bytes = text.as_bytes();
    // From the second byte on, since a leading `=` belongs to the name.
    let end = bytes
        .iter()
        .skip(1)
        .position(|&b| b == b'=')
        .map_or(bytes.len(), |n| n + 1);
    String::from_utf8_lossy(bytes.get(..end).unwrap_or(bytes)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interpreter_is_found_in_a_hash_bang_line() {
        let name = |head: &[u8]| interpreter(head);
        assert_eq!(name(b"#!/bin/nope\n").as_deref(), Some("/bin/nope"));
        assert_eq!(
            name(b"#! /usr/bin/env  python\n").as_deref(),
            Some("/usr/bin/env")
        );
        assert_eq!(name(b"#!/bin/sh\r\nexit\n").as_deref(), Some("/bin/sh\r"));
        assert_eq!(name(b"#!/bin/sh").as_deref(), Some("/bin/sh"));
        assert_eq!(name(b"#!\n"), None);
        assert_eq!(name(b""), None);
    }

    #[test]
    fn an_interpreter_is_found_in_an_elf_file_and_never_beyond_its_bytes() {
        let me = std::fs::read("/proc/self/exe").expect("this program");
        let head = me
            .get(..super::super::stack::HEAD)
            .expect("longer than that");
        // Every shorter prefix too: no offset in the file is trusted.
        for len in 0..head.len() {
            let _ = interpreter(&head[..len]);
        }
        let mut wild = head.to_vec();
        wild[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(elf_interpreter(&wild), None);
        if cfg!(target_env = "gnu") {
            let name = interpreter(head).expect("dynamically linked");
            assert!(name.contains("/ld-linux"), "{name}");
        }
    }

    #[test]
    fn variables_are_named_by_their_names_alone() {
        let text = |s: &str| CString::new(s).expect("no NUL");
        assert_eq!(name(&text("SECRET=value")), "SECRET");
        assert_eq!(name(&text("=C:=value")), "=C:");
        assert_eq!(name(&text("odd")), "odd");
    }
}
