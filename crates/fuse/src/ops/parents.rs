//! The ioctl that tells a file's names, or paths, a page at a time ([`crate::protocol::parents`]).
//!
//! Who may ask: the superuser, as on XFS, and the user whom the server runs as, who can read the
//! volume itself. Others get EPERM, also for their own files: the answer tells names in directories
//! that the caller need not be allowed to search. Through any file or directory of a mount all
//! inodes in it can be asked for, by number. Of a mount of one root, only those of that root.

use super::{Context, Outcome};
use crate::protocol::page::PAGE;
use crate::protocol::parents::{IS_END, IS_TOP, RECORDS_MAX, WANT_PATHS, Writer, question};
use crate::protocol::reply::put;
use crate::protocol::wire::{IoctlIn, IoctlOut, ParentsHead};
use crate::protocol::{Errno, Request};
use shoal::{Attr, Error, Ino, Parent};
use std::collections::HashMap;

/// Times that a page of paths is made anew because something was renamed meanwhile.
const TRIES: usize = 16;

/// A name with its cookie.
type Found = (u64, Parent);

/// IOCTL_PARENTS.
pub fn parents(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    let uid = cx.who.uid;
    if uid != 0 && uid != rustix::process::geteuid().as_raw() {
        return Err(Errno::EPERM);
    }
    let arg: IoctlIn = request.arg()?;
    if (arg.in_size as usize) < PAGE || (arg.out_size as usize) < PAGE {
        return Err(Errno::EINVAL);
    }
    let head = question(request.payload())?;
    let attr = asked_for(cx, request.node(), &head)?;
    let start = put(request.body(), 0, &IoctlOut::default())?;
    let room = request.body().get_mut(start..).ok_or(Errno::EIO)?;
    let answer = Answer { cx, attr, cookie: head.cookie };
    let len = match head.flags & WANT_PATHS {
        0 => answer.names(room)?,
        _ => answer.paths(room)?,
    };
    Ok(start + len)
}

/// The file that is meant, if it is of this mount.
fn asked_for(cx: &Context<'_>, node: Ino, head: &ParentsHead) -> Result<Attr, Errno> {
    let ino = if head.ino == 0 { node } else { Ino(head.ino) };
    let top = cx.session.top;
    if top != Ino::ROOT && ino.root() != top.root() {
        return Err(Errno::ESTALE);
    }
    let attr = cx.volume.getattr(ino)?;
    let same = head.generation == 0 || head.generation == attr.generation.0;
    if same { Ok(attr) } else { Err(Errno::ESTALE) }
}

/// An answer under way.
struct Answer<'a> {
    cx: &'a Context<'a>,
    attr: Attr,
    cookie: u64,
}

impl Answer<'_> {
    fn is_top(&self) -> bool {
        self.attr.ino == self.cx.session.top
    }

    /// The names from the cookie on, as many as a page can hold.
    fn found(&self) -> Result<Vec<Found>, Errno> {
        match self.is_top() {
            true => Ok(Vec::new()),
            false => Ok(self.cx.volume.parents_from(self.attr.ino, self.cookie, RECORDS_MAX)?),
        }
    }

    fn names(&self, room: &mut [u8]) -> Outcome {
        let found = self.found()?;
        let mut page = Writer::new(room);
        let full = found.iter().find(|(_, parent)| !push(&mut page, parent, &parent.name));
        self.finish(page, &found, full)
    }

    /// Each path is as it was at one moment: the names are the same before and after.
    fn paths(&self, room: &mut [u8]) -> Outcome {
        let prefix = self.prefix()?;
        let mut tries = 0;
        loop {
            tries += 1;
            let found = self.found()?;
            let mut dirs = HashMap::new();
            let mut page = Writer::new(&mut *room);
            let (mut full, mut whole) = (None, true);
            for it in &found {
                let (_, parent) = it;
                let Some(mut path) = self.path_of(parent.dir, &mut dirs, &prefix)? else {
                    // Gone since, and with it the name.
                    whole = false;
                    continue;
                };
                path.push(b'/');
                path.extend_from_slice(&parent.name);
                if !push(&mut page, parent, &path) {
                    full = Some(it);
                    break;
                }
            }
            if full.is_some() && page.is_empty() {
                return Err(Errno::ENAMETOOLONG);
            }
            if tries == TRIES || whole && found == self.found()? {
                return self.finish(page, &found, full);
            }
        }
    }

    /// Path of a directory, without a slash at the end; `None`: there is none any more.
    fn path_of(
        &self,
        dir: Ino,
        known: &mut HashMap<Ino, Option<Vec<u8>>>,
        prefix: &[u8],
    ) -> Result<Option<Vec<u8>>, Errno> {
        if let Some(path) = known.get(&dir) {
            return Ok(path.clone());
        }
        let path = match self.cx.volume.paths_of(dir) {
            Ok(paths) => paths.into_iter().next(),
            Err(Error::Code(shoal::Code::Stale)) => None,
            Err(error) => return Err(error.into()),
        };
        let path = path.and_then(|path| path.strip_prefix(prefix).map(<[u8]>::to_vec));
        // The volume's own top is a slash alone.
        let path = path.map(|path| if path == b"/" { Vec::new() } else { path });
        known.insert(dir, path.clone());
        Ok(path)
    }

    /// What is in front of all paths of this mount in those of the volume.
    fn prefix(&self) -> Result<Vec<u8>, Errno> {
        match self.cx.session.top {
            Ino::ROOT => Ok(Vec::new()),
            top => {
                let path = self.cx.volume.paths_of(top)?.into_iter().next();
                path.ok_or(Errno::ESTALE)
            }
        }
    }

    /// `full` is the first name that did not fit.
    fn finish(&self, page: Writer<'_>, found: &[Found], full: Option<&Found>) -> Outcome {
        let next = match full {
            Some((cookie, _)) => Some(*cookie),
            None if found.len() == RECORDS_MAX => found.last().map(|(cookie, _)| cookie + 1),
            None => None,
        };
        page.finish(&ParentsHead {
            ino: self.attr.ino.0,
            generation: self.attr.generation.0,
            flags: if next.is_none() { IS_END } else { 0 } | if self.is_top() { IS_TOP } else { 0 },
            cookie: next.unwrap_or(0),
            ..ParentsHead::default()
        })
    }
}

fn push(page: &mut Writer<'_>, parent: &Parent, name: &[u8]) -> bool {
    page.push(parent.dir.0, parent.generation.0, name)
}
