//! Opening files and directories; whole files.

use super::Local;
use super::find::{Hold, unless_stale};
use shoal_engine::{
    Attr, Caller, Code, Error, FileKind, Generation, Handle, Ino, Result, SetAttr, Time, Token,
};
use shoal_session::{AT_END, How, Opened};

/// Permission to search a directory.
const SEARCH: u32 = 1;

/// The error of a call that wants a regular file.
fn not_a_file(kind: FileKind) -> Error {
    match kind {
        FileKind::Directory => Code::IsDirectory.into(),
        FileKind::Symlink => Code::Loop.into(),
        _ => Code::NoDevice.into(),
    }
}

fn creates(how: &How) -> bool {
    how.create || how.create_new
}

fn writes(how: &How) -> bool {
    how.write || how.append
}

/// Fails for options that contradict each other.
fn check(how: &How) -> Result<()> {
    let wants_write = creates(how) || how.truncate;
    match (how.read || writes(how)) && (writes(how) || !wants_write) {
        // A new file is empty.
        true if how.append && how.truncate && !how.create_new => Err(Code::Invalid.into()),
        true => Ok(()),
        false => Err(Code::Invalid.into()),
    }
}

/// Room for the attributes of a file that is opened.
#[inline]
pub(super) fn nothing() -> Attr {
    let (kind, time) = (FileKind::Regular, Time::default());
    Attr {
        ino: Ino(0),
        generation: Generation(0),
        kind,
        mode: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 0,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
        btime: time,
        version: 0,
    }
}

impl Local {
    pub(super) fn directory(&self, who: &Caller, dir: Ino, path: &[u8]) -> Result<Opened> {
        self.on_found(who, dir, path, true, |attr| match attr.kind {
            FileKind::Directory => self.hold_open(*attr),
            _ => Err(Code::NotDirectory.into()),
        })
    }

