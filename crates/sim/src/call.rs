//! One operation as a call of the volume.

use crate::model::Model;
use crate::op::{Op, SLOTS};
use shoal::{Attr, Caller, Error, Handle, Ino, SetAttr, TreeCheck, Volume};

/// What an operation yields when it succeeds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Nothing.
    Unit,
    /// An inode.
    Node(Ino),
    /// A number: bytes written or copied, an offset.
    Number(u64),
    /// Where an append began, and how many bytes it took.
    Appended(u64, usize),
    /// Bytes read.
    Bytes(Vec<u8>),
    /// A directory's entries with their inodes, "." and ".." left out, sorted.
    Names(Vec<(Vec<u8>, Ino)>),
    /// Paths, or names of attributes, sorted.
    Paths(Vec<Vec<u8>>),
}

/// A change of some fields.
fn only(set: impl FnOnce(&mut SetAttr)) -> SetAttr {
    let mut all = SetAttr::default();
    set(&mut all);
    all
}

/// The attribute changes as one call.
pub fn as_setattr(op: &Op) -> Option<(shoal::Caller, SetAttr)> {
    let (who, set) = match op {
        Op::Chmod { who, mode, .. } => (who, only(|set| set.mode = Some(*mode))),
        Op::Chown { who, uid, gid, .. } => (who, only(|set| (set.uid, set.gid) = (*uid, *gid))),
        Op::Utimes { who, atime, mtime, .. } => {
            (who, only(|set| (set.atime, set.mtime) = (*atime, *mtime)))
        }
        Op::Truncate { who, size, by_handle, .. } => {
            (who, only(|set| (set.size, set.by_handle) = (Some(*size), *by_handle)))
        }
        _ => return None,
    };
    Some((who.caller(), set))
}

/// Runs `op` on the volume.
pub fn on_volume(
    volume: &Volume,
    op: &Op,
    inos: &[Ino],
    slots: &[Option<Ino>; SLOTS],
    model: &Model,
) -> Result<Answer, Error> {
    let node = |attr: Attr| Answer::Node(attr.ino);
    match op {
        Op::Create { who, at, mode } => {
            volume.create(&who.caller(), inos[0], &at.name, *mode).map(node)
        }
        Op::Mkdir { who, at, mode } => {
            volume.mkdir(&who.caller(), inos[0], &at.name, *mode).map(node)
        }
        Op::Mknod { who, at, mode, rdev } => {
            volume.mknod(&who.caller(), inos[0], &at.name, *mode, *rdev).map(node)
        }
        Op::Symlink { who, at, target } => {
            volume.symlink(&who.caller(), inos[0], &at.name, target).map(node)
        }
        Op::Link { who, at, .. } => {
            volume.link(&who.caller(), inos[0], inos[1], &at.name).map(node)
        }
        Op::Unlink { who, at } => done(volume.unlink(&who.caller(), inos[0], &at.name)),
        Op::Rmdir { who, at } => done(volume.rmdir(&who.caller(), inos[0], &at.name)),
        Op::RemoveTree { who, at } => {
            done(volume.remove_tree(&who.caller(), inos[0], &at.name, TreeCheck::Tree))
        }
        Op::Rename { who, from, to, flags } => {
            let (from, to) = (&from.name, &to.name);
            done(volume.rename(&who.caller(), inos[0], from, inos[1], to, *flags))
        }
        Op::Tmpfile { who, mode, .. } => volume.tmpfile(&who.caller(), inos[0], *mode).map(node),
        Op::Open { .. } => done(volume.hold(inos[0], 1)),
        Op::Close { slot } => {
            volume.release(slots[*slot].expect("checked"), 1);
            Ok(Answer::Unit)
        }
        Op::RootCreate { who, name, mode } => {
            volume.root_create(&who.caller(), name, *mode).map(node)
        }
        Op::RootDelete { who, name } => done(volume.root_delete(&who.caller(), name)),
        Op::Reap { slices: 0 } => done(volume.reap_roots(&mut |_| {})),
        Op::Reap { slices } => done((0..*slices).try_for_each(|_| volume.reap_some().map(|_| ()))),
        Op::Lookup { who, at } => volume.lookup(&who.caller(), inos[0], &at.name).map(node),
        Op::Getattr { .. } => done(volume.getattr(inos[0]).map(|_| ())),
        Op::Access { who, mask, .. } => done(volume.access(&who.caller(), inos[0], *mask)),
        Op::Resolve { who, path, follow, .. } => {
            volume.resolve(&who.caller(), inos[0], path, *follow).map(node)
        }
        Op::Readdir { page, .. } => list(volume, inos[0], *page).map(Answer::Names),
        Op::Stale { which } => {
            let graves = model.graves();
            let (ino, generation) = graves[which % graves.len()];
            volume.by_handle(Handle { ino, generation }).map(node)
        }
        _ => on_volume_contents(volume, op, inos),
    }
}

