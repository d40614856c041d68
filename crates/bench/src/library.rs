//! The library on a volume file: what a program that links Shoal gets, without any system call.

use crate::args::Args;
use crate::driver::{Driver, Target, Usage};
use crate::error::{BenchError, Result};
use shoal::raw::{
    Caller, Code, FileKind, Ino, MkfsOptions, OpenOptions, RenameFlags, RingMemory, SetAttr, Volume,
};
use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Inodes in a block of the inode table.
pub(crate) const INODES_PER_BLOCK: u64 = 32;

/// A volume, fresh unless it is to be reused.
pub(crate) struct VolumeTarget {
    volume: Arc<Volume>,
    reused: bool,
    scratch: Scratch,
}

/// Removes the volume file when dropped, if this run made it and it is not to stay.
struct Scratch {
    path: PathBuf,
    keep: bool,
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.keep {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cold]
fn failed(what: &str, path: &Path, error: impl std::fmt::Display) -> BenchError {
    BenchError::failed(what, path.display(), error)
}

impl VolumeTarget {
    /// Makes the volume, unless it is to be reused, and opens it.
    pub(crate) fn prepare(args: &Args, path: &Path) -> Result<VolumeTarget> {
        Self::prepare_with(args, path, &open_options(args))
    }

    /// The same with other choices for opening.
    pub(crate) fn prepare_with(
        args: &Args,
        path: &Path,
        options: &OpenOptions,
    ) -> Result<VolumeTarget> {
        Self::prepare_as(args, path, options, true)
    }

    /// The same, with parent pointers or without.
    pub(crate) fn prepare_as(
        args: &Args,
        path: &Path,
        options: &OpenOptions,
        parents: bool,
    ) -> Result<VolumeTarget> {
        // A file that was there before stays: only what this run made is this run's to remove.
        let keep = args.keep || args.reuse || path.exists();
        if !args.reuse {
            let size = match path.metadata() {
                // A device, or a file that somebody gave a size, keeps it.
                Ok(meta) if args.size.is_none() && (!meta.is_file() || meta.len() > 0) => 0,
                _ => args.volume_size(),
            };
            let mkfs = MkfsOptions {
                size,
                force: args.force,
                parents,
                compression: args.compress,
                ..MkfsOptions::default()
            };
            shoal::raw::mkfs(path, &mkfs).map_err(|e| failed("mkfs of", path, e))?;
        }
        let scratch = Scratch { path: path.into(), keep };
        let ring = args.journal_ring.as_deref().map(RingMemory::open).transpose();
        let ring = ring.map_err(|e| failed("opening a ring for", path, e))?.map(Arc::new);
        let options = OpenOptions { ring, ..options.clone() };
        let volume = Volume::open(path, &options).map_err(|e| failed("opening", path, e))?;
        Ok(VolumeTarget { volume: Arc::new(volume), reused: args.reuse, scratch })
    }

    /// The volume.
    pub(crate) fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The volume, for a thread.
    pub(crate) fn shared(&self) -> Arc<Volume> {
        self.volume.clone()
    }

    /// One of the volume's counters.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        let info = self.volume.info();
        info.counters.iter().find(|(n, _)| *n == name).map_or(0, |(_, value)| *value)
    }

    /// Closes the volume and opens it again with these choices; `crash`: without closing it first.
    pub(crate) fn reopen(self, crash: bool, options: &OpenOptions) -> Result<VolumeTarget> {
        let VolumeTarget { volume, reused, scratch } = self;
        if crash {
            drop(volume);
        } else {
            close(volume, &scratch.path)?;
        }
        let volume = Volume::open(&scratch.path, options)
            .map_err(|e| failed("opening again", &scratch.path, e))?;
        Ok(VolumeTarget { volume: Arc::new(volume), reused, scratch })
    }

    /// Closes the volume and removes its file, unless it shall stay.
    pub(crate) fn finish(self) -> Result<()> {
        close(self.volume, &self.scratch.path)
    }
}

fn close(volume: Arc<Volume>, path: &Path) -> Result<()> {
    let volume = Arc::into_inner(volume).expect("every thread's handle is gone");
    volume.close().map_err(|e| failed("closing", path, e))
}

