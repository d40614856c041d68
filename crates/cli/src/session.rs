//! Open volumes for the commands that work on one directly, without a mount.
//!
//! Whoever may read and write the volume's file may do everything with what is in it, so calls are
//! made as already checked; they still carry the user's ids, which become the owner of new files.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use rustix::fs::Mode;
use shoal::{Attr, Caller, Entry, FileKind, Ino, OpenOptions, Volume};

use crate::failure::{self, Failure, Reason, Result};
use crate::interrupt;
use crate::location::{self, Location, Split, split_last};
use crate::progress::eprint_line;

/// Entries fetched with one call while a directory is listed. Bounds the memory for directories of
/// any size, and is large enough that the call's own cost does not show.
const BATCH: usize = 1024;

/// What a command wants to do with a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Look only: nothing is written.
    Read,
    /// Change it.
    Write,
}

/// An open volume.
pub struct Session {
    /// The volume.
    pub volume: Volume,
    /// On whose behalf calls are made.
    pub who: Caller,
    /// Path of the volume, as the user wrote it.
    pub path: PathBuf,
}

/// One directory entry with its attributes.
pub struct Listed {
    /// Name.
    pub name: Box<[u8]>,
    /// Attributes.
    pub attr: Attr,
}

/// Position in a directory listing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cursor {
    /// Go on after this cookie (0: at the start).
    After(u64),
    /// Everything has been listed.
    End,
}

/// A place in a volume for an entry to be made, changed or removed.
pub struct Slot {
    /// The directory.
    pub dir: Ino,
    /// The name in it.
    pub name: Vec<u8>,
}

impl Session {
    /// Opens a volume.
    pub fn open(path: &Path, access: Access) -> Result<Session> {
        let read_only = access == Access::Read;
        // A look needs no journal writer, checkpoints or cleaner.
        let options = OpenOptions {
            read_only,
            background: !read_only,
            notice: eprint_line,
            ..OpenOptions::default()
        };
        let volume = Volume::open(path, &options)
            .map_err(|error| Failure::volume(path.display(), &error))?;
        Ok(Session { volume, who: caller(), path: path.to_owned() })
    }

    /// Writes everything and lets the volume go.
    pub fn close(self) -> Result<()> {
        let path = self.path;
        self.volume.close().map_err(|error| Failure::volume(path.display(), &error))
    }

    /// How messages name a path in it.
    pub fn label(&self, path: &[u8]) -> String {
        location::label(&self.path, path)
    }

    /// Finds what a path means.
    pub fn find(&self, path: &[u8], follow: bool) -> shoal::Result<Entry> {
        let Split { name, slash, .. } = split_last(path);
        let entry = self.volume.resolve(&self.who, Ino::ROOT, path, follow || slash)?;
        if slash && !name.is_empty() && entry.kind != FileKind::Directory {
            return Err(shoal::Code::NotDirectory.into());
        }
        Ok(entry)
    }

    /// Finds the directory that holds, or shall hold, a path's last component.
    pub fn slot(&self, path: &[u8]) -> Result<Slot, Reason> {
        let split = split_last(path);
        match split.name {
            b"" => Err(Reason::Text("is the top directory of the volume".into())),
            b"." | b".." => Err(Reason::Text("the path must end in a name, not in a dot".into())),
            name => {
                let parent = self.volume.resolve(&self.who, Ino::ROOT, split.parent, true)?;
                if parent.kind != FileKind::Directory {
                    return Err(shoal::Error::Code(shoal::Code::NotDirectory).into());
                }
                Ok(Slot { dir: parent.ino, name: name.to_vec() })
            }
        }
    }

    /// Looks a name up; `None` when there is none.
    pub fn lookup(&self, dir: Ino, name: &[u8]) -> shoal::Result<Option<Entry>> {
        match self.volume.lookup(&self.who, dir, name) {
            Ok(entry) => Ok(Some(entry)),
            Err(error) if error.is(shoal::Code::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Fetches the next entries of a directory, without `.` and `..`.
    pub fn list(&self, dir: Ino, cursor: &mut Cursor) -> shoal::Result<Vec<Listed>> {
        let mut entries = Vec::new();
        while let Cursor::After(from) = *cursor {
            let mut last = from;
            let mut taken = 0;
            *cursor = Cursor::End;
            self.volume.readdirplus(dir, from, &mut |entry, attr| {
                if taken == BATCH {
                    *cursor = Cursor::After(last);
                    return false;
                }
                taken += 1;
                last = entry.cookie;
                if entry.name != b"." && entry.name != b".." {
                    entries.push(Listed { name: entry.name.into(), attr: *attr });
                }
                true
            })?;
            if !entries.is_empty() {
                break;
            }
        }
        Ok(entries)
    }

    /// Target of a symlink, `None` for every other type.
    pub fn target(&self, attr: &Attr) -> shoal::Result<Option<Vec<u8>>> {
        match attr.kind {
            FileKind::Symlink => self.volume.readlink(attr.ino).map(Some),
            _ => Ok(None),
        }
    }
}

/// Warns if the file of a volume is open to others: they could read, or change, the files of all
/// its users. Devices have their rules elsewhere.
pub fn warn_if_readable(volume: &Path, warn: fn(&str)) {
    let Ok(found) = volume.metadata() else { return };
    let mode = found.permissions().mode() & 0o7777;
    if found.is_file() && mode & 0o066 != 0 {
        let path = volume.display();
        warn(&format!(
            "{path}: its mode {mode:o} lets others at all files in the volume (chmod 600 {path})"
        ));
    }
}

/// The user that runs the command, as the owner of what it makes.
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

/// The process's umask. It can only be read by setting it; no other thread makes files meanwhile.
fn umask() -> u32 {
    let umask = rustix::process::umask(Mode::empty());
    rustix::process::umask(umask);
    umask.as_raw_mode()
}

/// The volumes that a command has opened, each once however many arguments name it.
pub struct Sessions {
    access: Access,
    open: Vec<(PathBuf, Rc<Session>)>,
}

impl Sessions {
    /// None yet.
    pub fn new(access: Access) -> Sessions {
        Sessions { access, open: Vec::new() }
    }

    /// The session for a location's volume, opened if it is the first time.
    pub fn get(&mut self, location: &Location) -> Result<Rc<Session>> {
        self.get_for(location, self.access)
    }

    /// The same; `access` says what for if it has to be opened. A command that changes a volume is
    /// not ended by the first signal, but asked to stop ([`interrupt`]).
    pub fn get_for(&mut self, location: &Location, access: Access) -> Result<Rc<Session>> {
        // A path that cannot be resolved is left to the opening, which says why.
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

    /// Closes them all, also after a failure: what was done so far shall stay.
    pub fn close(self) -> Result<()> {
        let mut result = Ok(());
        for (_, session) in self.open {
            if let Ok(session) = Rc::try_unwrap(session) {
                result = result.and(session.close());
            }
        }
        result
    }

    /// Runs a command's work and closes the volumes behind it. The work's own failure comes first;
    /// but an interrupted command promises that what it did is on disk.
    pub fn run(access: Access, work: impl FnOnce(&mut Sessions) -> Result<u8>) -> Result<u8> {
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
