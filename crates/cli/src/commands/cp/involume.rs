//! The end of a copy that lies in a volume: calls of the library, by inode number.

use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use shoal::raw::{
    Attr, Caller, Code, FileKind, Ino, RenameFlags, Seek, SetAttr, SetTime, XattrFlags,
};

use super::side::{
    Attribute, Draft, Found, Holder, Id, Kept, Meta, Node, Outcome, SYNC_MARK, Side, is_kept,
    mode_kept,
};
use crate::new_file::temporary;
use crate::session::{Cursor, Session};

/// Bytes of a small file, at most.
const SMALL: u64 = 64 << 10;
/// Bytes of small files that are read ahead at a time.
const AHEAD: u64 = 16 << 20;
/// Files for which one thread is enough.
const FEW: usize = 64;

/// Set where no device number of a local filesystem can be, so that ids never meet.
const VOLUME_FILESYSTEM: u64 = 1 << 63;

/// A volume.
pub(crate) struct InVolume {
    session: Rc<Session>,
    who: Caller,
    filesystem: u64,
}

impl InVolume {
    /// Works in an open volume.
    pub(crate) fn new(session: Rc<Session>) -> InVolume {
        // Modes are set as they shall be; the umask has no say.
        let who = Caller { umask: 0, ..session.who.clone() };
        // Sessions live as long as the copy, so the address tells volumes apart.
        let filesystem = VOLUME_FILESYSTEM | Rc::as_ptr(&session).addr() as u64;
        InVolume { session, who, filesystem }
    }

    fn meta(&self, attr: &Attr) -> Meta {
        Meta {
            kind: attr.kind,
            mode: attr.mode & 0o7777,
            uid: attr.uid,
            gid: attr.gid,
            device: attr.rdev,
            size: attr.size,
            // Asking costs no system call, so there is nothing to save by a guess.
            dense: false,
            nlink: attr.nlink,
            atime: attr.atime,
            mtime: attr.mtime,
            ctime: attr.ctime,
            id: Id { filesystem: self.filesystem, inode: attr.ino.0 },
        }
    }

    fn attr(&self, dir: Ino, name: &[u8], follow: bool) -> shoal::raw::Result<Attr> {
        let volume = &self.session.volume;
        match name {
            b"." => volume.attributes().getattr(dir),
            _ if follow => volume.namespace().resolve(&self.who, dir, name, true),
            _ => volume.namespace().lookup(&self.who, dir, name),
        }
    }

    /// Gives a file what it is to keep.
    fn finish(&self, ino: Ino, kept: &mut Kept<'_>) -> Outcome<()> {
        let meta = kept.meta;
        let is_root = self.who.uid == 0;
        let is_link = meta.kind == FileKind::Symlink;
        let mode = mode_kept(self.who.uid, self.who.gid, meta);
        let owner = SetAttr {
            uid: is_root.then_some(meta.uid),
            gid: is_root.then_some(meta.gid),
            ..SetAttr::default()
        };
        let rest = SetAttr {
            mode: (!is_link).then_some(mode),
            atime: Some(SetTime::To(meta.atime)),
            mtime: Some(SetTime::To(meta.mtime)),
            ..SetAttr::default()
        };
        let volume = &self.session.volume;
        let there = self.names(ino)?;
        let has_attributes = !there.is_empty() || !kept.attributes.is_empty();
        if has_attributes || is_root && mode & 0o6000 != 0 {
            // Changing the owner clears set-id bits and capabilities, so they come after it.
            volume.attributes().setattr(&self.who, ino, &owner)?;
            self.set_attributes(ino, there, kept)?;
            volume.attributes().setattr(&self.who, ino, &rest)?;
        } else {
            let all = SetAttr { uid: owner.uid, gid: owner.gid, ..rest };
            volume.attributes().setattr(&self.who, ino, &all)?;
        }
        Ok(())
    }
}

impl InVolume {
    /// Names of a file's extended attributes.
    fn names(&self, ino: Ino) -> Outcome<Vec<Vec<u8>>> {
        let list = self.session.volume.attributes().listxattr(&self.who, ino)?;
        let names = list.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        Ok(names.map(<[u8]>::to_vec).collect())
    }

    fn set_attributes(&self, ino: Ino, there: Vec<Vec<u8>>, kept: &mut Kept<'_>) -> Outcome<()> {
        let volume = &self.session.volume;
        let flags = XattrFlags::default();
        kept.apply(
            there,
            &mut |it| {
                Ok(volume.attributes().setxattr(&self.who, ino, &it.name, &it.value, flags)?)
            },
            &mut |name| Ok(volume.attributes().removexattr(&self.who, ino, name)?),
        )
    }
}

fn directory(entry: &Attr) -> Outcome<Ino> {
    match entry.kind {
        FileKind::Directory => Ok(entry.ino),
        _ => Err(shoal::raw::Error::Code(Code::NotDirectory).into()),
    }
}

impl Side for InVolume {
    type Dir = Ino;
    type List = Cursor;
    type File = Ino;
    type Link = Ino;

