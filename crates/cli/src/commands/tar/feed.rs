//! The paths that have changed since a mark, as members of an archive.

use std::path::Path;

use shoal::raw::{Change, ChangeKind, ChangeMark, FileKind, Ino};

use crate::args::TarArgs;
use crate::failure::{Failure, Reason, Result};
use crate::location::Location;
use crate::marks;
use crate::progress::eprint_line;
use crate::session::Session;

/// Changes that are read at a time.
const BATCH: usize = 4096;

/// Changes of a directory since a mark.
pub struct Feed<'f> {
    session: &'f Session,
    dir: Ino,
    label: String,
    since: Option<ChangeMark>,
    file: Option<&'f Path>,
}

impl<'f> Feed<'f> {
    /// Opens the feed, if it is asked for.
    pub fn open(
        args: &'f TarArgs,
        session: Option<&'f Session>,
        top: &[u8],
    ) -> Result<Option<Feed<'f>>> {
        let file = args.mark_file.as_deref();
        let Some(session) = session else { return Ok(None) };
        if args.since.is_none() && file.is_none() {
            return Ok(None);
        }
        let since = marks::read(args.since.as_deref(), file)?;
        let label = Location { volume: session.path.clone(), path: top.to_vec() }.label();
        let found = session.find(top, true);
        let found = found.map_err(|error| Failure::failed(&label, Reason::Volume(error)))?;
        let mut feed = Feed { session, dir: found.ino, label, since, file };
        if feed.since.is_some() && !feed.knows_renamed()? {
            eprint_line(&format!(
                "{}: renamed directories since the mark are not known: everything is archived \
                 (shoal changes --keep-removed on keeps them from then on)",
                feed.label
            ));
            feed.since = None;
        }
        Ok(Some(feed))
    }

    /// Returns whether all directories that have other names are told as such. If one is not, the
    /// files in it that have not changed are not told. No directory has if none is told.
    fn knows_renamed(&self) -> Result<bool> {
        let mut has_dirs = false;
        let (_, knows) = self.pass(&mut |change| {
            has_dirs |= change.file == Some(FileKind::Directory);
            Ok(())
        })?;
        Ok(knows || !has_dirs)
    }

    /// Calls `take` with each path, and whether all below it has changed, too. Directories come
    /// last: so they get their times when everything is in them. Returns the mark of the changes.
    pub fn each(&self, mut take: impl FnMut(&[u8], bool) -> Result<()>) -> Result<ChangeMark> {
        let mut some = |directories| {
            self.pass(&mut |change| {
                let is_dir = change.file == Some(FileKind::Directory);
                let whole = is_dir && change.kind == ChangeKind::Renamed;
                match change.kind != ChangeKind::Removed && (is_dir && !whole) == directories {
                    true => change.names.iter().try_for_each(|name| take(&name.path(), whole)),
                    false => Ok(()),
                }
            })
        };
        let (mark, _) = some(false)?;
        some(true)?;
        Ok(mark)
    }

    /// Reads all changes; returns their mark, and whether all removed names are told.
    fn pass(&self, take: &mut dyn FnMut(&Change) -> Result<()>) -> Result<(ChangeMark, bool)> {
        let failed = |error| Failure::failed(&self.label, Reason::Volume(error));
        let changes = self.session.volume.changes();
        let reader = changes.since(&self.session.who, self.dir, self.since.as_ref());
        let mut reader = reader.map_err(failed)?;
        loop {
            let batch = changes.next(&mut reader, BATCH).map_err(failed)?;
            if batch.is_empty() {
                return Ok((reader.mark(), reader.has_all_removed()));
            }
            batch.iter().try_for_each(&mut *take)?;
        }
    }

    /// Keeps the mark, when everything has been written.
    pub fn done(&self, mark: &ChangeMark) -> Result<()> {
        self.file.map_or(Ok(()), |file| marks::replace(file, mark))
    }
}
