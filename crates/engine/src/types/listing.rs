//! Arguments of a listing: a range of a directory, wanted attributes, and a filter.

use super::{Attr, DirEntry, Fields, FileKind, Time};
use crate::glob;
use shoal_format::dirent::FIRST_COOKIE;
use std::ops::{Bound, RangeBounds, RangeInclusive};

/// A range of the cookies of a directory, for a listing that continues, or is divided among
/// several readers.
///
/// A cookie is the hash of a name, so ranges of equal length contain about the same number of
/// entries, and an entry stays in its range however the directory changes. Cookies mean the same in
/// every directory of a volume: one of another directory is a valid place in this one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cookies {
    /// The entries are behind this cookie ...
    after: u64,
    /// ... and up to and including this one.
    last: u64,
}

impl Cookies {
    /// All entries but "." and "..".
    pub const ALL: Cookies = Cookies { after: FIRST_COOKIE - 1, last: u64::MAX >> 1 };

    /// Returns the range from behind the entry with one cookie up to that with another. What is no
    /// cookie of a name is left out.
    pub fn between(after: u64, last: u64) -> Cookies {
        let last = last.min(Cookies::ALL.last);
        Cookies { after: after.clamp(Cookies::ALL.after.min(last), last), last }
    }

    /// Returns the part behind the entry with a cookie.
    #[must_use]
    pub fn after(self, cookie: u64) -> Cookies {
        Cookies { after: self.after.max(cookie).min(self.last), ..self }
    }

    /// Divides the range into disjoint ones of the same length, in order. Together they are the
    /// whole range.
    pub fn split(self, parts: usize) -> impl ExactSizeIterator<Item = Cookies> {
        let parts = parts.max(1);
        let length = u128::from(self.last - self.after);
        let place = move |part: usize| self.after + (length * part as u128 / parts as u128) as u64;
        (0..parts).map(move |part| Cookies { after: place(part), last: place(part + 1) })
    }

    /// The cookie that the range begins behind.
    pub fn begin(self) -> u64 {
        self.after
    }
    /// The last cookie of the range.
    pub fn last(self) -> u64 {
        self.last
    }
    /// Returns whether no entry can be in the range.
    pub fn is_empty(self) -> bool {
        self.after >= self.last
    }
}

/// The entries that a listing returns: those that pass all of its tests. A test of the name or the
/// type costs no inode: inodes of entries that fail it are not looked at.
///
/// ```
/// use shoal_engine::{FileKind, Filter};
/// let mail = Filter::new().name(b"*.eml").kind(FileKind::Regular).size(1 << 20..);
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    /// Shell pattern of the name.
    pub name: Option<Box<[u8]>>,
    /// Types, any if there are none.
    pub kinds: Vec<FileKind>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<RangeInclusive<u64>>,
    /// Time of the last change of the contents.
    pub mtime: Option<(Bound<Time>, Bound<Time>)>,
    /// Time of the last change of the inode.
    pub ctime: Option<(Bound<Time>, Bound<Time>)>,
}

impl Filter {
    /// Returns one that every entry passes.
    pub fn new() -> Filter {
        Filter::default()
    }
    /// The name matches a shell pattern ([`glob`]).
    #[must_use]
    pub fn name(mut self, pattern: &[u8]) -> Filter {
        self.name = Some(pattern.into());
        self
    }
    /// The entry is of this type, or of another one that was set before.
    #[must_use]
    pub fn kind(mut self, kind: FileKind) -> Filter {
        self.kinds.push(kind);
        self
    }
    /// The inode belongs to this user.
    #[must_use]
    pub fn uid(mut self, uid: u32) -> Filter {
        self.uid = Some(uid);
        self
    }
    /// The inode belongs to this group.
    #[must_use]
    pub fn gid(mut self, gid: u32) -> Filter {
        self.gid = Some(gid);
        self
    }
    /// The size in bytes (of a directory: the number of entries) is in this range.
    #[must_use]
    pub fn size(mut self, range: impl RangeBounds<u64>) -> Filter {
        let from = match range.start_bound() {
            Bound::Included(&from) => Some(from),
            Bound::Excluded(from) => from.checked_add(1),
            Bound::Unbounded => Some(0),
        };
        let to = match range.end_bound() {
            Bound::Included(&to) => Some(to),
            Bound::Excluded(to) => to.checked_sub(1),
            Bound::Unbounded => Some(u64::MAX),
        };
        // Nothing is in a range that ends before it begins.
        self.size = Some(from.zip(to).map_or(RangeInclusive::new(1, 0), |(from, to)| from..=to));
        self
    }
    /// The contents were last changed in this range of time.
    #[must_use]
    pub fn mtime(mut self, range: impl RangeBounds<Time>) -> Filter {
        self.mtime = Some(owned(&range));
        self
    }
    /// The inode was last changed in this range of time.
    #[must_use]
    pub fn ctime(mut self, range: impl RangeBounds<Time>) -> Filter {
        self.ctime = Some(owned(&range));
        self
    }

