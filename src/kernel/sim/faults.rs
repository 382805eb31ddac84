//! Every fault there is, and faults as text: what a run prints is what a script can say.

use super::fault::{Call, Fault, Kind};
use super::notice::SPURIOUS;
use crate::types::{Errno, Ns, SpawnStep, Stream};

const fn errno(raw: i32) -> Errno {
    Errno::from_raw(raw)
}

/// Steps of a spawn, and how they can fail.
const SPAWN: &[(SpawnStep, &[i32])] = &[
    (SpawnStep::Find, &[libc::ENOENT]),
    (SpawnStep::Pipe, &[libc::EMFILE, libc::ENFILE, libc::ENOMEM]),
    (
        SpawnStep::Register,
        &[libc::ENOMEM, libc::ENOSPC, libc::EMFILE],
    ),
    (
        SpawnStep::Clone,
        &[
            libc::EAGAIN,
            libc::ENOMEM,
            libc::EPERM,
            libc::ENOSYS,
            libc::EINVAL,
        ],
    ),
    (
        SpawnStep::Cgroup,
        &[libc::EACCES, libc::EPERM, libc::ENOENT, libc::EAGAIN],
    ),
    (
        SpawnStep::Cookie,
        &[libc::ENOENT, libc::EACCES, libc::EXDEV],
    ),
    (SpawnStep::Group, &[libc::EPERM, libc::ESRCH]),
    (SpawnStep::Descriptors, &[libc::EMFILE]),
    (SpawnStep::Chdir, &[libc::ENOENT]),
    (SpawnStep::Limits, &[libc::EPERM, libc::EINVAL]),
    (SpawnStep::User, &[libc::EPERM, libc::EAGAIN]),
    (
        SpawnStep::Exec,
        &[
            libc::ENOENT,
            libc::EACCES,
            libc::ETXTBSY,
            libc::ENOMEM,
            libc::EINVAL,
        ],
    ),
];

const WAIT: &[i32] = &[libc::EBADF, libc::ENOMEM, libc::EINVAL];
const READ: &[i32] = &[libc::EIO, libc::ENOMEM, libc::EINVAL];
const WRITE: &[i32] = &[libc::EIO, libc::ENOMEM, libc::EINVAL];
const PROBE: &[i32] = &[libc::EPERM, libc::ENOSYS, libc::EINVAL];
const SCAN: &[i32] = &[libc::EMFILE, libc::ENOMEM, libc::EPERM];
const WATCH: &[i32] = &[
    libc::EMFILE,
    libc::ENOMEM,
    libc::ENOSYS,
    libc::EPERM,
    libc::EINVAL,
    libc::ESRCH,
];
const LATE: Ns = Ns::from_millis(3);

/// Every fault that a call of the contract can meet, each once: what random worlds choose from, and
/// what a test counts.
pub fn all() -> Vec<(Call, Fault)> {
    let spawn = SPAWN
        .iter()
        .flat_map(|(step, errnos)| errnos.iter().map(|raw| Fault::Spawn(*step, errno(*raw))));
    let mut list: Vec<(Call, Fault)> = spawn
        .chain([Fault::SlowExec(Ns::from_millis(200))])
        .map(|f| (Call::Spawn, f))
        .collect();
    let mut add =
        |call: Call, faults: Vec<Fault>| list.extend(faults.into_iter().map(|f| (call, f)));
    add(Call::Outcome, vec![Fault::OutcomeLater]);
    let notices = [
        Fault::Late(LATE),
        Fault::Merged(LATE),
        Fault::Stalled(Ns::from_millis(300)),
    ];
    add(
        Call::Wait,
        [Fault::Interrupted]
            .into_iter()
            .chain(SPURIOUS)
            .chain(notices)
            .collect(),
    );
    add(
        Call::Wait,
        WAIT.iter().map(|raw| Fault::Wait(errno(*raw))).collect(),
    );
    for stream in Stream::ALL {
        add(
            Call::Read,
            READ.iter()
                .map(|raw| Fault::Read(stream, errno(*raw)))
                .chain([Fault::ReadLater(stream)])
                .collect(),
        );
    }
    add(Call::Read, vec![Fault::ShortRead(1), Fault::Interrupted]);
    add(
        Call::Write,
        WRITE.iter().map(|raw| Fault::Write(errno(*raw))).collect(),
    );
    add(
        Call::Write,
        vec![
            Fault::WriteLater,
            Fault::NoReader,
            Fault::ShortWrite(1),
            Fault::Interrupted,
        ],
    );
    add(
        Call::Collect,
        vec![Fault::NotYet(LATE), Fault::Stolen, Fault::Interrupted],
    );
    add(Call::Signal, vec![Fault::Denied, Fault::NoWay, Fault::Gone]);
    add(
        Call::SignalLeader,
        vec![Fault::Denied, Fault::NoWay, Fault::Gone],
    );
    add(Call::SignalOutside, vec![Fault::Denied, Fault::Gone]);
    add(
        Call::Probe,
        PROBE
            .iter()
            .map(|raw| Fault::Refused(errno(*raw)))
            .collect(),
    );
    add(
        Call::Scan,
        SCAN.iter()
            .map(|raw| Fault::Scan(errno(*raw)))
            .chain([Fault::Incomplete, Fault::Gone, Fault::Interrupted])
            .collect(),
    );
    add(
        Call::Watch,
        WATCH.iter().map(|raw| Fault::Watch(errno(*raw))).collect(),
    );
    list
}

