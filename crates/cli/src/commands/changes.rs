//! `shoal changes`: what has changed below a directory since a mark; and `shoal watch`: the same,
//! as it happens.
//!
//! The mark for the next call is printed, or stored, only when everything has been written.

use std::cell::OnceCell;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use shoal::raw::{Change, ChangeKind, ChangeMark, ChangedName, Code, Error, FileKind};

use crate::args::{ChangesArgs, Keep, WatchArgs};
use crate::failure::{Failure, OK, Reason, Result, SOME_FAILED};
use crate::feed;
use crate::interrupt;
use crate::json::Object;
use crate::location::join;
use crate::marks;
use crate::output::Out;
use crate::progress::eprint_line;
use crate::session::{Access, Found, Open, Sessions};
use crate::start;
use crate::text::kind_name;
use crate::tree::{Operand, Tree};
use crate::walk::{Options, Step, Walk};

/// Pauses between two looks of `watch`: after a change the first, then ever longer up to the
/// second.
const PAUSES: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(500)];

/// Shows changes, makes a mark, or switches the keeping of removed names.
pub(crate) fn run(args: &ChangesArgs) -> Result<u8> {
    let access = if args.keep_removed.is_some() { Access::Write } else { Access::Read };
    Sessions::run(access, |sessions| {
        let place = open(sessions, access, &args.place)?;
        if let Some(keep) = args.keep_removed {
            return keep_removed(&place, keep);
        }
        let form = match () {
            () if args.json => Form::Json,
            () if args.files_from => Form::FilesFrom,
            () if args.removed => Form::Removed,
            () => Form::Lines,
        };
        let feed = Feed { place: &place, dir: OnceCell::new(), form, null: args.null };
        let mut out = Out::new();
        if args.now {
            let mark = feed.mark()?;
            out.line(&mark.to_string())?;
            out.flush()?;
            return Ok(OK);
        }
        let since = marks::read(args.since.as_deref(), args.mark_file.as_deref())?;
        let (_, end) = feed.tell(&mut out, since.as_ref())?;
        feed.end(&mut out, &end, args.mark_file.is_some())?;
        out.flush()?;
        if let Some(file) = &args.mark_file {
            marks::replace(file, &end.mark)?;
        }
        if end.all_removed {
            return Ok(OK);
        }
        feed.warn();
        Ok(if args.removed { SOME_FAILED } else { OK })
    })
}

/// Shows changes as they happen.
pub(crate) fn watch(args: &WatchArgs) -> Result<u8> {
    Sessions::run(Access::Read, |sessions| {
        let place = open(sessions, Access::Read, &args.place)?;
        if let Tree::Volume(start) = &place.tree
            && start.session.direct().is_some()
        {
            let what = "nothing changes in a volume that is not mounted: mount it, and watch a \
                directory there; 'shoal changes' shows the changes since a mark";
            return Err(Failure::usage(place.label(), what));
        }
        interrupt::defer();
        let form = if args.json { Form::Json } else { Form::Lines };
        let feed = Feed { place: &place, dir: OnceCell::new(), form, null: args.null };
        let mark = match marks::read(args.since.as_deref(), args.mark_file.as_deref())? {
            Some(mark) => mark,
            None => feed.mark()?,
        };
        let mark = feed.watch(args, mark)?;
        match &args.mark_file {
            Some(file) => marks::replace(file, &mark)?,
            None => eprint_line(&format!("{}: mark {mark}", place.label())),
        }
        Ok(OK)
    })
}

/// Opens the directory of which changes are told.
fn open(sessions: &mut Sessions, access: Access, place: &std::ffi::OsStr) -> Result<Operand> {
    let opened = Operand::open(sessions, access, place, true)?;
    let place =
        opened.map_err(|missing| Failure::failed(missing.label, Reason::Volume(missing.error)))?;
    match place.attr.kind {
        FileKind::Directory => Ok(place),
        _ => {
            let error = Code::NotDirectory.into();
            Err(Failure::failed(place.label(), Reason::Volume(error)))
        }
    }
}