    /// Opens or makes a file, and returns its attributes in `attr`.
    pub(super) fn file(
        &self,
        who: &Caller,
        dir: Ino,
        path: &[u8],
        how: &How,
        attr: &mut Attr,
    ) -> Result<Hold<'_>> {
        check(how)?;
        if creates(how) && path.ends_with(b"/") {
            self.place(who, dir, path)?;
            return Err(Code::IsDirectory.into());
        }
        unless_stale(|| {
            if how.create_new {
                return self.make(who, dir, path, how, attr);
            }
            match self.find_at(who, dir, path, true) {
                Ok(found) => {
                    *attr = found;
                    self.found(who, how, attr)
                }
                Err(e) if how.create && e.is(Code::NotFound) => {
                    match self.make(who, dir, path, how, attr) {
                        Err(e) if e.is(Code::Exists) => self.make_target(who, dir, path, how, attr),
                        made => made,
                    }
                }
                Err(e) => Err(e),
            }
        })
    }

    #[inline]
    fn make(
        &self,
        who: &Caller,
        dir: Ino,
        path: &[u8],
        how: &How,
        attr: &mut Attr,
    ) -> Result<Hold<'_>> {
        let (above, name) = self.place(who, dir, path)?;
        *attr = self.volume.namespace().create(who, above, name, how.mode)?;
        self.tell_new(above, name);
        self.hold_new(attr.ino)
    }

    /// Creates the file that a dangling symlink leads to.
    #[cold]
    fn make_target(
        &self,
        who: &Caller,
        dir: Ino,
        path: &[u8],
        how: &How,
        attr: &mut Attr,
    ) -> Result<Hold<'_>> {
        let make = || {
            let (above, name) = self.volume.namespace().free_beneath(who, dir, path)?;
            let made = self.volume.namespace().create(who, above, &name, how.mode)?;
            self.tell_new(above, &name);
            Ok(made)
        };
        match make() {
            Ok(made) => {
                *attr = made;
                self.hold_new(made.ino)
            }
            // Another call has made it since: it is to be found now.
            Err(e) if Error::is(&e, Code::Exists) => Err(Code::Stale.into()),
            Err(e) => Err(e),
        }
    }

    #[inline]
    fn found(&self, who: &Caller, how: &How, attr: &mut Attr) -> Result<Hold<'_>> {
        if attr.kind != FileKind::Regular {
            return Err(not_a_file(attr.kind));
        }
        let mask = if how.read { 4 } else { 0 } | if writes(how) { 2 } else { 0 };
        self.volume.attributes().access(who, attr.ino, mask)?;
        let file = self.hold(attr)?;
        if how.truncate {
            self.cut(who, attr.ino, 0)?;
            (attr.size, attr.blocks) = (0, 0);
        }
        Ok(file)
    }

    /// Opens a file, or a directory that the caller may search: nothing else is known of the way to
    /// it.
    pub(super) fn of_handle(
        &self,
        who: &Caller,
        handle: Handle,
        how: Option<How>,
    ) -> Result<Opened> {
        if let Some(how) = &how {
            check(how)?;
        }
        let mut attr = self.volume.namespace().by_handle(handle)?;
        match how {
            Some(how) => self.found(who, &how, &mut attr).map(|held| held.opened(attr)),
            None if attr.kind != FileKind::Directory => Err(Code::NotDirectory.into()),
            None => {
                self.volume.attributes().access(who, attr.ino, SEARCH)?;
                self.hold_open(attr)
            }
        }
    }

    pub(super) fn of_token(&self, token: &Token) -> Result<Opened> {
        let mut attr = self.volume.tokens().redeem(token)?;
        let held = self.hold(&mut attr)?;
        // Before it was held, it may have been removed.
        if attr.nlink == 0 {
            return Err(Code::Stale.into());
        }
        Ok(held.opened(attr))
    }

    /// Sets the size of a file that is open for writing.
    pub(super) fn cut(&self, who: &Caller, ino: Ino, size: u64) -> Result<()> {
        let set = SetAttr { size: Some(size), by_handle: true, ..SetAttr::default() };
        self.before_data(ino)?;
        self.volume.attributes().setattr(who, ino, &set)?;
        self.tell(|told| told.data(ino, size, 0));
        Ok(())
    }

    #[inline]
    pub(super) fn write_some(
        &self,
        who: &Caller,
        ino: Ino,
        at: u64,
        bytes: &[u8],
    ) -> Result<(u64, u64)> {
        let unprivileged = who.uid != 0;
        self.before_data(ino)?;
        let (at, written) = match at {
            AT_END => self.volume.files().append(ino, bytes, unprivileged)?,
            _ => (at, self.volume.files().write(ino, at, bytes, unprivileged)?),
        };
        if written > 0 {
            self.tell(|told| told.data(ino, at, written as u64));
        }
        Ok((at, written as u64))
    }

    pub(super) fn write_whole(
        &self,
        who: &Caller,
        dir: Ino,
        path: &[u8],
        how: How,
        bytes: &[u8],
    ) -> Result<()> {
        // Nobody has looked whether the caller may write a file that is opened for reading.
        if !writes(&how) {
            return Err(Code::BadHandle.into());
        }
        let mut attr = nothing();
        let _held = self.file(who, dir, path, &how, &mut attr)?;
        let mut written = 0;
        while written < bytes.len() {
            let at = if how.append { AT_END } else { written as u64 };
            let (_, more) = self.write_some(who, attr.ino, at, &bytes[written..])?;
            written += more as usize;
        }
        Ok(())
    }

    pub(super) fn read_whole(
        &self,
        who: &Caller,
        dir: Ino,
        path: &[u8],
        into: &mut Vec<u8>,
    ) -> Result<Attr> {
        // Held, so that its number stays its own when it is replaced or removed meanwhile.
        let how = How { read: true, ..How::default() };
        let mut attr = nothing();
        let _held = self.file(who, dir, path, &how, &mut attr)?;
        self.before_data(attr.ino)?;
        let size = usize::try_from(attr.size).map_err(|_| Code::NoMemory)?;
        // A sparse file may be larger than any memory.
        into.try_reserve_exact(size).map_err(|_| Code::NoMemory)?;
        let begin = into.len();
        into.resize(begin + size, 0);
        let read = self.volume.files().read(attr.ino, 0, &mut into[begin..]);
        into.truncate(begin + *read.as_ref().unwrap_or(&0));
        read.map(|_| attr)
    }
}
