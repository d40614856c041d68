//! `shoal find`.

use std::os::unix::ffi::OsStrExt;

use shoal::{Attr, FileKind};

use crate::args::{FindArgs, TypeFilter};
use crate::failure::{Reason, Result};
use crate::glob;
use crate::location::{Location, split_last};
use crate::output::{JsonFile, Out};
use crate::progress::Progress;
use crate::session::{Access, Session, Sessions};
use crate::walk::{Step, Walk};

/// Finds files.
pub fn run(args: &FindArgs) -> Result<u8> {
    Sessions::run(Access::Read, |sessions| {
        let mut finder = Finder { args, out: Out::new(), progress: Progress::counting() };
        for place in &args.places {
            let location = Location::parse(place);
            let session = sessions.get(&location)?;
            finder.tree(&session, &location)?;
        }
        finder.out.flush()?;
        Ok(finder.progress.finish())
    })
}

struct Finder<'a> {
    args: &'a FindArgs,
    out: Out,
    progress: Progress,
}

impl Finder<'_> {
    fn tree(&mut self, session: &Session, location: &Location) -> Result<()> {
        let path = &location.path;
        let top = match session.find(path, false) {
            Ok(top) => top,
            Err(error) => {
                self.progress.failure(location.label(), Reason::from(error));
                return Ok(());
            }
        };
        self.file(session, path, split_last(path).name, &top)?;
        if top.kind != FileKind::Directory {
            return Ok(());
        }
        let mut walk = Walk::new(session, top.ino, path);
        while let Some(step) = walk.step() {
            match step {
                Step::Found(entry) => {
                    self.file(session, walk.path(), &entry.name, &entry.attr)?;
                }
                Step::Failed(error) => {
                    self.progress.failure(session.label(walk.path()), Reason::from(error));
                }
            }
        }
        Ok(())
    }

    fn file(&mut self, session: &Session, path: &[u8], name: &[u8], attr: &Attr) -> Result<()> {
        let type_fits = self.args.kind.is_none_or(|filter| kind(filter) == attr.kind);
        // The top directory has no name of its own.
        let name = if name.is_empty() { b"/" } else { name };
        let name_fits =
            self.args.name.as_ref().is_none_or(|pattern| glob::matches(pattern.as_bytes(), name));
        if !type_fits || !name_fits {
            return Ok(());
        }
        if self.args.json {
            let target = session.target(attr).unwrap_or_else(|error| {
                self.progress.failure(session.label(path), Reason::from(error));
                None
            });
            return self.out.json(&JsonFile::new(path, name, attr, target.as_deref()));
        }
        if self.args.null {
            self.out.bytes(path)?;
            return self.out.bytes(b"\0");
        }
        self.out.name(path)?;
        self.out.line("")
    }
}

fn kind(filter: TypeFilter) -> FileKind {
    match filter {
        TypeFilter::Regular => FileKind::Regular,
        TypeFilter::Directory => FileKind::Directory,
        TypeFilter::Symlink => FileKind::Symlink,
        TypeFilter::Fifo => FileKind::Fifo,
        TypeFilter::Socket => FileKind::Socket,
        TypeFilter::CharDevice => FileKind::CharDevice,
        TypeFilter::BlockDevice => FileKind::BlockDevice,
    }
}
