//! A replay by the library on a volume, as the superuser.

use super::plan::{Kind, Step};
use super::set::{Set, When};
use super::{Called, Calls, Place};
use shoal::raw::{
    Attr, Caller, Error, Fallocate, FileKind, Ino, RenameFlags, Seek, SetAttr, SetTime, Time,
    Volume, XattrFlags,
};
use std::sync::Arc;

/// Bytes written or read at a time.
const PIECE: usize = 1 << 20;
const ENOTDIR: i32 = 20;
const EOPNOTSUPP: i32 = 95;

/// Calls of one thread.
pub(crate) struct Player {
    volume: Arc<Volume>,
    who: Caller,
    buffer: Vec<u8>,
}

impl Player {
    pub(super) fn new(volume: Arc<Volume>) -> Player {
        Player { volume, who: Caller::root(), buffer: vec![0x5a; PIECE] }
    }

    /// Finds what a name in a directory leads to; an empty one, the directory.
    fn find(&self, dir: Ino, name: &[u8]) -> Called<Attr> {
        no(match name {
            b"" => self.volume.attributes().getattr(dir),
            name => self.volume.namespace().lookup(&self.who, dir, name),
        })
    }

    fn write(&self, ino: Ino, offset: u64, size: u64) -> Called {
        let mut done = 0;
        while done < size {
            let piece = &self.buffer[..PIECE.min((size - done) as usize)];
            done += no(self.volume.files().write(ino, offset + done, piece, false))? as u64;
        }
        Ok(())
    }
}

/// Returns the errno of an error.
fn no<T>(result: shoal::raw::Result<T>) -> Called<T> {
    result.map_err(|error: Error| error.errno())
}

impl Calls for Player {
    type Dir = Ino;

    fn top(&self) -> Ino {
        Ino::ROOT
    }

    fn enter(&self, dir: &Ino, name: &[u8]) -> Called<Ino> {
        let found = self.find(*dir, name)?;
        match found.kind {
            FileKind::Directory => Ok(found.ino),
            _ => Err(ENOTDIR),
        }
    }

    fn make(&mut self, dir: &Ino, name: &[u8], kind: Kind, size: u64) -> Called {
        let names = self.volume.namespace();
        match kind {
            Kind::Directory => no(names.mkdir(&self.who, *dir, name, 0o755)).map(drop),
            Kind::Symlink => no(names.symlink(&self.who, *dir, name, b"nowhere")).map(drop),
            Kind::File => {
                let made = no(names.create(&self.who, *dir, name, 0o644))?;
                self.write(made.ino, 0, size)
            }
        }
    }

    fn play(
        &mut self,
        step: &Step,
        at: Place<'_, Player>,
        to: Place<'_, Player>,
    ) -> Option<Called> {
        let (volume, Place { dir, name }) = (&self.volume, at);
        let names = volume.namespace();
        Some(match &*step.op {
            "statfs" => {
                std::hint::black_box(volume.statfs());
                Ok(())
            }
            "syncfs" => no(volume.sync()),
            "create" | "tmpfile" | "mkdir" | "mknod" | "symlink" => self.made(step, dir, name),
            "unlink" => no(names.unlink(&self.who, dir, name)),
            "rmdir" => no(names.rmdir(&self.who, dir, name)),
            "rename" | "rename2" => {
                let [noreplace, exchange, whiteout] = [1, 2, 4].map(|bit| step.flags & bit != 0);
                let flags = RenameFlags { noreplace, exchange, whiteout };
                no(names.rename(&self.who, dir, name, to.dir, to.name, flags))
            }
            "lookup" | "getattr" | "statx" | "open" => self.find(dir, name).map(drop),
            "readdir" | "readdirplus" if step.offset != 0 => Ok(()),
            _ => match self.find(dir, name) {
                Ok(found) => return self.on_file(step, found.ino, &to),
                Err(errno) => Err(errno),
            },
        })
    }
}

impl Player {
    fn made(&self, step: &Step, dir: Ino, name: &[u8]) -> Called {
        let (names, who, mode) = (self.volume.namespace(), &self.who, step.mode & 0o7777);
        let made = match &*step.op {
            "mkdir" => names.mkdir(who, dir, name, mode),
            "symlink" => names.symlink(who, dir, name, &step.text),
            "mknod" => names.mknod(who, dir, name, step.mode, step.size as u32),
            "tmpfile" => names.tmpfile(who, self.find(dir, name)?.ino, mode),
            _ => names.create(who, dir, name, mode),
        };
        no(made).map(drop)
    }

