//! Client of a control file: changes below its directory, and a change of everything below it.

use super::bulk::{ControlFile, SHORT};
use crate::protocol::question::*;
use rustix::io::Errno as Os;
use shoal::raw::{ChangeKind, ChangeMark, FileKind, Generation, Ino, TreeChange, TreeChanged};
use std::io;
use std::ops::ControlFlow;

/// Most bytes of the paths of one change: more than a server sends.
const PATHS_MAX: usize = 64 << 20;

/// A change, as the feed of a mounted volume tells it ([`shoal::raw::Change`]).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChangeFound {
    /// Kind of the change.
    pub kind: ChangeKind,
    /// The inode; of a removed name, the one that had it.
    pub ino: Ino,
    /// Its generation; 0 if not known.
    pub generation: Generation,
    /// Its type; `None` for a removed name.
    pub file: Option<FileKind>,
    /// All paths that the inode has below the directory, or the removed one.
    pub paths: Vec<Vec<u8>>,
    /// Of a renamed inode: the earlier path, if it is known.
    pub from: Option<Vec<u8>>,
    /// The next change has further paths of the inode.
    pub more: bool,
}

/// End of the changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChangesEnd {
    /// The mark for the next call.
    pub mark: ChangeMark,
    /// All removed names were told.
    pub all_removed: bool,
}

/// Progress of a change of a tree.
#[derive(Debug)]
pub enum TreeTold<'a> {
    /// The path below the directory, empty for itself, of something that could not be changed.
    Failed(&'a [u8], io::Error),
    /// So many failures are not told, because there were too many at a time.
    Untold(u64),
    /// Inodes changed so far.
    Changed(u64),
}

/// A record whose paths are being read.
struct Open<T> {
    of: Option<T>,
    paths: Vec<Vec<u8>>,
    from: Option<Vec<u8>>,
    /// The parts so far of the next path.
    part: Vec<u8>,
    bytes: usize,
}

impl<T> Open<T> {
    fn new() -> Open<T> {
        Open { of: None, paths: Vec::new(), from: None, part: Vec::new(), bytes: 0 }
    }

    /// Adds a path; returns whether it makes sense.
    fn add(&mut self, is_from: bool, goes_on: bool, text: &[u8]) -> bool {
        self.bytes += text.len();
        if self.of.is_none() || self.bytes > PATHS_MAX {
            return false;
        }
        self.part.extend_from_slice(text);
        if goes_on {
            return true;
        }
        let path = std::mem::take(&mut self.part);
        match is_from {
            true => self.from.replace(path).is_none(),
            false => {
                self.paths.push(path);
                true
            }
        }
    }

    /// Takes the record; `None` if a path is not whole.
    fn take(&mut self) -> Option<Open<T>> {
        let open = std::mem::replace(self, Open::new());
        open.part.is_empty().then_some(open)
    }
}

impl ControlFile {
    /// Passes what has changed below the directory since a mark of its subvolume to `each`, which
    /// returns whether it wants more; without a mark, everything, as created. Returns the mark for
    /// the next call, unless `each` did not want more. Everything told is durable.
    ///
    /// The user is told what it could find by listing.
    ///
    /// # Errors
    /// As [`shoal::raw::Changes::since`]. `ECANCELED`: the server has ended the answer, because too
    /// many others were asked for, and this one was read too slowly.
    pub fn changes(
        &mut self,
        since: Option<&ChangeMark>,
        each: &mut dyn FnMut(ChangeFound) -> bool,
    ) -> io::Result<Option<ChangesEnd>> {
        let text = since.map(ChangeMark::to_string).unwrap_or_default();
        let question = Question::new(Kind::Changes, 0, text.as_bytes());
        self.give(&question)?;
        let (mut open, mut end, mut wants) = (Open::<ChangeFacts>::new(), None, true);
        loop {
            let is_last = self.read(Kind::Changes, PIECE, &mut |record| match record {
                Record::Change(facts) => {
                    tell(&mut open, each, &mut wants) && {
                        open.of = Some(facts);
                        true
                    }
                }
                Record::Path { is_from, goes_on, text } => open.add(is_from, goes_on, text),
                Record::Mark { text, all_removed } => {
                    end = mark_of(text).map(|mark| ChangesEnd { mark, all_removed });
                    tell(&mut open, each, &mut wants) && end.is_some()
                }
                Record::Progress(_) => true,
                _ => false,
            })?;
            if !wants {
                return Ok(None);
            }
            if is_last {
                return end.map(Some).ok_or_else(|| Os::IO.into());
            }
        }
    }

