//! Reads everything that a volume shows below a directory, through the same calls as anyone else,
//! and checks on the way that the calls agree with each other.

use crate::call::list_xattrs;
use crate::model::{Content, Model, NodeState, State, Xattrs, seen, xattr_hash};
use shoal::raw::{
    Attr, Caller, Code, Cookies, Fields, FileKind, Filter, Ino, Listing, Seek, Volume,
};
use std::collections::BTreeMap;

/// Entries asked for at a time: few, so that cookies are used a lot.
const PAGE: usize = 7;
/// One directory of so many is also listed in the order of its inodes.
const BY_INODE: u64 = 8;
/// Bytes read at a time.
const STRETCH: u64 = 256 << 10;

/// Result of a walk.
#[derive(Clone, Debug)]
pub struct Walk {
    /// Names and attributes, contents as hashes.
    pub state: State,
    /// Contents of regular files.
    pub contents: BTreeMap<Ino, Content>,
    /// Extended attributes of inodes that have some.
    pub xattrs: BTreeMap<Ino, Xattrs>,
}

impl Walk {
    /// The hash to compare with `Model::digest`.
    pub fn digest(&self) -> u64 {
        self.state.digest()
    }
    /// A model in this state.
    pub fn model(&self) -> Model {
        Model::from_state(&self.state, &self.contents, &self.xattrs)
    }
}

/// Walks everything below `root`. With `with_times`, times are part of the state.
pub fn walk(volume: &Volume, root: Ino, with_times: bool) -> Result<Walk, String> {
    let mut walk = Walk {
        state: State { root, ..State::default() },
        contents: BTreeMap::new(),
        xattrs: BTreeMap::new(),
    };
    let attr =
        volume.attributes().getattr(root).map_err(|e| format!("getattr of inode {root}: {e}"))?;
    walk.visit(volume, &attr, with_times)?;
    let mut queue =
        vec![(root, volume.directories().parent_of(root).map_err(|e| format!("parent: {e}"))?)];
    while let Some((dir, parent)) = queue.pop() {
        for (name, attr) in read_directory(volume, dir, parent)? {
            walk.state.entries.insert((dir, name.clone()), attr.ino);
            let found = volume.namespace().lookup(&Caller::root(), dir, &name);
            let found = found.map_err(|e| {
                format!("{} is listed in inode {dir}, but lookup says: {e}", name.escape_ascii())
            })?;
            if found != attr {
                return Err(format!("lookup shows {found:?}, readdirplus {attr:?}"));
            }
            if walk.state.nodes.contains_key(&attr.ino) {
                if attr.kind == FileKind::Directory {
                    return Err(format!("directory {} has two names", attr.ino));
                }
                continue;
            }
            walk.visit(volume, &attr, with_times)?;
            if attr.kind == FileKind::Directory {
                queue.push((attr.ino, dir));
            }
        }
    }
    Ok(walk)
}

/// One inode alone, with times: all that can be read of it.
pub fn visit_alone(volume: &Volume, attr: &Attr) -> Result<NodeState, String> {
    let mut walk =
        Walk { state: State::default(), contents: BTreeMap::new(), xattrs: BTreeMap::new() };
    walk.visit(volume, attr, true)?;
    walk.state.nodes.remove(&attr.ino).ok_or_else(|| format!("inode {} not seen", attr.ino))
}

impl Walk {
    fn visit(&mut self, volume: &Volume, attr: &Attr, with_times: bool) -> Result<(), String> {
        let ino = attr.ino;
        if FileKind::from_mode(attr.mode) != Some(attr.kind) {
            return Err(format!("inode {ino}: kind {:?}, mode {:#o}", attr.kind, attr.mode));
        }
        let mut target = Vec::new();
        let mut hash = 0;
        match attr.kind {
            FileKind::Symlink => {
                target = volume
                    .namespace()
                    .readlink(ino)
                    .map_err(|e| format!("readlink of {ino}: {e}"))?;
            }
            FileKind::Regular => {
                let content = read_file(volume, ino, attr.size)?;
                hash = content.hash();
                self.contents.insert(ino, content);
            }
            _ => {}
        }
        let xattrs = read_xattrs(volume, ino)?;
        let seen = seen(attr, hash, xattr_hash(&xattrs), target, with_times);
        self.state.nodes.insert(ino, seen);
        if !xattrs.is_empty() {
            self.xattrs.insert(ino, xattrs);
        }
        Ok(())
    }
}