fn on_volume_contents(volume: &Volume, op: &Op, inos: &[Ino]) -> Result<Answer, Error> {
    if let Some((who, set)) = as_setattr(op) {
        return done(volume.setattr(&who, inos[0], &set).map(|_| ()));
    }
    let number = |n: usize| Answer::Number(n as u64);
    match op {
        Op::Write { offset, data, kill_priv, .. } => {
            volume.write(inos[0], *offset, &data.bytes(), *kill_priv).map(number)
        }
        Op::Append { data, kill_priv, .. } => {
            let appended = volume.append(inos[0], &data.bytes(), *kill_priv);
            appended.map(|(at, taken)| Answer::Appended(at, taken))
        }
        Op::Fallocate { mode, offset, len, .. } => {
            done(volume.fallocate(inos[0], *mode, *offset, *len))
        }
        Op::CopyRange { from_offset, to_offset, len, .. } => {
            let (from, to) = (inos[0], inos[1]);
            volume.copy_range(from, *from_offset, to, *to_offset, *len).map(Answer::Number)
        }
        Op::SetXattr { who, name, data, flags, .. } => {
            done(volume.setxattr(&who.caller(), inos[0], name, &data.bytes(), *flags))
        }
        Op::RemoveXattr { who, name, .. } => done(volume.removexattr(&who.caller(), inos[0], name)),
        Op::GetXattr { who, name, .. } => {
            volume.getxattr(&who.caller(), inos[0], name).map(Answer::Bytes)
        }
        Op::ListXattr { who, .. } => list_xattrs(volume, &who.caller(), inos[0]).map(Answer::Paths),
        Op::Paths { .. } => {
            let mut paths = volume.paths_of(inos[0])?;
            paths.sort();
            Ok(Answer::Paths(paths))
        }
        Op::Read { offset, len, .. } => {
            let mut buf = vec![0xA5; *len as usize];
            let n = volume.read(inos[0], *offset, &mut buf)?;
            buf.truncate(n);
            Ok(Answer::Bytes(buf))
        }
        Op::Readlink { .. } => volume.readlink(inos[0]).map(Answer::Bytes),
        Op::Seek { offset, what, .. } => volume.seek(inos[0], *offset, *what).map(Answer::Number),
        _ => Ok(Answer::Unit),
    }
}

fn done(result: shoal::Result<()>) -> Result<Answer, Error> {
    result.map(|()| Answer::Unit)
}

/// Names of the attributes that `who` sees, sorted.
pub fn list_xattrs(volume: &Volume, who: &Caller, ino: Ino) -> Result<Vec<Vec<u8>>, Error> {
    let raw = volume.listxattr(who, ino)?;
    let names = raw.split(|b| *b == 0).filter(|name| !name.is_empty());
    let mut names: Vec<Vec<u8>> = names.map(<[u8]>::to_vec).collect();
    names.sort();
    Ok(names)
}

/// Lists a directory in pages of `page` entries, resuming by cookie, without the dots.
pub fn list(volume: &Volume, dir: Ino, page: usize) -> Result<Vec<(Vec<u8>, Ino)>, Error> {
    let mut names = Vec::new();
    let mut cookie = 0;
    loop {
        let mut taken = 0;
        volume.readdir(dir, cookie, &mut |entry| {
            if taken == page.max(1) {
                return false;
            }
            taken += 1;
            cookie = entry.cookie;
            if entry.name != b"." && entry.name != b".." {
                names.push((entry.name.to_vec(), entry.ino));
            }
            true
        })?;
        if taken < page.max(1) {
            break;
        }
    }
    names.sort();
    Ok(names)
}
