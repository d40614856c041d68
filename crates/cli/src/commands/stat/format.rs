//! `stat --format`: the fields of stat(1), but for those of the filesystem that a file is on.

use rustix::fs::{major, minor};
use shoal::raw::{Attr, FileKind, Time};

use crate::accounts::Accounts;
use crate::clock;
use crate::text::{mode_text, printable};

/// Bytes of a block of `%b`.
const BLOCK: u64 = 512;
/// Size of transfers that programs prefer, as a mount says.
const TRANSFER: u64 = 4096;
/// Widths and precisions beyond this are refused: each line would be that long.
const WIDTH_MAX: usize = 4096;
/// Letters of fields.
const FIELDS: &[u8] = b"aAbBfFgGhinNorstTuUwWxXyYzZ";

/// A format, read.
#[derive(Clone, Debug)]
pub(super) struct Format(Vec<Piece>);

#[derive(Clone, Debug)]
enum Piece {
    Text(Vec<u8>),
    Field { left: bool, zeros: bool, width: usize, precision: Option<usize>, letter: u8 },
}

/// The facts of a file that a format can show.
pub(super) struct Shown<'a> {
    /// The argument, as it was typed.
    pub name: &'a [u8],
    /// Attributes.
    pub attr: &'a Attr,
    /// Target of a symlink.
    pub target: Option<&'a [u8]>,
    /// Names of users and groups.
    pub accounts: &'a Accounts,
}

impl Format {
    /// Reads a format. The error says what is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Format, String> {
        let (mut pieces, mut plain) = (Vec::new(), Vec::new());
        let mut rest = text.bytes().peekable();
        while let Some(byte) = rest.next() {
            if byte != b'%' {
                plain.push(byte);
                continue;
            }
            if rest.next_if_eq(&b'%').is_some() {
                plain.push(b'%');
                continue;
            }
            pieces.push(Piece::Text(std::mem::take(&mut plain)));
            let (mut left, mut zeros) = (false, false);
            while let Some(flag) = rest.next_if(|byte| b"-0#+ '".contains(byte)) {
                left |= flag == b'-';
                zeros |= flag == b'0';
            }
            let mut number = || -> Result<Option<usize>, String> {
                let mut digits = String::new();
                while let Some(digit) = rest.next_if(u8::is_ascii_digit) {
                    digits.push(char::from(digit));
                }
                match digits.parse() {
                    _ if digits.is_empty() => Ok(None),
                    Ok(number) if number <= WIDTH_MAX => Ok(Some(number)),
                    _ => Err(format!("has a width beyond {WIDTH_MAX}")),
                }
            };
            let width = number()?.unwrap_or(0);
            let precision = match rest.next_if_eq(&b'.') {
                Some(_) => {
                    let mut digits = String::new();
                    while let Some(digit) = rest.next_if(u8::is_ascii_digit) {
                        digits.push(char::from(digit));
                    }
                    Some(digits.parse().unwrap_or(9).min(WIDTH_MAX))
                }
                None => None,
            };
            let letter = rest.next().ok_or("ends within a field (write %% for the sign)")?;
            if !FIELDS.contains(&letter) {
                return Err(format!("has no field %{}", char::from(letter).escape_default()));
            }
            pieces.push(Piece::Field { left, zeros, width, precision, letter });
        }
        pieces.push(Piece::Text(plain));
        Ok(Format(pieces))
    }

    /// Returns the line of a file.
    pub(super) fn line(&self, shown: &Shown<'_>) -> Vec<u8> {
        let mut line = Vec::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => line.extend_from_slice(text),
                Piece::Field { left, zeros, width, precision, letter } => {
                    let value = value(shown, *letter, *precision);
                    let fill = width.saturating_sub(value.len());
                    let with = if *zeros && !*left { b'0' } else { b' ' };
                    if !*left {
                        line.resize(line.len() + fill, with);
                    }
                    line.extend_from_slice(&value);
                    if *left {
                        line.resize(line.len() + fill, b' ');
                    }
                }
            }
        }
        line
    }
}