/// Which kind it is.
pub fn kind(call: Call, fault: Fault) -> Kind {
    let step = if let Fault::Spawn(step, _) = fault {
        Some(step.name())
    } else {
        None
    };
    let name = |errno: Errno| errno.name().unwrap_or("an errno without a name");
    let what = match fault {
        Fault::Spawn(_, e)
        | Fault::Wait(e)
        | Fault::Read(_, e)
        | Fault::Write(e)
        | Fault::Refused(e) => name(e),
        Fault::Scan(e) | Fault::Watch(e) => name(e),
        Fault::SlowExec(_) => "slow",
        Fault::OutcomeLater | Fault::ReadLater(_) | Fault::WriteLater | Fault::NotYet(_) => {
            "EAGAIN"
        }
        Fault::Interrupted => "EINTR",
        Fault::SpuriousExit => "spurious exit",
        Fault::SpuriousReadable(Stream::Stdout) => "spurious stdout",
        Fault::SpuriousReadable(Stream::Stderr) => "spurious stderr",
        Fault::SpuriousWritable => "spurious stdin",
        Fault::SpuriousMember => "spurious member",
        Fault::SpuriousCgroup => "spurious cgroup",
        Fault::SpuriousOutcome => "spurious outcome",
        Fault::SpuriousWake => "spurious woken",
        Fault::Late(_) => "late",
        Fault::Merged(_) => "merged",
        Fault::Stalled(_) => "stalled",
        Fault::ShortRead(_) | Fault::ShortWrite(_) => "short",
        Fault::NoReader => "EPIPE",
        Fault::Stolen => "ECHILD",
        Fault::Denied => "EPERM",
        Fault::NoWay => "ENOSYS",
        Fault::Gone => "ESRCH",
        Fault::Incomplete => "EACCES",
    };
    Kind { call, step, what }
}

/// The text of a fault, which [`parse`] reads.
pub fn text(call: Call, fault: Fault) -> String {
    let kind = kind(call, fault);
    match fault {
        Fault::SlowExec(time)
        | Fault::Late(time)
        | Fault::Merged(time)
        | Fault::Stalled(time)
        | Fault::NotYet(time) => {
            format!("{kind} {}ns", time.0)
        }
        Fault::ShortRead(n) | Fault::ShortWrite(n) => format!("{kind} {n}"),
        Fault::Read(stream, _) | Fault::ReadLater(stream) => {
            format!("{} {stream} {}", call.name(), kind.what)
        }
        _ => kind.to_string(),
    }
}

