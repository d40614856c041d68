//! Names of members: which are wanted, and as which paths they are extracted.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::args::TarArgs;
use crate::failure::{Failure, Reason, Result};

/// Bytes of a name in a list, or of a member, at most.
pub(super) const NAME_MAX: usize = 64 << 10;

/// The names that `-T` gives, one after another.
pub(super) struct Listed {
    input: Box<dyn BufRead>,
    end: u8,
    label: String,
}

impl Listed {
    /// Opens the list, if there is one.
    pub(super) fn open(args: &TarArgs) -> Result<Option<Listed>> {
        let Some(path) = &args.files_from else { return Ok(None) };
        let end = if args.null { 0 } else { b'\n' };
        let label = path.display().to_string();
        let input: Box<dyn BufRead> = match path == Path::new("-") {
            true => Box::new(BufReader::new(io::stdin())),
            false => {
                let file = File::open(path);
                let file = file.map_err(|error| Failure::usage(&label, Reason::from(error)))?;
                Box::new(BufReader::new(file))
            }
        };
        Ok(Some(Listed { input, end, label }))
    }

    /// Returns the next name; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            let mut name = Vec::new();
            let mut input = self.input.by_ref().take(NAME_MAX as u64 + 1);
            let read = input.read_until(self.end, &mut name);
            let read = read.map_err(|error| Failure::failed(&self.label, Reason::from(error)))?;
            if read > NAME_MAX {
                let what = "has a name of more than 64 KiB (names that end with NUL: --null)";
                return Err(Failure::failed(&self.label, what));
            }
            if name.last() == Some(&self.end) {
                name.pop();
            }
            match (read, name.is_empty()) {
                (0, _) => return Ok(None),
                (_, false) => return Ok(Some(name)),
                _ => {}
            }
        }
    }
}

/// The members that are wanted.
pub(super) struct Wanted {
    /// Names without slashes at the end, and whether there was such a member; `None`: all.
    names: Option<HashMap<Vec<u8>, bool>>,
}

impl Wanted {
    /// Reads the arguments and the list.
    pub(super) fn new(args: &TarArgs) -> Result<Wanted> {
        let list = Listed::open(args)?;
        if list.is_none() && args.members.is_empty() {
            return Ok(Wanted { names: None });
        }
        let trim = |name: &[u8]| {
            let end = name.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
            (name[..end].to_vec(), false)
        };
        let mut names: HashMap<Vec<u8>, bool> =
            args.members.iter().map(|name| trim(name.as_bytes())).collect();
        if let Some(mut list) = list {
            while let Some(name) = list.next()? {
                names.extend([trim(&name)]);
            }
        }
        Ok(Wanted { names: Some(names) })
    }

    /// Returns whether a member is wanted: it, or a directory that it is in.
    pub(super) fn takes(&mut self, name: &[u8]) -> bool {
        let Some(names) = &mut self.names else { return true };
        let ends = (0..name.len()).filter(|at| name[*at] == b'/').chain([name.len()]);
        let mut takes = false;
        for end in ends {
            if let Some(found) = names.get_mut(&name[..end]) {
                *found = true;
                takes = true;
            }
        }
        takes
    }

    /// Returns the names that no member had, sorted.
    pub(super) fn missing(self) -> Vec<Vec<u8>> {
        let names = self.names.into_iter().flatten();
        let mut names: Vec<Vec<u8>> =
            names.filter(|(_, found)| !found).map(|(name, _)| name).collect();
        names.sort();
        names
    }
}

/// Returns the part of a path that stays in its directory as a name in an archive, and what was cut
/// off: slashes at the beginning, and everything up to the last `..`.
pub(super) fn inside(path: &[u8]) -> (&[u8], &[u8]) {
    let mut at = 0;
    let mut start = 0;
    while at <= path.len() {
        let end = path[at..].iter().position(|byte| *byte == b'/').map_or(path.len(), |it| at + it);
        if &path[at..end] == b".." {
            start = end;
        }
        at = end + 1;
    }
    let slashes = path[start..].iter().take_while(|byte| **byte == b'/').count();
    let start = start + slashes;
    (&path[start..], &path[..start])
}

/// Returns the components of a member's name, of which none leads anywhere else.
pub(super) fn components(name: &[u8]) -> Result<Vec<&[u8]>, &'static str> {
    if name.len() > NAME_MAX {
        return Err("its name has more than 64 KiB; not extracted");
    }
    if name.contains(&0) {
        return Err("its name has a NUL byte; not extracted");
    }
    let parts = name.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
    let parts: Vec<&[u8]> = parts.collect();
    match parts.contains(&&b".."[..]) {
        true => Err("its name leads out of the directory with '..'; not extracted"),
        false => Ok(parts),
    }
}

/// Returns a name as GNU tar prints it where text is UTF-8: control characters, backslashes and
/// bytes that are not UTF-8 escaped.
pub(super) fn quoted(name: &[u8]) -> Vec<u8> {
    let mut quoted = Vec::with_capacity(name.len());
    let octal = |byte: &u8| format!("\\{byte:03o}").into_bytes();
    for chunk in name.utf8_chunks() {
        for byte in chunk.valid().bytes() {
            match byte {
                b'\\' => quoted.extend_from_slice(b"\\\\"),
                b'\n' => quoted.extend_from_slice(b"\\n"),
                b'\t' => quoted.extend_from_slice(b"\\t"),
                b'\r' => quoted.extend_from_slice(b"\\r"),
                7 => quoted.extend_from_slice(b"\\a"),
                8 => quoted.extend_from_slice(b"\\b"),
                11 => quoted.extend_from_slice(b"\\v"),
                12 => quoted.extend_from_slice(b"\\f"),
                0..32 | 127 => quoted.extend(octal(&byte)),
                byte => quoted.push(byte),
            }
        }
        quoted.extend(chunk.invalid().iter().flat_map(octal));
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_inside() {
        let cases: [(&str, &str); 9] = [
            ("a/b", "a/b"),
            ("/a/b", "a/b"),
            ("//a", "a"),
            ("../a", "a"),
            ("a/../b", "b"),
            ("..", ""),
            ("a/..", ""),
            ("./a", "./a"),
            ("a..b/..c", "a..b/..c"),
        ];
        for (path, expected) in cases {
            assert_eq!(inside(path.as_bytes()).0, expected.as_bytes(), "{path}");
        }
    }

    #[test]
    fn components_lead_nowhere_else() {
        assert_eq!(components(b"/a//./b/"), Ok(vec![&b"a"[..], b"b"]));
        assert_eq!(components(b"./"), Ok(vec![]));
        for bad in [&b"../a"[..], b"a/..", b"a\0b", b".."] {
            assert!(components(bad).is_err(), "{}", bad.escape_ascii());
        }
        assert!(components(&[b'a'; NAME_MAX + 1]).is_err());
    }
}
