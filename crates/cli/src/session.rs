//! Open volumes for the commands that work on one directly, without a mount.
//!
//! A user who can read and write the volume's file can do everything with its contents, so calls
//! are made as already checked; they still carry the user's ids, which become the owner of new
//! files.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use rustix::fs::Mode;
use shoal::raw::{
    Attr, Caller, Child, Code, DirEntry, DiskCache, Entry, Error, FileKind, Generation, Ino,
    OpenOptions, Volume, is_bucket,
};

use crate::failure::{self, Failure, Reason, Result};
use crate::interrupt;
use crate::location::{self, Location, Split, split_last};
use crate::progress::eprint_line;
use crate::rings::Kept;

/// Entries fetched with one call while a directory is listed. Bounds the memory for directories of
/// any size, and is large enough that the cost of the call does not matter.
const BATCH: usize = 1024;

/// Access of a command to a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// Reads only.
    Read,
    /// Changes it.
    Write,
}

/// An open volume.
pub(crate) struct Session {
    /// The volume.
    pub volume: Volume,
    /// Caller of the operations.
    pub who: Caller,
    /// Path of the volume, as the user wrote it.
    pub path: PathBuf,
    /// The ring of a mount that was killed.
    kept: Option<Kept>,
}

/// Returns the cache on disk for a volume in a bucket that the environment asks for
/// (`SHOAL_DISK_CACHE=DIR`, `SHOAL_DISK_CACHE_SIZE=SIZE`).
pub(crate) fn disk_cache(volume: &Path) -> Result<Option<DiskCache>> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let Some(directory) = set("SHOAL_DISK_CACHE").filter(|_| is_bucket(volume)) else {
        return Ok(None);
    };
    let bytes = match set("SHOAL_DISK_CACHE_SIZE") {
        None => DiskCache::BYTES,
        Some(size) => crate::size::parse(&size.to_string_lossy())
            .map_err(|error| Failure::usage("SHOAL_DISK_CACHE_SIZE", error))?,
    };
    Ok(Some(DiskCache { directory: directory.into(), bytes }))
}

/// A file found in a directory.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// Name.
    pub name: Box<[u8]>,
    /// Inode number.
    pub ino: Ino,
    /// Generation; of names alone only that of directories in a mount.
    pub generation: Generation,
    /// Type.
    pub kind: FileKind,
    /// Attributes, unless names alone are read, or the inode cannot be.
    pub attr: Option<Attr>,
    /// Why the attributes cannot be read.
    pub failed: Option<Error>,
}

impl Found {
    /// Returns a file with all attributes.
    pub(crate) fn with_attributes(name: Box<[u8]>, attr: Attr) -> Found {
        let Attr { ino, generation, kind, .. } = attr;
        Found { name, ino, generation, kind, attr: Some(attr), failed: None }
    }

    /// Returns an entry without attributes.
    pub(crate) fn by_name(entry: &DirEntry<'_>, failed: Option<Error>) -> Found {
        let DirEntry { name, ino, kind, .. } = *entry;
        Found { name: name.into(), ino, generation: Generation(0), kind, attr: None, failed }
    }
}

/// Position in a directory listing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cursor {
    /// Go on after this cookie (0: at the start).
    After(u64),
    /// Go on after this inode, in the order of their numbers.
    Inode(Ino),
    /// Go on after this cookie, with inodes of higher numbers alone: behind damage that has ended
    /// their order.
    Above(u64, Ino),
    /// Everything has been listed.
    End,
}

/// A directory entry to be made, changed or removed.
pub(crate) struct Slot {
    /// The directory.
    pub dir: Ino,
    /// The name in it.
    pub name: Vec<u8>,
}

impl Session {
    /// Opens a volume.
    pub(crate) fn open(path: &Path, access: Access) -> Result<Session> {
        let read_only = access == Access::Read;
        let kept = Kept::find(path)?;
        // A read-only session needs no journal writer, checkpoints or cleaner.
        let options = OpenOptions {
            read_only,
            background: !read_only,
            notice: eprint_line,
            ring: kept.as_ref().map(|kept| kept.memory.clone()),
            disk_cache: disk_cache(path)?,
            ..OpenOptions::default()
        };
        let volume = Volume::open(path, &options)
            .map_err(|error| Failure::volume(path.display(), &error))?;
        Ok(Session {
            volume,
            who: caller(),
            path: path.to_owned(),
            kept: kept.filter(|_| !read_only),
        })
    }

    /// Writes to a volume the changes that a killed mount has left in its ring, and closes it.
    /// Whoever then opens it for writing need not know of the ring.
    pub(crate) fn take_ring(path: &Path) -> Result<()> {
        match Kept::find(path)?.is_some_and(|kept| kept.memory.holds_records()) {
            true => Session::open(path, Access::Write)?.close(),
            false => Ok(()),
        }
    }

