//! `shoal readlink`, `shoal truncate`, and standard input as the source of `shoal cp`.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;

use shoal::raw::{Code, FileKind, Ino, SetAttr};

use crate::args::{ReadlinkArgs, Resize, TruncateArgs};
use crate::failure::{Failure, OK, Reason, Result};
use crate::in_mount;
use crate::interrupt;
use crate::location::{Location, Place};
use crate::output::Out;
use crate::progress::Progress;
use crate::session::{Access, Session, Sessions};
use crate::size::human;
use crate::tree::{Operand, Tree};

/// Bytes read and written at once.
const PIECE: usize = 1 << 20;

/// Prints the targets of symlinks.
pub(crate) fn readlink(args: &ReadlinkArgs) -> Result<u8> {
    Sessions::run(Access::Read, |sessions| {
        let (mut out, mut progress) = (Out::new(), Progress::counting());
        for place in &args.places {
            let place = match Operand::open(sessions, Access::Read, place, false)? {
                Ok(place) => place,
                Err(missing) => {
                    progress.failure(missing.label, Reason::from(missing.error));
                    continue;
                }
            };
            match place.tree.target(&place.path, &place.attr) {
                Ok(Some(target)) => {
                    match args.zero {
                        true => out.bytes(&target)?,
                        false => out.name(&target)?,
                    }
                    let is_bare = args.no_newline && args.places.len() == 1;
                    let end: &[u8] = if args.zero { b"\0" } else { b"\n" };
                    out.bytes(if is_bare { &[] } else { end })?;
                }
                Ok(None) => {
                    progress.failure(place.label(), Reason::Text("is not a symlink".into()));
                }
                Err(error) => progress.failure(place.label(), Reason::from(error)),
            }
        }
        out.flush()?;
        Ok(progress.finish())
    })
}

/// Changes sizes of files.
pub(crate) fn truncate(args: &TruncateArgs) -> Result<u8> {
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
        Tree::Volume(session) => set_size(session, place.attr.ino, size),
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

fn set_size(session: &Session, ino: Ino, size: u64) -> Result<(), Reason> {
    let set = SetAttr { size: Some(size), ..SetAttr::default() };
    session.volume.attributes().setattr(&session.who, ino, &set)?;
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
    let made = session.volume.namespace().create(&session.who, slot.dir, &slot.name, 0o666)?;
    set_size(&session, made.ino, size)
}

/// Copies standard input to a file of a volume. One that exists is overwritten.
pub(crate) fn from_input(destination: &Location) -> Result<u8> {
    Sessions::run(Access::Write, |sessions| {
        let session = sessions.get(destination)?;
        let failed = |reason: Reason| Failure::failed(destination.label(), reason);
        let ino = fresh(&session, destination).map_err(failed)?;
        let (mut input, mut buffer) = (std::io::stdin().lock(), vec![0; PIECE]);
        let mut offset = 0;
        loop {
            interrupt::check(|| format!("{} of standard input copied", human(offset)))?;
            let read = fill(&mut input, &mut buffer)
                .map_err(|error| Failure::failed("standard input", Reason::from(error)))?;
            let mut data = &buffer[..read];
            while !data.is_empty() {
                let written = session.volume.files().write(ino, offset, data, false);
                let written = written.map_err(|error| failed(Reason::from(error)))?;
                (offset, data) = (offset + written as u64, &data[written..]);
            }
            if read < buffer.len() {
                return Ok(OK);
            }
        }
    })
}

/// Returns the file to be written, empty.
fn fresh(session: &Session, destination: &Location) -> Result<Ino, Reason> {
    let path = &destination.path;
    match session.find(path, true) {
        Ok(found) => match found.kind {
            FileKind::Regular => set_size(session, found.ino, 0).map(|()| found.ino),
            FileKind::Directory => {
                Err(Reason::Text("is a directory (standard input has no name: give one)".into()))
            }
            _ => Err(Reason::Text("is not a regular file".into())),
        },
        Err(error) if error.is(Code::NotFound) => {
            let slot = session.slot(path)?;
            let namespace = session.volume.namespace();
            Ok(namespace.create(&session.who, slot.dir, &slot.name, 0o666)?.ino)
        }
        Err(error) => Err(error.into()),
    }
}

/// Reads until the buffer is full or the input has ended.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
