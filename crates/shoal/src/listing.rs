//! Listings with attributes: in parts, filtered, by several readers.

use crate::error::{Doing, Result};
use crate::path::to_path_buf;
use crate::raw::{self, Cookies, Fields, FileKind, Filter, Ino, Stat};
use crate::{Dir, Metadata};
use std::borrow::Cow;
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Permission to list a directory.
const LIST: u32 = 4;

/// A listing of a directory with attributes, from any position in it: `readdirplus` of the POSIX
/// extensions for high-performance computing.
///
/// Entries come with their attributes, which are read from the device together, many blocks at a
/// time. Entries that the [filter](Listing::filter) leaves out cost little. A directory can be
/// [split](Listing::split) among readers, and a listing can be continued later from a
/// [cookie](Listing::cookie).
///
/// ```
/// # use shoal::{Credentials, Volume};
/// use shoal::{Filter, Listing};
///
/// # fn main() -> shoal::Result<()> {
/// let volume = Volume::options().size(64 << 20).in_memory()?;
/// let inbox = volume.root(Credentials::root()).create_dir("inbox")?;
/// for n in 0..1000 {
///     inbox.write(format!("{n}.eml"), vec![0; n])?;
/// }
/// let large = Listing::of(&inbox)?.filter(Filter::new().name(b"*.eml").size(900..));
/// let found: usize = std::thread::scope(|scope| {
///     let readers: Vec<_> = (large.split(4).into_iter())
///         .map(|mut part| scope.spawn(move || part.next_batch(usize::MAX)))
///         .collect();
///     readers.into_iter().filter_map(|reader| reader.join().ok()?.ok()).map(|it| it.len()).sum()
/// });
/// assert_eq!(found, 100);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a listing does nothing until `next_batch` or `for_each`"]
pub struct Listing {
    dir: Dir,
    listing: raw::Listing,
}

impl Listing {
    /// Lists a directory from its start, without `.` and `..`, with all attributes.
    ///
    /// # Errors
    /// `PermissionDenied` when the user may not list it.
    pub fn of(dir: &Dir) -> Result<Listing> {
        let may = dir.calls().access(dir.who(), dir.node(), b"", LIST);
        dir.done(may, "list directory")?;
        let (cookies, want, filter) = (Cookies::ALL, Fields::ALL, Filter::new());
        Ok(Listing { dir: dir.clone(), listing: raw::Listing { cookies, want, filter } })
    }

    /// Sets the attributes to return. Type and inode number are in the directory's entry: if
    /// nothing else is wanted, no inode is read.
    pub fn want(mut self, fields: Fields) -> Listing {
        self.listing.want = fields;
        self
    }

    /// Sets the filter: other entries are left out.
    pub fn filter(mut self, filter: Filter) -> Listing {
        self.listing.filter = filter;
        self
    }

    /// Continues behind the entry with this [cookie](Listed::cookie), which need not exist any
    /// more. A cookie stays valid while the directory changes, and after a restart.
    pub fn after(mut self, cookie: u64) -> Listing {
        self.listing.cookies = self.listing.cookies.after(cookie);
        self
    }

    /// The cookie of the last entry that was returned.
    pub fn cookie(&self) -> u64 {
        self.listing.cookies.begin()
    }

    /// Divides the rest of the listing into parts with about as many entries each, in order. Every
    /// entry is in exactly one part.
    pub fn split(self, parts: usize) -> Vec<Listing> {
        let part = |cookies| {
            let listing = raw::Listing { cookies, ..self.listing.clone() };
            Listing { dir: self.dir.clone(), listing }
        };
        self.listing.cookies.split(parts).map(part).collect()
    }

    /// Returns the next entries, at most `at_most`; fewer only at the end.
    ///
    /// An entry that is added or removed during the listing may be missing; every other one is
    /// returned exactly once.
    ///
    /// # Errors `PermissionDenied` when attributes are wanted and the user may not search the
    /// directory, `InvalidData` when it is damaged. Entries read before the error are returned
    /// first; the next call returns the error.
    pub fn next_batch(&mut self, at_most: usize) -> Result<Vec<Listed<'static>>> {
        let mut batch = Vec::new();
        if at_most == 0 {
            return Ok(batch);
        }
        let listed = self.for_each(|entry| {
            batch.push(entry.into_owned());
            match batch.len() < at_most {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        match listed {
            Err(e) if batch.is_empty() => Err(e),
            _ => Ok(batch),
        }
    }

    /// Calls `each` with the entries, one after another, until it breaks; the listing then goes on
    /// behind that entry. For programs that do not keep the entries: nothing is copied.
    ///
    /// # Errors
    /// Those of [`Listing::next_batch`], at once.
    pub fn for_each(&mut self, mut each: impl FnMut(Listed<'_>) -> ControlFlow<()>) -> Result<()> {
        let Listing { dir, listing } = self;
        let (who, node, ino) = (dir.who(), dir.node(), dir.0.ino);
        let (mut cookie, mut ends) = (listing.cookies.begin(), true);
        let listed = dir.calls().list(who, node, b"", ino, listing, &mut |entry, stat| {
            cookie = entry.cookie;
            ends = each(Listed {
                name: entry.name.into(),
                kind: entry.kind,
                ino: entry.ino,
                cookie,
                stat,
            })
            .is_continue();
            ends
        });
        if ends && listed.is_ok() {
            cookie = listing.cookies.last();
        }
        listing.cookies = listing.cookies.after(cookie);
        dir.done(listed, "list directory")
    }
}

/// An entry of a [`Listing`].
#[derive(Clone)]
pub struct Listed<'a> {
    name: Cow<'a, [u8]>,
    kind: FileKind,
    ino: Ino,
    cookie: u64,
    stat: raw::Result<Stat>,
}

impl Listed<'_> {
    /// The name, without slashes.
    pub fn name(&self) -> &[u8] {
        &self.name
    }
    /// The name as the standard library has it.
    pub fn file_name(&self) -> &OsStr {
        OsStr::from_bytes(&self.name)
    }
    /// The name as a path.
    pub fn path(&self) -> PathBuf {
        to_path_buf(&self.name)
    }
    /// Inode number.
    pub fn ino(&self) -> Ino {
        self.ino
    }
    /// Type.
    pub fn kind(&self) -> FileKind {
        self.kind
    }
    /// The place behind this entry, for [`Listing::after`].
    pub fn cookie(&self) -> u64 {
        self.cookie
    }
    /// The wanted attributes, with a mask of the valid ones.
    ///
    /// # Errors `InvalidData` when the inode is damaged, those of the device. Other entries are not
    /// affected.
    pub fn stat(&self) -> Result<Stat> {
        self.stat.clone().doing("look at", &self.name)
    }
    /// The attributes, if all were wanted.
    ///
    /// # Errors
    /// Those of [`Listed::stat`].
    pub fn metadata(&self) -> Result<Option<Metadata>> {
        Ok(self.stat()?.attr().map(Metadata))
    }
    /// Returns the entry with a copy of its name, which can be kept.
    pub fn into_owned(self) -> Listed<'static> {
        Listed { name: Cow::Owned(self.name.into_owned()), ..self }
    }
}

impl std::fmt::Debug for Listed<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Listed({:?} \"{}\", inode {})", self.kind, self.name.escape_ascii(), self.ino)
    }
}
