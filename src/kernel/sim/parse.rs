//! Reads the text of a script.

use super::fault::{Call, Fault};
use super::script::{Act, Acts, Channel, MAX_DEPTH, Program, ScriptError, Target};
use crate::types::{Ns, Signal, Stream};

/// A piece of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Word(String),
    Text(Vec<u8>),
    Open,
    Close,
    /// `;` or a line end.
    Next,
    End,
}

/// The acts of a whole text.
pub(super) fn parse(text: &str) -> Result<Acts, ScriptError> {
    let mut reader = Reader {
        text: text.as_bytes(),
        at: 0,
        begin: 0,
        ahead: None,
    };
    let acts = reader.acts(0)?;
    match reader.take()? {
        Piece::End => Ok(acts),
        _ => Err(reader.error("a brace that was never opened")),
    }
}

struct Reader<'t> {
    text: &'t [u8],
    at: usize,
    /// Where the last piece began.
    begin: usize,
    ahead: Option<Piece>,
}

impl Reader<'_> {
    fn error(&self, what: impl Into<String>) -> ScriptError {
        ScriptError {
            at: self.begin,
            what: what.into(),
        }
    }

    fn peek(&mut self) -> Result<&Piece, ScriptError> {
        let piece = match self.ahead.take() {
            Some(piece) => piece,
            None => self.lex()?,
        };
        Ok(self.ahead.insert(piece))
    }

    fn take(&mut self) -> Result<Piece, ScriptError> {
        self.peek()?;
        Ok(self.ahead.take().unwrap_or(Piece::End))
    }

    fn lex(&mut self) -> Result<Piece, ScriptError> {
        loop {
            self.begin = self.at;
            let Some(&byte) = self.text.get(self.at) else {
                return Ok(Piece::End);
            };
            self.at += 1;
            match byte {
                b' ' | b'\t' | b'\r' => {}
                b'#' => {
                    while self.text.get(self.at).is_some_and(|b| *b != b'\n') {
                        self.at += 1;
                    }
                }
                b';' | b'\n' => return Ok(Piece::Next),
                b'{' => return Ok(Piece::Open),
                b'}' => return Ok(Piece::Close),
                b'"' => return self.quoted(),
                _ => return Ok(Piece::Word(self.word())),
            }
        }
    }

    fn word(&mut self) -> String {
        while self
            .text
            .get(self.at)
            .is_some_and(|b| !b" \t\r\n;{}\"#".contains(b))
        {
            self.at += 1;
        }
        String::from_utf8_lossy(self.text.get(self.begin..self.at).unwrap_or_default()).into_owned()
    }

    fn quoted(&mut self) -> Result<Piece, ScriptError> {
        let mut bytes = Vec::new();
        loop {
            let Some(&byte) = self.text.get(self.at) else {
                return Err(self.error("a text without an end"));
            };
            self.at += 1;
            match byte {
                b'"' => return Ok(Piece::Text(bytes)),
                b'\\' => bytes.push(self.escape()?),
                _ => bytes.push(byte),
            }
        }
    }

    fn escape(&mut self) -> Result<u8, ScriptError> {
        let Some(&byte) = self.text.get(self.at) else {
            return Err(self.error("a text without an end"));
        };
        self.at += 1;
        Ok(match byte {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'0' => 0,
            b'e' => 0x1b,
            b'\\' | b'"' => byte,
            b'x' => {
                let digits = self
                    .text
                    .get(self.at..self.at + 2)
                    .and_then(|d| std::str::from_utf8(d).ok());
                let value = digits.and_then(|d| u8::from_str_radix(d, 16).ok());
                self.at += 2;
                value.ok_or_else(|| self.error("two hexadecimal digits after \\x"))?
            }
            _ => return Err(self.error(format!("no such escape: \\{}", char::from(byte)))),
        })
    }

    fn acts(&mut self, depth: usize) -> Result<Acts, ScriptError> {
        if depth > MAX_DEPTH {
            return Err(self.error(format!("more than {MAX_DEPTH} blocks in each other")));
        }
        let mut acts = Vec::new();
        loop {
            match self.peek()? {
                Piece::Next => {
                    self.take()?;
                }
                Piece::Word(_) => {
                    let verb = self.want_word("an act")?;
                    self.act(&verb, depth, &mut acts)?;
                    if !matches!(self.peek()?, Piece::Next | Piece::Close | Piece::End) {
                        return Err(self.error(format!("more than `{verb}` takes")));
                    }
                }
                Piece::Close | Piece::End => return Ok(acts.into()),
                Piece::Open | Piece::Text(_) => return Err(self.error("an act was expected")),
            }
        }
    }

    fn act(&mut self, verb: &str, depth: usize, acts: &mut Vec<Act>) -> Result<(), ScriptError> {
        let act = match verb {
            "write" => Act::Write(self.stream()?, self.number()?),
            "print" => Act::Print(self.stream()?, self.text()?.into()),
            "echo" => {
                let stream = self.stream()?;
                let mut text = self.text()?;
                text.push(b'\n');
                Act::Print(stream, text.into())
            }
            "sleep" | "hold" => Act::Sleep(self.time()?),
            "spin" => Act::Spin(self.time()?),
            "fork" => Act::Fork(self.block(depth)?),
            "wait" => Act::Wait,
            "close" => Act::Close(self.channel()?),
            "read" => Act::Read(if self.accept("all")? {
                None
            } else {
                Some(self.number()?)
            }),
            "cat" => Act::Copy(self.stream()?),
            "setsid" => Act::Setsid,
            "setpgid" => Act::Setpgid,
            "ignore" => Act::Ignore(self.signal()?),
            "default" => Act::Reset(self.signal()?),
            "on" => Act::On(self.signal()?, self.block(depth)?),
            "block" => Act::Block(self.signal()?),
            "unblock" => Act::Unblock(self.signal()?),
            "exec" => Act::Exec(self.program(depth)?),
            "fault" => self.fault()?,
            "kill" => Act::Kill(self.target()?, self.signal()?),
            "stop" => Act::Kill(Target::Me, Signal::STOP),
            "repeat" => Act::Repeat(Some(self.number()?), self.block(depth)?),
            "loop" => Act::Repeat(None, self.block(depth)?),
            "name" => Act::Name(String::from_utf8_lossy(&self.text()?).into_owned()),
            "outlive" => Act::Outlive(self.time()?.ok_or_else(|| self.error("a time"))?),
            "user" => {
                Act::User(u32::try_from(self.number()?).map_err(|_| self.error("a user's number"))?)
            }
            "unkillable" => Act::Unkillable,
            "exit" => Act::Exit(
                i32::try_from(self.number()?)
                    .ok()
                    .filter(|c| *c < 256)
                    .ok_or_else(|| self.error("a code of 0 to 255"))?,
            ),
            _ => return Err(self.error(format!("no such act: `{verb}`"))),
        };
        acts.push(act);
        Ok(())
    }

    fn block(&mut self, depth: usize) -> Result<Acts, ScriptError> {
        if self.take()? != Piece::Open {
            return Err(self.error("`{` was expected"));
        }
        let acts = self.acts(depth + 1)?;
        if self.take()? != Piece::Close {
            return Err(self.error("`}` was expected"));
        }
        Ok(acts)
    }

    fn program(&mut self, depth: usize) -> Result<Program, ScriptError> {
        let is_clean = self.accept("clean")?;
        let name = String::from_utf8_lossy(&self.text()?).into_owned();
        self.peek()?;
        // After the brace, and before the one that closes it.
        let from = self.at;
        let acts = self.block(depth)?;
        let text = String::from_utf8_lossy(self.text.get(from..self.at - 1).unwrap_or_default());
        Ok(Program {
            name,
            is_clean,
            acts,
            text: text.into(),
        })
    }

    /// The words up to the end of the act.
    fn fault(&mut self) -> Result<Act, ScriptError> {
        let mut words = Vec::new();
        while let Piece::Word(_) = self.peek()? {
            words.push(self.want_word("a word")?);
        }
        let (call, fault): (Call, Fault) =
            super::faults::parse(&words.join(" ")).map_err(|what| self.error(what))?;
        Ok(Act::Fault(call, fault))
    }

    fn want_word(&mut self, what: &str) -> Result<String, ScriptError> {
        match self.take()? {
            Piece::Word(word) => Ok(word),
            _ => Err(self.error(format!("{what} was expected"))),
        }
    }

    fn accept(&mut self, word: &str) -> Result<bool, ScriptError> {
        let found = matches!(self.peek()?, Piece::Word(w) if w == word);
        if found {
            self.take()?;
        }
        Ok(found)
    }

    fn text(&mut self) -> Result<Vec<u8>, ScriptError> {
        match self.take()? {
            Piece::Text(bytes) => Ok(bytes),
            _ => Err(self.error("a text in quotes was expected")),
        }
    }

    fn channel(&mut self) -> Result<Channel, ScriptError> {
        match self.want_word("stdin, stdout or stderr")?.as_str() {
            "stdin" => Ok(Channel::Stdin),
            "stdout" => Ok(Channel::Output(Stream::Stdout)),
            "stderr" => Ok(Channel::Output(Stream::Stderr)),
            other => Err(self.error(format!(
                "stdin, stdout or stderr was expected, not `{other}`"
            ))),
        }
    }

    fn stream(&mut self) -> Result<Stream, ScriptError> {
        match self.channel()? {
            Channel::Output(stream) => Ok(stream),
            Channel::Stdin => Err(self.error("stdout or stderr was expected")),
        }
    }

    fn number(&mut self) -> Result<u64, ScriptError> {
        let word = self.want_word("a number")?;
        let (digits, unit) = match word.as_bytes().last() {
            Some(b'K') => (&word[..word.len() - 1], 1 << 10),
            Some(b'M') => (&word[..word.len() - 1], 1 << 20),
            _ => (word.as_str(), 1u64),
        };
        let number = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
        number.ok_or_else(|| self.error(format!("`{word}` is not a number")))
    }

    /// `None` for ever, which is also what no time at all means.
    fn time(&mut self) -> Result<Option<Ns>, ScriptError> {
        if self.accept("forever")? || !matches!(self.peek()?, Piece::Word(_)) {
            return Ok(None);
        }
        let word = self.want_word("a time")?;
        time_of(&word)
            .map(Some)
            .ok_or_else(|| self.error(format!("`{word}` is not a time")))
    }

    fn signal(&mut self) -> Result<Signal, ScriptError> {
        let word = self.want_word("a signal")?;
        Signal::from_name(&word).ok_or_else(|| self.error(format!("no such signal: `{word}`")))
    }

    fn target(&mut self) -> Result<Target, ScriptError> {
        match self.want_word("SELF, GROUP, PARENT or CHILD")?.as_str() {
            "SELF" => Ok(Target::Me),
            "GROUP" => Ok(Target::Group),
            "PARENT" => Ok(Target::Parent),
            "CHILD" => Ok(Target::Child),
            other => Err(self.error(format!(
                "SELF, GROUP, PARENT or CHILD was expected, not `{other}`"
            ))),
        }
    }
}

