//! `shoal cat`.

use shoal::{Code, FileKind, Ino};

use crate::args::CatArgs;
use crate::failure::{Reason, Result};
use crate::location::Location;
use crate::output::Out;
use crate::progress::Progress;
use crate::session::{Access, Session, Sessions};

/// Bytes read at once.
const PIECE: usize = 1 << 20;

/// Writes files to standard output.
pub fn run(args: &CatArgs) -> Result<u8> {
    Sessions::run(Access::Read, |sessions| {
        let mut out = Out::new();
        let mut progress = Progress::counting();
        let mut buffer = vec![0; PIECE];
        for place in &args.places {
            let location = Location::parse(place);
            let session = sessions.get(&location)?;
            match regular(&session, &location) {
                Ok(ino) => copy(&session, ino, &location, &mut out, &mut progress, &mut buffer)?,
                Err(error) => progress.failure(location.label(), Reason::from(error)),
            }
        }
        out.flush()?;
        Ok(progress.finish())
    })
}

/// Finds a file that has contents.
fn regular(session: &Session, location: &Location) -> shoal::Result<Ino> {
    let entry = session.find(&location.path, true)?;
    match entry.kind {
        FileKind::Regular => Ok(entry.ino),
        FileKind::Directory => Err(Code::IsDirectory.into()),
        _ => Err(Code::NoDevice.into()),
    }
}

fn copy(
    session: &Session,
    ino: Ino,
    location: &Location,
    out: &mut Out,
    progress: &mut Progress,
    buffer: &mut [u8],
) -> Result<()> {
    let mut offset = 0;
    loop {
        match session.volume.read(ino, offset, buffer) {
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
