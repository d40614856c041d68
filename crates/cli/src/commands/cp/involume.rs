//! The end of a copy that lies in a volume: calls of the library, by open directories and names.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use shoal::raw::{
    Attr, Caller, Code, Error, FileKind, Ino, RenameFlags, Seek, SetAttr, SetTime, XattrFlags,
};
use shoal_session::{Calls, How, Node as Handle};

use super::side::{
    Attribute, Draft, Found, Holder, Id, Kept, Meta, Node, Outcome, SYNC_MARK, Side, is_kept,
    mode_kept,
};
use crate::location::join;
use crate::new_file::temporary;
use crate::session::{Cursor, Open, Session, names_in};

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
    session: Arc<Session>,
    who: Caller,
    filesystem: u64,
}

/// An open directory.
pub(crate) struct Dir {
    open: Open,
    /// Its path from the top, without symlinks and dots.
    path: Vec<u8>,
}

impl Dir {
    /// Returns the way to an entry, or to the directory itself, for a call.
    fn at<'n>(&self, name: &'n [u8]) -> (Handle, &'n [u8]) {
        (self.open.node, if name == b"." { b"" } else { name })
    }
}

impl InVolume {
    /// Works in an open volume.
    pub(crate) fn new(session: Arc<Session>) -> InVolume {
        // Modes are set as they shall be; the umask has no say.
        let who = Caller { umask: 0, ..session.who.clone() };
        // Sessions live as long as the copy, so the address tells volumes apart.
        let filesystem = VOLUME_FILESYSTEM | Arc::as_ptr(&session).addr() as u64;
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
            // Asking costs little, so there is nothing to save by a guess.
            dense: false,
            nlink: attr.nlink,
            atime: attr.atime,
            mtime: attr.mtime,
            ctime: attr.ctime,
            id: Id { filesystem: self.filesystem, inode: attr.ino.0 },
        }
    }

    fn calls(&self) -> &dyn Calls {
        self.session.calls()
    }

    fn attr(&self, dir: &Dir, name: &[u8], follow: bool) -> shoal::raw::Result<Attr> {
        match (name, follow) {
            (b".", _) => self.calls().attr(&self.who, dir.open.node),
            // To a call it would be the directory itself.
            (b"", _) => Err(Code::NotFound.into()),
            (name, false) => self.calls().find(&self.who, dir.open.node, name, false),
            // It may lead anywhere in the volume.
            (name, true) => self.session.find(&join(&dir.path, name), true),
        }
    }

    /// Opens the directory that a path leads to.
    fn directory_at(&self, path: &[u8]) -> Outcome<Dir> {
        let (found, path) = self.session.resolve(path, true)?;
        directory(&found)?;
        Ok(Dir { open: self.session.open_dir(&path, Some(found.ino))?, path })
    }

    /// Opens a directory in another one, if it has this inode.
    fn directory_in(&self, dir: &Dir, name: &[u8], ino: Ino) -> Outcome<Dir> {
        let (node, name) = dir.at(name);
        let opened = self.calls().open_dir(&self.who, node, name)?;
        let open = self.session.the_same(opened, Some(ino))?;
        let path = if name.is_empty() { dir.path.clone() } else { join(&dir.path, name) };
        Ok(Dir { open, path })
    }

    /// Opens a file in a directory for reading, if it has this inode.
    fn open_in(&self, dir: &Dir, name: &[u8], ino: Ino) -> Outcome<Open> {
        let how = How { read: true, ..How::default() };
        let opened = self.calls().open_file(&self.who, dir.open.node, name, how)?;
        Ok(self.session.the_same(opened, Some(ino))?)
    }

    /// Gives a file what it is to keep.
    fn finish(&self, at: (Handle, &[u8]), kept: &mut Kept<'_>) -> Outcome<()> {
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
        let set = |set| self.calls().set_attr(&self.who, at.0, at.1, false, set);
        let there = self.names(at)?;
        let has_attributes = !there.is_empty() || !kept.attributes.is_empty();
        if has_attributes || is_root && mode & 0o6000 != 0 {
            // Changing the owner clears set-id bits and capabilities, so they come after it.
            set(owner)?;
            self.set_attributes(at, there, kept)?;
            set(rest)?;
        } else {
            set(SetAttr { uid: owner.uid, gid: owner.gid, ..rest })?;
        }
        Ok(())
    }

    /// Names of a file's extended attributes.
    fn names(&self, (node, path): (Handle, &[u8])) -> Outcome<Vec<Vec<u8>>> {
        Ok(names_in(&self.calls().xattrs(&self.who, node, path, false)?))
    }

    fn set_attributes(
        &self,
        (node, path): (Handle, &[u8]),
        there: Vec<Vec<u8>>,
        kept: &mut Kept<'_>,
    ) -> Outcome<()> {
        let (calls, who, flags) = (self.calls(), &self.who, XattrFlags::default());
        kept.apply(
            there,
            &mut |it| Ok(calls.set_xattr(who, node, path, false, &it.name, &it.value, flags)?),
            &mut |name| Ok(calls.remove_xattr(who, node, path, false, name)?),
        )
    }
}

