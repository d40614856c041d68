//! One directory made the same as another, for `shoal sync`: what is the same stays, what differs
//! is replaced, and what is not there is removed if asked for.
//!
//! The copier makes the copies. A file is written anew and gets its name when it is whole; so at
//! any moment, and after a crash, each name has the old file or the new one.
//!
//! Here are the ways to begin: with everything, and with single paths. `merge` walks through a
//! tree on both sides, `compare` looks at a file.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::vec::IntoIter;

use shoal::raw::{Code, FileKind};

use super::copier::{Copier, Fault};
use super::options::Options;
use super::side::{Found, Id, Meta, Node, Side};
use crate::exclude::is_left_out;
use crate::failure::{OK, Reason, Result};
use crate::interrupt;
use crate::location::join;
use crate::output::Out;

/// Exit status when files have vanished while they were to be copied, and nothing else failed; as
/// that of rsync.
pub(crate) const VANISHED: u8 = 24;

/// Choices of the command line.
#[derive(Clone, Copy)]
pub(crate) struct Choices<'a> {
    /// Remove what the source does not have.
    pub delete: bool,
    /// Change nothing.
    pub dry_run: bool,
    /// Compare contents, not times.
    pub checksum: bool,
    /// Print each change.
    pub verbose: bool,
    /// Patterns of what is neither copied nor removed.
    pub exclude: &'a [OsString],
}

/// Counts of a comparison.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counts {
    /// Files and directories of the source that were compared.
    pub compared: u64,
    /// Those made.
    pub created: u64,
    /// Those replaced.
    pub updated: u64,
    /// Those that got other attributes.
    pub attributes: u64,
    /// Files and directories removed.
    pub deleted: u64,
    /// Bytes copied.
    pub bytes: u64,
}

/// A directory that is being compared.
pub(super) struct Frame<S: Side, T: Side> {
    pub(super) from: S::Dir,
    pub(super) list: S::List,
    pub(super) pending: IntoIter<Found>,
    /// `None` if it would have to be made first.
    pub(super) to: Option<T::Dir>,
    pub(super) is_new: bool,
    pub(super) meta: Meta,
    pub(super) lens: [usize; 3],
}

/// The directory of the last path that was compared alone.
struct Spot<S: Side, T: Side> {
    path: Vec<u8>,
    from: S::Dir,
    to: Option<T::Dir>,
    meta: Meta,
}

/// Directories that were compared alone, with everything below.
#[derive(Default)]
struct Wholes {
    dirs: Vec<Vec<u8>>,
    linked: BTreeSet<u64>,
    /// One is being compared.
    is_open: bool,
}

/// A comparison of two directories.
pub(crate) struct Mirror<'a, S: Side, T: Side> {
    pub(super) source: &'a S,
    pub(super) copier: Copier<'a, T>,
    pub(super) choices: Choices<'a>,
    tops: (&'a [u8], &'a [u8]),
    pub(super) counts: Counts,
    /// Path of the file at hand, from the two directories.
    pub(super) path: Vec<u8>,
    /// Directories compared with everything below by [`Mirror::one`], and inodes with several names
    /// in them.
    wholes: Wholes,
    spot: Option<Spot<S, T>>,
    out: Out,
    has_vanished: bool,
}

