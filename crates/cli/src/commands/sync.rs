//! `shoal sync`: of a mount to the disk; or one directory made the same as another.
//!
//! Where the source is in a volume, DEST keeps the mark of the last sync: until when it is the
//! same. The mark is removed before everything is compared, and set when all of it is done without
//! a failure; so it never says more than what is there.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use shoal::raw::{ChangeKind, ChangeMark, Code, FileKind, Ino};

use crate::args::SyncArgs;
use crate::commands::cp::involume::InVolume;
use crate::commands::cp::local::{self, Local};
use crate::commands::cp::mirror::{Choices, Counts, Mirror};
use crate::commands::cp::raise_file_limit;
use crate::commands::cp::side::{Id, Outcome, Side};
use crate::commands::mount;
use crate::failure::{Failure, OK, Reason, Result};
use crate::feed::{Feed, Unsure, relative};
use crate::json::Object;
use crate::location::Place;
use crate::output::Out;
use crate::progress::eprint_line;
use crate::session::{Access, Session, Sessions};
use crate::size::human;

/// First word of a mark.
const FORMAT: &str = "1";

/// Syncs a mount, or a directory with another.
pub(crate) fn run(args: &SyncArgs) -> Result<u8> {
    let Some(destination) = &args.destination else {
        return mount::sync(Path::new(&args.source));
    };
    raise_file_limit();
    let source = Place::parse(&args.source);
    match Place::parse(destination) {
        Place::Local(path) => Sessions::run(Access::Read, |sessions| {
            let path = path.as_os_str().as_bytes();
            from(args, sessions, &source, &Local::new(), path, Vec::new())
        }),
        Place::Volume(place) => Sessions::run(Access::Write, |sessions| {
            let session = sessions.get(&place)?;
            let shunned = volume_file(&session);
            let target = InVolume::new(session);
            from(args, sessions, &source, &target, &place.path, shunned)
        }),
    }
}

/// The file of a volume, which is neither copied nor replaced.
fn volume_file(session: &Session) -> Vec<Id> {
    local::identify(session.path.as_os_str().as_bytes()).into_iter().collect()
}

/// Opens the source.
fn from<T: Side>(
    args: &SyncArgs,
    sessions: &mut Sessions,
    source: &Place,
    target: &T,
    path: &[u8],
    mut shunned: Vec<Id>,
) -> Result<u8> {
    match source {
        Place::Local(from) => {
            let from = from.as_os_str().as_bytes();
            let pair = Pair { args, source: &Local::new(), target, tops: (from, path), shunned };
            pair.run(None)
        }
        Place::Volume(place) => {
            // The destination's volume is open for writing by now.
            let session = sessions.get_for(place, Access::Read)?;
            shunned.extend(volume_file(&session));
            let source = InVolume::new(Arc::clone(&session));
            let pair = Pair { args, source: &source, target, tops: (&place.path, path), shunned };
            pair.run(Some(&session))
        }
    }
}

/// The two directories.
struct Pair<'a, S: Side, T: Side> {
    args: &'a SyncArgs,
    source: &'a S,
    target: &'a T,
    tops: (&'a [u8], &'a [u8]),
    shunned: Vec<Id>,
}

/// Way to find what differs.
enum Way {
    /// Changes since the mark of the last sync, and what else they may mean.
    Changes(Unsure),
    /// A comparison of everything, and why, if there was a mark.
    Full(Option<String>),
}

