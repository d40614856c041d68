//! Copies of directories.

use super::Local;
use super::inodes::{LIST, SEARCH};
use shoal_engine::{
    Attr, Caller, Code, Cookies, Error, Fields, FileKind, Filter, Ino, Listing, Result,
    must_not_wait, refuse_to_wait,
};
use shoal_session::CopyWish;
use shoal_session::copies::{BYTES_MAX, CopyWriter, ENTRIES_MAX, ENTRIES_QUICK};

/// Bytes of an entry with attributes and a name of usual length.
const ENTRY: usize = 160;

impl Local {
    /// Copies a directory, or those of some names in it, and what is below them in the order in
    /// which a walk meets it, until there is no room.
    pub(super) fn copy_trees(
        &self,
        who: &Caller,
        (dir, path): (Ino, &[u8]),
        names: &[&[u8]],
        wish: &CopyWish,
        out: &mut Vec<u8>,
    ) -> Result<Option<u64>> {
        if wish.entries > ENTRIES_QUICK && must_not_wait() {
            return Err(refuse_to_wait());
        }
        let state = self.volume.changes().keep_state();
        let (begin, top) = (out.len(), self.find_at(who, dir, path, true)?);
        let mut room = wish.entries.min(ENTRIES_MAX);
        let expected = room as usize * if wish.attributes { ENTRY } else { ENTRY / 3 };
        out.reserve(expected.min(BYTES_MAX));
        let end = begin + BYTES_MAX;
        if names.is_empty() {
            if top.kind != FileKind::Directory {
                return Err(Code::NotDirectory.into());
            }
            self.copy_tree(who, top, (wish, &mut room, end), out)?;
        }
        for name in names {
            if room == 0 {
                break;
            }
            match self.find_at(who, top.ino, name, false) {
                Ok(attr) if attr.kind == FileKind::Directory => {
                    self.copy_tree(who, attr, (wish, &mut room, end), out)?;
                }
                Err(error) if out.len() == begin || matches!(error, Error::Cold(_)) => {
                    return Err(error);
                }
                _ => {}
            }
        }
        Ok(state)
    }

    fn copy_tree(
        &self,
        who: &Caller,
        top: Attr,
        (wish, room, end): (&CopyWish, &mut u32, usize),
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let mut rest = vec![top];
        while let Some(attr) = rest.pop() {
            // The size is the number of entries.
            if u64::from(*room) < attr.size.max(1) {
                *room = 0;
                break;
            }
            let (begin, below) = (out.len(), rest.len());
            match self.copy_dir(who, &attr, (wish, *room, end), &mut rest, out) {
                // An empty one is one more to be told, too.
                Ok(Some(copied)) => *room = room.saturating_sub(copied.max(1)),
                Ok(None) => *room = 0,
                Err(error) if begin + BYTES_MAX == end || matches!(error, Error::Cold(_)) => {
                    return Err(error);
                }
                // A call about that directory returns the error.
                Err(_) => {}
            }
            rest[below..].reverse();
        }
        Ok(())
    }

    /// Copies a directory, and adds those in it to `below`; returns its number of entries, `None`
    /// if there are more than `room`, or if they are longer than up to `end`.
    fn copy_dir(
        &self,
        who: &Caller,
        attr: &Attr,
        (wish, room, end): (&CopyWish, u32, usize),
        below: &mut Vec<Attr>,
        out: &mut Vec<u8>,
    ) -> Result<Option<u32>> {
        self.volume.attributes().access(who, attr.ino, LIST | SEARCH)?;
        let want = if wish.attributes { Fields::ALL } else { Fields::NONE };
        let listing = Listing { cookies: Cookies::ALL, want, filter: Filter::default() };
        let mut copy = CopyWriter::begin(out, attr);
        let (mut copied, before) = (0, below.len());
        let (mut failed, mut is_whole) = (None, true);
        let listed = self.volume.directories().list(attr.ino, &listing, &mut |entry, stat| {
            let one = || {
                let stat = if wish.attributes { Some(stat?) } else { None };
                let has_no_xattrs =
                    wish.xattrs && self.volume.attributes().listxattr(who, entry.ino)?.is_empty();
                // Another subvolume is another tree, which may be deleted as a whole.
                let is_below = wish.below
                    && entry.kind == FileKind::Directory
                    && entry.ino.root() == attr.ino.root();
                if is_below {
                    let own = stat.and_then(|stat| stat.attr());
                    below.push(match own {
                        Some(own) => own,
                        None => self.volume.attributes().getattr(entry.ino)?,
                    });
                }
                copy.entry(&entry, stat.as_ref(), has_no_xattrs);
                copied += 1;
                Ok(())
            };
            failed = one().err();
            is_whole = copied <= room && copy.bytes() <= end;
            failed.is_none() && is_whole
        });
        match listed.and(failed.map_or(Ok(()), Err)) {
            Ok(()) if is_whole => {
                copy.end();
                Ok(Some(copied))
            }
            other => {
                copy.cancel();
                below.truncate(before);
                other.map(|()| None)
            }
        }
    }
}
