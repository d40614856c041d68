//! What goes to standard output: text lines and JSON objects, one a line.
//!
//! JSON strings must be UTF-8 and names need not be. A name that is not UTF-8 is given with each
//! offending byte as `\xNN`, and only then a second field, `…_bytes`, holds all bytes as hex.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use serde::Serialize;
use shoal::{Attr, FileKind, Time};

use crate::failure::{Failure, Result};

/// Buffered standard output, which turns its errors into failures.
pub struct Out {
    writer: BufWriter<StdoutLock<'static>>,
    terminal: bool,
}

impl Out {
    /// Takes standard output.
    pub fn new() -> Out {
        let stdout = io::stdout();
        let terminal = stdout.is_terminal();
        Out { writer: BufWriter::with_capacity(64 << 10, stdout.lock()), terminal }
    }

    /// Writes bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.writer.write_all(bytes).map_err(Failure::output)
    }

    /// Writes a line.
    pub fn line(&mut self, line: &str) -> Result<()> {
        self.bytes(line.as_bytes())?;
        self.bytes(b"\n")
    }

    /// Writes a name: as it is into a file or pipe, made harmless for a terminal.
    pub fn name(&mut self, name: &[u8]) -> Result<()> {
        if self.terminal { self.bytes(printable(name).as_bytes()) } else { self.bytes(name) }
    }

    /// Writes bytes that may be anything: as they are into a file or pipe; on a terminal made
    /// harmless, and as a line.
    pub fn value(&mut self, value: &[u8]) -> Result<()> {
        self.name(value)?;
        if self.terminal { self.bytes(b"\n") } else { Ok(()) }
    }

    /// Writes an object as one line of JSON.
    pub fn json(&mut self, object: &impl Serialize) -> Result<()> {
        serde_json::to_writer(&mut self.writer, object)
            .map_err(|error| Failure::output(io::Error::from(error)))?;
        self.bytes(b"\n")
    }

    /// Hands over what has been buffered.
    pub fn flush(&mut self) -> Result<()> {
        self.writer.flush().map_err(Failure::output)
    }
}

/// Name as text for messages and terminals: control characters and bytes that are not UTF-8 are
/// written `\xNN`, so that a name can neither forge a line nor steer the terminal.
pub fn printable(name: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(name) {
        Ok(text) if !text.chars().any(char::is_control) => Cow::Borrowed(text),
        _ => Cow::Owned(escaped(name, true)),
    }
}

/// Text with `\xNN` for bytes that are not UTF-8, and for control characters if asked.
fn escaped(name: &[u8], controls: bool) -> String {
    let mut text = String::with_capacity(name.len() + 16);
    let hex = |text: &mut String, bytes: &[u8]| {
        for byte in bytes {
            // Writing to a String cannot fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    };
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            if controls && character.is_control() {
                hex(&mut text, character.encode_utf8(&mut [0; 4]).as_bytes());
            } else {
                text.push(character);
            }
        }
        hex(&mut text, chunk.invalid());
    }
    text
}

/// A name for JSON: as text, and as hex if the text alone would lose something.
pub fn json_name(name: &[u8]) -> (String, Option<String>) {
    match std::str::from_utf8(name) {
        Ok(text) => (text.to_owned(), None),
        Err(_) => (escaped(name, false), Some(hex(name))),
    }
}

/// Several names for JSON: as text, and all of them as hex if the text of one would lose
/// something.
pub fn json_names<'a>(
    names: impl Iterator<Item = &'a [u8]> + Clone,
) -> (Vec<String>, Option<Vec<String>>) {
    let is_odd = names.clone().any(|name| std::str::from_utf8(name).is_err());
    (
        names.clone().map(|name| json_name(name).0).collect(),
        is_odd.then(|| names.map(hex).collect()),
    )
}

/// Two digits for each byte.
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The bytes that hexadecimal text means; spaces and new lines between them do not count. `None`:
/// it is something else.
pub fn unhex(text: &[u8]) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text
        .iter()
        .filter(|byte| !byte.is_ascii_whitespace())
        .map(|byte| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect::<Option<_>>()?;
    let pairs = digits.chunks_exact(2);
    pairs.remainder().is_empty().then(|| pairs.map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// A type's name in JSON and in `find --type`'s long form.
pub fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Fifo => "fifo",
        FileKind::CharDevice => "char_device",
        FileKind::Directory => "directory",
        FileKind::BlockDevice => "block_device",
        FileKind::Regular => "file",
        FileKind::Symlink => "symlink",
        FileKind::Socket => "socket",
    }
}

/// `drwxr-xr-x`.
pub fn mode_text(attr: &Attr) -> String {
    let kind = match attr.kind {
        FileKind::Fifo => 'p',
        FileKind::CharDevice => 'c',
        FileKind::Directory => 'd',
        FileKind::BlockDevice => 'b',
        FileKind::Regular => '-',
        FileKind::Symlink => 'l',
        FileKind::Socket => 's',
    };
    let mut text = String::with_capacity(10);
    text.push(kind);
    for (shift, special, set) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = attr.mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (attr.mode & special != 0, bits & 1 != 0) {
            (false, false) => '-',
            (false, true) => 'x',
            (true, true) => set,
            (true, false) => set.to_ascii_uppercase(),
        });
    }
    text
}

