//! A walk through a directory tree of a volume, depth first in the order of the directories, with
//! threads that list directories ahead of it.
//!
//! The stack is a list, not recursion, and a directory is held only as a cursor and the rest of
//! one batch, so neither deep trees nor directories of millions need memory for the whole. What is
//! listed ahead is bounded ([`ahead`](crate::ahead)).

use std::sync::Arc;
use std::vec::IntoIter;

use shoal::raw::{Error, FileKind, Ino};

use crate::ahead::{Ahead, Job};
use crate::location;
use crate::session::{Cursor, Found};
use crate::source::{Batch, DirId, Source};

/// The parts of a tree that a walk goes to, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// Attributes are not read: entries have names and types alone.
    pub names_only: bool,
    /// Directories are returned a second time behind what is in them.
    pub leaving: bool,
    /// Subvolumes below are not entered.
    pub one_subvolume: bool,
    /// Levels below the top: with 1 its own entries alone.
    pub depth_max: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { names_only: false, leaving: false, one_subvolume: false, depth_max: usize::MAX }
    }
}

/// A directory that is being listed.
struct Frame {
    /// The directory.
    found: Found,
    cursor: Cursor,
    pending: IntoIter<Found>,
    /// Jobs of those pending directories that are entered, in their order.
    jobs: IntoIter<Arc<Job>>,
    /// The first batch of its entries, if it was asked for ahead.
    job: Option<Arc<Job>>,
    /// Length of the path that leads to it.
    path_len: usize,
}

/// Result of a step.
pub(crate) enum Step {
    /// An entry. A directory's contents come next, unless it is skipped.
    Found(Found),
    /// A directory whose contents have all come, or that was skipped; only if asked for.
    Left(Found),
    /// A directory could not be read (further), or the attributes of an entry could not; the walk
    /// goes on after it.
    Failed(Error),
}

/// A walk in progress.
pub(crate) struct Walk<'a> {
    ahead: &'a Ahead<'a>,
    options: Options,
    stack: Vec<Frame>,
    path: Vec<u8>,
    /// The directory just found, entered by the next step.
    entering: Option<Frame>,
}

impl Walk<'_> {
    /// Starts at directory `top`, whose path is `path`, and does `work` with the walk. `top` itself
    /// is not returned.
    pub(crate) fn through<T>(
        source: &dyn Source,
        (top, path): (Found, &[u8]),
        options: Options,
        work: impl FnOnce(&mut Walk<'_>) -> T,
    ) -> T {
        Ahead::run(source, options.names_only, |ahead| {
            let (stack, path) = (Vec::new(), path.to_vec());
            let mut walk = Walk { ahead, options, stack, path, entering: None };
            walk.entering = (options.depth_max > 0).then(|| Frame::new(top, None, walk.path.len()));
            work(&mut walk)
        })
    }

    /// Returns the path of the last entry returned.
    pub(crate) fn path(&self) -> &[u8] {
        &self.path
    }

    /// Returns the number of directories above the last entry returned, the top included.
    pub(crate) fn depth(&self) -> usize {
        self.stack.len()
    }

    /// Returns the directory that the last entry is in.
    pub(crate) fn dir(&self) -> Option<Ino> {
        self.stack.last().map(|frame| frame.found.ino)
    }

    /// Leaves out the contents of the directory just returned.
    pub(crate) fn skip(&mut self) {
        if let Some(frame) = &mut self.entering {
            frame.cursor = Cursor::End;
            if let Some(job) = frame.job.take() {
                self.ahead.forget(&job);
            }
        }
    }

    /// Takes the next step; `None` at the end.
    pub(crate) fn step(&mut self) -> Option<Step> {
        if let Some(frame) = self.entering.take() {
            self.stack.push(frame);
        }
        loop {
            let depth = self.stack.len();
            let frame = self.stack.last_mut()?;
            self.path.truncate(frame.path_len);
            if let Some(found) = frame.pending.next() {
                let dir = frame.found.ino;
                let jobs = &mut frame.jobs;
                let job = enters(&self.options, depth, dir, &found).then(|| jobs.next()).flatten();
                return Some(self.found(found, job));
            }
            if frame.cursor == Cursor::End {
                let frame = self.stack.pop()?;
                if self.options.leaving && !self.stack.is_empty() {
                    return Some(Step::Left(frame.found));
                }
                continue;
            }
            let ahead = frame.job.take().and_then(|job| self.ahead.take(&job));
            let batch = ahead.unwrap_or_else(|| {
                let dir = DirId { ino: frame.found.ino, path: self.path.as_slice().into() };
                self.ahead.list(&dir, frame.cursor)
            });
            if let Err(error) = self.fill(batch) {
                return Some(Step::Failed(error));
            }
        }
    }

    /// Takes a batch of the entries of the innermost directory.
    fn fill(&mut self, batch: Batch) -> Result<(), Error> {
        let (ahead, options, depth) = (self.ahead, self.options, self.stack.len());
        let Some(frame) = self.stack.last_mut() else { return Ok(()) };
        frame.cursor = batch.next;
        let dir = frame.found.ino;
        let entries = batch.entries?;
        let dirs = entries.iter().filter(|found| enters(&options, depth, dir, found));
        let job = |found: &Found| {
            let path = location::join(&self.path, &found.name).into();
            Arc::new(Job::new(DirId { ino: found.ino, path }))
        };
        let jobs: Vec<_> = dirs.map(job).collect();
        // The entries stay where they are: a copy of each batch needs memory that is fresh from the
        // system, a fifth of the processor time of find.
        frame.pending = entries.into_iter();
        frame.jobs = jobs.clone().into_iter();
        ahead.want(jobs);
        Ok(())
    }

    fn found(&mut self, mut found: Found, job: Option<Arc<Job>>) -> Step {
        location::push(&mut self.path, &found.name);
        if let Some(error) = found.failed.take() {
            return Step::Failed(error);
        }
        if job.is_some() {
            self.entering = Some(Frame::new(found.clone(), job, self.path.len()));
        } else if found.kind == FileKind::Directory && self.options.leaving {
            let mut frame = Frame::new(found.clone(), None, self.path.len());
            frame.cursor = Cursor::End;
            self.entering = Some(frame);
        }
        Step::Found(found)
    }
}

/// Returns whether the walk goes into an entry of the directory `dir`, `depth` levels down.
fn enters(options: &Options, depth: usize, dir: Ino, found: &Found) -> bool {
    found.kind == FileKind::Directory
        && found.failed.is_none()
        && depth < options.depth_max
        && !(options.one_subvolume && found.ino.root() != dir.root())
}

impl Frame {
    fn new(found: Found, job: Option<Arc<Job>>, path_len: usize) -> Frame {
        let (pending, jobs) = (Vec::new().into_iter(), Vec::new().into_iter());
        Frame { found, cursor: Cursor::After(0), pending, jobs, job, path_len }
    }
}
