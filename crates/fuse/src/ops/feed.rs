//! Changes below a directory, asked of its control file ([`super::stream`]).
//!
//! Permission: that of the user who has asked. The volume leaves out what this user could not find
//! by listing: of each directory on the way from that of the control file, permission to list and
//! to search is needed. So the question is not for the superuser alone.
//!
//! *Bounded*: the reader of the volume's feed keeps the removed names (3 MiB at most in the volume)
//! and a few hundred changes; paths are forgotten between two pieces. There are at most
//! [`crate::streams`]' number of readers; one that is not read gives way.

use super::{Context, same_dir};
use crate::feeds::Feed;
use crate::protocol::Errno;
use crate::protocol::flags::{MAY_EXEC, MAY_READ};
use crate::protocol::question::{MARK_ONLY, Piece, Record};
use crate::streams::{Asked, Work};
use shoal::raw::{ChangeMark, Error, Generation, Ino};
use std::time::{Duration, Instant};

/// Answers [`Kind::Changes`](crate::protocol::question::Kind::Changes) further; returns whether
/// that is all.
pub(crate) fn changes(
    cx: &Context<'_>,
    (id, dir): (Ino, (Ino, Generation)),
    asked: &mut Asked,
    piece: &mut Piece<'_>,
    slice: Duration,
) -> Result<bool, Errno> {
    let (volume, begun) = (cx.volume, Instant::now());
    same_dir(volume, dir)?;
    volume.attributes().access(&asked.who, dir.0, MAY_READ | MAY_EXEC)?;
    if asked.question.flags & MARK_ONLY != 0 {
        let text = volume.changes().mark(dir.0).map_err(refused)?.to_string();
        return Ok(piece.push(&Record::Mark { text: text.as_bytes(), all_removed: true }));
    }
    if let Work::None = asked.work {
        let since = match asked.question.name.is_empty() {
            true => None,
            false => Some(mark_of(&asked.question.name)?),
        };
        cx.session.streams.admit(id, asked)?;
        let reader = volume.changes().since(&asked.who, dir.0, since.as_ref()).map_err(refused)?;
        asked.work = Work::Feed(Box::new(Feed::new(reader)));
    }
    let feed = match &mut asked.work {
        Work::Feed(feed) => feed,
        // It has given way to another one.
        _ => return Err(Errno::ECANCELED),
    };
    let is_last = feed.fill(volume, piece, &|| begun.elapsed() > slice)?;
    // Otherwise its number may be that of another directory by now.
    same_dir(volume, dir)?;
    Ok(is_last)
}

/// Answers [`Kind::Newer`](crate::protocol::question::Kind::Newer).
pub(crate) fn newer(cx: &Context<'_>, asked: &Asked, piece: &mut Piece<'_>) -> Result<bool, Errno> {
    let mark = mark_of(&asked.question.name)?;
    Ok(piece.push(&Record::Newer(cx.volume.changes().is_newer(&mark))))
}

fn mark_of(text: &[u8]) -> Result<ChangeMark, Errno> {
    let text = std::str::from_utf8(text).map_err(|_| Errno::EINVAL)?;
    text.parse().map_err(refused)
}

/// Returns the errno of an error. A refused mark is the caller's affair, not the log's.
fn refused(error: Error) -> Errno {
    match error {
        Error::Refused { code, .. } => code.into(),
        error => error.into(),
    }
}
