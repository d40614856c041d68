//! `shoal truncate`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use shoal::raw::{Code, FileKind, SetAttr};

use crate::args::{Resize, TruncateArgs};
use crate::failure::{Failure, Reason, Result};
use crate::in_mount;
use crate::interrupt;
use crate::location::{Location, Place};
use crate::progress::Progress;
use crate::session::{Access, Session, Sessions};
use crate::tree::{Operand, Tree};

/// Changes sizes of files.
pub(crate) fn run(args: &TruncateArgs) -> Result<u8> {
    Sessions::run(Access::Write, |sessions| {
        let mut progress = Progress::counting();
        for (done, place) in args.places.iter().enumerate() {
            interrupt::check(|| format!("{done} of {} files truncated", args.places.len()))?;
            let opened = Operand::open(sessions, Access::Write, place, true)?;
            let (label, resized) = match opened {
                Ok(place) => (place.label(), resize(&place, args.size)),
                Err(missing) if missing.error.is(Code::NotFound) && args.no_create => continue,
                Err(missing) if missing.error.is(Code::NotFound) => {
                    (missing.label, make(sessions, place, args.size))
                }
                Err(missing) => (missing.label, Err(missing.error.into())),
            };
            if let Err(reason) = resized {
                if reason.stops_everything() {
                    return Err(Failure::failed(label, reason));
                }
                progress.failure(label, reason);
            }
        }
        Ok(progress.finish())
    })
}

fn resize(place: &Operand, by: Resize) -> Result<(), Reason> {
    match place.attr.kind {
        FileKind::Regular => {}
        FileKind::Directory => {
            return Err(Reason::from(shoal::raw::Error::from(Code::IsDirectory)));
        }
        _ => return Err(Reason::Text("is not a regular file".into())),
    }
    let size = by.of(place.attr.size).ok_or_else(too_large)?;
    match &place.tree {
        Tree::Volume(start) => set_size(&start.session, &start.real(&place.path), size),
        Tree::Mount(_) => {
            let path = OsStr::from_bytes(&place.path);
            let file = std::fs::OpenOptions::new().write(true).open(path)?;
            Ok(file.set_len(size)?)
        }
    }
}

fn too_large() -> Reason {
    Reason::from(shoal::raw::Error::from(Code::FileTooBig))
}

/// Changes the size of a file.
fn set_size(session: &Session, path: &[u8], size: u64) -> Result<(), Reason> {
    session.set(path, SetAttr { size: Some(size), ..SetAttr::default() })?;
    Ok(())
}

/// Makes a file of a size.
fn make(sessions: &mut Sessions, place: &OsStr, by: Resize) -> Result<(), Reason> {
    let size = by.of(0).ok_or_else(too_large)?;
    if let Place::Local(path) = Place::parse(place)
        && in_mount::is_below_mount(path.as_os_str().as_bytes())
    {
        let mut options = std::fs::OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).open(path)?;
        return Ok(file.set_len(size)?);
    }
    let location = Location::parse(place);
    let session = sessions
        .get(&location)
        .map_err(|failure| Reason::Text(failure.line().unwrap_or_default().to_owned()))?;
    let slot = session.slot(&location.path)?;
    drop(session.create(&slot)?);
    set_size(&session, &slot.path, size)
}