fn directory(entry: &Attr) -> Outcome<Ino> {
    match entry.kind {
        FileKind::Directory => Ok(entry.ino),
        _ => Err(Error::Code(Code::NotDirectory).into()),
    }
}

impl Side for InVolume {
    type Dir = Dir;
    type List = Cursor;
    type File = Open;
    type Link = Vec<u8>;

    fn label(&self, path: &[u8]) -> String {
        self.session.label(path)
    }

    fn directory(&self, path: &[u8]) -> Outcome<Dir> {
        self.directory_at(path)
    }

    fn stat(&self, dir: &Dir, name: &[u8], follow: bool) -> Outcome<Meta> {
        Ok(self.meta(&self.attr(dir, name, follow)?))
    }

    fn enter(&self, dir: &Dir, name: &[u8], follow: bool) -> Outcome<Dir> {
        if follow && name != b"." {
            return self.directory_at(&join(&dir.path, name));
        }
        let found = directory(&self.attr(dir, name, false)?)?;
        self.directory_in(dir, name, found)
    }

    fn enter_node(&self, dir: &Dir, node: &Node) -> Outcome<Dir> {
        match node.followed {
            true => self.enter(dir, &node.name, true),
            false => self.directory_in(dir, &node.name, Ino(node.meta.id.inode)),
        }
    }

    fn list(&self, _dir: &Dir) -> Outcome<Cursor> {
        Ok(Cursor::After(0))
    }

    fn next(&self, dir: &Dir, list: &mut Cursor) -> Outcome<Vec<Found>> {
        let entries = self.session.list((&dir.path, dir.open.attr.ino), list)?;
        let found = |entry: crate::session::Found| Found {
            meta: match (entry.attr, entry.failed) {
                (Some(attr), _) => Ok(self.meta(&attr)),
                (None, failed) => Err(failed.unwrap_or(Code::Io.into()).into()),
            },
            name: entry.name.into_vec(),
        };
        Ok(entries.into_iter().map(found).collect())
    }

    fn readlink(&self, dir: &Dir, node: &Node) -> Outcome<Vec<u8>> {
        Ok(self.calls().read_link(&self.who, dir.open.node, &node.name)?)
    }

    fn open(&self, dir: &Dir, node: &Node) -> Outcome<Open> {
        let ino = Ino(node.meta.id.inode);
        if node.followed {
            let (_, path) = self.session.resolve(&join(&dir.path, &node.name), true)?;
            let how = How { read: true, ..How::default() };
            return Ok(self.session.open_file(&path, how, Some(ino))?);
        }
        self.open_in(dir, &node.name, ino)
    }

    fn read(&self, file: &Open, offset: u64, buffer: &mut [u8]) -> Outcome<usize> {
        Ok(self.calls().read(&self.who, file.node, offset, buffer)?)
    }