    /// Writes everything and releases the volume.
    pub(crate) fn close(self) -> Result<()> {
        let path = self.path;
        self.volume.close().map_err(|error| Failure::volume(path.display(), &error))?;
        self.kept.into_iter().for_each(Kept::remove);
        Ok(())
    }

    /// Opens a volume, works, and closes it, also after a failure. The failure of the work comes
    /// first.
    pub(crate) fn with<T>(
        path: &Path,
        access: Access,
        work: impl FnOnce(&Session) -> Result<T>,
    ) -> Result<T> {
        let session = Session::open(path, access)?;
        let result = work(&session);
        let closed = session.close();
        let done = result?;
        closed.map(|()| done)
    }

    /// Returns the name of a path in it, for messages.
    pub(crate) fn label(&self, path: &[u8]) -> String {
        location::label(&self.path, path)
    }

    /// Resolves a path.
    pub(crate) fn find(&self, path: &[u8], follow: bool) -> shoal::raw::Result<Entry> {
        let Split { name, slash, .. } = split_last(path);
        let entry = self.volume.namespace().resolve(&self.who, Ino::ROOT, path, follow || slash)?;
        if slash && !name.is_empty() && entry.kind != FileKind::Directory {
            return Err(Code::NotDirectory.into());
        }
        Ok(entry)
    }

    /// Finds the directory that holds, or will hold, a path's last component.
    pub(crate) fn slot(&self, path: &[u8]) -> Result<Slot, Reason> {
        let split = split_last(path);
        match split.name {
            b"" => Err(Reason::Text("is the top directory of the volume".into())),
            b"." | b".." => Err(Reason::Text("the path must end in a name, not in a dot".into())),
            name => {
                let parent =
                    self.volume.namespace().resolve(&self.who, Ino::ROOT, split.parent, true)?;
                if parent.kind != FileKind::Directory {
                    return Err(Error::Code(Code::NotDirectory).into());
                }
                Ok(Slot { dir: parent.ino, name: name.to_vec() })
            }
        }
    }