/// Reads what [`text`] writes, and what the table on top of [`super::fault`] says; the error says
/// what was expected.
pub fn parse(text: &str) -> Result<(Call, Fault), String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (name, rest) = words.split_first().ok_or("a call was expected")?;
    let call = Call::ALL
        .into_iter()
        .find(|c| c.name() == *name)
        .ok_or_else(|| format!("no such call: `{name}`"))?;
    let fault = match (call, rest) {
        (Call::Spawn, ["slow", time]) => Fault::SlowExec(self::time(time)?),
        (Call::Spawn, [step, e]) => Fault::Spawn(self::step(step)?, errno_of(e)?),
        (Call::Outcome, ["EAGAIN"]) => Fault::OutcomeLater,
        (Call::Wait, ["spurious", what]) => spurious(what)?,
        (Call::Wait, ["late", time]) => Fault::Late(self::time(time)?),
        (Call::Wait, ["merged", time]) => Fault::Merged(self::time(time)?),
        (Call::Wait, ["stalled", time]) => Fault::Stalled(self::time(time)?),
        (Call::Wait | Call::Read | Call::Write | Call::Collect | Call::Scan, ["EINTR"]) => {
            Fault::Interrupted
        }
        (Call::Wait, [e]) => Fault::Wait(errno_of(e)?),
        (Call::Read, ["short", n]) => Fault::ShortRead(number(n)?),
        (Call::Read, [of, "EAGAIN"]) => Fault::ReadLater(stream(of)?),
        (Call::Read, [of, e]) => Fault::Read(stream(of)?, errno_of(e)?),
        (Call::Write, ["short", n]) => Fault::ShortWrite(number(n)?),
        (Call::Write, ["EAGAIN"]) => Fault::WriteLater,
        (Call::Write, ["EPIPE"]) => Fault::NoReader,
        (Call::Write, [e]) => Fault::Write(errno_of(e)?),
        (Call::Collect, ["EAGAIN", time]) => Fault::NotYet(self::time(time)?),
        (Call::Collect, ["ECHILD"]) => Fault::Stolen,
        (Call::Signal | Call::SignalLeader | Call::SignalOutside, ["EPERM"]) => Fault::Denied,
        (Call::Signal | Call::SignalLeader | Call::SignalOutside | Call::Scan, ["ESRCH"]) => {
            Fault::Gone
        }
        (Call::Signal | Call::SignalLeader, ["ENOSYS" | "EINVAL"]) => Fault::NoWay,
        (Call::Probe, [e]) => Fault::Refused(errno_of(e)?),
        (Call::Scan, ["EACCES"]) => Fault::Incomplete,
        (Call::Scan, [e]) => Fault::Scan(errno_of(e)?),
        (Call::Watch, [e]) => Fault::Watch(errno_of(e)?),
        _ => return Err(format!("no such fault: `{text}`")),
    };
    Ok((call, fault))
}

fn spurious(what: &str) -> Result<Fault, String> {
    Ok(match what {
        "exit" => Fault::SpuriousExit,
        "stdout" => Fault::SpuriousReadable(Stream::Stdout),
        "stderr" => Fault::SpuriousReadable(Stream::Stderr),
        "stdin" => Fault::SpuriousWritable,
        "member" => Fault::SpuriousMember,
        "cgroup" => Fault::SpuriousCgroup,
        "outcome" => Fault::SpuriousOutcome,
        "woken" => Fault::SpuriousWake,
        _ => return Err(format!("no such notice: `{what}`")),
    })
}

fn errno_of(name: &str) -> Result<Errno, String> {
    Errno::from_name(name).ok_or_else(|| format!("no such errno: `{name}`"))
}

fn step(name: &str) -> Result<SpawnStep, String> {
    let of = SPAWN
        .iter()
        .map(|(step, _)| *step)
        .chain([SpawnStep::Terminal]);
    of.into_iter()
        .find(|step| step.name() == name)
        .ok_or_else(|| format!("no such step of a spawn: `{name}`"))
}

fn stream(name: &str) -> Result<Stream, String> {
    Stream::ALL
        .into_iter()
        .find(|stream| stream.name() == name)
        .ok_or_else(|| format!("stdout or stderr was expected, not `{name}`"))
}

fn number(text: &str) -> Result<usize, String> {
    text.parse()
        .map_err(|_| format!("`{text}` is not a number"))
}

fn time(text: &str) -> Result<Ns, String> {
    super::parse::time_of(text).ok_or_else(|| format!("`{text}` is not a time"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_fault_reads_as_it_is_written_and_is_listed_once() {
        let list = all();
        for (call, fault) in &list {
            assert_eq!(
                parse(&text(*call, *fault)),
                Ok((*call, *fault)),
                "{}",
                text(*call, *fault)
            );
        }
        let texts: BTreeSet<String> = list
            .iter()
            .map(|(call, fault)| text(*call, *fault))
            .collect();
        assert_eq!(texts.len(), list.len());
        let calls: BTreeSet<Call> = list.iter().map(|(call, _)| *call).collect();
        assert_eq!(calls, BTreeSet::from(Call::ALL));
        assert!(
            list.iter()
                .all(|(call, fault)| kind(*call, *fault).what.is_ascii())
        );
    }

    #[test]
    fn what_is_no_fault_is_told() {
        for text in [
            "",
            "dance EIO",
            "read EIO",
            "read stdin EIO",
            "spawn",
            "spawn pipe",
            "spawn pipe EWHAT",
            "wait late soon",
            "signal EIO",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
