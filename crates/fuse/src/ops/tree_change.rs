//! A change of owners, permissions, times or access lists of a whole tree, asked of the control
//! file of its top ([`super::stream`]).
//!
//! The first read starts it, in a thread of its own ([`crate::changing`]); each read returns what
//! could not be changed since, and the progress. A program that stops reading, or is killed, does
//! not stop the change. It is cancelled by a question of its own.
//!
//! Permission: the volume checks every file and directory for the user who has asked, with the
//! groups of that moment, on every mount. (As with the removal of a tree the kernel has not checked
//! whether the mount is a read-only view of a writable one.)
//!
//! *What the kernel knows*: the volume reports each changed inode that the kernel knows
//! (`watch_links`), and its attributes are invalidated before its step counts as done. Where the
//! kernel collects writes (`writeback`) it believes its own times, so there times are not changed
//! in bulk (`EOPNOTSUPP`).

use super::{Context, same_dir};
use crate::changing::Failure;
use crate::protocol::Errno;
use crate::protocol::flags::MAY_EXEC;
use crate::protocol::question::{PATH_PART, Piece, Record};
use crate::streams::{Asked, Work};
use shoal::raw::{Generation, Ino};
use std::time::Duration;

/// Answers [`Kind::Change`](crate::protocol::question::Kind::Change) further; returns whether the
/// change is done and everything told.
pub(crate) fn change(
    cx: &Context<'_>,
    (id, dir): (Ino, (Ino, Generation)),
    asked: &mut Asked,
    piece: &mut Piece<'_>,
    slice: Duration,
) -> Result<bool, Errno> {
    if let Work::None = asked.work {
        start(cx, (id, dir), asked)?;
    }
    let Work::Change(running) = &asked.work else { return Err(Errno::EIO) };
    let mut told = 0;
    let (progress, done) = running.news(slice, |failure| {
        told += 1;
        push(failure, piece)
    });
    let is_told = piece.push(&Record::Progress(progress));
    match done {
        // By the next read, if there is something in this piece.
        Some(Err(errno)) if told == 0 => Err(errno),
        Some(Err(_)) => Ok(false),
        Some(Ok(_)) => Ok(is_told),
        None => Ok(false),
    }
}

fn start(
    cx: &Context<'_>,
    (id, dir): (Ino, (Ino, Generation)),
    asked: &mut Asked,
) -> Result<(), Errno> {
    let (session, volume) = (cx.session, cx.volume);
    let _in_progress = session.about.begin_change().ok_or(Errno::EROFS)?;
    let change = asked.question.tree_change()?;
    let times = session.rules.writeback && (change.atime.is_some() || change.mtime.is_some());
    if times || session.rules.no_xattr && change.acl.is_some() {
        return Err(Errno::EOPNOTSUPP);
    }
    let mut who = asked.who.clone();
    who.umask = asked.question.change.umask;
    // Held before it is checked, so that its number stays its own.
    volume.references().hold(dir.0, 1)?;
    let started = same_dir(volume, dir)
        .and_then(|_| Ok(volume.attributes().access(&who, dir.0, MAY_EXEC)?))
        .and_then(|_| session.changing.start(&session.views.keep(), (&who, dir.0), &change));
    match started {
        Ok(running) => {
            session.streams.changes(id, running.clone());
            asked.work = Work::Change(running);
            Ok(())
        }
        Err(errno) => {
            volume.references().release(dir.0, 1);
            Err(errno)
        }
    }
}

/// Adds a failure, or the rest of it, to a piece. Returns whether it fits.
fn push(failure: &mut Failure, piece: &mut Piece<'_>) -> bool {
    let Failure { path, ino, errno, told } = failure;
    if told.is_none() {
        if !piece.push(&Record::Failure { ino: *ino, errno: errno.0.unsigned_abs() }) {
            return false;
        }
        *told = Some(0);
    }
    while let Some(at) = *told
        && let Some(rest) = path.get(at..).filter(|rest| !rest.is_empty())
    {
        let text = &rest[..rest.len().min(PATH_PART)];
        let goes_on = text.len() < rest.len();
        if !piece.push(&Record::Path { is_from: false, goes_on, text }) {
            return false;
        }
        *told = Some(at + text.len());
    }
    true
}
