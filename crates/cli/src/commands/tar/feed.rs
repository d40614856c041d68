//! The paths that have changed since a mark, as members of an archive.

use std::path::Path;
use std::sync::Arc;

use shoal::raw::{ChangeKind, ChangeMark, FileKind};

use crate::args::TarArgs;
use crate::failure::{Failure, Reason, Result};
use crate::feed::{Feed, Unsure, relative};
use crate::location::Location;
use crate::marks;
use crate::progress::eprint_line;
use crate::session::Session;

/// Changes of the directory that is archived.
pub(super) struct Changed<'f> {
    feed: Feed<'f>,
    unsure: Unsure,
    label: String,
    file: Option<&'f Path>,
}

impl<'f> Changed<'f> {
    /// Opens the feed, if it is asked for.
    pub(super) fn open(
        args: &'f TarArgs,
        session: Option<&'f Session>,
        top: &[u8],
    ) -> Result<Option<Changed<'f>>> {
        let file = args.mark_file.as_deref();
        let Some(session) = session else { return Ok(None) };
        if args.since.is_none() && file.is_none() {
            return Ok(None);
        }
        let since = marks::read(args.since.as_deref(), file)?;
        let label = Location { volume: session.path.clone(), path: top.to_vec() }.label();
        let failed = |error| Failure::failed(&label, Reason::Volume(error));
        let (found, path) = session.place(top, true).map_err(failed)?;
        let dir = session.open_dir(&path, Some(found.ino)).map_err(failed)?;
        let mut feed = Feed { session, dir: Arc::new(dir), since };
        if feed.since.is_some()
            && let Some(why) = feed.gap()
        {
            eprint_line(&format!("{label}: everything is archived: {why}"));
            feed.since = None;
        }
        let unsure = feed.unsure().map_err(failed)?;
        Ok(Some(Changed { feed, unsure, label, file }))
    }

    /// Calls `take` with each path, and whether all below it has changed, too. Directories come
    /// last: so they get their times when everything is in them. Returns the mark of the changes.
    pub(super) fn each(
        &self,
        mut take: impl FnMut(&[u8], bool) -> Result<()>,
    ) -> Result<ChangeMark> {
        let mut some = |directories| {
            let read = self.feed.pass(&mut |change| {
                let is_dir = change.file == Some(FileKind::Directory);
                if change.kind == ChangeKind::Removed {
                    return Ok(());
                }
                for name in &change.names {
                    let path = relative(name.path());
                    let is_renamed = change.kind == ChangeKind::Renamed;
                    let whole = is_dir && (is_renamed || self.unsure.is_whole(&path));
                    if (is_dir && !whole) == directories && !self.unsure.is_covered(&path) {
                        take(&name.path(), whole)?;
                    }
                }
                Ok(())
            })?;
            read.map_err(|error| Failure::failed(&self.label, Reason::Volume(error)))
        };
        let (mark, _) = some(false)?;
        some(true)?;
        Ok(mark)
    }

    /// Keeps the mark, when everything has been written.
    pub(super) fn done(&self, mark: &ChangeMark) -> Result<()> {
        self.file.map_or(Ok(()), |file| marks::replace(file, mark))
    }
}
