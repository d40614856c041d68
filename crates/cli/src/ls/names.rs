//! Names: their order, their quotes, and the characters that show a type.

use std::cmp::Ordering;

use shoal::raw::FileKind;

use crate::args::LsArgs;
use crate::session::Found;

/// Compares entries in the order of a listing, before `-r`. Entries that are alike are in the order
/// of their names' bytes.
pub(crate) fn order(args: &LsArgs, a: &Found, b: &Found) -> Ordering {
    let time = |it: &Found| it.attr.map(|attr| (attr.mtime.sec, attr.mtime.nsec));
    let size = |it: &Found| it.attr.map(|attr| attr.size);
    let first = match args {
        LsArgs { by_time: true, .. } => time(b).cmp(&time(a)),
        LsArgs { by_size: true, .. } => size(b).cmp(&size(a)),
        LsArgs { by_extension: true, .. } => extension(&a.name).cmp(extension(&b.name)),
        _ => Ordering::Equal,
    };
    first.then_with(|| a.name.cmp(&b.name))
}

/// Returns the part from the last dot on, the dot included.
fn extension(name: &[u8]) -> &[u8] {
    name.iter().rposition(|byte| *byte == b'.').map_or(b"", |dot| &name[dot..])
}

/// Returns the character that `-F`, or `-p`, puts behind a name; `None` for an ordinary file.
pub(crate) fn indicator(mode: u32, classify: bool) -> Option<u8> {
    Some(match FileKind::from_mode(mode)? {
        FileKind::Directory => b'/',
        _ if !classify => return None,
        FileKind::Regular if mode & 0o111 != 0 => b'*',
        FileKind::Symlink => b'@',
        FileKind::Fifo => b'|',
        FileKind::Socket => b'=',
        _ => return None,
    })
}

/// Returns a name as a string of the language C.
pub(crate) fn quoted(name: &[u8]) -> Vec<u8> {
    let mut text = vec![b'"'];
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            let escape = match character {
                '"' => "\\\"",
                '\\' => "\\\\",
                '\u{7}' => "\\a",
                '\u{8}' => "\\b",
                '\u{c}' => "\\f",
                '\n' => "\\n",
                '\r' => "\\r",
                '\t' => "\\t",
                '\u{b}' => "\\v",
                _ => {
                    let mut room = [0; 4];
                    let bytes = character.encode_utf8(&mut room).as_bytes();
                    match character.is_control() {
                        true => octal(bytes, &mut text),
                        false => text.extend_from_slice(bytes),
                    }
                    continue;
                }
            };
            text.extend_from_slice(escape.as_bytes());
        }
        octal(chunk.invalid(), &mut text);
    }
    text.push(b'"');
    text
}

fn octal(bytes: &[u8], text: &mut Vec<u8>) {
    for byte in bytes {
        text.extend(format!("\\{byte:03o}").into_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_those_of_c() {
        assert_eq!(quoted("a b\"\\\n\u{1b}é".as_bytes()), "\"a b\\\"\\\\\\n\\033é\"".as_bytes());
        assert_eq!(quoted(b"\xff1"), b"\"\\3771\"");
    }

    #[test]
    fn extensions_begin_at_the_last_dot() {
        assert_eq!((extension(b"a.tar.gz"), extension(b"a")), (&b".gz"[..], &b""[..]));
        assert_eq!(extension(b".hidden"), b".hidden");
    }
}