    fn label(&self, path: &[u8]) -> String {
        self.session.label(path)
    }

    fn directory(&self, path: &[u8]) -> Outcome<Ino> {
        directory(&self.session.volume.namespace().resolve(&self.who, Ino::ROOT, path, true)?)
    }

    fn stat(&self, dir: &Ino, name: &[u8], follow: bool) -> Outcome<Meta> {
        Ok(self.meta(&self.attr(*dir, name, follow)?))
    }

    fn enter(&self, dir: &Ino, name: &[u8], follow: bool) -> Outcome<Ino> {
        directory(&self.attr(*dir, name, follow)?)
    }

    fn enter_node(&self, _dir: &Ino, node: &Node) -> Outcome<Ino> {
        Ok(Ino(node.meta.id.inode))
    }

    fn list(&self, _dir: &Ino) -> Outcome<Cursor> {
        Ok(Cursor::After(0))
    }

    fn next(&self, dir: &Ino, list: &mut Cursor) -> Outcome<Vec<Found>> {
        let entries = self.session.list(*dir, list)?;
        let found = |entry: crate::session::Found| Found {
            meta: match (entry.attr, entry.failed) {
                (Some(attr), _) => Ok(self.meta(&attr)),
                (None, failed) => Err(failed.unwrap_or(Code::Io.into()).into()),
            },
            name: entry.name.into_vec(),
        };
        Ok(entries.into_iter().map(found).collect())
    }

    fn readlink(&self, _dir: &Ino, node: &Node) -> Outcome<Vec<u8>> {
        Ok(self.session.volume.namespace().readlink(Ino(node.meta.id.inode))?)
    }

    fn open(&self, _dir: &Ino, node: &Node) -> Outcome<Ino> {
        Ok(Ino(node.meta.id.inode))
    }

    fn read(&self, file: &Ino, offset: u64, buffer: &mut [u8]) -> Outcome<usize> {
        Ok(self.session.volume.files().read(*file, offset, buffer)?)
    }

