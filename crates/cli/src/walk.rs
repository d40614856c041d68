//! A walk through a directory tree of a volume, depth first, one directory batch at a time.
//!
//! The stack is a list, not recursion, and a directory is held only as a cursor and the rest of
//! one batch, so neither deep trees nor directories of millions need memory for the whole.
//! Cookies stay valid while entries are removed, so `rm` may delete what the walk hands out.

use std::vec::IntoIter;

use shoal::{FileKind, Ino};

use crate::location;
use crate::session::{Cursor, Listed, Session};

/// A directory that is being listed.
struct Frame {
    /// The directory.
    ino: Ino,
    /// Its place in its parent.
    parent: Ino,
    /// Its entry in its parent, handed out again when it is done.
    entry: Option<Listed>,
    cursor: Cursor,
    pending: IntoIter<Listed>,
    /// Length of the path that leads to it.
    path_len: usize,
}

/// What the walk has come to.
pub enum Step {
    /// An entry of directory `dir`. A directory's contents come next.
    Found {
        /// The directory that holds it.
        dir: Ino,
        /// The entry.
        entry: Listed,
    },
    /// All contents of this directory have been handed out. The top is not among these.
    Done {
        /// The directory that holds it.
        dir: Ino,
        /// The directory's entry.
        entry: Listed,
    },
    /// A directory could not be read (further); the walk goes on behind it.
    Failed(shoal::Error),
}

/// The walk.
pub struct Walk<'a> {
    session: &'a Session,
    stack: Vec<Frame>,
    path: Vec<u8>,
    /// The directory just found, entered by the next step.
    entering: Option<Frame>,
}

impl<'a> Walk<'a> {
    /// Starts at directory `top`, whose path is `path`. `top` itself is not handed out.
    pub fn new(session: &'a Session, top: Ino, path: &[u8]) -> Walk<'a> {
        let mut walk = Walk { session, stack: Vec::new(), path: path.to_vec(), entering: None };
        walk.stack.push(Frame {
            ino: top,
            parent: top,
            entry: None,
            cursor: Cursor::After(0),
            pending: Vec::new().into_iter(),
            path_len: walk.path.len(),
        });
        walk
    }

    /// Path of what was handed out last.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// The next step; `None` at the end.
    pub fn step(&mut self) -> Option<Step> {
        if let Some(frame) = self.entering.take() {
            self.stack.push(frame);
        }
        loop {
            let frame = self.stack.last_mut()?;
            self.path.truncate(frame.path_len);
            if let Some(entry) = frame.pending.next() {
                let dir = frame.ino;
                return Some(self.found(dir, entry));
            }
            if frame.cursor == Cursor::End {
                let frame = self.stack.pop()?;
                match frame.entry {
                    Some(entry) => return Some(Step::Done { dir: frame.parent, entry }),
                    None => return None,
                }
            }
            match self.session.list(frame.ino, &mut frame.cursor) {
                Ok(entries) => frame.pending = entries.into_iter(),
                Err(error) => {
                    frame.cursor = Cursor::End;
                    return Some(Step::Failed(error));
                }
            }
        }
    }

    fn found(&mut self, dir: Ino, entry: Listed) -> Step {
        location::push(&mut self.path, &entry.name);
        if entry.attr.kind == FileKind::Directory {
            self.entering = Some(Frame {
                ino: entry.attr.ino,
                parent: dir,
                entry: Some(Listed { name: entry.name.clone(), attr: entry.attr }),
                cursor: Cursor::After(0),
                pending: Vec::new().into_iter(),
                path_len: self.path.len(),
            });
        }
        Step::Found { dir, entry }
    }
}
