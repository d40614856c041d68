//! `shoal cat`.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::io::Errno;
use shoal::raw::{Code, FileKind, Rights, Token};
use shoal_session::How;

use crate::args::CatArgs;
use crate::failure::{Failure, Reason, Result};
use crate::location::Location;
use crate::mounted;
use crate::output::Out;
use crate::progress::Progress;
use crate::session::{Access, Open, Session, Sessions};
use crate::text::printable;
use crate::tree::mounted_path;

/// Bytes read at once.
const PIECE: usize = 1 << 20;

/// Writes files to standard output.
pub(crate) fn run(args: &CatArgs) -> Result<u8> {
    if let Some(text) = &args.token {
        return by_token(args, text);
    }
    Sessions::run(Access::Read, |sessions| {
        let mut out = Out::new();
        let mut progress = Progress::counting();
        let mut buffer = vec![0; PIECE];
        for place in &args.places {
            if let Some(path) = mounted_path(place)? {
                from_mount(&path, &mut out, &mut progress, &mut buffer)?;
                continue;
            }
            let location = Location::parse(place);
            let session = sessions.get(&location)?;
            match regular(&session, &location) {
                Ok(file) => {
                    copy(&session, &file, &location, &mut out, &mut progress, &mut buffer)?;
                }
                Err(error) => progress.failure(location.label(), Reason::from(error)),
            }
        }
        out.flush()?;
        Ok(progress.finish())
    })
}

/// Writes the file of a token.
fn by_token(args: &CatArgs, text: &str) -> Result<u8> {
    let [place] = &args.places[..] else {
        return Err(Failure::usage("--token", "opens one file: name one volume"));
    };
    if let Some(path) = mounted_path(place)? {
        let what = "is mounted: read the file .shoal-open/TOKEN in the top directory of the mount";
        return Err(Failure::usage(printable(path.as_os_str().as_bytes()), what));
    }
    let location = Location::parse(place);
    if location.path != b"/" {
        return Err(Failure::usage(location.label(), "is no volume: the token has no path"));
    }
    let refused = |error| Failure::failed("--token", Reason::Volume(error));
    let token: Token = text.parse().map_err(refused)?;
    // One to write is refused by a volume that cannot be written, as in a mount.
    let writes = token.rights().contains(Rights::WRITE);
    let access = if writes { Access::Write } else { Access::Read };
    Sessions::run(access, |sessions| {
        let session = sessions.get(&location)?;
        let opened = session.calls().open_token(&session.who, token).map_err(refused)?;
        let file = session.opened(opened);
        if !token.rights().contains(Rights::READ) {
            return Err(refused(Code::Access.into()));
        }
        let (mut out, mut progress) = (Out::new(), Progress::counting());
        copy(&session, &file, &location, &mut out, &mut progress, &mut vec![0; PIECE])?;
        out.flush()?;
        Ok(progress.finish())
    })
}

/// Writes a file of a mount.
fn from_mount(
    path: &Path,
    out: &mut Out,
    progress: &mut Progress,
    buffer: &mut [u8],
) -> Result<()> {
    let mut copied = || {
        let mut file = File::from(mounted::open_at(path)?);
        let kind = file.metadata()?.file_type();
        match kind.is_file() {
            true => {}
            false if kind.is_dir() => return Err(Reason::from(Errno::ISDIR)),
            false => return Err(Reason::from(Errno::NODEV)),
        }
        loop {
            match file.read(buffer) {
                Ok(0) => return Ok(Ok(())),
                Ok(read) => {
                    if let Err(failure) = out.bytes(&buffer[..read]) {
                        return Ok(Err(failure));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    };
    copied().unwrap_or_else(|reason: Reason| {
        progress.failure(printable(path.as_os_str().as_bytes()), reason);
        Ok(())
    })
}

/// Finds a file with contents.
fn regular(session: &Session, location: &Location) -> shoal::raw::Result<Open> {
    let (entry, real) = session.place(&location.path, true)?;
    match entry.kind {
        FileKind::Regular => {
            let how = How { read: true, ..How::default() };
            session.open_file(&real, how, Some(entry.ino))
        }
        FileKind::Directory => Err(Code::IsDirectory.into()),
        _ => Err(Code::NoDevice.into()),
    }
}

fn copy(
    session: &Session,
    file: &Open,
    location: &Location,
    out: &mut Out,
    progress: &mut Progress,
    buffer: &mut [u8],
) -> Result<()> {
    let mut offset = 0;
    loop {
        match session.calls().read(&session.who, file.node, offset, buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => {
                out.bytes(&buffer[..read])?;
                offset += read as u64;
            }
            Err(error) => {
                progress.failure(location.label(), Reason::from(error));
                return Ok(());
            }
        }
    }
}