    fn on_file(&mut self, step: &Step, ino: Ino, to: &Place<'_, Player>) -> Option<Called> {
        let (volume, who) = (&self.volume, &self.who);
        Some(match &*step.op {
            "access" => no(volume.attributes().access(who, ino, step.flags & 7)),
            "readlink" => no(volume.namespace().readlink(ino)).map(drop),
            "readdir" | "readdirplus" => {
                no(volume.directories().readdirplus(ino, 0, &mut |entry, attr| {
                    std::hint::black_box((entry.cookie, attr.map(|attr| attr.size).ok()));
                    true
                }))
            }
            "link" => no(volume.namespace().link(who, ino, to.dir, to.name)).map(drop),
            "read" => {
                let size = PIECE.min(step.size as usize);
                no(volume.files().read(ino, step.offset, &mut self.buffer[..size])).map(drop)
            }
            "write" => self.write(ino, step.offset, step.size.min(PIECE as u64)),
            "fallocate" => match allocation(step.flags) {
                Some(mode) => no(volume.files().fallocate(ino, mode, step.offset, step.size)),
                None => Err(EOPNOTSUPP),
            },
            "lseek" => {
                let what = if step.flags == 3 { Seek::Data } else { Seek::Hole };
                no(volume.files().seek(ino, step.offset, what)).map(drop)
            }
            "fsync" | "fsyncdir" => no(volume.files().fsync(ino, step.flags & 1 != 0)),
            "copy_file_range" | "copy_file_range64" => self.copy(step, ino, to),
            "setattr" => self.set(step, ino),
            "setxattr" | "getxattr" | "listxattr" | "removexattr" => {
                return self.attribute(step, ino);
            }
            _ => return None,
        })
    }

    fn copy(&self, step: &Step, from: Ino, to: &Place<'_, Player>) -> Called {
        let into = self.find(to.dir, to.name)?.ino;
        let (at, len) = (step.values[0].cast_unsigned(), step.size.min(1 << 30));
        no(self.volume.files().copy_range(from, step.offset, into, at, len)).map(drop)
    }

    fn set(&self, step: &Step, ino: Ino) -> Called {
        let Set { mode, uid, gid, size, times } = Set::of(step);
        let [atime, mtime] = times.map(|time| {
            time.map(|time| match time {
                When::Now => SetTime::Now,
                When::At(sec, nsec) => SetTime::To(Time { sec, nsec }),
            })
        });
        let set = SetAttr { mode, uid, gid, size, atime, mtime, ..SetAttr::default() };
        no(self.volume.attributes().setattr(&self.who, ino, &set)).map(drop)
    }

    /// As by system calls, only a user's own attributes are played.
    fn attribute(&self, step: &Step, ino: Ino) -> Option<Called> {
        let (attributes, who, name) = (self.volume.attributes(), &self.who, &*step.text);
        if &*step.op != "listxattr" && !name.starts_with(b"user.") {
            return None;
        }
        Some(match &*step.op {
            "setxattr" => {
                let value = vec![0x5a; (step.size as usize).min(64 << 10)];
                let flags = XattrFlags {
                    create: step.flags & 1 != 0,
                    replace: step.flags & 2 != 0,
                    ..XattrFlags::default()
                };
                no(attributes.setxattr(who, ino, name, &value, flags))
            }
            "getxattr" => no(attributes.getxattr(who, ino, name)).map(drop),
            "removexattr" => no(attributes.removexattr(who, ino, name)),
            _ => no(attributes.listxattr(who, ino)).map(drop),
        })
    }
}

/// Returns the mode of an `fallocate` by the kernel's bits.
fn allocation(bits: u32) -> Option<Fallocate> {
    match bits {
        0 => Some(Fallocate::Allocate { keep_size: false }),
        1 => Some(Fallocate::Allocate { keep_size: true }),
        3 => Some(Fallocate::PunchHole),
        16 => Some(Fallocate::ZeroRange { keep_size: false }),
        17 => Some(Fallocate::ZeroRange { keep_size: true }),
        _ => None,
    }
}
