//! Values as text: names, bytes as hexadecimal digits, types and modes of files.

use std::borrow::Cow;
use std::fmt::Write as _;

use shoal::raw::{Attr, FileKind};

/// Escapes a name for messages and terminals: control characters and bytes that are not UTF-8 are
/// written `\xNN`, so that a name can neither forge a line nor control the terminal.
pub(crate) fn printable(name: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(name) {
        Ok(text) if !text.chars().any(char::is_control) => Cow::Borrowed(text),
        _ => Cow::Owned(escaped(name, true)),
    }
}

/// Returns text with `\xNN` for bytes that are not UTF-8, and for control characters if asked.
pub(crate) fn escaped(name: &[u8], controls: bool) -> String {
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

/// Returns two digits for each byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Decodes hexadecimal text; spaces and new lines are skipped. `None`: it is not hexadecimal.
pub(crate) fn unhex(text: &[u8]) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text
        .iter()
        .filter(|byte| !byte.is_ascii_whitespace())
        .map(|byte| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect::<Option<_>>()?;
    let pairs = digits.chunks_exact(2);
    pairs.remainder().is_empty().then(|| pairs.map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// Returns the name of a type, in JSON and in `find --type`'s long form.
pub(crate) fn kind_name(kind: FileKind) -> &'static str {
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

/// Returns the letter of a type in find(1).
pub(crate) fn kind_letter(kind: FileKind) -> u8 {
    match kind {
        FileKind::Fifo => b'p',
        FileKind::CharDevice => b'c',
        FileKind::Directory => b'd',
        FileKind::BlockDevice => b'b',
        FileKind::Regular => b'f',
        FileKind::Symlink => b'l',
        FileKind::Socket => b's',
    }
}

/// Formats type and mode as `drwxr-xr-x`.
pub(crate) fn mode_text(attr: &Attr) -> String {
    let mut text = String::with_capacity(10);
    push_mode(&mut text, attr);
    text
}

/// Appends type and mode to a text.
pub(crate) fn push_mode(text: &mut String, attr: &Attr) {
    text.push(mode_letter(attr.kind));
    push_permissions(text, attr.mode);
}

/// Returns the letter of a type before its permissions.
pub(crate) fn mode_letter(kind: FileKind) -> char {
    match kind {
        FileKind::Regular => '-',
        kind => char::from(kind_letter(kind)),
    }
}

/// Formats permission bits as `rwxr-xr-x`.
pub(crate) fn permissions_text(mode: u32) -> String {
    let mut text = String::with_capacity(9);
    push_permissions(&mut text, mode);
    text
}

fn push_permissions(text: &mut String, mode: u32) {
    for (shift, special, set) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (false, false) => '-',
            (false, true) => 'x',
            (true, true) => set,
            (true, false) => set.to_ascii_uppercase(),
        });
    }
}

/// Returns major and minor number of a device file.
pub(crate) fn device_numbers(attr: &Attr) -> Option<[u32; 2]> {
    let is_device = matches!(attr.kind, FileKind::CharDevice | FileKind::BlockDevice);
    let dev = u64::from(attr.rdev);
    is_device.then(|| [rustix::fs::major(dev), rustix::fs::minor(dev)])
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use shoal::raw::{Generation, Ino, Time};

    /// Returns attributes of a file.
    pub(crate) fn attr(kind: FileKind, mode: u32) -> Attr {
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
            version: 0,
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
}