impl<'a, S: Side, T: Side> Mirror<'a, S, T> {
    /// A comparison of the directories at two paths.
    pub(crate) fn new(
        source: &'a S,
        target: &'a T,
        tops: (&'a [u8], &'a [u8]),
        choices: Choices<'a>,
        shunned: Vec<Id>,
    ) -> Mirror<'a, S, T> {
        let options = Options { recursive: true, mirror: true, ..Options::default() };
        let copier = Copier::new(target, options, shunned);
        let (counts, path, out) = (Counts::default(), Vec::new(), Out::new());
        let (wholes, spot, has_vanished) = (Wholes::default(), None, false);
        Mirror { source, copier, choices, tops, counts, path, wholes, spot, out, has_vanished }
    }

    /// Compares two directories with everything below.
    pub(crate) fn all(&mut self, from: S::Dir, to: Option<T::Dir>) -> Result<()> {
        self.go_to(b"");
        let opened = self.source.stat(&from, b".", false).and_then(|meta| {
            let list = self.source.list(&from)?;
            Ok((meta, list))
        });
        match opened.map_err(|reason| self.copier.at_source(self.source, reason)) {
            Ok((meta, list)) => {
                self.counts.compared += 1;
                let frame = self.frame((from, list), to, false, meta);
                self.tree(frame)
            }
            Err(fault) => self.settle(fault),
        }
    }

    /// Compares what has a path in both directories: a file; or a directory, with everything below
    /// if `whole`, else whether it is there. Its attributes are compared by [`Mirror::leave_spot`]
    /// when it is the directory of the last path.
    pub(crate) fn one(&mut self, path: &[u8], whole: bool) -> Result<()> {
        interrupt::check(|| self.copier.done())?;
        if is_left_out(self.choices.exclude, path) {
            return Ok(());
        }
        let (parent, name) = shoal::raw::split_parent(path);
        let done = self.go_to_dir(parent).and_then(|()| {
            let Some(spot) = self.spot.take() else { return Ok(None) };
            self.go_to(path);
            let below = self.named(&spot, name);
            self.spot = Some(spot);
            below
        });
        match done {
            Ok(Some(frame)) if whole => {
                self.wholes.is_open = true;
                let done = self.tree(frame);
                self.wholes.is_open = false;
                self.wholes.dirs.push(path.to_vec());
                done
            }
            Ok(Some(frame)) => self.opened(&frame).or_else(|fault| self.settle(fault)),
            Ok(None) => Ok(()),
            Err(fault) => self.settle(fault),
        }
    }

    /// Returns inodes with names in the directories that were compared with everything below, and
    /// perhaps elsewhere: copies there are links to these, which were made now.
    pub(crate) fn take_linked(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.wholes.linked).into_iter().collect()
    }

    /// Returns whether a path is below such a directory.
    pub(crate) fn is_in_whole(&self, path: &[u8]) -> bool {
        let below = |dir: &Vec<u8>| {
            path.strip_prefix(&dir[..]).is_some_and(|rest| rest.first() == Some(&b'/'))
        };
        self.wholes.dirs.iter().any(below)
    }

    /// Notes a file with several names.
    pub(super) fn note_linked(&mut self, meta: &Meta) {
        if self.wholes.is_open && meta.nlink > 1 {
            self.wholes.linked.insert(meta.id.inode);
        }
    }

    /// Returns whether something has a path in the target.
    pub(crate) fn has_copy(&mut self, path: &[u8]) -> Result<bool> {
        let (parent, name) = shoal::raw::split_parent(path);
        match self.go_to_dir(parent) {
            Ok(()) => {
                let to = self.spot.as_ref().and_then(|spot| spot.to.as_ref());
                Ok(to.is_some_and(|to| matches!(self.copied(to, name), Ok(Some(_)))))
            }
            // Told when it is compared.
            Err(fault) if fault.is_source => Ok(false),
            Err(fault) => self.settle(fault).map(|()| false),
        }
    }

    fn named(&mut self, spot: &Spot<S, T>, name: &[u8]) -> Result<Option<Frame<S, T>>, Fault> {
        let found = self.source.find(&spot.from, name, false);
        match found.map_err(|reason| self.copier.at_source(self.source, reason))? {
            Some(meta) => {
                let node = Node { name: name.to_vec(), meta, followed: false };
                self.entry(&spot.from, spot.to.as_ref(), &node)
            }
            None => Ok(None),
        }
    }

    /// Removes what has a path in the target, if nothing has it in the source.
    pub(crate) fn gone(&mut self, path: &[u8]) -> Result<()> {
        interrupt::check(|| self.copier.done())?;
        if !self.choices.delete || is_left_out(self.choices.exclude, path) {
            return Ok(());
        }
        let (parent, name) = shoal::raw::split_parent(path);
        let removed = match self.go_to_dir(parent) {
            // Its directory is gone in the source, too, and so it is told itself.
            Err(fault)
                if fault.reason.is(Code::NotFound) || fault.reason.is(Code::NotDirectory) =>
            {
                Ok(())
            }
            Err(fault) => Err(fault),
            Ok(()) => match self.spot.take() {
                Some(spot) => {
                    self.go_to(path);
                    let removed = self.extra(&spot.from, spot.to.as_ref(), name);
                    self.spot = Some(spot);
                    removed
                }
                None => Ok(()),
            },
        };
        removed.or_else(|fault| self.settle(fault))
    }

    /// Removes from the directory at a path what the source does not have in it.
    pub(crate) fn extras(&mut self, path: &[u8]) -> Result<()> {
        interrupt::check(|| self.copier.done())?;
        if !self.choices.delete || is_left_out(self.choices.exclude, path) {
            return Ok(());
        }
        if let Err(fault) = self.go_to_dir(path) {
            return self.settle(fault);
        }
        let Some(spot) = self.spot.take() else { return Ok(()) };
        self.go_to(path);
        let lens = [self.path.len(), self.copier.from.len(), self.copier.to.len()];
        let removed = self.begin(&spot.from, spot.to.as_ref(), lens);
        self.spot = Some(spot);
        removed
    }

    /// Compares the attributes of a directory.
    pub(crate) fn dir(&mut self, path: &[u8]) -> Result<()> {
        if is_left_out(self.choices.exclude, path) {
            return Ok(());
        }
        match self.go_to_dir(path) {
            Ok(()) => self.leave_spot(),
            Err(fault) => self.settle(fault),
        }
    }

    /// Compares the attributes of the directory of the last path.
    pub(crate) fn leave_spot(&mut self) -> Result<()> {
        let Some(Spot { path, from, to, meta }) = self.spot.take() else { return Ok(()) };
        self.go_to(&path);
        let left = self.finish_dir((&from, to.as_ref()), &meta, false);
        left.or_else(|fault| self.settle(fault))
    }

    /// Ends the comparison: counts and exit status.
    pub(crate) fn finish(mut self) -> Result<(Counts, u8)> {
        self.leave_spot()?;
        self.out.flush()?;
        self.counts.bytes = self.copier.bytes;
        let status = self.copier.finish()?;
        let vanished = status == OK && self.has_vanished;
        Ok((self.counts, if vanished { VANISHED } else { status }))
    }

    /// Sets the paths of the file at hand.
    fn go_to(&mut self, path: &[u8]) {
        self.path = path.to_vec();
        let (from, to) = self.tops;
        let at = |top: &[u8]| if path.is_empty() { top.to_vec() } else { join(top, path) };
        (self.copier.from, self.copier.to) = (at(from), at(to));
    }

    pub(super) fn source_fault(&self, reason: Reason) -> Fault {
        self.copier.at_source(self.source, reason)
    }

    /// Opens the directory at a path on both sides, and makes those that are missing.
    fn go_to_dir(&mut self, path: &[u8]) -> Result<(), Fault> {
        if self.spot.as_ref().is_some_and(|spot| spot.path == path) {
            return Ok(());
        }
        if let Some(Spot { path, from, to, meta }) = self.spot.take() {
            self.go_to(&path);
            self.finish_dir((&from, to.as_ref()), &meta, false)?;
        }
        self.go_to(b"");
        let from = self.source.directory(self.tops.0).map_err(|it| self.source_fault(it))?;
        let meta = self.source.stat(&from, b".", false).map_err(|it| self.source_fault(it))?;
        let to = match self.copier.target.directory(self.tops.1) {
            Ok(to) => Some(to),
            Err(reason) if reason.is(Code::NotFound) && self.choices.dry_run => None,
            Err(reason) => return Err(self.copier.at_target(reason)),
        };
        let mut spot = Spot { path: Vec::new(), from, to, meta };
        for name in path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b".")) {
            self.go_to(&join(&spot.path, name));
            let meta = self.source.stat(&spot.from, name, false);
            let meta = meta.map_err(|reason| self.source_fault(reason))?;
            let node = Node { name: name.to_vec(), meta, followed: false };
            if meta.kind != FileKind::Directory {
                return Err(self.source_fault(shoal::raw::Error::Code(Code::NotDirectory).into()));
            }
            let entered = self.entry(&spot.from, spot.to.as_ref(), &node)?;
            let Some(frame) = entered else { return Ok(()) };
            self.opened(&frame)?;
            let Frame { from, to, .. } = frame;
            spot = Spot { path: join(&spot.path, name), from, to, meta };
        }
        spot.path = path.to_vec();
        self.spot = Some(spot);
        Ok(())
    }

    pub(super) fn frame(
        &self,
        (from, list): (S::Dir, S::List),
        to: Option<T::Dir>,
        is_new: bool,
        meta: Meta,
    ) -> Frame<S, T> {
        let lens = [self.path.len(), self.copier.from.len(), self.copier.to.len()];
        Frame { from, list, pending: Vec::new().into_iter(), to, is_new, meta, lens }
    }

    /// Gives a directory that was made its attributes, when the rest of it comes later. Its owner
    /// can still use it then.
    fn opened(&mut self, frame: &Frame<S, T>) -> Result<(), Fault> {
        let (Some(to), true) = (&frame.to, frame.is_new) else { return Ok(()) };
        let meta = Meta { mode: frame.meta.mode | 0o700, ..frame.meta };
        self.finish_dir((&frame.from, Some(to)), &meta, true)
    }

    /// Prints a change, if asked for.
    pub(super) fn say(&mut self, what: &str) -> Result<(), Fault> {
        if !self.choices.verbose {
            return Ok(());
        }
        let path = if self.path.is_empty() { b"." } else { &self.path[..] };
        let line = [what.as_bytes(), b" ", path, b"\n"].concat();
        let out = &mut self.out;
        // A reader who has gone away does not stop the work.
        if self.copier.progress.aside(|| out.text(&line)).is_err() {
            self.choices.verbose = false;
        }
        Ok(())
    }

    /// Reports a failure; an error in turn if it is of no use to go on.
    pub(super) fn settle(&mut self, fault: Fault) -> Result<()> {
        if fault.is_source && fault.reason.is(Code::NotFound) {
            self.has_vanished = true;
            let name = self.source.label(&self.copier.from);
            self.copier.progress.note(&format!("{name}: has vanished; left out"));
            return Ok(());
        }
        self.copier.settle(fault)
    }
}