impl<S: Side, T: Side> Pair<'_, S, T> {
    fn run(self, session: Option<&Session>) -> Result<u8> {
        let args = self.args;
        let at_source = |reason| Failure::usage(self.source.label(self.tops.0), reason);
        let at_target = |reason| Failure::usage(self.target.label(self.tops.1), reason);
        let from = self.source.directory(self.tops.0).map_err(at_source)?;
        let to = self.destination().map_err(at_target)?;
        self.check(&from, to.as_ref())?;
        let feed = match session {
            Some(session) => {
                let found = session.place(self.tops.0, true);
                let dir = found.and_then(|(found, path)| session.open_dir(&path, Some(found.ino)));
                let dir = dir.map_err(|error| at_source(error.into()))?;
                let stamp = Stamp::new(args, dir.attr.ino.0, dir.attr.generation.0);
                Some((Feed { session, dir: Arc::new(dir), since: None }, stamp))
            }
            None => None,
        };
        let choices = Choices {
            delete: args.delete,
            dry_run: args.dry_run,
            checksum: args.checksum,
            verbose: args.verbose || args.dry_run,
            exclude: &args.exclude,
        };
        let (source, target) = (self.source, self.target);
        let mut mirror = Mirror::new(source, target, self.tops, choices, self.shunned.clone());
        let Some((mut feed, stamp)) = feed else {
            mirror.all(from, to)?;
            let (counts, status) = mirror.finish()?;
            return self.end(&Way::Full(None), &counts, status);
        };
        let stored = to.as_ref().map_or(Ok(None), |to| target.sync_mark(to)).map_err(at_target)?;
        let way = self.way(&mut feed, &stamp, stored.as_deref());
        let (mark, told) = match &way {
            Way::Changes(unsure) => {
                let (mark, told) = self.changes(&feed, unsure, &mut mirror)?;
                (Some(mark), told)
            }
            Way::Full(_) => {
                // What changes during the comparison is told after this mark.
                let mark = match feed.has_subvolumes() {
                    false => feed.mark().ok(),
                    true => None,
                };
                if let (Some(to), Some(_), false) = (&to, &stored, args.dry_run) {
                    target.set_sync_mark(to, None).map_err(at_target)?;
                }
                mirror.all(from, to)?;
                (mark, true)
            }
        };
        let (counts, status) = mirror.finish()?;
        if let (Some(mark), true, false, OK) = (mark, told, args.dry_run, status) {
            let kept = target.directory(self.tops.1);
            let kept = kept.and_then(|to| target.set_sync_mark(&to, Some(&stamp.text(&mark))));
            if let (Err(reason), true) = (kept, args.verbose || args.stats) {
                let label = target.label(self.tops.1);
                eprint_line(&format!("{label}: keeps no mark, so all is compared again: {reason}"));
            }
        }
        self.end(&way, &counts, status)
    }

    /// Opens the destination, and makes it if it is missing; `None` if it may not be made.
    fn destination(&self) -> Outcome<Option<T::Dir>> {
        match self.target.directory(self.tops.1) {
            Ok(to) => Ok(Some(to)),
            Err(reason) if !reason.is(Code::NotFound) => Err(reason),
            Err(_) if self.args.dry_run => Ok(None),
            Err(_) => {
                let place = self.target.place(self.tops.1)?;
                self.target.make_dir(&place.dir, &place.name).map(Some)
            }
        }
    }

    /// Refuses directories of which one would be copied into itself, or removed with what is not in
    /// the other.
    fn check(&self, from: &S::Dir, to: Option<&T::Dir>) -> Result<()> {
        let Some(to) = to else { return Ok(()) };
        let checked = || -> Outcome<(bool, bool)> {
            let (source, target) =
                (self.source.stat(from, b".", false)?, self.target.stat(to, b".", false)?);
            Ok((self.target.is_inside(to, source.id)?, self.source.is_inside(from, target.id)?))
        };
        let label = || self.target.label(self.tops.1);
        match checked().map_err(|reason| Failure::usage(label(), reason))? {
            (false, false) => Ok(()),
            _ => Err(Failure::usage(label(), "is the source, in it, or around it")),
        }
    }

    /// Decides how to find what differs.
    fn way(&self, feed: &mut Feed<'_>, stamp: &Stamp, stored: Option<&[u8]>) -> Way {
        let Some(stored) = stored.filter(|_| !self.args.full && !self.args.checksum) else {
            return Way::Full(None);
        };
        let Some(mark) = stamp.mark(stored) else {
            return Way::Full(Some("the mark is of another directory or other options".into()));
        };
        feed.since = Some(mark);
        match (feed.gap(), feed.unsure()) {
            (Some(why), _) => Way::Full(Some(why.into())),
            (None, Ok(unsure)) => Way::Changes(unsure),
            (None, Err(error)) => Way::Full(Some(error.to_string())),
        }
    }

    /// Compares what has changed; returns the mark of the changes, and whether there were any.
    fn changes(
        &self,
        feed: &Feed<'_>,
        unsure: &Unsure,
        mirror: &mut Mirror<'_, S, T>,
    ) -> Result<(ChangeMark, bool)> {
        let mut told = false;
        let failed = |error| Failure::failed(self.source.label(self.tops.0), Reason::Volume(error));
        let read = feed.pass(&mut |change| {
            told = true;
            let is_dir = change.file == Some(FileKind::Directory);
            if let Some(from) = &change.from {
                mirror.gone(&relative(from.path()))?;
            }
            let mut paths: Vec<_> = change.names.iter().map(|it| relative(it.path())).collect();
            paths.retain(|path| !unsure.is_covered(path));
            if change.kind == ChangeKind::Removed {
                return paths.iter().try_for_each(|path| mirror.gone(path));
            }
            if paths.len() > 1 {
                // A new name becomes a link to the copy that is there.
                let mut there = Vec::new();
                for path in paths {
                    there.push((!mirror.has_copy(&path)?, path));
                }
                there.sort();
                paths = there.into_iter().map(|(_, path)| path).collect();
            }
            let is_renamed = change.kind == ChangeKind::Renamed;
            let whole = |path: &[u8]| is_dir && (is_renamed || unsure.is_whole(path));
            paths.iter().try_for_each(|path| mirror.one(path, whole(path)))
        })?;
        let (mark, _) = read.map_err(failed)?;
        self.links(feed, mirror)?;
        // Directories last: what is made in them has changed their times.
        let read = feed.pass(&mut |change| {
            let is_there = change.kind != ChangeKind::Removed;
            if !is_there || change.file != Some(FileKind::Directory) {
                return Ok(());
            }
            for path in change.names.iter().map(|name| relative(name.path())) {
                let is_done = unsure.is_covered(&path) || unsure.is_whole(&path);
                if unsure.has_missing() && !is_done {
                    mirror.extras(&path)?;
                }
                mirror.dir(&path)?;
            }
            Ok(())
        })?;
        read.map_err(failed)?;
        Ok((mark, told))
    }

    /// Links other names of files to the copies that were made of them with a whole directory: such
    /// names are not told, as the files have not changed.
    fn links(&self, feed: &Feed<'_>, mirror: &mut Mirror<'_, S, T>) -> Result<()> {
        let failed = |error| Failure::failed(self.source.label(self.tops.0), Reason::Volume(error));
        let linked = mirror.take_linked();
        if linked.is_empty() {
            return Ok(());
        }
        let paths_of = |ino| feed.session.calls().paths_of(&feed.session.who, ino).map_err(failed);
        let top = match feed.dir.attr.ino {
            Ino::ROOT => Some(Vec::new()),
            dir => paths_of(dir)?.into_iter().next(),
        };
        // Removed meanwhile, it could not have been read.
        let Some(top) = top else { return Ok(()) };
        for inode in linked {
            for path in paths_of(Ino(inode))? {
                let path = path.strip_prefix(&top[..]).and_then(|path| path.strip_prefix(b"/"));
                if let Some(path) = path.filter(|path| !mirror.is_in_whole(path)) {
                    mirror.one(path, false)?;
                }
            }
        }
        Ok(())
    }

    fn end(&self, way: &Way, counts: &Counts, status: u8) -> Result<u8> {
        let args = self.args;
        if let Way::Full(Some(why)) = way {
            let label = self.target.label(self.tops.1);
            eprint_line(&format!("{label}: everything was compared: {why}"));
        }
        if !(args.verbose || args.stats || args.dry_run) {
            return Ok(status);
        }
        let mut out = Out::new();
        if args.json {
            out.json(json(way, counts))?;
            out.flush()?;
            return Ok(status);
        }
        out.line(match way {
            Way::Changes(_) => "compared: files changed since the last sync",
            Way::Full(_) => "compared: everything",
        })?;
        if args.stats {
            let Counts { compared, created, updated, attributes, deleted, bytes } = *counts;
            out.line(&format!(
                "{compared} compared, {created} created, {updated} updated, {attributes} with \
                 other attributes, {deleted} deleted, {} copied",
                human(bytes)
            ))?;
        }
        out.flush()?;
        Ok(status)
    }
}

