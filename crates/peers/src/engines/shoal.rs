//! Shoal as a library: [`Dir::create_new`] for a single file, [`Dir::batch`] for several.
//!
//! A volume in a sparse file, with the default options. A created file is a handle, which is
//! dropped at once. Inode numbers are Shoal's own.

use super::CACHE_BYTES;
use crate::engine::{Batch, Engine, no_dir};
use crate::error::{PeerError, Result};
use crate::records::Name;
use shoal::{Credentials, Dir, Ino, Volume};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

/// Size of the volume: its file is sparse.
const VOLUME_BYTES: u64 = 64 << 30;

/// Opens the volume in a folder, and makes it if it is not there.
pub(super) fn open(folder: &Path) -> Result<Box<dyn Engine>> {
    let options = Volume::options().create(true).size(VOLUME_BYTES).cache(CACHE_BYTES);
    let volume = options.open(folder.join("volume.shoal"))?;
    let root = volume.root(Credentials::current());
    Ok(Box::new(Shoal { dirs: Vec::new(), root, volume }))
}

struct Shoal {
    /// Those that were made.
    dirs: Vec<Dir>,
    root: Dir,
    volume: Volume,
}

fn dir_name(dir: u64) -> String {
    format!("d{dir}")
}

fn path(dir: u64, name: &Name) -> Vec<u8> {
    [dir_name(dir).as_bytes(), b"/", name].concat()
}

impl Engine for Shoal {
    fn make_dirs(&mut self, dirs: u64, _now_ns: u64) -> Result<()> {
        for dir in 0..dirs {
            self.dirs.push(self.root.create_dir(dir_name(dir))?);
        }
        Ok(())
    }

    #[inline]
    fn create(&mut self, batch: &Batch<'_>) -> Result<()> {
        let dir = self.dirs.get(batch.dir as usize).ok_or_else(|| no_dir(batch.dir))?;
        let created = match batch.files {
            [file] => dir.create_new(file.name).map(drop),
            files => dir.batch(|b| files.iter().try_for_each(|f| b.create_new(f.name, b""))),
        };
        created.map_err(|e| match (e.kind(), batch.files) {
            (ErrorKind::AlreadyExists, [file, ..]) => {
                PeerError::exists(e.path().unwrap_or(&file.name))
            }
            _ => e.into(),
        })
    }

    fn child(&self, dir: u64, name: &Name) -> Result<Option<u64>> {
        match self.root.metadata(path(dir, name)) {
            Ok(meta) => Ok(Some(meta.ino().0)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    fn parent(&self, ino: u64) -> Result<Option<(u64, Name)>> {
        let paths = self.volume.paths_of(Ino(ino))?;
        let parent = |path: &Path| {
            let dir = path.parent()?.file_name()?.to_str()?.strip_prefix('d')?.parse().ok()?;
            Some((dir, path.file_name()?.as_bytes().try_into().ok()?))
        };
        Ok(paths.first().and_then(|path| parent(path)))
    }

    fn count(&self, dir: u64) -> Result<u64> {
        let mut count = 0;
        for entry in self.root.open_dir(dir_name(dir))?.entries()? {
            let _there = entry?;
            count += 1;
        }
        Ok(count)
    }

    fn modified_ns(&self, dir: u64) -> Result<u64> {
        let modified = self.root.metadata(dir_name(dir))?.modified();
        Ok(modified.duration_since(UNIX_EPOCH)?.as_nanos() as u64)
    }

    fn close(self: Box<Self>) -> Result<()> {
        let Shoal { dirs, root, volume } = *self;
        drop((dirs, root));
        Ok(volume.close()?)
    }
}
