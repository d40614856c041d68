//! The listing of a volume: a line for each file, under its first path, with everything that a call
//! tells of it; for a further path a line that names the first. Two volumes with the same listing
//! show the same.
//!
//! ```text
//! /a/f regular 100644 0:0 links 2 size 9 ino 0:33.1 m 17672256.1 c … b … hash 0123456789abcdef
//!   xattr user.x "a value"
//!   also /b/f
//! /b/f is /a/f
//! ```
//!
//! Access times are left out: reading changes them.

use shoal::raw::{Attr, Caller, Code, FileKind, Ino, Seek, Time, Volume};
use shoal_sim::call::{list, list_xattrs};
use std::collections::HashMap;
use std::fmt::Write;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Unit in which contents are hashed, in bytes.
const PAGE: u64 = 4096;

/// The listing of everything below the top of a volume, names in order.
pub(super) fn listing(volume: &Volume) -> String {
    let mut shown = Shown::default();
    let top = volume.attributes().getattr(Ino::ROOT).unwrap();
    below(volume, &top, b"", &mut shown);
    shown.text
}

/// The listing so far.
#[derive(Default)]
struct Shown {
    text: String,
    /// Files that have several names, with the first path of each.
    linked: HashMap<Ino, Vec<u8>>,
}

/// Writes the line of a file and, of a directory, those of the files in it.
fn below(volume: &Volume, attr: &Attr, path: &[u8], shown: &mut Shown) {
    if let Some(first) = shown.linked.get(&attr.ino) {
        let (path, first) = (path.escape_ascii(), first.escape_ascii());
        let _ = writeln!(shown.text, "{path} is {first}");
        return;
    }
    line(volume, attr, path, &mut shown.text);
    if attr.kind != FileKind::Directory {
        if attr.nlink > 1 {
            shown.linked.insert(attr.ino, path.to_vec());
        }
        return;
    }
    for (name, ino) in list(volume, attr.ino, 100).unwrap() {
        let child = volume.namespace().lookup(&Caller::root(), attr.ino, &name).unwrap();
        assert_eq!(child.ino, ino, "{} is listed as another file", name.escape_ascii());
        let path = [path, b"/", &name].concat();
        below(volume, &child, &path, shown);
    }
}

fn line(volume: &Volume, attr: &Attr, path: &[u8], text: &mut String) {
    let Attr { ino, kind, mode, uid, gid, nlink, size, generation, .. } = *attr;
    let shown = if path.is_empty() { b"/" } else { path };
    let number = format!("{}:{}.{}", ino.root().0, ino.index(), generation.0);
    let kind_name = format!("{kind:?}").to_lowercase();
    let _ = write!(text, "{} {kind_name} {mode:o} {uid}:{gid} links {nlink}", shown.escape_ascii());
    let _ = write!(text, " size {size} ino {number}");
    for (what, Time { sec, nsec }) in [("m", attr.mtime), ("c", attr.ctime), ("b", attr.btime)] {
        let _ = write!(text, " {what} {sec}.{nsec:09}");
    }
    let _ = match kind {
        FileKind::Regular => write!(text, " hash {:016x}", contents_hash(volume, ino, size)),
        FileKind::Symlink => {
            let target = volume.namespace().readlink(ino).unwrap();
            write!(text, " -> {}", short(&target))
        }
        FileKind::CharDevice | FileKind::BlockDevice => write!(text, " device {:#x}", attr.rdev),
        _ => Ok(()),
    };
    text.push('\n');
    attributes(volume, ino, text);
    if volume.paths().has_parent_pointers() && ino != Ino::ROOT {
        other_paths(volume, ino, path, text);
    }
}

fn attributes(volume: &Volume, ino: Ino, text: &mut String) {
    let who = Caller::root();
    for name in list_xattrs(volume, &who, ino).unwrap() {
        let value = volume.attributes().getxattr(&who, ino, &name).unwrap();
        let _ = writeln!(text, "  xattr {} {}", name.escape_ascii(), short(&value));
    }
}

/// The other paths of a file, as its parent pointers say.
fn other_paths(volume: &Volume, ino: Ino, path: &[u8], text: &mut String) {
    let mut paths = volume.paths().paths_of(ino).unwrap();
    paths.sort();
    let found = paths.iter().position(|known| known == path);
    paths.remove(found.unwrap_or_else(|| panic!("{} is not its path", path.escape_ascii())));
    for other in paths {
        let _ = writeln!(text, "  also {}", other.escape_ascii());
    }
}

/// Bytes in short: as they are, or their number and hash.
fn short(bytes: &[u8]) -> String {
    match bytes.len() {
        0..=40 => format!("\"{}\"", bytes.escape_ascii()),
        len => format!("{len} bytes {:016x}", xxh3_64(bytes)),
    }
}

/// XXH3-64 over the number (8 bytes) and the bytes of each page of 4096 that is not all zeros:
/// a hole and written zeros have the same, and a hole costs nothing.
fn contents_hash(volume: &Volume, ino: Ino, size: u64) -> u64 {
    let mut hash = Xxh3::new();
    let mut at = 0;
    while at < size {
        let start = match volume.files().seek(ino, at, Seek::Data) {
            Ok(start) => start,
            Err(e) if e.is(Code::NoDevice) => break,
            Err(e) => panic!("seek in inode {ino}: {e}"),
        };
        let hole = volume.files().seek(ino, start, Seek::Hole).unwrap();
        for page in start / PAGE..hole.div_ceil(PAGE) {
            hash_page(volume, ino, page, &mut hash);
        }
        at = hole.next_multiple_of(PAGE);
    }
    hash.digest()
}

fn hash_page(volume: &Volume, ino: Ino, page: u64, hash: &mut Xxh3) {
    let mut bytes = [0; PAGE as usize];
    volume.files().read(ino, page * PAGE, &mut bytes).unwrap();
    if bytes.iter().any(|b| *b != 0) {
        hash.update(&page.to_le_bytes());
        hash.update(&bytes);
    }
}
