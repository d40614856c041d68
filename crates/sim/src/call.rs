//! One operation as a call of the volume.

use crate::op::{Op, with_batch_ops};
use shoal::raw::{Attr, Caller, Error, Ino, RenameFlags, SetAttr, TreeCheck, TreeStep, Volume};
use std::ops::ControlFlow;

/// Result of an operation that succeeded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Nothing.
    Unit,
    /// An inode.
    Node(Ino),
    /// A number: bytes written or copied, an offset.
    Number(u64),
    /// Offset at which an append began, and how many bytes it took.
    Appended(u64, usize),
    /// Inodes that a change of a tree has changed, and how many it could not.
    Changed(u64, u64),
    /// Bytes read.
    Bytes(Vec<u8>),
    /// A directory's entries with their inodes, "." and ".." left out, sorted.
    Names(Vec<(Vec<u8>, Ino)>),
    /// New inodes of a batch, in the order of its changes; `None`: gone at its end.
    Made(Vec<Option<Ino>>),
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
pub fn as_setattr(op: &Op) -> Option<(shoal::raw::Caller, SetAttr)> {
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

/// Runs `op` on the volume. `told` gets the attributes that the volume answers with, if it does.
pub fn on_volume(
    volume: &Volume,
    op: &Op,
    inos: &[Ino],
    told: &mut Option<Attr>,
) -> Result<Answer, Error> {
    let mut node = |attr: Attr| {
        *told = Some(attr);
        Answer::Node(attr.ino)
    };
    match op {
        Op::Create { who, at, mode } => {
            volume.namespace().create(&who.caller(), inos[0], &at.name, *mode).map(node)
        }
        Op::Mkdir { who, at, mode } => {
            volume.namespace().mkdir(&who.caller(), inos[0], &at.name, *mode).map(node)
        }
        Op::Mknod { who, at, mode, rdev } => {
            volume.namespace().mknod(&who.caller(), inos[0], &at.name, *mode, *rdev).map(node)
        }
        Op::Symlink { who, at, target } => {
            volume.namespace().symlink(&who.caller(), inos[0], &at.name, target).map(node)
        }
        Op::Link { who, at, .. } => {
            volume.namespace().link(&who.caller(), inos[0], inos[1], &at.name).map(node)
        }
        Op::Unlink { who, at } => done(volume.namespace().unlink(&who.caller(), inos[0], &at.name)),
        Op::Rmdir { who, at } => done(volume.namespace().rmdir(&who.caller(), inos[0], &at.name)),
        Op::RemoveTree { who, at } => {
            done(volume.namespace().remove_tree(&who.caller(), inos[0], &at.name, TreeCheck::Tree))
        }
        Op::Rename { who, from, to, flags } => {
            let (from, to) = ((inos[0], &from.name[..]), (inos[1], &to.name[..]));
            let made = rename(volume, &who.caller(), from, to, *flags);
            made.map(|made| made.map_or(Answer::Unit, node))
        }
        Op::Tmpfile { who, mode, .. } => {
            volume.namespace().tmpfile(&who.caller(), inos[0], *mode).map(node)
        }
        Op::Batch { who, changes, .. } => {
            done(with_batch_ops(changes, |ops| volume.batch(&who.caller(), inos[0], ops)))
        }
        Op::Open { .. } => done(volume.references().hold(inos[0], 1)),
        Op::Close { .. } => {
            volume.references().release(inos[0], 1);
            Ok(Answer::Unit)
        }
        Op::Lookup { who, at } => {
            volume.namespace().lookup(&who.caller(), inos[0], &at.name).map(node)
        }
        Op::Getattr { .. } => volume.attributes().getattr(inos[0]).map(|attr| {
            node(attr);
            Answer::Unit
        }),
        Op::Access { who, mask, .. } => {
            done(volume.attributes().access(&who.caller(), inos[0], *mask))
        }
        Op::Resolve { who, path, follow, .. } => {
            volume.namespace().resolve(&who.caller(), inos[0], path, *follow).map(node)
        }
        Op::Readdir { page, .. } => list(volume, inos[0], *page).map(Answer::Names),
        Op::RootCreate { .. } | Op::RootDelete { .. } | Op::Reap { .. } => {
            on_subvolumes(volume, op, &mut node)
        }
        _ => on_volume_contents(volume, op, inos),
    }
}

/// Renames. Returns the whiteout, if it leaves one.
fn rename(
    volume: &Volume,
    who: &Caller,
    from: (Ino, &[u8]),
    to: (Ino, &[u8]),
    flags: RenameFlags,
) -> Result<Option<Attr>, Error> {
    let names = volume.namespace();
    names.rename(who, from.0, from.1, to.0, to.1, flags)?;
    if !flags.whiteout {
        return Ok(None);
    }
    let [old, new] = [from, to].map(|(dir, name)| names.lookup(&Caller::root(), dir, name));
    let (old, new) = (old?, new?);
    // Two names of one file stay as they are.
    Ok((old.ino != new.ino).then_some(old))
}

fn on_subvolumes(
    volume: &Volume,
    op: &Op,
    node: &mut dyn FnMut(Attr) -> Answer,
) -> Result<Answer, Error> {
    match op {
        Op::RootCreate { who, name, mode } => {
            volume.subvolumes().create(&who.caller(), name, *mode).map(node)
        }
        Op::RootDelete { who, name } => done(volume.subvolumes().delete(&who.caller(), name)),
        Op::Reap { slices: 0 } => done(volume.maintenance().reap_roots(&mut |_| {})),
        Op::Reap { slices } => {
            done((0..*slices).try_for_each(|_| volume.maintenance().reap_some().map(|_| ())))
        }
        _ => unreachable!("{op} is of another kind"),
    }
}

fn on_volume_contents(volume: &Volume, op: &Op, inos: &[Ino]) -> Result<Answer, Error> {
    if let Some((who, set)) = as_setattr(op) {
        return done(volume.attributes().setattr(&who, inos[0], &set).map(|_| ()));
    }
    let number = |n: usize| Answer::Number(n as u64);
    if let Op::ChangeTree { who, change, .. } = op {
        let none = |_: &TreeStep<'_>| ControlFlow::Continue(());
        let changes = volume.tree_changes();
        let changed = changes.change_tree(&who.caller(), inos[0], change, 1, &none)?;
        return Ok(Answer::Changed(changed.inodes, changed.failures));
    }
    match op {
        Op::Write { offset, data, kill_priv, .. } => {
            volume.files().write(inos[0], *offset, &data.bytes(), *kill_priv).map(number)
        }
        Op::Append { data, kill_priv, .. } => {
            let appended = volume.files().append(inos[0], &data.bytes(), *kill_priv);
            appended.map(|(at, taken)| Answer::Appended(at, taken))
        }
        Op::Fallocate { mode, offset, len, .. } => {
            done(volume.files().fallocate(inos[0], *mode, *offset, *len))
        }
        Op::CopyRange { from_offset, to_offset, len, .. } => {
            let (from, to) = (inos[0], inos[1]);
            volume.files().copy_range(from, *from_offset, to, *to_offset, *len).map(Answer::Number)
        }
        Op::SetXattr { who, name, data, flags, .. } => {
            done(volume.attributes().setxattr(&who.caller(), inos[0], name, &data.bytes(), *flags))
        }
        Op::RemoveXattr { who, name, .. } => {
            done(volume.attributes().removexattr(&who.caller(), inos[0], name))
        }
        Op::GetXattr { who, name, .. } => {
            volume.attributes().getxattr(&who.caller(), inos[0], name).map(Answer::Bytes)
        }
        Op::ListXattr { who, .. } => list_xattrs(volume, &who.caller(), inos[0]).map(Answer::Paths),
        Op::Paths { .. } => {
            let mut paths = volume.paths().paths_of(inos[0])?;
            paths.sort();
            Ok(Answer::Paths(paths))
        }
        Op::Read { offset, len, .. } => {
            let mut buf = vec![0xA5; *len as usize];
            let n = volume.files().read(inos[0], *offset, &mut buf)?;
            buf.truncate(n);
            Ok(Answer::Bytes(buf))
        }
        Op::Readlink { .. } => volume.namespace().readlink(inos[0]).map(Answer::Bytes),
        Op::Seek { offset, what, .. } => {
            volume.files().seek(inos[0], *offset, *what).map(Answer::Number)
        }
        _ => Ok(Answer::Unit),
    }
}

fn done(result: shoal::raw::Result<()>) -> Result<Answer, Error> {
    result.map(|()| Answer::Unit)
}

/// Names of the attributes that `who` sees, sorted.
pub fn list_xattrs(volume: &Volume, who: &Caller, ino: Ino) -> Result<Vec<Vec<u8>>, Error> {
    let raw = volume.attributes().listxattr(who, ino)?;
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
        volume.directories().readdir(dir, cookie, &mut |entry| {
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

/// Waits until what is freed behind the calls has been: only then are inodes counted as they are
/// found.
pub fn wait_for_reaping(volume: &Volume) -> Result<(), String> {
    while volume.maintenance().is_reaping() {
        volume.maintenance().reap_some().map_err(|e| format!("reaping: {e}"))?;
    }
    Ok(())
}