    /// Returns a mark of this moment, of the directory's subvolume. It is durable.
    ///
    /// # Errors
    /// As [`shoal::raw::Changes::mark`]; `EACCES` if the caller may not list and search the
    /// directory.
    pub fn mark(&mut self) -> io::Result<ChangeMark> {
        let mut found = None;
        let question = Question::new(Kind::Changes, MARK_ONLY, b"");
        self.ask(&question, SHORT, &mut |record| match record {
            Record::Mark { text, .. } => {
                found = mark_of(text);
                found.is_some()
            }
            _ => false,
        })?;
        found.ok_or_else(|| Os::IO.into())
    }

    /// Returns whether anything in the volume may have changed since a mark of it. The server
    /// compares two numbers.
    ///
    /// # Errors
    /// `EAGAIN` if the server is asked too much.
    pub fn is_newer(&mut self, mark: &ChangeMark) -> io::Result<bool> {
        let (text, mut found) = (mark.to_string(), None);
        let question = Question::new(Kind::Newer, 0, text.as_bytes());
        self.ask(&question, SHORT, &mut |record| match record {
            Record::Newer(newer) => found.replace(newer).is_none(),
            _ => false,
        })?;
        found.ok_or_else(|| Os::IO.into())
    }

    /// Changes owners, permissions or times of the directory and everything below it, as the
    /// caller, by one call of the volume ([`shoal::raw::TreeChanges::change_tree`]). The mode is
    /// given as text, in `mode` instead of in `change`; empty: it is not changed. `umask` is for
    /// parts of it that name no users. `watch` gets the progress, some ten times a second; if it
    /// breaks, the change is cancelled.
    ///
    /// If the program ends, the change goes on. After the call the kernel shows no old attributes.
    ///
    /// # Errors
    /// As `change_tree`: above all `E2BIG` for a change that must be made file by file, as after
    /// `ENAMETOOLONG` for a long mode, and `EOPNOTSUPP` for times where the kernel collects writes:
    /// nothing has been changed then. `EAGAIN`: too many changes are in progress.
    pub fn change_tree(
        &mut self,
        change: &TreeChange,
        (mode, umask): (&str, u32),
        watch: &mut dyn FnMut(TreeTold<'_>) -> ControlFlow<()>,
    ) -> io::Result<TreeChanged> {
        self.give(&Question::change(change, mode, umask))?;
        let (mut open, mut progress) = (Open::<i32>::new(), Progress::default());
        let mut cancelled = false;
        loop {
            let mut flow = ControlFlow::Continue(());
            let mut tell = |told: TreeTold<'_>| {
                if watch(told).is_break() {
                    flow = ControlFlow::Break(());
                }
            };
            let is_last = self.read(Kind::Change, PIECE, &mut |record| match record {
                Record::Failure { errno, .. } => {
                    told_failure(&mut open, &mut tell) && {
                        open.of = i32::try_from(errno).ok();
                        open.of.is_some()
                    }
                }
                Record::Path { is_from: false, goes_on, text } => open.add(false, goes_on, text),
                Record::Progress(now) => {
                    // A failure that is not whole yet goes on in the next piece.
                    let before = std::mem::replace(&mut progress, now);
                    if now.untold > before.untold {
                        tell(TreeTold::Untold(now.untold - before.untold));
                    }
                    tell(TreeTold::Changed(now.inodes));
                    true
                }
                _ => false,
            })?;
            if is_last {
                if !told_failure(&mut open, &mut tell) {
                    return Err(Os::IO.into());
                }
                let Progress { inodes, failures, cancelled, .. } = progress;
                return Ok(TreeChanged { inodes, failures, cancelled });
            }
            if flow.is_break() && !std::mem::replace(&mut cancelled, true) {
                self.give(&Question::new(Kind::Cancel, 0, b""))?;
            }
        }
    }
}

fn mark_of(text: &[u8]) -> Option<ChangeMark> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Passes a change on when all its paths are there. Returns whether it makes sense.
fn tell(
    open: &mut Open<ChangeFacts>,
    each: &mut dyn FnMut(ChangeFound) -> bool,
    wants: &mut bool,
) -> bool {
    let Some(Open { of, paths, from, .. }) = open.take() else { return false };
    if let Some(ChangeFacts { kind, ino, generation, file, more }) = of
        && *wants
    {
        *wants = each(ChangeFound { kind, ino, generation, file, paths, from, more });
    }
    true
}

/// Passes a failure on. Returns whether it makes sense.
fn told_failure(open: &mut Open<i32>, tell: &mut dyn FnMut(TreeTold<'_>)) -> bool {
    let Some(Open { of, paths, .. }) = open.take() else { return false };
    if let Some(errno) = of {
        let path = paths.first().map(Vec::as_slice).unwrap_or_default();
        tell(TreeTold::Failed(path, io::Error::from_raw_os_error(errno)));
    }
    paths.len() <= 1
}