    /// Returns whether an inode must be looked at to decide.
    pub fn needs_inode(&self) -> bool {
        let Filter { name: _, kinds: _, uid, gid, size, mtime, ctime } = self;
        uid.is_some() || gid.is_some() || size.is_some() || mtime.is_some() || ctime.is_some()
    }

    /// Returns whether an entry passes the tests of its name and type.
    pub fn passes_entry(&self, entry: &DirEntry<'_>) -> bool {
        (self.kinds.is_empty() || self.kinds.contains(&entry.kind))
            && self.name.as_deref().is_none_or(|pattern| glob::matches(pattern, entry.name))
    }

    /// Returns whether an inode passes the tests of its attributes.
    pub fn passes_inode(&self, attr: &Attr) -> bool {
        let is_in = |range: &Option<(Bound<Time>, Bound<Time>)>, time: &Time| {
            range.as_ref().is_none_or(|range| range.contains(time))
        };
        self.uid.is_none_or(|uid| uid == attr.uid)
            && self.gid.is_none_or(|gid| gid == attr.gid)
            && self.size.as_ref().is_none_or(|size| size.contains(&attr.size))
            && is_in(&self.mtime, &attr.mtime)
            && is_in(&self.ctime, &attr.ctime)
    }
}

fn owned(range: &impl RangeBounds<Time>) -> (Bound<Time>, Bound<Time>) {
    (range.start_bound().cloned(), range.end_bound().cloned())
}

/// A listing of a part of a directory ([`crate::Directories::list`]).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listing {
    /// The part of the directory.
    pub cookies: Cookies,
    /// Wanted attributes. Type and inode number are in the entry: without others, and without a
    /// filter that needs them, no inode is looked at.
    pub want: Fields,
    /// The entries that are returned.
    pub filter: Filter,
}

impl Listing {
    /// Returns whether the entries alone have everything that is wanted, so that no inode is
    /// looked at.
    pub fn is_in_entries(&self) -> bool {
        Fields::OF_ENTRY.contains(self.want) && !self.filter.needs_inode()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_disjoint_and_complete() {
        for parts in [0, 1, 2, 3, 7, 1000] {
            let split: Vec<_> = Cookies::ALL.split(parts).collect();
            assert_eq!(split.len(), parts.max(1));
            assert_eq!(split[0].begin(), Cookies::ALL.begin());
            assert_eq!(split[split.len() - 1].last(), Cookies::ALL.last());
            assert!(split.windows(2).all(|pair| pair[0].last() == pair[1].begin()));
        }
        let small = Cookies { after: 300, last: 302 };
        let ends: Vec<_> = small.split(4).map(|part| (part.begin(), part.last())).collect();
        assert_eq!(ends, [(300, 300), (300, 301), (301, 301), (301, 302)]);
        assert!(small.after(302).is_empty() && small.after(u64::MAX).is_empty());
        assert_eq!(small.after(0), small);
    }

    #[test]
    fn ranges_of_sizes_keep_their_ends() {
        let attr = |size| Attr {
            ino: shoal_base::Ino(1),
            generation: shoal_base::Generation(1),
            kind: FileKind::Regular,
            mode: 0o100_644,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size,
            blocks: 0,
            atime: Time::default(),
            mtime: Time::default(),
            ctime: Time::default(),
            btime: Time::default(),
            version: 0,
        };
        let passing = |filter: Filter| -> Vec<u64> {
            [0, 1, 2, u64::MAX].into_iter().filter(|n| filter.passes_inode(&attr(*n))).collect()
        };
        assert_eq!(passing(Filter::new().size(1..)), [1, 2, u64::MAX]);
        assert_eq!(passing(Filter::new().size(1..2)), [1]);
        assert_eq!(passing(Filter::new().size(..=1)), [0, 1]);
        assert_eq!(passing(Filter::new().size(0..0)), [0; 0]);
        let above = (Bound::Excluded(u64::MAX), Bound::Unbounded);
        assert_eq!(passing(Filter::new().size(above)), [0; 0]);
        assert_eq!(passing(Filter::new().uid(1)), [0; 0]);
        let later = Time { sec: 1, nsec: 0 };
        assert_eq!(passing(Filter::new().mtime(..later)).len(), 4);
        assert_eq!(passing(Filter::new().ctime(later..)), [0; 0]);
    }
}