/// All entries of a directory with attributes, in pages; `readdir` must list the same.
fn read_directory(volume: &Volume, dir: Ino, parent: Ino) -> Result<Vec<(Vec<u8>, Attr)>, String> {
    let mut entries: BTreeMap<Vec<u8>, Attr> = BTreeMap::new();
    let (mut cookie, mut wrong) = (0, None);
    loop {
        let mut taken = 0;
        let listed = volume.directories().readdirplus(dir, cookie, &mut |entry, attr| {
            if taken == PAGE {
                return false;
            }
            taken += 1;
            cookie = entry.cookie;
            let name = entry.name.escape_ascii();
            let attr = match attr {
                Ok(attr) => attr,
                Err(e) => {
                    wrong = Some(format!("{name} of inode {dir}: {e}"));
                    return false;
                }
            };
            let dots = match entry.name {
                b"." => Some(dir),
                b".." => Some(parent),
                _ => None,
            };
            if dots.is_some_and(|right| right != entry.ino) {
                wrong = Some(format!("{name} of inode {dir} is inode {}", entry.ino));
            }
            if entry.ino != attr.ino || entry.kind != attr.kind {
                wrong = Some(format!("entry {name} of inode {dir} disagrees with its inode"));
            }
            if dots.is_none() && entries.insert(entry.name.to_vec(), *attr).is_some() {
                wrong = Some(format!("{name} is listed twice in inode {dir}"));
            }
            true
        });
        listed.map_err(|e| format!("readdirplus of inode {dir}: {e}"))?;
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        if taken < PAGE {
            break;
        }
    }
    let names = crate::call::list(volume, dir, 100).map_err(|e| format!("readdir: {e}"))?;
    if !names.iter().map(|(name, ino)| (name, ino)).eq(entries.iter().map(|(n, a)| (n, &a.ino))) {
        let text = |name: &[u8], ino: Ino| format!("{} {ino}", name.escape_ascii());
        let plus: Vec<_> = entries.iter().map(|(name, attr)| text(name, attr.ino)).collect();
        let names: Vec<_> = names.iter().map(|(name, ino)| text(name, *ino)).collect();
        return Err(format!("of inode {dir} readdir lists {names:?}, readdirplus {plus:?}"));
    }
    same_in_parts(volume, dir, &entries)?;
    same_by_inode(volume, dir, &entries)?;
    Ok(entries.into_iter().collect())
}

/// A listing of each third of a directory, without its empty files, must have the same entries.
fn same_in_parts(
    volume: &Volume,
    dir: Ino,
    entries: &BTreeMap<Vec<u8>, Attr>,
) -> Result<(), String> {
    let mut parts = Vec::new();
    for cookies in Cookies::ALL.split(3) {
        let (want, filter) = (Fields::ALL, Filter::new().size(1..));
        let listing = Listing { cookies, want, filter };
        let mut wrong = None;
        let listed = volume.directories().list(dir, &listing, &mut |entry, stat| {
            match stat.map(|stat| stat.attr()) {
                Ok(Some(attr)) => parts.push((entry.name.to_vec(), attr)),
                other => wrong = Some(format!("{}: {other:?}", entry.name.escape_ascii())),
            }
            true
        });
        listed.map_err(|e| format!("listing a part of inode {dir}: {e}"))?;
        wrong.map_or(Ok(()), Err)?;
    }
    parts.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let expected = entries.iter().filter(|(_, attr)| attr.size > 0);
    match expected.eq(parts.iter().map(|(name, attr)| (name, attr))) {
        true => Ok(()),
        false => Err(format!("of inode {dir} parts list {parts:?}, readdirplus {entries:?}")),
    }
}

/// A listing in the order of the inodes must have the same entries.
fn same_by_inode(
    volume: &Volume,
    dir: Ino,
    entries: &BTreeMap<Vec<u8>, Attr>,
) -> Result<(), String> {
    // Each is a scan of the whole subvolume: the top directory, and one of so many others.
    if !volume.paths().has_parent_pointers() || dir.index() % BY_INODE != 1 {
        return Ok(());
    }
    let (mut found, mut after) = (Vec::new(), Some(Ino::new(dir.root(), 0)));
    while let Some(from) = after {
        let listed = volume.bulk().children(&Caller::root(), dir, from, PAGE);
        let (children, next) = listed.map_err(|e| format!("inode {dir} by inode: {e}"))?;
        found.extend(children.into_iter().map(|child| (child.name.into_vec(), child.attr)));
        after = next;
    }
    found.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    match entries.iter().eq(found.iter().map(|(name, attr)| (name, attr))) {
        true => Ok(()),
        false => Err(format!("of inode {dir} by inode: {found:?}, readdirplus {entries:?}")),
    }
}

/// All attributes of an inode, by name.
fn read_xattrs(volume: &Volume, ino: Ino) -> Result<Xattrs, String> {
    let root = Caller::root();
    let names = list_xattrs(volume, &root, ino).map_err(|e| format!("listxattr of {ino}: {e}"))?;
    let mut xattrs = Xattrs::new();
    for name in names {
        let value = volume
            .attributes()
            .getxattr(&root, ino, &name)
            .map_err(|e| format!("{} of inode {ino} is listed, but: {e}", name.escape_ascii()))?;
        if xattrs.insert(name.clone(), value).is_some() {
            return Err(format!("{} of inode {ino} is listed twice", name.escape_ascii()));
        }
    }
    Ok(xattrs)
}

/// Reads a file, holes skipped by `seek`: a hole that hides data shows as wrong content.
fn read_file(volume: &Volume, ino: Ino, size: u64) -> Result<Content, String> {
    let mut content = Content::default();
    let mut at = 0;
    while at < size {
        let start = match volume.files().seek(ino, at, Seek::Data) {
            Ok(start) => start,
            Err(error) if error.is(Code::NoDevice) => break,
            Err(error) => return Err(format!("seek in inode {ino}: {error}")),
        };
        let hole = volume.files().seek(ino, start, Seek::Hole).map_err(|e| format!("seek: {e}"))?;
        if start < at || hole <= start || hole > size {
            return Err(format!("inode {ino}: data from {start} to {hole} of {size}, asked {at}"));
        }
        at = start;
        while at < hole {
            let mut buf = vec![0xA5; (hole - at).min(STRETCH) as usize];
            let n = volume
                .files()
                .read(ino, at, &mut buf)
                .map_err(|e| format!("read of {} bytes at {at} of inode {ino}: {e}", buf.len()))?;
            if n != buf.len() {
                return Err(format!("inode {ino}: {n} bytes at {at}, asked {}", buf.len()));
            }
            content.write(at, &buf);
            at += n as u64;
        }
    }
    content.resize(size);
    Ok(content)
}
