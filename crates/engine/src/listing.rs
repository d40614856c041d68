//! Listing directories, with and without attributes.

use crate::directories::{Directories, decoded};
use crate::types::{Attr, Cookies, DirEntry, FileKind, Listing, Stat};

use shoal_base::cold::Section;
use shoal_base::timing::Call;
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::dirent::{Dirent, FIRST_COOKIE};
use shoal_format::node::Key;
use shoal_tree::Batch;
use std::ops::RangeInclusive;

/// Entries of a batch: of the first one, and at most. The inode blocks of that many are read
/// together; in the worst case each entry needs a different one.
const BATCH: RangeInclusive<usize> = 64..=1024;

/// Looks at an inode that is of another type than its entry says, before it counts as damaged.
const AGREE_MAX: u32 = 64;

/// Returns the wanted entries of a batch up to the first broken one, and the error of that one.
fn entries_of(
    dir: Ino,
    batch: &Batch,
    mut wants: impl FnMut(&DirEntry<'_>) -> bool,
) -> (Vec<DirEntry<'_>>, Result<()>) {
    let mut entries = Vec::with_capacity(batch.len());
    for (key, raw) in batch.iter() {
        match decoded(dir, key, raw) {
            Ok(entry) if wants(&entry) => entries.push(entry),
            Ok(_) => {}
            Err(e) => return (entries, Err(e)),
        }
    }
    (entries, Ok(()))
}

impl Directories<'_> {
    /// Lists entries after `cookie` (0: from the start), "." and ".." first, until `each` returns
    /// `false`; that entry counts as not delivered.
    pub fn readdir(
        self,
        dir: Ino,
        cookie: u64,
        each: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        self.0.measured(Call::Readdir, || self.each_entry(dir, cookie, each))
    }

    fn each_entry(
        self,
        dir: Ino,
        cookie: u64,
        each: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        for entry in self.dots(dir, cookie)? {
            if !each(entry) {
                return Ok(());
            }
        }
        self.scan(dir, Cookies::ALL.after(cookie), &mut |batch| {
            for (key, raw) in batch.iter() {
                if !each(decoded(dir, key, raw)?) {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }

    /// As [`Directories::readdir`], with the attributes of each entry, or the error of reading
    /// them: a damaged inode block hides no name. The attributes of many entries are read together
    /// if they are not in memory.
    ///
    /// # Errors
    /// Those of reading the directory. Entries before were delivered.
    pub fn readdirplus(
        self,
        dir: Ino,
        cookie: u64,
        each: &mut dyn FnMut(DirEntry<'_>, Result<&Attr>) -> bool,
    ) -> Result<()> {
        self.0.measured(Call::Readdir, || self.each_with_attr(dir, cookie, each))
    }

    fn each_with_attr(
        self,
        dir: Ino,
        cookie: u64,
        each: &mut dyn FnMut(DirEntry<'_>, Result<&Attr>) -> bool,
    ) -> Result<()> {
        for entry in self.dots(dir, cookie)? {
            if !self.serve_one(entry, each) {
                return Ok(());
            }
        }
        self.scan(dir, Cookies::ALL.after(cookie), &mut |batch| {
            let (entries, all) = entries_of(dir, batch, |_| true);
            let goes_on = self.with_attributes(dir, &entries, |entry, attr| each(*entry, attr))?;
            all.map(|()| goes_on)
        })
    }

    /// Lists the entries of a part of a directory that pass a filter, without "." and "..", with
    /// the wanted attributes or the error of reading them, until `each` returns `false`; that entry
    /// counts as not delivered.
    ///
    /// An entry whose attributes cannot be read passes the tests of a filter that need them: nobody
    /// knows that it does not.
    ///
    /// # Errors
    /// `ENOTDIR`, `ESTALE`; those of reading the directory. Entries before were delivered.
    pub fn list(
        self,
        dir: Ino,
        listing: &Listing,
        each: &mut dyn FnMut(DirEntry<'_>, Result<Stat>) -> bool,
    ) -> Result<()> {
        self.0.measured(Call::Readdir, || self.each_listed(dir, listing, each))
    }

    fn each_listed(
        self,
        dir: Ino,
        listing: &Listing,
        each: &mut dyn FnMut(DirEntry<'_>, Result<Stat>) -> bool,
    ) -> Result<()> {
        let Listing { cookies, filter, .. } = listing;
        self.parent_of(dir)?;
        let names_only = listing.is_in_entries();
        self.scan(dir, *cookies, &mut |batch| {
            let (entries, all) = entries_of(dir, batch, |entry| filter.passes_entry(entry));
            let goes_on = if names_only {
                entries.iter().all(|entry| each(*entry, Ok(Stat::of_entry(entry.ino, entry.kind))))
            } else {
                self.with_attributes(dir, &entries, |entry, attr| match attr {
                    Ok(attr) if !filter.passes_inode(attr) => true,
                    attr => each(*entry, attr.map(|attr| Stat::from(*attr))),
                })?
            };
            all.map(|()| goes_on)
        })
    }

    /// Calls `each` with some entries of a directory and their attributes, or the error of reading
    /// them, until it returns `false`. Leaves out entries that have been removed since they were
    /// read.
    ///
    /// The attributes are looked up before, in the order of the inode numbers, which is that of the
    /// memory and of the device; the blocks that are missing are read ahead together.
    fn with_attributes(
        self,
        dir: Ino,
        entries: &[DirEntry<'_>],
        mut each: impl FnMut(&DirEntry<'_>, Result<&Attr>) -> bool,
    ) -> Result<bool> {
        let found = self.0.attrs_in_memory(dir.root(), entries.iter().map(|entry| entry.ino))?;
        if found.attrs.len() < entries.len() {
            let missing = entries.iter().enumerate().filter(|(at, _)| found.get(*at).is_none());
            self.0.store.read_ahead().inodes(missing.map(|(_, entry)| entry.ino));
        }
        for (at, entry) in entries.iter().enumerate() {
            let read;
            let attr = match found.get(at) {
                Some(attr) => Ok(attr),
                None => {
                    read = self.0.attr(entry.ino);
                    read.as_ref().map_err(Error::clone)
                }
            };
            let goes_on = match attr {
                Err(Error::Code(Code::Stale)) => true,
                Ok(attr) if attr.kind != entry.kind => match self.looked_at_again(dir, entry)? {
                    Some(attr) => each(entry, attr.as_ref().map_err(Error::clone)),
                    None => true,
                },
                attr => each(entry, attr),
            };
            if !goes_on {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the attributes of an entry whose inode was of another type than the entry says, or
    /// the error of reading them; `None` if it has been removed since it was read.
    ///
    /// The inode may have been freed, used for another file, and be that of the entry again by now:
    /// so it is looked at until both agree. If they never do, the volume is damaged.
    #[cold]
    fn looked_at_again(self, dir: Ino, entry: &DirEntry<'_>) -> Result<Option<Result<Attr>>> {
        let mut last = None;
        for _ in 0..AGREE_MAX {
            if self.is_gone(dir, entry)? {
                return Ok(None);
            }
            last = match self.0.attr(entry.ino) {
                Err(Error::Code(Code::Stale)) => None,
                Ok(attr) if attr.kind != entry.kind => Some(Ok(attr)),
                attr => return Ok(Some(attr)),
            };
        }
        Ok(last)
    }

    /// Returns whether an entry has been removed, or replaced, since it was read. Its inode number
    /// may be that of another file by now.
    #[cold]
    fn is_gone(self, dir: Ino, entry: &DirEntry<'_>) -> Result<bool> {
        let key = Key::of(dir, entry.cookie);
        let child = |raw: &[u8]| Dirent::decode(dir.root(), raw).map(|entry| entry.child);
        let now = self.0.root(dir)?.dirents.get(key, child)?;
        Ok(now.flatten() != Some(entry.ino))
    }

    /// Calls `each` with an entry, unless it has been removed since it was read.
    fn serve_one(
        self,
        entry: DirEntry<'_>,
        each: &mut dyn FnMut(DirEntry<'_>, Result<&Attr>) -> bool,
    ) -> bool {
        match self.0.attr(entry.ino) {
            Err(Error::Code(Code::Stale)) => true,
            attr => each(entry, attr.as_ref().map_err(Error::clone)),
        }
    }

    /// Returns "." and "..", as far as they are after the cookie.
    fn dots(self, dir: Ino, cookie: u64) -> Result<impl Iterator<Item = DirEntry<'static>>> {
        let (parent, kind) = (self.parent_of(dir)?, FileKind::Directory);
        let dots = [(&b"."[..], dir, 1), (&b".."[..], parent, 2)];
        let after = dots.into_iter().filter(move |(.., at)| cookie < *at);
        Ok(after.map(move |(name, ino, cookie)| DirEntry { name, ino, kind, cookie }))
    }

    /// Calls `serve` with the entries of a range, some at a time, until it returns `false`.
    /// Their number doubles each time, so that a caller who stops early has not paid for many.
    /// The leaves that follow are read ahead, except at the beginning of a directory, because
    /// many callers want only its first entries.
    fn scan(
        self,
        dir: Ino,
        cookies: Cookies,
        serve: &mut dyn FnMut(&Batch) -> Result<bool>,
    ) -> Result<()> {
        let dirents = &self.0.root(dir)?.dirents;
        let end = Key::of(dir, cookies.last()).next();
        let mut next = Some(Key::of(dir, cookies.begin()).next()).filter(|from| *from < end);
        let (mut batch, mut most) = (Batch::default(), *BATCH.start());
        let mut goes_on = cookies.begin() >= FIRST_COOKIE;
        while let Some(from) = next {
            next = self.0.reading_first(|| {
                let inode = self.0.inode(dir)?;
                // Under the lock, so that a call that changes several names shows all or none. As
                // in a lookup, nothing is read from the device under it.
                let _section = Section::begin();
                let _slot = inode.read();
                dirents.scan(from, end, most, &mut batch)
            })?;
            if let Some(next) = next.filter(|_| std::mem::replace(&mut goes_on, true)) {
                self.0.store.read_ahead().leaves(dir.root(), next..end);
            }
            if !serve(&batch)? {
                return Ok(());
            }
            most = (2 * most).min(*BATCH.end());
        }
        Ok(())
    }
}
