//! `shoal du`.
//!
//! The walk returns directories behind what is in them, and lists ahead with several threads; the
//! sums of the directories above the current file are all that is held, and the numbers of the
//! inodes that have several links.
//!
//! Where only sums of places are printed, the volume counts, without a walk of large directories.

use std::collections::{BTreeMap, HashSet};

use shoal::raw::{FileKind, Ino, Time, Totals};

use crate::args::{DuArgs, Threshold, TimeShown};
use crate::clock;
use crate::exclude::is_excluded;
use crate::failure::{Reason, Result};
use crate::json::Object;
use crate::location::split_last;
use crate::output::Out;
use crate::progress::Progress;
use crate::session::{Access, Found, Sessions};
use crate::size::{Unit, ceiling};
use crate::tree::{Operand, Tree};
use crate::walk::{Options, Step, Walk};

/// Shows the sizes of trees.
pub(crate) fn run(args: &DuArgs) -> Result<u8> {
    Sessions::run(Access::Read, |sessions| {
        let mut places = Vec::new();
        let mut counter = Counter::new(args);
        for place in &args.places {
            match Operand::open(sessions, Access::Read, place, false)? {
                Ok(place) => places.push(place),
                Err(missing) => {
                    counter.progress.failure(missing.label, Reason::from(missing.error));
                }
            }
        }
        counter.counts_each = places.iter().any(|place| is_in_one_of(place, &places));
        let kept = counter.kept(&places);
        let is_known = kept.len() == places.len() && kept.iter().all(Option::is_some);
        let totals = if is_known { None } else { counter.totals(&places) };
        for (at, place) in places.iter().enumerate() {
            if let Some(Some(sum)) = kept.get(at) {
                counter.whole(*sum, &place.path)?;
                continue;
            }
            let totals = totals.as_ref().and_then(|totals| totals.get(at));
            match totals.filter(|_| place.attr.kind == FileKind::Directory) {
                Some(totals) => counter.counted(totals, &place.path)?,
                None => counter.place(place)?,
            }
        }
        if args.total {
            counter.line(counter.total, b"total")?;
        }
        counter.out.flush()?;
        Ok(counter.progress.finish())
    })
}

/// Returns whether a place is one of these, or in one, without being the same argument.
fn is_in_one_of(place: &Operand, places: &[Operand]) -> bool {
    let volume = place.tree.volume_id();
    let others =
        || places.iter().filter(|it| !std::ptr::eq(*it, place) && it.tree.volume_id() == volume);
    if others().next().is_none() {
        return false;
    }
    let Tree::Volume(start) = &place.tree else {
        // Counting each inode is right in any case.
        return true;
    };
    // The same file by another name is found by its links.
    let above = start.above(place.attr.kind == FileKind::Directory);
    // If it cannot be told: as above.
    above.map_or(true, |above| {
        others().any(|it| it.attr.ino == place.attr.ino || above.contains(&it.attr.ino))
    })
}

/// Returns the totals of a directory, of another file whether it has several links. `None` if not
/// everything can be read, or a mount does not count for this user: a walk counts then, and says
/// what cannot be read.
fn totals_of(place: &Operand, subvolumes: bool) -> Option<Totals> {
    let attr = &place.attr;
    if attr.kind != FileKind::Directory {
        return Some(Totals { linked: u64::from(attr.nlink > 1), ..Totals::default() });
    }
    let start = place.tree.start()?;
    let session = &start.session;
    let dir = session.open_dir(&start.real(&place.path), Some(attr.ino)).ok()?;
    session.calls().totals(&session.who, dir.node, subvolumes).ok()
}

/// Returns what is kept with the quota of a place; `None` if it has none, or its use is not known.
fn kept_of(place: &Operand) -> Option<Sum> {
    let start = place.tree.start().filter(|_| place.attr.kind == FileKind::Directory)?;
    let session = &start.session;
    if let Some(volume) = session.direct() {
        volume.quotas().settle().ok()?;
    }
    let dir = session.open_dir(&start.real(&place.path), Some(place.attr.ino)).ok()?;
    let quota = session.calls().quota(&session.who, dir.node).ok()??;
    let is_its_own = quota.dir == place.attr.ino && quota.is_exact;
    is_its_own.then_some(Sum { bytes: quota.bytes, inodes: quota.inodes, newest: None })
}

