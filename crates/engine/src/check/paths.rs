//! Saying which files damage is about: by path, from parent pointers.

use crate::volume::Inner;
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::inode::Inode;

/// Paths named of one inode, at most.
const PATHS_MAX: usize = 4;
/// Directories on a path, at most.
const DEPTH_MAX: usize = 4096;

impl Inner {
    /// ` (/a/b, /c)`: the paths of an inode as far as its parent pointers lead, or nothing. For
    /// messages, of a volume that may be damaged: nobody may change it meanwhile.
    pub(crate) fn path_hint(&self, ino: Ino) -> String {
        let Ok(inode) = self.place_of(ino) else { return String::new() };
        let slot = inode.read();
        let Ok(parents) = self.parents_if_any(ino, &slot.inode) else { return String::new() };
        drop(slot);
        let more = parents.len() > PATHS_MAX;
        let paths = parents.iter().take(PATHS_MAX).map(|(dir, name)| self.path_below(*dir, name));
        let mut paths: Vec<String> = paths.collect();
        paths.extend(more.then(|| format!("{} more", parents.len() - PATHS_MAX)));
        if paths.is_empty() { String::new() } else { format!(" ({})", paths.join(", ")) }
    }

    /// The path of a name in a directory. A directory that does not say where it is, is named by
    /// its number.
    pub(crate) fn path_below(&self, dir: Ino, name: &[u8]) -> String {
        let mut path = format!("/{}", name.escape_ascii());
        let mut at = dir;
        for _ in 0..DEPTH_MAX {
            if at == Ino::ROOT {
                return path;
            }
            let above = self.place_of(at).and_then(|inode| {
                let slot = inode.read();
                self.parents_if_any(at, &slot.inode)
            });
            let Some((up, name)) = above.ok().and_then(|mut parents| parents.pop()) else {
                return format!("inode {at}:{path}");
            };
            path.insert_str(0, &format!("/{}", name.escape_ascii()));
            at = up;
        }
        format!("...{path}")
    }

    fn parents_if_any(&self, ino: Ino, inode: &Inode) -> Result<Vec<(Ino, Vec<u8>)>> {
        if !inode.core.in_use() {
            return Err(Error::Code(Code::Stale));
        }
        let parents = self.parents_in(ino, inode)?;
        Ok(parents.into_iter().map(|parent| (parent.dir, parent.name)).collect())
    }
}