    fn read_ahead(&self, dir: &Dir, entries: &[Found]) -> Vec<Option<Vec<u8>>> {
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
        let next = AtomicUsize::new(0);
        let read = || {
            let mut done = Vec::new();
            while let Some((inode, size, at)) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                let Ok(file) = self.open_in(dir, &entries[*at].name, Ino(*inode)) else { continue };
                // As many bytes as it had: it may be another size's now.
                let mut contents = vec![0; *size];
                if self.read(&file, 0, &mut contents).is_ok_and(|read| read == *size) {
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

    fn attributes(&self, of: Holder<'_, Open, Dir>) -> Outcome<Vec<Attribute>> {
        let at = match of {
            Holder::File(file) => (file.node, &b""[..]),
            Holder::Dir(dir) => dir.at(b"."),
            Holder::Name(dir, node) => dir.at(&node.name),
        };
        let get = |name: Vec<u8>| {
            let value = self.calls().xattr(&self.who, at.0, at.1, false, &name)?;
            Ok(Attribute { name, value })
        };
        self.names(at)?.into_iter().filter(|name| is_kept(name)).map(get).collect()
    }

    fn data_after(&self, file: &Open, offset: u64) -> Outcome<Option<(u64, u64)>> {
        let seek = |at, what| self.calls().seek(&self.who, file.node, at, what);
        match seek(offset, Seek::Data) {
            Ok(start) => Ok(Some((start, seek(start, Seek::Hole)?))),
            Err(error) if error.is(Code::NoDevice) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn make_dir(&self, dir: &Dir, name: &[u8]) -> Outcome<Dir> {
        let made = self.calls().make_dir(&self.who, dir.open.node, name, 0o700)?;
        Ok(Dir { open: self.session.opened(made), path: join(&dir.path, name) })
    }

    fn create(&self, dir: &Dir, name: &[u8]) -> Outcome<Open> {
        let how = How { read: true, write: true, create_new: true, mode: 0o600, ..How::default() };
        let made = self.calls().open_file(&self.who, dir.open.node, name, how)?;
        Ok(self.session.opened(made))
    }

    fn overwrite(&self, dir: &Dir, name: &[u8], found: &Meta) -> Outcome<Open> {
        let (_, path) = self.session.resolve(&join(&dir.path, name), true)?;
        let how = How { write: true, ..How::default() };
        let file = self.session.open_file(&path, how, Some(Ino(found.id.inode)))?;
        self.set_len(&file, 0)?;
        Ok(file)
    }

    fn write(&self, file: &Open, offset: u64, data: &[u8]) -> Outcome<usize> {
        let (_, written) = self.calls().write(&self.who, file.node, offset, data)?;
        Ok(written as usize)
    }

    fn set_len(&self, file: &Open, len: u64) -> Outcome<()> {
        Ok(self.calls().set_size(&self.who, file.node, len)?)
    }

    fn finish_file(&self, file: &Open, kept: &mut Kept<'_>) -> Outcome<()> {
        self.finish((file.node, b""), kept)
    }

    fn finish_dir(&self, dir: &Dir, kept: &mut Kept<'_>) -> Outcome<()> {
        self.finish(dir.at(b"."), kept)
    }

    fn symlink(&self, dir: &Dir, name: &[u8], to: &[u8], kept: &mut Kept<'_>) -> Outcome<()> {
        self.calls().symlink(&self.who, dir.open.node, name, to)?;
        self.finish(dir.at(name), kept)
    }

    fn special(&self, dir: &Dir, name: &[u8], kept: &mut Kept<'_>) -> Outcome<()> {
        let mode = kept.meta.kind.mode_bits() | 0o600;
        self.calls().make_node(&self.who, dir.open.node, name, mode, kept.meta.device)?;
        self.finish(dir.at(name), kept)
    }

    fn remember(&self, dir: &Dir, name: &[u8]) -> Outcome<(Vec<u8>, Id)> {
        let made = self.attr(dir, name, false)?;
        Ok((join(&dir.path, name), self.meta(&made).id))
    }

    fn link(&self, link: &Vec<u8>, dir: &Dir, name: &[u8]) -> Outcome<()> {
        self.session
            .on(link, |node, path| self.calls().link(&self.who, node, path, dir.open.node, name))?;
        Ok(())
    }

    fn remove(&self, dir: &Dir, name: &[u8]) -> Outcome<()> {
        Ok(self.calls().unlink(&self.who, dir.open.node, name)?)
    }

    fn link_name(&self, (from, old): (&Dir, &[u8]), to: &Dir, name: &[u8]) -> Outcome<()> {
        self.calls().link(&self.who, from.open.node, old, to.open.node, name)?;
        Ok(())
    }

    fn remove_dir(&self, dir: &Dir, name: &[u8]) -> Outcome<()> {
        Ok(self.calls().remove_dir(&self.who, dir.open.node, name)?)
    }

    fn draft(&self, dir: &Dir, _name: &[u8]) -> Outcome<Draft<Open>> {
        let made = self.calls().make_temporary(&self.who, dir.open.node, b"", 0o600)?;
        Ok(Draft { file: self.session.opened(made), temporary: Vec::new() })
    }

    fn publish(&self, draft: &Draft<Open>, dir: &Dir, name: &[u8], replaces: bool) -> Outcome<()> {
        let (calls, who, node) = (self.calls(), &self.who, dir.open.node);
        let link = |name: &[u8]| calls.link(who, draft.file.node, b"", node, name);
        if !replaces {
            link(name)?;
            return Ok(());
        }
        let temporary = temporary(name);
        link(&temporary)?;
        let renamed = calls.rename(who, node, &temporary, node, name, RenameFlags::default());
        if renamed.is_err() {
            // The failure itself is what is reported.
            let _ = calls.unlink(who, node, &temporary);
        }
        Ok(renamed?)
    }

    fn close(&self, draft: Draft<Open>, _dir: &Dir, _is_published: bool) {
        drop(draft);
    }

    fn sync_mark(&self, dir: &Dir) -> Outcome<Option<Vec<u8>>> {
        match self.calls().xattr(&self.who, dir.open.node, b"", false, SYNC_MARK) {
            Ok(mark) => Ok(Some(mark)),
            Err(error) if error.is(Code::NoData) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn set_sync_mark(&self, dir: &Dir, mark: Option<&[u8]>) -> Outcome<()> {
        // Nothing survives a crash that is newer than something that does not.
        let (calls, who, node) = (self.calls(), &self.who, dir.open.node);
        let flags = XattrFlags::default();
        match mark {
            Some(mark) => Ok(calls.set_xattr(who, node, b"", false, SYNC_MARK, mark, flags)?),
            None => match calls.remove_xattr(who, node, b"", false, SYNC_MARK) {
                Err(error) if !error.is(Code::NoData) => Err(error.into()),
                _ => Ok(()),
            },
        }
    }

    fn is_inside(&self, dir: &Dir, id: Id) -> Outcome<bool> {
        let is_here = id.filesystem == self.filesystem;
        Ok(is_here && self.session.above(&dir.path)?.contains(&Ino(id.inode)))
    }
}