/// Space and inodes.
#[derive(Clone, Copy, Default)]
struct Sum {
    bytes: u64,
    inodes: u64,
    /// Newest time of the kind that is shown.
    newest: Option<Time>,
}

impl Sum {
    fn add(&mut self, other: Sum) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.inodes += other.inodes;
        self.newest = self.newest.max(other.newest);
    }
}

fn json(sum: Sum, path: &[u8]) -> Object {
    let newest = sum
        .newest
        .map(|Time { sec, nsec }| BTreeMap::from([("sec", sec), ("nsec", i64::from(nsec))]));
    let object = Object::new().put_name("path", path);
    object.put("bytes", sum.bytes).put("inodes", sum.inodes).put_some("newest", newest)
}

struct Counter<'a> {
    args: &'a DuArgs,
    out: Out,
    progress: Progress,
    /// Unit; `None`: with units, as people read them.
    unit: Option<Unit>,
    total: Sum,
    /// Places overlap, so that files can be found twice without having several links.
    counts_each: bool,
    /// Volumes and inodes counted that can be found again.
    seen: HashSet<((bool, u64), Ino)>,
    files: u64,
}

impl<'a> Counter<'a> {
    fn new(args: &'a DuArgs) -> Counter<'a> {
        let unit = match args {
            DuArgs { human_readable: true, .. } => None,
            DuArgs { block_size: Some(unit), .. } => Some(unit.clone()),
            DuArgs { mebibytes: true, .. } => Some(Unit::of(1 << 20)),
            DuArgs { kibibytes: true, .. } => Some(Unit::of(1 << 10)),
            DuArgs { bytes: true, .. } => Some(Unit::of(1)),
            _ => Some(Unit::of(1 << 10)),
        };
        Counter {
            args,
            out: Out::new(),
            progress: Progress::counting(),
            unit,
            total: Sum::default(),
            counts_each: false,
            seen: HashSet::new(),
            files: 0,
        }
    }

    /// Returns the totals of the places if they are all that is printed. `None` if they can be
    /// other than the sums of a walk.
    fn totals(&self, places: &[Operand]) -> Option<Vec<Totals>> {
        let args = self.args;
        let sums_only = args.summarize || args.max_depth == Some(0);
        let counts_all = !args.count_links && !args.separate_dirs && args.exclude.is_empty();
        if !sums_only || !counts_all || self.counts_each || args.time.is_some() {
            return None;
        }
        let totals: Option<Vec<Totals>> =
            places.iter().map(|place| totals_of(place, !args.one_file_system)).collect();
        // A file with links in several places counts in the first of them.
        totals.filter(|totals| totals.iter().filter(|totals| totals.linked > 0).count() <= 1)
    }

    /// Returns what is kept of the places, if that is asked for and none is in another one.
    fn kept(&self, places: &[Operand]) -> Vec<Option<Sum>> {
        let kept = |place| if self.args.kept { kept_of(place) } else { None };
        match self.counts_each {
            true => Vec::new(),
            false => places.iter().map(kept).collect(),
        }
    }

    /// Prints a directory that the volume has counted.
    fn counted(&mut self, totals: &Totals, path: &[u8]) -> Result<()> {
        let bytes = match self.is_apparent() {
            true => totals.bytes,
            false => totals.blocks.saturating_mul(512),
        };
        self.whole(Sum { bytes, inodes: totals.inodes(), newest: None }, path)
    }

    /// Prints a place of which the sum is known.
    fn whole(&mut self, sum: Sum, path: &[u8]) -> Result<()> {
        self.total.add(sum);
        self.files += sum.inodes;
        self.progress.count(self.files, self.total.bytes, path);
        self.line(sum, path)
    }

    /// Returns whether the sizes of contents are counted, not blocks.
    fn is_apparent(&self) -> bool {
        self.args.apparent_size || self.args.bytes
    }

    fn place(&mut self, place: &Operand) -> Result<()> {
        let Operand { tree, path, attr } = place;
        let top = Found::with_attributes(split_last(path).name.into(), *attr);
        let Some(own) = self.own(tree, &top, path) else { return Ok(()) };
        if attr.kind != FileKind::Directory {
            return self.line(own, path);
        }
        let options = Options {
            leaving: true,
            one_subvolume: self.args.one_file_system,
            ..Options::default()
        };
        let sum =
            Walk::through(tree.source(), (top, path), options, |walk| self.walk(tree, walk, own))?;
        self.line(sum, path)
    }

    /// Counts everything below a directory, whose own size is `own`; returns its sum.
    fn walk(&mut self, tree: &Tree, walk: &mut Walk<'_>, own: Sum) -> Result<Sum> {
        // Sums of the directories above; `None` for one that is not counted.
        let mut above = vec![Some(own)];
        while let Some(step) = walk.step() {
            match step {
                Step::Found(found) => {
                    let is_other = walk.dir().is_some_and(|dir| dir.root() != found.ino.root());
                    let own = match self.args.one_file_system && is_other {
                        true => None,
                        false => self.own(tree, &found, walk.path()),
                    };
                    if found.kind == FileKind::Directory {
                        if own.is_none() {
                            walk.skip();
                        }
                        above.push(own);
                        continue;
                    }
                    let Some(own) = own else { continue };
                    if let Some(Some(sum)) = above.last_mut() {
                        sum.add(own);
                    }
                    if self.args.all && self.shows(walk.depth()) {
                        self.line(own, walk.path())?;
                    }
                }
                Step::Left(_) => {
                    let Some(Some(sum)) = above.pop() else { continue };
                    if let (Some(Some(parent)), false) = (above.last_mut(), self.args.separate_dirs)
                    {
                        parent.add(sum);
                    }
                    if self.shows(walk.depth()) {
                        self.line(sum, walk.path())?;
                    }
                }
                Step::Failed(error) => {
                    self.progress.failure(tree.label(walk.path()), Reason::from(error));
                }
            }
        }
        Ok(above.pop().flatten().unwrap_or_default())
    }

    fn shows(&self, depth: usize) -> bool {
        !self.args.summarize && self.args.max_depth.is_none_or(|max| depth <= max)
    }

    /// Returns a file's own size, which the total has now; `None`: it is excluded, or counted.
    fn own(&mut self, tree: &Tree, found: &Found, path: &[u8]) -> Option<Sum> {
        let attr = found.attr.as_ref()?;
        if is_excluded(&self.args.exclude, path) {
            return None;
        }
        let has_links = attr.kind != FileKind::Directory && attr.nlink > 1;
        let is_once = !self.args.count_links && (self.counts_each || has_links);
        if is_once && !self.seen.insert((tree.volume_id(), found.ino)) {
            return None;
        }
        let is_apparent = self.is_apparent();
        let bytes = match attr.kind {
            FileKind::Regular | FileKind::Symlink if is_apparent => attr.size,
            _ if is_apparent => 0,
            _ => attr.blocks.saturating_mul(512),
        };
        let newest = self.args.time.map(|time| match time {
            TimeShown::Mtime => attr.mtime,
            TimeShown::Atime => attr.atime,
            TimeShown::Ctime => attr.ctime,
        });
        let own = Sum { bytes, inodes: 1, newest };
        self.total.add(own);
        self.files += 1;
        self.progress.count(self.files, self.total.bytes, path);
        Some(own)
    }

    fn line(&mut self, sum: Sum, path: &[u8]) -> Result<()> {
        let value = if self.args.inodes { sum.inodes } else { sum.bytes };
        let is_shown = match self.args.threshold {
            Some(Threshold::Min(min)) => value >= min,
            Some(Threshold::Max(max)) => value <= max,
            None => true,
        };
        // The sum of all places is shown in any case.
        if !is_shown && path != b"total" {
            return Ok(());
        }
        if self.args.json {
            return self.out.json(json(sum, path));
        }
        let mut text = match &self.unit {
            None => ceiling(value),
            Some(_) if self.args.inodes => value.to_string(),
            Some(unit) => unit.show(value),
        };
        if let Some(newest) = sum.newest {
            text.push('\t');
            clock::format(&mut text, newest, &self.args.time_style);
        }
        self.out.bytes(text.as_bytes())?;
        self.out.bytes(b"\t")?;
        if self.args.null {
            self.out.bytes(path)?;
            return self.out.bytes(b"\0");
        }
        self.out.name(path)?;
        self.out.line("")
    }
}
