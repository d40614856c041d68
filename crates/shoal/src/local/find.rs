//! Paths, and inodes that stay while a call needs them.

use super::Local;
use shoal_engine::{Attr, Caller, Code, FileKind, Ino, Result};
use shoal_session::{Node, Opened};

/// Times that a call is begun again.
const ATTEMPTS: usize = 64;

/// Runs a call again when the file that it found has been removed or replaced meanwhile. Returns
/// `ESTALE` when that happens [`ATTEMPTS`] times in a row.
#[inline]
pub(super) fn unless_stale<T>(mut call: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 1..ATTEMPTS {
        match call() {
            Err(e) if e.is(Code::Stale) => {}
            done => return done,
        }
    }
    call()
}

/// A reference to an inode, which lives on until it is dropped.
pub(super) struct Hold<'l> {
    local: &'l Local,
    ino: Ino,
}

impl Drop for Hold<'_> {
    #[inline]
    fn drop(&mut self) {
        self.local.let_go(self.ino);
    }
}

impl Hold<'_> {
    /// Keeps the reference, which [`shoal_session::Calls::close`] gives back.
    #[inline]
    pub(super) fn opened(self, attr: Attr) -> Opened {
        let node = Node(self.ino.0);
        std::mem::forget(self);
        Opened { node, attr }
    }
}

impl Local {
    /// Holds an inode that has just been made, and that no other call can have removed and made
    /// again without its generation. The top directory cannot be removed, and is not counted.
    #[inline]
    pub(super) fn hold_new(&self, ino: Ino) -> Result<Hold<'_>> {
        if self.counts(ino) {
            self.volume.references().hold(ino, 1)?;
        }
        Ok(Hold { local: self, ino })
    }

    /// Gives a reference back.
    #[inline]
    pub(super) fn let_go(&self, ino: Ino) {
        if self.counts(ino) {
            self.volume.references().release(ino, 1);
        }
    }

    /// Returns whether references to an inode are counted.
    #[inline]
    fn counts(&self, ino: Ino) -> bool {
        ino != Ino::ROOT && !self.uncounted
    }

    /// Holds the inode that has the attributes `attr`, which are read once more; `ESTALE` if it has
    /// been removed since.
    ///
    /// Here and below, attributes are returned by a reference: an open would copy them from
    /// function to function, which is a tenth of its time.
    #[inline]
    pub(super) fn hold(&self, attr: &mut Attr) -> Result<Hold<'_>> {
        let (held, generation) = (self.hold_new(attr.ino)?, attr.generation);
        // The number may have been used again before it was held.
        *attr = self.volume.attributes().getattr(attr.ino)?;
        if attr.generation == generation { Ok(held) } else { Err(Code::Stale.into()) }
    }

    /// Holds an inode, and keeps the reference.
    pub(super) fn hold_open(&self, mut attr: Attr) -> Result<Opened> {
        self.hold(&mut attr).map(|held| held.opened(attr))
    }

    /// The directory and the name that a path ends in.
    #[inline]
    pub(super) fn place<'p>(
        &self,
        who: &Caller,
        dir: Ino,
        path: &'p [u8],
    ) -> Result<(Ino, &'p [u8])> {
        match path.contains(&b'/') {
            false => Ok((dir, path)),
            true => self.volume.namespace().parent_beneath(who, dir, path),
        }
    }

    /// As [`Local::place`], for a call that makes anything but a directory: it fails if the path
    /// ends in a slash.
    #[inline]
    pub(super) fn new_place<'p>(
        &self,
        who: &Caller,
        dir: Ino,
        path: &'p [u8],
    ) -> Result<(Ino, &'p [u8])> {
        let (dir, name) = self.place(who, dir, path)?;
        if path.ends_with(b"/") {
            self.volume.namespace().lookup(who, dir, name)?;
            return Err(Code::Exists.into());
        }
        Ok((dir, name))
    }

    /// The kind of the file at a path that ends in a slash, without following a symlink; `None` if
    /// it does not end so.
    pub(super) fn kind_before_slash(
        &self,
        who: &Caller,
        path: &[u8],
        (dir, name): (Ino, &[u8]),
    ) -> Result<Option<FileKind>> {
        // The call itself refuses "." and "..".
        if !path.ends_with(b"/") || matches!(name, b"." | b"..") {
            return Ok(None);
        }
        self.volume.namespace().lookup(who, dir, name).map(|found| Some(found.kind))
    }

    /// Finds the inode that a path leads to.
    #[inline]
    pub(super) fn find_at(
        &self,
        who: &Caller,
        dir: Ino,
        path: &[u8],
        follow: bool,
    ) -> Result<Attr> {
        let plain = !path.contains(&b'/') && !matches!(path, b"" | b"." | b"..");
        if plain {
            let entry = self.volume.namespace().lookup(who, dir, path)?;
            if !follow || entry.kind != FileKind::Symlink {
                return Ok(entry);
            }
        }
        self.volume.namespace().resolve_beneath(who, dir, path, follow)
    }

    /// Runs a call on the inode that a path leads to; the empty path is the node itself, also of a
    /// file. The inode is held during the call, so that no other file gets its number; if another
    /// has taken its path, the call is made on that one.
    pub(super) fn on_found<T>(
        &self,
        who: &Caller,
        dir: Ino,
        path: &[u8],
        follow: bool,
        call: impl Fn(&Attr) -> Result<T>,
    ) -> Result<T> {
        if path.is_empty() {
            return call(&self.volume.attributes().getattr(dir)?);
        }
        unless_stale(|| {
            let mut attr = self.find_at(who, dir, path, follow)?;
            let _held = self.hold(&mut attr)?;
            call(&attr)
        })
    }

    /// Returns the attributes of a name before a call changes that, if there is a listener. It is
    /// told that the name will change.
    #[inline]
    pub(super) fn before(&self, dir: Ino, name: &[u8]) -> Result<Option<Attr>> {
        let Some(told) = &self.told else { return Ok(None) };
        told.before_name(dir, name)?;
        Ok(self.volume.namespace().lookup(&Caller::root(), dir, name).ok())
    }

    /// Tells the listener that a directory has one more name, and so other attributes.
    #[inline]
    pub(super) fn tell_new(&self, dir: Ino, name: &[u8]) {
        self.tell_gone(dir, name, None);
    }

    /// Tells the listener that a name has changed, and the attributes of its directory and of the
    /// inode that had it.
    #[inline]
    pub(super) fn tell_gone(&self, dir: Ino, name: &[u8], before: Option<Ino>) {
        self.tell(|told| {
            told.name(dir, name);
            told.attributes(dir);
            before.into_iter().for_each(|ino| told.attributes(ino));
        });
    }

    /// Tells the listener that a tree has been removed.
    pub(super) fn tell_tree(&self, dir: Ino, name: &[u8], top: Option<&Attr>) {
        self.tell(|told| {
            if let Some(top) = top {
                told.tree(dir, name, top);
            }
            told.name(dir, name);
            told.attributes(dir);
        });
    }
}