/// How the arguments want the volume opened.
pub(crate) fn open_options(args: &Args) -> OpenOptions {
    OpenOptions {
        cache_bytes: args.cache.unwrap_or(0),
        #[cfg(feature = "lab")]
        lab: shoal::raw::Lab {
            checkpoint_always: args.checkpoint_always,
            ..shoal::raw::Lab::default()
        },
        ..OpenOptions::default()
    }
}

impl Target for VolumeTarget {
    type Driver = VolumeDriver;

    fn driver(&self) -> Result<VolumeDriver> {
        Ok(VolumeDriver { volume: self.volume.clone(), who: Caller::root() })
    }

    fn settle(&self) -> Result<()> {
        let settled = self.volume.sync().and_then(|()| self.volume.maintenance().checkpoint());
        settled.map_err(|e| failed("checkpoint of", &self.scratch.path, e))
    }

    fn usage(&self) -> Option<Usage> {
        Some(Usage {
            volume_bytes: self.volume.info().live_bytes,
            journal_bytes: self.counter("journal_bytes"),
            checkpoint_bytes: self.counter("checkpoint_bytes"),
            data_bytes: self.counter("data_bytes_written"),
        })
    }

    fn reused(&self) -> bool {
        self.reused
    }
}

/// One thread's calls.
pub(crate) struct VolumeDriver {
    volume: Arc<Volume>,
    who: Caller,
}

#[cold]
fn refused(what: &str, name: &CStr, error: shoal::raw::Error) -> BenchError {
    BenchError::failed(what, name.to_string_lossy(), error)
}

impl VolumeDriver {
    /// The volume, for calls that only the library has.
    pub(crate) fn volume(&self) -> &Volume {
        &self.volume
    }
    /// On whose behalf.
    pub(crate) fn who(&self) -> &Caller {
        &self.who
    }

    fn resolve(&self, path: &CStr) -> shoal::raw::Result<shoal::raw::Entry> {
        self.volume.namespace().resolve(&self.who, Ino::ROOT, path.to_bytes(), true)
    }
}

impl Driver for VolumeDriver {
    type Dir = Ino;
    type File = Ino;

    fn mkdir(&mut self, path: &CStr) -> Result<()> {
        let (parent, name) = shoal::raw::split_parent(path.to_bytes());
        // An empty path is no path to POSIX.
        let parent = if parent.is_empty() { b"." } else { parent };
        self.volume
            .namespace()
            .resolve(&self.who, Ino::ROOT, parent, true)
            .and_then(|dir| self.volume.namespace().mkdir(&self.who, dir.ino, name, 0o755))
            .map(drop)
            .map_err(|e| refused("making directory", path, e))
    }

    fn open_dir(&mut self, path: &CStr) -> Result<Ino> {
        self.resolve(path).map(|e| e.ino).map_err(|e| refused("opening directory", path, e))
    }

    #[inline]
    fn create(&mut self, dir: &Ino, name: &CStr, sync: bool) -> Result<()> {
        let made = self.volume.namespace().create(&self.who, *dir, name.to_bytes(), 0o644);
        let file = made.map_err(|e| refused("creating", name, e))?;
        if sync {
            self.volume.files().fsync(file.ino, false).map_err(|e| refused("syncing", name, e))?;
        }
        Ok(())
    }

    #[inline]
    fn write_new(&mut self, dir: &Ino, name: &CStr, data: &[u8]) -> Result<()> {
        let made = self.volume.namespace().create(&self.who, *dir, name.to_bytes(), 0o644);
        let file = made.map_err(|e| refused("creating", name, e))?;
        let written = self.volume.files().write(file.ino, 0, data, false);
        match written.map_err(|e| refused("writing", name, e))? {
            n if n == data.len() => Ok(()),
            n => Err(BenchError::new(format!("writing {name:?}: only {n} bytes taken"))),
        }
    }

    #[inline]
    fn read(&mut self, dir: &Ino, name: &CStr, buf: &mut [u8]) -> Result<usize> {
        self.volume
            .namespace()
            .lookup(&self.who, *dir, name.to_bytes())
            .and_then(|file| self.volume.files().read(file.ino, 0, buf))
            .map_err(|e| refused("reading", name, e))
    }

