//! `shoal changes`: what has changed below a directory since a mark.
//!
//! The mark for the next call is printed, or stored, only when everything has been written.

use std::os::unix::ffi::OsStrExt;

use shoal::raw::{Change, ChangeKind, ChangeMark, ChangedName, FileKind, Ino};

use crate::args::{ChangesArgs, Keep};
use crate::failure::{Failure, OK, Reason, Result, SOME_FAILED};
use crate::json::Object;
use crate::location::{Location, Place};
use crate::marks;
use crate::output::Out;
use crate::progress::eprint_line;
use crate::session::{Access, Cursor, Session};
use crate::text::{kind_name, printable};

/// Changes that are read at a time.
const BATCH: usize = 4096;

/// Shows changes, makes a mark, or switches the keeping of removed names.
pub fn run(args: &ChangesArgs) -> Result<u8> {
    let location = match Place::parse(&args.place) {
        Place::Volume(location) => location,
        Place::Local(path) if path.is_dir() => {
            let label = printable(path.as_os_str().as_bytes()).into_owned();
            let what = "changes are read from a volume that is not mounted: write VOLUME:/path";
            return Err(Failure::usage(label, what));
        }
        Place::Local(_) => Location::parse(&args.place),
    };
    let access = if args.keep_removed.is_some() { Access::Write } else { Access::Read };
    Session::with(&location.volume, access, |session| {
        let feed = Feed { session, location: &location, args };
        let found = session.find(&location.path, true).map_err(|error| feed.failed(error))?;
        if let Some(keep) = args.keep_removed {
            let kept = session.volume.changes().keep_removed(&session.who, keep == Keep::On);
            return kept.map(|()| OK).map_err(|error| feed.failed(error));
        }
        match args.now {
            true => feed.now(found.ino),
            false => feed.tell(found.ino),
        }
    })
}

struct Feed<'f> {
    session: &'f Session,
    location: &'f Location,
    args: &'f ChangesArgs,
}

impl Feed<'_> {
    fn failed(&self, error: shoal::raw::Error) -> Failure {
        Failure::failed(self.location.label(), Reason::Volume(error))
    }

    fn now(&self, dir: Ino) -> Result<u8> {
        let mark = self.session.volume.changes().mark(dir).map_err(|error| self.failed(error))?;
        let mut out = Out::new();
        out.line(&mark.to_string())?;
        out.flush()?;
        Ok(OK)
    }

    fn tell(&self, dir: Ino) -> Result<u8> {
        let since = marks::read(self.args.since.as_deref(), self.args.mark_file.as_deref())?;
        let changes = self.session.volume.changes();
        let reader = changes.since(&self.session.who, dir, since.as_ref());
        let mut reader = reader.map_err(|error| self.failed(error))?;
        let mut out = Out::new();
        loop {
            let batch = changes.next(&mut reader, BATCH).map_err(|error| self.failed(error))?;
            if batch.is_empty() {
                break;
            }
            batch.iter().try_for_each(|change| self.change(&mut out, change))?;
        }
        let (mark, all) = (reader.mark(), reader.has_all_removed());
        self.end(&mut out, mark, all)?;
        out.flush()?;
        if let Some(file) = &self.args.mark_file {
            marks::replace(file, &mark)?;
        }
        if all {
            return Ok(OK);
        }
        let place = self.location.label();
        eprint_line(&format!(
            "{place}: not all removed names since the mark are known: compare the directories that \
             are told (--keep-removed on keeps them from then on)"
        ));
        Ok(if self.args.removed { SOME_FAILED } else { OK })
    }

    fn change(&self, out: &mut Out, change: &Change) -> Result<()> {
        let args = self.args;
        if args.json {
            return out.json(object(change));
        }
        if args.files_from {
            return self.to_copy(out, change);
        }
        if args.removed {
            let gone = match change.kind {
                ChangeKind::Removed => change.names.first(),
                _ => change.from.as_ref(),
            };
            return gone.map_or(Ok(()), |name| self.fields(out, &[&name.path()]));
        }
        let letter: &[u8] = match change.kind {
            ChangeKind::Created => b"A",
            ChangeKind::Changed => b"M",
            ChangeKind::Renamed => b"R",
            ChangeKind::Removed => b"D",
        };
        let from = change.from.as_ref().map(ChangedName::path).unwrap_or_default();
        change.names.iter().try_for_each(|name| match change.kind {
            ChangeKind::Renamed => self.fields(out, &[letter, &from, &name.path()]),
            _ => self.fields(out, &[letter, &name.path()]),
        })
    }

    fn to_copy(&self, out: &mut Out, change: &Change) -> Result<()> {
        if change.kind == ChangeKind::Removed {
            return Ok(());
        }
        for name in &change.names {
            self.fields(out, &[&name.path()])?;
            let whole = change.kind == ChangeKind::Renamed;
            if whole && change.file == Some(FileKind::Directory) {
                self.everything_in(out, change.ino, name.path())?;
            }
        }
        Ok(())
    }

    fn everything_in(&self, out: &mut Out, dir: Ino, path: Vec<u8>) -> Result<()> {
        let mut stack = vec![(dir, path)];
        while let Some((dir, path)) = stack.pop() {
            let mut cursor = Cursor::After(0);
            while cursor != Cursor::End {
                let listed = self.session.list_names(dir, &mut cursor);
                for entry in listed.map_err(|error| self.failed(error))? {
                    let below = [&path[..], b"/", &entry.name].concat();
                    self.fields(out, &[&below])?;
                    if entry.kind == FileKind::Directory {
                        stack.push((entry.ino, below));
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes a line of fields.
    fn fields(&self, out: &mut Out, fields: &[&[u8]]) -> Result<()> {
        for (at, field) in fields.iter().enumerate() {
            match self.args.null {
                true => out.bytes(field)?,
                false => out.name(field)?,
            }
            let is_last = at + 1 == fields.len();
            out.bytes(match (self.args.null, is_last) {
                (true, _) => b"\0",
                (false, true) => b"\n",
                (false, false) => b"\t",
            })?;
        }
        Ok(())
    }

    fn end(&self, out: &mut Out, mark: ChangeMark, all_removed: bool) -> Result<()> {
        let text = mark.to_string();
        if self.args.json {
            return out.json(Object::new().put("mark", text).put("all_removed", all_removed));
        }
        let is_list = self.args.files_from || self.args.removed;
        match self.args.mark_file.is_some() || is_list {
            true => Ok(()),
            false => self.fields(out, &[b"mark", text.as_bytes()]),
        }
    }
}

fn object(change: &Change) -> Object {
    let kind = match change.kind {
        ChangeKind::Created => "created",
        ChangeKind::Changed => "changed",
        ChangeKind::Renamed => "renamed",
        ChangeKind::Removed => "removed",
    };
    let paths: Vec<Vec<u8>> = change.names.iter().map(ChangedName::path).collect();
    let object = Object::new()
        .put("kind", kind)
        .put("inode", change.ino.0)
        .put("generation", change.generation.0)
        .put_some("type", change.file.map(kind_name))
        .put_names("paths", paths.iter().map(|path| &path[..]));
    let object = match &change.from {
        Some(from) => object.put_name("from", &from.path()),
        None => object,
    };
    object.put("more", change.more)
}