    fn read_ahead(&self, entries: &[Found]) -> Vec<Option<Vec<u8>>> {
        let mut wanted = Vec::new();
        let mut bytes = 0;
        for (at, entry) in entries.iter().enumerate() {
            let Ok(meta) = &entry.meta else { continue };
            let is_small = (1..=SMALL).contains(&meta.size) && bytes + meta.size <= AHEAD;
            if meta.kind == FileKind::Regular && is_small {
                bytes += meta.size;
                wanted.push((meta.id.inode, meta.size as usize, at));
            }
        }
        // In the order of their inodes, near each other on the device.
        wanted.sort_unstable();
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let threads = threads.min(wanted.len().div_ceil(FEW));
        let (volume, next) = (&self.session.volume, AtomicUsize::new(0));
        let read = || {
            let mut done = Vec::new();
            while let Some((inode, size, at)) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                let mut contents = vec![0; *size];
                let read = volume.files().read(Ino(*inode), 0, &mut contents);
                if read.is_ok_and(|read| read == *size) {
                    done.push((*at, contents));
                }
            }
            done
        };
        let mut all: Vec<Option<Vec<u8>>> = entries.iter().map(|_| None).collect();
        thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(read)).collect();
            let mut done = read();
            done.extend(others.into_iter().filter_map(|it| it.join().ok()).flatten());
            for (at, contents) in done {
                all[at] = Some(contents);
            }
        });
        all
    }

    fn attributes(&self, of: Holder<'_, Ino, Ino>) -> Outcome<Vec<Attribute>> {
        let ino = match of {
            Holder::File(ino) | Holder::Dir(ino) => *ino,
            Holder::Name(_, node) => Ino(node.meta.id.inode),
        };
        let get = |name: Vec<u8>| {
            let value = self.session.volume.attributes().getxattr(&self.who, ino, &name)?;
            Ok(Attribute { name, value })
        };
        self.names(ino)?.into_iter().filter(|name| is_kept(name)).map(get).collect()
    }

    fn data_after(&self, file: &Ino, offset: u64) -> Outcome<Option<(u64, u64)>> {
        let volume = &self.session.volume;
        match volume.files().seek(*file, offset, Seek::Data) {
            Ok(start) => Ok(Some((start, volume.files().seek(*file, start, Seek::Hole)?))),
            Err(error) if error.is(Code::NoDevice) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn make_dir(&self, dir: &Ino, name: &[u8]) -> Outcome<Ino> {
        Ok(self.session.volume.namespace().mkdir(&self.who, *dir, name, 0o700)?.ino)
    }

    fn create(&self, dir: &Ino, name: &[u8]) -> Outcome<Ino> {
        Ok(self.session.volume.namespace().create(&self.who, *dir, name, 0o600)?.ino)
    }

    fn overwrite(&self, _dir: &Ino, _name: &[u8], found: &Meta) -> Outcome<Ino> {
        let ino = Ino(found.id.inode);
        let set = SetAttr { size: Some(0), by_handle: true, ..SetAttr::default() };
        self.session.volume.attributes().setattr(&self.who, ino, &set)?;
        Ok(ino)
    }

    fn write(&self, file: &Ino, offset: u64, data: &[u8]) -> Outcome<usize> {
        Ok(self.session.volume.files().write(*file, offset, data, false)?)
    }

    fn set_len(&self, file: &Ino, len: u64) -> Outcome<()> {
        let set = SetAttr { size: Some(len), by_handle: true, ..SetAttr::default() };
        self.session.volume.attributes().setattr(&self.who, *file, &set)?;
        Ok(())
    }

    fn finish_file(&self, file: &Ino, kept: &mut Kept<'_>) -> Outcome<()> {
        self.finish(*file, kept)
    }

    fn finish_dir(&self, dir: &Ino, kept: &mut Kept<'_>) -> Outcome<()> {
        self.finish(*dir, kept)
    }

    fn symlink(&self, dir: &Ino, name: &[u8], to: &[u8], kept: &mut Kept<'_>) -> Outcome<()> {
        let made = self.session.volume.namespace().symlink(&self.who, *dir, name, to)?;
        self.finish(made.ino, kept)
    }

    fn special(&self, dir: &Ino, name: &[u8], kept: &mut Kept<'_>) -> Outcome<()> {
        let mode = kept.meta.kind.mode_bits() | 0o600;
        let made =
            self.session.volume.namespace().mknod(&self.who, *dir, name, mode, kept.meta.device)?;
        self.finish(made.ino, kept)
    }

    fn remember(&self, dir: &Ino, name: &[u8]) -> Outcome<(Ino, Id)> {
        let made = self.session.volume.namespace().lookup(&self.who, *dir, name)?;
        Ok((made.ino, self.meta(&made).id))
    }

    fn link(&self, link: &Ino, dir: &Ino, name: &[u8]) -> Outcome<()> {
        self.session.volume.namespace().link(&self.who, *link, *dir, name)?;
        Ok(())
    }

    fn remove(&self, dir: &Ino, name: &[u8]) -> Outcome<()> {
        Ok(self.session.volume.namespace().unlink(&self.who, *dir, name)?)
    }

    fn link_name(&self, (from, old): (&Ino, &[u8]), to: &Ino, name: &[u8]) -> Outcome<()> {
        let file = self.attr(*from, old, false)?;
        self.link(&file.ino, to, name)
    }

    fn remove_dir(&self, dir: &Ino, name: &[u8]) -> Outcome<()> {
        Ok(self.session.volume.namespace().rmdir(&self.who, *dir, name)?)
    }

    fn draft(&self, dir: &Ino, _name: &[u8]) -> Outcome<Draft<Ino>> {
        let made = self.session.volume.namespace().tmpfile(&self.who, *dir, 0o600)?;
        Ok(Draft { file: made.ino, temporary: Vec::new() })
    }

    fn publish(&self, draft: &Draft<Ino>, dir: &Ino, name: &[u8], replaces: bool) -> Outcome<()> {
        let namespace = self.session.volume.namespace();
        if !replaces {
            return self.link(&draft.file, dir, name);
        }
        let temporary = temporary(name);
        self.link(&draft.file, dir, &temporary)?;
        let flags = RenameFlags::default();
        let renamed = namespace.rename(&self.who, *dir, &temporary, *dir, name, flags);
        if renamed.is_err() {
            // The failure itself is what is reported.
            let _ = namespace.unlink(&self.who, *dir, &temporary);
        }
        Ok(renamed?)
    }

    fn close(&self, draft: Draft<Ino>, _dir: &Ino, _is_published: bool) {
        self.session.volume.references().release(draft.file, 1);
    }

    fn sync_mark(&self, dir: &Ino) -> Outcome<Option<Vec<u8>>> {
        match self.session.volume.attributes().getxattr(&self.who, *dir, SYNC_MARK) {
            Ok(mark) => Ok(Some(mark)),
            Err(error) if error.is(Code::NoData) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn set_sync_mark(&self, dir: &Ino, mark: Option<&[u8]>) -> Outcome<()> {
        // Nothing survives a crash that is newer than something that does not.
        let (attributes, flags) = (self.session.volume.attributes(), XattrFlags::default());
        match mark {
            Some(mark) => Ok(attributes.setxattr(&self.who, *dir, SYNC_MARK, mark, flags)?),
            None => match attributes.removexattr(&self.who, *dir, SYNC_MARK) {
                Err(error) if !error.is(Code::NoData) => Err(error.into()),
                _ => Ok(()),
            },
        }
    }

    fn is_inside(&self, dir: &Ino, id: Id) -> Outcome<bool> {
        if id.filesystem != self.filesystem {
            return Ok(false);
        }
        let mut at = *dir;
        loop {
            if at.0 == id.inode {
                return Ok(true);
            }
            let parent = self.session.volume.directories().parent_of(at)?;
            if parent == at {
                return Ok(false);
            }
            at = parent;
        }
    }
}
