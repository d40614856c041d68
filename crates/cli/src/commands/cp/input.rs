//! Standard input as the source of `shoal cp`.

use std::io::Read;

use shoal::raw::{Code, FileKind};
use shoal_session::How;

use crate::failure::{Failure, OK, Reason, Result};
use crate::interrupt;
use crate::location::Location;
use crate::session::{Access, Open, Session, Sessions};
use crate::size::human;

/// Bytes read and written at once.
const PIECE: usize = 1 << 20;

/// Copies standard input to a file of a volume. One that exists is overwritten.
pub(crate) fn copy(destination: &Location) -> Result<u8> {
    Sessions::run(Access::Write, |sessions| {
        let session = sessions.get(destination)?;
        let failed = |reason: Reason| Failure::failed(destination.label(), reason);
        let file = fresh(&session, destination).map_err(failed)?;
        let (mut input, mut buffer) = (std::io::stdin().lock(), vec![0; PIECE]);
        let mut offset = 0;
        loop {
            interrupt::check(|| format!("{} of standard input copied", human(offset)))?;
            let read = fill(&mut input, &mut buffer)
                .map_err(|error| Failure::failed("standard input", Reason::from(error)))?;
            let mut data = &buffer[..read];
            while !data.is_empty() {
                let written = session.calls().write(&session.who, file.node, offset, data);
                let (_, written) = written.map_err(|error| failed(Reason::from(error)))?;
                (offset, data) = (offset + written, &data[written as usize..]);
            }
            if read < buffer.len() {
                return Ok(OK);
            }
        }
    })
}

/// Returns the file to be written, empty.
fn fresh(session: &Session, destination: &Location) -> Result<Open, Reason> {
    let path = &destination.path;
    match session.place(path, true) {
        Ok((found, real)) => match found.kind {
            FileKind::Regular => {
                let how = How { write: true, truncate: true, ..How::default() };
                Ok(session.open_file(&real, how, None)?)
            }
            FileKind::Directory => {
                Err(Reason::Text("is a directory (standard input has no name: give one)".into()))
            }
            _ => Err(Reason::Text("is not a regular file".into())),
        },
        Err(error) if error.is(Code::NotFound) => Ok(session.create(&session.slot(path)?)?),
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
