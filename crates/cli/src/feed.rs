//! The changes below a directory since a mark, for commands that copy them.

use shoal::raw::{Change, ChangeMark, Error, FileKind, Ino};

use crate::session::Session;

/// Changes that are read at a time.
const BATCH: usize = 4096;

/// Changes of a directory since a mark; everything without one.
pub(crate) struct Feed<'f> {
    /// The volume.
    pub session: &'f Session,
    /// The directory.
    pub dir: Ino,
    /// The mark.
    pub since: Option<ChangeMark>,
}

impl Feed<'_> {
    /// Reads all changes; returns their mark, and whether all removed names are told. The outer
    /// error is that of `take`.
    pub(crate) fn pass<E>(
        &self,
        take: &mut dyn FnMut(&Change) -> Result<(), E>,
    ) -> Result<Result<(ChangeMark, bool), Error>, E> {
        let changes = self.session.volume.changes();
        let mut reader = match changes.since(&self.session.who, self.dir, self.since.as_ref()) {
            Ok(reader) => reader,
            Err(error) => return Ok(Err(error)),
        };
        loop {
            match changes.next(&mut reader, BATCH) {
                Ok(batch) if batch.is_empty() => {
                    return Ok(Ok((reader.mark(), reader.has_all_removed())));
                }
                Ok(batch) => batch.iter().try_for_each(&mut *take)?,
                Err(error) => return Ok(Err(error)),
            }
        }
    }

    /// Returns why the changes are not all that differs; `None`: they are.
    ///
    /// If a directory that has another name is not told as such, the files in it that have not
    /// changed are not told either. No directory has another name if none is told.
    pub(crate) fn gap(&self) -> Result<Option<&'static str>, Error> {
        if self.has_subvolumes() {
            return Ok(Some("changes in subvolumes are not told"));
        }
        let mut has_dirs = false;
        let read = self.pass::<Error>(&mut |change| {
            has_dirs |= change.file == Some(FileKind::Directory);
            Ok(())
        });
        let (_, has_all) = read??;
        let what = "renamed directories since the mark are not known (shoal changes --keep-removed \
                    on keeps them from then on)";
        Ok((!has_all && has_dirs).then_some(what))
    }

    /// Returns whether there are subvolumes below, which are all in the top of the volume.
    pub(crate) fn has_subvolumes(&self) -> bool {
        let mut all = self.session.volume.subvolumes().list().into_iter();
        self.dir == Ino::ROOT && all.any(|subvolume| !subvolume.deleted)
    }
}
