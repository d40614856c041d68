//! Names or paths of a file ([`crate::protocol::control`]).
//!
//! Any file or directory of a mount can be used to ask for all its inodes, by number; in a mount of
//! one subvolume, for those of that subvolume.

use super::{Context, Next};
use crate::protocol::Errno;
use crate::protocol::control::{Answer, ENTRIES_MAX, Entry, PATHS, TOP};
use crate::protocol::wire::ControlHead;
use shoal::raw::{Attr, Error, Ino, Parent};
use std::collections::HashMap;

/// Attempts at a page of paths when something is renamed meanwhile.
const TRIES: usize = 16;

/// A name with its cookie.
type Found = (u64, Parent);

/// Answers [`Kind::Names`](crate::protocol::control::Kind::Names).
pub(crate) fn names(
    cx: &Context<'_>,
    node: Ino,
    head: &ControlHead,
    answer: &mut Answer<'_>,
) -> Next {
    let attr = asked_for(cx, node, head.numbers[0], head.numbers[1])?;
    let is_top = attr.ino == cx.session.top;
    answer.head.flags = if is_top { TOP } else { 0 };
    answer.head.numbers = [attr.ino.0, attr.generation.0.into(), 0, 0];
    if is_top {
        return Ok(None);
    }
    let file = File { cx, ino: attr.ino, cookie: head.cursor[0] };
    match head.flags & PATHS {
        0 => file.names(answer),
        _ => file.paths(answer),
    }
}

/// Returns the attributes of the file asked for, if it is of this mount. Inode 0: the opened file;
/// generation 0: any.
fn asked_for(cx: &Context<'_>, node: Ino, ino: u64, generation: u64) -> Result<Attr, Errno> {
    let ino = if ino == 0 { node } else { Ino(ino) };
    let top = cx.session.top;
    if top != Ino::ROOT && ino.root() != top.root() {
        return Err(Errno::ESTALE);
    }
    let attr = cx.volume.attributes().getattr(ino)?;
    let is_same = generation == 0 || generation == u64::from(attr.generation.0);
    if is_same { Ok(attr) } else { Err(Errno::ESTALE) }
}

/// A file whose names are listed from a cookie on.
struct File<'a> {
    cx: &'a Context<'a>,
    ino: Ino,
    cookie: u64,
}

impl File<'_> {
    /// Returns the names from the cookie on, as many as a page can hold.
    fn found(&self) -> Result<Vec<Found>, Errno> {
        Ok(self.cx.volume.paths().parents_from(self.ino, self.cookie, ENTRIES_MAX)?)
    }

    fn names(&self, answer: &mut Answer<'_>) -> Next {
        let found = self.found()?;
        let full = found.iter().find(|(_, parent)| !push(answer, parent, &parent.name));
        Ok(next_of(&found, full))
    }

    /// Lists paths. Each is as it was at one moment: the names are the same before and after.
    fn paths(&self, answer: &mut Answer<'_>) -> Next {
        let prefix = self.prefix()?;
        let mut tries = 0;
        loop {
            tries += 1;
            let found = self.found()?;
            let mut dirs = HashMap::new();
            answer.clear();
            let (mut full, mut whole) = (None, true);
            for it in &found {
                let (_, parent) = it;
                let Some(mut path) = self.path_of(parent.dir, &mut dirs, &prefix)? else {
                    // The directory has gone, and with it the name.
                    whole = false;
                    continue;
                };
                path.push(b'/');
                path.extend_from_slice(&parent.name);
                if !push(answer, parent, &path) {
                    full = Some(it);
                    break;
                }
            }
            if full.is_some() && answer.head.count == 0 {
                return Err(Errno::ENAMETOOLONG);
            }
            if tries == TRIES || whole && found == self.found()? {
                return Ok(next_of(&found, full));
            }
        }
    }

    /// Returns the path of a directory, without a slash at the end; `None`: it has none any more.
    fn path_of(
        &self,
        dir: Ino,
        known: &mut HashMap<Ino, Option<Vec<u8>>>,
        prefix: &[u8],
    ) -> Result<Option<Vec<u8>>, Errno> {
        if let Some(path) = known.get(&dir) {
            return Ok(path.clone());
        }
        let path = match self.cx.volume.paths().paths_of(dir) {
            Ok(paths) => paths.into_iter().next(),
            Err(Error::Code(shoal::raw::Code::Stale)) => None,
            Err(error) => return Err(error.into()),
        };
        let path = path.and_then(|path| path.strip_prefix(prefix).map(<[u8]>::to_vec));
        // The volume's own top is a slash alone.
        let path = path.map(|path| if path == b"/" { Vec::new() } else { path });
        known.insert(dir, path.clone());
        Ok(path)
    }

    /// Returns the path of the mount's top in the volume, the prefix of all others.
    fn prefix(&self) -> Result<Vec<u8>, Errno> {
        match self.cx.session.top {
            Ino::ROOT => Ok(Vec::new()),
            top => {
                let path = self.cx.volume.paths().paths_of(top)?.into_iter().next();
                path.ok_or(Errno::ESTALE)
            }
        }
    }
}

/// Returns the place to go on; `full` is the first name that did not fit.
fn next_of(found: &[Found], full: Option<&Found>) -> Option<[u64; 3]> {
    let cookie = match full {
        Some((cookie, _)) => *cookie,
        None if found.len() == ENTRIES_MAX => found.last()?.0 + 1,
        None => return None,
    };
    Some([cookie, 0, 0])
}

fn push(answer: &mut Answer<'_>, parent: &Parent, name: &[u8]) -> bool {
    let numbers = [parent.dir.0, parent.generation.0.into(), 0];
    answer.push(&Entry { numbers, texts: [name, b""], ..Entry::default() })
}
