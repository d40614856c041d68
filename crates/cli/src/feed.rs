//! The changes below a directory since a mark, for commands that copy them.

use std::collections::HashSet;
use std::sync::Arc;

use shoal::raw::{Change, ChangeMark, Error, FileKind, Ino, split_parent};

use crate::session::{Open, Session};

/// Changes that are read at a time.
const BATCH: usize = 4096;

/// Changes of a directory since a mark; everything without one.
pub(crate) struct Feed<'f> {
    /// The volume.
    pub session: &'f Session,
    /// The directory.
    pub dir: Arc<Open>,
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
        let Session { who, .. } = self.session;
        let calls = self.session.calls();
        let mut feed = match calls.changes(who, self.dir.node, self.since) {
            Ok(feed) => feed,
            Err(error) => return Ok(Err(error)),
        };
        loop {
            match calls.next_changes(who, &mut feed, BATCH) {
                Ok(batch) if batch.is_empty() => {
                    // It has ended, and goes with the session if this is not heard.
                    let _ = calls.end_changes(who, &feed);
                    return Ok(Ok((feed.mark, feed.has_all_removed)));
                }
                Ok(batch) => batch.iter().try_for_each(&mut *take)?,
                Err(error) => return Ok(Err(error)),
            }
        }
    }

    /// Returns a mark of this moment.
    pub(crate) fn mark(&self) -> Result<ChangeMark, Error> {
        self.session.calls().mark(&self.session.who, self.dir.node)
    }

    /// Returns why the changes are not all that differs; `None`: they are.
    pub(crate) fn gap(&self) -> Option<&'static str> {
        self.has_subvolumes().then_some("changes in subvolumes are not told")
    }

    /// Returns what may differ without being told.
    pub(crate) fn unsure(&self) -> Result<Unsure, Error> {
        let mut dirs = HashSet::new();
        let read = self.pass::<Error>(&mut |change| {
            if change.file == Some(FileKind::Directory) {
                dirs.extend(change.names.iter().map(|name| relative(name.path())));
            }
            Ok(())
        });
        let (_, has_all) = read??;
        Ok(Unsure { dirs: (!has_all).then_some(dirs) })
    }

    /// Returns whether there are subvolumes below, which are all in the top of the volume.
    pub(crate) fn has_subvolumes(&self) -> bool {
        let all = || self.session.calls().all_subvolumes(&self.session.who);
        // One that does not tell may have some.
        let has_some = || all().map_or(true, |all| all.iter().any(|it| !it.deleted));
        self.dir.attr.ino == Ino::ROOT && has_some()
    }
}

/// Differences below a directory that are not told because not all removed names are known.
///
/// A name is only gone from a directory that is told. A directory may have another name if it is
/// told, and the one that it is in: then the files in it that have not changed are not told, though
/// their paths are other ones. Every other directory has the name that it had at the mark.
#[derive(Default)]
pub(crate) struct Unsure {
    /// Paths of the directories that are told; `None`: all removed names are told.
    dirs: Option<HashSet<Vec<u8>>>,
}

impl Unsure {
    /// Returns whether names may be gone from the told directories without being told.
    pub(crate) fn has_missing(&self) -> bool {
        self.dirs.is_some()
    }

    /// Returns whether a directory that is told may have another name.
    pub(crate) fn is_whole(&self, path: &[u8]) -> bool {
        let Some(dirs) = &self.dirs else { return false };
        !path.is_empty() && dirs.contains(path) && dirs.contains(split_parent(path).0)
    }

    /// Returns whether a path is below such a directory.
    pub(crate) fn is_covered(&self, path: &[u8]) -> bool {
        let mut above = path;
        while self.dirs.is_some() && !above.is_empty() {
            above = split_parent(above).0;
            if self.is_whole(above) {
                return true;
            }
        }
        false
    }
}

/// Returns a path of the feed, in which the directory itself is a dot, as one that is empty then.
pub(crate) fn relative(path: Vec<u8>) -> Vec<u8> {
    if path == b"." { Vec::new() } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_may_have_another_name_if_the_one_above_has_changed() {
        let dirs = ["", "a", "b/c", "b/c/d"].map(|path| path.as_bytes().to_vec());
        let unsure = Unsure { dirs: Some(dirs.into_iter().collect()) };
        let check = |path: &str| {
            let path = path.as_bytes();
            (unsure.is_whole(path), unsure.is_covered(path))
        };
        assert_eq!(check(""), (false, false));
        assert_eq!(check("f"), (false, false));
        assert_eq!(check("a"), (true, false));
        assert_eq!(check("a/x/y"), (false, true));
        assert_eq!(check("b/c"), (false, false));
        assert_eq!(check("b/c/d"), (true, false));
        assert_eq!(check("b/c/d/e"), (false, true));
        assert!(!Unsure::default().is_whole(b"a") && !Unsure::default().is_covered(b"a/b"));
    }
}
