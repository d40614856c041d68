//! `shoal ls`.
//!
//! A listing is sorted, for which one directory is held in memory; with `-U` it is written batch
//! by batch as the directory is read.

use std::rc::Rc;

use shoal::{Attr, Entry, FileKind, Ino};

use crate::args::LsArgs;
use crate::failure::Result;
use crate::location::{Location, join, split_last};
use crate::output::{JsonFile, Out, device_numbers, mode_text};
use crate::progress::Progress;
use crate::session::{Access, Cursor, Listed, Session, Sessions};
use crate::{clock, failure::Reason};

/// Lists directories.
pub fn run(args: &LsArgs) -> Result<u8> {
    Sessions::run(Access::Read, |sessions| {
        let mut lister =
            Lister { args, out: Out::new(), progress: Progress::counting(), headed: false };
        for place in &args.places {
            let location = Location::parse(place);
            let session = sessions.get(&location)?;
            lister.operand(&session, &location)?;
        }
        lister.out.flush()?;
        Ok(lister.progress.finish())
    })
}

struct Lister<'a> {
    args: &'a LsArgs,
    out: Out,
    progress: Progress,
    /// A heading has been written, so that the next is set apart by an empty line.
    headed: bool,
}

impl Lister<'_> {
    fn operand(&mut self, session: &Rc<Session>, location: &Location) -> Result<()> {
        let path = &location.path;
        let entry = match session.find(path, !self.args.long && !self.args.directory) {
            Ok(entry) => entry,
            Err(error) => {
                self.progress.failure(location.label(), Reason::from(error));
                return Ok(());
            }
        };
        if entry.kind != FileKind::Directory || self.args.directory {
            return self.file(session, path, entry);
        }
        let headings = self.args.recursive || self.args.places.len() > 1;
        // Directories still to list; the next is the last.
        let mut waiting = vec![(path.clone(), entry.ino)];
        while let Some((path, ino)) = waiting.pop() {
            if headings && !self.args.json {
                self.heading(session, &path)?;
            }
            let below = self.directory(session, &path, ino)?;
            waiting.extend(below.into_iter().rev());
        }
        Ok(())
    }

    fn heading(&mut self, session: &Session, path: &[u8]) -> Result<()> {
        if self.headed {
            self.out.line("")?;
        }
        self.headed = true;
        self.out.bytes(session.path.as_os_str().as_encoded_bytes())?;
        self.out.bytes(b":")?;
        self.out.name(path)?;
        self.out.line(":")
    }

    /// Lists one directory; returns those in it that `-R` goes on to.
    fn directory(
        &mut self,
        session: &Session,
        path: &[u8],
        dir: Ino,
    ) -> Result<Vec<(Vec<u8>, Ino)>> {
        let mut below = Vec::new();
        let mut held = self.dots(session, path, dir);
        let mut cursor = Cursor::After(0);
        while cursor != Cursor::End {
            let batch = match session.list(dir, &mut cursor) {
                Ok(batch) => batch,
                Err(error) => {
                    self.progress.failure(session.label(path), Reason::from(error));
                    break;
                }
            };
            held.extend(batch.into_iter().filter(|it| self.args.all || it.name[0] != b'.'));
            if self.args.unsorted {
                self.entries(session, path, &held, &mut below)?;
                held.clear();
            }
        }
        held.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        self.entries(session, path, &held, &mut below)?;
        Ok(below)
    }

    /// The entries `.` and `..`, if asked for.
    fn dots(&mut self, session: &Session, path: &[u8], dir: Ino) -> Vec<Listed> {
        if !self.args.all {
            return Vec::new();
        }
        let volume = &session.volume;
        let attrs =
            volume.getattr(dir).and_then(|own| Ok((own, volume.getattr(volume.parent_of(dir)?)?)));
        match attrs {
            Ok((own, parent)) => vec![
                Listed { name: Box::from(&b"."[..]), attr: own },
                Listed { name: Box::from(&b".."[..]), attr: parent },
            ],
            Err(error) => {
                self.progress.failure(session.label(path), Reason::from(error));
                Vec::new()
            }
        }
    }

    fn entries(
        &mut self,
        session: &Session,
        path: &[u8],
        entries: &[Listed],
        below: &mut Vec<(Vec<u8>, Ino)>,
    ) -> Result<()> {
        let widths = Widths::of(entries);
        for Listed { name, attr } in entries {
            let is_dot = **name == *b"." || **name == *b"..";
            if self.args.recursive && attr.kind == FileKind::Directory && !is_dot {
                below.push((join(path, name), attr.ino));
            }
            // A file's whole path is needed only where it is shown.
            let full = if self.args.json { join(path, name) } else { Vec::new() };
            self.entry(session, &full, name, attr, &widths)?;
        }
        Ok(())
    }

    /// An operand that is no directory, under the name it was given by.
    fn file(&mut self, session: &Session, path: &[u8], attr: Entry) -> Result<()> {
        let name: Box<[u8]> = if self.args.json {
            split_last(path).name.into()
        } else {
            session.label(path).into_bytes().into()
        };
        let listed = [Listed { name, attr }];
        let widths = Widths::of(&listed);
        self.entry(session, path, &listed[0].name, &attr, &widths)
    }

    fn entry(
        &mut self,
        session: &Session,
        path: &[u8],
        name: &[u8],
        attr: &Attr,
        widths: &Widths,
    ) -> Result<()> {
        let target = if self.args.json || self.args.long {
            session.target(attr).unwrap_or_else(|error| {
                self.progress.failure(session.label(path), Reason::from(error));
                None
            })
        } else {
            None
        };
        if self.args.json {
            return self.out.json(&JsonFile::new(path, name, attr, target.as_deref()));
        }
        if self.args.long {
            self.out.bytes(widths.columns(attr).as_bytes())?;
        }
        self.out.name(name)?;
        if let Some(target) = target {
            self.out.bytes(b" -> ")?;
            self.out.name(&target)?;
        }
        self.out.line("")
    }
}

/// Widths of the columns of a long listing.
#[derive(Default)]
struct Widths {
    nlink: usize,
    uid: usize,
    gid: usize,
    size: usize,
}

impl Widths {
    fn of(entries: &[Listed]) -> Widths {
        let digits = |number: u64| number.checked_ilog10().map_or(1, |log| log as usize + 1);
        let mut widths = Widths::default();
        for Listed { attr, .. } in entries {
            widths.nlink = widths.nlink.max(digits(attr.nlink.into()));
            widths.uid = widths.uid.max(digits(attr.uid.into()));
            widths.gid = widths.gid.max(digits(attr.gid.into()));
            widths.size = widths.size.max(size_column(attr).len());
        }
        widths
    }

    fn columns(&self, attr: &Attr) -> String {
        format!(
            "{} {:>nlink$} {:>uid$} {:>gid$} {:>size$} {} ",
            mode_text(attr),
            attr.nlink,
            attr.uid,
            attr.gid,
            size_column(attr),
            clock::minutes(attr.mtime),
            nlink = self.nlink,
            uid = self.uid,
            gid = self.gid,
            size = self.size,
        )
    }
}

/// The size, or a device's numbers.
fn size_column(attr: &Attr) -> String {
    match device_numbers(attr) {
        Some([major, minor]) => format!("{major}, {minor}"),
        None => attr.size.to_string(),
    }
}
