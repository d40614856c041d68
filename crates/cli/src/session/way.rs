//! The way down a path of a volume, as the system goes it.

use shoal::raw::{Attr, Code, FileKind, Result, limits};
use shoal_session::Node;

use super::{Open, Session};
use crate::location::join;

/// Times that a name is looked up which is replaced meanwhile.
const ATTEMPTS: usize = 64;

/// A place in a volume, with the directories above it held open: each name is looked up once, and
/// `..` leads back where the way came from.
pub(crate) struct Way<'s> {
    session: &'s Session,
    /// Path from the top, without symlinks and dots.
    pub real: Vec<u8>,
    /// Attributes of the object there.
    attr: Attr,
    /// The directories on the path, below the top.
    dirs: Vec<Open>,
}

impl<'s> Way<'s> {
    /// Begins at the top of a volume.
    pub(crate) fn at_top(session: &'s Session) -> Result<Way<'s>> {
        let attr = session.calls().attr(&session.who, Node::TOP)?;
        Ok(Way { session, real: Vec::new(), attr, dirs: Vec::new() })
    }

    /// Goes on by a path, `/` being the top of the volume; `follow`: also by a symlink at its end.
    /// Returns the attributes of what is there.
    ///
    /// # Errors
    /// Those of `stat(2)`. The way may have come to another directory then, as that of a symlink's
    /// target.
    pub(crate) fn go(&mut self, path: &[u8], follow: bool) -> Result<Attr> {
        if path.len() > limits::PATH_MAX {
            return Err(Code::NameTooLong.into());
        }
        let (mut rest, mut links) = (path.to_vec(), 0);
        loop {
            let start = rest.iter().position(|byte| *byte != b'/').unwrap_or(rest.len());
            if start == rest.len() {
                return Ok(self.attr);
            }
            if self.attr.kind != FileKind::Directory {
                return Err(Code::NotDirectory.into());
            }
            let end = rest[start..].iter().position(|byte| *byte == b'/');
            let behind = rest.split_off(end.map_or(rest.len(), |len| start + len));
            let name = &rest[start..];
            match name {
                b"." => rest = behind,
                b".." => {
                    self.up()?;
                    rest = behind;
                }
                name => {
                    // A slash behind it makes it be followed.
                    let Some(mut target) = self.step(name, follow || !behind.is_empty())? else {
                        rest = behind;
                        continue;
                    };
                    links += 1;
                    if links > limits::SYMLOOP_MAX {
                        return Err(Code::Loop.into());
                    }
                    if target.first() == Some(&b'/') {
                        *self = Way::at_top(self.session)?;
                    }
                    target.extend(behind);
                    rest = target;
                }
            }
        }
    }

    /// Goes to a name in the directory; if that is a symlink to be followed, returns its target
    /// instead.
    fn step(&mut self, name: &[u8], follow: bool) -> Result<Option<Vec<u8>>> {
        let (session, dir) = (self.session, self.dir());
        let (calls, who) = (session.calls(), &session.who);
        for _ in 0..ATTEMPTS {
            let found = calls.find(who, dir, name, false)?;
            match found.kind {
                FileKind::Symlink if follow => return calls.read_link(who, dir, name).map(Some),
                FileKind::Directory => {
                    let opened = calls.open_dir(who, dir, name)?;
                    match session.the_same(opened, Some(found.ino)) {
                        Err(error) if error.is(Code::Stale) => continue,
                        open => self.dirs.push(open?),
                    }
                }
                _ => {}
            }
            (self.attr, self.real) = (found, join(&self.real, name));
            return Ok(None);
        }
        Err(Code::Stale.into())
    }

    fn up(&mut self) -> Result<()> {
        let end = self.real.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        self.real.truncate(end);
        self.dirs.pop();
        self.attr = self.session.calls().attr(&self.session.who, self.dir())?;
        Ok(())
    }

    fn dir(&self) -> Node {
        self.dirs.last().map_or(Node::TOP, |dir| dir.node)
    }
}
