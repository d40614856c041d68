//! The library by a session of a mounted volume: what a program gets that does not have the volume
//! open itself.
//!
//! Works in a fresh directory at the top of the mount, which is removed at the end, with the calls
//! that a program would make.

use crate::args::Args;
use crate::driver::{Driver, Target, Usage};
use crate::error::{BenchError, Result};
use shoal::{Credentials, Dir, Fields, File, FileOptions, Listing, Volume};
use std::ffi::{CStr, CString, OsStr};
use std::fmt::Display;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A fresh directory in the volume behind a session.
pub(crate) struct SessionTarget {
    volume: Volume,
    top: Dir,
    scratch: Scratch,
}

/// Removes the directory when dropped, also after a failure.
struct Scratch {
    root: Dir,
    name: String,
    keep: bool,
}

impl Scratch {
    fn remove(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.keep, true) {
            return Ok(());
        }
        let removed = self.root.remove_dir_all(&self.name);
        removed.map_err(|e| BenchError::failed("removing", &self.name, e))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}

impl SessionTarget {
    /// Connects to the server of the mount that a directory is in, and makes the directory.
    pub(crate) fn prepare(args: &Args, mount: &Path) -> Result<SessionTarget> {
        let failed = |what: &str, e: shoal::Error| BenchError::failed(what, mount.display(), e);
        let volume = Volume::connect(mount).map_err(|e| failed("connecting to", e))?;
        let root = volume.root(Credentials::current());
        let name = format!("shoal-bench.{}", std::process::id());
        let top = root.create_dir(&name).map_err(|e| failed("making a directory in", e))?;
        Ok(SessionTarget { volume, top, scratch: Scratch { root, name, keep: args.keep } })
    }

    /// Removes what was made, unless it shall stay.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.scratch.remove()
    }
}

impl Target for SessionTarget {
    type Driver = SessionDriver;

    fn driver(&self) -> Result<SessionDriver> {
        Ok(SessionDriver { top: self.top.clone() })
    }

    fn settle(&self) -> Result<()> {
        self.volume.sync().map_err(|e| BenchError::failed("syncing", &self.scratch.name, e))
    }

    fn usage(&self) -> Option<Usage> {
        None
    }

    fn reused(&self) -> bool {
        false
    }
}

/// One thread's calls.
pub(crate) struct SessionDriver {
    top: Dir,
}

#[cold]
fn failed(what: &str, name: &CStr, error: impl Display) -> BenchError {
    BenchError::failed(what, name.to_string_lossy(), error)
}

/// A name as the library takes it.
fn path(name: &CStr) -> &OsStr {
    OsStr::from_bytes(name.to_bytes())
}

impl Driver for SessionDriver {
    type Dir = Dir;
    type File = File;

    fn mkdir(&mut self, name: &CStr) -> Result<()> {
        let made = self.top.create_dir(path(name));
        made.map(drop).map_err(|e| failed("making directory", name, e))
    }

    fn open_dir(&mut self, name: &CStr) -> Result<Dir> {
        self.top.open_dir(path(name)).map_err(|e| failed("opening directory", name, e))
    }

    fn create(&mut self, dir: &Dir, name: &CStr, sync: bool) -> Result<()> {
        let file = dir.create_new(path(name)).map_err(|e| failed("creating", name, e))?;
        if sync {
            file.sync_all().map_err(|e| failed("syncing", name, e))?;
        }
        Ok(())
    }

    fn write_new(&mut self, dir: &Dir, name: &CStr, data: &[u8]) -> Result<()> {
        dir.write(path(name), data).map_err(|e| failed("writing", name, e))
    }

    fn read(&mut self, dir: &Dir, name: &CStr, buf: &mut [u8]) -> Result<usize> {
        let bytes = dir.read(path(name)).map_err(|e| failed("reading", name, e))?;
        let len = bytes.len().min(buf.len());
        buf[..len].copy_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn rename(&mut self, dir: &Dir, from: &CStr, to: &CStr) -> Result<()> {
        dir.rename(path(from), path(to)).map_err(|e| failed("renaming", from, e))
    }

    fn unlink(&mut self, dir: &Dir, name: &CStr) -> Result<()> {
        dir.remove_file(path(name)).map_err(|e| failed("removing", name, e))
    }

    fn open_new(&mut self, dir: &Dir, name: &CStr, data: &[u8]) -> Result<File> {
        let options = FileOptions::new().read(true).write(true).create_new(true);
        let file = options.open(dir, path(name)).map_err(|e| failed("creating", name, e))?;
        self.write_at(&file, 0, data)?;
        Ok(file)
    }

    fn write_at(&mut self, file: &File, at: u64, data: &[u8]) -> Result<()> {
        let written = file.write_all_at(data, at);
        written.map_err(|e| BenchError::failed("writing inode", file.ino(), e))
    }

    fn open_file(&mut self, dir: &Dir, name: &CStr) -> Result<File> {
        let options = FileOptions::new().read(true).write(true);
        options.open(dir, path(name)).map_err(|e| failed("opening", name, e))
    }

    fn read_at(&mut self, file: &File, at: u64, buf: &mut [u8]) -> Result<usize> {
        let read = file.read_at(buf, at);
        read.map_err(|e| BenchError::failed("reading inode", file.ino(), e))
    }

    fn cut(&mut self, file: &File, size: u64) -> Result<()> {
        file.set_len(size).map_err(|e| BenchError::failed("cutting inode", file.ino(), e))
    }

    fn close(&mut self, file: File) -> Result<()> {
        drop(file);
        Ok(())
    }

    fn stat(&mut self, name: &CStr) -> Result<bool> {
        match self.top.metadata(path(name)) {
            Ok(found) => {
                std::hint::black_box(&found);
                Ok(true)
            }
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
            Err(e) => Err(failed("attributes of", name, e)),
        }
    }

    fn list(&mut self, name: &CStr, subdirs: &mut Vec<CString>) -> Result<u64> {
        let failed = |e: shoal::Error| failed("listing", name, e);
        let dir = self.open_dir(name)?;
        let mut listing = Listing::of(&dir).map_err(failed)?.want(Fields::ALL);
        let (mut entries, mut wrong) = (0, None);
        let listed = listing.for_each(|entry| {
            if let Err(e) = std::hint::black_box(entry.stat()) {
                wrong = Some(e);
                return ControlFlow::Break(());
            }
            if entry.kind() == shoal::FileKind::Directory {
                // Names hold no NUL, or the listing is broken.
                subdirs.extend(CString::new(entry.name()));
            }
            entries += 1;
            ControlFlow::Continue(())
        });
        listed.map_err(failed)?;
        wrong.map_or(Ok(entries), |e| Err(failed(e)))
    }

    fn inode_blocks(&mut self, _: &CStr) -> Result<Option<u64>> {
        Ok(None)
    }
}