    /// Looks a name up; `None` when there is none.
    pub(crate) fn lookup(&self, dir: Ino, name: &[u8]) -> shoal::raw::Result<Option<Entry>> {
        match self.volume.namespace().lookup(&self.who, dir, name) {
            Ok(entry) => Ok(Some(entry)),
            Err(error) if error.is(Code::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Fetches the next entries of a directory, without `.` and `..`, those of a very large one in
    /// the order of its inodes. An inode that cannot be read hides no name.
    pub(crate) fn list(&self, dir: Ino, cursor: &mut Cursor) -> shoal::raw::Result<Vec<Found>> {
        let bulk = self.volume.bulk();
        if *cursor == Cursor::After(0) && bulk.prefers_inode_order(dir)? {
            *cursor = Cursor::Inode(Ino::new(dir.root(), 0));
        }
        if let Cursor::Inode(after) = *cursor {
            match bulk.children(&Caller::root(), dir, after, BATCH) {
                Ok((children, next)) => {
                    *cursor = next.map_or(Cursor::End, Cursor::Inode);
                    let found = |Child { name, attr }| Found::with_attributes(name, attr);
                    return Ok(children.into_iter().map(found).collect());
                }
                Err(error) if error.code() == Code::Io => *cursor = Cursor::Above(0, after),
                Err(error) => return Err(error),
            }
        }
        // Subvolumes come first in the order of inodes.
        let above = match *cursor {
            Cursor::Above(_, after) if after.index() > 0 => Some(after),
            _ => None,
        };
        let is_left = |ino: Ino| above.is_none_or(|above| ino.root() == dir.root() && ino > above);
        batch(cursor, |from, take| {
            self.volume.directories().readdirplus(dir, from, &mut |entry, attr| {
                take(&entry, is_left(entry.ino), &mut || match attr.as_ref() {
                    Ok(attr) => Found::with_attributes(entry.name.into(), **attr),
                    Err(error) => Found::by_name(&entry, Some(error.clone())),
                })
            })
        })
    }

    /// The same without attributes, which need not be read then.
    pub(crate) fn list_names(
        &self,
        dir: Ino,
        cursor: &mut Cursor,
    ) -> shoal::raw::Result<Vec<Found>> {
        batch(cursor, |from, take| {
            self.volume.directories().readdir(dir, from, &mut |entry| {
                take(&entry, true, &mut || Found::by_name(&entry, None))
            })
        })
    }

    /// Returns the target of a symlink, `None` for every other type.
    pub(crate) fn target(&self, attr: &Attr) -> shoal::raw::Result<Option<Vec<u8>>> {
        match attr.kind {
            FileKind::Symlink => self.volume.namespace().readlink(attr.ino).map(Some),
            _ => Ok(None),
        }
    }
}

/// Takes an entry, made only if it is wanted; returns whether there is room for more.
type Take<'t> = &'t mut dyn FnMut(&DirEntry<'_>, bool, &mut dyn FnMut() -> Found) -> bool;

/// Collects a batch of the wanted entries that `list` delivers after a cookie, without `.` and
/// `..`.
fn batch(
    cursor: &mut Cursor,
    list: impl Fn(u64, Take<'_>) -> shoal::raw::Result<()>,
) -> shoal::raw::Result<Vec<Found>> {
    let mut entries = Vec::new();
    while let Cursor::After(from) | Cursor::Above(from, _) = *cursor {
        let begun = *cursor;
        let mut last = from;
        let mut taken = 0;
        *cursor = Cursor::End;
        list(from, &mut |entry, is_wanted, make| {
            if taken == BATCH {
                *cursor = match begun {
                    Cursor::Above(_, above) => Cursor::Above(last, above),
                    _ => Cursor::After(last),
                };
                return false;
            }
            taken += 1;
            last = entry.cookie;
            if is_wanted && entry.name != b"." && entry.name != b".." {
                entries.push(make());
            }
            true
        })?;
        if !entries.is_empty() {
            break;
        }
    }
    Ok(entries)
}

/// Warns if the file of a volume is open to others: they could read, or change, the files of all
/// its users. Devices have permissions of their own.
pub(crate) fn warn_if_readable(volume: &Path, warn: fn(&str)) {
    let Ok(found) = volume.metadata() else { return };
    let mode = found.permissions().mode() & 0o7777;
    if found.is_file() && mode & 0o066 != 0 {
        let path = volume.display();
        warn(&format!(
            "{path}: its mode {mode:o} lets others at all files in the volume (chmod 600 {path})"
        ));
    }
}

/// Returns the user that runs the command, as the owner of new files.
fn caller() -> Caller {
    let groups = rustix::process::getgroups().unwrap_or_default();
    Caller {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: groups.iter().map(|gid| gid.as_raw()).collect::<Arc<[u32]>>(),
        umask: umask(),
        checked: true,
    }
}

/// Returns the process's umask. It can only be read by setting it; no other thread makes files
/// meanwhile.
pub(crate) fn umask() -> u32 {
    let umask = rustix::process::umask(Mode::empty());
    rustix::process::umask(umask);
    umask.as_raw_mode()
}

/// The volumes that a command has opened, each once however many arguments name it.
pub(crate) struct Sessions {
    access: Access,
    open: Vec<(PathBuf, Rc<Session>)>,
}

impl Sessions {
    /// Returns an empty set.
    pub(crate) fn new(access: Access) -> Sessions {
        Sessions { access, open: Vec::new() }
    }

    /// Returns the session for a location's volume, opened at the first time.
    pub(crate) fn get(&mut self, location: &Location) -> Result<Rc<Session>> {
        self.get_for(location, self.access)
    }

    /// Returns the session like [`Sessions::get`], opened for `access`. A command that changes a
    /// volume is not ended by the first signal, but asked to stop ([`interrupt`]).
    pub(crate) fn get_for(&mut self, location: &Location, access: Access) -> Result<Rc<Session>> {
        // A path that cannot be resolved is left as it is, and opening it reports why.
        let real = location.volume.canonicalize().unwrap_or_else(|_| location.volume.clone());
        if let Some((_, session)) = self.open.iter().find(|(path, _)| *path == real) {
            return Ok(Rc::clone(session));
        }
        let session = Rc::new(Session::open(&location.volume, access)?);
        if access == Access::Write {
            interrupt::defer();
        }
        self.open.push((real, Rc::clone(&session)));
        Ok(session)
    }

    /// Closes them all, also after a failure: earlier changes must stay.
    pub(crate) fn close(self) -> Result<()> {
        let mut result = Ok(());
        for (_, session) in self.open {
            if let Ok(session) = Rc::try_unwrap(session) {
                result = result.and(session.close());
            }
        }
        result
    }

    /// Runs a command's work and closes the volumes after it. The failure of the work comes first;
    /// but an interrupted command promises that its changes are on disk.
    pub(crate) fn run(
        access: Access,
        work: impl FnOnce(&mut Sessions) -> Result<u8>,
    ) -> Result<u8> {
        let mut sessions = Sessions::new(access);
        let result = work(&mut sessions);
        let closed = sessions.close();
        if interrupt::pending().is_some() && closed.is_err() {
            return closed.map(|()| failure::UNUSABLE);
        }
        let status = result?;
        closed.map(|()| status)
    }
}