/// A number and its unit.
pub(super) fn time_of(word: &str) -> Option<Ns> {
    let split = word
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(word.len());
    let (digits, unit) = word.split_at(split);
    let unit = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit).map(Ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acts(text: &str) -> Vec<Act> {
        parse(text)
            .unwrap_or_else(|e| panic!("{text:?}: {e}"))
            .to_vec()
    }

    #[test]
    fn a_script_reads_as_it_is_written() {
        let script = "write stderr 100; sleep 50ms\n fork {hold 2s; ignore TERM; write stdout 10} ; close stdout; setsid; exit 3";
        let inner: Acts = vec![
            Act::Sleep(Some(Ns::from_millis(2000))),
            Act::Ignore(Signal::TERM),
            Act::Write(Stream::Stdout, 10),
        ]
        .into();
        assert_eq!(
            acts(script),
            vec![
                Act::Write(Stream::Stderr, 100),
                Act::Sleep(Some(Ns::from_millis(50))),
                Act::Fork(inner),
                Act::Close(Channel::Output(Stream::Stdout)),
                Act::Setsid,
                Act::Exit(3),
            ]
        );
        assert_eq!(
            acts("kill SELF 9 # a remark\n;;stop"),
            vec![
                Act::Kill(Target::Me, Signal::KILL),
                Act::Kill(Target::Me, Signal::STOP)
            ]
        );
        assert_eq!(
            acts(r#"echo stderr "a\x1b\"\0;}""#),
            vec![Act::Print(
                Stream::Stderr,
                b"a\x1b\"\0;}\n".as_slice().into()
            )]
        );
        assert_eq!(
            acts("spin; write stdout 2K; sleep forever; read all"),
            vec![
                Act::Spin(None),
                Act::Write(Stream::Stdout, 2048),
                Act::Sleep(None),
                Act::Read(None)
            ]
        );
        assert_eq!(acts(""), vec![]);
    }

    #[test]
    fn what_cannot_be_read_is_told_with_its_place() {
        for (text, at) in [
            ("dance", 0),
            ("exit 3; dance", 8),
            ("exit 300", 5),
            ("write stdin 3", 6),
            ("write stdout x", 13),
            ("fork { exit 0", 13),
            ("exit 0 }", 7),
            ("sleep 3", 6),
            ("print stdout \"abc", 13),
            ("print stdout \"\\q\"", 13),
            ("kill EVERYBODY 9", 5),
            ("exit 1 2", 7),
            ("sleep 99999999999999m", 6),
        ] {
            let error = parse(text).expect_err(text);
            assert_eq!(error.at, at, "{text:?}: {error}");
        }
        let deep = "loop {".repeat(MAX_DEPTH + 1) + &"}".repeat(MAX_DEPTH + 1);
        assert!(parse(&deep).is_err());
    }
}