fn value(shown: &Shown<'_>, letter: u8, precision: Option<usize>) -> Vec<u8> {
    let Attr { mode, kind, rdev, .. } = *shown.attr;
    let attr = shown.attr;
    let seconds = |time: Time| match precision {
        None | Some(0) => time.sec.to_string(),
        Some(digits) => {
            let nsec = format!("{:09}", time.nsec);
            format!("{}.{:0<digits$}", time.sec, &nsec[..digits.min(9)])
        }
    };
    let text = match letter {
        b'a' => format!("{:o}", mode & 0o7777),
        b'A' => mode_text(attr),
        b'b' => attr.blocks.to_string(),
        b'B' => BLOCK.to_string(),
        b'f' => format!("{mode:x}"),
        b'F' => type_name(attr).to_owned(),
        b'g' => attr.gid.to_string(),
        b'G' => shown.accounts.group(attr.gid).unwrap_or("UNKNOWN").to_owned(),
        b'h' => attr.nlink.to_string(),
        b'i' => attr.ino.0.to_string(),
        b'n' => return shown.name.to_vec(),
        b'N' => quoted(shown),
        b'o' => TRANSFER.to_string(),
        b'r' => rdev.to_string(),
        b's' => attr.size.to_string(),
        b't' => format!("{:x}", major(rdev.into())),
        b'T' => format!("{:x}", minor(rdev.into())),
        b'u' => attr.uid.to_string(),
        b'U' => shown.accounts.user(attr.uid).unwrap_or("UNKNOWN").to_owned(),
        b'w' => whole(attr.btime),
        b'W' => seconds(attr.btime),
        b'x' => whole(attr.atime),
        b'X' => seconds(attr.atime),
        b'y' => whole(attr.mtime),
        b'Y' => seconds(attr.mtime),
        b'z' => whole(attr.ctime),
        _ => seconds(attr.ctime),
    };
    debug_assert!(FIELDS.contains(&letter) && kind == attr.kind);
    text.into_bytes()
}

fn whole(time: Time) -> String {
    clock::full(time).replace(" UTC", " +0000")
}

fn type_name(attr: &Attr) -> &'static str {
    match attr.kind {
        FileKind::Regular if attr.size == 0 => "regular empty file",
        FileKind::Regular => "regular file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symbolic link",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::CharDevice => "character special file",
        FileKind::BlockDevice => "block special file",
    }
}

fn quoted(shown: &Shown<'_>) -> String {
    let quote = |name: &[u8]| format!("'{}'", printable(name).replace('\'', "'\\''"));
    match shown.target {
        Some(target) => format!("{} -> {}", quote(shown.name), quote(target)),
        None => quote(shown.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::tests::attr;

    #[test]
    fn lines() {
        let accounts = Accounts::of_this_machine();
        let mut attr = attr(FileKind::Regular, 0o644);
        (attr.size, attr.mtime) = (1234, Time { sec: 5, nsec: 60_000_000 });
        let shown = Shown { name: b"a'b", attr: &attr, target: Some(b"to"), accounts: &accounts };
        for (format, line) in [
            ("%n %s%%", "a'b 1234%"),
            ("[%8s][%-8s][%08s]", "[    1234][1234    ][00001234]"),
            ("%a %F", "644 regular file"),
            ("%N", "'a'\\''b' -> 'to'"),
            ("%Y %.2Y %.Y %y", "5 5.06 5.060000000 1970-01-01 00:00:05.060000000 +0000"),
        ] {
            let format = Format::parse(format).expect(format);
            assert_eq!(String::from_utf8_lossy(&format.line(&shown)), line);
        }
        for bad in ["%", "%5", "%q", "%99999s"] {
            assert!(Format::parse(bad).is_err(), "{bad}");
        }
    }
}