fn json(way: &Way, counts: &Counts) -> Object {
    let way = match way {
        Way::Changes(_) => "changes",
        Way::Full(_) => "everything",
    };
    Object::new()
        .put("compared", way)
        .put("files", counts.compared)
        .put("created", counts.created)
        .put("updated", counts.updated)
        .put("attributes", counts.attributes)
        .put("deleted", counts.deleted)
        .put("bytes", counts.bytes)
}

/// Condition of a mark: a directory, patterns, and whether removed files were removed.
struct Stamp {
    key: String,
    delete: bool,
}

impl Stamp {
    fn new(args: &SyncArgs, inode: u64, generation: u32) -> Stamp {
        let key = format!("{inode}.{generation}.{:016x}", hash(&args.exclude));
        Stamp { key, delete: args.delete }
    }

    fn text(&self, mark: &ChangeMark) -> Vec<u8> {
        let delete = if self.delete { "delete" } else { "keep" };
        format!("{FORMAT} {} {delete} {mark}", self.key).into_bytes()
    }

    /// Returns the mark in a text, if it is good for this.
    fn mark(&self, text: &[u8]) -> Option<ChangeMark> {
        let text = std::str::from_utf8(text).ok()?;
        let fields: Vec<&str> = text.split(' ').collect();
        let [FORMAT, key, delete, mark] = fields[..] else { return None };
        let is_good = key == self.key && (delete == "delete" || !self.delete);
        is_good.then(|| mark.parse().ok()).flatten()
    }
}

/// FNV-1a of patterns and their ends. It is kept, so it must not change.
fn hash(patterns: &[OsString]) -> u64 {
    let bytes = patterns.iter().flat_map(|it| it.as_bytes().iter().copied().chain([0]));
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.fold(0xcbf2_9ce4_8422_2325, step)
}