    #[inline]
    fn rename(&mut self, dir: &Ino, from: &CStr, to: &CStr) -> Result<()> {
        let flags = RenameFlags::default();
        self.volume
            .namespace()
            .rename(&self.who, *dir, from.to_bytes(), *dir, to.to_bytes(), flags)
            .map_err(|e| refused("renaming", from, e))
    }

    #[inline]
    fn unlink(&mut self, dir: &Ino, name: &CStr) -> Result<()> {
        self.volume
            .namespace()
            .unlink(&self.who, *dir, name.to_bytes())
            .map_err(|e| refused("removing", name, e))
    }

    #[inline]
    fn open_new(&mut self, dir: &Ino, name: &CStr, data: &[u8]) -> Result<Ino> {
        let made = self.volume.namespace().create(&self.who, *dir, name.to_bytes(), 0o644);
        let file = made.map_err(|e| refused("creating", name, e))?.ino;
        self.volume.references().hold(file, 1).map_err(|e| refused("opening", name, e))?;
        if !data.is_empty() {
            self.write_at(&file, 0, data)?;
        }
        Ok(file)
    }

    #[inline]
    fn write_at(&mut self, file: &Ino, at: u64, data: &[u8]) -> Result<()> {
        match self.volume.files().write(*file, at, data, false) {
            Ok(n) if n == data.len() => Ok(()),
            Ok(n) => Err(BenchError::new(format!("inode {file}: only {n} bytes taken"))),
            Err(e) => Err(BenchError::failed("writing inode", file, e)),
        }
    }

    fn open_file(&mut self, dir: &Ino, name: &CStr) -> Result<Ino> {
        let found = self.volume.namespace().lookup(&self.who, *dir, name.to_bytes());
        let file = found.map_err(|e| refused("looking up", name, e))?.ino;
        self.volume.references().hold(file, 1).map_err(|e| refused("opening", name, e))?;
        Ok(file)
    }

    #[inline]
    fn read_at(&mut self, file: &Ino, at: u64, buf: &mut [u8]) -> Result<usize> {
        let read = self.volume.files().read(*file, at, buf);
        read.map_err(|e| BenchError::failed("reading inode", file, e))
    }

    #[inline]
    fn cut(&mut self, file: &Ino, size: u64) -> Result<()> {
        let set = SetAttr { size: Some(size), by_handle: true, ..SetAttr::default() };
        let cut = self.volume.attributes().setattr(&self.who, *file, &set);
        cut.map(drop).map_err(|e| BenchError::failed("cutting inode", file, e))
    }

    #[inline]
    fn close(&mut self, file: Ino) -> Result<()> {
        self.volume.references().release(file, 1);
        Ok(())
    }

    #[inline]
    fn stat(&mut self, path: &CStr) -> Result<bool> {
        match self.resolve(path) {
            Ok(attr) => {
                std::hint::black_box(&attr);
                Ok(true)
            }
            Err(e) if e.is(Code::NotFound) => Ok(false),
            Err(e) => Err(refused("attributes of", path, e)),
        }
    }

    fn list(&mut self, path: &CStr, subdirs: &mut Vec<CString>) -> Result<u64> {
        let dir = self.open_dir(path)?;
        let mut entries = Ok(0);
        self.volume
            .directories()
            .readdirplus(dir, 0, &mut |entry, attr| {
                if matches!(entry.name, b"." | b"..") {
                    return true;
                }
                entries = std::hint::black_box(attr).and_then(|attr| {
                    if attr.kind == FileKind::Directory {
                        // Names hold no NUL, or the listing is broken.
                        subdirs.extend(CString::new(entry.name));
                    }
                    entries.clone().map(|entries| entries + 1)
                });
                entries.is_ok()
            })
            .and(entries)
            .map_err(|e| refused("listing", path, e))
    }

    fn inode_blocks(&mut self, path: &CStr) -> Result<Option<u64>> {
        let dir = self.open_dir(path)?;
        let mut blocks = HashSet::new();
        self.volume
            .directories()
            .readdir(dir, 0, &mut |entry| {
                if !matches!(entry.name, b"." | b"..") {
                    blocks.insert(entry.ino.0 / INODES_PER_BLOCK);
                }
                true
            })
            .map_err(|e| refused("listing", path, e))?;
        Ok(Some(blocks.len() as u64))
    }
}
