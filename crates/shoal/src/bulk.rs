//! Attributes of many files with one call.

use crate::error::{Doing, Error, Result};
use crate::raw::{self, Fields, FileKind, Freshness, Ino, InodeScan, Stat};
use crate::{AsPath, Dir, Metadata, Subvolume, Volume};
use std::ops::ControlFlow;
use std::thread;

impl Dir {
    /// Returns the attributes of many files, in the order of the paths, each as [`Dir::metadata`]
    /// returns it.
    ///
    /// For names in this directory, which are paths without a slash, this is faster than one call
    /// for each: they are looked up together, and what is not in memory is read from the device
    /// many blocks at a time. Other paths, and symlinks, are followed one by one.
    ///
    /// ```
    /// # use shoal::{Credentials, Volume};
    /// # fn main() -> shoal::Result<()> {
    /// let volume = Volume::options().size(64 << 20).in_memory()?;
    /// let dir = volume.root(Credentials::root());
    /// dir.write("a", b"12")?;
    /// dir.write("b", b"345")?;
    /// let sizes: Vec<Option<u64>> = dir
    ///     .metadata_many(&["b", "missing", "a"])
    ///     .into_iter()
    ///     .map(|found| found.ok().map(|metadata| metadata.len()))
    ///     .collect();
    /// assert_eq!(sizes, [Some(3), None, Some(2)]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors Each path has its own result, with the errors of [`Dir::metadata`].
    pub fn metadata_many(&self, paths: &[impl AsPath]) -> Vec<Result<Metadata>> {
        let paths: Vec<&[u8]> = paths.iter().map(AsPath::as_path).collect();
        let names: Vec<&[u8]> = paths.iter().map(|path| name_in(path)).collect();
        let (calls, want) = (self.calls(), Fields::ALL);
        let found = calls.stat_many(self.who(), self.node(), &names, want, Freshness::Force);
        let found = match found {
            Ok(found) => found,
            Err(e) => paths.iter().map(|_| Err(e.clone())).collect(),
        };
        let one = |(path, answer): (&&[u8], raw::Result<Stat>)| {
            let special = matches!(name_in(path), b"" | b"." | b"..");
            match answer.map(|stat| Stat::attr(&stat)) {
                Ok(Some(attr)) if !special && attr.kind != FileKind::Symlink => Ok(Metadata(attr)),
                Err(e) if !special => Err(Error::new("look up", Some(path), e)),
                _ => self.metadata(path),
            }
        };
        paths.iter().zip(found).map(one).collect()
    }
}

/// Returns the path if it is a name in this directory, otherwise an empty name.
fn name_in(path: &[u8]) -> &[u8] {
    if path.contains(&b'/') { b"" } else { path }
}

/// Inodes that are asked for at a time.
const PAGE: usize = 512;

/// A scan of all inodes of a subvolume, in the order of their numbers; see [`Volume::inodes`].
#[derive(Clone, Debug)]
#[must_use = "a scan does nothing until `for_each` or `page`"]
pub struct Inodes {
    volume: Volume,
    after: Ino,
    threads: usize,
}

impl Volume {
    /// Scans all inodes without walking the tree: those of the volume outside of its subvolumes or,
    /// with [`Inodes::subvolume`], of one of those.
    ///
    /// Every file and directory with a name is found once, however many names it has. One that is
    /// created or removed during the scan may be missing. [`Volume::paths_of`] returns the paths of
    /// each.
    ///
    /// The scan checks no permissions: the caller must.
    ///
    /// ```
    /// # use shoal::{Credentials, Volume};
    /// # use std::sync::atomic::{AtomicU64, Ordering};
    /// # fn main() -> shoal::Result<()> {
    /// let volume = Volume::options().size(64 << 20).in_memory()?;
    /// let root = volume.root(Credentials::root());
    /// for n in 0..1000 {
    ///     root.write(format!("{n}"), vec![0; n % 3])?;
    /// }
    /// let bytes = AtomicU64::new(0);
    /// volume.inodes().for_each(|batch| {
    ///     let files = batch.iter().filter(|metadata| metadata.is_file());
    ///     bytes.fetch_add(files.map(|file| file.len()).sum(), Ordering::Relaxed);
    /// })?;
    /// assert_eq!(bytes.into_inner(), 999);
    /// # Ok(())
    /// # }
    /// ```
    pub fn inodes(&self) -> Inodes {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        Inodes { volume: self.clone(), after: Ino(0), threads }
    }
}

impl Inodes {
    /// Scans this subvolume, from its start.
    pub fn subvolume(mut self, subvolume: &Subvolume) -> Inodes {
        self.after = Ino::new(subvolume.top.root(), 0);
        self
    }

    /// Begins after this inode, in its subvolume. The inode need not exist any more.
    pub fn after(mut self, ino: Ino) -> Inodes {
        self.after = ino;
        self
    }

    /// Sets the number of threads of [`Inodes::for_each`]; by default as many as processors. With
    /// one, all inodes come in the order of their numbers; with more, only those of each batch.
    pub fn threads(mut self, threads: usize) -> Inodes {
        self.threads = threads.max(1);
        self
    }

    /// Calls `each` with the attributes of the inodes, up to 512 at a time, on several threads at
    /// the same time.
    ///
    /// # Errors `ESTALE` when the subvolume does not exist or is deleted meanwhile, `InvalidData`
    /// when a block of inodes is damaged, those of the device. `each` has been called with the
    /// batches before it.
    pub fn for_each(&self, each: impl Fn(&[Metadata]) + Sync) -> Result<()> {
        let Some(volume) = self.volume.raw() else { return self.for_each_page(&each) };
        let scan = InodeScan { after: self.after, threads: self.threads };
        let each = |batch: &[Metadata]| {
            each(batch);
            ControlFlow::Continue(())
        };
        let who = self.volume.superuser();
        volume.bulk().bulkstat(who, scan, Metadata, each).done("scan inodes")
    }

    /// The same, of a volume that another process serves.
    fn for_each_page(&self, each: &(impl Fn(&[Metadata]) + Sync)) -> Result<()> {
        let mut scan = self.clone();
        loop {
            let page = scan.page(PAGE)?;
            let Some(last) = page.last() else { return Ok(()) };
            scan.after = last.ino();
            each(&page);
        }
    }

    /// Returns the next inodes in the order of their numbers, at most `at_most`; fewer only at the
    /// end. Continue with [`Inodes::after`] the last of them, also after a restart.
    ///
    /// # Errors Those of [`Inodes::for_each`]. After an error nothing of the page is returned.
    pub fn page(&self, at_most: usize) -> Result<Vec<Metadata>> {
        let (calls, who) = (self.volume.calls(), self.volume.superuser());
        let page = calls.inodes(who, self.after, at_most).done("scan inodes")?;
        Ok(page.into_iter().map(Metadata).collect())
    }
}
