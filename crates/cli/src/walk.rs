//! A walk through a directory tree of a volume, depth first, one directory batch at a time.
//!
//! The stack is a list, not recursion, and a directory is held only as a cursor and the rest of
//! one batch, so neither deep trees nor directories of millions need memory for the whole.

use std::vec::IntoIter;

use shoal::{FileKind, Ino};

use crate::location;
use crate::session::{Cursor, Listed, Session};

/// A directory that is being listed.
struct Frame {
    /// The directory.
    ino: Ino,
    cursor: Cursor,
    pending: IntoIter<Listed>,
    /// Length of the path that leads to it.
    path_len: usize,
}

/// What the walk has come to.
pub enum Step {
    /// An entry. A directory's contents come next.
    Found(Listed),
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
                return Some(self.found(entry));
            }
            if frame.cursor == Cursor::End {
                self.stack.pop()?;
                continue;
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

    fn found(&mut self, entry: Listed) -> Step {
        location::push(&mut self.path, &entry.name);
        if entry.attr.kind == FileKind::Directory {
            self.entering = Some(Frame {
                ino: entry.attr.ino,
                cursor: Cursor::After(0),
                pending: Vec::new().into_iter(),
                path_len: self.path.len(),
            });
        }
        Step::Found(entry)
    }
}
