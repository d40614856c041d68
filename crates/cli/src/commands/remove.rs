//! `shoal rm`.

use shoal::{Code, FileKind, Ino};

use crate::args::RmArgs;
use crate::failure::{Failure, Reason, Result};
use crate::location::{Location, Split, split_last};
use crate::output::printable;
use crate::progress::Progress;
use crate::session::{Access, Session, Sessions};
use crate::walk::{Step, Walk};

/// Removes files.
pub fn run(args: &RmArgs) -> Result<u8> {
    Sessions::run(Access::Write, |sessions| {
        let mut remover = Remover { args, progress: Progress::counting(), removed: 0 };
        for place in &args.places {
            let location = Location::parse(place);
            let session = sessions.get(&location)?;
            match remover.operand(&session, &location) {
                Ok(()) => {}
                Err(reason) if args.force && reason.is(Code::NotFound) => {}
                Err(reason) if reason.stops_everything() => {
                    return Err(Failure::failed(location.label(), reason));
                }
                Err(reason) => remover.progress.failure(location.label(), reason),
            }
        }
        Ok(remover.progress.finish())
    })
}

struct Remover<'a> {
    args: &'a RmArgs,
    progress: Progress,
    removed: u64,
}

impl Remover<'_> {
    fn operand(&mut self, session: &Session, location: &Location) -> Result<(), Reason> {
        let Split { name, slash, .. } = split_last(&location.path);
        let slot = session.slot(&location.path)?;
        let entry = session.volume.lookup(&session.who, slot.dir, &slot.name)?;
        if entry.kind != FileKind::Directory {
            if slash && !name.is_empty() {
                return Err(shoal::Error::Code(Code::NotDirectory).into());
            }
            session.volume.unlink(&session.who, slot.dir, &slot.name)?;
            return Ok(());
        }
        if entry.ino.root() != slot.dir.root() {
            // Before anything in it is touched: what is in a root goes with it, at once.
            let (volume, name) = (session.path.display(), printable(&slot.name));
            let text = format!("is a root (delete it with shoal root delete {volume} {name})");
            return Err(Reason::Text(text));
        }
        if self.args.recursive {
            self.tree(session, &location.path, entry.ino)?;
        } else if !self.args.dir {
            return Err(Reason::Text("is a directory (remove it with -r)".into()));
        }
        match session.volume.rmdir(&session.who, slot.dir, &slot.name) {
            // What keeps it has been reported already.
            Err(error) if error.is(Code::NotEmpty) && self.progress.failures() > 0 => Ok(()),
            result => Ok(result?),
        }
    }

    /// Removes everything in a directory.
    fn tree(&mut self, session: &Session, path: &[u8], top: Ino) -> Result<(), Reason> {
        let mut walk = Walk::new(session, top, path);
        let failures_before = self.progress.failures();
        while let Some(step) = walk.step() {
            let result = match step {
                Step::Found { entry, .. } if entry.attr.kind == FileKind::Directory => continue,
                Step::Found { dir, entry } => session.volume.unlink(&session.who, dir, &entry.name),
                Step::Done { dir, entry } => {
                    match session.volume.rmdir(&session.who, dir, &entry.name) {
                        Err(error)
                            if error.is(Code::NotEmpty)
                                && self.progress.failures() > failures_before =>
                        {
                            continue;
                        }
                        result => result,
                    }
                }
                Step::Failed(error) => Err(error),
            };
            match result.map_err(Reason::from) {
                Ok(()) => self.removed += 1,
                Err(reason) if reason.stops_everything() => return Err(reason),
                Err(reason) => self.progress.failure(session.label(walk.path()), reason),
            }
            self.progress.count(self.removed, 0, walk.path());
        }
        Ok(())
    }
}