/// Major and minor number of a device file.
pub fn device_numbers(attr: &Attr) -> Option<[u32; 2]> {
    let is_device = matches!(attr.kind, FileKind::CharDevice | FileKind::BlockDevice);
    let dev = u64::from(attr.rdev);
    is_device.then(|| [rustix::fs::major(dev), rustix::fs::minor(dev)])
}

/// A time in JSON.
#[derive(Serialize)]
pub struct JsonTime {
    sec: i64,
    nsec: u32,
}

impl From<Time> for JsonTime {
    fn from(time: Time) -> JsonTime {
        JsonTime { sec: time.sec, nsec: time.nsec }
    }
}

/// A file in JSON: what `ls`, `stat` and `find` print with `--json`.
#[derive(Serialize)]
pub struct JsonFile {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name_bytes: Option<String>,
    #[serde(rename = "type")]
    kind: &'static str,
    ino: u64,
    generation: u32,
    mode: String,
    nlink: u32,
    uid: u32,
    gid: u32,
    size: u64,
    blocks: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<[u32; 2]>,
    atime: JsonTime,
    mtime: JsonTime,
    ctime: JsonTime,
    btime: JsonTime,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_bytes: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attributes: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attributes_bytes: Option<Vec<String>>,
}

impl JsonFile {
    /// Describes the file at `path`, called `name`; `target` is that of a symlink.
    pub fn new(path: &[u8], name: &[u8], attr: &Attr, target: Option<&[u8]>) -> JsonFile {
        let (path, path_bytes) = json_name(path);
        let (name, name_bytes) = json_name(name);
        let (target, target_bytes) = match target.map(json_name) {
            Some((text, bytes)) => (Some(text), bytes),
            None => (None, None),
        };
        JsonFile {
            path,
            path_bytes,
            name,
            name_bytes,
            kind: kind_name(attr.kind),
            ino: attr.ino.0,
            generation: attr.generation.0,
            mode: format!("{:04o}", attr.mode & 0o7777),
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            size: attr.size,
            blocks: attr.blocks,
            device: device_numbers(attr),
            atime: attr.atime.into(),
            mtime: attr.mtime.into(),
            ctime: attr.ctime.into(),
            btime: attr.btime.into(),
            target,
            target_bytes,
            attributes: None,
            attributes_bytes: None,
        }
    }

    /// The same with the names of the file's extended attributes.
    pub fn with_attributes(self, names: &[Vec<u8>]) -> JsonFile {
        let (attributes, attributes_bytes) = json_names(names.iter().map(Vec::as_slice));
        JsonFile { attributes: Some(attributes), attributes_bytes, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal::{Generation, Ino};

    fn attr(kind: FileKind, mode: u32) -> Attr {
        let time = Time { sec: 1, nsec: 2 };
        Attr {
            ino: Ino(7),
            generation: Generation(1),
            kind,
            mode: kind.mode_bits() | mode,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0x0102_0304,
            size: 9,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
        }
    }

    #[test]
    fn modes_read_as_ls_writes_them() {
        let cases: &[(FileKind, u32, &str)] = &[
            (FileKind::Regular, 0o644, "-rw-r--r--"),
            (FileKind::Directory, 0o1777, "drwxrwxrwt"),
            (FileKind::Regular, 0o6755, "-rwsr-sr-x"),
            (FileKind::Regular, 0o7000, "---S--S--T"),
            (FileKind::Symlink, 0o777, "lrwxrwxrwx"),
        ];
        for (kind, mode, text) in cases {
            assert_eq!(mode_text(&attr(*kind, *mode)), *text);
        }
    }

    #[test]
    fn names_cannot_forge_output() {
        assert_eq!(printable(b"a\nb"), "a\\x0ab");
        assert_eq!(printable("naïve".as_bytes()), "naïve");
        assert_eq!(printable(b"a\xff"), "a\\xff");
        assert_eq!(json_name(b"a\nb"), ("a\nb".into(), None));
        assert_eq!(json_name(b"a\xffb"), ("a\\xffb".into(), Some("61ff62".into())));
        let names = [&b"a"[..], b"\xff"];
        let (text, bytes) = json_names(names.into_iter());
        assert_eq!(text, ["a", "\\xff"]);
        assert_eq!(bytes, Some(vec!["61".into(), "ff".into()]));
        assert_eq!(json_names(names[..1].iter().copied()).1, None);
    }

    #[test]
    fn hexadecimal_there_and_back() {
        assert_eq!(unhex(hex(b"\0\xffa").as_bytes()).as_deref(), Some(&b"\0\xffa"[..]));
        assert_eq!(unhex(b" 00 Fa\n").as_deref(), Some(&[0, 0xfa][..]));
        assert_eq!(unhex(b"").as_deref(), Some(&[][..]));
        for bad in [&b"0"[..], b"0g", b"0x00", b"+1", b"\xff"] {
            assert_eq!(unhex(bad), None);
        }
    }

    #[test]
    fn json_has_no_empty_fields() {
        let file = JsonFile::new(b"/a", b"a", &attr(FileKind::Regular, 0o644), None);
        let text = serde_json::to_string(&file).expect("serialises");
        assert!(text.contains(r#""mode":"0644""#) && !text.contains("null"), "{text}");
        assert!(!text.contains("device") && !text.contains("_bytes"), "{text}");
        let device = JsonFile::new(b"/d", b"d", &attr(FileKind::CharDevice, 0o600), None);
        let text = serde_json::to_string(&device).expect("serialises");
        assert!(text.contains("\"device\":["), "{text}");
    }
}