fn keep_removed(place: &Operand, keep: Keep) -> Result<u8> {
    let kept = place.tree.needs_start().and_then(|start| {
        let session = &start.session;
        session.calls().keep_removed(&session.who, keep == Keep::On)
    });
    kept.map(|()| OK).map_err(|error| Failure::failed(place.label(), Reason::Volume(error)))
}

/// Form of the output.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Lines,
    Json,
    FilesFrom,
    Removed,
}

/// The end of the changes.
struct ChangesEnd {
    /// The mark for the next call.
    mark: ChangeMark,
    /// All removed names have been told.
    all_removed: bool,
}

struct Feed<'f> {
    place: &'f Operand,
    /// It is opened once: it may get another name.
    dir: OnceCell<Arc<Open>>,
    form: Form,
    null: bool,
}

impl Feed<'_> {
    fn failed(&self, error: shoal::raw::Error) -> Failure {
        Failure::failed(self.place.label(), Reason::Volume(error))
    }

    /// The changes of the place since a mark.
    fn of(&self, since: Option<&ChangeMark>) -> Result<feed::Feed<'_>> {
        let start = self.place.tree.needs_start().map_err(|error| self.failed(error))?;
        let dir = match self.dir.get() {
            Some(dir) => dir.clone(),
            None => {
                let (path, ino) = (start.real(&self.place.path), self.place.attr.ino);
                let dir = start.session.open_dir(&path, Some(ino));
                let dir = dir.map_err(|error| self.failed(error))?;
                self.dir.get_or_init(|| Arc::new(dir)).clone()
            }
        };
        Ok(feed::Feed { session: &start.session, dir, since: since.copied() })
    }

    fn warn(&self) {
        eprint_line(&format!(
            "{}: removed names since the mark may be missing: compare the directories that are \
             listed (shoal changes VOLUME --keep-removed on keeps the names from then on)",
            self.place.label()
        ));
    }

    fn mark(&self) -> Result<ChangeMark> {
        self.of(None)?.mark().map_err(|error| self.failed(error))
    }

    /// Writes what has changed since a mark. Returns whether there was anything, and the end. No
    /// removed name is missing if no directory is told: it would be gone from one.
    fn tell(&self, out: &mut Out, since: Option<&ChangeMark>) -> Result<(bool, ChangesEnd)> {
        let (mut told, mut has_dirs) = (false, false);
        let read = self.of(since)?.pass(&mut |change| {
            told = true;
            has_dirs |= change.file == Some(FileKind::Directory);
            self.change(out, change)
        })?;
        let (mark, all_removed) = read.map_err(|error| self.failed(full(error)))?;
        Ok((told, ChangesEnd { mark, all_removed: all_removed || !has_dirs }))
    }

    /// Writes changes as they happen, until the command is interrupted or has waited long enough.
    /// Returns the last mark.
    fn watch(&self, args: &WatchArgs, mut mark: ChangeMark) -> Result<ChangeMark> {
        let start = self.place.tree.needs_start().map_err(|error| self.failed(error))?;
        let (calls, who) = (start.session.calls(), &start.session.who);
        let mut out = Out::new();
        let end = args.timeout.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        let (mut pause, mut warned) = (PAUSES[0], false);
        loop {
            if calls.is_newer(who, mark).map_err(|error| self.failed(error))? {
                let (told, now) = self.tell(&mut out, Some(&mark))?;
                mark = now.mark;
                if told && self.form == Form::Json {
                    self.end(&mut out, &now, false)?;
                }
                out.flush()?;
                if let Some(file) = args.mark_file.as_ref().filter(|_| told) {
                    marks::replace(file, &mark)?;
                }
                if !now.all_removed && !std::mem::replace(&mut warned, true) {
                    self.warn();
                }
                if told && args.once {
                    return Ok(mark);
                }
                if told {
                    pause = PAUSES[0];
                }
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if interrupt::pending().is_some() || left == Some(Duration::ZERO) {
                return Ok(mark);
            }
            sleep(left.map_or(pause, |left| pause.min(left)));
            pause = (2 * pause).min(PAUSES[1]);
        }
    }

    fn change(&self, out: &mut Out, change: &Change) -> Result<()> {
        let letter: &[u8] = match change.kind {
            ChangeKind::Created => b"A",
            ChangeKind::Changed => b"M",
            ChangeKind::Renamed => b"R",
            ChangeKind::Removed => b"D",
        };
        match self.form {
            Form::Json => out.json(object(change)),
            Form::FilesFrom => self.to_copy(out, change),
            Form::Removed => {
                let gone = match change.kind {
                    ChangeKind::Removed => change.names.first(),
                    _ => change.from.as_ref(),
                };
                gone.map_or(Ok(()), |name| self.fields(out, &[&name.path()]))
            }
            Form::Lines => {
                let from = change.from.as_ref().map(ChangedName::path).unwrap_or_default();
                change.names.iter().map(ChangedName::path).try_for_each(|path| match change.kind {
                    ChangeKind::Renamed => self.fields(out, &[letter, &from, &path]),
                    _ => self.fields(out, &[letter, &path]),
                })
            }
        }
    }

    fn to_copy(&self, out: &mut Out, change: &Change) -> Result<()> {
        if change.kind == ChangeKind::Removed {
            return Ok(());
        }
        for path in change.names.iter().map(ChangedName::path) {
            self.fields(out, &[&path])?;
            let whole = change.kind == ChangeKind::Renamed;
            if whole && change.file == Some(FileKind::Directory) {
                self.everything_in(out, change, &path)?;
            }
        }
        Ok(())
    }

    fn everything_in(&self, out: &mut Out, dir: &Change, path: &[u8]) -> Result<()> {
        let (name, kind) = (Box::default(), FileKind::Directory);
        let top = Found { name, ino: dir.ino, kind, attr: None, failed: None };
        let below = join(&self.place.path, path);
        let options = Options { names_only: true, ..Options::default() };
        Walk::through(self.place.tree.source(), (top, &below), options, |walk| {
            while let Some(step) = walk.step() {
                match step {
                    Step::Found(_) => {
                        let path = start::below(&self.place.path, walk.path());
                        self.fields(out, &[path])?;
                    }
                    // Removed or moved meanwhile: the next call tells.
                    Step::Failed(error) if matches!(error.code(), Code::NotFound | Code::Stale) => {
                    }
                    Step::Failed(error) => return Err(self.failed(error)),
                    Step::Left(_) => {}
                }
            }
            Ok(())
        })
    }

    /// Writes a line of fields.
    fn fields(&self, out: &mut Out, fields: &[&[u8]]) -> Result<()> {
        for (at, field) in fields.iter().enumerate() {
            match self.null {
                true => out.bytes(field)?,
                false => out.name(field)?,
            }
            let is_last = at + 1 == fields.len();
            out.bytes(match (self.null, is_last) {
                (true, _) => b"\0",
                (false, true) => b"\n",
                (false, false) => b"\t",
            })?;
        }
        Ok(())
    }

    fn end(&self, out: &mut Out, end: &ChangesEnd, is_stored: bool) -> Result<()> {
        let text = end.mark.to_string();
        match self.form {
            Form::Json => {
                out.json(Object::new().put("mark", text).put("all_removed", end.all_removed))
            }
            Form::Lines if !is_stored => self.fields(out, &[b"mark", text.as_bytes()]),
            _ => Ok(()),
        }
    }
}

/// Adds the remedy to the refusal of a mark.
fn full(error: Error) -> Error {
    let why = match error.code() {
        Code::CrossRoot => "the mark is of another volume or subvolume",
        Code::Stale => "the mark is from before a repair, or from the future",
        _ => return error,
    };
    Error::refused(error.code(), format!("{why}: a full scan is needed: call it without a mark"))
}

fn object(change: &Change) -> Object {
    let kind = match change.kind {
        ChangeKind::Created => "created",
        ChangeKind::Changed => "changed",
        ChangeKind::Renamed => "renamed",
        ChangeKind::Removed => "removed",
    };
    let paths: Vec<_> = change.names.iter().map(ChangedName::path).collect();
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
